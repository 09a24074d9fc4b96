"""A campaign survives kill -9 and the loss of a worker; a worker that cannot fly its flights is one line."""

import os
import shutil
import subprocess

import pytest

from companion.core.config_files import config_folder
from companion.core.provenance import PACKAGES, ROOT
from tests.campaign.demonstrations import (
    Cluster,
    command,
    file_of,
    finished,
    killed_and_resumed,
    on_cluster_with_a_lost_worker,
    wait_for,
)

pytestmark = pytest.mark.verify


@pytest.mark.parametrize("kill_after", [0, 3])
def test_after_kill_9_no_flight_is_missing_and_none_is_flown_twice(tmp_path, kill_after):
    flown = killed_and_resumed(tmp_path, 5, 2.0, 2, kill_after)
    assert flown.complete and len(flown.rows) == 5, flown


def test_a_cluster_that_loses_a_worker_flies_each_flight_once(tmp_path):
    flown = on_cluster_with_a_lost_worker(tmp_path, 5, 4.0, 1)
    assert flown.complete and len(flown.rows) == 5, flown


def refusal(tmp_path, cluster) -> str:
    words = command(file_of(tmp_path, 2, 1.5), tmp_path / "out", "--scheduler", cluster.address)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 2 and len(lines) == 1, done.stderr
    return lines[0]


def test_a_worker_without_the_project_is_one_line(tmp_path):
    hidden = tmp_path / "hidden"  # the environment of these tests may have the project installed
    hidden.mkdir()
    (hidden / "sitl.py").write_text("raise ModuleNotFoundError(\"No module named 'sitl'\", name='sitl')\n")
    with Cluster(tmp_path, 1, {**os.environ, "PYTHONPATH": str(hidden), "PYTHONSAFEPATH": "1"}) as cluster:
        line = refusal(tmp_path, cluster)
    assert "worker tcp://" in line and "the project cannot be imported there" in line


def test_a_worker_with_another_version_is_one_line(tmp_path):
    other = tmp_path / "other"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, other / package, ignore=shutil.ignore_patterns("__pycache__"))
    with (other / "sitl/ports.py").open("a", encoding="utf-8") as file:
        file.write("\n# changed\n")
    with Cluster(tmp_path, 1, {**os.environ, "PYTHONPATH": str(other), "PYTHONSAFEPATH": "1"}) as cluster:
        assert "another version of the project: companion" in refusal(tmp_path, cluster)


def test_a_worker_with_another_configuration_is_one_line(tmp_path):
    shutil.copytree(config_folder(), tmp_path / "config")
    with (tmp_path / "config/autopilots/px4_1_17.toml").open("a", encoding="utf-8") as file:
        file.write("\n# changed\n")
    environment = {"PYTHONPATH": str(ROOT), "COMPANION_CONFIG_DIR": str(tmp_path / "config")}
    with Cluster(tmp_path, 1, os.environ | environment) as cluster:
        line = refusal(tmp_path, cluster)
    assert "worker tcp://" in line and "autopilots/px4_1_17.toml: another configuration" in line


def test_a_scheduler_without_workers_is_one_line(tmp_path):
    with Cluster(tmp_path, 0) as cluster:
        assert "the scheduler has no workers" in refusal(tmp_path, cluster)


def test_a_scheduler_that_is_lost_keeps_the_finished_flights(tmp_path):
    file, out = file_of(tmp_path, 4, 3.0), tmp_path / "out"
    with Cluster(tmp_path, 1) as cluster:
        words = command(file, out, "--scheduler", cluster.address)
        with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as flying:
            wait_for(lambda: bool(finished(out)) or flying.poll() is not None)
            cluster.scheduler.kill()
            text = flying.communicate()[1]
    kept = finished(out)
    assert flying.returncode == 2 and kept and (out / "results.parquet").is_file()
    assert (
        f"the scheduler is lost: {len(kept)} of 4 flights flown; go on with --resume" in text.strip().splitlines()[-1]
    )

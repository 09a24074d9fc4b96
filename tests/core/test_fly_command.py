"""The real `companion fly` around the simulator: every way to end it ends all processes and keeps log and report."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from companion.recording.log import read_log
from companion.runtime.manager import wait_until
from tests.scenarios.real_flight import free_instance

ROOT = Path(__file__).parents[2]
ONBOARD = 6  # processes of a simulated flight, and the simulator

pytestmark = pytest.mark.realtime


@pytest.fixture
def flying(tmp_path):
    """Starts the command; gives it and its processes once all of them run and have logged."""
    started: list[psutil.Popen] = []
    temporary = tmp_path / "t"
    temporary.mkdir()

    def start(stdout) -> tuple[psutil.Popen, list[psutil.Process]]:
        words = [
            "fly",
            "bridge_hover",
            "--fcu",
            "sim",
            "--instance",
            str(free_instance(60)),
            "--out",
            str(tmp_path / "out"),
        ]
        command = psutil.Popen(
            [sys.executable, "-m", "companion.cli", *words], stdout=stdout, stderr=subprocess.DEVNULL, cwd=ROOT,
            start_new_session=True, env=os.environ | {"TMPDIR": str(temporary)},
        )  # fmt: skip
        started.append(command)
        assert wait_until(lambda: len(command.children()) == ONBOARD + 1, 60.0)
        assert wait_until(lambda: len(list(temporary.glob("companion-*/*.sock"))) >= ONBOARD + 2, 60.0)
        return command, command.children()

    yield start
    for command in started:
        for process in [*command.children(recursive=True), command] if command.is_running() else []:
            with contextlib.suppress(psutil.NoSuchProcess):  # Ended since it was listed.
                process.kill()


def gone(processes: list[psutil.Process]) -> bool:
    return not any(map(runs, processes))


def runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and process.is_running()
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_processes_and_a_second_one_keeps_the_report(flying, tmp_path, number):
    command, children = flying(subprocess.DEVNULL)
    wait_until(lambda: False, 2.0)
    os.kill(command.pid, number)
    assert wait_until(lambda: gone(children), 10.0)
    os.kill(command.pid, number)
    assert command.wait(60) == 130
    (folder,) = (tmp_path / "out").iterdir()
    assert len(read_log(folder / "flight.mcap")["state"]) > 10
    assert (folder / "report.html").exists()


def test_a_reader_that_ends_does_not_end_the_flight(flying, tmp_path):
    read_end, write_end = os.pipe()
    command, children = flying(write_end)
    os.close(write_end)
    os.close(read_end)  # as of `| head -1`
    assert not wait_until(lambda: not command.is_running() or gone(children), 12.0)  # two progress lines later
    assert all(child.is_running() for child in children)
    os.kill(command.pid, signal.SIGTERM)
    assert command.wait(60) == 130 and gone(children)
    assert list((tmp_path / "out").glob("*/report.html"))


def test_a_killed_manager_leaves_no_process_and_a_log(flying, tmp_path):
    command, children = flying(subprocess.DEVNULL)
    wait_until(lambda: False, 2.0)
    command.kill()
    assert wait_until(lambda: gone(children), 10.0)
    (log,) = (tmp_path / "out").glob("*/flight.mcap")
    assert len(read_log(log)["state"]) > 10 and not read_log(log).truncated

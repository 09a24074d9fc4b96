"""The command line refuses a bad start with one line and exit status 2, and never with a traceback."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import click
import cv2
import numpy as np
import pytest

from companion.cli import _flown, main
from companion.core.config import ConfigError
from companion.recording.log import read_log
from companion.runtime.manager import wait_until
from sitl.autopilot.udp import GROUND_PORTS, ONBOARD_PORTS

ROOT = Path(__file__).parents[2]
MISSION = ROOT / "config/missions/bridge_hover.toml"
VEHICLE = ROOT / "config/vehicles/f550.toml"
SCENARIO = ROOT / "config/scenarios/bridge_hover.toml"


def run(*words, cwd=ROOT, env=None):
    command = [sys.executable, "-m", "companion.cli", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd, env=env)


def changed(tmp_path, source: Path, old: str, new: str) -> Path:
    text = source.read_text().replace('"../', f'"{source.parents[1]}/')
    assert old in text
    path = tmp_path / source.name
    path.write_text(text.replace(old, new, 1))
    return path


def with_camera_folder(tmp_path) -> Path:
    """A vehicle file whose camera is there: a folder with one image."""
    (tmp_path / "images").mkdir()
    cv2.imwrite(str(tmp_path / "images" / "0.png"), np.zeros((480, 640), np.uint8))
    return changed(tmp_path, VEHICLE, 'device = "/dev/video0"', f'device = "{tmp_path}/images"')


def refused(result, *words) -> None:
    assert result.returncode == 2, result
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    for word in words:
        assert word in lines[0]


def refused_late(result, *words) -> None:
    """Refused with one line after lines of progress."""
    assert result.returncode == 2 and "Traceback" not in result.stderr, result
    line = result.stderr.strip().splitlines()[-1]
    assert line.startswith("companion: ")
    for word in words:
        assert word in line, result.stderr


def free_instance() -> int:
    """An instance whose ports are free."""

    def free(port: int) -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
            return True

    bases = (*ONBOARD_PORTS, GROUND_PORTS[0])
    return next(i for i in range(700, 999) if all(free(base + i) for base in bases))


def test_a_mission_for_an_unknown_marker_bundle(tmp_path):
    mission = changed(tmp_path, MISSION, 'bundle = "pier"', 'bundle = "peer"')
    refused(run("fly", mission, "--fcu", "udpin:127.0.0.1:14999", "--out", tmp_path), "peer", "pier")


def test_a_vehicle_file_with_a_key_out_of_range(tmp_path):
    vehicle = changed(tmp_path, VEHICLE, "mass_kg = 1.8", "mass_kg = 1800.0")
    refused(run("fly", MISSION, "--vehicle", vehicle, "--out", tmp_path), "mass_kg", "1800", "kg")


def test_a_serial_port_that_is_not_there(tmp_path):
    vehicle = with_camera_folder(tmp_path)
    result = run(
        "fly", MISSION, "--vehicle", vehicle, "--fcu", "serial:/dev/ttyNOWHERE:921600", "--yes-auto", "--out", tmp_path
    )
    refused(result, "/dev/ttyNOWHERE")


def test_an_absent_camera(tmp_path):
    vehicle = changed(tmp_path, VEHICLE, 'device = "/dev/video0"', 'device = "/dev/video97"')
    result = run(
        "fly", MISSION, "--vehicle", vehicle, "--fcu", "udpin:127.0.0.1:14998", "--yes-auto", "--out", tmp_path
    )
    refused(result, "/dev/video97")


def test_a_link_address_that_makes_no_sense(tmp_path):
    vehicle = with_camera_folder(tmp_path)
    refused(run("fly", MISSION, "--vehicle", vehicle, "--fcu", "carrier:pigeon", "--out", tmp_path), "carrier:pigeon")


def test_a_scenario_with_an_unknown_key(tmp_path):
    scenario = changed(tmp_path, SCENARIO, "[wind]", "[wind]\nstorm = true")
    refused(run("sim", scenario), "wind.storm", "unknown key")


def test_a_scenario_with_an_unknown_autopilot_parameter(tmp_path):
    scenario = changed(tmp_path, SCENARIO, "COM_OF_LOSS_T", "COM_OF_LOST_T")
    refused(run("sim", scenario), "COM_OF_LOST_T")


def test_a_log_that_is_none(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a log")
    refused(run("report", path), "notes.txt")


def test_a_refused_start_leaves_no_flight_folder(tmp_path):
    run("fly", MISSION, "--fcu", "serial:/dev/ttyNOWHERE:921600", "--yes-auto", "--out", tmp_path / "flights")
    assert list((tmp_path / "flights").glob("*")) == []


def test_a_log_is_never_overwritten(tmp_path):
    log = tmp_path / "flight.mcap"
    log.write_bytes(b"precious")
    refused(run("sim", SCENARIO, "--log", log), "flight.mcap", "exists")
    assert log.read_bytes() == b"precious"


def short(tmp_path, duration_s: int = 3) -> Path:
    """A scenario that ends after a few seconds."""
    return changed(tmp_path, SCENARIO, "duration_max_s = 240", f"duration_max_s = {duration_s}")


KEYS = (
    "scenario stack seed duration_s completed position_rms_m position_rms_axis_m position_max_m estimate_rms_m "
    "estimate_rms_axis_m estimate_abs_rms_m gnss_rms_m yaw_rms_deg fallback_cycles deadline_misses rejected "
    "nis solve_ms realtime_factor events"
)
EARLY = "mission ended early: "


def test_a_simulation_prints_a_short_table_and_writes_the_whole_result(tmp_path):
    result = run("sim", short(tmp_path), "--camera", "corners", "--json", tmp_path / "result.json")
    assert result.returncode == 1  # no mission is completed in three seconds
    assert set(KEYS.split()) <= set(json.loads((tmp_path / "result.json").read_text()))
    lines = result.stdout.splitlines()
    for row in ("position error", "estimate error", "wind", "solve time", "longest gap", "resets", "events", "log"):
        assert sum(row in line for line in lines) == 1, row
    assert len(lines) < 20 and lines[-1].startswith(EARLY)


def test_the_result_on_stdout_is_nothing_but_json(tmp_path):
    result = run("sim", short(tmp_path), "--camera", "corners", "--json", "-")
    assert set(KEYS.split()) <= set(json.loads(result.stdout))
    assert "position error" in result.stderr and result.stderr.splitlines()[-1].startswith(EARLY)


def test_a_result_that_cannot_be_written_after_the_flight_is_printed(tmp_path):
    """The disk was full when the flight ended."""
    result = run("sim", short(tmp_path), "--camera", "corners", "--json", "/dev/full")
    assert result.returncode == 2
    assert set(KEYS.split()) <= set(json.loads(result.stdout))
    assert result.stderr.splitlines()[-1] == (
        "companion: /dev/full: cannot be written: no space left on device; the result is on standard output instead"
    )


def test_a_scenario_and_a_vehicle_are_found_by_name_from_an_empty_folder(tmp_path):
    run_5 = run("sim", "run_5", "--vehicle", "f550", "--log", "/dev/null/x", cwd=tmp_path)
    refused(run_5, "/dev/null/x")  # the names were found, the next check refused
    refused(run("sim", "run_55", cwd=tmp_path), "did you mean 'run_5'?")
    assert list(tmp_path.iterdir()) == []


def test_a_mission_given_for_a_scenario_and_the_reverse_are_named():
    refused(run("sim", MISSION), "bridge_hover.toml is a mission; `companion sim` needs a scenario")
    refused(run("fly", SCENARIO), "bridge_hover.toml is a scenario; `companion fly` needs a mission")
    refused(run("fly", VEHICLE), "f550.toml is a vehicle file; `companion fly` needs a mission")
    refused(run("fly", MISSION, "--vehicle", MISSION), "is a mission; `companion fly` needs a vehicle file")
    refused(run("sim", SCENARIO, "--airframe", VEHICLE), "is a vehicle file; `companion sim` needs an airframe file")
    refused(run("sim", SCENARIO, "--airframe", "f55"), "did you mean 'f550'?")


def test_a_missing_compiler_is_one_line(tmp_path):
    """Nothing is built yet, and the machine has no C compiler."""
    environment = os.environ | {"COMPANION_BUILD_DIR": str(tmp_path / "build"), "PATH": str(tmp_path), "CC": ""}
    refused_late(run("sim", "run_5", env=environment), "no C compiler found")
    refused_late(run("generate", "--vehicle", "f550", env=environment), "no C compiler found")


def test_no_network_while_fetching_acados_is_one_line(tmp_path):
    environment = os.environ | {"COMPANION_BUILD_DIR": str(tmp_path / "build"), "PIP_INDEX_URL": "http://127.0.0.1:9/"}
    environment |= {"PIP_RETRIES": "0", "PIP_NO_CACHE_DIR": "1", "ACADOS_SOURCE_DIR": ""}
    refused_late(run("generate", "--vehicle", "f550", env=environment), "acados", "no network?")


def test_a_build_folder_that_cannot_be_written_is_one_line():
    environment = os.environ | {"COMPANION_BUILD_DIR": "/proc/nowhere"}
    refused_late(run("sim", "run_5", env=environment), "/proc/nowhere")


def test_a_port_that_is_taken_is_one_line_with_what_to_do(tmp_path):
    instance = free_instance()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        port = ONBOARD_PORTS[1] + instance
        taken.bind(("127.0.0.1", port))
        result = run("fly", "bridge_hover", "--fcu", "sim", "--instance", instance, "--out", tmp_path / "flights")
    refused(result, f"UDP port {port} is in use", "--instance")
    assert not (tmp_path / "flights").exists()


def interrupted(words, ready, tmp_path) -> subprocess.CompletedProcess[str]:
    """A command that gets Ctrl-C, with its whole process group, when its stderr holds `ready`."""
    command = [sys.executable, "-m", "companion.cli", *map(str, words)]
    with (tmp_path / "stderr").open("w") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT, start_new_session=True
        )
        assert wait_until(lambda: ready in (tmp_path / "stderr").read_text(), 120.0)
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, output, (tmp_path / "stderr").read_text())


def test_ctrl_c_in_a_simulation_is_one_line_and_the_log_is_kept(tmp_path):
    log = tmp_path / "flight.mcap"
    result = interrupted(["sim", "bridge_hover", "--camera", "corners", "--log", log], " s  ", tmp_path)
    assert result.returncode == 130 and "Traceback" not in result.stderr
    assert result.stderr.splitlines()[-1] == f"companion: interrupted; the log until then: {log}"
    assert len(read_log(log)["truth"]) > 100


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.verify), 2])
def test_ctrl_c_in_a_comparison_keeps_the_flights_flown(tmp_path, workers):
    words = ["compare", short(tmp_path), "--camera", "corners", "--stacks", "full", "--seeds", "400", "--json", "-"]
    result = interrupted([*words, "--workers", workers], "2/400", tmp_path)
    assert result.returncode == 130 and "Traceback" not in result.stderr, result.stderr
    written = json.loads(result.stdout)
    assert written["incomplete"] and 2 <= len(written["runs"]) < 400
    assert "INCOMPLETE" in result.stderr
    assert result.stderr.splitlines()[-1] == f"companion: interrupted: {len(written['runs'])} of 400 flights flown"


def test_a_complete_comparison_is_marked_so_and_has_a_line_per_flight(tmp_path):
    words = ["compare", short(tmp_path), "--camera", "corners", "--stacks", "full", "--seeds", "2", "--workers", "1"]
    result = run(*words, "--json", tmp_path / "result.json")
    assert result.returncode == 0
    assert [line.split()[0] for line in result.stderr.splitlines()] == ["1/2", "2/2"]
    assert json.loads((tmp_path / "result.json").read_text())["incomplete"] is False


@pytest.mark.parametrize("fcu", ["sim", "px4"])
def test_in_a_simulator_the_name_of_a_scenario_names_its_mission(fcu):
    mission, scenario = _flown("two_piers", None, fcu)
    assert (mission.name, scenario.name) == ("two_piers_inspection.toml", "two_piers.toml")


def test_on_an_aircraft_a_scenario_is_no_mission():
    with pytest.raises(ConfigError, match="two_piers is a scenario"), click.Context(main):
        _flown("two_piers", None, "udpin:127.0.0.1:14540")


def test_a_mission_of_the_name_takes_precedence():
    with click.Context(main):
        mission, scenario = _flown("bridge_hover", None, "sim")
    assert (mission.parent.name, scenario) == ("missions", None)

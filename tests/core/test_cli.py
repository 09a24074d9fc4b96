"""The command line refuses a bad start with one line and exit status 2, and never with a traceback."""

import json
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
MISSION = ROOT / "config/missions/bridge_hover.toml"
VEHICLE = ROOT / "config/vehicles/f550.toml"
SCENARIO = ROOT / "config/scenarios/bridge_hover.toml"


def run(*words, cwd=ROOT):
    command = [sys.executable, "-m", "companion.cli", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=cwd)


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


def test_a_mission_for_an_unknown_marker_bundle(tmp_path):
    mission = changed(tmp_path, MISSION, 'bundle = "pier"', 'bundle = "peer"')
    refused(run("fly", mission, "--fcu", "udpin:127.0.0.1:14999", "--out", tmp_path), "peer", "pier")


def test_a_vehicle_file_with_a_key_out_of_range(tmp_path):
    vehicle = changed(tmp_path, VEHICLE, "mass_kg = 1.8", "mass_kg = 1800.0")
    refused(run("fly", MISSION, "--vehicle", vehicle, "--out", tmp_path), "mass_kg", "1800", "kg")


def test_a_serial_port_that_is_not_there(tmp_path):
    vehicle = with_camera_folder(tmp_path)
    result = run("fly", MISSION, "--vehicle", vehicle, "--fcu", "serial:/dev/ttyNOWHERE:921600", "--out", tmp_path)
    refused(result, "/dev/ttyNOWHERE")


def test_an_absent_camera(tmp_path):
    vehicle = changed(tmp_path, VEHICLE, 'device = "/dev/video0"', 'device = "/dev/video97"')
    result = run("fly", MISSION, "--vehicle", vehicle, "--fcu", "udpin:127.0.0.1:14998", "--out", tmp_path)
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
    run("fly", MISSION, "--fcu", "serial:/dev/ttyNOWHERE:921600", "--out", tmp_path / "flights")
    assert list((tmp_path / "flights").glob("*")) == []


def test_a_log_is_never_overwritten(tmp_path):
    log = tmp_path / "flight.mcap"
    log.write_bytes(b"precious")
    refused(run("sim", SCENARIO, "--log", log), "flight.mcap", "exists")
    assert log.read_bytes() == b"precious"


@pytest.mark.parametrize("words", [(), ("--help",), ("fly", "--help"), ("sim", "--help")])
def test_help_is_there(words):
    result = run(*words)
    assert "Usage" in result.stdout + result.stderr


def test_the_result_of_a_simulation_is_json(tmp_path):
    scenario = changed(tmp_path, SCENARIO, "duration_max_s = 240", "duration_max_s = 3")
    result = run("sim", scenario, "--camera", "corners", "--json", tmp_path / "result.json")
    assert result.returncode == 1  # nobody completes this mission in three seconds
    written = json.loads((tmp_path / "result.json").read_text())
    keys = "scenario stack seed duration_s completed position_rms_m position_rms_axis_m position_max_m estimate_rms_m "
    keys += "estimate_rms_axis_m estimate_abs_rms_m gnss_rms_m yaw_rms_deg fallback_cycles deadline_misses rejected "
    keys += "nis solve_ms realtime_factor events"
    assert set(keys.split()) <= set(written)

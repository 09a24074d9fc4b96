"""``companion preflight`` as a user calls it: lines, exit status, JSON, and --fix against the PX4 emulator."""

import json
import os
import re
import socket
import sys
import time
from pathlib import Path

import cv2
import jsonschema
import numpy as np
import pytest
from autopilot_process import SCENARIO, port_is_free, running_autopilot, running_fcu, wait_until_ready
from click.testing import CliRunner
from preflight_fakes import healthy

from companion.cli import main
from companion.mission.plan import load_plan
from companion.preflight import autopilot, command
from companion.preflight.ground import GroundConnection
from companion.preflight.observation import forwarded_urls
from companion.preflight.parameters import flight_of
from companion.preflight.report import (
    NAME_WIDTH,
    PreflightCheck,
    failed,
    line,
    ok,
    schema,
    skipped,
    summary,
    warning,
    worst,
)

ROOT = Path(__file__).parents[2]
MISSION = ROOT / "config/missions/bridge_hover.toml"


@pytest.fixture
def vehicle(tmp_path) -> Path:
    """A vehicle file whose camera is a folder of pictures."""
    (tmp_path / "images").mkdir()
    picture = np.random.default_rng(1).integers(0, 255, (480, 640)).astype(np.uint8)
    for i in range(12):
        cv2.imwrite(str(tmp_path / "images" / f"{i}.png"), picture)
    text = (ROOT / "config/vehicles/f550.toml").read_text()
    file = tmp_path / "vehicle.toml"
    file.write_text(text.replace('device = "/dev/video0"', f'device = "{tmp_path}/images"'))
    return file


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(command, "HEARTBEAT_TIMEOUT_S", 0.3)
    monkeypatch.setattr(command, "system_bus", lambda: None)  # independent of the stack that may run on this machine


def run(*words, keyboard=""):
    return CliRunner().invoke(main, ["preflight", *map(str, words)], input=keyboard)


def status_of(result, name: str) -> str:
    (found,) = [text for text in result.output.splitlines() if text[:NAME_WIDTH].rstrip() == name]
    return found[NAME_WIDTH:].split()[0]


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_without_an_autopilot_the_link_fails_and_the_rest_is_checked(vehicle, tmp_path):
    url = f"udpin:127.0.0.1:{free_port()}"
    result = run(
        "--vehicle", vehicle, "--mission", MISSION, "--fcu", url, "--out", tmp_path, "--json", tmp_path / "r.json"
    )
    assert result.exit_code == 1, result.output
    assert f"FAILED   nothing received on {url} in 0.3 s" in result.output
    for name in (*autopilot.NAMES, "parameters"):
        assert status_of(result, name) == "skipped"
    for name in ("vehicle file", "mission file", "solver", "kernels"):
        assert status_of(result, name) == "ok"
    assert status_of(result, "camera") == "warning"  # a recording
    assert result.output.splitlines()[-1].startswith("not ready: 1 FAILED, ")
    written = json.loads((tmp_path / "r.json").read_text())
    jsonschema.validate(written, schema())
    assert (written["passed"], written["fcu_url"], written["changes"]) == (False, url, [])
    assert len(written["checks"]) == len(result.output.splitlines()) - 1


def test_the_page_lists_every_check_in_its_order(vehicle, tmp_path):
    page = (ROOT / "docs/preflight.md").read_text().split("## Checks")[1].split("##")[0]
    rows = [row.split("|")[1] for row in page.splitlines() if row.startswith("| ") and "fails" not in row]
    found = [name for row in rows for name in re.findall(r"`([^`]+)`", row) or ["parameters"]]
    lines = run("--vehicle", vehicle, "--fcu", f"udpin:127.0.0.1:{free_port()}", "--out", tmp_path).output.splitlines()
    found.remove("payload camera")  # of a mission with an inspection only
    found.remove("running stack")  # with its bus only
    assert found == [text[:NAME_WIDTH].rstrip() for text in lines[:-1]]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("carrier:pigeon", "'carrier:pigeon': not one of serial:"),
        ("udpin://127.0.0.1:14540", "host '//127.0.0.1' cannot be resolved"),
        ("tcp:127.0.0.1:99999", "port 99999 is not in 1 to 65535"),
        ("serial:/dev/ttyNOWHERE:921600", "no serial device /dev/ttyNOWHERE"),
    ],
)
def test_an_address_that_cannot_be_used_is_one_line(vehicle, tmp_path, url, words):
    result = run("--vehicle", vehicle, "--fcu", url, "--out", tmp_path)
    assert result.exit_code == 1
    (found,) = [text for text in result.output.splitlines() if text.startswith("link ")]
    assert words in found


def test_a_port_in_use_is_reported(vehicle, tmp_path):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        result = run("--vehicle", vehicle, "--fcu", f"udpin:127.0.0.1:{taken.getsockname()[1]}", "--out", tmp_path)
    assert result.exit_code == 1 and f"is in use by process {os.getpid()}" in result.output


def test_a_bad_vehicle_file_fails_and_skips_what_needs_it(tmp_path):
    result = run("--vehicle", tmp_path / "none.toml", "--out", tmp_path)
    assert result.exit_code == 1
    assert status_of(result, "vehicle file") == "FAILED"
    assert status_of(result, "link") == status_of(result, "camera") == status_of(result, "solver") == "skipped"
    assert status_of(result, "disk") == "skipped" and status_of(result, "cpu load") in ("ok", "warning")


@pytest.mark.realtime
def test_against_the_autopilot_fix_shows_asks_and_sets(vehicle, tmp_path, monkeypatch):
    words = ["--vehicle", vehicle, "--mission", MISSION, "--out", tmp_path, "--fix"]
    monkeypatch.setattr(command, "HEARTBEAT_TIMEOUT_S", 5.0)
    scenario = tmp_path / "unset.toml"  # in which the crew has not set the action for a lost transmitter
    text = (
        SCENARIO.read_text()
        .replace('base = "', f'base = "{SCENARIO.parent}/')
        .replace('"../', f'"{SCENARIO.parents[1]}/')
    )
    scenario.write_text(f"{text}\n[fcu_parameters]\nNAV_RCL_ACT = 2\n")
    with running_autopilot(scenario) as url:
        wait_until_ready(url)
        refused = run(*words, "--fcu", url, keyboard="")
        fixed = run(*words, "--fcu", url, "--json", tmp_path / "r.json", keyboard="a\n")
        with GroundConnection(url, autopilot_system_id=1, timeout_s=5.0) as ground:
            now = ground.read(["NAV_RCL_ACT", "COM_OF_LOSS_T"])
            fence = ground.read(["GF_ACTION", "GF_MAX_HOR_DIST", "GF_MAX_VER_DIST", "GF_PREDICT"])
    for name in (*autopilot.NAMES[:5], "imu"):
        assert status_of(refused, name) == "ok", refused.output
    # PX4's own default: on a lost transmitter, climb to 60 m and come home
    assert status_of(refused, "NAV_RCL_ACT") == "FAILED"
    assert "NAV_RCL_ACT: 2 → 3 " in refused.output and refused.exit_code == 1
    assert fixed.exit_code == 0, fixed.output
    assert now == {"NAV_RCL_ACT": 3, "COM_OF_LOSS_T": 0.5}
    # PX4 has no fence of its own by default; --fix sets one outside of the mission's
    assert status_of(refused, "GF_MAX_HOR_DIST") == status_of(refused, "GF_MAX_VER_DIST") == "FAILED"
    flight = flight_of(load_plan(MISSION))
    assert fence["GF_ACTION"] == 2 and fence["GF_PREDICT"] == 0
    assert 5.0 <= fence["GF_MAX_HOR_DIST"] - flight.distance_m < 6.0
    assert 5.0 <= fence["GF_MAX_VER_DIST"] - flight.height_m < 6.0
    written = json.loads((tmp_path / "r.json").read_text())
    jsonschema.validate(written, schema())
    assert {"parameter": "NAV_RCL_ACT", "old": 2, "new": 3} in written["changes"] and written["passed"]


@pytest.mark.realtime
@pytest.mark.parametrize("installed", [False, True])
def test_when_the_stack_has_the_link_its_forward_is_used(vehicle, tmp_path, monkeypatch, installed):
    """installed: the link stands in the environment, as on an aircraft with the systemd units."""
    monkeypatch.setattr(command, "HEARTBEAT_TIMEOUT_S", 10.0)
    port = free_port()
    with running_autopilot() as url:
        text = vehicle.read_text().replace("forward = []", f'forward = ["udpout:127.0.0.1:{port}"]')
        vehicle.write_text(text.replace('url = "serial:/dev/ttyAMA0:921600"', f'url = "{url}"'))
        with running_fcu(vehicle, MISSION, tmp_path):
            until_s = time.monotonic() + 10.0
            while port_is_free(int(url.rpartition(":")[2])) and time.monotonic() < until_s:
                time.sleep(0.1)
            if installed:
                monkeypatch.setenv("COMPANION_FCU", url)
            result = run("--vehicle", vehicle, "--out", tmp_path)
    assert f"udpin:127.0.0.1:{port}: system 1" in result.output, result.output
    for name in ("link", "autopilot", "vehicle type", "COM_OF_LOSS_T", "GF_ACTION"):
        assert status_of(result, name) in ("ok", "warning"), result.output
    assert "round trip" in result.output


def test_only_forwards_to_this_computer_can_be_listened_to():
    urls = ["udpout:192.168.1.20:14550", "udpout:127.0.0.1:14551", "udpout:localhost:14552"]
    assert forwarded_urls(urls) == ["udpin:127.0.0.1:14551", "udpin:localhost:14552"]


def test_a_signing_key_is_a_warning(vehicle, tmp_path, monkeypatch):
    class Silent:
        stuck = False

        def __init__(self, *_):
            pass

        def observe(self, duration_s, imu_rate_hz=0.0):
            return healthy()

        def read(self, names):
            return {}

        def close(self):
            pass

    monkeypatch.setattr(command, "open_ground", Silent)
    assert status_of(run("--vehicle", vehicle, "--out", tmp_path), "link") == "ok"
    vehicle.write_text(vehicle.read_text().replace("[fcu]", '[fcu]\nsigning_key_file = "mavlink.key"'))
    result = run("--vehicle", vehicle, "--out", tmp_path)
    assert status_of(result, "link") == "warning" and "does not sign" in result.output


def test_a_report_with_an_unknown_status_is_not_valid():
    broken = {"at_utc": "", "vehicle_file": "", "mission_file": None, "fcu_url": "", "passed": True, "changes": []}
    jsonschema.validate(broken | {"checks": []}, schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken | {"checks": [{"name": "link", "status": "fine", "detail": ""}]}, schema())


def test_the_worst_finding_decides_and_all_are_reported():
    assert worst("x", [], [], "fine") == ok("x", "fine")
    assert worst("x", [], ["so so"], "3 m") == warning("x", "so so (3 m)")
    assert worst("x", ["bad"], ["so so"], "") == failed("x", "bad; so so")


def test_lines_are_aligned_and_the_summary_counts():
    checks = [ok("link", "here"), failed("gnss", "no fix"), skipped("marker", "no mission")]
    assert line(checks[1]) == "gnss               FAILED   no fix"
    assert summary(checks) == "not ready: 1 FAILED, 1 skipped, 1 ok"
    assert summary([PreflightCheck("link", "ok", "")]) == "ready: 1 ok"


def test_vehicle_and_mission_are_those_of_the_environment(vehicle, tmp_path, monkeypatch):
    """The installed command sets the variables of the systemd units."""
    url = f"udpin:127.0.0.1:{free_port()}"
    for name, value in (("VEHICLE", vehicle), ("MISSION", MISSION), ("FCU", url)):
        monkeypatch.setenv(f"COMPANION_{name}", str(value))
    result = run("--out", tmp_path, "--json", "-")
    written = json.loads(result.stdout)
    found = (written["vehicle_file"], written["mission_file"], written["fcu_url"])
    assert found == (str(vehicle), str(MISSION), url)
    assert "not ready" in result.stderr  # the lines are not mixed with the JSON


def test_names_are_found_from_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("--vehicle", "f550_rtk", "--mission", "run_5", "--fcu", "carrier:pigeon", "--out", tmp_path)
    assert status_of(result, "vehicle file") == status_of(result, "mission file") == "ok"
    assert status_of(result, "camera") == "skipped"  # the mission flies without a bundle


def test_without_mavsdk_the_link_fails_with_the_extra_to_install(vehicle, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name == "companion.preflight.ground" or name.startswith("mavsdk")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mavsdk", None)
    result = run("--vehicle", vehicle, "--out", tmp_path)
    assert result.exit_code == 1
    assert "FAILED   the package mavsdk is not installed: install companion[preflight]" in result.output
    assert status_of(result, "vehicle file") == "ok" and status_of(result, "autopilot") == "skipped"

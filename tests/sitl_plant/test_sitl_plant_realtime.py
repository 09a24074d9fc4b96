"""The simulator as a process: its command line, and marker corners without images."""

import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from companion.core.messages import Image, Markers, Photo, PhotoRequest
from sitl.autopilot.udp import GROUND_PORTS, ONBOARD_PORTS
from sitl.realtime import CameraFeed
from sitl.scenario import load_scenario
from sitl.world import World

ROOT = Path(__file__).parents[2]
HOLD = ROOT / "config/scenarios/safety/hold.toml"  # a pier 6 m from the take-off point, camera_mode = "corners"
FREE_INSTANCE = 700


def simulator(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "sitl.realtime", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


def refused(folder: Path, *arguments: str) -> str:
    """The one line with which the simulator refuses to start."""
    result = simulator(str(HOLD), "--bus", str(folder / "bus"), *arguments)
    assert result.returncode == 2 and result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("simulator: ")
    return lines[0]


def test_help_describes_the_simulator_and_its_ports():
    result = simulator("-h")
    assert result.returncode == 0
    assert "--instance" in result.stdout and str(ONBOARD_PORTS[0]) in result.stdout and "--vehicle" in result.stdout


@pytest.mark.parametrize("base", [ONBOARD_PORTS[0], GROUND_PORTS[0]])
def test_a_port_in_use_is_refused_in_one_line(tmp_path, base):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as user:
        user.bind(("127.0.0.1", base + FREE_INSTANCE))
        line = refused(tmp_path, "--instance", str(FREE_INSTANCE))
    assert f"UDP port {base + FREE_INSTANCE}" in line


@pytest.mark.parametrize("instance", ["-1", "60000", "10"])  # 10: PX4's onboard port would be the ground station's
def test_an_instance_without_ports_is_refused_in_one_line(tmp_path, instance):
    assert f"--instance {instance}" in refused(tmp_path, "--instance", instance)


def test_a_bus_folder_that_cannot_be_used_is_refused_in_one_line(tmp_path):
    (tmp_path / "bus").write_text("a file")
    line = refused(tmp_path, "--instance", str(FREE_INSTANCE))
    assert f"bus folder {tmp_path / 'bus'}" in line and "exists" in line


@pytest.mark.parametrize("camera_mode", ["corners", "images"])
def test_the_camera_of_a_real_time_world_shows_the_markers(camera_mode):
    """With corners the simulator publishes markers and photographs itself: no other process could see them."""
    world = World(load_scenario(HOLD, camera_mode=camera_mode), 1)
    world.plant.p_W[:] = 3.0, 0.0, 3.0  # 3 m in front of the pier's face
    zero_s = 100.0
    with ThreadPoolExecutor(max_workers=1) as render_thread:
        camera = CameraFeed(world, render_thread)
        camera.request([PhotoRequest(stamp_s=0.0, id=7)])
        camera.expose(zero_s)
    messages = list(camera.arrived())
    assert messages == [], "the camera's latency has not passed"
    while world.now_s < world.camera.config.latency_s:
        world.advance()
    messages = list(camera.arrived())
    assert {m.stamp_s for m in messages} == {zero_s}
    assert camera.publishes_markers == (camera_mode == "corners")
    if camera_mode == "images":
        assert [type(m) for m in messages] == [Image]
        return
    markers, photo = messages
    assert isinstance(markers, Markers) and markers.valid
    assert [seen.bundle for seen in markers.observations] == ["pier"]
    assert isinstance(photo, Photo) and photo.id == 7

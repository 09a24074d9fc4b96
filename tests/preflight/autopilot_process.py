"""the PX4 emulator in its own process, on ports of its own, as a flight controller on a link."""

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from companion.preflight.ground import GroundConnection
from sitl.autopilot.udp import GROUND_PORTS, ONBOARD_PORTS
from sitl.realtime import fcu_url

ROOT = Path(__file__).parents[2]
# still air, precise positions, corners instead of images: the least work for the processor
SCENARIO = ROOT / "config/scenarios/figure8_wind_0.toml"
FIRST_INSTANCE = 300  # far from 0, which is `companion fly`


def port_is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_instance() -> int:
    """An instance number whose UDP ports are free; tests may run side by side."""
    start = FIRST_INSTANCE + os.getpid() % 500
    bases = (*ONBOARD_PORTS, GROUND_PORTS[0])
    return next(i for i in itertools.count(start) if all(port_is_free(base + i) for base in bases))


@contextlib.contextmanager
def running_autopilot(scenario: Path = SCENARIO):
    """The URL at which the companion receives it, while it runs."""
    instance = free_instance()
    with tempfile.TemporaryDirectory() as bus:
        command = [sys.executable, "-m", "sitl.realtime", str(scenario), "--bus", bus, "--instance", str(instance)]
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        try:
            yield fcu_url(instance)
            assert process.poll() is None, process.stderr.read()
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=10)


@contextlib.contextmanager
def running_fcu(vehicle: Path, mission: Path, folder: Path):
    """The stack's FCU process, on the link of the vehicle file."""
    words = ["--vehicle", vehicle, "--mission", mission, "--bus", folder / "bus", "--log", folder / "flight.mcap"]
    command = [sys.executable, "-m", "companion.runtime.processes", "fcu", *map(str, words)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        yield
        assert process.poll() is None, process.stderr.read()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)


def wait_until_ready(url: str) -> None:
    """Wait for the process to start and for the autopilot to have aligned itself."""
    with GroundConnection(url, autopilot_system_id=1, timeout_s=20.0) as ground:
        for _ in range(20):
            if ground.observe(1.0).health["is_armable"]:
                return
    raise AssertionError("the autopilot never became ready to arm")

"""The link of a preflight, and who may be at its other end: noise, another autopilot, one that never answers."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import tty
from pathlib import Path

import numpy as np
import pytest
from pymavlink.dialects.v20 import common

from companion.core.config import ConfigError
from companion.fcu.link.sender import ANY_SENDER
from companion.preflight import ground
from companion.preflight.ground import GroundConnection
from companion.preflight.observation import LinkFailed, Unfit, within

ROOT = Path(__file__).parents[2]
HEXAROTOR, PLANE = common.MAV_TYPE_HEXAROTOR, common.MAV_TYPE_FIXED_WING
PX4, ARDUPILOT = common.MAV_AUTOPILOT_PX4, common.MAV_AUTOPILOT_ARDUPILOTMEGA


@contextlib.contextmanager
def heartbeats(vehicle=HEXAROTOR, autopilot=PX4, system_id=1, others=()):
    """A sender of heartbeats and `others` only, ten per second; yields the URL at which to listen."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mouth, stop = common.MAVLink(None, system_id, 1), threading.Event()
    peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def speak() -> None:
        while not stop.wait(0.1):
            beat = common.MAVLink_heartbeat_message(vehicle, autopilot, 0, 0, 3, 3)
            for message in (beat, *others):
                peer.sendto(message.pack(mouth), ("127.0.0.1", port))

    thread = threading.Thread(target=speak)
    thread.start()
    try:
        yield f"udpin:127.0.0.1:{port}"
    finally:
        stop.set()
        thread.join()
        peer.close()


def test_noise_is_distinguished_from_silence():
    controller, device = os.openpty()
    tty.setraw(device)
    noise = np.random.default_rng(1).integers(0, 250, 600).astype(np.uint8).tobytes()  # no byte begins a frame
    timer = threading.Timer(0.2, os.write, (controller, noise))  # what came before the port was opened is dropped
    timer.start()
    with pytest.raises(LinkFailed, match="600 bytes received on serial:.* but no autopilot: .* baud rate"):
        GroundConnection(f"serial:{os.ttyname(device)}:921600", 1, 0.8)
    timer.join()
    os.close(controller)
    os.close(device)


def test_a_serial_port_that_another_program_holds_is_refused():
    controller, device = os.openpty()
    url = f"serial:{os.ttyname(device)}:921600"
    held = ground.open_link(url, sender=ANY_SENDER)
    with pytest.raises(ConfigError, match=rf"is in use by process {os.getpid()} \("):
        GroundConnection(url, 1, 0.2)
    held.close()
    os.close(controller)
    os.close(device)


def test_another_system_than_the_vehicle_files_is_named():
    with (
        heartbeats(system_id=7) as url,
        pytest.raises(LinkFailed, match="received system 7, but no autopilot of system 1"),
    ):
        GroundConnection(url, 1, 1.5)


def test_another_autopilot_is_named(monkeypatch):
    monkeypatch.setattr(ground, "VERSION_TIMEOUT_S", 0.1)
    with heartbeats(PLANE, ARDUPILOT) as url, GroundConnection(url, 1, 3.0) as link:
        seen = link.observe(0.5)
    assert "MAV_AUTOPILOT_ARDUPILOTMEGA" in seen.wrong and seen.unfit is Unfit.AUTOPILOT
    assert seen.firmware is None and not seen.rtts_s and not seen.landed


def module(number, voltage_v, percent):
    """BATTERY_STATUS of one module, whose voltage is in the place of the first cell."""
    voltages = [round(voltage_v * 1000), *[65535] * 9]
    return common.MAVLink_battery_status_message(number, 0, 1, 32767, voltages, -1, -1, -1, percent)


@pytest.mark.parametrize("modules", [((0, 13.2, 6), (1, 16.6, 97)), ((0, 16.6, 97), (1, 13.2, 6))])
def test_the_lowest_of_two_battery_packs_counts(monkeypatch, modules):
    """MAVSDK has the module that reported last: an aircraft with one empty pack was ready."""
    monkeypatch.setattr(ground, "VERSION_TIMEOUT_S", 0.1)
    bus = module(2, 5.1, 50)  # of the payload: no battery of this aircraft, so it is left out, as in flight
    reports = [*(module(*values) for values in modules), bus]
    with heartbeats(others=reports) as url, GroundConnection(url, 1, 3.0, 15.2) as link:
        seen = link.observe(0.5)
    assert seen.battery_voltage_v == pytest.approx(13.2) and seen.battery_remaining == pytest.approx(0.06)


def test_a_silent_link_counts_as_armed():
    with heartbeats() as url:
        link = GroundConnection(url, 1, 3.0)
        assert not link.armed()
    for _ in range(50):
        if link.armed():
            break
        threading.Event().wait(0.1)
    assert link.armed()  # its state is not known, so no parameter may be set
    with pytest.raises(LinkFailed, match="not set: the aircraft is armed"):
        link.write("COM_OF_LOSS_T", 0.5)
    link.close()


def test_work_that_hangs_is_abandoned_and_errors_are_raised():
    assert within(1.0, lambda: 5) == 5
    with pytest.raises(TimeoutError, match="no answer in 0.05 s"):
        within(0.05, lambda: threading.Event().wait(1.0))
    with pytest.raises(ZeroDivisionError):
        within(1.0, lambda: 1 / 0)


@pytest.mark.realtime
def test_a_flight_controller_that_never_answers_cannot_hold_up_the_preflight(tmp_path):
    command = [sys.executable, "-m", "companion.cli", "preflight", "--out", tmp_path, "--fcu"]
    with heartbeats() as url:
        result = subprocess.run([*map(str, command), url], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert result.returncode == 1, result.stderr
    assert "does not report its firmware's version" in result.stdout
    assert "the flight controller does not send its parameters" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("not ready: ")

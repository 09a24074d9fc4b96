"""Power-on: the units' own commands, started as systemd starts them, come up, wait for a flight controller that is
not there yet, find it, and wait for the pilot's switch."""

import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from unit_files import ROOT, command, environment, processes

from companion.core.bus import ZmqBus
from companion.core.messages import FcuStatus, HostStatus, MissionStatus
from companion.core.node import Latest
from companion.recording.log import read_log
from companion.runtime.manager import Manager, python, wait_until
from sitl.autopilot.udp import ONBOARD_PORTS
from sitl.realtime import fcu_url

INSTANCE = 90  # of the simulated flight controller, away from those of other tests
START_S = 60.0  # a busy machine starts seven interpreters slowly


class Aircraft:
    """The seven processes of an installed computer, with a folder of dark images as its camera."""

    def __init__(self, root, folder) -> None:
        images, self.flights = folder / "images", folder / "flights"
        images.mkdir()
        self.flights.mkdir()
        image, rng = np.zeros((480, 640), np.uint8), np.random.default_rng(1)
        for i in range(900):
            image[0] = rng.integers(0, 9, 640)  # no two are the same: those of a camera that hangs are not used
            cv2.imwrite(str(images / f"{i:04d}.png"), image)
        env_file = root / "etc/companion/companion.env"
        self.commands = {}
        for process in sorted(processes()):
            variables = environment(process, env_file)
            vehicle = Path(f"{root}{variables['COMPANION_VEHICLE']}")
            text = vehicle.read_text().replace('base = "', f'base = "{vehicle.parent}/')
            (folder / "vehicle.toml").write_text(text.replace("[camera]", f'[camera]\ndevice = "{images}"'))
            variables |= {"COMPANION_VEHICLE": str(folder / "vehicle.toml"), "COMPANION_FCU": fcu_url(INSTANCE)}
            variables["COMPANION_MISSION"] = str(root) + variables["COMPANION_MISSION"]
            del variables["COMPANION_BUILD_DIR"]  # the kernels of this checkout
            words = command(process, variables)
            assert words[0].endswith("/current/venv/bin/python")
            words = [sys.executable, *words[1:]]
            moved = {"/run/companion": folder / "bus", "/var/lib/companion/flights/": self.flights}
            words = [str(moved.get(word, word)) for word in words]
            self.commands[process] = ["env", *(f"{name}={value}" for name, value in variables.items()), *words]
        self.manager = Manager(self.commands, folder / "said")
        self.bus = ZmqBus(folder / "bus", "manager", ("mission_status", "fcu_status", "host"))
        self.latest = Latest()

    def wait(self, condition, seconds: float = START_S) -> bool:
        def look() -> bool:
            self.manager.check()
            for message in self.bus.receive(0.05):
                self.latest.put(message)
            return condition()

        return wait_until(look, seconds, 0.0)

    def pilot(self) -> MissionStatus | None:
        return self.latest.get(MissionStatus)

    def close(self) -> None:
        self.manager.stop()
        self.bus.close()


@pytest.fixture
def aircraft(installed, tmp_path):
    powered = Aircraft(installed, tmp_path)
    powered.manager.start()
    yield powered
    powered.close()


@pytest.mark.realtime
def test_it_comes_up_waits_for_the_flight_controller_and_then_for_the_switch(aircraft, tmp_path):
    assert aircraft.wait(lambda: all(child.ready for child in aircraft.manager.children)), aircraft.manager.events
    assert aircraft.wait(lambda: aircraft.pilot() is not None and aircraft.pilot().reason.startswith("waiting: link"))
    assert aircraft.pilot().phase == "WAIT_READY"
    assert aircraft.wait(lambda: isinstance(aircraft.latest.get(HostStatus), HostStatus))
    # now the flight controller gets its power
    words = ["--seed", "1", "--bus", str(tmp_path / "air"), "--instance", str(INSTANCE)]
    scenario = str(ROOT / "config/scenarios/hover_marker.toml")
    controller = Manager({"simulator": python("sitl.realtime", scenario, *words)}, tmp_path / "said")
    controller.start()
    try:
        assert aircraft.wait(lambda: "ready: fly, then turn the mission switch on" in aircraft.pilot().reason), (
            f"{aircraft.pilot()}, {aircraft.latest.get(FcuStatus)}"
        )
        status = aircraft.latest.get(FcuStatus)
        assert isinstance(status, FcuStatus) and status.connected and not status.armed
    finally:
        controller.stop()
    # ... and loses it again
    assert aircraft.wait(lambda: aircraft.pilot().reason.startswith("waiting: link"))
    assert aircraft.pilot().phase == "WAIT_READY"
    assert aircraft.manager.events == []  # no process died
    aircraft.close()
    (log,) = aircraft.flights.glob("*.mcap")
    assert len(read_log(log)["mission_status"]) > 10


def test_the_ports_of_this_test_are_its_own():
    assert all(port + INSTANCE < 18570 for port in ONBOARD_PORTS)

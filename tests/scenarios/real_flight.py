"""The real process graph around the real-time simulator, as a test drives it."""

import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from companion.core.bus import ZmqBus
from companion.core.clock import monotonic_s
from companion.core.messages import FcuStatus, MissionStatus, SentSetpoint, Truth
from companion.core.node import Latest
from companion.runtime.manager import Manager, python
from companion.runtime.processes import PROCESSES, Context, arguments
from sitl.autopilot.udp import GROUND_PORTS, ONBOARD_PORTS
from sitl.realtime import fcu_url

ROOT = Path(__file__).parents[2]
WATCHED = ("mission_status", "state", "control", "fcu_status", "truth", "sent_setpoint")
RELAY_CAMERA = Path(__file__).with_name("relay_camera.py")


def near_pier(folder: Path, hold_s: float = 600.0) -> tuple[Path, Path]:
    """(mission, scenario) files of the bridge hover with the pier in sight from above the take-off point.

    The hold begins soon and lasts for ``hold_s``.
    """
    mission = (ROOT / "config/missions/bridge_hover.toml").read_text()
    mission = mission.replace('"../markers/', f'"{ROOT}/config/markers/')
    mission = mission.replace("p_m = [7.0, 0.0, 4.0]", "p_m = [0.0, 0.0, 3.0]").replace(
        "height_m = 4.0", "height_m = 3.0"
    )
    mission = re.sub(r"duration_s = .*", f"duration_s = {hold_s}", mission)
    photographs = [at_s for at_s in (10.0, 25.0, 40.0, 55.0) if at_s < hold_s]
    mission = re.sub(r"at_s = .*", f"at_s = {photographs}", mission)
    scenario = (ROOT / "config/scenarios/bridge_hover.toml").read_text()
    scenario = scenario.replace('"../missions/', f'"{folder}/').replace('"../vehicles/', f'"{ROOT}/config/vehicles/')
    scenario = scenario.replace("[12.0, 0.0, 4.0]", "[3.5, 0.0, 3.0]").replace("[12.02, 0.0, 4.0]", "[3.52, 0.0, 3.0]")
    paths = folder / "bridge_hover.toml", folder / "scenario.toml"
    for path, text in zip(paths, (mission, scenario), strict=True):
        path.write_text(text)
    return paths


def free_instance(first: int = 1) -> int:
    """The first instance number from ``first`` on whose UDP ports are free; 0 is the default of `companion fly`."""
    for instance in range(first, first + 99):
        if ONBOARD_PORTS[1] + instance == GROUND_PORTS[1]:
            continue
        try:
            for port in (ONBOARD_PORTS[0], ONBOARD_PORTS[1], GROUND_PORTS[0]):
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                    probe.bind(("127.0.0.1", port + instance))
        except OSError:
            continue
        return instance
    raise RuntimeError("no free UDP ports for a simulated autopilot")


class RealFlight:
    """All processes of a simulated flight; a context manager that ends all of them.

    camera: with a camera process between the simulator and the rest. Then the simulator is on a bus of its own, and its
    truth is not in the flight's log.
    """

    def __init__(self, folder: Path, seed: int = 1, camera: bool = False) -> None:
        mission, scenario = near_pier(folder)
        self.log = folder / "flight" / "flight.mcap"
        self.instance = free_instance()
        bus, air = folder / "bus", folder / ("air" if camera else "bus")
        vehicle, url = ROOT / "config/vehicles/f550.toml", fcu_url(self.instance)
        context = Context(vehicle, mission, url, bus, self.log, scenario_file=scenario)
        commands = {
            "simulator": python(
                "sitl.realtime", str(scenario), "--seed", str(seed), "--bus", str(air),
                "--instance", str(self.instance),
            )
        }  # fmt: skip
        for spec in PROCESSES:
            if spec.simulated:
                commands[spec.name] = python("companion.runtime.processes", spec.name, *arguments(context))
        if camera:
            commands["camera"] = [sys.executable, str(RELAY_CAMERA), "--air", str(air), "--bus", str(bus)]
        self.manager = Manager(commands, folder / "processes")
        self.bus = ZmqBus(bus, "manager", WATCHED)
        self.buses = [self.bus, ZmqBus(air, "watcher", ("truth",))] if camera else [self.bus]
        self.latest = Latest()
        self.truth: list[Truth] = []
        self.sent: list[SentSetpoint] = []
        self.modes: list[str] = []  # of the flight controller as the stack receives them, each change once
        self.phases: list[str] = []

    def __enter__(self) -> "RealFlight":
        self.manager.start()
        return self

    def __exit__(self, *_) -> None:
        for bus in self.buses:
            bus.close()
        self.manager.stop()

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Fly on; returns whether ``until()`` was true before the time was over."""
        end_s = monotonic_s() + seconds
        while monotonic_s() < end_s:
            for message in [message for bus in self.buses for message in bus.receive(0.05 / len(self.buses))]:
                self.latest.put(message)
                if isinstance(message, Truth):
                    self.truth.append(message)
                elif isinstance(message, SentSetpoint):
                    self.sent.append(message)
                elif isinstance(message, FcuStatus) and message.connected:
                    _append_change(self.modes, message.mode)
                elif isinstance(message, MissionStatus):
                    _append_change(self.phases, message.phase)
            self.manager.check()
            if until():
                return True
        return False

    def until_hold(self) -> bool:
        """Fly to the hold and stay there for a while."""
        return self.run(60.0, lambda: self.phases[-1:] == ["HOLD"]) and not self.run(3.0)


def _append_change(values: list[str], value: str) -> None:
    if values[-1:] != [value]:
        values.append(value)

"""Whole flights with real PX4, as `companion fly --fcu px4` starts them, and the figures of their logs."""

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from acados_gen.generate import generate_all
from companion.cli import main
from companion.core.bus import ZmqBus
from companion.core.clock import monotonic_s
from companion.core.config import ConfigError
from companion.core.messages import FcuStatus, MissionStatus, Truth
from companion.recording.log import read_log
from companion.recording.metrics import flight_metrics
from companion.runtime.manager import Manager, python
from companion.runtime.processes import PROCESSES, Context, arguments
from sitl.lockstep import Lockstep
from sitl.px4.build import find_build
from sitl.px4.fly import SIH_VEHICLE, simulate_px4
from sitl.px4.hil import TCP_PORT
from sitl.realtime import fcu_url
from sitl.scenario import Fault, load_scenario

ROOT = Path(__file__).parents[2]
RATE_WINDOW = 10  # health messages, 5 s
RATE_MIN = 0.9  # of the nominal rate; below this, world and stack do not run at the same speed


def need_px4() -> None:
    """Skip where no PX4 build is found."""
    try:
        find_build()
    except ConfigError as error:
        pytest.skip(str(error))


def need_full_rate(log: dict) -> None:
    """Skip a failed real-time flight in which the machine was too slow for world, estimator or controller."""
    for name in ("simulator", "estimator", "controller"):
        rates = [m.steps_per_s / m.nominal_steps_per_s for m in log["health"] if m.process == name]
        slowest = min(
            (mean(rates[i : i + RATE_WINDOW]) for i in range(0, len(rates) - RATE_WINDOW, RATE_WINDOW)), default=1.0
        )
        if slowest < RATE_MIN:
            pytest.skip(f"this machine was too busy: the {name} made {slowest:.0%} of its steps")


def fly(mission: str, limit_m: float, out: Path, *options: str) -> tuple[dict, dict]:
    """Fly a mission of config/missions to its end; (figures, log).

    Checks exit status, RMS of the position error, log, report and PX4's own log.
    """
    need_px4()
    line = (str(ROOT / f"config/missions/{mission}.toml"), "--fcu", "px4", "--out", str(out), *options)
    result = CliRunner().invoke(main, ["fly", *line])
    sys.stdout.write(result.output)
    (folder,) = out.iterdir()
    log = read_log(folder / "flight.mcap")
    figures = flight_metrics(folder / "flight.mcap")
    if "--speed" not in options and (result.exit_code != 0 or figures["position_rms_m"] > limit_m):
        need_full_rate(log)
    assert result.exit_code == 0, result.output[-500:]
    assert figures["position_rms_m"] <= limit_m
    assert (folder / "report.html").stat().st_size > 1000
    assert list((folder / "px4").glob("log/*/*.ulg")), "PX4 wrote no log"
    armed = [m.armed for m in log["fcu_status"] if m.connected]
    assert any(armed) and not armed[-1]
    return figures, log


HOLD_S = 42.0  # of `simulated`: the aircraft has been in the hold for some seconds


def simulated(
    folder: Path,
    end_s: float,
    faults: Sequence[Fault] = (),
    begin: Callable[[Lockstep], None] = lambda lockstep: None,
    **parameters: float,
) -> Lockstep:
    """Fly `bridge_hover` in simulated time, so that the load of the machine does not matter; the finished run.

    begin: called once, early in the flight, to schedule what a fault does not do; parameters: PX4's, by their names.
    """
    need_px4()
    loaded = load_scenario(ROOT / "config/scenarios/bridge_hover.toml", camera_mode="corners")
    scenario = msgspec.structs.replace(
        loaded.scenario,
        fault=list(faults),
        duration_max_s=end_s,
        fcu_parameters=loaded.scenario.fcu_parameters | parameters,
    )
    loaded = msgspec.structs.replace(loaded, scenario=scenario)
    begun = False

    def progress(lockstep: Lockstep) -> None:
        nonlocal begun
        if not begun:
            begun = True
            begin(lockstep)

    return simulate_px4(find_build(), loaded, 1, 4.0, folder, free_instance(), progress)


def free_instance() -> int:
    """An instance number whose TCP port is free."""
    for instance in range(1, 10):  # 0 is `companion fly`
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", TCP_PORT + instance))
            except OSError:
                continue
            return instance
    raise RuntimeError("no free port for PX4")


def changes(values: Iterable[tuple[float, str]]) -> list[tuple[float, str]]:
    """The (time, value) at which a value differs from the one before."""
    found: list[tuple[float, str]] = []
    for at_s, value in values:
        if not found or found[-1][1] != value:
            found.append((round(at_s, 2), str(value)))
    return found


def modes_of(lockstep: Lockstep) -> list[tuple[float, str]]:
    return changes((m.stamp_s, m.mode) for m in lockstep.messages["fcu_status"] if m.connected)


def phases_of(lockstep: Lockstep) -> list[tuple[float, str]]:
    return changes((m.stamp_s, m.phase) for m in lockstep.messages["mission_status"])


def excursion_m(lockstep: Lockstep, from_s: float, until_s: float) -> float:
    """Largest distance from the true position at ``from_s``."""
    places = [np.array(t.p_W) for t in lockstep.messages["truth"] if from_s <= t.stamp_s <= until_s]
    return float(max(np.linalg.norm(p - places[0]) for p in places))


class Px4Flight:
    """The processes of one flight, under the control of a test; a context manager that ends them all."""

    def __init__(self, mode: str, folder: Path) -> None:
        need_px4()
        scenario = ROOT / "config/scenarios/bridge_hover.toml"
        vehicle = ROOT / "config/vehicles" / (SIH_VEHICLE if mode == "sih" else "f550.toml")
        list(generate_all([vehicle], print))
        context = Context(
            vehicle,
            ROOT / "config/missions/bridge_hover.toml",
            fcu_url(),
            folder / "bus",
            folder / "flight.mcap",
            scenario_file=scenario,
        )
        commands = {
            "simulator": python(
                "sitl.px4.realtime", str(scenario), "--mode", mode, "--run", str(folder / "px4"), "--bus",
                str(folder / "bus"),
            )
        }  # fmt: skip
        for row in PROCESSES:
            if row.simulated:
                commands[row.name] = python("companion.runtime.processes", row.name, *arguments(context))
        self.log = folder / "flight.mcap"
        self.manager = Manager(commands, folder / "processes")
        self.bus = ZmqBus(folder / "bus", "manager", ("mission_status", "fcu_status", "truth"))
        self.modes: list[str] = []
        self.phases: list[str] = []
        self.truth: list[Truth] = []

    def __enter__(self) -> "Px4Flight":
        self.manager.start()
        return self

    def __exit__(self, *_) -> None:
        self.bus.close()
        self.manager.stop(8.0)

    def run(self, seconds: float, until=lambda: False) -> bool:
        """Fly on; returns whether ``until()`` held before the time was over."""
        end_s = monotonic_s() + seconds
        while monotonic_s() < end_s:
            for message in self.bus.receive(0.05):
                if isinstance(message, Truth):
                    self.truth.append(message)
                elif isinstance(message, FcuStatus) and message.connected and self.modes[-1:] != [message.mode]:
                    self.modes.append(message.mode)
                elif isinstance(message, MissionStatus) and self.phases[-1:] != [message.phase]:
                    self.phases.append(message.phase)
            self.manager.check()
            if until():
                return True
        return False

    def hang(self, name: str) -> None:
        """Stop a process with SIGSTOP; the manager detects it after a second and starts it again."""
        os.kill(self.manager.pid(name), signal.SIGSTOP)

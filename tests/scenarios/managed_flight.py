"""A real flight whose manager is a process of its own, observed from outside: true motion, PX4's mode, processes, log."""

import contextlib
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from ground_observer import GroundObserver
from real_flight import ROOT, near_pier

from companion.core.clock import monotonic_s
from companion.core.messages import MissionStatus, Truth
from companion.core.subscriber import Subscriber
from companion.recording.log import LogError, parts, read_log
from companion.runtime.parent import tied_to_this_process
from sitl.px4.build import find_build
from sitl.realtime import fcu_url

MANAGER = "manager"
VEHICLE = ROOT / "config/vehicles/f550.toml"
FLIGHT_MANAGER = Path(__file__).with_name("flight_manager.py")
LOOK_PERIOD_S = 0.3  # between two looks at the process table
START_S = 60.0  # until the take-off; PX4 itself takes half of it
FENCE_MIN_M, FENCE_MAX_M = (-5.0, -6.0, -1.0), (11.0, 6.0, 8.0)  # [limits] of the mission
FACE_M = 3.5  # east of the take-off point: the pier's face (`near_pier`)


class ManagedFlight:
    """A context manager that ends everything it started.

    hold_s: how long the mission holds. instance: shifts all UDP ports. px4: fly PX4's simulation build in the place of
    the emulator.
    """

    def __init__(self, folder: Path, seed: int, instance: int, hold_s: float, px4: Path | None = None) -> None:
        mission, scenario = near_pier(folder, hold_s)
        self.folder, self.instance = folder, instance
        air, temporary = folder / "air", folder / "t"
        temporary.mkdir()
        module, more = "sitl.realtime", ()
        if px4 is not None:
            module = "sitl.px4.realtime"
            more = ("--build", str(find_build(px4).etc.parent), "--run", str(folder / "px4"))
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TMPDIR": str(temporary)}
        with (folder / "simulator.log").open("wb") as log:
            self._simulator = subprocess.Popen(
                [sys.executable, "-m", module, str(scenario), "--seed", str(seed), "--bus", str(air), "--instance",
                 str(instance), *more],
                env=environment | tied_to_this_process(), stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        with (folder / "manager.log").open("wb") as log:
            self.manager = subprocess.Popen(
                [sys.executable, str(FLIGHT_MANAGER), "--mission", str(mission), "--vehicle", str(VEHICLE), "--air",
                 str(air), "--out", str(folder / "flights"), "--fcu", fcu_url(instance), "--timeout", "300"],
                env=environment | tied_to_this_process(), stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.observer = GroundObserver(instance)
        self.truth: list[Truth] = []
        self.phases: list[tuple[float, str]] = []  # time, phase: each change once
        self.cause = ""  # why the mission ended early, by its newest status
        self.seen: dict[int, str] = {}  # process id: name, of all processes that the manager has started
        self._temporary = temporary
        self._looked_s = -math.inf
        air.mkdir(mode=0o700, exist_ok=True)
        self._air = Subscriber(air, ["truth"])
        self._bus: Subscriber | None = None

    def __enter__(self) -> "ManagedFlight":
        return self

    def __exit__(self, *_) -> None:
        for end in (self._air, self._bus, self.observer):
            if end is not None:
                end.close()
        self.end_manager()
        for pid in self.left():
            with contextlib.suppress(OSError):
                os.kill(pid, 9)
        self._simulator.terminate()
        try:
            self._simulator.wait(5.0)
        except subprocess.TimeoutExpired:
            self._simulator.kill()
            self._simulator.wait()

    def end_manager(self) -> None:
        """Kill the manager if it still runs."""
        if self.manager.poll() is None:
            self.manager.kill()
            self.manager.wait()

    @property
    def phase(self) -> str:
        """The mission's present phase, "" before its first status."""
        return self.phases[-1][1] if self.phases else ""

    @property
    def mode(self) -> str:
        """The flight controller's present mode, "" before it is known."""
        return self.observer.modes[-1].mode if self.observer.modes else ""

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Observe; returns whether ``until()`` was true before the time was over."""
        end_s = monotonic_s() + seconds
        while monotonic_s() < end_s:
            self.truth += [message for message in self._air.receive(0.03) if isinstance(message, Truth)]
            self.observer.receive()
            self._look()
            for message in self._bus.receive(0.0) if self._bus is not None else ():
                if isinstance(message, MissionStatus):
                    self.cause = message.cause
                if isinstance(message, MissionStatus) and message.phase != self.phase:
                    self.phases.append((monotonic_s(), message.phase))
            if until():
                return True
        return False

    def _look(self) -> None:
        if monotonic_s() - self._looked_s < LOOK_PERIOD_S:
            return
        self._looked_s = monotonic_s()
        self.processes()
        if self._bus is None:
            for folder in self._temporary.glob("companion-*"):
                self._bus = Subscriber(folder, ["mission_status"])

    def processes(self) -> dict[str, int]:
        """The process ids by name: of the manager, and of those that it has started and that run."""
        found = {MANAGER: self.manager.pid}
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self.manager.pid).children():
                with contextlib.suppress(psutil.Error):
                    if name := _name(child.cmdline()):
                        found[name] = child.pid
                        self.seen[child.pid] = name
        return found

    def left(self) -> list[int]:
        """The processes of the manager that still run."""
        return [pid for pid in self.seen if _runs(pid)]

    def all_ended(self, within_s: float) -> float:
        """Seconds until all processes of the manager have ended; inf when some still run after ``within_s``."""
        begun_s = monotonic_s()
        while self.left():
            if monotonic_s() - begun_s > within_s:
                return math.inf
            time.sleep(0.02)
        return monotonic_s() - begun_s

    def log_problem(self) -> str:
        """Why the log of the flight cannot be read, "" when it can."""
        logs = sorted(self.folder.glob("flights/*/flight.mcap"))
        if len(logs) != 1:
            return f"{len(logs)} logs"
        try:
            states = sum(len(read_log(part)["state"]) for part in parts(logs[0]))
        except (LogError, OSError) as error:
            return str(error)
        return "" if states else "no state in the log"


def _name(command: list[str]) -> str:
    """The name of a process of the stack, "" for any other command."""
    if "companion.runtime.processes" in command:
        return command[command.index("companion.runtime.processes") + 1]
    return "camera" if any(word.endswith("relay_camera.py") for word in command) else ""


def _runs(pid: int) -> bool:
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and bool(_name(process.cmdline()))
    except psutil.Error:
        return False

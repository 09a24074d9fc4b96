"""Faults of a process in flight and their outcome: kill -9, a hang, a loop that takes a whole core."""

import contextlib
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import psutil
from ground_observer import GroundObserver
from real_flight import RealFlight

from companion.core.clock import monotonic_s
from companion.core.messages import SentSetpoint

KINDS = ("kill", "hang", "busy")
STREAM_SURVIVES = ("tracker", "recorder", "camera")  # without these the setpoint stream need not pause
STREAM_ENDS = ("estimator", "controller", "fcu", "mission")
FARTHEST_M = 1.0  # from the hold point
RESTARTED_WITHIN_S = 2.0
OFFBOARD_LOSS_S = 0.5  # COM_OF_LOSS_T of the scenario
IN_CHARGE_WITHIN_S = (
    OFFBOARD_LOSS_S + 0.3
)  # from the last setpoint until PX4 reports that it flies; its texts take 0.1 s
STEP_MAX_RAD = 0.2  # between two setpoints in a row; in these gusts 0.1 is usual
STEP_MAX_THRUST = 0.15
WATCH_S = 6.0
BURN = "while True:\n    pass"


class Outcome(NamedTuple):
    """The outcome of one fault; times from the fault on."""

    process: str
    kind: str
    restarted_s: float  # until another process replaced it; inf: never
    ready_s: float  # until the new process had made its first step
    farthest_m: float
    in_charge_gap_s: float  # longest time in OFFBOARD without a setpoint
    step_rad: float  # largest change of roll or pitch between two setpoints in a row
    step_thrust: float
    modes: tuple[str, ...]
    phases: tuple[str, ...]
    load: float  # of the machine

    @property
    def px4_took_over(self) -> bool:
        return any(mode != "OFFBOARD" for mode in self.modes)

    def problems(self) -> list[str]:
        """What must not happen, one line each."""
        found = []
        if self.restarted_s > RESTARTED_WITHIN_S:
            found.append(f"started again after {self.restarted_s:.2f} s")
        if not self.farthest_m < FARTHEST_M:
            found.append(f"{self.farthest_m:.2f} m from the hold point")
        if self.in_charge_gap_s > IN_CHARGE_WITHIN_S:
            found.append(f"no controller for {self.in_charge_gap_s:.2f} s")
        if self.step_rad > STEP_MAX_RAD or self.step_thrust > STEP_MAX_THRUST:
            found.append(f"setpoint jumped by {self.step_rad:.2f} rad, {self.step_thrust:.2f} thrust")
        left = [i for i, mode in enumerate(self.modes) if mode != "OFFBOARD"]
        if left and "OFFBOARD" in self.modes[left[0] :]:
            found.append(f"offboard entered again without the pilot: {self.modes}")
        if left and self.phases[-1:] not in (("PX4_HOLD",), ("PILOT",)):
            found.append(f"PX4 flies, but the mission is in {self.phases[-1:]}")
        return found


@contextlib.contextmanager
def fault(flight: RealFlight, process: str, kind: str) -> Iterator[int]:
    """Cause a fault until the context ends; gives the id of the process.

    busy: the process stops, and a loop of the same niceness takes a core in its place until the context ends.
    """
    pid = flight.manager.pid(process)
    burner = None
    if kind == "kill":
        os.kill(pid, signal.SIGKILL)
    else:
        os.kill(pid, signal.SIGSTOP)
    if kind == "busy":
        burner = subprocess.Popen([sys.executable, "-c", BURN])
        with contextlib.suppress(psutil.Error):
            psutil.Process(burner.pid).nice(psutil.Process(pid).nice())
    try:
        yield pid
    finally:
        if burner is not None:
            burner.kill()
            burner.wait()


def inject_and_watch(flight: RealFlight, observer: GroundObserver, process: str, kind: str) -> Outcome:
    """One fault in the hold, and `WATCH_S` of the flight after it."""

    def observe(until: Callable[[], bool] = lambda: False) -> bool:
        observer.receive()
        return until()

    hold_W = flight.truth[-1].p_W
    flight.truth.clear()
    flight.phases.clear()
    flight.sent = flight.sent[-1:]
    child = next(c for c in flight.manager.children if c.name == process)
    at_s = monotonic_s()
    with fault(flight, process, kind) as before:
        replaced = flight.run(10.0, lambda: observe(lambda: flight.manager.pid(process) not in (None, before)))
    restarted_s = monotonic_s() - at_s if replaced else math.inf
    ready = flight.run(10.0, lambda: observe(lambda: child.ready))
    ready_s = monotonic_s() - at_s if ready else math.inf
    flight.run(WATCH_S, observe)
    return Outcome(
        process=process,
        kind=kind,
        restarted_s=restarted_s,
        ready_s=ready_s,
        farthest_m=max((math.dist(t.p_W, hold_W) for t in flight.truth), default=math.inf),
        in_charge_gap_s=in_charge_gap_s(flight.sent, observer, monotonic_s()),
        step_rad=largest_step(flight.sent, "roll_rad", "pitch_rad"),
        step_thrust=largest_step(flight.sent, "thrust"),
        modes=tuple(observer.modes_after(at_s)),
        phases=tuple(flight.phases),
        load=os.getloadavg()[0],
    )


def in_charge_gap_s(sent: list[SentSetpoint], observer: GroundObserver, now_s: float) -> float:
    """The longest time without a setpoint while the autopilot was in OFFBOARD, by the autopilot's clock."""
    stamps = [s.stamp_s for s in sent] + [now_s]
    longest_s = 0.0
    for last_s, next_s in zip(stamps, stamps[1:], strict=False):
        left_s = observer.left_offboard_s(last_s)
        if left_s == last_s:
            break  # PX4 controls already
        until_s = min(next_s, left_s or math.inf)
        longest_s = max(longest_s, observer.autopilot_s(until_s) - observer.autopilot_s(last_s))
        if left_s is not None and left_s < next_s:
            break
    return longest_s


def largest_step(sent: list[SentSetpoint], *names: str) -> float:
    """Largest change between two setpoints in a row that reached the flight controller."""
    pairs = zip(sent, sent[1:], strict=False)
    return max((abs(getattr(b, n) - getattr(a, n)) for a, b in pairs for n in names), default=0.0)

"""Kill, stop and hang of every process and of the manager at random times of a flight, in the real process graph.

``python tests/scenarios/kill_campaign.py --each 4 --out kills.json`` flies one flight for each case and prints a table.
It may be stopped at any time and called again: the cases in the file are not flown again. ``--process`` and ``--kind``
choose cases, ``--jobs`` flies several at a time, ``--px4`` flies PX4's simulation build in the place of the emulator.
It runs in real time, so it needs a quiet machine: a core and a half for each job; the table has the machine's load.

kill: SIGKILL. stop: SIGSTOP, and SIGCONT after `STOP_S`. hang: SIGSTOP for good.
"""

import argparse
import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

import numpy as np
from managed_flight import FACE_M, FENCE_MAX_M, FENCE_MIN_M, MANAGER, START_S, ManagedFlight
from real_flight import free_instance

from companion.core.clock import monotonic_s
from companion.core.command_line import INTERRUPTED

PROCESSES = ("tracker", "recorder", "camera", "estimator", "controller", "fcu", "mission", MANAGER)
KINDS = ("kill", "stop", "hang")
STOP_S = (0.2, 4.0)  # shorter and longer than the watchdog waits
HOLD_S = 25.0
FLIGHT_S = 50.0  # from the take-off to the landing; the fault comes within. The hold takes half of it
AFTER_S = 45.0  # observed after the fault at most: the rest of the mission, and the return that a fault causes
EXCURSION_S = 6.0  # of the hold after the fault
MANAGER_ENDED_S = 15.0  # observed after the manager was killed: PX4 takes over, or lands
GIVEN_UP = ("PX4_HOLD", "PILOT", "DONE", "FAILED")  # phases of a flight that ended before its fault: a busy machine
LEAVING = ("RETREAT", "RETURN", "LAND", "DONE")  # phases in which the aircraft leaves the hold point on purpose

EXCURSION_MAX_M = 1.0
IN_THE_AIR_M = 0.3
BODY_RADIUS_M = 0.5  # of the F550 with propellers
TOUCHDOWN_MAX_M_S = 2.0  # PX4 lands with 0.7 m/s
CHILDREN_END_S = 3.0  # from the end of the manager to the end of the last process
FAILED_STARTS_MAX = 5  # flights in a row that did not come to their fault: the machine is too busy
INSTANCES_PER_JOB = 20


class Case(NamedTuple):
    """One flight of the campaign; number: which of the times of this process and kind."""

    process: str
    kind: str
    number: int


class Outcome(NamedTuple):
    """The outcome of a case; times from the fault on, NaN where there is none."""

    process: str
    kind: str
    number: int
    at_s: float  # of the fault, since the take-off
    stopped_s: float
    phase: str  # at the fault
    ended: str  # last phase of the mission
    modes: tuple[str, ...]  # of the flight controller, from the fault on, in the air
    excursion_m: float  # farthest from the place of the fault in the hold, until it is left on purpose
    nearest_m: float  # of the aircraft's centre to the pier's face
    fence_m: float  # farthest outside of the fence
    touchdown_m_s: float  # largest downward speed near the ground
    children_end_s: float  # from the end of the manager to the end of its last process
    left: int  # processes that were still there
    log_problem: str
    load: float  # of the machine
    cause: str = ""  # of an early end

    def problems(self) -> list[str]:
        """What must not happen, one line each."""
        found = []
        if self.phase == "HOLD" and not self.excursion_m <= EXCURSION_MAX_M:
            found.append(f"{self.excursion_m:.2f} m from the hold point")
        if not self.nearest_m > BODY_RADIUS_M:
            found.append(f"contact: {self.nearest_m:.2f} m to the face")
        if not self.fence_m <= 0.0:
            found.append(f"{self.fence_m:.2f} m outside of the fence")
        if self.touchdown_m_s > TOUCHDOWN_MAX_M_S:
            found.append(f"fell: {self.touchdown_m_s:.1f} m/s at the ground")
        left = [i for i, mode in enumerate(self.modes) if mode != "OFFBOARD"]
        if self.modes[:1] == ("OFFBOARD",) and left and "OFFBOARD" in self.modes[left[0] :]:
            found.append(f"offboard entered again without the pilot: {self.modes}")
        if self.process == MANAGER and self.kind == "kill" and self.modes[-1:] == ("OFFBOARD",):
            found.append("PX4 did not take over")
        if self.left:
            found.append(f"{self.left} processes outlived their manager")
        if self.log_problem:
            found.append(f"log: {self.log_problem}")
        return found


def cases(processes: Iterable[str], kinds: Iterable[str], each: int) -> list[Case]:
    """All cases, so ordered that the campaign can be stopped early: every process and kind once, then again."""
    return [Case(process, kind, number) for number in range(each) for kind in kinds for process in processes]


def fault_time_s(case: Case, each: int, chance: random.Random) -> float:
    """A random time since the take-off; the times of one process and kind are spread over the flight."""
    part = FLIGHT_S / each
    return part * (case.number % each) + chance.uniform(0.0, part)


class CampaignStopped(Exception):
    """Ctrl-C."""


class Campaign:
    """Flies cases.

    each, seed: choose the times. stopped: ends it. px4: a simulation build, None: the emulator. kept: where the logs of
    flights with a problem are copied.
    """

    def __init__(
        self, each: int, seed: int, stopped: threading.Event, px4: Path | None = None, kept: Path | None = None
    ) -> None:
        self._each, self._seed, self._stopped, self._px4, self._kept = each, seed, stopped, px4, kept

    def fly(self, case: Case, attempt: int, first_instance: int) -> Outcome | None:
        """One flight; None when it did not come to its fault."""
        chance = random.Random(f"{self._seed} {case} {attempt}")
        at_s, stopped_s = fault_time_s(case, self._each, chance), chance.uniform(*STOP_S)
        with (
            tempfile.TemporaryDirectory(prefix="companion-") as folder,
            ManagedFlight(
                Path(folder), chance.randrange(1, 1_000_000), free_instance(first_instance), HOLD_S, self._px4
            ) as flight,
        ):
            if not flight.run(START_S, lambda: self._check(flight.phase == "TAKEOFF")):
                return None
            flight.run(at_s, lambda: self._check(flight.manager.poll() is not None))
            pid = flight.processes().get(case.process)
            if pid is None or flight.manager.poll() is not None or flight.phase in GIVEN_UP:
                return None
            outcome = self._outcome(flight, case, at_s, stopped_s, pid)
            if outcome.problems() and self._kept is not None:
                name = f"{case.process}_{case.kind}_{case.number}"
                shutil.copytree(folder, self._kept / name, ignore=shutil.ignore_patterns("*.sock"), dirs_exist_ok=True)
            return outcome

    def _check(self, until: bool) -> bool:
        if self._stopped.is_set():
            raise CampaignStopped
        return until

    def _outcome(self, flight: ManagedFlight, case: Case, at_s: float, stopped_s: float, pid: int) -> Outcome:
        phase, faulted_s, first = flight.phase, monotonic_s(), len(flight.truth)
        os.kill(pid, signal.SIGKILL if case.kind == "kill" else signal.SIGSTOP)
        children_end_s = math.nan
        if case.process == MANAGER and case.kind == "kill":
            flight.manager.wait()
            children_end_s = flight.all_ended(CHILDREN_END_S)
            left = len(flight.left())
            flight.run(MANAGER_ENDED_S, lambda: self._check(False))
        else:
            if case.kind == "stop":
                flight.run(stopped_s, lambda: self._check(False))
                if flight.processes().get(case.process) == pid:
                    os.kill(pid, signal.SIGCONT)
            flight.run(AFTER_S, lambda: self._check(flight.manager.poll() is not None or flight.phase == "DONE"))
            if case.process == MANAGER and case.kind == "hang":
                flight.end_manager()
            elif flight.manager.poll() is None:  # it writes the report; or PX4 flies, and no pilot lands
                flight.manager.terminate()
                flight.run(30.0, lambda: self._check(flight.manager.poll() is not None))
                flight.end_manager()
            children_end_s = flight.all_ended(CHILDREN_END_S)
            left = len(flight.left())
        flight.observer.receive()
        return Outcome(
            *case,
            at_s=at_s,
            stopped_s=stopped_s if case.kind == "stop" else math.nan,
            phase=phase,
            ended=flight.phase,
            modes=modes_in_the_air(flight, faulted_s),
            excursion_m=excursion_m(flight, phase, first, faulted_s),
            nearest_m=min((FACE_M - t.p_W[0] for t in flight.truth if t.p_W[2] > 0.5), default=math.nan),
            fence_m=max((_outside_m(t.p_W) for t in flight.truth), default=math.nan),
            touchdown_m_s=max((-t.v_W[2] for t in flight.truth if t.p_W[2] < IN_THE_AIR_M), default=0.0),
            children_end_s=children_end_s,
            left=left,
            log_problem=flight.log_problem(),
            load=os.getloadavg()[0],
            cause=flight.cause,
        )


def modes_in_the_air(flight: ManagedFlight, faulted_s: float) -> tuple[str, ...]:
    """PX4's modes from the fault to the ground; after a landing it returns to the mode that was chosen before."""
    landed_s = next((t.stamp_s for t in reversed(flight.truth) if t.p_W[2] > IN_THE_AIR_M), -math.inf)
    changes = flight.observer.modes
    before = [change.mode for change in changes if change.since_s <= faulted_s][-1:]
    return (*before, *(change.mode for change in changes if faulted_s < change.since_s <= landed_s))


def excursion_m(flight: ManagedFlight, phase: str, first: int, faulted_s: float) -> float:
    """Farthest from the place of the fault for `EXCURSION_S`, or until the aircraft left on purpose; NaN elsewhere."""
    if phase != "HOLD":
        return math.nan
    until_s = min(
        (at_s for at_s, entered in flight.phases if at_s > faulted_s and entered in LEAVING), default=math.inf
    )
    until_s = min(until_s, faulted_s + EXCURSION_S)
    observed = [t.p_W for t in flight.truth[first:] if t.stamp_s < until_s]
    if not observed or not first:
        return math.nan
    return float(np.linalg.norm(np.array(observed) - flight.truth[first - 1].p_W, axis=1).max())


def _outside_m(p_W: tuple[float, float, float]) -> float:
    pairs = zip(FENCE_MIN_M, p_W, FENCE_MAX_M, strict=True)
    return max(max(low - value, value - high) for low, value, high in pairs)


# --- results


def read(file: Path) -> dict[Case, Outcome]:
    """The outcomes of earlier calls."""
    if not file.exists():
        return {}
    rows = json.loads(file.read_text(encoding="utf-8"))
    outcomes = [Outcome(**row | {"modes": tuple(row["modes"])}) for row in rows]
    return {Case(o.process, o.kind, o.number): o for o in outcomes}


def write(file: Path, outcomes: Iterable[Outcome]) -> None:
    """Replace the file at once, so that it is complete at any moment."""
    part = file.with_name(file.name + ".part")
    part.write_text(json.dumps([outcome._asdict() for outcome in outcomes], indent=1), encoding="utf-8")
    part.replace(file)


def table(outcomes: Iterable[Outcome]) -> str:
    """A line for each process and kind, the worst of each column; then every problem."""
    outcomes = list(outcomes)
    lines = [
        "process     fault  times  in hold  excursion m  nearest m  fence m  PX4 took over  left  no log  bad  load"
    ]
    for process in PROCESSES:
        for kind in KINDS:
            group = [o for o in outcomes if (o.process, o.kind) == (process, kind)]
            if group:
                held = [o.excursion_m for o in group if o.phase == "HOLD"]
                excursion = f"{max(held):11.2f}" if held else f"{'–':>11}"
                took = sum(o.modes[:1] == ("OFFBOARD",) and o.modes[-1] != "OFFBOARD" for o in group)
                lines.append(
                    f"{process:<11} {kind:<5} {len(group):6} {len(held):8} {excursion:>12} "
                    f"{min(o.nearest_m for o in group):10.2f} {max(o.fence_m for o in group):8.2f} {took:14} "
                    f"{sum(o.left for o in group):5} {sum(bool(o.log_problem) for o in group):7} "
                    f"{sum(bool(o.problems()) for o in group):4} {max(o.load for o in group):5.1f}"
                )
    lines += [line(o) for o in outcomes if o.problems()]
    bad = sum(bool(o.problems()) for o in outcomes)
    worst = max((o.excursion_m for o in outcomes if o.phase == "HOLD"), default=math.nan)
    lines.append(f"{len(outcomes)} flights, {bad} with a problem, farthest in the hold {worst:.2f} m")
    return "\n".join(lines)


def line(outcome: Outcome) -> str:
    """One outcome in one line."""
    problems = "".join(f"; {problem}" for problem in outcome.problems())
    return (
        f"{outcome.process:<11} {outcome.kind:<5} {outcome.at_s:5.1f} s {outcome.phase:<10} → {outcome.ended:<10} "
        f"{','.join(outcome.modes)}  {outcome.excursion_m:.2f} m{problems}"
    )


def campaign(todo: list[Case], flights: Campaign, jobs: int, file: Path, stopped: threading.Event) -> int:
    """Fly the cases; returns how many could not be flown."""
    outcomes, lock, failed_starts = read(file), threading.Lock(), 0

    def fly(case: Case, job: int) -> bool:
        nonlocal failed_starts
        for attempt in range(FAILED_STARTS_MAX):
            outcome = flights.fly(case, attempt, 1 + INSTANCES_PER_JOB * job)
            with lock:
                if outcome is not None:
                    outcomes[case] = outcome
                    write(file, outcomes.values())
                    print(line(outcome), flush=True)
                    return True
                failed_starts += 1
        return False

    free = list(range(jobs))
    waiting, running, missed = list(todo), {}, 0
    with ThreadPoolExecutor(jobs) as pool:
        try:
            while waiting or running:
                while waiting and free:
                    job = free.pop()
                    running[pool.submit(fly, waiting.pop(0), job)] = job
                done: set[Future[bool]] = wait(running, timeout=1.0, return_when="FIRST_COMPLETED").done
                for future in done:
                    free.append(running.pop(future))
                    missed += not future.result()
        except KeyboardInterrupt:
            stopped.set()
            raise
    return missed


def main() -> int:
    """Fly; exit status 1 when a flight had a problem or could not be flown, 130 when stopped."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--each", type=int, default=4, help="times of each fault, for each process (default: 4)")
    parser.add_argument("--process", default=",".join(PROCESSES), help=f"of {','.join(PROCESSES)}")
    parser.add_argument("--kind", default=",".join(KINDS), help=f"of {','.join(KINDS)}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="flights at a time (default: 1)")
    parser.add_argument("--flights", type=int, default=10_000, help="stop after so many")
    parser.add_argument("--px4", type=Path, default=None, help="simulation build of PX4 to fly; default: the emulator")
    parser.add_argument("--keep", type=Path, default=None, help="folder for the logs of flights with a problem")
    parser.add_argument("--out", type=Path, required=True, help="outcomes as JSON; continued if it exists")
    given = parser.parse_args()
    processes, kinds = given.process.split(","), given.kind.split(",")
    if unknown := [*{*processes} - {*PROCESSES}, *{*kinds} - {*KINDS}]:
        parser.error(f"{unknown[0]}: no such process or kind")
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):  # a job in the background has SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    flown = read(given.out)
    todo = [case for case in cases(processes, kinds, given.each) if case not in flown][: given.flights]
    missed = 0
    try:
        flights = Campaign(given.each, given.seed, stopped, given.px4, given.keep)
        missed = campaign(todo, flights, given.jobs, given.out, stopped)
    except (KeyboardInterrupt, CampaignStopped):
        print("stopped; call again to continue")
        print(table(read(given.out).values()))
        return INTERRUPTED
    outcomes = read(given.out)
    if missed:
        print(f"{missed} cases did not come to their fault in {FAILED_STARTS_MAX} flights: the machine is too busy")
    print(table(outcomes.values()))
    return int(missed > 0 or any(outcome.problems() for outcome in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())

"""Random attack flights: missions in lockstep that are attacked in every phase, judged by `tests.attack.promises`.

For each world (wind, sensors and satellites from one seed) a mission is flown once. At every phase several forks of the
process continue it, each under attacks of its own; the flight without an attack goes on to the next phase.
"""

import json
import math
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from companion.core.enums import FcuMode, Phase, ProcessName
from companion.core.messages import LinkRx
from companion.mission import phases as ph
from sitl.autopilot.modes import DESCEND
from sitl.lockstep import Lockstep
from sitl.scenario import LoadedScenario, load_scenario
from tests.attack import promises
from tests.attack.attacks import Attack, Drawn, draw
from tests.scenarios.forked import ForkError, in_fork

SCENARIO = Path(__file__).parents[2] / "config/scenarios/safety/hold.toml"
LONGEST_S = 35.0  # flown after the attack began
OBSERVED_S = 8.0  # flown after this stack has handed the aircraft over
UNREACHABLE_S = 1.0  # while another sender flies; in less it does not go far
HELD_S = 3.0  # after that: the link reports again, Hold is requested, PX4 leaves offboard
NO_POSITION, UNREACHABLE = "left to the pilot without a position", "another sender while PX4 heard nothing"
HOLD_S = {"hold": 600.0, "return": 4.0}  # of the mission that is attacked up to its hold, and on its return
PHASES = {
    "hold": (Phase.TAKEOFF, Phase.ENTER_OFFBOARD, Phase.SEARCH, Phase.APPROACH, Phase.HOLD),
    "return": (Phase.RETURN, Phase.LAND),
}
SHARE = {Phase.HOLD: 5, Phase.APPROACH: 3, Phase.SEARCH: 2, Phase.RETURN: 2}  # of the flights; others: one


class Flight(NamedTuple):
    """The result of one flight."""

    world: int  # seed of the world
    index: int  # of the flight in this world
    phase: Phase  # when the attack began
    attacks: list[str]
    end: str
    cause: str
    monitors: list[str]
    broken: list[str]
    nearest_m: float
    beyond_m: float
    excursion_m: float
    touchdown_m_s: float
    apart: str = ""  # see `tests.attack.promises`


def plan_of(world: int, per_world: int) -> tuple[str, list[Phase]]:
    """Which mission a world flies, and the phases of its flights, by `SHARE`."""
    mission = "return" if world % 4 == 3 else "hold"
    phases = [phase for phase in PHASES[mission] for _ in range(SHARE.get(phase, 1))]
    return mission, sorted((phases[i % len(phases)] for i in range(per_world)), key=PHASES[mission].index)


def load(mission: str, world: int) -> LoadedScenario:
    """The scenario of a world; half of the worlds hold 1.8 m in front of the face, the others 3 m."""
    loaded = load_scenario(SCENARIO)
    scenario = msgspec.structs.replace(loaded.scenario, duration_max_s=600.0)
    standoff_m = 1.8 if world % 2 else 3.0
    plan = loaded.plan
    plan = msgspec.structs.replace(
        plan,
        hold=msgspec.structs.replace(plan.hold, duration_s=HOLD_S[mission]),
        standoff=msgspec.structs.replace(plan.standoff, offset_M=(0.0, 0.0, standoff_m)),
    )
    return msgspec.structs.replace(loaded, scenario=scenario, plan=plan)


def fly_world(
    world: int, per_world: int, attacks: tuple[Attack, ...], only: set[int] | None = None
) -> Iterator[Flight]:
    """The flights of one world, in order. only: indices that are flown, None: all."""
    mission, phases = plan_of(world, per_world)
    lockstep = Lockstep(load(mission, world), world)
    lockstep.start()
    for index, phase in enumerate(phases):
        if not lockstep.run_until(lambda phase=phase: lockstep.pilot is not None and lockstep.pilot.phase == phase):
            raise RuntimeError(f"world {world}: the flight without an attack did not reach {phase}")
        if only is None or index in only:
            rng = np.random.default_rng([world, index])
            drawn = draw(rng, attacks)
            yield _flown(lockstep, world, index, phase, drawn)


def _flown(lockstep: Lockstep, world: int, index: int, phase: Phase, drawn: list[Drawn]) -> Flight:
    names = [f"{d.name} {d.numbers}, {d.begins_s:.1f}+{min(d.lasts_s, 99):.1f} s" for d in drawn]
    try:
        return in_fork(lambda: _attacked(lockstep, world, index, phase, drawn, names))
    except ForkError as e:
        last = str(e).strip().splitlines()[-1]
        return Flight(world, index, phase, names, "exception", last, [], [f"exception: {e}"], math.nan, math.nan, 0, 0)


def _attacked(lockstep: Lockstep, world: int, index: int, phase: Phase, drawn: list[Drawn], names: list[str]) -> Flight:
    begin_s = lockstep.now_s
    for attack in drawn:
        for fault in attack.faults:
            lockstep.faults.add(msgspec.structs.replace(fault, at_s=begin_s + attack.begins_s))
        if attack.conversation is not None:
            change = attack.conversation.change
            begin_us = lockstep.now_us + round(attack.begins_s * 1e6)
            lockstep.at(begin_us, lambda change=change: lockstep.faults.change(LinkRx, change))
            lockstep.at(begin_us + round(attack.lasts_s * 1e6), lambda: lockstep.faults.change(LinkRx, None))
    handed_over: list[float] = []
    apart: list[tuple[float, str]] = []
    unheard_s: list[float] = []
    heard_s: list[float] = []  # since when this stack is heard again while the other sender flies on
    not_held: list[str] = []

    def over() -> bool:
        pilot = lockstep.pilot
        if not _flown_unheard(lockstep):
            unheard_s.clear()
        elif not unheard_s:
            unheard_s.append(lockstep.now_s)
        if not apart or unheard_s or not _flown_by_another(lockstep):
            heard_s.clear()
        elif not heard_s:
            heard_s.append(lockstep.now_s)
        elif not not_held and lockstep.now_s > heard_s[0] + HELD_S:
            not_held.append(f"another sender flew on for {HELD_S:g} s after the link was back")
        if not apart and _left_to_pilot(lockstep):
            apart.append((lockstep.now_s, NO_POSITION))
        elif not apart and unheard_s and lockstep.now_s > unheard_s[0] + UNREACHABLE_S:
            apart.append((unheard_s[0], UNREACHABLE))
        if pilot is not None and pilot.phase in ph.OBSERVING and not handed_over:
            handed_over.append(lockstep.now_s)
        observed = bool(handed_over) and lockstep.now_s > handed_over[0] + OBSERVED_S
        return observed or lockstep.now_s > begin_s + LONGEST_S

    lockstep.run_until(over)
    statuses, events, truth = (
        [m for m in lockstep.messages[topic] if m.stamp_s >= begin_s - before_s]
        for topic, before_s in (("mission_status", 0.2), ("safety", 0.0), ("truth", 0.0))
    )
    loaded = lockstep.loaded
    judged = promises.judge(
        truth, statuses, loaded.plan.limits, loaded.scenario.start.p_W, loaded.scenario.scene.bundles[0].p_W[0],
        *(apart[0] if apart else ()),
    )  # fmt: skip
    broken = [*judged.broken, *not_held]
    last = statuses[-1]
    monitors = list(dict.fromkeys(e.monitor for e in events if e.active))
    return Flight(
        world, index, phase, names, last.phase, last.cause, monitors, broken, judged.nearest_m,
        judged.beyond_m, judged.excursion_m, judged.touchdown_m_s, judged.apart,
    )  # fmt: skip


def _left_to_pilot(lockstep: Lockstep) -> bool:
    """PX4 has left offboard for a mode without a position, in the air and not for a landing that this stack asked for."""
    commander, pilot = lockstep.world.autopilot.commander, lockstep.pilot
    landing = pilot is not None and pilot.phase in (Phase.LAND, Phase.DONE)
    return (
        commander.mode in (FcuMode.ALTCTL, DESCEND)
        and not landing
        and commander.armed
        and not commander.inputs.position
    )


def _flown_unheard(lockstep: Lockstep) -> bool:
    """PX4 follows another sender in offboard, and nothing of this stack reaches PX4."""
    deaf = lockstep.faults.link_down or not lockstep.runners[ProcessName.FCU].alive
    return deaf and _flown_by_another(lockstep)


def _flown_by_another(lockstep: Lockstep) -> bool:
    commander = lockstep.world.autopilot.commander
    return lockstep.faults.foreign_setpoints is not None and commander.armed and commander.mode == FcuMode.OFFBOARD


# --- campaign -------------------------------------------------------------------------------------------------------


def campaign(
    worlds: range, per_world: int, attacks: tuple[Attack, ...], out: Path, jobs: int = 1
) -> list[dict[str, Any]]:
    """Fly all flights that `out` (one JSON line each) does not have yet, and return all of them."""
    done = {(row["world"], row["index"]) for row in read(out)}
    todo = {w: only for w in worlds if (only := {i for i in range(per_world) if (w, i) not in done})}
    if jobs <= 1:
        _work(list(todo), todo, per_world, attacks, out)
    else:
        fork = multiprocessing.get_context("fork")
        shares = [list(todo)[k::jobs] for k in range(jobs)]
        workers = [fork.Process(target=_work, args=(share, todo, per_world, attacks, out)) for share in shares]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if any(worker.exitcode for worker in workers):
            raise RuntimeError("a worker ended with an error")
    return [row for row in read(out) if row["world"] in worlds and row["index"] < per_world]


def _work(share: list[int], todo: dict[int, set[int]], per_world: int, attacks: tuple[Attack, ...], out: Path) -> None:
    for world in share:
        for flight in fly_world(world, per_world, attacks, todo[world]):
            with out.open("a", encoding="utf-8") as file:  # one write for each line: the workers share the file
                file.write(json.dumps(flight._asdict()) + "\n")


def read(out: Path) -> list[dict[str, Any]]:
    """The flights of a file; a line that was cut by the end of a process is left out."""
    rows = []
    for line in out.read_text(encoding="utf-8").splitlines() if out.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows

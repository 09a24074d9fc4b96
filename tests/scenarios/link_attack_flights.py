"""Flights with attacks on the link: from the hold of the safety flights, continued in a fork."""

import os
import pickle
import traceback
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from safety_flights import beginning

from sitl.lockstep import Lockstep
from sitl.scenario import Fault

# Between two of our setpoints. One that always comes just before ours never acts.
PHASE_S = 0.007


class AttackOutcome(NamedTuple):
    """What happened; times since the attack's begin."""

    excursion_m: float  # farthest from the hold point
    nearest_m: float  # to the face of the pier
    sunk_m: float  # farthest below the hold point
    phases: list[tuple[float, str]]
    modes: list[tuple[float, str, str]]  # time, left, entered: of PX4
    requests: list[tuple[float, str]]
    events: list[tuple[float, str, bool, str]]  # time, monitor, active, text
    last_setpoint_s: float
    cause: str
    landed: bool


def attack(
    *faults: tuple,
    seconds: float,
    excursion_until_s: float | None = None,
    prepare: Callable[[Lockstep], None] | None = None,
    begins: str = "hold",
) -> AttackOutcome:
    """Fly on for `seconds`, from a hold or another beginning of the safety flights, with (kind, duration [s], *numbers); the rest is observed, too.

    excursion_until_s: when the flight may leave the hold point on purpose; prepare: called before the faults begin.
    """
    lockstep = beginning(begins)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            if prepare is not None:
                prepare(lockstep)
            answer = _fly(lockstep, faults, seconds, excursion_until_s or seconds)
        except BaseException:  # any error goes to the parent, and this process must end here
            answer = traceback.format_exc()
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(answer, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pickle.loads(pipe.read())
    os.waitpid(child, 0)
    if isinstance(answer, str):
        raise RuntimeError(answer)
    return answer


def _fly(lockstep: Lockstep, faults: tuple, seconds: float, excursion_until_s: float) -> AttackOutcome:
    begin_s = lockstep.now_s
    for kind, lasts_s, *numbers in faults:
        value = [float(n) for n in numbers]
        lockstep.faults.add(Fault(at_s=begin_s + PHASE_S, kind=kind, duration_s=lasts_s, value=value))
    lockstep.run_until(lambda: lockstep.now_s > begin_s + seconds)

    def since(topic: str) -> list:
        return [m for m in lockstep.messages[topic] if m.stamp_s > begin_s]

    truth, statuses = since("truth"), since("mission_status")
    point = np.array(truth[0].p_W)
    held = [m for m in truth if m.stamp_s < begin_s + excursion_until_s]
    face_m = lockstep.loaded.scenario.scene.bundles[0].p_W[0]
    phases = [(round(m.stamp_s - begin_s, 3), str(m.phase)) for m in statuses]
    transitions = lockstep.world.autopilot.commander.transitions
    sent = since("sent_setpoint")
    return AttackOutcome(
        excursion_m=float(max(np.linalg.norm(np.array(m.p_W) - point) for m in held)),
        nearest_m=float(min(face_m - m.p_W[0] for m in truth if m.p_W[2] > 0.5)),
        sunk_m=float(max(point[2] - m.p_W[2] for m in held)),
        phases=[p for i, p in enumerate(phases) if i == 0 or p[1] != phases[i - 1][1]],
        modes=[
            (round(t.time_s - begin_s, 3), str(t.old), str(t.new)) for t in transitions if t.time_s > begin_s - 0.01
        ],
        requests=[(round(m.stamp_s - begin_s, 3), str(m.action)) for m in since("fcu_command") if m.action != "text"],
        events=[(round(m.stamp_s - begin_s, 3), m.monitor, m.active, m.text) for m in since("safety")],
        last_setpoint_s=sent[-1].stamp_s - begin_s if sent else -1.0,
        cause=statuses[-1].cause,
        landed=not lockstep.world.autopilot.armed,
    )

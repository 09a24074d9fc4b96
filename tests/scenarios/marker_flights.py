"""Flights with attacked markers: the beginning of `safety_flights`, then the attack.

``python -m tests.scenarios.marker_flights [ATTACK …]`` prints the table of docs/safety.md.
"""

import sys
from typing import NamedTuple

import msgspec
import numpy as np

from companion.core.enums import Phase
from companion.core.messages import FcuPosition
from companion.mission import phases as ph
from sitl.scenario import Fault, FaultKind
from tests.scenarios.forked import in_fork
from tests.scenarios.safety_flights import beginning

OBSERVED_S = 40.0  # after the attack
FACE_X_M = 6.0
AIRBORNE_M = 0.5


class Attack(NamedTuple):
    """Faults (kind, begin [s], duration [s], numbers) from a moment of a flight on."""

    text: str
    faults: tuple[tuple[FaultKind, float, float, tuple[float, ...]], ...]
    begins: str = "hold"
    gap_s: float = 0.0  # for so long from then on no position of the flight controller arrives


class Outcome(NamedTuple):
    """Times since the attack [s]; distances of the aircraft's centre [m]."""

    given_up_s: float  # first action of the safety table
    monitor: str
    excursion_m: float  # horizontal, until the mission leaves the place on purpose or PX4 has landed
    nearest_m: float  # to the real face, in the air
    phases: tuple[Phase, ...]
    events: tuple[str, ...]  # monitors that became active


def one(kind: FaultKind, *numbers: float, at_s: float = 0.0, lasts_s: float = 600.0) -> tuple:
    return (kind, at_s, lasts_s, numbers)


MOVES, JUMPS, HIDDEN = FaultKind.BUNDLE_MOVES, FaultKind.BUNDLE_JUMPS, FaultKind.MARKERS_HIDDEN
BEHIND = (2.0, 0.0, 0.0)
ATTACKS: dict[str, Attack] = {
    "moves_2": Attack("moves along the face, 2 m/s", (one(MOVES, 0.0, 2.0, 0.0),)),
    "moves_1": Attack("moves along the face, 1 m/s", (one(MOVES, 0.0, 1.0, 0.0),)),
    "moves_half": Attack("moves along the face, 0.5 m/s", (one(MOVES, 0.0, 0.5, 0.0),)),
    "moves_in": Attack("moves into the pier, 1 m/s", (one(MOVES, 1.0, 0.0, 0.0),)),
    "moves_in_slowly": Attack("moves into the pier, 0.3 m/s", (one(MOVES, 0.3, 0.0, 0.0),)),
    "moves_in_jump": Attack(
        "moves into the pier, 0.5 m/s, while GNSS jumps by 1.5 m away from it",
        (one(FaultKind.GNSS_JUMP, -1.5, 0.0, 0.0), one(MOVES, 0.5, 0.0, 0.0)),
    ),
    "moves_in_far_jump": Attack(
        "the same while GNSS jumps by 3 m", (one(FaultKind.GNSS_JUMP, -3.0, 0.0, 0.0), one(MOVES, 0.5, 0.0, 0.0))
    ),
    "moves_out": Attack("moves at the aircraft, 1.5 m/s", (one(MOVES, -1.5, 0.0, 0.0),)),
    "moves_up": Attack("moves up, 1 m/s", (one(MOVES, 0.0, 0.0, 1.0),)),
    "moves_flickering": Attack(
        "moves into the pier, 1 m/s, markers flicker", (one(MOVES, 1.0, 0.0, 0.0), one(FaultKind.MARKERS_FLICKER, 0.5))
    ),
    "copy_then": Attack("copy 2 m behind the face in its place", (one(JUMPS, *BEHIND),)),
    "copy_hidden": Attack("the same after 2.5 s out of sight", (one(HIDDEN, lasts_s=2.5), one(JUMPS, *BEHIND))),
    "copy_long_hidden": Attack("the same after 7 s out of sight", (one(HIDDEN, lasts_s=7.0), one(JUMPS, *BEHIND))),
    "copy_in_jump": Attack(
        "the same after 2 s out of sight, while GNSS jumps by 2.5 m",
        (one(FaultKind.GNSS_JUMP, 2.5, 0.0, 0.0), one(HIDDEN, lasts_s=2.0), one(JUMPS, *BEHIND)),
    ),
    "step_in_jump": Attack(
        "put 1 m behind the face in sight, 1 s after GNSS has jumped by 1.5 m",
        (one(FaultKind.GNSS_JUMP, 1.5, 0.0, 0.0), one(JUMPS, 1.0, 0.0, 0.0, at_s=1.0)),
    ),
    "copy_in_gap": Attack("the same while no position arrives for 0.7 s", (one(JUMPS, *BEHIND, at_s=0.4),), gap_s=0.7),
    "copy_beside": Attack("copy 2 m behind the face, both visible", (one(FaultKind.BUNDLE_COPIED, *BEHIND),)),
    "copy_front": Attack("copy 1 m in front of the face in its place", (one(JUMPS, -1.0, 0.0, 0.0),)),
    "copy_alternates": Attack("copy in every second image", (one(FaultKind.BUNDLE_ALTERNATES, *BEHIND),)),
    "copy_first": Attack("copy 2 m behind the face alone from the first sight on, with range finder", (), "copy"),
    "mirrored": Attack("mirrored", (one(FaultKind.BUNDLE_MIRRORED),)),
    "shrinks": Attack("shrinks by 3 % per second", (one(FaultKind.BUNDLE_GROWS, -0.03),)),
    "shrinks_fast": Attack("shrinks by 7 % per second", (one(FaultKind.BUNDLE_GROWS, -0.07),)),
    "flickers": Attack("absent from half of the images", (one(FaultKind.BUNDLE_FLICKERS, 0.5),)),
}


def fly(attack: Attack) -> Outcome:
    """Fly an attack in a fork of this process."""
    lockstep = beginning(attack.begins)
    return in_fork(lambda: _continue(lockstep, attack))


def _continue(lockstep, attack: Attack) -> Outcome:
    begin_s = lockstep.now_s
    for kind, at_s, lasts_s, numbers in attack.faults:
        lockstep.faults.add(Fault(at_s=begin_s + at_s, kind=kind, duration_s=lasts_s, value=list(numbers)))
    if attack.gap_s:

        def lost(m: FcuPosition) -> FcuPosition:
            return msgspec.structs.replace(m, valid=m.valid and lockstep.now_s >= begin_s + attack.gap_s)

        lockstep.faults.change(FcuPosition, lost)
    lockstep.run_until(lambda: lockstep.now_s > begin_s + OBSERVED_S)
    statuses = [m for m in lockstep.messages["mission_status"] if m.stamp_s > begin_s]
    events = [m for m in lockstep.messages["safety"] if m.stamp_s > begin_s and m.active]
    truth = [m for m in lockstep.messages["truth"] if m.stamp_s > begin_s and m.p_W[2] > AIRBORNE_M]
    first = next((m for m in events if m.action != "warn"), None)
    left_s = next((m.stamp_s for m in statuses if m.phase in (Phase.RETREAT, Phase.RETURN, *ph.ENDED)), np.inf)
    here = np.array(truth[0].p_W[:2])
    return Outcome(
        given_up_s=np.inf if first is None else first.stamp_s - begin_s,
        monitor="" if first is None else first.monitor,
        excursion_m=max(float(np.linalg.norm(np.array(m.p_W[:2]) - here)) for m in truth if m.stamp_s < left_s),
        nearest_m=min(FACE_X_M - m.p_W[0] for m in truth),
        phases=tuple(dict.fromkeys(m.phase for m in statuses)),
        events=tuple(dict.fromkeys(m.monitor for m in events)),
    )


def main() -> None:
    print("| attack | monitor | given up after, s | excursion, m | nearest to the face, m |\n|---|---|---|---|---|")
    for name, attack in ATTACKS.items():
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        o = fly(attack)
        monitor, when = (f"`{o.monitor}`", f"{o.given_up_s:.1f}") if o.monitor else ("–", "–")
        print(f"| {attack.text} | {monitor} | {when} | {o.excursion_m:.2f} | {o.nearest_m:.2f} |", flush=True)


if __name__ == "__main__":
    main()

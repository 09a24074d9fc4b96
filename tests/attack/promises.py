"""What this stack promises under attack, judged by the truth of the simulation.

* no contact with the structure;
* the fence, the height and the distance of the mission are left by no more than `LIMITS_SPARE_M`;
* no fall: the aircraft meets the ground upright and no faster than `TOUCHDOWN_MAX_M_S`;
* every early end has its cause in the last status of the mission.

Two things no program on the companion can change (docs/limits.md). From then on only the fall and the cause are judged, and the
flight is counted apart:

* this stack has ended its stream while PX4 has no position: PX4 keeps the height, and the wind moves the aircraft;
* PX4 follows another sender while nothing that this stack sends reaches it: the link, or the process of the link, is dead. Once
  it is heard again, the other sender must have been held within seconds (`tests.attack.flights.HELD_S`).
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from companion.core.enums import Phase
from companion.core.frames import rotation_matrix
from companion.core.messages import MissionStatus, Truth
from companion.mission import phases as ph
from companion.mission.plan import Limits
from sitl.flight_end import (
    FLYING_M,
    LIMITS_SPARE_M,
    TILT_MAX_RAD,
    TOUCHDOWN_MAX_M_S,
    beyond_limits_m,
)

CLEARANCE_M = 0.4  # rotor tips of the F550 from its centre
LEAVING = (Phase.RETREAT, Phase.RETURN, Phase.LAND, Phase.DONE)  # phases in which the aircraft leaves on purpose


class Judged(NamedTuple):
    """The figures of one flight and the promises that it broke."""

    broken: tuple[str, ...]
    nearest_m: float  # of the aircraft's centre to the face
    beyond_m: float  # farthest beyond fence, height or distance, ≤ 0 inside
    excursion_m: float  # from the place at the attack, until the aircraft leaves it on purpose
    touchdown_m_s: float  # fastest sinking just above the ground, 0 without a landing
    apart: str = ""  # why a part of the flight was not judged


def judge(
    truth: Iterable[Truth],
    statuses: list[MissionStatus],
    limits: Limits,
    home_W: tuple[float, float, float],
    face_x_m: float,
    apart_s: float = math.inf,
    apart: str = "",
) -> Judged:
    """Judge the flight from the attack on; statuses[0] is the last before it. face_x_m: the plane of the structure.

    apart_s: since when no program on the companion can change the flight. apart: why.
    """
    left_s = next((s.stamp_s for s in statuses if s.phase in (*LEAVING, *ph.OBSERVING)), math.inf)
    broken, nearest, beyond, excursion, touchdown = [], math.inf, -math.inf, 0.0, 0.0
    begin, was_flying, tilted = None, False, False
    for m in truth:
        begin = begin or m.p_W
        flying = m.p_W[2] - home_W[2] > FLYING_M
        if flying and m.stamp_s < apart_s:
            nearest = min(nearest, face_x_m - m.p_W[0])
            home = (m.p_W[0] - home_W[0], m.p_W[1] - home_W[1], m.p_W[2] - home_W[2])
            beyond = max(beyond, beyond_limits_m(home, limits))
        if flying:
            tilted |= rotation_matrix(m.q_WB)[2, 2] < math.cos(TILT_MAX_RAD)
        elif was_flying:
            touchdown = max(touchdown, -m.v_W[2])
        was_flying = flying
        if m.stamp_s < left_s:
            excursion = max(excursion, float(np.linalg.norm(np.subtract(m.p_W, begin))))
    if nearest < CLEARANCE_M:
        broken.append(f"contact: {nearest:.2f} m from the face")
    if beyond > LIMITS_SPARE_M:
        broken.append(f"{beyond:.1f} m beyond a limit of the mission")
    if touchdown > TOUCHDOWN_MAX_M_S:
        broken.append(f"fell: {touchdown:.1f} m/s at the ground")
    if tilted:
        broken.append("tilted beyond 70 degrees")
    broken += _ending(statuses)
    return Judged(tuple(broken), nearest, beyond, excursion, touchdown, apart)


def _ending(statuses: list[MissionStatus]) -> list[str]:
    """An early end without its cause."""
    last = statuses[-1]
    early = last.phase in (*ph.OBSERVING, Phase.FAILED) or (last.phase == Phase.DONE and not last.success)
    if early and not last.cause:
        return [f"{last.phase} without a cause: {last.reason}"]
    return []

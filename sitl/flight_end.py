"""How a simulated flight ended: flown to its end, ended early and safely as the safety table says, or failed.

A stack that recognises an error that it cannot fly with and lands has done its work; a stack that meets the structure has
not. Both leave the mission without success, so the truth of the simulation decides between them.
"""

import math
from collections.abc import Iterable
from enum import StrEnum

import numpy as np

from companion.core.frames import rotation_matrix
from companion.core.messages import Contact, MissionStatus, Truth
from companion.core.trajectory_messages import Vec3
from companion.mission.plan import Limits, outside_m

LIMITS_SPARE_M = 2.0  # beyond a limit of the mission: the raw guard's least margin
TOUCHDOWN_MAX_M_S = 1.5  # PX4 lands with 0.7 m/s (MPC_LAND_SPEED)
TILT_MAX_RAD = math.radians(70)
TIPPED_RAD = math.radians(30)  # on the ground at the end: steeper than any place to land
FLYING_M = 0.3  # above the take-off point: higher than this is flight
CLEARANCE_M = 0.4  # rotor tips of the F550 from its centre
UPRIGHT = 0.7  # largest vertical part of the normal of a face
FACE_M = 1.5  # half the width of the face around a bundle that counts as structure


class FlightEnd(StrEnum):
    """The three ways."""

    COMPLETED = "completed"
    EARLY = "early"
    FAILED = "failed"


def beyond_limits_m(point: Vec3, limits: Limits) -> float:
    """How far a point relative to the take-off point is beyond the nearest of the mission's limits [m]."""
    distance_m = math.hypot(point[0], point[1]) - limits.distance_m
    return max(outside_m(point, limits), point[2] - limits.height_m, distance_m)


def judge(
    truth: Iterable[Truth],
    status: MissionStatus | None,
    limits: Limits,
    from_s: float | None = None,
    contacts: Iterable[Contact] | None = None,
) -> tuple[FlightEnd, str]:
    """The end of a flight and what failed, "" unless it failed; the first message of truth is at the take-off point.

    from_s: in a flight without satellites, when the mission took the aircraft: the limits count from that place, heights
    from the take-off point. Before it the pilot flies. contacts: in a world with solids, in order of time; all but a landing on one
    are failures. None: a world without solids, where the face around a bundle is taken for the structure.
    """
    hit = next((c for c in contacts or () if not c.landing), None)
    start: Vec3 | None = None
    touchdown_m_s, flying, last = 0.0, False, None
    for m in truth:
        if hit is not None and m.stamp_s >= hit.stamp_s:
            break
        start = start or m.p_W
        if from_s is not None and m.stamp_s >= from_s:
            start, from_s = (m.p_W[0], m.p_W[1], start[2]), None
        elif from_s is not None:
            start = (m.p_W[0], m.p_W[1], start[2])
        place = (m.p_W[0] - start[0], m.p_W[1] - start[1], m.p_W[2] - start[2])
        was_flying, flying, last = flying, place[2] > FLYING_M, m
        if not flying:
            touchdown_m_s = max(touchdown_m_s, -m.v_W[2] if was_flying else 0.0)
            continue
        if _tilt_rad(m) > TILT_MAX_RAD:
            return FlightEnd.FAILED, f"tilted beyond {math.degrees(TILT_MAX_RAD):.0f}°"
        if (beyond := beyond_limits_m(place, limits)) > LIMITS_SPARE_M:
            return FlightEnd.FAILED, f"{beyond:.1f} m beyond a limit of the mission"
        if contacts is None and (name := _struck(m)):
            return FlightEnd.FAILED, f"contact with the structure at bundle {name}"
    if hit is not None:
        return FlightEnd.FAILED, contact_text(hit)
    if touchdown_m_s > TOUCHDOWN_MAX_M_S:
        return FlightEnd.FAILED, f"met the ground with {touchdown_m_s:.1f} m/s"
    if last is not None and not flying and (tilt := _tilt_rad(last)) > TIPPED_RAD:
        return FlightEnd.FAILED, f"tipped over on the ground ({math.degrees(tilt):.0f}°)"
    if status is None or last is None or not status.finished:
        return FlightEnd.FAILED, "the time of the scenario ran out"
    return (FlightEnd.COMPLETED if status.success else FlightEnd.EARLY), ""


def _tilt_rad(m: Truth) -> float:
    return math.acos(min(max(rotation_matrix(m.q_WB)[2, 2], -1.0), 1.0))


def contact_text(contact: Contact) -> str:
    """A contact in a few words."""
    x, y, z = contact.p_W
    return f"contact with {contact.solid} at ({x:.2f}, {y:.2f}, {z:.2f}), {contact.speed_m_s:.1f} m/s"


def _struck(m: Truth) -> str:
    """The bundle on whose face the rotors are, "" when there is none. A board on the floor is no structure."""
    for name, (p_WM, q_WM) in m.bundles.items():
        R_WM = rotation_matrix(q_WM)
        place_M = R_WM.T @ np.subtract(m.p_W, p_WM)
        if (
            abs(R_WM[2, 2]) < UPRIGHT
            and abs(place_M[2]) < CLEARANCE_M
            and max(abs(place_M[0]), abs(place_M[1])) < FACE_M
        ):
            return name
    return ""

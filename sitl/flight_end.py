"""How a simulated flight ended: flown to its end, ended early and safely as the safety table says, or failed.

A stack that recognises an error that it cannot fly with and lands has done its work; a stack that meets the structure has
not. Both leave the mission without success, so the truth of the simulation decides between them.
"""

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple, Self

import numpy as np

from companion.core.arrays import Array
from companion.core.frames import quat_from_rpy, rotation_matrix
from companion.core.messages import Contact, MissionStatus, Truth
from companion.core.trajectory_messages import Vec3
from companion.mission.plan import Limits, outside_m
from sitl.airframe import Airframe
from sitl.scene import SceneConfig

LIMITS_SPARE_M = 2.0  # beyond a limit of the mission: the raw guard's least margin
TOUCHDOWN_MAX_M_S = 1.5  # PX4 lands with 0.7 m/s (MPC_LAND_SPEED)
TILT_MAX_RAD = math.radians(70)
TIPPED_RAD = math.radians(30)  # on the ground at the end: steeper than any place to land
FLYING_M = 0.3  # above the take-off point: higher than this is flight
BODY_HALF_M = 0.2  # height of hull and rotors over and under the centre
UPRIGHT = 0.7  # largest vertical part of the normal of a face
FACE_M = 1.5  # half the width of the face around a bundle that counts as structure
AT_REST_M_S = 0.5  # an aircraft that is slower at the end, and high up, stands on something


class FlightEnd(StrEnum):
    """The three ways."""

    COMPLETED = "completed"
    EARLY = "early"
    FAILED = "failed"


class Face(NamedTuple):
    """An upright rectangle of the structure, centred at ``p_W``, with the axes of ``R_WF`` and half its sides."""

    name: str
    p_W: Array
    R_WF: Array
    half_m: tuple[float, float]

    def reached_by(self, p_W: Array, reach_m: float) -> bool:
        """Whether the rotors of a level aircraft, whose centre is at ``p_W``, would touch."""
        if abs(self.R_WF[:, 2].dot(p_W - self.p_W)) > math.hypot(reach_m, BODY_HALF_M):  # most of a flight
            return False
        place_F = self.R_WF.T @ (p_W - self.p_W)
        nearest_F = np.array([*np.clip(place_F[:2], np.negative(self.half_m), self.half_m), 0.0])
        away_W = self.R_WF @ (place_F - nearest_F)
        return abs(away_W[2]) < BODY_HALF_M and math.hypot(away_W[0], away_W[1]) < reach_m


class Structure(NamedTuple):
    """What a world without solids has for a structure: its upright backdrops, and a face around each upright bundle."""

    faces: tuple[Face, ...]
    reach_m: float  # rotor tips from the aircraft's centre

    @classmethod
    def of(cls, scene: SceneConfig, airframe: Airframe) -> Self:
        """Of a scene; a board on the floor, and the ground, are no structure."""
        placed = [(f"bundle {b.name}", b.p_W, b.rpy_rad, (FACE_M, FACE_M)) for b in scene.bundles]
        for i, b in enumerate(scene.backdrops):
            placed.append((f"backdrop {i}", b.p_W, b.rpy_rad, (b.size_m[0] / 2, b.size_m[1] / 2)))
        faces = (Face(name, np.array(p), rotation_matrix(quat_from_rpy(*rpy)), half) for name, p, rpy, half in placed)
        upright = tuple(face for face in faces if abs(face.R_WF[2, 2]) < UPRIGHT)
        return cls(upright, airframe.arm_m + airframe.rotor.radius_m)

    def struck(self, p_W: Vec3) -> str:
        """The face that the rotors of an aircraft at ``p_W`` touch, "" when there is none."""
        return next((f.name for f in self.faces if f.reached_by(np.array(p_W), self.reach_m)), "")


def beyond_limits_m(point: Vec3, limits: Limits) -> float:
    """How far a point relative to the take-off point is beyond the nearest of the mission's limits [m]."""
    distance_m = math.hypot(point[0], point[1]) - limits.distance_m
    return max(outside_m(point, limits), point[2] - limits.height_m, distance_m)


def judge(
    truth: Iterable[Truth],
    status: MissionStatus | None,
    limits: Limits,
    from_s: float | None = None,
    contacts: Iterable[Contact] = (),
    structure: Structure | None = None,
) -> tuple[FlightEnd, str]:
    """The end of a flight and what failed, "" unless it failed; the first message of truth is at the take-off point.

    from_s: in a flight without satellites, when the mission took the aircraft: the limits count from that place, heights
    from the take-off point. Before it the pilot flies. contacts: in a world with solids, in order of time; all but a landing on one
    are failures. structure: of a world without solids. How fast the aircraft moves across the ground as it lands is judged by whether it tips over.
    """
    hit = next((c for c in contacts if not c.landing), None)
    start: Vec3 | None = None
    touchdown_m_s, flying, last = 0.0, False, None
    for m in truth:
        if hit is not None and m.stamp_s >= hit.stamp_s:
            break
        if not all(map(math.isfinite, (*m.p_W, *m.v_W, *m.q_WB))):
            return FlightEnd.FAILED, f"the simulated motion is not finite at {m.stamp_s:.2f} s"
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
        if structure is not None and (name := structure.struck(m.p_W)):
            return FlightEnd.FAILED, f"contact with the structure at {name}"
    if hit is not None:
        return FlightEnd.FAILED, contact_text(hit)
    if touchdown_m_s > TOUCHDOWN_MAX_M_S:
        return FlightEnd.FAILED, f"met the ground with {touchdown_m_s:.1f} m/s"
    if last is not None and not flying and (tilt := _tilt_rad(last)) > TIPPED_RAD:
        return FlightEnd.FAILED, f"tipped over on the ground ({math.degrees(tilt):.0f}°)"
    if status is None or last is None or not status.finished:
        return FlightEnd.FAILED, "the time of the scenario ran out"
    if flying and (speed_m_s := math.hypot(*last.v_W)) > AT_REST_M_S:
        return FlightEnd.FAILED, f"ended in the air, with {speed_m_s:.1f} m/s"
    return (FlightEnd.COMPLETED if status.success else FlightEnd.EARLY), ""


def _tilt_rad(m: Truth) -> float:
    return math.acos(min(max(rotation_matrix(m.q_WB)[2, 2], -1.0), 1.0))


def contact_text(contact: Contact) -> str:
    """A contact in a few words."""
    x, y, z = contact.p_W
    return f"contact with {contact.solid} at ({x:.2f}, {y:.2f}, {z:.2f}), {contact.speed_m_s:.1f} m/s"

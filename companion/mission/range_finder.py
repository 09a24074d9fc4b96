"""The forward range finder against the bundle: how far the structure should be, and how far it is measured to be.

A copy of a bundle that is alone in view from the first sight on is the bundle for everything that sees only markers.
A measured distance is independent of the markers. Only a distance that is shorter than predicted counts: the structure
is then nearer than the filter says. A longer one is no event: the ray may pass the edge of the structure or go
through an opening, and the aircraft is then farther away than estimated, which is the safe side.
"""

import math
from typing import NamedTuple

from companion.core.frames import rotation_matrix
from companion.core.messages import FcuStatus, State
from companion.core.trajectory_messages import Vec3

RANGE_AGE_S = 0.5  # of the status with a range: five of its periods
DELAY_S = 0.25  # of a range against the state: periods of its stream, of the status and of the mission
TOLERANCE_M = 0.5  # mount of the sensor before the centre of gravity 0.3 m; 0.25 s of a turn by 0.5 rad/s at 3 m 0.2 m
TOLERANCE_SHARE = 0.1  # markers printed 3 % too large, and 1.5° of tilt and heading at 30° 2 %; twice that
INCIDENCE_COS = math.cos(math.radians(30.0))  # beyond, 1.5° are more than 2 % of the range
SURROUNDINGS_M = 3.0  # from the bundle's origin: there the structure is taken for a plane
# Over the take-off point: a ray that hits lower may hit the ground before; not where the aircraft itself is lower, as under a deck.
GROUND_M = 1.0


def measured_m(status: FcuStatus | None, age_s: float) -> float | None:
    """The forward range [m] of a status of that age; None without a range finder, or while it measures nothing."""
    if status is None or age_s > RANGE_AGE_S or math.isnan(status.range_m):
        return None
    return status.range_m


class FaceAhead(NamedTuple):
    """Where body x hits the plane of the bundle's face."""

    range_m: float
    away_m_s: float  # how fast the range grows by the aircraft's velocity
    aside_m: float  # from the bundle's origin, in that plane
    height_m: float  # in W


def face_ahead(state: State) -> FaceAhead | None:
    """The hit of the ray p_W + r · x_B with the plane through p_WM across z_M, by the filter's state.

    r = n · (p_WM − p_W) / n · x_B with n = z_M. None while the nose points at the face by more than 30° aside, or the
    aircraft is behind it. NaN in the position gives NaN.
    """
    ahead_W, face_W = rotation_matrix(state.q_WB)[:, 0], rotation_matrix(state.q_WM)[:, 2]
    cosine = -float(ahead_W @ face_W)
    if not cosine >= INCIDENCE_COS:
        return None
    to_bundle_W = [m - a for m, a in zip(state.p_WM, state.p_W, strict=True)]
    range_m = -float(face_W @ to_bundle_W) / cosine
    if range_m <= 0.0:
        return None
    aside_m = math.dist([range_m * x for x in ahead_W.tolist()], to_bundle_W)
    away_m_s = sum(n * v for n, v in zip(face_W.tolist(), state.v_W, strict=True)) / cosine
    return FaceAhead(range_m, away_m_s, aside_m, state.p_W[2] + range_m * float(ahead_W[2]))


def shortfall(measured_m: float, state: State, home_W: Vec3 | None) -> float | None:
    """How much nearer than predicted the structure is, over the tolerance; negative: farther. None: not comparable.

    A range measured `DELAY_S` ago is shorter while the aircraft flies away.
    """
    face = face_ahead(state)
    if face is None or home_W is None or face.aside_m > SURROUNDINGS_M:
        return None
    if face.height_m - home_W[2] < GROUND_M and state.p_W[2] > home_W[2]:
        return None
    predicted_m = face.range_m - DELAY_S * max(0.0, face.away_m_s)
    return (predicted_m - measured_m) / max(TOLERANCE_M, TOLERANCE_SHARE * face.range_m)

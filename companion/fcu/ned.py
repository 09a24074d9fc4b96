"""World and body frames of the flight controller (NED, FRD) to and from those of the stack (ENU, FLU).

ENU x east, y north, z up; NED x north, y east, z down; FLU x forward, y left, z up; FRD x forward, y right,
z down. Both changes of frame are half turns (about the world's (1, 1, 0)/√2 and about the body's x), so every
function here is its own inverse and serves both directions. Plain floats, not arrays: these run per message.
"""

import math

from companion.core.frames import quat_from_rpy
from companion.core.trajectory_messages import Quat, Vec3

_HALF_SQRT = math.sqrt(0.5)


def swap_world(v: Vec3) -> Vec3:
    """A position or velocity, ENU to NED or NED to ENU, shape (3,), any unit."""
    return v[1], v[0], -v[2]


def swap_body(v: Vec3) -> Vec3:
    """A body vector (rates, forces), FLU to FRD or FRD to FLU, shape (3,), any unit."""
    return v[0], -v[1], -v[2]


def swap_attitude(q: Quat) -> Quat:
    """An attitude (w, x, y, z): q_ENU_FLU to q_NED_FRD or back, shape (4,), w ≥ 0.

    q' = q_swap_world ⊗ q ⊗ q_swap_body with q_swap_world = (0, 1, 1, 0)/√2 and q_swap_body = (0, 1, 0, 0),
    multiplied out (Hamilton product, J. Solà, arXiv:1711.02508, eq. 12). The length is kept.
    """
    w, x, y, z = q
    s = _HALF_SQRT if w + z >= 0 else -_HALF_SQRT
    return s * (w + z), s * (x + y), s * (x - y), s * (w - z)


def swap_yaw(yaw_rad: float) -> float:
    """Heading [rad]: from east, counter-clockwise (ENU) to from north, clockwise (NED) or back, in [-π, π)."""
    return (1.5 * math.pi - yaw_rad) % (2 * math.pi) - math.pi


def attitude_setpoint_ned(roll_rad: float, pitch_rad: float, yaw_rad: float) -> Quat:
    """q_NED_FRD (w, x, y, z) of an attitude given as roll, pitch, yaw [rad] in ENU/FLU.

    Positive pitch lowers the nose in FLU and raises it in FRD, so it changes sign; roll does not.
    """
    w, x, y, z = quat_from_rpy(roll_rad, -pitch_rad, swap_yaw(yaw_rad)).tolist()
    return (w, x, y, z) if w >= 0 else (-w, -x, -y, -z)

"""Rotations and frame conventions used all over the stack (REP-103: ENU world, FLU body).

Quaternions are arrays (w, x, y, z), Hamilton convention, and q_AB rotates vectors of frame B into frame A:
v_A = R(q_AB) v_B. Euler angles are roll, pitch, yaw of R = Rz(yaw) Ry(pitch) Rx(roll); with FLU axes a
positive pitch lowers the nose. Equations: J. Solà, "Quaternion kinematics for the error-state Kalman
filter", arXiv:1711.02508, sections 1 and 2.
"""

import math

import numpy as np

from companion.core.arrays import Array, Vector

GRAVITY_M_S2 = 9.80665  # standard gravity
FLAT_SINE = 0.42  # sine of the angle between z of M and the vertical (25°) below which a bundle lies flat


def wrap_angle(angle_rad: float) -> float:
    """The same angle in [-π, π)."""
    return (angle_rad + math.pi) % (2 * math.pi) - math.pi


def quat_multiply(a: Vector, b: Vector) -> Array:
    """Hamilton product a ⊗ b, shape (4,)."""
    aw, ax, ay, az = a
    bw, bx, by, bz = b
    return np.array(
        [
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ]
    )


def quat_conjugate(q: Vector) -> Array:
    """The inverse of a unit quaternion, shape (4,)."""
    return np.array([q[0], -q[1], -q[2], -q[3]])


def quat_normalized(q: Vector) -> Array:
    """q at unit length with w ≥ 0, shape (4,); raises ValueError when it has no length."""
    array = np.asarray(q, dtype=float)
    length = math.sqrt(float(array @ array))
    if not length > 1e-9:
        raise ValueError("the quaternion has no length")
    unit: Array = array / (length if array[0] >= 0 else -length)
    return unit


def rotation_matrix(q: Vector) -> Array:
    """R(q), shape (3, 3)."""
    w, x, y, z = q
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def quat_from_matrix(R: Array) -> Array:
    """Unit quaternion of a rotation matrix, w ≥ 0, shape (4,) (Shepperd's method: the largest pivot)."""
    R = np.asarray(R, dtype=float)
    trace = R[0, 0] + R[1, 1] + R[2, 2]
    pivots = np.array([trace, R[0, 0], R[1, 1], R[2, 2]])
    i = int(np.argmax(pivots))
    if i == 0:
        q = np.array([1 + trace, R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]])
    elif i == 1:
        q = np.array([R[2, 1] - R[1, 2], 1 + 2 * R[0, 0] - trace, R[0, 1] + R[1, 0], R[0, 2] + R[2, 0]])
    elif i == 2:
        q = np.array([R[0, 2] - R[2, 0], R[0, 1] + R[1, 0], 1 + 2 * R[1, 1] - trace, R[1, 2] + R[2, 1]])
    else:
        q = np.array([R[1, 0] - R[0, 1], R[0, 2] + R[2, 0], R[1, 2] + R[2, 1], 1 + 2 * R[2, 2] - trace])
    return quat_normalized(q)


def quat_from_rpy(roll_rad: float, pitch_rad: float, yaw_rad: float) -> Array:
    """Quaternion of Rz(yaw) Ry(pitch) Rx(roll), shape (4,)."""
    cr, sr = math.cos(roll_rad / 2), math.sin(roll_rad / 2)
    cp, sp = math.cos(pitch_rad / 2), math.sin(pitch_rad / 2)
    cy, sy = math.cos(yaw_rad / 2), math.sin(yaw_rad / 2)
    return np.array(
        [
            cr * cp * cy + sr * sp * sy,
            sr * cp * cy - cr * sp * sy,
            cr * sp * cy + sr * cp * sy,
            cr * cp * sy - sr * sp * cy,
        ]
    )


def rpy_from_quat(q: Vector) -> tuple[float, float, float]:
    """(roll, pitch, yaw) [rad] of a unit quaternion; pitch in [-π/2, π/2]."""
    w, x, y, z = q
    roll = math.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = math.asin(max(-1.0, min(1.0, 2 * (w * y - z * x))))
    yaw = math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return roll, pitch, yaw


def quat_exp(rotation_vector: Vector) -> Array:
    """Quaternion of a rotation vector [rad], shape (4,)."""
    r = np.asarray(rotation_vector, dtype=float)
    angle = math.sqrt(float(r @ r))
    if angle < 1e-8:
        return np.array([1.0, 0.5 * r[0], 0.5 * r[1], 0.5 * r[2]])
    s = math.sin(angle / 2) / angle
    return np.array([math.cos(angle / 2), s * r[0], s * r[1], s * r[2]])


def quat_log(q: Vector) -> Array:
    """Rotation vector [rad] of a unit quaternion, the short way round, shape (3,)."""
    w, v = float(q[0]), np.asarray(q[1:], dtype=float)
    if w < 0:
        w, v = -w, -v
    n = math.sqrt(float(v @ v))
    if n < 1e-8:
        return 2.0 * v
    return (2.0 * math.atan2(n, w) / n) * v


def skew(v: Vector) -> Array:
    """[v]× with [v]× u = v × u, shape (3, 3)."""
    x, y, z = v
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])


def facing_yaw(q_WM: Vector) -> float:
    """Yaw [rad] at which the nose points into the face of a bundle.

    The face points along z of M, so the nose points along -z. For a bundle that lies flat (z up or down within
    about 25°) "into the face" has no heading; then the nose points along y of M, its "up" side.
    """
    R = rotation_matrix(q_WM)
    forward = -R[:, 2]
    if math.hypot(forward[0], forward[1]) < FLAT_SINE:
        forward = R[:, 1]
    return math.atan2(forward[1], forward[0])

"""Geometry of references: between world and bundle, limits, and moves from rest to rest."""

import math

import numpy as np

from companion.core.arrays import Array
from companion.core.frames import facing_yaw, rotation_matrix, wrap_angle
from companion.core.trajectory_messages import Hold, Move, Quat, Vec3
from companion.mission.plan import Limits

SAME_POINT_M = 1e-3  # a move shorter than this (and than SAME_YAW_RAD) is a hold
SAME_YAW_RAD = 1e-3


def to_bundle(p_W: Vec3, yaw_rad: float, p_WM: Vec3, q_WM: Quat) -> tuple[Vec3, float]:
    """A world point and heading in the frame of a bundle: p_M = R(q_WM)ᵀ (p_W − p_WM), yaw relative to facing it."""
    p_M = rotation_matrix(q_WM).T @ (np.asarray(p_W) - np.asarray(p_WM))
    return _vec3(p_M), wrap_angle(yaw_rad - facing_yaw(q_WM))


def to_world(p_M: Vec3, yaw_rad: float, p_WM: Vec3, q_WM: Quat) -> tuple[Vec3, float]:
    """The inverse of `to_bundle`: p_W = p_WM + R(q_WM) p_M."""
    p_W = np.asarray(p_WM) + rotation_matrix(q_WM) @ np.asarray(p_M)
    return _vec3(p_W), wrap_angle(yaw_rad + facing_yaw(q_WM))


def face_normal(q_WM: Quat) -> Vec3:
    """Unit vector out of the face of a bundle (its z), in the world."""
    return _vec3(rotation_matrix(q_WM)[:, 2])


def added(a: Vec3, b: Vec3) -> Vec3:
    """a + b."""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def difference(a: Vec3, b: Vec3) -> Vec3:
    """a − b."""
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


def along(start: Vec3, direction: Vec3, distance_m: float) -> Vec3:
    """The point `distance_m` from `start` along `direction`."""
    return (
        start[0] + distance_m * direction[0],
        start[1] + distance_m * direction[1],
        start[2] + distance_m * direction[2],
    )


def clamp(point: Vec3, home_W: Vec3, limits: Limits) -> Vec3:
    """A world point moved inside the limits around home: fence box, heights, maximum horizontal distance [m]."""
    p = difference(point, home_W)
    x, y, z = (min(max(v, low), high) for v, low, high in zip(p, limits.fence_min_m, limits.fence_max_m, strict=True))
    z = max(min(z, limits.height_m), limits.lowest_m)
    radius = math.hypot(x, y)
    if radius > limits.distance_m:
        x, y = x * limits.distance_m / radius, y * limits.distance_m / radius
    return added((x, y, z), home_W)


def move_or_hold(
    start: Vec3,
    yaw_start_rad: float,
    end: Vec3,
    yaw_end_rad: float,
    speed_m_s: float,
    acceleration_m_s2: float,
    yaw_rate_rad_s: float,
) -> Move | Hold:
    """A move from rest to rest, or a hold when there is nothing to move; yaw goes the short way round."""
    turn = wrap_angle(yaw_end_rad - yaw_start_rad)
    if math.dist(start, end) < SAME_POINT_M and abs(turn) < SAME_YAW_RAD:
        return Hold(p=end, yaw_rad=yaw_end_rad)
    return Move(
        p_start=start,
        yaw_start_rad=yaw_start_rad,
        p_end=end,
        yaw_end_rad=yaw_start_rad + turn,
        speed_m_s=speed_m_s,
        acceleration_m_s2=acceleration_m_s2,
        yaw_rate_rad_s=yaw_rate_rad_s,
    )


def _vec3(v: Array) -> Vec3:
    return (float(v[0]), float(v[1]), float(v[2]))

"""The trajectory of a reference in the world frame of a state; `companion.core.trajectories` has the curves."""

import math
from typing import Any

import msgspec
import numpy as np

from companion.core.arrays import Array, Vector
from companion.core.bundle_poses import bundle_pose
from companion.core.frames import facing_yaw, quat_normalized, rotation_matrix
from companion.core.messages import WORLD, Reference, State
from companion.core.trajectories import Placed, Samples, duration_s, sample
from companion.core.trajectory_messages import Hold, Move, Resumed, Trajectory, Vec3, Waypoints

__all__ = ["Placed", "Samples", "duration_s", "in_world", "is_finite", "sample", "standoff_plane"]

Plane = tuple[Vector, float]  # (n_W, c): the side n_W · p_W ≥ c is allowed
NO_PLANE: Plane = ((0.0, 0.0, 0.0), 0.0)


def is_finite(reference: Reference) -> bool:
    """Whether every number of a reference is finite, and its waypoints are complete."""
    t = reference.trajectory
    curve, clock = (t.curve, (t.from_s, t.ramp_s)) if isinstance(t, Resumed) else (t, ())
    if isinstance(curve, Waypoints) and not (2 <= len(curve.points) == len(curve.yaws_rad)):
        return False
    return _all_finite((reference.start_s, *clock, *msgspec.structs.astuple(curve)))


def _all_finite(value: float | tuple[Any, ...]) -> bool:
    return all(map(_all_finite, value)) if isinstance(value, (tuple, list)) else math.isfinite(value)


def in_world(reference: Reference, state: State) -> Trajectory | Placed | None:
    """The trajectory of a reference in the world frame: p = p_WM + R(q_WM) p_M, ψ = facing yaw + ψ_M.

    None when the state does not contain the bundle in whose frame the reference is given.
    """
    trajectory = reference.trajectory
    if reference.frame == WORLD:
        return trajectory
    if (pose := bundle_pose(state, reference.frame)) is None:
        return None
    q_WM = quat_normalized(pose[1])
    R, origin, yaw = rotation_matrix(q_WM), np.asarray(pose[0]), facing_yaw(q_WM)
    if isinstance(trajectory, Hold):
        return Hold(p=_point(origin, R, trajectory.p), yaw_rad=yaw + trajectory.yaw_rad)
    if isinstance(trajectory, Move):
        return msgspec.structs.replace(
            trajectory,
            p_start=_point(origin, R, trajectory.p_start),
            yaw_start_rad=yaw + trajectory.yaw_start_rad,
            p_end=_point(origin, R, trajectory.p_end),
            yaw_end_rad=yaw + trajectory.yaw_end_rad,
            v_start=_point(0.0, R, trajectory.v_start),
            a_start=_point(0.0, R, trajectory.a_start),
        )
    return Placed(trajectory, R, origin, yaw)


def _point(origin: Array | float, R: Array, p_M: Vec3) -> Vec3:
    x, y, z = (origin + R @ p_M).tolist()
    return x, y, z


def standoff_plane(reference: Reference, state: State, standoff_min_m: float) -> Plane:
    """(n_W, c): n_W · p_W ≥ c keeps standoff_min_m [m] from the face of the bundle that a reference is relative to.

    The monitor `standoff` of the safety table checks the same distance. `NO_PLANE` for a reference in the world frame:
    the way home and down may lead past the bundle, or onto it; and for one that leads beside or behind the face.
    """
    pose = bundle_pose(state, reference.frame) if reference.before_face and reference.frame != WORLD else None
    if pose is None:
        return NO_PLANE
    normal_W = rotation_matrix(quat_normalized(pose[1]))[:, 2]
    return normal_W, float(normal_W @ pose[0]) + standoff_min_m

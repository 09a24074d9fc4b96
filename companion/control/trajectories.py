"""The trajectory of a reference, placed in the world of a state; the curves stand in `companion.trajectories`."""

import math

import msgspec
import numpy as np

from companion.frames import facing_yaw, quat_normalized, rotation_matrix
from companion.messages import WORLD, Reference, State
from companion.trajectories import Placed, Samples, duration_s, sample
from companion.trajectory_messages import Hold, Move, Trajectory, Waypoints

__all__ = ["Placed", "Samples", "duration_s", "in_world", "is_finite", "sample"]


def is_finite(reference: Reference) -> bool:
    """Whether every number of a reference can be computed with."""
    t = reference.trajectory
    if isinstance(t, Waypoints) and not (2 <= len(t.points) == len(t.yaws_rad)):
        return False
    return math.isfinite(reference.start_s) and _all_finite(msgspec.structs.astuple(t))


def _all_finite(value) -> bool:
    return all(map(_all_finite, value)) if isinstance(value, (tuple, list)) else math.isfinite(value)


def in_world(reference: Reference, state: State) -> Trajectory | Placed | None:
    """The trajectory of a reference in the world frame: p = p_WM + R(q_WM) p_M, ψ = facing yaw + ψ_M.

    None when the state does not know the bundle in whose frame the reference is given.
    """
    trajectory = reference.trajectory
    if reference.frame == WORLD:
        return trajectory
    if not state.bundle or reference.frame != state.bundle:
        return None
    q_WM = quat_normalized(state.q_WM)
    R, origin, yaw = rotation_matrix(q_WM), np.asarray(state.p_WM), facing_yaw(q_WM)
    if isinstance(trajectory, Hold):
        return Hold(p=tuple((origin + R @ trajectory.p).tolist()), yaw_rad=yaw + trajectory.yaw_rad)
    if isinstance(trajectory, Move):
        return msgspec.structs.replace(
            trajectory,
            p_start=tuple((origin + R @ trajectory.p_start).tolist()),
            yaw_start_rad=yaw + trajectory.yaw_start_rad,
            p_end=tuple((origin + R @ trajectory.p_end).tolist()),
            yaw_end_rad=yaw + trajectory.yaw_end_rad,
        )
    return Placed(trajectory, R, origin, yaw)

"""What to fly, as position, velocity, acceleration and heading over time.

A `Move` is a straight line from rest to rest on the minimum-snap polynomial with zero velocity, acceleration and jerk
at both ends,

    s(τ) = 35 τ⁴ - 84 τ⁵ + 70 τ⁶ - 20 τ⁷,   τ = t / T in [0, 1]

(D. Mellinger, V. Kumar, "Minimum snap trajectory generation and control for quadrotors", ICRA 2011). Its largest
speed is 35/16 · L/T and its largest acceleration 84√5/25 · L/T²; T is the shortest time that keeps both, and the
largest yaw rate, within the limits of the move.
"""

import math
from typing import NamedTuple

import numpy as np

from companion.frames import facing_yaw, quat_normalized, rotation_matrix, wrap_angle
from companion.messages import WORLD, Hold, Move, Reference, State

PEAK_SPEED = 35 / 16
PEAK_ACCELERATION = 84 * math.sqrt(5) / 25
# Floors of a move's limits, so that a careless zero makes a slow move and not a division by zero.
LIMIT_MIN = 1e-2
DURATION_MIN_S = 1e-3


class Samples(NamedTuple):
    """A trajectory at n times, in the world frame."""

    p_W: np.ndarray  # (n, 3) [m]
    v_W: np.ndarray  # (n, 3) [m/s]
    a_W: np.ndarray  # (n, 3) [m/s²]
    yaw: np.ndarray  # (n,) [rad], continuous
    yaw_rate: np.ndarray  # (n,) [rad/s]


def is_finite(reference: Reference) -> bool:
    """Whether every number of a reference can be computed with."""
    t = reference.trajectory
    if isinstance(t, Hold):
        numbers = (*t.p, t.yaw_rad)
    else:
        limits = (t.speed_m_s, t.acceleration_m_s2, t.yaw_rate_rad_s)
        numbers = (*t.p_start, t.yaw_start_rad, *t.p_end, t.yaw_end_rad, *limits)
    return all(map(math.isfinite, numbers)) and math.isfinite(reference.start_s)


def in_world(reference: Reference, state: State) -> Hold | Move | None:
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
    return Move(
        p_start=tuple((origin + R @ trajectory.p_start).tolist()),
        yaw_start_rad=yaw + trajectory.yaw_start_rad,
        p_end=tuple((origin + R @ trajectory.p_end).tolist()),
        yaw_end_rad=yaw + trajectory.yaw_end_rad,
        speed_m_s=trajectory.speed_m_s,
        acceleration_m_s2=trajectory.acceleration_m_s2,
        yaw_rate_rad_s=trajectory.yaw_rate_rad_s,
    )


def duration_s(trajectory: Hold | Move) -> float:
    """Time from start to rest at the end [s]; 0 for a Hold."""
    if isinstance(trajectory, Hold):
        return 0.0
    length = math.dist(trajectory.p_start, trajectory.p_end)
    turn = abs(wrap_angle(trajectory.yaw_end_rad - trajectory.yaw_start_rad))
    return max(
        PEAK_SPEED * length / max(trajectory.speed_m_s, LIMIT_MIN),
        math.sqrt(PEAK_ACCELERATION * length / max(trajectory.acceleration_m_s2, LIMIT_MIN)),
        PEAK_SPEED * turn / max(trajectory.yaw_rate_rad_s, LIMIT_MIN),
        DURATION_MIN_S,
    )


def sample(trajectory: Hold | Move, start_s: float, times_s: np.ndarray) -> Samples:
    """A world-frame trajectory that begins at start_s, at many times (n,) [s]; at rest before start and after end."""
    n = len(times_s)
    if isinstance(trajectory, Hold):
        zero = np.zeros((n, 3))
        position = np.empty((n, 3))
        position[:] = trajectory.p
        return Samples(position, zero, zero, np.full(n, trajectory.yaw_rad), zero[:, 0])
    T = duration_s(trajectory)
    x = np.minimum(np.maximum((times_s - start_s) / T, 0.0), 1.0)
    x2, w = x * x, x * (1.0 - x)
    w2 = w * w
    # Rows: s, ds/dt = 140 τ³(1-τ)³ / T, d²s/dt² = 420 τ²(1-τ)²(1-2τ) / T²
    progress = np.empty((3, n))
    progress[0] = x2 * x2 * (35.0 + x * (-84.0 + x * (70.0 - 20.0 * x)))
    progress[1] = w2 * w * (140.0 / T)
    progress[2] = w2 * (1.0 - 2.0 * x) * (420.0 / (T * T))
    start = (*trajectory.p_start, trajectory.yaw_start_rad)
    turn = wrap_angle(trajectory.yaw_end_rad - trajectory.yaw_start_rad)
    path = np.array([*(e - b for b, e in zip(trajectory.p_start, trajectory.p_end, strict=True)), turn])
    along = progress[:, :, None] * path
    along[0] += start
    return Samples(along[0, :, :3], along[1, :, :3], along[2, :, :3], along[0, :, 3], along[1, :, 3])

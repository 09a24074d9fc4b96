"""Trajectories as position, velocity, acceleration and heading over time; used by control, mission and recording.

A `Move` is a straight line from rest to rest on the minimum-snap polynomial with zero velocity, acceleration and jerk
at both ends,

    s(τ) = 35 τ⁴ - 84 τ⁵ + 70 τ⁶ - 20 τ⁷,   τ = t / T in [0, 1]

(D. Mellinger, V. Kumar, "Minimum snap trajectory generation and control for quadrotors", ICRA 2011). Its largest
speed is 35/16 · L/T and its largest acceleration 84√5/25 · L/T²; T is the shortest time that keeps both, and the
largest yaw rate, within the limits of the move. `Line` and `Raster` are chains of such moves with stops between.

A `Move` that begins with a velocity v₀ and an acceleration a₀ is such a move plus a stop,

    v(τ) = (1-τ)³ ((1 + 3τ + 6τ²) v₀ + (τ + 3τ²) T a₀),

the polynomial of lowest degree from v₀, a₀ and no jerk to rest. It ends T (v₀ / 2 + T a₀ / 10) from its start. Without a₀
its largest acceleration is 15/8 · v₀/T.

`Spiral` and `FigureEight` are curves of an angle that starts and stops smoothly: its rate rises over ``ramp_s`` as
6 x⁵ - 15 x⁴ + 10 x³ and falls likewise, so that the jerk is continuous. `Waypoints` is the spline of seventh degree
through its points that is at rest at both ends: the interpolant with the least integral of squared snap for given
times at the points. `Resumed` is the rest of one of these curves under a clock that starts as smoothly.

All are at rest before their start and after their end.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.core.frames import wrap_angle
from companion.core.trajectory_messages import (
    Curve,
    FigureEight,
    Hold,
    Line,
    Move,
    Raster,
    Resumed,
    Spiral,
    Trajectory,
    Vec3,
    Waypoints,
)

PEAK_SPEED = 35 / 16
PEAK_ACCELERATION = 84 * math.sqrt(5) / 25
# Lower bounds of limits and times: a zero in a mission gives a slow move instead of a division by zero.
LIMIT_MIN = 1e-2
STOP_M_S2 = 1.5  # of a stop: 9° of tilt, which with that against a fresh wind is within the bound of the tilt
STOP_MIN_S = 0.8  # longer than the position control's response, shorter than a drift of decimetres
DURATION_MIN_S = 1e-3
SEGMENT_MIN_S = 0.1  # shortest time between two waypoints, before the times are scaled to the limits
SAMPLES_PER_SEGMENT = 64  # at these the limits of a spline are checked
SAMPLES_OF_REST = 256  # the highest speed of an interrupted curve's rest is of so many points
CACHED = 8  # trajectories whose tables are cached: the present one and those compared with it


class Samples(NamedTuple):
    """A trajectory at n times."""

    p_W: Array  # (n, 3) [m]
    v_W: Array  # (n, 3) [m/s]
    a_W: Array  # (n, 3) [m/s²]
    yaw: Array  # (n,) [rad], continuous
    yaw_rate: Array  # (n,) [rad/s]


class Placed(NamedTuple):
    """A trajectory in a bundle's frame with the pose of that frame: p_W = origin + R p, ψ_W = yaw + ψ."""

    trajectory: Trajectory
    R: Array  # (3, 3)
    origin: Array  # (3,) [m]
    yaw_rad: float


def duration_s(trajectory: Trajectory | Placed) -> float:
    """Time from start to rest at the end [s]; 0 for a Hold."""
    match trajectory:
        case Hold():
            return 0.0
        case Move():
            turn = abs(wrap_angle(trajectory.yaw_end_rad - trajectory.yaw_start_rad))
            yaw_s = PEAK_SPEED * turn / max(trajectory.yaw_rate_rad_s, LIMIT_MIN)
            length = math.dist(stop_point(trajectory), trajectory.p_end)
            leg_s = _leg_s(length, trajectory.speed_m_s, trajectory.acceleration_m_s2)
            return max(leg_s, yaw_s, stop_s(trajectory))
        case Spiral():
            return max(trajectory.duration_s, 2 * _ramp_s(trajectory))
        case FigureEight():
            turning_s = max(trajectory.period_s, LIMIT_MIN) * max(trajectory.laps, 0)
            return max(turning_s, _ramp_s(trajectory)) + _ramp_s(trajectory)
        case Waypoints():
            return float(_spline(trajectory).times_s[-1])
        case Resumed(curve, from_s):
            return max(duration_s(curve) - from_s + _ramp_s(trajectory) / 2, _ramp_s(trajectory))
        case Placed():
            return duration_s(trajectory.trajectory)
        case _:
            return float(_chain(trajectory).ends_s)


def sample(trajectory: Trajectory | Placed, start_s: float, times_s: Array) -> Samples:
    """A trajectory that begins at start_s, at many times (n,) [s], in its own frame (`Placed`: in the world)."""
    match trajectory:
        case Hold():
            return _sample_hold(trajectory, len(times_s))
        case Move():
            return _sample_move(trajectory, times_s - start_s)
        case Spiral():
            return _sample_spiral(trajectory, times_s - start_s)
        case FigureEight():
            return _sample_figure_eight(trajectory, times_s - start_s)
        case Waypoints():
            return _sample_waypoints(trajectory, times_s - start_s)
        case Resumed():
            return _sample_resumed(trajectory, times_s - start_s)
        case Placed(inner, R, origin, yaw_rad):
            p, v, a, yaw, yaw_rate = sample(inner, start_s, times_s)
            return Samples(p @ R.T + origin, v @ R.T, a @ R.T, yaw + yaw_rad, yaw_rate)
        case _:
            return _sample_chain(trajectory, times_s - start_s)


def resumed(trajectory: Curve | Resumed, flown_s: float) -> Resumed:
    """What is left of a curve after it was flown for flown_s [s], begun with no more than `STOP_M_S2` beside the curve's own."""
    if isinstance(trajectory, Resumed):
        clock_s = _started(np.array([flown_s]), _ramp_s(trajectory))[0]
        return resumed(trajectory.curve, trajectory.from_s + float(clock_s[0]))
    end_s = duration_s(trajectory)
    from_s = min(max(flown_s, 0.0), end_s)
    left = sample(trajectory, 0.0, np.linspace(from_s, end_s, SAMPLES_OF_REST))
    fastest_m_s = float(np.linalg.norm(left.v_W, axis=1).max())
    return Resumed(trajectory, from_s, max(15 / 8 * fastest_m_s / STOP_M_S2, STOP_MIN_S))


def stop_s(move: Move) -> float:
    """How long the initial velocity and acceleration of a move take to end [s]; 0 for a move from rest."""
    if not (any(move.v_start) or any(move.a_start)):
        return 0.0
    return max(15 / 8 * math.hypot(*move.v_start) / STOP_M_S2, STOP_MIN_S)


def stop_point(move: Move) -> Vec3:
    """Where the initial velocity and acceleration of a move would end without the rest of the move."""
    T = stop_s(move)
    x, y, z = (p + T * (v / 2 + T * a / 10) for p, v, a in zip(move.p_start, move.v_start, move.a_start, strict=True))
    return x, y, z


def begins_at(trajectory: Trajectory) -> tuple[Vec3, float]:
    """First point and heading."""
    s = sample(trajectory, 0.0, np.zeros(1))
    x, y, z = s.p_W[0].tolist()
    return (x, y, z), float(s.yaw[0])


# --- straight moves -----------------------------------------------------------------------------------------------


def _leg_s(length: float, speed: float, acceleration: float) -> float:
    return max(
        PEAK_SPEED * length / max(speed, LIMIT_MIN),
        math.sqrt(PEAK_ACCELERATION * length / max(acceleration, LIMIT_MIN)),
        DURATION_MIN_S,
    )


def _progress(x: Array, T: float | Array) -> Array:
    """Rows s, ds/dt = 140 τ³(1-τ)³ / T, d²s/dt² = 420 τ²(1-τ)²(1-2τ) / T², shape (3, n), at τ = x."""
    x2, w = x * x, x * (1.0 - x)
    w2 = w * w
    progress = np.empty((3, len(x)))
    progress[0] = x2 * x2 * (35.0 + x * (-84.0 + x * (70.0 - 20.0 * x)))
    progress[1] = w2 * w * (140.0 / T)
    progress[2] = w2 * (1.0 - 2.0 * x) * (420.0 / (T * T))
    return progress


def _sample_hold(trajectory: Hold, n: int) -> Samples:
    zero = np.zeros((n, 3))
    position = np.empty((n, 3))
    position[:] = trajectory.p
    return Samples(position, zero, zero, np.full(n, trajectory.yaw_rad), zero[:, 0])


def _sample_move(trajectory: Move, t: Array) -> Samples:
    T = duration_s(trajectory)
    progress = _progress(np.minimum(np.maximum(t / T, 0.0), 1.0), T)
    start = (*trajectory.p_start, trajectory.yaw_start_rad)
    turn = wrap_angle(trajectory.yaw_end_rad - trajectory.yaw_start_rad)
    path = np.array([*(e - b for b, e in zip(stop_point(trajectory), trajectory.p_end, strict=True)), turn])
    along = progress[:, :, None] * path
    along[0] += start
    if stops := stop_s(trajectory):
        along[:, :, :3] += _sample_stop(trajectory, t, stops)
    return Samples(along[0, :, :3], along[1, :, :3], along[2, :, :3], along[0, :, 3], along[1, :, 3])


def _sample_stop(move: Move, t: Array, T: float) -> Array:
    """Path, velocity and acceleration of a move's stop, which takes T [s]; (3, n, 3). Before it: constant velocity."""
    x = np.minimum(np.maximum(t / T, 0.0), 1.0)
    rest = 1.0 - x
    rest2 = rest * rest
    by_v, by_a = np.empty((3, len(x))), np.empty((3, len(x)))
    by_v[0] = (0.5 - rest2 * rest2 * (0.5 + x * (1.0 + x))) * T + np.minimum(t, 0.0)
    by_v[1] = rest2 * rest * (1.0 + x * (3.0 + 6.0 * x))
    by_v[2] = x * x * rest2 * (-30.0 / T)
    by_a[0] = (0.1 - rest2 * rest2 * (0.1 + x * (0.4 + 0.5 * x))) * (T * T)
    by_a[1] = rest2 * rest * x * (1.0 + 3.0 * x) * T
    by_a[2] = rest2 * (1.0 + x * (2.0 - 15.0 * x)) * (t >= 0.0)
    stop: Array = by_v[:, :, None] * move.v_start + by_a[:, :, None] * move.a_start
    return stop


class _Chain(NamedTuple):
    """Straight moves from corner to corner with a stop after each."""

    corners: Array  # (m, 3)
    ways: Array  # (m, 3), the last one zero
    starts_s: Array  # (m,) start of each move
    times_s: Array  # (m,) duration of each move
    ends_s: float  # end of the stop after the last move


@lru_cache(maxsize=CACHED)
def _chain(trajectory: Line | Raster) -> _Chain:
    corners = np.array(_line_corners(trajectory) if isinstance(trajectory, Line) else _raster_corners(trajectory))
    ways = np.diff(corners, axis=0, append=corners[-1:])
    speed, acceleration = trajectory.speed_m_s, trajectory.acceleration_m_s2
    times_s = np.array([_leg_s(float(length), speed, acceleration) for length in np.linalg.norm(ways, axis=1)])
    ends_s = np.cumsum(times_s + max(trajectory.stop_s, 0.0))
    return _Chain(corners, ways, np.concatenate([[0.0], ends_s[:-1]]), times_s, ends_s[-2] if len(ends_s) > 1 else 0.0)


def _line_corners(line: Line) -> list[Vec3]:
    return [line.p_start, line.p_end] * max(line.laps, 0) + [line.p_start]


def _raster_corners(raster: Raster) -> list[Vec3]:
    x, y, z = raster.centre
    half = raster.width_m / 2
    gaps = max(1, math.ceil(raster.height_m / max(raster.spacing_m, LIMIT_MIN) - 1e-9))
    corners = []
    for i in range(gaps + 1):
        height = y + raster.height_m * (0.5 - i / gaps)
        side = half if i % 2 else -half
        corners += [(x + side, height, z), (x - side, height, z)]
    return corners


def _sample_chain(trajectory: Line | Raster, t: Array) -> Samples:
    chain = _chain(trajectory)
    i = np.maximum(np.searchsorted(chain.starts_s, t, side="right") - 1, 0)
    T = chain.times_s[i]
    progress = _progress(np.minimum(np.maximum((t - chain.starts_s[i]) / T, 0.0), 1.0), T)
    along = progress[:, :, None] * chain.ways[i]
    along[0] += chain.corners[i]
    return Samples(along[0], along[1], along[2], np.full(len(t), trajectory.yaw_rad), np.zeros(len(t)))


# --- curves of an angle ---------------------------------------------------------------------------------------------


def _ramp_s(trajectory: Spiral | FigureEight | Resumed) -> float:
    return max(trajectory.ramp_s, LIMIT_MIN)


def _eased(t: Array, total_s: float, ramp_s: float) -> tuple[Array, Array, Array]:
    """A clock that starts and stops smoothly, with its rate and acceleration; it ends at total_s - ramp_s."""
    t = np.minimum(np.maximum(t, 0.0), total_s)
    clock, rate, slope = _started(np.stack([t, t - (total_s - ramp_s)]), ramp_s)
    return clock[0] - clock[1], rate[0] - rate[1], slope[0] - slope[1]


def _started(t: Array, ramp_s: float) -> tuple[Array, Array, Array]:
    """A clock that stands before t = 0, starts smoothly and runs evenly after ramp_s, with its rate and acceleration."""
    x = np.minimum(np.maximum(t / ramp_s, 0.0), 1.0)
    x2, w = x * x, x * (1.0 - x)
    area = x2 * x2 * (2.5 + x * (x - 3.0)) * ramp_s
    rise = x2 * x * (10.0 + x * (6.0 * x - 15.0))
    return area + np.maximum(t - ramp_s, 0.0), rise, 30.0 * w * w / ramp_s


def _sample_resumed(rest: Resumed, t: Array) -> Samples:
    clock, rate, acceleration = _started(t, _ramp_s(rest))
    p, v, a, yaw, yaw_rate = sample(rest.curve, 0.0, rest.from_s + clock)
    r, w = rate[:, None], acceleration[:, None]
    return Samples(p, v * r, a * r * r + v * w, yaw, yaw_rate * rate)


def _sample_spiral(spiral: Spiral, t: Array) -> Samples:
    total_s, ramp_s = duration_s(spiral), _ramp_s(spiral)
    clock, rate, acceleration = _eased(t, total_s, ramp_s)
    per_s = 1.0 / (total_s - ramp_s)
    w = 2 * math.pi * spiral.turns * per_s
    climb = (spiral.height_end - spiral.centre[2]) * per_s
    angle, w1, w2 = spiral.angle_start_rad + w * clock, w * rate, w * acceleration
    c, s, r = np.cos(angle), np.sin(angle), spiral.radius_m
    x, y, z = spiral.centre
    return Samples(
        np.column_stack([x + r * c, y + r * s, z + climb * clock]),
        np.column_stack([-r * w1 * s, r * w1 * c, climb * rate]),
        np.column_stack([-r * (w2 * s + w1 * w1 * c), r * (w2 * c - w1 * w1 * s), climb * acceleration]),
        angle + math.pi,
        w1,
    )


def _sample_figure_eight(eight: FigureEight, t: Array) -> Samples:
    clock, rate, acceleration = _eased(t, duration_s(eight), _ramp_s(eight))
    w = 2 * math.pi / max(eight.period_s, LIMIT_MIN)
    angle, w1, w2 = (w * clock)[:, None], (w * rate)[:, None], (w * acceleration)[:, None]
    long, cross = np.asarray(eight.semi_long), np.asarray(eight.semi_cross)
    slope = long * np.cos(angle) + 2.0 * cross * np.cos(2.0 * angle)
    curve = -long * np.sin(angle) - 4.0 * cross * np.sin(2.0 * angle)
    return Samples(
        np.asarray(eight.centre) + long * np.sin(angle) + cross * np.sin(2.0 * angle),
        slope * w1,
        curve * w1 * w1 + slope * w2,
        np.full(len(t), eight.yaw_rad),
        np.zeros(len(t)),
    )


# --- through points ---------------------------------------------------------------------------------------------------


DEGREE = 7


class _Spline(NamedTuple):
    """Position and yaw (columns x, y, z, ψ) over time, a polynomial of degree `DEGREE` between two points."""

    times_s: Array  # (n,) at the points
    coefficients: Array  # (n - 1, DEGREE + 1, columns) of τ⁰, τ¹, …; τ: part of the segment, 0..1

    def at(self, t: Array, order: int = 0) -> Array:
        """The derivative of an order at times within the spline, (len(t), columns)."""
        segment = np.clip(np.searchsorted(self.times_s, t, side="right") - 1, 0, len(self.coefficients) - 1)
        duration = np.diff(self.times_s)[segment]
        powers = _powers((t - self.times_s[segment]) / duration, order)
        value: Array = np.einsum("ni,nic->nc", powers, self.coefficients[segment]) / duration[:, None] ** order
        return value


def _powers(tau: Array, order: int) -> Array:
    """Derivatives of τ⁰, …, τ⁷ of an order, (len(τ), DEGREE + 1)."""
    factors = np.array([math.perm(e, order) for e in range(order, DEGREE + 1)], dtype=float)
    return np.hstack([np.zeros((len(tau), order)), np.vander(tau, DEGREE + 1 - order, increasing=True) * factors])


def _interpolate(times_s: Array, rows: Array) -> _Spline:
    # Equations: rest at both ends (velocity, acceleration, jerk), the points themselves, and continuous derivatives up
    # to the sixth at the points between. They are as many as the coefficients. Least snap requires the sixth.
    durations = np.diff(times_s)
    segments, width = len(durations), DEGREE + 1
    system = np.zeros((segments * width, segments * width))
    right = np.zeros((segments * width, rows.shape[1]))
    ends = np.array([_powers(np.array([0.0, 1.0]), order) for order in range(DEGREE)])  # (order, end, coefficient)
    equation = 0

    def add(value: Array | float, *terms: tuple[int, Array]) -> None:
        nonlocal equation
        for segment, row in terms:
            system[equation, segment * width : (segment + 1) * width] = row
        right[equation] = value
        equation += 1

    for segment in range(segments):
        add(rows[segment], (segment, ends[0, 0]))
        add(rows[segment + 1], (segment, ends[0, 1]))
    for order in (1, 2, 3):
        add(0.0, (0, ends[order, 0]))
        add(0.0, (segments - 1, ends[order, 1]))
    for before, after in zip(range(segments - 1), range(1, segments), strict=True):
        ratio = durations[before] / durations[after]
        for order in range(1, DEGREE):
            add(0.0, (before, ends[order, 1]), (after, -ends[order, 0] * ratio**order))
    solution = np.asarray(np.linalg.solve(system, right), dtype=float)
    return _Spline(times_s, solution.reshape(segments, width, -1))


@lru_cache(maxsize=CACHED)
def _spline(waypoints: Waypoints) -> _Spline:
    rows = np.column_stack([np.array(waypoints.points, dtype=float), np.unwrap(waypoints.yaws_rad)])
    speed, acceleration = max(waypoints.speed_m_s, LIMIT_MIN), max(waypoints.acceleration_m_s2, LIMIT_MIN)
    yaw_rate = max(waypoints.yaw_rate_rad_s, LIMIT_MIN)
    ways = np.diff(rows, axis=0)
    lengths = np.linalg.norm(ways[:, :3], axis=1)
    # Segment times for half the speed; at least the time from rest to rest over the length by the acceleration.
    segments_s = np.maximum.reduce(
        [
            2.0 * lengths / speed,
            np.sqrt(PEAK_ACCELERATION * lengths / acceleration),
            2.0 * np.abs(ways[:, 3]) / yaw_rate,
            np.full(len(lengths), SEGMENT_MIN_S),
        ]
    )
    times_s = np.concatenate([[0.0], np.cumsum(segments_s)])
    spline = _interpolate(times_s, rows)
    # Times stretched by a factor k divide velocities by k and accelerations by k²: one step reaches the limits.
    dense = np.interp(np.linspace(0, len(ways), SAMPLES_PER_SEGMENT * len(ways) + 1), np.arange(len(times_s)), times_s)
    v, a = spline.at(dense, 1), spline.at(dense, 2)
    stretch = max(
        float(np.linalg.norm(v[:, :3], axis=1).max()) / speed,
        math.sqrt(float(np.linalg.norm(a[:, :3], axis=1).max()) / acceleration),
        float(np.abs(v[:, 3]).max()) / yaw_rate,
        DURATION_MIN_S / times_s[-1],
    )
    return _interpolate(times_s * stretch, rows)


def _sample_waypoints(waypoints: Waypoints, t: Array) -> Samples:
    spline = _spline(waypoints)
    t = np.minimum(np.maximum(t, 0.0), spline.times_s[-1])
    p, v, a = (spline.at(t, order) for order in range(3))
    return Samples(p[:, :3], v[:, :3], a[:, :3], p[:, 3], v[:, 3])

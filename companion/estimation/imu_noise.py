"""How noisy the inertial stream is and how quickly the disturbance changes, from the stream alone.

White noise and motion differ in their differences. For a white error of variance r on a signal that is smooth from one
sample to the next, f_{k+1} - 2 f_k + f_{k-1} has the variance 6 r. For a random walk of density q under white noise, two values
a time T apart differ with a variance of q T + 2 r (a structure function; R. E. Kalman's filter of the "local level", whose two
numbers these are). Neither needs an innovation, so neither can feed on the filter's own errors.
"""

from math import inf
from typing import NamedTuple

from companion.core.arrays import Vector
from companion.estimation.imu import GAP_MAX_S, SHORTEST_S
from companion.estimation.schedule import Schedule

MEAN_S = (
    2.0  # over which the squares are averaged; a gust that begins faster passes as a step, see `Eskf.measure_force`
)
WINDOW_S = 0.02  # of the mean force
PERIOD_S = 0.1  # between two changes of the densities
LAG = 10  # windows of the force between two values whose difference is motion more than noise
WHITE = 6.0  # 1² + 2² + 1²
SPIKE = 25.0  # squares above this multiple of the mean are touches or lost packets, and count as this multiple
AXES = 3


class Densities(NamedTuple):
    """Squares of noise densities, as process noise has them."""

    gyro: tuple[float, float, float]  # white noise of each axis in B [rad²/s]
    accel: tuple[float, float, float]  # the same [(m/s)²/s]
    accel_mean: tuple[float, float, float]  # the same of means over WINDOW_S: with little vibration and some motion
    disturbance: float  # random walk of each horizontal axis [(m/s²)²/s]


class ImuNoise:
    """The densities of one stream of inertial measurements, as a function of time.

    It takes samples that no later message can change, in the order of their stamps, so that messages in another order of arrival
    give the same densities.
    """

    def __init__(self, keep_s: float) -> None:
        """keep_s: for how long `at` remembers."""
        self._schedule = Schedule[Densities](keep_s, PERIOD_S)
        self._gyro, self._accel, self._walk = StreamNoise(), StreamNoise(), DisturbanceWalk()
        self._accel_mean = StreamNoise(WINDOW_S + GAP_MAX_S)
        self._window: list[tuple[float, Vector]] = []
        self._window_s = WINDOW_S

    def add(self, stamp_s: float, gyro_B: Vector, accel_B: Vector, flying: bool) -> None:
        """Take the next sample; on the ground there is no disturbance."""
        self._gyro.add(stamp_s, gyro_B)
        self._accel.add(stamp_s, accel_B)
        window = self._window
        if window and not (flying and 0.0 < stamp_s - window[-1][0] <= GAP_MAX_S):
            window.clear()
        window.append((stamp_s, accel_B))
        begin_s = window[0][0]
        if stamp_s - begin_s >= WINDOW_S - SHORTEST_S:
            forces = [force for _, force in window[1:]]
            means = [sum(force[i] for force in forces) / len(forces) for i in range(AXES)]
            self._walk.add(begin_s, stamp_s, means)
            self._accel_mean.add(stamp_s, means)
            self._window, self._window_s = [window[-1]], stamp_s - begin_s

    def close(self, now_s: float) -> None:
        """What is known by now applies from now on, until PERIOD_S later at least."""
        if not self._schedule.is_due(now_s):
            return
        gyro, accel, mean = self._gyro.density2, self._accel.density2, self._accel_mean.density2
        if gyro is None or accel is None:
            return
        walk = self._walk.density2((accel[0] + accel[1]) / 2, self._window_s)
        if walk is not None:
            self._schedule.append(now_s, Densities(gyro, accel, accel if mean is None else mean, walk))

    def changes_s(self, t: float) -> float:
        """When `at` gives another value than at t; inf: not known yet."""
        return self._schedule.changes_s(t)

    def at(self, t: float) -> Densities | None:
        """What applies at t; None before MEAN_S of flight."""
        return self._schedule.at(t)


class StreamNoise:
    """Density of the white noise of a vector stream, per axis, from second differences."""

    def __init__(self, gap_max_s: float = GAP_MAX_S) -> None:
        """gap_max_s: between two values of one run."""
        self._gap_max_s = gap_max_s
        self._before: list[tuple[float, Vector]] = []
        self._spans_s = 0.0  # over which the mean was taken, up to MEAN_S
        self._density2 = [0.0] * AXES

    def add(self, stamp_s: float, value: Vector) -> None:
        """Take the next sample; a late one or one after a gap begins the search for neighbours again."""
        before = self._before
        if before and not 0.0 < stamp_s - before[-1][0] <= self._gap_max_s:
            before.clear()
        before.append((stamp_s, value))
        if len(before) < 3:
            return
        (first_s, a), (_, b), (_, c) = before
        step_s = (stamp_s - first_s) / 2
        self._spans_s = min(self._spans_s + step_s, MEAN_S)
        share = step_s / self._spans_s
        for i in range(AXES):
            sample = (a[i] - 2 * b[i] + c[i]) ** 2 / WHITE * step_s
            known = self._density2[i]
            limit = SPIKE * known if known else inf
            self._density2[i] += share * (min(sample, limit) - known)
        del before[0]

    @property
    def density2(self) -> tuple[float, float, float] | None:
        """Variance per hertz of each axis, None before MEAN_S of samples."""
        if self._spans_s < MEAN_S:
            return None
        x, y, z = self._density2
        return x, y, z


class DisturbanceWalk:
    """Density of the walk of the force across the thrust [(m/s²)²/s], from the means of consecutive windows."""

    def __init__(self) -> None:
        self._means: list[tuple[float, float, float]] = []  # middle of the window [s], two axes
        self._spans_s = 0.0
        self._squares_1_s = 0.0  # mean of Δ² / T
        self._lag_s = 0.0

    def add(self, begin_s: float, end_s: float, f_B: Vector) -> None:
        middle_s, length_s, means = (begin_s + end_s) / 2, end_s - begin_s, self._means
        if means and not 0.0 < middle_s - means[-1][0] < 2 * length_s:
            means.clear()
        means.append((middle_s, f_B[0], f_B[1]))
        if len(means) <= LAG:
            return
        then_s, x, y = means.pop(0)
        self._lag_s = middle_s - then_s
        self._spans_s = min(self._spans_s + length_s, MEAN_S)
        square = ((f_B[0] - x) ** 2 + (f_B[1] - y) ** 2) / 2
        self._squares_1_s += length_s / self._spans_s * (square / self._lag_s - self._squares_1_s)

    def density2(self, noise_density2: float, window_s: float) -> float | None:
        """Of one horizontal axis, given the stream's noise density; None before MEAN_S of windows."""
        if self._spans_s < MEAN_S:
            return None
        return max(self._squares_1_s - 2 * noise_density2 / window_s / self._lag_s, 0.0)

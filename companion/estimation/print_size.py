"""Is a print as large as its marker file says: does the range change by the way flown?

A print of s times the size in the marker file is seen at 1/s times its distance, so the range changes by 1/s times the
distance flown. `SizeTest` estimates s from both while the velocity has an unknown error that changes slowly. How
wrong the velocity is decides how well s is known, and it differs: EKF2's is wrong by a few centimetres per second under an open
sky, and by 0.2 m/s and more for seconds beside a structure. `SizeTests` runs the estimate for several errors and lets the observations
choose: most of them say nothing about s and much about the velocity, those of a hover and those across the way.
"""

from collections import Counter, deque
from math import exp, hypot, isfinite, sqrt
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.estimation.observations import MarkerId

# Observations of this time are averaged: noise of the way seen would make the slope smaller, by two thirds in averages of 0.1 s.
PERIOD_S = 1.0
GAP_S = 2.5  # a longer one is an interruption
FARTHEST_M = 200.0  # what is seen farther away is no bundle
SIZE_STD = 0.5  # of s before any motion
OFFSET_STD_M = 1e3
# Of s, however long the way: an error of the velocity that grows with it (heading, scale) is a wrong size for ever.
SIZE_STD_MIN = 0.02
NOISE_M, NOISE_OF_RANGE = 0.01, 0.003  # of an average: corners and attitude, beside what the tracker says
WALK_RAD_SQRT_S = 0.003  # slow changes of the attitude error, times the range
# Of the range, standard deviation of its step when others of a bundle's markers come into view: prints 3 % too large and too small.
OTHER_MARKERS_STD = 0.035
# Motion that shows the size: so far within such a time, as the bundle is seen and as the velocity says. In a hover noise of the range
# would look like a way that was not flown.
MOTION_M, MOTION_S = 0.25, 2.5
# Variance of an average's noise over the variance of the observations about their trend, for a sway that lasts for a third of a
# second; and the share of the newest average in the mean.
SWAY_OF_SCATTER, SWAY_SHARE = 2.0, 0.1
SCATTER_COUNT = 4  # observations that show it
GATE = 20.0  # chi-square of three numbers, 0.9998
CONSISTENCY_SHARE = 0.15  # of the newest innovation in their mean


class VelocityError(NamedTuple):
    """How wrong a velocity is: a first-order Gauss-Markov process of each axis."""

    std_m_s: float
    time_s: float


# Of the flight controller, from the largest to that of an open sky.
VELOCITY_ERRORS = (
    VelocityError(0.25, 6.0),
    VelocityError(0.12, 20.0),
    VelocityError(0.06, 8.0),
    VelocityError(0.03, 5.0),
)
# A logarithm of the likelihood: by so much an error must be the less likely before a smaller one counts.
CERTAIN = 10.0
# The least likely error stays within so much of the likeliest: a velocity that was good for minutes becomes bad beside a structure.
LEAD_MAX = 15.0


class Sight(NamedTuple):
    """An observation."""

    stamp_s: float
    range_W: Array  # from the aircraft to the bundle as seen [m]
    travelled_W: Array  # integral of the velocity [m]
    std_m: float  # by the tracker
    markers: frozenset[MarkerId]


class Average(NamedTuple):
    """Of the sights of PERIOD_S."""

    stamp_s: float
    range_W: Array
    travelled_W: Array
    std_m: float  # of a single sight
    markers: frozenset[MarkerId]
    sway_W: Array  # variances of its noise by the sway of the camera [m²]
    after_interruption: bool = False


class SizeTest:
    """s = true over seen distance, by recursive least squares.

    State: s, offset o_W (3), velocity error b_W (3). A bundle that stands still has x = s (−r_W) + o, with x the integral of the
    velocity as reported and ȯ = b: the error of the velocity shifts the offset as a wrong s does and is estimated with it.
    Only motion faster than the error changes shows s, so s is not corrected in a hover. The way seen is the abscissa because it
    is known to centimetres: with the way reported in its place, every error of the velocity made the slope smaller, as a noisy
    abscissa does, and a true print looked half as large again.

    Noise of the abscissa too makes the slope smaller: a print looks too small while the camera sways and the aircraft moves
    little. By how much, `_attenuation` follows, and the standard deviation contains it.
    """

    def __init__(self, velocity: VelocityError) -> None:
        self.velocity = velocity
        self._x = np.zeros(7)
        self._x[0] = 1.0
        self._P = np.diag([SIZE_STD**2, *[OFFSET_STD_M**2] * 3, *[velocity.std_m_s**2] * 3])
        self._origin_W: Array | None = None
        self._last: Average | None = None
        self._recent: deque[Average] = deque()  # of the last MOTION_S
        self._consistency = 1.0
        self._attenuation = 0.0  # of s, a share
        self.log_likelihood = 0.0  # less that of the likeliest error, see `SizeTests`

    def add(self, average: Average) -> None:
        """An average, later than the last or after an interruption."""
        last, self._last = self._last, average
        if self._origin_W is None or last is None:
            self._origin_W = average.range_W
            self._x[1:4] = average.travelled_W
            return
        dt = max(average.stamp_s - last.stamp_s, 0.0)  # negative: a clock that was set back, after an interruption
        range_m = float(np.linalg.norm(average.range_W))
        self._predict(dt, range_m)
        if average.markers != last.markers:
            self._P[1:4, 1:4] += (OTHER_MARKERS_STD * range_m) ** 2 * np.eye(3)
        moving = self._is_moving(average)
        if average.after_interruption:
            self._release_offset()
        H = np.zeros((3, 7))
        H[:, 0] = self._origin_W - average.range_W
        H[:, 1:4] = np.eye(3)
        R = np.diag(NOISE_M**2 + (NOISE_OF_RANGE * range_m) ** 2 + np.maximum(average.std_m**2, average.sway_W))
        residual = average.travelled_W - H @ self._x
        S = H @ self._P @ H.T + R
        gain = np.linalg.solve(S, H @ self._P).T
        if not moving:
            gain[0] = 0.0
        nis = float(residual @ np.linalg.solve(S, residual))
        self.log_likelihood -= (min(nis, GATE) + float(np.linalg.slogdet(S)[1])) / 2
        if not nis <= GATE:  # the flight controller corrected itself
            self._release_offset()
            return
        self._consistency += CONSISTENCY_SHARE * (nis / 3 - self._consistency)
        if moving:
            # The share of the variance of s that this average takes.
            information = float(gain[0] @ S @ gain[0]) / self._P[0, 0]
            by_noise = self._P[0, 0] * float(np.diag(np.linalg.inv(S)) @ average.sway_W)
            self._attenuation += by_noise - information * self._attenuation
        self._x = self._x + gain @ residual
        rest = np.eye(7) - gain @ H
        P = rest @ self._P @ rest.T + gain @ R @ gain.T
        self._P = (P + P.T) / 2

    def learn_from(self, other: "SizeTest") -> None:
        """Take the size that another error of the velocity gives: what this one made of the observations is refuted.

        The offset is that of the last place from now on. With that of the first, whose way here goes with the size, every innovation
        would be as uncertain as that way, and a small error of the velocity could never be the likelier one again.
        """
        if self._origin_W is not None and self._last is not None:
            T = np.eye(7)
            T[1:4, 0] = self._origin_W - self._last.range_W
            self._x, self._P = T @ self._x, T @ self._P @ T.T
            self._origin_W = self._last.range_W
        self._x[0], self._P[0, 0] = other._x[0], max(self._P[0, 0], other._P[0, 0])
        self._P[0, 1:] = self._P[1:, 0] = 0.0
        self._attenuation = other._attenuation

    def _is_moving(self, average: Average) -> bool:
        while self._recent and average.stamp_s - self._recent[0].stamp_s > MOTION_S:
            self._recent.popleft()
        self._recent.append(average)
        first = self._recent[0]
        seen_W, reported_W = average.range_W - first.range_W, average.travelled_W - first.travelled_W
        return min(hypot(*seen_W.tolist()), hypot(*reported_W.tolist())) > MOTION_M

    def _predict(self, dt: float, range_m: float) -> None:
        F = np.eye(7)
        F[1:4, 4:] = dt * np.eye(3)
        decay = exp(-dt / self.velocity.time_s)
        F[4:, 4:] *= decay
        walk = (WALK_RAD_SQRT_S * range_m) ** 2 * dt
        Q = np.diag([0.0, *[walk] * 3, *[self.velocity.std_m_s**2 * (1 - decay**2)] * 3])
        self._x = F @ self._x
        self._P = F @ self._P @ F.T + Q

    def _release_offset(self) -> None:
        """Forget the offset. The velocity may have another error now, and yet the old one was part of what is known about the size."""
        self._P[1:4], self._P[:, 1:4] = 0.0, 0.0
        self._P += np.diag([0.0, *[OFFSET_STD_M**2] * 3, *[self.velocity.std_m_s**2] * 3])

    def estimate(self) -> tuple[float, float]:
        """(1 − s, its standard deviation): by how much the print is smaller than in the marker file."""
        std = sqrt(max(self._P[0, 0], 0.0) * max(1.0, self._consistency))
        return 1.0 - float(self._x[0]), hypot(std, self._attenuation, SIZE_STD_MIN)


class SizeTests:
    """The estimate for the largest error of the velocity that the observations allow.

    wait_s: until an average counts; `interrupt` discards it before.
    """

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._tests = [SizeTest(error) for error in VELOCITY_ERRORS]
        self._group: list[Sight] = []
        self._waiting: deque[Average] = deque()  # what `interrupt` may still discard
        self._sway_W: Array | None = None  # variances of an average's noise by the sway of the camera
        self._interrupted = False

    def add(
        self,
        stamp_s: float,
        range_W: Array,
        travelled_W: Array,
        markers: frozenset[MarkerId],
        std_m: float,
    ) -> None:
        """An observation: from the aircraft to the bundle as seen, the integral of the velocity [m], and its std by the tracker."""
        if not float(np.linalg.norm(range_W)) < FARTHEST_M or not isfinite(float(np.sum(travelled_W)) + std_m):
            return
        later_s = stamp_s - self._group[-1].stamp_s if self._group else 0.0
        if later_s < -GAP_S:
            self.interrupt()  # a clock that was set back
        elif later_s < 0.0:
            return  # an image that comes after its successor
        elif later_s > GAP_S or (self._group and stamp_s - self._group[0].stamp_s >= PERIOD_S):
            self._close()
            self._interrupted = self._interrupted or later_s > GAP_S
        self._group.append(Sight(stamp_s, range_W, travelled_W, std_m, markers))
        while self._waiting and stamp_s - self._waiting[0].stamp_s > self._wait_s:
            self._count(self._waiting.popleft())

    def _close(self) -> None:
        """Make an average of the group. Before a scatter has shown the sway, nothing says how well the way is seen."""
        group = _of_most_markers(self._group)
        self._group = []
        if len(group) >= SCATTER_COUNT:
            sway_W = SWAY_OF_SCATTER * _scatter(group)
            self._sway_W = sway_W if self._sway_W is None else self._sway_W + SWAY_SHARE * (sway_W - self._sway_W)
        if self._sway_W is None:
            return
        stamps, ranges, travelled, stds, markers = zip(*group, strict=True)
        range_W, travelled_W = np.mean(ranges, axis=0), np.mean(travelled, axis=0)
        stamp_s, std_m = float(np.mean(stamps)), float(np.mean(stds))
        average = Average(stamp_s, range_W, travelled_W, std_m, markers[0], self._sway_W, self._interrupted)
        self._waiting.append(average)
        self._interrupted = False

    def _count(self, average: Average) -> None:
        for test in self._tests:
            test.add(average)
        best = max(test.log_likelihood for test in self._tests)
        for test in self._tests:
            test.log_likelihood = max(test.log_likelihood - best, -LEAD_MAX)
        counts = self._tests.index(self._largest_allowed())
        for test in self._tests[counts + 1 :]:
            if test.log_likelihood < -CERTAIN:
                test.learn_from(self._tests[counts])

    def interrupt(self) -> None:
        """The velocity is wrong now, and was when the observations were made that still wait. The offset is unknown again."""
        self._group = []
        self._waiting.clear()
        self._interrupted = True

    def estimate(self) -> tuple[float, float]:
        """(1 − s, its standard deviation): by how much the print is smaller than in the marker file."""
        return self._largest_allowed().estimate()

    @property
    def velocity(self) -> VelocityError:
        """The error that counts."""
        return self._largest_allowed().velocity

    def _largest_allowed(self) -> SizeTest:
        return next((test for test in self._tests if test.log_likelihood >= -CERTAIN), self._tests[0])


def _of_most_markers(group: list[Sight]) -> list[Sight]:
    """Sights of the markers that were seen most often: others stand elsewhere by the errors of their prints."""
    markers = Counter(sight.markers for sight in group).most_common(1)[0][0]
    return [sight for sight in group if sight.markers == markers]


def _scatter(group: list[Sight]) -> Array:
    """Variances of the way seen beside the way reported, less their trend [m²]."""
    stamps, ranges, travelled, *_ = zip(*group, strict=True)
    places_W, t = np.add(ranges, travelled), np.array(stamps) - np.mean(stamps)
    trend = np.column_stack([np.ones(len(t)), t])
    rest_W = places_W - trend @ np.linalg.lstsq(trend, places_W, rcond=None)[0]
    scatter_W: Array = np.sum(rest_W**2, axis=0) / (len(t) - 2)
    return scatter_W

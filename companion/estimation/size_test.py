"""Is a print as large as its marker file says: does the range change by the way flown?

A print of s times the size in the marker file is seen at 1/s times its distance, so the range changes by 1/s times the
distance flown. `SizeTest` estimates s from both while the velocity has an unknown error that changes slowly. How
wrong the velocity is decides how well s is known, and it differs: EKF2's is wrong by a few centimetres per second under an open
sky, and by 0.2 to 0.5 m/s for seconds beside a structure. `SizeTests` runs the estimate for several errors and lets the observations
choose: most of them say nothing about s and much about the velocity, those of a hover and those across the way.
"""

from collections import deque
from math import exp, hypot, log, sqrt
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array

# Observations of this time are averaged: noise of the way seen would make the slope smaller, by two thirds in averages of 0.1 s.
PERIOD_S = 1.0
GAP_S = 2.5  # after a longer one the offset is unknown again
SIZE_STD = 0.5  # of s before any motion
SHARE_MIN = 0.1  # of s
NOISE_M, NOISE_OF_RANGE = 0.01, 0.003  # of an average: corners and attitude
WALK_RAD_SQRT_S = 0.003  # slow changes of the attitude error, times the range
# Motion that shows the size: so far within such a time, as the bundle is seen. In a hover the integral of the velocity's error
# would look like a way that the range does not follow, as if the bundle were endlessly large.
MOTION_M, MOTION_S = 0.25, 2.0
GATE = 20.0  # chi-square of three numbers, 0.9998
CONSISTENCY_SHARE = 0.15  # of the newest innovation in their mean


class VelocityError(NamedTuple):
    """How wrong a velocity is: a first-order Gauss-Markov process of each axis."""

    std_m_s: float
    time_s: float


# Of the flight controller. The largest is a quarter more than EKF2 has at worst, the smallest that of an open sky.
VELOCITY_ERRORS = (
    VelocityError(0.25, 6.0),
    VelocityError(0.12, 20.0),
    VelocityError(0.06, 8.0),
    VelocityError(0.03, 5.0),
)
# A logarithm of the likelihood: by so much an error must be the less likely before a smaller one counts.
CERTAIN = 10.0


class SizeTest:
    """s = true over seen distance, by recursive least squares.

    State: s, offset o_W (3), velocity error b_W (3). A bundle that stands still has x = s (−r_W) + o, with x the integral of the
    velocity as reported and ȯ = b: the error of the velocity shifts the offset as a wrong s does and is estimated with it.
    Only motion faster than the error changes shows s, so s is not corrected in a hover. The way seen is the abscissa because it
    is known to centimetres: with the way reported in its place, every error of the velocity made the slope smaller, as a noisy
    abscissa does, and a true print of 1 looked like one of 1.5.
    """

    def __init__(self, velocity: VelocityError) -> None:
        self.velocity = velocity
        self._x = np.zeros(7)
        self._x[0] = 1.0
        self._P = self._variances(SIZE_STD**2)
        self._origin_W: Array | None = None
        self._last_s: float | None = None
        self._ranges: deque[tuple[float, Array]] = deque()  # averages of the last MOTION_S
        self._consistency = 1.0
        self.log_likelihood = 0.0  # of all averages, less a constant

    def add(self, stamp_s: float, range_W: Array, travelled_W: Array, after_interruption: bool) -> None:
        """An average: from the aircraft to the bundle as seen, and the integral of the velocity [m]."""
        if self._origin_W is None or self._last_s is None:
            self._origin_W, self._last_s = range_W, stamp_s
            self._x[1:4] = travelled_W
            return
        dt = stamp_s - self._last_s
        if dt <= 0:
            return
        self._last_s = stamp_s
        range_m = float(np.linalg.norm(range_W))
        self._predict(dt, range_m)
        moving = self._is_moving(stamp_s, range_W)
        if dt > GAP_S or after_interruption:
            self._release_offset()
        H = np.zeros((3, 7))
        H[:, 0] = self._origin_W - range_W
        H[:, 1:4] = np.eye(3)
        noise = NOISE_M**2 + (NOISE_OF_RANGE * range_m) ** 2
        residual = travelled_W - H @ self._x
        S = H @ self._P @ H.T + noise * np.eye(3)
        gain = np.linalg.solve(S, H @ self._P).T
        if not moving:
            gain[0] = 0.0
        nis = float(residual @ np.linalg.solve(S, residual))
        if not nis <= GATE:  # another set of markers, or the flight controller corrected itself
            self._count(GATE, S)
            self._release_offset()
            return
        self._count(nis, S)
        self._consistency += CONSISTENCY_SHARE * (nis / 3 - self._consistency)
        self._x = self._x + gain @ residual
        rest = np.eye(7) - gain @ H
        P = rest @ self._P @ rest.T + noise * gain @ gain.T
        self._P = (P + P.T) / 2

    def _count(self, nis: float, S: Array) -> None:
        self.log_likelihood -= (nis + log(np.linalg.det(S))) / 2

    def _is_moving(self, stamp_s: float, range_W: Array) -> bool:
        while self._ranges and stamp_s - self._ranges[0][0] > MOTION_S:
            self._ranges.popleft()
        self._ranges.append((stamp_s, range_W))
        return hypot(*(range_W - self._ranges[0][1]).tolist()) > MOTION_M

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
        """Forget the offset and the error of the velocity, and keep what is known about the size."""
        self._x[4:] = 0.0
        self._P = self._variances(self._P[0, 0])

    def _variances(self, size_variance: float) -> Array:
        return np.diag([size_variance, *[1e6] * 3, *[self.velocity.std_m_s**2] * 3])

    def estimate(self) -> tuple[float, float]:
        """(k − 1, its standard deviation) of k = 1/s, seen over true distance."""
        s, s_std = max(float(self._x[0]), SHARE_MIN), sqrt(max(self._P[0, 0], 0.0) * max(1.0, self._consistency))
        return 1.0 / s - 1.0, s_std / s**2


class SizeTests:
    """The estimate for the error that the velocity has.

    wait_s: until an average counts; `interrupt` discards it before.
    """

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._tests = [SizeTest(error) for error in VELOCITY_ERRORS]
        self._group: list[tuple[float, Array, Array]] = []
        self._waiting: deque[tuple[float, Array, Array]] = deque()  # averages that `interrupt` may still discard
        self._interrupted = False

    def add(self, stamp_s: float, range_W: Array, travelled_W: Array) -> None:
        """An observation: from the aircraft to the bundle as seen, and the integral of the velocity [m]."""
        if self._group and stamp_s - self._group[0][0] >= PERIOD_S:
            stamps, ranges, distances = zip(*self._group, strict=True)
            self._group = []
            self._waiting.append((float(np.mean(stamps)), np.mean(ranges, axis=0), np.mean(distances, axis=0)))
        self._group.append((stamp_s, range_W, travelled_W))
        while self._waiting and stamp_s - self._waiting[0][0] > self._wait_s:
            average = self._waiting.popleft()
            for test in self._tests:
                test.add(*average, self._interrupted)
            self._interrupted = False

    def interrupt(self) -> None:
        """The velocity is wrong now, and was when the observations were made that still wait."""
        self._group = []
        self._waiting.clear()
        self._interrupted = True

    def estimate(self) -> tuple[float, float]:
        """(k − 1, its standard deviation) of k, seen over true distance."""
        return self._likely().estimate()

    @property
    def velocity(self) -> VelocityError:
        """The error that counts."""
        return self._likely().velocity

    def _likely(self) -> SizeTest:
        """Of the largest error that the observations allow."""
        best = max(test.log_likelihood for test in self._tests)
        return next(test for test in self._tests if test.log_likelihood > best - CERTAIN)

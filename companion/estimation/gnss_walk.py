"""How quickly the flight controller's position walks away from the truth, from what a bundle in sight shows.

While a bundle is in sight the filter knows the aircraft's position beside it to centimetres, so the reported position less the
estimated one is the error of the satellites. Two values of it a time T apart differ, for a random walk of density q, with the
variance q T: a structure function, as in `companion.estimation.imu_noise`. Beside a pier the walk is many times that of an open
sky.

Before a bundle is near nothing measures it, and the vehicle file's is that of an open sky: `UNMEASURED_FACTOR`. A filter that
trusts the satellites too much on the way to a structure takes their walk for the aircraft's, and turns its heading until the bundle,
seen from 12 m, agrees.
"""

from collections import deque

import numpy as np

from companion.core.arrays import Array
from companion.estimation.schedule import Schedule

LAG_S = 1.0  # between two values: the noise of a single position is below the walk of a second beside a structure
MEAN_S = 10.0  # over which the squares are averaged
# Of differences, before their mean counts. After one of them a walk of 0.3 m/√s was below 0.1 in a tenth of 300 trials; with 5 s
# scattered observations of a bundle led the position by 0.66 m before they were refused, with 2 s by less than 0.4.
KNOWN_S = 2.0
FORGET_S = 30.0  # without a sample: the air and the sky of another place
SAMPLE_S = 0.1  # between two values that are kept
PERIOD_S = 0.5  # between two changes of the result
# Of the vehicle file's density, while nothing is measured. In eight flights of `bridge_hover` with unkind sensors (seeds 823, 825, 829,
# 831, 842, 843, 845, 853; replays) the heading was wrong by 4.1° in the mean with 1, 2.4° with 2 and 2.0° with 3.
UNMEASURED_FACTOR = 3.0
# A receiver's slow error is bounded, a random walk is not: it made the state of an aircraft that waited for its take-off invalid (3 m)
# after 2.5 minutes; with a factor of 1 it was 2.3 m after 5. The standard deviation of the error is bounded by this.
WALKED_MAX_M = 2.0


class GnssWalk:
    """The density of the walk, as a function of time; takes values that no later message can change, in their order."""

    def __init__(self, keep_s: float) -> None:
        """keep_s: for how long `at` remembers."""
        self._schedule = Schedule[float | None](keep_s, PERIOD_S)
        self._values: deque[tuple[float, Array]] = deque()
        self._known_s = 0.0
        self._density2 = 0.0

    def add(self, stamp_s: float, error_W: Array) -> None:
        """The position's error [m], (3,), with a bundle in sight, while the flight controller has satellites."""
        values = self._values
        if values and not 0.0 <= stamp_s - values[-1][0] <= LAG_S:
            values.clear()
        if values and stamp_s - values[-1][0] < SAMPLE_S:
            return
        values.append((stamp_s, error_W))
        if stamp_s - values[0][0] < LAG_S:
            return
        then_s, then_W = values.popleft()
        sample = float(np.mean((error_W - then_W)[:2] ** 2)) / (stamp_s - then_s)
        self._known_s = min(self._known_s + SAMPLE_S, MEAN_S)
        self._density2 += SAMPLE_S / self._known_s * (sample - self._density2)

    def close(self, now_s: float) -> None:
        """What is known by now applies from now on."""
        if self._known_s > 0.0 and self._values and now_s - self._values[-1][0] > FORGET_S:
            self._values.clear()
            if self._known_s >= KNOWN_S:
                self._schedule.append(now_s, None)
            self._known_s = 0.0
        if self._known_s >= KNOWN_S and self._schedule.is_due(now_s):
            self._schedule.append(now_s, self._density2)

    def changes_s(self, t: float) -> float:
        """When `at` gives another value than at t; inf: not known yet."""
        return self._schedule.changes_s(t)

    def at(self, t: float) -> float | None:
        """Variance per second of each horizontal axis [m²/s] that applies at t; None while nothing is known."""
        return self._schedule.at(t)

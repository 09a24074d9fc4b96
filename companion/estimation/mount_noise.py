"""How much more the camera moves on its mount than the vehicle file says, from the innovations at the bundles.

The normalised innovation squared (NIS) of a consistent filter is 1 per measured number in the mean. Of all that moves a
bundle in the image the mount differs most from aircraft to aircraft: one on dampers sways by 0.8° within a third of a
second. The variance of its process noise is therefore multiplied by the mean NIS of each second until that is 1, up or
down, never below the file's. Covariance matching (`companion.estimation.adaptation`) cannot find this: it asks whether
the measurement's own noise is larger, and an error of the mount lasts over many images.
"""

from companion.estimation.schedule import Schedule

PERIOD_S = 1.0
LEAST = 8  # innovations of a period
STEP = 1.25  # largest change of the variance in a period
FACTOR_MAX = 9.0  # three times the file's standard deviation
NIS_MAX = 5.0  # as which a larger one counts: outliers are not the mount


class MountNoise:
    """The factor as a function of time; takes innovations that no later message can change, in their order."""

    def __init__(self, keep_s: float) -> None:
        """keep_s: for how long `at` remembers."""
        self._schedule = Schedule[float](keep_s, PERIOD_S)
        self._factor = 1.0
        self._sum, self._count = 0.0, 0

    def add(self, nis: float) -> None:
        """nis: of one innovation, per number."""
        if nis >= 0.0:  # False for NaN
            self._sum += min(nis, NIS_MAX)
            self._count += 1

    def close(self, now_s: float) -> None:
        """What is known by now applies from now on."""
        if self._count < LEAST or not self._schedule.is_due(now_s):
            return
        mean = self._sum / self._count
        self._factor = min(max(self._factor * min(max(mean, 1 / STEP), STEP), 1.0), FACTOR_MAX)
        self._sum, self._count = 0.0, 0
        self._schedule.append(now_s, self._factor)

    def changes_s(self, t: float) -> float:
        """When `at` gives another value than at t; inf: not known yet."""
        return self._schedule.changes_s(t)

    def at(self, t: float) -> float:
        """By how much the variance of the mount's process noise is larger at t than the vehicle file's."""
        return self._schedule.at(t) or 1.0

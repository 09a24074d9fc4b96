"""The flight controller's inertial measurements of the last seconds, as steps of the prediction.

A sample of HIGHRES_IMU is taken as the mean over the interval that ends at its stamp. PX4 sends its newest ``vehicle_imu``,
which is the mean over IMU_INTEG_RATE: this is the whole interval when the message comes as often. Between two samples that are more than GAP_MAX_S apart nothing is known, except that the
newest sample holds for HOLD_S: messages are that late.
"""

from array import array
from bisect import bisect_left, bisect_right
from math import inf

GAP_MAX_S = 0.03  # between two samples of one run: 50 Hz with a lost sample are still propagation at the IMU's rate
HOLD_S = 0.02  # for which the last sample stands in for those that have not arrived
FIRST_S = 0.005  # duration of the first sample after a gap
SHORTEST_S = 1e-9  # below this an interval is rounding

ROW = 7  # numbers of a sample with its stamp
Sample = tuple[float, ...]  # duration [s], ω_B [rad/s], f_B [m/s²]: 7 numbers


class ImuSamples:
    """The samples of the last ``keep_s`` seconds, in the order of their stamps."""

    def __init__(self, keep_s: float) -> None:
        self._keep_s = keep_s
        self._times: list[float] = []
        self._values: list[tuple[float, ...]] = []
        self._rows = array("d")  # the same, stamp and values, for kernels

    @property
    def address(self) -> int:
        """Of the rows (stamp, ω_B, f_B), valid until the next change."""
        return self._rows.buffer_info()[0]

    def __len__(self) -> int:
        return len(self._times)

    @property
    def newest_s(self) -> float:
        """Stamp of the newest sample; -inf before the first."""
        return self._times[-1] if self._times else -inf

    def add(self, stamp_s: float, values: tuple[float, ...]) -> float | None:
        """Insert a sample (ω_B, f_B); returns the time from which the motion has changed, None for a repeated stamp."""
        times = self._times
        at = bisect_left(times, stamp_s)
        if at < len(times) and times[at] == stamp_s:
            return None
        times.insert(at, stamp_s)
        self._values.insert(at, values)
        self._rows[ROW * at : ROW * at] = array("d", (stamp_s, *values))
        return self._begin(at)

    def withdraw_after(self, time_s: float) -> None:
        """Remove the samples that are newer than time_s: they were wrong."""
        at = bisect_right(self._times, time_s)
        del self._times[at:], self._values[at:], self._rows[ROW * at :]

    def _begin(self, at: int) -> float:
        """The beginning of a sample's interval."""
        before = self._times[at - 1] if at else -inf
        stamp_s = self._times[at]
        return before if stamp_s - before <= GAP_MAX_S else max(before, stamp_s - FIRST_S)

    def cover(self, start_s: float, end_s: float) -> tuple[list[Sample], float]:
        """Steps from start_s on, without a gap, to end_s at most; and the time to which they reach."""
        rows: list[Sample] = []
        times, t = self._times, start_s
        at = bisect_right(times, t + SHORTEST_S)
        while at < len(times) and end_s - t > SHORTEST_S and self._begin(at) <= t + SHORTEST_S:
            until = min(times[at], end_s)
            rows.append((until - t, *self._values[at]))
            t, at = until, at + 1
        if at and end_s - t > SHORTEST_S:
            until = min(times[at - 1] + HOLD_S, end_s, self._begin(at) if at < len(times) else inf)
            if until - t > SHORTEST_S:
                rows.append((until - t, *self._values[at - 1]))
                t = until
        return rows, t

    def between(self, after_s: float, until_s: float) -> list[tuple[float, tuple[float, ...]]]:
        """(stamp, (ω_B, f_B)) of the samples after one time until another."""
        rows = slice(bisect_right(self._times, after_s), bisect_right(self._times, until_s))
        return list(zip(self._times[rows], self._values[rows], strict=True))

    def rates_at(self, t: float) -> tuple[float, ...]:
        """Angular rate ω_B [rad/s] of the sample whose interval holds t; zeros where there is none."""
        at = min(bisect_left(self._times, t), len(self._times) - 1)
        known = at >= 0 and self._begin(at) <= t <= self._times[at] + HOLD_S
        return self._values[at][:3] if known else (0.0, 0.0, 0.0)

    def mean_force(self, begin_s: float, end_s: float) -> tuple[float, float, float] | None:
        """Mean specific force f_B [m/s²] of the samples after begin_s until end_s; None where some are missing."""
        used = self._whole(begin_s, end_s)
        if used is None:
            return None
        _, _, _, x, y, z = zip(*used, strict=True)
        return sum(x) / len(used), sum(y) / len(used), sum(z) / len(used)

    def mean(self, begin_s: float, end_s: float) -> tuple[float, ...] | None:
        """Mean (ω_B, f_B) [rad/s, m/s²] of the samples after begin_s until end_s; None where some are missing."""
        used = self._whole(begin_s, end_s)
        return None if used is None else tuple([sum(column) / len(used) for column in zip(*used, strict=True)])

    def _whole(self, begin_s: float, end_s: float) -> list[tuple[float, ...]] | None:
        """The samples after begin_s until end_s; None where some are missing."""
        times = self._times
        first, last = bisect_right(times, begin_s + SHORTEST_S), bisect_right(times, end_s + SHORTEST_S)
        if first == last or times[last - 1] < end_s - GAP_MAX_S or self._begin(first) > begin_s + SHORTEST_S:
            return None
        for at in range(first + 1, last):
            if times[at] - times[at - 1] > GAP_MAX_S and self._begin(at) > times[at - 1] + SHORTEST_S:
                return None
        return self._values[first:last]

    def resumes_s(self, t: float) -> float:
        """The time after t at which the next sample's interval begins; inf: there is none yet."""
        at = bisect_right(self._times, t + SHORTEST_S)
        return max(t, self._begin(at)) if at < len(self._times) else inf

    def discard_old(self, now_s: float) -> None:
        drop = bisect_right(self._times, now_s - self._keep_s) - 1
        if drop > 0:
            del self._times[:drop], self._values[:drop], self._rows[: ROW * drop]


class ForceWindows:
    """Cuts the stream into windows of about ``period_s``: the specific force of each is one measurement."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._begin_s: float | None = None

    def add(self, stamp_s: float) -> tuple[float, float] | None:
        """Take the stamp of a sample; (beginning, end) [s] of a window that it ends. A late sample ends none."""
        begin_s = self._begin_s
        if begin_s is not None and begin_s - self._period_s < stamp_s <= begin_s:
            return None
        if begin_s is None or not 0.0 < stamp_s - begin_s <= self._period_s + 2 * GAP_MAX_S:
            self._begin_s = stamp_s
            return None
        if stamp_s - begin_s < self._period_s - SHORTEST_S:
            return None
        self._begin_s = stamp_s
        return begin_s, stamp_s

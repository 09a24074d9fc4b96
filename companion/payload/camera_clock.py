"""Companion time of a camera's time stamps.

A camera stamps an exposure by the time since its start (`time_boot_ms`) and perhaps by UTC (`time_utc`). The first is
related to the companion's time by TIMESYNC, as the flight controller's; the second by the computer's own UTC. A stamp
counts only where it lies between the command and the arrival of the answer: a camera whose clock was never set, or
which answers TIMESYNC by another clock, is used with the delay of the camera file.
"""

import math
from collections import deque
from typing import NamedTuple

from companion.core.enums import ExposureClock

WINDOW = 30  # answers, of which the one with the shortest round trip counts
RTT_MAX_S = 0.1  # a longer one bounds the offset by more than the delay of the camera file usually does
BOOT_MS_WRAP = 2**32
TICK_S = 0.001  # of `time_boot_ms`
UTC_STD_S = 0.03  # two clocks that are each set by GNSS or NTP
EARLY_S = 0.02  # by which a good stamp may seem to lie before the command


class ExposureTime(NamedTuple):
    """Companion time of a mid-exposure, its standard deviation, and how it is known."""

    stamp_s: float
    std_s: float
    clock: ExposureClock


class CameraClock:
    """Offset between a camera's clock and the companion's by TIMESYNC."""

    def __init__(self) -> None:
        self._pending: deque[int] = deque(maxlen=8)
        self._samples: deque[tuple[float, float]] = deque(maxlen=WINDOW)  # round trip, offset [s]

    def request(self, now_s: float) -> int:
        """Begin a round trip; returns ts1 [ns]."""
        ts1_ns = max(1, round(now_s * 1e9))
        self._pending.append(ts1_ns)
        return ts1_ns

    def answer(self, tc1_ns: int, ts1_ns: int, arrival_s: float) -> bool:
        """Take an answer; returns whether it was one to a request of this clock."""
        if ts1_ns not in self._pending:
            return False
        self._pending.remove(ts1_ns)
        rtt_s = arrival_s - ts1_ns * 1e-9
        if 0.0 <= rtt_s <= RTT_MAX_S:
            offset_s = 0.5 * (ts1_ns * 1e-9 + arrival_s) - tc1_ns * 1e-9
            if self._samples and abs(offset_s - self._samples[-1][1]) > RTT_MAX_S:
                self._samples.clear()  # the camera restarted
            self._samples.append((rtt_s, offset_s))
        return True

    def stamp(self, boot_ms: int, arrival_s: float) -> tuple[float, float] | None:
        """Companion time of `time_boot_ms` and its standard deviation; None: no answer to TIMESYNC yet."""
        if not self._samples:
            return None
        rtt_s, offset_s = min(self._samples)
        camera_now_s = arrival_s - offset_s
        wraps = round((camera_now_s * 1e3 - boot_ms) / BOOT_MS_WRAP)
        return (boot_ms + wraps * BOOT_MS_WRAP) * 1e-3 + offset_s, math.hypot(0.5 * rtt_s, TICK_S)


def exposure_time(
    by_clock: tuple[float, float] | None,
    utc_us: int,
    utc_offset_s: float,
    window: tuple[float, float],
    expected: tuple[float, float],
) -> ExposureTime:
    """The best known time of an exposure.

    by_clock: companion time by the camera's clock and its standard deviation. utc_us: `time_utc`, 0 unknown.
    utc_offset_s: UTC minus companion time, NaN unknown. window: command and arrival of the answer, which enclose the
    exposure. expected: the command's time plus the delay of the camera file, and its standard deviation.
    """
    first_s, last_s = window[0] - EARLY_S, window[1] + TICK_S
    if by_clock is not None and first_s <= by_clock[0] <= last_s:
        return ExposureTime(min(by_clock[0], window[1]), by_clock[1], ExposureClock.SYNCHRONISED)
    if utc_us > 0 and math.isfinite(utc_offset_s):
        utc_s = utc_us * 1e-6 - utc_offset_s
        if first_s - UTC_STD_S <= utc_s <= last_s + UTC_STD_S:
            return ExposureTime(min(utc_s, window[1]), UTC_STD_S, ExposureClock.UTC)
    return ExposureTime(min(expected[0], window[1]), expected[1], ExposureClock.ARRIVAL)

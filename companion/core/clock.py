"""Time.

The stack has one time: seconds since the companion computer started, the same for all its processes. It counts on while
the computer sleeps (CLOCK_BOOTTIME): after a sleep everything known is as old as it is, and the stream of setpoints has
paused. Linux's CLOCK_MONOTONIC stands still in a sleep. Nodes get the time as an argument and never read it. A node may
hold a `Stopwatch` to measure its own computing time. In simulated time computing takes no time unless a test sets a cost;
this keeps lockstep runs deterministic.
"""

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def monotonic_s() -> float:
    """Companion time [s] (CLOCK_BOOTTIME where there is one, common to all processes)."""
    return time.clock_gettime(_CLOCK)


class Stopwatch:
    """Measures computing time; used by nodes with a deadline."""

    def read_s(self) -> float:
        """Time since a fixed moment in the past [s]; only differences have a meaning."""
        return time.perf_counter()


class SimulatedStopwatch(Stopwatch):
    """The time between two readings is always ``cost_s``, independent of the wall clock."""

    def __init__(self, cost_s: float = 0.0) -> None:
        self.cost_s = cost_s
        self._now_s = 0.0

    def read_s(self) -> float:
        self._now_s += self.cost_s
        return self._now_s

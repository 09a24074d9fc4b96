"""Time.

Inside the stack there is one time: the companion's monotonic clock in seconds, the same for all processes of
the machine. Nodes get it as an argument and may not read it. What a node may hold is a `Stopwatch`, to measure
how long its own computing took; in simulated time computing takes no time unless a test says so, which keeps
lockstep runs deterministic.
"""

import time


def monotonic_s() -> float:
    """Companion time [s] (CLOCK_MONOTONIC, common to all processes)."""
    return time.monotonic()


class Stopwatch:
    """Measures computing time; used by nodes with a deadline."""

    def read_s(self) -> float:
        return time.perf_counter()


class SimulatedStopwatch(Stopwatch):
    """Computing takes ``cost_s`` per reading interval, whatever the wall clock says."""

    def __init__(self, cost_s: float = 0.0) -> None:
        self.cost_s = cost_s
        self._now_s = 0.0

    def read_s(self) -> float:
        self._now_s += self.cost_s
        return self._now_s

"""Detects that the program stood still: stopped (Ctrl-Z), swapped out, blocked, or the whole computer asleep.

A motor that the flight controller has stopped in the meantime must not start again in one step, so every pulse width
that is sent depends on the age of the cycle that computed it and of the command before it.
"""

import time
from typing import Protocol

from companion.core.clock import monotonic_s

PAUSE_S = 0.4  # a longer pause ends the run; it is shorter than `motor.TIMEOUT_S`, after which the output goes off


class Clock(Protocol):
    """Time of the bench; simulated in tests."""

    def now_s(self) -> float:
        """Monotonic time [s]."""

    def boot_s(self) -> float:
        """Monotonic time that also counts while the computer sleeps [s]."""

    def sleep(self, duration_s: float) -> None: ...


class SystemClock:
    """The clocks of the computer."""

    def now_s(self) -> float:
        return monotonic_s()

    def boot_s(self) -> float:
        number = getattr(time, "CLOCK_BOOTTIME", None)  # Linux only
        return monotonic_s() if number is None else time.clock_gettime(number)

    def sleep(self, duration_s: float) -> None:
        time.sleep(duration_s)


class PauseWatch:
    """The time since the last look at the clocks, by the one of the two clocks on which it is longer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = clock.now_s(), clock.boot_s()

    def age_s(self) -> float:
        """Time since the last look [s]."""
        return max(self._clock.now_s() - self._last[0], self._clock.boot_s() - self._last[1])

    def look(self) -> float:
        """Time since the last look [s]; this is a new one."""
        age_s = self.age_s()
        self._last = self._clock.now_s(), self._clock.boot_s()
        return age_s

"""A value that is measured now and then and applies from then on."""

from bisect import bisect_right
from math import inf
from typing import Generic, TypeVar

T = TypeVar("T")


class Schedule(Generic[T]):
    """The values of the last ``keep_s`` seconds, by the time from which each applies.

    A filter that runs again from an earlier time finds the value that applied then, so that messages in another order of
    arrival give the same estimate. period_s: least time between two values.
    """

    def __init__(self, keep_s: float, period_s: float) -> None:
        self._keep_s, self._period_s = keep_s, period_s
        self._begins: list[float] = []
        self._values: list[T] = []

    def is_due(self, now_s: float) -> bool:
        """Whether the newest value is old enough for another one."""
        return not self._begins or now_s - self._begins[-1] >= self._period_s

    def append(self, now_s: float, value: T) -> None:
        """value applies from now on."""
        self._begins.append(now_s)
        self._values.append(value)
        drop = bisect_right(self._begins, now_s - self._keep_s) - 1
        if drop > 0:
            del self._begins[:drop], self._values[:drop]

    def changes_s(self, t: float) -> float:
        """When another value applies than at t; inf: not known yet."""
        i = bisect_right(self._begins, t)
        return self._begins[i] if i < len(self._begins) else inf

    def at(self, t: float) -> T | None:
        """What applies at t; None before the first value, or when that is forgotten."""
        i = bisect_right(self._begins, t) - 1
        return self._values[i] if i >= 0 else None

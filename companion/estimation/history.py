"""Late is normal: measurements enter the filter at the time they were made.

The history is a list of measurements in the order of their stamps, each with the belief right after it. A new
measurement goes to its place; everything from there on is re-run with the inputs of its time, so the result does
not depend on the order of arrival. What is older than the history is dropped and counted.

Memory is bounded: entries older than `depth_s` are folded into the anchor, the oldest belief that is kept.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from math import inf
from typing import Any

from companion.estimation.filter import Belief

ORDER = {"tick": 0, "attitude": 1, "velocity": 2, "position": 3, "marker": 4}  # at the same stamp
ENTRIES_MAX = 2000  # bound on memory and on one re-run, far above history_s times all sensor rates


class Entry:
    """A measurement and the belief after it (None: not run yet)."""

    __slots__ = ("key", "sensor", "data", "belief", "reported")

    def __init__(self, stamp_s: float, sensor: str, data: Any) -> None:
        self.key = (stamp_s, ORDER[sensor])
        self.sensor = sensor
        self.data = data
        self.belief: Belief | None = None
        self.reported = False

    @property
    def stamp_s(self) -> float:
        return self.key[0]


class History:
    """Ring buffer of measurements and beliefs.

    start: the belief everything begins with; depth_s: how late a measurement may be.
    """

    def __init__(self, start: Belief, depth_s: float) -> None:
        anchor = Entry(start.time_s, "tick", None)
        anchor.belief, anchor.reported = start.copy(), True
        self._entries = [anchor]
        self._keys = [anchor.key]  # of the entries, to search in
        self._depth_s = depth_s
        self._clean = 1  # entries before this index have a belief that still holds
        self.dropped_late = 0

    @property
    def newest(self) -> Belief:
        """The belief after the newest measurement, as of the last `run`; copy before changing it."""
        return self._entries[self._clean - 1].belief

    @property
    def newest_stamp_s(self) -> float:
        return self._entries[-1].stamp_s

    def __len__(self) -> int:
        return len(self._entries)

    def holds(self, entry: Entry) -> bool:
        """True when this measurement is already there (a repeated packet)."""
        at = bisect_left(self._keys, entry.key)
        return at < len(self._keys) and self._keys[at] == entry.key

    def fill_gap(self, now_s: float) -> None:
        """Without measurements for longer than the history, put in a tick, so that no step predicts for ever."""
        if now_s - self.newest_stamp_s > self._depth_s:
            self.insert(Entry(now_s - self._depth_s / 2, "tick", None), now_s)

    def insert(self, entry: Entry, now_s: float) -> bool:
        """Put a measurement in its place; False (and counted) when it is older than the history."""
        if entry.stamp_s < now_s - self._depth_s or entry.stamp_s < self._entries[0].stamp_s:
            self.dropped_late += 1
            return False
        at = max(1, bisect_right(self._keys, entry.key))
        self._entries.insert(at, entry)
        self._keys.insert(at, entry.key)
        self._clean = min(self._clean, at)
        return True

    def touch(self, stamp_s: float) -> None:
        """The inputs after stamp_s are not what they were: re-run what came later."""
        at = bisect_right(self._keys, (stamp_s, inf))
        self._clean = min(self._clean, max(1, at))

    def run(self, apply: Callable[[Belief, Entry], None]) -> None:
        """Bring all beliefs up to date; ``apply(belief, entry)`` moves a belief to the entry's time and updates it."""
        if self._clean == len(self._entries):
            return
        belief = self._entries[self._clean - 1].belief
        for entry in self._entries[self._clean :]:
            belief = belief.copy()
            apply(belief, entry)
            entry.belief = belief
        self._clean = len(self._entries)

    def forget(self, now_s: float) -> None:
        """Fold everything that no late measurement can reach into the anchor; call after `run`."""
        at = bisect_left(self._keys, (now_s - self._depth_s, -inf))
        drop = max(min(at, self._clean) - 1, len(self._entries) - ENTRIES_MAX, 0)
        if drop:
            del self._entries[:drop], self._keys[:drop]
            self._clean -= drop

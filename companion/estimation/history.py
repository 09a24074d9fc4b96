"""History of measurements and filter states: a late measurement is applied at the time when it was made.

The history is a list of measurements in the order of their stamps, each with the filter state right after it. A new
measurement is inserted at its place, and everything after it is run again with the inputs of its time. The result
therefore does not depend on the order of arrival. A measurement older than the history is dropped and counted.

Memory is bounded: only the newest entry older than `depth_s` is kept. It is the anchor from which the rest is run.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf

from companion.core.arrays import Array
from companion.core.enums import Sensor
from companion.estimation.filter_state import FilterState
from companion.estimation.observations import CheckedObservation
from companion.estimation.replay import ReplayedState

ORDER: dict[Sensor | None, int] = {  # of measurements with the same stamp
    None: 0,
    Sensor.ATTITUDE: 1,
    Sensor.VELOCITY: 2,
    Sensor.POSITION: 3,
    Sensor.SPECIFIC_FORCE: 4,
    Sensor.MARKER: 5,
}
ENTRIES_MAX = 2000  # bound on memory and on the time of one run, far above history_s times all sensor rates


@dataclass(slots=True)
class HistoryEntry:
    """A measurement; sensor None is a tick, which only moves the filter state to its time.

    part: distinguishes measurements of one sensor at one time. bundle: the further bundle that was observed, "": the mission's.
    unaided: a position of a flight controller that follows no satellites, as far as known when it arrived. lost: position or
    velocity of one that has none to follow, after it had.
    """

    stamp_s: float
    sensor: Sensor | None
    data: Array | CheckedObservation | None
    reported: bool = False  # its innovation was published
    nis: float | None = None  # of its innovation, per number; None: not used
    part: int = 0
    bundle: str = ""
    unaided: bool = False
    lost: bool = False
    packed: bytes | None = None  # for a replay, see `companion.estimation.replay`

    @property
    def key(self) -> tuple[float, float, int]:
        return (self.stamp_s, ORDER[self.sensor], self.part)


Replayer = Callable[[FilterState | ReplayedState, list[HistoryEntry]], list[ReplayedState]]


def _same(filter_state: FilterState) -> FilterState:
    return filter_state


class History:
    """Ring buffer of measurements and filter states.

    start: the first filter state; depth_s: largest delay of a measurement.
    """

    def __init__(self, start: FilterState, depth_s: float) -> None:
        anchor = HistoryEntry(start.time_s, None, None, reported=True)
        self._entries = [anchor]
        self._keys = [anchor.key]  # of the entries, for the search
        self._filter_states: list[FilterState | ReplayedState] = [
            start.copy()
        ]  # after the first entries, as far as they still hold; never empty
        self._depth_s = depth_s
        self.dropped_late = 0

    @property
    def newest(self) -> FilterState:
        """The filter state after the newest measurement, as of the last `run`; copy it before changing it."""
        newest = self._filter_states[-1]
        return newest.filter_state() if isinstance(newest, ReplayedState) else newest

    @property
    def last(self) -> FilterState | ReplayedState:
        """The same, as a replay begins with it."""
        return self._filter_states[-1]

    @property
    def newest_stamp_s(self) -> float:
        return self._entries[-1].stamp_s

    def __len__(self) -> int:
        return len(self._entries)

    def holds(self, entry: HistoryEntry) -> bool:
        """True when this measurement is already in the history (a repeated packet)."""
        key = entry.key
        at = bisect_left(self._keys, key)
        return at < len(self._keys) and self._keys[at] == key

    def fill_gap(self, now_s: float) -> None:
        """After a gap longer than the history, insert a tick: it bounds the time over which every step predicts."""
        if now_s - self.newest_stamp_s > self._depth_s:
            self.insert(HistoryEntry(now_s - self._depth_s / 2, None, None), now_s)

    def insert(self, entry: HistoryEntry, now_s: float) -> bool:
        """Insert a measurement at its place; False (and counted) when it is older than the history."""
        if entry.stamp_s < now_s - self._depth_s or entry.stamp_s < self._entries[0].stamp_s:
            self.dropped_late += 1
            return False
        key = entry.key
        at = max(1, bisect_right(self._keys, key))
        self._entries.insert(at, entry)
        self._keys.insert(at, key)
        del self._filter_states[at:]
        return True

    def invalidate_after(self, stamp_s: float) -> None:
        """Discard the filter states after stamp_s, because the inputs have changed; `run` computes them again."""
        at = bisect_right(self._keys, (stamp_s, inf))
        del self._filter_states[max(1, at) :]

    def run(self, apply: Callable[[FilterState, HistoryEntry], None], replay: Replayer | None = None) -> None:
        """Compute the filter states that are missing.

        ``apply(filter_state, entry)`` moves a filter state to the entry's time and updates it. ``replay(filter_state, entries)``
        may do the same for the first entries at once, and returns the states after those.
        """
        entries, states = self._entries, self._filter_states
        while len(states) < len(entries):
            if replay is not None and (replayed := replay(states[-1], entries[len(states) :])):
                states += replayed
                continue
            entry, filter_state = entries[len(states)], self.newest.copy()
            apply(filter_state, entry)
            states.append(filter_state)

    def discard_old(self, now_s: float) -> list[tuple[HistoryEntry, Callable[[], FilterState]]]:
        """Discard entries that are too old for any late measurement, except the newest of them; call after `run`.

        Returns them with the filter states after them, by a call: nothing can change these any more.
        """
        at = bisect_left(self._keys, (now_s - self._depth_s, -inf))
        drop = max(min(at, len(self._filter_states)) - 1, len(self._entries) - ENTRIES_MAX, 0)
        states = (
            s.filter_state if isinstance(s, ReplayedState) else partial(_same, s) for s in self._filter_states[:drop]
        )
        settled = list(zip(self._entries[:drop], states, strict=True))
        if drop:
            del self._entries[:drop], self._keys[:drop], self._filter_states[:drop]
        return settled

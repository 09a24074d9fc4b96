"""By how much more the range of a bundle changes than the aircraft moves along it: the witness of a print that shrinks.

A print of s times the size in the marker file is seen at k = 1/s times its distance. While it shrinks slowly the aircraft follows
it nearer, as it follows a bundle that goes away, and the velocity of the flight controller may be wrong by as much. But every sway
of the aircraft shows k: the range as seen changes k times as much. Sways are quicker than the errors of the velocity.

Changes over `LAG_S` of the range and of the way along the line of sight, each less a straight line in time over `WINDOW_S`, which
takes the slow errors, are compared by least squares. Noise of the way makes the result smaller, not larger. Along the line of
sight an error of the attitude does not count. A step of the range by another set of markers is left out.

A print that is known to be too small is found sooner by `companion.estimation.print_size`, in motion. In a hover that
test cannot correct k, and one that changes is no constant. The limits of this one: the aircraft must sway, by some millimetres in
half a second. Where the air is still, the controller, whose gain grows with k, makes it sway from k = 2 on.
"""

from collections import Counter, deque
from math import nan, sqrt
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.estimation.observations import MarkerId

BIN_S = 0.1  # observations of this time are averaged
LAG_S = 0.5  # over which changes are taken: sways of a hover last one to three seconds
WINDOW_S = 4.0  # of changes that are compared
USABLE_SHARE = 0.7  # of the changes of the window
SWAY_MIN_M = 0.006  # RMS of the way in `LAG_S`; below it the noise of the range is as large
# Changes that overlap are not independent: of 40 in a window, about so many are.
INDEPENDENT = 12
SIGMAS = 4.0


class _Bin(NamedTuple):
    """Averages of `BIN_S`."""

    stamp_s: float
    range_m: float
    travelled_W: Array
    towards_W: Array  # unit vector to the bundle
    markers: frozenset[MarkerId]


class RangeGain:
    """Takes observations in their order; `lower_bound` is what is known of k."""

    def __init__(self) -> None:
        self._group: list[tuple[float, Array, Array, frozenset[MarkerId]]] = []
        self._bins: deque[_Bin] = deque()
        self._changes: deque[tuple[float, float, float]] = deque()  # stamp, of the range, of the way towards the bundle
        self.lower_bound = nan  # of k, by `SIGMAS` standard deviations; NaN: unknown

    def add(self, stamp_s: float, range_W: Array, travelled_W: Array, markers: frozenset[MarkerId]) -> None:
        """An observation: from the aircraft to the bundle as seen, and the integral of the velocity [m]."""
        group = self._group
        if group and not 0.0 <= stamp_s - group[-1][0] <= LAG_S:
            self.interrupt()
        elif group and stamp_s - group[0][0] >= BIN_S - 0.01:
            self._close(group)
            self._group = []
        self._group.append((stamp_s, range_W, travelled_W, markers))

    def interrupt(self) -> None:
        """The flight controller corrects itself, or the bundle was out of sight: begin again."""
        self._group = []
        self._bins.clear()
        self._changes.clear()
        self.lower_bound = nan

    def _close(self, group: list[tuple[float, Array, Array, frozenset[MarkerId]]]) -> None:
        seen = Counter(markers for *_, markers in group).most_common(1)[0][0]  # one is missed in an image now and then
        stamps, ranges, travelled, _ = zip(*(row for row in group if row[3] == seen), strict=True)
        range_W = np.mean(ranges, axis=0)
        range_m = float(np.linalg.norm(range_W))
        new = _Bin(float(np.mean(stamps)), range_m, np.mean(travelled, axis=0), range_W / range_m, seen)
        self._bins.append(new)
        while self._bins[0].stamp_s < new.stamp_s - LAG_S - BIN_S / 2:
            self._bins.popleft()
        old = self._bins[0]
        if new.stamp_s - old.stamp_s > LAG_S - BIN_S and old.markers == new.markers:
            way_m = float(new.towards_W @ (new.travelled_W - old.travelled_W))
            self._changes.append((new.stamp_s, new.range_m - old.range_m, way_m))
        while self._changes and self._changes[0][0] < new.stamp_s - WINDOW_S:
            self._changes.popleft()
        self.lower_bound = self._compare()

    def _compare(self) -> float:
        changes = self._changes
        if len(changes) < USABLE_SHARE * WINDOW_S / BIN_S:
            return nan
        t, of_range, of_way = np.array(changes).T
        line = np.column_stack((np.ones(len(t)), t - t.mean()))
        both = np.column_stack((of_range, -of_way))
        both = both - line @ np.linalg.lstsq(line, both, rcond=None)[0]
        (range2, product), (_, way2) = both.T @ both / len(t)
        if way2 < SWAY_MIN_M**2:
            return nan
        gain = product / way2
        rest2 = max(range2 - gain * product, 0.0)
        return float(gain - SIGMAS * sqrt(rest2 / way2 / INDEPENDENT))

"""Bundles as witnesses of each other: bundles that stand still keep their places relative to each other.

The vector d_W from one bundle to another in the flight controller's world is learned when both are first seen in a
flight, each as place = x + R(q_WB) p_BM (`companion.estimation.witnesses`). In a common image x cancels; bundles that
are not in a common image are compared for `HIDDEN_S`, while the error of the integrated velocity is small. When d_W
leaves what was learned, a bundle has moved, was exchanged or has another size. Two bundles cannot tell which of them:
neither is used while they disagree. Of three or more, a bundle is not used that disagrees with more of the others than
it agrees with.

Unlike the place of one bundle, d_W does not follow slow changes. It is learned once more when its error is much
smaller, because the errors of the sizes are in proportion to the range. What was learned before counts on: a bundle
that goes away while the aircraft comes nearer contradicts the first of them.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import combinations
from math import hypot
from statistics import median
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.estimation.given_up import ESTABLISHED_COUNT, ESTABLISHED_S, HIDDEN_S
from companion.estimation.witnesses import (
    DISPLACED_RUN,
    DISPLACED_SHARE,
    GAP_MAX_S,
    TOLERANCE_SIGMAS,
    VELOCITY_ERROR_M_S,
    VELOCITY_ERROR_OF_SPEED,
    WINDOW_S,
    Observed,
)

# Timing, corners (0.6 px move a bundle 6 m away by 2 cm) and a heading or tilt that changes: 5° turn bundles that are
# 3 m apart by 0.26 m.
TOLERANCE_M = 0.3
# Prints 3 % too large or too small, each bundle and each set of its markers on its own: this share of both ranges, when
# d_W was learned and now. With equal ranges together 6 % of their sum.
SIZE_OF_RANGE = 0.03
BETTER = 0.7  # d_W is learned once more when its error is below this share of the smallest before


class BundlesApart(NamedTuple):
    """The largest contradiction between two bundles."""

    apart_m: float = 0.0  # change of the distance vector between the two; 0 while all agree
    bundles: tuple[str, ...] = ()


class _Relation(NamedTuple):
    """The place of a bundle relative to another."""

    stamp_s: float
    d_W: Array
    error_m: float  # the largest


def _beyond(known: _Relation, seen: _Relation) -> tuple[float, float]:
    """(how far the change is beyond its tolerance, the change) [m]."""
    apart_m = hypot(*(seen.d_W - known.d_W).tolist())
    return apart_m - TOLERANCE_M - known.error_m - seen.error_m, apart_m


class _Pair:
    """What was learned about two bundles, and the last seconds."""

    def __init__(self) -> None:
        self._known: list[_Relation] = []  # with decreasing errors
        self._learning: list[_Relation] = []
        self._recent: deque[tuple[float, float]] = deque()  # (stamp, how far apart: 0 when within the tolerance)
        self._run = 0  # disagreements in a row

    def agrees(self, seen: _Relation) -> bool | None:
        """None while nothing is known."""
        if not self._known:
            self._learn(seen)
            return None
        beyond_m, apart_m = max(_beyond(known, seen) for known in self._known)
        agrees = beyond_m <= 0.0
        self._run = 0 if agrees else self._run + 1
        self._recent.append((seen.stamp_s, 0.0 if agrees else apart_m))
        if agrees and seen.error_m < BETTER * self._known[-1].error_m:
            self._learn(seen)
        else:
            self._learning = []
        return agrees

    def _learn(self, seen: _Relation) -> None:
        learning = self._learning
        if learning and not 0 <= seen.stamp_s - learning[-1].stamp_s <= GAP_MAX_S:
            learning.clear()
        learning.append(seen)
        if len(learning) < ESTABLISHED_COUNT or seen.stamp_s - learning[0].stamp_s < ESTABLISHED_S:
            return
        d_W = np.median([s.d_W for s in learning], axis=0)
        self._known.append(_Relation(seen.stamp_s, d_W, max(s.error_m for s in learning)))
        self._learning = []

    def apart_m(self, now_s: float) -> float:
        """Median of the last seconds; 0 where the disagreements are few."""
        recent = self._recent
        while recent and recent[0][0] < now_s - WINDOW_S:
            recent.popleft()
        apart_m = [a for _, a in recent if a > 0]
        often = self._run >= DISPLACED_RUN or len(apart_m) > DISPLACED_SHARE * len(recent)
        return median(apart_m) if len(apart_m) >= DISPLACED_RUN and often else 0.0


class BundlePairs:
    """Judges the observations of several bundles by each other, see the module."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, str], _Pair] = {}
        self._last: dict[str, Observed] = {}
        self._contradicted: dict[str, bool] = {}  # by the last image that was clear
        self._breaks = 0

    def forget(self) -> None:
        """On the ground a crew may place bundles again: the next sight is the first."""
        self._pairs.clear()
        self._last.clear()
        self._contradicted.clear()

    def contradicting(self, image: Mapping[str, Observed], unclear: Iterable[str], breaks: int) -> frozenset[str]:
        """Names of the bundles of one image that must not be used.

        unclear: bundles of the image whose place is ambiguous: the last judgement counts. breaks: `PlaceWitness.breaks`.
        """
        if breaks != self._breaks:  # the integrated velocity begins again
            self._last.clear()
            self._breaks = breaks
        for name, seen in image.items():
            self._last[name] = seen
        balance = dict.fromkeys(image, 0)
        for a, b in combinations(sorted(self._last), 2):
            first, second = self._last[a], self._last[b]
            apart_s = abs(second.stamp_s - first.stamp_s)
            if (a not in image and b not in image) or apart_s > HIDDEN_S:
                continue
            agrees = self._pairs.setdefault((a, b), _Pair()).agrees(_relation(first, second, apart_s))
            if agrees is not None:
                for name in (a, b):
                    if name in balance:
                        balance[name] += 1 if agrees else -1
        self._contradicted |= {name: votes < 0 for name, votes in balance.items()}
        return frozenset(name for name in (*image, *unclear) if self._contradicted.get(name, False))

    def report(self, now_s: float) -> BundlesApart:
        """The pair that has gone apart most."""
        apart = (BundlesApart(pair.apart_m(now_s), names) for names, pair in self._pairs.items())
        worst = max(apart, key=lambda a: a.apart_m, default=BundlesApart())
        return worst if worst.apart_m > 0 else BundlesApart()


def _relation(first: Observed, second: Observed, apart_s: float) -> _Relation:
    ranges_m = first.range_m + second.range_m
    speed_m_s = max(first.speed_m_s, second.speed_m_s)
    velocity_error_m_s = VELOCITY_ERROR_M_S + VELOCITY_ERROR_OF_SPEED * speed_m_s
    return _Relation(
        max(first.stamp_s, second.stamp_s),
        second.by_velocity_W - first.by_velocity_W,
        hypot(SIZE_OF_RANGE * ranges_m, TOLERANCE_SIGMAS * hypot(first.std_m, second.std_m))
        + velocity_error_m_s * apart_s,
    )

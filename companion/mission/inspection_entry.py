"""With which stop an inspection goes on where a pilot hands it over: one that leads to the first station, or that station.

The stops that lead there go around what no surface of the plan shows: the edge of a deck, a parapet, trees. The straight way
from beside the station to the first of them may lead through it, and so may that to the station itself: two metres above a
deck are near a station below it. Only the way that was flown shows on which side of it the aircraft is.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from companion.core.arrays import Array
from companion.core.trajectory_messages import Vec3

BESIDE_M = 5.0  # from the station; from farther away a flight comes over all stops that lead there
PASSED_M = 2.0  # from a place that a pilot has flown over: his eye is no better
STRAIGHT_SHARE, STRAIGHT_M = 1.2, 2.0  # of the straight way, and more: a flown way up to this long goes around nothing
SAMPLED_M = 0.25


def entry_of(leads: Sequence[Vec3], station: Vec3, way: Sequence[Vec3], before: Vec3 | None = None) -> int | None:
    """Index of the place of [*leads, station] to which the aircraft flies straight on; None: in doubt.

    leads: places of the stops that lead to the station, one at least. way: flown from the take-off point to where the aircraft
    is. before: the station before this one, where this one is not the first. All in W [m].
    """
    here = way[-1]
    away_m = [math.dist(here, place) for place in (*leads, station)]
    nearest, beside = away_m.index(min(away_m)), away_m[-1] <= BESIDE_M
    last = _straight_from(way, leads, before)
    if last is not None and beside and nearest == len(leads):
        return len(leads)
    if last == leads[-1]:
        return len(leads) - 1  # back over what was flown; the first ones may be behind what they lead around
    if beside and nearest > 0 and not _goes_around_nothing(way):
        return None
    return 0


def _straight_from(way: Sequence[Vec3], leads: Sequence[Vec3], before: Vec3 | None) -> Vec3 | None:
    """The last of the leads, or the station before, from which the way has gone straight on; None: from neither.

    It must have passed all leads in their order.
    """
    points, passed = _sampled(way), 0
    for place in leads:
        near = np.flatnonzero(np.linalg.norm(points[passed:] - place, axis=1) <= PASSED_M)
        if not len(near):
            return None
        passed += int(near[0])
    left: dict[int, Vec3] = {}  # when each was left for the last time
    for place in (leads[-1],) if before is None else (leads[-1], before):
        near = np.flatnonzero(np.linalg.norm(points[passed:] - place, axis=1) <= PASSED_M)
        left |= {passed + int(near[-1]): place} if len(near) else {}
    since = max(left)
    flown_m = float(np.linalg.norm(np.diff(points[since:], axis=0), axis=1).sum())
    straight = flown_m <= STRAIGHT_SHARE * math.dist(points[since], points[-1]) + 0.5 * STRAIGHT_M
    return left[since] if straight else None


def _goes_around_nothing(way: Sequence[Vec3]) -> bool:
    """Neither around something nor over or under it; up and then out, as after each take-off, is straight."""
    (x0, y0, z0), (x1, y1, z1) = way[0], way[-1]
    across_m = sum(math.dist(a[:2], b[:2]) for a, b in pairwise(way))
    up_down_m = sum(abs(b[2] - a[2]) for a, b in pairwise(way))
    straight_m = math.hypot(x1 - x0, y1 - y0)
    return across_m <= STRAIGHT_SHARE * straight_m + STRAIGHT_M and up_down_m <= abs(z1 - z0) + STRAIGHT_M


def _sampled(way: Sequence[Vec3]) -> Array:
    """Points along a polyline, (n, 3)."""
    legs = [np.linspace(a, b, max(2, math.ceil(math.dist(a, b) / SAMPLED_M) + 1)) for a, b in pairwise(way)]
    return np.concatenate(legs) if legs else np.array(way)

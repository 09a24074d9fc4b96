"""The way that an aircraft has flown since its take-off: the only one that is known to be free of obstacles.

A pilot flies around a pier, the edge of a deck or trees before the hand-over. The straight line home may lead through
them, so this stack flies back where the pilot came from.
"""

import math

import numpy as np

from companion.core.arrays import Array
from companion.core.trajectory_messages import Vec3

STEP_M = 0.5  # between two points that are kept
LOOP_M = 1.0  # a way that comes so near to an earlier point of itself is cut there: detours are not flown back
POINTS_MAX = 4000  # then it is simplified: 2 km of way take 0.1 s of a search for loops
TAKEOFF_M = 1.0  # nearer to the height of the take-off point, and beside it, a way belongs to the take-off
DEVIATION_M = 0.5  # of the simplified way from the flown one


class FlownWay:
    """Points relative to the take-off point [m], first to last."""

    def __init__(self) -> None:
        self._points = np.empty((0, 3))

    def begin(self) -> None:
        """The aircraft stands at its take-off point."""
        if len(self._points):
            self._points = np.empty((0, 3))

    def take(self, p: Vec3) -> None:
        """Where the aircraft is now."""
        point, points = np.array(p), self._points
        if len(points):
            if np.linalg.norm(point - points[-1]) < STEP_M:
                return
            near = np.flatnonzero(np.linalg.norm(points - point, axis=1) < LOOP_M)
            points = points[: near[0] + 1] if len(near) else points
        if len(points) >= POINTS_MAX:
            points = simplified(points, DEVIATION_M)
        self._points = np.vstack([points, point])

    def after_takeoff(self) -> list[Vec3]:
        """The way in few straight legs, without the take-off itself: from the first point on that is high or low.

        A pilot may fly out over the edge of a deck and go down beside it. Then the way to the edge is kept, too, no lower than
        `TAKEOFF_M`: by the estimate it may be on the ground. Before a climb it is dropped, because the end of the way home is
        over the take-off point.
        """
        way = self.simplified()
        begin = next((i for i, (_, _, z) in enumerate(way) if abs(z) > TAKEOFF_M), len(way))
        if begin == len(way) or way[begin][2] > 0.0:
            return way[begin:]
        aside = [(x, y, max(z, TAKEOFF_M)) for x, y, z in way[:begin] if math.hypot(x, y) >= TAKEOFF_M]
        return [*aside, *way[begin:]]

    def simplified(self) -> list[Vec3]:
        """The way in few straight legs, at most `DEVIATION_M` beside the flown one."""
        return [(float(x), float(y), float(z)) for x, y, z in simplified(self._points, DEVIATION_M)]


def simplified(points: Array, deviation_m: float) -> Array:
    """The points of a polyline, (n, 3), without those that a straight leg passes within `deviation_m`.

    Ramer (1972), Douglas and Peucker (1973): the point farthest from the leg between two kept ones is kept, too.
    """
    if len(points) < 3:
        return points
    kept = {0, len(points) - 1}
    legs = [(0, len(points) - 1)]
    while legs:
        first, last = legs.pop()
        if last - first < 2:
            continue
        leg, beside = points[last] - points[first], points[first + 1 : last] - points[first]
        share = np.clip(beside @ leg / max(float(leg @ leg), 1e-12), 0.0, 1.0)
        away_m = np.linalg.norm(beside - share[:, None] * leg, axis=1)
        farthest = int(np.argmax(away_m))
        if away_m[farthest] > deviation_m:
            middle = first + 1 + farthest
            kept.add(middle)
            legs += [(first, middle), (middle, last)]
    return points[sorted(kept)]

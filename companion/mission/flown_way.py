"""The way that an aircraft has flown since its take-off: the only one that is known to be free of obstacles.

A pilot flies around a pier, the edge of a deck or trees before the hand-over. The straight line home may lead through
them, so this stack flies back where the pilot came from.
"""

import numpy as np

from companion.core.arrays import Array
from companion.core.trajectory_messages import Vec3

STEP_M = 0.5  # between two points that are kept
LOOP_M = 1.0  # a way that comes so near to an earlier point of itself is cut there: detours are not flown back
POINTS_MAX = 4000  # then it is simplified: 2 km of way take 0.1 s of a search for loops
TAKEOFF_M = 1.0  # nearer to the height of the take-off point a way is low: by the estimate it may be on the ground
CREW_M = 3.0  # around the take-off point, where a crew stands: what is low there belongs to the take-off
EDGE_M = 1.0  # the same where the pilot went down: the edge of a deck may be as near
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
        """The way in few straight legs, without the take-off itself.

        A pilot may fly low under branches or around a pier before he climbs, or out over the edge of a deck and down beside it.
        That is kept, no lower than `TAKEOFF_M`, from where it last left the surroundings of the take-off point.
        """
        points, corners = self._points, _corners(self._points, DEVIATION_M)
        begins = next((n for n, i in enumerate(corners) if abs(points[i, 2]) > TAKEOFF_M), len(corners))
        high = corners[begins:]
        radius_m = EDGE_M if high and points[high[0], 2] < 0.0 else CREW_M
        before = points[: high[0]] if high else points
        around = np.flatnonzero(np.hypot(before[:, 0], before[:, 1]) < radius_m)
        low = before[around[-1] + 1 :] if len(around) else before
        low = np.array(low[low[:, 2] <= TAKEOFF_M])  # without the climb to the first high corner
        low[:, 2] = np.maximum(low[:, 2], TAKEOFF_M)
        return _vec3s(np.vstack([simplified(low, DEVIATION_M), points[high]]))

    def simplified(self) -> list[Vec3]:
        """The way in few straight legs, at most `DEVIATION_M` beside the flown one."""
        return _vec3s(simplified(self._points, DEVIATION_M))


def simplified(points: Array, deviation_m: float) -> Array:
    """The points of a polyline, (n, 3), without those that a straight leg passes within `deviation_m`."""
    return points[_corners(points, deviation_m)]


def _corners(points: Array, deviation_m: float) -> list[int]:
    """Which points of a polyline are kept.

    Ramer (1972), Douglas and Peucker (1973): the point farthest from the leg between two kept ones is kept, too.
    """
    if len(points) < 3:
        return list(range(len(points)))
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
    return sorted(kept)


def _vec3s(points: Array) -> list[Vec3]:
    return [(float(x), float(y), float(z)) for x, y, z in points]

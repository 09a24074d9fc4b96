"""Metres east, north and up from latitude, longitude and altitude, for distances that a multirotor flies.

A process that begins in flight has another first fix than the others. What is published is therefore absolute
(`FcuStatus.gnss_position`), and each consumer counts from a place of its own.
"""

import math

from companion.core.messages import FcuStatus
from companion.core.trajectory_messages import Vec3

EARTH_RADIUS_M = 6_371_000.0
RENEW_M = 1000.0  # farther from it the origin is taken again, where a length east differs by up to 3e-4 of itself


class LocalFrame:
    """Positions of the receiver in metres, continuous; the axes are those of the world.

    East is scaled by the cosine of the mean latitude of origin and position. Beyond `RENEW_M` the position becomes the
    origin, so that the scale is right also after a first fix that was far away.
    """

    def __init__(self) -> None:
        self._origin: Vec3 | None = None  # latitude, longitude [°], altitude [m]
        self._origin_m: Vec3 = (0.0, 0.0, 0.0)

    def metres(self, position: Vec3) -> Vec3:
        """East, north and up of the first position [m]. position: latitude, longitude [°], altitude [m]; finite."""
        if self._origin is None:
            self._origin = position
        east, north, up = between(self._origin, position)
        x, y, z = self._origin_m
        here = (x + east, y + north, z + up)
        if math.hypot(east, north) > RENEW_M:
            self._origin, self._origin_m = position, here
        return here

    def received(self, status: FcuStatus) -> Vec3 | None:
        """The receiver's solution of a status [m]; None: no fix. A log from before `gnss_position` has metres."""
        if status.gnss_position is None:
            return status.gnss_p_W
        return self.metres(status.gnss_position) if all(map(math.isfinite, status.gnss_position)) else None


def between(origin: Vec3, position: Vec3) -> Vec3:
    """East, north and up [m] from one place to another, each latitude, longitude [°] and altitude [m]."""
    degrees_east = (position[1] - origin[1] + 180.0) % 360.0 - 180.0  # across 180° east, too
    east_m = math.radians(degrees_east) * EARTH_RADIUS_M * math.cos(math.radians((origin[0] + position[0]) / 2))
    return east_m, math.radians(position[0] - origin[0]) * EARTH_RADIUS_M, position[2] - origin[2]

"""Home: set on arming, at take-off or by a command; on the ground it follows a position estimate that drifts away.

As PX4 1.17 (`HomePosition.cpp`).
"""

import math

from sitl.autopilot.conversion import Vec3, Vector
from sitl.autopilot.observer import Observer

CHANGE_HORIZONTAL_M, CHANGE_VERTICAL_M = 1.0, 1.5  # smaller distances do not move it


class Home:
    """``p_W``: ENU [m], None until it is set; ``yaw``: heading of the aircraft there [rad]."""

    def __init__(self) -> None:
        self.p_W: Vec3 | None = None
        self.yaw = 0.0
        self.by_command = False

    def put(self, p_W: Vector, yaw: float, by_command: bool) -> None:
        """Set home; by_command: to a position that a ground station sent."""
        x, y, z = p_W
        self.p_W, self.yaw, self.by_command = (x, y, z), yaw, by_command

    def outdated(self, standing: bool, observer: Observer, now_s: float) -> bool:
        """Whether the present position should become home.

        standing: on the ground with a valid position. A home that was not set by a command moves when the estimate is
        away from it by more than twice its own standard deviation.
        """
        if self.p_W is None:
            return True
        if not standing or self.by_command:
            return False
        east, north, up = (here - there for here, there in zip(observer.p, self.p_W, strict=True))
        horizontal_m = max(2 * observer.position_std_m(now_s), CHANGE_HORIZONTAL_M)
        vertical_m = max(2 * observer.gains[2].position_std, CHANGE_VERTICAL_M)
        return math.hypot(east, north) > horizontal_m or abs(up) > vertical_m

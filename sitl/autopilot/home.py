"""Home on the ground: PX4 lets it follow a position estimate that drifts away (`HomePosition.cpp`)."""

import math

from sitl.autopilot.observer import Observer

CHANGE_HORIZONTAL_M, CHANGE_VERTICAL_M = 1.0, 1.5  # less is no reason to move it


def has_left(home: tuple[float, float, float], observer: Observer, now_s: float) -> bool:
    """Whether the estimate stands beside home (ENU) by more than twice its own standard deviation."""
    east, north, up = (here - there for here, there in zip(observer.p, home, strict=True))
    horizontal_m = max(2 * observer.position_std_m(now_s), CHANGE_HORIZONTAL_M)
    vertical_m = max(2 * observer.gains[2].position_std, CHANGE_VERTICAL_M)
    return math.hypot(east, north) > horizontal_m or abs(up) > vertical_m

"""The independent guard of a flight without satellites: the height by the barometer alone.

It takes the place of `companion.mission.raw_guard.RawGuard` where the flight controller has no horizontal position. Its
height is by pressure and uses nothing of the filter; there is nothing independent for the horizontal position, and the
monitors that need one are not evaluated. The record is the median height of the last second on the ground.
"""

import math
from collections import deque
from statistics import median

from companion.core.messages import FcuPosition, FcuStatus, State
from companion.mission.raw_guard import MARGIN_MIN_M, RECORD_S, RawMotion

HEIGHT_AGE_S = 1.0  # ALTITUDE and the status that carries it come ten times a second
NAN = math.nan


class HeightGuard:
    """Takes messages as they arrive; `motion` is what the monitors evaluate."""

    reset_m = 0.0  # of a position there are no resets

    def __init__(self) -> None:
        self._height: tuple[float, float] | None = None  # stamp, by pressure
        self._on_ground: deque[tuple[float, float]] = deque()
        self._stood_m: float | None = None

    def take_state(self, state: State) -> None:
        """The filter's state is no witness."""

    def take_position(self, position: FcuPosition) -> None:
        """There is none."""

    def take_status(self, status: FcuStatus, now_s: float) -> None:
        """A status of a connected flight controller."""
        if math.isfinite(status.baro_altitude_m):
            self._height = (status.stamp_s, status.baro_altitude_m)

    def note_ground(self) -> None:
        """The aircraft stands disarmed: take the record again."""
        if self._height is None or (self._on_ground and self._height[0] <= self._on_ground[-1][0]):
            return
        self._on_ground.append(self._height)
        while self._on_ground[0][0] < self._height[0] - RECORD_S:
            self._on_ground.popleft()
        self._stood_m = median(height_m for _, height_m in self._on_ground)

    def note_start(self) -> None:
        """The mission takes the aircraft."""

    def motion(self, now_s: float) -> RawMotion | None:
        """The height over the record, the other numbers NaN; None: not known."""
        if self._height is None or self._stood_m is None or now_s - self._height[0] > HEIGHT_AGE_S:
            return None
        return RawMotion((NAN, NAN, self._height[1] - self._stood_m), (NAN, NAN, NAN), math.inf, MARGIN_MIN_M)

    def missing(self, now_s: float) -> str:
        """Why there is no `motion`, for the crew; "" while there is one."""
        if self.motion(now_s) is not None:
            return ""
        return (
            "no height by pressure" if self._stood_m is not None else "no record of the place where the motors started"
        )

    def velocity_difference_m_s(self, now_s: float) -> float | None:
        """Nothing measures the velocity besides the filter."""
        return None

    def position_age_s(self, now_s: float) -> float:
        """There is no position."""
        return math.inf

    def climb(self, now_s: float) -> tuple[float, float] | None:
        """PX4 flies no take-off in such a flight."""
        return None

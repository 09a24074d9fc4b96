"""Whether a bundle stays at its height, by the barometer of the flight controller.

The filter takes a bundle that slides down slowly for an error of the flight controller's height, and the aircraft follows it
to the ground. Neither the satellites' limit of several metres nor any velocity shows that; the barometer does.
"""

from math import inf, isfinite, nan, sqrt

SMOOTH_S = 5.0  # the pressure at the sensor changes with gusts
LEARN_S = 2.0  # of the first sight
# What the pressure explains: 8 m/s of wind on a static port are about 1 m, warming up and the weather 0.9 m in a quarter of an
# hour. From a hold 3 m high the aircraft is found 1 m over the ground; a larger limit would be found on it.
EXPLAINED_M, EXPLAINED_M_SQRT_S = 1.5, 0.03


class HeightWitness:
    """Compares a bundle's height by the barometer with that at its first sight in offboard."""

    def __init__(self) -> None:
        self._since_s = inf
        self._last_s = -inf
        self._first_m = self._height_m = nan

    def add(self, stamp_s: float, height_m: float) -> None:
        """height_m: of the bundle, barometric altitude of the aircraft plus the vertical part of the range."""
        if not isfinite(height_m) or stamp_s <= self._last_s:
            return
        self._since_s = min(self._since_s, stamp_s)
        learning = stamp_s - self._since_s <= LEARN_S
        time_s = max(stamp_s - self._since_s, 0.1) if learning else SMOOTH_S
        share = min(1.0, (stamp_s - self._last_s) / time_s)
        self._height_m = (
            height_m if not isfinite(self._height_m) else self._height_m + share * (height_m - self._height_m)
        )
        self._last_s = stamp_s
        if learning:
            self._first_m = self._height_m

    def offset_m(self, now_s: float) -> tuple[float, float]:
        """How far the bundle has risen or sunk, and the largest change that the pressure explains [m]; NaN: unknown."""
        if not self._last_s - self._since_s > LEARN_S:
            return nan, nan
        return abs(self._height_m - self._first_m), EXPLAINED_M + EXPLAINED_M_SQRT_S * sqrt(
            max(0.0, now_s - self._since_s)
        )

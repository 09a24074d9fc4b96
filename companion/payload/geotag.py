"""Latitude, longitude and altitude of a photograph.

The flight controller reports its position in metres from an origin that it fixed at its start, and the receiver's own
solution in degrees. Their difference, averaged over the flight, is the place of that origin: the noise of the receiver
averages out. The stack's world has the same origin.

A flight controller that starts again fixes another origin. The mean begins again when it was away or its clock has another
start, when its position was reset, and where several samples in a row are far from the mean.
"""

import math

from companion.core.geodesy import EARTH_RADIUS_M, between
from companion.core.messages import FcuPosition, FcuStatus
from companion.core.trajectory_messages import Vec3

POSITION_AGE_MAX_S = 0.3
SAMPLES_MAX = 600  # a minute at 10 Hz, after which older samples fade
SAMPLES_MIN = 20  # of a mean that counts
FAR_SAMPLES = 10  # in a row: the origin is another one
FAR_STDS, FAR_MIN_M = 6.0, 5.0  # across, of the receiver's standard deviation, but not less: a receiver's error wanders
RESTART_S = (
    1.0  # by which the start of the flight controller's clock moves at a restart, and not by TIMESYNC's corrections
)


class Georeference:
    """Where the origin of the world is on the earth."""

    def __init__(self) -> None:
        self._position: FcuPosition | None = None
        self._first: Vec3 | None = None
        self._mean: Vec3 = (0.0, 0.0, 0.0)  # east, north, up from `_first` to the origin
        self._samples = 0
        self._far = 0  # samples in a row
        self._boot_s = math.nan  # the start of the flight controller's clock
        self._resets: int | None = None
        self._gnss_s = -math.inf
        self.h_std_m = self.v_std_m = math.nan  # as the receiver reports them

    def put_position(self, position: FcuPosition) -> None:
        """Take the flight controller's position."""
        if position.valid:
            self._position = position

    def put_status(self, status: FcuStatus) -> None:
        """Take the receiver's solution, if it is a new one."""
        if self._has_another_origin(status):
            self._begin_again()
            self._position = None  # of before
        position, gnss = self._position, status.gnss_position
        if position is None or gnss is None or not status.gnss_ok or not all(map(math.isfinite, gnss)):
            return
        if status.gnss_s == self._gnss_s or abs(status.stamp_s - position.stamp_s) > POSITION_AGE_MAX_S:
            return
        self._gnss_s, self.h_std_m, self.v_std_m = status.gnss_s, status.gnss_h_acc_m, status.gnss_v_acc_m
        if self._first is None:
            self._first = gnss
        away = between(self._first, gnss)
        sample = [a - p for a, p in zip(away, position.p_W, strict=True)]
        if self._samples and math.dist(sample[:2], self._mean[:2]) > self._far_m():
            self._far += 1
            if self._far >= FAR_SAMPLES:
                self._begin_again()
            return
        self._far = 0
        self._samples = min(self._samples + 1, SAMPLES_MAX)
        east, north, up = (m + (s - m) / self._samples for m, s in zip(self._mean, sample, strict=True))
        self._mean = (east, north, up)

    def _has_another_origin(self, status: FcuStatus) -> bool:
        """It was away, has started again, or its estimator has reset its position."""
        if not status.connected:
            return True
        boot_s, resets = status.timesync_offset_s, status.position_resets
        started = math.isfinite(boot_s) and math.isfinite(self._boot_s) and abs(boot_s - self._boot_s) > RESTART_S
        reset = resets is not None and self._resets is not None and resets != self._resets
        self._boot_s = boot_s if math.isfinite(boot_s) else self._boot_s
        self._resets = self._resets if resets is None else resets
        return started or reset

    def _far_m(self) -> float:
        """From the mean, beyond which a sample is not of its origin."""
        std_m = self.h_std_m if math.isfinite(self.h_std_m) else 0.0
        return max(FAR_MIN_M, FAR_STDS * std_m)

    def _begin_again(self) -> None:
        self._first, self._mean, self._samples, self._far = None, (0.0, 0.0, 0.0), 0, 0

    def place(self, p_W: Vec3) -> Vec3 | None:
        """Latitude, longitude [°] and altitude over mean sea level [m] of a point; None while not known."""
        if self._first is None or self._samples < SAMPLES_MIN:
            return None
        east, north, up = (m + p for m, p in zip(self._mean, p_W, strict=True))
        return offset(self._first, east, north, up)


def offset(origin: Vec3, east_m: float, north_m: float, up_m: float) -> Vec3:
    """The place at a distance from another; the inverse of `companion.core.geodesy.between`."""
    latitude = origin[0] + math.degrees(north_m / EARTH_RADIUS_M)
    scale = EARTH_RADIUS_M * math.cos(math.radians(0.5 * (origin[0] + latitude)))
    longitude = origin[1] + math.degrees(east_m / scale)
    return latitude, (longitude + 180.0) % 360.0 - 180.0, origin[2] + up_m

"""Latitude, longitude and altitude of a photograph.

The flight controller reports its position in metres from an origin that it fixed at its start, and the receiver's own
solution in degrees. Their difference, averaged over the flight, is the place of that origin: the noise of the receiver
averages out. The stack's world has the same origin.

A flight controller that starts again fixes another origin. The mean begins again when it was away or its clock has another
start, and when its position has jumped, which is how a reset of its estimator shows. A sample far from the mean is an error
of the receiver at first: it is left out. Only where all samples of `FAR_S` are far does their mean replace the former one,
which counts until then.
"""

import math

from companion.core.geodesy import EARTH_RADIUS_M, between
from companion.core.messages import FcuPosition, FcuStatus
from companion.core.trajectory_messages import Vec3

POSITION_AGE_MAX_S = 0.3
SAMPLES_MAX = 600  # a minute at 10 Hz, after which older samples fade
SAMPLES_MIN = 20  # of a mean that counts
FAR_S = 30.0  # of far samples alone: longer than a receiver's error after a shadow or a reflection usually lasts
FAR_STDS = 6.0  # of the receiver's standard deviation, across and in height apart, but not less than:
FAR_MIN_M, FAR_UP_MIN_M = (
    5.0,
    10.0,
)  # a receiver's error wanders, in height twice as far; so does the pressure of the air
JUMP_M, JUMP_M_S2 = 1.0, 5.0  # of the position, beyond the way by its velocities; an acceleration between two positions
RESTART_S = (
    1.0  # by which the start of the flight controller's clock moves at a restart, and not by TIMESYNC's corrections
)


class _Mean:
    """Of the differences between the receiver and the flight controller's position."""

    def __init__(self, gnss: Vec3, stamp_s: float) -> None:
        self.first, self.since_s = gnss, stamp_s
        self.samples = 0
        self._mean: Vec3 = (0.0, 0.0, 0.0)  # east, north, up from `first` to the origin

    def _sample(self, gnss: Vec3, p_W: Vec3) -> Vec3:
        east, north, up = (a - p for a, p in zip(between(self.first, gnss), p_W, strict=True))
        return east, north, up

    def has_near(self, gnss: Vec3, p_W: Vec3, across_m: float, up_m: float) -> bool:
        """A sample is within these distances, across and in height. The first one always is."""
        if not self.samples:
            return True
        sample = self._sample(gnss, p_W)
        return math.dist(sample[:2], self._mean[:2]) <= across_m and abs(sample[2] - self._mean[2]) <= up_m

    def add(self, gnss: Vec3, p_W: Vec3) -> None:
        self.samples = min(self.samples + 1, SAMPLES_MAX)
        sample = self._sample(gnss, p_W)
        east, north, up = (m + (s - m) / self.samples for m, s in zip(self._mean, sample, strict=True))
        self._mean = (east, north, up)

    def place(self, p_W: Vec3) -> Vec3:
        east, north, up = (m + p for m, p in zip(self._mean, p_W, strict=True))
        return offset(self.first, east, north, up)


class Georeference:
    """Where the origin of the world is on the earth."""

    def __init__(self) -> None:
        self._position: FcuPosition | None = None
        self._mean: _Mean | None = None
        self._far: _Mean | None = None  # of the samples since the last one near the mean
        self._boot_s = math.nan  # the start of the flight controller's clock
        self._gnss_s = -math.inf
        self.h_std_m = self.v_std_m = math.nan  # as the receiver reports them

    def put_position(self, position: FcuPosition) -> None:
        """Take the flight controller's position."""
        if not position.valid or not all(map(math.isfinite, position.p_W)):
            return
        if self._position is not None and _has_jumped(self._position, position):
            self._begin_again()
        self._position = position

    def put_status(self, status: FcuStatus) -> None:
        """Take the receiver's solution, if it is a new one."""
        if self._has_started_again(status):
            self._begin_again()
            self._position = None  # of before
        position, gnss = self._position, status.gnss_position
        if position is None or gnss is None or not status.gnss_ok or not all(map(math.isfinite, gnss)):
            return
        if status.gnss_s == self._gnss_s or abs(status.stamp_s - position.stamp_s) > POSITION_AGE_MAX_S:
            return
        self._gnss_s, self.h_std_m, self.v_std_m = status.gnss_s, status.gnss_h_acc_m, status.gnss_v_acc_m
        self._take(gnss, position.p_W, status.stamp_s)

    def _take(self, gnss: Vec3, p_W: Vec3, now_s: float) -> None:
        """Take a sample for the mean, or, where it is far from it, for the one that may replace it."""
        if self._mean is None:
            self._mean = _Mean(gnss, now_s)
        limits_m = _far_m(self.h_std_m, FAR_MIN_M), _far_m(self.v_std_m, FAR_UP_MIN_M)
        if self._mean.has_near(gnss, p_W, *limits_m):
            self._far = None
            self._mean.add(gnss, p_W)
            return
        if self._far is None or not self._far.has_near(gnss, p_W, *limits_m):
            self._far = _Mean(gnss, now_s)
        self._far.add(gnss, p_W)
        in_use = self._mean.samples >= SAMPLES_MIN
        if self._far.samples >= SAMPLES_MIN and (now_s - self._far.since_s >= FAR_S or not in_use):
            self._mean, self._far = self._far, None

    def _has_started_again(self, status: FcuStatus) -> bool:
        """The flight controller was away, or has started again."""
        if not status.connected:
            return True
        boot_s = status.timesync_offset_s
        started = math.isfinite(boot_s) and math.isfinite(self._boot_s) and abs(boot_s - self._boot_s) > RESTART_S
        self._boot_s = boot_s if math.isfinite(boot_s) else self._boot_s
        return started

    def _begin_again(self) -> None:
        self._mean = self._far = None

    def place(self, p_W: Vec3) -> Vec3 | None:
        """Latitude, longitude [°] and altitude over mean sea level [m] of a point; None while not known."""
        if self._mean is None or self._mean.samples < SAMPLES_MIN:
            return None
        return self._mean.place(p_W)


def _far_m(std_m: float, least_m: float) -> float:
    """From the mean, beyond which a sample is not of its origin; std_m: NaN where the receiver reports none."""
    return max(least_m, FAR_STDS * std_m) if math.isfinite(std_m) else least_m


def _has_jumped(before: FcuPosition, after: FcuPosition) -> bool:
    """The position has moved by more than its velocities explain.

    PX4 counts all resets of its estimator together, also those of heading and velocity, which leave the origin where it is:
    so the position itself counts.
    """
    span_s = after.stamp_s - before.stamp_s
    ways = zip(before.p_W, after.p_W, before.v_W, after.v_W, strict=True)
    jump_m = math.hypot(*(p1 - p0 - 0.5 * (v0 + v1) * span_s for p0, p1, v0, v1 in ways))
    return jump_m > JUMP_M + 0.5 * JUMP_M_S2 * span_s**2


def offset(origin: Vec3, east_m: float, north_m: float, up_m: float) -> Vec3:
    """The place at a distance from another; the inverse of `companion.core.geodesy.between`."""
    latitude = origin[0] + math.degrees(north_m / EARTH_RADIUS_M)
    scale = EARTH_RADIUS_M * math.cos(math.radians(0.5 * (origin[0] + latitude)))
    longitude = origin[1] + math.degrees(east_m / scale)
    return latitude, (longitude + 180.0) % 360.0 - 180.0, origin[2] + up_m

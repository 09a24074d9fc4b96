"""How the camera has turned between two images, from the gyroscopes; over a gap, from the flight controller's attitude.

An image may be here before the samples of its time are. The rest of its turn is then extrapolated, and integrated again with the
next image: what counts for one image can be wrong, but the sum over the images is not.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.core.frames import quat_exp, rotation_matrix
from companion.estimation.imu import ImuSamples, Sample

GAP_S = 1e-3  # less is rounding
LATE_S = 0.5  # samples that are missing for longer do not come any more
ATTITUDE_RAD_SQRT_S = 0.01  # of a flight controller's attitude: 1° within 3 s
UNKNOWN_RAD_SQRT_S = 1.0
HELD_RAD_S15 = 0.5  # of a rate that is held for Δ: 0.5 Δ^1.5 rad
RESTING_RAD_S = 0.5  # of a rate that is not known
# A camera that is mounted otherwise than assumed turns about another axis: by 0.01 rad for each radian, and a turn by more than
# 0.3 rad in one direction is rare with a bundle in sight.
MOUNT_RAD = 0.01 * 0.3**0.5

Attitude = Callable[[float], Array | None]  # q_WB of the flight controller at a time, None where it has not arrived


class Turned(NamedTuple):
    """Where the mount points at a time; two of them make a turn."""

    time_s: float
    R: Array  # (3, 3): of vectors in the camera's axes at the beginning to the same at this time
    variance_rad2: float  # of each axis, since the beginning, without the bias of the gyroscopes
    gyro_s: float  # time since the beginning over which the gyroscopes were integrated

    def since(self, before: "Turned") -> "Turned":
        """The turn from an earlier time to this one; time_s is its duration."""
        return Turned(
            self.time_s - before.time_s,
            self.R @ before.R.T,
            max(self.variance_rad2 - before.variance_rad2, 0.0),
            self.gyro_s - before.gyro_s,
        )

    def turned(
        self, time_s: float, turned_B: Array, R_BC: Array, variance_rad2: float, gyro_s: float = 0.0
    ) -> "Turned":
        """Further on, by a rotation of the body's axes (3, 3)."""
        R = R_BC.T @ turned_B.T @ R_BC @ self.R
        return Turned(time_s, R, self.variance_rad2 + variance_rad2, self.gyro_s + gyro_s)


class CameraTurn:
    """Adds up the turn of the camera's mount from image to image."""

    def __init__(self, gyro_rad_sqrt_s: float) -> None:
        self._density = gyro_rad_sqrt_s**2
        self._known: Turned | None = None  # as far as it was measured
        self._image_s = 0.0

    def advance(self, time_s: float, imu: ImuSamples, attitude: Attitude, R_BC: Array) -> Turned | None:
        """To the exposure of an image; None for one that is not newer than the image before."""
        known = self._known
        if known is None:
            known = Turned(time_s, np.eye(3), 0.0, 0.0)
        elif time_s <= self._image_s:
            return None
        self._image_s = time_s
        known = self._measured(known, time_s, imu, attitude, R_BC)
        rest_s = time_s - known.time_s
        if rest_s <= GAP_S:
            self._known = known
            return known
        held = imu.rates_at(known.time_s)
        before, after = attitude(known.time_s), attitude(time_s)
        if before is not None and after is not None:
            turned_B, variance = _between(before, after), ATTITUDE_RAD_SQRT_S**2 * rest_s
        elif any(held):
            turned_B = rotation_matrix(quat_exp(np.array(held) * rest_s))
            variance = HELD_RAD_S15**2 * rest_s**3
        else:
            turned_B, variance = np.eye(3), (RESTING_RAD_S * rest_s) ** 2
        # The next image takes this error back, so it counts for both.
        self._known = known._replace(variance_rad2=known.variance_rad2 + 2 * variance)
        return known.turned(time_s, turned_B, R_BC, variance)

    def _measured(self, known: Turned, time_s: float, imu: ImuSamples, attitude: Attitude, R_BC: Array) -> Turned:
        """As far as measurements reach, to time_s at most."""
        while time_s - known.time_s > GAP_S:
            samples, until_s = imu.cover(known.time_s, min(time_s, imu.newest_s))
            if samples:
                known = self._integrated(known, samples, until_s, R_BC)
                continue
            resumes_s = min(imu.resumes_s(known.time_s), time_s)  # time_s: nothing has come yet
            if resumes_s >= time_s and imu.newest_s > time_s - LATE_S:
                break
            before, after = attitude(known.time_s), attitude(resumes_s)
            if before is not None and after is not None:
                variance = ATTITUDE_RAD_SQRT_S**2 * (resumes_s - known.time_s)
                known = known.turned(resumes_s, _between(before, after), R_BC, variance)
            elif resumes_s < time_s or time_s - known.time_s > LATE_S:
                known = known.turned(resumes_s, np.eye(3), R_BC, UNKNOWN_RAD_SQRT_S**2 * (resumes_s - known.time_s))
            else:
                break
        return known

    def _integrated(self, known: Turned, samples: list[Sample], until_s: float, R_BC: Array) -> Turned:
        turned_B, angle = np.eye(3), 0.0
        for duration_s, *values in samples:
            vector = np.array(values[:3]) * duration_s
            turned_B = turned_B @ rotation_matrix(quat_exp(vector))
            angle += float(np.sqrt(vector @ vector))
        duration_s = until_s - known.time_s
        return known.turned(until_s, turned_B, R_BC, self._density * duration_s + MOUNT_RAD**2 * angle, duration_s)


def _between(before: Array, after: Array) -> Array:
    """The body's axes at the later attitude in those at the earlier one."""
    turned_B: Array = rotation_matrix(before).T @ rotation_matrix(after)
    return turned_B

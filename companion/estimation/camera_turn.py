"""How the camera has turned between two images, from the gyroscopes; over a gap, from the flight controller's attitude."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.core.frames import quat_exp, rotation_matrix
from companion.estimation.imu import ImuSamples

GAP_S = 1e-3  # less is rounding
ATTITUDE_RAD_SQRT_S = 0.01  # of a flight controller's attitude: 1° within 3 s
UNKNOWN_RAD_SQRT_S = 1.0
# A camera that is mounted otherwise than assumed turns about another axis: by 0.01 rad for each radian, and a turn by more than
# 0.3 rad in one direction is rare with a bundle in sight.
MOUNT_RAD = 0.01 * 0.3**0.5


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
            self.variance_rad2 - before.variance_rad2,
            self.gyro_s - before.gyro_s,
        )


class CameraTurn:
    """Adds up the turn of the camera's mount from image to image."""

    def __init__(self, gyro_rad_sqrt_s: float) -> None:
        self._density = gyro_rad_sqrt_s**2
        self._newest: Turned | None = None

    def advance(self, time_s: float, imu: ImuSamples, attitude: Callable[[float], Array | None], R_BC: Array) -> Turned:
        """To the exposure of an image, never back; attitude: q_WB of the flight controller at a time, None where it is not known."""
        if self._newest is None:
            self._newest = Turned(time_s, np.eye(3), 0.0, 0.0)
        begin_s, R, variance, gyro_s = self._newest
        if time_s <= begin_s:
            return self._newest
        samples, known_s = imu.cover(begin_s, time_s)
        turned_B = np.eye(3)  # axes of the body at the end, in those at the beginning
        angle = 0.0
        for duration_s, *values in samples:
            vector = np.array(values[:3]) * duration_s
            turned_B = turned_B @ rotation_matrix(quat_exp(vector))
            angle += float(np.sqrt(vector @ vector))
        variance += self._density * (known_s - begin_s) + MOUNT_RAD**2 * angle
        if time_s - known_s > GAP_S:
            before, after = attitude(known_s), attitude(time_s)
            density = UNKNOWN_RAD_SQRT_S
            if before is not None and after is not None:
                turned_B = turned_B @ rotation_matrix(before).T @ rotation_matrix(after)
                density = ATTITUDE_RAD_SQRT_S
            variance += density**2 * (time_s - known_s)
        self._newest = Turned(time_s, R_BC.T @ turned_B.T @ R_BC @ R, variance, gyro_s + known_s - begin_s)
        return self._newest

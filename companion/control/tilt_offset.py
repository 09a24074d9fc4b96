"""The difference between the flight controller's tilt and the estimated tilt.

PX4 follows a tilt setpoint in its own attitude, which is wrong by a degree or more; the estimator knows that error as the
attitude bias. The NMPC plans estimated tilts. Without this offset in the setpoint, an error of 1° moves the hold by 2 cm,
because no other state takes it: the disturbance is what the accelerometer feels at the *estimated* attitude.
"""

import math

from companion.core.frames import rpy_from_quat
from companion.core.messages import FcuAttitude, State

TIME_CONSTANT_S = 1.0  # noise of single attitudes averages out; the error itself changes within tens of seconds
OFFSET_MAX_RAD = 0.1  # three standard deviations of a poor attitude solution; more is a fault of another kind


class TiltOffset:
    """A low-pass of (roll, pitch) of the flight controller minus those of the estimate [rad]."""

    def __init__(self) -> None:
        self._offset: tuple[float, float] | None = None
        self._last_s = 0.0

    @property
    def value(self) -> tuple[float, float]:
        """(roll, pitch) that the flight controller reports where the estimate is level [rad]."""
        return self._offset or (0.0, 0.0)

    def reset(self) -> None:
        """Forget the offset; the next update starts at its own difference."""
        self._offset = None

    def update(self, state: State, attitude: FcuAttitude) -> None:
        """Take the newest state and attitude; the attitude is extrapolated to the time of the state."""
        age_s = state.stamp_s - attitude.stamp_s
        fcu_roll, fcu_pitch, _ = rpy_from_quat(attitude.q_WB)
        roll, pitch, _ = rpy_from_quat(state.q_WB)
        roll = _bounded(fcu_roll + age_s * attitude.omega_B[0] - roll)
        pitch = _bounded(fcu_pitch + age_s * attitude.omega_B[1] - pitch)
        if math.isnan(roll + pitch):  # broken rates
            return
        if self._offset is None:
            self._offset = roll, pitch
        else:
            share = 1.0 - math.exp(-max(state.stamp_s - self._last_s, 0.0) / TIME_CONSTANT_S)
            before = self._offset
            self._offset = before[0] + share * (roll - before[0]), before[1] + share * (pitch - before[1])
        self._last_s = state.stamp_s


def _bounded(angle: float) -> float:
    return angle if math.isnan(angle) else min(max(angle, -OFFSET_MAX_RAD), OFFSET_MAX_RAD)

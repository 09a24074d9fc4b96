"""The flight controller's inertial measurements, compared with its attitude while it stands on the ground."""

from typing import Any

from companion.core.enums import ImuFault
from companion.estimation.imu_check import ImuCheck
from companion.fcu.ned import swap_attitude, swap_body


class ImuWatch:
    """Takes HIGHRES_IMU and ATTITUDE_QUATERNION as pymavlink decodes them."""

    def __init__(self) -> None:
        self._check = ImuCheck()
        self._check.set_at_rest(True)

    def take_imu(self, m: Any) -> None:
        """A sample."""
        stamp_s = m.time_usec * 1e-6
        gyro_B, force_B = swap_body((m.xgyro, m.ygyro, m.zgyro)), swap_body((m.xacc, m.yacc, m.zacc))
        self._check.add(stamp_s, gyro_B, force_B, stamp_s)

    def take_attitude(self, m: Any) -> None:
        """An attitude."""
        self._check.add_attitude(m.time_boot_ms * 1e-3, swap_attitude((m.q1, m.q2, m.q3, m.q4)))

    @property
    def rate_hz(self) -> float:
        """Of the last samples; 0: there were none."""
        return self._check.rate_hz

    @property
    def fault(self) -> ImuFault | None:
        """Why the filter would not use the stream."""
        return self._check.fault

    @property
    def problem(self) -> str:
        """The same in words."""
        return self._check.problem

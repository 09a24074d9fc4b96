"""Yaw control: an absolute yaw setpoint that moves at a limited rate until the *estimated* heading is right.

The flight controller's heading differs from the estimated one by degrees (compass error). The setpoint is therefore an
angle in the flight controller's heading and is never compared with the reference. It moves at the rate

    ψ̇_c = sat(ψ̇_r + k_p e + k_i ∫e),   e = wrap(ψ_r - ψ_estimate) in [-π, π)

and rests only where the error e of the estimated heading is zero, whatever the difference of the two headings.
"""

from companion.core.frames import wrap_angle
from companion.core.vehicle import Yaw

LEAD_MAX_RAD = 0.3  # largest lead of the setpoint over the flight controller's yaw, for an aircraft that turns slowly
INTEGRAL_RATE_MAX_RAD_S = 0.1  # bound of the integral's contribution: enough for a drifting heading, no oscillation
# The integral corrects a drifting heading. It grows only at errors below this: a value from a turn would slow its end.
INTEGRAL_ZONE_RAD = 0.05
STEP_MAX_S = 0.1  # longest interval that one update may integrate over


class YawController:
    """Converts a heading reference into a yaw setpoint in the flight controller's heading and a yaw rate."""

    def __init__(self, config: Yaw) -> None:
        self._config = config
        self._setpoint: float | None = None
        self._integral = 0.0  # contribution k_i ∫e [rad/s]
        self._last_s = 0.0

    def reset(self) -> None:
        """Forget setpoint and integral; the next update starts at the present yaw."""
        self._setpoint, self._integral = None, 0.0

    def update(
        self, now_s: float, yaw_reference: float, rate_reference: float, yaw: float, fcu_yaw: float, acting: bool
    ) -> tuple[float, float]:
        """(yaw setpoint [rad], yaw rate [rad/s]).

        yaw_reference, yaw: in the estimated heading; fcu_yaw: as the flight controller reports it; acting: False while
        another source steers, then the setpoint follows the aircraft and nothing is integrated.
        """
        limit = self._config.rate_max_rad_s
        error = wrap_angle(yaw_reference - yaw)
        if self._setpoint is None or not acting:
            self._setpoint, self._integral, self._last_s = fcu_yaw, 0.0, now_s
        dt = min(max(now_s - self._last_s, 0.0), STEP_MAX_S)
        self._last_s = now_s
        desired = rate_reference + self._config.kp * error + self._integral
        rate = min(max(desired, -limit), limit)
        if rate == desired and abs(error) < INTEGRAL_ZONE_RAD:
            self._integral += self._config.ki * error * dt
            self._integral = min(max(self._integral, -INTEGRAL_RATE_MAX_RAD_S), INTEGRAL_RATE_MAX_RAD_S)
        lead = wrap_angle(self._setpoint + rate * dt - fcu_yaw)
        self._setpoint = wrap_angle(fcu_yaw + min(max(lead, -LEAD_MAX_RAD), LEAD_MAX_RAD))
        return self._setpoint, rate

"""The heading: an absolute yaw setpoint, moved at a limited rate until the *estimated* heading is right.

The flight controller measures yaw in a heading of its own, degrees away from the estimate's (compass error). The
setpoint therefore lives in the flight controller's heading and is never compared with the reference; it is moved by

    ψ̇_c = sat(ψ̇_r + k_p e + k_i ∫e),   e = wrap(ψ_r - ψ_estimate) in [-π, π)

so it rests only where the estimate's own error is zero, whatever the difference of the two headings.
"""

from companion.core.frames import wrap_angle
from companion.core.vehicle import Yaw

LEAD_MAX_RAD = 0.3  # setpoint ahead of the flight controller's yaw: it shall not run away from a slow aircraft
INTEGRAL_RATE_MAX_RAD_S = 0.1  # what the integral may contribute: enough for a drifting heading, too little to swing
# The integral is there for a heading that drifts; charged during a turn it would only make the end of it slow.
INTEGRAL_ZONE_RAD = 0.05
STEP_MAX_S = 0.1  # longest interval that one update may integrate over


class YawController:
    """Turns a heading reference into (yaw setpoint in the flight controller's heading, yaw rate)."""

    def __init__(self, config: Yaw) -> None:
        self._config = config
        self._setpoint: float | None = None
        self._integral = 0.0  # contribution k_i ∫e [rad/s]
        self._last_s = 0.0

    def reset(self) -> None:
        """Start anew from wherever the aircraft points."""
        self._setpoint, self._integral = None, 0.0

    def update(
        self, now_s: float, yaw_reference: float, rate_reference: float, yaw: float, fcu_yaw: float, acting: bool
    ) -> tuple[float, float]:
        """(yaw setpoint [rad], yaw rate [rad/s]).

        yaw_reference, yaw: in the estimate's heading; fcu_yaw: what the flight controller itself reports; acting:
        False while something else steers, then the setpoint follows the aircraft and nothing is integrated.
        """
        limit = self._config.rate_max_rad_s
        error = wrap_angle(yaw_reference - yaw)
        if self._setpoint is None or not acting:
            self._setpoint, self._integral, self._last_s = fcu_yaw, 0.0, now_s
        dt = min(max(now_s - self._last_s, 0.0), STEP_MAX_S)
        self._last_s = now_s
        wanted = rate_reference + self._config.kp * error + self._integral
        rate = min(max(wanted, -limit), limit)
        if rate == wanted and abs(error) < INTEGRAL_ZONE_RAD:
            self._integral += self._config.ki * error * dt
            self._integral = min(max(self._integral, -INTEGRAL_RATE_MAX_RAD_S), INTEGRAL_RATE_MAX_RAD_S)
        lead = wrap_angle(self._setpoint + rate * dt - fcu_yaw)
        self._setpoint = wrap_angle(fcu_yaw + min(max(lead, -LEAD_MAX_RAD), LEAD_MAX_RAD))
        return self._setpoint, rate

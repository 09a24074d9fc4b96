"""The fallback of the NMPC: a PID on position, and the blend that makes every change of source smooth.

    a = a_r + k_p e + k_d ė + ∫k_i e - d̂ + drag(v_r),   f = a + (0, 0, g)

`companion.control.attitude_inversion` gives the tilt and thrust for f. The estimated disturbance d̂ is fed forward, so
the integral only removes the error of the estimate.
"""

import math

import numpy as np

from companion.control.attitude_inversion import tilt_and_thrust, with_rotor_drag
from companion.core.arrays import Array
from companion.core.frames import GRAVITY_M_S2
from companion.core.vehicle import Controller

ERROR_MAX_M = 1.5  # a larger position error counts as this: the aircraft returns at about k_p / k_d · ERROR_MAX_M
# The integral grows only within this distance of the reference: a value from the way there would cause an overshoot.
INTEGRAL_ZONE_M = 0.3
INTEGRAL_MAX_M_S2 = 1.5  # per axis
LIFT_MIN_M_S2 = 0.3 * GRAVITY_M_S2  # lower bound of the desired vertical force: thrust must keep pointing up
TILT_KEPT_RAD = 0.15  # against drift while the thrust saturates: 1.1 % of the lift
BLEND_TIME_S = 0.3  # time constant of a change of source: slower than the attitude loop, faster than drift


class PositionPid:
    """PID acceleration command; keeps only its integral."""

    def __init__(self, config: Controller) -> None:
        self._kp, self._kd, self._ki = (
            np.array(gain) for gain in (config.fallback.kp, config.fallback.kd, config.fallback.ki)
        )
        self._tilt_max, self._thrust_max = config.tilt_max_rad, config.thrust_max
        self._integral = np.zeros(3)

    def reset(self) -> None:
        """Set the integral to zero."""
        self._integral[:] = 0.0

    def command(
        self, state: Array, p_r: Array, v_r: Array, a_r: Array, disturbance_W: Array, parameters: Array, dt_s: float
    ) -> Array:
        """(thrust, roll, pitch), not yet limited to the vehicle's bounds.

        The vertical force has priority: the force across is limited by the tilt, and by the thrust that the vertical
        force leaves at the present thrust coefficient, but for TILT_KEPT_RAD.

        state: (9,) x of the OCP; p_r, v_r, a_r: (3,) reference; disturbance_W: (3,) [m/s²]; parameters: (10,)
        `flight_model.PARAMETERS`; dt_s: time since the last call [s].
        """
        error = p_r - state[0:3]
        distance = math.sqrt(float(error @ error))
        if distance > ERROR_MAX_M:
            error = error * (ERROR_MAX_M / distance)
        if distance < INTEGRAL_ZONE_M:
            self._integral += self._ki * error * dt_s
            np.clip(self._integral, -INTEGRAL_MAX_M_S2, INTEGRAL_MAX_M_S2, out=self._integral)
        drag = np.asarray(parameters[1:4])
        force = a_r + self._kp * error + self._kd * (v_r - state[3:6]) + self._integral - disturbance_W + drag * v_r
        force = with_rotor_drag(force + (0.0, 0.0, GRAVITY_M_S2), v_r, parameters)
        force[2] = max(force[2], LIFT_MIN_M_S2)
        strongest = self._thrust_max * float(parameters[0])
        left = math.sqrt(max(strongest * strongest - float(force[2]) ** 2, 0.0))
        left = max(left, strongest * math.sin(TILT_KEPT_RAD))
        sideways, most = math.hypot(force[0], force[1]), min(force[2] * math.tan(self._tilt_max), left)
        if sideways > most:
            force[0:2] *= most / sideways
        force[2] = min(force[2], math.sqrt(strongest * strongest - min(sideways, most) ** 2))
        roll, pitch, magnitude = tilt_and_thrust(force, state[8])
        return np.array([magnitude / parameters[0], roll / parameters[5], pitch / parameters[7]])


class Blend:
    """Starts a new source exactly at the last command; the difference decays exponentially."""

    def __init__(self) -> None:
        self._offset = np.zeros(3)
        self._since_s = 0.0

    def start(self, last_command: Array, new_command: Array, now_s: float) -> None:
        """Start a blend: at now_s the blended command equals last_command."""
        self._offset = np.asarray(last_command, dtype=float) - new_command
        self._since_s = now_s

    def reset(self) -> None:
        """End the blend at once."""
        self._offset = np.zeros(3)

    def apply(self, command: Array, now_s: float) -> Array:
        """The command to send at now_s, shape (3,)."""
        return command + self._offset * math.exp(-max(now_s - self._since_s, 0.0) / BLEND_TIME_S)

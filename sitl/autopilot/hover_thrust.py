"""The thrust of a hover as PX4 1.17 estimates it in flight (mc_hover_thrust_estimator): a Kalman filter of one number.

The state h, thrust 0..1, is constant but for its process noise. The vertical acceleration [m/s²] at a thrust T along z is

    a = g (T / h − 1),    ∂a/∂h = −g T / h².

The variance of the measurement is learnt from the residuals. A measurement beyond the gate is refused, and a run of refused
ones to one side makes the state uncertain again, as after a change of the battery's voltage or of the mass.
"""

import math

from companion.core.frames import GRAVITY_M_S2
from sitl.autopilot.parameters import Parameters

VARIANCE_MIN, VARIANCE_MAX = 1e-10, 1.0
ACCEL_VARIANCE_FIRST, ACCEL_VARIANCE_MIN, ACCEL_VARIANCE_MAX = 5.0, 1.0, 400.0  # of the measurement [m²/s⁴]
NOISE_TIME_S = 2.0  # in which that variance is learnt
MEAN_TIME_S = 1.0  # of the residual, and of the refused share
ONE_SIDED = 0.2  # mean of the signed test ratio from which refused measurements are a change
CHANGE_FACTOR = 1e3  # of the process noise, then
VALID_VARIANCE = 1e-3
VALID_AFTER_S = 2.0


class HoverThrust:
    """``value`` is the estimate, used by PX4 while it is ``valid``."""

    def __init__(self, parameters: Parameters) -> None:
        self._get = parameters
        self.reset()

    def reset(self) -> None:
        """Begin with MPC_THR_HOVER, as PX4 does while disarmed."""
        get = self._get
        self.value: float = get["MPC_THR_HOVER"]
        self.valid = False
        self._variance: float = get["HTE_HT_ERR_INIT"] ** 2
        self._accel_variance = ACCEL_VARIANCE_FIRST
        self._residual = self._signed_ratio = 0.0  # means
        self._credible_s: float | None = None  # for how long the estimate has been good enough to be valid

    def pause(self) -> None:
        """Not in the air: the estimate stays and is not used."""
        self.valid, self._credible_s = False, None

    def update(self, dt: float, thrust_z: float, acceleration_z: float, v_xy: float, v_z: float) -> None:
        """thrust_z: vertical part of the command 0..1; acceleration_z: of the estimate, upwards; v_xy, v_z: speeds [m/s]."""
        get = self._get
        process = get["HTE_HT_NOISE"] ** 2 * dt * dt
        self._variance += process
        H = -GRAVITY_M_S2 * thrust_z / self.value**2
        # fast flight lifts and drags: it says less
        R = self._accel_variance * max(v_xy - get["HTE_VXY_THR"] + 1.0, abs(v_z) - get["HTE_VZ_THR"] + 1.0, 1.0) ** 2
        S = H * self._variance * H + R
        residual = innovation = acceleration_z - self._predicted(thrust_z)
        ratio = innovation**2 / (get["HTE_ACC_GATE"] ** 2 * S)
        if ratio < 1.0:
            gain = self._variance * H / S
            low = min(max(get["MPC_THR_HOVER"] - get["HTE_THR_RANGE"], 0.0), 0.8)
            high = min(max(get["MPC_THR_HOVER"] + get["HTE_THR_RANGE"], 0.2), 0.9)
            self.value = min(max(self.value + gain * innovation, low, 1e-3), high)
            self._variance = min(max((1.0 - gain * H) * self._variance, VARIANCE_MIN), VARIANCE_MAX)
            residual = acceleration_z - self._predicted(thrust_z)
        elif abs(self._signed_ratio) > ONE_SIDED:
            self._variance += CHANGE_FACTOR * process
        share = dt / (MEAN_TIME_S + dt)
        self._residual += share * (residual - self._residual)
        self._signed_ratio += share * (math.copysign(min(ratio, 1.0), innovation) - self._signed_ratio)
        seen = (residual - self._residual) ** 2 + H * self._variance * H
        learnt = self._accel_variance + dt / (NOISE_TIME_S + dt) * (seen - self._accel_variance)
        self._accel_variance = min(max(learnt, ACCEL_VARIANCE_MIN), ACCEL_VARIANCE_MAX)
        self._judge(dt, ratio)

    def _predicted(self, thrust_z: float) -> float:
        return GRAVITY_M_S2 * (thrust_z / self.value - 1.0)

    def _judge(self, dt: float, ratio: float) -> None:
        """The ratio counts until the estimate is valid; afterwards single outliers do not end it."""
        if self._variance >= VALID_VARIANCE or (not self.valid and ratio >= 1.0):
            self.pause()
            return
        self._credible_s = dt if self._credible_s is None else self._credible_s + dt
        self.valid = self._credible_s >= VALID_AFTER_S

"""How wrong the observer's velocity is, for given errors of its inputs: the covariance of a linear filter.

The error e = (p, v, b) of one axis follows the observer's own prediction and correction, once for every fix,

    e ← (I - K H) F e + noise,

and its stationary covariance solves P = A P Aᵀ + Q. p is counted from the random walk of GNSS, which no filter can see.
A slow error of an input is one more state. With these numbers `sitl.unkind` chooses the errors of the inputs so that the
velocity is wrong by what EKF2's is in flight, and the position by what then follows.
"""

import math
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from sitl.autopilot.observer import GNSS_PERIOD_S, OTHER_SOURCE, Gains
from sitl.autopilot.parameters import Parameters
from sitl.sensors import FRAME_S, SensorConfig

DOUBLINGS = 24  # of the sum of A^k Q A^kᵀ


class VelocityError(NamedTuple):
    """Standard deviations [m/s] of the horizontal velocity's error."""

    noise_m_s: float  # by the white noise of all inputs and the random walk of GNSS
    per_gnss_drift: float  # over the standard deviation of a slow error of GNSS velocity
    per_acceleration_s: float  # over that of a slow error of the acceleration [m/s²]


def velocity_error(
    parameters: Parameters, sensors: SensorConfig, gnss_drift_time_s: float, acceleration_time_s: float
) -> VelocityError:
    """For an observer with EKF2's parameters and these sensors; the times are those of the two slow errors."""
    source = sensors.gnss
    period_s = 1.0 / source.rate_hz
    ordinary = 1 / OTHER_SOURCE < period_s / GNSS_PERIOD_S < OTHER_SOURCE
    gains_period_s = GNSS_PERIOD_S if ordinary else period_s  # as `Observer` chooses it
    get = parameters
    noise = (get["EKF2_GPS_P_NOISE"], get["EKF2_GPS_V_NOISE"], get["EKF2_ACC_NOISE"], get["EKF2_ACC_B_NOISE"])
    gains = Gains(*noise, gains_period_s)
    K = np.array([[gains.pp, gains.pv], [gains.vp, gains.vv], [gains.bp, gains.bv]])
    correct = np.eye(3) - K @ np.eye(2, 3)
    F = np.array([[1.0, period_s, period_s**2 / 2], [0.0, 1.0, period_s], [0.0, 0.0, 1.0]])
    accelerated = correct @ np.array([period_s**2 / 2, period_s, 0.0])
    steps = round(period_s / FRAME_S) or 1
    vectors = (
        math.sqrt(source.white_variance_m2) * K[:, 0],
        source.velocity_std_m_s * K[:, 1],
        math.sqrt(source.walk_variance_m2) * correct[:, 0],
        sensors.imu.accel_noise_m_s2 * FRAME_S * math.sqrt(steps) * correct[:, 1],
    )
    white = sum((np.outer(v, v) for v in vectors), np.zeros((3, 3)))
    A = correct @ F
    return VelocityError(
        math.sqrt(_stationary(A, white)[1, 1]),
        _per_slow_error(A, K[:, 1], period_s / gnss_drift_time_s),
        _per_slow_error(A, accelerated, period_s / acceleration_time_s),
    )


def _per_slow_error(A: Array, entry: Array, steps_per_time: float) -> float:
    """Standard deviation of the velocity for a slow error of standard deviation 1 that enters by a vector."""
    keep = math.exp(-steps_per_time)
    whole = np.zeros((4, 4))
    whole[:3, :3], whole[:3, 3], whole[3, 3] = A, keep * entry, keep
    noise = np.append(entry, 1.0)
    return math.sqrt(_stationary(whole, (1.0 - keep**2) * np.outer(noise, noise))[1, 1])


def _stationary(A: Array, Q: Array) -> Array:
    """The solution of P = A P Aᵀ + Q."""
    P, power = Q, A
    for _ in range(DOUBLINGS):
        P = P + power @ P @ power.T
        power = power @ power
    return P

"""How wrong the observer's velocity is, for given errors of its inputs: the covariance of a linear filter.

The error e = (p, v, b) of one axis follows the observer's own prediction and correction, once for every fix,

    e ← (I - K H) F e + noise,

and its stationary covariance solves P = A P Aᵀ + Q. p is counted from the random walk of GNSS, which no filter can see.
A slow error of an input is one more state. The innovations follow from the same covariance: an error that the gates of EKF2
reject cannot last in its velocity. With these numbers `sitl.unkind` chooses the errors of the inputs so that the
velocity is wrong by what EKF2's is in flight, and the position by what then follows.
"""

import math
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from sitl.autopilot.observer import GNSS_PERIOD_S, OTHER_SOURCE, Gains, axis_noises
from sitl.autopilot.parameters import Parameters
from sitl.sensors import FRAME_S, SensorConfig, reported_accuracy

FLIGHT_S = 60.0  # after the start of the receiver: the accuracy that it reports is that of a hold
DOUBLINGS = 24  # of the sum of A^k Q A^kᵀ


class Caused(NamedTuple):
    """Standard deviations that some error of the inputs causes, horizontally."""

    velocity_m_s: float  # error of the velocity
    of_gates: tuple[float, float]  # innovations of position and velocity over their gates


class VelocityError(NamedTuple):
    """By source; a slow error has the standard deviation 1 and scales."""

    noise: Caused  # white noise of all inputs and the random walk of GNSS
    gnss_drift: Caused  # slow error of GNSS velocity [m/s]
    acceleration: Caused  # slow error of the acceleration [m/s²]


def velocity_error(
    parameters: Parameters, sensors: SensorConfig, gnss_drift_time_s: float, acceleration_time_s: float
) -> VelocityError:
    """For an observer with EKF2's parameters and these sensors; the times are those of the two slow errors."""
    source = sensors.gnss
    period_s = 1.0 / source.rate_hz
    ordinary = 1 / OTHER_SOURCE < period_s / GNSS_PERIOD_S < OTHER_SOURCE
    gains_period_s = GNSS_PERIOD_S if ordinary else period_s  # as `Observer` chooses it
    get = parameters
    gains = Gains(axis_noises(get, *reported_accuracy(source, FLIGHT_S))[0], gains_period_s)
    K = gains.K
    correct = np.eye(3) - K @ np.eye(2, 3)
    F = np.array([[1.0, period_s, period_s**2 / 2], [0.0, 1.0, period_s], [0.0, 0.0, 1.0]])
    accelerated = np.array([period_s**2 / 2, period_s, 0.0])
    gates = get["EKF2_GPS_P_GATE"] * gains.innovation_p, get["EKF2_GPS_V_GATE"] * gains.innovation_v
    steps = round(period_s / FRAME_S) or 1
    vectors = (
        math.sqrt(source.white_variance_m2) * K[:, 0],
        source.velocity_std_m_s * K[:, 1],
        math.sqrt(source.walk_variance_m2) * correct[:, 0],
        sensors.imu.accel_noise_m_s2 * FRAME_S * math.sqrt(steps) * correct[:, 1],
    )
    white = sum((np.outer(v, v) for v in vectors), np.zeros((3, 3)))
    P = _stationary(correct @ F, white)
    entering = (source.white_variance_m2 + source.walk_variance_m2, source.velocity_std_m_s**2)
    return VelocityError(
        _caused(P[1, 1], np.diag(F[:2] @ P @ F[:2].T) + entering, gates),
        _slow_error(F, correct, K[:, 1], np.array([0.0, -1.0]), period_s / gnss_drift_time_s, gates),
        _slow_error(F, correct, correct @ accelerated, accelerated[:2], period_s / acceleration_time_s, gates),
    )


def _slow_error(
    F: Array, correct: Array, entry: Array, entry_innovation: Array, steps_per_time: float, gates: tuple[float, float]
) -> Caused:
    """By a slow error of standard deviation 1 that enters the corrected state and the innovations by these vectors."""
    keep = math.exp(-steps_per_time)
    whole = np.zeros((4, 4))
    whole[:3, :3], whole[:3, 3], whole[3, 3] = correct @ F, keep * entry, keep
    noise = np.append(entry, 1.0)
    P = _stationary(whole, (1.0 - keep**2) * np.outer(noise, noise))
    M = np.column_stack([F[:2], keep * entry_innovation])
    return _caused(P[1, 1], np.diag(M @ P @ M.T) + (1.0 - keep**2) * entry_innovation**2, gates)


def _caused(velocity_variance: float, innovation_variances: Array, gates: tuple[float, float]) -> Caused:
    position, velocity = np.sqrt(innovation_variances) / gates
    return Caused(math.sqrt(velocity_variance), (float(position), float(velocity)))


def _stationary(A: Array, Q: Array) -> Array:
    """The solution of P = A P Aᵀ + Q."""
    P, power = Q, A
    for _ in range(DOUBLINGS):
        P = P + power @ P @ power.T
        power = power @ power
    return P

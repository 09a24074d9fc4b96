"""How unsure the filter is to begin with, and how much surer or less sure time makes it: from the vehicle file."""

import numpy as np

from companion.core.vehicle import Vehicle

# Without a trustworthy command the model is "nothing changes"; what a pilot does is noise.
COAST_VELOCITY_M_S_SQRT_S = 1.0  # a stick movement of 3 m/s² for 0.1 s
COAST_ATTITUDE_RAD_SQRT_S = 0.2  # 0.03 rad between two attitudes at 50 Hz: 1.4 rad/s; 0.07 rad after 0.12 s of delay
COAST_DISTURBANCE_TIME_S = 10.0  # in which an unobserved disturbance is forgotten


def initial_variances(vehicle: Vehicle) -> np.ndarray:
    """Diagonal of the covariance at the start, (31,)."""
    e, s = vehicle.estimator, vehicle.estimator.initial
    std = (s.position_m, s.velocity_m_s, s.attitude_rad, s.disturbance_m_s2)
    std += (s.gnss_bias_m, s.marker_position_m, s.marker_attitude_rad, e.velocity_bias.std_m_s)
    tilt, heading, mount = e.attitude_bias.tilt_std_rad, e.attitude_bias.heading_std_rad, 3 * [e.mount.std_rad]
    return np.square([*np.repeat(std, 3), tilt, tilt, heading, e.thrust_scale.std, *mount])


def process_variances(vehicle: Vehicle, coast: bool) -> np.ndarray:
    """Process noise per second, (31,); the position has none of its own, it is the integral of the velocity."""
    e, s = vehicle.estimator, vehicle.estimator.process
    velocity, attitude, disturbance = s.velocity_m_s_sqrt_s, s.attitude_rad_sqrt_s, s.disturbance_m_s2_sqrt_s
    if coast:
        velocity, attitude = max(velocity, COAST_VELOCITY_M_S_SQRT_S), max(attitude, COAST_ATTITUDE_RAD_SQRT_S)
        disturbance = 3 * [_keeping(e.initial.disturbance_m_s2, COAST_DISTURBANCE_TIME_S)]
    tilt = _keeping(e.attitude_bias.tilt_std_rad, e.attitude_bias.tilt_time_s)
    heading = _keeping(e.attitude_bias.heading_std_rad, e.attitude_bias.heading_time_s)
    still = (s.gnss_bias_m_sqrt_s, s.marker_position_m_sqrt_s, s.marker_attitude_rad_sqrt_s)
    still += (_keeping(e.velocity_bias.std_m_s, e.velocity_bias.time_constant_s),)
    moving = np.repeat((0.0, velocity, attitude), 3)
    slow = (tilt, tilt, heading, e.thrust_scale.walk_sqrt_s, *3 * [_keeping(e.mount.std_rad, e.mount.time_constant_s)])
    return np.square([*moving, *disturbance, *np.repeat(still, 3), *slow])


def _keeping(std: float, time_constant_s: float) -> float:
    """Noise density that keeps the variance of a first-order Gauss-Markov state where it is: σ² = noise τ / 2."""
    return std * (2 / time_constant_s) ** 0.5


def forgetting_rates(vehicle: Vehicle, coast: bool) -> np.ndarray:
    """Rates [1/s] in the order of `acados_gen.eskf_model.forget`, (6,)."""
    e = vehicle.estimator
    disturbance = (COAST_DISTURBANCE_TIME_S,) * 2 if coast else (e.disturbance.horizontal_s, e.disturbance.vertical_s)
    bias, velocity_s, mount_s = e.attitude_bias, e.velocity_bias.time_constant_s, e.mount.time_constant_s
    return 1 / np.array([*disturbance, velocity_s, bias.tilt_time_s, bias.heading_time_s, mount_s])

"""Initial covariance, process noise and forgetting rates from the vehicle file."""

from enum import StrEnum

import numpy as np

from companion.core.arrays import Array
from companion.core.vehicle import Vehicle

# Without a usable command the model is constant velocity and attitude; the pilot's input is process noise.
COAST_VELOCITY_M_S_SQRT_S = 1.0  # a stick movement of 3 m/s² for 0.1 s
COAST_ATTITUDE_RAD_SQRT_S = 0.2  # 0.03 rad between two attitudes at 50 Hz: 1.4 rad/s; 0.07 rad after 0.12 s of delay
COAST_DISTURBANCE_TIME_S = 10.0  # time constant at which an unobserved disturbance is forgotten


def initial_variances(vehicle: Vehicle) -> Array:
    """Diagonal of the covariance at the start, (51,), in the order of `layout.ErrorIndex`."""
    settings, initial = vehicle.estimator, vehicle.estimator.initial
    attitude_bias = settings.attitude_bias
    std = [
        *3 * [initial.position_m],
        *3 * [initial.velocity_m_s],
        *3 * [initial.attitude_rad],
        *3 * [initial.disturbance_m_s2],
        *3 * [initial.gnss_bias_m],
        *3 * [initial.marker_position_m],
        *3 * [initial.marker_attitude_rad],
        *3 * [settings.velocity_bias.std_m_s],
        *2 * [attitude_bias.tilt_std_rad],
        attitude_bias.heading_std_rad,
        settings.thrust_scale.std,
        *3 * [settings.mount.std_rad],
        *3 * [settings.imu.gyro_bias_rad_s],
        *3 * [settings.imu.accel_bias_m_s2],
        *3 * [settings.camera.lever_m],
        settings.camera.bundle_scale,
        settings.camera.delay_s,
        *6 * [settings.camera.slow_pose],
        *3 * [settings.camera.rotation_rad],
    ]
    return np.square(std)


class Propagation(StrEnum):
    """What the filter's prediction is driven by."""

    IMU = "imu"  # the flight controller's angular rate and specific force
    COMMAND = "command"  # the setpoints that were sent, by the flight model
    COAST = "coast"  # nothing


def process_variances(vehicle: Vehicle, by: Propagation) -> Array:
    """Process noise per second, (51,), in the order of `layout.ErrorIndex`.

    The position has no noise of its own: it is the integral of the velocity.
    """
    settings, process, imu = vehicle.estimator, vehicle.estimator.process, vehicle.estimator.imu
    velocity, attitude = process.velocity_m_s_sqrt_s, process.attitude_rad_sqrt_s
    disturbance = list(process.disturbance_m_s2_sqrt_s)
    if by is Propagation.IMU:
        velocity, attitude, disturbance = imu.accel_m_s_sqrt_s, imu.gyro_rad_sqrt_s, list(imu.disturbance_m_s2_sqrt_s)
    if by is Propagation.COAST:
        velocity, attitude = max(velocity, COAST_VELOCITY_M_S_SQRT_S), max(attitude, COAST_ATTITUDE_RAD_SQRT_S)
        disturbance = 3 * [_stationary_density(settings.initial.disturbance_m_s2, COAST_DISTURBANCE_TIME_S)]
    bias, velocity_bias, mount = settings.attitude_bias, settings.velocity_bias, settings.mount
    density = [
        *3 * [0.0],
        *3 * [velocity],
        *3 * [attitude],
        *disturbance,
        *3 * [process.gnss_bias_m_sqrt_s],
        *3 * [process.marker_position_m_sqrt_s],
        *3 * [process.marker_attitude_rad_sqrt_s],
        *3 * [_stationary_density(velocity_bias.std_m_s, velocity_bias.time_constant_s)],
        *2 * [_stationary_density(bias.tilt_std_rad, bias.tilt_time_s)],
        _stationary_density(bias.heading_std_rad, bias.heading_time_s),
        settings.thrust_scale.walk_sqrt_s,
        *3 * [_stationary_density(mount.std_rad, mount.time_constant_s)],
        *3 * [_stationary_density(imu.gyro_bias_rad_s, imu.bias_time_s)],
        *3 * [_stationary_density(imu.accel_bias_m_s2, imu.bias_time_s)],
        *5 * [0.0],
        *6 * [_stationary_density(settings.camera.slow_pose, settings.camera.slow_pose_time_s)],
        *3 * [0.0],
    ]
    return np.square(density)


def _stationary_density(std: float, time_constant_s: float) -> float:
    """Noise density that keeps the variance of a first-order Gauss-Markov state constant: σ² = density² τ / 2."""
    return std * float((2 / time_constant_s) ** 0.5)


def forgetting_rates(vehicle: Vehicle, by: Propagation) -> Array:
    """Rates [1/s] in the order of `acados_gen.eskf_model.forget`, (9,)."""
    settings, bias = vehicle.estimator, vehicle.estimator.attitude_bias
    horizontal_s, vertical_s = settings.disturbance.horizontal_s, settings.disturbance.vertical_s
    if by is Propagation.COAST:
        horizontal_s = vertical_s = COAST_DISTURBANCE_TIME_S
    velocity_bias_s, mount_s = settings.velocity_bias.time_constant_s, settings.mount.time_constant_s
    bias_s = settings.imu.bias_time_s
    times_s = np.array(
        [
            horizontal_s,
            vertical_s,
            velocity_bias_s,
            bias.tilt_time_s,
            bias.heading_time_s,
            mount_s,
            bias_s,
            bias_s,
            settings.camera.slow_pose_time_s,
        ]
    )
    rates: Array = 1 / times_s
    return rates

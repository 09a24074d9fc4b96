"""Every Jacobian of the filter against central finite differences, every update against the textbook formula."""

import numpy as np
import pytest
from eskf_truth import (
    FACING,
    boxminus,
    boxplus,
    bundle_pose,
    camera_at,
    force_seen,
    log,
    position_M,
    random_state,
    reset,
    with_rotor_drag,
)

from acados_gen import eskf_model
from companion.core.enums import Sensor
from companion.core.frames import quat_conjugate, quat_exp, quat_from_rpy, quat_multiply, rotation_matrix
from companion.core.site import Plumb
from companion.estimation.filter import UNUSED_AXIS_M_S2
from companion.estimation.inputs import ActingThrust
from companion.estimation.layout import CONSIDERED, ERROR_SIZE, MOTION_SIZE, SENSORS, ErrorIndex, StateIndex
from companion.estimation.noise import Propagation, forgetting_rates

EPS = 1e-5
RATES_1_S = np.array(
    [0.05, 0.4, 0.3, 0.2, 0.1, 0.8, 0.03, 0.07, 0.15]
)  # forgetting rates, far from the vehicle file's, all different


CORNERS_M = np.array([[-0.1, 0.1, 0.0], [0.1, 0.12, 0.0], [0.1, -0.1, 0.01], [-0.12, -0.1, 0.0]])
TURN = quat_exp((0.1, -0.2, 0.3))
UPRIGHT = quat_from_rpy(np.pi / 2, 0.0, -np.pi / 2)  # a bundle on a wall
OMEGA_B = np.array([0.4, -0.3, 0.2])
THRUST = 0.36
# of a covariance of the tracker, lower triangle, far from diagonal
ROOT = np.tril(np.random.default_rng(17).normal(0, 0.02, (6, 6))) + 0.05 * np.eye(6)


def difference(f, size):
    """Central finite difference of f at 0."""
    columns = []
    for i in range(size):
        e = np.zeros(size)
        e[i] = EPS
        columns.append((f(e) - f(-e)) / (2 * EPS))
    return np.array(columns).T


def moved_and_transition(outputs):
    """(x after the step, the whole transition matrix of the error) from the outputs of a model."""
    x_next, moves, keep = (np.array(o) for o in outputs)
    F = np.zeros((ERROR_SIZE, ERROR_SIZE))
    F[:MOTION_SIZE] = moves
    F[range(MOTION_SIZE, ERROR_SIZE), range(MOTION_SIZE, ERROR_SIZE)] = keep.ravel()
    return x_next.ravel(), F


@pytest.mark.parametrize("seed", range(5))
def test_transition_jacobian_is_the_finite_difference(vehicle, seed):
    rng = np.random.default_rng(seed)
    x = random_state(rng)
    u = np.array([0.35, *rng.uniform(-0.2, 0.2, 2), 0.3])
    k = with_rotor_drag(vehicle)
    step = eskf_model.transition()
    x_next, F = moved_and_transition(step(x, u, k, RATES_1_S, 0.02))

    def error_after(e):
        return boxminus(np.array(step(boxplus(x, e), u, k, RATES_1_S, 0.02)[0]).ravel(), x_next)

    np.testing.assert_allclose(F, difference(error_after, ERROR_SIZE), atol=1e-8)
    np.testing.assert_allclose(
        x_next[StateIndex.VELOCITY_BIAS], np.exp(-RATES_1_S[2] * 0.02) * x[StateIndex.VELOCITY_BIAS], atol=1e-12
    )
    np.testing.assert_allclose(
        x_next[StateIndex.ATTITUDE_BIAS], np.exp(-RATES_1_S[[3, 3, 4]] * 0.02) * x[StateIndex.ATTITUDE_BIAS], atol=1e-12
    )
    np.testing.assert_allclose(x_next[StateIndex.MOUNT], np.exp(-RATES_1_S[5] * 0.02) * x[StateIndex.MOUNT], atol=1e-12)
    assert x_next[StateIndex.THRUST_SCALE] == x[StateIndex.THRUST_SCALE]


@pytest.mark.parametrize("seed", range(3))
def test_imu_jacobian_is_the_finite_difference(seed):
    rng = np.random.default_rng(seed)
    x = random_state(rng)
    x[StateIndex.GYRO_BIAS] *= 0.1
    imu = np.array([*rng.normal(0, 0.5, 3), *rng.normal(0, 2.0, 2), 10.3])
    step = eskf_model.imu_transition()
    x_next, F = moved_and_transition(step(x, imu, RATES_1_S, 0.01))

    def error_after(e):
        return boxminus(np.array(step(boxplus(x, e), imu, RATES_1_S, 0.01)[0]).ravel(), x_next)

    np.testing.assert_allclose(F, difference(error_after, ERROR_SIZE), atol=1e-7)


def test_imu_propagation_follows_a_turning_and_accelerating_body():
    """Against the motion of a body with constant body rates and constant specific force in B, integrated finely."""
    x = random_state(np.random.default_rng(4))
    x[StateIndex.GYRO_BIAS], x[StateIndex.ACCEL_BIAS] = (0.01, -0.02, 0.03), (0.1, 0.2, -0.1)
    omega, force = np.array([0.5, -0.8, 0.6]), np.array([1.0, -0.5, 10.5])
    imu = np.concatenate([omega + x[StateIndex.GYRO_BIAS], force + x[StateIndex.ACCEL_BIAS]])
    step, moved = eskf_model.imu_transition(), x
    for _ in range(200):
        moved = np.array(step(moved, imu, np.zeros(9), 0.005)[0]).ravel()
    p, v, q, fine = x[StateIndex.POSITION].copy(), x[StateIndex.VELOCITY].copy(), x[StateIndex.ATTITUDE], 2e-4
    for _ in range(round(1.0 / fine)):
        middle = quat_multiply(q, quat_exp(omega * fine / 2))
        a = rotation_matrix(middle) @ force - (0.0, 0.0, 9.80665)
        p, v, q = p + fine * v + fine**2 / 2 * a, v + fine * a, quat_multiply(q, quat_exp(omega * fine))
    np.testing.assert_allclose(moved[StateIndex.POSITION], p, atol=1e-4)
    np.testing.assert_allclose(moved[StateIndex.VELOCITY], v, atol=1e-4)
    np.testing.assert_allclose(log(quat_multiply(quat_conjugate(q), moved[StateIndex.ATTITUDE])), 0, atol=1e-9)


def test_coast_jacobian_is_the_finite_difference():
    x = random_state(np.random.default_rng(1))
    step = eskf_model.coast_transition()
    x_next, F = moved_and_transition(step(x, RATES_1_S, 0.02))

    def error_after(e):
        return boxminus(np.array(step(boxplus(x, e), RATES_1_S, 0.02)[0]).ravel(), x_next)

    np.testing.assert_allclose(F, difference(error_after, ERROR_SIZE), atol=1e-8)
    np.testing.assert_allclose(
        x_next[StateIndex.VELOCITY_BIAS], np.exp(-RATES_1_S[2] * 0.02) * x[StateIndex.VELOCITY_BIAS], atol=1e-12
    )
    np.testing.assert_allclose(
        x_next[StateIndex.ATTITUDE_BIAS], np.exp(-RATES_1_S[[3, 3, 4]] * 0.02) * x[StateIndex.ATTITUDE_BIAS], atol=1e-12
    )
    np.testing.assert_allclose(x_next[StateIndex.MOUNT], np.exp(-RATES_1_S[5] * 0.02) * x[StateIndex.MOUNT], atol=1e-12)
    assert x_next[StateIndex.THRUST_SCALE] == x[StateIndex.THRUST_SCALE]


def measured(sensor, x, vehicle, rng, size=0.05):
    """The measured arguments of a sensor at x, with an error of about `size`."""
    if sensor == Sensor.MARKER:
        camera = vehicle.camera
        p, q = bundle_pose(x, camera.p_BC, camera.q_BC, OMEGA_B)
        slow = ROOT @ x[StateIndex.SLOW_POSE]
        q = quat_multiply(q, quat_exp(slow[3:] + rng.normal(0, size, 3)))
        p = p + slow[:3] + rng.normal(0, size, 3)
        return [p, q, np.array(camera.p_BC), np.array(camera.q_BC), OMEGA_B, ROOT.ravel(order="F")]
    if sensor == Sensor.SPECIFIC_FORCE:
        k = with_rotor_drag(vehicle)
        return [force_seen(x, THRUST, k) + rng.normal(0, size, 3), np.array([THRUST]), k]
    if sensor == Sensor.PLUMB:
        x[StateIndex.MARKER_ATTITUDE] = quat_multiply(UPRIGHT, quat_exp(rng.normal(0, size, 3)))
        return [np.array([1.0, 0.0, 0.0, 0.0, 0.0, 1.0])]
    if sensor == Sensor.ATTITUDE:
        return [
            quat_multiply(
                quat_exp(x[StateIndex.ATTITUDE_BIAS]),
                quat_multiply(x[StateIndex.ATTITUDE], quat_exp(rng.normal(0, size, 3))),
            )
        ]
    if sensor == Sensor.CORNERS:
        x[StateIndex.MARKER_POSITION], x[StateIndex.MARKER_ATTITUDE] = (
            x[StateIndex.POSITION] + rotation_matrix(x[StateIndex.ATTITUDE]) @ (3.0, 0.2, 0.1),
            quat_multiply(x[StateIndex.ATTITUDE], quat_multiply(FACING, TURN)),
        )
        y = corners_seen(x, vehicle) + rng.normal(0, 0.1 * size, 8)
        return [y, CORNERS_M.ravel(), np.array(vehicle.camera.p_BC), np.array(vehicle.camera.q_BC), OMEGA_B]
    return [
        (
            x[StateIndex.POSITION] + x[StateIndex.GNSS_BIAS]
            if sensor == Sensor.POSITION
            else x[StateIndex.VELOCITY] + x[StateIndex.VELOCITY_BIAS]
        )
        + rng.normal(0, size, 3)
    ]


def corners_seen(x, vehicle):
    """Normalised image coordinates of the corners, (8,)."""
    p_WC, q_WC = camera_at(x, vehicle.camera.p_BC, vehicle.camera.q_BC, OMEGA_B)
    corners_M = (1 + x[StateIndex.BUNDLE_SCALE].item()) * CORNERS_M
    corners_W = x[StateIndex.MARKER_POSITION] + corners_M @ rotation_matrix(x[StateIndex.MARKER_ATTITUDE]).T
    p_C = (corners_W - p_WC) @ rotation_matrix(q_WC)
    return (p_C[:, :2] / p_C[:, 2:]).ravel()


def residual_by_hand(sensor, x, y, vehicle):
    if sensor == Sensor.POSITION:
        return y[0] - x[StateIndex.POSITION] - x[StateIndex.GNSS_BIAS]
    if sensor == Sensor.VELOCITY:
        return y[0] - x[StateIndex.VELOCITY] - x[StateIndex.VELOCITY_BIAS]
    if sensor == Sensor.ATTITUDE:
        return log(
            quat_multiply(
                quat_conjugate(x[StateIndex.ATTITUDE]), quat_multiply(quat_exp(-x[StateIndex.ATTITUDE_BIAS]), y[0])
            )
        )
    if sensor == Sensor.CORNERS:
        return y[0] - corners_seen(x, vehicle)
    if sensor == Sensor.PLUMB:
        up_M = rotation_matrix(x[StateIndex.MARKER_ATTITUDE]).T @ (0.0, 0.0, 1.0)
        return -up_M[[0, 2]]
    if sensor == Sensor.SPECIFIC_FORCE:
        return y[0] - force_seen(x, float(y[1][0]), y[2])
    p, q = bundle_pose(x, vehicle.camera.p_BC, vehicle.camera.q_BC, OMEGA_B)
    return np.concatenate([y[0] - p, log(quat_multiply(quat_conjugate(q), y[1]))]) - ROOT @ x[StateIndex.SLOW_POSE]


def learned_at(sensor, x, y):
    """The measurement at which the Jacobian is taken: the thrust scale is learned at the thrust of a hover."""
    if sensor != Sensor.SPECIFIC_FORCE:
        return y
    return [y[0], np.array([9.80665 / (x[StateIndex.THRUST_SCALE][0] * y[2][0])]), y[2]]


@pytest.mark.parametrize("sensor", SENSORS)
@pytest.mark.parametrize("seed", range(3))
def test_measurement_residual_and_jacobian(vehicle, sensor, seed):
    rng = np.random.default_rng(seed)
    x = random_state(rng)
    y = measured(sensor, x, vehicle, rng)
    nu, H = (np.array(o) for o in eskf_model.measurement(sensor)(x, *y))
    np.testing.assert_allclose(nu.ravel(), residual_by_hand(sensor, x, y, vehicle), atol=1e-12)
    y = learned_at(sensor, x, y)
    expected = -difference(lambda e: residual_by_hand(sensor, boxplus(x, e), y, vehicle), ERROR_SIZE)
    np.testing.assert_allclose(H, expected, atol=1e-8)


@pytest.mark.parametrize("sensor", SENSORS)
def test_measurement_jacobian_is_finite_at_zero_residual(vehicle, sensor):
    rng = np.random.default_rng(3)
    x = random_state(rng)
    y = measured(sensor, x, vehicle, rng, size=0.0)
    H = np.array(eskf_model.measurement(sensor)(x, *y)[1])
    y = learned_at(sensor, x, y)
    expected = -difference(lambda e: residual_by_hand(sensor, boxplus(x, e), y, vehicle), ERROR_SIZE)
    np.testing.assert_allclose(H, expected, atol=1e-8)


def test_reset_jacobian_is_the_finite_difference():
    r = np.array([0.05, -0.08, 0.03])
    J = np.array(eskf_model.ca.Function("j", [], [eskf_model.right_jacobian(eskf_model.ca.SX(r))])()["o0"])
    expected = difference(lambda e: log(quat_multiply(quat_conjugate(quat_exp(r)), quat_exp(r + e))), 3)
    np.testing.assert_allclose(J, expected, atol=1e-5)  # a series to third order


def test_relative_position_covariance(eskf):
    rng = np.random.default_rng(4)
    filter_state = eskf.start(0.0, np.zeros(3), np.zeros(3), np.array([1.0, 0, 0, 0]))
    filter_state.nominal[:] = random_state(rng)
    M = rng.normal(size=(ERROR_SIZE, ERROR_SIZE))
    filter_state.covariance[:] = M @ M.T
    J = difference(lambda e: position_M(boxplus(filter_state.nominal, e)), ERROR_SIZE)
    position, covariance = eskf.relative(filter_state)
    np.testing.assert_allclose(position, position_M(filter_state.nominal), atol=1e-12)
    np.testing.assert_allclose(covariance, J @ filter_state.covariance @ J.T, rtol=1e-6, atol=1e-6)


def symmetric_covariance(rng):
    """A covariance that is symmetric to the last bit, as the filter keeps it; BLAS does not guarantee that."""
    M = rng.normal(size=(ERROR_SIZE, ERROR_SIZE))
    return (M @ M.T + (M @ M.T).T) / 2


def test_prediction_kernel_is_the_textbook_formula(vehicle, eskf):
    rng = np.random.default_rng(5)
    filter_state = eskf.start(0.0, np.zeros(3), np.zeros(3), np.array([1.0, 0, 0, 0]))
    filter_state.nominal[:] = random_state(rng)
    filter_state.covariance[:] = symmetric_covariance(rng)
    u, k = np.array([0.35, 0.1, -0.1, 0.2]), with_rotor_drag(vehicle)
    bias, attitude = vehicle.estimator.velocity_bias, vehicle.estimator.attitude_bias
    rates = forgetting_rates(vehicle, Propagation.COMMAND)
    x_next, F = moved_and_transition(eskf_model.transition()(filter_state.nominal, u, k, rates, 0.02))
    s = vehicle.estimator.process
    q = np.zeros(ERROR_SIZE)
    q[ErrorIndex.VELOCITY], q[ErrorIndex.ATTITUDE], q[ErrorIndex.DISTURBANCE] = (
        s.velocity_m_s_sqrt_s**2,
        s.attitude_rad_sqrt_s**2,
        np.square(s.disturbance_m_s2_sqrt_s),
    )
    q[ErrorIndex.GNSS_BIAS], q[ErrorIndex.MARKER_POSITION], q[ErrorIndex.MARKER_ATTITUDE] = (
        s.gnss_bias_m_sqrt_s**2,
        s.marker_position_m_sqrt_s**2,
        s.marker_attitude_rad_sqrt_s**2,
    )
    q[ErrorIndex.VELOCITY_BIAS] = 2 * bias.std_m_s**2 / bias.time_constant_s
    q[ErrorIndex.ATTITUDE_BIAS] = 2 * attitude.tilt_std_rad**2 / attitude.tilt_time_s
    q[ErrorIndex.ATTITUDE_BIAS.start + 2] = 2 * attitude.heading_std_rad**2 / attitude.heading_time_s
    q[ErrorIndex.THRUST_SCALE] = vehicle.estimator.thrust_scale.walk_sqrt_s**2
    imu, camera = vehicle.estimator.imu, vehicle.estimator.camera
    q[ErrorIndex.GYRO_BIAS] = 2 * imu.gyro_bias_rad_s**2 / imu.bias_time_s
    q[ErrorIndex.ACCEL_BIAS] = 2 * imu.accel_bias_m_s2**2 / imu.bias_time_s
    q[ErrorIndex.SLOW_POSE] = 2 * camera.slow_pose**2 / camera.slow_pose_time_s
    q[ErrorIndex.MOUNT] = 2 * vehicle.estimator.mount.std_rad**2 / vehicle.estimator.mount.time_constant_s
    expected = F @ filter_state.covariance @ F.T + np.diag(q) * 0.02
    eskf.predict(filter_state, u, k, 0.02)
    np.testing.assert_allclose(filter_state.nominal, x_next.ravel(), atol=1e-12)
    np.testing.assert_allclose(filter_state.covariance, expected, atol=1e-10)


@pytest.mark.parametrize("sensor", SENSORS)
def test_update_kernel_is_the_textbook_joseph_update(vehicle, eskf, sensor):
    rng = np.random.default_rng(6)
    filter_state = eskf.start(0.0, np.zeros(3), np.zeros(3), np.array([1.0, 0, 0, 0]))
    filter_state.nominal[:] = random_state(rng)
    filter_state.marker_known = True
    filter_state.covariance[:] = 1e-3 * symmetric_covariance(rng)
    y = measured(sensor, filter_state.nominal, vehicle, rng, size=0.01)
    x, prior = filter_state.nominal.copy(), filter_state.covariance.copy()
    m = SENSORS[sensor]
    R = eskf.nominal[sensor].copy() if sensor in eskf.nominal else 1e-3 * np.eye(m)
    if sensor == Sensor.PLUMB:  # with noise that leaves the stated variance
        known, std_rad = prior.diagonal()[ErrorIndex.MARKER_ATTITUDE][[2, 0]], 0.01
        R = np.diag(std_rad**2 * known / (known - std_rad**2))
    if sensor == Sensor.MARKER:
        R = 1e-3 * np.eye(m)
        y[-1] = 1e-3**0.5 * np.eye(m).ravel()
    if sensor == Sensor.SPECIFIC_FORCE:
        R[0, 0] = R[1, 1] = UNUSED_AXIS_M_S2**2

    nu, H = (np.array(o) for o in eskf_model.measurement(sensor)(x, *y))
    innovation_covariance = H @ prior @ H.T + R
    K = prior @ H.T @ np.linalg.inv(innovation_covariance)
    K[CONSIDERED] = 0.0  # Schmidt: these errors are never corrected
    correction = (K @ nu).ravel()
    I_KH = np.eye(ERROR_SIZE) - K @ H
    G = reset(x, correction)
    expected_P = G @ (I_KH @ prior @ I_KH.T + K @ R @ K.T) @ G.T

    if sensor == Sensor.MARKER:
        update = eskf.measure_marker(filter_state, y[0], y[1], R, OMEGA_B)
    elif sensor == Sensor.CORNERS:
        update = eskf.measure_corners(filter_state, y[0], y[1], 1e-3**0.5, OMEGA_B)
    elif sensor == Sensor.PLUMB:
        update = eskf.measure_plumb(filter_state, Plumb("y", std_rad))
    elif sensor == Sensor.SPECIFIC_FORCE:
        update = eskf.measure_force(filter_state, y[0], ActingThrust(THRUST, y[2]))
    else:
        update = eskf.measure(filter_state, sensor, y[0])
    assert update.accepted
    assert update.nis == pytest.approx((nu.T @ np.linalg.solve(innovation_covariance, nu)).item())
    np.testing.assert_allclose(boxminus(filter_state.nominal, boxplus(x, correction)), 0, atol=1e-10)
    np.testing.assert_allclose(filter_state.covariance, expected_P, atol=1e-7)
    np.testing.assert_array_equal(filter_state.covariance, filter_state.covariance.T)

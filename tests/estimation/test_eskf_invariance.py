"""What no sensor sees must not be learned: a turn of everything about the vertical, and the considered errors.

The direction N(x) of such a turn depends on the state, so a filter whose estimates jump can gain heading from nothing
(A. Barrau and S. Bonnabel, arXiv 1510.06263). Considered errors count in the covariance and are never corrected
(S. Schmidt's filter).
"""

from functools import cache

import numpy as np
import pytest
from eskf_truth import boxminus, boxplus, bundle_pose, random_state, reset, turned

from acados_gen import eskf_model
from companion.core.enums import Sensor
from companion.core.frames import quat_exp, quat_multiply, rotation_matrix, skew
from companion.estimation.filter import Eskf
from companion.estimation.inputs import ActingThrust
from companion.estimation.layout import CARRIED_SIZE, CONSIDERED, ERROR_SIZE, MOTION_SIZE, ErrorIndex, StateIndex
from companion.estimation.noise import Propagation, forgetting_rates

LEVEL = np.array([1.0, 0, 0, 0])
UP = np.array([0.0, 0, 1])
G = 9.80665
TURNED_VECTORS = (
    (StateIndex.POSITION, ErrorIndex.POSITION),
    (StateIndex.VELOCITY, ErrorIndex.VELOCITY),
    (StateIndex.DISTURBANCE, ErrorIndex.DISTURBANCE),
    (StateIndex.MARKER_POSITION, ErrorIndex.MARKER_POSITION),
)


inject, measurement = cache(eskf_model.inject), cache(eskf_model.measurement)


def turn_about(x, axis=UP):
    """N(x), (51,): the error of x that is a turn of everything about an axis of W through its origin."""
    N = np.zeros(ERROR_SIZE)
    for state, error in TURNED_VECTORS:
        N[error] = skew(axis) @ x[state]
    N[ErrorIndex.ATTITUDE] = rotation_matrix(x[StateIndex.ATTITUDE]).T @ axis
    N[ErrorIndex.MARKER_ATTITUDE] = rotation_matrix(x[StateIndex.MARKER_ATTITUDE]).T @ axis
    return N


def injected(x, correction):
    """(x after the correction, G) from the compiled model: the errors after it in terms of those before."""
    after, C, J_M = (np.array(o) for o in inject()(x, correction))
    bundle, carry = np.eye(ERROR_SIZE), np.eye(ERROR_SIZE)
    bundle[ErrorIndex.MARKER_ATTITUDE, ErrorIndex.MARKER_ATTITUDE] = J_M
    carry[:CARRIED_SIZE, ErrorIndex.ATTITUDE] += C
    return after.ravel(), carry @ bundle


def random_correction(rng, size=0.3):
    correction = size * rng.normal(size=ERROR_SIZE)
    correction[ErrorIndex.MARKER_ATTITUDE] *= 0.3  # its Jacobian is a series
    return correction


@pytest.mark.parametrize("seed", range(3))
def test_the_turn_is_an_error_of_the_state(seed):
    x = random_state(np.random.default_rng(seed))
    np.testing.assert_allclose(
        boxminus(turned(x, 1e-6 * UP), x) / 1e-6, turn_about(x), atol=1e-5, err_msg="so N is what this file says it is"
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("axis", [UP, np.array([0.6, -0.8, 0.0])], ids=["vertical", "horizontal"])
def test_a_turn_of_everything_stays_a_turn_of_everything_when_a_correction_is_injected(seed, axis):
    rng = np.random.default_rng(seed)
    x, correction = random_state(rng), random_correction(rng)
    after, carried = injected(x, correction)
    np.testing.assert_allclose(carried @ turn_about(x, axis), turn_about(after, axis), atol=1e-12)


def test_errors_that_turn_nothing_keep_their_meaning_when_a_correction_is_injected():
    rng = np.random.default_rng(5)
    x, correction = random_state(rng), random_correction(rng, 0.1)
    after, carried = injected(x, correction)
    np.testing.assert_allclose(after, boxplus(x, correction), atol=1e-12)
    np.testing.assert_allclose(carried, reset(x, correction), atol=1e-6)
    untouched = np.ones(ERROR_SIZE, bool)
    for block in (*(error for _, error in TURNED_VECTORS), ErrorIndex.ATTITUDE, ErrorIndex.MARKER_ATTITUDE):
        untouched[block] = False
    np.testing.assert_array_equal(carried[untouched], np.eye(ERROR_SIZE)[untouched])


@pytest.mark.parametrize("sensor", [Sensor.MARKER, Sensor.CORNERS, Sensor.SPECIFIC_FORCE, Sensor.PLUMB])
def test_only_the_flight_controller_sees_a_turn_about_the_vertical(vehicle, sensor):
    rng, camera = np.random.default_rng(6), vehicle.camera
    x, omega_B = random_state(rng), np.array([0.4, -0.3, 0.2])
    x[StateIndex.MARKER_POSITION] = x[StateIndex.POSITION] + rotation_matrix(x[StateIndex.ATTITUDE]) @ (4.0, 0.2, 0.1)
    p_CM, q_CM = bundle_pose(x, camera.p_BC, camera.q_BC, omega_B)
    seen = (camera.p_BC, camera.q_BC, omega_B)
    measured = {
        Sensor.MARKER: (p_CM + 0.1, quat_multiply(q_CM, quat_exp((0.1, -0.2, 0.1))), *seen, 0.02 * np.eye(6).ravel()),
        Sensor.CORNERS: (rng.normal(size=8), 0.1 * rng.normal(size=12), *seen),
        Sensor.SPECIFIC_FORCE: (rng.normal(size=3), 0.36, vehicle.model_parameters()),
        Sensor.PLUMB: ((1.0, 0.0, 0.0, 0.0, 0.0, 1.0),),
    }[sensor]
    assert vehicle.drag.linear_1_s[0] == vehicle.drag.linear_1_s[1], "else the air has a preferred direction"
    H = np.array(eskf_model.measurement(sensor)(x, *measured)[1])
    turned_part = ErrorIndex.MARKER_ATTITUDE if sensor == Sensor.PLUMB else ErrorIndex.ATTITUDE
    assert np.abs(H @ np.eye(ERROR_SIZE)[turned_part].T).max() > 0.1
    np.testing.assert_allclose(H @ turn_about(x), 0, atol=1e-10)


def test_the_prediction_by_imu_turns_with_everything(vehicle):
    x = random_state(np.random.default_rng(7))
    rates = forgetting_rates(vehicle, Propagation.IMU)
    rates[1] = rates[0]  # of the disturbance; the vertical axis has its own, which no turn about it moves
    sample = np.array([0.4, -0.3, 0.5, 0.5, -0.8, 10.2])
    after, moves, keep = (np.array(o) for o in eskf_model.imu_transition()(x, sample, rates, 0.005))
    F = np.diag([*np.zeros(MOTION_SIZE), *keep.ravel()])
    F[:MOTION_SIZE] = moves
    np.testing.assert_allclose(F @ turn_about(x), turn_about(after.ravel()), atol=1e-12)


def far_bundle(eskf, seed, updates=300):
    """Heading std [rad] before and after updates with a bundle at 12 m whose rotation and distance are poor.

    The estimate jumps with each of them. No sensor sees the heading, and the aircraft does not move: whatever
    information about the heading comes out was not in the images. Without `carry` in eskf.c the std falls from 2.12° to
    1.98°.
    """
    rng = np.random.default_rng(seed)
    filter_state = eskf.start(0.0, np.zeros(3), np.zeros(3), LEVEL)
    filter_state.covariance[ErrorIndex.ATTITUDE, ErrorIndex.ATTITUDE] = np.diag([0.02, 0.02, 0.037]) ** 2
    std = np.array([0.15, 0.15, 0.5, 0.15, 0.15, 0.05])
    p_CM, q_CM = np.array([0.3, -0.2, 12.0]), np.array([0.0, 1.0, 0, 0])

    def heading_std():
        x, P = filter_state.nominal, filter_state.covariance
        axis = rotation_matrix(x[StateIndex.ATTITUDE])[2]
        return (axis @ P[ErrorIndex.ATTITUDE, ErrorIndex.ATTITUDE] @ axis) ** 0.5

    before, jumps, accepted = heading_std(), [], []
    for _ in range(updates):
        e = std * rng.normal(size=6)
        at = filter_state.nominal.copy()
        update = eskf.measure_marker(filter_state, p_CM + e[:3], quat_multiply(q_CM, quat_exp(e[3:])), np.diag(std**2))
        accepted.append(update.accepted)
        jumps.append(np.abs(boxminus(filter_state.nominal, at))[ErrorIndex.MARKER_POSITION].max())
    assert np.mean(accepted) > 0.97
    assert max(jumps[1:]) > 0.1, "the estimate jumps"
    assert np.linalg.eigvalsh(filter_state.covariance)[0] > -1e-12
    return before, heading_std()


@pytest.mark.parametrize("seed", range(3))
def test_images_of_a_far_bundle_do_not_reduce_the_heading_variance(vehicle, seed):
    before, after = far_bundle(Eskf(vehicle, adapt=False), seed)
    assert after == pytest.approx(before, rel=1e-6)


# --- considered errors


def seen_from(eskf, x, rng, std):
    p_CM, q_CM = bundle_pose(x, eskf.p_BC, eskf.q_BC)
    e = std * rng.normal(size=6)
    return p_CM + e[:3], quat_multiply(q_CM, quat_exp(e[3:]))


class Schmidt:
    """The filter of S. Schmidt in Joseph's form, with the gain of the considered errors at zero."""

    def __init__(self, filter_state):
        self.x, self.P = filter_state.nominal.copy(), filter_state.covariance.copy()

    def update(self, sensor, measured, R):
        nu, H = (np.array(o) for o in measurement(sensor)(self.x, *measured))
        K = self.P @ H.T @ np.linalg.inv(H @ self.P @ H.T + R)
        K[CONSIDERED] = 0.0
        correction, I_KH = (K @ nu).ravel(), np.eye(ERROR_SIZE) - K @ H
        P = I_KH @ self.P @ I_KH.T + K @ R @ K.T
        self.x, carried = injected(self.x, correction)
        self.P = carried @ P @ carried.T


def test_many_updates_are_those_of_a_schmidt_kalman_filter(vehicle):
    """Bundle, velocity and force in turns, with a camera that is 2 cm beside its place and a print 1 % too large."""
    eskf, rng, std = Eskf(vehicle, adapt=False), np.random.default_rng(8), np.full(6, 0.01)
    filter_state = eskf.start(0.0, np.zeros(3), np.zeros(3), LEVEL)
    truth = filter_state.nominal.copy()
    truth[StateIndex.MARKER_POSITION] = (4.0, 0.2, 0.1)
    truth[StateIndex.MARKER_ATTITUDE] = quat_multiply(eskf.q_BC, (0.0, 1.0, 0.0, 0.0))
    truth[StateIndex.LEVER], truth[StateIndex.BUNDLE_SCALE] = (0.02, -0.01, 0.01), 0.01
    eskf.measure_marker(filter_state, *seen_from(eskf, truth, rng, std), np.diag(std**2))
    before, other = filter_state.copy(), Schmidt(filter_state)
    k = np.array(vehicle.model_parameters())
    for i in range(60):
        p_CM, q_CM = seen_from(eskf, truth, rng, std)
        assert eskf.measure_marker(filter_state, p_CM, q_CM, np.diag(std**2)).accepted
        root = np.diag(std).ravel()
        other.update(Sensor.MARKER, (p_CM, q_CM, eskf.p_BC, eskf.q_BC, np.zeros(3), root), np.diag(std**2))
        y = 0.01 * rng.normal(size=3)
        assert eskf.measure(filter_state, Sensor.VELOCITY, y).accepted
        other.update(Sensor.VELOCITY, (y,), eskf.nominal[Sensor.VELOCITY])
        if i % 10 == 0:
            force_B, acting = np.array([0.1, -0.1, G]) + 0.1 * rng.normal(size=3), ActingThrust(G / k[0], k)
            assert eskf.measure_force(filter_state, force_B, acting).accepted
            R = eskf.nominal[Sensor.SPECIFIC_FORCE].copy()
            R[0, 0] = R[1, 1] = 100.0**2
            other.update(Sensor.SPECIFIC_FORCE, (force_B, acting.mean, k), R)
        np.testing.assert_allclose(filter_state.nominal, other.x, atol=1e-9)
        np.testing.assert_allclose(filter_state.covariance, other.P, atol=1e-9)
        scale = np.sqrt(filter_state.covariance.diagonal())
        assert np.linalg.eigvalsh(filter_state.covariance / scale[:, None] / scale)[0] > -1e-9
    for state in (StateIndex.LEVER, StateIndex.BUNDLE_SCALE):
        np.testing.assert_array_equal(filter_state.nominal[state], before.nominal[state])
    np.testing.assert_array_equal(
        filter_state.covariance[CONSIDERED, CONSIDERED], before.covariance[CONSIDERED, CONSIDERED]
    )
    shared = filter_state.covariance[ErrorIndex.MARKER_POSITION, CONSIDERED]
    assert np.abs(shared).max() > 1e-5, "the bundle's position shares the errors of lever arm and size"


def test_the_position_relative_to_the_bundle_keeps_the_errors_of_lever_arm_and_size(vehicle):
    """However many images are used, their common error stays in the published uncertainty."""
    eskf, rng, std = Eskf(vehicle, adapt=False), np.random.default_rng(9), np.full(6, 0.005)
    filter_state = eskf.start(0.0, np.zeros(3), np.zeros(3), LEVEL)
    truth = filter_state.nominal.copy()
    truth[StateIndex.MARKER_POSITION] = (4.0, 0.0, 0.0)
    truth[StateIndex.MARKER_ATTITUDE] = quat_multiply(eskf.q_BC, (0.0, 1.0, 0.0, 0.0))
    for _ in range(500):
        eskf.measure_marker(filter_state, *seen_from(eskf, truth, rng, std), np.diag(std**2))
    covariance, camera = eskf.relative(filter_state)[1], vehicle.estimator.camera
    distance_std_m = np.hypot(camera.lever_m, 4.0 * camera.bundle_scale)
    assert np.sqrt(np.linalg.eigvalsh(covariance)[-1]) > 0.95 * distance_std_m

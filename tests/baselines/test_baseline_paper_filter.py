"""The prior stack's filter is the published one with its errors corrected, so that the comparison is fair."""

import math

import numpy as np
import pytest

from companion.core.frames import (
    quat_conjugate,
    quat_exp,
    quat_from_rpy,
    quat_log,
    quat_multiply,
    rotation_matrix,
    rpy_from_quat,
)
from sitl.baselines.paper_filter import P0, SENSORS, SIZE, TH, B, D, P, PaperFilter, V
from sitl.baselines.paper_tables import paper_vehicle

F550 = paper_vehicle("F550")
HOVER = 9.80665 / F550.model.thrust_coefficient_m_s2
LEVEL = (1.0, 0.0, 0.0, 0.0)


def new_filter(q=LEVEL, p=(0.0, 0.0, 0.0)) -> PaperFilter:
    return PaperFilter(F550.model.parameters, p, q)


def fly(filter_, command, seconds=0.3, dt=0.02):
    for _ in range(round(seconds / dt)):
        filter_.predict(dt, np.array(command))


@pytest.mark.parametrize("yaw", [0.0, 1.0, -2.5])
def test_a_commanded_pitch_is_predicted_with_its_own_sign_and_pushes_forward(yaw):
    f = new_filter(quat_from_rpy(0.0, 0.0, yaw))
    fly(f, (HOVER, 0.0, 0.1, 0.0))
    roll, pitch, _ = rpy_from_quat(f.q)
    assert 0.05 < pitch < 0.11 and abs(roll) < 1e-3
    forward = np.array([math.cos(yaw), math.sin(yaw), 0.0])
    assert f.v @ forward > 0.1


def test_a_commanded_roll_pushes_to_the_right():
    f = new_filter()
    fly(f, (HOVER, 0.1, 0.0, 0.0))
    assert f.v[1] < -0.1 and abs(f.v[0]) < 1e-3


def test_the_euler_angles_follow_the_published_model_when_all_rates_act_together():
    # A wrong component in the quaternion's rate shows only away from level and with all rates at once.
    f = new_filter(quat_from_rpy(0.2, -0.3, 0.7))
    command, dt = np.array([HOVER, -0.2, 0.3, 0.5]), 1e-4
    tau_r, k_r, tau_p, k_p = F550.model.parameters[4:8]
    expected = np.array([(k_r * -0.2 - 0.2) / tau_r, (k_p * 0.3 + 0.3) / tau_p, 0.5])
    before = np.array(rpy_from_quat(f.q))
    f.predict(dt, command)
    np.testing.assert_allclose((np.array(rpy_from_quat(f.q)) - before) / dt, expected, rtol=2e-3)


def test_the_filter_uses_the_damping_of_the_aircraft():
    f = new_filter()
    f.v = np.array([1.0, 0.0, 0.0])
    fly(f, (HOVER, 0.0, 0.0, 0.0), seconds=1.0)
    assert f.v[0] == pytest.approx(math.exp(-F550.model.drag_1_s[0]), abs=0.01)


def test_the_transition_matrix_matches_finite_differences():
    """Each block of F, the attitude block's transpose among them, for the model of F: constant body rates."""
    q0, dt = quat_from_rpy(0.1, -0.2, 2.0), 1e-3
    command = np.array([0.4, 0.3, -0.2, 0.4])

    def run(error):
        f = new_filter(quat_multiply(q0, quat_exp(error[TH])))
        f.body_rates = lambda _: np.array([0.8, -1.2, 0.6])
        f.v, f.d = np.array([1.0, -2.0, 0.5]) + error[V], error[D].copy()
        f.p = error[P].copy()
        f.predict(dt, command)
        return f

    centre = run(np.zeros(SIZE))
    covariance = np.diag(P0)
    noise = new_filter()
    noise.P = np.zeros((SIZE, SIZE))
    noise.predict(dt, command)
    Q = noise.P
    F = np.zeros((15, 15))
    for i in range(12):
        error = np.zeros(SIZE)
        error[i] = 1e-5
        moved = run(error)
        turn = quat_log(quat_multiply(quat_conjugate(centre.q), moved.q))
        F[:, i] = np.concatenate([moved.p - centre.p, moved.v - centre.v, turn, error[D], error[B]]) / 1e-5
    F[12:, 12:] = np.eye(3)
    expected = F @ covariance[:15, :15] @ F.T + Q[:15, :15]
    np.testing.assert_allclose(centre.P[:15, :15], expected, atol=2e-6)


@pytest.mark.parametrize("sensor", ["pose", "odometry", "marker"])
def test_a_measurement_pulls_every_part_of_the_state_towards_it(sensor):
    """The sign of each residual and Jacobian: after a few updates the state agrees with the measurement."""
    q_true = quat_from_rpy(0.05, -0.04, 1.2)
    f = new_filter(quat_from_rpy(0.0, 0.0, 1.1), (0.1, 0.0, 0.0))
    p_true, v_true = np.array([0.2, 0.1, -0.1]), np.array([0.2, -0.1, 0.1])
    R = rotation_matrix(q_true)
    p_M, q_M = np.array([3.0, 1.0, 0.5]), quat_from_rpy(1.5, 0.0, -0.4)
    f.p_M, f.q_M, f.marker_known = p_M, q_M, True
    p_BM, q_BM = R.T @ (p_M - p_true), quat_multiply(quat_conjugate(q_true), q_M)
    for _ in range(60):
        if sensor == "marker":  # the part that it gives to roll and pitch is lost, so they must be known
            f.pose(0.0, None, p_true, q_true)
        update = {
            "pose": lambda: f.pose(0.0, None, p_true, q_true),
            "odometry": lambda: f.odometry(0.0, None, R.T @ v_true),
            "marker": lambda: f.marker(0.0, None, p_BM, q_BM),
        }[sensor]()
        assert update.accepted
    if sensor == "pose":
        np.testing.assert_allclose(f.p + f.b, p_true, atol=0.01)
        assert np.linalg.norm(quat_log(quat_multiply(quat_conjugate(f.q), q_true))) < 0.01
    elif sensor == "odometry":
        np.testing.assert_allclose(rotation_matrix(f.q).T @ f.v, R.T @ v_true, atol=0.01)
    else:
        np.testing.assert_allclose(rotation_matrix(f.q).T @ (f.p_M - f.p), p_BM, atol=0.01)
        turn = quat_log(quat_multiply(quat_conjugate(quat_multiply(quat_conjugate(f.q), f.q_M)), q_BM))
        assert np.linalg.norm(turn) < 0.01


def observed(f: PaperFilter, error_B=(0.0, 0.0, 0.0), turn=LEVEL):
    """What an exact camera sees of the filter's own marker, with an error."""
    p_BM = rotation_matrix(f.q).T @ (f.p_M - f.p) + error_B
    return p_BM, quat_multiply(turn, quat_multiply(quat_conjugate(f.q), f.q_M))


def marked_filter() -> PaperFilter:
    f = new_filter()
    f.marker(0.0, None, np.array([3.0, 0.0, 0.0]), quat_from_rpy(1.5, 0.0, 0.0))
    for _ in range(20):
        f.pose(0.02, (HOVER, 0, 0, 0), (0.0, 0.0, 0.0), LEVEL)
        f.marker(0.0, None, *observed(f))
    return f


def test_a_marker_does_not_correct_roll_and_pitch_as_published():
    f = marked_filter()
    before = np.array(rpy_from_quat(f.q))
    assert f.marker(0.0, None, *observed(f, turn=quat_from_rpy(0.03, 0.03, 0.03))).accepted
    moved = np.array(rpy_from_quat(f.q)) - before
    assert abs(moved[2]) > 1e-4
    np.testing.assert_allclose(moved[:2], 0.0, atol=1e-9)


def test_an_outlier_does_not_open_the_gate_for_itself():
    f = marked_filter()
    for _ in range(SENSORS["marker"].window):
        f.marker(0.0, None, *observed(f))
    assert not f.marker(0.0, None, *observed(f, error_B=(5.0, 0.0, 0.0))).accepted
    assert f.noise("marker")[0] > 1.0  # it counts for the next one


def test_a_source_without_random_walk_has_no_bias():
    f = PaperFilter(F550.model.parameters, (0.0, 0.0, 0.0), LEVEL, position_walks=False)
    for _ in range(100):
        f.pose(0.02, (HOVER, 0, 0, 0), (0.2, 0.0, 0.0), LEVEL)
    assert f.p[0] == pytest.approx(0.2, abs=1e-3) and not f.b.any()


def test_a_late_measurement_is_applied_to_the_present_state():
    f = marked_filter()
    f.v = np.array([1.0, 0.0, 0.0])
    p = f.p.copy()
    assert f.marker(0.0, (HOVER, 0, 0, 0), *observed(f)).accepted
    np.testing.assert_allclose(f.p, p, atol=1e-12)


def test_a_gap_between_poses_keeps_marker_and_bias():
    f = marked_filter()
    f.b[:] = 0.5, 0.0, 0.0
    marker, spread = f.p_M.copy(), f.P.diagonal().copy()
    f.restart(1.0, (2.0, 0.0, 0.0), LEVEL)
    np.testing.assert_array_equal(f.p_M, marker)
    assert f.p[0] == 2.0 and f.b[0] == 0.5 and f.marker_known and (f.P.diagonal() > spread).all()


def test_the_innovation_covariance_has_full_rank():
    f = new_filter()
    f.P = np.diag(np.full(SIZE, 1e-12))
    update = f.pose(0.0, None, (0.01, 0.0, 0.0), quat_from_rpy(0.01, 0.0, 0.0))
    assert update.size == 6 and math.isfinite(update.nis) and update.accepted


def test_rejected_measurements_widen_the_noise_and_lose_their_interval_as_published():
    f = new_filter()
    for _ in range(60):
        f.pose(0.02, (HOVER, 0, 0, 0), (0.0, 0.0, 0.0), LEVEL)
    f.v = np.array([1.0, 0.0, 0.0])
    p = f.p.copy()
    assert not f.pose(0.02, (HOVER, 0, 0, 0), (30.0, 0.0, 0.0), LEVEL).accepted
    np.testing.assert_array_equal(f.p, p)
    assert f.noise("pose")[0] > 100 * SENSORS["pose"].variances[0]
    # its own outliers open the gate
    assert any(f.pose(0.02, (HOVER, 0, 0, 0), (30.0, 0.0, 0.0), LEVEL).accepted for _ in range(50))

"""The map of bundles in the filter's state: algebra, places of the bundles, consistency, and flights of the node."""

import numpy as np
import pytest
from eskf_truth import boxminus, boxplus, bundle_pose, random_state

from acados_gen import eskf_model
from companion.core.enums import Sensor
from companion.core.frames import quat_exp, quat_from_rpy, quat_multiply, rotation_matrix, skew
from companion.estimation.filter_state import FilterState
from companion.estimation.layout import (
    BUNDLE_ERROR,
    BUNDLE_STATE,
    CONSIDERED,
    ERROR_SIZE,
    OTHERS_MAX,
    SLOW_MAX,
    ErrorIndex,
    StateIndex,
)

NAMES = ("left", "right", "above")


def with_bundles(eskf, rng, names=NAMES) -> FilterState:
    """A random filter state with further bundles."""
    filter_state = eskf.start(0.0, np.zeros(3), np.zeros(3), np.array([1.0, 0, 0, 0]))
    for name in names:
        filter_state.time_s += 2.0
        assert eskf.begin_bundle(filter_state, name)
        eskf.end_bundle(filter_state, name)
    filter_state.nominal[:] = random_state(rng)
    for name in names:
        filter_state.pose(name)[:] = random_state(rng)[BUNDLE_STATE]
        filter_state.slow_error(name)[:] = rng.normal(size=6)
    n = len(filter_state.covariance)
    M = rng.normal(size=(n, n))
    filter_state.covariance[:] = 1e-3 * (M @ M.T / n + 0.1 * np.eye(n))
    return filter_state


def test_an_exchange_swaps_a_bundle_and_a_second_one_restores_everything(eskf):
    filter_state = with_bundles(eskf, np.random.default_rng(1))
    before, name = filter_state.copy(), "right"
    eskf.begin_bundle(filter_state, name)
    np.testing.assert_array_equal(filter_state.nominal[BUNDLE_STATE], before.pose(name))
    np.testing.assert_array_equal(filter_state.nominal[StateIndex.SLOW_POSE], before.slow_error(name))
    rows, there = BUNDLE_ERROR, before.errors_of(name)
    np.testing.assert_array_equal(filter_state.covariance[rows, rows], before.covariance[there, there])
    np.testing.assert_array_equal(filter_state.covariance[rows, :6], before.covariance[there, :6])
    np.testing.assert_array_equal(filter_state.covariance, filter_state.covariance.T)
    eskf.end_bundle(filter_state, name)
    np.testing.assert_array_equal(filter_state.numbers, before.numbers)


def test_the_position_in_the_frame_of_a_further_bundle_is_that_after_an_exchange(eskf):
    filter_state = with_bundles(eskf, np.random.default_rng(4))
    position, covariance = eskf.relative(filter_state, "right")
    eskf.begin_bundle(filter_state, "right")
    exchanged_position, exchanged = eskf.relative(filter_state)
    np.testing.assert_allclose(position, exchanged_position, atol=1e-12)
    np.testing.assert_allclose(covariance, exchanged, atol=1e-12)


def test_prediction_keeps_poses_and_fades_slow_errors(eskf, vehicle):
    """Against F P Fᵀ + Q, with F from the covariance of the first bundle's rows alone."""
    rng = np.random.default_rng(2)
    filter_state = with_bundles(eskf, rng)
    alone = eskf.start(0.0, np.zeros(3), np.zeros(3), np.array([1.0, 0, 0, 0]))
    alone.nominal[:] = filter_state.nominal
    n, before = len(filter_state.covariance), filter_state.copy()
    # The transition of the first 51 errors, column by column, from predictions of unit covariances.
    sample = (0.005, 0.1, -0.2, 0.3, 0.5, -0.4, 9.9)
    F = np.eye(n)
    F[:ERROR_SIZE, :ERROR_SIZE] = transition_of(eskf, alone, sample)
    for name in NAMES:
        own, slow = filter_state.slow_errors_of(name), ErrorIndex.SLOW_POSE
        F[own, own] = F[slow, slow]
    alone.covariance[:] = 0.0
    eskf.predict_imu(alone, [sample])
    noise = np.diag(alone.covariance)
    Q = np.zeros(n)
    Q[:ERROR_SIZE] = noise
    for name in NAMES:
        Q[filter_state.errors_of(name)], Q[filter_state.slow_errors_of(name)] = (
            noise[BUNDLE_ERROR],
            noise[ErrorIndex.SLOW_POSE],
        )
    eskf.predict_imu(filter_state, [sample])
    expected = F @ before.covariance @ F.T + np.diag(Q)
    np.testing.assert_allclose(filter_state.covariance, expected, atol=1e-12)
    np.testing.assert_array_equal(filter_state.covariance, filter_state.covariance.T)
    for name in NAMES:
        np.testing.assert_array_equal(filter_state.pose(name), before.pose(name))
        fade = F[ErrorIndex.SLOW_POSE, ErrorIndex.SLOW_POSE][0, 0]
        np.testing.assert_allclose(filter_state.slow_error(name), fade * before.slow_error(name), atol=1e-15)


def transition_of(eskf, filter_state, sample):
    """F of one sample by polarisation: F P Fᵀ is linear in P, so the response to e_i e_jᵀ + e_j e_iᵀ gives its columns."""
    probe = filter_state.copy()
    probe.covariance[:] = 0.0
    eskf.predict_imu(probe, [sample])
    noise = probe.covariance.copy()
    # With P = 1 1ᵀ-like rank-one matrices v vᵀ, the result is (F v)(F v)ᵀ; v = e_k + c e_r fixes the sign by a row that stays.
    anchor, columns = ErrorIndex.MARKER_POSITION.start, []
    for k in range(ERROR_SIZE):
        v = np.zeros(ERROR_SIZE)
        v[k] = 1.0
        v[anchor] += 1.0
        probe = filter_state.copy()
        probe.covariance[:] = np.outer(v, v)
        eskf.predict_imu(probe, [sample])
        outer = probe.covariance - noise
        Fv = outer[:, anchor] / np.sqrt(outer[anchor, anchor])  # the anchor's own row of F is the identity's
        e = np.zeros(ERROR_SIZE)
        e[anchor] = 1.0
        columns.append(Fv - e)
    return np.array(columns).T


@pytest.mark.parametrize("further", ["", *NAMES])
def test_update_with_a_map_is_the_textbook_update(eskf, vehicle, further):
    """Against dense K, Joseph's form and the carried errors of every bundle, each from finite differences of its frame."""
    rng = np.random.default_rng(3)
    filter_state = with_bundles(eskf, rng)
    if further:
        eskf.begin_bundle(filter_state, further)
    filter_state.marker_known = True
    filter_state.covariance[:] *= 0.01
    y = seen(eskf, filter_state.nominal) + [np.zeros(3), np.eye(6).ravel()]
    y[0] = y[0] + rng.normal(0, 0.01, 3)
    R = 1e-4 * np.eye(6)
    y[-1] = 1e-2 * np.eye(6).ravel()
    before = filter_state.copy()
    x, P = before.nominal, before.covariance
    nu, H_core = (np.array(o) for o in eskf_model.measurement(Sensor.MARKER)(x, *y[:2], eskf.p_BC, eskf.q_BC, *y[2:]))
    H = np.zeros((6, len(P)))
    H[:, :ERROR_SIZE] = H_core
    S = H @ P @ H.T + R
    K = P @ H.T @ np.linalg.inv(S)
    K[CONSIDERED] = 0.0
    correction = (K @ nu).ravel()
    I_KH = np.eye(len(P)) - K @ H
    G = reset_of_all(filter_state, x, correction)
    expected = G @ (I_KH @ P @ I_KH.T + K @ R @ K.T) @ G.T

    update = eskf.measure_marker(filter_state, y[0], y[1], R)
    assert update.accepted
    np.testing.assert_allclose(boxminus(filter_state.nominal, boxplus(x, correction[:ERROR_SIZE])), 0, atol=1e-10)
    for name in NAMES:
        e = np.zeros(ERROR_SIZE)
        e[BUNDLE_ERROR] = correction[before.errors_of(name)]
        moved, other = x.copy(), x.copy()
        moved[BUNDLE_STATE], other[BUNDLE_STATE] = before.pose(name), filter_state.pose(name)
        np.testing.assert_allclose(boxminus(other, boxplus(moved, e))[BUNDLE_ERROR], 0, atol=1e-10)
        slow = before.slow_error(name) + correction[before.slow_errors_of(name)]
        np.testing.assert_allclose(filter_state.slow_error(name), slow, atol=1e-12)
    np.testing.assert_allclose(filter_state.covariance, expected, atol=1e-8)
    np.testing.assert_array_equal(filter_state.covariance, filter_state.covariance.T)


def seen(eskf, x):
    """(p_CM, q_CM) of the bundle in the mission's place, as the filter expects it."""
    p, q = bundle_pose(x, eskf.p_BC, eskf.q_BC, np.zeros(3))
    return [p, q]


def reset_of_all(filter_state, x, correction):
    """G of the whole state: that of the models for its first 51 errors, and the same for each further bundle."""
    n = len(correction)
    G = np.eye(n)
    _, C, J = (np.array(o) for o in eskf_model.inject()(x, correction[:ERROR_SIZE]))
    theta = ErrorIndex.ATTITUDE
    own = slice(BUNDLE_ERROR.start + 3, BUNDLE_ERROR.stop)
    G[own, own] = J
    G[: len(C), theta] += C
    for name in NAMES:
        errors = filter_state.errors_of(name)
        pose, e = filter_state.pose(name), correction[errors]
        before, after = rotation_matrix(x[StateIndex.ATTITUDE]), pose_after(pose, e)
        J = right_jacobian(e[3:])
        G[errors.start : errors.start + 3, theta] += -skew(e[:3]) @ before
        turned = slice(errors.start + 3, errors.stop)
        G[turned, theta] += (after.T - J @ rotation_matrix(pose[3:]).T) @ before
        G[turned, turned] = J
    return G


def pose_after(pose, e):
    return rotation_matrix(quat_multiply(pose[3:], quat_exp(e[3:])))


def right_jacobian(r):
    s = skew(r)
    return np.eye(3) - s / 2 + s @ s / 6 - s @ s @ s / 24


def test_bundles_in_the_state_are_bounded_and_the_longest_unseen_is_dropped(eskf):
    filter_state = eskf.start(0.0, np.zeros(3), np.zeros(3), np.array([1.0, 0, 0, 0]))
    facing = quat_from_rpy(3.1, 0.0, 0.0)
    for i in range(OTHERS_MAX + 3):
        filter_state.time_s += 2.0
        assert eskf.begin_bundle(filter_state, f"b{i}")
        eskf.measure_marker(filter_state, np.array([0.1 * i, 0.0, 3.0]), facing, 1e-4 * np.eye(6))
        eskf.end_bundle(filter_state, f"b{i}")
    assert len(filter_state.others) == OTHERS_MAX and len(filter_state.slow) == SLOW_MAX
    assert list(filter_state.others)[0] == "b3" and filter_state.slow[-1] == f"b{OTHERS_MAX + 2}"
    assert (np.linalg.eigvalsh(filter_state.covariance) > 0).all()


def test_more_bundles_in_sight_than_slow_errors_are_not_used(eskf):
    filter_state = eskf.start(0.0, np.zeros(3), np.zeros(3), np.array([1.0, 0, 0, 0]))
    facing, used = quat_from_rpy(3.1, 0.0, 0.0), []
    for i in range(SLOW_MAX + 2):
        used.append(eskf.begin_bundle(filter_state, f"b{i}"))
        if used[-1]:
            eskf.measure_marker(filter_state, np.array([0.1 * i, 0.0, 3.0]), facing, 1e-4 * np.eye(6))
            eskf.end_bundle(filter_state, f"b{i}")
    assert used == SLOW_MAX * [True] + [False, False]


def test_a_further_bundle_changes_nothing_of_the_aircraft_when_it_is_first_seen(eskf):
    """Its prior comes from the aircraft's errors: one image of an unknown bundle says nothing about the aircraft."""
    rng = np.random.default_rng(5)
    filter_state = with_bundles(eskf, rng, names=())
    before = filter_state.copy()
    eskf.begin_bundle(filter_state, "new")
    p, q = np.array([0.2, 0.1, 3.0]), quat_from_rpy(3.1, 0.0, 0.1)
    eskf.measure_marker(filter_state, p, q, 1e-4 * np.eye(6))
    eskf.end_bundle(filter_state, "new")
    motion = slice(0, 12)
    np.testing.assert_allclose(filter_state.nominal[:9], before.nominal[:9], atol=2e-3)
    variances = filter_state.covariance.diagonal()[motion] / before.covariance.diagonal()[motion]
    assert (variances > 0.99).all() and (variances < 1.01).all()

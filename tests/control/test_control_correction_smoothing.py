"""Corrections of the estimate: large ones fade in, small ones and motion pass at once."""

import numpy as np
import pytest

from companion.control.correction_smoothing import JUMP_M, LARGEST_M, TIME_S, CorrectionSmoothing
from companion.core.frames import quat_from_rpy, rotation_matrix
from companion.core.messages import State

STEP_S = 0.01
V_W = np.array([0.5, -0.2, 0.1])
Q_WM = quat_from_rpy(1.5, 0.1, -1.2)


def state_at(t, p_W, bundle="", p_WM=(0.0, 0.0, 0.0), resets=0):
    return State(
        stamp_s=t, p_W=tuple(p_W), v_W=tuple(V_W), q_WB=(1.0, 0.0, 0.0, 0.0),
        disturbance_W=(0.0, 0.0, 0.0), gnss_bias_W=(0.0, 0.0, 0.0), velocity_bias_W=(0.0, 0.0, 0.0),
        bundle=bundle, p_WM=tuple(p_WM), q_WM=tuple(Q_WM), marker_age_s=0.0, position_std_m=0.1, relative_std_m=0.1,
        covariance_diag=(), battery_voltage_v=15.0, reset_count=resets,
    )  # fmt: skip


def offsets(jump_at, seconds=3.0, frame="world", bundle="", moved_bundle=lambda t: (0.0, 0.0, 0.0), resets=lambda t: 0):
    """The offset after each state of a motion with V_W; jump_at(t): sum of the jumps so far [m]."""
    smoothing, found = CorrectionSmoothing(), []
    for i in range(round(seconds / STEP_S)):
        t = i * STEP_S
        state = state_at(t, V_W * t + jump_at(t), bundle, moved_bundle(t), resets(t))
        found.append(smoothing.offset_W(state, frame).copy())
    return np.array(found)


def test_motion_and_small_corrections_pass_at_once():
    rng = np.random.default_rng(1)
    steps = 0.5 * JUMP_M * rng.uniform(-1, 1, (300, 3)) / 3**0.5
    total = np.cumsum(steps, axis=0)
    assert not offsets(lambda t: total[round(t / STEP_S)]).any()


def test_a_jump_is_held_back_and_fades_in():
    jump = np.array([0.3, -0.1, 0.2])
    found = offsets(lambda t: jump * (t >= 1.0))
    np.testing.assert_allclose(found[100], jump, atol=1e-9)
    assert not found[:100].any()
    seen = np.diff(jump * (np.arange(300) >= 100)[:, None] - found, axis=0)  # of the jump, in each step
    assert np.abs(seen).max() < 1.01 * STEP_S / TIME_S * 0.3
    np.testing.assert_allclose(found[299], jump * np.exp(-1.99 / TIME_S), rtol=1e-6)


def test_jumps_in_a_row_cancel_and_the_sum_is_bounded():
    jump = np.array([0.2, 0.0, 0.0])
    found = offsets(lambda t: jump * (1.0 <= t < 1.05))
    assert np.linalg.norm(found[105]) < 0.02  # what faded in between
    found = offsets(lambda t: 0.4 * np.ones(3) * max(0, int((t - 1) / 0.02)) * (t >= 1))
    assert np.linalg.norm(found, axis=1).max() == pytest.approx(LARGEST_M)


def test_a_jump_of_aircraft_and_bundle_together_is_none_in_the_bundles_frame():
    jump = np.array([0.4, 0.2, -0.1])

    def both(t):
        return jump * (t >= 1.0)

    assert not offsets(both, frame="pier", bundle="pier", moved_bundle=lambda t: (5.0, 1.0, 3.0) + both(t)).any()
    alone = offsets(lambda t: 0 * jump, frame="pier", bundle="pier", moved_bundle=lambda t: (5.0, 1.0, 3.0) + both(t))
    np.testing.assert_allclose(alone[100], -jump, atol=1e-9)  # the bundle jumped: relative to it the aircraft did
    assert rotation_matrix(Q_WM)[0, 0] != 1.0


def test_a_restart_of_the_filter_and_a_gap_are_no_jump():
    jump = np.array([2.0, 0.0, 0.0])
    assert not offsets(lambda t: jump * (t >= 1.0), resets=lambda t: int(t >= 1.0)).any()
    smoothing = CorrectionSmoothing()
    smoothing.offset_W(state_at(0.0, np.zeros(3)), "world")
    assert not smoothing.offset_W(state_at(0.5, np.ones(3)), "world").any()


def test_forgotten_when_the_controller_does_not_act():
    smoothing = CorrectionSmoothing()
    smoothing.offset_W(state_at(0.0, np.zeros(3)), "world")
    assert smoothing.offset_W(state_at(0.01, np.ones(3) * 0.2), "world").any()
    smoothing.forget()
    assert not smoothing.offset_W(state_at(0.02, np.ones(3) * 0.2), "world").any()

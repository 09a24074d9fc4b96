"""Frames at the edge of the stack: hand-computed cases, round trips, and agreement with plain rotation matrices."""

import math

import numpy as np
import pytest

from companion.core.frames import quat_from_rpy, quat_multiply, quat_normalized, rotation_matrix, rpy_from_quat
from companion.fcu.ned import attitude_setpoint_ned, swap_attitude, swap_body, swap_world, swap_yaw

# rows: the axes of the one frame written in the other, from the definitions of NED, ENU, FRD and FLU
R_ENU_NED = np.array([[0, 1, 0], [1, 0, 0], [0, 0, -1]], float)
R_FRD_FLU = np.diag([1.0, -1.0, -1.0])
DEG = math.pi / 180


def test_position_north_of_the_origin_and_up_becomes_y_and_z():
    assert swap_world((10.0, 2.0, -3.0)) == (2.0, 10.0, 3.0)


def test_right_and_down_body_rates_become_left_and_up():
    assert swap_body((0.1, 0.2, 0.3)) == (0.1, -0.2, -0.3)


def test_level_and_facing_north_is_ninety_degrees_of_enu_yaw():
    q = swap_attitude((1.0, 0.0, 0.0, 0.0))
    assert q == pytest.approx((math.sqrt(0.5), 0, 0, math.sqrt(0.5)))
    assert rpy_from_quat(q) == pytest.approx((0, 0, math.pi / 2))


def test_level_and_facing_east_is_zero_enu_yaw():
    assert swap_attitude(tuple(quat_from_rpy(0, 0, math.pi / 2))) == pytest.approx((1, 0, 0, 0))


@pytest.mark.parametrize("seed", range(20))
def test_attitude_agrees_with_rotation_matrices(seed):
    q = quat_normalized(np.random.default_rng(seed).normal(size=4))
    got = rotation_matrix(swap_attitude(tuple(q)))
    assert got == pytest.approx(R_ENU_NED @ rotation_matrix(q) @ R_FRD_FLU, abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_round_trips_return_what_went_in(seed):
    rng = np.random.default_rng(seed)
    v = tuple(rng.normal(size=3))
    assert swap_world(swap_world(v)) == v
    assert swap_body(swap_body(v)) == v
    q = quat_normalized(rng.normal(size=4))
    assert swap_attitude(swap_attitude(tuple(q))) == pytest.approx(tuple(q))
    yaw = float(rng.uniform(-math.pi, math.pi))
    assert swap_yaw(swap_yaw(yaw)) == pytest.approx(yaw)


@pytest.mark.parametrize(("enu", "ned"), [(0, 90), (90, 0), (180, -90), (-90, -180), (45, 45), (-100, -170)])
def test_yaw_turns_from_east_ccw_to_north_cw(enu, ned):
    assert swap_yaw(enu * DEG) == pytest.approx(ned * DEG)


def test_nose_down_in_flu_is_negative_pitch_in_frd():
    roll, pitch, yaw = rpy_from_quat(attitude_setpoint_ned(0.0, 10 * DEG, 90 * DEG))
    assert (roll, pitch, yaw) == pytest.approx((0.0, -10 * DEG, 0.0))


def test_roll_to_the_right_keeps_its_sign():
    roll, pitch, yaw = rpy_from_quat(attitude_setpoint_ned(10 * DEG, 0.0, 0.0))
    assert (roll, pitch, yaw) == pytest.approx((10 * DEG, 0.0, 90 * DEG))


@pytest.mark.parametrize("seed", range(20))
def test_a_setpoint_is_the_same_attitude_in_both_frames(seed):
    rng = np.random.default_rng(100 + seed)
    rpy = rng.uniform([-1, -1, -math.pi], [1, 1, math.pi])
    expected = swap_attitude(tuple(quat_from_rpy(*rpy)))
    assert attitude_setpoint_ned(*rpy) == pytest.approx(expected, abs=1e-12)


def test_thrust_of_a_nose_down_attitude_pulls_forward_in_both_worlds():
    """Nose down facing east: body z up tips east, in ENU and, through NED, in ENU again."""
    q_NED = attitude_setpoint_ned(0.0, 20 * DEG, 0.0)
    up_NED = rotation_matrix(q_NED) @ np.array([0.0, 0.0, -1.0])  # thrust points to -z of FRD
    assert np.array(swap_world(tuple(up_NED))) == pytest.approx([math.sin(20 * DEG), 0, math.cos(20 * DEG)])


def test_rates_integrate_to_the_same_attitude_in_either_frame():
    """dq/dt = q ⊗ ω/2 in FRD then swapped, equals swapped first and FLU rates."""
    q, w, dt = tuple(quat_normalized([0.9, 0.1, -0.2, 0.3])), (0.3, -0.2, 0.5), 1e-4
    frd = quat_normalized(quat_multiply(q, [1, *(0.5 * dt * np.array(w))]))
    flu = quat_normalized(quat_multiply(swap_attitude(q), [1, *(0.5 * dt * np.array(swap_body(w)))]))
    assert swap_attitude(tuple(frd)) == pytest.approx(tuple(flu), abs=1e-12)

"""Rotations agree with scipy and with hand-computed cases."""

import math

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from companion.core import frames


def scipy_quat(q):
    return Rotation.from_quat([q[1], q[2], q[3], q[0]])


@pytest.fixture
def random_quats():
    rng = np.random.default_rng(1)
    return [frames.quat_normalized(q) for q in rng.normal(size=(200, 4))]


def test_rotation_matrix_and_back(random_quats):
    for q in random_quats:
        R = frames.rotation_matrix(q)
        assert np.allclose(R, scipy_quat(q).as_matrix())
        assert np.allclose(frames.quat_from_matrix(R), q)


def test_product_is_composition(random_quats):
    for a, b in zip(random_quats, random_quats[1:], strict=False):
        R = frames.rotation_matrix(a) @ frames.rotation_matrix(b)
        assert np.allclose(frames.rotation_matrix(frames.quat_multiply(a, b)), R)


def test_euler_angles_round_trip():
    rng = np.random.default_rng(2)
    for _ in range(200):
        rpy = rng.uniform(-1, 1, 3) * [3.1, 1.5, 3.1]
        q = frames.quat_from_rpy(*rpy)
        assert np.allclose(frames.rpy_from_quat(q), rpy)
        assert np.allclose(frames.rotation_matrix(q), Rotation.from_euler("ZYX", rpy[::-1]).as_matrix())


def test_positive_pitch_lowers_the_nose_and_pushes_forward():
    R = frames.rotation_matrix(frames.quat_from_rpy(0, 0.2, 0))
    assert R[2, 0] < 0  # the body's x axis points down
    assert R[0, 2] > 0  # and its thrust axis leans forward


def test_exp_and_log_are_inverse():
    rng = np.random.default_rng(3)
    for scale in (1e-12, 1e-6, 0.1, 3.0):
        v = rng.normal(size=3)
        v *= scale / np.linalg.norm(v)
        assert np.allclose(frames.quat_log(frames.quat_exp(v)), v, rtol=1e-7, atol=1e-15)


def test_fault_6_yaw_errors_wrap_at_half_a_turn():
    """The prior stack wrapped at a quarter: -100° became +260°."""
    assert math.isclose(frames.wrap_angle(math.radians(-100)), math.radians(-100))
    assert math.isclose(frames.wrap_angle(math.radians(260)), math.radians(-100))
    assert math.isclose(frames.wrap_angle(math.radians(100)), math.radians(100))
    assert math.isclose(abs(frames.wrap_angle(math.pi)), math.pi)


def test_facing_a_wall_and_a_floor():
    # A wall whose face looks west: z of M is -x of W, y of M is up.
    q_wall = frames.quat_from_matrix(np.array([[0, 0, -1], [-1, 0, 0], [0, 1, 0]]))
    assert math.isclose(frames.facing_yaw(q_wall), 0.0, abs_tol=1e-12)
    # A floor bundle whose "up" side points north.
    assert math.isclose(frames.facing_yaw([1, 0, 0, 0]), math.pi / 2)


def test_a_quaternion_without_length_is_refused():
    with pytest.raises(ValueError, match="length"):
        frames.quat_normalized([0, 0, 0, 0])

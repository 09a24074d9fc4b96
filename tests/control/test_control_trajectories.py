import math

import numpy as np
import pytest

from companion.control.trajectories import duration_s, in_world, is_finite, sample
from companion.frames import quat_from_rpy, rotation_matrix
from companion.messages import WORLD, Hold, Move, Reference, State


def move(end=(3.0, -2.0, 1.0), yaw_end=2.0, **limits):
    defaults = {"speed_m_s": 1.0, "acceleration_m_s2": 0.8, "yaw_rate_rad_s": 0.5}
    return Move(p_start=(0.0, 0.0, 0.0), yaw_start_rad=0.5, p_end=end, yaw_end_rad=yaw_end, **(defaults | limits))


def reference(trajectory, frame=WORLD):
    return Reference(stamp_s=0.0, id=1, frame=frame, start_s=0.0, trajectory=trajectory)


def state(bundle="pier", p_WM=(5.0, 1.0, 2.0), q_WM=(1.0, 0.0, 0.0, 0.0)):
    return State(
        stamp_s=0.0, p_W=(0.0, 0.0, 0.0), v_W=(0.0, 0.0, 0.0), q_WB=(1.0, 0.0, 0.0, 0.0),
        disturbance_W=(0.0, 0.0, 0.0), gnss_bias_W=(0.0, 0.0, 0.0),
        velocity_bias_W=(0.0, 0.0, 0.0), bundle=bundle, p_WM=p_WM, q_WM=q_WM,
        marker_age_s=0.0, position_std_m=0.1, relative_std_m=0.1, covariance_diag=(), battery_voltage_v=15.0,
        reset_count=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "binding"),
    [
        ({"speed_m_s": 0.4}, "speed"),
        ({"acceleration_m_s2": 0.05}, "acceleration"),
        ({"yaw_rate_rad_s": 0.05}, "yaw"),
    ],
)
def test_a_move_keeps_its_limits_and_reaches_the_binding_one(limits, binding):
    trajectory = move(**limits)
    times = np.linspace(0, duration_s(trajectory), 4001)
    s = sample(trajectory, 0.0, times)
    peaks = {
        "speed": np.linalg.norm(s.v_W, axis=1).max() / trajectory.speed_m_s,
        "acceleration": np.linalg.norm(s.a_W, axis=1).max() / trajectory.acceleration_m_s2,
        "yaw": np.abs(s.yaw_rate).max() / trajectory.yaw_rate_rad_s,
    }
    assert max(peaks.values()) <= 1 + 1e-9
    assert peaks[binding] == pytest.approx(1, abs=1e-4)


def test_velocity_and_acceleration_are_the_derivatives_of_position():
    times = np.linspace(-1, duration_s(move()) + 1, 20001)
    s = sample(move(), 0.0, times)
    np.testing.assert_allclose(np.gradient(s.p_W, times, axis=0), s.v_W, atol=1e-5)
    np.testing.assert_allclose(np.gradient(s.v_W, times, axis=0), s.a_W, atol=1e-4)
    np.testing.assert_allclose(np.gradient(s.yaw, times), s.yaw_rate, atol=1e-5)


def test_a_move_rests_before_its_start_and_after_its_end():
    s = sample(move(), 5.0, np.array([0.0, 5.0, 5.0 + duration_s(move()), 100.0]))
    np.testing.assert_allclose(s.p_W[:2], 0)
    np.testing.assert_allclose(s.p_W[2:], [(3, -2, 1)] * 2)
    assert np.abs(s.v_W).max() < 1e-12
    assert np.abs(s.a_W).max() < 1e-12


def test_yaw_turns_the_short_way():
    trajectory = Move(
        p_start=(0, 0, 0), yaw_start_rad=3.0, p_end=(0, 0, 0), yaw_end_rad=-3.0, speed_m_s=1, acceleration_m_s2=1,
        yaw_rate_rad_s=0.5,
    )  # fmt: skip
    s = sample(trajectory, 0.0, np.linspace(0, duration_s(trajectory), 100))
    assert s.yaw[-1] == pytest.approx(2 * math.pi - 3.0)
    assert (s.yaw_rate >= 0).all()


def test_a_move_without_way_or_limits_is_finite():
    trajectory = move(end=(0.0, 0.0, 0.0), yaw_end=0.5, speed_m_s=0.0, acceleration_m_s2=0.0, yaw_rate_rad_s=0.0)
    assert all(np.isfinite(column).all() for column in sample(trajectory, 0.0, np.linspace(-1, 1, 5)))
    assert math.isfinite(duration_s(move(speed_m_s=0.0, acceleration_m_s2=-1.0)))


def test_a_reference_in_a_bundles_frame_becomes_world():
    """The face looks along +x of W: z of M is x of W; 4 m in front of it, looking at it, is at 5 + 4 m, yaw π."""
    R = np.array([[0, 0, 1.0], [1, 0, 0], [0, 1, 0]])  # columns: x, y, z of M in W
    from companion.frames import quat_from_matrix

    q_WM = tuple(quat_from_matrix(R))
    hold = in_world(reference(Hold(p=(0.5, 0.2, 4.0), yaw_rad=0.0), "pier"), state(q_WM=q_WM))
    np.testing.assert_allclose(hold.p, (9.0, 1.5, 2.2), atol=1e-12)
    assert abs(hold.yaw_rad) == pytest.approx(math.pi)


def test_a_bundle_move_equals_its_transformed_points():
    q_WM = quat_from_rpy(0.1, -0.2, 0.7)
    world = in_world(reference(move(), "pier"), state(q_WM=tuple(q_WM)))
    np.testing.assert_allclose(world.p_end, np.array([5, 1, 2]) + rotation_matrix(q_WM) @ (3.0, -2.0, 1.0))
    assert world.yaw_end_rad - world.yaw_start_rad == pytest.approx(1.5)
    assert duration_s(world) == pytest.approx(duration_s(move()))


def test_an_unknown_bundle_has_no_world_trajectory():
    assert in_world(reference(move(), "girder"), state("pier")) is None
    assert in_world(reference(move(), ""), state("")) is None


@pytest.mark.parametrize(
    "trajectory", [Hold(p=(math.nan, 0, 0), yaw_rad=0), Hold(p=(0, 0, 0), yaw_rad=math.inf), move(speed_m_s=math.nan)]
)
def test_numbers_that_are_none_are_seen(trajectory):
    assert not is_finite(reference(trajectory))
    assert is_finite(reference(move()))

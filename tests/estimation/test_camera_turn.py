"""The turn of the camera between images, from gyroscopes, or from the flight controller's attitude where these are missing."""

import numpy as np
import pytest

from companion.core.frames import quat_exp, quat_multiply, rotation_matrix
from companion.estimation.camera_turn import (
    ATTITUDE_RAD_SQRT_S,
    UNKNOWN_RAD_SQRT_S,
    CameraTurn,
)
from companion.estimation.imu import ImuSamples

GYRO = 0.002
R_BC = rotation_matrix(np.array([0.5, -0.5, 0.5, -0.5]))
RATE_B = np.array([0.3, -0.2, 0.5])


def attitude(t):
    return quat_multiply(quat_exp((0.1, 0.2, 0.0)), quat_exp(RATE_B * t))


def unknown(t):
    return None


def samples(*spans):
    imu = ImuSamples(10.0)
    for begin_s, end_s in spans:
        for t in np.arange(begin_s, end_s + 1e-9, 0.005):
            imu.add(t, (*RATE_B, 0.0, 0.0, 9.8))
    return imu


def expected(begin_s, end_s):
    """Of vectors in the camera's axes, from then to now."""
    turned_B = rotation_matrix(attitude(begin_s)).T @ rotation_matrix(attitude(end_s))
    return R_BC.T @ turned_B.T @ R_BC


def test_gyroscopes_alone():
    turn, imu = CameraTurn(GYRO), samples((0.0, 2.0))
    begin = turn.advance(0.5, imu, unknown, R_BC)
    for t in np.arange(0.533, 1.5, 0.033):
        turn.advance(t, imu, unknown, R_BC)
    done = turn.advance(1.5, imu, unknown, R_BC).since(begin)
    np.testing.assert_allclose(done.R, expected(0.5, 1.5), atol=1e-9)
    assert (done.time_s, done.gyro_s) == pytest.approx((1.0, 1.0))
    assert GYRO**2 < done.variance_rad2 < 0.01**2


def test_a_point_that_stands_still_is_where_the_turn_says():
    turn, imu = CameraTurn(GYRO), samples((0.0, 2.0))
    begin = turn.advance(0.5, imu, unknown, R_BC)
    done = turn.advance(1.0, imu, unknown, R_BC).since(begin)
    point_W = np.array([3.0, 1.0, -2.0])
    before_C, after_C = (R_BC.T @ rotation_matrix(attitude(t)).T @ point_W for t in (0.5, 1.0))
    np.testing.assert_allclose(done.R @ before_C, after_C, atol=1e-9)


@pytest.mark.parametrize(("known", "density"), [(attitude, ATTITUDE_RAD_SQRT_S), (unknown, UNKNOWN_RAD_SQRT_S)])
def test_a_gap_of_the_gyroscopes(known, density):
    turn, imu = CameraTurn(GYRO), samples((0.0, 0.6), (1.0, 1.6))
    begin = turn.advance(0.5, imu, known, R_BC)
    done = turn.advance(1.5, imu, known, R_BC).since(begin)
    if known is attitude:
        np.testing.assert_allclose(done.R, expected(0.5, 1.5), atol=1e-9)
    assert done.gyro_s == pytest.approx(0.62, abs=0.006)  # a sample holds for 20 ms
    assert done.variance_rad2 == pytest.approx(density**2 * 0.375, rel=0.4)


@pytest.mark.parametrize("late_s", [0.02, 0.06, 0.15])
@pytest.mark.parametrize("known", [attitude, unknown])
def test_samples_that_arrive_after_the_image_are_not_lost(late_s, known):
    """Each image is handled before the samples of its last part, or of the whole of its interval, have arrived."""
    turn, imu, arrived_s = CameraTurn(GYRO), ImuSamples(10.0), 0.0
    images = np.arange(0.5, 2.0, 0.033)
    turns = []
    for image_s in images:
        for t in np.arange(arrived_s, image_s - late_s, 0.005):
            imu.add(t, (*RATE_B, 0.0, 0.0, 9.8))
            arrived_s = t + 0.005
        until_s = arrived_s - 0.005

        def so_far(t, until_s=until_s):
            return known(t) if t <= until_s else None

        turns.append(turn.advance(image_s, imu, so_far, R_BC))
    done = turns[-1].since(turns[0])
    np.testing.assert_allclose(done.R, expected(images[0], images[-1]), atol=2e-3)
    steps = [b.since(a) for a, b in zip(turns, turns[1:], strict=False)]
    assert all(step.variance_rad2 > 0.0 for step in steps)
    assert sum(step.variance_rad2 for step in steps) > late_s**3  # one does not know so well what one extrapolates


def test_a_stream_that_ends_gives_way_to_the_attitude():
    turn, imu = CameraTurn(GYRO), samples((0.0, 0.6))
    begin = turn.advance(0.5, imu, attitude, R_BC)
    for t in np.arange(0.55, 2.0, 0.05):
        done = turn.advance(t, imu, attitude, R_BC)
    np.testing.assert_allclose(done.since(begin).R, expected(0.5, done.time_s), atol=1e-9)


def test_a_stream_that_nothing_replaces_leaves_the_turn_unknown():
    turn, imu = CameraTurn(GYRO), samples((0.0, 0.6))
    begin = turn.advance(0.5, imu, unknown, R_BC)
    for t in np.arange(0.55, 3.0, 0.05):
        done = turn.advance(t, imu, unknown, R_BC)
    assert done.since(begin).variance_rad2 > 1.0


def test_without_any_gyroscopes_the_attitude_is_used():
    turn = CameraTurn(GYRO)
    begin = turn.advance(0.5, ImuSamples(1.0), attitude, R_BC)
    done = turn.advance(0.6, ImuSamples(1.0), attitude, R_BC).since(begin)
    np.testing.assert_allclose(done.R, expected(0.5, 0.6), atol=1e-9)
    assert done.gyro_s == 0.0


def test_it_never_goes_back():
    turn, imu = CameraTurn(GYRO), samples((0.0, 2.0))
    newest = turn.advance(1.0, imu, attitude, R_BC)
    assert turn.advance(1.0, imu, attitude, R_BC) is None
    assert turn.advance(0.9, imu, attitude, R_BC) is None
    later = turn.advance(1.1, imu, attitude, R_BC).since(newest)
    np.testing.assert_allclose(later.R, expected(1.0, 1.1), atol=1e-9)


def test_a_turn_leaves_doubt_about_the_axis_of_the_mount():
    quick, slow = CameraTurn(GYRO), CameraTurn(GYRO)
    imu, still = samples((0.0, 2.0)), ImuSamples(10.0)
    for t in np.arange(0.0, 2.0, 0.005):
        still.add(t, (0.0, 0.0, 0.0, 0.0, 0.0, 9.8))
    variances = []
    for turn, stream in ((quick, imu), (slow, still)):
        turn.advance(0.5, stream, unknown, R_BC)
        variances.append(turn.advance(1.5, stream, unknown, R_BC).variance_rad2)
    assert variances[0] > 5 * variances[1]

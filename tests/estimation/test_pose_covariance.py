"""The covariance by which the filter weighs a pose carries no noise of that pose."""

from pathlib import Path

import numpy as np
import pytest

from companion.core.camera_model import CameraModel
from companion.core.config import load
from companion.core.frames import quat_from_matrix, quat_log, rotation_matrix
from companion.core.site import load_site
from companion.core.vehicle import Vehicle
from companion.estimation.pose_covariance import KEPT, PoseCovariances
from companion.tracking.pose import PoseSolver

FLOOR = Path(__file__).parents[2] / "config/markers/lab_floor.toml"
VEHICLE = Path(__file__).parents[2] / "config/vehicles/f550_floor.toml"
NOISE_PX, RATE_HZ = 0.3, 30.0
UPSIDE_DOWN = np.diag([1.0, -1.0, -1.0])  # the board faces the camera
P_CM = np.array([0.0, 0.08, 1.45])  # the camera of the laboratory's aircraft, 8 cm forward of the board's centre
IDS = frozenset({("16h5", 1), ("16h5", 2)})


@pytest.fixture(scope="module")
def observed():
    """(pose errors (n, 6), tracker's covariances (n, 6, 6)) of one view with white corner noise."""
    camera = CameraModel(load(VEHICLE, Vehicle).camera)
    solver = PoseSolver(camera, NOISE_PX, 3.0, 3.0)
    corners_M = np.array([m.corners_M() for m in load_site(FLOOR).bundle[0].markers])
    exact = camera.project(corners_M.reshape(-1, 3) @ UPSIDE_DOWN.T + P_CM).reshape(-1, 4, 2)
    rng, errors, covariances = np.random.default_rng(4), [], []
    for _ in range(600):
        found = solver.solve(exact + rng.normal(0.0, NOISE_PX, exact.shape), corners_M)
        turned = quat_log(quat_from_matrix(UPSIDE_DOWN.T @ rotation_matrix(found.best.q_CM)))
        errors.append([*(found.best.p_CM - P_CM), *turned])
        covariances.append(found.covariance)
    return np.array(errors), np.array(covariances)


def shapes(covariances):
    """Standard deviations and correlations of each, (n, 21)."""
    rows = []
    for c in covariances:
        std = np.sqrt(np.diag(c))
        rows.append([*std, *(c / np.outer(std, std))[np.triu_indices(6, 1)]])
    return np.array(rows)


def carried(errors, covariances):
    """By how much a correlation in the covariance follows the error of its pose, most of all: per standard deviation of it."""
    e, entries = errors / errors.std(0), shapes(covariances)[:, 6:]
    return np.abs((e - e.mean(0)).T @ (entries - entries.mean(0)) / len(e)).max()


def smoothed(covariances):
    averages = PoseCovariances()
    return np.array([averages.smoothed("floor", IDS, i / RATE_HZ, c) for i, c in enumerate(covariances)])


def test_an_average_does_not_follow_the_noise_of_the_pose(observed):
    errors, covariances = observed
    after = slice(100, None)
    assert carried(errors[after], smoothed(covariances)[after]) < 0.25 * carried(errors[after], covariances[after])


def test_the_mean_is_that_of_the_tracker_and_every_average_is_a_covariance(observed):
    _, covariances = observed
    averages = smoothed(covariances)
    np.testing.assert_allclose(
        np.sqrt(averages[300:].mean(0).diagonal()), np.sqrt(covariances.mean(0).diagonal()), rtol=0.05
    )
    for c in averages:
        np.linalg.cholesky(c)
        np.testing.assert_allclose(c, c.T)


def test_the_first_image_is_taken_as_it_is(observed):
    covariance = observed[1][0]
    np.testing.assert_allclose(PoseCovariances().smoothed("floor", IDS, 0.0, covariance), covariance, rtol=1e-12)


def test_the_size_follows_at_once(observed):
    """The range changes, and corners that fit badly make the tracker's covariance larger."""
    averages, covariance = PoseCovariances(), observed[1][0]
    for i in range(100):
        averages.smoothed("floor", IDS, i / RATE_HZ, covariance)
    np.testing.assert_allclose(averages.smoothed("floor", IDS, 3.4, 9.0 * covariance), 9.0 * covariance, rtol=1e-9)


@pytest.mark.parametrize(
    ("bundle", "markers", "stamp_s"),
    [
        ("floor", frozenset({("16h5", 1)}), 3.4),
        ("floor", frozenset({("16h5", 1), ("36h11", 2)}), 3.4),
        ("pier", IDS, 3.4),
        ("floor", IDS, 9.0),
        ("floor", IDS, -9.0),
    ],
    ids=["markers", "family", "bundle", "gap", "clock"],
)
def test_another_view_begins_again(observed, bundle, markers, stamp_s):
    averages, (_, covariances) = PoseCovariances(), observed
    for i in range(100):
        averages.smoothed("floor", IDS, i / RATE_HZ, covariances[i])
    turn = np.diag([1.0, 3.0, 1.0, 1.0, 1 / 3, 1.0])
    other = turn @ covariances[0] @ turn
    np.testing.assert_allclose(averages.smoothed(bundle, markers, stamp_s, other), other, rtol=1e-9)


def test_stamps_in_another_order_are_taken(observed):
    averages, (_, covariances) = PoseCovariances(), observed
    for stamp_s, c in zip((0.0, 0.1, 0.05, 0.15), covariances, strict=False):
        np.linalg.cholesky(averages.smoothed("floor", IDS, stamp_s, c))


def test_the_memory_is_bounded(observed):
    averages = PoseCovariances()
    for i in range(10 * KEPT):
        averages.smoothed(f"bundle {i}", IDS, 0.0, observed[1][0])
    assert len(averages._averages) == KEPT


@pytest.mark.parametrize("factor", [1e-60, 1e60])
def test_absurd_sizes_pass_through(observed, factor):
    covariance = factor * observed[1][0]
    np.testing.assert_allclose(PoseCovariances().smoothed("floor", IDS, 0.0, covariance), covariance, rtol=1e-9)


@pytest.mark.parametrize("factor", [1e2, 1e4, 1e12])
def test_an_odd_image_does_not_change_those_after_it(observed, factor):
    averages, (_, covariances) = PoseCovariances(), observed
    for i in range(100):
        before = averages.smoothed("floor", IDS, i / RATE_HZ, covariances[0])
    turn = np.diag([1.0, 1.0, 1.0, factor**0.5, 1.0, 1.0])
    odd = turn @ covariances[0] @ turn
    np.testing.assert_array_equal(averages.smoothed("floor", IDS, 100 / RATE_HZ, odd), odd)
    np.testing.assert_allclose(averages.smoothed("floor", IDS, 101 / RATE_HZ, covariances[0]), before, rtol=1e-9)


def test_another_geometry_that_lasts_begins_the_average_again(observed):
    averages, (_, covariances) = PoseCovariances(), observed
    for i in range(100):
        averages.smoothed("floor", IDS, i / RATE_HZ, covariances[0])
    turn = np.diag([1.0, 10.0, 1.0, 1.0, 0.1, 1.0])
    other = turn @ covariances[0] @ turn
    for i in range(100, 130):
        np.testing.assert_allclose(averages.smoothed("floor", IDS, i / RATE_HZ, other), other, rtol=1e-9)


def test_while_the_camera_moves_past_the_board_the_errors_are_as_large_as_said():
    """Lateral motion of 0.5 m/s at 1.5 m, which turns the axes of the covariance most."""
    camera = CameraModel(load(VEHICLE, Vehicle).camera)
    solver = PoseSolver(camera, NOISE_PX, 3.0, 3.0)
    corners_M = np.array([m.corners_M() for m in load_site(FLOOR).bundle[0].markers])
    rng, nees = np.random.default_rng(8), []
    for _ in range(12):
        averages = PoseCovariances()
        for i in range(45):
            p_CM = np.array([-0.4 + 0.5 * i / RATE_HZ, 0.08, 1.45])
            exact = camera.project(corners_M.reshape(-1, 3) @ UPSIDE_DOWN.T + p_CM).reshape(-1, 4, 2)
            found = solver.solve(exact + rng.normal(0.0, NOISE_PX, exact.shape), corners_M)
            covariance = averages.smoothed("floor", IDS, i / RATE_HZ, found.covariance)
            turned = quat_log(quat_from_matrix(UPSIDE_DOWN.T @ rotation_matrix(found.best.q_CM)))
            e = np.array([*(found.best.p_CM - p_CM), *turned])
            nees.append(e @ np.linalg.solve(covariance, e) / 6)
    assert 0.85 < np.mean(nees) < 1.15

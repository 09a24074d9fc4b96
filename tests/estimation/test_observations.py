"""Of the two poses of an image the right one is used, and a wrong one that was used before is found."""

import numpy as np
import pytest

from companion.core.camera_model import CameraModel
from companion.core.frames import quat_exp, quat_from_matrix, quat_multiply, rotation_matrix
from companion.estimation.observations import (
    CLEAR_IMAGES,
    CheckedObservation,
    FlipTest,
    PlumbTest,
    Pose,
    angle_between,
    flipped,
    hangs_upside_down,
    plumb_one,
    shown,
)
from companion.tracking.pose import PoseSolver

FACING = quat_from_matrix(np.diag([1.0, -1.0, -1.0]))
P_CM = np.array([0.4, -0.3, 8.0])
UP_C, UP_M = np.array([0.0, -1.0, 0.0]), np.array([0.0, 1.0, 0.0])
STD_RAD = 0.04


def turned(*vector):
    return quat_multiply(FACING, quat_exp(vector))


def seen(best, alternative=None, std_rad=STD_RAD):
    """An image with these rotations."""
    other = None if alternative is None else Pose(P_CM, np.asarray(alternative))
    return CheckedObservation(Pose(P_CM, np.asarray(best)), other, np.diag([1e-4] * 3 + [std_rad**2] * 3))


@pytest.mark.parametrize("tilt", [(0.5, 0.0, 0.1), (-0.2, 0.4, 0.0), (0.0, -0.6, 2.0)])
def test_the_flip_is_the_other_pose_of_the_plane(vehicle, tilt):
    camera = CameraModel(vehicle.camera)
    square = np.array([[-0.15, 0.15, 0.0], [0.15, 0.15, 0.0], [0.15, -0.15, 0.0], [-0.15, -0.15, 0.0]])
    q_CM = turned(*tilt)
    px = camera.project(square @ rotation_matrix(q_CM).T + P_CM)
    other = PoseSolver(camera, 0.3, 3.0, 1.0, 0.0).solve(px.reshape(1, 4, 2), square[None]).alternative
    assert angle_between(flipped(Pose(P_CM, q_CM)).q_CM, other.q_CM) < 0.05
    assert angle_between(flipped(flipped(Pose(P_CM, q_CM))).q_CM, q_CM) < 1e-6


def test_a_bundle_seen_along_its_face_has_no_flip_that_could_be_computed():
    across = Pose(np.array([0.0, 0.0, 5.0]), quat_exp((0.0, np.pi / 2, 0.0)))
    assert np.isfinite(flipped(across).q_CM).all()
    assert np.isfinite(flipped(Pose(np.zeros(3), FACING)).q_CM).all()


def test_what_an_image_shows_beside_the_expected_pose():
    right = turned(0.4, 0.0, 0.0)
    wrong = flipped(Pose(P_CM, right)).q_CM
    assert shown(seen(right), right).agrees and shown(seen(right), right).flip is False
    assert shown(seen(right, wrong), right).flip is False and not shown(seen(right, wrong), right).agrees
    assert (
        shown(seen(right, wrong), wrong).flip is True and np.linalg.norm(shown(seen(right, wrong), wrong).turn) < 1e-6
    )
    assert np.linalg.norm(shown(seen(right), wrong).turn) > 0.5 and not shown(seen(right), wrong).agrees
    between = turned(0.0, 0.4, 0.0)
    assert shown(seen(right, wrong), between).flip is None
    assert shown(seen(right, turned(0.42, 0.0, 0.0)), right).agrees, "two poses that are nearly the same"


def after(images, test=None):
    """The test after images of (image, expected rotation), with the number of those after which it finds a flip."""
    test, found = test or FlipTest(), 0
    for image, expected in images:
        one = shown(image, expected)
        test = test.updated(one)
        found += test.found
        test = test.agreed() if one.agrees else test
    return test, found


def noisy(q_CM, rng, std_rad=STD_RAD):
    return seen(quat_multiply(q_CM, quat_exp(std_rad * rng.normal(size=3))))


def test_images_that_all_show_another_rotation_find_a_flip_where_neither_pose_is_the_expected_one():
    """As of a bundle that was placed by a flip from below, and is seen from the front then: its two poses are one."""
    rng, right, placed = np.random.default_rng(1), turned(0.0, 0.0, 0.0), turned(0.5, 0.0, 0.0)
    assert after([(noisy(right, rng), placed) for _ in range(30)])[0].found
    assert after([(noisy(right, rng, 2 * STD_RAD), right) for _ in range(3000)])[1] == 0
    trusted = FlipTest(clear_images=CLEAR_IMAGES)
    turned_since = after([(noisy(right, rng), placed) for _ in range(300)], trusted)[0]
    assert not turned_since.found, "it was seen rightly for long: it has turned"


@pytest.mark.parametrize("wrong_rad", [0.4, 1.0, 2.5])
def test_some_outliers_in_a_row_are_no_flip(wrong_rad):
    rng, right = np.random.default_rng(3), turned(0.2, 0.0, 0.0)
    good = [(noisy(right, rng), right) for _ in range(30)]
    outliers = [(noisy(turned(0.2 + wrong_rad, 0.0, 0.0), rng), right) for _ in range(18)]
    assert after([*good, *outliers, *good])[1] == 0
    scattered = [(noisy(turned(*rng.uniform(-2.0, 2.0, 3)), rng), right) for _ in range(300)]
    assert after([*good, *scattered])[1] == 0


@pytest.mark.parametrize("tilt_rad", [0.0, 0.05, 0.1, 0.2, 0.4])
def test_noise_of_a_right_placement_is_no_flip_and_ends_the_test(tilt_rad):
    """Errors of the rotation that last for a second, as those of the corners do; also where the bundle is seen from the front."""
    rng, right, slow, test = np.random.default_rng(2), turned(tilt_rad, 0.0, 0.0), np.zeros(3), FlipTest()
    for _ in range(300):
        slow = 0.97 * slow + (1 - 0.97**2) ** 0.5 * STD_RAD * rng.normal(size=3)
        one = shown(seen(quat_multiply(right, quat_exp(slow + STD_RAD * rng.normal(size=3)))), right)
        test = test.updated(one)
        assert not test.found
        test = test.agreed() if one.agrees else test
    assert test.ended


@pytest.mark.parametrize("wrong", [np.nan, 1e150])
def test_numbers_that_cannot_be_computed_with_do_no_harm(wrong):
    q = turned(0.3, 0.0, 0.0)
    test = FlipTest().updated(shown(seen(q), wrong * np.ones(4)))
    assert not test.found and not FlipTest().updated(shown(seen(q, std_rad=wrong), q)).found
    plumb_one(seen(q), wrong * UP_C, UP_M)


def test_of_two_poses_the_plumb_one_places_a_bundle():
    right = turned(0.03, 0.1, 0.0)
    # Seen from below, so that the flip leans.
    up_C = rotation_matrix(quat_exp((0.3, 0.0, 0.0))) @ UP_C
    right = quat_multiply(quat_exp((0.3, 0.0, 0.0)), right)
    leaning = flipped(Pose(P_CM, right)).q_CM
    for image in (seen(right, leaning), seen(leaning, right)):
        found = plumb_one(image, up_C, UP_M)
        assert found.alternative is None and angle_between(found.best.q_CM, right) < 1e-9
    assert plumb_one(seen(right), up_C, UP_M).best.q_CM is right
    assert plumb_one(seen(leaning), up_C, UP_M) is None, "the only pose is the flip of the plumb one"


def test_a_plumb_axis_decides_nothing_where_both_poses_or_neither_can_be():
    frontal = turned(0.02, 0.3, 0.0)
    image = seen(frontal, flipped(Pose(P_CM, frontal)).q_CM)
    assert plumb_one(image, UP_C, UP_M) is image
    lying = seen(turned(1.2, 0.0, 0.0))
    assert plumb_one(lying, UP_C, UP_M) is lying, "the marker file is wrong: it is found to be, later"


def test_a_statement_that_images_contradict_for_long_chooses_no_pose():
    test = PlumbTest()
    for _ in range(40):
        test = test.updated(True)
    assert not test.leans, "a second or two of flips"
    for _ in range(20):
        test = test.updated(True)
    assert test.leans
    for _ in range(30):
        test = test.updated(False)
    assert not test.leans


UP_FLOOR_M = np.array([0.0, 0.0, 1.0])


@pytest.mark.parametrize("other", [False, True])  # whether the image itself has both poses
def test_of_a_board_on_the_ground_seen_flatly_the_pose_whose_face_points_up_is_plumb(other):
    """The face of its flip points down: as vertical, and no lean excludes it."""
    p_CM = np.array([0.0, 0.8, 8.0])
    right = Pose(p_CM, quat_from_matrix(np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])))
    wrong = flipped(right)
    assert rotation_matrix(wrong.q_CM)[:, 2] @ UP_C < -0.9
    image = seen(wrong.q_CM)._replace(best=wrong, alternative=right if other else None)
    chosen = plumb_one(image, UP_C, UP_FLOOR_M)
    assert chosen is None if not other else angle_between(chosen.best.q_CM, right.q_CM) < 1e-9
    assert not hangs_upside_down(image, UP_C, UP_FLOOR_M)


@pytest.mark.parametrize(("turn_rad", "down"), [(0.0, False), (1.5, False), (3.0, True), (np.pi, True)])
def test_only_a_print_that_was_turned_over_hangs_upside_down(turn_rad, down):
    assert hangs_upside_down(seen(turned(0.0, 0.0, turn_rad)), UP_C, UP_M) is down

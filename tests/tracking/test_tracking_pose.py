"""Poses from corners: accuracy, covariance, ambiguity, and wrong markers."""

import numpy as np
import pytest
from scipy.stats import chi2
from synthetic_view import ROOT, pose, vehicle

from companion.core.camera_model import CameraModel
from companion.core.frames import quat_conjugate, quat_exp, quat_from_matrix, quat_log, quat_multiply, rotation_matrix
from companion.core.site import Bundle, Marker, load_site
from companion.tracking.pose import PoseSolver
from companion.tracking.reprojection import Reprojection

CAMERA = CameraModel(vehicle().camera)
NOISE_PX = 0.3
SOLVER = PoseSolver(CAMERA, NOISE_PX, 3.0, 3.0)
REPROJECTION = Reprojection(CAMERA)
PIER = np.array([m.corners_M() for m in load_site(ROOT / "config/markers/pier.toml").bundle[0].markers])
SINGLE = Marker(family="aruco_6x6_250", id=0, size_m=0.3).corners_M()[None]
CORNER = np.array(  # three markers on two walls that meet at a right angle
    [
        m.corners_M()
        for m in Bundle(
            name="corner",
            markers=[
                Marker(family="aruco_6x6_250", id=1, size_m=0.3, p_M=(-0.4, 0.0, 0.0)),
                Marker(family="aruco_6x6_250", id=2, size_m=0.3, p_M=(0.4, 0.1, 0.0)),
                Marker(family="aruco_6x6_250", id=3, size_m=0.3, p_M=(0.0, -0.4, 0.3), rpy_rad=(-1.2, 0.0, 0.0)),
            ],
        ).markers
    ]
)
FLOOR_VIEW = pose(-0.5, 0.4, 0.2, (0.1, 0.05, 3.0))


def seen(corners_M, R, p, noise_px=0.0, rng=None):
    pixels = CAMERA.project(corners_M.reshape(-1, 3) @ R.T + p).reshape(-1, 4, 2)
    return pixels + rng.normal(0, noise_px, pixels.shape) if noise_px else pixels


def random_pose(rng):
    return pose(*rng.uniform([-0.9, -0.9, -3.1], [0.9, 0.9, 3.1]), rng.uniform([-0.5, -0.4, 2.0], [0.5, 0.4, 6.0]))


def error(found, R, p):
    """Six numbers: δp, and δθ of q_true = q_found exp(δθ)."""
    d = rotation_matrix(found.q_CM).T @ R
    angle = np.arccos(np.clip((np.trace(d) - 1) / 2, -1, 1))
    axis = np.array([d[2, 1] - d[1, 2], d[0, 2] - d[2, 0], d[1, 0] - d[0, 1]]) / 2
    return np.concatenate([p - found.p_CM, axis * (angle / np.sin(angle) if angle > 1e-9 else 1.0)])


@pytest.mark.parametrize("corners_M", [PIER, PIER[:2], CORNER, SINGLE], ids=["plane", "two", "walls", "single"])
def test_exact_corners_give_the_exact_pose(corners_M):
    rng = np.random.default_rng(2)
    for _ in range(25):
        R, p = random_pose(rng)
        result = SOLVER.solve(seen(corners_M, R, p), corners_M)
        assert result is not None
        assert np.abs(error(result.best, R, p)).max() < 1e-4
        assert result.best.rms_px < 1e-3
        assert result.used == tuple(range(len(corners_M)))


def test_residual_jacobian_agrees_with_finite_differences():
    rng, h = np.random.default_rng(3), 1e-6
    R, p = random_pose(rng)
    pixels, points = seen(PIER, R, p, 1.0, rng).reshape(-1, 2), PIER.reshape(-1, 3)
    J = REPROJECTION.residual(R, p, pixels, points)[1]
    for i in range(6):
        d = np.zeros(6)
        d[i] = h
        plus = REPROJECTION.residual(R @ rotation_matrix(quat_exp(d[3:])), p + d[:3], pixels, points)[0]
        minus = REPROJECTION.residual(R @ rotation_matrix(quat_exp(-d[3:])), p - d[:3], pixels, points)[0]
        np.testing.assert_allclose(J[:, i], (plus - minus) / (2 * h), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(
    "lens",
    [
        {"distortion": [-0.3, 0.1, 0.001, -0.002, 0.01, 0.02, -0.01, 0.003]},
        {"model": "fisheye", "distortion": [0.03, -0.01, 0.004, -0.002], "fx_px": 300.0, "fy_px": 310.0},
    ],
    ids=["rational", "fisheye"],
)
def test_compiled_reprojection_is_the_camera_model(lens):
    camera, rng = CameraModel(vehicle(**lens).camera), np.random.default_rng(5)
    reprojection = Reprojection(camera)
    pixels, points = rng.uniform(0, 480, (20, 2)), PIER.reshape(-1, 3)
    for _ in range(10):
        R, p = random_pose(rng)
        errors, J = reprojection.residual(R, p, pixels, points)
        projected, D = camera.project_with_jacobian(points @ R.T + p)
        np.testing.assert_allclose(errors.reshape(-1, 2), projected - pixels, rtol=1e-12, atol=1e-9)
        np.testing.assert_allclose(J[:, :3].reshape(-1, 2, 3), D, rtol=1e-9, atol=1e-9)


def test_refinement_ends_where_the_gradient_is_zero_and_refuses_corners_behind_the_camera():
    rng = np.random.default_rng(6)
    R, p = random_pose(rng)
    pixels, points = seen(PIER, R, p, NOISE_PX, rng).reshape(-1, 2), PIER.reshape(-1, 3)
    start = R @ rotation_matrix(quat_exp((0.1, -0.1, 0.05))), p * 1.1
    R_best, p_best, rms_px = REPROJECTION.refine(*start, pixels, points)
    errors, J = REPROJECTION.residual(R_best, p_best, pixels, points)
    assert rms_px == pytest.approx(np.sqrt(errors @ errors / len(points)))
    # relative to the gradient that one standard deviation of each parameter causes
    assert (np.abs(J.T @ errors) < 1e-2 * NOISE_PX * np.sqrt((J**2).sum(0))).all()
    assert REPROJECTION.refine(R, -p, pixels, points) is None


@pytest.mark.parametrize("corners_M", [PIER, CORNER, SINGLE], ids=["plane", "walls", "single"])
def test_covariance_is_consistent_with_the_errors(corners_M):
    """Mean NEES of 400 noisy views within its 99.9 % interval, for all six together, position and rotation alone."""
    rng, runs = np.random.default_rng(4), 400
    R, p = FLOOR_VIEW
    nees = np.zeros((runs, 3))
    for k in range(runs):
        result = SOLVER.solve(seen(corners_M, R, p, NOISE_PX, rng), corners_M)
        e, P = error(result.best, R, p), result.covariance
        nees[k] = (
            e @ np.linalg.solve(P, e),
            e[:3] @ np.linalg.solve(P[:3, :3], e[:3]),
            e[3:] @ np.linalg.solve(P[3:, 3:], e[3:]),
        )
    for mean, dof in zip(nees.mean(0), (6, 3, 3), strict=True):
        low, high = chi2.ppf([0.0005, 0.9995], dof * runs) / runs
        assert low < mean < high


def test_covariance_grows_when_the_corners_are_worse_than_assumed():
    rng = np.random.default_rng(5)
    R, p = FLOOR_VIEW
    expected = SOLVER.solve(seen(PIER, R, p, NOISE_PX, rng), PIER).covariance
    worse = SOLVER.solve(seen(PIER, R, p, 4 * NOISE_PX, rng), PIER).covariance
    assert np.trace(worse) > 6 * np.trace(expected)


def test_rotation_error_is_right_multiplied():
    """Noise in the marker's own frame: tilt about x and y of M is much less certain than the turn about z of M."""
    R, p = pose(0.2, 0.1, 1.0, (0.0, 0.0, 5.0))
    P = SOLVER.solve(seen(SINGLE, R, p), SINGLE).covariance
    assert P[5, 5] < 0.1 * min(P[3, 3], P[4, 4])
    assert (np.linalg.eigvalsh(P) > 0).all()


def test_a_distant_marker_seen_face_on_is_ambiguous_and_both_poses_are_given():
    rng = np.random.default_rng(6)
    R, p = pose(0.25, 0.1, 0.0, (0.2, 0.1, 6.0))
    right_one_first = 0
    for _ in range(30):
        result = SOLVER.solve(seen(SINGLE, R, p, NOISE_PX, rng), SINGLE)
        assert result.alternative is not None
        assert result.ambiguous
        assert result.alternative.rms_px >= result.best.rms_px
        angles = [
            np.linalg.norm(quat_log(quat_multiply(quat_conjugate(s.q_CM), quat_from_matrix(R))))
            for s in (result.best, result.alternative)
        ]
        assert min(angles) < 0.25
        right_one_first += angles[0] < angles[1]
    assert 0 < right_one_first < 30  # this image alone does not decide between the two poses


def test_a_near_tilted_marker_is_not_ambiguous():
    rng = np.random.default_rng(7)
    R, p = pose(0.7, 0.3, 0.5, (0.1, 0.0, 1.0))
    for _ in range(20):
        result = SOLVER.solve(seen(SINGLE, R, p, NOISE_PX, rng), SINGLE)
        assert not result.ambiguous
        assert np.linalg.norm(error(result.best, R, p)[3:]) < 0.05


def test_exact_corners_do_not_hide_an_ambiguity():
    """The flip test compares with the noise, not with a best error that is near zero by chance."""
    R, p = pose(0.05, 0.0, 0.0, (0.0, 0.0, 8.0))
    result = SOLVER.solve(seen(SINGLE, R, p), SINGLE)
    assert result.best.rms_px < 1e-3
    assert result.alternative is None or result.ambiguous


@pytest.mark.parametrize("wrong", range(5))
@pytest.mark.parametrize("shift_px", [6.0, 60.0])
def test_one_wrong_marker_is_left_out(wrong, shift_px):
    rng = np.random.default_rng(8 + wrong)
    R, p = FLOOR_VIEW
    pixels = seen(PIER, R, p, 0.1, rng)
    pixels[wrong] += shift_px * np.array([0.8, -0.6])
    result = SOLVER.solve(pixels, PIER)
    assert result.used == tuple(i for i in range(5) if i != wrong)
    assert np.abs(error(result.best, R, p)).max() < 0.05


def test_two_markers_that_contradict_each_other_are_rejected():
    R, p = FLOOR_VIEW
    pixels = seen(PIER[:2], R, p)
    pixels[1] += 40.0
    assert SOLVER.solve(pixels, PIER[:2]) is None


def test_corners_that_no_pose_explains_are_rejected():
    R, p = FLOOR_VIEW
    pixels = seen(SINGLE, R, p)
    pixels[0, 0] += 25.0
    assert SOLVER.solve(pixels, SINGLE) is None


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_degenerate_corners_give_no_pose(value):
    assert SOLVER.solve(np.full((1, 4, 2), value), SINGLE) is None
    assert SOLVER.solve(np.zeros((0, 4, 2)), np.zeros((0, 4, 3))) is None


def test_fisheye_poses_are_right():
    camera = CameraModel(
        vehicle(model="fisheye", distortion=[0.03, -0.01, 0.004, -0.002], fx_px=300.0, fy_px=300.0).camera
    )
    solver, rng = PoseSolver(camera, NOISE_PX, 3.0, 3.0), np.random.default_rng(9)
    for _ in range(10):
        R, p = random_pose(rng)
        pixels = camera.project(PIER.reshape(-1, 3) @ R.T + p).reshape(-1, 4, 2)
        assert np.abs(error(solver.solve(pixels, PIER).best, R, p)).max() < 1e-4

"""The camera model agrees with OpenCV's and with its own Jacobian."""

import cv2
import numpy as np
import pytest
from synthetic_view import vehicle

from companion.core.camera_model import CameraModel
from companion.core.config import ConfigError

CAMERAS = [
    ("pinhole", [-0.12, 0.05, 0.001, -0.002]),
    ("pinhole", [-0.3, 0.1, 0.001, -0.002, -0.01]),
    ("pinhole", [0.2, -0.1, 0.001, -0.002, 0.02, 0.3, -0.05, 0.01]),
    ("fisheye", [0.03, -0.01, 0.004, -0.002]),
]


def camera(model, distortion):
    return CameraModel(vehicle(model=model, distortion=distortion, fx_px=605.0, fy_px=615.0, cx_px=331.0).camera)


def points(n=40):
    rng = np.random.default_rng(1)
    p = rng.uniform([-0.45, -0.35, 1], [0.45, 0.35, 1], (n, 3)) * rng.uniform(0.5, 8, (n, 1))
    return np.vstack([p, [0.0, 0.0, 2.0]])


@pytest.mark.parametrize(("model", "distortion"), CAMERAS)
def test_projection_agrees_with_opencv(model, distortion):
    c, p = camera(model, distortion), points()
    zero, k = np.zeros(3), np.array(distortion)
    if model == "fisheye":
        expected = cv2.fisheye.projectPoints(p.reshape(-1, 1, 3), zero, zero, c.K, k)[0]
    else:
        expected = cv2.projectPoints(p, zero, zero, c.K, k)[0]
    np.testing.assert_allclose(c.project(p), expected.reshape(-1, 2), atol=1e-6)


@pytest.mark.parametrize(("model", "distortion"), CAMERAS)
def test_projection_jacobian_agrees_with_finite_differences(model, distortion):
    c, p, h = camera(model, distortion), points(), 1e-6
    J = c.project_with_jacobian(p)[1]
    for i in range(3):
        step = np.zeros(3)
        step[i] = h
        numeric = (c.project(p + step) - c.project(p - step)) / (2 * h)
        np.testing.assert_allclose(J[:, :, i], numeric, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("model", "distortion"), CAMERAS)
def test_undistortion_inverts_projection(model, distortion):
    c, p = camera(model, distortion), points()
    np.testing.assert_allclose(c.undistort(c.project(p)), p[:, :2] / p[:, 2:], atol=1e-7)


def test_points_behind_the_camera_have_no_image():
    c = camera(*CAMERAS[0])
    assert np.isnan(c.project(np.array([[0.1, 0.1, -1.0], [0.1, 0.1, 0.0]]))).all()
    assert c.undistort(np.zeros((0, 2))).shape == (0, 2)


@pytest.mark.parametrize(("model", "count"), [("pinhole", 6), ("pinhole", 7), ("fisheye", 5)])
def test_a_wrong_number_of_distortion_coefficients_stops_the_start(model, count):
    with pytest.raises(ConfigError, match=f"camera.distortion: {count} coefficients"):
        camera(model, [0.0] * count)

"""The camera model: projection of points to pixels, and back to rays.

Pinhole with OpenCV's rational distortion (k1 k2 p1 p2 [k3 [k4 k5 k6]]) and OpenCV's fisheye (k1 k2 k3 k4), with
the Jacobian of the projection. Equations: OpenCV documentation, "Camera Calibration and 3D Reconstruction" and
"Fisheye camera model"; the fisheye one is Kannala & Brandt, PAMI 2006. The camera frame is optical: x right,
y down, z forward. The centre of the top left pixel is (0, 0).
"""

import numpy as np

from companion.core.arrays import Array
from companion.core.config import ConfigError
from companion.core.vehicle import Camera

UNDISTORT_ITERATIONS, UNDISTORT_TOLERANCE = 50, 1e-10
MIN_DEPTH = 1e-6  # [m] points nearer than this, or behind the camera, have no image


class CameraModel:
    """Projection of one camera; raises `ConfigError` when the model has another number of distortion coefficients."""

    def __init__(self, camera: Camera) -> None:
        lengths = {"pinhole": (4, 5, 8), "fisheye": (4,)}[camera.model]
        if len(camera.distortion) not in lengths:
            allowed = " or ".join(str(n) for n in lengths)
            raise ConfigError(
                f"camera.distortion: {len(camera.distortion)} coefficients, a {camera.model} camera needs {allowed}"
            )
        self.width_px, self.height_px = camera.width_px, camera.height_px
        self.focal_px = np.array([camera.fx_px, camera.fy_px])
        self.centre_px = np.array([camera.cx_px, camera.cy_px])
        self.K = np.array([[camera.fx_px, 0, camera.cx_px], [0, camera.fy_px, camera.cy_px], [0, 0, 1.0]])
        self.distortion = np.array(camera.distortion, dtype=float)
        self.fisheye = camera.model == "fisheye"
        self._k = np.zeros(8)
        self._k[: len(self.distortion)] = self.distortion

    def project(self, p_C: Array) -> Array:
        """Pixels (n, 2) of points (n, 3) in the camera frame; NaN for points that are not in front of it."""
        return self.project_with_jacobian(p_C)[0]

    def project_with_jacobian(self, p_C: Array) -> tuple[Array, Array]:
        """Pixels (n, 2) and d(pixel)/d(p_C) (n, 2, 3); NaN for points that are not in front of the camera."""
        p = np.asarray(p_C, dtype=float).reshape(-1, 3)
        z = np.where(p[:, 2] > MIN_DEPTH, p[:, 2], np.nan)
        x, y = p[:, 0] / z, p[:, 1] / z
        distorted, D = (self._fisheye if self.fisheye else self._pinhole)(x, y)
        N = np.zeros((len(p), 2, 3))  # d(x, y)/d(p_C)
        N[:, 0, 0] = N[:, 1, 1] = 1 / z
        N[:, 0, 2], N[:, 1, 2] = -x / z, -y / z
        return distorted * self.focal_px + self.centre_px, self.focal_px[:, None] * (D @ N)

    def undistort(self, pixels: Array) -> Array:
        """Normalised image coordinates (x/z, y/z), (n, 2), of pixels (n, 2)."""
        import cv2  # only here: a process that projects points does without its memory

        points = np.ascontiguousarray(pixels, dtype=np.float64).reshape(-1, 1, 2)
        if len(points) == 0:
            return np.zeros((0, 2))
        kind = cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS
        criteria = (kind, UNDISTORT_ITERATIONS, UNDISTORT_TOLERANCE)
        if self.fisheye:
            result = cv2.fisheye.undistortPoints(points, self.K, self.distortion, criteria=criteria)
        else:
            result = cv2.undistortPoints(points, self.K, self.distortion, criteria=criteria)
        return np.asarray(result, dtype=float).reshape(-1, 2)

    def _pinhole(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Distorted normalised coordinates (n, 2) and their Jacobian (n, 2, 2)."""
        k1, k2, p1, p2, k3, k4, k5, k6 = self._k
        r2 = x * x + y * y
        a = 1 + r2 * (k1 + r2 * (k2 + r2 * k3))
        b = 1 + r2 * (k4 + r2 * (k5 + r2 * k6))
        da = k1 + r2 * (2 * k2 + r2 * 3 * k3)
        db = k4 + r2 * (2 * k5 + r2 * 3 * k6)
        s, ds = a / b, (da * b - a * db) / (b * b)  # radial factor, and its derivative by r²
        u = x * s + 2 * p1 * x * y + p2 * (r2 + 2 * x * x)
        v = y * s + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y
        J = np.empty((len(x), 2, 2))
        J[:, 0, 0] = s + 2 * x * x * ds + 2 * p1 * y + 6 * p2 * x
        J[:, 0, 1] = J[:, 1, 0] = 2 * x * y * ds + 2 * p1 * x + 2 * p2 * y
        J[:, 1, 1] = s + 2 * y * y * ds + 6 * p1 * y + 2 * p2 * x
        return np.stack([u, v], axis=1), J

    def _fisheye(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Distorted normalised coordinates (n, 2) and their Jacobian (n, 2, 2)."""
        k1, k2, k3, k4 = self._k[:4]
        r = np.maximum(np.hypot(x, y), 1e-9)
        angle = np.arctan(r)
        t2 = angle * angle
        d = angle * (1 + t2 * (k1 + t2 * (k2 + t2 * (k3 + t2 * k4))))
        dd = 1 + t2 * (3 * k1 + t2 * (5 * k2 + t2 * (7 * k3 + t2 * 9 * k4)))
        s = d / r
        slope = (dd / (1 + r * r) - s) / (r * r)  # ds/dr over r
        slope = np.where(r < 1e-5, 0.0, slope)
        J = np.empty((len(x), 2, 2))
        J[:, 0, 0] = s + x * x * slope
        J[:, 0, 1] = J[:, 1, 0] = x * y * slope
        J[:, 1, 1] = s + y * y * slope
        return np.stack([x * s, y * s], axis=1), J

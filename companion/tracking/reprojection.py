"""The reprojection error of a bundle in C (acados_gen/pose.c), for one camera."""

import ctypes
import math

import numpy as np

from companion.core.arrays import Array
from companion.core.camera_model import CameraModel
from companion.core.kernel import address_of, short_calls
from companion.core.pose_artifact import require_pose

LOWER = np.tri(6, dtype=bool)  # triangles of a (6, 6) matrix, with the diagonal and without it
BELOW = np.tri(6, k=-1, dtype=bool)


class Reprojection:
    """Reprojection errors of a pose R_CM (3, 3), p_CM (3,) [m], and the pose of the nearest minimum.

    Raises `companion.core.kernel.ArtifactMissing` when the library is not built.
    """

    def __init__(self, camera: CameraModel) -> None:
        library = short_calls(require_pose())
        self._residual, self._refine = library.pose_residual, library.pose_refine
        self._information = library.pose_information
        array, count, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
        self._residual.argtypes = [array, count, *[array] * 5]
        self._residual.restype = None
        self._refine.argtypes = [array, count, *[array] * 3, number]
        self._information.argtypes = [array, count, *[array] * 3, number, array]
        self._information.restype = number
        self._refine.restype = ctypes.c_double
        distortion = np.zeros(8)
        distortion[: len(camera.distortion)] = camera.distortion
        self._camera = np.concatenate([camera.focal_px, camera.centre_px, [float(camera.fisheye)], distortion])
        self._camera_address = address_of(self._camera)

    def residual(self, R: Array, p: Array, pixels: Array, points: Array) -> tuple[Array, Array]:
        """Projected minus seen corners (2n,) [px] and their Jacobian (2n, 6) by δp and δθ, R ← R exp(δθ).

        pixels (n, 2), points (n, 3) [m]; NaN where a point is not in front of the camera.
        """
        pixels, points, pose = _flat(pixels), _flat(points), _pose(R, p)
        n = len(points)
        errors, jacobian = np.empty(2 * n), np.empty((2 * n, 6))
        results = address_of(pose), address_of(errors), address_of(jacobian)
        self._residual(self._camera_address, n, points.ctypes.data, pixels.ctypes.data, *results)
        return errors, jacobian

    def project(self, R: Array, p: Array, points: Array) -> Array:
        """Pixels (n, 2) of points (n, 3) [m] of the bundle; NaN for a point that is not in front of the camera."""
        return self.residual(R, p, np.zeros((len(points), 2)), points)[0].reshape(-1, 2)

    def information(self, R: Array, p: Array, pixels: Array, points: Array, weight: float) -> tuple[Array, float]:
        """JᵀJ (6, 6) of the pose and the sum of squared errors [px²], with the sizes of the markers eliminated.

        weight: of the sizes in the marker file, see acados_gen/pose.c; 0: they are exact.
        """
        pixels, points, pose = _flat(pixels), _flat(points), _pose(R, p)
        H = np.empty((6, 6))
        seen = points.ctypes.data, pixels.ctypes.data
        cost = self._information(self._camera_address, len(points), *seen, address_of(pose), weight, address_of(H))
        return np.where(LOWER, H, 0.0) + np.where(BELOW, H, 0.0).T, cost

    def refine(
        self, R: Array, p: Array, pixels: Array, points: Array, weight: float = 0.0
    ) -> tuple[Array, Array, float] | None:
        """R_CM, p_CM and RMS distance [px] at the nearest minimum; None when a corner is not in front of the camera.

        weight: of the sizes in the marker file, see acados_gen/pose.c; 0: they are exact.
        """
        pixels, points, pose = _flat(pixels), _flat(points), _pose(R, p)
        seen = points.ctypes.data, pixels.ctypes.data
        cost = self._refine(self._camera_address, len(points), *seen, address_of(pose), weight)
        if math.isnan(cost):
            return None
        return pose[:9].reshape(3, 3), pose[9:], math.sqrt(max(cost, 0.0) / len(points))


def _flat(array: Array) -> Array:
    """A contiguous array of doubles, as the C function reads it."""
    return np.ascontiguousarray(array, dtype=float)


def _pose(R: Array, p: Array) -> Array:
    pose = np.empty(12)
    pose[:9].reshape(3, 3)[:], pose[9:] = R, p
    return pose

"""The pose of a bundle in the camera frame from all its detected corners.

1. Candidates: coplanar corners have two poses that explain them nearly equally well (Collins & Bartoli,
   "Infinitesimal plane-based pose estimation", IJCV 2014); corners in space get SQPnP (Terzakis & Lourakis, ECCV
   2020) and the two poses of their largest marker.
2. Each candidate is refined on the distorted pixels by Levenberg-Marquardt over p_CM and a right-multiplied
   rotation error, so that every corner weighs the same (acados_gen/pose.c).
3. The best one is tested. A marker that contradicts all others is left out. A bundle whose error stays above the limit
   is rejected. A pose is ambiguous when the second best explains the corners nearly as well.
4. The covariance is that of least squares, (Jᵀ J)⁻¹ σ², with σ the corner noise. A residual that such noise
   cannot explain (χ² above its 99.9 % quantile) scales it up.
"""

import functools
import math
from dataclasses import dataclass

import cv2
import numpy as np

from companion.core.arrays import Array
from companion.core.camera_model import CameraModel
from companion.core.chi_square import quantile
from companion.core.frames import quat_from_matrix
from companion.tracking.reprojection import Reprojection

PLANE_TOLERANCE = 1e-3  # of the bundle's extent: thinner than this counts as coplanar
DISTINCT_RAD, DISTINCT_OF_DISTANCE = 0.02, 0.01  # two poses nearer than both are one
# Lower bound of the best error in the flip test, in units of the corner noise: a smaller error is chance. It is about
# the expected error of a correct pose of one marker (2 of 8 degrees of freedom left).
NOISE_FLOOR = 0.7
SUSPECT_NOISE = 3.0  # residual over corner noise above which one marker may be wrong
SUSPECT_GAIN = 0.5  # without a wrong marker the residual must fall at least by this factor
COVARIANCE_QUANTILE = 0.999


@dataclass(frozen=True)
class CandidatePose:
    """R_CM (3, 3), p_CM (3,) [m] and the RMS distance between seen and projected corners [px]."""

    R_CM: Array
    p_CM: Array
    rms_px: float

    @property
    def q_CM(self) -> Array:
        """The rotation as a unit quaternion (4,)."""
        return quat_from_matrix(self.R_CM)


@dataclass(frozen=True)
class BundlePose:
    """The result for one bundle; ``used``: indices of the markers it is based on; covariance: see `messages`."""

    best: CandidatePose
    alternative: CandidatePose | None
    ambiguous: bool
    covariance: Array
    used: tuple[int, ...]


class PoseSolver:
    """Poses of bundles for one camera.

    corner_noise_px: standard deviation of one corner coordinate; max_reprojection_px: RMS above which a bundle is
    rejected; flip_ratio: second over first error below which a pose is ambiguous.
    """

    def __init__(
        self,
        camera: CameraModel,
        corner_noise_px: float,
        max_reprojection_px: float,
        flip_ratio: float,
        marker_size_std: float = 0.0,
    ) -> None:
        self._camera = camera
        self._reprojection = Reprojection(camera)
        self._noise_px = corner_noise_px
        self._limit_px = max_reprojection_px
        self._flip_ratio = flip_ratio
        self._size_weight = (corner_noise_px / marker_size_std) ** 2 if marker_size_std > 0 else 0.0

    def solve(self, corners_px: Array, corners_M: Array) -> BundlePose | None:
        """Pose of a bundle; corners_px (n, 4, 2), corners_M (n, 4, 3) [m] of its n ≥ 1 markers.

        None when no pose explains the corners within the limit.
        """
        pixels = np.asarray(corners_px, dtype=float)
        points = np.asarray(corners_M, dtype=float)
        used = tuple(range(len(pixels)))
        if not used or not np.isfinite(pixels).all():
            return None
        poses = self._poses(pixels, points)
        while len(used) >= 3 and (not poses or poses[0].rms_px > SUSPECT_NOISE * self._noise_px):
            trials = []
            for i in range(len(used)):
                rest = used[:i] + used[i + 1 :]
                if trial := self._poses(pixels[list(rest)], points[list(rest)]):
                    trials.append((trial[0].rms_px, rest, trial))
            if not trials:
                break
            rms, rest, trial = min(trials, key=lambda t: t[0])
            if poses and rms > SUSPECT_GAIN * poses[0].rms_px:
                break
            used, poses = rest, trial
        if not poses or not poses[0].rms_px <= self._limit_px:
            return None
        best, alternative = poses[0], poses[1] if len(poses) > 1 else None
        floor = max(best.rms_px, NOISE_FLOOR * self._noise_px)
        ambiguous = alternative is not None and alternative.rms_px < self._flip_ratio * floor
        covariance = self.covariance(best, pixels[list(used)], points[list(used)])
        if covariance is None:
            return None
        return BundlePose(best, alternative, ambiguous, covariance, used)

    def project(self, pose: CandidatePose, points_M: Array) -> Array:
        """Pixels (n, 2) of points (n, 3) [m] of the bundle in a pose; NaN for a point not in front of the camera."""
        return self._reprojection.project(pose.R_CM, pose.p_CM, points_M)

    def covariance(self, pose: CandidatePose, corners_px: Array, corners_M: Array) -> Array | None:
        """6x6 covariance of p_CM [m²] and of the right-multiplied rotation error of q_CM [rad²], or None."""
        flat_px, flat_M = corners_px.reshape(-1, 2), corners_M.reshape(-1, 3)
        weight = self._weight(len(flat_px))
        H, cost = self._reprojection.information(pose.R_CM, pose.p_CM, flat_px, flat_M, weight)
        try:
            P = np.linalg.inv(H) * self._noise_px**2
        except np.linalg.LinAlgError:
            return None
        dof = 2 * len(flat_px) - 6
        ratio = cost / self._noise_px**2
        if ratio > _residual_limit(dof):
            P = P * (ratio / dof)
        P = 0.5 * (P + P.T)
        return P if np.isfinite(P).all() and (np.diag(P) > 0).all() else None

    def _weight(self, corners: int) -> float:
        """Weight of the sizes for so many corners: the size of a single marker is all that measures its range."""
        return self._size_weight if corners > 4 else 0.0

    def _poses(self, pixels: Array, points: Array) -> list[CandidatePose]:
        """All distinct refined poses of the corners, best first."""
        flat_px, flat_M = pixels.reshape(-1, 2), points.reshape(-1, 3)
        rays = self._camera.undistort(flat_px)
        if not np.isfinite(rays).all():
            return []
        if _is_plane(flat_M.tobytes()):
            starts = _generic(flat_M, rays, cv2.SOLVEPNP_IPPE)
        else:
            starts = _generic(flat_M, rays, cv2.SOLVEPNP_SQPNP)
            sizes = np.linalg.norm(pixels[:, 0] - pixels[:, 2], axis=1)
            largest = int(np.argmax(sizes))
            some = slice(4 * largest, 4 * largest + 4)
            starts += _generic(flat_M[some], rays[some], cv2.SOLVEPNP_IPPE)
        weight = self._weight(len(flat_px))
        refined = [self._reprojection.refine(R, p, flat_px, flat_M, weight) for R, p in starts]
        distinct: list[CandidatePose] = []
        for pose in sorted((CandidatePose(*found) for found in refined if found is not None), key=lambda s: s.rms_px):
            if not any(_same(pose, other) for other in distinct):
                distinct.append(pose)
        return distinct


@functools.cache  # few values: one for each number of corners
def _residual_limit(dof: int) -> float:
    return quantile(COVARIANCE_QUANTILE, dof)


@functools.lru_cache(maxsize=256)  # the same markers are seen image after image
def _is_plane(points_M: bytes) -> bool:
    """Whether corners, the bytes of an array (n, 3), lie in a plane."""
    points = np.frombuffer(points_M).reshape(-1, 3)
    spread = np.linalg.svd(points - points.mean(0), compute_uv=False)
    return bool(spread[2] <= PLANE_TOLERANCE * spread[0])


def _generic(points: Array, rays: Array, method: int) -> list[tuple[Array, Array]]:
    """Starting poses of one of OpenCV's methods on undistorted points; none when it fails."""
    try:
        # IPPE is most accurate with the corners centred on the origin of their plane.
        middle = points.mean(0)
        ok, rotations, translations, _ = cv2.solvePnPGeneric(points - middle, rays, np.eye(3), None, flags=method)
    except cv2.error:
        return []
    if not ok:
        return []
    poses = [
        (np.asarray(cv2.Rodrigues(r)[0], dtype=float), np.asarray(t, dtype=float).ravel())
        for r, t in zip(rotations, translations, strict=True)
    ]
    return [(R, t - R @ middle) for R, t in poses if np.isfinite(R).all() and np.isfinite(t).all()]


def _same(a: CandidatePose, b: CandidatePose) -> bool:
    cosine = 0.5 * (float(np.vdot(a.R_CM, b.R_CM)) - 1.0)  # the trace of R_aᵀ R_b
    angle = math.acos(max(-1.0, min(1.0, cosine)))
    distance = math.dist(a.p_CM, b.p_CM)
    return angle < DISTINCT_RAD and distance < DISTINCT_OF_DISTANCE * math.hypot(*a.p_CM)

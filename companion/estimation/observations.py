"""Checks of a bundle observation, and the choice between its two pose solutions.

One image of a plane can have two poses that explain the corners about equally well. The image cannot resolve this
ambiguity, but the filter can: it predicts the rotation of the bundle relative to the aircraft.

Unless the bundle was placed by a flipped pose: then the filter expects the flip, and of every image it uses the pose that explains
the corners less well. A right placement uses the better pose of most images, so the share of the others shows a flip
(`flip_share`), until CLEAR_IMAGES images with one pose have agreed with the placement: a board that is not flat may prefer the
wrong pose for long.
"""

from math import inf, isfinite, sqrt
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array, Vector
from companion.core.frames import quat_log, quat_multiply, quat_normalized
from companion.core.messages import BundleObservation, PoseSolution

HARMLESS_RAD = 0.05  # two solutions closer than this are used as one with a larger rotation error
FLIP_WEIGHT = 1 / 20  # of the newest image in the share: 24 flips in a row are a placement by a flip
FLIP_SHARE_MAX = 0.7
CLEAR_IMAGES = 60
NEARER_FACTOR = 1.5  # the other solution must be this many times farther from the expected rotation


MarkerId = tuple[str, int]  # family and number: two families have the same numbers


class Pose(NamedTuple):
    """Pose of a bundle in the camera frame."""

    p_CM: Array
    q_CM: Array


class CheckedObservation(NamedTuple):
    """An observation of one bundle whose numbers are usable."""

    best: Pose
    alternative: Pose | None  # only while the image leaves the choice open
    covariance: Array  # (6, 6)
    corners: tuple[tuple[Array, Array], ...] = ()  # of each marker: normalised image (8,), bundle frame (12,)
    corner_noise_px: float = 0.0
    slow: Array | None = None  # (6, 6) of the error of many images; None: of the shape of the covariance
    doubtful: bool = (
        False  # its corners do not fit to those of the images before: judged, and nothing is corrected by it
    )

    @property
    def position_std_m(self) -> float:
        """Standard deviation of p_CM, of all three axes together."""
        return sqrt(float(np.trace(self.covariance[:3, :3])))


def _pose(solution: PoseSolution) -> Pose | None:
    p, q = np.asarray(solution.p_CM, dtype=float), np.asarray(solution.q_CM, dtype=float)
    if p.shape != (3,) or q.shape != (4,) or not (np.isfinite(p).all() and np.isfinite(q).all()):
        return None
    try:
        return Pose(p, quat_normalized(q))
    except ValueError:
        return None


def markers_seen(observation: BundleObservation) -> frozenset[MarkerId]:
    """The markers of the bundle in this image."""
    return frozenset((marker.family, marker.id) for marker in observation.markers)


def check(observation: BundleObservation) -> CheckedObservation | None:
    """The observation as arrays, or None when one of its numbers cannot be used."""
    best = _pose(observation.best)
    covariance = np.asarray(observation.covariance, dtype=float)
    if best is None or covariance.shape != (36,) or not np.isfinite(covariance).all():
        return None
    covariance = covariance.reshape(6, 6)
    covariance = (covariance + covariance.T) / 2
    try:
        np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return None
    alternative = None
    if observation.ambiguous and observation.alternative is not None:
        alternative = _pose(observation.alternative)
        if alternative is None:
            return None
    return CheckedObservation(best, alternative, covariance, _corners(observation), observation.corner_noise_px)


def _corners(observation: BundleObservation) -> tuple[tuple[Array, Array], ...]:
    """The markers that have finite corners in normalised image coordinates."""
    found = []
    for marker in observation.markers:
        if len(marker.corners_xy) != 8:
            continue
        xy, corners_M = np.array(marker.corners_xy), np.array(marker.corners_M).ravel()
        if corners_M.shape == (12,) and isfinite(xy.sum() + corners_M.sum()):
            found.append((xy, corners_M))
    return tuple(found) if 0 < observation.corner_noise_px < inf else ()


def angle_between(a: Vector, b: Vector) -> float:
    """Angle [rad] of the rotation from quaternion a to quaternion b."""
    (w, x, y, z), b = _plain(a), _plain(b)
    v = quat_log(quat_multiply((w, -x, -y, -z), b))
    return sqrt(float(v @ v))


def _plain(q: Vector) -> Vector:
    """As plain numbers: products of the elements of an array take three times as long."""
    numbers: Vector = q.tolist() if isinstance(q, np.ndarray) else q
    return numbers


def is_ambiguous(observation: CheckedObservation) -> bool:
    """True when the image leaves two solutions that differ by more than HARMLESS_RAD."""
    best, alternative = observation.best, observation.alternative
    return alternative is not None and angle_between(best.q_CM, alternative.q_CM) > HARMLESS_RAD


def flip_share(share: float, observation: CheckedObservation, used: Pose) -> float:
    """The share after one more image; used: the pose that the filter has chosen."""
    return share + FLIP_WEIGHT * ((used is not observation.best) - share)


def choose_solution(observation: CheckedObservation, expected_q_CM: Vector | None) -> tuple[Pose, Array] | None:
    """The pose to measure and its covariance, or None while both solutions are possible.

    expected_q_CM: rotation that the filter predicts, None before the bundle is placed.
    """
    best, alternative = observation.best, observation.alternative
    if alternative is None:
        return best, observation.covariance
    if not is_ambiguous(observation):
        covariance = observation.covariance.copy()
        separation = angle_between(best.q_CM, alternative.q_CM)
        covariance[range(3, 6), range(3, 6)] += (separation / 2) ** 2
        return best, covariance
    if expected_q_CM is None:
        return None
    distances = [(angle_between(pose.q_CM, expected_q_CM), pose) for pose in (best, alternative)]
    (near_rad, near), (far_rad, _) = sorted(distances, key=lambda candidate: candidate[0])
    if far_rad < NEARER_FACTOR * near_rad:
        return None
    return near, observation.covariance

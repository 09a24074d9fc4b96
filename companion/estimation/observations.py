"""From a bundle observation to one pose that may be measured: checks, and the choice between two solutions.

A plane seen from one image can have two poses that explain the corners about equally well. The image cannot tell
them apart, but the filter can: it knows how the bundle is turned relative to the aircraft.
"""

from math import inf, isfinite
from typing import NamedTuple

import numpy as np

from companion.core.frames import quat_conjugate, quat_log, quat_multiply, quat_normalized
from companion.core.messages import BundleObservation, PoseSolution

HARMLESS_RAD = 0.05  # two solutions closer than this are taken as one with a larger rotation error
CLEARER_BY = 1.5  # the chosen solution must be this much nearer to the expected rotation than the other


class Pose(NamedTuple):
    p_CM: np.ndarray
    q_CM: np.ndarray


class Sighting(NamedTuple):
    """A checked observation."""

    best: Pose
    alternative: Pose | None  # only kept when the tracker could not tell
    covariance: np.ndarray  # (6, 6)
    corners: tuple[tuple[np.ndarray, np.ndarray], ...] = ()  # of each marker: image (8,), bundle (12,)
    corner_noise_px: float = 0.0


def _pose(solution: PoseSolution) -> Pose | None:
    p, q = np.asarray(solution.p_CM, dtype=float), np.asarray(solution.q_CM, dtype=float)
    if p.shape != (3,) or q.shape != (4,) or not (np.isfinite(p).all() and np.isfinite(q).all()):
        return None
    try:
        return Pose(p, quat_normalized(q))
    except ValueError:
        return None


def checked(observation: BundleObservation) -> Sighting | None:
    """The observation as arrays, or None when a number in it cannot be used."""
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
    return Sighting(best, alternative, covariance, _corners(observation), observation.corner_noise_px)


def _corners(observation: BundleObservation) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """The markers whose corners were sent in normalised image coordinates and are numbers."""
    found = []
    for marker in observation.markers:
        xy, corners_M = np.array(marker.corners_xy), np.array(marker.corners_M).ravel()
        if xy.shape == (8,) and corners_M.shape == (12,) and isfinite(xy.sum() + corners_M.sum()):
            found.append((xy, corners_M))
    return tuple(found) if 0 < observation.corner_noise_px < inf else ()


def angle_between(a, b) -> float:
    """Angle [rad] of the rotation from a to b."""
    return float(np.linalg.norm(quat_log(quat_multiply(quat_conjugate(a), b))))


def unclear(sighting: Sighting) -> bool:
    """True when the image leaves two solutions and it matters which one is taken."""
    return (
        sighting.alternative is not None and angle_between(sighting.best.q_CM, sighting.alternative.q_CM) > HARMLESS_RAD
    )


def choose(sighting: Sighting, expected_q_CM) -> tuple[Pose, np.ndarray] | None:
    """The pose to measure and its covariance, or None while it cannot be told.

    expected_q_CM: what the filter expects, None while the bundle has no place yet.
    """
    if sighting.alternative is None:
        return sighting.best, sighting.covariance
    if not unclear(sighting):
        covariance = sighting.covariance.copy()
        apart = angle_between(sighting.best.q_CM, sighting.alternative.q_CM)
        covariance[range(3, 6), range(3, 6)] += (apart / 2) ** 2
        return sighting.best, covariance
    if expected_q_CM is None:
        return None
    near, far = sorted((sighting.best, sighting.alternative), key=lambda pose: angle_between(pose.q_CM, expected_q_CM))
    if angle_between(far.q_CM, expected_q_CM) < CLEARER_BY * angle_between(near.q_CM, expected_q_CM):
        return None
    return near, sighting.covariance

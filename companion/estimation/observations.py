"""Checks of a bundle observation, and the choice between its two pose solutions.

One image of a plane can have two poses that explain the corners about equally well. The image cannot resolve this
ambiguity, but the filter can: it predicts the rotation of the bundle relative to the aircraft.

Unless the bundle was placed by a flipped pose: then the filter expects the flip, and of most images with two poses it uses the one
that explains the corners less well; or, when the bundle is seen from another side later, all images are turned from what it expects
to the same side. `FlipTest` finds both, until CLEAR_IMAGES images with one pose have agreed with the placement: a board that is not
flat may prefer the wrong pose for long.
"""

from math import inf, isfinite, sqrt
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array, Vector
from companion.core.frames import quat_conjugate, quat_log, quat_multiply, quat_normalized, rotation_matrix
from companion.core.messages import BundleObservation, PoseSolution

PLUMB_WEIGHT = 1 / 40  # of the newest image in the share of those that lean
PLUMB_MAX_RAD = 0.25  # to the vertical, of a plumb axis as one image far away shows it
DOWN = (
    0.7  # cosine to the vertical of an axis that points down: the one of a wall that is said to lie level does neither
)
HARMLESS_RAD = 0.05  # two solutions closer than this are used as one with a larger rotation error
FLIP_WEIGHT = 1 / 20  # of the newest image in share and means: 24 flips in a row are a placement by a flip
FLIP_SHARE_MAX = 0.7
CLEAR_IMAGES = 60
NEARER_FACTOR = 1.5  # the other solution must be this many times farther from the expected rotation
# The mean turn of images from the expected pose that is no error of their corners: so many standard deviations of one image, and at
# least this. One image counts as no more than TURN_CLIP of it, so it takes twenty of them; and they must turn to the same side.
TURNED_SIGMAS, TURNED_RAD, TURN_CLIP, ONE_SIDED = 5.0, 0.2, 1.5, 0.7
NO_TURN = np.zeros(3)

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
    markers: frozenset[MarkerId] = frozenset()
    doubtful: bool = (
        False  # its corners do not fit to those of the images before: judged, and nothing is corrected by it
    )
    image: "CheckedObservation | None" = None  # as the tracker has it, where `best` is from corrected corners

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
    return CheckedObservation(
        best,
        alternative,
        covariance,
        _corners(observation),
        observation.corner_noise_px,
        markers=markers_seen(observation),
    )


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


def flipped(pose: Pose) -> Pose:
    """The other pose whose corners look nearly the same when they are in one plane, z of the bundle being its normal."""
    R_CM = rotation_matrix(pose.q_CM)
    normal, distance = R_CM[:, 2], float(np.linalg.norm(pose.p_CM))
    sight = pose.p_CM / distance if distance > 0.0 else np.array([0.0, 0.0, 1.0])
    other = 2 * float(normal @ sight) * sight - normal
    turn = np.array([1.0 + float(normal @ other), *np.cross(normal, other)])  # the shortest, from one to the other
    if not np.linalg.norm(turn) > 1e-6:  # seen along its face
        return pose
    return Pose(pose.p_CM, quat_normalized(quat_multiply(quat_normalized(turn), pose.q_CM)))


class Shown(NamedTuple):
    """What one image alone says about a rotation that is expected."""

    flip: bool | None  # its better pose is not the expected one; None: neither of its two poses clearly is
    clear: bool  # it has one pose, or two that are nearly the same
    turn: Array  # rotation vector [rad], (3,), from the expected pose to the image's one that is nearer
    limit_rad: float  # of the mean turn of a rightly placed bundle

    @property
    def agrees(self) -> bool:
        """Whether it speaks for the expected pose."""
        return self.clear and 2 * sqrt(float(self.turn @ self.turn)) < self.limit_rad


def shown(observation: CheckedObservation, expected_q_CM: Vector) -> Shown:
    """The image beside what is expected."""
    near, other, flip = observation.best, observation.alternative, False
    clear, alike = not is_ambiguous(observation), False
    if other is not None and not clear:
        by_best, by_other = (angle_between(pose.q_CM, expected_q_CM) for pose in (near, other))
        alike = max(by_best, by_other) < NEARER_FACTOR * min(by_best, by_other)
        flip = by_other < by_best
        near = other if flip else near
    turn = quat_log(quat_multiply(quat_conjugate(np.asarray(expected_q_CM)), near.q_CM))
    std_rad = sqrt(float(observation.covariance[3:, 3:].diagonal().max()))
    return Shown(None if alike else flip, clear, turn, max(TURNED_SIGMAS * std_rad, TURNED_RAD))


class FlipTest(NamedTuple):
    """Whether a bundle was placed by a flip. Immutable, as the tests of `innovation_monitor` are."""

    share: float = 0.0  # of recent images whose better pose is not the expected one
    turn: Array = NO_TURN  # mean of recent images over their limits
    length: float = TURN_CLIP  # mean length of the same; starts as if they had scattered
    clear_images: int = 0  # that agreed

    @property
    def ended(self) -> bool:
        """Enough images have agreed: what looks like a flip from now on is something else."""
        return self.clear_images >= CLEAR_IMAGES

    def updated(self, image: Shown) -> "FlipTest":
        """After one more image."""
        share = self.share if image.flip is None else self.share + FLIP_WEIGHT * (image.flip - self.share)
        length = sqrt(float(image.turn @ image.turn)) / image.limit_rad
        if not length < inf:
            return self
        counted = min(1.0, TURN_CLIP / max(length, TURN_CLIP)) / image.limit_rad
        turn = self.turn + FLIP_WEIGHT * (counted * image.turn - self.turn)
        mean_length = self.length + FLIP_WEIGHT * (min(length, TURN_CLIP) - self.length)
        return FlipTest(share, turn, mean_length, self.clear_images)

    def agreed(self) -> "FlipTest":
        """After the update with an image that agrees and was accepted."""
        return self._replace(clear_images=self.clear_images + 1)

    @property
    def found(self) -> bool:
        """The bundle was placed by a flip."""
        turn = sqrt(float(self.turn @ self.turn))
        return not self.ended and (self.share > FLIP_SHARE_MAX or turn > max(1.0, ONE_SIDED * self.length))


class PlumbTest(NamedTuple):
    """Whether the images of a bundle that is said to be plumb show it leaning: the flip of a plumb one for some time, or a wrong file."""

    share: float = 0.0  # of recent images with one pose that lean

    def updated(self, leans: bool) -> "PlumbTest":
        """After one more image with one pose."""
        return PlumbTest(self.share + PLUMB_WEIGHT * (leans - self.share))

    @property
    def leans(self) -> bool:
        """For long: the statement chooses no pose any more."""
        return self.share > FLIP_SHARE_MAX


def plumb_one(observation: CheckedObservation, up_C: Array, up_M: Array) -> CheckedObservation | None:
    """The observation with the pose whose up_M is up, both (3,); None where that is the flip of the only pose.

    As it is where both poses or neither can be plumb: one of them leans clearly, or nothing is decided.
    """
    best, other = _both_poses(observation)
    by_best, by_other = (_leaning(pose, up_C, up_M) for pose in (best, other))
    near, far = sorted((by_best, by_other))
    if not (near <= PLUMB_MAX_RAD and far >= max(PLUMB_MAX_RAD, 2 * near)):
        return observation
    if observation.alternative is None:
        return observation if by_best == near else None
    return observation._replace(best=best if by_best == near else other, alternative=None)


def hangs_upside_down(observation: CheckedObservation, up_C: Array, up_M: Array) -> bool:
    """Whether up_M, the axis of the bundle that is said to point up, points down in both poses of the image; all (3,).

    One image is enough: no noise turns a bundle over, and of a bundle that hangs rightly one of the two poses is right.
    """
    if _upward(observation.best, up_C, up_M) >= -DOWN:
        return False
    return all(_upward(pose, up_C, up_M) < -DOWN for pose in _both_poses(observation))


def _both_poses(observation: CheckedObservation) -> tuple[Pose, Pose]:
    """Those of the image; of an image that has one, the flip of that one."""
    return observation.best, observation.alternative or flipped(observation.best)


def _upward(pose: Pose, up_C: Array, up_M: Array) -> float:
    """Cosine between an axis of the bundle and the vertical."""
    return float((rotation_matrix(pose.q_CM) @ up_M) @ up_C)


def _leaning(pose: Pose, up_C: Array, up_M: Array) -> float:
    """How far an axis is from pointing up: the sine of the angle, up to 2 for one that points down."""
    sine = float(np.linalg.norm(np.cross(rotation_matrix(pose.q_CM) @ up_M, up_C)))
    return sine if _upward(pose, up_C, up_M) >= 0.0 else 2.0 - sine


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

"""The pose of a bundle from its corners over many images: what stays wrong with each corner is found, not averaged over.

A corner is wrong in two ways that last. Its marker is printed larger or smaller than the marker file says, for good; and light,
focus and lens pull it the same way for many seconds. In one image both look mostly like a turned bundle: five markers that are 3 m
away and 0.4 px wrong seem turned by 0.4°, and the aircraft 3 cm to the side. A filter that is given the pose of each image cannot
tell these apart from a turn.

`CornerFilter` has them as states: size and slow displacement of the corners of each marker, and the rotation of the bundle, which
the gyroscopes carry from image to image, because a pier does not turn. The position is free in each image: nothing is assumed
about the motion, so neither a gust nor a bundle that moves is smoothed away. Errors that follow a first-order Gauss-Markov process:
Gelb, "Applied Optimal Estimation", section 3.8; as states of the filter: ibid., section 4.5.

What it hands over is the pose that the corners of *this image* have without what is known to be wrong with them, and two covariances:
of the noise of this image alone, which is new in the next one, and of what is still not known of sizes and displacements, which
is nearly the same in the next one. Its own pose of all images would have an error as slow as the sway of the mount, half a second,
which a filter that takes the errors of images for independent follows as if it were a motion.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.core.camera_model import CameraModel
from companion.core.frames import quat_exp, quat_from_matrix, quat_log, rotation_matrix
from companion.core.messages import BundleObservation
from companion.core.vehicle import Vehicle
from companion.estimation.camera_turn import Turned
from companion.estimation.filter import UNUSED_RAD2
from companion.estimation.gating import Gate
from companion.estimation.observations import (
    CheckedObservation,
    FlipTest,
    MarkerId,
    Pose,
    angle_between,
    is_ambiguous,
    shown,
)

# The state: position p_CM [m]; rotation error of R_CM, in C [rad]; sway of the mount, in C [rad]; bias of the gyroscopes, in the
# camera's axes [rad/s]; then of each marker its size (true over printed in the file, minus 1) and its corners' displacements
# u0 v0 … u3 v3 [px].
POSITION, ROTATION, SWAY, GYRO_BIAS, MARKERS = slice(0, 3), slice(3, 6), slice(6, 9), slice(9, 12), 12
PER_MARKER = 9
MARKERS_MAX = 12  # of one bundle: with more of them the errors of single corners do not matter
MARKERS_SEEN_MAX = 18  # in one image: the pose of more of them is better than that of MARKERS_MAX corrected ones
FILTERS_MAX = 20  # bundles

FREE_POSITION_M = 1.0  # std of the position before an image, about that of the image
# It begins with the mean rotation of so many images in a row, each better than this. From far away the rotation of one image is
# wrong by many degrees; corners that are linearised about such a rotation would show more of it than they do, and the pose of the
# image alone, all of whose covariance may last, is the more honest one: docs/method.md has what an earlier beginning costs.
FIRST_IMAGES, FIRST_STD_RAD = 20, 0.02
LOST_STD_RAD = 0.05  # of the rotation after a time out of sight, beyond which it begins again
FIRST_ROTATION_RAD = 0.2  # std of that mean: the corners that are used from then on know it better
KNOWN_SIZE = 1e-4  # std of the size of a bundle's only marker: nothing else measures the range

# The noise from image to image is that of the vehicle file times a factor, which the innovations find.
NOISE_TIME_S = 2.0
NOISE_FACTOR = 0.25, 16.0  # bounds, of the variance
NIS_MAX = 4.0  # per number, as which a larger one counts
GATE_PROBABILITY = 0.9999
FACTOR_TRUSTED = 6.0  # beyond it the noise is no noise of corners: the mount sways more than the vehicle file says
BAD_IMAGES = 10  # in a row: the bundle or the camera has turned, or the first rotation was wrong
DOUBTFUL_IMAGES = 2  # in a row that do not fit: mostly one corner was found in a wrong place

TURN_STD_RAD = 0.2  # of the rotation of one image, beyond which it is no measurement: one linear step is too short then
SLOW_MIN = 1e-8  # [m², rad²] of each number of the slow error: its covariance always has a root
APART_MAX_PX = 1e5  # from seen to expected corner: no image is as large
EIGHT = np.eye(8)


class Corrected(NamedTuple):
    """The pose of one image, from corrected corners.

    Covariances (6, 6) as `messages.BundleObservation` has them: of p_CM, and of the right-multiplied rotation error of q_CM.
    """

    pose: Pose
    covariance: Array  # of the noise that the next image does not share
    slow: Array  # of the error that it does


class SeenMarker(NamedTuple):
    """A marker in one image."""

    id: MarkerId
    corners_px: Array  # (8,)
    corners_M: Array  # (4, 3) [m]


class _Expected(NamedTuple):
    """The corners of n markers as the state expects them, and as they are seen."""

    R_CM: Array  # (3, 3)
    places: Array  # (n,) of the markers in the state
    arms_C: Array  # (4 n, 3) from the middle of each marker to its corners as in the file, in C
    rays_C: Array  # (4 n, 3) from the bundle's origin to the corners
    px: Array  # (8 n,) as seen, without the displacements


class CornerFilter:
    """Of one bundle. Its images must come in the order of their exposure."""

    def __init__(self, vehicle: Vehicle, camera: CameraModel) -> None:
        errors, mount, imu = vehicle.estimator.camera, vehicle.estimator.mount, vehicle.estimator.imu
        self._camera = camera
        self._noise_px2, self._size2 = vehicle.tracking.corner_noise_px**2, vehicle.tracking.marker_size_std**2
        self._drift_px2, self._drift_time_s = errors.corner_drift_px**2, errors.corner_drift_time_s
        self._sway_rad2, self._sway_time_s = mount.std_rad**2, mount.time_constant_s
        self._bias2, self._bias_time_s = imu.gyro_bias_rad_s**2, imu.bias_time_s
        self.restart()

    def restart(self) -> None:
        """Begin with the next image."""
        self._places: dict[MarkerId, int] = {}  # of a marker's first number in the state
        self._R_CM: Array = np.eye(3)  # without the sway
        self._first = 0  # images whose mean this is, before the corners are used
        self._x = np.zeros(MARKERS)
        self._P = np.diag(np.repeat([0.0, FIRST_ROTATION_RAD**2, self._sway_rad2, self._bias2], 3))
        self._factor = 1.0
        self.flips = FlipTest()
        self._bad = 0
        self._used = False  # whether any corners were
        self._corrects = False  # whether the newest image that fits got its pose from corrected corners

    @property
    def doubts(self) -> bool:
        """Whether the newest image is one of the first that do not fit, after one with a pose from corrected corners."""
        return self._corrects and 0 < self._bad <= DOUBTFUL_IMAGES

    @property
    def begun(self) -> bool:
        """Whether the next image's corners are used."""
        return self._first >= FIRST_IMAGES

    def expected_rotation(self, turn: Turned) -> Array | None:
        """q_CM (4,) of the next image; None before it has begun."""
        if not self.begun:
            return None
        try:
            return quat_from_matrix(_rotation(self._x[SWAY]) @ self._turned(turn) @ self._R_CM)
        except ValueError:  # not a rotation any more
            self.restart()
            return None

    def update(self, markers: Sequence[SeenMarker], pose: Pose, covariance: Array, turn: Turned) -> Corrected | None:
        """The pose from corrected corners; None: not yet, or this image does not fit.

        pose, covariance: of this image alone; turn: of the camera since the image before.
        """
        try:
            if not self.begun:
                self._begin(rotation_matrix(pose.q_CM), float(covariance[3:, 3:].diagonal().max()) ** 0.5, turn)
                return None
            return self._update(markers, pose, turn)
        except (np.linalg.LinAlgError, ValueError):  # numbers that cannot be computed with
            self.restart()
            return None

    def _begin(self, R_CM: Array, std_rad: float, turn: Turned) -> None:
        """Take the rotation of an image before the first one whose corners are used."""
        good = std_rad <= FIRST_STD_RAD
        if not (good and self._first):
            self._R_CM, self._first = R_CM, int(good)
            return
        self._first += 1
        mean = turn.R @ self._R_CM
        self._R_CM = _rotation(quat_log(quat_from_matrix(R_CM @ mean.T)) / self._first) @ mean

    def _update(self, markers: Sequence[SeenMarker], pose: Pose, turn: Turned) -> Corrected | None:
        known = float(self._P[ROTATION, ROTATION].diagonal().max())
        self._predict(turn)
        now = float(self._P[ROTATION, ROTATION].diagonal().max())
        self._add(markers)
        used = [m for m in markers if m.id in self._places]
        lost = self._used and now > max(2 * known, LOST_STD_RAD**2)
        # Out of sight for too long, or at another part of a long bundle.
        if lost or 3 * len(used) < 2 * min(len(markers), MARKERS_MAX):
            self.restart()
            return None
        # Corners are linearised about the expected rotation, at the place where this image has the middle of the bundle. That of
        # its origin has the noise of this image's rotation, and products of noise and noise would add up over the images.
        expected = self._expected(used)
        middle_M = np.mean([m.corners_M for m in used], axis=(0, 1))
        p_CM = pose.p_CM + (rotation_matrix(pose.q_CM) - expected.R_CM) @ middle_M
        px, D = self._camera.project_with_jacobian(expected.rays_C + p_CM)
        z = expected.px - px.ravel()
        if not (np.abs(z) < APART_MAX_PX).all():  # True for NaN: a point that is not in front of the camera
            self._misfit()
            return None
        H = self._jacobian(expected, D)
        PHt = self._P @ H.T
        S = H @ PHt
        S[np.diag_indices_from(S)] += self._noise_px2 * self._factor
        solved = np.linalg.solve(S, np.column_stack((PHt.T, z)))
        nis = float(z @ solved[:, -1])
        if not self._fits(nis, len(z), turn.time_s):
            self._misfit()
            return None
        self._bad, self._used = 0, True
        gain = solved[:, :-1].T
        correction = gain @ z
        P = self._P - gain @ PHt.T
        self._P = 0.5 * (P + P.T)
        self._x += correction
        self._R_CM = _rotation(correction[ROTATION]) @ self._R_CM
        self._x[POSITION] = self._x[ROTATION] = 0.0
        about = Pose(p_CM, quat_from_matrix(expected.R_CM))
        trusted = self._factor <= FACTOR_TRUSTED
        corrected = self._corrected(about, z - H[:, MARKERS:] @ correction[MARKERS:], H) if trusted else None
        self._corrects = corrected is not None
        return corrected

    def _fits(self, nis: float, size: int, duration_s: float) -> bool:
        """Whether the corners fit to the state; what they say about the noise is taken anyway."""
        if not nis >= 0.0:
            raise np.linalg.LinAlgError("the covariance is not one any more")
        share = 1.0 - np.exp(-duration_s / NOISE_TIME_S)
        factor = self._factor * (1.0 + share * (min(nis / size, NIS_MAX) - 1.0))
        self._factor = float(np.clip(factor, *NOISE_FACTOR))
        return Gate(GATE_PROBABILITY, size).accepts(nis)

    def _misfit(self) -> None:
        """An image whose corners are not used."""
        self._bad += 1
        if self._bad >= BAD_IMAGES:
            self.restart()

    def _turned(self, turn: Turned) -> Array:
        """The turn without the bias of the gyroscopes, (3, 3)."""
        turned: Array = _rotation(self._x[GYRO_BIAS] * turn.gyro_s) @ turn.R
        return turned

    def _predict(self, turn: Turned) -> None:
        """To the time of the next image; afterwards the position is anywhere."""
        x, P, drifts = self._x, self._P, self._drifts()
        turned = self._turned(turn)
        self._R_CM = turned @ self._R_CM
        P[ROTATION, :] = turned @ P[ROTATION, :] + turn.gyro_s * P[GYRO_BIAS, :]
        P[:, ROTATION] = P[:, ROTATION] @ turned.T + turn.gyro_s * P[:, GYRO_BIAS]
        keep, variance = np.ones(len(x)), np.zeros(len(x))
        keep[POSITION] = 0.0
        for part, time_s, stationary in (
            (SWAY, self._sway_time_s, self._sway_rad2),
            (GYRO_BIAS, self._bias_time_s, self._bias2),
            (drifts, self._drift_time_s, self._drift_px2),
        ):
            keep[part] = np.exp(-turn.time_s / time_s)
            variance[part] = stationary * (1.0 - keep[part] ** 2)
        variance[POSITION] = FREE_POSITION_M**2
        variance[ROTATION] = turn.variance_rad2
        x *= keep
        P *= keep[:, None] * keep
        P[np.diag_indices_from(P)] += variance

    def _drifts(self) -> Array:
        """Places of all displacements in the state."""
        places = np.arange(MARKERS, len(self._x))
        drifts: Array = places[(places - MARKERS) % PER_MARKER != 0]
        return drifts

    def _add(self, markers: Sequence[SeenMarker]) -> None:
        """Give markers that were not seen before their places in the state."""
        known = len(self._places)
        new = list(dict.fromkeys(m.id for m in markers if m.id not in self._places))[: MARKERS_MAX - known]
        if not new:
            return
        self._places |= {marker: MARKERS + PER_MARKER * (known + i) for i, marker in enumerate(new)}
        old, size = len(self._x), MARKERS + PER_MARKER * len(self._places)
        variance = np.tile([self._size2, *8 * [self._drift_px2]], len(self._places) - known)
        P = np.zeros((size, size))
        P[:old, :old] = self._P
        P[range(old, size), range(old, size)] = variance
        if len(self._places) == 1:
            P[MARKERS, MARKERS] = min(self._size2, KNOWN_SIZE**2)
        elif known == 1:
            P[MARKERS, :] = P[:, MARKERS] = 0.0
            P[MARKERS, MARKERS] = self._size2
        self._x, self._P = np.concatenate((self._x, np.zeros(size - old))), P

    def _expected(self, markers: Sequence[SeenMarker]) -> _Expected:
        R_CM = _rotation(self._x[SWAY]) @ self._R_CM
        places = np.array([self._places[m.id] for m in markers])
        corners_C = np.array([m.corners_M for m in markers]) @ R_CM.T
        middles_C = corners_C.mean(axis=1, keepdims=True)
        arms_C = corners_C - middles_C
        rays_C = middles_C + (1.0 + self._x[places])[:, None, None] * arms_C
        displaced = self._x[places[:, None] + np.arange(1, PER_MARKER)]
        px = (np.array([m.corners_px for m in markers]) - displaced).ravel()
        return _Expected(R_CM, places, arms_C.reshape(-1, 3), rays_C.reshape(-1, 3), px)

    def _jacobian(self, expected: _Expected, D: Array) -> Array:
        """Of the corners by the state, (8 n, size); D: by the points in the camera's axes, (4 n, 2, 3)."""
        _, places, arms_C, rays_C, _ = expected
        H = np.zeros((8 * len(places), len(self._x)))
        H[:, POSITION] = D.reshape(-1, 3)
        H[:, ROTATION] = H[:, SWAY] = np.cross(rays_C[:, None], D).reshape(-1, 3)  # d · (δ × ray) = δ · (ray × d)
        by_size = np.einsum("kij,kj->ki", D, arms_C).reshape(-1, 8)
        for row, place in enumerate(places):
            rows = slice(8 * row, 8 * row + 8)
            H[rows, place] = by_size[row]
            H[rows, place + 1 : place + PER_MARKER] = EIGHT
        return H

    def _corrected(self, about: Pose, z: Array, H: Array) -> Corrected | None:
        """The pose of this image by least squares; None: the corners do not give one.

        about: where the Jacobian H is. Its rotation is expected, not measured, so R has no noise of this image. z: the corners less
        the expected and all that is known to be wrong, (8 n,). What is known includes this image, whose noise is therefore a
        little smaller than R says: by the share that one image has in sizes and displacements.
        """
        R_CM = rotation_matrix(about.q_CM)
        to_right = np.eye(6)
        to_right[3:, 3:] = R_CM.T  # from the rotation error in C, on the left, to the right-multiplied one
        unknown = np.zeros(6)
        by_corners, white = self._least_squares(H[:, :6])
        if white[3:, 3:].diagonal().max() > TURN_STD_RAD**2:
            by_position, at_expected = self._least_squares(H[:, POSITION])
            by_corners, white = np.zeros_like(by_corners), np.zeros((6, 6))
            by_corners[:3], white[:3, :3] = by_position, at_expected
            unknown[3:] = UNUSED_RAD2
        change, by_markers = by_corners @ z, by_corners @ H[:, MARKERS:]
        # Displacements that are larger than the vehicle file's are something else, a marker in a wrong place.
        misfit = float(np.mean(self._x[self._drifts()] ** 2)) / self._drift_px2
        slow = by_markers @ self._P[MARKERS:, MARKERS:] @ by_markers.T * max(misfit, 1.0)
        covariance = to_right @ white @ to_right.T + np.diag(unknown)
        slow = to_right @ slow @ to_right.T + SLOW_MIN * np.eye(6)
        if not (np.isfinite(change).all() and _is_covariance(covariance) and _is_covariance(slow)):
            return None
        return Corrected(
            Pose(about.p_CM + change[:3], quat_from_matrix(_rotation(change[3:]) @ R_CM)), covariance, slow
        )

    def _least_squares(self, G: Array) -> tuple[Array, Array]:
        """(GᵀG)⁻¹Gᵀ, and the covariance that the noise of the corners gives its result; NaN where G has no inverse."""
        try:
            inverse = np.linalg.inv(G.T @ G)
        except np.linalg.LinAlgError:
            inverse = np.full((G.shape[1], G.shape[1]), np.nan)
        inverse = 0.5 * (inverse + inverse.T)
        return inverse @ G.T, self._noise_px2 * self._factor * inverse


def _is_covariance(matrix: Array) -> bool:
    """Whether it has a root."""
    try:
        return bool(np.isfinite(np.linalg.cholesky(matrix)).all())
    except np.linalg.LinAlgError:
        return False


def _rotation(vector: Array) -> Array:
    """R (3, 3) of a rotation vector [rad]."""
    return rotation_matrix(quat_exp(vector))


class CornerFilters:
    """The filters of all bundles: the pose of each image goes in, its pose from corrected corners comes out."""

    def __init__(self, vehicle: Vehicle) -> None:
        self._vehicle, self._camera = vehicle, CameraModel(vehicle.camera)
        self._filters: dict[str, tuple[CornerFilter, Turned]] = {}  # and where the camera pointed in its newest image

    def refined(self, received: BundleObservation, seen: CheckedObservation, now: Turned) -> CheckedObservation:
        """The observation with its pose from corrected corners; as it was where that is not possible, or where it names no corners.

        Doubtful where its corners do not fit. received, seen: the same observation, as it came and checked; now: where the
        camera pointed in this image.
        """
        if not 0 < len(received.markers) <= MARKERS_SEEN_MAX:
            return seen
        corners, before = self._filters.pop(received.bundle, (None, now))
        if corners is None:
            corners = CornerFilter(self._vehicle, self._camera)
        elif now.time_s <= before.time_s:  # late, or the camera's delay is now taken for another
            self._filters[received.bundle] = corners, before
            return seen
        self._filters[received.bundle] = corners, now
        if len(self._filters) > FILTERS_MAX:
            del self._filters[next(iter(self._filters))]  # the bundle that was not seen for longest
        turn = now.since(before)
        pose, expected = seen.best, corners.expected_rotation(turn)
        image = None
        if expected is not None and not corners.flips.ended:
            image = shown(seen, expected)
            corners.flips = corners.flips.updated(image)
        if seen.alternative is not None and is_ambiguous(seen):
            if expected is None:
                corners.restart()  # which of two poses the bundle has is not known
                return seen
            pose = min(seen.best, seen.alternative, key=lambda p: angle_between(p.q_CM, expected))
        if corners.flips.found:
            corners.restart()
            return seen
        markers = {
            (m.family, m.id): SeenMarker((m.family, m.id), np.array(m.corners_px), np.array(m.corners_M))
            for m in received.markers
        }
        found = corners.update(list(markers.values()), pose, seen.covariance, turn)
        if found is None:
            # The image's own pose is wrong in another way than those of corrected corners before it.
            return seen._replace(doubtful=corners.doubts)
        if image is not None and image.agrees:
            corners.flips = corners.flips.agreed()
        return seen._replace(
            best=found.pose, alternative=None, covariance=found.covariance, slow=found.slow, image=seen
        )

"""The payload camera at its exposures, and the markers in its pictures as measurements of it.

With the aircraft's pose at the exposure (`exposures`), and where the log's pose of the photograph gives the camera's rotation R_HC against the
heading of the body (a gimbal is level by its own sensor) or against the body itself:

    R_WC = R_WH R_HC exp(mount) exp(own)      R_WH: the body's heading, or R_WB without a gimbal
    p_WC = p_WB + R_WB (p_BC + lever) + own place

A marker's centre in the picture is the intersection of the diagonals of its corners. It lies at X_M (1 + scale of the print) of its bundle, and in the picture,
x = X_C / z, at f (1 + focal + k1 |x|²) x + principal point, against the centre of the picture.

Each photograph has errors of its own: what the gimbal reports wrongly, what the error of the exposure's time is worth, and the noise of the samples
since the image. They are in no other photograph, so they are eliminated: for given other unknowns the best ones are found, and the residuals and derivatives
are those with the own errors at their best (variable projection: Golub & Pereyra, SIAM J. Numerical Analysis 10, 1973).
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from calibration.map.exposures import Carried
from calibration.map.motion import FlightNoise
from calibration.map.normal_equations import Factor, Index, Mask
from calibration.map.rotations import cross, exp, right_jacobian, turned
from calibration.map.unknowns import (
    ATTITUDE,
    PAYLOAD_LENS,
    PAYLOAD_LEVER,
    PAYLOAD_MOUNT,
    PER_BUNDLE,
    PER_IMAGE,
    PER_PAYLOAD,
    PLACE,
    POSITION,
    SCALE,
    TURN,
    VELOCITY,
    Unknowns,
    columns,
)
from companion.core.arrays import Array

WIDTH_PX = 2000.0  # coordinates and noise count in pixels of a picture reduced to this width
# Of a marker's centre, whatever the residuals show: half a millimetre at 5 m, to which a board's centres are true at best, and what k1 leaves of
# a lens. These errors are the same in all pictures, so that residuals do not show them.
NOISE_MIN_PX = 0.2
ROBUST_PX = 10.0  # in the first round, when mount and heading are not known yet: noise, twice which has half the weight
OUTLIER, USUAL_MIN_PX = 4.0, 0.05  # times the median size of the errors, which counts as this at least
MISFIT_MAX_PX = 6.0  # median error after the first round, above which the pictures are not those of this flight
LEVER_STD_M = 0.01  # of p_BC [estimate]: measured with a ruler
FOCAL_STD, K1_STD = 0.01, 0.03  # of a camera file by the maker's focal length, without distortion [estimate]
PRINCIPAL_POINT_STD = 0.005  # of the width, likewise
LEAST_RAD, LEAST_M = 1e-5, 1e-4  # standard deviations of a photograph's own errors
OWN = 6  # errors of a photograph: rotation about the axes of C, place in W
MOVED = 9  # unknowns of an image that move the camera: attitude, position, velocity
OWN_STEPS = 4  # of Gauss and Newton for the own errors: they are small


class PayloadErrors(NamedTuple):
    """Standard deviations: of the camera's mount, of what its gimbal reports (0: without one), and of the time of each exposure (n,)."""

    mount_rad: float
    gimbal_rad: float
    time_s: Array


@dataclass(frozen=True)
class Photographs:
    """Photographs of a flight, n, and up to m markers in each.

    stamp_s (n,); R_HC (n, 3, 3): the camera by the log against the heading of the body, or the body without a gimbal; p_BC (3,); focal_px (2,);
    bundle (n, m), centre_M (n, m, 3): of the markers that were seen (n, m), xy_px (n, m, 2): against the centre of the picture.
    """

    stamp_s: Array
    R_HC: Array
    has_gimbal: bool
    p_BC: Array
    focal_px: Array
    errors: PayloadErrors
    bundle: Index
    centre_M: Array
    seen: Mask
    xy_px: Array

    def __len__(self) -> int:
        return len(self.stamp_s)


class Cameras(NamedTuple):
    """Poses of the camera at n exposures: R_WC (n, 3, 3), p_WC (n, 3).

    turned_by (n, 3, c), moved_by (n, 3, c): derivatives of the rotation (right) and of the place, by the unknowns of the image (`MOVED`), mount and
    lever of the camera, and the own errors in their standard deviations; 21 columns.
    """

    R_WC: Array
    p_WC: Array
    turned_by: Array
    moved_by: Array


class Predicted(NamedTuple):
    """Predicted minus observed centres (n, 2 m) [px], and derivatives by image (…, 9), payload camera (…, 10), every bundle (…, 7 b), own errors (…, 6);
    0 where a marker is not seen."""

    residual: Array
    by_image: Array
    by_payload: Array
    by_bundles: Array
    by_own: Array


def own_root(u: Unknowns, photographs: Photographs, at: Carried, rate_B: Array, noise: FlightNoise) -> Array:
    """Roots (n, 6, 6) of the covariances of the photographs' own errors; rate_B (n, 3): the body's angular rate."""
    errors, apart_s = photographs.errors, np.abs(at.apart_s)
    R_WB, n = at.attitude(u), len(photographs)
    rate_W = _apply(R_WB, rate_B)
    velocity_W = at.velocity(u) + np.cross(rate_W, _apply(R_WB, np.tile(photographs.p_BC, (n, 1))))
    if photographs.has_gimbal:
        rate_W = rate_W * [0.0, 0.0, 1.0]
    R_WC = _rotation(u, photographs, R_WB)
    by_time = np.concatenate([_apply(turned(R_WC), rate_W), velocity_W], axis=1) * errors.time_s[:, None]
    turn2 = LEAST_RAD**2 + errors.gimbal_rad**2 + noise.gyro**2 * apart_s
    move2 = LEAST_M**2 + noise.accel**2 * apart_s**3 / 3
    own2 = np.repeat(np.column_stack([turn2, move2]), 3, axis=1)
    covariance = own2[:, :, None] * np.eye(OWN) + by_time[:, :, None] * by_time[:, None, :]
    return np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)


def _rotation(u: Unknowns, photographs: Photographs, R_WB: Array) -> Array:
    R_WH = _headed(R_WB) if photographs.has_gimbal else R_WB
    found: Array = R_WH @ photographs.R_HC @ exp(u.payload[PAYLOAD_MOUNT])
    return found


def _headed(R_WB: Array) -> Array:
    """Rotations about the vertical by the headings of bodies."""
    heading = np.arctan2(R_WB[:, 1, 0], R_WB[:, 0, 0])
    return exp(heading[:, None] * [0.0, 0.0, 1.0])


def cameras(u: Unknowns, photographs: Photographs, at: Carried, root: Array, own: Array) -> Cameras:
    """Where the camera is at each exposure; own (n, 6): errors of each photograph in their standard deviations."""
    n = len(photographs)
    R_WB, R_image, mount = at.attitude(u), u.R_WB[at.image], u.payload[PAYLOAD_MOUNT]
    error = _apply(root, own)
    R_own = exp(error[:, :3])
    R_WC = _rotation(u, photographs, R_WB) @ R_own
    lever_W = R_WB @ (photographs.p_BC + u.payload[PAYLOAD_LEVER])
    p_WC = at.position(u) + lever_W + error[:, 3:]

    by_body = np.tile(np.eye(3), (n, 1, 1))  # of the camera's rotation in W by the body's
    if photographs.has_gimbal:
        x, y, z = np.moveaxis(R_WB[:, :, 0], 1, 0)
        level2 = x**2 + y**2
        by_body[:, :2] = 0.0
        by_body[:, 2, 0], by_body[:, 2, 1] = -z * x / level2, -z * y / level2
    turned_by, moved_by = np.zeros((n, 3, MOVED + 6 + OWN)), np.zeros((n, 3, MOVED + 6 + OWN))
    turned_by[..., :3] = turned(R_WC) @ by_body @ R_image
    moved_by[..., :3] = -cross(_apply(R_image, at.a) + lever_W) @ R_image
    moved_by[..., 3:6], moved_by[..., 6:9] = np.eye(3), at.apart_s[:, None, None] * np.eye(3)
    turned_by[..., 9:12], moved_by[..., 12:15] = turned(R_own) @ right_jacobian(mount), R_WB
    turned_by[..., 15:] = right_jacobian(error[:, :3]) @ root[:, :3]
    moved_by[..., 15:] = root[:, 3:]
    return Cameras(R_WC, p_WC, turned_by, moved_by)


def predict(u: Unknowns, photographs: Photographs, at: Carried, root: Array, own: Array) -> Predicted:
    """The centres of the markers in the pictures."""
    n, m = photographs.seen.shape
    camera = cameras(u, photographs, at, root, own)
    b, lens = photographs.bundle, u.payload[PAYLOAD_LENS]
    X_M = photographs.centre_M * (1 + u.print_scale[b])[..., None]
    R_WM, R_CW = u.R_WM[b], turned(camera.R_WC)[:, None]
    X_W = _apply(R_WM, X_M) + u.p_WM[b]
    X_C = _apply(R_CW, X_W - camera.p_WC[:, None])
    z = np.where(photographs.seen, X_C[..., 2], 1.0)[..., None]
    flat = X_C[..., :2] / z
    r2 = np.sum(flat**2, axis=-1, keepdims=True)
    factor = 1 + lens[0] + lens[3] * r2
    focal_px = photographs.focal_px
    residual = flat * factor * focal_px + lens[1:3] - photographs.xy_px

    through = np.zeros((n, m, 2, 3))  # d(residual)/d(X_C)
    through[..., 0, 0] = through[..., 1, 1] = 1.0
    through[..., 2] = -flat
    radial = factor[..., None] * np.eye(2) + 2 * lens[3] * flat[..., :, None] * flat[..., None, :]
    through = focal_px[:, None] * (radial @ through) / z[..., None]
    by_world = through @ R_CW
    by_camera = through @ cross(X_C) @ camera.turned_by[:, None] - by_world @ camera.moved_by[:, None]
    by_payload = np.zeros((n, m, 2, PER_PAYLOAD))
    by_payload[..., :6] = by_camera[..., MOVED : MOVED + 6]
    by_payload[..., 6] = flat * focal_px
    by_payload[..., 7:9] = np.eye(2)
    by_payload[..., 9] = flat * r2 * focal_px
    by_own_bundle = np.zeros((n, m, 2, PER_BUNDLE))
    by_own_bundle[..., TURN] = -by_world @ R_WM @ cross(X_M)
    by_own_bundle[..., PLACE] = by_world
    by_own_bundle[..., SCALE] = by_world @ R_WM @ photographs.centre_M[..., None]
    is_of = (b[..., None] == np.arange(u.bundles))[:, :, None, :, None]
    by_bundles = (by_own_bundle[..., None, :] * is_of).reshape(n, m, 2, PER_BUNDLE * u.bundles)

    def whole(part: Array) -> Array:
        seen = photographs.seen.reshape(n, m, *(1,) * (part.ndim - 2))
        found: Array = np.where(seen, part, 0.0).reshape(n, 2 * m, *part.shape[3:])
        return found

    return Predicted(
        *map(whole, (residual, by_camera[..., :MOVED], by_payload, by_bundles, by_camera[..., MOVED + 6 :]))
    )


class Fitted(NamedTuple):
    """The photographs with their own errors at their best: own (n, 6), their covariance (n, 6, 6) for given other unknowns, both in their
    standard deviations; predicted with these, std_px (n, m), infinite where a marker is not seen."""

    own: Array
    covariance: Array
    predicted: Predicted
    std_px: Array

    @property
    def weighted(self) -> Predicted:
        """The predictions, divided by their standard deviations."""
        weight = np.repeat(1 / self.std_px, 2, axis=1)
        rest = (part * weight[..., None] for part in self.predicted[1:])
        return Predicted(self.predicted.residual * weight, *rest)


def fitted(u: Unknowns, photographs: Photographs, at: Carried, root: Array, noise_px: float, robust: bool) -> Fitted:
    """Find the own errors of each photograph; robust: a marker that does not fit weighs less (Cauchy)."""
    n, m = photographs.seen.shape
    own = np.zeros((n, OWN))
    std = np.where(photographs.seen, ROBUST_PX if robust else noise_px, np.inf)
    for step in range(OWN_STEPS + 1):
        predicted = predict(u, photographs, at, root, own)
        if robust:
            size2 = np.sum(predicted.residual.reshape(n, m, 2) ** 2, axis=2) / 2
            std = np.where(photographs.seen, np.sqrt(ROBUST_PX**2 + size2 / 4), np.inf)
        found = Fitted(own, np.zeros((n, OWN, OWN)), predicted, std)
        weighted = found.weighted
        A = weighted.by_own
        covariance = np.asarray(np.linalg.inv(np.eye(OWN) + turned(A) @ A), dtype=np.float64)
        if step == OWN_STEPS:
            break
        own = own - _apply(covariance, _apply(turned(A), weighted.residual) + own)
    return found._replace(covariance=covariance)


class PictureFactors(NamedTuple):
    """centres: residuals of the markers; own: of the own errors, which have standard deviations that are given."""

    centres: Factor
    own: Factor


def picture_factors(u: Unknowns, at: Carried, fit: Fitted) -> PictureFactors:
    """The residuals of photographs with their own errors eliminated."""
    rows = np.flatnonzero(np.isfinite(fit.std_px).any(axis=1))
    part = [array[rows] for array in fit.weighted]
    residual, A, H = part[0], part[4], fit.covariance[rows]
    J = np.concatenate(part[1:4], axis=2)
    answer = -H @ turned(A) @ J  # of the own errors to the other unknowns
    place = _columns(u, at.image[rows])
    taken = OWN * len(rows) - float(np.trace(H, axis1=1, axis2=2).sum())
    return PictureFactors(Factor(residual, J + A @ answer, place, taken), Factor(fit.own[rows], answer, place))


def _columns(u: Unknowns, image: Index) -> Index:
    n = len(image)
    payload = np.tile(u.first_of_payload + np.arange(PER_PAYLOAD), (n, 1))
    firsts = [np.full(n, u.first_of_bundle(b)) for b in range(u.bundles)]
    bundles = [columns(first, slice(0, PER_BUNDLE)) for first in firsts]
    found: Index = np.concatenate([columns(PER_IMAGE * image, ATTITUDE, POSITION, VELOCITY), payload, *bundles], axis=1)
    return found


def payload_std(photographs: Photographs) -> Array:
    """Standard deviations (10,) of `Unknowns.payload` by the camera file."""
    shift = PRINCIPAL_POINT_STD * WIDTH_PX
    return np.array(
        [*[max(photographs.errors.mount_rad, LEAST_RAD)] * 3, *[LEVER_STD_M] * 3, FOCAL_STD, shift, shift, K1_STD]
    )


def payload_prior(u: Unknowns, photographs: Photographs) -> Factor:
    """What the camera file says."""
    std = payload_std(photographs)
    place = u.first_of_payload + np.arange(PER_PAYLOAD)
    return Factor((u.payload / std)[None], np.diag(1 / std)[None], place[None])


class Fitting(NamedTuple):
    """Photographs with the markers that fit; median_px: of the errors of those that counted before; rms_px: of those that count now."""

    photographs: Photographs
    median_px: float
    rms_px: float


def fitting(u: Unknowns, every: Photographs, at: Carried, root: Array, fit: Fitted, noise_px: float) -> Fitting:
    """Of all markers of photographs those that fit a solution, also where they did not count for it.

    A marker that is half hidden behind an edge has wrong corners, by pixels where the others are right to a hundredth.
    noise_px: of the centres; the robust round takes more, and leaves the photographs' own errors in the residuals.
    """
    n, m = every.seen.shape
    size = np.sqrt(np.mean(predict(u, every, at, root, fit.own).residual.reshape(n, m, 2) ** 2, axis=2))
    counted = np.isfinite(fit.std_px)
    usual = float(np.median(size[counted])) if counted.any() else 0.0
    kept = every.seen & (size < OUTLIER * max(usual, USUAL_MIN_PX))
    counts = replace(every, seen=kept)
    again = fitted(u, counts, at, root, noise_px, robust=False)
    taken = OWN * n - float(np.trace(again.covariance, axis1=1, axis2=2).sum())
    freedom = 2 * np.count_nonzero(kept) - taken
    squares = float(np.sum(again.predicted.residual**2))
    # Where the own errors take all freedom, the noise stays as it is assumed.
    rms = float(np.sqrt((squares + noise_px**2) / (freedom + 1))) if kept.any() else 0.0
    return Fitting(counts, usual, rms)


class InBundle(NamedTuple):
    """A camera in the frame M of a bundle: p_MC (3,) [m], R_MC (3, 3).

    jacobian (6, size): of p_MC, then of the rotation about the axes of M, by all unknowns; own (6, 6): the covariance that remains when these are known.
    """

    p_MC: Array
    R_MC: Array
    jacobian: Array
    own: Array


@dataclass(frozen=True)
class Placed:
    """The photographs by the solution of an adjustment."""

    photographs: Photographs
    unknowns: Unknowns
    at: Carried
    fit: Fitted
    cameras: Cameras

    def in_bundle(self, i: int, b: int) -> InBundle:
        """The camera of photograph i in the frame of bundle b."""
        u, camera = self.unknowns, self.cameras
        R_MW = u.R_WM[b].T
        R_MC, p_MC = R_MW @ camera.R_WC[i], R_MW @ (camera.p_WC[i] - u.p_WM[b])
        by_camera = np.concatenate([R_MW @ camera.moved_by[i], R_MC @ camera.turned_by[i]])
        by_own, shared = by_camera[:, MOVED + 6 :], by_camera[:, : MOVED + 6]
        weighted, H = self.fit.weighted, self.fit.covariance[i]
        place = _columns(u, self.at.image[i : i + 1])[0]
        others = np.concatenate([part[i] for part in weighted[1:4]], axis=1)
        J = np.zeros((6, u.size))
        J[:, place] = -by_own @ H @ weighted.by_own[i].T @ others
        J[:, place[: MOVED + 6]] += shared
        first = u.first_of_bundle(b)
        J[:3, first + PLACE.start : first + PLACE.stop] -= R_MW
        J[:3, first + TURN.start : first + TURN.stop] += cross(p_MC)
        J[3:, first + TURN.start : first + TURN.stop] -= np.eye(3)
        return InBundle(p_MC, R_MC, J, by_own @ H @ by_own.T)


def _apply(R: Array, vectors: Array) -> Array:
    found: Array = (R @ vectors[..., None])[..., 0]
    return found

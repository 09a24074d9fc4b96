"""Corners of markers in images as measurements of the aircraft, the camera and the bundles.

A corner X_M of a bundle in an image with stamp t, exposed at t + τ, τ = delay + jitter:

    X_W = R_WM X_M + p_WM
    X_B = (R_WB exp(ω τ))ᵀ (X_W - p_W - v_W τ)
    X_C = (R_BC exp(mount) exp(sway))ᵀ (X_B - p_BC - lever)

and its image by a pinhole with errors of focal length, principal point and radial distortion. A marker's corners lie around its
centre, which is true, times its scale and that of the print.

The error of a corner has a part that lasts (light, focus, lens model) and one from image to image: a first-order Gauss-Markov process and white
noise. Each residual is taken relative to its expectation by earlier ones of the same corner (Vecchia, J. Royal Statistical Society B 50,
1988), so that the residuals that enter the adjustment are uncorrelated to a good approximation.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from calibration.map.normal_equations import Factor, Index, Mask
from calibration.map.rotations import cross, exp, right_jacobian, turned
from calibration.map.unknowns import (
    ATTITUDE,
    DELAY,
    JITTER,
    LENS,
    LEVER,
    MOUNT,
    PER_BUNDLE,
    PER_FLIGHT,
    PER_IMAGE,
    PLACE,
    POSITION,
    SCALE,
    SWAY,
    TURN,
    VELOCITY,
    Unknowns,
    columns,
)
from companion.core.arrays import Array

EARLIER = (1, 2, 4)  # which of the images before, of the same bundle, count for the expectation
EARLIER_IMAGES = 4  # no farther back than so many images of the flight
CORNERS = 8  # numbers of a marker in an image
SEEN_BY = (ATTITUDE, POSITION, VELOCITY, SWAY, JITTER)  # the unknowns of an image
SEEN_SIZE = 13


class Lens(NamedTuple):
    """The camera as the vehicle file has it: focal_px (2,), R_BC (3, 3), p_BC (3,)."""

    focal_px: Array
    R_BC: Array
    p_BC: Array


@dataclass(frozen=True)
class Prints:
    """The markers of b bundles: centre_M (b, m, 3) and the corners relative to it, corners_M (b, m, 4, 3) [m]."""

    centre_M: Array
    corners_M: Array


@dataclass(frozen=True)
class Seen:
    """Bundles in images, n pairs in the order of time: image and bundle (n,), seen (n, m) and xy (n, m, 4, 2), undistorted."""

    image: Index
    bundle: Index
    seen: Mask
    xy: Array

    def __len__(self) -> int:
        return len(self.image)


class CornerNoise(NamedTuple):
    """Standard deviations [px] of a coordinate from image to image and lasting, and the time constant of the latter."""

    white_px: float
    slow_px: float
    slow_s: float


class Predicted(NamedTuple):
    """Residuals (n, m, 8) [px] of corners, and derivatives by image (…, 13), flight (…, 11), bundle (…, 7), marker (…)."""

    residual: Array
    by_image: Array
    by_flight: Array
    by_bundle: Array
    by_marker: Array


def predict(u: Unknowns, seen: Seen, prints: Prints, lens: Lens, rate_B: Array) -> Predicted:
    """Predicted minus observed corners; rate_B (k, 3): the angular rate at each image. Zero where a marker is not seen."""
    n, m = seen.seen.shape
    k, b = seen.image, seen.bundle
    centre, offset = prints.centre_M[b][:, :, None], prints.corners_M[b]
    print_scale, marker_scale = u.print_scale[b][:, None, None, None], u.marker_scale[b][:, :, None, None]
    nominal = centre + offset
    X_M = nominal + print_scale * nominal + marker_scale * offset
    R_WM, R_WB, v_W = u.R_WM[b][:, None, None], u.R_WB[k][:, None, None], u.v_W[k][:, None, None]
    delay_s = (u.delay_s + u.jitter_s[k])[:, None]
    moved = exp(rate_B[k] * delay_s)[:, None, None]
    tau, rate = delay_s[:, None, None], rate_B[k][:, None, None]

    X_W = _apply(R_WM, X_M) + u.p_WM[b][:, None, None]
    X_0 = _apply(turned(R_WB), X_W - u.p_W[k][:, None, None] - v_W * tau)  # in the body frame at the stamp
    X_B = _apply(turned(moved), X_0)
    R_BD, R_DC = lens.R_BC @ exp(u.mount), exp(u.sway[k])[:, None, None]  # D: the camera without sway
    X_D = _apply(R_BD.T, X_B - lens.p_BC - u.lever_m)
    X_C = _apply(turned(R_DC), X_D)

    z = X_C[..., 2:]
    flat = X_C[..., :2] / z
    r2 = np.sum(flat**2, axis=-1, keepdims=True)
    factor = 1 + u.lens[0] + u.lens[3] * r2
    residual = (flat * factor - seen.xy) * lens.focal_px + u.lens[1:3]

    through = np.zeros((n, m, 4, 2, 3))  # d(residual)/d(X_C)
    through[..., 0, 0] = through[..., 1, 1] = 1.0
    through[..., 2] = -flat
    radial = factor[..., None] * np.eye(2) + 2 * u.lens[3] * flat[..., :, None] * flat[..., None, :]
    through = lens.focal_px[:, None] * (radial @ through) / z[..., None]
    by_body = through @ turned(R_DC) @ R_BD.T  # by X_B
    by_world = by_body @ turned(moved) @ turned(R_WB)  # by X_W

    velocity_B = _apply(turned(moved), _apply(turned(R_WB), v_W))
    by_time = by_body @ (-velocity_B - np.cross(rate, X_B))[..., None]
    by_image = np.concatenate(
        [
            by_body @ turned(moved) @ cross(X_0),
            -by_world,
            -by_world * tau[..., None],
            through @ cross(X_C) @ right_jacobian(u.sway[k])[:, None, None],
            by_time,
        ],
        axis=-1,
    )
    by_flight = np.zeros((n, m, 4, 2, PER_FLIGHT))
    by_flight[..., MOUNT] = through @ turned(R_DC) @ cross(X_D) @ right_jacobian(u.mount)
    by_flight[..., LEVER] = -by_body
    by_flight[..., DELAY] = by_time
    by_flight[..., LENS.start] = flat * lens.focal_px
    by_flight[..., LENS.start + 1 : LENS.start + 3] = np.eye(2)
    by_flight[..., LENS.start + 3] = flat * r2 * lens.focal_px
    by_bundle = np.zeros((n, m, 4, 2, PER_BUNDLE))
    by_bundle[..., TURN] = -by_world @ R_WM @ cross(X_M)
    by_bundle[..., PLACE] = by_world
    by_bundle[..., SCALE] = by_world @ R_WM @ nominal[..., None]
    by_marker = (by_world @ R_WM @ offset[..., None])[..., 0]

    def whole(part: Array) -> Array:
        shaped = part.reshape(n, m, CORNERS, *part.shape[4:])
        return np.where(seen.seen.reshape(n, m, *(1,) * (shaped.ndim - 2)), shaped, 0.0)

    return Predicted(*map(whole, (residual, by_image, by_flight, by_bundle, by_marker)))


def _apply(R: Array, vectors: Array) -> Array:
    found: Array = (R @ vectors[..., None])[..., 0]
    return found


class Whitening(NamedTuple):
    """earlier (n, e): rows of `Seen` that count for the expectation of each, itself where there is none; weight (n, m, e);
    std_px (n, m), infinite where a marker is not seen."""

    earlier: Index
    weight: Array
    std_px: Array


def whitening(seen: Seen, t_s: Array, noise: CornerNoise) -> Whitening:
    """The expectation of each corner's error by earlier ones; t_s (k,): of the images."""
    n, m = seen.seen.shape
    earlier = np.tile(np.arange(n)[:, None], len(EARLIER))
    for bundle in np.unique(seen.bundle):
        rows = np.flatnonzero(seen.bundle == bundle)
        for column, back in enumerate(EARLIER):
            near = seen.image[rows[back:]] - seen.image[rows[:-back]] <= EARLIER_IMAGES
            earlier[rows[back:][near], column] = rows[:-back][near]
    usable = (earlier != np.arange(n)[:, None])[:, None, :] & np.swapaxes(seen.seen[earlier], 1, 2)
    times = t_s[seen.image]
    before = times[earlier]

    def covariance(apart_s: Array) -> Array:
        found: Array = noise.slow_px**2 * np.exp(-np.abs(apart_s) / noise.slow_s)
        return found

    variance = noise.slow_px**2 + noise.white_px**2
    among = covariance(before[:, :, None] - before[:, None, :])[:, None] * (usable[..., :, None] & usable[..., None, :])
    diagonal = np.arange(len(EARLIER))
    among[..., diagonal, diagonal] = variance
    across = covariance(times[:, None] - before)[:, None] * usable
    weight = np.linalg.solve(among, np.broadcast_to(across, (n, m, len(EARLIER)))[..., None])[..., 0]
    std = np.sqrt(variance - np.sum(weight * across, axis=2))
    return Whitening(earlier, weight, np.where(seen.seen, std, np.inf))


def corner_factor(u: Unknowns, seen: Seen, predicted: Predicted, white: Whitening) -> Factor:
    """The corners of a bundle in an image as one factor of 8 m residuals."""
    n, m = seen.seen.shape
    images = seen.image[np.column_stack([np.arange(n), white.earlier])]
    weight = np.concatenate([np.ones((n, m, 1)), -white.weight], axis=2) / white.std_px[..., None]
    rows = np.column_stack([np.arange(n), white.earlier])

    def combined(part: Array) -> Array:
        found: Array = np.einsum("nme,nem...->nm...", weight, part[rows])
        return found

    own = predicted.by_image[rows] * np.moveaxis(weight, 2, 1)[..., None, None]
    by_marker = combined(predicted.by_marker)[..., None] * np.eye(m)[:, None, :]
    jacobian = np.concatenate(
        [
            np.moveaxis(own, 1, 3).reshape(n, m, CORNERS, -1),
            combined(predicted.by_flight),
            combined(predicted.by_bundle),
            by_marker,
        ],
        axis=3,
    )
    size = PER_BUNDLE + m
    first = u.first_of_bundle(0) + seen.bundle * size
    index = [columns(PER_IMAGE * images[:, e], *SEEN_BY) for e in range(images.shape[1])]
    index += [np.tile(u.first_of_flight + np.arange(PER_FLIGHT), (n, 1)), columns(first, slice(0, size))]
    place = np.concatenate(index, axis=1)
    return Factor(combined(predicted.residual).reshape(n, -1), jacobian.reshape(n, m * CORNERS, -1), place)

"""The aircraft's motion between images and the priors of everything that is nearly known, as factors.

Residuals of an interval from image i to j, with the preintegrated samples ΔR, Δv, Δp (Forster et al., equation 45):

    log((ΔR exp(∂R/∂b_g δb_g))ᵀ R_iᵀ R_j)
    R_iᵀ (v_j - v_i - g Δt) - Δv(δb)
    R_iᵀ (p_j - p_i - v_i Δt - g Δt²/2) - Δp(δb)

The flight controller's own velocity is no measurement beside them: it has the same inertial samples in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from calibration.map.corners import CornerNoise
from calibration.map.normal_equations import Factor, Index
from calibration.map.preintegration import Preintegrated
from calibration.map.rotations import cross, exp, log, right_jacobian, right_jacobian_inverse, turned
from calibration.map.unknowns import (
    ACCEL_BIAS,
    ATTITUDE,
    DELAY,
    GYRO_BIAS,
    JITTER,
    LENS,
    LEVER,
    MOUNT,
    PER_BUNDLE,
    PER_IMAGE,
    POSITION,
    SCALE,
    TURN,
    VELOCITY,
    Unknowns,
    columns,
)
from companion.core.arrays import Array
from companion.core.frames import GRAVITY_M_S2
from companion.core.site import Plumb

GRAVITY_W = np.array([0.0, 0.0, -GRAVITY_M_S2])
FIRST_POSITION_STD_M, FIRST_ATTITUDE_STD_RAD = 0.001, 0.05  # the frame of the flight; its heading is free


@dataclass(frozen=True)
class SlowError:
    """A first-order Gauss-Markov process."""

    std: float
    time_s: float


@dataclass(frozen=True)
class FlightNoise:
    """Of the sensors: white noise of gyro [rad/√s] and accelerometer [m/s/√s], slow errors, and priors of constants.

    jitter_s: of the images' times; lens: standard deviations as `Unknowns.lens`; picture_px: of a marker's centre in a photograph (`pictures.WIDTH_PX`).
    """

    gyro: float
    accel: float
    gyro_bias: SlowError
    accel_bias: SlowError
    sway: SlowError
    jitter_s: float
    mount_rad: float
    lever_m: float
    delay_s: float
    lens: tuple[float, float, float, float]
    print_scale: float
    marker_scale: float
    corner: CornerNoise
    picture_px: float = 0.5

    def scaled(self, factors: dict[str, float]) -> "FlightNoise":
        """With standard deviations multiplied, by the names of `GROUPS`."""
        changed: dict[str, object] = {}
        for name, factor in factors.items():
            value = getattr(self, name)
            if isinstance(value, SlowError):
                changed[name] = replace(value, std=value.std * factor)
            elif isinstance(value, CornerNoise):
                changed[name] = value._replace(white_px=value.white_px * factor, slow_px=value.slow_px * factor)
            else:
                changed[name] = value * factor
        return replace(self, **changed)  # type: ignore[arg-type]


def rotation_factor(u: Unknowns, motion: Preintegrated, noise: FlightNoise) -> Factor:
    """Rotation by the gyro between consecutive images."""
    std = noise.gyro * np.sqrt(motion.dt_s)
    bias = np.einsum("kij,kj->ki", motion.R_by_gyro, u.gyro_bias[:-1] - motion.gyro_bias)
    between = turned(u.R_WB[:-1]) @ u.R_WB[1:]
    residual = log(turned(motion.R @ exp(bias)) @ between)
    inverse = right_jacobian_inverse(residual)
    jacobian = np.concatenate(
        [
            -inverse @ turned(between),
            -inverse @ turned(exp(residual)) @ right_jacobian(bias) @ motion.R_by_gyro,
            inverse,
        ],
        axis=2,
    )
    place = np.concatenate([_of(u, 0, ATTITUDE, GYRO_BIAS), _of(u, 1, ATTITUDE)], axis=1)
    return Factor(residual / std[:, None], jacobian / std[:, None, None], place)


def translation_factor(u: Unknowns, motion: Preintegrated, noise: FlightNoise) -> Factor:
    """Velocity and position by the accelerometer between consecutive images."""
    dt, R_BW = motion.dt_s[:, None], turned(u.R_WB[:-1])
    gyro, accel = u.gyro_bias[:-1] - motion.gyro_bias, u.accel_bias[:-1] - motion.accel_bias
    gained = _apply(R_BW, u.v_W[1:] - u.v_W[:-1] - GRAVITY_W * dt)
    travelled = _apply(R_BW, u.p_W[1:] - u.p_W[:-1] - u.v_W[:-1] * dt - GRAVITY_W * dt**2 / 2)
    v = gained - motion.v - _apply(motion.v_by_gyro, gyro) - _apply(motion.v_by_accel, accel)
    p = travelled - motion.p - _apply(motion.p_by_gyro, gyro) - _apply(motion.p_by_accel, accel)
    zero, dt2 = np.zeros_like(R_BW), dt[:, :, None]
    by_v = np.concatenate([cross(gained), zero, -R_BW, -motion.v_by_gyro, -motion.v_by_accel, zero, R_BW], axis=2)
    by_p = np.concatenate(
        [cross(travelled), -R_BW, -R_BW * dt2, -motion.p_by_gyro, -motion.p_by_accel, R_BW, zero], axis=2
    )
    # White acceleration of density q: variances q Δt of v, q Δt³/3 of p, covariance q Δt²/2. Given v, p has q Δt³/12.
    std_v, std_p = noise.accel * np.sqrt(dt), noise.accel * np.sqrt(dt**3 / 12)
    residual = np.concatenate([v / std_v, (p - v * dt / 2) / std_p], axis=1)
    jacobian = np.concatenate([by_v / std_v[:, :, None], (by_p - by_v * dt2 / 2) / std_p[:, :, None]], axis=1)
    first = _of(u, 0, ATTITUDE, POSITION, VELOCITY, GYRO_BIAS, ACCEL_BIAS)
    return Factor(residual, jacobian, np.concatenate([first, _of(u, 1, POSITION, VELOCITY)], axis=1))


def slow_factors(u: Unknowns, t_s: Array, value: Array, part: slice, slow: SlowError) -> list[Factor]:
    """A slow error (k, 3): its prior at the first image, its steps from image to image."""
    keep = np.exp(-np.diff(t_s) / slow.time_s)
    std = slow.std * np.sqrt(1 - keep**2)
    residual = (value[1:] - keep[:, None] * value[:-1]) / std[:, None]
    jacobian = np.concatenate([-(keep / std)[:, None, None] * np.eye(3), (1 / std)[:, None, None] * np.eye(3)], axis=2)
    place = np.concatenate([_of(u, 0, part), _of(u, 1, part)], axis=1)
    first = np.arange(part.start, part.stop)[None]
    return [
        Factor(residual, jacobian, place),
        Factor(value[:1] / slow.std, np.eye(3)[None] / slow.std, first),
    ]


def jitter_factor(u: Unknowns, noise: FlightNoise) -> Factor:
    """Times of the images."""
    first = PER_IMAGE * np.arange(u.images)
    return Factor(
        u.jitter_s[:, None] / noise.jitter_s, np.full((u.images, 1, 1), 1 / noise.jitter_s), columns(first, JITTER)
    )


def constant_factors(
    u: Unknowns, noise: FlightNoise, first_p_W: Array, first_R_WB: Array, shifted_s: float
) -> list[Factor]:
    """Priors of camera and prints, and the frame: the first image's position and attitude as the filter had them.

    shifted_s: the part of the delay by which the images' times were shifted already.
    """
    flight = np.array([u.first_of_flight])
    found = [
        _prior(u.mount, noise.mount_rad, columns(flight, MOUNT)),
        _prior(u.lever_m, noise.lever_m, columns(flight, LEVER)),
        _prior(np.array([u.delay_s + shifted_s]), noise.delay_s, columns(flight, DELAY)),
        _prior(u.lens, np.array(noise.lens), columns(flight, LENS)),
        _prior(u.p_W[0] - first_p_W, FIRST_POSITION_STD_M, columns(np.array([0]), POSITION)),
    ]
    turn = log(first_R_WB.T @ u.R_WB[0])
    jacobian = right_jacobian_inverse(turn)[None] / FIRST_ATTITUDE_STD_RAD
    found.append(Factor(turn[None] / FIRST_ATTITUDE_STD_RAD, jacobian, columns(np.array([0]), ATTITUDE)))
    for b in range(u.bundles):
        first = np.array([u.first_of_bundle(b)])
        found.append(_prior(u.print_scale[b : b + 1], noise.print_scale, columns(first, SCALE)))
        each = columns(first, slice(PER_BUNDLE, PER_BUNDLE + u.markers))
        found.append(_prior(u.marker_scale[b], noise.marker_scale, each))
    return found


def plumb_factors(u: Unknowns, plumb: Sequence[Plumb | None]) -> list[Factor]:
    """Axes of bundles that a spirit level has made vertical: both level components of each are zero."""
    found = []
    for b, stated in enumerate(plumb):
        if stated is not None:
            R, axis = u.R_WM[b], np.eye(3)["xyz".index(stated.axis)]
            turned_by = -(R @ cross(axis[None])[0])[:2]
            place = columns(np.array([u.first_of_bundle(b)]), TURN)
            found.append(Factor((R @ axis)[None, :2] / stated.std_rad, turned_by[None] / stated.std_rad, place))
    return found


def _prior(value: Array, std: float | Array, place: Index) -> Factor:
    inverse = np.broadcast_to(1 / np.asarray(std), value.shape)
    return Factor((value * inverse)[None], np.diag(inverse)[None], place)


def _of(u: Unknowns, after: int, *parts: slice) -> Index:
    """Columns (k - 1, c) of the parts of the first or (after = 1) second image of each interval."""
    return columns(PER_IMAGE * (np.arange(u.images - 1) + after), *parts)


def _apply(R: Array, vectors: Array) -> Array:
    found: Array = np.einsum("kij,kj->ki", R, vectors)
    return found

"""Rotations of many frames at once; perturbations are on the right, R exp(δ)."""

import numpy as np
from scipy.spatial.transform import Rotation

from companion.core.arrays import Array

SMALL_RAD = 1e-5  # below it the first term of the series


def exp(v: Array) -> Array:
    """Rotation matrices (…, 3, 3) of rotation vectors (…, 3)."""
    R: Array = Rotation.from_rotvec(v.reshape(-1, 3)).as_matrix().reshape(*v.shape, 3)
    return R


def log(R: Array) -> Array:
    """Rotation vectors (…, 3) of rotation matrices (…, 3, 3)."""
    v: Array = Rotation.from_matrix(R.reshape(-1, 3, 3)).as_rotvec().reshape(R.shape[:-1])
    return v


def matrices(q: Array) -> Array:
    """Rotation matrices (n, 3, 3) of quaternions (n, 4), w first."""
    R: Array = Rotation.from_quat(np.roll(q, -1, axis=-1)).as_matrix()
    return R


def cross(v: Array) -> Array:
    """[v]ₓ (…, 3, 3) of vectors (…, 3)."""
    S = np.zeros((*v.shape, 3))
    S[..., 0, 1], S[..., 0, 2], S[..., 1, 2] = -v[..., 2], v[..., 1], -v[..., 0]
    S[..., 1, 0], S[..., 2, 0], S[..., 2, 1] = v[..., 2], -v[..., 1], v[..., 0]
    return S


def right_jacobian(v: Array) -> Array:
    """J with exp(v + δ) = exp(v) exp(J δ), (…, 3, 3)."""
    angle = np.maximum(np.linalg.norm(v, axis=-1), SMALL_RAD)[..., None, None]
    S = cross(v)
    J: Array = np.eye(3) - (1 - np.cos(angle)) / angle**2 * S + (angle - np.sin(angle)) / angle**3 * S @ S
    return J


def right_jacobian_inverse(v: Array) -> Array:
    """J with log(exp(v) exp(δ)) = v + J δ, (…, 3, 3)."""
    angle = np.maximum(np.linalg.norm(v, axis=-1), SMALL_RAD)[..., None, None]
    S = cross(v)
    J: Array = np.eye(3) + S / 2 + (1 / angle**2 - (1 + np.cos(angle)) / (2 * angle * np.sin(angle))) * S @ S
    return J


def turned(R: Array) -> Array:
    """Transposed matrices."""
    return np.swapaxes(R, -1, -2)

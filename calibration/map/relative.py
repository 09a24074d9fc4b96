"""Poses of bundles relative to each other, with covariance."""

from typing import NamedTuple

import numpy as np

from calibration.map.rotations import cross, log
from companion.core.arrays import Array


class Relative(NamedTuple):
    """Pose of a bundle B in the frame of a bundle A: R_AB, p_AB [m]; covariance (6, 6): rotation (right) [rad²], place [m²]."""

    R_AB: Array
    p_AB: Array
    covariance: Array

    @property
    def std_rad(self) -> float:
        """The largest over all axes."""
        return float(np.sqrt(np.linalg.eigvalsh(self.covariance[:3, :3])[-1]))

    @property
    def std_m(self) -> float:
        """The largest over all directions."""
        return float(np.sqrt(np.linalg.eigvalsh(self.covariance[3:, 3:])[-1]))


def relative_jacobian(R: Array, p: Array, a: int, b: int) -> Array:
    """Derivative (6, 6 n) of the pose of b in the frame of a by the poses of all n bundles."""
    R_AB, p_AB = R[a].T @ R[b], R[a].T @ (p[b] - p[a])
    J = np.zeros((6, 6 * len(p)))
    J[:3, 6 * a : 6 * a + 3], J[:3, 6 * b : 6 * b + 3] = -R_AB.T, np.eye(3)
    J[3:, 6 * a : 6 * a + 3] = cross(p_AB)
    J[3:, 6 * a + 3 : 6 * a + 6], J[3:, 6 * b + 3 : 6 * b + 6] = -R[a].T, R[a].T
    return J


def relative(R: Array, p: Array, covariance: Array, a: int, b: int) -> Relative:
    """Of the bundles a and b of (n, 3, 3), (n, 3) and their covariance (6 n, 6 n)."""
    J = relative_jacobian(R, p, a, b)
    return Relative(R[a].T @ R[b], R[a].T @ (p[b] - p[a]), J @ covariance @ J.T)


def difference(found: Relative, other: Relative) -> Array:
    """Error (6,) of one relative pose against another, as the covariance counts it."""
    return np.concatenate([log(other.R_AB.T @ found.R_AB), found.p_AB - other.p_AB])

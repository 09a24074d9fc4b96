"""Normal equations of factors: a band for the unknowns of images, dense borders for those of the flight and its bundles."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, cho_solve_banded, cholesky_banded

from companion.core.arrays import Array

Index = NDArray[np.int64]
Mask = NDArray[np.bool_]

CHUNK = 200  # factors at once: memory


class Factor(NamedTuple):
    """n residuals of m numbers that depend on c unknowns each, all divided by their standard deviations.

    residual (n, m), jacobian (n, m, c), columns (n, c): places in the error vector. eliminated: degrees of freedom of the residuals that
    unknowns take which were eliminated before.
    """

    residual: Array
    jacobian: Array
    columns: Index
    eliminated: float = 0.0

    @property
    def cost(self) -> float:
        """Half the sum of the squares."""
        return float(np.sum(self.residual**2)) / 2


class NormalEquations:
    """N x = -g, N = Σ JᵀJ, g = Σ Jᵀr, over the factors; unknowns at `local` and above are the dense ones."""

    def __init__(self, size: int, local: int, bandwidth: int) -> None:
        """local: number of unknowns in the band; bandwidth: how far apart two of one factor are, at most."""
        self._local, self._size = local, size
        self._band = np.zeros((bandwidth + 1, local))
        self._border = np.zeros((local, size - local))
        self._dense = np.zeros((size - local, size - local))
        self.g = np.zeros(size)

    def add(self, factor: Factor) -> None:
        """Add a factor's part."""
        self.g += gradient(factor, self._size)
        for start in range(0, len(factor.residual), CHUNK):
            J, columns = factor.jacobian[start : start + CHUNK], factor.columns[start : start + CHUNK]
            products = np.swapaxes(J, 1, 2) @ J
            rows = np.broadcast_to(columns[:, :, None], products.shape)
            others = np.broadcast_to(columns[:, None, :], products.shape)
            is_row, is_other = rows < self._local, others < self._local
            self._sum(self._band, is_row & is_other & (rows >= others), rows - others, others, products)
            self._sum(self._border, is_row & ~is_other, rows, others - self._local, products)
            self._sum(self._dense, ~is_row & ~is_other, rows - self._local, others - self._local, products)

    @staticmethod
    def _sum(into: Array, mask: Mask, rows: Index, others: Index, products: Array) -> None:
        place = rows[mask] * into.shape[1] + others[mask]
        into += np.bincount(place, products[mask], into.size).reshape(into.shape)

    def factorised(self, damping: float = 0.0) -> "Solver":
        """N + damping diag(N), factorised; raises `numpy.linalg.LinAlgError` where it is singular."""
        band, dense = self._band.copy(), self._dense.copy()
        band[0] *= 1 + damping
        dense[np.diag_indices_from(dense)] *= 1 + damping
        return Solver(band, self._border, dense)


class Solver:
    """Solutions of the normal equations; covariance: of the dense unknowns, the others eliminated."""

    def __init__(self, band: Array, border: Array, dense: Array) -> None:
        self._factor = cholesky_banded(band, lower=True, overwrite_ab=True, check_finite=False)
        self._border = border
        self._eliminated = cho_solve_banded((self._factor, True), border, check_finite=False)
        self._schur = cho_factor(dense - border.T @ self._eliminated, lower=True)

    @property
    def covariance(self) -> Array:
        found: Array = cho_solve(self._schur, np.eye(self._border.shape[1]))
        return found

    def solve(self, right: Array) -> Array:
        """x of N x = right, (n,) or (n, k)."""
        local = len(self._border)
        own = cho_solve_banded((self._factor, True), right[:local], check_finite=False)
        dense = cho_solve(self._schur, right[local:] - self._border.T @ own)
        return np.concatenate([own - self._eliminated @ dense, dense])


def gradient(factor: Factor, size: int, weights: Array | None = None) -> Array:
    """Jᵀ r as an error vector, or Jᵀ w for other weights w (n, m)."""
    by_column = np.einsum("nmc,nm->nc", factor.jacobian, factor.residual if weights is None else weights)
    found: Array = np.bincount(factor.columns.ravel(), weights=by_column.ravel(), minlength=size).astype(float)
    return found

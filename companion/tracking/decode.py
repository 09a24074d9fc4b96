"""A second decoding of squares that OpenCV's decoding rejected.

OpenCV reads the cells of a square by nearest neighbours. This fails where a cell is less than about two pixels wide, at
the far end of a marker's range. Here each cell is read by interpolation at its centre and compared with the black of
the border and the white around it; both levels may change linearly over the marker (light and shade).
It follows the decoding of AprilTag (Wang & Olson, "AprilTag 2", IROS 2016, section III-D).
"""

from collections.abc import Set as AbstractSet

import numpy as np
from numpy.typing import NDArray

from companion.core.arrays import Array, Image8, Mask
from companion.tracking.families import SquareFamily
from companion.tracking.sampling import interpolate

SHARPEN = 0.25  # of the Laplacian over the cells, against the camera's blur
MIN_WHITE_BLACK = 20.0  # grey levels between the white around and the black border
MAX_BORDER_ERRORS = 0.10  # of the border's cells
# Share of the correctable bits that may be wrong. OpenCV's default is 0.6. The rate is lower here, because the second
# decoding tries more squares.
CORRECT_RATE = 0.45


class SecondDecoder:
    """Decodes squares as markers of one family; ids: those to look for, None: all."""

    def __init__(self, family: SquareFamily, ids: AbstractSet[int] | None) -> None:
        bits = family.all_bits()
        self.family = family
        self._ids = np.arange(len(bits)) if ids is None else np.array(sorted(i for i in ids if i < len(bits)), int)
        n = family.cells
        turned = np.stack([np.rot90(bits[self._ids], k, axes=(1, 2)) for k in range(4)], axis=1)
        self._codes = turned.reshape(len(self._ids) * 4, n * n).astype(np.float32) * 2 - 1
        self._max_errors = int(family.dictionary.maxCorrectionBits * CORRECT_RATE)
        # centres of all cells and of the white ring around them, on a square from 0 to 1
        axis = (np.arange(-1, n + 3) + 0.5) / (n + 2)
        self._u, self._v = (a.ravel() for a in np.meshgrid(axis, axis))
        ring = np.zeros((n + 4, n + 4), int)
        ring[1:-1, 1:-1] = 1
        ring[2:-2, 2:-2] = 2
        self._ring = ring.ravel()
        plane = np.stack([np.ones_like(self._u), self._u, self._v], axis=1)
        # least squares fit of a plane through the ring's levels, evaluated at the inner cells
        inner = plane[self._ring == 2]
        self._white_at = inner @ np.linalg.pinv(plane[self._ring == 0])
        self._black_at = inner @ np.linalg.pinv(plane[self._ring == 1])

    def read(self, gray: Image8, squares_px: Array) -> list[tuple[int, Array]]:
        """Markers among the squares: (id, corners (4, 2) as printed from the top left corner).

        gray: (h, w) uint8; squares_px: (n, 4, 2), clockwise in the image.
        """
        squares = np.asarray(squares_px, dtype=np.float64).reshape(-1, 4, 2)
        if len(squares) == 0 or len(self._ids) == 0:
            return []
        signs, good = self._signs(gray, squares)
        distance = (signs.shape[1] - signs @ self._codes.T) / 2
        best = distance.argmin(1)
        hit = good & (distance[np.arange(len(best)), best] <= self._max_errors + 0.5)
        # bits turned by k quarter turns counter-clockwise: the printed top left corner is corner -k
        return [
            (int(self._ids[best[i] // 4]), np.roll(squares[i], int(best[i] % 4), axis=0)) for i in np.flatnonzero(hit)
        ]

    def confirm(self, gray: Image8, squares_px: Array, ids: NDArray[np.int64]) -> Mask:
        """Whether each square (n, 4, 2), from the printed top left corner on, shows the marker of its id; (n,) bool."""
        signs, good = self._signs(gray, squares_px)
        codes = self._codes[4 * np.searchsorted(self._ids, ids)]
        confirmed: Mask = good & ((signs.shape[1] - (signs * codes).sum(1)) / 2 <= self._max_errors + 0.5)
        return confirmed

    def _signs(self, gray: Image8, squares: Array) -> tuple[NDArray[np.float32], Mask]:
        """Signs of the cells (n, cells²), 1 white, -1 black; mask (n,): border and white ring fit a marker."""
        levels = self._sample(gray, squares)
        n = self.family.cells
        outside, border, inner = (levels[:, self._ring == k] for k in range(3))
        white, black = outside @ self._white_at.T, border @ self._black_at.T
        outside_level, border_level = outside.mean(1), border.mean(1)
        errors = (border > 0.5 * (outside_level + border_level)[:, None]).mean(1)
        value = (inner - 0.5 * (white + black)).reshape(-1, n, n)
        padded = np.pad(value, ((0, 0), (1, 1), (1, 1)), mode="edge")
        around = padded[:, :-2, 1:-1] + padded[:, 2:, 1:-1] + padded[:, 1:-1, :-2] + padded[:, 1:-1, 2:]
        value = value + SHARPEN * (4 * value - around)
        signs = np.where(value > 0, 1.0, -1.0).reshape(len(value), n * n).astype(np.float32)
        return signs, (outside_level - border_level > MIN_WHITE_BLACK) & (errors <= MAX_BORDER_ERRORS)

    def _sample(self, gray: Image8, squares: Array) -> Array:
        """Brightness at the cell centres of each square, shape (squares, cells)."""
        H = _homographies(squares)
        u, v = self._u, self._v
        w = H[:, 2, 0, None] * u + H[:, 2, 1, None] * v + 1.0
        w = np.where(np.abs(w) < 1e-6, 1e-6, w)
        x = (H[:, 0, 0, None] * u + H[:, 0, 1, None] * v + H[:, 0, 2, None]) / w
        y = (H[:, 1, 0, None] * u + H[:, 1, 1, None] * v + H[:, 1, 2, None]) / w
        maps = np.clip(np.stack([x, y], axis=-1), -1e4, 3e4).astype(np.float32)
        return interpolate(gray, maps).astype(np.float64)


def _homographies(squares: Array) -> Array:
    """Maps of the unit square (0,0) (1,0) (1,1) (0,1) to each quadrilateral, shape (n, 3, 3).

    Closed form of P. Heckbert, "Fundamentals of texture mapping and image warping", 1989, section 2.2.3.
    """
    p0, p1, p2, p3 = np.moveaxis(squares, 1, 0)
    s, d1, d2 = p0 - p1 + p2 - p3, p1 - p2, p3 - p2
    det = d1[:, 0] * d2[:, 1] - d1[:, 1] * d2[:, 0]
    det = np.where(np.abs(det) < 1e-9, 1e-9, det)
    g = (s[:, 0] * d2[:, 1] - s[:, 1] * d2[:, 0]) / det
    h = (d1[:, 0] * s[:, 1] - d1[:, 1] * s[:, 0]) / det
    first, second = p1 - p0 + g[:, None] * p1, p3 - p0 + h[:, None] * p3
    top = np.stack([first, second, p0], axis=2)
    bottom = np.stack([g, h, np.ones_like(g)], axis=1)[:, None]
    return np.concatenate([top, bottom], axis=1)

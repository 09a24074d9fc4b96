"""Corners of a printed marker from all its pixels: a reference method that is independent of the tracker's edges.

A homography maps the picture of the marker onto the photograph. The result is blurred and compared with the pixels;
black and white may each change linearly over the marker. The four corners and the blur with the smallest difference
(robust least squares) are the result. All edges of all cells contribute, so the result does not depend on the search
for an outer edge, and pixels outside the marker's margin have no influence.
"""

import cv2
import numpy as np
from scipy.optimize import least_squares

CELL_PX, OVERSAMPLE, MARGIN_CELLS = 8, 3, 2
AROUND_PX = 1.2  # of the white around the square that is used: margins of small markers are not much wider
OUTLIER_LEVELS = 15.0  # grey levels: JPEG's ringing and dirt beyond this count less
STEP_PX = 0.05  # for the Jacobian


def fit_corners(gray: np.ndarray, picture: np.ndarray, start_px: np.ndarray) -> np.ndarray:
    """Corners (4, 2) of a marker whose picture (cells of CELL_PX, no margin) lies near start_px (4, 2)."""
    side, margin = picture.shape[0], MARGIN_CELLS * CELL_PX
    printed = cv2.copyMakeBorder(picture, *(4 * [margin]), cv2.BORDER_CONSTANT, value=255).astype(np.float32) / 255
    low = np.maximum(np.floor(start_px.min(0)).astype(int) - 5, 0)
    high = np.minimum(np.ceil(start_px.max(0)).astype(int) + 6, gray.shape[::-1])
    w, h = high - low
    pixels = gray[low[1] : high[1], low[0] : high[0]].astype(float)
    s = OVERSAMPLE
    fine = np.meshgrid(low[0] + (np.arange(w * s) + 0.5) / s - 0.5, low[1] + (np.arange(h * s) + 0.5) / s - 0.5)
    x, y = np.meshgrid(np.arange(low[0], high[0]), np.arange(low[1], high[1]))
    near = _distance_inside(start_px, x, y) > -AROUND_PX
    plane = np.stack([np.ones(near.sum()), x[near] - start_px[:, 0].mean(), y[near] - start_px[:, 1].mean()])

    def residual(v):
        H = _to_unit_square(start_px + v[:8].reshape(4, 2) - 1.0)
        u = [row[0] * fine[0] + row[1] * fine[1] + row[2] for row in H]
        maps = [(c / u[2] * side + margin - 0.5).astype(np.float32) for c in u[:2]]
        model = cv2.remap(printed, *maps, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        model = cv2.GaussianBlur(model, (0, 0), max(abs(v[8]), 0.05) * s)
        white = cv2.resize(model, (int(w), int(h)), interpolation=cv2.INTER_AREA)[near]
        levels = np.concatenate([white * plane, (1 - white) * plane]).T
        return levels @ np.linalg.lstsq(levels, pixels[near], rcond=None)[0] - pixels[near]

    # The offsets start at 1, because the steps of the Jacobian are relative.
    start = np.append(np.ones(8), 0.5)
    result = least_squares(
        residual, start, diff_step=STEP_PX, loss="soft_l1", f_scale=OUTLIER_LEVELS, xtol=1e-4, max_nfev=30
    )
    return start_px + result.x[:8].reshape(4, 2) - 1.0


def _to_unit_square(corners: np.ndarray) -> np.ndarray:
    rows, right = [], []
    for (x, y), (u, v) in zip(corners, [(0, 0), (1, 0), (1, 1), (0, 1)], strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        right += [u, v]
    return np.append(np.linalg.solve(np.array(rows, float), np.array(right, float)), 1.0).reshape(3, 3)


def _distance_inside(corners: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Distance of points from the nearest side of a clockwise (y down) square; negative outside."""
    distances = []
    for a, b in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        d = (b - a) / np.linalg.norm(b - a)
        distances.append(d[0] * (y - a[1]) - d[1] * (x - a[0]))
    return np.min(distances, axis=0)

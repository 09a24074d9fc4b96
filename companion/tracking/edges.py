"""Sub-pixel corners: intersections of the fitted edges of a black square on white.

For both ends of every edge the brightness is sampled along normals of the edge. The place of the steepest rise from
black to white is found on each normal, a line is fitted through these places, and neighbouring lines are intersected.
The corner itself is not used, because blur rounds it. All corners of all markers are processed together as arrays.

The idea is that of AprilTag's edge refinement (Wang & Olson, "AprilTag 2", IROS 2016, section III-C), done per
corner so that lens distortion, which bends long edges, does not pull the corners.

Pixel convention: the centre of the top left pixel of the image is (0, 0).
"""

import numpy as np
from numpy.typing import NDArray

from companion.core.arrays import Array, Image8, Mask, Points2D
from companion.tracking.sampling import interpolate

REACH_PX = 40.0  # longest part of an edge used for one corner: distortion bends it by a few hundredths of a pixel
NORMALS = 12  # per half edge
END_GAP, END_GAP_MAX_PX = 0.08, 3.0  # part of the edge left out at each end, where blur rounds the corner
SEARCH_MIN_PX, SEARCH_MAX_PX = 1.0, 4.0  # search to both sides of the edge
SEARCH_OF_SIDE = 0.09  # of the square across the edge: less than the black border of every family (0.1 to 0.17)
STEPS = 8  # to each side within the search
SLOPE_STEPS = 2  # to each side for the slope of the brightness
PASSES = 3  # later ones are centred on the edge found before; this removes the bias of a window that is cut off
MIN_CONTRAST = 6.0  # grey levels over 4 steps; less is noise, not an edge
MAX_SHIFT_OF_SIDE, MAX_SHIFT_PX = (
    0.15,
    6.0,
)  # a corner that moves farther has found another edge: the given corner is kept
MIN_CROSSING = 0.1  # sine of the angle between the edges of a corner; flatter ones cross anywhere

_NEXT, _PREVIOUS = [1, 2, 3, 0], [3, 0, 1, 2]
_TO_THE_LEFT = np.array([-1j, 1j])  # quarter turns of the way to the next corner, and of that to the previous one
_PARTS = np.linspace(0.0, 1.0, NORMALS)
_COUNT = np.arange(-STEPS - SLOPE_STEPS, STEPS + SLOPE_STEPS + 1)
_PLACES = np.arange(-STEPS, STEPS + 1, dtype=np.float32)
_ONES = np.ones_like(_PLACES)


def refine_corners(
    gray: Image8, corners_px: NDArray[np.floating], uncertainty_px: float | Array = 0.0
) -> tuple[Array, Mask]:
    """Refined corners of black squares on white.

    gray: (h, w) uint8. corners_px: (n, 4, 2), in order around each square. uncertainty_px: error of the given corners
    beyond the usual error of a contour, one number or one per square. Returns (n, 4, 2) float64 and (n, 4) bool: True
    where the corner's edges were seen; any other corner is returned unchanged.
    """
    original = np.ascontiguousarray(corners_px, dtype=np.float64).reshape(-1, 4, 2).view(np.complex128)[..., 0]
    if len(original) == 0:
        return np.zeros((0, 4, 2)), np.zeros((0, 4), bool)
    extra_px = np.reshape(np.asarray(uncertainty_px, dtype=float), (-1, 1, 1))
    corners, ever = original, np.zeros(original.shape, bool)
    for i in range(PASSES):
        last = i == PASSES - 1
        refined, seen = _once(gray, corners, extra_px if i == 0 else 0.0, prefer_black=not last)
        corners, ever = np.where(seen, refined, corners), ever | seen
    side = np.abs(original[:, _NEXT] - original)
    longest = np.maximum(side, side[:, _PREVIOUS])
    limit = np.clip(MAX_SHIFT_OF_SIDE * longest, 2.0, MAX_SHIFT_PX) + extra_px[:, 0]
    near = np.abs(corners - original) < limit
    return np.where(near, corners, original).view(np.float64).reshape(-1, 4, 2), near & ever


def _once(gray: Image8, corners: Points2D, extra_px: float | Array, prefer_black: bool) -> tuple[Points2D, Mask]:
    """One pass: (n, 4) intersections and (n, 4) whether both lines of the corner were seen.

    Points and directions of the plane are complex numbers x + iy, which halves the number of array operations.
    """
    n = len(corners)
    sides = corners[:, _NEXT] - corners
    # half edges (n, 4, 2): from corner k towards the next corner, and towards the previous one
    along = np.stack([sides, -sides[:, _PREVIOUS]], axis=2)
    length = np.maximum(np.abs(along), 1e-6)
    along = along / length
    # outward normal: for the clockwise order in the image (y down), the left hand of the way to the next corner
    orientation = np.sign((sides.conj() * sides[:, _NEXT]).imag.sum(1))[:, None, None]
    normal = along * (orientation * _TO_THE_LEFT)

    start = np.clip(END_GAP * length, np.minimum(1.0, 0.25 * length), END_GAP_MAX_PX)
    stop = np.minimum(length - start, start + REACH_PX)
    t = start[..., None] + (stop - start)[..., None] * _PARTS
    base = corners[:, :, None, None] + t * along[..., None]  # (n, 4, 2, NORMALS)

    # The size of the square across each half edge is the length of the other edge at the same corner.
    step = (np.clip(SEARCH_OF_SIDE * length[:, :, ::-1], SEARCH_MIN_PX, SEARCH_MAX_PX) + extra_px) / STEPS
    stride = (step * normal)[..., None]
    points = base[..., None] + stride[..., None] * _COUNT  # (n, 4, 2, NORMALS, offsets)
    maps = points.astype(np.complex64).view(np.float32).reshape(n * 8 * NORMALS, len(_COUNT), 2)
    profile = interpolate(gray, maps).reshape(n, 4, 2, NORMALS, len(_COUNT)).astype(np.float32)
    inner = profile[..., : -2 * SLOPE_STEPS]
    rise = np.maximum(profile[..., 2 * SLOPE_STEPS :] - inner, 0.0)
    weight = rise * rise
    if prefer_black:
        # A rise from black is the marker's edge; a rise from a brighter level belongs to the background.
        # The last pass does without this weight, because it moves a blurred edge inwards.
        white, black = profile.max(4, keepdims=True), profile.min(4, keepdims=True)
        darkness = (white - inner) / np.maximum(white - black, 1.0)
        weight *= darkness * darkness
    total = weight @ _ONES
    edge = base + stride * ((weight @ _PLACES) / np.maximum(total, 1e-9))
    point, direction, seen = _fit_lines(edge, np.where(rise.max(4) > MIN_CONTRAST, np.sqrt(total), 0.0))

    p0, d0, d1 = point[..., 0], direction[..., 0], direction[..., 1]
    cross = (d0.conj() * d1).imag
    crossing = np.abs(cross) > MIN_CROSSING
    s = ((point[..., 1] - p0).conj() * d1).imag / np.where(crossing, cross, 1.0)
    return p0 + s * d0, seen.all(2) & crossing


def _fit_lines(edge: Points2D, strength: Array) -> tuple[Points2D, Points2D, Mask]:
    """Weighted orthogonal line fits, the second one without outliers.

    edge (…, m) complex, strength (…, m). Returns a point (…), a direction (…), both complex, and whether enough
    places were found (…). The direction's angle is half that of Σ w (z - z̄)², the principal axis of the scatter.
    """
    weight = strength
    for _ in range(2):
        mean = (weight * edge).sum(-1) / np.maximum(weight.sum(-1), 1e-9)
        d = edge - mean[..., None]
        direction = np.exp(0.5j * np.angle((weight * d * d).sum(-1)))
        residual = np.abs((d * direction.conj()[..., None]).imag)
        ordered = np.sort(residual, axis=-1)
        median = 0.5 * (ordered[..., (NORMALS - 1) // 2] + ordered[..., NORMALS // 2])
        weight = strength * (residual < 3.0 * np.maximum(median, 0.05)[..., None])
    return mean, direction, (weight > 0).sum(-1) >= NORMALS // 2

"""Sub-pixel corners: where the fitted edges of a black square on white meet.

For every end of every edge the brightness is sampled along normals of the edge; the place of the steepest rise
from black to white is found on each normal, a line is fitted through these places, and neighbouring lines are
intersected. The corner itself, which blur rounds off, is never looked at. All corners of all markers go through
together as arrays.

The idea is that of AprilTag's edge refinement (Wang & Olson, "AprilTag 2", IROS 2016, section III-C), done per
corner so that lens distortion, which bends long edges, does not pull the corners.

Pixel convention: the centre of the top left pixel of the image is (0, 0).
"""

import cv2
import numpy as np

REACH_PX = 40.0  # longest part of an edge used for one corner: distortion bends it by a few hundredths of a pixel
NORMALS = 12  # per half edge
END_GAP, END_GAP_MAX_PX = 0.08, 3.0  # part of the edge left out at each end, where blur rounds the corner
SEARCH_MIN_PX, SEARCH_MAX_PX = 1.0, 4.0  # search to both sides of the edge
SEARCH_OF_SIDE = 0.09  # of the square across the edge: less than the black border of every family (0.1 to 0.17)
STEPS = 8  # to each side within the search
SLOPE_STEPS = 2  # to each side for the slope of the brightness
PASSES = 3  # later ones are centred on the edge found before, which removes the bias of a cut-off window
MIN_CONTRAST = 6.0  # grey levels over 4 steps; less is noise, not an edge
MAX_SHIFT_OF_SIDE, MAX_SHIFT_PX = 0.15, 6.0  # a corner that moves farther has met something else: it is kept


def refine_corners(
    gray: np.ndarray, corners_px: np.ndarray, uncertainty_px: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Refined corners of black squares on white.

    gray: (h, w) uint8. corners_px: (n, 4, 2), in order around each square. uncertainty_px: how much farther than
    a contour's usual error the given corners may be off. Returns (n, 4, 2) float64 and (n, 4) bool: whether the
    corner's edges were seen; a corner whose edges were not is returned as it was.
    """
    original = np.asarray(corners_px, dtype=np.float64).reshape(-1, 4, 2)
    if len(original) == 0:
        return original.copy(), np.zeros((0, 4), bool)
    corners, ever = original, np.zeros(original.shape[:2], bool)
    for i in range(PASSES):
        last = i == PASSES - 1
        refined, seen = _once(gray, corners, uncertainty_px if i == 0 else 0.0, prefer_black=not last)
        corners, ever = np.where(seen[..., None], refined, corners), ever | seen
    side = np.linalg.norm(np.roll(original, -1, 1) - original, axis=2)
    longest = np.maximum(side, np.roll(side, 1, 1))
    limit = np.clip(MAX_SHIFT_OF_SIDE * longest, 2.0, MAX_SHIFT_PX) + uncertainty_px
    near = np.linalg.norm(corners - original, axis=2) < limit
    return np.where(near[..., None], corners, original), near & ever


def _once(gray: np.ndarray, corners: np.ndarray, extra_px: float, prefer_black: bool) -> tuple[np.ndarray, np.ndarray]:
    """One pass: (n, 4, 2) intersections and (n, 4) whether both lines of the corner were seen."""
    n = len(corners)
    nxt, prv = np.roll(corners, -1, 1), np.roll(corners, 1, 1)
    # half edges (n, 4, 2, ...): from corner k towards the next corner, and towards the previous one
    along = np.stack([nxt - corners, prv - corners], axis=2)
    length = np.maximum(np.linalg.norm(along, axis=3), 1e-6)
    along = along / length[..., None]
    # outward normal: for the clockwise order in the image (y down), the left hand of the way to the next corner
    (ax, ay), (bx, by) = np.moveaxis(nxt - corners, 2, 0), np.moveaxis(np.roll(nxt, -1, 1) - nxt, 2, 0)
    orientation = np.sign((ax * by - ay * bx).sum(1))[:, None, None]
    normal = np.stack([along[..., 1], -along[..., 0]], axis=3)
    normal = normal * (orientation * np.array([1.0, -1.0]))[..., None]

    start = np.clip(END_GAP * length, np.minimum(1.0, 0.25 * length), END_GAP_MAX_PX)
    stop = np.minimum(length - start, start + REACH_PX)
    t = start[..., None] + (stop - start)[..., None] * np.linspace(0.0, 1.0, NORMALS)
    base = corners[:, :, None, None, :] + t[..., None] * along[..., None, :]  # (n, 4, 2, NORMALS, 2)

    # how deep the square is across each half edge: the other edge of the same corner
    depth = length[:, :, ::-1]
    step = (np.clip(SEARCH_OF_SIDE * depth, SEARCH_MIN_PX, SEARCH_MAX_PX) + extra_px) / STEPS
    count = np.arange(-STEPS - SLOPE_STEPS, STEPS + SLOPE_STEPS + 1)
    offsets = (step[..., None] * count)[:, :, :, None, :, None]  # (n, 4, 2, 1, offsets, 1)
    points = base[..., None, :] + offsets * normal[:, :, :, None, None, :]
    maps = points.reshape(n * 8 * NORMALS, len(count), 2).astype(np.float32)
    profile = cv2.remap(gray, maps, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    profile = profile.reshape(n, 4, 2, NORMALS, len(count)).astype(np.float32)
    rise = np.maximum(profile[..., 2 * SLOPE_STEPS :] - profile[..., : -2 * SLOPE_STEPS], 0.0)
    weight = rise * rise
    if prefer_black:
        # a rise that starts at black is the marker's edge, one that starts brighter belongs to something behind it
        # (not in the last pass: it pulls a blurred edge inwards)
        white, black = profile.max(4, keepdims=True), profile.min(4, keepdims=True)
        darkness = (white - profile[..., : -2 * SLOPE_STEPS]) / np.maximum(white - black, 1.0)
        weight *= darkness * darkness
    total = weight.sum(4)
    offset = step[..., None] * (weight @ count[SLOPE_STEPS:-SLOPE_STEPS].astype(np.float32)) / np.maximum(total, 1e-9)
    strength = np.where(rise.max(4) > MIN_CONTRAST, np.sqrt(total), 0.0)
    edge = base + offset[..., None] * normal[:, :, :, None, :]
    point, direction, seen = _fit_lines(edge, strength)

    p0, p1 = point[:, :, 0], point[:, :, 1]
    d0, d1 = direction[:, :, 0], direction[:, :, 1]
    cross = d0[..., 0] * d1[..., 1] - d0[..., 1] * d1[..., 0]
    between = p1 - p0
    safe = np.where(np.abs(cross) > 0.1, cross, 1.0)
    s = (between[..., 0] * d1[..., 1] - between[..., 1] * d1[..., 0]) / safe
    return p0 + s[..., None] * d0, seen.all(2) & (np.abs(cross) > 0.1)


def _fit_lines(edge: np.ndarray, strength: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weighted orthogonal line fits, the second one without outliers.

    edge (…, m, 2), strength (…, m). Returns a point (…, 2), a direction (…, 2) and whether enough was seen (…).
    """
    weight = strength
    for _ in range(2):
        total = np.maximum(weight.sum(-1), 1e-9)
        mean = (weight[..., None] * edge).sum(-2) / total[..., None]
        d = edge - mean[..., None, :]
        xx = (weight * d[..., 0] ** 2).sum(-1)
        yy = (weight * d[..., 1] ** 2).sum(-1)
        xy = (weight * d[..., 0] * d[..., 1]).sum(-1)
        angle = 0.5 * np.arctan2(2 * xy, xx - yy)
        direction = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
        residual = np.abs(d[..., 0] * direction[..., 1, None] - d[..., 1] * direction[..., 0, None])
        scale = np.maximum(np.median(residual, axis=-1), 0.05)
        weight = strength * (residual < 3.0 * scale[..., None])
    return mean, direction, (weight > 0).sum(-1) >= NORMALS // 2

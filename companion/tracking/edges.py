"""Sub-pixel corners: intersections of the fitted edges of a black square on white.

For both ends of every edge the brightness is sampled along normals of the edge. The place of the steepest rise from
black to white is found on each normal, a line is fitted through these places, and neighbouring lines are intersected.
The corner itself is not used, because blur rounds it. The numbers and the loops are C (acados_gen/edges.c).

The idea is that of AprilTag's edge refinement (Wang & Olson, "AprilTag 2", IROS 2016, section III-C), done per
corner so that lens distortion, which bends long edges, does not pull the corners.

Pixel convention: the centre of the top left pixel of the image is (0, 0).
"""

import ctypes
import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from companion.core.arrays import Array, Image8, Mask
from companion.core.kernel import short_calls
from companion.core.pose_artifact import require_pose


@functools.cache
def _refine() -> Callable[..., None]:
    function = short_calls(require_pose()).edges_refine
    address, count = ctypes.c_void_p, ctypes.c_int64
    function.argtypes = [address, count, count, count, count, address, address, address]
    function.restype = None
    return function


def refine_corners(
    gray: Image8, corners_px: NDArray[np.floating], uncertainty_px: float | Array = 0.0
) -> tuple[Array, Mask]:
    """Refined corners of black squares on white.

    gray: (h, w) uint8. corners_px: (n, 4, 2), in order around each square. uncertainty_px: error of the given corners
    beyond the usual error of a contour, one number or one per square. Returns (n, 4, 2) float64 and (n, 4) bool: True
    where the corner's edges were seen; any other corner is returned unchanged. Raises
    `companion.core.kernel.ArtifactMissing` when the library is not built.
    """
    corners = np.array(corners_px, dtype=np.float64, order="C").reshape(-1, 4, 2)
    n = len(corners)
    seen = np.zeros((n, 4), bool)
    if n == 0:
        return corners, seen
    if gray.strides[1] != 1:
        gray = np.ascontiguousarray(gray)
    extra_px = np.array(np.broadcast_to(np.ravel(uncertainty_px), n), dtype=np.float64)
    rows, columns = gray.shape
    arrays = (corners.ctypes.data, extra_px.ctypes.data, seen.ctypes.data)
    _refine()(gray.ctypes.data, rows, columns, gray.strides[0], n, *arrays)
    return corners, seen

"""Binds queries.c: rays, distances and contact planes of solids."""

import ctypes
import functools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from acados_gen.compile import CFLAGS, compile_library
from companion.core.arrays import Array
from companion.core.kernel import fingerprint
from sitl.solids.triangles import Surface, pose
from sitl.solids.world_file import Box, Cylinder, Mesh, Plate

SOURCE = Path(__file__).with_name("queries.c")

_D, _I = ctypes.c_double, ctypes.c_int64
_KIND = {Box: 0, Plate: 0, Cylinder: 1, Mesh: 2}


class CSolid(ctypes.Structure):
    """Mirror of solid_t."""

    _fields_ = (
        ("kind", _I),
        ("p_W", _D * 3),
        ("R_WS", _D * 3 * 3),
        ("half", _D * 3),
        ("bounds_W", _D * 3 * 2),
        ("bounds", ctypes.c_void_p),
        ("corners", ctypes.c_void_p),
        ("leaves", _I),
    )


SHAPE = np.dtype(
    [("centre_W", float, 3), ("velocity_W", float, 3), ("axis_W", float, 3), ("radius_m", float), ("ball_m", float)]
)
MEMORY = np.dtype([("plane_W", float, 4), ("known", np.int64)])


@functools.cache
def library() -> ctypes.CDLL:
    """queries.c, compiled when it or the flags have changed; raises `CompileError`."""
    print_ = fingerprint([SOURCE], {"flags": CFLAGS})
    found = ctypes.CDLL(str(compile_library("solids", print_, [SOURCE])))
    for name, size in (("solid", ctypes.sizeof(CSolid)), ("shape", SHAPE.itemsize), ("memory", MEMORY.itemsize)):
        function = getattr(found, f"{name}_size")
        function.restype = _I
        if function() != size:
            raise RuntimeError(f"{SOURCE}: {name}_t has {function()} bytes, the mirror in queries.py {size}")
    address, count = ctypes.c_void_p, _I
    found.first_hit.argtypes = [address, count, address, address, count, address]
    found.nearest.argtypes = [address, count, address, count, address, address, address, address]
    found.contact_planes.argtypes = [address, count, address, count, address, _D, address, address]
    for function in (found.first_hit, found.nearest, found.contact_planes):
        function.restype = None
    return found


def c_solid(solid: Box | Plate | Cylinder | Mesh, surface: Surface) -> tuple[CSolid, list[Array]]:
    """The solid as queries.c has it, and the arrays that must live as long."""
    p_W, R = pose(solid.p_W, solid.rpy_rad)
    vertices_W = surface.vertices_S @ R.T + p_W
    low_W, high_W = vertices_W.min(axis=0), vertices_W.max(axis=0)
    c, kept, half = CSolid(kind=_KIND[type(solid)]), [], np.zeros(3)
    if isinstance(solid, Cylinder):
        half[:] = solid.radius_m, solid.radius_m, solid.length_m / 2
        reach = half[2] * np.abs(R[:, 2]) + half[0] * np.sqrt(np.maximum(0.0, 1 - R[:, 2] ** 2))
        low_W, high_W = p_W - reach, p_W + reach  # the drawn cylinder is inside the true one
    elif isinstance(solid, Mesh):
        corners, bounds = bounding_tree(surface.vertices_S[surface.triangles])
        kept = [corners, bounds]
        c.corners, c.bounds = corners.ctypes.data, bounds.ctypes.data
        c.leaves = len(corners)
    else:
        half[: len(solid.size_m)] = np.asarray(solid.size_m) / 2
    for name, value in (("p_W", p_W), ("R_WS", R), ("half", half), ("bounds_W", np.array([low_W, high_W]))):
        np.frombuffer(getattr(c, name))[:] = value.ravel()
    return c, kept


def bounding_tree(corners: Array) -> tuple[Array, Array]:
    """Triangles (L, 3, 3) in the order of the leaves, and the bounds (2 L, 2, 3) of the nodes; node 0 is not used.

    L is the next power of two; the last triangle is repeated. The order is that of the triangles' middles along a space-filling curve of 2^21 cells per axis.
    """
    middles = corners.mean(axis=1)
    low = middles.min(axis=0)
    extent = float(np.max(middles.max(axis=0) - low)) or 1.0
    cells = ((middles - low) / extent * (2**21 - 1)).astype(np.uint64)
    code: NDArray[np.uint64] = np.zeros(len(corners), dtype=np.uint64)
    for bit in range(21):
        for axis in range(3):
            code |= ((cells[:, axis] >> np.uint64(bit)) & np.uint64(1)) << np.uint64(3 * bit + axis)
    leaves = 1 << (len(corners) - 1).bit_length()
    order = np.argsort(code, kind="stable")
    corners = np.ascontiguousarray(corners[np.pad(order, (0, leaves - len(order)), mode="edge")])
    bounds = np.empty((2 * leaves, 2, 3))
    bounds[leaves:, 0], bounds[leaves:, 1] = corners.min(axis=1), corners.max(axis=1)
    first = leaves
    while first > 1:
        children = bounds[first : 2 * first].reshape(first // 2, 2, 2, 3)
        bounds[first // 2 : first, 0] = children[:, :, 0].min(axis=1)
        bounds[first // 2 : first, 1] = children[:, :, 1].max(axis=1)
        first //= 2
    return corners, bounds

"""Solids as triangles: what a renderer draws, a live view shows, and what ray casting of meshes is exact against."""

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from companion.core.arrays import Array, Image8
from companion.core.config import ConfigError
from companion.core.errors import UserError
from companion.core.frames import quat_from_rpy, rotation_matrix
from sitl.solids.gltf import load_mesh
from sitl.solids.world_file import Box, Cylinder, Mesh, Plate

Triangles = NDArray[np.int32]

SIDES_PER_TURN = 64  # of a drawn cylinder: 0.1 % of its radius from the true surface
TRIANGLES_MAX = 200_000  # of one mesh
FLAT = 1e-9  # volume of a body over the cube of its diagonal, below which its sign is rounding
CORNERS_TESTED = 8  # of a body, about, for whether it is inside another one


class SolidMesh(NamedTuple):
    """A solid in W as triangles.

    vertices_W: (N, 3) [m]; triangles: (K, 3) indices, counter-clockwise seen from outside; a plate has both sides.
    uv: (N, 2) texture coordinates as in glTF: (0, 0) is the outer corner of the top left pixel, (1, 1) of the bottom
    right one; the texture repeats beyond. Vertices are not shared between faces, so every face is flat.
    depth_noise_per_m: the material's exponent m [1/m]; None: the material has none.
    """

    name: str
    vertices_W: Array
    triangles: Triangles
    uv: Array
    texture: Image8
    material: str
    depth_noise_per_m: float | None


class Surface(NamedTuple):
    """Vertices (N, 3) in the solid's frame S, triangles (K, 3), and places on the texture (N, 2) [m] right and down.

    uv: (N, 2) in place of the metres where a mesh file has its own; else None.
    """

    vertices_S: Array
    triangles: Triangles
    right_down_m: Array
    uv: Array | None = None


class _Body(NamedTuple):
    """A connected part of a mesh: its number, of how many, and the low corner of its bounds [m]."""

    number: int
    bodies: int
    low: Array


def surface_of(solid: Box | Plate | Cylinder | Mesh, where: str, folder: Path) -> Surface:
    """The triangles of a solid; `where` names the file and key in errors, raises `ConfigError`."""
    if isinstance(solid, Box):
        return _box(solid.size_m)
    if isinstance(solid, Plate):
        return _plate(solid.size_m)
    if isinstance(solid, Cylinder):
        return _cylinder(solid.radius_m, solid.length_m)
    return _mesh(solid, where, folder)


def pose(p_W: tuple[float, float, float], rpy_rad: tuple[float, float, float]) -> tuple[Array, Array]:
    """(p_WS, R_WS) of a solid's frame."""
    return np.asarray(p_W, dtype=float), rotation_matrix(quat_from_rpy(*rpy_rad))


def _join(parts: list[Surface]) -> Surface:
    offsets = np.cumsum([0, *(len(p.vertices_S) for p in parts[:-1])])
    return Surface(
        np.concatenate([p.vertices_S for p in parts]),
        np.concatenate([p.triangles + o for p, o in zip(parts, offsets, strict=True)]).astype(np.int32),
        np.concatenate([p.right_down_m for p in parts]),
    )


def _rectangle(centre: Array, right: Array, up: Array) -> Surface:
    """A rectangle seen from the side to which right × up points; right, up: half its sides."""
    corners = centre + np.array([-right + up, -right - up, right - up, right + up])
    width, height = 2 * float(np.linalg.norm(right)), 2 * float(np.linalg.norm(up))
    return Surface(
        corners,
        np.array([[0, 1, 2], [0, 2, 3]], dtype=np.int32),
        np.array([[0, 0], [0, height], [width, height], [width, 0]], dtype=float),
    )


def _box(size_m: tuple[float, float, float]) -> Surface:
    x, y, z = np.diag(size_m) / 2
    sides = ((x, y, z), (y, -x, z), (-x, -y, z), (-y, x, z))  # seen from outside: up is +z
    ends = ((z, x, y), (-z, x, -y))
    return _join([_rectangle(out, right, up) for out, right, up in (*sides, *ends)])


def _plate(size_m: tuple[float, float]) -> Surface:
    """Front and back; a point has the same place on the texture on both."""
    x, y, _ = np.diag((*size_m, 0.0)) / 2
    front = _rectangle(np.zeros(3), x, y)
    return _join([front, front._replace(triangles=front.triangles[:, ::-1])])


def _cylinder(radius_m: float, length_m: float) -> Surface:
    angles = np.linspace(0, 2 * math.pi, SIDES_PER_TURN + 1)
    circle = radius_m * np.column_stack([np.cos(angles), np.sin(angles), np.zeros_like(angles)])
    up = np.array([0, 0, length_m / 2])
    around, zero = radius_m * angles, np.zeros_like(angles)
    k = np.arange(SIDES_PER_TURN)
    n = SIDES_PER_TURN + 1
    shell = Surface(
        np.concatenate([circle + up, circle - up]),
        np.concatenate([np.column_stack([k, k + n, k + n + 1]), np.column_stack([k, k + n + 1, k + 1])]).astype(
            np.int32
        ),
        np.concatenate([np.column_stack([around, zero]), np.column_stack([around, zero + length_m])]),
    )
    fan = np.column_stack([np.zeros_like(k), k + 1, k + 2]).astype(np.int32)
    rim = circle[:, :2]
    top = Surface(
        np.concatenate([up[None], circle + up]), fan, radius_m + np.concatenate([np.zeros((1, 2)), rim * (1, -1)])
    )
    bottom = Surface(
        np.concatenate([-up[None], circle - up]), fan[:, ::-1], radius_m + np.concatenate([np.zeros((1, 2)), rim])
    )
    return _join([shell, top, bottom])


def _mesh(solid: Mesh, where: str, folder: Path) -> Surface:
    """The triangles of a mesh file; every triangle has its own vertices unless the file has texture coordinates."""
    try:
        import trimesh
    except ImportError:
        raise UserError("meshes need the extra 'world': pip install 'companion[world]'") from None
    path = folder / solid.file
    key = f"{where}.file = {solid.file!r}"
    if not path.is_file():
        raise ConfigError(f"{key}: {path}: no such file")
    if path.suffix.lower() not in (".glb", ".gltf", ".obj", ".ply"):
        raise ConfigError(f"{key}: not a glTF, OBJ or PLY file (.glb, .gltf, .obj, .ply)")
    try:
        mesh = load_mesh(path)
    except Exception as error:  # of many kinds: the readers do not agree on one
        raise ConfigError(
            f"{key}: {path}: cannot be read: {' '.join(str(error).split()) or type(error).__name__}"
        ) from None
    vertices = np.asarray(getattr(mesh, "vertices", np.empty((0, 3))), dtype=float) * solid.scale
    triangles = np.asarray(getattr(mesh, "faces", np.empty((0, 3))), dtype=np.int32)
    if not len(triangles) or not np.isfinite(vertices).all():
        raise ConfigError(f"{key}: {path}: no triangles, or vertices that are not finite")
    if len(triangles) > TRIANGLES_MAX:
        raise ConfigError(f"{key}: {path}: {len(triangles)} triangles, at most {TRIANGLES_MAX} are possible")
    closed = trimesh.Trimesh(vertices, triangles, process=True)  # vertices in the same place are one
    closed.merge_vertices(merge_tex=True, merge_norm=True)
    if not closed.is_watertight or not closed.is_winding_consistent:
        raise ConfigError(
            f"{key}: {path}: an open mesh: every edge must belong to two triangles, a solid has an inside"
        )
    mirrored = closed.volume < 0  # the whole file
    if mirrored:
        triangles = triangles[:, ::-1]
    corners = np.asarray(closed.triangles)[:, ::-1] if mirrored else np.asarray(closed.triangles)
    if (wrong := _inverted(corners, np.asarray(closed.face_adjacency))) is not None:
        x, y, z = wrong.low
        raise ConfigError(
            f"{key}: {path}: body {wrong.number} of {wrong.bodies}, which begins at ({x:.3g}, {y:.3g}, {z:.3g}) m, is inside "
            f"out: triangles must be counter-clockwise seen from outside, those of a cavity from inside it"
        )
    uv = getattr(getattr(mesh, "visual", None), "uv", None)
    if uv is not None and len(uv) == len(vertices):
        uv = np.column_stack([uv[:, 0], 1 - uv[:, 1]])  # trimesh counts v upwards
        return Surface(vertices, triangles, uv, uv)
    return _unwrapped(vertices[triangles])


def _inverted(corners: Array, adjacent: NDArray[np.int64]) -> _Body | None:
    """The first body of a mesh of closed bodies that is inside out, None where none is.

    corners: triangles (K, 3, 3); adjacent: the pairs of them that have an edge in common (E, 2). A cavity has the triangles of
    a body that is inside out, and all of its tested corners in another body. Flat bodies have no inside.
    """
    edges = coo_array((np.ones(len(adjacent), dtype=bool), adjacent.T), shape=(len(corners),) * 2)
    _, labels = connected_components(edges, directed=False)
    order = np.argsort(labels, kind="stable")
    parts = np.split(corners[order], np.flatnonzero(np.diff(labels[order])) + 1)
    lows = np.array([part.min(axis=(0, 1)) for part in parts]).T.copy()  # (3, bodies)
    highs = np.array([part.max(axis=(0, 1)) for part in parts]).T.copy()
    for i, part in enumerate(parts):
        a, b, c = np.moveaxis(part - lows[:, i], 1, 0)
        volume_m3 = float(np.sum(a * np.cross(b, c))) / 6
        if volume_m3 > -FLAT * float(np.linalg.norm(highs[:, i] - lows[:, i])) ** 3:
            continue
        around = np.flatnonzero(((lows < lows[:, [i]]) & (highs > highs[:, [i]])).all(axis=0))
        tested = part[:: max(1, len(part) // CORNERS_TESTED), 0]
        if not any(all(abs(_winding_number(parts[j], corner)) > 0.5 for corner in tested) for j in around):
            return _Body(i + 1, len(parts), lows[:, i])
    return None


def _winding_number(corners: Array, point: Array) -> float:
    """How many times a closed surface goes around a point, by its solid angle.

    A. van Oosterom, J. Strackee, "The solid angle of a plane triangle", IEEE Trans. Biomedical Engineering 30(2), 1983.
    """
    a, b, c = np.moveaxis(corners - point, 1, 0)
    la, lb, lc = (np.linalg.norm(edge, axis=1) for edge in (a, b, c))
    across = (a * np.cross(b, c)).sum(axis=1)
    along = la * lb * lc + (a * b).sum(axis=1) * lc + (b * c).sum(axis=1) * la + (c * a).sum(axis=1) * lb
    return float(np.sum(np.arctan2(across, along))) / (2 * math.pi)


def _unwrapped(corners: Array) -> Surface:
    """Triangles, shape (K, 3, 3), with the texture projected along the axis nearest to each normal."""
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    axis = np.abs(normals).argmax(axis=1)
    sign = np.sign(np.take_along_axis(normals, axis[:, None], axis=1))
    # seen from outside: x and y faces have z up, z faces have y up
    right = np.where(axis == 0, 1, 0)[:, None, None]
    up = np.where(axis == 2, 1, 2)[:, None, None]
    u = np.take_along_axis(corners, right, axis=2)[..., 0] * np.where(axis == 1, -1, 1)[:, None] * sign
    v = -np.take_along_axis(corners, up, axis=2)[..., 0]
    triangles = np.arange(3 * len(corners), dtype=np.int32).reshape(-1, 3)
    return Surface(corners.reshape(-1, 3), triangles, np.stack([u, v], axis=-1).reshape(-1, 2))

"""The solids of a simulated world: one source for drawing, ray casting, hiding, distances and contacts."""

import ctypes
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from companion.core.arrays import Array, Mask, Vector
from companion.core.config import ConfigError
from sitl.solids.queries import CSolid, c_solid, library
from sitl.solids.textures import texture_of
from sitl.solids.triangles import SolidMesh, pose, surface_of
from sitl.solids.world_file import WorldFile, load_world_file, materials

GLUED_M = 0.005  # a point less than this behind a surface is on it: a printed marker on a wall


class Nearest(NamedTuple):
    """What is closest to each of n points, shape (n, …).

    distance_m: negative inside a solid; a plate has no inside. point_W, normal_W: on the surface, and the unit normal out
    of the solid there: at an edge, and everywhere outside, the direction to the point. solid: index in the world file.
    """

    distance_m: Array
    point_W: Array
    normal_W: Array
    solid: NDArray[np.int64]


class Solids:
    """The solids of a world file; the ground z = 0 is not one of them.

    Boxes, plates and cylinders are exact in every query, meshes as their triangles. Queries may run in any thread.
    Raises `ConfigError` for a mesh that cannot be used.
    """

    def __init__(self, file: WorldFile, path: Path) -> None:
        """path: of the world file; textures and meshes are relative to it."""
        self.path = path
        self.file = file
        self.names = [solid.name for solid in file.solid]
        self._materials = materials(file)
        self.surfaces = [surface_of(s, f"{path}: solid[{i}]", path.parent) for i, s in enumerate(file.solid)]
        made = [c_solid(solid, surface) for solid, surface in zip(file.solid, self.surfaces, strict=True)]
        self._kept = [array for _, arrays in made for array in arrays]
        self._c_solids = (CSolid * len(made))(*(solid for solid, _ in made))
        self._arguments = ctypes.addressof(self._c_solids), len(made)
        self._library = library()

    @classmethod
    def load(cls, path: str | Path) -> "Solids":
        """The solids of the world file at `path`; raises `ConfigError`."""
        return cls(load_world_file(path), Path(path))

    def meshes(self) -> list[SolidMesh]:
        """Every solid as triangles with its texture and material, in the order of the file; raises `ConfigError`."""
        meshes = []
        for i, (solid, surface) in enumerate(zip(self.file.solid, self.surfaces, strict=True)):
            texture = texture_of(solid, f"{self.path}: solid[{i}]", self.path.parent)
            p_W, R = pose(solid.p_W, solid.rpy_rad)
            uv = surface.uv
            if uv is None:
                height_m = solid.texture_width_m * texture.shape[0] / texture.shape[1]
                uv = surface.right_down_m / (solid.texture_width_m, height_m)
            meshes.append(
                SolidMesh(
                    solid.name,
                    np.ascontiguousarray(surface.vertices_S @ R.T + p_W),
                    surface.triangles,
                    np.ascontiguousarray(uv),
                    texture,
                    solid.material,
                    self._materials[solid.material].depth_noise_per_m,
                )
            )
        return meshes

    def check_depth_noise(self) -> None:
        """Raise `ConfigError` when a material in use has no depth noise, for a world that a depth camera looks at."""
        for i, solid in enumerate(self.file.solid):
            if self._materials[solid.material].depth_noise_per_m is None:
                raise ConfigError(
                    f"{self.path}: solid[{i}].material = {solid.material!r}: a depth camera needs this material's "
                    f"depth_noise_per_m"
                )

    # --- queries ----------------------------------------------------------------------------------------------------------

    def first_hit(self, origin_W: Vector, directions_W: Array) -> Array:
        """Distance [m] along each direction to the first solid, inf where there is none.

        origin_W: (3,) or (…, 3); directions_W: (…, 3) of any length but zero. A ray that begins inside a solid hits its
        surface from inside. Returns shape (…).
        """
        directions = np.asarray(directions_W, dtype=float)
        unit = np.ascontiguousarray(directions / np.linalg.norm(directions, axis=-1, keepdims=True))
        origins = np.ascontiguousarray(np.broadcast_to(np.asarray(origin_W, dtype=float), unit.shape))
        distances = np.empty(unit.shape[:-1])
        self._library.first_hit(
            *self._arguments, origins.ctypes.data, unit.ctypes.data, distances.size, distances.ctypes.data
        )
        return distances

    def hides(self, camera_W: Vector, points_W: Array) -> Mask:
        """Which of the points, shape (…, 3), cannot be seen from the camera (3,): bool, shape (…)."""
        rays = np.asarray(points_W, dtype=float) - np.asarray(camera_W, dtype=float)
        hidden: Mask = self.first_hit(camera_W, rays) < np.linalg.norm(rays, axis=-1) - GLUED_M
        return hidden

    def nearest(self, points_W: Array) -> Nearest:
        """The closest surface to each of the points, shape (n, 3)."""
        points = np.ascontiguousarray(points_W, dtype=float).reshape(-1, 3)
        n = len(points)
        found = Nearest(np.empty(n), np.empty((n, 3)), np.empty((n, 3)), np.empty(n, dtype=np.int64))
        self._library.nearest(*self._arguments, points.ctypes.data, n, *(a.ctypes.data for a in found))
        return found

    def contact_planes(
        self,
        shapes: NDArray[np.void],
        memory: NDArray[np.void],
        ahead_s: float,
        planes_W: Array,
        index: NDArray[np.int64],
    ) -> None:
        """Choose the plane beside each of n contact shapes for the next `ahead_s` (contact_planes in queries.c).

        shapes: (n,) of type `SHAPE`; memory: (n, solids) of type `MEMORY`, zeros at first, kept from call to call.
        planes_W: output (n, 4), unit normal into the free space and offset, or zeros; index: output (n,), of its solid or -1.
        """
        outputs = planes_W.ctypes.data, index.ctypes.data
        self._library.contact_planes(
            *self._arguments, shapes.ctypes.data, len(shapes), memory.ctypes.data, ahead_s, *outputs
        )

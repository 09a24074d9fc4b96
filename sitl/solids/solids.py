"""The solids of a simulated world: one source for drawing, ray casting, hiding, distances and contacts."""

from pathlib import Path

import numpy as np

from companion.core.config import ConfigError
from sitl.solids.textures import texture_of
from sitl.solids.triangles import SolidMesh, pose, surface_of
from sitl.solids.world_file import WorldFile, load_world_file, materials


class Solids:
    """The solids of a world file. Raises `ConfigError` for a texture or mesh that cannot be used."""

    def __init__(self, file: WorldFile, path: Path) -> None:
        """path: of the world file; textures and meshes are relative to it."""
        self.path = path
        self.file = file
        self.names = [solid.name for solid in file.solid]
        self._materials = materials(file)
        self._surfaces = [surface_of(s, f"{path}: solid[{i}]", path.parent) for i, s in enumerate(file.solid)]

    @classmethod
    def load(cls, path: str | Path) -> "Solids":
        """The solids of the world file at `path`; raises `ConfigError`."""
        return cls(load_world_file(path), Path(path))

    def meshes(self) -> list[SolidMesh]:
        """Every solid as triangles with its texture and material, in the order of the file; raises `ConfigError`."""
        meshes = []
        for i, (solid, surface) in enumerate(zip(self.file.solid, self._surfaces, strict=True)):
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

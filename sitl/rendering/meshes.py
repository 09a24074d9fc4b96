"""What is drawn: triangle meshes with a grey texture and a material."""

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from companion.core.arrays import Array, Image8, Vector
from companion.core.config import ConfigError

DEPTH_NOISE_MAX_PER_M = 5.0


class Drawable(Protocol):
    """A mesh of one texture and one material, as `sitl.solids` and `MeshPatch` have it.

    vertices_W: (n, 3) [m]; triangles: (k, 3) indices, anticlockwise seen from outside; not drawn from behind.
    uv: (n, 2), (0, 0) at the outer corner of the texture's top left pixel, (1, 1) at that of the bottom right one; the
    texture repeats beyond. depth_noise_per_m: m of `sitl.devices.depth_camera`; None: the material has none.
    """

    @property
    def vertices_W(self) -> NDArray[Any]: ...

    @property
    def triangles(self) -> NDArray[Any]: ...

    @property
    def uv(self) -> NDArray[Any]: ...

    @property
    def texture(self) -> Image8: ...

    @property
    def depth_noise_per_m(self) -> float | None: ...


class MeshPatch(NamedTuple):
    """A `Drawable` as plain data."""

    vertices_W: NDArray[Any]
    triangles: NDArray[Any]
    uv: NDArray[Any]
    texture: Image8
    depth_noise_per_m: float | None = 0.5


def check(name: str, mesh: Drawable) -> None:
    """Raise `ConfigError`, one line that begins with the name, for a mesh that cannot be drawn."""
    vertices, triangles, uv, texture = mesh.vertices_W, mesh.triangles, mesh.uv, mesh.texture
    for what, array, columns in (("vertices", vertices, 3), ("triangles", triangles, 3), ("uv", uv, 2)):
        if array.ndim != 2 or array.shape[1] != columns or not len(array):
            raise ConfigError(f"{name}: {what} have the shape {array.shape}, need (n, {columns})")
    if len(uv) != len(vertices):
        raise ConfigError(f"{name}: {len(uv)} uv for {len(vertices)} vertices")
    if not (np.isfinite(vertices).all() and np.isfinite(uv).all()):
        raise ConfigError(f"{name}: vertices or uv are not finite")
    if triangles.min() < 0 or triangles.max() >= len(vertices):
        raise ConfigError(f"{name}: triangles name vertices {triangles.min()} to {triangles.max()} of {len(vertices)}")
    if texture.ndim != 2 or texture.dtype != np.uint8 or not texture.size:
        raise ConfigError(f"{name}: texture has the shape {texture.shape} of {texture.dtype}, needs grey of 8 bit")
    if mesh.depth_noise_per_m is not None and not 0.0 <= mesh.depth_noise_per_m <= DEPTH_NOISE_MAX_PER_M:
        raise ConfigError(
            f"{name}: depth_noise_per_m = {mesh.depth_noise_per_m:g}: must be 0 to {DEPTH_NOISE_MAX_PER_M:g} 1/m"
        )


def rectangle(
    p_W: Vector, R_WP: Array, size_m: tuple[float, float], texture: Image8, depth_noise_per_m: float = 0.5
) -> MeshPatch:
    """A rectangle with the frame of `sitl.scene` (x right, y up, z out of the face), seen from both sides."""
    x, y = R_WP[:, 0] * size_m[0] / 2, R_WP[:, 1] * size_m[1] / 2
    corners = np.asarray(p_W) + np.array([-x + y, x + y, x - y, -x - y])
    uv = np.array([(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)])
    front = np.array([(0, 2, 1), (0, 3, 2)])
    return MeshPatch(corners, np.concatenate([front, front[:, ::-1]]), uv, texture, depth_noise_per_m)

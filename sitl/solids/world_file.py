"""The world file: the solids of a simulated world (config/worlds/*.toml; docs/worlds.md has the keys).

A solid is placed by `p_W` and `rpy_rad` of its own frame S: a box has its centre in the origin and its sides along the
axes; a plate has x right, y up and z out of its front, as a backdrop; a cylinder's axis is z and its centre the origin;
a mesh has the frame of its file.
"""

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from companion.core.config import ConfigError, Section, integer, load, number
from companion.core.site import Radians3
from sitl.scene import World3

Length = Annotated[float, number(0.01, 1000, "m")]


class Material(Section, frozen=True):
    """What a depth camera measures of a surface: σ = 0.005 m · exp(m · distance); m is None: not known."""

    name: Annotated[str, Meta(min_length=1)]
    depth_noise_per_m: Annotated[float, number(0, 5, "1/m")] | None = None


# Paper: "Depth noise and rotor drag", table 1: exponents of a stereo depth camera
MATERIALS = (
    Material(name="plastic", depth_noise_per_m=0.85),
    Material(name="cement", depth_noise_per_m=0.50),
    Material(name="foam_board", depth_noise_per_m=0.55),
)


class Solid(Section, frozen=True, kw_only=True, tag_field="kind"):
    """What all kinds of solids have."""

    name: Annotated[str, Meta(min_length=1)]
    p_W: World3
    rpy_rad: Radians3 = (0.0, 0.0, 0.0)
    texture: Annotated[
        str, Meta(min_length=1)
    ]  # of `sitl.solids.textures.DRAWN`, or an image file beside the world file
    texture_width_m: Annotated[float, number(0.05, 500, "m, after which the texture repeats")] = 4.0
    seed: Annotated[int, integer(0, 2**31 - 1)] = 0  # of a drawn texture
    material: Annotated[str, Meta(min_length=1)]


class Box(Solid, frozen=True, kw_only=True, tag="box"):
    """A cuboid."""

    size_m: tuple[Length, Length, Length]  # along its x, y and z


class Plate(Solid, frozen=True, kw_only=True, tag="plate"):
    """A rectangle without thickness; solid and visible from both sides."""

    size_m: tuple[Length, Length]  # along its x and y


class Cylinder(Solid, frozen=True, kw_only=True, tag="cylinder"):
    """A round cylinder with flat ends."""

    radius_m: Length
    length_m: Length


class Mesh(Solid, frozen=True, kw_only=True, tag="mesh"):
    """A closed triangle mesh of a glTF, OBJ or PLY file beside the world file."""

    file: Annotated[str, Meta(min_length=1)]
    scale: Annotated[float, number(1e-4, 1e4, "(metres per unit of the file)")] = 1.0


class WorldFile(Section, frozen=True, kw_only=True):
    """A world file."""

    name: Annotated[str, Meta(min_length=1)]
    description: str
    shapes_wind: bool = True  # the wind flows around the solids (`sitl.aerodynamics`); False: as if there were none
    material: list[Material] = []  # beyond `MATERIALS`
    solid: Annotated[list[Box | Plate | Cylinder | Mesh], Meta(min_length=1, max_length=256)]


def load_world_file(path: str | Path) -> WorldFile:
    """Read a world file; raises `ConfigError`, also for a name that stands twice and a material that does not exist."""
    file = load(path, WorldFile)
    names: set[str] = set()
    for i, material in enumerate(file.material):
        if material.name in names or material.name in {m.name for m in MATERIALS}:
            raise ConfigError(f"{path}: material[{i}].name = {material.name!r}: defined twice")
        names.add(material.name)
    known, names = materials(file), set()
    for i, solid in enumerate(file.solid):
        if solid.name in names:
            raise ConfigError(f"{path}: solid[{i}].name = {solid.name!r}: defined twice")
        names.add(solid.name)
        if solid.material not in known:
            raise ConfigError(
                f"{path}: solid[{i}].material = {solid.material!r}: no such material (there are: {', '.join(known)})"
            )
    return file


def materials(file: WorldFile) -> dict[str, Material]:
    """The materials that the solids of a file may have, by name."""
    return {m.name: m for m in (*MATERIALS, *file.material)}

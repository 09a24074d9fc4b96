"""Worlds of a few solids for the tests of this folder."""

from pathlib import Path

import numpy as np
import trimesh

from sitl.solids.solids import Solids
from sitl.solids.world_file import Box, Cylinder, Mesh, Plate, WorldFile

COMMON = {"texture": "plain", "material": "cement"}
BOX = Box(name="box", p_W=(1.0, -2.0, 3.0), rpy_rad=(0.3, -0.5, 1.1), size_m=(1.0, 2.0, 0.5), **COMMON)
PLATE = Plate(name="plate", p_W=(0.5, 0.3, 2.0), rpy_rad=(0.9, 0.2, -0.4), size_m=(2.0, 1.5), **COMMON)
CYLINDER = Cylinder(
    name="cylinder", p_W=(-1.0, 1.0, 4.0), rpy_rad=(0.4, 0.8, 0.0), radius_m=0.6, length_m=2.0, **COMMON
)


def solids_of(*solids, folder=Path(".")):
    return Solids(WorldFile(name="test", description="", solid=list(solids)), folder / "test.toml")


def rock(folder, subdivisions=3, scale=1.0, p_W=(0.0, 0.0, 3.0), **keys):
    """A bumpy closed mesh of about 1 m, written to `folder`."""
    sphere = trimesh.creation.icosphere(subdivisions=subdivisions)
    x, y, z = sphere.vertices.T
    sphere.vertices *= (1 + 0.25 * np.sin(3 * x + 1) * np.cos(4 * y) + 0.1 * np.sin(7 * z))[:, None]
    sphere.export(folder / "rock.ply")
    return Mesh(name="rock", file="rock.ply", scale=scale, p_W=p_W, rpy_rad=(0.2, 0.5, -0.3), **COMMON | keys)

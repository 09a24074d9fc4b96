"""The air among solids: the wind around them, and the free distances of the rotors from them.

Both change with the place of the aircraft, slowly against the steps of the world, so they are found `PERIOD_S` apart. The
wind at a place is linear in the wind far away (`sitl.aerodynamics.wind_around`): it is kept as a matrix, which every
step applies to the gusts of its moment.
"""

import numpy as np

from companion.core.arrays import Array, Vector
from companion.core.frames import rotation_matrix
from sitl.aerodynamics import Bluff, wind_around
from sitl.plant import FEET, ROTORS, Plant
from sitl.solids.solids import Solids
from sitl.solids.triangles import pose
from sitl.solids.world_file import Box, Cylinder, Plate
from sitl.solids.world_file import Solid as SolidSection

PERIOD_S = 0.04
REACH_RADII = 12.0  # of a rotor: beyond it the strongest effect, of a ceiling, is below 0.05 % of the thrust
WALL_NORMAL = 0.5  # along the rotors' axis: a face is a wall where its normal has less than this
PLATE_HALF_M = 0.01  # thickness of a plate in the wind


class AirAmongSolids:
    """Fills `Plant.clearance_m` and `Plant.side_W`, and changes the wind; `follow` first in every step of the world."""

    def __init__(self, solids: Solids, plant: Plant, mean_W: Vector) -> None:
        """mean_W: velocity of the air far away, without gusts [m/s]."""
        self._solids, self._plant = solids, plant
        self._mean_W = np.array(mean_W, dtype=float)
        self.bluffs = [bluff_of(solids, i) for i in range(len(solids.names))]
        self._hubs_B = np.array(plant.shapes_B[FEET : FEET + ROTORS])
        self._reach_m = REACH_RADII * plant.airframe.rotor.radius_m
        self._around = np.eye(3)
        self._next_s = -np.inf

    def follow(self) -> None:
        """Find the air at the aircraft's place when it is time to."""
        plant = self._plant
        if plant.time_s < self._next_s:
            return
        self._next_s = plant.time_s + PERIOD_S - 1e-9
        self._around = np.column_stack([wind_around(axis, self._mean_W, plant.p_W, self.bluffs) for axis in np.eye(3)])
        self._find_clearances()

    def wind(self, wind_W: Vector) -> Array:
        """The air at the aircraft [m/s], of the air far away with its gusts."""
        changed: Array = self._around @ np.asarray(wind_W)
        return changed

    def _find_clearances(self) -> None:
        plant, solids = self._plant, self._solids
        plant.clearance_m[:] = np.inf
        R = rotation_matrix(plant.q_WB)
        hubs_W = plant.p_W + self._hubs_B @ R.T
        if solids.nearest(plant.p_W).distance_m[0] > self._reach_m + np.linalg.norm(self._hubs_B, axis=1).max():
            return
        down_up = np.stack([-R[:, 2], R[:, 2]])
        rays = solids.first_hit(hubs_W[:, None, :], np.broadcast_to(down_up, (len(hubs_W), 2, 3)))
        plant.clearance_m[:, :2] = np.where(rays <= self._reach_m, rays, np.inf)
        near = solids.nearest(hubs_W)
        wall = (np.abs(near.normal_W @ R[:, 2]) < WALL_NORMAL) & (near.distance_m <= self._reach_m)
        plant.clearance_m[wall, 2] = np.maximum(near.distance_m[wall], 0.0)
        plant.side_W[wall] = -near.normal_W[wall]


def bluff_of(solids: Solids, index: int) -> Bluff:
    """A solid as the wind sees it: a mesh is the box around it, along the axes of its frame."""
    solid: SolidSection = solids.file.solid[index]
    p_W, R = pose(solid.p_W, solid.rpy_rad)
    if isinstance(solid, Box):
        return Bluff(p_W, R, np.array(solid.size_m) / 2)
    if isinstance(solid, Plate):
        return Bluff(p_W, R, np.array([*solid.size_m, 2 * PLATE_HALF_M]) / 2)
    if isinstance(solid, Cylinder):
        return Bluff(p_W, R, np.array([solid.radius_m, solid.radius_m, solid.length_m / 2]), round=True)
    local = solids.vertices_S(index)
    low, high = local.min(axis=0), local.max(axis=0)
    return Bluff(p_W + R @ ((low + high) / 2), R, (high - low) / 2)

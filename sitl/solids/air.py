"""What the solids of a world do to the air: the wind around them, and the surfaces near the rotors of an aircraft."""

import numpy as np

from companion.core.arrays import Array, Vector
from companion.core.frames import rotation_matrix
from companion.core.trajectory_messages import Vec3
from sitl.aerodynamics import Bluff, WindAround
from sitl.plant import FEET, Plant
from sitl.solids.solids import Solids
from sitl.solids.triangles import pose
from sitl.solids.world_file import Box, Cylinder, Plate
from sitl.vectors import vec3

REACH_RADII = 10.0  # farther from its hub than this, a surface changes a rotor's thrust by less than 0.1 %
RAYS = 5  # of each disc
RIM_SHARE = 0.7  # of the radius: half of a rotor's disc is outside
TOUCHING_M = 1e-6
MOVED_M = 0.1  # after which the flow is computed again
PLATE_M = 0.01  # thickness of a plate in the wind


class SolidAir:
    """The air among solids, for one aircraft; mean_W: the scenario's mean wind, along which the wakes lie [m/s]."""

    def __init__(self, solids: Solids, plant: Plant, mean_W: Vector) -> None:
        self._solids, self._plant, self._mean_W = solids, plant, mean_W
        self._around = WindAround(_bluffs(solids) if solids.file.shapes_wind else [])
        discs = slice(FEET, FEET + plant.rotors)
        self._hubs_B, self._axes_B = plant.shapes_B[discs], plant.shape_axis_B[discs]
        rim = RIM_SHARE * plant.airframe.rotor.radius_m
        ahead_B = np.cross((0.0, 1.0, 0.0), self._axes_B)
        ahead_B /= np.linalg.norm(ahead_B, axis=1)[:, None]
        left_B = np.cross(self._axes_B, ahead_B)
        rays_B = [0 * ahead_B, rim * ahead_B, rim * left_B, -rim * ahead_B, -rim * left_B]
        self._rays_B = (self._hubs_B[:, None] + np.stack(rays_B, axis=1)).reshape(-1, 3)
        arms_m = np.linalg.norm(self._hubs_B, axis=1)
        self._reach_m = REACH_RADII * plant.airframe.rotor.radius_m
        self._near_m = self._reach_m + float(arms_m.max())
        self._flow_p_W = np.full(3, np.inf)
        self._flow = np.eye(3)

    def wind(self, wind_W: Vec3) -> Vec3:
        """The wind at the aircraft [m/s] where it is wind_W far from all solids."""
        moved = self._plant.p_W - self._flow_p_W
        if not moved @ moved < MOVED_M**2:
            self._flow_p_W = self._plant.p_W.copy()
            self._flow = self._around.flow(self._mean_W, self._flow_p_W)
        return vec3(self._flow @ wind_W)

    def lay_surfaces(self) -> None:
        """Write into the plant how far its rotors are from the surfaces under, over and beside them.

        Up and down, 1/z² is the mean over five rays of each disc: a rotor half under an edge feels half of it.
        """
        plant = self._plant
        plant.clearance_m[:] = np.inf
        if self._solids.nearest(plant.p_W).distance_m[0] > self._near_m:
            return
        R = rotation_matrix(plant.q_WB)
        hubs_W, axes_W = plant.p_W + self._hubs_B @ R.T, self._axes_B @ R.T
        rays_W = np.tile(plant.p_W + self._rays_B @ R.T, (2, 1))
        along_W = np.repeat(np.vstack([-axes_W, axes_W]), RAYS, axis=0)
        found_m = np.maximum(self._solids.first_hit(rays_W, along_W), TOUCHING_M)
        felt = np.where(found_m > self._reach_m, 0.0, found_m**-2.0).reshape(2, plant.rotors, RAYS).mean(axis=2)
        with np.errstate(divide="ignore"):
            plant.clearance_m[:, :2] = (felt**-0.5).T
        near = self._solids.nearest(hubs_W)
        wall = near.distance_m < self._reach_m
        plant.clearance_m[wall, 2] = np.maximum(near.distance_m[wall], 0.0)
        plant.side_W[:] = np.sum(near.normal_W * axes_W, axis=1)[:, None] * axes_W - near.normal_W


def _bluffs(solids: Solids) -> list[Bluff]:
    """The solids as the wind sees them: a mesh is the box around it in its own frame."""
    bluffs = []
    for solid, surface in zip(solids.file.solid, solids.surfaces, strict=True):
        p_W, R = pose(solid.p_W, solid.rpy_rad)
        half_m: Array
        if isinstance(solid, Cylinder):
            half_m = np.array([solid.radius_m, solid.radius_m, solid.length_m / 2])
        elif isinstance(solid, Box):
            half_m = np.array(solid.size_m) / 2
        elif isinstance(solid, Plate):
            half_m = np.array([*solid.size_m, PLATE_M]) / 2
        else:
            low, high = surface.vertices_S.min(axis=0), surface.vertices_S.max(axis=0)
            p_W, half_m = p_W + R @ (low + high) / 2, (high - low) / 2
        bluffs.append(Bluff(p_W, R, half_m, round=isinstance(solid, Cylinder)))
    return bluffs

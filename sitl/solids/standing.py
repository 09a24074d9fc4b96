"""Where an aircraft stands among solids before its flight, and what is in its way there."""

import numpy as np

from companion.core.arrays import Array, Vector
from companion.core.frames import quat_from_rpy, rotation_matrix
from sitl.airframe import Airframe
from sitl.plant import FEET
from sitl.solids.solids import GLUED_M, Solids

RIM_RAYS = 32  # of each disc: a pole of a few centimetres does not fit between them


def standing_z_m(solids: Solids, p_W: Vector, height_m: float) -> float:
    """Height over z = 0 of an aircraft at p_W whose feet, `height_m` below it, are raised out of the ground and of a solid under it [m]."""
    x, y, z = p_W
    z = max(z, height_m)
    below_m = float(solids.first_hit((x, y, z + GLUED_M), np.array([0.0, 0.0, -1.0]))) - GLUED_M
    return float(z + max(0.0, height_m - below_m))


def obstacle(solids: Solids, airframe: Airframe, p_W: Vector, yaw_rad: float) -> str:
    """Name of a solid in which a part of the aircraft is that stands level at p_W, "" where there is none.

    Its parts are those that touch solids: feet, discs of the rotors and hull. They are judged with straight feet, and along lines
    from the centre, so that neither a thin solid between centre and rotors nor the middle of a large one is overlooked. The feet
    may be in the solid under the centre, which may be a slope.
    """
    x, y, _ = p_W
    centre_W = np.array([x, y, standing_z_m(solids, p_W, airframe.ground.foot_height_m)])
    rays_W = _outline_B(airframe) @ rotation_matrix(quat_from_rpy(0.0, 0.0, yaw_rad)).T
    lengths_m = np.linalg.norm(rays_W, axis=1)
    found_m = solids.first_hit(centre_W, rays_W)
    met = found_m < lengths_m - GLUED_M
    ends_W = centre_W + rays_W * np.where(met, found_m / lengths_m, 1.0)[:, None]
    under_W = centre_W - (0.0, 0.0, solids.first_hit(centre_W, np.array([0.0, 0.0, -1.0])))
    near = solids.nearest(np.vstack([centre_W, ends_W]))
    inside = near.distance_m < -GLUED_M
    inside[1:] |= met
    if np.isfinite(under_W[2]):
        inside[1 : 1 + FEET] &= near.solid[1 : 1 + FEET] != solids.nearest(under_W).solid[0]
    return solids.names[near.solid[int(np.argmax(inside))]] if inside.any() else ""


def _outline_B(airframe: Airframe) -> Array:
    """Points on the outline of feet, which come first, hull and discs, shape (n, 3)."""
    angle = np.linspace(0.0, 2 * np.pi, RIM_RAYS, endpoint=False)
    circle = np.column_stack([np.cos(angle), np.sin(angle), np.zeros(RIM_RAYS)])
    parts = [np.array(airframe.feet_B), airframe.hull_radius_m * circle]
    for hub in airframe.hubs:
        ahead = np.cross((0.0, 1.0, 0.0), hub.axis_B)
        ahead /= np.linalg.norm(ahead)
        rim = circle[:, :1] * ahead + circle[:, 1:2] * np.cross(hub.axis_B, ahead)
        parts += [np.array([hub.p_m]), hub.p_m + airframe.rotor.radius_m * rim]
    outline = np.vstack(parts)
    away: Array = outline[np.linalg.norm(outline, axis=1) > GLUED_M]
    return away

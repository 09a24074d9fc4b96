"""Wind around solids: stowed in front, faster beside, slow behind. Pure functions of place and wind.

Beside a solid the flow is that of an ideal fluid around a circular cylinder, written with distance and normal instead of polar
coordinates. With radius a, distance d from the surface, its unit normal n, s = (a / (a + d))², and U the wind far away,
the classic solution (G. Batchelor, "An Introduction to Fluid Dynamics", 1967, section 6.6) is

    u = U - s (U·n) n + s g (U - (U·n) n),    g = 1

so there is no flow through the surface, and at most 2 |U| on it. For other solids a is half the width across the wind, d
and n belong to the nearest point, and g is the ratio of half the width across to half the length along the wind, at most
1: the speed-up on the sides of an ellipse (the same book, section 6.6), 0 for a plate along the wind.

Behind a solid the flow is slower by the deficit of a plane turbulent wake (H. Schlichting, "Boundary-Layer Theory", 7th
edition, section 24.b), with drag coefficient C_D, width h and distance x behind the centre:

    U_deficit / U = 0.98 √(C_D h / x), at most DEFICIT_MAX;   half-width b = √((h/2)² + C_D h x / 16)

and a Gaussian across, in width and in height. It starts at the widest section. Because it scales the whole velocity, it
adds no flow through a surface. What this leaves out: reversed flow, vortices and turbulence of the wake, and the boundary
layer. Beside several solids the flow is the mean of those around each, weighted by distance to the power -4, so that the
nearest surface lets no air through; their wakes multiply.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from companion.core.arrays import Array, Vector

DEFICIT_MAX = 0.9  # the base of a wake is nearly still; its reversed flow is not modelled
PLANE_WAKE = 0.98
DRAG_ROUND, DRAG_ANGULAR = 1.0, 2.0  # C_D of a long cylinder below the drag crisis, and of a long square prism
STILL_M_S = 1e-6
TOUCHING_M = 1e-6


@dataclass(frozen=True)
class Bluff:
    """A convex solid in the wind: a box, or a cylinder along its third axis; other solids by the box around them.

    R_WS: columns are the axes of the solid in W (3, 3). half_m: half its size along them (3,); of a cylinder radius,
    radius, half height.
    """

    centre_W: Array
    R_WS: Array
    half_m: Array
    round: bool = False

    def half_width_m(self, direction_W: Array) -> float:
        """Half the size of the solid along a unit vector."""
        along = np.abs(self.R_WS.T @ direction_W) * self.half_m
        if self.round:
            return float(np.hypot(along[0], along[1]) + along[2])
        return float(along.sum())

    def nearest(self, position_W: Array) -> tuple[float, Array]:
        """Distance [m] from the surface and unit normal there, in W; within the solid 0 and the normal of the next face."""
        local = self.R_WS.T @ (position_W - self.centre_W)
        excess = np.abs(local) - self.half_m
        if self.round:
            radial = float(np.hypot(local[0], local[1]))
            side = local[:2] / radial if radial > 0 else np.array([1.0, 0.0])
            parts = np.array([radial - self.half_m[0], excess[2]])
            axes = np.array([[side[0], side[1], 0.0], [0.0, 0.0, np.copysign(1.0, local[2])]])
        else:
            parts, axes = excess, np.diag(np.copysign(1.0, local))
        outside = np.maximum(parts, 0.0)
        distance_m = float(np.linalg.norm(outside))
        normal = (outside / distance_m) @ axes if distance_m > 0 else axes[int(np.argmax(parts))]
        return distance_m, self.R_WS @ normal


def wind_around(wind_W: Vector, mean_W: Vector, position_W: Vector, solids: Sequence[Bluff]) -> Array:
    """The wind at a place [m/s]. wind_W: far from all solids, with its gusts; mean_W: without, gives the wakes' direction.

    Continuous outside of the solids.
    """
    wind: Array = flow_around(mean_W, position_W, solids) @ np.asarray(wind_W, dtype=float)
    return wind


def flow_around(mean_W: Vector, position_W: Vector, solids: Sequence[Bluff]) -> Array:
    """The matrix (3, 3) that makes the wind at a place from the wind far from all solids, which it is linear in."""
    place, mean = (np.array(v, dtype=float) for v in (position_W, mean_W))
    speed = float(np.linalg.norm(mean))
    if not solids or speed < STILL_M_S:
        return np.eye(3)
    along_W = mean / speed
    u, weights, open_share = np.zeros((3, 3)), 0.0, 1.0
    for solid in solids:
        distance_m, normal_W = solid.nearest(place)
        weight = (distance_m + TOUCHING_M) ** -4
        sizes_m = _half_sizes(solid, along_W)
        u = u + weight * np.array([beside(unit, distance_m, normal_W, *sizes_m) for unit in np.eye(3)]).T
        weights += weight
        open_share *= 1.0 - wake_deficit(solid, along_W, place)
    result: Array = open_share * u / weights
    return result


def beside(wind_W: Array, distance_m: float, normal_W: Array, across_m: float, along_m: float) -> Array:
    """The wind of an ideal fluid beside a solid of these half sizes across and along the wind, from its distance and normal."""
    s = (across_m / (across_m + distance_m)) ** 2
    g = min(across_m / along_m, 1.0)
    through_W = (wind_W @ normal_W) * normal_W
    u: Array = wind_W - s * through_W + s * g * (wind_W - through_W)
    return u


def wake_deficit(solid: Bluff, along_W: Array, position_W: Array) -> float:
    """The share of the wind that is missing in the wake of a solid, 0 to DEFICIT_MAX; along_W: unit vector of the wind."""
    side_W, up_W = _cross_axes(along_W)
    offset = position_W - solid.centre_W
    x = float(offset @ along_W)
    if x <= 0:
        return 0.0
    half_width, half_height = solid.half_width_m(side_W), solid.half_width_m(up_W)
    strength_m = (DRAG_ROUND if solid.round else DRAG_ANGULAR) * 2.0 * min(half_width, half_height)
    deficit = min(PLANE_WAKE * np.sqrt(strength_m / x), DEFICIT_MAX)
    share = min(x / solid.half_width_m(along_W), 1.0)  # 0 at the widest section, 1 behind the solid
    across = _bell(float(offset @ side_W), half_width, strength_m * x) * _bell(
        float(offset @ up_W), half_height, strength_m * x
    )
    return float(deficit * share**2 * (3.0 - 2.0 * share) * across)


def _bell(y_m: float, half_m: float, spread_m2: float) -> float:
    """1 in the middle of a wake, ½ at its half-width."""
    return float(np.exp2(-(y_m**2) / (half_m**2 + spread_m2 / 16.0)))


def _half_sizes(solid: Bluff, along_W: Array) -> tuple[float, float]:
    """Half the size of a solid (across, along) the wind; the flow goes around the narrower way."""
    side_W, up_W = _cross_axes(along_W)
    return min(solid.half_width_m(side_W), solid.half_width_m(up_W)), solid.half_width_m(along_W)


def _cross_axes(along_W: Array) -> tuple[Array, Array]:
    """Two unit vectors across the wind: horizontal, and upwards of it."""
    side_W = np.array([-along_W[1], along_W[0], 0.0])
    length = float(np.linalg.norm(side_W))
    side_W = side_W / length if length > 1e-9 else np.array([0.0, 1.0, 0.0])
    return side_W, np.cross(along_W, side_W)

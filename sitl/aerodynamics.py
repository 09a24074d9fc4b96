"""Wind around solids: stowed in front, faster beside, slow behind. Pure functions of place and wind.

Beside a solid the flow is that of an ideal fluid around a circular cylinder, written with distance and normal instead of
polar coordinates. With radius a, distance d from the surface, its unit normal n, s = (a / (a + d))², and U the wind far
away, the classic solution (G. Batchelor, "An Introduction to Fluid Dynamics", 1967, section 6.6) is

    u = U - s (U·n) n + s g (U - (U·n) n),    g = 1

so there is no flow through the surface, and at most 2 |U| on it. For other solids a is half the width across the wind, d
and n belong to the nearest point, and g is the ratio of half the width across to half the length along the wind, at most
1: the speed-up on the sides of an ellipse (the same book, section 6.6), 0 for a plate along the wind.

Behind a solid the flow is slower by the deficit of a plane turbulent wake (H. Schlichting, "Boundary-Layer Theory", 7th
edition, section 24.b), with drag coefficient C_D, width h and distance x behind the centre:

    U_deficit / U = 0.98 √(C_D h / x), at most DEFICIT_MAX;   half-width b = √((h/2)² + C_D h x / 16)

and a Gaussian across, in width and in height. It starts at the widest section. Because it scales the whole velocity, it
adds no flow through a surface. What this leaves out: reversed flow, vortices and turbulence of the wake, and the boundary
layer. Beside several solids the flow is the mean of those around each, weighted by influence, (s / (1 - s))²: infinite on a
surface, which lets no air through, and (a/d)⁴ far away, so that a thin plate does not replace the flow around a pier on it.
Their wakes multiply.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from companion.core.arrays import Array, Vector

DEFICIT_MAX = 0.9  # the base of a wake is nearly still; its reversed flow is not modelled
PLANE_WAKE = 0.98
DRAG_ROUND, DRAG_ANGULAR = 1.0, 2.0  # C_D of a long cylinder below the drag crisis, and of a long square prism
STILL_M_S = 0.05
TOUCHING_M = 1e-6


@dataclass(frozen=True)
class Bluff:
    """A convex solid in the wind: a box, or a cylinder along its third axis.

    R_WS: columns are the axes of the solid in W (3, 3). half_m: half its size along them (3,); of a cylinder radius,
    radius, half height.
    """

    centre_W: Array
    R_WS: Array
    half_m: Array
    round: bool = False


class WindAround:
    """The wind around solids as a function of place. All outputs are continuous outside of the solids."""

    def __init__(self, solids: Sequence[Bluff]) -> None:
        self._centre = np.array([s.centre_W for s in solids]).reshape(-1, 3)
        self._R_SW = np.array([s.R_WS.T for s in solids]).reshape(-1, 3, 3)
        self._half = np.array([s.half_m for s in solids]).reshape(-1, 3)
        self._round = np.array([s.round for s in solids], dtype=bool)

    def __len__(self) -> int:
        return len(self._centre)

    def at(self, wind_W: Vector, mean_W: Vector, place_W: Vector) -> Array:
        """The wind at a place [m/s]. wind_W: far from all solids, with its gusts; mean_W: gives the wakes' direction."""
        u: Array = self.flow(mean_W, place_W) @ np.asarray(wind_W, dtype=float)
        return u

    def flow(self, mean_W: Vector, place_W: Vector) -> Array:
        """The matrix (3, 3) that makes the wind at a place of that far from all solids, in which it is linear."""
        mean, place = np.asarray(mean_W, dtype=float), np.asarray(place_W, dtype=float)
        speed = float(np.linalg.norm(mean))
        if not len(self) or speed < STILL_M_S:
            return np.eye(3)
        along_W = mean / speed
        distance, _ = self.nearest(place)
        across = self._half_across(along_W)
        apart = distance + TOUCHING_M
        weight = (across**2 / (apart * (2.0 * across + apart))) ** 2.0  # (s / (1 - s))²
        weight /= weight.sum()
        mixed: Array = np.einsum("n,nij->ij", weight, self.beside(along_W, place))
        return mixed * float(np.prod(1.0 - self.wakes(along_W, place)))

    def beside(self, along_W: Array, place_W: Array) -> Array:
        """The same for each solid alone and without wakes, (n, 3, 3); along_W: direction of the mean wind."""
        distance, normal = self.nearest(place_W)
        across = self._half_across(along_W)
        s = (across / (across + distance)) ** 2
        g = np.minimum(across / self._half_width(along_W), 1.0)
        through = normal[:, :, None] * normal[:, None, :]
        share = (s * g)[:, None, None]
        made: Array = (1.0 + share) * np.eye(3) - (s[:, None, None] + share) * through
        return made

    def wakes(self, along_W: Array, place_W: Array) -> Array:
        """The share of the wind that is missing behind each solid, (n,), 0 to DEFICIT_MAX."""
        side_W, up_W = _cross_axes(along_W)
        offset = place_W - self._centre
        x = np.maximum(offset @ along_W, 0.0)
        width, height = self._half_width(side_W), self._half_width(up_W)
        strength_m = np.where(self._round, DRAG_ROUND, DRAG_ANGULAR) * 2.0 * np.minimum(width, height)
        deficit = np.minimum(PLANE_WAKE * np.sqrt(strength_m / np.maximum(x, 1e-9)), DEFICIT_MAX)
        begun = np.minimum(x / self._half_width(along_W), 1.0)  # 0 at the widest section, 1 behind the solid
        spread = strength_m * x / 16.0
        bells = np.exp2(-((offset @ side_W) ** 2) / (width**2 + spread) - (offset @ up_W) ** 2 / (height**2 + spread))
        missing: Array = deficit * begun**2 * (3.0 - 2.0 * begun) * bells
        return missing

    def nearest(self, place_W: Array) -> tuple[Array, Array]:
        """Distance [m] from each surface (n,) and unit normal there (n, 3); within a solid 0 and that of the next face."""
        local = np.einsum("nij,nj->ni", self._R_SW, place_W - self._centre)
        parts, axes = np.abs(local) - self._half, np.copysign(1.0, local)
        radial = np.hypot(local[:, 0], local[:, 1])
        side = np.where(radial[:, None] > 0, local[:, :2] / np.maximum(radial, 1e-12)[:, None], [1.0, 0.0])
        parts[self._round, 0] = radial[self._round] - self._half[self._round, 0]
        parts[self._round, 1] = -np.inf  # the first entry stands for both
        outside = np.maximum(parts, 0.0)
        distance = np.linalg.norm(outside, axis=1)
        inside = distance == 0
        pointing = np.where(inside[:, None], parts == parts.max(axis=1, keepdims=True), outside)
        local_normal = pointing * axes
        local_normal[self._round, :2] = (pointing[:, :1] * side)[self._round]
        local_normal /= np.linalg.norm(local_normal, axis=1, keepdims=True)
        return distance, np.einsum("nji,nj->ni", self._R_SW, local_normal)

    def _half_across(self, along_W: Array) -> Array:
        """Half the width of each solid across the wind, the smaller one (n,)."""
        side_W, up_W = _cross_axes(along_W)
        across: Array = np.minimum(self._half_width(side_W), self._half_width(up_W))
        return across

    def _half_width(self, direction_W: Array) -> Array:
        """Half the size of each solid along a unit vector, (n,)."""
        along = np.abs(self._R_SW @ direction_W) * self._half
        half: Array = np.where(self._round, np.hypot(along[:, 0], along[:, 1]) + along[:, 2], along.sum(axis=1))
        return half


def _cross_axes(along_W: Array) -> tuple[Array, Array]:
    """Two unit vectors across the wind: horizontal, and upwards of it."""
    side_W = np.array([-along_W[1], along_W[0], 0.0])
    length = float(np.linalg.norm(side_W))
    side_W = side_W / length if length > 1e-9 else np.array([0.0, 1.0, 0.0])
    return side_W, np.cross(along_W, side_W)

"""Surfaces in coordinates of their own: u to the right and v up for someone who looks at them, (0, 0) in the middle.

A photograph's footprint is a rectangle in (u, v): the part of the surface that it shows within the GSD limit.
"""

import math
from typing import NamedTuple, Protocol

import numpy as np

from companion.core.arrays import Array

SAMPLES = 8_000  # of a surface at most, for GSD and the coverage of what is not plane
ROUNDING = 1e-9  # of a number of spacings: a length that is a whole number of them takes no further photograph
SAMPLE_M = 0.02  # distance of two samples at least: finer than any footprint's edge is known


class Footprint(NamedTuple):
    """In the coordinates of a surface [m]."""

    u_low: float
    u_high: float
    v_low: float
    v_high: float


class Surface(Protocol):
    """A part of a structure that is photographed."""

    @property
    def size_m(self) -> tuple[float, float]:
        """Length along u and v."""
        ...

    @property
    def closed(self) -> bool:
        """u goes all around."""
        ...

    @property
    def plane(self) -> bool: ...

    def points(self, uv: Array) -> Array:
        """Points of the world for (n, 2) coordinates; (n, 3)."""
        ...

    def normals(self, uv: Array) -> Array:
        """Unit vectors out of the surface; (n, 3)."""
        ...

    def right(self, u: float) -> Array:
        """Unit vector along u at a place."""
        ...

    def distance_m(self, points: Array) -> Array:
        """Distance of points of the world to the surface; (n,)."""
        ...


class Rectangle(NamedTuple):
    """A plane; x right, y up, n out of it (x × y)."""

    centre: Array
    x: Array
    y: Array
    size_m: tuple[float, float]
    closed: bool = False
    plane: bool = True

    @property
    def n(self) -> Array:
        """Unit normal."""
        return np.cross(self.x, self.y)

    def points(self, uv: Array) -> Array:
        points: Array = self.centre + uv[:, :1] * self.x + uv[:, 1:] * self.y
        return points

    def normals(self, uv: Array) -> Array:
        return np.tile(self.n, (len(uv), 1))

    def right(self, u: float) -> Array:
        return self.x

    def distance_m(self, points: Array) -> Array:
        offset = points - self.centre
        beyond = [
            np.maximum(np.abs(offset @ axis) - size / 2, 0.0)
            for axis, size in zip((self.x, self.y), self.size_m, strict=True)
        ]
        distance: Array = np.sqrt(beyond[0] ** 2 + beyond[1] ** 2 + (offset @ self.n) ** 2)
        return distance


class Cylinder(NamedTuple):
    """A round pier about a vertical axis; u is the length of the arc from the middle of its part, anticlockwise."""

    base: Array  # on the axis, at the lower edge
    radius_m: float
    height_m: float
    angle_mid_rad: float
    angle_rad: float
    plane: bool = False

    @property
    def size_m(self) -> tuple[float, float]:
        return self.radius_m * self.angle_rad, self.height_m

    @property
    def closed(self) -> bool:
        return self.angle_rad >= 2 * math.pi - 1e-6

    def _angles(self, u: Array) -> Array:
        angles: Array = self.angle_mid_rad + u / self.radius_m
        return angles

    def points(self, uv: Array) -> Array:
        points = self.base + self.radius_m * self.normals(uv)
        points[:, 2] += self.height_m / 2 + uv[:, 1]
        return points

    def normals(self, uv: Array) -> Array:
        angles = self._angles(uv[:, 0])
        return np.column_stack([np.cos(angles), np.sin(angles), np.zeros(len(uv))])

    def right(self, u: float) -> Array:
        angle = self.angle_mid_rad + u / self.radius_m
        return np.array([-math.sin(angle), math.cos(angle), 0.0])

    def distance_m(self, points: Array) -> Array:
        """Zero inside the pier, which is solid all around, also where only a part of it is photographed."""
        offset = points - self.base
        aside = np.maximum(np.hypot(offset[:, 0], offset[:, 1]) - self.radius_m, 0.0)
        above = np.maximum(np.abs(offset[:, 2] - self.height_m / 2) - self.height_m / 2, 0.0)
        distance: Array = np.hypot(aside, above)
        return distance


def grid(size_m: tuple[float, float]) -> Array:
    """Coordinates of the middles of equal cells all over a surface, at most `SAMPLES`; (n, 2)."""
    step = max(SAMPLE_M, math.sqrt(size_m[0] * size_m[1] / SAMPLES))
    counts = [max(1, math.floor(size / step)) for size in size_m]
    axes = [(np.arange(n) + 0.5) * size / n - size / 2 for n, size in zip(counts, size_m, strict=True)]
    u, v = np.meshgrid(*axes, indexing="ij")
    return np.column_stack([u.ravel(), v.ravel()])


def covered_share(size_m: tuple[float, float], footprints: list[Footprint]) -> float:
    """The part of a plane surface that a set of footprints covers, exact: the area of their union over that of the whole."""
    width, height = size_m
    us = np.unique(np.clip([x for f in footprints for x in (f.u_low, f.u_high)], -width / 2, width / 2))
    vs = np.unique(np.clip([x for f in footprints for x in (f.v_low, f.v_high)], -height / 2, height / 2))
    if len(us) < 2 or len(vs) < 2:
        return 0.0
    u, v = (us[1:] + us[:-1]) / 2, (vs[1:] + vs[:-1]) / 2
    covered = np.zeros((len(u), len(v)), dtype=bool)
    for f in footprints:
        covered |= ((u > f.u_low) & (u < f.u_high))[:, None] & ((v > f.v_low) & (v < f.v_high))[None, :]
    area = (np.diff(us)[:, None] * np.diff(vs)[None, :])[covered].sum()
    return min(1.0, float(area / (width * height)))


def centres(length_m: float, footprint_m: float, overlap: float, margin_m: float, closed: bool = False) -> list[float]:
    """Middles of equally spaced footprints along one coordinate: they overlap by `overlap` at least and reach `margin_m`
    beyond both ends; all around a closed one. One footprint that is long enough stands in the middle."""
    spacing = footprint_m * (1.0 - overlap)
    if closed:
        count = max(3, math.ceil(length_m / spacing - ROUNDING))
        return [length_m * (i / count - 0.5) for i in range(count)]
    reach = length_m + 2 * margin_m - footprint_m
    count = math.ceil(reach / spacing - ROUNDING) + 1
    if count < 2:
        return [0.0]
    return [reach * (i / (count - 1) - 0.5) for i in range(count)]

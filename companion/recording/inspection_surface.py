"""Photographs on a surface: where they look, what they show, and in which of its coordinates (u, v)."""

import math
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array, Mask
from companion.planning.camera import CameraPose, PayloadCamera, seen
from companion.planning.surfaces import Cylinder, Footprint, Rectangle, Surface

LINE_POINTS = 8001  # along the middle of a footprint: its edges to 1/2000 of its length
REACH = 2.0  # of the searched line on both sides of the middle, in footprints of the plan
EDGE_POINTS = 8  # of a photograph's outline, on each side: straight on a plane, curved on a cylinder
AWAY = 1e-9


class Pixels(NamedTuple):
    """Where a photograph shows a raster of places: from the middle of the picture, 1 at its right and lower edge."""

    x: Array  # (h, w)
    y: Array
    front: Mask  # (w,) the surface faces the camera; it does not change with v


def project(camera: PayloadCamera, surface: Surface, pose: CameraPose, us: Array, vs: Array) -> Pixels:
    """Where a pinhole shows the places (u, v) of a raster; us: (w,), vs: (h,).

    Both kinds of surface are p(u, v) = p(u, 0) + v e with a constant e, which is at right angles to the normals.
    """
    along = np.column_stack([us, np.zeros(len(us))])
    points, normals = surface.points(along), surface.normals(along)
    front = np.einsum("ij,ij->i", points - pose.p_W, normals) < 0
    ends = surface.points(np.array([[0.0, 0.0], [0.0, 1.0]]))
    start = (points - pose.p_W) @ pose.R_WC
    step = np.multiply.outer(vs, (ends[1] - ends[0]) @ pose.R_WC)
    x, y, depth = (step[:, None, axis] + start[None, :, axis] for axis in range(3))
    behind = depth < AWAY
    depth[behind] = AWAY
    x[behind] = np.inf
    fx, fy = camera.focal_px
    x *= 2 * fx / camera.width_px
    y *= 2 * fy / camera.height_px
    return Pixels(x / depth, y / depth, front)


def ray(camera: PayloadCamera, pose: CameraPose, xy: tuple[float, float]) -> Array:
    """Direction of a place of the picture (as `Pixels.xy`), not of unit length; (3,)."""
    fx, fy = camera.focal_px
    direction: Array = pose.R_WC @ np.array([xy[0] * camera.width_px / 2 / fx, xy[1] * camera.height_px / 2 / fy, 1.0])
    return direction


def hit(surface: Surface, start: Array, direction: Array, near_u: float = 0.0) -> tuple[float, float] | None:
    """Coordinates at which a ray meets a surface or its continuation; None: it misses, or meets the back.

    near_u: on a cylinder the coordinate u is the one nearest to this place, so that outlines go on over its seam.
    """
    if isinstance(surface, Rectangle):
        falling = float(surface.n @ direction)
        if falling > -AWAY:
            return None
        along = float(surface.n @ (surface.centre - start)) / falling
        offset = start + along * direction - surface.centre
        return (float(offset @ surface.x), float(offset @ surface.y)) if along > 0 else None
    assert isinstance(surface, Cylinder)
    offset = start - surface.base
    a = float(direction[:2] @ direction[:2])
    b = float(direction[:2] @ offset[:2])
    under = b * b - a * (float(offset[:2] @ offset[:2]) - surface.radius_m**2)
    if under < 0 or a < AWAY:
        return None
    along = (-b - math.sqrt(under)) / a
    if along <= 0:
        return None
    x, y, z = offset + along * direction
    u = (math.atan2(y, x) - surface.angle_mid_rad) * surface.radius_m
    around = 2 * math.pi * surface.radius_m
    return u + around * round((near_u - u) / around), float(z - surface.height_m / 2)


def outline(
    camera: PayloadCamera, surface: Surface, pose: CameraPose, near_u: float = 0.0
) -> list[tuple[float, float]]:
    """The edge of a photograph on a surface; on a cylinder without the parts that miss it."""
    steps = 1 if surface.plane else EDGE_POINTS
    corners = [(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)]
    places = [
        (a[0] + (b[0] - a[0]) * step / steps, a[1] + (b[1] - a[1]) * step / steps)
        for a, b in zip(corners, corners[1:] + corners[:1], strict=True)
        for step in range(steps)
    ]
    found = (hit(surface, pose.p_W, ray(camera, pose, place), near_u) for place in places)
    return [place for place in found if place is not None]


def middle_gsd_m(camera: PayloadCamera, surface: Surface, pose: CameraPose) -> float:
    """Size of a pixel where the optical axis meets a surface or its continuation [m]; NaN: it does not."""
    middle = hit(surface, pose.p_W, pose.R_WC[:, 2])
    if middle is None:
        return math.nan
    uv = np.array([middle])
    return float(seen(camera, pose, surface.points(uv), surface.normals(uv)).gsd_m[0])


def footprint(
    camera: PayloadCamera, surface: Surface, pose: CameraPose, gsd_max_m: float, planned: Footprint
) -> Footprint | None:
    """What a photograph shows within the GSD limit along the two lines through its middle; None: nothing.

    planned: of the same photograph in the plan, for the length of the search and the turn of a closed surface.
    """
    near_u = (planned.u_low + planned.u_high) / 2
    middle = hit(surface, pose.p_W, pose.R_WC[:, 2], near_u)
    if middle is None:
        return None
    ends = []
    for axis, length_m in ((0, planned.u_high - planned.u_low), (1, planned.v_high - planned.v_low)):
        line = np.tile(np.array(middle), (LINE_POINTS, 1))
        line[:, axis] += np.linspace(-REACH * length_m, REACH * length_m, LINE_POINTS)
        shown = seen(camera, pose, surface.points(line), surface.normals(line)).gsd_m <= gsd_max_m * (1 + 1e-9)
        if not shown[LINE_POINTS // 2]:
            return None
        # From the middle outwards to the first place that is not shown.
        after = np.flatnonzero(~shown[LINE_POINTS // 2 :])
        before = np.flatnonzero(~shown[: LINE_POINTS // 2][::-1])
        high = LINE_POINTS // 2 + (int(after[0]) - 1 if len(after) else LINE_POINTS // 2)
        low = LINE_POINTS // 2 - (int(before[0]) if len(before) else LINE_POINTS // 2)
        ends += [float(line[low, axis]), float(line[high, axis])]
    return Footprint(*ends)


def overlap(a: Footprint, b: Footprint, axis: int, around_m: float = math.inf) -> float:
    """The part of the longer footprint that both show, along u (axis 0) or v (1); negative: a gap between them.

    around_m: the length of a closed surface.
    """
    a_low, a_high = a[2 * axis], a[2 * axis + 1]
    b_low, b_high = b[2 * axis], b[2 * axis + 1]
    if math.isfinite(around_m):
        turn = around_m * round(((a_low + a_high) - (b_low + b_high)) / 2 / around_m)
        b_low, b_high = b_low + turn, b_high + turn
    return (min(a_high, b_high) - max(a_low, b_low)) / max(a_high - a_low, b_high - b_low)

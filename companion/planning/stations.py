"""From items of an inspection to stations: where the body stands, where the camera looks, what a photograph shows."""

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.core.config import ConfigError
from companion.core.frames import facing_yaw, quat_from_matrix, quat_from_rpy, rotation_matrix, wrap_angle
from companion.core.messages import WORLD
from companion.core.site import Site
from companion.core.trajectory_messages import Vec3
from companion.planning.camera import (
    CameraPose,
    PayloadCamera,
    View,
    camera_rotation,
    can_pitch,
    seen,
    turn,
    view,
)
from companion.planning.qgc import QgcStation, read_plan
from companion.planning.sections import (
    CylinderItem,
    HoldItem,
    Inspection,
    QgcItem,
    RectangleItem,
    SurfaceItem,
    UndersideItem,
    ViewpointsItem,
    along_x,
)
from companion.planning.surfaces import Cylinder, Footprint, Rectangle, Surface, centres

ALIGNED_COSINE = math.cos(math.radians(1.0))  # picture edges along the surface's axes: else the raster has gaps
PHOTOGRAPHS_MAX = 20_000  # of a surface: beyond it a number of the item is wrong
USEFUL_MIN_M = 0.01  # a footprint smaller than this is a stand-off at the very limit of the GSD
HELD_M = 0.15  # how exactly a station is held: within it a photograph is requested, and a plan keeps it as a reserve
TRIES = 40  # stand-offs that are tried for a cylinder
ARC_STEPS = 2000  # along a quarter of a cylinder


class Photograph(NamedTuple):
    """One photograph of a plan."""

    pose: CameraPose
    row: int  # of the raster; 0 for a viewpoint
    column: int
    uv: tuple[float, float] | None  # the middle of its footprint on the surface
    footprint: Footprint | None
    corners_W: Array | None  # (4, 3) of the footprint
    gsd_m: float | None  # in the middle


class Station(NamedTuple):
    """A stop of the path."""

    item: int  # index in the inspection
    p_W: Vec3  # of the body, from the take-off point
    yaw_rad: float
    pitch_rad: float  # of the gimbal
    stop_s: float
    photograph: Photograph | None


class Frame(NamedTuple):
    """The frame of an item in the world."""

    p_W: Array
    R_WF: Array
    yaw_rad: float  # added to headings

    def point(self, p: Vec3) -> Array:
        """A point of the frame in the world."""
        point: Array = self.p_W + self.R_WF @ np.array(p)
        return point


class PlannedItem(NamedTuple):
    """An item with its stations in the order in which they may be flown, and its surface if it has one."""

    surface: Surface | None
    orders: list[list[Station]]  # the ways to fly it, each from another corner
    standoff_m: float | None
    useful_m: tuple[float, float] | None  # size of a footprint


class Planning(NamedTuple):
    """What items are planned with; `where` begins error messages: file and item."""

    inspection: Inspection
    camera: PayloadCamera
    site: Site
    folder: Path  # of the mission file
    standoff_min_m: float  # of the safety table
    held_m: float = HELD_M  # reserve of stand-offs and of the path; 0: a plan of a log from before there was one
    beyond_sector: bool = (
        True  # photographs of a part of a cylinder show more than it; False: a plan of a log from before
    )

    @property
    def photo_stop_s(self) -> float:
        """Stop for a photograph of a surface [s]."""
        return self.inspection.settle_s + self.camera.exposure_s


def frame_of(name: str, planning: Planning, where: str) -> Frame:
    """The frame of an item; raises `ConfigError` when it is neither the world nor a bundle with a known place."""
    if name == WORLD:
        return Frame(np.zeros(3), np.eye(3), 0.0)
    if (bundle := planning.site.find(name)) is None:
        names = ", ".join([WORLD, *(bundle.name for bundle in planning.site.bundle)])
        raise ConfigError(f"{where}frame = '{name}': no such bundle (has: {names})")
    inspection = planning.inspection
    if place := next((place for place in inspection.bundle if place.name == name), None):
        q = quat_from_rpy(*place.rpy_rad)
        return Frame(np.array(place.p_m), rotation_matrix(q), facing_yaw(q))
    if bundle.survey is None or inspection.takeoff is None:
        missing = "inspection.takeoff" if bundle.survey is not None else f"[[inspection.bundle]] for '{name}'"
        raise ConfigError(f"{where}frame = '{name}': where this bundle stands is not known: missing {missing}")
    to_world = turn(inspection.takeoff.yaw_rad, 0.0).T
    p_W = to_world @ (np.array(bundle.survey.p_S) - np.array(inspection.takeoff.p_S))
    R_WM = to_world @ rotation_matrix(quat_from_rpy(*bundle.survey.rpy_S_rad))

    return Frame(p_W, R_WM, facing_yaw(quat_from_matrix(R_WM)))


def plan_item(index: int, planning: Planning, where: str) -> PlannedItem:
    """The stations of one item; raises `ConfigError` with `where` in front."""
    item = planning.inspection.item[index]
    match item:
        case HoldItem():
            frame = frame_of(item.frame, planning, where)
            p, yaw = _vec3(frame.point(item.p_m)), wrap_angle(item.yaw_rad + frame.yaw_rad)
            return PlannedItem(None, [[Station(index, p, yaw, 0.0, item.duration_s, None)]], None, None)
        case ViewpointsItem():
            return _viewpoints(index, item, planning, where)
        case QgcItem():
            return _qgc(index, item, planning, where)
        case _:
            return _surface(index, item, planning, where)


def surface_of(item: SurfaceItem, frame: Frame) -> Surface:
    """The surface of an item in the world."""
    match item:
        case RectangleItem():
            R = frame.R_WF @ rotation_matrix(quat_from_rpy(*item.rpy_rad))
            return Rectangle(frame.point(item.centre_m), R[:, 0], R[:, 1], item.size_m)
        case UndersideItem():
            yaw = item.yaw_rad + frame.yaw_rad
            along, across = (
                np.array([math.cos(yaw), math.sin(yaw), 0.0]),
                np.array([math.sin(yaw), -math.cos(yaw), 0.0]),
            )
            return Rectangle(frame.point(item.centre_m), along, across, item.size_m)
        case CylinderItem():
            # In a bundle's frame angles count from the side that its face looks to, opposite to the nose's heading.
            zero = frame.yaw_rad + math.pi if item.frame != WORLD else 0.0
            middle = zero + item.angle_start_rad + item.angle_rad / 2
            return Cylinder(frame.point(item.base_m), item.radius_m, item.height_m, middle, item.angle_rad)


# --- surfaces -------------------------------------------------------------------------------------------------------


def _surface(index: int, item: SurfaceItem, planning: Planning, where: str) -> PlannedItem:
    camera = planning.camera
    surface = surface_of(item, frame_of(item.frame, planning, where))
    _check_gsd(item, planning, where)
    standoff_m, gsd_m = item.standoff_m, item.gsd_mm_px / 1e3
    if standoff_m is None:
        standoff_m = _farthest(item, surface, planning, where)
        gsd_m = _kept_gsd_m(gsd_m, standoff_m, planning)
    useful = useful_size(camera, surface, standoff_m, gsd_m, where, planning.beyond_sector)
    rows_along_x = along_x(item)
    overlaps = (
        (item.overlap_along, item.overlap_between) if rows_along_x else (item.overlap_between, item.overlap_along)
    )
    if min(useful) < USEFUL_MIN_M:
        raise ConfigError(
            f"{where}standoff_m = {standoff_m:g}: gsd_mm_px = {item.gsd_mm_px:g} is exceeded beside the middle"
        )
    us = centres(surface.size_m[0], useful[0], overlaps[0], item.margin_m, surface.closed)
    vs = centres(surface.size_m[1], useful[1], overlaps[1], item.margin_m)
    if len(us) * len(vs) > PHOTOGRAPHS_MAX:
        raise ConfigError(f"{where}size: takes {len(us) * len(vs)} photographs, {PHOTOGRAPHS_MAX} can be planned")
    columns, rows = (us, vs) if rows_along_x else (vs, us)
    shots = [
        [
            _shot(
                index, surface, (c, r) if rows_along_x else (r, c), (row, column), standoff_m, useful, planning, where
            )
            for column, c in enumerate(columns)
        ]
        for row, r in enumerate(rows)
    ]
    # Rings begin anywhere; the planner takes the nearest place, so that the way there does not lead through the pier.
    starts = range(len(columns)) if surface.closed else (0,)
    orders = [
        _serpentine([row[start:] + row[:start] for row in shots[::row_step]], column_step)
        for start in starts
        for row_step in ((1, -1) if len(rows) > 1 else (1,))
        for column_step in ((1, -1) if len(columns) > 1 else (1,))
    ]
    return PlannedItem(surface, orders, standoff_m, useful)


def _serpentine(rows: list[list[Station]], step: int) -> list[Station]:
    """All stations, every second row backwards."""
    return [station for i, row in enumerate(rows) for station in row[:: step if i % 2 == 0 else -step]]


def useful_size(
    camera: PayloadCamera,
    surface: Surface,
    standoff_m: float,
    gsd_max_m: float,
    where: str = "",
    beyond_sector: bool = True,
) -> tuple[float, float]:
    """Length along u and v of what one photograph shows of a surface, or its continuation, within the GSD limit [m].

    beyond_sector: False: it ends with a part of a cylinder, as in plans of logs from before. Raises `ConfigError` when the
    picture's edges would not be parallel to the surface's axes.
    """
    pose = _pose(camera, surface, (0.0, 0.0), standoff_m).pose
    normal = surface.normals(np.zeros((1, 2)))[0]
    right = surface.right(0.0)
    up = np.cross(normal, right)
    halves = [size / 2 / f for size, f in zip((camera.width_px, camera.height_px), camera.focal_px, strict=True)]
    across = 0 if abs(right @ pose.R_WC[:, 0]) >= abs(right @ pose.R_WC[:, 1]) else 1
    if min(abs(right @ pose.R_WC[:, across]), abs(up @ pose.R_WC[:, 1 - across])) < ALIGNED_COSINE:
        raise ConfigError(
            f"{where}rpy_rad: the picture is level, the surface's x axis is not within 1° of its edges: turn the surface"
        )
    height_m = 2 * standoff_m * halves[1 - across]
    if surface.plane:
        return 2 * standoff_m * halves[across], height_m
    return 2 * _half_arc_m(camera, surface, pose, height_m / 2, gsd_max_m, beyond_sector), height_m


def _half_arc_m(
    camera: PayloadCamera, surface: Surface, pose: CameraPose, v: float, gsd_max_m: float, beyond_sector: bool = True
) -> float:
    """The largest u up to which a footprint's corners are in the picture and within the GSD limit; 0: none."""
    quarter_m = math.pi / 2 * _radius_m(surface)
    end_m = min(surface.size_m[0] / 2, quarter_m)
    for low_m, high_m in ((0.0, end_m), (end_m, quarter_m if beyond_sector else end_m)):
        us = np.linspace(low_m, high_m, ARC_STEPS)
        corners = np.column_stack([us, np.full(ARC_STEPS, v * (1 - 1e-9))])
        fits = seen(camera, pose, surface.points(corners), surface.normals(corners)).gsd_m <= gsd_max_m
        if not fits.all():
            return float(us[max(0, int(np.argmin(fits)) - 1)])
    return float(us[-1])


def _radius_m(surface: Surface) -> float:
    assert isinstance(surface, Cylinder)
    return surface.radius_m


def _check_gsd(item: SurfaceItem, planning: Planning, where: str) -> None:
    """The lens must be able to give the GSD at the smallest stand-off, and gives it at the stand-off of the item."""
    camera = planning.camera
    nearest_m = max(planning.standoff_min_m, camera.nearest_focus_m)
    if camera.gsd_m(nearest_m) * 1e3 > item.gsd_mm_px:
        cause = (
            "safety.standoff_min_m of the vehicle file"
            if nearest_m == planning.standoff_min_m
            else f"nearest_focus_m of {camera.name}"
        )
        raise ConfigError(
            f"{where}gsd_mm_px = {item.gsd_mm_px:g}: {camera.name} gives {camera.gsd_m(nearest_m) * 1e3:.3g} mm/px at the "
            f"smallest stand-off of {nearest_m:g} m ({cause})"
        )
    if item.standoff_m is None:
        return
    if item.standoff_m < nearest_m:
        raise ConfigError(f"{where}standoff_m = {item.standoff_m:g}: the smallest is {nearest_m:g} m")
    if camera.gsd_m(item.standoff_m) * 1e3 > item.gsd_mm_px * (1 + 1e-9):
        raise ConfigError(
            f"{where}standoff_m = {item.standoff_m:g}: {camera.name} gives {camera.gsd_m(item.standoff_m) * 1e3:.3g} mm/px "
            f"there, gsd_mm_px allows {item.gsd_mm_px:g} (up to {camera.distance_m(item.gsd_mm_px / 1e3):.3g} m)"
        )


def _farthest(item: SurfaceItem, surface: Surface, planning: Planning, where: str) -> float:
    """The stand-off with the largest footprint within the GSD: for a plane the farthest that the GSD permits.

    For a part of a cylinder that one column can show, the one with the fewest photographs, and of those the farthest.
    With a reserve for an aircraft that is farther than its station, and for one that is nearer. The nearer side counts where
    the limits leave no place for both.
    """
    camera, gsd_m = planning.camera, item.gsd_mm_px / 1e3
    limit_m = camera.distance_m(gsd_m)
    nearest_m = min(max(planning.standoff_min_m, camera.nearest_focus_m) + planning.held_m, limit_m)
    farthest_m = max(nearest_m, limit_m - planning.held_m)
    if surface.plane:
        return farthest_m
    tried: list[float] = np.linspace(nearest_m, farthest_m, TRIES).tolist()
    useful = {
        standoff_m: useful_size(
            camera, surface, standoff_m, _kept_gsd_m(gsd_m, standoff_m, planning), where, planning.beyond_sector
        )
        for standoff_m in tried
    }
    largest_m = max(useful, key=lambda standoff_m: math.prod(useful[standoff_m]))
    around_m = surface.size_m[0] + 2 * item.margin_m
    if surface.closed or not planning.beyond_sector or all(width_m < around_m for width_m, _ in useful.values()):
        return largest_m

    def photographs(standoff_m: float) -> tuple[int, float]:
        width_m, height_m = useful[standoff_m]
        us = centres(surface.size_m[0], max(width_m, USEFUL_MIN_M), item.overlap_along, item.margin_m)
        vs = centres(surface.size_m[1], height_m, item.overlap_between, item.margin_m)
        return len(us) * len(vs), -standoff_m

    return min(useful, key=photographs)


def _kept_gsd_m(gsd_m: float, standoff_m: float, planning: Planning) -> float:
    """The GSD at a station that leaves `gsd_m` to a camera farther by the reserve; `gsd_m` itself where it is beyond that."""
    farther_m = standoff_m + planning.held_m
    possible = farther_m <= planning.camera.distance_m(gsd_m) * (1 + 1e-9)
    return gsd_m * standoff_m / farther_m if possible else gsd_m


class _Aimed(NamedTuple):
    view: View
    pose: CameraPose


def _pose(camera: PayloadCamera, surface: Surface, uv: tuple[float, float], standoff_m: float) -> _Aimed:
    """The camera in front of a place of a surface, at the stand-off, looking along the normal."""
    at = np.array([uv])
    normal = surface.normals(at)[0]
    aimed = view(camera, -normal, surface.right(uv[0]))
    return _Aimed(aimed, CameraPose(surface.points(at)[0] + standoff_m * normal, aimed.R_WC))


def _shot(
    index: int,
    surface: Surface,
    uv: tuple[float, float],
    place: tuple[int, int],
    standoff_m: float,
    useful: tuple[float, float],
    planning: Planning,
    where: str,
) -> Station:
    camera = planning.camera
    aimed, pose = _pose(camera, surface, uv, standoff_m)
    _check_pitch(camera, aimed.pitch_rad, where)
    (u, v), (width, height) = uv, useful
    footprint = Footprint(u - width / 2, u + width / 2, v - height / 2, v + height / 2)
    left, right, low, high = footprint
    corners = surface.points(np.array([[left, low], [right, low], [right, high], [left, high]]))
    photograph = Photograph(pose, *place, uv, footprint, corners, camera.gsd_m(standoff_m))
    body = pose.p_W - turn(aimed.yaw_rad, 0.0) @ np.array(camera.p_BC)
    return Station(index, _vec3(body), aimed.yaw_rad, aimed.pitch_rad, planning.photo_stop_s, photograph)


def _check_pitch(camera: PayloadCamera, pitch_rad: float, where: str) -> None:
    if not can_pitch(camera, pitch_rad):
        low, high = (math.degrees(p) for p in camera.pitch_range_rad)
        raise ConfigError(
            f"{where}the camera must look {math.degrees(pitch_rad):.0f}° up from its mount; pitch_range_rad of "
            f"{camera.name} reaches from {low:.0f}° to {high:.0f}°"
        )


# --- viewpoints -----------------------------------------------------------------------------------------------------


def _viewpoints(index: int, item: ViewpointsItem, planning: Planning, where: str) -> PlannedItem:
    frame = frame_of(item.frame, planning, where)
    stop_s = item.settle_s + planning.camera.exposure_s
    stations = []
    for number, point in enumerate(item.points):
        yaw = wrap_angle(point.yaw_rad + frame.yaw_rad)
        stations.append(
            _free_shot(
                index,
                frame.point(point.p_m),
                yaw,
                point.pitch_rad,
                stop_s,
                number,
                planning,
                f"{where}points[{number}]: ",
            )
        )
    return PlannedItem(None, [stations], None, None)


def _free_shot(
    index: int,
    p_W: Array,
    yaw_rad: float,
    elevation_rad: float,
    stop_s: float,
    number: int,
    planning: Planning,
    where: str,
) -> Station:
    """A photograph that looks at no surface of the plan."""
    aimed = camera_rotation(planning.camera, yaw_rad, elevation_rad)
    _check_pitch(planning.camera, aimed.pitch_rad, where)
    eye = p_W + turn(yaw_rad, 0.0) @ np.array(planning.camera.p_BC)
    photograph = Photograph(CameraPose(eye, aimed.R_WC), 0, number, None, None, None, None)
    return Station(index, _vec3(p_W), yaw_rad, aimed.pitch_rad, stop_s, photograph)


def _qgc(index: int, item: QgcItem, planning: Planning, where: str) -> PlannedItem:
    origin = planning.inspection.origin
    if origin is None:
        raise ConfigError(f"{where}file: needs [inspection.origin]")
    stations = []
    for number, read in enumerate(read_plan(planning.folder / item.file, origin)):
        p = np.array(read.p_W)
        stop_s = read.stop_s + (planning.camera.exposure_s if read.photograph else 0.0)
        if read.photograph:
            pitch = _elevation(read, planning.camera)
            stations.append(_free_shot(index, p, read.yaw_rad, pitch, stop_s, number, planning, f"{where}"))
        else:
            stations.append(Station(index, read.p_W, read.yaw_rad, 0.0, stop_s, None))
    return PlannedItem(None, [stations], None, None)


def _elevation(read: QgcStation, camera: PayloadCamera) -> float:
    """Elevation of the optical axis: as the gimbal command says, else as the camera is mounted."""
    if read.pitch_rad is None:
        return camera_rotation(camera, 0.0, 0.0).pitch_rad * -1.0
    return read.pitch_rad


def _vec3(v: Array) -> Vec3:
    return float(v[0]), float(v[1]), float(v[2])

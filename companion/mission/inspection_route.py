"""The stations of an inspection as they are flown: each in the frame of its item, wherever that is found in flight.

The plan assumes where the bundles stand; in flight an item follows its own bundle, as the filter has it. Until that has been
seen its place follows from another bundle and from how the plan has both to each other.
"""

import math
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.core.frames import (
    facing_yaw,
    quat_from_matrix,
    quat_from_rpy,
    quat_multiply,
    rotation_matrix,
    wrap_angle,
)
from companion.core.messages import WORLD
from companion.core.trajectory_messages import Quat, Vec3
from companion.mission import reference_geometry as geometry
from companion.mission.plan import Plan
from companion.planning.planner import CHECKED_EVERY_M, InspectionPlan, Leg
from companion.planning.sections import SurfaceItem
from companion.planning.stations import Planning, Station, frame_of
from companion.planning.surfaces import Surface

ROUNDING_M = 1e-6  # of a way that keeps exactly the distance
NUDGE_M = 1e-3  # by which the direction away from a surface is found
UPRIGHT: Quat = (1.0, 0.0, 0.0, 0.0)

Place = tuple[str, int, int]  # item, row, column: the same photograph in every flight of a plan


class Pose(NamedTuple):
    """Of a frame in the world: the filter's, or the plan's."""

    p: Vec3
    q: Quat


class Wanted(NamedTuple):
    """A photograph of the plan."""

    id: int
    place: Place
    pitch_rad: float
    distance_m: float


class Corner(NamedTuple):
    """A place of the plan in the frame of its item, passed without a stop."""

    frame: str
    p: Vec3
    yaw_rad: float


class Stop(NamedTuple):
    """A station in the frame of its item; photograph: None where nothing, or nothing more, is photographed."""

    item: str
    frame: str
    p: Vec3
    yaw_rad: float
    stop_s: float
    photograph: Wanted | None
    home: list[Corner]  # over which the way home leads, from it and from the move that begins there
    clear_out: bool  # that way is free by the plan, to it
    clear_home: bool  # and from it


class PlacedSurface(NamedTuple):
    """A surface where the plan assumes it, with the frame that it stands in."""

    name: str
    frame: str
    surface: Surface


class Nearest(NamedTuple):
    """The nearest surface of the plan: its distance, and the unit vector away from it, in the world."""

    distance_m: float
    away_W: Vec3


class Passed(NamedTuple):
    """A surface that a straight way leads too near to."""

    name: str
    distance_m: float

    def __str__(self) -> str:
        return f"'{self.name}' at {self.distance_m:.2f} m"


class Route(NamedTuple):
    """What one flight of an inspection flies."""

    stops: list[Stop]
    lead_in: int  # stops before the first photograph of the plan: the way to any other stop leads over them
    surfaces: list[PlacedSurface]
    assumed: dict[str, Pose]  # of the frames of items, by the plan
    leg: Leg
    wanted: int  # photographs of the whole plan
    before: int  # of these, taken in former flights
    later: int  # photographs that are left for another battery
    on_camera_failure: str
    standoff_min_m: float

    @property
    def frames(self) -> set[str]:
        """All bundles that items are relative to."""
        return set(self.assumed) - {WORLD}

    def predicted(self, frame: str, by: str, pose: Pose) -> Pose:
        """Where a bundle stands that was not seen yet, from the pose of another one (or of the take-off point)."""
        known, wanted = self.assumed[by], self.assumed[frame]
        turn = 0.0 if by == WORLD else wrap_angle(facing_yaw(pose.q) - facing_yaw(known.q))
        q_turn = quat_from_rpy(0.0, 0.0, turn)
        p = rotation_matrix(q_turn) @ (np.array(wanted.p) - known.p) + pose.p
        return Pose(_vec3(p), _quat(quat_multiply(q_turn, wanted.q)))

    def nearest_to(self, frame: str, frames: set[str]) -> str:
        """Of some frames that which stands nearest to another one, by the plan."""
        p = self.assumed[frame].p
        return min(sorted(frames), key=lambda name: math.dist(self.assumed[name].p, p))

    def nearest_surface(self, p_W: Vec3, poses: dict[str, Pose]) -> Nearest | None:
        """poses: of all frames as they are now; None without a surface."""
        found = [
            _away(placed.surface, p_W, poses[placed.frame], self.assumed[placed.frame])
            for placed in self.surfaces
            if placed.frame in poses
        ]
        return min(found, key=lambda nearest: nearest.distance_m, default=None)

    def obstacle(self, start_W: Vec3, end_W: Vec3, poses: dict[str, Pose], reserve_m: float = 0.0) -> Passed | None:
        """The surface that a straight way passes nearer than `standoff_min_m` and a reserve; None: it is free.

        Where the way begins nearer than that, it may, but it may lead no nearer. poses: as for `nearest_surface`.
        """
        points = np.linspace(start_W, end_W, max(2, math.ceil(math.dist(start_W, end_W) / CHECKED_EVERY_M) + 1))
        for placed in self.surfaces:
            if placed.frame not in poses:
                continue
            distances = placed.surface.distance_m(
                _where_planned(points, poses[placed.frame], self.assumed[placed.frame])
            )
            nearest_m = float(distances.min())
            if nearest_m < min(self.standoff_min_m + reserve_m, float(distances[0])) - ROUNDING_M:
                return Passed(placed.name, nearest_m)
        return None


def to_frame(p_W: Vec3, yaw_rad: float, frame: str, pose: Pose) -> tuple[Vec3, float]:
    """A world point and heading in a frame; WORLD's is upright at the take-off point."""
    if frame == WORLD:
        return geometry.difference(p_W, pose.p), wrap_angle(yaw_rad)
    return geometry.to_bundle(p_W, yaw_rad, pose.p, pose.q)


def to_world(p: Vec3, yaw_rad: float, frame: str, pose: Pose) -> tuple[Vec3, float]:
    """The inverse of `to_frame`."""
    if frame == WORLD:
        return geometry.added(p, pose.p), wrap_angle(yaw_rad)
    return geometry.to_world(p, yaw_rad, pose.p, pose.q)


def place_of(planning: Planning, station: Station) -> Place | None:
    """Which photograph a station takes."""
    if station.photograph is None:
        return None
    return planning.inspection.item[station.item].name, station.photograph.row, station.photograph.column


def route_of(planning: Planning, planned: InspectionPlan, mission: Plan, photographed: frozenset[Place]) -> Route:
    """The stops of the plan's first flight. photographed: in former flights; those are passed without a stop.

    A flight that begins later in the plan comes over the stations before the first photograph. One whose last photographs
    exist ends at the last that is missing.
    """
    inspection = planning.inspection
    names = {WORLD, *(item.frame for item in inspection.item), *filter(None, (mission.bundle,))}
    assumed = {name: _assumed(name, planning) for name in names}
    flight, lead_in = planned.flights[0], len(planned.leads[-1].out)
    stops, wanted, ends, exist = [], 0, 0, False
    for number, station in enumerate(planned.stations):
        place, leads = place_of(planning, station), planned.leads[number]
        wanted += place is not None
        comes_over = number < min(lead_in, flight.first)
        if not (comes_over or flight.first <= number <= flight.last):
            continue
        passed = comes_over or place in photographed
        photograph = None if passed or place is None else _wanted(wanted, place, station, planning)
        home = [station, *leads.home] if number < lead_in else leads.home
        stops.append(
            Stop(
                inspection.item[station.item].name,
                *_corner(station, planning, assumed),
                0.0 if passed else station.stop_s,
                photograph,
                [_corner(other, planning, assumed) for other in home],
                leads.clear_out,
                leads.clear_home,
            )
        )
        exist = photograph is None and (exist or place in photographed)  # since the last one that is missing
        ends = len(stops) if photograph is not None else ends
    if ends and exist:
        stops = stops[:ends]
    surfaces = [
        PlacedSurface(item.name, item.frame, planned_item.surface)
        for item, planned_item in zip(inspection.item, planned.items, strict=True)
        if planned_item.surface is not None
    ]
    leg = Leg(inspection.speed_m_s, inspection.acceleration_m_s2, inspection.yaw_rate_rad_s)
    taken = sum(place_of(planning, station) in photographed for station in planned.stations)
    now = sum(stop.photograph is not None for stop in stops)
    return Route(
        stops,
        min(lead_in, len(stops)),
        surfaces,
        assumed,
        leg,
        wanted,
        taken,
        wanted - taken - now,
        inspection.on_camera_failure,
        planning.standoff_min_m,
    )


def _assumed(name: str, planning: Planning) -> Pose:
    frame = frame_of(name, planning, f"inspection.bundle '{name}': ")
    return Pose(_vec3(frame.p_W), _quat(quat_from_matrix(frame.R_WF)))


def _wanted(number: int, place: Place, station: Station, planning: Planning) -> Wanted:
    item, distance_m = planning.inspection.item[station.item], math.nan
    if isinstance(item, SurfaceItem) and station.photograph is not None and station.photograph.gsd_m is not None:
        distance_m = planning.camera.distance_m(station.photograph.gsd_m)
    return Wanted(number, place, station.pitch_rad, distance_m)


def _corner(station: Station, planning: Planning, assumed: dict[str, Pose]) -> Corner:
    """Where a station is in the frame of its item."""
    frame = planning.inspection.item[station.item].frame
    return Corner(frame, *to_frame(station.p_W, station.yaw_rad, frame, assumed[frame]))


def _where_planned(points_W: Array, pose: Pose, assumed: Pose) -> Array:
    """Points of the world, (n, 3), moved with a frame to where the plan assumes that frame."""
    R, R_plan = rotation_matrix(pose.q), rotation_matrix(assumed.q)
    moved: Array = np.array(assumed.p) + (points_W - np.array(pose.p)) @ R @ R_plan.T
    return moved


def _away(surface: Surface, p_W: Vec3, pose: Pose, assumed: Pose) -> Nearest:
    """Distance of a point of the world from a surface, and the gradient of the distance."""
    nudges = NUDGE_M * np.vstack([np.zeros((1, 3)), np.eye(3), -np.eye(3)])
    distances = surface.distance_m(_where_planned(np.array(p_W) + nudges, pose, assumed))
    gradient = distances[1:4] - distances[4:7]
    length = float(np.linalg.norm(gradient))
    away = gradient / length if length > 0.0 else np.array([0.0, 0.0, 1.0])
    return Nearest(float(distances[0]), _vec3(away))


def _vec3(v: Array) -> Vec3:
    return float(v[0]), float(v[1]), float(v[2])


def _quat(q: Array) -> Quat:
    return float(q[0]), float(q[1]), float(q[2]), float(q[3])

"""The inspection of a mission with the files that it names, planned for the aircraft that flies it."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from companion.core.config import ConfigError, load
from companion.core.frames import wrap_angle
from companion.core.site import Site
from companion.core.trajectory_messages import Vec3
from companion.core.vehicle import Vehicle
from companion.mission.conditions import ARRIVED_S
from companion.mission.entry_actions import DESCENT_END_M, DESCENT_M_S
from companion.mission.inspection_route import Place, Route, place_of, route_of
from companion.mission.plan import Limits, Plan, leaves_limits, outside_m
from companion.mission.reference_geometry import SAME_POINT_M
from companion.planning.camera import PayloadCamera, load_camera
from companion.planning.planner import Approach, InspectionPlan, Leg, Surroundings, make_plan
from companion.planning.sections import Battery, Inspection
from companion.planning.stations import Planning, frame_of

ROUNDING_M = 1e-6  # of a point that keeps exactly the reserve


class LoadedInspection(NamedTuple):
    """What an inspection names, and the plan of it."""

    planning: Planning
    battery: Battery
    plan: InspectionPlan
    mission: Plan
    photographed: frozenset[Place]  # in former flights

    @property
    def camera(self) -> PayloadCamera:
        return self.planning.camera

    def route(self) -> Route:
        """The stops of the next flight."""
        return route_of(self.planning, self.plan, self.mission, self.photographed)


def load_inspection(
    mission: Plan, site: Site, vehicle: Vehicle, path: str | Path, photographed: Iterable[Place] = ()
) -> LoadedInspection | None:
    """Read the files of a loaded mission's inspection and plan it; None without one.

    path: the mission file, for messages. photographed: in former flights; the first flight of the plan begins at the first
    photograph that is missing. Raises `ConfigError`, one line, for what cannot be photographed or flown.
    """
    inspection = mission.inspection
    if inspection is None:
        return None
    _check_places(inspection, site, path)
    if inspection.origin is not None and inspection.origin.heading_deg != 0.0:
        raise ConfigError(
            f"{path}: inspection.origin.heading_deg = {inspection.origin.heading_deg:g}: is flown with 0 alone: x of the plan "
            f"is east and y is north; turn the plan's points instead"
        )
    folder = Path(path).parent
    battery = load((folder / inspection.battery).resolve(), Battery)
    camera = load_camera(str((folder / inspection.camera).resolve()))
    planning = Planning(inspection, camera, site, folder, vehicle.safety.standoff_min_m)
    mass_kg = vehicle.mass_kg + (0.0 if inspection.camera_in_vehicle_mass else camera.mass_kg)
    command = vehicle.hover_thrust() * mass_kg / vehicle.mass_kg
    if not command < vehicle.throttle_limit:
        raise ConfigError(
            f"{path}: inspection.camera: with {camera.name} ({camera.mass_kg:g} kg) a hover takes {command:.2f} of full "
            f"thrust; the vehicle file allows {vehicle.throttle_limit:.2f}"
        )
    around = surroundings(mission, mass_kg, planning, path)
    done = frozenset(photographed)
    planned = make_plan(mission.name, path, planning, battery, around)
    if done:
        places = (place_of(planning, station) for station in planned.stations)
        missing = (n for n, place in enumerate(places) if place is not None and place not in done)
        first = next(missing, None)
        if first is None:
            raise ConfigError(f"{path}: inspection: all {planned.photographs} photographs were taken in former flights")
        planned = make_plan(mission.name, path, planning, battery, around, first)
    return LoadedInspection(planning, battery, planned, mission, done)


def _check_places(inspection: Inspection, site: Site, path: str | Path) -> None:
    known, named = [bundle.name for bundle in site.bundle], [place.name for place in inspection.bundle]
    if twice := [name for name in named if named.count(name) > 1]:
        raise ConfigError(f"{path}: inspection.bundle: the name '{twice[0]}' is used twice")
    for place in inspection.bundle:
        if place.name not in known:
            raise ConfigError(
                f"{path}: inspection.bundle '{place.name}': not in the marker file (has: {', '.join(known)})"
            )


def surroundings(plan: Plan, mass_kg: float, planning: Planning, path: str | Path) -> Surroundings:
    """What of a mission the planner needs; the path keeps off from the limits by `planning.held_m`.

    path: for messages. Raises `ConfigError` where it is not known where the bundle of a stand-off point stands.
    """
    search, back, yaw_rate = plan.search, plan.return_, plan.yaw_rate_rad_s
    waypoints = [(w.p_m, w.yaw_rad) for w in search.waypoints] if search is not None else []
    limits = search if search is not None else back
    return Surroundings(
        plan.takeoff.height_m,
        waypoints,
        Leg(limits.speed_m_s, limits.acceleration_m_s2, yaw_rate),
        search.confirm_s if search is not None else 0.0,
        back.height_m,
        Leg(back.speed_m_s, back.acceleration_m_s2, yaw_rate),
        Leg(DESCENT_M_S, back.acceleration_m_s2, yaw_rate),
        DESCENT_END_M,
        lambda point: _refusal(point, plan.limits, planning.held_m),
        mass_kg,
        _approach(plan, planning, path),
    )


def _approach(plan: Plan, planning: Planning, path: str | Path) -> Approach | None:
    """The stand-off point of a mission, where it assumes its bundle."""
    standoff = plan.standoff
    if plan.bundle is None or standoff is None:
        return None
    frame = frame_of(plan.bundle, planning, f"{path}: standoff: ")
    x, y, z = frame.point(standoff.offset_M).tolist()
    leg = Leg(standoff.speed_m_s, standoff.acceleration_m_s2, standoff.yaw_rate_rad_s)
    hold_s = plan.hold.duration_s if plan.hold is not None else 0.0
    return Approach((x, y, z), wrap_angle(standoff.yaw_rad + frame.yaw_rad), leg, ARRIVED_S + hold_s)


def _refusal(point: Vec3, limits: Limits, reserve_m: float) -> str:
    """Why a point of the plan is not allowed; the descent onto the take-off point ends below the lowest reference."""
    lands = math.hypot(point[0], point[1]) < SAME_POINT_M and 0.0 <= point[2] < limits.lowest_m
    return "" if lands else leaves_limits(point, limits) or _without_reserve(point, limits, reserve_m)


def _without_reserve(point: Vec3, limits: Limits, reserve_m: float) -> str:
    """Which limit a point within all of them is too near to for an aircraft that holds its place within the reserve.

    Not the lowest height: its monitor has a reserve of its own (`companion.mission.monitors.LOW_M`).
    """
    inside = {
        "the fence": -outside_m(point, limits),
        f"limits.height_m = {limits.height_m:g}": limits.height_m - point[2],
        f"limits.distance_m = {limits.distance_m:g}": limits.distance_m - math.hypot(point[0], point[1]),
    }
    limit, left_m = min(inside.items(), key=lambda found: found[1])
    if left_m >= reserve_m - ROUNDING_M:
        return ""
    missing_m = reserve_m - left_m
    return f"{left_m:.2f} m within {limit}; {reserve_m:g} m are needed (how exactly a place is held): {missing_m:.2f} m are missing"

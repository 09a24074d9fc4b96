"""The mission file: what to fly, typed, with unit and range (config/missions/*.toml).

Points of a plan are relative to the take-off point (x east, y north, z up). The stand-off, and a trajectory if it says
so, are relative to the bundle, because the estimator determines the place of the bundle in flight. A plan without a
bundle has neither search nor stand-off nor hold, flies its trajectory over the take-off point and needs no camera.
"""

import math
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from companion.core.config import ConfigError, Section, integer, number, parse, read_toml
from companion.core.messages import WORLD
from companion.core.site import Site, load_site
from companion.core.trajectory_messages import Vec3
from companion.core.vehicle import Vehicle
from companion.mission.curves import Curve, fastest_m_s, points_of, to_trajectory, turn_rate_rad_s
from companion.planning.sections import Inspection, with_absolute_paths

Point = tuple[
    Annotated[float, number(-500, 500, "m")],
    Annotated[float, number(-500, 500, "m")],
    Annotated[float, number(-200, 200, "m")],
]
Pulse = Annotated[int, integer(500, 2500, "µs")]
Speed = Annotated[float, number(0.05, 5, "m/s")]
Acceleration = Annotated[float, number(0.05, 3, "m/s²")]
YawRate = Annotated[float, number(0.05, 2, "rad/s")]
YAW_RATE_RAD_S = 0.4  # of moves, in a plan without a search
Angle = Annotated[float, number(-math.pi, math.pi, "rad")]
YAW_RESERVE = 0.9  # of the vehicle's largest yaw rate: the rest catches up what is missing at the beginning
LOWEST_M = 0.5  # over the take-off point, where the mission file says nothing else: the ground may rise, an aircraft hangs below its point
Height = Annotated[float, number(LOWEST_M, 120, "m over the take-off point")]


class RcSwitch(Section, frozen=True):
    """A channel of the pilot's RC; between the two ranges the switch keeps the position it had."""

    channel: Annotated[int, integer(1, 18)]
    off_us: tuple[Pulse, Pulse]
    on_us: tuple[Pulse, Pulse]


class Takeoff(Section, frozen=True):
    height_m: Height


class Waypoint(Section, frozen=True):
    p_m: Point
    yaw_rad: Angle  # 0 looks along x (east)


class Search(Section, frozen=True):
    """Where to look for the bundle."""

    speed_m_s: Speed
    acceleration_m_s2: Acceleration
    yaw_rate_rad_s: YawRate
    confirm_s: Annotated[float, number(0.2, 30, "s")]  # how long the bundle must be seen without a break
    timeout_s: Annotated[float, number(1, 600, "s")]  # time to look from one waypoint before the next
    waypoints: Annotated[list[Waypoint], Meta(min_length=1)]


class Standoff(Section, frozen=True):
    """Where to hold, in the bundle's frame."""

    offset_M: tuple[
        Annotated[float, number(-20, 20, "m")],
        Annotated[float, number(-20, 20, "m")],
        Annotated[float, number(0.5, 20, "m out of the face")],
    ]
    yaw_rad: Angle  # relative to facing the bundle
    speed_m_s: Speed
    acceleration_m_s2: Acceleration
    yaw_rate_rad_s: YawRate


class HoldTime(Section, frozen=True):
    duration_s: Annotated[float, number(1, 3600, "s")]


class Photographs(Section, frozen=True):
    at_s: list[Annotated[float, number(0, 3600, "s after the hold began")]]
    max_error_m: Annotated[float, number(0.01, 5, "m")]  # position error above which the shutter waits


class Return(Section, frozen=True):
    height_m: Height
    speed_m_s: Speed
    acceleration_m_s2: Acceleration


class Retreat(Section, frozen=True):
    """How far to back away from the structure, along z of the bundle."""

    distance_m: Annotated[float, number(0.2, 20, "m")]
    speed_m_s: Speed
    acceleration_m_s2: Acceleration


class Limits(Section, frozen=True):
    """The volume that the aircraft may not leave, around the take-off point."""

    fence_min_m: Point
    fence_max_m: Point
    height_m: Height
    distance_m: Annotated[float, number(1, 1000, "m, horizontal")]
    # The lowest point of a reference before the landing; None: `LOWEST_M`. Negative for a take-off above what is inspected.
    height_min_m: Annotated[float, number(-200, 120, "m over the take-off point")] | None = None

    @property
    def lowest_m(self) -> float:
        """The lowest height of a reference over the take-off point [m], before the landing."""
        return LOWEST_M if self.height_min_m is None else self.height_min_m


class Plan(Section, frozen=True, kw_only=True, rename={"return_": "return"}):
    """A mission file; `marker_file` is absolute after `load_plan`."""

    name: Annotated[str, Meta(min_length=1)]
    marker_file: str | None = None  # relative to the mission file; with `bundle`, or not at all
    bundle: str | None = None
    satellites: bool = True  # False: the flight controller has no position (EKF2_GPS_CTRL 0); see docs/configuration.md
    start: Literal["auto", "rc_switch"]
    rc_switch: RcSwitch | None = None  # required by start = "rc_switch", refused otherwise
    takeoff: Takeoff
    search: Search | None = None  # required with a bundle, refused without
    standoff: Standoff | None = None  # likewise
    hold: HoldTime | None = None  # likewise, but a bundle with a trajectory may do without
    photographs: Photographs | None = None  # in a hold; required without a trajectory (`at_s` may be empty)
    trajectory: Curve | None = None  # flown after the hold, or without one
    inspection: Inspection | None = None  # flown after the hold, or without one; planned by `companion plan`, too
    return_: Return
    retreat: Retreat
    limits: Limits

    @property
    def yaw_rate_rad_s(self) -> float:
        """Yaw rate of moves that have none of their own."""
        return self.search.yaw_rate_rad_s if self.search else YAW_RATE_RAD_S

    @property
    def speed_m_s(self) -> float:
        """The highest speed of the plan's references."""
        tables = (self.search, self.standoff, self.return_, self.retreat)
        speeds = [table.speed_m_s for table in (*tables, self.inspection) if table is not None]
        return max(speeds if self.trajectory is None else [*speeds, fastest_m_s(self.trajectory)])

    @property
    def needs_camera(self) -> bool:
        """The mission observes a bundle: camera and tracker must run."""
        return self.bundle is not None

    def uses(self, bundle: str) -> bool:
        """References may be relative to this bundle of the marker file; an inspection goes by those that it sees."""
        return bundle == self.bundle or self.inspection is not None

    @property
    def trajectory_at_bundle(self) -> bool:
        """The trajectory is flown in the bundle's frame."""
        return self.trajectory is not None and self.trajectory.frame != WORLD


def load_plan(path: str | Path) -> Plan:
    """Read a mission file and the marker file it names.

    Returns the plan with `marker_file` as an absolute path. Raises `ConfigError` (one line) for unknown, missing or
    out-of-range keys, for a bundle the marker file does not have, and for points outside the plan's own limits.
    """
    plan = parse(read_toml(path), Plan, str(path))
    if plan.marker_file is not None:
        marker_file = (Path(path).parent / plan.marker_file).resolve()
        check_bundle(plan, load_site(marker_file), f"{path}: ")
        plan = msgspec.structs.replace(plan, marker_file=str(marker_file))
    if plan.inspection is not None:
        inspection = with_absolute_paths(plan.inspection, Path(path).parent)
        plan = msgspec.structs.replace(plan, inspection=inspection)
    if problem := _incomplete(plan) or _contradiction(plan):
        raise ConfigError(f"{path}: {problem}")
    return plan


def site_of(plan: Plan) -> Site:
    """The marker file of a loaded plan; without bundles for a plan that names none. Raises `ConfigError`."""
    return Site(bundle=[]) if plan.marker_file is None else load_site(plan.marker_file)


def check_bundle(plan: Plan, site: Site, where: str = "") -> None:
    """Raise `ConfigError` when the plan's bundle is not in the marker file."""
    if plan.bundle is not None and site.find(plan.bundle) is None:
        names = ", ".join(bundle.name for bundle in site.bundle)
        file = Path(plan.marker_file or "the marker file").name
        raise ConfigError(f"{where}bundle '{plan.bundle}': not in {file} (has: {names})")


def check_vehicle(plan: Plan, vehicle: Vehicle, where: str = "") -> None:
    """Raise `ConfigError` for what the vehicle file does not permit: a place nearer to the bundle's face, a faster turn.

    where: beginning of the message, the mission file.
    """
    where = where or f"{plan.name}: "
    nearest_m = vehicle.safety.standoff_min_m
    points = [("standoff.offset_M", plan.standoff.offset_M)] if plan.standoff is not None else []
    if plan.trajectory is not None and plan.trajectory_at_bundle:
        points += [("trajectory passes", p) for p in points_of(to_trajectory(plan.trajectory, (0.0, 0.0, 0.0)))]
    for key, point in points:
        if not point[2] > nearest_m:
            raise ConfigError(
                f"{where}{key} = {[float(v) for v in point]}: z must be above "
                f"safety.standoff_min_m = {nearest_m:g} m of the vehicle file"
            )
    rate_rad_s, most_rad_s = turn_rate_rad_s(plan.trajectory), vehicle.controller.yaw.rate_max_rad_s
    if rate_rad_s > YAW_RESERVE * most_rad_s:
        raise ConfigError(
            f"{where}trajectory: turns by {rate_rad_s:.2f} rad/s; {YAW_RESERVE:g} times controller.yaw.rate_max_rad_s = "
            f"{most_rad_s:g} rad/s of the vehicle file is the most"
        )


def handed_over(plan: Plan, switch: RcSwitch) -> Plan:
    """The plan started by a switch of the pilot, whatever its file says."""
    return msgspec.structs.replace(plan, start="rc_switch", rc_switch=switch)


def outside_m(point: Vec3, limits: Limits) -> float:
    """How far a point relative to the take-off point is outside the fence box [m], ≤ 0 inside; inf for NaN."""
    if any(map(math.isnan, point)):
        return math.inf
    return max(
        max(low - value, value - high)
        for value, low, high in zip(point, limits.fence_min_m, limits.fence_max_m, strict=True)
    )


def leaves_limits(point: Vec3, limits: Limits) -> str:
    """Why a point relative to the take-off point is not allowed, "" when it is."""
    if outside_m(point, limits) > 0:
        return "outside the fence"
    if point[2] > limits.height_m:
        return f"higher than limits.height_m = {limits.height_m:g}"
    if point[2] < limits.lowest_m:
        return f"lower than limits.height_min_m = {limits.lowest_m:g} m over the take-off point"
    if math.hypot(point[0], point[1]) > limits.distance_m:
        return f"farther than limits.distance_m = {limits.distance_m:g}"
    return ""


def _incomplete(plan: Plan) -> str:
    """The first table that is missing or has no use, "" if none."""
    if (plan.bundle is None) != (plan.marker_file is None):
        return f"{'bundle' if plan.bundle is None else 'marker_file'}: missing key"
    for key in ("search", "standoff", "hold", "photographs"):
        given = getattr(plan, key) is not None
        if given and plan.bundle is None:
            return f"{key}: has no use without a bundle"
        without_hold = key in ("hold", "photographs") and plan.trajectory is not None
        optional = without_hold or (key != "search" and plan.inspection is not None)
        if not given and plan.bundle is not None and not optional:
            return f"{key}: missing key"
    if not plan.satellites and plan.bundle is None:
        return "bundle: missing key: without satellites the position comes from a bundle"
    if plan.photographs is not None and plan.hold is None:
        return "photographs: has no use without [hold]"
    if plan.hold is not None and plan.standoff is None:
        return "hold: has no use without [standoff]"
    if plan.bundle is None and plan.trajectory is None and plan.inspection is None:
        return "trajectory: missing key (or bundle, with what belongs to it)"
    if plan.trajectory is not None and plan.trajectory_at_bundle and plan.trajectory.frame != plan.bundle:
        return f"trajectory.frame = {plan.trajectory.frame!r}: is neither {WORLD!r} nor the plan's bundle"
    return ""


def _contradiction(plan: Plan) -> str:
    """The first contradiction between two keys of the plan, "" if none."""
    limits = plan.limits
    for axis, low, high in zip("xyz", limits.fence_min_m, limits.fence_max_m, strict=True):
        if not low < high:
            return f"limits.fence_min_m: {axis} = {low:g} is not below fence_max_m {axis} = {high:g}"
    if not limits.lowest_m < min(limits.height_m, limits.fence_max_m[2]):
        return f"limits.height_min_m = {limits.lowest_m:g}: is not below limits.height_m and fence_max_m z"
    if outside_m((0.0, 0.0, 0.0), limits) > 0:
        return "take-off point = [0.0, 0.0, 0.0]: outside the fence"
    points = [("takeoff.height_m", (0.0, 0.0, plan.takeoff.height_m))]
    points.append(("return.height_m", (0.0, 0.0, plan.return_.height_m)))
    if plan.search is not None:
        points += [(f"search.waypoints[{i}].p_m", w.p_m) for i, w in enumerate(plan.search.waypoints)]
    if plan.trajectory is not None:
        if problem := plan.trajectory.contradiction():
            return f"trajectory.{problem}"
        if not plan.trajectory_at_bundle:
            points += [("trajectory passes", p) for p in points_of(to_trajectory(plan.trajectory, (0.0, 0.0, 0.0)))]
    for key, point in points:
        if why := leaves_limits(point, limits):
            return f"{key} = {[float(v) for v in point]}: {why}"
    hold_s = 0.0 if plan.hold is None else plan.hold.duration_s
    late = [t for t in plan.photographs.at_s if t > hold_s] if plan.photographs else []
    if late:
        return f"photographs.at_s: {late[0]:g} s is after the hold of {hold_s:g} s"
    if not plan.satellites and plan.start == "auto":
        return (
            'satellites = false: start = "auto" needs them, because PX4 takes off with a position only; use "rc_switch"'
        )
    if not plan.satellites and plan.trajectory is not None and not plan.trajectory_at_bundle:
        return f"trajectory.frame = {WORLD!r}: without satellites a trajectory is flown at the bundle"
    if plan.inspection is not None and (problem := _inspection_contradiction(plan, plan.inspection)):
        return f"inspection{problem}"
    if (plan.start == "rc_switch") != (plan.rc_switch is not None):
        return (
            f'start = "{plan.start}": the table [rc_switch] {"is missing" if plan.rc_switch is None else "has no use"}'
        )
    if switch := plan.rc_switch:
        for key, (low, high) in (("off_us", switch.off_us), ("on_us", switch.on_us)):
            if low >= high:
                return f"rc_switch.{key} = [{low}, {high}]: the first must be below the second"
        if max(switch.off_us[0], switch.on_us[0]) <= min(switch.off_us[1], switch.on_us[1]):
            return "rc_switch.on_us and rc_switch.off_us overlap"
    return ""


def _inspection_contradiction(plan: Plan, inspection: Inspection) -> str:
    """What of an inspection does not fit the mission, from after "inspection" on; "" if nothing."""
    if plan.trajectory is not None:
        return ": a mission flies a [trajectory] or an [inspection], not both"
    for index, item in enumerate(inspection.item):
        where = f".item[{index}] '{item.name}': frame = '{item.frame}': "
        if item.frame != WORLD and plan.bundle is None:
            return f"{where}needs the keys bundle and marker_file, and [search]"
        if item.frame == WORLD and not plan.satellites:
            return f"{where}without satellites items are relative to a bundle"
    return ""

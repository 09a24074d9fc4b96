"""The plan of an inspection: the order of its stations, its path, its flights, and the figures that a crew decides by.

The aircraft flies straight moves from rest to rest (`companion.core.trajectories.Move`) and stops at every photograph.
All points are relative to the take-off point.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.core.config import ConfigError
from companion.core.frames import wrap_angle
from companion.core.trajectories import duration_s
from companion.core.trajectory_messages import Move, Vec3
from companion.planning.camera import CameraPose, seen
from companion.planning.sections import Battery, SurfaceItem, along_x
from companion.planning.stations import PlannedItem, Planning, Station, plan_item
from companion.planning.surfaces import Footprint, Surface, covered_share, grid

TAKEOFF_M_S = 1.5  # PX4's default of MPC_TKO_SPEED
CHECKED_EVERY_M = 0.1  # of the path, against fence and surfaces
SHOWN_M = 1e-6  # rounding of a stand-off that keeps exactly the reserve


class Leg(NamedTuple):
    """A straight way with the limits of its moves."""

    speed_m_s: float
    acceleration_m_s2: float
    yaw_rate_rad_s: float


class Approach(NamedTuple):
    """The stand-off point, where the plan assumes it, between the search and the first station."""

    p_W: Vec3
    yaw_rad: float
    leg: Leg
    stay_s: float  # until the aircraft goes on, with the hold there


class Surroundings(NamedTuple):
    """What of the mission and the aircraft a plan depends on."""

    takeoff_height_m: float
    search: list[tuple[Vec3, float]]  # waypoints of the search and their headings; may be empty
    search_leg: Leg
    search_s: float  # time to confirm the bundle
    return_height_m: float
    return_leg: Leg
    sink_leg: Leg  # above the take-off point
    sink_end_m: float  # height from which PX4 lands, at the same speed
    refusal: Callable[[Vec3], str]  # why a point is not allowed, "" when it is
    mass_kg: float
    approach: Approach | None = None  # None: from the search straight to the first station


class SurfaceFigures(NamedTuple):
    """How well one surface is photographed; lengths in mm/px."""

    name: str
    kind: str
    area_m2: float
    photographs: int
    standoff_m: float
    footprint_m: tuple[float, float]
    coverage: float  # part that one photograph at least shows within the GSD limit
    coverage_farther: float  # the same with all cameras farther by how exactly stations are held
    gsd_median_mm_px: float | None  # of the best photograph of each place
    gsd_p95_mm_px: float | None
    overlap_along: float | None  # smallest of two consecutive photographs of a path; None: a path has only one
    overlap_between: float | None  # smallest of two neighbouring paths; None: one path shows it all


class Flight(NamedTuple):
    """What is flown on one battery."""

    first: int  # station
    last: int  # station, included
    duration_s: float
    energy_share: float  # of what the battery may give


class Ways(NamedTuple):
    """The ways of a flight that were found free: from above the take-off point to its first station, and home from its last.

    Both over the first waypoint of the search, at which a bundle in sight is found.
    """

    out: list[Move]
    home: list[Move]  # the last one sinks above the take-off point


class Leads(NamedTuple):
    """The way between a station and the search, or the place above the take-off point.

    The stations before the first photograph and behind the last one lead around what no surface of the plan shows. A flight
    that begins or ends elsewhere in the plan goes over them, too.
    """

    out: list[Station]  # passed on the way from there to the station
    home: list[Station]  # passed on the way home
    clear_out: bool  # both ways are clear of surfaces and within the limits, over any waypoint of the search
    clear_home: bool


class InspectionPlan(NamedTuple):
    name: str
    stations: list[Station]
    stops_s: list[float]  # by station: its own time, longer where the camera is not ready yet
    items: list[PlannedItem]
    path: list[Vec3]  # corners of all flights, from the take-off point and back
    figures: list[SurfaceFigures]
    flights: list[Flight]  # of the stations from `first` on
    ways: list[Ways]  # by flight
    leads: list[Leads]  # by station
    path_m: float
    power_w: float
    battery_s: float  # how long one battery lasts

    @property
    def photographs(self) -> int:
        return sum(station.photograph is not None for station in self.stations)

    @property
    def duration_s(self) -> float:
        """Of all flights, without the changes of batteries."""
        return sum(flight.duration_s for flight in self.flights)


def make_plan(
    name: str, path: str | Path, planning: Planning, battery: Battery, around: Surroundings, first: int = 0
) -> InspectionPlan:
    """Plan a mission's inspection. path: the mission file, for messages. first: station at which the first flight begins,
    or one before it to which the way from take-off is clear.

    Raises `ConfigError`, one line with file, item and limit, for what cannot be photographed or flown.
    """
    inspection = planning.inspection
    names = [item.name for item in inspection.item]
    if twice := [n for n in names if names.count(n) > 1]:
        raise ConfigError(f"{path}: inspection.item: the name '{twice[0]}' is used twice")
    wheres = [f"{path}: inspection.item[{i}] '{n}': " for i, n in enumerate(names)]
    items = [plan_item(index, planning, where) for index, where in enumerate(wheres)]
    stations = _ordered(items, around)
    surfaces = [(n, item.surface) for n, item in zip(names, items, strict=True) if item.surface is not None]
    leg = Leg(inspection.speed_m_s, inspection.acceleration_m_s2, inspection.yaw_rate_rad_s)
    moves = _moves(stations, leg)
    route = _Route(
        stations,
        moves,
        _stops_s(stations, moves, planning.camera.trigger_period_s),
        leg,
        surfaces,
        wheres,
        planning.standoff_min_m,
        planning.held_m,
        around,
    )
    route.check()
    power_w = battery.power_w(around.mass_kg)
    battery_s = battery.usable_j / power_w
    leads = [route.leads(n) for n in range(len(stations))]
    while first > 0 and not leads[first].clear_out:
        first -= 1
    flights = [route.flight(first, battery_s)]
    while flights[-1].last + 1 < len(stations):
        flights.append(route.flight(flights[-1].last + 1, battery_s))
    corners = [corner for flight in flights for corner in route.corners(flight)]
    if len(flights) > 1 and not inspection.resumable:
        total_s = sum(flight.duration_s for flight in flights)
        raise ConfigError(
            f"{path}: inspection: takes {len(flights)} batteries ({total_s / 60:.1f} min, one lasts {battery_s / 60:.1f} min "
            f"at {power_w:.0f} W); inspection.resumable = true splits it"
        )
    figures = [
        surface_figures(n, item, [s for s in stations if s.item == index], planning, index)
        for index, (n, item) in enumerate(zip(names, items, strict=True))
        if item.surface is not None
    ]
    length_m = sum(math.dist(a, b) for a, b in zip(corners, corners[1:], strict=False))
    ways = [Ways(route.out(flight.first), route.home(flight.last)) for flight in flights]
    return InspectionPlan(
        name, stations, route.stops_s, items, corners, figures, flights, ways, leads, length_m, power_w, battery_s
    )


# --- order and path -------------------------------------------------------------------------------------------------


def _ordered(items: list[PlannedItem], around: Surroundings) -> list[Station]:
    """All stations in the order of the file; each raster begins at the corner that is nearest to the station before it."""
    stations: list[Station] = []
    here = around.search[0][0] if around.search else (0.0, 0.0, around.takeoff_height_m)
    for item in items:
        order = min(item.orders, key=lambda order: math.dist(order[0].p_W, here))
        stations += order
        here = order[-1].p_W
    return stations


def move(start: Vec3, yaw_start_rad: float, end: Vec3, yaw_end_rad: float, leg: Leg) -> Move:
    """The move from rest to rest between two stations."""
    yaw_end_rad = yaw_start_rad + wrap_angle(yaw_end_rad - yaw_start_rad)
    return Move(start, yaw_start_rad, end, yaw_end_rad, *leg)


def _moves(stations: list[Station], leg: Leg) -> list[Move]:
    """The move to each station from the one before; the first is a move from itself."""
    before = [stations[0], *stations[:-1]]
    return [move(a.p_W, a.yaw_rad, b.p_W, b.yaw_rad, leg) for a, b in zip(before, stations, strict=True)]


def _stops_s(stations: list[Station], moves: list[Move], trigger_period_s: float) -> list[float]:
    """How long the aircraft stays at each station [s]: its own time, longer where the camera is not ready yet."""
    stops, since_s = [], math.inf
    for station, way in zip(stations, moves, strict=True):
        since_s += duration_s(way)
        stop_s = station.stop_s
        if station.photograph is not None:
            stop_s = max(stop_s, trigger_period_s - since_s)
            since_s = -stop_s
        since_s += stop_s
        stops.append(stop_s)
    return stops


def _shown(p: Vec3 | list[float]) -> str:
    return "[" + ", ".join(f"{v:.2f}" for v in p) + "]"


# --- batteries ------------------------------------------------------------------------------------------------------


def way_out(
    station: Station, around: Surroundings, leg: Leg, over: Sequence[Station] = (), found: int = 0
) -> list[Move]:
    """From above the take-off point over the search, the stand-off point and the stations of `over` to a station.

    found: the waypoint of the search at which the bundle is found.
    """
    moves, here, yaw = [], (0.0, 0.0, around.takeoff_height_m), around.search[0][1] if around.search else 0.0
    corners = [(p, search_yaw, around.search_leg) for p, search_yaw in around.search[: found + 1]]
    if around.approach is not None:
        corners.append(around.approach[:3])
    corners += [(s.p_W, s.yaw_rad, leg) for s in (*over, station)]
    for p, next_yaw, limits in corners:
        moves.append(move(here, yaw, p, next_yaw, limits))
        here, yaw = p, next_yaw
    return moves


def way_home(station: Station, around: Surroundings, over: Sequence[Station] = (), found: int = 0) -> list[Move]:
    """As the mission returns: over the stations of `over`, back over the waypoints of the search, above the take-off point, down."""
    corners = [(s.p_W, s.yaw_rad) for s in (station, *over)] + around.search[found::-1]
    yaw = corners[-1][1]
    corners += [((0.0, 0.0, around.return_height_m), yaw), ((0.0, 0.0, around.sink_end_m), yaw)]
    legs = [around.return_leg] * (len(corners) - 2) + [around.sink_leg]
    return [move(*a, *b, leg) for a, b, leg in zip(corners, corners[1:], legs, strict=False)]


@dataclass
class _Route:
    """All stations with the ways between them, and what the ways must keep clear of."""

    stations: list[Station]
    moves: list[Move]  # to each station from the one before
    stops_s: list[float]
    leg: Leg
    surfaces: list[tuple[str, Surface]]
    wheres: list[str]  # by item
    standoff_min_m: float
    held_m: float  # reserve beyond it: its monitor ends the flight at once
    around: Surroundings
    _obstacles: dict[tuple[Vec3, Vec3], str] = field(default_factory=dict)  # of straight ways that were looked at

    def __post_init__(self) -> None:
        photographs = [n for n, station in enumerate(self.stations) if station.photograph is not None]
        self._first, self._last = (photographs[0], photographs[-1]) if photographs else (0, len(self.stations) - 1)
        ways = zip(self.moves, self.stops_s, strict=True)
        # When each station is left, counted from the first one.
        self._left_s = np.cumsum([duration_s(way) + stop_s for way, stop_s in ways])

    def where(self, station: int) -> str:
        """Beginning of a message about a station."""
        return self.wheres[self.stations[station].item]

    def check(self) -> None:
        """Raise `ConfigError` for a station, or a point between two stations, that the mission's limits do not allow."""
        for index, station in enumerate(self.stations):
            if why := self.around.refusal(station.p_W):
                raise ConfigError(f"{self.where(index)}the station at {_shown(station.p_W)} is {why}")
        for index, way in enumerate(self.moves):
            if problem := self.obstacle([way]):
                raise ConfigError(f"{self.where(index)}the way to its {problem}")

    # --- ways out and home ---

    def _over_out(self, station: int) -> list[Station]:
        return self.stations[: min(station, self._first)]

    def _over_home(self, station: int) -> list[Station]:
        """Back over the stations before the first photograph, or on over those behind the last, whichever is shorter.

        At the end of the plan the way home is straight, as the file has it.
        """
        if station + 1 == len(self.stations):
            return []
        before = self._over_out(station)[::-1] if station <= self._last else []
        behind = self.stations[max(station, self._last) + 1 :] if station >= self._first else []
        choices = [over for over in (before, behind) if over]
        here = self.stations[station]
        return min(choices, key=lambda over: sum(map(duration_s, way_home(here, self.around, over))), default=[])

    def out(self, station: int, found: int = 0) -> list[Move]:
        """The way from above the take-off point to a station."""
        return way_out(self.stations[station], self.around, self.leg, self._over_out(station), found)

    def home(self, station: int, found: int = 0) -> list[Move]:
        """The way from a station to the ground."""
        return way_home(self.stations[station], self.around, self._over_home(station), found)

    def out_obstacle(self, station: int) -> str:
        """As `obstacle`, of the ways to a station, wherever in the search the bundle is found."""
        return next(filter(None, (self.obstacle(self.out(station, n)) for n in self._found())), "")

    def home_obstacle(self, station: int) -> str:
        """The same of the ways home."""
        return next(filter(None, (self.obstacle(self.home(station, n)) for n in self._found())), "")

    def _found(self) -> range:
        return range(max(1, len(self.around.search)))

    def leads(self, station: int) -> Leads:
        """How a flight comes to a station and home from it, besides the search."""
        clear_out, clear_home = not self.out_obstacle(station), not self.home_obstacle(station)
        return Leads(self._over_out(station), self._over_home(station), clear_out, clear_home)

    # --- obstacles ---

    def obstacle(self, ways: list[Move]) -> str:
        """What straight ways pass too near to, or which limit of the mission they leave; "" if none. Point by point."""
        for way in ways:
            ends = way.p_start, way.p_end
            if ends not in self._obstacles:
                problem = self._obstacle(way)
                self._obstacles[ends] = problem
                if not problem:
                    self._obstacles[ends[::-1]] = ""
            if self._obstacles[ends]:
                return self._obstacles[ends]
        return ""

    def _obstacle(self, way: Move) -> str:
        count = max(2, math.ceil(math.dist(way.p_start, way.p_end) / CHECKED_EVERY_M) + 1)
        points = np.linspace(way.p_start, way.p_end, count)
        end = f"{self._name(way.p_end)} at {_shown(way.p_end)}"
        for name, surface in self.surfaces:
            nearest_m = float(surface.distance_m(points).min())
            missing_m = self.standoff_min_m + self.held_m - nearest_m
            if missing_m > SHOWN_M:
                return (
                    f"{end} passes '{name}' at {nearest_m:.2f} m: "
                    f"safety.standoff_min_m of the vehicle file is {self.standoff_min_m:g} m, and {self.held_m:g} m more are "
                    f"needed (how exactly a station is held): {missing_m:.2f} m are missing"
                )
        for point in points.tolist():
            if why := self.around.refusal((point[0], point[1], point[2])):
                return f"{end} leads over {_shown(point)}: {why}"
        return ""

    def _name(self, p_W: Vec3) -> str:
        """What the mission calls a place."""
        if p_W in (places := [p for p, _ in self.around.search]):
            return f"search.waypoints[{places.index(p_W)}]"
        if self.around.approach is not None and p_W == self.around.approach.p_W:
            return "stand-off point"
        return "place above the take-off point" if p_W[:2] == (0.0, 0.0) else "station"

    # --- flights ---

    def flight_s(self, first: int, last: int) -> float:
        """From take-off over two stations and all between them to the landing [s]."""
        around = self.around
        vertical_s = around.takeoff_height_m / TAKEOFF_M_S + around.sink_end_m / around.sink_leg.speed_m_s
        stay_s = around.approach.stay_s if around.approach is not None else 0.0
        work_s = self.stops_s[first] + float(self._left_s[last] - self._left_s[first])
        ways_s = sum(map(duration_s, (*self.out(first), *self.home(last))))
        return vertical_s + around.search_s + stay_s + work_s + ways_s

    def flight(self, first: int, battery_s: float) -> Flight:
        """As many stations from the first on as a battery ends with the way home.

        Fewer where the way home, or the next flight's way out, would lead too near to a surface; raises `ConfigError`
        when there is no such station.
        """
        end = len(self.stations) - 1
        last = first
        while last < end and self.flight_s(first, last + 1) <= battery_s:
            last += 1
        total_s = self.flight_s(first, last)
        if total_s > battery_s:
            raise ConfigError(
                f"{self.where(first)}the flight to {_shown(self.stations[first].p_W)} and back takes {total_s / 60:.1f} min, "
                f"one battery lasts {battery_s / 60:.1f} min"
            )
        if problem := self.out_obstacle(first):
            raise ConfigError(f"{self.where(first)}the way from take-off to its {problem}")
        clear = (n for n in range(last, first - 1, -1) if self._may_end_at(n))
        if (chosen := next(clear, None)) is None:
            problem = self.home_obstacle(last) or self.out_obstacle(last + 1)
            raise ConfigError(f"{self.where(last)}on the way home the way to the {problem}")
        total_s = self.flight_s(first, chosen)
        return Flight(first, chosen, total_s, total_s / battery_s)

    def _may_end_at(self, station: int) -> bool:
        following = station + 1 < len(self.stations) and self.out_obstacle(station + 1)
        return not (self.home_obstacle(station) or following)

    def corners(self, flight: Flight) -> list[Vec3]:
        """Points of a flight between straight ways, from the ground to the ground."""
        ground = (0.0, 0.0, 0.0)
        there = [way.p_start for way in self.out(flight.first)]
        stops = [station.p_W for station in self.stations[flight.first : flight.last + 1]]
        return [ground, *there, *stops, *(way.p_end for way in self.home(flight.last)), ground]


# --- figures --------------------------------------------------------------------------------------------------------


def surface_figures(
    name: str, planned: PlannedItem, stations: list[Station], planning: Planning, index: int
) -> SurfaceFigures:
    """Coverage, GSD and overlap of one surface."""
    surface, item = planned.surface, planning.inspection.item[index]
    assert (
        isinstance(item, SurfaceItem)
        and surface is not None
        and planned.standoff_m is not None
        and planned.useful_m is not None
    )
    best = best_gsd_m(surface, planning, [s.photograph.pose for s in stations if s.photograph is not None])
    within = best <= item.gsd_mm_px / 1e3 * (1 + 1e-9)
    shots = [s.photograph for s in stations if s.photograph is not None]
    footprints = {(s.row, s.column): s.footprint for s in shots if s.footprint is not None}
    coverage = covered_share(surface.size_m, list(footprints.values())) if surface.plane else float(within.mean())
    farther = [p._replace(p_W=p.p_W - planning.held_m * p.R_WC[:, 2]) for p in (s.pose for s in shots)]
    still = best_gsd_m(surface, planning, farther) <= item.gsd_mm_px / 1e3 * (1 + 1e-9)
    finite = best[np.isfinite(best)] * 1e3
    along_u = along_x(item)
    return SurfaceFigures(
        name,
        str(type(item).__struct_config__.tag),
        math.prod(surface.size_m),
        len(shots),
        planned.standoff_m,
        planned.useful_m,
        coverage,
        min(coverage, float(still.mean())),
        float(np.median(finite)) if len(finite) else None,
        float(np.percentile(finite, 95)) if len(finite) else None,
        smallest_overlap(footprints, (0, 1), 0 if along_u else 1, surface),
        smallest_overlap(footprints, (1, 0), 1 if along_u else 0, surface),
    )


def best_gsd_m(surface: Surface, planning: Planning, poses: list[CameraPose]) -> Array:
    """The smallest GSD at samples of a surface over all photographs of it; inf where none shows them; (n,) [m]."""
    uv = grid(surface.size_m)
    points, normals = surface.points(uv), surface.normals(uv)
    best = np.full(len(uv), np.inf)
    for pose in poses:
        np.minimum(best, seen(planning.camera, pose, points, normals).gsd_m, out=best)
    return best


def smallest_overlap(
    footprints: dict[tuple[int, int], Footprint], step: tuple[int, int], axis: int, surface: Surface
) -> float | None:
    """The smallest overlap of two footprints one step (rows, columns) apart, along u (axis 0) or v (1); None: no pair.

    The last footprint of a closed surface is beside the first one.
    """
    overlaps = []
    around_m = surface.size_m[0] if surface.closed and axis == 0 else math.inf
    columns = 1 + max(column for _, column in footprints)
    for (row, column), here in footprints.items():
        beside = (row + step[0], column + step[1])
        if math.isfinite(around_m):
            beside = (beside[0], beside[1] % columns)
        if (other := footprints.get(beside)) is None or other is here:
            continue
        length = here[2 * axis + 1] - here[2 * axis]
        apart = abs(other[2 * axis] - here[2 * axis])
        overlaps.append(1.0 - min(apart, around_m - apart) / length)
    return min(overlaps, default=None)

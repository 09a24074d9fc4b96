"""``companion plan``: the inspection of a mission before the flight, as text, JSON, picture and QGroundControl `.plan`."""

import json
import math
from pathlib import Path
from typing import Any

import click

from companion.core.command_line import (
    HELP,
    STDOUT,
    VEHICLE_OF_COMMAND,
    ConfigFile,
    OutputFile,
    one_line_errors,
    write_output,
)
from companion.core.config import ConfigError, load, read_layered, read_toml
from companion.core.config_files import ConfigKind, find_config, names_of
from companion.core.frames import quat_from_matrix
from companion.core.trajectory_messages import Move
from companion.core.vehicle import Vehicle
from companion.mission.inspection_files import load_inspection
from companion.mission.plan import load_plan, site_of
from companion.planning.planner import InspectionPlan, SurfaceFigures
from companion.planning.qgc import QgcStation, plan_document
from companion.planning.stations import Station

QUADROTOR = 2  # MAV_TYPE_QUADROTOR
RESERVE_SHARE = 1e-3  # of a surface; less is the raster of places on which it is computed
DEFAULTS = "px4_1_17.toml"  # beside the autopilot files: what they do not change


class Loaded:
    """A mission with everything that its inspection names, and the plan of it.

    mission, vehicle: files. Raises `ConfigError`.
    """

    def __init__(self, mission: Path, vehicle: Path) -> None:
        self.mission, self.vehicle, self.vehicle_file = load_plan(mission), load(vehicle, Vehicle), vehicle
        found = load_inspection(self.mission, site_of(self.mission), self.vehicle, mission)
        if found is None:
            raise ConfigError(f"{mission}: inspection: missing table: this mission has nothing to plan")
        self.planning, self.battery, self.plan = found.planning, found.battery, found.plan
        self.inspection = found.planning.inspection


@click.command(context_settings=HELP)
@click.argument("mission", type=ConfigFile(ConfigKind.MISSION))
@VEHICLE_OF_COMMAND
@click.option("--json", "json_file", type=OutputFile(), default=None, help="Write the plan here; -: standard output.")
@click.option("--svg", "svg_file", type=OutputFile(), default=None, help="Write a picture of it here.")
@click.option("--png", "png_file", type=OutputFile(), default=None, help="Write a picture of it here.")
@click.option(
    "--qgc",
    "qgc_file",
    type=OutputFile(),
    default=None,
    help="Write it as QGroundControl's .plan, one for each battery.",
)
@one_line_errors
def plan(
    mission: Path,
    vehicle: Path,
    json_file: Path | None,
    svg_file: Path | None,
    png_file: Path | None,
    qgc_file: Path | None,
) -> None:
    """Plan the [inspection] of MISSION: path, photographs, coverage, GSD, overlap, duration, batteries."""
    loaded = Loaded(mission, vehicle)
    written = {} if qgc_file is None else qgc_files(loaded, mission, qgc_file)
    for file, document in written.items():
        write_output(file, json.dumps(document, indent=2) + "\n")
    if json_file == STDOUT:
        click.echo(json.dumps(summary(loaded), indent=2))
    elif json_file is not None:
        write_output(json_file, json.dumps(summary(loaded), indent=2) + "\n")
    if pictures := {kind: file for kind, file in (("svg", svg_file), ("png", png_file)) if file is not None}:
        from companion.view.inspection_picture import draw

        draw(loaded.plan, loaded.mission.limits, pictures)
    of_flights = [f"written      flight {number} in {file}" for number, file in enumerate(written, 1)]
    for line in [*lines(loaded), *of_flights]:
        click.echo(line, err=json_file == STDOUT)


# --- text -----------------------------------------------------------------------------------------------------------


def lines(loaded: Loaded) -> list[str]:
    """The plan for a crew, one fact a line."""
    planned, camera = loaded.plan, loaded.planning.camera
    shown = [f"{planned.name}: {camera.name}, {camera.width_px} x {camera.height_px} px, {loaded.vehicle.name}", ""]
    head = (
        "surface",
        "m²",
        "photographs",
        "stand-off m",
        "footprint m",
        "coverage",
        "GSD median, p95 mm/px",
        "overlap",
    )
    rows = [head, *map(_row, planned.figures)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    if planned.figures:
        shown += ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows] + [""]
    shown += [*_without_reserve(loaded), ""] if _without_reserve(loaded) else []
    total = summary(loaded)
    shown += [
        f"photographs  {planned.photographs}",
        f"path         {planned.path_m:.0f} m from take-off to landing, {len(planned.stations)} stops",
        f"duration     {_minutes(planned.duration_s)}",
        f"battery      {loaded.battery.name}: {_minutes(planned.battery_s)} at {planned.power_w:.0f} W, "
        f"{total['energy_wh']:.0f} Wh needed",
        f"batteries    {len(planned.flights)}",
    ]
    for number, flight in enumerate(planned.flights, 1):
        photographs = sum(s.photograph is not None for s in planned.stations[flight.first : flight.last + 1])
        stops = f"stops {flight.first + 1} to {flight.last + 1}, {photographs} photographs"
        shown.append(
            f"  flight {number}   {stops}, {_minutes(flight.duration_s)}, {_percent(flight.energy_share)} of the battery"
        )
    return shown


def _without_reserve(loaded: Loaded) -> list[str]:
    """A line for each surface that is not photographed within its GSD limit where the aircraft is a little farther."""
    held_m = loaded.planning.held_m
    return [
        f"'{f.name}' has no reserve: {held_m:g} m farther, which is how exactly a station is held, {_percent(f.coverage_farther, True)} "
        "of it is within gsd_mm_px; a smaller standoff_m, or none, leaves one"
        for f in loaded.plan.figures
        if f.coverage_farther < f.coverage - RESERVE_SHARE
    ]


def _row(f: SurfaceFigures) -> tuple[str, ...]:
    """Cells of a surface's line."""
    return (
        f"{f.name} ({f.kind})",
        f"{f.area_m2:.1f}",
        str(f.photographs),
        f"{f.standoff_m:.2f}",
        f"{f.footprint_m[0]:.2f} x {f.footprint_m[1]:.2f}",
        _percent(f.coverage, down=True),
        f"{_number(f.gsd_median_mm_px)}, {_number(f.gsd_p95_mm_px)}",
        f"{_percent(f.overlap_along)} along, {_percent(f.overlap_between)} between",
    )


def _percent(share: float | None, down: bool = False) -> str:
    if share is None:
        return "–"
    return f"{(math.floor(share * 1000 + 1e-6) / 10 if down else share * 100):.1f} %"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _minutes(seconds: float) -> str:
    return f"{int(round(seconds)) // 60}:{int(round(seconds)) % 60:02d} min"


# --- JSON and .plan ---------------------------------------------------------------------------------------------------


def summary(loaded: Loaded) -> dict[str, Any]:
    """The plan as plain data: totals, surfaces, flights, stations with their photographs."""
    planned, inspection = loaded.plan, loaded.inspection
    return {
        "mission": planned.name,
        "camera": loaded.planning.camera.name,
        "path_m": planned.path_m,
        "photographs": planned.photographs,
        "duration_s": planned.duration_s,
        "power_w": planned.power_w,
        "energy_wh": planned.power_w * planned.duration_s / 3600,
        "battery_s": planned.battery_s,
        "batteries": len(planned.flights),
        "surfaces": [figures._asdict() for figures in planned.figures],
        "flights": [flight._asdict() for flight in planned.flights],
        "stations": [_station(station, inspection.item[station.item].name) for station in planned.stations],
    }


def _station(station: Station, item: str) -> dict[str, Any]:
    photograph = station.photograph
    found: dict[str, Any] = {
        "item": item,
        "p_m": station.p_W,
        "yaw_rad": station.yaw_rad,
        "gimbal_pitch_rad": station.pitch_rad,
        "stop_s": station.stop_s,
        "photograph": None,
    }
    if photograph is not None:
        found["photograph"] = {
            "camera_p_m": photograph.pose.p_W.tolist(),
            "camera_q": quat_from_matrix(photograph.pose.R_WC).tolist(),
            "looks_along": photograph.pose.R_WC[:, 2].tolist(),
            "row": photograph.row,
            "column": photograph.column,
            "footprint_m": None if photograph.corners_W is None else photograph.corners_W.tolist(),
            "gsd_mm_px": None if photograph.gsd_m is None else photograph.gsd_m * 1e3,
        }
    return found


def qgc_stations(planned: InspectionPlan, number: int = 0) -> list[QgcStation]:
    """The stops of a flight as a `.plan` has them: the camera's pitch is its elevation above the horizon.

    With the corners of its ways out and home: no other way was found free.
    """
    flight, ways = planned.flights[number], planned.ways[number]
    found = [_corner(way) for way in ways.out[:-1]]
    stations = zip(planned.stations, planned.stops_s, strict=True)
    for s, stop_s in list(stations)[flight.first : flight.last + 1]:
        pitch = None if s.photograph is None else math.asin(max(-1.0, min(1.0, float(s.photograph.pose.R_WC[2, 2]))))
        found.append(QgcStation(s.p_W, s.yaw_rad, pitch, stop_s, s.photograph is not None))
    return [*found, *map(_corner, ways.home[:-1])]


def _corner(way: Move) -> QgcStation:
    """The end of a way, where nothing is done."""
    return QgcStation(way.p_end, way.yaw_end_rad, None, 0.0, False)


def qgc_files(loaded: Loaded, mission: Path, file: Path) -> dict[Path, dict[str, Any]]:
    """The plan as QGroundControl's JSON, by file: that of the name, or one for each battery with its number in the name.

    Raises `ConfigError` without the place of the take-off point.
    """
    origin = loaded.inspection.origin
    if origin is None:
        raise ConfigError(f"{mission}: inspection.origin: missing table: a .plan has latitudes and longitudes")
    height_m = loaded.mission.takeoff.height_m
    kind = mav_type(loaded.vehicle_file)
    several = len(loaded.plan.flights) > 1
    return {
        file.with_name(f"{file.stem}-{number + 1}{file.suffix}") if several else file: plan_document(
            qgc_stations(loaded.plan, number), origin, height_m, loaded.inspection.speed_m_s, kind
        )
        for number in range(len(loaded.plan.flights))
    }


def mav_type(vehicle: Path) -> int:
    """MAV_TYPE in the autopilot file of the airframe that a vehicle file, or the nearest of its bases, has the name of.

    MAV_TYPE_QUADROTOR where there is none: QGroundControl takes it for any multirotor. Raises `ConfigError`.
    """
    file: Path | None = vehicle
    while file is not None:
        if file.stem in names_of(ConfigKind.AIRFRAME):
            airframe = find_config(file.stem, ConfigKind.AIRFRAME)
            own = airframe.parent / str(read_layered(airframe)["autopilot"])
            parameters = read_layered(own.with_name(DEFAULTS)) | read_layered(own)
            return int(parameters["MAV_TYPE"])
        base = read_toml(file).get("base")
        file = None if base is None else file.parent / str(base)
    return QUADROTOR

"""``companion teleop``: a training flight with a published quadrotor, scored."""

import json
import math
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import click
import numpy as np

from companion.core.arrays import Array
from companion.core.command_line import (
    HELP,
    INTERRUPTED,
    ConfigFile,
    Number,
    OutputFile,
    one_line_errors,
    uninterrupted,
)
from companion.core.config_files import ConfigKind, config_folder
from companion.core.errors import UserError
from companion.core.site import load_site
from companion.remote.flight_modes import FlightMode
from sitl.solids.solids import Solids
from sitl.teleop.faults import Faults, parse_fault
from sitl.teleop.flight import COLUMNS, ENDED_BY_CTRL_C, Flown, TrainingFlight
from sitl.teleop.paper4 import Paper4
from sitl.teleop.parameter_file import read_parameters
from sitl.teleop.remote_port import RemotePort
from sitl.teleop.results import append_row, check_results, write_rows
from sitl.teleop.session_log import write_session_log
from sitl.teleop.sources import SimulatedPilot, StickFile
from sitl.teleop.sticks import StickSource, Vehicle
from sitl.teleop.tasks import Hold, Land, Score, Square, Task
from sitl.teleop.tello import Tello
from sitl.wind import CALM, Wind, WindConfig

VEHICLES = ("tello", "paper4")
TASKS = ("hold", "square", "land")
PILOT, UDP = "pilot", "udp:"
RESULTS = ("date", "pilot", "vehicle", "task", "mode", "seed", "wind_m_s", "gust_m_s", "faults", *Score._fields, "end")
WIND_MAX_M_S = 30.0
DEFAULT_PLACE = {"hold": (0.0, 0.0, 1.5), "square": (0.0, 0.0, 1.5), "land": (2.0, 1.0, 0.0)}


class Numbers(click.ParamType):  # type: ignore[type-arg]
    """Numbers between commas, such as 1,-2,0."""

    name = "X,Y,Z"

    def __init__(self, count: int, limit: float) -> None:
        self._count, self._limit = count, limit

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """The numbers; refuses another count and sizes beyond the limit."""
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(float(part) for part in str(value).split(","))
        except ValueError:
            numbers = ()
        if len(numbers) != self._count or not all(abs(number) <= self._limit for number in numbers):
            self.fail(
                f"'{value}' is not {self._count} numbers between commas, each within ±{self._limit:g}", param, ctx
            )
        return numbers


@click.command(context_settings=HELP)
@click.option("--vehicle", type=click.Choice(VEHICLES), default="tello", show_default=True, help="Whose model flies.")
@click.option(
    "--sticks",
    "sticks_from",
    default=PILOT,
    show_default=True,
    help="FILE.csv; pilot: a simulated one; udp:PORT: a remote's MANUAL_CONTROL, always in real time.",
)
@click.option(
    "--mode", type=click.Choice([mode.value for mode in FlightMode]), default=FlightMode.BODY.value, show_default=True
)
@click.option("--task", "task_name", type=click.Choice(TASKS), default="hold", show_default=True)
@click.option(
    "--at",
    "place",
    type=Numbers(3, 100.0),
    default=None,
    help="The task's place [m, x ahead, y left]: point, first corner, bundle.",
)
@click.option("--hold-s", type=Number(1.0, 3600.0), default=20.0, show_default=True, help="For hold.")
@click.option("--side-m", type=Number(1.0, 100.0), default=3.0, show_default=True, help="For square.")
@click.option("--laps", type=click.IntRange(1, 1000), default=1, show_default=True, help="For square.")
@click.option(
    "--markers", type=ConfigFile(ConfigKind.MARKERS), default="floor", show_default=True, help="For land: its bundle."
)
@click.option("--world", default=None, help="Solids to avoid: a world file, or a name such as corridor.")
@click.option("--wind", type=Numbers(3, WIND_MAX_M_S), default=(0.0, 0.0, 0.0), help="Mean wind [m/s]: x,y,z.")
@click.option(
    "--gusts",
    type=Number(0.0, 15.0),
    default=0.0,
    help="Standard deviation [m/s] of gusts that last a second.",
)
@click.option("--fault", "faults", multiple=True, help="KIND@START[-END][=VALUE]; may be repeated.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Of gusts and simulated pilot.")
@click.option("--duration", type=Number(0.1, 7200.0), default=120.0, show_default=True, help="Longest time [s].")
@click.option("--realtime", is_flag=True, help="In real time also without a remote.")
@click.option(
    "--parameters", type=click.Path(path_type=Path), default=None, help="For tello: a file of `companion tune`."
)
@click.option("--csv", "csv_file", type=OutputFile(), default=None, help="Write the path here, every 10 ms.")
@click.option(
    "--log",
    "log_file",
    type=OutputFile(),
    default=None,
    help="Write a log here, for `companion view` and `companion tune`.",
)
@click.option("--results", type=OutputFile(), default=None, help="Append one row with the score here (CSV).")
@click.option("--name", default="", help="The pilot's name in the results.")
@click.option("--json", "as_json", is_flag=True, help="Print the score as JSON.")
@one_line_errors
def teleop(
    vehicle: str,
    sticks_from: str,
    mode: str,
    task_name: str,
    place: tuple[float, ...] | None,
    hold_s: float,
    side_m: float,
    laps: int,
    markers: Path,
    world: str | None,
    wind: tuple[float, ...],
    gusts: float,
    faults: tuple[str, ...],
    seed: int,
    duration: float,
    realtime: bool,
    parameters: Path | None,
    csv_file: Path | None,
    log_file: Path | None,
    results: Path | None,
    name: str,
    as_json: bool,
) -> None:
    """Fly a published quadrotor by sticks, as training, and score the flight."""
    flight_mode = FlightMode(mode)
    task = _task(task_name, np.array(place or DEFAULT_PLACE[task_name]), hold_s, side_m, laps, markers)
    flown_vehicle = _vehicle(vehicle, parameters)
    acting = Faults([parse_fault(text) for text in faults])
    solids = None if world is None else Solids.load(_world_file(world))
    if log_file is not None and log_file.exists():
        raise UserError(f"{log_file}: log exists already; logs are never overwritten")
    if results is not None:
        check_results(results, RESULTS)
    source = _source(sticks_from, flown_vehicle, task, seed, flight_mode, any(wind))
    modes = source.modes if isinstance(source, StickFile) else {flight_mode}
    if FlightMode.HEADLESS in modes and isinstance(flown_vehicle, Tello):
        raise UserError("--vehicle tello: its paper has no headless mode: choose --vehicle paper4")
    calm = WindConfig(
        **{
            **{field: getattr(CALM, field) for field in CALM.__struct_fields__},
            "mean_m_s": cast(tuple[float, float, float], wind),
            "gust_std_m_s": (gusts, gusts, 0.5 * gusts),
        }
    )
    remote = source if isinstance(source, RemotePort) else None
    if remote is not None:
        click.echo(f"teleop: waiting for MANUAL_CONTROL on UDP port {sticks_from.removeprefix(UDP)}", err=True)
    try:
        if remote is not None:
            remote.wait(flown_vehicle.pose())
        flight = TrainingFlight(flown_vehicle, source, task, Wind(calm, seed), acting, solids)
        flown = flight.run(duration, realtime or remote is not None, remote.report if remote is not None else None)
    finally:
        if remote is not None:
            remote.close()
    with uninterrupted():
        if csv_file is not None:
            write_rows(csv_file, COLUMNS, flown.rows)
        if log_file is not None:
            write_session_log(log_file, flown.rows, vehicle, task_name)
        if results is not None:
            pilot = name or sticks_from
            date = datetime.now(UTC).isoformat(timespec="seconds")
            setting = (
                date,
                pilot,
                vehicle,
                task_name,
                mode,
                seed,
                " ".join(f"{w:g}" for w in wind),
                gusts,
                " ".join(faults),
            )
            score = [int(value) if isinstance(value, bool) else value for value in flown.score]
            append_row(results, RESULTS, (*setting, *score, flown.end))
    _print(flown, as_json)
    if flown.end == ENDED_BY_CTRL_C:
        sys.exit(INTERRUPTED)


def _task(name: str, place_W: Array, hold_s: float, side_m: float, laps: int, markers: Path) -> Task:
    if name == "hold":
        return Hold(place_W, hold_s)
    if name == "square":
        return Square(place_W, side_m, laps)
    return Land(place_W, load_site(markers).bundle[0])


def _vehicle(name: str, parameters: Path | None) -> Vehicle:
    if name == "paper4":
        if parameters is not None:
            raise UserError("--parameters: those of `companion tune` are for --vehicle tello")
        return Paper4()
    return Tello(read_parameters(parameters) if parameters is not None else None)


def _world_file(given: str) -> Path:
    named = config_folder() / "worlds" / f"{given}.toml"
    return named if named.exists() and not Path(given).exists() else Path(given)


def _source(given: str, vehicle: Vehicle, task: Task, seed: int, mode: FlightMode, windy: bool) -> StickSource:
    if given == PILOT:
        return SimulatedPilot(vehicle, task.points_W, task.lands, seed, mode, windy)
    if given.startswith(UDP):
        port = given.removeprefix(UDP)
        if not port.isdecimal() or not 1024 <= int(port) <= 65535:
            raise UserError(f"--sticks {given}: allowed ports: 1024 to 65535")
        return RemotePort(int(port), mode)
    return StickFile(Path(given), mode)


def _print(flown: Flown, as_json: bool) -> None:
    score = flown.score._asdict()
    if as_json:
        plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in score.items()}
        click.echo(json.dumps({**plain, "end": flown.end, "flown_s": flown.t_s, "sticks_lost_s": flown.sticks_lost_s}))
        return
    click.echo(f"{flown.end} after {flown.t_s:.1f} s")
    for key, value in score.items():
        shown = (
            ("yes" if value else "no")
            if isinstance(value, bool)
            else f"{value:.3f}"
            if isinstance(value, float)
            else value
        )
        click.echo(f"  {key:<18} {shown}")
    if flown.sticks_lost_s:
        click.echo(f"  without sticks     {flown.sticks_lost_s:.1f} s")

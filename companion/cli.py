"""One command line: ``companion …``.

A start that is refused ends with exit status 2 and one line on stderr; Ctrl-C with 130; a flight that did not reach its
end with status 1; everything else with 0.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from companion.core.command_line import (
    DEFAULT_VEHICLE_NAME,
    FLIGHTS,
    HELP,
    INTERRUPTED,
    REFUSED,
    STDOUT,
    ConfigFile,
    LazyGroup,
    Number,
    OutputFile,
    check_output_folder,
    end_with,
    one_line_errors,
    os_error_line,
    write_output,
)
from companion.core.config_files import ConfigKind, config_folder, find_config, names_of
from companion.core.errors import OutputError, UserError
from companion.core.suggestions import did_you_mean
from companion.core.text import plain

if TYPE_CHECKING:
    from rich.console import Console

    from sitl.scenario import CameraMode, LoadedScenario
    from sitl.simulate import SimulatedFlight

# The matrices here are small: a pool of BLAS threads waits, and takes the cores from all others meanwhile. NumPy is not loaded yet.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

DRAWING_ERROR_MAX = 200  # characters of the error of a library that are shown
TABLE_WIDTH = 150  # characters, where the output is not a terminal
STACKS = ("full", "paper", "px4")  # sitl.baselines.stacks; not imported here, because the simulator may be absent
SENSORS = ("kind", "unkind")  # sitl.scenario.SensorKind; likewise
DEFAULT_SENSORS = "unkind"  # of `sim`, `compare` and `fly --fcu sim`
MISSION = ConfigFile(ConfigKind.MISSION)
VEHICLE = ConfigFile(ConfigKind.VEHICLE)
SCENARIO = ConfigFile(ConfigKind.SCENARIO)
AIRFRAME = ConfigFile(ConfigKind.AIRFRAME)
FILE = click.Path(path_type=Path)
SENSORS_OPTION = click.option(
    "--sensors",
    type=click.Choice(SENSORS),
    default=DEFAULT_SENSORS,
    show_default=True,
    help="kind: the errors in the scenario file; unkind: sensors, mounting and aircraft drawn for the seed.",
)

RESUME_OPTION = click.option(
    "--resume",
    type=FILE,
    multiple=True,
    help="Log of a former flight of the inspection, or a folder of flights: go on at the first photograph that is missing.",
)

PILOT_OPTION = click.option(
    "--pilot",
    default=None,
    metavar="FILE|default",
    help="In a simulator: a pilot takes off, hands over by the switch, takes back and hands over again; see docs/scenarios.md.",
)

LAZY: dict[str, str] = {
    "calibrate": "calibration.commands:calibrate",
    "campaign": "sitl.campaign.command:campaign",
    "identify": "calibration.identification.command:identify",
    "plan": "companion.view.inspection_plan:plan",
    "log": "companion.recording.log_commands:log",
    "photographs": "companion.view.photographs:photographs",
    "preflight": "companion.preflight.command:preflight",
    "report": "companion.recording.report_command:report",
    "remote": "companion.remote.command:remote",
    "safety": "companion.view.safety_table:safety",
    "teleop": "sitl.teleop.command:teleop",
    "tune": "sitl.teleop.tune_command:tune_",
    "view": "companion.view.command:view",
    "watch": "companion.view.watch:watch",
}


def _print_version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from companion.core.provenance import version_line

    click.echo(version_line())
    context.exit()


@click.group(cls=LazyGroup, lazy=LAZY, context_settings=HELP)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print version and commit.",
)
def main() -> None:
    """Onboard flight companion for PX4 multirotors: tracking, estimation, control, and their simulator.

    Missions, vehicles and scenarios are given by path, or by name: bridge_hover.
    """


def _say(line: str) -> None:
    click.echo(line, err=True)


@main.command()
@click.option("--vehicle", type=VEHICLE, default=None, help="One vehicle file; default: all.")
@one_line_errors
def generate(vehicle: Path | None) -> None:
    """Generate and compile solver, kernels and physics (only those that are missing)."""
    from acados_gen.generate import generate_all

    files = [vehicle] if vehicle else sorted((config_folder() / ConfigKind.VEHICLE).glob("*.toml"))
    for library in generate_all(files, click.echo):
        click.echo(str(library))


@main.command()
@click.argument("mission")
@click.option(
    "--vehicle",
    type=VEHICLE,
    default=None,
    envvar="COMPANION_VEHICLE",
    help=f"Vehicle file.  [default: {DEFAULT_VEHICLE_NAME}; with --fcu sim or px4 the scenario's]",
)
@click.option(
    "--fcu",
    default="",
    envvar="COMPANION_FCU",
    help="serial:DEVICE:BAUD, udpin:HOST:PORT, tcp:HOST:PORT, sim, or px4. Default: the vehicle file's.",
)
@click.option("--scenario", type=SCENARIO, default=None, help="With sim or px4: the world to fly in.")
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="With sim or px4: seed of everything random."
)
@click.option(
    "--instance",
    type=click.IntRange(0),  # sitl.ports has the largest
    default=0,
    show_default=True,
    help="With sim or px4: added to all UDP ports, so that flights side by side do not disturb each other.",
)
@click.option(
    "--px4-mode",
    type=click.Choice(["external", "sih"]),
    default="external",
    show_default=True,
    help="With px4: whose physics, ours in lockstep or PX4's own.",
)
@click.option(
    "--px4-build",
    type=FILE,
    default=None,
    help="With px4: its simulation build. Default: PX4_BUILD, then px4 on the PATH.",
)
@click.option(
    "--speed",
    type=Number(0.1, 50.0),
    default=None,
    help="With px4, external: simulated time, at most this many times real time; without it real processes in real time.",
)
@click.option(
    "--sensors",
    type=click.Choice(SENSORS),
    default=None,
    help=f"With sim: as for the command `sim`.  [default: {DEFAULT_SENSORS}]",
)
@PILOT_OPTION
@RESUME_OPTION
@click.option(
    "--yes-auto",
    is_flag=True,
    help='Not in a simulation: fly a mission with start = "auto", which takes off by itself.',
)
@click.option("--out", type=FILE, default=FLIGHTS, show_default=True, help="Folder for logs and reports.")
@one_line_errors
def fly(
    mission: str,
    vehicle: Path | None,
    fcu: str,
    scenario: Path | None,
    seed: int,
    instance: int,
    px4_mode: str,
    px4_build: Path | None,
    speed: float | None,
    sensors: str | None,
    pilot: str | None,
    resume: tuple[Path, ...],
    yes_auto: bool,
    out: Path,
) -> None:
    """Fly MISSION with all onboard processes; ends with a summary, the report's path and the cause of an early end.

    With --fcu sim or px4 MISSION may be the name of a scenario.
    """
    from companion.runtime.fly import fly as fly_mission
    from companion.runtime.processes import YES_AUTO
    from companion.runtime.resume import photographed, run_with

    check_output_folder(out)
    mission_file, scenario = _flown(mission, scenario, fcu)
    if sensors is not None and fcu != "sim":
        raise UserError(f"--sensors {sensors}: only with --fcu sim")
    if pilot is not None and fcu not in ("sim", "px4"):
        raise UserError(f"--pilot {pilot}: only with --fcu sim or px4: an aircraft has a pilot")
    former = photographed(mission_file, resume, simulated=fcu in ("sim", "px4"), say=_say)
    if fcu == "px4":
        from sitl.px4.fly import fly_px4

        sys.exit(
            fly_px4(mission_file, vehicle, scenario, px4_mode, px4_build, seed, speed, out, instance, former, pilot)
        )
    if fcu != "sim" and (near := did_you_mean(fcu, ("sim", "px4"))):
        raise UserError(f"--fcu {fcu}: no such link{near}")
    if fcu != "sim":
        vehicle = vehicle or find_config(DEFAULT_VEHICLE_NAME, ConfigKind.VEHICLE)
        run = run_with({"kind": "aircraft"} | ({YES_AUTO: True} if yes_auto else {}), former)
        sys.exit(fly_mission(mission_file, vehicle, fcu, out, simulated=False, run=run))
    from companion.runtime.manager import python
    from sitl.kernels import build_missing
    from sitl.ports import check_ports_free
    from sitl.realtime import fcu_url
    from sitl.scenario import SensorKind, load_scenario, scenario_for, with_pilot
    from sitl.simulate import REALTIME, drawn_facts
    from sitl.unkind import with_sensors

    check_ports_free(instance)
    scenario = scenario or scenario_for(mission_file)
    kind = SensorKind(sensors or DEFAULT_SENSORS)
    loaded = load_scenario(scenario, vehicle)
    vehicle = loaded.vehicle_path
    loaded = with_sensors(loaded if pilot is None else with_pilot(loaded, pilot), kind, seed)
    build_missing(vehicle, click.echo)

    def simulator(bus: Path, folder: Path) -> dict[str, list[str]]:
        words = ("--seed", str(seed), "--bus", str(bus), "--instance", str(instance), "--vehicle", str(vehicle))
        piloted = () if pilot is None else ("--pilot", pilot)
        return {"simulator": python("sitl.realtime", str(scenario), *words, "--sensors", kind, *piloted)}

    timeout_s = loaded.scenario.duration_max_s
    url = fcu_url(instance)
    run = run_with({"kind": REALTIME, "seed": seed, **drawn_facts(loaded)}, former)
    status = fly_mission(mission_file, vehicle, url, out, True, simulator, timeout_s, scenario=scenario, run=run)
    sys.exit(status)


def _flown(named: str, scenario: Path | None, fcu: str) -> tuple[Path, Path | None]:
    """The mission that `fly` names, and the scenario to fly it in, None: that of the mission's name.

    Raises `ConfigError`.
    """
    is_scenario = named in names_of(ConfigKind.SCENARIO) and named not in names_of(ConfigKind.MISSION)
    if fcu in ("sim", "px4") and scenario is None and is_scenario and not Path(named).exists():
        from sitl.scenario import load_scenario

        file = find_config(named, ConfigKind.SCENARIO)
        return load_scenario(file).mission_path, file
    return MISSION.convert(named, None, click.get_current_context()), scenario


@main.command()
@click.argument("scenario", type=SCENARIO)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option("--stack", type=click.Choice(STACKS), default="full", show_default=True, help="Which stack flies.")
@click.option("--vehicle", type=VEHICLE, default=None, help="Another vehicle file than the scenario's.")
@click.option("--airframe", type=AIRFRAME, default=None, help="Another simulated aircraft than the scenario's.")
@click.option(
    "--camera", type=click.Choice(["images", "corners"]), default=None, help="Override the scenario's camera mode."
)
@SENSORS_OPTION
@PILOT_OPTION
@RESUME_OPTION
@click.option(
    "--json", "json_file", type=OutputFile(), default=None, help="Write the whole result here; -: standard output."
)
@click.option("--log", "log_file", type=OutputFile(), default=None, help="Write the flight log here.")
@click.option(
    "--photographs",
    "photograph_folder",
    type=FILE,
    default=None,
    help="Draw the payload camera's photographs into this folder after the flight, with tags.",
)
@click.option(
    "--refine/--no-refine",
    default=True,
    help="Find the poses of an inspection's photographs again after the flight: a minute or two.  [default: refine]",
)
@one_line_errors
def sim(
    scenario: Path,
    seed: int,
    stack: str,
    vehicle: Path | None,
    airframe: Path | None,
    camera: "CameraMode | None",
    sensors: str,
    pilot: str | None,
    resume: tuple[Path, ...],
    json_file: Path | None,
    log_file: Path | None,
    photograph_folder: Path | None,
    refine: bool,
) -> None:
    """Fly SCENARIO in lockstep, in one process and simulated time; the same seed gives the same flight."""
    from companion.runtime.resume import photographed
    from sitl.baselines.stacks import prepare
    from sitl.kernels import build_missing
    from sitl.scenario import SensorKind, load_scenario, with_pilot
    from sitl.simulate import FlightProgress, fly_loaded
    from sitl.unkind import with_sensors

    if log_file is not None and log_file.exists():
        raise OutputError(f"{log_file}: log exists already; logs are never overwritten")
    loaded = load_scenario(scenario, vehicle, camera, airframe)
    loaded = with_sensors(loaded if pilot is None else with_pilot(loaded, pilot), SensorKind(sensors), seed)
    if photograph_folder is not None:
        from sitl.photographs import check_drawable

        check_drawable(loaded, photograph_folder)
    build_missing(loaded.vehicle_path, _say)
    prepare(stack, loaded.vehicle)
    former = photographed(loaded.mission_path, resume, simulated=True, say=_say)
    refine &= loaded.plan.inspection is not None
    progress = FlightProgress()
    with tempfile.TemporaryDirectory(prefix="companion-sim-") as folder:
        recorded = Path(folder) / "flight.mcap" if refine and log_file is None else log_file
        try:
            flight = fly_loaded(loaded, seed, stack, recorded, progress, former)
        except KeyboardInterrupt:
            kept = f"; the log until then: {log_file}" if log_file is not None and log_file.exists() else ""
            end_with(f"interrupted{kept}", INTERRUPTED)
        finally:
            progress.end()
        pictures, problem = photograph_folder, None
        if pictures is None and refine and loaded.solids is not None:
            pictures = Path(folder) / "photographs"
        if pictures is not None:
            problem = _draw(loaded, seed, flight, pictures, tags=photograph_folder is not None)
            if problem is not None and photograph_folder is None:
                _say(f"{problem}: the photographs' poses are found without pictures")
        if not flight.lockstep.messages["capture_truth"] or problem is not None:
            pictures = None
        if refine and recorded is not None:
            from calibration.map.photographs_command import refined_figures

            _say("finding the poses of the photographs again (Ctrl-C: without)")
            flight.result["inspection"] |= refined_figures(recorded, pictures)
    _print_flight(flight, json_file, log_file)
    if problem is not None and photograph_folder is not None:
        raise problem
    if flight.log_problem and log_file is not None:
        end_with(f"the log is incomplete: {flight.log_problem}", REFUSED)
    sys.exit(0 if flight.result["completed"] else 1)


def _draw(loaded: "LoadedScenario", seed: int, flight: "SimulatedFlight", folder: Path, tags: bool) -> UserError | None:
    """Draw the photographs of a flight; why that is not possible, for a flight's result must not be lost with its pictures."""
    try:
        from sitl.photographs import draw_photographs

        messages = flight.lockstep.messages
        count = draw_photographs(loaded, seed, messages["capture_truth"], messages["capture"], folder, tags)
    except UserError as error:
        return error
    except KeyboardInterrupt:
        return UserError(f"{folder}: interrupted")
    except OSError as error:
        return OutputError(f"{folder}: photographs cannot be written: {os_error_line(error)}")
    except Exception as error:  # of a driver or a library that draws: the result of the flight is not written yet
        return UserError(
            f"{folder}: photographs cannot be drawn: {type(error).__name__}: {plain(str(error), DRAWING_ERROR_MAX)}"
        )
    if tags:
        _say(f"{count} photographs drawn in {folder}")
    return None


def _print_flight(flight: "SimulatedFlight", json_file: Path | None, log_file: Path | None) -> None:
    """The table and the last line; on stderr when the JSON is on stdout."""
    from companion.runtime.fly import ending_line
    from sitl.simulate import result_table

    failed: OutputError | None = None
    to_stdout = json_file == STDOUT
    try:
        _write_json(flight.result, json_file)
    except OutputError as error:
        failed, to_stdout = error, True
    console = _console(stderr=to_stdout)
    console.print(result_table(flight, log_file))
    console.print(plain(ending_line(flight.status)), highlight=False, soft_wrap=True)
    if failed is not None:
        raise failed


def _write_json(result: dict[str, Any], json_file: Path | None) -> None:
    """Write a result to a file or, for "-", to stdout; None: not at all."""
    text = json.dumps(result, indent=2) + "\n"
    if json_file == STDOUT:
        click.echo(text, nl=False)
    elif json_file is not None:
        write_output(json_file, text)


def _console(stderr: bool = False) -> "Console":
    from rich.console import Console

    console = Console(stderr=stderr, markup=False)
    if not console.is_terminal:
        console.width = TABLE_WIDTH
    return console


def _stack_names(_context: click.Context, _parameter: click.Parameter, value: str) -> list[str]:
    names = [name.strip() for name in value.split(",")]
    if unknown := [name for name in names if name not in STACKS]:
        near = did_you_mean(unknown[0], STACKS)
        raise click.BadParameter(f"'{unknown[0]}' is not one of {', '.join(STACKS)}{near}")
    return list(dict.fromkeys(names))


@main.command()
@click.argument("scenario", type=SCENARIO)
@click.option("--seeds", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many.")
@click.option("--first-seed", type=click.IntRange(0), default=1, show_default=True)
@click.option(
    "--stacks", default=",".join(STACKS), show_default=True, callback=_stack_names, help="Which, and in which order."
)
@click.option("--vehicle", type=VEHICLE, default=None, help="Another vehicle file.")
@click.option(
    "--camera", type=click.Choice(["images", "corners"]), default=None, help="Override the scenario's camera mode."
)
@SENSORS_OPTION
@click.option("--workers", type=click.IntRange(1, 64), default=2, show_default=True, help="Processes at a time.")
@click.option("--json", "json_file", type=OutputFile(), default=None, help="Write the result here; -: standard output.")
@click.option("--plot", "plot_file", type=OutputFile(), default=None, help="Write the plot here (PNG).")
@one_line_errors
def compare(
    scenario: Path,
    seeds: int,
    first_seed: int,
    stacks: list[str],
    vehicle: Path | None,
    camera: "CameraMode | None",
    sensors: str,
    workers: int,
    json_file: Path | None,
    plot_file: Path | None,
) -> None:
    """Fly SCENARIO with this stack and the baselines in the same air, over several seeds."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from sitl.compare import check_plot, consistency_line, plot, table
    from sitl.compare import compare as compare_stacks
    from sitl.kernels import build_missing
    from sitl.scenario import SensorKind, load_scenario

    if plot_file is not None:
        check_plot(plot_file)
    build_missing(load_scenario(scenario, vehicle, camera).vehicle_path, _say)
    errors, total = Console(stderr=True, markup=False), seeds * len(stacks)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("flights", total=total)
        flown = 0

        def show(run: dict[str, Any]) -> None:
            nonlocal flown
            flown += 1
            bar.advance(task)
            error = run["position_rms_m"]
            shown = run["final_reason"] if error is None else f"{error:.3f} m"
            line = f"{flown:>3}/{total}  {run['stack']:>6}  seed {run['seed']}: {shown}"
            errors.print(plain(line), highlight=False, soft_wrap=True)

        chosen, given = range(first_seed, first_seed + seeds), SensorKind(sensors)
        result = compare_stacks(scenario, chosen, stacks, vehicle, camera, workers, show, given)
    failed: OutputError | None = None
    to_stdout = json_file == STDOUT
    try:
        if result["runs"] or json_file == STDOUT:  # without a single flight a former result stays as it is
            _write_json(result, json_file)
    except OutputError as error:
        failed, to_stdout = error, True
    console = _console(stderr=to_stdout)
    console.print(table(result))
    for stack, row in result["summary"].items():
        if row["nees"]:
            click.echo(consistency_line(stack, row["nees"]), err=to_stdout)
    if plot_file is not None and result["runs"]:
        plot(result, plot_file)
    if failed is not None:
        raise failed
    if result["incomplete"]:
        interrupted = result["incomplete_reason"] == "interrupted"
        line = f"{result['incomplete_reason']}: {len(result['runs'])} of {total} flights flown"
        end_with(line, INTERRUPTED if interrupted else REFUSED)


@main.command()
@click.argument("log", type=FILE)
@click.option(
    "--tolerance",
    type=Number(0.0, 100.0),
    default=None,
    help="Compare the true positions over the hold, within this distance [m], instead of every message.",
)
@click.option(
    "--json", "json_file", type=OutputFile(), default=None, help="Write the comparison here; -: standard output."
)
@one_line_errors
def refly(log: Path, tolerance: float | None, json_file: Path | None) -> None:
    """Fly the simulated flight of LOG again, from the log alone, and compare; exit status 0 when they are equal.

    Without --tolerance every message must be equal. That needs the same sources and the same processor.
    """
    from sitl.kernels import build_missing
    from sitl.refly import comparison_lines, prepare_refly, refly_prepared
    from sitl.simulate import FlightProgress

    with prepare_refly(log, tolerance) as prepared:
        build_missing(prepared.loaded.vehicle_path, _say)
        progress = FlightProgress()
        try:
            comparison = refly_prepared(prepared, progress)
        finally:
            progress.end()
    _write_json(comparison._asdict(), json_file)
    for line in comparison_lines(comparison):
        click.echo(line, err=json_file == STDOUT)
    sys.exit(0 if comparison.equal else 1)


if __name__ == "__main__":
    main()

"""One command line: ``companion …``.

A start that is refused ends with exit status 2 and one line on stderr; a flight that did not reach its end ends
with status 1; everything else with 0.
"""

import json
import sys
from pathlib import Path

import click

from companion.core.command_line import DEFAULT_VEHICLE, FLIGHTS, LazyGroup, one_line_errors

TABLE_WIDTH = 150  # characters, where no terminal says how many there are
STACKS = ("full", "paper", "px4")  # sitl.baselines.stacks; not imported here, because the simulator may be absent


LAZY: dict[str, str] = {
    "calibrate": "calibration.commands:calibrate",
    "identify": "calibration.identification.command:identify",
    "preflight": "companion.preflight.command:preflight",
    "safety": "companion.view.safety_table:safety",
    "watch": "companion.view.watch:watch",
}


@click.group(cls=LazyGroup, lazy=LAZY, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Onboard flight companion for PX4 multirotors: tracking, estimation, control, and their simulator."""


@main.command()
@click.option("--vehicle", type=click.Path(path_type=Path), default=None, help="One vehicle file; default: all.")
@one_line_errors
def generate(vehicle: Path | None) -> None:
    """Generate and compile solver, kernels and physics (only what is not there yet)."""
    from acados_gen.generate import generate_all

    files = [vehicle] if vehicle else sorted(DEFAULT_VEHICLE.parent.glob("*.toml"))
    for library in generate_all(files, click.echo):
        click.echo(str(library))


@main.command()
@click.argument("mission", type=click.Path(path_type=Path))
@click.option(
    "--vehicle",
    type=click.Path(path_type=Path),
    default=None,
    help=f"Vehicle file.  [default: {DEFAULT_VEHICLE}; with --fcu px4 what the simulated aircraft needs]",
)
@click.option(
    "--fcu",
    default="",
    help="serial:DEVICE:BAUD, udpin:HOST:PORT, tcp:HOST:PORT, sim, or px4. Default: the vehicle file's.",
)
@click.option("--scenario", type=click.Path(path_type=Path), default=None, help="With sim or px4: the world to fly in.")
@click.option("--seed", type=int, default=1, show_default=True, help="With sim or px4: seed of everything random.")
@click.option(
    "--px4-mode",
    type=click.Choice(["external", "sih"]),
    default="external",
    show_default=True,
    help="With px4: whose physics, ours in lockstep or PX4's own.",
)
@click.option(
    "--px4-build",
    type=click.Path(path_type=Path),
    default=None,
    help="With px4: its simulation build. Default: PX4_BUILD, then px4 on the PATH.",
)
@click.option(
    "--speed",
    type=click.FloatRange(0.1, 50.0),
    default=None,
    help="With px4, external: simulated time, so many times the clock's; without it real processes in real time.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=FLIGHTS, show_default=True, help="Folder for logs and reports."
)
@one_line_errors
def fly(
    mission: Path,
    vehicle: Path | None,
    fcu: str,
    scenario: Path | None,
    seed: int,
    px4_mode: str,
    px4_build: Path | None,
    speed: float | None,
    out: Path,
) -> None:
    """Fly MISSION with all onboard processes; ends with a summary and the report's path."""
    from companion.runtime.fly import fly as fly_mission

    if fcu == "px4":
        from sitl.px4.fly import fly_px4

        sys.exit(fly_px4(mission, vehicle, scenario, px4_mode, px4_build, seed, speed, out))
    vehicle = vehicle or DEFAULT_VEHICLE
    if fcu != "sim":
        sys.exit(fly_mission(mission, vehicle, fcu, out, simulated=False))
    from acados_gen.generate import generate_all
    from companion.runtime.manager import python
    from sitl.realtime import fcu_url
    from sitl.scenario import load_scenario, scenario_for

    scenario = scenario or scenario_for(mission)
    loaded = load_scenario(scenario, vehicle)
    list(generate_all([vehicle], click.echo))

    def simulator(bus: Path, folder: Path) -> dict[str, list[str]]:
        return {"simulator": python("sitl.realtime", str(scenario), "--seed", str(seed), "--bus", str(bus))}

    timeout_s = loaded.scenario.duration_max_s
    sys.exit(fly_mission(mission, vehicle, fcu_url(), out, simulated=True, extra=simulator, timeout_s=timeout_s))


@main.command()
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--stack", type=click.Choice(STACKS), default="full", show_default=True, help="Who flies.")
@click.option(
    "--vehicle", type=click.Path(path_type=Path), default=None, help="Another vehicle file than the scenario's."
)
@click.option(
    "--camera", type=click.Choice(["images", "corners"]), default=None, help="Override the scenario's camera mode."
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), default=None, help="Write the result here.")
@click.option("--log", "log_file", type=click.Path(path_type=Path), default=None, help="Write the flight log here.")
@one_line_errors
def sim(
    scenario: Path,
    seed: int,
    stack: str,
    vehicle: Path | None,
    camera: str | None,
    json_file: Path | None,
    log_file: Path | None,
) -> None:
    """Fly SCENARIO in lockstep, in one process and simulated time; the same seed gives the same flight."""
    from sitl.baselines.stacks import prepare
    from sitl.scenario import load_scenario
    from sitl.simulate import simulate

    prepare(stack, load_scenario(scenario, vehicle, camera).vehicle)
    result = simulate(scenario, seed, stack, vehicle, camera, log_file, progress=sys.stderr.isatty())
    text = json.dumps(result, indent=2)
    if json_file:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(text + "\n")
    click.echo(text)
    sys.exit(0 if result["completed"] else 1)


def _stack_names(_context: click.Context, _parameter: click.Parameter, value: str) -> list[str]:
    names = [name.strip() for name in value.split(",")]
    if unknown := [name for name in names if name not in STACKS]:
        raise click.BadParameter(f"'{unknown[0]}' is not one of {', '.join(STACKS)}")
    return list(dict.fromkeys(names))


@main.command()
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option("--seeds", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many.")
@click.option("--first-seed", type=click.IntRange(0), default=1, show_default=True)
@click.option(
    "--stacks", default=",".join(STACKS), show_default=True, callback=_stack_names, help="Which, and in which order."
)
@click.option("--vehicle", type=click.Path(path_type=Path), default=None, help="Another vehicle file.")
@click.option(
    "--camera", type=click.Choice(["images", "corners"]), default=None, help="Override the scenario's camera mode."
)
@click.option("--workers", type=click.IntRange(1, 64), default=2, show_default=True, help="Processes at a time.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), default=None, help="Write the result here.")
@click.option("--plot", "plot_file", type=click.Path(path_type=Path), default=None, help="Write the plot here (PNG).")
@one_line_errors
def compare(
    scenario: Path,
    seeds: int,
    first_seed: int,
    stacks: list[str],
    vehicle: Path | None,
    camera: str | None,
    workers: int,
    json_file: Path | None,
    plot_file: Path | None,
) -> None:
    """Fly SCENARIO with this stack and its opponents in the same air, over several seeds."""
    from rich.console import Console

    from sitl.compare import compare as compare_stacks
    from sitl.compare import consistency_line, plot, table

    def say(run: dict) -> None:
        error = run["position_rms_m"]
        result = run["final_reason"] if error is None else f"{error:.3f} m"
        click.echo(f"{run['stack']:>6}  seed {run['seed']}: {result}", err=True)

    result = compare_stacks(scenario, range(first_seed, first_seed + seeds), stacks, vehicle, camera, workers, say)
    console = Console()
    if not console.is_terminal:
        console.width = TABLE_WIDTH
    console.print(table(result))
    for stack, row in result["summary"].items():
        if row["nees"]:
            click.echo(consistency_line(stack, row["nees"]))
    if json_file:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps(result, indent=2) + "\n")
    if plot_file:
        plot(result, plot_file)


@main.command()
@click.argument("log", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Folder; default: beside the log.")
@one_line_errors
def report(log: Path, out: Path | None) -> None:
    """Write the HTML report of a flight log."""
    from companion.recording.report import write_report

    click.echo(str(write_report(log, out or log.parent)))


if __name__ == "__main__":
    main()

"""``companion calibrate thrust``: the thrust numbers of a vehicle file, from a motor on the bench or from tables."""

import shlex
import sys
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import click
import numpy as np
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table

from calibration.results import DataError, Result, refuse_twice, result, write_json
from calibration.thrust.bench.bench_file import Bench, load_bench
from calibration.thrust.curve import NEAR_V, ThrustFit, fit_thrust
from calibration.thrust.goodness import doubts, poor
from calibration.thrust.hover import Hover, Output, hover, thrust_model_factor
from calibration.thrust.hover_flights import from_hovers, hover_changes
from calibration.thrust.plausible import refuse_other_unit, refuse_other_voltage
from calibration.thrust.selection import Selection
from calibration.thrust.steps import all_steps, command_text
from calibration.thrust.table import read_thrust_csv
from calibration.vehicle_file import Change, confirm_and_write
from companion.core.command_line import HELP, ConfigFile, Number, OutputFile, WritableVehicle, one_line_errors
from companion.core.config import ConfigError, load
from companion.core.config_files import ConfigKind
from companion.core.vehicle import Vehicle

OF_TABLES = {"thrust_unit", "command_unit", "voltage"}  # parameters of `command` that --bench does not use
TABLE_WIDTH = 130  # characters, without a terminal
SHOWN = 12  # points left out that are listed on the screen; --json has all
# Parameters of `command` that --hover uses.
OF_HOVERS = {
    "hovers",
    "vehicle",
    "mass_kg",
    "thr_mdl_fac",
    "reference_voltage",
    "voltage",
    "poor_fit",
    "json_file",
    "yes",
}


@click.command(context_settings=HELP)
@click.argument("raw", nargs=-1, type=click.Path(path_type=Path))
@click.option("--fit", "offline", is_flag=True, help="Fit the tables RAW…; no bench.")
@click.option("--bench", "bench_file", type=ConfigFile(ConfigKind.BENCH), default=None, help="config/benches/*.toml")
@click.option("--save", type=OutputFile(), default=None, help="With --bench: file for the raw data.")
@click.option("--resume", is_flag=True, help="With --bench and --save: continue an interrupted run.")
@click.option(
    "--hover",
    "hovers",
    nargs=2,
    type=Number(0.0),
    multiple=True,
    metavar="KG COMMAND",
    help="Without a stand: mass and PX4's thrust command (0..1) of a hover that was flown; repeat for other loads.",
)
@click.option("--vehicle", type=WritableVehicle(), default=None, help="Vehicle file to write into.")
@click.option("--mass", "mass_kg", type=Number(0.05, 200), default=None, help="kg. Default: the vehicle's.")
@click.option(
    "--motors",
    type=click.IntRange(1, 16),
    default=None,
    help="How many such motors the aircraft has (pairs, if a coaxial pair was measured). k_T needs it; no default.",
)
@click.option(
    "--pwm-min", type=Number(0.0), default=None, help="PX4's PWM_MAIN_MINn, µs. Default: the bench file's or 1000."
)
@click.option(
    "--pwm-max", type=Number(0.0), default=None, help="PX4's PWM_MAIN_MAXn, µs. Default: the bench file's or 2000."
)
@click.option(
    "--thr-mdl-fac",
    type=Number(0, 1),
    default=None,
    help="THR_MDL_FAC with which PX4 flies. Default: the fitted one, which is then to be set in PX4. With --hover and "
    "--vehicle: of those flights; no default.",
)
@click.option(
    "--reference-voltage",
    type=Number(3, 100),
    default=None,
    help="Default: the vehicle's. With --hover it repeats --voltage, for another battery than the vehicle file's.",
)
@click.option("--voltage", type=Number(2, 120), default=None, help="Of tables without voltage, or of the hovers.")
@click.option(
    "--thrust-unit",
    type=click.Choice(["gf", "kgf", "N", "lbf", "ozf"]),
    default=None,
    help="Of tables whose header has no unit.",
)
@click.option(
    "--command-unit",
    type=click.Choice(["us", "%", "0..1", "dshot", "0..2000"]),
    default=None,
    help="Of the command in tables, instead of the header's: dshot is 48 to 2047, 0..2000 its steps from zero.",
)
@click.option("--min-us", type=Number(700, 2400), default=None, help="Leave out readings below (and steps).")
@click.option("--max-us", type=Number(800, 2500), default=None, help="Leave out readings above (and steps).")
@click.option("--min-voltage", type=Number(2, 120), default=None, help="Leave out readings below; V.")
@click.option("--poor-fit", is_flag=True, help="Write a fit that is worse than docs/thrust_bench.md calls good.")
@click.option("--plot", type=OutputFile(), default=None, help="Write the picture here (PNG, PDF, SVG).")
@click.option("--json", "json_file", type=OutputFile(), default=None, help="Write the result here.")
@click.option("--yes", is_flag=True, help="Write into the vehicle file without asking.")
@one_line_errors
def command(
    raw: tuple[Path, ...],
    offline: bool,
    bench_file: Path | None,
    save: Path | None,
    resume: bool,
    hovers: tuple[tuple[float, float], ...],
    vehicle: Path | None,
    mass_kg: float | None,
    motors: int | None,
    pwm_min: float | None,
    pwm_max: float | None,
    thr_mdl_fac: float | None,
    reference_voltage: float | None,
    voltage: float | None,
    thrust_unit: str | None,
    command_unit: str | None,
    min_us: float | None,
    max_us: float | None,
    min_voltage: float | None,
    poor_fit: bool,
    plot: Path | None,
    json_file: Path | None,
    yes: bool,
) -> None:
    """Thrust of one motor against command and voltage, from the bench (--bench) or from tables (--fit RAW…).

    All tables must be of one motor with one propeller; a larger difference of their voltages is better. Without a
    stand, hovers that were flown give k_T only (--hover). --vehicle names the file to write into; without it nothing is
    written. --min-us, --max-us and --min-voltage select the readings; with --bench the motor also keeps to them.
    """
    if offline + (bench_file is not None) + bool(hovers) != 1 or offline != bool(raw):
        raise ConfigError("give one of --bench FILE, --fit with one or more tables, --hover KG COMMAND")
    refuse_twice(raw)
    target = load(vehicle, Vehicle) if vehicle else None
    if hovers:
        _refuse_unused()
        content = from_hovers(hovers, voltage, mass_kg, vehicle, target, thr_mdl_fac, reference_voltage)
        if json_file:
            write_json(json_file, content)
        if vehicle:
            _refuse_poor(vehicle, content, poor_fit)
            confirm_and_write(vehicle, hover_changes(content), yes)
        return
    mass_kg = mass_kg or (target.mass_kg if target else None)
    if mass_kg and motors is None:
        raise ConfigError("--motors N is missing: k_T of the aircraft depends on how many such motors it has")
    if bench_file is not None and (unused := _given(OF_TABLES)):
        raise ConfigError(f"--bench does not use {', '.join(unused)}: leave out what belongs to --fit")
    selection = Selection(min_us, max_us, min_voltage)
    bench = selection.of_bench(load_bench(bench_file)) if bench_file else None
    if bench is not None:
        raw = (_measure(bench, save, resume),)
    output = Output(
        pwm_min or (bench.motor.pwm_min_us if bench else 1000.0),
        pwm_max or (bench.motor.pwm_max_us if bench else 2000.0),
        thr_mdl_fac,
    )
    if output.pwm_max_us - output.pwm_min_us < 300:
        raise ConfigError(f"--pwm-min {output.pwm_min_us:g}, --pwm-max {output.pwm_max_us:g}: less than 300 µs apart")
    runs = [run for path in raw for run in read_thrust_csv(path, thrust_unit, voltage, command_unit)]
    fit = fit_thrust(all_steps(selection.of_runs(runs)), target.thrust.voltage_exponent if target else None)
    if target is not None and reference_voltage is None:
        refuse_other_voltage(fit.curve.voltage_range_v, target.thrust.reference_voltage_v, str(vehicle))
    fit = _at_reference(fit, reference_voltage, target)
    reference_v = fit.curve.reference_voltage_v
    at_hover = hover(fit.curve, output, mass_kg, motors, reference_v) if mass_kg and motors else None
    if at_hover:
        refuse_other_unit(at_hover.thrust_to_weight, raw[0])
    content = _result(raw, fit, output, at_hover, mass_kg, motors, target)
    _show(fit, output, at_hover, content)
    if plot:
        from calibration.thrust.plots import write_plot

        write_plot(plot, fit)
        click.echo(f"plot: {plot}")
    if json_file:
        write_json(json_file, content)
    if vehicle:
        _refuse_poor(vehicle, content, poor_fit)
        confirm_and_write(vehicle, _changes(raw, fit, at_hover, content), yes)


def _refuse_poor(vehicle: Path, content: Result, poor_fit: bool) -> None:
    if (poor := content["details"]["poor"]) and not poor_fit:
        raise DataError(f"{vehicle}: nothing written: {poor[0]}; --poor-fit writes it nevertheless")


def _refuse_unused() -> None:
    """Raises `ConfigError` for an option that --hover would ignore without a word."""
    if unused := _given({option.name or "" for option in click.get_current_context().command.params} - OF_HOVERS):
        raise ConfigError(f"--hover does not use {', '.join(unused)}: leave out what belongs to --bench and --fit")


def _given(names: set[str]) -> list[str]:
    """The options among these parameters of `command` that the command line has."""
    context = click.get_current_context()
    return [
        option.opts[0]
        for option in context.command.params
        if option.name in names and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    ]


def _again(save: Path) -> str:
    """The command that continues this run: its options as they were given, with the file of the raw data."""
    context = click.get_current_context()
    words = ["companion", "calibrate", "thrust"]
    for option in context.command.params:
        given = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if isinstance(option, click.Option) and given and option.name not in ("save", "resume"):
            value = context.params[option.name or ""]
            words += [option.opts[0]] + ([] if option.is_flag else [str(value)])
    return shlex.join([*words, "--save", str(save), "--resume"])


def _measure(bench: Bench, save: Path | None, resume: bool) -> Path:
    """Run the bench; returns the raw data's file. Ends the program with status 1 if the motor had to be stopped."""
    from calibration.thrust.bench.display import display_for
    from calibration.thrust.bench.pause import SystemClock
    from calibration.thrust.bench.run import BenchRun, BenchStopped

    if resume and save is None:
        raise ConfigError("--resume needs --save FILE: the raw data of the interrupted run")
    save = save or Path(f"thrust_{datetime.now():%Y-%m-%d_%H%M%S}.csv")
    try:
        BenchRun(bench, save, resume, display_for(Console()), SystemClock(), _again(save)).measure()
    except BenchStopped as stopped:
        with suppress(OSError):  # the terminal may be gone; the raw data have the line, too
            click.echo(f"companion: {stopped}", err=True)
        sys.exit(1)
    click.echo(f"raw data: {save}")
    return save


def _at_reference(fit: ThrustFit, reference_v: float | None, target: Vehicle | None) -> ThrustFit:
    """The fit at the given voltage, else at that of the vehicle file if it is near those measured, else the median."""
    low, high = fit.curve.voltage_range_v
    if reference_v is None and target is not None:
        kept = target.thrust.reference_voltage_v
        reference_v = kept if low * (1 - NEAR_V) <= kept <= high * (1 + NEAR_V) else None
    return fit.at_reference(reference_v if reference_v is not None else round(fit.curve.reference_voltage_v, 2))


def _compensated(target: Vehicle | None) -> bool:
    """Whether the vehicle file says that PX4 compensates the battery: thrust then does not depend on its voltage."""
    return target is not None and target.thrust.voltage_exponent == 0.0


def _values(fit: ThrustFit, at_hover: Hover | None, target: Vehicle | None) -> dict[str, float]:
    values = {}
    if at_hover is not None:
        values["thrust.coefficient_m_s2"] = at_hover.k_T_m_s2
        values["thrust.reference_voltage_v"] = fit.curve.reference_voltage_v
    if fit.curve.exponent_known and not _compensated(target):
        values["thrust.voltage_exponent"] = fit.curve.exponent
    return values


def _result(
    raw: tuple[Path, ...],
    fit: ThrustFit,
    output: Output,
    at_hover: Hover | None,
    mass_kg: float | None,
    motors: int | None,
    target: Vehicle | None,
) -> Result:
    curve = fit.curve
    factor, factor_error = thrust_model_factor(curve, output)
    std = np.sqrt(np.diag(curve.covariance))
    merit = fit.merit() | {"voltage_exponent_std": std[2]}
    details = {
        "curve": {
            "full_n": curve.full_n,
            "factor": curve.factor,
            "exponent": curve.exponent,
            "start": curve.start,
            "bend": curve.bend,
            "reference_voltage_v": curve.reference_voltage_v,
            "covariance": curve.covariance,
            "sigma_n": curve.sigma_n,
            "misfit_n": curve.misfit_n,
            "exponent_known": curve.exponent_known,
            "command_range": curve.command_range,
            "voltage_range_v": curve.voltage_range_v,
        },
        "px4": {
            "THR_MDL_FAC": factor,
            "relative_thrust_error": factor_error,
            "used": output.factor if output.factor is not None else factor,
            "pwm_min_us": output.pwm_min_us,
            "pwm_max_us": output.pwm_max_us,
        },
        "runs": [
            {
                "name": steps.run.name,
                "points": len(steps.command),
                "tare_n": tare,
                "sign": steps.sign,
                "plateaus": steps.plateaus,
                "readings_dropped": steps.dropped,
            }
            for steps, tare in zip(fit.runs, fit.tare_n, strict=True)
        ],
        "left_out": [
            {"run": p.run, "command": p.command, "thrust_n": p.thrust_n, "voltage_v": p.voltage_v, "reason": p.reason}
            for p in fit.left_out
        ],
    }
    details["poor"] = not_good = poor(fit)
    if at_hover is not None:
        merit |= {"coefficient_std_m_s2": at_hover.k_T_std_m_s2, "hover_command_std": at_hover.command_std}
        details["hover"] = {
            "mass_kg": mass_kg,
            "motors": motors,
            "voltage_v": at_hover.voltage_v,
            "thrust_per_motor_n": at_hover.thrust_n,
            "pwm_us": at_hover.pwm_us,
            "command": at_hover.command,
            "thrust_to_weight": at_hover.thrust_to_weight,
        }
    warnings = [*fit.warnings, *not_good, *doubts(factor_error, at_hover)]
    if curve.exponent_known and _compensated(target):
        warnings.append(
            "thrust.voltage_exponent stays 0, as for a battery that PX4 compensates (MC_BAT_SCALE_EN); the bench measured"
            f" {curve.exponent:.2f}: without compensation write that by hand"
        )
    values = _values(fit, at_hover, target)
    if "thrust.coefficient_m_s2" in values:
        values["thrust.model_factor"] = output.factor if output.factor is not None else factor
    return result("calibrate thrust", raw, values, merit, warnings, details)


def _changes(raw: tuple[Path, ...], fit: ThrustFit, at_hover: Hover | None, content: Result) -> list[Change]:
    if at_hover is None:
        return []
    merit = content["merit"]
    source = f"{raw[0].name}{' …' if len(raw) > 1 else ''}: R² {fit.r2:.4f}"
    notes = {
        "thrust.coefficient_m_s2": f"{source}, ± {merit['coefficient_std_m_s2']:.2g}",
        "thrust.voltage_exponent": f"{source}, ± {merit['voltage_exponent_std']:.2g}",
    }
    digits = {"thrust.coefficient_m_s2": 3, "thrust.reference_voltage_v": 2, "thrust.voltage_exponent": 3}
    digits["thrust.model_factor"] = 2  # as PX4 shows it
    return [Change(key, round(v, digits[key]), notes.get(key, source)) for key, v in content["values"].items()]


def _show(fit: ThrustFit, output: Output, at_hover: Hover | None, content: Result) -> None:
    curve, merit, px4 = fit.curve, content["merit"], content["details"]["px4"]
    console = Console()
    if not console.is_terminal:
        console.width = TABLE_WIDTH
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    low, high = curve.voltage_range_v
    table.add_row("points", f"{merit['points']} of {len(fit.runs)} runs, {low:.1f} to {high:.1f} V")
    if any(steps.plateaus for steps in fit.runs):
        read = sum(len(steps.run.command) for steps in fit.runs)
        table.add_row(
            "plateaus",
            f"{sum(steps.plateaus for steps in fit.runs)}; {sum(steps.dropped for steps in fit.runs)} of {read} readings "
            "dropped: ramps, and thrust that was not steady yet",
        )
    table.add_row("R²", f"{fit.r2:.5f}")
    table.add_row(
        "residual",
        f"median {merit['residual_median_share']:.2%}, rms {merit['residual_rms_share']:.2%}, "
        f"largest {merit['residual_max_share']:.1%} of {fit.full_measured_n:.2f} N",
    )
    band = 1.96 * float(curve.std_n(1.0, curve.reference_voltage_v))
    table.add_row(
        "full thrust", f"{curve.full_n:.3f} ± {band:.3f} N (95 %) at {curve.reference_voltage_v:.2f} V, 2000 µs"
    )
    known = f"± {merit['voltage_exponent_std']:.2f}" if curve.exponent_known else "assumed, not written"
    table.add_row("voltage exponent", f"{curve.exponent:.3f} {known}")
    table.add_row("motor starts at", command_text(curve.start, True))
    table.add_row(
        "THR_MDL_FAC",
        f"{px4['THR_MDL_FAC']:.3f} for {output.pwm_min_us:.0f} to {output.pwm_max_us:.0f} µs; "
        f"remaining error {px4['relative_thrust_error']:.1%} of full thrust"
        + ("" if output.factor is None else f"; {output.factor:g} of --thr-mdl-fac used"),
    )
    if at_hover is not None:
        table.add_row(
            "hover",
            f"{at_hover.command:.3f} ± {at_hover.command_std:.3f} ({at_hover.pwm_us:.0f} µs, "
            f"{at_hover.thrust_n:.3f} N each) at {at_hover.voltage_v:.2f} V; "
            f"full thrust is {at_hover.thrust_to_weight:.2f} times the weight",
        )
        table.add_row("k_T", f"{at_hover.k_T_m_s2:.3f} ± {at_hover.k_T_std_m_s2:.3f} m/s² per unit of command")
    console.print(table)
    for point in fit.left_out[:SHOWN]:
        where = command_text(point.command, all(steps.run.is_pwm for steps in fit.runs))
        console.print(
            f"left out: {point.run}, {where}, {point.thrust_n:.3f} N, {point.voltage_v:.2f} V: {point.reason}"
        )
    if len(fit.left_out) > SHOWN:
        console.print(f"left out: {len(fit.left_out) - SHOWN} more (--json FILE lists all)")
    for warning in content["warnings"]:
        click.echo(f"warning: {warning}", err=True)

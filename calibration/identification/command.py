"""``companion identify``: the command line of identification from flight logs."""

from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from calibration.flown_vehicle import refuse_other_aircraft
from calibration.identification.identify import Axis, Identification
from calibration.identification.values import as_result, changes, doubts, thrust_at_reference, warnings
from calibration.identification.windows import WINDOW_S
from calibration.results import refuse_twice, write_json
from companion.core.command_line import HELP, Number, OutputFile, OutputFolder, WritableVehicle, one_line_errors
from companion.core.config import ConfigError

TABLE_WIDTH = 120  # characters, without a terminal


@click.command(context_settings=HELP)
@click.argument("logs", metavar="LOG...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--vehicle", type=WritableVehicle(), default=None, help="Vehicle file to write into.")
@click.option("--json", "json_file", type=OutputFile(), default=None, help="Write the result here.")
@click.option("--plots", type=OutputFolder(), default=None, help="Folder for figures of the fits.")
@click.option("--yes", is_flag=True, help="Write into the vehicle file without asking.")
@click.option(
    "--this-aircraft", is_flag=True, help="With --yes: write also if the log looks like that of another aircraft."
)
@click.option(
    "--from",
    "from_s",
    type=Number(min=0.0),
    default=None,
    help="Use the log from this time [s since its start].",
)
@click.option(
    "--to",
    "to_s",
    type=Number(min=0.0),
    default=None,
    help="Use the log up to this time [s since its start].",
)
@click.option(
    "--drag",
    type=click.Choice(["linear", "rotor"]),
    default="linear",
    show_default=True,
    help="The drag that is written: of the hull, or of the rotors in their plane.",
)
@one_line_errors
def identify(
    logs: tuple[Path, ...],
    vehicle: Path | None,
    json_file: Path | None,
    plots: Path | None,
    yes: bool,
    this_aircraft: bool,
    from_s: float | None,
    to_s: float | None,
    drag: str,
) -> None:
    """Attitude response, delay, thrust and drag from flight logs: PX4's ULog, or those of this stack.

    Several LOGs must be of one aircraft. A log that does not show free flight is refused. --vehicle names the file to write into; without it nothing is written.
    """
    from calibration.identification.identify import identify as identify_logs
    from calibration.vehicle_file import confirm_and_write

    refuse_twice(logs)
    found = identify_logs(logs, vehicle, (from_s, to_s))
    source = logs[0].name if len(logs) == 1 else f"{logs[0].name} and {len(logs) - 1} more"
    made = changes(found, source, rotor_drag=drag == "rotor")
    console = Console()
    if not console.is_terminal:
        console.width = TABLE_WIDTH
    console.print(_headline(found))
    console.print(table(found))
    for sentence in warnings(found):
        console.print(f"- {sentence}", markup=False, highlight=False, soft_wrap=True)
    if json_file is not None:
        write_json(json_file, as_result(found, logs, made))
    if plots is not None:
        _plot(found, plots)
    if not made:
        raise ConfigError(
            f"{logs[0]}: no number is certain enough to be written: fly with more movement (docs/identification.md)"
        )
    if vehicle is not None:
        refuse_other_aircraft(vehicle, doubts(found), yes, this_aircraft)
        confirm_and_write(vehicle, made, yes)


def _plot(found: Identification, folder: Path) -> None:
    from calibration.identification.plots import write_plots

    try:
        for path in write_plots(found, folder):
            click.echo(str(path))
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {error.strerror}") from None


def _headline(found: Identification) -> str:
    flight = found.flight
    spans = len(flight.airborne)
    parts = f"{spans} part{'s' if spans > 1 else ''}"
    first_s, last_s = flight.airborne[0][0] - flight.start_s, flight.airborne[-1][1] - flight.start_s
    return (
        f"{flight.kind} of a {flight.aircraft or 'multirotor'}: {flight.airborne_s:.0f} s in the air in {parts},"
        f" from {first_s:.0f} to {last_s:.0f} s of the log"
    )


def table(found: Identification) -> Table:
    """The results with 95 % intervals."""
    shown = Table("", "value", "± 95 %", "")
    for axis in (found.roll, found.pitch, found.yaw):
        _axis_rows(shown, axis)
    forces = found.forces
    if forces is None:
        return shown
    intervals = forces.intervals
    at = f"at {forces.reference_voltage_v:.2f} V" if len(found.flight.voltage) else "at an unknown voltage"
    k = _half(intervals, "thrust_coefficient", 2)
    shown.add_row("k_T in flight", f"{forces.thrust_coefficient_m_s2:.2f} m/s²", k, at)
    reference_v, k_written = thrust_at_reference(found, forces)
    if len(found.flight.voltage) and reference_v != forces.reference_voltage_v:
        at = f"at the reference of {reference_v:g} V, as written"
        shown.add_row("k_T", f"{k_written:.2f} m/s²", "", at)
    if forces.exponent_fitted:
        shown.add_row("voltage exponent", f"{forces.voltage_exponent:.2f}", _half(intervals, "exponent", 2), "")
    if (t := forces.trend) is not None:
        spread = f"{t.low:.2f} to {t.high:.2f}"
        shown.add_row("k_T over voltage", f"U^{t.exponent:.2f}", spread, f"trend of {len(t.voltage_v)} windows")
    shown.add_row("lag of thrust", f"{forces.thrust_lag_s:.3f} s", _half(intervals, "thrust_lag_s", 3), "")
    shown.add_row(
        "velocity", "", "", f"simulated for {WINDOW_S:g} s within {forces.velocity_rms_m_s:.3f} m/s RMS, held out"
    )
    if forces.drag_horizontal_1_s is not None:
        half = _half(intervals, "drag_horizontal", 3)
        at = f"at {forces.speed_rms_m_s:.1f} m/s RMS"
        shown.add_row("horizontal drag", f"{forces.drag_horizontal_1_s:.3f} 1/s", half, at)
        instead = f"instead: velocity within {forces.rotor_velocity_rms_m_s:.3f} m/s RMS"
        shown.add_row("rotor drag", f"{forces.rotor_drag_1_s:.3f} 1/s", "", instead)
    if forces.drag_vertical_1_s is not None:
        shown.add_row("vertical drag", f"{forces.drag_vertical_1_s:.3f} 1/s", _half(intervals, "drag_vertical", 3), "")
    _drag_rows(shown, found)
    return shown


def _drag_rows(shown: Table, found: Identification) -> None:
    if (drags := found.drags) is None:
        return
    for name, value, half, explained, rmse in (
        (
            "acceleration: linear drag",
            ", ".join(f"{d:.3f}" for d in drags.linear_1_s) + " 1/s",
            ", ".join(f"{d:.3f}" for d in drags.linear_half_1_s),
            drags.explained_linear,
            drags.rmse_linear_m_s2,
        ),
        (
            "acceleration: rotor drag",
            f"({drags.k_s_sqrt_m:.4f} t + {drags.b_sqrt_m_s:.3f}) · {drags.c_d_1_sqrt_m:.4f} 1/s",
            f"{drags.c_d_half_1_sqrt_m:.4f} of c_d",
            drags.explained_rotor,
            drags.rmse_rotor_m_s2,
        ),
        (
            "… and vertical",
            f"{drags.vertical_1_s:.3f} 1/s",
            f"{drags.vertical_half_1_s:.3f}",
            drags.explained_rotor_vertical,
            drags.rmse_rotor_vertical_m_s2,
        ),
    ):
        gain = f"explains {100 * explained:.0f} %: {drags.rmse_none_m_s2:.3f} to {rmse:.3f} m/s² RMS, held out"
        shown.add_row(name, value, half, gain)


def _axis_rows(shown: Table, axis: Axis) -> None:
    if (r := axis.response) is None:
        return
    fit = f"fits {axis.held_out_percent:.1f} % of held-out flight, {axis.fit_percent:.1f} % of all"
    certainty = "" if axis.trusted else "uncertain"
    tau = _half(r.intervals, "time_constant_s", 4)
    shown.add_row(f"{axis.name}: time constant", f"{r.time_constant_s:.4f} s", tau, fit)
    shown.add_row(f"{axis.name}: delay", f"{r.delay_s:.4f} s", _half(r.intervals, "delay_s", 4), certainty)
    shown.add_row(f"{axis.name}: gain", f"{r.gain:.3f}", _half(r.intervals, "gain", 3), "")


def _half(intervals: dict[str, float], name: str, digits: int) -> str:
    return f"{intervals[name]:.{digits}f}" if name in intervals else ""

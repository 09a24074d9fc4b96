"""``companion tune``: the parameters of a stick model from a pilot's flight log."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from companion.core.command_line import (
    HELP,
    INTERRUPTED,
    Number,
    OutputFile,
    OutputFolder,
    one_line_errors,
    write_output,
)
from companion.core.errors import UserError
from companion.core.text import plain
from sitl.teleop.parameter_file import parameter_text, read_parameters
from sitl.teleop.pilot_log import Upsampling, read_pilot_log
from sitl.teleop.tello import UNITS
from sitl.teleop.tune import AXES, GENERATIONS, SetName, Tuned, divide, parameter_set, tune

FIT_S, HELD_OUT_S = 20.0, 20.0
TABLE_WIDTH = 100  # characters, without a terminal


@click.command("tune", context_settings=HELP)
@click.argument("logs", metavar="LOG...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--set",
    "set_name",
    type=click.Choice([name.value for name in SetName]),
    default=SetName.GAINS.value,
    show_default=True,
    help="gains: the sixteen of the paper; delay, drag: of the same model; emulator: the response of a flight controller.",
)
@click.option("--fit", "fit_s", type=Number(2.0, 600.0), default=FIT_S, show_default=True, help="Seconds to fit.")
@click.option(
    "--held-out",
    "held_out_s",
    type=Number(5.0, 600.0),
    default=HELD_OUT_S,
    show_default=True,
    help="At most so many seconds after them to check.",
)
@click.option(
    "--from",
    "from_s",
    type=Number(0.0),
    default=0.0,
    help="Start so late [s] in the longest part in the air.",
)
@click.option(
    "--upsampling",
    type=click.Choice([way.value for way in Upsampling]),
    default=Upsampling.LINEAR.value,
    show_default=True,
    help="Between samples of attitude and height; held: as in the paper.",
)
@click.option("--generations", type=click.IntRange(1, 100_000), default=GENERATIONS, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option("--bound", "bounds", multiple=True, help="NAME=LOW:HIGH; may be repeated.")
@click.option(
    "--parameters", type=click.Path(path_type=Path), default=None, help="The parameters that are not in the set."
)
@click.option("--out", type=OutputFile(), default=None, help="Write the parameters here (TOML).")
@click.option("--json", "json_file", type=OutputFile(), default=None, help="Write the whole result here.")
@click.option("--plots", type=OutputFolder(), default=None, help="Folder for one figure per log.")
@one_line_errors
def tune_(
    logs: tuple[Path, ...],
    set_name: str,
    fit_s: float,
    held_out_s: float,
    from_s: float,
    upsampling: str,
    generations: int,
    seed: int,
    bounds: tuple[str, ...],
    parameters: Path | None,
    out: Path | None,
    json_file: Path | None,
    plots: Path | None,
) -> None:
    """Fit the simulated aircraft to a person's flight: PX4's ULog, a log of this stack, or a path of `companion teleop`."""
    name = SetName(set_name)
    if parameters is not None and name is SetName.EMULATOR:
        raise UserError("--parameters: those of the vehicle tello; the set 'emulator' has none of them")
    base = read_parameters(parameters) if parameters is not None else None
    what = parameter_set(name, base, dict(_bound(text) for text in bounds))
    parts = [divide(read_pilot_log(path), fit_s, held_out_s, from_s, Upsampling(upsampling)) for path in logs]
    for part in parts:
        start_s, end_s = part.log.longest
        click.echo(f"{part.log.path}: longest part in the air: {end_s - start_s:.1f} s", err=True)
        for note in part.log.notes:
            click.echo(f"{part.log.path}: {note}", err=True)
    errors = Console(stderr=True, markup=False)

    def progress(generation: int, cost: float) -> None:
        if errors.is_terminal:
            errors.print(f"generation {generation} of {generations}: {cost:.6g}", end="\r")

    tuned = tune(parts, what, seed, generations, progress)
    _print(tuned)
    if out is not None:
        write_output(out, parameter_text(_to_write(tuned), _notes(tuned, upsampling, seed)))
    if json_file is not None:
        write_output(json_file, json.dumps(_as_json(tuned, upsampling, seed), indent=2) + "\n")
    if plots is not None:
        from sitl.teleop.tune_plots import write_plots

        for path in write_plots(tuned, plots):
            click.echo(str(path))
    if tuned.interrupted:
        sys.exit(INTERRUPTED)


def _bound(text: str) -> tuple[str, tuple[float, float]]:
    name, _, limits = text.partition("=")
    low, _, high = limits.partition(":")
    try:
        found = float(low), float(high)
    except ValueError:
        found = (np.nan, np.nan)
    if not (np.isfinite(found).all() and found[0] < found[1]):
        raise UserError(f"--bound {text}: write NAME=LOW:HIGH with LOW below HIGH, such as k_theta=0:2")
    if name not in ("trim_z", "trim_psi", "trim_theta", "trim_phi") and found[0] < 0.0:
        raise UserError(f"--bound {text}: below 0")
    return name, found


def _to_write(tuned: Tuned) -> dict[str, float]:
    """The fitted parameters, and with them those of the model that differ from the published ones."""
    if not tuned.what.is_tello:
        return tuned.parameters()
    fixed = {k: v for k, v in tuned.what.base.items() if k not in (*tuned.what.free, "floor")}
    return {**tuned.parameters(), **fixed}


def _notes(tuned: Tuned, upsampling: str, seed: int) -> list[str]:
    sources = ", ".join(part.log.path.name for part in tuned.parts)
    ended = [f"Interrupted after {tuned.generations} generations."] if tuned.interrupted else []
    unread = [] if tuned.what.is_tello else ["No command reads this set; docs/teleoperation.md names PX4's parameters."]
    return [
        *ended,
        f"Written by companion tune on {datetime.now(UTC).date().isoformat()}: set {tuned.what.name}, seed {seed}, {upsampling}.",
        f"From {plain(sources)}: {tuned.fitted_s:g} s fitted, {tuned.held_out_s:.1f} s held out.",
        f"Cost {tuned.errors.sum():.4g}, {tuned.gain:.3g} times below the start; held out {tuned.held_out_ratio:.3g} times as much per second.",
        *unread,
    ]


def _as_json(tuned: Tuned, upsampling: str, seed: int) -> dict[str, Any]:
    def by_axis(errors: np.ndarray[Any, Any]) -> dict[str, float]:
        return {**dict(zip(AXES, errors.tolist(), strict=True)), "sum": float(errors.sum())}

    return {
        "logs": [str(part.log.path) for part in tuned.parts],
        "set": str(tuned.what.name),
        "seed": seed,
        "upsampling": upsampling,
        "generations": tuned.generations,
        "interrupted": tuned.interrupted,
        "fitted_s": tuned.fitted_s,
        "held_out_s": tuned.held_out_s,
        "start_diverged": tuned.start_diverged,
        "ise_start": by_axis(tuned.start_errors),
        "ise_published": None if tuned.published_errors is None else by_axis(tuned.published_errors),
        "ise_fitted": by_axis(tuned.errors),
        "ise_held_out": by_axis(tuned.held_out_errors),
        "gain": tuned.gain,
        "held_out_ratio": tuned.held_out_ratio,
        "parameters": tuned.parameters(),
    }


def _print(tuned: Tuned) -> None:
    table = Table("", "start", "fitted", "RMS", "held out, same length", "RMS")
    seconds = tuned.fitted_s, tuned.held_out_s
    rows = zip(AXES, UNITS, tuned.start_errors, tuned.errors, tuned.held_out_errors, strict=True)
    for axis, unit, start, fitted, held_out in rows:
        rms = [f"{np.sqrt(error / time):.3g} {unit}" for error, time in zip((fitted, held_out), seconds, strict=True)]
        again = held_out * seconds[0] / seconds[1]
        table.add_row(axis, f"{start:.4g}", f"{fitted:.4g}", rms[0], f"{again:.4g}", rms[1])
    sums = [errors.sum() for errors in (tuned.start_errors, tuned.errors, tuned.held_out_errors)]
    table.add_row("J", f"{sums[0]:.4g}", f"{sums[1]:.4g}", "", f"{sums[2] * seconds[0] / seconds[1]:.4g}", "")
    console = Console()
    if not console.is_terminal:
        console.width = TABLE_WIDTH
    console.print(table)
    lines = [
        f"J is {tuned.gain:.4g} times below the start; held out it is {tuned.held_out_ratio:.3g} times the fitted one"
    ]
    if tuned.interrupted:
        lines.insert(0, f"interrupted: the best candidate after {tuned.generations} generations")
    if tuned.start_diverged:
        lines.append("the start diverges in steps of 1 ms: each of its errors counts as 10 m or rad")
    if tuned.published_errors is not None:
        lines.append(f"with the published parameters J is {tuned.published_errors.sum():.4g}")
    for line in (*lines, ", ".join(f"{name} = {value:.4g}" for name, value in tuned.parameters().items())):
        console.print(line, markup=False, highlight=False, soft_wrap=True)

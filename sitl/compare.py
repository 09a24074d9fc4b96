"""Several stacks in the same air: one scenario, the same seeds, one table; the body of ``companion compare``.

Every (stack, seed) is a lockstep run; the runs are distributed over processes. Errors are those of
`companion.recording.metrics`: over the mission's hold, against the simulator's truth, in the frame of the mission's
bundle. A run whose mission did not reach its hold has no errors and counts in "completed", "early" or "failed" only
(see `sitl.flight_end`).
"""

import math
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from companion.core.chi_square import quantile
from companion.core.command_line import check_output_file
from companion.core.errors import OutputError
from companion.core.messages import MissionStatus, Truth
from companion.core.text import plain
from companion.recording import series as sr
from companion.recording.metrics import tracking_error
from companion.runtime.end_requests import interrupts_ignored
from companion.runtime.parent import end_with_parent
from sitl.baselines.stacks import STACKS, prepare
from sitl.flight_end import FlightEnd
from sitl.scenario import CameraMode, SensorKind, load_scenario
from sitl.simulate import fly

FIGURES = ("position_rms_m", "estimate_rms_m", "gnss_rms_m", "yaw_rms_deg", "position_max_m")
AXES = "xyz"
KEPT = (
    *FIGURES,
    "drawn",
    "position_rms_axis_m",
    "position_mean_xyz_m",
    "frame",
    "hold_s",
    "final_phase",
    "final_reason",
    "end",
    "failure",
    "fallback_cycles",
)
SERIES_PERIOD_S = 0.1  # of the error kept for the plot

Run = dict[str, Any]  # the result of one flight, JSON-ready
Comparison = dict[str, Any]  # JSON-ready
Statistic = dict[str, Any]  # {"mean", "std", "n"}


class Job(NamedTuple):
    """One flight."""

    scenario: Path
    seed: int
    stack: str
    vehicle: Path | None
    camera: CameraMode | None
    with_series: bool  # keep the error over time, for the plot
    sensors: SensorKind


def compare(
    scenario: Path,
    seeds: Iterable[int],
    stacks: Iterable[str] = tuple(STACKS),
    vehicle: Path | None = None,
    camera: CameraMode | None = None,
    workers: int = 2,
    progress: Callable[[Run], None] = lambda run: None,
    sensors: SensorKind = SensorKind.KIND,
) -> Comparison:
    """Fly every stack with every seed; returns JSON-ready data. Raises `ConfigError` when a start is refused.

    stacks: names of `sitl.baselines.stacks.STACKS`; ratios are against "full" when it is among them, else the first.
    progress: called after every flight. The same seed is the same world for every stack: wind, sensors and battery have
    random streams of their own. sensors: those of the scenario file, or drawn for each seed.
    Ctrl-C, or the death of a process, ends the comparison early: the flights flown until then are returned, with
    "incomplete" True and the reason.
    """
    seeds, stacks = list(seeds), list(stacks)
    loaded = load_scenario(scenario, vehicle, camera)
    for stack in stacks:
        prepare(stack, loaded.vehicle)  # once, and not in every process
    jobs = [
        Job(scenario, seed, stack, vehicle, camera, seed == seeds[0], sensors) for seed in seeds for stack in stacks
    ]
    flown: dict[Job, Run] = {}
    reason = ""
    try:
        for job, run in _in_processes(jobs, workers) if workers > 1 else ((job, _run(job)) for job in jobs):
            flown[job] = run
            progress(run)
    except KeyboardInterrupt:
        reason = "interrupted"
    except BrokenProcessPool:
        reason = "a process ended unexpectedly, perhaps for lack of memory: try fewer --workers"
    runs = [flown[job] for job in jobs if job in flown]
    summary = {stack: summarise([run for run in runs if run["stack"] == stack]) for stack in stacks}
    base = summary["full" if "full" in summary else stacks[0]]["position_rms_m"]["mean"]
    for row in summary.values():
        mean = row["position_rms_m"]["mean"]
        row["ratio"] = mean / base if mean is not None and base else None
    return {
        "scenario": loaded.scenario.name,
        "vehicle": loaded.vehicle.name,
        "camera": loaded.scenario.camera_mode,
        "sensors": str(sensors),
        "seeds": seeds,
        "stacks": stacks,
        "incomplete": len(runs) < len(jobs),
        "incomplete_reason": reason,
        "summary": summary,
        "runs": runs,
    }


def _in_processes(jobs: list[Job], workers: int) -> Iterator[tuple[Job, Run]]:
    """Each job with its run, in the order in which the runs finish."""
    others = set(multiprocessing.active_children())
    # Fresh processes: a forked one would share libraries and threads with the caller.
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin_worker,
    )
    try:
        with interrupts_ignored():  # a process that starts now inherits this, so that Ctrl-C ends only the caller
            futures: dict[Future[Run], Job] = {pool.submit(_run, job): job for job in jobs}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BaseException:
        with interrupts_ignored():
            pool.shutdown(wait=False, cancel_futures=True)
            for process in set(multiprocessing.active_children()) - others:
                process.kill()
        raise
    pool.shutdown()


def _begin_worker() -> None:
    """Ctrl-C in a terminal reaches every process; only the caller acts on it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # ignored by the caller when it started this process
    end_with_parent()


def _run(job: Job) -> Run:
    result, lockstep = fly(job.scenario, job.seed, job.stack, job.vehicle, job.camera, sensors=job.sensors)
    run = {key: result[key] for key in ("stack", "seed", "completed", "duration_s", "realtime_factor", *KEPT)}
    run["nees"] = result.get("nees", {})  # empty for a stack that estimates nothing
    if job.with_series:
        run["series"] = error_series(lockstep.messages, result["frame"])
    return run


def error_series(messages: sr.Messages, frame: str) -> dict[str, list[float]]:
    """Length of the true position error over the hold, thinned: {"t_s": since its beginning, "error_m"}."""
    holds = sr.hold_intervals([m for m in messages["mission_status"] if isinstance(m, MissionStatus)])
    truth = [m for m in messages["truth"] if isinstance(m, Truth)]
    t, error, _ = tracking_error(sr.truth_track(truth, frame), messages, holds, frame)
    lengths = np.linalg.norm(error, axis=1)
    t, lengths = t[np.isfinite(lengths)], lengths[np.isfinite(lengths)]
    if not len(t):
        return {"t_s": [], "error_m": []}
    every = max(1, round(SERIES_PERIOD_S / max(float(np.median(np.diff(t))), 1e-3))) if len(t) > 1 else 1
    return {"t_s": np.round(t[::every] - t[0], 3).tolist(), "error_m": np.round(lengths[::every], 5).tolist()}


def summarise(runs: list[Run]) -> dict[str, Any]:
    """Mean and standard deviation over the runs of one stack that have the figure; "n" says how many."""
    result: dict[str, Any] = {name: mean_and_std([run[name] for run in runs]) for name in FIGURES}
    axes = [run["position_rms_axis_m"] for run in runs]
    result["position_rms_axis_m"] = [mean_and_std([axis[i] for axis in axes if axis is not None]) for i in range(3)]
    result["nees"] = consistency([run["nees"] for run in runs if run.get("nees")])
    for end in FlightEnd:
        result[str(end)] = sum(run["end"] == end for run in runs)
    result["flown"] = len(runs)
    return result


def consistency(flights: list[dict[str, float]]) -> dict[str, Any]:
    """Mean over the flights of each block's normalised squared error, and the 95 % bounds of a consistent filter.

    {"bounds": (low, high), "n": flights, block: {"mean", "inside"}, …}; empty where nothing was estimated. The
    errors of one flight are correlated, so that each flight counts as one draw of chi-square of three: bounds are χ²(3 n)/n.
    """
    if not flights:
        return {}
    n = len(flights)
    low, high = (quantile(p, 3 * n) / n for p in (0.025, 0.975))
    result: dict[str, Any] = {"bounds": (low, high), "n": n}
    for block in flights[0]:
        mean = float(np.mean([flight[block] for flight in flights]))
        result[block] = {"mean": mean, "inside": low <= mean <= high}
    return result


def consistency_line(stack: str, nees: dict[str, Any]) -> str:
    """One line of text for a terminal."""
    low, high = nees["bounds"]
    blocks = (
        f"{name} {row['mean']:.2f}{'' if row['inside'] else '*'}"
        for name, row in nees.items()
        if name not in ("bounds", "n")
    )
    return f"{stack}: NEES {', '.join(blocks)}; consistent: {low:.2f} to {high:.2f} (n = {nees['n']}, * outside)"


def mean_and_std(values: list[float | None]) -> Statistic:
    """{"mean", "std", "n"} of the finite values; std of the sample, None for fewer than two values."""
    numbers = [v for v in values if v is not None and math.isfinite(v)]
    return {
        "mean": float(np.mean(numbers)) if numbers else None,
        "std": float(np.std(numbers, ddof=1)) if len(numbers) > 1 else None,
        "n": len(numbers),
    }


def table(result: Comparison) -> Table:
    """The summary as a `rich` table."""
    frame = next((run["frame"] for run in result["runs"]), "")
    seeds = ", ".join(map(str, result["seeds"]))
    incomplete = ", INCOMPLETE" if result["incomplete"] else ""
    world = f"{result['vehicle']}, {result['sensors']} sensors"
    title = f"{result['scenario']}, {world}, seeds {seeds}{incomplete} (RMS in m, frame: {frame})"
    view = Table(title=plain(title))
    view.add_column("stack")
    for name in ("position", *AXES, "estimate", "yaw °", "completed", "early", "failed", "ratio"):
        view.add_column(name, justify="right")
    for stack in result["stacks"]:
        row = result["summary"][stack]
        view.add_row(
            stack,
            _cell(row["position_rms_m"]),
            *(_cell(axis) for axis in row["position_rms_axis_m"]),
            _cell(row["estimate_rms_m"]),
            _cell(row["yaw_rms_deg"], 2),
            f"{row['completed']}/{row['flown']}",
            f"{row['early']}",
            f"{row['failed']}",
            "–" if row["ratio"] is None else f"{row['ratio']:.1f}",
        )
    return view


def _cell(figure: Statistic, digits: int = 3) -> str:
    if figure["mean"] is None:
        return "–"
    spread = "" if figure["std"] is None else f" ± {figure['std']:.{digits}f}"
    return f"{figure['mean']:.{digits}f}{spread}"


def check_plot(path: Path) -> None:
    """Raise `OutputError` when a plot cannot be written to this file; ImportError without matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    check_output_file(path)
    formats = FigureCanvasAgg(Figure()).get_supported_filetypes()
    if path.suffix and path.suffix[1:].lower() not in formats:
        raise OutputError(f"{path}: no such picture format (there are: {', '.join(sorted(formats))})")


def plot(result: Comparison, path: Path) -> None:
    """Bars of the mean position error with the seeds as dots, and the first seed's error over the hold."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    bars, lines = figure.subplots(1, 2, width_ratios=[1, 2])
    for i, stack in enumerate(result["stacks"]):
        runs = [run for run in result["runs"] if run["stack"] == stack]
        mean = result["summary"][stack]["position_rms_m"]["mean"]
        bars.bar(i, mean or 0.0, color=f"C{i}", alpha=0.6)
        values = [run["position_rms_m"] for run in runs if run["position_rms_m"] is not None]
        bars.plot([i] * len(values), values, "o", color=f"C{i}", markersize=4)
        for run in runs:
            if "series" in run:
                lines.plot(run["series"]["t_s"], run["series"]["error_m"], color=f"C{i}", label=stack, linewidth=1)
    bars.set_xticks(range(len(result["stacks"])), result["stacks"])
    bars.set_ylabel("position RMS [m]")
    bars.set_title(f"{result['scenario']}: {len(result['seeds'])} seeds")
    lines.set_xlabel("time of the hold [s]")
    lines.set_ylabel("position error [m]")
    lines.set_title(f"seed {result['seeds'][0]}")
    if lines.lines:
        lines.legend()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=130)
    except OSError as error:
        raise OutputError(f"{path}: plot cannot be written: {error.strerror or error}") from None

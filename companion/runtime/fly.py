"""Flies a mission with all onboard processes and shows its progress; the body of ``companion fly``."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from companion.core.bus import ZmqBus
from companion.core.clock import monotonic_s
from companion.core.command_line import INTERRUPTED, REFUSED, check_output_folder, missing_package
from companion.core.config import ConfigError
from companion.core.enums import ControlSource, Phase, ProcessName, TopicName
from companion.core.errors import UserError
from companion.core.messages import ControlStatus, MissionStatus, SafetyEvent, State
from companion.core.node import Latest
from companion.runtime.manager import Manager, python
from companion.runtime.processes import PROCESSES, Context, arguments

WATCHED: tuple[TopicName, ...] = (
    "mission_status", "state", "control", "markers", "fcu_status", "safety", "fcu_text",
)  # fmt: skip
PLAIN_LINE_PERIOD_S = 5.0  # between two progress lines when the output is not a terminal
AFTER_END_S = 1.0  # time for the recorder to write the end of the flight
HANDED_OVER = (Phase.PILOT, Phase.PX4_HOLD)  # phases in which this stack does not fly
HANDED_OVER_END_S = 10.0
NEED_A_BUNDLE = (ProcessName.CAMERA, ProcessName.TRACKER)  # not started for a mission without a bundle

# (bus folder, flight's folder) → more processes (the simulator)
ExtraCommands = Callable[[Path, Path], dict[str, list[str]]]


class Ending(NamedTuple):
    """How the supervision of a flight ended."""

    status: MissionStatus | None  # the mission's last one
    interrupted: bool = False  # by Ctrl-C


def new_flight_folder(out: Path, mission: Path) -> Path:
    """Make and return a folder named after time and mission; raises `ConfigError` or `OutputError`."""
    check_output_folder(out)
    stem = f"{datetime.now():%Y-%m-%d_%H-%M-%S}_{mission.stem}"
    for suffix in ("", *(f"_{i}" for i in range(2, 100))):
        folder = out / (stem + suffix)
        if not folder.exists():
            folder.mkdir(parents=True)
            return folder
    raise ConfigError(f"{out}: no free folder name for this flight")


def fly(
    mission: Path,
    vehicle: Path,
    fcu_url: str,
    out: Path,
    simulated: bool,
    extra: ExtraCommands = lambda bus, folder: {},
    timeout_s: float | None = None,
    scenario: Path | None = None,
    run: dict[str, Any] | None = None,
) -> int:
    """Run all processes until the mission has ended; returns the exit status (0: flown to its end).

    simulated: another process publishes camera images on the bus, so that no camera process is started. A mission
    without a bundle starts neither camera nor tracker.
    extra: more processes to supervise.
    timeout_s: give up after this long (a simulation that never ends); None: never.
    scenario, run: of a simulated flight, for its log.
    Raises `ConfigError` or `StartRefused` when the start is refused.
    """
    console = Console()
    folder = new_flight_folder(out, mission)
    bus_folder = Path(tempfile.mkdtemp(prefix="companion-"))
    log_file = (folder / "flight.mcap").resolve()
    context = Context(vehicle.resolve(), mission.resolve(), fcu_url, bus_folder, log_file)
    if scenario is not None or run is not None:
        context = replace(context, scenario_file=scenario and scenario.resolve(), run=run or {})
    try:
        context.vehicle  # noqa: B018 (refuses a bad file before anything starts)
        commands = dict(extra(bus_folder, folder.resolve()))
        for name in onboard_processes(context.plan.bundle, simulated):
            commands[name] = python("companion.runtime.processes", name, *arguments(context))
        manager = Manager(commands, folder / "processes")
        try:
            bus = ZmqBus(bus_folder, "manager", WATCHED)
            ending = _supervise(manager, bus, console, timeout_s, HANDED_OVER_END_S if simulated else float("inf"))
        finally:
            manager.stop()
    except UserError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        shutil.rmtree(bus_folder, ignore_errors=True)
    return conclude(folder, ending, console)


def onboard_processes(bundle: str | None, simulated: bool) -> list[ProcessName]:
    """The processes of the table that a mission starts; bundle: the mission's, None without."""
    started = (row for row in PROCESSES if row.simulated or not simulated)
    return [ProcessName(row.name) for row in started if bundle is not None or row.name not in NEED_A_BUNDLE]


def _supervise(
    manager: Manager, bus: ZmqBus, console: Console, timeout_s: float | None, handed_over_end_s: float
) -> Ending:
    """Watch until the mission has finished.

    handed_over_end_s: stop this long after the pilot or PX4 took over. A real flight goes on, because the pilot still
    flies and its log is of use; a simulation ends, because no pilot will land the aircraft.
    """
    latest = Latest()
    interrupted = False
    started_s = monotonic_s()
    end_s = started_s + timeout_s if timeout_s else float("inf")
    next_line_s = started_s
    shown: tuple[Phase, str] | None = None
    with Live(console=console, refresh_per_second=5, transient=True) as live:
        try:
            manager.start()
            while monotonic_s() < end_s:
                for message in bus.receive(0.1):
                    latest.put(message)
                    if isinstance(message, SafetyEvent) and message.active:
                        console.print(f"[yellow]safety[/]: {message.text} → {message.action}")
                for event in manager.events:
                    console.print(f"[red]process[/]: {event}")
                manager.events.clear()
                manager.check()
                now_s = monotonic_s()
                status = latest.get(MissionStatus)
                if status is not None and (status.phase, status.reason) != shown:
                    shown = (status.phase, status.reason)
                    console.print(f"{now_s - started_s:6.1f} s  [bold]{status.phase}[/]  {status.reason}")
                line = progress_line(latest, now_s, now_s - started_s)
                live.update(Text(line))
                if not console.is_terminal and now_s >= next_line_s:
                    next_line_s = now_s + PLAIN_LINE_PERIOD_S
                    print(line, flush=True)
                if status is not None and status.finished:
                    end_s = min(end_s, now_s + AFTER_END_S)
                if status is not None and status.phase in HANDED_OVER and status.phase_time_s > handed_over_end_s:
                    break
        except KeyboardInterrupt:
            interrupted = True
            console.print("interrupted: the setpoint stream ends, PX4's own failsafe takes over")
        finally:
            bus.close()
    return Ending(latest.get(MissionStatus), interrupted)


def progress_line(latest: Latest, now_s: float, elapsed_s: float) -> str:
    """One line: phase, position error, disturbance, solve time, marker age."""
    status, control = latest.get(MissionStatus), latest.fresh(ControlStatus, now_s)
    state = latest.fresh(State, now_s)
    parts = [f"{elapsed_s:6.1f} s", f"{status.phase if status else 'starting':<15}"]
    if control is not None and control.active != ControlSource.IDLE:
        parts.append(f"error {control.position_error_m * 100:5.1f} cm")
        parts.append(f"{control.active} {control.solve_time_s * 1e3:4.2f} ms")
    if state is not None:
        x, y, z = state.disturbance_W
        parts.append(f"disturbance {x:+.1f} {y:+.1f} {z:+.1f} m/s²")
        if state.bundle:
            parts.append(f"marker {state.marker_age_s:4.1f} s ago")
        parts.append(f"battery {state.battery_voltage_v:4.1f} V")
    return "  ".join(parts)


def ending_line(status: MissionStatus | None, interrupted: bool = False) -> str:
    """The last line of a flight: flown to its end, or why it ended early. interrupted: by Ctrl-C."""
    if interrupted and not (status is not None and status.finished):
        return f"mission ended early: interrupted{'' if status is None else f' in phase {status.phase}'}"
    if status is None:
        return "mission ended early: no status from the mission process"
    if status.success:
        return "mission flown to its end"
    if status.cause:
        return f"mission ended early: {status.cause}"
    if not status.finished:
        return f"mission ended early: not finished, in phase {status.phase} ({status.reason or 'no reason given'})"
    return f"mission ended early: {status.reason or 'no reason given'} (phase {status.phase})"


def conclude(folder: Path, ending: Ending, console: Console) -> int:
    """Print the summary, write the report beside the log, print the cause of an early end last; returns the exit status.

    0: flown to its end; 1: not; 130: interrupted; 2: flown, but the report could not be written.
    """
    log, status = folder / "flight.mcap", ending.status
    failed = 0
    if log.exists():
        failed = _summarise(folder, log, console)
    else:
        console.print(f"no log was written; see {folder / 'processes'}", soft_wrap=True)
    success = status is not None and status.success
    if not success:
        console.print(f"messages of the processes: {folder / 'processes'}", soft_wrap=True)
    console.print(ending_line(status, ending.interrupted), soft_wrap=True, markup=False, highlight=False)
    if ending.interrupted:
        return INTERRUPTED
    return failed if success and log.exists() else 1


def _summarise(folder: Path, log: Path, console: Console) -> int:
    """Print figures and paths of a log and write its report; returns `REFUSED` when something could not be written."""
    from companion.recording.metrics import flight_metrics

    failed = 0
    try:
        console.print(summary_table(flight_metrics(log)))
    except (UserError, OSError) as error:
        console.print(f"figures cannot be computed: {error}", soft_wrap=True, markup=False)
        failed = REFUSED
    console.print(f"log     {log}", soft_wrap=True)
    try:
        from companion.recording.report import write_report

        console.print(f"report  {write_report(log, folder)}", soft_wrap=True)
    except ImportError as error:
        line = missing_package(error)
        if not line:
            raise
        console.print(f"no report: {line}; then run: companion report {log}", soft_wrap=True, markup=False)
    except (UserError, OSError) as error:
        console.print(f"report  not written: {error}", soft_wrap=True, markup=False)
        failed = REFUSED
    return failed


def summary_table(metrics: dict[str, Any]) -> Table:
    """The figures of a flight as a table."""
    table = Table(title="Autonomous hold", show_header=False)

    def row(name: str, key: str, scale: float, unit: str, digits: int = 1) -> None:
        value = metrics.get(key)
        table.add_row(name, "–" if value is None else f"{value * scale:.{digits}f} {unit}")

    row("duration", "hold_s", 1, "s")
    row("position error, RMS", "position_rms_m", 100, "cm")
    row("position error, largest", "position_max_m", 100, "cm")
    row("estimate error, RMS", "estimate_rms_m", 100, "cm")
    row("GNSS error, RMS", "gnss_rms_m", 100, "cm")
    row("yaw error, RMS", "yaw_rms_deg", 1, "°", 2)
    row("setpoints", "setpoint_rate_hz", 1, "Hz")
    row("longest gap", "setpoint_gap_s", 1e3, "ms")
    row("fallback cycles", "fallback_cycles", 1, "", 0)
    row("missed deadlines", "deadline_misses", 1, "", 0)
    solve = metrics.get("solve_ms")
    if solve:
        table.add_row("solve time, median / 99 %", f"{solve['p50']:.2f} / {solve['p99']:.2f} ms")
    return table

"""Flies a mission with all onboard processes and shows how it goes; the body of ``companion fly``."""

import shutil
import tempfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from companion.core.bus import ZmqBus
from companion.core.config import ConfigError
from companion.core.errors import StartRefused
from companion.core.messages import ControlStatus, MissionStatus, SafetyEvent, State
from companion.core.node import Latest
from companion.runtime.manager import Manager, python
from companion.runtime.processes import PROCESSES, Context, arguments

WATCHED = ("mission_status", "state", "control", "markers", "fcu_status", "safety", "fcu_text")
PLAIN_LINE_PERIOD_S = 5.0  # between two progress lines when the output is no terminal
AFTER_END_S = 1.0  # the recorder gets this long to write the end down
HANDED_OVER = ("PILOT", "PX4_HOLD")  # phases in which somebody else flies
HANDED_OVER_END_S = 10.0

# (bus folder, flight's folder) → more processes (the simulator)
ExtraCommands = Callable[[Path, Path], dict[str, list[str]]]


def new_flight_folder(out: Path, mission: Path) -> Path:
    """A fresh folder named after time and mission."""
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
) -> int:
    """Run all processes until the mission has ended; returns the exit status (0: flown to its end).

    simulated: camera images come from elsewhere on the bus, so no camera process is started.
    extra: more processes to supervise.
    timeout_s: give up after this long (a simulation that never ends); None: never.
    Raises `ConfigError` or `StartRefused` when the start is refused.
    """
    console = Console()
    folder = new_flight_folder(out, mission)
    bus_folder = Path(tempfile.mkdtemp(prefix="companion-"))
    context = Context(vehicle.resolve(), mission.resolve(), fcu_url, bus_folder, (folder / "flight.mcap").resolve())
    context.vehicle, context.plan  # noqa: B018 (refuses a bad file before anything starts)
    commands = dict(extra(bus_folder, folder.resolve()))
    for row in PROCESSES:
        if row.simulated or not simulated:
            commands[row.name] = python("companion.runtime.processes", row.name, *arguments(context))
    manager = Manager(commands, folder / "processes")
    try:
        bus = ZmqBus(bus_folder, "manager", WATCHED)
        pilot = _supervise(manager, bus, console, timeout_s, HANDED_OVER_END_S if simulated else float("inf"))
    except StartRefused:
        manager.stop()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        manager.stop()
        shutil.rmtree(bus_folder, ignore_errors=True)
    return conclude(folder, pilot, console)


def _supervise(
    manager: Manager, bus: ZmqBus, console: Console, timeout_s: float | None, handed_over_end_s: float
) -> MissionStatus | None:
    """Watch until the mission says it has finished; returns its last word.

    handed_over_end_s: stop this long after pilot or PX4 have taken over. A real flight goes on: the pilot flies and
    the log is wanted; in a simulation nobody will land.
    """
    from companion.core.clock import monotonic_s

    latest = Latest()
    started_s = monotonic_s()
    end_s = started_s + timeout_s if timeout_s else float("inf")
    next_line_s = started_s
    told = None
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
                pilot = latest.get(MissionStatus)
                if pilot is not None and (pilot.phase, pilot.reason) != told:
                    told = (pilot.phase, pilot.reason)
                    console.print(f"{now_s - started_s:6.1f} s  [bold]{pilot.phase}[/]  {pilot.reason}")
                line = progress_line(latest, now_s, now_s - started_s)
                live.update(Text(line))
                if not console.is_terminal and now_s >= next_line_s:
                    next_line_s = now_s + PLAIN_LINE_PERIOD_S
                    print(line, flush=True)
                if pilot is not None and pilot.finished:
                    end_s = min(end_s, now_s + AFTER_END_S)
                if pilot is not None and pilot.phase in HANDED_OVER and pilot.phase_time_s > handed_over_end_s:
                    break
        except KeyboardInterrupt:
            console.print("stopped by the keyboard: the setpoint stream ends, PX4's own failsafe takes over")
        finally:
            bus.close()
    return latest.get(MissionStatus)


def progress_line(latest: Latest, now_s: float, elapsed_s: float) -> str:
    """One line: phase, position error, disturbance, solve time, marker age."""
    pilot, control = latest.get(MissionStatus), latest.fresh(ControlStatus, now_s)
    state = latest.fresh(State, now_s)
    parts = [f"{elapsed_s:6.1f} s", f"{pilot.phase if pilot else 'starting':<15}"]
    if control is not None and control.active != "idle":
        parts.append(f"error {control.position_error_m * 100:5.1f} cm")
        parts.append(f"{control.active} {control.solve_time_s * 1e3:4.2f} ms")
    if state is not None:
        x, y, z = state.disturbance_W
        parts.append(f"disturbance {x:+.1f} {y:+.1f} {z:+.1f} m/s²")
        if state.bundle:
            parts.append(f"marker {state.marker_age_s:4.1f} s ago")
        parts.append(f"battery {state.battery_voltage_v:4.1f} V")
    return "  ".join(parts)


def conclude(folder: Path, pilot: MissionStatus | None, console: Console) -> int:
    """Print the summary, write the report beside the log; returns the exit status (0: flown to its end)."""
    from companion.recording.metrics import flight_metrics
    from companion.recording.report import write_report

    log = folder / "flight.mcap"
    if not log.exists():
        console.print(f"no log was written; see {folder / 'processes'}")
        return 1
    console.print(summary_table(flight_metrics(log)))
    report = write_report(log, folder)
    success = pilot is not None and pilot.success
    if not success:
        console.print(f"the mission did not reach its end: {pilot.phase if pilot else 'no word from it'}"
                      f"{': ' + pilot.reason if pilot else ''}; see {folder / 'processes'}")  # fmt: skip
    console.print(f"log     {log}\nreport  {report}", soft_wrap=True)
    return 0 if success else 1


def summary_table(metrics: dict) -> Table:
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

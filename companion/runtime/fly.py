"""Flies a mission with all onboard processes and shows its progress; the body of ``companion fly``.

In flight nothing that this process lacks ends the others: its output, its signals and its log folder are not needed to
fly. SIGINT (Ctrl-C), SIGTERM and SIGHUP (a terminal that was closed) end the flight in the same way.
"""

import contextlib
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from companion.core.bus import ZmqBus
from companion.core.clock import monotonic_s
from companion.core.command_line import INTERRUPTED, REFUSED, check_output_folder, missing_package
from companion.core.config import ConfigError
from companion.core.enums import ControlSource, Phase, TopicName
from companion.core.errors import StartRefused, UserError
from companion.core.folders import Hold
from companion.core.messages import ControlStatus, Message, MissionStatus, SafetyEvent, State
from companion.core.node import Latest
from companion.runtime.bus_folders import (
    FLIGHT_BUS_PREFIX,
    MANAGER,
    flight_on_link,
    remove_left_behind,
    temporary_folder,
)
from companion.runtime.display import Display, show
from companion.runtime.end_requests import EndRequests
from companion.runtime.manager import Manager, python
from companion.runtime.processes import Context, arguments, onboard_processes, refuse_auto

WATCHED: tuple[TopicName, ...] = (
    "mission_status", "state", "control", "markers", "fcu_status", "safety", "fcu_text",
)  # fmt: skip
FAILED_PAUSE_S = 0.1  # after a fault of the supervision that may come again at once
FAULTS_SHOWN = 5
RESTORE_PERIOD_S = 0.5  # as the other processes do, with their health
AFTER_END_S = 1.0  # time for the recorder to write the end of the flight
HANDED_OVER = (Phase.PILOT, Phase.PX4_HOLD)  # phases in which this stack does not fly
HANDED_OVER_END_S = 10.0

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
        with contextlib.suppress(FileExistsError):
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
    scenario = None if scenario is None else scenario.resolve()
    files = vehicle.resolve(), mission.resolve()
    context = Context(*files, fcu_url, Path(), Path(), scenario_file=scenario, run=run or {})
    refuse_bad_files(context)
    with EndRequests() as requests:
        display = Display()
        try:
            with flight_bus(link_url(context)) as (bus_folder, hold):
                folder = new_flight_folder(out, mission)
                log_file = (folder / "flight.mcap").resolve()
                context = replace(context, bus_folder=bus_folder, log_file=log_file)
                handed_over_end_s = HANDED_OVER_END_S if simulated else math.inf
                try:
                    commands = dict(extra(bus_folder, folder.resolve()))
                    for name in onboard_processes(context.plan.bundle, simulated, context.plan.inspection is not None):
                        commands[name] = python("companion.runtime.processes", name, *arguments(context))
                    manager = Manager(commands, folder / "processes")
                    try:
                        bus = ZmqBus(bus_folder, MANAGER, WATCHED, hold)
                        ending = _supervise(manager, bus, display, requests, timeout_s, handed_over_end_s)
                    finally:
                        manager.stop()
                except UserError:
                    shutil.rmtree(folder, ignore_errors=True)
                    raise
        except BaseException:
            display.close()
            raise
        results = evaluate(folder)
        console = Console(markup=False) if display.close() else Console(quiet=True)
    return show_results(results, ending, console)


@contextlib.contextmanager
def flight_bus(link: str) -> Iterator[tuple[Path, Hold]]:
    """A bus folder for one flight on a link, and who holds it while it lasts; folders that killed flights left are removed."""
    remove_left_behind(temporary_folder())
    folder = Path(tempfile.mkdtemp(prefix=FLIGHT_BUS_PREFIX))
    try:
        with Hold(folder, MANAGER, link) as hold:
            yield folder, hold
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def refuse_bad_files(context: Context) -> None:
    """Raise `ConfigError` for a file or a link that cannot be used, and for a link on which a flight runs already.

    All of it before anything starts.
    """
    from companion.fcu.link.link import check_url
    from companion.mission.inspection_files import load_inspection
    from companion.mission.plan import check_vehicle

    check_vehicle(context.plan, context.vehicle, f"{context.mission_file}: ")
    load_inspection(context.plan, context.site, context.vehicle, context.mission_file, context.photographed)
    url = link_url(context)
    check_url(url)
    refuse_auto(context)
    if (pid := flight_on_link(url, temporary_folder())) is not None:
        raise ConfigError(f"link {url}: another flight already runs on it, started by process {pid}; end it first")


def link_url(context: Context) -> str:
    """The link to the flight controller: the command line's, else the vehicle file's."""
    return context.fcu_url or context.vehicle.fcu.url


def _supervise(
    manager: Manager,
    bus: ZmqBus,
    display: Display,
    requests: EndRequests,
    timeout_s: float | None,
    handed_over_end_s: float,
) -> Ending:
    """Watch until the mission has finished, or a signal asks for the end.

    handed_over_end_s: stop this long after the pilot or PX4 took over. A real flight goes on, because the pilot still
    flies and its log is of use; a simulation ends, because no pilot will land the aircraft.
    """
    watch = Watch(display, monotonic_s(), timeout_s, handed_over_end_s)
    stops, restored_s = 0, monotonic_s()
    try:
        manager.start()
        while not requests.count and not watch.finished:
            try:
                manager.check()
                watch.look(bus.receive(0.1), manager.events, monotonic_s())
                if monotonic_s() - restored_s >= RESTORE_PERIOD_S:
                    restored_s = monotonic_s()
                    if said := bus.restore():
                        watch.note(said)
            except StartRefused:
                raise
            except Exception as error:  # a fault of the supervision must not end a flight
                watch.note(error)
                time.sleep(FAILED_PAUSE_S)
            if requests.stops > stops:
                stops = requests.stops
                display.line("", "Ctrl-Z has no effect: a stopped manager would supervise nothing")
    finally:
        bus.close()
    interrupted = requests.count > 0
    if interrupted:
        display.line("", "interrupted: the setpoint stream ends, PX4's own failsafe takes over; the report follows")
    return Ending(watch.status, interrupted)


class Watch:
    """What the supervision of a flight knows and shows."""

    def __init__(self, display: Display, started_s: float, timeout_s: float | None, handed_over_end_s: float) -> None:
        self._display = display
        self._latest = Latest()
        self._started_s = started_s
        self._end_s = started_s + timeout_s if timeout_s else math.inf
        self._handed_over_end_s = handed_over_end_s
        self._shown: tuple[Phase, str] | None = None
        self._faults: set[str] = set()
        self.finished = False

    @property
    def status(self) -> MissionStatus | None:
        """The mission's last status."""
        return self._latest.get(MissionStatus)

    def look(self, messages: list[Message], events: list[str], now_s: float) -> None:
        """Take messages of the bus and events of the manager, which are removed; show what is new."""
        for message in messages:
            self._latest.put(message)
            if isinstance(message, SafetyEvent) and message.active:
                self._display.line("safety", f": {message.text} → {message.action}", "yellow")
        while events:
            self._display.line("process", f": {events.pop(0)}", "red")
        status = self.status
        if status is not None and (status.phase, status.reason) != self._shown:
            self._shown = (status.phase, status.reason)
            self._display.line(f"{now_s - self._started_s:6.1f} s  {status.phase}", f"  {status.reason}", "bold")
        self._display.progress(progress_line(self._latest, now_s, now_s - self._started_s))
        if status is not None and status.finished:
            self._end_s = min(self._end_s, now_s + AFTER_END_S)
        handed_over = status is not None and status.phase in HANDED_OVER
        if status is not None and handed_over and status.phase_time_s > self._handed_over_end_s:
            self.finished = True
        self.finished = self.finished or now_s >= self._end_s

    def note(self, fault: Exception | str) -> None:
        """Show a fault of the supervision, each once."""
        text = fault if isinstance(fault, str) else f"{type(fault).__name__}: {fault}"
        if text not in self._faults and len(self._faults) < FAULTS_SHOWN:
            self._faults.add(text)
            self._display.line("supervision", f": {text}; the flight goes on", "red")


def progress_line(latest: Latest, now_s: float, elapsed_s: float, without_status: str = "starting") -> str:
    """One line: phase, position error, disturbance, solve time, marker age. without_status: in the place of the phase."""
    status, control = latest.get(MissionStatus), latest.fresh(ControlStatus, now_s)
    state = latest.fresh(State, now_s)
    parts = [f"{elapsed_s:6.1f} s", f"{status.phase if status else without_status:<15}"]
    if status is not None and status.stations:
        parts.append(f"station {status.station} of {status.stations}, {status.photographs} photographs")
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


class Results(NamedTuple):
    """What a flight has left behind."""

    folder: Path
    figures: dict[str, Any] | None  # None: no log, or its figures cannot be computed
    lines: list[str]  # where log and report are, and what could not be written
    has_log: bool
    failed: int = 0  # `REFUSED` when something could not be written


def conclude(folder: Path, ending: Ending, console: Console) -> int:
    """Write the report beside the log, print the summary and the cause of an early end last; returns the exit status.

    0: flown to its end; 1: not; 130: interrupted; 2: flown, but the report could not be written. Ctrl-C does not keep the
    report from being written.
    """
    with EndRequests():
        results = evaluate(folder)
    return show_results(results, ending, console)


def evaluate(folder: Path) -> Results:
    """Compute the figures of a flight and write its report; prints nothing."""
    log = folder / "flight.mcap"
    if not log.exists():
        return Results(folder, None, [f"no log was written; see {folder / 'processes'}"], False)
    from companion.recording.metrics import flight_metrics

    figures, failed, lines = None, 0, []
    try:
        figures = flight_metrics(log)
    except (UserError, OSError) as error:
        lines.append(f"figures cannot be computed: {error}")
        failed = REFUSED
    lines.append(f"log     {log}")
    try:
        from companion.recording.report import write_report

        lines.append(f"report  {write_report(log, folder)}")
    except ImportError as error:
        line = missing_package(error)
        if not line:
            raise
        lines.append(f"no report: {line}; then run: companion report {log}")
    except (UserError, OSError) as error:
        lines.append(f"report  not written: {error}")
        failed = REFUSED
    return Results(folder, figures, lines, True, failed)


def show_results(results: Results, ending: Ending, console: Console) -> int:
    """Print the summary, the cause of an early end last; returns the exit status, see `conclude`."""
    success = ending.status is not None and ending.status.success
    if results.figures is not None:
        show(console, summary_table(results.figures))
    lines = list(results.lines)
    if not success:
        lines.append(f"messages of the processes: {results.folder / 'processes'}")
    for line in (*lines, ending_line(ending.status, ending.interrupted)):
        show(console, line)
    if ending.interrupted:
        return INTERRUPTED
    return results.failed if success and results.has_log else 1


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

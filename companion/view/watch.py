"""``companion watch``: a live view of the running stack, from its bus; it only receives.

Rates and ages of topics, health of processes, status of filter and controller, active safety monitors, and texts; 80
columns are enough. A view cannot disturb a flight: a subscriber that is slow loses messages, the publisher never waits.
"""

import math
import time
from collections import deque
from pathlib import Path

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from companion.core.clock import monotonic_s
from companion.core.command_line import HELP, one_line_errors
from companion.core.config import ConfigError
from companion.core.enums import ProcessName, Sensor, TopicName
from companion.core.messages import (
    TOPIC_OF,
    TOPICS,
    ControlStatus,
    EstimatorStatus,
    FcuStatus,
    FcuText,
    Health,
    HostStatus,
    Message,
    MissionStatus,
    SafetyEvent,
    State,
)
from companion.core.node import Latest
from companion.core.subscriber import Subscriber
from companion.core.text import plain
from companion.runtime.bus_folders import has_sockets, newest_bus, temporary_folder
from companion.runtime.fly import progress_line
from companion.runtime.process import SLOW

NOT_WATCHED = (
    "image",
    "stereo",
    "depth",
    "photo",
    "link_rx",
    "link_tx",
    "truth",
    "contact",
)  # bytes, and a simulator's
WINDOW_S = 2.0  # over which rates are counted
VERY_SLOW = 0.5  # of the nominal rate: red; below `SLOW`: yellow
TEXTS = 6
REFRESH_HZ = 4
ONCE_S = 2.5  # time for which ``--once`` receives: a health message is published twice a second
ONCE_MAX_S = 10.0  # the same while there is no status of the mission: a busy computer, or a stack that begins


class StackView:
    """The latest of everything that the stack publishes. `take` messages, then `render`."""

    def __init__(self) -> None:
        self.latest = Latest()
        self._arrivals: dict[TopicName, deque[float]] = {}
        self._health: dict[ProcessName, Health] = {}
        self._cpu: dict[ProcessName, float] = {}  # share of a core, between the last two health messages
        self._updates: dict[Sensor, deque[tuple[float, bool]]] = {}  # by sensor: normalised NIS, accepted
        self._resets = 0  # of the filter, since this view began
        self._active: dict[str, SafetyEvent] = {}
        self._texts: deque[str] = deque(maxlen=TEXTS)

    def take(self, message: Message, now_s: float) -> None:
        """Keep what a message says."""
        if isinstance(message, State) and (before := self.latest.get(State)) is not None:
            self._resets += message.reset_count != before.reset_count  # the count itself begins at any number
        self.latest.put(message)
        self._arrivals.setdefault(TOPIC_OF[type(message)], deque()).append(now_s)
        match message:
            case Health():
                self._take_health(message)
            case EstimatorStatus():
                for update in message.innovations:
                    row = self._updates.setdefault(update.sensor, deque(maxlen=100))
                    row.append((update.nis / max(update.dof, 1), update.accepted))
            case SafetyEvent(active=True):
                self._active[message.monitor] = message
                self._texts.append(f"safety {message.monitor}: {message.text} → {message.action}")
            case SafetyEvent():
                self._active.pop(message.monitor, None)
            case FcuText():
                self._texts.append(f"px4: {message.text}")

    def _take_health(self, health: Health) -> None:
        before = self._health.get(health.process)
        if before is not None and before.pid == health.pid and health.stamp_s > before.stamp_s:
            self._cpu[health.process] = (health.cpu_s - before.cpu_s) / (health.stamp_s - before.stamp_s)
        self._health[health.process] = health

    @property
    def is_empty(self) -> bool:
        """No message has arrived."""
        return not self._arrivals

    def is_complete(self, elapsed_s: float) -> bool:
        """Everything has had its time to arrive, for a view that is shown once."""
        known = self.latest.get(MissionStatus) is not None
        return elapsed_s >= (ONCE_S if known else ONCE_MAX_S)

    def rate_hz(self, topic: TopicName, now_s: float) -> float:
        """Messages per second over the last `WINDOW_S`."""
        arrivals = self._arrivals.get(topic, deque())
        while arrivals and arrivals[0] < now_s - WINDOW_S:
            arrivals.popleft()
        return len(arrivals) / WINDOW_S

    # --- layout -----------------------------------------------------------------------------------------------------

    def render(self, now_s: float, elapsed_s: float) -> Group:
        """The view at a time, for the console."""
        tables = Table.grid(padding=(0, 2, 0, 0))
        tables.add_row(self._topics(now_s), self._processes(now_s))
        head = Text(plain(progress_line(self.latest, now_s, elapsed_s, "NO STATUS")), style="bold")
        return Group(head, tables, self._lines(now_s))

    def _topics(self, now_s: float) -> Table:
        table = _narrow_table("topic", "Hz", "of", "age")
        for topic, row in TOPICS.items():
            message = self.latest.get(row.type)
            if message is None:
                continue
            rate_hz, age_s = self.rate_hz(topic, now_s), self.latest.age_s(row.type, now_s)
            if not row.rate_hz:
                table.add_row(topic, "", "", _age(age_s), style="dim")
                continue
            fresh = self.latest.fresh(row.type, now_s) is not None
            colour = _colour(rate_hz / row.rate_hz) if fresh else "red"
            table.add_row(
                topic, f"{rate_hz:.{0 if rate_hz >= 100 else 1}f}", f"{row.rate_hz:g}", _age(age_s), style=colour
            )
        return table

    def _processes(self, now_s: float) -> Table:
        table = _narrow_table("process", "Hz", "of", "late", "err", "max ms", "core", "MB")
        for process, health in sorted(self._health.items()):
            silent_s = now_s - health.stamp_s
            if silent_s > TOPICS["health"].max_age_s:
                table.add_row(process, "silent", "for", f"{silent_s:.0f} s", style="bold red")
                continue
            core = self._cpu.get(process)
            colour = "red" if health.errors else _colour(health.steps_per_s / max(health.nominal_steps_per_s, 1e-9))
            table.add_row(
                process,
                f"{health.steps_per_s:.0f}",
                f"{health.nominal_steps_per_s:.0f}",
                str(health.late_steps),
                str(health.errors),
                f"{health.step_time_max_s * 1e3:.1f}",
                "" if core is None else f"{core:.0%}",
                f"{health.memory_mb:.0f}",
                style=colour,
            )
        return table

    def _lines(self, now_s: float) -> Group:
        lines = [
            self._mission(now_s),
            self._fcu(now_s),
            self._filter(now_s),
            self._control(now_s),
            self._computer(now_s),
        ]
        shown = [Text(plain(line)) for line in lines if line]
        for process, health in sorted(self._health.items()):
            if health.errors and health.last_error:
                shown.append(Text(plain(f"{process}, last error: {health.last_error}"), style="red"))
        for event in self._active.values():
            line = f"SAFETY {event.monitor}: {event.text} ({event.value:.2f}, limit {event.limit:.2f}) → {event.action}"
            shown.append(Text(plain(line), style="bold red"))
        return Group(*shown, *(Text(plain(text), style="dim") for text in self._texts))

    def _mission(self, now_s: float) -> str:
        """A mission whose status does not arrive; "" while it does."""
        if self.latest.fresh(MissionStatus, now_s) is not None:
            return ""
        if (newest := self.latest.get(MissionStatus)) is None:
            return "mission: no status so far: its process is starting, has ended or hangs"
        return f"mission: NO STATUS for {now_s - newest.stamp_s:.0f} s, its phase was {newest.phase}"

    def _fcu(self, now_s: float) -> str:
        status = self.latest.fresh(FcuStatus, now_s)
        if status is None:
            return "flight controller: no status"
        parts = [status.mode, "ARMED" if status.armed else "disarmed", "landed" if status.landed else "in the air"]
        parts += [f"{status.battery_voltage_v:.1f} V {status.battery_remaining:.0%}"]
        parts += ["RC" if status.rc_ok else "NO RC", "GNSS" if status.gnss_ok else "NO GNSS FIX"]
        if math.isfinite(status.imu_rate_hz):
            parts.append(f"IMU at {status.imu_rate_hz:.0f} Hz" if status.imu_rate_hz else "NO IMU DATA")
        return f"flight controller: {', '.join(parts)}, round trip {status.timesync_rtt_s * 1e3:.1f} ms"

    def _filter(self, now_s: float) -> str:
        state = self.latest.get(State)
        if state is None:
            return ""
        parts = [] if state.valid else ["NOT CONVERGED"]
        parts.append(f"position ± {state.position_std_m * 100:.0f} cm")
        if state.bundle:
            parts.append(f"to '{state.bundle}' ± {state.relative_std_m * 100:.1f} cm")
        parts.append(f"thrust scale {state.thrust_scale:.3f}, resets {self._resets}")
        for sensor, updates in self._updates.items():
            used = sum(accepted for _, accepted in updates) / len(updates)
            parts.append(f"{sensor} NIS {sum(nis for nis, _ in updates) / len(updates):.2f}, {used:.0%} used")
        return f"filter: {'; '.join(parts)}"

    def _control(self, now_s: float) -> str:
        control = self.latest.fresh(ControlStatus, now_s)
        if control is None:
            return ""
        why = f" ({control.reason})" if control.reason else ""
        parts = [f"{control.active}{why}"]
        if math.isfinite(control.position_error_m):
            parts.append(f"error {control.position_error_m * 100:.1f} cm {math.degrees(control.yaw_error_rad):+.1f}°")
        parts.append(f"cycle {control.cycle_time_s * 1e3:.1f} ms, fallback {control.fallback_cycles}")
        parts.append(f"misses {control.deadline_misses}, failures {control.solver_failures}")
        return f"controller: {', '.join(parts)}"

    def _computer(self, now_s: float) -> str:
        host = self.latest.fresh(HostStatus, now_s)
        if host is None:
            return ""
        hot = "" if math.isnan(host.cpu_temperature_c) else f", {host.cpu_temperature_c:.0f} °C"
        return (
            f"computer: {host.cpu_load:.0%} busy{hot}{', THROTTLED' if host.throttled else ''},"
            f" free: disk {host.disk_free_mb / 1e3:.1f} GB, memory {host.memory_free_mb / 1e3:.1f} GB"
        )


def _colour(share: float) -> str:
    return "green" if share >= SLOW else "yellow" if share >= VERY_SLOW else "red"


def _age(age_s: float) -> str:
    return f"{age_s * 1e3:.0f} ms" if age_s < 1 else f"{age_s:.0f} s"


def _narrow_table(name: str, *figures: str) -> Table:
    """A table without borders whose columns are as narrow as their content."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(name, no_wrap=True)
    for figure in figures:
        table.add_column(figure, justify="right", no_wrap=True)
    return table


@click.command(context_settings=HELP)
@click.argument("bus", type=click.Path(path_type=Path), required=False)
@click.option("--once", is_flag=True, help="Listen for some seconds, print once, and end.")
@one_line_errors
def watch(bus: Path | None, once: bool) -> None:
    """Show the running stack live: rates, ages, processes, filter, controller, safety. BUS: its bus folder."""
    folder = bus or newest_bus(temporary_folder())
    if not has_sockets(folder):
        raise ConfigError(f"{folder}: no stack runs on this bus, or the bus belongs to another user")
    console, view, started_s = Console(markup=False), StackView(), monotonic_s()
    subscriber = Subscriber(folder, [topic for topic in TOPICS if topic not in NOT_WATCHED])
    try:
        with Live(console=console, auto_refresh=False, screen=console.is_terminal and not once) as live:
            while not once or not view.is_complete(monotonic_s() - started_s):
                until_s = monotonic_s() + 1.0 / REFRESH_HZ
                while (now_s := monotonic_s()) < until_s:
                    for message in subscriber.receive(until_s - now_s):
                        view.take(message, monotonic_s())
                    time.sleep(0.01)  # many messages at a time cost less than one by one
                if not once:
                    live.update(view.render(monotonic_s(), monotonic_s() - started_s), refresh=True)
    except KeyboardInterrupt:
        pass
    finally:
        subscriber.close()
    if once:
        if view.is_empty:
            raise ConfigError(f"{folder}: a process runs on this bus, but nothing was published in {ONCE_MAX_S:g} s")
        console.print(view.render(monotonic_s(), monotonic_s() - started_s))

"""Output of the bench: a live picture on a terminal, lines otherwise."""

from collections.abc import Callable

import click
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from calibration.thrust.bench.bench_file import Bench
from calibration.thrust.bench.raw_file import Progress as Measured
from calibration.thrust.bench.stop_conditions import BenchSnapshot
from calibration.thrust.bench.sweep import Reading, Sweep, plan
from calibration.thrust.bench.terminal import ask_line

PLOT_WIDTH, PLOT_HEIGHT = 60, 15  # characters; each is two by four dots
REFRESH_HZ = 5
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


class LogDisplay:
    """One line per pulse width."""

    def __init__(self, echo: Callable[[str], None] = click.echo) -> None:
        self._echo = echo
        self._readings: list[Reading] = []

    def begin(self, bench: Bench, battery: int, sweep: Sweep, progress: Measured) -> None:
        self._count, self._per_step = len(plan(bench.sweep)), bench.sweep.readings
        self._echo(f"battery {battery}: about {sweep.remaining_s / 60:.0f} min; Ctrl-C stops the motor")

    def update(self, sweep: Sweep, sample: BenchSnapshot) -> None:
        pass

    def reading(self, reading: Reading) -> None:
        self._readings.append(reading)
        if reading.number == self._per_step:
            self._echo(
                f"{reading.step.number + 1:>3}/{self._count} {reading.step.direction:>4} {reading.pwm_us:6.0f} µs "
                f"{reading.thrust_n:8.3f} N {reading.voltage_v:6.2f} V {reading.current_a:6.2f} A"
            )

    def end(self) -> None:
        pass

    def say(self, text: str) -> None:
        self._echo(text)

    def ask(self, question: str, tick: Callable[[], float]) -> str:
        """The answer that a person types; see `terminal.ask_line` for `tick` and errors."""
        return ask_line(question, lambda text: click.echo(text, nl=False), tick)


class LiveDisplay(LogDisplay):
    """Progress bar, the newest numbers, and thrust against pulse width."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._live: Live | None = None
        self._points: list[tuple[float, float]] = []

    def begin(self, bench: Bench, battery: int, sweep: Sweep, progress: Measured) -> None:
        super().begin(bench, battery, sweep, progress)
        self._bar = Progress(
            TextColumn(f"battery {battery}"), BarColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeRemainingColumn(), console=self._console,
        )  # fmt: skip
        done = self._count * self._per_step - round(len(progress.missing(bench, battery)) * self._per_step)
        self._task = self._bar.add_task("", total=self._count * self._per_step, completed=done)
        self._points = list(progress.thrust_n.get(battery, {}).items())
        self._range_us = bench.sweep.lowest_us, bench.sweep.highest_us
        self._sample, self._sweep = BenchSnapshot(0.0), sweep
        self._live = Live(console=self._console, refresh_per_second=REFRESH_HZ, get_renderable=self._picture)
        self._live.start()

    def update(self, sweep: Sweep, sample: BenchSnapshot) -> None:
        self._sample = sample

    def reading(self, reading: Reading) -> None:
        self._points.append((reading.pwm_us, reading.thrust_n))
        self._bar.advance(self._task)

    def end(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _picture(self) -> Group:
        s, table = self._sample, Table.grid(padding=(0, 2))
        table.add_row(
            f"{self._sweep.state} {self._sweep.step.direction} {self._sweep.step.pwm_us:.0f} µs",
            f"out {s.pwm_us:.0f} µs", f"{s.thrust_n:.3f} N", f"{s.voltage_v:.2f} V", f"{s.current_a:.2f} A",
        )  # fmt: skip
        return Group(self._bar, table, Text(plot(self._points, self._range_us)))


def plot(points: list[tuple[float, float]], range_us: tuple[float, float]) -> str:
    """Points (pulse width, thrust) as a picture of Braille dots with its scales."""
    wide, high = 2 * PLOT_WIDTH, 4 * PLOT_HEIGHT
    top = max((thrust for _, thrust in points), default=0.0)
    top = top if top > 0 else 1.0
    cells = [[0] * PLOT_WIDTH for _ in range(PLOT_HEIGHT)]
    for pwm, thrust in points:
        x = round((pwm - range_us[0]) / (range_us[1] - range_us[0]) * (wide - 1))
        y = round((1 - thrust / top) * (high - 1))
        if 0 <= x < wide and 0 <= y < high:
            cells[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
    rows = ["".join(chr(0x2800 + cell) for cell in row) for row in cells]
    labels = [f"{top:6.2f} N "] + [" " * 9] * (PLOT_HEIGHT - 2) + ["  0.00 N "]
    foot = f"{range_us[0]:.0f} µs".ljust(PLOT_WIDTH - 7) + f"{range_us[1]:.0f} µs"
    return "\n".join([*(label + row for label, row in zip(labels, rows, strict=True)), " " * 9 + foot])


def display_for(console: Console) -> LogDisplay:
    """The live picture on a terminal, lines otherwise."""
    return LiveDisplay(console) if console.is_terminal else LogDisplay()

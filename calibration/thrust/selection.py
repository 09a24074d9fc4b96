"""The part of a bench's range that is used: pulse widths and voltages, for the sweep and for the readings."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from calibration.results import DataError
from calibration.thrust.bench.bench_file import Bench
from calibration.thrust.table import MIN_ROWS, PWM_SPAN_US, PWM_ZERO_US, StandRun
from companion.core.config import ConfigError


@dataclass(frozen=True)
class Selection:
    """None: no limit. A throttle of 0 to 100 % counts as 1000 to 2000 µs."""

    min_us: float | None = None
    max_us: float | None = None
    min_voltage_v: float | None = None

    def __post_init__(self) -> None:
        """Raises `ConfigError`: "nan" passes every comparison, and the limit would not hold."""
        if not all(math.isfinite(v) for v in (self.min_us, self.max_us, self.min_voltage_v) if v is not None):
            raise ConfigError("--min-us, --max-us, --min-voltage: not a number")

    def of_bench(self, bench: Bench) -> Bench:
        """The bench whose sweep and voltage stay inside; raises `ConfigError` if no sweep remains."""
        lowest = max(bench.sweep.lowest_us, self.min_us or 0.0)
        highest = min(bench.sweep.highest_us, self.max_us or np.inf)
        if not lowest < highest:
            raise ConfigError(
                f"--min-us, --max-us: no step between {lowest:g} and {highest:g} µs; the bench file has "
                f"{bench.sweep.lowest_us:g} to {bench.sweep.highest_us:g} µs"
            )
        sweep = msgspec.structs.replace(bench.sweep, lowest_us=float(lowest), highest_us=float(highest))
        least = max(bench.limits.voltage_min_v, self.min_voltage_v or 0.0)
        limits = msgspec.structs.replace(bench.limits, voltage_min_v=least)
        return msgspec.structs.replace(bench, sweep=sweep, limits=limits)

    def of_runs(self, runs: Sequence[StandRun]) -> list[StandRun]:
        """The readings inside; raises `DataError` if too few remain."""
        selected = [self._of_run(run) for run in runs]
        if sum(len(run.command) for run in selected) < MIN_ROWS:
            count = sum(len(run.command) for run in runs)
            raise DataError(f"--min-us, --max-us, --min-voltage leave fewer than {MIN_ROWS} of {count} readings")
        return [run for run in selected if len(run.command)]

    def _of_run(self, run: StandRun) -> StandRun:
        pwm_us = PWM_ZERO_US + PWM_SPAN_US * run.command
        inside = np.ones(len(pwm_us), bool)
        if self.min_us is not None:
            inside &= pwm_us >= self.min_us - 1e-6
        if self.max_us is not None:
            inside &= pwm_us <= self.max_us + 1e-6
        if self.min_voltage_v is not None:
            inside &= run.voltage_v >= self.min_voltage_v
        if inside.all():
            return run
        keys = ("command", "thrust_n", "voltage_v", "current_a", "time_s", "line")
        note = f"{run.name}: {int((~inside).sum())} of {len(inside)} readings left out by --min-us, --max-us, --min-voltage"
        return replace(run, notes=(*run.notes, note), **{key: getattr(run, key)[inside] for key in keys})

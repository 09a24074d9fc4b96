"""Throttle sweep on one battery as a state machine without clock or I/O: snapshots in, pulse widths and readings out.

    ramp ──► settle ──► read ──► ramp …  ──► done

With a manual throttle, the ramp state waits until the reported pulse width is within tolerance. When it leaves the
tolerance, the sweep returns to the ramp state and the readings of the step start again.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

from calibration.thrust.bench.bench_file import Bench, SweepConfig
from calibration.thrust.bench.stop_conditions import BenchSnapshot

MOVE_MAX_S = 0.1  # time for which the ramp moves on at once: a cycle that was late is no step of the motor


class SweepState(StrEnum):
    """States of a sweep."""

    RAMP = "ramp"
    SETTLE = "settle"
    READ = "read"
    DONE = "done"


class Direction(StrEnum):
    """Whether the pulse width rises or falls."""

    UP = "up"
    DOWN = "down"


@dataclass(frozen=True)
class Step:
    """One pulse width of the sweep."""

    number: int  # from 0
    direction: Direction
    pwm_us: float


@dataclass(frozen=True)
class Reading:
    """One row of the raw data, without run, battery and tare."""

    step: Step
    number: int  # 1 … readings
    time_s: float  # of the newest reading of the scale in it
    pwm_us: float  # reported by the flight controller
    thrust_n: float  # mean since the previous reading, or since settling ended; tare subtracted
    voltage_v: float
    current_a: float


def plan(sweep: SweepConfig) -> list[Step]:
    """The steps of one battery: pulse widths upwards, then downwards if `sweep.down`, the highest only once."""
    count = math.floor((sweep.highest_us - sweep.lowest_us) / sweep.step_us + 1e-9) + 1
    up = [sweep.lowest_us + i * sweep.step_us for i in range(count)]
    if up[-1] < sweep.highest_us - 1e-6:
        up.append(sweep.highest_us)
    ways = [(Direction.UP, pwm) for pwm in up] + [(Direction.DOWN, pwm) for pwm in reversed(up[:-1]) if sweep.down]
    return [Step(i, direction, pwm) for i, (direction, pwm) in enumerate(ways)]


class Sweep:
    """Runs the steps of one battery that are still to be measured."""

    def __init__(self, bench: Bench, steps: list[Step]) -> None:
        self._sweep, self._motor = bench.sweep, bench.motor
        self._manual = bench.motor.drive == "manual"
        self._steps = steps
        self._index = 0
        self._since_s = 0.0
        self._values: list[float] = []
        self._taken = 0
        self._last_s: float | None = None
        self.pwm_us = bench.motor.pwm_min_us  # commanded; every sweep begins with the motor at rest
        self.state = SweepState.RAMP if steps else SweepState.DONE

    @property
    def step(self) -> Step:
        """The step being measured; the last when done."""
        return self._steps[min(self._index, len(self._steps) - 1)]

    @property
    def remaining_s(self) -> float:
        """Approximate time of the remaining steps [s]."""
        each = self._sweep.settle_s + self._sweep.readings * self._sweep.interval_s
        return (len(self._steps) - self._index) * (each + self._sweep.step_us / self._sweep.ramp_us_s)

    def advance(self, sample: BenchSnapshot) -> Reading | None:
        """Advance to the time of a snapshot; returns a reading when one is due."""
        now_s = sample.now_s
        elapsed_s = 0.0 if self._last_s is None else now_s - self._last_s
        self._last_s = now_s
        reading = None
        if self.state is SweepState.RAMP:
            self._move(elapsed_s)
            if self._arrived(sample):
                self._enter(SweepState.SETTLE, now_s)
        elif self._manual and not self._arrived(sample):
            self._taken = 0
            self._enter(SweepState.RAMP, now_s)
        elif self.state is SweepState.SETTLE:
            if now_s - self._since_s >= self._sweep.settle_s:
                self._enter(SweepState.READ, now_s)
        elif self.state is SweepState.READ:
            self._values += sample.new_thrust_n
            if now_s - self._since_s >= self._sweep.interval_s and self._values:
                reading = self._read(sample)
        return reading

    def _move(self, elapsed_s: float) -> None:
        most = self._sweep.ramp_us_s * min(elapsed_s, MOVE_MAX_S)
        self.pwm_us += min(max(self.step.pwm_us - self.pwm_us, -most), most)

    def _arrived(self, sample: BenchSnapshot) -> bool:
        if self._manual:
            return abs(sample.pwm_us - self.step.pwm_us) <= self._motor.tolerance_us
        return abs(self.pwm_us - self.step.pwm_us) < 1e-6

    def _enter(self, state: SweepState, now_s: float) -> None:
        self.state, self._since_s, self._values = state, now_s, []

    def _read(self, sample: BenchSnapshot) -> Reading:
        self._taken += 1
        reading = Reading(
            self.step,
            self._taken,
            sample.thrust_s if math.isfinite(sample.thrust_s) else sample.now_s,
            sample.pwm_us,
            fmean(self._values),
            sample.voltage_v,
            sample.current_a,
        )
        self._enter(SweepState.READ, sample.now_s)
        if self._taken >= self._sweep.readings:
            self._taken = 0
            self._index += 1
            self._enter(SweepState.RAMP if self._index < len(self._steps) else SweepState.DONE, sample.now_s)
        return reading

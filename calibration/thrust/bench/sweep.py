"""The sweep of one battery as a state machine without clock or ports: pulse widths out, readings in.

    ramp ──► settle ──► read ──► ramp …  ──► done

By hand the ramp waits for the throttle, and a hand that slips goes back to it.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

from calibration.thrust.bench.bench_file import Bench, SweepConfig
from calibration.thrust.bench.stop_conditions import Sample


class State(StrEnum):
    RAMP = "ramp"
    SETTLE = "settle"
    READ = "read"
    DONE = "done"


@dataclass(frozen=True)
class Step:
    """One pulse width of the sweep."""

    number: int  # from 0
    direction: str  # up, down
    pwm_us: float


@dataclass(frozen=True)
class Reading:
    """One row of the raw data, without the run it belongs to."""

    step: Step
    number: int  # 1 … readings
    time_s: float
    pwm_us: float  # read back
    thrust_n: float  # mean since the reading before, zero subtracted
    voltage_v: float
    current_a: float


def plan(sweep: SweepConfig) -> list[Step]:
    """The pulse widths of one battery: up, and down again without the top twice."""
    count = math.floor((sweep.highest_us - sweep.lowest_us) / sweep.step_us + 1e-9) + 1
    up = [sweep.lowest_us + i * sweep.step_us for i in range(count)]
    if up[-1] < sweep.highest_us - 1e-6:
        up.append(sweep.highest_us)
    ways = [("up", pwm) for pwm in up] + [("down", pwm) for pwm in reversed(up[:-1]) if sweep.down]
    return [Step(i, direction, pwm) for i, (direction, pwm) in enumerate(ways)]


class Sweep:
    """Moves through the steps of one battery that are still to be measured."""

    def __init__(self, bench: Bench, steps: list[Step]) -> None:
        self._sweep, self._motor = bench.sweep, bench.motor
        self._manual = bench.motor.drive == "manual"
        self._steps = steps
        self._index = 0
        self._since_s = 0.0
        self._values: list[float] = []
        self._taken = 0
        self._last_s: float | None = None
        self.pwm_us = bench.sweep.lowest_us  # what the motor is to get
        self.state = State.RAMP if steps else State.DONE

    @property
    def step(self) -> Step:
        """The one being measured; the last when done."""
        return self._steps[min(self._index, len(self._steps) - 1)]

    @property
    def remaining_s(self) -> float:
        """About how long the rest takes."""
        each = self._sweep.settle_s + self._sweep.readings * self._sweep.interval_s
        return (len(self._steps) - self._index) * (each + self._sweep.step_us / self._sweep.ramp_us_s)

    def advance(self, sample: Sample) -> Reading | None:
        """One moment on; a reading whenever one is due."""
        now_s = sample.now_s
        elapsed_s = 0.0 if self._last_s is None else now_s - self._last_s
        self._last_s = now_s
        reading = None
        if self.state is State.RAMP:
            self._move(elapsed_s)
            if self._arrived(sample):
                self._enter(State.SETTLE, now_s)
        elif self._manual and not self._arrived(sample):
            self._taken = 0
            self._enter(State.RAMP, now_s)
        elif self.state is State.SETTLE:
            if now_s - self._since_s >= self._sweep.settle_s:
                self._enter(State.READ, now_s)
        elif self.state is State.READ:
            self._values += sample.new_thrust_n
            if now_s - self._since_s >= self._sweep.interval_s and self._values:
                reading = self._read(sample)
        return reading

    def _move(self, elapsed_s: float) -> None:
        most = self._sweep.ramp_us_s * elapsed_s
        self.pwm_us += min(max(self.step.pwm_us - self.pwm_us, -most), most)

    def _arrived(self, sample: Sample) -> bool:
        if self._manual:
            return abs(sample.pwm_us - self.step.pwm_us) <= self._motor.tolerance_us
        return abs(self.pwm_us - self.step.pwm_us) < 1e-6

    def _enter(self, state: State, now_s: float) -> None:
        self.state, self._since_s, self._values = state, now_s, []

    def _read(self, sample: Sample) -> Reading:
        self._taken += 1
        reading = Reading(
            self.step,
            self._taken,
            sample.now_s,
            sample.pwm_us,
            fmean(self._values),
            sample.voltage_v,
            sample.current_a,
        )
        self._enter(State.READ, sample.now_s)
        if self._taken >= self._sweep.readings:
            self._taken = 0
            self._index += 1
            self._enter(State.RAMP if self._index < len(self._steps) else State.DONE, sample.now_s)
        return reading

"""The bench file: scale, motor, sweep and limits of a thrust bench (config/benches/*.toml)."""

import re
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from calibration.thrust.columns import NEWTONS
from companion.core.config import ConfigError, Section, integer, load, number

# The test of the output before a sweep drives the motor above an armed idle by two tolerances and a bit: by no more than
# this share of the range, because it does so in one step.
PROBE_SHARE, PROBE_TOLERANCES, PROBE_ABOVE_US = 0.05, 2.0, 1.0


class ScaleConfig(Section, frozen=True):
    """A load cell that sends a line of text for each reading."""

    url: str  # serial:/dev/ttyUSB0:115200
    pattern: str  # regular expression of a whole line; its first group is the reading
    unit: Literal["gf", "kgf", "N"]
    sign: Literal[-1, 1]  # 1: readings rise with thrust
    silence_s: Annotated[float, number(0.1, 5, "s without a reading, after which the motor stops")]

    @property
    def newtons(self) -> float:
        """Newtons of thrust per unit of the reading."""
        return self.sign * NEWTONS[self.unit.lower()]


class MotorConfig(Section, frozen=True):
    """One motor of a PX4 flight controller."""

    drive: Literal["actuator_test", "manual"]  # manual: the throttle is moved by hand, the pulse width is read back
    url: str  # the flight controller: serial:/dev/ttyACM0:57600, udpin:0.0.0.0:14540
    autopilot_system_id: Annotated[int, integer(1, 254)]
    number: Annotated[int, integer(1, 12, "(PX4's Motor 1 to 12)")]
    output: Annotated[int, integer(1, 16, "(its place in SERVO_OUTPUT_RAW: MAIN 1 is 1)")]
    pwm_min_us: Annotated[float, number(800, 1400, "µs (PX4's PWM_MAIN_MINn of that output)")]
    pwm_max_us: Annotated[float, number(1600, 2200, "µs (PX4's PWM_MAIN_MAXn)")]
    tolerance_us: Annotated[float, number(1, 50, "µs between the pulse width asked for and read back")]
    port: Annotated[int, integer(0, 1, "(of SERVO_OUTPUT_RAW: 0 is MAIN, 1 is AUX of a board with both)")] = 0
    read_back: Literal["us", "dshot"] = "us"  # what SERVO_OUTPUT_RAW has; 0 to 1999 of DShot count as 1000 to 2000 µs


class SweepConfig(Section, frozen=True):
    """The sequence of pulse widths and the readings at each."""

    lowest_us: Annotated[float, number(800, 1600, "µs")]
    highest_us: Annotated[float, number(1200, 2200, "µs")]
    step_us: Annotated[float, number(5, 200, "µs")]
    down: bool  # and back down again
    settle_s: Annotated[float, number(0.1, 30, "s before the first reading")]
    readings: Annotated[int, integer(1, 100, "at each pulse width")]
    interval_s: Annotated[float, number(0.1, 10, "s between two readings")]
    ramp_us_s: Annotated[float, number(20, 2000, "µs per second, at the most")]
    batteries: Annotated[int, integer(1, 20, "(full and empty ones: a larger difference is better)")]


class LimitsConfig(Section, frozen=True):
    """What stops the motor."""

    voltage_min_v: Annotated[float, number(2, 100, "V, under load")]
    thrust_max_n: Annotated[float, number(0.1, 1000, "N, the limit of scale and stand")]
    collapse_share: Annotated[float, number(0.05, 0.95, "(of the thrust measured before at this or less command)")]
    link_s: Annotated[float, number(0.2, 5, "s without a message from the flight controller")]
    current_max_a: Annotated[float, Meta(ge=0.5, le=500, description="0.5 to 500 A")] | None = None  # none: no sensor


class Bench(Section, frozen=True):
    """A bench file."""

    name: str
    scale: ScaleConfig
    motor: MotorConfig
    sweep: SweepConfig
    limits: LimitsConfig


def load_bench(path: str | Path) -> Bench:
    """Read and check a bench file; raises `ConfigError` with one line."""
    bench = load(path, Bench)
    try:
        groups = re.compile(bench.scale.pattern).groups
    except re.error as error:
        raise ConfigError(f"{path}: scale.pattern: not a regular expression: {error}") from None
    if groups < 1:
        raise ConfigError(f"{path}: scale.pattern: has no group: put the part that is the reading in round brackets")
    motor, sweep = bench.motor, bench.sweep
    if not motor.pwm_min_us <= sweep.lowest_us < sweep.highest_us <= motor.pwm_max_us:
        raise ConfigError(
            f"{path}: sweep.lowest_us, sweep.highest_us = {sweep.lowest_us:g}, {sweep.highest_us:g}: must rise and lie "
            f"between motor.pwm_min_us and motor.pwm_max_us ({motor.pwm_min_us:g} to {motor.pwm_max_us:g} µs)"
        )
    most_us = (PROBE_SHARE * (motor.pwm_max_us - motor.pwm_min_us) - PROBE_ABOVE_US) / PROBE_TOLERANCES
    if motor.drive == "actuator_test" and motor.tolerance_us > most_us:
        raise ConfigError(
            f"{path}: motor.tolerance_us = {motor.tolerance_us:g}: the test of the output before a sweep drives the motor "
            f"at {probe_us(motor.pwm_min_us, motor):.0f} µs, above motor.pwm_min_us by twice the tolerance: at most {most_us:.0f}"
        )
    return bench


def probe_us(rest_us: float, motor: MotorConfig) -> float:
    """The lowest pulse width [µs] above the disarmed output and an armed idle by more than the tolerance."""
    return max(motor.pwm_min_us, rest_us) + PROBE_TOLERANCES * motor.tolerance_us + PROBE_ABOVE_US

"""What stops the motor: one row per danger, each with the time it must last and the words for it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from calibration.thrust.bench.bench_file import Bench

COLLAPSE_FROM = 0.1  # of the largest thrust so far: below, a collapse is noise
BATTERY_AGE_S = 1.0
MESSAGE_S = 0.4  # from a command to its pulse width read back, at the most
NO_THRUST_FROM = 0.5  # of the sweep's span: by then a motor that turns has shown it
NO_THRUST_N = 0.05


@dataclass
class Sample:
    """What is known at one moment; ages are infinite for what never came."""

    now_s: float
    new_thrust_n: list[float] = field(default_factory=list)  # readings since the last sample, zero subtracted
    thrust_n: float = math.nan  # the newest, smoothed over a fifth of a second
    scale_age_s: float = math.inf
    scale_text: str = ""  # the newest line of the scale, if that was no reading
    pwm_us: float = math.nan  # read back
    pwm_age_s: float = math.inf
    voltage_v: float = math.nan
    current_a: float = math.nan
    battery_age_s: float = math.inf
    link_age_s: float = math.inf
    armed: bool = False
    refusal: str = ""
    trouble: str = ""  # of a port


@dataclass(frozen=True)
class Row:
    name: str
    lasts_s: float
    words: Callable[["Watch", Sample], str]  # "" while all is well


class Watch:
    """The table over time. `check` gives the reason to stop, or ""."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.commanded_us = math.nan
        self.measured: dict[float, float] = {}  # pulse width → thrust [N] measured there
        self._since_s: dict[str, float] = {}
        self.moved_s = -math.inf

    @property
    def manual(self) -> bool:
        return self.bench.motor.drive == "manual"

    def learn(self, pwm_us: float, thrust_n: float) -> None:
        """A reading that a later collapse is told from."""
        self.measured[pwm_us] = thrust_n

    def check(self, sample: Sample, commanded_us: float) -> str:
        """commanded_us: what the motor is told, or, by hand, what was read back."""
        if commanded_us != self.commanded_us:
            self.commanded_us, self.moved_s = commanded_us, sample.now_s
        for row in ROWS:
            words = row.words(self, sample)
            if not words:
                self._since_s.pop(row.name, None)
            elif sample.now_s - self._since_s.setdefault(row.name, sample.now_s) >= row.lasts_s:
                return words
        return ""

    def expected_n(self) -> float:
        """The least the motor gives at the present command: the most it gave at the same or less."""
        return max((n for pwm, n in self.measured.items() if pwm <= self.commanded_us), default=0.0)


def _port(_watch: Watch, s: Sample) -> str:
    return s.trouble


def _silence(watch: Watch, s: Sample) -> str:
    if s.scale_age_s <= watch.bench.scale.silence_s:
        return ""
    if s.scale_text:
        return f"the scale sends text: '{s.scale_text}' does not match scale.pattern"
    return f"the scale is silent for {s.scale_age_s:.1f} s"


def _link(watch: Watch, s: Sample) -> str:
    late = s.link_age_s > watch.bench.limits.link_s
    return f"no word from the flight controller for {s.link_age_s:.1f} s" if late else ""


def _battery(_watch: Watch, s: Sample) -> str:
    return f"no battery voltage for {s.battery_age_s:.1f} s" if s.battery_age_s > BATTERY_AGE_S else ""


def _refused(watch: Watch, s: Sample) -> str:
    return f"the flight controller refuses the motor test: {s.refusal}" if s.refusal and not watch.manual else ""


def _armed(watch: Watch, s: Sample) -> str:
    return "somebody armed the flight controller" if s.armed and not watch.manual else ""


def _current(watch: Watch, s: Sample) -> str:
    most = watch.bench.limits.current_max_a
    over = most is not None and s.current_a > most
    return f"current {s.current_a:.1f} A is above {most:g} A" if over else ""


def _voltage(watch: Watch, s: Sample) -> str:
    low = s.voltage_v < watch.bench.limits.voltage_min_v
    return f"voltage {s.voltage_v:.2f} V is below {watch.bench.limits.voltage_min_v:g} V" if low else ""


def _overload(watch: Watch, s: Sample) -> str:
    most = watch.bench.limits.thrust_max_n
    return f"thrust {s.thrust_n:.1f} N is above {most:g} N" if s.thrust_n > most else ""


def _collapse(watch: Watch, s: Sample) -> str:
    expected = watch.expected_n()
    if expected < COLLAPSE_FROM * max(watch.measured.values(), default=0.0) or expected < 4 * NO_THRUST_N:
        return ""
    fell = s.thrust_n < watch.bench.limits.collapse_share * expected
    return f"thrust collapsed to {s.thrust_n:.2f} N where it was {expected:.2f} N" if fell else ""


def _no_thrust(watch: Watch, s: Sample) -> str:
    sweep = watch.bench.sweep
    if watch.commanded_us < sweep.lowest_us + NO_THRUST_FROM * (sweep.highest_us - sweep.lowest_us):
        return ""
    if s.thrust_n < -NO_THRUST_N:
        return f"thrust is {s.thrust_n:.2f} N: is scale.sign right?"
    return f"no thrust at {watch.commanded_us:.0f} µs: does the motor turn?" if s.thrust_n < NO_THRUST_N else ""


def _follows(watch: Watch, s: Sample) -> str:
    if watch.manual or not math.isfinite(watch.commanded_us):
        return ""
    if s.pwm_age_s > BATTERY_AGE_S:
        return "no pulse widths come (SERVO_OUTPUT_RAW)"
    sweep, motor = watch.bench.sweep, watch.bench.motor
    lag_us = sweep.ramp_us_s * MESSAGE_S if s.now_s - watch.moved_s < MESSAGE_S else 0.0
    allowed = motor.tolerance_us + lag_us
    off = abs(s.pwm_us - watch.commanded_us) > allowed
    return (
        f"the output is at {s.pwm_us:.0f} µs, not {watch.commanded_us:.0f}: motor.output, pwm_min_us, pwm_max_us?"
        if off
        else ""
    )


ROWS = (
    Row("refused", 0.0, _refused),
    Row("armed", 0.0, _armed),
    Row("current", 0.0, _current),
    Row("overload", 0.0, _overload),
    Row("scale silent", 0.0, _silence),
    Row("link lost", 0.0, _link),
    Row("port", 0.0, _port),
    Row("battery unknown", 0.0, _battery),
    Row("voltage low", 0.3, _voltage),
    Row("thrust collapsed", 0.3, _collapse),
    Row("no thrust", 1.0, _no_thrust),
    Row("does not follow", 1.0, _follows),
)

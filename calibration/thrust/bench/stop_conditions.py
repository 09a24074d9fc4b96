"""The conditions that stop the motor: a table of dangers, each with the time it must last and its message."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from calibration.thrust.bench.bench_file import Bench
from calibration.thrust.bench.pause import PAUSE_S

COLLAPSE_FROM = 0.1  # of the largest thrust so far: below, a collapse cannot be distinguished from noise
BATTERY_AGE_S = 1.0
LINK_LATE_S = 0.35  # several messages are missing
MESSAGE_S = 0.4  # longest time from a command to its pulse width read back
NO_THRUST_FROM = 0.5  # of the sweep's span: from there a turning motor gives thrust
NO_THRUST_N = 0.05
WRONG_SIGN_N = 4 * NO_THRUST_N  # below zero: more than noise and the drift of a tare
WRONG_SIGN_SHARE = 0.01  # of limits.thrust_max_n, the same on a large stand
CHECK_SIGN = "check scale.sign of the bench file"
FROZEN_US = 150.0  # over which the thrust of a turning motor changes by several steps of any scale
FROZEN_S = 2.0  # a kitchen scale shows a new value at least once a second


@dataclass
class BenchSnapshot:
    """All measurements at one moment; the age of a value that never came is infinite."""

    now_s: float
    new_thrust_n: list[float] = field(default_factory=list)  # readings since the last sample, zero subtracted
    thrust_n: float = math.nan  # the newest, smoothed over a fifth of a second
    scale_age_s: float = math.inf
    scale_text: str = ""  # the newest line of the scale, if it was not a reading
    pwm_us: float = math.nan  # read back
    pwm_age_s: float = math.inf
    voltage_v: float = math.nan
    current_a: float = math.nan
    rest_us: float = math.nan  # the output of the disarmed flight controller
    battery_age_s: float = math.inf
    link_age_s: float = math.inf
    armed: bool = False
    refusal: str = ""
    trouble: str = ""  # of a port
    thrust_s: float = math.nan  # when the newest reading was made
    pause_s: float = 0.0  # for which the program stood still before this moment
    unanswered_s: float = 0.0  # for which the flight controller accepted no motor test
    terminal_lost: bool = False


@dataclass(frozen=True)
class StopCondition:
    """One danger."""

    name: str
    lasts_s: float
    reason: Callable[["StopMonitor", BenchSnapshot], str]  # "" while there is no danger


class StopMonitor:
    """Evaluates the table over time; `check` returns the reason to stop, or ""."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.commanded_us = math.nan
        self.measured: dict[float, float] = {}  # pulse width → thrust [N] measured there
        self._since_s: dict[str, float] = {}
        self.moved_s = -math.inf
        self.same_n = math.nan  # the newest reading [N], the time of its first occurrence, and the commands since
        self.same_since_s = -math.inf
        self.same_us = (math.nan, math.nan)
        self.raised_s = math.inf  # since when the command is above the disarmed output

    @property
    def manual(self) -> bool:
        return self.bench.motor.drive == "manual"

    def note_measured(self, pwm_us: float, thrust_n: float) -> None:
        """Keep a reading, with which a later collapse of thrust is detected."""
        self.measured[pwm_us] = thrust_n

    def check(self, sample: BenchSnapshot, commanded_us: float) -> str:
        """The reason to stop, or "". commanded_us: the commanded pulse width; by hand, the one read back."""
        if commanded_us != self.commanded_us:
            self.commanded_us, self.moved_s = commanded_us, sample.now_s
        if not commanded_us > sample.rest_us + 2 * self.bench.motor.tolerance_us:
            self.raised_s = math.inf
        elif math.isinf(self.raised_s):
            self.raised_s = sample.now_s
        self._note_readings(sample, commanded_us)
        for condition in STOP_CONDITIONS:
            reason = condition.reason(self, sample)
            if not reason:
                self._since_s.pop(condition.name, None)
            elif sample.now_s - self._since_s.setdefault(condition.name, sample.now_s) >= condition.lasts_s:
                return reason
        return ""

    def _note_readings(self, sample: BenchSnapshot, commanded_us: float) -> None:
        if any(value != self.same_n for value in sample.new_thrust_n):
            self.same_n, self.same_since_s = sample.new_thrust_n[-1], sample.now_s
            self.same_us = commanded_us, commanded_us
        self.same_us = min(self.same_us[0], commanded_us), max(self.same_us[1], commanded_us)

    def expected_n(self) -> float:
        """The least thrust at the present command: the largest measured at the same or a smaller one."""
        return max((n for pwm, n in self.measured.items() if pwm <= self.commanded_us), default=0.0)


def _paused(_monitor: StopMonitor, s: BenchSnapshot) -> str:
    paused = s.pause_s > PAUSE_S
    return f"the program was paused for {s.pause_s:.1f} s (Ctrl-Z, sleep, a computer too busy)" if paused else ""


def _terminal(_monitor: StopMonitor, s: BenchSnapshot) -> str:
    return "the terminal is gone" if s.terminal_lost else ""


def _port(_monitor: StopMonitor, s: BenchSnapshot) -> str:
    return s.trouble


def _silence(monitor: StopMonitor, s: BenchSnapshot) -> str:
    if s.scale_age_s <= monitor.bench.scale.silence_s:
        return ""
    if s.scale_text:
        return f"the scale sends text: '{s.scale_text}' does not match scale.pattern"
    return f"the scale is silent for {s.scale_age_s:.1f} s"


def _link(monitor: StopMonitor, s: BenchSnapshot) -> str:
    late = s.link_age_s > monitor.bench.limits.link_s
    return f"no message from the flight controller for {s.link_age_s:.1f} s" if late else ""


def _unanswered(_monitor: StopMonitor, s: BenchSnapshot) -> str:
    if not s.unanswered_s:
        return ""
    if s.link_age_s > LINK_LATE_S:
        return f"no message from the flight controller for {s.link_age_s:.1f} s"
    return f"the flight controller answered no command for {s.unanswered_s:.1f} s: the link, or its restart"


def _went_off(monitor: StopMonitor, s: BenchSnapshot) -> str:
    """Whatever holds the output down may end any moment, and then the motor would start in one step."""
    read_s = s.now_s - s.pwm_age_s
    down = s.pwm_us <= s.rest_us + monitor.bench.motor.tolerance_us
    if monitor.manual or not down or read_s < monitor.raised_s + MESSAGE_S:
        return ""
    return (
        f"the output is off ({s.pwm_us:.0f} µs) where {monitor.commanded_us:.0f} is commanded: kill switch, "
        "arming, or a restart of the flight controller"
    )


def _battery(_monitor: StopMonitor, s: BenchSnapshot) -> str:
    return f"no battery voltage for {s.battery_age_s:.1f} s" if s.battery_age_s > BATTERY_AGE_S else ""


def _refused(monitor: StopMonitor, s: BenchSnapshot) -> str:
    return f"the flight controller refuses the motor test: {s.refusal}" if s.refusal and not monitor.manual else ""


def _armed(monitor: StopMonitor, s: BenchSnapshot) -> str:
    return "the flight controller was armed (by another station or RC)" if s.armed and not monitor.manual else ""


def _current(monitor: StopMonitor, s: BenchSnapshot) -> str:
    most = monitor.bench.limits.current_max_a
    if most is None:
        return ""
    if math.isnan(s.current_a):
        return f"no current is measured, and limits.current_max_a = {most:g} cannot be kept"
    over = s.current_a > most
    return f"current {s.current_a:.1f} A is above {most:g} A" if over else ""


def _voltage(monitor: StopMonitor, s: BenchSnapshot) -> str:
    low = s.voltage_v < monitor.bench.limits.voltage_min_v
    return f"voltage {s.voltage_v:.2f} V is below {monitor.bench.limits.voltage_min_v:g} V" if low else ""


def _overload(monitor: StopMonitor, s: BenchSnapshot) -> str:
    """Of either sign: with a wrong scale.sign the motor pulls as hard."""
    most = monitor.bench.limits.thrust_max_n
    if not abs(s.thrust_n) > most:
        return ""
    if s.thrust_n < 0:
        return f"thrust {s.thrust_n:.1f} N is below -{most:g} N: {CHECK_SIGN}"
    return f"thrust {s.thrust_n:.1f} N is above {most:g} N"


def _collapse(monitor: StopMonitor, s: BenchSnapshot) -> str:
    expected = monitor.expected_n()
    if expected < COLLAPSE_FROM * max(monitor.measured.values(), default=0.0) or expected < 4 * NO_THRUST_N:
        return ""
    if not s.thrust_n < monitor.bench.limits.collapse_share * expected:
        return ""
    text = f"thrust collapsed to {s.thrust_n:.2f} N where it was {expected:.2f} N"
    silent = s.link_age_s > LINK_LATE_S  # then the motor test has expired, and that is the cause
    return f"no message from the flight controller for {s.link_age_s:.1f} s, {text}" if silent else text


def _no_thrust(monitor: StopMonitor, s: BenchSnapshot) -> str:
    sweep = monitor.bench.sweep
    wrong_n = max(WRONG_SIGN_N, WRONG_SIGN_SHARE * monitor.bench.limits.thrust_max_n)
    if math.isfinite(monitor.raised_s) and s.thrust_n < -wrong_n:
        return f"thrust is {s.thrust_n:.2f} N: {CHECK_SIGN}"
    if not monitor.commanded_us >= sweep.lowest_us + NO_THRUST_FROM * (sweep.highest_us - sweep.lowest_us):
        return ""
    if s.thrust_n < -NO_THRUST_N:
        return f"thrust is {s.thrust_n:.2f} N: {CHECK_SIGN}"
    return f"no thrust at {monitor.commanded_us:.0f} µs: check that the motor turns" if s.thrust_n < NO_THRUST_N else ""


def _frozen(monitor: StopMonitor, s: BenchSnapshot) -> str:
    """A scale that lost its cell: neither collapse nor overload can be seen. At rest a constant reading is no fault."""
    low_us, high_us = monitor.same_us
    if not high_us - low_us >= FROZEN_US or s.now_s - monitor.same_since_s < FROZEN_S or monitor.same_n < NO_THRUST_N:
        return ""
    return f"the scale repeats one reading ({monitor.same_n:.2f} N) from {low_us:.0f} to {high_us:.0f} µs"


def _follows(monitor: StopMonitor, s: BenchSnapshot) -> str:
    if monitor.manual or not math.isfinite(monitor.commanded_us):
        return ""
    if s.pwm_age_s > BATTERY_AGE_S:
        return "no pulse widths are received (SERVO_OUTPUT_RAW)"
    sweep, motor = monitor.bench.sweep, monitor.bench.motor
    lag_us = sweep.ramp_us_s * MESSAGE_S if s.now_s - monitor.moved_s < MESSAGE_S else 0.0
    allowed = motor.tolerance_us + lag_us
    off = abs(s.pwm_us - monitor.commanded_us) > allowed
    return output_is_wrong(s.pwm_us, monitor.commanded_us, s.rest_us, motor.tolerance_us) if off else ""


def output_is_wrong(pwm_us: float, commanded_us: float, rest_us: float, tolerance_us: float) -> str:
    """The reason to stop when the output is not the commanded one."""
    seen = f"the output is at {pwm_us:.0f} µs, not {commanded_us:.0f}: check motor."
    if abs(pwm_us - rest_us) <= tolerance_us:
        return f"{seen}number, output and port, and the kill switch"
    return f"{seen}output, pwm_min_us, pwm_max_us"


STOP_CONDITIONS = (
    StopCondition("paused", 0.0, _paused),
    StopCondition("terminal lost", 0.0, _terminal),
    StopCondition("refused", 0.0, _refused),
    StopCondition("armed", 0.0, _armed),
    StopCondition("current", 0.0, _current),
    StopCondition("overload", 0.0, _overload),
    StopCondition("scale silent", 0.0, _silence),
    StopCondition("link lost", 0.0, _link),
    StopCondition("unanswered", 0.0, _unanswered),
    StopCondition("output off", 0.0, _went_off),
    StopCondition("port", 0.0, _port),
    StopCondition("battery unknown", 0.0, _battery),
    StopCondition("voltage low", 0.3, _voltage),
    StopCondition("thrust collapsed", 0.3, _collapse),
    StopCondition("no thrust", 1.0, _no_thrust),
    StopCondition("scale frozen", 0.0, _frozen),
    StopCondition("does not follow", 1.0, _follows),
)

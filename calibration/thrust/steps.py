"""From the readings of a stand to the points of a fit: sign, steps, limits of the supply, order.

Rules, in this order; a point that one of them leaves out is listed with its reason:

1. Sign: thrust rises with the command; readings of the opposite sign are negated (Spearman's rank correlation).
2. Steps: consecutive readings at one command become one point, their median. In a continuous recording, readings while
   the motor follows a jump of the command are left out.
3. Top: where the thrust does not rise any more up to the largest command, or the voltage leaves the line V = V0 - R I
   of the source permanently, the supply or the speed controller limits the thrust.
4. Order: the remaining points rise with the command, or they are not a thrust curve.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.results import DataError
from calibration.thrust.table import PWM_SPAN_US, PWM_ZERO_US, StandRun
from companion.core.arrays import Array

COMMAND_STEP = 0.005  # commands nearer than this count as equal (5 µs)
JUMP, FOLLOW_S, RECORDING_S = 0.05, 1.0, 0.25  # of the command, time to follow it, between readings of a recording
LONG_SWEEP = 400  # more steps than this are a ramp: its readings are grouped by command
COMMANDS_MIN = 4
FLAT = 0.01  # of the thrust's span: less is not a rise
TOP_MIN = 0.025  # of the command: a limit is at least as wide
COLLAPSE = 0.03  # of the source's voltage: farther below its line the supply is at its limit,
ABRUPT = 3.0  # if the voltage falls there by this factor faster than at smaller commands
DISORDER, NOISE = 0.03, 4.0  # share of the thrust's span, standard deviations: larger falls than both are not noise
TOP_MAX = 0.5  # of the command's span: a curve limited over more is not usable


@dataclass(frozen=True)
class LeftOut:
    """A point that was not fitted."""

    run: str
    command: float  # 0..1
    thrust_n: float  # as read, with the corrected sign, zero not subtracted
    voltage_v: float
    reason: str


@dataclass(frozen=True)
class Steps:
    """The points of one run that may be fitted; arrays (m,), in the order they were measured."""

    run: StandRun
    sign: float  # +1; -1 where readings fall with thrust
    command: Array  # 0..1
    thrust_n: Array  # [N], rising with the command, zero unknown
    voltage_v: Array
    current_a: Array
    readings: NDArray[np.int64]  # how many made a point
    left_out: tuple[LeftOut, ...]


def command_text(command: float, is_pwm: bool) -> str:
    """A command in the unit of the user: µs or %."""
    return f"{PWM_ZERO_US + command * PWM_SPAN_US:.0f} µs" if is_pwm else f"{command:.1%}"


def steps_of(run: StandRun) -> Steps:
    """The points of a run; raises `DataError` with one line if they are not a thrust curve."""
    sign = _sign(run)
    groups = _groups(run.command, _following(run))

    def medians(values: Array) -> Array:
        return np.array([np.median(values[group]) for group in groups])

    command, thrust_n = medians(run.command), sign * medians(run.thrust_n)
    voltage_v, current_a = medians(run.voltage_v), medians(run.current_a)
    distinct = np.unique(np.round(command / COMMAND_STEP)).size
    if distinct < COMMANDS_MIN:
        raise DataError(f"{run.name}: {distinct} different commands; a thrust curve needs at least {COMMANDS_MIN}")
    top, reason = _top(command, thrust_n, voltage_v, current_a)
    kept = command <= top
    _check_order(run, command[kept], thrust_n[kept], command)
    out = [
        LeftOut(run.name, float(command[i]), float(thrust_n[i]), float(voltage_v[i]), reason)
        for i in np.flatnonzero(~kept)
    ]
    counts = np.array([len(group) for group in groups])
    return Steps(run, sign, command[kept], thrust_n[kept], voltage_v[kept], current_a[kept], counts[kept], tuple(out))


def _sign(run: StandRun) -> float:
    ranks = [np.argsort(np.argsort(values, kind="stable")) for values in (run.command, run.thrust_n)]
    correlation = np.corrcoef(ranks[0], ranks[1])[0, 1] if np.ptp(run.thrust_n) > 0 and np.ptp(run.command) > 0 else 0.0
    if not abs(correlation) > 0.4:
        raise DataError(
            f"{run.name}: the thrust does not follow the command (rank correlation {correlation:.2f}): "
            "not a thrust curve; check the columns"
        )
    return float(np.sign(correlation))


def _following(run: StandRun) -> NDArray[np.bool_]:
    """Readings of a recording that were taken within `FOLLOW_S` of a jump of the command."""
    following = np.zeros(len(run.command), bool)
    if not np.isfinite(run.time_s).all():
        return following
    gap_s = np.diff(run.time_s, prepend=-np.inf)
    jumps = np.abs(np.diff(run.command, prepend=run.command[0])) > JUMP
    for time_s in run.time_s[jumps & (gap_s < RECORDING_S)]:
        following |= (run.time_s >= time_s) & (run.time_s < time_s + FOLLOW_S)
    return following


def _groups(command: Array, following: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Indices of the readings of each step, without those that follow a jump if enough steps remain."""
    key = np.round(command / COMMAND_STEP).astype(np.int64)
    edges = np.flatnonzero(np.diff(key)) + 1
    if len(edges) + 1 > LONG_SWEEP:
        rest = np.flatnonzero(~following)
        return [rest[key[rest] == value] for value in np.unique(key[rest])]
    groups = np.split(np.arange(len(command)), edges)
    settled = [group[~following[group]] for group in groups if not following[group].all()]
    return settled if len({key[group[0]] for group in settled}) >= COMMANDS_MIN else groups


def _by_command(command: Array, *values: Array) -> tuple[Array, ...]:
    """The medians of the values at each distinct command, rising; up and down sweeps are combined."""
    key = np.round(command / COMMAND_STEP).astype(np.int64)
    levels = np.unique(key)
    return tuple(np.array([np.median(v[key == level]) for level in levels]) for v in (command, *values))


def _smooth(values: Array) -> Array:
    """Running median of three against single outliers; the ends stay."""
    padded = np.concatenate([values[:1], values, values[-1:]])
    smooth: Array = np.median(np.stack([padded[:-2], padded[1:-1], padded[2:]]), axis=0)
    return smooth


def _top(command: Array, thrust_n: Array, voltage_v: Array, current_a: Array) -> tuple[float, str]:
    """The largest command that may be fitted, and the reason for the limit."""
    u, thrust, volts, amperes = _by_command(command, thrust_n, voltage_v, current_a)
    limits = [(float(u[-1]), "")]
    smooth = _smooth(thrust)
    first = int(np.argmax(smooth >= smooth.max() - FLAT * np.ptp(smooth)))
    if first + 1 < len(u) and thrust[first + 1] > thrust[first] + FLAT * np.ptp(smooth):
        first += 1  # a sharp peak, which the median removed
    if u[-1] - u[first] >= TOP_MIN:
        fallen = smooth[first] - smooth[-1] > FLAT * np.ptp(smooth)
        limits.append((float(u[first]), "the thrust falls above" if fallen else "the thrust does not rise above"))
    collapse = _collapse(u, thrust, volts, amperes)
    if collapse is not None:
        limits.append((float(u[collapse - 1]), "the supply's voltage collapses above"))
    top, reason = min(limits)
    return top + COMMAND_STEP / 2, reason


def _collapse(u: Array, thrust: Array, volts: Array, amperes: Array) -> int | None:
    """Index of the first command at which the voltage leaves the line of the source, or None.

    The line is fitted below the middle of the commands. Without a current, thrust^(3/2) replaces it (momentum theory:
    the power of a hovering rotor).
    """
    load = amperes if np.isfinite(amperes).all() else np.maximum(thrust - thrust.min(), 0) ** 1.5
    low = u <= (u[0] + u[-1]) / 2
    if low.sum() < 4 or np.ptp(load[low]) <= 0:
        return None
    slopes = [
        (volts[j] - volts[i]) / (load[j] - load[i])
        for i in np.flatnonzero(low)
        for j in np.flatnonzero(low)
        if load[j] - load[i] > 0.1 * np.ptp(load[low])
    ]
    if not slopes:
        return None
    slope = min(float(np.median(slopes)), 0.0)  # Theil and Sen: robust against outliers
    source = float(np.median(volts[low] - slope * load[low]))
    below = (source + slope * load - volts) / source
    collapsed = below > COLLAPSE
    if not collapsed[-1]:
        return None
    first = len(u) - int(np.argmin(collapsed[::-1])) if not collapsed.all() else 0
    if first < len(u) // 3:
        return None  # not the top: a battery that discharges, or another voltage than the motor's
    rates = -np.diff(volts) / np.diff(u)
    before = np.abs(rates[: max(first - 1, 1)])
    return first if rates[first - 1 :].max() > ABRUPT * max(np.percentile(before, 90), 1e-3 * source) else None


def _check_order(run: StandRun, command: Array, thrust_n: Array, measured: Array) -> None:
    span = np.ptp(measured)
    if np.ptp(command) < (1 - TOP_MAX) * span or np.unique(np.round(command / COMMAND_STEP)).size < COMMANDS_MIN:
        top = command_text(command.max(), run.is_pwm)
        raise DataError(
            f"{run.name}: the thrust does not rise above {top}, less than half of the sweep: not a thrust curve"
        )
    u, thrust = _by_command(command, thrust_n)
    share = (thrust - thrust.min()) / np.ptp(thrust)
    if ((share > 0.1) & (share < 0.9)).sum() < 2:
        raise DataError(f"{run.name}: the thrust jumps and does not rise with the command: not a thrust curve")
    smooth = _smooth(thrust)
    highest = np.maximum.accumulate(smooth)
    worst = int(np.argmax(highest - smooth))
    bends = np.diff(thrust, 2)
    noise_n = 1.4826 * np.median(np.abs(bends - np.median(bends))) / np.sqrt(6)  # of white noise, a second difference
    if highest[worst] - smooth[worst] > max(DISORDER * np.ptp(smooth), NOISE * noise_n):
        peak = int(np.argmax(smooth[: worst + 1]))
        raise DataError(
            f"{run.name}: not monotone: the thrust falls from {smooth[peak]:.3g} N at "
            f"{command_text(u[peak], run.is_pwm)} to {smooth[worst]:.3g} N at {command_text(u[worst], run.is_pwm)}"
        )

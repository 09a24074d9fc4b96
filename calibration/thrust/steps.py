"""From the readings of a stand to the points of a fit: sign, steps, limits of the supply, order.

Rules, in this order; a point that one of them leaves out is listed with its reason:

1. Sweeps: a file is split where the command returns to its lowest value, so that each sweep keeps its voltage and zero.
2. Sign: thrust rises with the command; readings of the opposite sign are negated (Spearman's rank correlation).
3. Steps: consecutive readings at one command become one point, their median. In a recording these are the plateaus: a
   steady command and, from some moment on, a steady thrust. The readings before that moment and between two plateaus
   are dropped and counted. A recording without plateaus is a ramp: its readings are gathered by command and voltage.
4. Top: where the thrust does not rise any more up to the largest command, or the voltage leaves the line V = V0 - R I
   of the source permanently, the supply or the speed controller limits the thrust.
5. Order: the remaining points rise with the command, or they are not a thrust curve.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import median_filter, uniform_filter1d

from calibration.results import DataError
from calibration.thrust.table import PWM_SPAN_US, PWM_ZERO_US, StandRun
from companion.core.arrays import Array

COMMAND_STEP = 0.005  # commands nearer than this count as equal (5 µs)
JUMP, FOLLOW_S, RECORDING_S = 0.05, 1.0, 0.25  # of the command, time to follow it, between readings of a recording
LONG_SWEEP = 400  # more steps than this are a ramp: its readings are gathered by command and voltage
RAMP_VOLTAGE = 0.015  # of the voltage: readings of a ramp that differ by less count as equal
PLATEAU_MIN, PLATEAU_S = 5, 0.5  # readings and seconds of a steady command that are a plateau
SETTLING_MIN = 20  # readings of a plateau, without times, from which its beginning can be judged
LEVEL_SHARE = 0.5  # of a stretch within `COMMAND_STEP`: that much lies near its middle on a plateau, a third on a ramp
SMOOTH_COMMANDS = 5  # readings: a command that is read back by radio jitters
STEADY = 0.005  # share of the run's thrust: nearer to its final value than this, the thrust is steady
RATIO_MAX = 0.8  # of two parts of the way to the final thrust; nearer to 1 it is a slow drift (a motor that warms up)
USUAL_VOLTAGE_EXPONENT = 1.5  # takes the sag of the battery out of the judgement of steadiness
IDLE, HIGH = 0.03, 0.5  # share of the command's span: a sweep begins and ends below the first, and passes the second
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
    used: NDArray[np.int64]  # indices of the readings of all points, also of those left out as a point
    plateaus: int = 0  # of a recording
    dropped: int = 0  # readings between the plateaus, and before the thrust of one was steady


def command_text(command: float, is_pwm: bool) -> str:
    """A command in the unit of the user: µs or %."""
    return f"{PWM_ZERO_US + command * PWM_SPAN_US:.0f} µs" if is_pwm else f"{command:.1%}"


def all_steps(runs: Sequence[StandRun]) -> list[Steps]:
    """The points of all sweeps of all runs; raises `DataError` with one line if they are no thrust curves.

    A short run (a bench that was interrupted and resumed) is taken as it is, if another run is whole.
    """
    sweeps = [sweep for run in runs for sweep in sweeps_of(run)]
    short = [_distinct(sweep.command) < COMMANDS_MIN for sweep in sweeps]
    whole = [steps_of(sweep) for sweep, few in zip(sweeps, short, strict=True) if not few or all(short)]
    if all(short):
        return whole
    tops, sign = [float(steps.command.max()) for steps in whole], whole[0].sign
    rest = [_as_it_is(sweep, sign, min(tops)) for sweep, few in zip(sweeps, short, strict=True) if few]
    return whole + [steps for steps in rest if len(steps.command)]


def sweeps_of(run: StandRun) -> list[StandRun]:
    """The sweeps of a run, in their order; the readings at idle between two belong to both, half each."""
    command = run.command
    span = float(np.ptp(command))
    idle = command <= command.min() + IDLE * span
    edges, high, since = [0], False, 0  # high: the present sweep has passed the middle
    for i in range(len(command)):
        if command[i] - command.min() > HIGH * span:
            high = True
        if idle[i] and not idle[i - 1]:
            since = i
        if i and idle[i - 1] and not idle[i] and high:
            edges.append((since + i + 1) // 2)
            high = False
    edges.append(len(command))
    parts = [np.arange(a, b) for a, b in zip(edges, edges[1:], strict=False)]
    while len(parts) > 1 and (_distinct(command[parts[-1]]) < COMMANDS_MIN or not high):  # a sweep that was broken off
        last = parts.pop()
        parts[-1] = np.concatenate([parts[-1], last])
        high = True
    if len(parts) == 1 or any(_distinct(command[part]) < COMMANDS_MIN for part in parts):
        return [run]
    return [_part(run, part, f"{run.name}, sweep {n}") for n, part in enumerate(parts, 1)]


def _part(run: StandRun, rows: NDArray[np.int64], name: str) -> StandRun:
    series = {
        key: getattr(run, key)[rows] for key in ("command", "thrust_n", "voltage_v", "current_a", "time_s", "line")
    }
    return replace(run, name=name, notes=run.notes if rows[0] == 0 else (), **series)


def _distinct(command: Array) -> int:
    return int(np.unique(np.round(command / COMMAND_STEP)).size)


def steps_of(run: StandRun) -> Steps:
    """The points of one sweep; raises `DataError` with one line if they are not a thrust curve."""
    if (distinct := _distinct(run.command)) < COMMANDS_MIN:
        raise DataError(f"{run.name}: {distinct} different commands; a thrust curve needs at least {COMMANDS_MIN}")
    sign = _sign(run)
    plateaus, unsteady = _plateaus(run)
    groups = plateaus or _groups(run, _following(run))
    out = [_left_out(run, group, sign, "thrust not steady") for group in unsteady]

    def medians(values: Array) -> Array:
        return np.array([np.median(values[group]) for group in groups])

    command, thrust_n = medians(run.command), sign * medians(run.thrust_n)
    voltage_v, current_a = medians(run.voltage_v), medians(run.current_a)
    distinct = _distinct(command)
    if distinct < COMMANDS_MIN and unsteady:
        raise DataError(
            f"{run.name}: the thrust becomes steady on {len(plateaus)} of {len(plateaus) + len(unsteady)} plateaus: "
            "hold each step longer"
        )
    if distinct < COMMANDS_MIN:
        raise DataError(f"{run.name}: {distinct} different commands; a thrust curve needs at least {COMMANDS_MIN}")
    top, reason = _top(command, thrust_n, voltage_v, current_a)
    kept = command <= top
    _check_order(run, command[kept], thrust_n[kept], command)
    out += [_left_out(run, groups[i], sign, reason) for i in np.flatnonzero(~kept)]
    counts = np.array([len(group) for group in groups])
    dropped = len(run.command) - int(counts.sum()) - sum(len(group) for group in unsteady)
    return Steps(
        run, sign, command[kept], thrust_n[kept], voltage_v[kept], current_a[kept], counts[kept], tuple(out),
        np.concatenate(groups), len(plateaus) + len(unsteady), dropped,
    )  # fmt: skip


def _left_out(run: StandRun, group: NDArray[np.int64], sign: float, reason: str) -> LeftOut:
    middle = [float(np.median(values[group])) for values in (run.command, run.thrust_n, run.voltage_v)]
    return LeftOut(run.name, middle[0], sign * middle[1], middle[2], reason)


def _as_it_is(run: StandRun, sign: float, top: float) -> Steps:
    """The steps of a run that is too short to be judged by itself, up to the command that others could use."""
    groups = [group for group in _groups(run, _following(run)) if np.median(run.command[group]) <= top]
    series = [np.array([np.median(v[g]) for g in groups]) for v in (run.command, run.thrust_n, run.voltage_v)]
    amperes = np.array([np.median(run.current_a[group]) for group in groups])
    counts = np.array([len(group) for group in groups], dtype=np.int64)
    used = np.concatenate([np.zeros(0, np.int64), *groups])
    return Steps(run, sign, series[0], sign * series[1], series[2], amperes, counts, (), used)


def _plateaus(run: StandRun) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    """Readings of the plateaus with a steady thrust, and of those without; nothing if the run is not of plateaus."""
    timed = bool(np.isfinite(run.time_s).all())
    flat = [rows for rows in _flat(run.command) if not timed or np.ptp(run.time_s[rows]) >= PLATEAU_S]
    between = len(run.command) - sum(len(rows) for rows in flat)
    if _distinct(np.array([np.median(run.command[rows]) for rows in flat])) < COMMANDS_MIN:
        return [], []
    recording = timed and float(np.median(np.abs(np.diff(run.time_s)))) <= RECORDING_S
    recording = recording or (not timed and max(len(rows) for rows in flat) >= SETTLING_MIN)
    if not between and not recording:
        return flat, []  # a table with some readings at each command
    sag = (np.median(run.voltage_v) / run.voltage_v) ** USUAL_VOLTAGE_EXPONENT
    thrust, span = run.thrust_n * sag, float(np.ptp(run.thrust_n))
    steady: list[NDArray[np.int64]] = []
    unsteady: list[NDArray[np.int64]] = []
    for rows in flat:
        settled = rows[_settled(thrust[rows], span) :] if recording else rows
        (steady if len(settled) else unsteady).append(settled if len(settled) else rows)
    return steady, unsteady


def _flat(command: Array) -> list[NDArray[np.int64]]:
    """Rows of each stretch of at least `PLATEAU_MIN` readings over which the command neither moves nor drifts."""
    if len(command) < PLATEAU_MIN:
        return []
    smooth = median_filter(command, SMOOTH_COMMANDS, mode="nearest")
    edges, total, count = [0], 0.0, 0
    for i, value in enumerate(smooth.tolist()):
        if count and abs(value - total / count) > COMMAND_STEP:
            edges.append(i)
            total, count = 0.0, 0
        total, count = total + value, count + 1
    flat = []
    for a, b in zip(edges, [*edges[1:], len(command)], strict=True):
        level = np.flatnonzero(np.abs(smooth[a:b] - np.median(smooth[a:b])) <= COMMAND_STEP / 4)
        if len(level) < LEVEL_SHARE * (b - a):  # a piece of a ramp, or two commands by turns
            continue
        a, b = a + int(level[0]), a + int(level[-1]) + 1  # without the ends of slow ramps
        quarter = max((b - a) // 4, 1)
        drift = abs(float(np.median(smooth[a : a + quarter]) - np.median(smooth[b - quarter : b])))
        if b - a >= PLATEAU_MIN and drift <= COMMAND_STEP / 2:
            flat.append(np.arange(a, b))
    return flat


def _settled(thrust: Array, span: float) -> int:
    """Index from which the thrust stays near its final value; the length if it is still on its way there at the end.

    The way that is left follows from three equal parts of the second half, as if it shrank by an equal ratio in each.
    """
    half = len(thrust) // 2
    thirds = [float(np.median(part)) for part in np.array_split(thrust[half:], 3)]
    final = float(np.median(thrust[half:]))
    changes = np.diff(thrust[half:])  # the noise must not contain the way that is left
    noise = 1.4826 * float(np.median(np.abs(changes - np.median(changes)))) / np.sqrt(2)
    before, after = thirds[1] - thirds[0], thirds[2] - thirds[1]
    ratio = float(np.clip(after / before, 0.0, RATIO_MAX)) if before else 0.0
    moves = abs(thirds[2] - thirds[0]) > 3 * noise / np.sqrt(max((len(thrust) - half) // 3, 1))
    if moves and abs(after) * ratio / (1 - ratio) > 2 * STEADY * span:
        return len(thrust)
    width = max(len(thrust) // 10, 1)
    off = np.abs(uniform_filter1d(thrust, width, mode="nearest") - final) > STEADY * span + 3 * noise / np.sqrt(width)
    begin = int(np.flatnonzero(off)[-1]) + 1 if off.any() else 0
    return min(begin + width // 2, half)


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


def _groups(run: StandRun, following: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Indices of the readings of each step, without those that follow a jump if enough steps remain."""
    key = np.round(run.command / COMMAND_STEP).astype(np.int64)
    edges = np.flatnonzero(np.diff(key)) + 1
    if len(edges) + 1 > LONG_SWEEP:
        volts = np.round(np.log(run.voltage_v) / RAMP_VOLTAGE).astype(np.int64)
        rest = np.flatnonzero(~following)
        _, inverse = np.unique(np.stack([key, volts])[:, rest], axis=1, return_inverse=True)
        inverse = inverse.ravel()
        order = np.argsort(inverse, kind="stable")
        return np.split(rest[order], np.flatnonzero(np.diff(inverse[order])) + 1)
    groups = np.split(np.arange(len(run.command)), edges)
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

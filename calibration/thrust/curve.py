"""The thrust of one motor against command and battery voltage, fitted with its uncertainty.

    T(u, V) = T_full (V / V_ref)^e h(σ),    h = f σ² + (1 - f) σ + b (σ³ - σ²),    σ = max(0, (u - u0) / (1 - u0))

u: command, 0..1 for 1000..2000 µs. Without b the shape h is PX4's thrust model (THR_MDL_FAC, `FunctionMotors.hpp`:
relative thrust = f signal² + (1 - f) signal); b models the resistance of the windings. The power of the voltage
is the battery model of estimator and controller (`companion.core.vehicle.Thrust`). Each run has a zero of its own (the
scale's tare). A prior keeps it, because shape and zero are hard to separate.

Residuals are not only noise; those of neighbouring points are correlated. A run therefore counts as `INDEPENDENT`
points, however many readings it has, and the systematic part of the residuals enters the curve's uncertainty.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from calibration.results import DataError
from calibration.thrust.steps import COMMAND_STEP, LeftOut, Steps, command_text
from companion.core.arrays import Array

USUAL_EXPONENT = 1.5  # where the data do not determine it; 1.4 to 1.8 on 104 motor-propeller pairs
EXPONENT_STD = 0.3  # of the exponent among motors
USUAL_START, START_STD = 0.05, 0.05  # command at which a motor starts, if the sweep does not show it
BEND_STD = 0.3
TARE_STD = 0.01  # of full thrust, with wide tails (Cauchy): most scales are tared, some are far off
NEAR_IDLE = 0.15  # a sweep that begins below this command shows the zero of the scale
INDEPENDENT = 15  # points a run counts as
VOLTAGE_SPAN = 1.04  # ratio of the voltages at one command from which the exponent is determined
OUTLIER_SIGMA, OUTLIER_SHARE = 5.0, 0.05  # an outlier is beyond both: robust deviations, share of full thrust
OUTLIERS_MAX = 0.2  # of the points: with more outliers the model is wrong
FIT_MIN = 0.95  # R²: below, the points are not a thrust curve
RANGE_PERCENT = (5, 95)  # percentiles of the measured voltages that are their range
NEAR_V = 0.1  # share of a voltage: the curve is extrapolated up to this distance from the measured ones
_PARAMETERS = 5  # ln T_full, f, e, u_start, b
_SHAPE = np.linspace(0, 1, 201)

Mask = NDArray[np.bool_]
Cost = Callable[[Array, Mask, float, bool], Array]  # parameters, points used, their deviation [N], robust


@dataclass(frozen=True)
class ThrustCurve:
    """Thrust of one motor [N] against command (0..1 of 1000..2000 µs) and voltage [V]."""

    full_n: float  # at command 1 and the reference voltage
    factor: float  # f: 0 linear, 1 quadratic
    exponent: float  # of the voltage
    start: float  # command at which the motor starts
    bend: float  # b
    reference_voltage_v: float
    covariance: Array  # (5, 5) of (ln full_n, factor, exponent, start, bend)
    sigma_n: float  # standard deviation of a point from the curve [N]
    misfit_n: float  # the systematic part of that [N]
    exponent_known: bool  # False: that of the vehicle file or the usual one, because the voltages hardly differed
    command_range: tuple[float, float]
    voltage_range_v: tuple[float, float]  # without the outermost readings: one wrong voltage is no battery

    @property
    def parameters(self) -> Array:
        """(5,), in the order of `covariance`."""
        return np.array([np.log(self.full_n), self.factor, self.exponent, self.start, self.bend])

    def thrust_n(self, command: Array | float, voltage_v: Array | float) -> Array:
        """Thrust [N]; broadcasts."""
        return thrust_model(
            self.parameters, np.asarray(command, float), np.asarray(voltage_v, float), self.reference_voltage_v
        )

    def std_n(self, command: Array | float, voltage_v: Array | float) -> Array:
        """Standard deviation of the curve (not of a reading) [N]: delta method and misfit; broadcasts."""
        command, voltage_v = np.broadcast_arrays(np.asarray(command, float), np.asarray(voltage_v, float))
        slope = thrust_slope(self.parameters, command, voltage_v, self.reference_voltage_v)
        variance = np.einsum("...i,ij,...j->...", slope, self.covariance, slope)
        std: Array = np.sqrt(np.maximum(variance, 0.0) + self.misfit_n**2)
        return std

    def command_for(self, thrust_n: float, voltage_v: float) -> float:
        """The command for a thrust; raises ValueError for a negative thrust and beyond full thrust."""
        share = thrust_n / self.full_n * (self.reference_voltage_v / voltage_v) ** self.exponent
        if not 0 <= share <= 1:
            raise ValueError(f"{thrust_n:.3g} N is not between 0 and {thrust_n / share:.3g} N")
        signal = np.interp(share, _shape(self.factor, self.bend, _SHAPE), _SHAPE)
        for _ in range(3):  # Newton's method from the table's value
            signal -= (_shape(self.factor, self.bend, signal) - share) / _steep(self.factor, self.bend, signal)
        return float(self.start + (1 - self.start) * signal)

    def at_reference(self, voltage_v: float) -> "ThrustCurve":
        """The same curve written with another reference voltage."""
        ratio = np.log(voltage_v / self.reference_voltage_v)
        turn = np.eye(_PARAMETERS)
        turn[0, 2] = ratio  # ln T_full' = ln T_full + e ln(V'/V)
        return replace(
            self,
            full_n=float(self.full_n * np.exp(self.exponent * ratio)),
            reference_voltage_v=voltage_v,
            covariance=turn @ self.covariance @ turn.T,
        )


@dataclass(frozen=True)
class ThrustFit:
    """A curve and its data; arrays (m,) of the points of all runs one after the other."""

    curve: ThrustCurve
    runs: tuple[Steps, ...]
    tare_n: Array  # (runs,) reading of the scale without thrust, subtracted [N]
    run: NDArray[np.int64]  # index of the run
    command: Array
    thrust_n: Array  # without the tare
    voltage_v: Array
    residual_n: Array  # measured - curve
    r2: float
    left_out: tuple[LeftOut, ...]
    warnings: tuple[str, ...] = field(default=())

    def at_reference(self, voltage_v: float) -> "ThrustFit":
        """The same fit with another reference voltage of its curve; warns if no measurement is near that voltage."""
        low, high = self.curve.voltage_range_v
        warnings = self.warnings
        if not low * (1 - NEAR_V) <= voltage_v <= high * (1 + NEAR_V):
            warnings = (*warnings, f"no measurement near {voltage_v:g} V, only from {low:.1f} to {high:.1f} V")
        return replace(self, curve=self.curve.at_reference(voltage_v), warnings=warnings)

    @property
    def full_measured_n(self) -> float:
        """The largest thrust measured [N], the reference of relative residuals."""
        return float(self.thrust_n.max())

    def merit(self) -> dict[str, float]:
        """Figures of merit; shares are of the largest thrust measured."""
        share = np.abs(self.residual_n) / self.full_measured_n
        return {
            "r2": self.r2,
            "residual_rms_n": float(np.sqrt(np.mean(self.residual_n**2))),
            "residual_rms_share": float(np.sqrt(np.mean(share**2))),
            "residual_median_share": float(np.median(share)),
            "residual_max_share": float(share.max()),
            "points": len(self.command),
            "points_left_out": len(self.left_out),
        }


def fit_thrust(runs: Sequence[Steps], exponent_of_file: float | None = None) -> ThrustFit:
    """The curve of one motor from all its runs; raises `DataError` with one line if no curve fits.

    exponent_of_file: of the voltage, of the vehicle file that will keep it where the voltages do not determine another; None:
    the usual one.
    """
    index = np.concatenate([np.full(len(steps.command), i) for i, steps in enumerate(runs)])
    command, thrust, volts = (
        np.concatenate([getattr(steps, name) for steps in runs]) for name in ("command", "thrust_n", "voltage_v")
    )
    reference = float(np.median(volts))
    scale = max(float(np.ptp(steps.thrust_n)) for steps in runs)
    known = _voltages_differ(command, volts)
    start, start_std = _start(runs)
    idle = np.array([steps.command.min() < max(NEAR_IDLE, start) for steps in runs])
    assumed = USUAL_EXPONENT if known or exponent_of_file is None else exponent_of_file
    prior = np.array([0.0, 0.0, assumed, start, 0.0])
    weight = np.array([0.0, 0.0, 1 / EXPONENT_STD if known else 1e4, 1 / start_std, 1 / BEND_STD])
    crowd = np.sqrt(max(len(command) / (INDEPENDENT * len(runs)), 1.0))

    def residuals(x: Array, used: Mask, sigma: float) -> Array:
        curve = thrust_model(x[:_PARAMETERS], command, volts, reference)
        scaled: Array = (thrust - x[_PARAMETERS:][index] * scale - curve)[used] / sigma
        return scaled

    def cost(x: Array, used: Mask, sigma: float, robust: bool) -> Array:
        misfit = residuals(x, used, sigma)
        if robust:  # Cauchy's loss: outliers lose their weight
            misfit = np.sign(misfit) * np.sqrt(np.log1p(misfit**2))
        dips = np.minimum(_steep(x[1], x[4], _SHAPE), 0.0) * 1e3  # thrust never falls with the command
        tare = np.sqrt(np.log1p(((x[_PARAMETERS:] - zeros) / TARE_STD) ** 2))
        return np.concatenate([misfit / crowd, (x[:_PARAMETERS] - prior) * weight, tare, dips])

    zeros = np.array([_zero(steps) for steps in runs]) / scale
    tares = np.array([steps.thrust_n[np.argmin(steps.command)] for steps in runs]) / scale
    first = np.concatenate([[np.log(scale), 0.6, assumed, start, 0.0], tares])
    low = np.concatenate([[-20.0, -2.0, 0.0, -0.3, -2.0], np.full(len(runs), -np.inf)])
    high = np.concatenate([[20.0, 3.0, 3.5, max(command.min() + 0.6, 0.3), 2.0], np.full(len(runs), np.inf)])
    used = np.ones(len(command), bool)
    tries: list[tuple[float, int, Array]] = []
    for zero in (1.0, 0.0):  # start values: the zero is the first reading, or zero
        x = np.concatenate([first[:_PARAMETERS], zero * tares])
        for sigma in (0.05 * scale, 0.015 * scale):
            x = _solve(cost, x, low, high, used, sigma, True)
        tries.append((float(np.sum(cost(x, used, 0.015 * scale, True) ** 2)), len(tries), x))
    x = min(tries)[2]
    error = residuals(x, used, 1.0)
    spread = 1.4826 * np.median(np.abs(error - np.median(error)))
    used = np.abs(error) <= max(OUTLIER_SIGMA * spread, OUTLIER_SHARE * scale)
    if (~used).mean() > OUTLIERS_MAX:
        raise DataError(f"{_names(runs)}: {(~used).mean():.0%} of the points do not fit a thrust curve")
    x = _solve(cost, x, low, high, used, 0.01 * scale, False)
    error = residuals(x, used, 1.0)
    tare = x[_PARAMETERS:] * scale
    free = used.sum() - _PARAMETERS - len(runs)
    sigma = float(np.sqrt(np.sum(error**2) / max(free, 1)))
    net = (thrust - tare[index])[used]
    r2 = 1 - float(np.sum(error**2) / np.sum((net - net.mean()) ** 2))
    if not r2 >= FIT_MIN:
        raise DataError(
            f"{_names(runs)}: the best thrust curve explains {max(r2, 0):.0%} of the data: not a thrust curve"
        )
    if not known:  # the exponent was fixed; its uncertainty belongs to the band
        weight[2] = 1 / EXPONENT_STD
    covariance = _covariance(x, cost, used, max(sigma, 1e-3 * scale))
    log_full, factor, exponent, begin, bend = (float(value) for value in x[:_PARAMETERS])
    curve = ThrustCurve(
        float(np.exp(log_full)),
        factor,
        exponent,
        begin,
        bend,
        reference,
        covariance,
        sigma,
        _misfit(index[used], command[used], error),
        known,
        (float(command[used].min()), float(command[used].max())),
        _voltage_range(volts[used]),
    )
    outliers = [
        LeftOut(runs[index[i]].run.name, float(command[i]), float(thrust[i]), float(volts[i]), "does not fit the rest")
        for i in np.flatnonzero(~used)
    ]
    left_out = (*(point for steps in runs for point in steps.left_out), *outliers)
    arrays = (index[used], command[used], net, volts[used], error)
    return ThrustFit(curve, tuple(runs), tare, *arrays, r2, left_out, tuple(_warnings(curve, runs, tare, idle)))


def _shape(factor: float, bend: float, signal: Array) -> Array:
    """h, the relative thrust at a signal."""
    return signal * (1 - factor + signal * (factor - bend + signal * bend))


def _steep(factor: float, bend: float, signal: Array) -> Array:
    """The derivative of h."""
    return 1 - factor + signal * (2 * (factor - bend) + signal * 3 * bend)


def _signal(x: Array, command: Array) -> Array:
    signal: Array = np.maximum((command - x[3]) / (1 - x[3]), 0.0)
    return signal


def thrust_model(x: Array, command: Array, volts: Array, reference: float) -> Array:
    """T [N] at parameters x (5,), in the order of `ThrustCurve.covariance`; broadcasts command and volts."""
    thrust: Array = np.exp(x[0]) * (volts / reference) ** x[2] * _shape(x[1], x[4], _signal(x, command))
    return thrust


def thrust_slope(x: Array, command: Array, volts: Array, reference: float) -> Array:
    """Derivatives of the model by its parameters, (..., 5)."""
    signal = _signal(x, command)
    gain = np.exp(x[0]) * (volts / reference) ** x[2]
    thrust = gain * _shape(x[1], x[4], signal)
    by_start = np.where(signal > 0, (command - 1) / (1 - x[3]) ** 2, 0.0)
    return np.stack(
        [
            thrust,
            gain * (signal**2 - signal),
            thrust * np.log(volts / reference),
            gain * _steep(x[1], x[4], signal) * by_start,
            gain * (signal**3 - signal**2),
        ],
        axis=-1,
    )


def _misfit(run: NDArray[np.int64], command: Array, error: Array) -> float:
    """The common part of the residuals of neighbouring points [N]: noise averages out, a wrong shape does not."""
    key = np.round(command / 0.1) + 1000 * run
    groups = [error[key == value] for value in np.unique(key)]
    squares = [max(g.mean() ** 2 - g.var(ddof=1) / len(g), 0.0) if len(g) > 1 else g[0] ** 2 for g in groups]
    return float(np.sqrt(np.mean(squares)))


def _solve(cost: Cost, x: Array, low: Array, high: Array, used: Mask, sigma: float, robust: bool) -> Array:
    inside = np.clip(x, low + 1e-6, high - 1e-6)
    fit = least_squares(cost, inside, bounds=(low, high), args=(used, sigma, robust), x_scale="jac", ftol=1e-7)
    best: Array = fit.x
    return best


def _covariance(x: Array, cost: Cost, used: Mask, sigma: float) -> Array:
    step = 1e-6
    slopes = [(cost(x + step * e, used, sigma, False) - cost(x - step * e, used, sigma, False)) / (2 * step)
              for e in np.eye(len(x))]  # fmt: skip
    jacobian = np.stack(slopes, axis=1)
    return np.linalg.pinv(jacobian.T @ jacobian)[:_PARAMETERS, :_PARAMETERS].astype(np.float64, copy=False)


def _zero(steps: Steps) -> float:
    """The most probable reading of the scale without thrust [N]: that at 1000 µs or less, where motors stand still."""
    off = steps.command <= COMMAND_STEP / 2
    return float(np.median(steps.thrust_n[off])) if off.any() else 0.0


def _start(runs: Sequence[Steps]) -> tuple[float, float]:
    """(Command at which the motor starts, its deviation), from the flat beginning of the sweeps if there is one."""
    edges = []
    for steps in runs:
        order = np.argsort(steps.command, kind="stable")
        u, thrust = steps.command[order], steps.thrust_n[order]
        idle = np.abs(thrust - thrust[0]) < 0.004 * np.ptp(thrust)
        count = len(u) if idle.all() else int(np.argmin(idle))
        if count >= 2 and u[count - 1] - u[0] > COMMAND_STEP:
            edges.append((u[count - 1], (u[count - 1] + u[min(count, len(u) - 1)]) / 2))
    if not edges:
        return USUAL_START, START_STD
    last, middle = np.median(np.array(edges), axis=0)
    return float(middle), float(max(middle - last, 0.01) + 0.01)


def _voltage_range(volts: Array) -> tuple[float, float]:
    """The measured voltages, without outliers: a wrong one at idle, where there is no thrust, fits every curve."""
    low, high = np.percentile(volts, RANGE_PERCENT, method="nearest")
    return float(low), float(high)


def _voltages_differ(command: Array, volts: Array) -> bool:
    """Whether about equal commands were measured at voltages that differ enough to determine their influence."""
    key = np.round(command / 0.1)
    ratios = [volts[key == k].max() / volts[key == k].min() for k in np.unique(key) if (key == k).sum() >= 2]
    return bool(ratios) and float(np.median(ratios)) >= VOLTAGE_SPAN


def _warnings(curve: ThrustCurve, runs: Sequence[Steps], tare_n: Array, idle: Mask) -> list[str]:
    sentences = list(dict.fromkeys(note for steps in runs for note in steps.run.notes))
    if any(steps.sign < 0 for steps in runs):
        turned = ", ".join(steps.run.name for steps in runs if steps.sign < 0)
        sentences.append(f"{turned}: readings fall with thrust; their sign was inverted")
    for steps in (steps for steps, shown in zip(runs, idle, strict=True) if not shown):
        begin = command_text(steps.command.min(), steps.run.is_pwm)
        sentences.append(
            f"{steps.run.name}: begins at {begin}; the zero of the scale is not checked by readings at idle"
        )
    for steps, tare in zip(runs, tare_n, strict=True):
        if abs(tare) > 0.05 * curve.full_n:
            sentences.append(f"{steps.run.name}: the scale showed {tare:+.3g} N without thrust; subtracted")
    if not curve.exponent_known:
        low, high = curve.voltage_range_v
        sentences.append(
            f"voltages from {low:.1f} to {high:.1f} V do not determine the influence of the battery; "
            f"exponent {curve.exponent:.2f} ± {EXPONENT_STD} assumed: measure a full and an empty battery"
        )
    if curve.command_range[1] < 0.7:
        top = command_text(curve.command_range[1], runs[0].run.is_pwm)
        sentences.append(f"no point above {top} is usable; thrust beyond is extrapolated")
    if _steep(curve.factor, curve.bend, _SHAPE).min() < 1e-3:
        sentences.append(
            "the curve's shape is at its bound (flat somewhere); check the zero of the scale and the lowest commands"
        )
    return sentences


def _names(runs: Sequence[Steps]) -> str:
    return ", ".join(steps.run.name for steps in runs)

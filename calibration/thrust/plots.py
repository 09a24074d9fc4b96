"""The picture of a thrust fit: box plot of the readings (paper 2, figure 15), residuals, influence of the voltage."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calibration.thrust.curve import ThrustFit
from calibration.thrust.steps import COMMAND_STEP
from calibration.thrust.table import PWM_SPAN_US, PWM_ZERO_US
from companion.core.arrays import Array

BAND = 1.96  # standard deviations: 95 %


def write_plot(path: Path, fit: ThrustFit) -> None:
    """Write the picture (PNG, PDF or SVG by the name's ending)."""
    figure = Figure(figsize=(12, 9), layout="constrained")
    axes = figure.subplot_mosaic([["curve", "curve"], ["residual", "voltage"]], height_ratios=[3, 2])
    is_pwm = all(steps.run.is_pwm for steps in fit.runs)
    _curve(axes["curve"], fit, is_pwm)
    _residuals(axes["residual"], fit, is_pwm)
    _voltage(axes["voltage"], fit)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def _x(command: float | Array | list[float], is_pwm: bool) -> Array:
    """Pulse width [µs] or throttle [%] of commands."""
    return PWM_ZERO_US + np.asarray(command) * PWM_SPAN_US if is_pwm else 100 * np.asarray(command)


def _unit(is_pwm: bool) -> str:
    return "pulse width, µs" if is_pwm else "throttle, %"


def _curve(axes: Axes, fit: ThrustFit, is_pwm: bool) -> None:
    grid = np.linspace(0, max(1.0, fit.curve.command_range[1]), 200)
    for i, steps in enumerate(fit.runs):
        colour, run = f"C{i % 10}", steps.run
        key, readings = np.round(run.command[steps.used] / COMMAND_STEP), run.thrust_n[steps.used]
        levels = np.unique(key)
        boxes = [steps.sign * readings[key == level] - fit.tare_n[i] for level in levels]
        width = 0.6 * np.median(np.diff(levels)) * COMMAND_STEP if len(levels) > 1 else COMMAND_STEP
        axes.boxplot(
            boxes,
            positions=_x(levels * COMMAND_STEP, is_pwm),
            widths=width * (PWM_SPAN_US if is_pwm else 100),
            manage_ticks=False,
            boxprops={"color": colour},
            whiskerprops={"color": colour},
            capprops={"color": colour},
            medianprops={"color": colour},
            flierprops={"marker": ".", "markersize": 3, "markeredgecolor": colour},
        )
        volts = float(np.median(steps.voltage_v))
        thrust, band = fit.curve.thrust_n(grid, volts), BAND * fit.curve.std_n(grid, volts)
        axes.plot(_x(grid, is_pwm), thrust, colour, lw=1, label=f"{run.name}: curve at {volts:.1f} V")
        axes.fill_between(_x(grid, is_pwm), np.maximum(thrust - band, 0), thrust + band, color=colour, alpha=0.15, lw=0)
    if fit.left_out:
        names = [steps.run.name for steps in fit.runs]
        axes.plot(
            [_x(point.command, is_pwm) for point in fit.left_out],
            [point.thrust_n - fit.tare_n[names.index(point.run)] for point in fit.left_out],
            "kx",
            label="left out",
        )
    axes.set(xlabel=_unit(is_pwm), ylabel="thrust, N", title=f"R² {fit.r2:.4f}; band: 95 % of the curve")
    axes.legend(fontsize="small", loc="upper left")
    axes.grid(alpha=0.3)


def _residuals(axes: Axes, fit: ThrustFit, is_pwm: bool) -> None:
    for i in range(len(fit.runs)):
        mine = fit.run == i
        axes.plot(_x(fit.command[mine], is_pwm), 100 * fit.residual_n[mine] / fit.full_measured_n, f"C{i % 10}.", ms=4)
    axes.axhline(0, color="k", lw=0.5)
    axes.set(xlabel=_unit(is_pwm), ylabel="measured - curve, % of largest thrust")
    axes.grid(alpha=0.3)


def _voltage(axes: Axes, fit: ThrustFit) -> None:
    """Thrust over the shape at each point; in logarithms a line through 1 whose slope is the exponent."""
    curve = fit.curve
    shape = curve.thrust_n(fit.command, curve.reference_voltage_v)
    used = shape > 0.15 * curve.full_n
    for i in range(len(fit.runs)):
        mine = used & (fit.run == i)
        axes.plot(fit.voltage_v[mine], fit.thrust_n[mine] / shape[mine], f"C{i % 10}.", ms=4)
    volts = np.linspace(*curve.voltage_range_v, 50)
    axes.plot(volts, (volts / curve.reference_voltage_v) ** curve.exponent, "k", lw=1)
    known = "" if curve.exponent_known else " (assumed)"
    axes.set(
        xlabel="battery, V",
        ylabel=f"thrust over that at {curve.reference_voltage_v:.1f} V",
        title=f"exponent {curve.exponent:.2f}{known}",
    )
    axes.grid(alpha=0.3)

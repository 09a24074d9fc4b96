"""Figures of an identification: measured against simulated, and thrust against voltage."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib.figure import Figure

from calibration.identification.identify import Axis, Identification
from calibration.identification.response import predict

AXES = ("east", "north", "up")
MEASURED, MODEL, SETPOINT, HELD_OUT = "#1f2933", "#d9822b", "#9aa5b1", "#e8eef7"


def write_plots(found: Identification, folder: Path) -> list[Path]:
    """Writes roll.png, pitch.png, yaw_rate.png or heading.png, thrust.png, velocity.png, where there is a result."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = {axis.name.replace(" ", "_"): _axis(axis) for axis in (found.roll, found.pitch, found.yaw)}
    figures |= {"thrust": _thrust(found), "velocity": _velocity(found)}
    written = []
    for name, figure in figures.items():
        if figure is not None:
            written.append(folder / f"{name}.png")
            figure.savefig(written[-1], dpi=110)
    return written


def _figure(rows: int) -> Figure:
    return Figure(figsize=(9.6, 2.2 * rows + 0.6), layout="constrained")


def _axis(axis: Axis) -> Figure | None:
    if axis.response is None:
        return None
    unit = "rad/s" if axis.name == "yaw rate" else "rad"
    figure = _figure(2)
    top, bottom = figure.subplots(2, 1)
    zero = axis.pieces[0].t_s[0]
    style = "steps-post" if axis.held else "default"
    for number, piece in enumerate(axis.pieces):
        names = ("setpoint", "measured", "simulated") if number == 0 else (None, None, None)
        setpoint, model = piece.setpoint, predict(piece, axis.response)
        top.plot(setpoint.t_s - zero, setpoint.value, color=SETPOINT, lw=0.8, ds=style, label=names[0])
        top.plot(piece.t_s - zero, piece.y, color=MEASURED, lw=0.9, label=names[1])
        top.plot(piece.t_s - zero, model, color=MODEL, lw=0.9, label=names[2])
        bottom.plot(piece.t_s - zero, piece.y - model, color=MEASURED, lw=0.7)
    for axes in (top, bottom):
        axes.axvspan(axis.parts[1][0].t_s[0] - zero, axis.parts[1][-1].t_s[-1] - zero, color=HELD_OUT, zorder=0)
    r = axis.response
    top.set_title(
        f"{axis.name}: {r.gain:.3f} / ({r.time_constant_s:.3f} s + 1), delay {r.delay_s:.3f} s;"
        f" each of three parts simulated by a fit to the others: {axis.held_out_percent:.1f} %",
        loc="left",
        fontsize=9,
    )
    top.set_ylabel(unit)
    top.legend(loc="upper right", fontsize=8, ncols=3)
    bottom.set_ylabel(f"residual, {unit}")
    bottom.set_xlabel("s")
    return figure


def _thrust(found: Identification) -> Figure | None:
    forces = found.forces
    if forces is None or forces.trend is None:
        return None
    trend = forces.trend
    figure = _figure(2)
    axes = figure.subplots()
    axes.plot(trend.voltage_v, trend.coefficient_m_s2, "o", ms=3, color=MEASURED, label="one window each")
    volts = np.linspace(trend.voltage_v.min(), trend.voltage_v.max(), 50)
    model = forces.thrust_coefficient_m_s2 * (volts / forces.reference_voltage_v) ** forces.voltage_exponent
    how = "fitted" if forces.exponent_fitted else "mostly that of the vehicle file"
    axes.plot(volts, model, color=MODEL, label=f"model, exponent {forces.voltage_exponent:.2f} ({how})")
    spread = f"95 % {trend.low:.2f} to {trend.high:.2f}"
    axes.set_title(f"k_T over the battery: trend U^{trend.exponent:.2f}, {spread}", loc="left", fontsize=9)
    axes.set_xlabel("V")
    axes.set_ylabel("m/s² per unit of command")
    axes.legend(fontsize=8)
    return figure


def _velocity(found: Identification) -> Figure | None:
    forces = found.forces
    if forces is None:
        return None
    used = [i for i, on in enumerate((found.flight.velocity_axes[0],) * 2 + (found.flight.velocity_axes[1],)) if on]
    figure = _figure(len(used))
    zero = forces.windows.grid[0, 0]
    for axes, i in zip(np.atleast_1d(figure.subplots(len(used), 1, sharex=True)), used, strict=True):
        axes.plot(forces.windows.t_s - zero, forces.windows.measured[:, i], ".", ms=1.5, color=MEASURED)
        for t_s, values in zip(forces.windows.grid, forces.velocity_W[..., i], strict=True):
            axes.plot(t_s - zero, values, color=MODEL, lw=1.0)
        axes.set_ylabel(f"v {AXES[i]}, m/s")
    axes.set_xlabel("s")
    figure.suptitle("velocity: measured (dots), simulated through each window (lines)", x=0.01, ha="left", fontsize=9)
    return figure

"""k_T from hovers that were flown, without a thrust stand: ``companion calibrate thrust --hover``."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from scipy.optimize import least_squares

from calibration.results import DataError, Result, result
from calibration.thrust.goodness import poor_hovers
from calibration.thrust.plausible import refuse_other_voltage
from calibration.vehicle_file import Change
from companion.core.arrays import Array
from companion.core.config import ConfigError
from companion.core.frames import GRAVITY_M_S2
from companion.core.vehicle import Vehicle

FACTOR, FACTOR_STD = 0.7, 0.2  # f of 104 motor-propeller pairs: a prior, because a few hovers do not determine it
START_STD = 0.05
COMMAND_STD = 0.01  # uncertainty of a hover command from a pilot's log


@dataclass(frozen=True)
class HoverCurve:
    """Hover command over mass, from hovers of one aircraft with different loads.

    factor and start are of the motors: thrust over the signal that PX4 sends them. PX4 bends the command c to the signal s
    by c = F s² + (1 - F) s, F its THR_MDL_FAC (`calibration.thrust.hover`).
    """

    full_kg: float  # mass that full throttle lifts
    factor: float
    start: float
    covariance: Array  # (3, 3) of (ln full_kg, factor, start)
    model_factor: float = 0.0  # F

    def command(self, mass_kg: Array | float) -> Array:
        """Hover command, 0..1."""
        x = np.array([np.log(self.full_kg), self.factor, self.start])
        return _hover_command(x, np.asarray(mass_kg, float), self.model_factor)

    def std(self, mass_kg: float) -> float:
        """Standard deviation of the hover command, by the delta method."""
        x, step = np.array([np.log(self.full_kg), self.factor, self.start]), 1e-5
        mass, F = np.asarray(mass_kg, float), self.model_factor
        slope = np.array(
            [(_hover_command(x + e, mass, F) - _hover_command(x - e, mass, F)) / (2 * step) for e in np.eye(3) * step]
        )
        return float(np.sqrt(slope @ self.covariance @ slope))


def _hover_command(x: Array, mass_kg: Array, model_factor: float) -> Array:
    share, f = mass_kg / np.exp(x[0]), max(x[1], 1e-6)
    signal: Array = x[2] + (1 - x[2]) * (np.sqrt((1 - f) ** 2 + 4 * f * share) - (1 - f)) / (2 * f)
    command: Array = model_factor * signal**2 + (1 - model_factor) * signal
    return command


def fit_hover(
    mass_kg: Sequence[float] | Array, command: Sequence[float] | Array, model_factor: float = 0.0
) -> HoverCurve:
    """The thrust model of `calibration.thrust.curve` through hover points (mass, command 0..1) of one aircraft.

    model_factor: THR_MDL_FAC of those hovers. One point determines the scale; a prior keeps shape and start near those of
    other motors. Raises `DataError` for impossible masses or commands.
    """
    mass, u = np.asarray(mass_kg, float), np.asarray(command, float)
    if len(mass) == 0 or len(mass) != len(u) or not (np.isfinite(mass) & (mass > 0) & (u > 0) & (u <= 1)).all():
        raise DataError("--hover needs a mass in kg above 0 and a command between 0 and 1")

    def cost(x: Array) -> Array:
        held = [(x[1] - FACTOR) / FACTOR_STD, x[2] / START_STD]
        return np.concatenate([(_hover_command(x, mass, model_factor) - u) / COMMAND_STD, held])

    fit = least_squares(cost, [np.log(1.5 * mass.max()), FACTOR, 0.0], bounds=([-9, 0, -0.3], [9, 1, 0.3]))
    left = float(np.mean(fit.fun[:-2] ** 2))  # points that contradict each other count less
    covariance = np.linalg.inv(fit.jac.T @ fit.jac) * max(left, 1.0)
    return HoverCurve(float(np.exp(fit.x[0])), float(fit.x[1]), float(fit.x[2]), covariance, model_factor)


def from_hovers(
    hovers: Sequence[tuple[float, float]],
    voltage_v: float | None,
    mass_kg: float | None,
    vehicle: Path | None,
    target: Vehicle | None,
    factor: float | None,
    reference_v: float | None = None,
) -> Result:
    """k_T from hovers, printed and returned; raises `ConfigError` if a number is missing or impossible.

    hovers: (mass [kg], command 0..1); voltage_v: of those flights; mass_kg: of the aircraft in normal flight. vehicle and
    target: the vehicle file to write into and its content. factor: THR_MDL_FAC of those flights. reference_v: voltage_v
    again, which says that it is not the battery of the vehicle file.
    """
    if voltage_v is None:
        raise ConfigError("--hover needs --voltage: the battery voltage in those hovers")
    if reference_v is not None and reference_v != voltage_v:
        raise ConfigError(
            f"--reference-voltage {reference_v:g}: with --hover it is that of the hovers, --voltage {voltage_v:g}"
        )
    mass_kg = mass_kg or (target.mass_kg if target else None)
    if mass_kg is None:
        raise ConfigError("--hover needs --mass or --vehicle: the mass in normal flight")
    if target is not None and factor is None:
        # The command of a hover is that before PX4 bends it: with another factor the same command is another thrust.
        raise ConfigError(
            "--hover with --vehicle needs --thr-mdl-fac: THR_MDL_FAC of PX4 in those hovers, 0 by default"
        )
    if target is not None and reference_v is None:
        refuse_other_voltage((voltage_v, voltage_v), target.thrust.reference_voltage_v, str(vehicle))
    masses, commands = np.array(hovers, float).T
    curve = fit_hover(masses, commands, factor or 0.0)
    command, std = float(curve.command(mass_kg)), curve.std(mass_kg)
    if not 0 < command < 1:
        raise ConfigError(
            f"{mass_kg:g} kg would hover at a command of {command:.2f}: too heavy for these motors, or a wrong --hover"
        )
    errors = curve.command(masses) - commands
    k_T = GRAVITY_M_S2 / command
    warnings = ["hovers at one voltage do not determine the influence of the battery; thrust.voltage_exponent stays"]
    if factor is None:
        warnings.append("--thr-mdl-fac is not given: the curve over mass is that of THR_MDL_FAC = 0")
    if not masses.min() * 0.8 <= mass_kg <= masses.max() * 1.25:
        warnings.append(f"{mass_kg:g} kg is far from the masses flown, {masses.min():g} to {masses.max():g} kg")
    click.echo(f"hover at {mass_kg:g} kg: {command:.3f} ± {std:.3f} at {voltage_v:g} V")
    click.echo(f"k_T: {k_T:.3f} ± {k_T * std / command:.3f} m/s² per unit of command")
    click.echo(f"{len(hovers)} hovers, largest error of the curve {np.abs(errors).max():.3f}")
    not_good = poor_hovers(masses, commands, errors)
    for warning in (*warnings, *not_good):
        click.echo(f"warning: {warning}", err=True)
    values = {"thrust.coefficient_m_s2": k_T, "thrust.reference_voltage_v": voltage_v}
    if factor is not None:
        values["thrust.model_factor"] = factor
    return result(
        "calibrate thrust",
        [],
        values,
        {"hovers": len(hovers), "command_error_max": np.abs(errors).max(), "hover_command_std": std,
         "coefficient_std_m_s2": k_T * std / command},
        warnings,
        {"hover": {"mass_kg": mass_kg, "voltage_v": voltage_v, "command": command}, "flown": hovers, "poor": not_good,
         "curve": {"full_kg": curve.full_kg, "factor": curve.factor, "start": curve.start,
                   "model_factor": curve.model_factor}},
    )  # fmt: skip


def hover_changes(content: Result) -> list[Change]:
    """The numbers for the vehicle file."""
    merit, values = content["merit"], content["values"]
    source = f"{merit['hovers']} hovers flown"
    notes = {"thrust.coefficient_m_s2": f"{source}: ± {merit['coefficient_std_m_s2']:.2g}"}
    digits = {"thrust.coefficient_m_s2": 3}
    return [Change(key, round(value, digits.get(key, 2)), notes.get(key, source)) for key, value in values.items()]

"""k_T from hovers that were flown, for who has no thrust stand: the result of ``calibrate thrust --hover``."""

from collections.abc import Sequence

import click
import numpy as np

from calibration.results import result
from calibration.thrust.hover import fit_hover
from calibration.vehicle_file import Change
from companion.core.config import ConfigError
from companion.core.frames import GRAVITY_M_S2
from companion.core.vehicle import Vehicle


def from_hovers(
    hovers: Sequence[tuple[float, float]], voltage_v: float | None, mass_kg: float | None, believed: Vehicle | None
) -> dict:
    """The result, shown and returned; raises `ConfigError` if a number is missing or none.

    hovers: (mass [kg], command 0..1); voltage_v: at which they were flown; mass_kg: of the aircraft that is to fly.
    """
    if voltage_v is None:
        raise ConfigError("--hover needs --voltage: the battery's, in those hovers")
    mass_kg = mass_kg or (believed.mass_kg if believed else None)
    if mass_kg is None:
        raise ConfigError("--hover needs --mass or --vehicle: the mass that is to fly")
    masses, commands = np.array(hovers, float).T
    curve = fit_hover(masses, commands)
    command, std = float(curve.command(mass_kg)), curve.std(mass_kg)
    if not 0 < command < 1:
        raise ConfigError(f"{mass_kg:g} kg would hover at a command of {command:.2f}: not with these motors")
    errors = curve.command(masses) - commands
    k_T = GRAVITY_M_S2 / command
    warnings = ["the battery's influence is not told by hovers at one voltage; the exponent stays"]
    if not masses.min() * 0.8 <= mass_kg <= masses.max() * 1.25:
        warnings.append(f"{mass_kg:g} kg is far from the masses flown, {masses.min():g} to {masses.max():g} kg")
    click.echo(f"hover at {mass_kg:g} kg: {command:.3f} ± {std:.3f} at {voltage_v:g} V")
    click.echo(f"k_T: {k_T:.3f} ± {k_T * std / command:.3f} m/s² per unit of command")
    click.echo(f"{len(hovers)} hovers, the curve misses them by {np.abs(errors).max():.3f} at most")
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    return result(
        "calibrate thrust",
        [],
        {"thrust.coefficient_m_s2": k_T, "thrust.reference_voltage_v": voltage_v},
        {"hovers": len(hovers), "command_error_max": np.abs(errors).max(), "hover_command_std": std,
         "coefficient_std_m_s2": k_T * std / command},
        warnings,
        {"hover": {"mass_kg": mass_kg, "voltage_v": voltage_v, "command": command}, "flown": hovers,
         "curve": {"full_kg": curve.full_kg, "factor": curve.factor, "start": curve.start}},
    )  # fmt: skip


def hover_changes(content: dict) -> list[Change]:
    """What goes into the vehicle file."""
    merit, values = content["merit"], content["values"]
    source = f"{merit['hovers']} hovers flown"
    return [
        Change(
            "thrust.coefficient_m_s2",
            round(values["thrust.coefficient_m_s2"], 3),
            f"{source}: ± {merit['coefficient_std_m_s2']:.2g}",
        ),
        Change("thrust.reference_voltage_v", round(values["thrust.reference_voltage_v"], 2), source),
    ]

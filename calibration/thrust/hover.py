"""What a thrust curve says of an aircraft: PX4's THR_MDL_FAC, hover command, and the vehicle file's thrust numbers.

PX4 turns a thrust command c (0..1) into the signal s between PWM_MIN and PWM_MAX by c = F s² + (1 - F) s with F =
THR_MDL_FAC (`FunctionMotors.hpp`); with the right F the thrust is in proportion to the command. k_T is the line through
the hover: g over the hover command, as the controller and the estimator use it near the hover.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from calibration.results import DataError
from calibration.thrust.curve import ThrustCurve
from calibration.thrust.table import PWM_SPAN_US, PWM_ZERO_US
from companion.core.arrays import Array
from companion.core.frames import GRAVITY_M_S2

GRID = 101
HOVER_FACTOR, HOVER_FACTOR_STD = 0.7, 0.2  # f of 104 motor-propeller pairs: what a few hover points cannot tell
HOVER_START_STD = 0.05
HOVER_COMMAND_STD = 0.01  # how well a pilot's log tells a hover command


@dataclass(frozen=True)
class Output:
    """PX4's end of the wire: pulse widths of signal 0 and 1 (PWM_MAIN_MINn, PWM_MAIN_MAXn) and THR_MDL_FAC."""

    pwm_min_us: float = PWM_ZERO_US
    pwm_max_us: float = PWM_ZERO_US + PWM_SPAN_US
    factor: float | None = None  # None: the one `thrust_model_factor` gives

    def command(self, signal: Array | float) -> Array:
        """Command of the curve (0..1 of 1000..2000 µs) at a signal."""
        return (self.pwm_min_us + np.asarray(signal) * (self.pwm_max_us - self.pwm_min_us) - PWM_ZERO_US) / PWM_SPAN_US

    def signal(self, command: float) -> float:
        return (PWM_ZERO_US + command * PWM_SPAN_US - self.pwm_min_us) / (self.pwm_max_us - self.pwm_min_us)


@dataclass(frozen=True)
class Hover:
    """One aircraft at one voltage."""

    voltage_v: float
    thrust_n: float  # of one motor
    pwm_us: float
    command: float  # PX4's thrust command, 0..1
    command_std: float
    k_T_m_s2: float  # per unit of command
    k_T_std_m_s2: float
    thrust_to_weight: float  # at full signal


def thrust_model_factor(curve: ThrustCurve, output: Output) -> tuple[float, float]:
    """THR_MDL_FAC and what it leaves: the largest error of the relative thrust over the signal's range.

    Least squares of T(s)/T(1) = F s² + (1 - F) s on an even grid, F within PX4's 0..1.
    """
    signal = np.linspace(0, 1, GRID)
    thrust = curve.thrust_n(output.command(signal), curve.reference_voltage_v)
    if not thrust[-1] > 0:
        raise DataError(f"no thrust at {output.pwm_max_us:g} µs: check --pwm-max")
    relative = thrust / thrust[-1]
    bend = signal**2 - signal
    factor = float(np.clip(np.sum((relative - signal) * bend) / np.sum(bend**2), 0, 1))
    return factor, float(np.abs(relative - signal - factor * bend).max())


def hover(curve: ThrustCurve, output: Output, mass_kg: float, motors: int, voltage_v: float) -> Hover:
    """The hover of an aircraft; raises `DataError` if its motors cannot carry it or idle too high."""
    factor = output.factor if output.factor is not None else thrust_model_factor(curve, output)[0]
    needed = mass_kg * GRAVITY_M_S2 / motors
    most = float(curve.thrust_n(output.command(1.0), voltage_v))
    if needed >= most:
        raise DataError(
            f"{mass_kg:g} kg on {motors} motors cannot hover at {voltage_v:g} V: "
            f"each must give {needed:.3g} N and gives {most:.3g} N at most"
        )
    command = curve.command_for(needed, voltage_v)
    signal = output.signal(command)
    if not 0 < signal < 1:
        raise DataError(f"hover at {PWM_ZERO_US + command * PWM_SPAN_US:.0f} µs is outside --pwm-min and --pwm-max")
    thrust_command = factor * signal**2 + (1 - factor) * signal
    step = 1e-4
    gain = float(curve.thrust_n(command + step, voltage_v) - curve.thrust_n(command - step, voltage_v)) / (2 * step)
    signal_std = float(curve.std_n(command, voltage_v)) / gain * PWM_SPAN_US / (output.pwm_max_us - output.pwm_min_us)
    command_std = (2 * factor * signal + 1 - factor) * signal_std
    k_T = GRAVITY_M_S2 / thrust_command
    return Hover(
        voltage_v,
        needed,
        PWM_ZERO_US + command * PWM_SPAN_US,
        thrust_command,
        command_std,
        k_T,
        k_T * command_std / thrust_command,
        most / needed,
    )


@dataclass(frozen=True)
class HoverCurve:
    """Hover command against mass, from hovers of one aircraft with different loads: no thrust stand needed."""

    full_kg: float  # mass that full throttle carries
    factor: float
    start: float
    covariance: Array  # (3, 3) of (ln full_kg, factor, start)

    def command(self, mass_kg: Array | float) -> Array:
        """Hover command, 0..1."""
        return _hover_command(np.array([np.log(self.full_kg), self.factor, self.start]), np.asarray(mass_kg, float))

    def std(self, mass_kg: float) -> float:
        """Standard deviation of the hover command, by the delta method."""
        x, step = np.array([np.log(self.full_kg), self.factor, self.start]), 1e-5
        slope = np.array(
            [(_hover_command(x + e, mass_kg) - _hover_command(x - e, mass_kg)) / (2 * step) for e in np.eye(3) * step]
        )
        return float(np.sqrt(slope @ self.covariance @ slope))


def _hover_command(x: Array, mass_kg: Array) -> Array:
    share, f = mass_kg / np.exp(x[0]), max(x[1], 1e-6)
    return x[2] + (1 - x[2]) * (np.sqrt((1 - f) ** 2 + 4 * f * share) - (1 - f)) / (2 * f)


def fit_hover(mass_kg: Sequence[float], command: Sequence[float]) -> HoverCurve:
    """The thrust model of `thrust_curve` through hover points (mass, command 0..1) of one aircraft.

    One point gives the scale; shape and start are held near those of other motors until there are more. Raises
    `DataError` for masses or commands that are none.
    """
    mass, u = np.asarray(mass_kg, float), np.asarray(command, float)
    if len(mass) == 0 or len(mass) != len(u) or not (np.isfinite(mass) & (mass > 0) & (u > 0) & (u <= 1)).all():
        raise DataError("hover points need a mass in kg above 0 and a command between 0 and 1")

    def cost(x: Array) -> Array:
        held = [(x[1] - HOVER_FACTOR) / HOVER_FACTOR_STD, x[2] / HOVER_START_STD]
        return np.concatenate([(_hover_command(x, mass) - u) / HOVER_COMMAND_STD, held])

    fit = least_squares(cost, [np.log(1.5 * mass.max()), HOVER_FACTOR, 0.0], bounds=([-9, 0, -0.3], [9, 1, 0.3]))
    left = float(np.mean(fit.fun[:-2] ** 2))  # points that do not agree among themselves say less
    covariance = np.linalg.inv(fit.jac.T @ fit.jac) * max(left, 1.0)
    return HoverCurve(float(np.exp(fit.x[0])), float(fit.x[1]), float(fit.x[2]), covariance)

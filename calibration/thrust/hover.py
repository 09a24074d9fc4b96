"""From a thrust curve to an aircraft: PX4's THR_MDL_FAC, hover command, and the thrust numbers of the vehicle file.

PX4 turns a thrust command c (0..1) into the signal s between PWM_MIN and PWM_MAX by c = F s² + (1 - F) s with F =
THR_MDL_FAC (`FunctionMotors.hpp`); with the right F the thrust is proportional to the command. k_T is the slope of the
line through zero and the hover, g over the hover command, as controller and estimator use it near the hover.
"""

from dataclasses import dataclass

import numpy as np

from calibration.results import DataError
from calibration.thrust.curve import ThrustCurve
from calibration.thrust.table import PWM_SPAN_US, PWM_ZERO_US
from companion.core.arrays import Array
from companion.core.frames import GRAVITY_M_S2

GRID = 101


# Between two units of thrust that may be taken for each other: gf and N 102, gf and kgf 1000, kgf and N 9.8.
UNIT_RATIO = 5.0
UNIT_HINT = "is the thrust in another unit than the header or --thrust-unit says?"


@dataclass(frozen=True)
class Output:
    """PX4's output: pulse widths of signal 0 and 1 (PWM_MAIN_MINn, PWM_MAIN_MAXn) and THR_MDL_FAC."""

    pwm_min_us: float = PWM_ZERO_US
    pwm_max_us: float = PWM_ZERO_US + PWM_SPAN_US
    factor: float | None = None  # None: the one `thrust_model_factor` gives

    def command(self, signal: Array | float) -> Array:
        """Command of the curve (0..1 of 1000..2000 µs) at a signal."""
        return (self.pwm_min_us + np.asarray(signal) * (self.pwm_max_us - self.pwm_min_us) - PWM_ZERO_US) / PWM_SPAN_US

    def signal(self, command: float) -> float:
        """Signal (0..1) at a command of the curve."""
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
    """THR_MDL_FAC, and the largest error of the relative thrust that remains over the range of the signal.

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
    """The hover of an aircraft; raises `DataError` if its motors cannot lift it, or their idle thrust is too high."""
    factor = output.factor if output.factor is not None else thrust_model_factor(curve, output)[0]
    needed = mass_kg * GRAVITY_M_S2 / motors
    most = float(curve.thrust_n(output.command(1.0), voltage_v))
    if needed >= most:
        raise DataError(
            f"{mass_kg:g} kg on {motors} motors cannot hover at {voltage_v:g} V: "
            f"each must give {needed:.3g} N and gives {most:.3g} N at most"
            + (f"; {UNIT_HINT}" if needed > UNIT_RATIO * most else "")
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

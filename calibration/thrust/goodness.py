"""Whether a thrust fit is as good as docs/thrust_bench.md asks for ("Reading the result").

A poor fit is not written into a vehicle file without being asked for; a doubt is only a warning.
"""

import numpy as np

from calibration.thrust.curve import ThrustFit
from calibration.thrust.hover import Hover
from companion.core.arrays import Array

R2_MIN = 0.998
MEDIAN_MAX = 0.01  # residual, of full thrust; 0.008 is the worst of 104 motor-propeller pairs
EXPONENT = (1.3, 2.0)  # of the voltage; 1.4 to 1.9 on 104 pairs, 2 for windings without resistance
EXPONENT_SIGMAS = 2.0  # of its own uncertainty, by which it may lie beyond
LEFT_OUT_MAX = 0.3  # of the points; three of eleven are left out where the supply limits a short sweep
FACTOR_ERROR_MAX = 0.02  # of full thrust, that remains with the best THR_MDL_FAC
HOVER = (0.3, 0.6)  # command
THRUST_TO_WEIGHT_MIN = 2.0
HEAVIER = 1.05  # mass by mass, from which the command must grow
HOVER_ERROR_MAX = 0.1  # command; 0.094 is the worst of 30 published aircraft


def poor(fit: ThrustFit) -> list[str]:
    """One sentence for each figure of the fit that is not good."""
    merit, curve = fit.merit(), fit.curve
    sentences = []
    if not fit.r2 >= R2_MIN:
        sentences.append(
            f"R² is {fit.r2:.4f}, below {R2_MIN}: another propeller, a loose stand, wind, two motors in one fit"
        )
    if not merit["residual_median_share"] <= MEDIAN_MAX:
        sentences.append(
            f"the median residual is {merit['residual_median_share']:.1%} of full thrust, above {MEDIAN_MAX:.0%}: "
            "another propeller, a loose stand, wind, two motors in one fit"
        )
    if curve.exponent_known:
        slack = EXPONENT_SIGMAS * float(curve.covariance[2, 2]) ** 0.5
        if not EXPONENT[0] - slack <= curve.exponent <= EXPONENT[1] + slack:
            sentences.append(
                f"the voltage exponent is {curve.exponent:.2f}, not {EXPONENT[0]} to {EXPONENT[1]}: "
                "the voltage is not that of the motor, or the runs differ in something else"
            )
    share = len(fit.left_out) / max(len(fit.left_out) + len(fit.command), 1)
    if share > LEFT_OUT_MAX:
        sentences.append(f"{share:.0%} of the points are left out: the supply is too small, or the steps are too short")
    return sentences


def poor_hovers(masses_kg: Array, commands: Array, errors: Array) -> list[str]:
    """One sentence for each contradiction of hovers of one aircraft; errors: of the curve's commands."""
    sentences = []
    if (largest := float(np.abs(errors).max())) > HOVER_ERROR_MAX:
        sentences.append(
            f"a hover lies {largest:.3f} beside the curve, more than {HOVER_ERROR_MAX}: another battery or "
            "propeller, or a wrong --hover"
        )
    heavier = masses_kg[:, None] >= HEAVIER * masses_kg
    if np.any(heavier & (commands[:, None] <= commands)):
        sentences.append("a heavier aircraft hovered at a smaller or the same command: a wrong --hover")
    return sentences


def doubts(factor_error: float, at_hover: Hover | None) -> list[str]:
    """One sentence for each figure of the aircraft that is not good; factor_error: that remains with THR_MDL_FAC."""
    sentences = []
    if factor_error > FACTOR_ERROR_MAX:
        sentences.append(
            f"with THR_MDL_FAC an error of {factor_error:.1%} of full thrust remains: set PWM_MAIN_MINn near the pulse "
            "width at which the motor starts"
        )
    if at_hover is not None and not HOVER[0] <= at_hover.command <= HOVER[1]:
        sentences.append(
            f"the hover command {at_hover.command:.2f} is not {HOVER[0]} to {HOVER[1]}: check --mass and --motors"
        )
    if at_hover is not None and at_hover.thrust_to_weight < THRUST_TO_WEIGHT_MIN:
        sentences.append(
            f"full thrust is only {at_hover.thrust_to_weight:.2f} times the weight: check --mass and --motors"
        )
    return sentences

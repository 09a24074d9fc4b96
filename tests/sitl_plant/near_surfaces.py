"""``python -m tests.sitl_plant.near_surfaces``: thrust under a ceiling and over the ground, plant against published curves.

The F550 is held fixed with its rotors turning at the hover command; its accelerometer gives the thrust (docs/aerodynamics.md).
"""

import sys

import msgspec
import numpy as np

from sitl.airframe import load_airframe
from sitl.plant import Plant

HOVER = np.full(6, 0.344)
GAPS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)  # rotor radii
BELOW, ABOVE = 0, 1


def thrust_ratio(gap: float, side: int) -> float:
    """Thrust with a surface this many rotor radii away on all rotors, over that without, at the same command."""
    airframe = load_airframe("f550")
    rotor = msgspec.structs.replace(airframe.rotor, speed_voltage_exponent=0.0)
    plant = Plant(msgspec.structs.replace(airframe, rotor=rotor), 1, p_W=(0.0, 0.0, 50.0))

    def felt() -> float:
        for _ in range(300):
            plant.step(HOVER, 5)
            plant.v_W[:], plant.omega_B[:], plant.p_W[:] = 0.0, 0.0, (0.0, 0.0, 50.0)
            plant.q_WB[:] = 1.0, 0.0, 0.0, 0.0
        plant.step(HOVER, 0)
        return float(plant.specific_force_B[2])

    free = felt()
    plant.clearance_m[:, side] = gap * airframe.rotor.radius_m
    return felt() / free


def ceiling(gap: float) -> float:
    """Hsiao and Chirarattananon, 2019."""
    return 0.5 + 0.5 * float(np.sqrt(1.0 + 1.0 / (8.0 * gap**2)))


def ground(gap: float) -> float:
    """Cheeseman and Bennett, 1955, in hover."""
    return 1.0 / (1.0 - 1.0 / (16.0 * gap**2))


def main() -> int:
    print("| gap / R | ceiling, published | ceiling, plant | ground, published | ground, plant |\n|" + " --- |" * 5)
    for gap in GAPS:
        below = f"{ground(gap):.3f}" if gap >= 0.5 else "not valid"
        figures = f"{thrust_ratio(gap, ABOVE):.3f} | {below} | {thrust_ratio(gap, BELOW):.3f}"
        print(f"| {gap:g} | {ceiling(gap):.3f} | {figures} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Refuses tables whose numbers are another quantity than their header says: a wrong unit is no doubt but another motor."""

from pathlib import Path

from calibration.results import DataError
from calibration.thrust.hover import UNIT_HINT
from companion.core.voltage import CRITICAL_CELL_V, EMPTY_CELL_V, FULL_CELL_V, RANGE

# Full thrust over weight: racing quads reach 10 to 14; gf that are read as N would be 102 times as much.
THRUST_TO_WEIGHT_MAX = 20.0


def refuse_other_voltage(measured_v: tuple[float, float], reference_v: float, vehicle: str) -> None:
    """Raises `DataError` when no measured voltage is one of the vehicle's battery.

    measured_v: lowest and highest [V]; reference_v: of the vehicle file [V]. The thrust model flies between 0.75 and 1.15 of
    its reference, so a curve from beyond would be used outside of what was measured at every voltage.
    """
    low_v, high_v = measured_v
    if high_v >= RANGE[0] * reference_v and low_v <= RANGE[1] * reference_v:
        return
    cells = round(reference_v / ((FULL_CELL_V + CRITICAL_CELL_V) / 2))
    by_cell = cells > 1 and low_v >= EMPTY_CELL_V * 0.9 and high_v <= FULL_CELL_V * 1.05
    hint = (
        f"volts per cell? multiply them by {cells}"
        if by_cell
        else "measured with another battery? give --reference-voltage"
    )
    raise DataError(
        f"measured at {low_v:.2f} to {high_v:.2f} V, {vehicle} has a reference of {reference_v:g} V: {hint}"
    )


def refuse_other_unit(thrust_to_weight: float, table: Path) -> None:
    """Raises `DataError` when full thrust lifts many times the aircraft."""
    if thrust_to_weight > THRUST_TO_WEIGHT_MAX:
        raise DataError(f"{table}: full thrust is {thrust_to_weight:.0f} times the weight: {UNIT_HINT}")

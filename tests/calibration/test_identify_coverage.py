"""The 95 % intervals of drag contain the truth: flights in gusts, with slow errors of the estimate and a curved thrust."""

import numpy as np
import pytest
from windy_flights import fly

from calibration.identification.forces import fit_forces
from calibration.identification.windows import usable_spans

DRAG_1_S = (1.0, 0.8)
CASES = {
    "gusts": {},
    "strong gusts, weak drag": {"wind_m_s": 2.0, "drag_1_s": (0.3, 0.25)},
    "thrust flatter than its level": {"curvature": -0.2, "accelerometer": False},
    "propellers without THR_MDL_FAC": {"curvature": 0.9, "drag_1_s": (0.4, 0.3), "wind_m_s": 0.5},
    "velocity wrong by 15 cm/s": {"velocity_error_m_s": 0.15, "wind_m_s": 0.5},
}


def errors(flights: int, seed: int, **conditions) -> np.ndarray:
    """Error over half-width of the interval, (flights, 2): horizontal, vertical; NaN where it was not identified."""
    true = conditions.setdefault("drag_1_s", DRAG_1_S)
    found = []
    for flight in fly(flights, seed, **conditions):
        forces = fit_forces(flight, usable_spans(flight), 1.5)
        values = forces.drag_horizontal_1_s, forces.drag_vertical_1_s
        names = "drag_horizontal", "drag_vertical"
        found.append(
            [
                np.nan if v is None else (v - t) / forces.intervals[n]
                for v, t, n in zip(values, true, names, strict=True)
            ]
        )
    return np.array(found)


def test_a_curved_thrust_is_not_taken_for_vertical_drag():
    """Fitted with a straight one, the vertical drag is 1.3 ± 0.15 instead of 1.0: all four intervals miss it."""
    assert (np.abs(errors(4, 11, **CASES["thrust flatter than its level"])) < 1.0).mean() >= 0.85


@pytest.mark.verify  # minutes
def test_ninety_to_hundred_of_a_hundred_intervals_contain_the_truth():
    all_errors = {name: errors(10, 100 + i, **case) for i, (name, case) in enumerate(CASES.items())}
    for name, found in all_errors.items():
        assert (np.abs(found) < 1.0).mean() >= 0.8, (name, found)
    together = np.concatenate(list(all_errors.values()))
    assert len(together) >= 40 and np.isfinite(together).mean() > 0.9
    shares = [(np.abs(axis[np.isfinite(axis)]) < 1.0).mean() for axis in together.T]
    assert min(shares) >= 0.9, shares
    assert np.nanmedian(np.abs(together)) > 0.1, "intervals that say nothing would pass, too"

"""The numbers that an identification writes are right together with those that the vehicle file keeps."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from calibration_paths import F550

from calibration.identification.flight_data import FlightData, LogKind, Signal
from calibration.identification.forces import Forces
from calibration.identification.identify import Axis, Identification
from calibration.identification.values import changes, warnings
from companion.core.config import load
from companion.core.vehicle import Vehicle

LOG_V, K_T = 14.2, 26.0  # the thrust coefficient that was measured, at the voltage of the log
INTERVALS = {"thrust_coefficient": 0.1, "exponent": 0.3, "curvature": 0.1}


def found(flown_exponent=0.5, kept_exponent=1.5, compensated=False, **of_forces) -> Identification:
    """An identification at `LOG_V`; flown_exponent: of the fit, kept_exponent: of the vehicle file (None: no file)."""
    flight = FlightData(Path("flight"), LogKind.ULOG, battery_compensated=compensated, model_factor=0.0)
    flight.voltage = Signal(np.arange(3.0), np.full(3, LOG_V))
    flight.airborne = [(0.0, 2.0)]
    forces = Forces(
        K_T, LOG_V, flown_exponent, False, 0.0, None, None, (0.0, 0.0), 0.0, 3.0, (LOG_V, LOG_V), None, None
    )
    forces = replace(forces, intervals=INTERVALS, missing={"drag_horizontal": "not flown"}, **of_forces)
    vehicle = None
    if kept_exponent is not None:
        vehicle = load(F550, Vehicle)
        thrust = msgspec.structs.replace(vehicle.thrust, voltage_exponent=kept_exponent)
        vehicle = msgspec.structs.replace(vehicle, thrust=thrust)
    axes = [Axis(name, reason="not flown") for name in ("roll", "pitch", "yaw rate")]
    return Identification(flight, *axes, forces, "", [], vehicle)


def written(identified: Identification) -> dict:
    """Numbers of [thrust] in the vehicle file afterwards."""
    kept = msgspec.to_builtins(identified.vehicle.thrust)
    return kept | {c.key.removeprefix("thrust."): c.value for c in changes(identified, "log")}


@pytest.mark.parametrize(
    ("identified", "exponent"),
    [
        (found(), 1.5),  # uncertain: the file keeps its own
        (found(flown_exponent=1.504, kept_exponent=0.5, exponent_fitted=True), 1.5),
        (found(flown_exponent=3.0, exponent_fitted=True, at_bound=("exponent",)), 1.5),
        (found(flown_exponent=0.0, compensated=True), 0.0),
        (found(flown_exponent=0.2, kept_exponent=0.0, compensated=True), 0.0),
        (found(flown_exponent=1.4, kept_exponent=0.0), 0.0),
    ],
    ids=["kept", "fitted", "at bound", "compensated", "compensated and 0", "0 kept"],
)
def test_the_file_predicts_the_thrust_of_the_log_at_the_voltage_of_the_log(identified, exponent):
    thrust = written(identified)
    assert thrust["voltage_exponent"] == exponent and thrust["reference_voltage_v"] == 15.2
    predicted = thrust["coefficient_m_s2"] * (LOG_V / thrust["reference_voltage_v"]) ** thrust["voltage_exponent"]
    assert predicted == pytest.approx(K_T, rel=1e-4)


def test_the_exponent_of_a_compensated_battery_is_named_with_what_is_written():
    (sentence,) = [s for s in warnings(found(flown_exponent=0.0, compensated=True)) if "MC_BAT_SCALE_EN" in s]
    assert sentence.endswith("should be near 0, it is 1.5, and 0 is written")
    assert not any("MC_BAT_SCALE_EN" in s for s in warnings(found(kept_exponent=0.0, compensated=True)))


def test_without_a_vehicle_file_the_coefficient_is_that_of_the_log():
    values = {change.key: change.value for change in changes(found(kept_exponent=None), "log")}
    assert values["thrust.coefficient_m_s2"] == K_T and values["thrust.reference_voltage_v"] == LOG_V

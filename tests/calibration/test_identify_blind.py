"""A flight whose numbers are known, identified from its log alone."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from identify_flights import Truth, fly, write_ulog

from calibration.identification.flight_data import Signal
from calibration.identification.identify import identify
from calibration.identification.ulog import read_ulog
from calibration.identification.values import thrust_at_reference
from calibration.identification.windows import VOLTAGE_GAP_S, usable_spans
from companion.cli import main
from companion.core.config import load
from companion.core.vehicle import Vehicle


@pytest.fixture
def flight(made_up_flight):
    return made_up_flight()


@pytest.mark.parametrize("names", ["new", pytest.param("old", marks=pytest.mark.verify)])
def test_the_numbers_of_a_made_up_flight_come_back(tmp_path, flight, names):
    found = identify([write_ulog(tmp_path / "flight.ulg", flight, names)])
    for axis in (found.roll, found.pitch):
        assert axis.response.time_constant_s == pytest.approx(Truth.time_constant_s, rel=0.05)
        assert axis.response.gain == pytest.approx(Truth.gain, rel=0.02)
        assert axis.held_out_percent > 90
    # Setpoints change with a log that is not in step with them: between two samples the time is unknown.
    assert found.roll.response.delay_s == pytest.approx(Truth.delay_s, abs=0.012)
    forces = found.forces
    k_T = forces.thrust_coefficient_m_s2 * (Truth.reference_v / forces.reference_voltage_v) ** forces.voltage_exponent
    assert k_T == pytest.approx(Truth.k_T_m_s2, rel=0.01)
    assert forces.voltage_exponent == pytest.approx(Truth.exponent, abs=0.3)
    assert forces.drag_horizontal_1_s == pytest.approx(Truth.drag_1_s[0], rel=0.15)
    assert forces.drag_vertical_1_s == pytest.approx(Truth.drag_1_s[2], rel=0.3)
    assert forces.thrust_lag_s == pytest.approx(Truth.thrust_delay_s, abs=0.02)


def test_the_command_writes_the_vehicle_file_and_the_result(tmp_path, flight, vehicle):
    log = write_ulog(tmp_path / "flight.ulg", flight, parameters={"CA_ROTOR_COUNT": 6, "THR_MDL_FAC": 0.3})
    line = ["identify", str(log), "--vehicle", str(vehicle), "--json", str(tmp_path / "r.json"), "--yes"]
    done = CliRunner().invoke(main, [*line, "--plots", str(tmp_path / "plots")])
    assert done.exit_code == 0, done.output
    result = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert result["command"] == "identify"
    assert result["values"]["attitude.roll.time_constant_s"] == pytest.approx(Truth.time_constant_s, rel=0.05)
    text = vehicle.read_text(encoding="utf-8")
    assert f"time_constant_s = {result['values']['attitude.roll.time_constant_s']}" in text
    assert "flight.ulg" in text
    assert load(vehicle, Vehicle).thrust.model_factor == 0.3 and "THR_MDL_FAC = 0.3" in done.output
    assert {p.name for p in (tmp_path / "plots").iterdir()} >= {"roll.png", "pitch.png", "thrust.png", "velocity.png"}


def test_the_thrust_of_a_compensated_battery_is_not_scaled_by_the_voltage(tmp_path, vehicle):
    """The voltage changes too little to show an exponent, and that of the vehicle file is 1.5."""

    class Compensated(Truth):
        exponent = 0.0

    flight = fly(duration_s=40.0, truth=Compensated, sag_v=0.2)
    parameters = {"CA_ROTOR_COUNT": 6, "MC_BAT_SCALE_EN": 1}
    found = identify([write_ulog(tmp_path / "flight.ulg", flight, parameters=parameters)], vehicle)
    assert found.forces.voltage_exponent == 0.0 and not found.forces.exponent_fitted
    _, k_T = thrust_at_reference(found, found.forces)
    assert k_T == pytest.approx(Truth.k_T_m_s2, rel=0.01)


@pytest.mark.parametrize("cut_s", [(20.0, 60.0), (15.0, 30.0)])
def test_flight_without_a_battery_voltage_in_the_log_does_not_count_for_the_thrust(tmp_path, flight, cut_s):
    """The battery topic ends, or pauses, and the voltage falls on."""
    log = read_ulog(write_ulog(tmp_path / "flight.ulg", flight))
    from_s, to_s = (log.start_s + t for t in cut_s)
    known = (log.voltage.t_s < from_s) | (log.voltage.t_s > to_s)
    log.voltage = Signal(log.voltage.t_s[known], log.voltage.value[known])
    spans = usable_spans(log)
    assert spans and all(b < from_s + VOLTAGE_GAP_S or a > to_s - VOLTAGE_GAP_S for a, b in spans)
    whole = sum(b - a for a, b in log.airborne)
    log.voltage = Signal(log.voltage.t_s[:0], log.voltage.value[:0])
    assert sum(b - a for a, b in usable_spans(log)) > 0.9 * whole, "a log without any voltage is used whole"


def test_a_gap_of_the_battery_voltage_is_named(tmp_path, flight):
    gap = dict(flight, volts=np.where(flight["t_s"] > 25.0, np.nan, flight["volts"]))
    found = identify([write_ulog(tmp_path / "flight.ulg", gap)])
    said = [note for note in found.notes if note.startswith("no battery voltage for ")]
    assert len(said) == 1 and "in the air: thrust and drag are those of the rest" in said[0]
    k_T, exponent = found.forces.thrust_coefficient_m_s2, found.forces.voltage_exponent
    k_T *= (Truth.reference_v / found.forces.reference_voltage_v) ** exponent
    assert k_T == pytest.approx(Truth.k_T_m_s2, rel=0.02)

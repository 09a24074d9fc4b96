"""Identification from this stack's own logs: the parts in offboard mode, with the setpoints that were really sent."""

import pytest
from calibration_paths import VEHICLES
from identify_flights import Truth, write_flight_log, write_ulog

from calibration.identification.identify import identify, read
from calibration.results import DataError
from companion.core.config import load
from companion.core.vehicle import Vehicle

RTK = VEHICLES / "f550_rtk.toml"


@pytest.fixture
def flight(made_up_flight):
    return made_up_flight(seed=6, duration_s=45.0)


def test_the_numbers_of_a_flight_in_offboard_mode_come_back(tmp_path, flight):
    found = identify([write_flight_log(tmp_path / "flight.mcap", flight)])
    for axis in (found.roll, found.pitch):
        assert axis.trusted
        assert axis.response.time_constant_s == pytest.approx(Truth.time_constant_s, rel=0.05)
        assert axis.response.delay_s == pytest.approx(Truth.delay_s, abs=0.01)
    forces = found.forces
    k_T = forces.thrust_coefficient_m_s2 * (Truth.reference_v / forces.reference_voltage_v) ** forces.voltage_exponent
    assert k_T == pytest.approx(Truth.k_T_m_s2, rel=0.02)
    assert forces.drag_horizontal_1_s == pytest.approx(Truth.drag_1_s[0], rel=0.15)


def test_the_vehicle_that_flew_is_read_from_the_log(tmp_path, flight):
    assert read(write_flight_log(tmp_path / "flight.mcap", flight)).flown.vehicle == load(RTK, Vehicle)


def test_only_the_part_in_offboard_mode_counts(tmp_path, flight):
    with pytest.raises(DataError, match="did not fly"):
        identify([write_flight_log(tmp_path / "a.mcap", flight, mode="POSCTL")])


def test_a_flight_by_hand_names_the_flight_controllers_own_log(tmp_path, flight):
    with pytest.raises(DataError, match="sent no setpoints.*give the ULog"):
        identify([write_flight_log(tmp_path / "hand.mcap", flight, sent=False)])


def test_a_log_whose_writer_was_killed_is_used_and_reported(tmp_path, flight):
    path = write_flight_log(tmp_path / "flight.mcap", flight)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(0.9 * len(whole))])
    found = identify([path])
    assert found.roll.trusted and "the end of the log is missing" in found.notes[0]


def test_a_log_and_a_ulog_are_not_mixed(tmp_path, flight):
    both = [write_flight_log(tmp_path / "a.mcap", flight), write_ulog(tmp_path / "b.ulg", flight)]
    with pytest.raises(DataError, match="logs of one kind"):
        identify(both)

"""The PX4 emulator with EKF2_GPS_CTRL 0: attitude and height, no position, as PX4 1.17."""

import math

import pytest
from autopilot_flight import QUIET, EmulatorFlight
from pymavlink.dialects.v20 import common

from companion.core.enums import FcuMode
from sitl.autopilot.modes import CommanderMode
from sitl.autopilot.streams import ONBOARD_RATES_HZ

ALTCTL, LAND, OFFBOARD = (2, 0), (4, 6), (6, 0)
ACCEPTED, TEMPORARILY_REJECTED = 0, 1
THROTTLE, YAW = 2, 3  # channels, counted from 0


def without_gnss(**options):
    flight = EmulatorFlight(**options)
    flight.autopilot.parameters.set("EKF2_GPS_CTRL", 0)
    return flight


def channels(flight, **pulses):
    autopilot = flight.autopilot
    found = list(autopilot.rc_neutral_us)
    found[autopilot.rc_mode_channel - 1] = autopilot.rc_mode_positions_us[FcuMode.ALTCTL]
    for name, pulse_us in pulses.items():
        found[{"throttle": THROTTLE, "yaw": YAW}[name]] = pulse_us
    autopilot.set_rc(found)


@pytest.fixture
def flying():
    """In Altitude mode at some metres, by the sticks."""
    flight = without_gnss(stream_rates_hz=QUIET | {"LOCAL_POSITION_NED": 20.0, "ALTITUDE": 20.0})
    channels(flight)
    flight.run(4.0)
    channels(flight, throttle=1000, yaw=2000)
    flight.run(1.5)
    channels(flight)
    flight.run(0.5)
    assert flight.armed, flight.texts()
    channels(flight, throttle=1800)
    flight.run(5.0)
    channels(flight)
    flight.run(3.0)
    assert flight.mode == ALTCTL and flight.plant.p_W[2] > 2.0
    return flight


def test_there_is_no_position_and_the_height_is_held(flying):
    assert not flying.autopilot.stack.observer.position_valid and flying.autopilot.stack.observer.height_valid
    before_m = flying.plant.p_W[2]
    flying.run(8.0)
    assert abs(flying.plant.p_W[2] - before_m) < 0.4
    altitude = flying.last("ALTITUDE")
    assert altitude.altitude_local == pytest.approx(flying.plant.p_W[2], abs=0.5)


def test_messages_of_the_global_position_do_not_come():
    flight = without_gnss(stream_rates_hz=ONBOARD_RATES_HZ)
    flight.run(6.0)
    assert not {"GLOBAL_POSITION_INT", "HOME_POSITION", "GPS_GLOBAL_ORIGIN"} & set(flight.received)
    assert {"LOCAL_POSITION_NED", "GPS_RAW_INT", "ALTITUDE"} <= set(flight.received)


def test_local_position_is_sent_and_its_horizontal_part_means_nothing(flying):
    flying.wind_W = (4.0, 0.0, 0.0)
    flying.run(15.0)
    m = flying.last("LOCAL_POSITION_NED")
    assert math.dist((m.y, m.x), flying.plant.p_W[:2]) > 1.0
    assert -m.z == pytest.approx(flying.plant.p_W[2], abs=0.5)


@pytest.mark.parametrize("mode", [(3, 0), (4, 3), (4, 5), (4, 2)], ids=["position", "hold", "return", "take-off"])
def test_modes_that_need_a_position_are_refused(flying, mode):
    assert flying.set_mode(*mode) == TEMPORARILY_REJECTED
    assert flying.mode == ALTCTL


@pytest.mark.parametrize("by", ["mode", "command"])
def test_land_is_accepted_and_becomes_descend(flying, by):
    """PX4 forces Land, and what it cannot fly falls through to Descend; the heartbeat shows Land."""
    result = flying.set_mode(*LAND) if by == "mode" else flying.command(common.MAV_CMD_NAV_LAND)
    assert result == ACCEPTED and flying.mode == LAND and flying.autopilot.mode == CommanderMode.DESCEND
    assert flying.run(20.0, lambda: not flying.autopilot.armed)


def test_offboard_by_attitude_needs_no_position(flying):
    flying.stream = flying.hover_bytes
    flying.run(1.2)
    assert flying.set_mode(6) == ACCEPTED and flying.mode == OFFBOARD


@pytest.mark.parametrize(("action", "mode"), [(0, FcuMode.ALTCTL), (1, FcuMode.ALTCTL), (4, CommanderMode.DESCEND)])
def test_the_end_of_the_stream_leads_to_altitude_mode_or_descend(flying, action, mode):
    flying.set_parameter("COM_OBL_RC_ACT", action)
    flying.stream = flying.hover_bytes
    flying.run(1.2)
    flying.set_mode(6)
    flying.run(0.5)
    flying.stream = None
    flying.run(1.3)
    assert flying.autopilot.mode == mode


def test_lost_rc_in_altitude_mode_becomes_descend(flying):
    flying.set_parameter("NAV_RCL_ACT", 3)
    flying.autopilot.set_rc(None)
    flying.run(2.0)
    assert flying.autopilot.mode == CommanderMode.DESCEND


def test_arming_can_be_made_to_need_a_position():
    flight = without_gnss(stream_rates_hz=QUIET)
    flight.autopilot.parameters.set("COM_ARM_WO_GPS", 0)
    flight.run(4.0)
    assert flight.command(common.MAV_CMD_COMPONENT_ARM_DISARM, 1, 0) != ACCEPTED

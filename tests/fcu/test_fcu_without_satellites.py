"""The link of a flight without satellites: no position, the height by pressure, EKF2_GPS_CTRL 0 or no flight."""

import pytest
from fcu_peer import ALTITUDE, GLOBAL_POSITION, HOME, ODOMETRY, POSITION, Peer
from pymavlink.dialects.v20 import common

from companion.core.messages import FcuAttitude, FcuPosition, FcuStatus
from companion.fcu.fcu_node import FcuNode


@pytest.fixture
def alone(vehicle):
    """Connected to a flight controller without a position."""
    peer = Peer(FcuNode(vehicle, satellites=False))
    peer.parameters |= {"EKF2_GPS_CTRL": 0, "COM_RCL_EXCEPT": 4, "COM_OBL_RC_ACT": 1}
    altitude = common.MAVLink_altitude_message
    peer.content[ALTITUDE] = lambda ms: altitude(ms * 1000, 488.5, float("nan"), 0.0, 0.0, float("nan"), float("nan"))
    peer.run(3.0)
    return peer


def newest(peer, kind):
    return [m for _, m in peer.out if isinstance(m, kind)][-1:]


def test_what_px4_sends_as_a_position_is_not_passed_on(alone):
    """PX4 1.17 sends LOCAL_POSITION_NED without saying that x and y are not valid."""
    for _ in range(50):
        alone.deliver(common.MAVLink_local_position_ned_message(alone.boot_ms, 55.0, -3.0, -4.0, 7.0, 0.0, 0.0))
        alone.run(0.02)
    assert newest(alone, FcuPosition) == [] and newest(alone, FcuAttitude)
    (status,) = newest(alone, FcuStatus)
    assert status.connected and status.refused == ""


def test_the_height_is_that_by_pressure(alone):
    (status,) = newest(alone, FcuStatus)
    assert status.baro_altitude_m == pytest.approx(488.5)
    assert alone.streams[ALTITUDE] == pytest.approx(0.1)


def test_streams_that_need_a_position_are_neither_requested_nor_missed(alone):
    alone.run(20.0)
    assert not {POSITION, GLOBAL_POSITION, HOME, ODOMETRY} & set(alone.streams)
    (status,) = newest(alone, FcuStatus)
    assert "LOCAL_POSITION_NED" not in status.slow_streams and "GPS_RAW_INT" not in status.slow_streams


def test_a_missing_height_is_reported(vehicle):
    peer = Peer(FcuNode(vehicle, satellites=False))
    peer.parameters["EKF2_GPS_CTRL"] = 0
    peer.content[ALTITUDE] = lambda ms: None
    peer.run(10.0)
    (status,) = newest(peer, FcuStatus)
    assert "ALTITUDE" in status.slow_streams


@pytest.mark.parametrize(
    ("name", "value"), [("EKF2_GPS_CTRL", 7), ("COM_OBL_RC_ACT", 5), ("NAV_RCL_ACT", 1), ("EKF2_GPS_CTRL", None)]
)
def test_parameters_for_a_flight_with_satellites_forbid_one_without(vehicle, name, value):
    peer = Peer(FcuNode(vehicle, satellites=False))
    peer.parameters |= {"EKF2_GPS_CTRL": 0, "COM_OBL_RC_ACT": 1, name: value}
    if value is None:
        del peer.parameters[name]
    peer.run(5.0)
    (status,) = newest(peer, FcuStatus)
    assert name in status.refused and "\n" not in status.refused


def test_with_satellites_the_parameter_is_not_read(vehicle):
    peer = Peer(FcuNode(vehicle))
    peer.run(3.0)
    asked = {m.param_id for _, m in peer.received if m.get_type() == "PARAM_REQUEST_READ"}
    assert "EKF2_GPS_CTRL" not in asked and POSITION in peer.streams

"""What other senders do to PX4 is reported with its sender, and stops no setpoint of this stack."""

import math

import msgspec
import pytest
from fcu_peer import Peer
from msgspec.structs import replace
from pymavlink.dialects.v20 import common

from companion.core.messages import FcuCommand, FcuCommandAck, FcuStatus, FcuText, LinkRx
from companion.core.px4_parameters import rules
from companion.core.vehicle import Fcu
from companion.fcu.fcu_node import FcuNode
from companion.fcu.guards.foreign_messages import RECENT_S
from companion.fcu.guards.ground_filter import BLOCKED
from companion.fcu.link.influence import MESSAGES, Influence

ZEROS, UNKNOWN = [0.0] * 6, [math.nan] * 21
ESTIMATES = {
    "ODOMETRY": common.MAVLink_odometry_message(0, 20, 12, 0, 0, 0, [1.0, 0, 0, 0], *ZEROS, UNKNOWN, UNKNOWN, 0, 0),
    "VISION_POSITION_ESTIMATE": common.MAVLink_vision_position_estimate_message(0, *ZEROS),
    "ATT_POS_MOCAP": common.MAVLink_att_pos_mocap_message(0, [1.0, 0, 0, 0], 0, 0, 0),
    "GPS_INPUT": common.MAVLink_gps_input_message(0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 1, *[0.0] * 6, 12),
    "SET_GPS_GLOBAL_ORIGIN": common.MAVLink_set_gps_global_origin_message(1, 480000000, 110000000, 500000),
    "DISTANCE_SENSOR": common.MAVLink_distance_sensor_message(0, 20, 1000, 300, 0, 3, 0, 0),
    "OPTICAL_FLOW_RAD": common.MAVLink_optical_flow_rad_message(0, 0, 50000, 0.1, 0, 0, 0, 0, 0, 255, 0, 1.0),
    "BATTERY_STATUS": common.MAVLink_battery_status_message(0, 0, 0, 2500, [4200] * 4 + [65535] * 6, 100, 0, 0, 90),
    "LANDING_TARGET": common.MAVLink_landing_target_message(0, 0, 1, 0, 0, 3, 0, 0),
    "EXTERNAL_POSITION_ESTIMATE": common.MAVLink_command_int_message(1, 1, 0, 43003, 0, 0, 0, 0, 1, 1, 0, 0, 0),
    "EXTERNAL_WIND_ESTIMATE": common.MAVLink_command_long_message(1, 1, 43004, 0, 5, 0, 0, 0, 0, 0, 0),
}
CHANGES = {
    "PARAM_SET MPC_LAND_SPEED": common.MAVLink_param_set_message(1, 1, b"MPC_LAND_SPEED", 5.0, 9),
    "PARAM_EXT_SET CAM": common.MAVLink_param_ext_set_message(1, 0, b"CAM", b"1", 1),
    "SET_MODE": common.MAVLink_set_mode_message(1, 1, 0x60000),
    "SET_HOME_POSITION": common.MAVLink_set_home_position_message(1, 0, 0, 0, 0, 0, 0, [1, 0, 0, 0], 0, 0, 0),
    "MISSION_CLEAR_ALL": common.MAVLink_mission_clear_all_message(1, 1, 1),
    "RC_CHANNELS_OVERRIDE": common.MAVLink_rc_channels_override_message(1, 1, *([2000] * 8)),
    "DO_SET_HOME": common.MAVLink_command_int_message(1, 1, 0, 179, 0, 0, 0, 0, 0, 0, 480000000, 110000000, 500),
    "DO_SET_MODE": common.MAVLink_command_long_message(1, 1, 176, 0, 1, 6, 0, 0, 0, 0, 0),
    "COMPONENT_ARM_DISARM": common.MAVLink_command_long_message(0, 0, 400, 0, 0, 21196, 0, 0, 0, 0, 0),
    "NAV_PRECLAND": common.MAVLink_command_long_message(1, 0, 23, 0, 0, 0, 0, 0, 0, 0, 0),
}
WITHOUT_INFLUENCE = [
    common.MAVLink_param_set_message(2, 1, b"MPC_LAND_SPEED", 5.0, 9),  # another aircraft
    common.MAVLink_param_set_message(1, 154, b"MNT_MODE_IN", 5.0, 9),  # a gimbal
    common.MAVLink_command_long_message(1, 100, 176, 0, 1, 6, 0, 0, 0, 0, 0),  # a camera
    common.MAVLink_command_long_message(1, 1, 512, 0, 30, 0, 0, 0, 0, 0, 0),  # requests a message
    common.MAVLink_param_request_list_message(1, 1),
    common.MAVLink_manual_control_message(1, 0, 0, 500, 0, 0),
    common.MAVLink_gps_rtcm_data_message(0, 4, b"RTCM" + bytes(176)),
    common.MAVLink_heartbeat_message(18, 8, 0, 0, 4, 3),
]


def other(message, system=1, component=197):
    return message.pack(common.MAVLink(None, srcSystem=system, srcComponent=component))


def status(peer) -> FcuStatus:
    return [m for m in peer.run(0.2) if isinstance(m, FcuStatus)][-1]


def with_fcu(vehicle, **fields):
    return replace(vehicle, fcu=replace(vehicle.fcu, **fields))


@pytest.mark.parametrize("messages, field", [(ESTIMATES, "foreign_estimate"), (CHANGES, "foreign_change")])
def test_a_measurement_or_change_of_another_sender_is_reported_for_some_seconds(flying, messages, field):
    fields = {"foreign_estimate", "foreign_change", "conflict", "refused"}
    for name, message in messages.items():
        flying.feed(other(message))
        seen = status(flying)
        assert {key: text for key in fields if (text := getattr(seen, key))} == {field: f"{name} of 1/197"}
        flying.run(RECENT_S)
        assert not any(getattr(status(flying), key) for key in fields)


@pytest.mark.parametrize("message", WITHOUT_INFLUENCE, ids=lambda m: m.get_type())
def test_what_does_not_reach_this_flight_controller_or_changes_nothing_is_not_reported(flying, message):
    flying.feed(other(message))
    seen = status(flying)
    assert (seen.foreign_estimate, seen.foreign_change, seen.conflict) == ("", "", "")


def test_a_battery_of_another_system_and_px4s_own_odometry_are_not_reported(flying):
    flying.deliver(ESTIMATES["ODOMETRY"])
    flying.feed(other(ESTIMATES["BATTERY_STATUS"], system=2))
    assert status(flying).foreign_estimate == ""


def test_a_change_by_a_ground_station_on_the_forward_passes_and_is_reported(flying):
    frame = other(CHANGES["PARAM_SET MPC_LAND_SPEED"], 255, 190)
    out = flying.node.handle(LinkRx(stamp_s=flying.now_s, data=frame, ground=True), flying.now_s)
    text = "PARAM_SET MPC_LAND_SPEED of 255/190"
    assert any(frame in m.data for m in out if hasattr(m, "data"))
    assert [m.text for m in out if isinstance(m, FcuText)] == [f"the flight controller was changed by {text}"]
    assert status(flying).foreign_change == text


def test_all_of_the_table_but_changes_by_the_crew_is_blocked_on_the_forward():
    passing = {number for number in MESSAGES if number not in BLOCKED}
    assert {MESSAGES[number] for number in passing} == {Influence.CHANGE}
    assert common.MAVLINK_MSG_ID_SETUP_SIGNING in BLOCKED and common.MAVLINK_MSG_ID_PARAM_SET in passing


def test_a_sender_that_the_vehicle_file_names_is_not_reported_and_others_beside_it_are(vehicle):
    peer = Peer(FcuNode(with_fcu(vehicle, measurement_senders=["1/197"])))
    peer.run(3.0)
    peer.feed(other(ESTIMATES["ODOMETRY"]) + other(ESTIMATES["DISTANCE_SENSOR"]))
    assert status(peer).foreign_estimate == ""
    # in one packet between two of its own
    peer.feed(other(ESTIMATES["ODOMETRY"]) + other(ESTIMATES["GPS_INPUT"], 1, 198) + other(ESTIMATES["ODOMETRY"]))
    assert status(peer).foreign_estimate == "GPS_INPUT of 1/198"
    peer.feed(other(CHANGES["DO_SET_HOME"]))
    assert status(peer).foreign_change == "DO_SET_HOME of 1/197"


def test_with_motion_capture_in_the_vehicle_file_px4_may_follow_it(vehicle):
    assert "EKF2_EV_CTRL" in [rule.name for rule in rules(vehicle)]
    named = with_fcu(vehicle, measurement_senders=["1/197"])
    assert "EKF2_EV_CTRL" not in [rule.name for rule in rules(named)]
    assert "EKF2_EV_CTRL" in [rule.name for rule in rules(named, send_odometry=True)]


@pytest.mark.parametrize("sender", ["197", "1/0", "0/1", "1/256", "1/197/3", "a/b", " 1/197"])
def test_a_sender_that_is_none_is_refused(vehicle, sender):
    tables = msgspec.to_builtins(vehicle.fcu) | {"measurement_senders": [sender]}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(tables, Fcu)


@pytest.mark.parametrize("named", [[], ["2/197"]])
def test_beside_this_stacks_own_odometry_no_flight_begins(vehicle, named):
    peer = Peer(FcuNode(with_fcu(vehicle, send_odometry=True, measurement_senders=named)))
    peer.run(3.0)
    peer.feed(other(ESTIMATES["DISTANCE_SENSOR"], system=2))  # another input of PX4
    assert status(peer).refused == ""
    peer.feed(other(ESTIMATES["VISION_POSITION_ESTIMATE"], system=2))
    assert "VISION_POSITION_ESTIMATE of 2/197" in status(peer).refused
    (answer,) = [
        m for m in peer.publish(FcuCommand(stamp_s=peer.now_s, id=1, action="arm")) if isinstance(m, FcuCommandAck)
    ]
    assert not answer.accepted and "fcu.send_odometry" in answer.reason
    (answer,) = [  # what ends a flight is never refused here
        m
        for m in peer.publish(FcuCommand(stamp_s=peer.now_s, id=2, action="land")) + peer.run(1.0)
        if isinstance(m, FcuCommandAck)
    ]
    assert answer.accepted

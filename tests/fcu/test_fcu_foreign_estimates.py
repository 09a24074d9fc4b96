"""Messages of another sender that move PX4's estimate are reported with their sender, and stop no setpoint."""

import math

import pytest
from fcu_peer import Peer
from msgspec.structs import replace
from pymavlink.dialects.v20 import common

from companion.core.messages import FcuCommand, FcuCommandAck, FcuStatus
from companion.fcu.fcu_node import FcuNode
from companion.fcu.guards.foreign_estimates import RECENT_S

ZEROS, UNKNOWN = [0.0] * 6, [math.nan] * 21
MESSAGES = {
    "ODOMETRY": common.MAVLink_odometry_message(0, 20, 12, 0, 0, 0, [1.0, 0, 0, 0], *ZEROS, UNKNOWN, UNKNOWN, 0, 0),
    "VISION_POSITION_ESTIMATE": common.MAVLink_vision_position_estimate_message(0, *ZEROS),
    "ATT_POS_MOCAP": common.MAVLink_att_pos_mocap_message(0, [1.0, 0, 0, 0], 0, 0, 0),
    "GPS_INPUT": common.MAVLink_gps_input_message(0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 1, *[0.0] * 6, 12),
}


def other(message, system=1, component=197):
    return message.pack(common.MAVLink(None, srcSystem=system, srcComponent=component))


def status(peer) -> FcuStatus:
    return [m for m in peer.run(0.2) if isinstance(m, FcuStatus)][-1]


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_of_another_sender_is_reported_for_some_seconds(flying, name):
    assert status(flying).foreign_estimate == ""
    flying.feed(other(MESSAGES[name]))
    seen = status(flying)
    assert seen.foreign_estimate == f"{name} of 1/197" and seen.conflict == "" and seen.refused == ""
    flying.run(RECENT_S)
    assert status(flying).foreign_estimate == ""


def test_px4s_own_odometry_and_a_heartbeat_of_a_camera_are_no_such_messages(flying):
    flying.deliver(MESSAGES["ODOMETRY"])
    flying.feed(other(common.MAVLink_heartbeat_message(18, 8, 0, 0, 4, 3)))
    assert status(flying).foreign_estimate == ""


def test_beside_this_stacks_own_odometry_no_flight_begins(vehicle):
    peer = Peer(FcuNode(replace(vehicle, fcu=replace(vehicle.fcu, send_odometry=True))))
    peer.run(3.0)
    assert status(peer).refused == ""
    peer.feed(other(MESSAGES["VISION_POSITION_ESTIMATE"], system=2))
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

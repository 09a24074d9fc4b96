"""Messages of cameras and gimbals pass through the fcu node, and nothing else does."""

import pytest
from fcu_peer import Peer
from pymavlink.dialects.v20 import common

from companion.core.messages import CameraRx, CameraTx, LinkRx, LinkTx
from companion.fcu.camera_pass import RawMessage, may_leave
from companion.fcu.fcu_node import FcuNode
from companion.fcu.link.signing import Signer

PAYLOAD = 192
EPOCH_S = 1_500_000_000.0


def frame(message, system=1, component=100) -> bytes:
    return message.pack(common.MAVLink(None, srcSystem=system, srcComponent=component))


def command(number, system=1, component=100, first=0.0) -> CameraTx:
    message = common.MAVLink_command_long_message(system, component, number, 0, first, 0, 0, 0, 0, 0, 0)
    return CameraTx(stamp_s=100.0, number=76, payload=bytes(message.pack(common.MAVLink(None))[10:-2]))


def received(node: FcuNode, *frames: bytes) -> list[CameraRx]:
    out = node.handle(LinkRx(stamp_s=100.0, data=b"".join(frames)), 100.0)
    return [message for message in out if isinstance(message, CameraRx)]


@pytest.fixture
def node(vehicle) -> FcuNode:
    return FcuNode(vehicle, payload_component=PAYLOAD)


HEARTBEAT = common.MAVLink_heartbeat_message(common.MAV_TYPE_CAMERA, 8, 0, 0, 4, 3)
CAPTURED = common.MAVLink_camera_image_captured_message(5, 0, 0, 0, 0, 0, 0, [1, 0, 0, 0], 7, 1, b"a.jpg")
TRIGGER = common.MAVLink_camera_trigger_message(12345, 3)


def ack(system=1, component=PAYLOAD):
    return common.MAVLink_command_ack_message(2000, 0, 0, 0, system, component)


def test_messages_of_a_camera_reach_the_payload_process(node):
    out = received(node, frame(HEARTBEAT), frame(CAPTURED), frame(ack()), frame(HEARTBEAT, component=154))
    assert [(m.component, m.number) for m in out] == [(100, 0), (100, 263), (100, 77), (154, 0)]
    assert all(m.system == 1 and m.stamp_s == 100.0 for m in out)


def test_the_flight_controllers_trigger_and_its_answers_to_the_payload_process_pass(node):
    out = received(node, frame(TRIGGER, component=1), frame(ack(), component=1), frame(ack(component=191), component=1))
    assert [m.number for m in out] == [112, 77]


@pytest.mark.parametrize(
    ("message", "system", "component"),
    [(HEARTBEAT, 1, 1), (HEARTBEAT, 2, 100), (HEARTBEAT, 1, 190), (CAPTURED, 1, 240), (ack(component=191), 1, 100)],
)
def test_what_concerns_no_camera_of_this_aircraft_does_not_pass(node, message, system, component):
    assert received(node, frame(message, system, component)) == []


def test_without_a_payload_process_nothing_passes(vehicle):
    node = FcuNode(vehicle)
    assert received(node, frame(HEARTBEAT), frame(CAPTURED)) == []
    assert list(node.handle(command(2000), 100.0)) == [] and node.counters["camera_refused"] == 1


def test_a_damaged_frame_does_not_pass(node):
    data = bytearray(frame(CAPTURED))
    data[20] ^= 1
    assert received(node, bytes(data)) == []


@pytest.mark.parametrize(
    "message",
    [command(2000), command(512), command(1000, component=154), command(1000, component=1), command(203, component=1),
     command(511, component=1, first=285.0)],
    ids=["capture", "request", "gimbal", "gimbal by PX4", "trigger", "interval"],
)  # fmt: skip
def test_commands_for_cameras_leave_under_the_payload_process_own_id(node, message):
    (sent,) = node.handle(message, 100.0)
    assert isinstance(sent, LinkTx)
    (read,) = common.MAVLink(None).parse_buffer(sent.data)
    assert read.get_srcComponent() == PAYLOAD and read.get_type() == "COMMAND_LONG"


@pytest.mark.parametrize(
    "message",
    [
        command(common.MAV_CMD_COMPONENT_ARM_DISARM, component=1, first=1.0),
        command(common.MAV_CMD_DO_SET_MODE, component=1),
        command(common.MAV_CMD_NAV_LAND, component=0),
        command(common.MAV_CMD_DO_FLIGHTTERMINATION, component=1),
        command(511, component=1, first=30.0),
        command(2000, system=2),
        command(2000, component=190),
        CameraTx(stamp_s=0.0, number=82, payload=b"\1" * 39),  # SET_ATTITUDE_TARGET
        CameraTx(stamp_s=0.0, number=23, payload=b"\1" * 23),  # PARAM_SET
        CameraTx(stamp_s=0.0, number=76, payload=b""),
        CameraTx(stamp_s=0.0, number=0, payload=b"\0\0\0\0\6\10\0\4\3"),  # a ground station's heartbeat
        CameraTx(stamp_s=0.0, number=111, payload=b"\1" * 16),  # an answer of TIMESYNC
        CameraTx(stamp_s=0.0, number=0, payload=b"\1" * 300),
        CameraTx(stamp_s=0.0, number=99999, payload=b"\1"),
    ],
)
def test_a_payload_process_gone_wrong_cannot_reach_the_aircraft(node, message):
    assert not may_leave(message, 1)
    assert list(node.handle(message, 100.0)) == [] and node.counters["camera_refused"] == 1


def test_a_signed_link_signs_the_payload_process_messages_and_drops_unsigned_cameras(vehicle):
    key = bytes(range(32))
    node = FcuNode(vehicle, signer=Signer(key, 100.0, EPOCH_S + 1e6), payload_component=PAYLOAD)
    (sent,) = node.handle(command(2000), 100.0)
    assert sent.data[2] & 1 and received(node, frame(HEARTBEAT)) == []
    signed = common.MAVLink(None, srcSystem=1, srcComponent=100)
    signed.signing.secret_key, signed.signing.sign_outgoing = key, True
    signed.signing.timestamp = int((EPOCH_S + 1e6 - 1_420_070_400) * 1e5)
    assert len(received(node, HEARTBEAT.pack(signed))) == 1


def test_a_raw_message_is_the_message_itself():
    payload = bytes(CAPTURED.pack(common.MAVLink(None))[10:-2])
    mav = common.MAVLink(None, srcSystem=1, srcComponent=100)
    assert RawMessage(263, payload).pack(mav) == CAPTURED.pack(mav)


def test_the_camera_does_not_disturb_the_flight_controllers_stream(vehicle):
    peer = Peer(FcuNode(vehicle, payload_component=PAYLOAD))
    peer.run(2.0)
    lost = peer.node.codec.lost_frames
    received(peer.node, *(frame(HEARTBEAT) for _ in range(50)))
    peer.run(1.0)
    assert peer.node.codec.lost_frames == lost and peer.node.connected

"""Passes messages between the payload process and cameras and gimbals behind the flight controller.

PX4 forwards them between its ports (`MAV_n_FORWARD`). The payload process speaks with a component id of its own, so the answers
to its commands are not taken for answers to the mission's. Only what concerns cameras and gimbals passes: a fault of the
payload process cannot arm, steer or set the aircraft.
"""

from typing import Any, NamedTuple

from pymavlink.dialects.v20 import common

from companion.core.messages import CameraTx
from companion.fcu.link.framing import SEEDS

PAYLOAD_MAX = 255  # bytes of MAVLink
AUTOPILOT = common.MAV_COMP_ID_AUTOPILOT1
CAMERAS = range(common.MAV_COMP_ID_CAMERA, common.MAV_COMP_ID_CAMERA6 + 1)
GIMBALS = (common.MAV_COMP_ID_GIMBAL, *range(common.MAV_COMP_ID_GIMBAL2, common.MAV_COMP_ID_GIMBAL6 + 1))
_COMPONENTS = frozenset((*CAMERAS, *GIMBALS))
_GIMBAL_MESSAGES = (
    common.MAVLINK_MSG_ID_GIMBAL_MANAGER_INFORMATION,
    common.MAVLINK_MSG_ID_GIMBAL_MANAGER_STATUS,
    common.MAVLINK_MSG_ID_GIMBAL_DEVICE_ATTITUDE_STATUS,
)
_OF_COMPONENTS = frozenset(
    (
        common.MAVLINK_MSG_ID_HEARTBEAT,
        common.MAVLINK_MSG_ID_COMMAND_ACK,
        common.MAVLINK_MSG_ID_TIMESYNC,
        common.MAVLINK_MSG_ID_CAMERA_INFORMATION,
        common.MAVLINK_MSG_ID_STORAGE_INFORMATION,
        common.MAVLINK_MSG_ID_CAMERA_CAPTURE_STATUS,
        common.MAVLINK_MSG_ID_CAMERA_IMAGE_CAPTURED,
        *_GIMBAL_MESSAGES,
    )
)
_OF_AUTOPILOT = frozenset((common.MAVLINK_MSG_ID_COMMAND_ACK, common.MAVLINK_MSG_ID_CAMERA_TRIGGER, *_GIMBAL_MESSAGES))
RELEVANT = _OF_COMPONENTS | _OF_AUTOPILOT
_TO_AUTOPILOT = frozenset(
    (
        common.MAV_CMD_DO_DIGICAM_CONTROL,
        common.MAV_CMD_DO_GIMBAL_MANAGER_PITCHYAW,
        common.MAV_CMD_DO_GIMBAL_MANAGER_CONFIGURE,
    )
)
_COMMAND = common.mavlink_map[common.MAVLINK_MSG_ID_COMMAND_LONG]
_ACK = common.mavlink_map[common.MAVLINK_MSG_ID_COMMAND_ACK]


class CameraFrame(NamedTuple):
    """A verified message for the payload process."""

    system: int
    component: int
    number: int
    payload: bytes


class RawMessage(common.MAVLink_message):  # type: ignore[misc]
    """A message whose payload is packed already."""

    def __init__(self, number: int, payload: bytes) -> None:
        super().__init__(number, common.mavlink_map[number].msgname)
        self._packed = payload

    def pack(self, mav: Any) -> bytes:
        """The frame, signed where `mav` signs."""
        frame: bytes = self._pack(mav, SEEDS[self.get_msgId()], self._packed)
        return frame


def concerns_camera(frame: CameraFrame, autopilot: int, payload_ids: tuple[int, int]) -> bool:
    """Whether a verified message is for the payload process.

    autopilot: system of the flight controller, also of the cameras behind it; payload_ids: to whom acks are addressed.
    """
    if frame.system != autopilot:
        return False
    if frame.number == common.MAVLINK_MSG_ID_COMMAND_ACK:
        size = _ACK.unpacker.size
        *_, system, component = _ACK.unpacker.unpack(frame.payload[:size].ljust(size, b"\0"))
        for_payload = (system, component) == payload_ids
        # An older camera's acks name no receiver; those of the flight controller always do.
        unnamed = (system, component) == (0, 0) and frame.component in _COMPONENTS
        return for_payload or unnamed
    if frame.component == AUTOPILOT:
        return frame.number in _OF_AUTOPILOT
    return frame.component in _COMPONENTS and frame.number in _OF_COMPONENTS


def may_leave(message: CameraTx, autopilot: int) -> bool:
    """Whether a message of the payload process concerns cameras and gimbals alone."""
    if len(message.payload) > PAYLOAD_MAX:
        return False
    if message.number == common.MAVLINK_MSG_ID_HEARTBEAT:  # as a ground station it would change what PX4 does
        return message.payload[4:5] == bytes([common.MAV_TYPE_ONBOARD_CONTROLLER])
    if message.number == common.MAVLINK_MSG_ID_TIMESYNC:  # a request; PX4 would take an answer for its own
        return message.payload[:8] == bytes(8)
    if message.number != common.MAVLINK_MSG_ID_COMMAND_LONG:
        return False
    size = _COMMAND.unpacker.size
    values = _COMMAND.unpacker.unpack(message.payload[:size].ljust(size, b"\0"))
    command, system, component = values[7:10]
    if system != autopilot:
        return False
    if component == AUTOPILOT:
        interval = command == common.MAV_CMD_SET_MESSAGE_INTERVAL and values[0] in _GIMBAL_MESSAGES
        return command in _TO_AUTOPILOT or interval
    return component in _COMPONENTS

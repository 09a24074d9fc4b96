"""THE table of the messages by which another sender can influence the flight controller.

What PX4 1.17 takes from any sender (`MavlinkReceiver::handle_message`, `Commander::handle_command`, EKF2) and what
changes where it flies, what it measures or how it is set. `Codec` reports such messages of others; `GroundFilter` keeps
most of them from passing.

Left out: MANUAL_CONTROL, because a joystick is a pilot; GPS_RTCM_DATA, the corrections of an RTK base, because a wrong
one spoils the fix, which the receiver reports; TIMESYNC, which every companion sends; and requests that change nothing.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from pymavlink.dialects.v20 import common

from companion.core.text import plain


class Influence(StrEnum):
    """What a message changes."""

    SETPOINT = "setpoint"  # where PX4 flies: a conflict of authority
    POSITION = "position"  # where the estimate of PX4 is
    MEASUREMENT = "measurement"  # what PX4 measures: range, flow, battery, wind
    STICKS = "sticks"  # what PX4 takes for RC
    CHANGE = "change"  # mode, arming, home, parameters, mission and fence, calibration


class ForeignMessage(NamedTuple):
    """A message of the table by another sender."""

    influence: Influence
    system: int
    component: int
    name: str  # what it is, for the crew: "ODOMETRY", "PARAM_SET MPC_LAND_SPEED", "DO_SET_HOME"

    @property
    def text(self) -> str:
        return f"{self.name} of {self.system}/{self.component}"


_SETPOINT = (
    common.MAVLINK_MSG_ID_SET_ATTITUDE_TARGET,
    common.MAVLINK_MSG_ID_SET_POSITION_TARGET_LOCAL_NED,
    common.MAVLINK_MSG_ID_SET_POSITION_TARGET_GLOBAL_INT,
    common.MAVLINK_MSG_ID_SET_ACTUATOR_CONTROL_TARGET,
)
_POSITION = (
    common.MAVLINK_MSG_ID_VISION_POSITION_ESTIMATE,
    common.MAVLINK_MSG_ID_GLOBAL_VISION_POSITION_ESTIMATE,
    common.MAVLINK_MSG_ID_VICON_POSITION_ESTIMATE,
    common.MAVLINK_MSG_ID_VISION_SPEED_ESTIMATE,
    common.MAVLINK_MSG_ID_ODOMETRY,
    common.MAVLINK_MSG_ID_ATT_POS_MOCAP,
    common.MAVLINK_MSG_ID_GPS_INPUT,
    common.MAVLINK_MSG_ID_GLOBAL_POSITION_SENSOR,
    common.MAVLINK_MSG_ID_HIL_GPS,
    common.MAVLINK_MSG_ID_HIL_STATE_QUATERNION,
    common.MAVLINK_MSG_ID_SET_GPS_GLOBAL_ORIGIN,
)
_MEASUREMENT = (
    common.MAVLINK_MSG_ID_DISTANCE_SENSOR,  # comes back as a range of the flight controller's
    common.MAVLINK_MSG_ID_OBSTACLE_DISTANCE,
    common.MAVLINK_MSG_ID_OPTICAL_FLOW,
    common.MAVLINK_MSG_ID_OPTICAL_FLOW_RAD,
    common.MAVLINK_MSG_ID_LANDING_TARGET,  # EKF2 takes the velocity against a target that stands still
    common.MAVLINK_MSG_ID_BATTERY_STATUS,
    common.MAVLINK_MSG_ID_HIL_SENSOR,
    common.MAVLINK_MSG_ID_HIL_OPTICAL_FLOW,
)
_STICKS = (common.MAVLINK_MSG_ID_RC_CHANNELS_OVERRIDE, common.MAVLINK_MSG_ID_HIL_RC_INPUTS_RAW)
_CHANGE = (
    common.MAVLINK_MSG_ID_PARAM_SET,
    common.MAVLINK_MSG_ID_PARAM_EXT_SET,
    common.MAVLINK_MSG_ID_PARAM_MAP_RC,
    common.MAVLINK_MSG_ID_SET_MODE,
    common.MAVLINK_MSG_ID_SET_HOME_POSITION,
    common.MAVLINK_MSG_ID_SETUP_SIGNING,
    common.MAVLINK_MSG_ID_SERIAL_CONTROL,  # PX4's shell
    # missions, fences and rally points
    common.MAVLINK_MSG_ID_MISSION_COUNT,
    common.MAVLINK_MSG_ID_MISSION_ITEM,
    common.MAVLINK_MSG_ID_MISSION_ITEM_INT,
    common.MAVLINK_MSG_ID_MISSION_WRITE_PARTIAL_LIST,
    common.MAVLINK_MSG_ID_MISSION_CLEAR_ALL,
    common.MAVLINK_MSG_ID_MISSION_SET_CURRENT,
)
MESSAGES: dict[int, Influence] = {
    number: influence
    for influence, numbers in (
        (Influence.SETPOINT, _SETPOINT),
        (Influence.POSITION, _POSITION),
        (Influence.MEASUREMENT, _MEASUREMENT),
        (Influence.STICKS, _STICKS),
        (Influence.CHANGE, _CHANGE),
    )
    for number in numbers
}

# Of COMMAND_LONG and COMMAND_INT; those of PX4 alone have no name in the dialect.
_COMMANDS_OF_PX4 = {23: "NAV_PRECLAND", 620: "EXTERNAL_ATTITUDE_ESTIMATE", 43004: "EXTERNAL_WIND_ESTIMATE"}
COMMANDS: dict[int, Influence] = {
    common.MAV_CMD_EXTERNAL_POSITION_ESTIMATE: Influence.POSITION,
    620: Influence.MEASUREMENT,
    43004: Influence.MEASUREMENT,
} | dict.fromkeys(
    (
        # mode and flight
        common.MAV_CMD_DO_SET_MODE,
        common.MAV_CMD_DO_SET_STANDARD_MODE,
        common.MAV_CMD_COMPONENT_ARM_DISARM,
        common.MAV_CMD_DO_FLIGHTTERMINATION,
        common.MAV_CMD_DO_PARACHUTE,
        common.MAV_CMD_NAV_TAKEOFF,
        common.MAV_CMD_NAV_VTOL_TAKEOFF,
        common.MAV_CMD_NAV_LAND,
        23,
        common.MAV_CMD_NAV_RETURN_TO_LAUNCH,
        common.MAV_CMD_DO_REPOSITION,
        common.MAV_CMD_DO_CHANGE_ALTITUDE,
        common.MAV_CMD_DO_CHANGE_SPEED,
        common.MAV_CMD_DO_ORBIT,
        common.MAV_CMD_DO_FIGURE_EIGHT,
        common.MAV_CMD_DO_VTOL_TRANSITION,
        common.MAV_CMD_DO_LAND_START,
        common.MAV_CMD_DO_GO_AROUND,
        common.MAV_CMD_DO_PAUSE_CONTINUE,
        common.MAV_CMD_MISSION_START,
        # how it is set
        common.MAV_CMD_DO_SET_HOME,
        common.MAV_CMD_DO_FENCE_ENABLE,
        common.MAV_CMD_DO_SET_ACTUATOR,
        common.MAV_CMD_ACTUATOR_TEST,
        common.MAV_CMD_CONFIGURE_ACTUATOR,
        common.MAV_CMD_DO_MOTOR_TEST,
        common.MAV_CMD_INJECT_FAILURE,
        common.MAV_CMD_PREFLIGHT_CALIBRATION,
        common.MAV_CMD_PREFLIGHT_SET_SENSOR_OFFSETS,
        common.MAV_CMD_FIXED_MAG_CAL_YAW,
        common.MAV_CMD_PREFLIGHT_STORAGE,
        common.MAV_CMD_PREFLIGHT_UAVCAN,
        common.MAV_CMD_PREFLIGHT_REBOOT_SHUTDOWN,
        common.MAV_CMD_START_RX_PAIR,
        common.MAV_CMD_CONTROL_HIGH_LATENCY,
    ),
    Influence.CHANGE,
)
_WITH_COMMAND = (common.MAVLINK_MSG_ID_COMMAND_LONG, common.MAVLINK_MSG_ID_COMMAND_INT)
# PX4 takes a battery of its own system only
_OF_OWN_SYSTEM = (common.MAVLINK_MSG_ID_BATTERY_STATUS,)
_AUTOPILOT = common.MAV_COMP_ID_AUTOPILOT1


class _Reader(NamedTuple):
    """How what counts of one message is read from its payload."""

    size: int
    unpack: Callable[[bytes], tuple[object, ...]]
    fields: dict[str, int]  # place of a field among the unpacked values

    def get(self, payload: bytes, field: str, absent: object = 0) -> object:
        if field not in self.fields:
            return absent
        return self.unpack(payload[: self.size].ljust(self.size, b"\0"))[self.fields[field]]


def _reader(number: int) -> _Reader:
    message = common.mavlink_map[number]
    types = dict(zip(message.fieldnames, message.fieldtypes, strict=True))
    fields, place = {}, 0
    for name, length in zip(message.ordered_fieldnames, message.lengths, strict=True):
        fields[name] = place
        place += 1 if types[name] == "char" else length  # a text is one value of many bytes
    return _Reader(message.unpacker.size, message.unpacker.unpack, fields)


_READERS = {number: _reader(number) for number in (*MESSAGES, *_WITH_COMMAND)}


def influence_of(number: int, payload: bytes, sender: tuple[int, int], autopilot: int) -> ForeignMessage | None:
    """What a verified frame of another sender does to the flight controller; None: nothing.

    sender: its system and component; autopilot: system of the flight controller. Several aircraft may share one link: a
    message for another one has no influence, as in PX4's receiver.
    """
    reader = _READERS.get(number)
    if reader is None:
        return None
    if reader.get(payload, "target_system") not in (0, autopilot):
        return None
    if reader.get(payload, "target_component") not in (0, _AUTOPILOT):
        return None
    if number in _OF_OWN_SYSTEM and sender[0] != autopilot:
        return None
    name = common.mavlink_map[number].msgname
    if number not in _WITH_COMMAND:
        parameter = reader.get(payload, "param_id", b"")
        if isinstance(parameter, bytes) and parameter:
            name = f"{name} {plain(parameter.split(bytes(1), 1)[0].decode('ascii', 'replace'))}"
        return ForeignMessage(MESSAGES[number], *sender, name)
    command = reader.get(payload, "command")
    if not isinstance(command, int) or command not in COMMANDS:
        return None
    entry = common.enums["MAV_CMD"].get(command)
    named = _COMMANDS_OF_PX4.get(command) or (entry.name.removeprefix("MAV_CMD_") if entry else str(command))
    return ForeignMessage(COMMANDS[command], *sender, named)

"""The receiving end of the emulator's MAVLink: bytes to setpoints, commands, parameters and answers, as PX4 1.17.

Corrupted bytes and messages for other systems are counted, never an error. NED/FRD of the wire becomes ENU/FLU here.
"""

import math
import struct
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from pymavlink.dialects.v20 import common

from sitl.autopilot.commands import CommandExecutor
from sitl.autopilot.conversion import Vec3, Vector, ned, q_enu
from sitl.autopilot.flight_stack import AttitudeSetpoint, FlightStack, RateSetpoint
from sitl.autopilot.parameters import Parameters
from sitl.autopilot.position import FREE, PositionSetpoint
from sitl.autopilot.streams import TelemetryStreams
from sitl.autopilot.texts import Texts
from sitl.autopilot.wire import STX, MavResult, MavSeverity, Writer, layout

NAN = math.nan
INT32, UINT32, REAL32 = 6, 5, 9  # MAV_PARAM_TYPE
PARAMETERS_PER_STEP = 4  # PX4 sends up to 20 in a burst of its slower loop
HASH_NAME, HASH_INDEX = "_HASH_CHECK", -1
LOCAL_NED, BODY_NED = 1, 8  # MAV_FRAME
GLOBAL_FRAMES = frozenset((0, 3, 5, 6, 10, 11))
BUFFER_MAX = 65536  # bytes parsed at a time; more can only be an attack or a mistake
FTP_NAK, FTP_FILE_NOT_FOUND = 129, 10
# Bits of a type_mask, set: the field is not used.
NO_ROLL_PITCH_RATE, NO_YAW_RATE, NO_THRUST, NO_ATTITUDE = 3, 4, 64, 128  # ATTITUDE_TARGET_TYPEMASK
NO_POSITION, NO_VELOCITY, NO_FORCE, FORCE_SET = 1, 8, 64, 512  # POSITION_TARGET_TYPEMASK, the first of three bits
NO_SETPOINT_YAW, NO_SETPOINT_YAW_RATE = 1024, 2048


class Target(Enum):
    """The target systems with which a message is accepted."""

    ANY = auto()  # checked by the handler, or the message names no receiver
    THIS_SYSTEM = auto()
    THIS_OR_ALL_SYSTEMS = auto()


class Handler(NamedTuple):
    """``handle(message, now_s)`` returns False for a message that is counted as ignored."""

    handle: Callable[[common.MAVLink_message, float], bool]
    target: Target = Target.ANY


class Receiver:
    """Parses bytes and passes each message to its handler.

    ``bad_data`` counts bytes that made no message, ``ignored`` messages for other systems or without meaning here,
    ``errors`` messages whose numbers made their handling fail.
    """

    def __init__(
        self,
        system_id: int,
        component_id: int,
        stack: FlightStack,
        writer: Writer,
        streams: TelemetryStreams,
        texts: Texts,
    ) -> None:
        self._system_id, self._component_id = system_id, component_id
        self._stack, self._writer, self._texts = stack, writer, texts
        self._commands = CommandExecutor(stack, writer, streams)
        self._parameters = ParameterProtocol(stack.parameters, writer)
        self._parser = common.MAVLink(None, srcSystem=system_id, srcComponent=component_id)
        self._parser.robust_parsing = True
        self._instance = 0
        self.bad_data = 0
        self.ignored = 0
        self.received = 0
        self.errors = 0
        parameters = self._parameters
        self._handlers = {
            "COMMAND_LONG": Handler(self._command_long),
            "COMMAND_INT": Handler(self._command_int),
            "SET_MODE": Handler(self._set_mode),
            "SET_ATTITUDE_TARGET": Handler(self._attitude_target, Target.THIS_OR_ALL_SYSTEMS),
            "SET_POSITION_TARGET_LOCAL_NED": Handler(self._position_target, Target.THIS_OR_ALL_SYSTEMS),
            "PARAM_REQUEST_LIST": Handler(parameters.send_all, Target.THIS_SYSTEM),
            "PARAM_REQUEST_READ": Handler(parameters.send_one, Target.THIS_SYSTEM),
            "PARAM_SET": Handler(parameters.set, Target.THIS_SYSTEM),
            "MANUAL_CONTROL": Handler(self._manual_control),
            "TIMESYNC": Handler(self._timesync),
            "PING": Handler(self._ping),
            "HEARTBEAT": Handler(self._heartbeat),
            "FILE_TRANSFER_PROTOCOL": Handler(self._file_transfer, Target.THIS_OR_ALL_SYSTEMS),
            "MISSION_REQUEST_LIST": Handler(self._mission_request_list, Target.THIS_OR_ALL_SYSTEMS),
            "MISSION_COUNT": Handler(self._mission_count, Target.THIS_OR_ALL_SYSTEMS),
            "MISSION_CLEAR_ALL": Handler(self._mission_clear_all, Target.THIS_OR_ALL_SYSTEMS),
            "MISSION_REQUEST": Handler(self._mission_request, Target.THIS_OR_ALL_SYSTEMS),
            "MISSION_REQUEST_INT": Handler(self._mission_request, Target.THIS_OR_ALL_SYSTEMS),
        }

    def receive(self, data: bytes, now_s: float, instance: int = 0) -> None:
        """Take bytes that arrived at now_s on the MAVLink link with this instance number."""
        self._instance = instance
        chunk = data[:BUFFER_MAX]
        self.bad_data += len(data) - len(chunk)
        while True:
            try:
                message = self._parser.parse_char(chunk)
            except Exception:  # noqa: BLE001 - no exception of the parser may stop the autopilot
                self.bad_data += 1
                message = None
                if chunk == b"":
                    return
            chunk = b""
            if message is None:
                return
            kind = message.get_type()
            if kind == "BAD_DATA":
                self.bad_data += len(message.data)
                continue
            if kind.startswith("UNKNOWN"):
                self.ignored += 1
                continue
            self._dispatch(message, kind, now_s)

    def run(self, now_s: float) -> None:
        """Send requested parameters."""
        self._parameters.run()

    def _dispatch(self, message: common.MAVLink_message, kind: str, now_s: float) -> None:
        self.received += 1
        own = (self._system_id, self._component_id)
        handler = self._handlers.get(kind)
        if handler is None or (message.get_srcSystem(), message.get_srcComponent()) == own:
            self.ignored += 1
            return
        if handler.target is not Target.ANY:
            broadcast = handler.target is Target.THIS_OR_ALL_SYSTEMS
            if not self._is_target(message.target_system, message.target_component, broadcast):
                self.ignored += 1
                return
        try:
            used = handler.handle(message, now_s)
        except (ValueError, OverflowError, struct.error, UnicodeError):
            self.errors += 1  # impossible numbers (NaN as a count, infinite latitude)
            return
        self.ignored += not used

    def _is_target(self, system: int, component: int, broadcast: bool) -> bool:
        return (system == self._system_id or (broadcast and system == 0)) and component in (0, self._component_id)

    # --- commands -------------------------------------------------------------------------------------------------

    def _command_long(self, m: common.MAVLink_command_long_message, now_s: float) -> bool:
        return self._command(m, [m.param1, m.param2, m.param3, m.param4, m.param5, m.param6, m.param7], now_s)

    def _command_int(self, m: common.MAVLink_command_int_message, now_s: float) -> bool:
        scale = 1e-7 if m.frame in GLOBAL_FRAMES else 1e-4
        x, y = (NAN if value == 0x7FFFFFFF else value * scale for value in (m.x, m.y))
        return self._command(m, [m.param1, m.param2, m.param3, m.param4, x, y, m.z], now_s)

    def _command(self, m: common.MAVLink_message, p: list[float], now_s: float) -> bool:
        number: int = m.command
        broadcast = number == common.MAV_CMD_REQUEST_AUTOPILOT_CAPABILITIES
        if not self._is_target(m.target_system, m.target_component, broadcast):
            return False
        if number == common.MAV_CMD_DO_SET_MODE:
            # PX4's receiver acknowledges the reception; the decision of its commander follows as a second one
            self._acknowledge(m, number, MavResult.ACCEPTED)
        self._acknowledge(m, number, self._commands.execute(number, p, now_s))
        return True

    def _set_mode(self, m: common.MAVLink_set_mode_message, now_s: float) -> bool:
        if m.target_system not in (0, self._system_id):
            return False
        custom_mode = m.custom_mode
        p = [m.base_mode, custom_mode >> 16 & 0xFF, custom_mode >> 24 & 0xFF]
        self._acknowledge(m, common.MAV_CMD_DO_SET_MODE, self._commands.set_mode(p, now_s))
        return True

    def _acknowledge(self, m: common.MAVLink_message, number: int, result: MavResult) -> None:
        self._writer.send("COMMAND_ACK", number, result, 0, 0, m.get_srcSystem(), m.get_srcComponent())

    # --- setpoints ------------------------------------------------------------------------------------------------

    def _attitude_target(self, m: common.MAVLink_set_attitude_target_message, now_s: float) -> bool:
        mask = m.type_mask
        attitude, rates = not mask & NO_ATTITUDE, not mask & NO_ROLL_PITCH_RATE
        used = [*m.q] if attitude else []
        used += [m.body_roll_rate, m.body_pitch_rate] if rates else []
        used += [] if mask & NO_THRUST else [m.thrust]
        norm = math.sqrt(sum(v * v for v in m.q))
        if not (attitude or rates) or not all(map(math.isfinite, used)) or (attitude and not norm > 0.1):
            return False
        thrust = 0.0 if mask & NO_THRUST else min(max(m.thrust, 0.0), 1.0)
        yaw_rate = NAN if mask & NO_YAW_RATE or not math.isfinite(m.body_yaw_rate) else -m.body_yaw_rate
        if attitude:
            q = q_enu([v / norm for v in m.q])
            self._stack.set_offboard(AttitudeSetpoint(q, yaw_rate, thrust), now_s)
        else:
            rates_B = (m.body_roll_rate, -m.body_pitch_rate, yaw_rate)
            self._stack.set_offboard(RateSetpoint(rates_B, thrust), now_s)
        return True

    def _position_target(self, m: common.MAVLink_set_position_target_local_ned_message, now_s: float) -> bool:
        mask, stack = m.type_mask, self._stack

        def pick(values: Vec3, first_bit: int) -> Vec3:
            x, y, z = (NAN if mask & first_bit << i else v for i, v in enumerate(values))
            return x, y, z

        p: Vector = pick((m.x, m.y, m.z), NO_POSITION)
        v: Vector = pick((m.vx, m.vy, m.vz), NO_VELOCITY)
        f: Vector = pick((m.afx, m.afy, m.afz), NO_FORCE)
        if m.coordinate_frame == BODY_NED:
            p = FREE
            v = FREE if any(map(math.isnan, v)) else stack.turn_to_ned(v, only_yaw=True)
            f = FREE if any(map(math.isnan, f)) else stack.turn_to_ned(f, only_yaw=False)
        elif m.coordinate_frame != LOCAL_NED:
            text = f"SET_POSITION_TARGET_LOCAL_NED coordinate frame {m.coordinate_frame} unsupported\t"
            stack.send_text(MavSeverity.CRITICAL, text)
            return True
        moving = any(map(math.isfinite, (*p, *v)))
        pushing = any(map(math.isfinite, f))
        if not moving and not pushing:
            stack.send_text(MavSeverity.CRITICAL, "SET_POSITION_TARGET_LOCAL_NED invalid\t")
            return True
        if pushing and mask & FORCE_SET:
            stack.send_text(MavSeverity.CRITICAL, "SET_POSITION_TARGET_LOCAL_NED force not supported\t")
            return True
        yaw = NAN if mask & NO_SETPOINT_YAW else math.pi / 2 - m.yaw
        yaw_rate = NAN if mask & NO_SETPOINT_YAW_RATE else -m.yaw_rate
        stack.set_offboard(PositionSetpoint(ned(p), ned(v), ned(f), yaw, yaw_rate), now_s, needs_position=moving)
        return True

    def _manual_control(self, m: common.MAVLink_manual_control_message, now_s: float) -> bool:
        """A joystick, on a link that counts as one source. PX4 takes an axis beyond its range as centred."""
        if m.target not in (0, self._system_id):
            return False
        forward, right, turn = (v / 1000.0 if -1000 <= v <= 1000 else 0.0 for v in (m.x, m.y, m.r))
        up = m.z / 500.0 - 1.0 if 0 <= m.z <= 1000 else 0.0
        self._stack.sticks.put_joystick(self._instance, (right, forward, up, turn))
        return True

    # --- small services -------------------------------------------------------------------------------------------

    def _timesync(self, m: common.MAVLink_timesync_message, now_s: float) -> bool:
        if m.tc1 == 0:
            self._writer.send("TIMESYNC", self._stack.boot_us(now_s) * 1000, m.ts1)
        return True

    def _ping(self, m: common.MAVLink_ping_message, now_s: float) -> bool:
        if m.target_system == 0 and m.target_component == 0:
            self._writer.send("PING", m.time_usec, m.seq, m.get_srcSystem(), m.get_srcComponent())
        return True

    def _heartbeat(self, m: common.MAVLink_heartbeat_message, now_s: float) -> bool:
        if m.type == common.MAV_TYPE_GCS:
            self._texts.ground_station_s = now_s
        return True

    def _file_transfer(self, m: common.MAVLink_file_transfer_protocol_message, now_s: float) -> bool:
        """There are no files: every request is refused as PX4 refuses a missing file."""
        request = bytes(m.payload[:12])
        seq, session, opcode = struct.unpack("<HBB", request[:4])
        answer = struct.pack("<HBBBBBBI", (seq + 1) & 0xFFFF, session, FTP_NAK, 1, opcode, 0, 0, 0)
        body = (answer + bytes([FTP_FILE_NOT_FOUND])).ljust(251, b"\0")
        header = bytes([0, m.get_srcSystem(), m.get_srcComponent()])
        self._writer.send_payload(layout("FILE_TRANSFER_PROTOCOL"), header + body)
        return True

    def _mission_request_list(self, m: common.MAVLink_mission_request_list_message, now_s: float) -> bool:
        self._writer.send("MISSION_COUNT", 0, m.get_srcSystem(), m.get_srcComponent(), m.mission_type)
        return True

    def _mission_count(self, m: common.MAVLink_mission_count_message, now_s: float) -> bool:
        none = m.count == 0
        return self._mission_ack(m, common.MAV_MISSION_ACCEPTED if none else common.MAV_MISSION_NO_SPACE)

    def _mission_clear_all(self, m: common.MAVLink_mission_clear_all_message, now_s: float) -> bool:
        return self._mission_ack(m, common.MAV_MISSION_ACCEPTED)

    def _mission_request(self, m: common.MAVLink_message, now_s: float) -> bool:
        return self._mission_ack(m, common.MAV_MISSION_INVALID_SEQUENCE)

    def _mission_ack(self, m: common.MAVLink_message, result: int) -> bool:
        self._writer.send("MISSION_ACK", m.get_srcSystem(), m.get_srcComponent(), result, m.mission_type)
        return True


class ParameterProtocol:
    """PX4's parameter protocol: lists, reads and sets; `run` sends a few of a requested list."""

    def __init__(self, parameters: Parameters, writer: Writer) -> None:
        self._parameters, self._writer = parameters, writer
        self._due: deque[int] = deque()

    def run(self) -> None:
        """Send the next parameters of a requested list."""
        for _ in range(min(PARAMETERS_PER_STEP, len(self._due))):
            self._send(self._due.popleft())

    def send_all(self, m: common.MAVLink_param_request_list_message, now_s: float) -> bool:
        """PARAM_REQUEST_LIST."""
        self._due.clear()
        self._due.extend(range(HASH_INDEX, len(self._parameters)))
        return True

    def send_one(self, m: common.MAVLink_param_request_read_message, now_s: float) -> bool:
        """PARAM_REQUEST_READ, by index or by name."""
        parameters = self._parameters
        if m.param_index >= 0:
            if m.param_index < len(parameters):
                self._send(m.param_index)
        elif m.param_id == HASH_NAME:
            self._send(HASH_INDEX)
        elif m.param_id in parameters:
            self._send(parameters.names.index(m.param_id))
        return True

    def set(self, m: common.MAVLink_param_set_message, now_s: float) -> bool:
        """PARAM_SET; setting the hash stops a running list."""
        parameters, name = self._parameters, m.param_id
        if name == HASH_NAME:
            self._due.clear()
            return True
        if name not in parameters or m.param_type != (INT32 if parameters.is_integer(name) else REAL32):
            return False
        # from the payload itself: as a number, some integers' bits would be NaNs and would be changed
        frame = bytes(m.get_msgbuf())
        start = 10 if frame[0] == STX else 6  # MAVLink 2 or 1
        raw = frame[start : start + 4]
        parameters.set(name, struct.unpack("<i" if parameters.is_integer(name) else "<f", raw)[0])
        self._send(parameters.names.index(name))
        return True

    def _send(self, index: int) -> None:
        parameters = self._parameters
        if index == HASH_INDEX:
            raw, name, kind, index = struct.pack("<I", parameters.hash()), HASH_NAME, UINT32, 65535
        else:
            name = parameters.names[index]
            raw, kind = parameters.as_bytes(name), INT32 if parameters.is_integer(name) else REAL32
        payload = raw + struct.pack("<HH16sB", len(parameters), index, name.encode(), kind)
        self._writer.send_payload(layout("PARAM_VALUE"), payload)

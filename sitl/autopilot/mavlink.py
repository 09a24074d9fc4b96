"""What the autopilot hears: MAVLink bytes to actions and answers, as PX4 1.17 gives them.

Broken bytes and messages for others are counted, never an error. Everything NED/FRD of the wire is turned into
ENU/FLU here.
"""

import math
import struct
from collections import deque

from pymavlink.dialects.v20 import common

from sitl.autopilot.conversion import local, q_enu
from sitl.autopilot.mode_table import ACCEPTED, DENIED, FAILED, MODE_OF, TEMPORARILY_REJECTED, UNSUPPORTED
from sitl.autopilot.modes import FORCE_MAGIC
from sitl.autopilot.position import Setpoint
from sitl.autopilot.services import Services
from sitl.autopilot.wire import STX, layout

NAN = math.nan
INT32, UINT32, REAL32 = 6, 5, 9  # MAV_PARAM_TYPE
PARAMETERS_PER_STEP = 4  # PX4 sends up to 20 in a burst of its slower loop
HASH_NAME = "_HASH_CHECK"
LOCAL_NED, BODY_NED = 1, 8  # MAV_FRAME
GLOBAL_FRAMES = frozenset((0, 3, 5, 6, 10, 11))
BUFFER_MAX = 65536  # bytes taken at a time; more can only be an attack or a mistake


class Sink:
    """The file pymavlink wants; nothing is sent through it."""

    def write(self, data) -> None:
        pass


class Receiver(Services):
    """Parses bytes and acts on the autopilot.

    ``bad_data`` counts bytes that made no message, ``ignored`` messages for somebody else or without meaning here,
    ``errors`` messages whose numbers made their handling fail.
    """

    def __init__(self, autopilot) -> None:
        self._a = autopilot
        self._parser = common.MAVLink(Sink(), srcSystem=autopilot.system_id, srcComponent=autopilot.component_id)
        self._parser.robust_parsing = True
        self.bad_data = 0
        self.ignored = 0
        self.received = 0
        self.errors = 0
        self._parameters_due: deque[int] = deque()
        self._handlers = {
            name.removeprefix("_on_").upper(): getattr(self, name) for name in dir(self) if name.startswith("_on_")
        }
        self._commands = {
            common.MAV_CMD_COMPONENT_ARM_DISARM: self._arm_disarm,
            common.MAV_CMD_DO_SET_MODE: self._do_set_mode,
            common.MAV_CMD_NAV_TAKEOFF: self._takeoff,
            common.MAV_CMD_NAV_LAND: self._land,
            common.MAV_CMD_NAV_RETURN_TO_LAUNCH: self._return,
            common.MAV_CMD_DO_SET_HOME: self._set_home,
            common.MAV_CMD_DO_REPOSITION: self._reposition,
            common.MAV_CMD_DO_CHANGE_SPEED: self._change_speed,
            common.MAV_CMD_DO_FLIGHTTERMINATION: self._terminate,
            common.MAV_CMD_MISSION_START: lambda p, now_s: DENIED,
            common.MAV_CMD_SET_MESSAGE_INTERVAL: self._set_interval,
            common.MAV_CMD_GET_MESSAGE_INTERVAL: self._get_interval,
            common.MAV_CMD_REQUEST_MESSAGE: self._request_message,
            common.MAV_CMD_REQUEST_AUTOPILOT_CAPABILITIES: lambda p, now_s: self._send_once("AUTOPILOT_VERSION"),
            common.MAV_CMD_GET_HOME_POSITION: lambda p, now_s: self._send_once("HOME_POSITION"),
            common.MAV_CMD_REQUEST_FLIGHT_INFORMATION: lambda p, now_s: self._send_once("FLIGHT_INFORMATION"),
            common.MAV_CMD_PREFLIGHT_STORAGE: self._when_disarmed,
            common.MAV_CMD_PREFLIGHT_CALIBRATION: self._calibrate,
            common.MAV_CMD_PREFLIGHT_REBOOT_SHUTDOWN: lambda p, now_s: DENIED if round(p[0]) else ACCEPTED,
            common.MAV_CMD_RUN_PREARM_CHECKS: self._when_disarmed,
        }

    def receive(self, data: bytes, now_s: float) -> None:
        """Take bytes that arrived at now_s."""
        chunk = data[:BUFFER_MAX]
        self.bad_data += len(data) - len(chunk)
        while True:
            try:
                message = self._parser.parse_char(chunk)
            except Exception:  # noqa: BLE001 - whatever a parser makes of garbage must not stop the autopilot
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

    def _dispatch(self, message, kind: str, now_s: float) -> None:
        self.received += 1
        own = (self._a.system_id, self._a.component_id)
        handler = self._handlers.get(kind)
        if handler is None or (message.get_srcSystem(), message.get_srcComponent()) == own:
            self.ignored += 1
            return
        try:
            handler(message, now_s)
        except (ValueError, OverflowError, struct.error, UnicodeError):
            self.errors += 1  # numbers that cannot be (NaN as a count, infinite latitude)

    def run(self, now_s: float) -> None:
        """Send parameters that were asked for."""
        for _ in range(min(PARAMETERS_PER_STEP, len(self._parameters_due))):
            self._send_parameter(self._parameters_due.popleft())

    def _for_us(self, message, broadcast: bool = True) -> bool:
        system, component = message.target_system, getattr(message, "target_component", 0)
        good = (system == self._a.system_id or (broadcast and system == 0)) and component in (0, self._a.component_id)
        self.ignored += not good
        return good

    # --- parameters -----------------------------------------------------------------------------------------------

    def _send_parameter(self, index: int) -> None:
        parameters = self._a.parameters
        if index < 0:
            raw, name, kind, index = struct.pack("<I", parameters.hash()), HASH_NAME, UINT32, 65535
        else:
            name = parameters.names[index]
            raw, kind = parameters.as_bytes(name), INT32 if parameters.is_integer(name) else REAL32
        payload = raw + struct.pack("<HH16sB", len(parameters), index, name.encode(), kind)
        self._a.writer.send_payload(layout("PARAM_VALUE"), payload)

    def _on_param_request_list(self, m, now_s: float) -> None:
        if self._for_us(m, broadcast=False):
            self._parameters_due.clear()
            self._parameters_due.extend(range(-1, len(self._a.parameters)))

    def _on_param_request_read(self, m, now_s: float) -> None:
        if not self._for_us(m, broadcast=False):
            return
        parameters = self._a.parameters
        if m.param_index >= 0:
            if m.param_index < len(parameters):
                self._send_parameter(m.param_index)
        elif m.param_id == HASH_NAME:
            self._send_parameter(-1)
        elif m.param_id in parameters:
            self._send_parameter(parameters.names.index(m.param_id))

    def _on_param_set(self, m, now_s: float) -> None:
        if not self._for_us(m, broadcast=False):
            return
        parameters, name = self._a.parameters, m.param_id
        if name == HASH_NAME:
            self._parameters_due.clear()
            return
        if name not in parameters or m.param_type != (INT32 if parameters.is_integer(name) else REAL32):
            self.ignored += 1
            return
        # from the payload itself: as a number, some integers' bits would be NaNs and not survive
        frame = bytes(m.get_msgbuf())
        start = 10 if frame[0] == STX else 6  # MAVLink 2 or 1
        raw = frame[start : start + 4]
        parameters.set(name, struct.unpack("<i" if parameters.is_integer(name) else "<f", raw)[0])
        self._send_parameter(parameters.names.index(name))

    # --- commands -------------------------------------------------------------------------------------------------

    def _on_command_long(self, m, now_s: float) -> None:
        self._command(m, [m.param1, m.param2, m.param3, m.param4, m.param5, m.param6, m.param7], now_s)

    def _on_command_int(self, m, now_s: float) -> None:
        scale = 1e-7 if m.frame in GLOBAL_FRAMES else 1e-4
        x, y = (NAN if value == 0x7FFFFFFF else value * scale for value in (m.x, m.y))
        self._command(m, [m.param1, m.param2, m.param3, m.param4, x, y, m.z], now_s)

    def _command(self, m, p: list[float], now_s: float) -> None:
        if not self._for_us(m, broadcast=m.command == common.MAV_CMD_REQUEST_AUTOPILOT_CAPABILITIES):
            return
        action = self._commands.get(m.command)
        if m.command == common.MAV_CMD_DO_SET_MODE:
            # PX4's receiver acknowledges having heard it; its commander's word on the change follows as a second ack
            self._a.writer.send("COMMAND_ACK", m.command, ACCEPTED, 0, 0, m.get_srcSystem(), m.get_srcComponent())
        try:
            result = UNSUPPORTED if action is None else action(p, now_s)
        except (ValueError, OverflowError):
            result = DENIED  # a NaN or infinity where a number is needed
        self._a.writer.send("COMMAND_ACK", m.command, result, 0, 0, m.get_srcSystem(), m.get_srcComponent())

    def _arm_disarm(self, p: list[float], now_s: float) -> int:
        commander = self._a.commander
        action, forced = round(p[0]), round(p[1]) == FORCE_MAGIC if math.isfinite(p[1]) else False
        if action not in (0, 1):
            return UNSUPPORTED
        # PX4 runs its checks even on a forced command when it comes from outside; force only counts for disarming
        done = (
            commander.arm(now_s, "external command")
            if action
            else commander.disarm(now_s, "external command", force=forced)
        )
        return ACCEPTED if done else TEMPORARILY_REJECTED

    def _do_set_mode(self, p: list[float], now_s: float) -> int:
        base, main = round(p[0]), round(p[1]) if math.isfinite(p[1]) else 0
        sub = round(p[2]) if math.isfinite(p[2]) else 0
        if not base & 1:  # no custom mode: PX4 understands some of MAVLink's own
            mode = (
                "AUTO_MISSION" if base & 4 else "POSCTL" if base & 72 == 72 else "STABILIZED" if base & 16 else "MANUAL"
            )
        elif main in (1, 2, 3, 5, 6, 7):
            mode = MODE_OF[(main, 0)]
        elif main == 4:
            mode = MODE_OF.get((4, sub or 4))
        else:
            mode = None
        if mode is None:
            return TEMPORARILY_REJECTED
        return self._go(mode, now_s, force=mode == "AUTO_LAND")

    def _go(self, mode: str, now_s: float, force: bool = False) -> int:
        return ACCEPTED if self._a.commander.request_mode(mode, now_s, force=force) else TEMPORARILY_REJECTED

    def _on_set_mode(self, m, now_s: float) -> None:
        if m.target_system not in (0, self._a.system_id):
            self.ignored += 1
            return
        word = m.custom_mode
        result = self._do_set_mode([m.base_mode, word >> 16 & 0xFF, word >> 24 & 0xFF], now_s)
        self._a.writer.send(
            "COMMAND_ACK", common.MAV_CMD_DO_SET_MODE, result, 0, 0, m.get_srcSystem(), m.get_srcComponent()
        )

    def _takeoff(self, p: list[float], now_s: float) -> int:
        a = self._a
        a.guidance.takeoff_height = a.takeoff_height(p[6])
        return self._go("AUTO_TAKEOFF", now_s)

    def _land(self, p: list[float], now_s: float) -> int:
        result = self._go("AUTO_LAND", now_s, force=True)
        if result == ACCEPTED:
            self._a.say(6, "Landing at current position\t")
        return result

    def _return(self, p: list[float], now_s: float) -> int:
        result = self._go("AUTO_RTL", now_s)
        if result == ACCEPTED:
            self._a.say(6, "Returning to launch\t")
        return result

    def _set_home(self, p: list[float], now_s: float) -> int:
        a = self._a
        if not a.parameters["COM_HOME_EN"]:
            return DENIED
        if p[0] > 0.5:
            return ACCEPTED if a.set_home() else TEMPORARILY_REJECTED
        if not all(math.isfinite(v) for v in p[4:7]):
            return DENIED
        yaw = math.pi / 2 - math.radians(p[3]) if math.isfinite(p[3]) else None
        return ACCEPTED if a.set_home(local(*p[4:7]), yaw) else TEMPORARILY_REJECTED

    def _reposition(self, p: list[float], now_s: float) -> int:
        if round(p[1]) != 1:
            return UNSUPPORTED
        result = self._go("AUTO_LOITER", now_s)
        if result == ACCEPTED:
            here = local(*p[4:7])
            yaw = math.pi / 2 - p[3] if math.isfinite(p[3]) else NAN
            self._a.hold_point = (here, yaw, p[0])
        return result

    def _change_speed(self, p: list[float], now_s: float) -> int:
        if math.isfinite(p[1]) and p[1] > 0:
            self._a.guidance.cruise_m_s = p[1]
        return ACCEPTED

    def _terminate(self, p: list[float], now_s: float) -> int:
        if p[0] > 0.5 and self._a.commander.armed:
            self._a.commander.terminate(now_s)
            return ACCEPTED
        return DENIED

    def _when_disarmed(self, p: list[float], now_s: float) -> int:
        return TEMPORARILY_REJECTED if self._a.commander.armed else ACCEPTED

    def _calibrate(self, p: list[float], now_s: float) -> int:
        """There is nothing to calibrate here; a cancel (all zero) is accepted."""
        return ACCEPTED if not any(p) and not self._a.commander.armed else DENIED

    def _send_once(self, name: str) -> int:
        return ACCEPTED if self._a.streams.request(layout(name).id) else DENIED

    def _set_interval(self, p: list[float], now_s: float) -> int:
        extra = any(math.isfinite(p[i]) and round(p[i]) != 0 for i in (2, 3, 6))
        done = not extra and self._a.streams.set_interval(round(p[0]), p[1], now_s)
        return ACCEPTED if done else FAILED

    def _get_interval(self, p: list[float], now_s: float) -> int:
        message_id = round(p[0])
        self._a.writer.send("MESSAGE_INTERVAL", self._a.streams.interval_us(message_id), message_id & 0xFFFF)
        return ACCEPTED

    def _request_message(self, p: list[float], now_s: float) -> int:
        message_id = round(p[0])
        if message_id == common.MAVLINK_MSG_ID_MESSAGE_INTERVAL:
            return self._get_interval(p[1:], now_s)
        return ACCEPTED if self._a.streams.request(message_id) else DENIED

    # --- setpoints ------------------------------------------------------------------------------------------------

    def _on_set_attitude_target(self, m, now_s: float) -> None:
        if not self._for_us(m):
            return
        mask = m.type_mask
        attitude, rates = not mask & 128, not mask & 3
        numbers = (*m.q, m.body_roll_rate, m.body_pitch_rate, m.body_yaw_rate, m.thrust)
        used = (
            (numbers[:4] if attitude else ()) + (numbers[4:6] if rates else ()) + ((m.thrust,) if not mask & 64 else ())
        )
        norm = math.sqrt(sum(v * v for v in m.q))
        if not (attitude or rates) or not all(map(math.isfinite, used)) or (attitude and not norm > 0.1):
            self.ignored += 1
            return
        thrust = 0.0 if mask & 64 else min(max(m.thrust, 0.0), 1.0)
        yaw_rate = NAN if mask & 4 or not math.isfinite(m.body_yaw_rate) else -m.body_yaw_rate
        if attitude:
            q = q_enu([v / norm for v in m.q])
            self._a.offboard_attitude(q, yaw_rate, thrust, now_s)
        else:
            self._a.offboard_body_rates((m.body_roll_rate, -m.body_pitch_rate, yaw_rate), thrust, now_s)

    def _on_set_position_target_local_ned(self, m, now_s: float) -> None:
        if not self._for_us(m):
            return
        mask, a = m.type_mask, self._a

        def pick(values, first_bit: int) -> list[float]:
            return [NAN if mask & first_bit << i else v for i, v in enumerate(values)]

        p, v = pick((m.x, m.y, m.z), 1), pick((m.vx, m.vy, m.vz), 8)
        f = pick((m.afx, m.afy, m.afz), 64)
        if m.coordinate_frame == BODY_NED:
            p = [NAN] * 3
            v = [NAN] * 3 if any(map(math.isnan, v)) else a.turn_to_ned(v, only_yaw=True)
            f = [NAN] * 3 if any(map(math.isnan, f)) else a.turn_to_ned(f, only_yaw=False)
        elif m.coordinate_frame != LOCAL_NED:
            a.say(2, f"SET_POSITION_TARGET_LOCAL_NED coordinate frame {m.coordinate_frame} unsupported\t")
            return
        moving = any(map(math.isfinite, (*p, *v)))
        pushing = any(map(math.isfinite, f))
        if not moving and not pushing:
            a.say(2, "SET_POSITION_TARGET_LOCAL_NED invalid\t")
            return
        if pushing and mask & 512:
            a.say(2, "SET_POSITION_TARGET_LOCAL_NED force not supported\t")
            return
        yaw = NAN if mask & 1024 else math.pi / 2 - m.yaw
        yaw_rate = NAN if mask & 2048 else -m.yaw_rate
        enu = [(t[1], t[0], -t[2]) for t in (p, v, f)]
        a.offboard_position(Setpoint(*enu, yaw, yaw_rate), moving, now_s)

"""COMMAND_LONG and COMMAND_INT: one function for each command of the emulator, with the results of PX4 1.17.

A function takes the seven parameters and the time and returns the result of the acknowledgement. It may raise
ValueError or OverflowError for a NaN or an infinity where a number is needed: such a command is denied.
"""

import math
from collections.abc import Callable

from pymavlink.dialects.v20 import common

from companion.core.enums import FcuMode
from sitl.autopilot.commander import FORCE_MAGIC
from sitl.autopilot.conversion import local
from sitl.autopilot.flight_stack import FlightStack, HoldPoint
from sitl.autopilot.modes import MODE_OF_CUSTOM_MODE, FlightMode
from sitl.autopilot.streams import TelemetryStreams
from sitl.autopilot.wire import MavResult, MavSeverity, Writer, layout

NAN = math.nan
CUSTOM_MODE_ENABLED, STABILIZE_ENABLED, GUIDED_ENABLED, AUTO_ENABLED = 1, 16, 8, 4  # MAV_MODE_FLAG
MANUAL_INPUT_ENABLED = 64
AUTO_MAIN = 4  # PX4's main mode with sub modes
DEFAULT_AUTO_SUB = 4  # mission

Command = Callable[[list[float], float], MavResult]


class CommandExecutor:
    """Executes commands on a flight stack; writer: for the answers beside the acknowledgement."""

    def __init__(self, stack: FlightStack, writer: Writer, streams: TelemetryStreams) -> None:
        self._stack, self._writer, self._streams = stack, writer, streams
        self._table: dict[int, Command] = {
            common.MAV_CMD_COMPONENT_ARM_DISARM: self._arm_disarm,
            common.MAV_CMD_DO_SET_MODE: self.set_mode,
            common.MAV_CMD_NAV_TAKEOFF: self._takeoff,
            common.MAV_CMD_NAV_LAND: self._land,
            common.MAV_CMD_NAV_RETURN_TO_LAUNCH: self._return,
            common.MAV_CMD_DO_SET_HOME: self._set_home,
            common.MAV_CMD_DO_REPOSITION: self._reposition,
            common.MAV_CMD_DO_CHANGE_SPEED: self._change_speed,
            common.MAV_CMD_DO_FLIGHTTERMINATION: self._terminate,
            common.MAV_CMD_MISSION_START: lambda p, now_s: MavResult.DENIED,
            common.MAV_CMD_SET_MESSAGE_INTERVAL: self._set_interval,
            common.MAV_CMD_GET_MESSAGE_INTERVAL: self._get_interval,
            common.MAV_CMD_REQUEST_MESSAGE: self._request_message,
            common.MAV_CMD_REQUEST_AUTOPILOT_CAPABILITIES: lambda p, now_s: self._send_once("AUTOPILOT_VERSION"),
            common.MAV_CMD_GET_HOME_POSITION: lambda p, now_s: self._send_once("HOME_POSITION"),
            common.MAV_CMD_REQUEST_FLIGHT_INFORMATION: lambda p, now_s: self._send_once("FLIGHT_INFORMATION"),
            common.MAV_CMD_PREFLIGHT_STORAGE: self._when_disarmed,
            common.MAV_CMD_PREFLIGHT_CALIBRATION: self._calibrate,
            common.MAV_CMD_PREFLIGHT_REBOOT_SHUTDOWN: lambda p, now_s: (
                MavResult.DENIED if round(p[0]) else MavResult.ACCEPTED
            ),
            common.MAV_CMD_RUN_PREARM_CHECKS: self._when_disarmed,
            common.MAV_CMD_DO_DIGICAM_CONTROL: self._trigger_camera,
        }

    def execute(self, number: int, p: list[float], now_s: float) -> MavResult:
        """Execute a MAV_CMD with its seven parameters."""
        command = self._table.get(number)
        if command is None:
            return MavResult.UNSUPPORTED
        try:
            return command(p, now_s)
        except (ValueError, OverflowError):
            return MavResult.DENIED

    def set_mode(self, p: list[float], now_s: float) -> MavResult:
        """Change the mode by base mode, PX4's main and sub mode."""
        base, main = round(p[0]), round(p[1]) if math.isfinite(p[1]) else 0
        sub = round(p[2]) if math.isfinite(p[2]) else 0
        mode: FlightMode | None
        if not base & CUSTOM_MODE_ENABLED:  # PX4 understands some of MAVLink's own modes
            if base & AUTO_ENABLED:
                mode = FcuMode.AUTO_MISSION
            elif base & GUIDED_ENABLED and base & MANUAL_INPUT_ENABLED:
                mode = FcuMode.POSCTL
            elif base & STABILIZE_ENABLED:
                mode = FcuMode.STABILIZED
            else:
                mode = FcuMode.MANUAL
        elif main == AUTO_MAIN:
            mode = MODE_OF_CUSTOM_MODE.get((main, sub or DEFAULT_AUTO_SUB))
        else:
            mode = MODE_OF_CUSTOM_MODE.get((main, 0))
        if mode is None:
            return MavResult.TEMPORARILY_REJECTED
        return self._change_mode(mode, now_s, force=mode == FcuMode.AUTO_LAND)

    def _change_mode(self, mode: FlightMode, now_s: float, force: bool = False) -> MavResult:
        changed = self._stack.commander.request_mode(mode, now_s, force=force)
        return MavResult.ACCEPTED if changed else MavResult.TEMPORARILY_REJECTED

    def _arm_disarm(self, p: list[float], now_s: float) -> MavResult:
        commander = self._stack.commander
        action, forced = round(p[0]), round(p[1]) == FORCE_MAGIC if math.isfinite(p[1]) else False
        if action not in (0, 1):
            return MavResult.UNSUPPORTED
        # PX4 runs its checks even on a forced command when it comes from outside; force only counts for disarming
        if action:
            done = commander.arm(now_s, "external command")
        else:
            done = commander.disarm(now_s, "external command", force=forced)
        return MavResult.ACCEPTED if done else MavResult.TEMPORARILY_REJECTED

    def _takeoff(self, p: list[float], now_s: float) -> MavResult:
        stack = self._stack
        height = stack.takeoff_height(p[6])
        result = self._change_mode(FcuMode.AUTO_TAKEOFF, now_s)
        if result == MavResult.ACCEPTED:
            stack.guidance.takeoff_height = height
        return result

    def _land(self, p: list[float], now_s: float) -> MavResult:
        result = self._change_mode(FcuMode.AUTO_LAND, now_s, force=True)
        if result == MavResult.ACCEPTED:
            self._stack.send_text(MavSeverity.INFO, "Landing at current position\t")
        return result

    def _return(self, p: list[float], now_s: float) -> MavResult:
        result = self._change_mode(FcuMode.AUTO_RTL, now_s)
        if result == MavResult.ACCEPTED:
            self._stack.send_text(MavSeverity.INFO, "Returning to launch\t")
        return result

    def _set_home(self, p: list[float], now_s: float) -> MavResult:
        stack = self._stack
        if not stack.parameters["COM_HOME_EN"]:
            return MavResult.DENIED
        if p[0] > 0.5:
            return MavResult.ACCEPTED if stack.set_home() else MavResult.TEMPORARILY_REJECTED
        if not all(math.isfinite(v) for v in p[4:7]):
            return MavResult.DENIED
        yaw = math.pi / 2 - math.radians(p[3]) if math.isfinite(p[3]) else None
        return MavResult.ACCEPTED if stack.set_home(local(*p[4:7]), yaw) else MavResult.TEMPORARILY_REJECTED

    def _reposition(self, p: list[float], now_s: float) -> MavResult:
        if round(p[1]) != 1:
            return MavResult.UNSUPPORTED
        result = self._change_mode(FcuMode.AUTO_LOITER, now_s)
        if result == MavResult.ACCEPTED:
            yaw = math.pi / 2 - p[3] if math.isfinite(p[3]) else NAN
            self._stack.hold_point = HoldPoint(local(*p[4:7]), yaw, p[0])
        return result

    def _change_speed(self, p: list[float], now_s: float) -> MavResult:
        if math.isfinite(p[1]) and p[1] > 0:
            self._stack.guidance.cruise_m_s = p[1]
        return MavResult.ACCEPTED

    def _terminate(self, p: list[float], now_s: float) -> MavResult:
        if p[0] > 0.5 and self._stack.commander.armed:
            self._stack.commander.terminate(now_s)
            return MavResult.ACCEPTED
        return MavResult.DENIED

    def _when_disarmed(self, p: list[float], now_s: float) -> MavResult:
        return MavResult.TEMPORARILY_REJECTED if self._stack.commander.armed else MavResult.ACCEPTED

    def _calibrate(self, p: list[float], now_s: float) -> MavResult:
        """The emulator has no calibration; a cancel (all zero) is accepted."""
        return MavResult.ACCEPTED if not any(p) and not self._stack.commander.armed else MavResult.DENIED

    def _trigger_camera(self, p: list[float], now_s: float) -> MavResult:
        """PX4's camera trigger, where one is connected (TRIG_MODE)."""
        stack = self._stack
        if stack.trigger_camera is None or round(p[4]) != 1:
            return MavResult.UNSUPPORTED
        stack.triggers += 1
        stack.trigger_camera(now_s)
        self._writer.send("CAMERA_TRIGGER", stack.boot_us(now_s), stack.triggers)
        return MavResult.ACCEPTED

    def _send_once(self, name: str) -> MavResult:
        return MavResult.ACCEPTED if self._streams.request(layout(name).id) else MavResult.DENIED

    def _set_interval(self, p: list[float], now_s: float) -> MavResult:
        extra = any(math.isfinite(p[i]) and round(p[i]) != 0 for i in (2, 3, 6))
        done = not extra and self._streams.set_interval(round(p[0]), p[1], now_s)
        return MavResult.ACCEPTED if done else MavResult.FAILED

    def _get_interval(self, p: list[float], now_s: float) -> MavResult:
        message_id = round(p[0])
        self._writer.send("MESSAGE_INTERVAL", self._streams.interval_us(message_id), message_id & 0xFFFF)
        return MavResult.ACCEPTED

    def _request_message(self, p: list[float], now_s: float) -> MavResult:
        message_id = round(p[0])
        if message_id == common.MAVLINK_MSG_ID_MESSAGE_INTERVAL:
            return self._get_interval(p[1:], now_s)
        return MavResult.ACCEPTED if self._streams.request(message_id) else MavResult.DENIED

"""The link to a remote: MANUAL_CONTROL in, and out what a remote needs of an aircraft in PX4's Altitude mode.

So `companion remote`, or a ground station with a joystick, flies a vehicle of `companion teleop` as it flies PX4.
"""

import math
import struct
import time
from collections.abc import Callable
from typing import Any

from pymavlink.dialects.v20 import common

from companion.core.frames import quat_from_matrix
from companion.fcu.ned import swap_attitude, swap_world
from companion.remote.flight_modes import FlightMode
from sitl.autopilot.udp import UdpEndpoint
from sitl.teleop.sources import from_manual_control
from sitl.teleop.sticks import Pose, Sticks

LOST_S = 0.3  # without a sample the sticks are lost
ALTITUDE_MODE = 2  # PX4's main mode: sticks tilt and climb, as those of both vehicles do
SYSTEM_ID = 1
HEARTBEAT_S, ATTITUDE_S, POSITION_S = 1.0, 0.02, 0.05
TILT_MAX_DEG = 45.0  # both vehicles
# What a remote asks before it sends sticks; int: INT32 on the wire.
PARAMETERS: dict[str, int | float] = {
    "COM_RC_IN_MODE": 1,  # a joystick only
    "COM_RC_LOSS_T": LOST_S,
    "NAV_RCL_ACT": 1,  # hold
    "MAN_DEADZONE": 0.0,
    "MPC_MAN_TILT_MAX": TILT_MAX_DEG,
}


class RemotePort:
    """A UDP port of this computer that a remote sends to; it answers the newest sender. Silence for 0.3 s means lost sticks."""

    def __init__(self, port: int, mode: FlightMode = FlightMode.BODY) -> None:
        """mode: whose axes the sticks have that arrive. Raises `ConfigError` when the port is taken."""
        self._endpoint = UdpEndpoint(bind_port=port)
        self._mavlink = common.MAVLink(None, srcSystem=SYSTEM_ID, srcComponent=common.MAV_COMP_ID_AUTOPILOT1)
        self._mavlink.robust_parsing = True
        self._newest: Sticks | None = None
        self._heard_s = self._station_s = -math.inf
        self._due_s: dict[str, float] = {}
        self._mode = mode
        self._readers: dict[str, Callable[[Any, float], None]] = {
            "MANUAL_CONTROL": self._on_sticks,
            "PARAM_REQUEST_READ": self._on_parameter,
            "COMMAND_LONG": self._on_command,
        }

    def sticks(self, now_s: float) -> Sticks | None:
        """The newest sticks, or None when none came in time; answers what arrived besides."""
        for message in self._mavlink.parse_buffer(self._endpoint.receive()) or ():
            if message.get_type() != "BAD_DATA":
                self._station_s = now_s
            if reader := self._readers.get(message.get_type()):
                reader(message, now_s)
        return self._newest if now_s - self._heard_s <= LOST_S else None

    def wait(self, pose: Pose) -> None:
        """Report the standing aircraft until the first sticks arrive; the flight's time begins then."""
        started = time.monotonic()
        while self.sticks(now_s := time.monotonic() - started) is None:
            self.report(now_s, pose)
            time.sleep(ATTITUDE_S)
        self._due_s.clear()
        self._heard_s = 0.0

    def report(self, now_s: float, pose: Pose) -> None:
        """Send heartbeat, attitude and position as they are due, once a station has been heard."""
        if math.isinf(self._station_s):
            return
        boot_ms = round(now_s * 1000.0)
        if self._is_due("heartbeat", HEARTBEAT_S, now_s):
            self._heartbeat()
            landed = common.MAV_LANDED_STATE_ON_GROUND if pose.on_floor else common.MAV_LANDED_STATE_IN_AIR
            self._send(common.MAVLink_extended_sys_state_message(common.MAV_VTOL_STATE_UNDEFINED, landed))
        if pose.lost:
            return
        if self._is_due("attitude", ATTITUDE_S, now_s):
            w, x, y, z = quat_from_matrix(pose.R_WB).tolist()
            self._send(common.MAVLink_attitude_quaternion_message(boot_ms, *swap_attitude((w, x, y, z)), 0.0, 0.0, 0.0))
        if self._is_due("position", POSITION_S, now_s):
            (px, py, pz), (vx, vy, vz) = pose.p_W.tolist(), pose.v_W.tolist()
            place, speed = swap_world((px, py, pz)), swap_world((vx, vy, vz))
            self._send(common.MAVLink_local_position_ned_message(boot_ms, *place, *speed))

    def close(self) -> None:
        """Release the port."""
        self._endpoint.close()

    def _is_due(self, name: str, period_s: float, now_s: float) -> bool:
        if now_s < self._due_s.get(name, -math.inf):
            return False
        self._due_s[name] = now_s + period_s - 1e-6
        return True

    def _send(self, message: Any) -> None:
        self._endpoint.send(message.pack(self._mavlink))
        self._mavlink.seq = (self._mavlink.seq + 1) % 256

    def _heartbeat(self) -> None:
        flags = common.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED | common.MAV_MODE_FLAG_SAFETY_ARMED
        kind, autopilot = common.MAV_TYPE_QUADROTOR, common.MAV_AUTOPILOT_PX4
        mode, active = ALTITUDE_MODE << 16, common.MAV_STATE_ACTIVE
        self._send(common.MAVLink_heartbeat_message(kind, autopilot, flags, mode, active, 3))

    def _on_sticks(self, message: Any, now_s: float) -> None:
        received = from_manual_control(message.x, message.y, message.z, message.r, self._mode)
        if received is not None:
            self._newest, self._heard_s = received, now_s

    def _on_parameter(self, message: Any, now_s: float) -> None:
        name = message.param_id.rstrip("\0")
        if name not in PARAMETERS:
            return
        value = PARAMETERS[name]
        kind = common.MAV_PARAM_TYPE_INT32 if isinstance(value, int) else common.MAV_PARAM_TYPE_REAL32
        on_wire = struct.unpack("<f", struct.pack("<i", value))[0] if isinstance(value, int) else value
        index, count = list(PARAMETERS).index(name), len(PARAMETERS)
        self._send(common.MAVLink_param_value_message(name.encode(), on_wire, kind, count, index))

    def _on_command(self, message: Any, now_s: float) -> None:
        """The mode is Altitude and the aircraft armed, always; requests for that are accepted, others denied."""
        command, accepted = message.command, True
        if command == common.MAV_CMD_DO_SET_MODE:
            accepted = int(message.param2) == ALTITUDE_MODE
        elif command == common.MAV_CMD_COMPONENT_ARM_DISARM:
            accepted = message.param1 == 1.0
        elif command not in (common.MAV_CMD_SET_MESSAGE_INTERVAL, common.MAV_CMD_REQUEST_MESSAGE):
            accepted = False
        result = common.MAV_RESULT_ACCEPTED if accepted else common.MAV_RESULT_DENIED
        sender = message.get_srcSystem(), message.get_srcComponent()
        self._send(common.MAVLink_command_ack_message(command, result, 255, 0, *sender))
        if command == common.MAV_CMD_REQUEST_MESSAGE and int(message.param1) == common.MAVLINK_MSG_ID_HEARTBEAT:
            self._heartbeat()

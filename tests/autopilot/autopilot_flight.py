"""A companion and a pilot for the PX4 emulator that use its MAVLink bytes only."""

import math
import struct
from collections.abc import Callable

from pymavlink.dialects.v20 import common

from companion.core.enums import FcuMode
from companion.core.frames import quat_from_rpy
from sitl.airframe import load_airframe
from sitl.autopilot.autopilot import Autopilot
from sitl.autopilot.conversion import q_ned
from sitl.plant import Plant
from sitl.sensors import PAPER, Sensors

STEP_S = 0.004


class EmulatorFlight:
    """Emulator, plant and sensors in simulated time, with a MAVLink peer.

    All received messages are kept in ``received`` by name as (time, message); ``listener`` gets the received bytes.
    ``stream`` is called with the time at 50 Hz and may return bytes to send: the stream of a companion.
    """

    def __init__(self, airframe="f550", height_m=0.0, sensors=PAPER, wind_W=(0.0, 0.0, 0.0), seed=2, **options) -> None:
        self.autopilot = Autopilot(airframe, 1, **options)
        self.plant = Plant(load_airframe(airframe), 1, (0.0, 0.0, height_m))
        self.sensors = Sensors(sensors, seed)
        self.wind_W = wind_W
        self.now_s, self.steps = 0.0, 0
        self.peer = common.MAVLink(None, 255, 190)
        self._parser = common.MAVLink(None)
        self.received: dict[str, list] = {}
        self.stream: Callable[[float], bytes | None] | None = None
        self.listener: Callable[[bytes], None] | None = None
        self.battery_remaining = None

    def run(self, duration_s: float, until=None) -> bool:
        """Advance the time; stops early when until() holds and returns whether it did."""
        for _ in range(round(duration_s / STEP_S)):
            if self.steps % 250 == 0:  # a ground station: without one PX4 sends no texts
                self.send(self.peer.heartbeat_encode(common.MAV_TYPE_GCS, common.MAV_AUTOPILOT_INVALID, 0, 0, 4))
            if self.stream is not None and self.steps % 5 == 0 and (data := self.stream(self.now_s)):
                self.autopilot.receive(data, self.now_s)
            frame = self.sensors.sample(self.now_s, self.plant)
            if self.battery_remaining is not None:
                frame = frame._replace(battery_remaining=self.battery_remaining)
            motors = self.autopilot.step(frame)
            data = self.autopilot.take_output()
            if self.listener is not None:
                self.listener(data)
            for message in self._parser.parse_buffer(data) or []:
                self.received.setdefault(message.get_type(), []).append((self.now_s, message))
            self.plant.step(motors, 4, self.wind_W)
            self.steps += 1
            self.now_s = self.steps * STEP_S
            if until is not None and until():
                return True
        return False

    def send(self, message) -> None:
        self.autopilot.receive(message.pack(self.peer), self.now_s)

    def command(self, number: int, *p: float) -> int:
        """Send a COMMAND_LONG and return the result of its acknowledgement, the last of the two of a mode change."""
        p = [*p, *[math.nan] * (7 - len(p))]
        before = len(self.received.get("COMMAND_ACK", []))
        self.send(self.peer.command_long_encode(1, 1, number, 0, *p))
        self.run(0.02)
        acks = [m for _, m in self.received.get("COMMAND_ACK", [])[before:] if m.command == number]
        expected = 2 if number == common.MAV_CMD_DO_SET_MODE else 1
        assert len(acks) == expected, f"{len(acks)} answers to command {number}"
        return acks[-1].result

    def last(self, name: str):
        return self.received[name][-1][1]

    @property
    def armed(self) -> bool:
        return bool(self.fresh_heartbeat().base_mode & 128)

    @property
    def mode(self) -> tuple[int, int]:
        """(main, sub) of a heartbeat of this moment."""
        number = self.fresh_heartbeat().custom_mode
        return number >> 16 & 255, number >> 24

    def fresh_heartbeat(self):
        """A heartbeat of this moment, by request."""
        self.send(self.peer.command_long_encode(1, 1, common.MAV_CMD_REQUEST_MESSAGE, 0, 0, 0, 0, 0, 0, 0, 0))
        self.run(STEP_S)
        return self.last("HEARTBEAT")

    def texts(self) -> list[str]:
        """Status texts, pieces joined."""
        whole: list[str] = []
        for _, m in self.received.get("STATUSTEXT", []):
            if m.chunk_seq:
                whole[-1] += m.text
            else:
                whole.append(m.text)
        return [text.strip() for text in whole]

    def set_mode(self, main: int, sub: int = 0) -> int:
        return self.command(common.MAV_CMD_DO_SET_MODE, 1, main, sub)

    def set_parameter(self, name: str, value: int | float) -> None:
        kind, code = (6, "<i") if isinstance(value, int) else (9, "<f")
        number = struct.unpack("<f", struct.pack(code, value))[0]
        self.send(self.peer.param_set_encode(1, 1, name.encode(), number, kind))
        self.run(0.04)

    def attitude_target(self, roll=0.0, pitch=0.0, yaw=0.0, thrust=0.344, yaw_rate=None) -> bytes:
        """SET_ATTITUDE_TARGET of angles in ENU/FLU."""
        q = q_ned(tuple(quat_from_rpy(roll, pitch, yaw)))
        mask = 0b111 if yaw_rate is None else 0b011
        rate = 0.0 if yaw_rate is None else -yaw_rate
        return self.peer.set_attitude_target_encode(0, 1, 1, mask, q, 0, 0, rate, thrust).pack(self.peer)

    def hover_bytes(self, _now_s: float = 0.0) -> bytes:
        """A thrust that keeps the height of a hovering aircraft, level."""
        o = self.last("LOCAL_POSITION_NED")
        thrust = self.autopilot.stack.position_control.hover - 0.08 * (3.0 + o.z) * -1 + 0.08 * o.vz
        return self.attitude_target(thrust=min(max(thrust, 0.1), 0.7), yaw=self.autopilot.stack.yaw)

    def take_off(self, height_m: float = 3.0) -> None:
        """Arm and climb with NAV_TAKEOFF; leaves the aircraft in hold."""
        if not self.received:
            self.run(4.0)
        self.send(self.peer.command_long_encode(1, 1, common.MAV_CMD_GET_HOME_POSITION, 0, 0, 0, 0, 0, 0, 0, 0))
        self.run(0.02)
        amsl = self.last("HOME_POSITION").altitude * 1e-3 + height_m
        assert self.command(common.MAV_CMD_COMPONENT_ARM_DISARM, 1, 0) == 0, self.texts()
        assert self.command(common.MAV_CMD_NAV_TAKEOFF, 0, 0, 0, math.nan, math.nan, math.nan, amsl) == 0
        assert self.run(15.0, lambda: self.autopilot.mode == FcuMode.AUTO_LOITER), "take-off did not finish"
        self.run(1.5)


QUIET = {"HEARTBEAT": 1, "LOCAL_POSITION_NED": 50, "EXTENDED_SYS_STATE": 5}

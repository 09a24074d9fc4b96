"""One flight for the conformance suite: an autopilot that is used by its MAVLink, its RC and its motors only.

The same world flies the PX4 emulator and real PX4, in simulated time; `ConformanceFlight` has the actions of a
companion, a ground station and a pilot. PX4's MAVLink threads run by the wall clock, so its world moves at `PX4_SPEED`
times real time and answers may take some milliseconds of simulated time.
"""

import math
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
from pymavlink.dialects.v20 import common

from companion.core.config import ConfigError
from companion.core.frames import quat_from_rpy, rpy_from_quat
from sitl.autopilot.conversion import q_ned
from sitl.autopilot.udp import ONBOARD_PORTS
from sitl.px4.build import Px4Build, find_build
from sitl.px4.hil import TCP_PORT
from sitl.px4.side_link import PAYLOAD_PORTS
from sitl.scenario import load_scenario
from sitl.wind import CALM
from sitl.world import STEP_S, World

ROOT = Path(__file__).parents[2]
SCENARIO = ROOT / "config/scenarios/bridge_hover.toml"
PX4_SPEED = 3.0
INSTANCES = range(1, 10)  # PX4 has ports of their own towards the companion for these only
STREAM_EVERY = 5  # steps: 50 Hz
ANSWER_S = 0.3  # of simulated time that an answer may take
ARM, TAKEOFF, LAND = 400, 22, 21
SET_MODE, SET_INTERVAL, REQUEST = 176, 511, 512
GROUND_STATION, ONBOARD_COMPUTER = 6, 18  # MAV_TYPE
AUTOPILOT = 1  # component id
DEFAULTS = {"COM_OF_LOSS_T": 1.0, "COM_RC_OVERRIDE": 1, "NAV_RCL_ACT": 2}  # PX4's, in place of the scenario's


def px4_build() -> Px4Build | None:
    """PX4's build when this machine has one."""
    try:
        return find_build()
    except ConfigError:
        return None


def free_instance() -> int:
    """An instance number none of whose ports is in use."""
    for instance in INSTANCES:
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", TCP_PORT + instance))
            for port in (*ONBOARD_PORTS, *PAYLOAD_PORTS):
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                    probe.bind(("127.0.0.1", port + instance))
        except OSError:
            continue
        return instance
    raise RuntimeError("no free ports for PX4")


class ConformanceFlight:
    """World, autopilot and a MAVLink peer.

    target: "emulator" or "px4"; heartbeat: MAV_TYPE of the heartbeat that the peer sends once a second, None for
    none. ``received``: all received messages by name as (time, message). ``stream``: called with the time at 50 Hz, may
    return bytes to send. ``hold_height_m``, ``hover_thrust``: height and thrust at the end of the take-off.
    """

    def __init__(self, target: str, run: Path, heartbeat: int | None = GROUND_STATION, **parameters) -> None:
        self.target = target
        loaded = load_scenario(SCENARIO, camera_mode="corners")
        settings = loaded.scenario.fcu_parameters | DEFAULTS | parameters
        scenario = msgspec.structs.replace(loaded.scenario, wind=CALM, fcu_parameters=settings)
        loaded = msgspec.structs.replace(loaded, scenario=scenario)
        self._px4 = None
        if target == "px4":
            from sitl.px4.autopilot import Px4Autopilot
            from sitl.px4.realtime import warmed_up

            self._px4 = Px4Autopilot(px4_build(), loaded, run, 1, free_instance(), carry_mavlink=True, speed=PX4_SPEED)
            try:
                self.world = warmed_up(loaded, 1, self._px4)
                self._px4.take_output()
            except BaseException:
                self._px4.close()
                raise
        else:
            self.world = World(loaded, 1)
        self.plant, self.autopilot = self.world.plant, self.world.autopilot
        self.peer = common.MAVLink(None, 255, 190) if heartbeat == GROUND_STATION else common.MAVLink(None, 1, 191)
        self._heartbeat = heartbeat
        self._parser = common.MAVLink(None)
        self._parser.robust_parsing = True
        self.received: dict[str, list] = {}
        self.motor_commands: list[np.ndarray] = []  # of every step since the start
        self.stream: Callable[[float], bytes | None] | None = None
        self.hold_height_m = self.hover_thrust = math.nan
        step = self.autopilot.step

        def recorded(frame) -> np.ndarray:
            self.motor_commands.append(np.array(step(frame)))
            return self.motor_commands[-1]

        self.autopilot.step = recorded
        self.run(4.0)

    def close(self) -> None:
        if self._px4 is not None:
            self._px4.close()

    @property
    def now_s(self) -> float:
        return self.world.now_s

    # --- time -----------------------------------------------------------------------------------------------------

    def run(self, duration_s: float, until=None) -> bool:
        """Advance the time; stops early when until() holds and returns whether it did."""
        for _ in range(round(duration_s / STEP_S)):
            steps = self.world.steps
            if self._heartbeat is not None and steps % round(1.0 / STEP_S) == 0:
                self.send(self.peer.heartbeat_encode(self._heartbeat, 8, 0, 0, 4))
            if self.stream is not None and steps % STREAM_EVERY == 0 and (data := self.stream(self.now_s)):
                self.autopilot.receive(data, self.now_s)
            self.world.advance()
            for message in self._parser.parse_buffer(self.autopilot.take_output()) or []:
                if message.get_srcComponent() == AUTOPILOT:  # PX4 forwards messages of its other links
                    self.received.setdefault(message.get_type(), []).append((self.now_s, message))
            if until is not None and until():
                return True
        return False

    # --- MAVLink --------------------------------------------------------------------------------------------------

    def send(self, message) -> None:
        self.autopilot.receive(message.pack(self.peer), self.now_s)

    def since(self, name: str, at_s: float) -> list:
        """Messages of a name received after a time."""
        return [m for t, m in self.received.get(name, []) if t > at_s]

    def last(self, name: str):
        return self.received[name][-1][1]

    def command(self, number: int, *p: float) -> list[int]:
        """Send a COMMAND_LONG; the results of all its acknowledgements within `ANSWER_S`."""
        at_s = self.now_s
        p = [*p, *[math.nan] * (7 - len(p))]
        self.send(self.peer.command_long_encode(1, 1, number, 0, *p))
        self.run(ANSWER_S)
        return [m.result for m in self.since("COMMAND_ACK", at_s) if m.command == number]

    def request(self, message_id: int, name: str):
        """Request a message once and return it."""
        at_s = self.now_s
        self.send(self.peer.command_long_encode(1, 1, REQUEST, 0, message_id, 0, 0, 0, 0, 0, 0))
        assert self.run(1.0, lambda: self.since(name, at_s)), f"no {name}"
        return self.since(name, at_s)[-1]

    def set_interval(self, message_id: int, rate_hz: float) -> list[int]:
        return self.command(SET_INTERVAL, message_id, 1e6 / rate_hz, 0, 0, 0, 0, 0)

    @property
    def armed(self) -> bool:
        return bool(self.request(0, "HEARTBEAT").base_mode & 128)

    @property
    def mode(self) -> tuple[int, int]:
        """PX4's (main, sub) mode."""
        number = self.request(0, "HEARTBEAT").custom_mode
        return number >> 16 & 255, number >> 24

    def until_mode(self, mode: tuple[int, int], within_s: float) -> float:
        """Wait for a mode; seconds it took. The heartbeat comes once a second, CURRENT_MODE with the change."""
        started_s = self.now_s
        while self.now_s - started_s < within_s:
            if self.mode == mode:
                return self.now_s - started_s
            self.run(0.05)
        raise AssertionError(f"mode {self.mode} after {within_s} s, not {mode}: {self.texts()[-3:]}")

    def texts(self) -> list[str]:
        """Status texts, pieces joined."""
        whole: list[str] = []
        for _, m in self.received.get("STATUSTEXT", []):
            if m.chunk_seq and whole:
                whole[-1] += m.text
            else:
                whole.append(m.text)
        return [text.strip() for text in whole]

    def parameter(self, name: str):
        """PARAM_VALUE of a name."""
        at_s = self.now_s
        self.send(self.peer.param_request_read_encode(1, 1, name.encode(), -1))
        found = lambda: [m for m in self.since("PARAM_VALUE", at_s) if m.param_id == name]  # noqa: E731
        assert self.run(1.0, found), f"no {name}"
        return found()[-1]

    def set_parameter(self, name: str, value: int | float, kind: int | None = None):
        """PARAM_SET; the answer."""
        at_s = self.now_s
        code, own_kind = ("<i", 6) if isinstance(value, int) else ("<f", 9)
        number = struct.unpack("<f", struct.pack(code, value))[0]
        self.send(self.peer.param_set_encode(1, 1, name.encode(), number, kind or own_kind))
        self.run(ANSWER_S)
        answers = [m for m in self.since("PARAM_VALUE", at_s) if m.param_id == name]
        return answers[-1] if answers else None

    # --- flying -----------------------------------------------------------------------------------------------------

    def attitude_target(self, roll=0.0, pitch=0.0, yaw=None, thrust=0.344, yaw_rate=None) -> bytes:
        """SET_ATTITUDE_TARGET of angles in ENU/FLU; yaw None: the present one."""
        yaw = self.rpy[2] if yaw is None else yaw
        q = q_ned(tuple(quat_from_rpy(roll, pitch, yaw)))
        mask = 0b111 if yaw_rate is None else 0b011
        rate = 0.0 if yaw_rate is None else -yaw_rate
        return self.peer.set_attitude_target_encode(0, 1, 1, mask, q, 0, 0, rate, thrust).pack(self.peer)

    def rate_target(self, rates_B, thrust=0.344) -> bytes:
        """SET_ATTITUDE_TARGET of body rates in FLU."""
        p, q, r = rates_B
        return self.peer.set_attitude_target_encode(0, 1, 1, 128, (1, 0, 0, 0), p, -q, -r, thrust).pack(self.peer)

    @property
    def rpy(self) -> np.ndarray:
        """True roll, pitch, yaw in ENU/FLU."""
        return np.array(rpy_from_quat(self.plant.q_WB))

    def hover(self, _now_s: float = 0.0, **angles) -> bytes:
        """A setpoint that keeps the height by the truth; level without other angles."""
        climb = 1.0 * (self.hold_height_m - self.plant.p_W[2]) - 1.5 * self.plant.v_W[2]
        return self.attitude_target(thrust=min(max(self.hover_thrust * (1 + climb / 9.81), 0.1), 0.7), **angles)

    def take_off(self, height_m: float = 5.0) -> None:
        """Arm and climb with NAV_TAKEOFF; leaves the aircraft in hold."""
        home = self.request(242, "HOME_POSITION")
        assert self.command(ARM, 1, 0) == [0], self.texts()
        amsl = home.altitude * 1e-3 + height_m
        assert self.command(TAKEOFF, 0, 0, 0, math.nan, math.nan, math.nan, amsl)[-1] == 0
        self.until_mode((4, 3), 20.0)
        self.run(2.0)
        self.measure_hover()

    def measure_hover(self) -> None:
        """Record the present height and the thrust that holds it."""
        self.hold_height_m = float(self.plant.p_W[2])
        self.hover_thrust = float(np.mean(self.motor_commands[-250:]))

    def enter_offboard(self) -> None:
        """Stream level setpoints and go offboard."""
        self.stream = self.hover
        self.run(1.2)
        assert self.command(SET_MODE, 1, 6, 0)[-1] == 0, self.texts()
        self.until_mode((6, 0), 1.0)

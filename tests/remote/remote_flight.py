"""A page, the remote and the PX4 emulator in simulated time, joined by their bytes."""

import json
import math

import msgspec
from pymavlink.dialects.v20 import common

from companion.core.enums import FcuMode
from companion.fcu.link.framing import CURRENT_MODE, Framer
from companion.remote.aircraft import SYSTEM_ID, Aircraft
from companion.remote.protocol import PROTOCOL
from companion.remote.station import Station
from sitl.autopilot.manual_selector import InMode
from sitl.sensors import PAPER
from tests.autopilot.autopilot_flight import EmulatorFlight

TOKEN = "the-right-token-of-this-test"
# sensors without errors: what remains is the remote's and the autopilot's own
EXACT = msgspec.structs.replace(
    PAPER,
    imu=msgspec.structs.replace(PAPER.imu, gyro_bias_rad_s=0.0, accel_noise_m_s2=0.0, accel_bias_m_s2=0.0),
    attitude=msgspec.structs.replace(
        PAPER.attitude, tilt_std_rad=0.0, heading_std_rad=0.0, heading_offset_std_rad=0.0, white_std_rad=0.0
    ),
    gnss=msgspec.structs.replace(PAPER.gnss, white_variance_m2=0.0, walk_variance_m2=0.0, velocity_std_m_s=0.0),
)
RATES = {
    "HEARTBEAT": 1, "ATTITUDE_QUATERNION": 50, "LOCAL_POSITION_NED": 25, "EXTENDED_SYS_STATE": 5, "SYS_STATUS": 1,
    "BATTERY_STATUS": 1, "RC_CHANNELS": 5, "CURRENT_MODE": 10,
}  # fmt: skip

NUMBERS = {kind.msgname: number for number, kind in common.mavlink_map.items()} | {"CURRENT_MODE": CURRENT_MODE}


class FakePage:
    """A page without a browser: sends samples at 50 Hz while it has asked for the sticks."""

    def __init__(
        self, station: Station, number: int, now_s: float, token: str = TOKEN, protocol: int = PROTOCOL
    ) -> None:
        self.station, self.number = station, number
        self.inbox: list[dict] = []
        self.closed = ""
        self.sticks = {"ahead": 0.0, "right": 0.0, "up": 0.0, "turn": 0.0}
        self.samples = True
        station.open(number, f"10.0.0.{number}:4000", now_s)
        self.send(now_s, type="hello", protocol=protocol, token=token)

    def send(self, now_s: float, **message) -> None:
        """Send a message; like the page's own, it names the newest state that has arrived."""
        state = self.last("state")
        if state is not None and message["type"] not in ("hello", "release"):
            message = {"seen_s": state["s"], **message}
        self.station.receive(self.number, json.dumps(message), now_s)

    def step(self, now_s: float) -> None:
        if self.last("state"):
            self.send(now_s, type="sticks", **self.sticks)

    def move(self, ahead=0.0, right=0.0, up=0.0, turn=0.0) -> None:
        self.sticks = {"ahead": ahead, "right": right, "up": up, "turn": turn}

    def last(self, kind: str) -> dict | None:
        return next((m for m in reversed(self.inbox) if m["type"] == kind), None)

    def answers(self, to: str) -> list[str]:
        return [m["text"] for m in self.inbox if m["type"] == "answer" and m["to"] == to]


class RemoteFlight:
    """``run`` moves everything; start_s: time on the ground, 4 s for a position. ``sent`` has (time, MANUAL_CONTROL) of all that left the remote."""

    def __init__(
        self,
        start_s: float = 4.0,
        sensors=EXACT,
        in_mode: int = InMode.MAVLINK_ONLY,
        rates_hz=RATES,
        seed: int = 2,
        **parameters,
    ) -> None:
        self.flight = EmulatorFlight(sensors=sensors, seed=seed, stream_rates_hz=dict(rates_hz))
        for name, value in {"COM_RC_IN_MODE": int(in_mode), **parameters}.items():
            assert self.flight.autopilot.parameters.set(name, value)
        self.aircraft = Aircraft()
        self.station = Station(self.aircraft, TOKEN)
        self.pages: dict[int, FakePage] = {}
        self.sent: list[tuple[float, common.MAVLink_manual_control_message]] = []
        self.commands: list[tuple[int, float]] = []  # MAV_CMD and its first parameter
        self.log: list[str] = []
        self.linked = True
        self.lost: set[str] = set()  # messages of the flight controller that do not arrive
        self._framer = Framer()
        self._parser = common.MAVLink(None)
        self.flight.listener = self._down
        self.flight.stream = self._up
        self.run(start_s)

    @property
    def now_s(self) -> float:
        return self.flight.now_s

    @property
    def autopilot(self):
        return self.flight.autopilot

    @property
    def plant(self):
        return self.flight.plant

    def run(self, duration_s: float, until=None) -> bool:
        return self.flight.run(duration_s, until)

    def page(self, **options) -> FakePage:
        number = len(self.pages) + 1
        self.pages[number] = FakePage(self.station, number, self.now_s, **options)
        self.run(0.1)
        return self.pages[number]

    def close(self, page: FakePage) -> None:
        page.samples = False
        self.station.close(page.number, self.now_s)

    def pilot(self) -> FakePage:
        """A page that has the sticks."""
        page = self.page()
        page.send(self.now_s, type="take")
        self.run(0.3)
        assert page.answers("take")[-1] == "you have the sticks"
        return page

    def choose(self, page: FakePage, mode: FcuMode) -> None:
        page.send(self.now_s, type="mode", mode=mode)
        self.run(0.5)
        assert self.autopilot.mode == mode, page.answers("mode")

    def flying(self, mode: FcuMode = FcuMode.POSCTL, height_m: float = 12.0) -> FakePage:
        """A pilot who has taken off by the sticks and has released them."""
        page = self.pilot()
        self.choose(page, FcuMode.POSCTL)
        page.send(self.now_s, type="arm", arm=True)
        self.run(0.1)
        page.send(self.now_s, type="confirm", question=page.last("question")["question"])
        self.run(0.5)
        assert self.autopilot.armed, page.answers("arm")
        page.move(up=1.0)
        assert self.run(20.0, lambda: self.plant.p_W[2] > height_m)
        page.move()
        self.run(3.0)
        if mode != FcuMode.POSCTL:
            self.choose(page, mode)
        return page

    def turn_to(self, page: FakePage, heading_rad: float) -> None:
        """Turn the nose by the yaw stick (Position mode)."""
        for _ in range(400):
            error = math.remainder(heading_rad - self.autopilot.stack.yaw, math.tau)
            page.move(turn=min(max(-1.2 * error, -0.6), 0.6) - math.copysign(0.12, error))
            self.run(0.04)
            if abs(error) < 0.01:
                break
        page.move()
        self.run(2.5)

    def _down(self, data: bytes) -> None:
        if self.lost and data:
            buffer, frames = self._framer.frames(data)
            lost = {NUMBERS[name] for name in self.lost}
            data = b"".join(buffer[f.start : f.end] for f, _ in frames if f.number not in lost)
        if data and self.linked:
            self.aircraft.receive(data, self.now_s)

    def _up(self, now_s: float) -> bytes:
        for page in self.pages.values():
            if not page.closed and page.samples:
                page.step(now_s)
        self.station.step(now_s)
        out = self.station.take()
        for client, text in out.texts:
            self.pages[client].inbox.append(json.loads(text))
        for client, reason in out.closed:
            self.pages[client].closed = reason
        self.log += out.log
        frames = self.aircraft.take_output()
        for frame in frames:
            for message in self._parser.parse_buffer(frame) or []:
                assert message.get_srcSystem() == SYSTEM_ID
                if message.get_type() == "MANUAL_CONTROL":
                    self.sent.append((now_s, message))
                elif message.get_type() == "COMMAND_LONG":
                    self.commands.append((message.command, message.param1))
        return b"".join(frames) if self.linked else b""

"""The link between a remote and a vehicle of `companion teleop`: sticks in time, and what a remote asks for."""

import contextlib
import socket
import struct
from collections.abc import Iterator

import pytest
from pymavlink.dialects.v20 import common

from companion.core.enums import FcuMode
from companion.core.errors import UserError
from companion.remote.aircraft import Aircraft
from companion.remote.sticks import ManualControl
from sitl.teleop.remote_port import PARAMETERS, RemotePort
from sitl.teleop.sticks import STILL, Sticks
from sitl.teleop.tello import Tello


class Station:
    """A ground station on another port."""

    def __init__(self, port: int) -> None:
        self._address = "127.0.0.1", port
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(5.0)
        self.link = common.MAVLink(None, srcSystem=254, srcComponent=190)
        self.link.robust_parsing = True

    def send(self, message, noise: bytes = b"") -> None:
        self._socket.sendto(noise + message.pack(self.link), self._address)

    def sticks(self, x: int, z: int = 500) -> None:
        self.send(self.link.manual_control_encode(1, x, 0, z, 0, 0), b"noise")

    def messages(self) -> Iterator:
        while True:
            yield from self.link.parse_buffer(self._socket.recv(2048)) or ()

    def next(self, kind: str):
        return next(m for m in self.messages() if m.get_type() == kind)

    def raw(self) -> bytes:
        """All bytes that have arrived."""
        pieces = []
        self._socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                pieces.append(self._socket.recv(2048))
        return b"".join(pieces)

    def put(self, data: bytes) -> None:
        self._socket.sendto(data, self._address)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def link() -> Iterator[tuple[RemotePort, Station]]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        number = probe.getsockname()[1]
    port, station = RemotePort(number), Station(number)
    yield port, station
    port.close()
    station.close()


def until(port: RemotePort, now_s: float, wanted) -> Sticks | None:
    """Ask until the datagrams have arrived."""
    for _ in range(100_000):
        if wanted(got := port.sticks(now_s)):
            return got
    raise AssertionError("nothing arrived")


def test_the_newest_sticks_hold_until_they_are_late(link) -> None:
    port, station = link
    assert port.sticks(0.0) is None
    for x in (100, 400, 2000):  # the last is out of range and does not count
        station.sticks(x)
    got = until(port, 1.0, lambda got: got is not None and got.ahead > 0.2)
    assert got == Sticks(0.4)
    assert port.sticks(1.29) == got
    assert port.sticks(1.31) is None


def test_a_station_gets_what_it_needs_before_it_sends_sticks(link) -> None:
    port, station = link
    vehicle = Tello()
    port.report(0.0, vehicle.pose())  # not before a station is heard: nothing would take it
    for i, (name, value) in enumerate(PARAMETERS.items(), start=1):
        station.send(station.link.param_request_read_encode(1, 1, name.encode(), -1))
        station.sticks(100 * i)
        until(port, 1.0, lambda got, ahead=0.1 * i: got is not None and got.ahead == pytest.approx(ahead))
        answer = station.next("PARAM_VALUE")
        assert answer.param_id == name
        raw = answer.param_value
        read = struct.unpack("<i", struct.pack("<f", raw))[0] if isinstance(value, int) else raw
        assert read == pytest.approx(value)
    port.report(1.0, vehicle.pose())
    heartbeat = station.next("HEARTBEAT")
    assert heartbeat.autopilot == common.MAV_AUTOPILOT_PX4 and heartbeat.custom_mode == 2 << 16
    attitude = station.next("ATTITUDE_QUATERNION")
    assert attitude.q1 == pytest.approx(0.7071, abs=1e-3) and attitude.q4 == pytest.approx(
        0.7071, abs=1e-3
    )  # nose east
    assert station.next("LOCAL_POSITION_NED").z == pytest.approx(0.0)


def test_the_virtual_remote_connects_and_flies_it(link) -> None:
    port, station = link
    vehicle, remote = Tello(), Aircraft(1)
    for i in range(4000):
        now_s = 0.01 * i
        remote.receive(station.raw(), now_s)
        remote.step(now_s)
        if remote.connected(now_s) and not remote.missing_parameters:
            remote.manual_control(ManualControl(0, 0, 900, 0))
        for frame in remote.take_output():
            station.put(frame)
        if (got := port.sticks(now_s)) is not None:
            vehicle.advance(got, STILL, 10)
        port.report(now_s, vehicle.pose())
        if remote.motion(now_s)[0][2] > 1.0:
            break
    assert remote.status(now_s).armed and remote.vehicle.mode is FcuMode.ALTCTL and not remote.vehicle.wrong
    assert remote.motion(now_s)[0][2] == pytest.approx(vehicle.pose().p_W[2], abs=0.3)


def test_the_flight_begins_with_the_first_sticks(link) -> None:
    port, station = link
    station.sticks(300)
    port.wait(Tello().pose())
    assert port.sticks(0.29) == Sticks(0.3)
    assert port.sticks(0.31) is None


@pytest.mark.parametrize(
    ("command", "parameters", "accepted"),
    [
        (common.MAV_CMD_DO_SET_MODE, (1, 2), True),
        (common.MAV_CMD_DO_SET_MODE, (1, 4), False),
        (common.MAV_CMD_COMPONENT_ARM_DISARM, (1,), True),
        (common.MAV_CMD_COMPONENT_ARM_DISARM, (0,), False),
        (common.MAV_CMD_SET_MESSAGE_INTERVAL, (31, 20000), True),
        (common.MAV_CMD_NAV_TAKEOFF, (), False),
    ],
)
def test_it_is_armed_in_altitude_mode_and_denies_everything_else(link, command, parameters, accepted) -> None:
    port, station = link
    values = [*parameters, *[0] * (7 - len(parameters))]
    station.send(station.link.command_long_encode(1, 1, command, 0, *values))
    station.sticks(0)
    until(port, 1.0, lambda got: got is not None)
    ack = station.next("COMMAND_ACK")
    assert (ack.command, ack.target_system) == (command, 254)
    assert (ack.result == common.MAV_RESULT_ACCEPTED) == accepted


def test_a_port_that_is_taken_is_one_line(link) -> None:
    port, station = link
    with pytest.raises(UserError, match="UDP port"):
        RemotePort(station._address[1])

"""PX4's external simulator link: HIL_SENSOR, HIL_GPS and RC_CHANNELS out, HIL_ACTUATOR_CONTROLS in, in lockstep.

PX4 connects to us (TCP port 4560 + instance). The ``time_usec`` of each HIL_SENSOR *is* PX4's time; it computes one
control step for it and answers with HIL_ACTUATOR_CONTROLS (PX4 `SimulatorMavlink.cpp`). During its start-up no
answers come: until the first one we step without waiting.
"""

import contextlib
import select
import socket
import struct
from typing import NamedTuple

from companion.core.config import ConfigError
from sitl.autopilot.conversion import Vec3
from sitl.autopilot.wire import Writer, layout
from sitl.px4.process import Px4Ended

TCP_PORT = 4560
CONNECT_S = 20.0  # until PX4 must have connected
ANSWER_S = 5.0  # limit of the wall time of a step of PX4; a machine that swaps needs this
FREE_STEP_S = 0.004  # wall time that a step waits for the first answer
RECEIVE_MAX = 65536
ACCEL, GYRO, MAG, BARO = 0x7, 0x38, 0x1C0, 0x1A00  # fields_updated

_CONTROLS = struct.Struct("<QQ16fB")  # time_usec, flags, controls, mode
_CONTROLS_ID = 93
_HEADER_V1, _HEADER_V2, _CHECKSUM = 6, 10, 2
_ARMED = 128


class Controls(NamedTuple):
    """Motor commands 0..1 in PX4's order, zero while disarmed."""

    motors: tuple[float, ...]
    armed: bool


class HilLink:
    """The link of one simulated aircraft; raises `ConfigError` when the port is taken."""

    def __init__(self, instance: int, host: str = "127.0.0.1") -> None:
        self.port = TCP_PORT + instance
        self._server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._server.bind((host, self.port))
        except OSError as error:
            self._server.close()
            raise ConfigError(f"TCP port {self.port}: {error.strerror}: is another simulator running?") from None
        self._server.listen(1)
        self._socket: socket.socket | None = None
        self._buffer = b""
        self.writer = Writer(1, 51)  # system and component of a simulator; PX4 checks neither
        self.answered = False  # PX4 has begun to answer

    def connected(self, wait_s: float) -> bool:
        """Wait for PX4 for at most wait_s; whether it is connected."""
        if self._socket is None and select.select([self._server], [], [], wait_s)[0]:
            self._socket, _ = self._server.accept()
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.settimeout(ANSWER_S)
        return self._socket is not None

    def step(self) -> Controls | None:
        """Send the written messages and wait for PX4's answer; None while it does not answer yet.

        Raises `Px4Ended` when PX4 has not connected, closes the link or stops answering.
        """
        data, link = self.writer.take(), self._socket
        if link is None:
            raise Px4Ended("PX4 has not connected to the simulator")
        try:
            link.sendall(data)
            while True:
                if (controls := self._take_controls()) is not None:
                    self.answered = True
                    return controls
                wait_s = ANSWER_S if self.answered else FREE_STEP_S
                if not select.select([link], [], [], wait_s)[0]:
                    if self.answered:
                        raise Px4Ended(f"PX4 has not answered for {ANSWER_S:g} s")
                    return None
                received = link.recv(RECEIVE_MAX)
                if not received:
                    raise Px4Ended("PX4 has closed the simulator's link")
                self._buffer += received
        except OSError as error:
            raise Px4Ended(f"the simulator's link to PX4 broke: {error.strerror or error}") from None

    def _take_controls(self) -> Controls | None:
        """The next HIL_ACTUATOR_CONTROLS of the buffer; other messages are skipped.

        TCP neither loses nor changes bytes, so frames follow each other without a gap.
        """
        buffer, at, found = self._buffer, 0, None
        while found is None and len(buffer) - at >= _HEADER_V2:
            v2 = buffer[at] == 0xFD
            if not v2 and buffer[at] != 0xFE:
                raise Px4Ended("PX4 sends bytes that are not MAVLink on the simulator's link")
            start = at + (_HEADER_V2 if v2 else _HEADER_V1)
            end = start + buffer[at + 1]
            if end + _CHECKSUM > len(buffer):
                break
            number = int.from_bytes(buffer[at + 7 : at + 10], "little") if v2 else buffer[at + 5]
            if number == _CONTROLS_ID:
                found = _CONTROLS.unpack(buffer[start:end].ljust(_CONTROLS.size, b"\0"))
            at = end + _CHECKSUM
        self._buffer = buffer[at:]
        return None if found is None else Controls(found[2:8], bool(found[18] & _ARMED))

    def close(self) -> None:
        """Close the link and release the port."""
        for end in (self._socket, self._server):
            if end is not None:
                with contextlib.suppress(OSError):
                    end.close()


def hil_sensor(
    time_us: int, accel: Vec3, gyro: Vec3, mag: Vec3 | None, pressure_hpa: float | None
) -> tuple[float, ...]:
    """Values of HIL_SENSOR in wire order. accel [m/s²], gyro [rad/s], mag [gauss] or None: FRD; pressure or None."""
    fields = ACCEL | GYRO | (0 if mag is None else MAG) | (0 if pressure_hpa is None else BARO)
    pressure_hpa = pressure_hpa or 0.0
    return (time_us, *accel, *gyro, *(mag or (0.0, 0.0, 0.0)), pressure_hpa, 0.0, 0.0, 20.0, fields, 0)


def rc_channels(boot_ms: int, channels_us: list[int]) -> tuple[int, ...]:
    """Values of RC_CHANNELS in wire order; channels that do not exist read 65535."""
    return (boot_ms, *[*channels_us, *[65535] * 18][:18], len(channels_us), 100)


assert layout("HIL_ACTUATOR_CONTROLS").id == _CONTROLS_ID

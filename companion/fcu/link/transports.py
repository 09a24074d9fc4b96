"""The devices that carry the bytes of a link: serial port, UDP port, UDP address, TCP client.

A transport moves bytes and raises one of `FAILURES` when it fails; `companion.fcu.link.link.Link` catches the error and
opens the transport again.
"""

import contextlib
import errno
import math
import os
import select
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import serial

from companion.fcu.link import holders
from companion.fcu.link.sender import ANY_SENDER, Sender, is_mavlink

FAILURES = (OSError, ValueError, serial.SerialException)  # what a transport may raise

# A udpin peer from which no frame of the flight controller came for this long may be replaced by another (a restarted
# router); a TCP connection as silent is made again (the other end is gone without a word). PX4 sends every second at least.
PEER_SILENCE_S = 5.0
PEER_CHECK_S = 0.5  # between two checks that the peer's datagrams have frames of the flight controller
# A serial port without a byte of the flight controller for this long may be another's: only then its name counts. PX4 sends a
# heartbeat every second; a port that delivers its frames is the right one, whatever device udev gives the name to.
SERIAL_SILENCE_S = 2.5
FRAME_MAX = 280  # bytes of a signed MAVLink 2 frame
LOCKED = (errno.EAGAIN, errno.EBUSY)  # flock(2) and TIOCEXCL of another process
READ_MAX = 65_536  # bytes of one read
FOREIGN_MAX = 3  # addresses of others that are kept
DATAGRAMS_MAX = 64  # of one read, so that a flood cannot keep the process from its other work


class DeviceRefused(OSError):
    """The system does not let this process open a device that is there.

    systemd resolves the groups of `DeviceAllow=` once, at the start of a process, and skips those whose driver is not
    loaded yet. A device of such a group stays closed to the process until its end.
    """


class Transport(Protocol):
    """Moves bytes without blocking; closed at first. All methods but `fileno`, `close` and `refusal` may raise."""

    foreign: int  # datagrams of senders that are not the peer
    foreign_senders: tuple[str, ...]  # the newest `FOREIGN_MAX` of them, as host:port

    def open(self) -> None:
        """Open the device; what was left from before the loss is forgotten."""

    def close(self) -> None:
        """Release the device; it may be closed already."""

    def fileno(self) -> int:
        """Descriptor to poll for reading, -1 while closed."""

    def is_ready(self) -> bool:
        """True when an open transport can carry bytes."""

    def read(self) -> bytes:
        """The bytes that have arrived, b"" if none have."""

    def write(self, data: bytes) -> bool:
        """Send a whole frame or drop it; returns whether it left."""

    def refusal(self, error: Exception) -> str:
        """Why the device could not be opened, for a user."""


def describe(error: Exception) -> str:
    """One line for an error of the operating system."""
    number = getattr(error, "errno", None)
    return os.strerror(number).lower() if number else str(error)


class SerialPort:
    """A UART or USB serial port; it can be unplugged and plugged in again."""

    def __init__(self, device: str, baud: int, clock: Callable[[], float], sender: Sender) -> None:
        """sender: whose frames keep the port open when its name leads elsewhere; of `ANY_SENDER` every byte does."""
        self.foreign = 0
        self.foreign_senders: tuple[str, ...] = ()
        self._device, self._baud, self._clock, self._sender = device, baud, clock, sender
        self._heard_s = 0.0  # when the sender was last heard, or the port was opened
        self._recent = b""  # of a port without the name: the newest bytes, in which a frame may have begun
        self._port: serial.Serial | None = None
        self._tail = b""  # rest of a frame that the driver took in part

    def open(self) -> None:
        if not Path(self._device).exists():
            raise OSError(errno.ENODEV, "unplugged")
        try:
            self._port = serial.Serial(self._device, self._baud, timeout=0, write_timeout=0, exclusive=True)
        except serial.SerialException as error:
            if error.errno == errno.EPERM:  # not EACCES, which is the mode of the file
                raise DeviceRefused(errno.EPERM, os.strerror(errno.EPERM)) from None
            raise
        self._tail, self._recent, self._heard_s = b"", b"", self._clock()

    def fileno(self) -> int:
        return int(self._port.fileno()) if self._port is not None else -1

    def close(self) -> None:
        port, self._port = self._port, None
        if port is not None:
            with contextlib.suppress(OSError):  # the device is gone; there is nothing to release
                port.close()

    def is_ready(self) -> bool:
        return True

    def read(self) -> bytes:
        data = os.read(self.fileno(), READ_MAX)
        named = self._is_named()
        if data:
            if named or self._is_of_sender(data):
                self._heard_s = self._clock()
        else:
            poll = select.poll()  # no data or a hang-up: only poll can distinguish them
            poll.register(self.fileno(), 0)
            if poll.poll(0):
                raise OSError(errno.ENODEV, "unplugged")
        if not named and self._clock() - self._heard_s >= SERIAL_SILENCE_S:
            raise OSError(errno.ENODEV, "unplugged")
        return data

    def _is_of_sender(self, data: bytes) -> bool:
        self._recent = self._recent[-FRAME_MAX:] + data
        heard = self._sender is ANY_SENDER or self._sender.sent(self._recent)
        if heard:
            self._recent = b""  # each frame counts once
        return heard

    def _is_named(self) -> bool:
        """Whether the name still leads to the open device.

        udev may point the name to another port while the flight controller restarts: a silent one, or a radio that delivers.
        Without this comparison it would stay open when the name leads to the flight controller again.
        """
        try:
            return os.stat(self._device).st_rdev == os.fstat(self.fileno()).st_rdev
        except OSError:  # a port that delivers is not closed because its name cannot be read
            return False

    def write(self, data: bytes) -> bool:
        descriptor = self.fileno()
        if self._tail:
            self._tail = self._tail[os.write(descriptor, self._tail) :]
            if self._tail:
                return False  # a late setpoint is worse than a missing one: the new frame is dropped
        try:
            self._tail = data[os.write(descriptor, data) :]
        except BlockingIOError:
            return False
        return True

    def refusal(self, error: Exception) -> str:
        if not Path(self._device).exists():
            return f"no serial device {self._device}"
        if isinstance(error, OSError) and error.errno in LOCKED:
            holder = holders.of_device(self._device) or "another program"
            return f"serial device {self._device} is in use by {holder}; end it first"
        unit = " (DeviceAllow= of the unit?)" if isinstance(error, DeviceRefused) else ""
        return f"serial device {self._device} cannot be opened: {describe(error)}{unit}"


class _Socket:
    """Life of one socket: it is opened, used, closed and opened again."""

    def __init__(self, kind: socket.SocketKind) -> None:
        self._kind = kind
        self._socket: socket.socket | None = None

    def open(self) -> socket.socket:
        """A new socket that does not block."""
        self._socket = opened = socket.socket(socket.AF_INET, self._kind)
        opened.setblocking(False)
        return opened

    def fileno(self) -> int:
        return self._socket.fileno() if self._socket is not None else -1

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def get(self) -> socket.socket:
        """The open socket; raises OSError while it is closed."""
        if self._socket is None:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return self._socket


class UdpPort:
    """Receives at a port; answers the address from which the flight controller's frames come.

    That address is the peer, and it stays the peer while such frames come from it. Datagrams of others are counted and
    ignored. While there is no peer, MAVLink of any sender is read, so that a flight controller with another id can be
    reported; nothing is sent to it.
    """

    def __init__(
        self,
        address: tuple[str, int],
        clock: Callable[[], float],
        sender: Sender,
        fixed: tuple[str, int | None] | None = None,
    ) -> None:
        """sender: whose frames make a peer; fixed: the only address that may be the peer; port None: any port there."""
        self.foreign = 0
        self.foreign_senders: tuple[str, ...] = ()
        self.peer: tuple[str, int] | None = None
        self._address, self._clock, self._sender = address, clock, sender
        self._fixed_host = None if fixed is None else fixed[0]
        self._fixed_port = None if fixed is None else fixed[1]
        self._socket = _Socket(socket.SOCK_DGRAM)
        self._heard_s = -math.inf  # when the peer last sent a frame of the flight controller

    def open(self) -> None:
        opened = self._socket.open()
        opened.bind(self._address)
        if self._fixed_host is not None and self._fixed_port is not None:
            # the system drops the datagrams of all others: a flood of them cannot fill the socket's queue
            self.peer = (self._fixed_host, self._fixed_port)
            opened.connect(self.peer)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def is_ready(self) -> bool:
        return True

    def read(self) -> bytes:
        opened = self._socket.get()
        parts: list[bytes] = []
        for _ in range(DATAGRAMS_MAX):
            try:
                data, sender = opened.recvfrom(READ_MAX)
            except (BlockingIOError, ConnectionError):
                break
            if self._is_read(sender, data):
                parts.append(data)
            else:
                self._note_foreign(f"{sender[0]}:{sender[1]}")
        return b"".join(parts)

    def _note_foreign(self, sender: str) -> None:
        self.foreign += 1
        if sender not in self.foreign_senders:
            self.foreign_senders = (*self.foreign_senders, sender)[-FOREIGN_MAX:]

    def _is_read(self, sender: tuple[str, int], data: bytes) -> bool:
        """Whether a datagram is passed on; its sender becomes the peer when the place is vacant and it may have it."""
        if self._fixed_port is not None:
            return True
        if self._fixed_host not in (None, sender[0]):
            return False
        now_s = self._clock()
        silent_s = now_s - self._heard_s
        if sender == self.peer:
            if silent_s > PEER_CHECK_S and self._sender.sent(data):
                self._heard_s = now_s
            return True
        if silent_s <= PEER_SILENCE_S:
            return False
        if self._sender.sent(data):
            self.peer, self._heard_s = sender, now_s
            return True
        return self.peer is None and is_mavlink(data)

    def write(self, data: bytes) -> bool:
        if self.peer is None:
            return False
        try:
            if self._fixed_port is not None:
                self._socket.get().send(data)
            else:
                self._socket.get().sendto(data, self.peer)
        except ConnectionError:  # the peer's port is closed at the moment
            return False
        return True

    def refusal(self, error: Exception) -> str:
        in_use = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        if in_use:
            why = f"is in use by {holders.of_udp_port(self._address[1]) or 'another program'}"
        else:
            why = f"cannot be opened: {describe(error)}"
        return f"UDP port {self._address[1]} on {self._address[0]} {why}"


class UdpAddress:
    """Sends to a known address and receives from that address only."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.foreign = 0
        self.foreign_senders: tuple[str, ...] = ()
        self._address = address
        self._socket = _Socket(socket.SOCK_DGRAM)

    def open(self) -> None:
        self._socket.open().connect(self._address)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def is_ready(self) -> bool:
        return True

    def read(self) -> bytes:
        opened = self._socket.get()
        parts: list[bytes] = []
        for _ in range(DATAGRAMS_MAX):
            try:
                parts.append(opened.recv(READ_MAX))
            except (BlockingIOError, ConnectionError):
                break
        return b"".join(parts)

    def write(self, data: bytes) -> bool:
        try:
            self._socket.get().send(data)
        except ConnectionError:  # the port is not open yet at the other end
            return False
        return True

    def refusal(self, error: Exception) -> str:
        return f"{self._address[0]}:{self._address[1]} cannot be reached: {describe(error)}"


class TcpClient:
    """A TCP connection; it is made in the background, and again when the other end is silent."""

    def __init__(self, address: tuple[str, int], clock: Callable[[], float]) -> None:
        self.foreign = 0
        self.foreign_senders: tuple[str, ...] = ()
        self._address, self._clock = address, clock
        self._heard_s = 0.0
        self._socket = _Socket(socket.SOCK_STREAM)
        self._connected = False
        self._tail = b""  # rest of a frame that the system took in part

    def open(self) -> None:
        opened = self._socket.open()
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connected, self._tail = False, b""
        error = opened.connect_ex(self._address)
        if error not in (0, errno.EINPROGRESS):
            raise OSError(error, os.strerror(error))

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._connected = False
        self._socket.close()

    def is_ready(self) -> bool:
        """True once the connection is made; raises OSError when it was refused or has fallen silent."""
        if not self._connected:
            opened = self._socket.get()
            if not select.select([], [opened], [], 0)[1]:
                return False
            error = opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            self._connected, self._heard_s = True, self._clock()
        if self._clock() - self._heard_s > PEER_SILENCE_S and not select.select([self._socket.get()], [], [], 0)[0]:
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        return True

    def read(self) -> bytes:
        data = self._socket.get().recv(READ_MAX)
        if not data:
            raise OSError(errno.ECONNRESET, "closed")
        self._heard_s = self._clock()
        return data

    def write(self, data: bytes) -> bool:
        opened = self._socket.get()
        if self._tail:
            self._tail = self._tail[opened.send(self._tail) :]
            if self._tail:
                return False
        self._tail = data[opened.send(data) :]
        return True

    def refusal(self, error: Exception) -> str:
        return f"{self._address[0]}:{self._address[1]} cannot be reached: {describe(error)}"

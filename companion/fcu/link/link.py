"""The wire to the flight controller: serial, UDP or TCP, named by a URL.

This is the only impure module of the room. What a user can get wrong stops the start with one line (`ConfigError`);
what breaks in flight is told in `trouble`, counted, and tried again every second, and nothing raises.
"""

import contextlib
import errno
import os
import select
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import serial

from companion.core.clock import monotonic_s
from companion.core.config import ConfigError
from companion.fcu.link.forward import Forward

RETRY_S = 1.0  # between two attempts to open what was lost
PEER_SILENCE_S = 5.0  # a udpin peer silent for so long may be followed by another (a restarted router)
READ_MAX = 65_536  # bytes of one read
DATAGRAMS_MAX = 64  # of one read, so that a flood cannot keep the process from its other work
FORMS = "serial:/dev/ttyAMA0:921600, udpin:0.0.0.0:14540, udpout:host:port or tcp:host:port"
_MAGIC = (0xFD, 0xFE)
_FOR_EVERYBODY = (0, 253)  # HEARTBEAT and STATUSTEXT of our own are the ground's business, too


def open_link(url: str, clock: Callable[[], float] = monotonic_s, forward: Sequence[str] = ()) -> "Link":
    """Open the link a vehicle file names; raises `ConfigError` with one line naming the device.

    A TCP peer that is not there yet is no error (it may start later); it shows in `trouble`.
    forward: URLs of ground stations that share the link.
    """
    ground = Forward(forward, _resolve) if forward else None
    try:
        link = _open_link(url, clock)
    except ConfigError:
        if ground is not None:
            ground.close()
        raise
    link.ground = ground
    return link


def _open_link(url: str, clock: Callable[[], float]) -> "Link":
    kind, _, rest = url.partition(":")
    place, _, number = rest.rpartition(":")
    if kind not in ("serial", "udpin", "udpout", "tcp") or not place or not number.isdecimal():
        raise ConfigError(f"link {url!r}: not one of {FORMS}")
    value = int(number)
    if kind == "serial":
        return SerialLink(url, place, value, clock)
    if not 0 < value < 65536:
        raise ConfigError(f"link {url}: port {value} is not in 1 to 65535")
    address = _resolve(url, place, value)
    return {"udpin": UdpInLink, "udpout": UdpOutLink, "tcp": TcpLink}[kind](url, address, clock)


def _resolve(url: str, host: str, port: int) -> tuple[str, int]:
    try:
        return socket.getaddrinfo(host, port, socket.AF_INET)[0][4][:2]
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"link {url}: host {host!r} cannot be resolved: {error}") from None


class Link:
    """Bytes to and from the flight controller.

    `trouble` is "" while all is well, else one line; `dropped` counts what could not be sent; `foreign` counts
    datagrams of peers that are not ours; `losses` counts how often the link broke. `ground` is the line to the ground
    stations that share the link, or None: it gets what the flight controller says and our own texts.
    """

    def __init__(self, url: str, clock: Callable[[], float]) -> None:
        self.url = url
        self.trouble = ""
        self.dropped = 0
        self.foreign = 0
        self.losses = 0
        self.ground: Forward | None = None
        self._clock = clock
        self._retry_at_s = 0.0

    def fileno(self) -> int:
        """Descriptor to poll for reading, -1 while there is none; it changes when the link is opened again."""
        raise NotImplementedError

    def read(self, timeout_s: float = 0.0) -> bytes:
        """What has come, b"" if nothing did within `timeout_s`; never raises."""
        descriptor = self.fileno()
        if timeout_s > 0.0 and descriptor >= 0:
            with contextlib.suppress(OSError, ValueError):
                select.select([descriptor], [], [], timeout_s)
        data = self._guarded(self._read) or b""
        if data and self.ground is not None:
            self.ground.send(data)
        return data

    def read_ground(self) -> bytes:
        """What ground stations want to say to the flight controller; never blocks, never raises."""
        return self.ground.read() if self.ground is not None else b""

    def write(self, data: bytes) -> bool:
        """Send whole frames or count them as dropped; returns whether they left; never blocks, never raises."""
        if self.ground is not None and len(data) > 9 and data[7] in _FOR_EVERYBODY and data[8] == data[9] == 0:
            self.ground.send(data)
        if self._guarded(lambda: self._write(data)):
            return True
        self.dropped += 1
        return False

    def close(self) -> None:
        """Give the device back."""
        raise NotImplementedError

    def _guarded(self, work: Callable):
        """Run `work` on an open link; a failure is told and closes it until the next attempt."""
        try:
            if self.fileno() < 0 and not self._reopen():
                return None
            return work()
        except BlockingIOError:
            return None
        except (OSError, ValueError, serial.SerialException) as error:
            self._lose(_words(error))
            return None

    def _reopen(self) -> bool:
        now_s = self._clock()
        if now_s < self._retry_at_s:
            return False
        self._retry_at_s = now_s + RETRY_S
        self._open()
        return self.fileno() >= 0

    def _lose(self, why: str) -> None:
        if self.fileno() >= 0:
            self.losses += 1
        self.close()
        self.trouble = f"link {self.url}: {why}; trying again every {RETRY_S:g} s"
        self._retry_at_s = self._clock() + RETRY_S

    def _open(self) -> None:
        raise NotImplementedError

    def _read(self) -> bytes:
        raise NotImplementedError

    def _write(self, data: bytes) -> bool:
        raise NotImplementedError


def _words(error: Exception) -> str:
    number = getattr(error, "errno", None)
    return os.strerror(number).lower() if number else str(error)


class SerialLink(Link):
    """A UART or USB serial port; unplugged and plugged in again, it comes back."""

    def __init__(self, url: str, device: str, baud: int, clock: Callable[[], float]) -> None:
        super().__init__(url, clock)
        self._device, self._baud = device, baud
        self._port: serial.Serial | None = None
        self._tail = b""  # rest of a frame the driver took in part
        if not Path(device).exists():
            raise ConfigError(f"link {url}: no serial device {device}")
        try:
            self._open()
        except (OSError, ValueError, serial.SerialException) as error:
            raise ConfigError(f"link {url}: serial device {device} cannot be opened: {_words(error)}") from None

    def _open(self) -> None:
        if not Path(self._device).exists():
            raise OSError(errno.ENODEV, "unplugged")
        self._port = serial.Serial(self._device, self._baud, timeout=0, write_timeout=0, exclusive=True)
        self._tail = b""
        self.trouble = ""

    def fileno(self) -> int:
        return self._port.fileno() if self._port is not None else -1

    def close(self) -> None:
        port, self._port = self._port, None
        if port is not None:
            with contextlib.suppress(OSError):  # the device has gone; nothing is left to give back
                port.close()

    def _read(self) -> bytes:
        data = os.read(self.fileno(), READ_MAX)
        if not data:  # nothing there, or nobody: only poll tells a hang-up from silence
            poll = select.poll()
            poll.register(self.fileno(), 0)
            if poll.poll(0) or not Path(self._device).exists():
                raise OSError(errno.ENODEV, "unplugged")
        return data

    def _write(self, data: bytes) -> bool:
        descriptor = self.fileno()
        if self._tail:
            self._tail = self._tail[os.write(descriptor, self._tail) :]
            if self._tail:
                return False  # a late setpoint is worth less than none: the new frame goes
        try:
            self._tail = data[os.write(descriptor, data) :]
        except BlockingIOError:
            return False
        return True


class UdpInLink(Link):
    """Waits at a port and answers the first peer that sends MAVLink; datagrams of others are counted and ignored."""

    def __init__(self, url: str, address: tuple[str, int], clock: Callable[[], float]) -> None:
        super().__init__(url, clock)
        self._address = address
        self._socket: socket.socket | None = None
        self.peer: tuple[str, int] | None = None
        self._peer_heard_s = 0.0
        try:
            self._open()
        except OSError as error:
            self.close()
            busy = (
                "is in use by another program"
                if error.errno == errno.EADDRINUSE
                else f"cannot be opened: {_words(error)}"
            )
            raise ConfigError(f"link {url}: UDP port {address[1]} on {address[0]} {busy}") from None

    def _open(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(self._address)
        self.trouble = ""

    def fileno(self) -> int:
        return self._socket.fileno() if self._socket is not None else -1

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _read(self) -> bytes:
        parts: list[bytes] = []
        for _ in range(DATAGRAMS_MAX):
            try:
                data, sender = self._socket.recvfrom(READ_MAX)
            except (BlockingIOError, ConnectionError):
                break
            if self._is_peer(sender, data):
                parts.append(data)
            else:
                self.foreign += 1
        return b"".join(parts)

    def _is_peer(self, sender: tuple[str, int], data: bytes) -> bool:
        now_s = self._clock()
        if sender != self.peer:
            vacant = self.peer is None or now_s - self._peer_heard_s > PEER_SILENCE_S
            if not vacant or not data or data[0] not in _MAGIC:
                return False
            self.peer = sender
        self._peer_heard_s = now_s
        return True

    def _write(self, data: bytes) -> bool:
        if self.peer is None:
            return False
        try:
            self._socket.sendto(data, self.peer)
        except ConnectionError:  # the peer's port is closed at the moment
            return False
        return True


class UdpOutLink(Link):
    """Sends to a known address and hears only that one."""

    def __init__(self, url: str, address: tuple[str, int], clock: Callable[[], float]) -> None:
        super().__init__(url, clock)
        self._address = address
        self._socket: socket.socket | None = None
        try:
            self._open()
        except OSError as error:
            self.close()
            raise ConfigError(f"link {url}: {address[0]}:{address[1]} cannot be reached: {_words(error)}") from None

    def _open(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.connect(self._address)
        self.trouble = ""

    def fileno(self) -> int:
        return self._socket.fileno() if self._socket is not None else -1

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _read(self) -> bytes:
        parts: list[bytes] = []
        for _ in range(DATAGRAMS_MAX):
            try:
                parts.append(self._socket.recv(READ_MAX))
            except (BlockingIOError, ConnectionError):
                break
        return b"".join(parts)

    def _write(self, data: bytes) -> bool:
        try:
            self._socket.send(data)
        except ConnectionError:  # nobody listens there yet
            return False
        return True


class TcpLink(Link):
    """A TCP client; it connects in the background and again after every loss."""

    def __init__(self, url: str, address: tuple[str, int], clock: Callable[[], float]) -> None:
        super().__init__(url, clock)
        self._address = address
        self._socket: socket.socket | None = None
        self._connected = False
        self._tail = b""
        self._guarded(lambda: None)

    def _open(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connected, self._tail = False, b""
        error = self._socket.connect_ex(self._address)
        if error not in (0, errno.EINPROGRESS):
            raise OSError(error, os.strerror(error))

    def fileno(self) -> int:
        return self._socket.fileno() if self._socket is not None else -1

    def close(self) -> None:
        self._connected = False
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ready(self) -> bool:
        """True once the connection stands; raises OSError when it was refused."""
        if not self._connected:
            if not select.select([], [self._socket], [], 0)[1]:
                return False
            error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            self._connected, self.trouble = True, ""
        return True

    def _read(self) -> bytes:
        if not self._ready():
            return b""
        data = self._socket.recv(READ_MAX)
        if not data:
            raise OSError(errno.ECONNRESET, "closed")
        return data

    def _write(self, data: bytes) -> bool:
        if not self._ready():
            return False
        if self._tail:
            self._tail = self._tail[self._socket.send(self._tail) :]
            if self._tail:
                return False
        self._tail = data[self._socket.send(data) :]
        return True

"""The link to the flight controller, named by a URL: opens a transport, reopens it after a loss, feeds ground stations.

This module, `companion.fcu.link.transports` and `companion.fcu.link.forward` are the only impure parts of the package.
A user's mistake stops the start with one line (`ConfigError`). A failure in flight is reported in `trouble`, counted,
and followed by an attempt to reopen every second; nothing raises.
"""

import contextlib
import select
import socket
from collections.abc import Callable, Sequence
from typing import TypeVar

from companion.core.clock import monotonic_s
from companion.core.config import ConfigError
from companion.fcu.link.forward import Forward
from companion.fcu.link.sender import ANY_SENDER, Sender
from companion.fcu.link.transports import (
    FAILURES,
    DeviceRefused,
    SerialPort,
    TcpClient,
    Transport,
    UdpAddress,
    UdpPort,
    describe,
)

RETRY_S = 1.0  # between two attempts to reopen a lost transport
REFUSED_S = 3.0  # refused for this long, a device stays closed until another process opens it
FORMS = "serial:/dev/ttyAMA0:921600, udpin:0.0.0.0:14540, udpout:host:port or tcp:host:port"
BAUD = (9600, 12_000_000)  # from a telemetry radio to the fastest adapters
FIXED_PEER = "?peer="  # behind udpin:host:port: the only address that is answered, with or without its port
_SHARED_MESSAGES = (0, 253)  # our HEARTBEAT and STATUSTEXT also go to the ground stations

T = TypeVar("T")


class Link:
    """Bytes to and from the flight controller.

    `trouble` is "" while the link works, otherwise one line; `dropped` counts frames that could not be sent; `losses`
    counts how often the link broke. `ground` has the sockets of the ground stations that share the link, or is None:
    they get all bytes of the flight controller and our own heartbeats and texts.
    """

    def __init__(
        self, url: str, transport: Transport, clock: Callable[[], float], ground: Forward | None = None
    ) -> None:
        self.url = url
        self.transport = transport
        self.ground = ground
        self.trouble = ""
        self.dropped = 0
        self.losses = 0
        self._clock = clock
        self._retry_at_s = 0.0
        self._refused_since_s: float | None = None

    @property
    def refused(self) -> bool:
        """Whether the system has not let this process open the device for `REFUSED_S`: only a new start can help."""
        return self._refused_since_s is not None and self._clock() - self._refused_since_s >= REFUSED_S

    @property
    def foreign(self) -> int:
        """Datagrams of senders that are not the peer."""
        return self.transport.foreign

    @property
    def foreign_senders(self) -> tuple[str, ...]:
        """The newest of them, as host:port."""
        return self.transport.foreign_senders

    def fileno(self) -> int:
        """Descriptor to poll for reading, -1 while there is none; it changes when the link is opened again."""
        return self.transport.fileno()

    def read(self, timeout_s: float = 0.0) -> bytes:
        """The bytes that have arrived, b"" if there were none within `timeout_s`; never raises."""
        descriptor = self.fileno()
        if timeout_s > 0.0 and descriptor >= 0:
            with contextlib.suppress(OSError, ValueError):
                select.select([descriptor], [], [], timeout_s)
        data = self._guarded(self.transport.read) or b""
        if data and self.ground is not None:
            self.ground.send(data)
        return data

    def read_ground(self) -> bytes:
        """The bytes that ground stations sent for the flight controller; never blocks, never raises."""
        return self.ground.read() if self.ground is not None else b""

    def write(self, data: bytes) -> bool:
        """Send whole frames or count them as dropped; returns whether they left; never blocks, never raises."""
        if self.ground is not None and len(data) > 9 and data[7] in _SHARED_MESSAGES and data[8] == data[9] == 0:
            self.ground.send(data)
        if self._guarded(lambda: self.transport.write(data)):
            return True
        self.dropped += 1
        return False

    def try_open(self) -> None:
        """Open the transport if it is closed; a failure is reported in `trouble`."""
        self._guarded(lambda: None)

    def close(self) -> None:
        """Release the device."""
        self.transport.close()

    def _guarded(self, work: Callable[[], T]) -> T | None:
        """Run `work` on a transport that is ready; a failure is reported and closes it until the next attempt."""
        try:
            if self.fileno() < 0 and not self._reopen():
                return None
            if not self.transport.is_ready():
                return None
            self.trouble, self._refused_since_s = "", None
            return work()
        except BlockingIOError:
            return None
        except FAILURES as error:
            self._note_refusal(error)
            self._lose(describe(error))
            return None

    def _reopen(self) -> bool:
        now_s = self._clock()
        if now_s < self._retry_at_s:
            return False
        self._retry_at_s = now_s + RETRY_S
        self.transport.open()
        return self.fileno() >= 0

    def _note_refusal(self, error: Exception) -> None:
        if not isinstance(error, DeviceRefused):
            self._refused_since_s = None
        elif self._refused_since_s is None:
            self._refused_since_s = self._clock()

    def _lose(self, why: str) -> None:
        if self.fileno() >= 0:
            self.losses += 1
        self.close()
        self.trouble = f"link {self.url}: {why}; trying again every {RETRY_S:g} s"
        self._retry_at_s = self._clock() + RETRY_S


def open_link(
    url: str,
    clock: Callable[[], float] = monotonic_s,
    forward: Sequence[str] = (),
    *,
    sender: Sender,
) -> Link:
    """Open the link that a vehicle file names; raises `ConfigError` with one line that names the device.

    A TCP peer that is absent is not an error (it may start later); it is reported in `trouble`.
    forward: URLs of ground stations that share the link; sender: whose frames make an address the peer of a udpin port, so
    that what is written goes to no other. It has no default: `companion.fcu.link.sender.ANY_SENDER` lets any MAVLink do.
    """
    ground = Forward(forward, _resolve) if forward else None
    try:
        transport = _transport(url, clock, sender)
        link = Link(url, transport, clock, ground)
        if isinstance(transport, TcpClient):
            link.try_open()
        else:
            _open_now(url, transport)
    except ConfigError:
        if ground is not None:
            ground.close()
        raise
    return link


def check_url(url: str) -> None:
    """Raise `ConfigError` when a URL names no link; opens nothing."""
    _transport(url, monotonic_s, ANY_SENDER)


def _transport(url: str, clock: Callable[[], float], sender: Sender) -> Transport:
    kind, _, rest = url.partition(":")
    rest, with_peer, peer = rest.partition(FIXED_PEER) if kind == "udpin" else (rest, "", "")
    place, _, number = rest.rpartition(":")
    if kind not in ("serial", "udpin", "udpout", "tcp") or not place or not number.isdecimal():
        raise ConfigError(f"link {url!r}: not one of {FORMS}")
    value = int(number)
    if kind == "serial":
        if not BAUD[0] <= value <= BAUD[1]:
            raise ConfigError(f"link {url}: {value} baud is not in {BAUD[0]} to {BAUD[1]}, as 921600")
        return SerialPort(place, value, clock, sender)
    if not 0 < value < 65536:
        raise ConfigError(f"link {url}: port {value} is not in 1 to 65535")
    address = _resolve(url, place, value)
    if kind == "udpin":
        return UdpPort(address, clock, sender, _fixed_peer(url, peer) if with_peer else None)
    return UdpAddress(address) if kind == "udpout" else TcpClient(address, clock)


def _fixed_peer(url: str, peer: str) -> tuple[str, int | None]:
    """Host and port of the only address that is answered; port None: any."""
    host, colon, port = peer.partition(":")
    if not host or (colon and not (port.isdecimal() and 0 < int(port) < 65536)):
        raise ConfigError(f"link {url}: behind {FIXED_PEER} comes HOST or HOST:PORT")
    return _resolve(url, host, int(port or 1))[0], int(port) if port else None


def _resolve(url: str, host: str, port: int) -> tuple[str, int]:
    try:
        address = socket.getaddrinfo(host, port, socket.AF_INET)[0][4]
        return str(address[0]), int(address[1])
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"link {url}: host {host!r} cannot be resolved: {error}") from None


def _open_now(url: str, transport: Transport) -> None:
    try:
        transport.open()
    except FAILURES as error:
        transport.close()
        raise ConfigError(f"link {url}: {transport.refusal(error)}") from None

"""UDP sockets to ground stations: a copy of the flight controller's bytes goes out, their answers come in.

Impure like `companion.fcu.link.link`. A peer that is absent, slow or faulty increments a counter and never causes a
wait.
"""

import socket
from collections.abc import Callable, Sequence

from companion.core.config import ConfigError

FORM = "udpout:127.0.0.1:14550"
DATAGRAM = 1400  # bytes; the chunks of a serial line are cut to fit into a packet
DATAGRAMS_MAX = 32  # of one peer in one call, so that a flood cannot keep the process from its other work
READ_MAX = 65_536


class Forward:
    """Connected UDP sockets; datagrams from other addresses are not received.

    `dropped` counts datagrams that could not be sent.
    """

    def __init__(self, urls: Sequence[str], resolve: Callable[[str, str, int], tuple[str, int]]) -> None:
        """resolve: (url, host, port) to an address; raises `ConfigError`, as does this for a URL of another form."""
        self.dropped = 0
        self._sockets: list[socket.socket] = []
        for url in urls:
            kind, _, rest = url.partition(":")
            host, _, port = rest.rpartition(":")
            if kind != "udpout" or not host or not port.isdecimal() or not 0 < int(port) < 65536:
                raise ConfigError(f"fcu.forward {url!r}: not of the form {FORM}")
            self._sockets.append(_connected(url, resolve(url, host, int(port))))

    def send(self, data: bytes) -> None:
        """Send bytes to every peer or drop them; never blocks, never raises."""
        for peer in self._sockets:
            for start in range(0, len(data), DATAGRAM):
                try:
                    peer.send(data[start : start + DATAGRAM])
                except OSError:  # the port is not open yet, or its queue is full
                    self.dropped += 1

    def read(self) -> bytes:
        """The bytes that the peers have sent; never blocks, never raises."""
        parts: list[bytes] = []
        for peer in self._sockets:
            for _ in range(DATAGRAMS_MAX):
                try:
                    parts.append(peer.recv(READ_MAX))
                except ConnectionError:  # an earlier datagram was not delivered
                    continue
                except OSError:
                    break
        return b"".join(parts)

    def close(self) -> None:
        for peer in self._sockets:
            peer.close()
        self._sockets.clear()


def _connected(url: str, address: tuple[str, int]) -> socket.socket:
    peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    peer.setblocking(False)
    try:
        peer.connect(address)
    except OSError as error:
        peer.close()
        raise ConfigError(f"fcu.forward {url}: cannot be reached: {error.strerror}") from None
    return peer

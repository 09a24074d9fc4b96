"""UDP for the PX4 emulator in real time, on PX4's ports."""

import socket

from companion.core.config import ConfigError

DATAGRAM_MAX = 65535
PIECE = 1400  # bytes sent in one datagram
DATAGRAMS_PER_POLL = 200  # a flood of datagrams must not delay the control loop
ONBOARD_PORTS = (14580, 14540)
GROUND_PORTS = (18570, 14550)


class UdpEndpoint:
    """Binds one port and sends to the sender of the newest datagram, before the first one to a default peer.

    Raises `ConfigError` with one line if the port is taken. Sending never blocks and never raises: a datagram
    that the socket does not take is dropped and counted in ``dropped``.
    """

    def __init__(
        self,
        bind_port: int = ONBOARD_PORTS[0],
        send_port: int = ONBOARD_PORTS[1],
        host: str = "127.0.0.1",
        bind_host: str = "127.0.0.1",
    ) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.bind((bind_host, bind_port))
        except OSError as error:
            self._socket.close()
            raise ConfigError(f"UDP port {bind_port}: {error.strerror}: is another simulator running?") from None
        self._socket.setblocking(False)
        self._peer = (host, send_port)
        self.dropped = 0

    def receive(self) -> bytes:
        """All bytes that have arrived."""
        pieces = []
        for _ in range(DATAGRAMS_PER_POLL):
            try:
                data, self._peer = self._socket.recvfrom(DATAGRAM_MAX)
            except (BlockingIOError, ConnectionError):  # ConnectionError: no process had bound the port we sent to
                break
            pieces.append(data)
        return b"".join(pieces)

    def send(self, data: bytes) -> None:
        """Send bytes in datagrams of at most `PIECE` bytes."""
        for start in range(0, len(data), PIECE):
            try:
                self._socket.sendto(data[start : start + PIECE], self._peer)
            except OSError:
                self.dropped += 1

    def close(self) -> None:
        """Release the port."""
        self._socket.close()


class UdpLinks:
    """Several endpoints as one link: receives from all, sends a copy to each."""

    def __init__(self, endpoints: list[UdpEndpoint]) -> None:
        self._endpoints = endpoints

    def receive(self) -> list[tuple[int, bytes]]:
        """The number of each endpoint that received bytes, from 0, and the bytes."""
        return [(i, data) for i, endpoint in enumerate(self._endpoints) if (data := endpoint.receive())]

    def send(self, data: bytes) -> None:
        """Send bytes on all endpoints."""
        for endpoint in self._endpoints:
            endpoint.send(data)

    def close(self) -> None:
        """Release all ports."""
        for endpoint in self._endpoints:
            endpoint.close()

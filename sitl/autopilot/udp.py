"""UDP for the built-in autopilot in real time, on PX4's ports."""

import socket

from companion.core.config import ConfigError

DATAGRAM_MAX = 65535
PIECE = 1400  # bytes sent in one datagram
DATAGRAMS_PER_POLL = 200  # a flood must not hold up the control loop
ONBOARD_PORTS = (14580, 14540)
GROUND_PORTS = (18570, 14550)


class UdpEndpoint:
    """Binds one port and talks to whoever spoke last, before that to a default peer.

    Raises `ConfigError` with one line if the port is taken. Sending never blocks and never raises: what does not
    fit is dropped and counted in ``dropped``.
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
        """Everything that has arrived."""
        pieces = []
        for _ in range(DATAGRAMS_PER_POLL):
            try:
                data, self._peer = self._socket.recvfrom(DATAGRAM_MAX)
            except (BlockingIOError, ConnectionError):  # ConnectionError: nobody listened to what we sent
                break
            pieces.append(data)
        return b"".join(pieces)

    def send(self, data: bytes) -> None:
        for start in range(0, len(data), PIECE):
            try:
                self._socket.sendto(data[start : start + PIECE], self._peer)
            except OSError:
                self.dropped += 1

    def close(self) -> None:
        self._socket.close()


class UdpLinks:
    """Several endpoints as one link: what arrives is joined, what is sent is copied to each."""

    def __init__(self, endpoints: list[UdpEndpoint]) -> None:
        self._endpoints = endpoints

    def receive(self) -> list[bytes]:
        """What arrived, one item for each endpoint that heard something."""
        return [data for endpoint in self._endpoints if (data := endpoint.receive())]

    def send(self, data: bytes) -> None:
        for endpoint in self._endpoints:
            endpoint.send(data)

    def close(self) -> None:
        for endpoint in self._endpoints:
            endpoint.close()

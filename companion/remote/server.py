"""The process behind the page: one port for the page and its WebSocket, one link to the aircraft, one event loop.

The loop moves texts and bytes between `companion.remote.station.Station` and its sockets. A sample of the sticks is on
the link before the loop does anything else.
"""

import asyncio
import contextlib
import http
import ipaddress
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path

from websockets.asyncio.server import Server, ServerConnection, broadcast, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from companion.core.clock import monotonic_s
from companion.core.config import ConfigError
from companion.core.text import plain
from companion.core.websocket_limits import OPEN_S, SILENT, LimitedConnection, allow_files, note_loop_errors
from companion.fcu.link.link import Link
from companion.remote.protocol import MESSAGE_MAX
from companion.remote.station import STEP_S, Station

PAGE = Path(__file__).parent / "page"
SOCKET_PATH = "/sticks"
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/remote.css": ("remote.css", "text/css; charset=utf-8"),
    "/remote.js": ("remote.js", "text/javascript; charset=utf-8"),
}
# No other page may frame this one, and it loads nothing from elsewhere.
SECURITY = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
REFUSED = 4001  # code of a WebSocket that is closed by a refusal
REASON_MAX = 120  # bytes of its reason
BACKLOG_MAX = 65_536  # bytes that a page has not read; it gets no further state
CLOSE_S = 1.0


class PageConnection(LimitedConnection):
    """A connection that keeps its place only with the token: a WebSocket without it may end for another."""

    known = False

    @property
    def may_end(self) -> bool:
        return not self.known or super().may_end


class RemoteServer:
    """Serves pages for a station over a link; `run` ends when it is cancelled."""

    def __init__(self, station: Station, link: Link, log: Callable[[str], None]) -> None:
        self._station, self._link, self._log = station, link, log
        self._connections: dict[int, ServerConnection] = {}
        self._next = 0
        self._has_certificate = False
        self._trouble = ""
        self.errors = 0
        self._last_error = ""
        self._timer: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def run(self, host: str, port: int, tls: ssl.SSLContext | None, ready: Callable[[int], None]) -> None:
        """Serve until cancelled; ready(port) is called when the page can be opened. Raises `ConfigError`."""
        allow_files()
        note_loop_errors(self._note_error)
        self._has_certificate = tls is not None
        try:
            server = await serve(
                self._handle,
                host,
                port,
                ssl=tls,
                process_request=self._answer_request,
                max_size=4 * MESSAGE_MAX,
                max_queue=16,
                compression=None,
                close_timeout=CLOSE_S,
                ping_interval=5.0,
                ping_timeout=5.0,
                server_header=None,
                open_timeout=OPEN_S,
                logger=SILENT,
                create_connection=PageConnection,
                # asyncio waits a minute, and each such connection has a file
                ssl_handshake_timeout=None if tls is None else OPEN_S,
            )
        except OSError as error:
            raise ConfigError(f"{host}:{port}: {error.strerror or error}") from None
        try:
            ready(_port(server))
            await self._step_forever()
        finally:
            server.close()
            await server.wait_closed()

    async def _step_forever(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            try:
                self._step(monotonic_s())
            except Exception as error:  # the aircraft needs the next sample of the sticks all the same
                self._note_error(error)
            due = max(due + STEP_S, loop.time())
            await asyncio.sleep(due - loop.time())

    def _step(self, now_s: float) -> None:
        if data := self._link.read():
            self._station.aircraft.receive(data, now_s)
        self._station.foreign, self._station.foreign_senders = self._link.foreign, self._link.foreign_senders
        self._station.step(now_s)
        self._flush()
        if self._link.trouble != self._trouble:
            self._trouble = self._link.trouble
            self._log(self._trouble or "the link works again")

    def _note_error(self, error: Exception) -> None:
        self.errors += 1
        text = plain(f"{type(error).__name__}: {error}", 200)
        if text != self._last_error:
            self._last_error = text
            self._log(text)

    def _plan_sample(self) -> None:
        """Wake up when a sample that came too soon may be sent: the next step may be later."""
        due_s = self._station.sticks_due_s
        if due_s is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, due_s - monotonic_s()), self._send_sample)

    def _send_sample(self) -> None:
        self._timer = None
        try:
            self._station.send_due(monotonic_s())
            self._flush()
        except Exception as error:
            self._note_error(error)

    def _flush(self) -> None:
        """Send what the station has: first the bytes for the aircraft."""
        station = self._station
        for frame in station.aircraft.take_output():
            self._link.write(frame)
        out = station.take()
        for client, text in out.texts:
            connection = self._connections.get(client)
            if connection is not None and connection.transport.get_write_buffer_size() < BACKLOG_MAX:
                broadcast([connection], text)
        for client, reason in out.closed:
            if connection := self._connections.pop(client, None):
                task = asyncio.ensure_future(connection.close(REFUSED, reason[:REASON_MAX]))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
        for line in out.log:
            self._log(line)

    async def _handle(self, connection: ServerConnection) -> None:
        """One page, from its first message to its end."""
        client, self._next = self._next, self._next + 1
        self._connections[client] = connection
        station = self._station
        host, port = connection.remote_address[:2]
        station.open(client, f"{host}:{port}", monotonic_s())
        try:
            with contextlib.suppress(ConnectionClosed):
                async for text in connection:
                    station.receive(client, text, monotonic_s())
                    if isinstance(connection, PageConnection):
                        connection.known = station.knows(client)
                    self._flush()
                    self._plan_sample()
        except Exception as error:
            self._note_error(error)
        finally:
            self._connections.pop(client, None)
            station.close(client, monotonic_s())
            self._flush()

    def _answer_request(self, connection: ServerConnection, request: Request) -> Response | None:
        """A file of the page, or None for the WebSocket."""
        path = request.path.partition("?")[0]
        origin, host = request.headers.get("Origin"), request.headers.get("Host", "")
        if not self._has_certificate and not is_loopback(host):
            return connection.respond(http.HTTPStatus.FORBIDDEN, "not this computer's name: open 127.0.0.1\n")
        if path == SOCKET_PATH:
            if origin is not None and origin.partition("://")[2] != host:
                return connection.respond(http.HTTPStatus.FORBIDDEN, "a page of another site\n")
            return None
        if path not in FILES:
            return connection.respond(http.HTTPStatus.NOT_FOUND, "no such file\n")
        name, kind = FILES[path]
        body = (PAGE / name).read_bytes()
        headers = Headers({**SECURITY, "Content-Type": kind, "Content-Length": str(len(body)), "Connection": "close"})
        return Response(200, "OK", headers, body)


def is_loopback(host: str) -> bool:
    """Whether a Host header names this computer as itself.

    A name that another site lets point to this computer (DNS rebinding) has an origin that equals its host. With a
    certificate the browser has compared the name with that of the certificate.
    """
    name = host if host.endswith("]") else host.rpartition(":")[0] or host  # without the port
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _port(server: Server) -> int:
    return int(next(iter(server.sockets)).getsockname()[1])


def run_server(
    station: Station,
    link: Link,
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    ready: Callable[[int], None],
    log: Callable[[str], None],
) -> None:
    """Serve until Ctrl-C or SIGTERM (KeyboardInterrupt)."""
    asyncio.run(RemoteServer(station, link, log).run(host, port, tls, partial(ready)))

"""The view's server: files of the page, and a WebSocket on which the page gets data and asks.

One thread, one event loop. A page acknowledges what it has drawn; a page that is slow gets fewer packets and delays
nothing. One that takes nothing at all is closed after `SEND_S`. Without a page the source sleeps. What fails is counted
and said once; the server goes on.
"""

import asyncio
import contextlib
import http
import json
import math
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

import msgspec

from companion.core.clock import monotonic_s
from companion.core.enums import OperatorAction
from companion.core.errors import UserError
from companion.core.messages import OperatorRequest
from companion.core.text import plain
from companion.mission.operator import who
from companion.view.access import Access, Right, Session, is_own_page
from companion.view.digest import TRACKS

try:
    from websockets.asyncio.server import Server, ServerConnection, serve
    from websockets.datastructures import Headers
    from websockets.exceptions import ConnectionClosed
    from websockets.http11 import Request, Response

    from companion.core.websocket_limits import OPEN_S, SILENT, LimitedConnection, allow_files, note_loop_errors
except ImportError as error:
    raise UserError(f"{error.name}: the view needs the extra 'view': pip install 'companion[view]'") from None

PAGE = Path(__file__).parent / "page"
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/scene.js": ("scene.js", "text/javascript; charset=utf-8"),
    "/data.js": ("data.js", "text/javascript; charset=utf-8"),
    "/panels.js": ("panels.js", "text/javascript; charset=utf-8"),
    "/view.js": ("view.js", "text/javascript; charset=utf-8"),
}
PROTOCOL = 3  # of page and server; a page of another version reloads itself
COOKIE = "companion_view"  # and the port: browsers do not keep the cookies of two ports apart
PERIOD_S = 0.05
BEHIND_MAX = 4  # packets that a page may have open
MESSAGE_MAX_BYTES = 4096  # of a page
PAGES_MAX = 20
RUBBISH_MAX = 20  # messages that cannot be understood, then the connection is closed
WINDOW_PERIOD_S = 1.0  # between two windows of a log that one page gets
TRY_AGAIN_LATER = 1013  # WebSocket close code; its reason is shown on the page
SEND_S = 5.0  # for one message to a page; then its connection is closed
ASK_PERIOD_S = 0.3  # between two requests of one page
# Largest age of the newest packet that a page had received when a person confirmed: ten times what a good link needs. A request
# that has waited in the network is answered and not passed on.
SEEN_AGE_S = 1.0
CHANGED = (
    OperatorAction.START,
    OperatorAction.GO_ON,
    OperatorAction.HOLD,
    OperatorAction.RETURN,
)  # depend on the phase
ONCE = ("Host", "Origin", "Cookie", "Authorization", "Sec-Fetch-Site")  # headers
# Answered wherever the request comes from: a link of another site leads to the first, and a browser states no site for the other
# by the same rule in all versions; its origin is always there.
FROM_ANYWHERE = ("/", "/live")
POLICY = "default-src 'self'; img-src 'self' blob:; style-src 'self'; connect-src 'self'; frame-ancestors 'none'"


class Source(Protocol):
    """Where the data come from: a running stack, or a log."""

    live: bool

    @property
    def phase(self) -> str:
        """The newest phase of the mission; "" where it is not known."""

    def hello(self) -> dict[str, Any]:
        """The scene, and what the page must know at the beginning."""

    def packet(self, page: "Page") -> bytes | None:
        """What is new for a page."""

    def picture(self, page: "Page") -> bytes | None:
        """A new image of the navigation camera as JPEG."""

    def file(self, name: str) -> bytes | None:
        """A photograph by name."""

    def ask(self, action: OperatorAction, who: str) -> str:
        """Pass a request on; why not, "" when it was passed on."""

    def wake(self, pages: int, cameras: int) -> None:
        """How many pages watch, and how many of them show the camera."""

    def work(self) -> None:
        """Take what has arrived."""


class Page:
    """A browser that watches."""

    def __init__(self, connection: "ServerConnection", session: Session) -> None:
        self.connection, self.session = connection, session
        self.sent = self.acknowledged = 0
        self.camera = False
        self.window = 0
        self.wanted: int | None = None  # the window that it asked for last
        self.window_s = -math.inf  # when it got one that it asked for
        self.state: Any = None  # of the source: how far this page has read
        self.picture_seq = -1
        self.asked_s = 0.0
        self.rubbish = 0
        self.begun = False  # it has been greeted; what is new comes after that
        self.feeding: asyncio.Task[None] | None = None
        self.closing: asyncio.Task[None] | None = None

    @property
    def behind(self) -> int:
        return self.sent - self.acknowledged


class ViewServer:
    """Serves one source.

    address, port: where it listens; tls: certificate and key, None on loopback; log: gets a line for a new kind of error.
    """

    def __init__(
        self,
        source: Source,
        access: Access,
        address: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._source, self._access = source, access
        self._address, self._port, self._tls = address, port, tls
        self._pages: set[Page] = set()
        self._files = {path: ((PAGE / name).read_bytes(), kind) for path, (name, kind) in FILES.items()}
        self._log = log
        self.errors = 0  # failures of the source or of sending
        self.last_error = ""
        self.slow = 0  # pages that were closed because they took nothing
        self.refused = 0  # requests and messages that were not answered as asked

    async def run(self, ready: Callable[[int], None], until: asyncio.Event) -> None:
        """Serve until the event is set. ready: gets the port; raises OSError when the address cannot be used."""
        allow_files()
        note_loop_errors(self._note_error)
        async with serve(
            self._watch, self._address, self._port, process_request=self._answer, ssl=self._tls,
            max_size=MESSAGE_MAX_BYTES, max_queue=8, compression=None, ping_interval=10, ping_timeout=20,
            server_header=None, open_timeout=OPEN_S, ssl_handshake_timeout=None if self._tls is None else OPEN_S, logger=SILENT, create_connection=LimitedConnection,
        ) as server:  # fmt: skip
            ready(_port(server))
            while not until.is_set():
                try:
                    self._source.wake(len(self._pages), sum(page.camera for page in self._pages))
                    self._source.work()
                except Exception as error:  # such as no file left for a socket: the next attempt is a period away
                    self._note_error(error)
                now_s = monotonic_s()
                for page in list(self._pages):
                    self._access.keep(page.session, now_s)
                    if page.begun and (page.feeding is None or page.feeding.done()):
                        page.feeding = asyncio.create_task(self._feed(page))
                idle = not self._pages
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(until.wait(), 4 * PERIOD_S if idle else PERIOD_S)

    async def _feed(self, page: Page) -> None:
        """Send a page what is new; a page that takes nothing is closed, and no other waits for it."""
        if page.behind >= BEHIND_MAX:
            return
        if page.wanted is not None and (now_s := monotonic_s()) - page.window_s >= WINDOW_PERIOD_S:
            page.window, page.wanted, page.window_s, page.state = page.wanted, None, now_s, None
        try:
            for data in (self._source.packet(page), self._source.picture(page) if page.camera else None):
                if data is not None:
                    page.sent += 1
                    await self._send(page, data)
        except Exception as error:
            self._close(page, error)

    async def _send(self, page: Page, data: str | bytes) -> None:
        """Raises TimeoutError where the page does not take it."""
        await asyncio.wait_for(page.connection.send(data), SEND_S)

    def _close(self, page: Page, error: Exception) -> None:
        """End a page's connection after an error."""
        self._pages.discard(page)
        if isinstance(error, TimeoutError):
            self.slow += 1
        elif not isinstance(error, ConnectionClosed):
            self._note_error(error)
        page.connection.transport.abort()

    def _note_error(self, error: Exception) -> None:
        self.errors += 1
        text = plain(f"{type(error).__name__}: {error}", 200)
        if text != self.last_error:
            self.last_error = text
            self._log(text)

    # --- files and the way in ----------------------------------------------------------------------------------------

    def _answer(self, connection: "ServerConnection", request: "Request") -> "Response | None":
        """Answer a request; None lets the WebSocket begin."""
        path, headers = request.path.split("?", 1)[0], request.headers
        if any(len(headers.get_all(name)) > 1 for name in ONCE):
            self.refused += 1
            return _response(400, b"a header that may come once came twice\n")
        loopback = self._tls is None
        site = None if path in FROM_ANYWHERE else headers.get("Sec-Fetch-Site")
        if not is_own_page(headers.get("Host"), headers.get("Origin"), loopback, site):
            self.refused += 1
            return _response(403, b"another page, or another name of this computer: refused\n")
        if path in self._files:
            data, kind = self._files[path]
            return _response(200, data, kind)
        now_s = monotonic_s()
        if path == "/login":
            return self._log_in(connection, headers, now_s)
        session = self._access.session(_cookie(headers), now_s)
        if path == "/who":
            facts = {"right": session.right, "name": session.name} if session else {"right": None, "name": ""}
            return _response(200, json.dumps(facts | {"protocol": PROTOCOL}).encode(), "application/json")
        if session is None:
            self.refused += 1
            return _response(401, b"a token is needed\n")
        if path.startswith("/photograph/"):
            picture = self._source.file(unquote(path.removeprefix("/photograph/")))
            return _response(404, b"no such photograph\n") if picture is None else _response(200, picture, "image/png")
        if path != "/live":
            return _response(404, b"no such page\n")
        connection.session = session  # type: ignore[attr-defined]
        return None

    def _log_in(self, connection: "ServerConnection", headers: "Headers", now_s: float) -> "Response":
        """A session for a token. The token comes in a header that a page of another site cannot send; without it nothing was
        tried. (The library under this server takes no other method than GET.)"""
        address = str(connection.remote_address[0]) if connection.remote_address else ""
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        token = token.strip()
        if scheme != "Bearer" or not token:
            self.refused += 1
            return _response(401, b"a token is needed\n")
        if (wait_s := self._access.wait_s(token, address, now_s)) > 0:
            self.refused += 1
            return _response(429, f"too many wrong tokens; wait {wait_s:.0f} s\n".encode())
        found = self._access.log_in(token, address, now_s)
        if found is None:
            self.refused += 1
            return _response(401, b"wrong token\n")
        key, session = found
        answer = _response(200, json.dumps({"right": session.right, "name": session.name}).encode(), "application/json")
        secure = "; Secure" if self._tls else ""
        answer.headers["Set-Cookie"] = f"{_cookie_name(headers)}={key}; Path=/; HttpOnly; SameSite=Strict{secure}"
        return answer

    # --- one page -----------------------------------------------------------------------------------------------------

    async def _watch(self, connection: "ServerConnection") -> None:
        page = Page(connection, connection.session)  # type: ignore[attr-defined]
        # asks_as: how the mission's answers name the person
        asks_as = who(OperatorRequest(stamp_s=0.0, action=OperatorAction.HOLD, who=page.session.name))
        facts = {"right": page.session.right, "name": page.session.name, "protocol": PROTOCOL, "asks_as": asks_as}
        if problem := self._free_a_place(page):
            self.refused += 1
            await connection.close(TRY_AGAIN_LATER, problem)
            return
        try:
            self._pages.add(page)  # takes its place before anything waits
            self._source.wake(len(self._pages), sum(page.camera for page in self._pages))
            await self._send(page, _text(self._source.hello() | facts | {"columns": TRACKS}))
            page.begun = True
            async for message in connection:
                answer = self._take(page, message)
                if answer is not None:
                    await self._send(page, _text(answer))
                if page.rubbish > RUBBISH_MAX:
                    await connection.close(1008, "messages that cannot be understood")
        except Exception as error:
            self._close(page, error)
        self._pages.discard(page)

    def _free_a_place(self, page: Page) -> str:
        """Why there is no place for a page; "" where there is. One that may command takes the place of one that only watches."""
        if len(self._pages) < PAGES_MAX:
            return ""
        watching = [other for other in self._pages if other.session.right != Right.COMMAND]
        if page.session.right != Right.COMMAND or not watching:
            return f"{PAGES_MAX} pages are open, and there is no place for another"
        leaving = min(watching, key=lambda other: bool(other.session.name))  # first those without a token
        self._pages.discard(leaving)
        reason = "a person who may command needed the place of this page"
        leaving.closing = asyncio.create_task(leaving.connection.close(TRY_AGAIN_LATER, reason))
        return ""

    def _take(self, page: Page, message: str | bytes) -> dict[str, Any] | None:
        """Do what a page's message says; an answer for it, if it needs one."""
        try:
            asked = json.loads(message)
            if "ack" in asked:
                page.acknowledged = min(page.sent, max(page.acknowledged, int(asked["ack"])))
                return None
            if "camera" in asked:
                page.camera = bool(asked["camera"])
                return None
            if "window" in asked:
                wanted = int(asked["window"])
                page.wanted = (
                    None if self._source.live else wanted
                )  # a running stack has one window, and sends what is new
                return None
            action, seen_s, phase = OperatorAction(asked["ask"]), float(asked["seen"]), str(asked["phase"])
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            page.rubbish += 1
            self.refused += 1
            return {"answer": "not understood"}
        return {"answer": self._ask(page, action, seen_s, phase), "ask": action}

    def _ask(self, page: Page, action: OperatorAction, seen_s: float, phase: str) -> str:
        """seen_s: stamp of the newest packet of the page; phase: what the page showed when the person chose the action."""
        now_s = monotonic_s()
        early, page.asked_s = now_s - page.asked_s < ASK_PERIOD_S, now_s
        if page.session.right != Right.COMMAND:
            self.refused += 1
            return "refused: this page may watch only"
        if early:
            self.refused += 1
            return "refused: too many requests"
        if not 0.0 <= now_s - seen_s <= SEEN_AGE_S:  # also for NaN
            self.refused += 1
            return "refused: the page showed an old state, or the request came late; look and ask again"
        if action in CHANGED and phase != self._source.phase:
            self.refused += 1
            return f"refused: the mission has gone on to {self._source.phase or 'an unknown phase'}; look and ask again"
        return self._source.ask(action, page.session.name)


def _text(content: dict[str, Any]) -> str:
    """JSON for the page; a number that is not finite becomes null, because no browser reads NaN."""
    return msgspec.json.encode(content).decode()


def _port(server: "Server") -> int:
    port: int = next(iter(server.sockets)).getsockname()[1]
    return port


def _cookie_name(headers: "Headers") -> str:
    """Of the session's cookie: with the port that the browser called, which a tunnel may have changed."""
    port = headers.get("Host", "").rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isascii() and port.isdigit() else COOKIE


def _cookie(headers: "Headers") -> str:
    wanted = _cookie_name(headers)
    for part in headers.get("Cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == wanted:
            return value
    return ""


def _response(status: int, data: bytes, kind: str = "text/plain; charset=utf-8") -> "Response":
    headers = Headers(
        {
            "Content-Type": kind,
            "Content-Length": str(len(data)),
            "Connection": "close",
            "Cache-Control": "no-store",
            "Content-Security-Policy": POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }
    )
    return Response(status, http.HTTPStatus(status).phrase, headers, data)

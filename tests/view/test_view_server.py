"""The server of the view: who is answered, what a page may ask, and pages that are slow or send rubbish."""

import json
import math
import socket
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import quote

import pytest
from served import served
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from companion.core import websocket_limits
from companion.core.clock import monotonic_s
from companion.view import access as access_module
from companion.view import server as server_module
from companion.view.access import Access, Person, Right
from companion.view.server import BEHIND_MAX, COOKIE, FILES, RUBBISH_MAX, TRY_AGAIN_LATER

ANNA = Person(name="anna", right=Right.COMMAND, token="a" * 24)
BEN = Person(name="ben", right=Right.WATCH, token="b" * 24)


class Scripted:
    """A source that counts what it is asked."""

    live = True

    def __init__(self) -> None:
        self.phase = "HOLD"
        self.asked: list[tuple[str, str]] = []
        self.packets = self.pages = self.cameras = 0
        self.data = bytes(1000)
        self.failing = False

    def hello(self):
        return {"scene": {}, "live": True}

    def packet(self, page):
        self.packets += 1
        return self.data

    def picture(self, page):
        return None

    def file(self, name):
        return b"PNG" if name == "known.png" else None

    def ask(self, action, who):
        self.asked.append((str(action), who))
        return "passed on"

    def wake(self, pages, cameras):
        self.pages, self.cameras = pages, cameras

    def work(self):
        if self.failing:
            raise OSError("too many open files")


@contextmanager
def serving(open_watching=True):
    """A scripted source on a server; yields (source, server, port)."""
    source = Scripted()
    with served(source, Access([ANNA, BEN], open_watching)) as (server, port):
        yield source, server, port


def get(port, path, **headers):
    """(status, text, cookie) of a request."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode(), answer.headers.get("Set-Cookie", "")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), ""


def logged_in(port, token) -> dict[str, str]:
    status, _, cookie = get(port, "/login", Authorization=f"Bearer {token}")
    assert status == 200 and "HttpOnly" in cookie and "SameSite=Strict" in cookie
    return {"Cookie": cookie.split(";")[0]}


def opened(port, headers=None):
    return connect(f"ws://127.0.0.1:{port}/live", additional_headers=headers or {}, open_timeout=10)


def answer_of(page):
    """The next text of a page's connection."""
    for _ in range(200):
        message = page.recv(10.0)
        if isinstance(message, str):
            return json.loads(message)
    raise AssertionError("no answer")


def ask(action, age_s=0.0, phase="HOLD") -> str:
    """A request of a page whose newest packet is so old."""
    return json.dumps({"ask": action, "seen": monotonic_s() - age_s, "phase": phase})


def until(condition) -> None:
    end_s = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def refusal_of(page) -> str:
    """Why the server ended a page's connection."""
    with pytest.raises(ConnectionClosed) as found:
        for _ in range(1000):
            page.recv(10.0)
    assert found.value.rcvd is not None and found.value.rcvd.code == TRY_AGAIN_LATER
    return found.value.rcvd.reason


def test_the_files_of_the_page_and_nothing_else():
    with serving() as (_, _, port):
        for path in FILES:
            status, text, _ = get(port, path)
            assert status == 200 and text
        for path in (
            "/../access.py",
            "/page/index.html",
            "/etc/passwd",
            "/%2e%2e/server.py",
            "/photograph/../log.mcap",
        ):
            assert get(port, path)[0] == 404
        assert get(port, "/photograph/known.png")[:2] == (200, "PNG")


@pytest.mark.parametrize("name", ["pier 3.png", "Brücke.png", "50%.png", "a+b.png"])
def test_a_photograph_of_any_name_is_found(name):
    with serving() as (source, _, port):
        source.file = lambda asked: b"PNG" if asked == name else None
        assert get(port, f"/photograph/{quote(name, safe='')}")[:2] == (200, "PNG")


def test_another_name_or_another_page_is_refused():
    with serving() as (_, server, port):
        assert get(port, "/", Host="evil.example")[0] == 403
        assert get(port, "/who", Origin="http://evil.example")[0] == 403
        with pytest.raises(InvalidStatus):
            connect(f"ws://127.0.0.1:{port}/live", origin="http://evil.example", open_timeout=10)
        assert server.refused == 3


def test_a_page_of_another_site_reaches_nothing_where_its_browser_sends_no_origin():
    with serving() as (_, server, port):
        for path in ("/who", "/login", "/photograph/known.png", "/view.js"):
            assert get(port, path, **{"Sec-Fetch-Site": "cross-site"})[0] == 403
            assert get(port, path, **{"Sec-Fetch-Site": "same-site"})[0] == 403  # another port of this computer
        assert get(port, "/", **{"Sec-Fetch-Site": "cross-site"})[0] == 200  # a link to the view
        assert get(port, "/who", **{"Sec-Fetch-Site": "same-origin"})[0] == 200


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": ""}, {"Authorization": "Bearer "}, {"Authorization": "Basic eDp5"}]
)
def test_a_login_without_a_token_is_no_attempt(headers):
    """A page of another site can send this much; it must not use up the attempts of the pilot."""
    with serving() as (_, _, port):
        assert [get(port, "/login", **headers)[:2] for _ in range(20)] == [(401, "a token is needed\n")] * 20
        assert logged_in(port, ANNA.token)


def test_the_sessions_of_two_views_do_not_replace_each_other_in_one_browser():
    """Browsers have one set of cookies for all ports of a host; tunnels to two aircraft differ in the port alone."""
    with serving() as (_, _, first), serving() as (_, _, second):
        cookies = dict(logged_in(port, ANNA.token)["Cookie"].split("=", 1) for port in (first, second))
        assert len(cookies) == 2
        both = "; ".join(f"{name}={value}" for name, value in cookies.items())
        for port in (first, second):
            assert json.loads(get(port, "/who", Cookie=both)[1])["right"] == "command"


def test_a_tunnel_that_changes_the_port_changes_the_name_of_the_cookie():
    with serving() as (_, _, port):
        names = [
            get(port, "/login", Authorization=f"Bearer {ANNA.token}", Host=host)[2].split("=")[0]
            for host in ("localhost:8717", "localhost:9001", "localhost", "[::1]", "127.0.0.1:8717")
        ]
        assert names == [f"{COOKIE}_8717", f"{COOKIE}_9001", COOKIE, COOKIE, f"{COOKIE}_8717"]


def test_a_person_who_may_command_gets_the_place_of_one_who_watches(monkeypatch):
    monkeypatch.setattr(server_module, "PAGES_MAX", 3)
    with serving() as (source, server, port), ExitStack() as pages:
        named = pages.enter_context(opened(port, logged_in(port, BEN.token)))
        watchers = [pages.enter_context(opened(port)) for _ in range(2)]
        until(lambda: source.pages == 3)
        with opened(port) as late:
            assert "no place for another" in refusal_of(late)
        session = logged_in(port, ANNA.token)
        for _ in watchers:
            answer_of(pages.enter_context(opened(port, session)))
        for watcher in watchers:
            assert "needed the place" in refusal_of(watcher)
        assert answer_of(named)["name"] == "ben"
        answer_of(pages.enter_context(opened(port, session)))
        assert "needed the place" in refusal_of(named)
        with opened(port, session) as late:  # all may command
            assert "no place for another" in refusal_of(late)
        assert server.errors == 0


def test_pages_that_are_opened_at_the_same_moment_find_no_more_places(monkeypatch):
    monkeypatch.setattr(server_module, "PAGES_MAX", 3)
    with serving() as (source, server, port):
        source.hello = lambda: {"scene": {}, "live": True, "padding": "x" * 20_000_000}  # takes a while
        pages = [raw_page(port) for _ in range(10)]
        until(lambda: server.refused == 7)
        assert len(server._pages) == 3
        for page in pages:
            page.close()


def test_a_session_does_not_end_while_its_page_is_open(monkeypatch):
    monkeypatch.setattr(access_module, "SESSION_S", 0.5)
    with serving() as (source, _, port):
        session = logged_in(port, ANNA.token)
        with opened(port, session) as page:
            answer_of(page)
            time.sleep(1.0)
            page.send(ask("land"))
            assert answer_of(page)["answer"] == "passed on" and source.asked == [("land", "anna")]
        assert json.loads(get(port, "/who", **session)[1])["right"] == "command"
        time.sleep(1.0)
        assert json.loads(get(port, "/who", **session)[1])["right"] == "watch"


def test_the_windows_that_a_page_asks_for_are_read_once_a_second_and_of_a_running_stack_never():
    for live in (True, False):
        with serving() as (source, server, port), opened(port) as page:
            source.live = live
            answer_of(page)
            until(lambda server=server: server._pages)
            (held,) = server._pages
            held.state, begun, since_s = "read", [], time.monotonic()
            for number in range(20):
                page.send(json.dumps({"window": number}))
                message = page.recv(10.0)
                page.send(json.dumps({"ack": number + 1}))
                if held.state is None:
                    begun.append(held.window)
                    held.state = "read"
            assert isinstance(message, bytes)
            most = 0 if live else 2 + (time.monotonic() - since_s) / server_module.WINDOW_PERIOD_S
            assert len(begun) <= most and bool(begun) is not live
            if not live:  # the last one is not lost
                until(lambda page=page, held=held: page.send('{"ack": 999999}') or held.window == 19)


def test_without_a_token_a_closed_server_shows_nothing():
    with serving(open_watching=False) as (source, _, port):
        assert json.loads(get(port, "/who")[1])["right"] is None
        assert get(port, "/photograph/known.png")[0] == 401
        with pytest.raises(InvalidStatus):
            opened(port)
        with pytest.raises(InvalidStatus):
            opened(port, {"Cookie": f"{COOKIE}_{port}=forged"})
        assert source.packets == 0


def test_a_wrong_token_is_refused_and_many_have_to_wait():
    with serving(open_watching=False) as (_, _, port):
        answers = [get(port, "/login", Authorization=f"Bearer {i:024d}") for i in range(8)]
        assert [status for status, _, _ in answers] == [401] * 5 + [429] * 3
        assert "wait" in answers[-1][1]
        assert (
            get(port, "/login", Authorization=f"Bearer {ANNA.token}")[0] == 429
        )  # from this address, the right one, too


@pytest.mark.parametrize("person", [ANNA, BEN])
def test_a_right_token_opens_the_view_with_its_right(person):
    with serving(open_watching=False) as (source, _, port):
        with opened(port, logged_in(port, person.token)) as page:
            head = answer_of(page)
            assert (head["right"], head["name"]) == (person.right, person.name)
            page.send(ask("hold here"))
            answer = answer_of(page)["answer"]
        commands = person.right == Right.COMMAND
        assert source.asked == ([("hold here", "anna")] if commands else [])
        assert answer == ("passed on" if commands else "refused: this page may watch only")


def test_watching_on_loopback_needs_no_token_and_commands_nothing():
    with serving() as (source, server, port), opened(port) as page:
        assert answer_of(page)["right"] == "watch"
        page.send(ask("land"))
        assert "may watch only" in answer_of(page)["answer"]
        assert source.asked == [] and server.refused == 1


def test_many_requests_in_a_moment_are_refused():
    with serving() as (source, _, port), opened(port, logged_in(port, ANNA.token)) as page:
        answer_of(page)
        for _ in range(10):
            page.send(ask("hold here"))
        answers = [answer_of(page)["answer"] for _ in range(10)]
        assert len(source.asked) == 1 and answers[1:] == ["refused: too many requests"] * 9


@pytest.mark.parametrize("age_s", [1.2, 12.0, -0.5, math.nan])
def test_a_request_that_was_made_before_the_newest_state_is_not_passed_on(age_s):
    """It waited in the network, or the page had seen nothing for a while."""
    with serving() as (source, server, port), opened(port, logged_in(port, ANNA.token)) as page:
        answer_of(page)
        page.send(ask("land", age_s))
        answer = answer_of(page)["answer"]
        assert answer in (
            "refused: the page showed an old state, or the request came late; look and ask again",
            "not understood",
        )
        assert source.asked == [] and server.refused == 1


@pytest.mark.parametrize(
    "action, passed", [("go on", False), ("start", False), ("land", True), ("stop streaming", True)]
)
def test_what_was_chosen_for_another_phase_is_asked_again_unless_it_ends_the_flight(action, passed):
    with serving() as (source, _, port), opened(port, logged_in(port, ANNA.token)) as page:
        answer_of(page)
        page.send(ask(action, phase="PAUSE"))
        answer = answer_of(page)["answer"]
        assert bool(source.asked) == passed
        assert answer == ("passed on" if passed else "refused: the mission has gone on to HOLD; look and ask again")


@pytest.mark.parametrize("fields", [{}, {"seen": "x", "phase": "HOLD"}, {"seen": 1.0}, {"seen": None, "phase": "HOLD"}])
def test_a_request_without_what_the_page_showed_is_not_understood(fields):
    with serving() as (source, _, port), opened(port, logged_in(port, ANNA.token)) as page:
        answer_of(page)
        page.send(json.dumps({"ask": "land"} | fields))
        assert answer_of(page)["answer"] == "not understood" and source.asked == []


@pytest.mark.parametrize("name", ["Host", "Cookie", "Origin", "Authorization"])
def test_a_header_that_comes_twice_is_refused(name):
    with serving() as (_, server, port), socket.create_connection(("127.0.0.1", port)) as raw:
        host = "" if name == "Host" else f"Host: 127.0.0.1:{port}\r\n"
        value = f"127.0.0.1:{port}" if name == "Host" else "x"
        raw.sendall(f"GET /who HTTP/1.1\r\n{host}{name}: {value}\r\n{name}: {value}\r\n\r\n".encode())
        assert raw.recv(1000).startswith(b"HTTP/1.1 400")
        assert server.errors == 0 and server.refused == 1


def test_a_number_that_is_not_finite_reaches_the_page_as_null():
    with serving() as (source, _, port):
        source.hello = lambda: {"scene": {"gsd": math.nan, "photographs": [{"p": [math.inf]}]}, "live": True}
        with opened(port) as page:
            head = answer_of(page)
    assert head["scene"] == {"gsd": None, "photographs": [{"p": [None]}]}


def test_rubbish_is_counted_answered_and_then_the_connection_is_closed():
    rubbish = ["", "[", "[]", "null", "1e999", '{"ask": "fly"}', '{"ask": null}', '{"ack": "x"}', '{"ack": 1e999}', b"\x00\xff",
               '{"window": {}}', '{"ask": ["land"]}', "[" * 3000]  # fmt: skip
    with serving() as (source, server, port), opened(port, logged_in(port, ANNA.token)) as page:
        answer_of(page)
        with pytest.raises(ConnectionClosed):
            for i in range(10 * RUBBISH_MAX):
                page.send(rubbish[i % len(rubbish)])
                answer_of(page)
        assert source.asked == [] and RUBBISH_MAX <= server.refused <= RUBBISH_MAX + 20


def test_a_message_that_is_too_long_ends_the_connection():
    with serving() as (source, _, port), opened(port) as page:
        answer_of(page)
        page.send("x" * 100_000)
        with pytest.raises(ConnectionClosed):
            while True:
                page.recv(10.0)
        until(lambda: source.pages == 0)


def test_a_page_that_acknowledges_nothing_gets_few_packets_and_delays_no_other():
    with serving() as (source, _, port), opened(port) as slow, opened(port) as quick:
        answer_of(slow), answer_of(quick)
        got = 0
        for _ in range(20):
            if isinstance(quick.recv(10.0), bytes):
                got += 1
                quick.send(json.dumps({"ack": got}))
        assert got == 20
        packets = source.packets
        assert packets <= got + 2 * BEHIND_MAX
        slow.send(json.dumps({"ack": 10**9}))  # more than was sent: as all
        until(lambda: source.packets > packets + BEHIND_MAX)


def raw_page(port):
    """A WebSocket that is open and never read."""
    page = socket.socket()
    page.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    page.connect(("127.0.0.1", port))
    page.sendall(
        f"GET /live HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    assert page.recv(12) == b"HTTP/1.1 101"
    return page


def test_a_page_that_reads_nothing_is_closed_and_delays_no_other(monkeypatch):
    """A laptop that sleeps: its connection stays open, and what it gets waits for ever."""
    monkeypatch.setattr(server_module, "SEND_S", 0.3)
    with serving() as (source, server, port):
        source.data = bytes(8_000_000)
        asleep = raw_page(port)
        until(lambda: source.packets > 0)
        source.data = bytes(1000)
        with opened(port) as awake:
            answer_of(awake)
            for number in range(1, 12):
                assert isinstance(awake.recv(2.0), bytes)
                awake.send(json.dumps({"ack": number}))
            until(lambda: server.slow == 1)
            assert isinstance(awake.recv(2.0), bytes)
            until(lambda: source.pages == 1)
        asleep.close()
        assert server.errors == 0


def test_a_source_that_fails_is_counted_said_once_and_asked_again():
    with serving() as (source, server, port):
        source.failing = True
        until(lambda: server.errors > 3)
        assert server.last_error == "OSError: too many open files" and server.said == [server.last_error]
        source.failing = False
        with opened(port) as page:
            assert answer_of(page)["right"] == "watch"
            assert isinstance(page.recv(5.0), bytes)


def test_connections_that_ask_for_nothing_keep_no_page_out(capfd, caplog, monkeypatch):
    monkeypatch.setattr(websocket_limits, "CONNECTIONS_MAX", 20)
    with serving() as (source, server, port):
        with opened(port) as page:
            answer_of(page)
            idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
            with opened(port) as other:
                assert answer_of(other)["right"] == "watch"
            assert get(port, "/who")[0] == 200
            page.send(json.dumps({"camera": True}))
            until(lambda: source.cameras == 1)  # a page that was there before is still there
        ended = 0
        for connection in idle:
            connection.settimeout(0.01)
            with suppress(TimeoutError):
                ended += connection.recv(1) == b""
            connection.close()
        assert ended >= 30
    assert capfd.readouterr().err == "" and not caplog.records


def test_the_source_knows_how_many_watch_and_show_the_camera():
    with serving() as (source, _, port):
        with opened(port) as page:
            until(lambda: source.pages == 1)
            page.send(json.dumps({"camera": True}))
            until(lambda: source.cameras == 1)
        until(lambda: (source.pages, source.cameras) == (0, 0))

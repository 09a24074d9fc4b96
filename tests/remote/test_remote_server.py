"""The process behind the page, over real sockets on loopback."""

import contextlib
import itertools
import socket
import ssl
import statistics
import threading
import time
from urllib.error import HTTPError
from urllib.request import Request as UrlRequest
from urllib.request import urlopen

import pytest
from pymavlink.dialects.v20 import common
from websockets.exceptions import ConnectionClosed, InvalidMessage, InvalidStatus
from websockets.sync.client import connect

from companion.core import websocket_limits
from companion.remote import server
from companion.remote.aircraft import Aircraft
from companion.remote.server import FILES, REFUSED, is_loopback
from companion.remote.station import DEAD_MAN_S, UNKNOWN_MAX, Station
from tests.remote.latency import TOKEN, Client, FakeAutopilot, certificate, of_samples, served, serving


@pytest.mark.parametrize("path", FILES)
def test_the_page_is_served_and_loads_nothing_from_elsewhere(path):
    with served() as (_, _, port, _), urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        body = answer.read().decode()
        assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["Cache-Control"] == "no-store"
        assert "://" not in body.replace("http://www.w3.org/2000/svg", "").replace("}://${location.host}", "")
        assert TOKEN not in body


@pytest.mark.parametrize(
    "path", ["/server.py", "/../server.py", "/%2e%2e/server.py", "/page/remote.js", "//etc/passwd"]
)
def test_other_files_are_not_served(path):
    with served() as (_, _, port, _), pytest.raises(HTTPError, match="404"):
        urlopen(f"http://127.0.0.1:{port}{path}", timeout=10)


def test_a_page_of_another_site_cannot_connect():
    with served() as (_, _, port, _):
        with pytest.raises(InvalidStatus, match="403"):
            connect(f"ws://127.0.0.1:{port}/sticks", origin="https://example.org")
        Client(port, origin=f"http://127.0.0.1:{port}").until(lambda m: m["type"] == "welcome")


@pytest.mark.parametrize(
    "host", ["evil.test:{}", "evil.test", "127.0.0.1.evil.test:{}", "localhost.evil.test", "10.0.0.9:{}"]
)
def test_another_name_that_points_to_this_computer_is_refused(host):
    """A page of such a name has an origin that equals its host (DNS rebinding)."""
    with served() as (_, _, port, _):
        name = host.format(port)
        headers = {"Host": name}
        with pytest.raises(HTTPError, match="403"):
            urlopen(UrlRequest(f"http://127.0.0.1:{port}/", headers=headers), timeout=10)
        lines = HANDSHAKE.replace(b"localhost", name.encode() + b"\r\nOrigin: http://" + name.encode())
        with socket.create_connection(("127.0.0.1", port), timeout=5.0) as connection:
            connection.sendall(lines)
            assert b" 403 " in connection.recv(20)


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1:8470", True), ("localhost", True), ("localhost:1", True), ("127.8.9.1", True), ("[::1]", True),
        ("[::1]:8470", True), ("", False), (":8470", False), ("::", False), ("[::2]:8470", False), ("0.0.0.0", False),
    ],
)  # fmt: skip
def test_only_names_of_loopback_are_this_computers(host, own):
    assert is_loopback(host) is own


def test_with_a_certificate_the_browser_compares_the_name(tmp_path):
    with serving(Station(Aircraft(), TOKEN), "udpout:127.0.0.1:9", certificate(tmp_path)) as (port, _):
        trusting = ssl.create_default_context(cafile=tmp_path / "cert.pem")
        trusting.check_hostname = False
        request = UrlRequest(f"https://127.0.0.1:{port}/", headers={"Host": "pilot.local"})
        with urlopen(request, timeout=10, context=trusting) as answer:
            assert b"Remote" in answer.read()


def test_a_wrong_token_is_closed_with_the_reason_and_the_pilot_flies_on():
    with served() as (_, autopilot, port, _):
        pilot = Client(port)
        pilot.take()
        pilot.rest(0.3)
        wrong = []
        while len(wrong) < 10:
            wrong.append(Client(port, token="guess"))
            pilot.rest(0.04)  # the sticks move on meanwhile
        assert pilot.rest(1.6)["you"]
        for client in wrong:
            assert "wrong token" in client.until(lambda m: m["type"] == "refused")["reason"]
            with pytest.raises(ConnectionClosed):
                client.socket.recv(timeout=5)
            assert client.socket.close_code == REFUSED
        gaps = [b - a for (a, _), (b, _) in itertools.pairwise(autopilot.received)]
        assert max(gaps) < 0.25
        assert all((m.x, m.y, m.z, m.r, m.target) == (0, 0, 500, 0, 1) for _, m in autopilot.received)


def test_connections_that_ask_for_nothing_keep_no_pilot_out_and_say_nothing(caplog, monkeypatch):
    monkeypatch.setattr(websocket_limits, "CONNECTIONS_MAX", 20)
    with served() as (_, autopilot, port, _):
        pilot = Client(port)
        pilot.take()
        idle = []
        while len(idle) < 50:
            idle += [socket.create_connection(("127.0.0.1", port)) for _ in range(10)]
            pilot.rest(0.04)  # the sticks move on meanwhile
        Client(port).until(lambda m: m["type"] == "welcome")
        assert pilot.rest(0.2)["you"]
        for connection in idle:
            connection.close()
        pilot.rest(0.2)
        gaps = [b - a for (a, _), (b, _) in itertools.pairwise(autopilot.received)]
        assert max(gaps) < 0.25
    assert not caplog.records


@contextlib.contextmanager
def held_open(port: int, kind: str, count: int):
    """Connections without the token that are held open, and opened again when they end; in a thread."""
    ends = threading.Event()

    def hold() -> None:
        held: list[socket.socket] = []
        while not ends.is_set():
            for connection in held[:]:
                try:
                    if connection.recv(65536) == b"":
                        raise ConnectionError
                except BlockingIOError:
                    continue
                except OSError:
                    connection.close()
                    held.remove(connection)
            while len(held) < count:
                connection = socket.create_connection(("127.0.0.1", port))
                if kind == "WebSocket":
                    connection.sendall(HANDSHAKE)
                connection.setblocking(False)
                held.append(connection)
            time.sleep(0.02)
        for connection in held:
            connection.close()

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    try:
        time.sleep(0.3)
        yield
    finally:
        ends.set()
        thread.join(5)


# A page tries again by itself: so many connections may come between its own and its token that it has to end. With the fault one
# of twenty attempts came in, so that twenty pilots in a row would not.
ATTEMPTS = 10


def comes_in(port: int) -> bool:
    """Whether one attempt of a page with the token succeeds."""
    with contextlib.suppress(OSError, ConnectionClosed, InvalidMessage, TimeoutError):
        pilot = Client(port)
        pilot.until(lambda m: m["type"] == "welcome", 2.0)
        pilot.socket.close()
        return True
    return False


HANDSHAKE = (
    b"GET /sticks HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@pytest.mark.parametrize("kind", ["nothing asked", "WebSocket"])
@pytest.mark.parametrize("count", [UNKNOWN_MAX, 60])
def test_connections_that_are_held_open_keep_no_pilot_out(kind, count, monkeypatch):
    """With all places held by connections without the token, 1 of 20 reconnecting pilots came in."""
    monkeypatch.setattr(websocket_limits, "CONNECTIONS_MAX", 40)
    with served() as (_, _, port, _), held_open(port, kind, count):
        for _ in range(20):
            assert any(comes_in(port) for _ in range(ATTEMPTS))


def test_a_connection_that_does_not_finish_its_closing_keeps_no_pilot_out(monkeypatch):
    monkeypatch.setattr(websocket_limits, "CONNECTIONS_MAX", 10)
    monkeypatch.setattr(server, "CLOSE_S", 30.0)
    with served() as (_, _, port, _):
        unfinished = []
        for _ in range(10):  # refused at once, and silent
            connection = socket.create_connection(("127.0.0.1", port))
            connection.sendall(HANDSHAKE + b"\x81\x80\x00\x00\x00\x00")
            assert b"101" in connection.recv(20)
            unfinished.append(connection)
        time.sleep(0.3)
        Client(port).until(lambda m: m["type"] == "welcome")
        for connection in unfinished:
            connection.close()


def test_a_tls_handshake_that_is_not_finished_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "OPEN_S", 0.3)
    with (
        serving(Station(Aircraft(), TOKEN), "udpout:127.0.0.1:9", certificate(tmp_path)) as (port, _),
        socket.create_connection(("127.0.0.1", port), timeout=5.0) as silent,
    ):
        assert silent.recv(1) == b""


def test_only_heartbeats_of_the_vehicles_autopilot_make_the_peer_of_the_sticks():
    """The first sender of a datagram to the port became the flight controller, and the sticks went there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    station = Station(Aircraft(), TOKEN)
    beat = (13, 12, 129, 2 << 16, 4, 3)
    others = [
        b"\xfd",
        common.MAVLink_heartbeat_message(*beat).pack(common.MAVLink(None, 7, 1)),
        common.MAVLink_heartbeat_message(*beat).pack(common.MAVLink(None, 1, 191)),
        common.MAVLink_attitude_quaternion_message(0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0).pack(
            common.MAVLink(None, 1, 1)
        ),
    ]
    with serving(station, f"udpin:127.0.0.1:{number}") as (port, _), contextlib.ExitStack() as stack:
        other, late = (stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(2))
        for data in others:
            other.sendto(data, ("127.0.0.1", number))
        client = Client(port)
        assert not client.rest(0.3)["connected"]
        autopilot = FakeAutopilot()
        stack.callback(autopilot.close)
        autopilot.meet(("127.0.0.1", number))
        client.take()
        own = common.MAVLink_heartbeat_message(*beat).pack(common.MAVLink(None, 1, 1))
        for _ in range(5):  # in the flight controller's name, while it is alive
            late.sendto(own, ("127.0.0.1", number))
            state = client.rest(0.1)
        assert state["you"] and autopilot.received
        # of the first four the one that is no MAVLink; the others were read while there was no peer, for their ids
        addresses = ", ".join(f"127.0.0.1:{s.getsockname()[1]}" for s in (other, late))
        ids = "flight controllers of other system ids are ignored: 7"
        assert state["foreign"] == f"6 datagrams of {addresses} are ignored; {ids}"
        for silent in (other, late):
            silent.setblocking(False)
            with pytest.raises(BlockingIOError):
                silent.recv(100)


def test_a_step_that_fails_is_counted_said_once_and_the_sticks_go_on(monkeypatch):
    with served() as (station, autopilot, port, lines):
        pilot = Client(port)
        pilot.take()
        pilot.rest(0.2)

        def fail(now_s):
            raise ValueError("of this step")

        step = station.step
        monkeypatch.setattr(station, "step", fail)
        time.sleep(0.2)
        assert lines.count("ValueError: of this step") == 1
        monkeypatch.setattr(station, "step", step)
        before = len(autopilot.received)
        pilot.rest(0.3)
        assert len(autopilot.received) > before + 3


@pytest.mark.parametrize("how", ["closed", "lost"])
def test_manual_control_ends_with_the_connection(how):
    with served() as (_, autopilot, port, lines):
        client = Client(port)
        client.take()
        client.rest(0.2)
        assert autopilot.arrival(lambda m: True)
        if how == "closed":
            client.socket.close()
        else:
            client.socket.socket.shutdown(0)  # nothing is read or answered any more
        ended = time.perf_counter()
        time.sleep(1.0)
        assert autopilot.received[-1][0] - ended < DEAD_MAN_S + 0.1
        assert any("stopped" in line for line in lines)


@pytest.mark.realtime
def test_a_stick_reaches_the_link_within_30_ms():
    assert statistics.median(of_samples(100)) <= 0.030

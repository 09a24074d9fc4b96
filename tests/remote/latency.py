"""Latency from a stick on the page to the bytes of MANUAL_CONTROL on the link, on loopback.

``python -m tests.remote.latency`` prints it, for samples of a WebSocket client and for the mouse in headless Chromium.
"""

import asyncio
import contextlib
import json
import shutil
import socket
import ssl
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from pymavlink.dialects.v20 import common
from websockets.sync.client import connect

from companion.fcu.link.link import open_link
from companion.remote.aircraft import PARAMETERS, Aircraft, autopilot_sender
from companion.remote.command import open_tls
from companion.remote.protocol import PROTOCOL
from companion.remote.server import RemoteServer
from companion.remote.station import Station
from companion.remote.sticks import Sticks, StickShape

TOKEN = "a-token-for-the-latency"
VALUES = {"COM_RC_IN_MODE": 1, "NAV_RCL_ACT": 2}


class FakeAutopilot:
    """An autopilot's end of the link that reports itself and stamps every MANUAL_CONTROL."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(0.05)
        self.port = self.socket.getsockname()[1]
        self.received: list[tuple[float, common.MAVLink_manual_control_message]] = []
        self.commands: list[int] = []
        self.reports = True
        self._peer: tuple[str, int] | None = None  # that to which it reports
        self._mav = common.MAVLink(None, 1, 1)
        self._parser = common.MAVLink(None)
        self._ends = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def arrival(self, wanted: Callable[[common.MAVLink_manual_control_message], bool], within_s: float = 2.0) -> float:
        """When the first MANUAL_CONTROL of a kind arrived since ``received`` was cleared."""
        ends = time.perf_counter() + within_s
        while time.perf_counter() < ends:
            for arrived, message in list(self.received):
                if wanted(message):
                    return arrived
            time.sleep(0.002)
        raise AssertionError(f"no such MANUAL_CONTROL, but {[m.x for _, m in self.received][-5:]}")

    def meet(self, peer: tuple[str, int]) -> None:
        """Report to an address that has sent nothing yet."""
        self._peer = peer

    def close(self) -> None:
        self._ends = True
        self._thread.join(5)
        self.socket.close()

    def _send(self, peer, message) -> None:
        self.socket.sendto(message.pack(self._mav), peer)
        self._mav.seq = (self._mav.seq + 1) % 256

    def _run(self) -> None:
        peer, due = None, 0.0
        while not self._ends:
            peer = peer or self._peer
            with contextlib.suppress(TimeoutError):
                data, peer = self.socket.recvfrom(4096)
                now = time.perf_counter()
                for message in self._parser.parse_buffer(data) or []:
                    if message.get_type() == "MANUAL_CONTROL":
                        self.received.append((now, message))
                    elif message.get_type() == "COMMAND_LONG":
                        self.commands.append(message.command)
                        self._send(peer, common.MAVLink_command_ack_message(message.command, 0))
                    elif message.get_type() == "PARAM_REQUEST_READ":
                        name = message.param_id
                        value = float(VALUES.get(name, {"MAN_DEADZONE": 0.1, "MPC_MAN_TILT_MAX": 35.0}.get(name, 0.5)))
                        self._send(peer, common.MAVLink_param_value_message(name.encode(), value, 9, 1, 0))
            if peer is not None and self.reports and time.perf_counter() > due:
                due = time.perf_counter() + 0.1
                self._send(peer, common.MAVLink_heartbeat_message(13, 12, 129, 2 << 16, 4, 3))
                q = (1.0, 0.0, 0.0, 0.0)
                self._send(peer, common.MAVLink_attitude_quaternion_message(0, *q, 0.0, 0.0, 0.0))


def certificate(folder: Path) -> ssl.SSLContext:
    """TLS of a server with a new certificate, `cert.pem` in the folder; the test is skipped where openssl is missing."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate")
    cert, key = folder / "cert.pem", folder / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*made, "-keyout", key, "-out", cert], check=True, capture_output=True)
    context = open_tls("0.0.0.0", cert, key, folder / "token")
    assert context is not None
    return context


@contextlib.contextmanager
def serving(station: Station, url: str, tls: ssl.SSLContext | None = None) -> Iterator[tuple[int, list[str]]]:
    """A remote in a thread, on a link: port of its page, lines of the console."""
    lines: list[str] = []
    ports: list[int] = []
    link = open_link(url, sender=autopilot_sender(1))
    ready = threading.Event()

    def note(port: int) -> None:
        ports.append(port)
        ready.set()

    loop = asyncio.new_event_loop()
    task = loop.create_task(RemoteServer(station, link, lines.append).run("127.0.0.1", 0, tls, note))

    def run() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield ports[0], lines
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(5)
        loop.close()
        link.close()


@contextlib.contextmanager
def served(token: str = TOKEN) -> Iterator[tuple[Station, FakeAutopilot, int, list[str]]]:
    """A remote with an autopilot that only answers: station, autopilot, port of the page, lines of the console."""
    autopilot = FakeAutopilot()
    station = Station(Aircraft(), token)
    try:
        with serving(station, f"udpout:127.0.0.1:{autopilot.port}") as (port, lines):
            yield station, autopilot, port, lines
    finally:
        autopilot.close()


class Client:
    """A page without a browser, over a real WebSocket."""

    def __init__(self, port: int, token: str = TOKEN, **options) -> None:
        self.socket = connect(f"ws://127.0.0.1:{port}/sticks", **options)
        self.seen_s: float | None = None  # the stamp of the newest state
        self.send(type="hello", protocol=PROTOCOL, token=token)

    def send(self, **message) -> None:
        """Send a message; like the page's own, it names the newest state that has arrived."""
        if message["type"] not in ("hello", "release"):
            message = {"seen_s": self.seen_s, **message}
        self.socket.send(json.dumps(message))

    def until(self, wanted: Callable[[dict], bool], within_s: float = 10.0) -> dict:
        ends = time.monotonic() + within_s
        while True:
            message = json.loads(self.socket.recv(timeout=max(0.0, ends - time.monotonic())))
            if message["type"] == "state":
                self.seen_s = message["s"]
            if wanted(message):
                return message

    def rest(self, duration_s: float) -> dict:
        """Send centred sticks for a while; the last state."""
        ends = time.monotonic() + duration_s
        while True:
            state = self.until(lambda m: m["type"] == "state")
            self.send(type="sticks", ahead=0.0, right=0.0, up=0.0, turn=0.0)
            if time.monotonic() > ends:
                return state

    def take(self) -> None:
        """The sticks, when the aircraft is ready."""
        for _ in range(50):
            self.until(lambda m: m["type"] == "state")
            self.send(type="take")
            answer = self.until(lambda m: m["type"] == "answer" and m["to"] == "take")
            if answer["ok"]:
                return
            time.sleep(0.1)
        raise AssertionError(answer["text"])


def of_samples(count: int = 200) -> list[float]:
    """Latencies [s] from sending a sample on a WebSocket to MANUAL_CONTROL with its value."""
    with served() as (_, autopilot, port, _):
        client = Client(port)
        client.take()
        found = []
        for i in range(count + 1):
            client.until(lambda m: m["type"] == "state")
            sticks = Sticks(ahead=0.1 + 0.8 * i / count if i else 0.0, right=0.0, up=0.0, turn=0.0)
            autopilot.received.clear()
            sent = time.perf_counter()
            client.send(type="sticks", **sticks._asdict())
            if i:
                x = round(1000 * StickShape().apply(sticks).ahead)
                found.append(autopilot.arrival(lambda m, x=x: m.x == x) - sent)
        client.socket.close()
    return found


def of_the_mouse(count: int = 60) -> list[float]:
    """Latencies [s] from the event of the mouse in the page (its own time stamp) to MANUAL_CONTROL with its value."""
    from tests.remote.browser import Browser

    with served() as (_, autopilot, port, _), TemporaryDirectory() as folder:
        browser = Browser(Path(folder))
        try:
            page = browser.page(f"http://127.0.0.1:{port}/#{TOKEN}")
            page.wait("state && state.connected")
            page.wait("(held || document.getElementById('take').click(), held)")
            # the page's clock against this process', by the fastest of some round trips
            pairs = []
            for _ in range(30):
                before = time.perf_counter()
                there = page.run("performance.now()") / 1000
                after = time.perf_counter()
                pairs.append((after - before, (before + after) / 2 - there))
            offset = min(pairs)[1]
            page.run(
                "window.moves = []; document.getElementById('right').addEventListener('pointerrawupdate',"
                " event => window.moves.push(event.timeStamp), true)"
            )
            x, y = page.point("right", 0.0, 0.0)
            page.mouse("mousePressed", x, y)
            found = []
            for i in range(count):
                autopilot.received.clear()
                page.mouse("mouseMoved", *page.point("right", 0.0, 0.3 + 0.6 * (i % 2)))
                wanted = 280 if i % 2 == 0 else 890
                arrival = autopilot.arrival(lambda m, wanted=wanted: abs(m.x - wanted) < 40)
                found.append(arrival - page.run("window.moves[window.moves.length - 1]") / 1000 - offset)
            assert not page.errors
        finally:
            browser.close()
    return found


def line(name: str, found: list[float]) -> str:
    """Median, 95 % and largest, in milliseconds."""
    ordered = sorted(1e3 * t for t in found)
    p95 = ordered[int(0.95 * len(ordered))]
    return f"{name}: median {statistics.median(ordered):.1f} ms, 95 % {p95:.1f} ms, largest {ordered[-1]:.1f} ms ({len(found)})"


if __name__ == "__main__":
    assert set(PARAMETERS) >= set(VALUES)
    print(line("WebSocket sample to MANUAL_CONTROL", of_samples()))
    print(line("mouse in Chromium to MANUAL_CONTROL", of_the_mouse()))

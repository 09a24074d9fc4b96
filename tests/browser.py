"""A headless Chromium over its DevTools protocol (CDP), for tests of pages; skips where there is none."""

import asyncio
import base64
import json
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
STARTS_S = 60.0  # on a busy machine
WAITS_S = 60.0
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
)


def program() -> str:
    """The browser's path; skips the test where it or the websocket client is missing."""
    pytest.importorskip("tornado", reason="tornado (websockets) is not installed")
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium on this machine")
    return found


class Browser:
    """One page. folder: for the browser's profile."""

    def __init__(self, folder: Path, width: int = 1280, height: int = 900) -> None:
        words = [
            program(),
            *FLAGS,
            "--remote-debugging-port=0",
            f"--user-data-dir={folder}",
            f"--window-size={width},{height}",
        ]
        self._process = subprocess.Popen([*words, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._loop = asyncio.new_event_loop()
        self._count = 0
        self.requested: list[str] = []  # addresses that the page has loaded
        self.errors: list[str] = []
        try:
            self._socket = self._loop.run_until_complete(self._connect(folder / "DevToolsActivePort"))
            for domain in ("Page", "Runtime", "Network", "Log"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    async def _connect(self, port_file: Path):
        from tornado.websocket import websocket_connect

        ends_s = time.monotonic() + STARTS_S
        while not (port_file.exists() and port_file.read_text().count("\n")):
            assert self._process.poll() is None and time.monotonic() < ends_s, "the browser does not start"
            await asyncio.sleep(0.05)
        port = int(port_file.read_text().split()[0])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=10) as answer:
            pages = [target for target in json.load(answer) if target["type"] == "page"]
        return await websocket_connect(pages[0]["webSocketDebuggerUrl"], max_message_size=100_000_000)

    def call(self, method: str, **parameters):
        """One command of the protocol; returns its result."""
        self._count += 1
        number = self._count

        async def exchange():
            await self._socket.write_message(json.dumps({"id": number, "method": method, "params": parameters}))
            while True:
                text = await asyncio.wait_for(self._socket.read_message(), WAITS_S)
                assert text is not None, "the browser has ended"
                message = json.loads(text)
                if message.get("id") == number:
                    assert "error" not in message, message
                    return message["result"]
                self._note(message)

        return self._loop.run_until_complete(exchange())

    def _note(self, message: dict) -> None:
        parameters = message.get("params", {})
        if message["method"] == "Network.requestWillBeSent":
            self.requested.append(parameters["request"]["url"])
        elif message["method"] == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(parameters["exceptionDetails"]))
        elif message["method"] == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(parameters["entry"]["text"])

    def open(self, page: Path) -> None:
        """Load a file and wait until it is complete."""
        self.call("Page.navigate", url=page.resolve().as_uri())
        self.wait(f"document.readyState === 'complete' && location.href.startsWith({page.resolve().as_uri()!r})")

    def js(self, expression: str):
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, expression: str) -> None:
        """Until an expression is true."""
        ends_s = time.monotonic() + WAITS_S
        while not self.js(f"Boolean({expression})"):
            assert time.monotonic() < ends_s, f"never true: {expression}"

    def wait_requested(self, part: str) -> None:
        """Until the page has loaded an address with this part."""
        ends_s = time.monotonic() + WAITS_S
        while not any(part in address for address in self.requested):
            assert time.monotonic() < ends_s, f"never loaded: {part}"
            self.js("0")

    def place(self, selector: str) -> tuple[float, float, float, float]:
        """Left, top, width and height of an element in the window."""
        rectangle = f"document.querySelector({selector!r}).getBoundingClientRect()"
        return tuple(self.js(f"(({{x, y, width, height}}) => [x, y, width, height])({rectangle})"))

    def click(self, x: float, y: float) -> None:
        """With the mouse, in the window's coordinates."""
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path: Path) -> None:
        """What the window shows, as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait(timeout=10)
        self._loop.close()

"""Chromium without a window, driven by the Chrome DevTools Protocol over a WebSocket."""

import base64
import contextlib
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from websockets.sync.client import connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
START_S = 30.0


class Browser:
    """One browser process; `page` opens pages in it."""

    def __init__(self, folder: Path) -> None:
        self._port_file = folder / "DevToolsActivePort"
        self.process = subprocess.Popen(
            [
                str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--mute-audio",
                "--disable-background-timer-throttling", "--disable-renderer-backgrounding",
                "--disable-backgrounding-occluded-windows", "--remote-debugging-port=0",
                f"--user-data-dir={folder}", "about:blank",
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        ends = time.monotonic() + START_S
        while not self._port_file.exists() or not self._port_file.read_text().count("\n"):
            if time.monotonic() > ends or self.process.poll() is not None:
                raise RuntimeError("chromium did not start")
            time.sleep(0.1)
        self._address = f"http://127.0.0.1:{self._port_file.read_text().split()[0]}"

    def page(self, url: str, width: int = 1200, height: int = 800) -> "BrowserPage":
        """A new page of this size."""
        with urlopen(Request(f"{self._address}/json/new?about:blank", method="PUT"), timeout=10) as answer:
            target = json.load(answer)
        page = BrowserPage(target["webSocketDebuggerUrl"])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        page.call("Emulation.setDeviceMetricsOverride", **size)
        page.call("Page.enable")
        page.call("Runtime.enable")
        page.call("Page.navigate", url=url)
        page.wait("document.readyState === 'complete' && location.href !== 'about:blank'")
        return page

    def close(self) -> None:
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        self.process.kill()
        self.process.wait()


class BrowserPage:
    """One page: scripts, mouse, screenshots."""

    def __init__(self, address: str) -> None:
        self._socket = connect(address, max_size=None)
        self._number = 0
        self.errors: list[str] = []  # of the page's scripts

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A method of the protocol, and its result."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=30))
            if message.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(message["params"]["exceptionDetails"])[:400])
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, script: str, within_s: float = 15.0) -> Any:
        """Wait until an expression is true; its value."""
        ends = time.monotonic() + within_s
        while not (value := self.run(script)):
            assert time.monotonic() < ends, f"not within {within_s} s: {script}"
            time.sleep(0.05)
        return value

    def text(self, element: str) -> str:
        return str(self.run(f"document.getElementById('{element}').textContent"))

    def click(self, selector: str) -> None:
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def mouse(self, kind: str, x: float, y: float) -> None:
        """mousePressed, mouseMoved or mouseReleased at a point of the page."""
        buttons = 0 if kind == "mouseReleased" else 1
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=buttons, clickCount=1)

    def touch(self, kind: str, x: float = 0.0, y: float = 0.0, finger: int = 1) -> None:
        """touchStart or touchMove of a finger at a point of the page; touchEnd lifts all fingers."""
        points = [] if kind == "touchEnd" else [{"x": x, "y": y, "id": finger}]
        self.call("Input.dispatchTouchEvent", type=kind, touchPoints=points)

    def point(self, pad: str, across: float, along: float) -> tuple[float, float]:
        """Where a stick of a pad is at a position -1..1."""
        box = self.run(f"(b => [b.left, b.top, b.width])(document.getElementById('{pad}').getBoundingClientRect())")
        unit = box[2] / 216
        return box[0] + unit * (108 + 92 * across), box[1] + unit * (108 - 92 * along)

    def screenshot(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.call("Page.close")
        self._socket.close()

"""A headless Chromium as tests of the view drive it, by the DevTools protocol."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--no-sandbox", "--no-first-run",
    "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
    "--disable-dev-shm-usage", "--mute-audio", "--ignore-certificate-errors", "--remote-debugging-port=0",
)  # fmt: skip
START_S = 30.0


def chromium() -> str | None:
    """The program, None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page of a headless Chromium. folder: for its profile."""

    def __init__(self, folder: Path, size: tuple[int, int] = (1600, 900)) -> None:
        from websockets.sync.client import connect

        profile = folder / "chromium"
        program = chromium()
        assert program is not None
        words = [program, *FLAGS, f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}", "about:blank"]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(words, stdout=quiet, stderr=quiet, start_new_session=True)
        # In the air another computer draws the page than the one that flies. Here both share the processors: a session
        # is a group of the scheduler, and this one gets what the others leave.
        with contextlib.suppress(OSError):
            Path(f"/proc/{self._process.pid}/autogroup").write_text("19")
        port = _port(profile, self._process)
        target = _page(port)
        self._socket = connect(target, max_size=100_000_000, open_timeout=START_S)
        self._next = 0
        self.errors: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        width, height = size
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One call of the protocol and its result."""
        self._next += 1
        self._socket.send(json.dumps({"id": self._next, "method": method, "params": params}))
        answer: dict[str, Any] = {}
        while answer.get("id") != self._next:
            answer = json.loads(self._socket.recv(60.0))
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(answer["params"])[:500])
        assert "result" in answer, answer
        return answer["result"]

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression in the page, awaited."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def wait(self, script: str, seconds: float = 20.0) -> None:
        """Until an expression is true."""
        end_s = time.monotonic() + seconds
        while not self.run(f"Boolean({script})"):
            assert time.monotonic() < end_s, f"not true within {seconds} s: {script}; errors: {self.errors}"
            time.sleep(0.1)

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of an element."""
        box = self.run(
            f"(() => {{ const b = document.querySelector({selector!r}).getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def picture(self) -> bytes:
        """The page as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def cpu_s(self) -> float:
        """Processor time of all processes of the browser."""
        import psutil

        first = psutil.Process(self._process.pid)
        times = []
        for process in (first, *first.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):  # Ended since it was listed.
                times.append(process.cpu_times())
        return sum(t.user + t.system for t in times)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.call("Browser.close")
        with contextlib.suppress(Exception):
            self._socket.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait(5.0)


@contextlib.contextmanager
def browser(folder: Path, size: tuple[int, int] = (1600, 900)) -> Iterator[Browser]:
    """A browser that is closed in the end."""
    opened = Browser(folder, size)
    try:
        yield opened
    finally:
        opened.close()


def _port(profile: Path, process: "subprocess.Popen[bytes]") -> int:
    end_s = time.monotonic() + START_S
    file = profile / "DevToolsActivePort"
    while time.monotonic() < end_s:
        assert process.poll() is None, f"chromium ended with {process.returncode}"
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int(file.read_text().splitlines()[0])
        time.sleep(0.05)
    raise TimeoutError("chromium opened no port")


def _page(port: int) -> str:
    from urllib.request import urlopen

    end_s = time.monotonic() + START_S
    while time.monotonic() < end_s:
        with contextlib.suppress(OSError):
            pages = json.load(urlopen(f"http://127.0.0.1:{port}/json/list", timeout=5))
            for page in pages:
                if page["type"] == "page":
                    return str(page["webSocketDebuggerUrl"])
        time.sleep(0.05)
    raise TimeoutError("chromium has no page")

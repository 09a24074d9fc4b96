"""A log as a source of the view: windows of time, each read by a thread when a page asks for it, the first as soon as the view runs."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from companion.core.enums import OperatorAction
from companion.core.text import plain
from companion.view.digest import Cursor, Event
from companion.view.log_window import WINDOW_S, LogIndex

if TYPE_CHECKING:
    from companion.view.server import Page


class LogSource:
    """A log. scene: of `companion.view.scene`, with its photographs."""

    live = False

    def __init__(self, index: LogIndex, scene: dict[str, Any], first: int = 0) -> None:
        self._index, self._scene, self._first = index, scene, first
        self._files = {photograph["file"] for photograph in scene["photographs"]}
        self._reader = ThreadPoolExecutor(1)
        self._packets: dict[int, bytes] = {}  # the window that was read last
        self._reading: tuple[int, Future[bytes]] | None = None  # a window, and its packet

    def close(self) -> None:
        """End a reading that goes on."""
        self._index.closed = True
        self._reader.shutdown()

    def hello(self) -> dict[str, Any]:
        index = self._index
        begin_s, _ = index.window_s(self._first)
        return {
            "scene": self._scene, "live": False, "base": begin_s, "start": index.start_s, "end": index.end_s,
            "windows": index.windows, "window": self._first, "window_s": WINDOW_S, "notes": self._notes(),
        }  # fmt: skip

    def wake(self, pages: int, cameras: int) -> None:
        pass

    def work(self) -> None:
        """Take a window that has been read; raises what went wrong there."""
        if self._reading is None:
            if not self._packets:
                self._begin(self._first)
        elif self._reading[1].done():
            (number, done), self._reading = self._reading, None
            self._packets = {number: done.result()}

    @property
    def phase(self) -> str:
        return ""

    def packet(self, page: "Page") -> bytes | None:
        if page.state == "sent":
            return None
        if page.state is None:
            page.window = min(max(page.window if page.sent else self._first, 0), self._index.windows - 1)
            page.state = "waits"
        if page.window in self._packets:
            page.state = "sent"
            return self._packets[page.window]
        self._begin(page.window)
        return None

    def _begin(self, number: int) -> None:
        """Let the thread read a window, unless it reads one."""
        if self._reading is None:
            self._reading = number, self._reader.submit(self.window, number)

    def window(self, number: int) -> bytes:
        """The packet of a window, read from the file."""
        begin_s, end_s = self._index.window_s(number)
        digest = self._index.read(begin_s, end_s)
        digest.events += self._photographs(begin_s, end_s)
        # What is damaged in the middle is known when it has been read, after the page has opened.
        return Cursor().packet(
            digest, window=number, base=begin_s, end=end_s - begin_s, whole=True, notes=self._notes()
        )

    def _notes(self) -> list[str]:
        index = self._index
        said = [line(index)] if index.windows > 1 or index.truncated or index.oversize or index.changed else []
        return [*said, *self._scene["notes"]]

    def _photographs(self, begin_s: float, end_s: float) -> list[Event]:
        """Photographs that lie beside the log, as events at the time of their exposure."""
        return [
            {"t": p["stamp"] - begin_s, "k": "photograph", **{key: p[key] for key in ("id", "file", "p", "q")}}
            for p in self._scene["photographs"]
            if begin_s <= p["stamp"] <= end_s
        ]

    def picture(self, page: "Page") -> bytes | None:
        return None

    def file(self, name: str) -> bytes | None:
        if name not in self._files:
            return None
        try:
            return (self._index.path.parent / name).read_bytes()
        except OSError:
            return None

    def ask(self, action: OperatorAction, who: str) -> str:
        return "refused: a log takes no requests"


def line(index: LogIndex) -> str:
    """What a person must know of a log: its length, its parts, and what is missing."""
    seconds = index.end_s - index.start_s
    words = [f"{index.bytes / 1e9:.2f} GB, {seconds / 60:.0f} min"]
    if index.windows > 1:
        words.append(f"shown in {index.windows} windows of {WINDOW_S / 60:.0f} min")
    if index.changed:
        words.append("not complete: the file has changed since it was opened; start the view again")
    elif index.oversize:
        words.append(f"not complete: {index.oversize}")
    elif index.truncated:
        words.append("not complete: its end is missing or a part is damaged")
    return plain(f"{index.path.name}: {', '.join(words)}")

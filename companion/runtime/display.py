"""Shows the course of a flight on a terminal or in a pipe, and never holds the flight up.

A thread of its own prints. A reader that has ended (``| head -1``), a terminal that was closed, or a full disk behind it
ends the display and nothing else; a terminal that is stopped (Ctrl-S) delays the display and nothing else.
"""

import contextlib
import os
import queue
import sys
import threading
from typing import IO

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from companion.core.clock import monotonic_s
from companion.core.text import plain

WAITING_MAX = 200  # lines that wait for a slow terminal; further ones are dropped
REFRESH_S = 0.2  # of the progress line on a terminal
PLAIN_LINE_PERIOD_S = 5.0  # between two progress lines when the output is not a terminal
CLOSE_PATIENCE_S = 1.0
# What printing raises when the reader has ended or the file was closed; rich turns a broken pipe into SystemExit.
OUTPUT_LOST = (OSError, ValueError, SystemExit)


class Display:
    """Lines that stay, and below them, on a terminal, one line of progress that is renewed.

    All text is shown as it is: markup has no effect, control characters are replaced.
    """

    def __init__(self, console: Console | None = None) -> None:
        """console: None: standard output."""
        self._console = console or Console(file=_own_stdout(), markup=False)
        self._waiting: queue.Queue[Text | None] = queue.Queue(WAITING_MAX)
        self._progress = ""
        self._failed = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def line(self, head: str, text: str, style: str = "") -> None:
        """A line that stays: a head in a style, and a text."""
        if not self._ended.is_set():
            with contextlib.suppress(queue.Full):
                self._waiting.put_nowait(Text.assemble((plain(head), style), plain(text)))

    def progress(self, text: str) -> None:
        """The present progress, in the place of the one before."""
        self._progress = plain(text)

    @property
    def ended(self) -> bool:
        """True when nothing is shown any more."""
        return self._ended.is_set()

    def close(self, patience_s: float = CLOSE_PATIENCE_S) -> bool:
        """Show what waits, then end; returns whether the output still works."""
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=0.0 if self._ended.is_set() else patience_s)
        self._thread.join(patience_s)
        return not self._thread.is_alive() and not self._failed

    def _run(self) -> None:
        try:
            if self._console.is_terminal:
                self._on_a_terminal()
            else:
                self._in_a_pipe()
        except OUTPUT_LOST:
            self._failed = True
        finally:
            self._ended.set()

    def _on_a_terminal(self) -> None:
        with Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        ) as live:
            while True:
                try:
                    line = self._waiting.get(timeout=REFRESH_S)
                    if line is None:
                        return
                    live.console.print(line)
                except queue.Empty:
                    live.update(Text(self._progress), refresh=True)

    def _in_a_pipe(self) -> None:
        progress_at_s = monotonic_s()
        while True:
            try:
                line = self._waiting.get(timeout=max(0.0, progress_at_s - monotonic_s()))
                if line is None:
                    return
            except queue.Empty:
                progress_at_s += PLAIN_LINE_PERIOD_S
                line = Text(self._progress)
            self._console.print(line, soft_wrap=True)
            self._console.file.flush()


def show(console: Console, what: RenderableType, soft_wrap: bool = True) -> None:
    """Print a table, or a text as it is; an output that is lost is not an error."""
    with contextlib.suppress(*OUTPUT_LOST):
        console.print(Text(plain(what)) if isinstance(what, str) else what, soft_wrap=soft_wrap)


def _own_stdout() -> IO[str]:
    """Standard output as a file of its own: a thread that waits in it for ever does not keep Python from ending."""
    try:
        sys.stdout.flush()
        descriptor = os.dup(sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):  # replaced by something in memory
        return sys.stdout
    return open(descriptor, "w", encoding=sys.stdout.encoding, errors="replace")

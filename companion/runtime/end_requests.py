"""Signals that ask a command to end, while it has something to finish: processes to stop, a report to write."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType

END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C, kill, a terminal that was closed


class EndRequests:
    """Counts the signals that ask this process to end. None of them interrupts anything: the command looks at ``count``.

    An exception from a signal handler may come between the start of a process and the line that remembers it, or during
    the end of the processes, and leave them behind. Ctrl-Z is counted in ``stops`` and does not stop the process either,
    nor does output in the background: a stopped manager supervises nothing. Outside of the main thread, which alone receives signals, nothing is counted.
    """

    def __init__(self) -> None:
        self.count = 0
        self.stops = 0
        self._before: list[tuple[signal.Signals, object]] = []

    def __enter__(self) -> "EndRequests":
        if threading.current_thread() is threading.main_thread():
            handlers = {number: self._end for number in END} | {signal.SIGTSTP: self._stop}
            for number, handler in handlers.items():
                before = signal.getsignal(number)
                if before is not signal.SIG_IGN:  # as nohup and a shell's background jobs have it, which stays
                    # A function and not SIG_IGN, which the processes that are started now would inherit.
                    signal.signal(number, handler)
                    self._before.append((number, before))
            # Output of a process in the background: with a handler the kernel would repeat the signal for ever.
            self._before.append((signal.SIGTTOU, signal.signal(signal.SIGTTOU, signal.SIG_IGN)))
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        while self._before:
            number, before = self._before.pop()
            signal.signal(number, signal.SIG_DFL if before is None else before)  # type: ignore[arg-type]

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stops += 1


@contextlib.contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Ignore all requests to end for a short time; a process that is started meanwhile inherits this."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in END]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

"""The signals that end a run with the motor off: Ctrl-C, Ctrl-Z, Ctrl-\\, TERM, and HUP of a lost terminal."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

REASONS = {
    signal.SIGINT: "Ctrl-C",
    signal.SIGTSTP: "Ctrl-Z: a run cannot be suspended",
    signal.SIGQUIT: "Ctrl-\\",
    signal.SIGTERM: "another program ended this one (SIGTERM)",
    signal.SIGHUP: "the terminal is gone (SIGHUP)",
}


class Ending:
    """What ended a run: `reason` is "" until a signal has arrived."""

    def __init__(self) -> None:
        self.reason = ""
        self._interrupts = True

    def begin(self) -> None:
        """From now on a signal stops the motor and interrupts nothing: the run is ending already."""
        self._interrupts = False

    def signalled(self, number: int) -> None:
        """Keep the first reason; raises KeyboardInterrupt unless the run is ending already."""
        self.reason = self.reason or REASONS[signal.Signals(number)]
        if self._interrupts:
            self._interrupts = False
            raise KeyboardInterrupt


@contextmanager
def ended_by_signals(stop: Callable[[], None]) -> Iterator[Ending]:
    """While it lasts, each of `REASONS` calls `stop` first and then raises KeyboardInterrupt, once.

    A signal that was ignored (nohup) ends the run, too: a motor must not turn without a terminal.
    """
    ending = Ending()

    def handle(number: int, _frame: FrameType | None) -> None:
        stop()
        ending.signalled(number)

    if threading.current_thread() is not threading.main_thread():
        yield ending
        return
    former = {number: signal.signal(number, handle) for number in REASONS}
    try:
        yield ending
    finally:
        for number, handler in former.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not installed by Python

"""Questions to a person at a terminal: an answer counts only if it was typed after the question could be read.

What was typed in advance, pasted, piped in, or entered while the program was paused starts no motor.
"""

import os
import select
import sys
import termios
import time
from collections.abc import Callable

from calibration.thrust.bench.pause import PAUSE_S
from companion.core.config import ConfigError

ANSWER_MIN_S = 0.5  # a person needs longer to read the question and to type
TICK_S = 0.05
_LINE_MAX = 1024  # bytes


def terminal() -> int:
    """The descriptor of the terminal that is standard input; raises `ConfigError` with one line."""
    try:
        descriptor = sys.stdin.fileno()
        if os.isatty(descriptor):
            return descriptor
    except (OSError, ValueError, AttributeError):  # closed, or not a file
        pass
    raise ConfigError("standard input is not a terminal: the bench needs a person who types the answers")


def terminal_lost() -> bool:
    """Whether the terminal that is standard input was closed at its other end."""
    try:
        poll = select.poll()
        poll.register(sys.stdin.fileno(), 0)
        return any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))
    except (OSError, ValueError, AttributeError):
        return False  # no terminal at all: `terminal` has refused it, or a test


def ask_line(question: str, echo: Callable[[str], None], tick: Callable[[], float]) -> str:
    """Ask, and wait for a line; raises `ConfigError` without a terminal, EOFError if it closes.

    tick: called about every `TICK_S` while waiting; returns how long the program stood still since the last call [s].
    """
    descriptor = terminal()
    while True:
        echo(f"{question}: ")
        try:
            termios.tcflush(descriptor, termios.TCIFLUSH)  # typed in advance
        except termios.error:  # the terminal is gone
            raise EOFError from None
        asked_s = time.monotonic()
        again = ""
        while not again:
            waiting = select.select([descriptor], [], [], TICK_S)[0]
            if tick() > PAUSE_S:
                again = "the program was paused: answer again"
            elif waiting and time.monotonic() - asked_s < ANSWER_MIN_S:
                again = "this answer was typed or pasted before the question could be read: answer again"
            elif waiting:
                line = os.read(descriptor, _LINE_MAX)
                if not line:
                    raise EOFError
                if select.select([descriptor], [], [], 0.0)[0]:
                    again = "more than one line came at once, as from a paste: answer again"
                    continue
                return line.decode("utf-8", "replace").strip()
        echo(f"\n{again}\n")

"""Runs a function in a fork of this process: a flight goes on from a common beginning, and the beginning stays as it was."""

import os
import pickle
import traceback
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class ForkError(RuntimeError):
    """The function raised an exception in the fork; the text is its traceback."""


def in_fork(work: Callable[[], T]) -> T:
    """The result of ``work()``, computed in a fork. Raises `ForkError` with the traceback of an exception there."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            answer = (True, work())
        except BaseException:  # any error goes to the parent, and this process must end here
            answer = (False, traceback.format_exc())
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(answer, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if not data:
        raise ForkError(f"the fork ended without an answer (wait status {status})")
    completed, answer = pickle.loads(data)
    if not completed:
        raise ForkError(answer)
    return answer

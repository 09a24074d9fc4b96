"""A process ends with the one that started it, however that one ends.

A manager that is killed cannot end its processes. They would fly on without supervision, hold the link, and keep the next
manager out. So each of them compares the id of its parent with the one that it was started by, in every pass of its
loop: the link stops the setpoint stream and PX4 takes over, the recorder closes its log. The comparison also holds for a
parent that ended before its process could look, and it does not depend on the thread that started the process, as the
kernel's signal for the death of a parent does (PR_SET_PDEATHSIG, prctl(2)). That signal has one task: a process that is
stopped when its parent ends must go on, so that it can look. It is SIGCONT, which does nothing to one that runs.
"""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import threading
from collections.abc import Mapping

_PR_SET_PDEATHSIG = 1
PARENT_PID = "COMPANION_PARENT_PID"  # environment variable; absent: the process may outlive its parent


def tied_to_this_process() -> dict[str, str]:
    """The environment variable for a child that must not outlive this process."""
    return {PARENT_PID: str(os.getpid())}


class Parent:
    """The process that started this one."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        word = environment.get(PARENT_PID, "")
        self._pid = int(word) if word.isdecimal() else None
        if self._pid is not None:
            with contextlib.suppress(OSError, AttributeError):  # another system: a stopped process stays
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGCONT))

    @property
    def ended(self) -> bool:
        """Whether this process must end because its parent has; False for one that is tied to none."""
        return self._pid is not None and os.getppid() != self._pid


def end_with_parent() -> None:
    """End this process of `multiprocessing` at once when the process that started it ends; for work without results."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()

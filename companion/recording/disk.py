"""Bringing files onto the disk while the recorder's loop goes on.

What a loss of power costs, and what prevents it, is in `companion.core.disk`: fsync(2), which waits for seconds on a memory
card. `DiskThread` therefore calls it in one thread of its own, whose jobs wait in a queue: a slow card delays them,
and a job that is requested again while it waits is done once. The jobs end with the process, so none of them writes:
what they have not done yet is with the operating system all the same.
"""

import threading
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Protocol

Job = Callable[[], None]  # raises nothing


class Disk(Protocol):
    """How a `LogWriter` brings files onto the disk."""

    synchronised: bool  # what is written must survive a loss of power

    def run(self, key: Hashable, job: Job) -> None:
        """Do a job, at once or later; not twice where one with the same key has not begun yet."""

    def wait(self, timeout_s: float) -> bool:
        """Wait for all jobs; returns whether they are done."""


class DirectDisk:
    """For flights of a simulator and for tests: every job at once, nothing is synchronised."""

    synchronised = False

    def run(self, key: Hashable, job: Job) -> None:
        job()

    def wait(self, timeout_s: float) -> bool:
        return True


class DiskThread:
    """For a recorder in real time: the jobs one after another in one thread, begun with the first of them."""

    synchronised = True

    def __init__(self) -> None:
        self._jobs: dict[Hashable, Job] = {}  # in the order of their requests
        self._changed = threading.Condition()
        self._busy = False
        self._thread: threading.Thread | None = None

    def run(self, key: Hashable, job: Job) -> None:
        with self._changed:
            self._jobs.setdefault(key, job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="disk", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._jobs and not self._busy, timeout_s)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: bool(self._jobs))
                job = self._jobs.pop(next(iter(self._jobs)))
                self._busy = True
            job()


def write_whole(target: Path, data: bytes, part: Path) -> None:
    """Write a file so that it is there whole or not at all after the end of the process, by way of ``part``; raises OSError."""
    part.write_bytes(data)
    part.replace(target)

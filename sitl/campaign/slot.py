"""The campaign's side of a launcher: one place where one flight after the other is flown."""

import contextlib
import os
import subprocess
import sys
import threading

import msgspec

from companion.core.errors import UserError
from companion.core.provenance import ROOT
from sitl.campaign.flights import Flight
from sitl.campaign.fly import NotFlown, Row
from sitl.campaign.project import OtherVersion, Project

STARTS = 2  # of a launcher for one flight: the second one when the launcher itself was ended
END_S = 5.0  # a launcher has to end after its input has ended


class SlotClosed(Exception):
    """The campaign ends; the flight has no row."""


class Slot:
    """Flies flights one after the other, in processes of a launcher. project: that drew the flights."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._lock = threading.Lock()

    @property
    def closed(self) -> bool:
        return self._closed

    def fly(self, flight: Flight) -> Row:
        """The row of a flight. Raises `UserError` when it cannot be flown here, `SlotClosed` after `close`."""
        for _ in range(STARTS):
            process = self._started()
            answer = _asked(process, msgspec.json.encode(flight))
            if answer is not None and "refused" in answer:
                raise NotFlown(answer["refused"])
            if answer is not None:
                return answer
            if self._closed:
                raise SlotClosed
            self._process = None
        raise NotFlown(f"flight {flight.number}: the process that starts flights was ended, {STARTS} times")

    def _started(self) -> "subprocess.Popen[bytes]":
        with self._lock:
            if self._closed:
                raise SlotClosed
            if self._process is not None and self._process.poll() is None:
                return self._process
            # One thread per process: the thread pools of BLAS would compete for the cores.
            paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
            environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": paths}
            command = [sys.executable, "-m", "sitl.campaign.launcher"]
            pipe = subprocess.PIPE
            self._process = process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)
        answer = _asked(process, msgspec.json.encode(self._project))
        if answer is None:
            if self._closed:
                raise SlotClosed
            lines = (process.stderr.read() if process.stderr else b"").decode("utf-8", "replace").strip().splitlines()
            raise UserError(f"the process that starts flights has ended: {lines[-1] if lines else 'without a message'}")
        if "refused" in answer:
            raise OtherVersion(answer["refused"])
        threading.Thread(target=_drain, args=(process,), daemon=True).start()
        return process

    def close(self) -> None:
        """End the launcher and its flight; from any thread."""
        with self._lock:
            self._closed = True
            process = self._process
        if process is None:
            return
        if process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()


def _asked(process: "subprocess.Popen[bytes]", line: bytes) -> Row | None:
    """The answer to a line; None when the launcher has ended."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(line + b"\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        return None if not answer.endswith(b"\n") else msgspec.json.decode(answer)
    except (OSError, ValueError):
        return None


def _drain(process: "subprocess.Popen[bytes]") -> None:
    """Read what the launcher writes to its standard error, so that it never waits for that."""
    if process.stderr is not None:
        while process.stderr.read(1 << 16):
            pass

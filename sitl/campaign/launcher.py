"""Flies flights one after the other, each in a process of its own: ``python -m sitl.campaign.launcher``.

The launcher has imported everything that a flight needs, and forks for each flight. It reads a flight from its standard
input (one line of JSON), waits for the fork within the limits of time and memory, and writes the row to its standard
output. A flight that raises an exception, hangs, grows or dies by a signal is a row; the launcher goes on. A flight that this machine cannot
begin or write (no space, a folder without permission, no compiler) is none, but {"refused": why}: it would be flown elsewhere, or later. The
end of its input ends the launcher and the flight, so that none outlives the campaign, however that ended.

It has one thread, and it makes none before it forks: BLAS and OpenCV are kept to one thread each.
"""

import contextlib
import ctypes
import datetime
import errno
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import cv2
import msgspec

from companion.core import provenance
from companion.core.command_line import check_output_folder, os_error_line
from companion.core.errors import UserError
from sitl.campaign.attempt import Attempt
from sitl.campaign.flights import Flight
from sitl.campaign.fly import NotFlown, Row, crashed, flight_of_json, fly_flight
from sitl.campaign.project import Project, check_project, check_unchanged

LOOK_EVERY_S = 0.2  # at the memory and the time of a flight
TRACE_MAX = 4000  # last characters of what a crashed flight wrote
PR_SET_PDEATHSIG = 1
OUT_OF_MEMORY_SCORE = b"1000"  # when memory runs out the kernel ends a flight, not the campaign
# Failures of the operating system that are the machine's, whatever is flown on it.
OF_THE_MACHINE = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO, errno.EACCES, errno.EPERM)
    + (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
)
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1e6


class InputEnded(Exception):
    """The campaign has ended."""


class Requests:
    """Lines from a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._buffer = b""

    def next(self) -> bytes:
        """The next line; raises `InputEnded`."""
        while b"\n" not in self._buffer:
            data = os.read(self.descriptor, 1 << 16)
            if not data:
                raise InputEnded
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


class Answers:
    """Lines of JSON into a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "wb")

    def write(self, content: Row) -> None:
        self._file.write(msgspec.json.encode(content) + b"\n")
        self._file.flush()


def answer_to(flight: Flight, requests: Requests) -> Row:
    """The row of a flight, or why it was refused."""
    try:
        answer = supervise(flight, requests)
    except OSError as error:
        answer = {"refused": os_error_line(error)}
    except UserError as error:
        answer = {"refused": str(error)}
    return {"refused": f"flight {flight.number}: {answer['refused']}"} if "refused" in answer else answer


def supervise(flight: Flight, requests: Requests) -> Row:
    """Fly in a fork; returns its row, or {"refused": why}. Raises `InputEnded`, with the fork ended, when the campaign ends meanwhile."""
    if not flight.log:
        return _supervised(flight, requests)
    check_output_folder(Path(flight.log).parent)
    attempt = Attempt(Path(flight.log))
    try:
        row = _supervised(msgspec.structs.replace(flight, log=str(attempt.log)), requests)
    except InputEnded:
        attempt.remove()
        raise
    row |= {name: attempt.named(row[name]) for name in ("cause", "log_problem", "trace", "refused") if name in row}
    if "refused" in row:
        attempt.remove()
        return row
    kept = attempt.keep()
    return row if kept is None else row | {"log": str(kept)}


def _supervised(flight: Flight, requests: Requests) -> Row:
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as written:
        parent, started_s = os.getpid(), time.monotonic()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _be_flight(flight, writing, written.fileno(), parent)
        os.close(writing)
        data, problem = _watched(child, reading, flight, started_s, requests)
        os.close(reading)
        _, status, used = os.wait4(child, 0)
        written.seek(max(0, written.seek(0, os.SEEK_END) - TRACE_MAX))
        trace = written.read().decode("utf-8", "replace")
    drawn, answer = _said(data)
    if answer is not None and "refused" in answer:
        return answer
    row = crashed(flight, problem or _ending(status), trace) if problem or answer is None else answer
    return row | {
        "result": row["result"] or drawn,
        "wall_s": round(time.monotonic() - started_s, 3),
        "cpu_s": round(used.ru_utime + used.ru_stime, 3),
        "memory_mb": round(used.ru_maxrss / 1024.0, 1),
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _watched(child: int, reading: int, flight: Flight, started_s: float, requests: Requests) -> tuple[bytes, str]:
    """(what the flight has written, why it was ended; "" when it ended by itself)."""
    data = b""
    while True:
        ready, _, _ = select.select([reading, requests.descriptor], [], [], LOOK_EVERY_S)
        if reading in ready:
            part = os.read(reading, 1 << 16)
            if not part:
                break
            data += part
        elif requests.descriptor in ready:  # no request comes before the answer: this is the end of the input
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise InputEnded
        if time.monotonic() - started_s > flight.wall_max_s:
            os.kill(child, signal.SIGKILL)
            return data, f"not finished within {flight.wall_max_s:g} s"
        if _memory_mb(child) > flight.memory_max_mb:
            os.kill(child, signal.SIGKILL)
            return data, f"more than {flight.memory_max_mb:g} MB of memory"
    return data, ""


def _said(data: bytes) -> tuple[Row, Row | None]:
    """(what was drawn for a flight, its row or refusal), each as far as it has written all of it."""
    drawn: Row = {}
    for line in data.split(b"\n")[:-1]:
        content: Row = msgspec.json.decode(line)
        if "outcome" in content or "refused" in content:
            return drawn, content
        drawn = content
    return drawn, None


def _memory_mb(process: int) -> float:
    """Resident memory, 0 of a process that has ended."""
    try:
        return int(Path(f"/proc/{process}/statm").read_bytes().split()[1]) * PAGE_MB
    except (OSError, IndexError):
        return 0.0


def _ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"its process was ended by {signal.Signals(number).name}"
    return f"its process ended with status {os.waitstatus_to_exitcode(status)} and without a result"


def _be_flight(flight: Flight, writing: int, written: int, parent: int) -> None:
    """The fork: fly, write what was drawn and the row, end; never returns."""
    status = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:
            os._exit(1)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(written, 1)
        os.dup2(written, 2)
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_bytes(OUT_OF_MEMORY_SCORE)
        campaign = Answers(writing)
        campaign.write(_row(flight, campaign.write))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _row(flight: Flight, drawn: Callable[[Row], None]) -> Row:
    try:
        return fly_flight(flight, Path(flight.log) if flight.log else None, drawn=drawn)[1]
    except NotFlown as error:
        return {"refused": str(error)}
    except UserError as error:
        return crashed(flight, str(error))
    except Exception as error:
        if isinstance(error, OSError) and error.errno in OF_THE_MACHINE:
            return {"refused": os_error_line(error)}
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        return crashed(flight, f"{type(error).__name__} in {where}: {error}", traceback.format_exc()[-TRACE_MAX:])


def main() -> None:
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C in a terminal reaches every process; only the campaign acts on it
    answers = Answers(os.dup(1))
    os.dup2(2, 1)  # what a library prints is no answer
    cv2.setNumThreads(1)
    requests = Requests(0)
    try:
        project = msgspec.json.decode(requests.next(), type=Project)
        check_project(project)
        answers.write({"pid": os.getpid()})
        provenance.computer()
        while True:
            flight = flight_of_json(requests.next())
            check_unchanged(project)  # a kernel of other sources would fly under the name of this version
            answers.write(answer_to(flight, requests))
    except (InputEnded, BrokenPipeError):
        return
    except UserError as error:
        answers.write({"refused": str(error)})
    except OSError as error:
        answers.write({"refused": os_error_line(error)})


if __name__ == "__main__":
    main()
    sys.exit(0)

"""Which flights may be deleted when the folder of the logs grows too large or too old.

A flight is its log and all files beside it whose names begin with the log's name (photographs). Flights are ordered by
the number in the log's name and not by a clock: a computer without a clock battery may have had a wrong one on any day.
The log that a process writes is never deleted, nor is the newest flight.
"""

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from math import inf
from pathlib import Path
from typing import NamedTuple

from companion.recording.writer import FLOWN_SUFFIX

KEPT_AT_ANY_AGE = 10  # flights: the date of a computer without a clock battery may be wrong
DAY_S = 86_400.0
LOG_SUFFIX = ".mcap"
LAST_NUMBER = ".last_number"  # the file that keeps the number when all logs have been moved elsewhere
NUMBER_MAX = 10**12 - 1
_NUMBERED = re.compile(r"([0-9]{6,12})_[0-9]{4}-[0-9]{2}-[0-9]{2}_[0-9]{2}-[0-9]{2}-[0-9]{2}")
_NUMBER_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def next_log_name(folder: Path, started: datetime) -> str:
    """The name of the next log of a folder: a number above all before it, then the time of its beginning.

    The numbers are in the names, so that nothing else is needed for the order. The file `LAST_NUMBER` only keeps them
    growing when the logs have been moved away; without it, or when it is damaged, the names count alone.
    """
    numbers = [_number(path.name) for path in _entries(folder) if path.suffix == LOG_SUFFIX]
    number = max(0, _last_number(folder), *numbers) + 1
    part = folder / f"{LAST_NUMBER}.{os.getpid()}"
    with contextlib.suppress(OSError):  # a full disk: the names count
        part.unlink(missing_ok=True)
        with part.open("x") as file:
            file.write(f"{number}\n")
        part.replace(folder / LAST_NUMBER)
    with contextlib.suppress(OSError):
        part.unlink(missing_ok=True)
    return f"{number:06d}_{started:%Y-%m-%d_%H-%M-%S}{LOG_SUFFIX}"


def _number(name: str) -> int:
    """The number in the name of a log or of a file beside it, 0 without one (a log of a former version)."""
    found = _NUMBERED.match(name)
    return _plausible(found[1]) if found else 0


def _plausible(digits: str) -> int:
    """A number that leaves none for the next log is no count of flights."""
    number = int(digits)
    return number if number < NUMBER_MAX else 0


def _last_number(folder: Path) -> int:
    """The number that the file keeps; 0 when it is absent or damaged."""
    try:
        descriptor = os.open(folder / LAST_NUMBER, _NUMBER_FILE)
    except OSError:
        return 0
    try:
        text = os.read(descriptor, 20).decode("ascii", "replace").strip()
    except OSError:
        return 0
    finally:
        os.close(descriptor)
    return _plausible(text) if re.fullmatch(r"[0-9]{1,12}", text) else 0


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


class LogLimits(NamedTuple):
    """How much may be kept: MB and days of flights in the folder, 0: without limit."""

    max_mb: float
    max_days: float


class StoredFlight(NamedTuple):
    """The files of one flight, the log first; ``ended_s`` on the clock of that day, which may have been wrong."""

    log: Path
    files: tuple[Path, ...]
    size_mb: float
    ended_s: float
    flown: bool = False  # the aircraft was armed

    @property
    def place(self) -> tuple[int, float, str]:
        """Its place in the order: logs of former versions have no number, are older and are ordered by their dates."""
        return _number(self.log.name), self.ended_s, self.log.name


def flights_in(folder: Path) -> list[StoredFlight]:
    """All flights of a folder, the oldest first; files that cannot be read are left out."""
    flights = []
    names = _entries(folder)
    for log in (name for name in names if name.suffix == LOG_SUFFIX):
        beside = [n for n in names if n != log and n.name.startswith((f"{log.stem}_photo_", f"{log.stem}."))]
        with contextlib.suppress(OSError):
            facts = [name.stat() for name in (log, *beside)]
            flown = log.with_suffix(FLOWN_SUFFIX) in beside
            size_mb = sum(f.st_size for f in facts) / 1e6
            flights.append(StoredFlight(log, (log, *beside), size_mb, facts[0].st_mtime, flown))
    return sorted(flights, key=lambda flight: flight.place)


def is_written(log: Path) -> bool:
    """Whether a process writes a log at present, or that cannot be found out."""
    try:
        descriptor = os.open(log, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(descriptor)
    return False


def too_many(flights: list[StoredFlight], limits: LogLimits, wall_s: float) -> list[StoredFlight]:
    """The flights (oldest first) that must be deleted so that the rest keeps the limits.

    The newest stays, and the newest in which the aircraft was armed: the flight just flown, however large. A flight is no
    older than those before it, so one whose clock was behind gets their age. One that is dated in the future has no age.
    """
    left_mb = sum(flight.size_mb for flight in flights)
    stay = {flight.log for flight in (*flights[-1:], *[flight for flight in flights if flight.flown][-1:])}
    gone = []
    since_s = -inf
    for i, flight in enumerate(flights):
        if flight.ended_s <= wall_s:
            since_s = max(since_s, flight.ended_s)
        age_s = 0.0 if flight.ended_s > wall_s else wall_s - since_s
        large = 0 < limits.max_mb < left_mb
        old = 0 < limits.max_days * DAY_S < age_s and len(flights) - i > KEPT_AT_ANY_AGE
        if (large or old) and flight.log not in stay:
            gone.append(flight)
            left_mb -= flight.size_mb
    return gone


class Retention:
    """Keeps a folder within its limits, one file per call, because deleting a large file from a memory card is slow."""

    def __init__(self, folder: Path, limits: LogLimits, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._limits, self._clock = folder, limits, clock
        self._to_delete: Iterator[Path] = iter(())
        self.deleted = 0  # files

    def begin(self, written: Path) -> None:
        """Read the folder again; the flight whose log is ``written`` stays, and what another process writes."""
        finished = (flight for flight in flights_in(self._folder) if flight.log.name != written.name)
        flights = [flight for flight in finished if not is_written(flight.log)]
        expired = too_many(flights, self._limits, self._clock())
        self._to_delete = iter([name for flight in expired for name in reversed(flight.files)])

    def step(self) -> None:
        """Delete the next file, if one is due."""
        name = next(self._to_delete, None)
        if name is not None:
            with contextlib.suppress(OSError):
                name.unlink()
                self.deleted += 1

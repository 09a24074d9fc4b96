"""Which flights may be deleted when the folder of the logs grows too large or too old.

A flight is its log, the parts that restarted recorders wrote after it (``<name>_2.mcap`` …), and all files beside them
whose names begin with theirs (photographs). Flights are ordered by the number in the log's name and not by a clock: a
computer without a clock battery may have had a wrong one on any day. The flight that a process writes is never deleted,
nor is the newest one.
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

from companion.recording.writer import BEGUN_ARMED, FLOWN_SUFFIX

KEPT_AT_ANY_AGE = 10  # flights: the date of a computer without a clock battery may be wrong
DAY_S = 86_400.0
LOG_SUFFIX = ".mcap"
LAST_NUMBER = ".last_number"  # the file that keeps the number when all logs have been moved elsewhere
NUMBER_MAX = 10**12 - 1
_NUMBERED = re.compile(r"([0-9]{6,12})_[0-9]{4}-[0-9]{2}-[0-9]{2}_[0-9]{2}-[0-9]{2}-[0-9]{2}")
_PART = re.compile(rf"({_NUMBERED.pattern})_([1-9][0-9]{{0,3}})")  # of a flight whose recorder was restarted
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
    begun_armed: bool = False  # and was when the log began: the computer was restarted in this flight

    @property
    def logs(self) -> list[Path]:
        """The log and its parts, in order."""
        return [file for file in self.files if file.suffix == LOG_SUFFIX]

    @property
    def place(self) -> tuple[int, float, str]:
        """Its place in the order: logs of former versions have no number, are older and are ordered by their dates."""
        return _number(self.log.name), self.ended_s, self.log.name


def flights_in(folder: Path) -> list[StoredFlight]:
    """All flights of a folder, the oldest first; files that cannot be read are left out."""
    names = _entries(folder)
    parts: dict[str, dict[int, Path]] = {}  # of each flight, by their numbers
    for log in (name for name in names if name.suffix == LOG_SUFFIX):
        part = _PART.fullmatch(log.stem)
        parts.setdefault(part[1] if part else log.stem, {})[int(part[3]) if part else 1] = log
    flights = []
    for logs in ([of_one[number] for number in sorted(of_one)] for of_one in parts.values()):
        with contextlib.suppress(OSError):
            flights.append(_stored(logs, names))
    return sorted(flights, key=lambda flight: flight.place)


def _stored(logs: list[Path], names: list[Path]) -> StoredFlight:
    """A flight with these logs, the first one first; names: all files of the folder. Raises OSError."""
    files: list[Path] = []
    for log in logs:
        files += [log, *(n for n in names if n != log and n.name.startswith((f"{log.stem}_photo_", f"{log.stem}.")))]
    size_mb = sum(file.stat().st_size for file in files) / 1e6
    marks = [mark for log in logs if (mark := log.with_suffix(FLOWN_SUFFIX)) in files]
    begun_armed = bool(marks) and _begun_armed(marks[0])
    return StoredFlight(logs[0], tuple(files), size_mb, logs[-1].stat().st_mtime, bool(marks), begun_armed)


def _begun_armed(mark: Path) -> bool:
    try:
        return mark.read_bytes()[: len(BEGUN_ARMED)] == BEGUN_ARMED.encode()
    except OSError:
        return False


def is_written(log: Path) -> bool:
    """Whether a process writes a log at present, or that cannot be found out."""
    try:
        return is_locked(log, os.O_NOFOLLOW)
    except OSError:
        return True


def is_locked(log: Path, flags: int = 0) -> bool:
    """Whether a process writes a log at present; raises `OSError` where the file cannot be opened. flags: of open(2), further ones."""
    descriptor = os.open(log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
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

    The newest stays, and the newest in which the aircraft was armed: the flight just flown, however large. Where its log
    begins with an armed aircraft, the one before it stays, too: it may hold the beginning. A flight is no
    older than those before it, so one whose clock was behind gets their age. One that is dated in the future has no age.
    """
    left_mb = sum(flight.size_mb for flight in flights)
    stay = {flight.log for flight in flights[-1:]}
    for flight in (flight for flight in reversed(flights) if flight.flown):
        stay.add(flight.log)
        if not flight.begun_armed:
            break
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
        flights = [f for f in flights_in(self._folder) if written.name not in [log.name for log in f.logs]]
        # One that waits for space until it is complete takes space, too: only then older ones make way for it.
        expired = [f for f in too_many(flights, self._limits, self._clock()) if not any(map(is_written, f.logs))]
        self._to_delete = iter([name for flight in expired for name in reversed(flight.files)])

    def step(self) -> None:
        """Delete the next file, if one is due."""
        name = next(self._to_delete, None)
        if name is not None:
            with contextlib.suppress(OSError):
                name.unlink()
                self.deleted += 1

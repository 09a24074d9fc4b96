"""Which flights may be deleted when the folder of the logs grows too large or too old.

A flight is its log and all files beside it whose names begin with the log's name (photographs). The log that is being
written is never deleted.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

KEPT_AT_ANY_AGE = 10  # flights: the date of a computer without a clock battery may be wrong
DAY_S = 86_400.0
LOG_SUFFIX = ".mcap"


class LogLimits(NamedTuple):
    """How much may be kept: MB and days of flights in the folder, 0: without limit."""

    max_mb: float
    max_days: float


class StoredFlight(NamedTuple):
    """The files of one flight; ``ended_s`` on the wall clock."""

    log: Path
    files: tuple[Path, ...]
    size_mb: float
    ended_s: float


def flights_in(folder: Path) -> list[StoredFlight]:
    """All flights of a folder, the oldest first; files that cannot be read are left out."""
    flights = []
    names = sorted(folder.glob("*")) if folder.is_dir() else []
    for log in (name for name in names if name.suffix == LOG_SUFFIX):
        own = [n for n in names if n == log or n.name.startswith((f"{log.stem}_photo_", f"{log.stem}."))]
        with contextlib.suppress(OSError):
            facts = [name.stat() for name in own]
            flights.append(StoredFlight(log, tuple(own), sum(f.st_size for f in facts) / 1e6, log.stat().st_mtime))
    return sorted(flights, key=lambda flight: (flight.ended_s, flight.log.name))


def too_many(flights: list[StoredFlight], limits: LogLimits, wall_s: float) -> list[StoredFlight]:
    """The flights (oldest first) that must be deleted so that the rest keeps the limits."""
    left_mb = sum(flight.size_mb for flight in flights)
    gone = []
    for i, flight in enumerate(flights):
        large = 0 < limits.max_mb < left_mb
        old = 0 < limits.max_days * DAY_S < wall_s - flight.ended_s and len(flights) - i > KEPT_AT_ANY_AGE
        if large or old:
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
        """Read the folder again; the flight whose log is ``written`` stays."""
        flights = [flight for flight in flights_in(self._folder) if flight.log.name != written.name]
        expired = too_many(flights, self._limits, self._clock())
        self._to_delete = iter([name for flight in expired for name in reversed(flight.files)])

    def step(self) -> None:
        """Delete the next file, if one is due."""
        name = next(self._to_delete, None)
        if name is not None:
            with contextlib.suppress(OSError):
                name.unlink()
                self.deleted += 1

"""Which flights may be deleted when the folder of the logs grows too large or too old.

A flight is its log and all files beside it whose names begin with the log's (photographs). The rule knows no
clock but the one it is given and no file but those it is shown: the log being written is never among them.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

KEPT_WHATEVER_AGE = 10  # flights: a computer without a battery for its clock may believe in any date
DAY_S = 86_400.0
LOG_SUFFIX = ".mcap"


class LogLimits(NamedTuple):
    """How much may be kept: MB and days of flights in the folder, 0: without limit."""

    max_mb: float
    max_days: float


class Flight(NamedTuple):
    """The files of one flight; ``ended_s`` on the wall clock."""

    log: Path
    files: tuple[Path, ...]
    size_mb: float
    ended_s: float


def flights_in(folder: Path) -> list[Flight]:
    """All flights of a folder, the oldest first; what cannot be read is left out."""
    flights = []
    names = sorted(folder.glob("*")) if folder.is_dir() else []
    for log in (name for name in names if name.suffix == LOG_SUFFIX):
        own = [n for n in names if n == log or n.name.startswith((f"{log.stem}_photo_", f"{log.stem}."))]
        with contextlib.suppress(OSError):
            facts = [name.stat() for name in own]
            flights.append(Flight(log, tuple(own), sum(f.st_size for f in facts) / 1e6, log.stat().st_mtime))
    return sorted(flights, key=lambda flight: (flight.ended_s, flight.log.name))


def too_many(flights: list[Flight], limits: LogLimits, wall_s: float) -> list[Flight]:
    """Those of ``flights`` (the oldest first) that must go so that the rest keeps the limits."""
    left_mb = sum(flight.size_mb for flight in flights)
    gone = []
    for i, flight in enumerate(flights):
        large = 0 < limits.max_mb < left_mb
        old = 0 < limits.max_days * DAY_S < wall_s - flight.ended_s and len(flights) - i > KEPT_WHATEVER_AGE
        if large or old:
            gone.append(flight)
            left_mb -= flight.size_mb
    return gone


class Retention:
    """Keeps a folder within its limits, one file a call: deleting a large file may take long on a memory card."""

    def __init__(self, folder: Path, limits: LogLimits, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._limits, self._clock = folder, limits, clock
        self._doomed: Iterator[Path] = iter(())
        self.deleted = 0  # files

    def begin(self, written: Path) -> None:
        """Look through the folder anew; the flight whose log is ``written`` stays."""
        flights = [flight for flight in flights_in(self._folder) if flight.log.name != written.name]
        doomed = too_many(flights, self._limits, self._clock())
        self._doomed = iter([name for flight in doomed for name in reversed(flight.files)])

    def step(self) -> None:
        """Delete the next file, if one is due."""
        name = next(self._doomed, None)
        if name is not None:
            with contextlib.suppress(OSError):
                name.unlink()
                self.deleted += 1

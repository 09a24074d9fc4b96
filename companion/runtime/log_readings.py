"""What the log of one flight says for a flight that goes on after it; kept in a file, so that each log is read once.

A log of 100 MB takes seconds to read, and a folder may hold thousands of MB. Of which plan and of which kind a flight is stands in the head
of its log and is compared each time; the photographs and the time of the flight are in all of it, and do not change. The file is written
after each log: what was read before a start that was cut off is not read again.
"""

import contextlib
import datetime
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from companion.core.config import ConfigError
from companion.core.enums import CaptureOutcome
from companion.core.messages import Capture, PayloadStatus
from companion.recording.inspection import utc_offset_of
from companion.recording.log import Log, first_metadata, parts, read_log

Place = tuple[str, int, int]
RUN_KEY = "photographed"  # in the run of a log: what the flights before had taken
CLOCK_SET_S = 60.0  # the clock moved by more in a flight: it was set, not slewed
FORMAT = 1  # of the kept readings; another one is not used


class Reading(msgspec.Struct, frozen=True):
    """What a log says.

    places: sharp photographs of the flight and, by its run, of those before it. utc_s: when it was flown, None unknown. clock_set: the
    clock was set in the flight, which makes `utc_s` right.
    """

    places: list[Place]
    utc_s: float | None
    clock_set: bool = False

    @property
    def at(self) -> datetime.datetime | None:
        return None if self.utc_s is None else datetime.datetime.fromtimestamp(self.utc_s, datetime.UTC)


class _Kept(msgspec.Struct):
    """A reading, and name, size [bytes] and time of the files that it is of. simulated: its time is the computer's, see `flown_at`."""

    reading: Reading
    files: list[tuple[str, int, int]]
    simulated: bool


class _KeptFile(msgspec.Struct):
    """The file of readings, by the log's path."""

    format: int = 0
    logs: dict[str, _Kept] = {}


class Readings:
    """Reads logs, and keeps what they said in a file; None: nowhere. A file that cannot be used costs time alone."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._kept: dict[str, _Kept] = {}
        if file is not None:
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                found = msgspec.json.decode(file.read_bytes(), type=_KeptFile)
                self._kept = found.logs if found.format == FORMAT else {}

    def of(self, log: Path, simulated: bool) -> Reading:
        """What a log says; raises `ConfigError`, one line."""
        files = _identity(log)
        known = self._kept.get(str(log))
        if known is not None and (known.files, known.simulated) == (files, simulated):
            return known.reading
        read = read_log(log, ("capture", "payload"))
        at, clock_set = flown_at(read, simulated)
        reading = Reading(sorted(places_of(read)), None if at is None else at.timestamp(), clock_set)
        self._kept[str(log)] = _Kept(reading, files, simulated)
        self._write()
        return reading

    def forget_all_but(self, logs: Iterable[Path]) -> None:
        """Drop the readings of logs that were deleted."""
        names = {str(log) for log in logs}
        if gone := self._kept.keys() - names:
            for name in gone:
                del self._kept[name]
            self._write()

    def _write(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                write_whole(self._file, msgspec.json.encode(_KeptFile(FORMAT, self._kept)))


def write_whole(file: Path, content: bytes) -> None:
    """Whole or not at all; raises `OSError`."""
    part = file.with_suffix(".part")
    part.write_bytes(content)
    os.replace(part, file)


def head_of(log: Path) -> Log:
    """A log with its metadata alone; raises `ConfigError` for a file that is no log.

    The head may lack what was known later in the flight: the run of the flights before.
    """
    head = Log(log)
    head.metadata = first_metadata(log)
    return head if head.metadata.keys() & {"mission", "mission_tables"} else read_log(log, ())


def run_of(log: Log) -> dict[str, Any]:
    """How a log was flown; raises `ConfigError`, one line."""
    try:
        return msgspec.json.decode(log.metadata.get("run", "{}"), type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise _broken_run(log, error) from None


def places_of(log: Log) -> set[Place]:
    """The sharp photographs of a flight and of those before it; raises `ConfigError`, one line."""
    run = run_of(log)
    try:
        before = {(str(item), int(row), int(column)) for item, row, column in run.get(RUN_KEY, [])}
    except (TypeError, ValueError) as error:
        raise _broken_run(log, error) from None
    # The best capture of a photograph counts, as in the report: a sharp one that came after a blurred one.
    return before | {(m.item, m.row, m.column) for m in log.of(Capture) if m.outcome == CaptureOutcome.TAKEN}


def _broken_run(log: Log, error: Exception) -> ConfigError:
    return ConfigError(f"{log.path}: the run in the log cannot be read: {error}")


def flown_at(log: Log, simulated: bool) -> tuple[datetime.datetime | None, bool]:
    """When a log was flown, and whether the clock was set in the flight, so that this is right.

    By the clock at the end of the flight, which may have been set after the log was begun; else at its beginning; else by the time of the
    file. A simulated camera may have a clock of its own, the same in each flight.
    """
    offset_s = math.nan if simulated else utc_offset_of(log)
    began_ns = log.clock_offset_ns()
    clock_set = bool(began_ns) and abs(offset_s - began_ns * 1e-9) > CLOCK_SET_S  # NaN: no
    try:
        if math.isfinite(offset_s):
            stamp_s = max(status.stamp_s for status in log.of(PayloadStatus) if math.isfinite(status.utc_offset_s))
            return datetime.datetime.fromtimestamp(stamp_s + offset_s, datetime.UTC), clock_set
    except (ValueError, OverflowError, OSError):
        pass
    began = begun_at(log)
    return (written_at(log.path) if began is None else began), False


def begun_at(log: Log) -> datetime.datetime | None:
    """When a log was begun, by the clock of that moment; None: it does not say so."""
    try:
        return datetime.datetime.fromisoformat(log.metadata["start_time"]).astimezone(datetime.UTC)
    except (KeyError, ValueError, OverflowError):
        return None


def written_at(log: Path) -> datetime.datetime | None:
    """When a file was last written to, by the clock of that moment; None: it cannot be asked."""
    try:
        return datetime.datetime.fromtimestamp(log.stat().st_mtime, datetime.UTC)
    except (OSError, ValueError, OverflowError):
        return None


def flown_before(log: Path, oldest: datetime.datetime) -> datetime.datetime | None:
    """When a flight ended at the latest, where that is before `oldest`; None where the log has to be read to know it.

    The files of a log have the time of their last bytes, by the clock of that moment.
    """
    head = Log(log)
    head.metadata = first_metadata(log)
    times = [written_at(part) for part in parts(log)] + ([] if (began := begun_at(head)) is None else [began])
    known = [at for at in times if at is not None]
    return max(known) if len(known) == len(times) and max(known) < oldest else None


def _identity(log: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of the files of a log; empty where they cannot be asked, which no reading has."""
    try:
        return [(part.name, (found := part.stat()).st_size, found.st_mtime_ns) for part in parts(log)]
    except OSError:
        return []

"""What the folder of an inspection report holds, and what becomes of the report that stood there before.

The photographs in a report may be the only ones that are left: a camera's card is formatted after the flight. A report is
therefore replaced by one that holds all of them, or kept under another name.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from companion.core.config import ConfigError
from companion.recording.inspection import ShotKey
from companion.recording.inspection_files import same_bytes
from companion.recording.log import Log
from companion.recording.same_flight import flight_of

FOLDER = "inspection"  # in the folder of the flight report
UNFINISHED, FORMER = f".{FOLDER}.part", f".{FOLDER}.old"  # beside it while it is written, and while it is replaced
KEPT = f"{FOLDER}_former"  # beside it: a report that holds photographs which the one after it lacks
PAGE, DATA, CONTENT = "index.html", "inspection.js", "report.json"
PHOTOGRAPHS = "photographs"


class ReportedFlight(msgspec.Struct):
    """A flight of a report: its log, and what names it among all flights."""

    log: str
    flight: str


class ReportedPhotograph(msgspec.Struct):
    """A photograph in the folder of a report. flight: its number in the report."""

    flight: int
    id: int
    attempt: int
    file: str


class ReportContent(msgspec.Struct):
    """Of a report, in its `CONTENT`."""

    plan: str
    flights: list[ReportedFlight]
    photographs: list[ReportedPhotograph]


def flights_of(logs: Sequence[Log], names: Sequence[str]) -> list[ReportedFlight]:
    """What names the flights of a report; names: what the report calls the logs."""
    return [ReportedFlight(name, flight_of(log.path) or name) for log, name in zip(logs, names, strict=True)]


def write_content(folder: Path, plan: str, flights: Sequence[ReportedFlight], files: Mapping[ShotKey, str]) -> None:
    """Write what a report holds; files: of its photographs, inside the folder. Raises `OSError`."""
    photographs = [ReportedPhotograph(*key, file) for key, file in files.items()]
    content = msgspec.json.encode(ReportContent(plan, list(flights), photographs))
    (folder / CONTENT).write_bytes(msgspec.json.format(content, indent=1))


def read_content(folder: Path) -> ReportContent | None:
    """What a report holds; None: there is none, or an earlier version wrote it."""
    try:
        return msgspec.json.decode((folder / CONTENT).read_bytes(), type=ReportContent)
    except (OSError, msgspec.MsgspecError):
        return None


def reports_in(out_dir: Path) -> list[Path]:
    """The report of a folder, and those that were kept beside it."""
    kept = sorted(path for path in out_dir.glob(f"{KEPT}*") if path.is_dir())
    return [path for path in (out_dir / FOLDER, *kept) if path.is_dir()]


def photographs_in(reports: Sequence[Path], flights: Sequence[ReportedFlight]) -> dict[ShotKey, Path]:
    """The photographs of flights in reports, by their keys among these flights; the first report counts."""
    numbers = {flight.flight: number for number, flight in enumerate(flights)}
    found: dict[ShotKey, Path] = {}
    for report in reports:
        if (content := read_content(report)) is None:
            continue
        for shown in content.photographs:
            if not 0 <= shown.flight < len(content.flights):
                continue
            number = numbers.get(content.flights[shown.flight].flight)
            path = report / PHOTOGRAPHS / Path(shown.file).name  # nothing but a file of the report
            if number is not None:
                found.setdefault((number, shown.id, shown.attempt), path)
    return found


def check_replaceable(folder: Path, flights: Sequence[ReportedFlight], replace: bool) -> None:
    """Raise `ConfigError` for a folder that is no earlier report, and without `replace` for one of flights that are not given."""
    if not folder.exists():
        return
    if not (folder / DATA).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder}: exists, and is not a report of an inspection: move it away or give --out")
    content = read_content(folder)
    given = {flight.flight for flight in flights}
    others = [] if content is None else [shown.log for shown in content.flights if shown.flight not in given]
    if others and not replace:
        raise ConfigError(
            f"{folder}: is the report of {', '.join(others)}: name all logs, another folder (--out), or replace it (--replace)"
        )


def recover(out_dir: Path) -> str:
    """Put away what a run that was interrupted has left; returns one line for a report that is kept. Raises `OSError`."""
    folder, former = out_dir / FOLDER, out_dir / FORMER
    remove(out_dir / UNFINISHED)
    if os.path.lexists(former) and not os.path.lexists(folder):
        os.rename(former, folder)
    return retire(former, folder)


def retire(former: Path, folder: Path) -> str:
    """Remove a report that another one has replaced, if there is one; returns one line where it is kept beside that.

    It is kept when it holds a photograph that the other one lacks. Raises `OSError`.
    """
    lacking = _lacking(former, folder)
    if not lacking:
        remove(former)
        return ""
    names = (folder.with_name(KEPT + suffix) for suffix in ("", *(f"_{number}" for number in range(2, 10_000))))
    kept = next(name for name in names if not os.path.lexists(name))
    os.rename(former, kept)
    return f"{kept}: the report before, kept because {len(lacking)} of its photographs are not in the new one"


def _lacking(former: Path, folder: Path) -> list[Path]:
    """The photographs of a report that another one does not hold, whatever their names are there."""
    by_size: dict[int, list[Path]] = {}
    for path in _files(folder / PHOTOGRAPHS):
        by_size.setdefault(path.stat().st_size, []).append(path)
    return [
        path
        for path in _files(former / PHOTOGRAPHS)
        if not any(same_bytes(path, other) for other in by_size.get(path.stat().st_size, []))
    ]


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []


def remove(folder: Path) -> None:
    """Remove a folder with all in it, or a link to one. Raises `OSError`."""
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)

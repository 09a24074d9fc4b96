"""Which files hold the same flight: given together, it would count as two independent ones."""

import filecmp
from collections.abc import Iterable
from pathlib import Path

from companion.recording.log import first_metadata, parts


def flight_of(log: Path) -> str:
    """What names a flight among all others: the computer, and when its log began, by both clocks; "" not known.

    It is the same for a log, a copy of it under another name and a copy that is not complete.
    """
    metadata = first_metadata(log)
    began = metadata.get("start_time", "")
    return f"{metadata.get('host', '')} {began} {metadata.get('start_s', '')}" if began else ""


def repetition(files: Iterable[Path]) -> str:
    """One line on the first file whose data another one before it holds, too; "" for files of different data.

    A log also holds what a recorder that was started again has written after it (`parts`). Files need not be logs.
    """
    given = list(files)
    continued = {part.resolve(): file for file in given for part in parts(file)[1:]}
    seen: dict[Path, Path] = {}
    flights: dict[str, Path] = {}
    for file in given:
        place = file.resolve()
        if place in seen:
            return f"{file}: given twice"
        if place in continued:
            return f"{file}: is a part of {continued[place]}, which is given and read with it: leave it out"
        flight = flight_of(file)
        other = flights.get(flight) or next((other for other in seen.values() if _same_bytes(file, other)), None)
        if other is not None:
            return f"{file}: holds the same data as {other}: given twice"
        seen[place] = file
        if flight:
            flights[flight] = file
    return ""


def _same_bytes(a: Path, b: Path) -> bool:
    try:
        return a.stat().st_size == b.stat().st_size > 0 and filecmp.cmp(a, b, shallow=False)
    except OSError:  # a file that cannot be read is refused where it is read
        return False

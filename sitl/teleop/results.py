"""Files of a training flight: its path, and one row per flight in a table of results."""

import contextlib
import csv
import fcntl
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from companion.core.errors import OutputError

Cell = float | str | int


def write_rows(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Write a CSV file; raises `OutputError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(rows)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None


def check_results(path: Path, columns: Sequence[str]) -> None:
    """Raise `OutputError` when an existing table has other columns, so that a row is never put under a wrong head."""
    try:
        if not path.exists() or not path.stat().st_size:
            return
        with path.open(newline="", encoding="utf-8-sig") as file:
            head = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        raise OutputError(f"{path}: cannot be read as a table of results") from None
    if tuple(head) != tuple(columns):
        raise OutputError(f"{path}: has other columns than a table of results; name another file")


def append_row(path: Path, columns: Sequence[str], row: Sequence[Cell]) -> None:
    """Append one row, with the head when the file is new; under a lock, so that one of two flights writes the head."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
            check_results(path, columns)
            size = os.fstat(file.fileno()).st_size
            lines = [row] if size else [columns, row]
            text = "".join(",".join(_quoted(cell) for cell in line) + "\n" for line in lines)
            file.write((text if _ends_a_line(path, size) else "\n" + text).encode())
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None


def _ends_a_line(path: Path, size: int) -> bool:
    """Whether the next row may begin: an editor may have left out the newline at the end of the file."""
    if not size:
        return True
    with path.open("rb") as file:
        file.seek(size - 1)
        return file.read(1) == b"\n"


def _quoted(cell: Cell) -> str:
    text = f"{cell:.6g}" if isinstance(cell, float) else str(cell)
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\n\r') else text

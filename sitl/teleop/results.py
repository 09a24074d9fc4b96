"""Files of a training flight: its path, and one row per flight in a table of results."""

import csv
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
        with path.open(newline="", encoding="utf-8") as file:
            head = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        raise OutputError(f"{path}: cannot be read as a table of results") from None
    if tuple(head) != tuple(columns):
        raise OutputError(f"{path}: has other columns than a table of results; name another file")


def append_row(path: Path, columns: Sequence[str], row: Sequence[Cell]) -> None:
    """Append one row, with the head when the file is new; one write, so that two flights at a time do not mix."""
    check_results(path, columns)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists() or not path.stat().st_size
        lines = [columns, row] if new else [row]
        text = "".join(",".join(_quoted(cell) for cell in line) + "\n" for line in lines)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(handle, text.encode())
        finally:
            os.close(handle)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None


def _quoted(cell: Cell) -> str:
    text = f"{cell:.6g}" if isinstance(cell, float) else str(cell)
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\n\r') else text

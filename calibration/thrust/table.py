"""A thrust stand's table from a file: separators, decimal commas, encodings, header variants, units.

It reads the raw data of this stack (docs/thrust_bench.md), RCbenchmark and Tyto exports, and any table with a header
that names command, thrust and voltage. An ambiguous table is refused in one line.
"""

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibration.results import DataError
from calibration.thrust.columns import (
    AMPERES,
    COMMAND_UNITS,
    NAMES,
    NEWTONS,
    REQUIRED,
    SECONDS,
    VOLTS,
    Column,
    find_columns,
    split_title,
)
from companion.core.arrays import Array

PWM_ZERO_US, PWM_SPAN_US = 1000.0, 1000.0  # of command 0, and the range; the response of the ESC is fitted
DSHOT_LOW, DSHOT_HIGH = 48, 2047  # throttle commands; smaller ones are for the speed controller, 0 stops the motor
DSHOT_STEPS = 2000  # where the throttle is counted from 0
MIN_ROWS = 6
VOLTAGE_MIN_V, VOLTAGE_MAX_V = 2.0, 120.0  # of a battery; a reading below is that of a sensor that was off
SIZE_MAX_BYTES = 50_000_000  # hours of a recording with all columns of a stand
ROWS_MAX = 500_000
RUNS_MAX = 100  # in one file
HEADER_LINES = 60  # a preamble is shorter
_SEPARATORS = (",", ";", "\t", "|")
_NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*[a-zA-Z\u00b5\u03bc%]{0,4}")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d*)?")
_GERMAN_THOUSANDS = re.compile(r"[-+]?\d{1,3}(\.\d{3})+(,\d*)?")
_CLOCK = re.compile(r"(?:.*[ T])?(\d{1,2}):(\d\d):(\d\d(?:[.,]\d*)?)")  # of a time, with or without a date


class Notation(StrEnum):
    """How a file writes its numbers."""

    POINT = "point"  # 1,234.5
    COMMA = "comma"  # 1.234,5
    UNKNOWN = "unknown"  # neither is clear: a lone comma or point is that of a decimal


@dataclass(frozen=True)
class StandRun:
    """Readings on one battery with one zero of the scale, in the order of the file; sign and zero are not known yet."""

    name: str  # file, and the battery if the file has several
    command: Array  # (n,) 0..1 for 1000..2000 µs, or the throttle
    thrust_n: Array  # (n,) [N]
    voltage_v: Array  # (n,) [V]
    current_a: Array  # (n,) [A], NaN if unknown
    time_s: Array  # (n,) [s], NaN if unknown
    line: NDArray[np.int64]  # (n,) line of the file, from 1
    is_pwm: bool  # the command was a pulse width
    notes: tuple[str, ...] = ()  # sentences for the user: rows left out, units assumed


def read_thrust_csv(
    path: str | Path, thrust_unit: str | None = None, voltage_v: float | None = None, command_unit: str | None = None
) -> list[StandRun]:
    """The runs of a file; raises `DataError` with one line if it is not a thrust stand's table.

    thrust_unit: gf, kgf, N, … where the header does not say; another one than the header's is refused. voltage_v: for a
    table without voltage [V], refused with one. command_unit: a unit of `COMMAND_UNITS` that replaces that of the header.
    """
    path = Path(path)
    text = _decode(path)
    lines = text.splitlines()
    separator, header, columns = _header(lines, path)
    if not text.endswith(("\n", "\r")) and len(_cells(lines[-1], separator)) < len(_cells(lines[header], separator)):
        lines.pop()  # an incomplete last line
    for kind in REQUIRED:
        if kind not in columns:
            raise DataError(f"{path}: no column for {NAMES[kind]} among {_list(lines[header], separator)}")
    if "voltage" not in columns and voltage_v is None:
        found = _list(lines[header], separator)
        raise DataError(f"{path}: no column for {NAMES['voltage']} among {found}; give a constant one with --voltage")
    if "voltage" in columns and voltage_v is not None:
        raise DataError(
            f"{path}: --voltage {voltage_v:g}: the table has voltages of its own, '{columns['voltage'].title}': leave the"
            " option out"
        )
    if command_unit is not None:
        command = columns["command"]
        columns = columns | {"command": Column(command.index, command.title, command_unit)}
    return _runs(path, lines, separator, header, columns, thrust_unit, voltage_v)


def _decode(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(SIZE_MAX_BYTES + 1)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    if len(raw) > SIZE_MAX_BYTES:
        raise DataError(
            f"{path}: larger than {SIZE_MAX_BYTES / 1e6:g} MB: cut it into parts, or leave out columns and readings"
        )
    zeros = [raw[start:4096:2].count(0) / max(len(raw[:4096]) / 2, 1) for start in (0, 1)]
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        encodings = ["utf-16"]
    elif max(zeros) > 0.8 and min(zeros) < 0.1:  # UTF-16 without its mark
        encodings = ["utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"]
    else:
        encodings = ["utf-8-sig", "cp1252", "latin-1"]
    for encoding in encodings:
        try:
            text = raw.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return text
    raise DataError(f"{path}: not a text file")


def _cells(line: str, separator: str) -> list[str]:
    if separator == " ":
        return line.split()
    return next(csv.reader(io.StringIO(line), delimiter=separator, skipinitialspace=True), [])


def _list(line: str, separator: str) -> str:
    return ", ".join(f"'{cell.strip()}'" for cell in _cells(line, separator) if cell.strip())[:200]


def _header(lines: list[str], path: Path) -> tuple[str, int, dict[str, Column]]:
    """Separator, index of the header line, and its columns: the line that names most of the needed columns."""
    best: tuple[tuple[int, int, int], str, int, dict[str, Column]] | None = None
    for index, line in enumerate(lines[:HEADER_LINES]):
        for separator in (*_SEPARATORS, " "):
            cells = _cells(line.lstrip("# "), separator)
            if len(cells) < 2 or sum(_number(cell, Notation.UNKNOWN) is not None for cell in cells) > len(cells) / 2:
                continue
            columns = find_columns(cells)
            score = (sum(kind in columns for kind in (*REQUIRED, "voltage")), separator != " ", -index)
            if score[0] and (best is None or score > best[0]):
                best = score, separator, index, columns
    if best is None:
        raise DataError(f"{path}: no header that names {NAMES['command']} and {NAMES['thrust']}")
    return best[1], best[2], best[3]


def _number(cell: str, notation: Notation) -> float | None:
    """The number of a cell, or None."""
    text = cell.strip().strip("\"'").replace("\u00a0", "").replace("\u202f", "").replace("\u2212", "-")
    if notation is Notation.COMMA and _GERMAN_THOUSANDS.fullmatch(text):
        text = text.replace(".", "").replace(",", ".")
    elif "," in text:
        if notation is Notation.POINT or "." in text[: text.rfind(",")] or text.count(",") > 1:
            if _THOUSANDS.fullmatch(text):
                text = text.replace(",", "")
            else:  # 1.234,5
                text = text.replace(".", "").replace(",", ".")
        else:
            text = text.replace(",", ".")
    found = _NUMBER.fullmatch(text)
    value = float(found[1]) if found else None
    return value if value is not None and np.isfinite(value) else None


def _notation(cells: Iterable[str]) -> Notation:
    """The notation that the cells with a mark other than that of thousands agree on."""
    found = {Notation.POINT: 0, Notation.COMMA: 0}
    points = False
    for cell in cells:
        text = cell.strip()
        points = points or "." in text
        if "," in text and not _THOUSANDS.fullmatch(text) and text.rfind(",") > text.rfind("."):
            found[Notation.COMMA] += 1
        elif "." in text and not _GERMAN_THOUSANDS.fullmatch(text) and text.rfind(".") > text.rfind(","):
            found[Notation.POINT] += 1
    if found[Notation.POINT] == found[Notation.COMMA] == 0:
        return Notation.POINT if points else Notation.UNKNOWN
    return max(found, key=lambda notation: found[notation])


def _seconds(cell: str, notation: Notation) -> float | None:
    """A time: a number, or hours, minutes and seconds with or without a date."""
    if found := _CLOCK.fullmatch(cell.strip().strip("\"'")):
        return int(found[1]) * 3600 + int(found[2]) * 60 + float(found[3].replace(",", "."))
    return _number(cell, notation)


def _runs(
    path: Path,
    lines: list[str],
    separator: str,
    header: int,
    columns: dict[str, Column],
    thrust_unit: str | None,
    voltage_v: float | None,
) -> list[StandRun]:
    width = len(_cells(lines[header], separator))
    body = [(number, line) for number, line in enumerate(lines[header + 1 :], header + 2) if line.strip(" \t,;|")]
    body = [(number, line) for number, line in body if not line.lstrip().startswith("#")]
    if body and (units := _units_row(body[0][1], separator, columns)) is not None:
        columns, body = units, body[1:]
    if len(body) > ROWS_MAX:
        raise DataError(f"{path}: {len(body)} lines, more than {ROWS_MAX}: cut it into parts, or leave out readings")
    rows = [(number, _cells(line, separator)) for number, line in body]
    kinds = [kind for kind in ("command", "thrust", "voltage", "current", "time") if kind in columns]
    values_of = {"time": _seconds}
    measured = [columns[kind] for kind in kinds if kind != "time"]
    notation = _notation(cells[column.index] for _, cells in rows for column in measured if _has(cells, column))
    values, names, left_out = [], [], []
    for number, cells in rows:
        if separator == "," and notation is not Notation.POINT and len(cells) > width and any(cells[width:]):
            raise DataError(
                f"{path}: line {number}: {len(cells)} cells, the header has {width}: "
                "decimal commas need another separator (semicolon, tab)"
            )
        read = {
            kind: values_of.get(kind, _number)(cells[columns[kind].index], notation)
            if _has(cells, columns[kind])
            else None
            for kind in kinds
        }
        bad = next((kind for kind in kinds if kind not in ("current", "time") and read[kind] is None), None)
        if bad is not None:
            left_out.append((number, bad, cells[columns[bad].index].strip() if _has(cells, columns[bad]) else ""))
            continue
        values.append([read.get(kind) for kind in ("command", "thrust", "voltage", "current", "time")] + [number])
        names.append(cells[columns["run"].index].strip() if "run" in columns and _has(cells, columns["run"]) else "")
    if left_out and len(left_out) > len(values):
        number, kind, text = left_out[0]
        raise DataError(f"{path}: line {number}: {kind} is '{text}', not a number ({len(left_out)} such lines)")
    if len(values) < MIN_ROWS:
        raise DataError(f"{path}: {len(values)} readings; a thrust curve needs at least {MIN_ROWS}")
    table = np.array(values, dtype=float)
    notes = []
    if left_out:
        notes.append(f"{path}: {len(left_out)} lines without a number left out, the first is line {left_out[0][0]}")
    if len(set(names)) > RUNS_MAX:
        raise DataError(f"{path}: '{columns['run'].title}' has {len(set(names))} values: not the number of a run")
    command, is_pwm, note = _command(path, table[:, 0], columns["command"])
    notes += [note] if note else []
    thrust_n, note = _thrust(path, table[:, 1], columns["thrust"], thrust_unit)
    notes += [note] if note else []
    volts = _voltage(path, table[:, 2], columns["voltage"]) if "voltage" in columns else np.full(len(table), voltage_v)
    amperes = table[:, 3] * AMPERES[columns["current"].unit] if "current" in columns else np.full(len(table), np.nan)
    time_s = table[:, 4] * SECONDS[columns["time"].unit] if "time" in columns else np.full(len(table), np.nan)
    powered = volts >= VOLTAGE_MIN_V
    if not powered.all():
        first = int(table[~powered, 5][0])
        notes.append(
            f"{path}: {(~powered).sum()} readings below {VOLTAGE_MIN_V:g} V left out, the first is line {first}"
        )
    if powered.sum() < MIN_ROWS:
        raise DataError(
            f"{path}: {powered.sum()} readings above {VOLTAGE_MIN_V:g} V; a thrust curve needs at least {MIN_ROWS}"
        )
    runs = []
    for name in dict.fromkeys(name for name, is_powered in zip(names, powered, strict=True) if is_powered):
        mine = np.array([other == name for other in names]) & powered
        title = path.name if len(set(names)) == 1 else f"{path.name}, {columns['run'].title} {name}"
        line = table[mine, 5].astype(np.int64)
        series = command[mine], thrust_n[mine], volts[mine], amperes[mine], time_s[mine]
        runs.append(StandRun(title, *series, line, is_pwm, tuple(notes)))
        notes = []
    return runs


def _has(cells: list[str], column: Column) -> bool:
    return column.index < len(cells) and bool(cells[column.index].strip())


def _units_row(line: str, separator: str, columns: dict[str, Column]) -> dict[str, Column] | None:
    """The columns with the units of a second header line (``us;gf;V``), or None if it is not one."""
    cells = _cells(line, separator)
    known = NEWTONS.keys() | VOLTS.keys() | COMMAND_UNITS.keys() | AMPERES.keys()
    units = {}
    for kind, column in columns.items():
        if kind in ("run", "time"):
            continue
        text = split_title(f"x ({cells[column.index].strip(' ()[]')})")[1] if _has(cells, column) else ""
        if text not in known:
            return None
        units[kind] = Column(column.index, column.title, text or column.unit)
    return columns | units if any(unit.unit for unit in units.values()) else None


def _command(path: Path, raw: Array, column: Column) -> tuple[Array, bool, str]:
    """Commands as 0..1, whether they were pulse widths, and a sentence on what was assumed or ""."""
    unit, low, high = COMMAND_UNITS[column.unit], raw.min(), raw.max()
    if unit in ("dshot", "2000") or (unit == "" and "dshot" in column.title.lower()):
        return _dshot(path, raw, column, unit)
    if unit == "ms" or (unit == "" and low >= 0.5 and 1.2 < high <= 2.6):
        raw, low, high, unit = raw * 1e3, low * 1e3, high * 1e3, "us"
    if unit == "":
        unit = "us" if high > 500 else "%" if high > 1.5 else "1"
    if unit == "%" and high <= 1.0:
        unit = "1"
    if unit == "us":
        moving = raw[raw > 0]  # 0: no pulses, motor off
        if len(moving) == 0 or moving.min() < 700 or high > 2500:
            dshot = low >= 0 and high <= DSHOT_HIGH and len(moving)
            hint = "; DShot commands? --command-unit dshot or 0..2000" if dshot else ""
            raise DataError(
                f"{path}: '{column.title}' runs from {low:g} to {high:g}: not pulse widths (700 to 2500 µs){hint}"
            )
        return (np.maximum(raw, min(moving.min(), PWM_ZERO_US)) - PWM_ZERO_US) / PWM_SPAN_US, True, ""
    scaled = raw / 100 if unit == "%" else raw
    if scaled.min() < -0.01 or scaled.max() > 1.05:
        expected = "0 to 100 %" if unit == "%" else "0 to 1"
        raise DataError(f"{path}: '{column.title}' runs from {low:g} to {high:g}: not a throttle of {expected}")
    return scaled, False, ""


def _dshot(path: Path, raw: Array, column: Column, unit: str) -> tuple[Array, bool, str]:
    """DShot throttle as 0..1: 48 to 2047 as on the wire, or steps from 0 to 2000 where smaller values occur."""
    low, high = raw.min(), raw.max()
    if low < 0 or high > DSHOT_HIGH:
        raise DataError(f"{path}: '{column.title}' runs from {low:g} to {high:g}: not DShot commands (0, 48 to 2047)")
    moving = raw[raw > 0]
    below = len(moving) > 0 and moving.min() < DSHOT_LOW
    if unit == "2000" or (unit == "" and below):
        if high > DSHOT_STEPS:
            raise DataError(f"{path}: '{column.title}' runs from {low:g} to {high:g}: neither 0 to 2000 nor 48 to 2047")
        note = "" if unit else f"{path}: '{column.title}' has values below {DSHOT_LOW}; read as steps from 0 to 2000"
        return raw / DSHOT_STEPS, False, note
    if below:
        raise DataError(
            f"{path}: '{column.title}' has {moving.min():g}: no throttle of 48 to 2047; --command-unit 0..2000?"
        )
    note = (
        "" if unit else f"{path}: '{column.title}' read as DShot commands 48 to 2047 (otherwise --command-unit 0..2000)"
    )
    return np.maximum(raw - DSHOT_LOW, 0) / (DSHOT_HIGH - DSHOT_LOW), False, note


def _thrust(path: Path, raw: Array, column: Column, given: str | None) -> tuple[Array, str]:
    """Thrust [N], and a sentence on an assumed unit or ""; given: the unit of --thrust-unit."""
    if given and column.unit and NEWTONS.get(column.unit) != NEWTONS.get(given.lower()):
        raise DataError(
            f"{path}: --thrust-unit {given}: the table says that '{column.title}' is in {column.unit}: leave the option out,"
            " or correct the table"
        )
    unit = (column.unit or given or "").lower()
    if unit in NEWTONS:
        return raw * NEWTONS[unit], ""
    if unit:
        raise DataError(f"{path}: thrust unit '{unit}' is unknown; known: gf, kgf, N, lbf, ozf")
    span = np.ptp(raw)
    if span > 300:  # too large for a motor of a multirotor in N or kgf
        return raw * NEWTONS["gf"], f"{path}: '{column.title}' has no unit; gf assumed from its size"
    raise DataError(f"{path}: '{column.title}' has no unit and spans {span:.3g}: give it with --thrust-unit gf|kgf|N")


def _voltage(path: Path, raw: Array, column: Column) -> Array:
    volts = raw * VOLTS[column.unit]
    if volts.max() > 1000 and not column.unit:
        volts = volts / 1000  # millivolts
    if np.median(volts) < VOLTAGE_MIN_V or volts.max() > VOLTAGE_MAX_V:
        low, high = raw.min(), raw.max()
        allowed = f"{VOLTAGE_MIN_V:g} to {VOLTAGE_MAX_V:g} V"
        raise DataError(f"{path}: '{column.title}' runs from {low:g} to {high:g}: not a battery voltage ({allowed})")
    return volts

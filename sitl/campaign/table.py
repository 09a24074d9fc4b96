"""``results.parquet``: one row for each flight, plain columns."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from sitl.campaign.fly import Row
from sitl.campaign.store import write_at_once

if TYPE_CHECKING:
    import pyarrow

FIRST = ("flight", "scenario", "sensors", "stack", "seed", "outcome", "cause")
LAST = ("wall_s", "cpu_s", "memory_mb", "finished", "host", "processor", "commit", "modified", "source_hash")
TEXTS = ("events", "phases", "processes", "gnss_jumps", "fingerprints", "trace")  # as JSON
REPEATED = ("scenario", "sensors", "stack", "seed")  # of the result, which are columns already
WHOLE = ("flight", "seed")  # columns of whole numbers
MISSION_CAUSE = "mission_cause"  # of the result's "cause"; the column "cause" has that of the outcome


def flat(row: Row) -> dict[str, Any]:
    """The columns of a flight: what was drawn by field, "drawn.…" of unkind sensors, the figures of ``companion sim --json``."""
    found: dict[str, Any] = {name: row.get(name) for name in FIRST}
    found |= row.get("fields", {})
    for name, value in row.get("result", {}).items():
        if name not in REPEATED:
            _add(found, MISSION_CAUSE if name == "cause" else name, value)
    found |= {name: row.get(name) for name in LAST}
    for name in ("fingerprints", "log", "trace"):
        if row.get(name):
            _add(found, name, row[name])
    return found


def _add(found: dict[str, Any], name: str, value: Any) -> None:
    if isinstance(value, dict) and name.rpartition(".")[2] not in TEXTS:
        for key, inner in value.items():
            _add(found, f"{name}.{key}", inner)
    else:
        found[name] = value


def arrow_table(rows: list[Row]) -> "pyarrow.Table":
    """All flights as a table; a column that a flight does not have is null there."""
    import pyarrow as pa

    flats = [flat(row) for row in rows]
    names = list(dict.fromkeys(name for columns in flats for name in columns if name not in LAST))
    names += [name for name in LAST if any(name in columns for columns in flats)]
    arrays = {}
    for name in names:
        values = [columns.get(name) for columns in flats]
        arrays[name] = _column(name, values, pa)
    return pa.table(arrays)


def _column(name: str, values: list[Any], pa: Any) -> Any:
    given = [value for value in values if value is not None]
    if given and all(isinstance(value, bool) for value in given):
        return pa.array(values, pa.bool_())
    if given and all(_is_number(value) for value in given):
        return pa.array(values, pa.int64() if name in WHOLE else pa.float64())
    if given and all(isinstance(value, list) and all(_is_number(v) or v is None for v in value) for value in given):
        return pa.array(values, pa.list_(pa.float64()))
    texts = [
        value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode() for value in values
    ]
    return pa.array(texts, pa.string())


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def write_parquet(rows: list[Row], path: Path) -> None:
    """Write the table; raises `OutputError`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(arrow_table(rows), sink)
    write_at_once(path, sink.getvalue().to_pybytes())

"""Dotted paths into the files of a flight: ``vehicle.mass_kg``, ``mission.standoff.offset_M[2]``, ``fault[*].at_s``."""

import re
from collections.abc import Iterator
from typing import Any

from companion.core.config import ConfigError
from companion.core.suggestions import did_you_mean, listed

EVERY = "*"  # in the place of an index
Step = str | int
Path = tuple[Step, ...]

SCENARIO, VEHICLE, MISSION, MARKERS = "scenario", "vehicle", "mission", "markers"
AIRFRAME, UNKIND, FAULT, WORLD = "airframe", "unkind", "fault", "world"
# The first part of a path. "fault" is the list of faults of the scenario, "unkind" the ranges of config/sensors/unkind.toml:
# a number there is a range without width.
ROOTS = (SCENARIO, VEHICLE, MISSION, MARKERS, AIRFRAME, UNKIND, FAULT, WORLD)

_PART = re.compile(r"([^.\[\]]+)((?:\[(?:\d{1,4}|\*)\])*)")


def parse_path(text: str) -> Path:
    """The steps of a dotted path, the first one a root; raises `ConfigError`."""
    steps: list[Step] = []
    for part in text.split("."):
        match = _PART.fullmatch(part)
        if match is None:
            raise ConfigError(f"{text!r}: not a dotted path of keys, such as vehicle.mass_kg or fault[0].at_s")
        steps.append(match[1])
        steps += [EVERY if index == EVERY else int(index) for index in re.findall(r"\[(\d+|\*)\]", match[2])]
    if steps[0] not in ROOTS:
        raise ConfigError(f"{text}: no such file{did_you_mean(str(steps[0]), ROOTS) or listed(ROOTS)}")
    if steps[0] == FAULT:
        return (SCENARIO, *steps)
    if len(steps) < 2:
        raise ConfigError(f"{text}: names a whole file; name a field of it")
    return tuple(steps)


def places(tables: Any, path: Path) -> Iterator[Path]:
    """The path, or one path for every element of the list where it has `EVERY`."""
    if EVERY not in path:
        yield path
        return
    at = path.index(EVERY)
    found = lookup(tables, path[:at])
    for index in range(len(found) if isinstance(found, list) else 0):
        yield from places(tables, (*path[:at], index, *path[at + 1 :]))


def replaces(path: Path, other: Path) -> bool:
    """Whether what is assigned at a path replaces what was assigned at another one, in every place of that."""
    return len(path) <= len(other) and all(
        step == below or (step == EVERY and isinstance(below, int)) for step, below in zip(path, other, strict=False)
    )


def lookup(tables: Any, path: Path) -> Any:
    """The value at a path, None where there is none."""
    for step in path:
        if isinstance(step, int):
            tables = tables[step] if isinstance(tables, (list, tuple)) and step < len(tables) else None
        else:
            tables = tables.get(step) if isinstance(tables, dict) else None
    return tables


def assign(tables: Any, path: Path, value: Any) -> None:
    """Set the value at a path. Tables that are not there are made; a list grows by one element at most.

    Raises `ConfigError` where the path leads through something that is no table or list.
    """
    for at, step in enumerate(path):
        here = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in path[:at]).lstrip(".")
        last = at == len(path) - 1
        content: Any = value if last else [] if isinstance(path[at + 1], int) else {}
        if isinstance(step, int):
            if not isinstance(tables, list):
                raise ConfigError(f"{here}: is not a list")
            if step > len(tables):
                raise ConfigError(f"{here}[{step}]: the list has {len(tables)} elements")
            if step == len(tables):
                tables.append(content)
            elif last:
                tables[step] = value
        else:
            if not isinstance(tables, dict):
                raise ConfigError(f"{here}: is not a table")
            if last:
                tables[step] = value
            else:
                tables.setdefault(step, content)
        tables = tables[step]

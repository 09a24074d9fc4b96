"""The vehicle with which a log was flown, and how the vehicle file of today differs from it.

A log is made with the numbers that flew: its image stamps contain the flown latency.camera_s, its marker poses the
flown lens. A fit must use the same numbers. If it used a file that was corrected since, the correction would be made
twice.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from companion.core import aliases
from companion.core.config import ConfigError, parse, read_layered, read_toml
from companion.core.vehicle import Vehicle
from companion.recording.log import Log

FITTED = ("mass_kg", "thrust", "attitude", "drag", "latency", "camera")  # parts of a vehicle file that fits depend on
IDENTITY = ("fcu.hardware_id", "name")  # of one aircraft in its vehicle file, the surer one first
SHOWN = 8  # differences that are listed; the rest is counted


class VehicleSource(StrEnum):
    """Where the numbers of a flight come from."""

    LOG = "the log"
    GIVEN_FILE = "the file of --vehicle"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class FlownVehicle:
    """Effective tables of the vehicle file of a flight; notes: sentences for the user, one for each thing to know.

    vehicle: the same as a `Vehicle`; None if the tables do not fit today's schema or are unknown; problem: why they do not fit,
    in one line that names the log. doubts: reasons to think that another aircraft flew than that of the file given.
    """

    source: VehicleSource
    tables: dict[str, Any]
    vehicle: Vehicle | None
    notes: tuple[str, ...] = ()
    problem: str = ""
    doubts: tuple[str, ...] = ()

    def value(self, key: str) -> Any:
        """The value of a dotted key, e.g. "latency.camera_s"; None if the tables do not have it."""
        return _value(self.tables, key)


UNKNOWN = FlownVehicle(VehicleSource.UNKNOWN, {}, None)


def flown_vehicle(log: Log, given: Path | None) -> FlownVehicle:
    """The vehicle that flew: from the log, else the file given; raises `ConfigError` if that file cannot be read.

    given: the vehicle file of the command line; where it differs from what flew, a note says in which numbers.
    """
    tables = _logged_tables(log)
    if tables is not None:
        difference = differences(tables, given) if given else ""
        notes = (f"{difference}; the fit uses the flown numbers",) if difference else ()
        vehicle, problem = _parsed(tables, log.path)
        doubts = _other_aircraft(tables, given) if given else ()
        return FlownVehicle(VehicleSource.LOG, tables, vehicle, notes, problem, doubts)
    if given is None:
        return UNKNOWN
    note = f"the log does not hold its vehicle file; the fit takes {given} for the one that flew"
    tables = read_layered(given)
    return FlownVehicle(VehicleSource.GIVEN_FILE, tables, parse(tables, Vehicle, str(given)), (note,))


def refuse_other_aircraft(vehicle: Path, doubts: Sequence[str], yes: bool, this_aircraft: bool) -> None:
    """Raises `ConfigError` with the doubts when a file would be written without a question (--yes) and --this-aircraft."""
    if yes and not this_aircraft and doubts:
        raise ConfigError(f"{vehicle}: nothing written: {'; '.join(doubts)} (--this-aircraft writes nevertheless)")


def _logged_tables(log: Log) -> dict[str, Any] | None:
    """The effective tables at the time of the flight; None if the log does not determine them.

    A log of before 2026-11-22 holds the text of the vehicle file without that of its base: a file with a base counts
    only if it still is what it was in the flight.
    """
    if (effective := log.tables("vehicle")) is not None:
        return effective
    try:
        tables = tomllib.loads(log.metadata.get("vehicle", ""))
        if "base" in tables:
            file = Path(log.metadata.get("vehicle_file", ""))
            return read_layered(file) if read_toml(file) == tables else None
    except (tomllib.TOMLDecodeError, ConfigError):
        return None
    return tables or None


def _parsed(tables: dict[str, Any], path: Path) -> tuple[Vehicle | None, str]:
    """The vehicle, or why the tables do not make one: keys of another version; single values can still be read."""
    try:
        return parse(aliases.completed("Vehicle", tables), Vehicle, f"{path}: vehicle in the log"), ""
    except ConfigError as error:
        return None, str(error)


def _value(tables: dict[str, Any], key: str) -> Any:
    found: Any = tables
    for name in key.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _other_aircraft(flown: dict[str, Any], given: Path) -> tuple[str, ...]:
    """A sentence on the first key of `IDENTITY` that both have, if it differs."""
    tables = read_layered(given)
    for key in IDENTITY:
        then, now = _value(flown, key), _value(tables, key)
        if then and now:
            return (
                ()
                if then == now
                else (f'flown with {key} = "{then}", {given} has "{now}": is it this aircraft\'s log?',)
            )
    return ()


def differences(flown: dict[str, Any], given: Path) -> str:
    """A sentence on the numbers in which a vehicle file differs from what flew; "" if in none."""
    then, now = _flat(flown), _flat(read_layered(given))
    changed = [key for key in now if key in then and now[key] != then[key] and key.split(".")[0] in FITTED]
    if not changed:
        return ""
    listed = ", ".join(f"{key} = {_text(now[key])} (flown: {_text(then[key])})" for key in changed[:SHOWN])
    more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
    return f"{given} differs from the vehicle that flew: {listed}{more}"


def _flat(tables: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Values by dotted key."""
    found: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{above}{key}.")
        else:
            found[above + key] = value
    return found


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)

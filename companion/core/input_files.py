"""Which files a flight is made from.

One list for the log that keeps them (`flight_record`), for the start that compares them (`fingerprint`), for a flight that goes on after
another (`runtime.resume`) and for the live view.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from companion.core.config import ConfigError, Tables, read_layered
from companion.core.site import CUSTOM_PREFIX

INSPECTION_KEYS = {"payload_camera": "camera", "payload_battery": "battery"}  # name of the file: key of [inspection]


@dataclass(frozen=True)
class InputFiles:
    """Where the files of a flight are.

    tables: TOML files, by "vehicle", "mission", "site", "payload_camera", "payload_battery"; in a simulation also
    "scenario" and "world". The others are by the name that the naming file uses: dictionaries: of markers, named by the
    site. plans: of QGroundControl, named by the items of an inspection. world_files: meshes and images, named by the
    world; only those that exist.
    """

    tables: Mapping[str, Path]
    dictionaries: Mapping[str, Path] = field(default_factory=dict)
    plans: Mapping[str, Path] = field(default_factory=dict)
    world_files: Mapping[str, Path] = field(default_factory=dict)


def input_files(vehicle: Path | None = None, mission: Path | None = None, scenario: Path | None = None) -> InputFiles:
    """The files that a vehicle, a mission and a scenario name, with themselves.

    Raises `ConfigError` if a file that names others cannot be read. Whether what it says makes sense is for those who
    load it: a name that is no text names no file.
    """
    given = {"vehicle": vehicle, "mission": mission, "scenario": scenario}
    tables = {name: path for name, path in given.items() if path is not None}
    dictionaries, plans, world_files = {}, {}, {}
    if mission is not None:
        said = read_layered(mission)
        inspection = _table(said.get("inspection"))
        named = {"site": said.get("marker_file")} | {name: inspection.get(key) for name, key in INSPECTION_KEYS.items()}
        tables |= _beside(mission, named)
        plans = plan_files(inspection, mission)
    if "site" in tables:
        dictionaries = dictionary_files(tables["site"])
    if scenario is not None:
        tables |= _beside(scenario, {"world": read_layered(scenario).get("world")})
    if "world" in tables:
        solids = _list_of_tables(read_layered(tables["world"]).get("solid"))
        found = _beside(tables["world"], _by_itself(solid.get(key) for solid in solids for key in ("file", "texture")))
        world_files = {name: path for name, path in found.items() if path.is_file()}
    return InputFiles(tables, dictionaries, plans, world_files)


def fingerprint(vehicle: Path | None, mission: Path) -> str:
    """Of what the files of a flight on an aircraft say, with their bases; vehicle None: of the mission alone.

    A process keeps what it read at its start. One that was started again, or alone, after an edit flies with other numbers
    than the rest. "unreadable": a file cannot be read, which the processes that need it refuse by its name.
    """
    try:
        files = input_files(vehicle, mission)
        said = [read_layered(files.tables[name]) for name in sorted(files.tables)]
        said += [texts(files.dictionaries), texts(files.plans)]
    except ConfigError:
        return "unreadable"
    return hashlib.sha256(repr(said).encode()).hexdigest()[:12]


def dictionary_files(site: Path) -> dict[str, Path]:
    """The marker dictionaries that a marker file names."""
    bundles = _list_of_tables(read_layered(site).get("bundle"))
    families = (str(m.get("family", "")) for bundle in bundles for m in _list_of_tables(bundle.get("markers")))
    return _beside(site, _by_itself(f.removeprefix(CUSTOM_PREFIX) for f in families if f.startswith(CUSTOM_PREFIX)))


def plan_files(inspection: Tables, mission: Path) -> dict[str, Path]:
    """The plans of QGroundControl that the items of a mission's inspection name."""
    return _beside(mission, _by_itself(item.get("file") for item in _list_of_tables(inspection.get("item"))))


def texts(files: Mapping[str, Path]) -> dict[str, str]:
    """What text files say, by the same names; raises `ConfigError` if one cannot be read."""
    return {name: text_of(path) for name, path in files.items()}


def text_of(path: Path) -> str:
    """What a text file says; raises `ConfigError` if it cannot be read."""
    try:
        return bytes_of(path).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None


def bytes_of(path: Path) -> bytes:
    """What is in a file; raises `ConfigError` if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None


def _beside(file: Path, named: Mapping[str, Any]) -> dict[str, Path]:
    """The paths of names that are relative to the folder of the file that uses them."""
    return {key: file.parent / name for key, name in named.items() if isinstance(name, str)}


def _by_itself(names: Iterable[Any]) -> dict[str, str]:
    return {name: name for name in names if isinstance(name, str)}


def _table(value: Any) -> Tables:
    return value if isinstance(value, dict) else {}


def _list_of_tables(value: Any) -> list[Tables]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []

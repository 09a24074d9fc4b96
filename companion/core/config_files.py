"""Finds configuration files by name, and recognises what kind of file a file is.

A name such as ``bridge_hover`` stands for ``missions/bridge_hover.toml`` (or ``scenarios/``, ``vehicles/``, …) in the
folder of the project's configuration files. That folder is the first of these:

1. $COMPANION_CONFIG_DIR (the installed command sets it to /etc/companion, where the aircraft's own files are);
2. ``config/`` beside the ``companion`` package: a source tree;
3. ``share/companion/config`` of the Python environment: an installed package.

A folder that $COMPANION_CONFIG_DIR does not have is that of 2 or 3: an aircraft has files of its own for what it flies, and
seldom for the simulator.
"""

import os
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from companion.core.config import ConfigError, Tables, read_layered
from companion.core.suggestions import did_you_mean, listed

SOURCE_TREE = Path(__file__).parents[2] / "config"
SUFFIX = ".toml"
NAME_MAX = 200  # characters; file systems allow 255 bytes


class ConfigKind(StrEnum):
    """The kinds of configuration file; a member is the name of the folder that holds them."""

    MISSION = "missions"
    VEHICLE = "vehicles"
    SCENARIO = "scenarios"
    MARKERS = "markers"
    BOARD = "boards"
    BENCH = "benches"
    CAMPAIGN = "campaigns"
    AIRFRAME = "airframes"

    @property
    def singular(self) -> str:
        """The noun for one file of this kind, without article: "marker file"."""
        return NOUNS[self].partition(" ")[2]


NOUNS: dict[ConfigKind, str] = {
    ConfigKind.MISSION: "a mission",
    ConfigKind.VEHICLE: "a vehicle file",
    ConfigKind.SCENARIO: "a scenario",
    ConfigKind.MARKERS: "a marker file",
    ConfigKind.BOARD: "a calibration board",
    ConfigKind.BENCH: "a bench file",
    ConfigKind.CAMPAIGN: "a campaign file",
    ConfigKind.AIRFRAME: "an airframe file",
}

# Keys that files of only one kind have.
KEYS: dict[ConfigKind, frozenset[str]] = {
    ConfigKind.MISSION: frozenset({"takeoff", "search", "standoff", "hold", "return", "retreat", "rc_switch"}),
    ConfigKind.VEHICLE: frozenset({"mass_kg", "thrust", "attitude", "controller", "estimator", "safety", "fcu"}),
    ConfigKind.SCENARIO: frozenset({"mission", "vehicle", "airframe", "fcu_clock", "scene", "wind", "sensors"}),
    ConfigKind.BOARD: frozenset({"board"}),
    ConfigKind.BENCH: frozenset({"scale", "sweep"}),
    ConfigKind.CAMPAIGN: frozenset({"scenarios", "seeds", "draw"}),
    ConfigKind.AIRFRAME: frozenset({"autopilot", "inertia_kg_m2", "rotor", "ground", "battery", "hub"}),
}
MARKER_KEYS = frozenset({"bundle"})  # all that a marker file has: a list of tables


def config_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of the project's configuration files; see the module's docstring."""
    if named := environment.get("COMPANION_CONFIG_DIR"):
        return Path(named)
    return _packaged()


def _packaged() -> Path:
    return SOURCE_TREE if SOURCE_TREE.is_dir() else Path(sys.prefix) / "share/companion/config"


def folder_of(kind: str) -> Path:
    """The folder with the configuration files of a kind; see the module's docstring."""
    own, packaged = config_folder() / kind, _packaged() / kind
    return packaged if not own.is_dir() and packaged.is_dir() else own


def find_config(given: str | Path, kind: ConfigKind) -> Path:
    """The file that a user means: a path that exists, else a name in the folder of its kind.

    Raises `ConfigError` with the nearest name when there is neither.
    """
    path = Path(given)
    if not path.name:
        raise ConfigError(f"'{given}': not the name of {NOUNS[kind]}")
    if len(path.name) > NAME_MAX:
        raise ConfigError(f"{path.name[:20]}…: not the name of a file: longer than {NAME_MAX} characters")
    if _is_file(path):
        return path
    folder = folder_of(kind)
    if not path.is_absolute() and ".." not in path.parts:
        for name in (path, path.with_name(path.name + SUFFIX)):
            if _is_file(folder / name):
                return folder / name
    problem = "is a folder, must be a file" if path.is_dir() else "no such file"
    if len(path.parts) > 1:
        beside = [file.name for file in path.parent.glob(f"*{SUFFIX}")] if path.parent.is_dir() else []
        raise ConfigError(f"{path}: {problem}{did_you_mean(path.name, beside)}")
    for other in NOUNS:
        if path.name.removesuffix(SUFFIX) in names_of(other):
            raise ConfigError(f"{path} is {NOUNS[other]}, and there is no {kind.singular} of this name in {folder}")
    names = names_of(kind)
    near = did_you_mean(path.name.removesuffix(SUFFIX), names)
    raise ConfigError(f"{path}: {problem}, and no name in {folder}{near or listed(names)}")


def _is_file(path: Path) -> bool:
    """A file, or another thing that can be read (a pipe)."""
    try:
        return path.exists() and not path.is_dir()
    except (OSError, ValueError):  # a name too long, or with a NUL byte
        return False


def names_of(kind: ConfigKind) -> list[str]:
    """The names that `find_config` knows."""
    return sorted(path.stem for path in folder_of(kind).glob(f"*{SUFFIX}"))


def kind_of(tables: Tables) -> ConfigKind | None:
    """What kind of file has these keys; None when it is not clear."""
    if isinstance(tables.get("bundle"), list) and tables.keys() <= MARKER_KEYS:
        return ConfigKind.MARKERS
    hits = {kind: len(keys & tables.keys()) for kind, keys in KEYS.items()}
    most = max(hits.values())
    possible = [kind for kind, count in hits.items() if count == most]
    return possible[0] if most and len(possible) == 1 else None


def check_kind(path: Path, kind: ConfigKind, needed_by: str) -> None:
    """Raise `ConfigError` when a file is clearly of another kind, or cannot be read.

    needed_by: the command as the user calls it, for the message.
    """
    found = kind_of(read_layered(path))
    if found is not None and found != kind:
        raise ConfigError(f"{path.name} is {NOUNS[found]}; `{needed_by}` needs {NOUNS[kind]} ({path})")

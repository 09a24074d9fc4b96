"""What a log must hold so that its flight can be explained and flown again.

`flight_metadata` collects the raw files, the effective tables (bases merged), the fingerprints of the compiled
artefacts and the layout of the filter's state. `LogWriter` adds the software, the computer and the message schemas.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from companion.core import control_artifacts, pose_artifact
from companion.core.config import ConfigError, load, read_layered, read_toml
from companion.core.site import CUSTOM_PREFIX
from companion.core.vehicle import Vehicle
from companion.estimation import layout
from companion.recording.recorder import RecorderNode
from companion.recording.writer import LogWriter

INSPECTION_FILES = {
    "payload_camera": "camera",
    "payload_battery": "battery",
}  # name in the metadata: key of [inspection]


def flight_metadata(
    vehicle_file: str | Path,
    mission_file: str | Path,
    scenario_file: str | Path | None = None,
    run: dict[str, Any] | None = None,
    overrides: dict[str, Any] | None = None,
    simulated: Mapping[str, Path] | None = None,
) -> dict[str, str]:
    """The metadata of a log, text by name. Raises `ConfigError` if a file cannot be read.

    scenario_file: of a simulated flight. run: how it was flown, JSON-ready: "kind" ("lockstep", "realtime" or
    "aircraft"), and for a simulated flight "seed" and "stack". overrides: top-level values of the scenario that the
    command line replaced. simulated: further files of a simulated flight, by the name in the metadata.
    """
    mission_file = Path(mission_file)
    files: dict[str, Path] = {"vehicle": Path(vehicle_file), "mission": mission_file}
    marker_file = read_toml(mission_file).get("marker_file")
    if isinstance(marker_file, str):
        files["site"] = mission_file.parent / marker_file
    if scenario_file is not None:
        files["scenario"] = Path(scenario_file)
        world_file = read_layered(scenario_file).get("world")
        if isinstance(world_file, str):
            files["world"] = Path(scenario_file).parent / world_file
    inspection = read_toml(mission_file).get("inspection")
    inspection = inspection if isinstance(inspection, dict) else {}
    for name, key in INSPECTION_FILES.items():
        if isinstance(inspection.get(key), str):
            files[name] = mission_file.parent / inspection[key]
    files |= simulated or {}
    metadata: dict[str, str] = {"run": _json(run or {"kind": "aircraft"})}
    for name, path in files.items():
        metadata |= _file(name, path)
    if scenario_file is not None and overrides:
        metadata["scenario_tables"] = _json(read_layered(scenario_file) | overrides)
    if "site" in files:
        metadata["dictionaries"] = _json(dictionaries(files["site"]))
    if inspection:
        metadata["plans"] = _json(plans(inspection, mission_file.parent))
    if "world" in files:
        metadata["world_files"] = _json(_beside_world(files["world"]))
    metadata["fingerprints"] = _json(fingerprints(load(vehicle_file, Vehicle)))
    metadata["state_layout"] = _json(
        {"version": layout.LAYOUT_VERSION, "state": layout.STATE_LAYOUT, "error": layout.ERROR_LAYOUT}
    )
    return metadata


def fingerprints(vehicle: Vehicle) -> dict[str, str]:
    """Of the compiled artefacts that fly a vehicle file."""
    return {
        "solver": control_artifacts.solver_fingerprint(vehicle),
        "prediction": control_artifacts.prediction_fingerprint(),
        "filter": layout.eskf_fingerprint(),
        "pose": pose_artifact.pose_fingerprint(),
    }


def open_recorder(log_file: str | Path, metadata: dict[str, str]) -> RecorderNode:
    """A recorder that writes ``log_file``; raises `ConfigError` if the log cannot be created."""
    return RecorderNode(LogWriter(log_file, metadata))


def _file(name: str, path: Path) -> dict[str, str]:
    """The text of a file and of its base, and the effective tables."""
    found = {f"{name}_file": str(path), name: _text(path), f"{name}_tables": _json(read_layered(path))}
    base = read_toml(path).get("base")
    if isinstance(base, str):
        found |= {f"{name}_base_file": base, f"{name}_base": _text(path.parent / base)}
    return found


def dictionaries(site_file: Path) -> dict[str, str]:
    """The marker dictionaries that a marker file names, by the name that it uses."""
    found = {}
    for bundle in read_layered(site_file).get("bundle", []):
        for marker in bundle.get("markers", []):
            family = str(marker.get("family", ""))
            if family.startswith(CUSTOM_PREFIX):
                name = family.removeprefix(CUSTOM_PREFIX)
                found[name] = _text(site_file.parent / name)
    return found


def plans(inspection: dict[str, Any], folder: Path) -> dict[str, str]:
    """The `.plan` files of QGroundControl that items name, by the name that they use."""
    named = [item.get("file") for item in inspection.get("item", []) if isinstance(item, dict)]
    return {name: _text(folder / name) for name in named if isinstance(name, str)}


def _beside_world(world_file: Path) -> dict[str, bytes]:
    """The meshes and images that a world file names, by the name that it uses."""
    named = [solid.get(key) for solid in read_layered(world_file).get("solid", []) for key in ("file", "texture")]
    paths = {name: world_file.parent / name for name in named if isinstance(name, str)}
    try:
        return {name: path.read_bytes() for name, path in paths.items() if path.is_file()}
    except OSError as error:
        raise ConfigError(f"{error.filename}: cannot be read: {error.strerror}") from None


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None

"""What a log must hold so that its flight can be explained and flown again.

`flight_metadata` collects the raw files, the effective tables (bases merged), the fingerprints of the compiled
artefacts and the layout of the filter's state. `LogWriter` adds the software, the computer and the message schemas.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from companion.core import control_artifacts, pose_artifact
from companion.core.config import load, read_layered, read_toml
from companion.core.input_files import bytes_of, input_files, text_of, texts
from companion.core.vehicle import Vehicle
from companion.estimation import layout
from companion.planning.stations import HELD_M
from companion.recording.recorder import RecorderNode
from companion.recording.writer import LogWriter


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
    scenario = None if scenario_file is None else Path(scenario_file)
    files = input_files(Path(vehicle_file), Path(mission_file), scenario)
    metadata: dict[str, str] = {"run": _json({"kind": "aircraft"} | (run or {}))}
    for name, path in {**files.tables, **(simulated or {})}.items():
        metadata |= _file(name, path)
    if scenario_file is not None and overrides:
        metadata["scenario_tables"] = _json(read_layered(scenario_file) | overrides)
    metadata["dictionaries"] = _json(texts(files.dictionaries))
    metadata["plans"] = _json(texts(files.plans))
    metadata["planning"] = _json({"held_m": HELD_M, "beyond_sector": 1.0})
    metadata["world_files"] = _json({name: bytes_of(path) for name, path in files.world_files.items()})
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
    found = {f"{name}_file": str(path), name: text_of(path), f"{name}_tables": _json(read_layered(path))}
    base = read_toml(path).get("base")
    if isinstance(base, str):
        found |= {f"{name}_base_file": base, f"{name}_base": text_of(path.parent / base)}
    return found


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()

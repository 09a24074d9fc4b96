"""The effective files of a simulated flight as plain tables: from a log, or changed by a campaign, or sent to another machine."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import tomlkit

from companion.core.config import Tables
from companion.core.site import CUSTOM_PREFIX
from companion.runtime.flight_record import flight_metadata
from sitl.scenario import LoadedScenario

SCENARIO_FILE = "scenario.toml"


class FlightFiles(msgspec.Struct):
    """Tables without bases; they name each other by their names in the folder that `write` makes.

    dictionaries: texts of the marker dictionaries, by the name that the marker file uses. world_files: meshes and images, by
    the name that the world file uses. plans: texts of QGroundControl's, by the name that the mission's inspection uses.
    """

    scenario: Tables
    vehicle: Tables
    mission: Tables
    site: Tables | None = None
    dictionaries: dict[str, str] = {}
    world: Tables | None = None
    world_files: dict[str, bytes] = {}
    payload_camera: Tables | None = None
    payload_battery: Tables | None = None
    plans: dict[str, str] = {}

    def write(self, folder: Path) -> Path:
        """Write the files into a folder; returns the scenario's path."""
        places = {name: f"dictionary_{number}.yml" for number, name in enumerate(sorted(self.dictionaries))}
        for name, place in places.items():
            (folder / place).write_text(self.dictionaries[name], encoding="utf-8")
        mission = dict(self.mission)
        if "marker_file" in mission:
            mission["marker_file"] = "site.toml"
        if "inspection" in mission:
            mission["inspection"] = self._inspection(mission["inspection"], folder)
        tables = {
            SCENARIO_FILE: self.scenario | {"mission": "mission.toml", "vehicle": "vehicle.toml"},
            "vehicle.toml": self.vehicle,
            "mission.toml": mission,
        }
        if self.site is not None:
            tables["site.toml"] = _with_dictionaries(self.site, places)
        if self.world is not None:
            beside = {
                name: f"world_{number}{Path(name).suffix}" for number, name in enumerate(sorted(self.world_files))
            }
            for name, place in beside.items():
                (folder / place).write_bytes(self.world_files[name])
            tables["world.toml"] = _with_world_files(self.world, beside)
            tables[SCENARIO_FILE]["world"] = "world.toml"
        for name, content in tables.items():
            (folder / name).write_text(_toml(msgspec.json.encode(content)), encoding="utf-8")
        return folder / SCENARIO_FILE

    def _inspection(self, inspection: Tables, folder: Path) -> Tables:
        """The table, naming its files where they are written."""
        places = {name: f"plan_{number}.plan" for number, name in enumerate(sorted(self.plans))}
        for name, place in places.items():
            (folder / place).write_text(self.plans[name], encoding="utf-8")
        for key, table in (("camera", self.payload_camera), ("battery", self.payload_battery)):
            if table is not None:
                (folder / f"payload_{key}.toml").write_text(_toml(msgspec.json.encode(table)), encoding="utf-8")
                inspection = inspection | {key: f"payload_{key}.toml"}
        items = [item | {"file": places[item["file"]]} if "file" in item else item for item in inspection["item"]]
        return inspection | {"item": items}


def files_of(loaded: LoadedScenario) -> FlightFiles:
    """The files of a scenario that has been read, with its camera mode."""
    overrides = {"camera_mode": loaded.scenario.camera_mode}
    return _of_metadata(flight_metadata(loaded.vehicle_path, loaded.mission_path, loaded.path, None, overrides))


@lru_cache(maxsize=32)  # the flights of a campaign share most of their files, and writing TOML is slow
def _toml(content: bytes) -> str:
    return tomlkit.dumps(msgspec.json.decode(content))


def _of_metadata(metadata: Mapping[str, str]) -> FlightFiles:
    def tables(name: str) -> Any:
        return msgspec.json.decode(metadata[f"{name}_tables"])

    return FlightFiles(
        scenario=tables("scenario"),
        vehicle=tables("vehicle"),
        mission=tables("mission"),
        site=tables("site") if "site_tables" in metadata else None,
        dictionaries=msgspec.json.decode(metadata.get("dictionaries", "{}")),
        world=tables("world") if "world_tables" in metadata else None,
        payload_camera=tables("payload_camera") if "payload_camera_tables" in metadata else None,
        payload_battery=tables("payload_battery") if "payload_battery_tables" in metadata else None,
        plans=msgspec.json.decode(metadata.get("plans", "{}")),
        world_files=msgspec.json.decode(metadata.get("world_files", "{}"), type=dict[str, bytes]),
    )


def _with_dictionaries(site: Tables, places: Mapping[str, str]) -> Tables:
    """The marker file, naming its dictionaries where they were written."""
    site = msgspec.json.decode(msgspec.json.encode(site))  # a copy
    for bundle in site.get("bundle", []):
        for marker in bundle.get("markers", []):
            name = str(marker.get("family", "")).removeprefix(CUSTOM_PREFIX)
            if name in places:
                marker["family"] = f"{CUSTOM_PREFIX}{places[name]}"
    return site


def _with_world_files(world: Tables, places: Mapping[str, str]) -> Tables:
    """The world file, naming its meshes and images where they were written."""
    solids = [s | {key: places[s[key]] for key in ("file", "texture") if s.get(key) in places} for s in world["solid"]]
    return world | {"solid": solids}

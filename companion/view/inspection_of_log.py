"""The inspection that a flight was flown with, planned again from the tables in its log: files of today may say something else."""

import tempfile
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from companion.core import aliases
from companion.core.config import Section, parse
from companion.core.site import Site
from companion.mission.inspection_files import surroundings
from companion.mission.plan import Plan
from companion.planning.camera import PayloadCamera
from companion.planning.planner import InspectionPlan, make_plan
from companion.planning.sections import Battery, Inspection, QgcItem
from companion.planning.stations import Planning
from companion.recording.inspection import rules_of_log
from companion.recording.log import Log, LogError

S = TypeVar("S", bound=Section)


def flown_inspection(log: Log) -> InspectionPlan | None:
    """The plan of a log's inspection, from its log alone; None: it had none. Raises `ConfigError` where it cannot be planned."""
    tables = log.tables("mission")
    if tables is None or "inspection" not in tables:
        return None
    where = f"{log.path}: mission in the log"
    mission = parse(aliases.completed("Plan", tables), Plan, where)
    vehicle = log.vehicle()
    if vehicle is None or mission.inspection is None:
        raise LogError(f"{log.path}: holds an inspection without its vehicle")
    camera, battery = _part(log, "payload_camera", PayloadCamera), _part(log, "payload_battery", Battery)
    site = Site(bundle=[]) if log.tables("site") is None else _part(log, "site", Site)
    mass_kg = vehicle.mass_kg + (0.0 if mission.inspection.camera_in_vehicle_mass else camera.mass_kg)
    rules = rules_of_log(log)
    with tempfile.TemporaryDirectory(prefix="companion-plan-") as folder:
        inspection = _with_plan_files(mission.inspection, log, Path(folder))
        planning = Planning(inspection, camera, site, Path(folder), vehicle.safety.standoff_min_m, *rules)
        return make_plan(mission.name, where, planning, battery, surroundings(mission, mass_kg, planning, where))


def _part(log: Log, name: str, kind: type[S]) -> S:
    tables: dict[str, Any] | None = log.tables(name)
    if tables is None:
        raise LogError(
            f"{log.path}: holds an inspection without its {name.replace('_', ' ')} file (an earlier version)"
        )
    return parse(tables, kind, f"{log.path}: {name} in the log")


def _with_plan_files(inspection: Inspection, log: Log, folder: Path) -> Inspection:
    """The inspection with the plans of QGroundControl that the log holds, written into a folder."""
    try:
        texts = msgspec.json.decode(log.metadata.get("plans", "{}"), type=dict[str, str])
    except msgspec.MsgspecError as error:
        raise LogError(f"{log.path}: the plan files in the log cannot be read: {error}") from None
    items: list[Any] = []
    for number, item in enumerate(inspection.item):
        if isinstance(item, QgcItem):
            if item.file not in texts:
                raise LogError(f"{log.path}: holds an inspection without its plan file {item.file[:100]}")
            (folder / f"{number}.plan").write_text(texts[item.file], encoding="utf-8")
            item = msgspec.structs.replace(item, file=f"{number}.plan")
        items.append(item)
    return msgspec.structs.replace(inspection, item=items)

"""The plan of an inspection that a log shows: the one that was flown, whatever the files of today say."""

import json
import shutil
from pathlib import Path

import pytest

from companion.core.enums import Phase
from companion.core.messages import MissionStatus
from companion.recording.writer import LogWriter
from companion.runtime.flight_record import flight_metadata
from companion.view.command import _scene_of_log
from companion.view.inspection_plan import Loaded, qgc_files
from companion.view.log_window import LogIndex
from companion.view.logged import LogSource
from companion.view.scene import inspection_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def flown(tmp_path_factory) -> tuple[Path, Path, dict[str, str]]:
    """Mission and vehicle of an inspection, and the metadata of its log."""
    folder = tmp_path_factory.mktemp("flown") / "config"
    shutil.copytree(ROOT / "config", folder)
    mission, vehicle = folder / "missions/two_piers_inspection.toml", folder / "vehicles/f550.toml"
    return mission, vehicle, flight_metadata(vehicle, mission)


def logged(path: Path, metadata: dict[str, str]) -> Path:
    writer = LogWriter(path, metadata, start_s=0.0)
    for number in range(20):
        status = MissionStatus(
            stamp_s=0.1 * number, phase=Phase.INSPECT, reason="x", phase_time_s=0.0, finished=False, success=False,
            photographs=0,
        )  # fmt: skip
        writer.put("mission_status", status, 0.1 * number)
    writer.close()
    return path


def shown(path: Path):
    """(plan, notes) as a page gets them."""
    index = LogIndex(path)
    source = LogSource(index, _scene_of_log(index, path))
    try:
        hello = source.hello()
        return hello["scene"]["plan"].get("inspection"), hello["notes"]
    finally:
        source.close()


def test_the_plan_is_that_of_the_flight_without_its_files(flown, tmp_path):
    mission, vehicle, metadata = flown
    planned = inspection_of(mission, vehicle)
    assert planned is not None
    path = logged(tmp_path / "flight.mcap", metadata)
    before, words = shown(path), mission.read_text()
    try:
        mission.write_text("name = 'another'")
        assert shown(path) == before
        mission.unlink()
        assert shown(path) == before
    finally:
        mission.write_text(words)
    plan, notes = before
    assert notes == [] and json.dumps(plan) == json.dumps(planned)


def test_a_plan_of_qgroundcontrol_comes_from_the_log_too(flown, tmp_path):
    before, vehicle, _ = flown
    shutil.copytree(before.parents[1], tmp_path / "config")
    mission, file = tmp_path / "config/missions" / before.name, tmp_path / "config/missions/way.plan"
    [document] = qgc_files(Loaded(before, vehicle), before, file).values()
    file.write_text(json.dumps(document))
    item = '[[inspection.item]]\nkind = "qgc"\nname = "way"\nfile = "way.plan"\n\n[[inspection.item]]'
    mission.write_text(mission.read_text().replace("[[inspection.item]]", item, 1))
    planned, metadata = inspection_of(mission, vehicle), flight_metadata(vehicle, mission)
    assert planned is not None and planned != inspection_of(before, vehicle)
    file.write_text("{}")
    plan, notes = shown(logged(tmp_path / "flight.mcap", metadata))
    assert notes == [] and json.dumps(plan) == json.dumps(planned)
    plan, notes = shown(logged(tmp_path / "without.mcap", metadata | {"plans": "{}"}))
    assert plan is None and "without its plan file way.plan" in notes[0]


@pytest.mark.parametrize("name", ["payload_camera_tables", "payload_battery_tables", "vehicle_tables"])
def test_a_plan_that_a_log_does_not_hold_is_said(flown, tmp_path, name):
    _, _, metadata = flown
    path = logged(
        tmp_path / "flight.mcap", {k: v for k, v in metadata.items() if k not in (name, "vehicle", name[:-7])}
    )
    plan, notes = shown(path)
    assert plan is None and len(notes) == 1
    assert notes[0].startswith("the plan of the inspection is not drawn: ") and "\n" not in notes[0]


@pytest.mark.parametrize("changed", [{"mission_file": "x" * 5000}, {"plans": "["}, {"mission_tables": "["}])
def test_a_log_with_impossible_metadata_is_shown(flown, tmp_path, changed):
    _, _, metadata = flown
    plan, notes = shown(logged(tmp_path / "flight.mcap", metadata | changed))
    assert (plan is None) == bool(notes)

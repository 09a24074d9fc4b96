"""``companion fly``: which processes a mission starts, and how the end of a flight is reported."""

import dataclasses
import re
import shutil
import sys
from pathlib import Path

import pytest
from rich.console import Console

from companion.core.errors import OutputError
from companion.core.input_files import fingerprint, input_files
from companion.core.messages import MissionStatus
from companion.mission.plan import load_plan
from companion.runtime.fly import Ending, conclude, ending_line
from companion.runtime.processes import PROCESSES, YES_AUTO, Context, onboard_processes

ROOT = Path(__file__).parents[2]


def status(**changes) -> MissionStatus:
    fields = {
        "phase": "DONE",
        "reason": "landed",
        "phase_time_s": 1.0,
        "finished": True,
        "success": False,
        "photographs": 0,
    }
    return MissionStatus(stamp_s=0.0, **(fields | changes))


def test_a_mission_without_a_bundle_starts_neither_camera_nor_tracker():
    bundle, none = (load_plan(ROOT / f"config/missions/{name}.toml").bundle for name in ("bridge_hover", "run_5"))
    everything = [row.name for row in PROCESSES if not row.for_inspection]
    assert onboard_processes(bundle, simulated=False) == everything
    assert onboard_processes(bundle, simulated=True) == [name for name in everything if name != "camera"]
    assert onboard_processes(none, simulated=False) == [n for n in everything if n not in ("camera", "tracker")]
    assert onboard_processes(none, simulated=True) == [n for n in everything if n not in ("camera", "tracker")]


def copied(folder: Path, name: str = "bridge_hover") -> Context:
    """A flight whose files may be edited."""
    for kind in ("missions", "vehicles", "markers", "cameras", "batteries"):
        shutil.copytree(ROOT / "config" / kind, folder / kind)
    return Context(
        folder / "vehicles/f550.toml", folder / f"missions/{name}.toml", "", folder / "bus", folder / "log.mcap"
    )


def test_files_that_say_something_else_have_another_fingerprint(tmp_path):
    context = copied(tmp_path, "two_piers_inspection")
    files = input_files(context.vehicle_file, context.mission_file)
    assert {"site", "payload_camera", "payload_battery"} < set(files.tables)
    before = fingerprint(context.vehicle_file, context.mission_file)
    for file in files.tables.values():
        text = file.read_text()
        file.write_text(f"# read by another person\n\n{text}")
        assert fingerprint(context.vehicle_file, context.mission_file) == before, "a comment is no number"
        number = re.search(r"= (\d+\.\d+)", text)
        file.write_text(text.replace(number.group(1), f"{number.group(1)}7", 1))
        assert fingerprint(context.vehicle_file, context.mission_file) != before, file
        file.write_text("= [")
        assert fingerprint(context.vehicle_file, context.mission_file) == "unreadable"
        file.write_text(text)
    assert fingerprint(context.vehicle_file, context.mission_file) == before


def test_another_dictionary_has_another_fingerprint(tmp_path):
    context = copied(tmp_path)
    site = input_files(mission=context.mission_file).tables["site"]
    site.write_text(re.sub(r'family = "[a-z0-9_]+"', 'family = "dictionary:own.yml"', site.read_text()))
    assert fingerprint(context.vehicle_file, context.mission_file) == "unreadable"
    (site.parent / "own.yml").write_text("nmarkers: 1")
    before = fingerprint(context.vehicle_file, context.mission_file)
    (site.parent / "own.yml").write_text("nmarkers: 2")
    assert before != fingerprint(context.vehicle_file, context.mission_file) != "unreadable"


@pytest.mark.parametrize(("name", "more"), [("bridge_hover", set()), ("two_piers_inspection", {"payload"})])
def test_every_process_of_an_aircraft_is_required_for_a_start(tmp_path, name, more):
    (mission,) = (row for row in PROCESSES if row.name == "mission")
    context = dataclasses.replace(copied(tmp_path, name), run={YES_AUTO: True})
    options = mission.options(context)
    assert set(options.required_processes) == {"recorder", "fcu", "estimator", "controller", "tracker", "camera"} | more
    assert options.files == fingerprint(context.vehicle_file, context.mission_file)


@pytest.mark.parametrize(
    ("last", "line"),
    [
        (status(success=True), "mission flown to its end"),
        (
            status(cause="battery low (13.2 V, limit 13.4): returned and landed"),
            "mission ended early: battery low (13.2 V, limit 13.4): returned and landed",
        ),
        (status(), "mission ended early: landed (phase DONE)"),
        (
            status(phase="SEARCH", reason="looking", finished=False),
            "mission ended early: not finished, in phase SEARCH (looking)",
        ),
        (None, "mission ended early: no status from the mission process"),
    ],
)
def test_the_last_line_has_the_cause_of_an_early_end(last, line):
    assert ending_line(last) == line


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The folder of a flight with a log whose figures cost nothing."""
    (tmp_path / "flight.mcap").write_bytes(b"")
    monkeypatch.setattr("companion.recording.metrics.flight_metrics", lambda log: {"position_rms_m": 0.03})
    monkeypatch.setattr("companion.recording.report.write_report", lambda log, out: out / "report.html")
    return tmp_path


def concluded(folder: Path, ending: Ending) -> tuple[int, list[str]]:
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    return conclude(folder, ending, console), console.export_text().strip().splitlines()


def test_a_flight_to_its_end_has_status_0_and_names_log_and_report(folder):
    code, lines = concluded(folder, Ending(status(success=True)))
    assert code == 0 and lines[-1] == "mission flown to its end"
    assert f"log     {folder / 'flight.mcap'}" in lines and f"report  {folder / 'report.html'}" in lines


def test_an_early_end_has_status_1_and_its_cause_is_the_last_line(folder):
    code, lines = concluded(folder, Ending(status(cause="battery low: returned and landed")))
    assert code == 1 and lines[-1] == "mission ended early: battery low: returned and landed"


def test_an_interrupted_flight_has_status_130_and_its_figures(folder):
    code, lines = concluded(folder, Ending(status(phase="HOLD", reason="", finished=False), interrupted=True))
    assert code == 130 and any("3.0 cm" in line for line in lines)
    assert lines[-1] == "mission ended early: interrupted in phase HOLD"


def test_a_report_that_cannot_be_written_costs_neither_figures_nor_the_cause(folder, monkeypatch):
    def fail(log, out):
        raise OutputError(f"{out}: report cannot be written: no space left on device")

    monkeypatch.setattr("companion.recording.report.write_report", fail)
    code, lines = concluded(folder, Ending(status(success=True)))
    assert code == 2 and any("3.0 cm" in line for line in lines)
    assert any("report  not written: " in line and "no space left" in line for line in lines)
    assert lines[-1] == "mission flown to its end"


def test_without_the_packages_of_the_report_a_line_names_the_extra(folder, monkeypatch):
    for name in [n for n in sys.modules if n.startswith(("companion.recording.report", "companion.recording.pages"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    code, lines = concluded(folder, Ending(status(success=True)))
    assert code == 0 and any("install companion[report]" in line for line in lines)


def test_a_flight_without_a_log_is_reported(tmp_path):
    code, lines = concluded(tmp_path, Ending(None))
    assert code == 1 and "no log was written" in lines[0]


def test_the_payload_process_runs_in_a_mission_with_an_inspection_only():
    assert "payload" in onboard_processes("pier", simulated=True, inspection=True)
    assert "payload" not in onboard_processes("pier", simulated=True)

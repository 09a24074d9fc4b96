"""``--resume``: the photographs that former flights took, from their logs."""

import shutil

import pytest
from click.testing import CliRunner
from mission_world import REPOSITORY, answered

from companion.cli import main
from companion.core.config import ConfigError
from companion.core.errors import UserError
from companion.core.messages import CaptureRequest
from companion.recording.writer import LogWriter
from companion.runtime.flight_record import flight_metadata
from companion.runtime.resume import photographed

MISSION = REPOSITORY / "config/missions/two_piers_inspection.toml"
VEHICLE = REPOSITORY / "config/vehicles/f550_inspection.toml"


def request(number, item="deck", row=0):
    nan = float("nan")
    return CaptureRequest(
        stamp_s=0.0, id=number, item=item, row=row, column=number, frame="deck", pitch_rad=0.0, distance_m=nan
    )


def flown(path, outcomes, mission=MISSION, run=None):
    """A log with these outcomes of the photographs 1, 2, …"""
    writer = LogWriter(path, flight_metadata(VEHICLE, mission, run=run))
    for number, outcome in enumerate(outcomes, 1):
        writer.put("capture", answered(request(number), outcome), float(number))
    writer.close()
    return path


def with_change(folder, old, new):
    """The mission with its files, one line changed."""
    for kind in ("missions", "markers", "cameras", "batteries"):
        shutil.copytree(REPOSITORY / "config" / kind, folder / kind)
    for file in (folder / "missions" / MISSION.name, folder / "cameras/sony_rx1_gimbal.toml"):
        text = file.read_text(encoding="utf-8")
        if old in text:
            file.write_text(text.replace(old, new, 1), encoding="utf-8")
            return folder / "missions" / MISSION.name
    raise AssertionError(old)


def test_taken_and_blurred_photographs_count_and_refused_and_lost_ones_do_not(tmp_path):
    log = flown(tmp_path / "flight.mcap", ["taken", "refused", "blurred", "lost"])
    assert photographed(MISSION, [log]) == [("deck", 0, 1), ("deck", 0, 3)]


def test_a_log_knows_what_the_flights_before_it_had_taken(tmp_path):
    log = flown(tmp_path / "flight.mcap", ["taken"], run={"kind": "aircraft", "photographed": [["first pier", 0, 2]]})
    assert photographed(MISSION, [log]) == [("deck", 0, 1), ("first pier", 0, 2)]


def test_a_folder_of_flights_counts_those_of_this_plan(tmp_path):
    for name, mission, outcomes in (
        ("a", MISSION, ["taken"]),
        ("b", MISSION, ["lost", "taken"]),
        ("c", REPOSITORY / "config/missions/bridge_hover.toml", ["taken"] * 3),
    ):
        (tmp_path / name).mkdir()
        flown(tmp_path / name / "flight.mcap", outcomes, mission)
    assert photographed(MISSION, [tmp_path]) == [("deck", 0, 1), ("deck", 0, 2)]
    with pytest.raises(ConfigError, match="no log of a flight of two_piers_inspection.toml with its present items"):
        photographed(MISSION, [tmp_path / "c"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("size_m = [12.0, 4.0]", "size_m = [11.0, 4.0]", "inspection.item 'deck' is not that of"),
        ('name = "second pier"', 'name = "other pier"', "inspection.item 'second pier' is not that of"),
        (
            "focal_length_mm = 35.0",
            "focal_length_mm = 36.0",
            "inspection.camera is not sony_rx1_gimbal.toml as it is now",
        ),
    ],
)
def test_a_log_of_another_plan_is_refused_in_one_line(tmp_path, old, new, message):
    log = flown(tmp_path / "flight.mcap", ["taken"])
    changed = with_change(tmp_path, old, new)
    with pytest.raises(ConfigError, match=f"a log of another plan: {message}") as error:
        photographed(changed, [log])
    assert "\n" not in str(error.value) and str(log) in str(error.value)


def test_speeds_may_change_from_flight_to_flight(tmp_path):
    log = flown(tmp_path / "flight.mcap", ["taken"])
    changed = with_change(tmp_path, "speed_m_s = 1.0", "speed_m_s = 0.7")
    assert photographed(changed, [log]) == [("deck", 0, 1)]


def test_what_is_no_log_or_has_no_inspection_is_refused(tmp_path):
    broken = tmp_path / "flight.mcap"
    broken.write_bytes(b"no log")
    with pytest.raises(UserError):
        photographed(MISSION, [broken])
    hover = flown(tmp_path / "hover.mcap", [], REPOSITORY / "config/missions/bridge_hover.toml")
    with pytest.raises(ConfigError, match=r"its mission has no \[inspection\]"):
        photographed(MISSION, [hover])


def test_the_command_refuses_the_log_of_another_plan(tmp_path):
    hover = flown(tmp_path / "hover.mcap", [], REPOSITORY / "config/missions/bridge_hover.toml")
    result = CliRunner().invoke(main, ["sim", "two_piers", "--resume", str(hover)])
    assert result.exit_code == 2 and "a log of another plan" in result.output
    assert len(result.output.strip().splitlines()) == 1

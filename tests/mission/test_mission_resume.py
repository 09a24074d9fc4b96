"""``--resume``: the photographs that former flights took, from their logs."""

import datetime
import json
import os
import re
import shutil

import pytest
from click.testing import CliRunner
from mission_world import REPOSITORY, answered

from companion.cli import main
from companion.core.config import ConfigError
from companion.core.errors import UserError
from companion.core.messages import CaptureRequest, PayloadStatus
from companion.mission.inspection_files import load_inspection
from companion.recording.inspection import plan_difference, plan_of_log
from companion.recording.log import read_log
from companion.recording.writer import LogWriter
from companion.runtime import former_flights, log_readings, processes
from companion.runtime.flight_record import flight_metadata
from companion.runtime.resume import NoFormerFlight, photographed
from sitl.flight_files import files_of
from sitl.scenario import load_scenario

MISSION = REPOSITORY / "config/missions/two_piers_inspection.toml"
VEHICLE = REPOSITORY / "config/vehicles/f550_inspection.toml"


def request(number, item="deck", row=0):
    nan = float("nan")
    return CaptureRequest(
        stamp_s=0.0, id=number, item=item, row=row, column=number, frame="deck", pitch_rad=0.0, distance_m=nan
    )


def flown(path, outcomes, mission=MISSION, run=None, began=None, ended=None):
    """A log with these outcomes of the photographs 1, 2, …

    began, ended: what the clock says at the beginning and the end; the file has the later of them.
    """
    writer = LogWriter(path, flight_metadata(VEHICLE, mission, run=run), start_s=0.0, start_wall=began)
    for number, outcome in enumerate(outcomes, 1):
        writer.put("capture", answered(request(number), outcome), float(number))
    if ended is not None:
        status = PayloadStatus(stamp_s=600.0, connected=True, problem="", utc_offset_s=ended.timestamp() - 600.0)
        writer.put("payload", status, 600.0)
    writer.close()
    if began is not None:
        written_at(path, ended or began)
    return path


def written_at(path, at):
    os.utime(path, (at.timestamp(), at.timestamp()))


def with_change(folder, old, new):
    """The mission with its files, one line changed."""
    for kind in ("missions", "markers", "cameras", "batteries"):
        shutil.copytree(REPOSITORY / "config" / kind, folder / kind)
    markers = folder / "markers/two_piers_inspection.toml"
    for file in (folder / "missions" / MISSION.name, folder / "cameras/sony_rx1_gimbal.toml", markers):
        text = file.read_text(encoding="utf-8")
        if old in text:
            file.write_text(text.replace(old, new, 1), encoding="utf-8")
            return folder / "missions" / MISSION.name
    raise AssertionError(old)


def test_sharp_photographs_count_and_blurred_refused_and_lost_ones_are_taken_again(tmp_path):
    log = flown(tmp_path / "flight.mcap", ["taken", "refused", "blurred", "lost"])
    assert photographed(MISSION, [log]) == [("deck", 0, 1)]
    sharp = flown(tmp_path / "again.mcap", ["blurred", "lost", "taken"])  # the best capture of all flights counts
    assert photographed(MISSION, [log, sharp]) == [("deck", 0, 1), ("deck", 0, 3)]


SIMULATED = [{"kind": "lockstep"}, {"kind": "realtime", "seed": 1}, {"kind": "px4"}]


def test_an_aircraft_goes_on_after_flights_of_aircraft_alone(tmp_path, monkeypatch, capsys):
    """A rehearsal has the same mission and the same folder: its photographs were never taken."""
    for number, run in enumerate([*SIMULATED, {"kind": "aircraft"}, {}], 1):
        (tmp_path / str(number)).mkdir()
        flown(tmp_path / str(number) / "flight.mcap", ["lost"] * (number - 1) + ["taken"], run=run)
    flown(tmp_path / "hover.mcap", [], REPOSITORY / "config/missions/bridge_hover.toml")
    (tmp_path / "torn.mcap").write_bytes(b"no log")
    said = []
    assert photographed(MISSION, [tmp_path], say=said.append) == [("deck", 0, 4), ("deck", 0, 5)]
    skipped = "logs do not count: 1 of another plan, 3 of simulated flights, 1 that cannot be read"
    counted = rf"{re.escape(str(tmp_path))}: 2 of 7 logs count, of \d\d\d\d-\d\d-\d\d"
    assert re.match(counted, said[0]) and said[1:] == [f"{tmp_path}: 5 of 7 {skipped}"]
    assert photographed(MISSION, [tmp_path], simulated=True) == [("deck", 0, 1), ("deck", 0, 2), ("deck", 0, 3)]
    powered_on(monkeypatch, tmp_path, tmp_path)
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"{tmp_path}: 5 of 7 {skipped}",
        "2 photographs of two_piers_inspection.toml taken by former flights",
    ]


def test_the_log_of_a_rehearsal_is_refused_for_an_aircraft(tmp_path, monkeypatch):
    log = flown(tmp_path / "flight.mcap", ["taken"], run=SIMULATED[1])
    with pytest.raises(ConfigError, match="a log of a simulated flight: an aircraft goes on after flights of aircraft"):
        photographed(MISSION, [log])
    with pytest.raises(ConfigError, match="present items, camera and site, flown by an aircraft"):
        photographed(MISSION, [tmp_path])
    former = powered_on(monkeypatch, tmp_path, tmp_path)  # the first battery of the aircraft
    assert context(tmp_path, former).photographed == []
    result = CliRunner().invoke(main, ["fly", str(MISSION), "--fcu", "udpin:127.0.0.1:1", "--resume", str(log)])
    assert result.exit_code == 2 and "a log of a simulated flight" in result.output


def test_a_rehearsal_goes_on_after_the_flight_of_an_aircraft_that_is_named(tmp_path):
    log = flown(tmp_path / "flight.mcap", ["taken"])
    assert photographed(MISSION, [log], simulated=True) == [("deck", 0, 1)]
    with pytest.raises(ConfigError, match="present items, camera and site, simulated"):
        photographed(MISSION, [tmp_path], simulated=True)


def test_the_kind_of_a_flight_that_goes_on_by_the_units_is_in_its_log():
    run = {"photographed": [["deck", 0, 1]]}  # as the units write it
    assert json.loads(flight_metadata(VEHICLE, MISSION, run=run)["run"]) == {"kind": "aircraft"} | run


def test_a_log_whose_version_took_another_stand_off_is_one_of_another_plan(tmp_path):
    """Row and column are those of another raster."""
    changed = with_change(tmp_path, "margin_m = 0.1\nstandoff_m = 5.0", "margin_m = 0.1")
    metadata = flight_metadata(VEHICLE, changed)
    for name, texts in (("now", metadata), ("then", {k: v for k, v in metadata.items() if k != "planning"})):
        LogWriter(tmp_path / f"{name}.mcap", texts).close()
    assert photographed(changed, [tmp_path / "now.mcap"]) == []
    with pytest.raises(ConfigError, match="its version took another stand-off for inspection.item 'deck'"):
        photographed(changed, [tmp_path / "then.mcap"])


def test_a_log_whose_version_took_another_raster_of_a_part_of_a_cylinder_is_one_of_another_plan(tmp_path):
    """The first of its two columns is beside the middle, which one column is now."""
    pier = """[[inspection.item]]
kind = "cylinder"
name = "round pier"
frame = "world"
base_m = [8.0, -9.0, 1.0]
radius_m = 2.0
height_m = 5.0
angle_start_rad = 2.9
angle_rad = 0.5
gsd_mm_px = 1.0
overlap_along = 0.8
overlap_between = 0.7
margin_m = 0.1
standoff_m = 4.0

[[inspection.item]]"""
    changed = with_change(tmp_path, "[[inspection.item]]", pier)
    metadata = flight_metadata(VEHICLE, changed)
    former = metadata | {"planning": '{"held_m": 0.15}'}
    for name, texts in (("now", metadata), ("then", former)):
        LogWriter(tmp_path / f"{name}.mcap", texts).close()
    assert photographed(changed, [tmp_path / "now.mcap"]) == []
    with pytest.raises(ConfigError, match="its version took another raster for inspection.item 'round pier'"):
        photographed(changed, [tmp_path / "then.mcap"])
    now, then = (plan_of_log(read_log(tmp_path / f"{name}.mcap")) for name in ("now", "then"))
    assert {column for _, column in now.find("round pier").planned} == {0}
    assert {column for _, column in then.find("round pier").planned} != {0}  # as it was flown
    assert plan_difference(now, then) == "inspection.item 'round pier' is photographed in another raster"


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
    with pytest.raises(
        ConfigError, match="no log of a flight of two_piers_inspection.toml with its present items, camera and site"
    ):
        photographed(MISSION, [tmp_path / "c"])


CHANGED = {  # what is different, as the file has it and as it is now; what the message says
    "size": ("size_m = [12.0, 4.0]", "size_m = [11.0, 4.0]", "inspection.item 'deck' is not that of"),
    "name": ('name = "second pier"', 'name = "other pier"', "inspection.item 'second pier' is not that of"),
    "lens": ("focal_length_mm = 35.0", "focal_length_mm = 36.0", "inspection.camera is not sony_rx1_gimbal.toml as it is now"),
    "origin": ("latitude_deg = 34.0007", "latitude_deg = 47.3", "inspection.origin is not that of"),
    "place": ("p_m = [12.0, 0.0, 4.0]", "p_m = [9.0, 1.0, 4.0]", r"\[\[inspection.bundle\]\] 'pier' is 3.2 m from that of"),
    "turn": ("p_m = [12.0, 0.0, 4.0]\nrpy_rad = [1.5707963, 0.0, -1.5707963]", "p_m = [12.0, 0.0, 4.0]\nrpy_rad = [1.5707963, 0.0, -1.3]",
        r"\[\[inspection.bundle\]\] 'pier' is turned by 16° against that of"),
    "board": ("id = 23", "id = 24", "the markers of bundle '.*' are not those of"),
    "family": ("aruco_6x6_250", "apriltag_36h11", "the markers of bundle 'pier' are not those of"),
    "takeoff": ("[inspection.origin]", "[inspection.takeoff]\np_S = [0.0, 0.0, 0.0]\nyaw_rad = 0.0\n[inspection.origin]",
        "inspection.takeoff is not that of"),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGED)
def test_a_log_of_another_plan_is_refused_in_one_line(tmp_path, case):
    old, new, message = CHANGED[case]
    log = flown(tmp_path / "flight.mcap", ["taken"])
    changed = with_change(tmp_path, old, new)
    with pytest.raises(ConfigError, match=f"a log of another plan: {message}") as error:
        photographed(changed, [log])
    assert "\n" not in str(error.value) and str(log) in str(error.value)


def test_a_survey_may_be_new_and_better_but_not_that_of_another_site(tmp_path):
    changed = with_change(tmp_path, "id = 23", "id = 23")
    markers = tmp_path / "markers/two_piers_inspection.toml"
    before = markers.read_text(encoding="utf-8")

    [survey] = re.findall(r"survey = .*", before)[:1]

    def surveyed(line):
        markers.write_text(before.replace(survey, line, 1), encoding="utf-8")

    surveyed("")
    without = flown(tmp_path / "without.mcap", ["taken"], changed)
    surveyed(survey)
    log = flown(tmp_path / "flight.mcap", ["taken"], changed)
    assert photographed(changed, [without, log]) == [("deck", 0, 1)]
    surveyed(survey.replace("[0.000,", "[0.1,"))
    assert photographed(changed, [log]) == [("deck", 0, 1)]
    turned = re.sub(r"rpy_S_rad = \[[^,]+,", "rpy_S_rad = [0.0,", survey)
    surveyed(turned)
    with pytest.raises(ConfigError, match=r"bundle.survey of 'pier' is turned by 90° against that of"):
        photographed(changed, [log])
    surveyed(survey.replace("[0.000,", "[3.0,"))
    with pytest.raises(ConfigError, match=r"bundle.survey of 'pier' is 3.0 m from that of"):
        photographed(changed, [log])


def test_waypoints_and_marker_codes_of_named_files_may_not_change(tmp_path):
    item = '[[inspection.item]]\nkind = "qgc"\nname = "q"\nfile = "q.plan"\n\n[[inspection.item]]'
    changed = with_change(tmp_path, "[[inspection.item]]", item)
    (tmp_path / "missions/q.plan").write_text("{}")
    (tmp_path / "markers/own.yml").write_text("a")
    markers = tmp_path / "markers/two_piers_inspection.toml"
    markers.write_text(markers.read_text().replace('"aruco_6x6_250", id = 23', '"dictionary:own.yml", id = 23'))
    log = flown(tmp_path / "flight.mcap", ["taken"], changed)
    assert photographed(changed, [log]) == [("deck", 0, 1)]
    for file in ("markers/own.yml", "missions/q.plan"):
        (tmp_path / file).write_text("changed")
        with pytest.raises(ConfigError, match=f"another plan: {file.split('/')[1]} is not as it is now"):
            photographed(changed, [log])


def test_an_origin_with_its_former_heading_of_0_is_the_same_place(tmp_path):
    changed = with_change(tmp_path, "altitude_m = 60.0\n", "altitude_m = 60.0\nheading_deg = 0.0\n")
    log = flown(tmp_path / "flight.mcap", ["taken"], changed)
    assert photographed(MISSION, [log]) == [("deck", 0, 1)]


def test_a_bundle_may_be_assumed_a_little_beside_its_former_place(tmp_path):
    log = flown(tmp_path / "flight.mcap", ["taken"])
    changed = with_change(tmp_path, "p_m = [12.0, 0.0, 4.0]", "p_m = [12.3, 0.0, 4.0]")
    assert photographed(changed, [log]) == [("deck", 0, 1)]


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


def test_the_files_of_a_flight_hold_all_that_its_inspection_names(tmp_path):
    """A log, a campaign and `companion refly` need nothing else."""
    loaded = load_scenario(REPOSITORY / "config/scenarios/two_piers.toml", camera_mode="corners")
    again = load_scenario(files_of(loaded).write(tmp_path))
    vehicle = loaded.vehicle
    first, second = (load_inspection(one.plan, one.site, vehicle, one.mission_path) for one in (loaded, again))
    assert second.camera == first.camera and second.battery == first.battery
    assert second.plan.stations[0].p_W == first.plan.stations[0].p_W
    assert str(tmp_path) in again.plan.inspection.camera


def counted_reads(monkeypatch) -> list:
    """The logs whose messages are read from now on."""
    read, read_log_ = [], log_readings.read_log

    def reading(path, topics=None):
        read.append(path.name)
        return read_log_(path, topics)

    monkeypatch.setattr(log_readings, "read_log", reading)
    return read


def test_of_which_plan_and_kind_and_how_old_a_log_is_stands_in_its_head(tmp_path, monkeypatch):
    """8000 MB of logs take minutes to read."""
    hover = REPOSITORY / "config/missions/bridge_hover.toml"
    flown(tmp_path / "000001_2026-06-01_09-00-00.mcap", ["taken"], began=ago(180))
    flown(tmp_path / "000002_2026-11-27_09-00-00.mcap", ["lost", "taken"], began=ago(1))
    flown(tmp_path / "000003_2026-11-27_10-00-00.mcap", ["taken"], run=SIMULATED[0], began=ago(1))
    flown(tmp_path / "000004_2026-11-27_11-00-00.mcap", [], hover, began=ago(1))
    read, said = counted_reads(monkeypatch), []
    assert photographed(MISSION, [tmp_path], say=said.append, now=NOW) == [("deck", 0, 2)]
    assert read == ["000002_2026-11-27_09-00-00.mcap"]
    assert said[1] == (
        f"{tmp_path}: 3 of 4 logs do not count: 1 of another plan, 1 of simulated flights, "
        "1 older than inspection.resume_days = 30 (of 2026-06-01)"
    )


def test_a_log_is_read_once_until_it_changes(tmp_path, monkeypatch):
    kept, flights = tmp_path / "kept.json", tmp_path / "flights"
    first = flown(flights / "000001_2026-11-27_09-00-00.mcap", ["taken"], began=ago(1))
    read = counted_reads(monkeypatch)
    now = {"now": NOW, "kept": kept}
    assert photographed(MISSION, [flights], **now) == photographed(MISSION, [flights], **now) == [("deck", 0, 1)]
    assert read == [first.name]
    second = flown(flights / "000002_2026-11-27_10-00-00.mcap", ["lost", "taken"], began=ago(1))
    assert photographed(MISSION, [flights], **now) == [("deck", 0, 1), ("deck", 0, 2)]
    assert read == [first.name, second.name]
    first.unlink()
    flown(first, ["lost", "lost", "taken"], began=ago(1))
    assert photographed(MISSION, [flights], **now) == [("deck", 0, 2), ("deck", 0, 3)]
    kept.write_bytes(b"{")  # it costs time alone
    assert photographed(MISSION, [flights], **now) == [("deck", 0, 2), ("deck", 0, 3)]
    first.unlink()
    assert photographed(MISSION, [flights], **now) == [("deck", 0, 2)]
    assert first.name not in kept.read_text() and second.name in kept.read_text()


def test_a_reading_that_is_cut_off_goes_on_behind_the_logs_that_were_read(tmp_path, monkeypatch):
    """The unit ends by the time of its start; it begins again with the next start of the mission."""
    kept, flights = tmp_path / "kept.json", tmp_path / "flights"
    for number in (1, 2, 3):
        flown(flights / f"00000{number}_2026-11-27_09-00-00.mcap", ["taken"], began=ago(1))
    read, read_log_ = [], log_readings.read_log

    class CutOff(Exception):
        pass

    def reading(path, topics=None):
        if len(read) % 2:
            read.append("cut off")
            raise CutOff
        read.append(path.name[:6])
        return read_log_(path, topics)

    monkeypatch.setattr(log_readings, "read_log", reading)
    for _ in range(2):
        with pytest.raises(CutOff):
            photographed(MISSION, [flights], now=NOW, kept=kept)
    assert photographed(MISSION, [flights], now=NOW, kept=kept) == [("deck", 0, 1)]
    assert read == ["000003", "cut off", "000002", "cut off", "000001"]


def test_a_part_of_a_restarted_recorder_is_no_log_of_its_own(tmp_path, monkeypatch):
    log = flown(tmp_path / "000001_2026-11-27_09-00-00.mcap", ["taken"], began=ago(1))
    part = LogWriter(
        log.with_stem(f"{log.stem}_2"), flight_metadata(VEHICLE, MISSION) | {"continues": log.name}, start_s=0.0
    )
    part.put("capture", answered(request(2), "taken"), 2.0)
    part.close()
    said, read = [], counted_reads(monkeypatch)
    assert photographed(MISSION, [tmp_path], say=said.append, now=NOW) == [("deck", 0, 1), ("deck", 0, 2)]
    assert said[0].startswith(f"{tmp_path}: 1 of 1 logs count") and read == [log.name]


def test_a_log_that_is_written_is_no_former_flight(tmp_path):
    """Of the recorder that starts beside the unit: it would be the newest flight."""
    flown(tmp_path / "000001_2026-06-01_09-00-00.mcap", ["taken"], began=ago(180))
    written_at(tmp_path / "000001_2026-06-01_09-00-00.mcap", ago(-1))
    writer, said = LogWriter(tmp_path / "000002_2026-11-28_09-00-00.mcap", flight_metadata(VEHICLE, MISSION)), []
    assert photographed(MISSION, [tmp_path], say=said.append, now=NOW) == [("deck", 0, 1)]
    assert "1 of 1 logs count" in said[-1]
    writer.close()


def test_a_log_of_another_mission_dated_in_the_future_does_not_end_the_age_of_flights(tmp_path):
    hover = REPOSITORY / "config/missions/bridge_hover.toml"
    flown(tmp_path / "000001_2036-01-01_09-00-00.mcap", [], hover, began=ago(-3000))
    flown(tmp_path / "other.mcap", [], hover, began=ago(-3000))  # without a number: its place is not known
    newest = flown(tmp_path / "000002_2026-06-01_09-00-00.mcap", ["taken"], began=ago(180))
    with pytest.raises(NoFormerFlight):
        photographed(MISSION, [tmp_path], now=NOW)
    flown(
        tmp_path / "000003_2026-12-24_09-00-00.mcap", [], hover, began=ago(-26)
    )  # after the flight: one clock is wrong
    said = []
    assert photographed(MISSION, [tmp_path], say=said.append, now=NOW) == [("deck", 0, 1)]
    assert said[0].startswith(
        f"{newest}: counts at its age, because the clock says 2026-11-28, before a log of 2026-12-24"
    )


def test_of_flights_dated_in_the_future_the_newest_alone_counts(tmp_path):
    said = []
    flown(tmp_path / "000001_2036-01-01_09-00-00.mcap", ["taken"], began=ago(-3322))
    flown(tmp_path / "000003_2026-11-27_09-00-00.mcap", ["lost", "taken"], began=ago(1))
    assert photographed(MISSION, [tmp_path], say=said.append, now=NOW) == [("deck", 0, 2)]
    assert said[1] == (
        f"{tmp_path}: 1 of 2 logs do not count: 1 dated after the present clock, and not the newest (of 2036-01-02)"
    )
    newest = flown(tmp_path / "000004_2036-01-01_10-00-00.mcap", ["lost", "lost", "taken"], began=ago(-3322))
    said.clear()
    assert photographed(MISSION, [tmp_path], say=said.append, now=NOW) == [("deck", 0, 2), ("deck", 0, 3)]
    assert said[0] == f"{newest}: counts, though it is dated 2036-01-02, after the present clock"


def powered_on(monkeypatch, folder, resume, mission=MISSION):
    """What the unit says that reads the logs at power-on, and its file. It also sets the variable of all units."""
    words = ["former_flights", "--mission", str(mission), "--resume", str(resume), "--out", str(folder / "former.json")]
    monkeypatch.setattr("sys.argv", words)
    monkeypatch.setenv(processes.RESUME, str(resume))
    assert former_flights.main() == 0
    return folder / "former.json"


def context(folder, former, mission=MISSION):
    resume = os.environ.get(processes.RESUME, "")
    return processes.Context(VEHICLE, mission, "tcp:[::1]:1", folder, folder, former_file=former, resume=resume)


def test_the_units_go_on_after_power_on_and_the_next_log_knows_it(tmp_path, monkeypatch, capsys):
    flights = tmp_path / "flights"
    flights.mkdir()
    flown(flights / "2026-11-25.mcap", ["taken", "lost", "taken"])
    former = powered_on(monkeypatch, tmp_path, flights)
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == "2 photographs of two_piers_inspection.toml taken by former flights"
    assert len(said) == 2 and re.match(rf"{flights}: 1 of 1 logs count, of \d\d\d\d-", said[0])
    aircraft = context(flights, former)
    assert processes._mission_options(aircraft).photographed == (("deck", 0, 1), ("deck", 0, 3))
    writer = processes._recorder_options(aircraft).log_writer
    writer.close()
    assert photographed(MISSION, [writer.path]) == [("deck", 0, 1), ("deck", 0, 3)]


def test_a_log_begins_before_the_former_flights_are_known_and_has_them_later(tmp_path, monkeypatch):
    """In the air the recorder waits for nothing."""
    flights, former = tmp_path / "flights", tmp_path / "former.json"
    flown(flights / "2026-11-25.mcap", ["taken"])
    monkeypatch.setenv(processes.RESUME, str(flights))
    writer = processes._recorder_options(context(flights, former)).log_writer
    writer.flush()
    assert "photographed" not in json.loads(read_log(writer.path).metadata["run"])
    powered_on(monkeypatch, tmp_path, flights)
    writer.flush()
    writer.close()
    assert json.loads(read_log(writer.path).metadata["run"]) == {"kind": "aircraft", "photographed": [["deck", 0, 1]]}
    assert photographed(MISSION, [writer.path]) == [("deck", 0, 1)]


def test_the_list_of_another_mission_file_is_not_that_of_a_log(tmp_path, monkeypatch):
    flights, mission = tmp_path / "flights", with_change(tmp_path, "p_m", "p_m")
    monkeypatch.setenv(processes.RESUME, str(flights))
    flights.mkdir()
    writer = processes._recorder_options(context(flights, tmp_path / "former.json", mission)).log_writer
    mission.write_text(mission.read_text().replace("margin_m = 0.1", "margin_m = 0.2", 1))
    flown(flights / "2026-11-25.mcap", ["taken"], mission)
    assert context(flights, powered_on(monkeypatch, tmp_path, flights, mission), mission).photographed
    writer.flush()
    writer.close()
    assert json.loads(read_log(writer.path).metadata["run"]) == {"kind": "aircraft"}


@pytest.mark.parametrize("change", ["mission", "markers", "resume"])
def test_the_mission_refuses_the_list_of_other_files_or_another_folder(tmp_path, monkeypatch, change):
    """As after an edit and `systemctl restart 'companion-*'`; the unit runs again, and the next start finds its file."""
    flights, mission = tmp_path / "flights", with_change(tmp_path, "p_m", "p_m")
    flown(flights / "2026-11-25.mcap", ["taken"], mission)
    former = powered_on(monkeypatch, tmp_path, flights, mission)
    assert context(flights, former, mission).photographed == [("deck", 0, 1)]
    file = tmp_path / "markers/two_piers_inspection.toml" if change == "markers" else mission
    if change == "resume":
        monkeypatch.setenv(processes.RESUME, "")
    else:
        text = file.read_text()
        where = r"size_m = ()([-\d.]+)" if change == "markers" else r"(?m)^p_m = (\[)([-\d.]+)"
        file.write_text(re.sub(where, lambda m: m[0].replace(m[2], str(float(m[2]) + 1.0)), text, count=1))
        assert file.read_text() != text
    with pytest.raises(
        ConfigError, match="former.json: made (before a change of|with COMPANION_RESUME=).*read again"
    ) as error:
        processes._mission_options(context(flights, former, mission))
    assert "\n" not in str(error.value)
    resume = os.environ[processes.RESUME]
    assert context(flights, powered_on(monkeypatch, tmp_path, resume, mission), mission).photographed == []


def test_a_mission_that_starts_again_on_the_ground_waits_for_the_flight_that_has_ended(tmp_path, monkeypatch):
    """It took the photographs of that flight again; in the air it starts at once, and only observes."""
    flights = tmp_path / "flights"
    flights.mkdir()
    former = powered_on(monkeypatch, tmp_path, flights)
    assert context(flights, former).photographed == []
    log = flights / "000001_2026-11-25_09-00-00.mcap"
    writer = LogWriter(log, flight_metadata(VEHICLE, MISSION), start_s=0.0)
    writer.mark_flown()
    writer.put("capture", answered(request(1), "taken"), 1.0)
    assert context(flights, former).photographed == []
    writer.close()
    with pytest.raises(ConfigError, match=f"made before the end of the flight {log.name}: the logs are read again"):
        context(flights, former).photographed  # noqa: B018
    assert context(flights, powered_on(monkeypatch, tmp_path, flights)).photographed == [("deck", 0, 1)]


@pytest.mark.parametrize("others", [False, True])
def test_a_folder_without_a_log_that_counts_but_with_a_broken_one_does_not_begin_again(tmp_path, monkeypatch, others):
    """It may be the log of the battery before."""
    flights = tmp_path / "flights"
    flights.mkdir()
    (flights / "torn.mcap").write_bytes(b"no log")
    if others:
        flown(flights / "hover.mcap", [], REPOSITORY / "config/missions/bridge_hover.toml")
    former = powered_on(monkeypatch, tmp_path, flights)
    with pytest.raises(
        ConfigError, match="torn.mcap: .*; it may be of a flight of two_piers_inspection.toml: move it"
    ) as error:
        processes._mission_options(context(tmp_path, former))
    assert "\n" not in str(error.value)
    (flights / "torn.mcap").write_bytes(b"")  # of a recorder that was cut off before it wrote anything
    assert context(tmp_path, powered_on(monkeypatch, tmp_path, flights)).photographed == []


def test_flights_of_an_earlier_inspection_of_the_same_structure_do_not_count_unless_they_are_named(tmp_path):
    log, said = flown(tmp_path / "flight.mcap", ["taken"]), []
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=31)
    assert photographed(MISSION, [tmp_path]) == [("deck", 0, 1)]
    with pytest.raises(NoFormerFlight):
        photographed(MISSION, [tmp_path], say=said.append, now=later)
    [line] = said
    assert re.fullmatch(
        rf"{re.escape(str(tmp_path))}: 1 of 1 logs do not count: 1 older than inspection.resume_days = 30 "
        r"\(of \d{4}-\d\d-\d\d\)",
        line,
    )
    assert photographed(MISSION, [log], now=later) == [("deck", 0, 1)]
    longer = with_change(tmp_path / "longer", "resumable = true", "resumable = true\nresume_days = 90")
    assert photographed(longer, [tmp_path], now=later) == [("deck", 0, 1)]


NOW = datetime.datetime(2026, 11, 28, 9, 40, tzinfo=datetime.UTC)


def ago(days):
    return NOW - datetime.timedelta(days=days)


def test_a_flight_whose_clock_was_set_while_it_was_logged_has_the_age_of_the_right_clock(tmp_path):
    """A computer without a clock battery begins with the time of its last shutdown."""
    said = []
    flown(tmp_path / "000001_2026-10-19_09-00-00.mcap", ["taken"], began=ago(40), ended=ago(0.03))
    assert photographed(MISSION, [tmp_path], say=said.append, now=NOW) == [("deck", 0, 1)]
    assert said == [f"{tmp_path}: 1 of 1 logs count, of 2026-11-28"]


def test_a_clock_ahead_that_was_set_back_in_the_flight_makes_it_no_younger(tmp_path):
    log = flown(tmp_path / "flight.mcap", ["taken"], began=ago(1), ended=ago(40))
    with pytest.raises(NoFormerFlight):
        photographed(MISSION, [tmp_path], now=NOW)
    flown(tmp_path / "other.mcap", [], REPOSITORY / "config/missions/bridge_hover.toml")
    written_at(tmp_path / "other.mcap", ago(-1))  # the present clock is wrong, that of the flight was right
    with pytest.raises(NoFormerFlight):
        photographed(MISSION, [tmp_path], now=NOW)
    assert photographed(MISSION, [log], now=NOW) == [("deck", 0, 1)]


def test_the_newest_flight_counts_where_its_clock_was_never_set(tmp_path):
    """Newest by its number: those before it had such a clock, too, or a right one long ago."""
    epoch, said = datetime.datetime(1970, 1, 1, 0, 1, tzinfo=datetime.UTC), []
    flown(tmp_path / "000001_2026-06-01_09-00-00.mcap", ["lost", "taken"], began=ago(180))
    newest = flown(tmp_path / "000002_1970-01-01_00-01-00.mcap", ["taken"], began=epoch, ended=epoch)
    assert photographed(MISSION, [tmp_path], say=said.append, now=NOW) == [("deck", 0, 1)]
    assert said == [
        f"{newest}: counts at its age, because the clock said 1970-01-01: it was not set",
        f"{tmp_path}: 1 of 2 logs count, of 1970-01-01",
        f"{tmp_path}: 1 of 2 logs do not count: 1 older than inspection.resume_days = 30 (of 2026-06-01)",
    ]
    flown(tmp_path / "000003_2026-06-02_09-00-00.mcap", ["taken"], began=ago(179))
    with pytest.raises(NoFormerFlight):
        photographed(MISSION, [tmp_path], now=NOW)


def test_the_newest_flight_counts_where_the_present_clock_is_before_a_log(tmp_path):
    said = []
    newest = flown(tmp_path / "000001_2026-10-19_09-00-00.mcap", ["taken"], began=ago(40))
    with pytest.raises(NoFormerFlight):
        photographed(MISSION, [tmp_path], now=NOW)
    written_at(newest, ago(-1))
    assert photographed(MISSION, [tmp_path], say=said.append, now=NOW) == [("deck", 0, 1)]
    assert said[0] == (
        f"{newest}: counts at its age, because the clock says 2026-11-28, before a log of 2026-11-29: one of them is wrong"
    )


def test_simulated_flights_have_the_age_of_the_computers_clock(tmp_path):
    """The simulated camera has the same time in each flight."""
    flown(tmp_path / "flight.mcap", ["taken"], run=SIMULATED[0], began=ago(1), ended=ago(68))
    assert photographed(MISSION, [tmp_path], simulated=True, now=NOW) == [("deck", 0, 1)]


@pytest.mark.parametrize("start_time", [None, "0001-01-01T00:00:00+14:00", "yesterday"])
def test_a_log_without_a_time_has_that_of_its_file(tmp_path, monkeypatch, start_time):
    log = flown(tmp_path / "flight.mcap", ["taken"])
    read_log = log_readings.read_log

    def with_start(*given):
        read = read_log(*given)
        read.metadata = {k: v for k, v in (read.metadata | {"start_time": start_time}).items() if v is not None}
        return read

    monkeypatch.setattr(log_readings, "read_log", with_start)
    written_at(log, ago(40))
    with pytest.raises(NoFormerFlight):
        photographed(MISSION, [tmp_path], now=NOW)
    written_at(log, ago(1))
    assert photographed(MISSION, [tmp_path], now=NOW) == [("deck", 0, 1)]


def test_a_broken_log_of_long_ago_keeps_no_first_battery_on_the_ground(tmp_path, monkeypatch, capsys):
    flights = tmp_path / "flights"
    flights.mkdir()
    torn = flights / "torn.mcap"
    torn.write_bytes(b"no log")
    now = datetime.datetime.now(datetime.UTC)
    written_at(torn, now - datetime.timedelta(days=31))
    assert context(tmp_path, powered_on(monkeypatch, tmp_path, flights)).photographed == []
    assert capsys.readouterr().out.splitlines()[0] == (f"{flights}: 1 of 1 logs do not count: 1 that cannot be read")
    written_at(torn, now - datetime.timedelta(days=29))
    with pytest.raises(ConfigError, match="torn.mcap: .*; it may be of a flight"):
        processes._mission_options(context(tmp_path, powered_on(monkeypatch, tmp_path, flights)))


def test_a_link_to_a_log_that_is_not_there_is_one_line(tmp_path):
    (tmp_path / "gone.mcap").symlink_to(tmp_path / "absent")
    with pytest.raises(ConfigError, match="gone.mcap: cannot be read: No such file.*move it out of the folder"):
        photographed(MISSION, [tmp_path])


def test_the_first_battery_and_a_mission_without_inspection_begin_at_the_beginning(tmp_path, monkeypatch):
    hover = REPOSITORY / "config/missions/bridge_hover.toml"
    for resume, mission in (("", MISSION), (tmp_path, MISSION), (tmp_path, hover)):
        former = powered_on(monkeypatch, tmp_path, resume, mission)
        assert context(tmp_path, former, mission).photographed == []
    assert context(tmp_path, tmp_path / "absent.json", hover).photographed == []


UNKNOWN = {  # what COMPANION_RESUME names, by a name; what the mission refuses to start with
    "absent": "COMPANION_RESUME=.*absent: no such log or folder",
    "other.mcap": "a log of another plan: its mission has no .inspection.",
    "text.mcap": "text.mcap: not",
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_the_mission_does_not_begin_again_when_it_is_not_known_what_was_taken(tmp_path, monkeypatch, name):
    flown(tmp_path / "other.mcap", ["taken"], REPOSITORY / "config/missions/bridge_hover.toml")
    (tmp_path / "text.mcap").write_text("no log")
    former = powered_on(monkeypatch, tmp_path, tmp_path / name)
    aircraft = context(tmp_path, former)
    with pytest.raises(ConfigError, match=UNKNOWN[name]) as error:
        processes._mission_options(aircraft)
    assert "\n" not in str(error.value)
    processes._recorder_options(aircraft).log_writer.close()  # a log is written in any case


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"photographed": [["deck", "x", 1]]}', b"[]"])
def test_a_missing_or_broken_file_of_former_flights_is_one_line(tmp_path, content):
    former = tmp_path / "former.json"
    if content is not None:
        former.write_bytes(content)
    with pytest.raises(ConfigError, match=r"former.json: the former flights are not known \(.+\): see") as error:
        context(tmp_path, former).photographed  # noqa: B018
    assert "\n" not in str(error.value)


def test_a_file_that_cannot_be_written_is_said(tmp_path, monkeypatch, capsys):
    words = ["x", "--mission", str(MISSION), "--resume", "", "--out", str(tmp_path / "absent/former.json")]
    monkeypatch.setattr("sys.argv", words)
    assert former_flights.main() == 1
    assert capsys.readouterr().err == f"{tmp_path}/absent/former.json: No such file or directory\n"

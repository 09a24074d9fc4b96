"""Old flights are deleted for new ones; the log being written stays, and nothing is deleted while in the air."""

import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from companion.recording.log import read_log
from companion.recording.recorder import AFTER_FLIGHT_S, LARGEST_MB
from companion.recording.retention import (
    DAY_S,
    KEPT_AT_ANY_AGE,
    LAST_NUMBER,
    NUMBER_MAX,
    LogLimits,
    Retention,
    flights_in,
    is_written,
    next_log_name,
    too_many,
)
from companion.recording.writer import BEGUN_ARMED, LogWriter
from companion.runtime import processes
from tests.recording.recorder_bench import Bench

NOW_S = 1_800_000_000.0


def flight(folder, name: str, age_days: float = 0.0, size: int = 1_000_000, photographs: int = 0):
    files = [folder / f"{name}.mcap"] + [folder / f"{name}_photo_{i:03d}.png" for i in range(photographs)]
    for file in files:
        file.write_bytes(bytes(size // len(files)))
        os.utime(file, (NOW_S - age_days * DAY_S,) * 2)


def names(flights) -> list[str]:
    return [f.log.stem for f in flights]


def test_a_flight_is_its_log_and_its_photographs(tmp_path):
    flight(tmp_path, "a", age_days=2, photographs=2)
    flight(tmp_path, "a_2", age_days=1)
    (tmp_path / "notes.txt").write_text("mine")
    first, second = flights_in(tmp_path)
    assert [f.name for f in first.files] == ["a.mcap", "a_photo_000.png", "a_photo_001.png"]
    assert [f.name for f in second.files] == ["a_2.mcap"]
    assert flights_in(tmp_path / "not there") == []


def test_the_oldest_go_until_the_rest_is_small_enough(tmp_path):
    for i in range(5):
        flight(tmp_path, f"f{i}", age_days=5 - i)
    assert names(too_many(flights_in(tmp_path), LogLimits(3.5, 0), NOW_S)) == ["f0", "f1"]
    assert too_many(flights_in(tmp_path), LogLimits(0, 0), NOW_S) == []


def test_what_is_too_old_goes_but_some_flights_stay_whatever_the_clock_says(tmp_path):
    for i in range(KEPT_AT_ANY_AGE + 3):
        flight(tmp_path, f"f{i:02d}", age_days=100 - i)
    limits = LogLimits(0, 98.5)
    assert names(too_many(flights_in(tmp_path), limits, NOW_S)) == ["f00", "f01"]
    assert len(too_many(flights_in(tmp_path), limits, NOW_S + 1e9)) == 3  # a clock that is years ahead


def test_files_go_one_at_a_time_and_not_those_of_the_flight_being_written(tmp_path):
    flight(tmp_path, "old", age_days=2, photographs=1)
    flight(tmp_path, "flown", age_days=1)
    flight(tmp_path, "now", age_days=9)  # the clock went backwards: it looks older than the other
    (tmp_path / "notes.txt").write_text("mine")
    retention = Retention(tmp_path, LogLimits(0.0001, 1), lambda: NOW_S)
    retention.begin(tmp_path / "now.mcap")
    left = []
    for _ in range(4):
        retention.step()
        left.append(len(list(tmp_path.iterdir())))
    assert left == [4, 3, 3, 3]
    assert {p.name for p in tmp_path.iterdir()} == {"flown.mcap", "now.mcap", "notes.txt"}


# --- the order does not depend on a clock

RIGHT, BEHIND, AHEAD = datetime(2027, 1, 15), datetime(2026, 3, 1), datetime(2031, 8, 9)


def numbered(folder, started: datetime, age_days: float = 0.0, **more) -> str:
    """The next flight of a folder, as the recorder names it; returns its name."""
    name = Path(next_log_name(folder, started)).stem
    flight(folder, name, age_days, **more)
    return name


def test_flights_of_a_day_whose_clock_was_wrong_do_not_go_before_older_ones(tmp_path):
    flight(tmp_path, "2027-01-01_10-00-00", age_days=14)  # by a former version, without a number
    old = [numbered(tmp_path, RIGHT, age_days=10 - i) for i in range(3)]
    today = [numbered(tmp_path, BEHIND, age_days=320), numbered(tmp_path, AHEAD, age_days=-1600)]
    today.append(numbered(tmp_path, RIGHT))
    in_order = ["2027-01-01_10-00-00", *old, *today]
    assert names(flights_in(tmp_path)) == in_order
    for kept in range(1, 7):
        gone = names(too_many(flights_in(tmp_path), LogLimits(kept + 0.5, 0), NOW_S))
        assert gone == in_order[: 7 - kept]


def test_a_flight_is_as_young_as_those_before_it(tmp_path):
    numbered(tmp_path, RIGHT, age_days=40)
    numbered(tmp_path, RIGHT, age_days=3)
    for i in range(15):
        numbered(tmp_path, BEHIND, age_days=320 - i)  # flown after the one three days ago
    numbered(tmp_path, AHEAD, age_days=-1600)
    gone = too_many(flights_in(tmp_path), LogLimits(0, 30), NOW_S)
    assert [flight.place[0] for flight in gone] == [1]
    assert not too_many(
        flights_in(tmp_path)[1:], LogLimits(0, 30), NOW_S - 320 * DAY_S
    )  # the clock is behind at present


def test_the_number_grows_when_the_logs_or_the_file_that_keeps_it_are_gone(tmp_path):
    assert [numbered(tmp_path, RIGHT) for _ in range(2)] == ["000001_2027-01-15_00-00-00", "000002_2027-01-15_00-00-00"]
    for log in tmp_path.glob("*.mcap"):
        log.rename(log.with_suffix(".moved"))
    for moved in tmp_path.glob("*.moved"):
        moved.unlink()
    assert numbered(tmp_path, BEHIND).startswith("000003_")
    (tmp_path / LAST_NUMBER).unlink()
    assert numbered(tmp_path, BEHIND).startswith("000004_")
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".mcap") == [LAST_NUMBER]


@pytest.mark.parametrize("content", [b"", b"\xff\x00", b"-5\n", b"9" * 400, b"1e9", "٣".encode(), b"7 8"])
def test_a_damaged_number_file_does_not_count(tmp_path, content):
    numbered(tmp_path, RIGHT)
    (tmp_path / LAST_NUMBER).write_bytes(content)
    assert numbered(tmp_path, RIGHT).startswith("000002_")
    assert (tmp_path / LAST_NUMBER).read_text() == "2\n"


def test_no_number_file_that_can_be_written_or_read_keeps_a_log_from_beginning(tmp_path):
    (tmp_path / LAST_NUMBER).mkdir()
    assert [numbered(tmp_path, RIGHT)[:7] for _ in range(2)] == ["000001_", "000002_"]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(LAST_NUMBER + ".")]
    (tmp_path / LAST_NUMBER).rmdir()
    os.mkfifo(tmp_path / LAST_NUMBER)
    assert numbered(tmp_path, RIGHT).startswith("000003_")
    (tmp_path / LAST_NUMBER).unlink()
    (tmp_path / LAST_NUMBER).symlink_to(tmp_path / "precious")
    (tmp_path / "precious").write_text("70")
    assert numbered(tmp_path, RIGHT).startswith("000004_")
    assert (tmp_path / "precious").read_text() == "70"
    (tmp_path / LAST_NUMBER).write_text(str(NUMBER_MAX))
    assert [numbered(tmp_path, d)[:7] for d in (RIGHT, BEHIND)] == ["000005_", "000006_"], "no count of flights"
    assert next_log_name(tmp_path / "not there", RIGHT).startswith("000001_")


@pytest.mark.parametrize(
    "stray",
    [
        "999999999999_2026-01-01_00-00-00.mcap",
        "000500_2026-01-01_00-00-00_notes.txt",
        "\u0661" * 6 + "_2026-01-01_00-00-00.mcap",
    ],
)
def test_a_stray_name_neither_freezes_the_numbers_nor_counts(tmp_path, stray):
    (tmp_path / stray).write_bytes(b"")
    names = [next_log_name(tmp_path, RIGHT) for _ in range(3)]
    assert [name[:7] for name in names] == ["000001_", "000002_", "000003_"]


def test_a_process_killed_while_it_writes_the_number_leaves_the_order(tmp_path, monkeypatch):
    numbered(tmp_path, RIGHT)
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        next_log_name(tmp_path, BEHIND)
    assert numbered(tmp_path, BEHIND).startswith("000002_") and numbered(tmp_path, BEHIND).startswith("000003_")


def test_the_flight_just_flown_stays_however_large(tmp_path):
    numbered(tmp_path, RIGHT)
    flown = numbered(tmp_path, RIGHT, size=9_000_000)
    (tmp_path / f"{flown}.flown").touch()
    waited = [numbered(tmp_path, RIGHT) for _ in range(3)]  # the computer was switched on three times, without a flight
    flights = flights_in(tmp_path)
    assert [flight.flown for flight in flights] == [False, True, False, False, False]
    assert [f.log.stem for f in flights if f not in too_many(flights, LogLimits(1.0, 0), NOW_S)] == [flown, waited[-1]]
    assert flights[1].files[0].suffix == ".mcap"  # deleted last, so that no mark of it is left


def test_the_parts_of_a_restarted_recorder_and_their_photographs_are_one_flight(tmp_path):
    numbered(tmp_path, RIGHT, age_days=3)
    flown = numbered(tmp_path, RIGHT, age_days=2, photographs=1)
    (tmp_path / f"{flown}.flown").touch()
    for part in (10, 2):
        flight(tmp_path, f"{flown}_{part}", age_days=1, photographs=1)
    numbered(tmp_path, RIGHT)
    flights = flights_in(tmp_path)
    assert len(flights) == 3 and [log.stem for log in flights[1].logs] == [flown, f"{flown}_2", f"{flown}_10"]
    assert flights[1].flown and flights[1].size_mb == pytest.approx(3.0)
    assert flights[1].ended_s == NOW_S - DAY_S and len(flights[1].files) == 7
    assert too_many(flights, LogLimits(1.0, 0), NOW_S) == [flights[0]]


def test_no_part_of_the_flight_that_is_written_is_deleted(tmp_path):
    numbered(tmp_path, RIGHT)
    flying = numbered(tmp_path, RIGHT)
    flight(tmp_path, f"{flying}_2")
    numbered(tmp_path, RIGHT)
    retention = Retention(tmp_path, LogLimits(0.1, 0), lambda: NOW_S)
    retention.begin(tmp_path / f"{flying}_2.mcap")
    for _ in range(9):
        retention.step()
    assert [log.stem[:6] for log in sorted(tmp_path.glob("*.mcap"))] == ["000002", "000002", "000003"]


def test_a_flight_in_which_the_computer_was_restarted_stays_whole(tmp_path):
    old, begun, went_on = (numbered(tmp_path, RIGHT, size=9_000_000) for _ in range(3))
    for name, text in ((old, ""), (begun, ""), (went_on, BEGUN_ARMED)):
        (tmp_path / f"{name}.flown").write_text(text)
    numbered(tmp_path, RIGHT)
    assert names(too_many(flights_in(tmp_path), LogLimits(1.0, 0), NOW_S)) == [old]


WRITING = """
import sys, time
from companion.recording.writer import LogWriter
writer = LogWriter(sys.argv[1], {})
print("begun", flush=True)
time.sleep(60)
"""


def test_what_another_process_writes_stays_until_it_ends_or_is_killed(tmp_path):
    log = tmp_path / "000001_2027-01-15_00-00-00.mcap"
    with subprocess.Popen([sys.executable, "-c", WRITING, str(log)], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"begun\n"
        for _ in range(2):
            numbered(tmp_path, RIGHT)
        retention = Retention(tmp_path, LogLimits(0.5, 0), lambda: NOW_S)

        def left() -> list[str]:
            retention.begin(tmp_path / "own.mcap")
            for _ in range(5):
                retention.step()
            return [path.name[:6] for path in sorted(tmp_path.glob("*.mcap"))]

        assert is_written(log) and left() == ["000001", "000003"]
        other.kill()
        other.wait()
    assert not is_written(log) and left() == ["000003"]


def test_a_log_is_marked_as_written_until_it_is_closed_also_after_a_moment_in_which_it_was_not(tmp_path, monkeypatch):
    def busy(*_):
        raise BlockingIOError

    with monkeypatch.context() as context:
        context.setattr("companion.recording.writer.fcntl.flock", busy)
        writer = LogWriter(tmp_path / "a.mcap", {})
    assert not is_written(tmp_path / "a.mcap")
    writer.flush()
    assert is_written(tmp_path / "a.mcap")
    writer.close()
    assert not is_written(tmp_path / "a.mcap") and is_written(tmp_path / "absent.mcap")


def test_the_recorder_of_an_aircraft_numbers_its_logs(tmp_path):
    root = Path(__file__).parents[2]
    files = root / "config/vehicles/f550.toml", root / "config/missions/bridge_hover.toml"
    options = processes._recorder_options(processes.Context(*files, "sim", tmp_path, tmp_path))
    following = options.next_log_writer()
    found = [options.log_writer.path.name[:7], following.path.name[:7]]
    following.close()
    options.log_writer.close()
    assert found == ["000001_", "000002_"]


# --- by the recorder


def test_each_flight_has_a_log_of_its_own(tmp_path):
    bench = Bench(tmp_path)
    bench.run(30, armed=False)
    assert bench.logs == 1  # waiting is no flight
    for n in (2, 3):
        bench.run(20, armed=True)
        bench.run(AFTER_FLIGHT_S - 1, armed=False)
        assert bench.logs == n - 1
        bench.run(2, armed=False)
        assert bench.logs == n
    bench.node.close()
    total = sum(len(read_log(tmp_path / f"{i}.mcap")["fcu_status"]) for i in (1, 2, 3))
    assert total == 4 * (30 + 2 * (20 + 10 + 1))


def test_a_link_that_is_lost_ends_no_log(tmp_path):
    bench = Bench(tmp_path)
    bench.run(5, armed=True)
    bench.run(60, armed=False, connected=False)  # the status of a lost link says nothing of the aircraft
    assert bench.logs == 1


def test_a_log_that_cannot_be_followed_goes_on(tmp_path):
    bench = Bench(tmp_path)
    bench.run(5, armed=True)
    bench.full = True
    bench.run(60, armed=False)
    assert bench.node.last_error == "no space" and 1 <= bench.node.errors <= 7
    bench.node.close()
    assert len(read_log(tmp_path / "1.mcap")["fcu_status"]) == 4 * 65


def test_old_flights_make_way_for_a_log_that_cannot_be_begun(tmp_path):
    bench = Bench(tmp_path, Retention(tmp_path, LogLimits(0.1, 0), lambda: NOW_S))
    bench.run(5, armed=True)
    bench.full = True
    for age_days, name in ((2, "old"), (1, "newer")):  # these are over the limit only since the recorder began
        flight(tmp_path, name, age_days)
    bench.run(AFTER_FLIGHT_S + 2, armed=False)
    assert bench.logs == 1 and [path.stem for path in sorted(tmp_path.glob("*.mcap"))] == ["1", "newer"]
    bench.node.close()


def test_the_next_log_begins_before_the_next_flight_once_there_is_space_again(tmp_path):
    bench = Bench(tmp_path)
    bench.run(5, armed=True)
    bench.full = True
    bench.run(AFTER_FLIGHT_S + 5, armed=False)
    bench.full, refused = False, bench.node.errors
    bench.run(AFTER_FLIGHT_S, armed=False)
    assert bench.logs == 2
    assert (bench.node.errors, bench.node.last_error) == (
        refused,
        "no space",
    )  # a count that falls hides the next error
    bench.run(30, armed=False)
    assert bench.logs == 2 and refused == 1
    bench.run(5, armed=True)
    bench.node.close()
    assert not any(row.armed for row in read_log(tmp_path / "1.mcap")["fcu_status"][-4:])
    assert len(read_log(tmp_path / "2.mcap")["fcu_status"]) >= 4 * 35


def test_waiting_for_days_does_not_make_one_endless_log(tmp_path, monkeypatch):
    bench = Bench(tmp_path)
    bench.run(20, armed=False)
    monkeypatch.setattr(LogWriter, "size_mb", property(lambda writer: LARGEST_MB + 1 if "1" in writer.path.stem else 0))
    bench.run(1, armed=True)
    assert bench.logs == 1  # not in the air
    bench.run(AFTER_FLIGHT_S + 1, armed=False)
    assert bench.logs == 2


@pytest.mark.parametrize("armed", [True, None])
def test_nothing_is_deleted_in_the_air_or_without_a_status_that_it_is_on_the_ground(tmp_path, armed):
    flight(tmp_path, "old", age_days=2)
    flight(tmp_path, "newer", age_days=1)
    bench = Bench(tmp_path, Retention(tmp_path, LogLimits(0.1, 0), lambda: NOW_S))
    bench.run(5, armed=bool(armed), connected=armed is not None)
    assert (tmp_path / "old.mcap").exists()
    bench.run(1, armed=False)
    assert not (tmp_path / "old.mcap").exists()


def test_a_flight_is_marked_when_the_aircraft_is_armed_and_stays_after_the_landing(tmp_path):
    flight(tmp_path, "old", age_days=2000)
    bench = Bench(tmp_path, Retention(tmp_path, LogLimits(0.001, 0), lambda: NOW_S))
    bench.run(5, armed=False)
    assert not (tmp_path / "1.flown").exists()
    bench.run(5, armed=True)
    assert (tmp_path / "1.flown").exists()
    bench.run(AFTER_FLIGHT_S + 5, armed=False)
    assert bench.logs == 2 and (tmp_path / "1.mcap").exists() and not (tmp_path / "old.mcap").exists()
    assert bench.node.errors == 0 and not (tmp_path / "2.flown").exists()
    bench.node.close()


def test_a_log_that_begins_with_an_armed_aircraft_says_so(tmp_path):
    bench = Bench(tmp_path, Retention(tmp_path, LogLimits(0, 0), lambda: NOW_S))
    bench.run(1, armed=False, connected=False)
    bench.run(5, armed=True)
    assert (tmp_path / "1.flown").read_text() == BEGUN_ARMED
    bench.run(AFTER_FLIGHT_S + 1, armed=False)
    bench.run(5, armed=True)
    assert (tmp_path / "2.flown").read_text() == ""
    bench.node.close()

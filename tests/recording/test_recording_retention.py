"""Old flights are deleted for new ones; the log being written stays, and nothing is deleted while in the air."""

import os

import pytest

from companion.core.config import ConfigError
from companion.core.messages import FcuStatus
from companion.recording.log import read_log
from companion.recording.recorder import AFTER_FLIGHT_S, LARGEST_MB, RecorderNode
from companion.recording.retention import DAY_S, KEPT_AT_ANY_AGE, LogLimits, Retention, flights_in, too_many
from companion.recording.writer import LogWriter

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
    flight(tmp_path, "now", age_days=9)  # the clock went backwards: it looks older than the other
    (tmp_path / "notes.txt").write_text("mine")
    retention = Retention(tmp_path, LogLimits(0.0001, 1), lambda: NOW_S)
    retention.begin(tmp_path / "now.mcap")
    left = []
    for _ in range(4):
        retention.step()
        left.append(len(list(tmp_path.iterdir())))
    assert left == [3, 2, 2, 2]
    assert {p.name for p in tmp_path.iterdir()} == {"now.mcap", "notes.txt"}


# --- by the recorder


def status(now_s: float, armed: bool, connected: bool) -> FcuStatus:
    return FcuStatus(
        stamp_s=now_s,
        connected=connected,
        armed=armed,
        mode="OFFBOARD",
        landed=not armed,
        battery_voltage_v=15.0,
        battery_remaining=0.5,
        rc_ok=True,
        rc_channels_us=(),
        gnss_ok=True,
        home_W=None,
        timesync_offset_s=0.0,
        timesync_rtt_s=0.002,
        link_errors=0,
    )


class Bench:
    """A recorder with a log for each flight, and time."""

    def __init__(self, folder, retention=None):
        self.folder, self.now_s, self.logs = folder, 100.0, 0
        self.full = False
        self.node = RecorderNode(self.next_writer(), None, self.next_writer, retention)

    def next_writer(self):
        if self.full:
            raise ConfigError("no space")
        self.logs += 1
        return LogWriter(self.folder / f"{self.logs}.mcap", {})

    def run(self, seconds: float, armed: bool, connected: bool = True):
        for _ in range(round(seconds * 4)):
            self.now_s += 0.25
            self.node.handle(status(self.now_s, armed, connected), self.now_s)
            self.node.step(self.now_s)


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
    bench = Bench(tmp_path, Retention(tmp_path, LogLimits(0.1, 0), lambda: NOW_S))
    bench.run(5, armed=bool(armed), connected=armed is not None)
    assert (tmp_path / "old.mcap").exists()
    bench.run(1, armed=False)
    assert not (tmp_path / "old.mcap").exists()

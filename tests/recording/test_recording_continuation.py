"""A recorder that is restarted in flight goes on with the log of its flight, and with no other."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from companion.core import provenance
from companion.core.messages import FcuAttitude
from companion.recording.continuation import PAUSE_MAX_S, flight_to_continue
from companion.recording.log import parts, read_log, side_cars
from companion.recording.recorder import AFTER_FLIGHT_S, RecorderNode
from companion.recording.retention import flights_in
from companion.recording.writer import LogWriter
from companion.runtime import processes
from tests.recording.recorder_bench import fly, kill, status

ROOT = Path(__file__).parents[2]
FILES = ROOT / "config/vehicles/f550.toml", ROOT / "config/missions/bridge_hover.toml"


@pytest.fixture
def start(tmp_path, monkeypatch) -> Callable[..., RecorderNode]:
    """Starts a recorder as the units of systemd do, at a companion time, in this or another start of the computer."""

    def started(now_s: float, boot_id: str = "this start", log: Path = tmp_path) -> RecorderNode:
        monkeypatch.setattr(provenance, "boot_id", lambda: boot_id)
        monkeypatch.setattr(processes, "monotonic_s", lambda: now_s)
        options = processes._recorder_options(processes.Context(*FILES, "sim", tmp_path, log))
        return RecorderNode(options.log_writer, None, options.next_log_writer, options.log_retention)

    return started


def names(folder: Path) -> list[str]:
    """Number and part of each log."""
    return [log.stem[:6] + log.stem[26:] for log in sorted(folder.glob("*.mcap"))]


def test_three_parts_are_read_as_one_flight(start, tmp_path):
    now_s = 1000.0
    for _ in range(3):
        node = start(now_s)
        node._writer.save_photograph(1, b"png", {"id": 1})
        now_s = fly(node, now_s, 20, armed=True)
        kill(node)
        now_s += 3.0
    assert names(tmp_path) == ["000001", "000001_2", "000001_3"]
    first, *following = sorted(tmp_path.glob("*.mcap"))
    log = read_log(first)
    stamps = [m.stamp_s for m in log["fcu_status"]]
    assert stamps == sorted(stamps) and len(stamps) >= 3 * 76 and stamps[-1] > 1060.0
    assert float(log.metadata["start_s"]) == 1000.0 and "continues" not in log.metadata
    lines = log.problems()
    assert [f"{part.name} goes on after" in line for part, line in zip(following, lines, strict=False)] == [True] * 2
    assert "its end is missing" in lines[-1] and len(lines) == 3
    assert len(side_cars(first)) == 3
    assert [len(flight.logs) for flight in flights_in(tmp_path)] == [3]
    assert "includes it" in read_log(following[0]).problems()[0]
    first.unlink()
    assert "its beginning" in read_log(following[0]).problems()[0]


def test_a_recorder_that_was_asked_to_end_in_flight_is_continued_too(start, tmp_path):
    node = start(1000.0)
    now_s = fly(node, 1000.0, 10, armed=True)
    node.close()
    node = start(now_s + 1)
    fly(node, now_s + 1, 5, armed=True)
    node.close()
    assert names(tmp_path) == ["000001", "000001_2"]
    assert not read_log(min(tmp_path.glob("*.mcap"))).truncated


def test_a_continued_flight_ends_after_its_landing_as_any_other(start, tmp_path):
    node = start(1000.0)
    kill_s = fly(node, 1000.0, 10, armed=True)
    kill(node)
    node = start(kill_s + 1)
    landed_s = fly(node, kill_s + 1, 5, armed=True)
    fly(node, landed_s, AFTER_FLIGHT_S + 2, armed=False)
    node.close()
    assert names(tmp_path) == ["000001", "000001_2", "000002"]
    following = max(tmp_path.glob("*.mcap"))
    assert parts(following) == [following] and read_log(following).problems() == []


@pytest.mark.parametrize(
    ("armed", "boot_id", "later_s"),
    [(False, "this start", 1.0), (True, "another start", 1.0), (True, "this start", PAUSE_MAX_S + 1), (True, "", 1.0)],
    ids=["on the ground", "the computer was restarted", "long ago", "a system without this number"],
)
def test_no_other_flight_is_continued(start, tmp_path, armed, boot_id, later_s):
    node = start(1000.0, "" if not boot_id else "this start")
    now_s = fly(node, 1000.0, 10, armed=True)
    now_s = fly(node, now_s, 5, armed)
    kill(node)
    node = start(now_s + later_s, boot_id)
    fly(node, now_s + later_s, 5, armed=True)
    node.close()
    assert names(tmp_path) == ["000001", "000002"]
    assert read_log(max(tmp_path.glob("*.mcap"))).metadata.get("continues") is None


def test_a_log_that_another_recorder_writes_is_not_continued(start, tmp_path):
    node = start(1000.0)
    now_s = fly(node, 1000.0, 10, armed=True)
    assert flight_to_continue(tmp_path, "this start", now_s) is None
    node.close()
    assert flight_to_continue(tmp_path, "this start", now_s) is not None


def test_a_recorder_killed_before_its_first_status_breaks_no_flight(start, tmp_path):
    node = start(1000.0)
    now_s = fly(node, 1000.0, 10, armed=True)
    kill(node)
    kill(start(now_s + 1))
    (first,) = (log for log in tmp_path.glob("*.mcap") if not log.stem.endswith("_2"))
    first.with_stem(first.stem + "_3").write_bytes(b"")  # killed before it had written anything
    kill(start(now_s + 2))
    assert names(tmp_path) == ["000001", "000001_2", "000001_3", "000001_4"]
    assert [part.stem[26:] for part in parts(first)] == ["", "_2", "_4"]


def test_a_first_part_that_is_cut_costs_only_what_it_has_lost(start, tmp_path):
    node = start(1000.0)
    now_s = fly(node, 1000.0, 20, armed=True)
    kill(node)
    (first,) = tmp_path.glob("*.mcap")
    whole = first.read_bytes()
    first.write_bytes(whole[:-200])
    node = start(now_s + 1)
    fly(node, now_s + 1, 10, armed=True)
    node.close()
    log = read_log(first)
    assert names(tmp_path) == ["000001", "000001_2"] and log["fcu_status"][-1].stamp_s > now_s + 10
    assert not log.truncated and len(log.problems()) == 1
    first.write_bytes(b"damaged" * 999)
    assert flight_to_continue(tmp_path, "this start", now_s + 11) is not None, "the second part says enough"
    first.with_stem(first.stem + "_2").write_bytes(b"damaged" * 999)
    assert flight_to_continue(tmp_path, "this start", now_s + 11) is None


def test_damage_at_any_place_of_a_log_raises_nothing(start, tmp_path):
    node = start(1000.0)
    now_s = fly(node, 1000.0, 20, armed=True)
    kill(node)
    (log,) = tmp_path.glob("*.mcap")
    whole, rng = log.read_bytes(), random.Random(1)
    for _ in range(50):
        broken = bytearray(whole)
        for _ in range(20):
            broken[rng.randrange(len(whole))] = rng.randrange(256)
        log.write_bytes(broken[: rng.randrange(len(whole))])
        flight_to_continue(tmp_path, "this start", now_s)


def test_one_missing_part_hides_none_behind_it(tmp_path):
    for number, continued in ((1, ""), (2, "other.mcap"), (4, "flight.mcap"), (12, "flight.mcap")):
        name = "flight.mcap" if number == 1 else f"flight_{number}.mcap"
        writer = LogWriter(tmp_path / name, {"continues": continued} if continued else {})
        writer.put(
            "fcu_attitude", FcuAttitude(stamp_s=float(number), q_WB=(1.0, 0.0, 0.0, 0.0), omega_B=(0.0,) * 3), 1.0
        )
        writer.close()
    (tmp_path / "flight_13.mcap").write_bytes(b"no log")
    assert [part.stem for part in parts(tmp_path / "flight.mcap")] == ["flight", "flight_4", "flight_12"]
    assert [m.stamp_s for m in read_log(tmp_path / "flight.mcap")["fcu_attitude"]] == [1.0, 4.0, 12.0]


def test_a_log_file_of_another_start_of_the_computer_is_not_continued(start, tmp_path):
    log = tmp_path / "flight.mcap"
    for boot_id in ("one", "one", "two"):
        kill(start(1000.0, boot_id, log))
    assert [part.stem for part in parts(log)] == ["flight", "flight_2"]
    assert (tmp_path / "flight_3.mcap").exists()


def test_the_end_of_a_long_log_is_found_quickly(start, tmp_path):
    node = start(1000.0)
    now_s = 1000.0
    for i in range(1200):
        now_s += 1.0
        node.handle(status(now_s, armed=True), now_s)
        for k in range(3):
            node.handle(
                FcuAttitude(stamp_s=now_s, seq=i + k, q_WB=(1.0, 0.0, 0.0, 0.0), omega_B=(0.1, 0.2, 0.3)), now_s
            )
        node.step(now_s)
    kill(node)
    began_s = time.process_time()
    assert flight_to_continue(tmp_path, "this start", now_s) is not None
    assert time.process_time() - began_s < 0.5

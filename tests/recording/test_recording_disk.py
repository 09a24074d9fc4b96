"""What a full disk, a slow one and a loss of power take from a log and its photographs."""

import errno
import os
import threading
import time
from collections.abc import Callable, Hashable
from pathlib import Path

import pytest

from companion.core.messages import FcuAttitude
from companion.recording import writer as writer_module
from companion.recording.disk import DiskThread
from companion.recording.log import read_log, side_cars
from companion.recording.recorder import AFTER_FLIGHT_S, RecorderNode
from companion.recording.retention import LogLimits, Retention
from companion.recording.writer import LogWriter
from tests.recording.recorder_bench import Bench, fly


class FullDisk:
    """A disk that refuses all bytes while ``full``."""

    def __init__(self, monkeypatch) -> None:
        self.full, real_write, real_open = False, os.write, Path.open

        def write(descriptor: int, data: bytes) -> int:
            self._refuse()
            return real_write(descriptor, data)

        def opened(path: Path, mode: str = "r", *more, **others):
            if "w" in mode:
                self._refuse()
            return real_open(path, mode, *more, **others)

        monkeypatch.setattr(writer_module.os, "write", write)
        monkeypatch.setattr(Path, "open", opened)

    def _refuse(self) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_is_full_at_the_landing_costs_no_message(tmp_path, monkeypatch):
    disk, bench = FullDisk(monkeypatch), Bench(tmp_path)
    bench.run(50, armed=True)
    disk.full = True
    bench.run(50, armed=True)
    bench.run(AFTER_FLIGHT_S + 5, armed=False)
    assert bench.logs == 2 and bench.node.errors > 0
    errors = bench.node.errors
    disk.full = False
    bench.run(5, armed=False)
    bench.node.close()
    assert bench.node.errors == errors and bench.node.last_error.endswith("No space left on device")
    first, second = (read_log(tmp_path / f"{i}.mcap") for i in (1, 2))
    assert not first.truncated and len(first["fcu_status"]) + len(second["fcu_status"]) == 4 * 120
    assert first["fcu_status"][-1].stamp_s == pytest.approx(100 + 110, abs=0.6)


def test_while_the_last_log_waits_for_the_disk_no_third_one_is_begun(tmp_path, monkeypatch):
    disk, bench = FullDisk(monkeypatch), Bench(tmp_path)
    for _ in range(3):
        bench.run(20, armed=True)
        disk.full = True
        bench.run(AFTER_FLIGHT_S + 2, armed=False)
    assert bench.logs == 2
    disk.full = False
    bench.run(2, armed=False)
    assert bench.logs == 3
    bench.node.close()
    assert sum(len(read_log(tmp_path / f"{i}.mcap")["fcu_status"]) for i in (1, 2, 3)) == 4 * (3 * 32 + 2)


def test_old_flights_are_deleted_for_a_log_that_waits_for_space(tmp_path, monkeypatch):
    old = tmp_path / "old.mcap"
    old.write_bytes(bytes(1_000_000))
    disk = FullDisk(monkeypatch)
    monkeypatch.setattr(FullDisk, "_refuse", lambda self: _no_space() if self.full and old.exists() else None)
    bench = Bench(tmp_path, Retention(tmp_path, LogLimits(0.1, 0)))
    assert old.exists(), "the newest flight of the folder stays"
    bench.run(20, armed=True)
    disk.full = True
    bench.run(AFTER_FLIGHT_S + 5, armed=False)
    bench.node.close()
    assert not old.exists()
    assert sum(len(read_log(tmp_path / f"{i}.mcap")["fcu_status"]) for i in (1, 2)) == 4 * 35


def _no_space() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_what_a_disk_refuses_to_the_end_is_counted(tmp_path, monkeypatch):
    disk = FullDisk(monkeypatch)
    writer = LogWriter(tmp_path / "flight.mcap", {})
    disk.full = True
    writer.put("fcu_attitude", FcuAttitude(stamp_s=1.0, q_WB=(1.0, 0.0, 0.0, 0.0), omega_B=(0.0, 0.0, 0.0)), 1.0)
    writer.close()
    assert writer.last_error.endswith("bytes could not be written and are lost")


def test_photographs_wait_for_a_full_disk_and_keep_their_order(tmp_path, monkeypatch):
    disk = FullDisk(monkeypatch)
    monkeypatch.setattr(writer_module, "PHOTOGRAPHS_MAX_BYTES", 40)
    writer = LogWriter(tmp_path / "flight.mcap", {})
    disk.full = True
    for number, png in ((1, b"first"), (2, b"second"), (2, b"its id again"), (3, bytes(30))):
        writer.save_photograph(number, png, {"id": number})
    assert writer.dropped == 1 and writer.errors == 4 and not side_cars(tmp_path / "flight.mcap")
    disk.full = False
    writer.flush()
    assert [path.with_suffix(".png").read_bytes() for path in side_cars(tmp_path / "flight.mcap")] == [
        b"first",
        b"second",
        b"its id again",
    ]
    assert writer.unwritten_bytes == 0 and not list(tmp_path.glob("*.part"))
    writer.close()


# --- loss of power


class DirectSynchronised:
    """Every job at once, and synchronised."""

    synchronised = True

    def run(self, key: Hashable, job: Callable[[], None]) -> None:
        job()

    def wait(self, timeout_s: float) -> bool:
        return True


@pytest.fixture
def calls(monkeypatch) -> list[str]:
    """What happens on the disk, in order."""
    found: list[str] = []
    replace = Path.replace

    def note(descriptor: int) -> None:
        target = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        found.append("folder" if target.is_dir() else f"content of {target.suffix}")

    def replaced(path: Path, target: Path) -> Path:
        found.append(f"name of {target.suffix}")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "fdatasync", note)
    monkeypatch.setattr(Path, "replace", replaced)
    return found


def test_a_photograph_has_its_names_at_once_and_then_comes_onto_the_disk(tmp_path, calls):
    writer = LogWriter(tmp_path / "flight.mcap", {}, disk=DirectSynchronised())
    assert calls == ["folder", "content of .mcap"]
    calls.clear()
    writer.save_photograph(1, b"png", {})
    one = ["name of .png", "name of .json", "content of .png", "content of .json", "folder"]
    assert calls == one and writer.errors == 0


def test_every_second_reaches_the_disk_and_the_landing_at_once(tmp_path, calls):
    node = RecorderNode(LogWriter(tmp_path / "flight.mcap", {}, disk=DirectSynchronised()))
    now_s = fly(node, 100.0, 20, armed=True)
    assert 19 <= calls.count("content of .mcap") <= 22
    before = len(calls)
    fly(node, now_s, 0.25, armed=False)
    assert len(calls) == before + 1
    assert not read_log(tmp_path / "flight.mcap")["fcu_status"][-1].armed


def test_a_log_that_got_nothing_new_is_not_synchronised_again(tmp_path, calls):
    writer = LogWriter(tmp_path / "flight.mcap", {}, disk=DirectSynchronised())
    calls.clear()
    for _ in range(5):
        writer.flush()
    assert calls == []


def test_a_simulated_flight_synchronises_nothing(tmp_path, calls):
    node = RecorderNode(LogWriter(tmp_path / "flight.mcap", {}))
    fly(node, 100.0, 5, armed=True)
    node._writer.save_photograph(1, b"png", {})
    node.close()
    assert calls == ["name of .png", "name of .json"]


def test_a_slow_disk_neither_stops_the_recorder_nor_piles_up_work(tmp_path, monkeypatch):
    go_on, begun = threading.Event(), []

    def slow(descriptor: int) -> None:
        begun.append(descriptor)
        assert go_on.wait(20.0)

    monkeypatch.setattr(os, "fdatasync", slow)
    monkeypatch.setattr(os, "fsync", slow)
    disk, threads = DiskThread(), threading.active_count()
    node = RecorderNode(LogWriter(tmp_path / "flight.mcap", {}, disk=disk))
    began_s = time.monotonic()
    fly(node, 100.0, 60, armed=True)
    node._writer.save_photograph(1, b"png", {})
    assert time.monotonic() - began_s < 10.0
    assert threading.active_count() == threads + 1 and len(begun) == 1 and len(disk._jobs) <= 3
    assert len(read_log(tmp_path / "flight.mcap")["fcu_status"]) > 4 * 58, "with the operating system all the same"
    go_on.set()
    node.close()
    assert disk.wait(10.0) and len(begun) < 12 and node.errors == 0
    assert not read_log(tmp_path / "flight.mcap").truncated and side_cars(tmp_path / "flight.mcap")


def test_photographs_behind_a_slow_card_survive_the_end_of_the_process(tmp_path, monkeypatch):
    go_on = threading.Event()
    monkeypatch.setattr(os, "fdatasync", lambda _: go_on.wait(20.0))
    monkeypatch.setattr(os, "fsync", lambda _: go_on.wait(20.0))
    path = tmp_path / "flight.mcap"
    writer = LogWriter(path, {}, disk=DiskThread())
    for number in (1, 2, 3):
        writer.save_photograph(number, b"png" * number, {"id": number})
        names = [side_car.stem for side_car in side_cars(path)]  # as after SIGKILL
        assert names[-1] == f"flight_photo_{number:03d}" and len(names) == number
    writer.close(0.1)
    assert writer.errors == 0 and writer.unwritten_bytes == 0 and not list(tmp_path.glob("*.part"))
    assert [side_car.with_suffix(".png").read_bytes() for side_car in side_cars(path)] == [
        b"png" * i for i in (1, 2, 3)
    ]
    go_on.set()


def test_a_photograph_that_is_deleted_keeps_no_other_from_the_disk(tmp_path, calls, monkeypatch):
    jobs: list[Callable[[], None]] = []
    monkeypatch.setattr(DirectSynchronised, "run", lambda self, key, job: jobs.append(job))
    writer = LogWriter(tmp_path / "flight.mcap", {}, disk=DirectSynchronised())
    writer.save_photograph(1, b"png", {})
    writer.save_photograph(2, b"png", {})
    (tmp_path / "flight_photo_001.png").unlink()
    calls.clear()
    jobs[-1]()
    assert calls == ["content of .json", "content of .png", "content of .json", "folder"]
    writer.flush()
    assert writer.errors == 1 and writer.last_error.endswith("No such file or directory")


def test_a_disk_that_hangs_does_not_keep_the_process_from_its_end(tmp_path, monkeypatch):
    go_on = threading.Event()
    monkeypatch.setattr(os, "fdatasync", lambda _: go_on.wait(20.0))
    node = RecorderNode(LogWriter(tmp_path / "flight.mcap", {}, disk=DiskThread()))
    fly(node, 100.0, 5, armed=True)
    began_s = time.monotonic()
    node.close()
    assert time.monotonic() - began_s < 2.0
    assert not read_log(tmp_path / "flight.mcap").truncated
    go_on.set()


def test_a_disk_that_fails_is_counted_and_goes_on(tmp_path, monkeypatch):
    def broken(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as context:
        context.setattr(os, "fdatasync", broken)
        disk = DiskThread()
        node = RecorderNode(LogWriter(tmp_path / "flight.mcap", {}, disk=disk))
        now_s = fly(node, 100.0, 5, armed=True)
        assert disk.wait(10.0)
    fly(node, now_s, 2, armed=True)
    node.close()
    assert node.errors >= 1 and node.last_error == f"{tmp_path / 'flight.mcap'}: Input/output error"
    assert not read_log(tmp_path / "flight.mcap").truncated


def test_a_file_is_closed_after_what_the_disk_has_to_do_with_it(tmp_path):
    before = set(os.listdir("/proc/self/fd"))
    disk = DiskThread()
    for i in range(50):
        node = RecorderNode(LogWriter(tmp_path / f"{i}.mcap", {}, disk=disk))
        fly(node, 100.0, 3, armed=True)
        node.close()
    assert disk.wait(10.0) and node.errors == 0
    assert len(set(os.listdir("/proc/self/fd")) - before) <= 1

"""One process for each flight: whatever happens to a flight is a row with its cause, and the next one flies."""

import errno
import json
import os
import signal
import threading
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from companion.core.errors import UserError
from companion.recording.log import read_log
from sitl.campaign import cluster, launcher
from sitl.campaign.attempt import Attempt
from sitl.campaign.flights import plan_campaign
from sitl.campaign.fly import NotFlown, fly_flight
from sitl.campaign.project import project_here
from sitl.campaign.run import fly_here
from sitl.campaign.slot import Slot, SlotClosed
from sitl.scenario import SensorKind
from tests.campaign.small_campaigns import MASS, SHORT, campaign, draw

CLOCKS = ("solve_ms", "realtime_factor")  # figures that are measured on the machine


@pytest.fixture(scope="module")
def flights(tmp_path_factory):
    fault = draw("fault", distribution="fixed", value=[{"kind": "gust", "at_s": 0.5, "value": [2.0, 0.0, 0.0]}])
    path = campaign(tmp_path_factory.mktemp("campaign"), SHORT, MASS, fault)
    return plan_campaign(path).flights


@pytest.fixture(scope="module")
def slot():
    made = Slot(project_here())
    yield made
    made.close()


def changed(flight, **scenario):
    """The flight with other values in its scenario."""
    files = msgspec.structs.replace(
        flight.files, scenario=flight.files.scenario | scenario, airframe=None, autopilot=None
    )
    return msgspec.structs.replace(flight, files=files)


def with_log(flight, folder):
    return msgspec.structs.replace(flight, log=str(folder / "00001.mcap"))


def launchers():
    """The launchers below this process and their forks, the flights."""

    def launches(process):
        try:
            return "sitl.campaign.launcher" in " ".join(process.cmdline())
        except psutil.NoSuchProcess:  # Ended since it was listed, or a zombie.
            return False

    return [process for process in psutil.Process().children(recursive=True) if launches(process)]


def test_a_flight_is_the_same_in_a_process_of_its_own_and_in_this_one(flights, slot):
    apart, (_, here) = slot.fly(flights[1]), fly_flight(flights[1])
    here = json.loads(json.dumps(here))
    results = [{k: v for k, v in row["result"].items() if k not in CLOCKS} for row in (apart, here)]
    assert results[0] == results[1] and results[0]["duration_s"] == 1.5
    for name in ("flight", "fields", "seed", "outcome", "cause", "commit", "source_hash", "fingerprints"):
        assert apart[name] == here[name], name
    assert apart["outcome"] == "failed" and apart["cause"] == "the time of the scenario ran out"
    assert apart["memory_mb"] > 50 and apart["wall_s"] > 0.1 and 0.1 < apart["cpu_s"] < 60


def test_a_flight_whose_numbers_the_world_refuses_is_a_row_with_its_line(flights, slot):
    row = slot.fly(changed(flights[0], fcu_parameters={"NO_SUCH": 1}))
    assert row["outcome"] == "crashed" and "NO_SUCH = 1: no such parameter" in row["cause"]
    assert row["result"].keys() == {"sensors", "drawn"}


def test_an_error_of_the_program_is_a_row_with_its_trace(flights, slot, tmp_path):
    row = slot.fly(msgspec.structs.replace(with_log(flights[0], tmp_path), seed=-1))
    assert row["outcome"] == "crashed" and row["flight"] == 1 and row["cause"].startswith("ValueError in "), row[
        "cause"
    ]
    assert "Traceback" in row["trace"]


@pytest.mark.parametrize("kind", ["log", "files"])
def test_a_flight_that_cannot_be_begun_is_no_row(flights, slot, kind):
    """The plan has accepted its numbers: it is to be flown elsewhere, or later."""
    refused, said = {
        "log": (
            with_log(flights[0], Path("/proc/no/such/folder")),
            "flight 1: /proc/no/such/folder: cannot be written",
        ),
        "files": (changed(flights[0], airframe="f505"), "flight 1: .*f505: no such file"),
    }[kind]
    with pytest.raises(NotFlown, match=said):
        slot.fly(refused)
    assert slot.fly(flights[0])["outcome"] == "failed", "the next one flies"


@pytest.mark.parametrize(("number", "refused"), [(errno.ENOSPC, True), (errno.EROFS, True), (errno.ENOENT, False)])
def test_a_failure_of_the_machine_is_no_row(flights, monkeypatch, number, refused):
    def fails(*_, **__):
        raise OSError(number, os.strerror(number), "/tmp/x")

    monkeypatch.setattr(launcher, "fly_flight", fails)
    row = launcher._row(flights[0], lambda drawn: None)
    assert (row == {"refused": f"/tmp/x: {os.strerror(number).lower()}"}) == refused
    assert ("outcome" in row and "Traceback" in row["trace"]) != refused


def test_a_launcher_without_space_for_a_flight_says_so(flights, monkeypatch):
    def fails():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tempfile.TemporaryFile", fails)
    assert launcher.answer_to(flights[0], None) == {"refused": "flight 1: no space left on device"}


def test_a_launcher_that_is_ended_again_and_again_is_no_result_of_the_flight(flights, monkeypatch):
    monkeypatch.setattr(Slot, "_started", lambda self: None)
    monkeypatch.setattr("sitl.campaign.slot._asked", lambda process, line: None)
    with pytest.raises(NotFlown, match=r"flight 2: the process that starts flights was ended, 2 times"):
        Slot(project_here()).fly(flights[1])


class Future:
    """Of a cluster, as far as a campaign looks at it."""

    def __init__(self, key, row=None, error=None):
        self.key, self.status, self._row, self._error = key, "finished" if row else "error", row, error

    def add_done_callback(self, callback):
        callback(self)

    def result(self):
        return json.dumps(self._row).encode()

    def exception(self):
        return self._error


def test_flights_that_are_lost_with_their_workers_have_no_row_and_the_others_fly(flights):
    class KilledWorker(Exception):
        pass

    class Client:
        status = "running"

        def submit(self, task, flight, project, key, pure):
            number = json.loads(flight)["number"]
            return Future(key, {"flight": number} if number == 2 else None, KilledWorker())

    rows = cluster._as_finished(Client(), flights, "tcp://host:1")
    assert next(rows) == {"flight": 2}
    with pytest.raises(UserError, match=r"2 flights were not flown, the first of them flight 1: its workers were lost"):
        next(rows)


def test_a_flight_that_takes_too_long_or_too_much_memory_is_ended(flights, slot):
    endless = changed(flights[0], duration_max_s=3000.0)
    row = slot.fly(msgspec.structs.replace(endless, wall_max_s=0.5))
    assert (row["outcome"], row["cause"]) == ("crashed", "not finished within 0.5 s") and row["wall_s"] >= 0.5
    row = slot.fly(msgspec.structs.replace(endless, memory_max_mb=20.0))
    assert (row["outcome"], row["cause"]) == ("crashed", "more than 20 MB of memory")


def ended_by(flight, action, slot):
    """The answer to a flight while its processes get a signal once the flight has begun, and its log, if it has one."""
    logs = Path(flight.log).parent

    def act():
        deadline = time.monotonic() + 60.0
        while time.monotonic() < deadline:
            forks = [process for process in launchers() if process.ppid() != os.getpid()]
            if forks and (not flight.log or any(logs.rglob("*.mcap"))):
                action(forks[0])
                return
            time.sleep(0.02)

    thread = threading.Thread(target=act)
    thread.start()
    try:
        return slot.fly(flight)
    finally:
        thread.join()


@pytest.mark.parametrize("number", [pytest.param(signal.SIGSEGV, marks=pytest.mark.verify), signal.SIGKILL])
def test_a_flight_that_dies_is_a_row_and_the_next_one_flies(flights, slot, number):
    row = ended_by(changed(flights[2], duration_max_s=3000.0), lambda fork: fork.send_signal(number), slot)
    assert (row["outcome"], row["cause"], row["flight"]) == ("crashed", f"its process was ended by {number.name}", 3)
    if number == signal.SIGKILL:
        assert slot.fly(flights[0])["outcome"] == "failed"


def test_a_flight_that_crashes_says_what_was_drawn_for_it(flights, slot, tmp_path):
    """In whatever way; a flight that is refused before the draw has nothing to say."""
    flight = msgspec.structs.replace(flights[0], sensors=SensorKind.UNKIND)
    (tmp_path / "files").mkdir()
    world = msgspec.to_builtins(flight.in_its_world(flight.loaded(tmp_path / "files")).drawn)
    endless = with_log(changed(flight, duration_max_s=3000.0), tmp_path)
    killed = ended_by(endless, lambda fork: fork.send_signal(signal.SIGKILL), slot)
    refused = slot.fly(msgspec.structs.replace(flight, stack="nonsense"))
    for row in (killed, refused):
        drawn = row["result"]["drawn"] | {"gnss_jumps": world["gnss_jumps"]}  # as many as there is time for
        assert row["outcome"] == "crashed" and drawn == json.loads(json.dumps(world)), row


def test_the_end_of_a_slot_ends_its_flight(flights):
    own = Slot(project_here())
    forks = []

    def close(fork):
        forks.append(fork)
        own.close()

    with pytest.raises(SlotClosed):
        ended_by(changed(flights[0], duration_max_s=3000.0), close, own)
    _, alive = psutil.wait_procs(forks, timeout=20.0)
    assert forks and not alive


def test_another_version_of_the_project_flies_nothing(flights):
    own = Slot(msgspec.structs.replace(project_here(), source_hash="0" * 64))
    with pytest.raises(UserError, match="another version of the project: companion"):
        own.fly(flights[0])
    own.close()


@pytest.mark.verify
def test_a_launcher_that_is_killed_is_replaced(flights):
    own = Slot(project_here())
    row = ended_by(flights[0], lambda fork: psutil.Process(fork.ppid()).kill(), own)
    assert row["outcome"] == "failed", "the flight was flown again, to its end"
    own.close()


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_an_attempt_that_was_ended_does_not_prevent_the_flight_with_a_log(flights, tmp_path):
    """The launcher is killed with the flight, as by a power cut; it is started again, and its log has the flight's name."""
    own = Slot(project_here())
    flight = with_log(changed(flights[0], duration_max_s=4.0), tmp_path)
    row = ended_by(flight, lambda fork: psutil.Process(fork.ppid()).kill(), own)
    own.close()
    assert row["outcome"] == "failed" and row["log"] == flight.log and row["log_problem"] == "", row
    left, kept = names(tmp_path)
    assert left.startswith("00001-") and left.endswith(".part/00001.mcap") and kept == "00001.mcap"
    assert read_log(flight.log, ["truth"])["truth"][-1].stamp_s > 3.0


def test_a_finished_log_is_never_replaced(flights, slot, tmp_path):
    flight = with_log(flights[0], tmp_path)
    (tmp_path / "00001.mcap").write_bytes(b"of another campaign, or of a flight whose row was not kept")
    row = slot.fly(flight)
    assert row["outcome"] == "failed" and row["log_problem"] == ""
    assert (tmp_path / "00001.mcap").read_bytes().startswith(b"of another")
    apart = Path(row["log"])
    assert apart.name == "00001.mcap" and apart.parent.parent == tmp_path and apart.parent.suffix == ""
    assert len(names(tmp_path)) == 2 and apart.stat().st_size > 10_000


def test_a_flight_that_crashed_keeps_its_log(flights, slot, tmp_path):
    endless = with_log(changed(flights[0], duration_max_s=3000.0), tmp_path)
    row = ended_by(endless, lambda fork: fork.send_signal(signal.SIGKILL), slot)
    assert row["outcome"] == "crashed" and row["log"] == endless.log and names(tmp_path) == ["00001.mcap"]


def test_the_end_of_a_campaign_removes_the_logs_of_its_unfinished_flights(flights, tmp_path):
    own = Slot(project_here())
    with pytest.raises(SlotClosed):
        ended_by(with_log(changed(flights[0], duration_max_s=3000.0), tmp_path), lambda fork: own.close(), own)
    assert names(tmp_path) == []


def test_photographs_stay_beside_their_log(tmp_path):
    taken = {"00001.mcap": b"log", "00001_photo_001.png": b"picture", "00001_photo_001.json": b"{}"}

    def flown():
        attempt = Attempt(tmp_path / "00001.mcap")
        attempt.log.parent.mkdir()
        for name, content in taken.items():
            attempt.log.with_name(name).write_bytes(content)
        return attempt.keep()

    assert flown() == tmp_path / "00001.mcap" and names(tmp_path) == sorted(taken)
    (tmp_path / "00001.mcap").unlink()  # the photographs without their log are not replaced either
    apart = flown()
    assert apart.parent.parent == tmp_path and sorted(names(apart.parent)) == sorted(taken)
    assert not (tmp_path / "00001.mcap").exists() and not list(tmp_path.glob("*.part"))


@pytest.mark.verify
def test_several_jobs_fly_each_flight_once(flights):
    before = launchers()
    rows = list(fly_here(flights, 2))
    assert sorted(row["flight"] for row in rows) == [1, 2, 3]
    assert launchers() == before

"""What happens to the manager or around it stops no process; and its processes end with it. Fake processes, fake time."""

import errno
import io
import math
import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest
from rich.console import Console
from rich.table import Table

from companion.cli import _console
from companion.core.clock import monotonic_s
from companion.core.errors import StartRefused
from companion.core.messages import MissionStatus, SafetyEvent
from companion.runtime import fly, manager
from companion.runtime.display import Display, show
from companion.runtime.end_requests import END, EndRequests, interrupts_ignored
from companion.runtime.manager import RESTART_PAUSE_S, RESTART_WINDOW_S, Manager, wait_until
from companion.runtime.parent import PARENT_PID, Parent, tied_to_this_process

NAMES = ("fcu", "recorder")


class FakeProcess:
    """A process that a test ends."""

    all: list["FakeProcess"]
    fails = 0  # starts that the operating system refuses

    def __init__(self, command, **settings):
        if FakeProcess.fails:
            FakeProcess.fails -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        self.name, self.settings, self.status, self.pid = command[0], settings, None, 1_000_000 + len(self.all)
        self.signals: list[int] = []
        self.obeys = True
        self.all.append(self)

    def poll(self):
        return self.status

    def send_signal(self, number):
        self.signals.append(number)
        if self.obeys:
            self.status = -number

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout=None):
        if self.status is None:
            raise subprocess.TimeoutExpired(self.name, timeout)
        return self.status


class Clock:
    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(manager, "monotonic_s", clock)
    monkeypatch.setattr(manager.subprocess, "Popen", FakeProcess)
    monkeypatch.setattr(FakeProcess, "all", [], raising=False)
    monkeypatch.setattr(FakeProcess, "fails", 0)
    return clock


@pytest.fixture
def supervised(clock, tmp_path):
    """A manager whose two fake processes run."""
    running = Manager({name: [name] for name in NAMES}, tmp_path / "processes")
    running.start()
    yield running
    running.stop(patience_s=0.0)


def newest(name: str) -> FakeProcess:
    return next(process for process in reversed(FakeProcess.all) if process.name == name)


def test_a_process_is_started_again_without_its_log_folder(supervised, tmp_path):
    shutil.rmtree(tmp_path / "processes")
    newest("recorder").status = -9
    supervised.check()
    supervised.check()
    assert newest("recorder").status is None and newest("fcu").status is None
    assert supervised.events == ["recorder ended by signal 9, perhaps for lack of memory, starting it again"]


def test_a_process_is_started_again_where_no_log_can_be_made(supervised, tmp_path):
    shutil.rmtree(tmp_path / "processes")
    (tmp_path / "processes").write_text("a file in the place of the folder")
    newest("recorder").status = 1
    supervised.check()
    supervised.check()
    assert newest("recorder").status is None
    assert supervised.last_line("recorder") == ""


def test_a_start_that_fails_in_flight_is_tried_again_and_ends_nothing(supervised, clock):
    newest("recorder").status = 1
    FakeProcess.fails = 2
    for _ in range(100):
        clock.now_s += 0.1
        supervised.check()
    assert newest("recorder").status is None and supervised.children[1].restarts == 3
    assert newest("fcu").status is None
    assert supervised.events[1] == "recorder cannot be started: Too many open files, trying again"


def test_a_start_that_fails_before_the_flight_is_refused(clock, tmp_path):
    FakeProcess.fails = 1
    refused = Manager({"fcu": ["fcu"]}, tmp_path)
    with pytest.raises(StartRefused, match="fcu cannot be started: Too many open files"):
        refused.start()
    refused.stop()


def test_exit_status_2_after_the_first_step_is_a_death_and_no_refusal(supervised):
    supervised.children[0].notifies = True
    newest("fcu").status = 2
    supervised.check()
    assert supervised.events == ["fcu ended with status 2, starting it again"]


def test_a_process_that_ends_again_and_again_is_started_at_a_bounded_rate_and_reported_seldom(supervised, clock):
    for _ in range(2400):
        clock.now_s += 0.1
        newest("recorder").status = 1
        supervised.check()
    starts = sum(process.name == "recorder" for process in FakeProcess.all)
    assert 240 / RESTART_PAUSE_S[-1] * 0.8 < starts < 240 / RESTART_PAUSE_S[-1] + 10
    assert len(supervised.events) <= len(RESTART_PAUSE_S) + 240 / RESTART_WINDOW_S
    assert supervised.events[-1].endswith("starting it again, every 2 s")
    assert len(supervised.children[1].starts) <= RESTART_WINDOW_S / RESTART_PAUSE_S[-1] + 1


def test_the_last_line_of_a_process_is_printable_whatever_its_bytes_are(supervised, tmp_path):
    (tmp_path / "processes/fcu.log").write_bytes(b"x" * 1_000_000 + b"\nfcu: \xff\x1b[31m[/bold]\x9b\n")
    newest("fcu").status = 1
    supervised.check()
    assert supervised.events == ["fcu ended with status 1 (fcu: \ufffd?[31m[/bold]\ufffd), starting it again"]


def test_a_process_that_prints_without_end_does_not_fill_the_disk(supervised, clock, tmp_path):
    log = tmp_path / "processes/fcu.log"
    with log.open("ab") as output:
        output.truncate(manager.LOG_MAX_BYTES + 1)  # a file with a hole: it takes no space
        clock.now_s += manager.LOG_CHECK_S
        supervised.check()
        assert log.stat().st_size == 0
        output.write(b"goes on\n")
    assert supervised.last_line("fcu") == "goes on" and log.stat().st_size == 8
    assert supervised.events == ["fcu has printed more than 20 MB; its log begins again"]


def test_a_process_that_cannot_be_ended_does_not_keep_the_manager(supervised):
    newest("recorder").obeys = False  # it waits for a broken disk
    supervised.stop(patience_s=0.0)
    assert newest("fcu").status == -signal.SIGTERM
    assert newest("recorder").signals == [signal.SIGTERM, signal.SIGKILL]


@pytest.mark.parametrize("number", END)
def test_a_signal_while_the_processes_are_ended_leaves_none_behind(supervised, monkeypatch, number):
    def interrupted(process, sent):
        os.kill(os.getpid(), number)
        process.signals.append(sent)
        process.status = -sent

    monkeypatch.setattr(FakeProcess, "send_signal", interrupted)
    supervised.stop()
    assert [process.signals for process in FakeProcess.all] == [[signal.SIGTERM]] * len(NAMES)


# --- signals


@pytest.mark.parametrize("number", END)
def test_a_request_to_end_interrupts_nothing_and_is_counted(number):
    before = signal.getsignal(number)
    with EndRequests() as requests:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        assert requests.count == 2
    assert signal.getsignal(number) is before


def test_ctrl_z_does_not_stop_the_manager():
    with EndRequests() as requests:
        os.kill(os.getpid(), signal.SIGTSTP)
        os.kill(os.getpid(), signal.SIGTTOU)
        assert (requests.stops, requests.count) == (1, 0)
        assert signal.getsignal(signal.SIGTTOU) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGTTOU) is signal.SIG_DFL


def test_a_signal_that_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with EndRequests() as requests:
            os.kill(os.getpid(), signal.SIGHUP)
        assert requests.count == 0 and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_all_requests_to_end_are_ignored_for_a_short_time():
    with interrupts_ignored():
        for number in END:
            os.kill(os.getpid(), number)


# --- the output


class BrokenOutput(io.StringIO):
    """A file that fails from a certain write on."""

    def __init__(self, error: Exception, after: int = 0):
        super().__init__()
        self.error, self.left = error, after

    def write(self, text):
        self.left -= 1
        if self.left < 0:
            raise self.error
        return super().write(text)


LOST = [BrokenPipeError(errno.EPIPE, "Broken pipe"), OSError(errno.EIO, "Input/output error"),
        OSError(errno.ENOSPC, "No space left on device"), ValueError("I/O operation on closed file")]  # fmt: skip


def status(phase="HOLD", reason="", **changes) -> MissionStatus:
    fields = {"phase_time_s": 1.0, "finished": False, "success": False, "photographs": 0}
    return MissionStatus(stamp_s=monotonic_s(), phase=phase, reason=reason, **(fields | changes))


class FakeManager:
    """Counts the checks; some raise."""

    def __init__(self, raises=()):
        self.checks, self.started, self.events = 0, False, []
        self._raises = iter(raises)

    def start(self):
        self.started = True

    def check(self):
        self.checks += 1
        error = next(self._raises, None)
        if error is not None:
            raise error


class FakeBus:
    """Messages for each call; then the mission has finished."""

    def __init__(self, *calls, before=lambda: None, restored=""):
        self._calls, self._before, self._restored = list(calls), before, restored

    def receive(self, timeout_s):
        self._before()
        return self._calls.pop(0) if self._calls else [status("DONE", finished=True, success=True)]

    def restore(self):
        return self._restored

    def close(self):
        pass


def supervise(bus, display, processes=None, requests=None):
    processes = processes or FakeManager()
    ending = fly._supervise(processes, bus, display, requests or EndRequests(), None, math.inf)
    assert processes.started
    return ending


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(fly, "AFTER_END_S", 0.0)
    monkeypatch.setattr(fly, "FAILED_PAUSE_S", 0.0)


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("error", LOST, ids=str)
def test_an_output_that_is_lost_does_not_end_the_flight(quick, error, terminal):
    display = Display(Console(file=BrokenOutput(error, after=1), force_terminal=terminal))
    calls = [[status(reason=f"reason {i}")] for i in range(50)]
    assert supervise(FakeBus(*calls), display).status.success
    assert not display.close() and wait_until(lambda: display.ended, 10.0)  # on a busy machine later than it waits
    console = Console(file=BrokenOutput(error), force_terminal=terminal)
    show(console, "the last line")


def test_an_output_that_takes_nothing_does_not_hold_the_flight_up(quick):
    free = threading.Event()

    class Stopped(io.StringIO):
        def write(self, text):
            free.wait(20.0)
            return len(text)

    display = Display(Console(file=Stopped()))
    calls = [[status(reason=f"reason {i}")] for i in range(1000)]
    processes = FakeManager()
    assert supervise(FakeBus(*calls), display, processes).status.success and processes.checks > 1000
    assert not display.close(patience_s=0.05)
    free.set()


def test_the_manager_restores_its_end_of_the_bus_and_reports_it_once(quick, monkeypatch):
    monkeypatch.setattr(fly, "RESTORE_PERIOD_S", 0.0)
    file = io.StringIO()
    display = Display(Console(file=file, width=200))
    supervise(FakeBus([], [], [], restored="manager.lock: was deleted, held again"), display)
    display.close()
    assert file.getvalue().count("manager.lock: was deleted, held again; the flight goes on") == 1


@pytest.mark.parametrize("text", ["waiting: [/bold]", "[/", "[red", "\x1b[2J", "\udcff"], ids=ascii)
def test_markup_and_control_characters_in_a_text_are_shown_as_text(quick, text):
    file = io.StringIO()
    display = Display(Console(file=file, width=200))
    event = SafetyEvent(stamp_s=0.0, monitor="x", active=True, value=1.0, limit=1.0, action="warn", text=text)
    processes = FakeManager()
    processes.events.append(f"fcu ended ({text})")
    supervise(FakeBus([status(reason=text), event]), display, processes)
    assert display.close()
    safe = "".join(c if c.isprintable() else "?" for c in text)
    for line in (f"HOLD  {safe}", f"safety: {safe} → warn", f"process: fcu ended ({safe})"):
        assert line in file.getvalue()
    show(Console(file=file, width=200), fly.ending_line(status(reason=text, finished=True)))
    assert f"mission ended early: {safe} (phase HOLD)" in file.getvalue()


@pytest.mark.parametrize("text", ["[/bold]", "[red"])
def test_markup_in_a_name_is_shown_as_text_in_a_table(text, capsys):
    table = Table(title=text)
    table.add_row(text)
    _console().print(table)
    assert capsys.readouterr().out.count(text) == 2


def test_a_fault_of_the_supervision_does_not_end_the_flight(quick):
    file = io.StringIO()
    display = Display(Console(file=file, width=200))
    processes = FakeManager([RuntimeError("bad luck")] * 20 + [OSError(errno.EMFILE, "Too many open files")])
    assert supervise(FakeBus(*[[]] * 30), display, processes).status.success
    display.close()
    assert file.getvalue().count("supervision: RuntimeError: bad luck; the flight goes on") == 1


def test_a_refused_start_ends_the_flight(quick):
    display = Display(Console(file=io.StringIO()))
    with pytest.raises(StartRefused):
        supervise(FakeBus(*[[]] * 30), display, FakeManager([StartRefused("camera: no device")]))
    display.close()


@pytest.mark.parametrize("number", END)
def test_a_signal_ends_the_flight_as_ctrl_c_does(quick, number):
    file = io.StringIO()
    display = Display(Console(file=file, width=200))
    with EndRequests() as requests:
        bus = FakeBus(*[[status("HOLD")]] * 1000, before=lambda: os.kill(os.getpid(), number))
        ending = supervise(bus, display, requests=requests)
    display.close()
    assert ending.interrupted and ending.status.phase == "HOLD"
    assert "interrupted: the setpoint stream ends" in file.getvalue()


@pytest.mark.parametrize("number", END)
def test_a_second_signal_keeps_the_report(tmp_path, monkeypatch, number):
    (tmp_path / "flight.mcap").write_bytes(b"")
    monkeypatch.setattr("companion.recording.metrics.flight_metrics", lambda log: {})

    def write_report(log, folder):
        os.kill(os.getpid(), number)
        (folder / "report.html").write_text("report")
        return folder / "report.html"

    monkeypatch.setattr("companion.recording.report.write_report", write_report)
    file = io.StringIO()
    code = fly.conclude(tmp_path, fly.Ending(status("HOLD"), interrupted=True), Console(file=file, width=300))
    assert code == 130 and f"report  {tmp_path / 'report.html'}" in file.getvalue()
    assert (tmp_path / "report.html").exists()


# --- the end of the manager

# A manager with two processes in their loops; the test stops one of them.
MANAGER = """
import sys, time
from pathlib import Path
from companion.runtime.manager import Manager
code = "import time; from companion.runtime.process import StopFlag; stop = StopFlag(); print('up', flush=True)\\n"
code += "while not stop: time.sleep(0.01)\\n"
code += "print('closed', flush=True)"
manager = Manager({name: [sys.executable, "-c", code] for name in ("one", "two")}, Path(sys.argv[1]))
manager.start()
print(*(manager.pid(name) for name in ("one", "two")), flush=True)
while True:
    manager.check()
    time.sleep(0.02)
"""


def runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_processes_of_a_killed_manager_end_in_order(tmp_path):
    with subprocess.Popen([sys.executable, "-c", MANAGER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        pids = [int(word) for word in parent.stdout.readline().split()]
        logs = [tmp_path / f"{name}.log" for name in ("one", "two")]
        assert len(pids) == 2 and wait_until(lambda: all(log.exists() and log.read_text() for log in logs), 20.0)
        os.kill(pids[1], signal.SIGSTOP)
        parent.kill()
    assert wait_until(lambda: not any(map(runs, pids)), 10.0)  # also the one that was stopped
    assert [log.read_text().split() for log in logs] == [["up", "closed"]] * 2  # they closed what they had open


def test_a_process_whose_parent_ended_before_it_could_look_ends_at_once():
    assert Parent({PARENT_PID: str(os.getppid())}).ended is False
    assert Parent({PARENT_PID: "999999999"}).ended is True
    assert Parent({}).ended is False and Parent({PARENT_PID: "x"}).ended is False
    assert tied_to_this_process() == {PARENT_PID: str(os.getpid())}


# A program that flies several flights at a time (companion compare), with a worker that would work for ever.
COMPARING = """
import multiprocessing, os, sys, time
from sitl.compare import _begin_worker
def work():
    _begin_worker()
    print(os.getpid(), flush=True)
    time.sleep(60)
if __name__ == "__main__":
    multiprocessing.get_context("spawn").Process(target=work).start()
    time.sleep(60)
"""


def test_a_worker_of_a_killed_comparison_ends(tmp_path):
    (tmp_path / "comparing.py").write_text(COMPARING)
    command = [sys.executable, str(tmp_path / "comparing.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        worker = int(parent.stdout.readline())
        parent.kill()
        assert wait_until(lambda: not runs(worker), 10.0)

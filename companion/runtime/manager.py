"""Starts the processes, watches them, restarts those that die or hang, and ends them in order.

A process that refuses to start (exit status 2: its configuration or a device is wrong) ends the flight before it
begins, with its one line. A process that dies later is restarted at once, after further deaths with growing pauses. Its
death ends no other process, and nothing in this module talks to the aircraft. A process that has once reported a step
(`companion.runtime.notify`) and is then silent counts as hung: it is killed and restarted.

Nothing that this computer lacks ends the supervision: without its log folder a process runs without a log, and a start
that fails is tried again. The processes are tied to this one (`companion.runtime.parent`): they end when it is killed.
"""

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from companion.core.clock import monotonic_s
from companion.core.errors import StartRefused
from companion.core.text import plain
from companion.runtime.end_requests import interrupts_ignored
from companion.runtime.notify import NotifySocket
from companion.runtime.parent import tied_to_this_process

START_REFUSED = 2
WATCHDOG_S = 1.0  # silence after which a process hangs; WatchdogSec= of the systemd units is the same
START_MAX_S = 20.0  # from a restart to the first step; TimeoutStartSec= of the systemd units is the same
RESTART_PAUSE_S = (0.0, 0.2, 0.5, 1.0, 2.0)  # before the first, second, … restart within RESTART_WINDOW_S
RESTART_WINDOW_S = 30.0
KILL_PATIENCE_S = 2.0  # for a process to end after SIGKILL; one that waits for a broken disk does not
LOG_MAX_BYTES = 20_000_000  # of a process's output; a process that prints without end must not fill the disk
LOG_CHECK_S = 5.0
LAST_LINE_BYTES = 10_000  # of a process's output, read for its last line
SHORT_OF_MEMORY = ", perhaps for lack of memory"


@dataclass
class Child:
    """One supervised process."""

    name: str
    command: list[str]
    process: subprocess.Popen[bytes] | None = None
    starts: list[float] = field(default_factory=list)
    restart_at_s: float | None = None
    restarts: int = 0
    notifies: bool = False  # it has reported a step since the flight began
    ready: bool = False  # it has reported a step since its last start
    silent_at_s: float = math.inf  # it counts as hung if nothing is received from it until then
    hung: bool = False  # it hung and was killed for it
    reported_s: float = -math.inf  # the last report that it is started again and again


class Manager:
    """Supervises a set of commands.

    commands: name → argument list, started in this order and ended in reverse.
    log_folder: where each process's stderr goes, ``<name>.log``.
    """

    def __init__(self, commands: dict[str, list[str]], log_folder: Path) -> None:
        self.children = [Child(name, command) for name, command in commands.items()]
        self.log_folder = log_folder
        log_folder.mkdir(parents=True, exist_ok=True)
        self.events: list[str] = []
        self._notify_socket = NotifySocket()
        self._received_s = -math.inf
        self._logs_checked_s = -math.inf

    def start(self) -> None:
        """Start all processes; raises `StartRefused` when the operating system cannot."""
        for child in self.children:
            if why := self._spawn(child):
                raise StartRefused(why)

    def _spawn(self, child: Child) -> str:
        """Start a process; returns why that failed, "" when it runs."""
        # One thread per process: the thread pools of BLAS would compete for the two or four cores.
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        environment |= self._notify_socket.environment(WATCHDOG_S) | tied_to_this_process()
        child.starts = [s for s in child.starts if monotonic_s() - s < RESTART_WINDOW_S] + [monotonic_s()]
        child.restart_at_s = None
        child.hung = child.ready = False
        child.silent_at_s = monotonic_s() + START_MAX_S if child.notifies else math.inf
        try:
            with self._log(child.name) as log:
                child.process = subprocess.Popen(
                    child.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment,
                    start_new_session=True,
                )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:  # no descriptor, process or memory left
            child.process = None
            return f"{child.name} cannot be started: {plain(getattr(error, 'strerror', None) or str(error))}"
        return ""

    @contextlib.contextmanager
    def _log(self, name: str) -> Iterator[int]:
        """A descriptor for the output of a process: its log, or nowhere when there is no folder or no space for one."""
        path = self.log_folder / f"{name}.log"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            with contextlib.suppress(OSError):
                self.log_folder.mkdir(parents=True, exist_ok=True)  # it may have been removed in flight
            descriptor = os.open(path, flags, 0o644)
        except OSError:
            descriptor = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def check(self) -> None:
        """Restart the processes that died, kill those that hang; to be called a few times a second.

        Raises `StartRefused` when a process that has never made a step ends with exit status 2.
        """
        now_s = monotonic_s()
        self._receive(now_s)
        for child in self.children:
            if child.restart_at_s is not None:
                if now_s >= child.restart_at_s:
                    child.restarts += 1
                    if why := self._spawn(child):
                        self._try_again(child, now_s, f"{why}, trying again")
            elif child.process is not None:  # after `start`
                self._check_running(child, child.process, now_s)
        if now_s - self._logs_checked_s >= LOG_CHECK_S:
            self._logs_checked_s = now_s
            for child in self.children:
                self._limit_log(child.name)

    def _limit_log(self, name: str) -> None:
        """Empty the log of a process when it is too large; the process goes on at its beginning."""
        path = self.log_folder / f"{name}.log"
        with contextlib.suppress(OSError):
            if path.stat().st_size > LOG_MAX_BYTES:
                os.truncate(path, 0)
                self.events.append(f"{name} has printed more than {LOG_MAX_BYTES / 1e6:.0f} MB; its log begins again")

    def _check_running(self, child: Child, process: "subprocess.Popen[bytes]", now_s: float) -> None:
        status = process.poll()
        if status is None:
            if now_s > child.silent_at_s and not child.hung:
                child.hung = True
                process.kill()
            return
        if status == START_REFUSED and child.restarts == 0 and not child.notifies:
            raise StartRefused(self.last_line(child.name) or f"{child.name}: refused to start")
        if child.hung:
            how = "hung and was killed"
        elif status < 0:
            how = f"ended by signal {-status}{SHORT_OF_MEMORY if -status == signal.SIGKILL else ''}"
        else:
            how = f"ended with status {status}"
            if line := self.last_line(child.name):
                how += f" ({line})"
        self._try_again(child, now_s, f"{child.name} {how}, starting it again")

    def _try_again(self, child: Child, now_s: float, event: str) -> None:
        """Plan the next start. A process that ends again and again is reported until its pauses no longer grow."""
        attempts = min(len(child.starts), len(RESTART_PAUSE_S))
        pause_s = RESTART_PAUSE_S[attempts - 1]
        child.restart_at_s = now_s + pause_s
        if attempts < len(RESTART_PAUSE_S):
            child.reported_s = -math.inf
        elif now_s - child.reported_s < RESTART_WINDOW_S:
            return
        else:
            child.reported_s = now_s
            event += f", every {pause_s:g} s"
        self.events.append(event)

    def _receive(self, now_s: float) -> None:
        """Take the notifications of all processes. A late call of `check` detects a hang late, never wrongly.

        A datagram that was waiting counts as sent now. The socket keeps only a few datagrams, so that after a long pause
        between two calls every process first gets the time to notify again.
        """
        if now_s - self._received_s > WATCHDOG_S / 2:
            for child in self.children:
                child.silent_at_s = max(child.silent_at_s, now_s + WATCHDOG_S)
        self._received_s = now_s
        for pid, lines in self._notify_socket.receive():
            sender = next((c for c in self.children if c.process is not None and c.process.pid == pid), None)
            if sender is not None and ("READY=1" in lines or "WATCHDOG=1" in lines):
                sender.notifies = sender.ready = True
                sender.silent_at_s = now_s + WATCHDOG_S

    def last_line(self, name: str) -> str:
        """The last line a process wrote, "" without one."""
        try:
            with open(self.log_folder / f"{name}.log", "rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - LAST_LINE_BYTES))
                lines = log.read(LAST_LINE_BYTES).decode("utf-8", "replace").strip().splitlines()
        except OSError:
            return ""
        return plain(lines[-1].strip()) if lines else ""

    def pid(self, name: str) -> int | None:
        """Process id of a running child, or None."""
        process = next((c.process for c in self.children if c.name == name), None)
        return process.pid if process is not None and process.poll() is None else None

    def stop(self, patience_s: float = 3.0) -> None:
        """SIGTERM to all, the last started first; SIGKILL to those that still run after ``patience_s``.

        Requests to end are ignored meanwhile: they would leave processes behind.
        """
        with interrupts_ignored():
            self._stop(patience_s)

    def _stop(self, patience_s: float) -> None:
        running = [c.process for c in reversed(self.children) if c.process is not None and c.process.poll() is None]
        for process in running:
            process.send_signal(signal.SIGTERM)
        if not _ended(running, patience_s):
            for process in running:
                if process.poll() is None:
                    process.kill()
            _ended(running, KILL_PATIENCE_S)
        self._notify_socket.close()


def _ended(processes: "list[subprocess.Popen[bytes]]", patience_s: float) -> bool:
    """Wait for processes; returns whether all have ended."""
    deadline_s = monotonic_s() + patience_s
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline_s - monotonic_s()))
    return all(process.poll() is not None for process in processes)


def python(module: str, *words: str) -> list[str]:
    """Command that runs a module of this installation with this interpreter."""
    return [sys.executable, "-m", module, *words]


def wait_until(condition: Callable[[], object], timeout_s: float, period_s: float = 0.05) -> bool:
    """Poll ``condition()`` until it holds or the time is over; returns whether it held."""
    deadline_s = monotonic_s() + timeout_s
    while not condition():
        if monotonic_s() > deadline_s:
            return False
        time.sleep(period_s)
    return True

"""Starts the processes, watches them, restarts those that die or hang, and ends them in order.

A process that refuses to start (exit status 2: its configuration or a device is wrong) ends the flight before it
begins, with its one line. A process that dies later is restarted at once, after further deaths with growing pauses. Its
death ends no other process, and nothing in this module talks to the aircraft. A process that has once reported a step
(`companion.runtime.notify`) and is then silent counts as hung: it is killed and restarted.
"""

import contextlib
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from companion.core.clock import monotonic_s
from companion.core.errors import StartRefused
from companion.runtime.notify import NotifySocket

START_REFUSED = 2
WATCHDOG_S = 1.0  # silence after which a process hangs; WatchdogSec= of the systemd units is the same
START_MAX_S = 20.0  # from a restart to the first step; TimeoutStartSec= of the systemd units is the same
RESTART_PAUSE_S = (0.0, 0.2, 0.5, 1.0, 2.0)  # before the first, second, … restart within RESTART_WINDOW_S
RESTART_WINDOW_S = 30.0


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

    def start(self) -> None:
        """Start all processes."""
        for child in self.children:
            self._spawn(child)

    def _spawn(self, child: Child) -> None:
        log = open(self.log_folder / f"{child.name}.log", "ab")  # noqa: SIM115 (closed right after the fork)
        # One thread per process: the thread pools of BLAS would compete for the two or four cores.
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        environment |= self._notify_socket.environment(WATCHDOG_S)
        child.process = subprocess.Popen(
            child.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
        )
        log.close()
        child.starts = [s for s in child.starts if monotonic_s() - s < RESTART_WINDOW_S] + [monotonic_s()]
        child.restart_at_s = None
        child.hung = child.ready = False
        child.silent_at_s = monotonic_s() + START_MAX_S if child.notifies else math.inf

    def check(self) -> None:
        """Restart the processes that died, kill those that hang; to be called a few times a second.

        Raises `StartRefused` on exit status 2.
        """
        now_s = monotonic_s()
        self._receive(now_s)
        for child in self.children:
            if child.restart_at_s is not None:
                if now_s >= child.restart_at_s:
                    child.restarts += 1
                    self._spawn(child)
                continue
            if child.process is None:  # before `start`
                continue
            status = child.process.poll()
            if status is None:
                if now_s > child.silent_at_s and not child.hung:
                    child.hung = True
                    child.process.kill()
                continue
            if status == START_REFUSED and child.restarts == 0:
                raise StartRefused(self.last_line(child.name) or f"{child.name}: refused to start")
            pause = RESTART_PAUSE_S[min(len(child.starts), len(RESTART_PAUSE_S)) - 1]
            child.restart_at_s = now_s + pause
            if child.hung:
                how = "hung and was killed"
            else:
                how = f"ended by signal {-status}" if status < 0 else f"ended with status {status}"
            self.events.append(f"{child.name} {how}, starting it again")

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
        """The last line a process wrote."""
        try:
            lines = (self.log_folder / f"{name}.log").read_text(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""

    def pid(self, name: str) -> int | None:
        """Process id of a running child, or None."""
        process = next((c.process for c in self.children if c.name == name), None)
        return process.pid if process is not None and process.poll() is None else None

    def stop(self, patience_s: float = 3.0) -> None:
        """SIGTERM to all, the last started first; SIGKILL to those that still run after ``patience_s``.

        Ctrl-C is ignored meanwhile: it would leave processes behind that no one ends.
        """
        with interrupts_ignored():
            self._stop(patience_s)

    def _stop(self, patience_s: float) -> None:
        running = [c.process for c in reversed(self.children) if c.process is not None and c.process.poll() is None]
        for process in running:
            process.send_signal(signal.SIGTERM)
        deadline_s = monotonic_s() + patience_s
        for process in running:
            try:
                process.wait(max(0.0, deadline_s - monotonic_s()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._notify_socket.close()


@contextlib.contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Ignore Ctrl-C for a short time. Does nothing outside of the main thread, which alone receives it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


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

"""Runs a node as a process on the bus: the loop, the clock, the counters.

Nothing that happens in flight ends the loop: an exception in a node is counted and reported in the process's `Health`
message, and the loop goes on with the next message. The safety table decides what the exception means.
"""

import contextlib
import ctypes
import gc
import math
import os
import resource
import signal
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import ParamSpec, Protocol

import zmq

from companion.core.clock import monotonic_s
from companion.core.enums import ProcessName
from companion.core.messages import Health, Image, Message
from companion.core.node import Node
from companion.core.text import plain
from companion.runtime.notify import Notifier
from companion.runtime.parent import Parent

P = ParamSpec("P")

HEALTH_PERIOD_S = 0.5
SLOW = 0.9  # of the nominal steps: a process below it is shown as slow
FAILED_PAUSE_S = 0.1  # after a failure that may come again at once


class NodeBus(Protocol):
    """What the loop needs of a process's end of the bus (`companion.core.bus.ZmqBus`)."""

    @property
    def poller(self) -> zmq.Poller: ...

    def publish(self, message: Message) -> None: ...

    def receive(self, timeout_s: float) -> list[Message]: ...

    def restore(self) -> str: ...


class Device(Protocol):
    """Something besides the bus that a process reads and writes, such as the link to the flight controller.

    A failure is reported in ``trouble`` (one line, "" while the device works); nothing raises.
    """

    @property
    def trouble(self) -> str: ...

    def fileno(self) -> int:
        """Descriptor to poll for reading, -1 while there is none; it changes when the device is opened again."""

    def read(self) -> Iterable[Message]:
        """The messages that have arrived, for the bus and for the node; never blocks."""

    def write(self, messages: Iterable[Message]) -> Iterable[Message]:
        """Write those of the node's messages that are for the device; returns the messages to publish, in order."""


class CameraSource(Protocol):
    """What the camera's loop needs of `companion.tracking.cameras.Source`."""

    def read(self) -> Image | None: ...


class StopFlag:
    """True once SIGTERM, SIGINT or SIGHUP has asked this process to end, or its parent has ended."""

    def __init__(self) -> None:
        self.set = False
        self._parent = Parent()
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup has set it to "ignore", which stays
            signal.signal(signal.SIGHUP, self._stop)

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        self.set = True

    def __bool__(self) -> bool:
        return self.set or self._parent.ended


class HealthMonitor:
    """Counts what a process does and makes its `Health` messages."""

    def __init__(self, process: str, nominal_hz: float, files: str = "") -> None:
        self.process = ProcessName(process)
        self.nominal_hz = nominal_hz
        self.files = files
        self.late_steps = 0
        self.errors = 0
        self.last_error = ""
        self._steps = 0
        self._longest_s = 0.0
        self._last_s = monotonic_s()

    def note_step(self, duration_s: float, late: bool) -> None:
        self._steps += 1
        self.late_steps += late
        self._longest_s = max(self._longest_s, duration_s)

    def note_error(self, error: Exception) -> None:
        self.errors += 1
        self.last_error = plain(f"{type(error).__name__}: {error}", 200)

    def due(self, now_s: float) -> bool:
        return now_s - self._last_s >= HEALTH_PERIOD_S

    def message(self, now_s: float, bus: object, *others: object) -> Health:
        """others: further parts of this process that count ``errors`` and report in ``last_error`` or ``trouble``."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        health = Health(
            stamp_s=now_s,
            process=self.process,
            pid=os.getpid(),
            steps_per_s=self._steps / (now_s - self._last_s),
            nominal_steps_per_s=self.nominal_hz,
            late_steps=self.late_steps,
            errors=self.errors + sum(getattr(part, "errors", 0) for part in (bus, *others)),
            last_error=self.last_error or next(filter(None, map(_reported, (*others, bus))), ""),
            step_time_max_s=self._longest_s,
            cpu_s=usage.ru_utime + usage.ru_stime,
            memory_mb=resident_mb(),
            files=self.files,
        )
        self._steps, self._longest_s, self._last_s = 0, 0.0, now_s
        return health


def _reported(part: object) -> str:
    """The present trouble of a part, else its last error, else ""."""
    return str(getattr(part, "trouble", "") or getattr(part, "last_error", ""))


def health_line(health: Health) -> str:
    """A health message in one line."""
    line = f"{health.steps_per_s:.0f} of {health.nominal_steps_per_s:g} steps/s, {health.memory_mb:.0f} MB"
    return line + (f", {health.errors} errors, last: {health.last_error}" if health.errors else "")


def resident_mb() -> float:
    """Resident memory of this process [MB]; NaN when it cannot be read."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except (OSError, ValueError, IndexError):  # no file descriptor left, or a system without /proc
        return math.nan


def settle_memory() -> None:
    """Return the memory that the start has freed, and exclude what exists now from garbage collection.

    Importing and reading files leaves holes of up to 50 MB in the heap (pymavlink); glibc returns them only on request.
    What exists now lives until the end of the process, so that the garbage collector need not visit it.
    """
    gc.collect()
    gc.freeze()
    with contextlib.suppress(OSError, AttributeError):  # another C library has no such call and does not need it
        ctypes.CDLL(None).malloc_trim(0)


def run_node(
    node: Node,
    bus: NodeBus,
    stop: Callable[[], bool],
    device: Device | None = None,
    supervisor: Notifier | None = None,
    silent_s: float = 0.0,
    files: str = "",
) -> None:
    """Move a node with the real clock until ``stop()``.

    device: what the process reads and writes besides the bus. Its messages go to the node, and also to the bus for the
    recorder.
    supervisor: is notified of every step. silent_s: for this time after the start the node receives and steps, but its
    messages are not published. files: fingerprint of those that the node was built from.
    """
    health = HealthMonitor(node.name, node.rate_hz, files)
    supervisor = supervisor or Notifier({})
    period_s = 1.0 / node.rate_hz
    next_step_s = monotonic_s()
    publishes_from_s = next_step_s + silent_s

    def publish(messages: Iterable[Message] | None) -> None:
        if monotonic_s() < publishes_from_s:
            return
        for message in messages or () if device is None else device.write(messages or ()):
            bus.publish(message)

    def guarded(call: Callable[P, Iterable[Message] | None], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            publish(call(*args, **kwargs))
        except Exception as error:  # in flight nothing raises; see the module's docstring
            health.note_error(error)

    watched = _watch(bus, -1, device.fileno()) if device is not None else -1
    while not stop():
        wait_s = max(next_step_s - monotonic_s(), 0.0)
        if node.batch_window_s:  # one wake-up for many messages: a wake-up for each costs more than handling it
            time.sleep(min(wait_s, node.batch_window_s))
            wait_s = 0.0
        for message in _received(bus, wait_s, health):
            guarded(node.handle, message, monotonic_s())
        if device is not None:
            try:
                if device.fileno() != watched:  # a serial port that was unplugged comes back under another number
                    watched = _watch(bus, watched, device.fileno())
                for message in device.read():
                    bus.publish(message)
                    guarded(node.handle, message, message.stamp_s)
            except Exception as error:
                health.note_error(error)
        now_s = monotonic_s()
        if now_s >= next_step_s:
            started_s = time.perf_counter()
            guarded(node.step, now_s)
            late_s = now_s - next_step_s
            health.note_step(time.perf_counter() - started_s, late_s > period_s / 2)
            # Missed steps are skipped and not repeated: a burst of late steps is of no use.
            next_step_s = now_s + period_s if late_s > period_s else next_step_s + period_s
            supervisor.stepped(now_s)
        _report(health, now_s, bus, supervisor, node, device)


def _watch(bus: NodeBus, before: int, descriptor: int) -> int:
    """Let the bus also wake up for a device's descriptor, in the place of the one before; returns it."""
    if before >= 0:
        bus.poller.unregister(before)
    if descriptor >= 0:
        bus.poller.register(descriptor, zmq.POLLIN)
    return descriptor


def _received(bus: NodeBus, wait_s: float, health: HealthMonitor) -> list[Message]:
    """What the bus has received; an end of the bus that fails must not keep the node from its steps."""
    try:
        return bus.receive(wait_s)
    except Exception as error:
        health.note_error(error)
        time.sleep(min(wait_s, FAILED_PAUSE_S))
        return []


def _report(health: HealthMonitor, now_s: float, bus: NodeBus, supervisor: Notifier, *parts: object) -> None:
    """Publish the health of this process when it is due, and keep its end of the bus where others can reach it."""
    if not health.due(now_s):
        return
    try:
        report = health.message(now_s, bus, *parts)
        bus.publish(report)
        supervisor.status(health_line(report))
        bus.restore()
    except Exception as error:
        health.note_error(error)


def run_camera(
    source: CameraSource,
    bus: NodeBus,
    stop: Callable[[], bool],
    name: str,
    rate_hz: float,
    supervisor: Notifier | None = None,
    others: Callable[[], list[Message]] | None = None,
    files: str = "",
) -> None:
    """Publish the images of a camera source (`companion.tracking.cameras`) until ``stop()``.

    others: takes the messages that a stereo device delivers besides its images. files: see `run_node`.
    A source without images does not hang the loop: the source opens its device again by itself.
    """
    health = HealthMonitor(name, rate_hz, files)
    supervisor = supervisor or Notifier({})
    while not stop():
        started_s = time.perf_counter()
        try:
            image = source.read()
        except Exception as error:
            health.note_error(error)
            image = None
            time.sleep(FAILED_PAUSE_S)
        if image is not None:
            bus.publish(image)
            health.note_step(time.perf_counter() - started_s, late=False)
        for message in others() if others is not None else ():
            bus.publish(message)
        now_s = monotonic_s()
        supervisor.stepped(now_s)
        _report(health, now_s, bus, supervisor, source)

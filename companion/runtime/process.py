"""Runs a node as a process on the bus: the loop, the clock, the counters.

Nothing that happens in flight ends the loop: an exception in a node is counted, shows in the process's `Health`
message, and the next message gets its turn. The safety table decides what it means.
"""

import contextlib
import ctypes
import gc
import os
import resource
import signal
import time
from collections.abc import Callable, Iterable

import zmq

from companion.core.bus import ZmqBus
from companion.core.clock import monotonic_s
from companion.core.messages import Health, LinkRx, LinkTx, Message, SentSetpoint
from companion.core.node import Node
from companion.runtime.notify import Notifier

HEALTH_PERIOD_S = 0.5


class StopFlag:
    """True once SIGTERM or SIGINT has asked this process to end."""

    def __init__(self) -> None:
        self.set = False
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)

    def _stop(self, *_) -> None:
        self.set = True

    def __bool__(self) -> bool:
        return self.set


class HealthMonitor:
    """Counts what a process does and makes its `Health` messages."""

    def __init__(self, process: str, nominal_hz: float) -> None:
        self.process = process
        self.nominal_hz = nominal_hz
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
        self.last_error = f"{type(error).__name__}: {error}"[:200]

    def due(self, now_s: float) -> bool:
        return now_s - self._last_s >= HEALTH_PERIOD_S

    def message(self, now_s: float, bus: ZmqBus, *others) -> Health:
        """others: whatever else of this process counts in ``errors`` and tells in ``last_error`` or ``trouble``."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        health = Health(
            stamp_s=now_s,
            process=self.process,
            pid=os.getpid(),
            steps_per_s=self._steps / (now_s - self._last_s),
            nominal_steps_per_s=self.nominal_hz,
            late_steps=self.late_steps,
            errors=self.errors + sum(getattr(part, "errors", 0) for part in (bus, *others)),
            last_error=self.last_error or next(filter(None, map(_complaint, (*others, bus))), ""),
            step_time_max_s=self._longest_s,
            cpu_s=usage.ru_utime + usage.ru_stime,
            memory_mb=resident_mb(),
        )
        self._steps, self._longest_s, self._last_s = 0, 0.0, now_s
        return health


def _complaint(part) -> str:
    return getattr(part, "trouble", "") or getattr(part, "last_error", "")


def in_words(health: Health) -> str:
    """A health message in one line."""
    words = f"{health.steps_per_s:.0f} of {health.nominal_steps_per_s:g} steps/s, {health.memory_mb:.0f} MB"
    return words + (f", {health.errors} errors, last: {health.last_error}" if health.errors else "")


def resident_mb() -> float:
    """Resident memory of this process [MB]."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def settle_memory() -> None:
    """Give back what building left behind, and stop looking through what will stay.

    Importing and reading files leaves holes of up to 50 MB in the heap (pymavlink), which glibc keeps until it is
    asked. What exists now lives to the end; the garbage collector need not visit it again and again.
    """
    gc.collect()
    gc.freeze()
    with contextlib.suppress(OSError, AttributeError):  # another C library has no such call, and no need of it
        ctypes.CDLL(None).malloc_trim(0)


def run_node(
    node: Node,
    bus: ZmqBus,
    stop: Callable[[], bool],
    link=None,
    supervisor: Notifier | None = None,
    silent_s: float = 0.0,
) -> None:
    """Move a node with the real clock until ``stop()``.

    link: for the FCU room, the open line to the flight controller (`companion.fcu.link.link`): its bytes come as
    `LinkRx`, those of ground stations on its forward too, marked so, and `LinkTx` leaves through it at once. All of
    them also go to the bus, for the recorder.
    supervisor: is told of every step. silent_s: the node listens and steps, but what it says in this time after its
    start is not published.
    """
    health = HealthMonitor(node.name, node.rate_hz)
    supervisor = supervisor or Notifier({})
    period_s = 1.0 / node.rate_hz
    next_step_s = monotonic_s()
    speaks_from_s = next_step_s + silent_s

    def publish(messages: Iterable[Message]) -> None:
        if monotonic_s() < speaks_from_s:
            return
        left = True
        for message in messages or ():
            if type(message) is LinkTx and link is not None:
                left = link.write(message.data)
            elif type(message) is SentSetpoint and not left:
                continue  # its bytes are in the LinkTx before it, and the line did not take them
            bus.publish(message)

    def guarded(call: Callable, *arguments) -> None:
        try:
            publish(call(*arguments))
        except Exception as error:  # in flight nothing raises; see the module's docstring
            health.note_error(error)

    if link is not None and link.fileno() >= 0:
        bus.poller.register(link.fileno(), zmq.POLLIN)
    watched = link.fileno() if link is not None else -1
    while not stop():
        wait_s = max(next_step_s - monotonic_s(), 0.0)
        if node.batch_window_s:  # one awakening for many messages: being woken for each costs more than taking it
            time.sleep(min(wait_s, node.batch_window_s))
            wait_s = 0.0
        for message in bus.receive(wait_s):
            guarded(node.handle, message, monotonic_s())
        if link is not None:
            if link.fileno() != watched:  # a serial port that was unplugged comes back under another number
                if watched >= 0:
                    bus.poller.unregister(watched)
                watched = link.fileno()
                if watched >= 0:
                    bus.poller.register(watched, zmq.POLLIN)
            for data, ground in ((link.read(), False), (link.read_ground(), True)):
                if data:
                    received = LinkRx(stamp_s=monotonic_s(), data=data, ground=ground)
                    bus.publish(received)
                    guarded(node.handle, received, received.stamp_s)
        now_s = monotonic_s()
        if now_s >= next_step_s:
            started_s = time.perf_counter()
            guarded(node.step, now_s)
            late_s = now_s - next_step_s
            health.note_step(time.perf_counter() - started_s, late_s > period_s / 2)
            # Missed steps are skipped, not made up for: a burst of old work helps nobody.
            next_step_s = now_s + period_s if late_s > period_s else next_step_s + period_s
            supervisor.stepped(now_s)
        if health.due(now_s):
            report = health.message(now_s, bus, node, link)
            bus.publish(report)
            supervisor.status(in_words(report))


def run_camera(
    source, bus: ZmqBus, stop: Callable[[], bool], name: str, rate_hz: float, supervisor: Notifier | None = None
) -> None:
    """Publish what a camera source (`companion.tracking.cameras`) delivers until ``stop()``.

    A source without images is not a loop that hangs: it opens its device again by itself.
    """
    health = HealthMonitor(name, rate_hz)
    supervisor = supervisor or Notifier({})
    while not stop():
        started_s = time.perf_counter()
        try:
            image = source.read()
        except Exception as error:
            health.note_error(error)
            image = None
            time.sleep(0.1)
        if image is not None:
            bus.publish(image)
            health.note_step(time.perf_counter() - started_s, late=False)
        now_s = monotonic_s()
        supervisor.stepped(now_s)
        if health.due(now_s):
            report = health.message(now_s, bus, source)
            bus.publish(report)
            supervisor.status(in_words(report))

"""The process loop survives its node; the manager survives its processes."""

import math
import os
import re
import signal
import sys
import threading
from pathlib import Path

import pytest

from companion.core.bus import ZmqBus
from companion.core.clock import monotonic_s
from companion.core.errors import StartRefused
from companion.core.messages import FcuText, Health, LinkRx, LinkTx, PhotoRequest, SentSetpoint, State
from companion.core.node import Latest, Node
from companion.fcu.link.device import LinkDevice
from companion.runtime import process, processes
from companion.runtime.manager import Manager, wait_until
from companion.runtime.process import run_node

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]


class Fragile(Node):
    """Raises on every message, and continues to step."""

    name = "fcu"
    inputs = ("photo_request",)
    rate_hz = 50.0

    def __init__(self):
        super().__init__()
        self.steps = 0

    def handle_photo_request(self, message, now_s):
        raise RuntimeError("bad luck")

    def step(self, now_s):
        self.steps += 1
        return [FcuText(stamp_s=now_s, severity=6, text="alive"), LinkTx(stamp_s=now_s, data=b"out")]


class FakeLink:
    """A link that keeps what was written; it takes nothing while `broken`."""

    trouble = ""
    url = "serial:/dev/ttyX:57600"
    broken = refused = False

    def __init__(self):
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        self.written = []
        self.ground = b""

    def fileno(self):
        return self.read_end

    def read(self):
        try:
            return os.read(self.read_end, 100)
        except BlockingIOError:
            return b""

    def read_ground(self):
        ground, self.ground = self.ground, b""
        return ground

    def write(self, data):
        self.written.append(data)
        return not self.broken


@pytest.fixture
def running(tmp_path):
    node, link = Fragile(), FakeLink()
    node_bus = ZmqBus(tmp_path, "fcu", node.inputs)
    other = ZmqBus(tmp_path, "mission", ("fcu_text", "health", "link_rx"))
    stop = threading.Event()
    thread = threading.Thread(target=run_node, args=(node, node_bus, stop.is_set, LinkDevice(link)))
    thread.start()
    yield node, link, other
    stop.set()
    thread.join()
    node_bus.close()
    other.close()


def collect(bus, wanted, timeout_s=20.0, before_look=lambda: None):
    """Messages received until one is wanted, the wanted ones; ``before_look`` is called before each look."""
    got = []

    def look():
        before_look()
        got.extend(bus.receive(0.05))
        return any(wanted(m) for m in got)

    wait_until(look, timeout_s, 0.0)
    return [m for m in got if wanted(m)]


def test_an_exception_in_a_node_is_counted_and_the_loop_goes_on(running):
    node, _, other = running
    # Repeatedly: a subscriber that has not connected yet receives nothing, and which end connects first is random.
    reported = collect(
        other,
        lambda m: isinstance(m, Health) and m.errors > 0,
        before_look=lambda: other.publish(PhotoRequest(stamp_s=0.0, id=1)),
    )
    assert reported and "bad luck" in reported[0].last_error
    before = node.steps
    assert wait_until(lambda: node.steps > before, 20.0)


@pytest.mark.parametrize("batches", [True, False])
def test_a_node_with_a_batch_window_is_woken_once_a_step(batches):
    done = []

    class Busy:
        """A bus on which there is always a message."""

        def receive(self, timeout_s):
            done.append("receive")
            return [PhotoRequest(stamp_s=0.0, id=1)]

        def publish(self, message):
            pass

        def restore(self):
            pass

    node = Fragile()
    node.batch_window_s = 1.0 / node.rate_hz if batches else 0.0
    node.step = lambda now_s: done.append("step")
    run_node(node, Busy(), lambda: done.count("step") == 5)
    assert done.count("receive") == 5 if batches else done.count("receive") > 20


def test_link_bytes_go_to_the_line_and_come_from_it(running):
    node, link, other = running
    assert wait_until(lambda: b"out" in link.written, 20.0)
    node.handle = lambda message, now_s: ()
    received = collect(
        other, lambda m: isinstance(m, LinkRx), before_look=lambda: os.write(link.write_end, b"\xfd\x00")
    )
    assert received and received[0].data[:2] == b"\xfd\x00" and not received[0].ground


def test_bytes_of_a_ground_station_are_marked(running):
    node, link, other = running
    node.handle = lambda message, now_s: ()

    def send():
        link.ground = b"from the ground"

    received = collect(other, lambda m: isinstance(m, LinkRx), before_look=send)
    assert received and received[0].data == b"from the ground" and received[0].ground


def sent(stamp_s: float) -> SentSetpoint:
    return SentSetpoint(stamp_s=stamp_s, roll_rad=0, pitch_rad=0, yaw_rad=0, yaw_rate_rad_s=0, thrust=0.3)


def test_a_setpoint_whose_bytes_the_link_did_not_take_is_not_published_as_sent():
    link = FakeLink()
    device = LinkDevice(link)
    messages = [LinkTx(stamp_s=0.0, data=b"a"), sent(0.0), FcuText(stamp_s=0.0, severity=6, text="x")]
    assert [type(m) for m in device.write(messages)] == [LinkTx, SentSetpoint, FcuText]
    link.broken = True
    assert [type(m) for m in device.write(messages)] == [LinkTx, FcuText]
    assert [type(m) for m in device.write([sent(1.0)])] == [SentSetpoint]  # its bytes were not in this call
    assert link.written == [b"a", b"a"]


def test_the_trouble_of_a_device_is_in_the_health_of_its_process(tmp_path):
    link, stop = FakeLink(), threading.Event()
    link.trouble = "link serial:/dev/ttyX: unplugged"
    bus, other = ZmqBus(tmp_path, "fcu", ()), ZmqBus(tmp_path, "mission", ("health",))
    thread = threading.Thread(target=run_node, args=(Fragile(), bus, stop.is_set, LinkDevice(link)))
    thread.start()
    reported = collect(other, lambda m: isinstance(m, Health) and "unplugged" in m.last_error)
    stop.set()
    thread.join()
    bus.close()
    other.close()
    assert reported


def test_a_link_that_only_a_new_process_can_open_ends_the_loop_with_one_line(tmp_path):
    link, looks = FakeLink(), iter(range(100))
    bus = ZmqBus(tmp_path, "fcu", ())
    link.refused = True
    with pytest.raises(SystemExit, match="link serial:/dev/ttyX:57600: operation not permitted"):
        run_node(Fragile(), bus, lambda: next(looks, None) is None, LinkDevice(link))
    bus.close()


def test_the_process_loop_names_no_message_of_the_link():
    source = Path(process.__file__).read_text(encoding="utf-8")
    assert not {"LinkRx", "LinkTx", "SentSetpoint", "mavlink"} & set(re.findall(r"\w+", source))


def test_health_reports_the_steps_that_were_made_and_memory(running):
    node, _, other = running
    got = []
    wait_until(lambda: got.extend(other.receive(0.05)) or sum(isinstance(m, Health) for m in got) >= 3, 20.0, 0.0)
    # One text a step, in order with the health messages of the same socket: right at any load of the machine.
    first, second = [i for i, m in enumerate(got) if isinstance(m, Health)][-2:]
    steps = sum(isinstance(m, FcuText) for m in got[first:second])
    health = got[second]
    assert steps >= 1
    assert health.steps_per_s == pytest.approx(steps / (health.stamp_s - got[first].stamp_s))
    assert health.nominal_steps_per_s == node.rate_hz and health.memory_mb > 5


def test_content_older_than_its_row_allows_counts_as_absent():
    latest = Latest()
    latest.put(FcuText(stamp_s=0.0, severity=6, text="x"))
    assert latest.fresh(FcuText, 1e6) is not None  # no limit for events
    assert latest.fresh(State, 0.0) is None
    assert latest.age_s(State, 5.0) == float("inf")


def test_a_killed_process_is_started_again(tmp_path):
    manager = Manager({"sleeper": SLEEPER}, tmp_path)
    manager.start()
    first = manager.pid("sleeper")
    os.kill(first, signal.SIGKILL)
    assert wait_until(lambda: manager.check() or manager.pid("sleeper") not in (None, first), 2.0)
    assert "sleeper ended by signal 9" in manager.events[0]
    assert not Path(f"/proc/{first}").exists()  # not even as a zombie
    manager.stop()
    assert manager.pid("sleeper") is None


def test_a_refused_start_ends_with_the_line_of_the_process(tmp_path):
    command = [sys.executable, "-c", "import sys; print('camera: /dev/video9: no such device'); sys.exit(2)"]
    manager = Manager({"camera": command}, tmp_path)
    manager.start()
    with pytest.raises(StartRefused, match="/dev/video9: no such device"):
        wait_until(lambda: manager.check(), 5.0)
    manager.stop()


def test_a_process_that_ignores_the_request_to_end_is_ended(tmp_path):
    stubborn = [sys.executable, "-c", "import signal,time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"]
    manager = Manager({"stubborn": stubborn}, tmp_path)
    manager.start()
    pid = manager.pid("stubborn")
    wait_until(lambda: False, 0.3)
    manager.stop(patience_s=0.2)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_silent_start_publishes_only_health(tmp_path):
    node, stop = Fragile(), threading.Event()
    node_bus = ZmqBus(tmp_path, "fcu", node.inputs)
    other = ZmqBus(tmp_path, "mission", ("fcu_text", "health"))
    words = {"stop": stop.is_set, "silent_s": 2.0}
    began_s = monotonic_s()
    thread = threading.Thread(target=run_node, args=(node, node_bus), kwargs=words)
    thread.start()
    got = []
    wait_until(lambda: got.extend(other.receive(0.05)) or any(isinstance(m, FcuText) for m in got), 20.0, 0.0)
    stop.set()
    thread.join()
    node_bus.close()
    other.close()
    first = next(m for m in got if isinstance(m, FcuText))
    assert first.stamp_s - began_s >= 2.0 and node.steps > 0
    assert any(isinstance(m, Health) and m.stamp_s < began_s + 2.0 for m in got)


def test_an_end_of_the_bus_or_a_device_that_fails_costs_no_step(tmp_path, monkeypatch):
    class Broken:
        """A bus and a device of a computer that has no file descriptor left."""

        trouble, errors, last_error = "", 0, ""
        reports = []

        def receive(self, timeout_s):
            raise OSError(24, "Too many open files")

        def publish(self, message):
            if isinstance(message, Health):
                self.reports.append(message)
                raise OSError(24, "Too many open files")

        def restore(self):
            raise OSError(24, "Too many open files")

        def fileno(self):
            return -1

        def read(self):
            raise OSError(24, "Too many open files")

        def write(self, messages):
            return messages

    def no_file(*_args, **_settings):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(process, "HEALTH_PERIOD_S", 0.05)
    monkeypatch.setattr(process, "FAILED_PAUSE_S", 0.0)
    monkeypatch.setattr(process, "open", no_file, raising=False)
    node, broken = Fragile(), Broken()
    run_node(node, broken, lambda: node.steps >= 10 and len(broken.reports) >= 2, broken)
    assert broken.reports[-1].errors > 0 and "Too many open files" in broken.reports[-1].last_error
    assert math.isnan(broken.reports[-1].memory_mb)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("fcu", "0", "0"),
        ("tracker", "0", "150"),
        ("tracker", "-500", "-350"),
        ("recorder", "900", "1000"),
        ("fcu", "x", "x"),
    ],
)
def test_where_memory_runs_short_the_control_loop_is_ended_last(tmp_path, monkeypatch, name, before, after):
    score, niceness = tmp_path / "oom_score_adj", []
    score.write_text(before)
    monkeypatch.setattr(processes, "OOM_SCORE", score)
    monkeypatch.setattr(processes.os, "nice", niceness.append)
    spec = next(spec for spec in processes.PROCESSES if spec.name == name)
    processes._yield_when_scarce(spec)
    assert score.read_text() == after and niceness == [spec.niceness]
    monkeypatch.setattr(processes, "OOM_SCORE", tmp_path / "absent")
    processes._yield_when_scarce(spec)  # a system without it

"""A replay gives a node the same life again."""

import pytest

from companion.core.messages import FcuStatus, FcuText, State
from companion.core.node import Node
from companion.recording.log import LogEntry, LogError, iterate, read_log
from companion.recording.recorder import RecorderNode
from companion.recording.replay import replay
from companion.recording.writer import LogWriter


class Diary(Node):
    """Writes down what happens to it and says something at every state and every step."""

    name = "diary"
    inputs = ("state", "fcu_status")
    rate_hz = 10.0

    def __init__(self) -> None:
        super().__init__()
        self.events = []

    def handle_state(self, message: State, now_s: float):
        self.events.append((now_s, "state", message.stamp_s))
        return [FcuText(stamp_s=now_s, severity=6, text=f"state {message.seq}")]

    def handle_fcu_status(self, message: FcuStatus, now_s: float):
        self.events.append((now_s, "fcu_status", message.stamp_s))

    def step(self, now_s: float):
        self.events.append((now_s, "step", None))
        return (FcuText(stamp_s=now_s, severity=7, text="step"),)


@pytest.fixture(scope="module")
def log_path(flight, tmp_path_factory):
    path = tmp_path_factory.mktemp("replay") / "flight.mcap"
    node = RecorderNode(LogWriter(path, {}))
    for message in sorted((m for ms in flight.values() for m in ms), key=lambda m: m.stamp_s):
        node.handle(message, message.stamp_s + (0.03 if isinstance(message, FcuStatus) else 0.001))
    node.close()
    return path


def test_messages_come_in_order_of_arrival_with_steps_at_the_nodes_rate(flight, log_path):
    node = Diary()
    replay(read_log(log_path), node)
    times = [e[0] for e in node.events]
    assert times == sorted(times)
    assert sum(e[1] == "state" for e in node.events) == len(flight["state"])
    assert sum(e[1] == "fcu_status" for e in node.events) == len(flight["fcu_status"])
    steps = [e[0] for e in node.events if e[1] == "step"]
    assert len(steps) == pytest.approx(201, abs=1)
    assert steps[10] - steps[9] == pytest.approx(0.1)
    late = next(e for e in node.events if e[1] == "fcu_status")
    assert late[0] - late[2] == pytest.approx(0.03), "late messages stay late"


def test_outputs_are_numbered_and_the_same_every_time(log_path):
    first, second = replay(read_log(log_path), Diary()), replay(iterate(log_path), Diary())
    assert first == second
    assert [m.seq for m in first] == list(range(len(first)))


def test_a_replay_feeds_only_what_it_is_asked_to(log_path):
    node = Diary()
    replay(read_log(log_path), node, ["fcu_status"])
    assert {e[1] for e in node.events} == {"fcu_status", "step"}


def test_what_cannot_be_replayed_is_said_in_one_line(log_path):
    with pytest.raises(LogError, match="does not take 'mission_status'"):
        replay(read_log(log_path), Diary(), ["mission_status"])
    with pytest.raises(LogError, match="holds none of"):
        replay(read_log(log_path, ["mission_status"]), Diary())


def test_a_message_at_the_time_of_a_step_comes_before_it():
    node = Diary()
    status = FcuStatus(
        stamp_s=0.0,
        connected=True,
        armed=False,
        mode="MANUAL",
        landed=True,
        battery_voltage_v=15.0,
        battery_remaining=1.0,
        rc_ok=True,
        rc_channels_us=(),
        gnss_ok=True,
        home_W=None,
        timesync_offset_s=0.0,
        timesync_rtt_s=0.0,
        link_errors=0,
    )
    replay([LogEntry(1.0, "fcu_status", status), LogEntry(1.5, "fcu_status", status)], node)
    assert [e[1] for e in node.events] == ["fcu_status", *["step"] * 5, "fcu_status", "step", "step"]

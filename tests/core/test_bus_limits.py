"""What one end of the bus takes at a time has limits, and a flood or a huge message of one process disturbs no other."""

import itertools
import os
import stat
import time

import pytest
import zmq

from companion.core import subscriber
from companion.core.bus import ZmqBus, encode
from companion.core.config import ConfigError
from companion.core.enums import OperatorAction
from companion.core.messages import EstimatorStatus, FcuPosition, FcuText, Image, OperatorRequest, State
from companion.core.subscriber import CALL_MESSAGES, TOPIC_PER_S
from companion.core.wire import MESSAGE_MAX_BYTES
from companion.runtime.manager import wait_until

POSITION = FcuPosition(stamp_s=0.0, p_W=(1.0, 2.0, 3.0), v_W=(0.0, 0.0, 0.0))
TEXT = FcuText(stamp_s=0.0, severity=6, text="still here")
STATUS = EstimatorStatus(stamp_s=0.0, innovations=[], rejected={}, dropped_late=0, update_time_s=0.0)
CHUNK = 500  # messages; less than ZeroMQ drops


@pytest.fixture
def ends(tmp_path):
    """(fcu, estimator, mission): two that publish, one that receives from both, connected."""
    fcu, estimator = ZmqBus(tmp_path, "fcu", ()), ZmqBus(tmp_path, "estimator", ())
    mission = ZmqBus(tmp_path, "mission", ("fcu_position", "fcu_text", "estimator"))
    connect(mission, (fcu, POSITION), (estimator, STATUS))
    yield fcu, estimator, mission
    for end in (fcu, estimator, mission):
        end.close()


def connect(sink, *sources):
    """Publish until something of every source has arrived, then empty the queue."""
    seen = set()

    def attempt():
        for source, message in sources:
            source.publish(message)
        seen.update(type(message) for message in sink.receive(0.05))
        return len(seen) == len(sources)

    assert wait_until(attempt, 5.0, 0.0)
    while sink.receive(0.1):
        pass


def drained(sink) -> list:
    """Everything that waits."""
    return list(itertools.chain.from_iterable(iter(lambda: sink.receive(0.05), [])))


def test_one_call_takes_no_more_than_its_number_of_messages(ends, monkeypatch):
    fcu, _, mission = ends
    monkeypatch.setattr(subscriber, "CALL_S", 60.0)
    for _ in range(CALL_MESSAGES + 100):
        fcu.publish(POSITION)
    calls = []
    assert wait_until(lambda: calls.append(len(mission.receive(0.2))) or sum(calls) >= CALL_MESSAGES + 100, 5.0)
    assert max(calls) <= CALL_MESSAGES and sum(calls) == CALL_MESSAGES + 100 and mission.errors == 0


def test_one_call_takes_no_longer_than_its_time(ends, monkeypatch):
    fcu, _, mission = ends
    for _ in range(CHUNK):
        fcu.publish(POSITION)
    time.sleep(0.2)  # A call also ends when no more has arrived; only messages that wait show the limit of time.
    readings = itertools.count()
    monkeypatch.setattr(subscriber, "monotonic_s", lambda: next(readings) * 0.4 * subscriber.CALL_S)
    calls = []
    assert wait_until(lambda: calls.append(len(mission.receive(0.0))) or sum(calls) == CHUNK, 5.0)
    assert max(calls) <= 3 * subscriber.IN_A_ROW


def test_one_call_takes_no_more_than_its_bytes(ends, monkeypatch):
    fcu, _, mission = ends
    monkeypatch.setattr(subscriber, "CALL_BYTES", 10_000)
    text = FcuText(stamp_s=0.0, severity=6, text="x" * 4000)
    for _ in range(20):
        fcu.publish(text)
    calls = []
    assert wait_until(lambda: calls.append(len(mission.receive(0.2))) or sum(calls) == 20, 5.0)
    assert max(calls) <= 3


def test_a_flood_of_one_topic_delays_no_other_topic_and_is_counted(ends, monkeypatch):
    fcu, estimator, mission = ends
    monkeypatch.setattr(subscriber, "monotonic_s", lambda: 1000.0)  # all of it within one second
    got = []
    for _ in range(20):  # 10,000 messages: sent, and read as fast as they are sent
        for _ in range(CHUNK):
            fcu.publish(POSITION)
        fcu.publish(TEXT)  # behind them, from the same process
        estimator.publish(STATUS)
        got += drained(mission)

    def kinds() -> list[type]:
        got.extend(mission.receive(0.05))
        return [type(message) for message in got]

    assert wait_until(lambda: kinds().count(FcuText) == kinds().count(EstimatorStatus) == 20, 5.0)
    assert kinds().count(FcuPosition) <= TOPIC_PER_S
    assert mission.errors >= 20 * CHUNK - TOPIC_PER_S
    assert "fcu_position: more than 2000 messages in a second" in mission.last_error


def test_messages_of_another_process_pass_a_flood_that_waits(ends):
    fcu, estimator, mission = ends
    for _ in range(1500):
        fcu.publish(POSITION)
    estimator.publish(STATUS)
    calls = []

    def arrived():
        calls.append(mission.receive(0.2))
        return any(isinstance(message, EstimatorStatus) for message in calls[-1])

    assert wait_until(arrived, 5.0, 0.0)
    assert sum(map(len, calls)) < 1500  # each process has its turn


def test_a_process_is_received_with_its_own_topics_alone(ends, tmp_path):
    """The view, which talks to browsers, may ask; a position or a state out of its socket is not taken."""
    _, estimator, mission = ends
    view, receiver = ZmqBus(tmp_path, "view", ()), ZmqBus(tmp_path, "recorder", ("operator_request", "estimator"))
    request = OperatorRequest(stamp_s=0.0, action=OperatorAction.HOLD, who="page")
    connect(receiver, (view, request), (estimator, STATUS))
    for _ in range(20):
        view.publish(STATUS)  # in the view's own name
        view._publisher.send_multipart(encode(STATUS, "estimator"))  # and in that of the estimator
    view.publish(request)
    assert drained(receiver) == [request] and receiver.errors == 0
    drained(mission)
    estimator.publish(POSITION)  # a process of the control loop, too: the position is of `fcu`
    estimator.publish(STATUS)
    assert drained(mission) == [STATUS]
    for end in (view, receiver):
        end.close()


def test_each_source_gets_its_turn_in_every_call(ends, monkeypatch):
    fcu, estimator, mission = ends
    monkeypatch.setattr(subscriber, "CALL_S", 0.0)
    monkeypatch.setattr(subscriber, "CALL_BYTES", 1)
    for _ in range(CHUNK):
        fcu.publish(POSITION)
    estimator.publish(STATUS)
    time.sleep(0.2)
    assert {type(message) for message in mission.receive(0.0)} == {FcuPosition, EstimatorStatus}


def test_a_huge_message_is_not_held_and_its_sender_is_received_again(ends):
    fcu, estimator, mission = ends
    fcu._publisher.send_multipart([b"fcu_text/fcu", b"x" * 8, bytes(20 * MESSAGE_MAX_BYTES)])
    got = []
    assert wait_until(lambda: fcu.publish(TEXT) or got.extend(mission.receive(0.05)) or mission.errors, 5.0, 0.0)
    assert TEXT in got or TEXT in drained(mission)
    assert mission.errors == 1 and mission.last_error == "fcu: sent more than a message may have; connected again"
    connect(mission, (estimator, STATUS))


def test_a_sender_that_starts_again_is_no_error(tmp_path):
    mission = ZmqBus(tmp_path, "mission", ("fcu_position",))
    for _ in range(2):
        fcu = ZmqBus(tmp_path, "fcu", ())
        connect(mission, (fcu, POSITION))
        fcu.close()
        # Longer than a lost connection is left to ZeroMQ.
        assert not wait_until(lambda: mission.receive(0.05), subscriber.LOST_S + 0.3, 0.0)
    assert mission.errors == 0
    mission.close()


def test_a_message_that_no_one_would_take_is_not_sent(ends):
    fcu, _, mission = ends
    fcu.publish(FcuText(stamp_s=0.0, severity=6, text="x" * (MESSAGE_MAX_BYTES + 1)))
    fcu.publish(TEXT)
    assert drained(mission) == [TEXT]
    assert fcu.errors == 1 and fcu.last_error == "fcu_text: not sent: 1 MB, at most 1 MB"


def test_a_stopped_subscriber_does_not_make_a_camera_grow(tmp_path):
    camera, tracker = ZmqBus(tmp_path, "camera", ()), ZmqBus(tmp_path, "tracker", ("image",))
    image = Image(stamp_s=0.0, width=640, height=480, data=bytes(640 * 480))
    connect(tracker, (camera, image))
    for _ in range(300):
        camera.publish(image)
    assert len(drained(tracker)) < 100
    camera.close()
    tracker.close()


# --- the folder


def test_a_folder_of_another_user_is_refused_and_not_changed(tmp_path, monkeypatch):
    folder = tmp_path / "bus"
    folder.mkdir(mode=0o755)
    owner = os.geteuid()
    monkeypatch.setattr("companion.core.folders.os.geteuid", lambda: owner + 1)
    with pytest.raises(ConfigError, match=rf"bus folder {folder}: belongs to another user \(id {owner}\)"):
        ZmqBus(folder, "fcu", ())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755 and not list(folder.iterdir())


def test_a_link_is_refused_and_its_target_not_changed(tmp_path):
    target = tmp_path / "home"
    target.mkdir(mode=0o755)
    (tmp_path / "bus").symlink_to(target)
    with pytest.raises(ConfigError, match="is a link, must be a folder"):
        ZmqBus(tmp_path / "bus", "fcu", ())
    assert stat.S_IMODE(target.stat().st_mode) == 0o755 and not list(target.iterdir())


def test_a_folder_with_other_files_keeps_its_access(tmp_path):
    folder = tmp_path / "tmp"
    folder.mkdir(mode=0o755)
    (folder / "fcu.sock").write_text("")
    ZmqBus(folder, "fcu", ()).close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    (folder / "notes.txt").write_text("of the user")
    with pytest.raises(ConfigError, match=r"holds other files \(notes\.txt\)"):
        ZmqBus(folder, "fcu", ())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_a_socket_is_not_writable_by_others(tmp_path):
    before = os.umask(0)
    try:
        bus = ZmqBus(tmp_path, "fcu", ())
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "fcu.sock").stat().st_mode) == 0o600
    bus.close()


def test_a_name_that_cannot_be_bound_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match="the path is longer than 107 bytes"):
        ZmqBus(tmp_path / ("x" * 120), "fcu", ())
    (tmp_path / "fcu.sock").mkdir()
    with pytest.raises(ConfigError, match="fcu.sock: cannot be opened"):
        ZmqBus(tmp_path, "fcu", ())


def test_a_stale_file_in_the_place_of_a_socket_is_replaced(tmp_path):
    (tmp_path / "fcu.sock").write_text("left by another user")
    fcu, mission = ZmqBus(tmp_path, "fcu", ()), ZmqBus(tmp_path, "mission", ("fcu_position",))
    connect(mission, (fcu, POSITION))
    fcu.close()
    mission.close()


def test_an_end_that_receives_closes_twice(tmp_path):
    bus = ZmqBus(tmp_path, "recorder", ("state", "image", "photo"))
    bus.close()
    bus.close()


def test_a_state_is_far_from_the_largest_message():
    zero, upright = (0.0,) * 3, (1.0, 0.0, 0.0, 0.0)
    state = State(
        stamp_s=1.0, p_W=zero, v_W=zero, q_WB=upright, disturbance_W=zero, gnss_bias_W=zero, velocity_bias_W=zero,
        bundle="x" * 1000, p_WM=zero, q_WM=upright, marker_age_s=1.0, position_std_m=1.0, relative_std_m=1.0,
        covariance_diag=(0.1,) * 24, battery_voltage_v=15.0, reset_count=0,
    )  # fmt: skip
    assert sum(map(len, encode(state))) < MESSAGE_MAX_BYTES / 100
    assert zmq.zmq_version_info() >= (4, 3)

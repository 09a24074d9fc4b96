"""The bus delivers the topics of the table and drops unknown messages."""

import hashlib
import shutil
import stat
import subprocess
import sys

import msgspec
import pytest
import zmq

from companion.core import bus as bus_module
from companion.core.bus import BadMessage, MemoryHub, OtherVersion, ZmqBus, decode, encode
from companion.core.messages import TOPICS, FcuPosition, Image, Reference, SentSetpoint, State
from companion.core.trajectory_messages import FigureEight, Hold, Line, Move, Raster, Resumed, Spiral, Waypoints
from companion.runtime.manager import wait_until

POSITION = dict(p_W=(1.0, 2.0, 3.0), v_W=(0.0, 0.0, 0.0))


@pytest.fixture
def pair(tmp_path):
    source = ZmqBus(tmp_path / "bus", "fcu", ())
    sink = ZmqBus(tmp_path / "bus", "estimator", ("fcu_position", "sent_setpoint"))
    yield source, sink
    source.close()
    sink.close()


def receive_some(source, sink, message):
    """Publish until something arrives (PUB drops what is sent before the sockets have met)."""
    got = []

    def attempt():
        source.publish(message)
        got.extend(sink.receive(0.05))
        return bool(got)

    assert wait_until(attempt, 5.0, 0.0)
    return got


def test_a_message_arrives_as_it_was_sent(pair):
    source, sink = pair
    got = receive_some(source, sink, FcuPosition(stamp_s=1.5, **POSITION))[0]
    assert (got.stamp_s, got.p_W, got.valid) == (1.5, (1.0, 2.0, 3.0), True)


def test_each_topic_is_counted_by_its_source(pair):
    source, sink = pair
    receive_some(source, sink, FcuPosition(stamp_s=0.0, **POSITION))
    sink.receive(0.05)
    for _ in range(3):
        source.publish(FcuPosition(stamp_s=0.0, **POSITION))
    numbers = []
    assert wait_until(lambda: numbers.extend(m.seq for m in sink.receive(0.05)) or len(numbers) >= 3, 5.0)
    assert [b - a for a, b in zip(numbers, numbers[1:], strict=False)] == [1, 1]


def test_the_socket_folder_is_readable_by_the_owner_alone(pair, tmp_path):
    assert stat.S_IMODE((tmp_path / "bus").stat().st_mode) == 0o700


def test_a_restarted_publisher_is_received_again(tmp_path):
    sink = ZmqBus(tmp_path, "estimator", ("fcu_position",))
    for stamp_s in (1.0, 2.0):
        source = ZmqBus(tmp_path, "fcu", ())
        got = receive_some(source, sink, FcuPosition(stamp_s=stamp_s, **POSITION))
        assert got[-1].stamp_s == stamp_s
        source.close()
        sink.receive(0.05)
    sink.close()


def test_a_bus_whose_folder_was_deleted_is_reached_by_old_and_new_processes(pair, tmp_path):
    source, sink = pair
    receive_some(source, sink, FcuPosition(stamp_s=1.0, **POSITION))
    shutil.rmtree(tmp_path / "bus")
    source.restore()
    assert source.errors == 1 and source.last_error == f"{tmp_path}/bus/fcu.sock: was deleted, opened again"
    assert stat.S_IMODE((tmp_path / "bus").stat().st_mode) == 0o700
    late = ZmqBus(tmp_path / "bus", "controller", ("fcu_position",))
    assert receive_some(source, late, FcuPosition(stamp_s=2.0, **POSITION))[-1].stamp_s == 2.0
    assert receive_some(source, sink, FcuPosition(stamp_s=3.0, **POSITION))[-1].stamp_s >= 2.0
    late.close()
    source.restore()
    assert source.errors == 1


def test_a_socket_that_another_process_has_bound_since_is_left_alone(tmp_path):
    first, second = ZmqBus(tmp_path, "fcu", ()), ZmqBus(tmp_path, "fcu", ())
    first.restore()
    assert first.errors == 0
    first.close()
    assert (tmp_path / "fcu.sock").exists()
    second.close()


def test_a_deleted_folder_that_cannot_be_made_again_is_counted(tmp_path):
    source = ZmqBus(tmp_path / "bus", "fcu", ())
    shutil.rmtree(tmp_path / "bus")
    (tmp_path / "bus").write_text("")
    source.restore()
    assert source.errors == 1 and "was deleted, cannot be opened again: " in source.last_error
    source.close()


def test_a_closed_end_leaves_no_file(tmp_path):
    source = ZmqBus(tmp_path, "fcu", ())
    assert [path.name for path in tmp_path.iterdir()] == ["fcu.sock"]
    source.close()
    assert not list(tmp_path.iterdir())
    source.close()  # twice is once
    elsewhere = ZmqBus(tmp_path / "gone", "fcu", ())
    (tmp_path / "gone/fcu.sock").unlink()
    elsewhere.close()  # its file was removed before


def test_the_file_of_a_process_started_in_its_place_stays(tmp_path):
    sink = ZmqBus(tmp_path, "estimator", ("fcu_position",))
    old = ZmqBus(tmp_path, "fcu", ())
    new = ZmqBus(tmp_path, "fcu", ())
    old.close()
    assert receive_some(new, sink, FcuPosition(stamp_s=2.0, **POSITION))[-1].stamp_s == 2.0
    new.close()
    sink.close()


def test_corrupted_messages_are_counted_and_dropped(pair, tmp_path):
    source, sink = pair
    receive_some(source, sink, FcuPosition(stamp_s=0.0, **POSITION))
    good = encode(FcuPosition(stamp_s=0.0, **POSITION))
    for frames in (
        [good[0], good[1], good[2][:-3]],
        [b"fcu_position/other", good[1], b""],
        [good[0], good[2]],
        [good[0], good[1], b"\xff" * 40],
    ):
        source._publisher.send_multipart(frames)
    assert wait_until(lambda: sink.receive(0.05) is None or sink.errors >= 4, 5.0)
    assert sink.errors == 4
    assert sink.last_error.startswith("fcu_position: undecodable")


def test_a_peer_with_another_message_version_is_named_with_both_versions():
    topic, version, payload = encode(FcuPosition(stamp_s=0.0, **POSITION), "fcu")
    with pytest.raises(OtherVersion) as error:
        decode([topic, b"00000000", payload])
    assert "fcu_position: fcu speaks version 3030303030303030" in str(error.value)
    assert version.hex() in str(error.value) and "\n" not in str(error.value)


def test_messages_of_a_peer_with_another_table_are_dropped_counted_and_reported(pair):
    source, sink = pair
    receive_some(source, sink, FcuPosition(stamp_s=0.0, **POSITION))
    topic, _, payload = encode(FcuPosition(stamp_s=0.0, **POSITION), "fcu")
    for _ in range(3):
        source._publisher.send_multipart([topic, b"otherver", payload])
    source._publisher.send_multipart([topic, b"too few"])
    got = []
    assert wait_until(lambda: got.extend(sink.receive(0.05)) or sink.errors >= 4, 5.0)
    assert not [m for m in got if m.stamp_s != 0.0]
    assert (sink.errors, sink.other_versions) == (4, 3)
    assert sink.last_error.startswith("fcu_position: fcu speaks version")  # not the lesser error after it


@pytest.mark.parametrize("name", [b"fcu\n\x1b[31m/", b"\xff\xfe/", b"", b"x" * 100_000])
def test_a_topic_of_an_unknown_sender_is_one_short_printable_line(name):
    with pytest.raises(BadMessage) as error:
        decode([name, b"00000000", b""])
    assert str(error.value).isprintable() and len(str(error.value)) < 120


def test_a_changed_field_changes_the_version():
    class Changed(FcuPosition):
        extra: float = 0.0

    assert bus_module.schema_version(Changed) != bus_module.schema_version(FcuPosition)


@pytest.mark.parametrize("topic", TOPICS)
def test_every_type_of_the_table_has_the_common_fields(topic):
    names = {field.name for field in msgspec.structs.fields(TOPICS[topic].type)}
    assert {"stamp_s", "seq", "valid"} <= names


# A logged flight and a process of another version are read by these bytes: the tag, the names and their order.
@pytest.mark.parametrize(
    "trajectory, bytes_long, digest",
    [
        (Hold(p=(1.0, 2.0, 3.0), yaw_rad=0.5), 144, "eafae5bf0efe8219"),
        (Move((1.0, 2.0, 3.0), 0.5, (4.0, 5.0, 6.0), 1.5, 1.0, 0.5, 0.25), 281, "5238d160d7022b8d"),
        (Line((1.0, 2.0, 3.0), (4.0, 5.0, 6.0), 0.5, 1.0, 0.5, 2.0, 3), 252, "cc2169efca093005"),
        (Spiral((1.0, 2.0, 3.0), 4.0, 5.0, 0.5, -1.0, 30.0, 2.0), 248, "3e9eae8aaea2e82a"),
        (FigureEight((1.0, 2.0, 3.0), (2.0, 0.0, 0.0), (0.0, 1.0, 0.0), 0.5, 8.0, 2, 1.5), 274, "2353fd148fe77486"),
        (Raster((1.0, 2.0, 3.0), 4.0, 2.0, 0.5, 0.5, 1.0, 0.25, 2.0), 267, "e96382b88a6cbdca"),
        (Resumed(Line((1.0, 2.0, 3.0), (4.0, 5.0, 6.0), 0.5, 1.0, 0.5, 2.0, 3), 4.5, 1.5), 304, "0a80220c9b410296"),
        (Waypoints(((1.0, 2.0, 3.0), (4.0, 5.0, 6.0)), (0.5, 1.5), 1.0, 0.5, 0.25), 264, "4ee3c390749783d9"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_trajectory_has_the_same_bytes_as_ever(trajectory, bytes_long, digest):
    message = Reference(stamp_s=1.5, seq=7, id=2, frame="pier", start_s=0.25, trajectory=trajectory)
    _, _, data = frames = encode(message)
    assert decode(frames) == message
    assert (len(data), hashlib.sha256(data).hexdigest()[:16]) == (bytes_long, digest)


def test_images_do_not_pile_up_for_a_slow_subscriber(tmp_path):
    source = ZmqBus(tmp_path, "camera", ())
    sink = ZmqBus(tmp_path, "tracker", ("image",))
    big = bytes(640 * 480)
    receive_some(source, sink, Image(stamp_s=0.0, width=640, height=480, data=big))
    for i in range(200):
        source.publish(Image(stamp_s=float(i), width=640, height=480, data=big))
    got = []
    wait_until(lambda: got.extend(sink.receive(0.05)), 0.3)
    assert len(got) < 100
    source.close()
    sink.close()


def test_a_bus_that_was_not_closed_is_collected_without_an_error(tmp_path):
    code = "from pathlib import Path; from companion.core.bus import ZmqBus; import gc; "
    code += f"bus = ZmqBus(Path({str(tmp_path)!r}), 'fcu', ('setpoint',)); bus.me = bus; del bus; gc.collect()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=20)


def test_in_memory_the_same_interface_delivers_at_once():
    hub = MemoryHub()
    source, sink = hub.connect(()), hub.connect(("fcu_position",))
    source.publish(FcuPosition(stamp_s=1.0, **POSITION))
    source.publish(SentSetpoint(stamp_s=1.0, roll_rad=0, pitch_rad=0, yaw_rad=0, yaw_rate_rad_s=0, thrust=0))
    assert [type(m) for m in sink.receive()] == [FcuPosition]
    assert sink.receive() == []


def test_in_memory_a_process_that_is_restarted_counts_its_messages_from_one():
    hub = MemoryHub()
    source, sink = hub.connect(("fcu_position",)), hub.connect(("fcu_position",))
    for _ in range(2):
        source.publish(FcuPosition(stamp_s=1.0, **POSITION))
    source.restart()
    assert source.receive() == []
    source.publish(FcuPosition(stamp_s=2.0, **POSITION))
    assert [m.seq for m in sink.receive()] == [1, 2, 1]
    assert len(source.receive()) == 1


def test_publishing_never_blocks_without_a_subscriber(tmp_path):
    source = ZmqBus(tmp_path, "fcu", ())
    for _ in range(10000):
        source.publish(FcuPosition(stamp_s=0.0, **POSITION))
    assert source.errors == 0
    source.close()


def test_state_fits_the_wire():
    assert isinstance(zmq.zmq_version(), str)
    state = State(
        stamp_s=1.0, p_W=(0, 0, 0), v_W=(0, 0, 0), q_WB=(1, 0, 0, 0), disturbance_W=(0, 0, 0), gnss_bias_W=(0, 0, 0),
        velocity_bias_W=(0, 0, 0), bundle="", p_WM=(0, 0, 0), q_WM=(1, 0, 0, 0), marker_age_s=float("inf"),
        position_std_m=1.0, relative_std_m=float("inf"), covariance_diag=(0.1,) * 24, battery_voltage_v=15.0,
        reset_count=0,
    )  # fmt: skip
    assert decode(encode(state)) == state

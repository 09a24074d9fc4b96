"""A log is there when it is needed: after kill -9, cut off, with a full disk."""

import errno
import os
import random
import shutil
import subprocess
import sys
import time

import cv2
import msgspec
import numpy as np
import pytest
from mcap.reader import make_reader
from mcap.writer import Writer

from companion.core.config import ConfigError
from companion.core.messages import TOPICS, FcuAttitude, Image, LinkRx, Photo
from companion.recording import batches
from companion.recording import writer as writer_module
from companion.recording.batches import Row
from companion.recording.forms import Leaves
from companion.recording.log import LogError, Undecodable, iterate, parts, read_log, series, side_cars
from companion.recording.recorder import RecorderNode, pose_at
from companion.recording.writer import LogWriter
from companion.runtime.flight_record import flight_metadata


def attitude(t: float, seq: int = 0) -> FcuAttitude:
    return FcuAttitude(stamp_s=t, seq=seq, q_WB=(1.0, 0.0, 0.0, 0.0), omega_B=(0.1, 0.2, 0.3))


def record(path, messages, delay_s=0.002) -> RecorderNode:
    node = RecorderNode(LogWriter(path, {"vehicle": "name = 'F550'"}))
    next_step_s = messages[0].stamp_s
    for message in messages:
        while next_step_s <= message.stamp_s:
            assert list(node.step(next_step_s)) == []
            next_step_s += 1 / node.rate_hz
        assert list(node.handle(message, message.stamp_s + delay_s)) == []
    return node


def ordered(flight):
    return sorted((m for messages in flight.values() for m in messages), key=lambda m: m.stamp_s)


@pytest.fixture(scope="module")
def whole(flight, tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "flight.mcap"
    record(path, ordered(flight)).close()
    return path


def test_metadata_that_are_known_later_are_in_the_log(tmp_path):
    path, known = tmp_path / "flight.mcap", []
    writer = LogWriter(path, {"run": "{}"}, later=lambda: {"run": '{"a": 1}'} if known else None)
    writer.flush()
    assert read_log(path).metadata["run"] == "{}"
    known.append(True)
    writer.flush()
    known.clear()  # it is asked until it knows
    writer.flush()
    writer.close()
    assert read_log(path).metadata["run"] == '{"a": 1}' and not writer.errors


def test_metadata_that_cannot_be_known_later_end_no_log(tmp_path):
    writer = LogWriter(tmp_path / "flight.mcap", {"run": "{}"}, later=lambda: {}["absent"])
    writer.flush()
    writer.flush()
    writer.close()
    assert writer.errors == 1 and read_log(writer.path).metadata["run"] == "{}"


def test_a_log_gives_back_every_message(flight, whole):
    log = read_log(whole)
    for topic in TOPICS:
        assert [m.stamp_s for m in log[topic]] == [m.stamp_s for m in flight[topic]], topic
    assert log["state"][500:510] == flight["state"][500:510]
    assert log.metadata["vehicle"] == "name = 'F550'"
    assert log.metadata["start_time"].endswith("+00:00")
    assert not log.truncated
    assert log.undecodable == {}
    assert log.arrival_s["state"][0] == pytest.approx(flight["state"][0].stamp_s + 0.002)


def test_the_file_is_a_complete_indexed_mcap_with_some_messages_as_json_for_other_programs(flight, whole):
    with whole.open("rb") as stream:
        reader = make_reader(stream, validate_crcs=True)
        summary = reader.get_summary()
        packed = summary.channels[batches.CHANNEL_ID]
        assert (packed.topic, packed.message_encoding) == (batches.CHANNEL, batches.ENCODING)
        assert 19 <= summary.statistics.channel_message_counts[packed.id] <= 24  # about one a second
        copied = {c.topic: summary.statistics.channel_message_counts[c.id] for c in summary.channels.values()}
        assert (
            copied["safety"] == len(flight["safety"]) and copied["state"] == 4
        )  # of events all, else one in five seconds
        for channel in summary.channels.values():
            if channel.id == packed.id:
                continue
            assert channel.message_encoding == "json" and channel.metadata == {"copy": "true"}
            schema = summary.schemas[channel.schema_id]
            assert schema.encoding == "jsonschema"
            assert msgspec.json.decode(schema.data)["type"] == "object"
        _, channel, message = next(iter(reader.iter_messages(topics=["state"])))
        assert channel.topic == "state"
        assert message.publish_time == round(flight["state"][0].stamp_s * 1e9)
        assert message.log_time == round((flight["state"][0].stamp_s + 0.002) * 1e9)


def test_some_topics_can_be_read_alone_and_in_order_of_arrival(whole):
    entries = list(iterate(whole, ["mission_status", "safety"]))
    assert {e.topic for e in entries} == {"mission_status", "safety"}
    assert [e.arrival_s for e in entries] == sorted(e.arrival_s for e in entries)
    t, p = series(read_log(whole, ["state"])["state"], "p_W")
    assert (t.shape, p.shape) == ((2000,), (2000, 3))
    assert series([], "p_W")[0].shape == (0,)


KILLED = """
import sys, time
from companion.core.clock import monotonic_s
from companion.core.messages import FcuAttitude
from companion.recording.recorder import RecorderNode
from companion.runtime.flight_record import flight_metadata
from companion.recording.writer import LogWriter
node = RecorderNode(LogWriter(sys.argv[1], {}))
seq, next_step_s = 0, monotonic_s()
while True:
    now_s = monotonic_s()
    node.handle(FcuAttitude(stamp_s=now_s, seq=seq, q_WB=(1.0, 0.0, 0.0, 0.0), omega_B=(0.0, 0.0, 0.0)), now_s)
    seq += 1
    if now_s >= next_step_s:
        node.step(now_s)
        next_step_s += 1 / node.rate_hz
    if seq == 500:
        print("running", flush=True)
    time.sleep(0.002)
"""


def test_kill_9_loses_less_than_a_second_and_the_log_opens(tmp_path):
    path = tmp_path / "flight.mcap"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "running\n"
        time.sleep(0.37)
        killed_s = time.monotonic()
    finally:
        process.kill()
        process.wait()
    log = read_log(path)
    assert log.truncated
    received = log["fcu_attitude"]
    assert [m.seq for m in received] == list(range(len(received))), "no gaps before the end"
    assert killed_s - received[-1].stamp_s < 1.0
    assert len(received) > 300


def test_a_log_cut_anywhere_opens_with_what_was_before_the_cut(flight, tmp_path):
    path = tmp_path / "flight.mcap"
    record(path, ordered(flight)[:3000])  # not closed, as after a kill
    data = path.read_bytes()
    rng = random.Random(1)
    full = len(list(iterate(path)))
    assert full > 2500
    counts = []
    start = data.index(b"start_s") + 100  # after the metadata; their length depends on the machine and the command line
    for size in sorted(rng.sample(range(start, len(data)), 25)):
        cut = tmp_path / "cut.mcap"
        cut.write_bytes(data[:size])
        log = read_log(cut)
        assert log.truncated
        counts.append(sum(len(m) for m in log.values()))
    assert counts == sorted(counts)
    assert counts[-1] >= full - 600  # of the last second


def test_a_damaged_log_never_raises_anything_but_a_log_error(whole, tmp_path):
    data = whole.read_bytes()
    rng = random.Random(2)
    damaged = tmp_path / "damaged.mcap"
    for _ in range(20):
        broken = bytearray(data)
        for _ in range(3):
            broken[rng.randrange(len(data))] = rng.randrange(256)
        damaged.write_bytes(broken)
        try:
            read_log(damaged)
        except LogError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"\x89PNG\r\n\x1a\n" + b"x" * 500, os.urandom(5000), b"\x89MCAP0\r\n"]
)
def test_what_is_not_a_log_is_said_in_one_line(tmp_path, content):
    path = tmp_path / "x.mcap"
    path.write_bytes(content)
    with pytest.raises(LogError, match="x.mcap: not a flight log") as error:
        read_log(path)
    assert "\n" not in str(error.value)


def test_missing_files_other_mcaps_and_unknown_topics_are_said_in_one_line(tmp_path, whole):
    with pytest.raises(LogError, match="No such file"):
        read_log(tmp_path / "nothing.mcap")
    with pytest.raises(LogError, match="no topic 'stat'"):
        read_log(whole, ["stat"])
    with (tmp_path / "other.mcap").open("wb") as stream:
        other = Writer(stream)
        other.start()
        channel = other.register_channel("/rosout", "json", 0)
        other.add_message(channel, 0, b"{}", 0)
        other.finish()
    with pytest.raises(LogError, match="MCAP of something else"):
        read_log(tmp_path / "other.mcap")


def test_messages_of_another_version_are_counted_not_fatal(tmp_path):
    path = tmp_path / "flight.mcap"
    writer = LogWriter(path, {})
    writer.put("fcu_attitude", attitude(1.0), 1.0)
    writer.flush()
    other = Row("fcu_attitude", msgspec.msgpack.encode({"stamp_s": 0.0, "roll": 0.0}), Leaves([2.0, 0.1], [], []), 2)
    writer._mcap.add_message(batches.CHANNEL_ID, 2, writer._packer.pack([other]), 2)
    writer.close()
    log = read_log(path)
    assert len(log["fcu_attitude"]) == 1
    assert log.undecodable == {"fcu_attitude": Undecodable(1, "Object contains unknown field `roll`")}


def test_a_full_disk_is_counted_and_the_log_goes_on_without_a_hole_when_there_is_space_again(tmp_path, monkeypatch):
    path = tmp_path / "flight.mcap"
    node = RecorderNode(LogWriter(path, {}))
    real_write = os.write
    full = False

    def write(fd, data):
        if full:
            if len(data) > 10:
                return real_write(fd, bytes(data[:10]))  # a disk gets full in the middle of a record
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_write(fd, data)

    monkeypatch.setattr(writer_module.os, "write", write)
    for i in range(100):
        full = 40 <= i < 60
        node.handle(attitude(1.0 + 0.1 * i, i), 1.0 + 0.1 * i)
        if full:
            monkeypatch.setattr(writer_module.os, "write", _no_space)
        elif i == 60:
            monkeypatch.setattr(writer_module.os, "write", write)
        node.step(1.0 + 0.1 * i)
    assert node.errors > 0
    assert "No space left" in node.last_error
    monkeypatch.undo()
    node.close()
    log = read_log(path)
    assert not log.truncated
    assert [m.seq for m in log["fcu_attitude"]] == list(range(100))


def _no_space(fd, data):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_stays_full_costs_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(writer_module, "SPOOL_MAX_BYTES", 20_000)
    node = RecorderNode(LogWriter(tmp_path / "flight.mcap", {}))
    monkeypatch.setattr(writer_module.os, "write", _no_space)
    for i in range(300):
        node.handle(LinkRx(stamp_s=float(i), data=os.urandom(1000)), float(i))
        node.step(float(i))
    assert node._writer.dropped > 200
    assert node._writer._spool.waiting_bytes < 30_000
    node.close()


def test_a_message_that_cannot_be_encoded_costs_only_itself(tmp_path):
    path = tmp_path / "flight.mcap"
    node = RecorderNode(LogWriter(path, {}))
    node.handle(FcuAttitude(stamp_s=1.0, q_WB=object(), omega_B=(0.0, 0.0, 0.0)), 1.0)
    node.handle(attitude(float("nan")), 1.1)
    node.handle(attitude(1.2), 1.2)
    node.close()
    assert len(read_log(path)["fcu_attitude"]) == 2
    assert node.errors == 2
    assert "cannot be encoded" in node.last_error


def test_logs_are_never_overwritten_and_bad_places_are_refused_in_one_line(tmp_path):
    path = tmp_path / "flight.mcap"
    LogWriter(path, {}).close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="never overwritten"):
        LogWriter(path, {})
    assert path.read_bytes() == before
    with pytest.raises(ConfigError, match="cannot be created"):
        LogWriter(path / "below" / "a_file.mcap", {})
    with pytest.raises(ConfigError, match=r"mission.toml: no such file"):
        flight_metadata(tmp_path / "vehicle.toml", tmp_path / "mission.toml")


def test_images_are_not_logged_and_bytes_are(tmp_path):
    node = RecorderNode(LogWriter(tmp_path / "flight.mcap", {}))
    node.handle(Image(stamp_s=1.0, width=2, height=1, data=b"ab"), 1.0)
    node.handle(LinkRx(stamp_s=1.0, data=bytes(range(256))), 1.0)
    node.close()
    log = read_log(tmp_path / "flight.mcap")
    assert log["image"] == []
    assert log["link_rx"][0].data == bytes(range(256))


def test_messages_reach_the_disk_without_a_step_of_the_recorder(tmp_path):
    path = tmp_path / "flight.mcap"
    node = RecorderNode(LogWriter(path, {}))
    for i in range(200):
        node.handle(attitude(i * 0.01, i), i * 0.01)
    assert len(read_log(path)["fcu_attitude"]) >= 100


def test_a_photograph_is_saved_with_the_pose_it_was_taken_from(flight, tmp_path):
    png = cv2.imencode(".png", np.full((20, 30), 90, np.uint8))[1].tobytes()
    states = flight["state"][600:800]
    node = RecorderNode(LogWriter(tmp_path / "flight.mcap", {}, start_s=states[0].stamp_s))
    stamp_s = states[100].stamp_s + 0.004
    for state in states[:100]:
        node.handle(state, state.stamp_s)
    node.handle(Photo(stamp_s=stamp_s, id=7, png=png), stamp_s)
    node.step(stamp_s)
    assert list(tmp_path.glob("*.png")) == [], "waits for a state younger than the photograph"
    for state in states[100:]:
        node.handle(state, state.stamp_s)
    node.step(states[-1].stamp_s)
    assert (tmp_path / "flight_photo_007.png").read_bytes() == png
    facts = msgspec.json.decode((tmp_path / "flight_photo_007.json").read_bytes())
    assert facts["pose"] == "interpolated"
    assert facts["trusted"]
    assert facts["bundle"] == "pier"
    assert facts["stamp_s"] == stamp_s
    assert facts["relative_std_m"] == 0.03
    assert np.allclose(facts["p_MB"], (0.04, 0.18, 3.10), atol=1e-9)  # goal + true error + error of the estimate
    node.handle(Photo(stamp_s=stamp_s, id=7, png=b"second"), stamp_s)
    node.close()
    assert (tmp_path / "flight_photo_007.png").read_bytes() == png
    assert (tmp_path / "flight_photo_007_2.png").read_bytes() == b"second"


def test_the_pose_of_a_photograph_is_interpolated_between_states(flight):
    first = msgspec.structs.replace(flight["state"][600], p_W=(0.0, 0.0, 0.0), q_WB=(1.0, 0.0, 0.0, 0.0), stamp_s=1.0)
    half_turn = (np.cos(0.4), 0.0, 0.0, np.sin(0.4))
    second = msgspec.structs.replace(first, p_W=(1.0, 2.0, 3.0), q_WB=tuple(-x for x in half_turn), stamp_s=2.0)
    facts = pose_at([first, second], 1.25)
    assert np.allclose(facts["p_WB"], (0.25, 0.5, 0.75))
    assert np.allclose(np.abs(facts["q_WB"]), (np.cos(0.1), 0, 0, np.sin(0.1)))
    assert facts["state_age_s"] == 0.25
    late = pose_at([first, second], 2.5)
    assert (late["pose"], late["state_age_s"]) == ("nearest", 0.5)
    assert pose_at([second], 1.5)["state_age_s"] == -0.5
    assert pose_at([], 1.5) == {"pose": "none"}
    assert not pose_at([first, msgspec.structs.replace(second, valid=False)], 1.5)["trusted"]


def test_recording_costs_a_few_percent_of_a_core(flight, tmp_path):
    messages = ordered(flight)  # 20 s, about 440 messages a second
    start = time.process_time()
    record(tmp_path / "flight.mcap", messages).close()
    assert (time.process_time() - start) / 20 < 0.08


def test_a_log_of_another_flight_is_no_continuation_whatever_its_name(tmp_path):
    for name, metadata in (
        ("test.mcap", {}),
        ("test_2.mcap", {}),
        ("flight.mcap", {}),
        ("flight_2.mcap", {"continues": "flight.mcap"}),
    ):
        writer = LogWriter(tmp_path / name, metadata)
        writer.put("fcu_attitude", attitude(1.0, 1), 1.0)
        writer.close()
    assert parts(tmp_path / "test.mcap") == [tmp_path / "test.mcap"]
    assert parts(tmp_path / "flight.mcap") == [tmp_path / "flight.mcap", tmp_path / "flight_2.mcap"]
    assert len(read_log(tmp_path / "flight.mcap")["fcu_attitude"]) == 2
    (tmp_path / "test_2.mcap").write_bytes(b"not a log")
    assert len(read_log(tmp_path / "test.mcap")["fcu_attitude"]) == 1


def test_a_log_whose_folder_is_removed_in_flight_begins_again(tmp_path):
    path = tmp_path / "flights" / "flight.mcap"
    writer = LogWriter(path, {"vehicle": "name = 'F550'"})
    for i in range(100):
        writer.put("fcu_attitude", attitude(i * 0.02, i), i * 0.02)
        if i % 10 == 0:
            writer.flush()
        if i == 50:
            shutil.rmtree(path.parent)
    assert writer.errors == 1 and "deleted in flight, begun again" in writer.last_error
    writer.close()
    log = read_log(path)
    assert [m.seq for m in log["fcu_attitude"]] == list(range(51, 100))
    assert log.metadata["vehicle"] == "name = 'F550'" and float(log.metadata["start_s"]) == 0.0


def test_a_log_whose_folder_cannot_be_made_again_costs_nothing_but_the_log(tmp_path):
    path = tmp_path / "flights" / "flight.mcap"
    writer = LogWriter(path, {})
    shutil.rmtree(path.parent)
    path.parent.write_text("a file in the place of the folder")
    for i in range(10):
        writer.put("fcu_attitude", attitude(i * 0.02, i), i * 0.02)
        writer.flush()
    writer.save_photograph(1, b"png", {})
    assert writer.errors >= 10
    writer.close()


@pytest.mark.parametrize("name", ["flight.mcap", "pier 1.5 m.mcap", "[east] *.mcap"])
def test_every_photograph_has_a_file_of_its_own_whatever_the_log_is_called(tmp_path, name):
    writer = LogWriter(tmp_path / name, {})
    for number, png in ((1, b"first"), (2, b"second"), (2, b"its id again"), (13, b"last")):
        writer.save_photograph(number, png, {"id": number})
    writer.close()
    assert writer.errors == 0
    pictures = {path.with_suffix(".png").read_bytes() for path in side_cars(tmp_path / name)}
    assert pictures == {b"first", b"second", b"its id again", b"last"}
    assert not list(tmp_path.glob("*.part"))


def test_a_file_name_that_is_no_utf_8_does_not_keep_a_log_from_beginning(tmp_path):
    writer = LogWriter(tmp_path / "flight.mcap", {"mission_file": os.fsdecode(b"/missions/\xff.toml")})
    writer.close()
    assert read_log(tmp_path / "flight.mcap").metadata["mission_file"] == "/missions/?.toml"


@pytest.mark.parametrize("start_s", [float("inf"), float("nan")])
def test_a_log_with_a_damaged_start_has_no_offset_to_utc(tmp_path, start_s):
    LogWriter(tmp_path / "flight.mcap", {}, start_s=start_s).close()
    assert read_log(tmp_path / "flight.mcap").clock_offset_ns() == 0

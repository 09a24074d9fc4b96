"""Packed messages come back bit for bit; damaged ones raise one kind of error and take no memory."""

import contextlib
import random
import struct
import tracemalloc

import msgspec
import numpy as np
import pytest
import zstandard

from companion.core.messages import FcuText, LinkRx
from companion.recording.batches import (
    Batch,
    BatchPacker,
    BatchReader,
    Group,
    Section,
    dictionary,
    dictionary_text,
    row_of,
)
from companion.recording.codec import from_plain
from companion.recording.columns import DAMAGED, Table, packed, unpacked
from companion.recording.forms import Leaves, put_back, taken_out
from companion.recording.link_frames import FrameGroup, Link, LinkPacker, unpack_link
from companion.recording.writer import LogWriter

NAMES = dictionary()


def mavlink(number, sequence, payload, seed=50, signed=False):
    head = bytes((0xFD, len(payload), int(signed), 0, sequence & 0xFF, 1, 1)) + number.to_bytes(3, "little")
    crc = 0xFFFF
    for byte in (*head[1:], *payload, seed):
        t = (byte ^ crc) & 0xFF
        t ^= (t << 4) & 0xFF
        crc = (crc >> 8) ^ (t << 8) ^ (t << 3) ^ (t >> 4)
    return head + payload + struct.pack("<H", crc) + (bytes(range(13)) if signed else b"")


def connection(frames=60):
    rng = np.random.default_rng(3)
    pieces = []
    for i in range(frames):
        payload = struct.pack("<Qfff", 10_000 * i, *rng.normal(size=3).astype(np.float32).tolist())
        pieces.append(mavlink(105, i, payload, signed=i % 7 == 0) + (mavlink(0, i, b"\1\2\3") if i % 5 == 0 else b""))
    return pieces


def table_of(floats=(), integers=()):
    rows = len(floats) or len(integers)
    return packed(np.array(floats, np.float64).reshape(rows, -1), np.array(integers, np.int64).reshape(rows, -1))


def reader():
    return BatchReader(dictionary_text(NAMES))


def read(data, topics=None):
    return [(one.topic, from_plain(one.topic, one.message), one.arrival_ns) for one in reader().read(data, topics)]


def bits(message):
    return msgspec.msgpack.encode(message)


def mixed(flight, each=30):
    return [
        (topic, message, 1000 * i)
        for topic in ("state", "estimator", "health", "markers")
        for i, message in enumerate(flight[topic][:each])
    ]


def test_messages_of_every_topic_come_back_to_the_last_bit(flight):
    for topic in flight:
        messages = flight[topic][:100]
        if messages:
            found = read(BatchPacker(NAMES).pack([row_of(topic, message, 0) for message in messages]))
            assert [bits(message) for _, message, _ in found] == [bits(message) for message in messages]


@pytest.mark.parametrize(
    "values",
    [
        [1.5, 2.5, -3.25],
        [0.123457, -0.5, 1e-6],
        [1e300, -1e-300, 5e-324],
        [float("inf"), float("-inf"), float("nan")],
        [-0.0, 0.0, 1.0],
        [63.501273999999995, 0.1 + 0.2, 1 / 3],
        [2.0**53, 2.0**60, -(2.0**63)],
        [-1.0000001, -1.0000002, 1.0000001],
        [float("nan")] * 3,
        [0.25],
    ],
)
def test_floats_come_back_as_the_same_bits(values):
    columns = np.column_stack((values, np.negative(values), values))
    floats, _ = unpacked(packed(columns, np.zeros((len(values), 0), np.int64)))
    assert floats.tobytes() == columns.tobytes()


@pytest.mark.parametrize(
    "values",
    [
        [0, 127, -128, 32767, -32768],
        [2**31, -(2**31), 2**31 - 1, 0],
        [2**63 - 1, -(2**63), 0, 1],
        [-(2**63)] * 4,
        [70_000, 70_001, 70_000],
    ],
)
def test_whole_numbers_come_back(values):
    assert unpacked(table_of(integers=values))[1][:, 0].tolist() == values


def test_random_tables_come_back():
    rng = np.random.default_rng(1)
    for _ in range(50):
        rows = int(rng.integers(1, 300))
        scale = 10.0 ** rng.integers(-12, 12, size=4)
        floats = np.column_stack((rng.normal(size=(rows, 4)) * scale, np.round(rng.normal(size=(rows, 2)), 3)))
        integers = rng.integers(-(2**62), 2**62, size=(rows, 3)) >> rng.integers(0, 62, size=3)
        back_floats, back_integers = unpacked(packed(floats, integers))
        assert back_floats.tobytes() == floats.tobytes()
        assert (back_integers == integers).all()


def test_a_constant_and_a_copy_take_no_bytes():
    noise = np.random.default_rng(2).normal(size=100)
    both = packed(np.column_stack((noise, noise, np.full(100, 7.25))), np.zeros((100, 0), np.int64))
    alone = packed(noise[:, None], np.zeros((100, 0), np.int64))
    assert len(both.data) == len(alone.data)


def test_rounded_numbers_take_a_third_of_noise():
    noise = np.random.default_rng(5).normal(size=(200, 1))
    none = np.zeros((200, 0), np.int64)
    assert len(packed(np.round(noise, 4) + 0.0, none).data) < len(packed(noise, none).data) / 3


def test_whatever_plain_data_holds_comes_back():
    rng = random.Random(4)
    choices = [None, True, False, "", "é" * 40, b"\0", 0, 1.0, [], {}, [1.0, 2.0], [1.0, 2], {"a": [0.0, {"b": b""}]}]
    for _ in range(100):
        value = {"x": [rng.choice(choices) for _ in range(rng.randrange(8))], "y": rng.choice(choices)}
        leaves = Leaves([], [], [])
        form = msgspec.msgpack.decode(msgspec.msgpack.encode(taken_out(value, leaves)))
        assert put_back(form, iter(leaves.floats), iter(leaves.integers), iter(leaves.texts)) == value


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [b""],
        [b"", b"\xfd", b"\xfd\xfd\xfd"],
        [bytes(range(256)) * 4],
        [b"\xfd\x05\x00\x00\x01\x01\x01\x00\x00\x00abcde"],  # cut off
        [mavlink(30, 1, b"abcd")[:-1] + b"!", mavlink(30, 2, b"abcd")],  # a wrong checksum
        [mavlink(30, 1, b"abcd")[:7], mavlink(30, 1, b"abcd")[7:]],
        [b"noise", mavlink(30, 1, b""), b"noise", mavlink(30, 2, bytes(255))],
        [mavlink(number, 0, b"\1") for number in range(300)],  # more messages than groups
        [mavlink(30, i, struct.pack("<if", -i, float("nan")) + b"\7") for i in range(20)],
    ],
)
def test_bytes_of_a_link_come_back_whatever_they_are(pieces):
    packer = LinkPacker()
    for _ in range(2):  # the second time the words are read as was found the first time
        assert unpack_link(packer.pack(pieces)) == pieces


def test_random_bytes_of_a_link_come_back():
    rng = random.Random(6)
    frames = b"".join(connection())
    packer = LinkPacker()
    for _ in range(30):
        data = bytearray(frames)
        for _ in range(rng.randrange(20)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        cuts = sorted(rng.sample(range(len(data)), 20))
        pieces = [bytes(data[a:b]) for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        assert unpack_link(packer.pack(pieces)) == pieces


def test_a_link_takes_less_than_half_of_its_bytes():
    pieces = connection(200)
    assert len(msgspec.msgpack.encode(LinkPacker().pack(pieces))) < 0.5 * sum(map(len, pieces))


def test_bytes_of_a_connection_are_put_back_into_their_messages():
    messages = [
        LinkRx(stamp_s=float(i), seq=i, data=piece, ground=i % 3 == 0) for i, piece in enumerate(connection(20))
    ]
    data = BatchPacker(NAMES).pack([row_of("link_rx", message, i) for i, message in enumerate(messages)])
    assert [message for _, message, _ in read(data)] == messages


def test_a_batch_keeps_order_and_times_and_gives_single_topics(flight):
    rows = mixed(flight)
    random.Random(3).shuffle(rows)
    data = BatchPacker(NAMES).pack([row_of(*row) for row in rows])
    assert [(t, bits(m), ns) for t, m, ns in read(data)] == [(t, bits(m), ns) for t, m, ns in rows]
    assert [bits(m) for _, m, _ in read(data, {"health"})] == [bits(m) for t, m, _ in rows if t == "health"]


def test_times_of_arrival_may_be_anything():
    text = FcuText(stamp_s=0.0, severity=1, text="")
    times = [5, 5, 0, 2**62, 7, 7, 1]
    data = BatchPacker(NAMES).pack([row_of("fcu_text", text, ns) for ns in times])
    assert [ns for _, _, ns in read(data)] == times


def test_a_number_beyond_64_bits_is_refused_alone():
    with pytest.raises(OverflowError):
        row_of("fcu_text", FcuText(stamp_s=0.0, severity=2**63, text=""), 0)


def compressed(plain):
    held = zstandard.ZstdCompressionDict(NAMES, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    return zstandard.ZstdCompressor(dict_data=held).compress(plain)


def test_damaged_batches_raise_one_kind_of_error(flight):
    links = [("link_rx", LinkRx(stamp_s=0.0, data=piece), 0) for piece in connection()]
    data = BatchPacker(NAMES).pack([row_of(*row) for row in (*mixed(flight), *links)])
    plain = reader()._decompressor.decompress(data)
    rng = random.Random(7)
    for _ in range(1000):
        damaged = bytearray(plain)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        with contextlib.suppress(ValueError):
            reader().read(compressed(bytes(damaged)))
    for text in (b"", b"\x28\xb5\x2f\xfd", data[:50], compressed(b""), compressed(b"\x90"), compressed(plain[:-20])):
        with pytest.raises(ValueError):
            reader().read(text)


def test_damaged_links_raise_one_kind_of_error():
    plain = msgspec.msgpack.encode(LinkPacker().pack(connection()))
    rng = random.Random(8)
    for _ in range(1000):
        damaged = bytearray(plain)
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        with contextlib.suppress(ValueError, msgspec.MsgspecError):
            unpack_link(msgspec.msgpack.decode(bytes(damaged), type=Link))


def table(rows, columns=0):
    return Table(rows, bytes(columns), [0] * columns, bytes(columns), [], [], b"")


def section(rows, form=b"\x80", columns=0, order=None, link=None):
    return Section("health", [Group(form, table(rows, columns))], bytes(2 * rows) if order is None else order, link)


def bombs():
    """Small records that would take gigabytes."""
    wide = msgspec.msgpack.encode({"a": [[]] * 40_000})
    yield "rows without columns", 0, [section(2**40, order=b"")]
    yield "rows that no message has", 1, [section(7_000_000, columns=1, order=bytes(2))]
    yield "columns", 4_000, [section(4_000, columns=1000)]
    yield "messages", 8_000_000, [section(8_000_000)]
    yield "form", 4_000, [section(4_000, wide)]
    yield "sections", 100 * 4_000, [section(4_000, columns=200) for _ in range(100)]
    frames = FrameGroup(b"\xfd\xff" + bytes(8), 0, b"", table(200_000, 257))
    yield "frames", 1, [section(1, link=Link(1, table(1, 1), [frames] * 40, bytes(40), b""))]
    yield "pieces", 1, [section(1, link=Link(8_000_000, table(8_000_000, 1), [], b"", b""))]
    yield "depth", 1, [section(1, b"\x81\xa1a" + b"\x91" * 100_000 + b"\xc0")]
    yield "no object", 1, [section(1, b"\x91\xc0")]


@pytest.mark.parametrize(("count", "sections"), [pytest.param(*bomb[1:], id=bomb[0]) for bomb in bombs()])
def test_a_record_that_would_take_gigabytes_is_damaged(count, sections):
    sources = b"".join(bytes([i]) * (count // len(sections)) for i in range(len(sections)))
    arrivals = packed(np.zeros((1, 0)), np.array([[0, count]]))
    data = compressed(msgspec.msgpack.encode(Batch(1, sources, arrivals, sections)))
    tracemalloc.start()
    with pytest.raises(ValueError, match=DAMAGED):
        reader().read(data)
    assert tracemalloc.get_traced_memory()[1] < 40e6
    tracemalloc.stop()


def test_a_dictionary_that_is_none_is_refused():
    with pytest.raises(ValueError):
        BatchReader("not base 85 \N{SNOWMAN}")
    with pytest.raises(ValueError):
        unpacked(table(2**40, 1))


def test_a_message_that_no_reader_would_take_is_refused_alone():
    with pytest.raises(ValueError, match="more than"):
        row_of("fcu_text", FcuText(stamp_s=0.0, severity=1, text="x" * 2_000_000), 0)


def test_a_batch_that_cannot_be_packed_is_counted(tmp_path, monkeypatch):
    writer = LogWriter(tmp_path / "a.mcap", {})
    monkeypatch.setattr(BatchPacker, "pack", lambda *_: 1 / 0)
    writer.put("fcu_text", FcuText(stamp_s=0.0, severity=1, text=""), 1.0)
    writer.flush()
    assert writer.dropped == 1 and "cannot be packed" in writer.last_error

"""Packed messages come back bit for bit; damaged ones raise one kind of error and take no memory."""

import contextlib
import random
import struct

import msgspec
import numpy as np
import pytest
import zstandard

from companion.core.messages import FcuText, LinkRx
from companion.recording import batches
from companion.recording.batches import BatchPacker, BatchReader, dictionary, dictionary_text
from companion.recording.codec import decode_packed, encode_packed
from companion.recording.link_packing import Link, pack_link, unpack_link
from companion.recording.packing import Group, Packed, Packer, cheapest, floats, layout_of, unpack, whole


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


def packed_of(flight, topic, count=100):
    return [encode_packed(message) for message in flight[topic][:count]]


def batch(flight):
    names = dictionary()
    rows = [
        (topic, encode_packed(message), b"", 1000 * i)
        for topic in ("state", "estimator", "health")
        for i, message in enumerate(flight[topic][:30])
    ]
    return BatchPacker(names).pack(rows), BatchReader(dictionary_text(names)), rows


def test_messages_of_every_topic_come_back_to_the_last_bit(flight):
    for topic in flight:
        data = packed_of(flight, topic)
        if data:
            assert unpack(Packer().pack(data)) == data


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
    ],
)
def test_floats_come_back_as_the_same_bits(values):
    column = np.array(values)[:, None]
    numbers, kinds, shifts = whole(column)
    assert floats(numbers, kinds, shifts).tobytes() == column.tobytes()
    data = [msgspec.msgpack.encode({"a": value, "b": -value}) for value in values]
    assert unpack(Packer().pack(data)) == data


def test_whole_numbers_texts_and_truth_values_come_back():
    rng = random.Random(4)
    numbers = [
        0,
        127,
        128,
        255,
        256,
        65535,
        65536,
        2**32 - 1,
        2**32,
        2**63,
        2**64 - 1,
        -1,
        -32,
        -33,
        -128,
        -129,
        -(2**31),
        -(2**63),
    ]
    data = [
        msgspec.msgpack.encode(
            [rng.choice(numbers), rng.random() < 0.5, rng.choice([None, "", "pier", "é" * 40]), b"x" * i]
        )
        for i in range(300)
    ]
    assert unpack(Packer().pack(data)) == data


def test_a_constant_takes_no_bits_and_a_line_next_to_none():
    lines = np.stack((np.full(100, 7), np.arange(100) * 5 + 3), axis=1)
    assert not cheapest(lines).words.any()
    data = [msgspec.msgpack.encode({"seq": 200 + (i > 3), "t": 0.25}) for i in range(2)]
    assert Packer().pack(data).data == b""


def test_rounded_numbers_take_a_third_of_noise():
    rng = np.random.default_rng(5)
    noise = rng.normal(size=200)
    exact = Packer().pack([msgspec.msgpack.encode([float(x)]) for x in noise])
    short = Packer().pack([msgspec.msgpack.encode([float(x)]) for x in np.round(noise, 4) + 0.0])
    assert len(short.data) < len(exact.data) / 3


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
    ],
)
def test_bytes_of_a_link_come_back_whatever_they_are(pieces):
    assert unpack_link(pack_link(pieces)) == pieces


def test_random_bytes_of_a_link_come_back():
    rng = random.Random(6)
    frames = b"".join(connection())
    for _ in range(30):
        data = bytearray(frames)
        for _ in range(rng.randrange(20)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        cuts = sorted(rng.sample(range(len(data)), 20))
        pieces = [bytes(data[a:b]) for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        assert unpack_link(pack_link(pieces)) == pieces


def test_a_link_takes_less_than_half_of_its_bytes():
    pieces = connection(200)
    link = pack_link(pieces)
    assert len(msgspec.msgpack.encode(link)) < 0.5 * sum(map(len, pieces))


def test_raw_bytes_of_a_message_are_put_back(flight):
    names = dictionary()
    messages = [
        LinkRx(stamp_s=float(i), seq=i, data=piece, ground=i % 3 == 0) for i, piece in enumerate(connection(20))
    ]
    rows = []
    for i, message in enumerate(messages):
        bare, raw = batches.without_raw("link_rx", message)
        rows.append(("link_rx", encode_packed(bare), raw, i))
    data = BatchPacker(names).pack(rows)
    found = BatchReader(dictionary_text(names)).read(data)
    assert [decode_packed("link_rx", one.data, one.field, one.raw) for one in found] == messages


def test_a_batch_keeps_order_and_times_and_gives_single_topics(flight):
    data, reader, rows = batch(flight)
    assert [(one.topic, one.data, one.arrival_ns) for one in reader.read(data)] == [(t, d, ns) for t, d, _, ns in rows]
    assert [one.data for one in reader.read(data, {"health"})] == [d for t, d, _, _ in rows if t == "health"]


def test_times_of_arrival_may_be_anything():
    names = dictionary()
    text = encode_packed(FcuText(stamp_s=0.0, severity=1, text=""))
    times = [5, 5, 0, 2**62, 7, 7, 1]
    data = BatchPacker(names).pack([("fcu_text", text, b"", ns) for ns in times])
    assert [one.arrival_ns for one in BatchReader(dictionary_text(names)).read(data)] == times


def test_damaged_batches_raise_one_kind_of_error(flight):
    data, reader, _ = batch(flight)
    plain = reader._decompressor.decompress(data)
    held = zstandard.ZstdCompressionDict(dictionary(), dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    pack = zstandard.ZstdCompressor(dict_data=held).compress
    rng = random.Random(7)
    for _ in range(300):
        damaged = bytearray(plain)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        with contextlib.suppress(ValueError):
            reader.read(pack(bytes(damaged)))
    for text in (b"", b"\x28\xb5\x2f\xfd", data[:50], pack(b""), pack(b"\x90"), pack(plain[:-20])):
        with pytest.raises(ValueError):
            reader.read(text)


def test_damaged_links_raise_one_kind_of_error():
    plain = msgspec.msgpack.encode(pack_link(connection()))
    rng = random.Random(8)
    for _ in range(300):
        damaged = bytearray(plain)
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        with contextlib.suppress(ValueError, msgspec.MsgspecError):
            unpack_link(msgspec.msgpack.decode(bytes(damaged), type=Link))


def test_a_batch_that_states_gigabytes_takes_no_memory():
    message = msgspec.msgpack.encode([1.0] * 1000)
    group = Packer().pack([message]).groups[0]
    huge = Packed([Group(group.template, 10_000_000)], bytes(20_000_000), b"", b"")
    with pytest.raises(ValueError):
        unpack(huge)
    with pytest.raises(ValueError):
        layout_of(b"\xdd\xff\xff\xff\xff")
    with pytest.raises(ValueError):
        BatchReader("not base 85 \N{SNOWMAN}")

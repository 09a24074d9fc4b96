"""Framing and decoding: good frames are decoded whatever surrounds them, and nothing raises."""

import random

import pytest
from pymavlink.dialects.v20 import common
from pymavlink.generator.mavcrc import x25crc

from companion.fcu.link.codec import KINDS, LATE_MAX, LAYOUTS, Codec
from companion.fcu.link.framing import CURRENT_MODE, checksum


@pytest.fixture
def px4():
    return common.MAVLink(None, srcSystem=1, srcComponent=1)


@pytest.fixture
def codec():
    return Codec(1, 191, 1)


def frame(mav, message, **options):
    data = message.pack(mav, **options)
    mav.seq = (mav.seq + 1) % 256
    return data


def attitude(ms=1234):
    return common.MAVLink_attitude_quaternion_message(ms, 1.0, 0.0, 0.25, 0.5, 0.1, 0.2, 0.3)


def test_checksum_is_the_one_of_mavlink():
    rng = random.Random(1)
    for _ in range(300):
        data, seed = rng.randbytes(rng.randrange(280)), rng.randrange(256)
        assert checksum(data, seed) == x25crc(data + bytes((seed,))).crc


def test_layout_of_current_mode_has_the_published_checksum_seed():
    assert LAYOUTS[CURRENT_MODE].seed == 193  # common.xml, CURRENT_MODE


@pytest.mark.parametrize("number", [n for n in LAYOUTS if n != CURRENT_MODE])
def test_every_message_decodes_as_pymavlink_decodes_it(codec, px4, number):
    """Random payload bytes: both decoders must see the same fields."""
    kind = common.mavlink_map[number]
    rng = random.Random(number)
    template = kind(*_fields(kind, rng))
    data = frame(px4, template)
    assert KINDS[number]._fields == tuple(kind.ordered_fieldnames)
    reference = common.MAVLink(None).parse_char(data)
    ((got_number, got),) = codec.decode(data)
    assert got_number == number
    for name in kind.fieldnames:
        ours, theirs = getattr(got, name), getattr(reference, name)
        if isinstance(ours, bytes):
            ours = ours.split(b"\0", 1)[0].decode("ascii")
        assert (list(ours) if isinstance(ours, tuple) else ours) == theirs, name


def _fields(kind, rng):
    lengths = dict(zip(kind.ordered_fieldnames, kind.lengths, strict=True))
    for name, field_type in zip(kind.fieldnames, kind.fieldtypes, strict=True):
        if field_type == "char":
            yield b"PX4 says hello"
        elif field_type == "float":
            values = [rng.uniform(-10, 10) for _ in range(lengths[name])]
            yield values if len(values) > 1 else values[0]
        else:
            values = [rng.randrange(1, 100) for _ in range(lengths[name])]
            yield values if len(values) > 1 else values[0]


def test_version_one_frames_are_understood(codec, px4):
    assert codec.decode(frame(px4, attitude(), force_mavlink1=True))[0][1].q4 == 0.5


def test_frames_in_pieces_are_joined(codec, px4):
    data = b"".join(frame(px4, attitude(i)) for i in range(20))
    got = [m.time_boot_ms for i in range(len(data)) for _, m in codec.decode(data[i : i + 1])]
    assert got == list(range(20))
    assert codec.errors == 0


def test_a_truncated_frame_loses_no_good_one(codec, px4):
    """pymavlink's own parser loses the frames that follow."""
    truncated = frame(px4, attitude(1))[:20]
    data = truncated + b"".join(frame(px4, attitude(i)) for i in range(2, 5))
    assert [m.time_boot_ms for _, m in codec.decode(data)] == [2, 3, 4]
    assert codec.bad_checksums >= 1


def test_noise_full_of_magic_bytes_neither_loses_nor_delays_a_good_frame(codec, px4):
    rng = random.Random(2)
    for i in range(2000):
        junk = bytes(rng.choice((0xFD, 0xFE, 0x00, 0x55)) for _ in range(rng.randrange(40)))
        assert [m.time_boot_ms for _, m in codec.decode(junk + frame(px4, attitude(i)))] == [i]
    assert codec.stray_bytes > 10_000


def test_a_false_header_does_not_hold_back_the_next_frame(codec, px4):
    assert codec.decode(b"\xfd\xff\x00\x00") == []
    assert codec.decode(frame(px4, attitude(7)))[0][1].time_boot_ms == 7


def test_a_wrong_checksum_is_counted_and_dropped(codec, px4):
    data = bytearray(frame(px4, attitude()))
    data[-1] ^= 1
    assert codec.decode(bytes(data)) == []
    assert codec.bad_checksums == 1


@pytest.mark.parametrize(("system", "component"), [(2, 1), (255, 190), (1, 191), (1, 154)])
def test_other_systems_and_components_are_ignored(codec, system, component):
    other = common.MAVLink(None, srcSystem=system, srcComponent=component)
    assert codec.decode(frame(other, attitude())) == []
    assert codec.foreign_frames == 1
    assert codec.errors == 0


def test_a_second_flight_controller_is_remembered_by_its_system_id(codec):
    other = common.MAVLink(None, srcSystem=3, srcComponent=1)
    codec.decode(frame(other, common.MAVLink_heartbeat_message(13, 12, 0, 0, 4, 3)))
    assert codec.foreign_autopilots == {3: 12}


def test_messages_of_an_unknown_dialect_are_skipped_whole(codec, px4):
    unknown = b"\xfd\x05\x00\x00\x00\x01\x01\xff\xff\x01" + b"\xfd\xfe\xfd\xfe\xfd" + b"\x12\x34"
    got = codec.decode(unknown + frame(px4, attitude(5)))
    assert [m.time_boot_ms for _, m in got] == [5]
    assert codec.unknown_messages == 1
    assert codec.stray_bytes == 0


def test_signed_frames_and_unknown_flags(codec, px4):
    plain = frame(px4, attitude(9))
    signed = bytearray(plain[:-2])
    signed[2] = 1
    signed += checksum(bytes(signed[1:]), attitude().crc_extra).to_bytes(2, "little") + b"\0" * 13
    assert codec.decode(bytes(signed))[0][1].time_boot_ms == 9
    strange = bytearray(plain)
    strange[2] = 2
    assert codec.decode(bytes(strange) + plain)[0][1].time_boot_ms == 9


def test_gaps_in_the_sequence_are_counted_as_lost_frames(codec, px4):
    codec.decode(frame(px4, attitude()))
    px4.seq += 3
    codec.decode(frame(px4, attitude()))
    assert codec.lost_frames == 3


def test_messages_of_an_unknown_dialect_leave_no_gap_in_the_sequence(codec, px4):
    """PX4 streams several messages that pymavlink's common dialect does not know; they are not lost."""
    for _ in range(3):
        codec.decode(frame(px4, attitude()))
        codec.decode(bytes((0xFD, 2, 0, 0, px4.seq, 1, 1, 0xFF, 0xFF, 1, 7, 7, 0x12, 0x34)))
        px4.seq += 1
    assert codec.unknown_messages == 3 and codec.errors == 0


def test_frames_that_overtake_each_other_are_not_lost(codec, px4):
    """PX4 numbers its frames in one thread and sends them in two; only the order changes."""
    frames = [frame(px4, attitude()) for _ in range(40)]
    frames.insert(30, frames.pop(10))
    frames.insert(3, frames.pop(2))
    for data in frames:
        codec.decode(data)
    assert (codec.frames, codec.lost_frames) == (40, 0)


def test_repeated_frames_are_dropped_and_counted(codec, px4):
    """A router that repeats frames, or a sender that recorded them: an old "disarmed" must not count again."""
    frames = [frame(px4, attitude(i)) for i in range(100)]
    for data in frames:
        codec.decode(data)
    for data in frames[:3]:
        assert codec.decode(data) == []
        assert len(codec.decode(frame(px4, attitude()))) == 1
    assert (codec.replayed_frames, codec.lost_frames) == (3, 0)


def test_a_sender_that_restarted_is_counted_from_its_new_number(codec, px4):
    px4.seq = 100
    codec.decode(frame(px4, attitude()))
    px4.seq = 0
    for _ in range(10):
        codec.decode(frame(px4, attitude()))
    px4.seq += 2
    codec.decode(frame(px4, attitude()))
    assert codec.lost_frames == 2


def test_an_endless_unfinished_frame_does_not_grow_the_buffer(codec):
    for _ in range(1000):
        codec.decode(b"\xfd\xff\x00" * 300)
    assert codec.pending_bytes < 300


def test_twenty_thousand_mutated_frames_raise_nothing_and_the_next_good_frame_is_read(codec, px4):
    rng = random.Random(3)
    kinds = [common.mavlink_map[n] for n in LAYOUTS if n != CURRENT_MODE]
    originals = [frame(px4, kind(*_fields(kind, rng))) for kind in kinds]
    for i in range(20_000):
        data = bytearray(rng.choice(originals))
        for _ in range(rng.randrange(1, 4)):
            at, how = rng.randrange(len(data)), rng.randrange(4)
            if how == 0:
                data[at] ^= 1 << rng.randrange(8)
            elif how == 1:
                data[at] = rng.randrange(256)
            elif how == 2:
                del data[at:]
            else:
                data[at:at] = rng.randbytes(rng.randrange(1, 20))
            if not data:
                break
        for number, content in codec.decode(bytes(data)):
            assert number in LAYOUTS and type(content) is KINDS[number]
        if i % 100 == 0:  # an unchanged original is a replay: the sequence may have to restart first
            good = b"".join(frame(px4, attitude(i)) for _ in range(LATE_MAX + 1))
            assert codec.decode(good)[-1][1].time_boot_ms == i
    assert codec.bad_checksums > 1000


def test_mutated_payloads_with_right_checksums_raise_nothing(codec):
    """Any content in a well-formed frame: any length, any bytes."""
    rng = random.Random(4)
    for i in range(20_000):
        number = rng.choice(list(LAYOUTS))
        payload = rng.randbytes(rng.randrange(0, 256))
        head = bytes((len(payload), 0, 0, i & 0xFF, 1, 1, number & 0xFF, number >> 8, 0))
        crc = checksum(head + payload, LAYOUTS[number].seed)
        ((got, _),) = codec.decode(b"\xfd" + head + payload + crc.to_bytes(2, "little"))
        assert got == number

"""Signed frames: only those with the key's signature and a new time are accepted, and a key is a secret."""

import random

import pytest
from pymavlink.dialects.v20 import common

from companion.core.config import ConfigError
from companion.fcu.link.codec import Codec
from companion.fcu.link.peer_monitor import PeerMonitor
from companion.fcu.link.signing import EPOCH_S, UNITS_PER_S, Signer, load_key, open_signer

KEY = bytes(range(32))
NOW_S, UNIX_S = 100.0, EPOCH_S + 1e6
TIME = round(1e6 * UNITS_PER_S)  # of NOW_S


@pytest.fixture
def codec():
    return Codec(1, 191, 1, Signer(KEY, NOW_S, UNIX_S))


def px4(key=KEY, time=TIME, link=0, system=1):
    """pymavlink's own signing, as an autopilot that shares the key."""
    mav = common.MAVLink(None, srcSystem=system, srcComponent=1)
    mav.signing.secret_key, mav.signing.link_id, mav.signing.timestamp = key, link, time
    mav.signing.sign_outgoing = key is not None
    return mav


def frame(mav, ms=1):
    data = common.MAVLink_attitude_quaternion_message(ms, 1.0, 0, 0, 0, 0, 0, 0).pack(mav)
    mav.seq = (mav.seq + 1) % 256
    return data


def test_frames_with_the_keys_signature_are_accepted(codec):
    mav = px4()
    assert [m.time_boot_ms for i in range(5) for _, m in codec.decode(frame(mav, i), NOW_S)] == [0, 1, 2, 3, 4]
    assert codec.errors == 0


def test_outgoing_frames_pass_pymavlinks_check_of_signatures(codec):
    mav = px4()
    for i in range(3):
        data = codec.encode(common.MAVLink_heartbeat_message(18, 8, 0, 0, 4, 3), NOW_S + 1e-6 * i)
        assert data[2] == 1
        assert mav.check_signature(bytearray(data), 1, 191)


def test_unsigned_frames_are_dropped_and_counted(codec):
    assert codec.decode(frame(px4(key=None)), NOW_S) == []
    assert codec.unsigned_frames == 1 and codec.errors == 1


def test_frames_of_another_key_are_dropped_and_counted(codec):
    assert codec.decode(frame(px4(key=bytes(32))), NOW_S) == []
    assert codec.signer.wrong_signatures == 1 and codec.errors == 1


def test_a_frame_that_comes_again_is_dropped_although_its_signature_is_right(codec):
    mav = px4()
    first = frame(mav)
    assert len(codec.decode(first, NOW_S)) == 1
    assert codec.decode(first, NOW_S) == []
    assert len(codec.decode(frame(mav), NOW_S)) == 1
    assert codec.replayed_frames == 1


def test_a_new_stream_from_the_past_is_dropped_and_counted_apart_from_a_wrong_key(codec):
    monitor = PeerMonitor(codec, 1)
    assert codec.decode(frame(px4(time=TIME - 61 * UNITS_PER_S)), NOW_S) == []
    (problem,) = monitor.new_problems(NOW_S, NOW_S, NOW_S)
    words = "frames rejected: 1 of the right key, signed more than a minute ago; set the sender's clock"
    assert problem.text == words
    assert len(codec.decode(frame(px4(time=TIME - 59 * UNITS_PER_S)), NOW_S)) == 1
    assert (codec.old_frames, codec.replayed_frames, codec.errors) == (1, 0, 1)


def test_a_forged_frame_from_the_future_does_not_silence_the_real_ones(codec):
    """pymavlink's own check remembers the time of a frame before it looks at its signature."""
    mav = px4()
    codec.decode(frame(mav), NOW_S)
    codec.decode(frame(px4(key=bytes(32), time=TIME * 2)), NOW_S)
    assert len(codec.decode(frame(mav), NOW_S)) == 1


def test_the_signing_time_rises_and_follows_the_newest_accepted_frame(codec):
    """A computer without a battery-backed clock starts in the past; its frames would count as replays."""
    ahead = TIME + 3600 * UNITS_PER_S
    codec.decode(frame(px4(time=ahead)), NOW_S)
    times = [codec.signer.next_time(NOW_S) for _ in range(3)]
    assert times == [ahead + 1, ahead + 2, ahead + 3]


def test_mutated_signed_frames_are_never_accepted(codec):
    rng, mav = random.Random(1), px4()
    for _ in range(3000):
        good = frame(mav)
        data = bytearray(good)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        codec.decode(bytes(data) + bytes(30), NOW_S)  # zeros complete a frame with a wrong length
        assert codec.frames == 0
    assert codec.signer.streams == 0


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "mavlink.key"
    path.write_bytes(KEY)
    path.chmod(0o600)
    return path


def test_a_key_file_is_found_beside_the_vehicle_file(key_file):
    assert load_key(key_file) == KEY
    assert open_signer("mavlink.key", key_file.parent).key == KEY
    assert open_signer(None, key_file.parent) is None


def refused(path):
    with pytest.raises(ConfigError) as error:
        load_key(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620])
def test_a_key_that_others_can_read_is_refused(key_file, mode):
    key_file.chmod(mode)
    assert "chmod 600" in refused(key_file)


@pytest.mark.parametrize(("size", "text"), [(0, "0 bytes"), (31, "31 bytes"), (33, "more than 32 bytes")])
def test_a_key_of_another_size_is_refused(key_file, size, text):
    key_file.write_bytes(bytes(size))
    assert text in refused(key_file)


def test_a_missing_key_and_a_folder_are_refused(tmp_path):
    assert "no such file" in refused(tmp_path / "none.key")
    refused(tmp_path)

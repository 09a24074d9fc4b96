"""Chunks of a log that would take more memory than any flight's, by their own words or in truth."""

import struct

import lz4.frame
import pytest
import zstandard
from click.testing import CliRunner

from companion.cli import main
from companion.core.messages import FcuAttitude
from companion.recording import log as log_module
from companion.recording.chunks import CHUNK_MAX_BYTES, ChunkTooLarge, chunk_data
from companion.recording.log import read_log
from companion.recording.writer import LogWriter
from companion.view.log_window import LogIndex
from companion.view.logged import line

CHUNK, UNKNOWN = 0x06, 0x90
BYTES = CHUNK_MAX_BYTES + 1000
PAYLOAD = struct.pack("<BQ", UNKNOWN, BYTES - 9) + bytes(BYTES - 9)  # one record, of zeros


def stated(data):
    return zstandard.ZstdCompressor(level=1).compress(data)


def unstated(data):
    return zstandard.ZstdCompressor(level=1, write_content_size=False).compress(data)


PACKED = {"stated": ("zstd", stated), "unstated": ("zstd", unstated), "lz4": ("lz4", lz4.frame.compress)}


@pytest.fixture(scope="module")
def packed():
    return {name: (compression, pack(PAYLOAD)) for name, (compression, pack) in PACKED.items()}


def record(kind, data):
    return struct.pack("<BQ", kind, len(data)) + data


def chunk(compression, data, size, at_ns=200_000_000_000):
    name = compression.encode()
    head = struct.pack("<QQQII", at_ns, at_ns, size, 0, len(name)) + name
    return record(CHUNK, head + struct.pack("<Q", len(data)) + data)


def with_bomb(path, bomb):
    """A log of ten attitudes with a chunk after them, and no end."""
    writer = LogWriter(path, {})
    for i in range(10):
        writer.put(
            "fcu_attitude",
            FcuAttitude(stamp_s=100.0 + i, q_WB=(1.0, 0.0, 0.0, 0.0), omega_B=(0.0, 0.0, 0.0)),
            100.0 + i,
        )
    writer.flush()
    path.write_bytes(path.read_bytes() + bomb)
    return path


@pytest.mark.parametrize("size", [BYTES, 1_000_000, 0])
@pytest.mark.parametrize("name", PACKED)
def test_no_chunk_gets_more_than_the_limit_whatever_it_states(packed, name, size):
    compression, data = packed[name]
    with pytest.raises((ChunkTooLarge, zstandard.ZstdError)):
        chunk_data(compression, data, size)


@pytest.mark.parametrize("name", PACKED)
def test_a_chunk_within_the_limit_is_whole(name):
    compression, pack = PACKED[name]
    data = bytes(range(256)) * 100
    assert chunk_data(compression, pack(data), len(data)) == data == chunk_data("", data, len(data))
    with pytest.raises(ValueError, match="brotli"):
        chunk_data("brotli", data, len(data))


@pytest.mark.parametrize("size", [BYTES, 1_000_000])
def test_report_and_view_keep_what_stands_before_and_say_so_in_one_line(tmp_path, packed, size):
    path = with_bomb(tmp_path / "bomb.mcap", chunk(*packed["stated"], size))
    log = read_log(path)
    assert len(log["fcu_attitude"]) == 10 and log.truncated
    (problem,) = log.problems()
    assert f"more than {CHUNK_MAX_BYTES / 1e6:.0f} MB" in problem and str(path) in problem
    index = LogIndex(path)
    assert f"more than {CHUNK_MAX_BYTES / 1e6:.0f} MB" in line(index)  # before anything of it is shown
    index.read(*index.window_s(0))
    result = CliRunner().invoke(main, ["log", "foxglove", str(path), str(tmp_path / "out.mcap")])
    assert result.exit_code == 0 and "10 messages" in result.output


def test_many_small_chunks_together_have_a_limit_by_the_size_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(log_module, "CHUNK_MAX_BYTES", 1_000_000)
    inside = record(UNKNOWN, bytes(900_000))
    bomb = chunk("zstd", stated(inside), len(inside))
    assert len(inside) > log_module.EXPANSION_MAX * len(bomb)
    assert not read_log(with_bomb(tmp_path / "one.mcap", bomb)).oversize
    assert read_log(with_bomb(tmp_path / "many.mcap", 100 * bomb)).oversize


def test_a_record_beyond_the_limit_is_not_read_from_a_file_with_holes(tmp_path):
    path = with_bomb(tmp_path / "sparse.mcap", struct.pack("<BQ", UNKNOWN, 10 * CHUNK_MAX_BYTES))
    with path.open("r+b") as stream:
        stream.truncate(path.stat().st_size + 10 * CHUNK_MAX_BYTES)
    log = read_log(path)
    assert len(log["fcu_attitude"]) == 10 and log.truncated

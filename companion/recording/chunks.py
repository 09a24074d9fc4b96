"""The chunks of an MCAP file, decompressed within limits.

A compressed chunk of a few kilobytes may hold gigabytes of zeros. Neither the length that the file states nor that of
the compressed frame is a limit: both are bytes of the file.
"""

import struct
from collections.abc import Iterator
from io import BytesIO

import zstandard
from lz4.frame import LZ4FrameDecompressor
from mcap.data_stream import ReadDataStream
from mcap.records import Channel, Message

CHUNK_MAX_BYTES = 64_000_000  # decompressed; the recorder ends a chunk after 4 MB and a message
FRAME_HEAD_BYTES = 18  # of zstd, the largest
CHANNEL, MESSAGE = 0x04, 0x05  # kinds of records
_UNKNOWN_SIZES = (zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR)


class ChunkTooLarge(ValueError):
    """A chunk would take more memory than any chunk of a flight log; one line for the user."""

    def __init__(self) -> None:
        super().__init__(
            f"a part of it would take more than {CHUNK_MAX_BYTES / 1e6:.0f} MB of memory (damaged, or no flight log)"
        )


def stated_size(compression: str, head: bytes, size: int) -> int:
    """What a chunk takes decompressed by its own words [bytes]; head: the first `FRAME_HEAD_BYTES` of its data."""
    held = zstandard.frame_content_size(head) if compression == "zstd" else 0
    return int(max(size, 0 if held in _UNKNOWN_SIZES else held))


def chunk_data(compression: str, data: bytes, size: int) -> bytes:
    """The records of a chunk; never more than `CHUNK_MAX_BYTES`.

    compression: as the chunk names it; size: its `uncompressed_size` [bytes].
    Raises `ChunkTooLarge`, ValueError for another compression, ZstdError and RuntimeError (lz4) for damaged data.
    """
    if max(stated_size(compression, data, size), len(data)) > CHUNK_MAX_BYTES:
        raise ChunkTooLarge
    if compression == "zstd":
        # A frame that states its size gets that much memory, whatever the caller allows; one without gets `size`.
        plain: bytes = zstandard.ZstdDecompressor().decompress(data, max_output_size=max(size, 1))
        return plain
    if compression == "lz4":
        unpacked: bytes = LZ4FrameDecompressor().decompress(data, max_length=CHUNK_MAX_BYTES + 1)
        if len(unpacked) > CHUNK_MAX_BYTES:
            raise ChunkTooLarge
        return unpacked
    if compression:
        raise ValueError(f"compressed by '{compression[:20]}'")
    return data


def chunk_records(data: bytes) -> Iterator[Channel | Message]:
    """The channels and messages of a chunk one by one: objects of all of them would take ten times its memory."""
    stream = ReadDataStream(BytesIO(data))
    while stream.count < len(data):
        kind, length = struct.unpack("<BQ", stream.read(9))
        if kind == CHANNEL:
            yield Channel.read(stream)
        elif kind == MESSAGE:
            yield Message.read(stream, length)
        else:
            stream.read(min(length, len(data)))

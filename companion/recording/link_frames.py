"""The bytes of a MAVLink connection in few bytes, without loss.

Frames of one length from one sender are rows; the same four bytes of all of them are columns (`companion.recording.columns`): as one
float or whole number, two or four, whichever took fewest bytes at first. Of a checksum stands here its difference from the
right one. Nothing here knows a message of MAVLink: whatever is no frame comes back as it was.
"""

import binascii
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from companion.recording.columns import DAMAGED, Ints, Table, packed, sizes_of, unpacked

Bytes = NDArray[np.uint8]

MAGIC, HEADER, CHECKSUM, SIGNATURE = 0xFD, 10, 2, 13  # bytes of MAVLink 2
SIGNED = 0x01  # of the incompatibility flags
LENGTH, FLAGS, SEQUENCE = 1, 2, 4  # places in a frame
REST = 0xFF  # in `Link.order`: bytes that are no frame
GROUPS_MAX = 200
WORD = 4  # bytes
# Ways of reading a word, and their columns; the first is a float's bits as a number that grows with it, or a whole number.
WAYS = ("<i4", "<u2", "<u1")
COLUMNS = (1, 2, 4)
TRIED_ROWS = 16  # rows with which the way of each word is chosen; before that each is read in the first
BYTES_MAX = 64_000_000
_MIRROR = bytes(int(f"{i:08b}"[::-1], 2) for i in range(256))


class FrameGroup(msgspec.Struct, array_like=True):
    """Frames of one message, one sender and one length. head: of the frame, its sequence 0; seed: of the checksum.

    ways: of each word of the body; table: sequences, differences of the checksums, bytes after the last word, then the words.
    """

    head: bytes
    seed: int
    ways: bytes
    table: Table


class Link(msgspec.Struct, array_like=True):
    """Pieces of a connection, as they arrived. lengths: of the pieces, then of the parts of `rest`; order: group of each frame, or `REST`."""

    pieces: int
    lengths: Table
    groups: list[FrameGroup]
    order: bytes
    rest: bytes


@dataclass
class LinkPacker:
    """Packs the bytes of one direction; remembers how words were read."""

    _ways: dict[bytes, bytes] = field(default_factory=dict)

    def pack(self, pieces: Sequence[bytes]) -> Link:
        """Pack bytes as they arrived."""
        stream = b"".join(pieces)
        order, members, rest = _frames(stream)
        lengths = [*map(len, pieces), *(end - begin for begin, end in rest)]
        groups = [
            self._group(head, [stream[at : at + _size(head)] for at in places]) for head, places in members.items()
        ]
        parts = b"".join(stream[begin:end] for begin, end in rest)
        return Link(len(pieces), _integers(np.array(lengths, np.int64)[:, None]), groups, order, parts)

    def _group(self, head: bytes, frames: list[bytes]) -> FrameGroup:
        end = HEADER + head[LENGTH]
        seed = _seed(frames[0], end)
        stated = np.array([int.from_bytes(frame[end : end + CHECKSUM], "little") for frame in frames])
        right = np.array([_checksum(frame, end, seed) for frame in frames])
        rows = np.frombuffer(b"".join(frames), np.uint8).reshape(len(frames), -1)
        body = np.concatenate((rows[:, HEADER:end], rows[:, end + CHECKSUM :]), axis=1)
        words, tail = _words(body)
        first = np.column_stack((rows[:, SEQUENCE], stated - right, tail)).astype(np.int64)
        ways = self._ways.get(head)
        if ways is None:
            ways = bytes(words.shape[1])
            if len(frames) >= TRIED_ROWS:
                ways = self._ways[head] = _cheapest(words)
        return FrameGroup(head, seed, ways, _integers(np.concatenate((first, _read(words, ways)), axis=1)))


def unpack_link(link: Link) -> list[bytes]:
    """The pieces that were packed; raises ValueError for damaged bytes."""
    if link.lengths.rows != link.pieces + link.order.count(REST):
        raise ValueError(DAMAGED)
    frames = [_unpacked(group) for group in link.groups]
    lengths = unpacked(link.lengths)[1]
    if lengths.shape[1:] != (1,) or not 0 <= link.pieces <= len(lengths) or (lengths < 0).any():
        raise ValueError(DAMAGED)
    pieces, rests = lengths[: link.pieces, 0].tolist(), lengths[link.pieces :, 0].tolist()
    numbers = np.bincount(np.frombuffer(link.order, np.uint8), minlength=REST + 1).tolist()
    if numbers[: len(frames)] != list(map(len, frames)) or sum(numbers) != sum(map(len, frames)) + numbers[REST]:
        raise ValueError(DAMAGED)
    if numbers[REST] != len(rests) or sum(rests) != len(link.rest):
        raise ValueError(DAMAGED)
    sources = [iter(group) for group in frames]
    remaining, at = iter(rests), 0
    parts = []
    for which in link.order:
        if which == REST:
            size = next(remaining)
            parts.append(link.rest[at : at + size])
            at += size
        else:
            parts.append(next(sources[which]))
    stream = b"".join(parts)
    if len(stream) != sum(pieces):
        raise ValueError(DAMAGED)
    ends = np.cumsum(pieces, dtype=np.int64).tolist()
    return [stream[end - size : end] for end, size in zip(ends, pieces, strict=True)]


def _frames(stream: bytes) -> tuple[bytes, dict[bytes, list[int]], list[tuple[int, int]]]:
    """Group of each frame or `REST`, places of the frames by the head of their group, and places of the other bytes."""
    order = bytearray()
    members: dict[bytes, list[int]] = {}
    numbers: dict[bytes, int] = {}
    rest: list[tuple[int, int]] = []
    at, end = 0, len(stream)
    while at < end:
        if stream[at] == MAGIC and at + HEADER <= end:
            head = stream[at : at + SEQUENCE] + b"\0" + stream[at + SEQUENCE + 1 : at + HEADER]
            after = at + _size(head)
            complete = after == end or (after < end and stream[after] == MAGIC)
            if complete and (head in numbers or len(numbers) < GROUPS_MAX):
                order.append(numbers.setdefault(head, len(numbers)))
                members.setdefault(head, []).append(at)
                at = after
                continue
        following = stream.find(MAGIC, at + 1)
        following = end if following < 0 else following
        if order and order[-1] == REST:
            rest[-1] = (rest[-1][0], following)
        else:
            order.append(REST)
            rest.append((at, following))
        at = following
    return bytes(order), members, rest


def _size(head: bytes) -> int:
    return HEADER + head[LENGTH] + CHECKSUM + (SIGNATURE if head[FLAGS] & SIGNED else 0)


def _checksum(frame: bytes, end: int, seed: int) -> int:
    """CRC-16/MCRF4XX of a frame up to `end` without its magic byte, with the seed of its message."""
    crc = binascii.crc_hqx((frame[1:end] + bytes((seed,))).translate(_MIRROR), 0xFFFF)
    return _MIRROR[crc >> 8] | _MIRROR[crc & 0xFF] << 8


def _seed(frame: bytes, end: int) -> int:
    """The seed with which the checksum of a frame is right; 0 if there is none."""
    stated = int.from_bytes(frame[end : end + CHECKSUM], "little")
    return next((seed for seed in range(256) if _checksum(frame, end, seed) == stated), 0)


def _words(body: Bytes) -> tuple[Bytes, Bytes]:
    """Whole words of a table of bytes, shape (n, w, 4), and the bytes after them."""
    count = body.shape[1] // WORD
    words = np.ascontiguousarray(body[:, : count * WORD]).reshape(len(body), count, WORD)
    return words, body[:, count * WORD :]


def _read(words: Bytes, ways: bytes) -> Ints:
    """The columns of words, shape (n, w, 4): those of the first way, then those of the second and third."""
    found = [np.zeros((len(words), 0), np.int64)]
    for way, kind in enumerate(WAYS):
        chosen = np.ascontiguousarray(words[:, np.frombuffer(ways, np.uint8) == way])
        values = chosen.view(kind).reshape(len(words), -1).astype(np.int64)
        found.append(_by_size(values) if way == 0 else values)
    return np.concatenate(found, axis=1)


def _written(columns: Ints, ways: bytes) -> Bytes:
    """The inverse of `_read`, shape (n, 4 w)."""
    words = np.zeros((len(columns), len(ways), WORD), np.uint8)
    at = 0
    for way, kind in enumerate(WAYS):
        chosen = np.flatnonzero(np.frombuffer(ways, np.uint8) == way)
        values = columns[:, at : at + len(chosen) * COLUMNS[way]]
        at += values.shape[1]
        plain = np.ascontiguousarray((_by_size(values) if way == 0 else values).astype(kind))
        words[:, chosen] = plain.view(np.uint8).reshape(len(columns), len(chosen), WORD)
    return words.reshape(len(columns), -1)


def _by_size(values: Ints) -> Ints:
    """Bits of floats as numbers that grow with the float; its own inverse."""
    return values ^ ((values >> 31) & 0x7FFFFFFF)


def _cheapest(words: Bytes) -> bytes:
    """The way of each word that takes fewest bytes."""
    count = words.shape[1]
    costs = [
        sizes_of(_integers(_read(words, bytes([way] * count)))).reshape(count, columns).sum(axis=1)
        for way, columns in enumerate(COLUMNS)
    ]
    return bytes(np.argmin(costs, axis=0).tolist())


def _integers(columns: Ints) -> Table:
    return packed(np.zeros((len(columns), 0)), columns)


def _unpacked(group: FrameGroup) -> list[bytes]:
    head, ways = group.head, group.ways
    if len(head) != HEADER or not 0 <= group.seed <= 255 or any(way >= len(WAYS) for way in ways):
        raise ValueError(DAMAGED)
    columns = unpacked(group.table)[1]
    end, size = HEADER + head[LENGTH], _size(head)
    tail = size - CHECKSUM - HEADER - WORD * len(ways)
    if not 0 <= tail < WORD or columns.shape[1] != 2 + tail + sum(COLUMNS[way] for way in ways):
        raise ValueError(DAMAGED)
    if len(columns) * size > BYTES_MAX:
        raise ValueError(DAMAGED)
    words = _written(columns[:, 2 + tail :], ways)
    bodies = np.concatenate((words, columns[:, 2 : 2 + tail].astype(np.uint8)), axis=1)
    length = head[LENGTH]
    frames = []
    for sequence, wrong, body in zip(columns[:, 0].tolist(), columns[:, 1].tolist(), bodies, strict=True):
        if not 0 <= sequence <= 255:
            raise ValueError(DAMAGED)
        frame = head[:SEQUENCE] + bytes((sequence,)) + head[SEQUENCE + 1 :] + body[:length].tobytes()
        checksum = (_checksum(frame, end, group.seed) + wrong) & 0xFFFF
        frames.append(frame + checksum.to_bytes(CHECKSUM, "little") + body[length:].tobytes())
    return frames

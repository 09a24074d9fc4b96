"""The bytes of a MAVLink connection in few bytes, without loss.

Frames of one message are rows, and the same four bytes of all of them are columns (`companion.recording.packing`): as one number, two or
four, whichever takes fewest bits. A checksum that follows from its frame is left out. Nothing here knows a message of
MAVLink: whatever is no frame, or a frame with a wrong checksum, comes back as it was.
"""

import binascii
from collections.abc import Sequence

import msgspec
import numpy as np

from companion.recording.packing import (
    DAMAGED,
    INTEGER,
    PLAIN_MAX_BYTES,
    Bytes,
    Coder,
    Decoder,
    Ints,
    bits_needed,
    cheapest,
    ordered,
)

MAGIC, HEADER, CHECKSUM, SIGNATURE = 0xFD, 10, 2, 13  # bytes of MAVLink 2
SIGNED = 0x01  # of the incompatibility flags
LENGTH, SEQUENCE = 1, 4  # places in a frame
KEY = (2, 3, 5, 6, 7, 8, 9)  # places that are equal in all frames of a group: flags, sender, number
REST = 0xFF  # in `Link.order`: bytes that are no frame
GROUPS_MAX = 200
NO_SEED = -1
# For each way of reading a block of four bytes: its numbers.
WORDS = ("<i4", "<u2", "<u1", "split")
COLUMNS = (1, 2, 4, 2)  # of a block
MANTISSA = 23  # bits of a 32-bit float; "split": these apart from sign and exponent
_MIRROR = bytes(int(f"{i:08b}"[::-1], 2) for i in range(256))


class FrameGroup(msgspec.Struct, array_like=True):
    """Frames of one message from one sender."""

    key: bytes  # the bytes at the places `KEY`
    count: int
    size: int  # of the longest payload
    seed: int  # of the checksum, `NO_SEED`: the checksums are among the columns
    words: bytes  # for each block of four bytes the index of its type in `WORDS`


class Link(msgspec.Struct, array_like=True):
    """Pieces of a connection, as they arrived."""

    pieces: int
    groups: list[FrameGroup]
    order: bytes  # group of each frame, or `REST`
    rest: bytes
    rests: int
    head: bytes
    data: bytes


def pack_link(pieces: Sequence[bytes]) -> Link:
    """Pack bytes as they arrived."""
    stream = b"".join(pieces)
    order, members, rest = _frames(stream)
    coder = Coder()
    _add(coder, [len(piece) for piece in pieces])
    _add(coder, [end - begin for begin, end in rest])
    frames = [place for places in members.values() for place in places]
    _add(coder, [stream[begin + SEQUENCE] for begin in sorted(frames)])
    groups = []
    for key, places in members.items():
        sizes = [stream[begin + LENGTH] for begin in places]
        _add(coder, sizes)
        size = max(sizes)
        seed = _seed(stream, places[0], sizes[0])
        if any(_checksum(stream, b, n, seed) != stream[b + HEADER + n : b + HEADER + n + CHECKSUM]
               for b, n in zip(places, sizes, strict=True)):  # fmt: skip
            seed = NO_SEED
        tail = SIGNATURE if key[0] & SIGNED else 0
        rows = []
        for begin, n in zip(places, sizes, strict=True):
            at = begin + HEADER
            skipped = at + n + (CHECKSUM if seed != NO_SEED else 0)
            row = stream[at : at + n].ljust(size, b"\0") + stream[skipped : at + n + CHECKSUM + tail]
            rows.append(row.ljust((len(row) + 3) // 4 * 4, b"\0"))
        table = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)
        groups.append(FrameGroup(key, len(places), size, seed, _add_blocks(coder, table)))
    head, data = coder.data()
    rests = b"".join(stream[begin:end] for begin, end in rest)
    return Link(len(pieces), groups, order, rests, len(rest), head, data)


def unpack_link(link: Link) -> list[bytes]:
    """The pieces that were packed; raises ValueError for damaged bytes."""
    order = np.frombuffer(link.order, np.uint8)
    counts = np.bincount(order, minlength=256)
    wanted = [group.count for group in link.groups]
    if counts[: len(wanted)].tolist() != wanted or counts[REST] != link.rests or len(wanted) > GROUPS_MAX:
        raise ValueError(DAMAGED)
    total = sum(group.count * 4 * (len(group.words) + 1) for group in link.groups)
    if counts.sum() != sum(wanted) + link.rests or not 0 <= link.pieces <= PLAIN_MAX_BYTES or total > PLAIN_MAX_BYTES:
        raise ValueError(DAMAGED)
    frames = sum(wanted)
    lengths = [n for n in (link.pieces, link.rests, frames) if n]
    for group in link.groups:
        if any(word >= len(WORDS) for word in group.words) or len(group.key) != len(KEY) or not 0 <= group.size <= 255:
            raise ValueError(DAMAGED)
        lengths += [group.count] * (1 + sum(COLUMNS[word] for word in group.words))
    decoder = Decoder(link.head, link.data, np.array(lengths, np.int64))
    piece_sizes, rest_sizes, sequences = (_take(decoder, n) for n in (link.pieces, link.rests, frames))
    if piece_sizes.min(initial=0) < 0 or rest_sizes.min(initial=0) < 0 or rest_sizes.sum() != len(link.rest):
        raise ValueError(DAMAGED)
    bodies = [iter(_bodies(decoder, group)) for group in link.groups]
    parts, at, number = [], 0, 0
    numbers, rest_list = sequences.tolist(), iter(rest_sizes.tolist())
    for which in order.tolist():
        if which == REST:
            size = next(rest_list)
            parts.append(link.rest[at : at + size])
            at += size
            continue
        group = link.groups[which]
        size, body = next(bodies[which])
        parts.append(_frame(group, numbers[number], size, body))
        number += 1
    stream = b"".join(parts)
    ends = np.cumsum(piece_sizes)
    if len(stream) != (int(ends[-1]) if len(ends) else 0):
        raise ValueError(DAMAGED)
    return [stream[end - size : end] for end, size in zip(ends.tolist(), piece_sizes.tolist(), strict=True)]


def _frames(stream: bytes) -> tuple[bytes, dict[bytes, list[int]], list[tuple[int, int]]]:
    """Order of frames and other bytes, places of the frames by their key, and places of the other bytes."""
    order = bytearray()
    numbers: dict[bytes, int] = {}
    members: dict[bytes, list[int]] = {}
    rest: list[tuple[int, int]] = []
    at, end = 0, len(stream)
    while at < end:
        size = 0
        if stream[at] == MAGIC and at + HEADER + CHECKSUM <= end:
            size = HEADER + stream[at + LENGTH] + CHECKSUM + (SIGNATURE if stream[at + 2] & SIGNED else 0)
        if size and at + size <= end and (at + size == end or stream[at + size] == MAGIC):
            key = stream[at + 2 : at + 4] + stream[at + 5 : at + HEADER]
            if key in numbers or len(numbers) < GROUPS_MAX:
                order.append(numbers.setdefault(key, len(numbers)))
                members.setdefault(key, []).append(at)
                at += size
                continue
        following = stream.find(bytes((MAGIC,)), at + 1)
        following = end if following < 0 else following
        if order and order[-1] == REST:
            rest[-1] = (rest[-1][0], following)
        else:
            order.append(REST)
            rest.append((at, following))
        at = following
    return bytes(order), members, rest


def _checksum(stream: bytes, begin: int, size: int, seed: int) -> bytes:
    """CRC-16/MCRF4XX of a frame without its magic byte, with the seed of its message."""
    if seed == NO_SEED:
        return b""
    crc = binascii.crc_hqx((stream[begin + 1 : begin + HEADER + size] + bytes((seed,))).translate(_MIRROR), 0xFFFF)
    return bytes((_MIRROR[crc >> 8], _MIRROR[crc & 0xFF]))


def _seed(stream: bytes, begin: int, size: int) -> int:
    """The seed with which the checksum of a frame is right."""
    stated = stream[begin + HEADER + size : begin + HEADER + size + CHECKSUM]
    crc = binascii.crc_hqx(stream[begin + 1 : begin + HEADER + size].translate(_MIRROR), 0xFFFF)
    wanted = _MIRROR[stated[0]] << 8 | _MIRROR[stated[1]]
    for seed in range(256):
        if binascii.crc_hqx(bytes((_MIRROR[seed],)), crc) == wanted:
            return seed
    return NO_SEED


def _frame(group: FrameGroup, sequence: int, size: int, body: bytes) -> bytes:
    key = group.key
    if not (0 <= size <= group.size and 0 <= sequence <= 255):
        raise ValueError(DAMAGED)
    frame = bytes((MAGIC, size, key[0], key[1], sequence)) + key[2:] + body[:size]
    tail = body[group.size :]
    if group.seed != NO_SEED:
        frame += _checksum(frame, 0, size, group.seed & 0xFF)
        return frame + tail[: SIGNATURE if key[0] & SIGNED else 0]
    return frame + tail[: CHECKSUM + (SIGNATURE if key[0] & SIGNED else 0)]


def _bodies(decoder: Decoder, group: FrameGroup) -> list[tuple[int, bytes]]:
    sizes = _take(decoder, group.count).tolist()
    words = np.frombuffer(group.words, np.uint8)
    table = np.zeros((group.count, len(words), 4), np.uint8)
    for number in range(len(WORDS)):
        blocks = np.flatnonzero(words == number)
        if len(blocks):
            table[:, blocks] = _written(decoder.take(group.count, len(blocks) * COLUMNS[number]), number)
    text, width = table.tobytes(), 4 * len(words)
    return [(size, text[i * width : (i + 1) * width]) for i, size in enumerate(sizes)]


def _read(table: Bytes, number: int) -> Ints:
    """The columns of a table, shape (n, 4 b), in one way of reading it."""
    if WORDS[number] == "split":
        bits = table.view("<u4").astype(np.int64)
        return np.stack((bits >> MANTISSA, bits & ((1 << MANTISSA) - 1)), axis=2).reshape(len(table), -1)
    values = table.view(WORDS[number]).astype(np.int64)
    return ordered(values, 31) if number == 0 else values


def _written(values: Ints, number: int) -> Bytes:
    """The inverse of `_read`, shape (n, b, 4)."""
    if WORDS[number] == "split":
        parts = values.reshape(len(values), -1, 2)
        raw = np.ascontiguousarray((parts[:, :, 0] << MANTISSA | parts[:, :, 1]).astype("<u4"))
    else:
        raw = np.ascontiguousarray((ordered(values, 31) if number == 0 else values).astype(WORDS[number]))
    return raw.view(np.uint8).reshape(len(values), -1, 4)


def _add(coder: Coder, numbers: Sequence[int]) -> None:
    if numbers:
        coder.add(np.array(numbers, np.int64)[:, None], *_integers(1))


def _take(decoder: Decoder, count: int) -> Ints:
    return decoder.take(count, 1)[:, 0] if count else np.zeros(0, np.int64)


def _integers(count: int) -> tuple[Bytes, Bytes]:
    return np.full(count, INTEGER, np.uint8), np.zeros(count, np.uint8)


def _add_blocks(coder: Coder, table: Bytes) -> bytes:
    """Add a table of bytes, shape (n, 4 b); returns for each block how it was read."""
    if not table.shape[1]:
        return b""
    found = [cheapest(_read(table, number)) for number in range(len(WORDS))]
    costs = [
        bits_needed(one.words).reshape(-1, columns).sum(axis=1) for one, columns in zip(found, COLUMNS, strict=True)
    ]
    words = np.argmin(np.array(costs), axis=0)
    for number, columns in enumerate(COLUMNS):
        chosen = np.flatnonzero(np.repeat(words == number, columns))
        if len(chosen):
            coder.add_found(found[number].of(chosen), *_integers(len(chosen)))
    return bytes(words.tolist())

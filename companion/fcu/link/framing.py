"""Finds MAVLink frames in a stream of bytes and verifies their checksums.

Checksum seeds are pymavlink's. The framing is not: after a truncated or corrupt frame pymavlink's parser discards
as many bytes as the broken header announced, and good frames with them. Here a frame counts only when its checksum is
right, and after a wrong checksum the search continues at the next byte. Nothing here raises.
"""

import binascii
import re
from enum import Enum, auto

from pymavlink.dialects.v20 import common

CURRENT_MODE = 436  # common.xml since 2023; missing in this version of pymavlink
CURRENT_MODE_SEED = 193

MAGIC_V1, MAGIC_V2 = 0xFE, 0xFD
MAGICS = (MAGIC_V2, MAGIC_V1)
FLAG_SIGNED = 0x01
HEADER_V1, HEADER_V2, CHECKSUM_LENGTH, SIGNATURE_LENGTH = 6, 10, 2, 13
# Where a frame may begin: MAVLink 2 has no flags but `FLAG_SIGNED`.
_HEADER = re.compile(rb"\xfe|\xfd(?=.[\x00\x01]|.?\Z)", re.DOTALL)
_MIRROR = bytes(int(f"{i:08b}"[::-1], 2) for i in range(256))

SEEDS = {number: kind.crc_extra for number, kind in common.mavlink_map.items()} | {CURRENT_MODE: CURRENT_MODE_SEED}
LENGTHS = {number: kind.unpacker.size for number, kind in common.mavlink_map.items()}  # of the longest payload known


def checksum(data: bytes, seed: int) -> int:
    """CRC-16/MCRF4XX of data followed by the byte `seed`: the checksum of a MAVLink frame.

    The standard library has the same polynomial with the bits in the other order, so bytes and result are mirrored;
    this runs in C.
    """
    crc = binascii.crc_hqx((data + bytes((seed,))).translate(_MIRROR), 0xFFFF)
    return _MIRROR[crc & 0xFF] << 8 | _MIRROR[crc >> 8]


class Frame:
    """Header of one frame that lies in a buffer completely, and the positions of its parts there."""

    __slots__ = ("start", "payload", "tail", "end", "seq", "system", "component", "number", "signed")
    start: int  # of the magic byte
    payload: int
    tail: int  # of the checksum
    end: int  # of the frame, its signature included
    seq: int
    system: int
    component: int
    number: int  # message id
    signed: bool

    def __init__(self, buffer: bytes, at: int) -> None:
        """Read the header that begins at the magic byte `at`."""
        self.start = at
        if buffer[at] == MAGIC_V2:
            self.signed = bool(buffer[at + 2])
            self.payload = at + HEADER_V2
            self.seq, self.system, self.component = buffer[at + 4 : at + 7]
            self.number = buffer[at + 7] | buffer[at + 8] << 8 | buffer[at + 9] << 16
        else:
            self.signed = False
            self.payload = at + HEADER_V1
            self.seq, self.system, self.component, self.number = buffer[at + 2 : at + 6]
        self.tail = self.payload + buffer[at + 1]
        self.end = self.tail + CHECKSUM_LENGTH + (SIGNATURE_LENGTH if self.signed else 0)


class Verdict(Enum):
    """What begins at a magic byte."""

    NO_FRAME = auto()  # the header is impossible
    UNFINISHED = auto()  # the buffer ends before the frame does
    GOOD = auto()  # a known message with the right checksum
    BAD = auto()  # a known message with a wrong one
    UNKNOWN = auto()  # a message without a known checksum


NO_FRAME, UNFINISHED, GOOD, BAD, UNKNOWN = (
    Verdict  # an attribute of an Enum is slow to read, and these are read per byte
)


def judge(buffer: bytes, at: int, size: int) -> Verdict:
    """What begins at the magic byte `at`, of the first `size` bytes of a buffer."""
    length = buffer[at + 1] if size - at > 1 else 0
    if buffer[at] == MAGIC_V2:
        if size - at < HEADER_V2:
            return UNFINISHED
        flags = buffer[at + 2]
        if flags & ~FLAG_SIGNED:
            return NO_FRAME
        tail = at + HEADER_V2 + length
        end = tail + CHECKSUM_LENGTH + (SIGNATURE_LENGTH if flags else 0)
        number = buffer[at + 7] | buffer[at + 8] << 8 | buffer[at + 9] << 16
    else:
        if size - at < HEADER_V1:
            return UNFINISHED
        number = buffer[at + 5]
        if length > LENGTHS.get(number, length):  # a longer payload of a newer dialect is always MAVLink 2
            return NO_FRAME
        tail = at + HEADER_V1 + length
        end = tail + CHECKSUM_LENGTH
    if end > size:
        return UNFINISHED
    seed: int | None = SEEDS.get(number)
    if seed is None:
        return UNKNOWN
    right = checksum(buffer[at + 1 : tail], seed) == buffer[tail] | buffer[tail + 1] << 8
    return GOOD if right else BAD


class Framer:
    """Cuts a stream of bytes into frames, one call of ``frames(bytes)`` after another.

    A frame of an unknown message cannot be verified; it is accepted when the next frame follows it directly and no
    verified frame begins inside it.

    The checksum of one position is computed once, in whatever pieces the bytes arrive. Bytes that all look like headers
    would otherwise cost a checksum of a whole frame per byte and per call, and a line with noise would stop the process.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._ahead = _Ahead()
        self.stray_bytes = 0  # outside any frame
        self.bad_checksums = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes kept for a frame that is not complete yet."""
        return len(self._buffer)

    def frames(self, data: bytes) -> tuple[bytes, list[tuple[Frame, bool]]]:
        """The buffer, and every frame in it that `data` completes, with True where it was verified; never raises."""
        self._buffer += data
        out: list[tuple[Frame, bool]] = []
        buffer, at, end = bytes(self._buffer), 0, len(self._buffer)
        ahead = self._ahead
        while at < end:
            found = _HEADER.search(buffer, at)
            start = found.start() if found else end
            if start > at:
                self.stray_bytes += start - at
                at = start
                continue
            verdict = BAD if at in ahead.bad else judge(buffer, at, end)
            if verdict is GOOD or (verdict is UNKNOWN and _is_followed(buffer, at, ahead)):
                frame = Frame(buffer, at)
                out.append((frame, verdict is GOOD))
                at = frame.end
                continue
            step = 1
            if verdict is UNFINISHED:
                # or a false header: a verified frame behind it shows that the header is false
                good = ahead.next_good(buffer, at + 1, end)
                if good < 0:
                    break
                step = good - at
            elif verdict is not NO_FRAME:
                self.bad_checksums += 1
            at += step
            self.stray_bytes += step
        del self._buffer[:at]
        ahead.drop(at)
        return buffer, out


def _is_followed(buffer: bytes, at: int, ahead: "_Ahead") -> bool:
    """Whether a frame of an unknown message is one: another follows it directly, and none begins inside it."""
    end = Frame(buffer, at).end
    followed = end == len(buffer) or buffer[end] in MAGICS
    return followed and ahead.next_good(buffer, at + 1, end) < 0


class _Ahead:
    """What is known about the bytes behind the present position; all positions count from the buffer's begin."""

    def __init__(self) -> None:
        self.bad: set[int] = set()  # headers of frames with a wrong checksum
        self._clear = 0  # before this nothing begins that is not in one of the others
        self._good = -1  # the first good frame
        self._unfinished: list[int] = []  # headers of frames that end beyond the buffer

    def drop(self, count: int) -> None:
        """The first `count` bytes have left the buffer."""
        if self._clear <= count:
            self._clear, self._good = 0, -1
            self._unfinished.clear()
            self.bad.clear()
            return
        self._clear -= count
        self._good = self._good - count if self._good >= count else -1
        self.bad = {at - count for at in self.bad if at >= count}
        self._unfinished = [at - count for at in self._unfinished if at >= count]

    def next_good(self, buffer: bytes, start: int, stop: int) -> int:
        """Position of the first good frame that begins in [start, stop), -1 if there is none."""
        if start <= self._good:
            return self._good if self._good < stop else -1
        self._good = -1
        waiting, self._unfinished = self._unfinished, []
        for i, at in enumerate(waiting):
            if start <= at < stop:
                self._judge(buffer, at)
                if self._good >= 0:
                    self._unfinished += waiting[i + 1 :]
                    return at
            elif at >= stop:
                self._unfinished.append(at)
        for match in _HEADER.finditer(buffer, max(start, self._clear), stop):
            self._clear = match.start() + 1
            self._judge(buffer, match.start())
            if self._good >= 0:
                return self._good
        self._clear = max(self._clear, stop)
        return -1

    def _judge(self, buffer: bytes, at: int) -> None:
        verdict = judge(buffer, at, len(buffer))
        if verdict is GOOD:
            self._good = at
        elif verdict is BAD:
            self.bad.add(at)
        elif verdict is UNFINISHED:
            self._unfinished.append(at)

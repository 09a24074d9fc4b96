"""Finds MAVLink frames in a stream of bytes and verifies their checksums.

Checksum seeds are pymavlink's. The framing is not: after a truncated or corrupt frame pymavlink's parser discards
as many bytes as the broken header announced, and good frames with them. Here a frame counts only when its checksum is
right, and after a wrong checksum the search continues at the next byte. Nothing here raises.
"""

import binascii

from pymavlink.dialects.v20 import common

CURRENT_MODE = 436  # common.xml since 2023; missing in this version of pymavlink
CURRENT_MODE_SEED = 193

MAGIC_V1, MAGIC_V2 = 0xFE, 0xFD
MAGICS = (MAGIC_V2, MAGIC_V1)
FLAG_SIGNED = 0x01
SIGNATURE_LENGTH = 13
_MIRROR = bytes(int(f"{i:08b}"[::-1], 2) for i in range(256))

SEEDS = {number: kind.crc_extra for number, kind in common.mavlink_map.items()} | {CURRENT_MODE: CURRENT_MODE_SEED}


def checksum(data: bytes, seed: int) -> int:
    """CRC-16/MCRF4XX of data followed by the byte `seed`: the checksum of a MAVLink frame.

    The standard library has the same polynomial with the bits in the other order, so bytes and result are mirrored;
    this runs in C.
    """
    crc = binascii.crc_hqx((data + bytes((seed,))).translate(_MIRROR), 0xFFFF)
    return _MIRROR[crc & 0xFF] << 8 | _MIRROR[crc >> 8]


class Frame:
    """Header of one frame, and the positions of its parts in a buffer."""

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

    @classmethod
    def read(cls, buffer: bytes, at: int, end: int) -> "Frame | None":
        """The frame whose header begins at the magic byte `at`; None if there cannot be a header.

        `end` of a frame with an unfinished header lies beyond the buffer, and its other parts are not set.
        """
        frame = cls()
        frame.start = at
        v2 = buffer[at] == MAGIC_V2
        header = 10 if v2 else 6
        if end - at < header:
            frame.end = end + 1
            return frame
        frame.signed = False
        frame.payload = at + header
        frame.tail = frame.payload + buffer[at + 1]
        frame.end = frame.tail + 2
        if v2:
            flags = buffer[at + 2]
            if flags & ~FLAG_SIGNED:
                return None
            if flags:
                frame.signed = True
                frame.end += SIGNATURE_LENGTH
            frame.seq, frame.system, frame.component = buffer[at + 4], buffer[at + 5], buffer[at + 6]
            frame.number = buffer[at + 7] | buffer[at + 8] << 8 | buffer[at + 9] << 16
        else:
            frame.seq, frame.system, frame.component, frame.number = buffer[at + 2 : at + 6]
        return frame

    def verified(self, buffer: bytes) -> bool:
        """True when the message is known and its checksum is right; the frame must lie in the buffer completely."""
        seed: int | None = SEEDS.get(self.number)
        if seed is None:
            return False
        tail = self.tail
        return checksum(buffer[self.start + 1 : tail], seed) == buffer[tail] | buffer[tail + 1] << 8


def next_verified(buffer: bytes, start: int, stop: int, end: int) -> int:
    """Position of the first good frame that begins in [start, stop), -1 if there is none."""
    for at in range(start, stop):
        if buffer[at] in MAGICS:
            frame = Frame.read(buffer, at, end)
            if frame is not None and frame.end <= end and frame.verified(buffer):
                return at
    return -1


class Framer:
    """Cuts a stream of bytes into frames, one call of ``frames(bytes)`` after another.

    A frame of an unknown message cannot be verified; it is accepted when the next frame follows it directly and no
    verified frame begins inside it.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
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
        while at < end:
            if buffer[at] not in MAGICS:
                at += 1
                self.stray_bytes += 1
                continue
            frame = Frame.read(buffer, at, end)
            if frame is None:  # a magic byte by chance
                step = 1
            elif frame.end > end:
                # unfinished, or a false header: a verified frame behind it shows that the header is false
                ahead = next_verified(buffer, at + 1, end, end)
                if ahead < 0:
                    break
                step = ahead - at
            elif (known := frame.verified(buffer)) or self._is_unknown(frame, buffer, end):
                out.append((frame, known))
                at = frame.end
                continue
            else:
                self.bad_checksums += 1
                step = 1
            at += step
            self.stray_bytes += step
        del self._buffer[:at]
        return buffer, out

    @staticmethod
    def _is_unknown(frame: Frame, buffer: bytes, end: int) -> bool:
        if frame.number in SEEDS:
            return False
        followed = frame.end == end or buffer[frame.end] in MAGICS
        return followed and next_verified(buffer, frame.start + 1, frame.end, end) < 0

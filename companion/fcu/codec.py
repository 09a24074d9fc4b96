"""Bytes to messages of one autopilot and back (MAVLink 2; MAVLink 1 is understood, never sent).

Message layouts and checksum seeds are pymavlink's. The framing is not: after a truncated or corrupt frame
pymavlink's parser throws away as many bytes as the broken header announced, and good frames with them. Here a
frame counts only when its checksum is right, and after a wrong one the search goes on at the next byte.
Only messages of interest are decoded, only from the autopilot's own system and component. Nothing here raises:
what cannot be used is counted by kind and dropped.
"""

import binascii
import struct
from types import SimpleNamespace
from typing import Any

from pymavlink.dialects.v20 import common

AUTOPILOT_COMPONENT = common.MAV_COMP_ID_AUTOPILOT1
CURRENT_MODE = 436  # common.xml since 2023; this pymavlink does not know it

LATE_MAX = 3  # frames in a row with numbers from the past: no overtaking, the sender began anew

_MAGIC_V1, _MAGIC_V2 = 0xFE, 0xFD
_MAGICS = (_MAGIC_V2, _MAGIC_V1)
_FLAG_SIGNED = 0x01
_SIGNATURE_LENGTH = 13
_MIRROR = bytes(int(f"{i:08b}"[::-1], 2) for i in range(256))


def checksum(data: bytes, seed: int) -> int:
    """CRC-16/MCRF4XX of data followed by the byte `seed`, as MAVLink ends its frames.

    The standard library has the same polynomial with bits in the other order, so bytes and result are mirrored;
    that runs in C.
    """
    crc = binascii.crc_hqx((data + bytes((seed,))).translate(_MIRROR), 0xFFFF)
    return _MIRROR[crc & 0xFF] << 8 | _MIRROR[crc >> 8]


class _Layout:
    """How the payload of one message is read."""

    def __init__(self, name: str, fields: list[tuple[str, int, bool]], form: struct.Struct, seed: int) -> None:
        self.name, self.form, self.seed = name, form, seed
        self.scalars = [field for field, length, is_text in fields if length == 1 or is_text]
        self.fields = fields
        self.flat = len(self.scalars) == len(fields)

    def decode(self, payload: bytes) -> SimpleNamespace:
        size = self.form.size
        # MAVLink 2 cuts trailing zeros; a longer payload comes from a newer dialect
        values = self.form.unpack(payload[:size].ljust(size, b"\0"))
        if self.flat:
            return SimpleNamespace(**dict(zip(self.scalars, values, strict=True)))
        message, i = SimpleNamespace(), 0
        for field, length, is_text in self.fields:
            count = 1 if is_text else length
            setattr(message, field, values[i] if count == 1 else values[i : i + count])
            i += count
        return message


def _layout(kind: Any) -> _Layout:
    # pymavlink keeps wire order in ordered_fieldnames, lengths and the unpacker
    texts = {name for name, t in zip(kind.fieldnames, kind.fieldtypes, strict=True) if t == "char"}
    lengths = dict(zip(kind.ordered_fieldnames, kind.lengths, strict=True))
    fields = [(name, lengths[name], name in texts) for name in kind.ordered_fieldnames]
    return _Layout(kind.msgname, fields, kind.unpacker, kind.crc_extra)


def _current_mode_layout() -> _Layout:
    fields = [("custom_mode", 1, False), ("intended_custom_mode", 1, False), ("standard_mode", 1, False)]
    types = ("uint32_t", "uint32_t", "uint8_t")
    text = "CURRENT_MODE " + "".join(f"{t} {f[0]} " for t, f in zip(types, fields, strict=True))
    crc = checksum(text[:-1].encode(), ord(" "))  # the seed is the folded CRC of the definition
    return _Layout("CURRENT_MODE", fields, struct.Struct("<IIB"), (crc & 0xFF) ^ (crc >> 8))


_SEEDS = {number: kind.crc_extra for number, kind in common.mavlink_map.items()}
_INTERESTING = (
    common.MAVLINK_MSG_ID_HEARTBEAT,
    common.MAVLINK_MSG_ID_SYS_STATUS,
    common.MAVLINK_MSG_ID_GPS_RAW_INT,
    common.MAVLINK_MSG_ID_PARAM_VALUE,
    common.MAVLINK_MSG_ID_ATTITUDE_QUATERNION,
    common.MAVLINK_MSG_ID_LOCAL_POSITION_NED,
    common.MAVLINK_MSG_ID_RC_CHANNELS,
    common.MAVLINK_MSG_ID_COMMAND_ACK,
    common.MAVLINK_MSG_ID_TIMESYNC,
    common.MAVLINK_MSG_ID_BATTERY_STATUS,
    common.MAVLINK_MSG_ID_HOME_POSITION,
    common.MAVLINK_MSG_ID_EXTENDED_SYS_STATE,
    common.MAVLINK_MSG_ID_STATUSTEXT,
)
LAYOUTS: dict[int, _Layout] = {number: _layout(common.mavlink_map[number]) for number in _INTERESTING}
LAYOUTS[CURRENT_MODE] = _current_mode_layout()
_SEEDS[CURRENT_MODE] = LAYOUTS[CURRENT_MODE].seed


class _Frame:
    """Where the parts of one frame lie in a buffer."""

    __slots__ = ("start", "payload", "tail", "end", "seq", "system", "component", "number")

    @classmethod
    def read(cls, buffer: bytes, at: int, end: int) -> "_Frame | None":
        """The frame whose header begins at the magic byte `at`; None if that cannot be one.

        `end` of a frame with an unfinished header lies beyond the buffer, and its other parts are not set.
        """
        frame = cls()
        frame.start = at
        v2 = buffer[at] == _MAGIC_V2
        header = 10 if v2 else 6
        if end - at < header:
            frame.end = end + 1
            return frame
        frame.payload = at + header
        frame.tail = frame.payload + buffer[at + 1]
        frame.end = frame.tail + 2
        if v2:
            flags = buffer[at + 2]
            if flags & ~_FLAG_SIGNED:
                return None
            if flags:
                frame.end += _SIGNATURE_LENGTH
            frame.seq, frame.system, frame.component = buffer[at + 4], buffer[at + 5], buffer[at + 6]
            frame.number = buffer[at + 7] | buffer[at + 8] << 8 | buffer[at + 9] << 16
        else:
            frame.seq, frame.system, frame.component, frame.number = buffer[at + 2 : at + 6]
        return frame

    def verified(self, buffer: bytes) -> bool:
        """True when the whole frame is there, of a known message, with the right checksum."""
        seed = _SEEDS.get(self.number)
        if seed is None:
            return False
        tail = self.tail
        return checksum(buffer[self.start + 1 : tail], seed) == buffer[tail] | buffer[tail + 1] << 8


def _next_verified(buffer: bytes, start: int, stop: int, end: int) -> int:
    """Where the first good frame that begins in [start, stop) begins, -1 if none does."""
    for at in range(start, stop):
        if buffer[at] in _MAGICS:
            frame = _Frame.read(buffer, at, end)
            if frame is not None and frame.end <= end and frame.verified(buffer):
                return at
    return -1


class Codec:
    """The conversation with one autopilot: ``decode(bytes)`` and ``encode(message)``."""

    def __init__(self, system_id: int, component_id: int, autopilot_system_id: int) -> None:
        """system_id, component_id: our own; autopilot_system_id: the only one listened to (component 1)."""
        self.system_id, self.component_id = system_id, component_id
        self._autopilot = autopilot_system_id
        self._mav = common.MAVLink(None, srcSystem=system_id, srcComponent=component_id)
        self._buffer = bytearray()
        self._next_seq: int | None = None
        self._late = 0  # overtaken frames in a row
        self.frames = 0  # good frames of the autopilot
        self.lost_frames = 0  # gaps in its sequence numbers
        self.garbage_bytes = 0  # outside any frame
        self.bad_checksums = 0
        self.unknown_messages = 0  # well-framed, of a dialect not known here
        self.foreign_frames = 0  # of other systems and components
        self.foreign_autopilots: dict[int, int] = {}  # system id: MAV_AUTOPILOT, from heartbeats of others

    @property
    def errors(self) -> int:
        """Bytes and frames dropped or missed since the start; other systems' traffic is none."""
        return self.garbage_bytes + self.bad_checksums + self.lost_frames

    def encode(self, message: Any) -> bytes:
        """Frame of a pymavlink message, with the next sequence number."""
        frame = message.pack(self._mav)
        self._mav.seq = (self._mav.seq + 1) % 256
        return frame

    def decode(self, data: bytes) -> list[tuple[int, SimpleNamespace]]:
        """(message id, fields) of every message of interest that `data` completes; never raises.

        Text fields are bytes with their padding.
        """
        self._buffer += data
        out: list[tuple[int, SimpleNamespace]] = []
        buffer, at, end = bytes(self._buffer), 0, len(self._buffer)
        while at < end:
            if buffer[at] not in _MAGICS:
                at += 1
                self.garbage_bytes += 1
                continue
            frame = _Frame.read(buffer, at, end)
            if frame is None:  # a magic byte by chance
                step = 1
            elif frame.end > end:
                # unfinished, or a false header: a whole frame behind it decides, and nothing has to wait
                ahead = _next_verified(buffer, at + 1, end, end)
                if ahead < 0:
                    break
                step = ahead - at
            elif frame.verified(buffer):
                self._take(frame, buffer, out)
                at = frame.end
                continue
            elif frame.number not in _SEEDS and self._is_unknown(frame, buffer, end):
                self.unknown_messages += 1
                if (frame.system, frame.component) == (self._autopilot, AUTOPILOT_COMPONENT):
                    self._follow(frame.seq)  # it has its place in the sequence, too
                at = frame.end
                continue
            else:
                self.bad_checksums += 1
                step = 1
            at += step
            self.garbage_bytes += step
        del self._buffer[:at]
        return out

    @staticmethod
    def _is_unknown(frame: "_Frame", buffer: bytes, end: int) -> bool:
        """Believe a frame whose checksum cannot be verified: the next follows at once and none hides in it."""
        followed = frame.end == end or buffer[frame.end] in _MAGICS
        return followed and _next_verified(buffer, frame.start + 1, frame.end, end) < 0

    def _take(self, frame: "_Frame", buffer: bytes, out: list) -> None:
        payload = buffer[frame.payload : frame.tail]
        if frame.system != self._autopilot or frame.component != AUTOPILOT_COMPONENT:
            self._foreign(frame.system, frame.component, frame.number, payload)
            return
        self.frames += 1
        self._follow(frame.seq)
        layout = LAYOUTS.get(frame.number)
        if layout is not None:
            out.append((frame.number, layout.decode(payload)))

    def _foreign(self, system: int, component: int, number: int, payload: bytes) -> None:
        self.foreign_frames += 1
        if number == common.MAVLINK_MSG_ID_HEARTBEAT and component == AUTOPILOT_COMPONENT:
            self.foreign_autopilots[system] = LAYOUTS[number].decode(payload).autopilot

    def _follow(self, seq: int) -> None:
        """Count the gap before a frame of the autopilot."""
        gap = 0 if self._next_seq is None else (seq - self._next_seq) % 256
        if gap >= 128 and self._late < LATE_MAX:
            # Overtaken: PX4 numbers frames in one thread and sends them in two. It was counted as lost.
            self._late += 1
            self.lost_frames = max(0, self.lost_frames - 1)
            return
        self.lost_frames += gap if gap < 128 else 0  # more, and again and again, is a restart
        self._late = 0
        self._next_seq = (seq + 1) % 256

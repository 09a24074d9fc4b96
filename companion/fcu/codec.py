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
STALL_S = 0.1  # an unfinished frame older than this is no frame: the longest takes 50 ms at 57600 baud
BUFFER_MAX = 16_384  # bytes kept while searching; more than a second at 115200 baud

_MAGIC_V1, _MAGIC_V2 = 0xFE, 0xFD
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


class Codec:
    """The conversation with one autopilot: ``decode(bytes)`` and ``encode(message)``."""

    def __init__(self, system_id: int, component_id: int, autopilot_system_id: int) -> None:
        """system_id, component_id: our own; autopilot_system_id: the only one listened to (component 1)."""
        self.system_id, self.component_id = system_id, component_id
        self._autopilot = autopilot_system_id
        self._mav = common.MAVLink(None, srcSystem=system_id, srcComponent=component_id)
        self._buffer = bytearray()
        self._waiting_since_s = 0.0
        self._next_seq: int | None = None
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

    def decode(self, data: bytes, now_s: float = 0.0) -> list[tuple[int, SimpleNamespace]]:
        """(message id, fields) of every message of interest that `data` completes; never raises.

        now_s: companion time [s], only to tell an unfinished frame from a stalled one. Text fields are bytes
        with their padding.
        """
        if self._buffer and now_s - self._waiting_since_s > STALL_S:
            self._skip(1)  # what waited for so long was no header; look for frames behind it
        if not self._buffer:
            self._waiting_since_s = now_s
        self._buffer += data
        if len(self._buffer) > BUFFER_MAX:
            self._skip(len(self._buffer) - BUFFER_MAX)
        out: list[tuple[int, SimpleNamespace]] = []
        buffer, at, end = bytes(self._buffer), 0, len(self._buffer)
        while at < end:
            magic = buffer[at]
            if magic != _MAGIC_V2 and magic != _MAGIC_V1:
                at += 1
                self.garbage_bytes += 1
                continue
            length = self._take(buffer, at, end, out)
            if length == 0:
                break  # the rest is still to come
            if length < 0:
                at += 1
                self.garbage_bytes += 1
            else:
                at += length
        if at:
            del self._buffer[:at]
            self._waiting_since_s = now_s
        return out

    def _skip(self, count: int) -> None:
        del self._buffer[:count]
        self.garbage_bytes += count

    def _take(self, buffer: bytes, at: int, end: int, out: list) -> int:
        """Read the frame that may begin at `at`: its length, 0 if unfinished, -1 if there is none."""
        v2 = buffer[at] == _MAGIC_V2
        header = 10 if v2 else 6
        if end - at < header:
            return 0
        payload = buffer[at + 1]
        length = header + payload + 2
        if v2:
            flags, seq, system, component = buffer[at + 2], buffer[at + 4], buffer[at + 5], buffer[at + 6]
            number = buffer[at + 7] | buffer[at + 8] << 8 | buffer[at + 9] << 16
            if flags & ~_FLAG_SIGNED:
                return -1
            if flags:
                length += _SIGNATURE_LENGTH
        else:
            seq, system, component, number = buffer[at + 2 : at + 6]
        if end - at < length:
            return 0
        seed = _SEEDS.get(number)
        if seed is None:
            # its checksum cannot be verified; it is believed where the next frame begins right behind it
            if at + length < end and buffer[at + length] not in (_MAGIC_V1, _MAGIC_V2):
                return -1
            self.unknown_messages += 1
            return length
        tail = at + header + payload
        if checksum(buffer[at + 1 : tail], seed) != buffer[tail] | buffer[tail + 1] << 8:
            self.bad_checksums += 1
            return -1
        if system != self._autopilot or component != AUTOPILOT_COMPONENT:
            self._foreign(system, component, number, buffer[at + header : tail])
            return length
        self._count(seq)
        layout = LAYOUTS.get(number)
        if layout is not None:
            out.append((number, layout.decode(buffer[at + header : tail])))
        return length

    def _foreign(self, system: int, component: int, number: int, payload: bytes) -> None:
        self.foreign_frames += 1
        if number == common.MAVLINK_MSG_ID_HEARTBEAT and component == AUTOPILOT_COMPONENT:
            self.foreign_autopilots[system] = LAYOUTS[number].decode(payload).autopilot

    def _count(self, seq: int) -> None:
        self.frames += 1
        if self._next_seq is not None and seq != self._next_seq:
            gap = (seq - self._next_seq) % 256
            self.lost_frames += gap if gap < 128 else 0  # more is a restart or an overtaking datagram
        self._next_seq = (seq + 1) % 256

"""Bytes to messages of one autopilot and back (MAVLink 2; MAVLink 1 is understood, never sent).

Message layouts are pymavlink's, the framing is `companion.fcu.link.framing`. Only messages of interest are decoded,
only
from the autopilot's own system and component. Nothing here raises: what cannot be used is counted by kind and dropped.
"""

import struct
from types import SimpleNamespace
from typing import Any

from pymavlink.dialects.v20 import common

from companion.fcu.link.framing import CURRENT_MODE, CURRENT_MODE_SEED, Frame, Framer
from companion.fcu.link.signing import LINK_ID, Signer

AUTOPILOT_COMPONENT = common.MAV_COMP_ID_AUTOPILOT1

LATE_MAX = 3  # frames in a row with numbers from the past: no overtaking, the sender began anew
OVERTAKEN_MAX = 32  # places by which a frame may be overtaken; from further back it is a replay

# Messages that steer; nobody but this room sends them to the flight controller while it does.
SETPOINT_MESSAGES = frozenset(
    (
        common.MAVLINK_MSG_ID_SET_ATTITUDE_TARGET,
        common.MAVLINK_MSG_ID_SET_POSITION_TARGET_LOCAL_NED,
        common.MAVLINK_MSG_ID_SET_POSITION_TARGET_GLOBAL_INT,
        common.MAVLINK_MSG_ID_SET_ACTUATOR_CONTROL_TARGET,
    )
)


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
    return _Layout("CURRENT_MODE", fields, struct.Struct("<IIB"), CURRENT_MODE_SEED)


_INTERESTING = (
    common.MAVLINK_MSG_ID_HEARTBEAT,
    common.MAVLINK_MSG_ID_SYS_STATUS,
    common.MAVLINK_MSG_ID_GPS_RAW_INT,
    common.MAVLINK_MSG_ID_PARAM_VALUE,
    common.MAVLINK_MSG_ID_ATTITUDE_QUATERNION,
    common.MAVLINK_MSG_ID_LOCAL_POSITION_NED,
    common.MAVLINK_MSG_ID_RC_CHANNELS,
    common.MAVLINK_MSG_ID_ATTITUDE_TARGET,
    common.MAVLINK_MSG_ID_COMMAND_ACK,
    common.MAVLINK_MSG_ID_TIMESYNC,
    common.MAVLINK_MSG_ID_BATTERY_STATUS,
    common.MAVLINK_MSG_ID_HOME_POSITION,
    common.MAVLINK_MSG_ID_EXTENDED_SYS_STATE,
    common.MAVLINK_MSG_ID_STATUSTEXT,
)
LAYOUTS: dict[int, _Layout] = {number: _layout(common.mavlink_map[number]) for number in _INTERESTING}
LAYOUTS[CURRENT_MODE] = _current_mode_layout()


class Codec:
    """The conversation with one autopilot: ``decode(bytes)`` and ``encode(message)``."""

    def __init__(
        self, system_id: int, component_id: int, autopilot_system_id: int, signer: Signer | None = None
    ) -> None:
        """system_id, component_id: our own; autopilot_system_id: the only one listened to (component 1).

        signer: with one, what leaves is signed and nothing is believed that is not.
        """
        self.system_id, self.component_id = system_id, component_id
        self._autopilot = autopilot_system_id
        self._mav = common.MAVLink(None, srcSystem=system_id, srcComponent=component_id)
        self.signer = signer
        if signer is not None:
            self._mav.signing.secret_key, self._mav.signing.link_id = signer.key, LINK_ID
            self._mav.signing.sign_outgoing = True
        self._framer = Framer()
        self._next_seq: int | None = None
        self._late = 0  # overtaken frames in a row
        self.good_frames = 0  # verified, of anybody
        self.frames = 0  # good frames of the autopilot
        self.lost_frames = 0  # gaps in its sequence numbers
        self.replayed_frames = 0  # numbered far behind those already heard, or with a signature used before
        self.unknown_messages = 0  # well-framed, of a dialect not known here
        self.unsigned_frames = 0  # of anybody, while a key is set
        self.foreign_frames = 0  # of other systems and components
        self.foreign_autopilots: dict[int, int] = {}  # system id: MAV_AUTOPILOT, from heartbeats of others
        self.own_frames = 0  # with our own ids, and not ours
        self.foreign_setpoints = 0  # heard from others
        self.setpoint_sender = (0, 0)  # system and component of the newest of them

    @property
    def garbage_bytes(self) -> int:
        """Bytes outside any frame."""
        return self._framer.garbage_bytes

    @property
    def bad_checksums(self) -> int:
        return self._framer.bad_checksums

    @property
    def errors(self) -> int:
        """Bytes and frames dropped or missed since the start; other systems' traffic is none."""
        wrong = 0 if self.signer is None else self.unsigned_frames + self.signer.wrong
        return self.garbage_bytes + self.bad_checksums + self.lost_frames + self.replayed_frames + wrong

    def encode(self, message: Any, now_s: float = 0.0) -> bytes:
        """Frame of a pymavlink message, with the next sequence number; now_s: companion time, for the signature."""
        if self.signer is not None:
            self._mav.signing.timestamp = self.signer.next_time(now_s)
        frame = message.pack(self._mav)
        self._mav.seq = (self._mav.seq + 1) % 256
        return frame

    def decode(self, data: bytes, now_s: float = 0.0) -> list[tuple[int, SimpleNamespace]]:
        """(message id, fields) of every message of interest that `data` completes; never raises.

        now_s: companion time, for the signatures. Text fields are bytes with their padding.
        """
        out: list[tuple[int, SimpleNamespace]] = []
        buffer, frames = self._framer.frames(data)
        for frame, known in frames:
            self.good_frames += known
            if self.signer is not None and not self._is_genuine(frame, buffer, now_s):
                continue
            if known:
                self._take(frame, buffer, out)
            else:
                self.unknown_messages += 1
                if (frame.system, frame.component) == (self._autopilot, AUTOPILOT_COMPONENT):
                    self._follow(frame.seq)  # it has its place in the sequence, too
        return out

    def _is_genuine(self, frame: Frame, buffer: bytes, now_s: float) -> bool:
        if not frame.signed:
            self.unsigned_frames += 1
            return False
        replayed = self.signer.replayed
        believed = self.signer.believes(buffer[frame.start : frame.end], frame.system, frame.component, now_s)
        self.replayed_frames += self.signer.replayed - replayed
        return believed

    def _take(self, frame: Frame, buffer: bytes, out: list) -> None:
        if frame.system != self._autopilot or frame.component != AUTOPILOT_COMPONENT:
            self._foreign(frame, buffer)
            return
        self.frames += 1
        if not self._follow(frame.seq):
            return
        layout = LAYOUTS.get(frame.number)
        if layout is not None:
            out.append((frame.number, layout.decode(buffer[frame.payload : frame.tail])))

    def _foreign(self, frame: Frame, buffer: bytes) -> None:
        self.foreign_frames += 1
        sender = (frame.system, frame.component)
        if sender == (self.system_id, self.component_id):
            self.own_frames += 1
        elif frame.number in SETPOINT_MESSAGES:
            self.foreign_setpoints += 1
            self.setpoint_sender = sender
        elif frame.number == common.MAVLINK_MSG_ID_HEARTBEAT and frame.component == AUTOPILOT_COMPONENT:
            payload = buffer[frame.payload : frame.tail]
            self.foreign_autopilots[frame.system] = LAYOUTS[frame.number].decode(payload).autopilot

    def _follow(self, seq: int) -> bool:
        """Count the gap before a frame of the autopilot; returns whether the frame may be from now."""
        gap = 0 if self._next_seq is None else (seq - self._next_seq) % 256
        if gap >= 128 and self._late < LATE_MAX:
            self._late += 1
            if 256 - gap > OVERTAKEN_MAX:
                self.replayed_frames += 1
                return False
            # Overtaken: PX4 numbers frames in one thread and sends them in two. It was counted as lost.
            self.lost_frames = max(0, self.lost_frames - 1)
            return True
        self.lost_frames += gap if gap < 128 else 0  # more, and again and again, is a restart
        self._late = 0
        self._next_seq = (seq + 1) % 256
        return True

"""Bytes to messages of one autopilot and back (MAVLink 2; MAVLink 1 is decoded, never sent).

Message layouts are pymavlink's, the framing is `companion.fcu.link.framing`. Only the messages of
`companion.fcu.link.decoded` are decoded, and only from the autopilot's own system and component. Nothing here raises:
what cannot be used is counted by kind and dropped.
"""

import math
import struct
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from pymavlink.dialects.v20 import common

from companion.fcu.link.decoded import (
    Altitude,
    AttitudeQuaternion,
    AttitudeTarget,
    AutopilotVersion,
    BatteryStatus,
    CommandAck,
    CurrentMode,
    Decoded,
    DistanceSensor,
    ExtendedSysState,
    GlobalPositionInt,
    GpsRawInt,
    Heartbeat,
    HighresImu,
    HomePosition,
    LocalPositionNed,
    Odometry,
    ParamValue,
    RcChannels,
    StatusText,
    SysStatus,
    Timesync,
    Vibration,
)
from companion.fcu.link.framing import CURRENT_MODE, CURRENT_MODE_SEED, Frame, Framer
from companion.fcu.link.influence import ForeignMessage, influence_of
from companion.fcu.link.signing import LINK_ID, Rejection, Signer

AUTOPILOT_COMPONENT = common.MAV_COMP_ID_AUTOPILOT1

LATE_MAX = 3  # frames in a row with numbers from the past: more is not overtaking, the sender restarted
OVERTAKEN_MAX = 32  # places by which a frame may be overtaken; from further back it is a replay

FOREIGN_MAX = 64  # kinds of messages of others that are kept until the next report; more come from a faulty sender


class OutgoingMessage(Protocol):
    """A message of pymavlink's."""

    def pack(self, mav: Any) -> bytes: ...


class MessageLayout(NamedTuple):
    """How the payload of one message is read."""

    name: str  # MAVLink's
    form: struct.Struct
    seed: int  # of the checksum
    make: Callable[[Iterable[Any]], Decoded]
    lengths: tuple[int, ...] | None  # of the fields, in values; None: each is one value

    def decode(self, payload: bytes) -> Decoded:
        size = self.form.size
        # MAVLink 2 cuts trailing zeros; a longer payload comes from a newer dialect
        values = self.form.unpack(payload[:size].ljust(size, b"\0"))
        if self.lengths is None:
            return self.make(values)
        fields, i = [], 0
        for count in self.lengths:
            fields.append(values[i] if count == 1 else values[i : i + count])
            i += count
        return self.make(fields)


def _layout(number: int, kind: type[Decoded]) -> MessageLayout:
    if number == CURRENT_MODE:
        return MessageLayout("CURRENT_MODE", struct.Struct("<IIB"), CURRENT_MODE_SEED, kind._make, None)
    message = common.mavlink_map[number]
    # pymavlink keeps wire order in ordered_fieldnames, lengths and the unpacker; a text is one value of many bytes
    types = dict(zip(message.fieldnames, message.fieldtypes, strict=True))
    names = zip(message.ordered_fieldnames, message.lengths, strict=True)
    lengths = tuple(1 if types[name] == "char" else length for name, length in names)
    flat = all(length == 1 for length in lengths)
    return MessageLayout(message.msgname, message.unpacker, message.crc_extra, kind._make, None if flat else lengths)


KINDS: dict[int, type[Decoded]] = {
    common.MAVLINK_MSG_ID_HEARTBEAT: Heartbeat,
    common.MAVLINK_MSG_ID_SYS_STATUS: SysStatus,
    common.MAVLINK_MSG_ID_GPS_RAW_INT: GpsRawInt,
    common.MAVLINK_MSG_ID_PARAM_VALUE: ParamValue,
    common.MAVLINK_MSG_ID_ATTITUDE_QUATERNION: AttitudeQuaternion,
    common.MAVLINK_MSG_ID_LOCAL_POSITION_NED: LocalPositionNed,
    common.MAVLINK_MSG_ID_HIGHRES_IMU: HighresImu,
    common.MAVLINK_MSG_ID_VIBRATION: Vibration,
    common.MAVLINK_MSG_ID_RC_CHANNELS: RcChannels,
    common.MAVLINK_MSG_ID_ATTITUDE_TARGET: AttitudeTarget,
    common.MAVLINK_MSG_ID_COMMAND_ACK: CommandAck,
    common.MAVLINK_MSG_ID_TIMESYNC: Timesync,
    common.MAVLINK_MSG_ID_BATTERY_STATUS: BatteryStatus,
    common.MAVLINK_MSG_ID_HOME_POSITION: HomePosition,
    common.MAVLINK_MSG_ID_AUTOPILOT_VERSION: AutopilotVersion,
    common.MAVLINK_MSG_ID_EXTENDED_SYS_STATE: ExtendedSysState,
    common.MAVLINK_MSG_ID_STATUSTEXT: StatusText,
    CURRENT_MODE: CurrentMode,
    common.MAVLINK_MSG_ID_GLOBAL_POSITION_INT: GlobalPositionInt,
    common.MAVLINK_MSG_ID_ALTITUDE: Altitude,
    common.MAVLINK_MSG_ID_ODOMETRY: Odometry,
    common.MAVLINK_MSG_ID_DISTANCE_SENSOR: DistanceSensor,
}
LAYOUTS: dict[int, MessageLayout] = {number: _layout(number, kind) for number, kind in KINDS.items()}


def decode_heartbeat(payload: bytes) -> Heartbeat:
    """Decode the payload of a HEARTBEAT from any system."""
    heartbeat = LAYOUTS[common.MAVLINK_MSG_ID_HEARTBEAT]
    size = heartbeat.form.size
    return Heartbeat._make(heartbeat.form.unpack(payload[:size].ljust(size, b"\0")))


def is_station(payload: bytes) -> bool:
    """Whether the heartbeat in a payload is that of a ground station."""
    return bool(decode_heartbeat(payload).type == common.MAV_TYPE_GCS)


class Codec:
    """Decodes and encodes the messages of one autopilot: ``decode(bytes)`` and ``encode(message)``."""

    def __init__(
        self, system_id: int, component_id: int, autopilot_system_id: int, signer: Signer | None = None
    ) -> None:
        """system_id, component_id: our own; autopilot_system_id: the only system decoded (component 1).

        signer: with one, outgoing frames are signed, and incoming frames without its signature are dropped.
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
        self.good_frames = 0  # verified, of any sender
        self.frames = 0  # good frames of the autopilot
        self.lost_frames = 0  # gaps in its sequence numbers
        self.replayed_frames = 0  # numbered far behind those already received, or with a signature used before
        self.unknown_messages = 0  # well-framed, of a dialect not known here
        self.unsigned_frames = 0  # of any sender, while a key is set
        self.old_frames = 0  # of any sender, with the key's signature and a time more than a minute behind
        self.foreign_frames = 0  # of other systems and components
        self.foreign_autopilots: dict[int, int] = {}  # system id: MAV_AUTOPILOT, from heartbeats of others
        self.own_frames = 0  # with our own ids, and not sent by us
        self.passed_numbers: frozenset[int] = frozenset()  # messages that `take_passed` returns, of any sender
        self._passed: list[tuple[int, int, int, bytes]] = []
        self._foreign: dict[ForeignMessage, None] = {}  # since the last report, in the order of their first arrival
        self.station_s = -math.inf  # when a ground station's heartbeat last came through the flight controller

    @property
    def stray_bytes(self) -> int:
        """Bytes outside any frame."""
        return self._framer.stray_bytes

    @property
    def pending_bytes(self) -> int:
        """Bytes kept for a frame that is not complete yet."""
        return self._framer.pending_bytes

    @property
    def bad_checksums(self) -> int:
        return self._framer.bad_checksums

    @property
    def errors(self) -> int:
        """Bytes and frames dropped or missed since the start; traffic of other systems is not an error."""
        rejected = 0
        if self.signer is not None:
            rejected = self.unsigned_frames + self.old_frames + self.signer.wrong_signatures
        return self.stray_bytes + self.bad_checksums + self.lost_frames + self.replayed_frames + rejected

    def encode(self, message: OutgoingMessage, now_s: float = 0.0) -> bytes:
        """Frame of a pymavlink message, with the next sequence number; now_s: companion time, for the signature."""
        if self.signer is not None:
            self._mav.signing.timestamp = self.signer.next_time(now_s)
        frame = message.pack(self._mav)
        self._mav.seq = (self._mav.seq + 1) % 256
        return frame

    def decode(self, data: bytes, now_s: float = 0.0) -> list[tuple[int, Decoded]]:
        """(message id, fields) of every message in `KINDS` that `data` completes; never raises.

        now_s: companion time, for the signatures.
        """
        out: list[tuple[int, Decoded]] = []
        buffer, frames = self._framer.frames(data)
        for frame, known in frames:
            self.good_frames += known
            if self.signer is not None and not self._is_genuine(frame, buffer, self.signer, now_s):
                continue
            if known:
                self._take(frame, buffer, out, now_s)
            else:
                self.unknown_messages += 1
                if (frame.system, frame.component) == (self._autopilot, AUTOPILOT_COMPONENT):
                    self._follow(frame.seq)  # it has its place in the sequence, too
        return out

    def _is_genuine(self, frame: Frame, buffer: bytes, signer: Signer, now_s: float) -> bool:
        if not frame.signed:
            self.unsigned_frames += 1
            return False
        why = signer.rejection(buffer[frame.start : frame.end], frame.system, frame.component, now_s)
        self.old_frames += why is Rejection.OLD
        self.replayed_frames += why in (Rejection.REPLAYED, Rejection.STREAMS)
        return not why

    def take_passed(self) -> list[tuple[int, int, int, bytes]]:
        """System, component, number and payload of the messages in `passed_numbers` since the last call."""
        passed, self._passed = self._passed, []
        return passed

    def _take(self, frame: Frame, buffer: bytes, out: list[tuple[int, Decoded]], now_s: float) -> None:
        if frame.number in self.passed_numbers:
            payload = buffer[frame.payload : frame.tail]
            self._passed.append((frame.system, frame.component, frame.number, payload))
        if frame.system != self._autopilot or frame.component != AUTOPILOT_COMPONENT:
            self._count_foreign(frame, buffer, now_s)
            return
        self.frames += 1
        if not self._follow(frame.seq):
            return
        layout = LAYOUTS.get(frame.number)
        if layout is not None:
            out.append((frame.number, layout.decode(buffer[frame.payload : frame.tail])))

    def _count_foreign(self, frame: Frame, buffer: bytes, now_s: float) -> None:
        self.foreign_frames += 1
        sender = (frame.system, frame.component)
        if sender == (self.system_id, self.component_id):
            self.own_frames += 1
        elif message := influence_of(frame.number, buffer[frame.payload : frame.tail], sender, self._autopilot):
            if len(self._foreign) < FOREIGN_MAX:
                self._foreign[message] = None
        elif frame.number == common.MAVLINK_MSG_ID_HEARTBEAT and frame.component == AUTOPILOT_COMPONENT:
            heartbeat = decode_heartbeat(buffer[frame.payload : frame.tail])
            self.foreign_autopilots[frame.system] = heartbeat.autopilot
        elif frame.number == common.MAVLINK_MSG_ID_HEARTBEAT and is_station(buffer[frame.payload : frame.tail]):
            self.station_s = now_s

    def take_foreign(self) -> list[ForeignMessage]:
        """What other senders did to the flight controller since the last call; each kind once."""
        foreign, self._foreign = list(self._foreign), {}
        return foreign

    def _follow(self, seq: int) -> bool:
        """Count the gap before a frame of the autopilot; returns whether the frame may be current."""
        gap = 0 if self._next_seq is None else (seq - self._next_seq) % 256
        if gap >= 128 and self._late < LATE_MAX:
            self._late += 1
            if 256 - gap > OVERTAKEN_MAX:
                self.replayed_frames += 1
                return False
            # Overtaken: PX4 numbers frames in one thread and sends them in two. It was counted as lost.
            self.lost_frames = max(0, self.lost_frames - 1)
            return True
        self.lost_frames += gap if gap < 128 else 0  # a larger gap, several times in a row, is a restart
        self._late = 0
        self._next_seq = (seq + 1) % 256
        return True

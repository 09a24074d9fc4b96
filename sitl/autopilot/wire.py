"""MAVLink 2 frames from field values, with message layouts taken from pymavlink.

pymavlink's own packing takes 15 µs and more for a message, too long for a telemetry stream of hundreds of messages a
second. This module uses pymavlink's struct of the payload and its checksum, and builds the frame itself.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

from pymavlink.dialects.v20 import common

STX = 0xFD
_HEADER = struct.Struct("<BBBBBBBHB")  # STX length incompat compat seq system component id(low 16, high 8)


def _crc(data: bytes) -> int:
    """The checksum of a frame, by the function under pymavlink's object where it has one."""
    crc: int = common.mcrf4xx(data, 0xFFFF) if common.mcrf4xx is not None else common.x25crc(data).crc
    return crc


class MavResult(IntEnum):
    """MAV_RESULT of an acknowledgement."""

    ACCEPTED = 0
    TEMPORARILY_REJECTED = 1
    DENIED = 2
    UNSUPPORTED = 3
    FAILED = 4


class MavSeverity(IntEnum):
    """MAV_SEVERITY of a STATUSTEXT."""

    EMERGENCY = 0
    ALERT = 1
    CRITICAL = 2
    ERROR = 3
    WARNING = 4
    NOTICE = 5
    INFO = 6


class _Message(Protocol):
    """The part of a pymavlink message class that is used here."""

    id: int
    msgname: str
    crc_extra: int
    unpacker: struct.Struct
    ordered_fieldnames: Sequence[str]


class _CurrentMode:
    """CURRENT_MODE of common.xml, which this version of pymavlink does not have."""

    id, msgname, crc_extra = 436, "CURRENT_MODE", 193
    unpacker = struct.Struct("<IIB")
    ordered_fieldnames: Sequence[str] = ("custom_mode", "intended_custom_mode", "standard_mode")


class WireLayout:
    """Payload layout of one message."""

    __slots__ = ("id", "name", "form", "pack", "extra", "fields")

    def __init__(self, message: _Message) -> None:
        self.id, self.name = message.id, message.msgname
        self.form = message.unpacker
        self.pack = self.form.pack
        self.extra = bytes([message.crc_extra])
        self.fields = tuple(message.ordered_fieldnames)


_messages: dict[str, _Message] = {m.msgname: m for m in common.mavlink_map.values()}
_messages["CURRENT_MODE"] = _CurrentMode()
_layouts: dict[str, WireLayout] = {}


def layout(name: str) -> WireLayout:
    """The layout of a message by name; KeyError if the dialect has no such message."""
    if (known := _layouts.get(name)) is None:
        known = _layouts[name] = WireLayout(_messages[name])
    return known


class Writer:
    """Collects the outgoing bytes of one component."""

    def __init__(self, system_id: int, component_id: int) -> None:
        self._system, self._component = system_id, component_id
        self._seq = 0
        self._out = bytearray()

    def send(self, name: str, *values: float | bytes) -> None:
        """Append a message; values in wire order (``layout(name).fields``), arrays flattened."""
        message = layout(name)
        self.send_payload(message, message.pack(*values))

    def send_payload(self, message: WireLayout, payload: bytes) -> None:
        """Append a message whose payload is packed already."""
        payload = payload.rstrip(b"\0") or b"\0"
        head = _HEADER.pack(
            STX, len(payload), 0, 0, self._seq, self._system, self._component, message.id & 0xFFFF, message.id >> 16
        )
        self._seq = (self._seq + 1) & 0xFF
        checksum = _crc(head[1:] + payload + message.extra)
        self._out += head + payload + checksum.to_bytes(2, "little")

    def take(self) -> bytes:
        """The bytes since the last call."""
        data = bytes(self._out)
        self._out.clear()
        return data

"""MAVLink 2 frames from field values, with message layouts taken from pymavlink.

pymavlink's own packing costs some 15 µs and more a message; a telemetry stream of hundreds a second is worth the
shorter way: its struct of the payload, its checksum, our frame.
"""

import struct

from pymavlink.dialects.v20 import common

STX = 0xFD
_HEADER = struct.Struct("<BBBBBBBHB")  # STX length incompat compat seq system component id(low 16, high 8)


class _CurrentMode:
    """CURRENT_MODE of common.xml, which this pymavlink does not know."""

    id, crc_extra = 436, 193
    unpacker = struct.Struct("<IIB")
    ordered_fieldnames = ("custom_mode", "intended_custom_mode", "standard_mode")


class Layout:
    """Payload layout of one message."""

    __slots__ = ("id", "name", "form", "pack", "extra", "fields")

    def __init__(self, name: str) -> None:
        message = _CurrentMode if name == "CURRENT_MODE" else getattr(common, f"MAVLink_{name.lower()}_message")
        self.id, self.name = message.id, name
        self.form = message.unpacker
        self.pack = self.form.pack
        self.extra = bytes([message.crc_extra])
        self.fields = tuple(message.ordered_fieldnames)


_layouts: dict[str, Layout] = {}


def layout(name: str) -> Layout:
    """The layout of a message by name; AttributeError if the dialect has no such message."""
    if name not in _layouts:
        _layouts[name] = Layout(name)
    return _layouts[name]


class Writer:
    """Collects the outgoing bytes of one component."""

    def __init__(self, system_id: int, component_id: int) -> None:
        self._system, self._component = system_id, component_id
        self._seq = 0
        self._out = bytearray()
        self.messages = 0

    def send(self, name: str, *values) -> None:
        """Append a message; values in wire order (``layout(name).fields``), arrays flattened."""
        message = layout(name)
        self.send_payload(message, message.pack(*values))

    def send_payload(self, message: Layout, payload: bytes) -> None:
        """Append a message whose payload is packed already."""
        payload = payload.rstrip(b"\0") or b"\0"
        head = _HEADER.pack(
            STX, len(payload), 0, 0, self._seq, self._system, self._component, message.id & 0xFFFF, message.id >> 16
        )
        self._seq = (self._seq + 1) & 0xFF
        checksum = common.x25crc(head[1:] + payload + message.extra).crc
        self._out += head + payload + checksum.to_bytes(2, "little")
        self.messages += 1

    def take(self) -> bytes:
        """The bytes since the last call."""
        data = bytes(self._out)
        self._out.clear()
        return data

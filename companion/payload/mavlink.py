"""Payloads of MAVLink messages to pymavlink's messages and back. Frames are the business of the link's owner."""

from typing import Any, Protocol

from pymavlink.dialects.v20 import common

from companion.core.messages import CameraRx, CameraTx
from companion.core.text import plain

FILE_URL_MAX = 204  # bytes of the longest text, the name of a picture, without its zero
RESULTS = {  # of acknowledgements that refuse
    common.MAV_RESULT_TEMPORARILY_REJECTED: "busy (temporarily rejected)",
    common.MAV_RESULT_DENIED: "denied",
    common.MAV_RESULT_UNSUPPORTED: "not supported",
    common.MAV_RESULT_FAILED: "failed",
}
HEADER, CHECKSUM = 10, 2  # bytes of a MAVLink 2 frame around its payload


class Packable(Protocol):
    """A message of pymavlink's."""

    id: int

    def pack(self, mav: Any) -> bytes: ...


_UNSIGNED = common.MAVLink(None)


def encode(message: Packable, now_s: float) -> CameraTx:
    """A message of pymavlink's for the link."""
    return CameraTx(stamp_s=now_s, number=message.id, payload=bytes(message.pack(_UNSIGNED)[HEADER:-CHECKSUM]))


def decode(message: CameraRx) -> Any | None:
    """The message with MAVLink's field names; None for one that this dialect does not have. Never raises."""
    kind = common.mavlink_map.get(message.number)
    if kind is None:
        return None
    size = kind.unpacker.size
    # MAVLink 2 cuts trailing zeros; a longer payload comes from a newer dialect
    values = kind.unpacker.unpack(message.payload[:size].ljust(size, b"\0"))
    types = dict(zip(kind.fieldnames, kind.fieldtypes, strict=True))
    fields: dict[str, Any] = {}
    at = 0
    for name, length in zip(kind.ordered_fieldnames, kind.lengths, strict=True):
        if types[name] == "char" or length == 1:  # a text is one value of many bytes
            fields[name] = values[at]
            at += 1
        else:
            fields[name] = values[at : at + length]
            at += length
    return kind(**fields)


def text(raw: object) -> str:
    """A text field without its padding, as printable characters."""
    data = bytes(raw) if isinstance(raw, (bytes, bytearray, tuple, list)) else str(raw).encode()
    return plain(data.split(b"\0", 1)[0].decode("utf-8", "replace"), FILE_URL_MAX)

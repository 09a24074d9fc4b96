"""PX4 parameters in MAVLink messages: the bytes of an integer are copied into a float field.

PARAM_VALUE and PARAM_SET have one float field. PX4 copies the bytes of an int32 into it unchanged
(MAV_PROTOCOL_CAPABILITY_PARAM_ENCODE_BYTEWISE); it does not convert the number.
"""

import math
import struct

from pymavlink.dialects.v20 import common

INT32 = common.MAV_PARAM_TYPE_INT32
REAL32 = common.MAV_PARAM_TYPE_REAL32
NAME_LENGTH_MAX = 16


def encode_value(value: int | float, param_type: int) -> float:
    """The float field that carries `value`.

    Raises ValueError for a type that PX4 does not have, a number out of its range, and an integer whose bytes are a
    signalling NaN (-8388607 to -4194305 and 2139095041 to 2143289343): a Python float cannot hold those.
    """
    _check_type(param_type)
    try:
        field: float = struct.unpack("<f", struct.pack("<f" if param_type == REAL32 else "<i", value))[0]
    except (struct.error, OverflowError) as error:
        raise ValueError(f"parameter value {value!r} does not fit its type: {error}") from None
    if param_type == INT32 and decode_value(field, INT32) != value:
        raise ValueError(f"parameter value {value!r} cannot be carried by a Python float without loss")
    return field


def decode_value(field: float, param_type: int) -> int | float:
    """The number that the float field of PARAM_VALUE carries.

    Raises ValueError for a type that PX4 does not have, and for NaN and infinity: no parameter of PX4 is one, and each
    comparison with a NaN is false, so that it would pass for a good value or never be equal to itself.
    Integers in the ranges named at `encode_value` are decoded wrongly, as by every decoder into floats; no PX4
    parameter has such a value.
    """
    _check_type(param_type)
    raw = struct.pack("<f", field)
    value: int | float = struct.unpack("<f" if param_type == REAL32 else "<i", raw)[0]
    if not math.isfinite(value):
        raise ValueError(f"parameter value {value}")
    return value


def _check_type(param_type: int) -> None:
    if param_type not in (INT32, REAL32):
        raise ValueError(f"parameter type {param_type}: PX4 has INT32 and REAL32 only")


def name_field(name: str) -> bytes:
    """A parameter name as the 16-byte field; raises ValueError for a name that does not fit."""
    raw = name.encode("ascii", errors="strict") if name.isascii() else b""
    if not 0 < len(raw) <= NAME_LENGTH_MAX:
        raise ValueError(f"parameter name {name!r}: 1 to {NAME_LENGTH_MAX} ASCII characters")
    return raw


def read_request(name: str, system_id: int) -> common.MAVLink_param_request_read_message:
    """Message that requests one parameter by name; PX4 answers with PARAM_VALUE."""
    return common.MAVLink_param_request_read_message(system_id, common.MAV_COMP_ID_AUTOPILOT1, name_field(name), -1)


def set_request(name: str, value: int | float, param_type: int, system_id: int) -> common.MAVLink_param_set_message:
    """Message that sets one parameter; PX4 answers with the PARAM_VALUE it has stored."""
    return common.MAVLink_param_set_message(
        system_id, common.MAV_COMP_ID_AUTOPILOT1, name_field(name), encode_value(value, param_type), param_type
    )

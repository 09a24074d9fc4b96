"""PX4's byte-wise parameter encoding."""

import struct

import pytest
from pymavlink.dialects.v20 import common

from companion.fcu.link.params import INT32, REAL32, decode_value, encode_value, read_request, set_request


@pytest.mark.parametrize("value", [0, 1, -1, 10044, 2_000_000_000, -2_147_483_648, 1_085_276_160])
def test_integers_keep_their_bytes_in_the_float_field(value):
    field = encode_value(value, INT32)
    assert struct.pack("<f", field) == struct.pack("<i", value)
    assert decode_value(field, INT32) == value


def test_an_integer_is_not_converted_to_a_float():
    assert encode_value(1, INT32) == pytest.approx(1.4e-45, rel=0.01)


def test_floats_travel_as_floats():
    assert decode_value(encode_value(0.25, REAL32), REAL32) == 0.25


@pytest.mark.parametrize("bad", [(2**31, INT32), (1.5, INT32), (1e40, REAL32), (1, 1), (-5_000_000, INT32)])
def test_a_value_that_does_not_fit_is_refused(bad):
    with pytest.raises(ValueError):
        encode_value(*bad)


def test_requests_name_the_parameter_and_the_autopilot():
    mav = common.MAVLink(None, 1, 191)
    peer = common.MAVLink(None)
    m = peer.parse_char(read_request("COM_OF_LOSS_T", 7).pack(mav))
    assert (m.param_id, m.param_index, m.target_system, m.target_component) == ("COM_OF_LOSS_T", -1, 7, 1)
    m = peer.parse_char(set_request("COM_RC_OVERRIDE", 3, INT32, 7).pack(mav))
    assert decode_value(m.param_value, m.param_type) == 3


@pytest.mark.parametrize("name", ["", "A" * 17, "GRÖSSE"])
def test_names_that_cannot_exist_are_refused(name):
    with pytest.raises(ValueError, match="parameter name"):
        read_request(name, 1)

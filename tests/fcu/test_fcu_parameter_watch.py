"""A PX4 with a parameter that makes offboard unsafe begins no flight, and says which and why."""

import math

import pytest
from pymavlink.dialects.v20 import common

from companion.core.messages import FcuCommand, FcuCommandAck, FcuStatus, FcuText
from companion.fcu import params
from companion.fcu.guards.parameter_watch import FATAL, REREAD_S, ParameterWatch


def refused(peer):
    return [m for _, m in peer.out if type(m) is FcuStatus][-1].refused


def ask(peer, action):
    acks = [m for m in peer.give(FcuCommand(stamp_s=peer.now_s, id=1, action=action, height_m=3.0))
            if type(m) is FcuCommandAck]  # fmt: skip
    return acks[0] if acks else None


UNSAFE = [
    ("COM_OF_LOSS_T", 5.0),  # flies on the last setpoint for five seconds
    ("COM_OF_LOSS_T", 0.05),  # leaves offboard at every hiccup
    ("COM_OF_LOSS_T", math.nan),
    ("COM_OBL_RC_ACT", 6),  # terminate
    ("COM_OBL_RC_ACT", 7),  # disarm
    ("COM_OBL_RC_ACT", -1),
    ("NAV_RCL_ACT", 0),  # disabled
    ("NAV_RCL_ACT", 6),
    ("COM_RCL_EXCEPT", 4),
    ("COM_RCL_EXCEPT", 7),
    ("CBRK_SUPPLY_CHK", 894281),
]


@pytest.mark.parametrize(("name", "value"), UNSAFE)
def test_an_unsafe_parameter_refuses_every_beginning_and_is_named_with_its_value(peer, name, value):
    peer.parameters[name] = value
    peer.run(6.0)
    assert refused(peer).startswith(f"{name} is ")
    if value == value:
        assert f"{value:g}" in refused(peer)
    for action in ("arm", "takeoff", "offboard"):
        ack = ask(peer, action)
        assert not ack.accepted and name in ack.reason
    told = [m.text for _, m in peer.out if type(m) is FcuText and name in m.text]
    assert len(told) == 1 and "\n" not in told[0]
    assert name in "".join(m.text for m in peer.sent("STATUSTEXT"))


@pytest.mark.parametrize("action", ["disarm", "hold", "land", "return"])
def test_what_ends_a_flight_is_never_refused(peer, action):
    peer.parameters["COM_OF_LOSS_T"] = 5.0
    peer.run(3.0)
    before = len(peer.sent("COMMAND_LONG"))
    ask(peer, action)
    assert len(peer.sent("COMMAND_LONG")) > before


def test_safe_parameters_refuse_nothing(peer):
    peer.run(3.0)
    assert refused(peer) == ""


@pytest.mark.parametrize("name", FATAL)
def test_a_parameter_that_is_never_told_refuses_the_start(peer, name):
    del peer.parameters[name]
    peer.run(5.0)
    assert refused(peer) == f"the flight controller has not told {name}"
    asked = [m for m in peer.sent("PARAM_REQUEST_READ") if m.param_id == name]
    assert 4 <= len(asked) <= 6


def test_a_circuit_breaker_that_does_not_exist_is_not_missed(peer):
    del peer.parameters["CBRK_SUPPLY_CHK"]
    peer.run(3.0)
    assert refused(peer) == ""


def test_a_parameter_changed_later_is_noticed_and_so_is_its_mending(peer):
    peer.run(3.0)
    peer.parameters["COM_OF_LOSS_T"] = 3.0
    peer.run(REREAD_S * 7)
    assert refused(peer).startswith("COM_OF_LOSS_T is 3")
    peer.parameters["COM_OF_LOSS_T"] = 0.5
    peer.run(REREAD_S * 7)
    assert refused(peer) == ""


def test_a_restarted_flight_controller_is_read_anew(peer):
    peer.run(3.0)
    peer.parameters["NAV_RCL_ACT"] = 0
    peer.reboot()
    peer.run(6.0)
    assert refused(peer).startswith("NAV_RCL_ACT is 0")


@pytest.mark.parametrize(
    ("name", "field", "kind"),
    [(b"COM_OF_LOSS_T", 0.5, 1), (b"COM_OF_LOSS_T", 0.5, 255), (b"\xff\xfe", 0.5, 9), (b"", 0.0, 9),
     (b"MC_ROLL_P", 1.0, 9)],
)  # fmt: skip
def test_broken_and_other_parameters_change_nothing(vehicle, name, field, kind):
    watch = ParameterWatch(vehicle, lambda message: None)
    message = common.MAVLink_param_value_message(name.ljust(16, b"\0"), field, kind, 1, 1)
    message.param_id = name.ljust(16, b"\0")
    assert watch.put(message) is False and watch.values == {}


def test_the_rules_are_those_of_the_table_that_preflight_uses(vehicle):
    watch = ParameterWatch(vehicle, lambda message: None)
    for name, value in (("COM_OF_LOSS_T", 1.0), ("COM_OBL_RC_ACT", 3), ("NAV_RCL_ACT", 2), ("COM_RCL_EXCEPT", 3)):
        kind = params.REAL32 if isinstance(value, float) else params.INT32
        message = common.MAVLink_param_value_message(b"", params.encode_value(value, kind), kind, 1, 1)
        message.param_id = name.encode().ljust(16, b"\0")
        watch.put(message)
    assert watch.complete and watch.problem == ""

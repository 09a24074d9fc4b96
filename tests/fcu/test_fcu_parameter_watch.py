"""With a parameter that makes offboard unsafe no flight begins, and the report names it with the reason."""

import math

import pytest
from fcu_peer import GOOD_PARAMETERS, Peer
from pymavlink.dialects.v20 import common

from companion.core.enums import CommandAction
from companion.core.messages import FcuCommand, FcuCommandAck, FcuStatus, FcuText
from companion.core.px4_parameters import PlannedFlight
from companion.fcu.fcu_node import FcuNode
from companion.fcu.guards.parameter_watch import FATAL, LEFT_TO_PREFLIGHT, REREAD_S, ParameterWatch
from companion.fcu.link import params
from companion.fcu.link.decoded import ParamValue


def refused(peer):
    return [m for _, m in peer.out if type(m) is FcuStatus][-1].refused


def request(peer, action):
    acks = [m for m in peer.publish(FcuCommand(stamp_s=peer.now_s, id=1, action=action, height_m=3.0))
            if type(m) is FcuCommandAck]  # fmt: skip
    return acks[0] if acks else None


UNSAFE = [
    ("COM_OF_LOSS_T", 5.0),  # flies on the last setpoint for five seconds
    ("COM_OF_LOSS_T", 0.05),  # leaves offboard after every short gap
    ("COM_OBL_RC_ACT", 6),  # terminate
    ("COM_OBL_RC_ACT", 7),  # disarm
    ("COM_OBL_RC_ACT", -1),
    ("NAV_RCL_ACT", 0),  # disabled
    ("NAV_RCL_ACT", 6),
    ("COM_RCL_EXCEPT", 4),
    ("COM_RCL_EXCEPT", 7),
    ("CBRK_SUPPLY_CHK", 894281),
    ("COM_RC_OVERRIDE", 1),  # moved sticks do not take over from offboard
    ("COM_RC_IN_MODE", 1),  # joystick only: the transmitter has no effect
    ("RC_MAP_KILL_SW", 0),
    ("COM_FLTMODE6", 7),
    ("NAV_DLL_ACT", 6),
    ("COM_LOW_BAT_ACT", 1),
    ("GF_ACTION", 4),  # terminate
    ("GF_PREDICT", 1),
    ("FD_FAIL_R", 30),
    ("THR_MDL_FAC", 0.3),
    ("COM_WIND_MAX_ACT", 4),  # terminate
    ("COM_ACT_FAIL_ACT", 4),
    ("RC_MAP_OFFB_SW", 12),
]
FLIGHT = PlannedFlight(height_m=8.0, distance_m=15.0, switch_channel=9)
REREAD_ALL_S = REREAD_S * (len(GOOD_PARAMETERS) + 2)


@pytest.fixture
def under_deck(vehicle):
    """A peer whose node knows the mission."""
    return Peer(FcuNode(vehicle, flight=FLIGHT))


@pytest.mark.parametrize(("name", "value"), UNSAFE)
def test_an_unsafe_parameter_refuses_every_beginning_and_is_reported_with_its_value(peer, name, value):
    peer.parameters[name] = value
    peer.run(6.0)
    assert refused(peer).startswith(f"{name} is ")
    assert f"{value:g}" in refused(peer)
    for action in (CommandAction.ARM, CommandAction.TAKEOFF, CommandAction.OFFBOARD):
        ack = request(peer, action)
        assert not ack.accepted and name in ack.reason
    reports = [m.text for _, m in peer.out if type(m) is FcuText and name in m.text]
    assert len(reports) == 1 and "\n" not in reports[0]
    assert name in "".join(m.text for m in peer.sent("STATUSTEXT"))


@pytest.mark.parametrize("action", [CommandAction.DISARM, CommandAction.HOLD, CommandAction.LAND, CommandAction.RETURN])
def test_requests_that_end_a_flight_are_never_refused(peer, action):
    peer.parameters["COM_OF_LOSS_T"] = 5.0
    peer.run(3.0)
    before = len(peer.sent("COMMAND_LONG"))
    request(peer, action)
    assert len(peer.sent("COMMAND_LONG")) > before


def test_safe_parameters_refuse_nothing(peer):
    peer.run(3.0)
    assert refused(peer) == ""


@pytest.mark.parametrize("name", FATAL)
def test_a_parameter_that_is_never_reported_refuses_the_start(peer, name):
    del peer.parameters[name]
    peer.run(5.0)
    assert refused(peer) == f"the flight controller has not reported {name}"
    requests = [m for m in peer.sent("PARAM_REQUEST_READ") if m.param_id == name]
    assert 4 <= len(requests) <= 6


@pytest.mark.parametrize("name", sorted(set(GOOD_PARAMETERS) - set(FATAL)))
def test_another_parameter_that_does_not_exist_is_accepted(under_deck, name):
    del under_deck.parameters[name]
    under_deck.run(5.0)
    assert refused(under_deck) == ""


def test_a_parameter_that_may_still_be_on_its_way_refuses_the_start_and_an_unreadable_one_does(under_deck):
    known = under_deck.parameters.pop("GF_ACTION")
    under_deck.run(1.5)
    assert refused(under_deck) == "the flight controller has not reported GF_ACTION"
    under_deck.parameters["GF_ACTION"] = known
    under_deck.run(3.0)
    assert refused(under_deck) == ""
    under_deck.parameters["THR_MDL_FAC"] = math.nan
    under_deck.reboot()
    under_deck.run(8.0)
    assert refused(under_deck) == "the flight controller has not reported THR_MDL_FAC"


def test_an_unsafe_parameter_is_reported_where_another_does_not_exist(under_deck):
    del under_deck.parameters["CBRK_SUPPLY_CHK"]
    under_deck.parameters["GF_ACTION"] = 4
    under_deck.run(6.0)
    reports = [m.text for _, m in under_deck.out if type(m) is FcuText and "GF_ACTION" in m.text]
    assert len(reports) == 1


# --- what depends on the mission ---------------------------------------------------------------------------------------

RETURNS = [("NAV_RCL_ACT", 2), ("NAV_DLL_ACT", 2), ("COM_OBL_RC_ACT", 3), ("COM_LOW_BAT_ACT", 3), ("GF_ACTION", 3),
           ("COM_FLTT_LOW_ACT", 3), ("COM_FLT_TIME_MAX", 600), ("COM_WIND_MAX_ACT", 3), ("COM_ACT_FAIL_ACT", 3),
           ("COM_IMB_PROP_ACT", 1)]  # fmt: skip


@pytest.mark.parametrize(("name", "returns"), RETURNS)
def test_a_return_that_climbs_above_the_missions_height_refuses_the_start(under_deck, name, returns):
    """Preflight calls it a collision under a deck; a crew without preflight took off with it."""
    under_deck.parameters |= {name: returns, "RTL_RETURN_ALT": 60.0}
    under_deck.run(3.0)
    assert refused(under_deck).startswith(f"{name} is {returns}, must be ")
    assert "RTL_RETURN_ALT <= 8 m" in refused(under_deck)
    under_deck.parameters["RTL_RETURN_ALT"] = 8.0
    under_deck.run(REREAD_ALL_S)
    assert refused(under_deck) == ""


def test_a_return_without_a_known_altitude_refuses_the_start(under_deck):
    del under_deck.parameters["RTL_RETURN_ALT"]
    under_deck.parameters["NAV_RCL_ACT"] = 2
    under_deck.run(6.0)
    assert refused(under_deck).startswith("NAV_RCL_ACT is 2")


SWITCHES = [(f"RC_MAP_{name}_SW", 9) for name in ("KILL", "RETURN", "LOITER", "ARM", "TERM")]


@pytest.mark.parametrize(("name", "value"), [*SWITCHES, ("RC_MAP_FLTM_BTN", 1 << 8)])
def test_the_missions_switch_is_none_of_px4s_switches(under_deck, name, value):
    under_deck.parameters[name] = value
    under_deck.run(3.0)
    assert refused(under_deck).startswith(f"{name} is {value}, must be ")
    assert "the mission's switch" in refused(under_deck)


def test_all_parameters_of_a_mission_are_known_within_a_second_of_the_connection(under_deck):
    under_deck.run(1.0)
    assert under_deck.node.parameters.complete and refused(under_deck) == ""


@pytest.mark.parametrize(("name", "value"), [("COM_LOW_BAT_ACT", 0), ("COM_RC_OVERRIDE", 2), ("COM_RC_IN_MODE", 3)])
def test_what_preflight_only_warns_of_refuses_nothing(under_deck, name, value):
    under_deck.parameters[name] = value
    under_deck.run(3.0)
    assert refused(under_deck) == ""


def test_the_size_of_px4s_fence_is_left_to_preflight(under_deck):
    under_deck.run(3.0)
    asked = {m.param_id for m in under_deck.sent("PARAM_REQUEST_READ")}
    assert "GF_ACTION" in asked and not asked & set(LEFT_TO_PREFLIGHT)
    assert refused(under_deck) == ""


def test_a_later_change_of_a_parameter_and_its_correction_are_detected(peer):
    peer.run(3.0)
    peer.parameters["COM_OF_LOSS_T"] = 3.0
    peer.run(REREAD_ALL_S)
    assert refused(peer).startswith("COM_OF_LOSS_T is 3")
    peer.parameters["COM_OF_LOSS_T"] = 0.5
    peer.run(REREAD_ALL_S)
    assert refused(peer) == ""


def test_the_parameters_of_a_restarted_flight_controller_are_read_again(peer):
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
def test_corrupted_and_other_parameters_change_nothing(vehicle, name, field, kind):
    watch = ParameterWatch(vehicle, lambda message: None)
    assert watch.put(ParamValue(field, 1, 1, name.ljust(16, b"\0"), kind)) is False and watch.values == {}


def test_the_rules_are_those_of_the_table_that_preflight_uses(vehicle):
    watch = ParameterWatch(vehicle, lambda message: None)
    others = {"COM_OF_LOSS_T": 1.0, "COM_OBL_RC_ACT": 3, "NAV_RCL_ACT": 2, "COM_RCL_EXCEPT": 3}
    for name, value in (GOOD_PARAMETERS | others).items():
        kind = params.REAL32 if isinstance(value, float) else params.INT32
        watch.put(ParamValue(params.encode_value(value, kind), 1, 1, name.encode().ljust(16, b"\0"), kind))
    assert watch.complete and watch.problem == ""


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_parameter_that_is_no_number_is_counted_and_the_known_value_stays(flying, value):
    """NaN differs from itself, so that it was a new problem with every message, and limits do not refuse it."""
    assert refused(flying) == ""
    known, begin = dict(flying.node.parameters.values), len(flying.out)
    for _ in range(20):
        flying.deliver(common.MAVLink_param_value_message(b"COM_OF_LOSS_T", value, params.REAL32, 1000, 1))
        flying.run(0.1)
    assert flying.node.parameters.values == known and refused(flying) == ""
    assert flying.node.parameters.bad_content == 20
    assert not [m for _, m in flying.out[begin:] if type(m) is FcuText]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_the_decoder_refuses_a_value_that_is_no_number(value):
    with pytest.raises(ValueError, match="parameter value"):
        params.decode_value(value, params.REAL32)


def test_an_unknown_parameter_that_arrives_as_nan_stays_unknown(peer):
    peer.parameters["COM_OF_LOSS_T"] = math.nan
    peer.run(6.0)
    assert refused(peer) == "the flight controller has not reported COM_OF_LOSS_T"

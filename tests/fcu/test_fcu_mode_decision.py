"""What the mission decided by one mode, against what PX4 flies and was asked for when it is sent, answered or repeated."""

import pytest
from fcu_peer import LANDED
from pymavlink.dialects.v20 import common
from test_fcu_person_first import (
    ALTCTL,
    ARM,
    LAND,
    LOITER,
    OFFBOARD,
    POSCTL,
    SET_MODE,
    TAKEOFF,
    acks,
    change,
    flying_in,
    on_the_ground,
    request,
    stream,
)

from companion.core.enums import CommandAction, FcuMode
from companion.fcu.actions import ENDING
from companion.fcu.fcu_node import FcuNode
from companion.fcu.modes import MODE_OF_ACTION, custom_mode, mode_name
from companion.mission.requests import CommandRequests

RETURN, TAKE_OFF_MODE, STABILIZED = 4 << 16 | 5 << 24, 4 << 16 | 2 << 24, 7 << 16


def taken_back(peer, action, mode=FcuMode.AUTO_LOITER):
    """A request after another one; PX4 flies the mode that it asks for."""
    request(peer, action, mode=mode)
    if action in MODE_OF_ACTION:
        number = custom_mode(*MODE_OF_ACTION[action])
        change(peer, number, number)


def in_the_air(peer, number, intended=None):
    """In a mode, heartbeats on request; PX4 reports what it was asked for."""
    peer.content[LANDED] = lambda boot_ms: common.MAVLink_extended_sys_state_message(0, 2)
    peer.answers_with_heartbeat = True
    flying_in(peer, number)
    peer.deliver_current_mode(number, number if intended is None else intended)
    return peer


def requested_modes(peer):
    return [mode_name(int(m.param2) << 16 | int(m.param3) << 24) for _, m in peer.commands(SET_MODE)]


def test_arming_is_not_requested_in_a_mode_that_the_pilot_has_chosen_since(flying):
    flying_in(flying, LOITER, armed=False)
    change(flying, POSCTL, POSCTL)
    request(flying, CommandAction.ARM, mode=FcuMode.AUTO_LOITER)
    assert flying.commands(ARM) == [] and "changed to POSCTL" in acks(flying)[-1].reason


@pytest.mark.parametrize(
    ("action", "failsafe"),
    [
        (CommandAction.LAND, LOITER),
        (CommandAction.RETURN, LOITER),
        (CommandAction.HOLD, POSCTL),
        (CommandAction.LAND, POSCTL),
    ],
)
@pytest.mark.parametrize("chosen", ["the same", "another"])
def test_a_pilots_choice_counts_while_a_failsafe_flies(flying, action, failsafe, chosen):
    """He chooses the mode that the failsafe flies, or one that it does not let him have; CURRENT_MODE says so."""
    in_the_air(flying, failsafe, OFFBOARD)
    flying.results[SET_MODE] = [None, 0]
    request(flying, action, mode=mode_name(failsafe), intended_mode=FcuMode.OFFBOARD)
    flying.run(0.1)
    for _ in range(3):
        change(flying, failsafe, failsafe if chosen == "the same" else ALTCTL)
        flying.run(0.3)
    flying.run(1.0)
    assert len(flying.commands(SET_MODE)) == 1 and not acks(flying)[-1].accepted


def test_a_pilots_choice_of_the_failsafes_mode_counts_before_the_first_request(flying):
    in_the_air(flying, LOITER, OFFBOARD)
    flying.deliver_current_mode(LOITER, LOITER)
    request(flying, CommandAction.LAND, mode=FcuMode.AUTO_LOITER, intended_mode=FcuMode.OFFBOARD)
    assert flying.commands(SET_MODE) == [] and "changed to AUTO_LOITER" in acks(flying)[-1].reason


def test_a_pilot_who_takes_offboard_back_is_not_explained_by_the_mode_before_it(flying):
    """What PX4 was asked for is reported up to half a second later than the mode: it still names Position."""
    in_the_air(flying, POSCTL)
    change(flying, OFFBOARD)
    status = flying.node.status.message(flying.now_s, connected=True)
    assert (status.mode, status.intended_mode, status.intended_known) == (FcuMode.OFFBOARD, FcuMode.POSCTL, False)
    flying.results[SET_MODE] = [None, 0]
    request(flying, CommandAction.LAND, mode=FcuMode.OFFBOARD)
    sent = len(flying.commands(SET_MODE))
    change(flying, POSCTL, POSCTL)
    flying.run(2.0)
    assert len(flying.commands(SET_MODE)) == sent and not acks(flying)[-1].accepted


def test_a_request_is_not_refused_by_the_mode_in_which_it_was_decided(flying):
    """The pilot's Position came by a heartbeat, before its CURRENT_MODE; the mission decided between the two."""
    in_the_air(flying, LOITER)
    change(flying, POSCTL)
    status = flying.node.status.message(flying.now_s, connected=True)
    asked = CommandRequests().ask(CommandAction.OFFBOARD, flying.now_s, status)
    assert (asked.mode, asked.intended_mode) == (FcuMode.POSCTL, None)
    flying.deliver_current_mode(POSCTL, POSCTL)
    status = flying.node.status.message(flying.now_s, connected=True)
    assert CommandRequests().ask(CommandAction.OFFBOARD, flying.now_s, status).intended_mode == FcuMode.POSCTL
    flying.publish(asked)
    assert requested_modes(flying) == [FcuMode.OFFBOARD]


def test_no_retry_goes_by_an_old_report_of_what_the_failsafe_replaces(flying):
    """Both acks and the CURRENT_MODE of a pilot are lost; the heartbeat says the same mode in either case."""
    in_the_air(flying, OFFBOARD)
    change(flying, POSCTL, OFFBOARD)
    flying.run(0.3)
    flying.results[SET_MODE] = [None, 0]
    request(flying, CommandAction.LAND, mode=FcuMode.OFFBOARD)
    flying.run(1.5)
    assert len(flying.commands(SET_MODE)) == 1
    flying.deliver_current_mode(POSCTL, OFFBOARD)
    flying.run(0.5)
    assert len(flying.commands(SET_MODE)) == 2


@pytest.mark.parametrize("failsafe", [LAND, RETURN])
@pytest.mark.parametrize("retry", [False, True])
def test_offboard_is_not_requested_out_of_a_failsafe(flying, failsafe, retry):
    """PX4 takes a mode request for a person's wish to end its failsafe."""
    in_the_air(flying, POSCTL)
    flying.results[SET_MODE] = [None, 0]
    if retry:
        request(flying, CommandAction.OFFBOARD, mode=FcuMode.POSCTL)
        flying.run(0.2)
    change(flying, failsafe, POSCTL)
    if not retry:
        request(flying, CommandAction.OFFBOARD, mode=FcuMode.POSCTL)
    flying.run(0.25)
    flying.deliver_current_mode(failsafe, POSCTL)
    flying.run(1.0)
    assert len(flying.commands(SET_MODE)) == int(retry)
    assert f"flies {mode_name(failsafe)} in place of POSCTL" in acks(flying)[-1].reason


@pytest.mark.parametrize("flown, chosen", [(ALTCTL, POSCTL), (STABILIZED, ALTCTL)])
def test_offboard_is_requested_in_the_simpler_mode_that_a_pilot_gets_without_satellites(flying, flown, chosen):
    """PX4 flies Altitude for a pilot who takes over by the sticks without a position, and goes on naming Position."""
    in_the_air(flying, flown, chosen)
    request(flying, CommandAction.OFFBOARD, mode=mode_name(flown), intended_mode=mode_name(chosen))
    assert requested_modes(flying) == [FcuMode.OFFBOARD]


def test_offboard_is_requested_again_out_of_the_failsafe_that_replaces_it(flying):
    in_the_air(flying, LOITER, OFFBOARD)
    request(flying, CommandAction.OFFBOARD, mode=FcuMode.AUTO_LOITER, intended_mode=FcuMode.OFFBOARD)
    assert requested_modes(flying) == [FcuMode.OFFBOARD]


def test_a_report_from_before_a_request_arrived_does_not_refuse_it(flying):
    in_the_air(flying, OFFBOARD)
    flying.results[SET_MODE] = []
    request(flying, CommandAction.HOLD, mode=FcuMode.OFFBOARD)
    flying.run(0.02)
    change(flying, POSCTL, POSCTL)
    flying.run(0.03)
    for _ in range(2):
        flying.deliver(flying.ack(SET_MODE, common.MAV_RESULT_ACCEPTED))
    change(flying, LOITER, LOITER)
    flying.run(1.0)
    assert [a.accepted for a in acks(flying)] == [True] and len(flying.commands(SET_MODE)) == 1


@pytest.mark.parametrize("heartbeat_first", [False, True])
@pytest.mark.parametrize("after", [ALTCTL, LOITER])
def test_a_failsafe_that_flies_the_requested_mode_has_not_granted_the_request(flying, after, heartbeat_first):
    """PX4 reports its Descend as Land."""
    in_the_air(flying, LOITER)
    flying.results[SET_MODE] = [None, 0]
    request(flying, CommandAction.LAND, mode=FcuMode.AUTO_LOITER)
    if heartbeat_first:
        change(flying, LAND)
    for number in (LAND, after):
        flying.run(0.15)
        change(flying, number, LOITER)
    flying.run(1.0)
    assert len(flying.commands(SET_MODE)) == 2 and [a.accepted for a in acks(flying)] == [True]


def test_a_late_ack_answers_no_request_that_still_waits_for_a_report(flying):
    in_the_air(flying, OFFBOARD)
    flying.results[SET_MODE] = [None]
    request(flying, CommandAction.HOLD, mode=FcuMode.OFFBOARD)
    flying.run(0.02)
    flying.deliver(flying.ack(SET_MODE, common.MAV_RESULT_ACCEPTED))
    flying.run(0.4)
    flying.deliver_current_mode(LOITER, LOITER)
    change(flying, POSCTL)  # by the failsafe; its CURRENT_MODE comes later
    flying.results[SET_MODE] = common.MAV_RESULT_ACCEPTED
    request(flying, CommandAction.LAND, mode=FcuMode.AUTO_LOITER)
    flying.run(0.01)
    flying.deliver(flying.ack(SET_MODE, common.MAV_RESULT_ACCEPTED))  # the second one of the Hold
    flying.run(0.05)
    flying.deliver_current_mode(POSCTL, LOITER)
    flying.run(1.0)
    assert requested_modes(flying) == [FcuMode.AUTO_LOITER, FcuMode.AUTO_LAND]


def test_an_acceptance_does_not_hide_a_pilot_who_was_reported_before_it(flying):
    in_the_air(flying, OFFBOARD)
    flying.results[SET_MODE] = [None]
    request(flying, CommandAction.HOLD, mode=FcuMode.OFFBOARD)
    flying.run(0.03)
    flying.deliver(flying.ack(SET_MODE, common.MAV_RESULT_ACCEPTED))
    flying.run(0.03)
    change(flying, POSCTL)
    flying.deliver(flying.ack(SET_MODE, common.MAV_RESULT_ACCEPTED))
    flying.run(0.05)
    flying.deliver_current_mode(POSCTL, POSCTL)
    assert flying.node.status.mode == FcuMode.POSCTL
    flying.run(0.03)
    request(flying, CommandAction.LAND, mode=FcuMode.AUTO_LOITER)
    flying.run(1.0)
    assert requested_modes(flying) == [FcuMode.AUTO_LOITER]


def test_a_report_that_may_be_older_than_an_acceptance_holds_the_next_request(flying):
    """A pilot is back in the mode before within 0.3 s of an accepted offboard, whose own report was never seen."""
    in_the_air(flying, POSCTL)
    request(flying, CommandAction.OFFBOARD, mode=FcuMode.POSCTL)
    flying.deliver(flying.ack(SET_MODE, common.MAV_RESULT_ACCEPTED))
    flying.run(0.1)
    change(flying, POSCTL, POSCTL)
    flying.run(0.1)
    request(flying, CommandAction.LAND, mode=FcuMode.OFFBOARD)
    flying.run(1.0)
    assert requested_modes(flying) == [FcuMode.OFFBOARD] and not acks(flying)[-1].accepted


def test_a_hold_that_may_be_the_end_of_a_landing_is_the_pilots(flying):
    """This stack's own Hold is a second old; Land was granted, both acks are lost, and the pilot goes back to Hold."""
    in_the_air(flying, OFFBOARD)
    request(flying, CommandAction.HOLD, mode=FcuMode.OFFBOARD)
    change(flying, LOITER, LOITER)
    flying.run(0.5)
    flying.results[SET_MODE] = [None, 0]
    request(flying, CommandAction.LAND, mode=FcuMode.AUTO_LOITER, intended_mode=FcuMode.AUTO_LOITER)
    flying.run(0.1)
    change(flying, LAND)  # its CURRENT_MODE is lost
    flying.run(0.2)
    change(flying, LOITER, LOITER)
    flying.run(1.0)
    assert requested_modes(flying) == [FcuMode.AUTO_LOITER, FcuMode.AUTO_LAND] and not acks(flying)[-1].accepted


@pytest.mark.parametrize("action", ENDING)
@pytest.mark.parametrize("begun", [CommandAction.TAKEOFF, CommandAction.ARM])
def test_what_begins_a_flight_is_not_requested_again_after_what_ends_it(flying, begun, action):
    """The ack was lost; PX4 took off again, half a second after LAND."""
    on_the_ground(flying, armed=begun == CommandAction.TAKEOFF)
    flying.answers_with_heartbeat = True
    command = TAKEOFF if begun == CommandAction.TAKEOFF else ARM
    flying.results[command] = [None, None, 0]
    request(flying, begun, height_m=3.0, mode=FcuMode.AUTO_LOITER)
    flying.run(0.2)
    taken_back(flying, action)
    flying.run(2.0)
    sent = [m for _, m in flying.commands(command) if command == TAKEOFF or m.param1 == 1.0]
    assert len(sent) == 1 and not acks(flying)[0].accepted


def test_a_take_off_is_not_requested_again_over_a_pilots_hold(flying):
    on_the_ground(flying, POSCTL)
    flying.answers_with_heartbeat = True
    flying.results[TAKEOFF] = [None, 0]
    request(flying, CommandAction.TAKEOFF, height_m=3.0, mode=FcuMode.POSCTL)
    flying.run(0.2)
    change(flying, LOITER, LOITER)
    flying.run(1.0)
    assert len(flying.commands(TAKEOFF)) == 1 and not acks(flying)[-1].accepted


def test_a_take_off_that_only_current_mode_has_shown_is_not_requested_again(flying):
    """On the ground a mode waits for its heartbeat, which is lost; the pilot's Hold looks like the mode before."""
    on_the_ground(flying)
    flying.results[TAKEOFF] = [None, 0]
    flying.heartbeat_due_s = flying.now_s + 0.9
    flying.deliver_current_mode(LOITER, LOITER)
    request(flying, CommandAction.TAKEOFF, height_m=3.0, mode=FcuMode.AUTO_LOITER)
    flying.run(0.05)
    flying.deliver_current_mode(TAKE_OFF_MODE, TAKE_OFF_MODE)
    flying.run(0.25)
    flying.deliver_current_mode(LOITER, LOITER)
    flying.run(2.0)
    assert len(flying.commands(TAKEOFF)) == 1 and [a.accepted for a in acks(flying)] == [True]


def test_a_hold_that_a_late_try_has_brought_is_this_stacks_own(flying):
    in_the_air(flying, OFFBOARD)
    flying.results[SET_MODE] = []
    request(flying, CommandAction.HOLD, mode=FcuMode.OFFBOARD)
    for _ in range(5):
        flying.run(0.4)
        flying.deliver_current_mode(OFFBOARD, OFFBOARD)
    assert len(flying.commands(SET_MODE)) == 3 and flying.now_s - flying.commands(SET_MODE)[0][0] > 1.9
    flying.run(0.15)
    change(flying, LOITER, LOITER)
    request(flying, CommandAction.LAND, mode=FcuMode.OFFBOARD)
    assert requested_modes(flying)[-1] == FcuMode.AUTO_LAND


@pytest.mark.parametrize("action", ENDING)
def test_offboard_is_not_requested_again_after_what_ends_the_flight(flying, action):
    in_the_air(flying, POSCTL)
    flying.results[SET_MODE] = [None, 0]
    request(flying, CommandAction.OFFBOARD, mode=FcuMode.POSCTL)
    flying.run(0.2)
    taken_back(flying, action, FcuMode.POSCTL)
    stream(flying, 2.0)
    assert requested_modes(flying).count(FcuMode.OFFBOARD) == 1


@pytest.mark.parametrize("action", [CommandAction.HOLD, CommandAction.LAND, CommandAction.RETURN])
def test_a_protection_is_requested_again_after_the_mission_has_withdrawn_what_begins(flying, action):
    in_the_air(flying, OFFBOARD)
    flying.results[SET_MODE] = [None, 0]
    request(flying, action, mode=FcuMode.OFFBOARD)
    flying.run(0.2)
    request(flying, CommandAction.WITHDRAW)
    flying.run(1.0)
    assert len(flying.commands(SET_MODE)) == 2


@pytest.mark.parametrize("streams", [True, False])
def test_offboard_is_requested_again_only_while_setpoints_leave(flying, streams):
    """The mission's process died: its last setpoint is the one that PX4 would fly."""
    in_the_air(flying, POSCTL)
    flying.results[SET_MODE] = [None, 0]
    stream(flying, 0.1)
    request(flying, CommandAction.OFFBOARD, mode=FcuMode.POSCTL)
    if streams:
        stream(flying, 1.0)
    flying.run(1.0)
    assert len(flying.commands(SET_MODE)) == (2 if streams else 1)
    assert streams or "no setpoint has left" in acks(flying)[-1].reason


@pytest.mark.parametrize("begun", [CommandAction.OFFBOARD, CommandAction.TAKEOFF, CommandAction.ARM])
def test_what_speaks_against_a_flight_ends_the_retries_too(flying, begun, monkeypatch):
    """Another sender was found after the request."""
    on_the_ground(flying, armed=begun != CommandAction.ARM)
    flying.answers_with_heartbeat = True
    command = {CommandAction.OFFBOARD: SET_MODE, CommandAction.TAKEOFF: TAKEOFF, CommandAction.ARM: ARM}[begun]
    flying.results[command] = [None, 0]
    request(flying, begun, height_m=3.0, mode=FcuMode.AUTO_LOITER)
    monkeypatch.setattr(FcuNode, "refused", property(lambda node: "another sender"))
    stream(flying, 1.0)
    assert len(flying.commands(command)) == 1 and acks(flying)[-1].reason == "another sender"


def test_a_take_off_is_not_requested_again_of_an_aircraft_that_was_disarmed(flying):
    """PX4 takes it, and takes off when a person arms the next time."""
    on_the_ground(flying)
    flying.answers_with_heartbeat = True
    flying.results[TAKEOFF] = [None, 0]
    request(flying, CommandAction.TAKEOFF, height_m=3.0, mode=FcuMode.AUTO_LOITER)
    flying.run(0.2)
    flying.armed = False
    for _ in range(2):
        flying.deliver(flying.heartbeat())
    flying.run(1.0)
    assert len(flying.commands(TAKEOFF)) == 1 and acks(flying)[-1].reason == "disarmed meanwhile"


@pytest.mark.parametrize("action", [CommandAction.LAND, CommandAction.RETURN])
def test_a_pilots_choice_counts_although_he_has_gone_back_to_the_mode_before(flying, action):
    in_the_air(flying, LOITER)
    flying.results[SET_MODE] = [None, 0]
    request(flying, action, mode=FcuMode.AUTO_LOITER)
    for number in (POSCTL, LOITER):
        flying.run(0.15)
        change(flying, number, number)
    flying.run(1.0)
    assert len(flying.commands(SET_MODE)) == 1 and not acks(flying)[-1].accepted


@pytest.mark.parametrize("failsafe", [LAND, RETURN])
def test_offboard_is_not_requested_out_of_the_return_that_replaces_it(flying, failsafe):
    in_the_air(flying, failsafe, OFFBOARD)
    mode = mode_name(failsafe)
    request(flying, CommandAction.OFFBOARD, mode=mode, intended_mode=FcuMode.OFFBOARD)
    assert flying.commands(SET_MODE) == []

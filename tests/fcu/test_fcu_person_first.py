"""No request of a mode, and no retry of one, undoes what a person has chosen meanwhile."""

import pytest
from fcu_peer import LANDED
from pymavlink.dialects.v20 import common
from test_fcu_setpoints import setpoint

from companion.core.enums import CommandAction, FcuMode
from companion.core.messages import FcuCommand, FcuCommandAck
from companion.fcu.modes import MODE_OF_ACTION, custom_mode, mode_name

SET_MODE, ARM, TAKEOFF = common.MAV_CMD_DO_SET_MODE, common.MAV_CMD_COMPONENT_ARM_DISARM, common.MAV_CMD_NAV_TAKEOFF
OFFBOARD, POSCTL, ALTCTL, LOITER = 6 << 16, 3 << 16, 2 << 16, 4 << 16 | 3 << 24
LAND = 4 << 16 | 6 << 24
ACTIONS = [CommandAction.HOLD, CommandAction.LAND, CommandAction.OFFBOARD]


def flying_in(peer, number, armed=True):
    peer.armed, peer.custom_mode = armed, number
    peer.run(1.5)
    return peer


def request(peer, action, **values):
    peer.publish(FcuCommand(stamp_s=peer.now_s, id=7, action=action, **values))


def change(peer, number, intended=None):
    """PX4 reports a mode, and what it was asked for."""
    peer.custom_mode = number
    if intended is not None:
        peer.deliver_current_mode(number, intended)
    peer.deliver(peer.heartbeat())


def stream(peer, seconds):
    """The controller's setpoints, 50 Hz."""
    for _ in range(round(seconds / 0.02)):
        peer.publish(setpoint(peer.now_s))
        peer.run(0.02)


def acks(peer):
    return [m for _, m in peer.out if isinstance(m, FcuCommandAck)]


@pytest.mark.parametrize("heard", [False, True], ids=["request lost", "ack lost"])
@pytest.mark.parametrize("action", ACTIONS)
def test_a_lost_request_is_not_sent_again_after_a_takeover(flying, action, heard):
    begin, other = (LOITER, POSCTL) if action == CommandAction.OFFBOARD else (OFFBOARD, POSCTL)
    flying_in(flying, begin)
    flying.results[SET_MODE] = []
    request(flying, action)
    if heard:
        flying.run(0.1)
        change(flying, custom_mode(*MODE_OF_ACTION[action]))
    flying.run(0.2)
    change(flying, other)
    flying.run(3.0)
    assert len(flying.commands(SET_MODE)) == 1
    (ack,) = acks(flying)
    assert ack.accepted == heard and (heard or "the mode was changed to POSCTL" in ack.reason)
    assert flying.node.status.mode == FcuMode.POSCTL


@pytest.mark.parametrize("action", ACTIONS)
def test_a_request_that_was_decided_before_a_takeover_is_refused(flying, action):
    flying_in(flying, POSCTL)
    request(flying, action, mode=FcuMode.AUTO_LOITER)
    (ack,) = acks(flying)
    assert not ack.accepted and not ack.heard and "the mode was changed to POSCTL" in ack.reason
    assert flying.commands(SET_MODE) == []


@pytest.mark.parametrize("heartbeat_first", [False, True])
@pytest.mark.parametrize("action", ACTIONS[:2])
@pytest.mark.parametrize("failsafe", [ALTCTL, LOITER, POSCTL, LAND])
def test_a_failsafe_is_no_person(flying, action, failsafe, heartbeat_first):
    """PX4 still says what it was asked for: the landing that it did not hear is requested again."""
    flying_in(flying, OFFBOARD)
    flying.answers_with_heartbeat = True
    flying.results[SET_MODE] = [None, 0]
    change(flying, OFFBOARD, OFFBOARD)
    request(flying, action)
    flying.run(0.2)
    if heartbeat_first:
        change(flying, failsafe)
        flying.run(0.1)
        assert acks(flying) == []
    change(flying, failsafe, OFFBOARD)
    flying.run(1.0)
    assert len(flying.commands(SET_MODE)) == 2 and [a.accepted for a in acks(flying)] == [True]


@pytest.mark.parametrize("action", ACTIONS[:2])
def test_a_request_beside_an_unexplained_mode_waits_for_the_explanation(flying, action):
    """The heartbeat with the failsafe's mode came before CURRENT_MODE: a person or not is known half a second later."""
    for intended, sent in ((OFFBOARD, 1), (POSCTL, 0)):
        flying.custom_mode = OFFBOARD
        flying.armed = True
        flying.run(2.5)
        change(flying, OFFBOARD, OFFBOARD)
        before, answers = len(flying.commands(SET_MODE)), len(acks(flying))
        change(flying, POSCTL)  # in the same bytes as the report before it
        request(flying, action, mode=FcuMode.OFFBOARD)
        flying.run(0.3)
        assert len(flying.commands(SET_MODE)) == before and len(acks(flying)) == answers
        change(flying, POSCTL, intended)
        flying.run(0.3)
        assert len(flying.commands(SET_MODE)) == before + sent and acks(flying)[-1].accepted == bool(sent)


@pytest.mark.parametrize("phase_s", [0.0, 0.25, 0.5, 0.75])
@pytest.mark.parametrize("action", ACTIONS)
def test_no_retry_goes_by_an_old_report(flying, action, phase_s):
    """PX4 reports its mode once a second; the pilot takes over 0.1 s after a request whose ack is lost."""
    flying_in(flying, LOITER if action == CommandAction.OFFBOARD else OFFBOARD)
    flying.run(phase_s)
    flying.results[SET_MODE] = []
    request(flying, action)
    flying.run(0.1)
    flying.custom_mode = POSCTL
    flying.run(3.0)
    assert len(flying.commands(SET_MODE)) == 1


@pytest.mark.parametrize("phase_s", [0.0, 0.25, 0.5, 0.75])
def test_arming_is_not_repeated_after_a_disarming_or_another_mode(flying, phase_s):
    flying_in(flying, LOITER, armed=False)
    flying.run(phase_s)
    flying.results[ARM] = []
    request(flying, CommandAction.ARM)
    flying.run(0.1)
    flying.custom_mode = POSCTL
    flying.run(3.0)
    assert len(flying.commands(ARM)) == 1 and not acks(flying)[-1].accepted


def test_px4s_hold_at_the_end_of_its_take_off_is_no_person(flying):
    flying_in(flying, 4 << 16 | 2 << 24)
    assert flying.node.status.mode == FcuMode.AUTO_TAKEOFF
    flying.results[SET_MODE] = [None, 0]
    request(flying, CommandAction.OFFBOARD)
    change(flying, LOITER)
    stream(flying, 1.0)
    assert len(flying.commands(SET_MODE)) == 2


def test_a_request_after_another_of_ours_is_not_refused_by_its_effect(flying):
    """Hold is accepted, and Land decided before its report."""
    flying_in(flying, OFFBOARD)
    request(flying, CommandAction.HOLD, mode=FcuMode.OFFBOARD)
    change(flying, LOITER)
    request(flying, CommandAction.LAND, mode=FcuMode.OFFBOARD)
    assert [mode_name(custom_mode(int(m.param2), int(m.param3))) for _, m in flying.commands(SET_MODE)] == [
        FcuMode.AUTO_LOITER,
        FcuMode.AUTO_LAND,
    ]


def test_a_late_ack_of_a_request_that_a_report_ended_answers_no_other(flying):
    flying_in(flying, OFFBOARD)
    flying.results[SET_MODE] = []
    request(flying, CommandAction.HOLD)
    change(flying, LOITER)
    assert [a.accepted for a in acks(flying)] == [True]
    request(flying, CommandAction.LAND)
    flying.deliver(flying.ack(SET_MODE, common.MAV_RESULT_ACCEPTED))  # of the Hold
    flying.deliver(flying.ack(SET_MODE, common.MAV_RESULT_DENIED))
    assert [a.accepted for a in acks(flying)] == [True, False]


def test_arming_is_not_requested_again_once_it_was_reported(flying):
    """Its ack was lost; a person disarms within the half second to the retry."""
    flying_in(flying, LOITER, armed=False)
    flying.results[ARM] = []
    request(flying, CommandAction.ARM)
    for armed in (True, False):
        flying.run(0.1)
        flying.armed = armed
        flying.deliver(flying.heartbeat())
    flying.run(2.0)
    assert len(flying.commands(ARM)) == 1
    assert [a.accepted for a in acks(flying)] == [True]


def test_a_take_off_is_not_requested_again_after_another_mode(flying):
    flying_in(flying, LOITER)
    flying.results[TAKEOFF] = []
    request(flying, CommandAction.TAKEOFF, height_m=3.0)
    flying.run(0.2)
    change(flying, POSCTL)
    flying.run(2.0)
    assert len(flying.commands(TAKEOFF)) == 1 and not acks(flying)[0].accepted


def on_the_ground(peer, mode=LOITER, armed=True):
    peer.content[LANDED] = lambda boot_ms: common.MAVLink_extended_sys_state_message(0, 1)
    return flying_in(peer, mode, armed)


@pytest.mark.parametrize("heard", [False, True], ids=["decided before", "retry"])
def test_a_mode_on_the_ground_that_waits_for_its_heartbeat_holds_the_take_off(flying, heard):
    """CURRENT_MODE has named the pilot's mode; the heartbeat that makes it count is a round trip away."""
    on_the_ground(flying)
    flying.results[TAKEOFF] = []
    if heard:
        request(flying, CommandAction.TAKEOFF, height_m=3.0, mode=FcuMode.AUTO_LOITER)
        flying.run(0.45)
    flying.custom_mode = POSCTL
    flying.heartbeat_due_s = flying.now_s + 0.6
    flying.deliver_current_mode(POSCTL, POSCTL)
    assert flying.node.status.mode == FcuMode.AUTO_LOITER
    if not heard:
        request(flying, CommandAction.TAKEOFF, height_m=3.0, mode=FcuMode.AUTO_LOITER)
    flying.run(3.0)
    assert len(flying.commands(TAKEOFF)) == int(heard) and not acks(flying)[-1].accepted


def test_a_pilot_who_goes_back_to_the_mode_before_keeps_it(flying):
    """Offboard was entered, its ack was lost, and the sticks took it back to Position at once."""
    flying_in(flying, POSCTL)
    flying.answers_with_heartbeat = True
    flying.results[SET_MODE] = []
    change(flying, POSCTL, POSCTL)
    request(flying, CommandAction.OFFBOARD, mode=FcuMode.POSCTL)
    flying.run(0.1)
    change(flying, OFFBOARD)  # its CURRENT_MODE is lost
    flying.run(0.1)
    change(flying, POSCTL, POSCTL)
    flying.run(3.0)
    assert len(flying.commands(SET_MODE)) == 1 and not acks(flying)[-1].accepted


def test_a_pilot_who_took_over_on_the_ground_is_not_disarmed(flying):
    on_the_ground(flying, POSCTL)
    request(flying, CommandAction.DISARM, mode=FcuMode.AUTO_LOITER)
    assert flying.commands(ARM) == [] and "changed to POSCTL" in acks(flying)[-1].reason


def test_no_answer_is_no_refusal(flying):
    flying_in(flying, OFFBOARD)
    flying.results[SET_MODE] = []
    request(flying, CommandAction.HOLD)
    flying.run(3.0)
    (ack,) = acks(flying)
    assert not ack.accepted and not ack.heard
    flying.results[SET_MODE] = common.MAV_RESULT_DENIED
    request(flying, CommandAction.HOLD)
    assert acks(flying)[-1].heard

"""Commands: one answer each, retries, time-outs, and no mode change without a request."""

import math

import numpy as np
import pytest
from fcu_peer import GLOBAL_POSITION, HOME
from pymavlink.dialects.v20 import common

from companion.core.enums import CommandAction, FcuMode
from companion.core.messages import FcuCommand, FcuCommandAck, FcuStatus, FcuText, LinkTx

SET_MODE, ARM, TAKEOFF = common.MAV_CMD_DO_SET_MODE, common.MAV_CMD_COMPONENT_ARM_DISARM, common.MAV_CMD_NAV_TAKEOFF


def command(peer, action, id=1, age_s=0.0, **values):
    return peer.publish(FcuCommand(stamp_s=peer.now_s - age_s, id=id, action=action, **values))


def acks(messages):
    return [m for m in messages if type(m) is FcuCommandAck]


@pytest.mark.parametrize(
    ("action", "main", "sub"),
    [
        (CommandAction.OFFBOARD, 6, 0),
        (CommandAction.HOLD, 4, 3),
        (CommandAction.RETURN, 4, 5),
        (CommandAction.LAND, 4, 6),
    ],
)
def test_modes_are_requested_by_px4s_numbers(flying, action, main, sub):
    out = command(flying, action, id=7)
    ((_, m),) = flying.commands(SET_MODE)
    assert (m.param1, m.param2, m.param3) == (common.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED, main, sub)
    assert (m.target_system, m.target_component, m.confirmation) == (1, 1, 0)
    flying.run(3.0)
    assert [(a.id, a.accepted) for a in acks(m for _, m in flying.out)] == [(7, True)]
    assert len(flying.commands(SET_MODE)) == 1
    assert out


@pytest.mark.parametrize(("action", "value"), [(CommandAction.ARM, 1.0), (CommandAction.DISARM, 0.0)])
def test_arming_and_disarming_are_never_forced(flying, action, value):
    command(flying, action)
    ((_, m),) = flying.commands(ARM)
    assert (m.param1, m.param2) == (value, 0.0)


def test_take_off_has_the_altitude_over_sea_level_and_keeps_position_and_heading(flying):
    command(flying, CommandAction.TAKEOFF, height_m=3.0)
    ((_, m),) = flying.commands(TAKEOFF)
    assert m.param7 == pytest.approx(152.75 + 3.0)
    assert math.isnan(m.param4) and math.isnan(m.param5) and math.isnan(m.param6)


def test_the_take_off_height_does_not_follow_a_wandering_home_altitude(flying):
    """PX4 1.17 moves the home position with the altitude of GNSS; the local frame that it uses to climb stays."""
    for wander_mm in (-1200, 900):
        q = [1.0, 0, 0, 0]
        z = -0.5 - wander_mm / 1000
        flying.deliver(common.MAVLink_home_position_message(0, 0, 150_250 + wander_mm, 1.0, 2.0, z, q, 0, 0, 0))
        command(flying, CommandAction.TAKEOFF, height_m=3.0)
    first, second = (m.param7 for _, m in flying.commands(TAKEOFF))
    assert first == pytest.approx(155.75) == second


@pytest.mark.parametrize("shift_m", [20.0, -20.0, 5.5])
def test_take_off_is_refused_when_home_contradicts_the_vehicles_own_altitude(flying, shift_m):
    """A home altitude 20 m too high led a take-off to 3 m up to 23 m."""
    q = [1.0, 0, 0, 0]
    flying.content[HOME] = lambda boot_ms: common.MAVLink_home_position_message(
        0, 0, 150_250 + round(shift_m * 1e3), 1.0, 2.0, -0.5, q, 0, 0, 0
    )
    flying.run(4.0)  # one alone is dropped (`companion.fcu.guards.plausible`)
    command(flying, CommandAction.TAKEOFF, height_m=3.0)
    (ack,) = acks(m for _, m in flying.out)
    assert not ack.accepted and f"differ by {abs(shift_m):.1f} m, limit 5 m" in ack.reason
    assert flying.commands(TAKEOFF) == []


@pytest.mark.parametrize("shift_m", [4.5, 0.3, -4.5])
def test_a_shifted_home_does_not_move_the_take_off(flying, shift_m):
    q = [1.0, 0, 0, 0]
    flying.content[HOME] = lambda boot_ms: common.MAVLink_home_position_message(
        0, 0, 150_250 + round(shift_m * 1e3), 1.0, 2.0, -0.5, q, 0, 0, 0
    )
    flying.run(4.0)  # one alone is dropped (`companion.fcu.guards.plausible`)
    command(flying, CommandAction.TAKEOFF, height_m=3.0)
    ((_, m),) = flying.commands(TAKEOFF)
    assert m.param7 == pytest.approx(155.75)


def test_one_jump_of_the_altitude_does_not_move_the_take_off(flying):
    flying.deliver(common.MAVLink_global_position_int_message(flying.boot_ms, 0, 0, 190_000, 0, 0, 0, 0, 0))
    command(flying, CommandAction.TAKEOFF, height_m=3.0)
    ((_, m),) = flying.commands(TAKEOFF)
    assert m.param7 == pytest.approx(155.75)


def test_take_off_needs_the_vehicles_own_altitude(peer):
    peer.content[GLOBAL_POSITION] = lambda boot_ms: None
    peer.run(3.0)
    command(peer, CommandAction.TAKEOFF, height_m=3.0)
    (ack,) = acks(m for _, m in peer.out)
    assert not ack.accepted and "GLOBAL_POSITION_INT" in ack.reason


def test_take_off_waits_for_a_home_position(peer):
    peer.content[HOME] = lambda boot_ms: None
    peer.run(3.0)
    command(peer, CommandAction.TAKEOFF, height_m=3.0)
    (ack,) = acks(m for _, m in peer.out)
    assert not ack.accepted and "home position" in ack.reason
    assert peer.commands(TAKEOFF) == []


@pytest.mark.parametrize("height_m", [0.0, -1.0, math.nan, math.inf, 500.0])
def test_an_impossible_take_off_height_is_refused(flying, height_m):
    command(flying, CommandAction.TAKEOFF, height_m=height_m)
    assert not acks(m for _, m in flying.out)[0].accepted
    assert flying.commands(TAKEOFF) == []


def test_a_command_without_answer_is_sent_three_times_and_then_reported(flying):
    flying.results[ARM] = []
    flying.answers_with_heartbeat = True
    command(flying, CommandAction.ARM, id=3)
    begin_s = flying.now_s
    flying.run(1.4)
    assert acks(m for _, m in flying.out) == []
    flying.run(1.0)
    sent = flying.commands(ARM)
    times_s = [t - begin_s for t, _ in sent]
    assert times_s[0] == 0.0 and len(times_s) == 3
    assert all(0.49 < gap_s < 0.75 for gap_s in np.diff(times_s))  # half a second, and a look whether it is armed
    assert [m.confirmation for _, m in sent] == [0, 1, 2]
    (ack,) = acks(m for _, m in flying.out)
    assert (ack.id, ack.accepted) == (3, False) and "no answer" in ack.reason


def test_a_lost_ack_costs_one_retry(flying):
    flying.results[ARM] = [None, 0]
    command(flying, CommandAction.ARM)
    flying.run(2.0)
    assert len(flying.commands(ARM)) == 2
    assert [a.accepted for a in acks(m for _, m in flying.out)] == [True]


def test_a_refusal_is_reported_with_px4s_own_reason(flying):
    flying.deliver(common.MAVLink_statustext_message(3, b"Arming denied: compass not calibrated"))
    flying.results[ARM] = common.MAV_RESULT_TEMPORARILY_REJECTED
    command(flying, CommandAction.ARM)
    (ack,) = acks(m for _, m in flying.out)
    assert ack.reason == "temporarily rejected: Arming denied: compass not calibrated"


def test_a_command_in_progress_is_not_sent_again(flying):
    flying.results[TAKEOFF] = common.MAV_RESULT_IN_PROGRESS
    command(flying, CommandAction.TAKEOFF, height_m=2.0)
    flying.run(3.0)
    assert len(flying.commands(TAKEOFF)) == 1 and acks(m for _, m in flying.out) == []
    flying.deliver(flying.ack(TAKEOFF, 0))
    assert [a.accepted for a in acks(m for _, m in flying.out)] == [True]


def test_hold_does_not_wait_for_a_pending_offboard_and_is_not_answered_by_its_ack(flying):
    flying.results[SET_MODE] = []
    command(flying, CommandAction.OFFBOARD, id=1)
    command(flying, CommandAction.HOLD, id=2)
    assert [m.param2 for _, m in flying.commands(SET_MODE)] == [6, 4]
    flying.deliver(flying.ack(SET_MODE, common.MAV_RESULT_ACCEPTED))  # of the offboard request
    flying.deliver(flying.ack(SET_MODE, common.MAV_RESULT_DENIED))
    got = [(a.id, a.accepted, a.reason) for a in acks(m for _, m in flying.out)]
    assert got == [(1, False, "ended by hold"), (2, False, "denied")]


def test_a_mode_change_is_refused_by_the_second_of_two_acks(flying):
    """PX4's receiver accepts the command on arrival, its commander then rejects it."""
    flying.results[SET_MODE] = []
    flying.custom_mode = 3 << 16
    command(flying, CommandAction.OFFBOARD, id=5)
    flying.deliver(flying.ack(SET_MODE, common.MAV_RESULT_ACCEPTED))
    flying.run(0.01)
    assert acks(m for _, m in flying.out) == []
    out = flying.deliver(flying.ack(SET_MODE, common.MAV_RESULT_TEMPORARILY_REJECTED))
    assert [(a.id, a.accepted, a.reason) for a in acks(out)] == [(5, False, "temporarily rejected")]
    statuses = [m for m in flying.run(2.0) if type(m) is FcuStatus]
    assert {s.mode for s in statuses} == {FcuMode.POSCTL}
    assert len(flying.commands(SET_MODE)) == 1 and len(acks(m for _, m in flying.out)) == 1


def test_the_second_of_two_acks_accepts_a_mode_change_at_once(flying):
    flying.results[SET_MODE] = []
    command(flying, CommandAction.OFFBOARD, id=5)
    flying.deliver(flying.ack(SET_MODE, common.MAV_RESULT_ACCEPTED))
    (ack,) = acks(flying.deliver(flying.ack(SET_MODE, common.MAV_RESULT_ACCEPTED)))
    assert (ack.id, ack.accepted) == (5, True)
    (status, *_) = [m for m in flying.run(0.11) if type(m) is FcuStatus]
    assert status.mode == FcuMode.OFFBOARD


def test_both_acks_of_a_replaced_mode_change_are_skipped_once_px4_is_known_to_answer_twice(flying):
    flying.results[SET_MODE] = []
    command(flying, CommandAction.HOLD, id=1)
    flying.deliver(*[flying.ack(SET_MODE, common.MAV_RESULT_ACCEPTED)] * 2)
    command(flying, CommandAction.OFFBOARD, id=2)
    command(flying, CommandAction.LAND, id=3)
    for result in (0, common.MAV_RESULT_TEMPORARILY_REJECTED, 0, 0):  # offboard's two, then landing's
        flying.deliver(flying.ack(SET_MODE, result))
    got = [(a.id, a.accepted) for a in acks(m for _, m in flying.out)]
    assert got == [(1, True), (2, False), (3, True)]


def test_a_refused_arming_names_the_unhealthy_systems(flying):
    """PX4 sends its own texts to ground stations only; a companion gets the health bits of SYS_STATUS."""
    gps = 0x20
    flying.deliver(common.MAVLink_sys_status_message(gps, gps, 0, 0, 15600, 0, 73, 0, 0, 0, 0, 0, 0))
    flying.results[ARM] = common.MAV_RESULT_TEMPORARILY_REJECTED
    command(flying, CommandAction.ARM)
    (ack,) = acks(m for _, m in flying.out)
    assert ack.reason == "temporarily rejected (not healthy: GNSS)"


def test_arming_is_known_as_soon_as_it_is_acknowledged(flying):
    flying.run(0.3)
    before = len(flying.commands(common.MAV_CMD_REQUEST_MESSAGE))
    command(flying, CommandAction.ARM)
    (_, request) = flying.commands(common.MAV_CMD_REQUEST_MESSAGE)[before]
    assert request.param1 == common.MAVLINK_MSG_ID_HEARTBEAT  # PX4 sends an extra one, but never at another rate


def test_acks_for_another_station_are_not_ours(flying):
    flying.results[ARM] = []
    command(flying, CommandAction.ARM)
    flying.deliver(common.MAVLink_command_ack_message(ARM, 0, 0, 0, 255, 190))
    assert acks(m for _, m in flying.out) == []


def test_an_old_command_is_dropped_and_answered(flying):
    command(flying, CommandAction.OFFBOARD, id=9, age_s=1.1)
    (ack,) = acks(m for _, m in flying.out)
    assert (ack.id, ack.accepted) == (9, False) and "expired" in ack.reason
    assert flying.commands(SET_MODE) == []


def test_an_unknown_action_is_answered(flying):
    command(flying, "loop")
    assert "unknown action 'loop'" in acks(m for _, m in flying.out)[0].reason


def test_without_a_flight_controller_commands_are_answered_at_once(peer):
    command(peer, CommandAction.ARM)
    (ack,) = acks(m for _, m in peer.out)
    assert not ack.accepted and "no flight controller" in ack.reason
    assert peer.commands(ARM) == []


def test_a_lost_link_answers_what_was_pending_and_never_sends_it_later(flying):
    flying.results[SET_MODE] = []
    flying.silent = True
    flying.run(0.8)
    command(flying, CommandAction.OFFBOARD, id=4)
    flying.run(2.0)
    (ack,) = acks(m for _, m in flying.out)
    assert (ack.id, ack.accepted) == (4, False)
    count = len(flying.commands(SET_MODE))
    flying.silent = False
    flying.run(5.0)
    assert len(flying.commands(SET_MODE)) == count


def test_no_mode_changes_by_itself_whatever_the_flight_controller_does(flying):
    """Offboard, lost link, pilot in position mode, restart: the node never answers with a mode or with arming."""
    for mode in (6 << 16, 3 << 16, 4 << 16 | 5 << 24, 6 << 16):
        flying.custom_mode = mode
        flying.run(2.0)
        flying.silent = True
        flying.run(2.0)
        flying.silent = False
        flying.run(2.0)
    flying.reboot()
    flying.run(5.0)
    assert {m.command for m in flying.sent("COMMAND_LONG")} <= {
        common.MAV_CMD_SET_MESSAGE_INTERVAL,
        common.MAV_CMD_REQUEST_MESSAGE,
    }


def test_short_texts_are_one_message_and_long_ones_are_chunked(flying):
    command(flying, CommandAction.TEXT, text="holding position", severity=5)
    (m,) = flying.sent("STATUSTEXT")
    assert (m.severity, m.text, m.id) == (5, "holding position", 0)
    long = "marker bundle pier lost for three seconds, falling back to " + "x" * 70
    out = command(flying, CommandAction.TEXT, id=2, text=long)
    chunks = flying.sent("STATUSTEXT")[1:]
    assert [c.chunk_seq for c in chunks] == [0, 1, 2]
    assert len({c.id for c in chunks}) == 1 and chunks[0].id != 0
    assert "".join(c.text for c in chunks) == long
    assert len([m for m in out if type(m) is LinkTx]) == 3
    assert acks(out)[0].accepted


@pytest.mark.parametrize("length", [49, 50, 51, 99, 100, 101, 150])
def test_texts_of_any_length_survive_the_way_there_and_back(flying, length):
    text = ("0123456789" * 20)[:length]
    command(flying, CommandAction.TEXT, text=text)
    out = []
    for m in flying.sent("STATUSTEXT"):
        out += flying.deliver(common.MAVLink_statustext_message(m.severity, m.text.encode(), m.id, m.chunk_seq))
    assert [t.text for t in out if type(t) is FcuText] == [text]

"""Wrong senders and wrong frames on the link: each gives one report and a safe state."""

import os
import pty
import random
import tty

import pytest
from fcu_peer import ATTITUDE, LANDED
from msgspec.structs import replace
from pymavlink.dialects.v20 import common

from companion.core.config import ConfigError
from companion.core.enums import CommandAction, ControlSource, FcuMode
from companion.core.messages import (
    FcuAttitude,
    FcuCommand,
    FcuCommandAck,
    FcuStatus,
    FcuText,
    LinkTx,
    SentSetpoint,
    Setpoint,
)
from companion.fcu.boot_clock import RESTART_MESSAGES, BootClock, BootTime
from companion.fcu.fcu_node import FcuNode
from companion.fcu.guards.armed import ArmedState
from companion.fcu.guards.conflict import HOLD_S
from companion.fcu.link.link import open_link
from companion.fcu.link.sender import ANY_SENDER
from companion.fcu.link.signing import EPOCH_S, UNITS_PER_S, Signer
from companion.fcu.status import MODE_SETTLES_S

OFFBOARD = 6 << 16


def of(kind, messages):
    return [m for m in messages if type(m) is kind]


def texts(peer, part=""):
    return [m.text for _, m in peer.out if type(m) is FcuText and part in m.text]


def status(peer):
    return of(FcuStatus, [m for _, m in peer.out])[-1]


def setpoint(peer, **change):
    now_s = peer.now_s
    fields = dict(roll_rad=0.1, pitch_rad=-0.05, yaw_rad=1.0, yaw_rate_rad_s=0.0, thrust=0.4, source=ControlSource.NMPC)
    return Setpoint(**{"stamp_s": now_s, "expires_s": now_s + 0.1} | fields | change)


def command(peer, action):
    (ack,) = of(FcuCommandAck, peer.publish(FcuCommand(stamp_s=peer.now_s, id=1, action=action, height_m=3.0)))
    return ack


def another_sender(system, component):
    return common.MAVLink(None, srcSystem=system, srcComponent=component)


# --- another controller on the link ----------------------------------------------------------------------------------


def assert_conflict(peer, text):
    """No setpoint leaves, no flight begins, landing works; one report to the stack and one to the ground station."""
    assert text in status(peer).conflict and text in status(peer).refused
    assert of(SentSetpoint, peer.publish(setpoint(peer))) == []
    for action in (CommandAction.ARM, CommandAction.TAKEOFF, CommandAction.OFFBOARD):
        ack = command(peer, action)
        assert not ack.accepted and text in ack.reason
    assert peer.node.counters["setpoints_conflict"] == 1
    assert len(texts(peer, f"no setpoints and no new flight: {text}")) == 1
    on_the_ground = b"".join(m.text.encode() for m in peer.sent("STATUSTEXT")).decode()
    assert text[:30] in on_the_ground
    assert of(FcuCommandAck, peer.publish(FcuCommand(stamp_s=peer.now_s, id=2, action=CommandAction.LAND))) == []
    assert peer.commands(common.MAV_CMD_DO_SET_MODE)[-1][1].param3 == 6


def test_another_companion_with_our_ids_blocks_the_stream(flying):
    other = another_sender(1, 191)
    flying.feed(common.MAVLink_heartbeat_message(18, 8, 0, 0, 4, 3).pack(other))
    flying.run(0.2)
    assert_conflict(flying, "another sender on the link uses this companion's ids 1/191")


def test_setpoints_of_another_sender_block_ours(flying):
    other = another_sender(1, 197)
    q = [1.0, 0, 0, 0]
    flying.feed(common.MAVLink_set_attitude_target_message(1, 1, 1, 7, q, 0, 0, 0, 0.5).pack(other))
    flying.run(0.2)
    assert_conflict(flying, "another sender (1/197) sends setpoints to the flight controller")


Q = [1.0, 0, 0, 0]
SETPOINTS = {
    "attitude": lambda system, component: common.MAVLink_set_attitude_target_message(
        1, system, component, 7, Q, 0, 0, 0, 0.5
    ),
    "position": lambda system, component: common.MAVLink_set_position_target_local_ned_message(
        1, system, component, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    ),
    "global position": lambda system, component: common.MAVLink_set_position_target_global_int_message(
        1, system, component, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    ),
    "actuators": lambda system, component: common.MAVLink_set_actuator_control_target_message(
        1, 0, system, component, [0] * 8
    ),
}


@pytest.mark.parametrize("kind", SETPOINTS)
@pytest.mark.parametrize("target", [(1, 1), (0, 0), (1, 0), (0, 1)])
def test_setpoints_for_this_vehicle_count(flying, kind, target):
    flying.feed(SETPOINTS[kind](*target).pack(another_sender(1, 197)))
    assert flying.node.conflict.text


@pytest.mark.parametrize("kind", SETPOINTS)
@pytest.mark.parametrize("target", [(2, 1), (2, 0), (1, 154), (0, 190), (255, 255)])
def test_setpoints_for_another_vehicle_or_component_are_no_conflict(flying, kind, target):
    """Several aircraft share a radio; the controller of another one must not stop this one."""
    for _ in range(20):
        flying.feed(SETPOINTS[kind](*target).pack(another_sender(2, 191)))
    flying.run(0.5)
    assert flying.node.conflict.text == "" and of(SentSetpoint, flying.publish(setpoint(flying)))


def fly_offboard(peer, seconds, echo):
    """Setpoints at 50 Hz, ATTITUDE_TARGET at 10 Hz: `echo` makes it from the newest setpoint sent."""
    peer.armed, peer.custom_mode = True, OFFBOARD
    peer.content[LANDED] = lambda boot_ms: common.MAVLink_extended_sys_state_message(0, 2)
    peer.run(1.1)
    for i in range(round(seconds * 50)):
        peer.run(0.02)
        peer.publish(setpoint(peer, roll_rad=0.1 + 0.002 * (i % 50)))
        if i % 5 == 0:
            peer.deliver(echo(peer.sent("SET_ATTITUDE_TARGET")[-1]))


def test_a_flight_controller_that_follows_another_senders_setpoints_gets_none_of_ours(flying):
    def other(m):
        return common.MAVLink_attitude_target_message(flying.boot_ms, 0, [1.0, 0, 0, 0], 0, 0, 0, 0.7)

    fly_offboard(flying, 3.0, other)
    assert status(flying).conflict == "the flight controller follows setpoints of another sender"
    sent = len(flying.sent("SET_ATTITUDE_TARGET"))
    fly_offboard(flying, 1.0, other)
    assert len(flying.sent("SET_ATTITUDE_TARGET")) == sent


@pytest.mark.parametrize("behind", [1, 40])
def test_a_flight_controller_that_follows_our_own_setpoints_late_is_no_conflict(flying, behind):
    def late(m):
        m = flying.sent("SET_ATTITUDE_TARGET")[-min(behind, len(flying.sent("SET_ATTITUDE_TARGET")))]
        return common.MAVLink_attitude_target_message(flying.boot_ms, 0, [-x for x in m.q], 0, 0, 0, m.thrust)

    fly_offboard(flying, 5.0, late)
    assert status(flying).conflict == "" and flying.node.counters["setpoints_conflict"] == 0


def test_a_conflict_stays_in_the_air_and_ends_on_the_ground(flying):
    flying.armed = True
    flying.run(1.1)
    flying.feed(common.MAVLink_heartbeat_message(18, 8, 0, 0, 4, 3).pack(another_sender(1, 191)))
    flying.run(3 * HOLD_S)
    assert status(flying).conflict
    flying.armed = False
    flying.run(1.5)
    assert status(flying).conflict == ""
    assert of(SentSetpoint, flying.publish(setpoint(flying)))


def test_inertial_measurements_with_old_stamps_are_no_second_flight_controller(flying):
    before = flying.node.boot_clock.old
    for i in range(100):
        flying.run(0.02)
        numbers = [0.0] * 13
        flying.feed(common.MAVLink_highres_imu_message(5_000_000 + 20_000 * i, *numbers, 63, 0).pack(flying.mav))
    assert flying.node.boot_clock.old == before + 100 and status(flying).conflict == ""


def test_a_second_flight_controller_with_the_same_id_is_a_conflict(flying):
    """Two clocks in one stream of messages: it is unknown which of the two the setpoints would reach."""
    twin = another_sender(1, 1)
    for i in range(100):
        flying.run(0.02)
        message = common.MAVLink_attitude_quaternion_message(5000 + 20 * i, 1, 0, 0, 0, 0, 0, 0)
        twin.seq = flying.mav.seq
        flying.feed(message.pack(twin))
    assert_conflict(flying, "a second flight controller with system id 1")


def test_the_companion_may_not_have_the_flight_controllers_ids(vehicle):
    twin = replace(vehicle, fcu=replace(vehicle.fcu, system_id=1, component_id=1))
    with pytest.raises(ConfigError, match="fcu.component_id = 1: that is the flight controller"):
        FcuNode(twin)


# --- repeated frames -------------------------------------------------------------------------------------------------


def test_replayed_messages_are_dropped_reported_once_and_no_restart(flying):
    recorded = flying.frame(flying.make(ATTITUDE))
    flying.run(5.0)
    begin = len(flying.out)
    for _ in range(5):
        flying.run(0.1)
        assert of(FcuAttitude, flying.feed(recorded)) == []
    flying.run(1.0)
    new = [m.text for _, m in flying.out[begin:] if type(m) is FcuText]
    assert len(new) == 1 and "repeated or late frames" in new[0]
    assert flying.node.counters["reboots"] == 0 and status(flying).connected
    assert status(flying).link_errors >= 1


def test_a_replayed_heartbeat_does_not_disarm(flying):
    disarmed = flying.frame(flying.heartbeat())
    flying.armed = True
    flying.run(1.2)
    assert status(flying).armed
    while not 40 <= (flying.mav.seq - disarmed[4]) % 256 <= 120:
        flying.run(0.02)
    flying.feed(disarmed)
    flying.run(0.2)
    assert status(flying).armed


def test_a_message_from_the_far_future_does_not_make_the_present_old(flying):
    flying.deliver(common.MAVLink_attitude_quaternion_message(4_000_000_000, 1, 0, 0, 0, 0, 0, 0))
    attitudes = of(FcuAttitude, flying.run(1.0))
    assert len(attitudes) >= 49 and all(m.valid for m in attitudes)
    assert flying.node.counters["reboots"] == 0


@pytest.mark.parametrize("jump_ms", [100, 450, 600, 2000, 9000, 11_000, -600, -2000, -9000])
def test_single_frames_with_another_boot_time_neither_restart_nor_hold_back_the_good_ones(flying, jump_ms):
    """One frame 9 s ahead made all that followed look old, and a restart of the flight controller in flight."""
    flying.run(5.0)
    begin = len(flying.out)
    for _ in range(20):
        boot_ms = flying.boot_ms + jump_ms
        flying.deliver(common.MAVLink_attitude_quaternion_message(boot_ms, 1, 0, 0, 0, 0, 0, 0))
        flying.deliver(common.MAVLink_local_position_ned_message(boot_ms, 1, 2, -3, 0, 0, 0))
        flying.run(0.25)
    attitudes = [m for m in of(FcuAttitude, [m for _, m in flying.out[begin:]]) if m.valid]
    assert len(attitudes) >= 245  # of 250 in five seconds
    assert max(b.stamp_s - a.stamp_s for a, b in zip(attitudes, attitudes[1:], strict=False)) < 0.07
    assert flying.node.counters["reboots"] == 0 and status(flying).connected and status(flying).conflict == ""


# --- armed in flight ---------------------------------------------------------------------------------------------------


def in_flight(peer):
    peer.armed, peer.custom_mode = True, OFFBOARD
    peer.content[LANDED] = lambda boot_ms: common.MAVLink_extended_sys_state_message(0, 2)
    peer.run(3.0)
    assert status(peer).armed and not status(peer).landed


def disarmed_heartbeat(peer, custom_mode=OFFBOARD):
    return common.MAVLink_heartbeat_message(peer.type, peer.autopilot, 1, custom_mode, 4, 3)


def test_one_heartbeat_that_says_disarmed_in_flight_is_not_accepted(flying):
    in_flight(flying)
    flying.deliver(disarmed_heartbeat(flying))
    out = flying.run(3.0)
    assert all(m.armed for m in of(FcuStatus, out))


def test_many_heartbeats_that_say_disarmed_do_not_count_while_the_aircraft_is_in_the_air(flying):
    in_flight(flying)
    for _ in range(30):
        flying.deliver(disarmed_heartbeat(flying))
        out = flying.run(0.1)
        assert all(m.armed for m in of(FcuStatus, out))


def test_one_report_of_the_land_detector_and_one_heartbeat_do_not_disarm(flying):
    in_flight(flying)
    flying.deliver(common.MAVLink_extended_sys_state_message(0, 1), disarmed_heartbeat(flying))
    assert all(m.armed for m in of(FcuStatus, flying.run(3.0)))


def test_an_old_report_of_the_land_detector_does_not_make_one_heartbeat_disarm():
    """The stream stopped on the ground, and the aircraft took off since."""
    state = ArmedState()
    for _ in range(5):
        state.take_landed(True)
    state.take_heartbeat(armed=True, landed_known=True)
    state.take_heartbeat(armed=False, landed_known=False)
    assert state.armed and state.doubtful


def test_a_motor_kill_in_the_air_is_accepted_within_half_a_second(flying):
    """PX4 disarms, its land detector follows, and a heartbeat is requested, as PX4 sends them at 1 Hz only."""
    in_flight(flying)
    flying.armed = False
    flying.content[LANDED] = lambda boot_ms: common.MAVLink_extended_sys_state_message(0, 1)
    flying.deliver(flying.heartbeat())
    answered = 0
    for _ in range(50):
        flying.run(0.01)
        requested = [m for _, m in flying.commands(common.MAV_CMD_REQUEST_MESSAGE) if m.param1 == 0]
        if len(requested) > answered:
            answered = len(requested)
            flying.deliver(flying.heartbeat())
    assert not flying.node.status.armed


def test_a_touchdown_disarms_with_one_heartbeat(flying):
    in_flight(flying)
    flying.content[LANDED] = lambda boot_ms: common.MAVLink_extended_sys_state_message(0, 1)
    flying.run(1.0)
    flying.deliver(disarmed_heartbeat(flying))
    assert not flying.node.status.armed


def test_one_heartbeat_with_another_mode_is_a_pilot(flying):
    """The costs differ: a needless stop is a hold by PX4, a needless second is a fight with the pilot."""
    in_flight(flying)
    flying.deliver(common.MAVLink_heartbeat_message(flying.type, flying.autopilot, 129, 3 << 16, 4, 3))
    assert flying.node.status.mode == FcuMode.POSCTL and flying.node.status.armed


def accept_offboard(peer):
    """In Hold, PX4 accepts offboard; its next report is still the one of before."""
    in_flight(peer)
    hold, peer.custom_mode = 4 << 16 | 3 << 24, 4 << 16 | 3 << 24
    peer.run(1.5)
    peer.publish(FcuCommand(stamp_s=peer.now_s, id=1, action=CommandAction.OFFBOARD))
    peer.run(0.16)
    assert peer.node.status.mode == FcuMode.OFFBOARD
    return common.MAVLink_heartbeat_message(peer.type, peer.autopilot, 129, hold, 4, 3)


def test_a_report_of_the_former_mode_just_after_the_acceptance_does_not_end_the_stream(flying):
    """PX4 1.17 accepted offboard, sent a heartbeat of its old status 4 ms later and the new mode after 100 ms."""
    former = accept_offboard(flying)
    flying.publish(setpoint(flying))
    flying.deliver(former)
    assert flying.node.status.mode == FcuMode.OFFBOARD
    flying.custom_mode = OFFBOARD
    flying.run(0.02)
    before = len(of(SentSetpoint, [m for _, m in flying.out]))
    flying.publish(setpoint(flying))
    assert len(of(SentSetpoint, [m for _, m in flying.out])) == before + 1


def test_a_pilot_who_returns_to_the_former_mode_at_once_is_seen_when_it_counts(flying):
    former = accept_offboard(flying)
    flying.custom_mode = 4 << 16 | 3 << 24
    flying.deliver(former)
    asked = len(flying.commands(common.MAV_CMD_REQUEST_MESSAGE))
    flying.run(MODE_SETTLES_S + 0.02)
    assert len(flying.commands(common.MAV_CMD_REQUEST_MESSAGE)) > asked
    flying.deliver(former)
    assert flying.node.status.mode == FcuMode.AUTO_LOITER


def test_a_pilot_who_chooses_a_third_mode_is_seen_at_once(flying):
    accept_offboard(flying)
    flying.deliver(common.MAVLink_heartbeat_message(flying.type, flying.autopilot, 129, 3 << 16, 4, 3))
    assert flying.node.status.mode == FcuMode.POSCTL


def test_boot_time_that_falls_for_good_is_a_restart_and_once_is_not():
    clock = BootClock()
    found = [clock.check(ATTITUDE, ms, ms * 1e-3) for ms in (100_000, 100_020, 100_020, 100_010)]
    assert found == [BootTime.NEW, BootTime.NEW, BootTime.OLD, BootTime.OLD]
    found = [clock.check(ATTITUDE, 20 * i, 101.0 + 0.02 * i) for i in range(1, 6)]
    assert found.index(BootTime.RESTART) >= RESTART_MESSAGES - 1 and found[-1] is BootTime.NEW


def test_a_burst_of_old_messages_is_no_restart():
    clock = BootClock()
    clock.check(ATTITUDE, 100_000, 100.0)
    assert {clock.check(ATTITUDE, 20 * i, 100.01) for i in range(1, 100)} == {BootTime.OLD}
    assert clock.check(ATTITUDE, 100_020, 100.02) is BootTime.NEW


# --- other senders on the link ---------------------------------------------------------------------------------------


def test_a_second_flight_controller_with_another_id_is_reported_once_and_ignored(flying):
    other = another_sender(3, 1)
    for _ in range(5):
        flying.feed(common.MAVLink_heartbeat_message(13, 12, 128, OFFBOARD, 4, 3).pack(other))
        flying.feed(common.MAVLink_local_position_ned_message(1, 9, 9, 9, 9, 9, 9).pack(other))
        flying.run(1.0)
    assert texts(flying, "other flight controllers") == [
        "other flight controllers on the link, their messages are ignored: system id [3]"
    ]
    assert status(flying).mode == FcuMode.POSCTL and not status(flying).armed and status(flying).conflict == ""


def test_bytes_without_a_frame_are_reported_once_as_a_wrong_baud_rate(peer):
    rng = random.Random(1)
    for _ in range(100):
        peer.heartbeat_due_s = float("inf")
        peer.run(0.1)
        peer.feed(rng.randbytes(200))
    (text,) = texts(peer)
    assert text.startswith("bytes arrive but contain no MAVLink frame") and "wrong baud rate" in text
    assert not status(peer).connected
    assert command(peer, CommandAction.ARM).reason == "no flight controller on the link"


def test_silence_and_a_clean_link_are_no_wrong_baud_rate(flying):
    flying.run(10.0)
    flying.silent = True
    flying.run(10.0)
    assert texts(flying, "baud") == []


def test_a_wrong_baud_rate_is_reported_through_a_real_serial_port(peer, tmp_path):
    """A UART at another rate receives bytes, but not those that were sent."""
    master, slave = pty.openpty()
    tty.setraw(slave)
    link = open_link(f"serial:{os.ttyname(slave)}:57600", sender=ANY_SENDER)
    rng = random.Random(2)
    peer.heartbeat_due_s = float("inf")
    for _ in range(40):
        os.write(master, bytes(rng.choice((0x00, 0x80, 0xC0, 0xE6, 0xFD, 0xFF)) for _ in range(60)))
        peer.run(0.1)
        peer.feed(link.read(1.0))
    assert len(texts(peer, "wrong baud rate")) == 1
    link.close()
    os.close(master)
    os.close(slave)


# --- keys ------------------------------------------------------------------------------------------------------------


def signing_peer(peer_type, vehicle, key):
    peer = peer_type(FcuNode(vehicle, signer=Signer(bytes(range(32)), 100.0, EPOCH_S + 1e6)))
    if key is not None:
        peer.mav.signing.secret_key, peer.mav.signing.timestamp = key, round(1e6 * UNITS_PER_S)
        peer.mav.signing.sign_outgoing = True
    return peer


@pytest.mark.parametrize(("key", "text"), [(None, "without a signature"), (bytes(32), "of another key")])
def test_a_flight_controller_without_the_key_is_not_connected(peer, vehicle, key, text):
    wrong = signing_peer(type(peer), vehicle, key)
    wrong.run(10.0)
    assert not status(wrong).connected
    (line,) = texts(wrong)
    assert "frames rejected" in line and text in line and "fcu.signing_key_file" in line


def test_a_flight_controller_with_the_key_is_connected(peer, vehicle):
    right = signing_peer(type(peer), vehicle, bytes(range(32)))
    right.run(3.0)
    assert status(right).connected and right.node.timesync.synced and status(right).link_errors == 0
    assert all(m.data[2] == 1 for _, m in right.out if type(m) is LinkTx)

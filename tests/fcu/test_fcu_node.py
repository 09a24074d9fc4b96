"""The node and the flight controller: state, streams, clock, restarts, texts."""

import math
import random

import msgspec
import pytest
from fcu_peer import (
    ALTITUDE,
    ATTITUDE,
    BATTERY,
    GLOBAL_POSITION,
    GPS_RAW_INT,
    HOME,
    IMU,
    LANDED,
    ODOMETRY,
    POSITION,
    RC_CHANNELS,
    SYS_STATUS,
    Peer,
    imu,
)
from pymavlink.dialects.v20 import common

from companion.core.enums import FcuMode
from companion.core.geodesy import between
from companion.core.messages import FcuAttitude, FcuImu, FcuPosition, FcuStatus, FcuText, LinkRx
from companion.fcu.fcu_node import UNKNOWN_MODES_MAX, FcuNode
from companion.fcu.link.framing import CURRENT_MODE, checksum
from companion.fcu.modes import custom_mode, mode_name
from companion.mission.raw_guard import RawGuard


def of(kind, messages):
    return [m for m in messages if type(m) is kind]


def last_status(peer):
    return of(FcuStatus, [m for _, m in peer.out])[-1]


def test_attitude_and_position_come_in_enu_flu_stamped_in_companion_time(flying):
    out = flying.run(1.0)
    attitudes, positions = of(FcuAttitude, out), of(FcuPosition, out)
    assert len(attitudes) in (49, 50, 51) and len(positions) in (49, 50, 51)
    a, p = attitudes[-1], positions[-1]
    assert a.valid and p.valid
    assert a.q_WB == pytest.approx((math.sqrt(0.5), 0, 0, math.sqrt(0.5)))
    assert a.omega_B == pytest.approx((0.1, -0.2, -0.3))
    assert p.p_W == (2, 1, 3) and p.v_W == (5, 4, 6)
    assert a.stamp_s == pytest.approx(flying.now_s, abs=0.02)
    stamps = [m.stamp_s for m in attitudes]
    assert stamps == sorted(stamps)


def test_stamps_are_the_time_of_validity_not_of_arrival(flying):
    """An attitude that was delayed by 40 ms."""
    flying.content[ATTITUDE] = lambda boot_ms: None
    flying.run(0.1)
    boot_ms = flying.boot_ms - 40
    (a,) = flying.deliver(common.MAVLink_attitude_quaternion_message(boot_ms, 1, 0, 0, 0, 0, 0, 0))
    assert a.stamp_s == pytest.approx(flying.now_s - 0.040, abs=0.0015)


def test_before_the_clocks_agree_messages_are_marked(peer):
    peer.answer_timesync = False
    out = peer.run(3.0)
    attitudes = of(FcuAttitude, out)
    assert attitudes and not any(m.valid for m in attitudes)
    peer.answer_timesync = True
    assert of(FcuAttitude, peer.run(3.0))[-1].valid


def test_the_status_has_the_content_of_all_slow_messages(flying):
    s = last_status(flying)
    assert (s.connected, s.valid, s.armed, s.mode, s.landed) == (True, True, False, FcuMode.POSCTL, True)
    assert s.battery_voltage_v == pytest.approx(15.6) and s.battery_remaining == pytest.approx(0.73)
    assert s.rc_ok and s.rc_channels_us == (1500,) * 8 and s.gnss_ok
    assert s.home_W == (2.0, 1.0, 0.5)
    assert s.timesync_offset_s == pytest.approx(10.0, abs=2e-3) and s.timesync_rtt_s == pytest.approx(0.002)
    assert s.link_errors == 0
    assert len(of(FcuStatus, flying.run(1.0))) == 10


def test_content_that_stops_arriving_becomes_unknown(flying):
    for number in (RC_CHANNELS, BATTERY, SYS_STATUS, GPS_RAW_INT, LANDED):
        flying.content[number] = lambda boot_ms: None
    flying.run(6.0)
    s = last_status(flying)
    assert not s.rc_ok and not s.gnss_ok and not s.landed and s.rc_channels_us == ()
    assert math.isnan(s.battery_voltage_v) and math.isnan(s.battery_remaining)


def test_an_unhealthy_receiver_is_not_ok_even_while_channels_come(flying):
    flying.content[SYS_STATUS] = lambda boot_ms: common.MAVLink_sys_status_message(
        0x10000, 0x10000, 0, 0, 15600, 0, 73, 0, 0, 0, 0, 0, 0
    )
    flying.run(1.0)
    assert not last_status(flying).rc_ok


@pytest.mark.parametrize(("health", "ready"), [(0x10000000, True), (0x10000, False)])
def test_px4s_own_check_before_arming_is_in_the_status(flying, health, ready):
    """PX4 sets its pre-arm check neither in present nor in enabled; it is a bit of health only."""
    flying.content[SYS_STATUS] = lambda boot_ms: common.MAVLink_sys_status_message(
        0x2F, 0x2F, health | 0x2B, 0, 15600, 0, 73, 0, 0, 0, 0, 0, 0
    )
    flying.run(1.0)
    assert last_status(flying).ready_to_arm is ready and last_status(flying).unhealthy == "compass"


@pytest.mark.parametrize(("enabled", "health", "ok"), [(0x4000, 0x4000, True), (0x4000, 0, False), (0, 0, None)])
def test_px4s_own_check_of_its_position_is_in_the_status(flying, enabled, health, ok):
    flying.content[SYS_STATUS] = lambda boot_ms: common.MAVLink_sys_status_message(
        enabled, enabled, health, 0, 15600, 0, 73, 0, 0, 0, 0, 0, 0
    )
    flying.run(1.0)
    assert last_status(flying).position_ok is ok


def test_without_system_status_readiness_to_arm_is_unknown(flying):
    flying.content[SYS_STATUS] = lambda boot_ms: None
    flying.run(6.0)
    s = last_status(flying)
    assert s.ready_to_arm is None and s.position_ok is None and s.unhealthy == ""


def test_lost_time_synchronisation_shows_in_its_age(flying):
    assert last_status(flying).timesync_age_s < 0.2
    flying.answer_timesync = False
    flying.run(12.0)
    assert last_status(flying).timesync_age_s == pytest.approx(12.0, abs=0.3)
    flying.answer_timesync = True
    flying.run(1.0)
    assert last_status(flying).timesync_age_s < 0.6


def test_before_the_first_answer_the_synchronisation_has_no_age(peer):
    peer.answer_timesync = False
    peer.run(2.0)
    assert last_status(peer).timesync_age_s == math.inf


def test_the_system_status_stands_in_for_a_missing_battery_monitor(peer):
    peer.content[BATTERY] = lambda boot_ms: None
    peer.run(3.0)
    assert last_status(peer).battery_voltage_v == pytest.approx(15.6)


@pytest.mark.parametrize(
    ("main", "sub", "name"),
    [(1, 0, FcuMode.MANUAL), (2, 0, FcuMode.ALTCTL), (3, 0, FcuMode.POSCTL), (5, 0, FcuMode.ACRO),
     (6, 0, FcuMode.OFFBOARD), (7, 0, FcuMode.STABILIZED), (4, 1, FcuMode.AUTO_READY), (4, 2, FcuMode.AUTO_TAKEOFF),
     (4, 3, FcuMode.AUTO_LOITER), (4, 4, FcuMode.AUTO_MISSION), (4, 5, FcuMode.AUTO_RTL), (4, 6, FcuMode.AUTO_LAND),
     (4, 9, FcuMode.AUTO_PRECLAND), (12, 0, FcuMode.UNKNOWN), (4, 99, FcuMode.UNKNOWN)],
)  # fmt: skip
def test_modes_have_the_names_the_stack_uses(flying, main, sub, name):
    assert mode_name(custom_mode(main, sub)) == name
    flying.custom_mode = custom_mode(main, sub)
    flying.run(1.1)
    assert last_status(flying).mode == name


def test_the_number_of_an_unknown_mode_is_reported_once_to_the_stack_and_the_ground_station(flying):
    flying.custom_mode = 1661206528
    flying.run(8.0)
    flying.custom_mode = custom_mode(3)
    flying.run(8.0)
    flying.custom_mode = 1661206528
    flying.run(8.0)
    (report,) = texts_of(flying, "flight mode 1661206528 is not known to this version")
    assert report.severity == 4
    assert "1661206528" in "".join(m.text for m in flying.sent("STATUSTEXT"))


def test_a_sender_of_many_unknown_modes_is_reported_a_limited_number_of_times(flying):
    for sub in range(100, 150):
        flying.custom_mode = custom_mode(4, sub)
        flying.run(6.0)
    assert len(texts_of(flying, "is not known to this version")) == UNKNOWN_MODES_MAX


def heartbeat_requests(peer):
    return [m for _, m in peer.commands(common.MAV_CMD_REQUEST_MESSAGE) if m.param1 == 0]


def test_current_mode_changes_the_mode_before_the_heartbeat(flying):
    flying.deliver_current_mode(custom_mode(6))
    flying.run(0.11)
    assert last_status(flying).mode == FcuMode.OFFBOARD


def test_an_extra_heartbeat_is_requested_when_the_mode_changes(flying):
    flying.deliver_current_mode(custom_mode(3))
    assert heartbeat_requests(flying) == []  # not a new mode
    flying.deliver_current_mode(custom_mode(4, 5))
    assert len(heartbeat_requests(flying)) == 1


def test_the_mode_px4_returns_to_when_disarming_is_not_published_before_disarming(flying):
    """PX4 returns to OFFBOARD when it disarms; its heartbeat with both may be a second behind CURRENT_MODE."""
    flying.armed, flying.custom_mode = True, custom_mode(4, 6)
    flying.run(1.1)
    assert last_status(flying).landed
    flying.heartbeat_due_s = flying.now_s + 0.9
    flying.deliver_current_mode(custom_mode(6))
    statuses = of(FcuStatus, flying.run(0.8))
    assert {(s.armed, s.mode) for s in statuses} == {(True, FcuMode.AUTO_LAND)}
    flying.armed, flying.custom_mode = False, custom_mode(6)
    statuses = of(FcuStatus, flying.run(1.0))
    assert {(s.armed, s.mode) for s in statuses} == {(True, FcuMode.AUTO_LAND), (False, FcuMode.OFFBOARD)}


def test_a_mode_change_in_the_air_is_published_at_once(flying):
    flying.content[LANDED] = lambda boot_ms: common.MAVLink_extended_sys_state_message(0, 2)
    flying.armed, flying.custom_mode = True, custom_mode(6)
    flying.run(1.1)
    flying.deliver_current_mode(custom_mode(3))
    flying.heartbeat_due_s = flying.now_s + 0.9
    assert {s.mode for s in of(FcuStatus, flying.run(0.5))} == {FcuMode.POSCTL}


def test_heartbeats_leave_at_one_hertz_from_the_start(peer):
    peer.silent = True
    peer.run(10.0)
    heartbeats = peer.sent("HEARTBEAT")
    assert len(heartbeats) == 10
    assert (heartbeats[0].type, heartbeats[0].autopilot) == (
        common.MAV_TYPE_ONBOARD_CONTROLLER,
        common.MAV_AUTOPILOT_INVALID,
    )
    assert heartbeats[0].get_srcSystem() == 1 and heartbeats[0].get_srcComponent() == 191


def test_timesync_requests_leave_at_ten_hertz_first_and_at_two_once_settled(peer):
    peer.run(2.0)
    assert 18 <= len(peer.sent("TIMESYNC")) <= 21
    peer.run(28.0)
    before = len(peer.sent("TIMESYNC"))
    peer.run(10.0)
    assert 19 <= len(peer.sent("TIMESYNC")) - before <= 21


def test_the_flight_controllers_own_timesync_is_answered(flying):
    before = len(flying.sent("TIMESYNC"))
    flying.deliver(common.MAVLink_timesync_message(0, 42))
    answer = flying.sent("TIMESYNC")[before]
    assert answer.ts1 == 42 and answer.tc1 == round(flying.now_s * 1e9)


def test_streams_are_requested_at_the_rates_of_the_vehicle_file(flying):
    requested = {int(m.param1): m.param2 for _, m in flying.commands(common.MAV_CMD_SET_MESSAGE_INTERVAL)}
    assert requested[ATTITUDE] == requested[POSITION] == 20_000
    assert {SYS_STATUS, GPS_RAW_INT, RC_CHANNELS, BATTERY, HOME, LANDED, CURRENT_MODE} <= set(requested)
    params = [m.param3 for _, m in flying.commands(common.MAV_CMD_SET_MESSAGE_INTERVAL)]
    assert set(params) == {0.0}  # PX4 refuses others


def test_a_slow_stream_is_requested_again_and_a_good_one_is_not(flying):
    flying.run(5.0)
    begin_s = flying.now_s
    flying.streams[ATTITUDE] = 0.2  # another station slowed the attitude down
    flying.run(6.0)
    requested = [int(m.param1) for t, m in flying.commands(common.MAV_CMD_SET_MESSAGE_INTERVAL) if t > begin_s]
    assert set(requested) <= {ATTITUDE, CURRENT_MODE} and requested.count(ATTITUDE) == 1
    assert flying.streams[ATTITUDE] == pytest.approx(0.02)


def texts_of(peer, part):
    return [m for _, m in peer.out if type(m) is FcuText and part in m.text]


def test_a_slow_stream_is_counted_reported_once_and_listed_until_it_is_back(flying):
    flying.run(5.0)
    before = flying.node.streams.losses
    flying.grant_streams, flying.streams[ATTITUDE] = False, 0.2
    flying.run(6.0)
    (text,) = texts_of(flying, "ATTITUDE_QUATERNION")
    assert text.severity == 4 and text.text.startswith("ATTITUDE_QUATERNION arrives at 5.")
    assert text.text.endswith("Hz instead of 50 Hz; requested again")
    assert "ATTITUDE_QUATERNION" in last_status(flying).slow_streams and flying.node.streams.losses == before + 1
    flying.grant_streams = True
    flying.run(10.0)
    assert "ATTITUDE_QUATERNION" not in last_status(flying).slow_streams
    assert "LOCAL_POSITION_NED" not in last_status(flying).slow_streams


def test_the_status_has_the_rate_at_which_the_imu_arrives(flying):
    assert last_status(flying).imu_rate_hz == 0.0
    flying.content[IMU] = imu
    flying.streams[IMU] = 0.02  # PX4's own rate, because another station requested it
    flying.grant_streams = False
    flying.run(8.0)
    assert last_status(flying).imu_rate_hz == pytest.approx(50, abs=1.0)
    assert "HIGHRES_IMU" in last_status(flying).slow_streams


def on_a_slow_link(vehicle):
    fcu = msgspec.structs.replace(vehicle.fcu, imu_rate_hz=0.0)
    return Peer(FcuNode(msgspec.structs.replace(vehicle, fcu=fcu)))


def test_on_a_slow_link_the_imu_that_px4_sends_by_itself_is_switched_off_and_not_taken(vehicle):
    peer = on_a_slow_link(vehicle)
    peer.content[IMU] = imu
    peer.streams[IMU] = 0.02
    published = peer.run(12.0)
    requests = [m for _, m in peer.commands(common.MAV_CMD_SET_MESSAGE_INTERVAL) if int(m.param1) == IMU]
    assert [m.param2 for m in requests] == [-1.0]
    assert not any(type(m) is FcuImu for m in published)
    assert math.isnan(last_status(peer).imu_rate_hz) and "HIGHRES_IMU" not in last_status(peer).slow_streams

    peer.grant_streams, peer.streams[IMU] = False, 0.02  # another station requests it
    assert not any(type(m) is FcuImu for m in peer.run(60.0))
    requests = [m for _, m in peer.commands(common.MAV_CMD_SET_MESSAGE_INTERVAL) if int(m.param1) == IMU]
    assert 2 < len(requests) < 12
    assert "HIGHRES_IMU" not in last_status(peer).slow_streams and not any(type(m) is FcuText for m in peer.out[-1000:])


def test_on_a_slow_link_the_imu_is_not_requested(vehicle):
    peer = on_a_slow_link(vehicle)
    peer.run(6.0)
    requested = {int(m.param1) for _, m in peer.commands(common.MAV_CMD_SET_MESSAGE_INTERVAL)}
    assert ATTITUDE in requested and IMU not in requested
    assert math.isnan(last_status(peer).imu_rate_hz) and "HIGHRES_IMU" not in last_status(peer).slow_streams


def test_the_imu_is_published_in_the_axes_of_b_at_the_time_of_the_sample(flying):
    flying.content[IMU] = imu
    sample = [m for m in flying.run(1.0) if type(m) is FcuImu][-1]
    assert sample.valid and flying.now_s - sample.stamp_s < 0.02
    assert sample.accel_B == pytest.approx((0.1, -0.2, 9.8)) and sample.gyro_B == pytest.approx((0.01, -0.02, -0.03))
    partly = imu(flying.boot_ms + 1, updated=0x1F)  # without the gyroscope's z axis
    before = flying.node.counters["bad_content"]
    assert not [
        m for m in flying.deliver(partly, imu(flying.boot_ms + 2, rates=(0, float("nan"), 0))) if type(m) is FcuImu
    ]
    assert flying.node.counters["bad_content"] == before + 2


def test_a_missing_stream_is_reported_once(peer):
    peer.content[RC_CHANNELS] = lambda boot_ms: None
    peer.run(120.0)
    (text,) = texts_of(peer, "RC_CHANNELS")
    assert text.text == "RC_CHANNELS does not arrive (5 Hz requested); requested again" and text.severity == 6
    assert last_status(peer).slow_streams.count("RC_CHANNELS") == 1


def test_the_first_global_position_may_come_late_and_its_absence_is_reported_then(peer):
    peer.content[GLOBAL_POSITION] = lambda boot_ms: None
    peer.run(14.0)
    assert not texts_of(peer, "GLOBAL_POSITION_INT")
    assert "GLOBAL_POSITION_INT" not in last_status(peer).slow_streams
    peer.run(8.0)
    assert [text.text for text in texts_of(peer, "GLOBAL_POSITION_INT")] == [
        "GLOBAL_POSITION_INT does not arrive (2 Hz requested); requested again"
    ]
    assert "GLOBAL_POSITION_INT" in last_status(peer).slow_streams


def test_a_stream_without_a_source_is_requested_less_and_less_often(flying):
    flying.content[RC_CHANNELS] = lambda boot_ms: None
    begin_s = flying.now_s
    flying.run(120.0)
    times = [
        t
        for t, m in flying.commands(common.MAV_CMD_SET_MESSAGE_INTERVAL)
        if int(m.param1) == RC_CHANNELS and t > begin_s
    ]
    assert 6 <= len(times) <= 14
    assert times[-1] - times[-2] >= 15.0


def test_streams_start_although_the_first_requests_are_lost(peer):
    peer.grant_streams = False
    peer.results[common.MAV_CMD_SET_MESSAGE_INTERVAL] = [None] * 4
    peer.run(2.0)
    peer.grant_streams = True
    peer.results.clear()
    peer.run(8.0)
    assert {ATTITUDE, POSITION, RC_CHANNELS, LANDED} <= set(peer.streams)


def test_silence_for_a_second_is_a_lost_link_and_its_return_requests_the_streams_again(flying):
    flying.silent = True
    flying.run(0.9)
    assert last_status(flying).connected
    flying.run(0.3)
    s = last_status(flying)
    assert not s.connected and not s.valid
    flying.streams.clear()
    flying.run(30.0)
    flying.silent = False
    flying.run(1.2)  # the next heartbeat, not the backed-off schedule of a stream that did not come
    assert last_status(flying).connected
    assert {ATTITUDE, POSITION, RC_CHANNELS} <= set(flying.streams)
    assert flying.node.counters["link_losses"] == 1


def test_a_refused_stream_is_not_requested_until_the_flight_controller_comes_back(peer):
    peer.grant_streams = False
    peer.results[common.MAV_CMD_SET_MESSAGE_INTERVAL] = common.MAV_RESULT_UNSUPPORTED
    peer.run(20.0)
    assert len(peer.commands(common.MAV_CMD_SET_MESSAGE_INTERVAL)) == len(peer.node.streams.streams)  # each once
    peer.silent = True
    peer.run(3.0)
    peer.silent, peer.grant_streams = False, True  # another firmware
    peer.results.clear()
    peer.run(2.5)
    assert {ATTITUDE, POSITION, RC_CHANNELS} <= set(peer.streams)


def test_mode_and_armed_are_invalid_without_heartbeats_although_streams_continue(flying):
    flying.heartbeat_due_s = math.inf
    flying.run(3.5)
    assert not last_status(flying).connected
    assert not of(FcuAttitude, flying.run(0.1))[-1].valid


def test_a_restart_of_the_flight_controller_resets_clock_and_streams(flying):
    flying.run(5.0)
    flying.reboot()
    out = []
    for ms in (10, 40, 70):
        out += flying.deliver(common.MAVLink_attitude_quaternion_message(ms, 1, 0, 0, 0, 0, 0, 0))
        flying.now_s += 0.03
    assert [m.valid for m in of(FcuAttitude, out)] == [False]  # the third confirms the restart
    assert len([m for m in of(FcuText, out) if m.text.startswith("the flight controller restarted")]) == 1
    out = flying.run(6.0)
    assert {ATTITUDE, POSITION} <= set(flying.streams)
    a = of(FcuAttitude, out)[-1]
    assert a.valid and a.stamp_s == pytest.approx(flying.now_s, abs=0.02)
    assert last_status(flying).timesync_offset_s == pytest.approx(flying.boot_at_s, abs=2e-3)
    assert flying.node.counters["reboots"] == 1


def test_a_restart_without_any_stream_is_detected_by_the_clock(flying):
    flying.reboot()
    flying.run(6.0)
    assert flying.node.counters["reboots"] == 1
    assert {ATTITUDE, POSITION} <= set(flying.streams)


def test_other_systems_change_nothing(peer):
    other = common.MAVLink(None, srcSystem=9, srcComponent=1)
    for _ in range(400):
        peer.feed(common.MAVLink_heartbeat_message(13, 12, 128, 6 << 16, 4, 3).pack(other))
        peer.feed(common.MAVLink_local_position_ned_message(1, 1, 1, 1, 1, 1, 1).pack(other))
        peer.heartbeat_due_s = math.inf
        peer.run(0.01)
    s = last_status(peer)
    assert not s.connected and not s.armed and s.link_errors == 0
    texts = of(FcuText, [m for _, m in peer.out])
    (text,) = [t.text for t in texts]
    assert text.startswith("received flight controllers with system id [9], but the vehicle file expects 1")


@pytest.mark.parametrize(
    ("autopilot", "vehicle_type", "text"),
    [(3, 13, "MAV_AUTOPILOT_ARDUPILOTMEGA, not PX4"), (12, 1, "MAV_TYPE_FIXED_WING, not a multirotor"),
     (12, 200, "MAV_TYPE 200, not a multirotor")],
)  # fmt: skip
def test_an_autopilot_the_stack_cannot_fly_is_one_text_and_no_connection(peer, autopilot, vehicle_type, text):
    peer.autopilot, peer.type = autopilot, vehicle_type
    texts = of(FcuText, peer.run(10.0))
    assert len(texts) == 1 and text in texts[0].text and texts[0].severity <= 3
    assert not last_status(peer).connected


@pytest.mark.parametrize(("autopilot", "vehicle_type"), [(3, 13), (8, 6), (8, 18)])
def test_a_heartbeat_of_another_component_with_the_same_ids_ends_no_flight(flying, autopilot, vehicle_type):
    flying.armed = True
    flying.run(3.0)
    other = common.MAVLink_heartbeat_message(vehicle_type, autopilot, 0, 0, 4, 3)
    for _ in range(5):
        texts = of(FcuText, flying.deliver(other))
        flying.run(1.0)
        status = last_status(flying)
        assert status.connected and status.armed and status.mode != FcuMode.UNKNOWN
    assert any("second component" in t.text for t in of(FcuText, [m for _, m in flying.out])), texts


def test_a_flight_controller_that_becomes_another_for_good_is_no_longer_flown(flying):
    flying.armed = True
    flying.run(2.0)
    flying.autopilot = common.MAV_AUTOPILOT_ARDUPILOTMEGA
    flying.run(5.0)
    assert not last_status(flying).connected


def test_content_that_is_no_number_or_no_rotation_is_dropped_and_counted(flying):
    ms = flying.boot_ms
    bad = [
        common.MAVLink_attitude_quaternion_message(ms + 1, 0, 0, 0, 0, 0, 0, 0),
        common.MAVLink_attitude_quaternion_message(ms + 2, math.nan, 0, 0, 0, 0, 0, 0),
        common.MAVLink_attitude_quaternion_message(ms + 3, 1, 0, 0, 0, math.inf, 0, 0),
        common.MAVLink_local_position_ned_message(ms + 4, math.nan, 0, 0, 0, 0, 0),
    ]
    assert flying.deliver(*bad) == []
    assert flying.node.counters["bad_content"] == 4


def test_texts_have_their_severity_and_long_ones_are_joined(flying):
    flying.deliver(common.MAVLink_statustext_message(4, b"Preflight Fail: compass"))
    long = "Arming denied: " + "resolve system health failures first " * 3
    raw = long.strip().encode()
    chunks = [raw[i : i + 50] for i in range(0, len(raw), 50)]
    out = flying.deliver(*(common.MAVLink_statustext_message(3, c, 77, i) for i, c in enumerate(chunks)))
    assert [(t.severity, t.text) for t in of(FcuText, out)] == [(3, long.strip())]
    assert "Preflight Fail: compass" in [m.text for m in of(FcuText, [m for _, m in flying.out])]


def test_a_text_with_a_lost_chunk_is_still_published(flying):
    flying.deliver(
        common.MAVLink_statustext_message(3, b"a" * 50, 5, 0), common.MAVLink_statustext_message(3, b"end", 5, 2)
    )
    (text,) = of(FcuText, flying.run(1.5))
    assert text.text == "a" * 50 + "…" + "end"


def test_corrupted_content_of_any_message_raises_nothing(flying):
    rng = random.Random(5)
    ids = [0, 1, 24, 22, 31, 32, 65, 77, 111, 147, 242, 245, 253, CURRENT_MODE]
    for i in range(5000):
        number = rng.choice(ids)
        seed = 193 if number == CURRENT_MODE else common.mavlink_map[number].crc_extra
        payload = rng.randbytes(rng.randrange(0, 60))
        head = bytes((len(payload), 0, 0, i & 0xFF, 1, 1, number & 0xFF, number >> 8, 0))
        flying.feed(b"\xfd" + head + payload + checksum(head + payload, seed).to_bytes(2, "little"))
        if i % 10 == 0:
            flying.collect(flying.node.step(flying.now_s))


def test_the_receivers_own_solution_is_absolute(peer):
    fix = {"lat": 340000000, "lon": -810000000, "h_acc": 700, "v_acc": 1100, "vel": 200, "cog": 9000}

    def gps(boot_ms):
        return common.MAVLink_gps_raw_int_message(
            0, 3, fix["lat"], fix["lon"], 100_000, 70, 110, fix["vel"], fix["cog"], 12, 0, fix["h_acc"], fix["v_acc"]
        )

    peer.content[GPS_RAW_INT] = gps
    peer.run(3.0)
    assert last_status(peer).gnss_position == (34.0, -81.0, 100.0)
    fix["lat"] += 900  # 10 m to the north
    fix["lon"] += 1086
    peer.run(1.0)
    s = last_status(peer)
    assert between((34.0, -81.0, 100.0), s.gnss_position) == pytest.approx((10.0, 10.0, 0.0), abs=0.02)
    assert s.gnss_v_W == pytest.approx((2.0, 0.0))
    assert (s.gnss_h_acc_m, s.gnss_v_acc_m, s.gnss_hdop) == (0.7, 1.1, 0.7)
    fix.update(h_acc=0, v_acc=4_294_967_295, vel=65535)  # as in older firmware
    peer.run(1.0)
    s = last_status(peer)
    assert math.isnan(s.gnss_h_acc_m) and math.isnan(s.gnss_v_acc_m) and s.gnss_v_W is None
    peer.content[GPS_RAW_INT] = lambda boot_ms: common.MAVLink_gps_raw_int_message(0, 1, 0, 0, 0, 0, 0, 0, 0, 0)
    peer.run(1.0)
    assert last_status(peer).gnss_position is None and not last_status(peer).gnss_ok


def test_a_restart_of_the_process_in_flight_does_not_move_the_guard(peer, vehicle):
    """The receiver's position was once counted from the first fix of the process."""
    guard, place = RawGuard(by_receiver=True), {"lat": 340000000}
    peer.content[GPS_RAW_INT] = lambda boot_ms: common.MAVLink_gps_raw_int_message(
        0, 3, place["lat"], -810000000, 100_000, 70, 110, 0, 0, 12, 0, 700, 1100
    )

    def north_m(seconds, on_ground=False):
        for _ in range(round(seconds / 0.1)):
            for status in of(FcuStatus, peer.run(0.1)):
                if status.connected:
                    guard.take_status(status, status.stamp_s)
            if on_ground:
                guard.note_ground()
        return guard.motion(peer.now_s).p[1]

    assert north_m(8.0, on_ground=True) == 0.0
    place["lat"] += 900
    assert north_m(1.0) == pytest.approx(10.0, abs=0.02)
    peer.node = FcuNode(vehicle)
    peer.streams.clear()
    assert north_m(12.0) == pytest.approx(10.0, abs=0.02)


def test_status_has_pressure_altitude_resets_and_cells(peer):
    peer.run(3.0)
    s = last_status(peer)
    assert (s.baro_altitude_m, s.position_resets, s.cells_v) == (148.5, 7, (3.9, 3.9, 3.9, 3.9))
    assert 0.0 <= s.stamp_s - s.position_resets_s < 0.3
    peer.content[BATTERY] = lambda boot_ms: common.MAVLink_battery_status_message(
        0, 0, 0, 2500, [15600] + [65535] * 9, 1000, 0, 0, 73
    )
    peer.content[ALTITUDE] = peer.content[ODOMETRY] = lambda boot_ms: None
    peer.run(3.0)
    s = last_status(peer)
    assert math.isnan(s.baro_altitude_m) and s.position_resets is None
    assert s.cells_v == () and s.battery_voltage_v == pytest.approx(15.6)


def test_a_ground_station_counts_by_its_heartbeat_through_the_flight_controller(peer):
    peer.run(2.0)
    assert math.isnan(last_status(peer).ground_station_age_s)
    station = common.MAVLink(None, srcSystem=255, srcComponent=190)
    heartbeat = common.MAVLink_heartbeat_message(common.MAV_TYPE_GCS, common.MAV_AUTOPILOT_INVALID, 0, 0, 4, 3)
    peer.collect(peer.node.handle(LinkRx(stamp_s=peer.now_s, data=heartbeat.pack(station)), peer.now_s))
    peer.run(4.0)
    assert last_status(peer).ground_station_age_s == pytest.approx(4.0, abs=0.15)

"""The node's conversation with the flight controller: state, streams, clock, restarts, texts."""

import math

import pytest
from pymavlink.dialects.v20 import common

from companion.core.messages import FcuAttitude, FcuPosition, FcuStatus, FcuText
from companion.fcu.link.framing import CURRENT_MODE, checksum
from companion.fcu.modes import custom_mode, mode_name


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
    """An attitude that was 40 ms on its way."""
    flying.content[31] = lambda boot_ms: None
    flying.run(0.1)
    boot_ms = flying.boot_ms - 40
    (a,) = flying.tell(common.MAVLink_attitude_quaternion_message(boot_ms, 1, 0, 0, 0, 0, 0, 0))
    assert a.stamp_s == pytest.approx(flying.now_s - 0.040, abs=0.0015)


def test_before_the_clocks_agree_messages_are_marked(peer):
    peer.answer_timesync = False
    out = peer.run(3.0)
    attitudes = of(FcuAttitude, out)
    assert attitudes and not any(m.valid for m in attitudes)
    peer.answer_timesync = True
    assert of(FcuAttitude, peer.run(3.0))[-1].valid


def test_status_gathers_everything_slow(flying):
    s = last_status(flying)
    assert (s.connected, s.valid, s.armed, s.mode, s.landed) == (True, True, False, "POSCTL", True)
    assert s.battery_voltage_v == pytest.approx(15.6) and s.battery_remaining == pytest.approx(0.73)
    assert s.rc_ok and s.rc_channels_us == (1500,) * 8 and s.gnss_ok
    assert s.home_W == (2.0, 1.0, 0.5)
    assert s.timesync_offset_s == pytest.approx(10.0, abs=2e-3) and s.timesync_rtt_s == pytest.approx(0.002)
    assert s.link_errors == 0
    assert len(of(FcuStatus, flying.run(1.0))) == 10


def test_what_stops_coming_becomes_unknown(flying):
    for number in (65, 147, 1, 24, 245):
        flying.content[number] = lambda boot_ms: None
    flying.run(6.0)
    s = last_status(flying)
    assert not s.rc_ok and not s.gnss_ok and not s.landed and s.rc_channels_us == ()
    assert math.isnan(s.battery_voltage_v) and math.isnan(s.battery_remaining)


def test_an_unhealthy_receiver_is_not_ok_even_while_channels_come(flying):
    flying.content[1] = lambda boot_ms: common.MAVLink_sys_status_message(
        0x10000, 0x10000, 0, 0, 15600, 0, 73, 0, 0, 0, 0, 0, 0
    )
    flying.run(1.0)
    assert not last_status(flying).rc_ok


@pytest.mark.parametrize(("health", "ready"), [(0x10000000, True), (0x10000, False)])
def test_px4s_own_word_on_arming_is_told(flying, health, ready):
    """PX4 calls its pre-arm check neither present nor enabled; it is a bit of health alone."""
    flying.content[1] = lambda boot_ms: common.MAVLink_sys_status_message(
        0x2F, 0x2F, health | 0x2B, 0, 15600, 0, 73, 0, 0, 0, 0, 0, 0
    )
    flying.run(1.0)
    assert last_status(flying).ready_to_arm is ready and last_status(flying).unhealthy == "compass"


def test_without_its_system_status_nothing_is_known_of_arming(flying):
    flying.content[1] = lambda boot_ms: None
    flying.run(6.0)
    assert last_status(flying).ready_to_arm is None and last_status(flying).unhealthy == ""


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
    peer.content[147] = lambda boot_ms: None
    peer.run(3.0)
    assert last_status(peer).battery_voltage_v == pytest.approx(15.6)


@pytest.mark.parametrize(
    ("main", "sub", "name"),
    [(1, 0, "MANUAL"), (2, 0, "ALTCTL"), (3, 0, "POSCTL"), (5, 0, "ACRO"), (6, 0, "OFFBOARD"), (7, 0, "STABILIZED"),
     (4, 1, "AUTO_READY"), (4, 2, "AUTO_TAKEOFF"), (4, 3, "AUTO_LOITER"), (4, 4, "AUTO_MISSION"), (4, 5, "AUTO_RTL"),
     (4, 6, "AUTO_LAND"), (4, 9, "AUTO_PRECLAND"), (12, 0, "UNKNOWN"), (4, 99, "UNKNOWN")],
)  # fmt: skip
def test_modes_have_the_names_the_stack_uses(flying, main, sub, name):
    assert mode_name(custom_mode(main, sub)) == name
    flying.custom_mode = custom_mode(main, sub)
    flying.run(1.1)
    assert last_status(flying).mode == name


def tell_current_mode(peer, number):
    payload = number.to_bytes(4, "little") + bytes(5)
    head = bytes((len(payload), 0, 0, peer.mav.seq, 1, 1, CURRENT_MODE & 0xFF, CURRENT_MODE >> 8, 0))
    peer.mav.seq = (peer.mav.seq + 1) % 256
    return peer.feed(b"\xfd" + head + payload + checksum(head + payload, 193).to_bytes(2, "little"))


def heartbeat_requests(peer):
    return [m for _, m in peer.commands(common.MAV_CMD_REQUEST_MESSAGE) if m.param1 == 0]


def test_current_mode_tells_a_mode_before_the_heartbeat_does(flying):
    tell_current_mode(flying, custom_mode(6))
    flying.run(0.11)
    assert last_status(flying).mode == "OFFBOARD"


def test_a_heartbeat_is_asked_for_out_of_turn_when_the_mode_changes(flying):
    tell_current_mode(flying, custom_mode(3))
    assert heartbeat_requests(flying) == []  # no news
    tell_current_mode(flying, custom_mode(4, 5))
    assert len(heartbeat_requests(flying)) == 1


def test_the_mode_px4_returns_to_in_disarming_is_not_told_before_the_disarming(flying):
    """PX4 goes back to OFFBOARD as it disarms; its heartbeat with both may be a second behind CURRENT_MODE."""
    flying.armed, flying.custom_mode = True, custom_mode(4, 6)
    flying.run(1.1)
    assert last_status(flying).landed
    flying.heartbeat_due_s = flying.now_s + 0.9
    tell_current_mode(flying, custom_mode(6))
    statuses = of(FcuStatus, flying.run(0.8))
    assert {(s.armed, s.mode) for s in statuses} == {(True, "AUTO_LAND")}
    flying.armed, flying.custom_mode = False, custom_mode(6)
    statuses = of(FcuStatus, flying.run(1.0))
    assert {(s.armed, s.mode) for s in statuses} == {(True, "AUTO_LAND"), (False, "OFFBOARD")}


def test_a_mode_changed_in_the_air_is_told_at_once(flying):
    flying.content[245] = lambda boot_ms: common.MAVLink_extended_sys_state_message(0, 2)
    flying.armed, flying.custom_mode = True, custom_mode(6)
    flying.run(1.1)
    tell_current_mode(flying, custom_mode(3))
    flying.heartbeat_due_s = flying.now_s + 0.9
    assert {s.mode for s in of(FcuStatus, flying.run(0.5))} == {"POSCTL"}


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


def test_timesync_asks_at_ten_hertz_first_and_rarely_once_settled(peer):
    peer.run(2.0)
    assert 18 <= len(peer.sent("TIMESYNC")) <= 21
    peer.run(28.0)
    before = len(peer.sent("TIMESYNC"))
    peer.run(10.0)
    assert 19 <= len(peer.sent("TIMESYNC")) - before <= 21


def test_the_flight_controllers_own_timesync_is_answered(flying):
    before = len(flying.sent("TIMESYNC"))
    flying.tell(common.MAVLink_timesync_message(0, 42))
    answer = flying.sent("TIMESYNC")[before]
    assert answer.ts1 == 42 and answer.tc1 == round(flying.now_s * 1e9)


def test_streams_are_asked_for_at_the_vehicles_rates(flying):
    asked = {int(m.param1): m.param2 for _, m in flying.commands(common.MAV_CMD_SET_MESSAGE_INTERVAL)}
    assert asked[31] == asked[32] == 20_000
    assert {1, 24, 65, 147, 242, 245, CURRENT_MODE} <= set(asked)
    params = [m.param3 for _, m in flying.commands(common.MAV_CMD_SET_MESSAGE_INTERVAL)]
    assert set(params) == {0.0}  # PX4 refuses others


def test_a_stream_that_falls_short_is_asked_for_again_and_good_ones_are_left_alone(flying):
    flying.run(5.0)
    begin_s = flying.now_s
    flying.streams[31] = 0.2  # another station slowed the attitude down
    flying.run(6.0)
    asked = [int(m.param1) for t, m in flying.commands(common.MAV_CMD_SET_MESSAGE_INTERVAL) if t > begin_s]
    assert set(asked) <= {31, CURRENT_MODE} and asked.count(31) == 1
    assert flying.streams[31] == pytest.approx(0.02)


def texts_of(peer, word):
    return [m for _, m in peer.out if type(m) is FcuText and word in m.text]


def test_a_stream_that_falls_short_is_counted_told_once_and_named_until_it_is_back(flying):
    flying.run(5.0)
    before = flying.node.streams.losses
    flying.grant_streams, flying.streams[31] = False, 0.2
    flying.run(6.0)
    (text,) = texts_of(flying, "ATTITUDE_QUATERNION")
    assert text.severity == 4 and text.text.startswith("ATTITUDE_QUATERNION comes at 5.")
    assert text.text.endswith("Hz instead of 50; asked again")
    assert "ATTITUDE_QUATERNION" in last_status(flying).slow_streams and flying.node.streams.losses == before + 1
    flying.grant_streams = True
    flying.run(10.0)
    assert "ATTITUDE_QUATERNION" not in last_status(flying).slow_streams
    assert "LOCAL_POSITION_NED" not in last_status(flying).slow_streams


def test_a_missing_stream_is_told_once_however_long_it_stays_away(peer):
    peer.content[65] = lambda boot_ms: None
    peer.run(120.0)
    (text,) = texts_of(peer, "RC_CHANNELS")
    assert text.text == "RC_CHANNELS does not come, asked for at 5 Hz; asked again" and text.severity == 6
    assert last_status(peer).slow_streams.count("RC_CHANNELS") == 1


def test_a_stream_without_a_source_is_asked_for_ever_less_often(flying):
    flying.content[65] = lambda boot_ms: None
    begin_s = flying.now_s
    flying.run(120.0)
    times = [t for t, m in flying.commands(common.MAV_CMD_SET_MESSAGE_INTERVAL) if int(m.param1) == 65 and t > begin_s]
    assert 6 <= len(times) <= 14
    assert times[-1] - times[-2] >= 15.0


def test_streams_come_even_when_the_first_requests_are_lost(peer):
    peer.grant_streams = False
    peer.results[common.MAV_CMD_SET_MESSAGE_INTERVAL] = [None] * 4
    peer.run(2.0)
    peer.grant_streams = True
    peer.results.clear()
    peer.run(8.0)
    assert {31, 32, 65, 245} <= set(peer.streams)


def test_silence_for_a_second_is_a_lost_link_and_its_return_asks_for_streams_anew(flying):
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
    assert {31, 32, 65} <= set(flying.streams)
    assert flying.node.counters["link_losses"] == 1


def test_a_refused_stream_is_left_alone_until_the_flight_controller_comes_back(peer):
    peer.grant_streams = False
    peer.results[common.MAV_CMD_SET_MESSAGE_INTERVAL] = common.MAV_RESULT_UNSUPPORTED
    peer.run(20.0)
    assert len(peer.commands(common.MAV_CMD_SET_MESSAGE_INTERVAL)) == 9  # each once
    peer.silent = True
    peer.run(3.0)
    peer.silent, peer.grant_streams = False, True  # another firmware
    peer.results.clear()
    peer.run(2.5)
    assert {31, 32, 65} <= set(peer.streams)


def test_streams_without_heartbeats_do_not_keep_mode_and_armed_believed(flying):
    flying.heartbeat_due_s = math.inf
    flying.run(3.5)
    assert not last_status(flying).connected
    assert not of(FcuAttitude, flying.run(0.1))[-1].valid


def test_a_restart_of_the_flight_controller_starts_clock_and_streams_anew(flying):
    flying.run(5.0)
    flying.reboot()
    out = []
    for ms in (10, 40, 70):
        out += flying.tell(common.MAVLink_attitude_quaternion_message(ms, 1, 0, 0, 0, 0, 0, 0))
        flying.now_s += 0.03
    assert [m.valid for m in of(FcuAttitude, out)] == [False]  # the third makes it sure
    assert "the flight controller restarted" in [m.text for m in of(FcuText, out)]
    out = flying.run(6.0)
    assert {31, 32} <= set(flying.streams)
    a = of(FcuAttitude, out)[-1]
    assert a.valid and a.stamp_s == pytest.approx(flying.now_s, abs=0.02)
    assert last_status(flying).timesync_offset_s == pytest.approx(flying.boot_at_s, abs=2e-3)
    assert flying.node.counters["reboots"] == 1


def test_a_restart_with_no_stream_left_is_seen_by_the_clock(flying):
    flying.reboot()
    flying.run(6.0)
    assert flying.node.counters["reboots"] == 1
    assert {31, 32} <= set(flying.streams)


def test_other_systems_change_nothing(peer):
    stranger = common.MAVLink(None, srcSystem=9, srcComponent=1)
    for _ in range(400):
        peer.feed(common.MAVLink_heartbeat_message(13, 12, 128, 6 << 16, 4, 3).pack(stranger))
        peer.feed(common.MAVLink_local_position_ned_message(1, 1, 1, 1, 1, 1, 1).pack(stranger))
        peer.heartbeat_due_s = math.inf
        peer.run(0.01)
    s = last_status(peer)
    assert not s.connected and not s.armed and s.link_errors == 0
    texts = of(FcuText, [m for _, m in peer.out])
    assert [t.text for t in texts] == ["heard flight controllers with system id [9], but the vehicle file says 1"]


@pytest.mark.parametrize(
    ("autopilot", "vehicle_type", "words"),
    [(3, 13, "MAV_AUTOPILOT_ARDUPILOTMEGA, not PX4"), (12, 1, "MAV_TYPE_FIXED_WING, not a multirotor"),
     (12, 200, "MAV_TYPE 200, not a multirotor")],
)  # fmt: skip
def test_an_autopilot_the_stack_cannot_fly_is_one_clear_text_and_no_connection(peer, autopilot, vehicle_type, words):
    peer.autopilot, peer.type = autopilot, vehicle_type
    texts = of(FcuText, peer.run(10.0))
    assert len(texts) == 1 and words in texts[0].text and texts[0].severity <= 3
    assert not last_status(peer).connected


def test_content_that_is_no_number_or_no_rotation_is_dropped_and_counted(flying):
    ms = flying.boot_ms
    bad = [
        common.MAVLink_attitude_quaternion_message(ms + 1, 0, 0, 0, 0, 0, 0, 0),
        common.MAVLink_attitude_quaternion_message(ms + 2, math.nan, 0, 0, 0, 0, 0, 0),
        common.MAVLink_attitude_quaternion_message(ms + 3, 1, 0, 0, 0, math.inf, 0, 0),
        common.MAVLink_local_position_ned_message(ms + 4, math.nan, 0, 0, 0, 0, 0),
    ]
    assert flying.tell(*bad) == []
    assert flying.node.counters["bad_content"] == 4


def test_texts_come_with_severity_and_long_ones_in_one_piece(flying):
    flying.tell(common.MAVLink_statustext_message(4, b"Preflight Fail: compass"))
    long = "Arming denied: " + "resolve system health failures first " * 3
    raw = long.strip().encode()
    chunks = [raw[i : i + 50] for i in range(0, len(raw), 50)]
    out = flying.tell(*(common.MAVLink_statustext_message(3, c, 77, i) for i, c in enumerate(chunks)))
    assert [(t.severity, t.text) for t in of(FcuText, out)] == [(3, long.strip())]
    assert "Preflight Fail: compass" in [m.text for m in of(FcuText, [m for _, m in flying.out])]


def test_a_text_with_a_lost_chunk_still_comes(flying):
    flying.tell(
        common.MAVLink_statustext_message(3, b"a" * 50, 5, 0), common.MAVLink_statustext_message(3, b"end", 5, 2)
    )
    (text,) = of(FcuText, flying.run(1.5))
    assert text.text == "a" * 50 + "…" + "end"


def test_broken_content_of_any_message_raises_nothing(flying):
    import random

    rng = random.Random(5)
    ids = [0, 1, 24, 22, 31, 32, 65, 77, 111, 147, 242, 245, 253, CURRENT_MODE]
    for i in range(5000):
        number = rng.choice(ids)
        seed = 193 if number == CURRENT_MODE else common.mavlink_map[number].crc_extra
        payload = rng.randbytes(rng.randrange(0, 60))
        head = bytes((len(payload), 0, 0, i & 0xFF, 1, 1, number & 0xFF, number >> 8, 0))
        flying.feed(b"\xfd" + head + payload + checksum(head + payload, seed).to_bytes(2, "little"))
        if i % 10 == 0:
            flying.take(flying.node.step(flying.now_s))

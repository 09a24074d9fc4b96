"""The MAVLink link: parameters, clock, intervals, requests, messages for other systems, corrupted bytes."""

import math
import random
import struct
import time
from itertools import pairwise

import numpy as np
import pytest
from autopilot_flight import QUIET, STEP_S, EmulatorFlight
from pymavlink.dialects.v20 import common

from companion.core.frames import quat_from_rpy, rotation_matrix
from companion.fcu.link.codec import CURRENT_MODE, Codec
from sitl.autopilot.conversion import geodetic, local, q_enu, q_ned
from sitl.autopilot.streams import ONBOARD_RATES_HZ
from sitl.sensors import RangeReading

INTERVAL = common.MAV_CMD_SET_MESSAGE_INTERVAL


def as_int(value: float) -> int:
    return struct.unpack("<i", struct.pack("<f", value))[0]


def test_looks_like_px4_on_a_hexarotor(grounded):
    m = grounded.fresh_heartbeat()
    assert (m.type, m.autopilot, m.get_srcSystem(), m.get_srcComponent()) == (13, 12, 1, 1)
    assert m.custom_mode == 3 << 16 and m.base_mode == 1 | 16 | 64 and m.system_status == 3
    assert grounded.command(common.MAV_CMD_REQUEST_MESSAGE, common.MAVLINK_MSG_ID_AUTOPILOT_VERSION) == 0
    version = grounded.last("AUTOPILOT_VERSION")
    assert version.flight_sw_version == 0x011100FF
    assert version.capabilities & common.MAV_PROTOCOL_CAPABILITY_PARAM_ENCODE_BYTEWISE
    assert version.capabilities & common.MAV_PROTOCOL_CAPABILITY_SET_ATTITUDE_TARGET
    assert all(
        name in grounded.received
        for name in ONBOARD_RATES_HZ
        if name not in ("ATTITUDE_TARGET", "POSITION_TARGET_LOCAL_NED", "CURRENT_MODE")  # unknown to pymavlink
    )


def test_default_rates_are_those_of_the_onboard_link(grounded):
    before = {name: len(grounded.received.get(name, [])) for name in ONBOARD_RATES_HZ}
    grounded.run(4.0)
    for name in ("ATTITUDE", "LOCAL_POSITION_NED", "ATTITUDE_QUATERNION", "ODOMETRY", "SYS_STATUS", "HEARTBEAT"):
        assert len(grounded.received[name]) - before[name] == pytest.approx(4 * ONBOARD_RATES_HZ[name], abs=1)
    assert len(grounded.received["GPS_RAW_INT"]) - before["GPS_RAW_INT"] == pytest.approx(40, abs=2)  # every fix


def test_gps_raw_int_has_the_accuracy_of_the_fix(grounded):
    (_, message), fix = grounded.received["GPS_RAW_INT"][-1], grounded.autopilot.stack.fix
    assert (message.h_acc, message.v_acc) == (round(1e3 * fix.h_acc_m), round(1e3 * fix.v_acc_m))
    assert message.vel_acc == round(1e3 * fix.speed_acc_m_s)


def test_a_range_is_sent_once_and_only_by_an_aircraft_with_a_range_finder(grounded):
    stack = grounded.autopilot.stack
    assert grounded.command(INTERVAL, common.MAVLINK_MSG_ID_DISTANCE_SENSOR, 50_000, 0, 0, 0, 0, 0) == 0
    grounded.run(1.0)
    assert "DISTANCE_SENSOR" not in grounded.received
    stack.range, stack.range_s = RangeReading(3.456, 0.2, 12.0), stack.now_s
    grounded.run(1.0)
    ((_, m),) = grounded.received["DISTANCE_SENSOR"]
    assert (m.current_distance, m.min_distance, m.max_distance) == (345, 20, 1200)
    assert (m.orientation, m.signal_quality) == (common.MAV_SENSOR_ROTATION_NONE, 0)
    stack.range = None


def test_message_intervals_are_honoured(grounded):
    for number, hz in ((32, 50.0), (31, 100.0), (30, -1.0)):
        assert grounded.command(INTERVAL, number, 1e6 / hz if hz > 0 else -1, 0, 0, 0, 0, 0) == 0
    before = {n: len(grounded.received[n]) for n in ("LOCAL_POSITION_NED", "ATTITUDE_QUATERNION", "ATTITUDE")}
    grounded.run(4.0)
    count = {n: len(grounded.received[n]) - before[n] for n in before}
    assert abs(count["LOCAL_POSITION_NED"] - 200) <= 2 and abs(count["ATTITUDE_QUATERNION"] - 400) <= 2
    assert count["ATTITUDE"] == 0
    assert grounded.command(common.MAV_CMD_GET_MESSAGE_INTERVAL, 32) == 0
    assert grounded.last("MESSAGE_INTERVAL").interval_us == 20000
    assert grounded.command(INTERVAL, 30, 0, 0, 0, 0, 0, 0) == 0  # back to the default
    assert grounded.command(common.MAV_CMD_REQUEST_MESSAGE, 244, 30) == 0
    assert grounded.last("MESSAGE_INTERVAL").interval_us == 10000
    assert grounded.command(INTERVAL, 0, 1e6, 0, 0, 0, 0, 0) == common.MAV_RESULT_FAILED  # the heartbeat is fixed
    assert grounded.command(INTERVAL, 9999, 1e6, 0, 0, 0, 0, 0) == common.MAV_RESULT_FAILED
    assert grounded.command(INTERVAL, math.nan, math.nan) == common.MAV_RESULT_DENIED


def test_a_mode_change_is_acknowledged_twice_and_the_second_is_the_answer(flying):
    """As PX4 1.17 does: its receiver accepts, its commander decides."""
    before = len(flying.received["COMMAND_ACK"])
    flying.set_mode(6)  # no setpoints stream
    flying.run(0.1)
    acks = [m for _, m in flying.received["COMMAND_ACK"][before:]]
    assert [m.command for m in acks] == [common.MAV_CMD_DO_SET_MODE] * 2
    assert [m.result for m in acks] == [common.MAV_RESULT_ACCEPTED, common.MAV_RESULT_TEMPORARILY_REJECTED]


def test_current_mode_is_sent_on_a_change_and_twice_a_second_once_requested(flying):
    modes = []
    codec = Codec(1, 191, 1)

    def listen(data):
        modes.extend(m.custom_mode for number, m in codec.decode(data) if number == CURRENT_MODE)

    flying.listener = listen
    assert flying.command(INTERVAL, CURRENT_MODE, 100_000, 0, 0, 0, 0, 0) == 0
    flying.run(4.0)
    assert len(modes) in (6, 7, 8) and set(modes) == {4 << 16 | 3 << 24}
    flying.set_mode(4, 6)
    flying.run(0.12)
    assert modes[-1] == 4 << 16 | 6 << 24


def test_unknown_commands_and_requests_are_refused(grounded):
    assert grounded.command(common.MAV_CMD_NAV_FOLLOW) == common.MAV_RESULT_UNSUPPORTED
    assert grounded.command(common.MAV_CMD_REQUEST_MESSAGE, 9000) == common.MAV_RESULT_DENIED


@pytest.mark.parametrize("value", [0, 1, -1, 2**31 - 1, -(2**31), -8388607, 0x7F800001])
def test_integer_parameters_keep_their_bits(value):
    flight = EmulatorFlight(stream_rates_hz=QUIET)
    flight.peer.robust_parsing = True
    raw = struct.pack("<i", value) + struct.pack("<BB16sB", 1, 1, b"COM_FLIGHT_UUID", 6)
    header = struct.pack("<BBBBBBHB", len(raw), 0, 0, 0, 255, 190, common.MAVLINK_MSG_ID_PARAM_SET, 0)
    crc = common.x25crc(header + raw + bytes([common.MAVLink_param_set_message.crc_extra])).crc
    flight.autopilot.receive(b"\xfd" + header + raw + struct.pack("<H", crc), 0.0)
    assert flight.autopilot.parameters["COM_FLIGHT_UUID"] == value
    flight.run(0.02)
    answer = flight.last("PARAM_VALUE")
    assert struct.unpack("<i", bytes(answer.get_msgbuf())[10:14])[0] == value
    assert answer.param_type == 6


def test_parameters_are_listed_read_and_written(grounded):
    grounded.send(grounded.peer.param_request_list_encode(1, 1))
    grounded.run(2.0)
    values = [m for _, m in grounded.received["PARAM_VALUE"]]
    assert values[0].param_id == "_HASH_CHECK" and values[0].param_index == 65535
    assert [m.param_index for m in values[1:]] == list(range(values[0].param_count))
    assert [m.param_id for m in values[1:]] == sorted(m.param_id for m in values[1:])
    named = {m.param_id: m for m in values}
    assert named["COM_OF_LOSS_T"].param_value == 1.0 and named["COM_OF_LOSS_T"].param_type == 9
    assert as_int(named["NAV_RCL_ACT"].param_value) == 2 and named["NAV_RCL_ACT"].param_type == 6
    grounded.set_parameter("MC_ROLL_P", 6.25)
    assert grounded.last("PARAM_VALUE").param_value == 6.25
    assert grounded.autopilot.attitude.loop.att_p[0] == 6.25
    grounded.send(grounded.peer.param_set_encode(1, 1, b"MC_ROLL_P", 3.0, 6))  # wrong type
    grounded.send(grounded.peer.param_set_encode(1, 1, b"MC_ROLL_P", math.nan, 9))
    grounded.send(grounded.peer.param_request_read_encode(1, 1, b"MC_ROLL_P", -1))
    grounded.run(0.1)
    assert grounded.last("PARAM_VALUE").param_value == 6.25


def test_timesync_carries_the_boot_clock():
    flight = EmulatorFlight(stream_rates_hz=QUIET, boot_offset_s=100.0, clock_drift_ppm=50.0)
    offsets = []
    for _ in range(2):
        flight.run(20.0)
        flight.send(flight.peer.timesync_encode(0, 123456789))
        sent_s = flight.now_s
        flight.run(0.01)
        answer = [m for _, m in flight.received["TIMESYNC"] if m.ts1 == 123456789][-1]
        offsets.append(answer.tc1 * 1e-9 - sent_s)
    assert offsets[0] == pytest.approx(100.0 + 20 * 50e-6, abs=1e-5)
    assert offsets[1] - offsets[0] == pytest.approx(20 * 50e-6, abs=1e-5)
    m = flight.last("LOCAL_POSITION_NED")
    assert m.time_boot_ms * 1e-3 == pytest.approx(flight.now_s + offsets[1], abs=0.03)


def test_answers_to_timesync_are_not_answered(grounded):
    before = len(grounded.received["TIMESYNC"])
    grounded.send(grounded.peer.timesync_encode(5, 6))
    grounded.run(0.05)
    assert all(m.tc1 == 0 for _, m in grounded.received["TIMESYNC"][before:])


def test_ping_mission_and_files_are_answered_enough_for_a_ground_station(grounded):
    grounded.send(grounded.peer.ping_encode(77, 5, 0, 0))
    grounded.send(grounded.peer.mission_request_list_encode(1, 1))
    grounded.send(grounded.peer.file_transfer_protocol_encode(0, 1, 1, [7, 0, 0, 4] + [0] * 247))
    grounded.run(0.02)
    assert any(m.seq == 5 and m.target_system == 255 and m.time_usec == 77 for _, m in grounded.received["PING"])
    assert grounded.last("MISSION_COUNT").count == 0
    payload = grounded.last("FILE_TRANSFER_PROTOCOL").payload
    assert payload[0] == 8 and payload[3] == 129 and payload[5] == 4


def test_messages_for_other_systems_are_ignored_and_counted(grounded):
    ignored = grounded.autopilot.receiver.ignored
    arm = common.MAV_CMD_COMPONENT_ARM_DISARM
    for system, component in ((2, 1), (1, 2), (0, 1)):
        grounded.send(grounded.peer.command_long_encode(system, component, arm, 0, 1, 0, 0, 0, 0, 0, 0))
    grounded.run(0.1)
    assert (
        not grounded.armed and "COMMAND_ACK" in grounded.received
    )  # the acknowledgement is that of the heartbeat request
    assert all(m.command != arm for _, m in grounded.received["COMMAND_ACK"])
    assert grounded.autopilot.receiver.ignored == ignored + 3


def test_random_bytes_and_damaged_frames_do_no_harm():
    flight = EmulatorFlight(stream_rates_hz=QUIET)
    flight.run(4.0)
    rng = random.Random(7)
    good = flight.attitude_target(thrust=0.2)
    good += flight.peer.command_int_encode(1, 1, 0, 192, 0, 0, math.nan, math.inf, -math.inf, 0, 1, 2, 3).pack(
        flight.peer
    )
    good += flight.peer.set_position_target_local_ned_encode(0, 1, 1, 1, 0, *[math.nan] * 11).pack(flight.peer)
    good += flight.peer.param_set_encode(1, 1, b"MC_ROLL_P", math.inf, 9).pack(flight.peer)
    sent = 0
    while sent < 20000:
        kind = rng.randrange(3)
        if kind == 0:
            data = rng.randbytes(rng.randrange(1, 60))
        else:
            damaged = bytearray(good)
            for _ in range(rng.randrange(0, 6)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            data = bytes(damaged[: rng.randrange(1, len(damaged) + 1)])
        flight.autopilot.receive(data, flight.now_s)
        sent += len(data)
    assert flight.autopilot.receiver.bad_data > 1000
    flight.autopilot.receive(b"\0" * 600, flight.now_s)  # ends an incomplete frame in the parser
    flight.run(0.1)
    assert not flight.armed
    assert flight.command(common.MAV_CMD_COMPONENT_ARM_DISARM, 1, 0) == 0


def test_conversions_between_frames_are_inverse_to_each_other():
    rng = np.random.default_rng(3)
    to_ned, to_frd = np.array([[0, 1, 0], [1, 0, 0], [0, 0, -1]]), np.diag([1, -1, -1])
    for _ in range(20):
        q = quat_from_rpy(*rng.uniform(-1.5, 1.5, 3))
        R = rotation_matrix(q)
        np.testing.assert_allclose(rotation_matrix(q_ned(q)), to_ned @ R @ to_frd, atol=1e-12)
        np.testing.assert_allclose(rotation_matrix(q_enu(q_ned(q))), R, atol=1e-12)
        p = rng.uniform(-200, 200, 3)
        np.testing.assert_allclose(local(*geodetic(p)), p, atol=1e-6)


def test_telemetry_is_ned_and_frd():
    flight = EmulatorFlight(height_m=0.0)
    flight.plant.q_WB[:] = quat_from_rpy(0.0, 0.0, math.pi / 2)  # looks north
    flight.run(5.0)
    assert abs(flight.last("ATTITUDE").yaw) < 0.1
    assert flight.last("VFR_HUD").heading in (*range(6), *range(354, 360))
    assert flight.last("HIGHRES_IMU").zacc == pytest.approx(-9.8, abs=0.6)
    o, p = flight.last("LOCAL_POSITION_NED"), flight.autopilot.stack.observer.p
    assert (o.x, o.y, o.z) == pytest.approx((p[1], p[0], -p[2]), abs=0.02)


def test_highres_imu_comes_at_the_requested_rate_and_is_the_mean_since_the_message_before(grounded):
    for rate_hz in (200, 20):
        assert grounded.command(INTERVAL, common.MAVLINK_MSG_ID_HIGHRES_IMU, 1e6 / rate_hz) == 0
        grounded.run(0.1)
        grounded.received["HIGHRES_IMU"].clear()
        grounded.run(2.0)
        assert len(grounded.received["HIGHRES_IMU"]) == pytest.approx(2 * rate_hz, abs=2)
    frame = grounded.sensors.sample(grounded.now_s, grounded.plant)
    grounded.received["HIGHRES_IMU"].clear()
    rates, newest = [], []
    for i in range(250):
        grounded.now_s += STEP_S
        rates.append(math.sin(0.7 * i) + (3.0 if i % 13 == 0 else 0.0))
        grounded.autopilot.step(frame._replace(stamp_s=grounded.now_s, gyro_B=(rates[-1], 0.0, 0.0)))
        sent = common.MAVLink(None).parse_buffer(grounded.autopilot.take_output()) or []
        newest += [(i, message.xgyro) for message in sent if message.get_type() == "HIGHRES_IMU"]
    assert len(newest) == pytest.approx(20, abs=1)
    for (before, _), (at, mean) in pairwise(newest):
        assert mean == pytest.approx(np.mean(rates[before + 1 : at + 1]), abs=1e-6)


def test_highres_imu_is_less_the_observers_bias_and_follows_its_steps():
    flight = EmulatorFlight(height_m=0.0)
    flight.plant.q_WB[:] = quat_from_rpy(0.0, 0.0, math.pi / 2)  # looks north: FRD's x is north, its y east
    flight.run(5.0)
    observer = flight.autopilot.stack.observer

    def mean_force():
        flight.received["HIGHRES_IMU"].clear()
        flight.run(0.08)  # between two fixes the bias stays
        samples = [(m.xacc, m.yacc, m.zacc) for _, m in flight.received["HIGHRES_IMU"]]
        return np.mean(samples, axis=0)

    bias = observer.sensor_bias
    bias[:] = [0.0, 0.0, 0.0]
    before = mean_force()
    bias[:] = [0.5, -2.0, 1.0]  # east, north, up: added to the acceleration
    np.testing.assert_allclose(mean_force() - before, (-2.0, 0.5, -1.0), atol=0.3)
    q = quat_from_rpy(0.4, -0.9, 2.0)
    np.testing.assert_allclose(observer.accel_bias_B(tuple(q)), -rotation_matrix(q).T @ bias, atol=1e-12)


def test_a_step_with_150_messages_a_second_stays_in_its_budget():
    rates = {"HEARTBEAT": 1, "LOCAL_POSITION_NED": 50, "ATTITUDE_QUATERNION": 50, "RC_CHANNELS": 20, "SYS_STATUS": 5}
    rates |= {"GPS_RAW_INT": 10, "EXTENDED_SYS_STATE": 5, "VFR_HUD": 10}
    flight = EmulatorFlight(stream_rates_hz=rates)
    flight.take_off()
    frame = flight.sensors.sample(flight.now_s, flight.plant)
    best = math.inf
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(250):
            flight.now_s += 0.004
            flight.autopilot.step(frame._replace(stamp_s=flight.now_s))
            flight.autopilot.take_output()
        best = min(best, (time.perf_counter() - start) / 250)
    assert best < 300e-6  # 100 µs on an idle machine; three times that on a busy one

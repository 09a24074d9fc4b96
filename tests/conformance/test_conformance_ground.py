"""On the ground and on the wire: identity, clock, parameters, message rates, arming."""

import math
import struct

import pytest
from conformance_flight import ARM, GROUND_STATION, ONBOARD_COMPUTER, REQUEST, SET_INTERVAL, TAKEOFF

ATTITUDE, ATTITUDE_QUATERNION, LOCAL_POSITION, AUTOPILOT_VERSION = 30, 31, 32, 148


def as_int(value: float) -> int:
    return struct.unpack("<i", struct.pack("<f", value))[0]


def test_is_px4_on_a_hexarotor(grounded):
    m = grounded.request(0, "HEARTBEAT")
    assert (m.type, m.autopilot, m.get_srcSystem(), m.get_srcComponent()) == (13, 12, 1, 1)
    assert m.base_mode & 1 and not m.base_mode & 128
    version = grounded.request(AUTOPILOT_VERSION, "AUTOPILOT_VERSION")
    assert version.flight_sw_version >> 16 == 0x0111
    print(hex(version.capabilities), m.base_mode, m.custom_mode, m.system_status)


def test_timesync_carries_the_boot_clock(grounded):
    offsets = []
    for _ in range(5):
        at_s = grounded.now_s
        sent_ns = int(at_s * 1e9) + 1
        grounded.send(grounded.peer.timesync_encode(0, sent_ns))
        answered = lambda: [m for m in grounded.since("TIMESYNC", at_s) if m.ts1 == sent_ns]  # noqa: B023, E731
        assert grounded.run(0.5, answered)
        answer = answered()[0]
        assert answer.tc1 > 0
        offsets.append(answer.tc1 * 1e-9 - at_s)
        grounded.run(0.2)
    assert max(offsets) - min(offsets) < 0.03
    position = grounded.last("LOCAL_POSITION_NED")
    assert position.time_boot_ms * 1e-3 == pytest.approx(grounded.now_s + min(offsets), abs=0.15)


def test_answers_to_timesync_are_not_answered(grounded):
    at_s = grounded.now_s
    grounded.send(grounded.peer.timesync_encode(5, 6))
    grounded.run(0.3)
    assert all(m.ts1 != 6 for m in grounded.since("TIMESYNC", at_s))


def test_integers_travel_as_bits_in_the_float_field(grounded):
    m = grounded.parameter("COM_FLTMODE6")
    assert m.param_type == 6 and as_int(m.param_value) == 2
    m = grounded.parameter("MC_ROLL_P")
    assert m.param_type == 9 and m.param_value == pytest.approx(5.0)


def test_parameters_are_set_and_keep_their_type(grounded):
    assert as_int(grounded.set_parameter("COM_RC_OVERRIDE", 3).param_value) == 3
    assert as_int(grounded.parameter("COM_RC_OVERRIDE").param_value) == 3
    assert grounded.set_parameter("MC_ROLL_P", 6.25).param_value == 6.25
    grounded.set_parameter("MC_ROLL_P", 3.0, kind=6)  # a REAL32 called INT32
    assert grounded.parameter("MC_ROLL_P").param_value == 6.25
    assert grounded.set_parameter("NO_SUCH_NAME", 1.0) is None


def test_the_parameter_list_is_complete_and_counted(grounded):
    at_s = grounded.now_s
    grounded.send(grounded.peer.param_request_list_encode(1, 1))
    grounded.run(4.0)
    values = {m.param_id: m for m in grounded.since("PARAM_VALUE", at_s)}
    assert values["COM_OF_LOSS_T"].param_value == 1.0
    counts = {m.param_count for m in values.values()}
    assert len(counts) == 1
    indices = [m.param_index for m in grounded.since("PARAM_VALUE", at_s) if m.param_index != 65535]
    assert indices[0] == 0 and all(b - a == 1 for a, b in zip(indices, indices[1:], strict=False))
    assert values["_HASH_CHECK"].param_index == 65535


def test_message_intervals_are_honoured(grounded):
    assert grounded.set_interval(LOCAL_POSITION, 50.0) == [0]
    assert grounded.set_interval(ATTITUDE_QUATERNION, 50.0) == [0]
    assert grounded.command(SET_INTERVAL, ATTITUDE, -1, 0, 0, 0, 0, 0) == [0]
    grounded.run(0.5)
    at_s = grounded.now_s
    grounded.run(4.0)
    assert len(grounded.since("LOCAL_POSITION_NED", at_s)) == pytest.approx(200, rel=0.1)
    assert len(grounded.since("ATTITUDE_QUATERNION", at_s)) == pytest.approx(200, rel=0.1)
    assert grounded.since("ATTITUDE", at_s) == []
    assert grounded.command(SET_INTERVAL, 9999, 1e5, 0, 0, 0, 0, 0) == [4]


def test_unknown_commands_and_requests_are_refused(grounded):
    assert grounded.command(33) == [3]  # NAV_FOLLOW: unsupported
    assert grounded.command(REQUEST, 9000, 0, 0, 0, 0, 0, 0) == [2]


@pytest.mark.parametrize("heartbeat, sent", [(GROUND_STATION, True), (ONBOARD_COMPUTER, False), (None, False)])
def test_status_texts_go_to_ground_stations(begin, heartbeat, sent):
    flight = begin(heartbeat=heartbeat)
    flight.run(2.0)
    at_s = flight.now_s
    assert flight.command(ARM, 1, 0) == [0]
    flight.run(0.5)
    flight.command(ARM, 0, 0)
    flight.run(0.5)
    print(flight.texts())
    assert bool(flight.since("STATUSTEXT", at_s)) == sent


def test_arms_turns_its_rotors_and_disarms(grounded):
    assert grounded.command(ARM, 1, 0) == [0]
    assert grounded.armed
    grounded.run(1.5)
    idle = grounded.motor_commands[-1]
    assert idle.min() >= 0.0 and idle.max() < 0.2
    assert grounded.command(ARM, 0, 0) == [0]
    assert not grounded.armed
    grounded.run(0.5)
    assert grounded.motor_commands[-1].max() == 0.0


def test_disarms_by_itself_when_no_take_off_follows(begin):
    flight = begin(COM_DISARM_PRFLT=3.0)
    assert flight.command(ARM, 1, 0) == [0]
    flight.run(2.0)
    assert flight.armed
    flight.run(2.5)
    assert not flight.armed


def test_take_off_needs_arming_to_leave_the_ground(grounded):
    grounded.command(TAKEOFF, 0, 0, 0, math.nan, math.nan, math.nan, math.nan)
    grounded.run(3.0)
    assert grounded.plant.p_W[2] < 0.3 and not grounded.armed


def test_home_and_origin_are_reported(grounded):
    home = grounded.request(242, "HOME_POSITION")
    assert math.hypot(home.x, home.y) < 3.0 and abs(home.z) < 3.0
    position = grounded.last("LOCAL_POSITION_NED")
    assert math.hypot(position.x - home.x, position.y - home.y) < 3.0


def test_home_follows_gnss_and_the_origin_stays(grounded):
    """Height over home therefore changes with home; `companion.fcu.status` depends on a constant origin."""
    homes, origins, at_s = [], [], grounded.now_s
    grounded.run(60.0)
    for m in grounded.since("HOME_POSITION", at_s):
        homes.append(m.altitude * 1e-3)
        origins.append(m.altitude * 1e-3 + m.z)
    print("home", [f"{h:.2f}" for h in homes[::3]], "origin", [f"{o:.2f}" for o in origins[::3]])
    assert len(homes) > 10
    assert max(origins) - min(origins) < 0.05


def test_home_follows_a_drifting_position_on_the_ground(grounded):
    before = grounded.request(242, "HOME_POSITION")
    grounded.world.sensors.set_fault("gnss_jump", (4.0, 0.0, 0.0))
    grounded.run(60.0)
    home, position = grounded.request(242, "HOME_POSITION"), grounded.last("LOCAL_POSITION_NED")
    print("home east", before.y, "to", home.y, "position", position.y, "home altitude", before.altitude, home.altitude)
    assert position.y > 2.0  # EKF2 has followed GNSS
    assert home.y - before.y > 1.0 and abs(home.y - position.y) < 2.5

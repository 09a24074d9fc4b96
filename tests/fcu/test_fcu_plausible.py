"""Implausible content of the flight controller's frames is dropped, counted and reported, and a reset is followed."""

import math

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
    imu,
)
from pymavlink.dialects.v20 import common

from companion.core.messages import FcuAttitude, FcuImu, FcuPosition, FcuStatus
from companion.core.voltage import ThrustVoltage
from companion.fcu.guards.plausible import CONFIRM, LATE_S, LATELY_S, TABLE, Plausibility, Quantity
from companion.fcu.status import LANDED_AGE_S, ODOMETRY_AGE_S, RC_AGE_S, SYSTEM_AGE_S


def of(kind, messages):
    return [m for m in messages if type(m) is kind]


def attitude(ms, roll=0.0, rates=(0.0, 0.0, 0.0)):
    return common.MAVLink_attitude_quaternion_message(ms, math.cos(roll / 2), math.sin(roll / 2), 0, 0, *rates)


def position(ms, p=(1.0, 2.0, -3.0), v=(0.0, 0.0, 0.0)):
    return common.MAVLink_local_position_ned_message(ms, *p, *v)


@pytest.fixture
def steady(flying):
    flying.content[ATTITUDE] = attitude
    flying.content[POSITION] = position
    flying.content[IMU] = imu
    flying.run(2.0)  # the first of them are a reset: they differ from the peer's usual content
    for quantity in Quantity:
        flying.node.plausible.counts[quantity] = 0
    return flying


WRONG = {
    Quantity.ATTITUDE: lambda ms: attitude(ms, roll=1.0),
    Quantity.RATES: lambda ms: attitude(ms, rates=(40.0, 0.0, 0.0)),
    Quantity.POSITION: lambda ms: position(ms, p=(9.0, 2.0, -3.0)),
    Quantity.VELOCITY: lambda ms: position(ms, v=(8.0, 0.0, 0.0)),
    Quantity.IMU_RATES: lambda ms: imu(ms, rates=(0.0, 6.0, 0.0)),
    Quantity.SPECIFIC_FORCE: lambda ms: imu(ms, force=(0.0, 0.0, 90.0)),
}
FAR = {
    Quantity.POSITION: lambda ms: position(ms, p=(2e4, 0.0, 0.0)),
    Quantity.VELOCITY: lambda ms: position(ms, v=(0.0, 0.0, 41.0)),
    Quantity.RATES: lambda ms: attitude(ms, rates=(0.0, 0.0, -1e9)),
    Quantity.IMU_RATES: lambda ms: imu(ms, rates=(0.0, 40.0, 0.0)),
    Quantity.SPECIFIC_FORCE: lambda ms: imu(ms, force=(0.0, -170.0, 0.0)),
}
KINDS = {ATTITUDE: FcuAttitude, POSITION: FcuPosition, IMU: FcuImu}
FAST = {
    Quantity.ATTITUDE: ATTITUDE,
    Quantity.RATES: ATTITUDE,
    Quantity.POSITION: POSITION,
    Quantity.VELOCITY: POSITION,
    Quantity.IMU_RATES: IMU,
    Quantity.SPECIFIC_FORCE: IMU,
}


@pytest.mark.parametrize("quantity", WRONG)
def test_single_wrong_frames_between_good_ones_never_pass(steady, quantity):
    begin = len(steady.out)
    for _ in range(50):
        steady.run(0.06)
        published = steady.deliver(WRONG[quantity](steady.boot_ms + 1))
        assert [m for kind in KINDS.values() for m in of(kind, published)] == []
    out = [m for _, m in steady.out[begin:]]
    assert {m.q_WB for m in of(FcuAttitude, out)} == {of(FcuAttitude, out)[0].q_WB}
    assert len({(m.p_W, m.v_W) for m in of(FcuPosition, out)}) == 1
    assert len({(m.gyro_B, m.accel_B) for m in of(FcuImu, out)}) == 1
    last = of(FcuStatus, steady.run(0.2))[-1]
    assert last.implausible == (quantity,) and last.implausible_messages == 50
    assert steady.node.plausible.counts[quantity] == 50
    assert of(FcuStatus, steady.run(LATELY_S + 0.2))[-1].implausible == ()


@pytest.mark.parametrize("quantity", FAR)
def test_content_out_of_range_never_passes_however_long_it_lasts(steady, quantity):
    number = FAST[quantity]
    steady.content[number] = FAR[quantity]
    assert of(KINDS[number], steady.run(3.0)) == []


def test_a_reset_of_px4s_position_is_followed_after_three_messages(steady):
    steady.content[POSITION] = lambda ms: position(ms, p=(6.0, 2.0, -3.0))
    positions = of(FcuPosition, steady.run(1.0))
    assert len(positions) >= 50 - CONFIRM
    assert all(m.p_W[1] == 6.0 for m in positions)
    assert 0 < steady.node.plausible.counts[Quantity.POSITION] <= CONFIRM


def test_a_flip_and_a_hard_manoeuvre_are_plausible(steady):
    begin_ms = steady.boot_ms

    def rolled(ms):
        return attitude(ms, roll=0.010 * (ms - begin_ms), rates=(10.0, 0.0, 0.0))  # 10 rad/s

    def thrown(ms):
        return position(
            ms, p=(1.0 + 0.02 * (ms - begin_ms), 2.0, -3.0), v=(min(20.0, 0.02 * (ms - begin_ms)), 0.0, 0.0)
        )

    steady.content[ATTITUDE], steady.content[POSITION] = rolled, thrown
    steady.run(1.0)
    assert not any(steady.node.plausible.counts.values())


@pytest.mark.parametrize("cell_mv", [16250, 250])
def test_an_implausible_voltage_is_reported_as_it_is_and_named(steady, cell_mv):
    steady.content[BATTERY] = lambda ms: common.MAVLink_battery_status_message(
        0, 0, 0, 2500, [cell_mv] * 4 + [65535] * 6, 1000, 0, 0, 73
    )
    last = of(FcuStatus, steady.run(2.0))[-1]
    assert last.battery_voltage_v == pytest.approx(4 * cell_mv / 1000)
    assert last.implausible == (Quantity.VOLTAGE,)


def test_the_table_has_a_row_for_every_quantity():
    assert set(TABLE) == set(Quantity)


# --- every row, every column -------------------------------------------------------------------------------------------

REFERENCE_V = 15.0
IDENTITY, STILL = (1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0)

# Feeds one number of a quantity; the other numbers of its message stay good.
FEED = {
    Quantity.ATTITUDE: lambda p, x, t: p.attitude((math.cos(x / 2), math.sin(x / 2), 0.0, 0.0), STILL, t),
    Quantity.RATES: lambda p, x, t: p.attitude(IDENTITY, (0.0, x, 0.0), t),
    Quantity.POSITION: lambda p, x, t: p.position((0.0, x, 0.0), STILL, t),
    Quantity.VELOCITY: lambda p, x, t: p.position(STILL, (0.0, 0.0, x), t),
    Quantity.HOME: lambda p, x, t: p.home(STILL, x, t),
    Quantity.ALTITUDE: lambda p, x, t: p.altitude(x, t),
    Quantity.GNSS: lambda p, x, t: p.gnss((48.0, 11.0, x), None, t),
    Quantity.GNSS_VELOCITY: lambda p, x, t: p.gnss((48.0, 11.0, 0.0), (x, 0.0), t),
    Quantity.BAROMETER: lambda p, x, t: p.barometer(x, t),
    Quantity.IMU_RATES: lambda p, x, t: p.imu((0.0, 0.0, x), STILL, t),
    Quantity.SPECIFIC_FORCE: lambda p, x, t: p.imu(STILL, (x, 0.0, 0.0), t),
}


@pytest.mark.parametrize("quantity", FEED)
def test_each_row_limits_the_range_and_the_change_and_counts(quantity):
    row, feed = TABLE[quantity], FEED[quantity]
    most = row.step + row.rate_1_s * 0.1
    judged = Plausibility(REFERENCE_V)
    assert feed(judged, 0.0, 1.0)
    assert feed(judged, 0.9 * most, 1.1) and not any(judged.counts.values())
    assert not feed(judged, -0.9 * most, 1.2)
    assert judged.counts[quantity] == 1 and judged.lately(1.2) == (quantity,)
    if quantity is not Quantity.ATTITUDE:  # a quaternion's length is checked before
        far = Plausibility(REFERENCE_V)
        for i in range(20):  # however long it lasts
            assert not feed(far, 1.01 * row.largest, 1.0 + 0.1 * i)
        assert far.counts[quantity] == 20
    nan = Plausibility(REFERENCE_V)
    assert feed(nan, math.nan, 1.0) is (quantity is Quantity.BAROMETER)  # PX4 sends NaN for "no pressure altitude"


def test_the_row_of_the_voltage_is_what_the_thrust_model_applies():
    row, judged = TABLE[Quantity.VOLTAGE], Plausibility(REFERENCE_V)
    voltage = ThrustVoltage(REFERENCE_V)
    for share, ok in ((row.smallest - 0.01, False), (row.smallest + 0.01, True), (row.largest + 0.01, False)):
        before = judged.counts[Quantity.VOLTAGE]
        judged.voltage(share * REFERENCE_V, 1.0)
        assert voltage.take(share * REFERENCE_V, 1.0) is ok and (judged.counts[Quantity.VOLTAGE] == before) is ok
    before_v = voltage.value_v
    voltage.take(row.largest * REFERENCE_V, 2.0)
    assert voltage.value_v - before_v == pytest.approx(row.rate_1_s * REFERENCE_V)


@pytest.mark.parametrize(
    ("number", "make", "kind"),
    [(ATTITUDE, attitude, FcuAttitude), (POSITION, position, FcuPosition), (IMU, imu, FcuImu)],
)
def test_a_measurement_that_arrives_too_late_is_not_valid_and_counts(steady, number, make, kind):
    steady.content[number] = lambda ms: make(ms - round(1000 * (LATE_S - 0.05)))
    assert of(kind, steady.run(1.0))[-1].valid
    steady.content[number] = lambda ms: make(ms - round(1000 * (LATE_S + 0.05)))
    assert not of(kind, steady.run(1.0))[-1].valid
    assert of(FcuStatus, steady.run(0.2))[-1].implausible
    steady.content[number] = make
    assert of(kind, steady.run(1.0))[-1].valid


SLOW = {
    Quantity.VOLTAGE: (BATTERY, lambda s: not math.isnan(s.battery_voltage_v)),
    Quantity.HOME: (HOME, lambda s: s.home_W is not None),
    Quantity.GNSS: (GPS_RAW_INT, lambda s: s.gnss_position is not None),
    Quantity.GNSS_VELOCITY: (GPS_RAW_INT, lambda s: s.gnss_v_W is not None),
    Quantity.BAROMETER: (ALTITUDE, lambda s: not math.isnan(s.baro_altitude_m)),
}


@pytest.mark.parametrize("quantity", SLOW)
def test_a_slow_state_that_is_older_than_its_age_is_absent(steady, quantity):
    number, known = SLOW[quantity]
    steady.run(6.0)
    steady.content[number] = steady.content[SYS_STATUS] = lambda ms: None
    age_s = TABLE[quantity].age_s
    period_s = steady.streams[number]
    assert known(of(FcuStatus, steady.run(age_s - period_s - 0.2))[-1])
    assert not known(of(FcuStatus, steady.run(period_s + 0.4))[-1])


def test_an_altitude_that_is_too_old_begins_no_take_off(steady):
    steady.run(6.0)
    assert steady.node.status.ground_altitude_m(steady.now_s)[1] == ""
    steady.content[GLOBAL_POSITION] = lambda ms: None
    steady.run(TABLE[Quantity.ALTITUDE].age_s + 0.6)
    assert "GLOBAL_POSITION_INT" in steady.node.status.ground_altitude_m(steady.now_s)[1]


def test_every_row_is_tested_here():
    assert set(FEED) | {Quantity.VOLTAGE} == set(Quantity)
    assert set(SLOW) | {Quantity.ALTITUDE} == {q for q in Quantity if TABLE[q].age_s > LATE_S}


def test_one_wrong_fix_between_good_ones_is_not_published(steady):
    steady.run(3.0)
    steady.deliver(common.MAVLink_gps_raw_int_message(0, 3, 200, 300, 0, 100, 100, 0, 0, 12))  # 4 m: a jump
    steady.deliver(common.MAVLink_gps_raw_int_message(0, 3, 20_000, 300, 0, 100, 100, 0, 0, 12))  # 220 m
    published = of(FcuStatus, steady.run(0.15))
    assert all(abs(s.gnss_position[0]) * 1e7 < 201 for s in published)
    assert steady.node.plausible.counts[Quantity.GNSS] == 1


# the age of what each stream brings
AGES_S = {
    LANDED: LANDED_AGE_S,
    RC_CHANNELS: RC_AGE_S,
    SYS_STATUS: SYSTEM_AGE_S,
    BATTERY: TABLE[Quantity.VOLTAGE].age_s,
    GPS_RAW_INT: TABLE[Quantity.GNSS].age_s,
    HOME: TABLE[Quantity.HOME].age_s,
    GLOBAL_POSITION: TABLE[Quantity.ALTITUDE].age_s,
    ALTITUDE: TABLE[Quantity.BAROMETER].age_s,
    ODOMETRY: ODOMETRY_AGE_S,
}


@pytest.mark.parametrize("number", AGES_S)
def test_a_stream_that_counts_as_good_brings_its_content_in_time_although_a_message_is_lost(steady, number):
    """ALTITUDE once a second was good, and its content old after a second."""
    (stream,) = [s for s in steady.node.streams.streams if s.message_id == number]
    assert 2.0 / stream.expected_hz <= AGES_S[number]

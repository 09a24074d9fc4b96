"""Implausible content of the flight controller's frames is dropped, counted and reported, and a reset is followed."""

import math

import pytest
from fcu_peer import ATTITUDE, BATTERY, POSITION
from pymavlink.dialects.v20 import common

from companion.core.messages import FcuAttitude, FcuPosition, FcuStatus
from companion.fcu.guards.plausible import CONFIRM, LATELY_S, TABLE, Quantity


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
    flying.run(2.0)  # the first of them are a reset: they differ from the peer's usual content
    for quantity in Quantity:
        flying.node.plausible.counts[quantity] = 0
    return flying


WRONG = {
    Quantity.ATTITUDE: lambda ms: attitude(ms, roll=1.0),
    Quantity.RATES: lambda ms: attitude(ms, rates=(40.0, 0.0, 0.0)),
    Quantity.POSITION: lambda ms: position(ms, p=(9.0, 2.0, -3.0)),
    Quantity.VELOCITY: lambda ms: position(ms, v=(8.0, 0.0, 0.0)),
}
FAR = {
    Quantity.POSITION: lambda ms: position(ms, p=(2e4, 0.0, 0.0)),
    Quantity.VELOCITY: lambda ms: position(ms, v=(0.0, 0.0, 41.0)),
    Quantity.RATES: lambda ms: attitude(ms, rates=(0.0, 0.0, -1e9)),
}


@pytest.mark.parametrize("quantity", WRONG)
def test_single_wrong_frames_between_good_ones_never_pass(steady, quantity):
    begin = len(steady.out)
    for _ in range(50):
        steady.run(0.06)
        published = steady.deliver(WRONG[quantity](steady.boot_ms + 1))
        assert of(FcuAttitude, published) + of(FcuPosition, published) == []
    out = [m for _, m in steady.out[begin:]]
    assert {m.q_WB for m in of(FcuAttitude, out)} == {of(FcuAttitude, out)[0].q_WB}
    assert len({(m.p_W, m.v_W) for m in of(FcuPosition, out)}) == 1
    last = of(FcuStatus, steady.run(0.2))[-1]
    assert last.implausible == (quantity,) and last.implausible_messages == 50
    assert steady.node.plausible.counts[quantity] == 50
    assert of(FcuStatus, steady.run(LATELY_S + 0.2))[-1].implausible == ()


@pytest.mark.parametrize("quantity", FAR)
def test_content_out_of_range_never_passes_however_long_it_lasts(steady, quantity):
    kind, number = (FcuAttitude, ATTITUDE) if quantity is Quantity.RATES else (FcuPosition, POSITION)
    steady.content[number] = FAR[quantity]
    assert of(kind, steady.run(3.0)) == []


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

"""DISTANCE_SENSOR: which ranges count, for how long, and broken ones."""

import math
import random

import pytest
from pymavlink.dialects.v20 import common

from companion.core.messages import FcuStatus, FcuText
from companion.fcu.status import RANGE_AGE_S

DISTANCE = common.MAVLINK_MSG_ID_DISTANCE_SENSOR
FORWARD, DOWN = common.MAV_SENSOR_ROTATION_NONE, common.MAV_SENSOR_ROTATION_PITCH_270


def sensor(current, least=20, most=1200, number=0, orientation=FORWARD, quality=0):
    """A message in centimetres."""
    kind = common.MAV_DISTANCE_SENSOR_LASER
    return common.MAVLink_distance_sensor_message(
        0, least, most, current, kind, number, orientation, 0, 0.0, 0.0, [0.0] * 4, quality
    )


def twice(peer, *messages):
    """One reading alone may be a drop of water."""
    for message in 2 * messages:
        peer.deliver(message)


def range_m(peer):
    return [m for _, m in peer.out if type(m) is FcuStatus][-1].range_m


def test_a_forward_range_is_in_the_status_and_requested_as_a_stream(flying):
    assert math.isnan(range_m(flying))
    requested = {int(m.param1): m.param2 for _, m in flying.commands(common.MAV_CMD_SET_MESSAGE_INTERVAL)}
    assert requested[DISTANCE] == 100_000
    flying.content[DISTANCE] = lambda boot_ms: sensor(345, quality=80)
    flying.run(1.0)
    assert range_m(flying) == pytest.approx(3.45)


@pytest.mark.parametrize(
    "broken",
    [
        sensor(345, orientation=DOWN),
        sensor(345, orientation=common.MAV_SENSOR_ROTATION_CUSTOM),
        sensor(345, number=200),
        sensor(345, quality=1),  # not valid
        sensor(19),
        sensor(0, least=0),
        sensor(1200),  # at its maximum it has seen nothing
        sensor(65535, most=65535),
        sensor(345, least=500, most=100),
        sensor(345, least=0, most=0),
    ],
)
def test_a_range_that_is_not_forward_not_valid_or_out_of_the_sensors_limits_is_none(flying, broken):
    flying.content[DISTANCE] = lambda boot_ms: broken
    flying.run(1.0)
    assert math.isnan(range_m(flying))


def test_a_reading_out_of_range_ends_the_one_before(flying):
    twice(flying, sensor(345))
    flying.run(0.15)
    assert range_m(flying) == pytest.approx(3.45)
    flying.deliver(sensor(1200))
    flying.run(0.15)
    assert math.isnan(range_m(flying))


def test_one_short_reading_alone_is_no_range(flying):
    """A drop, an insect, a sender with one message: the aircraft backed away without sight."""
    twice(flying, sensor(345))
    flying.deliver(sensor(40))
    flying.run(0.15)
    assert range_m(flying) == pytest.approx(3.45)
    flying.deliver(sensor(41))
    flying.run(0.15)
    assert range_m(flying) == pytest.approx(0.41)


def test_of_several_sensors_the_shortest_recent_range_counts(flying):
    for current, number, orientation in ((500, 0, FORWARD), (300, 1, FORWARD), (40, 2, DOWN)):
        twice(flying, sensor(current, number=number, orientation=orientation))
    flying.run(0.15)
    assert range_m(flying) == pytest.approx(3.0)


def test_a_range_is_forgotten_when_no_more_come_and_at_a_restart(flying):
    twice(flying, sensor(345))
    flying.run(RANGE_AGE_S - 0.15)
    assert range_m(flying) == pytest.approx(3.45)
    flying.run(0.3)
    assert math.isnan(range_m(flying))
    twice(flying, sensor(345))
    flying.node.status.reset()
    flying.run(0.15)
    assert math.isnan(range_m(flying))


def test_a_missing_range_finder_is_no_slow_stream(flying):
    flying.run(60.0)
    assert not [m for _, m in flying.out if type(m) is FcuText and "DISTANCE_SENSOR" in m.text]
    assert all("DISTANCE_SENSOR" not in m.slow_streams for _, m in flying.out if type(m) is FcuStatus)
    requests = [m for _, m in flying.commands(common.MAV_CMD_SET_MESSAGE_INTERVAL) if int(m.param1) == DISTANCE]
    assert len(requests) == 1


def test_any_content_gives_a_range_of_the_messages_own_limits_or_none(flying):
    rng = random.Random(3)
    seen = 0
    for _ in range(300):
        limits = [rng.choice((0, 1, 20, 400, 65535, rng.randrange(65536))) for _ in range(3)]
        byte = [rng.choice((0, 0, 0, 1, 25, 255)) for _ in range(3)]
        twice(flying, sensor(limits[0], limits[1], limits[2], byte[0], byte[1], byte[2]))
        flying.run(0.11)
        value = range_m(flying)
        assert math.isnan(value) or 0.0 < value < 655.35
        seen += not math.isnan(value)
    assert 0 < seen < 300

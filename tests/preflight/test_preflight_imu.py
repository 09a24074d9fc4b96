"""Inertial measurements on the ground, as a preflight sees them."""

import math

import pytest
from pymavlink.dialects.v20 import common

from companion.core.enums import ImuFault
from companion.preflight.imu import ImuWatch

G = 9.80665


def watch(force=(0.0, 0.0, -G), rate_hz=200.0, roll_rad=0.0, duration_s=3.0) -> ImuWatch:
    """force: FRD [m/s²]; an aircraft that stands still, tilted by a roll."""
    seen = ImuWatch()
    for i in range(round(duration_s * rate_hz)):
        t = 40.0 + i / rate_hz
        seen.take_imu(common.MAVLink_highres_imu_message(round(t * 1e6), *force, *[0.0] * 3, *[math.nan] * 7, 63))
        if i % 4 == 0:
            q = (math.cos(roll_rad / 2), math.sin(roll_rad / 2), 0.0, 0.0)
            seen.take_attitude(common.MAVLink_attitude_quaternion_message(round(t * 1e3), *q, 0.0, 0.0, 0.0))
    return seen


@pytest.mark.parametrize("roll_rad", [0.0, 0.15])
def test_a_good_stream_has_its_rate_and_no_fault(roll_rad):
    seen = watch((0.0, -G * math.sin(roll_rad), -G * math.cos(roll_rad)), roll_rad=roll_rad)
    assert seen.rate_hz == pytest.approx(200.0, rel=0.01) and seen.fault is None and seen.problem == ""


@pytest.mark.parametrize("force", [(0.0, 0.0, G), (0.0, -G, 0.0), (0.0, 0.0, -1.0), (0.0, -2.5, -9.5)])
def test_forces_that_do_not_point_up_are_named(force):
    seen = watch(force)
    assert seen.fault is ImuFault.DIRECTION and "up" in seen.problem


def test_a_slow_stream_and_none():
    assert watch(rate_hz=20.0).fault is ImuFault.SLOW
    assert ImuWatch().rate_hz == 0.0 and ImuWatch().fault is None

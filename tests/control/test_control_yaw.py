import math

import numpy as np
import pytest

from companion.control.yaw import INTEGRAL_RATE_MAX_RAD_S, LEAD_MAX_RAD, YawController
from companion.core.frames import wrap_angle
from companion.core.vehicle import Yaw

CONFIG = Yaw(kp=1.5, ki=0.2, rate_max_rad_s=0.6)
DT = 0.02


def fly(yaw, reference, heading_error, duration_s, drift=0.0, follows_rate=True):
    """The yaw angles of an aircraft that follows setpoint and rate like a flight controller."""
    controller, yaws = YawController(CONFIG), []
    for i in range(round(duration_s / DT)):
        now = i * DT
        fcu_yaw = wrap_angle(yaw + heading_error + drift * now)
        setpoint, rate = controller.update(now, reference, 0.0, wrap_angle(yaw), fcu_yaw, True)
        yaw += DT * (rate * follows_rate + 2.8 * wrap_angle(setpoint - fcu_yaw))
        yaws.append(yaw)
    return np.array(yaws)


def test_fault_6_yaw_error_wraps_at_half_a_turn():
    """From -100° to 0 the turn is 100° to the left, not 260° to the right; across ±180° it is 20°, not 340°."""
    yaws = fly(math.radians(-100), 0.0, 0.0, 8)
    assert (np.diff(yaws) > -1e-6).sum() > len(yaws) * 0.5
    assert yaws.min() > math.radians(-101)
    assert abs(yaws[-1]) < math.radians(0.3)
    seam = fly(math.radians(170), math.radians(-170), 0.0, 6)
    assert seam.max() < math.radians(195)
    assert abs(wrap_angle(seam[-1] - math.radians(-170))) < math.radians(0.3)


@pytest.mark.parametrize("follows_rate", [True, False])
def test_no_steady_offset_when_the_flight_controllers_heading_is_5_degrees_off(follows_rate):
    yaws = fly(0.0, 1.0, math.radians(5), 15, follows_rate=follows_rate)
    assert abs(yaws[-1] - 1.0) < math.radians(0.1)
    assert yaws.max() < 1.0 + math.radians(4)


def test_a_slowly_drifting_heading_leaves_a_small_error():
    drift = math.radians(0.5)
    yaws = fly(0.0, 0.0, math.radians(5), 40, drift=drift)
    assert abs(yaws[-1]) < math.radians(0.1)


def test_rate_and_lead_are_limited():
    controller = YawController(CONFIG)
    for i in range(200):  # an aircraft that does not turn at all
        setpoint, rate = controller.update(i * DT, 3.0, 0.0, 0.0, 0.0, True)
        assert abs(rate) <= CONFIG.rate_max_rad_s
        assert abs(wrap_angle(setpoint)) <= LEAD_MAX_RAD + 1e-12


def test_integral_is_limited_and_reset_while_another_source_steers():
    controller = YawController(CONFIG)
    for i in range(10000):
        controller.update(i * DT, 0.04, 0.0, 0.0, 0.0, True)
    _, rate = controller.update(200.02, 0.0, 0.0, 0.0, 0.0, True)
    assert rate == pytest.approx(INTEGRAL_RATE_MAX_RAD_S, abs=1e-3)
    setpoint, rate = controller.update(200.04, 0.0, 0.0, 0.0, 0.7, False)
    assert setpoint == pytest.approx(0.7)
    assert rate == 0.0


def test_the_first_setpoint_begins_at_the_flight_controllers_own_yaw():
    setpoint, _ = YawController(CONFIG).update(5.0, 2.0, 0.0, 0.0, 1.3, True)
    assert setpoint == pytest.approx(1.3, abs=0.02)

"""The attitude loop on the simulated plant: identified response, mixer, limits."""

import math

import numpy as np
import pytest
from autopilot_flight import EmulatorFlight
from pymavlink.dialects.v20 import common
from scipy.optimize import least_squares
from scipy.signal import lfilter

from companion.core.enums import FcuMode
from companion.core.frames import quat_from_rpy, rpy_from_quat
from sitl.airframe import load_airframe
from sitl.autopilot.attitude import ATTITUDE, RATES, AttitudeControl, mixer_of
from sitl.autopilot.parameters import load_parameters

STEP_S = 0.004
PATTERN_DEG = (10, -10, 10, 0, -10, 0, 10)
HOLD_STEPS = 300


def fly_steps(airframe: str, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Command and true angle of one axis while ±10° steps are flown in offboard from a hover."""
    flight = EmulatorFlight(airframe, stream_rates_hz={"HEARTBEAT": 1, "LOCAL_POSITION_NED": 10})
    flight.take_off(12.0)
    angle, yaw, hover = [0.0], flight.autopilot.stack.yaw, flight.autopilot.stack.position_control.hover

    def stream(now_s):
        return flight.attitude_target(*((angle[0], 0.0) if axis == 0 else (0.0, angle[0])), yaw=yaw, thrust=hover)

    flight.stream = stream
    flight.run(1.2)
    assert flight.set_mode(6) == common.MAV_RESULT_ACCEPTED
    flight.run(0.5)
    command, response = [], []

    def record():
        command.append(angle[0])
        response.append(rpy_from_quat(flight.plant.q_WB)[axis])
        return False

    for value in PATTERN_DEG:
        angle[0] = math.radians(value)
        flight.run(HOLD_STEPS * STEP_S, record)
    assert flight.autopilot.mode == FcuMode.OFFBOARD
    return np.array(command), np.array(response)


def first_order(command: np.ndarray, response: np.ndarray) -> tuple[float, float, float, float]:
    """Time constant [s], gain, delay [s] and share of the response explained of the best first order with delay."""
    index = np.arange(len(command))

    def simulate(x):
        a = math.exp(-STEP_S / x[0])
        return lfilter([(1 - a) * x[1]], [1, -a], np.interp(index - x[2] / STEP_S, index, command, left=0.0))

    fit = least_squares(
        lambda x: simulate(x) - response, [0.2, 1.0, 0.03], bounds=([0.02, 0.5, 0.0], [1.0, 1.5, 0.1]), diff_step=1e-3
    )
    left = np.linalg.norm(fit.fun) / np.linalg.norm(response - response.mean())
    return *fit.x, 1.0 - left


@pytest.mark.parametrize(
    ("airframe", "axis", "time_constant_s"),
    [("f550", 0, 0.14115), ("f550", 1, 0.14199), ("aurelia_x6", 0, 0.23424), ("aurelia_x6", 1, 0.25646)],
)
def test_attitude_answers_with_the_time_constant_of_the_real_aircraft(airframe, axis, time_constant_s):
    tau, gain, delay, explained = first_order(*fly_steps(airframe, axis))
    assert tau == pytest.approx(time_constant_s, rel=0.15)
    assert 0.94 < gain < 1.03
    assert delay < 0.07
    assert explained > 0.9


def control(airframe="f550") -> AttitudeControl:
    return AttitudeControl(load_parameters(airframe), STEP_S, load_airframe(airframe))


def test_mixer_is_px4s_normalised_hexarotor_x():
    mix = mixer_of(load_airframe("f550")).mix
    assert np.abs(mix).max(axis=0) == pytest.approx([0.816, 0.707, 1.0, 1.0], abs=1e-3)
    assert mix[3, 0] > 0 > mix[0, 0]  # left side up: roll to the right
    assert mix[2, 1] > 0 > mix[0, 1]  # rear up: nose down
    np.testing.assert_allclose(mix.sum(axis=0), [0.0, 0.0, 0.0, 6.0], atol=1e-9)


@pytest.mark.parametrize("airframe", ["f550", "f450", "x8"])
def test_saturated_motors_reduce_yaw_and_thrust_before_roll_and_pitch(airframe):
    c = control(airframe)
    loop = c.loop
    loop.level, loop.thrust = RATES, 0.95
    loop.rate_p[:], loop.rate_i[:], loop.yaw_torque_cutoff_hz = (0.2, 0.2, 0.2), (0.0, 0.0, 0.0), 0.0
    loop.rate_sp_in[:] = (1.5, 0.0, 3.0)
    c.step()
    motors = np.array(c.motors)
    assert motors.max() <= 1.0 and motors.min() >= 0.0
    torque = mixer_of(load_airframe(airframe)).reach @ motors
    assert torque[0] == pytest.approx(0.3, abs=0.03)  # the full command
    assert torque[2] < 0.3  # of a command of 0.6
    assert motors.mean() < 0.95


def test_airmode_is_off():
    c = control()
    c.loop.level, c.loop.thrust = RATES, 0.0
    c.loop.rate_sp_in[:] = (2.0, 0.0, 0.0)
    c.step()
    assert max(c.motors) == pytest.approx(0.0, abs=0.02)


def test_integral_stops_at_its_limit_and_on_the_ground():
    c = control()
    loop = c.loop
    loop.level, loop.thrust, loop.landed = RATES, 0.4, 1.0
    loop.rate_sp_in[:] = (0.3, 0.0, 0.0)
    for _ in range(1000):
        c.step()
    assert loop.integral[0] == 0.0
    loop.landed = 0.0
    for _ in range(6000):
        c.step()
    assert loop.integral[0] == pytest.approx(loop.int_lim[0])


def test_rate_setpoint_is_limited():
    c = control()
    c.loop.level, c.loop.thrust = ATTITUDE, 0.4
    c.loop.q_sp[:] = quat_from_rpy(2.5, 0.0, 0.0)
    c.step()
    assert c.loop.rate_sp[0] == pytest.approx(math.radians(220.0))


def test_yaw_error_does_not_tilt_and_takes_the_short_way():
    c = control()
    c.loop.level, c.loop.thrust = ATTITUDE, 0.4
    c.loop.q[:] = quat_from_rpy(0.0, 0.0, math.radians(170.0))
    c.loop.q_sp[:] = quat_from_rpy(0.0, 0.0, math.radians(-170.0))
    c.step()
    roll, pitch, yaw = c.loop.rate_sp
    assert abs(roll) < 1e-9 and abs(pitch) < 1e-9
    assert yaw == pytest.approx(2.8 * math.radians(20.0), rel=0.02)  # MC_YAW_P, its weight compensated


def test_thrust_model_is_inverted():
    c = control()
    c.loop.level, c.loop.thrust, c.loop.thrust_model = ATTITUDE, 0.35, 0.3
    c.loop.q_sp[:] = c.loop.q[:]
    c.step()
    x = np.array(c.motors)
    np.testing.assert_allclose(0.3 * x**2 + 0.7 * x, 0.35, atol=1e-9)

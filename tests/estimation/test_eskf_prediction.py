"""The noiseless prediction against formulas with Euler angles, and the inputs of the prediction."""

import numpy as np
import pytest
from eskf_truth import integrate, rpy, with_rotor_drag

from companion.core.frames import quat_from_rpy, wrap_angle
from companion.estimation.inputs import COMMAND_MAX_AGE_S, MODE_MAX_AGE_S, Command, Inputs
from companion.estimation.layout import ErrorIndex, StateIndex
from companion.estimation.noise import Propagation, forgetting_rates

LEVEL = np.array([1.0, 0, 0, 0])


@pytest.mark.parametrize("yaw", [0.0, np.pi / 2, -2.5])
@pytest.mark.parametrize("pitch", [0.2, -0.2])
@pytest.mark.parametrize("roll", [0.15, -0.1])
def test_prediction_is_the_hand_written_motion(vehicle, eskf, yaw, pitch, roll):
    k = with_rotor_drag(vehicle)
    start = np.array([1.0, 2, 3, 0.5, -0.4, 0.3, roll, pitch, yaw])
    u, d = np.array([0.36, -0.5 * roll, 0.7 * pitch, 0.4]), np.array([0.5, -0.3, 0.2])
    filter_state = eskf.start(0.0, start[0:3], start[3:6], quat_from_rpy(roll, pitch, yaw))
    filter_state.nominal[StateIndex.DISTURBANCE] = d
    keep, expected = np.exp(-0.02 * forgetting_rates(vehicle, Propagation.COMMAND)[[0, 0, 1]]), start
    for i in range(50):
        eskf.predict(filter_state, u, k, 0.02)
        expected = integrate(expected, u, d * keep**i, k, 0.02, 0.0005)
    np.testing.assert_allclose(filter_state.nominal[: StateIndex.VELOCITY.stop], expected[0:6], atol=2e-5)
    got = rpy(filter_state.nominal)
    np.testing.assert_allclose(got[0:2], expected[6:8], atol=2e-6)
    assert abs(wrap_angle(got[2] - expected[8])) < 2e-6


def test_coasting_keeps_velocity_and_attitude_and_forgets_disturbance_and_velocity_bias(vehicle, eskf):
    filter_state = eskf.start(0.0, np.zeros(3), np.array([1.0, 0, 0]), quat_from_rpy(0.1, -0.1, 1.0))
    filter_state.nominal[StateIndex.DISTURBANCE], filter_state.nominal[StateIndex.VELOCITY_BIAS] = (
        (1.0, 0, 0),
        (0, 0.1, 0),
    )
    q = filter_state.nominal[StateIndex.ATTITUDE].copy()
    eskf.advance(filter_state, 10.0, Inputs(0.03, 1.0))
    np.testing.assert_allclose(filter_state.nominal[: StateIndex.VELOCITY.stop], [10, 0, 0, 1, 0, 0], atol=1e-9)
    np.testing.assert_allclose(filter_state.nominal[StateIndex.ATTITUDE], q)
    slow = vehicle.estimator.velocity_bias
    np.testing.assert_allclose(filter_state.nominal[StateIndex.DISTURBANCE], [np.exp(-1), 0, 0], atol=1e-12)
    np.testing.assert_allclose(
        filter_state.nominal[StateIndex.VELOCITY_BIAS], [0, 0.1 * np.exp(-10 / slow.time_constant_s), 0], atol=1e-12
    )
    # the variance of a forgotten state returns to its initial value
    start = vehicle.estimator.initial.disturbance_m_s2
    np.testing.assert_allclose(np.diag(filter_state.covariance)[ErrorIndex.DISTURBANCE], start**2, rtol=0.02)
    np.testing.assert_allclose(np.diag(filter_state.covariance)[ErrorIndex.VELOCITY_BIAS], slow.std_m_s**2, rtol=0.02)


def test_velocity_bias_is_forgotten_under_a_command_as_while_coasting(vehicle, eskf):
    k, c = np.array(vehicle.model_parameters()), np.array([0.1, -0.05, 0.02])
    flown = eskf.start(0.0, np.zeros(3), np.zeros(3), LEVEL)
    coasted = flown.copy()
    flown.nominal[StateIndex.VELOCITY_BIAS] = coasted.nominal[StateIndex.VELOCITY_BIAS] = c
    for _ in range(100):
        eskf.predict(flown, np.array([0.35, 0, 0, 0]), k, 0.02)
        eskf.coast(coasted, 0.02)
    expected = np.exp(-2 / vehicle.estimator.velocity_bias.time_constant_s) * c
    np.testing.assert_allclose(flown.nominal[StateIndex.VELOCITY_BIAS], expected, atol=1e-12)
    np.testing.assert_allclose(coasted.nominal[StateIndex.VELOCITY_BIAS], expected, atol=1e-12)
    np.testing.assert_allclose(
        flown.covariance[ErrorIndex.VELOCITY_BIAS, ErrorIndex.VELOCITY_BIAS],
        coasted.covariance[ErrorIndex.VELOCITY_BIAS, ErrorIndex.VELOCITY_BIAS],
        atol=1e-15,
    )


def command(thrust):
    return Command(np.array([thrust, 0, 0, 0]), np.zeros(8))


def thrust_of(inputs, start, end):
    """[(duration, thrust or None)] with equal neighbours merged."""
    merged = []
    for dt, c in inputs.segments(start, end):
        value = None if c is None else c.control[0]
        if merged and merged[-1][1] == value:
            merged[-1][0] += dt
        else:
            merged.append([dt, value])
    return [(round(dt, 9), value) for dt, value in merged]


def test_a_setpoint_acts_after_the_actuation_delay_until_the_next_one():
    inputs = Inputs(0.03, 1.0)
    inputs.set_mode(0.9, True)
    inputs.add_setpoint(1.00, command(0.1))
    inputs.add_setpoint(1.02, command(0.2))
    assert thrust_of(inputs, 1.0, 1.06) == [(0.03, None), (0.02, 0.1), (0.01, 0.2)]


def test_steps_fill_the_interval_and_are_short():
    inputs = Inputs(0.03, 1.0)
    steps = [dt for dt, _ in inputs.segments(0.0, 0.333)]
    assert sum(steps) == pytest.approx(0.333)
    assert max(steps) <= 0.02 + 1e-9


def test_an_old_setpoint_is_not_an_input():
    inputs = Inputs(0.03, 1.0)
    inputs.set_mode(0.0, True)
    inputs.set_mode(0.9, True)
    inputs.add_setpoint(0.0, command(0.1))
    assert thrust_of(inputs, 0.03, 0.8) == [(COMMAND_MAX_AGE_S - 0.03, 0.1), (0.3, None)]


def test_without_offboard_there_is_no_input():
    inputs = Inputs(0.0, 1.0)
    inputs.add_setpoint(0.0, command(0.1))
    assert thrust_of(inputs, 0.0, 0.1) == [(0.1, None)]  # before the first report of the mode
    inputs.set_mode(0.1, True)
    assert inputs.set_mode(0.2, False) == 0.2
    assert thrust_of(inputs, 0.0, 0.3) == [(0.1, None), (0.1, 0.1), (0.1, None)]


def test_a_mode_report_expires_after_a_second():
    inputs = Inputs(0.0, 5.0)
    inputs.set_mode(0.0, True)
    for i in range(100):
        inputs.add_setpoint(0.02 * i, command(0.1))
    assert thrust_of(inputs, 0.0, 1.5) == [(MODE_MAX_AGE_S, 0.1), (0.5, None)]
    assert inputs.set_mode(0.1, False) == 0.1


def test_inputs_discard_only_old_entries():
    inputs = Inputs(0.03, 1.0)
    for i in range(1000):
        inputs.add_setpoint(0.02 * i, command(0.1 + i))
        inputs.set_mode(0.02 * i, i % 2 == 0)
        inputs.discard_old(0.02 * i)
    assert len(inputs) < 300
    assert sum(dt for dt, _ in inputs.segments(19.0, 19.98)) == pytest.approx(0.98)

import numpy as np
import pytest

from companion.control.prediction import Predictor
from companion.core.frames import GRAVITY_M_S2
from companion.core.messages import SentSetpoint

ACTUATION_S = 0.03


def sent(stamp_s, thrust=0.3436, roll=0.0, pitch=0.0, yaw_rate=0.0):
    return SentSetpoint(
        stamp_s=stamp_s, roll_rad=roll, pitch_rad=pitch, yaw_rad=0.0, yaw_rate_rad_s=yaw_rate, thrust=thrust
    )


@pytest.fixture
def predictor(vehicle):
    return Predictor(ACTUATION_S)


@pytest.fixture
def parameters(vehicle):
    return np.array(vehicle.model_parameters())


def test_a_setpoint_acts_its_latency_after_it_was_sent(predictor, parameters):
    hover = GRAVITY_M_S2 / parameters[0]
    predictor.sent(sent(0.0, thrust=hover))
    predictor.sent(sent(1.0, thrust=hover, roll=0.2))
    x0 = np.zeros(9)
    before = predictor.predict(x0, np.zeros(3), parameters, 0.99, 1.03)
    assert before[6] == 0.0
    after = predictor.predict(x0, np.zeros(3), parameters, 0.99, 1.05)
    tau, gain = parameters[4:6]
    assert after[6] == pytest.approx(gain * 0.2 * (1 - np.exp(-0.02 / tau)), rel=1e-4)


def test_pieces_of_a_prediction_add_up(predictor, parameters):
    """Ten setpoints: one long prediction equals many short ones."""
    rng = np.random.default_rng(2)
    for i in range(10):
        predictor.sent(sent(0.02 * i, 0.34 + 0.02 * rng.normal(), *rng.normal(size=2) * 0.2, 0.1))
    x0, wind = rng.normal(size=9) * 0.2, np.array([1.0, -0.3, 0.2])
    whole = predictor.predict(x0, wind, parameters, 0.04, 0.2)
    x, grid = x0, np.linspace(0.04, 0.2, 33)
    for a, b in zip(grid[:-1], grid[1:], strict=True):
        x = predictor.predict(x, wind, parameters, a, b)
    np.testing.assert_allclose(whole, x, atol=1e-6)


def test_without_known_setpoints_the_velocity_stays_constant(predictor, parameters):
    x = predictor.predict([0, 0, 2, 1.0, -0.5, 0.1, 0.1, 0.05, 0.3], np.ones(3), parameters, 0.0, 0.1)
    np.testing.assert_allclose(x, [0.1, -0.05, 2.01, 1.0, -0.5, 0.1, 0.1, 0.05, 0.3])


def test_forgotten_setpoints_do_not_act(predictor, parameters):
    predictor.sent(sent(0.0, roll=0.3))
    predictor.forget()
    assert predictor.predict(np.zeros(9), np.zeros(3), parameters, 0.1, 0.3)[6] == 0.0


def test_broken_or_late_setpoints_are_dropped_and_history_is_bounded(predictor, parameters):
    for i in range(1000):
        predictor.sent(sent(0.02 * i))
    predictor.sent(sent(3.0, roll=1.0))
    predictor.sent(sent(30.0, roll=float("nan")))
    assert len(predictor.history) < 60
    assert np.isfinite(predictor.predict(np.zeros(9), np.zeros(3), parameters, 19.9, 40.0)).all()


def test_a_state_from_the_future_is_left_as_it_is(predictor, parameters):
    predictor.sent(sent(0.0, roll=0.3))
    np.testing.assert_array_equal(predictor.predict(np.ones(9), np.zeros(3), parameters, 2.0, 1.0), np.ones(9))

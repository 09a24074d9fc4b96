"""Errors that last: thrust gain, heading offset, a flight controller's velocity that runs away, a bundle misplaced."""

import numpy as np
import pytest
from eskf_truth import Flight, boxminus, position_M, vector

from companion.core.clock import SimulatedStopwatch
from companion.core.frames import quat_exp, quat_multiply
from companion.core.messages import Markers
from companion.estimation.estimator import EstimatorNode
from companion.estimation.layout import E_TH, C


@pytest.fixture
def node(vehicle):
    return EstimatorNode(vehicle, None, SimulatedStopwatch())


def relative_errors_m(flight, count):
    pairs = zip(flight.states[-count:], flight.truths[-count:], strict=True)
    return np.array([np.linalg.norm(position_M(vector(s)) - position_M(x)) for s, x in pairs])


@pytest.mark.parametrize("scale", [0.92, 1.05])
def test_thrust_that_is_off_is_thrust_scale_and_no_vertical_disturbance(vehicle, node, scale):
    flight = Flight(vehicle, seed=21, disturbance=(0.5, -0.3, 0.0))
    flight.thrust_scale = scale
    state = flight.run(node, 25.0)
    assert abs(state.thrust_scale - scale) < 0.025 and abs(state.thrust_scale - scale) < 3 * state.thrust_scale_std
    assert state.thrust_scale_std < 0.5 * vehicle.estimator.thrust_scale.std
    # without the state the disturbance would be the whole of (scale - 1) g: 0.78 and 0.49 m/s²
    assert abs(np.mean([s.disturbance_W[2] for s in flight.states[-500:]])) < 0.2


def test_a_command_that_jitters_and_lags_does_not_weaken_the_thrust_scale(vehicle, node):
    """Thrust that comes through motors: the jitter of the command that they swallow is no evidence about its gain."""
    flight = Flight(vehicle, seed=22, disturbance=(0.5, -0.3, 0.0))
    command, rng = flight._command, np.random.default_rng(0)

    def jittering():
        c = command()
        flight.thrust_scale = 1.0
        jitter = 0.01 * rng.normal()
        # told to the estimator, never felt by the aircraft
        return np.array([c[0] + jitter, *c[1:]])

    flight._command = jittering
    felt = flight._acting

    class Swallowed(list):
        def append(self, item):
            t, c = item
            super().append((t, np.array([flight_thrust(), *c[1:]])))

    def flight_thrust():
        return command()[0]

    flight._acting = Swallowed(felt)
    state = flight.run(node, 20.0)
    assert abs(state.thrust_scale - 1.0) < 0.03


def test_leaving_offboard_and_coming_back_keeps_the_thrust_scale(vehicle, node):
    flight = Flight(vehicle, seed=23, noise=0.0, disturbance=(0.5, -0.3, 0.0))
    flight.thrust_scale = 0.92
    flight.run(node, 20.0)
    flight.offboard = False
    flight.run(node, 4.0)
    flight.offboard = True
    flight.run(node, 4.0)
    scales = np.array([s.thrust_scale for s in flight.states[1500:]])
    assert np.abs(np.diff(scales)).max() < 0.005
    assert np.abs(scales - 0.92).max() < 0.03


def test_a_heading_offset_of_the_flight_controller_is_within_the_published_uncertainty(vehicle, node):
    flight = Flight(vehicle, seed=24)
    flight.attitude_bias = np.array([0.004, -0.003, 0.025])
    flight.run(node, 10.0)
    for state, truth in zip(flight.states[-200::20], flight.truths[-200::20], strict=True):
        error = boxminus(truth, vector(state))[E_TH]
        assert (np.abs(error) < 3 * np.sqrt(np.array(state.covariance_diag)[E_TH])).all()
    assert relative_errors_m(flight, 200).max() < 0.06, "the bundle's frame does not see the offset"


class Ramp:
    """A velocity error that runs away at 1 m/s each second along x, for one second, and stays."""

    def __init__(self, start_s):
        self.start_s, self.t, self.c = start_s, 0.0, np.zeros(3)

    def step(self, dt):
        self.t += dt
        self.c = np.array([np.clip(self.t - self.start_s, 0.0, 1.0), 0.0, 0.0])


def test_a_velocity_error_that_runs_away_does_not_pull_the_filter_off_the_visible_bundle(vehicle, node):
    """It moved by 1.6 m while the state was valid, and not one velocity was rejected."""
    flight = Flight(vehicle, seed=25)
    flight.velocity_error = Ramp(6.0)
    flight.run(node, 12.0)
    assert relative_errors_m(flight, 700).max() < 0.15
    assert relative_errors_m(flight, 200).max() < 0.05
    assert flight.states[-1].marker_age_s < 0.2 and flight.states[-1].reset_count == 0
    np.testing.assert_allclose(vector(flight.states[-1])[C], [1.0, 0.0, 0.0], atol=0.15)


def garbled(rng, share):
    """Replaces a share of the observations: half by flips, half by poses that are nowhere near."""

    def edit(message):
        if isinstance(message, Markers) and message.observations and rng.random() < share:
            best = message.observations[0].best
            if rng.random() < 0.5:
                best.q_CM = tuple(quat_multiply(best.q_CM, quat_exp((0.0, 0.6 * rng.choice([-1, 1]), 0.0))))
            else:
                best.p_CM = tuple(np.array(best.p_CM) + rng.normal(0, 1.0, 3))
                best.q_CM = tuple(quat_multiply(best.q_CM, quat_exp(rng.normal(0, 0.5, 3))))
        return message

    return edit


@pytest.mark.parametrize("seed", [31, 32])
def test_a_fifth_of_the_observations_garbled_costs_less_than_half_the_accuracy(vehicle, seed):
    rms_m = {}
    for share in (0.0, 0.2):
        flight = Flight(vehicle, seed=seed)
        flight.edit = garbled(np.random.default_rng(seed), share)
        flight.run(EstimatorNode(vehicle, None, SimulatedStopwatch()), 12.0)
        rms_m[share] = np.sqrt(np.mean(relative_errors_m(flight, 900) ** 2))
    assert rms_m[0.2] < 1.5 * rms_m[0.0]


def test_one_false_pose_that_placed_the_bundle_is_forgotten_at_the_next_two(vehicle, node):
    flight = Flight(vehicle, seed=33)
    spoilt = []

    def first(message):
        if isinstance(message, Markers) and message.observations and len(spoilt) < 1:
            best = message.observations[0].best
            best.p_CM = tuple(np.array(best.p_CM) + (0.5, 0.8, 1.0))
            spoilt.append(message.stamp_s)
        return message

    flight.edit = first
    flight.run(node, 3.0)
    errors = [boxminus(x, vector(s))[:3] for s, x in zip(flight.states[-100:], flight.truths[-100:], strict=True)]
    assert np.linalg.norm(errors, axis=1).max() < 0.5, "the aircraft was not moved to where the false pose says"
    assert relative_errors_m(flight, 100).max() < 0.05


def test_without_the_bundle_the_published_uncertainty_bounds_the_error(vehicle):
    inside = []
    for seed in range(40, 42):
        flight = Flight(vehicle, seed=seed)
        node = EstimatorNode(vehicle, None, SimulatedStopwatch())
        flight.run(node, 4.0)
        flight.marker_seen = False
        flight.run(node, 12.0)
        std = np.array([s.relative_std_m for s in flight.states[-1200:]])
        inside.append(relative_errors_m(flight, 1200) < 3 * std)
    assert np.mean(inside) >= 0.99

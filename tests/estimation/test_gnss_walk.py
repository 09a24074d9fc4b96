"""How quickly a position walks away, from walks whose density is known."""

import math

import numpy as np
import pytest
from msgspec.structs import replace

from companion.core.enums import Sensor
from companion.core.messages import FcuStatus
from companion.estimation.estimator import EstimatorNode
from companion.estimation.filter import Eskf, bound_walk
from companion.estimation.gnss_walk import FORGET_S, MEAN_S, UNMEASURED_FACTOR, GnssWalk
from companion.estimation.inputs import Inputs
from companion.estimation.layout import ErrorIndex, StateIndex
from tests.estimation.eskf_truth import HoverSimulation

STEP_S = 0.02


def measured(density, seconds=30.0, seed=1, noise_m=0.01):
    rng, walk = np.random.default_rng(seed), GnssWalk(keep_s=1.0)
    error = np.cumsum(density * math.sqrt(STEP_S) * rng.standard_normal((round(seconds / STEP_S), 3)), axis=0)
    for i, value in enumerate(error + noise_m * rng.standard_normal(error.shape)):
        walk.add(i * STEP_S, value)
        walk.close(i * STEP_S)
    return math.sqrt(walk.at(seconds) or 0.0)


@pytest.mark.parametrize("density", [0.1, 0.32])
def test_the_walk_is_measured(density):
    assert np.mean([measured(density, seed=seed) for seed in range(10)]) == pytest.approx(density, rel=0.15)


def test_nothing_is_known_without_a_bundle_or_of_the_past():
    walk = GnssWalk(keep_s=1.0)
    assert walk.at(5.0) is None
    for i in range(1000):  # a bundle that is seen for one instant every two seconds
        walk.add(2.0 * i, np.array([0.1 * i, 0.0, 0.0]))
        walk.close(2.0 * i)
    assert walk.at(2000.0) is None


def test_a_jump_is_forgotten_after_some_time():
    walk = GnssWalk(keep_s=1.0)
    for i in range(3000):
        t = i * STEP_S
        walk.add(t, np.array([3.0 if t > 15.0 else 0.0, 0.0, 0.0]))
        walk.close(t)
        if math.isclose(t, 17.0):
            after_jump = walk.at(t)
            assert after_jump > 0.3
        if math.isclose(t, 17.0 + MEAN_S):
            assert walk.at(t) < 0.5 * after_jump
    assert walk.at(60.0) < 0.01


def test_what_was_measured_beside_one_bundle_is_forgotten_on_the_way_to_the_next():
    walk = GnssWalk(keep_s=1.0)
    for i in range(500):
        walk.add(i * STEP_S, np.array([0.02 * i, 0.0, 0.0]))
        walk.close(i * STEP_S)
    assert walk.at(10.0) > 0.1
    walk.close(10.0 + 0.9 * FORGET_S)
    assert walk.at(10.0 + 0.9 * FORGET_S) > 0.1
    walk.close(10.1 + FORGET_S)
    assert walk.at(10.1 + FORGET_S) is None
    assert walk.changes_s(10.0 + 0.9 * FORGET_S) == 10.1 + FORGET_S


def test_a_position_that_is_dead_reckoned_says_nothing_about_satellites(vehicle):
    """PX4 has lost them, and its position drifts in sight of the bundle."""
    flight, node = HoverSimulation(vehicle, seed=5, imu=True), EstimatorNode(vehicle)
    flight.run(node, 15.0)
    before = node.acting_inputs.gnss_walk.at(flight.t)
    flight.edit = lambda m: replace(m, gnss_ok=False) if isinstance(m, FcuStatus) else m
    flight.run(node, 5.0)
    for _ in range(150):
        flight.gnss_jump = flight.gnss_jump + np.array([0.08, 0.0, 0.0])
        flight.run(node, 0.1)
    assert math.sqrt(node.acting_inputs.gnss_walk.at(flight.t) or 0.0) < 1.5 * math.sqrt(before)


def test_the_position_is_as_uncertain_as_the_receiver_says(eskf):
    filter_state = eskf.start(0.0, (5.0, 2.0, 1.0), (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0), accuracy_m=(0.9, 1.5))
    for _ in range(100):
        assert eskf.measure(filter_state, Sensor.POSITION, (5.0, 2.0, 1.0)).accepted
    std = np.sqrt(filter_state.covariance.diagonal())
    assert std[ErrorIndex.POSITION] == pytest.approx([0.9, 0.9, 1.5], rel=0.02), "a hundred positions share one error"
    assert std[ErrorIndex.GNSS_BIAS] == pytest.approx([0.9, 0.9, 1.5], rel=0.02)
    assert np.linalg.eigvalsh(filter_state.covariance).min() > 0.0


@pytest.mark.parametrize("waits_s", [0.0, 80.0])
def test_a_walk_of_the_satellites_beside_a_bundle_is_left_to_the_bias(vehicle, waits_s):
    """0.3 m/√s, three times the vehicle file's; also when the uncertainty had reached its bound before the bundle was in sight."""
    flight, rng, node = HoverSimulation(vehicle, seed=5, imu=True), np.random.default_rng(9), EstimatorNode(vehicle)
    flight.marker_seen = not waits_s
    if waits_s:
        flight.run(node, waits_s)
    flight.marker_seen = True
    begin = flight.run(node, 15.0)
    for _ in range(200):
        flight.gnss_jump = flight.gnss_jump + 0.3 * math.sqrt(0.1) * rng.standard_normal(3)
        flight.run(node, 0.1)
    end = node.history.newest
    assert math.sqrt(node.acting_inputs.gnss_walk.at(end.time_s)) > 0.2
    moved_m = np.linalg.norm(end.nominal[StateIndex.POSITION] - np.array(begin.p_W))
    assert moved_m < 0.1 + np.linalg.norm(flight.s[:3] - np.array(begin.p_W))


def test_before_a_bundle_is_near_the_satellites_may_walk_faster_than_in_an_open_sky(vehicle):
    eskf = Eskf(vehicle)
    start = eskf.start(0.0, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))
    known = Inputs(vehicle.latency.actuation_s, vehicle.estimator.history_s)
    for i in range(300):  # a position that stands still beside a bundle
        known.gnss_walk.add(i * STEP_S, np.zeros(3))
    known.gnss_walk.close(6.0)
    grown = []
    for inputs in (Inputs(vehicle.latency.actuation_s, vehicle.estimator.history_s), known):
        filter_state = start.copy()
        filter_state.time_s = 6.0
        eskf.begin(6.0, False, filter_state.covariance, inputs)
        eskf.coast(filter_state, 1.0)
        grown.append((filter_state.covariance - start.covariance).diagonal()[ErrorIndex.GNSS_BIAS])
    walk2 = vehicle.estimator.process.gnss_bias_m_sqrt_s**2
    assert grown[0] == pytest.approx(walk2 * np.array([UNMEASURED_FACTOR**2, UNMEASURED_FACTOR**2, 1.0]))
    assert grown[1] == pytest.approx(3 * [walk2])


@pytest.mark.parametrize("offboard", [False, True])
def test_a_state_without_a_bundle_stays_valid_while_the_aircraft_waits(vehicle, offboard):
    """A random walk without a bound made it invalid after 2.5 minutes (3 m)."""
    flight, node = HoverSimulation(vehicle, seed=5, imu=True), EstimatorNode(vehicle)
    flight.marker_seen, flight.offboard = False, offboard
    stds_m = [flight.run(node, 20.0).position_std_m for _ in range(12)]
    assert stds_m[3] > 1.9, "it grows at first"
    assert stds_m[-1] < 2.3 and stds_m[-1] - stds_m[-4] < 0.05


def test_the_bound_of_the_walk_is_that_of_the_receiver_where_that_is_worse(eskf):
    start = eskf.start(0.0, (5.0, 2.0, 1.0), (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0), accuracy_m=(3.5, 4.5))
    bias, position = ErrorIndex.GNSS_BIAS, ErrorIndex.POSITION
    for accuracy_m, level, up in ((None, 2.0, 2.0), ((1.0, 1.0), 2.0, 2.0), ((2.5, 4.0), 2.5, 4.0)):
        covariance = start.covariance.copy()
        bound_walk(covariance, accuracy_m)
        std = np.sqrt(covariance.diagonal())
        assert std[bias] == pytest.approx([level, level, up])
        assert std[position] == pytest.approx([level, level, up], rel=0.1)
        assert np.linalg.eigvalsh(covariance).min() > 0.0
        again = covariance.copy()
        bound_walk(again, accuracy_m)
        assert np.allclose(again, covariance, rtol=1e-12)

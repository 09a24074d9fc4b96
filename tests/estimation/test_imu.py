"""The samples of HIGHRES_IMU as steps of the prediction: order, gaps, late samples, and the prediction by them."""

import itertools
from math import inf

import numpy as np
import pytest
from eskf_truth import HoverSimulation, position_M, random_state, vector

from companion.core.clock import SimulatedStopwatch
from companion.core.enums import Sensor
from companion.core.frames import quat_exp, quat_multiply
from companion.core.messages import FcuImu
from companion.estimation.estimator import FORCE_PERIOD_S, THRUST_PERIOD_S, EstimatorNode
from companion.estimation.imu import FIRST_S, GAP_MAX_S, HOLD_S, ForceWindows, ImuSamples
from companion.estimation.inputs import Command, Inputs
from companion.estimation.layout import ERROR_SIZE, SAMPLES_MAX, ErrorIndex, StateIndex
from companion.estimation.noise import Propagation, forgetting_rates, process_variances
from tests.benchmark import numpy_eskf
from tests.benchmark.numpy_eskf import NumpyEskf

DT = 0.005
LEVEL = np.array([1.0, 0, 0, 0])
G = 9.80665


def values(number):
    """Six numbers that name a sample."""
    return (float(number), 0.0, 0.0, 0.0, 0.0, G)


def stored(stamps, keep_s=2.0):
    samples = ImuSamples(keep_s)
    for stamp_s in stamps:
        samples.add(stamp_s, values(stamp_s))
    return samples


def steps(samples, start_s, end_s):
    """([(duration, stamp of the sample), …], reached), rounded."""
    rows, reached_s = samples.cover(start_s, end_s)
    assert all(row[0] > 0 for row in rows)
    assert sum(row[0] for row in rows) == pytest.approx(reached_s - start_s)
    return [(round(row[0], 9), round(row[1], 9)) for row in rows], round(reached_s, 9)


# --- the samples


def test_a_sample_is_the_mean_of_the_interval_that_ends_at_its_stamp():
    samples = stored([1.000, 1.005, 1.010, 1.015])
    assert steps(samples, 1.000, 1.015) == ([(0.005, 1.005), (0.005, 1.010), (0.005, 1.015)], 1.015)
    assert steps(samples, 1.002, 1.012) == ([(0.003, 1.005), (0.005, 1.010), (0.002, 1.015)], 1.012)
    assert steps(samples, 1.006, 1.008) == ([(0.002, 1.010)], 1.008)
    assert steps(samples, 1.010, 1.010) == ([], 1.010)


def test_a_lost_sample_is_covered_by_the_next_one():
    samples = stored([1.000, 1.005, 1.005 + 0.9 * GAP_MAX_S])
    assert steps(samples, 1.000, 1.032) == ([(0.005, 1.005), (0.027, 1.032)], 1.032)


def test_in_a_gap_the_last_sample_holds_for_a_moment_and_then_nothing_is_known():
    samples = stored([1.000, 1.005, 1.205, 1.210])
    assert steps(samples, 1.000, 1.300) == ([(0.005, 1.005), (HOLD_S, 1.005)], 1.005 + HOLD_S)
    assert steps(samples, 1.1, 1.3) == ([], 1.1)
    assert samples.resumes_s(1.1) == pytest.approx(1.205 - FIRST_S)
    assert steps(samples, 1.200, 1.210) == ([(FIRST_S, 1.205), (0.005, 1.210)], 1.210)


def test_the_newest_sample_stands_in_for_those_that_have_not_arrived():
    samples = stored([1.000, 1.005])
    assert steps(samples, 1.005, 1.015) == ([(0.010, 1.005)], 1.015)
    assert steps(samples, 1.015, 1.100) == ([(HOLD_S - 0.010, 1.005)], 1.005 + HOLD_S)
    assert steps(samples, 1.050, 1.100) == ([], 1.050)
    assert samples.resumes_s(1.010) == inf


def test_the_last_sample_holds_only_until_the_next_interval_begins():
    stamp_s = 1.0 + GAP_MAX_S + 1e-4  # a gap; the next interval begins after the hold
    assert steps(stored([1.0, stamp_s]), 1.0, stamp_s)[0][0] == (HOLD_S, 1.0)
    assert stamp_s - FIRST_S >= 1.0 + HOLD_S, "otherwise the two would overlap"


def test_without_samples_nothing_is_covered():
    samples = ImuSamples(1.0)
    assert samples.cover(1.0, 2.0) == ([], 1.0)
    assert samples.resumes_s(1.0) == inf and samples.rates_at(1.0) == (0.0, 0.0, 0.0)


def test_resumes_gives_the_present_time_within_an_interval():
    samples = stored([1.000, 1.005, 1.010])
    assert samples.resumes_s(1.003) == 1.003
    assert samples.resumes_s(0.5) == pytest.approx(1.000 - FIRST_S)


def test_a_repeated_stamp_changes_nothing():
    samples = stored([1.000, 1.005])
    assert samples.add(1.005, values(9)) is None
    assert len(samples) == 2 and steps(samples, 1.000, 1.005) == ([(0.005, 1.005)], 1.005)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_the_order_of_arrival_does_not_matter(order):
    stamps = [1.000, 1.005, 1.010, 1.120]
    shuffled = stored([stamps[i] for i in order])
    assert shuffled.cover(0.99, 1.3) == stored(stamps).cover(0.99, 1.3)
    assert shuffled.cover(1.05, 1.3) == stored(stamps).cover(1.05, 1.3)


def test_add_returns_the_time_from_which_the_motion_has_changed():
    """For every late sample: what the samples cover before that time is as it was, and after it is not."""
    stamps = [1.000, 1.005, 1.010, 1.030, 1.100, 1.104, 1.139]
    edges = np.arange(0.9801, 1.2, 0.0005)

    def seen(samples):
        return [samples.cover(a, b) for a, b in itertools.pairwise(edges)]

    for late in (0.992, 1.007, 1.020, 1.035, 1.060, 1.099, 1.102, 1.120, 1.150):
        samples = stored(stamps)
        before = seen(samples)
        changed_s = samples.add(late, values(late))
        differs = [a for a, b, c in zip(edges, before, seen(samples), strict=False) if b != c]
        assert differs and changed_s - 0.0005 <= differs[0] <= changed_s + 0.0005, late


def test_rates_are_of_the_interval_that_holds_the_time():
    samples = stored([1.000, 1.005, 1.105])
    assert samples.rates_at(1.003)[0] == 1.005 and samples.rates_at(1.005)[0] == 1.005
    assert samples.rates_at(1.102)[0] == 1.105
    assert samples.rates_at(1.05) == (0.0, 0.0, 0.0), "nothing is known in a gap"
    assert samples.rates_at(1.115)[0] == 1.105 and samples.rates_at(1.2) == (0.0, 0.0, 0.0)


def test_discarding_old_samples_does_not_change_what_is_kept():
    stamps = 1.0 + DT * np.arange(1000)
    whole, samples = stored(stamps), stored(stamps, keep_s=0.5)
    samples.discard_old(stamps[-1])
    assert len(samples) < 110
    start_s = stamps[-1] - 0.5
    assert samples.cover(start_s, 9.0) == whole.cover(start_s, 9.0)


# --- the mean force


def windows(stamps, period_s=0.02):
    cut = ForceWindows(period_s)
    return [(round(a, 9), round(b, 9)) for t in stamps for a, b in [cut.add(t) or (0.0, 0.0)] if b]


def stamps(count, start_s=1.0, step_s=DT):
    return [start_s + step_s * i for i in range(count)]


def test_windows_follow_each_other_without_a_gap():
    assert windows(stamps(13)) == [(1.0, 1.02), (1.02, 1.04), (1.04, 1.06)]


def test_a_window_never_reaches_across_a_gap():
    assert windows(stamps(3) + stamps(6, 1.2)) == [(1.2, 1.22)]


@pytest.mark.parametrize("step_s", [-5.0, 5.0])
def test_a_step_of_the_clock_starts_the_windows_again(step_s):
    start_s = 1.0 + step_s
    assert windows(stamps(3) + stamps(5, start_s)) == [(start_s, round(start_s + 0.02, 9))]


def test_a_slower_stream_gives_a_window_for_every_sample():
    assert windows(stamps(4, step_s=0.025)) == [(1.0, 1.025), (1.025, 1.05), (1.05, 1.075)]


def test_a_late_sample_ends_no_window_and_moves_none():
    in_order = stamps(9)
    assert windows([*in_order[:6], in_order[3], *in_order[6:]]) == windows(in_order)


def test_the_mean_force_is_that_of_the_samples_of_the_window_in_any_order():
    rng = np.random.default_rng(2)
    samples = [(t, (0.0, 0.0, 0.0, *rng.normal(size=3))) for t in stamps(9)]
    imu = ImuSamples(1.0)
    for i in (0, 2, 1, 3, 5, 4, 6, 8, 7):
        imu.add(*samples[i])
    expected = np.mean([values[3:] for _, values in samples[1:5]], axis=0)
    np.testing.assert_allclose(imu.mean_force(1.0, 1.02), expected)


def test_a_window_with_missing_samples_has_no_mean_force():
    imu = ImuSamples(1.0)
    for t in (1.0, 1.005, 1.06):
        imu.add(t, (0.0,) * 6)
    assert imu.mean_force(1.0, 1.06) is None and imu.mean_force(1.0, 1.05) is None
    assert imu.mean_force(1.1, 1.2) is None


# --- the prediction by IMU


def imu_at(t):
    """A sample of a body that turns and accelerates."""
    return (
        *(0.4 * np.sin(3 * t), 0.5 * np.cos(2 * t), 0.2),
        *(0.5 * np.cos(4 * t), -0.4 * np.sin(3 * t), G + 0.6 * np.sin(5 * t)),
    )


def started(eskf, rng):
    """A filter state at t = 1 s with biases and a full covariance."""
    filter_state = eskf.start(1.0, np.zeros(3), np.zeros(3), LEVEL)
    filter_state.nominal[:] = random_state(rng)
    filter_state.nominal[StateIndex.GYRO_BIAS] *= 0.02
    M = rng.normal(size=(ERROR_SIZE, ERROR_SIZE))
    filter_state.covariance[:] = 1e-3 * (M @ M.T + (M @ M.T).T)
    return filter_state


def reference(vehicle, eskf, filter_state):
    return NumpyEskf(filter_state.nominal, filter_state.covariance, None, None, eskf.p_BC, eskf.q_BC)


def by_imu(vehicle):
    return process_variances(vehicle, Propagation.IMU), forgetting_rates(vehicle, Propagation.IMU)


@pytest.mark.parametrize("count", [1, 7, SAMPLES_MAX])
def test_prediction_by_samples_is_the_filter_in_numpy(vehicle, eskf, count):
    filter_state = started(eskf, np.random.default_rng(count))
    other = reference(vehicle, eskf, filter_state)
    samples = [(DT + 1e-3 * i % 0.004, *imu_at(DT * i)) for i in range(count)]
    eskf.predict_imu(filter_state, samples)
    other.predict_imu(samples, *by_imu(vehicle))
    np.testing.assert_allclose(filter_state.nominal, other.x, atol=1e-11)
    np.testing.assert_allclose(filter_state.covariance, other.P, atol=1e-11)
    np.testing.assert_array_equal(filter_state.covariance, filter_state.covariance.T)


def test_samples_of_an_earlier_call_are_not_used_again(vehicle, eskf):
    filter_state = started(eskf, np.random.default_rng(0))
    eskf.predict_imu(filter_state.copy(), [(DT, *imu_at(0.1 * i)) for i in range(20)])
    other = reference(vehicle, eskf, filter_state)
    eskf.predict_imu(filter_state, [(DT, *imu_at(0.0))])
    other.predict_imu([(DT, *imu_at(0.0))], *by_imu(vehicle))
    np.testing.assert_allclose(filter_state.nominal, other.x, atol=1e-12)


def test_predicted_covariance_is_that_of_many_bodies(vehicle, eskf):
    """Monte-Carlo: bodies around the estimate whose samples have the noise and the biases of the filter's model."""
    rng, n, imu = np.random.default_rng(1), 20000, vehicle.estimator.imu
    filter_state = eskf.start(
        1.0, np.zeros(3), np.array([1.0, -0.5, 0.2]), quat_multiply(LEVEL, quat_exp((0.1, 0.2, 1)))
    )
    blocks = [*range(ErrorIndex.ATTITUDE.stop), *range(ErrorIndex.GYRO_BIAS.start, ErrorIndex.ACCEL_BIAS.stop)]
    std = np.repeat([0.05, 0.05, 0.01, 0.01, 0.1], 3)
    M = rng.normal(size=(15, 15))
    correlation = np.eye(15) + M @ M.T / 30
    P = correlation * std[:, None] * std
    filter_state.covariance[np.ix_(blocks, blocks)] = P
    e = np.zeros((ERROR_SIZE, n))
    e[blocks] = np.linalg.cholesky(P) @ rng.normal(size=(15, n))
    x = numpy_eskf.boxplus(filter_state.nominal, e)
    p, v, q = x[StateIndex.POSITION], x[StateIndex.VELOCITY], x[StateIndex.ATTITUDE]
    biases, fade = x[StateIndex.GYRO_BIAS.start : StateIndex.ACCEL_BIAS.stop], np.exp(-DT / imu.bias_time_s)
    white = np.repeat([imu.gyro_rad_sqrt_s, imu.accel_m_s_sqrt_s], 3)[:, None]
    walk = np.repeat([imu.gyro_bias_rad_s, imu.accel_bias_m_s2], 3)[:, None] * (1 - fade**2) ** 0.5
    samples = [(DT, *imu_at(DT * i)) for i in range(100)]
    for sample in samples:
        true = np.array(sample[1:])[:, None] - biases - white / DT**0.5 * rng.normal(size=(6, n))
        a = numpy_eskf.rotate(numpy_eskf.multiply(q, numpy_eskf.exp(DT / 2 * true[:3])), true[3:])
        a = a - np.array([[0.0], [0.0], [G]])
        p, v, q = p + DT * v + DT**2 / 2 * a, v + DT * a, numpy_eskf.multiply(q, numpy_eskf.exp(DT * true[:3]))
        biases = fade * biases + walk * rng.normal(size=(6, n))
    for at in range(0, len(samples), SAMPLES_MAX):
        eskf.predict_imu(filter_state, samples[at : at + SAMPLES_MAX])
    m = filter_state.nominal
    turned = numpy_eskf.log(numpy_eskf.multiply(numpy_eskf.conjugate(m[StateIndex.ATTITUDE])[:, None], q))
    before = m[StateIndex.GYRO_BIAS.start : StateIndex.ACCEL_BIAS.stop, None]
    errors = np.concatenate(
        [p - m[StateIndex.POSITION, None], v - m[StateIndex.VELOCITY, None], turned, biases - before]
    )
    L = np.linalg.cholesky(filter_state.covariance[np.ix_(blocks, blocks)])
    whitened = np.linalg.solve(L, errors)
    np.testing.assert_allclose(whitened @ whitened.T / n, np.eye(15), atol=0.05)  # seven standard deviations
    np.testing.assert_allclose(whitened.mean(axis=1), 0, atol=0.05)


def filled(inputs, start_s, end_s):
    for stamp_s in start_s + DT * np.arange(round((end_s - start_s) / DT) + 1):
        inputs.imu.add(stamp_s, imu_at(stamp_s))


def test_advance_predicts_by_the_samples(vehicle, eskf):
    filter_state = started(eskf, np.random.default_rng(2))
    expected, inputs = filter_state.copy(), Inputs(0.03, 1.0)
    filled(inputs, 1.0, 1.5)
    eskf.advance(filter_state, 1.3, inputs)
    for i in range(1, 61):
        eskf.predict_imu(expected, [(DT, *imu_at(1.0 + DT * i))])
    assert filter_state.time_s == 1.3
    np.testing.assert_allclose(filter_state.numbers, expected.numbers, atol=1e-9)


def test_advance_in_parts_gives_the_same_as_at_once(vehicle, eskf):
    once = started(eskf, np.random.default_rng(3))
    parts, inputs = once.copy(), Inputs(0.03, 1.0)
    filled(inputs, 1.0, 1.5)
    eskf.advance(once, 1.4, inputs)
    for t in (1.003, 1.0031, 1.05, 1.1, 1.2345, 1.4):
        eskf.advance(parts, t, inputs)
    np.testing.assert_allclose(parts.numbers, once.numbers, atol=2e-6)


@pytest.mark.parametrize("offboard", [True, False])
def test_in_a_gap_the_filter_falls_back_to_the_command_or_coasts_and_returns(vehicle, eskf, offboard):
    filter_state = started(eskf, np.random.default_rng(4))
    expected, inputs = filter_state.copy(), Inputs(0.0, 1.0)
    k, u = np.array(vehicle.model_parameters()), np.array([0.35, 0.05, -0.05, 0.1])
    inputs.set_mode(1.0, offboard)
    inputs.add_setpoint(1.0, Command(u, k))
    filled(inputs, 1.0, 1.1)
    filled(inputs, 1.3, 1.4)
    eskf.advance(filter_state, 1.4, inputs)

    def by_samples(start_s, durations):
        for i, duration_s in enumerate(durations):
            eskf.predict_imu(expected, [(duration_s, *imu_at(start_s + DT * i))])

    by_samples(1.0 + DT, [DT] * 20)
    eskf.predict_imu(expected, [(HOLD_S, *imu_at(1.1))])
    gap_s = 1.3 - FIRST_S - 1.1 - HOLD_S
    for _ in range(9):
        if offboard:
            eskf.predict(expected, u, k, gap_s / 9)
        else:
            eskf.coast(expected, gap_s / 9)
    by_samples(1.3, [FIRST_S] + [DT] * 20)
    np.testing.assert_allclose(filter_state.numbers, expected.numbers, atol=1e-9)


# --- through the node


def relative_errors_m(flight, count):
    pairs = zip(flight.states[-count:], flight.truths[-count:], strict=True)
    return np.array([np.linalg.norm(position_M(vector(s)) - position_M(x)) for s, x in pairs])


@pytest.mark.parametrize("offboard", [True, False])
def test_a_stream_that_stops_and_returns_leaves_the_estimate_good(vehicle, offboard):
    flight = HoverSimulation(vehicle, seed=71, imu=True)
    flight.offboard = offboard
    node = EstimatorNode(vehicle, None, SimulatedStopwatch())
    flight.run(node, 4.0)
    assert relative_errors_m(flight, 100).max() < 0.05 and len(flight.innovations(Sensor.SPECIFIC_FORCE)) > 150
    flight.imu = False
    flight.run(node, 2.0)
    last_s = max(i.stamp_s for i in flight.innovations(Sensor.SPECIFIC_FORCE))
    assert flight.t - last_s == pytest.approx(2.0, abs=0.03)
    assert node.acting_inputs.imu.resumes_s(flight.t) == inf
    assert relative_errors_m(flight, 200).max() < 0.1
    flight.imu = True
    state = flight.run(node, 2.0)
    assert state.valid and state.reset_count == 0
    assert relative_errors_m(flight, 100).max() < 0.05
    assert max(i.stamp_s for i in flight.innovations(Sensor.SPECIFIC_FORCE)) > flight.t - 0.1


def test_a_constant_bias_of_the_imu_does_not_move_the_relative_position(vehicle):
    flight = HoverSimulation(vehicle, seed=72, imu=True)
    flight.imu_bias = np.array([0.004, -0.003, 0.002, 0.2, -0.15, 0.2])
    state = flight.run(EstimatorNode(vehicle, None, SimulatedStopwatch()), 8.0)
    assert state.valid and relative_errors_m(flight, 300).max() < 0.05


def test_a_repeated_sample_is_counted(vehicle):
    flight = HoverSimulation(vehicle, seed=73, imu=True)
    node = EstimatorNode(vehicle, None, SimulatedStopwatch())
    sent = []
    flight.edit = lambda message: sent.append(message) or message
    flight.run(node, 1.0)
    arrived = [m for m in sent if isinstance(m, FcuImu) and m.stamp_s < flight.t - 0.1]
    node.handle(arrived[-1], flight.t)
    flight.run(node, 0.01)
    assert flight.statuses[-1].rejected["duplicate"] == 1


def test_the_force_is_measured_at_the_middle_of_its_samples(vehicle):
    """At their end the disturbance has walked on: the filter was overconfident by a factor of 1.8."""
    flight = HoverSimulation(vehicle, seed=74, imu=True)
    sent = []
    flight.edit = lambda message: sent.append(message) or message
    flight.run(EstimatorNode(vehicle, None, SimulatedStopwatch()), 2.0)
    across, along, middles, long = ForceWindows(FORCE_PERIOD_S), ForceWindows(THRUST_PERIOD_S), set(), set()
    for message in sent:
        if isinstance(message, FcuImu):
            for cut, found in ((across, middles), (along, long)):
                if (window := cut.add(message.stamp_s)) is not None:
                    found.add(round(sum(window) / 2, 6))
    used = {round(i.stamp_s, 6) for i in flight.innovations(Sensor.SPECIFIC_FORCE)}
    assert len(used & middles) > 80 and used <= middles | long


@pytest.mark.parametrize("bad", [{"gyro_B": (float("nan"), 0.0, 0.0)}, {"accel_B": (0.0, float("inf"), 0.0)}])
def test_a_sample_that_is_not_finite_is_counted_and_not_used(vehicle, bad):
    node = EstimatorNode(vehicle, None, SimulatedStopwatch())
    node.handle(FcuImu(**{"stamp_s": 1.0, "gyro_B": (0.0,) * 3, "accel_B": (0.0, 0.0, G), **bad}), 1.0)
    assert node.step(1.01)[1].rejected["not_finite"] == 1 and len(node.acting_inputs.imu) == 0

"""The faults of the published predecessor that concern estimation, one test each; the numbers are of docs/method.md."""

import numpy as np
import pytest
from eskf_truth import HoverSimulation, bundle_pose, integrate, log, random_state, rpy

from acados_gen import eskf_model
from companion.core.clock import SimulatedStopwatch
from companion.core.enums import Sensor
from companion.core.frames import quat_conjugate, quat_exp, quat_from_rpy, quat_multiply
from companion.core.kernel import ArtifactMissing
from companion.estimation.estimator import EstimatorNode
from companion.estimation.filter import Eskf
from companion.estimation.inputs import Inputs
from companion.estimation.layout import ERROR_SIZE, RATES, SCALE_MAX, STATE_SIZE, ErrorIndex, StateIndex

LEVEL = np.array([1.0, 0, 0, 0])
G = 9.80665


def predicted(eskf, k, u, duration_s=0.5, rpy_rad=(0.0, 0, 0), v=(0.0, 0, 0)):
    filter_state = eskf.start(0.0, np.zeros(3), np.array(v), quat_from_rpy(*rpy_rad))
    for _ in range(round(duration_s / 0.01)):
        eskf.predict(filter_state, np.array(u), k, 0.01)
    return filter_state.nominal


@pytest.fixture
def k(vehicle):
    return np.array(vehicle.model_parameters())


@pytest.mark.parametrize("sign", [1, -1])
def test_fault_1_positive_pitch_lowers_the_nose_and_flies_forward(eskf, k, sign):
    x = predicted(eskf, k, [G / k[0], 0, 0.2 * sign, 0], rpy_rad=(0, 0, np.pi / 2))
    assert rpy(x)[1] * sign > 0.15
    assert x[StateIndex.VELOCITY][1] * sign > 0.3 and abs(x[StateIndex.VELOCITY][0]) < 1e-6  # the nose points along +y


def test_fault_2_every_component_of_the_quaternion_rate_is_right(eskf, k):
    start = np.array([0, 0, 0, 0, 0, 0, 0.25, -0.2, 0.7])
    u = [0.34, -0.2, 0.15, 0.5]
    x = predicted(eskf, k, u, 0.3, rpy_rad=start[6:9])
    expected = integrate(start, u, np.zeros(3), k, 0.3)
    np.testing.assert_allclose(rpy(x), expected[6:9], atol=2e-6)


def test_fault_3_attitude_block_of_the_transition_is_not_transposed(k):
    u, eps = [G / k[0], 0.3, -0.2, 0.5], 1e-5
    x = np.zeros(STATE_SIZE)
    x[StateIndex.ATTITUDE], x[StateIndex.MARKER_ATTITUDE] = quat_from_rpy(0.1, 0.2, 1.0), LEVEL
    step, rates = eskf_model.transition(), np.full(RATES, 0.1)

    def attitude_after(error):
        y = x.copy()
        y[StateIndex.ATTITUDE] = quat_multiply(x[StateIndex.ATTITUDE], quat_exp(error))
        return np.array(step(y, u, k, 0.1, 0.02)[0]).ravel()[StateIndex.ATTITUDE]

    columns = []
    for e in np.eye(3) * eps:
        plus, minus = attitude_after(e), attitude_after(-e)
        columns.append(log(quat_multiply(quat_conjugate(minus), plus)) / (2 * eps))
    block = np.array(step(x, u, k, rates, 0.02)[1])[ErrorIndex.ATTITUDE, ErrorIndex.ATTITUDE]
    np.testing.assert_allclose(block, np.array(columns).T, atol=1e-7)
    assert np.abs(block - block.T).max() > 1e-3  # so the test detects a transposed block


def test_fault_4_the_filter_uses_the_damping_of_the_vehicle_file(eskf, vehicle, k):
    x = predicted(eskf, k, [G / k[0], 0, 0, 0], 1.0, v=(1.0, 0, 0))
    assert x[StateIndex.VELOCITY][0] == pytest.approx(np.exp(-vehicle.drag.linear_1_s[0]), rel=1e-4)
    assert tuple(k) == vehicle.model_parameters()


@pytest.mark.parametrize("sensor", ["attitude", "marker"])
def test_fault_8_innovation_covariance_has_full_rank_even_without_noise(vehicle, sensor):
    rng = np.random.default_rng(0)
    x = random_state(rng)
    M = rng.normal(size=(ERROR_SIZE, ERROR_SIZE))
    P = M @ M.T
    if sensor == Sensor.ATTITUDE:
        y = [x[StateIndex.ATTITUDE]]
    else:
        camera = vehicle.camera
        unmoved, no_slow_error = np.zeros(3), np.zeros(36)
        y = [*bundle_pose(x, camera.p_BC, camera.q_BC), camera.p_BC, camera.q_BC, unmoved, no_slow_error]
    H = np.array(eskf_model.measurement(sensor)(x, *y)[1])
    S = H @ P @ H.T  # R = 0: the rank is the model's own
    assert S.shape == ((3, 3) if sensor == Sensor.ATTITUDE else (6, 6))
    assert np.linalg.eigvalsh(S)[0] > 1e-3


def test_fault_9_a_rejected_measurement_loses_no_prediction_interval(vehicle):
    """Rejected outliers between good measurements: position and covariance are predicted over the whole time."""

    def fly(outlier):
        # Adaptation is off: it changes later gains after an outlier, as it should.
        node = EstimatorNode(vehicle, None, SimulatedStopwatch(), adapt=False)
        flight = HoverSimulation(vehicle, seed=11, noise=0.0)
        flight.run(node, 3.0)
        flight.outlier = outlier
        return flight, flight.run(node, 1.0)

    flight, clean = fly(None)
    _, dirty = fly(lambda t: np.array([8.0, 0, 0]))
    assert dirty.stamp_s == clean.stamp_s
    np.testing.assert_allclose(dirty.v_W, clean.v_W, atol=1e-3)
    assert np.linalg.norm(np.array(dirty.p_W) - clean.p_W) < 0.02
    # no measurement of the bias was accepted: its variance grew by its random walk over the full second
    growth = dirty.covariance_diag[ErrorIndex.GNSS_BIAS][0] - clean.covariance_diag[ErrorIndex.GNSS_BIAS][0]
    assert growth > 0.5 * vehicle.estimator.process.gnss_bias_m_sqrt_s**2


def test_fault_9_prediction_time_is_kept_in_the_filter(eskf, vehicle):
    filter_state = eskf.start(0.0, np.zeros(3), np.array([1.0, 0, 0]), LEVEL)
    inputs = Inputs(0.03, 1.0)
    for i in range(1, 51):
        eskf.advance(filter_state, 0.02 * i, inputs)
        assert not eskf.measure(filter_state, Sensor.POSITION, np.array([500.0, 0, 0])).accepted
    assert filter_state.nominal[StateIndex.POSITION][0] == pytest.approx(1.0)


def test_fault_10_outliers_neither_dominate_the_noise_nor_open_their_own_gate(eskf, k):
    filter_state = eskf.start(0.0, np.zeros(3), np.zeros(3), LEVEL)

    def step(y):
        eskf.predict(filter_state, np.array([G / k[0], 0, 0, 0]), k, 0.02)
        filter_state.time_s += 0.02
        eskf.measure(filter_state, Sensor.VELOCITY, np.zeros(3))
        eskf.measure(filter_state, Sensor.ATTITUDE, LEVEL)
        return eskf.measure(filter_state, Sensor.POSITION, y)

    rng = np.random.default_rng(0)
    for _ in range(100):
        step(0.1 * rng.normal(size=3))
    scale = filter_state.windows[Sensor.POSITION].scale.max()
    step(np.array([1e3, 0, 0]))
    assert filter_state.windows[Sensor.POSITION].scale.max() < 1.4 * scale
    for i in range(500):
        assert not step(np.array([20.0 * (-1) ** i, 0, 0])).accepted
    assert filter_state.windows[Sensor.POSITION].scale.max() <= SCALE_MAX**2 + 1e-9


def test_fault_12_a_late_measurement_is_applied_at_the_time_it_was_made(vehicle):
    """Positions arrive 0.3 s late at more than 1 m/s: applied on arrival they would give an error of 0.3 m."""
    node = EstimatorNode(vehicle, None, SimulatedStopwatch())
    flight = HoverSimulation(
        vehicle, seed=12, noise=0.0, disturbance=(0, 0, 0), delays={"position": 0.3, "markers": 0.35}
    )
    flight.s[0], flight.s[3] = -6.0, 3.0  # far from the hover point: fast at first
    errors = []
    for _ in range(100):
        state = flight.run(node, 0.02)
        if flight.t > 11.0:
            errors.append(np.array(state.p_W) + state.gnss_bias_W - flight.s[0:3])
    speed = np.abs([x[StateIndex.VELOCITY][0] for x in flight.truths[100:]]).max()
    assert speed > 1.0
    assert np.abs(errors).max() < 0.1 * 0.3 * speed + 0.02
    assert max(i.late_s for i in flight.innovations(Sensor.POSITION)) == pytest.approx(0.3, abs=0.02)


def test_fault_13_a_marker_once_seen_ages(vehicle):
    node = EstimatorNode(vehicle, None, SimulatedStopwatch())
    flight = HoverSimulation(vehicle, seed=13)
    assert flight.run(node, 0.05).marker_age_s == float("inf")
    assert flight.run(node, 2.0).marker_age_s < 0.2
    flight.marker_seen = False
    first = flight.run(node, 1.0).marker_age_s
    assert flight.run(node, 2.0).marker_age_s == pytest.approx(first + 2.0, abs=0.01)


def test_the_filter_refuses_to_start_without_its_kernels(vehicle, monkeypatch, tmp_path):
    monkeypatch.setenv("COMPANION_BUILD_DIR", str(tmp_path))
    with pytest.raises(ArtifactMissing, match="companion generate"):
        Eskf(vehicle)

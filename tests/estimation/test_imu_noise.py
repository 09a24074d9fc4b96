"""The noise of the inertial stream and the quickness of the disturbance, from streams whose numbers are known."""

import math

import numpy as np
import pytest

from companion.core.enums import Sensor
from companion.core.vehicle import Vehicle
from companion.estimation.filter import STREAM_FACTOR, Eskf
from companion.estimation.imu_noise import MEAN_S, Densities, DisturbanceWalk, ImuNoise, StreamNoise
from companion.estimation.layout import ErrorIndex
from companion.estimation.noise import Propagation, process_variances

STEP_S, WINDOW_S = 0.005, 0.02


def noise_of(values: np.ndarray, step_s: float = STEP_S) -> StreamNoise:
    stream = StreamNoise()
    for i, value in enumerate(values):
        stream.add(i * step_s, value)
    return stream


@pytest.mark.parametrize("step_s", [0.004, 0.01])
def test_white_noise_is_measured_on_top_of_motion(step_s):
    rng = np.random.default_rng(3)
    t = step_s * np.arange(round(6.0 / step_s))
    swing = np.stack([2 * np.sin(2 * np.pi * 1.5 * t), np.cos(t), 9.8 + 0.5 * t], axis=1)
    std = np.array([0.3, 1.2, 0.1])
    density2 = noise_of(swing + std * rng.standard_normal((len(t), 3)), step_s).density2
    assert np.sqrt(density2) == pytest.approx(std * math.sqrt(step_s), rel=0.15)


def test_motion_without_noise_is_hardly_noise():
    """A roll of 5 Hz and 0.5 rad/s, which is more than a hexrotor does in a storm."""
    t = STEP_S * np.arange(1000)
    rates = np.stack([0.5 * np.sin(2 * np.pi * 5 * t), 0 * t, 0 * t], axis=1)
    assert math.sqrt(noise_of(rates).density2[0]) < 0.0005


def test_nothing_is_known_before_the_mean_is_full_nor_across_a_gap():
    assert noise_of(np.ones((round(MEAN_S / STEP_S), 3))).density2 is None
    stream = StreamNoise()
    for i in range(4000):
        stream.add(i * 0.1, (0.0, 0.0, 9.8))
    assert stream.density2 is None


def test_a_late_sample_and_a_blow_change_little():
    rng = np.random.default_rng(5)
    values = 0.2 * rng.standard_normal((1000, 3))
    clean = math.sqrt(noise_of(values).density2[0])
    values[980, 0] = 60.0
    stream = noise_of(values)
    stream.add(1.0, (50.0, 0.0, 0.0))
    assert math.sqrt(stream.density2[0]) < 1.5 * clean


@pytest.mark.parametrize("density", [0.5, 2.0])
@pytest.mark.parametrize("noise_m_s2", [0.05, 0.5])
def test_the_walk_of_a_disturbance_is_measured_through_noise(density, noise_m_s2):
    rng, found = np.random.default_rng(7), []
    for _ in range(20):  # one span of two seconds holds ten independent differences
        walk = DisturbanceWalk()
        force = np.cumsum(density * math.sqrt(WINDOW_S) * rng.standard_normal((200, 2)), axis=0)
        force = force + noise_m_s2 * rng.standard_normal(force.shape)
        for i, (x, y) in enumerate(force):
            walk.add(i * WINDOW_S, (i + 1) * WINDOW_S, (x, y, 9.8))
        found.append(walk.density2(noise_m_s2**2 * WINDOW_S, WINDOW_S))
    assert math.sqrt(np.mean(found)) == pytest.approx(density, rel=0.25)


def test_still_air_has_no_walk():
    rng, walk = np.random.default_rng(1), DisturbanceWalk()
    for i in range(400):
        walk.add(i * WINDOW_S, (i + 1) * WINDOW_S, 0.1 * rng.standard_normal(3))
    assert math.sqrt(walk.density2(0.1**2 * WINDOW_S, WINDOW_S)) < 0.15


def test_densities_are_known_after_some_flight_and_from_then_on():
    rng, noise = np.random.default_rng(2), ImuNoise(keep_s=3.0)

    def pass_time(begin_s, end_s, flying):
        for i in range(round(begin_s / STEP_S), round(end_s / STEP_S)):
            accel = np.array([0.0, 0.0, 9.8]) + 0.4 * rng.standard_normal(3)
            noise.add((i + 1) * STEP_S, 0.01 * rng.standard_normal(3), accel, flying)
            noise.close((i + 1) * STEP_S)

    pass_time(0.0, 5.0, flying=False)
    assert noise.at(5.0) is None, "no force in flight yet"
    pass_time(5.0, 9.0, flying=True)
    assert noise.at(5.5) is None
    measured = noise.at(9.0)
    assert np.sqrt(measured.accel) == pytest.approx(3 * [0.4 * math.sqrt(STEP_S)], rel=0.2)
    assert np.sqrt(measured.gyro) == pytest.approx(3 * [0.01 * math.sqrt(STEP_S)], rel=0.2)
    assert math.sqrt(measured.disturbance) < 0.7
    pass_time(9.0, 15.0, flying=True)
    assert noise.at(9.0) is None, "forgotten"


def densities_of(accel_B: np.ndarray) -> Densities:
    noise = ImuNoise(keep_s=3.0)
    for i, force in enumerate(accel_B):
        noise.add((i + 1) * STEP_S, (0.0, 0.0, 0.0), force, flying=True)
        noise.close((i + 1) * STEP_S)
    measured = noise.at(len(accel_B) * STEP_S)
    assert measured is not None
    return measured


def test_vibration_is_gone_from_the_mean_force_and_white_noise_is_not():
    white = np.random.default_rng(4).standard_normal((1602, 3))
    still = densities_of(0.4 * white)
    assert np.sqrt(still.accel_mean) == pytest.approx(3 * [0.4 * math.sqrt(STEP_S)], rel=0.3)
    shaken = densities_of(4.0 * np.diff(white, 2, axis=0) / math.sqrt(6))
    assert (np.sqrt(shaken.accel) > 4.0 * math.sqrt(STEP_S)).all()
    assert (np.array(shaken.accel_mean) < 0.2 * np.array(shaken.accel)).all()


def test_the_noise_of_the_mean_force_is_that_of_a_tone():
    """The filter measures the disturbance by means of this length: their variance is density over length."""
    t = STEP_S * np.arange(1600)
    tone = 3.0 * np.sin(2 * np.pi * 80.0 * t)
    means = tone.reshape(-1, round(WINDOW_S / STEP_S)).mean(axis=1)
    measured = densities_of(np.stack([tone, 0 * t, 9.8 + 0 * t], axis=1))
    assert means.std() <= math.sqrt(measured.accel_mean[0] / WINDOW_S) < 2 * means.std()
    assert measured.accel_mean[0] < 0.5 * measured.accel[0]


def test_the_noise_of_the_mean_force_counts_where_samples_are_noisier_than_the_file_says_and_only_there(vehicle):
    """Motion is left in it: beside a quiet sensor it would be noise that no sensor has."""
    file = process_variances(vehicle, Propagation.IMU)[ErrorIndex.VELOCITY]

    def velocity_m2_s2(of_samples: float, of_means: float) -> np.ndarray:
        densities = Densities((0.0,) * 3, (of_samples * file[0],) * 3, (of_means * file[0],) * 3, 0.0)
        return predicted(vehicle, densities)[ErrorIndex.VELOCITY]

    np.testing.assert_array_equal(velocity_m2_s2(0.1, 10.0), predicted(vehicle, None)[ErrorIndex.VELOCITY])
    assert velocity_m2_s2(20.0, 10.0) == pytest.approx(10.0 * file, rel=0.1)
    assert velocity_m2_s2(10.0, 20.0) == pytest.approx(10.0 * file, rel=0.1)


def predicted(vehicle: Vehicle, measured: Densities | None) -> np.ndarray:
    """Variances after one second of hovering without a measurement."""
    eskf = Eskf(vehicle)
    if measured is not None:
        eskf.follow_stream(measured)
    filter_state = eskf.start(0.0, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))
    filter_state.covariance[:] = 0.0
    for _ in range(100):
        eskf.predict_imu(filter_state, [(0.01, 0.0, 0.0, 0.0, 0.0, 0.0, 9.80665)])
    return filter_state.covariance.diagonal().copy()


def test_a_noisy_stream_is_trusted_less_and_within_bounds(vehicle):
    file = process_variances(vehicle, Propagation.IMU)
    quiet = predicted(vehicle, None)
    still = predicted(vehicle, Densities((0.0,) * 3, (0.0,) * 3, (0.0,) * 3, 0.0))
    assert still[ErrorIndex.ATTITUDE] == pytest.approx(quiet[ErrorIndex.ATTITUDE])
    assert still[ErrorIndex.DISTURBANCE][:2] == pytest.approx(quiet[ErrorIndex.DISTURBANCE][:2])
    wild = predicted(vehicle, Densities((1.0,) * 3, (1.0,) * 3, (1.0,) * 3, 1e6))
    assert wild[ErrorIndex.ATTITUDE] == pytest.approx(STREAM_FACTOR**2 * file[ErrorIndex.ATTITUDE], rel=0.05)
    noisy = predicted(vehicle, Densities((0.0,) * 3, (0.1**2,) * 3, (0.1**2,) * 3, 0.0))
    assert noisy[ErrorIndex.VELOCITY] == pytest.approx(3 * [0.1**2], rel=0.05)


def test_a_noisy_stream_makes_the_specific_force_less_certain(vehicle):
    results = []
    for accel in (0.0, 0.08**2):
        eskf = Eskf(vehicle)
        eskf.follow_stream(Densities((0.0,) * 3, (accel,) * 3, (accel,) * 3, 1.0))
        filter_state = eskf.start(0.0, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))
        update = eskf.measure_force(filter_state, (0.8, 0.0, 9.8), None, 0.02)
        assert update.accepted and Sensor.SPECIFIC_FORCE in filter_state.accepted_s
        results.append(filter_state.nominal[10])
    assert 0 < results[1] < results[0]


@pytest.mark.parametrize("commanded", [True, False])
def test_a_step_of_the_force_doubts_the_vertical_disturbance_only_where_it_is_measured(vehicle, commanded):
    """While PX4 lands nothing measures the force along the thrust: a touchdown once made a vertical disturbance of 15 m/s²."""
    eskf = Eskf(vehicle)
    filter_state = eskf.start(0.0, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))
    for _ in range(5):
        eskf.measure_force(filter_state, (0.1, 0.0, 9.8), None, 0.02, commanded)
    before = filter_state.covariance[ErrorIndex.DISTURBANCE, ErrorIndex.DISTURBANCE].diagonal().copy()
    for _ in range(2):
        eskf.measure_force(filter_state, (6.0, 0.0, 9.8), None, 0.02, commanded)
    after = filter_state.covariance[ErrorIndex.DISTURBANCE, ErrorIndex.DISTURBANCE].diagonal()
    assert filter_state.nominal[10] > 3.0  # it is followed
    assert (after[2] > 10 * before[2]) == commanded

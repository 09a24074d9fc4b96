"""The process noise of the disturbance follows the changes of the disturbance."""

import msgspec
import numpy as np
import pytest

from companion.core.enums import Sensor
from companion.estimation.filter import Eskf
from companion.estimation.layout import ErrorIndex, StateIndex

DT = 0.02
STILL = (0.5, 0.5, 0.2)
LAG_S, FADE_S, SHARE = 0.3, 2.0, 0.5  # of `follow_gusts` in companion/estimation/eskf.c


def walked(vehicle, increments, still=STILL, factor=20.0):
    """The variances per second that the kernel adds in every step, (n, 3), for these increments of the disturbance.

    Every step begins without covariance, so that its process noise is the whole covariance after it.
    """
    process = msgspec.structs.replace(
        vehicle.estimator.process, disturbance_m_s2_sqrt_s=tuple(still), gust_factor=factor
    )
    estimator = msgspec.structs.replace(vehicle.estimator, process=process)
    eskf = Eskf(msgspec.structs.replace(vehicle, estimator=estimator))
    parameters = np.array(vehicle.model_parameters())
    filter_state = eskf.start(0.0, np.zeros(3), np.zeros(3), (1.0, 0.0, 0.0, 0.0))
    fresh, command = filter_state.nominal.copy(), np.array([9.80665 / parameters[0], 0.0, 0.0, 0.0])
    out = []
    for disturbance in np.cumsum(increments, axis=0):
        filter_state.nominal[:], filter_state.covariance[:] = fresh, 0.0
        filter_state.nominal[StateIndex.DISTURBANCE] = disturbance
        eskf.predict(filter_state, command, parameters, DT)
        out.append(filter_state.covariance.diagonal()[ErrorIndex.DISTURBANCE] / DT)
    return np.array(out)


def by_definition(increments, still, factor):
    """The same variances from all samples at once: every sample decays with time, and the largest counts."""
    d = np.cumsum(increments, axis=0)
    n = len(d)
    steps = np.subtract.outer(np.arange(n), np.arange(n))
    share = DT / LAG_S
    low_pass = np.where(steps > 0, share * (1 - share) ** np.maximum(steps - 1, 0), 0.0)
    low_pass[1:, 0] = (1 - share) ** np.arange(n - 1)  # the low-pass starts at the first disturbance
    u = d - low_pass @ d
    u[0] = 0.0
    samples = np.column_stack([(u[:, 0] ** 2 + u[:, 1] ** 2) / 2, (u[:, 0] ** 2 + u[:, 1] ** 2) / 2, u[:, 2] ** 2])
    samples *= SHARE * 2 / LAG_S
    faded = np.where(steps >= 0, np.exp(-np.maximum(steps, 0) * DT / FADE_S), 0.0)
    largest = (faded[:, :, None] * samples).max(axis=1)
    floor = np.square([min(still[:2]), min(still[:2]), still[2]])
    return np.square(still) * np.clip(largest / floor, 1, factor**2)


@pytest.mark.parametrize("still", [STILL, (0.5, 0.3, 0.2)])
def test_the_kernel_follows_the_definition(vehicle, still):
    rng = np.random.default_rng(5)
    increments = np.repeat([0.2, 2.0, 0.05, 30.0], 100)[:, None] * DT**0.5 * rng.normal(size=(400, 3))
    expected = by_definition(increments, still, 5.0)
    assert (expected[50:] > np.square(still)).any() and (expected == 25 * np.square(still)).any()
    np.testing.assert_allclose(walked(vehicle, increments, still, 5.0), expected, rtol=1e-9)


@pytest.mark.parametrize("q", [1.0, 2.0, 4.0])
def test_a_random_walk_gives_its_own_intensity_on_average(vehicle, q):
    rng = np.random.default_rng(3)
    variances = walked(vehicle, q * DT**0.5 * rng.normal(size=(20000, 3)))
    horizontal, vertical = np.sqrt(variances[100:, 0]), np.sqrt(variances[100:, 2])
    assert 0.8 * q < np.median(horizontal) < 1.8 * q  # more rather than less: lag is worse than noise
    assert 0.8 * q < np.median(vertical) < 1.8 * q


def test_still_air_keeps_its_noise_and_the_effect_of_a_gust_ends(vehicle):
    increments = np.zeros((1000, 3))
    increments[200:215, 0] = 0.1  # 1.5 m/s² within 0.3 s
    variances = walked(vehicle, increments, factor=10.0)
    np.testing.assert_allclose(variances[:200], np.square(STILL) * np.ones((200, 1)), rtol=1e-12)
    assert variances[214, 0] > 4 * STILL[0] ** 2  # while the gust still rises
    assert variances[214, 2] == pytest.approx(STILL[2] ** 2)  # the vertical axis has its own memory
    assert variances[215 + round(5 * FADE_S / DT), 0] == pytest.approx(STILL[0] ** 2)


def test_the_noise_stays_within_its_bounds_at_a_step_of_the_estimate(vehicle):
    increments = np.zeros((50, 3))
    increments[10] = 100.0, -100.0, 100.0
    variances = walked(vehicle, increments, factor=3.0)
    assert variances.max(axis=0) == pytest.approx(9 * np.square(STILL))
    assert (variances >= np.square(STILL) * (1 - 1e-12)).all()


def test_jitter_back_and_forth_counts_for_less_than_a_walk_of_the_same_steps(vehicle):
    steps = np.full((2000, 3), DT**0.5)
    back_and_forth = steps * np.where(np.arange(2000) % 2, 1, -1)[:, None]
    walk = steps * np.random.default_rng(2).choice([-1, 1], size=(2000, 3))
    still = (0.01, 0.01, 0.01)
    jitter, walking = (walked(vehicle, moves, still, 100.0)[100:, 0] for moves in (back_and_forth, walk))
    assert np.median(jitter) < 0.2 * np.median(walking)


def test_a_gust_is_remembered_over_a_measurement_and_a_moment_without_a_command(vehicle):
    eskf = Eskf(vehicle)
    parameters = np.array(vehicle.model_parameters())
    filter_state = eskf.start(0.0, np.zeros(3), np.zeros(3), (1.0, 0.0, 0.0, 0.0))
    command = np.array([9.80665 / parameters[0], 0.0, 0.0, 0.0])
    for disturbance in (0.0, 2.0):
        filter_state.nominal[StateIndex.DISTURBANCE] = disturbance, 0.0, 0.0
        eskf.predict(filter_state, command, parameters, DT)
    eskf.coast(filter_state, DT)
    assert eskf.measure(filter_state, Sensor.VELOCITY, filter_state.nominal[StateIndex.VELOCITY]).accepted
    eskf.coast(filter_state, DT)
    filter_state.covariance[ErrorIndex.DISTURBANCE, ErrorIndex.DISTURBANCE] = 0.0
    eskf.predict(filter_state, command, parameters, DT)
    still = vehicle.estimator.process.disturbance_m_s2_sqrt_s
    assert filter_state.covariance.diagonal()[ErrorIndex.DISTURBANCE][0] / DT > 4 * still[0] ** 2

"""The size of a print by the way flown, with velocities that are wrong in ways the test does not assume."""

import math

import numpy as np
import pytest

from companion.estimation.size_test import VELOCITY_ERRORS, SizeTests
from companion.mission.monitors import SIZE_ERROR, SIZE_SIGMAS, SIZE_SIGMAS_LARGE, SIZE_STD_MAX

STEP_S, WAIT_S = 0.033, 3.0
START_M, END_M, SPEED_M_S = 12.0, 3.0, 0.7


def estimates(seed, std_m_s, time_s, scale=1.0, seconds=60.0, noise_m=0.02, leave=True):
    """(k − 1, std) after each observation of a way to the bundle and a hover in front of it.

    std_m_s, time_s: error of the velocity, a Gauss-Markov process of each axis; scale: seen over true distance.
    """
    rng, tests, found = np.random.default_rng(seed), SizeTests(WAIT_S), []
    error, travelled = std_m_s * rng.standard_normal(3), np.zeros(3)
    keep = math.exp(-STEP_S / time_s)
    p = np.array([-START_M, 0.5, 0.0])
    for i in range(round(seconds / STEP_S)):
        flies = leave and i * STEP_S > 5.0 and p[0] < -END_M
        v = np.array([SPEED_M_S if flies else 0.0, 0.0, 0.1 * math.sin(i * STEP_S)])
        p, travelled = p + STEP_S * v, travelled + STEP_S * (v + error)
        error = keep * error + math.sqrt(1 - keep**2) * std_m_s * rng.standard_normal(3)
        tests.add(i * STEP_S, -scale * p + noise_m * rng.standard_normal(3), travelled)
        found.append(tests.estimate())
    return np.array(found)


def alarms(found):
    """Whether the row `bundle_size` would speak, at each observation."""
    size, std = found.T
    beyond = np.maximum(size - SIZE_SIGMAS * std, -size - SIZE_SIGMAS_LARGE * std)
    return (std <= SIZE_STD_MAX) & (beyond > SIZE_ERROR)


@pytest.mark.parametrize(("std_m_s", "time_s"), [(0.03, 5.0), (0.1, 10.0), (0.2, 3.0), (0.3, 8.0)])
def test_a_wrong_velocity_is_no_wrong_print(std_m_s, time_s):
    spoke = [alarms(estimates(seed, std_m_s, time_s)).any() for seed in range(20)]
    assert not any(spoke)


@pytest.mark.parametrize("scale", [1 / 0.75, 0.65])
def test_a_wrong_print_is_found_where_the_velocity_is_good(scale):
    for seed in range(5):
        assert alarms(estimates(seed, 0.03, 5.0, scale)).any(), seed


@pytest.mark.parametrize(("std_m_s", "time_s"), [(0.05, 5.0), (0.2, 3.0), (0.2, 10.0)])
def test_the_standard_deviation_is_that_of_the_error(std_m_s, time_s):
    """After the way, over fifty flights: χ² of fifty numbers over fifty is between 0.65 and 1.43 (95 %); never too sure."""
    last = np.array([estimates(seed, std_m_s, time_s, scale=1.1, seconds=25.0)[-1] for seed in range(50)])
    assert np.mean((last[:, 0] - 0.1) ** 2 / last[:, 1] ** 2) < 1.43


def test_a_hover_says_nothing_about_the_size():
    found = estimates(1, 0.2, 5.0, scale=1.25, leave=False)
    assert found[-1, 1] > SIZE_STD_MAX


@pytest.mark.parametrize("error", VELOCITY_ERRORS)
def test_no_error_counts_that_is_smaller_than_the_velocity_has(error):
    """Where it is one of the three; a larger one may count for longer."""
    for seed in range(10):
        tests, rng = SizeTests(WAIT_S), np.random.default_rng(seed)
        b, travelled, keep = error.std_m_s * rng.standard_normal(3), np.zeros(3), math.exp(-STEP_S / error.time_s)
        for i in range(1200):
            travelled = travelled + STEP_S * b
            b = keep * b + math.sqrt(1 - keep**2) * error.std_m_s * rng.standard_normal(3)
            tests.add(i * STEP_S, np.array([5.0, 0.0, 0.0]) + 0.01 * rng.standard_normal(3), travelled)
        assert tests.velocity.std_m_s >= error.std_m_s, seed
        if error is VELOCITY_ERRORS[-1]:
            assert tests.velocity is error, seed

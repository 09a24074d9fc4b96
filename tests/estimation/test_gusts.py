"""The disturbance's process noise: found from what the disturbance does, whatever noise the filter began with."""

import numpy as np
import pytest

from companion.estimation.gusts import FADE_S, Restlessness

DT = 0.02
STILL = (0.5, 0.5, 0.2)


def walked(restlessness, increments):
    """The variances of every step while the disturbance makes these increments, (n, 3)."""
    gust, disturbance, out = None, np.zeros(3), []
    for step in increments:
        disturbance = disturbance + step
        gust, variances = restlessness.follow(gust, disturbance.tolist(), DT)
        out.append(variances)
    return np.array(out)


@pytest.mark.parametrize("q", [1.0, 2.0, 4.0])
def test_a_random_walk_gives_its_own_intensity_on_average(q):
    rng = np.random.default_rng(3)
    variances = walked(Restlessness(STILL, 20.0), q * DT**0.5 * rng.normal(size=(20000, 3)))
    horizontal, vertical = np.sqrt(variances[100:, 0]), np.sqrt(variances[100:, 2])
    assert 0.8 * q < np.median(horizontal) < 1.8 * q  # rather more than less: a filter that is late is the worse one
    assert 0.8 * q < np.median(vertical) < 1.8 * q


def test_still_air_keeps_the_noise_of_still_air_and_a_gust_ends():
    increments = np.zeros((1000, 3))
    increments[200:215, 0] = 0.1  # 1.5 m/s² within 0.3 s
    variances = walked(Restlessness(STILL, 10.0), increments)
    np.testing.assert_array_equal(variances[:200], np.square(STILL) * np.ones((200, 1)))
    assert variances[214, 0] > 4 * STILL[0] ** 2  # while it still rises
    assert variances[214, 2] == pytest.approx(STILL[2] ** 2)  # up and down have a memory of their own
    assert variances[215 + round(5 * FADE_S / DT), 0] == pytest.approx(STILL[0] ** 2)


def test_the_noise_has_its_bounds_and_a_step_of_the_estimate_cannot_pass_them():
    increments = np.zeros((50, 3))
    increments[10] = 100.0, -100.0, 100.0
    variances = walked(Restlessness(STILL, 3.0), increments)
    assert variances.max(axis=0) == pytest.approx(9 * np.square(STILL))
    assert (variances >= np.square(STILL) * (1 - 1e-12)).all()


def test_jitter_back_and_forth_counts_for_less_than_a_walk_of_the_same_steps():
    steps = np.full((2000, 3), DT**0.5)
    back_and_forth = steps * np.where(np.arange(2000) % 2, 1, -1)[:, None]
    walk = steps * np.random.default_rng(2).choice([-1, 1], size=(2000, 3))
    restlessness = Restlessness((0.01, 0.01, 0.01), 100.0)
    assert np.median(walked(restlessness, back_and_forth)[100:, 0]) < 0.2 * np.median(
        walked(restlessness, walk)[100:, 0]
    )

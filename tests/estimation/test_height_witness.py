"""A bundle that rises or sinks against the barometer, and what the pressure explains."""

from math import isnan, nan

import numpy as np
import pytest

from companion.estimation.height_witness import EXPLAINED_M, LEARN_S, SMOOTH_S, HeightWitness

STEP_S = 0.05


def seen(witness, begin_s, end_s, height):
    for t in np.arange(begin_s, end_s, STEP_S):
        witness.add(float(t), height(float(t)))
    return witness.offset_m(end_s)


@pytest.mark.parametrize("rate_m_s", [-0.05, 0.05])
def test_a_bundle_that_slides_is_found_after_what_the_pressure_explains(rate_m_s):
    witness, rng = HeightWitness(), np.random.default_rng(1)
    for end_s in np.arange(5.0, 80.0, 1.0):
        offset_m, most_m = seen(witness, end_s - 1.0, end_s, lambda t: 4.0 + rate_m_s * t + 0.2 * rng.normal())
        if offset_m > most_m:
            break
    way_m = abs(rate_m_s) * end_s
    assert EXPLAINED_M < way_m < EXPLAINED_M + 0.05 * SMOOTH_S + 0.7


def test_noise_gusts_and_weather_are_explained():
    witness, rng = HeightWitness(), np.random.default_rng(2)
    for minute in range(15):
        offset_m, most_m = seen(
            witness, 60.0 * minute, 60.0 * (minute + 1),
            lambda t: 4.0 + 0.001 * t + 0.8 * np.sin(t / 5) + 0.3 * rng.normal(),
        )  # fmt: skip
        assert offset_m < most_m


def test_nothing_is_known_before_some_seconds_nor_without_a_barometer():
    witness = HeightWitness()
    assert isnan(seen(witness, 0.0, LEARN_S, lambda t: nan)[0])
    assert isnan(seen(witness, 0.0, LEARN_S, lambda t: 4.0)[0])
    offset_m, _ = seen(witness, LEARN_S, LEARN_S + 1.0, lambda t: 4.0)
    assert offset_m == pytest.approx(0.0)

"""Numbers are published as multiples of a power of ten, and covariances with fewer digits."""

import math

import numpy as np

from companion.core.precision import ATTITUDE, COVARIANCE_BITS, POSITION, near, rounded, rounded_to, significant


def test_a_rounded_number_is_a_multiple_to_the_last_bit():
    rng = np.random.default_rng(1)
    for value in rng.normal(scale=100.0, size=1000).tolist():
        for decimals in (POSITION, ATTITUDE):
            multiple = near(value, decimals)
            assert multiple == round(multiple * 10**decimals) / 10**decimals
            assert abs(multiple - value) <= 0.5001 * 10.0**-decimals


def test_both_ways_of_rounding_agree_and_there_is_no_negative_zero():
    values = np.array([1.23456789, -0.000001, 4e-9, -7.5])
    assert rounded_to(values, np.full(4, 1e5)).tolist() == list(rounded(values.tolist(), 5))
    assert math.copysign(1.0, near(-1e-9, 5)) == 1.0


def test_infinity_and_nan_stay():
    assert near(math.inf, 4) == math.inf
    assert math.isnan(near(math.nan, 4))
    kept = significant(np.array([np.inf, -np.inf, np.nan, 0.0]), COVARIANCE_BITS)
    assert kept[0] == np.inf and kept[1] == -np.inf and np.isnan(kept[2]) and kept[3] == 0.0


def test_a_shortened_covariance_is_near_symmetric_and_positive():
    rng = np.random.default_rng(2)
    for _ in range(50):
        root = rng.normal(size=(6, 6)) * np.array([1e-3, 1e-3, 1e-2, 1e-4, 1e-4, 1e-3])
        covariance = root.T @ root
        short = significant(covariance, COVARIANCE_BITS)
        assert (short == short.T).all()
        assert np.allclose(short, covariance, rtol=2.0 ** -(COVARIANCE_BITS + 1), atol=0.0)
        std = np.sqrt(np.diag(covariance))
        assert np.linalg.eigvalsh(short / np.outer(std, std)).min() > -1e-4

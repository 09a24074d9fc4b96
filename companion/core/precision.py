"""How precise the numbers of messages are: far finer than what they mean, and coarse enough for a small log.

A node rounds what it publishes, so all others and the log get the same number, and a replay gives the same bits. A
double that is a multiple of 10⁻ⁿ takes the bits of that multiple in the log (`companion.recording.columns`) and not all 64.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from companion.core.arrays import Array

# Decimals of what sensors and the filter state. The noise of each is at least 100 times its unit.
TIME = 6  # s: companion time of a measurement
AGE = 4  # s
POSITION = 5  # m
SPEED = 5  # m/s
ATTITUDE = 7  # of a unit quaternion
ANGLE = 6  # rad: an estimated offset; and factors
TRUTH = 4  # m, m/s, rad/s, m/s², N of the simulator
SETPOINT = 7  # rad, rad/s and part of the thrust
FORCE = 5  # m/s²
RATE = 6  # rad/s, of a gyroscope
VOLTAGE = 4  # V
PIXEL = 3  # px, a hundredth of the noise of a corner
NORMALISED = 6  # of image coordinates over the focal length
RATIO = 4  # a consistency or a factor for people
DIAGONAL_BITS, COVARIANCE_BITS = 7, 12  # of the significand: 0.4 % and 0.01 % of a variance


def near(value: float, decimals: int) -> float:
    """A number as a multiple of 10⁻ᵈ; without the negative zero, which would be a bit pattern of its own."""
    return round(value, decimals) + 0.0


def rounded(values: Iterable[float], decimals: int) -> tuple[Any, ...]:
    """Numbers as multiples of 10⁻ᵈ, as `near`."""
    return tuple([round(value, decimals) + 0.0 for value in values])


def rounded_to(values: Array, scales: Array) -> Array:
    """Numbers as multiples of 1/scale, element by element; scales: powers of ten."""
    multiples: Array = np.rint(values * scales) / scales + 0.0
    return multiples


def significant(values: Array, bits: int) -> Array:
    """Numbers with so many bits after the first one; of a covariance, whose elements have many magnitudes.

    Infinities and NaN stay. Elements that are equal stay equal, so a symmetric matrix stays symmetric.
    """
    dropped = 52 - bits
    patterns = np.ascontiguousarray(values, dtype=np.float64).view(np.int64)
    shortened: Array = ((patterns + (np.int64(1) << (dropped - 1))) >> dropped << dropped).view(np.float64)
    return np.where(np.isfinite(values), shortened, values)

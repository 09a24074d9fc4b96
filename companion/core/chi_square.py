"""The chi-square distribution for whole degrees of freedom.

For these the incomplete gamma function is a finite sum (Abramowitz & Stegun 26.4.4, 26.4.5). SciPy is not used,
because it takes 25 to 80 MB of memory in each process that imports it.
"""

import functools
import math


def survival(x: float, dof: int) -> float:
    """Probability of a value above x > 0: Σ hᵃ e⁻ʰ / Γ(a + 1), h = x/2, over a = dof/2 - 1, dof/2 - 2, … ≥ 0.

    For odd dof the orders a are half-integers, and erfc(√h) is the term below a = ½.
    """
    half = x / 2
    log_half = math.log(half)
    first, rest = (0.5, math.erfc(math.sqrt(half))) if dof % 2 else (0.0, 0.0)
    orders = (first + k for k in range(dof // 2))
    return rest + math.fsum(math.exp(a * log_half - half - math.lgamma(a + 1)) for a in orders)


@functools.cache  # few values: one for each gate
def quantile(probability: float, dof: int) -> float:
    """The value that a sample stays below with ``probability`` (0 < probability < 1), by bisection to rounding."""
    above = 1 - probability
    low, high = 0.0, 1.0
    while survival(high, dof) > above:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        if survival(middle, dof) > above:
            low = middle
        else:
            high = middle
    return high

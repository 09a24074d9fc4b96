"""The chi-square gate: does the filter's own covariance explain a residual?

A residual ν with covariance S is accepted while νᵀ S⁻¹ ν ≤ χ²(probability, size of ν). A consistent filter then
rejects the share 1 - probability of good measurements (Kalaitzakis & Vitzilaios 2023, section 2.2).
"""

from math import isnan

from companion.core.chi_square import quantile


class Gate:
    """Gate for residuals of one size.

    probability: share of good measurements that pass; size: numbers in a residual.
    """

    def __init__(self, probability: float, size: int) -> None:
        self.limit = quantile(probability, size)

    def accepts(self, nis: float) -> bool:
        """True while the normalised innovation squared is within the gate; NaN is not."""
        return nis <= self.limit

    def clip_factor(self, nis: float) -> float:
        """Factor ≤ 1 that scales a residual back to the gate's edge; 0 when nis is NaN."""
        if nis <= self.limit:
            return 1.0
        return 0.0 if isnan(nis) else float((self.limit / nis) ** 0.5)

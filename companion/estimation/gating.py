"""The chi-square gate: is a residual one that the filter's own covariance explains?

A residual ν with covariance S is accepted while νᵀ S⁻¹ ν ≤ χ²(probability, size of ν); a consistent filter then
rejects the share 1 - probability of good measurements (Kalaitzakis & Vitzilaios 2023, section 2.2).
"""

from companion.core.chi_square import quantile


class Gate:
    """Gate for residuals of one size.

    probability: share of good measurements that pass; size: numbers in a residual.
    """

    def __init__(self, probability: float, size: int) -> None:
        self.limit = quantile(probability, size)

    def accepts(self, nis: float) -> bool:
        """True while the normalised innovation squared is within the gate; a NaN is not."""
        return nis <= self.limit

    def clip_factor(self, nis: float) -> float:
        """Factor ≤ 1 that pulls a residual back to the gate's edge; 0 when nis is not a number."""
        if nis <= self.limit:
            return 1.0
        return (self.limit / nis) ** 0.5 if nis == nis else 0.0

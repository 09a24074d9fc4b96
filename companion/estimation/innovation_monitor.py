"""Tests over consecutive residuals: biased velocity, contradicting bundle, runs of rejections.

The gate judges one measurement at a time, and the noise adaptation follows only the size of the residuals. Three tests
use the residuals of several measurements:

* **Bias test.** A bundle that is seen repeatedly beside its position in the filter, with the expected rotation, shows
  a wrong velocity and a wrong velocity bias. The mean of the whitened position residuals detects this before the gate
  closes. A flipped pose (wrong rotation) and a single outlier do not trigger the test. Scatter does not either: the
  mean of large residuals in all directions is small beside their own length.
* **Contradiction test.** Most observations of the last second were rejected. The few that pass are those whose error
  happens to match the error of the filter: an update with them reduces the covariance without improving the estimate,
  which then drifts with them. Such a bundle is refused until its observations have passed the gate for some time.
  Meanwhile no update uses the bundle and the covariance grows. Noise adaptation and gate continue, so a change of
  noise ends the refusal as soon as the adaptation has followed it. The grown covariance alone also lets observations
  pass the gate; therefore consecutive observations must agree with each other, too.
* **Rejection run.** Rejections since the last acceptance, and whether they agree with each other: a new level of the
  GNSS error or a bundle that was moved is the same in all of them, outliers are not.

All three are immutable, so that a snapshot of the filter costs nothing.
"""

from collections.abc import Sequence
from math import exp
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array

BIAS_SHARE = 1 / 8  # of the newest residual in the means
BIAS_CLIP = 3.0  # largest weight of one residual, in standard deviations: three outliers in a row are no bias
BIAS_LIMIT = 1.7  # length of the mean; white residuals have 0.45
BIAS_ONE_SIDED = 0.7  # of the mean length; residuals in all directions have 0.26, and 0.7 once in ten thousand images
TURNED_LIMIT = 16.3  # chi-square of the rotation's residual, three numbers, 0.999

CONTRADICTION_TIME_S = 0.7  # time constant of the rejected share
CONTRADICTION_GAP_S = 0.1  # largest weight of one observation in time, however long the gap before it
REFUSED_ABOVE = 0.7  # rejected share; rejections alone reach it after 0.8 s, one of three rejected never does
ACCEPTED_BELOW = 0.25  # end of the refusal; acceptances alone reach it after 0.7 s

MOVED_AGREEMENT = 0.5  # observations of a moved bundle differ from their mean by at most this share of it [m and rad]
MEAN_OVER = 10  # residuals
TURN_NOISE = 4.0  # std of the rotation over its nominal one: a few pixels of noise do that, and the place decides where a bundle is


class BiasTest(NamedTuple):
    """Means over the last observations, all in standard deviations."""

    x: float = 0.0
    y: float = 0.0
    z: float = 0.0
    length: float = BIAS_CLIP  # of the residuals; starts as if they had scattered, so that a few residuals are no bias

    def updated(self, whitened: Sequence[float]) -> "tuple[BiasTest, bool]":
        """The means after one more residual and True for a bias, after which the means start again.

        whitened: rotation, then position, (6,).
        """
        roll, pitch, yaw, x, y, z = whitened  # number by number: loops over three take three times as long
        if not roll * roll + pitch * pitch + yaw * yaw <= TURNED_LIMIT:  # a flipped pose, or NaN
            return self, False
        length = (x * x + y * y + z * z) ** 0.5
        share, keep = BIAS_SHARE * min(1.0, BIAS_CLIP / max(length, BIAS_CLIP)), 1 - BIAS_SHARE
        mx, my, mz = keep * self[0] + share * x, keep * self[1] + share * y, keep * self[2] + share * z
        mean_length = keep * self[3] + share * length
        if mx * mx + my * my + mz * mz < max(BIAS_LIMIT, BIAS_ONE_SIDED * mean_length) ** 2:
            return BiasTest(mx, my, mz, mean_length), False
        return BiasTest(), True


class ContradictionTest(NamedTuple):
    """Recent share of a bundle's observations that were rejected, or that scatter while the bundle is refused."""

    share: float = 0.0  # of the time
    seen_s: float = 0.0  # time of the last observation
    refused: bool = False  # no update uses the bundle
    residual: Array | None = None  # of the last observation, (6,)

    def scatters(self, residual: Array, R: Array, limit: float) -> bool:
        """True when two consecutive residuals differ by more than the noise R explains.

        An error of the state is the same in both residuals and cancels in their difference. R: (6, 6), the largest
        plausible noise; limit: chi-square.
        """
        if self.residual is None:
            return False
        return not _agree(residual - self.residual, R, limit)

    def updated(self, rejected: bool, now_s: float, residual: Array) -> "ContradictionTest":
        """The test after one more observation; weighted by time, so independent of the camera's rate."""
        keep = exp(-min(max(now_s - self.seen_s, 0.0), CONTRADICTION_GAP_S) / CONTRADICTION_TIME_S)
        share = keep * self.share + (1 - keep) * rejected
        refused = share > (ACCEPTED_BELOW if self.refused else REFUSED_ABOVE)
        return ContradictionTest(share, now_s, refused, residual)


def _agree(difference: Array, R: Array, limit: float) -> bool:
    """Whether the noise of two residuals, R (m, m) each, explains their difference, (m,)."""
    return bool(difference @ np.linalg.solve(2 * R, difference) <= limit)


class RejectionRun(NamedTuple):
    """Rejections of one sensor since its last acceptance, with the mean of the residuals that agree."""

    start_s: float
    length: int
    mean: Array  # of the residuals, (m,), of a long run of about the newest MEAN_OVER: the estimate moves meanwhile

    def agrees(self, residual: Array, R: Array, limit: float, share: float = 0.0) -> bool:
        """True for a residual that differs from the mean by no more than noise, or by less than this share of the mean.

        Position and rotation each: three numbers, the rotation with TURN_NOISE. R: (m, m) of one residual; limit: chi-square
        of three numbers.
        """
        difference = residual - self.mean
        return all(
            difference[part] @ difference[part] <= share**2 * (self.mean[part] @ self.mean[part])
            or _agree(difference[part], (TURN_NOISE**2 if part.start else 1.0) * R[part, part], limit)
            for part in (slice(i, i + 3) for i in range(0, len(difference), 3))
        )

    def extended(self, residual: Array) -> "RejectionRun":
        """The run with one more residual that agrees."""
        length = self.length + 1
        return RejectionRun(self.start_s, length, self.mean + (residual - self.mean) / min(length, MEAN_OVER))

    def reduced(self) -> "RejectionRun | None":
        """The run after a residual that disagrees: None when no longer more residuals agree than disagree."""
        return self._replace(length=self.length - 1) if self.length > 1 else None

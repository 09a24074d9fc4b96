"""What residuals in a row say that none says by itself: the velocity is wrong, or the bundle is, or it was moved.

The gate judges one measurement at a time, the adaptation only how large the residuals are. Of a row of them are known:

* **Lean.** A bundle that is seen again and again beside where the filter has it, turned as expected: the velocity is
  wrong, and with it the bias of the velocity that pulled it along. The mean of the whitened position residuals shows it
  before the gate closes, and a flip or a blunder, which is turned or alone, does not look like it. Scatter does not
  either: large residuals to all sides have a mean, too, but a small one beside their own length.
* **Contradiction.** Most sightings of the last second are rejected. The few that pass are those whose error happens to
  point where the filter is already: to measure them makes it surer, not better, and it drifts with them. Such a bundle
  is not followed until its sightings have passed for some time. Meanwhile nothing of it is measured and the covariance
  grows; noise adaptation and the gate go on, so a change of noise, which the adaptation catches up with, ends it. What
  the grown covariance alone lets through the gate does not: sightings in a row must agree with each other, too.
* **Streak.** Rejections without an acceptance, and whether they agree with each other: a level of the satellites' error
  or a bundle that was moved is the same in all of them, nonsense is not.

All are immutable, so that a snapshot of the filter costs nothing.
"""

from math import exp
from typing import NamedTuple

import numpy as np

LEAN_SHARE = 1 / 8  # of the newest residual in the means
LEAN_CLIP = 3.0  # a residual counts for no more, in standard deviations: three wild ones in a row are no lean
LEAN_LIMIT = 1.7  # length of the mean; white residuals have 0.45
LEAN_ONE_SIDED = 0.7  # of the mean length; residuals to all sides have 0.26, and 0.7 once in ten thousand images
TURNED_LIMIT = 16.3  # chi-square of the rotation's residual, three numbers, 0.999

CONTRADICTION_TIME_S = 0.7  # time constant of the rejected share
CONTRADICTION_GAP_S = 0.1  # a sighting stands for no more time than this, however long nothing was seen before it
REFUSED_ABOVE = 0.7  # rejected share; reached by rejections alone after 0.8 s, with one of three rejected never
FOLLOWED_BELOW = 0.25  # again; from there by acceptances alone after 0.7 s

MOVED_ALIKE = 0.5  # sightings of a bundle that was moved differ from their mean by no more of it [m and rad]


class Lean(NamedTuple):
    """Means over the last sightings, all in standard deviations."""

    x: float = 0.0
    y: float = 0.0
    z: float = 0.0
    length: float = LEAN_CLIP  # of the residuals; as if scattered before, so that a few in a row are no lean

    def after(self, whitened) -> "tuple[Lean, bool]":
        """The means after one more residual, rotation then position, and whether the bundle leans; anew then."""
        roll, pitch, yaw, x, y, z = whitened  # number by number: loops over three take thrice as long
        if not roll * roll + pitch * pitch + yaw * yaw <= TURNED_LIMIT:  # a flip, or not a number
            return self, False
        length = (x * x + y * y + z * z) ** 0.5
        share, keep = LEAN_SHARE * min(1.0, LEAN_CLIP / max(length, LEAN_CLIP)), 1 - LEAN_SHARE
        mx, my, mz = keep * self[0] + share * x, keep * self[1] + share * y, keep * self[2] + share * z
        mean_length = keep * self[3] + share * length
        if mx * mx + my * my + mz * mz < max(LEAN_LIMIT, LEAN_ONE_SIDED * mean_length) ** 2:
            return Lean(mx, my, mz, mean_length), False
        return Lean(), True


class Contradiction(NamedTuple):
    """How much of what was seen of a bundle lately was rejected, or scatters while it is not followed."""

    share: float = 0.0  # of the time
    seen_s: float = 0.0  # the last sighting
    refused: bool = False  # the bundle is not followed
    residual: np.ndarray | None = None  # of the last sighting, (6,)

    def scatters(self, residual, R, limit: float) -> bool:
        """True when two residuals in a row differ by more than noise R explains: the state's error is in both alike.

        R: (6, 6), of the largest noise to be believed; limit: chi-square.
        """
        if self.residual is None:
            return False
        difference = residual - self.residual
        return not difference @ np.linalg.solve(2 * R, difference) <= limit

    def after(self, rejected: bool, now_s: float, residual) -> "Contradiction":
        """After one more sighting. By time, not by number: it does not depend on the camera's rate."""
        keep = exp(-min(max(now_s - self.seen_s, 0.0), CONTRADICTION_GAP_S) / CONTRADICTION_TIME_S)
        share = keep * self.share + (1 - keep) * rejected
        refused = share > (FOLLOWED_BELOW if self.refused else REFUSED_ABOVE)
        return Contradiction(share, now_s, refused, residual)


class Streak(NamedTuple):
    """Rejections of one sensor since its last acceptance; what those of position and marker have in common."""

    start_s: float
    count: int
    mean: np.ndarray  # of the residuals, (m,)

    def agrees(self, residual, apart: float) -> bool:
        """True for a residual whose square distance to the mean is no more than that."""
        difference = residual - self.mean
        return bool(difference @ difference <= apart)

    def after(self, residual) -> "Streak":
        count = self.count + 1
        return Streak(self.start_s, count, self.mean + (residual - self.mean) / count)

    def outvoted(self) -> "Streak | None":
        """After a residual that does not agree: while more do than do not, the streak goes on."""
        return self._replace(count=self.count - 1) if self.count > 1 else None

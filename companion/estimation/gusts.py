"""How restless the air is: the disturbance's process noise follows what the disturbance is seen to do.

In a hall the disturbance changes by some tenths of a m/s² in a second, in a gusty wind by several. One noise for both
is either slow in the wind or nervous in the hall. The size of single innovations does not tell the two apart: it is
the sensors' noise, mostly. Their direction does: when the noise is too small the estimate runs after the truth, always
the same way. A random walk of intensity q² leaves the low-pass of itself, of time constant τ, by u with a variance of
q² τ / 2, so 2 u² / τ is a sample of q². The noise takes the largest of those samples of late, fading over FADE_S: a
gust is answered when it begins, and remembered between two of them.
"""

from math import exp
from typing import NamedTuple

LAG_S = 0.3  # τ; gusts that matter last longer, the filter answers sooner
FADE_S = 2.0  # in which a gust is forgotten
SHARE = 0.5  # of the largest sample: chi-square of one has peaks of several times its mean


class Gust(NamedTuple):
    """What is remembered; immutable, so that a snapshot of the filter costs nothing."""

    slow_W: tuple[float, float, float]  # the disturbance, low-passed [m/s²]
    horizontal: float  # q² [(m/s²)²/s]
    vertical: float


class Restlessness:
    """Process noise of the disturbance between that of still air and gust_factor times that.

    still_m_s2_sqrt_s: world x, y, z.
    """

    def __init__(self, still_m_s2_sqrt_s, gust_factor: float) -> None:
        x, y, z = still_m_s2_sqrt_s
        self._still = (x * x, y * y, z * z)
        self._most = gust_factor * gust_factor

    def follow(self, gust: Gust | None, disturbance_W, dt: float) -> tuple[Gust, tuple[float, float, float]]:
        """The memory after another dt [s], and the variances per second (x, y, z)."""
        dx, dy, dz = disturbance_W
        x, y, z = self._still
        if gust is None:
            return Gust((dx, dy, dz), 0.0, 0.0), self._still
        (sx, sy, sz), horizontal, vertical = gust
        ux, uy, uz = dx - sx, dy - sy, dz - sz
        share, fade = min(1.0, dt / LAG_S), exp(-dt / FADE_S)
        horizontal = max(fade * horizontal, SHARE * (ux * ux + uy * uy) / LAG_S)
        vertical = max(fade * vertical, SHARE * 2 * uz * uz / LAG_S)
        gust = Gust((sx + share * ux, sy + share * uy, sz + share * uz), horizontal, vertical)
        most = self._most
        level = min(max(1.0, horizontal / min(x, y)), most)
        return gust, (x * level, y * level, z * min(max(1.0, vertical / z), most))

"""Covariance matching with bounded influence: the measurement noise follows the innovations.

Idea (Kalaitzakis & Vitzilaios 2023, section 2.2): over the last N innovations R ≈ mean(ν νᵀ) - H P Hᵀ. This R is a
noisy full matrix, not always positive definite, and one outlier dominates it for N samples. Here R is the nominal
matrix with its axes stretched,

    R = D^½ R_nominal D^½,   D = diag(s),   s_g = clip(mean over the window of r_g, 1, SCALE_MAX²)
    r_g = s_g (1 + mean over axes i of g of (z_i (R z)_i - (S⁻¹ R)_ii)),   z = S⁻¹ ν,   S = H P Hᵀ + R

with one s per group of axes (horizontal and vertical, tilt and heading, position and rotation of the marker).
r_g - s_g is the likelihood's gradient in s_g, scaled as for P = 0, where r_g is the paper's ν νᵀ / R_nominal.
Subtracting H P Hᵀ axis by axis fails where it is much larger than R and correlated (the marker: an uncertain attitude
shifts the bundle sideways): axes without information about R outweigh those with it. Here axes without information
contribute the present scale. R is positive definite by construction, never below nominal, and keeps the tracker's
correlations.

Bounded influence, in three steps:

1. The gate comes first and uses the R from before the measurement.
2. A rejected innovation is used as well: otherwise the filter would reject all measurements after a real change of
   noise. It enters scaled to the gate's edge, and no sample r_g counts for more than gate x current scale. One
   outlier of any size therefore raises s_g by at most gate / N of its value (33 % for three axes, N = 50, gate 0.999).
3. The scale has a ceiling: SCALE_MAX standard deviations. R alone never lets a stream of outliers beyond
   sqrt(gate (SCALE_MAX² R + H P Hᵀ)) pass. H P Hᵀ grows while no measurement is accepted, because the uncertainty
   really grows.

A real change of noise by a factor k ≤ SCALE_MAX is followed: while most innovations are rejected the scale grows
by up to the gate's share each window, until they pass and the mean is the true one. An empty part of the window
counts as nominal.
"""

from math import inf, sqrt

import numpy as np

from companion.core.arrays import Array
from companion.core.enums import Sensor

SCALE_MAX = 5.0  # ceiling of the adapted over the nominal standard deviation; blur and lens error stay below 3

GROUPS = {  # of each axis
    Sensor.POSITION: (0, 0, 1),  # east and north, up
    Sensor.VELOCITY: (0, 0, 1),
    Sensor.ATTITUDE: (0, 0, 1),  # roll and pitch, heading
    Sensor.MARKER: (0, 0, 0, 1, 1, 1),  # position, rotation
    Sensor.CORNERS: (0,) * 8,
    Sensor.SPECIFIC_FORCE: (0, 0, 1),  # across and along the thrust
    Sensor.PLUMB: (0, 0),
}


class Window:
    """The last N samples r of one sensor. Immutable, so that a snapshot of the filter costs nothing.

    groups: group 0 or 1 of each axis, (m,); size: N; samples, total: the samples (r_0, r_1) so far and their sums;
    scales: s of each group; stretch: d dᵀ with d the roots of s, (m, m), None for ones; noise_scale: adapted over
    nominal noise, the mean over the axes of the ratios of standard deviations.
    The two groups are plain floats: NumPy takes five times as long on arrays of two.
    """

    __slots__ = ("groups", "noise_scale", "samples", "scales", "size", "stretch", "total")

    def __init__(
        self, groups: tuple[int, ...], size: int, samples: tuple[tuple[float, float], ...], total: tuple[float, float]
    ) -> None:
        self.groups = groups
        self.size = size
        self.samples = samples
        self.total = total
        nominal = size - len(samples)  # the empty part of the window counts as nominal
        first, second = (total[0] + nominal) / size, (total[1] + nominal) / size
        self.stretch: Array | None = None
        self.noise_scale = 1.0
        self.scales: tuple[float, float]
        if first <= 1.0 and second <= 1.0:  # nearly always, with good sensors
            self.scales = (1.0, 1.0)
        else:
            self.scales = (min(max(first, 1.0), SCALE_MAX**2), min(max(second, 1.0), SCALE_MAX**2))
            roots = sqrt(self.scales[0]), sqrt(self.scales[1])
            axes = [roots[g] for g in groups]
            self.stretch = np.array([[a * b for b in axes] for a in axes])
            self.noise_scale = sum(axes) / len(axes)

    def with_innovation(self, matched: Array, expected: Array, clip_factor: float, gate_limit: float) -> "Window":
        """The window after one more innovation.

        matched: z_i (R z)_i of the unclipped residual, (m,); expected: (S⁻¹ R)_ii, (m,); both with the R of `noise`;
        clip_factor: from `Gate.clip_factor`; gate_limit: the gate's chi-square limit.
        """
        m, e, n = matched.tolist(), expected.tolist(), self.groups.count(0)  # the axes of a group are contiguous
        clip, (s0, s1), rest = clip_factor * clip_factor, self.scales, len(m) - n
        r0 = s0 * min(1 + (sum(m[:n]) * clip - sum(e[:n])) / n, gate_limit)
        r1 = s1 * min(1 + (sum(m[n:]) * clip - sum(e[n:])) / rest, gate_limit) if rest else s1
        if not abs(r0) + abs(r1) < inf:
            return self  # a residual that is not finite carries no information about the noise
        first, second = self.total[0] + r0, self.total[1] + r1
        samples = self.samples
        if len(samples) == self.size:
            oldest, samples = samples[0], samples[1:]
            first, second = first - oldest[0], second - oldest[1]
        return Window(self.groups, self.size, (*samples, (r0, r1)), (first, second))

    def noise(self, R_nominal: Array) -> Array:
        """The adapted covariance D^½ R_nominal D^½, (m, m)."""
        return R_nominal if self.stretch is None else R_nominal * self.stretch

    @property
    def scale(self) -> Array:
        """s of each axis, (m,)."""
        return np.array([self.scales[g] for g in self.groups])


def new_window(sensor: Sensor, size: int) -> Window:
    """An empty window of a sensor of `GROUPS`."""
    return Window(GROUPS[sensor], size, (), (0.0, 0.0))

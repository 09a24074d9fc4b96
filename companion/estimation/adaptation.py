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

import ctypes
import functools
from collections.abc import Sequence
from math import sqrt

import numpy as np

from companion.core.arrays import Array
from companion.core.enums import Sensor
from companion.core.kernel import address_of, short_calls
from companion.estimation.layout import require_eskf

GROUPS = {  # of each axis
    Sensor.POSITION: (0, 0, 1),  # east and north, up
    Sensor.VELOCITY: (0, 0, 1),
    Sensor.ATTITUDE: (0, 0, 1),  # roll and pitch, heading
    Sensor.MARKER: (0, 0, 0, 1, 1, 1),  # position, rotation
    Sensor.CORNERS: (0,) * 8,
    Sensor.SPECIFIC_FORCE: (0, 0, 1),  # across and along the thrust
    Sensor.PLUMB: (0, 0),
}


# Numbers of a window, as in replay.c; the samples (r_0, r_1) are a ring after them.
_SIZE, _SCALES, _SAMPLES = 0, slice(5, 7), 7


@functools.cache
def _library() -> ctypes.PyDLL:
    """replay.c; raises `companion.core.kernel.ArtifactMissing` when it is not built."""
    library = short_calls(require_eskf())
    address, count, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
    library.eskf_adapt.argtypes = [address, count, count, address, address, number, number]
    library.eskf_adapt.restype = None
    return library


class Window:
    """The last N samples r of one sensor. Immutable, so that a snapshot of the filter costs nothing.

    groups: group 0 or 1 of each axis, (m,); numbers: N, samples so far, place of the oldest, their sums, s of each group, ring
    of samples, as `eskf_adapt` in replay.c changes them.
    """

    __slots__ = ("groups", "numbers")

    def __init__(self, groups: tuple[int, ...], numbers: Array) -> None:
        self.groups = groups
        self.numbers = numbers

    def with_innovation(self, matched: Array, expected: Array, clip_factor: float, gate_limit: float) -> "Window":
        """The window after one more innovation.

        matched: z_i (R z)_i of the unclipped residual, (m,); expected: (S⁻¹ R)_ii, (m,); both with the R of `noise`;
        clip_factor: from `Gate.clip_factor`; gate_limit: the gate's chi-square limit.
        """
        numbers, m = self.numbers.copy(), len(self.groups)
        arrays = (np.ascontiguousarray(each, dtype=float) for each in (matched, expected))
        _library().eskf_adapt(
            address_of(numbers),
            m,
            self.groups.count(0),  # the axes of a group are contiguous
            *(address_of(each) for each in arrays),
            clip_factor * clip_factor,
            gate_limit,
        )
        return Window(self.groups, numbers)

    def noise(self, R_nominal: Array) -> Array:
        """The adapted covariance D^½ R_nominal D^½, (m, m)."""
        scales = self.scales
        if scales == (1.0, 1.0):  # nearly always, with good sensors
            return R_nominal
        axes = _roots(self.groups, scales)
        adapted: Array = R_nominal * np.array([[a * b for b in axes] for a in axes])
        return adapted

    @property
    def noise_scale(self) -> float:
        """Adapted over nominal noise, the mean over the axes of the ratios of standard deviations."""
        return noise_scale(self.groups, self.scales)

    @property
    def scales(self) -> tuple[float, float]:
        """s of each group."""
        first, second = self.numbers[_SCALES].tolist()
        return first, second

    @property
    def scale(self) -> Array:
        """s of each axis, (m,)."""
        scales = self.scales
        return np.array([scales[g] for g in self.groups])


def _roots(groups: tuple[int, ...], scales: Sequence[float]) -> list[float]:
    roots = sqrt(scales[0]), sqrt(scales[1])
    return [roots[g] for g in groups]


def noise_scale(groups: tuple[int, ...], scales: Sequence[float]) -> float:
    """Mean over the axes of the adapted over the nominal standard deviation."""
    axes = _roots(groups, scales)
    return sum(axes) / len(axes)


def new_window(sensor: Sensor, size: int) -> Window:
    """An empty window of a sensor of `GROUPS`; the empty part of a window counts as nominal."""
    numbers = np.zeros(_SAMPLES + 2 * size)
    numbers[_SIZE], numbers[_SCALES] = size, 1.0
    return Window(GROUPS[sensor], numbers)

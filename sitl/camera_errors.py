"""Errors of a camera beyond its geometry: corners that are slowly wrong, images that come late, irregularly or not.

A detector's error has a part that lasts: light, focus, print and lens pull a corner the same way for seconds. It is one
Ornstein-Uhlenbeck process for each coordinate of each marker corner.
"""

import zlib

import numpy as np

from companion.core.arrays import Array
from sitl.wind import NormalNoise, OrnsteinUhlenbeck

JITTER_MAX = 2.0  # standard deviations
ORDER_S = 1e-3  # images arrive in the order of their exposure, at least this far apart

MarkerKey = tuple[str, int]  # family, id


class CornerDrift:
    """Displacement of the corners of each marker in the image; a marker's depends on the seed and its times alone."""

    def __init__(self, drift_px: float, drift_time_s: float, white_px: float, seed: int) -> None:
        """drift_px, white_px: standard deviations of each coordinate, slow and from image to image."""
        self._drift_px, self._time_s, self._white_px, self._seed = drift_px, drift_time_s, white_px, seed
        self._drifts: dict[MarkerKey, tuple[OrnsteinUhlenbeck, NormalNoise]] = {}
        self._seen_s: dict[MarkerKey, float] = {}

    def at(self, t_s: float, marker: MarkerKey) -> Array:
        """Displacement [px], shape (4, 2)."""
        if marker not in self._drifts:
            sequence = np.random.SeedSequence((self._seed, zlib.crc32(marker[0].encode()), marker[1]))
            noise = NormalNoise(np.random.default_rng(sequence))
            self._drifts[marker] = OrnsteinUhlenbeck([self._drift_px] * 8, [self._time_s] * 8, noise), noise
            self._seen_s[marker] = t_s
        drift, noise = self._drifts[marker]
        if (step_s := t_s - self._seen_s[marker]) > 0.0:
            drift.advance(step_s)
            self._seen_s[marker] = t_s
        displacement = np.array(drift.value)
        if self._white_px:
            displacement += [self._white_px * n for n in noise.take(8)]
        return displacement.reshape(4, 2)


class ImageTransport:
    """Which images arrive, and when."""

    def __init__(self, latency_s: float, jitter_s: float, lost_share: float, rng: np.random.Generator) -> None:
        """jitter_s: standard deviation of the latency; lost_share: of the images."""
        self._latency_s, self._jitter_s, self._lost_share, self._rng = latency_s, jitter_s, lost_share, rng
        self._arrival_s = -np.inf

    def latency_s(self, exposed_s: float) -> float | None:
        """Time from this exposure to its arrival; None: it is lost."""
        if self._lost_share and self._rng.random() < self._lost_share:
            return None
        if not self._jitter_s:
            return self._latency_s
        deviation = float(np.clip(self._rng.standard_normal(), -JITTER_MAX, JITTER_MAX))
        latency_s = max(self._latency_s + self._jitter_s * deviation, 0.0, self._arrival_s + ORDER_S - exposed_s)
        self._arrival_s = exposed_s + latency_s
        return float(latency_s)

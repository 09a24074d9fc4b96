"""A range finder connected to the companion: along body x or against body z, with limits and noise.

The one connected to the flight controller is `sitl.sensors`; its configuration is the base of this one's.
"""

import math
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import numpy as np

from companion.core.arrays import Array
from companion.core.config import number
from companion.core.frames import rotation_matrix
from companion.core.messages import RangeReading
from companion.core.trajectory_messages import Vec3
from sitl.devices.mount import Place
from sitl.devices.timing import Clock, Timing

Look = Callable[[Array, Array], float]  # (origin_W, direction_W) -> distance [m], inf: nothing there


class Facing(StrEnum):
    """Where a range finder points."""

    FORWARD = "forward"
    DOWN = "down"


DIRECTIONS_B: dict[Facing, Vec3] = {Facing.FORWARD: (1.0, 0.0, 0.0), Facing.DOWN: (0.0, 0.0, -1.0)}


class RangeFinderConfig(Timing, frozen=True, kw_only=True):
    """A range finder with a narrow beam."""

    facing: Facing
    p_B: Place = (0.0, 0.0, 0.0)
    noise_m: Annotated[float, number(0.0, 1.0, "m, standard deviation")]
    noise_share: Annotated[float, number(0.0, 0.2, "of the range, standard deviation")] = 0.0
    min_m: Annotated[float, number(0.0, 10.0, "m")]
    max_m: Annotated[float, number(0.5, 300.0, "m")]

    def __post_init__(self) -> None:
        if self.min_m >= self.max_m:
            raise ValueError(f"min_m = {self.min_m:g}: must be below max_m = {self.max_m:g}")


class RangeFinder:
    """Readings of one range finder."""

    def __init__(self, config: RangeFinderConfig, look: Look, rng: np.random.Generator, clock: Clock) -> None:
        """look: distance from a point along a unit vector to what is there."""
        self._config, self._look, self._rng, self._clock = config, look, rng, clock
        self._direction_B = DIRECTIONS_B[config.facing]

    def read(self, now_s: float, p_W: Array, q_WB: Array) -> RangeReading:
        """The reading of this moment."""
        c, R_WB = self._config, rotation_matrix(q_WB)
        true_m = self._look(p_W + R_WB @ np.asarray(c.p_B), R_WB @ np.asarray(self._direction_B))
        noise = float(self._rng.standard_normal())  # drawn in any case: what is seen does not change the noise
        range_m = math.nan
        if math.isfinite(true_m):
            range_m = true_m + math.hypot(c.noise_m, c.noise_share * true_m) * noise
        if not c.min_m <= range_m <= c.max_m:
            range_m = math.nan
        return RangeReading(
            stamp_s=self._clock.stamp_s(now_s),
            range_m=range_m,
            min_m=c.min_m,
            max_m=c.max_m,
            direction_B=self._direction_B,
        )

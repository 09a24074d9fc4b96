"""Dryden turbulence near the ground (MIL-F-8785C, sections 3.7.2 and 3.7.3: the low-altitude model).

Three independent components, along the mean wind (u), across it (v) and upwards (w), each white noise n of spectral
density 1 through a filter of the standard,

    H_u(s) = σ_u √(2 T_u) / (1 + T_u s),        H_v,w(s) = σ √T (1 + √3 T s) / (1 + T s)²,        T = L / V,

whose variances are σ². Below 1000 ft the lengths and intensities follow from the height h [ft] and the wind W20 at
20 ft:

    L_w = h,    L_u = L_v = h / (0.177 + 0.000823 h)^1.2,
    σ_w = 0.1 W20,    σ_u = σ_v = σ_w / (0.177 + 0.000823 h)^0.4.

The filters are discretised exactly. With x = (x₁, x₂), T ẋ₁ = n - x₁ and T ẋ₂ = x₁ - x₂, the second one is
y = σ √T (√3 x₁ + (1 - √3) x₂), and the stationary covariance of x is [[1/2T, 1/4T], [1/4T, 1/4T]].
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.core.config import Section, number
from companion.core.trajectory_messages import Vec3

FOOT_M = 0.3048
LOWEST_FT = 10.0  # the low-altitude model begins here
STEP_TOLERANCE_S = 1e-9
ROOT_3 = math.sqrt(3.0)


class DrydenConfig(Section, frozen=True):
    """The `[wind.dryden]` table of a scenario."""

    wind_at_20_ft_m_s: Annotated[float, number(0.0, 30.0, "m/s, 6 m over the ground")]
    height_m: Annotated[float, number(0.0, 300.0, "m over the ground")]
    airspeed_m_s: Annotated[float, number(0.5, 100.0, "m/s with which the turbulence passes the aircraft")]


class Turbulence(NamedTuple):
    """Standard deviation [m/s] and length [m] of the components u, v, w."""

    std_m_s: Vec3
    length_m: Vec3


def low_altitude(config: DrydenConfig) -> Turbulence:
    """Intensities and lengths of the low-altitude model; it holds up to 1000 ft and is held below 10 ft."""
    h = max(config.height_m / FOOT_M, LOWEST_FT)
    shape = 0.177 + 0.000823 * h
    upward = 0.1 * config.wind_at_20_ft_m_s
    level, length_m = upward / shape**0.4, h / shape**1.2 * FOOT_M
    return Turbulence((level, level, upward), (length_m, length_m, h * FOOT_M))


class DrydenTurbulence:
    """The turbulent part of the wind, stationary from the start; the same everywhere."""

    def __init__(self, config: DrydenConfig, direction_rad: float, rng: np.random.Generator) -> None:
        """direction_rad: towards which the mean wind blows, from +x to +y."""
        std, length = low_altitude(config)
        self._std = std
        self._time_s = tuple(each / config.airspeed_m_s for each in length)
        self._draw = rng.standard_normal
        self._cos, self._sin = math.cos(direction_rad), math.sin(direction_rad)
        first = self._draw(5)
        self._u = float(self._std[0] * first[0])
        self._gain = [std * math.sqrt(time_s) for std, time_s in zip(std[1:], self._time_s[1:], strict=True)]
        self._x = np.array(  # states of v and w, shape (2, 2)
            [
                np.linalg.cholesky(stationary_covariance(time_s)) @ first[1 + 2 * i : 3 + 2 * i]
                for i, time_s in enumerate(self._time_s[1:])
            ]
        )
        self._t_s: float | None = None
        self._step_s = -1.0
        self._factors = np.zeros((4, 2, 2))  # transitions of v and w, then the factors of their noise
        self._before = np.empty((4, 2, 1))  # what each of them is multiplied with
        self._value = self._turned()

    def at(self, t_s: float) -> Vec3:
        """Velocity of the air [m/s], W, at a time; an earlier time than the last gets the present value."""
        if self._t_s is None:
            self._t_s = t_s
        elif t_s > self._t_s:
            self._advance(t_s - self._t_s)
            self._t_s = t_s
        return self._value

    def _advance(self, step_s: float) -> None:
        if abs(step_s - self._step_s) > STEP_TOLERANCE_S:  # the step seldom changes: keep its factors
            self._step_s = step_s
            self._keep = math.exp(-step_s / self._time_s[0])
            self._add = self._std[0] * math.sqrt(1.0 - self._keep**2)
            pairs = [discretised(time_s, step_s) for time_s in self._time_s[1:]]
            self._factors[:] = [keep for keep, _ in pairs] + [add for _, add in pairs]
        n = self._draw(5)
        self._u = self._keep * self._u + self._add * float(n[0])
        before = self._before
        before[:2, :, 0], before[2:, :, 0] = self._x, n[1:].reshape(2, 2)
        kept, added = (self._factors @ before).reshape(2, 2, 2)  # four small products as one call
        self._x = kept + added
        self._value = self._turned()

    def _turned(self) -> Vec3:
        u, (for_v, for_w), ((v1, v2), (w1, w2)) = self._u, self._gain, self._x.tolist()
        v, w = for_v * (ROOT_3 * v1 + (1.0 - ROOT_3) * v2), for_w * (ROOT_3 * w1 + (1.0 - ROOT_3) * w2)
        return self._cos * u - self._sin * v, self._sin * u + self._cos * v, w


def stationary_covariance(time_s: float) -> Array:
    """Of the two states of the second filter, shape (2, 2)."""
    return np.array([[0.5, 0.25], [0.25, 0.25]]) / time_s


def discretised(time_s: float, step_s: float) -> tuple[Array, Array]:
    """Transition of the two states over a step and a factor of its noise covariance, each of shape (2, 2)."""
    r = step_s / time_s
    keep = math.exp(-r) * np.array([[1.0, 0.0], [r, 1.0]])
    stationary = stationary_covariance(time_s)
    covariance = stationary - keep @ stationary @ keep.T
    # A short step leaves x₂'s own noise below rounding (it grows with the cube of the step): the eigenvalues are clipped.
    values, vectors = np.linalg.eigh(covariance)
    return keep, vectors * np.sqrt(np.maximum(values, 0.0))

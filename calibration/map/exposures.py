"""The aircraft at the exposures of photographs: from an image of the adjustment by the inertial samples between.

With Δt from image to exposure, and the samples between both as ΔR and a in the axes of the body at the image,

    R(exposure) = R ΔR
    p(exposure) = p + v Δt + g Δt²/2 + R a
    v(exposure) = v + g Δt + R b

also where the exposure lies before the image (Δt < 0). The biases are those at the image; their errors do not count over tenths of a second.
"""

from typing import NamedTuple

import numpy as np

from calibration.map.motion import GRAVITY_W
from calibration.map.normal_equations import Index
from calibration.map.preintegration import InertialSamples, preintegrate_between
from calibration.map.rotations import turned
from calibration.map.unknowns import Unknowns
from companion.core.arrays import Array


class Carried(NamedTuple):
    """From images to n times near them: image (n,), apart_s (n,) = Δt, R (n, 3, 3) = ΔR, a [m] and b [m/s] (n, 3)."""

    image: Index
    apart_s: Array
    R: Array
    a: Array
    b: Array

    def attitude(self, u: Unknowns) -> Array:
        """R_WB (n, 3, 3)."""
        found: Array = u.R_WB[self.image] @ self.R
        return found

    def position(self, u: Unknowns) -> Array:
        """p_W (n, 3)."""
        dt, k = self.apart_s[:, None], self.image
        found: Array = u.p_W[k] + u.v_W[k] * dt + GRAVITY_W * dt**2 / 2 + _apply(u.R_WB[k], self.a)
        return found

    def velocity(self, u: Unknowns) -> Array:
        """v_W (n, 3)."""
        found: Array = u.v_W[self.image] + GRAVITY_W * self.apart_s[:, None] + _apply(u.R_WB[self.image], self.b)
        return found


def carried(samples: InertialSamples, t_s: Array, u: Unknowns, to_s: Array) -> Carried:
    """From the images nearest to the times to_s (n,); t_s (k,): of the images."""
    image = np.argmin(np.abs(t_s[None] - to_s[:, None]), axis=1)
    apart_s = to_s - t_s[image]
    starts, ends = np.minimum(to_s, t_s[image]), np.maximum(to_s, t_s[image])
    step = preintegrate_between(samples, starts, ends, u.gyro_bias[image], u.accel_bias[image])
    dt, back = apart_s[:, None], turned(step.R)
    # backwards: v_0 = v - g |Δt| - R_0 Δv and p_0 = p - v_0 |Δt| - g Δt²/2 - R_0 Δp with R_0 = R ΔRᵀ
    later = apart_s >= 0.0
    b = np.where(later[:, None], step.v, -_apply(back, step.v))
    a = np.where(later[:, None], step.p, -_apply(back, step.p) + dt * b)
    return Carried(image, apart_s, np.where(later[:, None, None], step.R, back), a, b)


def _apply(R: Array, vectors: Array) -> Array:
    found: Array = np.einsum("kij,kj->ki", R, vectors)
    return found

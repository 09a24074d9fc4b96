"""Force-to-attitude inversion: the tilt and thrust that produce a desired force.

With z_B the body's z axis and f the desired mass-normalised force in W [m/s²], the thrust equals f when
z_B = f / |f|. In the heading frame, with g = Rz(ψ)ᵀ f and R = Rz(ψ) Ry(θ) Rx(φ):

    z_B = (sin θ cos φ, -sin φ, cos θ cos φ)   so   θ = atan2(g_x, g_z),   φ = atan2(-g_y, √(g_x² + g_z²))

The rotation into the heading frame is the *transposed* one. With Rz(ψ) itself, a controller flies away from its target
at 90° of yaw.
"""

import numpy as np

from companion.core.arrays import Array, Vector


def tilt_and_thrust(force_W: Vector, yaw: float | Array) -> tuple[Array, Array, Array]:
    """(roll, pitch, magnitude) that produce a force; angles [rad], magnitude [m/s²]; each of shape (...).

    force_W: (..., 3) [m/s²], pointing up; yaw: (...) [rad].
    """
    force = np.asarray(force_W, dtype=float)
    c, s = np.cos(yaw), np.sin(yaw)
    fx, fy, fz = force[..., 0], force[..., 1], force[..., 2]
    forward, left = c * fx + s * fy, c * fy - s * fx
    in_plane = forward * forward + fz * fz
    return np.arctan2(-left, np.sqrt(in_plane)), np.arctan2(forward, fz), np.sqrt(in_plane + left * left)

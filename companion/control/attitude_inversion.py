"""Which tilt and thrust make a wanted force: the model's thrust direction, inverted.

With z_B the body's z axis and f the wanted mass-normalised force in W [m/s²], thrust carries all of f when
z_B = f / |f|. Seen from the heading frame, g = Rz(ψ)ᵀ f, and from R = Rz(ψ) Ry(θ) Rx(φ):

    z_B = (sin θ cos φ, -sin φ, cos θ cos φ)   so   θ = atan2(g_x, g_z),   φ = atan2(-g_y, √(g_x² + g_z²))

The rotation into the heading frame is the *transposed* one; with Rz(ψ) itself a controller flies away from its target
at 90° of yaw.
"""

import numpy as np


def tilt_and_thrust(force_W, yaw):
    """(roll, pitch, magnitude) that make a force; angles [rad], magnitude [m/s²].

    force_W: (..., 3) [m/s²], pointing up; yaw: (...) [rad].
    """
    force_W = np.asarray(force_W, dtype=float)
    c, s = np.cos(yaw), np.sin(yaw)
    fx, fy, fz = force_W[..., 0], force_W[..., 1], force_W[..., 2]
    forward, left = c * fx + s * fy, c * fy - s * fx
    in_plane = forward * forward + fz * fz
    return np.arctan2(-left, np.sqrt(in_plane)), np.arctan2(forward, fz), np.sqrt(in_plane + left * left)

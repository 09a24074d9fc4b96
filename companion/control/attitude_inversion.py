"""Force-to-attitude inversion: the tilt and thrust that produce a desired force.

With z_B the body's z axis and f the desired mass-normalised force in W [m/s²], the thrust equals f when
z_B = f / |f|. In the heading frame, with g = Rz(ψ)ᵀ f and R = Rz(ψ) Ry(θ) Rx(φ):

    z_B = (sin θ cos φ, -sin φ, cos θ cos φ)   so   θ = atan2(g_x, g_z),   φ = atan2(-g_y, √(g_x² + g_z²))

The rotation into the heading frame is the *transposed* one. With Rz(ψ) itself, a controller flies away from its target
at 90° of yaw.
"""

import numpy as np

from companion.core.arrays import Array, Vector

ROTOR_DRAG_STEPS = 3


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


def with_rotor_drag(force_W: Array, v_W: Array, parameters: Array) -> Array:
    """The force that the rotors must produce so that `force_W` remains after their own drag; (..., 3) [m/s²].

    force_W: (..., 3) without rotor drag, gravity included; v_W: (..., 3) [m/s]; parameters: `flight_model.PARAMETERS`,
    whose last two are the rotors' drag r_0 and r_T. The drag (r_0 + r_T t) (v - (v·n) n) depends on the thrust t n that
    balances it: solved by iteration, which `ROTOR_DRAG_STEPS` steps bring to 1 cm/s² at 10 m/s.
    """
    r_0, r_T = parameters[-2], parameters[-1]
    if r_0 == 0.0 and r_T == 0.0:
        return force_W
    total = force_W
    for _ in range(ROTOR_DRAG_STEPS):
        thrust = np.sqrt(np.sum(total * total, axis=-1, keepdims=True))
        n = total / thrust
        in_plane = v_W - np.sum(v_W * n, axis=-1, keepdims=True) * n
        total = force_W + (r_0 + r_T * thrust) * in_plane
    return total

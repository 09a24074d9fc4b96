"""Inertial samples between two images as one measurement of the motion between them.

Forster, Carlone, Dellaert, Scaramuzza: On-Manifold Preintegration for Real-Time Visual-Inertial Odometry, IEEE Trans. Robotics
33, 2017: equations 33 to 37 and appendix B (derivatives by the biases).
"""

from typing import NamedTuple

import numpy as np

from calibration.map.normal_equations import Index
from calibration.map.rotations import cross, exp, right_jacobian, turned
from companion.core.arrays import Array


class InertialSamples(NamedTuple):
    """t_s (n,): the middle of each sample's interval; gyro_B (n, 3) [rad/s], accel_B (n, 3) [m/s²]."""

    t_s: Array
    gyro_B: Array
    accel_B: Array


class Preintegrated(NamedTuple):
    """Motion over k intervals in the frame of their beginnings, without gravity, and its derivatives by the biases.

    R (k, 3, 3), v, p (k, 3) at the biases gyro_bias, accel_bias (k, 3); by_gyro: of R, v, p (k, 3, 3) each; by_accel: of v, p.
    """

    dt_s: Array
    R: Array
    v: Array
    p: Array
    R_by_gyro: Array
    v_by_gyro: Array
    p_by_gyro: Array
    v_by_accel: Array
    p_by_accel: Array
    gyro_bias: Array
    accel_bias: Array


def preintegrate(samples: InertialSamples, t_s: Array, gyro_bias: Array, accel_bias: Array) -> Preintegrated:
    """Between consecutive times of t_s (k + 1,), with the biases (k, 3) of each interval."""
    return preintegrate_between(samples, t_s[:-1], t_s[1:], gyro_bias, accel_bias)


def preintegrate_between(
    samples: InertialSamples, starts_s: Array, ends_s: Array, gyro_bias: Array, accel_bias: Array
) -> Preintegrated:
    """Over k intervals that may lie anywhere, with the biases (k, 3) of each.

    A sample counts from half way to the sample before to half way to the next.
    """
    k = len(starts_s)
    steps, which = _steps(samples.t_s, starts_s, ends_s)
    R, v, p = np.tile(np.eye(3), (k, 1, 1)), np.zeros((k, 3)), np.zeros((k, 3))
    Rg, vg, pg, va, pa = (np.zeros((k, 3, 3)) for _ in range(5))
    for i in range(steps.shape[1]):
        dt = steps[:, i, None]
        dt2 = dt[:, :, None]
        rate, force = samples.gyro_B[which[:, i]] - gyro_bias, samples.accel_B[which[:, i]] - accel_bias
        half = exp(rate * dt / 2)
        middle = R @ half
        middle_by_gyro = turned(half) @ Rg - right_jacobian(rate * dt / 2) * dt2 / 2
        a = np.einsum("kij,kj->ki", middle, force)
        a_by_gyro = -middle @ cross(force) @ middle_by_gyro
        p = p + v * dt + a * dt**2 / 2
        pg, pa = pg + vg * dt2 + a_by_gyro * dt2**2 / 2, pa + va * dt2 - middle * dt2**2 / 2
        v = v + a * dt
        vg, va = vg + a_by_gyro * dt2, va - middle * dt2
        step = exp(rate * dt)
        R, Rg = R @ step, turned(step) @ Rg - right_jacobian(rate * dt) * dt2
    return Preintegrated(ends_s - starts_s, R, v, p, Rg, vg, pg, va, pa, gyro_bias, accel_bias)


def _steps(samples_s: Array, starts_s: Array, ends_s: Array) -> tuple[Array, Index]:
    """Durations (k, m) [s] of the pieces of each interval, 0 behind its last, and the sample of each piece."""
    edges = (samples_s[1:] + samples_s[:-1]) / 2
    pieces = []
    for start, end in zip(starts_s, ends_s, strict=True):
        first, last = np.searchsorted(edges, [start, end], "right")
        times = np.concatenate([[start], edges[first:last], [end]])
        pieces.append((np.diff(times), np.arange(first, last + 1)))
    most = max((len(durations) for durations, _ in pieces), default=0)
    steps, which = np.zeros((len(pieces), most)), np.zeros((len(pieces), most), dtype=np.int64)
    for row, (durations, index) in enumerate(pieces):
        steps[row, : len(durations)], which[row, : len(index)] = durations, index
    return steps, which

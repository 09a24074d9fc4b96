"""Made-up flights over a bundle with known mount and delay of the camera."""

from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from calibration.mount.observations import MountLog, Observations, TimeSeries

DOWN = Rotation.from_quat([-0.70710678, 0.70710678, 0.0, 0.0])  # camera looks down, upper edge forward
R_BC = (DOWN * Rotation.from_rotvec([0.03, -0.05, 0.04])).as_matrix()
P_BC = np.array([0.10, -0.015, -0.035])
R_WM = Rotation.from_rotvec([0.02, -0.01, 1.1]).as_matrix()
P_WM = np.array([0.3, -0.2, 0.05])
CAMERA_S, FLOWN_S = 0.083, 0.06  # true delay of the images, and latency.camera_s of the flight


def walk(rng, n: int, step_s: float, std: float, time_s: float) -> np.ndarray:
    """First-order Gauss-Markov error (n, 3)."""
    keep = np.exp(-step_s / time_s)
    x = np.empty((n, 3))
    x[0] = std * rng.standard_normal(3)
    for i in range(1, n):
        x[i] = keep * x[i - 1] + std * np.sqrt(1 - keep * keep) * rng.standard_normal(3)
    return x


def sines(rng, t, amplitude, periods_s, count: int = 4) -> np.ndarray:
    """A smooth random course (n,) of the given standard deviation."""
    waves = [np.sin(2 * np.pi * t / rng.uniform(*periods_s) + rng.uniform(0, 6.3)) for _ in range(count)]
    return amplitude * np.sum(waves, axis=0) * np.sqrt(2 / count)


def fly(
    seed: int = 1,
    duration_s: float = 40.0,
    lean_rad: float = 0.06,
    yaw_span_rad: float = 7.0,
    drift_rad: float = 0.005,
    position_std_m: float = 0.002,
    with_position: bool = True,
    noisy: float = 1.0,
) -> MountLog:
    """A log of a flight 2 m over the bundle; lean_rad: standard deviation of roll and pitch, within seconds.

    noisy: factor on the noise of observations and attitude.
    """
    rng = np.random.default_rng(seed)
    t = np.arange(0.0, duration_s, 0.004)
    roll, pitch = (sines(rng, t, lean_rad, (1.0, 3.0)) for _ in range(2))
    yaw = yaw_span_rad * (0.5 - 0.5 * np.cos(np.pi * t / duration_s))
    q = Rotation.from_euler("ZYX", np.column_stack([yaw, pitch, roll]))
    p = np.column_stack(
        [sines(rng, t, 0.2, (2.0, 6.0)), sines(rng, t, 0.2, (2.0, 6.0)), 2 + sines(rng, t, 0.05, (4, 9))]
    )

    every = 5  # 50 Hz
    ta = t[::every]
    drift = walk(rng, len(ta), 0.02, drift_rad, 60.0)
    white = Rotation.from_rotvec(noisy * 0.0015 * rng.standard_normal((len(ta), 3)))
    measured = (Rotation.from_rotvec(drift) * q[::every] * white).as_quat()
    wandering = walk(rng, len(ta), 0.02, position_std_m, 0.5)

    exposed = np.arange(60, len(t) - 60, 8)  # 31 Hz
    R_WC = q[exposed].as_matrix() @ R_BC
    p_WC = p[exposed] + q[exposed].apply(P_BC)
    std = np.array([0.001, 0.001, 0.003, 0.004, 0.004, 0.001])
    noise = noisy * std * rng.standard_normal((len(exposed), 6))
    R_CM = R_WC.transpose(0, 2, 1) @ R_WM @ Rotation.from_rotvec(noise[:, 3:]).as_matrix()
    p_CM = np.einsum("nji,nj->ni", R_WC, P_WM - p_WC) + noise[:, :3]
    covariance = np.broadcast_to(np.diag(std**2), (len(exposed), 6, 6)).copy()
    stamps = t[exposed] + CAMERA_S - FLOWN_S
    return MountLog(
        Path("flight.mcap"),
        "floor",
        Observations(stamps, R_CM, p_CM, covariance),
        TimeSeries(ta, np.roll(measured, 1, axis=1)),
        TimeSeries(ta, p[::every] + wandering + [5.0, -3.0, 100.0]) if with_position else None,
        FLOWN_S,
        np.zeros(3),
        np.array([1.0, 0.0, 0.0, 0.0]),
        0,
        [],
    )


def rotation_error_rad(R: np.ndarray) -> np.ndarray:
    """Rotation vector (3,) in the body from the true mount to this one."""
    return Rotation.from_matrix(R @ R_BC.T).as_rotvec()

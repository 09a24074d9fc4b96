"""Logs of vehicles that something holds or carries, made from the commands of a made-up flight."""

import numpy as np
from identify_flights import STEP_S
from scipy.signal import lfilter

from companion.core.frames import GRAVITY_M_S2, quat_from_rpy, rotation_matrix


def noise(rng: np.random.Generator, count: int, std: float, time_s: float) -> np.ndarray:
    """A first-order noise of a time constant, (count, 3)."""
    pole = np.exp(-STEP_S / time_s)
    white = rng.standard_normal((count, 3)) * std * np.sqrt(1.0 - pole**2)
    return lfilter([1.0], [1.0, -pole], white, axis=0)


def held(flight: dict, kind: str, seed: int = 7) -> dict:
    """The same commands while something holds the vehicle.

    kind: "stand" (rigid), "steady stand" (the command is constant, too), "gimbal" (turns, does not move), "rope" (free to
    the sides, its weight on a rope), "ground" (half of the command), "hand" (motors idle, the vehicle is carried about).
    """
    rng = np.random.default_rng(seed)
    changed, n = dict(flight), len(flight["t_s"])
    air = flight["air"]
    thrust, rpy = flight["thrust"].copy(), np.zeros((n, 3))
    acceleration, velocity = np.zeros((n, 3)), np.zeros((n, 3))
    if kind == "steady stand":
        thrust[air] = np.median(thrust[air]) + 0.0005 * rng.standard_normal(int(air.sum()))
    if kind == "ground":
        thrust[air] *= 0.5
    if kind == "hand":
        thrust[air] = 0.12 + 0.004 * rng.standard_normal(int(air.sum()))
        velocity = np.where(air[:, None], noise(rng, n, 0.6, 0.8), 0.0)
        rpy = noise(rng, n, 0.15, 0.7)
    if kind in ("gimbal", "rope"):
        rpy = flight["rpy"]
    q = np.array([quat_from_rpy(*row) for row in rpy])
    if kind == "rope":
        along = np.array([rotation_matrix(row)[:, 2] for row in q])
        side = 0.4 * GRAVITY_M_S2 * along[:, :2] * (thrust / np.median(thrust[air]))[:, None] * air[:, None]
        for k in range(1, n):
            velocity[k, :2] = velocity[k - 1, :2] + STEP_S * (side[k] - 0.4 * velocity[k - 1, :2])
    acceleration[1:] = np.diff(velocity, axis=0) / STEP_S
    force = acceleration + (0.0, 0.0, GRAVITY_M_S2)
    felt = np.array([rotation_matrix(row).T @ f for row, f in zip(q, force, strict=True)])
    shake = 0.2 + 0.5 * thrust[:, None]  # vibration grows with the motors' speed
    changed |= {"thrust": thrust, "q": q, "rpy": rpy}
    changed["velocity_W"] = velocity + noise(rng, n, 0.02, 0.5)
    changed["felt_B"] = felt + shake * rng.standard_normal((n, 3))
    return changed


HELD = {  # kind → words of its refusal
    "stand": "the vehicle was held",
    "steady stand": "neither the thrust command",
    "gimbal": "the vehicle was held",
    "rope": "the vehicle was held",
    "ground": "the vehicle was held",
    "hand": "carried by hand?",
}

"""Throws of an aircraft with its rotors off at solids, and what they show."""

import math
from typing import NamedTuple

import msgspec
import numpy as np

from companion.core.frames import GRAVITY_M_S2
from sitl.airframe import Drag, load_airframe
from sitl.plant import Plant
from sitl.solids.contact import SolidContact

OFF, CALM, NO_FORCE = np.zeros(6), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
FROM_M, SECONDS = 3.0, 0.6
HIGH_M = 200.0  # of the solids: the ground is far


def without_drag():
    airframe = load_airframe("f550")
    rotor = msgspec.structs.replace(airframe.rotor, in_plane_drag_n_s2_m_rad=0.0, axial_drag_n_s2_m_rad=0.0)
    none = Drag(linear_n_s_m=(0.0,) * 3, quadratic_n_s2_m2=(0.0,) * 3, angular_n_m_s=(0.0,) * 3)
    return msgspec.structs.replace(airframe, drag=none, rotor=rotor)


class Thrown(NamedTuple):
    touched: bool
    gained_j: float  # largest energy over the least one before, of motion and height while nothing is touched
    through: bool  # the centre of mass has passed from one side to the other, or ends inside
    deepest_m: float  # of the centre of mass inside of a solid
    passed: float


def energy_j(plant):
    turning = 0.5 * np.array(plant.airframe.inertia_kg_m2) @ plant.omega_B**2
    return 0.5 * plant.mass_kg * plant.v_W @ plant.v_W + turning + plant.mass_kg * GRAVITY_M_S2 * plant.p_W[2]


def throw(solids, target_W, rng, speed_m_s, plant=None):
    """One throw from a random side at a point near `target_W` with random attitude and rates."""
    plant = plant or Plant(without_drag(), 1)
    away = rng.normal(size=3)
    away /= np.linalg.norm(away)
    plant.p_W[:] = target_W + FROM_M * away
    aim = target_W + rng.uniform(-0.3, 0.3, 3)
    plant.v_W[:] = speed_m_s * (aim - plant.p_W) / np.linalg.norm(aim - plant.p_W)
    q = rng.normal(size=4)
    plant.q_WB[:] = q / np.linalg.norm(q)
    plant.omega_B[:] = rng.normal(size=3) * 4
    contact = SolidContact(solids, plant)
    start = least = energy_j(plant)
    gained, crossings, deepest = 0.0, 0, 0.0
    for _ in range(math.ceil(SECONDS / 0.004)):
        before = plant.p_W.copy()
        contact.step(OFF, 4, CALM, NO_FORCE)
        moved = plant.p_W - before
        now = energy_j(plant)
        gained = max(gained, now - least)
        if not plant.contact_depth_m.any():
            least = min(least, now)
        distance = float(solids.nearest(plant.p_W).distance_m[0])
        deepest = max(deepest, -distance)
        hit = float(solids.first_hit(before, moved)) if moved.any() else math.inf
        crossings += hit < np.linalg.norm(moved)
    return (
        Thrown(bool(contact.contacts), gained, bool(crossings % 2) or distance < 0, deepest, crossings),
        contact,
        plant,
        start,
    )

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
FROM_M, SECONDS, STEPS, STEP_S = 3.0, 0.5, 4, 0.004
CENTRE_W = (0.0, 0.0, 200.0)  # of the solids: the ground is far


class Thrown(NamedTuple):
    """What came of a throw."""

    touched: bool
    entered: bool  # the centre of mass has come into a solid, or through a thin one
    gained_j: float  # of energy without that of the springs, over its smallest value while nothing was touched


def without_drag(name="f550"):
    """An airframe that loses energy by contact alone."""
    airframe = load_airframe(name)
    rotor = msgspec.structs.replace(airframe.rotor, in_plane_drag_n_s2_m_rad=0.0, axial_drag_n_s2_m_rad=0.0)
    none = Drag(linear_n_s_m=(0.0,) * 3, quadratic_n_s2_m2=(0.0,) * 3, angular_n_m_s=(0.0,) * 3)
    return msgspec.structs.replace(airframe, drag=none, rotor=rotor)


def energy_j(plant):
    turning = 0.5 * np.array(plant.airframe.inertia_kg_m2) @ plant.omega_B**2
    return 0.5 * plant.mass_kg * plant.v_W @ plant.v_W + turning + plant.mass_kg * GRAVITY_M_S2 * plant.p_W[2]


def set_random(plant, rng):
    """Random attitude and rates."""
    q = rng.normal(size=4)
    plant.q_WB[:], plant.omega_B[:] = q / np.linalg.norm(q), rng.normal(size=3) * 4


def watch(solids, contact, plant, seconds):
    """Let go, and see whether it enters a solid or gains energy."""
    least, gained, entered = energy_j(plant), 0.0, False
    for _ in range(math.ceil(seconds / STEP_S)):
        before = plant.p_W.copy()
        contact.step(OFF, STEPS, CALM, NO_FORCE)
        gained = max(gained, energy_j(plant) - least)
        if not plant.contact_depth_m.any():
            least = min(least, energy_j(plant))
        moved = plant.p_W - before
        entered |= bool(solids.first_hit(before, moved) <= np.linalg.norm(moved))
    return Thrown(bool(contact.contacts), entered, gained)


def throw(solids, seed, speed_m_s=30.0, target_W=CENTRE_W):
    """From a random side towards a random point near the target."""
    rng, plant = np.random.default_rng(seed), Plant(without_drag(), 1)
    away = rng.normal(size=3)
    plant.p_W[:] = target_W + FROM_M * away / np.linalg.norm(away)
    aim = target_W + rng.uniform(-0.3, 0.3, 3) - plant.p_W
    plant.v_W[:] = speed_m_s * aim / np.linalg.norm(aim)
    set_random(plant, rng)
    return watch(solids, SolidContact(solids, plant), plant, SECONDS)

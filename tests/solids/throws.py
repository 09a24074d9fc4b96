"""Throws of an aircraft with its rotors off at solids, and what they show.

``python -m tests.solids.throws`` prints the table of docs/worlds.md.
"""

import argparse
import math
import tempfile
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from companion.core.frames import GRAVITY_M_S2
from sitl.airframe import Drag, load_airframe
from sitl.plant import Plant
from sitl.solids.contact import SolidContact
from tests.solids.world_makers import BOX, CYLINDER, PLATE, rock, solids_of

OFF, CALM, NO_FORCE = np.zeros(6), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
FROM_M, SECONDS, STEPS, STEP_S = 3.0, 0.5, 4, 0.004
CENTRE_W = (0.0, 0.0, 200.0)  # of the solids: the ground is far
replace = msgspec.structs.replace
TARGETS = {
    "box of 1 x 2 x 0.5 m": replace(BOX, p_W=CENTRE_W),
    "box 2 cm thin": replace(BOX, p_W=CENTRE_W, size_m=(2.0, 1.5, 0.02)),
    "beam of 10 cm": replace(BOX, p_W=CENTRE_W, size_m=(4.0, 0.1, 0.1)),
    "plate": replace(PLATE, p_W=CENTRE_W),
    "cylinder of 1.2 m": replace(CYLINDER, p_W=CENTRE_W),
    "pole of 6 cm": replace(CYLINDER, p_W=CENTRE_W, radius_m=0.03, length_m=4.0),
    "mesh, a rock": None,
}


class Thrown(NamedTuple):
    """What came of a throw."""

    touched: bool
    entered: bool  # the centre of mass has come into a solid, or through a thin one
    gained_j: float  # of energy without that of the springs, over its smallest value while nothing was touched


def without_drag(name="f550"):
    """An airframe that loses energy by contact alone."""
    airframe = load_airframe(name)
    rotor = replace(airframe.rotor, in_plane_drag_n_s2_m_rad=0.0, axial_drag_n_s2_m_rad=0.0)
    none = Drag(linear_n_s_m=(0.0,) * 3, quadratic_n_s2_m2=(0.0,) * 3, angular_n_m_s=(0.0,) * 3)
    return replace(airframe, drag=none, rotor=rotor)


def target(kind, folder):
    """The solid to throw at."""
    return solids_of(TARGETS[kind] or rock(folder, p_W=CENTRE_W), folder=folder)


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


def main():
    parser = argparse.ArgumentParser(prog="tests.solids.throws", description=__doc__)
    parser.add_argument("--throws", type=int, default=100)
    count = parser.parse_args().throws
    print("| solid | throws | touched | entered | energy gained, J |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for kind in TARGETS:
            solids = target(kind, Path(folder))
            thrown = [throw(solids, seed) for seed in range(100, 100 + count)]
            touched, entered = sum(t.touched for t in thrown), sum(t.entered for t in thrown)
            print(f"| {kind} | {count} | {touched} | {entered} | {max(t.gained_j for t in thrown):.0e} |", flush=True)


if __name__ == "__main__":
    main()

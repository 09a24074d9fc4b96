"""Distances around the rotors and wind at the aircraft, from the solids of a world."""

import math

import numpy as np
import pytest

from companion.core.frames import quat_from_rpy, rotation_matrix
from sitl.aerodynamics import Bluff, WindAround
from sitl.airframe import load_airframe
from sitl.plant import Plant
from sitl.solids.air import SolidAir
from sitl.solids.world_file import Box, Cylinder, Plate
from tests.solids.world_makers import COMMON, solids_of

HOVER = np.full(6, 0.344)
BELOW, ABOVE, SIDE = 0, 1, 2
WIND_W = (8.0, 0.0, 0.0)  # the mean, along which wakes lie
POSE = {**COMMON, "rpy_rad": (0.0, 0.0, 0.0)}
DECK = Box(**{**POSE, "name": "deck", "p_W": (0.0, 0.0, 10.2), "size_m": (12.0, 12.0, 0.4)})  # its underside at 10 m
PIER = Cylinder(**{**POSE, "name": "pier", "p_W": (0.0, 0.0, 5.0), "radius_m": 1.0, "length_m": 10.0})
FLOOR = Plate(**{**POSE, "name": "floor", "p_W": (0.0, 0.0, 3.0), "size_m": (8.0, 8.0)})


@pytest.fixture
def plant():
    return Plant(load_airframe("f550"), 1, p_W=(0, 0, 50))


def placed(plant, tmp_path, p_W, *solids, rpy=(0.0, 0.0, 0.0)):
    plant.p_W[:], plant.q_WB[:] = p_W, quat_from_rpy(*rpy)
    air = SolidAir(solids_of(*solids, folder=tmp_path), plant, WIND_W)
    air.lay_surfaces()
    return air


def test_under_a_deck_the_gap_is_that_above_the_hubs(plant, tmp_path):
    placed(plant, tmp_path, (1.0, 2.0, 9.6), DECK)
    assert np.isinf(plant.clearance_m[:, BELOW]).all()
    np.testing.assert_allclose(plant.clearance_m[:, ABOVE], 10.0 - 9.6 - 0.03, atol=1e-9)
    np.testing.assert_allclose(plant.side_W, 0.0, atol=1e-12)  # a ceiling is no wall


def test_the_gap_is_measured_along_the_axis_of_a_tilted_rotor(plant, tmp_path):
    placed(plant, tmp_path, (0.0, 0.0, 3.3), FLOOR, rpy=(0.3, 0.0, 0.0))
    R = rotation_matrix(plant.q_WB)
    heights = (plant.p_W + plant.shapes_B[4:10] @ R.T)[:, 2] - 3.0
    gaps = plant.clearance_m[:, BELOW]
    np.testing.assert_allclose(
        gaps, heights / math.cos(0.3), rtol=0.06
    )  # 1/z² of a tilted disc is larger at its low side


def test_a_rotor_half_under_an_edge_feels_a_part(plant, tmp_path):
    gains = []
    for x in np.linspace(5.3, 7.0, 60):
        placed(plant, tmp_path, (x, 0.0, 9.85), DECK)
        plant.step(HOVER, 0)
        gains.append((plant.clearance_m[1, ABOVE] / 0.127) ** -2.0)
    gains = np.array(gains)
    assert (np.diff(gains) <= 1e-9).all()
    assert len(np.unique(np.round(gains, 6))) >= 4  # not at once
    assert gains[0] > 1.0 and gains[-1] == 0.0


def test_effects_begin_without_a_jump(plant, tmp_path):
    thrusts = []
    air = placed(plant, tmp_path, (0.0, 0.0, 8.5), DECK)
    for z in np.linspace(8.5, 9.95, 1000):
        plant.p_W[2], plant.v_W[:], plant.omega_B[:], plant.q_WB[:] = z, 0.0, 0.0, (1, 0, 0, 0)
        air.lay_surfaces()
        plant.rotor_speed_rad_s[:] = 480.0
        plant.step(np.full(6, 0.33), 1)
        thrusts.append(plant.motor_thrust_n.sum() / plant.free_thrust_n.sum())
    steps = np.diff(thrusts)
    assert (steps >= -1e-9).all() and steps.max() < 0.03
    assert thrusts[0] == 1.0 and thrusts[-1] > 1.3


def test_beside_a_pier_there_is_a_wall(plant, tmp_path):
    placed(plant, tmp_path, (-1.5, 0.0, 5.0), PIER, rpy=(0.0, 0.0, 0.4))
    hubs_W = plant.p_W + plant.shapes_B[4:10] @ rotation_matrix(plant.q_WB).T
    gaps = np.hypot(hubs_W[:, 0], hubs_W[:, 1]) - 1.0
    near = gaps < 10 * 0.127 - 1e-6
    assert near.all()
    np.testing.assert_allclose(plant.clearance_m[near, SIDE], gaps[near], atol=1e-9)
    towards = -hubs_W[:, :2] / np.linalg.norm(hubs_W[:, :2], axis=1, keepdims=True)
    np.testing.assert_allclose(plant.side_W[:, :2], towards, atol=1e-9)
    plant.step(HOVER, 300)
    plant.step(HOVER, 0)
    assert plant.disturbance_W[0] > 0.0


def test_far_from_all_solids_and_past_them_nothing_is_in_reach(plant, tmp_path):
    air = placed(plant, tmp_path, (0.0, 0.0, 9.8), DECK)
    assert np.isfinite(plant.clearance_m).any()
    plant.p_W[:] = 0.0, 0.0, 20.0
    air.lay_surfaces()
    assert np.isinf(plant.clearance_m).all()


def test_the_wind_at_the_aircraft_is_that_around_the_solids(plant, tmp_path):
    air = placed(plant, tmp_path, (4.0, 0.3, 5.0), PIER)
    around = WindAround([Bluff(np.array([0.0, 0.0, 5.0]), np.eye(3), np.array([1.0, 1.0, 5.0]), round=True)])
    np.testing.assert_allclose(air.wind((8.0, 0.0, 0.0)), around.at((8.0, 0.0, 0.0), WIND_W, plant.p_W), atol=1e-12)
    assert air.wind((8.0, 0.0, 0.0))[0] < 3.0
    plant.p_W[1] += 0.05  # a flight asks for the flow again after 10 cm
    same = air.wind((8.0, 0.0, 0.0))
    plant.p_W[1] += 0.1
    assert air.wind((8.0, 0.0, 0.0)) != same

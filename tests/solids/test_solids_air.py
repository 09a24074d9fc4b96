"""The air among solids: free distances of the rotors, and the wind at the aircraft's place."""

import numpy as np
import pytest
from world_makers import COMMON, solids_of

from companion.core.frames import quat_from_rpy
from sitl.aerodynamics import wind_around
from sitl.airframe import load_airframe
from sitl.plant import ROTORS, Plant
from sitl.solids.air import PERIOD_S, REACH_RADII, AirAmongSolids
from sitl.solids.world_file import Box

MEAN_W = (5.0, 0.0, 0.0)


def box(name, p_W, size_m):
    return Box(name=name, p_W=p_W, size_m=size_m, **COMMON)


def plant_at(p_W, rpy=(0.0, 0.0, 0.0)):
    plant = Plant(load_airframe("f550"), 1, p_W)
    plant.q_WB[:] = quat_from_rpy(*rpy)
    plant.step([0.0] * ROTORS, 0)
    return plant


def test_far_from_every_solid_nothing_is_near_and_the_wind_is_free():
    plant = plant_at((0.0, 0.0, 3.0))
    air = AirAmongSolids(solids_of(box("block", (500.0, 300.0, 3.0), (2.0, 2.0, 2.0))), plant, MEAN_W)
    air.follow()
    assert np.isinf(plant.clearance_m).all()
    np.testing.assert_allclose(air.wind((5.0, 1.0, 0.5)), (5.0, 1.0, 0.5), atol=1e-3)


def test_under_a_deck_each_rotor_has_its_own_distance_along_its_axis():
    """Tilted by 10°, the rotors on the upper side are nearer, and the ray along the axis is longer by 1 / cos 10°."""
    tilt = np.radians(10.0)
    plant = plant_at((0.0, 0.0, 3.0), (tilt, 0.0, 0.0))
    deck = solids_of(box("deck", (0.0, 0.0, 3.9), (10.0, 10.0, 0.6)))
    AirAmongSolids(deck, plant, MEAN_W).follow()
    hubs_W = (
        plant.p_W
        + plant.shapes_B[4 : 4 + ROTORS]
        @ np.array([[1, 0, 0], [0, np.cos(tilt), -np.sin(tilt)], [0, np.sin(tilt), np.cos(tilt)]]).T
    )
    np.testing.assert_allclose(plant.clearance_m[:, 1], (3.6 - hubs_W[:, 2]) / np.cos(tilt), atol=1e-9)
    assert np.isinf(plant.clearance_m[:, 0]).all() and np.isinf(plant.clearance_m[:, 2]).all()


def test_beside_a_wall_the_side_points_to_it():
    plant = plant_at((0.0, 0.0, 3.0))
    wall = solids_of(box("wall", (1.5, 0.0, 3.0), (1.0, 20.0, 20.0)))
    AirAmongSolids(wall, plant, MEAN_W).follow()
    np.testing.assert_allclose(plant.clearance_m[:, 2], 1.0 - plant.shapes_B[4 : 4 + ROTORS, 0], atol=1e-9)
    np.testing.assert_allclose(plant.side_W, np.tile([1.0, 0.0, 0.0], (ROTORS, 1)), atol=1e-12)
    assert np.isinf(plant.clearance_m[:, :2]).all()


def test_an_aircraft_that_leaves_a_solid_leaves_its_air():
    plant = plant_at((0.0, 0.0, 3.0))
    air = AirAmongSolids(solids_of(box("deck", (0.0, 0.0, 3.9), (4.0, 4.0, 0.6))), plant, MEAN_W)
    air.follow()
    assert np.isfinite(plant.clearance_m).any()
    plant.p_W[:] = (0.0, 0.0, 3.3 - REACH_RADII)
    plant.step([0.0] * ROTORS, round(PERIOD_S / 1e-3))
    air.follow()
    assert np.isinf(plant.clearance_m).all()


@pytest.mark.parametrize("place", [(1.6, 0.0, 3.0), (0.0, 2.0, 3.0), (4.0, 0.5, 3.0)])
def test_the_wind_is_that_of_its_model_at_the_aircrafts_place(place):
    plant = plant_at(place)
    air = AirAmongSolids(solids_of(box("block", (0.0, 0.0, 3.0), (2.0, 2.0, 8.0))), plant, MEAN_W)
    air.follow()
    gust = (6.0, -1.0, 0.3)
    np.testing.assert_allclose(air.wind(gust), wind_around(gust, MEAN_W, place, air.bluffs), atol=1e-9)

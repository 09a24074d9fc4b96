"""The wind around solids is continuous, bounded, and never blows through a face."""

import math

import numpy as np
import pytest

from companion.core.frames import quat_from_rpy, rotation_matrix
from sitl.aerodynamics import DEFICIT_MAX, Bluff, WindAround

WIND_W = np.array([8.0, 0.0, 0.0])
PIER = Bluff(np.array([0.0, 0.0, 10.0]), np.eye(3), np.array([1.5, 1.5, 10.0]), round=True)
BOX = Bluff(np.array([2.0, -1.0, 4.0]), rotation_matrix(quat_from_rpy(0.1, 0.2, 0.5)), np.array([1.0, 3.0, 2.0]))
DECK = Bluff(np.array([0.0, 0.0, 12.0]), np.eye(3), np.array([6.0, 30.0, 0.5]))
SOLIDS = pytest.mark.parametrize("solid", [PIER, BOX, DECK], ids=["pier", "box", "deck"])


def wind_around(wind_W, mean_W, place_W, solids):
    return WindAround(solids).at(wind_W, mean_W, place_W)


def distance_m(solid, place_W):
    return WindAround([solid]).nearest(place_W)[0][0]


def wake_deficit(solid, along_W, place_W):
    return WindAround([solid]).wakes(along_W, place_W)[0]


def winds(seed, count):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, 3)) * 5.0


def on_the_surface(solid, rng):
    """A point of the surface away from its edges, and its outward normal."""
    axis, sign = int(rng.integers(3)), float(rng.choice([-1, 1]))
    local = rng.uniform(-0.95, 0.95, 3) * solid.half_m
    normal = np.zeros(3)
    if solid.round and axis < 2:
        angle = rng.uniform(-math.pi, math.pi)
        normal[:2] = math.cos(angle), math.sin(angle)
        local[:2] = solid.half_m[0] * normal[:2]
    else:
        local[:2] *= 0.7 if solid.round else 1.0
        normal[axis], local[axis] = sign, sign * solid.half_m[axis]
    return solid.centre_W + solid.R_WS @ local, solid.R_WS @ normal


@SOLIDS
def test_no_air_flows_through_a_face(solid):
    rng = np.random.default_rng(1)
    for wind_W in winds(2, 200):
        place_W, normal_W = on_the_surface(solid, rng)
        u = wind_around(wind_W, wind_W, place_W + 1e-9 * normal_W, [solid])
        assert abs(u @ normal_W) < 1e-6 * np.linalg.norm(wind_W)


def test_no_air_flows_through_the_nearest_of_several_faces():
    rng = np.random.default_rng(3)
    for wind_W in winds(4, 100):
        place_W, normal_W = on_the_surface(PIER, rng)
        if distance_m(BOX, place_W) > 0 and distance_m(DECK, place_W) > 0:
            u = wind_around(wind_W, wind_W, place_W + 1e-9 * normal_W, [PIER, BOX, DECK])
            assert abs(u @ normal_W) < 1e-6 * np.linalg.norm(wind_W)


@pytest.mark.parametrize("height_m", [1.0, 0.3, 0.1])
def test_a_thin_floor_leaves_the_flow_around_a_pier_as_it_is(height_m):
    pier = Bluff(np.array([0.0, 0.0, 5.0]), np.eye(3), np.array([1.0, 1.0, 5.0]), round=True)
    floor = Bluff(np.array([0.0, 0.0, 0.01]), np.eye(3), np.array([20.0, 20.0, 0.005]))
    place_W = [-2.5, 0.0, height_m]
    alone = wind_around(WIND_W, WIND_W, place_W, [pier])
    assert alone[0] == pytest.approx(8.0 * (1 - 1 / 2.5**2))
    np.testing.assert_allclose(wind_around(WIND_W, WIND_W, place_W, [pier, floor]), alone, rtol=1e-3)


@SOLIDS
def test_the_wind_is_bounded_and_continuous(solid):
    # Between neighbours 1 mm apart, at least 5 cm from the surface: an edge is a singular point of any flow.
    rng = np.random.default_rng(5)
    for wind_W in winds(6, 300):
        place_W = solid.centre_W + rng.uniform(-3, 3, 3) * solid.half_m.clip(2.0, 8.0)
        speed = np.linalg.norm(wind_W)
        u = wind_around(wind_W, wind_W, place_W, [solid])
        assert np.linalg.norm(u) <= 2.0 * speed + 1e-9
        if distance_m(solid, place_W) < 0.05:
            continue
        step = rng.normal(size=3)
        beyond = wind_around(wind_W, wind_W, place_W + 1e-3 * step / np.linalg.norm(step), [solid])
        assert np.linalg.norm(beyond - u) < 0.05 * speed


def test_every_step_of_a_walk_around_a_box_changes_the_wind_little():
    angles = np.linspace(0, 2 * math.pi, 1000)
    path = BOX.centre_W + 4.5 * np.column_stack([np.cos(angles), np.sin(angles), 0.4 * np.sin(3 * angles)])
    u = np.array([wind_around(WIND_W, WIND_W, place_W, [BOX, PIER, DECK]) for place_W in path])
    assert np.abs(np.diff(u, axis=0)).max() < 0.4


def test_beside_a_long_cylinder_it_is_the_potential_flow():
    a = PIER.half_m[0]
    for r, angle in ((1.6, 0.3), (2.0, 1.6), (4.0, 2.5), (9.0, -1.0)):
        place = r * np.array([math.cos(angle), math.sin(angle), 0.0])
        u = WindAround([PIER]).beside(WIND_W / 8.0, place + PIER.centre_W)[0] @ WIND_W
        radial = WIND_W[0] * (1 - (a / r) ** 2) * math.cos(angle)
        around = -WIND_W[0] * (1 + (a / r) ** 2) * math.sin(angle)
        expected = radial * place / r + around * np.array([-math.sin(angle), math.cos(angle), 0.0])
        np.testing.assert_allclose(u, expected, atol=1e-12)


def test_air_is_still_in_front_and_twice_as_fast_beside_a_pier():
    front = wind_around(WIND_W, WIND_W, [-1.5001, 0, 10], [PIER])
    beside_W = wind_around(WIND_W, WIND_W, [0, 1.5001, 10], [PIER])
    assert np.linalg.norm(front) < 0.01
    assert beside_W[0] == pytest.approx(16.0, rel=1e-3)


def test_under_a_deck_the_wind_is_hardly_faster_and_level():
    u = wind_around([0, 8, 0.5], [0, 8, 0], [0, -5, 11.4], [DECK])
    assert 8.0 <= u[1] < 8.5 and abs(u[2]) < 0.2


def test_a_wake_is_slow_and_recovers():
    ratio = [wind_around(WIND_W, WIND_W, [x, 0, 10], [PIER])[0] / 8.0 for x in (1.6, 3, 10, 30, 100, 400)]
    assert ratio[0] < 0.02 and all(np.diff(ratio) > 0)
    assert ratio[3] == pytest.approx(1 - 0.98 * math.sqrt(3.0 / 30), abs=0.01)  # Schlichting's far wake
    assert ratio[-1] > 0.9


def test_a_wake_is_widest_far_away_and_ends_above_the_solid():
    def half_width(x):
        across = np.linspace(0, 20, 501)
        deficit = [wake_deficit(PIER, np.array([1.0, 0, 0]), np.array([x, y, 10.0])) for y in across]
        return across[np.argmax(np.array(deficit) < 0.5 * deficit[0])]

    assert half_width(5) == pytest.approx(math.sqrt(1.5**2 + 3.0 * 5 / 16), abs=0.05)
    assert half_width(100) > 2 * half_width(5)
    assert wake_deficit(PIER, np.array([1.0, 0, 0]), np.array([5.0, 0, 60.0])) < 1e-6
    assert wake_deficit(PIER, np.array([1.0, 0, 0]), np.array([-0.1, 0, 10.0])) == 0.0
    assert wake_deficit(PIER, np.array([1.0, 0, 0]), np.array([2.0, 0, 10.0])) == DEFICIT_MAX


def test_far_away_and_in_still_air_nothing_changes():
    far = wind_around(WIND_W, WIND_W, [-500, 400, 10], [PIER, BOX, DECK])
    np.testing.assert_allclose(far, WIND_W, atol=0.05)
    np.testing.assert_array_equal(wind_around([0, 0, 0], [0, 0, 0], [2, 0, 10], [PIER]), [0, 0, 0])
    np.testing.assert_array_equal(wind_around(WIND_W, WIND_W, [5, 5, 5], []), WIND_W)


@SOLIDS
def test_turning_the_world_turns_the_wind(solid):
    R = rotation_matrix(quat_from_rpy(0.0, 0.0, 1.3))
    turned = Bluff(R @ solid.centre_W, R @ solid.R_WS, solid.half_m, solid.round)
    for wind_W, offset in zip(winds(7, 20), winds(8, 20), strict=True):
        place_W = solid.centre_W + 2.0 * offset
        u = wind_around(wind_W, wind_W, place_W, [solid])
        np.testing.assert_allclose(wind_around(R @ wind_W, R @ wind_W, R @ place_W, [turned]), R @ u, atol=1e-9)


def test_within_a_solid_the_numbers_stay_finite():
    for solid in (PIER, BOX, DECK):
        for place_W in (solid.centre_W, solid.centre_W + 0.3 * solid.half_m):
            u = wind_around(WIND_W, WIND_W, place_W, [solid])
            assert np.isfinite(u).all() and np.linalg.norm(u) <= 16.0
    assert np.isfinite(wind_around([0, 0, 3], [0, 0, 3], [0, 0, 30], [PIER])).all()  # straight up

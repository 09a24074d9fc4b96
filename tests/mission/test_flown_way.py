"""The way home is the way that was flown: around what the pilot flew around, without detours, within the limits."""

import math

import msgspec
import numpy as np
import pytest
from mission_world import ON_US, World, switch_plan

from companion.core.enums import FcuMode
from companion.core.messages import FcuStatus
from companion.mission.flown_way import DEVIATION_M, LOOP_M, POINTS_MAX, FlownWay, simplified
from companion.mission.way_home import way_home_s


def flown(points, step_m=0.05):
    """A way along straight legs, sampled as an estimator does."""
    way = FlownWay()
    for a, b in zip(points, points[1:], strict=False):
        for share in np.linspace(0.0, 1.0, max(2, int(math.dist(a, b) / step_m))):
            way.take(tuple(np.array(a) + share * (np.array(b) - a)))
    return way


def farthest_m(points, legs):
    """The largest distance of any point from a polyline."""
    legs = np.array(legs)

    def away_m(p):
        d = legs[1:] - legs[:-1]
        share = np.clip(((p - legs[:-1]) * d).sum(1) / np.maximum((d * d).sum(1), 1e-12), 0.0, 1.0)
        return np.linalg.norm(p - legs[:-1] - share[:, None] * d, axis=1).min()

    return max(away_m(np.array(p)) for p in points)


def test_a_way_around_a_corner_becomes_its_legs():
    corners = [(0.0, 0.0, 0.0), (0.0, 0.0, 4.0), (8.0, 0.0, 4.0), (8.0, -6.0, 3.0)]
    way = flown(corners).simplified()
    assert 4 <= len(way) <= 7 and math.dist(way[0], corners[0]) < 0.01
    assert farthest_m(corners, way) < 0.75 and farthest_m(way, corners) < 0.75


def test_a_detour_is_not_flown_back():
    around = [(4.0 + 3.0 * math.sin(a), 3.0 - 3.0 * math.cos(a), 4.0) for a in np.linspace(0.0, 2 * math.pi, 60)]
    way = flown([(0.0, 0.0, 4.0), *around, (10.0, 0.0, 4.0)]).simplified()
    assert farthest_m(way, [(0.0, 0.0, 4.0), (10.0, 0.0, 4.0)]) < LOOP_M


def test_hours_in_the_air_stay_bounded_and_near_the_way():
    rng = np.random.default_rng(3)
    way, turns = FlownWay(), np.linspace(0.0, 400.0, 40_000)
    points = [(0.4 * t * math.cos(t), 0.4 * t * math.sin(t), 5.0) for t in turns]
    for point in points[:12_000]:
        way.take(tuple(np.array(point) + 0.02 * rng.normal(size=3)))
    assert len(way._points) <= POINTS_MAX
    assert farthest_m(points[:12_000:50], way.simplified()) < 2 * DEVIATION_M + LOOP_M


def test_the_way_of_a_pilot_who_flew_low_over_the_edge_of_a_deck_is_kept():
    """Up 0.9 m, out over the edge, down beside it and in under it: the straight way home leads through the deck."""
    corners = [(0.0, 0.0, 0.0), (0.0, 0.0, 0.9), (7.0, 0.0, 0.9), (7.0, 0.0, -8.0), (2.0, 0.0, -8.0)]
    way = flown(corners).after_takeoff()
    assert farthest_m([(7.0, 0.0, 1.0), (7.0, 0.0, -8.0), (2.0, 0.0, -8.0)], way) < 0.6
    assert min(p[0] for p in way[:-1]) > 1.0 and math.hypot(*way[0][:2]) >= 1.0, "without the take-off itself"
    assert all(p[2] >= 1.0 or p[0] > 6.0 for p in way[:-1]), "not along the ground"


def test_what_is_low_and_beside_the_take_off_point_belongs_to_the_take_off():
    way = flown([(0.0, 0.0, 0.0), (0.5, 0.0, 0.5), (0.0, 0.6, 0.8), (0.0, 0.0, 4.0), (8.0, 0.0, 4.0), (8.0, 0.0, 0.6)])
    assert all(p[2] > 1.0 for p in way.after_takeoff()[:-1]) and way.after_takeoff()[-1][2] < 1.0


@pytest.mark.parametrize("low_m", [0.4, 0.7])
def test_what_is_flown_low_before_a_climb_is_no_way_home(low_m):
    """A pilot moves aside from the crew before he climbs: the return would come down to them on its way."""
    way = flown([(0.0, 0.0, 0.0), (0.0, 0.0, low_m), (6.0, 0.0, low_m), (6.0, 0.0, 12.0), (40.0, 0.0, 12.0)])
    assert all(p[2] > 1.0 for p in way.after_takeoff())


@pytest.mark.parametrize("count", [0, 1, 2])
def test_short_ways_are_as_they_are(count):
    points = np.arange(3.0 * count).reshape(count, 3)
    assert np.array_equal(simplified(points, 0.5), points)


def carried(world, *places):
    """The pilot flies there, at 2 m/s."""
    for place in places:
        goal = np.array(world.home) + place
        while (left_m := math.dist(world.p, goal)) > 0.0:
            world.p = tuple(np.array(world.p) + min(1.0, 0.1 / left_m) * (goal - world.p))
            world.step()
    return world


def handed_over(*places, plan=None):
    world = World(plan or switch_plan()).run(2.0)
    world.pilot_takes_off()
    carried(world, *places).run(1.0)
    world.channel_us = ON_US
    return world.run(0.5).run_until("ENTER_OFFBOARD")


def path_home(world):
    """Where the aircraft is from the beginning of its return on, relative to the take-off point."""
    world.run_until("RETURN")
    found = []
    while world.phase == "RETURN":
        world.step()
        found.append(tuple(np.subtract(world.p, world.home)))
    return np.array(found)


def test_a_pilots_way_around_a_pier_is_the_way_home():
    world = handed_over((0.0, -5.0, 3.0), (9.0, -5.0, 3.0))
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, rc_ok=world.phase != "SEARCH" and m.rc_ok)
    path = path_home(world)
    assert world.status.cause.startswith("RC lost")
    pier = np.array((4.0, -2.0))  # the straight way home leads past it at 0.4 m
    assert np.linalg.norm(path[:, :2] - pier, axis=1).min() > 2.0
    assert np.linalg.norm(path[-1] - (0.0, 0.0, 4.0)) < 0.1


def test_points_outside_the_limits_are_left_out_and_reported():
    world = handed_over((0.0, -9.0, 3.0), (8.0, -5.0, 3.0))
    assert world.node._mission.inputs.way_out
    assert all(p[1] >= -8.0 for p in world.node._mission.inputs.way_out)
    assert any("of the pilot's way are outside the limits" in c.text for c in world.commands)


def test_the_battery_for_the_way_home_is_that_for_the_flown_way():
    mission = handed_over((0.0, -5.0, 3.0), (9.0, -5.0, 3.0)).node._mission
    around_s = way_home_s(mission)
    mission.inputs.way_out = []
    assert around_s > 1.3 * way_home_s(mission)


def test_a_landing_elsewhere_begins_the_way_there():
    world = World(switch_plan()).run(2.0)
    world.pilot_takes_off()
    carried(world, (6.0, 0.0, 3.0), (6.0, 0.0, 0.0))
    world.mode, world.landed, world.armed = FcuMode.POSCTL, True, False
    world.run(1.0)
    assert world.node._mission.inputs.from_home() == pytest.approx((0.0, 0.0, 0.0), abs=0.01)
    assert not world.node._mission.inputs._way.simplified()

"""An aircraft that took off from a deck and works under it: below its take-off point nothing may take it for the ground."""

import math

import msgspec
import pytest
from mission_world import ON_US, World, bridge_plan, switch_plan

from companion.core.messages import FcuStatus, State
from companion.mission.plan import Waypoint
from companion.mission.range_finder import shortfall
from companion.mission.way_home import way_home_s

UNDER_M = -8.0  # the place of the work, over the take-off point


def deck_plan(plan=None, **changes):
    plan = plan or bridge_plan()
    limits = msgspec.structs.replace(
        plan.limits, fence_min_m=(-8.0, -8.0, -20.0), fence_max_m=(11.0, 6.0, 8.0), height_min_m=-15.0
    )
    waypoints = [Waypoint(p_m=(7.0, 0.0, z), yaw_rad=0.0) for z in (4.0, UNDER_M)]
    search = msgspec.structs.replace(plan.search, waypoints=waypoints, timeout_s=2.0)
    return msgspec.structs.replace(
        plan, limits=limits, search=search, hold=msgspec.structs.replace(plan.hold, duration_s=60.0), **changes
    )


def holding_under_the_deck():
    world = World(deck_plan(), bundle_p_home=(12.0, 0.0, UNDER_M))
    world.run_until("HOLD", 200.0)
    world.run(2.0)
    assert world.p[2] - world.home[2] == pytest.approx(UNDER_M, abs=0.1)
    return world


def without_gnss(world, **changes):
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, gnss_ok=False, position_ok=False, **changes)


@pytest.mark.parametrize("fault", ["both lost", "battery critical"])
def test_a_landing_without_satellites_goes_down_from_there_and_not_up_to_the_take_off_point(fault):
    world = holding_under_the_deck()
    if fault == "both lost":
        without_gnss(world)
        world.bundle_in_view = False
    else:
        without_gnss(world, battery_voltage_v=12.9)
    world.run_until("LAND", 60.0)
    heights = []
    for _ in range(200):
        world.step()
        heights.append(world.p[2] - world.home[2])
    assert max(heights) < UNDER_M + 0.1 and heights[-1] < UNDER_M - 0.5


def test_the_pilots_way_beside_the_deck_and_in_under_it_is_the_way_home():
    plan = deck_plan(switch_plan())
    world = World(plan, bundle_p_home=(12.0, 0.0, UNDER_M))
    world.run(3.0)
    world.armed, world.landed, world.mode = True, False, "POSCTL"
    world.run(0.1)
    for point in ((0.0, 0.0, 4.0), (0.0, -6.0, 4.0), (0.0, -6.0, UNDER_M), (7.0, -6.0, UNDER_M), (7.0, 0.0, UNDER_M)):
        start, goal = world.p, tuple(a + b for a, b in zip(point, world.home, strict=True))
        steps = max(1, int(math.dist(start, goal) / 0.05))
        for i in range(1, steps + 1):
            world.p = tuple(a + (b - a) * i / steps for a, b in zip(start, goal, strict=True))
            world.step()
    world.yaw, world.channel_us = 0.0, ON_US
    world.run_until("SEARCH", 20.0)
    way = world.node._mission.inputs.way_out
    for corner in ((0.0, -6.0, 4.0), (0.0, -6.0, UNDER_M), (7.0, -6.0, UNDER_M)):
        assert min(math.dist(corner, p) for p in way) < 1.2, corner
    assert all(p[2] > 1.0 for p in way[:1]), "what belongs to the take-off is left out"


def test_the_range_finder_and_the_wind_count_there_too():
    world = holding_under_the_deck()
    state = world.node._mission.inputs.state
    near = shortfall(1.2, state, world.home)
    assert near is not None and near > 1.0
    assert world.node._mission.inputs.strong_wind is not None
    low = msgspec.structs.replace(
        state, p_W=(*state.p_W[:2], world.home[2] + 0.6), p_WM=(*state.p_WM[:2], world.home[2])
    )
    assert shortfall(1.2, low, world.home) is None, "above the ground the beam may hit it"


def test_something_ahead_makes_the_aircraft_back_away_from_it_whatever_structure_was_seen_before():
    """A bundle was glimpsed on the way; then the nose points elsewhere."""
    plan = bridge_plan()
    waypoints = [Waypoint(p_m=(7.0, 0.0, 4.0), yaw_rad=0.0), Waypoint(p_m=(0.0, 0.0, 4.0), yaw_rad=math.pi)]
    world = World(
        msgspec.structs.replace(plan, search=msgspec.structs.replace(plan.search, waypoints=waypoints, timeout_s=2.0))
    )
    world.bundle_in_view = False
    world.run_until("SEARCH", 60.0)
    glimpsed = False
    while world.node.waypoint == 0:
        world.bundle_in_view = not glimpsed and world.p[0] - world.home[0] > 6.5
        glimpsed |= world.bundle_in_view
        world.step()
    world.bundle_in_view = False
    while world.p[0] - world.home[0] > 0.02 or abs(abs(world.yaw) - math.pi) > 0.02:
        world.step()
    assert world.node._mission.inputs.away_W == pytest.approx((-1.0, 0.0, 0.0))
    wall_x = world.p[0] - 0.9
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, range_m=max(0.05, world.p[0] - wall_x))
    world.run_until("RETREAT", 20.0)
    distances = []
    for _ in range(200):
        world.step()
        distances.append(world.p[0] - wall_x)
    assert min(distances) > 0.85 and max(distances) > 2.5


def test_the_battery_for_the_way_home_is_that_for_all_waypoints_that_were_flown():
    plan = bridge_plan()
    limits = msgspec.structs.replace(
        plan.limits, fence_min_m=(-5.0, -45.0, -1.0), fence_max_m=(60.0, 45.0, 8.0), distance_m=80.0
    )
    lanes = [
        Waypoint(p_m=(x, y, 4.0), yaw_rad=0.0) for x, y in ((15.0, -30.0), (15.0, 30.0), (23.0, 30.0), (23.0, -30.0))
    ]
    search = msgspec.structs.replace(plan.search, speed_m_s=2.0, acceleration_m_s2=1.0, timeout_s=1.0, waypoints=lanes)
    back = msgspec.structs.replace(plan.return_, speed_m_s=2.0, acceleration_m_s2=1.0)
    world = World(
        msgspec.structs.replace(plan, limits=limits, search=search, return_=back), bundle_p_home=(30.0, -30.0, 4.0)
    )
    world.run_until("APPROACH", 600.0)
    expected_s = way_home_s(world.node._mission)
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, rc_ok=False)
    world.run_until("RETURN", 20.0)
    left_s, began_s = way_home_s(world.node._mission), world.now_s
    world.run_until("LAND", 900.0)
    assert left_s == pytest.approx(world.now_s - began_s, rel=0.1)
    assert expected_s == pytest.approx(left_s, rel=0.15)


def test_a_state_that_is_not_known_has_no_way_home():
    world = World(bridge_plan())
    world.edit[State] = lambda m: None
    world.run(0.5)
    assert way_home_s(world.node._mission) is None

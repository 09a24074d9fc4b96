"""Path, limits, durations and batteries of a plan."""

import math

import numpy as np
import pytest
from planning_world import CAMERA, DECK, PIER, WALL, around, battery, plan_of, planning

from companion.core.config import ConfigError, parse
from companion.core.trajectories import duration_s, sample
from companion.planning.planner import TAKEOFF_M_S, Approach, Leg, make_plan, move, way_home, way_out
from companion.planning.sections import Battery
from companion.planning.stations import HELD_M

HOLD = {"kind": "hold", "name": "wait", "frame": "world", "p_m": [5.0, 2.0, 6.0], "yaw_rad": 0.5, "duration_s": 20.0}
SMALL = WALL | {"size_m": [6.0, 4.0]}
LEG = Leg(1.0, 0.5, 0.4)


def rest_after_s(way, step_s=0.01):
    """When a sampled move has come to rest."""
    times_s = np.arange(0.0, 200.0, step_s)
    s = sample(way, 0.0, times_s)
    moving = (np.linalg.norm(s.v_W, axis=1) > 1e-9) | (np.abs(s.yaw_rate) > 1e-9)
    return times_s[moving][-1] + step_s if moving.any() else 0.0


def test_the_duration_is_that_of_the_sampled_moves_and_the_stops():
    _, plan = plan_of([HOLD, SMALL])
    world = around()
    ways = way_out(plan.stations[0], world, LEG)
    ways += [
        move(a.p_W, a.yaw_rad, b.p_W, b.yaw_rad, LEG) for a, b in zip(plan.stations, plan.stations[1:], strict=False)
    ]
    ways += way_home(plan.stations[-1], world)
    flown_s = sum(rest_after_s(way) for way in ways)
    stops_s = 20.0 + plan.photographs * (2.0 + CAMERA["exposure_s"])
    vertical_s = 4.0 / TAKEOFF_M_S + 0.4 / 0.7
    assert len(plan.flights) == 1
    assert plan.duration_s == pytest.approx(flown_s + stops_s + vertical_s, abs=0.3)
    # The sampled moves keep the limits of the inspection.
    for way in ways:
        s = sample(way, 0.0, np.linspace(0.0, duration_s(way), 400))
        assert np.linalg.norm(s.v_W, axis=1).max() <= 1.0 + 1e-6
        assert np.linalg.norm(s.a_W, axis=1).max() <= 0.5 + 1e-6
        assert np.abs(s.yaw_rate).max() <= 0.4 + 1e-6


def test_a_slow_camera_makes_the_stops_longer():
    _, fast = plan_of([SMALL])
    _, slow = plan_of([SMALL], camera_changes={"trigger_period_s": 30.0})
    assert slow.duration_s >= 30.0 * (slow.photographs - 1) > fast.duration_s


def test_the_path_begins_and_ends_on_the_ground_at_the_take_off_point():
    _, plan = plan_of([SMALL])
    assert plan.path[0] == plan.path[-1] == (0.0, 0.0, 0.0)
    assert plan.path[1] == (0.0, 0.0, 4.0) and plan.path[-3] == (0.0, 0.0, 4.0)
    assert [s.p_W for s in plan.stations] == plan.path[2 : 2 + len(plan.stations)]
    length_m = sum(math.dist(a, b) for a, b in zip(plan.path, plan.path[1:], strict=False))
    assert plan.path_m == pytest.approx(length_m)


def test_the_search_is_part_of_the_way_out():
    world, _ = plan_of([SMALL])
    without = make_plan("test", "mission.toml", world, battery(), around())
    searched = around(search=[((3.0, -3.0, 5.0), 0.2)], search_s=7.0)
    plan = make_plan("test", "mission.toml", world, battery(), searched)
    assert plan.path[2] == plan.path[-4] == (3.0, -3.0, 5.0)
    assert plan.duration_s > without.duration_s + 7.0


APPROACH = Approach((3.0, -3.0, 6.0), 0.2, Leg(0.5, 0.25, 0.2), 61.0)


def test_the_stand_off_point_and_the_hold_there_are_part_of_the_flight():
    world, without = plan_of([SMALL])
    plan = make_plan("test", "mission.toml", world, battery(), around(approach=APPROACH))
    assert plan.path[2] == APPROACH.p_W and plan.ways[0].out[0].speed_m_s == 0.5
    assert plan.duration_s > without.duration_s + 61.0
    ways = [*plan.ways[0].out, *plan.ways[0].home]
    straight = [*without.ways[0].out, *without.ways[0].home]
    longer_s = sum(map(duration_s, ways)) - sum(map(duration_s, straight))
    assert plan.duration_s == pytest.approx(without.duration_s + 61.0 + longer_s)


def test_the_way_from_the_stand_off_point_to_the_first_station_is_checked():
    """The straight way from the search is free; that from the stand-off point leads past the column."""
    column = PIER | {
        "name": "column",
        "base_m": [9.7, 4.0, 1.0],
        "radius_m": 0.5,
        "height_m": 6.0,
        "angle_start_rad": 2.6,
        "angle_rad": 1.0,
    }
    column |= {"overlap_along": 0.0, "overlap_between": 0.0, "standoff_m": 3.0}
    view = {
        "kind": "viewpoints",
        "name": "view",
        "frame": "world",
        "settle_s": 1.0,
        "points": [{"p_m": [9.0, 8.0, 4.0], "yaw_rad": 0.0}],
    }
    world = planning([view, column])
    searched = around(search=[((6.0, 0.0, 4.0), 0.0)])
    make_plan("test", "mission.toml", world, battery(), searched)
    near = searched._replace(approach=APPROACH._replace(p_W=(9.0, 0.0, 4.0)))
    with pytest.raises(
        ConfigError,
        match=r"'view': the way from take-off to its station at \[9.00, 8.00, 4.00\] passes 'column' at 0.2",
    ):
        make_plan("test", "mission.toml", world, battery(), near)
    behind = searched._replace(approach=APPROACH._replace(p_W=(13.0, 4.0, 4.0)))
    with pytest.raises(ConfigError, match=r"to its stand-off point at \[13.00, 4.00, 4.00\] passes 'column'"):
        make_plan(
            "test",
            "mission.toml",
            planning([view | {"points": [{"p_m": [13.0, 9.0, 4.0], "yaw_rad": 0.0}]}, column]),
            battery(),
            behind,
        )


def test_the_ways_over_every_waypoint_of_the_search_are_checked():
    """The bundle may be found from any of them."""
    pier = PIER | {"base_m": [12.0, 0.0, 0.0], "height_m": 8.0, "angle_start_rad": 2.9, "angle_rad": 0.5}
    world = planning([pier])
    one, beside = ((4.0, 0.0, 4.0), 0.0), ((4.0, 6.0, 4.0), 0.0)
    whole = make_plan("test", "mission.toml", world, battery(), around(search=[one, beside]))
    assert whole.path[2] == one[0] and beside[0] not in whole.path, "the figures are those of the first one"
    with pytest.raises(
        ConfigError, match=r"'pier': the way from take-off to its station at .* passes 'pier' at 0.\d\d m"
    ):
        make_plan("test", "mission.toml", world, battery(), around(search=[one, beside, ((20.0, 3.0, 4.0), 0.0)]))
    with pytest.raises(ConfigError, match=r"the way from take-off to its search.waypoints\[1\] at .* passes 'pier'"):
        make_plan("test", "mission.toml", world, battery(), around(search=[one, ((20.0, 0.0, 4.0), 0.0)]))


def test_items_are_flown_in_the_order_of_the_file():
    _, plan = plan_of([HOLD, SMALL, PIER | {"name": "second", "base_m": [0.0, 30.0, 2.0]}])
    assert [s.item for s in plan.stations] == sorted(s.item for s in plan.stations)
    assert len({s.item for s in plan.stations}) == 3 and [f.name for f in plan.figures] == ["wall", "second"]


# --- limits ---------------------------------------------------------------------------------------------------------


def fence(x_max):
    return lambda p: "outside the fence" if p[0] > x_max else ""


def test_a_surface_behind_the_fence_is_refused_with_file_item_and_limit():
    message = r"^mission.toml: inspection.item\[1\] 'wall': the station at \[6.80, .*\] is outside the fence$"
    with pytest.raises(ConfigError, match=message):
        plan_of([HOLD, SMALL], refusal=fence(6.0))
    plan_of([HOLD, SMALL], refusal=fence(7.0))


def test_every_point_between_two_stations_is_checked():
    def hole(p):
        return "over the road" if math.dist(p, (2.5, 1.0, 5.0)) < 0.2 else ""

    with pytest.raises(
        ConfigError, match=r"'wait': the way from take-off to its station at .* leads over .*: over the road"
    ):
        plan_of([HOLD], refusal=hole)
    far = HOLD | {"name": "far", "p_m": [5.0, 2.0, 3.0]}
    near_line = HOLD | {"name": "start", "p_m": [-10.0, 2.0, 3.0]}
    with pytest.raises(ConfigError, match=r"item\[1\] 'far': the way to its station at .* leads over"):
        plan_of([near_line, far], refusal=lambda p: "over the road" if abs(p[0] + 3) < 0.06 and p[1] == 2.0 else "")


def test_a_path_too_near_to_any_surface_is_refused():
    pier = PIER | {"base_m": [12.0, 0.0, 0.0], "height_m": 5.0}
    behind = HOLD | {"name": "behind", "p_m": [20.0, 0.0, 2.5]}
    message = r"'behind': .* station at .* passes 'pier' at 0.00 m: safety.standoff_min_m of the vehicle file is 1 m"
    with pytest.raises(ConfigError, match=message):
        plan_of([pier, behind])
    above = HOLD | {"name": "above", "p_m": [8.0, 0.0, 11.0]}
    plan_of(
        [
            pier | {"angle_start_rad": 2.0, "angle_rad": 2.0},
            above,
            behind | {"p_m": [20.0, 0.0, 11.0]},
            above | {"name": "home"},
        ]
    )


def test_stations_keep_a_reserve_beyond_the_limit_that_ends_a_flight():
    """A station at the limit is held a little nearer: its monitor would end the flight after 0.2 s."""
    centre = {"p_BC": [0.0, 0.0, 0.0]}
    small = SMALL | {"size_m": [1.0, 1.0]}
    message = (
        r"'wall': .* passes 'wall' at 1.00 m: safety.standoff_min_m of the vehicle file is 1 m, and 0.15 m more are needed "
        r"\(how exactly a station is held\): 0.15 m are missing"
    )
    with pytest.raises(ConfigError, match=message):
        plan_of([small | {"standoff_m": 1.0}], camera_changes=centre)
    plan_of([small | {"standoff_m": 1.0 + HELD_M}], camera_changes=centre)


def test_a_round_begins_on_the_near_side_and_no_flight_ends_behind_the_pier():
    pier = PIER | {"base_m": [12.0, 0.0, 0.0], "height_m": 8.0}
    for start in (0.0, 2.0):
        _, plan = plan_of([pier | {"angle_start_rad": start}], {"capacity_ah": 1.6})
        assert len(plan.flights) > 1
        ends = [plan.stations[i] for f in plan.flights for i in (f.first, f.last)]
        assert all(s.p_W[0] < 12.0 or abs(s.p_W[1]) > 2.0 for s in ends)
        assert {(s.photograph.row, s.photograph.column) for s in plan.stations} == {
            (s.photograph.row, s.photograph.column) for s in plan.items[0].orders[0]
        }


def test_a_flight_that_has_no_clear_way_home_is_refused():
    wall = WALL | {"centre_m": [12.0, 0.0, 4.0], "rpy_rad": [math.pi / 2, 0.0, math.pi / 2]}  # seen from the east
    around_it = [HOLD | {"name": f"corner {i}", "p_m": p} for i, p in enumerate([[8.0, 12.0, 5.0], [17.0, 12.0, 5.0]])]
    with pytest.raises(
        ConfigError,
        match=r"on the way home the way to the place above the take-off point at .* passes 'wall' at 0.\d\d m",
    ):
        plan_of([*around_it, wall])
    plan_of([*around_it, wall, *[h | {"name": f"{h['name']} again"} for h in around_it[::-1]]])


def test_a_name_that_stands_twice_is_refused():
    with pytest.raises(ConfigError, match="the name 'wall' is used twice"):
        plan_of([WALL, WALL])


# --- batteries ------------------------------------------------------------------------------------------------------


def test_the_power_of_a_hover_grows_with_the_mass_to_three_halves():
    pack = battery()
    assert pack.power_w(1.8) == pytest.approx(184.0)
    assert pack.power_w(4 * 1.8) == pytest.approx(8 * 172.0 + 12.0)
    assert pack.usable_j == pytest.approx(4 * 3.7 * 5.0 * 3600 * 0.8)
    _, plan = plan_of([SMALL])
    assert plan.battery_s == pytest.approx(pack.usable_j / pack.power_w(2.3))
    assert plan.flights[0].energy_share == pytest.approx(plan.duration_s * plan.power_w / pack.usable_j)


def test_a_plan_that_one_battery_cannot_end_is_refused_or_split_between_photographs():
    small = {"capacity_ah": 0.8}
    message = (
        r"^mission.toml: inspection: takes \d+ batteries \(.* min, one lasts .* min at .* W\); inspection.resumable"
    )
    with pytest.raises(ConfigError, match=message):
        plan_of([WALL], small, resumable=False)
    _, whole = plan_of([WALL])
    _, split = plan_of([WALL], small)
    assert len(whole.flights) == 1 < len(split.flights)
    # Every station is flown once, in the same order, and no flight is longer than a battery lasts.
    assert [s.p_W for s in split.stations] == [s.p_W for s in whole.stations]
    assert split.flights[0].first == 0 and split.flights[-1].last == len(split.stations) - 1
    for a, b in zip(split.flights, split.flights[1:], strict=False):
        assert b.first == a.last + 1
    assert all(0 < f.duration_s <= split.battery_s and f.energy_share <= 1.0 for f in split.flights)
    assert (
        split.duration_s > whole.duration_s and split.path_m > whole.path_m
    )  # each flight has a way out and a way home
    assert split.path.count((0.0, 0.0, 0.0)) == 2 * len(split.flights)
    # One more station on the first battery would have been too many.
    first = split.flights[0]
    _, shorter = plan_of([WALL], {"capacity_ah": 0.8 * (first.energy_share - 1e-3)})
    assert shorter.flights[0].last < first.last


def test_a_single_photograph_beyond_the_reach_of_a_battery_is_refused():
    far = WALL | {"centre_m": [400.0, 0.0, 8.0]}
    with pytest.raises(ConfigError, match=r"'wall': the flight to .* and back takes .* min, one battery lasts"):
        plan_of([far], {"capacity_ah": 1.0})


def test_a_battery_that_gives_nothing_is_refused():
    with pytest.raises(ConfigError, match="usable_share"):
        parse({**battery_tables(), "usable_share": 0.0}, Battery, "battery.toml")


def battery_tables():
    pack = battery()
    return {name: getattr(pack, name) for name in pack.__struct_fields__}


def test_an_underside_is_flown_below_it():
    _, plan = plan_of([DECK])
    assert all(s.p_W[2] < DECK["centre_m"][2] - 3 for s in plan.stations)
    assert all(s.pitch_rad == pytest.approx(math.pi / 2) for s in plan.stations)


def test_viewpoints_are_photographed_in_their_order_after_their_own_stop():
    points = [{"p_m": [3.0, 0.0, 5.0], "yaw_rad": 0.3, "pitch_rad": 0.4}, {"p_m": [4.0, 0.0, 5.0], "yaw_rad": -0.3}]
    item = {"kind": "viewpoints", "name": "bearings", "frame": "world", "settle_s": 5.0, "points": points}
    _, plan = plan_of([item])
    assert [s.p_W for s in plan.stations] == [(3.0, 0.0, 5.0), (4.0, 0.0, 5.0)]
    assert [s.stop_s for s in plan.stations] == pytest.approx([5.01, 5.01])
    looks = plan.stations[0].photograph.pose.R_WC[:, 2]
    expected = [math.cos(0.4) * math.cos(0.3), math.cos(0.4) * math.sin(0.3), math.sin(0.4)]
    assert looks == pytest.approx(expected)
    assert plan.figures == [] and plan.photographs == 2
    fixed = {"pitch_range_rad": [0.0, 0.0]}
    with pytest.raises(ConfigError, match=r"'bearings': points\[0\]: the camera must look 23° up"):
        make_plan("t", "mission.toml", planning([item], fixed), battery(), around())

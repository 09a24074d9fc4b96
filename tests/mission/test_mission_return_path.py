"""The way home of an inspection: over what this flight has flown, or over what is free of the surfaces of the plan."""

import math

import numpy as np
import pytest
from mission_world import FAR, HOME, OFF_US, ON_US, REPOSITORY, World, site_world, vehicle

from companion.core.enums import CaptureOutcome, FcuMode, OperatorAction
from companion.core.messages import WORLD, OperatorRequest
from companion.mission.inspection_files import load_inspection
from companion.mission.inspection_progress import Inspecting
from companion.mission.inspection_route import UPRIGHT, Pose
from companion.mission.plan import load_plan, site_of
from companion.mission.way_home import way_home_s

STANDOFF_MIN_M = 1.0  # of config/vehicles/f550.toml
HEAD = """
name = "round a pier"
start = "auto"
[takeoff]
height_m = 4.0
[return]
height_m = 4.0
speed_m_s = 3.0
acceleration_m_s2 = 3.0
[retreat]
distance_m = 2.0
speed_m_s = 0.5
acceleration_m_s2 = 0.3
[limits]
fence_min_m = [-30.0, -40.0, -1.0]
fence_max_m = [60.0, 40.0, 30.0]
height_m = 25.0
distance_m = 60.0
[inspection]
camera = "CONFIG/cameras/sony_rx1_gimbal.toml"
battery = "CONFIG/batteries/f550_4s_5ah.toml"
resumable = true
speed_m_s = 3.0
acceleration_m_s2 = 3.0
yaw_rate_rad_s = 1.5
settle_s = 0.2
camera_in_vehicle_mass = true
"""
RING = """
[[inspection.item]]
kind = "cylinder"
name = "pier"
frame = "world"
base_m = [14.0, 0.0, 1.0]
radius_m = 2.0
height_m = 6.0
angle_start_rad = 0.0
angle_rad = 6.2831853
gsd_mm_px = 1.0
overlap_along = 0.7
overlap_between = 0.6
margin_m = 0.1
standoff_m = 3.0
"""
PART = RING.replace("angle_start_rad = 0.0", "angle_start_rad = 2.8").replace("6.2831853", "0.6").replace("0.7", "0.0")
SWITCH = "[rc_switch]\nchannel = 7\noff_us = [900, 1300]\non_us = [1700, 2100]\n"


def hold(name, *p, duration_s=0.0):
    return (
        f'[[inspection.item]]\nkind = "hold"\nname = "{name}"\nframe = "world"\np_m = {list(map(float, p))}\n'
        f"yaw_rad = 0.0\nduration_s = {duration_s}\n"
    )


def viewpoints(name, *points):
    shown = ", ".join(f"{{ p_m = {list(map(float, p))}, yaw_rad = 3.14159 }}" for p in points)
    return f'[[inspection.item]]\nkind = "viewpoints"\nname = "{name}"\nframe = "world"\nsettle_s = 0.2\npoints = [{shown}]\n'


def plan_of(folder, *items, head=HEAD):
    file = folder / "m.toml"
    file.write_text((head + "".join(items)).replace("CONFIG", str(REPOSITORY / "config")), encoding="utf-8")
    return load_plan(file)


def switch_plan_of(folder, *items):
    """Started by the pilot's switch."""
    return plan_of(folder, SWITCH, *items, head=HEAD.replace('"auto"', '"rc_switch"'))


def loaded(plan, photographed=()):
    return load_inspection(plan, site_of(plan), vehicle(), "m.toml", photographed)


def world_of(plan, **options):
    world = World(plan, home=HOME, bundle_p_home=FAR, **options)
    world.bundle_in_view = False
    return world


def progress_of(world):
    return world.node._mission.flight.inspection


def until_under_way(world, stop, share=0.5):
    """Until this share of the move to a stop is flown."""
    end_s = world.now_s + 400.0
    while progress_of(world).stop < stop or progress_of(world).arrived_s is not None:
        world.step()
        assert world.now_s < end_s, world.log
    start, goal = world.reference.trajectory.p_start, world.reference.trajectory.p_end
    here = np.subtract(world.p, HOME)
    while np.linalg.norm(here - start) < share * math.dist(start, goal):
        world.step()
        here = np.subtract(world.p, HOME)
    return world


def way_home_of(world):
    """Corners of the way home of an aircraft that is asked to return now, relative to the take-off point."""
    here = tuple(np.subtract(world.p, HOME))
    request = OperatorRequest(stamp_s=world.now_s, action=OperatorAction.RETURN, who="anna")
    assert list(world.node.handle(request, world.now_s)) == []
    world.run_until("RETURN", 2.0)
    return [here, *(tuple(np.subtract(p, HOME)) for p, _ in world.node._mission.flight.return_path)]


def from_pier_m(places):
    """How near straight ways lead to the round pier [m]."""
    points = np.concatenate([np.linspace(a, b, 400) for a, b in zip(places, places[1:], strict=False)])
    return float((np.hypot(points[:, 0] - 14.0, points[:, 1]) - 2.0).min())


def carried(world, *places):
    """A pilot flies there, at 2 m/s."""
    for place in places:
        goal = np.array(HOME) + place
        while (left_m := math.dist(world.p, goal)) > 0.0:
            world.p = tuple(np.array(world.p) + min(1.0, 0.1 / left_m) * (goal - world.p))
            world.step()
    return world


# --- back from behind a pier ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.3, 0.7, 0.95])
def test_a_return_on_the_way_behind_a_pier_does_not_lead_through_it(tmp_path, share):
    """The stop that the aircraft comes from has a clear way home, the place where it is has none."""
    items = (
        PART,
        hold("aside", 10, -9, 4),
        viewpoints("back", (24, 0, 4)),
        hold("out", 10, 9, 4),
        viewpoints("end", (8, 9, 4)),
    )
    plan = plan_of(tmp_path, *items)
    stops = loaded(plan).route().stops
    behind = next(n for n, stop in enumerate(stops) if stop.item == "back")
    assert stops[behind - 1].clear_home and not stops[behind].clear_home
    world = until_under_way(world_of(plan), behind, share)
    places = way_home_of(world)
    assert from_pier_m(places) > STANDOFF_MIN_M
    world.run_until("DONE", 200.0)


def test_a_return_from_a_ring_leads_back_over_the_stops_that_were_flown(tmp_path):
    plan = plan_of(tmp_path, RING)
    stops = loaded(plan).route().stops
    behind = [n for n, stop in enumerate(stops) if not stop.clear_home]
    world = until_under_way(world_of(plan), behind[0] + 3)
    places = way_home_of(world)
    assert from_pier_m(places) > STANDOFF_MIN_M and len(places) > 3


def test_after_a_second_hand_over_no_stop_is_flown_back_over_that_this_flight_has_not_reached(tmp_path):
    """It begins at the first stop with a photograph that is missing; those before it were reached in another flight."""
    plan = switch_plan_of(tmp_path, RING)
    route = loaded(plan).route()
    behind = [n for n, stop in enumerate(route.stops) if not stop.clear_home]
    taken = behind[-1] + 1
    progress = Inspecting(route, begun=True, stop=taken)
    for stop in route.stops[:taken]:
        progress.captures.outcomes[stop.photograph.id] = CaptureOutcome.TAKEN
    again = progress.again()
    assert again.stop == again.first == taken and not again.reached
    again.begun, again.begins_at = True, ((0.0, -6.0, 4.0), 0.0)
    for here in ((5.0, -3.0, 3.0), (6.0, 0.0, 4.0), (0.0, -6.0, 4.0)):
        places = [here, *(p for p, _ in again.return_path(here, (0.0, 0.0, 4.0), route.assumed)), (0.0, 0.0, 4.0)]
        assert places == [here, (0.0, 0.0, 4.0)]
    behind_the_pier = (20.0, 0.0, 4.0)
    places = [p for p, _ in again.return_path(behind_the_pier, (0.0, 0.0, 4.0), route.assumed)]
    assert places == [(0.0, -6.0, 4.0)], "the way out, back"


def test_the_same_in_flight(tmp_path):
    plan = switch_plan_of(tmp_path, RING)
    world = world_of(plan).run(2.0)
    world.pilot_takes_off()
    world.channel_us = ON_US
    behind = [n for n, stop in enumerate(loaded(plan).route().stops) if not stop.clear_home]
    until_under_way(world, behind[-1] + 1, 0.2)
    world.mode = FcuMode.POSCTL
    world.run_until("PILOT", 5.0).run(1.0)
    carried(world, (14.0, 9.0, 5.0), (0.0, 9.0, 5.0), (0.0, 0.0, 4.0))
    world.channel_us = OFF_US
    world.run_until("WAIT_READY", 5.0).run(3.0)
    world.channel_us = ON_US
    world.run(0.5).run_until("INSPECT", 20.0).run(0.5)
    assert progress_of(world).stop > behind[-1]
    assert from_pier_m(way_home_of(world)) > STANDOFF_MIN_M


# --- ways that the plan does not know ---------------------------------------------------------------------------------


def test_a_hand_over_from_where_the_way_to_the_first_station_leads_through_a_pier_is_refused(tmp_path):
    world = world_of(switch_plan_of(tmp_path, PART)).run(2.0)
    world.pilot_takes_off()
    carried(world, (0.0, 9.0, 5.0), (24.0, 9.0, 5.0), (24.0, 0.0, 4.0)).run(1.0)
    world.channel_us = ON_US
    world.run(2.0)
    assert world.phase == "WAIT_READY"
    said = [command.text for command in world.commands if "start refused" in command.text]
    assert said == ["start refused: the way to the first station passes 'pier' at 0.00 m"]


def test_the_way_home_after_a_hand_over_beside_a_pier_leads_around_it(tmp_path):
    """Home is over the pilot's way: from some stations the straight way to the hand-over leads through the pier."""
    items = (PART, viewpoints("aside", (10, -6, 4), (20, -6, 4)))
    plan = switch_plan_of(tmp_path, *items)
    assert all(stop.clear_home for stop in loaded(plan).route().stops)
    world = world_of(plan).run(2.0)
    world.pilot_takes_off()
    carried(world, (0.0, 7.0, 5.0), (9.0, 7.0, 5.0)).run(1.0)
    world.channel_us = ON_US
    world.run(0.5)
    until_under_way(world, len(loaded(plan).route().stops) - 1, 0.9)
    assert from_pier_m(way_home_of(world)) > STANDOFF_MIN_M


def test_a_bundle_that_is_seen_on_the_way_to_a_waypoint_has_that_waypoint_on_the_way_home():
    """The search ends where the move to the waypoint does; the plan has checked the way home over it."""
    world = site_world()
    world.run_until("INSPECT", 100.0)
    assert world.node._mission.flight.waypoints_reached == 1


def test_a_stop_that_was_reached_is_where_it_was_also_when_its_bundle_stands_elsewhere():
    world = site_world(shift=(6.0, 0.0, 0.0)).run_until("RETURN", 700.0)
    here, reached = np.subtract(world.p, HOME), progress_of(world).reached
    assert reached[-1].place.frame == "pier" and "deck" in progress_of(world).confirmed
    assert way_home_s(world.node._mission) < 30.0
    places = [np.subtract(p, HOME) for p, _ in world.node._mission.flight.return_path]
    assert max(p[0] for p in places) <= here[0] + 0.01


# --- stations that lead around something ------------------------------------------------------------------------------

IN = (hold("in 1", 4, 12, 5), hold("in 2", 8, 12, 5))
OUT = (hold("out 1", 8, -12, 5), hold("out 2", 4, -12, 5))


def names(stops):
    return [stop.item for stop in stops]


def test_holds_after_the_last_photograph_are_flown(tmp_path):
    """Whatever their duration."""
    plan = loaded(plan_of(tmp_path, PART, *OUT))
    assert names(plan.route().stops)[-2:] == ["out 1", "out 2"]
    assert plan.plan.path[-5:-3] == [(8.0, -12.0, 5.0), (4.0, -12.0, 5.0)]


def test_photographs_that_exist_are_not_flown_to_behind_the_last_that_is_missing(tmp_path):
    plan = plan_of(tmp_path, PART, viewpoints("end", (8, 6, 4), (9, 6, 4)), *OUT)
    places = [stop.photograph.place for stop in loaded(plan).route().stops if stop.photograph]
    stops = loaded(plan, places[1:]).route().stops
    assert len(stops) == 1 and stops[0].photograph.place == places[0]
    assert [corner.p for corner in stops[0].home] == [(8.0, -12.0, 5.0), (4.0, -12.0, 5.0)]


def test_a_flight_that_begins_later_in_the_plan_comes_over_the_holds_before_the_first_photograph(tmp_path):
    plan = plan_of(tmp_path, hold("in 1", 4, 12, 5, duration_s=9.0), IN[1], PART, *OUT)
    whole = loaded(plan)
    places = [stop.photograph.place for stop in whole.route().stops if stop.photograph]
    later = loaded(plan, places[:1])
    stops = later.route().stops
    assert names(stops)[:3] == ["in 1", "in 2", "pier"] and stops[2].photograph.place == places[1]
    assert stops[0].stop_s == 0.0, "passed"
    assert [way.p_end for way in later.plan.ways[0].out[:2]] == [(4.0, 12.0, 5.0), (8.0, 12.0, 5.0)]
    assert later.plan.path[2:4] == [(4.0, 12.0, 5.0), (8.0, 12.0, 5.0)]
    assert later.plan.flights[0].duration_s > whole.plan.flights[0].duration_s - 9.0 - 60.0


def test_a_second_hand_over_goes_over_these_holds_without_waiting_and_on_with_what_is_missing(tmp_path):
    plan = switch_plan_of(tmp_path, hold("in 1", 4, 12, 5, duration_s=9.0), IN[1], PART)
    route = loaded(plan).route()
    progress = Inspecting(route, begun=True, stop=4)
    for stop in route.stops[:4]:
        if stop.photograph:
            progress.captures.outcomes[stop.photograph.id] = CaptureOutcome.TAKEN
    again, order = progress.again(), []
    while not again.complete:
        order.append((again.stop, again.is_passed()))
        again.advance()
    assert order[:3] == [(0, True), (1, True), (4, False)]
    assert [stop for stop, _ in order] == [0, 1, *range(4, len(route.stops))]


@pytest.mark.parametrize("beside", [True, False])
def test_who_hands_over_beside_the_next_station_is_not_led_to_it(tmp_path, beside):
    """He has flown around what the holds lead around: the flight to them, and the way home over them, would lead through it."""
    route = loaded(switch_plan_of(tmp_path, *IN, PART)).route()
    progress = Inspecting(route, stop=0)
    poses = {WORLD: Pose((0.0, 0.0, 0.0), UPRIGHT)}
    station = np.array(route.stops[2].p)
    here = tuple((station + ((0.0, 2.0, 0.0) if beside else (-6.0, 0.0, 0.0))).tolist())
    around = [(4.0, 12.0, 5.0), (8.0, 12.0, 5.0)] if beside else []
    assert progress.decide_entry([(0.0, 0.0, 0.0), *around, here], poses) == ""
    progress.begin((here, 0.0))
    assert progress.begun and progress.stop == (2 if beside else 0)
    progress.stop, progress.arrived_s = 2, 1.0
    progress.note_reached((tuple(station.tolist()), 0.0), (0.0, 0.0, 4.0), poses)
    leads = progress.return_path(tuple(station.tolist()), (0.0, 0.0, 4.0), poses)
    assert bool(leads) != beside


def test_a_return_leads_over_the_holds_that_lead_home(tmp_path):
    for items, corners in (
        ((*IN, PART), [(8.0, 12.0, 5.0), (4.0, 12.0, 5.0)]),
        ((PART, *OUT), [(8.0, -12.0, 5.0), (4.0, -12.0, 5.0)]),
    ):
        plan = plan_of(tmp_path, *items)
        first = names(loaded(plan).route().stops).index("pier")
        world = until_under_way(world_of(plan), first + 1)
        assert np.allclose(way_home_of(world)[1:], [*corners, (0.0, 0.0, 4.0)])


def test_a_return_among_the_holds_that_lead_there_leads_back_over_them(tmp_path):
    world = until_under_way(world_of(plan_of(tmp_path, *IN, PART)), 1)
    assert np.allclose(way_home_of(world)[1:], [(4.0, 12.0, 5.0), (0.0, 0.0, 4.0)], atol=0.05)


def test_a_battery_that_ends_in_the_middle_of_a_plan_goes_home_over_its_holds(tmp_path):
    small = (tmp_path / "small.toml", REPOSITORY / "config/batteries/f550_4s_5ah.toml")
    small[0].write_text(small[1].read_text().replace("capacity_ah = 5.0", "capacity_ah = 0.28"))
    head = HEAD.replace("CONFIG/batteries/f550_4s_5ah.toml", str(small[0]))
    planned = loaded(
        plan_of(tmp_path, *IN, PART.replace("overlap_between = 0.6", "overlap_between = 0.9"), *OUT, head=head)
    ).plan
    assert len(planned.flights) > 1
    corners = {(8.0, 12.0, 5.0), (4.0, 12.0, 5.0)}, {(8.0, -12.0, 5.0), (4.0, -12.0, 5.0)}
    for ways in planned.ways[:-1]:
        assert {way.p_end for way in ways.home[:2]} in corners
    for ways in planned.ways[1:]:
        assert {way.p_end for way in ways.out[:2]} == corners[0]

"""The mission flies an inspection: from station to station, each in the frame of its bundle, with a photograph at each."""

import msgspec
import numpy as np
import pytest
from mission_world import HOME, REPOSITORY, answered, inspection_plan, site_world, vehicle

from companion.core.config import ConfigError
from companion.core.messages import WORLD, Markers, State
from companion.mission.inspection_files import load_inspection
from companion.mission.inspection_progress import Inspecting, Reached
from companion.mission.inspection_route import Corner
from companion.mission.mission_node import MissionNode
from companion.mission.plan import load_plan, site_of

PHOTOGRAPHS = 16
DECK, SECOND = 5, 13  # first photographs of the deck and of the second pier


def reference_points(world):
    """Where the references lead, and in which frame."""
    return [(reference.frame, reference.trajectory) for _, reference in world.references]


def test_every_photograph_is_requested_once_in_the_order_of_the_plan_and_the_mission_ends_well():
    world = site_world().run_until("DONE", 700.0)
    assert [request.id for request in world.capture_requests] == list(range(1, PHOTOGRAPHS + 1))
    assert [phase for phase in world.phases() if phase in ("SEARCH", "APPROACH", "HOLD", "INSPECT", "RETURN")] == [
        "SEARCH",
        "INSPECT",
        "RETURN",
    ]
    status = world.status
    assert status.success and status.photographs == status.photographs_wanted == PHOTOGRAPHS
    assert (status.station, status.stations, status.photographs_missing) == (PHOTOGRAPHS, PHOTOGRAPHS, 0)


def test_the_setpoint_has_no_step_from_one_bundle_to_the_next():
    """Also where the boards do not stand as the mission assumes."""
    world = site_world(shift=(0.3, -0.4, 0.1)).run_until("DONE", 700.0)
    frames = [frame for frame, _ in reference_points(world)]
    assert {"pier", "deck", "second_pier"} <= set(frames)
    assert max(world.reference_jumps_m[40:]) < 0.18  # at 3 m/s in steps of 50 ms


def test_stations_follow_the_bundle_where_it_stands():
    shift = (0.3, -0.4, 0.1)
    at_plan, moved = site_world(), site_world(shift=shift)
    found = []
    for world in (at_plan, moved):
        while len(world.capture_requests) < DECK + 2:  # the third one below the deck
            world.step()
            assert world.now_s < 600.0
        found.append(world.p)
    assert np.allclose(np.subtract(found[1], found[0]), shift, atol=0.02)


@pytest.mark.parametrize("outcome", ["refused", "lost", "blurred"])
def test_a_photograph_that_failed_is_requested_twice_more(outcome):
    world = site_world()
    world.captures = lambda request, attempt: answered(request, outcome if attempt < 3 and request.id == 4 else "taken")
    world.run_until("DONE", 700.0)
    assert [r.id for r in world.capture_requests if r.id == 4] == [4, 4, 4]
    assert world.status.success and world.status.photographs == PHOTOGRAPHS


def test_a_photograph_that_is_given_up_is_missing_and_the_plan_goes_on():
    world = site_world()
    world.captures = lambda request, attempt: answered(
        request, "refused" if request.id == 4 else "taken", reason="no storage"
    )
    world.run_until("DONE", 700.0)
    status = world.status
    assert len([r for r in world.capture_requests if r.id == 4]) == 3
    assert (status.photographs, status.photographs_missing, status.success) == (PHOTOGRAPHS - 1, 1, False)
    assert (
        status.cause
        == f"{PHOTOGRAPHS - 1} of {PHOTOGRAPHS} photographs taken, missing 4: no storage; go on with --resume"
    )


def test_a_photograph_that_is_given_up_ends_the_inspection_where_the_mission_says_so():
    world = site_world(inspection_plan(on_camera_failure="return"))
    world.captures = lambda request, attempt: answered(request, "lost" if request.id == 4 else "taken", reason="silent")
    world.run_until("DONE", 700.0)
    assert world.capture_requests[-1].id == 4
    assert world.status.cause == "photograph 4 of 'first pier' was not taken: silent: returned and landed"


def test_a_blurred_photograph_counts_and_is_named():
    world = site_world()
    world.captures = lambda request, attempt: answered(request, "blurred" if request.id == 4 else "taken")
    world.run_until("DONE", 700.0)
    assert (world.status.photographs, world.status.photographs_blurred) == (PHOTOGRAPHS, 1) and world.status.success
    assert any("1 of them blurred: --resume takes them again" in reason for _, reason in world.log)


def test_a_silent_payload_process_counts_as_lost():
    world = site_world()
    world.captures = lambda request, attempt: None if request.id == 2 else answered(request, "taken")
    world.run_until("DONE", 900.0)
    assert world.status.photographs_missing == 1 and len(world.capture_requests) == PHOTOGRAPHS + 2


def test_an_answer_that_comes_late_counts():
    world = site_world()
    world.captures = lambda request, attempt: answered(request, "lost" if request.id == 2 else "taken")
    while world.status.photographs_missing == 0:
        world.step()
    world._inbox.append(
        msgspec.structs.replace(answered(world.capture_requests[1], "taken", 3), stamp_s=world.now_s, late=True)
    )
    world.run_until("DONE", 900.0)
    assert world.status.photographs_missing == 0 and world.status.success


def test_the_inspection_goes_on_at_the_same_station_after_a_pause():
    world = site_world()
    world.run_until("INSPECT")
    while len(world.capture_requests) < 3:
        world.step()
    world.edit[State] = lambda state: msgspec.structs.replace(state, relative_std_m=0.9)
    world.run_until("PAUSE", 20.0).run(1.0)
    del world.edit[State]
    world.run_until("INSPECT", 20.0).run_until("DONE", 700.0)
    assert world.status.success
    assert sorted({request.id for request in world.capture_requests}) == list(range(1, PHOTOGRAPHS + 1))


def test_a_copy_of_any_bundle_of_the_inspection_is_reported():
    world = site_world()
    world.run_until("INSPECT").run(1.0)
    world.edit[Markers] = lambda markers: msgspec.structs.replace(markers, copied=("second_pier",))
    world.run_until("PAUSE", 3.0)
    assert [event.monitor for event in world.events if event.active] == ["bundle_twice"]


def test_a_bundle_that_is_not_there_ends_the_inspection():
    world = site_world()
    del world.others["second_pier"]
    world.run_until("DONE", 700.0)
    assert (
        world.status.cause
        == "bundle 'second_pier' not found at the first station of 'second pier': returned and landed"
    )
    assert world.capture_requests[-1].id == SECOND - 1


def test_a_bundle_that_stands_outside_of_the_limits_ends_the_inspection():
    world = site_world(shift=(6.0, 0.0, 0.0))
    world.run_until("DONE", 700.0)
    assert world.status.cause == "a station of 'deck' is outside the fence where its bundle stands: returned and landed"
    assert world.capture_requests[-1].id == DECK - 1


def test_the_flight_goes_on_at_the_first_photograph_that_is_missing():
    plan = inspection_plan()
    loaded = load_inspection(plan, site_of(plan), vehicle(), "m.toml")
    places = [stop.photograph.place for stop in loaded.route().stops]
    former = [place for number, place in enumerate(places, 1) if number < 12 and number != 7]
    world = site_world(plan, photographed=former)
    assert "10 of 16 photographs are from former flights" in world.run(0.1).node.reason
    world.run_until("DONE", 700.0)
    assert [request.id for request in world.capture_requests] == [7, *range(12, PHOTOGRAPHS + 1)]
    status = world.status
    assert status.success and (status.photographs, status.photographs_before) == (PHOTOGRAPHS - 10, 10)


def test_nothing_is_flown_when_nothing_is_missing():
    plan = inspection_plan()
    loaded = load_inspection(plan, site_of(plan), vehicle(), "m.toml")
    places = [stop.photograph.place for stop in loaded.route().stops]
    with pytest.raises(ConfigError, match="all 16 photographs were taken in former flights"):
        MissionNode(vehicle(), plan, site_of(plan), photographed=places)


# --- safety ---------------------------------------------------------------------------------------------------------


def test_the_stand_off_is_judged_by_the_surfaces_and_the_retreat_leads_away_from_the_nearest():
    world = site_world()
    while len(world.capture_requests) < DECK + 1:  # below the deck, 5 m under it; beside the first pier
        world.step()
    assert not world.events
    assert 2.0 < world.node.snapshot(world.now_s).structure_m < 4.0

    def near(state):
        return msgspec.structs.replace(state, p_W=(HOME[0] + 11.3, HOME[1] + 0.0, HOME[2] + 3.1))

    world.edit[State] = near
    world.run_until("RETREAT", 5.0)
    assert world.events[-1].monitor == "standoff"
    frame, way = reference_points(world)[-1]
    assert frame == WORLD
    direction = np.subtract(way.p_end, way.p_start)
    assert direction[0] < -1.0 and np.linalg.norm(direction) > 1.9  # as the pier was seconds before


def test_a_retreat_from_below_the_deck_does_not_lead_to_the_ground():
    world = site_world()
    while len(world.capture_requests) < DECK + 3:
        world.step()
    world.edit[State] = lambda state: msgspec.structs.replace(state, p_W=(HOME[0] + 9.4, HOME[1] + 6.0, HOME[2] + 7.2))
    world.run_until("RETREAT", 5.0)
    end = reference_points(world)[-1][1].p_end
    assert end[2] - HOME[2] >= 1.5 - 1e-6


def test_the_way_home_leads_back_over_stations_where_the_straight_way_is_not_free():
    plan = inspection_plan()
    route = load_inspection(plan, site_of(plan), vehicle(), "m.toml").route()
    stops = [stop._replace(clear_home=number < 6) for number, stop in enumerate(route.stops)]
    places = [Corner(WORLD, (float(number), 0.0, 4.0), 0.0) for number in range(len(stops))]
    reached = [Reached(number, place, number < 6) for number, place in enumerate(places)]
    route = route._replace(stops=stops, surfaces=[])
    poses = route.assumed

    def return_path(progress):
        return [p[0] for p, _ in progress.return_path((9.0, 0.0, 4.0), (0.0, 0.0, 4.0), poses)]

    assert return_path(Inspecting(route, stop=9, arrived_s=1.0, reached=reached[:10])) == [9, 8, 7, 6, 5]
    assert return_path(Inspecting(route, stop=9, reached=reached[:9])) == [8, 7, 6, 5]  # on the way there
    assert return_path(Inspecting(route, stop=4, reached=reached[:4])) == []


def test_items_of_the_world_need_satellites_and_bundles_a_search(tmp_path):
    text = (REPOSITORY / "config/missions/two_piers_inspection.toml").read_text(encoding="utf-8")
    text = text.replace("../", f"{REPOSITORY}/config/")
    text = text.replace('frame = "deck"\ncentre_m = [0.0, 4.8, 4.0]', 'frame = "world"\ncentre_m = [10.0, 6.0, 8.0]')
    switch = "[rc_switch]\nchannel = 7\noff_us = [900, 1300]\non_us = [1700, 2100]\n"
    without = text.replace('bundle = "pier"', 'bundle = "pier"\nsatellites = false', 1)
    if 'start = "auto"' in without:
        without = without.replace('start = "auto"', 'start = "rc_switch"') + switch
    file = tmp_path / "m.toml"
    file.write_text(without, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"inspection.item\[1\] 'deck': frame = 'world': without satellites") as error:
        load_plan(file)
    assert "\n" not in str(error.value)
    head, tail = text.split("[search]")
    head = "\n".join(line for line in head.splitlines() if not line.startswith(("bundle", "marker_file")))
    file.write_text(head + "\n" + tail[tail.index("[inspection]") :], encoding="utf-8")
    with pytest.raises(ConfigError, match=r"inspection.item\[0\] 'first pier': frame = 'pier': needs the keys bundle"):
        load_plan(file)

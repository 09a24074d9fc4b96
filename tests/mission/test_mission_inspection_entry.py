"""With which stop an inspection goes on where a pilot hands it over: by the way that he has flown, decided once.

The aircraft takes off on a deck (its edge is at y = -3, its underside at z = -0.5), and two holds lead over the edge to a
station below it. No surface of the plan shows the deck.
"""

import numpy as np
import pytest
from mission_world import FAR, HOME, OFF_US, ON_US, World
from test_mission_return_path import HEAD, SWITCH, carried, hold, loaded, plan_of, progress_of, viewpoints, way_home_of

from companion.core.messages import WORLD
from companion.mission.inspection_entry import BESIDE_M, entry_of
from companion.mission.inspection_progress import Inspecting
from companion.mission.inspection_route import UPRIGHT, Pose

OVER, BELOW, STATION, NEXT = (0.0, -4.0, 2.5), (0.0, -4.0, -2.0), (0.0, -1.0, -2.0), (3.0, -1.0, -2.0)
LEADS = (OVER, BELOW)
START, UP = (0.0, 0.0, 0.0), (0.0, 0.0, 2.0)
EDGE_M, TOP_M, UNDERSIDE_M = -3.0, 0.0, -0.5  # of the deck
ROUND = (START, UP, OVER, BELOW)  # over the holds


def through_deck(places):
    """Straight ways between these places lead through the deck."""
    points = np.concatenate([np.linspace(a, b, 400) for a, b in zip(places, places[1:], strict=False)])
    return bool(np.any((points[:, 1] > EDGE_M) & (points[:, 2] < TOP_M) & (points[:, 2] > UNDERSIDE_M)))


def deck_plan(folder):
    head = HEAD.replace('"auto"', '"rc_switch"').replace("-40.0, -1.0]", "-40.0, -20.0]")
    head = head.replace("height_m = 25.0\n", "height_m = 25.0\nheight_min_m = -15.0\n")
    holds = hold("over the edge", *OVER), hold("below the edge", *BELOW)
    return plan_of(folder, SWITCH, *holds, viewpoints("underside", STATION, NEXT), head=head)


def handed_over(folder, *places):
    """A flight that a pilot has flown over these places, with the switch on."""
    world = World(deck_plan(folder), home=HOME, bundle_p_home=FAR)
    world.bundle_in_view = False
    world.run(2.0).pilot_takes_off(2.0)
    carried(world, *places).run(1.0)
    world.channel_us = ON_US
    return world


def flown_until(world, stop):
    """Where the aircraft is until it is at rest at this stop, relative to the take-off point."""
    found, end_s = [], world.now_s + 200.0
    while progress_of(world).stop < stop or progress_of(world).arrived_s is None:
        world.step()
        found.append(tuple(np.subtract(world.p, HOME)))
        assert world.now_s < end_s, world.log
    return found


# --- the decision -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("here", [(0.0, 0.0, 2.0), (0.0, -1.5, 1.0), (0.5, -2.5, 0.6)])
def test_above_the_deck_it_comes_over_the_holds(here):
    """At most 5 m from the station, and nearer to it than to a hold."""
    assert np.linalg.norm(np.subtract(here, STATION)) < BESIDE_M
    assert entry_of(LEADS, STATION, [START, UP, here]) == 0


def test_who_has_flown_over_the_holds_goes_straight_to_the_station():
    assert entry_of(LEADS, STATION, [*ROUND, (0.5, -1.8, -2.2)]) == 2
    assert entry_of(LEADS, STATION, [*ROUND, (1.0, -4.0, -2.5), (1.5, -1.5, -2.5)]) == 2, "not exactly"


@pytest.mark.parametrize("here", [(0.0, -2.9, -2.0), (0.0, -3.5, -2.5), (9.0, -4.0, -2.0)])
def test_who_is_still_at_the_last_hold_or_straight_behind_it_goes_back_to_it(here):
    """The straight way to the first one leads through the edge of the deck."""
    assert entry_of(LEADS, STATION, [*ROUND, here]) == 1


@pytest.mark.parametrize(
    "way",
    [
        [START, UP, (8.0, 0.0, 2.0), (1.5, 1.5, 2.0)],
        [START, UP, (0.0, 0.0, 7.0), (0.0, -0.2, 1.0)],
        [*ROUND, (2.5, -4.0, -2.0), (2.5, -4.0, 2.5), (1.0, 0.5, 1.0)],
    ],
    ids=["wandered above it", "up and down", "back up beside the holds"],
)
def test_a_way_that_is_long_shows_nothing(way):
    """All of these end above the deck: nothing is flown straight, and no way is."""
    assert entry_of(LEADS, STATION, way) is None


def test_another_way_around_is_in_doubt():
    way = [START, UP, (0.0, 9.0, 2.0), (0.0, 9.0, -2.0), (0.0, 0.5, -2.0)]
    assert entry_of(LEADS, STATION, way) is None


def test_from_the_station_before_it_goes_on_with_the_next():
    """A pilot takes the aircraft in the middle of an inspection, and hands it over again."""
    stations = [(2.0 * n, -1.0 + n % 2, -2.0) for n in range(5)]
    there = [*ROUND, *stations[:4], (7.0, -0.5, -2.5)]
    assert entry_of(LEADS, stations[4], there, before=stations[3]) == 2
    above = [*there, (9.0, -6.0, -2.5), (9.0, -6.0, 2.0), (8.0, -1.0, 1.0)]
    assert entry_of(LEADS, stations[4], above, before=stations[3]) is None


def test_from_beside_the_first_hold_the_flight_begins_there_whatever_was_flown():
    assert entry_of(LEADS, (0.0, -1.0, 0.5), [START, (0.0, 9.0, 2.0), (0.0, -4.5, 2.5)]) == 0


def test_the_decision_at_the_switch_is_kept(tmp_path):
    """The aircraft is 5 m from the station at the switch, and 0.1 m more or less where the inspection begins."""
    route, poses = loaded(deck_plan(tmp_path)).route(), {WORLD: Pose((0.0, 0.0, 0.0), UPRIGHT)}
    for entry, way in ((2, [*ROUND, (0.5, -1.8, -2.2)]), (0, [START, UP])):
        for drifted in ((0.0, 6.0, 2.0), (0.0, -1.0, -1.9)):
            progress = Inspecting(route)
            assert progress.decide_entry(way, poses) == ""
            progress.begin((drifted, 0.0))
            assert progress.stop == entry


def test_the_way_home_leads_over_the_holds_with_which_the_flight_began(tmp_path):
    route, poses = loaded(deck_plan(tmp_path)).route(), {WORLD: Pose((0.0, 0.0, 0.0), UPRIGHT)}
    for entry, corners in ((0, [BELOW, OVER]), (1, [BELOW]), (2, [])):
        progress = Inspecting(route, stop=entry, entry=entry)
        progress.stop, progress.arrived_s = 2, 1.0
        progress.note_reached((STATION, 0.0), (1.0, -4.0, -2.0), poses)
        found = progress.return_path(STATION, (1.0, -4.0, -2.0), poses)
        assert [p for p, _ in found] == corners


# --- in flight --------------------------------------------------------------------------------------------------------


def test_a_hand_over_above_the_deck_flies_around_it_out_and_home(tmp_path):
    world = handed_over(tmp_path).run(0.5)
    assert not through_deck(flown_until(world, 2))
    places = way_home_of(world)
    assert not through_deck(places) and np.allclose(places[1:3], [BELOW, OVER], atol=0.05)


def test_a_hand_over_below_the_deck_flies_straight_to_the_station_and_home_by_the_pilots_way(tmp_path):
    world = handed_over(tmp_path, (0.0, -5.0, 2.0), (0.0, -5.0, -2.0), (0.0, -2.0, -2.0)).run(0.5)
    flown = flown_until(world, 2)
    assert max(p[2] for p in flown) < UNDERSIDE_M and not through_deck(flown)
    assert not through_deck(way_home_of(world))


def test_a_hand_over_in_doubt_is_refused_and_one_at_the_first_hold_is_not(tmp_path):
    world = handed_over(tmp_path, (8.0, 0.0, 2.0), (1.5, 1.5, 2.0)).run(2.0)
    assert world.phase == "WAIT_READY"
    said = [command.text for command in world.commands if "start refused" in command.text]
    assert said == [
        "start refused: 4.9 m from the first station of 'underside', and not flown there over 'below the edge': "
        "fly over it, or hand over at 'over the edge'"
    ]
    world.channel_us = OFF_US
    carried(world.run(1.0), (0.0, -3.5, 2.5)).run(1.0)
    world.channel_us = ON_US
    assert not through_deck(flown_until(world.run(0.5), 2))

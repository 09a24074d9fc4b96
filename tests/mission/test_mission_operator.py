"""Requests from a view: each passes the mission's checks, and none does what the pilot or the safety table forbids."""

import math

import msgspec
import pytest
from mission_world import OFF_US, ON_US, World, switch_plan
from test_mission_inspection import PHOTOGRAPHS, site_world

from companion.core.enums import FcuMode, OperatorAction, Phase
from companion.core.messages import FcuStatus, OperatorRequest, State
from companion.mission.operator import STRENGTH


def ask(world: World, action: OperatorAction, age_s: float = 0.0, **fields) -> World:
    request = OperatorRequest(stamp_s=world.now_s - age_s, action=action, who="anna", **fields)
    assert list(world.node.handle(request, world.now_s)) == []
    return world


def texts(world: World) -> list[str]:
    return [command.text for command in world.commands if command.action == "text"]


def held(world: World, seconds: float = 30.0) -> bool:
    """The aircraft stays where it is for a time."""
    where = world.run(1.0).p
    world.run(seconds)
    return world.phase == Phase.PAUSE and math.dist(where, world.p) < 0.01


@pytest.mark.parametrize("phase", ["SEARCH", "APPROACH", "HOLD", "RETURN"])
def test_a_hold_lasts_until_go_on_and_the_mission_ends_as_planned(phase):
    world = World().run_until(phase)
    ask(world.run(0.5), OperatorAction.HOLD)
    assert held(world)
    assert "by anna at the view" in world.node.reason
    ask(world, OperatorAction.GO_ON).run_until("DONE")
    assert world.status.success and world.status.cause == ""


def test_an_inspection_goes_on_after_a_hold_and_takes_every_photograph():
    world = site_world()
    world.run_until("INSPECT")
    while len(world.capture_requests) < 3:
        world.step()
    ask(world, OperatorAction.HOLD)
    assert held(world, 10.0)
    ask(world, OperatorAction.GO_ON).run_until("INSPECT", 20.0).run_until("DONE", 700.0)
    assert world.status.success
    assert {request.id for request in world.capture_requests} == set(range(1, PHOTOGRAPHS + 1))


def test_holds_of_a_person_do_not_count_as_interruptions():
    world = World().run_until("SEARCH")
    for _ in range(8):
        ask(world, OperatorAction.HOLD).run(1.0)
        assert world.phase == Phase.PAUSE
        ask(world, OperatorAction.GO_ON).run(1.0)
    assert world.run_until("DONE").status.success


def test_go_on_does_not_end_a_hold_of_the_safety_table():
    world = World().run_until("HOLD")
    world.bundle_in_view = False
    world.run_until("PAUSE")
    ask(world, OperatorAction.GO_ON).run(0.2)
    assert world.phase == Phase.PAUSE
    assert any("no hold that the view asked for" in text for text in texts(world))


def test_a_hold_of_the_safety_table_stays_after_it_clears_when_a_person_asks():
    world = World().run_until("HOLD")
    world.bundle_in_view = False
    world.run_until("PAUSE")
    ask(world, OperatorAction.HOLD).run(0.1)
    world.bundle_in_view = True
    assert held(world)
    ask(world, OperatorAction.GO_ON).run_until("DONE")
    assert world.status.success


def test_the_safety_table_stands_above_a_hold_of_a_person():
    world = World().run_until("HOLD")
    ask(world, OperatorAction.HOLD).run(1.0)
    world.bundle_in_view = False
    world.run_until("RETREAT")
    ask(world, OperatorAction.HOLD).run(0.2)
    assert world.phase == Phase.RETREAT
    world.run_until("RETURN")
    ask(world, OperatorAction.HOLD).run(0.2)
    assert world.phase == Phase.RETURN


@pytest.mark.parametrize("phase", ["SEARCH", "HOLD", "PAUSE"])
def test_return_flies_home_and_is_no_success(phase):
    world = World().run_until("HOLD" if phase == "PAUSE" else phase)
    if phase == "PAUSE":
        ask(world, OperatorAction.HOLD).run(1.0)
    ask(world, OperatorAction.RETURN).run_until("DONE")
    assert not world.status.success
    assert "a return was asked for (by anna at the view)" in world.status.cause


def test_a_return_that_a_person_asked_for_can_be_held_and_goes_on():
    world = World().run_until("HOLD")
    ask(world, OperatorAction.RETURN).run(1.0)
    ask(world, OperatorAction.HOLD)
    assert held(world, 5.0)
    ask(world, OperatorAction.GO_ON).run_until("DONE")


@pytest.mark.parametrize("phase", ["TAKEOFF", "ENTER_OFFBOARD", "SEARCH", "HOLD", "RETURN"])
def test_land_lands_on_the_spot(phase):
    world = World().run_until(phase).run(0.5)
    ask(world, OperatorAction.LAND).run(0.1)
    assert world.phase == Phase.LAND
    assert not world.run_until("DONE").status.success


def test_stop_streaming_gives_the_aircraft_to_px4_and_nothing_brings_it_back():
    world = World().run_until("HOLD")
    ask(world, OperatorAction.STOP_STREAMING).run(3.0)
    assert world.phase == Phase.PX4_HOLD and world.mode != FcuMode.OFFBOARD
    requests = world.asked("offboard")
    for action in OperatorAction:
        ask(world, action).run(1.0)
        assert world.phase == Phase.PX4_HOLD
    assert world.asked("offboard") == requests


@pytest.mark.parametrize("begun", ["arm", "takeoff", "offboard"])
def test_what_begins_a_flight_is_withdrawn_when_a_person_stops_it_before_the_answer(begun):
    """Its ack was lost; without this the FCU package would request it again, after the person's stop."""
    world = World()
    world.ignore = {begun}
    while not world.asked(begun):
        world.step()
    world.run(0.1)
    ask(world, OperatorAction.STOP_STREAMING).run(1.0)
    assert world.phase == Phase.PX4_HOLD and world.asked("withdraw") == 1 and world.asked(begun) == 1


def test_an_answered_flight_withdraws_nothing():
    world = World().run_until("DONE")
    assert world.status.success and world.asked("withdraw") == 0


@pytest.mark.parametrize("late", [False, True], ids=["", "after the safety table"])
def test_who_stops_this_stack_at_a_view_may_fly_with_another_program(late):
    world = World().run_until("HOLD")
    if late:
        world.edit[State] = lambda m: msgspec.structs.replace(m, valid=False)
        world.run_until("PX4_HOLD")
    world.mode, world.intended = FcuMode.POSCTL, FcuMode.OFFBOARD
    ask(world, OperatorAction.STOP_STREAMING).run(3.0)
    world.mode, world.foreign_stream = FcuMode.OFFBOARD, True
    world.run(8.0)
    assert world.phase == Phase.PX4_HOLD and world.asked("hold") == 0


def test_a_program_that_streams_when_a_person_stops_this_stack_is_not_held():
    world = World().run_until("HOLD")
    world.foreign_stream, world.intended = True, FcuMode.OFFBOARD
    ask(world, OperatorAction.STOP_STREAMING).run(1.5)
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, conflict="another sender")
    world.run(8.0)
    assert world.phase == Phase.PX4_HOLD and world.asked("hold") == 0


def test_nothing_takes_the_aircraft_back_from_a_pilot():
    world = World().run_until("HOLD")
    ask(world, OperatorAction.HOLD).run(1.0)
    world.mode = FcuMode.POSCTL
    ask(world, OperatorAction.GO_ON).run(0.05)  # in the same step in which the pilot takes over
    requests = world.asked("offboard")
    for action in OperatorAction:
        ask(world, action).run(1.0)
        assert world.phase == Phase.PILOT
    assert world.asked("offboard") == requests and world.mode == FcuMode.POSCTL


@pytest.mark.parametrize("action", [a for a in OperatorAction if a != OperatorAction.STOP_STREAMING])
def test_on_the_ground_nothing_begins(action):
    world = World(switch_plan()).run(2.0)
    ask(world, action).run(2.0)
    assert world.phase == Phase.WAIT_READY and not world.asked("arm") and not world.asked("offboard")
    assert any("refused" in text for text in texts(world))


def in_the_air_by_pilot() -> World:
    world = World(switch_plan()).run(2.0)
    world.pilot_takes_off()
    return world.run(1.0)


def test_start_needs_the_switch_and_passes_the_checks_of_the_switch():
    world = in_the_air_by_pilot()
    ask(world, OperatorAction.START).run(1.0)
    assert world.phase == Phase.WAIT_READY
    assert any("switch of the RC is not on" in text for text in texts(world))
    where = world.p
    world.p = (200.0, 0.0, 4.0)  # the switch is turned on outside of the fence: refused
    world.channel_us = ON_US
    world.run(1.0)
    ask(world, OperatorAction.START).run(0.5)
    assert world.phase == Phase.WAIT_READY
    assert sum("start refused" in text for text in texts(world)) == 2
    world.p = where
    world.run(1.0)
    assert world.phase == Phase.WAIT_READY
    ask(world, OperatorAction.START).run(0.1)
    assert world.phase == Phase.ENTER_OFFBOARD


def test_start_needs_a_movement_of_the_switch_that_is_a_persons():
    world = in_the_air_by_pilot()
    world.hands_on_sticks, world.channel_us = False, 1500
    world.run(0.5)
    world.channel_us = OFF_US
    world.run(2.0)
    world.channel_us = ON_US
    world.run(1.0)
    ask(world, OperatorAction.START).run(1.0)
    assert world.phase == Phase.WAIT_READY
    assert sum("refused: no stick moved" in text for text in texts(world)) == 2


def test_an_automatic_mission_says_why_start_does_nothing():
    world = World()
    world.landed = False
    ask(world.run(0.5), OperatorAction.START).run(0.1)
    assert any("start (by anna at the view): refused" in text for text in texts(world))


def test_old_invalid_and_future_requests_are_ignored_and_counted():
    world = World().run_until("HOLD")
    ask(world, OperatorAction.LAND, age_s=1.5)
    ask(world, OperatorAction.LAND, age_s=-5.0)
    ask(world, OperatorAction.LAND, age_s=math.nan)
    ask(world, OperatorAction.LAND, valid=False)
    world.run(1.0)
    assert world.phase == Phase.HOLD
    assert any(text.startswith("3 requests of the view ignored") for text in texts(world))
    assert world.node.errors == 1 and world.node.last_error == "operator_request has no time"


def test_a_flood_moves_nothing_to_and_fro_and_is_reported_seldom():
    world = World().run_until("HOLD")
    before = len(texts(world))
    for _ in range(200):
        for _ in range(50):
            ask(world, OperatorAction.HOLD)
            ask(world, OperatorAction.GO_ON)
        world.run(0.05)
    assert world.phase == Phase.PAUSE
    assert len(texts(world)) - before < 40
    ask(world, OperatorAction.STOP_STREAMING).run(0.1)  # not lost in the flood
    assert world.phase == Phase.PX4_HOLD


def test_the_strongest_of_several_requests_is_considered():
    world = World().run_until("HOLD")
    for action in STRENGTH:
        ask(world, action)
    world.run(0.05)
    assert world.phase == Phase.PX4_HOLD
    assert set(STRENGTH) == set(OperatorAction)


def test_a_name_that_is_no_name_is_shortened_and_plain():
    world = World().run_until("HOLD")
    request = OperatorRequest(stamp_s=world.now_s, action=OperatorAction.HOLD, who="\x1b[31m" + "x" * 500)
    world.node.handle(request, world.now_s)
    world.run(0.1)
    assert "\x1b" not in world.node.reason and len(world.node.reason) < 100

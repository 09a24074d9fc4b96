"""Whole missions in simulated time: they end as planned, or safely, and never act against the pilot."""

import math
from itertools import groupby

import msgspec
import pytest
from mission_world import FAR, OFF_US, ON_US, World, bridge_plan, face_plan, line_plan, site_world, switch_plan

from companion.control.trajectories import is_finite
from companion.core.enums import FcuMode, Phase, ProcessName, SafetyAction
from companion.core.frames import quat_from_rpy
from companion.core.messages import (
    ControlStatus,
    EstimatorStatus,
    FcuAttitude,
    FcuCommandAck,
    FcuStatus,
    Health,
    Markers,
    SentSetpoint,
    State,
)
from companion.core.trajectory_messages import Line, Move, Raster, Resumed
from companion.mission import conditions
from companion.mission import phases as ph
from companion.mission.conditions import SAFETY_DEMANDS
from companion.mission.curves import Curve
from companion.mission.entry_actions import DESCENT_END_M, ENTRY_ACTIONS
from companion.mission.phase_work import PHASE_WORK
from companion.mission.transitions import TRANSITIONS
from companion.mission.trends import WindTrend, balanced_W

NOMINAL = ["ARM", "TAKEOFF", "ENTER_OFFBOARD", "SEARCH", "APPROACH", "HOLD", "RETURN", "LAND", "DONE"]
REFUSABLE = ["arm", "takeoff", "offboard", "land"]
MODE_REQUESTS = ("arm", "takeoff", "offboard", "land", "hold", "return")


def airborne(phase: str) -> World:
    return World().run_until(phase)


def paused() -> World:
    world = World().run_until("HOLD")
    world.bundle_in_view = False
    return world.run_until("PAUSE")


def retreating() -> World:
    world = paused()
    return world.run_until("RETREAT")


REACH = {phase: (lambda phase=phase: airborne(phase)) for phase in NOMINAL[1:-1]} | {
    "TRANSFER": lambda: World(line_plan(), bundle_p_home=FAR).run_until("TRANSFER"),
    "TRAJECTORY": lambda: World(line_plan(), bundle_p_home=FAR).run_until("TRAJECTORY"),
    "INSPECT": lambda: site_world().run_until("INSPECT"),
    "PAUSE": paused,
    "RETREAT": retreating,
}


# --- the table ------------------------------------------------------------------------------------


def test_every_public_condition_is_used_in_the_table():
    used = {row.condition for row in TRANSITIONS}
    helpers = {conditions.may_arm_again}
    public = {
        function
        for name, function in vars(conditions).items()
        if not name.startswith("_")
        and getattr(function, "__module__", "") == conditions.__name__
        and callable(function)
    }
    assert public - helpers <= used and set(SAFETY_DEMANDS.values()) <= used


def test_phases_without_entry_action_or_work_are_the_ones_that_only_observe_or_end():
    assert set(Phase) - set(ENTRY_ACTIONS) == {Phase.DONE}
    assert set(ph.OBSERVING) <= set(PHASE_WORK) and Phase.FAILED not in PHASE_WORK


def test_no_row_leads_from_observing_to_anything_but_waiting_on_a_deliberate_act():
    rows = [row for row in TRANSITIONS if set(row.sources) & {*ph.OBSERVING}]
    assert [(row.condition, row.target) for row in rows] == [(conditions.switched_off, Phase.WAIT_READY)]
    assert set(rows[0].sources) == {*ph.OBSERVING, *ph.ENDED}


def test_every_controlling_phase_can_be_taken_by_the_pilot_and_stopped():
    for phase in ph.UNDER_WAY:
        targets = {row.condition: row.target for row in TRANSITIONS if phase in row.sources}
        assert targets[SAFETY_DEMANDS[SafetyAction.RELINQUISH]] == Phase.PILOT
        assert targets[SAFETY_DEMANDS[SafetyAction.STOP_STREAMING]] == Phase.PX4_HOLD


def test_all_phases_are_reachable_and_the_end_is_left_by_the_switch_only():
    reachable = {Phase.WAIT_READY}
    for _ in Phase:
        reachable |= {row.target for row in TRANSITIONS if reachable & set(row.sources)}
    assert reachable == set(Phase)
    ways_on = {phase: [r.condition for r in TRANSITIONS if phase in r.sources] for phase in ph.ENDED}
    assert all(found == [conditions.switched_off] for found in ways_on.values())


# --- a good flight --------------------------------------------------------------------------------


def test_whole_mission_runs_to_done_with_every_photograph():
    world = World().run_until("DONE")
    assert world.phases() == NOMINAL
    assert world.status.success and world.status.finished and world.status.photographs == 4
    assert [world.asked(a) for a in ("arm", "takeoff", "offboard", "land")] == [1, 1, 1, 1]
    assert world.landed and not world.armed and not world.events
    assert math.dist(world.p, world.home) < 0.1


@pytest.mark.parametrize(("gnss", "height_m"), [(True, None), (False, DESCENT_END_M)])
def test_without_gnss_and_with_the_bundle_in_sight_the_stack_sinks_itself_before_px4_lands(gnss, height_m):
    """PX4 lands without a fix by a velocity that drifts; with a fix it lands from the height of the return."""
    world = World()
    world.view_distance_m = 30.0
    world.run_until("HOLD")
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, gnss_ok=gnss)
    world.run_until("LAND")
    assert world.p[2] - world.home[2] == pytest.approx(height_m or world.plan.return_.height_m, abs=0.15)
    assert math.dist(world.p[:2], world.home[:2]) < 0.2
    world.run_until("DONE")
    assert world.asked("land") == 1


def test_hold_is_at_the_standoff_point_facing_the_bundle_for_the_planned_time():
    world = World().run_until("HOLD")
    began_s = world.now_s
    assert world.p == pytest.approx((world.home[0] + 9.0, world.home[1], world.home[2] + 4.0), abs=0.05)
    assert world.yaw == pytest.approx(world.facing_yaw(), abs=0.02)
    world.run_until("RETURN")
    assert world.now_s - began_s == pytest.approx(10.0, abs=0.2)
    held = [s for s in world.statuses if s.phase == "HOLD"]
    assert len(held) >= 95  # 10 Hz


def test_references_come_at_ten_hertz_or_more_and_never_jump():
    world = World().run_until("LAND")
    times = [t for t, _ in world.references]
    assert max(b - a for a, b in zip(times, times[1:], strict=False)) < 0.1
    assert max(world.reference_jumps_m) < 0.06  # 1 m/s in 50 ms
    ids = [r.id for _, r in world.references]
    assert ids == sorted(ids)


def test_offboard_is_requested_only_after_references_streamed_long_enough():
    world = World().run_until("SEARCH")
    first_s = world.references[0][0]
    asked_s = next(c.stamp_s for c in world.commands if c.action == "offboard")
    assert asked_s - first_s >= 1.5


def test_every_transition_is_reported_to_the_ground_station_with_its_reason():
    world = World().run_until("DONE")
    texts = [c.text for c in world.commands if c.action == "text"]
    assert texts == [f"{phase}: {reason}" for phase, reason in world.log]
    assert all(c.text.split(": ", 1)[1] for c in world.commands if c.action == "text")


def test_approach_is_flown_in_the_frame_of_the_bundle_and_return_in_the_world():
    world = World().run_until("DONE")
    frames = {type(r.trajectory).__name__ + " " + r.frame for _, r in world.references}
    assert frames == {"Hold world", "Move world", "Move pier", "Hold pier"}


def test_hold_follows_a_bundle_estimate_that_moves():
    world = World().run_until("HOLD")
    world.p_WM = (world.p_WM[0] + 0.3, *world.p_WM[1:])
    world.run(1.0)
    assert world.p[0] - world.home[0] == pytest.approx(9.3, abs=0.02)


def test_take_off_that_px4_calls_complete_a_little_low_is_good_enough():
    world = World().run_until("TAKEOFF").run(0.5)
    world.takeoff_height_m = 3.0  # the heights of PX4 and the estimator differ by a metre
    world.run_until("DONE")
    assert world.status.success


def test_second_waypoint_is_flown_when_nothing_is_seen_from_the_first():
    plan = bridge_plan()
    waypoint = type(plan.search.waypoints[0])
    points = [waypoint(p_m=(0.0, 3.0, 4.0), yaw_rad=0.0), waypoint(p_m=(7.0, 0.0, 4.0), yaw_rad=0.0)]
    search = msgspec.structs.replace(plan.search, waypoints=points, timeout_s=3.0)
    world = World(bridge_plan(search=search)).run_until("DONE")
    assert world.status.success
    moves = [r.trajectory.p_end for _, r in world.references if r.frame == "world" and isinstance(r.trajectory, Move)]
    ends = [p for p, _ in groupby(tuple(round(a - b, 2) for a, b in zip(p, world.home, strict=True)) for p in moves)]
    # The stop at the hand-over, out, and the same path in return.
    assert ends == [(0.0, 0.0, 4.0), (0.0, 3.0, 4.0), (7.0, 0.0, 4.0), (0.0, 3.0, 4.0), (0.0, 0.0, 4.0)]


def test_hold_begins_only_after_a_second_near_the_point():
    world = World().run_until("APPROACH")
    error = {"m": 0.2}
    world.edit[ControlStatus] = lambda m: msgspec.structs.replace(m, position_error_m=error["m"])
    world.run(25.0)
    for _ in range(4):
        error["m"] = 0.1
        world.run(0.9)
        error["m"] = 0.2
        world.run(0.1)
    assert world.phase == "APPROACH"
    error["m"] = 0.1
    world.run(1.1)
    assert world.phase == "HOLD"


def test_approach_that_never_settles_goes_home():
    world = World().run_until("APPROACH")
    world.edit[ControlStatus] = lambda m: msgspec.structs.replace(m, position_error_m=0.2)
    world.run_until("DONE")
    assert "HOLD" not in world.phases() and any("did not settle" in reason for _, reason in world.log)


def test_references_go_on_until_px4_lands_and_stop_then():
    world = World().run_until("LAND")
    world.run(0.1)
    assert world.mode == "AUTO_LAND"
    world.run(0.3)
    references = len(world.references)
    world.run(1.0)
    assert len(world.references) == references
    world = World()
    world.ignore.add("land")
    world.run_until("LAND").run(2.0)
    assert world.now_s - world.references[-1][0] < 0.1 and world.mode == "OFFBOARD"


# --- photographs ----------------------------------------------------------------------------------


def test_photographs_that_never_come_are_requested_again_and_counted_as_missed():
    world = World()
    world.photographs_work = False
    world.run_until("DONE")
    assert world.status.photographs == 0 and not world.status.success
    assert len({request.id for _, request in world.photo_requests}) == len(world.photo_requests) >= 4
    assert any("0 of 4 photographs" in reason for _, reason in world.log)
    assert world.status.cause == "0 of 4 photographs taken"


def test_no_photograph_is_taken_while_the_aircraft_is_away_from_its_point():
    world = World().run_until("HOLD")
    world.edit[ControlStatus] = lambda m: msgspec.structs.replace(m, position_error_m=0.5)
    world.run(4.0)
    assert not world.photo_requests
    del world.edit[ControlStatus]
    world.run_until("DONE")
    assert world.status.photographs == 4


@pytest.mark.parametrize(("plan", "holds"), [(bridge_plan, 1), (switch_plan, 0)], ids=["auto", "rc_switch"])
def test_a_landed_aircraft_leaves_offboard_unless_a_pilot_chooses_its_modes(plan, holds):
    """PX4 returns to OFFBOARD in disarming, from which it neither arms nor starts a mission again."""
    world = World(plan())
    if plan is switch_plan:
        start_by_switch(world)

    def back_to_offboard(status):
        if world.phase == "DONE" and not world.asked("hold"):
            return msgspec.structs.replace(status, mode="OFFBOARD")
        return status

    world.edit[FcuStatus] = back_to_offboard
    world.run_until("DONE").run(5.0)
    assert world.asked("hold") == holds and world.status.success


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("silent", [False, True], ids=["denied", "unanswered"])
@pytest.mark.parametrize("action", REFUSABLE)
def test_every_refused_command_ends_safely(action, silent):
    world = World()
    (world.ignore if silent else world.refuse).add(action)
    world.run(120.0)
    assert not world.status.success
    expected = {"arm": "FAILED", "takeoff": "FAILED", "offboard": "DONE", "land": "PX4_HOLD"}[action]
    assert world.phase == expected
    assert world.asked(action) == (2 if action == "land" else 1)
    if action != "land":
        assert world.landed and not world.armed and world.status.finished
    assert world.now_s - world.references[-1][0] > 1.0 if world.references else True


def refuse_arming(world, reason):
    """PX4 is not ready to arm yet; returns a function that makes it ready."""
    world.ignore.add("arm")
    state = {"ready": False}

    def answer(status):
        for command in [c for c in world.commands if c.action == "arm"][state.get("answered", 0) :]:
            state["answered"] = state.get("answered", 0) + 1
            if state["ready"]:
                world.armed = True
            ack = FcuCommandAck(
                stamp_s=world.now_s, id=command.id, accepted=state["ready"], reason=reason, temporary=not state["ready"]
            )
            assert list(world.node.handle(ack, world.now_s)) == []
        return status

    world.edit[FcuStatus] = answer
    return lambda: state.update(ready=True)


def test_arming_that_px4_refuses_temporarily_is_requested_again_until_it_is_ready():
    world = World()
    make_ready = refuse_arming(world, "temporarily rejected (not in order: compass)")
    world.run_until("ARM").run(9.0)
    assert world.phase == "ARM" and 4 <= world.asked("arm") <= 6
    make_ready()
    world.run_until("TAKEOFF", limit_s=3.0)
    world.run_until("DONE")
    assert world.status.success


def test_arming_that_stays_refused_ends_with_px4s_reason():
    world = World()
    refuse_arming(world, "temporarily rejected (not in order: compass)")
    world.run_until("FAILED", limit_s=60.0)
    assert "not in order: compass" in world.status.reason and world.asked("takeoff") == 0
    asked = world.asked("arm")
    assert world.run(20.0).asked("arm") == asked


def test_arming_is_not_requested_again_while_a_check_fails():
    world = World()
    refuse_arming(world, "temporarily rejected")
    world.run_until("ARM").run(1.0)
    world.edit[State] = lambda state: None
    asked = world.asked("arm")
    assert world.run(10.0).asked("arm") == asked


def test_refused_offboard_in_the_pilots_flight_leaves_it_to_px4_and_the_pilot():
    world = World(switch_plan())
    world.refuse.add("offboard")
    start_by_switch(world)
    world.run(20.0)
    assert world.phase == "PX4_HOLD" and world.asked("offboard") == 1 and world.asked("land") == 0
    assert world.mode == "POSCTL"


def test_controller_that_never_sends_means_landing_without_offboard():
    world = World()
    world.controller_dead = True
    world.run_until("DONE")
    assert world.asked("offboard") == 0 and not world.status.success


def test_take_off_that_does_not_climb_ends_on_the_ground():
    world = World().run_until("TAKEOFF")
    world.mode = "AUTO_LOITER"  # accepted, but nothing happens
    world.run(40.0)
    assert world.phase in ("FAILED", "DONE") and not world.armed


# --- bundle lost or never found -------------------------------------------------------------------


def test_bundle_never_found_means_return_and_land():
    world = World()
    world.bundle_in_view = False
    world.run_until("DONE")
    assert world.phases() == ["ARM", "TAKEOFF", "ENTER_OFFBOARD", "SEARCH", "RETURN", "LAND", "DONE"]
    assert not world.status.success and math.dist(world.p, world.home) < 0.1


def test_a_glimpse_is_not_a_confirmation():
    world = World().run_until("SEARCH")
    world.run(8.0)  # at the waypoint, or nearly
    world = World()
    world.bundle_in_view = False
    world.run_until("SEARCH").run(12.0)
    for _ in range(5):
        world.bundle_in_view = True
        world.run(0.3)
        world.bundle_in_view = False
        world.run(1.0)
    assert world.phase == "SEARCH"


def test_a_bundle_seen_once_does_not_count_as_seen_for_ever():
    world = World().run_until("SEARCH")
    while not world.in_view():
        world.step()
    world.bundle_in_view = False
    world.run(15.0)
    assert world.phase == "SEARCH"


def test_bundle_lost_in_hold_means_stay_then_back_away_then_home():
    world = World().run_until("HOLD")
    world.run(2.0)
    world.bundle_in_view = False
    lost_s = world.now_s
    world.run_until("PAUSE")
    assert world.now_s - lost_s == pytest.approx(3.0, abs=0.2)  # safety.marker_lost_s
    here = world.p
    world.run_until("RETREAT")
    assert math.dist(here, world.p) < 0.05
    world.run_until("RETURN")
    assert world.p[0] == pytest.approx(here[0] - 2.0, abs=0.1)  # the pier is in the east
    world.run_until("DONE")
    assert not world.status.success


def test_bundle_lost_for_a_moment_does_not_end_the_hold():
    world = World().run_until("HOLD")
    world.bundle_in_view = False
    world.run(2.0)
    world.bundle_in_view = True
    world.run_until("DONE")
    assert world.phases() == NOMINAL and world.status.success


def test_bundle_found_again_resumes_the_hold_for_what_is_left_of_it():
    world = World().run_until("HOLD")
    world.run(4.0)
    world.bundle_in_view = False
    world.run_until("PAUSE").run(1.0)
    world.bundle_in_view = True
    world.run_until("HOLD")
    again_s = world.now_s
    world.run_until("RETURN")
    assert world.now_s - again_s < 4.0
    world.run_until("DONE")
    assert world.status.success and world.status.photographs == 4


def test_a_bundle_that_comes_and_goes_too_often_ends_the_mission():
    world = World(bridge_plan(hold=msgspec.structs.replace(bridge_plan().hold, duration_s=600.0))).run_until("HOLD")
    for _ in range(6):
        world.bundle_in_view = False
        world.run_until("PAUSE").run(1.0)
        world.bundle_in_view = True
        world.run(5.0)
    world.run_until("DONE")
    assert world.phases().count("PAUSE") == 6 and any("interrupted too often" in r for _, r in world.log)


def test_interruption_at_the_end_of_the_search_still_goes_home():
    world = World()
    world.bundle_in_view = False
    world.run_until("SEARCH")
    while world.node.waypoint == 0:
        world.step()
    world.edit[Health] = lambda m: None
    silent = msgspec.structs.replace(world.health(ProcessName.TRACKER), stamp_s=world.now_s - 4.0)
    world.node.handle(silent, world.now_s)  # a monitor that acts at once, in the one step after the last waypoint
    world.step()
    assert world.phase == "PAUSE"
    world.edit.clear()
    world.run_until("DONE")
    assert world.phases()[-5:] == ["PAUSE", "SEARCH", "RETURN", "LAND", "DONE"]


def test_a_standoff_point_in_the_ground_is_not_approached():
    plan = bridge_plan()
    low = msgspec.structs.replace(
        plan.standoff, offset_M=(0.0, -4.5, 3.0)
    )  # the bundle hangs 4 m over the take-off point
    world = World(bridge_plan(standoff=low)).run_until("DONE")
    assert "APPROACH" not in world.phases() and not world.status.success
    assert world.status.cause.startswith("the stand-off point is not allowed (lower than limits.height_min_m = 0.5 m")


def test_an_aircraft_that_hangs_too_low_is_not_taken_over():
    world = World(switch_plan()).run(2.0)
    world.pilot_takes_off(0.4)
    world.run(2.0)
    world.channel_us = ON_US
    world.run(1.0)
    assert world.phase == "WAIT_READY"
    assert any(c.text.startswith("start refused: lower than limits.height_min_m") for c in world.commands)


def test_standoff_point_outside_the_fence_is_not_approached():
    world = World(bundle_p_home=(14.6, 0.0, 4.0))
    world.run_until("DONE")
    assert "APPROACH" not in world.phases()
    assert any("stand-off point: outside the fence" in reason for _, reason in world.log)


# --- pilot and PX4 --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["POSCTL", "MANUAL", "AUTO_RTL"])
@pytest.mark.parametrize("phase", REACH)
def test_takeover_in_any_phase_is_final(phase, mode):
    world = REACH[phase]()
    world.run(0.2)
    world.mode = mode
    asked = [c for c in world.commands if c.action in MODE_REQUESTS]
    world.run(0.3)
    assert world.phase == "PILOT"
    references = len(world.references)
    for later in (mode, "OFFBOARD", "AUTO_LOITER", "POSCTL"):  # whatever the pilot does next
        world.mode = later
        world.run(3.0)
    assert world.phase == "PILOT" and len(world.references) == references
    assert [c for c in world.commands if c.action in MODE_REQUESTS] == asked
    world.mode, world.landed, world.armed = "POSCTL", True, False
    world.run(3.0)
    assert world.status.finished and not world.status.success and world.asked("arm") == 1


TAKEN = {phase: REACH[phase] for phase in ("TAKEOFF", "ENTER_OFFBOARD", "LAND")}


@pytest.mark.parametrize("refused", [(), ("hold",)], ids=["", "hold refused"])
@pytest.mark.parametrize("phase", TAKEN)
def test_an_offboard_that_was_not_requested_is_another_sender_and_no_pilot(phase, refused):
    """It was called a pilot's mode change: nothing was requested, and PX4 stayed on the other stream."""
    world = TAKEN[phase]()
    world.run(0.2)
    world.refuse = set(refused)
    before, lines = len(world.commands), len(world.events)
    world.mode, world.foreign_stream = "OFFBOARD", True
    world.run(10.0)
    requests = [c.action for c in world.commands[before:] if c.action in MODE_REQUESTS]
    assert world.phase == "PILOT" and requests == (["hold", "land"] if refused else ["hold"])
    texts = [c.text for c in world.commands[before:] if c.text]
    assert "PX4 is in offboard, which this stack did not request" in world.status.cause
    assert not any("pilot" in text.replace("PILOT", "") for text in texts), texts
    assert [e.monitor for e in world.events[lines:]][0] == "conflict"


def lose_link(world: World) -> World:
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, connected=False, valid=False)
    return world


def in_conflict() -> World:
    """A second companion streams, and PX4 was asked to hold."""
    world = REACH["SEARCH"]()
    world.foreign_stream = True
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, conflict="another sender")
    world.run(0.3)
    assert world.phase == "PILOT" and world.asked("hold") == 1
    return world


@pytest.mark.parametrize("after_s", [0.5, 6.0, 30.0])
def test_a_sender_that_enters_offboard_from_our_hold_is_held_each_time(after_s):
    """Programs stream first, request offboard then, and repeat it: with two repeats one of them flew 38 m past the face."""
    world = in_conflict()
    for count in range(1, 6):
        world.mode = "AUTO_LOITER"  # by our request
        world.run(after_s)
        world.mode = "OFFBOARD"
        world.run(0.2)
        assert world.asked("hold") == 1 + count
    assert any("entered offboard again" in c.text for c in world.commands)


@pytest.mark.parametrize("lost_s", [0.2, 1.5, 8.0])
def test_a_hold_that_a_lost_link_swallowed_is_requested_again(lost_s):
    """The link failed with the request: its failure was taken for PX4's refusal, Land went nowhere, then silence."""
    world = in_conflict()
    hold = next(c for c in reversed(world.commands) if c.action == "hold")
    in_conflict_then = world.edit[FcuStatus]
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(
        m, conflict="another sender", connected=False, valid=False
    )
    world.run(0.1)
    lost = FcuCommandAck(stamp_s=world.now_s, id=hold.id, accepted=False, reason="link to the flight controller lost")
    world.node.handle_fcu_command_ack(lost, world.now_s)
    world.run(lost_s)
    assert world.asked("hold") == 1 and world.asked("land") == 0
    world.edit[FcuStatus] = in_conflict_then
    world.run(0.3)
    assert world.asked("hold") == 2 and any("the link is back" in c.text for c in world.commands)
    world.mode = "AUTO_LOITER"
    world.run(6.0)
    assert world.asked("hold") == 2 and world.asked("land") == 0


def test_a_link_that_comes_back_in_another_mode_requests_nothing():
    world = in_conflict()
    in_conflict_then = world.edit[FcuStatus]
    lose_link(world).run(2.0)
    world.mode = "POSCTL"
    world.edit[FcuStatus] = in_conflict_then
    world.run(6.0)
    assert world.asked("hold") == 1 and world.asked("land") == 0


def test_a_person_who_chose_a_mode_is_not_held_when_the_link_comes_back():
    """Without a look at what was seen before, a link lost within the seconds after it asked for Hold against the person."""
    world = in_conflict()
    in_conflict_then = world.edit[FcuStatus]
    world.mode = "POSCTL"
    world.run(1.0)
    lose_link(world).run(1.0)
    world.mode = "OFFBOARD"
    world.edit[FcuStatus] = in_conflict_then
    world.run(6.0)
    assert world.asked("hold") == 1 and world.asked("land") == 0


@pytest.mark.parametrize("mode", ["POSCTL", "AUTO_RTL"])
def test_after_another_mode_than_our_hold_nothing_more_is_requested(mode):
    """A person has the aircraft; the crew reads that the other sender flies it again."""
    world = in_conflict()
    world.mode = "AUTO_LOITER"
    world.run(1.0)
    world.mode = mode
    world.run(1.0)
    before = len(world.commands)
    world.mode = "OFFBOARD"
    world.run(0.2)
    said = [(c.text, c.severity) for c in world.commands[before:]]
    assert [("follows the other sender" in text, severity) for text, severity in said] == [(True, 2)]
    assert len(world.run(10.0).commands) == before + 1 and world.asked("hold") == 1


def test_the_mission_switch_turned_off_ends_no_protection_from_another_sender():
    """A pilot who sees the conflict turns the switch off: the mission was ready for the next start, and Hold was over."""
    world = World(switch_plan())
    start_by_switch(world)
    world.run_until("HOLD").run(1.0)
    world.foreign_stream = True
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, conflict="another sender")
    world.run(0.3)
    assert world.phase == "PILOT" and world.asked("hold") == 1
    world.mode, world.channel_us = "AUTO_LOITER", OFF_US
    world.run(1.0)
    world.mode = "OFFBOARD"
    world.run(0.3)
    assert world.asked("hold") == 2
    world.mode = "AUTO_LOITER"
    assert world.run(6.0).phase == "PILOT"
    world.mode = "POSCTL"
    assert world.run(1.0).phase == "WAIT_READY"


def test_switch_off_while_another_stream_keeps_px4_in_offboard_requests_hold():
    """PX4 has another sender to follow alone then; the flight controller's echo shows it 1.5 s later."""
    world = World(switch_plan())
    start_by_switch(world)
    world.run_until("HOLD").run(1.0)
    world.foreign_stream = True
    world.channel_us = OFF_US
    world.run(2.0)
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, conflict="another sender")
    world.run(0.3)
    assert world.phase == "PILOT" and world.asked("hold") == 1
    world.mode = "AUTO_LOITER"
    assert world.run(6.0).phase == "PILOT" and world.asked("hold") == 1
    world.mode = "POSCTL"
    assert world.run(1.0).phase == "WAIT_READY" and world.asked("hold") == 1


def test_a_pilot_who_lands_and_takes_off_elsewhere_gives_a_new_take_off_point():
    """The switch stayed on over the landing: limits, guard and way home were counted from the first take-off."""
    world = World(switch_plan())
    start_by_switch(world)
    world.run_until("HOLD").run(1.0)
    world.mode = "POSCTL"
    world.run(1.0)
    x, y, z = world.home
    world.p, world.landed = (x + 3.0, y - 5.0, z + 1.5), True
    world.run(1.0)
    world.armed = False
    world.run(5.0)
    assert world.phase == "PILOT"
    world.home = world.p
    world.pilot_takes_off()
    world.channel_us = OFF_US
    world.run(1.5)
    world.channel_us = ON_US
    world.run_until("ENTER_OFFBOARD")
    raw = world.node.snapshot(world.now_s).raw
    assert raw is not None and math.dist(raw.p, (0.0, 0.0, 4.0)) < 0.01
    world.run_until("LAND")
    assert math.dist(world.p[:2], world.home[:2]) < 0.2


def test_an_aircraft_that_is_armed_in_an_offboard_not_requested_is_held():
    world = World()
    world.ignore = {"arm"}
    world.run_until("ARM")
    world.run(0.2)
    world.mode, world.foreign_stream = "OFFBOARD", True  # possible while disarmed
    world.run(0.2)
    world.armed = True
    world.run(0.3)
    assert world.phase == "PILOT" and world.asked("hold") == 1 and world.asked("takeoff") == 0


def test_offboard_by_the_pilots_mode_switch_in_a_mission_by_switch_is_in_order():
    """The stack streams then, and requests the same mode."""
    world = World(switch_plan())
    start_by_switch(world)
    world.run_until("ENTER_OFFBOARD").run(0.5)
    world.mode = "OFFBOARD"
    assert world.run_until("SEARCH").asked("hold") == 0


@pytest.mark.parametrize("phase", TAKEN)
def test_a_second_sender_whose_setpoints_px4_does_not_follow_ends_no_landing_by_px4(phase):
    """In PX4's own modes its stream has no effect: offboard is refused, and the aircraft lands."""
    world = TAKEN[phase]()
    world.refuse = {"offboard"}
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, conflict="another sender")
    world.run_until("DONE")
    assert world.asked("hold") == 0 and world.asked("land") == 1


def stopped(mode: str) -> World:
    """The stream has ended without a person, and PX4 is in a mode of its failsafe, or in offboard on another stream."""
    world = REACH["HOLD"]()
    world.edit[State] = lambda m: msgspec.structs.replace(m, valid=False)
    world.run_until("PX4_HOLD")
    world.mode, world.intended, world.foreign_stream = mode, "OFFBOARD", True
    return world


def test_after_stopped_setpoints_another_senders_offboard_is_held_once():
    """PX4's failsafe does not act while another stream lasts."""
    world = stopped("OFFBOARD").run(1.5)
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, conflict="another sender")
    world.run(8.0)
    assert world.phase == "PX4_HOLD" and world.asked("hold") == 1


def conflict(world: World) -> World:
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, conflict="another sender")
    return world


@pytest.mark.parametrize("after_s", [0.5, 6.0, 30.0])
@pytest.mark.parametrize("modes", [["POSCTL"], ["AUTO_LOITER"], ["POSCTL", "ALTCTL"], ["AUTO_LOITER", "AUTO_RTL"]])
def test_another_sender_that_takes_offboard_from_px4s_failsafe_is_held_each_time(modes, after_s):
    """It was called another's business: a second companion flew 3.2 m beyond a limit."""
    world = stopped(modes[0]).run(after_s)
    for mode in modes[1:]:  # the failsafe goes on: its position, its time, RC
        world.mode = mode
        world.run(after_s)
    for count in range(1, 4):
        world.mode = "OFFBOARD"
        world.run(0.2)
        assert world.asked("hold") == count
        world.mode, world.intended = "AUTO_LOITER", None
        world.run(after_s)
    assert world.phase == "PX4_HOLD" and world.asked("land") == 0 and world.asked("hold") == 3


@pytest.mark.parametrize("chosen", ["AUTO_RTL", "ALTCTL", "UNKNOWN", "POSCTL"])
@pytest.mark.parametrize("for_s", [0.05, 1.0])
def test_an_offboard_after_a_mode_that_a_person_chose_is_not_held(chosen, for_s):
    """Also the very mode that the failsafe flies, and one that no status shows: PX4 reports each change."""
    world = stopped("POSCTL").run(1.5)
    world.mode, world.intended = chosen, chosen if for_s > 0.1 else "OFFBOARD"
    world.intended_changes += 0 if for_s > 0.1 else 2
    world.run(for_s)
    world.mode, world.intended = "OFFBOARD", None
    conflict(world).run(12.0)
    assert world.phase == "PX4_HOLD" and world.asked("hold") == 0 and world.asked("land") == 0


def test_without_a_report_of_the_intended_mode_an_offboard_after_the_failsafe_is_not_held():
    world = stopped("POSCTL")
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, intended_mode=None)
    world.run(1.5)
    world.mode = "OFFBOARD"
    assert world.run(12.0).asked("hold") == 0


@pytest.mark.parametrize("lost_s", [3.0, 60.0])
def test_what_was_chosen_while_the_link_was_lost_is_not_held(lost_s):
    world = stopped("POSCTL").run(1.0)
    lose_link(world).run(lost_s)
    world.mode = "OFFBOARD"
    conflict(world).run(12.0)
    assert world.asked("hold") == 0


@pytest.mark.parametrize(
    "missing", [lambda m: None, lambda m: msgspec.structs.replace(m, connected=False, valid=False)]
)
def test_a_second_without_the_link_or_its_process_ends_no_protection(missing):
    """No person chooses a mode, and then offboard, in so short a time."""
    world = stopped("POSCTL").run(1.0)
    world.edit[FcuStatus] = missing
    world.run(1.2)
    world.edit.pop(FcuStatus)
    world.run(2.0)
    world.mode = "OFFBOARD"
    assert world.run(0.2).asked("hold") == 1


def test_another_sender_that_no_echo_shows_is_held_by_the_mode_alone():
    """PX4 echoes no body rates: it stayed in offboard on them for as long as they came."""
    world = stopped("OFFBOARD").run(4.0)
    assert world.asked("hold") == 1 and world.asked("land") == 0


def test_a_mode_that_was_reported_before_px4s_failsafe_acts_says_nothing_of_another_sender():
    """The report of the pilot's own mode is late: Hold would have been requested against him."""
    world = stopped("OFFBOARD")
    reported_s = world.now_s
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, mode_s=reported_s)
    assert world.run(3.0).asked("hold") == 0


def test_a_hold_that_px4_did_not_hear_is_requested_until_it_does():
    """What reaches this stack may not reach PX4: after one Hold and one Land nothing was requested any more."""
    world = REACH["HOLD"]()
    world.foreign_stream, world.ignore = True, {"hold", "land"}
    conflict(world).run(0.3)
    for count in range(1, 6):
        hold = next(c for c in reversed(world.commands) if c.action == "hold")
        assert world.asked("hold") == count and world.asked("land") == 0
        world.node.handle_fcu_command_ack(
            FcuCommandAck(stamp_s=world.now_s, id=hold.id, accepted=False, reason="no answer", heard=False), world.now_s
        )
        world.run(1.5)
    world.mode = "POSCTL"  # a person
    assert world.run(10.0).asked("hold") == 6


def test_the_mission_switch_turned_off_after_our_hold_ends_no_protection_there_either():
    world = World(switch_plan())
    start_by_switch(world)
    world.run_until("HOLD").run(1.0)
    world.edit[State] = lambda m: msgspec.structs.replace(m, valid=False)
    world.run_until("PX4_HOLD")
    world.mode, world.intended, world.foreign_stream = "POSCTL", "OFFBOARD", True
    world.run(1.0)
    world.mode = "OFFBOARD"
    world.run(0.2)
    world.mode, world.intended, world.channel_us = "AUTO_LOITER", None, OFF_US
    world.edit.pop(State)
    world.run(1.0)
    world.mode = "OFFBOARD"
    assert world.run(0.3).asked("hold") == 2
    world.mode = "POSCTL"
    assert world.run(1.0).phase == "WAIT_READY"


@pytest.mark.parametrize("what", [{"battery_voltage_v": 12.0}, {"clipping_hz": 1000.0}])
def test_no_landing_is_requested_against_a_pilot_who_still_flies_at_the_hand_over(what):
    world = World(switch_plan())
    start_by_switch(world)
    world.run_until("ENTER_OFFBOARD")
    world.controller_dead = True
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, **what)
    world.run(7.0)
    assert world.mode == "POSCTL" and world.asked("land") == 0


def test_an_aircraft_with_an_empty_battery_is_not_taken_over():
    world = World(switch_plan())
    start_by_switch(world)
    world.run_until("ENTER_OFFBOARD")
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, battery_voltage_v=12.0)
    world.run(12.0)
    assert world.phase == "PX4_HOLD" and world.asked("offboard") == world.asked("land") == 0
    assert "battery critical (12.0 V, limit 13)" in world.status.cause


def test_every_request_names_the_mode_by_which_it_was_decided():
    world = World().run_until("DONE")
    modes = {c.action: c.mode for c in world.commands if c.action != "text"}
    assert modes["land"] == "OFFBOARD" and modes["offboard"] in ("AUTO_TAKEOFF", "AUTO_LOITER")


def test_an_offboard_of_the_next_flight_is_not_held():
    world = stopped("AUTO_LAND").run(3.0)
    world.armed, world.landed = False, True
    world.run(3.0)
    world.mode, world.armed, world.landed = "OFFBOARD", True, False
    world.run(3.0)
    assert world.asked("hold") == 0


def test_a_lost_hold_is_not_requested_in_a_flight_after_a_long_loss_of_the_link():
    world = in_conflict()
    lose_link(world).run(60.0)
    conflict(world).run(6.0)
    assert world.asked("hold") == 1 and world.asked("land") == 0


def test_a_pilots_own_program_is_not_held_when_this_stack_never_flew():
    """The controller sends nothing, the hand-over fails, and the pilot had the aircraft all the time."""
    world = World(switch_plan()).run(2.0)
    world.pilot_takes_off()
    world.controller_dead = True
    world.run(1.0)
    world.channel_us = ON_US
    world.run_until("PX4_HOLD").run(1.0)
    world.mode, world.foreign_stream = "OFFBOARD", True
    world.run(5.0)
    assert world.phase == "PX4_HOLD" and world.asked("hold") == 0


def test_the_hold_against_a_sender_from_the_failsafe_is_requested_again_after_a_lost_link():
    world = stopped("POSCTL").run(1.0)
    world.mode, world.refuse = "OFFBOARD", {"hold"}
    world.ignore = {"hold"}
    world.run(0.1)
    assert world.asked("hold") == 1
    lose_link(world).run(1.5)
    world.edit.pop(FcuStatus)
    world.run(0.3)
    assert world.asked("hold") == 2


def test_a_failsafe_between_two_offboards_of_the_other_sender_is_no_person():
    """Its stream stutters before our Hold has an effect: PX4 leaves offboard by itself for a moment."""
    world = in_conflict()
    world.mode, world.intended = "POSCTL", "OFFBOARD"
    world.run(0.5)
    world.mode = "OFFBOARD"
    world.run(0.2)
    assert world.asked("hold") == 2


def test_land_is_not_requested_after_a_late_refusal_when_a_person_chose_a_mode():
    world = TAKEN["TAKEOFF"]()
    world.run(0.2)
    world.ignore = {"hold"}
    world.mode, world.foreign_stream = "OFFBOARD", True
    world.run(0.3)
    hold = next(c for c in reversed(world.commands) if c.action == "hold")
    world.mode = "POSCTL"
    world.run(0.5)
    world.mode = "OFFBOARD"
    world.run(0.2)
    world.node.handle_fcu_command_ack(
        FcuCommandAck(stamp_s=world.now_s, id=hold.id, accepted=False, reason="denied"), world.now_s
    )
    world.run(5.0)
    assert world.asked("hold") == 1 and world.asked("land") == 0


@pytest.mark.parametrize("lost", [False, True], ids=["seen", "by a lost link"])
@pytest.mark.parametrize("refused", [(), ("hold",)], ids=["", "hold refused"])
def test_after_our_hold_nothing_is_requested_in_the_next_flight(lost, refused):
    """An offboard that is selected before arming is the usual order of programs."""
    world = REACH["SEARCH"]()
    world.refuse, world.foreign_stream = set(refused), True
    conflict(world).run(4.0)
    world.mode, world.foreign_stream = "AUTO_LAND" if refused else "AUTO_LOITER", False
    world.run(3.0)
    asked = world.asked("hold"), world.asked("land")
    if lost:
        lose_link(world)
    world.landed, world.armed = True, False
    world.run(60.0)
    conflict(world)
    world.mode, world.armed, world.landed, world.foreign_stream = "OFFBOARD", True, False, True
    world.run(6.0)
    assert (world.asked("hold"), world.asked("land")) == asked == (1, len(refused))


def test_a_choice_that_the_link_shows_when_it_is_back_is_not_held():
    world = in_conflict()
    lose_link(world).run(2.0)
    world.intended_changes += 2
    conflict(world).run(6.0)
    assert world.asked("hold") == 1 and world.asked("land") == 0


def test_a_failsafe_out_of_our_hold_is_no_person():
    """RC or battery: PX4 returns, and was still asked for our Hold."""
    world = in_conflict()
    world.mode = "AUTO_LOITER"
    world.run(1.0)
    world.mode, world.intended = "AUTO_RTL", "AUTO_LOITER"
    world.run(2.0)
    world.mode, world.intended = "OFFBOARD", None
    world.run(0.2)
    assert world.asked("hold") == 2


def test_a_report_of_the_intended_mode_that_is_missing_for_a_moment_ends_nothing():
    world = stopped("POSCTL").run(1.0)
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, intended_mode=None)
    world.run(0.3)
    world.edit.pop(FcuStatus)
    world.run(1.0)
    world.mode = "OFFBOARD"
    assert world.run(0.2).asked("hold") == 1


def test_a_link_that_comes_and_goes_storms_nothing():
    world = in_conflict()
    before = len([c for c in world.commands if c.text])
    for _ in range(30):
        lose_link(world).run(0.2)
        conflict(world).run(0.2)
    assert world.asked("hold") <= 25 and len([c for c in world.commands if c.text]) - before < 12


def test_a_sender_that_enters_offboard_again_and_again_fills_no_ground_station():
    world = in_conflict()
    before = len([c for c in world.commands if c.text])
    for _ in range(60):
        world.mode = "AUTO_LOITER"
        world.run(0.1)
        world.mode = "OFFBOARD"
        world.run(0.1)
    assert len([c for c in world.commands if c.text]) - before < 10 and world.asked("hold") > 30


def test_the_message_of_a_takeover_says_which_mode_was_seen_and_whose_it_is():
    for mode, words in (("POSCTL", "POSCTL, flown by the sticks"), ("AUTO_RTL", "AUTO_RTL, by PX4, RC or a ground")):
        world = REACH["HOLD"]()
        world.mode = mode
        world.run(0.3)
        texts = [event.text for event in world.events if event.monitor == "rc_takeover" and event.active]
        assert len(texts) == 1 and words in texts[0] and words in world.status.cause


@pytest.mark.parametrize("mode, ends", [("AUTO_LOITER", "PX4_HOLD"), ("POSCTL", "PILOT")])
def test_offboard_that_ends_by_the_own_silence_is_no_takeover_unless_a_pilot_flies(mode, ends):
    """The controller has paused and sends again; the process of the link lets none of its setpoints leave."""
    world = REACH["HOLD"]()
    world.edit[SentSetpoint] = lambda m: None
    world.run(0.5)
    world.mode = mode
    world.run(0.5)
    assert world.phase == ends
    assert any(event.monitor == "rc_takeover" for event in world.events) == (ends == "PILOT")


@pytest.mark.parametrize("phase", ph.CONTROLLING)
def test_lost_setpoints_leave_px4_in_charge_for_good(phase):
    world = REACH[phase]()
    world.controller_dead = True
    world.run(2.0)
    assert world.phase == "PX4_HOLD" and world.mode == "POSCTL"
    world.controller_dead = False
    references = len(world.references)
    world.run(5.0)
    assert world.phase == "PX4_HOLD" and len(world.references) == references and world.asked("offboard") == 1


@pytest.mark.parametrize("mode", ["OFFBOARD", "POSCTL", "AUTO_LOITER", "AUTO_TAKEOFF"])
@pytest.mark.parametrize("make", [bridge_plan, switch_plan], ids=["auto", "rc_switch"])
def test_mission_restarted_in_flight_only_observes(mode, make):
    world = World(make())
    world.armed, world.landed, world.mode = True, False, mode
    world.p = (world.home[0], world.home[1], 4.0)
    world.setpoint_s = math.inf  # another station keeps offboard alive
    world.channel_us = OFF_US
    world.run(3.0)
    world.channel_us = ON_US
    world.run(10.0)
    assert world.phase == ("PILOT" if mode == "POSCTL" else "PX4_HOLD")
    assert not world.references
    assert not [c for c in world.commands if c.action != "text"]


def test_restart_in_the_middle_of_a_hold_only_observes():
    world = World().run_until("HOLD")
    world.restart_node()
    world.run(10.0)
    assert world.phase in ("PILOT", "PX4_HOLD")
    assert not world.references and not [c for c in world.commands if c.action != "text"]


def test_kill_switch_in_flight_ends_the_mission():
    world = World().run_until("HOLD")
    world.armed = False
    world.run(0.5)
    assert world.phase == "FAILED" and world.now_s - world.references[-1][0] > 0.2


# --- start by switch ------------------------------------------------------------------------------


def start_by_switch(world: World) -> None:
    world.run(2.0)
    world.pilot_takes_off()
    world.run(2.0)
    world.channel_us = ON_US
    world.run(1.0)


def test_mission_by_switch_takes_the_aircraft_over_and_flies_to_the_end():
    world = World(switch_plan())
    start_by_switch(world)
    world.run_until("DONE")
    assert world.status.success and world.asked("arm") == world.asked("takeoff") == 0


def test_after_landing_the_switch_has_to_be_off_once_and_then_a_second_flight_is_like_the_first():
    world = World(switch_plan())
    start_by_switch(world)
    world.run_until("DONE").run(5.0)
    assert world.phase == "DONE"  # the switch is still on
    world.channel_us = OFF_US
    world.run(2.0)
    assert world.phase == "WAIT_READY"
    start_by_switch(world)
    world.run_until("DONE")
    assert world.status.success and world.asked("offboard") == 2


def test_switch_that_was_on_from_the_beginning_starts_nothing():
    world = World(switch_plan())
    world.channel_us = ON_US
    world.run(2.0)
    world.pilot_takes_off()
    world.run(10.0)
    assert world.phase == "WAIT_READY" and not world.references


def test_a_hand_over_in_too_much_wind_is_refused():
    world = World(switch_plan()).run(2.0)
    world.armed = True
    world.run(0.5).pilot_takes_off()
    world.edit[State] = lambda m: msgspec.structs.replace(m, disturbance_W=(0.0, 4.7, 0.0))
    world.run(5.0)
    world.channel_us = ON_US
    world.run(2.0)
    assert world.phase == "WAIT_READY" and not world.references
    assert any(
        c.text == "start refused: too much wind (0.90 of the tilt of the aircraft, limit 0.85)" for c in world.commands
    )


def test_switch_on_before_the_checks_pass_needs_a_second_deliberate_movement():
    world = World(switch_plan()).run(2.0)
    world.pilot_takes_off()
    world.edit[State] = lambda m: msgspec.structs.replace(m, valid=False)
    world.run(1.0)
    world.channel_us = ON_US
    world.run(1.0)
    world.edit.clear()
    world.run(5.0)
    assert world.phase == "WAIT_READY"
    assert any(c.text.startswith("start refused: state") for c in world.commands)
    world.channel_us = OFF_US
    world.run(1.5)
    world.channel_us = ON_US
    world.run(1.0)
    assert world.phase == "ENTER_OFFBOARD"


def test_switch_on_the_ground_starts_nothing():
    world = World(switch_plan()).run(2.0)
    world.channel_us = ON_US
    world.run(2.0)
    world.pilot_takes_off()
    world.run(5.0)
    assert world.phase == "WAIT_READY" and any("not in flight" in c.text for c in world.commands)


def test_switch_off_hands_the_aircraft_over_and_only_off_to_on_starts_again():
    world = World(switch_plan())
    start_by_switch(world)
    world.run_until("SEARCH").run(2.0)
    world.channel_us = 1500  # between the ranges: as it was
    world.run(2.0)
    assert world.phase == "SEARCH"
    world.channel_us = OFF_US
    world.run(2.0)  # once PX4 has left offboard
    assert "PILOT" in world.phases() and world.phase == "WAIT_READY"
    references, transitions = len(world.references), len(world.log)
    world.run(3.0)
    assert world.mode == "POSCTL" and world.asked("offboard") == 1
    assert len(world.references) == references and len(world.log) == transitions
    world.channel_us = ON_US
    world.run_until("DONE")
    assert world.asked("offboard") == 2 and world.status.success


@pytest.mark.parametrize("pilot_flies", [False, True], ids=["mission flies", "pilot flies, switch left on"])
def test_the_end_of_a_loss_that_the_receiver_does_not_report_starts_nothing(pilot_flies):
    """Presets for 5 s, the switch "off" and the sticks centred, then the transmitter's channels again."""
    world = World(switch_plan())
    start_by_switch(world)
    world.run_until("HOLD").run(1.0)
    if pilot_flies:
        world.mode = "POSCTL"
        world.run(1.0)
    world.hands_on_sticks, world.channel_us = False, OFF_US
    world.run(5.0)
    world.hands_on_sticks, world.channel_us = True, ON_US
    world.run(10.0)
    assert world.phase == "WAIT_READY" and world.asked("offboard") == 1
    assert sum(c.text.startswith("start refused: no stick moved while the switch was off") for c in world.commands) == 1
    world.channel_us = OFF_US
    world.run(2.0)
    world.channel_us = ON_US
    world.run_until("ENTER_OFFBOARD")


def test_takeover_by_mode_with_the_switch_left_on_stays_with_the_pilot():
    world = World(switch_plan())
    start_by_switch(world)
    world.run_until("HOLD")
    world.mode = "POSCTL"
    world.run(10.0)
    assert world.phase == "PILOT" and world.asked("offboard") == 1
    assert world.status.photographs == len(world.photo_requests)


# --- cause of an early end -------------------------------------------------------------------------


def test_a_flown_mission_has_no_cause():
    world = World().run_until("DONE")
    assert {status.cause for status in world.statuses} == {""}


def test_the_last_status_says_what_happened_and_what_the_mission_did():
    world = World().run_until("HOLD")
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, battery_voltage_v=13.2)
    world.run_until("RETURN")
    assert world.status.cause == "battery low (13.2 V, limit 13.6): returning"
    world.run_until("DONE")
    assert world.status.reason == "landed"
    assert world.status.cause == "battery low (13.2 V, limit 13.6): returned and landed"


def test_the_first_cause_stays_and_a_measure_that_was_cut_short_is_not_called_done():
    world = World().run_until("HOLD")
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, battery_voltage_v=13.2)
    world.run_until("RETURN").run(1.0)
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, battery_voltage_v=12.8)
    world.run_until("DONE")
    assert world.status.cause == "battery low (13.2 V, limit 13.6): began to return and landed"


def test_refused_arming_is_the_cause():
    world = World()
    world.refuse.add("arm")
    world.run_until("FAILED")
    assert world.status.cause == "arming refused (denied)"


def test_the_cause_of_a_flight_stays_until_the_next_flight_begins():
    world = World(switch_plan())
    start_by_switch(world)
    world.run_until("SEARCH").run(1.0)
    world.channel_us = OFF_US
    world.run(3.0)
    assert world.phase == "WAIT_READY"
    assert world.status.cause == "mission switch turned off: stopped streaming, control handed over"
    world.channel_us = ON_US
    world.run_until("ENTER_OFFBOARD")
    assert world.status.cause == ""
    assert world.run_until("DONE").status.cause == ""


# --- robustness -----------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ph.CONTROLLING)
def test_not_a_number_never_reaches_a_reference(phase):
    world = REACH[phase]()
    nan = math.nan
    world.edit[State] = lambda m: msgspec.structs.replace(m, p_W=(nan, nan, nan), q_WM=(nan, 0.0, 0.0, 0.0))
    world.run(3.0)
    for _, reference in world.references:
        assert is_finite(reference)
    assert world.phase == "PX4_HOLD"


def test_a_node_without_any_message_waits_and_says_what_is_missing():
    world = World()
    world.edit = dict.fromkeys({type(m) for m in world.messages()} | {type(world.fcu_status())}, lambda m: None)
    world.run(2.0)
    assert world.phase == "WAIT_READY" and "link: no data from the flight controller" in world.status.reason


def test_two_runs_are_the_same():
    first, second = World().run_until("DONE"), World().run_until("DONE")
    assert first.log == second.log and first.commands == second.commands and first.references == second.references


# --- trajectories ---------------------------------------------------------------------------------


def test_a_plan_without_a_bundle_flies_its_trajectory_over_the_take_off_point():
    world = World(line_plan(), bundle_p_home=FAR).run_until("DONE")
    assert world.status.success
    assert world.phases() == ["ARM", "TAKEOFF", "ENTER_OFFBOARD", "TRANSFER", "TRAJECTORY", "RETURN", "LAND", "DONE"]
    (line,) = {r.trajectory for _, r in world.references if isinstance(r.trajectory, Line)}
    assert line.p_start == pytest.approx((3.0, -1.0, 4.3)) and line.p_end == pytest.approx((6.0, -1.0, 4.3))
    assert max(world.reference_jumps_m) < 0.15
    assert world.events == []


def test_a_plan_without_a_bundle_needs_neither_camera_nor_tracker():
    processes = (ProcessName.CAMERA, ProcessName.TRACKER, ProcessName.RECORDER)
    world = World(line_plan(), bundle_p_home=FAR, required_processes=processes)
    assert not world.plan.needs_camera and bridge_plan().needs_camera
    world.edit[Markers] = lambda m: None
    world.edit[Health] = lambda m: m if m.process == ProcessName.RECORDER else None
    assert world.run_until("DONE").status.success


def test_a_scan_of_the_face_follows_the_hold_in_the_bundles_frame():
    world = World(face_plan()).run_until("DONE")
    assert world.status.success and world.status.photographs == 4
    assert world.phases()[4:9] == ["APPROACH", "HOLD", "TRANSFER", "TRAJECTORY", "RETURN"]
    scans = [r for _, r in world.references if isinstance(r.trajectory, Raster)]
    assert scans and {r.frame for r in scans} == {"pier"}
    assert max(world.reference_jumps_m) < 0.15


def test_a_trajectory_may_take_the_place_of_the_hold():
    world = World(face_plan(hold=None, photographs=None)).run_until("DONE")
    assert world.status.success and "HOLD" not in world.phases()


def test_a_bundle_lost_on_the_scan_pauses_it_and_the_scan_goes_on_where_it_was():
    world = World(face_plan()).run_until("TRAJECTORY")
    begun = world.reference_p
    for _ in range(2):
        world.run(4.0)
        world.bundle_in_view = False
        world.run_until("PAUSE")
        left = world.reference_p
        world.bundle_in_view = True
        world.run_until("TRAJECTORY")
        assert math.dist(world.reference_p, left) < 0.01 and math.dist(world.reference_p, begun) > 0.5
    world.run_until("DONE")
    assert world.phases().count("TRAJECTORY") == 3 and world.status.success
    assert max(world.reference_jumps_m) < 0.15
    rests = {r.trajectory for _, r in world.references if isinstance(r.trajectory, Resumed)}
    assert len(rests) == 2 and {rest.curve for rest in rests} == {
        r.trajectory for _, r in world.references if isinstance(r.trajectory, Raster)
    }


def test_a_scan_that_leaves_the_fence_is_not_begun():
    wide = msgspec.structs.replace(face_plan().trajectory, width_m=40.0)
    world = World(face_plan(trajectory=wide)).run_until("RETURN")
    assert "TRAJECTORY" not in world.phases() and not world.status.success
    assert world.status.cause == "the trajectory is not allowed (outside the fence): returning"


def test_a_hold_in_the_world_ends_after_its_time():
    table = {"kind": "hold", "frame": "world", "p_m": [1.0, 1.0, 3.0], "yaw_rad": 0.5, "duration_s": 7.0}
    world = World(line_plan(trajectory=msgspec.convert(table, Curve)), bundle_p_home=FAR).run_until("RETURN")
    held = [s.phase for s in world.statuses].count("TRAJECTORY") * 0.1
    assert held == pytest.approx(7.0, abs=0.3)
    assert world.run_until("DONE").status.success


def test_a_hold_in_the_world_that_was_interrupted_is_held_for_what_is_left_of_it():
    table = {"kind": "hold", "frame": "pier", "p_m": [0.0, 0.0, 4.5], "yaw_rad": 0.0, "duration_s": 12.0}
    world = World(face_plan(trajectory=msgspec.convert(table, Curve))).run_until("TRAJECTORY")
    world.run(5.0)
    world.bundle_in_view = False
    world.run_until("PAUSE")
    world.bundle_in_view = True
    world.run_until("DONE")
    held = [s.phase for s in world.statuses].count("TRAJECTORY") * 0.1
    assert held == pytest.approx(12.0, abs=0.5) and world.status.success


@pytest.mark.parametrize("height_m", [1.2, 2.4])
def test_hold_in_the_middle_of_the_take_off_is_a_persons_and_ends_the_mission(height_m):
    world = World().run_until("TAKEOFF")
    while world.p[2] - world.home[2] < height_m:
        world.step()
    world.mode = FcuMode.AUTO_LOITER
    world.run(10.0)
    assert world.phase == "PILOT" and world.asked("offboard") == world.asked("land") == 0


def test_a_mission_switch_turned_off_in_px4s_landing_says_that_the_landing_goes_on():
    world = World(switch_plan())
    start_by_switch(world)
    world.run_until("LAND").run(1.0)
    world.channel_us = OFF_US
    world.run(1.0)
    assert world.mode == "AUTO_LAND" and world.asked("hold") == 0
    assert any("PX4 goes on landing" in c.text for c in world.commands)


@pytest.mark.parametrize("system, starts", [("gyro", False), ("attitude estimate", False), ("compass", True)])
def test_a_fault_before_the_hand_over_refuses_the_start_or_is_reported(system, starts):
    world = World(switch_plan())
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, unhealthy_systems=(system,))
    start_by_switch(world)
    world.run(2.0)
    assert (world.phase != "WAIT_READY") == starts
    assert any(system in c.text for c in world.commands)


def test_a_hold_begins_when_the_nose_has_turned_too():
    world = World(bridge_plan())
    world.edit[ControlStatus] = lambda m: msgspec.structs.replace(m, yaw_error_rad=0.5)
    world.run_until("APPROACH").run(15.0)
    assert world.phase == "APPROACH"
    del world.edit[ControlStatus]
    world.run_until("HOLD", 5.0)


def test_a_strong_wind_is_found_before_offboard_without_inertial_samples():
    """The filter knows no disturbance then; PX4 leans against the wind."""
    world = World(bridge_plan())
    world.edit[EstimatorStatus] = lambda m: msgspec.structs.replace(m, imu=None)
    tilt = quat_from_rpy(0.0, 0.47, 0.0)
    world.edit[FcuAttitude] = lambda m: msgspec.structs.replace(m, q_WB=tuple(tilt)) if world.phase == "TAKEOFF" else m
    world.edit[State] = lambda m: msgspec.structs.replace(m, disturbance_W=(0.0, 0.0, 0.0))
    world.run_until("LAND", 60.0)
    assert "wind" in world.status.cause


def test_the_tilt_of_a_hover_is_the_disturbance_that_it_balances():
    trend = WindTrend(0.5)
    for i in range(60):
        trend.take(0.1 * i, balanced_W(quat_from_rpy(0.2, -0.3, 1.0)))
    tilt_rad = math.acos(math.cos(0.2) * math.cos(0.3))
    assert trend.share() == pytest.approx(math.sin(tilt_rad) / math.sin(0.5))

"""The reference before and just after PX4 reports offboard."""

import math

import msgspec
import numpy as np
import pytest
from mission_world import OFF_US, ON_US, STEP_S, World, switch_plan

from companion.core.frames import rotation_matrix
from companion.core.messages import WORLD, FcuPosition, FcuStatus, State
from companion.core.trajectories import duration_s, sample, stop_s
from companion.core.trajectory_messages import Hold, Move
from companion.mission.phase_work import STREAM_BEFORE_OFFBOARD_S
from companion.mission.reference_stream import ReferenceStream

STOP = Move(
    p_start=(1.0, 2.0, 4.0), yaw_start_rad=0.0, p_end=(2.3, 2.0, 4.0), yaw_end_rad=0.0, speed_m_s=0.5,
    acceleration_m_s2=0.5, yaw_rate_rad_s=0.5, v_start=(1.5, 0.0, 0.0), a_start=(0.0, 0.5, 0.0),
)  # fmt: skip
MOVE = Move(
    p_start=(1.2, 2.1, 4.0), yaw_start_rad=0.0, p_end=(7.0, 0.0, 4.0), yaw_end_rad=0.0, speed_m_s=1.0,
    acceleration_m_s2=0.5, yaw_rate_rad_s=0.5,
)  # fmt: skip


def at(trajectory, start_s, time_s):
    s = sample(trajectory, start_s, np.array([time_s]))
    return np.concatenate([s.p_W[0], s.v_W[0], s.a_W[0]])


def test_a_move_that_replaces_the_stop_continues_its_motion():
    stream = ReferenceStream()
    stream.start(WORLD, STOP, 10.0)
    stream.start(WORLD, MOVE, 10.4)
    move = stream.current.trajectory
    np.testing.assert_allclose(at(move, 10.4, 10.4), at(STOP, 10.0, 10.4), atol=1e-9)
    np.testing.assert_allclose(at(move, 10.4, 10.4 + duration_s(move)), [*MOVE.p_end, *[0.0] * 6], atol=1e-9)
    assert stream.timeout_s > duration_s(move)


def test_a_move_at_a_bundle_continues_the_stop_in_the_world():
    q_WM = (0.5, 0.5, -0.5, -0.5)
    R = rotation_matrix(q_WM)
    stream = ReferenceStream()
    stream.start(WORLD, STOP, 10.0)
    stream.start("pier", MOVE, 10.4, q_WM=q_WM)
    begin, stop = at(stream.current.trajectory, 10.4, 10.4), at(STOP, 10.0, 10.4)
    np.testing.assert_allclose(begin[:3], MOVE.p_start, atol=1e-9)  # given in the bundle's frame already
    np.testing.assert_allclose([R @ begin[3:6], R @ begin[6:9]], [stop[3:6], stop[6:9]], atol=1e-9)


@pytest.mark.parametrize(
    "present, frame, following, after_s",
    [
        (STOP, WORLD, MOVE, stop_s(STOP)),
        (STOP, "pier", MOVE, 0.4),
        (STOP, WORLD, Hold(p=(0.0, 0.0, 4.0), yaw_rad=0.0), 0.4),
        (MOVE, WORLD, msgspec.structs.replace(MOVE, p_end=(0.0, 0.0, 4.0)), 0.4),
        (STOP, WORLD, STOP, 0.4),
    ],
    ids=["at rest", "in a bundle's frame", "a hold", "after a move from rest", "another stop"],
)
def test_every_other_reference_is_streamed_as_it_is(present, frame, following, after_s):
    stream = ReferenceStream()
    stream.start(WORLD, present, 10.0)
    stream.start(frame, following, 10.0 + after_s)
    assert stream.current.trajectory == following


def moving(world, v_W):
    """The pilot flies with this velocity while PX4 is not in offboard."""

    def fly(message):
        if world.mode == "OFFBOARD":
            return message
        if isinstance(message, FcuPosition):
            world.p = tuple((np.array(world.p) + STEP_S * np.array(v_W)).tolist())
        return msgspec.structs.replace(message, p_W=world.p, v_W=v_W)

    world.edit[FcuPosition] = world.edit[State] = fly


def test_until_offboard_the_reference_follows_a_pilot_in_motion_and_stops_from_there():
    world = World(switch_plan()).run(2.0)
    world.pilot_takes_off()
    world.run(1.0)
    world.channel_us = ON_US
    world.run_until("ENTER_OFFBOARD")
    world.bundle_in_view = False
    moving(world, (0.9, -1.2, 0.0))
    world.references.clear()
    world.run(STREAM_BEFORE_OFFBOARD_S - 0.2)
    followed = [r for _, r in world.references]
    assert len({r.id for r in followed}) == len(followed) > 10
    for r in followed:
        assert r.frame == WORLD and r.trajectory.v_start == (0.9, -1.2, 0.0)
    assert math.dist(followed[-1].trajectory.p_start, world.p) < 0.1
    world.run_until("SEARCH").run(3.0)
    assert world.asked("offboard") == 1
    path = [sample(r.trajectory, r.start_s, np.array([t])) for t, r in world.references]
    speeds = np.array([np.linalg.norm(s.v_W[0]) for s in path])
    after = len(followed)
    assert np.abs(np.diff(speeds[after:])).max() < 1.5 * 2 * STEP_S  # no jump of the reference's velocity
    assert max(world.reference_jumps_m[1:]) < 1.6 * STEP_S


@pytest.mark.parametrize("mode", ["POSCTL", "OFFBOARD"])
def test_the_reference_stays_once_px4_follows_it(mode):
    """Also when the pilot selects offboard before the mission requests it: a reference that followed would drift."""
    world = World(switch_plan()).run(2.0)
    world.pilot_takes_off()
    world.run(1.0)
    world.channel_us = ON_US
    world.ignore = {"offboard"}
    world.run_until("ENTER_OFFBOARD").run(0.5)
    if mode == "OFFBOARD":
        world.mode = mode
        world.run(2 * STEP_S)
        before, seconds = world.references[-1][1].id, STREAM_BEFORE_OFFBOARD_S - 0.8
    else:
        world.run(STREAM_BEFORE_OFFBOARD_S)
        assert world.asked("offboard") == 1
        before, seconds = world.references[-1][1].id, 1.0
    world.run(seconds)
    assert world.phase == "ENTER_OFFBOARD" and world.references[-1][1].id == before


# --- without a position of the flight controller -------------------------------------------------------------------------

NO_POSITION = "no position from the flight controller"
replace = msgspec.structs.replace
LOST = {
    "silent": (FcuPosition, lambda m: None, NO_POSITION),
    "invalid": (FcuPosition, lambda m: replace(m, valid=False), NO_POSITION),
    "old": (FcuPosition, lambda m: replace(m, stamp_s=m.stamp_s - 1.5), NO_POSITION),
    "not a number": (FcuPosition, lambda m: replace(m, p_W=(math.nan, 0.0, 4.0)), NO_POSITION),
    "no fix": (FcuStatus, lambda m: replace(m, gnss_ok=False), "no position fix"),
}


def flown_by_pilot(plan=None) -> World:
    world = World(plan or switch_plan()).run(2.0)
    world.pilot_takes_off()
    return world.run(3.0)


def said(world) -> list[str]:
    return [command.text for command in world.commands if command.action == "text"]


@pytest.mark.parametrize("kind, edit, why", LOST.values(), ids=LOST)
@pytest.mark.parametrize("after_s", [0.5, 5.0])
def test_a_hand_over_without_a_position_is_refused_in_one_line(kind, edit, why, after_s):
    world = flown_by_pilot()
    world.edit[kind] = edit
    world.run(after_s)
    assert (why if kind is FcuPosition else "gnss: no fix") in world.status.reason
    world.channel_us = ON_US
    world.run(5.0)
    refused = [text for text in said(world) if "start refused" in text]
    assert len(refused) == 1 and (why if kind is FcuPosition else "gnss: no fix") in refused[0], said(world)
    assert world.phases() == [] and world.mode == "POSCTL" and not world.asked("offboard")


@pytest.mark.parametrize("kind, edit, why", LOST.values(), ids=LOST)
@pytest.mark.parametrize("at_s", [0.05, 0.7, 1.2])
def test_a_position_that_is_lost_before_offboard_leaves_the_aircraft_with_the_pilot(kind, edit, why, at_s):
    world = flown_by_pilot()
    world.channel_us = ON_US
    world.run_until("ENTER_OFFBOARD").run(at_s)
    world.edit[kind] = edit
    world.run(6.0)
    assert world.phases() == ["ENTER_OFFBOARD", "PX4_HOLD"], world.log
    assert why in world.status.cause and "cannot take control" in world.log[-1][1]
    assert world.mode == "POSCTL" and {command.action for command in world.commands} == {"text"}
    del world.edit[kind]
    world.channel_us = OFF_US
    world.run(8.0)
    world.channel_us = ON_US
    world.run_until("SEARCH")  # with a position the same switch hands over


@pytest.mark.parametrize("name", sorted(LOST.keys() - {"old"}))
def test_a_position_that_is_missing_for_a_moment_delays_offboard_only(name):
    kind, edit, _ = LOST[name]
    world = flown_by_pilot()
    world.channel_us = ON_US
    world.run_until("ENTER_OFFBOARD").run(1.15)
    world.edit[kind] = edit
    world.run(0.8)
    assert world.phase == "ENTER_OFFBOARD" and not world.asked("offboard")
    del world.edit[kind]
    world.run_until("SEARCH", 2.0)


def test_a_fix_that_has_just_come_back_is_waited_for():
    world = flown_by_pilot()
    world.edit[FcuStatus] = lambda m: replace(m, gnss_ok=False)
    world.run(3.0)
    del world.edit[FcuStatus]
    world.run(1.0)
    assert world.status.reason == "waiting: position: position fix has just come back"
    world.channel_us = ON_US
    world.run(1.0)
    assert world.phase == "WAIT_READY" and any(
        "start refused: position: position fix has" in text for text in said(world)
    )
    world.run(4.0)
    assert world.status.reason.startswith("ready")


def test_a_pilot_who_chose_offboard_gets_the_aircraft_back_when_the_position_is_lost():
    world = flown_by_pilot()
    world.channel_us = ON_US
    world.run_until("ENTER_OFFBOARD").run(0.5)
    world.mode = "OFFBOARD"
    world.edit[FcuPosition] = lambda m: None
    world.run(6.0)
    assert world.phases() == ["ENTER_OFFBOARD", "PX4_HOLD"] and world.mode == "POSCTL"


def test_positions_that_are_never_new_enough_are_named_and_not_the_controller():
    world = flown_by_pilot()
    world.channel_us = ON_US
    world.run_until("ENTER_OFFBOARD")
    world.edit[FcuPosition] = lambda m: replace(m, stamp_s=m.stamp_s - 0.5)
    world.run(12.0)
    assert world.log[-1] == ("PX4_HOLD", f"cannot take control: {NO_POSITION}")


def test_a_take_off_by_the_mission_is_judged_by_its_own_monitors():
    world = World().run_until("ENTER_OFFBOARD")
    world.edit[FcuPosition] = lambda m: None
    world.run_until("SEARCH", 5.0)

"""A mission without satellites: declared in its file, handed over in sight of the bundle, landed by this stack."""

import math
from pathlib import Path

import msgspec
import pytest
from mission_world import ON_US, World

from companion.core.config import ConfigError
from companion.core.enums import FcuMode, Phase, SafetyAction
from companion.core.messages import EstimatorStatus, FcuPosition, FcuStatus, SentSetpoint, State
from companion.mission import phases as ph
from companion.mission.conditions import SAFETY_DEMANDS
from companion.mission.entry_actions import TOUCH_END_M
from companion.mission.monitors import ACTIONS, ESCALATION_MIN_S, MONITORS, MONITORS_ALONE, monitors_for
from companion.mission.plan import load_plan
from companion.mission.transitions import TRANSITIONS

MISSIONS = Path(__file__).parents[2] / "config/missions"
PRESSURE_M = 488.0  # height by pressure at the zero of the world


def alone_plan(**changes):
    """The example with a short hold."""
    plan = load_plan(MISSIONS / "bridge_no_satellites.toml")
    quick = {"hold": msgspec.structs.replace(plan.hold, duration_s=5.0)}
    quick["photographs"] = msgspec.structs.replace(plan.photographs, at_s=[1.0, 3.0])
    return msgspec.structs.replace(plan, **{**quick, **changes})


def alone_world(plan=None, **edits):
    """A flight controller with a height by pressure and no position; a bundle 6 m in front of the hand-over."""
    world = World(plan or alone_plan(), bundle_p_home=(6.0, 0.0, 4.0))
    world.edit[FcuPosition] = lambda m: None
    world.yaw = 0.0

    def by_pressure(m):
        fields = {"baro_altitude_m": PRESSURE_M + world.p[2], "home_W": None, "gnss_ok": False} | edits
        return msgspec.structs.replace(m, **fields)

    world.edit[FcuStatus] = by_pressure
    return world


def leave_ground(world, height_m=4.0):
    """Armed first: the place on the ground is taken before the aircraft is in the air."""
    world.armed, world.mode = True, "ALTCTL"
    world.run(0.2)
    world.pilot_takes_off(height_m)
    world.mode = "ALTCTL"


def hand_over(world, height_m=4.0):
    world.run(2.0)
    leave_ground(world, height_m)
    world.run(1.0)
    world.channel_us = ON_US
    return world


# --- the file -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('start = "rc_switch"', 'start = "auto"', "needs them, because PX4 takes off with a position only"),
        ('bundle = "pier"\n', "", "bundle: missing key"),
    ],
)
def test_a_mission_that_needs_a_position_is_refused_with_one_line(tmp_path, old, new, says):
    text = (MISSIONS / "bridge_no_satellites.toml").read_text()
    file = tmp_path / "alone.toml"
    file.write_text(text.replace('"../markers', f'"{MISSIONS.parent}/markers').replace(old, new))
    with pytest.raises(ConfigError, match=says) as refusal:
        load_plan(file)
    assert "\n" not in str(refusal.value)


def test_satellites_are_the_default():
    assert load_plan(MISSIONS / "bridge_hover.toml").satellites


# --- the start ------------------------------------------------------------------------------------------------------


def test_the_start_needs_neither_fix_nor_position_nor_home():
    world = alone_world()
    world.run(3.0)
    assert world.node.reason == "ready: fly, then turn the mission switch on"


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda w: setattr(w, "bundle_in_view", False), "bundle: 'pier' is not in sight, and without satellites"),
        (lambda w: w.edit.update({FcuStatus: lambda m: m}), "height: no height by pressure"),
    ],
)
def test_one_line_says_what_is_missing(edit, says):
    world = alone_world()
    edit(world)
    world.run(3.0)
    assert says in world.node.reason and world.node.reason.count(";") == 0


def test_the_mission_flies_with_limits_around_the_place_of_the_hand_over():
    world = alone_world()
    world.run(2.0)
    leave_ground(world)
    world.p = (world.p[0] - 40.0, world.p[1] + 30.0, world.p[2])  # the place of the take-off means nothing any more
    world.p_WM = (world.p_WM[0] - 40.0, world.p_WM[1] + 30.0, world.p_WM[2])
    world.run(1.0)
    taken = world.p
    world.channel_us = ON_US
    world.run_until("DONE")
    flown = [phase for phase, _ in world.log]
    assert flown == ["ENTER_OFFBOARD", "SEARCH", "APPROACH", "HOLD", "RETURN", "LAND", "DONE"]
    assert world.status.success and not world.events
    assert math.dist(world.p[:2], taken[:2]) < 0.1


def test_a_hand_over_above_the_limits_is_refused():
    world = hand_over(alone_world(), height_m=9.0)
    world.run(2.0)
    texts = [c.text for c in world.commands if c.action == "text"]
    assert world.phase == "WAIT_READY" and any("start refused: outside the fence" in text for text in texts)


def test_the_height_by_pressure_is_watched_independently():
    world = hand_over(alone_world())
    world.run_until("HOLD")
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, baro_altitude_m=PRESSURE_M + 15.0)
    world.run(1.0)
    assert {e.monitor for e in world.events} == {"raw_height"}


# --- the table ------------------------------------------------------------------------------------------------------


def test_monitors_that_need_satellites_are_not_evaluated_and_one_takes_their_place():
    alone = {m.name for m in monitors_for(alone_plan())}
    needs_position = {
        "gnss_lost",
        "gnss_lost_at_bundle",
        "both_lost",
        "raw_fence",
        "raw_velocity",
        "uncertainty_position",
    }
    assert not needs_position & alone and "bundle_lost" in alone and "raw_height" in alone
    assert monitors_for(load_plan(MISSIONS / "bridge_hover.toml")) == MONITORS
    assert not {m.name for m in MONITORS_ALONE} & {m.name for m in MONITORS}


@pytest.mark.parametrize("monitor", MONITORS_ALONE, ids=lambda m: m.name)
def test_rows_of_the_flight_alone_escalate_as_the_others_do(monitor):
    severities = [ACTIONS.index(action) for action in monitor.escalation]
    assert severities == sorted(set(severities)) and monitor.escalation_s >= ESCALATION_MIN_S
    assert set(monitor.phases) <= set(ph.UNDER_WAY) and len(monitor.text) <= 50
    held = {s for row in TRANSITIONS if row.condition is SAFETY_DEMANDS[SafetyAction.HOLD] for s in row.sources}
    land = {s for row in TRANSITIONS if row.condition is SAFETY_DEMANDS[SafetyAction.LAND] for s in row.sources}
    assert set(monitor.phases) <= held | {Phase.PAUSE, Phase.RETREAT} and set(monitor.phases) <= land


def test_a_bundle_that_is_lost_for_good_leads_back_and_down_by_this_stack():
    world = hand_over(alone_world())
    world.run_until("HOLD").run(2.0)
    world.bundle_in_view, count = False, len(world.log)
    world.run_until("LAND", 8.0)
    assert [phase for phase, _ in world.log[count:]] == ["PAUSE", "RETREAT", "LAND"]
    place = world.p
    assert world.asked("land") == 0 and world.mode == FcuMode.OFFBOARD
    world.run_until("DONE", 30.0)
    assert world.asked("land") == 1 and math.dist(world.p[:2], place[:2]) < 0.05
    assert "no bundle seen" in world.status.cause and not world.status.success


def test_this_stack_sinks_to_the_ground_before_px4_is_asked_to_land():
    world = hand_over(alone_world())
    world.run_until("HOLD").run(2.0)
    world.bundle_in_view = False
    world.run_until("LAND", 8.0)
    while not world.asked("land"):
        world.step()
    assert world.p[2] - world.home[2] == pytest.approx(TOUCH_END_M, abs=0.05)


def test_a_state_that_becomes_invalid_while_sinking_leaves_the_landing_to_px4():
    world = hand_over(alone_world())
    world.run_until("HOLD").run(2.0)
    world.bundle_in_view = False
    world.run_until("LAND", 8.0).run(1.0)
    world.edit[State] = lambda m: msgspec.structs.replace(m, valid=False)
    world.run(0.3)
    assert world.asked("land") == 1 and world.phase == "LAND"


def test_a_short_loss_is_waited_for():
    world = hand_over(alone_world())
    world.run_until("HOLD").run(1.0)
    world.bundle_in_view = False
    world.run_until("PAUSE", 2.0).run(1.0)
    world.bundle_in_view = True
    world.run_until("HOLD", 20.0)
    assert world.run_until("DONE").status.success


def test_an_estimate_in_doubt_is_not_landed_by():
    """What contradicts the estimate ends with PX4's own landing, which is Descend."""
    world = hand_over(alone_world())
    world.run_until("HOLD").run(1.0)
    world.edit[SentSetpoint] = lambda m: msgspec.structs.replace(m, roll_rad=0.5)  # the attitude does not follow it
    world.run_until("LAND", 5.0)
    assert "attitude does not follow" in world.node.reason and world.asked("land") == 1


def test_the_pilot_takes_over_in_altitude_mode():
    world = hand_over(alone_world())
    world.run_until("HOLD").run(1.0)
    world.mode = "ALTCTL"
    world.run(0.5)
    assert world.phase == "PILOT" and world.asked("hold") == 0


def test_a_monitor_does_not_hold_an_aircraft_in_its_last_descent():
    """With the bundle out of the picture there is no position; a hold made the flight longer, and a retreat followed it."""
    world = hand_over(alone_world())
    world.run_until("RETURN", 90.0)
    while not world.node._mission.flight.descended or world.p[2] - world.home[2] > 3.0:
        world.step()
    world.bundle_in_view = False
    world.edit[EstimatorStatus] = lambda m: msgspec.structs.replace(
        m, innovations=[msgspec.structs.replace(i, nis=20.0 * i.dof) for i in m.innovations]
    )
    began = len(world.log)
    world.run_until("LAND", 10.0)
    assert [phase for phase, _ in world.log[began:]] == ["LAND"]
    assert world.p[2] - world.home[2] < 0.5

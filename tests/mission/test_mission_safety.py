"""One scenario for each row of the safety table; a row without a scenario fails.

Every scenario flies the pure node into a phase, makes one thing abnormal, and says where the mission must end up. All
are then checked for the same things: the row speaks up, its action is taken, the ground station is told, offboard is
not asked for again.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import pytest
from mission_world import OFF_US, ON_US, World, bridge_plan, switch_plan, vehicle

from companion.messages import ControlStatus, FcuStatus, State
from companion.mission import phases as ph
from companion.mission.knowledge import Knowledge
from companion.mission.safety import ACTIONS, CLEAR_S, ROWS, RUNG_MIN_S, Row, SafetyMonitor

ROW = {row.name: row for row in ROWS}


def change(kind, **fields):
    """An edit that overwrites fields of every message of one type."""
    return {kind: lambda m: msgspec.structs.replace(m, **fields)}


class Scenario(NamedTuple):
    """Fly to `phase`, apply `event`; the mission must be in the last of `path` within `limit_s`."""

    phase: str
    event: Callable[[World], None]
    path: list[str]  # phases entered after the event
    limit_s: float = 3.0
    make: Callable = bridge_plan


def edit(kind, **fields) -> Callable[[World], None]:
    return lambda world: world.edit.update(change(kind, **fields))


def drop(*kinds) -> Callable[[World], None]:
    return lambda world: world.edit.update(dict.fromkeys(kinds, lambda m: None))


def attribute(name, value) -> Callable[[World], None]:
    return lambda world: setattr(world, name, value)


def blown(**offset) -> Callable[[World], None]:
    """The estimate says that the aircraft is displaced, whatever the reference."""
    d = (offset.get("x", 0.0), offset.get("y", 0.0), offset.get("z", 0.0))

    def event(world: World) -> None:
        world.edit[State] = lambda m: msgspec.structs.replace(
            m, p_W=tuple(a + b for a, b in zip(m.p_W, d, strict=True))
        )

    return event


def narrow_distance():
    """The example mission with a distance limit that the fence box does not already imply."""
    plan = bridge_plan()
    return bridge_plan(
        limits=msgspec.structs.replace(plan.limits, fence_min_m=(-40.0, -40.0, -1.0), fence_max_m=(40.0, 40.0, 8.0))
    )


def low_ceiling():
    plan = bridge_plan()
    return bridge_plan(limits=msgspec.structs.replace(plan.limits, height_m=6.0))


HOME = ["RETURN", "LAND", "DONE"]
SCENARIOS: dict[str, list[Scenario]] = {
    "rc_takeover": [Scenario("HOLD", attribute("mode", "POSCTL"), ["PILOT"], 0.3)],
    "switch_off": [Scenario("HOLD", attribute("channel_us", OFF_US), ["PILOT"], 0.6, switch_plan)],
    "link_lost": [Scenario("HOLD", drop(FcuStatus), ["PX4_HOLD"], 1.4)],
    "state_stale": [
        Scenario("HOLD", drop(State), ["PX4_HOLD"], 0.5),
        Scenario("SEARCH", edit(State, valid=False), ["PX4_HOLD"], 0.5),
    ],
    "estimator_reset": [Scenario("HOLD", edit(State, reset_count=2), ["PX4_HOLD"], 0.2)],
    "setpoints_lost": [Scenario("HOLD", attribute("controller_dead", True), ["PX4_HOLD"], 0.8)],
    "control_error": [
        Scenario("HOLD", edit(ControlStatus, position_error_m=2.5), ["PAUSE", "RETREAT", "LAND", "DONE"], 20.0),
        Scenario("APPROACH", edit(ControlStatus, position_error_m=math.nan), ["PAUSE"], 0.7),
    ],
    "fallback_too_long": [Scenario("HOLD", edit(ControlStatus, active="pid"), HOME, 60.0)],
    "marker_lost": [Scenario("HOLD", attribute("bundle_in_view", False), ["PAUSE", "RETREAT", *HOME], 80.0)],
    "uncertainty_relative": [Scenario("HOLD", edit(State, relative_std_m=0.6), ["PAUSE", "RETREAT", *HOME], 80.0)],
    "uncertainty_position": [
        Scenario("SEARCH", edit(State, position_std_m=3.5), ["PAUSE", "LAND", "DONE"], 20.0),
        Scenario("RETURN", edit(State, position_std_m=3.5), ["PAUSE", "LAND", "DONE"], 20.0),
    ],
    "battery_low": [Scenario("HOLD", edit(FcuStatus, battery_voltage_v=13.5), HOME, 60.0)],
    "battery_critical": [
        Scenario("HOLD", edit(FcuStatus, battery_voltage_v=12.9), ["LAND", "DONE"], 20.0),
        Scenario("TAKEOFF", edit(FcuStatus, battery_voltage_v=12.9), ["LAND", "DONE"], 20.0),
    ],
    "fence": [Scenario("HOLD", blown(y=7.0), ["PAUSE", "RETREAT", "LAND", "DONE"], 20.0)],
    "height": [Scenario("HOLD", blown(z=3.0), ["PAUSE", "LAND", "DONE"], 20.0, low_ceiling)],
    "distance": [Scenario("HOLD", blown(y=20.0), ["PAUSE", "RETREAT", "LAND", "DONE"], 20.0, narrow_distance)],
    "rc_lost": [Scenario("HOLD", edit(FcuStatus, rc_ok=False), HOME, 60.0)],
}
CASES = [(row.name, i) for row in ROWS for i in range(max(1, len(SCENARIOS.get(row.name, ()))))]


def fly_to(phase: str, make) -> World:
    world = World(make())
    if world.plan.start == "rc_switch":
        world.run(2.0)
        world.pilot_takes_off()
        world.run(1.0)
        world.channel_us = ON_US
    return world.run_until(phase).run(1.0)


@pytest.mark.parametrize(("name", "index"), CASES)
def test_row(name, index):
    assert name in SCENARIOS, f"row '{name}' of the safety table has no scenario"
    scenario, row = SCENARIOS[name][index], ROW[name]
    world = fly_to(scenario.phase, scenario.make)
    assert not world.events, "the scenario must begin without an active row"
    count, offboard, said = len(world.log), world.asked("offboard"), world.asked("text")
    scenario.event(world)
    world.run_until(scenario.path[-1], scenario.limit_s)
    assert world.phases()[count:] == scenario.path
    first = next(e for e in world.events if e.row == name)
    assert first.active and first.action == row.ladder[0] and first.text.startswith(row.text)
    assert not first.value <= first.limit if not row.below else first.value < first.limit
    assert first.text in [c.text for c in world.commands[said:]], "the ground station was not told"
    world.run(5.0)
    assert world.asked("offboard") == offboard
    assert not world.status.success or scenario.path[-1] == "PAUSE"


def test_every_scenario_belongs_to_a_row():
    assert set(SCENARIOS) == set(ROW)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_ladders_only_climb_and_leave_time_between_rungs(row: Row):
    severities = [ACTIONS.index(action) for action in row.ladder]
    assert severities == sorted(set(severities)) and row.rung_s >= RUNG_MIN_S
    assert set(row.phases) <= set(ph.UNDER_WAY) and row.phases
    assert len(row.text) <= 50  # STATUSTEXT


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_first_action_of_every_row_has_a_way_out_of_each_of_its_phases(row: Row):
    """An action that no transition takes in a phase would be silently ignored there."""
    already = {"hold": {ph.PAUSE}, "retreat": {ph.RETREAT}, "return": {ph.RETURN}, "land": {ph.LAND}}
    for phase in row.phases:
        handled = {r.condition for r in ph.TRANSITIONS if phase in r.sources}
        if phase == ph.LAND:  # already at the rung before "stop"
            assert {f"safety_{row.ladder[-1]}"} & handled
            continue
        assert f"safety_{row.ladder[0]}" in handled or phase in already.get(row.ladder[0], ()), (row.name, phase)


# --- the monitor -----------------------------------------------------------------------------------------------------


class Rig:
    """A monitor with one row whose value the test sets."""

    def __init__(self, **fields) -> None:
        row = Row(
            name="probe",
            value=lambda s: self.value,
            limit=lambda v, p: 1.0,
            below=False,
            hysteresis=0.2,
            after_s=0.5,
            ladder=("hold", "retreat", "land", "stop"),
            rung_s=2.0,
            phases=(ph.HOLD,),
            severity=4,
            text="probe",
            unit="m",
        )._replace(**fields)
        self.value: float | None = 0.0
        self.monitor = SafetyMonitor(vehicle(), bridge_plan(), (row,))
        self.known = Knowledge(bridge_plan())
        self.now_s = 10.0
        self.phase = ph.HOLD

    def run(self, seconds: float, value: float | None) -> list:
        self.value, events = value, []
        for _ in range(round(seconds / 0.05)):
            self.now_s += 0.05
            events += self.monitor.update(self.known.situation(self.phase, "", self.now_s))
        return events

    @property
    def action(self) -> str:
        return self.monitor.demand.action if self.monitor.demand else ""


def test_a_short_excess_is_not_an_event():
    rig = Rig()
    assert rig.run(0.45, 1.5) == [] and rig.run(1.0, 0.5) == [] and rig.run(0.45, 1.5) == []


def test_ladder_is_climbed_with_two_seconds_between_rungs_and_stays_at_the_top():
    rig = Rig()
    events = rig.run(12.0, 1.5)
    assert [e.action for e in events] == ["hold", "retreat", "land", "stop"]
    gaps = [b.stamp_s - a.stamp_s for a, b in zip(events, events[1:], strict=False)]
    assert min(gaps) >= RUNG_MIN_S - 1e-9
    assert rig.action == "stop"


def test_a_row_that_asks_for_faster_rungs_is_held_back():
    events = Rig(rung_s=0.1).run(5.0, 1.5)
    assert min(b.stamp_s - a.stamp_s for a, b in zip(events, events[1:], strict=False)) >= RUNG_MIN_S - 1e-9


def test_row_clears_only_well_inside_the_limit_and_after_a_while():
    rig = Rig(ladder=("hold",))
    rig.run(1.0, 1.5)
    assert rig.run(5.0, 0.9) == [] and rig.action == "hold"  # inside, but not by the hysteresis
    assert rig.run(CLEAR_S - 0.1, 0.7) == []
    events = rig.run(0.3, 0.7)
    assert [e.active for e in events] == [False] and rig.action == ""


def test_chatter_around_the_limit_neither_clears_nor_repeats():
    rig = Rig(ladder=("hold",))
    events = []
    for _ in range(20):
        events += rig.run(0.6, 1.5) + rig.run(0.6, 0.7)
    assert len(events) == 1


def test_below_rows_trigger_below_and_clear_above():
    rig = Rig(below=True, ladder=("land",))
    assert rig.run(2.0, 1.1) == []
    assert [e.active for e in rig.run(1.0, 0.9)] == [True]
    assert rig.run(3.0, 1.1) == []
    assert [e.active for e in rig.run(2.0, 1.3)] == [False]


def test_not_a_number_counts_as_beyond_the_limit():
    rig = Rig()
    assert [e.active for e in rig.run(1.0, math.nan)] == [True]


def test_a_value_that_cannot_be_said_rests_the_row():
    rig = Rig()
    rig.run(1.0, 1.5)
    assert [e.active for e in rig.run(0.1, None)] == [False] and rig.action == ""


def test_a_row_outside_its_phases_is_not_evaluated():
    rig = Rig()
    rig.phase = ph.LAND
    assert rig.run(5.0, 9.0) == []


def test_the_strongest_of_two_active_rows_wins():
    world = fly_to("HOLD", bridge_plan)
    world.bundle_in_view = False
    world.run_until("PAUSE")
    world.edit.update(change(FcuStatus, battery_voltage_v=12.9))
    world.run_until("LAND", 4.0)
    assert "battery critical" in world.node.reason


def test_cleared_row_resumes_the_interrupted_phase():
    world = fly_to("RETURN", bridge_plan)
    world.edit.update(change(State, position_std_m=3.5))
    world.run_until("PAUSE")
    world.edit.clear()
    world.run_until("DONE")
    assert world.phases()[-4:] == ["PAUSE", "RETURN", "LAND", "DONE"]
    assert [e.active for e in world.events] == [True, False]


def test_interrupted_hold_is_not_resumed_while_the_bundle_is_out_of_sight():
    world = fly_to("HOLD", bridge_plan)
    world.edit.update(change(ControlStatus, position_error_m=2.5))
    world.run_until("PAUSE")
    world.edit.clear()
    world.bundle_in_view = False
    world.run(2.5)
    assert world.phase == "PAUSE" and world.node._safety.demand is None
    world.bundle_in_view = True
    world.run_until("HOLD")


@pytest.mark.parametrize("name", ["control_error", "uncertainty_position", "fence", "height", "distance"])
def test_ladder_ends_with_stop_when_px4_does_not_take_the_landing(name):
    scenario = SCENARIOS[name][0]
    world = fly_to(scenario.phase, scenario.make)
    world.ignore.add("land")
    scenario.event(world)
    world.run_until("LAND", 20.0)
    since_s = world.now_s
    world.run_until("PX4_HOLD", 8.0)
    assert world.now_s - since_s >= RUNG_MIN_S and ROW[name].text in world.node.reason
    world.run(2.0)
    assert world.mode == "POSCTL"  # PX4 noticed that nobody streams


def test_state_lost_while_px4_has_not_yet_taken_the_landing_stops_the_stream():
    world = World()
    world.ignore.add("land")
    world.run_until("LAND").run(0.5)
    world.edit.update(change(State, valid=False))
    world.run_until("PX4_HOLD", 0.6)


def test_hold_outside_the_fence_goes_back_to_its_edge():
    world = fly_to("HOLD", bridge_plan)
    world.run(1.0)
    limits = world.plan.limits
    narrow = msgspec.structs.replace(limits, fence_max_m=(8.0, 6.0, 8.0))
    world.node.plan = msgspec.structs.replace(world.plan, limits=narrow)
    world.node._known.plan = world.node.plan
    world.run_until("PAUSE")
    assert world.references[-1][1].trajectory.p_end[0] == pytest.approx(world.home[0] + 8.0)


def test_without_a_transmitter_from_the_start_its_absence_is_no_event():
    world = World()
    world.edit.update(change(FcuStatus, rc_ok=False))
    world.run_until("DONE")
    assert world.status.success and not world.events


def test_unknown_battery_voltage_stops_the_start_but_not_a_flight():
    world = World()
    world.edit.update(change(FcuStatus, battery_voltage_v=math.nan))
    world.run(5.0)
    assert world.phase == "WAIT_READY" and "battery: voltage not measured" in world.status.reason
    world.edit.clear()
    world.run_until("HOLD")
    world.edit.update(change(FcuStatus, battery_voltage_v=math.nan))
    world.run_until("DONE")
    assert world.status.success

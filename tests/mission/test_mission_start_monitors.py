"""What would end a flight as soon as the mission has the aircraft refuses its start: the pilot keeps the aircraft."""

import itertools
import math
from dataclasses import replace

import msgspec
import pytest
from mission_world import OFF_US, ON_US, World, bridge_plan, inspection_plan, line_plan, switch_plan, vehicle
from test_mission_rows import CASES, fields, healthy
from test_mission_without_satellites import alone_plan, alone_world, leave_ground

from companion.core.enums import SafetyAction
from companion.core.messages import BundleWitness, ControlStatus, EstimatorStatus, FcuStatus, Health, HostStatus, State
from companion.mission.monitors import MONITORS, MONITORS_ALONE, monitors_for
from companion.mission.snapshot import SafetySnapshot
from companion.mission.start_checks import run_checks
from companion.mission.start_monitors import HAS_CHECK, IN_THE_AIR, NOT_BEFORE_START, WAITED_FOR, StartMonitors

STEP_S = 0.05
EDITS = {name: (case.inside, case.beyond) for name, case in CASES.items()} | {
    "bundle_lost": (lambda s: None, fields(state_age_s=1.2)),
}
# with the rows that a plan changes, or has in place of others
PLANS = (bridge_plan(), inspection_plan(on_camera_failure="return"), alone_plan())
ACTING = {
    m.name: (m, plan)
    for plan in reversed(PLANS)
    for m in monitors_for(plan)
    if any(action != SafetyAction.WARN for action in m.escalation)
}


def edited(name: str, index: int) -> SafetySnapshot:
    """A healthy flight at the bundle with a value that is just allowed (0), or no longer (1)."""
    s = replace(healthy(), plan=ACTING[name][1])
    EDITS[name][index](s)
    return s


def found(name: str, index: int, seconds: float) -> dict[str, str]:
    """What is found after this time."""
    start, s = StartMonitors(vehicle(), ACTING[name][1]), edited(name, index)
    for _ in range(round(seconds / STEP_S) + 1):
        start.update(s)
        s = replace(s, now_s=s.now_s + STEP_S)
    return start.found()


# --- the table ------------------------------------------------------------------------------------------------------


def test_every_row_is_named():
    """A new row needs a case in `test_mission_rows.py`, and is evaluated before the start or says why not."""
    assert set(EDITS) == {m.name for m in (*MONITORS, *MONITORS_ALONE)}
    for names in (NOT_BEFORE_START, HAS_CHECK, IN_THE_AIR, WAITED_FOR):
        assert set(names) <= set(ACTING), "no such row beyond warn"
    for names in (HAS_CHECK, IN_THE_AIR, WAITED_FOR):
        assert not set(names) & set(NOT_BEFORE_START)
    assert all(len(reason) > 20 for reason in NOT_BEFORE_START.values())


@pytest.mark.parametrize("name", sorted(ACTING.keys() - NOT_BEFORE_START.keys()))
def test_a_condition_of_every_other_row_refuses_the_start_in_its_own_words(name):
    monitor, _ = ACTING[name]
    seconds = monitor.after_s if name in WAITED_FOR else 0.5
    assert name not in found(name, 0, 10.0), "refused within its limit"
    assert monitor.text in found(name, 1, seconds)[name]


@pytest.mark.parametrize("name", sorted(HAS_CHECK))
def test_the_check_of_the_same_quantity_exists(name):
    _, plan = ACTING[name]
    world = alone_world() if not plan.satellites else World(plan)
    world.run(2.0)
    mission = world.node._mission
    checks = run_checks(mission.inputs.latest, mission.inputs.healths, vehicle(), plan, True, world.now_s)
    assert HAS_CHECK[name] in {check.name for check in checks}


def test_what_does_not_last_and_what_has_ended_refuses_nothing():
    start, bad, good = StartMonitors(vehicle(), bridge_plan()), edited("disk_full", 1), edited("disk_full", 0)
    now_s = itertools.count()

    def run(snapshot, steps):
        for _ in range(steps):
            start.update(replace(snapshot, now_s=next(now_s) * STEP_S))
        return start.problems(())

    assert run(bad, 8) == [] and run(good, 1) == [] and run(bad, 8) == []
    assert len(run(bad, 8)) == 1
    assert run(good, 1) == []
    assert len(run(bad, 40)) == 1
    start.reset()
    assert start.found() == {}


# --- a hand-over in flight ------------------------------------------------------------------------------------------

CONDITIONS = {
    "disk": (HostStatus, {"disk_free_mb": 50.0}, "little space left for the flight log (50 MB, limit 200)"),
    "temperature": (HostStatus, {"cpu_temperature_c": 85.0}, "companion computer too hot (85 °C, limit 80)"),
    "memory": (
        HostStatus,
        {"memory_free_mb": 50.0},
        "little memory left on the companion computer (50 MB, limit 100)",
    ),
    "cell": (FcuStatus, {"cells_v": (3.9, 3.9, 3.9, 3.4)}, "one battery cell is weak (0.375 V below the mean, limit 0.3)"),
    "clocks": (FcuStatus, {"timesync_age_s": 30.0}, "clock synchronisation lost (30 s, limit 10)"),
    "rates": (Health, {"steps_per_s": 10.0}, "processes run too slowly (estimator, 0.5 of their rate, limit 0.8)"),
    "range": (FcuStatus, {"range_m": 0.6}, "too near to the structure (0.6 m, limit 1)"),
    "vibration": (
        FcuStatus,
        {"clipping_hz": 500.0},
        "vibration beyond the range of the accelerometer (500 samples/s, limit 100)",
    ),
    "other sender": (FcuStatus, {"conflict": "setpoints of 1/191"}, "another sender on the link (setpoints of 1/191)"),
    "copy": (
        EstimatorStatus,
        {"witness": BundleWitness(bundles_apart_m=0.7, bundles_apart=("beside", "pier"))},
        "bundles are not where they were to each other (beside, pier, 0.7 m, limit 0)",
    ),
}  # fmt: skip


def changed(world: World, kind: type, values: dict) -> None:
    before = world.edit.get(kind, lambda m: m)
    world.edit[kind] = lambda m: msgspec.structs.replace(before(m), **values)


def said(world: World) -> list[str]:
    return [command.text for command in world.commands if command.action == "text"]


def flown_by_pilot(plan) -> World:
    if not plan.satellites:
        world = alone_world(plan)
        world.run(2.0)
        leave_ground(world)
    else:
        world = World(plan).run(2.0)
        world.pilot_takes_off()
    return world.run(4.0)


PILOTS = {
    "with satellites": switch_plan(),
    "without satellites": alone_plan(),
    "without a bundle": line_plan(start="rc_switch", rc_switch=switch_plan().rc_switch),
}


@pytest.mark.parametrize("plan", PILOTS.values(), ids=PILOTS)
@pytest.mark.parametrize("kind, values, words", CONDITIONS.values(), ids=CONDITIONS)
def test_the_pilot_keeps_an_aircraft_that_the_mission_would_only_bring_down(kind, values, words, plan):
    if kind is EstimatorStatus and (plan.bundle is None or not plan.satellites):
        pytest.skip("no witness of a bundle")
    world = flown_by_pilot(plan)
    before, mode = world.edit.get(kind), world.mode
    changed(world, kind, values)
    world.run(4.0)
    world.channel_us = ON_US
    world.run(10.0)
    refused = [t for t in said(world) if "start refused" in t]
    if kind is FcuStatus and "range_m" in values and not plan.satellites:
        words = (
            f"range finder contradicts the bundle (9 of its tolerance, limit 1); {words}"  # it is in sight, 6 m ahead
        )
    assert refused == [f"start refused: {words}"]
    assert world.phases() == [] and world.mode == mode and {c.action for c in world.commands} == {"text"}
    assert not world.references and not world.events
    world.edit.pop(kind)
    if before is not None:
        world.edit[kind] = before
    world.run(5.0)
    assert world.phases() == []  # the switch stands at on all the time
    world.channel_us = OFF_US
    world.run(2.0)
    world.channel_us = ON_US
    world.run_until("TRANSFER" if plan.bundle is None else "SEARCH", 10.0).run(3.0)
    assert not world.events


# The link refuses offboard by itself, and cells and vibration need longer than the hand-over takes.
LATER = [name for name in CONDITIONS if name not in ("other sender", "cell", "vibration")]


@pytest.mark.parametrize("kind, values, words", [CONDITIONS[name] for name in LATER], ids=LATER)
def test_what_begins_just_after_the_switch_leaves_the_aircraft_with_the_pilot(kind, values, words):
    world = flown_by_pilot(switch_plan())
    world.channel_us = ON_US
    world.run_until("ENTER_OFFBOARD")
    changed(world, kind, values)
    if kind is HostStatus:  # comes once a second
        world.steps += 19 - world.steps % 20
    world.run(6.0)
    assert world.phases() == ["ENTER_OFFBOARD", "PX4_HOLD"], world.log
    assert words in world.status.cause and world.mode == "POSCTL" and not world.asked("offboard")


def test_what_has_a_start_check_ends_a_hand_over_that_has_begun():
    """No start check follows the switch: a bundle out of sight, and a battery below its limit."""
    for plan, kind, values, words in (
        (alone_plan(), State, {"bundle_age_s": 5.0, "marker_age_s": 5.0}, "bundle"),
        (switch_plan(), FcuStatus, {"battery_voltage_v": 13.4}, "battery low"),
    ):
        world = flown_by_pilot(plan)
        world.channel_us = ON_US
        world.run_until("ENTER_OFFBOARD")
        changed(world, kind, values)
        world.run(6.0)
        assert world.phases() == ["ENTER_OFFBOARD", "PX4_HOLD"], world.log
        assert words in world.status.cause and not world.asked("offboard"), world.status.cause


def test_what_a_witness_found_before_its_bundle_went_out_of_sight_refuses_nothing():
    def refused(**sight):
        start, s = StartMonitors(vehicle(), bridge_plan()), edited("bundle_against_gnss", 1)
        s.state = msgspec.structs.replace(s.state, **sight)
        for _ in range(40):
            start.update(s)
            s = replace(s, now_s=s.now_s + STEP_S)
        return start.found()

    assert "bundle_against_gnss" in refused()
    assert "bundle_against_gnss" not in refused(marker_age_s=3.0)


@pytest.mark.parametrize(("plan", "refuses"), [(bridge_plan(), False), (alone_plan(), True)])
def test_a_bundle_that_is_far_away_refuses_only_a_flight_that_has_nothing_else(plan, refuses):
    start, s = StartMonitors(vehicle(), plan), replace(healthy(), plan=plan)
    EDITS["uncertainty_relative"][1](s)
    for _ in range(40):
        start.update(s)
        s = replace(s, now_s=s.now_s + STEP_S)
    assert ("uncertainty_relative" in start.found()) == refuses


def test_a_spike_and_a_wall_beyond_the_limit_do_not_refuse_a_start():
    world = flown_by_pilot(switch_plan())
    changed(world, FcuStatus, {"range_m": 1.8})
    world.run(2.0)
    world.channel_us = ON_US
    del world.edit[FcuStatus]
    changed(world, FcuStatus, {"clipping_hz": 900.0, "range_m": 0.5})
    world.run(0.3)
    del world.edit[FcuStatus]
    changed(world, FcuStatus, {"range_m": 1.8})
    world.run_until("SEARCH", 5.0)
    assert not [text for text in said(world) if "refused" in text]


def test_a_hand_over_beside_the_structure_is_refused_by_the_bundle_in_sight():
    world = World(switch_plan(), bundle_p_home=(0.8, 0.0, 4.0)).run(2.0)
    world.pilot_takes_off()
    world.run(4.0)
    world.channel_us = ON_US
    world.run(3.0)
    assert world.phases() == []
    assert [t for t in said(world) if "refused" in t] == ["start refused: too near to the structure (0.8 m, limit 1)"]


def test_one_quantity_gives_one_line():
    world = flown_by_pilot(switch_plan())
    changed(world, FcuStatus, {"battery_voltage_v": 12.0})
    world.run(3.0)
    assert world.status.reason == "waiting: battery: 12.0 V, must be above 13.6 V"
    world.edit.clear()
    changed(world, State, {"position_std_m": 4.0})
    world.run(3.0)
    assert world.status.reason == "waiting: state: uncertain by 4.0 m"


def test_the_former_flight_refuses_nothing():
    """What was lost or counted in it, such as a ground station, was not there at the new start."""
    world = flown_by_pilot(switch_plan())
    world.channel_us = ON_US
    world.run_until("HOLD")
    world.mode = "POSCTL"
    world.run_until("PILOT", 2.0)
    world.channel_us = OFF_US
    world.run(1.0)
    changed(world, FcuStatus, {"ground_station_age_s": math.inf, "unhealthy_systems": ("compass",)})
    changed(world, ControlStatus, {"solver_failures": 3})
    world.run(20.0)
    assert world.status.reason == "ready: fly, then turn the mission switch on"
    world.channel_us = ON_US
    world.run_until("SEARCH", 5.0)


# --- a start by itself ----------------------------------------------------------------------------------------------

BY_ITSELF = [name for name in CONDITIONS if name not in ("range", "other sender")]


@pytest.mark.parametrize("kind, values, words", [CONDITIONS[name] for name in BY_ITSELF], ids=BY_ITSELF)
def test_no_mission_takes_off_into_its_own_landing(kind, values, words):
    world = World(required_processes=("recorder",))
    changed(world, FcuStatus, {"gnss_ok": False})
    changed(world, kind, values)
    world.run(4.0)
    world.edit.clear()
    changed(world, kind, values)
    world.run(10.0)
    assert world.phases() == [] and world.status.reason == f"waiting: {words}"
    world.edit.clear()
    assert world.run_until("DONE").status.success


def test_on_the_ground_a_range_meets_the_crew():
    world = World()
    changed(world, FcuStatus, {"range_m": 0.6})
    world.run(1.0)
    world.edit.clear()
    assert "TAKEOFF" in world.phases()

"""One scenario for each monitor of the safety table; a monitor without a scenario fails.

Every scenario flies the pure node into a phase, makes one thing abnormal, and gives the phases that must follow. All
are then checked for the same things: the monitor becomes active, its action is taken, the ground station gets the
message, offboard is not requested again, and the last status has the cause.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import pytest
from mission_world import OFF_US, ON_US, World, bridge_plan, inspection_plan, switch_plan, vehicle

from companion.core.config import ConfigError
from companion.core.enums import FilterOffset, ImuFault, Phase, SafetyAction
from companion.core.frames import quat_from_rpy
from companion.core.messages import (
    BundleWitness,
    ControlStatus,
    EstimatorStatus,
    FcuAttitude,
    FcuPosition,
    FcuStatus,
    Health,
    HostStatus,
    ImuReport,
    Markers,
    PayloadStatus,
    SentSetpoint,
    State,
)
from companion.core.node import Latest
from companion.mission import phases as ph
from companion.mission.conditions import SAFETY_DEMANDS
from companion.mission.monitors import ACTIONS, ESCALATION_MIN_S, MONITORS, Monitor, monitors_for
from companion.mission.start_checks import run_checks
from companion.mission.transitions import TRANSITIONS
from companion.mission.trends import CarriedTrend

MONITOR = {monitor.name: monitor for monitor in MONITORS}


def change(kind, **fields):
    """An edit that overwrites fields of every message of one type."""
    return {kind: lambda m: msgspec.structs.replace(m, **fields)}


class Scenario(NamedTuple):
    """Fly to `phase`, apply `event`; the mission must be in the last of `path` within `limit_s`, or, without a path,
    still be in the same phase."""

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


def bundle_ahead(distance_m: float) -> Callable[[World], None]:
    """The structure stands so far in front of the aircraft, because satellites have moved the waypoint."""

    def event(world: World) -> None:
        world.p_WM = (world.p[0] + distance_m, world.p[1], world.p[2])

    return event


def both(*events) -> Callable[[World], None]:
    return lambda world: [event(world) for event in events]


def rolled(angle_rad: float) -> Callable[[World], None]:
    return edit(FcuAttitude, q_WB=tuple(quat_from_rpy(angle_rad, 0.0, 0.0)))


def contradicted(world: World) -> None:
    """Most measurements are far from what the filter expects; a few are not."""

    def change(m: EstimatorStatus) -> EstimatorStatus:
        factor = 0.5 if round(m.stamp_s / 0.05) % 4 == 0 else 9.0
        return msgspec.structs.replace(
            m, innovations=[msgspec.structs.replace(i, nis=factor * i.dof) for i in m.innovations]
        )

    world.edit[EstimatorStatus] = change


def counting(field: str) -> Callable[[World], None]:
    """A counter of the controller goes up in three of four cycles."""

    def event(world: World) -> None:
        begin = world.steps

        def change(m: ControlStatus) -> ControlStatus:
            return msgspec.structs.replace(m, **{field: (world.steps - begin) * 3 // 4})

        world.edit[ControlStatus] = change

    return event


def of_process(name: str, change: Callable[[Health], Health | None]) -> Callable[[World], None]:
    return lambda world: world.edit.update({Health: lambda m: change(m) if m.process == name else m})


def narrow_distance():
    """The example mission with a distance limit that the fence box does not already imply."""
    plan = bridge_plan()
    return bridge_plan(
        limits=msgspec.structs.replace(plan.limits, fence_min_m=(-40.0, -40.0, -1.0), fence_max_m=(40.0, 40.0, 8.0))
    )


def low_ceiling():
    plan = bridge_plan()
    return bridge_plan(limits=msgspec.structs.replace(plan.limits, height_m=6.0))


def wide_fence():
    limits = msgspec.structs.replace(bridge_plan().limits, fence_max_m=(14.0, 6.0, 8.0))
    return bridge_plan(limits=limits)


def long_hold():
    return bridge_plan(hold=msgspec.structs.replace(bridge_plan().hold, duration_s=200.0))


def high_return():
    return bridge_plan(return_=msgspec.structs.replace(bridge_plan().return_, height_m=7.9))


def witness(**values) -> Callable[[World], None]:
    return edit(EstimatorStatus, witness=BundleWitness(**values))


def copied(world: World) -> None:
    world.edit[Markers] = lambda m: msgspec.structs.replace(m, copied=("pier",), observations=[])


def refused_then_lost(world: World) -> None:
    """PX4 refuses the satellites for 4.5 s, the bundle is out of sight, then there is no fix either."""
    both(attribute("bundle_in_view", False), witness(satellites_refused=True))(world)
    lost_s = world.now_s + 4.5
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, gnss_ok=m.stamp_s < lost_s)


def astray(**offset) -> Callable[[World], None]:
    """The flight controller's position is displaced, and it counts no reset."""
    d = (offset.get("x", 0.0), offset.get("y", 0.0), offset.get("z", 0.0))

    def event(world: World) -> None:
        world.edit[FcuPosition] = lambda m: msgspec.structs.replace(
            m, p_W=tuple(a + b for a, b in zip(m.p_W, d, strict=True))
        )

    return event


def carried(world: World) -> None:
    """With all of its tilt to the right the aircraft goes to the left, at 0.5 m/s."""
    begin_s, leaning = world.now_s, tuple(quat_from_rpy(0.5, 0.0, 0.0))

    def change(m: State) -> State:
        x, y, z = m.p_W
        return msgspec.structs.replace(m, p_W=(x, y + 0.5 * (m.stamp_s - begin_s), z), q_WB=leaning)

    world.edit |= {
        State: change,
        FcuAttitude: lambda m: msgspec.structs.replace(m, q_WB=leaning),
        SentSetpoint: lambda m: msgspec.structs.replace(m, roll_rad=0.48),  # less what PX4's attitude is wrong by
        ControlStatus: lambda m: msgspec.structs.replace(m, position_error_m=1.5),
    }


def draining(world: World) -> None:
    begin_s = world.now_s
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(
        m, battery_voltage_v=15.5 - 0.03 * (world.now_s - begin_s)
    )


LANDING = ["LAND", "DONE"]
too_fast = both(edit(State, v_W=(6.0, 0.0, 0.0)), edit(FcuPosition, v_W=(6.0, 0.0, 0.0)))
HOME = ["RETURN", "LAND", "DONE"]
NO_FIX = edit(FcuStatus, gnss_ok=False)
SCENARIOS: dict[str, list[Scenario]] = {
    "rc_takeover": [Scenario("HOLD", attribute("mode", "POSCTL"), ["PILOT"], 0.3)],
    "switch_off": [Scenario("HOLD", attribute("channel_us", OFF_US), ["PILOT"], 0.6, switch_plan)],
    "conflict": [Scenario(phase, edit(FcuStatus, conflict="echo"), ["PILOT"], 0.3) for phase in ("SEARCH", "HOLD")],
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
    "low": [Scenario("HOLD", blown(z=-3.8), ["PAUSE", *HOME], 60.0)],
    "distance": [Scenario("HOLD", blown(y=20.0), ["PAUSE", "RETREAT", "LAND", "DONE"], 20.0, narrow_distance)],
    "speed": [Scenario("HOLD", too_fast, ["PAUSE"], 0.8)],
    "takeoff_limits": [Scenario(phase, blown(y=8.0), LANDING, 20.0) for phase in ("TAKEOFF", "ENTER_OFFBOARD")],
    "imu_unused": [
        Scenario("HOLD", edit(EstimatorStatus, imu=ImuReport(0.0, ImuFault.STOPPED, "the stream has stopped")), [], 5.0)
    ],
    "state_runaway": [Scenario("HOLD", edit(EstimatorStatus, runaways={FilterOffset.CAMERA_DELAY: 4}), [], 5.0)],
    "bundle_moving": [Scenario("HOLD", witness(moving_m_s=0.6), LANDING, 20.0)],
    "bundle_displaced": [Scenario("HOLD", witness(displaced_m=2.0), ["PAUSE", "RETREAT", *HOME], 60.0)],
    "bundle_given_up": [Scenario("RETURN", witness(given_up=True), [])],
    "bundle_twice": [Scenario("HOLD", copied, ["PAUSE", "RETREAT", *HOME], 60.0)],
    "bundle_against_gnss": [
        Scenario("HOLD", witness(gnss_offset_m=5.0, gnss_offset_max_m=4.0), ["RETREAT", *HOME], 60.0)
    ],
    "bundle_size": [Scenario("HOLD", witness(size_error=0.25, size_error_std=0.02), ["RETREAT", *HOME], 60.0)],
    "bundle_shrinks": [Scenario("HOLD", witness(range_gain=1.6), LANDING, 20.0)],
    "bundles_disagree": [
        Scenario("HOLD", witness(bundles_apart_m=1.0, bundles_apart=("beside", "pier")), ["RETREAT", *HOME], 60.0)
    ],
    "range_finder": [
        Scenario(phase, edit(FcuStatus, range_m=1.8), ["RETREAT", *HOME], 60.0) for phase in ("APPROACH", "HOLD")
    ],
    "gnss_jumped": [Scenario("HOLD", witness(gnss_jump_m=6.0), ["PAUSE", *HOME], 60.0)],
    "hidden_at_jump": [
        Scenario(
            "HOLD", both(witness(satellites_refused=True), attribute("bundle_in_view", False)), ["RETREAT", *HOME], 60.0
        )
    ],
    "takeoff_height": [Scenario("TAKEOFF", attribute("takeoff_height_m", 10.0), LANDING, 20.0)],
    "takeoff_gnss_lost": [Scenario("TAKEOFF", NO_FIX, LANDING, 20.0)],
    "takeoff_slow": [Scenario("TAKEOFF", attribute("climb_m_s", 0.0), LANDING, 40.0)],
    "raw_fence": [
        Scenario(phase, astray(y=9.0), LANDING, 20.0)
        for phase in ("TAKEOFF", "ENTER_OFFBOARD", "SEARCH", "HOLD", "RETURN")
    ],
    "raw_height": [Scenario(phase, astray(z=5.5), LANDING, 20.0, low_ceiling) for phase in ("SEARCH", "HOLD")],
    "raw_distance": [Scenario("HOLD", astray(y=20.0), LANDING, 20.0, narrow_distance)],
    "raw_speed": [
        Scenario("HOLD", too_fast, ["PAUSE", *LANDING], 20.0),
        Scenario("TAKEOFF", too_fast, LANDING, 20.0),
    ],
    "raw_velocity": [Scenario("HOLD", edit(FcuPosition, v_W=(0.0, 1.1, 0.0)), LANDING, 20.0)],
    "raw_lost": [Scenario("HOLD", drop(FcuPosition), HOME, 60.0)],
    "raw_off": [Scenario("HOLD", NO_FIX, [], 8.0)],
    "fcu_reset": [Scenario("HOLD", both(astray(y=6.5), edit(FcuStatus, position_resets=8)), HOME, 60.0)],
    "fcu_unhealthy": [Scenario("HOLD", edit(FcuStatus, unhealthy_systems=("gyro",)), HOME, 60.0)],
    "clipping": [
        Scenario("HOLD", edit(FcuStatus, clipping_hz=300.0), LANDING, 20.0),
        Scenario("TAKEOFF", edit(FcuStatus, clipping_hz=300.0), LANDING, 20.0),
    ],
    "battery_unmeasured": [Scenario("HOLD", edit(FcuStatus, battery_voltage_v=math.nan), HOME, 60.0)],
    "battery_implausible": [Scenario("HOLD", edit(FcuStatus, battery_voltage_v=65.0), HOME, 60.0)],
    "implausible": [Scenario("HOLD", edit(FcuStatus, implausible=("velocity",)), [], 5.0)],
    "weak_cell": [Scenario("HOLD", edit(FcuStatus, cells_v=(3.9, 3.9, 3.9, 3.3)), HOME, 60.0)],
    "energy": [Scenario("HOLD", draining, HOME, 100.0, long_hold)],
    "sustained_wind": [Scenario("HOLD", both(rolled(0.49), edit(SentSetpoint, roll_rad=0.49)), HOME, 160.0, long_hold)],
    "takeoff_wind": [Scenario("TAKEOFF", edit(State, disturbance_W=(0.0, 4.7, 0.0)), LANDING, 20.0)],
    "carried_away": [Scenario(phase, carried, LANDING, 10.0) for phase in ("APPROACH", "HOLD", "RETURN")],
    "strong_wind": [Scenario("HOLD", edit(State, disturbance_W=(0.0, 5.3, 0.0)), HOME, 60.0, long_hold)],
    "ground_lost": [Scenario("HOLD", edit(FcuStatus, ground_station_age_s=12.0), HOME, 80.0, long_hold)],
    "touchdown": [Scenario("LAND", edit(FcuStatus, landed=True), [], make=high_return)],
    "landing_slow": [Scenario("LAND", attribute("notices_ground", False), [], 45.0)],
    "foreign_estimate": [Scenario("HOLD", edit(FcuStatus, foreign_estimate="ODOMETRY of 1/197"), [])],
    "foreign_change": [Scenario("HOLD", edit(FcuStatus, foreign_change="DO_SET_HOME of 1/193"), [])],
    "rc_lost": [Scenario("HOLD", edit(FcuStatus, rc_ok=False), HOME, 60.0)],
    "timesync_lost": [Scenario("HOLD", edit(FcuStatus, timesync_age_s=12.0), HOME, 60.0)],
    "innovation": [
        Scenario("SEARCH", contradicted, ["PAUSE", "LAND", "DONE"], 20.0),
        Scenario("RETURN", contradicted, ["PAUSE", "LAND", "DONE"], 20.0),
        Scenario("HOLD", both(NO_FIX, contradicted), ["PAUSE", "LAND", "DONE"], 20.0),
    ],
    "innovation_at_bundle": [Scenario("HOLD", contradicted, LANDING, 20.0)],
    "gnss_lost_at_bundle": [Scenario("HOLD", NO_FIX, [])],
    "gnss_lost_too_long": [Scenario("HOLD", NO_FIX, HOME, 130.0, long_hold)],
    "gnss_and_imu_lost": [
        Scenario(
            "HOLD",
            both(NO_FIX, edit(EstimatorStatus, imu=ImuReport(0.0, ImuFault.STOPPED, "the stream has stopped"))),
            HOME,
            60.0,
        )
    ],
    "gnss_lost": [Scenario("SEARCH", NO_FIX, ["PAUSE", "LAND", "DONE"], 20.0)],
    "both_lost": [
        Scenario("HOLD", both(NO_FIX, attribute("bundle_in_view", False)), ["RETREAT", "LAND", "DONE"], 20.0)
    ],
    "unaided": [Scenario("RETURN", refused_then_lost, ["LAND", "DONE"], 20.0)],
    "tilt": [Scenario("HOLD", rolled(1.2), ["PX4_HOLD"], 0.3)],
    "tilt_error": [Scenario("HOLD", rolled(0.4), ["LAND", "DONE"], 10.0)],
    "throttle": [Scenario("HOLD", edit(SentSetpoint, thrust=0.6), ["PAUSE", "LAND", "DONE"], 20.0)],
    "standoff": [
        Scenario("HOLD", blown(x=2.2), ["RETREAT", *HOME], 40.0, wide_fence),
        Scenario("HOLD", edit(FcuStatus, range_m=0.9), ["RETREAT", "LAND", "DONE"], 40.0),
    ],
    "obstacle": [
        Scenario("SEARCH", edit(FcuStatus, range_m=0.9), ["PAUSE", "RETREAT", "LAND", "DONE"], 60.0),
        Scenario("SEARCH", bundle_ahead(0.8), ["PAUSE", "RETREAT", *HOME], 60.0),
    ],
    "obstacle_return": [Scenario("RETURN", edit(FcuStatus, range_m=0.9), ["PAUSE", "LAND", "DONE"], 40.0)],
    "solver_failing": [Scenario("HOLD", counting("solver_failures"), ["PAUSE", *HOME], 60.0)],
    "deadline": [Scenario("HOLD", counting("deadline_misses"), ["PAUSE", *HOME], 60.0)],
    "process_dead": [Scenario("HOLD", of_process("tracker", lambda m: None), ["PAUSE", *HOME], 60.0)],
    "process_errors": [
        Scenario("HOLD", of_process("recorder", lambda m: msgspec.structs.replace(m, errors=2, last_error="disk")), [])
    ],
    "payload_camera": [
        Scenario("HOLD", drop(PayloadStatus), [], 8.0),
        Scenario("HOLD", edit(PayloadStatus, problem="camera X: no heartbeat"), [], 8.0),
    ],
    "cpu_starved": [
        Scenario(
            "HOLD",
            of_process("controller", lambda m: msgspec.structs.replace(m, steps_per_s=0.7 * m.nominal_steps_per_s)),
            ["PAUSE", *HOME],
            60.0,
        )
    ],
    "cpu_hot": [Scenario("HOLD", edit(HostStatus, cpu_temperature_c=85.0), HOME, 60.0)],
    "cpu_throttled": [Scenario("HOLD", edit(HostStatus, throttled=True), [])],
    "disk_full": [Scenario("HOLD", edit(HostStatus, disk_free_mb=20.0), HOME, 60.0)],
    "memory_low": [Scenario("HOLD", edit(HostStatus, memory_free_mb=20.0), HOME, 60.0)],
}
CASES = [(m.name, i) for m in MONITORS for i in range(max(1, len(SCENARIOS.get(m.name, ()))))]


def fly_to(phase: str, make) -> World:
    world = World(make())
    if world.plan.start == "rc_switch":
        world.run(2.0)
        world.pilot_takes_off()
        world.run(1.0)
        world.channel_us = ON_US
    return world.run_until(phase).run(1.0)


@pytest.mark.parametrize(("name", "index"), CASES)
def test_monitor(name, index):
    assert name in SCENARIOS, f"monitor '{name}' of the safety table has no scenario"
    scenario, monitor = SCENARIOS[name][index], MONITOR[name]
    world = fly_to(scenario.phase, scenario.make)
    assert not world.events, "the scenario must begin without an active monitor"
    count, offboard, said = len(world.log), world.asked("offboard"), world.asked("text")
    scenario.event(world)
    if scenario.path:
        world.run_until(scenario.path[-1], scenario.limit_s)
    else:
        world.run(max(5.0, scenario.limit_s))
    assert world.phases()[count:] == scenario.path
    first = next(e for e in world.events if e.monitor == name)
    assert (
        first.active
        and first.action == monitor.escalation[0]
        and first.text.startswith(monitor.text[:1].upper() + monitor.text[1:])
    )
    assert not first.value <= first.limit if not monitor.below else first.value < first.limit
    assert first.text in [c.text for c in world.commands[said:]], "the ground station got no message"
    world.run(5.0)
    assert world.asked("offboard") == offboard
    if not scenario.path:
        assert world.status.cause == ""
    elif scenario.path != ["PAUSE"]:
        assert not world.status.success and world.status.cause.startswith(monitor.text)


def test_every_scenario_belongs_to_a_monitor():
    assert set(SCENARIOS) == set(MONITOR)


@pytest.mark.parametrize("monitor", MONITORS, ids=lambda monitor: monitor.name)
def test_escalations_grow_stronger_and_leave_time_between_levels(monitor: Monitor):
    severities = [ACTIONS.index(action) for action in monitor.escalation]
    assert severities == sorted(set(severities)) and monitor.escalation_s >= ESCALATION_MIN_S
    assert set(monitor.phases) <= set(ph.UNDER_WAY) and monitor.phases
    assert len(monitor.text) <= 50  # STATUSTEXT


@pytest.mark.parametrize("monitor", MONITORS, ids=lambda monitor: monitor.name)
def test_first_action_of_every_monitor_has_a_transition_from_each_of_its_phases(monitor: Monitor):
    """An action that no transition takes in a phase would be silently ignored there."""
    already = {
        SafetyAction.HOLD: Phase.PAUSE,
        SafetyAction.RETREAT: Phase.RETREAT,
        SafetyAction.RETURN: Phase.RETURN,
        SafetyAction.LAND: Phase.LAND,
    }
    for phase in monitor.phases:
        if monitor.escalation[0] == SafetyAction.WARN:
            continue
        handled = {transition.condition for transition in TRANSITIONS if phase in transition.sources}
        if phase == Phase.LAND:  # already at the level before "stop streaming"
            assert SAFETY_DEMANDS[monitor.escalation[-1]] in handled
            continue
        first = monitor.escalation[0]
        if phase == Phase.RETREAT and first == SafetyAction.HOLD:  # does not interrupt a retreat
            first = next(a for a in monitor.escalation if ACTIONS.index(a) > ACTIONS.index(SafetyAction.RETURN))
        has_transition = SAFETY_DEMANDS[first] in handled
        assert has_transition or phase == already.get(monitor.escalation[0]), (monitor.name, phase)


@pytest.mark.parametrize(("lasts_s", "path"), [(1.5, ["RETURN"]), (4.0, ["RETURN", "LAND"])])
def test_a_return_on_demand_is_not_interrupted_by_a_hold(lasts_s, path):
    """PX4 followed a jump of GNSS: return, hold because of the innovation, return again, and so on."""
    world = fly_to("HOLD", bridge_plan)
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(m, battery_voltage_v=13.3)
    world.run_until("RETURN").run(2.0)
    contradicted(world)
    world.run(lasts_s)
    world.edit.pop(EstimatorStatus)
    world.run(2.0)
    phases = world.phases()
    assert phases[phases.index("HOLD") + 1 :] == path
    texts = [event.text for event in world.events if event.monitor == "innovation" and event.active]
    assert "; return continues, landing if it lasts" in texts[0] and "holding" not in texts[0]


def test_a_return_at_the_end_of_the_mission_is_interrupted_by_a_hold():
    world = fly_to("RETURN", bridge_plan)
    contradicted(world)
    world.run_until("PAUSE")
    world.edit.pop(EstimatorStatus)
    assert world.run_until("DONE").status.success


def test_the_strongest_action_of_two_active_monitors_is_taken():
    world = fly_to("HOLD", bridge_plan)
    world.bundle_in_view = False
    world.run_until("PAUSE")
    world.edit.update(change(FcuStatus, battery_voltage_v=12.9))
    world.run_until("LAND", 4.0)
    assert "battery critical" in world.node.reason


def test_cleared_monitor_resumes_the_interrupted_phase():
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
    assert world.phase == "PAUSE" and world.node.demand is None
    world.bundle_in_view = True
    world.run_until("HOLD")


@pytest.mark.parametrize(
    "name",
    [
        "control_error",
        "uncertainty_position",
        "fence",
        "height",
        "distance",
        "innovation",
        "innovation_at_bundle",
        "gnss_lost",
        "throttle",
    ],
)
def test_escalation_ends_the_stream_when_px4_does_not_take_the_landing(name):
    scenario = SCENARIOS[name][0]
    world = fly_to(scenario.phase, scenario.make)
    world.ignore.add("land")
    scenario.event(world)
    world.run_until("LAND", 20.0)
    since_s = world.now_s
    world.run_until("PX4_HOLD", 8.0)
    assert world.now_s - since_s >= ESCALATION_MIN_S and MONITOR[name].text in world.node.reason
    world.run(2.0)
    assert world.mode == "POSCTL"  # PX4 noticed that no setpoints come


def asked_to_land(world: World) -> bool:
    return any(m.action == "land" for m in world.commands)


def sinks_before_px4_lands(world: World) -> None:
    """From the begin of LAND: this stack flies down, and PX4 is asked for the last decimetres."""
    height_m = world.p[2]
    world.run(2.5)
    assert world.mode == "OFFBOARD" and not asked_to_land(world) and world.p[2] < height_m - 1.0
    world.run_until("DONE", 30.0)
    assert asked_to_land(world) and not [e for e in world.events if e.action == "stop streaming"]


def test_without_a_position_this_stack_sinks_itself_and_px4_lands_the_last_decimetres():
    """PX4 without a position levels the aircraft, and the wind takes it."""
    world = fly_to("SEARCH", bridge_plan)
    NO_FIX(world)
    sinks_before_px4_lands(world.run_until("LAND", 6.0))


@pytest.mark.parametrize(("position_ok", "refused"), [(False, False), (True, True)], ids=["lost", "satellites refused"])
@pytest.mark.parametrize(("phase", "voltage_v"), [("HOLD", 12.9), ("RETURN", 15.0)])
def test_a_landing_that_px4_could_only_fly_level_is_flown_by_this_stack(position_ok, refused, phase, voltage_v):
    """PX4 dead-reckons beside satellites that it refuses: asked to land, it would sink level after seconds, with the wind."""
    world = fly_to(phase, bridge_plan)
    status = edit(FcuStatus, position_ok=position_ok, battery_voltage_v=voltage_v)
    both(status, witness(satellites_refused=refused))(world)
    sinks_before_px4_lands(world.run_until("LAND", 60.0))


@pytest.mark.parametrize(
    "event",
    [NO_FIX, edit(FcuStatus, position_ok=False), witness(satellites_refused=True)],
    ids=["no fix", "no position of PX4", "satellites refused"],
)
def test_carried_away_has_no_value_where_this_stack_would_sink_itself(monkeypatch, event):
    """PX4 loses its position: the landing would be flown with the tilt that is not enough."""
    monkeypatch.setattr(CarriedTrend, "moved_m", lambda self, now_s: 0.8)
    world = fly_to("HOLD", bridge_plan)
    assert world.node.snapshot(world.now_s).carried_m == 0.8
    event(world)
    world.run(world.vehicle.safety.gnss_lost_s + 0.2)
    assert world.node.snapshot(world.now_s).carried_m is None


def test_carried_away_has_no_value_in_a_flight_without_satellites(monkeypatch):
    monkeypatch.setattr(CarriedTrend, "moved_m", lambda self, now_s: 0.8)
    world = World(bridge_plan(satellites=False))
    assert world.run(0.5).node.snapshot(world.now_s).carried_m is None


@pytest.mark.parametrize(("position_ok", "until_s"), [(None, 0.0), (False, 4.5), (False, 20.0)])
def test_satellites_without_a_position_of_px4_are_lost_after_the_time_of_a_reset(position_ok, until_s):
    """PX4 resets to satellites that it has refused within this time; those that it does not use at all are no witness."""
    world = fly_to("HOLD", bridge_plan)
    begin_s = world.now_s
    world.edit[FcuStatus] = lambda m: msgspec.structs.replace(
        m, position_ok=position_ok if m.stamp_s < begin_s + until_s else True
    )
    world.run(8.5)
    lost = [e.stamp_s - begin_s for e in world.events if e.monitor == "gnss_lost_at_bundle" and e.active]
    assert (5.4 < lost[0] < 6.0) if until_s > 8 else not lost
    assert world.phase == "HOLD"


def test_the_landing_of_a_monitor_that_does_not_doubt_the_estimate_is_flown_by_this_stack():
    world = fly_to("HOLD", bridge_plan)
    both(edit(FcuStatus, position_ok=False, clipping_hz=400.0))(world)
    sinks_before_px4_lands(world.run_until("LAND", 4.0))


def test_without_the_bundle_vibration_leaves_no_estimate_to_sink_by():
    world = fly_to("HOLD", bridge_plan)
    both(edit(FcuStatus, position_ok=False, clipping_hz=400.0), attribute("bundle_in_view", False))(world)
    world.run_until("LAND", 4.0).run(2.0)
    assert asked_to_land(world)


def test_an_estimate_in_doubt_waits_for_px4s_position_for_a_moment_only():
    world = fly_to("HOLD", bridge_plan)
    both(edit(FcuStatus, position_ok=False), contradicted)(world)
    world.run_until("LAND", 5.0).run(1.3)
    assert not asked_to_land(world)
    world.run(0.5)
    assert asked_to_land(world) and not [e for e in world.events if e.action == "stop streaming"]


def test_the_crew_is_warned_when_setpoints_stop_and_px4_has_no_position():
    world = fly_to("HOLD", bridge_plan)
    edit(FcuStatus, position_ok=False)(world)
    world.run(0.5)
    rolled(1.2)(world)
    world.run_until("PX4_HOLD", 1.0)
    assert any("keeps the height only" in e.text and "fly it at once" in e.text for e in world.events)


def test_px4_lands_at_once_when_this_stacks_estimate_is_in_doubt_on_its_way_down():
    world = fly_to("SEARCH", bridge_plan)
    NO_FIX(world)
    world.run_until("LAND", 6.0).run(0.5)
    assert not asked_to_land(world)
    rolled(0.4)(world)  # `tilt_error`
    world.run(0.7)
    assert asked_to_land(world) and world.phase == "LAND"


@pytest.mark.parametrize(
    ("v_W", "behind_m"), [((0.0, 0.0, 0.0), (0.0, 0.0)), ((0.5, -0.1, 0.0), (0.5, -0.1)), ((6.0, 0.0, 0.0), (1.0, 0.0))]
)
def test_an_aircraft_whose_estimate_is_in_doubt_brakes_by_px4s_velocity_until_px4_has_taken_over(v_W, behind_m):
    """The estimate stood still while the aircraft flew at the pier, at 0.7 m/s."""
    world = fly_to("HOLD", bridge_plan)
    world.ignore.add("land")
    contradicted(world)
    world.run(0.35)
    edit(FcuPosition, v_W=v_W)(world)
    at, count = world.p, len(world.references)
    world.run_until("LAND", 1.0)
    assert "measurements contradict the estimate" in world.node.reason
    reference = world.references[count:][-1][1]
    assert reference.frame == "world" and asked_to_land(world)
    assert reference.trajectory.p == pytest.approx((at[0] - behind_m[0], at[1] - behind_m[1], at[2]), abs=0.01)


def test_a_landing_for_another_reason_stays_at_the_reference_until_px4_has_taken_over():
    world = fly_to("HOLD", bridge_plan)
    world.ignore.add("land")
    both(edit(FcuPosition, v_W=(0.5, 0.0, 0.0)), edit(FcuStatus, battery_voltage_v=12.9))(world)
    at = world.p
    world.run_until("LAND", 3.0)
    assert world.references[-1][1].trajectory.p == pytest.approx(at, abs=0.01)


def test_a_pilot_takes_over_on_the_way_down():
    world = fly_to("SEARCH", bridge_plan)
    NO_FIX(world)
    world.run_until("LAND", 6.0).run(0.5)
    world.mode = "ALTCTL"
    world.run_until("PILOT", 0.5)
    assert not asked_to_land(world)


def test_state_lost_while_px4_has_not_yet_taken_the_landing_stops_the_stream():
    world = World()
    world.ignore.add("land")
    world.run_until("LAND").run(0.5)
    world.edit.update(change(State, valid=False))
    world.run_until("PX4_HOLD", 0.6)


def test_hold_outside_the_fence_goes_back_to_its_edge():
    world = fly_to("HOLD", bridge_plan)
    world.run(1.0)
    world.p_WM = (world.p_WM[0] + 3.0, *world.p_WM[1:])  # the hold point goes with the bundle
    world.run_until("PAUSE")
    limits = world.plan.limits
    assert world.p[0] > world.home[0] + limits.fence_max_m[0]
    assert world.references[-1][1].trajectory.p_end[0] == pytest.approx(world.home[0] + limits.fence_max_m[0])


def test_without_rc_from_the_start_its_absence_is_no_event():
    world = World()
    world.edit.update(change(FcuStatus, rc_ok=False))
    world.run_until("DONE")
    assert world.status.success and not world.events


def test_unknown_battery_voltage_stops_the_start_and_ends_a_flight():
    world = World()
    world.edit.update(change(FcuStatus, battery_voltage_v=math.nan))
    world.run(5.0)
    assert world.phase == "WAIT_READY" and "battery: voltage not measured" in world.status.reason
    world.edit.clear()
    world.run_until("HOLD")
    world.edit.update(change(FcuStatus, battery_voltage_v=math.nan))
    world.run_until("DONE")
    assert world.status.cause.startswith("battery voltage no longer measured")


def test_a_corrupted_bundle_pose_does_not_choose_the_direction_of_a_retreat():
    world = fly_to("HOLD", bridge_plan)
    world.run(3.0)
    turned = tuple(quat_from_rpy(0.0, 0.0, 1.0))  # its z points up
    world.edit[State] = lambda m: msgspec.structs.replace(m, p_WM=(0.0, 0.0, -9.0), q_WM=turned, relative_std_m=0.8)
    world.run_until("PAUSE").run_until("RETREAT").step()
    move = world.references[-1][1].trajectory
    assert move.p_end[0] - move.p_start[0] == pytest.approx(-2.0, abs=0.01)  # the pier is in the east
    assert move.p_end[2] == pytest.approx(move.p_start[2])


def test_a_process_that_was_absent_at_the_start_is_no_event():
    world = World()
    world.edit[Health] = lambda m: None
    world.run_until("DONE")
    assert world.status.success and not world.events


def test_the_message_names_the_process_without_health():
    world = fly_to("HOLD", bridge_plan)
    of_process("tracker", lambda m: None)(world)
    world.run_until("PAUSE", 5.0)
    assert "no health messages from a process (tracker, " in world.node.reason


def test_a_monitor_that_cannot_be_evaluated_is_said_and_counted_and_the_others_act(monkeypatch):
    """All monitors were blind, and the mission flew on with a battery that was critical."""
    broken = []

    def value(s):
        if broken:
            raise ZeroDivisionError("float division by zero")

    monitors = tuple(m._replace(value=value) if m.name == "bundle_against_gnss" else m for m in MONITORS)
    monkeypatch.setattr("companion.mission.safety_monitor.monitors_for", lambda plan: monitors)
    world = fly_to("HOLD", bridge_plan)
    assert world.node.errors == 0
    broken.append(True)
    world.run(1.0)
    assert world.phase == "HOLD"
    assert [(e.monitor, e.action) for e in world.events] == [("bundle_against_gnss", "warn")]
    assert any("Monitor bundle_against_gnss cannot be evaluated (ZeroDivisionError" in c.text for c in world.commands)
    assert world.node.errors == 20 and "bundle_against_gnss" in world.node.last_error
    world.edit |= change(FcuStatus, battery_voltage_v=12.0)
    world.run_until("LAND", 6.0)


def test_a_computer_that_reports_no_numbers_is_no_event():
    world = World()
    world.edit[HostStatus] = lambda m: msgspec.structs.replace(
        m, disk_free_mb=math.nan, cpu_temperature_c=math.nan, memory_free_mb=math.nan, cpu_load=math.nan
    )
    world.run_until("DONE")
    assert world.status.success and not world.events


def test_a_mission_nearer_to_its_bundle_than_the_limit_is_refused():
    near = msgspec.structs.replace(bridge_plan().standoff, offset_M=(0.0, 0.0, 0.9))
    with pytest.raises(ConfigError, match=r"standoff.offset_M = \[0.0, 0.0, 0.9\].*safety.standoff_min_m = 1 m"):
        World(bridge_plan(standoff=near))


@pytest.mark.parametrize(("on_failure", "escalation"), [("continue", ("warn",)), ("return", ("warn", "return"))])
def test_a_payload_camera_that_does_not_answer_ends_the_flight_where_the_plan_says_so(on_failure, escalation):
    (row,) = (m for m in monitors_for(inspection_plan(on_camera_failure=on_failure)) if m.name == "payload_camera")
    assert row.escalation == escalation


def test_no_inspection_begins_while_its_camera_cannot_take_a_photograph():
    latest, now_s = Latest(), 10.0
    plan = inspection_plan()

    def problem() -> str:
        checks = run_checks(latest, {}, vehicle(), plan, True, now_s)
        return next(check.problem for check in checks if check.name == "payload camera")

    assert problem() == "no status from the payload process"
    latest.put(PayloadStatus(stamp_s=9.9, connected=True, problem="camera X: it has no storage; insert a card"))
    assert problem() == "camera X: it has no storage; insert a card"
    latest.put(PayloadStatus(stamp_s=9.9, connected=True, problem=""))
    assert problem() == ""

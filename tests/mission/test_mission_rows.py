"""The value of each monitor: in a healthy flight, beyond its limit, without its messages, with NaN."""

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import msgspec
import pytest
from mission_world import World, bridge_plan, vehicle

from companion.core.enums import FilterOffset, ImuFault, Phase
from companion.core.frames import quat_from_rpy
from companion.core.messages import (
    BundleWitness,
    ControlStatus,
    EstimatorStatus,
    FcuAttitude,
    HostStatus,
    ImuReport,
    Innovation,
    SentSetpoint,
)
from companion.mission.monitors import HELD_BY, MONITORS, Monitor
from companion.mission.raw_guard import RawMotion
from companion.mission.snapshot import SafetySnapshot
from companion.mission.trends import MIN_INNOVATIONS, WINDOW_S, ControlTrend, InnovationTrend

NAN = math.nan
Edit = Callable[[SafetySnapshot], None]


@cache
def healthy() -> SafetySnapshot:
    """The snapshot of a flight that holds at its bundle."""
    world = World()
    world.run_until("HOLD").run(2.0)
    return world.node.snapshot(world.now_s)


def fields(**values) -> Edit:
    return lambda s: [setattr(s, name, value) for name, value in values.items()] and None


def of(message: str, **values) -> Edit:
    """Change fields of one of the messages."""
    return lambda s: setattr(s, message, msgspec.structs.replace(getattr(s, message), **values))


def all_of(*edits: Edit) -> Edit:
    return lambda s: [edit(s) for edit in edits] and None


def moved(x: float = 0.0, y: float = 0.0, z: float = 0.0) -> Edit:
    def edit(s: SafetySnapshot) -> None:
        p_W = tuple(a + b for a, b in zip(s.state.p_W, (x, y, z), strict=True))
        s.state = msgspec.structs.replace(s.state, p_W=p_W)

    return edit


def rolled(angle_rad: float, yaw_rad: float = 0.0) -> Edit:
    return of("attitude", q_WB=tuple(quat_from_rpy(angle_rad, 0.0, yaw_rad)))


def raw(p=(9.0, 0.0, 4.0), v=(0.0, 0.0, 0.0)) -> Edit:
    """The motion by the flight controller's own data, from the record, with margins of 2 m."""
    return fields(raw=RawMotion(p, v, 2.0, 2.0))


class Case(NamedTuple):
    """Edits of a healthy snapshot."""

    inside: Edit  # still allowed, just
    beyond: Edit  # no longer
    no_value: tuple[Edit, ...] = ()  # the value cannot be determined
    nan: tuple[Edit, ...] = ()  # counts as beyond


def witness(**values) -> Edit:
    return fields(witness=BundleWitness(**values))


NO_WITNESS = fields(witness=None)
AWAY = fields(at_bundle=False)
NO_STATE = fields(state=None)
PX4_LANDS = all_of(fields(phase=Phase.LAND), of("status", mode="AUTO_LAND"))
BY_PILOT = of("status", mode="POSCTL")
CLIMBS = all_of(fields(phase=Phase.TAKEOFF), of("status", mode="AUTO_TAKEOFF"))
LANDED = all_of(fields(phase=Phase.LAND), of("status", landed=True, armed=True))
UNSEEN = of("state", marker_age_s=60.0)
SEARCHES = fields(phase=Phase.SEARCH, at_bundle=False)
RETURNS = fields(phase=Phase.RETURN, at_bundle=False)

CASES: dict[str, Case] = {
    "rc_takeover": Case(
        all_of(of("status", mode="AUTO_LOITER"), fields(mode_left=True, silent=True)),
        all_of(BY_PILOT, fields(mode_left=True)),
    ),
    "switch_off": Case(fields(switched_off=False), fields(switched_off=True)),
    "conflict": Case(of("status", conflict=""), of("status", conflict="another sender"), (fields(status=None),)),
    "foreign_estimate": Case(
        of("status", foreign_estimate=""),
        of("status", foreign_estimate="ODOMETRY of 1/197"),
        (fields(status=None),),
    ),
    "foreign_change": Case(
        of("status", foreign_change=""),
        of("status", foreign_change="PARAM_SET MPC_LAND_SPEED of 1/193"),
        (fields(status=None),),
    ),
    "rc_lost": Case(
        fields(rc_expected=True, rc_age_s=1.0),
        fields(rc_expected=True, rc_age_s=1.01),
        (fields(rc_expected=False, rc_age_s=math.inf),),
    ),
    "link_lost": Case(fields(status_age_s=1.0), fields(status_age_s=1.01), nan=(fields(status_age_s=NAN),)),
    "timesync_lost": Case(
        of("status", timesync_age_s=10.0),
        of("status", timesync_age_s=math.inf),
        (fields(status=None), of("status", timesync_age_s=NAN)),
    ),
    "state_stale": Case(
        fields(state_age_s=0.3), fields(state_age_s=math.inf), (PX4_LANDS,), (fields(state_age_s=NAN),)
    ),
    "estimator_reset": Case(fields(resets=0), fields(resets=1), (PX4_LANDS,)),
    "innovation": Case(
        fields(nis={"marker": 3.0, "velocity": 0.1}, raw=None),
        fields(nis={"marker": 3.1, "velocity": 0.1}, raw=None),
        (fields(nis={}, raw=None), PX4_LANDS, fields(nis={"marker": 3.1})),  # PX4 has a position: the next one
    ),
    "innovation_at_bundle": Case(
        fields(nis={"marker": 3.0, "velocity": 0.1}),
        fields(nis={"marker": 3.1, "velocity": 0.1}),
        (fields(nis={}), fields(raw=None), AWAY, PX4_LANDS),
    ),
    "imu_unused": Case(
        fields(imu=ImuReport(200.0)),
        fields(imu=ImuReport(0.0, ImuFault.STOPPED, "the stream has stopped")),
        (fields(imu=None),),
    ),
    "state_runaway": Case(
        fields(runaways={FilterOffset.GYRO_BIAS: 3, FilterOffset.CAMERA_DELAY: 1}),
        fields(runaways={FilterOffset.GYRO_BIAS: 1, FilterOffset.CAMERA_DELAY: 4}),
    ),
    "bundle_moving": Case(witness(moving_m_s=0.0), witness(moving_m_s=0.4), (NO_WITNESS,)),
    "bundle_displaced": Case(witness(displaced_m=0.0), witness(displaced_m=0.5), (NO_WITNESS,)),
    "bundle_given_up": Case(witness(given_up=False), witness(given_up=True), (NO_WITNESS,)),
    "bundle_twice": Case(fields(copies=1), fields(copies=2)),
    "bundle_against_gnss": Case(
        witness(gnss_offset_m=4.0, gnss_offset_max_m=4.0),
        witness(gnss_offset_m=4.1, gnss_offset_max_m=4.0),
        (NO_WITNESS, witness(gnss_offset_m=NAN)),
    ),
    "bundle_size": Case(
        witness(size_error=-0.31, size_error_std=0.075),  # a print that is too large keeps the aircraft away
        witness(size_error=-0.35, size_error_std=0.05),
        (
            NO_WITNESS,
            witness(size_error=NAN, size_error_std=0.01),
            witness(size_error=0.74, size_error_std=0.18),  # hardly moved yet
        ),
    ),
    "bundle_shrinks": Case(witness(range_gain=1.4), witness(range_gain=1.41), (NO_WITNESS, witness(range_gain=NAN))),
    "bundles_disagree": Case(
        witness(bundles_apart_m=0.0), witness(bundles_apart_m=0.7, bundles_apart=("beside", "pier")), (NO_WITNESS,)
    ),
    "range_finder": Case(
        of("status", range_m=2.51),
        of("status", range_m=2.49),
        (
            fields(status=None),
            of("status", range_m=NAN),
            all_of(of("status", range_m=1.5), fields(status_age_s=0.6)),
            all_of(of("status", range_m=1.5), AWAY),
            all_of(of("status", range_m=1.5), of("state", bundle="")),
            all_of(of("status", range_m=1.5), NO_STATE),
            all_of(of("status", range_m=1.5), fields(home_W=None)),
        ),
        (all_of(of("status", range_m=2.9), of("state", p_W=(NAN, 0.0, 4.0))),),
    ),
    "gnss_jumped": Case(witness(gnss_jump_m=3.5), witness(gnss_jump_m=3.6), (NO_WITNESS, witness(gnss_jump_m=NAN))),
    "hidden_at_jump": Case(
        all_of(witness(satellites_refused=True), of("state", marker_age_s=2.0), fields(state_age_s=0.0)),
        all_of(witness(satellites_refused=True), of("state", marker_age_s=2.01), fields(state_age_s=0.0)),
        (NO_STATE, AWAY),
        (all_of(witness(satellites_refused=True), of("state", marker_age_s=NAN)),),
    ),
    "uncertainty_relative": Case(
        of("state", relative_std_m=0.5),
        of("state", relative_std_m=math.inf),
        (NO_STATE, AWAY),
        (of("state", relative_std_m=NAN),),
    ),
    "uncertainty_position": Case(
        all_of(AWAY, of("state", position_std_m=3.0)),
        all_of(AWAY, of("state", position_std_m=3.01)),
        (NO_STATE, fields(at_bundle=True), all_of(AWAY, PX4_LANDS)),
        (all_of(AWAY, of("state", position_std_m=NAN)),),
    ),
    "marker_lost": Case(
        all_of(of("state", marker_age_s=2.9), fields(state_age_s=0.05)),
        all_of(of("state", marker_age_s=2.9), fields(state_age_s=0.15)),
        (NO_STATE, AWAY),
        (of("state", marker_age_s=NAN),),
    ),
    "gnss_lost_at_bundle": Case(fields(gnss_age_s=1.0), fields(gnss_age_s=1.1), (fields(gnss_expected=False), AWAY)),
    "gnss_lost_too_long": Case(fields(gnss_age_s=60.0), fields(gnss_age_s=60.1), (fields(gnss_expected=False), AWAY)),
    "gnss_and_imu_lost": Case(
        all_of(fields(gnss_age_s=60.0), fields(imu=ImuReport(200.0))),
        all_of(fields(gnss_age_s=1.1), fields(imu=ImuReport(0.0, ImuFault.STOPPED, "the stream has stopped"))),
        (fields(gnss_expected=False), AWAY),
    ),
    "gnss_lost": Case(
        all_of(AWAY, fields(gnss_age_s=60.0)),  # the bundle is in sight
        all_of(AWAY, fields(gnss_age_s=1.1), UNSEEN),
        (fields(gnss_expected=False), fields(at_bundle=True), all_of(AWAY, PX4_LANDS)),
    ),
    "both_lost": Case(
        fields(gnss_age_s=60.0), all_of(fields(gnss_age_s=1.1), UNSEEN), (fields(gnss_expected=False), AWAY)
    ),
    "unaided": Case(
        all_of(fields(gnss_age_s=60.0, gnss_followed_age_s=60.0)),  # the bundle is in sight
        all_of(fields(gnss_age_s=1.1, gnss_followed_age_s=5.1), UNSEEN),
        (fields(gnss_expected=False),),
    ),
    "control_error": Case(
        of("control", position_error_m=2.0),
        of("control", position_error_m=2.01),
        (fields(control=None), of("control", active="idle"), PX4_LANDS),
        (of("control", position_error_m=NAN),),
    ),
    "tilt": Case(rolled(1.04), rolled(1.06), (fields(attitude=None), BY_PILOT), (of("attitude", q_WB=(NAN,) * 4),)),
    "tilt_error": Case(
        fields(tilt_error_rad=0.25),
        fields(tilt_error_rad=0.26),
        (fields(tilt_error_rad=None), BY_PILOT),
        (fields(tilt_error_rad=NAN),),
    ),
    "throttle": Case(
        of("sent", thrust=0.55), of("sent", thrust=0.56), (fields(sent=None), BY_PILOT), (of("sent", thrust=NAN),)
    ),
    "standoff": Case(
        moved(x=1.99), moved(x=2.01), (NO_STATE, AWAY, of("state", bundle="")), (of("state", p_W=(NAN, 0.0, 0.0)),)
    ),
    "obstacle": Case(
        all_of(SEARCHES, of("status", range_m=1.0)),
        all_of(SEARCHES, of("status", range_m=0.99)),
        (of("status", range_m=0.5), all_of(SEARCHES, of("state", bundle=""))),  # at the bundle `standoff` has it
        (all_of(SEARCHES, of("state", p_W=(NAN, 0.0, 0.0))),),
    ),
    "obstacle_return": Case(
        all_of(RETURNS, of("status", range_m=1.0)),
        all_of(RETURNS, of("status", range_m=0.99)),
        (RETURNS, of("status", range_m=0.5), all_of(RETURNS, moved(z=-3.0), of("status", range_m=0.5))),
    ),
    "fence": Case(
        moved(y=5.99), moved(y=6.01), (NO_STATE, fields(home_W=None), PX4_LANDS), (of("state", p_W=(0.0, NAN, 0.0)),)
    ),
    "height": Case(moved(z=3.9), moved(z=4.1), (NO_STATE, fields(home_W=None)), (of("state", p_W=(0.0, 0.0, NAN)),)),
    "low": Case(moved(z=-3.7), moved(z=-3.8), (NO_STATE, fields(home_W=None)), (of("state", p_W=(0.0, 0.0, NAN)),)),
    "distance": Case(moved(x=5.9), moved(x=6.1), (NO_STATE, fields(home_W=None)), (of("state", p_W=(NAN, 0.0, 0.0)),)),
    "battery_low": Case(
        of("status", battery_voltage_v=13.6),
        of("status", battery_voltage_v=13.5),
        (fields(status=None), of("status", battery_voltage_v=NAN), of("status", battery_voltage_v=0.0)),
    ),
    "battery_critical": Case(
        of("status", battery_voltage_v=13.0),
        of("status", battery_voltage_v=12.9),
        (fields(status=None), of("status", battery_voltage_v=NAN), of("status", battery_voltage_v=0.0)),
    ),
    "speed": Case(
        of("state", v_W=(4.0, 0.0, 0.0)),
        of("state", v_W=(4.0, 0.0, 0.3)),
        (NO_STATE, PX4_LANDS),
        (of("state", v_W=(NAN, 0.0, 0.0)),),
    ),
    "takeoff_limits": Case(
        all_of(CLIMBS, moved(y=6.99)),
        all_of(CLIMBS, moved(y=7.01)),
        (fields(), all_of(CLIMBS, NO_STATE), BY_PILOT),  # in offboard other monitors watch the limits
        (all_of(CLIMBS, of("state", p_W=(NAN, 0.0, 0.0))),),
    ),
    "takeoff_height": Case(
        fields(climb=(5.0, 0.0)),
        fields(climb=(4.5, 1.0)),  # it could not stop at 5 m
        (fields(climb=None), BY_PILOT),
        (fields(climb=(NAN, 0.0)),),
    ),
    "takeoff_gnss_lost": Case(
        all_of(CLIMBS, fields(gnss_expected=True, gnss_age_s=1.0)),
        all_of(CLIMBS, fields(gnss_expected=True, gnss_age_s=1.01)),
        (fields(gnss_expected=True, gnss_age_s=9.0), BY_PILOT, all_of(CLIMBS, fields(gnss_expected=False))),
        (all_of(CLIMBS, fields(gnss_expected=True, gnss_age_s=NAN)),),
    ),
    "takeoff_wind": Case(
        all_of(CLIMBS, fields(strong_wind=0.85)),
        all_of(CLIMBS, fields(strong_wind=0.86)),
        (fields(strong_wind=0.9), BY_PILOT, all_of(CLIMBS, fields(strong_wind=None))),
    ),
    "takeoff_slow": Case(fields(phase_time_s=28.3), fields(phase_time_s=28.4), (of("status", landed=True),)),
    "raw_fence": Case(
        raw((0.0, 8.0, 4.0)), raw((0.0, 8.01, 4.0)), (fields(raw=None), BY_PILOT), (raw((NAN, 0.0, 0.0)),)
    ),
    "raw_height": Case(
        raw((0.0, 0.0, 10.0)), raw((0.0, 0.0, 10.01)), (fields(raw=None), BY_PILOT), (raw((0.0, 0.0, NAN)),)
    ),
    "raw_distance": Case(
        raw((17.0, 0.0, 4.0)), raw((17.01, 0.0, 4.0)), (fields(raw=None), BY_PILOT), (raw((NAN, 0.0, 0.0)),)
    ),
    "raw_speed": Case(
        raw(v=(4.8, 0.0, NAN)),  # the receiver reports no vertical velocity
        raw(v=(4.8, 0.0, 0.5)),
        (fields(raw=None), BY_PILOT),
    ),
    "raw_velocity": Case(
        fields(raw_difference_m_s=0.8),
        fields(raw_difference_m_s=0.81),
        (fields(raw_difference_m_s=None), BY_PILOT, all_of(fields(raw_difference_m_s=0.9), PX4_LANDS)),
        (fields(raw_difference_m_s=NAN),),
    ),
    "raw_lost": Case(fields(raw_age_s=1.0), fields(raw_age_s=math.inf), (fields(raw_age_s=None),)),
    "raw_off": Case(fields(raw_off_s=5.0), fields(raw_off_s=5.1, raw_missing="no position fix")),
    "fcu_reset": Case(fields(raw_reset_m=6.0), fields(raw_reset_m=6.1)),
    "clipping": Case(
        of("status", clipping_hz=99.0),
        of("status", clipping_hz=101.0),
        (fields(status=None), of("status", clipping_hz=NAN)),
    ),
    "fcu_unhealthy": Case(fields(new_faults=()), fields(new_faults=("gyro",))),
    "battery_unmeasured": Case(fields(voltage_age_s=3.0), fields(voltage_age_s=3.1), (fields(voltage_age_s=None),)),
    "battery_implausible": Case(
        fields(voltage_outside_v=0.0),
        fields(voltage_outside_v=0.01),
        (fields(status=None),),
        (fields(voltage_outside_v=NAN),),
    ),
    "implausible": Case(
        of("status", implausible=("battery voltage",)),
        of("status", implausible=("battery voltage", "velocity")),
        (fields(status=None),),
    ),
    "weak_cell": Case(
        of("status", cells_v=(3.9, 3.9, 3.9, 3.52)),
        of("status", cells_v=(3.9, 3.9, 3.9, 3.48)),
        (fields(status=None), of("status", cells_v=())),
    ),
    "energy": Case(
        fields(flight_time_left_s=81.0, way_home_s=25.0),  # 30 s home, 6 s down, 15 s to land, 30 s in reserve
        fields(flight_time_left_s=79.0, way_home_s=25.0),
        (fields(flight_time_left_s=79.0, way_home_s=None), fields(flight_time_left_s=None, way_home_s=25.0)),
    ),
    "sustained_wind": Case(fields(wind_share=0.85), fields(wind_share=0.86), (fields(wind_share=None),)),
    "carried_away": Case(
        all_of(of("control", position_error_m=0.99), fields(carried_m=0.8)),
        all_of(of("control", position_error_m=1.01), fields(carried_m=0.5)),
        (
            all_of(of("control", position_error_m=1.5), fields(carried_m=None)),
            all_of(BY_PILOT, of("control", position_error_m=1.5), fields(carried_m=0.8)),
        ),
    ),
    "strong_wind": Case(fields(strong_wind=0.95), fields(strong_wind=0.96), (fields(strong_wind=None),)),
    "ground_lost": Case(fields(ground_age_s=10.0), fields(ground_age_s=10.1), (fields(ground_age_s=None),)),
    "touchdown": Case(
        all_of(LANDED, rolled(0.25), raw(v=(2.9, 0.0, 0.4))),
        all_of(LANDED, raw(v=(0.0, 0.0, -0.7))),
        (fields(phase=Phase.LAND), all_of(LANDED, of("status", armed=False)), fields(status=None)),
    ),
    "landing_slow": Case(fields(phase=Phase.LAND, phase_time_s=34.9), fields(phase=Phase.LAND, phase_time_s=40.1)),
    "setpoints_lost": Case(fields(setpoints_age_s=0.5), fields(setpoints_age_s=math.inf), (PX4_LANDS,)),
    "fallback_too_long": Case(fields(fallback_time_s=5.0), fields(fallback_time_s=5.1)),
    "solver_failing": Case(fields(solver_failures=0.5), fields(solver_failures=0.6)),
    "deadline": Case(fields(deadline_misses=0.5), fields(deadline_misses=0.6)),
    "process_dead": Case(
        fields(health_ages_s={"tracker": 3.0, "recorder": 0.1}),
        fields(health_ages_s={"tracker": 3.1, "recorder": 0.1}),
        (fields(health_ages_s={}),),
    ),
    "process_errors": Case(
        fields(new_errors={}), fields(new_errors={"tracker": (1, "bad image"), "recorder": (4, "read-only")})
    ),
    "payload_camera": Case(
        fields(payload_age_s=5.0), fields(payload_age_s=5.1, payload=None), (fields(payload_age_s=None),)
    ),
    "cpu_starved": Case(
        fields(step_rates={"estimator": 0.8, "controller": 1.0, "recorder": 0.1}),
        fields(step_rates={"estimator": 1.0, "controller": 0.79}),
        (fields(step_rates={}), fields(step_rates={"recorder": 0.1})),
    ),
    "cpu_hot": Case(
        of("host", cpu_temperature_c=80.0),
        of("host", cpu_temperature_c=80.1),
        (fields(host=None), of("host", cpu_temperature_c=NAN)),
    ),
    "cpu_throttled": Case(of("host", throttled=False), of("host", throttled=True), (fields(host=None),)),
    "disk_full": Case(
        of("host", disk_free_mb=200.0),
        of("host", disk_free_mb=0.0),
        (fields(host=None), of("host", disk_free_mb=NAN)),
    ),
    "memory_low": Case(
        of("host", memory_free_mb=100.0),
        of("host", memory_free_mb=99.0),
        (fields(host=None), of("host", memory_free_mb=NAN)),
    ),
}


def seen(monitor: Monitor, edit: Edit) -> float | None:
    """The monitor's value after an edit of the healthy snapshot."""
    s = SafetySnapshot(**vars(healthy()))
    edit(s)
    return monitor.value(s)


def beyond(monitor: Monitor, value: float) -> bool:
    limit = monitor.limit(vehicle(), bridge_plan())
    return not (value >= limit if monitor.below else value <= limit)  # as `SafetyMonitor` has it: NaN is beyond


def test_every_monitor_has_a_case():
    assert set(CASES) == {monitor.name for monitor in MONITORS}


@pytest.mark.parametrize("monitor", MONITORS, ids=lambda monitor: monitor.name)
def test_monitor_detects_its_limit(monitor):
    case = CASES[monitor.name]
    value = monitor.value(healthy())
    assert value is None or not beyond(monitor, value), "active in a healthy flight"
    assert not beyond(monitor, seen(monitor, case.inside))
    assert beyond(monitor, seen(monitor, case.beyond))
    if monitor.detail is not None:
        s = SafetySnapshot(**vars(healthy()))
        case.beyond(s)
        assert monitor.detail(s) in (
            "marker",
            "ODOMETRY of 1/197",
            "POSCTL, flown by the sticks",
            "tracker",
            "recorder: read-only",
            "controller",
            "another sender",
            "PARAM_SET MPC_LAND_SPEED of 1/193",
            "gyro",
            "velocity",
            "beside, pier",
            "no position fix",
            "the stream has stopped",
            "camera delay",
            "the payload process is silent",
        )


@pytest.mark.parametrize("monitor", MONITORS, ids=lambda monitor: monitor.name)
def test_monitor_has_no_value_without_its_messages_and_nan_is_beyond_the_limit(monitor):
    case = CASES[monitor.name]
    for edit in case.no_value:
        assert seen(monitor, edit) is None
    for edit in case.nan:
        assert beyond(monitor, seen(monitor, edit))


def test_a_forward_range_counts_for_the_standoff_like_the_distance_to_the_face():
    monitor = next(monitor for monitor in MONITORS if monitor.name == "standoff")
    assert seen(monitor, of("status", range_m=0.9)) == 0.9
    assert seen(monitor, of("status", range_m=9.0)) == pytest.approx(3.0)
    assert seen(monitor, all_of(of("status", range_m=0.9), NO_STATE)) == 0.9
    assert seen(monitor, all_of(of("status", range_m=0.9), NO_STATE, fields(status_age_s=0.6))) is None


def test_an_offset_that_no_error_explains_is_beyond_its_limit():
    monitor = next(monitor for monitor in MONITORS if monitor.name == "bundle_against_gnss")
    assert beyond(monitor, seen(monitor, witness(gnss_offset_m=0.5, gnss_offset_max_m=0.0)))
    assert not beyond(monitor, seen(monitor, witness(gnss_offset_m=0.0, gnss_offset_max_m=0.0)))
    assert seen(monitor, witness(gnss_offset_m=0.5, gnss_offset_max_m=NAN)) is None


def test_an_error_of_gnss_does_not_count_at_the_bundle_nor_one_of_the_bundle_away_from_it():
    away, near = (next(m for m in MONITORS if m.name == name) for name in ("innovation", "innovation_at_bundle"))
    assert seen(near, fields(nis={"position": 50.0, "marker": 0.5})) == 0.5
    assert seen(away, fields(nis={"position": 50.0, "marker": 0.5}, raw=None)) == 0.5
    assert seen(away, fields(nis={"position": 0.5, "marker": 50.0}, at_bundle=False)) == 0.5
    assert set(HELD_BY) == {True, False}


# --- values over time ------------------------------------------------------------------------------------------------


def status(now_s: float, nis: float, sensor: str = "marker", dof: int = 6, bundle: str = "") -> EstimatorStatus:
    innovation = Innovation(now_s, sensor, nis, dof, accepted=True, noise_scale=1.0, late_s=0.0, bundle=bundle)
    return EstimatorStatus(stamp_s=now_s, innovations=[innovation], rejected={}, dropped_late=0, update_time_s=0.0)


def test_single_outliers_do_not_move_the_median_but_what_lasts_does():
    trend = InnovationTrend()
    for i in range(20):
        trend.take(status(0.05 * i, 6e6 if i % 3 == 0 else 3.0))
    assert trend.medians(1.0)["marker"] == 0.5
    for i in range(20, 40):
        trend.take(status(0.05 * i, 30.0))
    assert trend.medians(2.0)["marker"] == 5.0


def test_a_further_bundle_that_stands_elsewhere_does_not_speak_for_the_estimate():
    trend = InnovationTrend()
    for i in range(20):
        trend.take(status(0.05 * i, 60.0, bundle="deck"))
    assert trend.medians(1.0)["marker"] == 10.0  # nothing else is in sight
    for i in range(20, 40):
        trend.take(status(0.05 * i, 60.0, bundle="deck"))
        trend.take(status(0.05 * i, 6.0, bundle="beside"))
    assert trend.medians(2.0)["marker"] == 1.0
    for i in range(40, 60):
        trend.take(status(0.05 * i, 6.0, bundle="beside"))
        trend.take(status(0.05 * i, 30.0))
    assert trend.medians(3.0)["marker"] == 5.0  # the mission's own


def test_a_nis_that_is_no_number_counts_as_infinite():
    trend = InnovationTrend()
    for i in range(9):
        trend.take(status(0.1 * i, NAN))
    assert trend.medians(0.8)["marker"] == math.inf


def test_a_sensor_without_new_measurements_has_no_median():
    trend = InnovationTrend()
    for i in range(MIN_INNOVATIONS):
        trend.take(status(0.01 * i, 60.0))
    assert trend.medians(0.1) == {"marker": 10.0}
    assert trend.medians(0.2 + WINDOW_S) == {}


def control(now_s: float, failures: int, misses: int) -> ControlStatus:
    return msgspec.structs.replace(healthy().control, stamp_s=now_s, solver_failures=failures, deadline_misses=misses)


def test_shares_of_failed_and_late_cycles():
    trend = ControlTrend()
    for i in range(51):
        trend.take(control(0.02 * i, i // 2, i // 5))
    assert trend.shares(1.0) == (0.5, 0.2)
    assert trend.shares(3.0) == (0.0, 0.0)


def test_the_failures_of_a_controller_before_its_restart_do_not_count():
    trend = ControlTrend()
    for i in range(50):
        trend.take(control(0.02 * i, 1000 + i, 0))
    assert trend.shares(1.0)[0] == 1.0
    for i in range(20):
        trend.take(control(1.0 + 0.02 * i, 0, 0))
    assert trend.shares(1.4) == (0.0, 0.0)


def test_the_snapshot_holds_fresh_messages_only():
    world = World()
    world.run_until("HOLD").run(2.0)
    world.edit.update({FcuAttitude: lambda m: None, SentSetpoint: lambda m: None, HostStatus: lambda m: None})
    world.run(4.0)
    s = world.node.snapshot(world.now_s)
    assert s.attitude is None and s.sent is None and s.host is None

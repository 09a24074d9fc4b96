"""What begins with each phase of a mission: references, commands, and the modes that are expected from then on."""

import math
from collections.abc import Callable

from companion.core.enums import CommandAction, FcuMode, OperatorAction, Phase
from companion.core.messages import WORLD
from companion.core.trajectories import begins_at, resumed
from companion.core.trajectory_messages import Hold, Move, Trajectory, Vec3
from companion.mission import phases as ph
from companion.mission import reference_geometry as geometry
from companion.mission.curves import flown_s, to_trajectory
from companion.mission.flight_state import Timer
from companion.mission.inspecting import fly_to_stop
from companion.mission.mission_context import MissionContext
from companion.mission.monitors import CONTROL_ERROR
from companion.mission.requests import CRITICAL, WARNING
from companion.mission.start_checks import health_warning, imu_warning
from companion.mission.way_home import way_home

DESCENT_M_S = 0.7  # PX4's MPC_LAND_SPEED
DESCENT_END_M = 0.4  # over the take-off point: from there PX4 lands within a second

# This stack sinks itself, speed [m/s] and acceleration [m/s²]: without GNSS and bundle faster than PX4's landing, because the
# error of the motion by the IMU grows with the time; without satellites, or below the take-off point, to the ground, and the end
# of the path is below, as the height may be wrong by that much.
SINKS, SINKS_ALONE = (1.5, 1.5), (1.2, 1.0)
TOUCH_END_M = -0.3

# Of the angle between the way away from the structure and backwards: beyond it, what is measured ahead is another thing.
BACKWARDS_COS = 0.5
RETREAT_LOWEST_M = 1.5  # over the take-off point

BRAKE_S = 1.0  # about 1 / bandwidth of the position control
BRAKE_MAX_M = 1.0

EntryAction = Callable[[MissionContext, Phase, float], None]  # (mission, the phase before, now_s)


def _enter_wait_ready(mission: MissionContext, left: Phase, now_s: float) -> None:
    mission.begin_flight()


def _note_start(mission: MissionContext, now_s: float) -> None:
    """The mission takes the aircraft."""
    mission.inputs.note_start(now_s)
    for warning in (imu_warning(mission.inputs.latest, mission.vehicle, now_s), health_warning(mission.inputs.status)):
        if warning:
            mission.report(warning, WARNING, now_s)


def _enter_arm(mission: MissionContext, left: Phase, now_s: float) -> None:
    _note_start(mission, now_s)
    mission.inputs.expect_modes(FcuMode.AUTO_LOITER, FcuMode.AUTO_TAKEOFF)
    mission.request(CommandAction.ARM, now_s)


def _enter_takeoff(mission: MissionContext, left: Phase, now_s: float) -> None:
    mission.inputs.expect_modes(FcuMode.AUTO_TAKEOFF, FcuMode.AUTO_LOITER)
    mission.request(CommandAction.TAKEOFF, now_s, height_m=mission.plan.takeoff.height_m)


def _enter_enter_offboard(mission: MissionContext, left: Phase, now_s: float) -> None:
    if left == Phase.WAIT_READY:
        if left_out := mission.inputs.note_handover():
            text = f"{left_out} points of the pilot's way are outside the limits: the way home is straight there"
            mission.report(text, WARNING, now_s)
        _note_start(mission, now_s)
    if left == Phase.TAKEOFF:  # offboard only from the request on
        mission.inputs.expect_modes(FcuMode.AUTO_TAKEOFF, FcuMode.AUTO_LOITER)
    else:
        mission.inputs.expect_modes(FcuMode.OFFBOARD)


def _enter_search(mission: MissionContext, left: Phase, now_s: float) -> None:
    mission.inputs.expect_modes(FcuMode.OFFBOARD)
    if left == Phase.ENTER_OFFBOARD:
        mission.flight.waypoint = 0
    fly_to_waypoint(mission, now_s)


def _enter_approach(mission: MissionContext, left: Phase, now_s: float) -> None:
    _note_found(mission, left)
    standoff = mission.plan.standoff
    if standoff is not None:
        _move_at_bundle(mission, standoff.offset_M, standoff.yaw_rad, now_s)


def _note_found(mission: MissionContext, left: Phase) -> None:
    """The search ends at a waypoint, which belongs to the way home: a bundle that was seen on the way there ends it at once."""
    if left == Phase.SEARCH:
        mission.flight.waypoints_reached = mission.flight.waypoint + 1


def _enter_hold(mission: MissionContext, left: Phase, now_s: float) -> None:
    bundle, standoff = mission.plan.bundle, mission.plan.standoff
    if bundle is not None and standoff is not None:
        mission.refer(bundle, Hold(p=standoff.offset_M, yaw_rad=standoff.yaw_rad), now_s)


def _enter_transfer(mission: MissionContext, left: Phase, now_s: float) -> None:
    """To the first point of the trajectory, or to the one at which it was interrupted, in the trajectory's frame."""
    mission.inputs.expect_modes(FcuMode.OFFBOARD)
    plan, back = mission.plan, mission.plan.return_
    here = _reference_point(mission, now_s)
    trajectory = _to_fly(mission)
    if here is None or trajectory is None:
        return
    goal, goal_yaw_rad = begins_at(trajectory)
    if plan.trajectory_at_bundle:
        _move_at_bundle(mission, goal, goal_yaw_rad, now_s)
    else:
        _move_in_world(mission, goal, goal_yaw_rad, now_s, here, back.speed_m_s, back.acceleration_m_s2)


def _enter_trajectory(mission: MissionContext, left: Phase, now_s: float) -> None:
    curve = mission.plan.trajectory
    trajectory = _to_fly(mission)
    if curve is not None and trajectory is not None:
        mission.references.start(curve.frame, trajectory, now_s, flown_s(curve, trajectory))


def _enter_inspect(mission: MissionContext, left: Phase, now_s: float) -> None:
    """To the first station, or again to the one at which the inspection was interrupted."""
    mission.inputs.expect_modes(FcuMode.OFFBOARD)
    _note_found(mission, left)
    if (progress := mission.flight.inspection) is not None:
        if not progress.begun:
            progress.begin(_reference_point(mission, now_s))
        fly_to_stop(mission, now_s)


def _enter_pause(mission: MissionContext, left: Phase, now_s: float) -> None:
    mission.flight.paused_phase = left
    if left == Phase.TRAJECTORY:
        _note_interruption(mission, now_s)
    mission.flight.pauses += not mission.operator.holding
    demand, home_W = mission.safety.demand, mission.inputs.home_W
    off_reference = demand is not None and demand.monitor == CONTROL_ERROR
    here = mission.inputs.aircraft_point() if off_reference else _reference_point(mission, now_s)
    if here is not None and home_W is not None:
        point, yaw_rad = here
        _move_in_world(mission, geometry.clamp(point, home_W, mission.plan.limits), yaw_rad, now_s, here)


def _enter_retreat(mission: MissionContext, left: Phase, now_s: float) -> None:
    retreat, home_W = mission.plan.retreat, mission.inputs.home_W
    here = _reference_point(mission, now_s)
    if here is None or home_W is None:
        return
    point, yaw_rad = here
    away = _retreat_direction(mission, yaw_rad, now_s)
    goal = geometry.clamp(geometry.along(point, away, retreat.distance_m), home_W, mission.plan.limits)
    if mission.inputs.structure is not None:  # from below a deck the way leads down
        goal = (goal[0], goal[1], max(goal[2], min(point[2], home_W[2] + RETREAT_LOWEST_M)))
    _move_in_world(mission, goal, yaw_rad, now_s, here, retreat.speed_m_s, retreat.acceleration_m_s2)


def _retreat_direction(mission: MissionContext, yaw_rad: float, now_s: float) -> Vec3:
    """Unit vector of a retreat: away from the structure; backwards where none is known, or where it is not what is ahead."""
    away, backwards = mission.inputs.away_W, (-math.cos(yaw_rad), -math.sin(yaw_rad), 0.0)
    ahead_m = mission.inputs.range_ahead_m(now_s)
    near = ahead_m is not None and ahead_m < mission.plan.retreat.distance_m + mission.vehicle.safety.standoff_min_m
    if away is None or (near and sum(a * b for a, b in zip(away, backwards, strict=True)) < BACKWARDS_COS):
        return backwards
    return away


def _enter_return(mission: MissionContext, left: Phase, now_s: float) -> None:
    flight = mission.flight
    flight.trajectory_flown |= left == Phase.TRAJECTORY and not flight.early_end
    if mission.inputs.home_W is None:
        return
    yaw_rad = _present_yaw(mission, now_s)
    if not flight.return_path:
        places = way_home(mission, yaw_rad)
        flight.return_path = places if flight.return_path is None else [(places[-1][0], yaw_rad)]
    fly_back(mission, now_s)


def _enter_land(mission: MissionContext, left: Phase, now_s: float) -> None:
    if left in ph.CONTROLLING and _can_sink(mission, left, now_s):
        mission.inputs.expect_modes(FcuMode.OFFBOARD)
        mission.flight.sinks = True
        _sink(mission, now_s)
    elif left in ph.CONTROLLING and _may_wait(mission, now_s):
        mission.inputs.expect_modes(FcuMode.OFFBOARD)
        mission.flight.waits = True
        _stay(mission, now_s)
    else:
        request_land(mission, left in ph.CONTROLLING, now_s)


def _may_wait(mission: MissionContext, now_s: float) -> bool:
    """PX4 has no position, and this stack is in control: PX4 has one again a second after it has reset to the satellites."""
    inputs = mission.inputs
    known = inputs.state_age_s(now_s) <= mission.vehicle.safety.state_age_s and not inputs.setpoints_lost(now_s)
    return known and inputs.mode == FcuMode.OFFBOARD and inputs.px4_without_position()


def _can_sink(mission: MissionContext, left: Phase, now_s: float) -> bool:
    """Whether this stack sinks itself: PX4 without a position levels the aircraft and lets the wind take it.

    This stack leans against the wind that it knows and follows the motion by bundle and IMU, for the seconds that it takes.
    """
    inputs, flight = mission.inputs, mission.flight
    known = inputs.state_age_s(now_s) <= mission.vehicle.safety.state_age_s and not inputs.setpoints_lost(now_s)
    descended = flight.descended and left == Phase.RETURN and mission.safety.demand is None  # it is as good as down
    lost = inputs.gnss_lost(now_s) or inputs.px4_without_position() or inputs.px4_refuses_satellites(now_s)
    without_position = lost or (not mission.plan.satellites and not descended)
    return known and without_position and may_sink(mission, now_s)


def may_sink(mission: MissionContext, now_s: float) -> bool:
    """This stack is in control, and no monitor that doubts its estimate demands a landing."""
    return mission.inputs.mode == FcuMode.OFFBOARD and mission.safety.may_sink(mission.inputs.bundle_seen(now_s))


def _sink(mission: MissionContext, now_s: float) -> None:
    """Straight down: to just above the height of the take-off point; without satellites on the ground; see `_descent_end_m`.

    PX4 lands without a position where it lost its satellites, and dead-reckons for a moment; where it never had any, it would
    let the wind take the aircraft over the last decimetres, too.
    """
    satellites, home_W = mission.plan.satellites, mission.inputs.home_W
    here = mission.inputs.aircraft_point() if satellites else _reference_point(mission, now_s)
    if here is None or home_W is None:
        return
    (x, y, z), yaw_rad = here
    end_m, limits = (DESCENT_END_M, SINKS) if satellites else (TOUCH_END_M, SINKS_ALONE)
    down_m = _descent_end_m(mission, z, end_m)
    if down_m < end_m:
        limits = SINKS_ALONE
    _move_in_world(mission, (x, y, home_W[2] + down_m), yaw_rad, now_s, here, *limits)


def _descent_end_m(mission: MissionContext, z_W: float, end_m: float) -> float:
    """Where a descent ends, over the take-off point [m]: at end_m, and never above the aircraft.

    Below the take-off point, as under the deck from which the aircraft took off, nothing is known of the ground: the descent goes
    on until the aircraft stands, or to the lowest place of the fence.
    """
    home_W, limits = mission.inputs.home_W, mission.plan.limits
    height_m = z_W - (0.0 if home_W is None else home_W[2])
    if height_m >= end_m:
        return end_m
    return min(height_m, limits.fence_min_m[2]) if limits.lowest_m < 0.0 else height_m


def request_land(mission: MissionContext, in_control: bool, now_s: float) -> None:
    """PX4 lands on the spot. in_control: the setpoints of this stack move the aircraft until then."""
    mission.flight.sinks = False
    mission.inputs.expect_modes(FcuMode.AUTO_LAND)
    mission.flight.land_attempts = 1
    if in_control:
        _stay(mission, now_s)
    else:
        mission.references.stop()
    mission.request(CommandAction.LAND, now_s)


def _stay(mission: MissionContext, now_s: float) -> None:
    """At the reference until PX4 has taken over; where this stack's estimate is in doubt, braked by PX4's velocity."""
    mission.flight.brakes = mission.safety.estimate_doubted()
    here = _reference_point(mission, now_s)
    if mission.references.current is None or here is None:
        mission.references.stop()
    elif not brake(mission, now_s):
        point, yaw_rad = here
        mission.refer(WORLD, Hold(p=point, yaw_rad=yaw_rad), now_s)


def brake(mission: MissionContext, now_s: float) -> bool:
    """Until PX4 has taken over: stop the aircraft by the flight controller's velocity, not by an estimate in doubt.

    The controller regulates the estimated velocity. Where the aircraft moves by v_e more than the estimate says, a reference
    that is v_e τ behind it makes the controller brake by v_e. False: the estimate was not in doubt, or nothing else is known.
    """
    inputs = mission.inputs
    raw = inputs.raw.motion(now_s) if mission.flight.brakes and mission.plan.satellites else None
    state, here = inputs.state, inputs.aircraft_point()
    if raw is None or state is None or here is None:
        return False
    point, yaw_rad = here
    missed = [0.0 if math.isnan(v) else v - seen for v, seen in zip(raw.v, state.v_W, strict=True)]
    time_s = BRAKE_MAX_M / max(math.hypot(*missed), BRAKE_MAX_M / BRAKE_S)
    behind = (time_s * missed[0], time_s * missed[1], time_s * missed[2])
    mission.refer(WORLD, Hold(p=geometry.difference(point, behind), yaw_rad=yaw_rad), now_s)
    return True


def _enter_pilot(mission: MissionContext, left: Phase, now_s: float) -> None:
    """Against another sender whose setpoints PX4 follows in offboard, request Hold once; else nothing.

    What is seen decides, not the monitor that became active first: no pilot can fly in offboard without a stream.
    """
    inputs = mission.inputs
    if inputs.offboard_of_others(left):
        mission.request(CommandAction.HOLD, now_s)
    elif (
        inputs.airborne() and inputs.mode == FcuMode.AUTO_LAND
    ):  # the mission switch ends this stack, not PX4's landing
        mission.report("PX4 goes on landing: to stop it, move a stick or select a mode", CRITICAL, now_s)


def _enter_px4_hold(mission: MissionContext, left: Phase, now_s: float) -> None:
    """Who stopped this stack at a view may mean to fly with another program."""
    if mission.operator.asks(OperatorAction.STOP_STREAMING):
        mission.flight.timers[Timer.PERSON] = now_s


def _enter_failed(mission: MissionContext, left: Phase, now_s: float) -> None:
    if mission.inputs.armed and mission.inputs.landed:
        mission.request(CommandAction.DISARM, now_s)


ENTRY_ACTIONS: dict[Phase, EntryAction] = {
    Phase.WAIT_READY: _enter_wait_ready,
    Phase.ARM: _enter_arm,
    Phase.TAKEOFF: _enter_takeoff,
    Phase.ENTER_OFFBOARD: _enter_enter_offboard,
    Phase.SEARCH: _enter_search,
    Phase.APPROACH: _enter_approach,
    Phase.HOLD: _enter_hold,
    Phase.TRANSFER: _enter_transfer,
    Phase.TRAJECTORY: _enter_trajectory,
    Phase.INSPECT: _enter_inspect,
    Phase.PAUSE: _enter_pause,
    Phase.RETREAT: _enter_retreat,
    Phase.RETURN: _enter_return,
    Phase.LAND: _enter_land,
    Phase.PILOT: _enter_pilot,
    Phase.PX4_HOLD: _enter_px4_hold,
    Phase.FAILED: _enter_failed,
}


# --- references -----------------------------------------------------------------------------------------------------


def fly_to_waypoint(mission: MissionContext, now_s: float) -> None:
    """Fly to the present waypoint of the search, if there is one left."""
    search, index = mission.plan.search, mission.flight.waypoint
    here, home_W = _reference_point(mission, now_s), mission.inputs.home_W
    if search is None or index >= len(search.waypoints) or here is None or home_W is None:
        return
    waypoint = search.waypoints[index]
    goal = geometry.added(waypoint.p_m, home_W)
    _move_in_world(mission, goal, waypoint.yaw_rad, now_s, here, search.speed_m_s, search.acceleration_m_s2)


def fly_back(mission: MissionContext, now_s: float) -> None:
    """Fly to the next point of the return path, if there is one left."""
    here, back = _reference_point(mission, now_s), mission.plan.return_
    if here is None or not mission.flight.return_path:
        return
    goal, goal_yaw_rad = mission.flight.return_path[0]
    _move_in_world(mission, goal, goal_yaw_rad, now_s, here, back.speed_m_s, back.acceleration_m_s2)


def descend(mission: MissionContext, now_s: float) -> None:
    """Sink to just above the take-off point, as the last point of the return path; PX4 lands from there.

    Without satellites to the ground, at the place of the hand-over.
    """
    here, home_W, back = _reference_point(mission, now_s), mission.inputs.home_W, mission.plan.return_
    if here is None or home_W is None:
        return
    end_m, limits = DESCENT_END_M, (DESCENT_M_S, back.acceleration_m_s2)
    if not mission.plan.satellites:
        end_m, limits = TOUCH_END_M, SINKS_ALONE
    (_, _, z), yaw_rad = here
    down_m = _descent_end_m(mission, z, end_m)
    if down_m < end_m:
        limits = SINKS_ALONE
    goal = geometry.added((0.0, 0.0, down_m), home_W)
    mission.flight.return_path = [(goal, yaw_rad)]
    _move_in_world(mission, goal, yaw_rad, now_s, here, *limits)


def _reference_point(mission: MissionContext, now_s: float) -> tuple[Vec3, float] | None:
    return mission.inputs.reference_point(mission.references.current, now_s)


def _present_yaw(mission: MissionContext, now_s: float) -> float:
    here = _reference_point(mission, now_s)
    return 0.0 if here is None else here[1]


def _to_fly(mission: MissionContext) -> Trajectory | None:
    """The trajectory of the plan in its own frame, after an interruption what is left of it.

    None without one, or while the take-off point is not known.
    """
    curve = mission.plan.trajectory
    if mission.flight.interrupted is not None:
        return mission.flight.interrupted
    origin = (0.0, 0.0, 0.0) if mission.plan.trajectory_at_bundle else mission.inputs.home_W
    return None if curve is None or origin is None else to_trajectory(curve, origin)


def _note_interruption(mission: MissionContext, now_s: float) -> None:
    """Where the trajectory goes on later: at the point that its reference has reached."""
    present = mission.references.current
    if present is None:
        return
    match present.trajectory:
        case Hold():
            mission.flight.interrupted_hold_s += now_s - present.start_s
        case Move():
            pass  # no trajectory of a plan is a move
        case trajectory:
            mission.flight.interrupted = resumed(trajectory, now_s - present.start_s)


def _move_at_bundle(mission: MissionContext, goal_M: Vec3, goal_yaw_M: float, now_s: float) -> None:
    """A move in the frame of the plan's bundle, with the limits of the stand-off."""
    bundle, standoff, state = mission.plan.bundle, mission.plan.standoff, mission.inputs.state
    here = _reference_point(mission, now_s)
    if bundle is None or standoff is None or state is None or here is None:
        return
    p_M, yaw_M = geometry.to_bundle(*here, state.p_WM, state.q_WM)
    limits = (standoff.speed_m_s, standoff.acceleration_m_s2, standoff.yaw_rate_rad_s)
    mission.refer(bundle, geometry.move_or_hold(p_M, yaw_M, goal_M, goal_yaw_M, *limits), now_s)


def _move_in_world(
    mission: MissionContext,
    goal: Vec3,
    goal_yaw_rad: float,
    now_s: float,
    start: tuple[Vec3, float],
    speed_m_s: float | None = None,
    acceleration_m_s2: float | None = None,
) -> None:
    """A move in the world; as fast as a retreat where nothing else is given."""
    retreat = mission.plan.retreat
    trajectory = geometry.move_or_hold(
        *start,
        goal,
        goal_yaw_rad,
        speed_m_s or retreat.speed_m_s,
        acceleration_m_s2 or retreat.acceleration_m_s2,
        mission.plan.yaw_rate_rad_s,
    )
    mission.refer(WORLD, trajectory, now_s)

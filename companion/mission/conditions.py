"""The conditions of the transition table: functions of the mission and the time.

A condition returns False or "" while it does not hold, True or a few words for the log when it does. Two conditions
have an effect: `switched_on_in_flight` uses up a movement of the mission switch and reports why it is refused;
`trajectory_out_of_limits` checks once in a phase.
"""

import math
from collections.abc import Callable

from companion.core.enums import CaptureOutcome, CommandAction, FcuMode, Phase, SafetyAction
from companion.mission import phases as ph
from companion.mission import raw_guard
from companion.mission import reference_geometry as geometry
from companion.mission.curves import HoldTable, points_of, to_trajectory
from companion.mission.flight_state import Timer
from companion.mission.inspecting import decide_first_way
from companion.mission.mission_context import MissionContext
from companion.mission.modes import MANUAL_MODES
from companion.mission.monitors import WIND_SHARE, takeoff_time_s
from companion.mission.plan import leaves_limits
from companion.mission.requests import WARNING

Found = bool | str
Condition = Callable[[MissionContext, float], Found]

CONTROL_READY_TIMEOUT_S = 8.0  # for the controller to begin sending, and for the mode to come
ARM_TIMEOUT_S = 8.0  # from the request to "armed" in the status
ARM_PATIENCE_S = 30.0  # PX4 checks more than it reports here, and its own estimate may settle later than this stack's
TAKEOFF_TOLERANCE_M = 0.4  # PX4's height is its own; when it calls the take-off complete, half is enough
TAKEOFF_STILL_S = 1.0  # height kept this long ends the take-off
TAKEOFF_STILL_M_S = 0.3  # of climb; the wind may move the aircraft sideways while PX4 flies
HANDOVER_SPEED_M_S = 1.0  # faster than this the mission does not take over from a pilot
ARRIVED_ERROR_M = 0.15  # HOLD begins when the position error was below this
ARRIVED_YAW_RAD = 0.15  # and the heading's below this: the nose may turn more slowly than the plan says
ARRIVED_S = 1.0  # for this long
SETTLE_TIMEOUT_S = 30.0  # after the approach should have ended
PHOTO_GRACE_S = 8.0  # longest extension of the hold for photographs still due
LAND_ATTEMPTS = 2
MAX_PAUSES = 5  # a mission that safety monitors interrupt more often is given up


# --- control by the pilot, PX4 or another station --------------------------------------------------------------------


def found_flying_by_pilot(mission: MissionContext, now_s: float) -> Found:
    return _found_flying(mission, now_s) and mission.inputs.pilots_mode() and mission.inputs.mode


def found_flying_by_px4(mission: MissionContext, now_s: float) -> Found:
    return _found_flying(mission, now_s) and not mission.inputs.pilots_mode() and mission.inputs.mode


def _found_flying(mission: MissionContext, now_s: float) -> bool:
    if not mission.inputs.linked(now_s) or not mission.inputs.airborne():
        return False
    return mission.plan.start == "auto" or mission.inputs.home_W is None


def switched_off(mission: MissionContext, now_s: float) -> Found:
    switch = mission.inputs.switch
    if switch is None or switch.on is not False or not mission.inputs.linked(now_s):
        return False
    if mission.inputs.airborne() and _other_sender_possible(mission, now_s):
        return False
    return mission.inputs.home_W is not None or mission.inputs.on_ground()


def _other_sender_possible(mission: MissionContext, now_s: float) -> bool:
    """PX4 has not left offboard since our stream ended, or is in our Hold, out of which another sender may take it."""
    held = mission.commands.asked(CommandAction.HOLD) and Timer.PERSON not in mission.flight.timers
    return held or mission.inputs.mode == FcuMode.OFFBOARD


def setpoints_lost_and_mode_left(mission: MissionContext, now_s: float) -> Found:
    inputs = mission.inputs
    if mission.flight.phase not in ph.CONTROLLING:
        return False
    silent = inputs.silent(now_s) and inputs.mode not in MANUAL_MODES
    return (silent or inputs.setpoints_lost(now_s)) and inputs.mode_left() and f"mode is {inputs.mode}"


def disarmed(mission: MissionContext, now_s: float) -> Found:
    return mission.inputs.linked(now_s) and not mission.inputs.armed


def _demanded(action: SafetyAction) -> Condition:
    """The condition that the safety monitors demand `action`."""

    def demanded(mission: MissionContext, now_s: float) -> Found:
        demand, flight = mission.safety.demand, mission.flight
        if action == SafetyAction.HOLD and flight.descended and flight.phase == Phase.RETURN:
            return ""  # in the descent to the place of the landing a hold only makes the flight longer
        return demand is not None and demand.action == action and demand.text

    return demanded


SAFETY_DEMANDS: dict[SafetyAction, Condition] = {
    action: _demanded(action) for action in SafetyAction if action not in (SafetyAction.NONE, SafetyAction.WARN)
}


# --- start ----------------------------------------------------------------------------------------------------------


def ready_to_arm(mission: MissionContext, now_s: float) -> Found:
    return mission.plan.start == "auto" and not mission.start_problems(now_s)


def switched_on_in_flight(mission: MissionContext, now_s: float) -> Found:
    switch, flight = mission.inputs.switch, mission.flight
    if switch is None or switch.on is not True or switch.turned_on_s in (None, flight.switch_used_s):
        return False
    flight.switch_used_s = switch.turned_on_s  # one movement of the switch is one request
    if problem := switch.doubt or mission.start_problems(now_s) or _not_ready_for_handover(mission, now_s):
        mission.report(f"start refused: {problem}", WARNING, now_s)
        return False
    return True


def _not_ready_for_handover(mission: MissionContext, now_s: float) -> str:
    state, p = mission.inputs.state, mission.inputs.from_home()
    if state is None or p is None or not mission.inputs.airborne():
        return "not in flight"
    if not mission.plan.satellites:
        p = (0.0, 0.0, p[2])  # the horizontal limits count from here
    if why := leaves_limits(p, mission.plan.limits):
        return why
    raw = mission.inputs.raw.motion(now_s)
    if raw is not None and raw_guard.leaves_limits(raw, mission.plan.limits, mission.plan.satellites):
        return "outside the limits by PX4's own position"
    wind = mission.inputs.strong_wind
    if wind is not None and wind > WIND_SHARE:
        return f"too much wind ({wind:.2f} of the tilt of the aircraft, limit {WIND_SHARE:g})"
    if why := decide_first_way(mission):
        return why
    speed_m_s = math.hypot(*state.v_W)
    if speed_m_s > HANDOVER_SPEED_M_S:
        return f"too fast ({speed_m_s:.1f} m/s)"
    return "; ".join(mission.start_monitors.problems_in_the_air())


def arm_refused(mission: MissionContext, now_s: float) -> Found:
    late = mission.commands.since_s(CommandAction.ARM, now_s) > ARM_TIMEOUT_S
    if may_arm_again(mission, now_s):
        return False
    return mission.commands.refusal(CommandAction.ARM, now_s) or (late and "not armed in time")


def may_arm_again(mission: MissionContext, now_s: float) -> bool:
    """PX4 refused temporarily, and there is time left."""
    return mission.commands.may_repeat(CommandAction.ARM) and mission.flight.phase_time_s(now_s) < ARM_PATIENCE_S


def armed(mission: MissionContext, now_s: float) -> Found:
    return mission.inputs.linked(now_s) and mission.inputs.armed


def takeoff_refused_on_ground(mission: MissionContext, now_s: float) -> Found:
    return mission.inputs.landed and _takeoff_failure(mission, now_s)


def takeoff_failed_in_air(mission: MissionContext, now_s: float) -> Found:
    return not mission.inputs.landed and _takeoff_failure(mission, now_s)


def _takeoff_failure(mission: MissionContext, now_s: float) -> str:
    if refusal := mission.commands.refusal(CommandAction.TAKEOFF, now_s):
        return refusal
    late = mission.inputs.landed and mission.flight.phase_time_s(now_s) > takeoff_time_s(mission.plan)
    return "did not leave the ground in time" if late else ""  # in the air the safety table judges the climb


def at_takeoff_height(mission: MissionContext, now_s: float) -> Found:
    inputs, height_m = mission.inputs, mission.plan.takeoff.height_m
    state, p = inputs.state, inputs.from_home()
    if state is None or p is None or inputs.state_age_s(now_s) > mission.vehicle.safety.state_age_s:
        return False
    still = abs(state.v_W[2]) < TAKEOFF_STILL_M_S
    high = p[2] > height_m - TAKEOFF_TOLERANCE_M
    px4_finished = inputs.mode == FcuMode.AUTO_LOITER and p[2] > height_m / 2
    there = inputs.airborne() and still and (high or px4_finished)
    return mission.flight.lasts(Timer.TAKEOFF_HEIGHT, there, TAKEOFF_STILL_S, now_s)


def in_offboard_without_bundle(mission: MissionContext, now_s: float) -> Found:
    return mission.plan.bundle is None and in_offboard(mission, now_s)


def in_offboard_to_inspect(mission: MissionContext, now_s: float) -> Found:
    return mission.flight.inspection is not None and in_offboard_without_bundle(mission, now_s)


def in_offboard(mission: MissionContext, now_s: float) -> Found:
    return mission.commands.asked(CommandAction.OFFBOARD) and mission.inputs.mode == FcuMode.OFFBOARD


def no_control_own_takeoff(mission: MissionContext, now_s: float) -> Found:
    return mission.plan.start == "auto" and _no_control(mission, now_s)


def no_control_pilots_flight(mission: MissionContext, now_s: float) -> Found:
    return mission.plan.start != "auto" and (
        _no_position(mission, now_s)
        or _battery_critical(mission)
        or _would_end_at_once(mission)
        or _no_control(mission, now_s)
    )


def _no_position(mission: MissionContext, now_s: float) -> str:
    """The pilot still flies: an aircraft without a position would be taken over and turned home at once."""
    if mission.commands.asked(CommandAction.OFFBOARD):
        return ""  # from here on the safety table judges
    late = mission.flight.phase_time_s(now_s) > CONTROL_READY_TIMEOUT_S
    return mission.inputs.position_doubt(now_s) if late else mission.inputs.position_lost(now_s)


def _battery_critical(mission: MissionContext) -> str:
    """This stack would only land at once: the pilot keeps the aircraft."""
    status, limit_v = mission.inputs.status, mission.vehicle.safety.battery_critical_v
    if status is None or mission.commands.asked(CommandAction.OFFBOARD) or not 0 < status.battery_voltage_v < limit_v:
        return ""
    return f"battery critical ({status.battery_voltage_v:.1f} V, limit {limit_v:g})"


def _would_end_at_once(mission: MissionContext) -> str:
    """What has begun since the checks of the start, by the safety table: the pilot keeps the aircraft."""
    asked = mission.commands.asked(CommandAction.OFFBOARD)
    return "" if asked else "; ".join(mission.start_monitors.problems_in_handover())


def _no_control(mission: MissionContext, now_s: float) -> str:
    if refusal := mission.commands.refusal(CommandAction.OFFBOARD, now_s):
        return f"offboard refused ({refusal})"
    if mission.inputs.resets() > 0:
        return "the estimator was reset"
    if mission.commands.asked(CommandAction.OFFBOARD):
        late = mission.commands.since_s(CommandAction.OFFBOARD, now_s) > CONTROL_READY_TIMEOUT_S
        return "the mode did not become offboard" if late else ""
    if mission.flight.phase_time_s(now_s) <= CONTROL_READY_TIMEOUT_S:
        return ""
    control = mission.inputs.control(now_s)
    return f"the controller is not sending ({'silent' if control is None else control.reason or control.active})"


# --- the mission ----------------------------------------------------------------------------------------------------


def bundle_confirmed(mission: MissionContext, now_s: float) -> Found:
    return _bundle_confirmed(mission, now_s) and not _standoff_problem(mission)


def bundle_confirmed_to_inspect(mission: MissionContext, now_s: float) -> Found:
    return mission.plan.standoff is None and bundle_confirmed(mission, now_s)


def standoff_out_of_limits(mission: MissionContext, now_s: float) -> Found:
    return _standoff_problem(mission) if _bundle_confirmed(mission, now_s) else ""


def _bundle_confirmed(mission: MissionContext, now_s: float) -> bool:
    return mission.move_finished(now_s) and Timer.CONFIRMED in mission.flight.timers


def _standoff_problem(mission: MissionContext) -> str:
    state, home_W, standoff = mission.inputs.state, mission.inputs.home_W, mission.plan.standoff
    if state is None or home_W is None or standoff is None:
        return ""
    goal, _ = geometry.to_world(standoff.offset_M, 0.0, state.p_WM, state.q_WM)
    return leaves_limits(geometry.difference(goal, home_W), mission.plan.limits)


def search_over(mission: MissionContext, now_s: float) -> Found:
    search = mission.plan.search
    if search is None or mission.flight.waypoint >= len(search.waypoints):
        return "looked from every waypoint"
    return move_too_long(mission, now_s) and "a waypoint was not reached"


def at_standoff_without_hold(mission: MissionContext, now_s: float) -> Found:
    return mission.plan.hold is None and at_standoff(mission, now_s)


def at_standoff_to_inspect(mission: MissionContext, now_s: float) -> Found:
    return mission.flight.inspection is not None and at_standoff_without_hold(mission, now_s)


def at_standoff(mission: MissionContext, now_s: float) -> Found:
    return _arrived(mission, mission.inputs.bundle_seen(now_s), now_s)


def at_trajectory_start(mission: MissionContext, now_s: float) -> Found:
    return _arrived(mission, not mission.plan.trajectory_at_bundle or mission.inputs.bundle_seen(now_s), now_s)


def _arrived(mission: MissionContext, seen: bool, now_s: float) -> bool:
    control = mission.inputs.control(now_s)
    near = (
        control is not None
        and control.position_error_m < ARRIVED_ERROR_M
        and not abs(control.yaw_error_rad) > ARRIVED_YAW_RAD  # True for NaN: not known without a reference
    )
    there = mission.references.finished(control) and near and seen
    return mission.flight.lasts(Timer.ARRIVED, there, ARRIVED_S, now_s)


def approach_too_long(mission: MissionContext, now_s: float) -> Found:
    return mission.flight.phase_time_s(now_s) > mission.references.timeout_s + SETTLE_TIMEOUT_S


def trajectory_out_of_limits(mission: MissionContext, now_s: float) -> Found:
    """Whether a trajectory in a bundle's frame leaves the limits: the place of the bundle is known only in flight."""
    flight, plan = mission.flight, mission.plan
    state, home_W = mission.inputs.state, mission.inputs.home_W
    if plan.trajectory is None or not plan.trajectory_at_bundle or Timer.CHECKED in flight.timers:
        return ""
    flight.timers[Timer.CHECKED] = now_s
    if state is None or home_W is None:
        return ""
    for point in points_of(to_trajectory(plan.trajectory, (0.0, 0.0, 0.0))):
        p_W, _ = geometry.to_world(point, 0.0, state.p_WM, state.q_WM)
        if why := leaves_limits(geometry.difference(p_W, home_W), plan.limits):
            return why
    return ""


def trajectory_flown(mission: MissionContext, now_s: float) -> Found:
    if isinstance(mission.plan.trajectory, HoldTable):
        held_s = mission.flight.interrupted_hold_s + mission.flight.phase_time_s(now_s)
        return held_s >= mission.plan.trajectory.duration_s
    return mission.move_finished(now_s)


def hold_complete_before_trajectory(mission: MissionContext, now_s: float) -> Found:
    return mission.plan.trajectory is not None and hold_complete(mission, now_s)


def hold_complete_before_inspection(mission: MissionContext, now_s: float) -> Found:
    return mission.flight.inspection is not None and hold_complete(mission, now_s)


def inspection_flown(mission: MissionContext, now_s: float) -> Found:
    progress = mission.flight.inspection
    if progress is None or not progress.complete:
        return ""
    captures, route = progress.captures, progress.route
    blurred = captures.count(CaptureOutcome.BLURRED)
    again = f", {blurred} of them blurred: --resume takes them again" if blurred else ""
    return f"{captures.taken + route.before} of {route.wanted} photographs{again}"


def inspection_problem(mission: MissionContext, now_s: float) -> Found:
    return "" if mission.flight.inspection is None else mission.flight.inspection.problem


def hold_complete(mission: MissionContext, now_s: float) -> Found:
    hold, photographer = mission.plan.hold, mission.flight.photographer
    if hold is None:
        return False
    overtime_s = mission.flight.hold_time_s - hold.duration_s
    if overtime_s < 0 or (overtime_s < PHOTO_GRACE_S and not photographer.finished):
        return False
    return f"{hold.duration_s:g} s, {photographer.taken} of {photographer.wanted} photographs"


def _pause_over(mission: MissionContext) -> bool:
    return mission.safety.demand is None and not mission.operator.holding


def clear_in_search(mission: MissionContext, now_s: float) -> Found:
    return _pause_over(mission) and mission.flight.paused_phase == Phase.SEARCH


def clear_at_bundle(mission: MissionContext, now_s: float) -> Found:
    at_bundle = mission.flight.paused_phase in ph.AT_BUNDLE and mission.inputs.bundle_seen(now_s)
    return _pause_over(mission) and at_bundle


def clear_on_trajectory(mission: MissionContext, now_s: float) -> Found:
    seen = not mission.plan.trajectory_at_bundle or mission.inputs.bundle_seen(now_s)
    return _pause_over(mission) and mission.flight.paused_phase in ph.ON_TRAJECTORY and seen


def clear_in_inspection(mission: MissionContext, now_s: float) -> Found:
    sight = mission.inputs.sight
    seen = sight is not None and (not sight.at_bundle or mission.inputs.bundle_seen(now_s))
    return _pause_over(mission) and mission.flight.paused_phase == Phase.INSPECT and seen


def clear_on_return(mission: MissionContext, now_s: float) -> Found:
    return _pause_over(mission) and mission.flight.paused_phase == Phase.RETURN


def paused_too_often(mission: MissionContext, now_s: float) -> Found:
    pauses = mission.flight.pauses
    return _pause_over(mission) and pauses > MAX_PAUSES and f"{pauses} times"


def move_finished(mission: MissionContext, now_s: float) -> Found:
    return mission.move_finished(now_s)


def move_too_long(mission: MissionContext, now_s: float) -> Found:
    references = mission.references
    return references.move_time_s(mission.inputs.control(now_s), now_s) > references.timeout_s


def return_finished(mission: MissionContext, now_s: float) -> Found:
    if mission.flight.descended and mission.inputs.touched(now_s):
        return True
    return not mission.flight.return_path and mission.move_finished(now_s)


def land_refused(mission: MissionContext, now_s: float) -> Found:
    refusal = mission.commands.refusal(CommandAction.LAND, now_s)
    return mission.flight.land_attempts >= LAND_ATTEMPTS and mission.inputs.mode != FcuMode.AUTO_LAND and refusal

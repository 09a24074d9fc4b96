"""What the transitions ask: one method ``is_<condition>`` for each condition of the table.

A condition returns False or "" while it does not hold, True or a few words for the log when it does.
"""

import math

from companion.core.enums import SafetyAction
from companion.core.messages import Reference
from companion.core.trajectory_messages import Hold
from companion.core.vehicle import Vehicle
from companion.mission import phases as ph
from companion.mission import reference_geometry as moves
from companion.mission.curves import HoldTable, points_of, to_trajectory
from companion.mission.mission_inputs import MissionInputs
from companion.mission.plan import Plan, leaves_limits
from companion.mission.requests import Commands, Photographer
from companion.mission.safety_monitor import SafetyMonitor
from companion.mission.start_checks import problems, run_checks

CONTROL_READY_TIMEOUT_S = 8.0  # for the controller to begin sending, and for the mode to come
ARM_TIMEOUT_S = 8.0  # from the request to "armed" in the status
ARM_RETRY_S = 2.0  # between two requests while PX4 refuses for the moment only
ARM_PATIENCE_S = 30.0  # PX4 checks more than is told here, and its own estimate may settle later than this stack's
FOR_THE_MOMENT = "temporarily rejected"  # how the FCU room words MAV_RESULT_TEMPORARILY_REJECTED
TAKEOFF_TOLERANCE_M = 0.4  # PX4's height is its own; when it calls the take-off complete, half is enough
TAKEOFF_STILL_S = 1.0  # height kept this long ends the take-off
TAKEOFF_STILL_M_S = 0.3  # of climb; PX4 may well be blown about sideways
TAKEOFF_SLOWEST_M_S = 0.3  # a climb slower than this has failed
TAKEOFF_SPARE_S = 15.0
HANDOVER_SPEED_M_S = 1.0  # faster than this the mission does not take over from a pilot
ARRIVED_ERROR_M = 0.15  # HOLD begins when the position error was below this
ARRIVED_S = 1.0  # for this long
SETTLE_TIMEOUT_S = 30.0  # after the approach should have ended
PHOTO_GRACE_S = 8.0  # longest extension of the hold for photographs still due
LAND_ATTEMPTS = 2
MAX_PAUSES = 5  # what a safety row interrupted so often will not succeed today


class Conditions:
    """Base of `MissionNode`: reads the state of the flight; changes timers, and uses up movements of the switch."""

    plan: Plan
    phase: str
    _vehicle: Vehicle
    _required_processes: tuple[str, ...]
    _inputs: MissionInputs
    _safety: SafetyMonitor
    _commands: Commands
    _photographer: Photographer
    _reference: Reference | None
    _phase_since_s: float | None
    _move_timeout_s: float  # time after which the present move counts as failed
    _since: dict[str, float]  # since when something has been true, in this phase
    _waypoint: int  # index of the waypoint to look from
    _way_back: list | None
    _paused_phase: str
    _pauses: int
    _land_attempts: int
    _hold_time_s: float
    _edge_used_s: float | None  # the movement of the mission switch that was last acted on

    def _say(self, text: str, severity: int, now_s: float) -> None:
        raise NotImplementedError

    # --- conditions: who is in charge ---------------------------------------------------------------------------

    def is_found_flying_by_pilot(self, now_s: float) -> bool | str:
        return self._found_flying(now_s) and self._inputs.pilots_mode() and self._inputs.status.mode

    def is_found_flying_by_px4(self, now_s: float) -> bool | str:
        return self._found_flying(now_s) and not self._inputs.pilots_mode() and self._inputs.status.mode

    def _found_flying(self, now_s: float) -> bool:
        if not self._inputs.linked(now_s) or not self._inputs.airborne():
            return False
        return self.plan.start == "auto" or self._inputs.home_W is None

    def is_switched_off(self, now_s: float) -> bool:
        switch = self._inputs.switch
        if switch is None or switch.on is not False or not self._inputs.linked(now_s):
            return False
        return self._inputs.home_W is not None or self._inputs.on_ground()

    def is_setpoints_lost_and_mode_left(self, now_s: float) -> bool | str:
        if self.phase not in ph.CONTROLLING or not self._inputs.setpoints_lost(now_s):
            return False
        return self._inputs.mode_left() and f"mode is {self._inputs.status.mode}"

    def _demands(self, action: str) -> bool | str:
        demand = self._safety.demand
        return demand is not None and demand.action == action and demand.text

    def is_safety_relinquish(self, now_s: float) -> bool | str:
        return self._demands(SafetyAction.RELINQUISH)

    def is_safety_stop_streaming(self, now_s: float) -> bool | str:
        return self._demands(SafetyAction.STOP_STREAMING)

    def is_safety_land(self, now_s: float) -> bool | str:
        return self._demands(SafetyAction.LAND)

    def is_safety_return(self, now_s: float) -> bool | str:
        return self._demands(SafetyAction.RETURN)

    def is_safety_retreat(self, now_s: float) -> bool | str:
        return self._demands(SafetyAction.RETREAT)

    def is_safety_hold(self, now_s: float) -> bool | str:
        return self._demands(SafetyAction.HOLD)

    def is_disarmed(self, now_s: float) -> bool:
        return self._inputs.linked(now_s) and not self._inputs.status.armed

    # --- conditions: start --------------------------------------------------------------------------------------

    def is_ready_to_arm(self, now_s: float) -> bool:
        if self.plan.start != "auto":
            return False
        return not self._problems(now_s)

    def is_switched_on_in_flight(self, now_s: float) -> bool:
        switch = self._inputs.switch
        if switch is None or switch.on is not True or switch.turned_on_s in (None, self._edge_used_s):
            return False
        self._edge_used_s = switch.turned_on_s  # one movement of the switch is one request
        if problem := self._problems(now_s) or self._not_ready_for_handover():
            self._say(f"start refused: {problem}", 4, now_s)
            return False
        return True

    def _not_ready_for_handover(self) -> str:
        if not self._inputs.airborne():
            return "not in flight"
        if why := leaves_limits(self._inputs.from_home(), self.plan.limits):
            return why
        speed_m_s = math.hypot(*self._inputs.state.v_W)
        return f"too fast ({speed_m_s:.1f} m/s)" if speed_m_s > HANDOVER_SPEED_M_S else ""

    def _problems(self, now_s: float) -> str:
        known = self._inputs
        checks = run_checks(
            known.latest,
            known.healths,
            self._vehicle,
            self.plan,
            known.home_W is not None,
            now_s,
            self._required_processes,
        )
        if known.resets() > 0:
            return "; ".join(
                filter(None, ("estimator started anew since the take-off point was taken", problems(checks)))
            )
        return problems(checks)

    def is_arm_refused(self, now_s: float) -> bool | str:
        late = self._commands.since_s("arm", now_s) > ARM_TIMEOUT_S
        if self._arm_again(now_s):
            return False
        return self._commands.refusal("arm", now_s) or (late and "not armed in time")

    def _arm_again(self, now_s: float) -> bool:
        """PX4 refused, but only for the moment, and there is patience left."""
        for_the_moment = self._commands.refusal("arm", now_s).startswith(FOR_THE_MOMENT)
        return for_the_moment and self._phase_time_s(now_s) < ARM_PATIENCE_S

    def is_armed(self, now_s: float) -> bool:
        return self._inputs.linked(now_s) and self._inputs.status.armed

    def is_takeoff_refused_on_ground(self, now_s: float) -> bool | str:
        return self._inputs.status.landed and self._takeoff_failure(now_s)

    def is_takeoff_failed_in_air(self, now_s: float) -> bool | str:
        return not self._inputs.status.landed and self._takeoff_failure(now_s)

    def _takeoff_failure(self, now_s: float) -> str:
        if refusal := self._commands.refusal("takeoff", now_s):
            return refusal
        time_s = TAKEOFF_SPARE_S + self.plan.takeoff.height_m / TAKEOFF_SLOWEST_M_S
        return "height not reached in time" if self._phase_time_s(now_s) > time_s else ""

    def is_at_takeoff_height(self, now_s: float) -> bool:
        p = self._inputs.from_home()
        if p is None or self._inputs.state_age_s(now_s) > self._vehicle.safety.state_age_s:
            return False
        still = abs(self._inputs.state.v_W[2]) < TAKEOFF_STILL_M_S
        high = p[2] > self.plan.takeoff.height_m - TAKEOFF_TOLERANCE_M
        px4_content = self._inputs.status.mode == "AUTO_LOITER" and p[2] > self.plan.takeoff.height_m / 2
        there = self._inputs.airborne() and still and (high or px4_content)
        return self._lasts("takeoff height", there, TAKEOFF_STILL_S, now_s)

    def is_in_offboard_without_bundle(self, now_s: float) -> bool:
        return self.plan.bundle is None and self.is_in_offboard(now_s)

    def is_in_offboard(self, now_s: float) -> bool:
        return self._commands.asked("offboard") and self._inputs.status.mode == "OFFBOARD"

    def is_no_control_own_takeoff(self, now_s: float) -> bool | str:
        return self.plan.start == "auto" and self._no_control(now_s)

    def is_no_control_pilots_flight(self, now_s: float) -> bool | str:
        return self.plan.start != "auto" and self._no_control(now_s)

    def _no_control(self, now_s: float) -> str:
        if refusal := self._commands.refusal("offboard", now_s):
            return f"offboard refused ({refusal})"
        if self._inputs.resets() > 0:
            return "the estimator started anew"
        if self._commands.asked("offboard"):
            late = self._commands.since_s("offboard", now_s) > CONTROL_READY_TIMEOUT_S
            return "the mode did not become offboard" if late else ""
        if self._phase_time_s(now_s) <= CONTROL_READY_TIMEOUT_S:
            return ""
        control = self._inputs.control(now_s)
        return f"the controller is not sending ({'silent' if control is None else control.reason or control.active})"

    # --- conditions: the mission --------------------------------------------------------------------------------

    def is_bundle_confirmed(self, now_s: float) -> bool:
        return self._bundle_confirmed(now_s) and not self._standoff_problem()

    def is_standoff_out_of_limits(self, now_s: float) -> str:
        return self._standoff_problem() if self._bundle_confirmed(now_s) else ""

    def _bundle_confirmed(self, now_s: float) -> bool:
        return self._finished(now_s) and "confirmed" in self._since

    def _standoff_problem(self) -> str:
        state, home = self._inputs.state, self._inputs.home_W
        goal, _ = moves.to_world(self.plan.standoff.offset_M, 0.0, state.p_WM, state.q_WM)
        return leaves_limits(tuple(a - b for a, b in zip(goal, home, strict=True)), self.plan.limits)

    def is_search_over(self, now_s: float) -> bool | str:
        if self._waypoint >= len(self.plan.search.waypoints):
            return "looked from every waypoint"
        return self.is_move_too_long(now_s) and "a waypoint was not reached"

    def is_at_standoff_without_hold(self, now_s: float) -> bool:
        return self.plan.hold is None and self.is_at_standoff(now_s)

    def is_at_standoff(self, now_s: float) -> bool:
        return self._arrived(self._inputs.bundle_seen(now_s), now_s)

    def is_at_trajectory_start(self, now_s: float) -> bool:
        return self._arrived(not self.plan.trajectory_at_bundle or self._inputs.bundle_seen(now_s), now_s)

    def _arrived(self, seen: bool, now_s: float) -> bool:
        control = self._inputs.control(now_s)
        near = control is not None and control.position_error_m < ARRIVED_ERROR_M
        return self._lasts("arrived", self._finished(now_s) and near and seen, ARRIVED_S, now_s)

    def is_approach_too_long(self, now_s: float) -> bool:
        return self._phase_time_s(now_s) > self._move_timeout_s + SETTLE_TIMEOUT_S

    def is_trajectory_out_of_limits(self, now_s: float) -> str:
        """A bundle's place is known only now: so is where a trajectory in its frame leads."""
        if not self.plan.trajectory_at_bundle or "checked" in self._since:
            return ""
        self._since["checked"] = now_s
        state, home = self._inputs.state, self._inputs.home_W
        for point in points_of(to_trajectory(self.plan.trajectory, (0.0, 0.0, 0.0))):
            p_W, _ = moves.to_world(point, 0.0, state.p_WM, state.q_WM)
            if why := leaves_limits(tuple(a - b for a, b in zip(p_W, home, strict=True)), self.plan.limits):
                return why
        return ""

    def is_trajectory_flown(self, now_s: float) -> bool:
        if isinstance(self.plan.trajectory, HoldTable):
            return self._phase_time_s(now_s) >= self.plan.trajectory.duration_s
        return self._finished(now_s)

    def is_hold_complete_before_trajectory(self, now_s: float) -> bool | str:
        return self.plan.trajectory is not None and self.is_hold_complete(now_s)

    def is_hold_complete(self, now_s: float) -> bool | str:
        overtime_s = self._hold_time_s - self.plan.hold.duration_s
        if overtime_s < 0 or (overtime_s < PHOTO_GRACE_S and not self._photographer.finished):
            return False
        photographer = self._photographer
        return f"{self.plan.hold.duration_s:g} s, {photographer.taken} of {photographer.wanted} photographs"

    def is_clear_in_search(self, now_s: float) -> bool:
        return self._safety.demand is None and self._paused_phase == ph.SEARCH

    def is_clear_at_bundle(self, now_s: float) -> bool:
        at_bundle = self._paused_phase in ph.AT_BUNDLE and self._inputs.bundle_seen(now_s)
        return self._safety.demand is None and at_bundle

    def is_clear_on_trajectory(self, now_s: float) -> bool:
        seen = not self.plan.trajectory_at_bundle or self._inputs.bundle_seen(now_s)
        return self._safety.demand is None and self._paused_phase in ph.ON_TRAJECTORY and seen

    def is_clear_on_return(self, now_s: float) -> bool:
        return self._safety.demand is None and self._paused_phase in (ph.RETREAT, ph.RETURN)

    def is_paused_too_often(self, now_s: float) -> bool | str:
        return self._safety.demand is None and self._pauses > MAX_PAUSES and f"{self._pauses} times"

    def is_move_finished(self, now_s: float) -> bool:
        return self._finished(now_s)

    def is_move_too_long(self, now_s: float) -> bool:
        return self._move_time_s(now_s) > self._move_timeout_s

    def is_return_finished(self, now_s: float) -> bool:
        return not self._way_back and self._finished(now_s)

    def is_land_refused(self, now_s: float) -> bool | str:
        refusal = self._commands.refusal("land", now_s)
        return self._land_attempts >= LAND_ATTEMPTS and self._inputs.status.mode != "AUTO_LAND" and refusal

    # --- tools --------------------------------------------------------------------------------------------------

    def _finished(self, now_s: float) -> bool:
        """The controller says that it has flown the present reference to its end."""
        control, reference = self._inputs.control(now_s), self._reference
        if control is None or reference is None or control.reference_id != reference.id:
            return False
        return isinstance(reference.trajectory, Hold) or control.reference_finished

    def _move_time_s(self, now_s: float) -> float:
        return 0.0 if self._reference is None or self._finished(now_s) else now_s - self._reference.start_s

    def _lasts(self, what: str, holds: bool, time_s: float, now_s: float) -> bool:
        """`holds` has been true in every step of the last `time_s`."""
        if not holds:
            self._since.pop(what, None)
            return False
        return now_s - self._since.setdefault(what, now_s) >= time_s

    def _phase_time_s(self, now_s: float) -> float:
        return 0.0 if self._phase_since_s is None else now_s - self._phase_since_s

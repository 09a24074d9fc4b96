"""The table of transitions between the phases of a mission.

A row names the phases that it leaves, its condition, the phase that it enters and why. In every step the rows are
tried from the top and the first whose condition holds is taken; rows that take control away stand above rows that
continue the mission.
"""

from typing import NamedTuple

from companion.core.enums import OperatorAction, Phase, SafetyAction
from companion.mission import conditions
from companion.mission import phases as ph
from companion.mission.conditions import SAFETY_DEMANDS, Condition, Found
from companion.mission.operator_checks import asked_for


class Transition(NamedTuple):
    """A row; reason and cause are followed by the words of the condition, if it has any."""

    sources: tuple[Phase, ...]
    condition: Condition
    target: Phase
    reason: str
    # None: part of an ordinary flight. Else the mission ends early here and is no success, even if it lands well;
    # these words say why in `MissionStatus.cause`. "" leaves them to the condition, a demand of the safety table.
    cause: str | None = None

    def reason_text(self, found: Found) -> str:
        """The reason for the log."""
        return f"{self.reason}: {found}" if isinstance(found, str) else self.reason

    def cause_text(self, found: Found) -> str:
        """The cause of an early end for the crew; "" for a row of an ordinary flight."""
        if self.cause is None:
            return ""
        if not isinstance(found, str):
            return self.cause
        return f"{self.cause} ({found})" if self.cause else found


TRANSITIONS: tuple[Transition, ...] = (
    # control by the pilot, PX4 or another station
    Transition((Phase.WAIT_READY,), conditions.found_flying_by_pilot, Phase.PILOT,
        "in flight when the mission started", "already in flight when the mission started"),
    Transition((Phase.WAIT_READY,), conditions.found_flying_by_px4, Phase.PX4_HOLD,
        "in flight when the mission started", "already in flight when the mission started"),
    Transition((*ph.OBSERVING, *ph.ENDED), conditions.switched_off, Phase.WAIT_READY,
        "mission switch is off: ready for a new start"),
    Transition((Phase.LAND,), conditions.disarmed, Phase.DONE, "landed"),
    Transition(ph.UNDER_WAY, conditions.setpoints_lost_and_mode_left, Phase.PX4_HOLD,
        "setpoints were lost", "controller sent no setpoints, PX4 left offboard"),
    Transition(ph.UNDER_WAY, SAFETY_DEMANDS[SafetyAction.RELINQUISH], Phase.PILOT, "handed over", ""),
    Transition(ph.UNDER_WAY, SAFETY_DEMANDS[SafetyAction.STOP_STREAMING], Phase.PX4_HOLD, "stopped streaming", ""),
    Transition((*ph.BEFORE_CONTROL, *ph.CONTROLLING), conditions.disarmed, Phase.FAILED,
        "disarmed on the way", "disarmed before the landing"),
    Transition(ph.UNDER_WAY, asked_for(OperatorAction.STOP_STREAMING), Phase.PX4_HOLD,
        "stopped streaming", "setpoints were stopped"),
    # what ends the mission early
    Transition((*ph.BEFORE_CONTROL, *ph.CONTROLLING), SAFETY_DEMANDS[SafetyAction.LAND], Phase.LAND, "safety", ""),
    Transition((*ph.WORKING, Phase.PAUSE), SAFETY_DEMANDS[SafetyAction.RETURN], Phase.RETURN, "safety", ""),
    Transition((*ph.WORKING, Phase.PAUSE), SAFETY_DEMANDS[SafetyAction.RETREAT], Phase.RETREAT, "safety", ""),
    Transition((*ph.WORKING, Phase.RETURN), SAFETY_DEMANDS[SafetyAction.HOLD], Phase.PAUSE, "safety"),
    # a person at a view; the safety table stands above
    Transition((*ph.BEFORE_CONTROL, *ph.CONTROLLING), asked_for(OperatorAction.LAND), Phase.LAND,
        "landing", "a landing was asked for"),
    Transition((*ph.WORKING, Phase.PAUSE), asked_for(OperatorAction.RETURN), Phase.RETURN,
        "return", "a return was asked for"),
    Transition((*ph.WORKING, Phase.RETURN), asked_for(OperatorAction.HOLD), Phase.PAUSE, "hold"),
    # start
    Transition((Phase.WAIT_READY,), conditions.ready_to_arm, Phase.ARM, "all checks passed"),
    Transition((Phase.WAIT_READY,), conditions.switched_on_in_flight, Phase.ENTER_OFFBOARD, "mission switch is on"),
    Transition((Phase.ARM,), conditions.arm_refused, Phase.FAILED, "arming refused", "arming refused"),
    Transition((Phase.ARM,), conditions.armed, Phase.TAKEOFF, "armed"),
    Transition((Phase.TAKEOFF,), conditions.takeoff_refused_on_ground, Phase.FAILED,
        "take-off refused", "take-off refused"),
    Transition((Phase.TAKEOFF,), conditions.takeoff_failed_in_air, Phase.LAND, "take-off failed", "take-off failed"),
    Transition((Phase.TAKEOFF,), conditions.at_takeoff_height, Phase.ENTER_OFFBOARD, "take-off height reached"),
    Transition((Phase.ENTER_OFFBOARD,), conditions.in_offboard_to_inspect, Phase.INSPECT, "offboard"),
    Transition((Phase.ENTER_OFFBOARD,), conditions.in_offboard_without_bundle, Phase.TRANSFER, "offboard"),
    Transition((Phase.ENTER_OFFBOARD,), conditions.in_offboard, Phase.SEARCH, "offboard"),
    Transition((Phase.ENTER_OFFBOARD,), conditions.no_control_own_takeoff, Phase.LAND,
        "cannot take control", "could not take control in offboard"),
    Transition((Phase.ENTER_OFFBOARD,), conditions.no_control_pilots_flight, Phase.PX4_HOLD,
        "cannot take control", "could not take control in offboard"),
    # the mission
    Transition((Phase.SEARCH,), conditions.standoff_out_of_limits, Phase.RETURN,
        "stand-off point", "the stand-off point is not allowed"),
    Transition((Phase.SEARCH,), conditions.bundle_confirmed_to_inspect, Phase.INSPECT, "bundle seen"),
    Transition((Phase.SEARCH,), conditions.bundle_confirmed, Phase.APPROACH, "bundle seen"),
    Transition((Phase.SEARCH,), conditions.search_over, Phase.RETURN, "bundle not found", "bundle not found"),
    Transition((Phase.APPROACH,), conditions.at_standoff_to_inspect, Phase.INSPECT, "arrived"),
    Transition((Phase.APPROACH,), conditions.at_standoff_without_hold, Phase.TRANSFER, "arrived"),
    Transition((Phase.APPROACH,), conditions.at_standoff, Phase.HOLD, "arrived"),
    Transition((Phase.APPROACH,), conditions.approach_too_long, Phase.RETURN,
        "did not settle at the stand-off point", "did not settle at the stand-off point"),
    Transition((Phase.HOLD,), conditions.hold_complete_before_trajectory, Phase.TRANSFER, "hold complete"),
    Transition((Phase.HOLD,), conditions.hold_complete_before_inspection, Phase.INSPECT, "hold complete"),
    Transition((Phase.HOLD,), conditions.hold_complete, Phase.RETURN, "hold complete"),
    Transition((Phase.TRANSFER,), conditions.at_trajectory_start, Phase.TRAJECTORY, "at its first point"),
    Transition((Phase.TRANSFER,), conditions.trajectory_out_of_limits, Phase.RETURN,
        "trajectory", "the trajectory is not allowed"),
    Transition((Phase.TRANSFER,), conditions.approach_too_long, Phase.RETURN,
        "did not settle at the trajectory's first point", "did not settle at the trajectory's first point"),
    Transition((Phase.TRAJECTORY,), conditions.trajectory_flown, Phase.RETURN, "trajectory complete"),
    Transition((Phase.TRAJECTORY,), conditions.move_too_long, Phase.RETURN,
        "trajectory took too long", "the trajectory took too long"),
    Transition((Phase.INSPECT,), conditions.inspection_problem, Phase.RETURN, "inspection", ""),
    Transition((Phase.INSPECT,), conditions.inspection_flown, Phase.RETURN, "inspection complete"),
    Transition((Phase.INSPECT,), conditions.move_too_long, Phase.RETURN,
        "a station was not reached", "a station of the inspection was not reached"),
    Transition((Phase.PAUSE,), conditions.paused_too_often, Phase.RETURN,
        "interrupted too often", "interrupted too often by safety monitors"),
    Transition((Phase.PAUSE,), conditions.clear_in_search, Phase.SEARCH, "safety monitor cleared"),
    Transition((Phase.PAUSE,), conditions.clear_at_bundle, Phase.APPROACH, "safety monitor cleared"),
    Transition((Phase.PAUSE,), conditions.clear_on_trajectory, Phase.TRANSFER,
        "safety monitor cleared: from where it was interrupted"),
    Transition((Phase.PAUSE,), conditions.clear_in_inspection, Phase.INSPECT,
        "safety monitor cleared: to the same station again"),
    Transition((Phase.PAUSE,), conditions.clear_on_return, Phase.RETURN, "safety monitor cleared"),
    Transition((Phase.RETREAT,), conditions.move_finished, Phase.RETURN, "clear of the structure"),
    Transition((Phase.RETREAT,), conditions.move_too_long, Phase.LAND,
        "retreat took too long", "the retreat took too long"),
    Transition((Phase.RETURN,), conditions.return_finished, Phase.LAND, "above the take-off point"),
    Transition((Phase.RETURN,), conditions.move_too_long, Phase.LAND,
        "return took too long", "the return took too long"),
    Transition((Phase.LAND,), conditions.land_refused, Phase.PX4_HOLD, "landing refused", "landing refused"),
)  # fmt: skip

"""The phases of a mission and the table of transitions between them.

The table is data: a row says from which phases, on which condition (a method of `MissionNode` named
``is_<condition>``), to which phase and why. Rows are tried from the top in every step, the first that holds is
taken; what takes control away stands above what goes on with the mission.

Two kinds of phases never ask for anything: PILOT (somebody else chose a mode) and PX4_HOLD (this stack stopped
streaming and PX4's own failsafe acts). Out of them leads only WAIT_READY, by a deliberate act of the pilot.
"""

from typing import NamedTuple

WAIT_READY = "WAIT_READY"  # on the ground (or flown by the pilot, start = "rc_switch"): preflight checks
ARM = "ARM"
TAKEOFF = "TAKEOFF"  # flown by PX4
ENTER_OFFBOARD = "ENTER_OFFBOARD"  # references stream, PX4 still flies
SEARCH = "SEARCH"
APPROACH = "APPROACH"
HOLD = "HOLD"
TRANSFER = "TRANSFER"  # to the first point of the trajectory
TRAJECTORY = "TRAJECTORY"
PAUSE = "PAUSE"  # a row of the safety table asked to stay; the mission goes on when it clears
RETREAT = "RETREAT"  # back away from the structure
RETURN = "RETURN"
LAND = "LAND"  # flown by PX4
DONE = "DONE"
PX4_HOLD = "PX4_HOLD"
PILOT = "PILOT"
FAILED = "FAILED"  # ended on the ground

WORKING = (SEARCH, APPROACH, HOLD, TRANSFER, TRAJECTORY)  # the mission proper
CONTROLLING = (*WORKING, PAUSE, RETREAT, RETURN)  # OFFBOARD, by this stack
UNDER_WAY = (ARM, TAKEOFF, ENTER_OFFBOARD, *CONTROLLING, LAND)
OBSERVING = (PX4_HOLD, PILOT)
ENDED = (DONE, FAILED)
PHASES = (WAIT_READY, *UNDER_WAY, DONE, *OBSERVING, FAILED)


class Transition(NamedTuple):
    """A row; the reason is followed by what the condition has to say."""

    sources: tuple[str, ...]
    condition: str
    target: str
    reason: str
    trouble: bool = False  # a flight that took this row was no success, even if it ends well


AIRBORNE_BEFORE_CONTROL = (TAKEOFF, ENTER_OFFBOARD)
AT_BUNDLE = (APPROACH, HOLD)
ON_TRAJECTORY = (TRANSFER, TRAJECTORY)  # at the bundle as well, if the trajectory is flown in its frame

TRANSITIONS: tuple[Transition, ...] = (
    # who else is in charge
    Transition((WAIT_READY,), "found_flying_by_pilot", PILOT, "in flight when the mission came up", True),
    Transition((WAIT_READY,), "found_flying_by_px4", PX4_HOLD, "in flight when the mission came up", True),
    Transition((*OBSERVING, *ENDED), "switched_off", WAIT_READY, "mission switch is off: ready for a new start"),
    Transition((LAND,), "disarmed", DONE, "landed"),
    Transition(UNDER_WAY, "setpoints_lost_and_mode_left", PX4_HOLD, "setpoints were lost", True),
    Transition(UNDER_WAY, "safety_relinquish", PILOT, "handed over", True),
    Transition(UNDER_WAY, "safety_stop_streaming", PX4_HOLD, "stopped streaming", True),
    Transition((TAKEOFF, ENTER_OFFBOARD, *CONTROLLING), "disarmed", FAILED, "disarmed on the way", True),
    # what ends the mission early
    Transition((*AIRBORNE_BEFORE_CONTROL, *CONTROLLING), "safety_land", LAND, "safety", True),
    Transition((*WORKING, PAUSE), "safety_return", RETURN, "safety", True),
    Transition((*WORKING, PAUSE), "safety_retreat", RETREAT, "safety", True),
    Transition((*WORKING, RETREAT, RETURN), "safety_hold", PAUSE, "safety"),
    # start
    Transition((WAIT_READY,), "ready_to_arm", ARM, "all checks passed"),
    Transition((WAIT_READY,), "switched_on_in_flight", ENTER_OFFBOARD, "mission switch is on"),
    Transition((ARM,), "arm_refused", FAILED, "arming refused", True),
    Transition((ARM,), "armed", TAKEOFF, "armed"),
    Transition((TAKEOFF,), "takeoff_refused_on_ground", FAILED, "take-off refused", True),
    Transition((TAKEOFF,), "takeoff_failed_in_air", LAND, "take-off failed", True),
    Transition((TAKEOFF,), "at_takeoff_height", ENTER_OFFBOARD, "take-off height reached"),
    Transition((ENTER_OFFBOARD,), "in_offboard_without_bundle", TRANSFER, "offboard"),
    Transition((ENTER_OFFBOARD,), "in_offboard", SEARCH, "offboard"),
    Transition((ENTER_OFFBOARD,), "no_control_own_takeoff", LAND, "cannot take control", True),
    Transition((ENTER_OFFBOARD,), "no_control_pilots_flight", PX4_HOLD, "cannot take control", True),
    # the mission
    Transition((SEARCH,), "standoff_out_of_limits", RETURN, "stand-off point", True),
    Transition((SEARCH,), "bundle_confirmed", APPROACH, "bundle seen"),
    Transition((SEARCH,), "search_over", RETURN, "bundle not found", True),
    Transition((APPROACH,), "at_standoff_without_hold", TRANSFER, "arrived"),
    Transition((APPROACH,), "at_standoff", HOLD, "arrived"),
    Transition((APPROACH,), "approach_too_long", RETURN, "did not settle at the stand-off point", True),
    Transition((HOLD,), "hold_complete_before_trajectory", TRANSFER, "hold complete"),
    Transition((HOLD,), "hold_complete", RETURN, "hold complete"),
    Transition((TRANSFER,), "at_trajectory_start", TRAJECTORY, "at its first point"),
    Transition((TRANSFER,), "trajectory_out_of_limits", RETURN, "trajectory", True),
    Transition((TRANSFER,), "approach_too_long", RETURN, "did not settle at the trajectory's first point", True),
    Transition((TRAJECTORY,), "trajectory_flown", RETURN, "trajectory complete"),
    Transition((TRAJECTORY,), "move_too_long", RETURN, "trajectory took too long", True),
    Transition((PAUSE,), "paused_too_often", RETURN, "interrupted too often", True),
    Transition((PAUSE,), "clear_in_search", SEARCH, "safety row cleared"),
    Transition((PAUSE,), "clear_at_bundle", APPROACH, "safety row cleared"),
    Transition((PAUSE,), "clear_on_trajectory", TRANSFER, "safety row cleared: begins anew"),
    Transition((PAUSE,), "clear_on_return", RETURN, "safety row cleared"),
    Transition((RETREAT,), "move_finished", RETURN, "clear of the structure"),
    Transition((RETREAT,), "move_too_long", LAND, "retreat took too long", True),
    Transition((RETURN,), "return_finished", LAND, "above the take-off point"),
    Transition((RETURN,), "move_too_long", LAND, "return took too long", True),
    Transition((LAND,), "land_refused", PX4_HOLD, "landing refused", True),
)

"""The phase INSPECT: from station to station, at rest at each, a photograph, the next.

A station is flown to in the frame of its item. While the item's bundle has not been seen for long enough, the move is made in
the frame of another bundle, to where the plan has the station from there; then the bundle must come into sight. Every
move begins at the point where the reference is, so the setpoint has no step from one bundle to the next.
"""

from companion.core.enums import CaptureOutcome
from companion.core.messages import WORLD
from companion.mission import reference_geometry as geometry
from companion.mission.inspection_progress import Inspecting
from companion.mission.inspection_route import Nearest, Stop, to_frame, to_world
from companion.mission.mission_context import MissionContext
from companion.mission.plan import leaves_limits
from companion.mission.snapshot import SEEN_S
from companion.mission.way_home import way_behind_inspection
from companion.planning.stations import HELD_M

LONGER_S = 10.0  # then it is requested all the same, and marked by the payload process where it is not sharp
LOOK_S = 10.0  # for the bundle of an item, from where the plan has it in sight
KEPT_OFF_M = 0.1  # beyond safety.standoff_min_m, so that no station is at the plane from which the controller keeps off
CONFIRM_S = 1.0  # in a mission without a search


def note_inspection(mission: MissionContext, now_s: float) -> None:
    """Follow the bundles of the inspection; called in every step while this stack controls the aircraft."""
    if (progress := mission.flight.inspection) is not None:
        confirm_s = mission.plan.search.confirm_s if mission.plan.search is not None else CONFIRM_S
        progress.note_bundles(mission.inputs.state, SEEN_S, confirm_s, now_s)


def nearest_surface(mission: MissionContext) -> Nearest | None:
    """Of the inspection, once it has begun; None without one."""
    progress, state = mission.flight.inspection, mission.inputs.state
    if progress is None or state is None or not progress.begun:
        return None
    return progress.route.nearest_surface(state.p_W, progress.poses(state, mission.inputs.home_W))


def fly_to_stop(mission: MissionContext, now_s: float) -> None:
    """Fly to the present stop of the inspection, if there is one left.

    The first one may be flown to from anywhere, as from where a pilot handed over: that way is compared with the surfaces.
    """
    progress, inputs = mission.flight.inspection, mission.inputs
    here = inputs.reference_point(mission.references.current, now_s)
    if progress is None or progress.complete or here is None or inputs.home_W is None:
        return
    stop, poses = progress.route.stops[progress.stop], progress.poses(inputs.state, inputs.home_W)
    goal = to_world(stop.p, stop.yaw_rad, stop.frame, poses[stop.frame])
    if why := leaves_limits(geometry.difference(goal[0], inputs.home_W), mission.plan.limits):
        progress.problem = f"a station of '{stop.item}' is {why} where its bundle stands"
        return
    if not progress.reached and (passed := progress.route.obstacle(here[0], goal[0], poses)) is not None:
        progress.problem = f"the way to the first station passes {passed}"
        return
    frame, leg = progress.guide(stop.frame), progress.route.leg
    if frame != WORLD:
        here, goal = to_frame(*here, frame, poses[frame]), to_frame(*goal, frame, poses[frame])
    progress.arrived_s, progress.frame = None, frame
    before = min(here[0][2], goal[0][2]) > progress.route.standoff_min_m + KEPT_OFF_M
    mission.refer(frame, geometry.move_or_hold(*here, *goal, *leg), now_s, before_face=before)


def decide_first_way(mission: MissionContext) -> str:
    """Decide where the first straight way from here leads, for a pilot who hands over; why it is not flown, "" if it is.

    Without a search that depends on the way that was flown. The way may pass no surface, by where the plan assumes them: no
    bundle has been confirmed yet. What is decided holds until the inspection begins, a moment later and elsewhere.
    """
    progress, inputs, search = mission.flight.inspection, mission.inputs, mission.plan.search
    if (
        progress is None
        or progress.complete
        or inputs.state is None
        or inputs.home_W is None
        or not mission.plan.satellites
    ):
        return ""  # without satellites the place of the take-off is lost on the way to the hand-over
    poses = progress.poses(inputs.state, inputs.home_W)
    if search is not None:
        goal, name = geometry.added(search.waypoints[0].p_m, inputs.home_W), "first waypoint"
    elif why := progress.decide_entry(inputs.flown_W(), poses):
        return why
    else:
        stop = progress.route.stops[progress.stop if progress.entry is None else progress.entry]
        goal, name = to_world(stop.p, stop.yaw_rad, stop.frame, poses[stop.frame])[0], "first station"
    passed = progress.route.obstacle(inputs.state.p_W, goal, poses)
    return "" if passed is None else f"the way to the {name} passes {passed}"


def inspect(mission: MissionContext, now_s: float) -> None:
    """One step at the present stop: arrive, wait, photograph, go on."""
    progress = mission.flight.inspection
    if progress is None or progress.complete or progress.problem:
        return
    stop = progress.route.stops[progress.stop]
    if progress.arrived_s is None:
        if not mission.move_finished(now_s):
            return
        progress.arrived_s = now_s
        _note_reached(mission, progress, now_s)
    if not progress.own_frame:
        _wait_for_bundle(mission, progress, stop, now_s)
        return
    waits = now_s - progress.arrived_s < stop.stop_s
    if not progress.is_passed() and (waits or not _photographed(mission, progress, stop, now_s)):
        return
    progress.advance()
    fly_to_stop(mission, now_s)


def _note_reached(mission: MissionContext, progress: Inspecting, now_s: float) -> None:
    here = mission.inputs.reference_point(mission.references.current, now_s)
    poses, behind = progress.poses(mission.inputs.state, mission.inputs.home_W), way_behind_inspection(mission, 0.0)
    if here is not None and behind and progress.frame in poses:
        progress.note_reached(here, behind[0][0], poses)


def _wait_for_bundle(mission: MissionContext, progress: Inspecting, stop: Stop, now_s: float) -> None:
    if stop.frame in progress.confirmed:
        fly_to_stop(mission, now_s)
    elif progress.arrived_s is not None and now_s - progress.arrived_s > LOOK_S:
        progress.problem = f"bundle '{stop.frame}' not found at the first station of '{stop.item}'"


def _photographed(mission: MissionContext, progress: Inspecting, stop: Stop, now_s: float) -> bool:
    """Nothing is left to be done at a stop."""
    photograph, captures = stop.photograph, progress.captures
    if photograph is None:
        return True
    control, waited_s = mission.inputs.control(now_s), now_s - (progress.arrived_s or now_s) - stop.stop_s
    # A quarter of the way to the next photograph at 82 % overlap; the payload process waits for what its exposure needs.
    near = control is not None and control.position_error_m < HELD_M
    if not near and waited_s < LONGER_S and not captures.settled(photograph):
        return False
    if request := captures.step(stop, now_s):
        mission.outbox.append(request)
    if not captures.settled(photograph):
        return False
    failed = captures.outcomes[photograph.id] in (CaptureOutcome.REFUSED, CaptureOutcome.LOST)
    if failed and progress.route.on_camera_failure == "return":
        why = captures.reasons.get(photograph.id) or captures.outcomes[photograph.id]
        progress.problem = f"photograph {photograph.id} of '{stop.item}' was not taken: {why}"
        return False
    return True

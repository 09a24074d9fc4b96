"""What the mission does in every step of a phase."""

import math
from collections.abc import Callable

from companion.core.enums import CommandAction, FcuMode, OperatorAction, Phase
from companion.core.messages import WORLD
from companion.mission import phases as ph
from companion.mission.conditions import LAND_ATTEMPTS, may_arm_again, move_too_long
from companion.mission.entry_actions import brake, descend, fly_back, fly_to_waypoint, may_sink, request_land
from companion.mission.flight_state import Timer
from companion.mission.handover import come_to_rest
from companion.mission.inspecting import inspect
from companion.mission.mission_context import MissionContext
from companion.mission.monitors import TOUCHDOWN
from companion.mission.requests import CRITICAL

PhaseWork = Callable[[MissionContext, float], None]

ARM_RETRY_S = 2.0  # between two arming requests while PX4 refuses temporarily
STREAM_BEFORE_OFFBOARD_S = 1.5  # PX4 requires setpoints for 1 s before the switch
TOUCHDOWN_DISARM_S = 5.0  # PX4 disarms by itself 2 s after landing; if it does not, one request is sent
HOLD_SETTLES_S = 2.5  # the answer to a request and the heartbeat after it
STAYED_S = 10.0  # PX4 leaves offboard by itself within COM_OF_LOSS_T; a later offboard is deliberate
UNSEEN_S = 2.0  # a shorter loss of the link hides no person's choice of a mode and, after it, of offboard
UNHEARD_S = 10.0  # longest loss of the link in which PX4 cannot have landed and begun another flight
AGAIN_S = 0.5  # between two requests of Hold while the link comes and goes
REPORTED_S = 2.0  # between two reports of a sender that enters offboard again and again
FLIES = "PX4 follows the other sender in offboard again, Hold is not requested any more"
# In doubt, for PX4's position; then the safety table would end the stream, and without setpoints nothing lands.
LAND_WAITS_S = 1.5
STATE_FRESH_S = 0.15  # before the safety table ends the stream for a stale state, PX4 is asked to land


def _wait_ready(mission: MissionContext, now_s: float) -> None:
    failing = mission.start_problems(now_s)
    ready = "ready" if mission.plan.start == "auto" else "ready: fly, then turn the mission switch on"
    progress, former = mission.flight.inspection, ""
    if progress is not None and progress.route.before:
        former = f"; {progress.route.before} of {progress.route.wanted} photographs are from former flights"
    mission.flight.reason = (f"waiting: {failing}" if failing else ready) + former


def _arm(mission: MissionContext, now_s: float) -> None:
    since_request_s = mission.commands.since_s(CommandAction.ARM, now_s)
    if may_arm_again(mission, now_s) and since_request_s >= ARM_RETRY_S and not mission.start_problems(now_s):
        mission.request(CommandAction.ARM, now_s)


def _enter_offboard(mission: MissionContext, now_s: float) -> None:
    inputs, references = mission.inputs, mission.references
    if mission.commands.asked(CommandAction.OFFBOARD):
        return
    state = inputs.state
    if state is None or inputs.state_age_s(now_s) > mission.vehicle.safety.state_age_s:
        references.stop()
        mission.flight.timers.pop(Timer.SENDING, None)
        return
    if inputs.mode != FcuMode.OFFBOARD or references.current is None:
        # PX4 still flies: the reference begins with the aircraft's present motion, so the hand-over is without a jump.
        mission.refer(WORLD, come_to_rest(state, mission.vehicle, now_s), now_s)
    sending = not inputs.setpoints_lost(now_s) and inputs.control(now_s) is not None
    if mission.flight.lasts(Timer.SENDING, sending, STREAM_BEFORE_OFFBOARD_S, now_s):
        if mission.plan.start != "auto" and inputs.position_doubt(now_s):
            return  # the check of the start once more: the pilot keeps an aircraft that may have lost its position
        inputs.expect_also(FcuMode.OFFBOARD)
        mission.request(CommandAction.OFFBOARD, now_s)


def _search(mission: MissionContext, now_s: float) -> None:
    flight, search = mission.flight, mission.plan.search
    if search is None:
        return
    seen = mission.inputs.bundle_seen(now_s)
    if mission.move_finished(now_s):
        flight.waypoints_reached = flight.waypoint + 1
    if flight.lasts(Timer.SEEN, seen, search.confirm_s, now_s):
        flight.timers.setdefault(Timer.CONFIRMED, now_s)
    else:
        flight.timers.pop(Timer.CONFIRMED, None)
    if flight.lasts(Timer.LOOKING, mission.move_finished(now_s), search.timeout_s, now_s) and not seen:
        flight.waypoint += 1
        flight.timers.clear()
        fly_to_waypoint(mission, now_s)


def _hold(mission: MissionContext, now_s: float) -> None:
    flight = mission.flight
    if flight.last_step_s is not None:
        flight.hold_time_s += now_s - flight.last_step_s
    control = mission.inputs.control(now_s)
    error_m = math.inf if control is None or not mission.inputs.bundle_seen(now_s) else control.position_error_m
    if request := flight.photographer.step(flight.hold_time_s, error_m, now_s):
        mission.outbox.append(request)


def _return(mission: MissionContext, now_s: float) -> None:
    flight, inputs = mission.flight, mission.inputs
    if not (mission.move_finished(now_s) and flight.return_path):
        return
    flight.return_path.pop(0)
    if flight.return_path:
        fly_back(mission, now_s)
    elif not flight.descended and inputs.without_gnss(now_s) and inputs.bundle_seen(now_s):
        # PX4 lands without GNSS by a velocity that drifts by metres per second; this stack still sees the bundle.
        flight.descended = True
        descend(mission, now_s)


def _land(mission: MissionContext, now_s: float) -> None:
    inputs, flight = mission.inputs, mission.flight
    if flight.waits:
        known = inputs.state_age_s(now_s) <= STATE_FRESH_S and inputs.mode == FcuMode.OFFBOARD
        over = not inputs.px4_without_position() or flight.phase_time_s(now_s) > LAND_WAITS_S
        if over or not known or inputs.silent(now_s):
            flight.waits = False
            request_land(mission, inputs.mode == FcuMode.OFFBOARD, now_s)
        else:
            brake(mission, now_s)
        return
    if flight.sinks:
        known = inputs.state_age_s(now_s) <= STATE_FRESH_S
        down = mission.move_finished(now_s) or inputs.landed or inputs.touched(now_s) or move_too_long(mission, now_s)
        # Without setpoints PX4 would leave offboard for a mode in which nothing lands: without a fix Altitude, with the wind.
        if down or not known or inputs.silent(now_s) or not may_sink(mission, now_s):
            request_land(mission, inputs.mode == FcuMode.OFFBOARD, now_s)
        return
    if inputs.mode != FcuMode.OFFBOARD:
        mission.references.stop()
    elif mission.references.current is not None:
        brake(mission, now_s)
    refused = mission.commands.refusal(CommandAction.LAND, now_s) and inputs.mode != FcuMode.AUTO_LAND
    if flight.land_attempts < LAND_ATTEMPTS and refused:
        flight.land_attempts += 1
        mission.request(CommandAction.LAND, now_s)
    standing = inputs.landed and inputs.armed and not mission.safety.active(TOUCHDOWN)
    landed = flight.lasts(Timer.TOUCHDOWN, standing, TOUCHDOWN_DISARM_S, now_s)
    if landed and not mission.commands.asked(CommandAction.DISARM):
        mission.request(CommandAction.DISARM, now_s)


def _observe(mission: MissionContext, now_s: float) -> None:
    """Where another sender's stream has PX4 in offboard, its failsafe does not act: request Hold.

    Our stream has ended, by the safety table or by the mission switch; a pilot who took over has left offboard.
    """
    inputs, flight = mission.inputs, mission.flight
    _look_for_a_person(mission, now_s)
    left, chosen = Timer.OFFBOARD_LEFT in flight.timers, Timer.PERSON in flight.timers
    soon = flight.phase_time_s(now_s) < STAYED_S and inputs.offboard_of_others(flight.phase)
    # Body rates of another sender are not echoed: then only the mode shows that PX4 follows another stream.
    stayed = not left and (soon or (inputs.outlived(now_s) and Timer.UNSEEN not in flight.timers))
    may_ask = flight.came_from in ph.UNDER_WAY and inputs.linked(now_s) and not chosen
    if may_ask and not mission.commands.asked(CommandAction.HOLD) and (stayed or _is_taken_from_failsafe(mission)):
        flight.timers.pop(Timer.OFFBOARD_LEFT, None)  # from here on: after our Hold
        mission.report("PX4 follows another sender in offboard, Hold is requested", CRITICAL, now_s)
        mission.request(CommandAction.HOLD, now_s)
    _after_hold(mission, now_s)


def _look_for_a_person(mission: MissionContext, now_s: float) -> None:
    """Whether anything but PX4's failsafe may have chosen the mode since our stream ended.

    PX4 keeps what it was asked for beside the mode that its failsafe flies. While that is offboard, or what this phase has
    requested, no person and no ground station has asked for another mode. What was asked for in between is counted.
    """
    inputs, flight, timers = mission.inputs, mission.flight, mission.flight.timers
    status, request = inputs.status, mission.operator.considered
    if inputs.mode != FcuMode.OFFBOARD:
        timers.setdefault(Timer.OFFBOARD_LEFT, now_s)
    if status is None:
        return
    asked = mission.commands.asked(CommandAction.HOLD)
    turned_off = flight.phase == Phase.PX4_HOLD and inputs.switch is not None and inputs.switch.on is False
    turned_off = turned_off and not asked  # as in phase PILOT, an alarmed pilot ends no protection by the switch
    stopped = request is not None and request.action == OperatorAction.STOP_STREAMING
    if turned_off or stopped or not inputs.armed or _is_chosen_by_others(mission):
        timers.setdefault(Timer.PERSON, now_s)
    counts = Timer.OFFBOARD_LEFT in timers or flight.phase_time_s(now_s) > UNHEARD_S
    if flight.lasts(Timer.DEAF, not inputs.connected(now_s), UNSEEN_S, now_s) and counts:
        timers.setdefault(Timer.UNSEEN, now_s)


def _is_chosen_by_others(mission: MissionContext) -> bool:
    """PX4 was asked for a mode that is neither offboard nor one that this phase has requested.

    Where PX4 does not report what it was asked for, the mode itself says it, once this phase has requested one.
    """
    status, flight = mission.inputs.status, mission.flight
    asked, ours = mission.commands.asked(CommandAction.HOLD), _requested_against_others(mission)
    if status is None or status.intended_mode is None:
        return asked and mission.inputs.mode not in (FcuMode.OFFBOARD, *ours)
    if flight.intended_changes is None:
        flight.intended_changes = status.intended_changes
    if asked:
        return status.intended_mode not in (FcuMode.OFFBOARD, *ours)
    return status.intended_mode != FcuMode.OFFBOARD or status.intended_changes != flight.intended_changes


def _is_taken_from_failsafe(mission: MissionContext) -> bool:
    """PX4 went from its failsafe, which followed the end of our stream, to offboard, and no person has chosen that."""
    timers, status = mission.flight.timers, mission.inputs.status
    left = mission.flight.phase == Phase.PX4_HOLD and Timer.OFFBOARD_LEFT in timers and Timer.UNSEEN not in timers
    known = status is not None and status.intended_mode == FcuMode.OFFBOARD
    return left and known and _is_flown_by_others(mission)


def _is_flown_by_others(mission: MissionContext) -> bool:
    """The setpoints which offboard needs come from another sender: after the end of our stream there are none of ours."""
    flight, inputs = mission.flight, mission.inputs
    ended = Timer.OFFBOARD_LEFT in flight.timers or mission.commands.asked(CommandAction.HOLD)
    silent = flight.phase == Phase.PX4_HOLD and flight.came_from in ph.UNDER_WAY and ended
    return inputs.offboard_of_others(flight.phase) or (silent and inputs.armed and inputs.mode == FcuMode.OFFBOARD)


def _after_hold(mission: MissionContext, now_s: float) -> None:
    """After Hold against another sender: its outcome; Land once if PX4 refused it.

    A request that PX4 did not answer was not refused: what reaches this stack may not reach PX4. It is made again for as long
    as PX4 is in offboard.

    Programs request offboard some tenths of a second after their first setpoint, which is after our Hold, and repeat it
    for as long as they run. Whenever PX4 goes from the Hold that we requested to offboard, Hold is requested again. A
    person who wants offboard, or anything else, selects another mode first; then nothing is requested any more.
    """
    commands, timers = mission.commands, mission.flight.timers
    if not commands.asked(CommandAction.HOLD) or _is_unheard(mission, now_s):
        return
    chosen = Timer.PERSON in timers or Timer.UNSEEN in timers
    if mission.inputs.mode == FcuMode.OFFBOARD and _is_back_in_offboard(mission, now_s):
        del timers[Timer.OFFBOARD_LEFT]
        if not chosen:
            _request_again(mission, "the other sender entered offboard again", now_s)
            return
        timers[Timer.ASKED] = now_s
        mission.report(f"{FLIES}; take over by RC, stop the other sender", CRITICAL, now_s)
    if Timer.ASKED in timers:
        return
    mode, refusal = mission.inputs.mode, commands.refusal(CommandAction.HOLD, now_s)
    if mode == FcuMode.OFFBOARD and not chosen and commands.unheard(CommandAction.HOLD, now_s):
        _request_again(mission, f"PX4 is in offboard by another sender ({refusal})", now_s)
        return
    if refusal and mode == FcuMode.OFFBOARD and chosen:
        outcome = f"{FLIES}; take over by RC, stop the other sender"
    elif refusal and mode == FcuMode.OFFBOARD:
        outcome = f"Hold refused ({refusal}), PX4 is asked to land; take over by RC, stop the other sender"
        mission.request(CommandAction.LAND, now_s)
    elif commands.since_s(CommandAction.HOLD, now_s) < HOLD_SETTLES_S:
        return
    elif mode != FcuMode.OFFBOARD:
        outcome = f"PX4 has left offboard ({mode}); take over by RC, stop the other sender"
    else:  # no answer, an ack of another sender, or a request of offboard by it
        outcome = "PX4 is in offboard after the request for Hold; take over by RC, stop the other sender"
    timers[Timer.ASKED] = now_s
    mission.report(outcome, CRITICAL, now_s)


def _request_again(mission: MissionContext, why: str, now_s: float) -> None:
    timers = mission.flight.timers
    timers.pop(Timer.ASKED, None)
    if now_s - timers.get(Timer.REPORTED, -math.inf) > REPORTED_S:
        timers[Timer.REPORTED] = now_s
        mission.report(f"{why}, Hold is requested again", CRITICAL, now_s)
    mission.request(CommandAction.HOLD, now_s)


def _is_unheard(mission: MissionContext, now_s: float) -> bool:
    """The link is lost, so that PX4 may not have heard the request for Hold; requests it again when the link is back.

    Its failure while the link is lost is no refusal: Land would not be heard either, and nothing would be asked after it. After a
    long time without the link PX4 may be in another flight.
    """
    inputs, timers = mission.inputs, mission.flight.timers
    if not inputs.connected(now_s):
        settled_s = now_s - timers.get(Timer.ASKED, now_s)
        heard = Timer.OFFBOARD_LEFT in timers or Timer.PERSON in timers
        mission.flight.intended_changes = None if inputs.status is None else inputs.status.intended_changes
        if settled_s < HOLD_SETTLES_S and not heard:
            timers.setdefault(Timer.UNHEARD, now_s)
        return True
    if Timer.UNHEARD not in timers:
        return False
    changed = inputs.status is not None and inputs.status.intended_changes != mission.flight.intended_changes
    if changed:
        timers.setdefault(Timer.PERSON, now_s)
    late = now_s - timers[Timer.UNHEARD] > UNHEARD_S
    if inputs.mode != FcuMode.OFFBOARD or Timer.PERSON in timers or late:
        del timers[Timer.UNHEARD]  # heard, or a person has it
        return False
    if _is_flown_by_others(mission) and mission.commands.since_s(CommandAction.HOLD, now_s) >= AGAIN_S:
        del timers[Timer.UNHEARD]
        _request_again(mission, "the link is back, and another sender flies in offboard", now_s)
    return True


def _requested_against_others(mission: MissionContext) -> tuple[FcuMode, ...]:
    landing = (FcuMode.AUTO_LAND,) if mission.commands.asked(CommandAction.LAND) else ()
    return (FcuMode.AUTO_LOITER, *landing)


def _is_back_in_offboard(mission: MissionContext, now_s: float) -> bool:
    """PX4 left offboard for our Hold and is back in it, by the other sender."""
    left = Timer.OFFBOARD_LEFT in mission.flight.timers
    return left and mission.inputs.linked(now_s) and _is_flown_by_others(mission)


def _done(mission: MissionContext, now_s: float) -> None:
    """Leave OFFBOARD, to which PX4 returns in disarming: no flight starts in that mode."""
    inputs = mission.inputs
    left_over = inputs.on_ground() and inputs.mode == FcuMode.OFFBOARD
    own_flight = mission.plan.start == "auto"
    if left_over and own_flight and inputs.linked(now_s) and not mission.commands.asked(CommandAction.HOLD):
        mission.request(CommandAction.HOLD, now_s)


PHASE_WORK: dict[Phase, PhaseWork] = {
    Phase.WAIT_READY: _wait_ready,
    Phase.ARM: _arm,
    Phase.ENTER_OFFBOARD: _enter_offboard,
    Phase.SEARCH: _search,
    Phase.HOLD: _hold,
    Phase.INSPECT: inspect,
    Phase.RETURN: _return,
    Phase.LAND: _land,
    Phase.DONE: _done,
    Phase.PILOT: _observe,
    Phase.PX4_HOLD: _observe,
}

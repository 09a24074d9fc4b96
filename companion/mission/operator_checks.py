"""What a request from a view may do, in which phase; the rows of the transition table that it takes.

A request passes the mission's own checks and never the safety table: a demand of a monitor stands above it. No request
enters offboard after a takeover, ends a hold that a monitor asked for, or replaces the pilot's switch.
"""

from companion.core.enums import FcuMode, OperatorAction, Phase
from companion.mission import phases as ph
from companion.mission.conditions import Condition, Found
from companion.mission.mission_context import MissionContext
from companion.mission.operator import who
from companion.mission.requests import INFORMATION, WARNING

REPORT_S = 10.0  # between two reports of ignored requests

TARGETS = {
    OperatorAction.START: Phase.ENTER_OFFBOARD,
    OperatorAction.HOLD: Phase.PAUSE,
    OperatorAction.RETURN: Phase.RETURN,
    OperatorAction.LAND: Phase.LAND,
    OperatorAction.STOP_STREAMING: Phase.PX4_HOLD,
}


def asked_for(action: OperatorAction) -> Condition:
    """The condition that a person asks for `action` and may."""

    def asked(mission: MissionContext, now_s: float) -> Found:
        return mission.operator.asks(action)

    return asked


def consider(mission: MissionContext, now_s: float) -> None:
    """Take the request of this step: refuse it with the reason, or grant it to the transition table."""
    operator, phase = mission.operator, mission.flight.phase
    operator.holding = operator.holding and phase == Phase.PAUSE
    operator.returning = operator.returning and phase in (Phase.RETURN, Phase.PAUSE)
    request = operator.begin_step(now_s)
    if request is None:
        return
    problem = _problem(mission, request.action, now_s)
    if problem:
        _report(mission, f"refused: {problem}", WARNING, now_s)
        return
    operator.granted = True
    if request.action == OperatorAction.START:
        mission.flight.switch_used_s = None  # the checks of a movement of the switch, once more
    if request.action in (OperatorAction.HOLD, OperatorAction.GO_ON):
        operator.holding = request.action == OperatorAction.HOLD


def answer(mission: MissionContext, now_s: float) -> None:
    """Report what became of the request; a phase that was entered for it has reported itself."""
    operator, phase = mission.operator, mission.flight.phase
    if operator.ignored and now_s >= operator.report_s:
        text = f"{operator.ignored} requests of the view ignored so far: too many at a time, too old, or invalid"
        mission.report(text, WARNING, now_s)
        operator.ignored, operator.report_s = 0, now_s + REPORT_S
    if operator.considered is None or not operator.granted:
        return
    action = operator.considered.action
    operator.returning |= action == OperatorAction.RETURN and phase == Phase.RETURN
    if action == OperatorAction.GO_ON:
        demand = mission.safety.demand
        _report(
            mission, "granted" if demand is None else f"waits for the safety table: {demand.text}", INFORMATION, now_s
        )
    elif phase != TARGETS[action]:
        _report(mission, f"not done, the mission is in {phase}: {mission.flight.reason}", WARNING, now_s)
    elif mission.flight.phase_time_s(now_s) > 0:  # a hold that a monitor began goes on as the person's
        _report(mission, "granted", INFORMATION, now_s)


def _report(mission: MissionContext, result: str, severity: int, now_s: float) -> None:
    request = mission.operator.considered
    if request is not None:
        mission.report(f"{request.action} ({who(request)}): {result}", severity, now_s)


def _problem(mission: MissionContext, action: OperatorAction, now_s: float) -> str:
    """Why a request is refused; "" when it is granted."""
    phase = mission.flight.phase
    if phase in ph.OBSERVING and action != OperatorAction.START:
        return "the pilot, another station or PX4 has control"
    match action:
        case OperatorAction.START:
            return _start_problem(mission, now_s)
        case OperatorAction.HOLD:
            return _hold_problem(mission)
        case OperatorAction.GO_ON:
            if phase != Phase.PAUSE or not mission.operator.holding:
                return "no hold that the view asked for lasts"
            return "" if mission.inputs.mode == FcuMode.OFFBOARD else f"PX4 has left offboard ({mission.inputs.mode})"
        case OperatorAction.RETURN:
            return "" if phase in (*ph.WORKING, Phase.PAUSE) else f"not possible in {phase}"
        case OperatorAction.LAND:
            return "" if phase in (*ph.BEFORE_CONTROL, *ph.CONTROLLING) else f"not possible in {phase}"
        case OperatorAction.STOP_STREAMING:
            return "" if phase in ph.UNDER_WAY else f"no setpoints are sent in {phase}"


def _start_problem(mission: MissionContext, now_s: float) -> str:
    switch, phase = mission.inputs.switch, mission.flight.phase
    if phase != Phase.WAIT_READY:
        return f"the mission is in {phase}"
    if switch is None:
        return f"the mission starts by itself when its checks pass: {mission.start_problems(now_s) or 'they pass'}"
    if switch.on is not True:
        return "the mission switch of the RC is not on"
    return switch.doubt if switch.turned_on_s is not None else "turn the mission switch of the RC off and on once"


def _hold_problem(mission: MissionContext) -> str:
    flight = mission.flight
    if flight.phase == Phase.PAUSE:
        return "it holds already" if mission.operator.holding else ""
    if flight.phase == Phase.RETURN:
        if flight.descended:
            return "the aircraft is landing"
        return "" if not flight.early_end or mission.operator.returning else "the return has its cause; land instead"
    return "" if flight.phase in ph.WORKING else f"not possible in {flight.phase}"

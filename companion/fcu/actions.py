"""The requests of the mission: FcuCommand to MAV_CMD, each answered by one FcuCommandAck.

Arming, take-off and offboard begin a flight or take it over; they are refused while there is a reason against a flight.
Requests that end a flight (disarm, hold, land, return) are not. No mode is requested, or requested again after a lost ack,
when PX4 has been given another one meanwhile: a person may have taken over since the mission decided.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from pymavlink.dialects.v20 import common

from companion.core.enums import BEGINNING, CommandAction, FcuMode
from companion.core.messages import FcuCommand, FcuCommandAck, Message
from companion.fcu.commands import Commands, Outcome, Watch
from companion.fcu.mode_decision import ModeDecisions
from companion.fcu.modes import MODE_OF_ACTION, RESULT_TEXTS, custom_mode, mode_name
from companion.fcu.status import VehicleStatus
from companion.fcu.watches import ArmingWatch, BeginningWatch, TakeoffWatch

TAKEOFF_HEIGHT_MAX_M = 120.0
SECOND_ACK_S = 0.15  # PX4's commander answers some 10 ms after its receiver, at most one cycle of a slow link later
WARNING_AGE_S = 2.0  # a warning of PX4 this young explains its refusal
WARNING_WAIT_S = 0.3  # a refusal waits this long for PX4's warning: PX4 sends acks first in each of its cycles
ENDING = (
    CommandAction.WITHDRAW,
    CommandAction.DISARM,
    CommandAction.HOLD,
    CommandAction.LAND,
    CommandAction.RETURN,
)
NAN = math.nan


class _Refusal(NamedTuple):
    """A refusal of PX4 that waits for PX4's warning."""

    due_s: float
    request: FcuCommand
    reason: str
    fallback: str  # appended when PX4 sends no warning
    temporary: bool


class Actions:
    """Turns requests into commands and their outcomes into acks."""

    def __init__(
        self,
        commands: Commands,
        status: VehicleStatus,
        publish: Callable[[Message], None],
        request_heartbeat: Callable[[float], None],
        against: Callable[[], str],
        streams: Callable[[], bool],
    ) -> None:
        """against: why no flight may begin, "" when one may. streams: setpoints of this stack leave."""
        self._commands, self._status = commands, status
        self._against, self._streams = against, streams
        self._publish = publish
        self._request_heartbeat = request_heartbeat
        self._warning = (-math.inf, "")
        self._refusals: list[_Refusal] = []
        self._modes = ModeDecisions(status, request_heartbeat, lambda: self.now_s)
        self._requested_mode = FcuMode.UNKNOWN  # the newest
        self._arming = False  # the newest request to arm or to disarm is one to arm
        self.px4_sends_texts = False  # on this link, because it receives a ground station's heartbeat on it
        self.now_s = 0.0  # time of the message being handled; an outcome may come much later than its request

    def is_requested(self, mode: FcuMode) -> bool:
        """The mission has requested this mode, and the flight controller has not answered yet."""
        return self._commands.busy(common.MAV_CMD_DO_SET_MODE) and mode == self._requested_mode

    def note_warning(self, text: str) -> None:
        """PX4 sent a warning; it may explain a refusal."""
        self._warning = (self.now_s, text)
        self.step(math.inf)

    def step(self, now_s: float) -> None:
        """Answer the refusals that have waited long enough for a warning."""
        due = [refusal for refusal in self._refusals if now_s >= refusal.due_s]
        self._refusals = [refusal for refusal in self._refusals if now_s < refusal.due_s]
        for refusal in due:
            self._publish_refusal(refusal)

    def begin(self, request: FcuCommand) -> None:
        """Start the requested action; it is answered now or when the flight controller has answered."""
        action = request.action
        if action in ENDING:
            self._withdraw_what_begins(f"ended by {action}")
        if action in BEGINNING and (against := self._against()):
            self.answer(request, False, against)
        elif action == CommandAction.WITHDRAW:
            self.answer(request, True, "withdrawn")
        elif action in MODE_OF_ACTION:
            self._change_mode(request)
        elif action in (CommandAction.ARM, CommandAction.DISARM):
            self._arm(request, action == CommandAction.ARM)
        elif action == CommandAction.TAKEOFF:
            self._takeoff(request)
        else:
            self.answer(request, False, f"unknown action {str(action)!r}")

    def _withdraw_what_begins(self, reason: str) -> None:
        """What begins a flight and was not answered is not requested again after what ends it."""
        self._commands.withdraw(common.MAV_CMD_NAV_TAKEOFF, reason)
        if self._arming:
            self._commands.withdraw(common.MAV_CMD_COMPONENT_ARM_DISARM, reason)
        if self._requested_mode == FcuMode.OFFBOARD:
            self._commands.withdraw(common.MAV_CMD_DO_SET_MODE, reason)

    def answer(
        self, request: FcuCommand, accepted: bool, reason: str, temporary: bool = False, heard: bool = False
    ) -> None:
        """Answer a request at once.

        temporary: refused, but the same request may be accepted later. heard: it is the flight controller that refused.
        """
        self._publish(
            FcuCommandAck(
                stamp_s=self.now_s,
                id=request.id,
                accepted=accepted,
                reason=reason,
                temporary=temporary,
                heard=accepted or heard,
            )
        )

    def _answer_outcome(self, request: FcuCommand, outcome: Outcome, fallback: str = "") -> None:
        """Answer a request with the outcome of its command; fallback: added to a refusal that PX4 does not explain."""
        if outcome.accepted or outcome.result not in RESULT_TEXTS:
            self.answer(request, outcome.accepted, outcome.reason)
            return
        temporary = outcome.result == common.MAV_RESULT_TEMPORARILY_REJECTED
        refusal = _Refusal(self.now_s + WARNING_WAIT_S, request, outcome.reason, fallback, temporary)
        if self.px4_sends_texts and not self._recent_warning():
            self._refusals.append(refusal)
        else:
            self._publish_refusal(refusal)

    def _publish_refusal(self, refusal: _Refusal) -> None:
        warning, reason = self._recent_warning(), refusal.reason
        reason = f"{reason}: {warning}" if warning else reason + refusal.fallback
        self.answer(refusal.request, False, reason, refusal.temporary, heard=True)

    def _change_mode(self, request: FcuCommand) -> None:
        main, sub = MODE_OF_ACTION[request.action]
        requested = mode_name(custom_mode(main, sub))
        begins = request.action in BEGINNING
        decision = self._modes.decide(request.mode, request.intended_mode, requested, begins)
        if why := decision.changed():
            self.answer(request, False, why)
            return
        self._requested_mode = requested

        def answer(outcome: Outcome) -> None:
            if outcome.accepted:
                decision.accept()
            self._answer_outcome(request, outcome)

        parameters = (float(common.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED), main, sub, 0, 0, 0, 0)
        watch: Watch = decision
        if begins:
            watch = BeginningWatch(decision, self._against, self._no_setpoints)
        self._commands.start(common.MAV_CMD_DO_SET_MODE, parameters, answer, self.now_s, SECOND_ACK_S, watch)

    def _no_setpoints(self) -> str:
        return "" if self._streams() else "no setpoint has left meanwhile"

    def _arm(self, request: FcuCommand, arm: bool) -> None:
        def answer(outcome: Outcome) -> None:
            fallback = ""
            if outcome.accepted:
                self._request_heartbeat(self.now_s)
            elif arm and (unhealthy := self._status.unhealthy(self.now_s)):
                fallback = f" (not healthy: {unhealthy})"
            self._answer_outcome(request, outcome, fallback)

        # the second parameter would force it in the air; it stays 0
        parameters = (1.0 if arm else 0.0, 0, 0, 0, 0, 0, 0)

        decision = self._modes.decide(request.mode, request.intended_mode)
        if why := decision.changed():
            self.answer(request, False, why)
            return
        self._arming = arm
        watch: Watch = ArmingWatch(decision, self._status, lambda: self.now_s, self._request_heartbeat, armed=arm)
        if arm:
            watch = BeginningWatch(watch, self._against)
        self._commands.start(common.MAV_CMD_COMPONENT_ARM_DISARM, parameters, answer, self.now_s, watch=watch)

    def _takeoff(self, request: FcuCommand) -> None:
        """MAV_CMD_NAV_TAKEOFF: PX4 expects the altitude over mean sea level; NaN: here, with the present heading."""
        (ground_m, problem), climb_m = self._status.ground_altitude_m(self.now_s), request.height_m
        if not 0.0 < climb_m <= TAKEOFF_HEIGHT_MAX_M:
            self.answer(request, False, f"take-off height {climb_m:g} m is not in 0 to {TAKEOFF_HEIGHT_MAX_M:g} m")
        elif problem:
            self.answer(request, False, problem)
        else:
            parameters = (NAN, 0, 0, NAN, NAN, NAN, ground_m + climb_m)
            decision = self._modes.decide(request.mode, request.intended_mode, FcuMode.AUTO_TAKEOFF, begins=True)
            if why := decision.changed():
                self.answer(request, False, why)
                return
            watch = TakeoffWatch(decision, self._status, lambda: self.now_s, self._request_heartbeat, armed=True)
            self._commands.start(
                common.MAV_CMD_NAV_TAKEOFF,
                parameters,
                lambda outcome: self._answer_outcome(request, outcome),
                self.now_s,
                watch=BeginningWatch(watch, self._against),
            )

    def _recent_warning(self) -> str:
        """The newest warning of PX4 if it is recent; PX4 1.17 sends texts only on links with a ground station."""
        warned_s, warning = self._warning
        return warning if self.now_s - warned_s <= WARNING_AGE_S else ""

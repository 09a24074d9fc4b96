"""The requests of the mission: FcuCommand to MAV_CMD, each answered by one FcuCommandAck.

Arming, take-off and offboard begin a flight or take it over; they are refused while there is a reason against a flight.
Requests that end a flight (disarm, hold, land, return) are not. No mode is requested, or requested again after a lost ack,
when PX4 has been given another one meanwhile: a person may have taken over since the mission decided.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from pymavlink.dialects.v20 import common

from companion.core.enums import CommandAction, FcuMode
from companion.core.messages import FcuCommand, FcuCommandAck, Message
from companion.fcu.commands import Commands, Outcome
from companion.fcu.modes import MODE_OF_ACTION, RESULT_TEXTS, custom_mode, mode_name
from companion.fcu.status import VehicleStatus

TAKEOFF_HEIGHT_MAX_M = 120.0
SECOND_ACK_S = 0.15  # PX4's commander answers some 10 ms after its receiver, at most one cycle of a slow link later
WARNING_AGE_S = 2.0  # a warning of PX4 this young explains its refusal
WARNING_WAIT_S = 0.3  # a refusal waits this long for PX4's warning: PX4 sends acks first in each of its cycles
RECENT_S = 2.0  # a mode that was requested so recently is not another's
BEGINNING = (CommandAction.ARM, CommandAction.TAKEOFF, CommandAction.OFFBOARD)
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
    ) -> None:
        self._commands, self._status = commands, status
        self._publish = publish
        self._request_heartbeat = request_heartbeat
        self._warning = (-math.inf, "")
        self._refusals: list[_Refusal] = []
        self._requested_mode = FcuMode.UNKNOWN  # the newest
        self._requested_s: dict[FcuMode, float] = {}
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

    def begin(self, request: FcuCommand, against: str) -> None:
        """Start the requested action; it is answered now or when the flight controller has answered.

        against: why no flight may begin, "" when one may.
        """
        action = request.action
        if action in BEGINNING and against:
            self.answer(request, False, against)
        elif action in MODE_OF_ACTION:
            self._change_mode(request)
        elif action in (CommandAction.ARM, CommandAction.DISARM):
            self._arm(request, action == CommandAction.ARM)
        elif action == CommandAction.TAKEOFF:
            self._takeoff(request)
        else:
            self.answer(request, False, f"unknown action {str(action)!r}")

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
        before = self._mode_before(request)
        if why := self._changed_by_others(before, requested):
            self.answer(request, False, why)
            return
        self._requested_mode, self._requested_s[requested] = requested, self.now_s

        def answer(outcome: Outcome) -> None:
            # The heartbeat with the new mode may be a second away; until then the estimator would use setpoints that
            # the autopilot no longer follows.
            if outcome.accepted:
                self._status.accept_mode(requested, self.now_s)
            self._answer_outcome(request, outcome)

        parameters = (float(common.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED), main, sub, 0, 0, 0, 0)
        self._commands.start(
            common.MAV_CMD_DO_SET_MODE,
            parameters,
            answer,
            self.now_s,
            SECOND_ACK_S,
            self._until(before, requested),
            self._reported(before, requested),
        )

    def _mode_before(self, request: FcuCommand) -> FcuMode:
        """PX4's mode when the mission decided, which is some tenths of a second ago."""
        return self._status.mode if request.mode == FcuMode.UNKNOWN else request.mode

    def _reported(self, before: FcuMode, requested: FcuMode) -> Callable[[float], bool]:
        """Whether PX4 has reported its mode so recently, and whether another one is a person's; if not, it is asked."""

        def reported(age_s: float) -> bool:
            if self._status.mode_waits or self.now_s - self._status.mode_report_s > age_s:
                self._request_heartbeat(self.now_s)
                return False
            known = self._status.mode == before or not self._status.awaits_intended(self.now_s)
            return known or (age_s == math.inf and self._status.mode in self._ours(before, requested))

        return reported

    def _until(self, before: FcuMode, requested: FcuMode) -> Callable[[], Outcome | None]:
        """The outcome of a request of a mode by PX4's reports."""
        entered = False  # once: then the mode before is another's choice like any other

        def settled() -> Outcome | None:
            nonlocal entered
            status = self._status
            entered |= status.mode == requested != before
            if status.mode_waits or status.awaits_intended(self.now_s):
                return None
            if status.mode == requested != before and status.intended(self.now_s) in (None, requested):
                return Outcome(True, "the mode is reported")
            why = self._changed_by_others(requested if entered else before, requested)
            return Outcome(False, why) if why else None

        return settled

    def _changed_by_others(self, before: FcuMode, requested: FcuMode) -> str:
        """Why a mode is not to be requested any more; "": PX4 has no other since `before` than one that was requested.

        Not a person's: offboard, Hold at the end of PX4's own take-off, and the mode of a failsafe, in which PX4 says that
        it is meant to fly another.
        """
        mode, ours = self._status.mode, self._ours(before, requested)
        awaits = self._status.awaits_intended(self.now_s)
        if before == FcuMode.UNKNOWN or mode in ours or awaits or self._status.intended(self.now_s) in ours:
            return ""
        return f"the mode was changed to {mode} meanwhile"

    def _ours(self, before: FcuMode, requested: FcuMode) -> set[FcuMode]:
        recent_s = self.now_s - RECENT_S
        ours = {before, requested, FcuMode.OFFBOARD, *(m for m, at_s in self._requested_s.items() if at_s >= recent_s)}
        return ours | {FcuMode.AUTO_LOITER} if FcuMode.AUTO_TAKEOFF in ours else ours

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

        before = self._mode_before(request)
        mode_reported = self._reported(before, before)
        why = "" if arm else self._changed_by_others(before, before)
        if why:
            self.answer(request, False, why)
            return

        def settled() -> Outcome | None:
            if self._status.armed == arm:
                return Outcome(True, "it is reported")
            why = self._changed_by_others(before, before)
            return Outcome(False, why) if why else None

        def reported(age_s: float) -> bool:
            """PX4 has reported so recently whether it is armed; else it is asked."""
            if recent := self.now_s - self._status.armed_report_s <= age_s:
                return mode_reported(age_s)
            self._request_heartbeat(self.now_s)
            return recent

        self._commands.start(
            common.MAV_CMD_COMPONENT_ARM_DISARM, parameters, answer, self.now_s, settled=settled, reported=reported
        )

    def _takeoff(self, request: FcuCommand) -> None:
        """MAV_CMD_NAV_TAKEOFF: PX4 expects the altitude over mean sea level; NaN: here, with the present heading."""
        (ground_m, problem), climb_m = self._status.ground_altitude_m(self.now_s), request.height_m
        if not 0.0 < climb_m <= TAKEOFF_HEIGHT_MAX_M:
            self.answer(request, False, f"take-off height {climb_m:g} m is not in 0 to {TAKEOFF_HEIGHT_MAX_M:g} m")
        elif problem:
            self.answer(request, False, problem)
        else:
            parameters = (NAN, 0, 0, NAN, NAN, NAN, ground_m + climb_m)
            before, requested = self._mode_before(request), FcuMode.AUTO_TAKEOFF
            if why := self._changed_by_others(before, requested):
                self.answer(request, False, why)
                return
            self._requested_s[requested] = self.now_s
            self._commands.start(
                common.MAV_CMD_NAV_TAKEOFF,
                parameters,
                lambda outcome: self._answer_outcome(request, outcome),
                self.now_s,
                settled=self._until(before, requested),
                reported=self._reported(before, requested),
            )

    def _recent_warning(self) -> str:
        """The newest warning of PX4 if it is recent; PX4 1.17 sends texts only on links with a ground station."""
        warned_s, warning = self._warning
        return warning if self.now_s - warned_s <= WARNING_AGE_S else ""

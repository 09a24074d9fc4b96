"""Whose mode the flight controller flies: whether what the mission decided by one mode still stands.

Half a second lies between a request and its repetition after a lost ack, and some tenths between the mission's decision
and the request. A person may take over meanwhile, which only the mode shows: each request names the mode by which it was
decided, and a mode that neither that one nor a request of this stack explains is a person's choice. PX4 reports what it was
asked for beside the mode that flies (CURRENT_MODE); where they differ a failsafe flies, and what it was asked for counts.
"""

import math
from collections.abc import Callable

from companion.core.enums import FcuMode
from companion.fcu.commands import Outcome
from companion.fcu.modes import STICK_MODES
from companion.fcu.status import VehicleStatus

RECENT_S = 2.0  # a mode that was requested so recently is not another's
INTENTION_AGE_S = 0.75  # beside a failsafe: PX4 sends CURRENT_MODE on change, and every half second


class ModeDecisions:
    """The modes that this stack has requested, against those that the flight controller reports."""

    def __init__(
        self, status: VehicleStatus, request_heartbeat: Callable[[float], None], clock: Callable[[], float]
    ) -> None:
        self.status, self.request_heartbeat, self.clock = status, request_heartbeat, clock
        self._requested_s: dict[FcuMode, float] = {}

    def decide(
        self, before: FcuMode, meant: FcuMode | None, requested: FcuMode | None = None, begins: bool = False
    ) -> "ModeDecision":
        """A decision by the mode `before` (`FcuMode.UNKNOWN`: by that of now) and what it was asked for (None: not reported).

        requested: the mode that it is to lead to. begins: it begins a flight or takes one over, which is not done out of
        PX4's Hold, Return or Land as a failsafe. Altitude in place of Position is how a pilot flies without satellites.
        """
        status = self.status
        before = status.mode if before == FcuMode.UNKNOWN else before
        if meant is None and status.mode == before:
            meant = status.intended(self.clock())
        return ModeDecision(self, before, before if meant is None else meant, requested, begins)

    def note_requested(self, mode: FcuMode) -> None:
        self._requested_s[mode] = self.clock()

    def recent(self) -> set[FcuMode]:
        return {mode for mode, at_s in self._requested_s.items() if self.clock() - at_s <= RECENT_S}


class ModeDecision:
    """One decision of the mission; a `companion.fcu.commands.Watch` of its request.

    before: the mode by which it was taken. meant: what the flight controller was asked for then. requested: the mode that
    it is to lead to; None: it stays.
    """

    def __init__(
        self, decisions: ModeDecisions, before: FcuMode, meant: FcuMode, requested: FcuMode | None, begins: bool
    ) -> None:
        self._decisions, self._status = decisions, decisions.status
        self._before, self._meant, self._begins = before, meant, begins
        self._stays, self._requested = requested is None, requested or before
        self._against = ""  # a person's choice that was reported since, also if he went back
        self._entered = False  # perhaps, by a heartbeat alone: then the mode before is another's choice like any other

    def changed(self) -> str:
        """Why it no longer stands; "": the flight controller has been asked for no other mode since than one of this stack.

        Not a person's: offboard, and Hold at the end of PX4's own take-off.
        """
        status, now_s = self._status, self._decisions.clock()
        if self._before == FcuMode.UNKNOWN or status.awaits_intended(now_s):
            return ""
        intended = status.intended(now_s)
        if self._begins and intended not in (None, status.mode) and not self._begins_from(status.mode, intended):
            return f"the flight controller flies {status.mode} in place of {intended}"
        chosen = status.mode if intended is None else intended
        if chosen in self._ours():
            return ""
        return f"the mode was changed to {chosen} meanwhile"

    def settled(self) -> Outcome | None:
        """The outcome of a request for the mode by the flight controller's reports; None: still open."""
        status, now_s = self._status, self._decisions.clock()
        mode, meant = status.named(now_s)
        if mode == self._requested != self._before and meant in (None, mode):
            if meant == mode or not status.awaits_intended(now_s):
                return Outcome(True, "the mode is reported")
            self._entered = True
        elif mode == self._requested:
            self._entered = False  # a failsafe flies it
        if not (self._against or status.mode_waits or status.awaits_intended(now_s)):
            self._against = self.changed()
        return Outcome(False, self._against) if self._against else None

    def reported(self, age_s: float) -> bool:
        """The mode was reported in the last `age_s`, and so was whether it is a person's; if not, it is asked for.

        An age of infinity is that of a first request, which need not wait for what a mode of this stack's own is meant for.
        """
        status, now_s = self._status, self._decisions.clock()
        if status.mode_waits or status.mode_doubted or now_s - status.mode_report_s > age_s:
            self._decisions.request_heartbeat(now_s)
            return False
        if status.intended(now_s) not in (None, status.mode) and status.intended_age_s(now_s) > max(
            age_s, INTENTION_AGE_S
        ):
            return False
        known = status.mode == self._before or not status.awaits_intended(now_s)
        return known or (age_s == math.inf and status.mode in self._ours())

    def sent(self) -> None:
        """The request left: from now on its mode is this stack's."""
        if not self._stays:
            self._decisions.note_requested(self._requested)

    def accept(self) -> None:
        """The flight controller has accepted the mode: it counts at once, unless another one has been reported since.

        The heartbeat with the new mode may be a second away; until then the estimator would use setpoints that the flight
        controller no longer follows.
        """
        if self._status.mode in (self._before, self._requested):
            self._status.accept_mode(self._requested, self._decisions.clock())

    def _begins_from(self, mode: FcuMode, intended: FcuMode | None) -> bool:
        """Whether a flight may begin while `mode` is flown in place of another one."""
        if intended == self._requested:
            return mode in STICK_MODES or mode == FcuMode.AUTO_LOITER  # for want of setpoints
        return mode in STICK_MODES and intended in STICK_MODES

    def _ours(self) -> set[FcuMode]:
        """The modes that are no person's choice since the decision."""
        if self._entered:
            return {self._requested, FcuMode.OFFBOARD}
        ours = {self._meant, FcuMode.OFFBOARD} | self._decisions.recent()
        if FcuMode.AUTO_TAKEOFF in ours and self._requested != FcuMode.AUTO_TAKEOFF:
            ours.add(FcuMode.AUTO_LOITER)  # the end of PX4's take-off
        return ours | {self._requested}

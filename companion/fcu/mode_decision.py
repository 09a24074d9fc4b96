"""Whose mode the flight controller flies: whether what the mission decided by one mode still stands.

Half a second lies between a request and its repetition after a lost ack, and some tenths between the mission's decision
and the request. A person may take over meanwhile, which only the mode shows: each request names the mode by which it was
decided, and a mode that neither that one nor a request of this stack explains is a person's choice.
"""

import math
from collections.abc import Callable

from companion.core.enums import FcuMode
from companion.fcu.commands import Outcome
from companion.fcu.status import VehicleStatus

RECENT_S = 2.0  # a mode that was requested so recently is not another's


class ModeDecisions:
    """The modes that this stack has requested, against those that the flight controller reports."""

    def __init__(
        self, status: VehicleStatus, request_heartbeat: Callable[[float], None], clock: Callable[[], float]
    ) -> None:
        self.status, self.request_heartbeat, self.clock = status, request_heartbeat, clock
        self._requested_s: dict[FcuMode, float] = {}

    def decide(self, before: FcuMode, requested: FcuMode | None = None) -> "ModeDecision":
        """A decision by the mode `before` (`FcuMode.UNKNOWN`: by that of now); requested: the mode that it is to lead to."""
        before = self.status.mode if before == FcuMode.UNKNOWN else before
        return ModeDecision(self, before, before if requested is None else requested)

    def note_requested(self, mode: FcuMode) -> None:
        self._requested_s[mode] = self.clock()

    def recent(self) -> set[FcuMode]:
        return {mode for mode, at_s in self._requested_s.items() if self.clock() - at_s <= RECENT_S}


class ModeDecision:
    """One decision of the mission: the mode by which it was taken, and the requested one (the same when none is)."""

    def __init__(self, decisions: ModeDecisions, before: FcuMode, requested: FcuMode) -> None:
        self._decisions, self._status = decisions, decisions.status
        self._before, self._requested = before, requested
        self._entered = False  # once: then the mode before is another's choice like any other

    def changed(self) -> str:
        """Why it no longer stands; "": the flight controller has had no other mode since than one that was requested.

        Not a person's: offboard, Hold at the end of PX4's own take-off, and the mode of a failsafe, in which PX4 says that
        it is meant to fly another.
        """
        status, now_s, before = self._status, self._decisions.clock(), self._before
        if before == FcuMode.UNKNOWN or status.awaits_intended(now_s):
            return ""
        ours = self._ours(self._requested if self._entered else before)
        if status.mode in ours or status.intended(now_s) in ours:
            return ""
        return f"the mode was changed to {status.mode} meanwhile"

    def settled(self) -> Outcome | None:
        """The outcome of a request for the mode by the flight controller's reports; None: still open."""
        status, requested, now_s = self._status, self._requested, self._decisions.clock()
        entered = status.mode == requested != self._before
        self._entered |= entered
        if status.mode_waits or status.awaits_intended(now_s):
            return None
        if entered and status.intended(now_s) in (None, requested):
            return Outcome(True, "the mode is reported")
        why = self.changed()
        return Outcome(False, why) if why else None

    def reported(self, age_s: float) -> bool:
        """The mode was reported in the last `age_s`, and so was whether it is a person's; if not, it is asked for.

        An age of infinity is that of a first request, which need not wait for what a mode of this stack's own is meant for.
        """
        status, now_s = self._status, self._decisions.clock()
        if status.mode_waits or now_s - status.mode_report_s > age_s:
            self._decisions.request_heartbeat(now_s)
            return False
        known = status.mode == self._before or not status.awaits_intended(now_s)
        return known or (age_s == math.inf and status.mode in self._ours(self._before))

    def _ours(self, before: FcuMode) -> set[FcuMode]:
        ours = {before, self._requested, FcuMode.OFFBOARD} | self._decisions.recent()
        return ours | {FcuMode.AUTO_LOITER} if FcuMode.AUTO_TAKEOFF in ours else ours

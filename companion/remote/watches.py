"""What ends a request of a page before it is sent again: `companion.fcu.commands.Watch` of each kind.

Half a second lies between a request and its repetition. A pilot with a transmitter may take over meanwhile, the sticks may
stop or change hands, and the page may close: then a person asks again, who sees the aircraft as it is now.
"""

import math
from collections.abc import Callable

from companion.core.enums import FcuMode
from companion.fcu.commands import Outcome
from companion.fcu.status import VehicleStatus
from companion.remote.sticks import MANUAL

Unwanted = Callable[[], str]  # why a request is no longer wanted by who made it, "" while it is
ANSWER_S = 1.5  # for which the answer to a request that is sent once may still come
UNANSWERED = "no answer from the flight controller, and not sent again"


class _RequestWatch:
    """A request by the mode of now, for who made it."""

    def __init__(
        self,
        status: VehicleStatus,
        clock: Callable[[], float],
        request_heartbeat: Callable[[], None],
        unwanted: Unwanted,
        requested: FcuMode | None = None,
        replaced: FcuMode | None = None,
    ) -> None:
        """requested: the mode that it is to lead to; None: it changes none. replaced: that of the request before it, which may still be followed."""
        self._status, self._clock, self._request_heartbeat = status, clock, request_heartbeat
        self._unwanted, self._requested = unwanted, requested
        self._before, meant = status.named(clock())
        self._meant = self._before if meant is None else meant
        self._expected = {self._before, requested, replaced}
        self._against = ""  # also when it has ended since
        self._left_s = math.inf

    def reported(self, age_s: float) -> bool:
        """A person has just seen the aircraft when a request leaves first; a repetition needs a heartbeat."""
        if age_s == math.inf or self._clock() - self._status.armed_report_s <= age_s:
            return True
        self._request_heartbeat()
        return False

    def sent(self) -> None:
        self._left_s = min(self._left_s, self._clock())

    def settled(self) -> Outcome | None:
        self._against = self._against or self._unwanted() or self._changed()
        return Outcome(False, f"{UNANSWERED}: {self._against}") if self._against else None

    def _changed(self) -> str:
        mode, meant = self._status.named(self._clock())
        if mode not in self._expected:
            return f"the mode was changed to {mode} meanwhile"
        if meant not in (None, self._meant, *self._expected):  # a failsafe flies, and another mode was chosen
            return f"the mode was changed to {meant} meanwhile"
        return ""


class ModeWatch(_RequestWatch):
    """A change of the mode."""

    def settled(self) -> Outcome | None:
        mode, meant = self._status.named(self._clock())
        if mode == self._requested != self._before and meant in (None, mode):
            return Outcome(True, "the mode is reported")
        return super().settled()


class ArmWatch(_RequestWatch):
    """To arm. It is sent once: motors start when a person says so, not half a second later."""

    def reported(self, age_s: float) -> bool:
        """A second request never leaves, whatever is reported."""
        return self._left_s == math.inf and super().reported(age_s)

    def settled(self) -> Outcome | None:
        if self._status.armed:
            return Outcome(True, "it is reported")
        outcome = super().settled()
        if self._left_s == math.inf:
            return outcome
        if (
            self._clock() - self._left_s < ANSWER_S
        ):  # forgotten now, its late answer would be taken for that of a disarming
            return None
        return outcome or Outcome(False, f"{UNANSWERED}: see whether it arms, then ask again")


class DisarmWatch(_RequestWatch):
    """To stop the rotors."""

    def settled(self) -> Outcome | None:
        return super().settled() if self._status.armed else Outcome(True, "it is reported")

    def _changed(self) -> str:
        """It stays wanted in the modes of a failsafe, as when the sticks stop; a pilot's mode ends it."""
        return super()._changed() if self._status.named(self._clock())[0] in MANUAL else ""

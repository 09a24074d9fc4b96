"""What ends a request of a page before it is sent again: `companion.fcu.commands.Watch` of each kind.

Half a second lies between a request and its repetition. A pilot with a transmitter may take over meanwhile, the sticks may
stop or change hands, and the page may close: then a person asks again, who sees the aircraft as it is now.
"""

import math
from collections.abc import Callable

from companion.core.enums import FcuMode
from companion.fcu.commands import Outcome
from companion.fcu.status import VehicleStatus

Unwanted = Callable[[], str]  # why a request is no longer wanted by who made it, "" while it is
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
    ) -> None:
        """requested: the mode that it is to lead to; None: it changes none."""
        self._status, self._clock, self._request_heartbeat = status, clock, request_heartbeat
        self._unwanted, self._requested = unwanted, requested
        self._before, meant = status.named(clock())
        self._meant = self._before if meant is None else meant
        self._against = ""  # also when it has ended since
        self._left = False

    def reported(self, age_s: float) -> bool:
        """A person has just seen the aircraft when a request leaves first; a repetition needs a heartbeat."""
        if age_s == math.inf or self._clock() - self._status.armed_report_s <= age_s:
            return True
        self._request_heartbeat()
        return False

    def sent(self) -> None:
        self._left = True

    def settled(self) -> Outcome | None:
        self._against = self._against or self._unwanted() or self._changed()
        return Outcome(False, f"{UNANSWERED}: {self._against}") if self._against else None

    def _changed(self) -> str:
        mode, meant = self._status.named(self._clock())
        if mode not in (self._before, self._requested):
            return f"the mode was changed to {mode} meanwhile"
        if meant not in (None, self._meant, self._requested):  # a failsafe flies, and another mode was chosen
            return f"the mode was changed to {meant} meanwhile"
        return ""


class ModeWatch(_RequestWatch):
    """A change of the mode."""

    def settled(self) -> Outcome | None:
        mode, meant = self._status.named(self._clock())
        if mode == self._requested != self._before and meant in (None, mode):
            return Outcome(True, "the mode is reported")
        return super().settled()


class ArmingWatch(_RequestWatch):
    """To arm, or to disarm. To arm is sent once: motors start when a person says so, not half a second later."""

    def __init__(
        self,
        status: VehicleStatus,
        clock: Callable[[], float],
        request_heartbeat: Callable[[], None],
        unwanted: Unwanted,
        arm: bool,
    ) -> None:
        super().__init__(status, clock, request_heartbeat, unwanted)
        self._arm = arm

    def settled(self) -> Outcome | None:
        if self._status.armed == self._arm:
            return Outcome(True, "it is reported")
        if (outcome := super().settled()) is not None:
            return outcome
        if self._arm and self._left:
            return Outcome(False, f"{UNANSWERED}: see whether it arms, then ask again")
        return None

"""What else than its mode ends a request before it is sent, or sent again: `companion.fcu.commands.Watch` of each kind."""

from collections.abc import Callable

from companion.fcu.commands import Outcome, Watch
from companion.fcu.mode_decision import ModeDecision
from companion.fcu.status import VehicleStatus


class _ArmedWatch:
    """A request that goes by whether the flight controller is armed, beside the mode in which it was decided.

    armed: as it is to be: after arming or disarming, and for a take-off.
    """

    def __init__(
        self,
        decision: ModeDecision,
        status: VehicleStatus,
        clock: Callable[[], float],
        request_heartbeat: Callable[[float], None],
        armed: bool,
    ) -> None:
        self._decision, self._status, self._clock, self._armed = decision, status, clock, armed
        self._request_heartbeat = request_heartbeat

    def reported(self, age_s: float) -> bool:
        now_s = self._clock()
        if now_s - self._status.armed_report_s <= age_s:
            return self._decision.reported(age_s)
        self._request_heartbeat(now_s)
        return False

    def sent(self) -> None:
        self._decision.sent()


class ArmingWatch(_ArmedWatch):
    """To arm, or to disarm."""

    def settled(self) -> Outcome | None:
        if self._status.armed == self._armed:
            return Outcome(True, "it is reported")
        return self._decision.settled()


class TakeoffWatch(_ArmedWatch):
    """A take-off: PX4 takes one while it is disarmed, too, and flies it when a person arms the next time."""

    def settled(self) -> Outcome | None:
        outcome = self._decision.settled()
        if outcome is None and self._status.armed != self._armed:
            return Outcome(False, "disarmed meanwhile")
        return outcome


class BeginningWatch:
    """What begins a flight or takes one over: each time only while nothing speaks against it.

    against: why no flight may begin, "" when one may. missing: what a request needs to be repeated, "" when it has it.
    """

    def __init__(self, watch: Watch, against: Callable[[], str], missing: Callable[[], str] = lambda: "") -> None:
        self._watch, self._against, self._missing = watch, against, missing
        self._left = False

    def settled(self) -> Outcome | None:
        if outcome := self._watch.settled():
            return outcome
        why = self._against() or (self._missing() if self._left else "")
        return Outcome(False, why) if why else None

    def reported(self, age_s: float) -> bool:
        return self._watch.reported(age_s)

    def sent(self) -> None:
        self._left = True
        self._watch.sent()

"""COMMAND_LONG until COMMAND_ACK: retries, time-out, and one pending command per MAV_CMD.

PX4 acknowledges a mode change twice: its MAVLink receiver reports "accepted" when the command has arrived, its
commander reports a few milliseconds later whether the mode changes. A command started with `second_ack_s` therefore
stays open that long after a first "accepted", and a second ack is its answer.

An ack names the MAV_CMD and nothing else. A newer request for the same MAV_CMD therefore replaces the pending one
(a "hold" must never wait for an "offboard"), and as many acks as the replaced one still owes are skipped; a retry
ends the skipping. A lost ack therefore costs half a second, and an ack of the older request never answers the newer one
unnoticed.

A request is sent again only while it is still wanted. Half a second is enough for a person to take over: what the flight
controller has reported since the request ends it (`review`), so that no retry undoes what a person has chosen.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

from pymavlink.dialects.v20 import common

from companion.fcu.link.codec import OutgoingMessage
from companion.fcu.modes import RESULT_TEXTS

TRIES = 3
RETRY_S = 0.5
ASK_S = 0.1  # between two looks for a report
REPORT_AGE_S = 0.25  # of the report by which a request is sent again
UNREPORTED_S = 1.5  # without one, it is not
PROGRESS_S = 5.0  # time-out after "in progress"


class Outcome(NamedTuple):
    """How a command ended."""

    accepted: bool
    reason: str
    result: int | None = None  # MAV_RESULT of the ack; None: the command ended without one


Answer = Callable[[Outcome], None]
Parameters = tuple[float, float, float, float, float, float, float]


class Watch(Protocol):
    """What the flight controller's reports say about a request."""

    def settled(self) -> Outcome | None:
        """Its outcome by the newest reports; None: open. A negative one ends the request before it is sent (again)."""

    def reported(self, age_s: float) -> bool:
        """Whether that can be judged, by reports of this age at most; where not, it asks for one."""

    def sent(self) -> None:
        """The request has left, once more."""


class _Unwatched:
    """A request that no report ends and every moment permits."""

    def settled(self) -> Outcome | None:
        return None

    def reported(self, age_s: float) -> bool:
        return True

    def sent(self) -> None:
        pass


class _Pending:
    def __init__(self, parameters: Parameters, answer: Answer, skip: int, second_ack_s: float, watch: Watch) -> None:
        self.parameters = parameters
        self.answer = answer
        self.watch = watch
        self.waits_since_s: float | None = None  # for a report
        self.answered = False  # by a report; only its acks are still awaited, which belong to no newer request
        self.skip = skip  # acks that belong to the replaced command
        self.second_ack_s = second_ack_s
        self.received = False  # a first "accepted" has arrived, the second ack is pending
        self.sent = 0
        self.owed = 0  # acks still to come
        self.due_s = 0.0


class Commands:
    """The pending commands. `send` takes a pymavlink message; outcomes go to each command's callback."""

    def __init__(self, target_system: int, send: Callable[[OutgoingMessage], None]) -> None:
        self._target = target_system
        self._send = send
        self._pending: dict[int, _Pending] = {}
        self._answered_twice: set[int] = set()  # observed, because not every version of PX4 does it
        self.retries = 0

    def start(
        self,
        command: int,
        parameters: Parameters,
        answer: Answer,
        now_s: float,
        second_ack_s: float = 0.0,
        watch: Watch | None = None,
    ) -> None:
        """Send a MAV_CMD; `answer(outcome)` is called exactly once, from here or from any other method but `busy`.

        second_ack_s: how long a first "accepted" may still be followed by another ack [s].
        watch: judges by reports; the first request waits for a complete one, a retry for a recent one.
        """
        skip = 0
        if old := self._pending.pop(command, None):
            skip = old.skip + old.owed
            if not old.answered:
                old.answer(Outcome(False, "replaced by a newer request"))
        pending = self._pending[command] = _Pending(parameters, answer, skip, second_ack_s, watch or _Unwatched())
        self._transmit_when_reported(command, pending, now_s)

    def busy(self, command: int) -> bool:
        """True while a MAV_CMD waits for its ack."""
        pending = self._pending.get(command)
        return pending is not None and not pending.answered

    def withdraw(self, command: int, reason: str) -> None:
        """End a pending command: it is not sent again."""
        pending = self._pending.get(command)
        if pending is not None and not pending.answered:
            pending.answered = True
            pending.answer(Outcome(False, reason))

    def review(self) -> None:
        """End what the newest report has settled; it is not sent again.

        A report that speaks against a request may have been written before the request arrived, whose ack is then on its
        way: what was sent stays open until its retry is due.
        """
        for pending in list(self._pending.values()):
            if pending.answered or not (outcome := pending.watch.settled()):
                continue
            if outcome.accepted or not pending.sent:
                pending.answered = True
                pending.answer(outcome)

    def acknowledge(self, command: int, result: int, now_s: float) -> None:
        """Take a COMMAND_ACK."""
        pending = self._pending.get(command)
        if pending is None:
            return
        if pending.skip > 0:
            pending.skip -= 1
            return
        if not pending.sent:  # it waits for a report: the ack is that of an earlier one
            return
        pending.owed -= 1
        if pending.received:
            self._answered_twice.add(command)
        if pending.answered:
            return
        accepted = result == common.MAV_RESULT_ACCEPTED
        if accepted and pending.second_ack_s > 0 and not pending.received:
            pending.received = True
            pending.due_s = now_s + pending.second_ack_s
            return
        if result == common.MAV_RESULT_IN_PROGRESS:
            pending.sent = TRIES  # it has arrived: no more retries
            pending.due_s = now_s + PROGRESS_S
            return
        del self._pending[command]
        pending.answer(Outcome(accepted, RESULT_TEXTS.get(result, f"result {result}"), result))

    def step(self, now_s: float) -> None:
        """Send again what got no ack and is still wanted, give up after the last try."""
        self.review()
        for command, pending in list(self._pending.items()):
            if now_s < pending.due_s:
                continue
            if pending.answered:
                del self._pending[command]
            elif pending.received:
                del self._pending[command]
                accepted = common.MAV_RESULT_ACCEPTED
                pending.answer(Outcome(True, RESULT_TEXTS[accepted], accepted))
            elif outcome := pending.watch.settled():
                del self._pending[command]
                pending.answer(outcome)
            elif pending.sent < TRIES and not self._is_unreported(pending, now_s):
                self._transmit_when_reported(command, pending, now_s)
            else:
                del self._pending[command]
                why = f"no answer from the flight controller to {pending.sent} requests"
                pending.answer(
                    Outcome(False, why if pending.sent else "the flight controller reports no state to go by")
                )

    def cancel_all(self, reason: str) -> None:
        """Answer everything pending with a rejection."""
        pending, self._pending = self._pending, {}
        for p in pending.values():
            if not p.answered:
                p.answer(Outcome(False, reason))

    @staticmethod
    def _is_unreported(pending: _Pending, now_s: float) -> bool:
        return pending.waits_since_s is not None and now_s - pending.waits_since_s > UNREPORTED_S

    def _transmit_when_reported(self, command: int, pending: _Pending, now_s: float) -> None:
        if not pending.watch.reported(REPORT_AGE_S if pending.sent else math.inf):
            pending.due_s = now_s + ASK_S
            if pending.waits_since_s is None:
                pending.waits_since_s = now_s
            return
        pending.waits_since_s = None
        if pending.sent:
            pending.skip = 0
            self.retries += 1
        self._transmit(command, pending, now_s)

    def _transmit(self, command: int, pending: _Pending, now_s: float) -> None:
        self._send(
            common.MAVLink_command_long_message(
                self._target, common.MAV_COMP_ID_AUTOPILOT1, command, pending.sent, *pending.parameters
            )
        )
        pending.sent += 1
        pending.watch.sent()
        pending.owed += 2 if command in self._answered_twice else 1
        pending.due_s = now_s + RETRY_S

"""COMMAND_LONG until COMMAND_ACK: retries, time-out, and one command in flight per MAV_CMD.

PX4 acknowledges a mode change twice: its MAVLink receiver says "accepted" to having heard it, its commander says a
few milliseconds later whether the mode changes. A command started with `second_word_s` therefore stays open that
long after a first "accepted", and a second ack is its answer.

An ack names the MAV_CMD and nothing else. A newer request for the same MAV_CMD therefore replaces the pending one
(a "hold" must never wait for an "offboard"), and as many acks as the replaced one still owes are skipped; a retry
ends the skipping, so a lost ack costs half a second and never a wrong answer to the newer request in silence.
"""

from collections.abc import Callable

from pymavlink.dialects.v20 import common

from companion.fcu.modes import RESULT_TEXTS

TRIES = 3
RETRY_S = 0.5
PROGRESS_S = 5.0  # patience after "in progress"
_IN_PROGRESS = common.MAV_RESULT_IN_PROGRESS

Answer = Callable[[bool, str], None]
Parameters = tuple[float, float, float, float, float, float, float]


class _Pending:
    def __init__(self, parameters: Parameters, answer: Answer, skip: int, second_word_s: float) -> None:
        self.parameters = parameters
        self.answer = answer
        self.skip = skip  # acks that belong to what was replaced
        self.second_word_s = second_word_s
        self.heard = False  # a first "accepted" came, the second word is awaited
        self.sent = 0
        self.owed = 0  # acks still to come
        self.due_s = 0.0


class Commands:
    """The commands on their way. `send` takes a pymavlink message; answers go to each command's callback."""

    def __init__(self, target_system: int, send: Callable[[object], None]) -> None:
        self._target = target_system
        self._send = send
        self._pending: dict[int, _Pending] = {}
        self._answered_twice: set[int] = set()  # learnt, because not every version of PX4 does it
        self.retries = 0

    def start(
        self, command: int, parameters: Parameters, answer: Answer, now_s: float, second_word_s: float = 0.0
    ) -> None:
        """Send a MAV_CMD; `answer(accepted, reason)` is called exactly once, from here, `acknowledge` or `step`.

        second_word_s: how long a first "accepted" may still be followed by another answer [s].
        """
        skip = 0
        if old := self._pending.pop(command, None):
            skip = old.skip + old.owed
            old.answer(False, "replaced by a newer request")
        pending = self._pending[command] = _Pending(parameters, answer, skip, second_word_s)
        self._transmit(command, pending, now_s)

    def busy(self, command: int) -> bool:
        """True while a MAV_CMD waits for its ack."""
        return command in self._pending

    def acknowledge(self, command: int, result: int, now_s: float) -> None:
        """Take a COMMAND_ACK."""
        pending = self._pending.get(command)
        if pending is None:
            return
        if pending.skip > 0:
            pending.skip -= 1
            return
        pending.owed -= 1
        if pending.heard:
            self._answered_twice.add(command)
        if result == common.MAV_RESULT_ACCEPTED and pending.second_word_s > 0 and not pending.heard:
            pending.heard = True
            pending.due_s = now_s + pending.second_word_s
            return
        if result == _IN_PROGRESS:
            pending.sent = TRIES  # it was heard: no more sending
            pending.due_s = now_s + PROGRESS_S
            return
        del self._pending[command]
        reason = RESULT_TEXTS.get(result, f"result {result}")
        pending.answer(result == common.MAV_RESULT_ACCEPTED, reason)

    def step(self, now_s: float) -> None:
        """Send again what got no ack, give up on what got none after all tries."""
        for command, pending in list(self._pending.items()):
            if now_s < pending.due_s:
                continue
            if pending.heard:
                del self._pending[command]
                pending.answer(True, RESULT_TEXTS[common.MAV_RESULT_ACCEPTED])
            elif pending.sent < TRIES:
                pending.skip = 0
                self.retries += 1
                self._transmit(command, pending, now_s)
            else:
                del self._pending[command]
                pending.answer(False, f"no answer from the flight controller to {TRIES} requests")

    def cancel_all(self, reason: str) -> None:
        """Answer everything pending with a rejection."""
        pending, self._pending = self._pending, {}
        for p in pending.values():
            p.answer(False, reason)

    def _transmit(self, command: int, pending: _Pending, now_s: float) -> None:
        self._send(
            common.MAVLink_command_long_message(
                self._target, common.MAV_COMP_ID_AUTOPILOT1, command, pending.sent, *pending.parameters
            )
        )
        pending.sent += 1
        pending.owed += 2 if command in self._answered_twice else 1
        pending.due_s = now_s + RETRY_S

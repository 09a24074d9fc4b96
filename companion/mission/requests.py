"""What the mission requests: commands of the flight controller, photographs of the tracker."""

from typing import NamedTuple

import msgspec

from companion.core.enums import CommandAction
from companion.core.messages import FcuCommand, FcuCommandAck, FcuStatus, Photo, PhotoRequest

ANSWER_TIMEOUT_S = 6.0  # no answer counts as refused; longer than the FCU package repeats or waits for one in progress
PHOTO_TIMEOUT_S = 2.0  # then a photograph that did not come is requested again
PHOTO_ATTEMPTS = 3
CRITICAL, WARNING, INFORMATION = 2, 4, 6  # MAV_SEVERITY


class _Asked(NamedTuple):
    id: int
    at_s: float


class CommandRequests:
    """Sends commands with ids and remembers the answer to the newest of each action."""

    def __init__(self) -> None:
        self._next_id = 1
        self._asked: dict[CommandAction, _Asked] = {}
        self._answers: dict[int, FcuCommandAck] = {}

    def ask(self, action: CommandAction, now_s: float, status: FcuStatus | None, height_m: float = 0.0) -> FcuCommand:
        """A command whose answer will be kept. status: by which the mission decided."""
        if action in self._asked:
            self._answers.pop(self._asked[action].id, None)
        self._asked[action] = _Asked(self._next_id, now_s)
        command = self._command(action, now_s, height_m=height_m)
        if status is None:
            return command
        meant = status.intended_mode if status.intended_known else None
        return msgspec.structs.replace(command, mode=status.mode, intended_mode=meant)

    def text(self, text: str, severity: int, now_s: float) -> FcuCommand:
        """A line to the ground station; its answer is not kept."""
        return self._command(CommandAction.TEXT, now_s, text=text, severity=severity)

    def take(self, answer: FcuCommandAck) -> None:
        """Take an answer; one to no open request is dropped."""
        if any(answer.id == asked.id for asked in self._asked.values()):
            self._answers[answer.id] = answer

    def forget(self) -> None:
        """Forget all requests and answers; for a deliberate new start."""
        self._asked.clear()
        self._answers.clear()

    def asked(self, action: CommandAction) -> bool:
        return action in self._asked

    def is_open(self, action: CommandAction) -> bool:
        """The newest request of `action` was not answered."""
        asked = self._asked.get(action)
        return asked is not None and asked.id not in self._answers

    def refusal(self, action: CommandAction, now_s: float) -> str:
        """Why the newest request of `action` failed; "" while it is open, accepted or was never made."""
        asked = self._asked.get(action)
        if asked is None:
            return ""
        answer = self._answers.get(asked.id)
        if answer is None:
            return "no answer" if now_s - asked.at_s > ANSWER_TIMEOUT_S else ""
        return "" if answer.accepted else answer.reason or "no reason given"

    def unheard(self, action: CommandAction, now_s: float) -> bool:
        """The flight controller has answered none of the requests: it refused nothing, and may be asked again."""
        asked = self._asked.get(action)
        answer = None if asked is None else self._answers.get(asked.id)
        return bool(self.refusal(action, now_s)) and (answer is None or not answer.heard)

    def may_repeat(self, action: CommandAction) -> bool:
        """The newest request of `action` was refused temporarily."""
        asked = self._asked.get(action)
        answer = None if asked is None else self._answers.get(asked.id)
        return answer is not None and not answer.accepted and answer.temporary

    def since_s(self, action: CommandAction, now_s: float) -> float:
        """Time since the newest request of `action` [s], 0 when never made."""
        asked = self._asked.get(action)
        return 0.0 if asked is None else now_s - asked.at_s

    def _command(
        self,
        action: CommandAction,
        now_s: float,
        height_m: float = 0.0,
        text: str = "",
        severity: int = INFORMATION,
    ) -> FcuCommand:
        command = FcuCommand(
            stamp_s=now_s, id=self._next_id, action=action, height_m=height_m, text=text, severity=severity
        )
        self._next_id += 1
        return command


class Photographer:
    """Requests the photographs of a hold, one at a time, and counts those that came."""

    def __init__(self, at_s: list[float], max_error_m: float) -> None:
        self._due = sorted(at_s)
        self._max_error_m = max_error_m
        self._next_id = 1
        self._open: _Asked | None = None
        self._attempts = 0
        self.wanted = len(at_s)
        self.taken = 0
        self.missed = 0

    @property
    def finished(self) -> bool:
        """Every photograph was taken or given up."""
        return self.taken + self.missed >= self.wanted

    def step(self, hold_time_s: float, error_m: float, now_s: float) -> PhotoRequest | None:
        """The next request when a photograph is due and the aircraft is near enough to its point."""
        if self._open is not None:
            if now_s - self._open.at_s <= PHOTO_TIMEOUT_S:
                return None
            self._open = None
            if self._attempts >= PHOTO_ATTEMPTS:
                self.missed += 1
                self._attempts = 0
                return None
        index = self.taken + self.missed
        if index >= self.wanted or hold_time_s < self._due[index] or not error_m < self._max_error_m:
            return None
        self._open = _Asked(self._next_id, now_s)
        self._next_id += 1
        self._attempts += 1
        return PhotoRequest(stamp_s=now_s, id=self._open.id)

    def take(self, photo: Photo) -> None:
        """Count a photograph if it answers the open request and holds an image."""
        if self._open is not None and photo.id == self._open.id and photo.valid and photo.png:
            self._open = None
            self._attempts = 0
            self.taken += 1

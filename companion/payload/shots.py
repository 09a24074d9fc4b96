"""Every photograph is accounted for: which request an answer of the camera belongs to, and what became of each request.

An answer (CAMERA_IMAGE_CAPTURED) names the camera's own count and a time, not the command. It belongs to the request that
was commanded last before the exposure, where the camera's clock is known; else by the count, of which each
acknowledged command takes one; else to the oldest command without an answer. A request whose answer is late counts as lost until
the answer comes.
"""

import math
from collections import deque
from dataclasses import dataclass, field

from companion.core.messages import CaptureRequest
from companion.payload.camera_clock import EARLY_S

LATE_MAX_S = 30.0  # an answer that is later than this belongs to no request


@dataclass
class Shot:
    """One attempt at a photograph."""

    request: CaptureRequest
    attempt: int
    requested_s: float
    triggered_s: float = math.inf
    sent: int = 0  # commands
    due_s: float = math.inf  # of the next command without an ack
    acked: bool = False
    was_still: bool = True
    asked_again: bool = False  # for its answer
    blurs: deque[tuple[float, float]] = field(default_factory=deque)  # time, expected blur while it waits

    @property
    def triggered(self) -> bool:
        return self.sent > 0


@dataclass
class Counts:
    """See `companion.core.messages.PayloadStatus`."""

    requested: int = 0
    taken: int = 0
    blurred: int = 0
    refused: int = 0
    lost: int = 0
    late: int = 0
    duplicated: int = 0
    foreign: int = 0


@dataclass(frozen=True)
class Answer:
    """What the camera reports of one photograph."""

    index: int  # -1: not counted
    key: tuple[int, int]  # equal in a repeated answer
    exposed_s: float  # by the camera's clock or UTC; NaN: not known
    boot_ms: int = 0


class Shots:
    """The request in work, those without an answer, and the camera's count."""

    def __init__(self, soonest_s: float = 0.0) -> None:
        """soonest_s: from a command to its answer at least."""
        self._soonest_s = soonest_s
        self.open: Shot | None = None
        self.counts = Counts()
        self.missing = 0
        self._lost: deque[Shot] = deque()
        self._attempts: dict[int, int] = {}
        self._keys: dict[int, tuple[int, int]] = {}  # camera's count → its answer
        self._last: int | None = None  # the highest count
        self._boot_ms = 0
        self._clock_agreed = (
            False  # the camera's clock has been right once: then a photograph before the command is another's
        )

    @property
    def last_index(self) -> int | None:
        """The camera's highest count so far; None: none yet."""
        return self._last

    def begin(self, request: CaptureRequest, now_s: float) -> Shot:
        """A new attempt; it is in work when nothing else is."""
        self.counts.requested += 1
        attempt = self._attempts[request.id] = self._attempts.get(request.id, 0) + 1
        return Shot(request, attempt, now_s)

    def lose(self, now_s: float) -> Shot | None:
        """The request in work had no answer in time."""
        shot, self.open = self.open, None
        if shot is not None:
            self.counts.lost += 1
            self._lost.append(shot)
        self._lost = deque(s for s in self._lost if now_s - s.triggered_s <= LATE_MAX_S)
        return shot

    def take(self, answer: Answer, now_s: float) -> tuple[Shot, bool] | None:
        """The request that an answer belongs to and whether it was late; None: repeated, or not of this stack."""
        if not self._count(answer):
            return None
        waiting = [s for s in self._lost if now_s - s.triggered_s <= LATE_MAX_S]
        if self.open is not None and self.open.triggered:
            waiting.append(self.open)
        shot = self._match(answer, waiting, now_s)
        if shot is None:
            self.counts.foreign += 1
            return None
        if shot is self.open:
            self.open = None
            return shot, False
        self._lost.remove(shot)
        self.counts.lost -= 1
        self.counts.late += 1
        return shot, True

    def _count(self, answer: Answer) -> bool:
        """Follow the camera's count; False for an answer that came before."""
        if answer.boot_ms + 1000 < self._boot_ms:  # the camera restarted, and may count from the beginning
            self._keys.clear()
            self._last = None
        self._boot_ms = answer.boot_ms
        if answer.index < 0:
            return True
        if answer.index in self._keys:
            if self._keys[answer.index] == answer.key:
                self.counts.duplicated += 1
                return False
        elif self._last is not None:
            if answer.index > self._last + 1:
                self.missing += answer.index - self._last - 1
            elif answer.index < self._last and self.missing:
                self.missing -= 1
        self._keys[answer.index] = answer.key
        self._last = answer.index if self._last is None else max(self._last, answer.index)
        return True

    def _match(self, answer: Answer, waiting: list[Shot], now_s: float) -> Shot | None:
        if math.isfinite(answer.exposed_s):
            before = [s for s in waiting if s.triggered_s - EARLY_S <= answer.exposed_s]
            self._clock_agreed |= bool(before)
            if before or self._clock_agreed:
                return before[-1] if before else None
        shot = self.open
        if shot is not None and shot.triggered and now_s - shot.triggered_s >= self._soonest_s:
            return shot
        acked = [s for s in waiting if s.acked]
        return next(iter(acked or waiting), None)

"""Every photograph is accounted for: which request an answer of the camera belongs to, and what became of each request.

An answer (CAMERA_IMAGE_CAPTURED) names the camera's own count and a time, not the command. It belongs to the request that
was commanded last before the exposure, where the camera's clock is known; else by the count, of which each
acknowledged command takes one; else to the oldest command without an answer. A request whose answer is late counts as lost until
the answer comes.

A count that came before is a repeated answer, also with another time stamp, once the camera has shown that it counts: two
different ones. Answers come in any order; a camera has restarted where both its clock and its count fall behind by more than
a late answer can.
"""

import math
from collections import deque
from dataclasses import dataclass, field

from companion.core.messages import CaptureRequest
from companion.payload.camera_clock import EARLY_S

LATE_MAX_S = 30.0  # an answer that is later than this belongs to no request
FALLS_MS = 1000  # by which the camera's clock is behind in an answer that came out of order, or after a restart


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

    @property
    def taken(self) -> bool:
        """The camera reports a photograph, not a failure."""
        return self.key[1] == 1


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
        self._keys: dict[tuple[int, bool], tuple[int, int]] = {}  # camera's count, photograph or failure → its answer
        self._last: int | None = None  # the highest count
        self._boot_ms = 0  # the newest, and when it arrived
        self._boot_s = -math.inf
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
        if not self._count(answer, now_s):
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

    def _count(self, answer: Answer, now_s: float) -> bool:
        """Follow the camera's count; False for an answer that came before."""
        if answer.index < 0:
            return True
        key = (answer.index, answer.taken)
        if self._keys.get(key) == answer.key:
            self.counts.duplicated += 1
            return False
        self._follow_clock(answer, now_s)
        # A camera that does not count sends the same number always, and one that failed may send the last one again.
        shown = {index for index, _ in self._keys}
        if key in self._keys and answer.taken and len(shown) > 1:
            self.counts.duplicated += 1
            return False
        if self._last is not None:
            if answer.index > self._last + 1:
                self.missing += answer.index - self._last - 1
            elif answer.index < self._last and self.missing and answer.index not in shown:
                self.missing -= 1
        self._keys[key] = answer.key
        self._last = answer.index if self._last is None else max(self._last, answer.index)
        return True

    def _follow_clock(self, answer: Answer, now_s: float) -> None:
        """Forget the counts of a camera that restarted, and may count from the beginning."""
        behind_ms = self._boot_ms - answer.boot_ms
        if behind_ms > FALLS_MS and self._last is not None and answer.index <= self._last:
            known = (answer.index, answer.taken) in self._keys  # by another answer: this one is not that one repeated
            late_s = 1e-3 * behind_ms + now_s - self._boot_s
            if not known and late_s <= LATE_MAX_S:
                return
            self._keys.clear()
            self._last = None
        elif 0 < behind_ms <= FALLS_MS:
            return
        self._boot_ms, self._boot_s = answer.boot_ms, now_s

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

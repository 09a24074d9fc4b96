"""Every photograph is accounted for: which request an answer of the camera belongs to, and what became of each request.

An answer (CAMERA_IMAGE_CAPTURED) names the camera's own count and a time, not the command. It belongs to the request that
was commanded last before the exposure, where the camera's clock is trusted; else to the request in work; else to the oldest
command without an answer. A request whose answer is late counts as lost until the answer comes. Where a trusted clock shows
that the camera exposed later than a photograph of the command before can, the photograph is another's.

A clock is trusted once it has agreed with the answer of a request in work, and UTC, which no round trip has compared with the
computer's, only until such an answer contradicts it: a clock that is behind makes the answer of the request in work look like
the late one of a request before.

A count that came before is a repeated answer, also with another time stamp, once the camera has shown that it counts: two
different ones. Answers come in any order; a camera has restarted where both its clock and its count fall behind by more than
a late answer can. Where the count alone falls, its clock running on, the count has begun again: the card was formatted.
"""

import math
from collections import deque
from dataclasses import dataclass, field

from companion.core.messages import CaptureRequest
from companion.payload.camera_clock import EARLY_S

LATE_MAX_S = 30.0  # an answer that is later than this belongs to no request
MARGIN_S = 0.3  # by which an exposure, or its answer, may come later after the command than it is known to
FALLS_MS = 1000  # by which the camera's clock is behind in an answer that came out of order, or after a restart


@dataclass
class Trust:
    """What the answers of requests in work have said about one of the camera's clocks."""

    agreed: bool | None = None  # by the last one; None: none yet
    delay_s: float = 0.0  # of the last one that agreed, from the command to the exposure
    longest_s: float = 0.0  # of all of them
    latency_s: float = 0.0  # and from the exposure to its arrival


@dataclass
class Shot:
    """One attempt at a photograph."""

    request: CaptureRequest
    attempt: int
    requested_s: float
    triggered_s: float = math.inf
    sent: int = 0  # commands
    sent_s: float = -math.inf  # the last of them
    due_s: float = math.inf  # of the next command without an ack
    acked: bool = False
    was_still: bool = True
    asked_again: bool = False  # for its answer
    blurs: deque[tuple[float, float]] = field(default_factory=deque)  # time, expected blur while it waits
    passed_over: Trust | None = None  # the clock by which an answer that came meanwhile was not taken for its own

    @property
    def triggered(self) -> bool:
        return self.sent > 0

    @property
    def last_sent_s(self) -> float:
        """When the last command was sent."""
        return max(self.triggered_s, self.sent_s)


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
    by_utc: bool = False  # exposed_s is by UTC

    @property
    def taken(self) -> bool:
        """The camera reports a photograph, not a failure."""
        return self.key[1] == 1


class Shots:
    """The request in work, those without an answer, and the camera's count."""

    def __init__(self, shutter_delay_s: float) -> None:
        """shutter_delay_s: from a command to the exposure; an answer does not come within half of it."""
        self._delay_s, self._soonest_s = shutter_delay_s, 0.5 * shutter_delay_s
        self.open: Shot | None = None
        self.counts = Counts()
        self.missing = 0
        self._lost: deque[Shot] = deque()
        self._attempts: dict[int, int] = {}  # the last one of each request
        self._keys: dict[tuple[int, bool], tuple[int, int]] = {}  # camera's count, photograph or failure → its answer
        self._last: int | None = None  # the highest count
        self._boot_ms = 0  # the newest, and when it arrived
        self._boot_s = -math.inf
        self._exposed_s = -math.inf  # the newest
        self._clock, self._utc = Trust(), Trust()

    @property
    def utc_is_wrong(self) -> bool:
        """The last answer that could show it has contradicted the camera's UTC."""
        return self._utc.agreed is False

    @property
    def last_index(self) -> int | None:
        """The camera's highest count so far; None: none yet."""
        return self._last

    def begin(self, request: CaptureRequest, now_s: float) -> Shot:
        """A new attempt; it is in work when nothing else is.

        The first one of a request has the whole second as its number: a process that starts again in a flight gives none twice.
        """
        self.counts.requested += 1
        last = self._attempts.get(request.id)
        attempt = self._attempts[request.id] = max(1, int(now_s)) if last is None else last + 1
        return Shot(request, attempt, now_s)

    def lose(self, now_s: float) -> Shot | None:
        """The request in work had no answer in time."""
        shot, self.open = self.open, None
        if shot is not None:
            self.counts.lost += 1
            self._lost.append(shot)
            if shot.passed_over is not None:
                shot.passed_over.agreed = False  # the answer that came was its own, after all
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
        if self._begins_again(answer, now_s):
            self._forget_count()
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
        if math.isfinite(answer.exposed_s):
            self._exposed_s = max(self._exposed_s, answer.exposed_s)
        self._last = answer.index if self._last is None else max(self._last, answer.index)
        return True

    def _begins_again(self, answer: Answer, now_s: float) -> bool:
        """Whether the count has begun again while the camera's clock ran on, as after MAV_CMD_STORAGE_FORMAT.

        The answer is of the newest exposure and of the newest command, and its count is below the highest one. A repeated
        answer may have a new time stamp, but it has the last count. A late one may be stamped when it is sent
        (`time_boot_ms` of MAVSDK), but its exposure, where that is known, is not the newest.
        """
        if self._last is None or not answer.taken or answer.index >= self._last:
            return False
        if answer.boot_ms <= self._boot_ms and (answer.boot_ms or self._boot_ms):
            return False
        shot = self.open if self.open is not None and self.open.triggered else None
        if math.isfinite(answer.exposed_s) and not (answer.by_utc and self.utc_is_wrong):
            newest = shot or next(reversed(self._lost), None)
            of_newest = newest is not None and answer.exposed_s >= newest.triggered_s - EARLY_S
            return of_newest and answer.exposed_s > self._exposed_s
        return shot is not None and now_s - shot.triggered_s >= self._soonest_s and answer.boot_ms > 0

    def _forget_count(self) -> None:
        self._keys.clear()
        self._last = None

    def _follow_clock(self, answer: Answer, now_s: float) -> None:
        """Forget the counts of a camera that restarted, and may count from the beginning."""
        behind_ms = self._boot_ms - answer.boot_ms
        if behind_ms > FALLS_MS and self._last is not None and answer.index <= self._last:
            known = (answer.index, answer.taken) in self._keys  # by another answer: this one is not that one repeated
            late_s = 1e-3 * behind_ms + now_s - self._boot_s
            if not known and late_s <= LATE_MAX_S:
                return
            self._forget_count()
        elif 0 < behind_ms <= FALLS_MS:
            return
        self._boot_ms, self._boot_s = answer.boot_ms, now_s

    def _match(self, answer: Answer, waiting: list[Shot], now_s: float) -> Shot | None:
        by_arrival = self._by_arrival(waiting, now_s)
        if not math.isfinite(answer.exposed_s):
            return by_arrival
        trust, exposed_s = self._utc if answer.by_utc else self._clock, answer.exposed_s
        shot = next((s for s in reversed(waiting) if s.triggered_s - EARLY_S <= exposed_s), None)
        if shot is not None and shot is self.open:
            if exposed_s >= shot.last_sent_s - EARLY_S:
                trust.agreed = True
                trust.delay_s, trust.latency_s = exposed_s - shot.last_sent_s, now_s - exposed_s
                trust.longest_s = max(trust.longest_s, trust.delay_s)
            return shot
        chosen = self._not_open(answer, trust, shot, by_arrival, now_s)
        if by_arrival is not None and by_arrival is self.open:
            if chosen is by_arrival:
                trust.agreed = False
            elif answer.by_utc or not trust.agreed:
                by_arrival.passed_over = trust
        return chosen

    def _not_open(
        self, answer: Answer, trust: Trust, shot: Shot | None, by_arrival: Shot | None, now_s: float
    ) -> Shot | None:
        """The request of an answer whose stamp lies before the command in work; shot: the one before the stamp."""
        agreed, exposed_s = trust.agreed, answer.exposed_s
        if agreed and not answer.by_utc:
            longest_s = max(self._delay_s, trust.longest_s) + MARGIN_S
            return shot if shot is not None and exposed_s - shot.last_sent_s <= longest_s else None
        delay_s = max(self._delay_s, trust.delay_s) + MARGIN_S
        fits = shot is not None and exposed_s - shot.last_sent_s <= delay_s
        prompt_s = delay_s + trust.latency_s
        prompt = by_arrival is not None and by_arrival is self.open and now_s - by_arrival.last_sent_s <= prompt_s
        if fits and agreed is not False:
            return shot
        if not agreed:
            return by_arrival
        # Another's photograph comes as soon after its stamp as the last one; after a step of the clock none does.
        return by_arrival if prompt and now_s - exposed_s > trust.latency_s + MARGIN_S else None

    def _by_arrival(self, waiting: list[Shot], now_s: float) -> Shot | None:
        shot = self.open
        if shot is not None and shot.triggered and now_s - shot.triggered_s >= self._soonest_s:
            return shot
        acked = [s for s in waiting if s.acked]
        return next(iter(acked or waiting), None)

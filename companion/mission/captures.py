"""The photographs of an inspection: one request at a time, repeated where it fails, and what became of each."""

import math

from companion.core.enums import CaptureOutcome
from companion.core.messages import Capture, CaptureRequest
from companion.mission.inspection_route import Stop, Wanted

ATTEMPTS = 3  # of one photograph: a request, and two more
RETRY_S = 3.0  # between two requests, after a refusal
OUTAGE_S = 6.0  # of a camera that refuses; longer than the row `payload_camera` lets it be unready
ANSWER_TIMEOUT_S = 30.0  # the payload process has shorter ones for a silent camera; this is for a silent process
BETTER = (
    CaptureOutcome.LOST,
    CaptureOutcome.REFUSED,
    CaptureOutcome.BLURRED,
    CaptureOutcome.TAKEN,
)  # than those before


class Captures:
    """Requests photographs and keeps the best answer to each.

    outcomes, reasons: by the photograph's number in the plan. An answer that comes late counts.

    A refusal may come within milliseconds, and its cause (a gap in the heartbeats, a busy camera) may be over in seconds: the
    next attempt waits, so that all of them last for `OUTAGE_S`. A camera that has refused for longer is not waited for
    again at each station of a plan that goes on without it.
    """

    def __init__(self) -> None:
        self.outcomes: dict[int, CaptureOutcome] = {}
        self.reasons: dict[int, str] = {}  # why one is missing or not sharp
        self._open: Wanted | None = None
        self._due_s = math.inf  # when the open one is to be requested, for the first time or again
        self._asked_s = 0.0
        self._refused_s: float | None = None  # first request of those that were refused one after the other
        self._attempts = 0

    def count(self, *outcomes: CaptureOutcome) -> int:
        """How many photographs ended so; one that is requested again does not count as missing."""
        pending = None if self._open is None else self._open.id
        return sum(outcome in outcomes for number, outcome in self.outcomes.items() if number != pending)

    @property
    def taken(self) -> int:
        return self.count(CaptureOutcome.TAKEN, CaptureOutcome.BLURRED)

    @property
    def missing(self) -> int:
        return self.count(CaptureOutcome.REFUSED, CaptureOutcome.LOST)

    def has(self, photograph: Wanted | None) -> bool:
        """It was taken and is not requested again, or there is none to take."""
        if photograph is None:
            return True
        taken = self.outcomes.get(photograph.id) in (CaptureOutcome.TAKEN, CaptureOutcome.BLURRED)
        return taken and self.settled(photograph)

    def give_another_chance(self) -> None:
        """Photographs that were given up may be requested again, and a camera that refuses is waited for again."""
        self._open = self._refused_s = None
        for number in [n for n, o in self.outcomes.items() if o in (CaptureOutcome.REFUSED, CaptureOutcome.LOST)]:
            del self.outcomes[number]
            self.reasons.pop(number, None)

    def settled(self, photograph: Wanted) -> bool:
        """It was taken, or given up."""
        pending = self._open is not None and self._open.id == photograph.id
        return not pending and photograph.id in self.outcomes

    def step(self, stop: Stop, now_s: float) -> CaptureRequest | None:
        """The request of a stop's photograph when one is due."""
        photograph = stop.photograph
        if photograph is None or self.settled(photograph):
            return None
        if self._open is None or self._open.id != photograph.id:
            self._open, self._attempts, self._due_s = photograph, 0, now_s
        elif math.isinf(self._due_s) and now_s - self._asked_s > ANSWER_TIMEOUT_S:
            self._note(photograph.id, CaptureOutcome.LOST, f"no answer for {ANSWER_TIMEOUT_S:g} s")
        if self._open is None or now_s < self._due_s:
            return None
        self._due_s, self._asked_s = math.inf, now_s
        self._attempts += 1
        item, row, column = photograph.place
        return CaptureRequest(
            stamp_s=now_s,
            id=photograph.id,
            item=item,
            row=row,
            column=column,
            frame=stop.frame,
            pitch_rad=photograph.pitch_rad,
            distance_m=photograph.distance_m,
        )

    def take(self, capture: Capture) -> None:
        """Take an answer; one to a photograph that was not requested in this flight is dropped."""
        if capture.id in self.outcomes or (self._open is not None and self._open.id == capture.id):
            self._note(capture.id, capture.outcome, capture.reason)

    def _note(self, number: int, outcome: CaptureOutcome, reason: str) -> None:
        before = self.outcomes.get(number, CaptureOutcome.LOST)
        if BETTER.index(outcome) >= BETTER.index(before):
            self.outcomes[number], self.reasons[number] = outcome, reason
        if outcome != CaptureOutcome.REFUSED:
            self._refused_s = None
        if self._open is None or self._open.id != number:
            return
        if outcome == CaptureOutcome.REFUSED and self._refused_s is None:
            self._refused_s = self._asked_s
        if outcome == CaptureOutcome.TAKEN or self._attempts >= ATTEMPTS:
            self._open = None
        else:
            wait = self._refused_s is not None and self._asked_s - self._refused_s < OUTAGE_S
            self._due_s = self._asked_s + (RETRY_S if wait else 0.0)

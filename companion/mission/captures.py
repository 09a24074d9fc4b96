"""The photographs of an inspection: one request at a time, repeated where it fails, and what became of each."""

from companion.core.enums import CaptureOutcome
from companion.core.messages import Capture, CaptureRequest
from companion.mission.inspection_route import Stop, Wanted

ATTEMPTS = 3  # of one photograph: a request, and two more
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
    """

    def __init__(self) -> None:
        self.outcomes: dict[int, CaptureOutcome] = {}
        self.reasons: dict[int, str] = {}  # why one is missing or not sharp
        self._open: Wanted | None = None
        self._due = False  # the open one is to be requested, for the first time or again
        self._asked_s = 0.0
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
        """It was taken, or there is none to take."""
        return photograph is None or self.outcomes.get(photograph.id) in (CaptureOutcome.TAKEN, CaptureOutcome.BLURRED)

    def give_another_chance(self) -> None:
        """Photographs that were given up may be requested again."""
        self._open = None
        for number in [n for n, o in self.outcomes.items() if o in (CaptureOutcome.REFUSED, CaptureOutcome.LOST)]:
            del self.outcomes[number]
            self.reasons.pop(number, None)

    def settled(self, photograph: Wanted) -> bool:
        """It was taken, or given up."""
        return self._open is None and photograph.id in self.outcomes

    def step(self, stop: Stop, now_s: float) -> CaptureRequest | None:
        """The request of a stop's photograph when one is due."""
        photograph = stop.photograph
        if photograph is None or self.settled(photograph):
            return None
        if self._open is None or self._open.id != photograph.id:
            self._open, self._attempts, self._due = photograph, 0, True
        elif not self._due and now_s - self._asked_s > ANSWER_TIMEOUT_S:
            self._note(photograph.id, CaptureOutcome.LOST, f"no answer for {ANSWER_TIMEOUT_S:g} s")
        if self._open is None or not self._due:
            return None
        self._due, self._asked_s = False, now_s
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
        if self._open is None or self._open.id != number:
            return
        if outcome == CaptureOutcome.TAKEN or self._attempts >= ATTEMPTS:
            self._open = None
        else:
            self._due = True

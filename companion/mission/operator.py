"""Requests of a person at a view: which one the mission considers in a step, and the hold that a person asked for.

Old, invalid and superfluous requests are counted and ignored; a flood moves nothing. `companion.mission.operator_checks`
decides what a request may do; the transition table does it.
"""

import math

from companion.core.enums import OperatorAction
from companion.core.messages import TOPICS, OperatorRequest
from companion.core.text import plain

# From mild to strong; of several requests in one step the strongest is considered.
STRENGTH = (
    OperatorAction.START,
    OperatorAction.GO_ON,
    OperatorAction.HOLD,
    OperatorAction.RETURN,
    OperatorAction.LAND,
    OperatorAction.STOP_STREAMING,
)
URGENT = (OperatorAction.LAND, OperatorAction.STOP_STREAMING)  # considered whenever they come
SPACING_S = 0.5  # between two of the others, so that a flood makes no stop and go
CLOCK_S = 0.1  # a stamp may lie this far in the future
WHO_MAX = 40  # characters


class OperatorRequests:
    """Keeps the strongest request until the next step.

    holding: PAUSE lasts until "go on". considered: the request of this step, None in most. granted: the table may act
    on it. ignored: requests that were old, invalid or too many,
    since they were last reported.
    """

    def __init__(self) -> None:
        self.holding = False
        self.considered: OperatorRequest | None = None
        self.granted = False
        self.returning = False  # the return under way was asked for by a person
        self.ignored = 0
        self.report_s = -math.inf  # from when on ignored requests are reported
        self._next: OperatorRequest | None = None
        self._considered_s = -math.inf

    def take(self, request: OperatorRequest, now_s: float) -> None:
        """Keep a request for the next step, or count it as ignored."""
        age_s = now_s - request.stamp_s
        fresh = request.valid and -CLOCK_S <= age_s <= TOPICS["operator_request"].max_age_s  # False for NaN
        weaker = self._next is not None and STRENGTH.index(request.action) <= STRENGTH.index(self._next.action)
        early = request.action not in URGENT and now_s - self._considered_s < SPACING_S
        if not fresh or weaker or early:
            self.ignored += 1
            return
        self.ignored += self._next is not None
        self._next = request

    def begin_step(self, now_s: float) -> OperatorRequest | None:
        """The request of this step."""
        self.considered, self._next, self.granted = self._next, None, False
        if self.considered is not None:
            self._considered_s = now_s
        return self.considered

    def asks(self, action: OperatorAction) -> str:
        """Who asks for an action that was granted in this step; "" when no person does."""
        request = self.considered
        return who(request) if request is not None and self.granted and request.action == action else ""


def who(request: OperatorRequest) -> str:
    """The person's name in words for the log."""
    return f"by {plain(request.who)[:WHO_MAX].strip() or 'unknown'} at the view"

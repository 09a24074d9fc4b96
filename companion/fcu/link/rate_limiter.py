"""Limits rates: periodic work keeps its phase, and a report of one kind is not repeated at once."""

import math

REPEAT_PERIOD_S = 5.0  # between two reports of one kind


class RateLimiter:
    """Remembers when periodic work is due and when each kind of report was last made."""

    def __init__(self) -> None:
        self._due_s: dict[str, float] = {}
        self._reported_s: dict[str, float] = {}

    def is_due(self, work: str, period_s: float, now_s: float) -> bool:
        """True once per period; the first time at once."""
        due_s = self._due_s.get(work, -math.inf)
        if now_s < due_s - 1e-6:
            return False
        # keep the phase, unless whole periods were missed
        self._due_s[work] = due_s + period_s if now_s - due_s < period_s else now_s + period_s
        return True

    def force_due(self, work: str) -> None:
        """Make the work due at once."""
        self._due_s[work] = -math.inf

    def should_log(self, kind: str, now_s: float, once: bool = False) -> bool:
        """True when a report of this kind may be made; the report counts as made. once: never a second time."""
        last_s = self._reported_s.get(kind)
        if last_s is not None and (once or now_s - last_s < REPEAT_PERIOD_S):
            return False
        self._reported_s[kind] = now_s
        return True

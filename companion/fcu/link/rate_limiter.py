"""How often: periodic work keeps its phase, and one kind of complaint is not made again at once."""

import math

COMPLAINT_PERIOD_S = 5.0  # between two texts of one kind


class Pace:
    """When what was done last."""

    def __init__(self) -> None:
        self._due_s: dict[str, float] = {}
        self._told_s: dict[str, float] = {}

    def is_due(self, what: str, period_s: float, now_s: float) -> bool:
        """True once a period; the first time at once."""
        due_s = self._due_s.get(what, -math.inf)
        if now_s < due_s - 1e-6:
            return False
        # keep the phase, unless whole periods were missed
        self._due_s[what] = due_s + period_s if now_s - due_s < period_s else now_s + period_s
        return True

    def hurry(self, what: str) -> None:
        """Let it be due at once."""
        self._due_s[what] = -math.inf

    def may_tell(self, kind: str, now_s: float, once: bool = False) -> bool:
        """True when a complaint of this kind may be made; it counts as made."""
        last_s = self._told_s.get(kind)
        if last_s is not None and (once or now_s - last_s < COMPLAINT_PERIOD_S):
            return False
        self._told_s[kind] = now_s
        return True

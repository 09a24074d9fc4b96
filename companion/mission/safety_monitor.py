"""Evaluates the safety table (`companion.mission.monitors`) in every step.

While a row stays active it climbs its escalation of actions, and it clears only when the value has been inside the limit by
its hysteresis for `CLEAR_S`. The strongest action of all active rows is the demand on the pilot state machine.

Between two actions of one aircraft, whichever rows ask for them, lie at least `ESCALATION_MIN_S`, so that each has a chance
to help. Two kinds wait for nobody: a row that begins with "yield" (the pilot has it already) and one that begins with
"stop" (nothing can be flown any more).
"""

import math
from typing import NamedTuple

from companion.core.enums import SafetyAction
from companion.core.messages import SafetyEvent
from companion.core.vehicle import Vehicle
from companion.mission.monitors import ACTIONS, ESCALATION_MIN_S, MONITORS, Monitor
from companion.mission.plan import Plan
from companion.mission.snapshot import SafetySnapshot

CLEAR_S = 1.0  # a value must be good this long before its row clears


class Demand(NamedTuple):
    """The strongest action of all active rows."""

    action: SafetyAction
    monitor: str
    text: str


class _Memory:
    """How long one row has been beyond its limit, and how far it has climbed."""

    def __init__(self) -> None:
        self.bad_since_s: float | None = None
        self.good_since_s: float | None = None
        self.active = False
        self.level = 0
        self.level_since_s = 0.0
        self.value = 0.0
        self.detail = ""


class SafetyMonitor:
    """Evaluates the table; keeps what the rows need to remember.

    `limits`: of each row by name; `demand`: the action asked for since the last `update`, None when there is none.
    """

    def __init__(self, vehicle: Vehicle, plan: Plan, rows: tuple[Monitor, ...] = MONITORS) -> None:
        self.rows = rows
        self.severity = {row.name: row.severity for row in rows}
        self.limits = {row.name: row.limit(vehicle, plan) for row in rows}
        self.reset()

    def reset(self) -> None:
        """Forget everything; for a deliberate new start."""
        self._memory = {row.name: _Memory() for row in self.rows}
        self.demand: Demand | None = None
        self._acted_s = -math.inf  # when the action last changed

    def update(self, situation: SafetySnapshot) -> list[SafetyEvent]:
        """Evaluate all rows; returns an event for each that became active, climbed a level or cleared."""
        events = [event for row in self.rows if (event := self._evaluate(row, situation)) is not None]
        self._decide(situation.now_s)
        return events

    def _decide(self, now_s: float) -> None:
        """Take the strongest action of all active rows, if it may be taken yet."""
        asking = [(row, memory) for row in self.rows if (memory := self._memory[row.name]).active]
        asking = [(row, memory) for row, memory in asking if row.escalation[memory.level] != SafetyAction.WARN]
        if not asking:
            self.demand = None
            return
        row, memory = max(asking, key=lambda pair: ACTIONS.index(pair[0].escalation[pair[1].level]))
        action = row.escalation[memory.level]
        if self.demand is None or action != self.demand.action:
            at_once = memory.level == 0 and action in (SafetyAction.STOP_STREAMING, SafetyAction.RELINQUISH)
            if not at_once and now_s - self._acted_s < ESCALATION_MIN_S:
                return  # what was asked for last has not had its time yet
            self._acted_s = now_s
        self.demand = Demand(action, row.name, self._words(row, memory))

    def _evaluate(self, row: Monitor, s: SafetySnapshot) -> SafetyEvent | None:
        memory, limit = self._memory[row.name], self.limits[row.name]
        value = row.value(s) if s.phase in row.phases else None
        if value is None:
            self._memory[row.name] = _Memory()
            if not memory.active:
                return None
            memory.active = False
            return self._event(row, memory, s, "no longer applies")
        memory.value = value
        if row.detail is not None:
            memory.detail = row.detail(s) or memory.detail
        excess = limit - value if row.below else value - limit
        if memory.active:
            return self._while_active(row, memory, s, inside=excess <= -row.hysteresis)
        if not excess <= 0:  # written so that NaN counts as beyond the limit
            memory.bad_since_s = s.now_s if memory.bad_since_s is None else memory.bad_since_s
            if s.now_s - memory.bad_since_s >= row.after_s:
                memory.active, memory.level, memory.level_since_s = True, 0, s.now_s
                memory.good_since_s = None
                return self._event(row, memory, s)
        else:
            memory.bad_since_s = None
        return None

    def _while_active(self, row: Monitor, memory: _Memory, s: SafetySnapshot, inside: bool) -> SafetyEvent | None:
        if inside:
            memory.good_since_s = s.now_s if memory.good_since_s is None else memory.good_since_s
            if s.now_s - memory.good_since_s >= CLEAR_S:
                memory.active, memory.bad_since_s = False, None
                return self._event(row, memory, s)
            return None  # getting better: no reason to climb
        memory.good_since_s = None
        if memory.level + 1 < len(row.escalation) and s.now_s - memory.level_since_s >= max(
            row.escalation_s, ESCALATION_MIN_S
        ):
            memory.level, memory.level_since_s = memory.level + 1, s.now_s
            return self._event(row, memory, s)
        return None

    def _words(self, row: Monitor, memory: _Memory) -> str:
        text = f"{row.text}: {memory.detail}" if memory.detail else row.text
        if not row.unit:
            return text
        return f"{text} ({memory.value:.3g} {row.unit}, limit {self.limits[row.name]:.3g})"

    def _event(self, row: Monitor, memory: _Memory, s: SafetySnapshot, note: str = "cleared") -> SafetyEvent:
        text = self._words(row, memory) if memory.active else f"{row.text}: {note}"
        return SafetyEvent(
            stamp_s=s.now_s,
            monitor=row.name,
            active=memory.active,
            value=float(memory.value),
            limit=float(self.limits[row.name]),
            action=row.escalation[memory.level] if memory.active else SafetyAction.NONE,
            text=text,
        )

"""Evaluates the safety table (`companion.mission.monitors`) in every step.

A monitor that stays active escalates through its actions. It clears when its value has been inside the limit by the
hysteresis for `CLEAR_S`. The strongest action of all active monitors is the demand on the mission.

At least `ESCALATION_MIN_S` lie between two actions of one aircraft, whichever monitors demand them, so that each action
has time to help. Some monitors do not wait: one whose first action is "relinquish" (the pilot has the aircraft
already), one whose first action is "stop streaming" (this stack can fly nothing any more), and one that doubts this
stack's own estimate and whose first action is "land" (a hold that another monitor began would go on by that estimate), one
that lands at once because nothing shows a position any more, or because no tilt is left against the wind, and one whose
hold stops a return.

A retreat or return that was demanded is not interrupted by a milder action. Its own monitors are no longer evaluated
while it lasts, so they would demand it again as soon as a hold had begun, and the aircraft would stop and go in turn. A
monitor that begins with "hold" lands the aircraft then, if its cause lasts. Only one that says that something is ahead on
the way home stops a return (`Monitor.halts_return`): while it demands to hold, nothing else demands to return.

A monitor whose evaluation fails leaves the others alone. It warns once, and is counted for the process's health: a fault of
the program is no reason to end a flight that the other monitors watch. One that was active already goes on as if its value
were still beyond the limit.
"""

import math
from typing import NamedTuple

from companion.core.enums import Phase, SafetyAction
from companion.core.messages import SafetyEvent
from companion.core.text import plain
from companion.core.vehicle import Vehicle
from companion.mission.monitors import ACTIONS, ESCALATION_MIN_S, Monitor, may_sink_by, monitors_for
from companion.mission.plan import Plan
from companion.mission.snapshot import SafetySnapshot

CLEAR_S = 1.0  # a value must be inside the limit this long before its monitor clears

# Phases that execute a demand, and their words while a milder action is demanded.
EXECUTED = {Phase.RETREAT: SafetyAction.RETREAT, Phase.RETURN: SafetyAction.RETURN, Phase.LAND: SafetyAction.LAND}
CONTINUES = {Phase.RETREAT: "backing away continues", Phase.RETURN: "return continues", Phase.LAND: "landing continues"}
# What the stack does at each level of an escalation, in words for the crew.
ACTION_TEXTS = {
    SafetyAction.WARN: "mission continues",
    SafetyAction.HOLD: "holding position",
    SafetyAction.RETREAT: "backing away",
    SafetyAction.RETURN: "returning to land",
    SafetyAction.LAND: "landing",
    SafetyAction.STOP_STREAMING: "setpoints stopped, PX4 has control, take over by RC",
    SafetyAction.RELINQUISH: "setpoints stopped",
}
STOP_WITHOUT_POSITION = "setpoints stopped, PX4 keeps the height only and the wind moves the aircraft: fly it at once"
NEXT_TEXTS = {
    SafetyAction.RETREAT: "backing away if it lasts",
    SafetyAction.RETURN: "returning if it lasts",
    SafetyAction.LAND: "landing if it lasts",
    SafetyAction.STOP_STREAMING: "PX4 takes over if it lasts",
}


def _apart(value: float, limit: float) -> tuple[str, str]:
    """Both numbers with three digits, or with more where they would read the same."""
    shown = [(f"{value:.{digits}g}", f"{limit:.{digits}g}") for digits in (3, 4, 5)]
    return next((both for both in shown if both[0] != both[1]), shown[0])


def _px4_lands(s: SafetySnapshot) -> bool:
    """The landing is under way, by PX4."""
    return s.phase == Phase.LAND and s.status is not None and not s.in_offboard


def _does_not_wait(monitor: Monitor, first: SafetyAction) -> bool:
    """The first action of a monitor is taken at once, whatever action was taken last."""
    return (
        first in (SafetyAction.STOP_STREAMING, SafetyAction.RELINQUISH)
        or ((monitor.doubts or monitor.at_once) and first == SafetyAction.LAND)
        or _halts_return(monitor, first)
    )


def _halts_return(monitor: Monitor, action: SafetyAction) -> bool:
    return monitor.halts_return and action == SafetyAction.HOLD


class Demand(NamedTuple):
    """The strongest action of all active monitors."""

    action: SafetyAction
    monitor: str
    text: str


class _MonitorState:
    """How long the value of one monitor has been beyond its limit, and the level of the escalation."""

    def __init__(self) -> None:
        self.bad_since_s: float | None = None
        self.good_since_s: float | None = None
        self.active = False
        self.level = 0
        self.level_since_s = 0.0
        self.value = 0.0
        self.detail = ""


class _Change(NamedTuple):
    """A monitor became active, escalated or cleared; note: why it is no longer active."""

    monitor: Monitor
    state: _MonitorState
    note: str = "cleared"


class SafetyMonitor:
    """Evaluates the table; keeps the state of its monitors.

    `limits`: of each monitor by name; `demand`: the action demanded since the last `update`, None when there is none;
    `errors` and `last_error`: evaluations that failed, since the start of the process.
    """

    def __init__(self, vehicle: Vehicle, plan: Plan, monitors: tuple[Monitor, ...] = ()) -> None:
        """monitors: other ones than those of the plan."""
        self.monitors = monitors = monitors or monitors_for(plan)
        self.severity = {monitor.name: monitor.severity for monitor in monitors}
        self.limits = {monitor.name: monitor.limit(vehicle, plan) for monitor in monitors}
        self.errors, self.last_error = 0, ""
        self._watched = {phase: tuple(m for m in monitors if phase in m.phases) for phase in Phase}
        self.reset()

    def reset(self) -> None:
        """Forget everything; for a deliberate new start."""
        self._states = {monitor.name: _MonitorState() for monitor in self.monitors}
        self.demand: Demand | None = None
        self._phase: Phase | None = None  # of the last evaluation
        self._acted_s = -math.inf  # when the action last changed
        self._leaving = False  # a retreat or return was demanded; the mission proper has ended
        self._failed_s: dict[str, float] = {}  # by monitor: when its evaluation failed last

    def active(self, name: str) -> bool:
        """A monitor is active."""
        return self._states[name].active

    def found(self) -> dict[str, str]:
        """What the active monitors have found, with value and limit, by name; without those that are about to clear."""
        states = ((monitor, self._states[monitor.name]) for monitor in self.monitors)
        holding = ((m, state) for m, state in states if state.active and state.good_since_s is None)
        return {monitor.name: self._text(monitor, state) for monitor, state in holding}

    def may_sink(self, seen: bool) -> bool:
        """No active monitor demands a landing that must not be flown by this stack's estimate (`may_sink_by`)."""
        return all(may_sink_by(monitor, seen) for monitor in self._landing())

    def _landing(self) -> list[Monitor]:
        """The active monitors that are at a landing, whichever of them the demand names."""
        states = ((monitor, self._states[monitor.name]) for monitor in self.monitors)
        return [m for m, state in states if state.active and m.escalation[state.level] == SafetyAction.LAND]

    def estimate_doubted(self) -> bool:
        """An active monitor that doubts this stack's own estimate demands a landing."""
        return any(monitor.doubts for monitor in self._landing())

    def update(self, snapshot: SafetySnapshot) -> list[SafetyEvent]:
        """Evaluate all monitors; returns an event for each that became active, escalated or cleared."""
        # The monitors that a phase does not watch end with its first evaluation; in the next ones they have no value.
        monitors = self._watched[snapshot.phase] if snapshot.phase == self._phase else self.monitors
        self._phase = snapshot.phase
        changes, failures = [], []
        for monitor in monitors:
            try:
                change = self._evaluate(monitor, snapshot)
            except Exception as error:  # in flight nothing raises, and the other monitors watch on
                failures.append((monitor, self._note_error(monitor, error)))
                change = self._unknown(monitor, snapshot)
            if change is not None:
                changes.append(change)
        self._decide(snapshot)
        events = [self._event(change, snapshot) for change in changes]
        return events + self._failure_events(failures, snapshot) if failures or self._failed_s else events

    def _note_error(self, monitor: Monitor, error: Exception) -> str:
        problem = plain(f"{type(error).__name__}: {error}", 120)
        self.errors, self.last_error = self.errors + 1, f"monitor {monitor.name}: {problem}"
        return problem

    def _unknown(self, monitor: Monitor, s: SafetySnapshot) -> _Change | None:
        """A monitor that cannot be evaluated: an active one stays so, and escalates."""
        state = self._states[monitor.name]
        return self._while_active(monitor, state, s, inside=False) if state.active else None

    def _failure_events(self, failures: list[tuple[Monitor, str]], s: SafetySnapshot) -> list[SafetyEvent]:
        """One warning when the evaluation of a monitor begins to fail, and a line when it works again."""
        events = []
        for monitor, problem in failures:
            if monitor.name not in self._failed_s:
                active = self._states[monitor.name].active
                response = "it counts as beyond its limit" if active else "the mission continues without it"
                text = f"monitor {monitor.name} cannot be evaluated ({problem}); {response}; be ready to take over"
                events.append(self._failure_event(monitor, s, text, SafetyAction.WARN))
            self._failed_s[monitor.name] = s.now_s
        for monitor in self.monitors:
            if s.now_s - self._failed_s.get(monitor.name, math.inf) >= CLEAR_S:
                del self._failed_s[monitor.name]
                note = "is evaluated again" if s.phase in monitor.phases else "is no longer watched"
                events.append(self._failure_event(monitor, s, f"monitor {monitor.name} {note}", SafetyAction.NONE))
        return events

    def _failure_event(self, monitor: Monitor, s: SafetySnapshot, text: str, action: SafetyAction) -> SafetyEvent:
        """action: of a monitor that is not active; an active one keeps its own."""
        state = self._states[monitor.name]
        return SafetyEvent(
            stamp_s=s.now_s,
            monitor=monitor.name,
            active=state.active or action != SafetyAction.NONE,
            value=float(state.value),
            limit=float(self.limits[monitor.name]),
            action=monitor.escalation[state.level] if state.active else action,
            text=text[:1].upper() + text[1:],
        )

    def _under_way(self, phase: Phase) -> int:
        """Rank of the action that the mission executes on demand; milder ones do not interrupt it."""
        executed = EXECUTED.get(phase) if phase == Phase.LAND or self._leaving else None
        return ACTIONS.index(executed) if executed is not None else -1

    def _decide(self, s: SafetySnapshot) -> None:
        """Take the strongest action of all active monitors, if it may be taken yet."""
        now_s, least = s.now_s, -1 if s.phase == Phase.LAND else self._under_way(s.phase)
        demanding = [(m, state) for m in self.monitors if (state := self._states[m.name]).active]
        demanding = [(m, state) for m, state in demanding if m.escalation[state.level] != SafetyAction.WARN]
        if any(_halts_return(m, m.escalation[state.level]) for m, state in demanding):
            least = -1
            demanding = [(m, state) for m, state in demanding if m.escalation[state.level] != SafetyAction.RETURN]
        demanding = [(m, state) for m, state in demanding if ACTIONS.index(m.escalation[state.level]) >= least]
        if not demanding:
            self.demand = None
            return
        monitor, state = max(demanding, key=lambda pair: ACTIONS.index(pair[0].escalation[pair[1].level]))
        action = monitor.escalation[state.level]
        if self.demand is None or action != self.demand.action:
            beginning = (m for m, its in demanding if its.level == 0 and m.escalation[0] == action)
            at_once = any(_does_not_wait(m, action) for m in beginning)
            if not at_once and now_s - self._acted_s < ESCALATION_MIN_S:
                return  # the last action has not had its time yet
            self._acted_s = now_s
            self._leaving |= action in (SafetyAction.RETREAT, SafetyAction.RETURN)
        self.demand = Demand(action, monitor.name, self._text(monitor, state))

    def _evaluate(self, monitor: Monitor, s: SafetySnapshot) -> _Change | None:
        state, limit = self._states[monitor.name], self.limits[monitor.name]
        value = monitor.value(s) if s.phase in monitor.phases else None
        if value is None:
            self._states[monitor.name] = _MonitorState()
            if not state.active:
                return None
            state.active = False
            return _Change(monitor, state, "no longer watched")  # which does not say that it is over
        excess = limit - value if monitor.below else value - limit
        state.value = value
        if monitor.detail is not None:
            self._detail(monitor, state, s)
        if state.active:
            return self._while_active(monitor, state, s, inside=excess <= -monitor.hysteresis)
        if not excess <= 0:  # written so that NaN counts as beyond the limit
            state.bad_since_s = s.now_s if state.bad_since_s is None else state.bad_since_s
            if s.now_s - state.bad_since_s >= monitor.after_s:
                state.active, state.level, state.level_since_s = True, 0, s.now_s
                state.good_since_s = None
                return _Change(monitor, state)
        else:
            state.bad_since_s = None
        return None

    def _detail(self, monitor: Monitor, state: _MonitorState, s: SafetySnapshot) -> None:
        """Which of several, for the message; without it the monitor is evaluated all the same."""
        try:
            state.detail = (monitor.detail(s) if monitor.detail is not None else "") or state.detail
        except Exception as error:
            self._note_error(monitor, error)

    def _while_active(self, monitor: Monitor, state: _MonitorState, s: SafetySnapshot, inside: bool) -> _Change | None:
        now_s = s.now_s
        if inside:
            state.good_since_s = now_s if state.good_since_s is None else state.good_since_s
            if now_s - state.good_since_s >= CLEAR_S:
                state.active, state.bad_since_s = False, None
                return _Change(monitor, state)
            return None  # the value is improving: no escalation
        state.good_since_s = None
        wait_s = max(monitor.escalation_s, ESCALATION_MIN_S)
        following = monitor.escalation[state.level + 1 : state.level + 2]
        if _px4_lands(s) and following == (SafetyAction.STOP_STREAMING,):
            return None  # there is no stream to end
        if s.sinks and may_sink_by(monitor, s.bundle_seen):
            state.level_since_s = now_s  # PX4 has not been asked yet; without a position it could do less
            return None
        if following and now_s - state.level_since_s >= wait_s:
            state.level, state.level_since_s = state.level + 1, now_s
            return _Change(monitor, state)
        return None

    def _text(self, monitor: Monitor, state: _MonitorState) -> str:
        """What happened, with value and limit."""
        value, limit = _apart(state.value, self.limits[monitor.name])
        numbers = f"{value} {monitor.unit}, limit {limit}" if monitor.unit else ""
        inside = ", ".join(filter(None, (state.detail, numbers)))
        return f"{monitor.text} ({inside})" if inside else monitor.text

    def _response(self, monitor: Monitor, state: _MonitorState, s: SafetySnapshot) -> str:
        """What the stack does, what follows if it does not help, and what the crew can do."""
        action, following = monitor.escalation[state.level], monitor.escalation[state.level + 1 : state.level + 2]
        under_way = -1 if _halts_return(monitor, action) else self._under_way(s.phase)
        stronger = self.demand is not None and ACTIONS.index(self.demand.action) > ACTIONS.index(action)
        words = []
        if ACTIONS.index(action) <= under_way:
            words.append(CONTINUES[s.phase])
        elif action == SafetyAction.STOP_STREAMING and s.px4_without_position:
            words.append(STOP_WITHOUT_POSITION)
        elif not stronger or action == SafetyAction.WARN:
            words.append(ACTION_TEXTS[action])
        if not _px4_lands(s):
            words += [NEXT_TEXTS[a] for a in following if ACTIONS.index(a) > under_way and not stronger]
        advice = monitor.advice if action != SafetyAction.STOP_STREAMING else ""
        return "; ".join(filter(None, (", ".join(words), advice)))

    def _event(self, change: _Change, s: SafetySnapshot) -> SafetyEvent:
        monitor, state, note = change
        if state.active:
            text = "; ".join(filter(None, (self._text(monitor, state), self._response(monitor, state, s))))
        else:
            text = f"{monitor.text}: {note}"
        return SafetyEvent(
            stamp_s=s.now_s,
            monitor=monitor.name,
            active=state.active,
            value=float(state.value),
            limit=float(self.limits[monitor.name]),
            action=monitor.escalation[state.level] if state.active else SafetyAction.NONE,
            text=text[:1].upper() + text[1:],
        )

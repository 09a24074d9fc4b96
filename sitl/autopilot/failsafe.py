"""The failsafe framework, after PX4's: conditions ask for actions, the worst wins, the pilot may take back.

An action that came with a condition lives as long as the condition, or, for lost links, until the mode is changed or
the aircraft disarmed. Before returning or landing the aircraft holds for COM_FAIL_ACT_T, so that the pilot can react.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

# Actions in order of severity.
NONE, WARN, POSCTL, ALTCTL, STAB, HOLD, RTL, LAND, DESCEND, DISARM, TERMINATE = range(11)
ACTION_MODE = {POSCTL: "POSCTL", ALTCTL: "ALTCTL", STAB: "STABILIZED", HOLD: "AUTO_LOITER", RTL: "AUTO_RTL"}
ACTION_MODE |= {LAND: "AUTO_LAND", DESCEND: "DESCEND", TERMINATE: "TERMINATION"}
FALL_THROUGH = (POSCTL, ALTCTL, STAB, HOLD, RTL, LAND, DESCEND)  # when one cannot run, the next
TAKEOVER = frozenset((HOLD, RTL, LAND, DESCEND))  # the pilot may take these back
DELAYED = frozenset((WARN, POSCTL, ALTCTL, STAB, RTL, LAND, DESCEND))  # these wait in Hold while a delay runs
LINK_LOSS_ACTION = {0: NONE, 1: HOLD, 2: RTL, 3: LAND, 5: TERMINATE, 6: DISARM}
OFFBOARD_LOSS_ACTION = {0: POSCTL, 1: ALTCTL, 2: STAB, 3: RTL, 4: LAND, 5: HOLD, 6: TERMINATE, 7: DISARM}
BATTERY_ACTION = {0: (WARN, WARN), 1: (RTL, RTL), 2: (LAND, LAND), 3: (RTL, LAND)}  # critical, emergency

ALWAYS, SWITCH, NEVER = range(3)  # how the pilot may take over: sticks or switch, mode switch only, not at all
DELAY_MIN_S = 0.1  # a shorter COM_FAIL_ACT_T is none


@dataclass
class Action:
    """What one condition asks for.

    takeover: ALWAYS, SWITCH, NEVER, or None for "by COM_FAIL_ACT_T": with a delay the pilot may always take over,
    without one only by changing the mode.
    """

    action: int
    cause: str
    takeover: int | None = ALWAYS
    until_mode_change: bool = False
    failing: bool = True


class Decision(NamedTuple):
    """What to do now; ``delayed``: this is the Hold before something worse."""

    action: int
    delayed: bool
    cause: str
    pilot_took_over: bool  # by sticks at this update: the intended mode becomes position


class Failsafes:
    """Keeps the active actions and decides; `update` runs with every commander update."""

    def __init__(self, delay_s: float) -> None:
        self._active: dict[str, Action] = {}
        self.selected = NONE
        self.takeover = False
        self.delay_s = 0.0  # left of the Hold before an action
        self._start_delay_s = delay_s

    def disarmed_or_armed(self) -> None:
        """Forget what lasts until then."""
        self._active = {k: a for k, a in self._active.items() if not a.until_mode_change}
        self.takeover = False

    def update(
        self,
        dt: float,
        limit_s: float,
        armed: bool,
        intended: str,
        switched: bool,
        sticks: bool,
        wanted: dict[str, Action],
        can_run: Callable[[str], bool],
        fallback: Callable[[str], int],
    ) -> Decision:
        """Decide anew.

        limit_s: COM_FAIL_ACT_T; switched: a mode was asked for; sticks: the pilot moves them; wanted: conditions that
        hold now; can_run: whether a mode has what it needs; fallback: action for an intended mode that has not.
        """
        if switched or self.takeover:
            self._active = {k: a for k, a in self._active.items() if a.failing or not a.until_mode_change}
        self.delay_s = max(0.0, self.delay_s - dt)
        self._collect(wanted, limit_s, armed)
        if self.selected > HOLD or self.takeover or not can_run("AUTO_LOITER"):
            self.delay_s = 0.0
        decision = self._select(armed, intended, switched, sticks, can_run, fallback)
        # a condition that comes and goes uses its delay up faster than it gets it back
        self._start_delay_s = min(max(self._start_delay_s + (-dt if decision.delayed else dt / 4), 0.0), limit_s)
        self.selected = decision.action
        return decision

    def _collect(self, wanted: dict[str, Action], limit_s: float, armed: bool) -> None:
        for name, new in wanted.items():
            old = self._active.get(name)
            if old is not None:
                old.action, old.failing, old.cause = new.action, True, new.cause
                continue
            if new.takeover is None:
                if limit_s > DELAY_MIN_S and new.action > WARN and self.delay_s == 0.0 and armed:
                    self.delay_s = self._start_delay_s
                new.takeover = ALWAYS if limit_s > DELAY_MIN_S else SWITCH
            if new.action >= HOLD:
                self.takeover = False
            self._active[name] = new
        for name in [k for k in self._active if k not in wanted]:
            if self._active[name].until_mode_change:
                self._active[name].failing = False
            else:
                del self._active[name]

    def _select(self, armed, intended, switched, sticks, can_run, fallback) -> Decision:
        if not armed:
            return Decision(NONE, False, "", False)
        action, cause, allow = NONE, "", ALWAYS
        for a in self._active.values():
            allow = max(allow, a.takeover)
            if a.action > action:
                action, cause = a.action, a.cause
        delayed, by_sticks = NONE, False
        if self.delay_s > 0 and not self.takeover and allow != NEVER and action in DELAYED:
            delayed, action, allow = action, HOLD, SWITCH
        by_switch = switched and self.selected > WARN
        asked = self.takeover or by_switch or (sticks and allow == ALWAYS)
        if action in TAKEOVER and asked and allow != NEVER:
            by_sticks = sticks and not self.takeover and not by_switch
            self.takeover, delayed = True, NONE
            action = max(WARN, fallback("POSCTL" if by_sticks else intended))
        elif action not in TAKEOVER:
            self.takeover = False
        if action in FALL_THROUGH:
            rest = FALL_THROUGH[FALL_THROUGH.index(action) :]
            action = next((step for step in rest if can_run(ACTION_MODE[step])), TERMINATE)
        # already landing or returning: a return would begin an earlier part of the same thing again
        if intended in ("AUTO_LAND", "AUTO_RTL") and RTL in (action, delayed) and can_run(intended):
            action, delayed = WARN, NONE
        return Decision(action, delayed != NONE, cause, by_sticks)

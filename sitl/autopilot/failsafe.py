"""PX4's failsafe framework: conditions request actions, the most severe one is taken, the pilot may take over.

An action lasts as long as its condition, or, for lost links, until the mode is changed or the aircraft disarmed.
Before a return or a landing the aircraft holds for COM_FAIL_ACT_T, so that the pilot can react.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from companion.core.enums import FcuMode
from sitl.autopilot.modes import DESCEND, FlightMode


class FailsafeAction(IntEnum):
    """The actions in order of severity."""

    NONE = 0
    WARN = 1
    POSCTL = 2
    ALTCTL = 3
    STABILIZED = 4
    HOLD = 5
    RTL = 6
    LAND = 7
    DESCEND = 8
    DISARM = 9
    TERMINATE = 10


class Takeover(IntEnum):
    """How the pilot may take over from an action, from easy to impossible."""

    ALWAYS = 0  # by sticks or by the mode switch
    SWITCH = 1  # by the mode switch only
    NEVER = 2


ACTION_MODE: dict[FailsafeAction, FlightMode] = {
    FailsafeAction.POSCTL: FcuMode.POSCTL,
    FailsafeAction.ALTCTL: FcuMode.ALTCTL,
    FailsafeAction.STABILIZED: FcuMode.STABILIZED,
    FailsafeAction.HOLD: FcuMode.AUTO_LOITER,
    FailsafeAction.RTL: FcuMode.AUTO_RTL,
    FailsafeAction.LAND: FcuMode.AUTO_LAND,
    FailsafeAction.DESCEND: DESCEND,
    FailsafeAction.TERMINATE: FcuMode.TERMINATION,
}
_A = FailsafeAction
# An action whose mode cannot run is replaced by the next one.
FALL_THROUGH = (_A.POSCTL, _A.ALTCTL, _A.STABILIZED, _A.HOLD, _A.RTL, _A.LAND, _A.DESCEND)
TAKEOVER_ACTIONS = frozenset((_A.HOLD, _A.RTL, _A.LAND, _A.DESCEND))  # the pilot may take over from these
# While a delay runs, the aircraft holds in place of these.
DELAYED_ACTIONS = frozenset((_A.WARN, _A.POSCTL, _A.ALTCTL, _A.STABILIZED, _A.RTL, _A.LAND, _A.DESCEND))
LINK_LOSS_ACTION = {0: _A.NONE, 1: _A.HOLD, 2: _A.RTL, 3: _A.LAND, 5: _A.TERMINATE, 6: _A.DISARM}  # NAV_RCL_ACT
OFFBOARD_LOSS_ACTION = {  # COM_OBL_RC_ACT
    0: _A.POSCTL,
    1: _A.ALTCTL,
    2: _A.STABILIZED,
    3: _A.RTL,
    4: _A.LAND,
    5: _A.HOLD,
    6: _A.TERMINATE,
    7: _A.DISARM,
}
BATTERY_ACTION = {  # COM_LOW_BAT_ACT: (critical, emergency)
    0: (_A.WARN, _A.WARN),
    1: (_A.RTL, _A.RTL),
    2: (_A.LAND, _A.LAND),
    3: (_A.RTL, _A.LAND),
}

DELAY_MIN_S = 0.1  # a shorter COM_FAIL_ACT_T counts as no delay


class FailsafeRequest(NamedTuple):
    """The action that one condition requests.

    takeover: None: from COM_FAIL_ACT_T: with a delay the pilot may always take over, without one only by changing the
    mode. until_mode_change: the action outlasts its condition.
    """

    action: FailsafeAction
    cause: str
    takeover: Takeover | None = Takeover.ALWAYS
    until_mode_change: bool = False


@dataclass
class _ActiveFailsafe:
    """A request that was made and is not over; ``failing``: its condition still holds."""

    action: FailsafeAction
    cause: str
    takeover: Takeover
    until_mode_change: bool
    failing: bool = True


class Decision(NamedTuple):
    """The action to take now; ``delayed``: this is the Hold before a more severe action."""

    action: FailsafeAction
    delayed: bool
    cause: str
    pilot_took_over: bool  # by sticks at this update: the intended mode becomes position


class Failsafes:
    """Keeps the active failsafes and decides; `update` runs with every commander update."""

    def __init__(self, delay_s: float) -> None:
        self._active: dict[str, _ActiveFailsafe] = {}
        self.selected = FailsafeAction.NONE
        self.takeover = False
        self.delay_s = 0.0  # remaining time of the Hold before an action
        self._start_delay_s = delay_s

    def disarmed_or_armed(self) -> None:
        """Forget the actions that last until then."""
        self._active = {k: a for k, a in self._active.items() if not a.until_mode_change}
        self.takeover = False

    def update(
        self,
        dt: float,
        limit_s: float,
        armed: bool,
        intended: FlightMode,
        switched: bool,
        sticks: bool,
        requests: dict[str, FailsafeRequest],
        can_run: Callable[[FlightMode], bool],
        fallback: Callable[[FlightMode], FailsafeAction],
    ) -> Decision:
        """Decide from the conditions of this moment.

        limit_s: COM_FAIL_ACT_T; switched: a mode was requested; sticks: the pilot moves them; requests: of the
        conditions that hold now, by name; can_run: whether the requirements of a mode are met; fallback: action for an
        intended mode whose requirements are not met.
        """
        if switched or self.takeover:
            self._active = {k: a for k, a in self._active.items() if a.failing or not a.until_mode_change}
        self.delay_s = max(0.0, self.delay_s - dt)
        self._collect(requests, limit_s, armed)
        if self.selected > FailsafeAction.HOLD or self.takeover or not can_run(FcuMode.AUTO_LOITER):
            self.delay_s = 0.0
        decision = self._select(armed, intended, switched, sticks, can_run, fallback)
        # the delay of a condition that comes and goes is used up faster than it grows again
        self._start_delay_s = min(max(self._start_delay_s + (-dt if decision.delayed else dt / 4), 0.0), limit_s)
        self.selected = decision.action
        return decision

    def _collect(self, requests: dict[str, FailsafeRequest], limit_s: float, armed: bool) -> None:
        for name, new in requests.items():
            old = self._active.get(name)
            if old is not None:
                old.action, old.failing, old.cause = new.action, True, new.cause
                continue
            takeover = new.takeover
            if takeover is None:
                if limit_s > DELAY_MIN_S and new.action > FailsafeAction.WARN and self.delay_s == 0.0 and armed:
                    self.delay_s = self._start_delay_s
                takeover = Takeover.ALWAYS if limit_s > DELAY_MIN_S else Takeover.SWITCH
            if new.action >= FailsafeAction.HOLD:
                self.takeover = False
            self._active[name] = _ActiveFailsafe(new.action, new.cause, takeover, new.until_mode_change)
        for name in [k for k in self._active if k not in requests]:
            if self._active[name].until_mode_change:
                self._active[name].failing = False
            else:
                del self._active[name]

    def _select(
        self,
        armed: bool,
        intended: FlightMode,
        switched: bool,
        sticks: bool,
        can_run: Callable[[FlightMode], bool],
        fallback: Callable[[FlightMode], FailsafeAction],
    ) -> Decision:
        none, warn = FailsafeAction.NONE, FailsafeAction.WARN
        if not armed:
            return Decision(none, False, "", False)
        action, cause, allow = none, "", Takeover.ALWAYS
        for active in self._active.values():
            allow = max(allow, active.takeover)
            if active.action > action:
                action, cause = active.action, active.cause
        delayed, by_sticks = none, False
        if self.delay_s > 0 and not self.takeover and allow != Takeover.NEVER and action in DELAYED_ACTIONS:
            delayed, action, allow = action, FailsafeAction.HOLD, Takeover.SWITCH
        by_switch = switched and self.selected > warn
        requested = self.takeover or by_switch or (sticks and allow == Takeover.ALWAYS)
        if action in TAKEOVER_ACTIONS and requested and allow != Takeover.NEVER:
            by_sticks = sticks and not self.takeover and not by_switch
            self.takeover, delayed = True, none
            action = max(warn, fallback(FcuMode.POSCTL if by_sticks else intended))
        elif action not in TAKEOVER_ACTIONS:
            self.takeover = False
        if action in FALL_THROUGH:
            rest = FALL_THROUGH[FALL_THROUGH.index(action) :]
            action = next((step for step in rest if can_run(ACTION_MODE[step])), FailsafeAction.TERMINATE)
        # already landing or returning: a return would begin an earlier part of the same thing again
        landing = intended in (FcuMode.AUTO_LAND, FcuMode.AUTO_RTL)
        if landing and FailsafeAction.RTL in (action, delayed) and can_run(intended):
            action, delayed = warn, none
        return Decision(action, delayed != none, cause, by_sticks)

"""THE safety table: one row per abnormal event, and the monitor that evaluates it.

A row says what is watched, in which phases, the limit (from the vehicle file or the plan), for how long it must be
beyond the limit, what is done and what the ground station reads. While a row stays active it climbs its ladder of
actions, at least `RUNG_MIN_S` apart, and a row clears only when the value has been inside the limit by its
hysteresis for `CLEAR_S`. The strongest action of all active rows is the demand on the pilot state machine.

Actions, from mild to strong: hold (stay where the aircraft is), retreat (back away from the structure), return
(fly home and land), land (PX4 lands on the spot), stop (stop streaming; PX4's own failsafe acts), yield (somebody
else is in charge: stop streaming, ask for nothing any more).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from companion.messages import ControlStatus, FcuStatus, SafetyEvent, State, Vec3
from companion.mission import phases as ph
from companion.mission.plan import Plan, outside_m
from companion.vehicle import Vehicle

RUNG_MIN_S = 2.0  # least time between two actions of one row, so that each has a chance to help
CLEAR_S = 1.0  # a value must be good this long before its row clears
LINK_LOST_S = 1.0  # silence of the flight controller; its status comes at 10 Hz
RC_LOST_S = 1.0  # PX4's own RC loss time is of the same order
SETPOINTS_LOST_S = 0.5  # PX4 leaves offboard 1 s after the last setpoint (COM_OF_LOSS_T)

ACTIONS = ("hold", "retreat", "return", "land", "stop", "yield")


@dataclass
class Situation:
    """What the rows look at; made anew by the pilot in every step."""

    now_s: float
    phase: str
    at_bundle: bool  # flying relative to the bundle, or paused while doing so
    plan: Plan
    status: FcuStatus | None  # the newest, whatever its age
    status_age_s: float  # of the newest that said it was connected
    state: State | None  # the newest valid one, whatever its age
    state_age_s: float
    control: ControlStatus | None  # only while young enough to be trusted
    setpoints_age_s: float  # since the controller last said it was sending
    fallback_time_s: float  # how long the controller has been on its fallback
    home_W: Vec3 | None  # the take-off point in the estimator's world
    resets: int  # of the estimator since the take-off point was taken
    mode_left: bool  # the mode is neither the one asked for nor the one before
    rc_expected: bool  # a transmitter was there at the start
    rc_age_s: float  # since it was last there
    switched_off: bool  # the mission switch was turned off

    def from_home(self) -> Vec3 | None:
        """The aircraft relative to the take-off point [m]."""
        if self.state is None or self.home_W is None:
            return None
        return tuple(a - b for a, b in zip(self.state.p_W, self.home_W, strict=True))


class Row(NamedTuple):
    """One abnormal event."""

    name: str
    value: Callable[[Situation], float | None]  # None: cannot be said, the row rests
    limit: Callable[[Vehicle, Plan], float]
    below: bool  # the event is a value below the limit (else above)
    hysteresis: float  # how far inside the limit a value must come back, in its unit
    after_s: float  # how long the limit must be exceeded
    ladder: tuple[str, ...]  # first action, then what follows while the row stays active
    rung_s: float  # time between two rungs
    phases: tuple[str, ...]
    severity: int  # MAV_SEVERITY of the message: 2 critical, 4 warning, 6 information
    text: str
    unit: str


def _of_state(name: str, at_bundle: bool) -> Callable[[Situation], float | None]:
    def value(s: Situation) -> float | None:
        return getattr(s.state, name) if s.state is not None and s.at_bundle == at_bundle else None

    return value


def _marker_age(s: Situation) -> float | None:
    if s.state is None or not s.at_bundle:
        return None
    return math.inf if s.state.bundle != s.plan.bundle else s.state.marker_age_s + s.state_age_s


def _control_error(s: Situation) -> float | None:
    return s.control.position_error_m if s.control is not None and s.control.active != "idle" else None


def _voltage(s: Situation) -> float | None:
    voltage_v = s.status.battery_voltage_v if s.status is not None else math.nan
    return voltage_v if voltage_v > 0 else None  # 0 and NaN: not measured


def _outside_fence(s: Situation) -> float | None:
    p = s.from_home()
    return None if p is None else outside_m(p, s.plan.limits)


def _height(s: Situation) -> float | None:
    p = s.from_home()
    return None if p is None else p[2]


def _distance(s: Situation) -> float | None:
    p = s.from_home()
    return None if p is None else math.hypot(p[0], p[1])


def _ours(value: Callable[[Situation], float | None]) -> Callable[[Situation], float | None]:
    """The value until PX4 has taken over the landing; from then on its estimate counts, not this stack's."""

    def ours(s: Situation) -> float | None:
        # Disarmed counts too: PX4 then shows the mode it had before the landing, OFFBOARD, again.
        flown_by_us = s.status is not None and s.status.armed and s.status.mode == "OFFBOARD"
        taken_over = s.phase == ph.LAND and not flown_by_us
        return None if taken_over else value(s)

    return ours


OURS = (*ph.CONTROLLING, ph.LAND)  # together with `_ours`
IN_AIR = (ph.TAKEOFF, ph.ENTER_OFFBOARD, *ph.CONTROLLING)
BEFORE_RETURN = (*ph.WORKING, ph.PAUSE)
NEAR = (*ph.AT_BUNDLE, *ph.ON_TRAJECTORY, ph.PAUSE)  # the rows of the bundle rest while nothing is flown relative to it

ROWS: tuple[Row, ...] = (
    Row("rc_takeover", lambda s: float(s.mode_left), lambda v, p: 0.5, False, 0.0, 0.0,
        ("yield",), RUNG_MIN_S, ph.UNDER_WAY, 4, "mode changed, pilot has control", ""),
    Row("switch_off", lambda s: float(s.switched_off), lambda v, p: 0.5, False, 0.0, 0.0,
        ("yield",), RUNG_MIN_S, (ph.ENTER_OFFBOARD, *ph.CONTROLLING, ph.LAND), 4, "mission switch turned off", ""),
    Row("link_lost", lambda s: s.status_age_s, lambda v, p: LINK_LOST_S, False, 0.5, 0.0,
        ("stop",), RUNG_MIN_S, ph.UNDER_WAY, 2, "no word from the flight controller", "s"),
    Row("state_stale", _ours(lambda s: s.state_age_s), lambda v, p: v.safety.state_age_s, False, 0.0, 0.0,
        ("stop",), RUNG_MIN_S, OURS, 2, "no valid state", "s"),
    Row("estimator_reset", _ours(lambda s: float(s.resets)), lambda v, p: 0.0, False, 0.0, 0.0,
        ("stop",), RUNG_MIN_S, OURS, 2, "estimator started anew, world has moved", "resets"),
    Row("setpoints_lost", _ours(lambda s: s.setpoints_age_s), lambda v, p: SETPOINTS_LOST_S, False, 0.2, 0.0,
        ("stop",), RUNG_MIN_S, OURS, 2, "controller sends no setpoints", "s"),
    Row("control_error", _ours(_control_error), lambda v, p: v.safety.control_error_m, False, 0.3, 0.5,
        ("hold", "retreat", "land", "stop"), 3.0, OURS, 2, "off the reference", "m"),
    Row("fallback_too_long", lambda s: s.fallback_time_s, lambda v, p: v.safety.fallback_s, False, 0.0, 0.0,
        ("return",), RUNG_MIN_S, BEFORE_RETURN, 4, "controller stays on its fallback", "s"),
    Row("marker_lost", _marker_age, lambda v, p: v.safety.marker_lost_s, False, 0.0, 0.0,
        ("hold", "retreat"), 5.0, NEAR, 4, "bundle not seen", "s"),
    Row("uncertainty_relative", _of_state("relative_std_m", True), lambda v, p: v.safety.relative_std_m, False, 0.05,
        0.5, ("hold", "retreat"), 3.0, NEAR, 4, "position to the bundle uncertain", "m"),
    Row("uncertainty_position", _ours(_of_state("position_std_m", False)), lambda v, p: v.safety.position_std_m, False,
        0.2, 1.0, ("hold", "land", "stop"), 5.0, OURS, 2, "position uncertain", "m"),
    Row("battery_low", _voltage, lambda v, p: v.safety.battery_low_v, True, 0.3, 3.0,
        ("return",), RUNG_MIN_S, BEFORE_RETURN, 4, "battery low", "V"),
    Row("battery_critical", _voltage, lambda v, p: v.safety.battery_critical_v, True, 0.3, 2.0,
        ("land",), RUNG_MIN_S, IN_AIR, 2, "battery critical", "V"),
    Row("fence", _ours(_outside_fence), lambda v, p: 0.0, False, 0.1, 0.5,
        ("hold", "retreat", "land", "stop"), 4.0, OURS, 2, "outside the fence", "m"),
    Row("height", _ours(_height), lambda v, p: p.limits.height_m, False, 0.1, 0.5,
        ("hold", "land", "stop"), 4.0, OURS, 2, "too high", "m"),
    Row("distance", _ours(_distance), lambda v, p: p.limits.distance_m, False, 0.1, 0.5,
        ("hold", "retreat", "land", "stop"), 4.0, OURS, 2, "too far from the take-off point", "m"),
    Row("rc_lost", lambda s: s.rc_age_s if s.rc_expected else None, lambda v, p: RC_LOST_S, False, 0.2, 0.0,
        ("return",), RUNG_MIN_S, BEFORE_RETURN, 4, "no transmitter", "s"),
)  # fmt: skip


class Demand(NamedTuple):
    """The strongest action of all active rows."""

    action: str
    row: str
    text: str


class _Memory:
    """How long one row has been beyond its limit, and how far it has climbed."""

    def __init__(self) -> None:
        self.bad_since_s: float | None = None
        self.good_since_s: float | None = None
        self.active = False
        self.rung = 0
        self.rung_since_s = 0.0
        self.value = 0.0


class SafetyMonitor:
    """Evaluates the table in every step; keeps what the rows need to remember."""

    def __init__(self, vehicle: Vehicle, plan: Plan, rows: tuple[Row, ...] = ROWS) -> None:
        self.rows = rows
        self.severity = {row.name: row.severity for row in rows}
        self._limits = {row.name: row.limit(vehicle, plan) for row in rows}
        self._memory = {row.name: _Memory() for row in rows}

    def reset(self) -> None:
        """Forget everything; for a deliberate new start."""
        self._memory = {row.name: _Memory() for row in self.rows}

    @property
    def demand(self) -> Demand | None:
        """The strongest action asked for now, None when no row is active."""
        active = [(row, self._memory[row.name]) for row in self.rows if self._memory[row.name].active]
        if not active:
            return None
        row, memory = max(active, key=lambda pair: ACTIONS.index(pair[0].ladder[pair[1].rung]))
        return Demand(row.ladder[memory.rung], row.name, self._words(row, memory))

    def update(self, situation: Situation) -> list[SafetyEvent]:
        """Evaluate all rows; returns an event for each that became active, climbed a rung or cleared."""
        return [event for row in self.rows if (event := self._evaluate(row, situation)) is not None]

    def _evaluate(self, row: Row, s: Situation) -> SafetyEvent | None:
        memory, limit = self._memory[row.name], self._limits[row.name]
        value = row.value(s) if s.phase in row.phases else None
        if value is None:
            self._memory[row.name] = _Memory()
            if not memory.active:
                return None
            memory.active = False
            return self._event(row, memory, s, "no longer applies")
        memory.value = value
        excess = limit - value if row.below else value - limit
        if memory.active:
            return self._while_active(row, memory, s, inside=excess <= -row.hysteresis)
        if not excess <= 0:  # written so that NaN counts as beyond the limit
            memory.bad_since_s = s.now_s if memory.bad_since_s is None else memory.bad_since_s
            if s.now_s - memory.bad_since_s >= row.after_s:
                memory.active, memory.rung, memory.rung_since_s = True, 0, s.now_s
                memory.good_since_s = None
                return self._event(row, memory, s)
        else:
            memory.bad_since_s = None
        return None

    def _while_active(self, row: Row, memory: _Memory, s: Situation, inside: bool) -> SafetyEvent | None:
        if inside:
            memory.good_since_s = s.now_s if memory.good_since_s is None else memory.good_since_s
            if s.now_s - memory.good_since_s >= CLEAR_S:
                memory.active, memory.bad_since_s = False, None
                return self._event(row, memory, s)
            return None  # getting better: no reason to climb
        memory.good_since_s = None
        if memory.rung + 1 < len(row.ladder) and s.now_s - memory.rung_since_s >= max(row.rung_s, RUNG_MIN_S):
            memory.rung, memory.rung_since_s = memory.rung + 1, s.now_s
            return self._event(row, memory, s)
        return None

    def _words(self, row: Row, memory: _Memory) -> str:
        if not row.unit:
            return row.text
        return f"{row.text} ({memory.value:.3g} {row.unit}, limit {self._limits[row.name]:.3g})"

    def _event(self, row: Row, memory: _Memory, s: Situation, note: str = "cleared") -> SafetyEvent:
        text = self._words(row, memory) if memory.active else f"{row.text}: {note}"
        return SafetyEvent(
            stamp_s=s.now_s,
            row=row.name,
            active=memory.active,
            value=float(memory.value),
            limit=float(self._limits[row.name]),
            action=row.ladder[memory.rung] if memory.active else "",
            text=text,
        )

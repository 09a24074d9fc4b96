"""Every monitor of the safety table in lockstep: active in time, actions in steps, and a safe end of the flight."""

import pytest
from safety_flights import FLIGHTS, SETPOINT_AGE_MAX_S, FlightOutcome, SafetyFlight, fly, loaded_for

from companion.core.enums import Phase, SafetyAction
from companion.mission import phases as ph
from companion.mission.monitors import ACTIONS, ESCALATION_MIN_S, MONITORS, Monitor, monitors_for

PHASE_OF = {
    SafetyAction.HOLD: Phase.PAUSE,
    SafetyAction.RETREAT: Phase.RETREAT,
    SafetyAction.RETURN: Phase.RETURN,
    SafetyAction.LAND: Phase.LAND,
    SafetyAction.STOP_STREAMING: Phase.PX4_HOLD,
    SafetyAction.RELINQUISH: Phase.PILOT,
}
STEP_S = 0.05  # of the mission
CLEARANCE_M = 0.4  # rotor tips of the F550 from its centre


def test_every_monitor_has_a_flight_and_every_flight_a_monitor():
    assert set(FLIGHTS) == {monitor.name for monitor in MONITORS}


# `make test` flies one monitor of each kind of outcome: the pilot takes over, PX4 takes over, a return, the hold goes on.
SAMPLE = ("rc_takeover", "state_stale", "marker_lost", "solver_failing")


@pytest.mark.parametrize(
    "monitor",
    [pytest.param(m, id=m.name, marks=() if m.name in SAMPLE else pytest.mark.verify) for m in MONITORS],
)
def test_monitor(monitor: Monitor):
    assert monitor.name in FLIGHTS, f"monitor '{monitor.name}' of the safety table has no flight"
    flight, outcome = FLIGHTS[monitor.name], fly(monitor.name)
    # the mission may have chosen what a monitor does
    monitor = next(m for m in monitors_for(loaded_for(flight.begins).plan) if m.name == monitor.name)
    check_that_the_monitor_acts(monitor, flight, outcome)
    ended_by = next(m for m in MONITORS if m.name == (flight.cause or monitor.name))
    check_the_cause(ended_by, flight.end, outcome)
    check_the_steps(outcome)
    check_who_is_in_charge(outcome)
    assert outcome.statuses[-1].phase == flight.end, outcome.statuses[-1].reason
    assert outcome.excursion_m <= flight.excursion_m
    assert outcome.nearest_m > CLEARANCE_M, "touched the structure"


def check_that_the_monitor_acts(monitor: Monitor, flight: SafetyFlight, outcome: FlightOutcome) -> None:
    events = [e for e in outcome.events if e.monitor == monitor.name]
    assert events, f"not active; these were: {sorted({e.monitor for e in outcome.events})}"
    first = events[0]
    assert first.active and first.action == monitor.escalation[0] and first.stamp_s <= flight.within_s
    assert not first.value <= first.limit if not monitor.below else first.value < first.limit
    levels = []
    for event in events:  # up to the first time that it cleared
        if not event.active:
            break
        levels.append(event)
    assert [e.action for e in levels] == list(monitor.escalation[: len(levels)])
    for before, after in zip(levels, levels[1:], strict=False):
        assert after.stamp_s - before.stamp_s >= ESCALATION_MIN_S - 1e-6
    if monitor.escalation == ("warn",) and not flight.cause:
        assert not outcome.actions, "a warning changed the flight"


def check_the_cause(monitor: Monitor, end: str, outcome: FlightOutcome) -> None:
    """A flight that ended early has its cause in the last status; one that goes on has none."""
    cause = outcome.statuses[-1].cause
    if end == Phase.HOLD:
        assert cause == ""
    else:
        assert cause.startswith(monitor.text) and ": " in cause, cause
        assert not outcome.statuses[-1].success


def check_the_steps(outcome: FlightOutcome) -> None:
    """Actions, of whichever monitors, lie 2 s apart and grow stronger.

    Those that end the stream do not wait, nor does a landing that begins because this stack's estimate is in doubt or
    because the wind carries the aircraft away, nor the hold that stops a return.
    """
    for (before_s, _), (after_s, phase) in zip(outcome.actions, outcome.actions[1:], strict=False):
        if phase not in (Phase.PILOT, Phase.PX4_HOLD) and not (
            lands_at_once(outcome, after_s) or stops_a_return(outcome, after_s)
        ):
            assert after_s - before_s >= ESCALATION_MIN_S - STEP_S, outcome.actions
    ranks = {PHASE_OF[action]: rank for rank, action in enumerate(ACTIONS) if action in PHASE_OF}
    taken = [ranks[phase] for at_s, phase in outcome.actions if not stops_a_return(outcome, at_s)]
    assert taken == sorted(taken), f"a milder action after a stronger one: {outcome.actions}"
    for event_s, phase in outcome.actions:
        demanded = {e.action for e in outcome.events if e.active and e.stamp_s <= event_s}
        assert ranks[phase] <= max(ACTIONS.index(action) for action in demanded), f"{phase} was not demanded"


def lands_at_once(outcome: FlightOutcome, at_s: float) -> bool:
    """A monitor that doubts the estimate, or leaves no time, has just demanded a landing as its first action."""
    landing = [m.name for m in MONITORS if (m.doubts or m.at_once) and m.escalation[0] == SafetyAction.LAND]
    return SafetyAction.LAND in demanded_at(outcome, at_s, landing)


def stops_a_return(outcome: FlightOutcome, at_s: float) -> bool:
    """A monitor of the way home has just demanded its hold."""
    return SafetyAction.HOLD in demanded_at(outcome, at_s, [m.name for m in MONITORS if m.halts_return])


def demanded_at(outcome: FlightOutcome, at_s: float, monitors: list[str]) -> set[str]:
    now = (e for e in outcome.events if e.active and e.monitor in monitors and abs(e.stamp_s - at_s) < STEP_S)
    return {e.action for e in now}


def check_who_is_in_charge(outcome: FlightOutcome) -> None:
    """Offboard is left for good, and in it the aircraft is never without a fresh setpoint."""
    assert "offboard" not in [action for _, action in outcome.requests]
    armed = [s for s in outcome.samples if s.armed]
    left = [i for i, s in enumerate(armed) if s.mode != "OFFBOARD"]
    if left:
        assert all(s.mode != "OFFBOARD" for s in armed[left[0] :]), "offboard was entered again"
    without = [s for s in armed if s.mode == "OFFBOARD" and s.setpoint_age_s > SETPOINT_AGE_MAX_S]
    assert not without, f"armed in offboard without setpoints at {without[0].now_s:.2f} s"
    last = outcome.statuses[-1].phase
    if last == Phase.DONE:
        assert not outcome.samples[-1].armed
    elif last in (*ph.OBSERVING, Phase.WAIT_READY):
        assert outcome.samples[-1].mode != "OFFBOARD"
        assert outcome.samples[-1].setpoint_age_s > 1.0, "setpoints continue after the hand-over"

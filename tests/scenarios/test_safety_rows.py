"""Every row of the safety table in lockstep: it speaks up in time, acts in steps, and safe hands end the flight."""

import pytest
from safety_flights import FLIGHTS, SETPOINT_AGE_MAX_S, Result, fly

from companion.mission import phases as ph
from companion.mission.monitors import ACTIONS, ESCALATION_MIN_S, MONITORS, Monitor

PHASE_OF = {"hold": ph.PAUSE, "retreat": ph.RETREAT, "return": ph.RETURN, "land": ph.LAND}
PHASE_OF |= {"stop streaming": ph.PX4_HOLD, "relinquish": ph.PILOT}
STEP_S = 0.05  # of the mission
CLEARANCE_M = 0.4  # rotor tips of the F550 from its centre


def test_every_row_has_a_flight_and_every_flight_a_row():
    assert set(FLIGHTS) == {row.name for row in MONITORS}


@pytest.mark.parametrize("row", MONITORS, ids=lambda row: row.name)
def test_row(row: Monitor):
    assert row.name in FLIGHTS, f"row '{row.name}' of the safety table has no flight"
    flight, result = FLIGHTS[row.name], fly(row.name)
    check_that_the_row_acts(row, flight.within_s, result)
    check_the_steps(result)
    check_who_is_in_charge(result)
    assert result.statuses[-1].phase == flight.end, result.statuses[-1].reason
    assert result.excursion_m <= flight.excursion_m
    assert result.nearest_m > CLEARANCE_M, "touched the structure"


def check_that_the_row_acts(row: Monitor, within_s: float, result: Result) -> None:
    events = [e for e in result.events if e.monitor == row.name]
    assert events, f"did not fire; these did: {sorted({e.monitor for e in result.events})}"
    first = events[0]
    assert first.active and first.action == row.escalation[0] and first.stamp_s <= within_s
    assert not first.value <= first.limit if not row.below else first.value < first.limit
    climbed = []
    for event in events:  # up to the first time that it cleared
        if not event.active:
            break
        climbed.append(event)
    assert [e.action for e in climbed] == list(row.escalation[: len(climbed)])
    for before, after in zip(climbed, climbed[1:], strict=False):
        assert after.stamp_s - before.stamp_s >= ESCALATION_MIN_S - 1e-6
    if row.escalation[0] == "warn":
        assert not result.actions, "a warning changed the flight"


def check_the_steps(result: Result) -> None:
    """Actions, of whichever rows, lie 2 s apart unless the last leaves nothing to wait for."""
    for (before_s, _), (after_s, phase) in zip(result.actions, result.actions[1:], strict=False):
        if phase not in (ph.PILOT, ph.PX4_HOLD):
            assert after_s - before_s >= ESCALATION_MIN_S - STEP_S, result.actions
    ranks = {PHASE_OF[action]: rank for rank, action in enumerate(ACTIONS) if action in PHASE_OF}
    for event_s, phase in result.actions:
        asked = {e.action for e in result.events if e.active and e.stamp_s <= event_s}
        assert ranks[phase] <= max(ACTIONS.index(action) for action in asked), f"{phase} was not asked for"


def check_who_is_in_charge(result: Result) -> None:
    """Offboard is left for good, and in it the aircraft is never without a fresh setpoint."""
    assert "offboard" not in [action for _, action in result.requests]
    armed = [s for s in result.samples if s.armed]
    left = [i for i, s in enumerate(armed) if s.mode != "OFFBOARD"]
    if left:
        assert all(s.mode != "OFFBOARD" for s in armed[left[0] :]), "offboard was entered again"
    blind = [s for s in armed if s.mode == "OFFBOARD" and s.setpoint_age_s > SETPOINT_AGE_MAX_S]
    assert not blind, f"armed in offboard without setpoints at {blind[0].now_s:.2f} s"
    last = result.statuses[-1].phase
    if last == ph.DONE:
        assert not result.samples[-1].armed
    elif last in (*ph.OBSERVING, ph.WAIT_READY):
        assert result.samples[-1].mode != "OFFBOARD"
        assert result.samples[-1].setpoint_age_s > 1.0, "setpoints go on after the hand-over"

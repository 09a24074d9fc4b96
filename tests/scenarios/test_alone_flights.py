"""Flights without satellites: one for each action of the safety table, and the whole mission."""

import pytest
from alone_flights import FLIGHTS, fly

from companion.core.enums import Phase


@pytest.mark.verify  # the common beginning alone takes 20 s
@pytest.mark.parametrize("name", FLIGHTS)
def test_action_without_satellites(name):
    flight, outcome = FLIGHTS[name], fly(name)
    first = next((e for e in outcome.flight.events if e.active), None)
    assert first is not None and first.monitor == flight.monitor
    assert outcome.phases == flight.phases and outcome.modes == flight.modes
    assert outcome.landed == bool(flight.modes)
    assert outcome.flight.excursion_m <= flight.excursion_m
    assert outcome.flight.nearest_m > flight.nearest_m, "touched the structure"
    from_m = outcome.from_handover_m if Phase.RETURN in flight.phases else outcome.from_hold_m
    assert from_m <= flight.landed_m


def test_the_table_of_the_flights_has_every_action():
    """Every action has a flight in which the table takes it; warn and relinquish end nothing."""
    phases = {phase for flight in FLIGHTS.values() for phase in flight.phases}
    assert {Phase.PAUSE, Phase.RETREAT, Phase.RETURN, Phase.LAND, Phase.PX4_HOLD, Phase.PILOT} <= phases

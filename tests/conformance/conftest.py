"""The suite's two targets: the built-in autopilot always, real PX4 where its build is found."""

import pytest
from conformance_flight import Flight, px4_build

TARGETS = ["built-in", pytest.param("px4", marks=pytest.mark.realtime)]


@pytest.fixture(params=TARGETS)
def target(request) -> str:
    if request.param == "px4" and px4_build() is None:
        pytest.skip("no PX4 found: PX4_BUILD names none, and no px4 on the PATH")
    return request.param


@pytest.fixture
def begin(target, tmp_path):
    """Makes a flight on the ground: ``begin(heartbeat=…, PARAMETER=…)``."""
    flights = []

    def make(**options) -> Flight:
        flights.append(Flight(target, tmp_path / f"px4_{len(flights)}", **options))
        return flights[-1]

    yield make
    for flight in flights:
        flight.close()


@pytest.fixture
def grounded(begin) -> Flight:
    return begin()


@pytest.fixture
def flying(begin) -> Flight:
    """In hold at 5 m."""
    flight = begin()
    flight.take_off()
    return flight

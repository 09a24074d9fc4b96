"""The suite's two targets: the PX4 emulator always, real PX4 where its build is found."""

import pytest
from conformance_flight import ConformanceFlight, px4_build

TARGETS = ["emulator", pytest.param("px4", marks=pytest.mark.realtime)]


@pytest.fixture(params=TARGETS)
def target(request) -> str:
    if request.param == "px4" and px4_build() is None:
        pytest.skip("no PX4 found: PX4_BUILD names none, and no px4 on the PATH")
    return request.param


@pytest.fixture
def begin(target, tmp_path):
    """Function that makes a flight on the ground: ``begin(heartbeat=…, PARAMETER=…)``."""
    flights = []

    def make(**options) -> ConformanceFlight:
        flights.append(ConformanceFlight(target, tmp_path / f"px4_{len(flights)}", **options))
        return flights[-1]

    yield make
    for flight in flights:
        flight.close()


@pytest.fixture
def grounded(begin) -> ConformanceFlight:
    return begin()


@pytest.fixture
def flying(begin) -> ConformanceFlight:
    """In hold at 5 m."""
    flight = begin()
    flight.take_off()
    return flight

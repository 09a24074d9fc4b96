"""Flights that the autopilot's tests begin with."""

import pytest
from autopilot_flight import QUIET, Flight

from sitl.autopilot.streams import ONBOARD_RATES_HZ


@pytest.fixture
def grounded() -> Flight:
    """On the ground with a position, PX4's telemetry."""
    flight = Flight(stream_rates_hz=ONBOARD_RATES_HZ)
    flight.run(4.0)
    return flight


@pytest.fixture
def flying() -> Flight:
    """In hold at 3 m, little telemetry."""
    flight = Flight(stream_rates_hz=QUIET)
    flight.take_off()
    return flight

"""Flights with which the tests of the PX4 emulator begin."""

import pytest
from autopilot_flight import QUIET, EmulatorFlight

from sitl.autopilot.parameters import Parameters, load_parameters
from sitl.autopilot.streams import ONBOARD_RATES_HZ


@pytest.fixture
def grounded() -> EmulatorFlight:
    """On the ground with a position, PX4's telemetry."""
    flight = EmulatorFlight(stream_rates_hz=ONBOARD_RATES_HZ)
    flight.run(4.0)
    return flight


@pytest.fixture
def flying() -> EmulatorFlight:
    """In hold at 3 m, little telemetry."""
    flight = EmulatorFlight(stream_rates_hz=QUIET)
    flight.take_off()
    return flight


@pytest.fixture
def parameters() -> Parameters:
    """Of the F550."""
    return load_parameters("f550")

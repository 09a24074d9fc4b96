"""Flights of a simulated pilot, each flown once."""

from collections.abc import Callable

import pytest
from pilot_logs import Pilot, fly


@pytest.fixture(scope="session")
def pilots() -> Callable[[str], Pilot]:
    kept: dict[tuple[str, float], Pilot] = {}

    def of(vehicle_name: str, duration_s: float = 32.0) -> Pilot:
        key = vehicle_name, duration_s
        if key not in kept:
            kept[key] = fly(vehicle_name, duration_s, 1)
        return kept[key]

    return of

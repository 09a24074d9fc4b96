from pathlib import Path

import pytest

from companion.core.config import load
from companion.core.vehicle import Vehicle

VEHICLES = Path(__file__).parents[2] / "config" / "vehicles"


@pytest.fixture(scope="session")
def vehicle():
    return load(VEHICLES / "f550.toml", Vehicle)

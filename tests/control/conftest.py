from pathlib import Path

import pytest

from companion.control.solver import Nmpc
from companion.core.config import load
from companion.core.vehicle import Vehicle

F550 = Path(__file__).parents[2] / "config" / "vehicles" / "f550.toml"


@pytest.fixture(scope="session")
def vehicle():
    """The F550 with its artefacts built (once; kept by fingerprint)."""
    from acados_gen.generate_control import generate

    vehicle = load(F550, Vehicle)
    generate(vehicle)
    return vehicle


@pytest.fixture(scope="session")
def _nmpc(vehicle):
    return Nmpc(vehicle)


@pytest.fixture
def nmpc(_nmpc):
    """The solver, cold."""
    _nmpc.reset()
    return _nmpc

"""Fixtures of the controller's tests: the F550's vehicle file and its solver."""

from pathlib import Path

import pytest

from companion.control.solver import Nmpc
from companion.core.config import load
from companion.core.vehicle import Vehicle

F550 = Path(__file__).parents[2] / "config" / "vehicles" / "f550.toml"


@pytest.fixture(scope="session")
def vehicle():
    """The F550's vehicle file; its artefacts are built once and found by fingerprint."""
    from acados_gen.generate_control import generate

    vehicle = load(F550, Vehicle)
    generate(vehicle)
    return vehicle


@pytest.fixture(scope="session")
def session_nmpc(vehicle):
    """One solver for all tests."""
    return Nmpc(vehicle)


@pytest.fixture
def nmpc(session_nmpc):
    """The solver without a stored plan."""
    session_nmpc.reset()
    return session_nmpc

from pathlib import Path

import pytest

pytest.importorskip("casadi", reason="the kernels are generated with CasADi")

from acados_gen import eskf_model  # noqa: E402
from companion.core.config import load  # noqa: E402
from companion.core.vehicle import Vehicle  # noqa: E402
from companion.estimation.filter import Eskf  # noqa: E402


@pytest.fixture(scope="session")
def vehicle():
    """The F550's vehicle file; builds the kernels when they are missing."""
    eskf_model.generate()
    return load(Path(__file__).parents[2] / "config/vehicles/f550.toml", Vehicle)


@pytest.fixture
def eskf(vehicle):
    return Eskf(vehicle)

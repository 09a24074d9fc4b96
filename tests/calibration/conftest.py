"""Fixtures of the calibration tests: copies of vehicle files, boards, benches, made-up flights and their logs."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import identify_flights
import pytest
from calibration_paths import BENCHES, BOARDS, F550, VEHICLES

from calibration.camera.board import Board
from calibration.camera.board import load_board as read_board
from calibration.thrust.bench.bench_file import Bench
from calibration.thrust.bench.bench_file import load_bench as read_bench


@pytest.fixture
def copy_vehicle(tmp_path) -> Callable[..., Path]:
    """Copies a vehicle file by its name into the test's folder, where it may be written."""

    def copied(name: str, new_name: str | None = None) -> Path:
        path = tmp_path / (new_name or f"{name}.toml")
        path.write_bytes((VEHICLES / f"{name}.toml").read_bytes())
        return path

    return copied


@pytest.fixture
def vehicle(copy_vehicle) -> Path:
    """A copy of the F550's vehicle file."""
    return copy_vehicle(F550.stem, "vehicle.toml")


@pytest.fixture(scope="session")
def load_board() -> Callable[[str], Board]:
    """Boards of config/boards by name."""
    return cache(lambda name: read_board(BOARDS / f"{name}.toml"))


@pytest.fixture(scope="session")
def hx711() -> Bench:
    """The bench file of the HX711."""
    return read_bench(BENCHES / "hx711.toml")


@pytest.fixture(scope="session")
def made_up_flight() -> Callable[..., dict]:
    """`identify_flights.fly`; equal arguments give the same flight, which is computed once."""
    return cache(identify_flights.fly)

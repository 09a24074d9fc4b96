"""The estimate of the hover thrust: as fast as PX4's, inside of its range, and not by outliers."""

import numpy as np
import pytest

from companion.core.frames import GRAVITY_M_S2
from sitl.autopilot.hover_thrust import HoverThrust
from sitl.autopilot.parameters import load_parameters

STEP_S = 0.008


def flown(
    needed: float, seconds: float, estimate: HoverThrust | None = None, thrust: float | None = None
) -> HoverThrust:
    """An aircraft that needs this thrust to hover, and has it or another one."""
    if estimate is None:
        estimate = HoverThrust(load_parameters("f550"))
    rng = np.random.default_rng(1)
    command = needed if thrust is None else thrust
    acceleration = GRAVITY_M_S2 * (command / needed - 1.0)
    for _ in range(round(seconds / STEP_S)):
        estimate.update(STEP_S, command, acceleration + 0.15 * rng.normal(), 0.0, 0.0)
    return estimate


def test_it_is_found_at_once_after_the_start_and_a_change_in_flight_within_half_a_minute():
    first = HoverThrust(load_parameters("f550")).value
    needed = first + 0.08
    assert flown(needed, 2.0).value == pytest.approx(needed, abs=0.005)
    estimate = flown(first, 20.0)
    assert first < flown(needed, 2.0, estimate).value < first + 0.04
    assert flown(needed, 30.0, estimate).value == pytest.approx(needed, abs=0.012)


def test_it_is_valid_once_it_has_been_certain_for_two_seconds_and_not_on_the_ground():
    estimate = flown(0.36, 1.0)
    assert not estimate.valid
    flown(0.36, 20.0, estimate)
    assert estimate.valid
    value = estimate.value
    estimate.pause()
    assert not estimate.valid and estimate.value == value
    estimate.reset()
    assert estimate.value == load_parameters("f550")["MPC_THR_HOVER"]


def test_it_stays_in_its_range():
    first = load_parameters("f550")["MPC_THR_HOVER"]
    assert flown(0.9, 120.0).value == pytest.approx(first + 0.2, abs=1e-3)


def test_a_thrust_that_the_ground_carries_is_an_outlier():
    estimate = flown(0.36, 20.0)
    value = estimate.value
    for _ in range(round(1.0 / STEP_S)):
        estimate.update(STEP_S, 0.1, 0.0, 0.0, 0.0)  # it would fall at 7 m/s², and stands
    assert estimate.value == pytest.approx(value, abs=0.01)

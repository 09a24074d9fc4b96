"""The witness of a print that shrinks: the sways of the aircraft against those of the range."""

from math import isnan

import numpy as np
import pytest

from companion.core.arrays import Array
from companion.estimation.range_gain import SWAY_MIN_M, WINDOW_S, RangeGain

PERIOD_S = 1 / 30
ALL = frozenset({1, 2, 3})


def swaying(amplitude_m: float, velocity_error_m_s: float = 0.0, seed: int = 3):
    """(t, way as the flight controller reports it, true way, noise of the range), along the line of sight."""
    rng = np.random.default_rng(seed)
    for i in range(round(12.0 / PERIOD_S)):
        t = i * PERIOD_S
        way_m = amplitude_m * (np.sin(2.0 * t) + 0.5 * np.sin(3.7 * t + 1.0))
        yield t, way_m + velocity_error_m_s * t, way_m, rng.normal(0.0, 0.004)


def bounds(gain, amplitude_m: float = 0.03, markers=lambda t: ALL, **motion) -> Array:
    """`lower_bound` over time; gain(t): of a print at 3 m whose range is seen that many times too large."""
    witness, found = RangeGain(), []
    for t, reported_m, true_m, noise_m in swaying(amplitude_m, **motion):
        range_m = gain(t) * (3.0 - true_m) + noise_m + (0.1 if markers(t) != ALL else 0.0)
        witness.add(t, range_m * np.array((0.8, 0.6, 0.0)), reported_m * np.array((0.8, 0.6, 0.0)), markers(t))
        found.append(witness.lower_bound)
    return np.array(found)


def test_a_print_that_stays_as_it_is_is_never_suspected():
    for seed in range(5):
        found = bounds(lambda t: 1.0, seed=seed)
        assert 0.6 < np.nanmax(found) < 1.1


@pytest.mark.parametrize("velocity_error_m_s", [0.0, 0.2, -0.2])
def test_the_gain_of_a_print_that_has_shrunk_is_found_whatever_the_error_of_the_velocity(velocity_error_m_s):
    found = bounds(lambda t: 1.8, velocity_error_m_s=velocity_error_m_s)
    assert 1.4 < np.nanmedian(found[-60:]) < 1.8


def test_a_print_that_shrinks_meanwhile_is_found():
    """From 3 m at 5 % per second: the range as seen stays, because the aircraft follows; here it does not and is seen to go away."""
    found = bounds(lambda t: 1.0 / (1.0 - 0.05 * t))
    assert np.nanmax(found[:135]) < 1.4 < np.nanmax(found)


def test_a_marker_that_is_missed_now_and_then_does_not_hide_it():
    """In one image of twenty, which shows the bundle 0.1 m farther away."""
    found = bounds(lambda t: 1.8, markers=lambda t: ALL - {3} if round(t / PERIOD_S) % 20 == 7 else ALL)
    assert 1.4 < np.nanmedian(found[-60:]) < 1.8
    assert np.isfinite(found[-60:]).mean() > 0.9


def test_ten_images_a_second_are_enough():
    witness, found = RangeGain(), []
    for i in range(120):
        t = 0.1 * i
        way_m = 0.03 * np.sin(2.0 * t)
        witness.add(t, 1.8 * (3.0 - way_m) * np.array((1.0, 0, 0)), way_m * np.array((1.0, 0, 0)), ALL)
        found.append(witness.lower_bound)
    assert np.isfinite(found[-60:]).all() and found[-1] > 1.4


def test_noise_of_the_way_makes_the_bound_smaller():
    """It must not accuse a true print."""
    rng, witness, found = np.random.default_rng(1), RangeGain(), []
    for t, reported_m, true_m, noise_m in swaying(0.02):
        way_m = reported_m + rng.normal(0.0, 0.01)
        witness.add(t, (3.0 - true_m + noise_m) * np.array((1.0, 0, 0)), way_m * np.array((1.0, 0, 0)), ALL)
        found.append(witness.lower_bound)
    assert np.nanmax(found) < 1.0


def test_nothing_is_known_without_sway_and_at_the_beginning():
    assert np.isnan(bounds(lambda t: 1.8, amplitude_m=SWAY_MIN_M / 5)).all()
    assert np.isnan(bounds(lambda t: 1.8)[: round(0.6 * WINDOW_S / PERIOD_S)]).all()


def test_a_step_by_another_set_of_markers_does_not_count():
    """Every 1.5 s other markers are in view, whose prints are 3 % too large."""
    found = bounds(lambda t: 1.0, markers=lambda t: ALL if t % 3.0 < 1.5 else frozenset({1}))
    assert np.nanmax(found, initial=0.0) < 1.1


def test_an_interruption_begins_again():
    witness = RangeGain()
    for t, reported_m, true_m, _ in swaying(0.03):
        witness.add(t, 1.8 * (3.0 - true_m) * np.array((1.0, 0, 0)), reported_m * np.array((1.0, 0, 0)), ALL)
    assert witness.lower_bound > 1.4
    witness.interrupt()
    assert isnan(witness.lower_bound)
    witness.add(20.0, np.array((3.0, 0, 0)), np.zeros(3), ALL)
    witness.add(22.0, np.array((9.0, 0, 0)), np.zeros(3), ALL)  # out of sight meanwhile
    witness.add(21.0, np.array((9.0, 0, 0)), np.zeros(3), ALL)  # late
    assert isnan(witness.lower_bound)

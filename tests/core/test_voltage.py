"""The voltage for the thrust model stays within a battery's range, and changes as slowly as one."""

import math

import pytest

from companion.core.voltage import RANGE, RATE_1_S, ThrustVoltage, is_plausible, outside_range_v

REFERENCE_V = 15.2
WRONG = [65.0, 1.0, 0.0, -15.0, math.nan, math.inf, -math.inf, 0.74 * REFERENCE_V, 1.16 * REFERENCE_V]


@pytest.mark.parametrize("wrong_v", WRONG)
def test_a_voltage_out_of_range_is_counted_and_the_last_one_stays(wrong_v):
    voltage = ThrustVoltage(REFERENCE_V)
    assert not voltage.take(wrong_v, 1.0) and voltage.value_v == REFERENCE_V
    assert voltage.take(16.0, 2.0) and voltage.value_v == 16.0
    assert not any(voltage.take(wrong_v, 2.0 + 0.1 * i, 1.0) for i in range(1, 100))
    assert voltage.value_v == 16.0 and voltage.rejected == 100


@pytest.mark.parametrize("smoothing_s", [0.0, 1.0])
def test_a_jump_within_the_range_is_followed_slowly(smoothing_s):
    voltage = ThrustVoltage(REFERENCE_V)
    voltage.take(15.2, 0.0)
    for i in range(1, 7):
        voltage.take(17.4, 0.1 * i, smoothing_s)
    assert voltage.value_v - 15.2 <= RATE_1_S * REFERENCE_V * 0.6 + 1e-9


def test_the_sag_of_a_take_off_is_not_limited():
    """A volt in a step, smoothed, is less than the limit from the second half second on."""
    voltage, free = ThrustVoltage(REFERENCE_V), 16.5
    voltage.take(16.5, 0.0)
    for i in range(1, 100):
        sag_v = 0.2 * min(1.0, 0.1 * i / 0.5)
        voltage.take(16.5 - sag_v, 0.1 * i, 1.0)
        free += (1 - math.exp(-0.1)) * (16.5 - sag_v - free)
        assert voltage.value_v == pytest.approx(free, abs=1e-12)


def test_on_the_ground_a_new_voltage_counts_at_once():
    voltage = ThrustVoltage(REFERENCE_V)
    voltage.take(15.2, 0.0)
    voltage.take(16.8, 0.1, free=True)
    assert voltage.value_v == 16.8


def test_the_range_has_its_bounds_and_the_distance_from_it():
    low_v, high_v = (share * REFERENCE_V for share in RANGE)
    assert is_plausible(low_v, REFERENCE_V) and is_plausible(high_v, REFERENCE_V)
    assert outside_range_v(16.0, REFERENCE_V) == 0.0
    assert outside_range_v(65.0, REFERENCE_V) == pytest.approx(65.0 - high_v)
    assert outside_range_v(1.0, REFERENCE_V) == pytest.approx(low_v - 1.0)

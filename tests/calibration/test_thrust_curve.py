"""The thrust curve against a motor whose physics are not the model's, with the faults of real stands."""

import numpy as np
import pytest
from thrust_stand import Battery, Motor, sweep, up_and_down

from calibration.results import DataError
from calibration.thrust.curve import fit_thrust, thrust_model, thrust_slope
from calibration.thrust.steps import steps_of
from calibration.thrust.table import StandRun

MOTOR = Motor()
FULL_V, EMPTY_V = 16.4, 14.2


def fit(*tables):
    return fit_thrust([
        steps_of(StandRun(f"{i}.csv", t[:, 0], t[:, 1], t[:, 2], t[:, 3], np.arange(len(t)) * 1.0, np.arange(len(t)), True))
        for i, t in enumerate(tables)
    ])  # fmt: skip


def two_batteries(motor=MOTOR, **faults):
    u = up_and_down(step=0.04)
    return sweep(motor, Battery(FULL_V), u, **faults), sweep(motor, Battery(EMPTY_V), u, seed=2, **faults)


def error_share(curve, motor=MOTOR, voltages=(13.8, 15.0, 16.0), low=0.0):
    u = np.linspace(low, 0.95, 60)
    return max(np.abs(curve.thrust_n(u, v) - motor.thrust_n(u, v)).max() / motor.thrust_n(0.95, v) for v in voltages)


@pytest.mark.parametrize("sag", [0.02, 0.25, 0.5])
@pytest.mark.parametrize("start", [0.0, 0.12])
def test_curve_of_every_kind_of_motor(sag, start):
    motor = Motor(sag=sag, start=start)
    fitted = fit(*two_batteries(motor))
    assert error_share(fitted.curve, motor) < 0.01
    assert fitted.r2 > 0.9995 and fitted.curve.exponent_known and fitted.warnings == ()


@pytest.mark.parametrize("tare_n", [-5.0, -0.4, 0.4, 1.5, 8.0])
def test_a_wrong_zero_of_one_scale_changes_nothing(tare_n):
    full, empty = two_batteries()
    full[:, 1] += tare_n
    fitted = fit(full, empty)
    assert error_share(fitted.curve) < 0.01
    assert np.allclose(fitted.tare_n, [tare_n, 0.0], atol=0.1)


def test_a_sweep_that_begins_high_keeps_the_zero_and_warns():
    u = np.arange(0.3, 0.96, 0.04)
    fitted = fit(sweep(MOTOR, Battery(FULL_V), u), sweep(MOTOR, Battery(EMPTY_V), u))
    assert error_share(fitted.curve, low=0.3) < 0.01
    assert "begins at 1300 µs; the zero of the scale is not checked" in fitted.warnings[0]


def test_outlier_steps_are_left_out_and_listed():
    full, empty = two_batteries()
    full[100:105, 1], empty[150:155, 1] = 30.0, -4.0
    fitted = fit(full, empty)
    assert error_share(fitted.curve) < 0.015
    assert [(p.run, p.reason) for p in fitted.left_out] == [(f"{i}.csv", "does not fit the rest") for i in (0, 1)]


def test_a_limited_supply_does_not_bend_the_curve():
    full = sweep(MOTOR, Battery(FULL_V), up_and_down(high=1.0), limit_a=13)
    fitted = fit(full, two_batteries()[1])
    assert error_share(fitted.curve) < 0.01
    assert {p.run for p in fitted.left_out} == {"0.csv"} and len(fitted.left_out) > 5


def test_one_battery_does_not_determine_the_exponent_and_the_band_contains_that():
    one, two = fit(two_batteries()[0]), fit(*two_batteries())
    assert not one.curve.exponent_known and one.curve.exponent == pytest.approx(1.5, abs=1e-3)
    assert "do not determine the influence of the battery" in one.warnings[0]
    assert one.curve.std_n(0.9, 13.0) > 5 * two.curve.std_n(0.9, 13.0)
    assert abs(one.curve.thrust_n(0.9, 13.0) - MOTOR.thrust_n(0.9, 13.0)) < 2 * one.curve.std_n(0.9, 13.0)


def test_the_band_covers_the_truth():
    inside = []
    for seed in range(8):
        motor = Motor(full_n=8 + seed, sag=0.05 + 0.06 * seed, start=0.02 * seed)
        u = up_and_down(step=0.05)
        full = sweep(motor, Battery(FULL_V), u, seed=seed, noise_n=0.1)
        empty = sweep(motor, Battery(EMPTY_V), u, seed=seed + 50, noise_n=0.1)
        curve = fit(full, empty).curve
        for v in (14.0, 15.5):
            grid = np.linspace(0.2, 0.95, 20)
            error = np.abs(curve.thrust_n(grid, v) - motor.thrust_n(grid, v))
            inside += list(error < 1.96 * curve.std_n(grid, v))
            assert curve.std_n(grid, v).max() < 0.03 * motor.thrust_n(0.95, v), "and is not wide for it"
    assert np.mean(inside) > 0.85


def test_command_for_a_thrust_is_the_inverse():
    curve = fit(*two_batteries()).curve
    for u in (curve.start + 0.01, 0.3, 0.6, 0.99):
        assert curve.command_for(float(curve.thrust_n(u, 14.5)), 14.5) == pytest.approx(u, abs=1e-6)
    with pytest.raises(ValueError, match="not between"):
        curve.command_for(30.0, 14.5)


def test_another_reference_voltage_is_the_same_curve():
    curve = fit(*two_batteries()).curve
    other = curve.at_reference(12.0)
    u = np.linspace(0, 1, 20)
    assert np.allclose(other.thrust_n(u, 15.5), curve.thrust_n(u, 15.5))
    assert np.allclose(other.std_n(u, 15.5), curve.std_n(u, 15.5))
    assert other.full_n == pytest.approx(float(curve.thrust_n(1.0, 12.0)))


def test_a_reference_voltage_without_measurement_gives_a_warning():
    fitted = fit(*two_batteries())
    assert fitted.at_reference(15.0).warnings == ()
    assert "no measurement near 11.1 V, only from 13.8 to 16.4 V" in fitted.at_reference(11.1).warnings[-1]


def test_slopes_of_the_band_are_those_of_the_curve():
    curve = fit(*two_batteries()).curve
    u, v = np.array([0.2, 0.5, 0.9]), np.array([14.0, 15.0, 16.0])
    x, reference = curve.parameters, curve.reference_voltage_v
    slope = thrust_slope(x, u, v, reference)
    for i, e in enumerate(np.eye(len(x)) * 1e-6):
        difference = (thrust_model(x + e, u, v, reference) - thrust_model(x - e, u, v, reference)) / 2e-6
        assert np.allclose(slope[:, i], difference, rtol=1e-5, atol=1e-6)


def test_points_that_make_no_curve_are_refused():
    rng = np.random.default_rng(3)
    full, _ = two_batteries()
    full[:, 1] = np.where(full[:, 0] > 0.5, 10, 0) + 0.01 * rng.standard_normal(len(full))
    with pytest.raises(DataError, match="not a thrust curve"):
        fit(full)

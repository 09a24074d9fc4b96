"""THR_MDL_FAC, hover command and k_T from a thrust curve, and hover command against mass."""

import numpy as np
import pytest
from thrust_stand import Battery, Motor, sweep, up_and_down

from calibration.results import DataError
from calibration.thrust.curve import ThrustCurve, fit_thrust
from calibration.thrust.hover import Output, hover, thrust_model_factor
from calibration.thrust.hover_flights import fit_hover
from calibration.thrust.steps import steps_of
from calibration.thrust.table import StandRun
from companion.core.frames import GRAVITY_M_S2

NOTHING = np.zeros((5, 5))


def quadratic(factor=0.6, start=0.0, full_n=10.0):
    return ThrustCurve(full_n, factor, 1.5, start, 0.0, 15.0, NOTHING, 0.0, 0.0, True, (0, 1), (14, 16))


def test_factor_is_that_of_px4s_formula():
    factor, error = thrust_model_factor(quadratic(0.6), Output())
    assert factor == pytest.approx(0.6) and error < 1e-12
    factor, error = thrust_model_factor(quadratic(0.6, start=0.1), Output(1100, 2000))
    assert factor == pytest.approx(0.6) and error < 1e-12
    assert thrust_model_factor(quadratic(0.6), Output(1000, 1900))[0] == pytest.approx(0.6 * 0.9 / (1 - 0.6 * 0.1))
    assert thrust_model_factor(quadratic(1.0, start=0.2), Output())[0] == 1.0, "held within what PX4 takes"


def test_hover_is_where_the_motors_carry_the_aircraft():
    curve, output = quadratic(0.6), Output()
    at = hover(curve, output, mass_kg=2.4, motors=6, voltage_v=15.0)
    assert at.thrust_n == pytest.approx(2.4 * GRAVITY_M_S2 / 6)
    assert curve.thrust_n((at.pwm_us - 1000) / 1000, 15.0) == pytest.approx(at.thrust_n)
    assert at.command == pytest.approx(at.thrust_n / 10.0), (
        "with the right factor the command is the share of full thrust"
    )
    assert at.k_T_m_s2 == pytest.approx(6 * 10.0 / 2.4)
    assert at.thrust_to_weight == pytest.approx(10.0 / at.thrust_n)


def test_another_factor_in_px4_moves_the_command_and_not_the_pulse():
    right, linear = (hover(quadratic(0.6), Output(factor=f), 2.4, 6, 15.0) for f in (None, 0.0))
    assert linear.pwm_us == pytest.approx(right.pwm_us)
    assert linear.command == pytest.approx((linear.pwm_us - 1000) / 1000)
    assert linear.k_T_m_s2 == pytest.approx(GRAVITY_M_S2 / linear.command)


def test_an_empty_battery_needs_more_command_by_the_exponent():
    full, empty = (hover(quadratic(), Output(), 2.4, 6, v) for v in (16.0, 14.0))
    assert full.k_T_m_s2 / empty.k_T_m_s2 == pytest.approx((16 / 14) ** 1.5)


def test_aircraft_that_cannot_hover_are_refused_in_one_line():
    with pytest.raises(
        DataError, match=r"9 kg on 6 motors cannot hover at 15 V: each must give 14\.7 N and gives 10 N"
    ):
        hover(quadratic(), Output(), 9.0, 6, 15.0)
    with pytest.raises(DataError, match="is the thrust in another unit"):
        hover(quadratic(full_n=0.01), Output(), 2.4, 6, 15.0)
    with pytest.raises(DataError, match="--pwm-min"):
        hover(quadratic(), Output(1500, 2000), 0.9, 6, 15.0)
    with pytest.raises(DataError, match="--pwm-max"):
        thrust_model_factor(quadratic(start=0.3), Output(900, 1200))


def test_hover_from_a_stand_is_that_of_the_motor_and_knows_how_sure_it_is():
    motor, runs = Motor(), []
    for i, volts in enumerate((16.4, 14.2)):
        t = sweep(motor, Battery(volts), up_and_down(step=0.04), seed=i)
        runs.append(steps_of(StandRun("a", *t.T, np.arange(len(t)) * 1.0, np.arange(len(t)), True)))
    curve = fit_thrust(runs).curve
    output = Output(1100, 1950)
    for volts in (14.2, 15.2):
        at = hover(curve, output, 2.0, 6, volts)
        true = motor.thrust_n((at.pwm_us - 1000) / 1000, volts)
        assert abs(true / at.thrust_n - 1) < 0.03
        assert 0 < at.k_T_std_m_s2 < 0.05 * at.k_T_m_s2
        assert abs(true / at.thrust_n - 1) < 2 * at.k_T_std_m_s2 / at.k_T_m_s2


def test_hover_curve_goes_through_its_points_and_bends_as_motors_do():
    mass = np.array([1.5, 2.0, 2.5, 3.0])
    truth = np.sqrt(mass / 6)
    curve = fit_hover(mass[:3], truth[:3])
    assert np.abs(curve.command(mass[:3]) - truth[:3]).max() < 0.005
    assert curve.command(3.0) == pytest.approx(truth[3], abs=0.015)


@pytest.mark.parametrize("factor", [0.0, 0.3, 0.7])
def test_a_hover_with_another_load_is_carried_over_by_px4s_factor(factor):
    """Motors of f = 0.7 that lift 6 kg at full signal; k_T of 1.8 kg from a hover of 2.3 kg."""
    share = np.array([1.8, 2.3]) / 6.0
    signal = (np.sqrt(0.3**2 + 4 * 0.7 * share) - 0.3) / (2 * 0.7)
    normal, loaded = factor * signal**2 + (1 - factor) * signal
    curve = fit_hover([2.3], [loaded], factor)
    assert curve.command(1.8) == pytest.approx(normal, rel=0.005)
    assert 0.008 < curve.std(2.3) < 0.012  # that of a command


def test_one_hover_point_is_enough_for_a_guess():
    curve = fit_hover([2.0], [0.4])
    assert curve.command(2.0) == pytest.approx(0.4, abs=0.005)
    assert 0.45 < curve.command(3.0) < 0.6


@pytest.mark.parametrize(
    ("mass", "command"), [([], []), ([1.0], [0.0]), ([1.0], [1.2]), ([-1.0], [0.5]), ([1.0, 2.0], [0.5])]
)
def test_impossible_hover_points_are_refused(mass, command):
    with pytest.raises(DataError, match="--hover needs a mass"):
        fit_hover(mass, command)

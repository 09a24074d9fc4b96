"""The measurements behind docs/aerodynamics.md, in short."""

import pytest

from tests.sitl_plant.near_surfaces import ABOVE, BELOW, ceiling, ground, thrust_ratio
from tests.sitl_plant.rotor_drag import aircraft, circle, fit, fly, lemniscate, rmse, run


@pytest.mark.parametrize("gap", [0.25, 0.5, 1.0, 2.0])
def test_a_fixed_craft_under_a_ceiling_has_the_published_thrust_within_5_percent(gap):
    assert thrust_ratio(gap, ABOVE) == pytest.approx(ceiling(gap), rel=0.05)
    assert thrust_ratio(gap, ABOVE) - 1 == pytest.approx(ceiling(gap) - 1, rel=0.02)  # of the gain, too


@pytest.mark.parametrize("gap", [0.5, 1.0, 2.0])
def test_a_fixed_craft_over_the_ground_has_the_published_thrust_within_5_percent(gap):
    assert thrust_ratio(gap, BELOW) == pytest.approx(ground(gap), rel=0.05)


def test_the_ideal_controller_flies_the_stated_speed_and_both_models_fit_their_own_flight():
    airframe = aircraft(each_rotor=True)
    flown = fly(airframe, lemniscate(7.5), (6.0, 11.0))
    linear, rotor = fit(flown, 0.0)
    assert rotor.c_d == pytest.approx(airframe.rotor_drag.c_d, rel=0.03)
    assert rmse(flown, rotor, 0.0) < 0.2 * rmse(flown, linear, 0.0)  # equation 13 leaves out ω × d alone
    assert rmse(flown, rotor, 0.15) == pytest.approx(0.15 * 3**0.5, rel=0.05)
    round_ = fly(airframe, circle(7.5), (6.0, 6.5))
    assert (round_.v_B**2).sum(axis=1) ** 0.5 == pytest.approx(7.5, abs=0.6)  # just settled


@pytest.mark.parametrize("speed", [5.0, 10.0])
def test_a_run_goes_80_m_there_and_back_at_its_speed(speed):
    path, duration_s = run(speed)
    x = [path(0.01 * i)[0] for i in range(round(duration_s / 0.01))]
    assert max(x) == pytest.approx(80.0) and x[0] == 0.0 and x[-1] == pytest.approx(0.0, abs=0.01)
    steps = [b - a for a, b in zip(x, x[1:], strict=False)]
    assert max(steps) == pytest.approx(0.01 * speed, rel=1e-3)

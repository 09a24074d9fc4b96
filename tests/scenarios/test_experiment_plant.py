"""What the experiments change in the plant: thrust, time from setpoint to force, jets narrower than the aircraft."""

from pathlib import Path

import numpy as np
import pytest

from sitl.airframe import load_airframe
from sitl.autopilot.attitude import ATTITUDE, OFF, AttitudeControl
from sitl.autopilot.parameters import load_parameters
from sitl.scenario import load_scenario
from sitl.world import STEP_S, World

ROOT = Path(__file__).parents[2]


def world(name: str) -> World:
    return World(load_scenario(ROOT / f"config/scenarios/{name}.toml"), seed=1)


def test_true_thrust_is_scaled_and_the_setpoint_delayed():
    experiment = world("line_headwind")
    assert experiment.plant.airframe.rotor.thrust_max_n == pytest.approx(
        0.92 * load_airframe("f550").rotor.thrust_max_n
    )
    assert experiment.autopilot.attitude.input_delay_steps * STEP_S == pytest.approx(0.03, abs=0.6 * STEP_S)


def test_a_delayed_setpoint_acts_that_much_later_and_stopping_acts_at_once():
    control = AttitudeControl(load_parameters("f550"), STEP_S, load_airframe("f550"))
    control.input_delay_steps = 7
    loop = control.loop
    loop.level, loop.thrust = ATTITUDE, 0.3
    for _ in range(20):
        control.step()
    before = control.motors.mean()
    loop.thrust = 0.5
    seen = []
    for _ in range(9):
        control.step()
        seen.append(control.motors.mean())
    assert np.allclose(seen[:7], before, atol=0.01) and seen[7] > before + 0.1
    assert loop.thrust == 0.5, "telemetry shows the setpoint that arrived"
    loop.level, loop.thrust = OFF, 0.0
    control.step()
    assert control.motors.max() == 0.0


def test_a_jet_moves_the_aircraft_by_its_mean_over_hull_and_rotors():
    experiment = world("line_headwind")
    experiment.plant.p_W[:] = (-1.0, 0.0, 1.68)
    on_axis = experiment.wind.sample(30.0, experiment.plant.p_W)[0]
    felt = experiment.wind_on_aircraft(30.0)[0]
    assert 11 < on_axis < 19  # 14.8 m/s with its turbulence
    assert 0.25 * on_axis < felt < 0.5 * on_axis
    experiment.plant.p_W[:] = (-1.0, 1.5, 1.68)
    assert experiment.wind_on_aircraft(30.0)[0] < 0.05 * felt

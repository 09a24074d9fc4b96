"""Each world of `named_errors` has the error that its name says, and nothing else differs from `bridge_hover`."""

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from companion.core.frames import quat_conjugate, quat_log, quat_multiply
from sitl.airframe import load_airframe
from sitl.autopilot.observer_error import velocity_error
from sitl.autopilot.step_response import overshoot
from sitl.scenario import load_scenario
from sitl.unkind import flown_parameters
from tests.scenarios.named_errors.__main__ import GOALS, HERE

PLAIN = load_scenario(Path(__file__).parents[2] / "config/scenarios/bridge_hover.toml", camera_mode="corners")
TEXTS = {"name", "description", "mission", "vehicle"}
CHANGED = {
    "thrust": {"thrust_scale"},
    "mount": {"camera"},
    "corners": {"camera"},
    "overshoot": {"fcu_parameters"},
    "jump": {"fault"},
    "hidden": {"fault"},
    "autopilot": {"sensors"},
    "vibration": {"sensors"},
}


def _world(name: str):
    return load_scenario(HERE / f"{name}.toml")


@pytest.mark.parametrize("name", GOALS)
def test_only_the_named_error_differs(name):
    plain, world = msgspec.to_builtins(PLAIN.scenario), msgspec.to_builtins(_world(name).scenario)
    assert {key for key in plain if plain[key] != world[key]} - TEXTS == CHANGED[name]
    assert _world(name).plan == PLAIN.plan


def test_a_patient_vehicle_differs_in_its_patience_only():
    patient, plain = _world("hidden").vehicle, PLAIN.vehicle
    assert patient.safety == msgspec.structs.replace(plain.safety, marker_lost_s=15.0)
    assert msgspec.structs.replace(patient, safety=plain.safety) == plain


def test_the_camera_is_turned_by_2_degrees_and_shifted_by_2_cm():
    mount, camera = PLAIN.vehicle.camera, _world("mount").scenario.camera
    turned = quat_log(quat_multiply(quat_conjugate(mount.q_BC), camera.q_BC))
    assert np.linalg.norm(turned) == pytest.approx(math.radians(2.0), rel=0.01)
    assert np.linalg.norm(np.subtract(camera.p_BC, mount.p_BC)) == pytest.approx(0.02, rel=0.05)


def test_the_attitude_loop_overshoots_by_12_percent():
    scenario = _world("overshoot").scenario
    assert overshoot(load_airframe(scenario.airframe, {}), flown_parameters(scenario)) == pytest.approx(0.12, abs=0.01)


def test_the_autopilots_velocity_is_wrong_by_a_fifth_of_a_metre_per_second():
    scenario = _world("autopilot").scenario
    gnss, attitude = scenario.sensors.gnss, scenario.sensors.attitude
    error = velocity_error(
        flown_parameters(scenario), scenario.sensors, gnss.velocity_drift_time_s, attitude.tilt_time_s
    )
    assert gnss.velocity_drift_m_s * error[1].velocity_m_s == pytest.approx(0.2, rel=0.05)
    assert math.degrees(attitude.tilt_std_rad) == pytest.approx(1.0, rel=0.01)
    assert math.degrees(attitude.heading_offset_rad) == pytest.approx(5.0, rel=0.01)

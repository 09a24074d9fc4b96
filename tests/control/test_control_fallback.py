import math

import msgspec
import numpy as np
import pytest

from companion.control.attitude_inversion import tilt_and_thrust
from companion.control.fallback import TILT_KEPT_RAD, Blend, PositionPid
from companion.core.frames import GRAVITY_M_S2, quat_from_rpy, rotation_matrix

ZERO = np.zeros(3)


@pytest.mark.parametrize("yaw", np.linspace(-math.pi, math.pi, 9))
def test_tilt_and_thrust_produce_the_desired_force(yaw):
    force = np.array([1.2, -2.3, 8.7])
    roll, pitch, magnitude = tilt_and_thrust(force, yaw)
    made = magnitude * rotation_matrix(quat_from_rpy(float(roll), float(pitch), yaw))[:, 2]
    np.testing.assert_allclose(made, force, atol=1e-12)


def test_tilt_and_thrust_of_an_array_equal_those_of_each_force():
    rng = np.random.default_rng(1)
    forces, yaws = rng.normal(size=(20, 3)) + [0, 0, 9.8], rng.uniform(-3, 3, 20)
    together = np.array(tilt_and_thrust(forces, yaws))
    each = np.array([tilt_and_thrust(f, y) for f, y in zip(forces, yaws, strict=True)]).T
    np.testing.assert_allclose(together, each)


@pytest.mark.parametrize("degrees", [0, 45, 90, 135, 180, -90])
def test_fault_5_the_fallback_flies_towards_the_target_at_any_yaw(vehicle, degrees):
    """The earlier stack rotated by R instead of its transpose and flew away at 90° of yaw."""
    pid = PositionPid(vehicle.controller)
    yaw, target = math.radians(degrees), np.array([1.0, 0.4, 0.0])
    x = np.array([0, 0, 0, 0, 0, 0, 0, 0, yaw], float)
    parameters = np.array(vehicle.model_parameters())
    thrust, roll, pitch = pid.command(x, target, ZERO, ZERO, ZERO, parameters, 0.02)
    axis = rotation_matrix(quat_from_rpy(parameters[5] * roll, parameters[7] * pitch, yaw))[:, 2]
    force = parameters[0] * thrust * axis
    np.testing.assert_allclose(
        force[:2] / np.linalg.norm(force[:2]), target[:2] / np.linalg.norm(target[:2]), atol=1e-6
    )
    assert force[2] == pytest.approx(GRAVITY_M_S2, abs=0.01)


def test_the_estimated_disturbance_is_compensated_at_once(vehicle):
    pid, wind = PositionPid(vehicle.controller), np.array([1.0, -0.5, 0.3])
    parameters = np.array(vehicle.model_parameters())
    thrust, roll, pitch = pid.command(np.zeros(9), ZERO, ZERO, ZERO, wind, parameters, 0.02)
    axis = rotation_matrix(quat_from_rpy(parameters[5] * roll, parameters[7] * pitch, 0.0))[:, 2]
    np.testing.assert_allclose(parameters[0] * thrust * axis + wind, [0, 0, GRAVITY_M_S2], atol=1e-9)


def test_the_rotors_drag_at_the_reference_s_velocity_is_compensated(vehicle):
    """The motion of the flight model under the command has the reference's acceleration."""
    ca = pytest.importorskip("casadi")
    from acados_gen.flight_model import acceleration

    pid, parameters = PositionPid(vehicle.controller), np.array([*vehicle.model_parameters()[:-2], 0.12, 0.02])
    v, a = np.array([4.0, -2.0, 0.5]), np.array([0.3, 0.6, -0.2])
    x = np.array([0, 0, 0, *v, 0, 0, 0.4])
    thrust, roll, pitch = pid.command(x, ZERO, v, a, np.array([0.4, 0.0, 0.1]), parameters, 0.02)
    axis = rotation_matrix(quat_from_rpy(parameters[5] * roll, parameters[7] * pitch, 0.4))[:, 2]
    got = acceleration(ca.DM(v), ca.DM(axis), thrust, ca.DM([0.4, 0.0, 0.1]), ca.DM(parameters))
    np.testing.assert_allclose(np.array(got).ravel(), a, atol=0.01)


def test_a_far_target_is_approached_without_winding_up(vehicle):
    pid, parameters = PositionPid(vehicle.controller), np.array(vehicle.model_parameters())
    far = np.array([50.0, 0.0, 0.0])
    for _ in range(500):
        command = pid.command(np.zeros(9), far, ZERO, ZERO, ZERO, parameters, 0.02)
    np.testing.assert_allclose(pid.command(np.zeros(9), ZERO, ZERO, ZERO, ZERO, parameters, 0.02)[1:], 0, atol=1e-6)
    assert command[2] <= vehicle.controller.tilt_max_rad + 0.01


def test_vertical_force_has_priority_over_sideways_force(vehicle):
    pid, parameters = PositionPid(vehicle.controller), np.array(vehicle.model_parameters())
    x = np.zeros(9)
    x[3:6] = [-30.0, 0.0, 0.0]
    thrust, _, pitch = pid.command(x, ZERO, ZERO, ZERO, ZERO, parameters, 0.02)
    lift = parameters[0] * thrust * math.cos(parameters[7] * pitch)
    assert lift == pytest.approx(GRAVITY_M_S2, rel=1e-6)
    assert parameters[7] * pitch == pytest.approx(vehicle.controller.tilt_max_rad)


def test_a_saturated_thrust_is_taken_from_the_sideways_force_not_from_the_height(vehicle):
    """An aircraft that hovers at 0.6 of full command with an empty battery lost 0.54 m/s² of its lift."""
    weak = msgspec.structs.replace(vehicle, thrust=msgspec.structs.replace(vehicle.thrust, coefficient_m_s2=19.2))
    pid, parameters = PositionPid(weak.controller), np.array(weak.model_parameters(13.6))
    x = np.zeros(9)
    x[3:6] = [-2.0, 0.0, 0.0]
    thrust, _, pitch = pid.command(x, np.array([1.5, 0.0, 0.0]), ZERO, ZERO, ZERO, parameters, 0.02)
    assert thrust == pytest.approx(weak.controller.thrust_max)
    made = min(thrust, weak.controller.thrust_max) * parameters[0] * math.cos(parameters[7] * pitch)
    assert made == pytest.approx(GRAVITY_M_S2, rel=1e-6)


def test_a_vertical_force_beyond_the_thrust_leaves_what_opposes_a_drift(vehicle):
    pid, parameters = PositionPid(vehicle.controller), np.array(vehicle.model_parameters())
    parameters[0] = GRAVITY_M_S2 / vehicle.controller.thrust_max
    x = np.zeros(9)
    x[3:6] = [1.5, 0.0, -1.0]
    thrust, roll, pitch = pid.command(x, np.array([0.0, 0.0, 1.2]), ZERO, ZERO, ZERO, parameters, 0.02)
    assert thrust == pytest.approx(vehicle.controller.thrust_max)
    assert roll == 0.0 and parameters[7] * pitch == pytest.approx(-TILT_KEPT_RAD)


def test_a_blend_begins_at_the_last_command_and_ends_at_the_new_source():
    blend = Blend()
    old, new = np.array([0.4, 0.1, -0.2]), np.array([0.3, -0.1, 0.2])
    blend.start(old, new, 1.0)
    np.testing.assert_allclose(blend.apply(new, 1.0), old)
    steps = np.array([blend.apply(new, 1.0 + 0.02 * i) for i in range(150)])
    assert np.abs(np.diff(steps, axis=0)).max() < 0.08 * 0.4
    np.testing.assert_allclose(steps[-1], new, atol=1e-4)

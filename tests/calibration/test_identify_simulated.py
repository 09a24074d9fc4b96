"""The identification flight in the simulator, identified blind, against the plant's own numbers.

What the attitude loop's time constant and delay are follows from its response to a step without noise.
"""

import math

import msgspec
import numpy as np
import pytest
from calibration_paths import SCENARIOS
from scipy.optimize import least_squares

from calibration.identification.identify import identify
from calibration.identification.values import thrust_model_factor
from companion.core.frames import quat_from_rpy, rotation_matrix, rpy_from_quat
from sitl.airframe import load_airframe
from sitl.autopilot.attitude import ATTITUDE, AttitudeControl
from sitl.autopilot.parameters import load_parameters
from sitl.plant import Plant
from sitl.scenario import load_scenario
from sitl.simulate import fly

pytestmark = pytest.mark.verify  # whole flights
SCENARIO = SCENARIOS / "identification.toml"
LOOP_S = 0.004
STEP_RAD, SETTLED_S, ANSWER_S = 0.2, 2.0, 1.5


@pytest.fixture(scope="module")
def flown(tmp_path_factory):
    log = tmp_path_factory.mktemp("identification") / "flight.mcap"
    result, lockstep = fly(SCENARIO, seed=1, log_file=log)
    assert result["completed"]
    return identify([log]), lockstep


def true_airframe():
    scenario = load_scenario(SCENARIO).scenario
    airframe = load_airframe(scenario.airframe)
    rotor = msgspec.structs.replace(airframe.rotor, thrust_max_n=airframe.rotor.thrust_max_n * scenario.thrust_scale)
    return msgspec.structs.replace(airframe, rotor=rotor)


def step_response(axis: int) -> tuple[np.ndarray, np.ndarray]:
    """(time since the step [s], angle over the step) of the simulated attitude loop in a hover without noise."""
    scenario = load_scenario(SCENARIO).scenario
    airframe = true_airframe()
    plant = Plant(airframe, 0, (0.0, 0.0, 100.0))
    control = AttitudeControl(load_parameters(scenario.airframe), LOOP_S)
    control.input_delay_steps = round(scenario.command_delay_s / LOOP_S)
    loop = control.loop
    loop.level, loop.thrust, loop.yaw_rate_sp = ATTITUDE, 0.35, 0.0
    plant.rotor_speed_rad_s[:] = airframe.rotor.speed_max_rad_s * math.sqrt(0.35)
    angles = []
    for k in range(round((SETTLED_S + ANSWER_S) / LOOP_S)):
        wanted = [0.0, 0.0, 0.0]
        wanted[axis] = STEP_RAD if k * LOOP_S >= SETTLED_S else 0.0
        loop.gyro[:], loop.q[:] = plant.omega_B.tolist(), plant.q_WB.tolist()
        loop.q_sp[:] = quat_from_rpy(*wanted).tolist()
        angles.append(rpy_from_quat(plant.q_WB)[axis])
        control.step()
        plant.step(control.motors, round(LOOP_S * 1e3))
    answer = np.array(angles)[round(SETTLED_S / LOOP_S) :]
    return LOOP_S * np.arange(len(answer)), (answer - answer[0]) / STEP_RAD


@pytest.mark.parametrize("axis", [0, 1])
def test_time_constant_and_delay_are_those_of_the_loops_step_response(flown, axis):
    t_s, answer = step_response(axis)

    def error(p):
        return p[2] * np.where(t_s > p[1], 1 - np.exp(-np.maximum(t_s - p[1], 0.0) / p[0]), 0.0) - answer

    time_constant_s, delay_s, gain = least_squares(error, [0.1, 0.05, 1.0]).x
    found = (flown[0].roll, flown[0].pitch)[axis]
    assert found.trusted and found.held_out_percent > 90
    assert found.response.time_constant_s == pytest.approx(time_constant_s, rel=0.05)
    assert found.response.delay_s == pytest.approx(delay_s, abs=0.01)
    assert found.response.gain == pytest.approx(gain, abs=0.02)


def in_the_air(lockstep):
    """Truth while setpoints were sent, without begin and end: velocity, attitude, thrusts, voltage, thrust command."""
    sent = lockstep.messages["sent_setpoint"]
    stamps, commands = np.array([m.stamp_s for m in sent]), np.array([m.thrust for m in sent])
    truth = [m for m in lockstep.messages["truth"] if stamps[0] + 3.0 < m.stamp_s < stamps[-1] - 3.0]
    return truth, lambda t_s: commands[np.searchsorted(stamps, t_s) - 1]


def test_the_thrust_coefficient_is_the_plants_and_not_the_vehicle_files(flown):
    found, lockstep = flown
    truth, command_at = in_the_air(lockstep)
    mass_kg = true_airframe().mass_kg
    lag_s = 0.075  # delay and motors; over a flight it makes no difference to the mean
    thrust = np.array([sum(m.motor_thrust_n) for m in truth]) / mass_kg
    command = command_at(np.array([m.stamp_s for m in truth]) - lag_s)
    volts = np.array([m.battery_voltage_v for m in truth])
    forces = found.forces
    voltage_factor = (volts / forces.reference_voltage_v) ** forces.voltage_exponent
    k_T = np.sum(thrust * command * voltage_factor) / np.sum((command * voltage_factor) ** 2)
    assert forces.thrust_coefficient_m_s2 == pytest.approx(k_T, rel=0.02)
    assert k_T < 0.96 * 28.542 * (forces.reference_voltage_v / 15.2) ** 1.5  # 8 % of thrust are missing
    exponent = np.polyfit(np.log(volts), np.log(thrust / command), 1)[0]
    assert forces.trend.low - 0.1 < exponent < forces.trend.high + 0.1


def test_the_missing_thrust_model_factor_is_the_plants(flown):
    assert thrust_model_factor(flown[0].forces) == pytest.approx(true_airframe().rotor.quadratic_fraction, abs=0.06)


def test_drag_is_that_of_hull_and_rotors_at_the_speeds_flown(flown):
    found, lockstep = flown
    airframe = true_airframe()
    truth, _ = in_the_air(lockstep)
    rotor, hull = airframe.rotor, airframe.drag
    per_n = rotor.thrust_max_n / rotor.speed_max_rad_s**2
    of_rotors = np.array([rotor.in_plane_drag_n_s2_m_rad] * 2 + [rotor.axial_drag_n_s2_m_rad])
    power, square = np.zeros(3), np.zeros(3)
    for m in truth[::5]:
        R, v_W = rotation_matrix(m.q_WB), np.array(m.v_W)
        v_B = R.T @ v_W
        speeds = np.sqrt(np.array(m.motor_thrust_n) / per_n).sum()
        drag = np.array(hull.linear_n_s_m) + np.array(hull.quadratic_n_s2_m2) * np.linalg.norm(v_B) + of_rotors * speeds
        power += (R @ (drag * v_B)) / airframe.mass_kg * v_W
        square += v_W**2
    forces = found.forces
    assert forces.drag_horizontal_1_s == pytest.approx(power[:2].sum() / square[:2].sum(), rel=0.15)
    assert forces.drag_vertical_1_s == pytest.approx(power[2] / square[2], rel=0.25)


def test_the_models_of_drag_explain_the_acceleration_that_the_flight_controller_feels(flown):
    drags, airframe = flown[0].drags, true_airframe()
    rotor = airframe.rotor
    of_blades = rotor.in_plane_drag_n_s2_m_rad * rotor.speed_max_rad_s / math.sqrt(rotor.thrust_max_n)
    of_blades *= math.sqrt(6 / airframe.mass_kg)
    assert of_blades < drags.c_d_1_sqrt_m < 1.4 * of_blades  # the hull adds to it
    assert drags.explained_linear > 0.8
    assert drags.explained_rotor_vertical > 0.8
    assert drags.explained_rotor > 0.5


def test_the_heading_follows_its_setpoint(flown):
    """PX4 feeds the commanded rate forward: the lag is short, and smooth turns do not separate its parts."""
    yaw = flown[0].yaw
    assert yaw.name == "heading" and yaw.held_out_percent > 90
    assert yaw.response.gain == pytest.approx(1.0, abs=0.05)
    assert 0.1 < yaw.response.time_constant_s + yaw.response.delay_s < 0.25
    assert yaw.trusted or yaw.reason.startswith("the time constant is uncertain")

"""The rigid body, its rotors and the air follow their equations."""

import ast
import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from companion.core.frames import GRAVITY_M_S2, quat_from_rpy, quat_multiply, rotation_matrix, rpy_from_quat
from sitl.airframe import Drag, load_airframe
from sitl.plant import Plant

OFF = np.zeros(6)
NO_DRAG = Drag(linear_n_s_m=(0.0, 0.0, 0.0), quadratic_n_s2_m2=(0.0, 0.0, 0.0), angular_n_m_s=(0.0, 0.0, 0.0))
replace = msgspec.structs.replace


def in_vacuum(airframe):
    rotor = replace(airframe.rotor, in_plane_drag_n_s2_m_rad=0.0, axial_drag_n_s2_m_rad=0.0)
    return replace(airframe, drag=NO_DRAG, rotor=rotor)


def equal_rotors(airframe, **changes):
    return replace(airframe, rotor=replace(airframe.rotor, thrust_spread=0.0, **changes), command_delay_s=0.0)


@pytest.fixture(params=["f550", "aurelia_x6"])
def airframe(request):
    return load_airframe(request.param)


@pytest.fixture
def f550():
    return load_airframe("f550")


def test_free_fall_follows_the_parabola_and_feels_no_force(airframe):
    plant = Plant(in_vacuum(airframe), 1, p_W=(0, 0, 100))
    plant.v_W[:] = 3.0, -2.0, 5.0
    plant.step(OFF, 2000)
    np.testing.assert_allclose(plant.p_W, [6.0, -4.0, 100 + 10.0 - 0.5 * GRAVITY_M_S2 * 4], atol=1e-9)
    np.testing.assert_allclose(plant.specific_force_B, 0.0, atol=1e-9)
    kinetic = 0.5 * plant.mass_kg * float(plant.v_W @ plant.v_W)
    potential = plant.mass_kg * GRAVITY_M_S2 * plant.p_W[2]
    before = plant.mass_kg * (0.5 * 38.0 + GRAVITY_M_S2 * 100)
    assert kinetic + potential == pytest.approx(before, rel=1e-12)


def test_hover_needs_the_weight_as_thrust_at_the_published_command(airframe):
    command = {"F550": 0.344, "Aurelia X6": 0.301}[airframe.name]
    plant = Plant(equal_rotors(airframe, speed_voltage_exponent=0.0), 1, p_W=(0, 0, 50))
    plant.step(np.full(6, command), 1000)
    assert plant.motor_thrust_n.sum() == pytest.approx(plant.mass_kg * GRAVITY_M_S2, rel=0.005)
    plant.v_W[:] = 0.0  # lost while the rotors spun up
    plant.step(np.full(6, command), 1000)
    assert abs(plant.v_W[2]) < 0.03


def test_thrust_over_command_stays_within_three_percent_of_a_line(airframe):
    k_T = {"F550": 28.542, "Aurelia X6": 32.562}[airframe.name]
    plant = Plant(equal_rotors(airframe, speed_voltage_exponent=0.0), 1, p_W=(0, 0, 500))
    for command in np.linspace(0.2, 0.6, 9):
        plant.step(np.full(6, command), 1000)
        assert plant.motor_thrust_n.sum() / plant.mass_kg / command == pytest.approx(k_T, rel=0.03)


def test_torque_free_rotation_keeps_angular_momentum_and_energy(airframe):
    inertia = np.array([0.03, 0.05, 0.07])
    plant = Plant(replace(in_vacuum(airframe), inertia_kg_m2=tuple(inertia)), 1, p_W=(0, 0, 1000))
    plant.omega_B[:] = 1.0, 6.0, -2.0  # near the unstable middle axis: the motion is rich
    momentum = rotation_matrix(plant.q_WB) @ (inertia * plant.omega_B)
    energy = 0.5 * inertia @ plant.omega_B**2
    start = plant.omega_B.copy()
    moved = 0.0
    for _ in range(100):
        plant.step(OFF, 30)
        np.testing.assert_allclose(rotation_matrix(plant.q_WB) @ (inertia * plant.omega_B), momentum, rtol=1e-6)
        assert 0.5 * inertia @ plant.omega_B**2 == pytest.approx(energy, rel=1e-6)
        moved = max(moved, float(np.linalg.norm(plant.omega_B - start)))
    assert moved > 3.0
    assert np.linalg.norm(plant.q_WB) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    ("more", "axis", "sign"),
    [
        # PX4's rotors: 0 front right, 1 right, 2 rear right, 3 rear left, 4 left, 5 front left; axes are FLU
        ((0, 1, 2), 0, -1),  # more thrust on the right: rolls to the left
        ((3, 4, 5), 0, +1),
        ((0, 5), 1, -1),  # more thrust in front: the nose rises
        ((2, 3), 1, +1),
        ((0, 2, 4), 2, -1),  # faster counter-clockwise rotors turn the body clockwise
        ((1, 3, 5), 2, +1),
    ],
)
def test_rotors_turn_the_body_the_way_px4_expects(f550, more, axis, sign):
    plant = Plant(equal_rotors(f550), 1, p_W=(0, 0, 50))
    command = np.full(6, 0.344)
    plant.step(command, 500)
    plant.omega_B[:] = 0.0
    command[list(more)] += 0.02
    plant.step(command, 200)
    assert np.sign(plant.omega_B[axis]) == sign
    assert int(np.argmax(np.abs(plant.omega_B))) == axis


def test_yaw_acceleration_is_reaction_torque_over_inertia(f550):
    plant = Plant(in_vacuum(equal_rotors(f550, speed_voltage_exponent=0.0)), 1, p_W=(0, 0, 500))
    command = np.array([0.36, 0.33, 0.36, 0.33, 0.36, 0.33])
    plant.step(command, 1000)  # spin-up over
    before = plant.omega_B[2]
    plant.step(command, 500)
    thrust = plant.motor_thrust_n
    torque = -f550.rotor.torque_per_thrust_m * (thrust[[0, 2, 4]].sum() - thrust[[1, 3, 5]].sum())
    assert (plant.omega_B[2] - before) / 0.5 == pytest.approx(torque / f550.inertia_kg_m2[2], rel=1e-4)


def test_spinning_up_a_rotor_gives_the_body_the_opposite_momentum(f550):
    # Without reaction of the air, momentum of body and rotors together stays zero.
    airframe = in_vacuum(equal_rotors(f550, torque_per_thrust_m=0.001, inertia_kg_m2=0.001))
    plant = Plant(airframe, 1, p_W=(0, 0, 500))
    command = np.array([0.3, 0.0, 0.3, 0.0, 0.3, 0.0])
    plant.step(command, 20)
    rotors = 0.001 * plant.rotor_speed_rad_s[[0, 2, 4]].sum()
    body = f550.inertia_kg_m2[2] * plant.omega_B[2]
    assert rotors > 0.1
    assert body == pytest.approx(-rotors, rel=0.01)


def test_spinning_rotors_precess(f550):
    # Torque-free body with rotors: M = J ω + h e_z keeps its length, and ω × h e_z turns the pitch rate into roll.
    airframe = in_vacuum(equal_rotors(f550, inertia_kg_m2=0.001, torque_per_thrust_m=0.001))
    plant = Plant(airframe, 1, p_W=(0, 0, 500))
    command = np.array([0.3, 0.0, 0.3, 0.0, 0.3, 0.0])
    plant.step(command, 1000)
    spin = 0.001 * plant.rotor_speed_rad_s.sum()
    plant.omega_B[:] = 0.0, 0.5, 0.0
    plant.step(command, 4)
    assert plant.omega_B[0] == pytest.approx(-0.5 * spin / f550.inertia_kg_m2[0] * 0.004, rel=0.02)


def test_falling_craft_reaches_the_terminal_velocity_of_its_drag(f550):
    plant = Plant(f550, 1, p_W=(0, 0, 1000))
    plant.step(OFF, 12000)
    a, b, weight = f550.drag.quadratic_n_s2_m2[2], f550.drag.linear_n_s_m[2], f550.mass_kg * GRAVITY_M_S2
    terminal = (-b + math.sqrt(b * b + 4 * a * weight)) / (2 * a)
    assert -plant.v_W[2] == pytest.approx(terminal, rel=1e-4)


def test_linear_damping_around_hover_matches_the_published_identification(airframe):
    damping = {"F550": 0.26057, "Aurelia X6": 0.10628}[airframe.name]
    plant = Plant(airframe, 1, p_W=(0, 0, 100))
    plant.step(np.full(6, airframe_hover(airframe)), 1000)
    plant.omega_B[:] = 0.0
    plant.q_WB[:] = 1.0, 0.0, 0.0, 0.0
    rates = []
    for speed in (1.0, 2.0, 3.0):
        plant.v_W[:] = speed, 0.0, 0.0
        plant.step(np.full(6, airframe_hover(airframe)), 0)
        rates.append(-plant.specific_force_B[0] / speed)
    assert np.mean(rates) == pytest.approx(damping, rel=0.05)


def airframe_hover(airframe):
    return {"F550": 0.344, "Aurelia X6": 0.301}[airframe.name]


def test_drag_depends_on_the_velocity_against_the_air_alone(f550):
    moving, blown = (Plant(f550, 1, p_W=(0, 0, 100), yaw_rad=0.7) for _ in range(2))
    moving.v_W[:] = 4.0, -3.0, 1.0
    moving.step(np.full(6, 0.3), 200)
    blown.step(np.full(6, 0.3), 200, wind_W=(-4.0, 3.0, -1.0))
    np.testing.assert_allclose(blown.v_W, moving.v_W - [4.0, -3.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(blown.specific_force_B, moving.specific_force_B, atol=1e-12)


def test_disturbance_is_what_wind_and_force_add_to_the_acceleration(f550):
    plant = Plant(f550, 1, p_W=(0, 0, 100), yaw_rad=0.7)
    plant.v_W[:] = 1.0, 2.0, 0.0
    wind, force = np.array([6.0, -2.0, 0.5]), np.array([0.9, 0.0, -1.8])
    plant.step(np.full(6, 0.344), 300, wind, force)
    R = rotation_matrix(plant.q_WB)
    disturbed, disturbance = R @ plant.specific_force_B, plant.disturbance_W.copy()
    plant.step(np.full(6, 0.344), 0)
    np.testing.assert_allclose(disturbed - R @ plant.specific_force_B, disturbance, atol=1e-12)
    np.testing.assert_allclose(plant.disturbance_W, 0.0, atol=1e-12)
    assert np.linalg.norm(disturbance) > 1.0


def test_a_head_wind_is_felt_as_a_push_along_the_wind(f550):
    plant = Plant(f550, 1, p_W=(0, 0, 100))
    plant.step(np.full(6, 0.344), 1, wind_W=(-5.0, 0.0, 0.0))
    assert plant.disturbance_W[0] < -0.1 and abs(plant.disturbance_W[1]) < 1e-3


def test_rotor_drag_acts_at_the_height_of_the_rotors(f550):
    # A wind from ahead pushes the rotors back over the centre of mass: the nose rises (negative pitch in FLU).
    rates = []
    for height_m in (0.0, 0.1):
        plant = Plant(equal_rotors(f550, height_m=height_m), 1, p_W=(0, 0, 100))
        plant.step(np.full(6, 0.344), 1000)
        plant.omega_B[:], plant.v_W[:], plant.q_WB[:] = 0.0, 0.0, (1.0, 0.0, 0.0, 0.0)
        plant.step(np.full(6, 0.344), 1, wind_W=(-5.0, 0.0, 0.0))
        rates.append(plant.omega_B[1])
    force = f550.rotor.in_plane_drag_n_s2_m_rad * plant.rotor_speed_rad_s.sum() * 5.0
    assert abs(rates[0]) < 1e-9
    assert rates[1] == pytest.approx(-0.1 * force / f550.inertia_kg_m2[1] * 1e-3, rel=0.01)


def test_spinning_rotors_damp_roll(f550):
    plant = Plant(replace(equal_rotors(f550, height_m=0.0), drag=NO_DRAG), 1, p_W=(0, 0, 100))
    plant.step(np.full(6, 0.344), 1000)
    plant.q_WB[:], plant.v_W[:], plant.omega_B[:] = (1.0, 0.0, 0.0, 0.0), 0.0, (1.0, 0.0, 0.0)
    plant.step(np.full(6, 0.344), 1)
    # Σ k Ω y² with Σ y² = 3 arm² for the hexagon
    damping = f550.rotor.axial_drag_n_s2_m_rad * plant.rotor_speed_rad_s[0] * 3 * (f550.wheelbase_m / 2) ** 2
    assert (1.0 - plant.omega_B[0]) / 1e-3 == pytest.approx(damping / f550.inertia_kg_m2[0], rel=0.01)


def test_accelerometer_at_rest_shows_gravity_in_the_body_frame(f550):
    plant = Plant(f550, 1)
    plant.step(OFF, 1000)
    np.testing.assert_allclose(plant.specific_force_B, [0, 0, GRAVITY_M_S2], atol=1e-6)


def test_accelerometer_agrees_with_the_change_of_velocity(f550):
    plant = Plant(f550, 1, p_W=(0, 0, 100))
    plant.q_WB[:] = quat_from_rpy(0.2, -0.3, 1.0)
    plant.step(np.full(6, 0.4), 500, (3.0, 0.0, 0.0))
    v0, f0 = plant.v_W.copy(), rotation_matrix(plant.q_WB) @ plant.specific_force_B
    plant.step(np.full(6, 0.4), 4, (3.0, 0.0, 0.0))
    f1 = rotation_matrix(plant.q_WB) @ plant.specific_force_B
    np.testing.assert_allclose((plant.v_W - v0) / 0.004, (f0 + f1) / 2 - [0, 0, GRAVITY_M_S2], atol=2e-3)


@pytest.mark.parametrize("yaw_rad", [-3.0, -1.1, 0.0, 0.4, 2.5])
def test_stands_still_on_the_ground_at_any_heading(airframe, yaw_rad):
    plant = Plant(airframe, 1, p_W=(1.0, -2.0, 0.0), yaw_rad=yaw_rad)
    start = plant.p_W.copy()
    idle = np.full(6, 0.05)
    plant.step(idle, 20000, wind_W=(2.0, 1.0, 0.0))
    p_10, q_10 = plant.p_W.copy(), plant.q_WB.copy()
    plant.step(idle, 20000, wind_W=(2.0, 1.0, 0.0))
    assert plant.on_ground
    assert np.linalg.norm(plant.p_W - start) < 0.005
    np.testing.assert_allclose(plant.p_W, p_10, atol=1e-6)  # thrust at idle falls with the battery, so not exactly
    np.testing.assert_allclose(plant.q_WB, q_10, atol=1e-6)


def test_dropped_craft_comes_to_rest_without_gaining_energy(airframe):
    plant = Plant(airframe, 1, p_W=(0, 0, 0.8))
    plant.q_WB[:] = quat_from_rpy(0.15, 0.1, 0.5)  # lands on one foot; much steeper and the F550 falls over
    plant.omega_B[:] = 0.0, 0.0, 1.0
    highest = plant.p_W[2]
    for _ in range(400):
        plant.step(OFF, 10)
        assert plant.p_W[2] <= highest + 1e-9
    assert plant.on_ground
    assert np.linalg.norm(plant.v_W) < 1e-3 and np.linalg.norm(plant.omega_B) < 1e-2
    assert plant.p_W[2] == pytest.approx(plant.rest_height_m, abs=1e-3)


def test_under_a_lasting_push_below_friction_the_craft_does_not_creep(f550):
    push = (0.4 * f550.mass_kg * GRAVITY_M_S2, 0, 0)
    plant = Plant(f550, 1)
    plant.step(OFF, 2000, force_W=push)  # the sudden push rocks it: springy feet give way, light ones slip a little
    leaning = plant.p_W.copy()
    assert 0.0 < leaning[0] < 0.01
    plant.step(OFF, 20000, force_W=push)
    np.testing.assert_allclose(plant.p_W, leaning, atol=1e-7)


def test_a_sliding_craft_is_stopped_by_friction(f550):
    plant = Plant(in_vacuum(f550), 1)
    plant.v_W[0] = 1.5
    plant.step(OFF, 2000)
    assert np.linalg.norm(plant.v_W) < 1e-6
    assert plant.p_W[0] == pytest.approx(1.5**2 / (2 * f550.ground.friction * GRAVITY_M_S2), rel=0.06)


def test_a_craft_on_its_back_stays_there(f550):
    plant = Plant(f550, 1, p_W=(0, 0, 0.3))
    plant.q_WB[:] = quat_from_rpy(math.pi, 0.0, 0.0)
    plant.step(OFF, 5000)
    assert plant.on_ground and 0.0 < plant.p_W[2] < 0.1
    assert abs(abs(rpy_from_quat(plant.q_WB)[0]) - math.pi) < 0.05
    assert np.linalg.norm(plant.v_W) < 1e-3


def test_on_ground_ends_with_take_off(f550):
    plant = Plant(f550, 1)
    plant.step(np.full(6, 0.2), 1000)
    assert plant.on_ground
    plant.step(np.full(6, 0.5), 1000)
    assert not plant.on_ground and plant.p_W[2] > 0.5


def test_motor_speed_follows_as_a_first_order_lag_with_its_two_time_constants(f550):
    plant = Plant(equal_rotors(f550, speed_voltage_exponent=0.0), 1, p_W=(0, 0, 500))
    goal = f550.rotor.speed_max_rad_s * math.sqrt(0.1 * 0.16 + 0.9 * 0.4)
    plant.step(np.full(6, 0.4), 15)
    assert plant.rotor_speed_rad_s[0] == pytest.approx(goal * (1 - math.exp(-0.015 / f550.rotor.rise_time_s)))
    plant.step(np.full(6, 0.4), 1000)
    high = plant.rotor_speed_rad_s[0]
    plant.step(OFF, 15)
    assert plant.rotor_speed_rad_s[0] == pytest.approx(high * math.exp(-0.015 / f550.rotor.fall_time_s))


@pytest.mark.parametrize("delay_ms", [0, 1, 30, 200])
def test_commands_act_exactly_after_the_delay(f550, delay_ms):
    plant = Plant(replace(equal_rotors(f550), command_delay_s=delay_ms / 1000), 1)
    for _ in range(delay_ms):
        plant.step(np.full(6, 0.5), 1)
        assert plant.motor_thrust_n.sum() == 0.0
    plant.step(OFF, 1)  # the first command acts in this step, not the present one
    assert (plant.motor_thrust_n.sum() > 0.0) == (delay_ms > 0)


def test_full_command_is_the_limit_and_nan_stops_the_rotor(f550):
    plant, limited = (Plant(equal_rotors(f550), 1, p_W=(0, 0, 100)) for _ in range(2))
    plant.step([1.0, 1.0, 1.0, 0.0, 0.0, 0.0], 100)
    limited.step([7.0, math.inf, 1.0, -3.0, math.nan, 0.0], 100)
    np.testing.assert_array_equal(plant.motor_thrust_n, limited.motor_thrust_n)
    assert np.isfinite(limited.p_W).all()


def test_a_discharged_battery_gives_less_thrust(airframe):
    full, empty = (
        Plant(replace(airframe, battery=replace(airframe.battery, initial_remaining=z)), 1, p_W=(0, 0, 500))
        for z in (1.0, 0.15)
    )
    for plant in (full, empty):
        plant.step(np.full(6, 0.35), 1000)
    ratio = empty.battery_voltage_v / full.battery_voltage_v
    assert ratio < 0.95
    exponent = 2 * airframe.rotor.speed_voltage_exponent
    assert empty.motor_thrust_n.sum() / full.motor_thrust_n.sum() == pytest.approx(ratio**exponent, rel=0.005)


def test_sag_under_load_lowers_voltage_and_recovers(airframe):
    plant = Plant(airframe, 1, p_W=(0, 0, 500))
    rested = plant.battery_voltage_v
    plant.step(np.full(6, 0.9), 2000)
    loaded = plant.battery_voltage_v
    plant.step(OFF, 2000)
    assert loaded < 0.98 * rested
    assert loaded < plant.battery_voltage_v < rested


def test_same_seed_same_flight_other_seed_other_rotors(f550):
    command = np.array([0.36, 0.35, 0.34, 0.36, 0.35, 0.34])
    flights = []
    for seed in (5, 5, 6):
        plant = Plant(f550, seed, p_W=(0, 0, 100))
        plant.step(command, 1000, (1.0, 2.0, 0.0))
        flights.append(np.concatenate([plant.p_W, plant.v_W, plant.q_WB, plant.omega_B, plant.motor_thrust_n]))
    np.testing.assert_array_equal(flights[0], flights[1])
    assert not np.array_equal(flights[0], flights[2])


def test_spread_changes_single_rotors_but_not_their_sum(f550):
    plant = Plant(replace(f550, rotor=replace(f550.rotor, thrust_spread=0.05)), 3, p_W=(0, 0, 100))
    exact = Plant(equal_rotors(f550), 3, p_W=(0, 0, 100))
    plant.step(np.full(6, 0.4), 18)
    exact.step(np.full(6, 0.4), 13)  # the other one waits for its delay of 5 ms
    assert np.ptp(plant.motor_thrust_n) > 0.02 * plant.motor_thrust_n.mean()
    assert plant.motor_thrust_n.sum() == pytest.approx(exact.motor_thrust_n.sum(), rel=1e-9)


def test_how_a_flight_is_cut_into_calls_does_not_matter(f550):
    whole, cut = (Plant(f550, 1, p_W=(0, 0, 100)) for _ in range(2))
    whole.step(np.full(6, 0.5), 999)
    for steps in (1, 4, 4, 30, 60, 900):
        cut.step(np.full(6, 0.5), steps)
    assert whole.time_s == cut.time_s
    np.testing.assert_array_equal(whole.p_W, cut.p_W)
    np.testing.assert_array_equal(whole.q_WB, cut.q_WB)
    assert whole.battery_voltage_v == cut.battery_voltage_v


def test_attitude_integrates_the_body_rates(airframe):
    plant = Plant(in_vacuum(airframe), 1, p_W=(0, 0, 500), yaw_rad=0.3)
    before = plant.q_WB.copy()
    plant.omega_B[:] = 0.0, 0.0, 1.5
    plant.step(OFF, 1000)
    expected = quat_multiply(before, quat_from_rpy(0.0, 0.0, 1.5))
    assert abs(float(expected @ plant.q_WB)) == pytest.approx(1.0, abs=1e-9)


def test_the_simulator_does_not_import_the_controllers_model():
    root = Path(__file__).parents[2] / "sitl"
    for name in ("airframe", "plant", "battery", "wind", "sensors"):
        source = (root / f"{name}.py").read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            modules = [node.module] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for module in modules:
                assert module not in ("acados_gen.flight_model", "companion.core.vehicle"), (
                    f"{name}.py imports {module}"
                )
        assert "config/vehicles" not in source.replace("vehicle files of config/vehicles", "")

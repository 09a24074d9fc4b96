"""Models of drag, air near surfaces and motors, each against its equation."""

import math

import msgspec
import numpy as np
import pytest

from companion.core.config import ConfigError
from companion.core.frames import GRAVITY_M_S2, quat_from_rpy, rotation_matrix
from sitl.airframe import Drag, LinearDragModel, Motor, RotorDragModel, airframe_file, load_airframe
from sitl.plant import Plant

HOVER = np.full(6, 0.344)
ABOVE, BELOW, SIDE = 1, 0, 2
NO_DRAG = Drag(linear_n_s_m=(0.0, 0.0, 0.0), quadratic_n_s2_m2=(0.0, 0.0, 0.0), angular_n_m_s=(0.0, 0.0, 0.0))
AIR_DENSITY_KG_M3 = 1.225
replace = msgspec.structs.replace


@pytest.fixture
def f550():
    """The F550 with equal rotors and no angular drag of its hull, so that all torque is of the model in question."""
    airframe = load_airframe("f550")
    rotor = replace(airframe.rotor, thrust_spread=0.0, speed_voltage_exponent=0.0)
    return replace(airframe, rotor=rotor, command_delay_s=0.0, drag=NO_DRAG)


def spun_up(airframe, p_W=(0, 0, 100), command=HOVER):
    """A plant whose rotors turn steadily and which is then put to rest at p_W."""
    plant = Plant(airframe, 1, p_W=(0, 0, 100))
    plant.step(command, 1500)
    plant.v_W[:], plant.omega_B[:], plant.q_WB[:], plant.p_W[:] = 0.0, 0.0, (1, 0, 0, 0), p_W
    plant.step(command, 0)
    return plant


def accelerations(plant, command=HOVER):
    """Specific force in B [m/s²] and angular acceleration [rad/s²] of the present state, of the air and rotors alone."""
    plant.step(command, 0)
    force, before, state = plant.specific_force_B.copy(), plant.omega_B.copy(), plant.q_WB.copy()
    plant.step(command, 1)
    turn = (plant.omega_B - before) / 1e-3
    plant.q_WB[:], plant.omega_B[:] = state, before
    return force, turn


def test_linear_drag_is_d_times_the_velocity_in_the_body_frame(f550):
    airframe = replace(f550, linear_drag=LinearDragModel(d_n_s_m=(0.3, 0.5, 0.2)))
    plant = spun_up(airframe)
    still, _ = accelerations(plant)
    plant.q_WB[:] = quat_from_rpy(0.3, -0.4, 1.1)
    plant.v_W[:] = 6.0, -3.0, 2.0
    wind_W = np.array([1.0, 2.0, -0.5])
    plant.step(HOVER, 0, wind_W)
    expected = -np.array([0.3, 0.5, 0.2]) * (rotation_matrix(plant.q_WB).T @ (plant.v_W - wind_W)) / plant.mass_kg
    np.testing.assert_allclose(plant.specific_force_B - still, expected, atol=1e-9)


@pytest.mark.parametrize("each_rotor", [False, True])
def test_rotor_drag_is_equation_13_without_rotation(f550, each_rotor):
    k, b, c_d = 0.3, 0.9, 0.02
    airframe = replace(f550, rotor_drag=RotorDragModel(k=k, b=b, c_d=c_d, each_rotor=each_rotor))
    plant = spun_up(airframe)
    plant.q_WB[:] = quat_from_rpy(0.3, -0.4, 1.1)
    plant.v_W[:] = 6.0, -3.0, 2.0
    plant.step(HOVER, 0)
    v_B = rotation_matrix(plant.q_WB).T @ plant.v_W
    drag = -(k * plant.motor_thrust_n.sum() + 6 * b) * c_d * v_B * [1, 1, 0]
    expected = (drag + [0, 0, plant.motor_thrust_n.sum()]) / plant.mass_kg
    np.testing.assert_allclose(plant.specific_force_B, expected, atol=1e-9)


def test_drag_of_each_rotor_is_equation_11(f550):
    k, b, c_d = 0.3, 0.9, 0.05
    airframe = replace(f550, rotor_drag=RotorDragModel(k=k, b=b, c_d=c_d, each_rotor=True))
    command = HOVER + [0.05, -0.02, 0.0, 0.03, 0.01, -0.04]  # so each rotor has a thrust of its own
    plant = spun_up(airframe, command=command)
    _, still = accelerations(plant, command)
    plant.v_W[:], plant.omega_B[:] = (4.0, -2.0, 1.0), (1.0, -0.5, 2.0)
    plant.step(command, 0)
    arms = plant.shapes_B[4:10]
    local = plant.v_W + np.cross(plant.omega_B, arms)
    forces = -(k * plant.motor_thrust_n + b)[:, None] * c_d * local * [1, 1, 0]
    expected = (forces.sum(axis=0) + [0, 0, plant.motor_thrust_n.sum()]) / plant.mass_kg
    np.testing.assert_allclose(plant.specific_force_B, expected, atol=1e-9)
    _, turning = accelerations(plant, command)
    omega, inertia = plant.omega_B.copy(), np.array(f550.inertia_kg_m2)
    spin = f550.rotor.inertia_kg_m2 * plant.rotor_speed_rad_s @ [1, -1, 1, -1, 1, -1]
    gyro = np.cross(omega, inertia * omega + [0, 0, spin])
    expected = still + (np.cross(arms, forces).sum(axis=0) - gyro) / inertia
    np.testing.assert_allclose(turning, expected, atol=0.02)


def test_the_square_root_of_thrust_is_the_present_model_of_the_blades(f550):
    # c_d of equation 6, √T c_d v, is the default's in-plane drag over the rotor speed, so both models can be compared.
    plant = spun_up(f550)
    plant.v_W[0] = 5.0
    plant.step(HOVER, 0)
    rotor = f550.rotor
    c_d = rotor.in_plane_drag_n_s2_m_rad * rotor.speed_max_rad_s / math.sqrt(rotor.thrust_max_n)
    expected = -np.sqrt(plant.motor_thrust_n).sum() * c_d * 5.0
    assert plant.specific_force_B[0] * plant.mass_kg == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("gap", "expected"), [(4, 1.0039), (2, 1.0159), (1, 1.0667), (0.5, 1.3333), (0.1, 1.3333)])
def test_thrust_over_the_ground_follows_cheeseman_and_bennett(f550, gap, expected):
    plant = spun_up(f550)
    plant.clearance_m[:, BELOW] = gap * f550.rotor.radius_m
    plant.step(HOVER, 1)
    ratio = plant.motor_thrust_n.sum() / (6 * f550.rotor.thrust_max_n * (0.1 * 0.344**2 + 0.9 * 0.344))
    assert ratio == pytest.approx(expected, rel=1e-3)


def test_forward_flight_takes_the_ground_effect_away(f550):
    # 1 / (1 - (R/4z)² / (1 + (V/v_i)²)), with V = 2 v_i at one radius: 1 / (1 - 1/80)
    plant = spun_up(f550)
    plant.clearance_m[:, BELOW] = f550.rotor.radius_m
    free_n = plant.motor_thrust_n.copy()
    area = math.pi * f550.rotor.radius_m**2
    plant.v_W[0] = 2 * math.sqrt(free_n[0] / (2 * AIR_DENSITY_KG_M3 * area))
    plant.step(HOVER, 1)
    assert plant.motor_thrust_n.sum() / free_n.sum() == pytest.approx(80 / 79, rel=1e-4)


@pytest.mark.parametrize(
    ("gap", "published"), [(4, 1.00195), (2, 1.00776), (1, 1.03033), (0.6, 1.08037), (0.4, 1.16735), (0.25, 1.36603)]
)
def test_thrust_under_a_ceiling_follows_the_published_curve(f550, gap, published):
    # γ of Hsiao and Chirarattananon (2019), tabulated from its equation; measured as the plant's own acceleration.
    plant = spun_up(f550)
    free = plant.specific_force_B[2]
    plant.clearance_m[:, ABOVE] = gap * f550.rotor.radius_m
    plant.step(HOVER, 1)
    plant.v_W[:] = 0.0
    plant.step(HOVER, 0)
    assert plant.specific_force_B[2] / free == pytest.approx(published, rel=0.005)
    assert plant.disturbance_W[2] == pytest.approx(plant.specific_force_B[2] - free, abs=1e-3)


def test_momentum_theory_gives_the_same_curve():
    # v∞²/2 - v_i v∞ = v_i² / (16 δ²), the suction of the radial inflow on the ceiling, and γ = v∞ / 2 v_i.
    for delta in (0.25, 0.5, 1.0, 3.0):
        radii = (np.arange(20000) + 0.5) / 20000
        suction = np.sum(0.5 * (radii / (2 * delta)) ** 2 * 2 * radii) / 20000  # over ρ A v_i²
        far = max(np.roots([0.5, -1.0, -suction]).real)
        assert far / 2 == pytest.approx(0.5 + 0.5 * math.sqrt(1 + 1 / (8 * delta**2)), rel=1e-6)


def test_a_ceiling_pulls_up_and_its_pull_grows_without_jumps_to_contact(f550):
    gains, plant = [], spun_up(f550)
    for gap in np.linspace(5.0, 0.0, 501):
        plant.clearance_m[:, ABOVE] = gap * f550.rotor.radius_m
        plant.step(HOVER, 1)
        gains.append(plant.motor_thrust_n.sum())
    steps = np.diff(gains) / gains[0]
    assert (steps >= -1e-9).all() and steps.max() < 0.03 and gains[-1] < 1.4 * gains[0]


def test_a_ceiling_above_one_side_rolls_the_craft(f550):
    plant = spun_up(f550)
    plant.clearance_m[[0, 1, 2], ABOVE] = 0.5 * f550.rotor.radius_m  # above the right rotors: it rolls to the left
    plant.step(HOVER, 20)
    assert plant.omega_B[0] < -0.01


def test_the_yaw_torque_is_that_of_the_rotor_speed_alone(f550):
    plant = spun_up(f550)
    plant.clearance_m[[0, 2, 4], ABOVE] = 0.3 * f550.rotor.radius_m  # counter-clockwise rotors only
    plant.step(HOVER, 100)
    assert abs(plant.omega_B[2]) < 1e-6


@pytest.mark.parametrize("command", [HOVER, np.zeros(6)])
def test_a_wall_draws_the_craft_towards_it(f550, command):
    plant = spun_up(f550, command=command)
    plant.clearance_m[:, SIDE] = 1.5 * f550.rotor.radius_m
    plant.side_W[:] = [0.0, 1.0, 0.0]
    plant.step(command, 0)
    v_i = np.sqrt(plant.motor_thrust_n / (2 * AIR_DENSITY_KG_M3 * math.pi * f550.rotor.radius_m**2))
    drag = f550.rotor.in_plane_drag_n_s2_m_rad * plant.rotor_speed_rad_s
    expected = (drag * v_i).sum() / 36 / plant.mass_kg  # (R/4d)² = 1/36
    assert plant.specific_force_B[1] == pytest.approx(expected, abs=1e-9)
    assert plant.disturbance_W[1] == pytest.approx(expected, abs=1e-9)
    assert (expected > 0.01) == bool(command.any())


def test_no_surface_in_reach_changes_nothing(f550):
    # All inputs at infinity are the beginning; the same bits as without this part of the model are checked by flights.
    one, other = (Plant(f550, 3, p_W=(0, 0, 20)) for _ in range(2))
    other.clearance_m[:] = 1e9
    other.side_W[:] = [1.0, 0.0, 0.0]
    for plant in (one, other):
        plant.step(HOVER, 2000, (3.0, 1.0, 0.0))
    np.testing.assert_allclose(one.p_W, other.p_W, atol=1e-9)
    assert np.isinf(one.clearance_m).all()


def test_the_ground_counts_only_where_the_airframe_says_so(f550):
    thrust = []
    for effect in (None, True):
        plant = spun_up(replace(f550, ground_effect=effect), p_W=(0, 0, 0.2))
        plant.step(HOVER, 1)
        thrust.append(plant.motor_thrust_n.sum())
    z = 0.2 + f550.rotor.height_m
    assert thrust[1] / thrust[0] == pytest.approx(1 / (1 - (f550.rotor.radius_m / (4 * z)) ** 2), rel=1e-4)


def motor(airframe):
    """The F550 with the motors of equation 25: time constant 4e-5 · 840 / 0.84 = 40 ms."""
    return replace(airframe, motor=Motor(starting_torque_n_m=0.84, idle_speed_rad_s=840.0))


def test_a_step_of_the_motor_follows_equation_25_in_closed_form(f550):
    plant = Plant(motor(f550), 1, p_W=(0, 0, 500))
    duty, t_c, idle = math.sqrt(0.1 * 0.6**2 + 0.9 * 0.6), 0.04, 840.0
    start = plant.rotor_speed_rad_s[0]
    goal = idle * duty * plant.battery_voltage_v / f550.battery.reference_voltage_v
    for ms in range(1, 20):  # the battery is read each 20 ms
        plant.step(np.full(6, 0.6), 1)
        expected = goal + (start - goal) * math.exp(-ms * 1e-3 / t_c)
        assert plant.rotor_speed_rad_s[0] == pytest.approx(expected, rel=1e-6)


def test_the_motor_follows_the_voltage_of_the_battery_up_and_down(f550):
    # Equation 25 itself, integrated in steps of 10 µs, with the voltage that the battery had.
    plant = Plant(motor(f550), 1, p_W=(0, 0, 500))
    inertia, torque, idle, speed = f550.rotor.inertia_kg_m2, 0.84, 840.0, 0.0
    for command in (0.9, 0.2, 0.5):
        for _ in range(5):
            ratio = plant.battery_voltage_v / f550.battery.reference_voltage_v
            duty = ratio * math.sqrt(0.1 * command**2 + 0.9 * command)
            plant.step(np.full(6, command), 20)
            for _ in range(2000):
                half = speed + 0.5e-5 * torque / inertia * (duty - speed / idle)
                speed += 1e-5 * torque / inertia * (duty - half / idle)
            np.testing.assert_allclose(plant.rotor_speed_rad_s, speed, rtol=1e-6)


@pytest.mark.parametrize("idle_speed_rad_s", [700.0, 840.0, 950.0])
def test_the_thrust_of_an_airframe_is_that_of_its_motors_at_full_command(f550, idle_speed_rad_s):
    battery = replace(f550.battery, internal_resistance_ohm=1e-4, polarisation_resistance_ohm=1e-4)
    airframe = replace(f550, battery=battery, motor=Motor(starting_torque_n_m=0.84, idle_speed_rad_s=idle_speed_rad_s))
    assert airframe.contradiction() == ""
    plant = Plant(airframe, 1, p_W=(0, 0, 500))
    plant.step(np.ones(6), 20)  # the battery is read each 20 ms: the voltage of the next ones is known
    for _ in range(400):
        ratio = plant.battery_voltage_v / battery.reference_voltage_v
        plant.step(np.ones(6), 1)
    assert plant.motor_thrust_n.sum() == pytest.approx(airframe.thrust_max_n * ratio**2, rel=0.02)


def test_motors_that_do_not_lift_the_aircraft_are_refused(tmp_path):
    """A rotor turns with its idle speed at full command, whatever rotor.speed_max_rad_s is."""
    path = tmp_path / "bad.toml"
    more = "\n[motor]\nstarting_torque_n_m = 0.9\nidle_speed_rad_s = 300.0\n"
    path.write_text(airframe_file("f550").read_text(encoding="utf-8") + more, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"a hover needs 252% of the thrust of rotor 0.*motor\.idle_speed_rad_s"):
        load_airframe(str(path))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("[linear_drag]\nd_n_s_m = [0.3, 0.3]", ("linear_drag.d_n_s_m",)),
        ("[linear_drag]\nd_n_s_m = [0.3, 0.3, -1.0]", ("linear_drag.d_n_s_m", "0 to 50 N s/m")),
        ("[rotor_drag]\nk = 0.3\nb = 0.9\nc_d = 0.02", ("rotor_drag.each_rotor", "missing key")),
        ("[rotor_drag]\nk = 0.3\nb = -0.9\nc_d = 0.02\neach_rotor = true", ("rotor_drag.b = -0.9", "√N")),
        ("[rotor_drag]\nk = 0.3\nb = 0.9\nc_d = 0.02\neach_rotor = 1", ("rotor_drag.each_rotor",)),
        (
            "[linear_drag]\nd_n_s_m = [0.3, 0.3, 0.1]\n[rotor_drag]\nk = 0.3\nb = 0.9\nc_d = 0.02\neach_rotor = true",
            ("linear_drag", "rotor_drag", "one model"),
        ),
        ("[motor]\nstarting_torque_n_m = 0.0\nidle_speed_rad_s = 840.0", ("motor.starting_torque_n_m = 0", "N m")),
        ("[motor]\nstarting_torque_n_m = 0.8", ("motor.idle_speed_rad_s", "missing key")),
        ("[ceiling]\nk = 1.0", ("ceiling", "unknown key")),
    ],
)
def test_a_bad_model_is_refused_by_name(tmp_path, more, expected):
    path = tmp_path / "bad.toml"
    path.write_text(airframe_file("f550").read_text(encoding="utf-8") + "\n" + more, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        load_airframe(str(path))
    assert all(part in str(error.value) for part in (*expected, "bad.toml"))
    assert "\n" not in str(error.value)


def test_a_motor_needs_an_inertia(tmp_path):
    text = airframe_file("f550").read_text(encoding="utf-8")
    path = tmp_path / "bad.toml"
    more = "\n[motor]\nstarting_torque_n_m = 0.8\nidle_speed_rad_s = 840.0\n"
    path.write_text(text.replace("inertia_kg_m2 = 4.0e-5", "inertia_kg_m2 = 0.0") + more, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"bad\.toml: motor: needs rotor\.inertia_kg_m2"):
        load_airframe(str(path))


def test_ground_effect_is_a_yes_or_no(tmp_path):
    text = airframe_file("f550").read_text(encoding="utf-8")
    path = tmp_path / "bad.toml"
    path.write_text(text.replace("mass_kg = 1.8", "ground_effect = 1\nmass_kg = 1.8"), encoding="utf-8")
    with pytest.raises(ConfigError, match="ground_effect"):
        load_airframe(str(path))


def test_gravity_alone_moves_a_craft_with_still_rotors_under_a_ceiling(f550):
    plant = Plant(f550, 1, p_W=(0, 0, 50))
    plant.clearance_m[:] = 0.0
    plant.step(np.zeros(6), 100)
    assert plant.v_W[2] == pytest.approx(-0.1 * GRAVITY_M_S2, rel=1e-9)

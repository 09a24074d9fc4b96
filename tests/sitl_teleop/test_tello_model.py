"""The Lagrangian model of the teleoperation paper against a second derivation, and algorithm 1."""

import math

import numpy as np
import pytest
import sympy as sp

from companion.core.arrays import Array
from sitl.teleop import tello
from sitl.teleop.sticks import STILL, Air, Sticks
from sitl.teleop.tello import ANGLE, PUBLISHED, RATE, Tello, library, rotor_torques, vector

UNEQUAL = {**PUBLISHED, "i_xx": 4e-3, "i_yy": 5.5e-3, "i_zz": 9e-3}  # with equal moments most Coriolis terms vanish
N_STATES = 40


def kernel_acceleration(parameters: dict[str, float], angles: Array, rates: Array, torque: Array) -> Array:
    state, found = np.zeros(tello.STATES), np.zeros(3)
    state[ANGLE : ANGLE + 3], state[RATE : RATE + 3] = angles, rates
    p = vector(parameters)
    library().tello_rotation(p.ctypes.data, state.ctypes.data, torque.ctypes.data, found.ctypes.data)
    return found


@pytest.fixture(scope="module")
def derived():
    """From the rotation alone: ω from R' = R [ω]×, kinetic energy, d/dt ∂L/∂η' - ∂L/∂η; nothing of the appendix."""
    t = sp.symbols("t")
    inertia = sp.symbols("i_x i_y i_z", positive=True)
    phi, theta, psi = (sp.Function(name)(t) for name in ("phi", "theta", "psi"))
    eta = sp.Matrix([phi, theta, psi])
    R = sp.rot_ccw_axis3(psi) * sp.rot_ccw_axis1(phi) * sp.rot_ccw_axis2(theta)
    spin = R.T * R.diff(t)
    omega = sp.Matrix([spin[2, 1], spin[0, 2], spin[1, 0]])
    energy = sum(i * w**2 for i, w in zip(inertia, omega, strict=True)) / 2
    rate = eta.diff(t)
    force = sp.Matrix([sp.diff(energy, r).diff(t) - sp.diff(energy, q) for q, r in zip(eta, rate, strict=True)])
    q, dq, ddq = (sp.symbols(f"{name}:3") for name in ("q", "dq", "ddq"))
    plain = [(eta.diff(t, 2)[i], ddq[i]) for i in range(3)] + [(rate[i], dq[i]) for i in range(3)]
    plain += [(eta[i], q[i]) for i in range(3)]
    arguments = [*q, *dq, *ddq, *inertia]
    return (
        sp.lambdify(arguments, force.subs(plain), "numpy"),
        sp.lambdify(arguments, energy.subs(plain), "numpy"),
        sp.lambdify(q, R.subs(plain), "numpy"),
    )


def states(seed: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    angles = rng.uniform([-1.3, -3.0, -3.0], [1.3, 3.0, 3.0], (N_STATES, 3))
    return angles, rng.uniform(-4.0, 4.0, (N_STATES, 3)), rng.uniform(-0.05, 0.05, (N_STATES, 3))


def test_inertia_and_coriolis_terms_are_those_of_an_independent_derivation(derived) -> None:
    """Torque that the derivation needs for the kernel's acceleration = torque given, without friction."""
    frictionless = {**UNEQUAL, "b_phi": 0.0, "b_theta": 0.0, "b_psi": 0.0}
    moments = [frictionless[name] for name in ("i_xx", "i_yy", "i_zz")]
    for angles, rates, torque in zip(*states(1), strict=True):
        acceleration = kernel_acceleration(frictionless, angles, rates, torque)
        needed = derived[0](*angles, *rates, *acceleration, *moments)
        assert np.asarray(needed, dtype=float).ravel() == pytest.approx(torque, abs=1e-12)


def test_friction_acts_on_the_rates_of_the_angles(derived) -> None:
    moments = [UNEQUAL[name] for name in ("i_xx", "i_yy", "i_zz")]
    friction = np.array([UNEQUAL[name] for name in ("b_phi", "b_theta", "b_psi")])
    for angles, rates, torque in zip(*states(2), strict=True):
        acceleration = kernel_acceleration(UNEQUAL, angles, rates, torque)
        needed = np.asarray(derived[0](*angles, *rates, *acceleration, *moments), dtype=float).ravel()
        assert needed + friction * rates == pytest.approx(torque, abs=1e-12)


def test_without_friction_and_torque_the_rotational_energy_stays(derived) -> None:
    """Explicit Euler at a tenth of the error for a tenth of the step: the energy error is the integrator's alone."""
    frictionless = {**UNEQUAL, "b_phi": 0.0, "b_theta": 0.0, "b_psi": 0.0}
    moments = [frictionless[name] for name in ("i_xx", "i_yy", "i_zz")]

    def drift(step_s: float) -> float:
        angles, rates = np.array([0.3, 0.4, 0.1]), np.array([0.9, -0.7, 1.1])
        before = derived[1](*angles, *rates, 0, 0, 0, *moments)
        for _ in range(round(0.5 / step_s)):
            acceleration = kernel_acceleration(frictionless, angles, rates, np.zeros(3))
            angles, rates = angles + step_s * rates, rates + step_s * acceleration
        return abs(derived[1](*angles, *rates, 0, 0, 0, *moments) / before - 1.0)

    assert drift(1e-3) < 2e-3
    assert drift(1e-4) < 0.15 * drift(1e-3)


def test_power_is_torque_times_rate_less_friction(derived) -> None:
    moments = [UNEQUAL[name] for name in ("i_xx", "i_yy", "i_zz")]
    friction = np.array([UNEQUAL[name] for name in ("b_phi", "b_theta", "b_psi")])
    h = 1e-6
    for angles, rates, torque in zip(*states(3), strict=True):
        acceleration = kernel_acceleration(UNEQUAL, angles, rates, torque)

        def energy(at: float, a=angles, r=rates, dd=acceleration) -> float:
            return float(derived[1](*(a + at * r + 0.5 * at * at * dd), *(r + at * dd), 0, 0, 0, *moments))

        power = (energy(h) - energy(-h)) / (2 * h)
        assert power == pytest.approx(float(rates @ (torque - friction * rates)), rel=1e-5, abs=1e-8)


def test_the_thrust_points_along_the_third_axis_of_the_derived_rotation(derived) -> None:
    vehicle = Tello(floor=False)
    vehicle.state[ANGLE : ANGLE + 3] = angles = [0.3, -0.4, 2.0]
    R = derived[2](*angles)
    assert np.abs(vehicle.pose().R_WB - R).max() < 1e-12
    vehicle.advance(Sticks(), STILL, 1)
    thrust = vehicle.state[tello.THRUST]
    gained = vehicle.state[tello.V : tello.V + 3] / tello.STEP_S * PUBLISHED["m"] + [0, 0, PUBLISHED["m"] * 9.81]
    assert gained == pytest.approx(thrust * R[:, 2], abs=1e-9)


def test_rotor_torques_give_back_thrust_and_torques() -> None:
    torque = np.array([0.01, -0.02, 0.005])
    t = rotor_torques(2.2, torque)
    assert t.sum() / tello.ARM_M == pytest.approx(2.2)
    assert [t[2] + t[3] - t[0] - t[1], t[3] + t[0] - t[1] - t[2], t[0] - t[1] + t[2] - t[3]] == pytest.approx(torque)


def test_one_second_of_each_stick_moves_its_reference_as_algorithm_1() -> None:
    vehicle = Tello(floor=False)
    vehicle.advance(Sticks(climb=0.5, yaw=-0.25), STILL, 1000)
    assert vehicle.state[tello.WANTED : tello.WANTED + 2] == pytest.approx([1.4, 0.675])
    vehicle.advance(Sticks(climb=-1.0), STILL, 2000)
    assert vehicle.state[tello.WANTED] == 0.0  # not below the floor
    vehicle.advance(Sticks(ahead=0.5, right=0.5), STILL, 1)
    assert vehicle.state[tello.WANTED + 2 : tello.WANTED + 4] == pytest.approx([0.49395, 0.1515])
    vehicle.advance(Sticks(ahead=-1.0), STILL, 1)
    assert vehicle.state[tello.WANTED + 2 : tello.WANTED + 4] == pytest.approx([-math.pi / 4, 0.0])


def test_the_other_reading_of_algorithm_1_adds_to_the_tilt_at_every_step() -> None:
    vehicle = Tello({"tilt_by_steps": 1.0}, floor=False)
    vehicle.advance(Sticks(right=0.1), STILL, 10)
    assert vehicle.state[tello.WANTED + 3] == pytest.approx(0.303)
    vehicle.advance(Sticks(), STILL, 1)
    assert vehicle.state[tello.WANTED + 3] == 0.0


def test_sticks_move_the_aircraft_where_they_point() -> None:
    for sticks, axis, sign in ((Sticks(ahead=0.5), 0, 1), (Sticks(right=0.5), 1, -1), (Sticks(climb=0.5), 2, 1)):
        vehicle = Tello()
        vehicle.advance(Sticks(climb=0.5), STILL, 1000)
        before = vehicle.pose().p_W
        vehicle.advance(sticks, STILL, 2000)
        moved = vehicle.pose().p_W - before
        assert sign * moved[axis] > 0.1
    vehicle.advance(Sticks(yaw=0.5), STILL, 1000)
    assert vehicle.pose().yaw_rad < -1.0  # clockwise


def test_the_fixed_step_gives_the_same_flight_in_any_portions() -> None:
    once, often = Tello(), Tello()
    sticks = Sticks(0.3, -0.2, 0.4, 0.1)
    once.advance(sticks, STILL, 900)
    for _ in range(90):
        often.advance(sticks, STILL, 10)
    assert np.array_equal(once.state, often.state)


def test_wind_carries_it_away_at_the_speed_of_the_air() -> None:
    vehicle = Tello()
    vehicle.advance(Sticks(climb=0.5), STILL, 1000)
    vehicle.advance(Sticks(), Air(wind_W=(1.0, -2.0, 0.0)), 3000)
    assert vehicle.pose().v_W == pytest.approx([1.0, -2.0, 0.0], abs=0.01)


def test_the_floor_stops_it_and_keeps_the_speed_of_the_impact() -> None:
    vehicle = Tello()
    vehicle.advance(Sticks(climb=0.5), STILL, 1000)
    vehicle.advance(Sticks(ahead=0.2), Air(thrust_factor=0.0), 3000)
    pose = vehicle.pose()
    assert pose.on_floor
    assert pose.p_W[2] == 0.0
    assert pose.impact_m_s == pytest.approx(2.16, abs=0.05)  # m g / b = 2.2 m/s is the fastest it falls
    assert pose.v_W[:2] == pytest.approx([0.0, 0.0])


def test_gains_that_are_unstable_at_one_millisecond_end_as_lost_not_as_numbers() -> None:
    vehicle = Tello(dict.fromkeys(tello.GAINS, 15.0))
    vehicle.advance(Sticks(ahead=0.1), STILL, 5000)
    assert vehicle.pose().lost

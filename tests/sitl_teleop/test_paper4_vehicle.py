"""The quadrotor of the paper on flight modes: its equations one by one, and flights in both modes."""

import math

import numpy as np
import pytest

from companion.remote.flight_modes import FlightMode
from sitl.teleop.paper4 import (
    NUMBERS,
    Modes,
    Paper4,
    Targets,
    gyroscopic,
    mixer,
    motor_acceleration,
    torques,
    voltages,
)
from sitl.teleop.sticks import STILL, Air, Sticks

RNG = np.random.default_rng(4)


def hovering(yaw_rad: float = 0.0, mode: FlightMode = FlightMode.BODY) -> Paper4:
    vehicle = Paper4()
    turn_s = abs(yaw_rad) / NUMBERS.turn_rate_rad_s
    vehicle.advance(Sticks(climb=1.0), STILL, 1500)
    vehicle.advance(Sticks(yaw=-math.copysign(1.0, yaw_rad)), STILL, round(turn_s * 1000))
    vehicle.advance(Sticks(mode=mode), STILL, 3000)
    return vehicle


def test_the_control_law_makes_equation_2_linear() -> None:
    for angles, rates, wanted, wanted_rates in RNG.uniform(-1.0, 1.0, (50, 4, 3)):
        targets = Targets(tuple(wanted), tuple(wanted_rates), 0.0, 0.0)
        torque = torques(NUMBERS, targets, angles, rates)
        accelerations = (gyroscopic(NUMBERS, rates) + torque) / NUMBERS.inertia_kg_m2
        linear = np.asarray(NUMBERS.k1) * (wanted - angles) + np.asarray(NUMBERS.k2) * (wanted_rates - rates)
        assert accelerations == pytest.approx(linear, abs=1e-12)


def test_the_rotors_make_the_thrust_and_torques_that_were_asked_for() -> None:
    """Equation 3 with rotors 1, 2 ahead and 1, 4 to the right: torque = position × thrust."""
    k, x, y = NUMBERS.lift_n_s2, NUMBERS.arm_x_m, NUMBERS.arm_y_m
    places = np.array([[x, y, 0.0], [-x, y, 0.0], [-x, -y, 0.0], [x, -y, 0.0]])
    squares = RNG.uniform(0.0, 9e5, 4)
    thrust, t_phi, t_theta, _ = mixer(NUMBERS) @ squares
    by_hand = np.cross(places, np.column_stack([np.zeros((4, 2)), k * squares])).sum(axis=0)
    assert (t_phi, t_theta) == pytest.approx(by_hand[:2], abs=1e-12)
    assert thrust == pytest.approx(k * squares.sum())
    assert np.linalg.solve(mixer(NUMBERS), mixer(NUMBERS) @ squares) == pytest.approx(squares)


def test_the_voltage_makes_equation_25_a_lag_of_the_chosen_speed() -> None:
    speed, wanted = RNG.uniform(0.0, 900.0, (2, 4))
    got = motor_acceleration(NUMBERS, speed, voltages(NUMBERS, speed, wanted))
    assert got == pytest.approx(NUMBERS.motor_gain_1_s * (wanted - speed), abs=1e-9)


def test_it_climbs_holds_its_height_and_keeps_the_voltage_within_its_limits() -> None:
    vehicle, largest = Paper4(), 0.0
    for _ in range(60):
        vehicle.advance(Sticks(climb=1.0, ahead=1.0, right=-1.0, yaw=1.0), STILL, 25)
        assert vehicle.voltage.min() >= 0.0
        largest = max(largest, vehicle.voltage.max())
    assert largest <= 1.0
    vehicle = hovering()
    assert vehicle.pose().p_W == pytest.approx([0.0, 0.0, 3.0], abs=0.05)


@pytest.mark.parametrize("yaw_deg", [-150.0, 45.0])
def test_headless_moves_in_the_same_direction_of_the_world_wherever_the_nose_is(yaw_deg: float) -> None:
    for ahead, right in ((0.4, 0.4), (-0.2, 0.5)):
        directions = []
        for yaw_rad in (0.0, math.radians(yaw_deg)):
            vehicle = hovering(yaw_rad, FlightMode.HEADLESS)
            before = vehicle.pose()
            assert before.yaw_rad == pytest.approx(yaw_rad, abs=0.02)
            vehicle.advance(Sticks(ahead, right, mode=FlightMode.HEADLESS), STILL, 2000)
            moved = vehicle.pose().p_W - before.p_W
            directions.append(math.atan2(moved[1], moved[0]))
        assert abs(math.remainder(directions[1] - directions[0], 2 * math.pi)) < math.radians(1.0)


def test_body_mode_moves_along_the_nose() -> None:
    vehicle = hovering(math.radians(90.0))
    before = vehicle.pose().p_W
    vehicle.advance(Sticks(ahead=0.5), STILL, 2000)
    moved = vehicle.pose().p_W - before
    assert math.degrees(math.atan2(moved[1], moved[0])) == pytest.approx(90.0, abs=1.0)


def test_switching_with_the_sticks_held_moves_no_target_at_once() -> None:
    modes, last, largest = Modes(NUMBERS), None, 0.0
    for i in range(1500):
        mode = FlightMode.HEADLESS if (i // 200) % 2 else FlightMode.BODY
        targets = modes.targets(Sticks(0.6, -0.3, 0.0, 0.4 if i < 300 else 0.0, mode), 0.004)
        if last is not None and i > 150:
            largest = max(largest, *np.abs(np.subtract(targets.angles, last)))
        last = targets.angles
    assert largest < 0.015  # 4 ms of a turn at 1.5 rad/s or of half a second across 90° of tilt


def test_wind_torque_and_weak_thrust_act() -> None:
    calm, windy = hovering(), hovering()
    windy.advance(Sticks(), Air(wind_W=(0.0, 2.0, 0.0)), 2000)
    assert windy.pose().p_W[1] > 0.3
    calm.advance(Sticks(), Air(torque=(0.02, 0.0, 0.0)), 2000)
    assert calm.pose().p_W[1] < -0.05  # right side down: it moves to the right
    weak = hovering()
    weak.advance(Sticks(), Air(thrust_factor=0.0), 1500)
    assert weak.pose().on_floor
    assert weak.pose().impact_m_s > 3.0

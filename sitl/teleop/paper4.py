"""The vehicle `paper4`: the quadrotor, motors and controller of the paper on flight modes, as a whole system.

Source: E. V. Strashnov, I. N. Mironenko, L. A. Finagin, 2020, doi 10.14357/20718632200109 (`companion.remote.flight_modes` has
the title and the equations of the modes). Axes of the source: x to the right, y along the nose, z up; φ, θ, ψ turn
about x, y, z, and equation 2 takes their rates as body rates.

    equation 2     I_x φ'' = (I_y - I_z) θ' ψ' + τ_φ   and so on round
    equation 3     τ_φ = k l_y (Ω1² + Ω2² - Ω3² - Ω4²), τ_θ = k l_x (-Ω1² + Ω2² + Ω3² - Ω4²),
                   τ_ψ = b (-Ω1² + Ω2² - Ω3² + Ω4²)
    equation 25    t_c Ω' = Ω_idle U - Ω, from I_m Ω' = M_s (U - Ω / Ω_idle) and I_m = M_s t_c / Ω_idle
    control        τ* = I (k1 (φ* - φ) + k2 (φ*' - φ')) less the gyroscopic term of equation 2, so that the angles obey
                   e'' + k2 e' + k1 e = 0; the source prints the law without that term
    voltage        U = ((1 - t_c k_m) Ω + t_c k_m Ω*) / Ω_idle, so that Ω' = k_m (Ω* - Ω)

The source prints no number of its aircraft and leaves the translation to another paper. Here that is thrust along the
body's z, weight and linear drag, and the height is controlled by the same law as the angles. The numbers below are
chosen for a quadrotor of 350 mm.
"""

import math
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.remote.flight_modes import (
    FROM_FLU,
    SWITCH_S,
    EulerAngles,
    FlightMode,
    gamma_for_heading,
    headless_angles,
    stick_turns,
    to_flu,
    zyx_matrix,
)
from sitl.teleop.sticks import Air, Pose, Sticks

STEP_S = 1e-3
CONTROL_STEPS = 4  # the controller at 250 Hz; the source's whole loop takes up to 40 ms
UPRIGHT_RAD = math.radians(85.0)  # beyond, the height law divides by nearly nothing


class Paper4Numbers(NamedTuple):
    """A quadrotor of 350 mm between opposite motors."""

    mass_kg: float = 1.2
    gravity_m_s2: float = 9.80665
    inertia_kg_m2: tuple[float, float, float] = (0.012, 0.011, 0.02)
    arm_x_m: float = 0.124
    arm_y_m: float = 0.124
    lift_n_s2: float = 8.0e-6  # k
    drag_n_m_s2: float = 1.5e-7  # b
    idle_speed_rad_s: float = 950.0  # Ω_idle: at nominal voltage, 2.5 times the weight in thrust
    motor_time_s: float = 0.04  # t_c
    motor_gain_1_s: float = 40.0  # k_m
    air_drag_n_s_m: float = 0.35
    k1: tuple[float, float, float] = (64.0, 64.0, 9.0)  # of φ, θ, ψ: 8 and 3 rad/s, critically damped
    k2: tuple[float, float, float] = (16.0, 16.0, 6.0)
    height_k1: float = 4.0
    height_k2: float = 4.0
    tilt_max_rad: float = math.radians(45.0)  # at full stick, as the source says of a DJI Phantom
    turn_rate_rad_s: float = 1.5
    climb_m_s: float = 2.0
    stick_time_s: float = 0.1  # lag of the sticks, so that the wanted angles have a rate


NUMBERS = Paper4Numbers()


class Targets(NamedTuple):
    """Wanted angles of the source's axes and wanted height, with their rates."""

    angles: tuple[float, float, float]
    rates: tuple[float, float, float]
    height_m: float
    climb_m_s: float


class Modes:
    """Wanted angles from the sticks: the two flight modes of the source with a soft switch between them."""

    def __init__(self, numbers: Paper4Numbers) -> None:
        self._n = numbers
        self._stick = [0.0, 0.0]  # ahead, right, behind the lag
        self._psi = 0.0
        self._gamma = 0.0
        self._headless = 0.0  # share of the headless angles
        self._height_m = 0.0
        self._last: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def targets(self, sticks: Sticks, elapsed_s: float) -> Targets:
        """Targets after a time with these sticks; switching the mode moves no target at once."""
        n = self._n
        keep = math.exp(-elapsed_s / n.stick_time_s)
        self._stick = [keep * old + (1.0 - keep) * new for old, new in zip(self._stick, sticks[:2], strict=True)]
        turned = -sticks.yaw * n.turn_rate_rad_s * elapsed_s
        ahead, right = self._stick
        alpha, beta = stick_turns(ahead, right, n.tilt_max_rad)
        if sticks.mode is FlightMode.HEADLESS:
            if self._headless == 0.0:
                self._gamma = gamma_for_heading(alpha, beta, self._psi)
            self._gamma += turned
            self._headless = min(1.0, self._headless + elapsed_s / SWITCH_S)
            headless = headless_angles(alpha, beta, self._gamma)
            self._psi += math.remainder(headless.psi - self._psi, 2.0 * math.pi)
        else:
            self._psi += turned
            self._headless = max(0.0, self._headless - elapsed_s / SWITCH_S)
            headless = headless_angles(alpha, beta, gamma_for_heading(alpha, beta, self._psi))
        share = self._headless
        wanted = (
            (1.0 - share) * alpha + share * headless.phi,
            (1.0 - share) * beta + share * headless.theta,
            self._psi,
        )
        rates = [(new - old) / elapsed_s for new, old in zip(wanted, self._last, strict=True)]
        self._last = wanted
        self._height_m = max(0.0, self._height_m + sticks.climb * n.climb_m_s * elapsed_s)
        climb = sticks.climb * n.climb_m_s if self._height_m > 0.0 else 0.0
        return Targets(wanted, (rates[0], rates[1], rates[2]), self._height_m, climb)


def torques(n: Paper4Numbers, targets: Targets, angles: Array, rates: Array) -> Array:
    """τ* about φ, θ, ψ that make equation 2 linear in the errors of the angles [N m], shape (3,)."""
    error = np.asarray(targets.angles) - angles
    accelerations = np.asarray(n.k1) * error + np.asarray(n.k2) * (np.asarray(targets.rates) - rates)
    found: Array = np.asarray(n.inertia_kg_m2) * accelerations - gyroscopic(n, rates)
    return found


def gyroscopic(n: Paper4Numbers, rates: Array) -> Array:
    """The products of rates in equation 2 [N m], shape (3,)."""
    i_x, i_y, i_z = n.inertia_kg_m2
    p, q, r = rates
    return np.array([(i_y - i_z) * q * r, (i_z - i_x) * p * r, (i_x - i_y) * p * q])


def mixer(n: Paper4Numbers) -> Array:
    """(thrust, τ_φ, τ_θ, τ_ψ) per square of each motor's speed: equation 3 with the thrust, shape (4, 4)."""
    x, y, k, b = n.arm_x_m, n.arm_y_m, n.lift_n_s2, n.drag_n_m_s2
    return np.array(
        [
            [k, k, k, k],
            [k * y, k * y, -k * y, -k * y],
            [-k * x, k * x, k * x, -k * x],
            [-b, b, -b, b],
        ]
    )


def voltages(n: Paper4Numbers, speed: Array, wanted: Array) -> Array:
    """U of each motor as a part of the nominal voltage, before its limits of 0 and 1, shape (4,)."""
    share = n.motor_time_s * n.motor_gain_1_s
    found: Array = ((1.0 - share) * speed + share * wanted) / n.idle_speed_rad_s
    return found


def motor_acceleration(n: Paper4Numbers, speed: Array, voltage: Array) -> Array:
    """Ω' of equation 25 [rad/s²], shape (4,)."""
    found: Array = (n.idle_speed_rad_s * voltage - speed) / n.motor_time_s
    return found


class Paper4:
    """The vehicle for `companion teleop`: sticks in, pose out; stands on the floor at the origin, nose ahead."""

    name = "paper4"
    radius_m = 0.3  # of the sphere around the aircraft that touches solids: half of its diagonal with propellers

    def __init__(self, numbers: Paper4Numbers = NUMBERS, floor: bool = True) -> None:
        self.numbers = numbers
        self.modes = Modes(numbers)
        self.angles, self.rates = np.zeros(3), np.zeros(3)  # φ, θ, ψ of the source
        self.position, self.velocity = np.zeros(3), np.zeros(3)  # right, ahead, up
        self.speed = np.zeros(4)  # of the motors [rad/s]
        self.voltage = np.zeros(4)
        self._floor, self._on_floor, self._impact, self._lost = floor, floor, 0.0, False
        self._mixer = mixer(numbers)
        self._unmix = np.linalg.inv(self._mixer)
        self._step = 0

    def advance(self, sticks: Sticks, air: Air, steps: int) -> None:
        """Fly this many milliseconds with sticks and air held."""
        wind = FROM_FLU @ np.asarray(air.wind_W)
        added = FROM_FLU @ np.asarray(air.torque)
        for _ in range(steps):
            if self._lost:
                return
            if self._step % CONTROL_STEPS == 0:
                self._control(sticks)
            self._step += 1
            self._move(air.thrust_factor, added, wind)

    def _control(self, sticks: Sticks) -> None:
        n = self.numbers
        targets = self.modes.targets(sticks, CONTROL_STEPS * STEP_S)
        upright = math.cos(self.angles[0]) * math.cos(self.angles[1])
        lift = n.height_k1 * (targets.height_m - self.position[2]) + n.height_k2 * (
            targets.climb_m_s - self.velocity[2]
        )
        thrust = max(0.0, n.mass_kg * (n.gravity_m_s2 + lift) / upright)
        wanted = self._unmix @ np.array([thrust, *torques(n, targets, self.angles, self.rates)])
        speeds = np.sqrt(np.clip(wanted, 0.0, n.idle_speed_rad_s**2))
        self.voltage = np.clip(voltages(n, self.speed, speeds), 0.0, 1.0)

    def _move(self, thrust_factor: float, added: Array, wind: Array) -> None:
        n = self.numbers
        thrust, *torque = self._mixer @ (self.speed * self.speed)
        R = zyx_matrix(EulerAngles(*self.angles.tolist()))
        linear = (R[:, 2] * (thrust_factor * thrust) - n.air_drag_n_s_m * (self.velocity - wind)) / n.mass_kg
        linear[2] -= n.gravity_m_s2
        angular = (gyroscopic(n, self.rates) + torque + added) / np.asarray(n.inertia_kg_m2)
        self.position += STEP_S * self.velocity
        self.angles += STEP_S * self.rates
        self.velocity += STEP_S * linear
        self.rates += STEP_S * angular
        self.speed += STEP_S * motor_acceleration(n, self.speed, self.voltage)
        if self._floor:
            self._on_floor = bool(self.position[2] <= 0.0)
            if self._on_floor:
                self._impact = max(self._impact, -float(self.velocity[2]))
                self.position[2] = 0.0
                self.velocity[:2] = 0.0
                self.velocity[2] = max(0.0, self.velocity[2])
        self._lost = not (abs(self.angles[0]) < UPRIGHT_RAD and abs(self.angles[1]) < UPRIGHT_RAD)

    def pose(self) -> Pose:
        """Where the aircraft is now."""
        R_WB = to_flu(zyx_matrix(EulerAngles(*self.angles.tolist())))
        return Pose(
            p_W=FROM_FLU.T @ self.position,
            v_W=FROM_FLU.T @ self.velocity,
            R_WB=R_WB,
            yaw_rad=math.atan2(R_WB[1, 0], R_WB[0, 0]),
            on_floor=self._on_floor,
            impact_m_s=self._impact,
            lost=self._lost,
        )

    def put(self, p_W: Array, v_W: Array) -> None:
        """Set position and velocity, as a contact does."""
        self.position, self.velocity = FROM_FLU @ p_W, FROM_FLU @ v_W

"""``python -m tests.sitl_plant.rotor_drag``: figure 16 and table 2 of Kim et al. 2023 on our plant (docs/aerodynamics.md).

The aircraft flies by an ideal controller: true state, differential flatness with the true drag fed forward, 4 ms steps. The
acceleration is that of an accelerometer with white noise and turned into W by the true attitude; the thrust is the true
one. Both models of drag are fitted once, to one flight on a lemniscate of up to 10 m/s with the same noise, and then
stand for all others:

- linear (equation 5): D = diag of three numbers, least squares;
- rotor (equation 13): k and b from the line that stands for the root of the thrust over the thrusts flown (equation 7),
  c_d by least squares.

RMSE as in the paper: root of the mean of the squared length of (measured - calculated) acceleration, all three axes.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from companion.core.arrays import Array
from companion.core.frames import GRAVITY_M_S2, rotation_matrix
from sitl.airframe import Airframe, RotorDragModel, load_airframe
from sitl.plant import Plant
from sitl.sensors import PAPER

STEP_S = 0.004
HEXA = 6  # rotors of the F550
CIRCLE_M_S2 = 8.0  # centripetal acceleration at the stated speed, where the radius is not SMALL_M
SMALL_M = 5.0
SETTLE_S = 6.0  # before the record: the speed rises smoothly
RECORD_S = 30.0
ATTITUDE_RAD_S, DAMPING = 12.0, 0.8
POSITION_1_S2, VELOCITY_1_S = 1.5, 2.0
NOISE_M_S2 = PAPER.imu.accel_noise_m_s2
HEIGHT_M = 100.0
RAMP_M_S2 = 3.0  # mean acceleration of the runs

PUBLISHED_RATIO = 4.58
PUBLISHED_RUNS = {5: (0.57, 0.64), 10: (1.48, 0.98)}
CIRCLES, LEMNISCATES = (1.5, 7.5, 26.0), (15.0, 20.0)

Path = Callable[[float], Array]  # position over time


@dataclass(frozen=True)
class Flight:
    """What was flown: velocity against the ground in B (n, 3), total thrust (n,), rotation (n, 3, 3), true a_W (n, 3)."""

    v_B: Array
    thrust_n: Array
    R: Array
    a_W: Array
    mass_kg: float

    def measured(self, noise_m_s2: float, seed: int) -> Array:
        """The acceleration in W that an accelerometer with this noise gives (n, 3)."""
        noise_B = noise_m_s2 * np.random.default_rng(seed).standard_normal(self.v_B.shape)
        return self.a_W + np.einsum("nij,nj->ni", self.R, noise_B)

    def calculated(self, drag_B: Array) -> Array:
        """The acceleration in W of thrust, weight and this drag force in B (n, 3)."""
        force_B = drag_B + self.thrust_n[:, None] * np.array([0.0, 0.0, 1.0])
        return np.einsum("nij,nj->ni", self.R, force_B) / self.mass_kg - [0.0, 0.0, GRAVITY_M_S2]


@dataclass(frozen=True)
class Linear:
    """Equation 5."""

    d_n_s_m: Array

    def force(self, flight: Flight) -> Array:
        return -self.d_n_s_m * flight.v_B


@dataclass(frozen=True)
class Rotor:
    """Equation 13; k and b of one rotor, so of all it is k T + 6 b."""

    k: float
    b: float
    c_d: float

    def force(self, flight: Flight) -> Array:
        drag = (self.k * flight.thrust_n + HEXA * self.b) * self.c_d
        return -drag[:, None] * flight.v_B * [1.0, 1.0, 0.0]


def root_line(thrust_n: Array) -> tuple[float, float]:
    """k [1/√N], b [√N] of the line that stands for the root of these thrusts of one rotor: equation 7."""
    k, b = np.polyfit(thrust_n, np.sqrt(thrust_n), 1)
    return float(k), float(b)


def fit(flight: Flight, noise_m_s2: float, seed: int = 1) -> tuple[Linear, Rotor]:
    """Both models from one flight."""
    extra_W = flight.measured(noise_m_s2, seed) - flight.calculated(np.zeros_like(flight.v_B))
    drag_B = flight.mass_kg * np.einsum("nji,nj->ni", flight.R, extra_W)
    linear = -np.sum(drag_B * flight.v_B, axis=0) / np.sum(flight.v_B**2, axis=0)
    k, b = root_line(flight.thrust_n / HEXA)
    unit = Rotor(k, b, 1.0).force(flight)
    return Linear(linear), Rotor(k, b, float(np.sum(drag_B * unit) / np.sum(unit**2)))


def rmse(flight: Flight, model: Linear | Rotor, noise_m_s2: float, seed: int = 2) -> float:
    difference = flight.measured(noise_m_s2, seed) - flight.calculated(model.force(flight))
    return float(np.sqrt(np.mean(np.sum(difference**2, axis=1))))


def fly(airframe: Airframe, path: Path, record_s: tuple[float, float], wind_m_s: float = 0.0, seed: int = 1) -> Flight:
    """Fly a path and keep what happened between two times; wind: mean along x, with gusts of a third of it."""
    plant = Plant(airframe, seed, p_W=path(0.0))
    start_speed = np.sqrt(plant.mass_kg * GRAVITY_M_S2 / airframe.thrust_max_n)
    plant.rotor_speed_rad_s[:] = start_speed * airframe.rotor.speed_max_rad_s
    allocation, gusts, rng = _allocation(plant), np.zeros(3), np.random.default_rng(seed)
    keep = np.exp(-STEP_S / 2.0)
    found = []
    for i in range(round(record_s[1] / STEP_S)):
        t_s = i * STEP_S
        gusts = keep * gusts + wind_m_s / 3 * np.sqrt(1 - keep**2) * rng.standard_normal(3)
        wind_W = gusts + [wind_m_s, 0.0, 0.0]
        plant.step(_command(plant, path, t_s, allocation), 4, wind_W)
        if t_s >= record_s[0]:
            R = rotation_matrix(plant.q_WB)
            a_W = R @ plant.specific_force_B - [0.0, 0.0, GRAVITY_M_S2]
            found.append((R.T @ plant.v_W, plant.motor_thrust_n.sum(), R, a_W))
    v_B, thrust_n, R, a_W = (np.array(column) for column in zip(*found, strict=True))
    return Flight(v_B, thrust_n, R, a_W, plant.mass_kg)


def _allocation(plant: Plant) -> Array:
    """Thrusts of the rotors (6,) from total thrust and torque (4,)."""
    x, y, _ = plant.shapes_B[4:10].T
    lever_m = plant.airframe.rotor.torque_per_thrust_m
    return np.linalg.pinv(
        np.array([np.ones(plant.rotors), y, -x, -lever_m * np.array([hub.spin.sign for hub in plant.airframe.hubs])])
    )


def _command(plant: Plant, path: Path, t_s: float, allocation: Array) -> Array:
    """The ideal controller: position to acceleration, acceleration less the true drag to thrust and attitude."""
    h, rotor = 0.01, plant.airframe.rotor
    before, now, after = path(t_s - h), path(t_s), path(t_s + h)
    v_ref, a_ref = (after - before) / (2 * h), (after - 2 * now + before) / h**2
    R = rotation_matrix(plant.q_WB)
    thrust_n = plant.motor_thrust_n.sum()
    drag_W = R @ (plant.specific_force_B - [0.0, 0.0, thrust_n / plant.mass_kg])
    wanted = a_ref + POSITION_1_S2 * (now - plant.p_W) + VELOCITY_1_S * (v_ref - plant.v_W) - drag_W
    wanted[2] += GRAVITY_M_S2
    z = wanted / np.linalg.norm(wanted)
    y = np.cross(z, [1.0, 0.0, 0.0])
    y /= np.linalg.norm(y)
    R_ref = np.column_stack([np.cross(y, z), y, z])
    twist = 0.5 * (R_ref.T @ R - R.T @ R_ref)
    error = np.array([twist[2, 1], twist[0, 2], twist[1, 0]])
    turn = -(ATTITUDE_RAD_S**2) * error - 2 * DAMPING * ATTITUDE_RAD_S * plant.omega_B
    torque = np.array(plant.airframe.inertia_kg_m2) * turn * [1.0, 1.0, 0.3]
    shares = allocation @ [plant.mass_kg * max(wanted @ R[:, 2], 1.0), *torque] / rotor.thrust_max_n
    a = rotor.quadratic_fraction
    u: Array = (np.sqrt((1 - a) ** 2 + 4 * a * np.clip(shares, 0.01, 1.0)) - (1 - a)) / (2 * a)
    return u


def _angle(t_s: float, rate_rad_s: float) -> float:
    """The angle of a motion whose rate rises smoothly within SETTLE_S."""
    if t_s <= 0:
        return 0.0
    if t_s >= SETTLE_S:
        return rate_rad_s * (t_s - SETTLE_S / 2)
    x = t_s / SETTLE_S
    return rate_rad_s * SETTLE_S * (x**3 - x**4 / 2)


def radius_m(speed_m_s: float) -> float:
    return max(SMALL_M, speed_m_s**2 / CIRCLE_M_S2)


def circle(speed_m_s: float) -> Path:
    r = radius_m(speed_m_s)

    def path(t_s: float) -> Array:
        a = _angle(t_s, speed_m_s / r)
        return np.array([r * np.sin(a), r * (1 - np.cos(a)), HEIGHT_M])

    return path


def lemniscate(speed_m_s: float) -> Path:
    """Gerono's, fastest in its middle; as long as the circle is wide on each side."""
    r = radius_m(speed_m_s)

    def path(t_s: float) -> Array:
        a = _angle(t_s, speed_m_s / (np.sqrt(2.0) * r))
        return np.array([r * np.sin(a), r * np.sin(a) * np.cos(a), HEIGHT_M])

    return path


def run(speed_m_s: float, length_m: float = 80.0, rest_s: float = 2.0) -> tuple[Path, float]:
    """There and back over length_m, and its duration; the speed rises and falls as a cosine."""
    ramp_s = speed_m_s / RAMP_M_S2
    cruise_s = (length_m - speed_m_s * ramp_s) / speed_m_s
    leg_s = 2 * ramp_s + cruise_s + rest_s

    def along(t_s: float) -> float:
        t = min(max(t_s, 0.0), leg_s - rest_s)

        def ramp(s: float) -> float:
            return speed_m_s * (s / 2 - ramp_s / (2 * np.pi) * np.sin(np.pi * s / ramp_s))

        if t < ramp_s:
            return ramp(t)
        if t < ramp_s + cruise_s:
            return speed_m_s * (ramp_s / 2 + t - ramp_s)
        return length_m - ramp(2 * ramp_s + cruise_s - t)

    def path(t_s: float) -> Array:
        back = t_s >= leg_s
        x = length_m - along(t_s - leg_s) if back else along(t_s)
        return np.array([x, 0.0, HEIGHT_M])

    return path, 2 * leg_s


def aircraft(each_rotor: bool) -> Airframe:
    """The F550, with drag of each rotor (equation 11) or as its file has it; rotors equal, thrust without voltage."""
    airframe = load_airframe("f550")
    rotor = msgspec.structs.replace(airframe.rotor, thrust_spread=0.0, speed_voltage_exponent=0.0)
    airframe = msgspec.structs.replace(airframe, rotor=rotor)
    if not each_rotor:
        return airframe
    hover_n = airframe.mass_kg * GRAVITY_M_S2 / HEXA
    k, b = root_line(np.linspace(0.5, 2.0, 100) * hover_n)
    c_d = rotor.in_plane_drag_n_s2_m_rad * rotor.speed_max_rad_s / np.sqrt(rotor.thrust_max_n)
    return msgspec.structs.replace(airframe, rotor_drag=RotorDragModel(k=k, b=b, c_d=float(c_d), each_rotor=True))


def figure_16(airframe: Airframe, noises: Sequence[float]) -> list[list[str]]:
    """Rows of the table: speed, path, then linear, rotor, ratio for each noise; the last one is the mean ratio."""
    learnt = fly(airframe, lemniscate(10.0), (SETTLE_S, SETTLE_S + RECORD_S))
    models = [fit(learnt, noise) for noise in noises]
    rows, ratios = [], []
    for speed in sorted((*CIRCLES, *LEMNISCATES)):
        name = "circle" if speed in CIRCLES else "lemniscate"
        flown = fly(airframe, (circle if speed in CIRCLES else lemniscate)(speed), (SETTLE_S, SETTLE_S + RECORD_S))
        errors = [[rmse(flown, model, noise) for model in pair] for pair, noise in zip(models, noises, strict=True)]
        ratios.append([linear / rotor for linear, rotor in errors])
        cells = [f"{value:.3f}" for linear, rotor in errors for value in (linear, rotor, linear / rotor)]
        rows.append([f"{speed:g}", f"{name}, {radius_m(speed):.0f} m", *cells])
    means = np.mean(ratios, axis=0)
    rows.append(["mean", "", *(cell for mean in means for cell in ("", "", f"**{mean:.2f}**"))])
    return rows


def table_2(airframe: Airframe, winds: Sequence[float]) -> list[list[str]]:
    """Rows of the table: speed, published pair, then our pair for each wind at NOISE_M_S2."""
    models = fit(fly(airframe, lemniscate(10.0), (SETTLE_S, SETTLE_S + RECORD_S)), NOISE_M_S2)
    rows = []
    for speed, published in PUBLISHED_RUNS.items():
        path, duration_s = run(float(speed))
        cells = []
        for wind in winds:
            flown = fly(airframe, path, (0.0, duration_s), wind)
            cells += [f"{rmse(flown, model, NOISE_M_S2):.3f}" for model in models]
        rows.append([f"{speed}", *(f"{value:.2f}" for value in published), *cells])
    return rows


def printed(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines)


def main() -> int:
    noises, winds = (NOISE_M_S2, 0.03, 0.0), (0.0, 3.0)
    for each_rotor, name in ((True, "drag of each rotor (equation 11)"), (False, "blades and hull (the default)")):
        airframe = aircraft(each_rotor)
        print(f"\nPlant: {name}. Figure 16, RMSE [m/s²], published mean ratio {PUBLISHED_RATIO}:\n")
        of_noise = [f"{what}, {n:g} m/s²" for n in noises for what in ("linear", "rotor", "ratio")]
        print(printed(["m/s", "path", *of_noise], figure_16(airframe, noises)))
        print(f"\nTable 2, runs of 80 m, RMSE [m/s²], noise {NOISE_M_S2:g} m/s²:\n")
        of_wind = [f"{what}, {w:g} m/s of wind" for w in winds for what in ("linear", "rotor")]
        print(printed(["m/s", "published linear", "published rotor", *of_wind], table_2(airframe, winds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

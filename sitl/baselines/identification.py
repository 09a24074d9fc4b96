"""The prior stack's identification, made on the aircraft that is flown: one manual flight, two fits.

Kalaitzakis & Vitzilaios, Robotics 2023, 12(5), 123, section 2, identify the model of an aircraft "using data from a single
manual flight", so that it follows "when the design might change multiple times". Here a scripted pilot flies that flight
with the simulated aircraft and its flight controller, in still air, with a charged battery and exact sensors; then

    roll, pitch:   τ φ̇ + φ = k φ_c                     first order without delay, least squares on φ
    the rest:      v̇ = -D v + R e_z k_T T_c - g e_z    D = diag(d, d, d_z) ≥ 0, least squares on the change of v in a step

as in the scripts published with the paper: a delay of the loop is taken as part of τ, and thrust does not depend on the
battery.
"""

import functools
import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import lsq_linear, minimize_scalar
from scipy.signal import lfilter

from companion.core.arrays import Array
from companion.core.frames import GRAVITY_M_S2, rotation_matrix, rpy_from_quat
from sitl.airframe import Airframe
from sitl.autopilot.attitude import ATTITUDE, AttitudeControl
from sitl.autopilot.parameters import Parameters
from sitl.autopilot.step_response import hover_command
from sitl.baselines.paper_tables import PaperModel
from sitl.plant import Plant

LOOP_STEP_S, PLANT_STEPS = 0.004, 4
SAMPLE_STEPS = 5  # the sticks are read and the flight is logged at 50 Hz
FLIGHT_S, SPOOL_UP_S = 90.0, 3.0
HEIGHT_M = 200.0  # nothing below the aircraft has an effect
TILT_RAD, THRUST_SHARE = 0.2, 0.1  # largest movement of the sticks; thrust against that of hover
HELD_S = (0.5, 2.0)  # shortest and longest time at which the pilot leaves a stick
BRAKE_RAD_S_M, BRAKE_1_S_M = 0.06, 0.05  # the pilot's correction of speed, by tilt and by thrust
CLIMB_INTEGRAL_1_S2_M = 0.01
TIME_CONSTANTS_S = (0.02, 1.0)


class ManualFlight(NamedTuple):
    """Samples of one flight, one row per `SAMPLE_STEPS`: command (thrust, roll, pitch), angles, velocity, thrust axis."""

    commands: Array  # (n, 3)
    roll_pitch: Array  # (n, 2) [rad]
    v_W: Array  # (n, 3) [m/s]
    lift_W: Array  # (n, 3), the unit vector R e_z


def fly_by_hand(airframe: Airframe, parameters: Parameters, command_delay_s: float) -> ManualFlight:
    """The manual flight; the same aircraft always gives the same flight."""
    plant, control = Plant(airframe, 0, (0.0, 0.0, HEIGHT_M)), AttitudeControl(parameters, LOOP_STEP_S, airframe)
    control.input_delay_steps = round(command_delay_s / LOOP_STEP_S)
    loop, rng = control.loop, np.random.default_rng(0)
    loop.level = ATTITUDE
    hover, climbed_m = hover_command(airframe), 0.0
    sticks, until_s = np.zeros(3), np.zeros(3)
    rows: list[tuple[float, ...]] = []
    for step in range(round((SPOOL_UP_S + FLIGHT_S) / LOOP_STEP_S)):
        now_s = step * LOOP_STEP_S
        if step % SAMPLE_STEPS == 0:
            if now_s >= SPOOL_UP_S:
                for i in np.flatnonzero(now_s >= until_s):
                    sticks[i], until_s[i] = rng.uniform(-1.0, 1.0), now_s + rng.uniform(*HELD_S)
            roll, pitch, yaw = rpy_from_quat(plant.q_WB)
            climbed_m += plant.v_W[2] * SAMPLE_STEPS * LOOP_STEP_S
            c, s = math.cos(yaw), math.sin(yaw)
            ahead, left = c * plant.v_W[0] + s * plant.v_W[1], c * plant.v_W[1] - s * plant.v_W[0]
            brake = BRAKE_1_S_M * plant.v_W[2] + CLIMB_INTEGRAL_1_S2_M * climbed_m
            command = (
                hover * (1.0 + THRUST_SHARE * sticks[0] - brake),
                TILT_RAD * sticks[1] + BRAKE_RAD_S_M * left,
                TILT_RAD * sticks[2] - BRAKE_RAD_S_M * ahead,
            )
            loop.thrust = min(max(command[0], 0.0), 1.0)
            loop.q_sp[:] = _level_turned(command[1], command[2])
            if now_s >= SPOOL_UP_S:
                lift = rotation_matrix(plant.q_WB)[:, 2]
                rows.append((*command, roll, pitch, *plant.v_W, *lift))
        loop.gyro[:] = plant.omega_B.tolist()
        loop.q[:] = plant.q_WB.tolist()
        control.step()
        plant.step(control.motors, PLANT_STEPS)
    table = np.array(rows)
    return ManualFlight(table[:, :3], table[:, 3:5], table[:, 5:8], table[:, 8:11])


def _level_turned(roll: float, pitch: float) -> list[float]:
    cr, sr, cp, sp = math.cos(roll / 2), math.sin(roll / 2), math.cos(pitch / 2), math.sin(pitch / 2)
    return [cr * cp, sr * cp, cr * sp, -sr * sp]


def identify(flight: ManualFlight) -> PaperModel:
    """The published fits on the samples of a flight."""
    step_s = SAMPLE_STEPS * LOOP_STEP_S
    (roll_s, roll_gain), (pitch_s, pitch_gain) = (
        first_order(flight.commands[:, 1 + i], flight.roll_pitch[:, i], step_s) for i in (0, 1)
    )
    # v_{k+1} - v_k + g Δt e_z = Δt (-d (v_x, v_y, 0) - d_z (0, 0, v_z) + k_T T R e_z)
    v, lift = flight.v_W[:-1], flight.lift_W[:-1] * flight.commands[:-1, :1]
    level, vertical = v * (1.0, 1.0, 0.0), v * (0.0, 0.0, 1.0)
    A = step_s * np.stack([-level.ravel(), -vertical.ravel(), lift.ravel()], axis=1)
    b = (np.diff(flight.v_W, axis=0) + (0.0, 0.0, GRAVITY_M_S2 * step_s)).ravel()
    d, d_z, k_T = lsq_linear(A, b, bounds=([0.0, 0.0, 0.0], [1.0, 1.0, 200.0])).x  # the published limits
    return PaperModel(roll_s, roll_gain, pitch_s, pitch_gain, (float(d), float(d), float(d_z)), float(k_T))


def first_order(command: Array, angle: Array, step_s: float) -> tuple[float, float]:
    """Time constant [s] and gain of the first-order system from command to angle, least squares on the angle."""

    def fitted(tau: float) -> tuple[float, float]:
        a = math.exp(-step_s / tau)
        response = lfilter([0.0, 1.0 - a], [1.0, -a], command)
        gain = float(response @ angle / (response @ response))
        return gain, float(np.sum((angle - gain * response) ** 2))

    tau = float(minimize_scalar(lambda t: fitted(t)[1], bounds=TIME_CONSTANTS_S, method="bounded").x)
    return tau, fitted(tau)[0]


@functools.lru_cache(maxsize=16)
def _identified(airframe: Airframe, values: tuple[tuple[str, int | float], ...], command_delay_s: float) -> PaperModel:
    return identify(fly_by_hand(airframe, Parameters(dict(values)), command_delay_s))


def identify_aircraft(airframe: Airframe, parameters: Parameters, command_delay_s: float) -> PaperModel:
    """Fly by hand and identify; a second call with the same aircraft gives the first one's result."""
    values = tuple((name, parameters[name]) for name in parameters.names)
    return _identified(airframe, values, command_delay_s)

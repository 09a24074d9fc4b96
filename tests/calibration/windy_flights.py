"""Flights under feedback in gusts, whose linear drag is known, with the slow errors of a flight controller's estimate.

All flights are simulated side by side: arrays (flights, …).
"""

from pathlib import Path

import numpy as np
from scipy.signal import lfilter

from calibration.identification.flight_data import FlightData, LogKind, Signal
from companion.core.frames import GRAVITY_M_S2

STEP_S = 0.01
K_T_M_S2 = 30.0
ATTITUDE_S, MOTOR_S, DELAY_S = 0.14, 0.05, 0.06
PLACE_S = 2.5  # each place of the random course
PERIOD = {"setpoint": 2, "attitude": 1, "velocity": 4, "accelerometer": 1, "voltage": 50}  # in steps


def noise(rng: np.random.Generator, flights: int, count: int, std, time_s: float) -> np.ndarray:
    """Stationary first-order noise, (flights, count, 3)."""
    pole = np.exp(-STEP_S / time_s)
    white = rng.standard_normal((flights, count, 3)) * np.sqrt(1.0 - pole**2)
    white[:, 0] /= np.sqrt(1.0 - pole**2)
    return lfilter([1.0], [1.0, -pole], white, axis=1) * std


def fly(
    flights: int,
    seed: int,
    drag_1_s=(1.0, 1.0),
    wind_m_s: float = 1.0,
    accelerometer: bool = True,
    curvature: float = 0.0,
    velocity_error_m_s: float = 0.05,
) -> list[FlightData]:
    """A minute and a half each; drag_1_s: horizontal and vertical; wind_m_s: standard deviation of the mean wind.

    Gusts have half of it. The velocity is wrong for seconds, and the feedback follows it; the attitude by 0.3°.
    curvature: of thrust over command at the hover, as `forces.Forces` has it.
    """
    rng = np.random.default_rng(seed)
    count = round(90.0 / STEP_S)
    t_s = STEP_S * np.arange(count)
    drag = np.array([drag_1_s[0], drag_1_s[0], drag_1_s[1]])
    wind = rng.normal(0.0, wind_m_s, (flights, 1, 3)) * (1, 1, 0)
    wind = wind + noise(rng, flights, count, wind_m_s * np.array([0.5, 0.5, 0.3]), 3.0)
    velocity_error = noise(rng, flights, count, velocity_error_m_s, 5.0)
    tilt_error = noise(rng, flights, count, 0.005, 20.0) * (1, 1, 0)
    each = round(PLACE_S / STEP_S)
    places = rng.uniform(-1.0, 1.0, (flights, count // each + 1, 3)) * (6.0, 6.0, 5.0)
    course = np.repeat(places, each, axis=1)[:, :count]
    late = round(DELAY_S / STEP_S)
    commands = np.zeros((flights, count, 3))  # roll, pitch, thrust
    commands[:, :, 2] = GRAVITY_M_S2 / K_T_M_S2
    rpy, velocity, felt = (np.zeros((flights, count, 3)) for _ in range(3))
    p, v, lean = np.zeros((flights, 3)), np.zeros((flights, 3)), np.zeros((flights, 2))
    motor = np.full(flights, GRAVITY_M_S2 / K_T_M_S2)
    for k in range(count):
        wanted = np.clip(1.2 * (course[:, k] - p) - 1.8 * (v + velocity_error[:, k]), -3.0, 3.0)
        commands[:, k, 0] = -wanted[:, 1] / GRAVITY_M_S2
        commands[:, k, 1] = wanted[:, 0] / GRAVITY_M_S2
        commands[:, k, 2] = (GRAVITY_M_S2 + wanted[:, 2]) / K_T_M_S2
        arrived = commands[:, max(k - late, 0)]
        motor += STEP_S / MOTOR_S * (arrived[:, 2] - motor)
        lean += STEP_S / ATTITUDE_S * (arrived[:, :2] - lean)
        R = rotation(lean)
        bent = 1.0 + curvature * (motor * K_T_M_S2 / GRAVITY_M_S2 - 1.0)
        push = R[:, :, 2] * (K_T_M_S2 * motor * bent)[:, None] - drag * (v - wind[:, k])
        rpy[:, k, :2], velocity[:, k] = lean, v
        felt[:, k] = np.einsum("fij,fi->fj", R, push)
        v = v + STEP_S * (push - (0.0, 0.0, GRAVITY_M_S2))
        p = p + STEP_S * v
    velocity = velocity + velocity_error + 0.01 * rng.standard_normal(velocity.shape)
    felt = felt + 0.3 * rng.standard_normal(felt.shape)
    found = []
    for i in range(flights):
        flight = FlightData(Path(f"windy_{i}"), LogKind.ULOG, velocity_axes=(True, True))
        flight.attitude = signal(t_s, rpy[i] + tilt_error[i], "attitude")
        angles = np.column_stack([commands[i, :, :2], np.zeros(count)])
        flight.setpoint = signal(t_s, angles, "setpoint", True)
        flight.thrust = signal(t_s, commands[i, :, 2], "setpoint", True)
        flight.velocity_W = signal(t_s, velocity[i], "velocity")
        if accelerometer:
            flight.accelerometer_B = signal(t_s, felt[i], "accelerometer")
        flight.voltage = signal(t_s, np.full(count, 15.2), "voltage")
        flight.airborne = [(3.0, 87.0)]
        found.append(flight)
    return found


def signal(t_s: np.ndarray, values: np.ndarray, name: str, held: bool = False) -> Signal:
    return Signal(t_s[:: PERIOD[name]], values[:: PERIOD[name]], held)


def rotation(lean: np.ndarray) -> np.ndarray:
    """R_WB of roll and pitch (flights, 2)."""
    (sr, sp), (cr, cp) = np.sin(lean).T, np.cos(lean).T
    zero = np.zeros_like(sr)
    return np.moveaxis(np.array([[cp, sp * sr, sp * cr], [zero, cr, -sr], [-sp, cp * sr, cp * cr]]), 2, 0)

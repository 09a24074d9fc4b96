"""Attitude and rate control: the Python interface of attitude.c."""

import ctypes
import functools
import math
from collections import deque
from pathlib import Path
from typing import NamedTuple

import numpy as np

from acados_gen.compile import compile_library
from companion.core.arrays import Array
from companion.core.kernel import fingerprint, short_calls
from sitl.airframe import ROTORS_MAX, Airframe
from sitl.autopilot.parameters import Parameters

SOURCE = Path(__file__).with_name("attitude.c")
OFF, RATES, ATTITUDE = 0.0, 1.0, 2.0
AXES = ("ROLL", "PITCH", "YAW")

PLACE_DIGITS = 3  # to a thousandth of the arm's length, as a crew enters the places into PX4

V3 = ctypes.c_double * 3
V4 = ctypes.c_double * 4
ROTORS = ctypes.c_double * ROTORS_MAX


class AttitudeLoop(ctypes.Structure):
    """The C struct of the same name, member for member."""

    _fields_ = [
        *[(name, ctypes.c_double) for name in ("dt", "level", "landed", "thrust")],
        ("gyro", V3),
        ("q", V4),
        ("q_sp", V4),
        ("yaw_rate_sp", ctypes.c_double),
        ("rate_sp_in", V3),
        ("att_p", V3),
        ("yaw_weight", ctypes.c_double),
        *[(name, V3) for name in ("rate_max", "rate_p", "rate_i", "rate_d", "rate_ff", "int_lim")],
        *[
            (name, ctypes.c_double)
            for name in ("gyro_cutoff_hz", "dgyro_cutoff_hz", "yaw_torque_cutoff_hz", "thrust_model")
        ],
        ("rotors", ctypes.c_double),
        ("mix", V4 * ROTORS_MAX),
        ("reach", ROTORS * 3),
        ("lp_x", (ctypes.c_double * 2) * 3),
        *[(name, V3) for name in ("rate_filtered", "rate_previous", "rate_derivative", "integral")],
        ("yaw_torque", ctypes.c_double),
        ("saturation", V3),
        ("primed", ctypes.c_double),
        ("rate_sp", V3),
        ("torque", V3),
        ("motors", ROTORS),
    ]


class Mixer(NamedTuple):
    """Torques (roll, pitch, yaw, FLU, normalised) and lift to motors, and motors to torques."""

    mix: Array  # (n, 4)
    reach: Array  # (3, n)


def mixer_of(airframe: Airframe) -> Mixer:
    """Normalised pseudo-inverse of the rotors' torques and lift, as PX4's control allocation has it.

    Roll and pitch share the larger of their two scales, so that one unit of torque means the same for both; yaw has a
    largest entry of one, lift a mean of one. As in PX4 all rotors count as equally strong: a crew enters no loss of lower
    rotors. With M = [E; tᵀ] of full rank, t the lift, pinv(M) has the columns C = pinv(E (I - t tᵀ / tᵀt)) and
    (I - C E) t over its product with t.
    """
    scale_m, torque_m = airframe.arm_m, airframe.rotor.torque_per_thrust_m
    columns = []
    for hub in airframe.hubs:
        axis = np.array(hub.axis_B)
        x, y, z = (round(p / scale_m, PLACE_DIGITS) for p in hub.p_m)
        torque = np.cross((x, y, z), axis) - hub.spin.sign * torque_m / scale_m * axis
        torque[2] = np.cross((x, y, z), axis)[2] * scale_m / torque_m - hub.spin.sign * axis[2]
        columns.append([*torque, axis[2]])
    effect = np.array(columns).T
    torques, lift = effect[:3], effect[3]
    mix = np.linalg.pinv(torques - np.outer(torques @ lift, lift) / (lift @ lift))
    scales = [math.sqrt(float(column @ column) / (np.count_nonzero(np.abs(column) > 1e-3) / 2)) for column in mix.T[:2]]
    scale = np.array([max(scales), max(scales), float(mix[:, 2].max())])
    up = lift - mix @ (torques @ lift)
    return Mixer(np.column_stack([mix / scale, up / np.abs(up).mean()]), torques * scale[:, None])


@functools.cache
def _library() -> ctypes.PyDLL:
    return short_calls(compile_library("autopilot_attitude", fingerprint([SOURCE]), [SOURCE]))


class _Inputs(NamedTuple):
    """The inputs of one step: level, thrust, attitude (w, x, y, z), yaw rate [rad/s], body rates [rad/s]."""

    level: float
    thrust: float
    q_sp: list[float]
    yaw_rate_sp: float
    rate_sp_in: list[float]


class AttitudeControl:
    """Attitude, rate loop and mixer of one aircraft.

    Set the inputs on ``loop`` (see attitude.c), call `step`, read ``motors`` (0..1).
    """

    def __init__(self, parameters: Parameters, dt_s: float, airframe: Airframe) -> None:
        library = _library()
        library.loop_size.restype = ctypes.c_ulong
        if library.loop_size() != ctypes.sizeof(AttitudeLoop):
            raise RuntimeError("the struct of attitude.c and its mirror in attitude.py differ in size")
        self.loop = AttitudeLoop()
        self.loop.dt = dt_s
        self.loop.q[0] = self.loop.q_sp[0] = 1.0
        self.loop.yaw_rate_sp = math.nan
        mixer = mixer_of(airframe)
        self.loop.rotors = rotors = len(airframe.hubs)
        for motor, values in enumerate(mixer.mix.tolist()):
            self.loop.mix[motor][:] = values
        for axis, values in enumerate(mixer.reach.tolist()):
            self.loop.reach[axis][:rotors] = values
        self._step = library.loop_step
        self._step.argtypes = [ctypes.c_void_p]
        self._step.restype = None
        self._address = ctypes.addressof(self.loop)
        self.motors: Array = np.frombuffer(self.loop.motors, dtype=float)[:rotors]
        # Setpoints enter the loop this many steps late: delay of link, scheduling and ESCs. Gyro feedback has no delay.
        self.input_delay_steps = 0
        self._inputs: deque[_Inputs] = deque()
        self.update_parameters(parameters)

    def update_parameters(self, get: Parameters) -> None:
        """Read the MC_*, IMU_* and THR_MDL_FAC parameters again."""
        loop = self.loop
        for i, axis in enumerate(AXES):
            k = get[f"MC_{axis}RATE_K"]
            loop.att_p[i] = get[f"MC_{axis}_P"]
            loop.rate_max[i] = math.radians(get[f"MC_{axis}RATE_MAX"])
            loop.rate_p[i] = k * get[f"MC_{axis}RATE_P"]
            loop.rate_i[i] = k * get[f"MC_{axis}RATE_I"]
            loop.rate_d[i] = k * get[f"MC_{axis}RATE_D"]
            loop.rate_ff[i] = get[f"MC_{axis}RATE_FF"]
            loop.int_lim[i] = get[f"MC_{axis[0]}R_INT_LIM"]
        loop.yaw_weight = min(max(get["MC_YAW_WEIGHT"], 0.0), 1.0)
        loop.gyro_cutoff_hz = get["IMU_GYRO_CUTOFF"]
        loop.dgyro_cutoff_hz = get["IMU_DGYRO_CUTOFF"]
        loop.yaw_torque_cutoff_hz = get["MC_YAW_TQ_CUTOFF"]
        loop.thrust_model = min(max(get["THR_MDL_FAC"], 0.0), 1.0)

    def step(self) -> None:
        """Run one sample; the result is in ``motors``."""
        if not self.input_delay_steps:
            self._step(self._address)
            return
        loop = self.loop
        present = _Inputs(loop.level, loop.thrust, loop.q_sp[:], loop.yaw_rate_sp, loop.rate_sp_in[:])
        if loop.level == OFF:
            self._inputs.clear()  # motors are stopped at once
        self._inputs.append(present)
        while len(self._inputs) > self.input_delay_steps + 1:
            self._inputs.popleft()
        self._set(self._inputs[0])
        self._step(self._address)
        self._set(present)

    def _set(self, inputs: _Inputs) -> None:
        loop = self.loop
        loop.level, loop.thrust, loop.q_sp[:], loop.yaw_rate_sp, loop.rate_sp_in[:] = inputs

"""The response of a flight controller to the sticks, as a model of few numbers; the steps are in response.c."""

import ctypes
import functools
from pathlib import Path

import numpy as np

from acados_gen.compile import CFLAGS, compile_library
from companion.core.arrays import Array
from companion.core.kernel import fingerprint

SOURCE = Path(__file__).with_name("response.c")
AXES = ("z", "psi", "theta", "phi")

# Name, smallest, largest, unit. Tilt: gain as MC_PITCH_P and MC_ROLL_P; scale as MPC_MAN_TILT_MAX. Heading: MPC_MAN_Y_MAX,
# MAN_DEADZONE. Height: MPC_Z_VEL_MAX_UP and _DN.
NUMBERS: tuple[tuple[str, float, float, str], ...] = (
    ("scale_z", 0.0, 20.0, "m/s"),
    ("scale_psi", 0.0, 7.0, "rad/s"),
    ("scale_theta", 0.0, 1.5, "rad"),
    ("scale_phi", 0.0, 1.5, "rad"),
    ("trim_z", -10.0, 10.0, "m/s"),
    ("trim_psi", -0.3, 0.3, "rad/s"),
    ("trim_theta", -0.2, 0.2, "rad"),
    ("trim_phi", -0.2, 0.2, "rad"),
    ("lag_z", 0.02, 10.0, "s"),
    ("lag_psi", 0.02, 2.0, "s"),
    ("lag_theta", 0.02, 1.0, "s"),
    ("lag_phi", 0.02, 1.0, "s"),
    ("p_theta", 0.5, 12.0, "1/s"),
    ("p_phi", 0.5, 12.0, "1/s"),
    ("dead_z", 0.0, 0.3, "stick"),
    ("dead_psi", 0.0, 0.3, "stick"),
    ("expo_z", 0.0, 1.0, ""),
    ("expo_psi", 0.0, 1.0, ""),
    ("descent_z", 0.0, 20.0, "m/s"),
    ("delay_s", 0.0, 0.5, "s"),
)
PARAMETERS = tuple(name for name, *_ in NUMBERS)


@functools.cache
def library() -> ctypes.CDLL:
    """response.c, compiled when it or the flags have changed; raises `CompileError`."""
    found = ctypes.CDLL(str(compile_library("stick_response", fingerprint([SOURCE], {"flags": CFLAGS}), [SOURCE])))
    found.parameters_count.restype = ctypes.c_int64
    if found.parameters_count() != len(PARAMETERS):
        raise RuntimeError(f"{SOURCE}: {found.parameters_count()} parameters, response.py has {len(PARAMETERS)}")
    address, number = ctypes.c_void_p, ctypes.c_int64
    found.response_follow.argtypes = [address, address, address, address, number]
    found.response_errors.argtypes = [address, number, address, address, address, number, address, address]
    found.response_follow.restype = found.response_errors.restype = None
    return found


def start_state(row: Array, rates: Array) -> Array:
    """z, ψ, θ, φ and their rates at the start of a log, shape (8,)."""
    return np.concatenate([row, rates])


def follow(parameters: Array, start: Array, sticks: Array) -> Array:
    """z, ψ, θ, φ at every millisecond of the sticks, (n, 4)."""
    sticks, path = np.ascontiguousarray(sticks), np.zeros((len(sticks), len(AXES)))
    pointer = np.ascontiguousarray(parameters)
    library().response_follow(pointer.ctypes.data, start.ctypes.data, sticks.ctypes.data, path.ctypes.data, len(path))
    return path


def errors(candidates: Array, start: Array, sticks: Array, flown: Array, limits: Array | None = None) -> Array:
    """As `tello.errors`: integral of the squared error by axis, (c, 4), of candidates (c, 20)."""
    bounds = np.full(len(candidates), np.inf) if limits is None else np.ascontiguousarray(limits, dtype=float)
    candidates = np.ascontiguousarray(candidates, dtype=float)
    sticks, flown = np.ascontiguousarray(sticks, dtype=float), np.ascontiguousarray(flown, dtype=float)
    if sticks.shape != flown.shape or candidates.shape[1] != len(PARAMETERS):
        raise ValueError("sticks and flight have different lengths, or candidates the wrong width")
    found, count = np.zeros((len(candidates), len(AXES))), len(candidates)
    arrays = (start.ctypes.data, sticks.ctypes.data, flown.ctypes.data)
    library().response_errors(candidates.ctypes.data, count, *arrays, len(flown), bounds.ctypes.data, found.ctypes.data)
    return found

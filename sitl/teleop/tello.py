"""The vehicle `tello`: the quadrotor of the teleoperation paper with its published numbers; the steps are in tello.c."""

import ctypes
import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np

from acados_gen.compile import CFLAGS, compile_library
from companion.core.arrays import Array
from companion.core.kernel import fingerprint
from sitl.teleop.sticks import Air, Pose, Sticks

SOURCE = Path(__file__).with_name("tello.c")
STEP_S = 1e-3  # as STEP_S in tello.c
AXES = ("z", "psi", "theta", "phi")  # of algorithm 1, in its order
UNITS = ("m", "rad", "rad", "rad")
ARM_M = 0.042  # l_h of table 1: thrust of a rotor is its torque over this

GAINS = tuple(f"{kind}_{axis}" for kind in ("k", "kp", "ki", "kd") for axis in AXES)  # the sixteen of table 2
DYNAMICS = ("m", "g", "i_xx", "i_yy", "i_zz", "b_x", "b_y", "b_z", "b_phi", "b_theta", "b_psi")  # table 1
PARAMETERS = (*GAINS, *DYNAMICS, "delay_s", "tilt_by_steps", "floor")

# Table 2. k_z and k_psi are per step of 1 ms: 2.8 m/s and 2.7 rad/s at full stick.
TABLE_2 = dict(
    zip(
        GAINS,
        (0.0028, 0.0027, 0.9879, 0.3030)
        + (12.3973, 26.9075, 0.3159, 0.1176)
        + (0.0146, 0.0001, 0.0363, 0.0116)
        + (16.4687, 0.0022, 0.0029, 0.0781),
        strict=True,
    )
)
TABLE_1 = dict(zip(DYNAMICS, (0.225, 9.81, 5e-3, 5e-3, 5e-3, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5), strict=True))
PUBLISHED: dict[str, float] = {**TABLE_2, **TABLE_1, "delay_s": 0.0, "tilt_by_steps": 0.0, "floor": 0.0}

P, ANGLE, V, RATE, WANTED, SUM, LAST = 0, 3, 6, 9, 12, 16, 20  # places in the state, as in tello.c
STARTED, THRUST, TORQUE, IMPACT, ON_FLOOR, DIVERGED, STATES = 24, 25, 26, 29, 30, 31, 32
AIR = 7  # wind (3), factor on the thrust, added torques about φ, θ, ψ (3)


class Followed(NamedTuple):
    """A simulated log: (n, 4) with z, ψ, θ, φ at every millisecond; fewer rows where the model diverged."""

    path: Array
    diverged: bool


@functools.cache
def library() -> ctypes.CDLL:
    """tello.c, compiled when it or the flags have changed; raises `CompileError`."""
    found = ctypes.CDLL(str(compile_library("tello", fingerprint([SOURCE], {"flags": CFLAGS}), [SOURCE])))
    for name, size in (("parameters", len(PARAMETERS)), ("states", STATES), ("air", AIR)):
        count = getattr(found, f"{name}_count")
        count.restype = ctypes.c_int64
        if count() != size:
            raise RuntimeError(f"{SOURCE}: {count()} {name}, tello.py has {size}")
    address, number = ctypes.c_void_p, ctypes.c_int64
    found.tello_advance.argtypes = [address, address, address, address, number]
    found.tello_rotation.argtypes = [address, address, address, address]
    found.tello_follow.argtypes = [address, address, address, address, number]
    found.tello_errors.argtypes = [address, number, address, address, address, number, address, address]
    for function in (found.tello_advance, found.tello_rotation, found.tello_errors):
        function.restype = None
    found.tello_follow.restype = number
    return found


def vector(parameters: dict[str, float]) -> Array:
    """Parameters in the order of tello.c, shape (30,); raises KeyError for one that is missing."""
    return np.array([parameters[name] for name in PARAMETERS])


def start_state(row: Array, rates: Array) -> Array:
    """State at the start of a log, shape (32,): references where the aircraft is, nothing integrated.

    row: z, ψ, θ, φ [m, rad]; rates: their derivatives.
    """
    state = np.zeros(STATES)
    state[P + 2], state[ANGLE : ANGLE + 3] = row[0], row[:0:-1]
    state[V + 2], state[RATE : RATE + 3] = rates[0], rates[:0:-1]
    state[WANTED], state[WANTED + 1] = max(row[0], 0.0), row[1]
    return state


def follow(parameters: Array, start: Array, sticks: Array) -> Followed:
    """Fly sticks (n, 4), each row 1 ms: u of z, ψ, θ, φ in ±1, ψ counter-clockwise."""
    sticks = np.ascontiguousarray(sticks, dtype=float)
    state, path = start.copy(), np.zeros((len(sticks), len(AXES)))
    n = library().tello_follow(
        np.ascontiguousarray(parameters).ctypes.data, state.ctypes.data, sticks.ctypes.data, path.ctypes.data, len(path)
    )
    return Followed(path[:n], n < len(path))


def errors(candidates: Array, start: Array, sticks: Array, flown: Array, limits: Array | None = None) -> Array:
    """Integral of the squared error by axis [m² s, rad² s], (c, 4), of c candidates (c, 30) against the flown (n, 4).

    An error counts at most 10 m or rad; after a divergence every error counts so. limits: of the sum over the axes, (c,); a
    candidate that passes its limit is not followed to its end.
    """
    bounds = np.full(len(candidates), np.inf) if limits is None else np.ascontiguousarray(limits, dtype=float)
    candidates = np.ascontiguousarray(candidates, dtype=float)
    sticks, flown = np.ascontiguousarray(sticks, dtype=float), np.ascontiguousarray(flown, dtype=float)
    if sticks.shape != flown.shape or candidates.shape[1] != len(PARAMETERS):
        raise ValueError("sticks and flight have different lengths, or candidates the wrong width")
    found = np.zeros((len(candidates), len(AXES)))
    library().tello_errors(
        candidates.ctypes.data,
        len(candidates),
        start.ctypes.data,
        sticks.ctypes.data,
        flown.ctypes.data,
        len(flown),
        bounds.ctypes.data,
        found.ctypes.data,
    )
    return found


def rotor_torques(thrust_n: float, torque: Array) -> Array:
    """τ_1 … τ_4 of equations 17, 18 and 22 to 24 for a thrust and torques about φ, θ, ψ [N m], shape (4,).

    Appendix A.2 prints the rows of φ and θ in the other order; the equations of section 2.2.4 are used.
    """
    mix = np.array([[1.0, 1.0, 1.0, 1.0], [-1.0, -1.0, 1.0, 1.0], [1.0, -1.0, -1.0, 1.0], [1.0, -1.0, 1.0, -1.0]])
    found: Array = np.linalg.solve(mix, np.array([thrust_n * ARM_M, *torque]))
    return found


class Tello:
    """The vehicle for `companion teleop`: sticks in, pose out; stands on the floor at the origin, nose along x."""

    name = "tello"
    radius_m = 0.13  # of the sphere around the aircraft that touches solids: half of its diagonal with guards

    def __init__(self, parameters: dict[str, float] | None = None, floor: bool = True) -> None:
        """parameters: others than those published, by name."""
        self.parameters = {**PUBLISHED, "floor": float(floor), **(parameters or {})}
        self._vector = vector(self.parameters)
        self.state = np.zeros(STATES)
        self._u, self._air = np.zeros(len(AXES)), np.zeros(AIR)

    def advance(self, sticks: Sticks, air: Air, steps: int) -> None:
        """Fly this many milliseconds with sticks and air held."""
        self._u[:] = sticks.climb, -sticks.yaw, sticks.ahead, sticks.right
        self._air[:] = *air.wind_W, air.thrust_factor, *air.torque
        library().tello_advance(
            self._vector.ctypes.data, self.state.ctypes.data, self._u.ctypes.data, self._air.ctypes.data, steps
        )

    def pose(self) -> Pose:
        """Where the aircraft is now."""
        s = self.state
        phi, theta, psi = s[ANGLE : ANGLE + 3].tolist()
        cp, sp, ct, st = np.cos(phi), np.sin(phi), np.cos(theta), np.sin(theta)
        R_xy = np.array([[ct, 0.0, st], [sp * st, cp, -sp * ct], [-cp * st, sp, cp * ct]])
        c, s_psi = np.cos(psi), np.sin(psi)
        R_WB = np.array([[c, -s_psi, 0.0], [s_psi, c, 0.0], [0.0, 0.0, 1.0]]) @ R_xy
        return Pose(
            p_W=s[P : P + 3].copy(),
            v_W=s[V : V + 3].copy(),
            R_WB=R_WB,
            yaw_rad=float(np.arctan2(R_WB[1, 0], R_WB[0, 0])),
            on_floor=bool(s[ON_FLOOR]),
            impact_m_s=float(s[IMPACT]),
            lost=bool(s[DIVERGED]),
        )

    def put(self, p_W: Array, v_W: Array) -> None:
        """Set position and velocity, as a contact does; the next impact counts from zero."""
        self.state[P : P + 3], self.state[V : V + 3] = p_W, v_W

    def row(self) -> Array:
        """z, ψ, θ, φ, shape (4,): what a fit compares."""
        s = self.state
        return np.array([s[P + 2], s[ANGLE + 2], s[ANGLE + 1], s[ANGLE]])

"""The NMPC solver: the generated C code (acados_gen/ocp.py, acados_gen/nmpc.c) behind one call per cycle."""

import ctypes
from pathlib import Path
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array, Vector
from companion.core.control_artifacts import require_solver
from companion.core.kernel import ArtifactMissing, long_calls
from companion.core.vehicle import MODEL_PARAMETERS, Vehicle

STATES, INPUTS, STAGE_PARAMETERS = 9, 3, MODEL_PARAMETERS + 4


class NmpcResult(NamedTuple):
    """One solution; with `status` 0 inputs and states are finite and usable."""

    status: int  # acados: 0 success, 1 NaN, 2 iterations, 3 step size, 4 QP solver
    inputs: Array  # (N, 3): thrust [1], roll [rad], pitch [rad], each held for one node interval
    states: Array  # (N + 1, 9): p_W, v_W, roll, pitch, yaw
    solve_time_s: float  # by acados' own timer
    qp_iterations: int


class Nmpc:
    """Owns one solver in C with its buffers; weights and bounds come from the vehicle file."""

    def __init__(self, vehicle: Vehicle, library: Path | None = None) -> None:
        """library: for tests; default: the artefact of this vehicle file. Raises `ArtifactMissing` with one line."""
        controller = vehicle.controller
        path = library or require_solver(vehicle)
        self._c = long_calls(path)
        sizes = (ctypes.c_int * 4)()
        self._c.nmpc_sizes(sizes)
        if tuple(sizes) != (controller.nodes, STATES, INPUTS, STAGE_PARAMETERS):
            raise ArtifactMissing(f"{path}: does not fit the vehicle file; run 'companion generate'")

        self.nodes = controller.nodes
        self.step_s = controller.horizon_s / controller.nodes
        self.times_s = np.arange(self.nodes + 1, dtype=float) * self.step_s
        self._x0 = np.zeros(STATES)
        self._references = np.zeros((self.nodes + 1, STATES + INPUTS))
        self._parameters = np.zeros((self.nodes + 1, STAGE_PARAMETERS))
        self._plane = np.zeros(4)  # n_W, c
        self._inputs = np.zeros((self.nodes, INPUTS))
        self._states = np.zeros((self.nodes + 1, STATES))
        self._info = np.zeros(2)
        self._bind()

        weights = controller.weights
        state_weights = np.array([*weights.position, *weights.velocity, *weights.attitude], dtype=float)
        running = np.array([*state_weights, weights.thrust, *weights.roll_pitch], dtype=float)
        terminal = weights.terminal_factor * state_weights
        self._c.nmpc_set_weights(self._self, running.ctypes.data, terminal.ctypes.data)
        tilt = controller.tilt_max_rad
        # The steady tilt of a command is gain · command. It stays within the bound without the soft bound (ocp.py).
        roll, pitch = (tilt / max(1.0, axis.gain) for axis in (vehicle.attitude.roll, vehicle.attitude.pitch))
        low = np.array([controller.thrust_min, -roll, -pitch])
        high = np.array([controller.thrust_max, roll, pitch])
        self._c.nmpc_set_bounds(self._self, low.ctypes.data, high.ctypes.data, tilt, controller.speed_max_m_s)

    def _bind(self) -> None:
        pointer = ctypes.c_void_p
        self._c.nmpc_create.restype = pointer
        self._c.nmpc_free.argtypes = self._c.nmpc_reset.argtypes = [pointer]
        self._c.nmpc_shift.argtypes = [pointer, ctypes.c_double]
        self._c.nmpc_set_weights.argtypes = [pointer] * 3
        self._c.nmpc_set_bounds.argtypes = [pointer] * 3 + [ctypes.c_double] * 2
        self._c.nmpc_solve.argtypes = [pointer] * 8
        self._c.nmpc_free.restype = self._c.nmpc_reset.restype = self._c.nmpc_shift.restype = None
        self._c.nmpc_set_weights.restype = self._c.nmpc_set_bounds.restype = None
        self._self = self._c.nmpc_create()
        if not self._self:
            raise MemoryError("the NMPC solver cannot be created")
        buffers = (
            self._x0,
            self._references,
            self._parameters,
            self._plane,
            self._inputs,
            self._states,
            self._info,
        )
        self._arguments = (self._self, *(buffer.ctypes.data for buffer in buffers))

    def __del__(self) -> None:
        if getattr(self, "_self", None):
            self._c.nmpc_free(self._self)
            self._self = None

    def solve(self, x0: Vector, references: Array, parameters: Array) -> NmpcResult:
        """Solve for one cycle, warm-started with the last plan; after a failure the next call starts cold.

        x0: (9,) state at the time the first input acts; references: (N + 1, 12) rows of x and u (u of the last row
        is not used); parameters: (N + 1, 14) rows of `flight_model.PARAMETERS`, disturbance_W, yaw rate.
        """
        self._x0[:] = x0
        self._references[:] = references
        self._parameters[:] = parameters
        status: int = self._c.nmpc_solve(*self._arguments)
        if status != 0:
            self.reset()
        return NmpcResult(status, self._inputs.copy(), self._states.copy(), float(self._info[0]), int(self._info[1]))

    def set_plane(self, normal_W: Vector, least_m: float) -> None:
        """Plan with normal_W · p_W ≥ least_m (soft) from now on; a zero normal removes the plane."""
        self._plane[:3], self._plane[3] = normal_W, least_m

    def shift(self, elapsed_s: float) -> None:
        """Move the stored plan forward in time before the next solution."""
        self._c.nmpc_shift(self._self, min(max(elapsed_s / self.step_s, 0.0), 1.0))

    def reset(self) -> None:
        """Delete the stored plan; the next solution equals the first one of a new solver."""
        self._c.nmpc_reset(self._self)

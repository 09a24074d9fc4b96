"""The prior stack's NMPC as published: N = 60, T = 3 s, full SQP by acados, hover inputs as the guess of every cycle.

    paper = PaperNmpc(paper_vehicle("F550"))       # builds the solver when it is not there yet
    result = paper.solve(x0, references, parameters)

`result.solve_time_s` is acados' own time of the whole SQP, for comparing solvers in one run.
"""

import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from acados_gen.compile import CompileError, compile_library
from companion.control.solver import INPUTS, STAGE_PARAMETERS, STATES, NmpcResult
from companion.core import frames
from companion.core.arrays import Array, Vector
from companion.core.config import ConfigError
from companion.core.kernel import artifact, fingerprint, is_built
from sitl.baselines.paper_tables import TERMINAL_FACTOR, TILT_STATE_MAX_RAD, PaperVehicle

NODES, HORIZON_S = 60, 3.0
SOLVER = "paper_nmpc"
GENERATION_TIMEOUT_S = 300.0

_GENERATOR = Path(__file__).parents[2] / "acados_gen"
_C_SOURCE = Path(__file__).with_name("paper_nmpc.c")
_SOURCES = [
    *(_GENERATOR / name for name in ("paper_ocp.py", "ocp.py", "flight_model.py", "compile.py")),
    _GENERATOR / "generate_control.py",
    _GENERATOR / "requirements-acados.txt",
    Path(frames.__file__),
    _C_SOURCE,
]


def build() -> Path:
    """The solver library, generated and compiled when it is not there; raises `ConfigError` with one line."""
    path = artifact(SOLVER, fingerprint(_SOURCES))
    if is_built(path):
        return path
    try:
        from acados_gen.toolchain import ToolchainError, ensure_acados

        try:
            return _build(ensure_acados(), path)
        except (CompileError, ToolchainError) as error:
            raise ConfigError(f"--stack paper: {error}") from None
    except ImportError as error:
        raise ConfigError(f"--stack paper: needs the package {error.name}: install companion[generate]") from None


def _build(home: Path, path: Path) -> Path:
    from acados_gen.generate_control import LIBRARIES, copy_whole, link_flags

    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        code = Path(scratch) / "code"
        code.mkdir()
        interface = home / "interfaces" / "acados_template"
        paths = [str(_GENERATOR.parent), str(interface), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {
            "ACADOS_SOURCE_DIR": str(home),
            "TERA_PATH": str(home / "bin" / "t_renderer"),
            "PYTHONPATH": os.pathsep.join(paths),
        }
        command = [sys.executable, "-m", "acados_gen.paper_ocp", str(code)]
        result = subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=code, timeout=GENERATION_TIMEOUT_S
        )
        if result.returncode != 0:
            lines = [line for line in result.stderr.splitlines() if line.strip()] or ["no message"]
            raise CompileError(f"{SOLVER}: generating the code failed: {lines[-1].strip()}")
        sources = [_C_SOURCE, code / "acados_solver_flight_nmpc.c"]
        for folder in ("flight_nmpc_model", "flight_nmpc_cost", "flight_nmpc_constraints"):
            sources += sorted((code / folder).glob("*.c"))
        for name in LIBRARIES:
            if (home / "lib" / name).exists():
                copy_whole(home / "lib" / name, path.parent / name)
        return compile_library(SOLVER, fingerprint(_SOURCES), sources, link_flags(home, code))


class PaperNmpc:
    """Owns one solver in C with its buffers."""

    def __init__(self, paper: PaperVehicle) -> None:
        """paper: weights and bounds. Raises `ConfigError` for a failed build."""
        self._c = ctypes.CDLL(str(build()))
        self.nodes = NODES
        self.step_s = HORIZON_S / NODES
        self.times_s = np.arange(NODES + 1, dtype=float) * self.step_s
        self._x0 = np.zeros(STATES)
        self._references = np.zeros((NODES + 1, STATES + INPUTS))
        self._parameters = np.zeros((NODES + 1, STAGE_PARAMETERS))
        self._inputs = np.zeros((NODES, INPUTS))
        self._states = np.zeros((NODES + 1, STATES))
        self._info = np.zeros(2)
        pointer = ctypes.c_void_p
        self._c.paper_create.restype = pointer
        self._c.paper_free.argtypes, self._c.paper_free.restype = [pointer], None
        self._c.paper_set_weights.argtypes, self._c.paper_set_weights.restype = [pointer] * 3, None
        self._c.paper_set_bounds.argtypes = [pointer] * 3 + [ctypes.c_double]
        self._c.paper_set_bounds.restype = None
        self._c.paper_solve.argtypes = [pointer] * 7
        self._self = self._c.paper_create()
        if not self._self:
            raise MemoryError("the solver of the prior stack cannot be created")
        buffers = (self._x0, self._references, self._parameters, self._inputs, self._states, self._info)
        self._arguments = (self._self, *(buffer.ctypes.data for buffer in buffers))

        state = np.array([*paper.position_weights, *paper.velocity_weights, *paper.attitude_weights])
        running = np.array([*state, paper.thrust_weight, *paper.roll_pitch_weights])
        terminal = TERMINAL_FACTOR * state
        self._c.paper_set_weights(self._self, running.ctypes.data, terminal.ctypes.data)
        tilt = paper.tilt_command_max_rad
        low = np.array([paper.thrust_bounds[0], -tilt, -tilt])
        high = np.array([paper.thrust_bounds[1], tilt, tilt])
        self._c.paper_set_bounds(self._self, low.ctypes.data, high.ctypes.data, TILT_STATE_MAX_RAD)

    def __del__(self) -> None:
        if getattr(self, "_self", None):
            self._c.paper_free(self._self)
            self._self = None

    def solve(self, x0: Vector, references: Array, parameters: Array) -> NmpcResult:
        """Solve to convergence. Shapes and meaning as `companion.control.solver.Nmpc.solve`.

        The input part of `references` is also the guess of the inputs (hover, as published); `qp_iterations` of the
        result counts SQP iterations.
        """
        self._x0[:] = x0
        self._references[:] = references
        self._parameters[:] = parameters
        status = self._c.paper_solve(*self._arguments)
        return NmpcResult(status, self._inputs.copy(), self._states.copy(), float(self._info[0]), int(self._info[1]))

"""The prior stack's way to solve the same problem: a full SQP from hover inputs, every cycle.

Paper 1 solves N = 60, T = 3 s by acados' SQP with HPIPM to convergence and starts every cycle from hover inputs. Here
this is done with the model, the weights and the bounds of `acados_gen.ocp` and acados' own defaults otherwise, in C,
so that what is compared is the way of solving.
"""

import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from acados_gen import control_artifacts, generate_control
from acados_gen.compile import CompileError, compile_library
from acados_gen.toolchain import ensure_acados
from companion.control.solver import INPUTS, Nmpc
from companion.kernel import artifact, fingerprint
from companion.vehicle import Vehicle

NAME = "nmpc_full_sqp"
FIELDS = ("capsule", "config", "dims", "in", "out", "solver")  # of the struct in acados_gen/nmpc.c, in its order


def library(vehicle: Vehicle) -> Path:
    """The solver, built if need be. Raises `CompileError` or `acados_gen.toolchain.ToolchainError`."""
    options = control_artifacts.solver_options(vehicle)
    ours = control_artifacts.solver_path(vehicle)
    print_ = fingerprint([Path(__file__)], options | {"like": ours.parent.name})
    path = artifact(NAME, print_)
    if path.exists():
        return path
    home = ensure_acados()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        code = Path(scratch) / "code"
        code.mkdir()
        root = Path(__file__).parents[2]
        environment = os.environ | {
            "ACADOS_SOURCE_DIR": str(home),
            "TERA_PATH": str(home / "bin" / "t_renderer"),
            "PYTHONPATH": os.pathsep.join([str(root), str(home / "interfaces" / "acados_template")]),
        }
        command = [sys.executable, __file__, str(code), str(options["nodes"]), str(options["horizon_s"])]
        result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=code)
        if result.returncode != 0:
            raise CompileError(f"full SQP: {result.stderr.strip().splitlines()[-1]}")
        sources = [root / "acados_gen" / "nmpc.c", code / "acados_solver_flight_nmpc.c"]
        sources += sorted(code.glob("flight_nmpc_*/*.c"))
        for name in generate_control.LIBRARIES:
            if (home / "lib" / name).exists():
                generate_control._copy(home / "lib" / name, path.parent / name)
        return compile_library(NAME, print_, sources, generate_control._flags(home, code))


class FullSqp(Nmpc):
    """`Nmpc` with the full SQP; `from_hover` before every `solve`."""

    def __init__(self, vehicle: Vehicle) -> None:
        super().__init__(vehicle, library(vehicle))
        pointers = ctypes.cast(self._self, ctypes.POINTER(ctypes.c_void_p))
        self._parts = {name: pointers[i] for i, name in enumerate(FIELDS)}
        self._set = self._c.ocp_nlp_out_set
        self._set.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p]
        self._set.restype = None

    def from_hover(self, thrust: float) -> None:
        """Start the next solution from level hover inputs at all nodes."""
        hover = (ctypes.c_double * INPUTS)(thrust, 0.0, 0.0)
        parts = self._parts
        for node in range(self.nodes):
            self._set(parts["config"], parts["dims"], parts["out"], node, b"u", hover)


def main() -> None:
    """Write the solver's code into a folder: ``full_sqp.py FOLDER N T``."""
    folder, nodes, horizon_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    from acados_template import AcadosOcpSolver

    from acados_gen.ocp import build_ocp

    ocp = build_ocp(nodes, horizon_s, nodes)  # N blocks: nothing is condensed, acados' default
    ocp.solver_options.nlp_solver_type = "SQP"
    ocp.solver_options.hpipm_mode = "BALANCE"
    ocp.code_export_directory = folder
    AcadosOcpSolver.generate(ocp, json_file=str(Path(folder) / "ocp.json"))


if __name__ == "__main__":
    main()

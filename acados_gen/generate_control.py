"""Builds the compiled artefacts of `companion.control`: the NMPC solver and the prediction kernel.

Run as ``python -m acados_gen.generate_control config/vehicles/f550.toml``; ``companion generate`` calls `generate`.
An artefact that exists for the same sources and options is kept.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from acados_gen.compile import CompileError, compile_functions, compile_library
from acados_gen.toolchain import ToolchainError, ensure_acados
from companion.core import control_artifacts as artifacts
from companion.core.config import ConfigError, load
from companion.core.disk import put_in_place
from companion.core.kernel import is_built
from companion.core.vehicle import Vehicle

LIBRARIES = ("libacados.so", "libhpipm.so", "libblasfeo.so", "libqpOASES_e.so.3.1")  # by their sonames
GENERATION_TIMEOUT_S = 300.0


def print_nothing(_line: str) -> None:
    """Discards the progress messages."""


def generate(vehicle: Vehicle, progress: Callable[[str], None] = print_nothing) -> list[Path]:
    """Build what is missing for this vehicle file; returns the libraries' paths.

    Raises ToolchainError or `acados_gen.compile.CompileError`, each with one line.
    """
    return [_prediction(progress), _solver(vehicle, progress)]


def _prediction(progress: Callable[[str], None]) -> Path:
    path = artifacts.prediction_path()
    if is_built(path):
        return path
    progress("prediction kernel: generating and compiling")
    import casadi as ca

    from acados_gen.flight_model import PARAMETERS, euler_model, rk4

    state, command = ca.SX.sym("state", 9), ca.SX.sym("command", 4)
    disturbance, parameters, step_s = ca.SX.sym("d", 3), ca.SX.sym("q", len(PARAMETERS)), ca.SX.sym("h")
    after = rk4(lambda x: euler_model(x, command, disturbance, parameters), state, step_s)
    predict = ca.Function(artifacts.PREDICT, [state, command, disturbance, parameters, step_s], [after])
    return compile_functions(artifacts.PREDICTION, artifacts.prediction_fingerprint(), [predict])


def _solver(vehicle: Vehicle, progress: Callable[[str], None]) -> Path:
    path = artifacts.solver_path(vehicle)
    if is_built(path):
        return path
    progress("acados: searching, installing if it is missing")
    home = ensure_acados()
    path.parent.mkdir(parents=True, exist_ok=True)
    options = artifacts.solver_options(vehicle)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        code = Path(scratch) / "code"
        code.mkdir()
        progress(f"solver: generating for N = {options['nodes']}, T = {options['horizon_s']:g} s")
        _write_code(home, code, options)
        progress("solver: compiling")
        sources = [Path(__file__).with_name("nmpc.c"), code / "acados_solver_flight_nmpc.c"]
        sources += sorted((code / "flight_nmpc_model").glob("*.c"))
        for folder in ("flight_nmpc_cost", "flight_nmpc_constraints"):
            sources += sorted((code / folder).glob("*.c"))
        for name in LIBRARIES:
            if (home / "lib" / name).exists():
                copy_whole(home / "lib" / name, path.parent / name)
        return compile_library(artifacts.SOLVER, artifacts.solver_fingerprint(vehicle), sources, link_flags(home, code))


def _write_code(home: Path, code: Path, options: Mapping[str, float]) -> None:
    interface = home / "interfaces" / "acados_template"
    repository = Path(__file__).parents[1]
    paths = [str(repository), str(interface), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "ACADOS_SOURCE_DIR": str(home),
        "TERA_PATH": str(home / "bin" / "t_renderer"),
        "PYTHONPATH": os.pathsep.join(paths),
    }
    numbers = [str(options[key]) for key in ("nodes", "horizon_s", "condensed_nodes")]
    command = [sys.executable, "-m", "acados_gen.ocp", str(code), *numbers]
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=code, timeout=GENERATION_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise CompileError(f"solver: generating the code took more than {GENERATION_TIMEOUT_S:.0f} s") from None
    if result.returncode != 0:
        lines = [line for line in result.stderr.splitlines() if line.strip()] or ["no message"]
        raise CompileError(f"solver: generating the code failed: {lines[-1].strip()}")


def link_flags(home: Path, code: Path) -> list[str]:
    """Compiler flags for code in a folder; links against the acados in home, loads it from the library's folder."""
    include = home / "include"
    folders = [code, include, include / "acados", include / "blasfeo" / "include", include / "hpipm" / "include"]
    return [
        *(f"-I{folder}" for folder in folders),
        f"-L{home / 'lib'}",
        # All libraries by name, with an rpath that they inherit: the folder works at any place, independent of other
        # acados installations on the machine.
        "-Wl,--no-as-needed,--disable-new-dtags,-rpath,$ORIGIN",
        "-lacados",
        "-lhpipm",
        "-lblasfeo",
        f"-Wl,-rpath-link,{home / 'lib'}",
    ]


def copy_whole(source: Path, target: Path) -> None:
    """Copy a library; the target appears only when it is complete and on the disk."""
    partial = target.with_name(f".{target.name}.{os.getpid()}")  # hidden: no library of the folder yet
    shutil.copyfile(source, partial)
    put_in_place(partial, target)


def main() -> int:
    """Generate for the vehicle file named on the command line."""
    if len(sys.argv) != 2:
        print("usage: python -m acados_gen.generate_control VEHICLE.toml", file=sys.stderr)
        return 2
    try:
        for path in generate(load(sys.argv[1], Vehicle), print):
            print(path)
    except (ConfigError, ToolchainError, CompileError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

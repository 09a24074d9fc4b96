"""Names and fingerprints of the control room's compiled artefacts, for who builds them and who loads them.

Only the sources and the options that shape the code count: weights, bounds, parameters and latencies may be changed
in the vehicle file without building anew. Needs neither CasADi nor acados: flight code imports it.
"""

from pathlib import Path

from companion.core import frames
from companion.core.kernel import GENERATORS, artifact, fingerprint, require
from companion.core.vehicle import Vehicle

SOLVER, PREDICTION = "nmpc", "flight_prediction"
PREDICT = "predict"  # the function in the prediction library

# The model, what it imports (gravity), and what turns it into code.
_COMMON = [
    GENERATORS / "flight_model.py",
    Path(frames.__file__),
    GENERATORS / "compile.py",
    GENERATORS / "generate_control.py",
]
_SOLVER_SOURCES = [*_COMMON, GENERATORS / "ocp.py", GENERATORS / "nmpc.c", GENERATORS / "requirements-acados.txt"]


def solver_options(vehicle: Vehicle) -> dict:
    """What shapes the generated solver: nodes, horizon_s, condensed_nodes."""
    controller = vehicle.controller
    return {
        "nodes": controller.nodes,
        "horizon_s": float(controller.horizon_s),
        "condensed_nodes": controller.condensed_nodes,
    }


def solver_fingerprint(vehicle: Vehicle) -> str:
    return fingerprint(_SOLVER_SOURCES, solver_options(vehicle))


def prediction_fingerprint() -> str:
    return fingerprint(_COMMON)


def solver_path(vehicle: Vehicle) -> Path:
    """Where the solver library of this vehicle lies or would lie."""
    return artifact(SOLVER, solver_fingerprint(vehicle))


def prediction_path() -> Path:
    """Where the prediction kernel lies or would lie."""
    return artifact(PREDICTION, prediction_fingerprint())


def require_solver(vehicle: Vehicle) -> Path:
    """The solver library; raises `companion.core.kernel.ArtifactMissing` with one line."""
    return require(SOLVER, solver_fingerprint(vehicle))


def require_prediction() -> Path:
    """The prediction kernel; raises `companion.core.kernel.ArtifactMissing` with one line."""
    return require(PREDICTION, prediction_fingerprint())

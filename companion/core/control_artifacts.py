"""Names and fingerprints of the controller's compiled artefacts; the generator and the controller both use them.

Only the sources and the options that shape the code count: weights, bounds, parameters and latencies may be changed
in the vehicle file without building again. Needs neither CasADi nor acados, because flight code imports it.
"""

from pathlib import Path

from companion.core import frames
from companion.core.kernel import GENERATORS, artifact, fingerprint, require
from companion.core.vehicle import Vehicle

SOLVER, PREDICTION = "nmpc", "flight_prediction"
PREDICT = "predict"  # the function in the prediction library

# The flight model, its import (gravity), and the code generators.
_COMMON = [
    GENERATORS / "flight_model.py",
    Path(frames.__file__),
    GENERATORS / "compile.py",
    GENERATORS / "generate_control.py",
]
_SOLVER_SOURCES = [*_COMMON, GENERATORS / "ocp.py", GENERATORS / "nmpc.c", GENERATORS / "requirements-acados.txt"]


def solver_options(vehicle: Vehicle) -> dict[str, int | float]:
    """The numbers that shape the generated solver: nodes, horizon_s, condensed_nodes."""
    controller = vehicle.controller
    return {
        "nodes": controller.nodes,
        "horizon_s": float(controller.horizon_s),
        "condensed_nodes": controller.condensed_nodes,
    }


def solver_fingerprint(vehicle: Vehicle) -> str:
    """Of the solver's sources and this vehicle's `solver_options`."""
    return fingerprint(_SOLVER_SOURCES, solver_options(vehicle))


def prediction_fingerprint() -> str:
    """Of the prediction kernel's sources; all vehicles share it, because the parameters are arguments."""
    return fingerprint(_COMMON)


def solver_path(vehicle: Vehicle) -> Path:
    """Path of the solver library of this vehicle; it need not exist."""
    return artifact(SOLVER, solver_fingerprint(vehicle))


def prediction_path() -> Path:
    """Path of the prediction kernel; it need not exist."""
    return artifact(PREDICTION, prediction_fingerprint())


def require_solver(vehicle: Vehicle) -> Path:
    """The solver library; raises `companion.core.kernel.ArtifactMissing` with one line."""
    return require(SOLVER, solver_fingerprint(vehicle))


def require_prediction() -> Path:
    """The prediction kernel; raises `companion.core.kernel.ArtifactMissing` with one line."""
    return require(PREDICTION, prediction_fingerprint())

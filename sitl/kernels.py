"""Builds the compiled artefacts of a simulated flight when they are missing."""

from collections.abc import Callable
from pathlib import Path

from companion.core.config import load
from companion.core.control_artifacts import require_prediction, require_solver
from companion.core.kernel import ArtifactMissing, require
from companion.core.pose_artifact import require_pose
from companion.core.vehicle import Vehicle
from companion.estimation.layout import NAME as ESKF
from companion.estimation.layout import eskf_fingerprint


def build_missing(vehicle_file: Path, say: Callable[[str], None]) -> None:
    """Build solver and kernels for a vehicle file unless all are there; what is there needs no code generator.

    say: takes progress lines. Raises `UserError` with one line: a bad file, no compiler, no network for acados.
    """
    if is_built(load(vehicle_file, Vehicle)):
        return
    from acados_gen.generate import generate_all

    say(f"building solver and kernels for {vehicle_file} (once, about a minute)")
    for library in generate_all([vehicle_file], say):
        say(f"built {library}")


def is_built(vehicle: Vehicle) -> bool:
    """Whether all artefacts for these sources and this vehicle file are there."""
    try:
        require_solver(vehicle)
        require_prediction()
        require(ESKF, eskf_fingerprint())
        require_pose()
    except ArtifactMissing:
        return False
    return True

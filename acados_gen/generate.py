"""Builds every compiled artefact for a set of vehicle files. This may take minutes."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from companion.core.config import ConfigError, load
from companion.core.vehicle import Vehicle


def generate_all(vehicle_files: Iterable[Path], progress: Callable[[str], None] = lambda line: None) -> Iterator[Path]:
    """Build what is missing and yield each library's path. Raises `ConfigError` with one line.

    progress: receives one line for each step of the work.
    """
    try:
        from acados_gen.eskf_model import generate as generate_estimator
        from acados_gen.generate_control import generate as generate_control
    except ImportError as error:
        raise ConfigError(f"code generation needs the package {error.name}: install companion[generate]") from None
    from acados_gen.compile import CompileError, compile_library
    from companion.core import pose_artifact

    try:
        for path in vehicle_files:
            vehicle = load(path, Vehicle)
            yield from generate_control(vehicle, progress)
        yield from generate_estimator()
        yield compile_library(pose_artifact.NAME, pose_artifact.pose_fingerprint(), pose_artifact.SOURCES)
    except CompileError as error:
        raise ConfigError(str(error)) from None

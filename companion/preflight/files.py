"""Checks of files: vehicle file, mission with its markers, and the compiled artefacts made for them."""

from collections.abc import Callable
from pathlib import Path

from companion.control.solver import Nmpc
from companion.core.config import ConfigError, load
from companion.core.config_files import ConfigKind, check_kind
from companion.core.control_artifacts import require_prediction, solver_fingerprint
from companion.core.kernel import ArtifactMissing, require
from companion.core.pose_artifact import require_pose
from companion.core.vehicle import Vehicle
from companion.core.voltage import EMPTY_CELL_V, FULL_CELL_V, RANGE, cells
from companion.estimation.layout import NAME as ESKF
from companion.estimation.layout import eskf_fingerprint
from companion.mission.inspection_files import load_inspection
from companion.mission.plan import Plan, check_vehicle, load_plan, site_of
from companion.preflight.report import PreflightCheck, failed, ok, skipped, warning

COMMAND = "companion preflight"
ENDS = "the flight would end (battery_implausible); correct thrust.reference_voltage_v, or safety.battery_critical_v"


def vehicle_file(path: Path) -> tuple[PreflightCheck, Vehicle | None]:
    """The check and the vehicle, or None when the file cannot be used."""
    try:
        check_kind(path, ConfigKind.VEHICLE, COMMAND)
        vehicle = load(path, Vehicle)
    except ConfigError as error:
        return failed("vehicle file", str(error)), None
    return ok("vehicle file", f"{path}: {vehicle.name}"), vehicle


def mission_file(path: Path | None, vehicle: Vehicle | None = None) -> tuple[PreflightCheck, Plan | None]:
    """The check and the plan, or None when none is given or it cannot be read. vehicle: that flies it."""
    if path is None:
        return skipped("mission file", "none given (--mission)"), None
    plan = None
    try:
        check_kind(path, ConfigKind.MISSION, COMMAND)
        plan = load_plan(path)
        if vehicle is not None:
            check_vehicle(plan, vehicle, f"{path}: ")
            load_inspection(plan, site_of(plan), vehicle, path)
    except ConfigError as error:
        return failed("mission file", str(error)), plan
    return ok("mission file", f"{path}: {plan.name}"), plan


def battery_range(vehicle: Vehicle) -> PreflightCheck:
    """A full and an empty battery lie within the range in which a voltage counts as plausible in flight."""
    name, reference_v = "battery range", vehicle.thrust.reference_voltage_v
    number = cells(vehicle.safety.battery_critical_v)
    low_v, high_v = (share * reference_v for share in RANGE)
    full_v, empty_v = number * FULL_CELL_V, number * EMPTY_CELL_V
    limits = (
        f"{low_v:.1f} to {high_v:.1f} V, {RANGE[0]:g} to {RANGE[1]:g} of thrust.reference_voltage_v = {reference_v:g}"
    )
    if full_v > high_v:
        return warning(
            name, f"a full battery of {number} cells has {full_v:.1f} V, plausible in flight is {limits}: {ENDS}"
        )
    if empty_v < low_v:
        return warning(
            name, f"an empty battery of {number} cells has {empty_v:.1f} V, plausible in flight is {limits}: {ENDS}"
        )
    return ok(name, f"{empty_v:.1f} to {full_v:.1f} V ({number} cells), plausible in flight is {limits}")


def artefact_checks(vehicle: Vehicle) -> list[PreflightCheck]:
    """The compiled artefacts belong to these sources and this vehicle file, and can be loaded."""
    return [
        _artefact("solver", lambda: Nmpc(vehicle), f"{solver_fingerprint(vehicle)}, made for this vehicle file"),
        _artefact("kernels", lambda: (require_prediction(), require(ESKF, eskf_fingerprint()), require_pose()),
                  "filter, prediction and pose, made from these sources"),
    ]  # fmt: skip


def _artefact(name: str, use: Callable[[], object], detail: str) -> PreflightCheck:
    try:
        use()
    except (ArtifactMissing, OSError, MemoryError) as error:
        return failed(name, str(error))
    return ok(name, detail)

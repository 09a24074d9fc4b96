"""``companion calibrate extrinsics``: where the camera sits on the aircraft, from a flight over a bundle."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec

import click
import numpy as np

from calibration.flown_vehicle import refuse_other_aircraft
from calibration.mount.fit import DELTA, P_BC, R_BC, MountFit, MountProblem, Noise
from calibration.mount.initial_guess import delay, starts
from calibration.mount.motion import Motion, motion_of, rotation_advice, translation_advice
from calibration.mount.observations import MountLog, read_mount_log
from calibration.results import DataError, Result, result, write_json
from calibration.vehicle_file import Change, confirm_and_write
from companion.core.arrays import Array
from companion.core.command_line import HELP, OutputFile, WritableVehicle, one_line_errors
from companion.core.config import load
from companion.core.frames import quat_from_matrix, rotation_matrix
from companion.core.vehicle import Vehicle

ROTATION_STD_MAX_RAD = float(np.radians(0.5))  # a less certain rotation is not written
TRANSLATION_STD_MAX_M = 0.01  # a less certain position is not written
CORRELATION_MIN = 0.5  # of the rotations of aircraft and camera
LATE_S, LATE_SIGMAS = 0.004, 3.0  # stamps that are late by more give a warning
MISFIT_MAX = 0.05  # share of observations that do not fit
RESIDUAL_MAX_RAD = float(np.radians(5.0))  # median difference between an observation and the attitude
AXES = "xyz"

P = ParamSpec("P")


@dataclass(frozen=True)
class Extrinsics:
    """A mount with its data; with_position: whether p_BC was fitted."""

    log: MountLog
    fit: MountFit
    motion: Motion
    with_position: bool
    warnings: list[str]

    @property
    def rotation_std_rad(self) -> Array:
        """About the body's axes, (3,)."""
        R = self.fit.mount.R_BC
        std: Array = np.sqrt(np.diag(R @ self.fit.covariance[R_BC, R_BC] @ R.T))
        return std

    @property
    def translation_std_m(self) -> Array:
        """Of p_BC, (3,)."""
        return self.fit.std[P_BC]


def find_extrinsics(log: MountLog) -> Extrinsics:
    """The mount from a log; raises `DataError` when its rotation is not determined, with what to fly instead."""
    problem = MountProblem(log, log.position is not None)
    motion = motion_of(problem)
    fit = best_fit(log, problem, motion)
    found = Extrinsics(log, fit, motion, log.position is not None, [])
    weak = found.rotation_std_rad > ROTATION_STD_MAX_RAD
    if weak.any():
        axes = ", ".join(f"{AXES[i]} ± {np.degrees(found.rotation_std_rad[i]):.1f}°" for i in np.flatnonzero(weak))
        raise DataError(
            f"{log.path}: the camera's rotation about the body's {axes} is not determined by this motion ({motion}): "
            f"{rotation_advice(weak, motion)}"
        )
    found.warnings.extend(_warnings(found))
    return found


def best_fit(log: MountLog, problem: MountProblem, motion: Motion) -> MountFit:
    """The fit from the start value with the smaller error; raises `DataError` when the rotations do not correlate."""
    delta_s, correlation = delay(problem)
    if correlation < CORRELATION_MIN:
        raise DataError(
            f"{log.path}: the camera's rotation does not follow the aircraft's (correlation {correlation:.2f}; "
            f"{motion}): turn and lean more, over a bundle that does not move"
        )
    noise, ones = Noise(), np.ones(len(problem.seen))
    tried = [problem.descend(start, noise, ones) for start in starts(log, problem, delta_s)]
    best = min(tried, key=lambda m: problem.normal(m, noise, problem.seen, ones).cost)
    fit = problem.solve(best, noise)
    residual_rad = float(np.sqrt(np.median(np.sum(fit.residuals[:, 3:] ** 2, axis=1))))
    if residual_rad > RESIDUAL_MAX_RAD:
        raise DataError(
            f"{log.path}: no mount of the camera explains the observations (residual {np.degrees(residual_rad):.0f}°; "
            f"{motion}): the bundle moved, or the aircraft turned about one axis only; turn and lean more"
        )
    return fit


def _warnings(found: Extrinsics) -> list[str]:
    fit, log, out = found.fit, found.log, [*found.log.notes, *found.log.doubts]
    if not found.with_position:
        out.append(f"{log.no_position}: camera.p_BC stays as it is")
    elif (weak := found.translation_std_m > TRANSLATION_STD_MAX_M).any():
        axes = ", ".join(f"{AXES[i]} ± {1e3 * found.translation_std_m[i]:.0f} mm" for i in np.flatnonzero(weak))
        advice = translation_advice(weak, found.motion, fit)
        out.append(f"the camera's position is not determined ({axes}): camera.p_BC stays as it is; {advice}")
    late, std = fit.mount.delta_s, fit.std[DELTA]
    if abs(late) > max(LATE_S, LATE_SIGMAS * std):
        true_ms, ms = 1e3 * (log.camera_s + late), 1e3 * log.camera_s
        out.append(
            f"latency.camera_s was {ms:.0f} ms in this flight and should be {true_ms:.0f} ms: run companion calibrate "
            "latency"
        )
    out += misfits(fit)
    if log.ambiguous > len(log.observations):
        out.append(f"{log.ambiguous} observations were ambiguous and left out: fly nearer to the bundle")
    return out


def misfits(fit: MountFit) -> list[str]:
    """A sentence when many observations do not fit."""
    share = float(np.mean(fit.weights == 0))
    sentence = f"{100 * share:.0f} % of the observations do not fit: did the bundle or the mount move?"
    return [sentence] if share > MISFIT_MAX else []


def log_arguments(function: Callable[P, None]) -> Callable[P, None]:
    """The arguments of a command that reads a log with observations: log, bundle, vehicle, json_file, yes, this_aircraft."""
    for declared in (
        click.option(
            "--this-aircraft",
            is_flag=True,
            help="With --yes: write also if the log looks like that of another aircraft.",
        ),
        click.option("--yes", is_flag=True, help="Write into the vehicle file without asking."),
        click.option("--json", "json_file", type=OutputFile(), help="Write the result here."),
        click.option("--vehicle", type=WritableVehicle(), help="Vehicle file to write into."),
        click.option("--bundle", help="Which bundle of the log; default: the one seen most."),
        click.argument("log", type=click.Path(path_type=Path)),
    ):
        function = declared(function)
    return function


@click.command(context_settings=HELP)
@log_arguments
@one_line_errors
def command(
    log: Path, bundle: str | None, vehicle: Path | None, json_file: Path | None, yes: bool, this_aircraft: bool
) -> None:
    """Position and rotation of the camera on the aircraft, from a LOG of a flight (or walk) over a fixed bundle.

    The fit uses the vehicle numbers that flew. --vehicle names the file to write into; without it nothing is written.
    """
    if vehicle:
        load(vehicle, Vehicle)  # a wrong file is refused before the fit
    found = find_extrinsics(read_mount_log(log, bundle, vehicle))
    content = as_result(found)
    _show(found, content)
    if json_file:
        write_json(json_file, content)
    if vehicle:
        notes = {
            "camera.q_BC": f"± {np.degrees(found.rotation_std_rad.max()):.2f}°",
            "camera.p_BC": f"± {1e3 * found.translation_std_m.max():.1f} mm",
        }
        changes = [Change(key, value, f"{log.name}: {notes[key]}") for key, value in content["values"].items()]
        refuse_other_aircraft(vehicle, found.log.doubts, yes, this_aircraft)
        confirm_and_write(vehicle, changes, yes)


def as_result(found: Extrinsics) -> Result:
    """The result in the schema of all calibration commands."""
    fit, m = found.fit, found.fit.mount
    values = {"camera.q_BC": quat_from_matrix(m.R_BC)}
    certain = found.with_position and (found.translation_std_m <= TRANSLATION_STD_MAX_M).all()
    if certain:
        values["camera.p_BC"] = m.p_BC
    turn = np.degrees(np.arccos(np.clip((np.trace(rotation_matrix(found.log.q_BC).T @ m.R_BC) - 1) / 2, -1, 1)))
    merit = {
        "rotation_std_deg": np.degrees(found.rotation_std_rad),
        "translation_std_m": found.translation_std_m if found.with_position else None,
        "observations": len(fit.t_s),
        "misfits": float(np.mean(fit.weights == 0)),
        "residual_position_m": float(np.sqrt(np.mean(fit.residuals[:, :3] ** 2))) if found.with_position else None,
        "residual_rotation_deg": float(np.degrees(np.sqrt(np.mean(fit.residuals[:, 3:] ** 2)))),
        "changed_deg": float(turn),
        "changed_m": float(np.linalg.norm(m.p_BC - found.log.p_BC)) if found.with_position else None,
    }
    details = {
        "bundle": found.log.bundle,
        "motion": {
            "duration_s": found.motion.duration_s,
            "roll_pitch_deg": np.degrees(found.motion.lean_rad),
            "yaw_span_deg": np.degrees(found.motion.yaw_span_rad),
        },
        "camera_late_s": m.delta_s,
        "camera_late_std_s": float(fit.std[DELTA]),
        "noise": {name: getattr(fit.noise, name) for name in fit.noise.__dataclass_fields__},
        "p_BC": m.p_BC if found.with_position else None,
    }
    return result("calibrate extrinsics", [found.log.path], values, merit, found.warnings, details)


def _show(found: Extrinsics, content: Result) -> None:
    fit, m, merit = found.fit, found.fit.mount, content["merit"]
    click.echo(f"{merit['observations']} observations of '{found.log.bundle}'; {found.motion}")
    std = ", ".join(f"{np.degrees(s):.2f}°" for s in found.rotation_std_rad)
    click.echo(f"  q_BC  {_row(quat_from_matrix(m.R_BC), 5)}   ± {std} about x, y, z")
    if found.with_position:
        std = ", ".join(f"{1e3 * s:.1f}" for s in found.translation_std_m)
        click.echo(f"  p_BC  {_row(m.p_BC, 4)} m   ± {std} mm")
        click.echo(f"  {1e3 * merit['changed_m']:.0f} mm and {merit['changed_deg']:.2f}° from the flown mount")
    else:
        click.echo(f"  {merit['changed_deg']:.2f}° from the flown mount")
    click.echo(f"  images stamped {1e3 * m.delta_s:+.1f} ms late (± {1e3 * fit.std[DELTA]:.1f} ms)")
    for warning in found.warnings:
        click.echo(f"warning: {warning}")


def _row(numbers: Array, digits: int) -> str:
    return "[" + ", ".join(f"{n:.{digits}f}" for n in numbers) + "]"

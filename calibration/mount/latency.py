"""``companion calibrate latency``: how late images are, and how long a setpoint takes to act, from a flight log."""

from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from calibration.identification.identify import MOVES_RAD, Axis, Identification, identify_axis, read, unusable
from calibration.identification.values import actuation_delay
from calibration.mount.extrinsics import best_fit, log_arguments, misfits
from calibration.mount.fit import DELTA, MountFit, MountProblem
from calibration.mount.motion import Motion, motion_of
from calibration.mount.observations import MountLog, read_mount_log
from calibration.results import DataError, result, write_json
from calibration.vehicle_file import Change, confirm_and_write
from companion.core.command_line import one_line_errors
from companion.core.config import ConfigError, load
from companion.core.vehicle import Vehicle

CAMERA_STD_MAX_S = 0.005  # a less certain delay is not written
ALLOWED_S = (0.0, 0.5)  # of latency.camera_s, as in companion/core/vehicle.py


@dataclass(frozen=True)
class CameraLatency:
    """latency.camera_s and its deviation, from rotations alone; late_s: how much the flown number was too small."""

    log: MountLog
    fit: MountFit
    motion: Motion

    @property
    def late_s(self) -> float:
        return self.fit.mount.delta_s

    @property
    def camera_s(self) -> float:
        return self.log.camera_s + self.late_s

    @property
    def std_s(self) -> float:
        return float(self.fit.std[DELTA])


@dataclass(frozen=True)
class Actuation:
    """From a setpoint leaving to the response beyond the first-order lag: delay and half of its 95 % interval [s]."""

    delay_s: float
    interval_s: float
    axes: tuple[Axis, Axis]


def find_camera_latency(log: MountLog) -> CameraLatency:
    """The delay of a camera's images; raises `DataError` when the motion does not tell."""
    problem = MountProblem(log, with_position=False, margin_s=0.5)
    motion = motion_of(problem)
    found = CameraLatency(log, best_fit(log, problem, motion), motion)
    if found.std_s > CAMERA_STD_MAX_S:
        raise DataError(
            f"{log.path}: the images' delay is known to ± {1e3 * found.std_s:.0f} ms only, rates were "
            f"{motion.rate_rad_s:.2f} rad/s RMS ({motion}): turn and lean faster, for longer"
        )
    if not ALLOWED_S[0] <= found.camera_s <= ALLOWED_S[1]:
        raise DataError(
            f"{log.path}: images come {1e3 * found.camera_s:.0f} ms after their exposure by this log, allowed are "
            f"{1e3 * ALLOWED_S[0]:.0f} to {1e3 * ALLOWED_S[1]:.0f} ms: did latency.camera_s = {log.camera_s:g} s fly?"
        )
    return found


def find_actuation(path: Path) -> Actuation:
    """The delay of roll and pitch as `companion identify` finds it; raises `DataError` when the log does not tell."""
    flight = read(path)
    if problem := unusable(flight):
        raise DataError(f"{path}: {problem}")
    roll, pitch = (
        identify_axis(name, flight, flight.setpoint.column(i), flight.attitude.column(i), MOVES_RAD)
        for i, name in enumerate(("roll", "pitch"))
    )
    delay = actuation_delay(Identification(flight, roll, pitch, Axis("yaw rate"), None, "", [], None))
    if delay is None:
        raise DataError(f"{path}: lacks excitation: roll {roll.reason}; pitch {pitch.reason}")
    return Actuation(*delay, (roll, pitch))


@click.command()
@log_arguments
@one_line_errors
def command(log: Path, bundle: str | None, vehicle: Path | None, json_file: Path | None, yes: bool) -> None:
    """Delays from a LOG of a flight over a bundle: of the camera's images, and of setpoints until they act.

    What the log cannot tell is said and stays as it is. Without --vehicle nothing but the result is shown.
    """
    believed = load(vehicle, Vehicle) if vehicle else None
    camera, actuation, unknown = None, None, []
    try:
        camera = find_camera_latency(read_mount_log(log, bundle, believed))
    except DataError as error:
        unknown.append(str(error).removeprefix(f"{log}: "))
    try:
        actuation = find_actuation(log)
    except ConfigError as error:
        unknown.append(str(error).removeprefix(f"{log}: "))
    if camera is None and actuation is None:
        raise DataError(f"{log}: {'; '.join(dict.fromkeys(unknown))}")
    content = as_result(log, camera, actuation, unknown)
    _show(camera, actuation, content["warnings"])
    if json_file:
        write_json(json_file, content)
    if vehicle:
        confirm_and_write(vehicle, _changes(log, camera, actuation), yes)


def _changes(log: Path, camera: CameraLatency | None, actuation: Actuation | None) -> list[Change]:
    made = []
    if camera:
        made.append(Change("latency.camera_s", round(camera.camera_s, 4), f"{log.name}: ± {1e3 * camera.std_s:.1f} ms"))
    if actuation:
        note = f"{log.name}: ± {1e3 * actuation.interval_s:.0f} ms"
        made.append(Change("latency.actuation_s", round(actuation.delay_s, 4), note))
    return made


def as_result(log: Path, camera: CameraLatency | None, actuation: Actuation | None, unknown: list[str]) -> dict:
    """The result in the schema of all calibration commands."""
    values: dict = {}
    merit: dict = {}
    details: dict = {}
    warnings = list(unknown)
    if camera:
        values["latency.camera_s"] = camera.camera_s
        merit |= {
            "camera_std_s": camera.std_s,
            "camera_sightings": len(camera.fit.t_s),
            "residual_rotation_deg": float(np.degrees(np.sqrt(np.mean(camera.fit.residuals[:, 3:] ** 2)))),
        }
        details |= {"camera_flown_s": camera.log.camera_s, "camera_late_s": camera.late_s, "bundle": camera.log.bundle}
        details["rate_rms_rad_s"] = camera.motion.rate_rad_s
        warnings += [*camera.log.notes, *misfits(camera.fit)]
    if actuation:
        values["latency.actuation_s"] = actuation.delay_s
        merit["actuation_interval_s"] = actuation.interval_s
        for axis in actuation.axes:
            if axis.response:
                merit[f"{axis.name}_fit_percent"] = axis.fit_percent
                details[f"{axis.name}_delay_s"] = axis.response.delay_s
                details[f"{axis.name}_time_constant_s"] = axis.response.time_constant_s
    return result("calibrate latency", [log], values, merit, warnings, details)


def _show(camera: CameraLatency | None, actuation: Actuation | None, warnings: list[str]) -> None:
    if camera:
        click.echo(
            f"  camera_s     {camera.camera_s:.4f} s ± {1e3 * camera.std_s:.1f} ms   flown: {camera.log.camera_s:g} s; "
            f"{len(camera.fit.t_s)} sightings, rates {camera.motion.rate_rad_s:.2f} rad/s RMS"
        )
    if actuation:
        told = ", ".join(
            f"{a.name} {1e3 * a.response.delay_s:.0f} ms after {1e3 * a.response.time_constant_s:.0f} ms of lag"
            for a in actuation.axes
            if a.response
        )
        click.echo(f"  actuation_s  {actuation.delay_s:.4f} s ± {1e3 * actuation.interval_s:.1f} ms (95 %)   {told}")
    for warning in warnings:
        click.echo(f"warning: {warning}")

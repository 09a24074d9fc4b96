"""``companion calibrate latency``: the delays of the camera's images and of setpoints, from a flight log."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from calibration.flown_vehicle import refuse_other_aircraft
from calibration.identification.identify import MOVES_RAD, Axis, Identification, identify_axis, read, unusable
from calibration.identification.values import actuation_delay
from calibration.mount.extrinsics import best_fit, log_arguments, misfits
from calibration.mount.fit import DELTA, MountFit, MountProblem
from calibration.mount.motion import Motion, motion_of
from calibration.mount.observations import MountLog, read_mount_log
from calibration.results import DataError, Result, result, write_json
from calibration.vehicle_file import Change, confirm_and_write
from companion.core.command_line import HELP, one_line_errors
from companion.core.config import ConfigError, load
from companion.core.vehicle import Vehicle

CAMERA_STD_MAX_S = 0.005  # a less certain delay is not written
ALLOWED_S = (0.0, 0.5)  # of latency.camera_s, as in companion/core/vehicle.py


@dataclass(frozen=True)
class CameraLatency:
    """latency.camera_s and its deviation, from rotations alone; late_s: this number less the flown one."""

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
    notes: list[str]
    doubts: list[str]  # reasons to think that it is another aircraft's log


def find_camera_latency(log: MountLog) -> CameraLatency:
    """The delay of a camera's images; raises `DataError` when the motion does not determine it."""
    problem = MountProblem(log, with_position=False, margin_s=0.5)
    motion = motion_of(problem)
    found = CameraLatency(log, best_fit(log, problem, motion), motion)
    if found.std_s > CAMERA_STD_MAX_S:
        raise DataError(
            f"{log.path}: the delay of the images is uncertain by {1e3 * found.std_s:.0f} ms, rates were "
            f"{motion.rate_rad_s:.2f} rad/s RMS ({motion}): turn and lean faster, for longer"
        )
    if not ALLOWED_S[0] <= found.camera_s <= ALLOWED_S[1]:
        raise DataError(
            f"{log.path}: by this log images come {1e3 * found.camera_s:.0f} ms after their exposure, allowed are "
            f"{1e3 * ALLOWED_S[0]:.0f} to {1e3 * ALLOWED_S[1]:.0f} ms: was the flight made with latency.camera_s = "
            f"{log.camera_s:g} s?"
        )
    return found


def find_actuation(path: Path, vehicle_file: Path | None = None) -> Actuation:
    """The delay of roll and pitch as in `companion identify`; raises `DataError` if the log does not determine it.

    vehicle_file: that of the command line, which is compared with what flew.
    """
    flight = read(path, vehicle_file)
    if problem := unusable(flight):
        raise DataError(f"{path}: {problem}")
    roll, pitch = (
        identify_axis(name, flight, flight.setpoint.column(i), flight.attitude.column(i), MOVES_RAD)
        for i, name in enumerate(("roll", "pitch"))
    )
    delay = actuation_delay(Identification(flight, roll, pitch, Axis("yaw rate"), None, "", [], None))
    if delay is None:
        raise DataError(f"{path}: lacks excitation: roll {roll.reason}; pitch {pitch.reason}")
    return Actuation(*delay, (roll, pitch), flight.notes, flight.doubts)


@click.command(context_settings=HELP)
@log_arguments
@one_line_errors
def command(
    log: Path, bundle: str | None, vehicle: Path | None, json_file: Path | None, yes: bool, this_aircraft: bool
) -> None:
    """Delays from a LOG of a flight over a bundle: of the camera's images, and of setpoints until they act.

    A delay that the log does not determine is named and stays as it is. The fit uses the vehicle numbers that flew.
    --vehicle names the file to write into; without it nothing is written.
    """
    if vehicle:
        load(vehicle, Vehicle)  # a wrong file is refused before the fit
    camera, actuation = None, None
    unknown: list[str] = []
    try:
        camera = find_camera_latency(read_mount_log(log, bundle, vehicle))
    except DataError as error:
        unknown.append(str(error).removeprefix(f"{log}: "))
    try:
        actuation = find_actuation(log, vehicle)
    except ConfigError as error:
        unknown.append(str(error).removeprefix(f"{log}: "))
    if camera is None and actuation is None:
        raise DataError(f"{log}: {'; '.join(dict.fromkeys(unknown))}")
    content = as_result(log, camera, actuation, unknown)
    _show(camera, actuation, content["warnings"])
    if json_file:
        write_json(json_file, content)
    if vehicle:
        refuse_other_aircraft(vehicle, _doubts(camera, actuation), yes, this_aircraft)
        confirm_and_write(vehicle, _changes(log, camera, actuation), yes)


def _doubts(camera: CameraLatency | None, actuation: Actuation | None) -> list[str]:
    """Reasons to think that the log is of another aircraft; both parts are of the same log."""
    both = [*(camera.log.doubts if camera else ()), *(actuation.doubts if actuation else ())]
    return list(dict.fromkeys(both))


def _changes(log: Path, camera: CameraLatency | None, actuation: Actuation | None) -> list[Change]:
    made = []
    if camera:
        made.append(Change("latency.camera_s", round(camera.camera_s, 4), f"{log.name}: ± {1e3 * camera.std_s:.1f} ms"))
    if actuation:
        note = f"{log.name}: ± {1e3 * actuation.interval_s:.0f} ms"
        made.append(Change("latency.actuation_s", round(actuation.delay_s, 4), note))
    return made


def as_result(log: Path, camera: CameraLatency | None, actuation: Actuation | None, unknown: list[str]) -> Result:
    """The result in the schema of all calibration commands."""
    values: dict[str, float] = {}
    merit: dict[str, float] = {}
    details: dict[str, Any] = {}
    warnings = [*unknown, *_doubts(camera, actuation)]
    if camera:
        values["latency.camera_s"] = camera.camera_s
        merit |= {
            "camera_std_s": camera.std_s,
            "camera_observations": len(camera.fit.t_s),
            "residual_rotation_deg": float(np.degrees(np.sqrt(np.mean(camera.fit.residuals[:, 3:] ** 2)))),
        }
        details |= {"camera_flown_s": camera.log.camera_s, "camera_late_s": camera.late_s, "bundle": camera.log.bundle}
        details["rate_rms_rad_s"] = camera.motion.rate_rad_s
        warnings += [*camera.log.notes, *misfits(camera.fit)]
    if actuation:
        warnings += actuation.notes
        values["latency.actuation_s"] = actuation.delay_s
        merit["actuation_interval_s"] = actuation.interval_s
        for axis in actuation.axes:
            if axis.response:
                merit[f"{axis.name}_fit_percent"] = axis.fit_percent
                details[f"{axis.name}_delay_s"] = axis.response.delay_s
                details[f"{axis.name}_time_constant_s"] = axis.response.time_constant_s
    return result("calibrate latency", [log], values, merit, dict.fromkeys(warnings), details)


def _show(camera: CameraLatency | None, actuation: Actuation | None, warnings: list[str]) -> None:
    if camera:
        click.echo(
            f"  camera_s     {camera.camera_s:.4f} s ± {1e3 * camera.std_s:.1f} ms   flown: {camera.log.camera_s:g} s; "
            f"{len(camera.fit.t_s)} observations, rates {camera.motion.rate_rad_s:.2f} rad/s RMS"
        )
    if actuation:
        axes = ", ".join(
            f"{a.name} {1e3 * a.response.delay_s:.0f} ms after {1e3 * a.response.time_constant_s:.0f} ms of lag"
            for a in actuation.axes
            if a.response
        )
        click.echo(f"  actuation_s  {actuation.delay_s:.4f} s ± {1e3 * actuation.interval_s:.1f} ms (95 %)   {axes}")
    for warning in warnings:
        click.echo(f"warning: {warning}")

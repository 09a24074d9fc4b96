"""``companion calibrate photographs``: poses of an inspection's photographs by all corners and inertial samples of the flight."""

from pathlib import Path

import click
import msgspec
import numpy as np

from calibration.map.command import check_flight
from calibration.map.photographs import RefinedPhotographs, RefinedPose, refine
from calibration.map.picture_markers import PictureFolder
from calibration.map.pictures import WIDTH_PX
from calibration.map.unknowns import PAYLOAD_LENS, PAYLOAD_LEVER, PAYLOAD_MOUNT
from calibration.results import DataError, Result, result, write_json
from companion.core.arrays import Array
from companion.core.command_line import HELP, ConfigFile, OutputFile, one_line_errors
from companion.core.config_files import ConfigKind
from companion.core.errors import UserError
from companion.core.refined_poses import RefinedPhotograph
from companion.core.trajectory_messages import Quat, Vec3
from companion.payload.matching import MatchOptions
from companion.view.photographs import matching_options

CONFIDENCE = 95.0  # percentile of errors


@click.command(context_settings=HELP)
@click.argument("log", type=click.Path(path_type=Path))
@click.option("--site", type=ConfigFile(ConfigKind.MARKERS), help="Another marker file than the log's.")
@click.option("--vehicle", type=ConfigFile(ConfigKind.VEHICLE), help="Vehicle file of a log that holds none.")
@click.option(
    "--pictures",
    type=click.Path(path_type=Path),
    help="Folder with the pictures of the photographs, whose markers then count.",
)
@matching_options
@click.option("--json", "json_file", type=OutputFile(), help="Write the result here; -: standard output.")
@one_line_errors
def command(
    log: Path,
    site: Path | None,
    vehicle: Path | None,
    pictures: Path | None,
    by: str | None,
    first_index: int | None,
    ahead: float,
    tolerance: float,
    json_file: Path | None,
) -> None:
    """Find the poses of an inspection's photographs again, by bundle adjustment of the whole flight in LOG.

    With --pictures the markers that the pictures show are measured in them; they are matched as by `companion photographs tag`.
    `companion photographs tag --poses FILE` writes those of the file of --json into the pictures,
    `companion report --poses FILE` shows the pictures by them.
    """
    match = MatchOptions(by, first_index, ahead, tolerance)
    found = refined_poses(log, site, vehicle, None if pictures is None else PictureFolder(pictures, match))
    content = as_result(found, log)
    if json_file:
        write_json(json_file, content)
    if json_file is None or str(json_file) != "-":
        _show(found, content)


def as_result(found: RefinedPhotographs, log: Path) -> Result:
    """The result in the schema of all calibration commands."""
    merit: dict[str, float | None] = {
        "photographs": float(len(found.poses)),
        "position_std_p95_m": _percentile([pose.position_std_m for pose in found.poses]),
        "attitude_std_p95_deg": _percentile([np.degrees(pose.attitude_std_rad) for pose in found.poses]),
        "corner_px": found.flight.corner_px,
        "with_markers": float(len(found.with_markers)),
        "picture_px": found.picture_px,
    }
    if found.errors:
        merit |= errors_of(found)
    details = {
        "photographs": [
            msgspec.to_builtins(as_photograph(pose)) | {"image_index": pose.capture.image_index} for pose in found.poses
        ],
        "left_out": {str(number): reason for number, reason in found.left_out.items()},
        "with_markers": list(found.with_markers),
        "mount_deg": np.degrees(found.flight.unknowns.mount),
        "payload": payload_table(found.flight.unknowns.payload),
    }
    return result("calibrate photographs", [log], {}, merit, found.notes, details)


def payload_table(payload: Array) -> dict[str, object] | None:
    """The errors of the payload camera against its file that fit the flight; None without photographs."""
    if not len(payload):
        return None
    return {
        "mount_deg": np.degrees(payload[PAYLOAD_MOUNT]),
        "lever_m": payload[PAYLOAD_LEVER],
        "focal": payload[PAYLOAD_LENS][0],
        "principal_point_share": payload[PAYLOAD_LENS][1:3] / WIDTH_PX,  # of the width
        "k1": payload[PAYLOAD_LENS][3],
    }


def as_photograph(pose: RefinedPose) -> RefinedPhotograph:
    """A pose as the file of --json has it."""
    return RefinedPhotograph(
        pose.capture.id,
        pose.capture.attempt,
        pose.bundle,
        msgspec.convert(pose.p_MC.tolist(), Vec3),
        msgspec.convert(pose.q_MC.tolist(), Quat),
        pose.position_std_m,
        pose.attitude_std_rad,
        pose.covariance.tolist(),
        pose.capture.stamp_s,
    )


def errors_of(found: RefinedPhotographs) -> dict[str, float | None]:
    """95th percentiles of a simulated flight's true errors, as taken in flight and refined."""
    flown_m, flown_rad, refined_m, refined_rad = (list(column) for column in zip(*found.errors, strict=True))
    return {
        "photo_position_p95_m": _percentile(flown_m),
        "photo_attitude_p95_deg": _percentile(np.degrees(flown_rad).tolist()),
        "photo_refined_position_p95_m": _percentile(refined_m),
        "photo_refined_attitude_p95_deg": _percentile(np.degrees(refined_rad).tolist()),
    }


def refined_poses(
    log: Path, site: Path | None = None, vehicle: Path | None = None, pictures: PictureFolder | None = None
) -> RefinedPhotographs:
    """The poses of a flight's photographs; raises `UserError` where the flight or the pictures do not determine them."""
    try:
        found = refine(log, site, vehicle, pictures)
    except np.linalg.LinAlgError as error:
        raise DataError(f"{log}: the adjustment finds no poses: {error}") from None
    check_flight(found.flight)
    return found


def refined_figures(log: Path, pictures: Path | None = None) -> dict[str, float | str | None]:
    """The figures of a simulated flight that `companion sim` adds after it; a flight without them says why.

    pictures: the folder of its drawn photographs.
    """
    try:
        found = refined_poses(log, pictures=None if pictures is None else PictureFolder(pictures))
    except UserError as error:
        return {"photo_refined_problem": str(error)}
    except KeyboardInterrupt:
        return {"photo_refined_problem": "interrupted"}
    figures = {name: value for name, value in errors_of(found).items() if "refined" in name} if found.errors else {}
    counts = {"photo_refined": float(len(found.poses)), "photo_with_markers": float(len(found.with_markers))}
    return {**counts, **figures}


def _percentile(values: list[float]) -> float | None:
    known = [value for value in values if np.isfinite(value)]
    return float(np.percentile(known, CONFIDENCE)) if known else None


def _show(found: RefinedPhotographs, content: Result) -> None:
    merit = content["merit"]
    click.echo(
        f"{len(found.poses)} photographs, corners {merit['corner_px']:.2f} px; standard deviations (95 %): "
        f"{100 * merit['position_std_p95_m']:.1f} cm, {merit['attitude_std_p95_deg']:.2f}°"
        if found.poses
        else "no photograph has an image near its exposure"
    )
    if found.with_markers:
        px = found.picture_px
        noise = "" if px is None else f", their centres within {px:.2f} px of a picture {WIDTH_PX:.0f} px wide"
        click.echo(f"markers in {len(found.with_markers)} pictures{noise}")
    if found.errors:
        click.echo(
            f"true errors (95 %): in flight {100 * merit['photo_position_p95_m']:.1f} cm, {merit['photo_attitude_p95_deg']:.2f}°; "
            f"refined {100 * merit['photo_refined_position_p95_m']:.1f} cm, {merit['photo_refined_attitude_p95_deg']:.2f}°"
        )
    for number, reason in found.left_out.items():
        click.echo(f"left out: photograph {number}: {reason}")
    for note in found.notes:
        click.echo(f"warning: {note}")

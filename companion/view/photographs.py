"""``companion photographs``: the pictures of a payload camera's card, after the flight."""

import math
from pathlib import Path

import click

from companion.core.command_line import HELP, Number, check_output_folder, one_line_errors
from companion.core.config import ConfigError, parse
from companion.core.errors import OutputError
from companion.core.messages import Capture
from companion.core.refined_poses import are_dated, read_poses, with_poses
from companion.payload.matching import (
    MatchError,
    by_index,
    by_name,
    by_time,
    failed_counts,
    photographs_of,
    pictures_in,
)
from companion.payload.tags import tags_of, write_tags
from companion.planning.camera import PayloadCamera
from companion.recording.inspection import utc_offset_of
from companion.recording.log import Log, read_log

FILE = click.Path(path_type=Path)
TOLERANCE_S = 1.5  # a camera's clock has whole seconds
CLOCK_MAX_S = 2e9  # a clock that was never set shows 1970


@click.group(context_settings=HELP)
def photographs() -> None:
    """Photographs of the payload camera."""


@photographs.command()
@click.argument("folder", type=FILE)
@click.argument("log", type=FILE)
@click.option("--out", type=FILE, default=None, help="Folder for the tagged copies.  [default: FOLDER/tagged]")
@click.option("--by", type=click.Choice(("name", "index", "time")), default=None, help="Default: name, else index.")
@click.option("--first-index", type=int, default=None, help="The camera's count of the first picture of the folder.")
@click.option(
    "--ahead",
    type=Number(-CLOCK_MAX_S, CLOCK_MAX_S),
    default=0.0,
    help="Seconds by which the camera's clock is ahead of UTC.",
)
@click.option(
    "--tolerance",
    type=Number(0.0, CLOCK_MAX_S),
    default=TOLERANCE_S,
    show_default=True,
    help="Of a picture's time, seconds.",
)
@click.option("--poses", type=FILE, default=None, help="Poses by `companion calibrate photographs --json FILE`.")
@one_line_errors
def tag(
    folder: Path,
    log: Path,
    out: Path | None,
    by: str | None,
    first_index: int | None,
    ahead: float,
    tolerance: float,
    poses: Path | None,
) -> None:
    """Write place, direction, pose and time into copies of a camera's pictures.

    FOLDER holds the pictures of the card, LOG is the flight's. The pictures themselves stay as they are.
    """
    flight = read_log(log, ("capture", "payload"))
    captures = flight.of(Capture)
    taken = photographs_of(captures)
    if not taken:
        raise MatchError(f"{log}: holds no photographs of a payload camera")
    covariances: dict[tuple[int, int], tuple[float, ...] | None] = {}
    if poses is not None:
        refined_poses = read_poses(poses)
        posed = with_poses(taken, refined_poses, poses)
        if not are_dated(refined_poses):
            click.echo(
                f"companion: {poses}: an earlier version wrote it, without times: whether it is of this flight is not known",
                err=True,
            )
        taken = [capture for capture, _ in posed]
        covariances = {(capture.id, capture.attempt): covariance for capture, covariance in posed}
    camera, utc_offset_s = camera_of(flight), utc_offset_of(flight)
    pictures = pictures_in(folder)
    found = by_name(pictures, taken) if by in (None, "name") else None
    if by == "time":
        if not math.isfinite(utc_offset_s):
            raise MatchError(f"{log}: does not say what time it was; match by count (--by index)")
        found = by_time(pictures, taken, utc_offset_s, ahead, tolerance, folder)
    elif by == "index" or (by is None and found is not None and not found.pairs):
        found = by_index(pictures, taken, first_index, folder, failed_counts(captures))
    assert found is not None
    target = folder / "tagged" if out is None else out
    if target.resolve() == folder.resolve():
        raise OutputError(f"{target}: is the folder of the pictures themselves; name another one")
    check_output_folder(target)
    existing = next((name for name in (target / picture.name for picture, _ in found.pairs) if name.exists()), None)
    if existing is not None:
        raise OutputError(f"{existing}: exists already; name an empty folder (--out)")
    target.mkdir(parents=True, exist_ok=True)
    for picture, capture in found.pairs:
        refined = covariances.get((capture.id, capture.attempt))
        write_tags(picture, target / picture.name, tags_of(capture, camera, utc_offset_s, refined))
    click.echo(f"{len(found.pairs)} pictures tagged in {target}")
    if found.without_picture:
        click.echo(
            f"{len(found.without_picture)} photographs of the log without a picture: {_numbers(found.without_picture)}"
        )
    if found.without_photograph:
        click.echo(
            f"{len(found.without_photograph)} pictures without a photograph in the log, the first: {found.without_photograph[0].name}"
        )


def camera_of(log: Log) -> PayloadCamera:
    """The camera file of a flight; raises `ConfigError` when the log does not hold it."""
    tables = log.tables("payload_camera")
    if tables is None:
        raise ConfigError(f"{log.path}: holds no camera file: its mission had no inspection")
    return parse(tables, PayloadCamera, f"{log.path}: camera in the log")


def _numbers(captures: list[Capture]) -> str:
    shown = ", ".join(str(capture.id) for capture in captures[:10])
    return shown + (" …" if len(captures) > 10 else "")

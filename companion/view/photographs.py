"""``companion photographs``: the pictures of a payload camera's card, after the flight."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from companion.core.command_line import HELP, Number, check_output_folder, one_line_errors
from companion.core.config import ConfigError, parse
from companion.core.errors import OutputError
from companion.core.messages import Capture
from companion.core.refined_poses import are_dated, read_poses, with_poses
from companion.payload.matching import TOLERANCE_S, MatchError, MatchOptions, matched_pictures, photographs_of
from companion.payload.tags import tags_of, write_tags
from companion.planning.camera import PayloadCamera
from companion.recording.inspection import utc_offset_of
from companion.recording.log import Log, read_log

FILE = click.Path(path_type=Path)
CLOCK_MAX_S = 2e9  # a clock that was never set shows 1970
MATCHING = (
    click.option("--by", type=click.Choice(("name", "index", "time")), default=None, help="Default: name, else index."),
    click.option(
        "--first-index", type=int, default=None, help="The camera's count of the first picture of the folder."
    ),
    click.option(
        "--ahead",
        type=Number(-CLOCK_MAX_S, CLOCK_MAX_S),
        default=0.0,
        help="Seconds by which the camera's clock is ahead of UTC.",
    ),
    click.option(
        "--tolerance",
        type=Number(0.0, CLOCK_MAX_S),
        default=TOLERANCE_S,
        show_default=True,
        help="Of a picture's time, seconds.",
    ),
)


def matching_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options by which pictures are matched: `by`, `first_index`, `ahead`, `tolerance`."""
    for option in reversed(MATCHING):
        command = option(command)
    return command


@click.group(context_settings=HELP)
def photographs() -> None:
    """Photographs of the payload camera."""


@photographs.command()
@click.argument("folder", type=FILE)
@click.argument("log", type=FILE)
@click.option("--out", type=FILE, default=None, help="Folder for the tagged copies.  [default: FOLDER/tagged]")
@matching_options
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
    utc_offset_s = utc_offset_of(flight)
    found = matched_pictures(folder, captures, MatchOptions(by, first_index, ahead, tolerance), utc_offset_s, log)
    refined: dict[tuple[int, int], tuple[Capture, tuple[float, ...] | None]] = {}
    if poses is not None:
        refined_poses = read_poses(poses)
        posed = with_poses(taken, refined_poses, poses)
        if not are_dated(refined_poses):
            click.echo(
                f"companion: {poses}: an earlier version wrote it, without times: whether it is of this flight is not known",
                err=True,
            )
        refined = {(capture.id, capture.attempt): (capture, covariance) for capture, covariance in posed}
    camera = camera_of(flight)
    target = folder / "tagged" if out is None else out
    if target.resolve() == folder.resolve():
        raise OutputError(f"{target}: is the folder of the pictures themselves; name another one")
    check_output_folder(target)
    existing = next((name for name in (target / picture.name for picture, _ in found.pairs) if name.exists()), None)
    if existing is not None:
        raise OutputError(f"{existing}: exists already; name an empty folder (--out)")
    target.mkdir(parents=True, exist_ok=True)
    for picture, capture in found.pairs:
        posed_capture, covariance = refined.get((capture.id, capture.attempt), (capture, None))
        write_tags(picture, target / picture.name, tags_of(posed_capture, camera, utc_offset_s, covariance))
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

"""`companion report …`: the flight report of each log, and the report of the inspection that they flew."""

from collections.abc import Sequence
from pathlib import Path

import click

from companion.core.command_line import HELP, OutputFolder, one_line_errors
from companion.core.errors import UserError
from companion.core.text import plain

FILE = click.Path(path_type=Path)
LINES_MAX = 10  # about photographs that are not found


@click.command(context_settings=HELP)
@click.argument("logs", metavar="LOG...", type=FILE, nargs=-1, required=True)
@click.option(
    "--out",
    type=OutputFolder(),
    default=None,
    help="Folder; default: beside each log, or in LOG_report where other logs lie beside it; the inspection beside the first.",
)
@click.option(
    "--photographs",
    type=FILE,
    multiple=True,
    help="Look for the photographs of an inspection below this folder, too (the camera's card); may be repeated.",
)
@click.option(
    "--poses",
    type=FILE,
    multiple=True,
    help="Poses by `companion calibrate photographs --json FILE`; may be repeated, a file for each flight.",
)
@click.option("--replace", is_flag=True, help="Replace a report of other flights.")
@one_line_errors
def report(
    logs: tuple[Path, ...],
    out: Path | None,
    photographs: tuple[Path, ...],
    poses: tuple[Path, ...],
    replace: bool,
) -> None:
    """Write the HTML report of each flight LOG, and of the inspection that they flew.

    Several logs of one inspection plan make one report of the inspection. A report that cannot be written does not keep the
    others from being written; the command ends with its line.
    """
    from companion.core.messages import Capture
    from companion.core.refined_poses import poses_by_flight
    from companion.recording.inspection_report import InspectionReport, read_inspection, write_inspection_report
    from companion.recording.log import LogError
    from companion.recording.report import read_stamped, report_folder, write_report

    check_given(logs, photographs)
    failed: list[Exception] = []
    read = []
    for path in logs:
        try:
            log, unstamped = read_stamped(path)
        except UserError as error:
            failed.append(error)
            continue
        read.append(log)
        for problem in [*log.problems(), *unstamped]:
            _say(problem)
    # One folder for all that is written of a log, whatever the reports before it have put there.
    folders = {log.path: report_folder(log.path) for log in read}
    written: InspectionReport | None = None
    try:
        found = poses_by_flight(poses, [log.of(Capture) for log in read]) if poses and not failed else None
        if not failed and (inspection := read_inspection(read, found)) is not None:
            folder = folders[logs[0]] if out is None else out
            written = write_inspection_report(inspection, folder, photographs, _say, replace)
        elif not failed and len(logs) > 1:
            raise LogError(f"{logs[0]}: has no inspection: several logs make one report of an inspection only")
    except Exception as error:  # noqa: BLE001 - raised below: the reports of the flights do not need it
        failed.append(error)
    for number, path in enumerate(logs, 1):
        if path not in folders:
            continue
        folder = folders[path] if out is None else out if len(logs) == 1 else out / f"flight_{number}"
        try:
            click.echo(str(write_report(path, folder, replace)))
        except Exception as error:  # noqa: BLE001 - raised below: the others can be written
            failed.append(error)
    if written is not None:
        for line in [*written.notes, *written.missing_files[:LINES_MAX]]:
            _say(line)
        if (more := len(written.missing_files) - LINES_MAX) > 0:
            _say(f"{more} photographs more are not shown: {written.page} lists them")
        click.echo(str(written.page))
    for further in failed[1:]:
        _say(str(further))
    if failed:
        raise failed[0]


def check_given(logs: Sequence[Path], folders: Sequence[Path]) -> None:
    """Raise `UserError` for a flight that is given twice, or a folder that is none."""
    from companion.recording.same_flight import repetition

    if line := repetition(logs):
        raise UserError(line)
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"--photographs {folder}: no such folder")


def _say(line: str) -> None:
    click.echo(f"companion: {plain(line)}", err=True)

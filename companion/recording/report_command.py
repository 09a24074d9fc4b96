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
    help="Folder; default: beside each log, the inspection beside the first.",
)
@click.option(
    "--photographs",
    type=FILE,
    multiple=True,
    help="Look for the photographs of an inspection below this folder, too (the camera's card); may be repeated.",
)
@one_line_errors
def report(logs: tuple[Path, ...], out: Path | None, photographs: tuple[Path, ...]) -> None:
    """Write the HTML report of each flight LOG, and of the inspection that they flew.

    Several logs of one inspection plan make one report of the inspection.
    """
    from companion.recording.inspection_report import InspectionReport, read_inspection, write_inspection_report
    from companion.recording.log import LogError, read_log
    from companion.recording.report import write_report

    check_given(logs, photographs)
    read = [read_log(log) for log in logs]
    for log in read:
        for problem in log.problems():
            _say(problem)
    refused: UserError | None = None
    written: InspectionReport | None = None
    try:
        if (inspection := read_inspection(read)) is not None:
            written = write_inspection_report(inspection, out or logs[0].parent, photographs, _say)
        elif len(logs) > 1:
            raise LogError(f"{logs[0]}: has no inspection: several logs make one report of an inspection only")
    except UserError as error:
        if len(logs) > 1:
            raise
        refused = error  # the report of the flight itself does not need it
    for number, path in enumerate(logs, 1):
        folder = path.parent if out is None else out if len(logs) == 1 else out / f"flight_{number}"
        click.echo(str(write_report(path, folder)))
    if written is not None:
        for line in [*written.notes, *written.missing_files[:LINES_MAX]]:
            _say(line)
        if (more := len(written.missing_files) - LINES_MAX) > 0:
            _say(f"{more} photographs more are not shown: {written.page} lists them")
        click.echo(str(written.page))
    if refused is not None:
        raise refused


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

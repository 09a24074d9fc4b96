"""`companion log …`: logs for the programs of others."""

from pathlib import Path

import click

from companion.core.command_line import HELP, OutputFile, one_line_errors
from companion.core.text import plain

FILE = click.Path(path_type=Path)


@click.group(context_settings=HELP)
def log() -> None:
    """Make flight logs ready for viewers, and join them with PX4's ULog."""


@log.command()
@click.argument("log_file", metavar="LOG", type=FILE)
@click.argument("out", type=OutputFile())
@one_line_errors
def foxglove(log_file: Path, out: Path) -> None:
    """Write LOG as the MCAP file OUT, which Foxglove, Lichtblick and PlotJuggler show without configuration."""
    from companion.recording.foxglove import write_foxglove

    click.echo(f"{out}: {write_foxglove(log_file, out)} messages")


@log.command()
@click.argument("log_file", metavar="LOG", type=FILE)
@click.argument("ulog", type=FILE)
@click.option("--out", type=OutputFile(), required=True, help="The merged MCAP file.")
@one_line_errors
def align(log_file: Path, ulog: Path, out: Path) -> None:
    """Write LOG and PX4's ULOG of the same flight into one MCAP file, on one clock."""
    from companion.recording.align import write_aligned

    click.echo(plain(write_aligned(log_file, ulog, out)))

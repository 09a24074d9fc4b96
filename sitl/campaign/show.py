"""Writes the row of a single flight."""

import json
from pathlib import Path

import click

from companion.core.command_line import STDOUT, write_output
from sitl.campaign.fly import Row


def write_result(row: Row, json_file: Path | None) -> bool:
    """Write a row to a file or standard output; returns whether it was standard output."""
    text = json.dumps(row, indent=2) + "\n"
    if json_file == STDOUT:
        click.echo(text, nl=False)
        return True
    if json_file is not None:
        write_output(json_file, text)
    return False

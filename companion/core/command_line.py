"""What every command of ``companion …`` shares: errors of one line, and commands loaded when asked for."""

import importlib
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path

import click

from companion.core.errors import UserError

DEFAULT_VEHICLE = Path("config/vehicles/f550.toml")
FLIGHTS = Path("flights")


def one_line_errors(command: Callable) -> Callable:
    """Turn the errors a user can cause into one line and exit status 2."""

    @wraps(command)
    def wrapped(*args, **kwargs):
        try:
            return command(*args, **kwargs)
        except UserError as error:
            click.echo(f"companion: {error}", err=True)
            sys.exit(2)

    return wrapped


class LazyGroup(click.Group):
    """A group some of whose commands live in packages that an aircraft need not have.

    lazy: name of the command → "module:object". Their modules are imported when the command is called or helped with.
    """

    def __init__(self, *args, lazy: dict[str, str] | None = None, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, name = self._lazy[cmd_name].partition(":")
        return getattr(importlib.import_module(module), name)

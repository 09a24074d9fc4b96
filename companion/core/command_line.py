"""Shared by all ``companion …`` commands: one-line errors, lazy loading, files found by name, checked output paths."""

import contextlib
import importlib
import io
import math
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, ParamSpec, TypeVar

import click

from companion.core.config_files import ConfigKind, check_kind, config_folder, find_config
from companion.core.errors import OutputError, UserError
from companion.core.text import plain

P = ParamSpec("P")
R = TypeVar("R")

PROGRAM = "companion"
DEFAULT_VEHICLE_NAME = "f550"
DEFAULT_VEHICLE = config_folder() / ConfigKind.VEHICLE / f"{DEFAULT_VEHICLE_NAME}.toml"
FLIGHTS = Path("flights")
REFUSED = 2  # exit status: the user can correct something
INTERRUPTED = 130  # exit status after Ctrl-C: 128 + SIGINT, as a shell counts
STDOUT = Path("-")
LOG_STARTS = b"\x89MCAP0\r\n", b"ULog\x01\x12\x35"  # the first bytes of a log of this stack and of PX4's

# Packages that an aircraft need not have, and the extra of this package that installs them.
EXTRAS = {
    "matplotlib": "report",
    "jinja2": "report",
    "mavsdk": "preflight",
    "casadi": "generate",
    "distributed": "campaign",
    "pyarrow": "campaign",
    "websockets": "view",
    "PIL": "photographs",
    "trimesh": "world",
    "OpenGL": "world",
}


def missing_package(error: ImportError) -> str:
    """One line for a package that is not installed, with the extra to install; "" for any other failed import."""
    package = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or not package:
        return ""
    if package in EXTRAS:
        return f"the package {package} is not installed: install companion[{EXTRAS[package]}]"
    return f"the package {package} is not installed"


def error_line(error: BaseException) -> tuple[str, int] | None:
    """(line for the user, exit status) of an error that a user can cause; None for an error of the program."""
    if isinstance(error, (KeyboardInterrupt, EOFError, click.Abort)):
        return "interrupted", INTERRUPTED
    if isinstance(error, UserError):
        return str(error), REFUSED
    if isinstance(error, click.ClickException):
        context = error.ctx if isinstance(error, click.UsageError) else None
        hint = f" (see {context.command_path} --help)" if context is not None else ""
        return error.format_message() + hint, REFUSED
    if isinstance(error, ImportError) and (line := missing_package(error)):
        return line, REFUSED
    if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
        return os_error_line(error), REFUSED
    return None


def os_error_line(error: OSError) -> str:
    """A failure of the operating system in one line: file and reason."""
    reason = error.strerror.lower() if error.strerror else str(error)
    return f"{error.filename}: {reason}" if error.filename is not None else reason


def end_with(line: str, status: int) -> NoReturn:
    """Print one line on stderr and end, also where stderr is lost."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(f"{PROGRAM}: {' '.join(plain(line).split())}", err=True)
    sys.exit(status)


HELP = {"help_option_names": ["-h", "--help"]}  # context settings of every command


def end_as_by_ctrl_c() -> None:
    """Let SIGTERM and SIGHUP (a lost terminal) end a command as Ctrl-C does: children stopped, results kept."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:  # nohup has set SIGHUP to "ignore", which stays
                signal.signal(number, interrupt)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let no signal end the writing of results: a terminal that closes may send SIGHUP more than once."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    in_main = threading.current_thread() is threading.main_thread()
    former = [signal.signal(number, signal.SIG_IGN) for number in numbers] if in_main else []
    try:
        yield
    finally:
        for number, handler in zip(numbers, former, strict=False):
            signal.signal(number, handler)


def one_line_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Turn the errors that a user can cause into one line and exit status 2, or 130 for Ctrl-C.

    A file to write that is also read, or is given twice, is refused before the command starts.
    """

    @wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        end_as_by_ctrl_c()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # a terminal that cannot show a character must not end the command
        try:
            if (context := click.get_current_context(silent=True)) is not None:
                _check_distinct_outputs(context)
            return command(*args, **kwargs)
        except (Exception, KeyboardInterrupt) as error:
            found = error_line(error)
            if found is None:
                raise
            end_with(*found)

    return wrapped


class LazyGroup(click.Group):
    """A group some of whose commands live in packages that an aircraft need not have.

    lazy: name of the command → "module:object". Their modules are imported when the command is called or helped with.
    Errors of the command line itself (an unknown option, a file that is not there) are one line, too.
    """

    def __init__(self, *args: Any, lazy: dict[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, name = self._lazy[cmd_name].partition(":")
        try:
            command = getattr(importlib.import_module(module), name)
        except ImportError as error:
            if line := missing_package(error):
                return _unavailable(cmd_name, line)
            raise
        assert isinstance(command, click.Command)
        return command

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        prog_name = PROGRAM  # however the program was started: messages name the command as it is documented
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, **extra)
        try:
            status = super().main(args, prog_name, complete_var, False, **extra)
        except click.exceptions.UsageError as error:
            if type(error).__name__ == "NoArgsIsHelpError":  # its text is the help page
                error.show()
                sys.exit(REFUSED)
            end_with(*(error_line(error) or ("", REFUSED)))
        except (Exception, KeyboardInterrupt) as error:
            found = error_line(error)
            if found is None:
                raise
            end_with(*found)
        sys.exit(status if isinstance(status, int) else 0)


def _unavailable(name: str, line: str) -> click.Command:
    """A command in the place of one whose packages are not installed."""

    def refuse() -> NoReturn:
        raise UserError(f"{name}: {line}")

    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, callback=refuse, short_help=f"({line})", context_settings=settings)


class ConfigFile(click.Path):
    """A parameter that names a configuration file: a path, or the name of one of the project's files.

    checked: refuse a file that does not exist or is of another kind; else it is taken as it is given.
    """

    def __init__(self, kind: ConfigKind, checked: bool = True) -> None:
        super().__init__(path_type=Path)
        self.kind = kind
        self.checked = checked

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The file's path; raises `ConfigError` with one line."""
        try:
            path = find_config(value, self.kind)
        except UserError:
            if self.checked:
                raise
            return Path(value)
        if self.checked:
            check_kind(path, self.kind, ctx.command_path if ctx is not None else PROGRAM)
        return path


VEHICLE_OF_COMMAND = click.option(
    "--vehicle",
    type=ConfigFile(ConfigKind.VEHICLE),
    default=DEFAULT_VEHICLE_NAME,
    envvar="COMPANION_VEHICLE",
    show_default=True,
    help="Vehicle file: limits, masses.",
)


class Number(click.FloatRange):
    """A parameter that is a finite number: "nan" is in every range of click, "inf" in one with an open end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; refused when it is not finite or out of its range."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class OutputFile(click.Path):
    """A parameter that names a file to write; refused before any work when it cannot be written.

    Commands with such a parameter are decorated with `one_line_errors`, which compares it with all others.
    """

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path; raises `OutputError` with one line."""
        check_output_file(Path(value))
        return Path(value)


class OutputFolder(click.Path):
    """A parameter that names a folder to write into; refused before any work when that is not possible."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path; raises `OutputError` with one line."""
        check_output_folder(Path(value))
        return Path(value)


class WritableVehicle(ConfigFile):
    """A vehicle file, by path or name, that a calibration writes into."""

    def __init__(self) -> None:
        super().__init__(ConfigKind.VEHICLE, checked=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The file's path; raises `OutputError` when it cannot be written."""
        path = super().convert(value, param, ctx)
        if path.exists():
            check_output_file(path)
        return path


# --- outputs --------------------------------------------------------------------------------------------------------


def check_output_file(path: Path | None) -> None:
    """Raise `OutputError` when a file is a log or cannot be written; leaves nothing behind. None and "-" are fine."""
    if path is None or path == STDOUT:
        return
    try:
        if path.is_dir():
            raise OutputError(f"{path}: is a folder, must be a file")
        if not path.exists():
            _check_folder(path.parent, path)
        elif not os.access(path, os.W_OK):
            raise OutputError(f"{path}: cannot be written: permission denied")
        elif path.is_file():
            path.open("ab").close()
            if _is_log(path):
                raise OutputError(f"{path}: log exists already; logs are never overwritten")
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {os_error_line(error)}") from None


def _is_log(path: Path) -> bool:
    if not os.access(path, os.R_OK):
        return False
    with path.open("rb") as file:
        return file.read(max(map(len, LOG_STARTS))).startswith(LOG_STARTS)


def _check_distinct_outputs(context: click.Context) -> None:
    """Raise `OutputError` when an output of a command is one of its inputs, or another output."""
    outputs: list[tuple[str, Path]] = []
    others: list[tuple[str, Path]] = []  # any text may name a file, such as a source of sticks
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        name = parameter.opts[0] if isinstance(parameter, click.Option) else parameter.human_readable_name
        given = value if isinstance(value, list | tuple) else (value,)
        paths = [(name, Path(each)) for each in given if isinstance(each, str | Path) and Path(each) != STDOUT]
        (outputs if isinstance(parameter.type, OutputFile) else others).extend(paths)
    for number, (name, path) in enumerate(outputs):
        for other_name, other in (*outputs[:number], *others):
            if _is_same_file(path, other):
                raise OutputError(f"{path}: given as {other_name} and as {name}; name two files")


def _is_same_file(a: Path, b: Path) -> bool:
    try:
        if a.exists():
            return a.is_file() and a.samefile(b)
        return a.resolve() == b.resolve()
    except (OSError, ValueError):  # b does not exist, or is a text that names no file
        return False


def check_output_folder(path: Path) -> None:
    """Raise `OutputError` when no file can be made in a folder, or the folder cannot be made; leaves nothing behind."""
    try:
        if path.exists() and not path.is_dir():
            raise OutputError(f"{path}: is a file, must be a folder")
        _check_folder(path, path)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {os_error_line(error)}") from None


def _check_folder(folder: Path, output: Path) -> None:
    """Make and remove a file in a folder, or in the nearest one above it that exists."""
    existing = next(above for above in (folder.absolute(), *folder.absolute().parents) if above.exists())
    if not existing.is_dir():
        raise OutputError(f"{output}: cannot be written: {existing} is not a folder")
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise OutputError(
            f"{output}: cannot be written: {existing}: {(error.strerror or str(error)).lower()}"
        ) from None


def write_output(path: Path, text: str) -> None:
    """Write a result. When that fails, print it on stdout and raise `OutputError` with a line that says so."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        with contextlib.suppress(BrokenPipeError):
            click.echo(text.rstrip("\n"))
        reason = (error.strerror or str(error)).lower()
        raise OutputError(f"{path}: cannot be written: {reason}; the result is on standard output instead") from None

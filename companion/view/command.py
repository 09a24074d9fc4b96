"""``companion view``: the live 3D view in a browser, of a running stack or of a log."""

import asyncio
import contextlib
import gc
import getpass
import secrets
import signal
import ssl
from pathlib import Path
from typing import Any

import click

from companion.core.command_line import HELP, ConfigFile, one_line_errors
from companion.core.config import ConfigError, load
from companion.core.config_files import ConfigKind
from companion.core.enums import ProcessName
from companion.core.folders import holder
from companion.core.text import plain
from companion.core.vehicle import Vehicle, ViewAccess
from companion.runtime.bus_folders import has_sockets, newest_bus, temporary_folder
from companion.view.access import Access, Person, Right, is_loopback, load_tokens
from companion.view.scene import (
    Drawn,
    inspection_of,
    inspection_of_log,
    photographs_beside,
    scene_of,
    tables_of_files,
    tables_of_log,
)

PORT = 8717
LOOPBACK = "127.0.0.1"
NOTE_MAX = 400  # characters
FLAGS = ("--vehicle", "--mission", "--scenario")


@click.command(context_settings=HELP)
@click.argument("source", metavar="[LOG|BUS]", type=click.Path(path_type=Path), required=False)
@click.option(
    "--vehicle", type=ConfigFile(ConfigKind.VEHICLE), default=None, help="Vehicle file; default: the flight's."
)
@click.option(
    "--mission", type=ConfigFile(ConfigKind.MISSION), default=None, help="Mission file; default: the flight's."
)
@click.option(
    "--scenario", type=ConfigFile(ConfigKind.SCENARIO), default=None, help="Scenario file, for the structure in it."
)
@click.option("--listen", default=LOOPBACK, show_default=True, help="Address; any but loopback needs tokens and TLS.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0: any free one.")
@click.option("--commands", is_flag=True, help="On loopback: print an address whose page may command, too.")
@click.option("--window", type=click.IntRange(1), default=1, show_default=True, help="Of a long log: which one first.")
@one_line_errors
def view(
    source: Path | None,
    vehicle: Path | None,
    mission: Path | None,
    scenario: Path | None,
    listen: str,
    port: int,
    commands: bool,
    window: int,
) -> None:
    """Show a running stack or a LOG in a browser: aircraft, estimate, plan, structure, camera, and what was said.

    Without an argument: the running stack that was started last. BUS: its bus folder.
    """
    from companion.view.live import LiveSource
    from companion.view.log_window import LogIndex
    from companion.view.logged import LogSource, line
    from companion.view.server import ViewServer

    if source is not None and not source.exists():
        raise ConfigError(f"{source}: no such log or bus folder")
    opened: LiveSource | LogSource
    if source is not None and source.is_file():
        index = LogIndex(source)
        if window > index.windows:
            raise ConfigError(f"--window {window}: {source} has {index.windows}")
        opened = LogSource(index, _scene_of_log(index, source), window - 1)
        click.echo(line(index))
    else:
        bus = source or newest_bus(temporary_folder())
        if not has_sockets(bus):
            raise ConfigError(f"{bus}: no stack runs on this bus, or the bus belongs to another user")
        given = dict(zip(FLAGS, (vehicle, mission, scenario), strict=True))
        files = {flag: given[flag] or found for flag, found in files_of_flight(bus).items()}
        vehicle = files["--vehicle"]
        opened = LiveSource(bus, _scene_of_files(*(files[flag] for flag in FLAGS)))
    gc.freeze()
    persons, tls, key = access_of(listen, vehicle, commands)
    server = ViewServer(opened, Access(persons, open_watching=tls is None, key=key), listen, port, tls, _say)
    scheme = "http" if tls is None else "https"
    shown = f"[{listen}]" if ":" in listen else listen

    def ready(port: int) -> None:
        click.echo(f"{scheme}://{shown}:{port}/{f'#token={key}' if key else ''}  (Ctrl-C ends the view)")

    try:
        asyncio.run(_serve(server, ready))
    except OSError as error:
        raise ConfigError(f"--listen {listen} --port {port}: {(error.strerror or str(error)).lower()}") from None
    finally:
        opened.close()


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # a lost output is no reason to end
        click.echo(f"companion view: {line}", err=True)


async def _serve(server: Any, ready: Any) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await server.run(ready, ended)


def access_of(
    listen: str, vehicle_file: Path | None, commands: bool
) -> tuple[list[Person], ssl.SSLContext | None, str]:
    """Persons, TLS and the key of the printed address, by the vehicle file's [view_access]; raises `ConfigError`."""
    given = ViewAccess() if vehicle_file is None else load(vehicle_file, Vehicle).view_access
    folder = Path() if vehicle_file is None else vehicle_file.parent
    persons = [] if given.token_file is None else load_tokens(folder / given.token_file)
    if is_loopback(listen):
        if not commands:
            return persons, None, ""
        key = secrets.token_urlsafe(24)
        return [*persons, Person(name=_user(), right=Right.COMMAND, token=key)], None, key
    if commands:
        raise ConfigError(f"--commands: only on loopback; at {listen} a token with the right to command does it")
    if not persons or given.certificate_file is None or given.key_file is None:
        raise ConfigError(
            f"--listen {listen}: any address but loopback needs view_access.token_file, .certificate_file and .key_file in "
            f"the vehicle file; or listen on loopback and use an SSH tunnel: ssh -L {PORT}:{LOOPBACK}:{PORT} AIRCRAFT"
        )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        tls.load_cert_chain(folder / given.certificate_file, folder / given.key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"{given.certificate_file}, {given.key_file}: not a certificate and its key: {error}"
        ) from None
    return persons, tls, ""


def _user() -> str:
    try:
        return plain(getpass.getuser())[:40]
    except (KeyError, OSError):
        return "this computer"


def files_of_flight(bus: Path) -> dict[str, Path | None]:
    """The files that the processes of a bus were started with, as far as they can be found."""
    found: dict[str, Path | None] = dict.fromkeys(FLAGS)
    for process in (ProcessName.RECORDER, ProcessName.MISSION, ProcessName.FCU):
        held = holder(bus, process)
        if held is None or not held.pid.isdigit():
            continue
        try:
            words = Path(f"/proc/{held.pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            folder = Path(f"/proc/{held.pid}/cwd").readlink()
        except OSError:
            continue
        for flag, value in zip(words, words[1:], strict=False):
            if flag in found and found[flag] is None and (folder / value).is_file():
                found[flag] = folder / value
    return found


def _scene_of_files(vehicle: Path | None, mission: Path | None, scenario: Path | None) -> Drawn:
    tables, _ = tables_of_files(vehicle, mission, scenario)
    return _with_inspection(scene_of(tables), mission, vehicle)


def _scene_of_log(index: Any, path: Path) -> Drawn:
    photographs = photographs_beside(path)
    scene = scene_of(tables_of_log(index.metadata), photographs)
    try:
        if (plan := inspection_of_log(index.metadata)) is not None:
            scene["plan"]["inspection"] = plan
    except ConfigError as error:
        scene["notes"].append(plain(f"the plan of the inspection is not drawn: {error}", NOTE_MAX))
    return scene


def _with_inspection(scene: Drawn, mission: Path | None, vehicle: Path | None) -> Drawn:
    if mission is not None and vehicle is not None and (plan := inspection_of(mission, vehicle)) is not None:
        scene["plan"]["inspection"] = plan
    return scene

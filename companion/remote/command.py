"""``companion remote``: the virtual remote, a page with two sticks for a pilot."""

import contextlib
import ipaddress
import os
import secrets
import ssl
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from companion.core.command_line import HELP, VEHICLE_OF_COMMAND, ConfigFile, Number, one_line_errors
from companion.core.config import ConfigError, load
from companion.core.config_files import ConfigKind, find_config
from companion.core.vehicle import Vehicle
from companion.fcu.link.link import open_link
from companion.fcu.link.signing import open_signer
from companion.remote.aircraft import Aircraft, autopilot_sender
from companion.remote.gamepad import DEFAULT_AXES, Gamepad, parse_axes
from companion.remote.station import Station
from companion.remote.sticks import StickShape

PORT = 8470
FCU = "udpin:0.0.0.0:14550"  # where PX4 sends to a ground station
SIMULATED = "sim"
SIMULATOR_PORT = 18570  # of the simulated autopilot's link to ground stations; instance N adds N
SCENARIO = "bridge_hover"
TOKEN_BYTES = 18
TOKEN_MIN = 16  # characters of a token file
FILE = click.Path(path_type=Path)


@click.command(context_settings=HELP)
@click.option(
    "--fcu", default=FCU, show_default=True, envvar="COMPANION_REMOTE_FCU",
    help="The remote's own link: udpin:HOST:PORT, udpout:HOST:PORT, tcp:HOST:PORT, serial:DEVICE:BAUD, or sim.",
)  # fmt: skip
@VEHICLE_OF_COMMAND
@click.option(
    "--listen", default="127.0.0.1", show_default=True, help="Address of the page; another needs TLS and a token."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="Port of the page; 0: any."
)
@click.option("--token-file", type=FILE, default=None, help="File with the token. Default: a new one at each start.")
@click.option("--tls-cert", type=FILE, default=None, help="Certificate (PEM) of the page.")
@click.option("--tls-key", type=FILE, default=None, help="Its private key (PEM).")
@click.option("--gamepad", default=None, metavar="DEVICE", help="A gamepad at this computer, as /dev/input/js0.")
@click.option("--axes", default=DEFAULT_AXES, show_default=True, help="Its axes of turn, up, right, ahead; - reverses.")
@click.option(
    "--dead-zone", type=Number(0.0, 0.5), default=0.03, show_default=True, help="Of all sticks, before PX4's."
)
@click.option("--expo", type=Number(0.0, 1.0), default=0.0, show_default=True, help="Likewise; 0: straight.")
@click.option("--scenario", type=ConfigFile(ConfigKind.SCENARIO), default=None, help="With sim: the world to fly in.")
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="With sim: seed of everything random."
)
@click.option(
    "--instance", type=click.IntRange(0, 99), default=0, show_default=True, help="With sim: added to its ports."
)
@one_line_errors
def remote(
    fcu: str,
    vehicle: Path,
    listen: str,
    port: int,
    token_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    gamepad: str | None,
    axes: str,
    dead_zone: float,
    expo: float,
    scenario: Path | None,
    seed: int,
    instance: int,
) -> None:
    """Fly by two sticks on a page: MANUAL_CONTROL over a link of its own, with a dead man."""
    from companion.remote.server import run_server

    tls = open_tls(listen, tls_cert, tls_key, token_file)
    token = read_token(token_file) if token_file is not None else secrets.token_urlsafe(TOKEN_BYTES)
    loaded = load(vehicle, Vehicle)
    signer = open_signer(loaded.fcu.signing_key_file, vehicle.parent)
    station = Station(Aircraft(loaded.fcu.autopilot_system_id, signer), token, StickShape(dead_zone, expo))
    if gamepad is not None:
        station.gamepad = Gamepad(gamepad, parse_axes(axes))
    if fcu != SIMULATED and scenario is not None:
        raise ConfigError(f"--scenario {scenario}: only with --fcu {SIMULATED}")

    def ready(number: int) -> None:
        name = f"[{listen}]" if ":" in listen else listen
        shown = token if token_file is None else f"(the token in {token_file})"
        click.echo(f"remote: {'https' if tls else 'http'}://{name}:{number}/#{shown}")

    with contextlib.ExitStack() as stack:
        if fcu == SIMULATED:
            stack.enter_context(simulator(scenario, vehicle, seed, instance))
            fcu = f"udpout:127.0.0.1:{SIMULATOR_PORT + instance}"
        link = open_link(fcu, sender=autopilot_sender(loaded.fcu.autopilot_system_id, signer))
        stack.callback(link.close)
        run_server(station, link, listen, port, tls, ready, lambda line: click.echo(f"remote: {line}", err=True))


def open_tls(listen: str, cert: Path | None, key: Path | None, token_file: Path | None) -> ssl.SSLContext | None:
    """TLS of the page; raises `ConfigError` when an address beyond this computer has none."""
    try:
        loopback = ipaddress.ip_address(listen).is_loopback
    except ValueError:
        raise ConfigError(f"--listen {listen}: must be an address, as 127.0.0.1 or 0.0.0.0") from None
    if (cert is None) != (key is None):
        raise ConfigError("--tls-cert and --tls-key belong together")
    if not loopback and (cert is None or token_file is None):
        raise ConfigError(
            f"--listen {listen}: not this computer alone: needs --tls-cert, --tls-key and --token-file "
            f"(or an SSH tunnel to 127.0.0.1)"
        )
    if cert is None or key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or getattr(error, "reason", "") or str(error)
        raise ConfigError(f"--tls-cert {cert}, --tls-key {key}: {reason.lower()}") from None
    return context


def read_token(file: Path) -> str:
    """The token in a file that only its owner can read; raises `ConfigError`."""
    try:
        mode = file.stat().st_mode
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        reason = os.strerror(error.errno).lower() if isinstance(error, OSError) and error.errno else "not text"
        raise ConfigError(f"--token-file {file}: {reason}") from None
    if mode & 0o077:
        raise ConfigError(f"--token-file {file}: others can read it (mode {stat.S_IMODE(mode):03o}); chmod 600 {file}")
    if len(token) < TOKEN_MIN or not token.isascii() or not token.replace("-", "").replace("_", "").isalnum():
        raise ConfigError(f"--token-file {file}: must be at least {TOKEN_MIN} letters, digits, - and _")
    return token


@contextlib.contextmanager
def simulator(scenario: Path | None, vehicle: Path, seed: int, instance: int) -> Iterator[None]:
    """The simulated aircraft as a process of its own; its bus is in a temporary folder, which `companion watch` finds."""
    words = [str(scenario if scenario is not None else find_config(SCENARIO, ConfigKind.SCENARIO)), "--remote"]
    with tempfile.TemporaryDirectory(prefix="companion-remote-") as bus:
        command = [sys.executable, "-m", "sitl.realtime", *words, "--vehicle", str(vehicle), "--seed", str(seed)]
        process = subprocess.Popen([*command, "--instance", str(instance), "--bus", bus])
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(5.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

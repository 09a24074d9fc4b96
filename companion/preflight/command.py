"""``companion preflight``: every check before a flight, a line each; exit status 0 only if none failed."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from click.core import ParameterSource

from companion.core.command_line import (
    DEFAULT_VEHICLE_NAME,
    FLIGHTS,
    HELP,
    STDOUT,
    ConfigFile,
    OutputFile,
    missing_package,
    one_line_errors,
    write_output,
)
from companion.core.config import ConfigError
from companion.core.config_files import ConfigKind
from companion.core.px4_parameters import Rule, rules
from companion.core.text import plain
from companion.core.vehicle import Vehicle
from companion.mission.plan import Plan
from companion.preflight import parameters
from companion.preflight.autopilot import autopilot_checks, without_link
from companion.preflight.bus_source import BusSource
from companion.preflight.camera import NAMES as CAMERA_NAMES
from companion.preflight.camera import camera_checks
from companion.preflight.computer import computer_checks
from companion.preflight.files import artefact_checks, battery_range, mission_file, vehicle_file
from companion.preflight.observation import LinkFailed, Number, forwarded_urls
from companion.preflight.payload import payload_check
from companion.preflight.report import (
    COLOURS,
    ParameterChange,
    PreflightCheck,
    Report,
    failed,
    line,
    ok,
    skipped,
    summary,
    warning,
)
from companion.preflight.running_stack import stack_check
from companion.runtime.bus_folders import SYSTEM_FLIGHTS, system_bus
from companion.tracking.cameras import Source, open_source

if TYPE_CHECKING:
    from companion.preflight.ground import GroundConnection

HEARTBEAT_TIMEOUT_S = 5.0
OBSERVE_S = 3.0


def open_ground(url: str, autopilot_system_id: int, timeout_s: float, reference_voltage_v: float) -> "GroundConnection":
    """Connect to the autopilot, see `GroundConnection`; raises `ConfigError` or `LinkFailed`, also when MAVSDK is not installed."""
    try:
        from companion.preflight.ground import GroundConnection
    except ImportError as error:
        if text := missing_package(error):
            raise LinkFailed(text) from None
        raise
    return GroundConnection(url, autopilot_system_id, timeout_s, reference_voltage_v)


class Preflight:
    """One run: `checks` yields each check as soon as it is known; afterwards `fix` may correct parameters."""

    def __init__(
        self, vehicle: Path, mission: Path | None, fcu_url: str, folder: Path, bus: Path | None, only: bool = False
    ) -> None:
        """fcu_url: empty for the vehicle file's. only: no forward in its place, when the running stack has it.

        bus: of the running stack, whose camera images are used; None: open the camera itself.
        """
        self._vehicle_path, self._mission_path, self._folder = vehicle, mission, folder
        self._only = only
        self.fcu_url, self._bus = fcu_url, bus
        self.ground: GroundConnection | None = None
        self._rules: list[Rule] = []
        self._values: dict[str, Number] = {}
        self._clock_offset_s: float | None = None

    def checks(self) -> Iterator[PreflightCheck]:
        """All checks, in their order."""
        check, vehicle = vehicle_file(self._vehicle_path)
        yield check
        check, plan = mission_file(self._mission_path, vehicle)
        yield check
        if self._bus is not None:
            yield stack_check(self._bus, self._vehicle_path, self._mission_path, plan)
        if vehicle is None:
            for name in ("battery range", "link", "parameters", "solver", "kernels", *CAMERA_NAMES):
                yield skipped(name, "no vehicle file")
        else:
            yield battery_range(vehicle)
            yield from self._aircraft(vehicle, plan)
            yield from artefact_checks(vehicle)
            yield from camera_checks(vehicle, plan, self._camera, file=str(self._vehicle_path))
            if plan is not None and plan.inspection is not None:
                yield payload_check(vehicle, plan, self._bus, self._folder)
        safety = None if vehicle is None else vehicle.safety
        yield from computer_checks(safety, self._folder, self._clock_offset_s)

    def _camera(self, vehicle: Vehicle) -> Source:
        return open_source(None, vehicle) if self._bus is None else BusSource(self._bus)

    def _aircraft(self, vehicle: Vehicle, plan: Plan | None) -> Iterator[PreflightCheck]:
        self._rules = rules(vehicle, parameters.flight_of(plan), vehicle.fcu.send_odometry)
        try:
            self.ground = ground = self._connect(vehicle)
        except (ConfigError, LinkFailed) as error:
            yield failed("link", str(error).removeprefix("link "))
            yield from without_link()
            yield from parameters.without_parameters(self._rules, "no link")
            return
        detail = f"{self.fcu_url}: system {vehicle.fcu.autopilot_system_id}"
        if vehicle.fcu.signing_key_file is None:
            yield ok("link", detail)
        else:
            unsigned = (
                "preflight does not sign (fcu.signing_key_file): an autopilot that requires signing does not answer"
            )
            yield warning("link", f"{detail}; {unsigned}")
        seen = ground.observe(OBSERVE_S, vehicle.fcu.imu_rate_hz)
        self._clock_offset_s = seen.clock_offset_s
        yield from autopilot_checks(seen, vehicle, plan)
        if seen.wrong:
            yield from parameters.without_parameters(self._rules, seen.wrong)
        elif seen.armed:
            yield from parameters.without_parameters(self._rules, "the aircraft is armed")
        else:
            yield from self._parameters(ground)

    def _connect(self, vehicle: Vehicle) -> "GroundConnection":
        """Open the given link, or the vehicle file's; when the running stack has that one, the stack's forward."""
        self.fcu_url = self.fcu_url or vehicle.fcu.url
        system_id, reference_v = vehicle.fcu.autopilot_system_id, vehicle.thrust.reference_voltage_v
        try:
            return open_ground(self.fcu_url, system_id, HEARTBEAT_TIMEOUT_S, reference_v)
        except ConfigError as error:
            for url in () if self._only else forwarded_urls(vehicle.fcu.forward):
                with contextlib.suppress(ConfigError, LinkFailed):
                    ground = open_ground(url, system_id, HEARTBEAT_TIMEOUT_S, reference_v)
                    self.fcu_url = url
                    return ground
            raise error

    def _parameters(self, ground: "GroundConnection") -> Iterator[PreflightCheck]:
        try:
            self._values = ground.read(parameters.names_of(self._rules))
        except LinkFailed as error:
            yield from parameters.unreadable(error)
            return
        yield from parameters.parameter_checks(self._rules, self._values)

    def fix(self, ask: Callable[[str], str], say: Callable[[str], None]) -> list[ParameterChange]:
        """Set the parameters that can be corrected, each after a question; returns the changes."""
        wanted = parameters.proposals(self._rules, self._values)
        if self.ground is None or not wanted:
            say("nothing to set")
            return []
        changes = parameters.fix(self.ground, wanted, ask, say)
        self._values |= {change.parameter: change.new for change in changes}
        return changes

    def parameter_checks(self) -> list[PreflightCheck]:
        """The checks of the parameters with their present values."""
        return parameters.parameter_checks(self._rules, self._values)


def _ask(question: str) -> str:
    """A line from the keyboard; "" (no) without one."""
    click.echo(question, nl=False)
    answer = sys.stdin.readline()
    if not answer:
        click.echo()
    return answer


@click.command(context_settings=HELP)
@click.option(
    "--vehicle",
    type=ConfigFile(ConfigKind.VEHICLE, checked=False),
    default=DEFAULT_VEHICLE_NAME,
    envvar="COMPANION_VEHICLE",
    show_default=True,
)
@click.option(
    "--mission",
    type=ConfigFile(ConfigKind.MISSION, checked=False),
    default=None,
    envvar="COMPANION_MISSION",
    help="The mission that is to be flown.",
)
@click.option(
    "--fcu",
    default="",
    envvar="COMPANION_FCU",
    help="serial:DEVICE:BAUD, udpin:HOST:PORT or tcp:HOST:PORT. Default: the vehicle file's.",
)
@click.option(
    "--bus",
    type=click.Path(path_type=Path),
    default=None,
    help="Bus folder of the running stack, to compare its files and use the images of its camera.  [default: /run/companion where it runs]",
)
@click.option("--fix", is_flag=True, help="Show which parameters would be set, ask, and set them.")
@click.option(
    "--json",
    "json_file",
    type=OutputFile(),
    default=None,
    help="Write the result here; -: standard output.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=None,
    help=f"Folder that logs will go to.  [default: {SYSTEM_FLIGHTS} where it exists, else {FLIGHTS}]",
)
@one_line_errors
def preflight(
    vehicle: Path,
    mission: Path | None,
    fcu: str,
    bus: Path | None,
    fix: bool,
    json_file: Path | None,
    out: Path | None,
) -> None:
    """Check aircraft, computer, camera and files before a flight, a line each."""
    to_stderr = json_file == STDOUT  # the lines, so that stdout has the JSON alone

    def say(text: str) -> None:
        click.echo(text, err=to_stderr)

    def show(check: PreflightCheck) -> None:
        say(click.style(plain(line(check)), fg=COLOURS[check.status]))

    # An installed aircraft names its link in the environment: that is the link of the stack that runs.
    only = click.get_current_context().get_parameter_source("fcu") is ParameterSource.COMMANDLINE
    out = out or (SYSTEM_FLIGHTS if os.path.isdir(SYSTEM_FLIGHTS) else FLIGHTS)  # False without permission, too
    run = Preflight(vehicle, mission, fcu, out, bus or system_bus(), only)
    checks: list[PreflightCheck] = []
    changes: list[ParameterChange] = []
    try:
        for check in run.checks():
            show(check)
            checks.append(check)
        if fix:
            changes = run.fix(_ask, say)
            checks = _after(run, checks, [change.parameter for change in changes], show)
    finally:
        if run.ground is not None:
            run.ground.close()
    say(summary(checks))
    passed = not any(check.status == "failed" for check in checks)
    status = 0 if passed else 1
    if json_file is not None:
        at = datetime.now(UTC).isoformat(timespec="seconds")
        mission_name = None if mission is None else str(mission)
        report = Report(at, str(vehicle), mission_name, run.fcu_url, passed, checks, changes)
        text = msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"
        if json_file == STDOUT:
            click.echo(text, nl=False)
        else:
            write_output(json_file, text)
    if run.ground is not None and run.ground.stuck:  # a call of MAVSDK that hangs would block the exit for ever
        sys.stdout.flush()
        os._exit(status)
    sys.exit(status)


def _after(
    run: Preflight, checks: list[PreflightCheck], changed: list[str], show: Callable[[PreflightCheck], None]
) -> list[PreflightCheck]:
    """The checks with those of the parameters made again; shows those of the changed parameters."""
    again = {check.name: check for check in run.parameter_checks()} if changed else {}
    for name in changed:
        show(again[name])
    return [again.get(check.name, check) for check in checks]

"""``companion preflight``: every check before a flight, a line each; exit status 0 only if none failed."""

import contextlib
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from companion.core.command_line import DEFAULT_VEHICLE, FLIGHTS, one_line_errors
from companion.core.config import ConfigError
from companion.core.px4_parameters import Values, rules
from companion.core.vehicle import Vehicle
from companion.mission.plan import Plan
from companion.preflight import parameters
from companion.preflight.autopilot import autopilot_checks, without_link
from companion.preflight.bus_source import BusSource, running_bus
from companion.preflight.camera import NAMES as CAMERA_NAMES
from companion.preflight.camera import camera_checks
from companion.preflight.computer import computer_checks
from companion.preflight.files import artefact_checks, mission_file, vehicle_file
from companion.preflight.ground import Ground, LinkFailed, forwarded_urls
from companion.preflight.report import COLOURS, Change, Check, Report, failed, line, ok, skipped, summary, warning
from companion.tracking.cameras import Source, open_source

HEARTBEAT_TIMEOUT_S = 5.0
OBSERVE_S = 3.0


class Preflight:
    """One run: `checks` yields each as it is known; afterwards `fix` may mend parameters."""

    def __init__(self, vehicle: Path, mission: Path | None, fcu_url: str, folder: Path, bus: Path | None) -> None:
        """bus: of the running stack, whose camera is looked through; None: the device itself."""
        self._vehicle_path, self._mission_path, self._folder = vehicle, mission, folder
        self.fcu_url, self._bus = fcu_url, bus
        self.ground: Ground | None = None
        self._rules, self._values = [], {}
        self._clock_offset_s: float | None = None

    def checks(self) -> Iterator[Check]:
        check, vehicle = vehicle_file(self._vehicle_path)
        yield check
        check, plan = mission_file(self._mission_path)
        yield check
        if vehicle is None:
            for name in ("link", "parameters", "solver", "kernels", *CAMERA_NAMES):
                yield skipped(name, "no vehicle file")
        else:
            yield from self._aircraft(vehicle, plan)
            yield from artefact_checks(vehicle)
            yield from camera_checks(vehicle, plan, self._camera)
        safety = None if vehicle is None else vehicle.safety
        yield from computer_checks(safety, self._folder, self._clock_offset_s)

    def _camera(self, vehicle: Vehicle) -> Source:
        return open_source(None, vehicle) if self._bus is None else BusSource(self._bus)

    def _aircraft(self, vehicle: Vehicle, plan: Plan | None) -> Iterator[Check]:
        self._rules = rules(vehicle, parameters.flight_of(plan), vehicle.fcu.send_odometry)
        try:
            self._connect(vehicle)
        except (ConfigError, LinkFailed) as error:
            yield failed("link", str(error).removeprefix("link "))
            yield from without_link()
            yield from parameters.without_parameters(self._rules, "no link")
            return
        told = f"{self.fcu_url}: system {vehicle.fcu.autopilot_system_id}"
        if vehicle.fcu.signing_key_file is None:
            yield ok("link", told)
        else:
            yield warning(
                "link", f"{told}; preflight does not sign (fcu.signing_key_file): who asks for it stays silent"
            )
        seen = self.ground.observe(OBSERVE_S)
        self._clock_offset_s = seen.clock_offset_s
        yield from autopilot_checks(seen, vehicle, plan)
        if seen.wrong:
            yield from parameters.without_parameters(self._rules, seen.wrong)
        elif seen.armed:
            yield from parameters.without_parameters(self._rules, "the aircraft is armed")
        else:
            yield from self._parameters()

    def _connect(self, vehicle: Vehicle) -> None:
        """Open the link that was asked for, or the vehicle file's, or, if the stack has that one, what it forwards."""
        asked, self.fcu_url = self.fcu_url, self.fcu_url or vehicle.fcu.url
        system_id = vehicle.fcu.autopilot_system_id
        try:
            self.ground = Ground(self.fcu_url, system_id, HEARTBEAT_TIMEOUT_S)
        except ConfigError as error:
            for url in () if asked else forwarded_urls(vehicle.fcu.forward):
                with contextlib.suppress(ConfigError, LinkFailed):
                    self.ground, self.fcu_url = Ground(url, system_id, HEARTBEAT_TIMEOUT_S), url
                    return
            raise error

    def _parameters(self) -> Iterator[Check]:
        try:
            self._values = self.ground.read(parameters.names_of(self._rules))
        except LinkFailed as error:
            yield from parameters.unreadable(error)
            return
        yield from parameters.parameter_checks(self._rules, self._values)

    @property
    def values(self) -> Values:
        """The parameters as they were read; empty when they could not be."""
        return self._values

    def fix(self, ask, say) -> list[Change]:
        """Mend what can be mended; the values follow."""
        wanted = parameters.proposals(self._rules, self._values)
        if self.ground is None or not wanted:
            say("nothing to set")
            return []
        changes = parameters.fix(self.ground, wanted, ask, say)
        self._values |= {change.parameter: change.new for change in changes}
        return changes

    def parameter_checks(self) -> list[Check]:
        return parameters.parameter_checks(self._rules, self._values)


def _ask(question: str) -> str:
    """A line from the keyboard; no keyboard is a no."""
    click.echo(question, nl=False)
    answer = sys.stdin.readline()
    if not answer:
        click.echo()
    return answer


def _say(check: Check) -> None:
    click.echo(click.style(line(check), fg=COLOURS[check.status]))


@click.command()
@click.option("--vehicle", type=click.Path(path_type=Path), default=DEFAULT_VEHICLE, show_default=True)
@click.option("--mission", type=click.Path(path_type=Path), default=None, help="What is to be flown.")
@click.option(
    "--fcu", default="", help="serial:DEVICE:BAUD, udpin:HOST:PORT or tcp:HOST:PORT. Default: the vehicle file's."
)
@click.option(
    "--bus",
    type=click.Path(path_type=Path),
    default=None,
    help="Bus folder of the running stack, to look through its camera.  [default: /run/companion where it runs]",
)
@click.option("--fix", is_flag=True, help="Show which parameters would be set, ask, and set them.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), default=None, help="Write the result here.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=FLIGHTS, show_default=True, help="Folder that logs will go to."
)
@one_line_errors
def preflight(
    vehicle: Path, mission: Path | None, fcu: str, bus: Path | None, fix: bool, json_file: Path | None, out: Path
) -> None:
    """Check aircraft, computer, camera and files before a flight, a line each."""
    run = Preflight(vehicle, mission, fcu, out, bus or running_bus())
    checks: list[Check] = []
    changes: list[Change] = []
    try:
        for check in run.checks():
            _say(check)
            checks.append(check)
        if fix:
            changes = run.fix(_ask, click.echo)
            checks = _after(run, checks, [change.parameter for change in changes])
    finally:
        if run.ground is not None:
            run.ground.close()
    click.echo(summary(checks))
    passed = not any(check.status == "failed" for check in checks)
    if json_file:
        at = datetime.now(UTC).isoformat(timespec="seconds")
        mission_name = None if mission is None else str(mission)
        report = Report(at, str(vehicle), mission_name, run.fcu_url, passed, checks, changes)
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    if run.ground is not None and run.ground.stuck:  # a call of MAVSDK that hangs would hold up the exit for ever
        sys.stdout.flush()
        os._exit(0 if passed else 1)
    sys.exit(0 if passed else 1)


def _after(run: Preflight, checks: list[Check], changed: list[str]) -> list[Check]:
    """The checks with those of the parameters anew; the changed ones are told."""
    again = {check.name: check for check in run.parameter_checks()} if changed else {}
    for name in changed:
        _say(again[name])
    return [again.get(check.name, check) for check in checks]

"""Whether the running stack is complete and flies the files that preflight judges: a process keeps what it read at its start."""

from pathlib import Path

from companion.core.clock import monotonic_s
from companion.core.enums import ProcessName
from companion.core.input_files import fingerprint
from companion.core.messages import Health
from companion.core.subscriber import Subscriber
from companion.mission.plan import Plan
from companion.preflight.report import PreflightCheck, skipped, worst
from companion.runtime.bus_folders import has_sockets
from companion.runtime.process import SLOW, health_line
from companion.runtime.processes import onboard_processes

NAME = "running stack"
WATCH_S = 1.5  # a process reports twice a second
RESTART = "start the stack again (systemctl restart companion.target)"


def stack_check(folder: Path, vehicle_file: Path, mission_file: Path | None, plan: Plan | None) -> PreflightCheck:
    """The processes on the bus in `folder` against the given files: all that the mission needs, of these files, at their rates.

    plan: of the mission file, None where it cannot be read.
    """
    if mission_file is None:
        return skipped(NAME, "no mission given (--mission), by which a running stack is known")
    if not has_sockets(folder):
        return skipped(NAME, f"no stack runs on the bus {folder}, or the bus belongs to another user")
    ours = fingerprint(vehicle_file, mission_file)
    reported, trouble = _reported(folder)
    flying = {name: health for name, health in reported.items() if health.files}
    if not flying:
        return skipped(NAME, trouble or f"no process on the bus {folder} says which files it flies")
    failures = []
    if others := sorted(name for name, health in flying.items() if health.files != ours):
        failures.append(
            f"{', '.join(others)}: started with other files than {vehicle_file} and {mission_file}, or before a change of"
            f" them: {RESTART}"
        )
    if missing := [] if plan is None else sorted(_needed(plan, ProcessName.SIMULATOR in reported) - reported.keys()):
        failures.append(f"{', '.join(missing)}: no report in {WATCH_S:g} s (systemctl status 'companion-*')")
    detail = f"{len(flying)} processes fly {vehicle_file} and {mission_file}"
    return worst(NAME, failures, _warnings(reported), "" if failures else detail)


def _needed(plan: Plan, simulated: bool) -> set[ProcessName]:
    return set(onboard_processes(plan.bundle, simulated, plan.inspection is not None))


def _warnings(reported: dict[ProcessName, Health]) -> list[str]:
    """Processes that are slow or have counted errors, as the view shows them in colour."""
    return [
        f"{name}: {health_line(health)}"
        for name, health in sorted(reported.items())
        if health.errors or health.steps_per_s < SLOW * health.nominal_steps_per_s
    ]


def _reported(folder: Path) -> tuple[dict[ProcessName, Health], str]:
    """(the newest health of each process, the bus's last error or "")."""
    bus = Subscriber(folder, ["health"])
    found: dict[ProcessName, Health] = {}
    until_s = monotonic_s() + WATCH_S
    try:
        while (left_s := until_s - monotonic_s()) > 0:
            found |= {message.process: message for message in bus.receive(left_s) if isinstance(message, Health)}
    finally:
        bus.close()
    return found, bus.last_error

"""Whether the running stack flies the files that preflight judges: a process keeps what it read at its start."""

from pathlib import Path

from companion.core.clock import monotonic_s
from companion.core.enums import ProcessName
from companion.core.input_files import fingerprint
from companion.core.messages import Health
from companion.core.subscriber import Subscriber
from companion.preflight.report import PreflightCheck, failed, ok, skipped
from companion.runtime.bus_folders import has_sockets

NAME = "running stack"
WATCH_S = 1.5  # a process reports twice a second
RESTART = "start the stack again (systemctl restart companion.target)"


def stack_check(folder: Path, vehicle_file: Path, mission_file: Path | None) -> PreflightCheck:
    """The files of every process on the bus in `folder` against the given ones."""
    if mission_file is None:
        return skipped(NAME, "no mission given (--mission), by which a running stack is known")
    if not has_sockets(folder):
        return skipped(NAME, f"no stack runs on the bus {folder}, or the bus belongs to another user")
    ours = fingerprint(vehicle_file, mission_file)
    reported, trouble = _reported(folder)
    if not reported:
        return skipped(NAME, trouble or f"no process on the bus {folder} says which files it flies")
    others = sorted(name for name, files in reported.items() if files != ours)
    if others:
        return failed(
            NAME,
            f"{', '.join(others)}: started with other files than {vehicle_file} and {mission_file}, or before a change of"
            f" them: {RESTART}",
        )
    return ok(NAME, f"{len(reported)} processes fly {vehicle_file} and {mission_file}")


def _reported(folder: Path) -> tuple[dict[ProcessName, str], str]:
    """(fingerprint of the files of each process that has read any, the bus's last error or "")."""
    bus = Subscriber(folder, ["health"])
    found: dict[ProcessName, str] = {}
    until_s = monotonic_s() + WATCH_S
    try:
        while (left_s := until_s - monotonic_s()) > 0:
            healths = [message for message in bus.receive(left_s) if isinstance(message, Health)]
            found |= {health.process: health.files for health in healths if health.files}
    finally:
        bus.close()
    return found, bus.last_error

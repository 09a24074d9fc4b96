"""The bus folders of running stacks: where they are, and an end of the bus that only receives."""

import os
from collections.abc import Iterable
from pathlib import Path

from companion.core.bus import ZmqBus
from companion.core.config import ConfigError
from companion.core.enums import TopicName

SYSTEM_BUS = Path("/run/companion")  # of the systemd units
FLIGHT_BUSES = "companion-*"  # of `companion fly`, in the folder for temporary files


class BusSubscriber(ZmqBus):
    """An end of the bus that only receives. Several may have the same name: the process id is appended to it."""

    def __init__(self, folder: Path, name: str, inputs: Iterable[TopicName]) -> None:
        super().__init__(folder, f"{name}-{os.getpid()}", inputs)


def newest_bus(temporary: Path, system: Path = SYSTEM_BUS) -> Path:
    """The bus folder that was used last; raises `ConfigError` when no stack runs."""
    folders = [folder for folder in (system, *temporary.glob(FLIGHT_BUSES)) if has_sockets(folder)]
    if not folders:
        raise ConfigError("no running stack found; name its bus folder (--bus of its processes)")
    return max(folders, key=lambda folder: folder.stat().st_mtime)


def has_sockets(folder: Path) -> bool:
    """Whether a process has opened its end of the bus there; False also for a folder of another user."""
    try:
        return any(path.is_socket() for path in folder.glob("*.sock"))
    except OSError:
        return False


def system_bus() -> Path | None:
    """The bus of the systemd units, None when they do not run."""
    return SYSTEM_BUS if has_sockets(SYSTEM_BUS) else None

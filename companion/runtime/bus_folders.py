"""The bus folders of running stacks of this user, and of the systemd units."""

import os
import shutil
import socket
import tempfile
from pathlib import Path

from companion.core.config import ConfigError
from companion.core.enums import ProcessName
from companion.core.folders import holder, is_own_folder

SYSTEM_BUS = Path("/run/companion")  # of the systemd units
SYSTEM_FLIGHTS = Path("/var/lib/companion/flights")  # their logs
FLIGHT_BUS_PREFIX = "companion-"  # of `companion fly`, in the folder for temporary files
MANAGER = "manager"  # the name that `companion fly` holds on its bus


def temporary_folder() -> Path:
    """Where `companion fly` makes its bus folders."""
    return Path(tempfile.gettempdir())


def newest_bus(temporary: Path, system: Path = SYSTEM_BUS) -> Path:
    """The bus folder of this user that was used last; raises `ConfigError` when no stack runs."""
    folders = [folder for folder in _folders(temporary, system) if has_sockets(folder)]
    if not folders:
        raise ConfigError("no running stack found; name its bus folder (--bus of its processes)")
    return max(folders, key=lambda folder: (bool(_held(folder)), folder.stat().st_mtime))


def has_sockets(folder: Path) -> bool:
    """Whether a process of this user has its end of the bus open there; what a killed stack left behind does not count.

    False for a folder of another user, who could show anything there. Root may look at the bus of the systemd units.
    """
    if not _is_trusted(folder):
        return False
    try:
        return any(_is_open(path) for path in folder.glob("*.sock"))
    except OSError:
        return False


def _is_open(path: Path) -> bool:
    """Whether a process listens at a socket; its file outlives a process that was killed."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except BlockingIOError:  # its queue is full
            return True
        except OSError:
            return False
    return True


def system_bus() -> Path | None:
    """The bus of the systemd units, None when they do not run."""
    return SYSTEM_BUS if has_sockets(SYSTEM_BUS) else None


def flight_on_link(url: str, temporary: Path, system: Path = SYSTEM_BUS) -> str | None:
    """The id of the process that flies on a link, as far as this user can see it; None when there is none."""
    for folder in filter(_is_trusted, _folders(temporary, system)):
        for name in (MANAGER, ProcessName.FCU):
            found = holder(folder, name)
            if found is not None and found.note == url:
                return found.pid or "?"
    return None


def remove_left_behind(temporary: Path) -> None:
    """Remove the bus folders of flights of this user that were killed: a manager held them, and no process does now."""
    for folder in temporary.glob(f"{FLIGHT_BUS_PREFIX}*"):
        if is_own_folder(folder) and (folder / f"{MANAGER}.lock").exists() and not _held(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _held(folder: Path) -> list[str]:
    """The names in a folder that running processes hold."""
    return [file.stem for file in folder.glob("*.lock") if holder(folder, file.stem) is not None]


def _is_trusted(folder: Path) -> bool:
    return is_own_folder(folder) or (folder == SYSTEM_BUS and os.geteuid() == 0)


def _folders(temporary: Path, system: Path) -> list[Path]:
    return [system, *temporary.glob(f"{FLIGHT_BUS_PREFIX}*")]

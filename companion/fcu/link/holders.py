"""Which process holds a device or a port, as far as Linux shows it to this user (/proc)."""

import os
from collections.abc import Iterator
from pathlib import Path

import psutil

from companion.core.text import plain

NAME_MAX = 60  # characters of a command line


def of_device(device: str) -> str:
    """The processes that have a device open, for a message: "process 123 (minicom -D /dev/ttyUSB0)"; "": not known."""
    wanted = os.path.realpath(device)
    return ", ".join(_described(pid) for pid in sorted(_processes()) if _has_open(pid, wanted))


def of_udp_port(port: int) -> str:
    """The process that has a UDP port open; "": not known."""
    try:
        connections = psutil.net_connections("udp4")
    except (OSError, psutil.Error):
        return ""
    found = {c.pid for c in connections if c.pid is not None and c.laddr and c.laddr.port == port}
    return ", ".join(_described(pid) for pid in sorted(found))


def _processes() -> Iterator[int]:
    return (int(folder.name) for folder in Path("/proc").glob("[0-9]*") if folder.name.isdecimal())


def _has_open(pid: int, wanted: str) -> bool:
    """Whether a process has a file open; False for one of another user, whose files this user may not see."""
    try:
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
    return any(_target(descriptor) == wanted for descriptor in descriptors)


def _target(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except OSError:  # closed meanwhile
        return ""


def _described(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        words = ""
    return f"process {pid} ({plain(words, NAME_MAX)})" if words else f"process {pid}"

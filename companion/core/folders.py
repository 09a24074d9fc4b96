"""Folders that belong to one user, and who holds a name in them."""

import contextlib
import fcntl
import os
import stat
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from companion.core.config import ConfigError
from companion.core.text import plain

OWNER_ALONE = 0o700
OWN_FILES = (".sock", ".lock")  # of a bus folder
HOLD_PATIENCE_S = 0.3
_FOLDER_ITSELF = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_FILE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class FileIdentity(NamedTuple):
    """One file, whatever its name is; a number of an inode is used again, the time is not."""

    device: int
    inode: int
    changed_ns: int


def file_identity(path: Path) -> FileIdentity | None:
    """The identity of the entry at a path, a link itself; None when there is no readable entry."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return FileIdentity(found.st_dev, found.st_ino, found.st_ctime_ns)


def is_own_folder(folder: Path) -> bool:
    """Whether a path is a folder of this user, and not a link to one."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def own_folder(folder: Path) -> None:
    """Make a folder that only its owner gets access to, or restrict one that exists.

    Raises `ConfigError` for a link, and for a folder of another user: its owner could read and replace what lies there.
    A folder with other files whose access would change (/tmp, for root) is refused, too. A folder's access is changed by its descriptor, so that a link put in its place cannot redirect the change.
    """
    try:
        folder.mkdir(mode=OWNER_ALONE, parents=True, exist_ok=True)
        descriptor = os.open(folder, _FOLDER_ITSELF)
    except OSError as error:
        why = "is a link, must be a folder" if folder.is_symlink() else (error.strerror or str(error)).lower()
        raise ConfigError(f"bus folder {folder}: {why}") from None
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid():
            raise ConfigError(f"bus folder {folder}: belongs to another user (id {found.st_uid})")
        if stat.S_IMODE(found.st_mode) != OWNER_ALONE:
            if other := [name for name in os.listdir(descriptor) if not name.endswith(OWN_FILES)]:
                raise ConfigError(
                    f"bus folder {folder}: holds other files ({plain(min(other))}); name a folder for it alone"
                )
            os.fchmod(descriptor, OWNER_ALONE)
    finally:
        os.close(descriptor)


class Holder(NamedTuple):
    """The process that holds a name, as it wrote itself into the lock file."""

    pid: str  # "" when the file cannot be read
    note: str


class Hold:
    """Holds a name in a folder for the life of this process: a second process gets a `ConfigError` that names this one.

    The kernel releases the name when the process ends, also by kill -9 (flock(2)); the file stays and means nothing.
    note: what `holder` reports besides the process id.
    Raises `ConfigError` when another process holds the name, or when the file cannot be opened.
    """

    def __init__(self, folder: Path, name: str, note: str = "") -> None:
        file = folder / f"{name}.lock"
        try:
            self._descriptor = os.open(file, _LOCK_FILE, 0o600)
        except OSError as error:
            raise ConfigError(f"{file}: cannot be opened: {(error.strerror or str(error)).lower()}") from None
        # Tried for a while: a process that was killed may still be ending, and `holder` takes the lock for a moment.
        until_s = time.monotonic() + HOLD_PATIENCE_S
        while not _lock(self._descriptor, fcntl.LOCK_EX):
            if time.monotonic() > until_s:
                found = _read(self._descriptor)
                self.release()
                by = f" as process {found.pid}" if found.pid else ""
                raise ConfigError(f"{name} already runs on the bus {folder}{by}; end it first")
            time.sleep(HOLD_PATIENCE_S / 10)
        with contextlib.suppress(OSError):  # a full disk: the name is held all the same
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, os.fsencode(f"{os.getpid()} {note}\n"), 0)

    def release(self) -> None:
        """Give the name back; twice is once."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> "Hold":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.release()


def holder(folder: Path, name: str) -> Holder | None:
    """The process that holds a name in a folder; None when no process does, or the folder is another user's."""
    try:
        descriptor = os.open(folder / f"{name}.lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return None if _lock(descriptor, fcntl.LOCK_SH) else _read(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _read(descriptor: int) -> Holder:
    try:
        text = plain(os.pread(descriptor, 500, 0).decode("utf-8", "replace"))
    except OSError:
        text = ""
    pid, _, note = text.partition(" ")
    return Holder(pid if pid.isdecimal() else "", note.strip())

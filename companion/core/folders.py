"""Folders that belong to one user, and who holds a name in them."""

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterator
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
    except OSError as error:
        raise _unusable(folder, error) from None
    with _opened(folder) as descriptor:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != OWNER_ALONE:
            if other := [name for name in os.listdir(descriptor) if not name.endswith(OWN_FILES)]:
                raise ConfigError(
                    f"bus folder {folder}: holds other files ({plain(min(other))}); name a folder for it alone"
                )
            os.fchmod(descriptor, OWNER_ALONE)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """A descriptor of a folder; raises `ConfigError` for a link and for a folder of another user."""
    try:
        descriptor = os.open(folder, _FOLDER_ITSELF)
    except OSError as error:
        raise _unusable(folder, error) from None
    try:
        if (owner := os.fstat(descriptor).st_uid) != os.geteuid():
            raise ConfigError(f"bus folder {folder}: belongs to another user (id {owner})")
        yield descriptor
    finally:
        os.close(descriptor)


def _unusable(folder: Path, error: OSError) -> ConfigError:
    why = "is a link, must be a folder" if folder.is_symlink() else (error.strerror or str(error)).lower()
    return ConfigError(f"bus folder {folder}: {why}")


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
        self._folder, self._name, self._note = folder, name, note
        self._file = folder / f"{name}.lock"
        self._descriptor = -1
        # Tried for a while: a process that was killed may still be ending, and `holder` takes the lock for a moment.
        until_s = time.monotonic() + HOLD_PATIENCE_S
        while why := self._take():
            if time.monotonic() > until_s:
                raise ConfigError(why)
            time.sleep(HOLD_PATIENCE_S / 10)

    def _take(self) -> str:
        """Lock the file at the path, which is made if it is absent; returns why that may succeed later, "" when it is held.

        Raises `ConfigError` when the folder is a link or another user's, or the file cannot be opened.
        """
        with _opened(self._folder) as folder:  # by its descriptor: a link put in its place is not followed
            try:
                descriptor = os.open(self._file.name, _LOCK_FILE, 0o600, dir_fd=folder)
            except OSError as error:
                raise ConfigError(f"{self._file}: cannot be opened: {(error.strerror or str(error)).lower()}") from None
        why = ""
        if not _lock(descriptor, fcntl.LOCK_EX):
            pid = _read(descriptor).pid
            by = f" as process {pid}" if pid else ""
            why = f"{self._name} already runs on the bus {self._folder}{by}; end it first"
        elif not self._is_in_place(descriptor):  # removed between the two calls: its lock would show nothing
            why = f"{self._file}: was removed at that moment"
        if why:
            os.close(descriptor)
            return why
        with contextlib.suppress(OSError):  # a full disk: the name is held all the same
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, os.fsencode(f"{os.getpid()} {self._note}\n"), 0)
        self.release()
        self._descriptor = descriptor
        return ""

    def _is_in_place(self, descriptor: int) -> bool:
        """Whether a process that looks for the name finds the file of this descriptor."""
        try:
            own, found = os.fstat(descriptor), self._file.lstat()
        except OSError:
            return False
        return is_own_folder(self._folder) and (own.st_dev, own.st_ino) == (found.st_dev, found.st_ino)

    def restore(self) -> str:
        """Hold the name again where the file has been deleted or replaced, alone or with its folder; never raises.

        Otherwise a second process would not find this one. Returns what was done or could not be, "" when the name is held
        as before. The name stays with another process that has taken it since.
        """
        if self._descriptor < 0 or self._is_in_place(self._descriptor):
            return ""
        try:
            own_folder(self._folder)
            why = self._take()
        except (ConfigError, OSError) as error:
            why = plain(str(error))
        return f"{self._file}: was deleted, " + (f"cannot be held again: {why}" if why else "held again")

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

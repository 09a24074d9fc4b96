"""Files that are whole after a loss of power.

What was handed to the operating system survives the death of a process, but not a battery that is unplugged: Linux writes
it to the disk up to 30 s later, and a renamed file may then have no content. Only fsync(2) waits for it.
"""

import os
from pathlib import Path


def put_in_place(made: Path, target: Path) -> None:
    """Give a finished file its name, in the place of one with that name; raises OSError.

    The file is there whole or not at all, and it is there after the call. Both are on one file system.
    """
    synchronise_file(made)
    made.replace(target)
    synchronise_folder(target.parent)


def synchronise_file(path: Path) -> None:
    """Bring the content of a file onto the disk; raises OSError."""
    _synchronise(path, os.O_RDONLY)


def synchronise_folder(folder: Path) -> None:
    """Bring the names in a folder onto the disk; raises OSError."""
    _synchronise(folder, os.O_RDONLY | os.O_DIRECTORY)


def _synchronise(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

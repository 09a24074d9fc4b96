"""The log of a flight that may be flown more than once.

A flight is begun again when the campaign, its launcher or its worker was ended, on a cluster perhaps while the first attempt still writes into
the same folder. So each attempt writes its log, and the photographs beside it, in a folder of its own. Its files get their
names when the flight has ended and its row is made; no file is ever replaced.
"""

import contextlib
import os
import shutil
import uuid
from pathlib import Path

UNFINISHED = ".part"  # of the folder of an attempt


class Attempt:
    """One attempt at a flight whose log is to be ``log``. Nothing raises."""

    def __init__(self, log: Path) -> None:
        self._log = log
        own = f"{log.stem}-{uuid.uuid4().hex[:8]}"
        self._folder, self._apart = log.with_name(own + UNFINISHED), log.with_name(own)

    @property
    def log(self) -> Path:
        """Where this attempt writes."""
        return self._folder / self._log.name

    def named(self, text: str) -> str:
        """A text about this attempt's log, with the name that the log is to have."""
        return text.replace(str(self.log), str(self._log))

    def keep(self) -> Path | None:
        """Give the log of the flight, which has ended, its name; returns where it is, None where there is none.

        Where that name is taken, by a finished log that has no row or by another campaign's, it stays in a folder of its own.
        """
        if not os.path.exists(self.log):
            self.remove()
            return None
        try:
            beside = [path for path in self._folder.iterdir() if path != self.log]
            if any(path.exists() for path in map(self._final, beside)):
                return self._kept_apart()
            os.link(self.log, self._log)  # unlike a renaming it takes no other file's place
        except OSError:
            return self._kept_apart()
        with contextlib.suppress(OSError):
            self.log.unlink()
            for path in beside:
                path.rename(self._final(path))
            self._folder.rmdir()
        return self._log

    def _final(self, path: Path) -> Path:
        return self._log.with_name(path.name)

    def _kept_apart(self) -> Path:
        try:
            return self._folder.rename(self._apart) / self._log.name
        except OSError:
            return self.log

    def remove(self) -> None:
        """Remove all that the attempt has written, when the campaign does not want the flight any more."""
        shutil.rmtree(self._folder, ignore_errors=True)

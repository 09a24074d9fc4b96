"""The px4 program as a child process."""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from companion.core.config import ConfigError
from companion.core.errors import UserError
from sitl.px4.build import Px4Build

LOG = "px4.log"
STOP_TIMEOUT_S = 2.0  # after SIGINT, and again after SIGTERM
_PR_SET_PDEATHSIG = 1


class Px4Ended(UserError):
    """PX4 has ended or stopped answering; the message is one line."""


class Px4Process:
    """One running PX4, ended by the kernel when this process ends.

    instance: shifts all its ports, as PX4 counts them; environment: more variables for its start-up script.
    """

    def __init__(
        self,
        build: Px4Build,
        run: Path,
        etc: Path,
        model: str,
        instance: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.log = run / LOG
        # PX4's start-up script reads PX4_* variables: it must not see those of the user's shell.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PX4_")}
        variables = {**inherited, "PX4_SIM_MODEL": model, **(environment or {})}
        with open(self.log, "wb") as log:
            try:
                self._process = subprocess.Popen(
                    [build.program, "-i", str(instance), "-d", str(etc)],
                    cwd=run, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    preexec_fn=partial(_die_with_parent, os.getpid()),
                )  # fmt: skip
            except OSError as error:
                raise ConfigError(f"{build.program}: cannot be started: {error.strerror}") from None

    def check(self) -> None:
        """Raises `Px4Ended` when it no longer runs."""
        status = self._process.poll()
        if status is not None:
            raise Px4Ended(f"PX4 ended with status {status}: {self.last_line()} (all of it in {self.log})")

    def unknown_parameters(self) -> list[str]:
        """Names of parameters that its start-up script could not set so far."""
        return re.findall(r"Parameter (\w+) not found", self._text())

    def last_line(self) -> str:
        """The newest line of its output."""
        lines = [line for line in self._text().splitlines() if line.strip()]
        return lines[-1].strip() if lines else "it wrote nothing"

    def _text(self) -> str:
        try:
            text = self.log.read_text(errors="replace")
        except OSError:
            return ""
        return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)

    def stop(self) -> None:
        """End it: SIGINT closes its flight log; SIGTERM and SIGKILL follow if it still runs."""
        for number in (signal.SIGINT, signal.SIGTERM):
            if self._process.poll() is None:
                self._process.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(STOP_TIMEOUT_S)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def _die_with_parent(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before the kernel could know
        os._exit(1)

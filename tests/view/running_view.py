"""`companion view` as a process, as tests start it."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class RunningView(NamedTuple):
    process: "subprocess.Popen[str]"
    url: str  # as printed, with the key of a view that commands
    printed: list[str]

    def cpu_s(self) -> float:
        """Processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running_view(*words: str) -> Iterator[RunningView]:
    """Start the view on a free port; ends it, if it still runs."""
    command = [sys.executable, "-m", "companion.cli", "view", *words, "--port", "0"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    printed: list[str] = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            printed.append(line.strip())
            if "://" in line:
                break
        assert printed and "://" in printed[-1], printed
        yield RunningView(process, printed[-1].split()[0], printed)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5.0)
        process.kill()
        process.wait(5.0)
        if process.stdout is not None:
            process.stdout.close()

"""Images of the running stack: its camera process has the device, and the bus has its images."""

from collections import deque
from pathlib import Path

from companion.core.config import ConfigError
from companion.core.messages import Image
from companion.tracking.cameras import READ_TIMEOUT_S
from companion.view.watch import SYSTEM_BUS, Listener, has_sockets


class BusSource:
    """A `companion.tracking.cameras.Source` that listens to the bus in `folder`; raises `ConfigError` without one."""

    def __init__(self, folder: Path) -> None:
        if not has_sockets(folder):
            raise ConfigError(f"camera: no stack runs on the bus {folder}, or it belongs to another user")
        self.finished, self.errors, self.last_error = False, 0, ""
        self._waiting: deque[Image] = deque()
        self._bus = Listener(folder, "preflight", ["image"])

    def read(self) -> Image | None:
        """The next image; None after `READ_TIMEOUT_S` without one."""
        if not self._waiting:
            self._waiting.extend(self._bus.receive(READ_TIMEOUT_S))
            self.errors, self.last_error = self._bus.errors, self._bus.last_error
        return self._waiting.popleft() if self._waiting else None

    def close(self) -> None:
        self.finished = True
        self._bus.close()


def running_bus() -> Path | None:
    """Where systemd's processes meet, if they run."""
    return SYSTEM_BUS if has_sockets(SYSTEM_BUS) else None

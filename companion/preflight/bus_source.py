"""Images of the running stack: its camera process has the device, and publishes the images on the bus."""

from collections import deque
from pathlib import Path

from companion.core.config import ConfigError
from companion.core.messages import Image
from companion.core.subscriber import Subscriber
from companion.runtime.bus_folders import has_sockets
from companion.tracking.cameras import READ_TIMEOUT_S


class BusSource:
    """A `companion.tracking.cameras.Source` of the images on the bus in `folder`; raises `ConfigError` without one."""

    def __init__(self, folder: Path) -> None:
        if not has_sockets(folder):
            raise ConfigError(f"camera: no stack runs on the bus {folder}, or the bus belongs to another user")
        self.finished, self.errors, self.last_error = False, 0, ""
        self._waiting: deque[Image] = deque()
        self._bus = Subscriber(folder, ["image"])

    def read(self) -> Image | None:
        """The next image; None after `READ_TIMEOUT_S` without one."""
        if not self._waiting:
            self._waiting.extend(m for m in self._bus.receive(READ_TIMEOUT_S) if isinstance(m, Image))
            self.errors, self.last_error = self._bus.errors, self._bus.last_error
        return self._waiting.popleft() if self._waiting else None

    def close(self) -> None:
        """Leave the bus."""
        self.finished = True
        self._bus.close()

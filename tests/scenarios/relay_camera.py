"""The camera process of a simulated flight: the real loop around a source that gets its images from the simulator.

``python relay_camera.py --air DIR --bus DIR``: images come from the bus in AIR and leave as the camera's own. So a
simulated flight, which has no camera process otherwise, can be flown with one that dies or hangs.
"""

import argparse
from pathlib import Path

from companion.core.bus import ZmqBus
from companion.core.messages import CAMERA, Image
from companion.runtime.notify import Notifier
from companion.runtime.process import StopFlag, run_camera

RATE_HZ = 30.0
READ_TIMEOUT_S = 0.5  # as of the real source


class BusSource:
    """A camera source that waits for the simulator's next image."""

    errors, last_error = 0, ""

    def __init__(self, air: Path) -> None:
        self._bus = ZmqBus(air, CAMERA, ("image",))

    def read(self) -> Image | None:
        images = self._bus.receive(READ_TIMEOUT_S)
        return images[-1] if images else None


def main() -> None:
    """Run until a signal."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--air", type=Path, required=True)
    parser.add_argument("--bus", type=Path, required=True)
    given = parser.parse_args()
    stop = StopFlag()
    source = BusSource(given.air)
    run_camera(source, ZmqBus(given.bus, CAMERA, ()), lambda: bool(stop), CAMERA, RATE_HZ, Notifier())


if __name__ == "__main__":
    main()

"""`companion fly` with a simulator that it has not started: what a campaign kills, stops and lets hang.

The simulator takes the place of the aircraft and must go on when the manager is killed. Its images come from a bus of its
own through a camera process, which an aircraft has, too.
"""

import argparse
import os
import signal
import sys
import threading
import time
from pathlib import Path

from companion.runtime.fly import fly
from companion.runtime.parent import Parent
from companion.runtime.processes import YES_AUTO

RELAY_CAMERA = Path(__file__).with_name("relay_camera.py")


def end_with_the_campaign() -> None:
    """A campaign that was killed leaves no flight behind."""
    parent = Parent()

    def watch() -> None:
        while not parent.ended:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def main() -> int:
    """Exit status of the flight."""
    end_with_the_campaign()
    parser = argparse.ArgumentParser()
    for name in ("mission", "vehicle", "air", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--fcu", required=True)
    parser.add_argument("--timeout", type=float, required=True)
    given = parser.parse_args()

    def camera(bus: Path, _folder: Path) -> dict[str, list[str]]:
        return {"camera": [sys.executable, str(RELAY_CAMERA), "--air", str(given.air), "--bus", str(bus)]}

    return fly(given.mission, given.vehicle, given.fcu, given.out, True, camera, given.timeout, run={YES_AUTO: True})


if __name__ == "__main__":
    sys.exit(main())

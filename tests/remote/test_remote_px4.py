"""Real PX4 (its own simulator SIH) flown by the remote; skipped where no build is found.

``python -m tests.remote.test_remote_px4`` prints the directions flown.
"""

import contextlib
import math
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from companion.core.clock import monotonic_s
from companion.core.config import ConfigError
from companion.core.enums import FcuMode
from companion.core.frames import rotation_matrix, rpy_from_quat
from companion.remote.aircraft import Aircraft
from companion.remote.station import Station
from sitl.px4.build import SIH_MODEL, find_build, prepare_run
from sitl.px4.process import Px4Process
from tests.remote.latency import TOKEN, Client, serving

pytestmark = pytest.mark.realtime
INSTANCE = 63
NOSES = [0.0, 110.0, -80.0]  # degrees


class Pilot:
    """A client whose samples go on in a thread, with the sticks that are set."""

    def __init__(self, port: int, station: Station) -> None:
        self.client, self.aircraft = Client(port), station.aircraft
        self.sticks = {"ahead": 0.0, "right": 0.0, "up": 0.0, "turn": 0.0}
        self.state: dict = {}
        self.answers: list[str] = []
        self.question: dict = {}
        self.ends = self.samples = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            self._receive()

    def _receive(self) -> None:
        while not self.ends:
            message = self.client.until(lambda m: True)
            if message["type"] == "state":
                self.state = message
                if self.samples:
                    self.client.send(type="sticks", **self.sticks)
            elif message["type"] == "answer":
                self.answers.append(message["text"])
            elif message["type"] == "question":
                self.question = message

    def move(self, **sticks: float) -> None:
        self.sticks = {"ahead": 0.0, "right": 0.0, "up": 0.0, "turn": 0.0} | sticks

    def until(self, wanted, within_s: float, again=lambda: None) -> None:
        ends = time.monotonic() + within_s
        while not wanted():
            assert time.monotonic() < ends, (self.state, self.answers)
            again()
            time.sleep(0.1)

    def take_off(self, height_m: float) -> None:
        self.until(lambda: self.state.get("connected"), 60)
        self.samples = True
        self.until(lambda: self.state["you"], 20, lambda: self.client.send(type="take") or time.sleep(0.5))
        self.mode(FcuMode.POSCTL)

        def arm() -> None:
            self.client.send(type="arm", arm=True)
            time.sleep(0.3)
            self.client.send(type="confirm", question=self.question["question"])
            time.sleep(1.0)

        self.until(lambda: self.state["armed"], 40, arm)
        self.move(up=0.9)
        self.until(lambda: self.state["height_m"] > height_m, 60)
        self.move()
        time.sleep(3.0)

    def mode(self, mode: FcuMode) -> None:
        self.until(
            lambda: self.state["mode"] == mode, 30, lambda: self.client.send(type="mode", mode=mode) or time.sleep(1.0)
        )

    @property
    def yaw(self) -> float:
        return rpy_from_quat(self.aircraft.attitude(monotonic_s()))[2]

    def turn_to(self, yaw: float) -> None:
        def turn() -> None:
            error = math.remainder(yaw - self.yaw, math.tau)
            self.move(turn=min(max(-0.8 * error, -0.5), 0.5) - math.copysign(0.15, error))

        self.until(lambda: abs(math.remainder(yaw - self.yaw, math.tau)) < 0.05, 40, turn)
        self.move()
        time.sleep(3.0)


@contextmanager
def pilot_of_px4(folder: Path, **parameters: float) -> Iterator[Pilot]:
    """A pilot at the page of a remote at PX4 that has just started."""
    build = find_build()
    etc = prepare_run(build, folder, SIH_MODEL, {"COM_RC_IN_MODE": 1, **parameters})
    px4 = Px4Process(build, folder, etc, SIH_MODEL, INSTANCE)
    station = Station(Aircraft(), TOKEN)
    try:
        with serving(station, f"udpout:127.0.0.1:{18570 + INSTANCE}") as (port, _):
            pilot = Pilot(port, station)
            yield pilot
            pilot.ends = True
    finally:
        px4.stop()


def thrust_direction(pilot: Pilot, duration_s: float) -> float:
    """Mean direction to which the aircraft tilts, ENU [rad]."""
    east = north = 0.0
    ends = time.monotonic() + duration_s
    while time.monotonic() < ends:
        x, y, _ = rotation_matrix(pilot.aircraft.attitude(monotonic_s()))[:, 2]
        east, north = east + x, north + y
        time.sleep(0.02)
    return math.atan2(north, east)


def directions(pilot: Pilot, mode: FcuMode, frame: str) -> list[tuple[float, float]]:
    """(direction of tilt or, in Position, of velocity; the nose's) from where "ahead" was set [deg], with one stick at each of `NOSES`."""
    pilot.mode(FcuMode.POSCTL)
    pilot.client.send(type="frame", frame="body")
    time.sleep(6.0)  # until PX4 stands still
    pilot.client.send(type="ahead")
    first = pilot.yaw
    found = []
    for nose in NOSES:
        pilot.turn_to(first + math.radians(nose))
        pilot.client.send(type="frame", frame=frame)
        pilot.mode(mode)
        time.sleep(1.0)
        pilot.move(ahead=0.5, right=0.3)
        time.sleep(1.0)
        if mode is FcuMode.POSCTL:  # a velocity: its direction once it is steady
            time.sleep(4.0)
            east, north, _ = pilot.aircraft.motion(monotonic_s())[1]
            flown = math.atan2(north, east) - first
        else:
            flown = thrust_direction(pilot, 1.2) - first
        yaw = pilot.yaw
        pilot.move()
        found.append(tuple(math.degrees(math.remainder(a, math.tau)) for a in (flown, yaw - first)))
        pilot.mode(FcuMode.POSCTL)
        time.sleep(5.0)
        pilot.client.send(type="frame", frame="body")
        time.sleep(1.0)
    return found


def test_px4_is_flown_by_the_page_and_headless_has_one_direction(tmp_path):
    try:
        find_build()
    except ConfigError as error:
        pytest.skip(str(error))
    with pilot_of_px4(tmp_path) as pilot:
        pilot.take_off(5.0)
        found = [flown for flown, _ in directions(pilot, FcuMode.STABILIZED, "headless")]
        assert max(found) - min(found) < 3.0, found
        pilot.move(ahead=0.3)
        time.sleep(0.5)
        pilot.samples = False
        pilot.until(lambda: not pilot.state["you"], 2.0)
        pilot.until(lambda: pilot.state["mode"] in ("AUTO_LOITER", "AUTO_RTL"), 5.0)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, pilot_of_px4(Path(folder)) as pilot:
        pilot.take_off(8.0)
        for mode in [FcuMode(word) for word in sys.argv[1:]] or (FcuMode.STABILIZED, FcuMode.ALTCTL, FcuMode.POSCTL):
            for frame in ("body", "headless"):
                rows = directions(pilot, mode, frame)
                print(
                    f"{mode:11} {frame:9} " + "  ".join(f"nose {n:7.2f}°: flown {f:7.2f}°" for f, n in rows), flush=True
                )
        pilot.samples = False
        time.sleep(2.0)
        print("after the dead man:", pilot.state["mode"], "|", pilot.state["stopped"])

"""The simulated world as a process: real time, real MAVLink over UDP, camera and truth on the bus.

``python -m sitl.realtime SCENARIO --seed N --bus DIR`` takes the place of PX4 and the camera of an aircraft. With
``camera_mode = "corners"`` it takes the place of the tracker's input too: it publishes `Markers` and no images.
"""

import argparse
import sys
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec
import zmq

from companion.core.bus import ZmqBus
from companion.core.clock import monotonic_s
from companion.core.config import ConfigError
from companion.core.enums import ProcessName, TopicName
from companion.core.errors import UserError
from companion.core.messages import Message, PhotoRequest
from companion.runtime.nodes import NodeOptions, build_node
from companion.runtime.process import HealthMonitor, StopFlag
from sitl.autopilot.autopilot import Autopilot
from sitl.autopilot.manual_selector import InMode
from sitl.autopilot.udp import GROUND_PORTS, ONBOARD_PORTS, UdpEndpoint, UdpLinks
from sitl.devices.arrivals import ArrivalQueue
from sitl.pilot import PERIOD_S as PILOT_PERIOD_S
from sitl.ports import check_instance
from sitl.scenario import SensorKind, load_scenario, with_pilot
from sitl.unkind import with_sensors
from sitl.world import STEP_S, World

INPUTS: tuple[TopicName, ...] = ("photo_request",)  # topics that `run` receives
TRUTH_PERIOD_S = 0.02
EXPOSURES_MAX = 4  # between exposure and arrival; a slow machine skips exposures and delays nothing else
# Further behind than this the world's clock stands still and does not catch up. The limit is well below the age at
# which the stack rejects an attitude: a busy machine slows the world down, and the stack keeps its measurements.
MAX_LAG_S = 0.05


def fcu_url(instance: int = 0) -> str:
    """Where the companion listens for the autopilot of this instance (PX4 counts its ports the same way)."""
    return f"udpin:127.0.0.1:{ONBOARD_PORTS[1] + instance}"


def main() -> int:
    """Entry of the simulator process; exit status 2 with one line when it cannot start."""
    parser = argparse.ArgumentParser(
        prog="python -m sitl.realtime",
        description="Simulate the aircraft, its PX4 emulator and its camera in real time, until SIGTERM or Ctrl-C.",
    )
    parser.add_argument("scenario", type=Path, help="scenario file, e.g. config/scenarios/bridge_hover.toml")
    parser.add_argument("--vehicle", type=Path, default=None, help="another vehicle file than the scenario's")
    parser.add_argument("--seed", type=int, default=1, help="of everything random in the world (default: 1)")
    parser.add_argument("--bus", type=Path, required=True, help="folder of the processes' sockets")
    parser.add_argument(
        "--instance",
        type=int,
        default=0,
        help=f"added to the UDP ports {ONBOARD_PORTS[0]}, {ONBOARD_PORTS[1]} and {GROUND_PORTS[0]}, as PX4 does; the "
        f"ground station's port {GROUND_PORTS[1]} stays (default: 0)",
    )
    parser.add_argument(
        "--sensors",
        default=SensorKind.KIND,
        help="kind: the errors in the scenario file; unkind: drawn for the seed (default: kind)",
    )
    parser.add_argument(
        "--remote",
        action="store_true",
        help="for a virtual remote alone: MAVLink is the only source of sticks (COM_RC_IN_MODE 1), and no images",
    )
    parser.add_argument("--pilot", default=None, help="pilot file, or default: who takes off and hands over")
    given = parser.parse_args()
    try:
        check_instance(given.instance)
        if given.seed < 0:
            raise ConfigError(f"--seed {given.seed}: must not be negative")
        if given.sensors not in list(SensorKind):
            raise ConfigError(f"--sensors {given.sensors}: must be one of {', '.join(SensorKind)}")
        loaded = load_scenario(given.scenario, given.vehicle, camera_mode="corners" if given.remote else None)
        if given.remote:
            parameters = loaded.scenario.fcu_parameters | {"COM_RC_IN_MODE": int(InMode.MAVLINK_ONLY)}
            scenario = msgspec.structs.replace(loaded.scenario, fcu_parameters=parameters)
            loaded = msgspec.structs.replace(loaded, scenario=scenario)
        if given.pilot is not None:
            loaded = with_pilot(loaded, given.pilot)
        world = World(with_sensors(loaded, SensorKind(given.sensors), given.seed), given.seed)
        onboard = UdpEndpoint(ONBOARD_PORTS[0] + given.instance, ONBOARD_PORTS[1] + given.instance)
        # in PX4's order: its sources of sticks are counted by it
        links = UdpLinks([UdpEndpoint(GROUND_PORTS[0] + given.instance, GROUND_PORTS[1]), onboard])
        bus = open_bus(given.bus)
    except UserError as error:
        print(f"simulator: {error}", file=sys.stderr)
        return 2
    run(world, links, bus, StopFlag())
    return 0


def open_bus(folder: Path) -> ZmqBus:
    """The simulator's end of the bus; raises `ConfigError` when the folder cannot be used."""
    try:
        return ZmqBus(folder, ProcessName.SIMULATOR, INPUTS)
    except (OSError, zmq.ZMQError) as error:
        raise ConfigError(f"--bus {folder}: {error.strerror or error}") from None


class Exposure(NamedTuple):
    """An exposure on its way to the bus."""

    arrival_s: float  # in the world's time
    zero_s: float  # added to the stamps: companion time of the world's time 0 at the exposure, and the stamp's error
    messages: "Future[list[Message]]"


class CameraFeed:
    """The camera of a world: its exposures, and the messages they become after the camera's latency.

    The render thread makes the messages, so the world, and with it an autopilot that waits for its every step, goes on.
    A world that draws no images (`World.corners`) has a tracker here, which gets the markers' corners without pixels.
    """

    def __init__(self, world: World, render_thread: ThreadPoolExecutor) -> None:
        self._world = world
        self._render_thread = render_thread
        self._waiting: deque[Exposure] = deque()
        self._requests: list[PhotoRequest] = []
        self._tracker = None
        if world.corners is not None:
            self._tracker = build_node(ProcessName.TRACKER, world.loaded, NodeOptions(detector=world.corners))

    @property
    def publishes_markers(self) -> bool:
        return self._tracker is not None

    def request(self, messages: Iterable[Message]) -> None:
        """Keep the photo requests among some messages for the next exposure."""
        self._requests += [message for message in messages if isinstance(message, PhotoRequest)]

    def expose(self, zero_s: float) -> None:
        """Begin an exposure; skipped when `EXPOSURES_MAX` are on their way."""
        if len(self._waiting) >= EXPOSURES_MAX:
            return
        world = self._world
        latency_s = world.camera.transport.latency_s(world.now_s)
        if latency_s is None:
            return
        draw, now_s = world.exposure(), world.now_s
        # Stamped as on an aircraft: the arrival less the delay of the vehicle file.
        stamp_error_s = latency_s - world.loaded.vehicle.latency.camera_s
        requests, self._requests = self._requests, []

        def messages() -> list[Message]:
            image = draw()
            if self._tracker is None:
                return [image]
            for request in requests:
                self._tracker.handle(request, now_s)
            return list(self._tracker.handle(image, now_s))

        arrival_s = now_s + latency_s
        self._waiting.append(Exposure(arrival_s, zero_s + stamp_error_s, self._render_thread.submit(messages)))

    def arrived(self) -> Iterable[Message]:
        """The messages that reach the bus now, stamped in companion time."""
        while self._waiting and self._waiting[0].arrival_s <= self._world.now_s and self._waiting[0].messages.done():
            _, zero_s, made = self._waiting.popleft()
            for message in made.result():
                message.stamp_s += zero_s
                yield message


def run(world: World, links: UdpLinks, bus: ZmqBus, stop: StopFlag) -> None:
    """Move the world with the clock until ``stop``; the bus receives `INPUTS`."""
    with ThreadPoolExecutor(max_workers=1) as render_thread:
        _move(world, links, bus, stop, CameraFeed(world, render_thread))


def _move(world: World, links: UdpLinks, bus: ZmqBus, stop: StopFlag, camera: CameraFeed) -> None:
    health = HealthMonitor(ProcessName.SIMULATOR, 1.0 / STEP_S)
    zero_s = monotonic_s()  # companion time of the world's time 0
    next_exposure_s = next_truth_s = next_look_s = 0.0
    devices = ArrivalQueue()
    if world.devices is not None:
        world.devices.in_real_time = True
    while not stop:
        lag_s = monotonic_s() - zero_s - world.now_s
        if lag_s < STEP_S:
            time.sleep(STEP_S - lag_s if lag_s > 0 else STEP_S)
            continue
        if lag_s > MAX_LAG_S:
            zero_s += lag_s - STEP_S
        started_s = time.perf_counter()
        for instance, data in links.receive():
            world.receive(data, world.now_s, instance)
        world.advance()
        devices.keep(world.measured())
        if world.now_s >= next_look_s and isinstance(world.autopilot, Autopilot):
            next_look_s += PILOT_PERIOD_S
            world.step_pilot(world.autopilot.mode, world.autopilot.armed)
        if data := world.take_output():
            links.send(data)
        if camera.publishes_markers:
            camera.request(bus.receive(0.0))
        if world.now_s >= next_exposure_s:
            next_exposure_s += 1.0 / world.camera.config.rate_hz
            camera.expose(zero_s)
        for message in camera.arrived():
            bus.publish(message)
        for message in devices.arrived(world.now_s):
            message.stamp_s += zero_s
            bus.publish(message)
        if world.now_s >= next_truth_s:
            next_truth_s += TRUTH_PERIOD_S
            truth = world.truth()
            truth.stamp_s += zero_s
            bus.publish(truth)
        for event in (*world.take_contacts(), *world.take_captures()):
            event.stamp_s += zero_s
            bus.publish(event)
        health.note_step(time.perf_counter() - started_s, lag_s > 2 * STEP_S)
        now_s = monotonic_s()
        if health.due(now_s):
            bus.publish(health.message(now_s, bus))


if __name__ == "__main__":
    sys.exit(main())

"""The simulated world as a process: real time, real MAVLink over UDP, images and truth on the bus.

``python -m sitl.realtime SCENARIO --seed N --bus DIR`` stands where PX4 and the camera stand on an aircraft.
"""

import argparse
import sys
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from companion.core.bus import ZmqBus
from companion.core.clock import monotonic_s
from companion.core.config import ConfigError
from companion.core.messages import SIMULATOR
from companion.runtime.process import HealthMonitor, StopFlag
from sitl.autopilot.udp import GROUND_PORTS, ONBOARD_PORTS, UdpEndpoint, UdpLinks
from sitl.scenario import load_scenario
from sitl.world import STEP_S, World


def fcu_url(instance: int = 0) -> str:
    """Where the companion listens for the autopilot of this instance (PX4 counts its ports the same way)."""
    return f"udpin:127.0.0.1:{ONBOARD_PORTS[1] + instance}"


TRUTH_PERIOD_S = 0.02
IMAGES_MAX = 4  # on their way; a machine that cannot draw in time misses exposures and not everything after them
# Further behind than this the world's clock stands still instead of racing to catch up; well below the age at which
# the stack stops trusting an attitude, so that a busy machine slows the world and does not blind the stack.
MAX_LAG_S = 0.05


def main() -> int:
    """Entry of the simulator process; exit status 2 with one line when it cannot start."""
    parser = argparse.ArgumentParser(prog="sitl.realtime")
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bus", type=Path, required=True)
    parser.add_argument("--instance", type=int, default=0, help="added to all UDP ports but the ground station's")
    given = parser.parse_args()
    try:
        loaded = load_scenario(given.scenario)
        world = World(loaded, given.seed)
        onboard = UdpEndpoint(ONBOARD_PORTS[0] + given.instance, ONBOARD_PORTS[1] + given.instance)
        links = UdpLinks([onboard, UdpEndpoint(GROUND_PORTS[0] + given.instance, GROUND_PORTS[1])])
    except ConfigError as error:
        print(f"simulator: {error}", file=sys.stderr)
        return 2
    run(world, links, ZmqBus(given.bus, SIMULATOR, ()), StopFlag())
    return 0


def run(world: World, links: UdpLinks, bus: ZmqBus, stop: StopFlag) -> None:
    """Move the world with the clock until ``stop``."""
    with ThreadPoolExecutor(max_workers=1) as darkroom:
        _move(world, links, bus, stop, darkroom)


def _move(world: World, links: UdpLinks, bus: ZmqBus, stop: StopFlag, darkroom: ThreadPoolExecutor) -> None:
    health = HealthMonitor(SIMULATOR, 1.0 / STEP_S)
    zero_s = monotonic_s()  # companion time of the world's time 0
    config = world.camera.config
    next_exposure_s, next_truth_s = 0.0, 0.0
    # Images between exposure and arrival, with the zero_s of their exposure. Another thread draws them: the world goes
    # on, and with it an autopilot that waits for its every step.
    on_the_way: deque[tuple[float, float, Future]] = deque()
    while not stop:
        lag_s = monotonic_s() - zero_s - world.now_s
        if lag_s < STEP_S:
            time.sleep(STEP_S - lag_s if lag_s > 0 else STEP_S)
            continue
        if lag_s > MAX_LAG_S:
            zero_s += lag_s - STEP_S
        started_s = time.perf_counter()
        for data in links.receive():
            world.autopilot.receive(data, world.now_s)
        world.advance()
        if data := world.autopilot.take_output():
            links.send(data)
        if world.now_s >= next_exposure_s:
            next_exposure_s += 1.0 / config.rate_hz
            if len(on_the_way) < IMAGES_MAX:
                image = darkroom.submit(world.exposure())
                on_the_way.append((world.now_s + config.latency_s, zero_s, image))
        while on_the_way and on_the_way[0][0] <= world.now_s and on_the_way[0][2].done():
            _, zero_then_s, drawn = on_the_way.popleft()
            image = drawn.result()
            image.stamp_s += zero_then_s
            bus.publish(image)
        if world.now_s >= next_truth_s:
            next_truth_s += TRUTH_PERIOD_S
            truth = world.truth()
            truth.stamp_s += zero_s
            bus.publish(truth)
        health.note_step(time.perf_counter() - started_s, lag_s > 2 * STEP_S)
        now_s = monotonic_s()
        if health.due(now_s):
            bus.publish(health.message(now_s, bus))


if __name__ == "__main__":
    sys.exit(main())

"""Speed of lockstep in the inspection hover: seconds of flight per second of real time.

The second figure is seconds of flight per second of processor time of all threads: it does not depend on other load of
the machine. With images a second thread draws, so that on two idle cores the first figure is larger. The last two
figures are the processor time of one exposure 3 m in front of the pier.
"""

import statistics
import time
from pathlib import Path

import cv2

from sitl.scenario import CameraMode, load_scenario
from sitl.simulate import simulate
from sitl.world import World
from tests.benchmark.figures import Figure
from tests.benchmark.timing import one_core

SCENARIO = Path(__file__).parents[2] / "config/scenarios/bridge_hover.toml"
LIMITS: dict[CameraMode, float] = {"images": 6.0, "corners": 20.0}
HOVER_W = (9.0, 0.0, 4.0)
EXPOSURES = 200


def figures() -> list[Figure]:
    """Seed 1, once each; the flight must succeed."""
    out = []
    for camera, limit in LIMITS.items():
        begun = time.process_time()
        result = simulate(SCENARIO, 1, camera=camera)
        if not result["completed"]:
            raise RuntimeError(f"bridge_hover with {camera} was not completed")
        computing_s = time.process_time() - begun
        factor, cost = result["realtime_factor"], result["duration_s"] / computing_s
        out.append(
            Figure(f"lockstep, bridge_hover with {camera}", factor, "s/s", "real time", 1.0, limit, at_least=True)
        )
        out.append(Figure(f"the same with {camera}, per second of processor time", cost, "s/s", "real time", 1.0))
    period_ms = 1e3 / load_scenario(SCENARIO).scenario.camera.rate_hz
    drawn, corners = exposure_ms("images"), exposure_ms("corners")
    out.append(Figure("one image drawn", drawn, "ms", "period of the camera", period_ms))
    out.append(Figure("corners of one image, not drawn", corners, "ms", "the image drawn", drawn))
    return out


def exposure_ms(camera: CameraMode) -> float:
    """Processor time of one exposure in the hover, median."""
    cv2.setNumThreads(1)
    world = World(load_scenario(SCENARIO, camera_mode=camera), 1)
    world.plant.p_W[:] = HOVER_W
    times_ms = []
    with one_core():
        for _ in range(EXPOSURES):
            begun = time.thread_time()
            world.exposure()()
            times_ms.append((time.thread_time() - begun) * 1e3)
            world.steps += 8
    return statistics.median(times_ms)

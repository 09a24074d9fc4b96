"""Speed of lockstep in the inspection hover: seconds of flight per second of real time.

The second figure is seconds of flight per second of processor time of all threads: it does not depend on other load of
the machine. With images a second thread draws, so that on two idle cores the first figure is larger.
"""

import time
from pathlib import Path

from sitl.simulate import simulate
from tests.benchmark.figures import Figure

SCENARIO = Path(__file__).parents[2] / "config/scenarios/bridge_hover.toml"
LIMITS = {"images": 6.0, "corners": 20.0}


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
    return out

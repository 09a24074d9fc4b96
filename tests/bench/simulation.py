"""How fast lockstep flies the inspection hover: seconds of flight in a second of wall clock."""

from pathlib import Path

from sitl.simulate import simulate
from tests.bench.figures import Figure

SCENARIO = Path(__file__).parents[2] / "config/scenarios/bridge_hover.toml"
LIMITS = {"images": 6.0, "corners": 20.0}


def figures() -> list[Figure]:
    """Seed 1, once each; the flight must succeed."""
    out = []
    for camera, limit in LIMITS.items():
        result = simulate(SCENARIO, 1, camera=camera)
        if not result["completed"]:
            raise RuntimeError(f"bridge_hover with {camera} did not end well")
        factor = result["realtime_factor"]
        out.append(
            Figure(f"lockstep, bridge_hover with {camera}", factor, "s/s", "real time", 1.0, limit, at_least=True)
        )
    return out

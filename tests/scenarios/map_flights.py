"""Flights with several bundles: two in view against one, and a transit between two piers.

``python -m tests.scenarios.map_flights [--seeds N] [--sensors kind|unkind]`` prints the results.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from companion.core.enums import Phase
from companion.core.messages import MissionStatus, SentSetpoint
from companion.recording.series import of
from sitl.scenario import LoadedScenario, SensorKind, load_scenario
from sitl.simulate import fly_loaded
from sitl.unkind import with_sensors

SCENARIOS = Path(__file__).parents[2] / "config/scenarios"
FIRST_SEED = 101
ASIDE_M = 0.75  # of each of two bundles from the middle of the image, in the hold


def two_in_view(both: bool, sensors: SensorKind, seed: int) -> LoadedScenario:
    """The hold of bridge_hover with a second bundle beside the first, or without it; the first is aside in both."""
    hover = load_scenario(SCENARIOS / "bridge_hover.toml", camera_mode="corners")
    piers = load_scenario(SCENARIOS / "two_piers.toml", camera_mode="corners")
    placed = hover.scenario.scene.bundles[0]
    x, y, z = placed.p_W
    bundles = [msgspec.structs.replace(placed, p_W=(x, y - ASIDE_M, z))]
    if both:
        bundles.append(msgspec.structs.replace(placed, name="second_pier", p_W=(x, y + ASIDE_M, z)))
    scene = msgspec.structs.replace(hover.scenario.scene, bundles=bundles)
    standoff = msgspec.structs.replace(hover.plan.standoff, offset_M=(-ASIDE_M, 0.0, 3.0))  # x_M is south
    plan = msgspec.structs.replace(hover.plan, standoff=standoff)
    scenario = msgspec.structs.replace(hover.scenario, scene=scene)
    return with_sensors(msgspec.structs.replace(hover, scenario=scenario, plan=plan, site=piers.site), sensors, seed)


class Transit(NamedTuple):
    """A flight from one pier to the next and back."""

    completed: bool
    reason: str
    position_rms_m: float
    estimate_rms_m: float
    largest_step_deg: float  # of roll or pitch from one setpoint to the next, between the piers
    usual_step_deg: float  # 99 of 100 steps of the flight are smaller


def transit(sensors: SensorKind, seed: int, loaded: LoadedScenario | None = None) -> Transit:
    loaded = loaded or load_scenario(SCENARIOS / "two_piers.toml", camera_mode="corners")
    flight = fly_loaded(with_sensors(loaded, sensors, seed), seed)
    messages, result = flight.lockstep.messages, flight.result
    phases = of(messages, MissionStatus)
    times = [m.stamp_s for m in phases if m.phase == Phase.TRAJECTORY]
    sent = [m for m in of(messages, SentSetpoint) if times and times[0] + 1.0 < m.stamp_s < times[-1]]
    steps = np.degrees(np.abs(np.diff([(m.roll_rad, m.pitch_rad) for m in sent], axis=0))).max(axis=1)
    return Transit(
        bool(result["completed"]),
        str(result["final_reason"]),
        float(result["position_rms_m"] or np.nan),
        float(result["estimate_rms_m"] or np.nan),
        float(steps.max()),
        float(np.percentile(steps, 99)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.scenarios.map_flights", description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--sensors", type=SensorKind, default=SensorKind.UNKIND)
    options = parser.parse_args()
    for seed in range(FIRST_SEED, FIRST_SEED + options.seeds):
        errors = []
        for both in (False, True):
            result = fly_loaded(two_in_view(both, options.sensors, seed), seed).result
            errors.append(float(result["estimate_rms_m"] or np.nan))
            held_cm = 100 * float(result["position_rms_m"] or np.nan)
            print(
                f"seed {seed}, {1 + both} bundles: estimate {100 * errors[-1]:.2f} cm, hold {held_cm:.2f} cm",
                flush=True,
            )
        print(f"seed {seed}: two against one {errors[1] / errors[0]:.2f}", flush=True)
    for seed in range(FIRST_SEED, FIRST_SEED + options.seeds):
        print(f"seed {seed}, transit: {transit(options.sensors, seed)}", flush=True)


if __name__ == "__main__":
    main()

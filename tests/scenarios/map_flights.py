"""Flights with several bundles: two in view against one, and a transit between two piers.

``python -m tests.scenarios.map_flights [--seeds N] [--sensors kind|unkind]`` prints the results.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from companion.core.enums import Phase
from companion.core.messages import Markers, MissionStatus, SentSetpoint, Truth
from companion.recording.series import of
from sitl.lockstep import Lockstep
from sitl.scenario import Fault, FaultKind, LoadedScenario, SensorKind, load_scenario
from sitl.simulate import fly_loaded
from sitl.unkind import with_sensors

SCENARIOS = Path(__file__).parents[2] / "config/scenarios"
FIRST_SEED = 101
AFTER_SIGHT_S = 1.0
LONGEST_S = 20.0  # after an attack
ASIDE_M = 0.75  # of each of two bundles from the middle of the image, in the hold


def two_in_view(both: bool, sensors: SensorKind, seed: int) -> LoadedScenario:
    """The hold of bridge_hover with a second bundle beside the first, or without it; the first is aside in both."""
    hover = load_scenario(SCENARIOS / "bridge_hover.toml", camera_mode="corners")
    piers = load_scenario(SCENARIOS / "transit.toml", camera_mode="corners")
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
    largest_step_deg: (
        float  # of roll or pitch from one setpoint to the next, in the second after a bundle comes into sight
    )
    usual_step_deg: float  # 99 of 100 steps of the transit are smaller
    other_step_deg: float  # the largest at other times


def transit(sensors: SensorKind, seed: int, loaded: LoadedScenario | None = None) -> Transit:
    loaded = loaded or load_scenario(SCENARIOS / "transit.toml", camera_mode="corners")
    flight = fly_loaded(with_sensors(loaded, sensors, seed), seed)
    messages, result = flight.lockstep.messages, flight.result
    phases = of(messages, MissionStatus)
    times = [m.stamp_s for m in phases if m.phase == Phase.TRAJECTORY]
    sent = [m for m in of(messages, SentSetpoint) if times and times[0] + 1.0 < m.stamp_s < times[-1]]
    steps = np.degrees(np.abs(np.diff([(m.roll_rad, m.pitch_rad) for m in sent], axis=0))).max(axis=1)
    stamps = np.array([m.stamp_s for m in sent[1:]])
    begins = [at for name in ("pier", "second_pier") for at in _sights(of(messages, Markers), name)]
    at_sight = np.any([(stamps > at) & (stamps < at + AFTER_SIGHT_S) for at in begins], axis=0)
    return Transit(
        bool(result["completed"]),
        str(result["final_reason"]),
        float(result["position_rms_m"] or np.nan),
        float(result["estimate_rms_m"] or np.nan),
        float(steps[at_sight].max()),
        float(np.percentile(steps, 99)),
        float(steps[~at_sight].max()),
    )


def _sights(images: list[Markers], name: str) -> list[float]:
    """When a bundle comes into sight after more than a second."""
    seen = [m.stamp_s for m in images if any(o.bundle == name for o in m.observations)]
    return [at for before, at in zip([-np.inf, *seen], seen, strict=False) if at - before > 1.0]


class Guided(NamedTuple):
    """The end of a hold in which the mission's bundle went out of sight and the other one did what an attack says."""

    given_up_s: float  # after the attack; inf: not at all
    cause: str
    excursion_m: float  # horizontal
    nearest_m: float  # to the face


def guided_by_the_other(velocity_m_s: tuple[float, float, float], seed: int = FIRST_SEED) -> Guided:
    """Hold in front of two bundles; the mission's goes out of sight, 3 s later the other moves with a velocity."""
    lockstep = Lockstep(two_in_view(True, SensorKind.KIND, seed), seed)
    lockstep.start()
    assert lockstep.run_until(lambda: lockstep.pilot is not None and lockstep.pilot.phase == Phase.HOLD)
    _run_for(lockstep, 8.0)

    def without_the_missions(message: Markers) -> Markers:
        others = [o for o in message.observations if o.bundle != "pier"]
        return msgspec.structs.replace(message, observations=others)

    lockstep.faults.change(Markers, without_the_missions)
    _run_for(lockstep, 3.0)
    begin_s, held = lockstep.now_s, np.array(of(lockstep.messages, Truth)[-1].p_W)
    if any(velocity_m_s):
        moves = Fault(
            at_s=begin_s, kind=FaultKind.BUNDLE_MOVES, duration_s=600.0, value=list(velocity_m_s), name="second_pier"
        )
        lockstep.faults.add(moves)
    lockstep.run_until(lambda: lockstep.pilot.phase != Phase.HOLD or lockstep.now_s > begin_s + LONGEST_S)
    given_up_s = lockstep.now_s - begin_s if lockstep.pilot.phase != Phase.HOLD else np.inf
    cause = lockstep.pilot.cause
    _run_for(lockstep, 10.0)
    flown = [np.array(m.p_W) - held for m in of(lockstep.messages, Truth) if m.stamp_s > begin_s]
    faces = of(lockstep.messages, Truth)[-1].bundles["pier"][0][0]
    return Guided(
        given_up_s,
        cause,
        max(float(np.hypot(*d[:2])) for d in flown),
        min(faces - float((held + d)[0]) for d in flown),
    )


def _run_for(lockstep: Lockstep, seconds: float) -> None:
    until_s = lockstep.now_s + seconds
    lockstep.run_until(lambda: lockstep.now_s >= until_s)


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
    for velocity_m_s in ((0.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.7, 0.0, 0.0)):
        print(
            f"guided by the other, which moves with {velocity_m_s} m/s: {guided_by_the_other(velocity_m_s)}", flush=True
        )
    for seed in range(FIRST_SEED, FIRST_SEED + options.seeds):
        print(f"seed {seed}, transit: {transit(options.sensors, seed)}", flush=True)


if __name__ == "__main__":
    main()

"""Entering offboard in wind: how far the first setpoint is from PX4's attitude, and how far the aircraft then moves.

``python -m tests.scenarios.entering_offboard [--wind M_S …] [--gusts] [--seeds N] [--sensors kind|unkind]`` prints a line for each
wind. The flight is the take-off of `bridge_hover`, with a steady wind from the side.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from companion.core.enums import FcuMode
from companion.core.frames import rpy_from_quat
from companion.core.messages import FcuAttitude, SentSetpoint, Truth
from companion.recording.series import of
from sitl.lockstep import Lockstep
from sitl.scenario import LoadedScenario, SensorKind, load_scenario
from sitl.unkind import with_sensors
from tests.scenarios.forked import in_fork

SCENARIO = Path(__file__).parents[2] / "config/scenarios/bridge_hover.toml"
FIRST_SEED = 201  # no parameter was tuned with it or with those after it
WATCHED_S = 2.0


class Entry(NamedTuple):
    """The two seconds after PX4 entered offboard."""

    tilt_step_deg: float  # between the first setpoint that acts and the attitude that PX4 reports
    speed_m_s: float  # of the aircraft, as it entered
    moved_m: float  # at most, from the place where it entered


def in_wind(wind_m_s: float, gusts: bool, sensors: SensorKind, seed: int) -> LoadedScenario:
    """`bridge_hover` in a wind from the side, without gusts or with those of the scenario."""
    loaded = load_scenario(SCENARIO, camera_mode="corners")
    wind = msgspec.structs.replace(loaded.scenario.wind, mean_m_s=(0.0, wind_m_s, 0.0))
    if not gusts:
        wind = msgspec.structs.replace(wind, gust_std_m_s=(0.0, 0.0, 0.0))
    return with_sensors(
        msgspec.structs.replace(loaded, scenario=msgspec.structs.replace(loaded.scenario, wind=wind)), sensors, seed
    )


def enter(loaded: LoadedScenario, seed: int) -> Entry:
    """Take off, and watch the entry. Raises AssertionError when PX4 does not enter offboard."""
    lockstep = Lockstep(loaded, seed)
    lockstep.start()
    assert lockstep.run_until(lambda: lockstep.world.autopilot.mode == FcuMode.OFFBOARD), "PX4 did not enter offboard"
    sent = of(lockstep.messages, SentSetpoint)[-1]
    roll, pitch, _ = rpy_from_quat(of(lockstep.messages, FcuAttitude)[-1].q_WB)
    entered = of(lockstep.messages, Truth)[-1]
    until_s = lockstep.now_s + WATCHED_S
    lockstep.run_until(lambda: lockstep.now_s >= until_s)
    way = [np.array(m.p_W) - entered.p_W for m in of(lockstep.messages, Truth) if m.stamp_s >= entered.stamp_s]
    return Entry(
        float(np.degrees(np.hypot(sent.roll_rad - roll, sent.pitch_rad - pitch))),
        float(np.linalg.norm(entered.v_W)),
        float(np.linalg.norm(way, axis=1).max()),
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.scenarios.entering_offboard", description=__doc__)
    parser.add_argument("--wind", type=float, nargs="+", default=[0.0, 4.0, 8.0], metavar="M_S")
    parser.add_argument("--gusts", action="store_true", help="with the gusts of bridge_hover")
    parser.add_argument("--sensors", type=SensorKind, choices=list(SensorKind), default=SensorKind.KIND)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    print("| wind, m/s | tilt step, ° | enters with, m/s | moves within 2 s, cm |\n|---|---|---|---|")
    for wind_m_s in given.wind:
        found = []
        for seed in range(FIRST_SEED, FIRST_SEED + given.seeds):
            loaded = in_wind(wind_m_s, given.gusts, given.sensors, seed)
            found.append(in_fork(lambda loaded=loaded, seed=seed: enter(loaded, seed)))
        columns = [
            ", ".join(f"{e.tilt_step_deg:.1f}" for e in found),
            ", ".join(f"{e.speed_m_s:.2f}" for e in found),
            ", ".join(f"{100 * e.moved_m:.1f}" for e in found),
        ]
        print(f"| {wind_m_s:g} | {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main()

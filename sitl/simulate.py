"""One scenario in lockstep, and its result as plain data; the body of ``companion sim``."""

import sys
from pathlib import Path

import cv2

from companion.recording.metrics import metrics_from_messages
from sitl.lockstep import Lockstep
from sitl.scenario import load_scenario


def simulate(
    scenario: Path,
    seed: int,
    stack: str = "full",
    vehicle: Path | None = None,
    camera: str | None = None,
    log_file: Path | None = None,
    progress: bool = False,
) -> dict:
    """Fly and measure; returns the result as JSON-ready data. Raises `ConfigError` when the start is refused.

    Errors are against the simulator's truth over the autonomous hold, in the frame of the mission's bundle.
    """
    return fly(scenario, seed, stack, vehicle, camera, log_file, progress)[0]


def fly(
    scenario: Path,
    seed: int,
    stack: str = "full",
    vehicle: Path | None = None,
    camera: str | None = None,
    log_file: Path | None = None,
    progress: bool = False,
) -> tuple[dict, Lockstep]:
    """`simulate`, and the finished run itself for whoever wants its messages."""
    cv2.setNumThreads(1)
    loaded = load_scenario(scenario, vehicle, camera)
    writer = None
    if log_file is not None:
        from companion.recording.recorder import open_recorder

        writer = open_recorder(log_file, loaded.vehicle_path, loaded.mission_path)
    lockstep = Lockstep(loaded, seed, record=writer.handle if writer else None, stack=stack)
    lockstep.run(_show if progress else None)
    if writer is not None:
        writer.close()
    pilot = lockstep.pilot
    metrics = metrics_from_messages(lockstep.messages, bundle=loaded.plan.bundle)
    result = {
        "scenario": loaded.scenario.name,
        "stack": stack,
        "seed": seed,
        "duration_s": round(lockstep.now_s, 3),
        "completed": bool(pilot and pilot.success),
        **metrics,
        "realtime_factor": round(lockstep.now_s / lockstep.wall_s, 2),
    }
    return result, lockstep


def _show(lockstep: Lockstep) -> None:
    pilot = lockstep.pilot
    sys.stderr.write(f"\r{lockstep.now_s:6.0f} s  {pilot.phase if pilot else '':<15}")
    sys.stderr.flush()

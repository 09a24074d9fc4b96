"""``python -m tests.scenarios.named_errors [NAME …] [--seeds N] [--camera MODE]``: the hold of `bridge_hover` with one error at a time.

Everything but the named error is kind. Each line has the hold's error, mean and worst of the seeds, and the goal.
"""

import argparse
import sys
from pathlib import Path
from typing import NamedTuple, get_args

from sitl.compare import compare
from sitl.scenario import CameraMode, SensorKind

HERE = Path(__file__).parent
FIRST_SEED = 101  # no parameter was tuned with it or with those after it


class Goal(NamedTuple):
    """The largest mean over the seeds of one figure [m]; for a largest error the worst seed counts."""

    figure: str
    limit_m: float


GOALS = {
    "thrust": Goal("position_rms_m", 0.03),
    "mount": Goal("position_rms_m", 0.04),
    "corners": Goal("position_rms_m", 0.04),
    "overshoot": Goal("position_rms_m", 0.05),
    "jump": Goal("position_max_m", 0.15),
    "hidden": Goal("position_max_m", 0.40),
    "autopilot": Goal("position_rms_m", 0.04),
    "vibration": Goal("position_rms_m", 0.04),
}


def main() -> int:
    """Exit status 0 when every goal is reached."""
    parser = argparse.ArgumentParser(prog="tests.scenarios.named_errors", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(GOALS)}; default: all")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--camera", choices=get_args(CameraMode), help="default: as in the scenario")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    if unknown := set(given.names) - GOALS.keys():
        parser.error(f"no such error: {', '.join(sorted(unknown))} (there are: {', '.join(GOALS)})")
    print(
        "| error | figure | mean, cm | worst, cm | goal, cm | flown to their end |\n|---|---|---|---|---|---|",
        flush=True,
    )
    missed = 0
    for name in given.names or GOALS:
        goal = GOALS[name]
        seeds = range(FIRST_SEED, FIRST_SEED + given.seeds)
        found = compare(HERE / f"{name}.toml", seeds, ["full"], None, given.camera, given.jobs, sensors=SensorKind.KIND)
        values = [run[goal.figure] for run in found["runs"] if run[goal.figure] is not None]
        completed = found["summary"]["full"]["completed"]
        mean, worst = (sum(values) / len(values), max(values)) if values else (float("inf"), float("inf"))
        reached = worst if goal.figure == "position_max_m" else mean
        missed += reached > goal.limit_m or completed < given.seeds
        row = [
            name,
            goal.figure,
            f"{100 * mean:.1f}",
            f"{100 * worst:.1f}",
            f"{100 * goal.limit_m:.0f}",
            f"{completed}/{given.seeds}",
        ]
        print(f"| {' | '.join(row)} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

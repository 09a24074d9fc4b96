"""Processor time of lockstep in two work trees, flown side by side, and whether their flights are bit-equal.

    python -m tests.benchmark.compare_trees OTHER_TREE [--camera images] [--sensors kind] [--seed 101] [--until_s 30]

Each tree flies in a process of its own; the two take turns of some seconds of flight, so that other load of the machine meets
both. Compared are all messages with every number, except for the measured computing times. The last line has the ratio.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TURN_S = 4.0  # of flight
TREE = Path(__file__).parents[2]
MEASURED = re.compile(r"solve_time_s=[^,)]*")  # the only real time in a message of a flight in lockstep


def fly() -> None:
    """The flight of one tree: every line of the input is a time until which it goes on."""
    import cv2

    from sitl.lockstep import Lockstep
    from sitl.scenario import load_scenario
    from sitl.unkind import with_sensors

    options = arguments()
    cv2.setNumThreads(1)
    scenario = Path("config/scenarios") / f"{options.scenario}.toml"
    loaded = with_sensors(load_scenario(scenario, None, options.camera), options.sensors, options.seed)
    messages: list[Any] = []
    lockstep = Lockstep(loaded, options.seed, record=lambda message, now_s: messages.append((now_s, message)))
    lockstep.start()
    digests: dict[str, Any] = {}
    print(flush=True)
    for line in sys.stdin:
        end_s, begun_s = float(line), time.process_time()
        lockstep.run_until(lambda end_s=end_s: lockstep.now_s >= end_s)
        computing_s = time.process_time() - begun_s
        for at_s, message in messages:
            digest = digests.setdefault(type(message).__name__, hashlib.sha256())
            digest.update(MEASURED.sub("", repr((at_s, message))).encode())
        messages.clear()
        found = {name: digest.hexdigest() for name, digest in digests.items()}
        print(json.dumps([computing_s, lockstep.now_s, found]), flush=True)
    os._exit(0)  # a thread that draws may still wait


def start(tree: Path) -> "subprocess.Popen[str]":
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).resolve()), "--flies", *sys.argv[1:]]
    process = subprocess.Popen(
        command, cwd=tree, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def turn(process: "subprocess.Popen[str]", end_s: float) -> tuple[float, float, dict[str, str]]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{end_s}\n")
    process.stdin.flush()
    computing_s, now_s, digests = json.loads(process.stdout.readline())
    return computing_s, now_s, digests


def compare() -> None:
    options = arguments()
    processes = [start(tree.resolve()) for tree in (options.tree, TREE)]
    total_s, now_s, different = [0.0, 0.0], 0.0, [""]
    while now_s < options.until_s:
        end_s = now_s + TURN_S
        turns = [turn(process, end_s) for process in processes]
        before_s, now_s = now_s, turns[0][1]
        total_s = [total + each[0] for total, each in zip(total_s, turns, strict=True)]
        names = turns[0][2].keys() | turns[1][2].keys()
        different = sorted(name for name in names if turns[0][2].get(name) != turns[1][2].get(name))
        print(f"{now_s:6.1f} s {turns[0][0]:6.2f} s {turns[1][0]:6.2f} s  {' '.join(different)}", flush=True)
        if now_s <= before_s or now_s < end_s - 1e-9:
            break
    equal = "bit-equal" if not different else f"different in {', '.join(different)}"
    print(
        f"{now_s:.1f} s: processor time {total_s[0]:.2f} s, here {total_s[1]:.2f} s: {total_s[0] / total_s[1]:.2f}x, {equal}"
    )
    for process in processes:
        process.communicate("")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path, help="the other work tree")
    parser.add_argument("--scenario", default="bridge_hover")
    parser.add_argument("--camera", choices=("images", "corners"), default="corners")
    parser.add_argument("--sensors", choices=("kind", "unkind"), default="kind")
    parser.add_argument("--seed", type=int, default=101)
    parser.add_argument("--until_s", type=float, default=1e3, help="of flight")
    parser.add_argument("--flies", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    fly() if arguments().flies else compare()

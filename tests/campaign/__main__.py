"""``python -m tests.campaign``: efficiency of two processes, kill and resume, a cluster that loses a worker; a table.

The flights last `--seconds` of simulated time, so that the whole takes minutes. Efficiency needs an idle machine: the load
before each measurement stands beside it.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tests.campaign.demonstrations import Flown, killed_and_resumed, on_cluster_with_a_lost_worker, speed


def main() -> int:
    """Exit status 0 when no flight was lost or flown twice."""
    parser = argparse.ArgumentParser(prog="tests.campaign", description=__doc__)
    parser.add_argument("--flights", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=20.0, help="simulated, of each flight")
    parser.add_argument("--skip-speed", action="store_true", help="no measurement of the efficiency")
    given = parser.parse_args()
    n, duration_s = given.flights, given.seconds
    print("| what | figure |\n|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="companion-campaigns-") as name:
        folder = Path(name)
        if not given.skip_speed:
            loads, taken = [], []
            for jobs in (1, 2):
                loads.append(os.getloadavg()[0])
                taken.append(speed(folder, n, duration_s, jobs))
            (one_s, one_cpu_s), (two_s, two_cpu_s) = taken
            shown = f"{one_s:.1f} s with one process, {two_s:.1f} s with two: efficiency {one_s / (2 * two_s):.2f}"
            shown += f"; processor time of a flight {one_cpu_s:.2f} s and {two_cpu_s:.2f} s"
            load = " and ".join(f"{load:.1f}" for load in loads)
            print(f"| {n} flights of {duration_s:g} s | {shown} (load of the machine before: {load}) |", flush=True)
        killed = killed_and_resumed(folder, n, duration_s, 2, n // 3)
        print(f"| kill -9 of the campaign, `--resume` | {shown_of(killed)} |", flush=True)
        cluster = on_cluster_with_a_lost_worker(folder, n, duration_s, n // 3)
        print(f"| Dask cluster of two workers, kill -9 of one | {shown_of(cluster)} |", flush=True)
    passed = killed.complete and cluster.complete
    print(f"{'every' if passed else 'NOT every'} campaign has each of its {n} flights once")
    return 0 if passed else 1


def shown_of(flown: Flown) -> str:
    verdict = "no flight twice, none missing" if flown.complete else "FLIGHTS LOST OR FLOWN TWICE"
    return f"{len(flown.before)} flights before, {len(flown.after)} after, {len(flown.rows)} rows: {verdict}"


if __name__ == "__main__":
    sys.exit(main())

"""Time of a whole control cycle against the bare C solver: ``python tests/control/benchmark_control.py``."""

import statistics
import sys
import time
from pathlib import Path

from control_plant import Loop

from acados_gen.generate_control import generate
from companion.config import load
from companion.vehicle import Vehicle

CYCLES = 1000


def main() -> None:
    """Print median and 99th percentile [ms] while a move is flown."""
    default = Path(__file__).parents[2] / "config" / "vehicles" / "f550.toml"
    vehicle = load(sys.argv[1] if len(sys.argv) > 1 else default, Vehicle)
    generate(vehicle, print)
    loop = Loop(vehicle)
    loop.hold((0.0, 0.0, 2.0))
    loop.run(2)
    loop.move((0.0, 0.0, 2.0), (6.0, 4.0, 4.0), yaw_end=2.0, speed=0.8)
    cycles, solver = [], []
    step = loop.node.step

    def timed(now_s):
        started = time.perf_counter()
        messages = step(now_s)
        cycles.append(time.perf_counter() - started)
        solver.append(messages[-1].solve_time_s)
        return messages

    loop.node.step = timed
    loop.run(CYCLES / loop.node.rate_hz)
    for name, times in (("cycle", cycles), ("acados", solver)):
        times = sorted(times)
        median, p99 = statistics.median(times) * 1e3, times[int(0.99 * len(times))] * 1e3
        print(f"{name:8s} N = {vehicle.controller.nodes}: median {median:.3f} ms, p99 {p99:.3f} ms")


if __name__ == "__main__":
    main()

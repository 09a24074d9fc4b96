"""The controller: a whole cycle, compared with acados' own computing time and with the prior stack's solver."""

import statistics
import time
from pathlib import Path

import numpy as np

from acados_gen.generate_control import generate
from companion.control.solver import Nmpc
from companion.core.config import load
from companion.core.vehicle import Vehicle
from sitl.baselines.paper_nmpc import PaperNmpc
from sitl.baselines.paper_tables import paper_vehicle
from tests.benchmark.figures import Figure
from tests.benchmark.timing import one_core
from tests.control.control_plant import Loop

VEHICLE = Path(__file__).parents[2] / "config/vehicles/f550.toml"
FLIGHT_S, WARM_UP = 10.0, 25  # of a move in a gust; the first cycles are left out


class Recorder(Nmpc):
    """A solver that records its problems."""

    def __init__(self, vehicle: Vehicle) -> None:
        super().__init__(vehicle)
        self.problems: list[tuple] = []
        self.elapsed_s = 0.0

    def shift(self, elapsed_s: float) -> None:
        self.elapsed_s = elapsed_s
        super().shift(elapsed_s)

    def solve(self, x0, references, parameters):
        self.problems.append((self.elapsed_s, np.array(x0), references.copy(), parameters.copy()))
        return super().solve(x0, references, parameters)


def fly(loop: Loop) -> None:
    """A long move in a side wind that varies sinusoidally."""
    loop.hold((0.0, 0.0, 2.0))
    loop.run(1)
    loop.move((0.0, 0.0, 2.0), (6.0, 4.0, 4.0), yaw_end=2.0, speed=0.8)

    def blow(loop: Loop) -> None:
        loop.plant.disturbance_W[:] = (0.0, 1.5 * np.sin(loop.now_s), 0.0)

    loop.run(FLIGHT_S, blow)


def figures() -> list[Figure]:
    """Time of a cycle, compared cycle by cycle with acados' own time and with the time of the full SQP."""
    vehicle = load(VEHICLE, Vehicle)
    generate(vehicle)
    recorder = Recorder(vehicle)
    fly(Loop(vehicle, recorder))
    ours, prior = Nmpc(vehicle), PaperNmpc(paper_vehicle(vehicle.name))
    cycles, bare, full, rounds = [], [], [], []
    with one_core():
        for elapsed_s, *problem in recorder.problems:
            begun = time.perf_counter()
            ours.shift(elapsed_s)
            result = ours.solve(*problem)
            cycles.append(time.perf_counter() - begun)
            bare.append(result.solve_time_s)
            begun = time.perf_counter()
            reference = prior.solve(*problem)
            if reference.status == 0:  # its tilt bounds are hard, so that some problems have no solution
                full.append(time.perf_counter() - begun)
                rounds.append(reference.qp_iterations)
    if len(full) < len(cycles) / 2:
        raise RuntimeError(f"the prior stack's solver solved only {len(full)} of {len(cycles)} problems")
    cycle, solver, sqp = (statistics.median(times[WARM_UP:]) * 1e3 for times in (cycles, bare, full))
    node, node_solver = _node_times(vehicle)
    nodes = vehicle.controller.nodes
    return [
        Figure(f"NMPC cycle, N = {nodes}: references and parameters in, command out", cycle, "ms",
               "acados' own time of the same solutions", solver, 1.2, limits_ratio=True),
        Figure("the same cycle", cycle, "ms",
               f"the prior stack's full SQP in C, {statistics.median(rounds):.0f} iterations", sqp, 0.25,
               limits_ratio=True),
        Figure("controller node, a whole step: state and reference in, setpoint message out", node, "ms",
               "acados' own time of the same solutions", node_solver),
    ]  # fmt: skip


def _node_times(vehicle: Vehicle) -> tuple[float, float]:
    """Medians [ms] of `ControllerNode.step` and of the acados call in it."""
    loop = Loop(vehicle)
    step, times, solver = loop.node.step, [], []

    def timed(now_s):
        begun = time.perf_counter()
        messages = step(now_s)
        times.append(time.perf_counter() - begun)
        solver.append(messages[-1].solve_time_s)
        return messages

    loop.node.step = timed
    with one_core():
        fly(loop)
    return tuple(statistics.median(values[WARM_UP:]) * 1e3 for values in (times, solver))

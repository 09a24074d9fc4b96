"""The stacks that can be flown in lockstep, and which nodes an opponent puts in the place of ours."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from companion.core.clock import SimulatedStopwatch
from companion.core.config import ConfigError
from companion.core.node import Node
from companion.core.vehicle import Vehicle

if TYPE_CHECKING:
    from sitl.faults import FaultInjector

STACKS = {
    "full": "this stack",
    "paper": "the stack of Kalaitzakis & Vitzilaios (2023) as published",
    "px4": "the autopilot's own position control on its own GNSS estimate",
}


def baseline_nodes(
    stack: str, vehicle: Vehicle, bundle: str | None, faults: "FaultInjector"
) -> dict[str, Callable[[], Node]]:
    """Makers of the nodes, by the names of those they replace; raises `ConfigError` for an unknown stack."""
    if stack == "paper":
        from sitl.baselines.paper_controller import PaperControllerNode
        from sitl.baselines.paper_estimator import PaperEstimatorNode

        return {
            "estimator": lambda: PaperEstimatorNode(vehicle, bundle),
            "controller": lambda: PaperControllerNode(vehicle, solver_fails=lambda: faults.solver_fails),
        }
    if stack == "px4":
        from sitl.baselines.px4 import Px4ControllerNode, Px4EstimatorNode

        return {
            "estimator": lambda: Px4EstimatorNode(vehicle, bundle, SimulatedStopwatch()),
            "controller": lambda: Px4ControllerNode(vehicle),
        }
    raise ConfigError(f"no stack '{stack}' (allowed: {', '.join(STACKS)})")


def prepare(stack: str, vehicle: Vehicle) -> None:
    """Build what a stack needs beyond our own artefacts; raises `ConfigError` with one line."""
    if stack == "paper":
        from sitl.baselines.paper_nmpc import build
        from sitl.baselines.paper_tables import paper_vehicle

        paper_vehicle(vehicle.name)
        build()

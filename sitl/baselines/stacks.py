"""The stacks that can be flown in lockstep, and the nodes that each baseline puts in the place of this stack's."""

from collections.abc import Callable

from companion.core.clock import SimulatedStopwatch
from companion.core.config import ConfigError
from companion.core.enums import ProcessName
from companion.core.node import Node
from companion.core.vehicle import Vehicle
from sitl.scenario import LoadedScenario

STACKS = {
    "full": "this stack",
    "paper": "the stack of Kalaitzakis & Vitzilaios (2023) as its authors would tune it for the aircraft",
    "px4": "the autopilot's own position control on its own GNSS estimate",
}


def baseline_nodes(
    stack: str, files: LoadedScenario, solver_fails: Callable[[], bool]
) -> dict[ProcessName, Callable[[], Node]]:
    """Builders of the nodes that a stack replaces; none for "full". Raises `ConfigError` for an unknown stack.

    solver_fails: called at every solve; True makes it fail.
    """
    if stack not in STACKS:
        raise ConfigError(f"no stack '{stack}' (allowed: {', '.join(STACKS)})")
    vehicle = files.vehicle
    if stack == "paper":
        from sitl.baselines.paper_controller import PaperControllerNode
        from sitl.baselines.paper_estimator import PaperEstimatorNode
        from sitl.baselines.tuning import paper_tuning

        paper = paper_tuning(files)
        return {
            ProcessName.ESTIMATOR: lambda: PaperEstimatorNode(vehicle, paper, files.plan.bundle),
            ProcessName.CONTROLLER: lambda: PaperControllerNode(paper, solver_fails=solver_fails),
        }
    if stack == "px4":
        from companion.fcu.fcu_node import FcuNode
        from companion.mission.planned_flight import planned_flight
        from sitl.baselines.px4 import Px4ControllerNode, Px4EstimatorNode

        return {
            ProcessName.FCU: lambda: FcuNode(
                vehicle, SimulatedStopwatch(), own_attitudes=False, flight=planned_flight(files.plan)
            ),
            ProcessName.ESTIMATOR: lambda: Px4EstimatorNode(vehicle, files.plan.bundle, SimulatedStopwatch()),
            ProcessName.CONTROLLER: lambda: Px4ControllerNode(vehicle),
        }
    return {}


def prepare(stack: str, vehicle: Vehicle) -> None:
    """Build the artefacts that a stack needs in addition to this one's; raises `ConfigError` with one line."""
    if stack == "paper":
        from sitl.baselines.paper_nmpc import build
        from sitl.baselines.paper_tables import paper_vehicle

        paper_vehicle(vehicle.name)
        build()

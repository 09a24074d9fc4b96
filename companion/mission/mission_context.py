"""Shared by conditions, entry actions and phase work: inputs, requests, references and flight state."""

from collections.abc import Iterable

from companion.core.bundle_poses import bundle_pose
from companion.core.enums import CommandAction, ProcessName
from companion.core.messages import WORLD, Message
from companion.core.trajectory_messages import Trajectory
from companion.core.vehicle import Vehicle
from companion.mission.flight_state import FlightState
from companion.mission.inspection_progress import Inspecting
from companion.mission.inspection_route import Route
from companion.mission.mission_inputs import MissionInputs
from companion.mission.operator import OperatorRequests
from companion.mission.plan import Plan
from companion.mission.reference_stream import ReferenceStream
from companion.mission.requests import CommandRequests, Photographer
from companion.mission.safety_monitor import SafetyMonitor
from companion.mission.start_checks import problems, run_checks
from companion.mission.start_monitors import StartMonitors


class MissionContext:
    """The parts of one mission; `outbox` collects the messages of the present step.

    required_processes: processes that must publish `Health` before the start. route: of the plan's inspection.
    files: fingerprint of the files that this mission was started with; "" in a lockstep run.
    """

    def __init__(
        self,
        vehicle: Vehicle,
        plan: Plan,
        required_processes: Iterable[ProcessName],
        route: Route | None = None,
        files: str = "",
    ) -> None:
        self.vehicle = vehicle
        self.plan = plan
        self.required_processes = tuple(required_processes)
        self.files = files
        self.inputs = MissionInputs(plan, vehicle)
        self.safety = SafetyMonitor(vehicle, plan)
        self.start_monitors = StartMonitors(vehicle, plan)
        self.commands = CommandRequests()
        self.references = ReferenceStream()
        self.operator = OperatorRequests()
        self._route = route
        self.flight = FlightState(_photographer(plan), self._inspecting())
        self.outbox: list[Message] = []

    def begin_flight(self) -> None:
        """Reset safety, commands and flight state for a new flight; phase, reason and the previous cause are kept."""
        before = self.flight
        self.safety.reset()
        self.start_monitors.reset()
        self.commands.forget()
        self.flight = FlightState(
            _photographer(self.plan),
            self._inspecting(before.inspection),
            before.phase,
            before.reason,
            before.phase_since_s,
            cause_before=before.cause_before,
        )

    def request(self, action: CommandAction, now_s: float, height_m: float = 0.0) -> None:
        """Queue a command for the flight controller in `outbox`."""
        self.outbox.append(self.commands.ask(action, now_s, self.inputs.status, height_m))

    def report(self, text: str, severity: int, now_s: float) -> None:
        """Send a line to the ground station."""
        self.outbox.append(self.commands.text(text, severity, now_s))

    def refer(self, frame: str, trajectory: Trajectory, now_s: float, before_face: bool = True) -> None:
        """Stream a trajectory as the reference. before_face: it stays before the face of the bundle that it is relative to."""
        state = self.inputs.state
        pose = None if frame == WORLD or state is None else bundle_pose(state, frame)
        q_WM = None if pose is None else pose[1]
        self.references.start(frame, trajectory, now_s, q_WM=q_WM, before_face=before_face)

    def _inspecting(self, before: Inspecting | None = None) -> Inspecting | None:
        """Of a new flight; after a hand-over in the same flight it goes on with the photographs that are missing."""
        if self._route is None:
            return None
        return Inspecting(self._route) if before is None else before.again()

    def move_finished(self, now_s: float) -> bool:
        """The controller has flown the present reference to its end."""
        return self.references.finished(self.inputs.control(now_s))

    def start_problems(self, now_s: float) -> str:
        """The start checks that fail and the monitors that would act at once, in one line; "" when there is none."""
        checks = run_checks(
            self.inputs.latest,
            self.inputs.healths,
            self.vehicle,
            self.plan,
            self.inputs.home_W is not None,
            now_s,
            self.required_processes,
            self.files,
            self.inputs.errors_s,
        )
        found = problems(checks)
        if self.inputs.resets() > 0 and self.plan.satellites:  # else the handover takes the place again
            found = "; ".join(filter(None, ("estimator was reset since the take-off point was taken", found)))
        if self.plan.start != "auto" and not found and (doubt := self.inputs.position_doubt(now_s)):
            # A message alone is not enough: without a settled fix PX4 dead-reckons, and the independent guard has no value.
            found = f"position: {doubt}"
        failing = {check.name for check in checks if check.problem}
        return "; ".join(filter(None, (found, *self.start_monitors.problems(failing))))


def _photographer(plan: Plan) -> Photographer:
    wanted = plan.photographs
    return Photographer(wanted.at_s, wanted.max_error_m) if wanted is not None else Photographer([], 0.0)

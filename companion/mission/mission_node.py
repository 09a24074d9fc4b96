"""The mission node: runs the transition table; publishes references, commands and photograph requests."""

import math
from collections.abc import Iterable

import msgspec

from companion.core.enums import BEGINNING, CommandAction, Phase, ProcessName, TopicName
from companion.core.intake import Intake
from companion.core.messages import (
    Capture,
    ControlStatus,
    EstimatorStatus,
    FcuAttitude,
    FcuCommandAck,
    FcuPosition,
    FcuStatus,
    Health,
    HostStatus,
    Markers,
    Message,
    MissionStatus,
    OperatorRequest,
    PayloadStatus,
    Photo,
    SentSetpoint,
    State,
)
from companion.core.node import Node
from companion.core.site import Site
from companion.core.vehicle import Vehicle
from companion.mission import phases as ph
from companion.mission.entry_actions import ENTRY_ACTIONS
from companion.mission.inspecting import nearest_surface, note_inspection
from companion.mission.inspection_files import load_inspection
from companion.mission.inspection_progress import inspection_counts
from companion.mission.inspection_route import Place
from companion.mission.mission_context import MissionContext
from companion.mission.operator_checks import answer, consider
from companion.mission.phase_work import PHASE_WORK
from companion.mission.plan import Plan, check_bundle, check_vehicle
from companion.mission.requests import INFORMATION, WARNING
from companion.mission.safety_monitor import Demand, SafetyMonitor
from companion.mission.snapshot import SafetySnapshot
from companion.mission.transitions import TRANSITIONS
from companion.mission.way_home import way_home_s

STATUS_PERIOD_S = 0.099  # two steps of the node, less what a sum of floats may lack


class MissionNode(Node):
    """Flies one plan: safety monitors, then the transition table, then the work of the phase.

    vehicle, plan, site: as loaded; raises `ConfigError` if the plan's bundle is not in the site, or if the plan leads
    nearer to it than the vehicle's safety.standoff_min_m.
    required_processes: processes that must publish `Health` before the start, e.g. ("recorder",); tracker and camera
    only count in a plan that needs a camera. photographed: photographs of the inspection that former flights took.
    """

    name = "mission"
    inputs: tuple[TopicName, ...] = (
        "fcu_status",
        "fcu_position",
        "fcu_attitude",
        "fcu_command_ack",
        "state",
        "estimator",
        "control",
        "markers",
        "photo",
        "capture",
        "payload",
        "health",
        "host",
        "sent_setpoint",
        "operator_request",
    )
    rate_hz = 20.0
    batch_window_s = 1.0 / rate_hz

    def __init__(
        self,
        vehicle: Vehicle,
        plan: Plan,
        site: Site,
        required_processes: Iterable[ProcessName] = (),
        photographed: Iterable[Place] = (),
        files: str = "",
    ) -> None:
        super().__init__()
        check_bundle(plan, site)
        check_vehicle(plan, vehicle)
        inspection = load_inspection(plan, site, vehicle, plan.name, photographed)
        route = None if inspection is None else inspection.route()
        self._mission = MissionContext(vehicle, plan, required_processes, route, files)
        self._status_sent_s = -math.inf
        # What counts errors, each with its last one.
        safety, waiting = self._mission.safety, self._mission.start_monitors.evaluations
        self._counting: tuple[SafetyMonitor | Intake, ...] = (safety, *waiting, self.intake)
        self._errors_of = [0] * len(self._counting)
        self._last_error = ""

    @property
    def phase(self) -> Phase:
        return self._mission.flight.phase

    @property
    def reason(self) -> str:
        """Why the phase was entered; in WAIT_READY what the mission waits for."""
        return self._mission.flight.reason

    @property
    def waypoint(self) -> int:
        """Index of the waypoint of the search that is flown to or looked from."""
        return self._mission.flight.waypoint

    @property
    def errors(self) -> int:
        """Messages that were refused, and monitors that could not be evaluated."""
        return sum(part.errors for part in self._counting)

    @property
    def last_error(self) -> str:
        """The newest of them, whichever part it is of."""
        self._note_errors()
        return self._last_error

    def _note_errors(self) -> None:
        """Follow which part counted the newest error; called in every step."""
        for number, part in enumerate(self._counting):
            if part.errors != self._errors_of[number]:
                self._errors_of[number], self._last_error = part.errors, part.last_error

    @property
    def demand(self) -> Demand | None:
        """What the safety monitors demand."""
        return self._mission.safety.demand

    def snapshot(self, now_s: float) -> SafetySnapshot:
        """What the safety monitors evaluate at this moment."""
        flight = self._mission.flight
        taken = self._mission.inputs.snapshot(
            flight.phase, flight.paused_phase, now_s, flight.phase_time_s(now_s), flight.sinks, flight.came_from
        )
        taken.way_home_s = way_home_s(self._mission)
        taken.descending = flight.descended and flight.phase == Phase.RETURN
        return taken

    # --- messages ---------------------------------------------------------------------------------------------------

    def handle_fcu_status(self, message: FcuStatus, now_s: float) -> None:
        self._mission.inputs.take_status(message, now_s)

    def handle_fcu_position(self, message: FcuPosition, now_s: float) -> None:
        self._mission.inputs.take_position(message)

    def handle_fcu_attitude(self, message: FcuAttitude, now_s: float) -> None:
        self._mission.inputs.take(message)

    def handle_fcu_command_ack(self, message: FcuCommandAck, now_s: float) -> None:
        self._mission.commands.take(message)

    def handle_state(self, message: State, now_s: float) -> None:
        self._mission.inputs.take_state(message)

    def handle_estimator(self, message: EstimatorStatus, now_s: float) -> None:
        self._mission.inputs.take_estimator(message)

    def handle_control(self, message: ControlStatus, now_s: float) -> None:
        self._mission.inputs.take_control(message)

    def handle_markers(self, message: Markers, now_s: float) -> None:
        self._mission.inputs.take_markers(message)

    def handle_photo(self, message: Photo, now_s: float) -> None:
        self._mission.flight.photographer.take(message)

    def handle_capture(self, message: Capture, now_s: float) -> None:
        if self._mission.flight.inspection is not None:
            self._mission.flight.inspection.captures.take(message)

    def handle_payload(self, message: PayloadStatus, now_s: float) -> None:
        self._mission.inputs.take_payload(message)

    def handle_health(self, message: Health, now_s: float) -> None:
        self._mission.inputs.take_health(message)

    def handle_host(self, message: HostStatus, now_s: float) -> None:
        self._mission.inputs.take(message)

    def handle_sent_setpoint(self, message: SentSetpoint, now_s: float) -> None:
        self._mission.inputs.take(message)

    def handle_operator_request(self, message: OperatorRequest, now_s: float) -> None:
        self._mission.operator.take(message, now_s)

    # --- step -------------------------------------------------------------------------------------------------------

    def step(self, now_s: float) -> list[Message]:
        """Safety monitors, then at most one transition, then the work of the phase."""
        mission = self._mission
        mission.outbox = []
        if mission.flight.phase_since_s is None:
            mission.flight.phase_since_s = now_s
        if mission.flight.phase not in ph.UNDER_WAY:  # a pilot may land and take off elsewhere
            mission.inputs.note_ground(now_s)
        elif mission.flight.phase in ph.CONTROLLING:
            mission.inputs.note_flight(now_s)
            note_inspection(mission, now_s)
        mission.inputs.note_guard(now_s)
        mission.inputs.note_wind(now_s)
        mission.inputs.note_way(now_s)
        self._note_structure()
        mission.inputs.note_tilt(now_s)
        snapshot = self.snapshot(now_s)
        events = mission.safety.update(snapshot)
        if mission.flight.phase in ph.BEFORE_START:
            mission.start_monitors.update(snapshot)
        self._note_errors()
        if mission.safety.demand is None:
            mission.inputs.note_face(now_s)
        for event in events:
            mission.outbox.append(event)
            mission.report(event.text, mission.safety.severity[event.monitor] if event.active else INFORMATION, now_s)
        consider(mission, now_s)
        self._change_phase(now_s)
        answer(mission, now_s)
        work = PHASE_WORK.get(mission.flight.phase)
        if work is not None:
            work(mission, now_s)
        self._publish(now_s)
        mission.flight.last_step_s = now_s
        return mission.outbox

    def _note_structure(self) -> None:
        """In an inspection the distance to its surfaces counts, in place of that to the face of the mission's bundle."""
        mission, flight = self._mission, self._mission.flight
        inspects = Phase.INSPECT in (flight.phase, flight.paused_phase if flight.phase == Phase.PAUSE else None)
        near = inspects or flight.phase == Phase.RETREAT
        mission.inputs.structure = nearest_surface(mission) if near else None
        state, progress = mission.inputs.state, flight.inspection
        known = near and progress is not None and progress.begun and state is not None
        mission.inputs.sight = progress.sight(state) if known and progress is not None and state is not None else None

    def _change_phase(self, now_s: float) -> None:
        """Take the first transition whose condition holds."""
        mission = self._mission
        for row in TRANSITIONS:
            if mission.flight.phase not in row.sources:
                continue
            found = row.condition(mission, now_s)
            if found:
                self._enter(row.target, row.reason_text(found), row.cause_text(found), now_s)
                return

    def _enter(self, phase: Phase, reason: str, cause: str, now_s: float) -> None:
        mission, left = self._mission, self._mission.flight.phase
        mission.flight.change_phase(phase, reason, now_s, cause)
        self._status_sent_s = -math.inf
        if phase not in ph.UNDER_WAY:
            mission.references.stop()
            if any(mission.commands.is_open(action) for action in BEGINNING):
                mission.request(CommandAction.WITHDRAW, now_s)
        entry_action = ENTRY_ACTIONS.get(phase)
        if entry_action is not None:
            entry_action(mission, left, now_s)
        mission.report(f"{phase}: {reason}", WARNING if mission.flight.early_end else INFORMATION, now_s)

    def _publish(self, now_s: float) -> None:
        reference = self._mission.references.message(now_s)
        if reference is not None:
            self._mission.outbox.append(reference)
        if now_s - self._status_sent_s > STATUS_PERIOD_S:
            self._status_sent_s = now_s
            self._mission.outbox.append(self.status(now_s))

    def status(self, now_s: float) -> MissionStatus:
        """Where the mission stands."""
        mission, plan, flight = self._mission, self._mission.plan, self._mission.flight
        photographer = flight.photographer
        held = plan.hold is None or flight.hold_time_s >= plan.hold.duration_s
        flown = plan.trajectory is None or flight.trajectory_flown
        complete = held and flown and photographer.taken >= photographer.wanted
        progress = flight.inspection
        inspected = progress is None or not progress.shortfall
        ended_by_others = flight.phase in ph.OBSERVING and mission.inputs.on_ground()
        status = MissionStatus(
            stamp_s=now_s,
            phase=flight.phase,
            reason=flight.reason,
            phase_time_s=flight.phase_time_s(now_s),
            finished=flight.phase in ph.ENDED or ended_by_others,
            success=flight.phase == Phase.DONE and complete and inspected and not flight.early_end,
            photographs=photographer.taken + (progress.captures.taken if progress is not None else 0),
            cause=flight.cause,
        )
        return status if progress is None else msgspec.structs.replace(status, **inspection_counts(progress))

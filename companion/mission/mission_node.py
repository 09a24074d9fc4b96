"""The mission node: runs the transition table, asks for references, commands and photographs."""

import math

from companion.core.messages import WORLD, FcuCommandAck, Message, MissionStatus, Photo, Reference, Vec3
from companion.core.node import Node
from companion.core.site import Site
from companion.core.trajectory_messages import Hold
from companion.core.vehicle import Vehicle
from companion.mission import phases as ph
from companion.mission.conditions import ARM_RETRY_S, LAND_ATTEMPTS
from companion.mission.entry_actions import Entering
from companion.mission.mission_inputs import MissionInputs
from companion.mission.plan import Plan, check_bundle, check_standoff
from companion.mission.requests import Commands, Photographer
from companion.mission.safety_monitor import SafetyMonitor

STREAM_BEFORE_OFFBOARD_S = 1.5  # PX4 wants setpoints for 1 s before the switch
TOUCHDOWN_DISARM_S = 5.0  # PX4 disarms by itself 2 s after landing; afterwards it is asked to, once
REFRESH_M = 0.2  # PX4 may drift this far from the reference before the hand-over until the reference follows


class MissionNode(Entering, Node):
    """Flies one plan: a table of phases, a table of safety rows, and what to do on entering each phase.

    vehicle, plan, site: as loaded; raises `ConfigError` if the plan's bundle is not in the site, or if the plan leads
    nearer to it than the vehicle's safety.standoff_min_m.
    required_processes: processes that must publish `Health` before the start, e.g. ("recorder",).
    """

    name = "mission"
    inputs = (
        "fcu_status",
        "fcu_position",
        "fcu_attitude",
        "fcu_command_ack",
        "state",
        "estimator",
        "control",
        "markers",
        "photo",
        "health",
        "host",
        "sent_setpoint",
    )
    rate_hz = 20.0
    batch_window_s = 1.0 / rate_hz

    def __init__(self, vehicle: Vehicle, plan: Plan, site: Site, required_processes: tuple[str, ...] = ()) -> None:
        super().__init__()
        check_bundle(plan, site)
        check_standoff(plan, vehicle)
        self.plan = plan
        self.phase = ph.WAIT_READY
        self.reason = "started"
        self._vehicle = vehicle
        self._required_processes = required_processes
        self._inputs = MissionInputs(plan, vehicle.safety)
        self._safety = SafetyMonitor(vehicle, plan)
        self._commands = Commands()
        self._photographer = _photographer(plan)
        self._outbox: list[Message] = []
        self._phase_since_s: float | None = None
        self._status_sent_s = -math.inf
        self._reference: Reference | None = None
        self._reference_id = 0
        self._move_timeout_s = math.inf
        self._begin_anew()

    def _begin_anew(self) -> None:
        """State of one flight; a deliberate new start begins here."""
        self._safety.reset()
        self._commands.forget()
        self._photographer = _photographer(self.plan)
        self._trouble = ""  # why this is not a success, the first reason
        self._hold_time_s = 0.0
        self._trajectory_flown = False
        self._paused_phase = ""
        self._pauses = 0
        self._waypoint = 0
        self._way_back: list[tuple[Vec3, float]] | None = None
        self._reached = 0
        self._since: dict[str, float] = {}
        self._land_attempts = 0
        self._last_step_s: float | None = None
        self._edge_used_s: float | None = None

    # --- messages -----------------------------------------------------------------------------------------------

    def handle_fcu_status(self, message, now_s: float) -> None:
        self._inputs.take_status(message, now_s)

    def handle_state(self, message, now_s: float) -> None:
        self._inputs.take_state(message)

    def handle_control(self, message, now_s: float) -> None:
        self._inputs.take_control(message)

    def handle_fcu_command_ack(self, message: FcuCommandAck, now_s: float) -> None:
        self._commands.take(message)

    def handle_photo(self, message: Photo, now_s: float) -> None:
        self._photographer.take(message)

    def handle_health(self, message, now_s: float) -> None:
        self._inputs.healths[message.process] = message

    def handle_estimator(self, message, now_s: float) -> None:
        self._inputs.take_estimator(message)

    def _keep(self, message, now_s: float) -> None:
        self._inputs.take(message)

    handle_fcu_position = handle_fcu_attitude = handle_markers = handle_host = handle_sent_setpoint = _keep

    # --- step ---------------------------------------------------------------------------------------------------

    def step(self, now_s: float) -> list[Message]:
        """Safety rows, then at most one transition, then the work of the phase."""
        self._outbox = []
        if self._phase_since_s is None:
            self._phase_since_s = now_s
        if self.phase == ph.WAIT_READY:
            self._inputs.note_ground(now_s)
        events = self._safety.update(self._inputs.situation(self.phase, self._paused_phase, now_s))
        if self._safety.demand is None:
            self._inputs.note_face(now_s)
        for event in events:
            self._outbox.append(event)
            self._say(event.text, self._safety.severity[event.monitor] if event.active else 6, now_s)
        self._transit(now_s)
        work = getattr(self, f"_during_{self.phase.lower()}", None)
        if work is not None:
            work(now_s)
        self._publish(now_s)
        self._last_step_s = now_s
        return self._outbox

    def _transit(self, now_s: float) -> None:
        for row in ph.TRANSITIONS:
            if self.phase not in row.sources:
                continue
            found = getattr(self, f"is_{row.condition}")(now_s)
            if not found:
                continue
            reason = f"{row.reason}: {found}" if isinstance(found, str) else row.reason
            self._enter(row.target, reason, row.trouble, now_s)
            return

    def _enter(self, phase: str, reason: str, trouble: bool, now_s: float) -> None:
        left, self.phase, self.reason = self.phase, phase, reason
        self._phase_since_s = now_s
        self._since.clear()
        self._status_sent_s = -math.inf
        if phase not in ph.UNDER_WAY:
            self._reference = None  # streaming ends here
        if trouble and not self._trouble:
            self._trouble = reason
        entry = getattr(self, f"_enter_{phase.lower()}", None)
        if entry is not None:
            entry(left, now_s)
        self._say(f"{phase}: {reason}", 4 if self._trouble else 6, now_s)

    def _publish(self, now_s: float) -> None:
        if self._reference is not None:
            self._reference.stamp_s = now_s
            self._outbox.append(self._copy_of_reference())
        if now_s - self._status_sent_s > 0.099:
            self._status_sent_s = now_s
            self._outbox.append(self.status(now_s))

    def status(self, now_s: float) -> MissionStatus:
        """Where the mission stands."""
        photographs = self._photographer
        held = self.plan.hold is None or self._hold_time_s >= self.plan.hold.duration_s
        flown = self.plan.trajectory is None or self._trajectory_flown
        complete = held and flown and photographs.taken >= photographs.wanted
        ended_by_others = self.phase in ph.OBSERVING and self._inputs.on_ground()
        return MissionStatus(
            stamp_s=now_s,
            phase=self.phase,
            reason=self.reason,
            phase_time_s=self._phase_time_s(now_s),
            finished=self.phase in (ph.DONE, ph.FAILED) or ended_by_others,
            success=self.phase == ph.DONE and complete and not self._trouble,
            photographs=self._photographer.taken,
        )

    # --- during a phase -----------------------------------------------------------------------------------------

    def _during_wait_ready(self, now_s: float) -> None:
        failing = self._problems(now_s)
        ready = "ready" if self.plan.start == "auto" else "ready: fly, then turn the mission switch on"
        self.reason = f"waiting: {failing}" if failing else ready

    def _during_arm(self, now_s: float) -> None:
        refused_s = self._commands.since_s("arm", now_s)
        if self._arm_again(now_s) and refused_s >= ARM_RETRY_S and not self._problems(now_s):
            self._ask("arm", now_s)

    def _during_enter_offboard(self, now_s: float) -> None:
        if self._commands.asked("offboard"):
            return
        here = self._inputs.aircraft_point()
        if here is None or self._inputs.state_age_s(now_s) > self._vehicle.safety.state_age_s:
            self._reference = None
            self._since.pop("sending", None)
            return
        # PX4 still flies: the reference stays where the aircraft is, so that the hand-over is without a jump.
        if self._reference is None or math.dist(self._reference.trajectory.p, here[0]) > REFRESH_M:
            self._refer(WORLD, Hold(p=here[0], yaw_rad=here[1]), now_s)
        sending = not self._inputs.setpoints_lost(now_s) and self._inputs.control(now_s) is not None
        if self._lasts("sending", sending, STREAM_BEFORE_OFFBOARD_S, now_s):
            self._ask("offboard", now_s)

    def _during_search(self, now_s: float) -> None:
        seen = self._inputs.bundle_seen(now_s)
        if self._finished(now_s):
            self._reached = self._waypoint + 1
        if self._lasts("seen", seen, self.plan.search.confirm_s, now_s):
            self._since.setdefault("confirmed", now_s)
        else:
            self._since.pop("confirmed", None)
        if self._lasts("looking", self._finished(now_s), self.plan.search.timeout_s, now_s) and not seen:
            self._waypoint += 1
            self._since.clear()
            if self._waypoint < len(self.plan.search.waypoints):
                self._fly_to_waypoint(now_s)

    def _during_hold(self, now_s: float) -> None:
        if self._last_step_s is not None:
            self._hold_time_s += now_s - self._last_step_s
        control = self._inputs.control(now_s)
        error_m = math.inf if control is None or not self._inputs.bundle_seen(now_s) else control.position_error_m
        if request := self._photographer.step(self._hold_time_s, error_m, now_s):
            self._outbox.append(request)

    def _during_return(self, now_s: float) -> None:
        if self._finished(now_s) and self._way_back:
            self._way_back.pop(0)
            if self._way_back:
                self._fly_back(now_s)

    def _during_land(self, now_s: float) -> None:
        status = self._inputs.status
        if status.mode != "OFFBOARD":
            self._reference = None
        if self._land_attempts < LAND_ATTEMPTS and self._commands.refusal("land", now_s) and status.mode != "AUTO_LAND":
            self._land_attempts += 1
            self._ask("land", now_s)
        landed = self._lasts("touchdown", status.landed and status.armed, TOUCHDOWN_DISARM_S, now_s)
        if landed and not self._commands.asked("disarm"):
            self._ask("disarm", now_s)

    def _during_done(self, now_s: float) -> None:
        """PX4 went back to OFFBOARD in disarming; nobody flies from there again without another mode first."""
        left_over = self._inputs.on_ground() and self._inputs.status.mode == "OFFBOARD"
        if left_over and self.plan.start == "auto" and self._inputs.linked(now_s) and not self._commands.asked("hold"):
            self._ask("hold", now_s)


def _photographer(plan: Plan) -> Photographer:
    wanted = plan.photographs
    return Photographer(wanted.at_s, wanted.max_error_m) if wanted is not None else Photographer([], 0.0)

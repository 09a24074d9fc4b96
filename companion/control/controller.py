"""The controller node: state and reference in, attitude and thrust setpoint out, and how it is doing.

One cycle: predict the state to the time the command acts, sample the reference over the horizon from there, solve,
and send the first input. A cycle without a usable solution (solver status, NaN, missed deadline) sends the last good
plan a little further on; after `PLAN_REUSE_CYCLES` of them in a row the PID takes over, until the NMPC has been clean
for `fallback.clean_cycles_to_return` cycles. Every change of source is blended, so the command never jumps.
"""

import math
from typing import NamedTuple

import msgspec
import numpy as np

from companion.control.fallback import Blend, PositionPid
from companion.control.horizon import Stages
from companion.control.prediction import Predictor
from companion.control.solver import Nmpc, NmpcResult
from companion.control.trajectories import Samples, duration_s, in_world, is_finite, sample, standoff_plane
from companion.control.yaw import YawController
from companion.core.clock import Stopwatch
from companion.core.frames import rpy_from_quat, wrap_angle
from companion.core.messages import (
    TOPIC_OF,
    ControlStatus,
    FcuAttitude,
    FcuStatus,
    Message,
    Reference,
    SentSetpoint,
    Setpoint,
    State,
)
from companion.core.node import Latest, Node
from companion.core.vehicle import Vehicle

EXPIRY_PERIODS = 5  # of the controller: a setpoint older than this must not fly
PLAN_REUSE_CYCLES = 2  # an old plan is good for about two periods; then feedback matters more
ACTING_MODE = "OFFBOARD"  # the flight mode in which our setpoints act
QUATERNION_TOLERANCE = 1e-2  # of the length of q_WB


class _Cycle(NamedTuple):
    """What one cycle works with."""

    state: State
    reference: Reference
    yaw: float
    fcu_yaw: float
    acting: bool
    at_state: Samples  # one row: the reference at the time of the state
    at_nodes: Samples  # the reference at the nodes of the horizon
    acts_at_s: float  # when the command of this cycle acts
    finished: bool


class ControllerNode(Node):
    """Position control with NMPC, PID fallback and yaw control."""

    name = "controller"
    inputs = ("state", "reference", "sent_setpoint", "fcu_attitude", "fcu_status")

    def __init__(
        self,
        vehicle: Vehicle,
        nmpc: Nmpc | None = None,
        stopwatch: Stopwatch | None = None,
        predictor: Predictor | None = None,
    ) -> None:
        """Raises `companion.core.kernel.ArtifactMissing` with one line when the solver was not generated."""
        super().__init__()
        controller = vehicle.controller
        self.rate_hz = controller.rate_hz
        self.bad_inputs = 0  # messages that were not finite or made no sense, since start
        self._vehicle = vehicle
        self._period_s = self.batch_window_s = 1.0 / controller.rate_hz
        self._nmpc = nmpc or Nmpc(vehicle)
        self._predictor = predictor or Predictor(vehicle.latency.actuation_s)
        self._stopwatch = stopwatch or Stopwatch()
        self._stages = Stages(vehicle, self._nmpc.times_s)
        self._sample_times = np.empty(len(self._nmpc.times_s) + 1)
        self._yaw = YawController(controller.yaw)
        self._pid = PositionPid(controller)
        self._blend = Blend()
        self._low = np.array([controller.thrust_min, -controller.tilt_max_rad, -controller.tilt_max_rad])
        self._high = np.array([controller.thrust_max, controller.tilt_max_rad, controller.tilt_max_rad])
        self._latest = Latest()
        self._senseless: set[str] = set()  # topics whose newest message makes no sense
        self._reference_id: int | None = None
        self._reference_resets: int | None = None  # of the estimator, when the present reference was first heard of
        self._fallback_cycles = self._deadline_misses = self._solver_failures = 0
        self._heading = 0.0  # of the last cycle, not wrapped [rad]; outlives idle times, as the solver's plan does
        self._go_idle()

    def _go_idle(self) -> None:
        self._active, self._reason = "idle", ""  # of the command source
        self._clean = self._bad = 0
        self._plan: tuple[float, np.ndarray] | None = None  # time its first input acts [s], inputs (N, 3)
        self._last_command: np.ndarray | None = None
        self._last_step_s: float | None = None
        self._yaw.reset()
        self._pid.reset()
        self._blend.reset()

    # --- messages -----------------------------------------------------------------------------------------

    def handle_state(self, message: State, now_s: float) -> None:
        self._take(message, _is_sane(message))

    def handle_reference(self, message: Reference, now_s: float) -> None:
        self._take(message, is_finite(message))
        if message.id != self._reference_id:
            state = self._latest.get(State)
            self._reference_id, self._reference_resets = message.id, None if state is None else state.reset_count

    def handle_sent_setpoint(self, message: SentSetpoint, now_s: float) -> None:
        self._latest.put(message)
        self._predictor.sent(message)

    def handle_fcu_attitude(self, message: FcuAttitude, now_s: float) -> None:
        self._take(message, _is_rotation(message.q_WB))

    def handle_fcu_status(self, message: FcuStatus, now_s: float) -> None:
        self._latest.put(message)

    def _take(self, message: Message, sane: bool) -> None:
        """Keep a message; one that makes no sense is counted and takes the place of the last good one, invalid."""
        if not sane:
            self.bad_inputs += 1
            message = msgspec.structs.replace(message, valid=False)
        self._latest.put(message)
        topic = TOPIC_OF[type(message)]
        self._senseless.discard(topic) if sane else self._senseless.add(topic)

    # --- one cycle ----------------------------------------------------------------------------------------

    def step(self, now_s: float) -> list[Message]:
        started_s = self._stopwatch.read_s()
        cycle = self._begin(now_s)
        if isinstance(cycle, str):
            self._go_idle()
            return [self._status(now_s, started_s, reason=cycle)]
        parameters = self._parameters(cycle.state)
        disturbance_W = np.array(cycle.state.disturbance_W)
        elapsed_s = self._period_s if self._last_step_s is None else now_s - self._last_step_s
        self._last_step_s = now_s

        yaw_setpoint, yaw_rate = self._yaw.update(
            now_s,
            float(cycle.at_state.yaw[0]),
            float(cycle.at_state.yaw_rate[0]),
            cycle.yaw,
            cycle.fcu_yaw,
            cycle.acting,
        )
        x0 = self._predict(cycle, disturbance_W, parameters)
        self._stages.fill(cycle.at_nodes, x0[8], disturbance_W, parameters)
        self._nmpc.shift(elapsed_s)
        self._nmpc.set_plane(*standoff_plane(cycle.reference, cycle.state, self._vehicle.safety.standoff_min_m))
        result = self._nmpc.solve(x0, self._stages.references, self._stages.parameters)
        late = self._stopwatch.read_s() - started_s > self._vehicle.controller.deadline_s

        planned = self._judge(result, late, cycle.acts_at_s, elapsed_s)
        if planned is None:
            self._fallback_cycles += 1
            wanted = self._pid.command(
                x0, *(row[0] for row in cycle.at_nodes[:3]), disturbance_W, parameters, elapsed_s
            )
        else:
            wanted = planned
        if self._active == "idle" and cycle.acting:
            # Somebody flew a moment ago: this node before it was restarted, or before its inputs paused.
            self._last_command = self._held(wanted[0], parameters)
        command = self._within_limits(self._smooth(wanted, "pid" if planned is None else "nmpc", now_s))
        if command is None:  # neither source has a number: say nothing, the flight controller's failsafe is next
            self._go_idle()
            return [self._status(now_s, started_s, reason="no finite command", result=result)]
        self._last_command = command
        setpoint = Setpoint(
            stamp_s=now_s,
            expires_s=now_s + EXPIRY_PERIODS * self._period_s,
            thrust=float(command[0]),
            roll_rad=float(command[1]),
            pitch_rad=float(command[2]),
            yaw_rad=yaw_setpoint,
            yaw_rate_rad_s=yaw_rate,
            source=self._active,
        )
        return [setpoint, self._status(now_s, started_s, self._reason, cycle, result)]

    def _begin(self, now_s: float) -> _Cycle | str:
        """Everything a cycle needs, or the reason why there can be none."""
        latest = self._latest
        for kind in (State, Reference, FcuAttitude):
            if latest.fresh(kind, now_s) is None:
                return self._absence(kind, now_s)
        state, reference = latest.get(State), latest.get(Reference)
        if self._reference_resets is None:
            self._reference_resets = state.reset_count
        if self._reference_resets != state.reset_count:
            # Another origin, another bundle, no wind: what was asked for in the old world is a jump in the new one.
            return "the estimator started anew after this reference was made"
        trajectory = in_world(reference, state)
        if trajectory is None:
            return f"reference in bundle '{reference.frame}', which the state does not know"
        status = latest.fresh(FcuStatus, now_s)
        acts_at_s = now_s + self._vehicle.latency.actuation_s
        times_s = self._sample_times
        times_s[0] = state.stamp_s
        np.add(self._nmpc.times_s, acts_at_s, out=times_s[1:])
        samples = sample(trajectory, reference.start_s, times_s)
        return _Cycle(
            state=state,
            reference=reference,
            yaw=rpy_from_quat(state.q_WB)[2],
            fcu_yaw=rpy_from_quat(latest.get(FcuAttitude).q_WB)[2],
            # Without word from the flight controller the node cannot know better than that it is obeyed.
            acting=status is None or status.mode == ACTING_MODE,
            at_state=Samples(*(column[:1] for column in samples)),
            at_nodes=Samples(*(column[1:] for column in samples)),
            acts_at_s=acts_at_s,
            finished=now_s >= reference.start_s + duration_s(trajectory),
        )

    def _absence(self, kind: type[Message], now_s: float) -> str:
        topic, message = TOPIC_OF[kind], self._latest.get(kind)
        if message is None:
            return f"no {topic} yet"
        if topic in self._senseless:
            return f"{topic} is not finite ({self.bad_inputs} bad messages)"
        if not message.valid:
            return f"{topic} is not valid"
        return f"{topic} is {now_s - message.stamp_s:.2f} s old"

    def _parameters(self, state: State) -> np.ndarray:
        voltage_v = state.battery_voltage_v
        parameters = np.array(self._vehicle.model_parameters(voltage_v if math.isfinite(voltage_v) else None))
        parameters[0] *= state.thrust_scale
        return parameters

    def _predict(self, cycle: _Cycle, disturbance_W: np.ndarray, parameters: np.ndarray) -> np.ndarray:
        if not cycle.acting:
            self._predictor.forget()
            self._pid.reset()
        state = cycle.state
        x = (*state.p_W, *state.v_W, *rpy_from_quat(state.q_WB))
        x0 = self._predictor.predict(x, disturbance_W, parameters, state.stamp_s, cycle.acts_at_s)
        # The stored plan is on the turn of the circle on which the last cycle was. A heading that hops from π to -π
        # would be linearised a whole turn away from it, and the one iteration per cycle answers with nonsense.
        x0[8] += 2 * math.pi * round((self._heading - x0[8]) / (2 * math.pi))
        self._heading = float(x0[8])
        return x0

    def _judge(self, result: NmpcResult, late: bool, acts_at_s: float, elapsed_s: float) -> np.ndarray | None:
        """The NMPC's command for this cycle, or None when the PID has to fly. Sets active source and reason."""
        self._solver_failures += result.status != 0
        self._deadline_misses += late
        if result.status == 0 and not late:
            self._plan = (acts_at_s, result.inputs)
            self._clean, self._bad = self._clean + 1, 0
            if self._active == "pid" and self._clean < self._vehicle.controller.fallback.clean_cycles_to_return:
                return None
            self._reason = ""
            return result.inputs[0]
        self._clean, self._bad = 0, self._bad + 1
        self._reason = f"solver status {result.status}" if result.status != 0 else "deadline missed"
        if self._active == "nmpc" and self._plan is not None and self._bad <= PLAN_REUSE_CYCLES:
            from_s, inputs = self._plan
            node = int((acts_at_s - from_s) / self._nmpc.step_s)
            return inputs[min(node, len(inputs) - 1)]
        return None

    def _smooth(self, wanted: np.ndarray, source: str, now_s: float) -> np.ndarray:
        """The command of this cycle; a change of source begins at the command that was sent last."""
        if source != self._active:
            last = self._last_sent(now_s)
            if source == "pid":
                self._pid.reset()
            if last is not None:
                self._blend.start(last, wanted, now_s)
            self._active = source
        return self._blend.apply(wanted, now_s)

    def _held(self, thrust: float, parameters: np.ndarray) -> np.ndarray:
        """The command that keeps the attitude which the flight controller has now, and this thrust."""
        roll, pitch, _ = rpy_from_quat(self._latest.get(FcuAttitude).q_WB)
        return np.array([thrust, roll / parameters[5], pitch / parameters[7]])

    def _last_sent(self, now_s: float) -> np.ndarray | None:
        if self._last_command is None:
            return None
        sent = self._latest.fresh(SentSetpoint, now_s)
        return self._last_command if sent is None else np.array([sent.thrust, sent.roll_rad, sent.pitch_rad])

    def _within_limits(self, command: np.ndarray) -> np.ndarray | None:
        if not math.isfinite(command.sum()):
            return None
        return np.minimum(np.maximum(command, self._low), self._high)

    def _status(
        self,
        now_s: float,
        started_s: float,
        reason: str,
        cycle: _Cycle | None = None,
        result: NmpcResult | None = None,
    ) -> ControlStatus:
        reference = self._latest.get(Reference)
        p_r, yaw_r, position_error, yaw_error = (0.0, 0.0, 0.0), 0.0, math.nan, math.nan
        if cycle is not None:
            p_r, yaw_r = tuple(cycle.at_state.p_W[0].tolist()), wrap_angle(float(cycle.at_state.yaw[0]))
            position_error = math.dist(p_r, cycle.state.p_W)
            yaw_error = wrap_angle(yaw_r - cycle.yaw)
        return ControlStatus(
            stamp_s=now_s,
            active=self._active,
            reason=reason,
            reference_id=reference.id if reference is not None else -1,
            reference_finished=cycle is not None and cycle.finished,
            reference_p_W=p_r,
            reference_yaw_rad=yaw_r,
            position_error_m=position_error,
            yaw_error_rad=yaw_error,
            solver_status=result.status if result is not None else -1,
            solve_time_s=result.solve_time_s if result is not None else 0.0,
            cycle_time_s=self._stopwatch.read_s() - started_s,
            fallback_cycles=self._fallback_cycles,
            deadline_misses=self._deadline_misses,
            solver_failures=self._solver_failures,
        )


def _is_rotation(q) -> bool:
    return abs(math.hypot(*q) - 1.0) < QUATERNION_TOLERANCE  # False for NaN


def _is_sane(state: State) -> bool:
    """Whether the numbers this node computes with can be computed with."""
    numbers = (*state.p_W, *state.v_W, *state.disturbance_W, state.thrust_scale)
    if not (all(map(math.isfinite, numbers)) and state.thrust_scale > 0 and _is_rotation(state.q_WB)):
        return False
    return not state.bundle or (all(map(math.isfinite, state.p_WM)) and _is_rotation(state.q_WM))

"""The controller node: state and reference in, attitude and thrust setpoint and status out.

One cycle: predict the state to the time the command acts, sample the reference over the horizon from there, solve,
and send the first input. A cycle without a usable solution (solver status, NaN, missed deadline) sends the next input
of the last good plan. After `PLAN_REUSE_CYCLES` such cycles in a row the PID takes over, until
`fallback.clean_cycles_to_return` cycles of the NMPC have succeeded in a row. Every change of source is blended, so the
command never jumps.
"""

import math
from typing import NamedTuple

import msgspec
import numpy as np

from companion.control.correction_smoothing import CorrectionSmoothing
from companion.control.fallback import Blend, PositionPid
from companion.control.horizon import Horizon, predicted_path, status_stride
from companion.control.prediction import Predictor
from companion.control.solver import Nmpc, NmpcResult
from companion.control.tilt_offset import TiltOffset
from companion.control.trajectories import Samples, duration_s, in_world, is_finite, sample, standoff_plane
from companion.control.yaw import YawController
from companion.core import precision
from companion.core.arrays import Array
from companion.core.clock import Stopwatch
from companion.core.enums import ControlSource, FcuMode, TopicName
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
from companion.core.precision import near, rounded
from companion.core.trajectory_messages import Quat, Vec3
from companion.core.vehicle import Vehicle
from companion.core.voltage import ThrustVoltage

EXPIRY_PERIODS = 5  # of the controller: an older setpoint must not be sent
# Behind the stand-off plane the plan returns by this much at a time: a plane metres away would be worth any height.
PLANE_STEP_M = 0.5
PLAN_REUSE_CYCLES = 2  # an old plan is good for about two periods; then feedback matters more
ACTING_MODE = FcuMode.OFFBOARD  # the flight mode in which this stack's setpoints act
HORIZON_PERIOD_S = 0.19  # between two predicted paths in `ControlStatus` [s]: 0.2 at 50 Hz
QUATERNION_TOLERANCE = 1e-2  # of the length of q_WB


class _Cycle(NamedTuple):
    """The inputs of one cycle."""

    state: State
    reference: Reference
    yaw: float  # estimated [rad]
    attitude: FcuAttitude
    fcu_rpy: Vec3  # roll, pitch, yaw as the flight controller reports them [rad]
    acting: bool  # this stack's setpoints act
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
        self.bad_inputs = 0  # messages with numbers that are not finite or not possible, since start
        self._vehicle = vehicle
        self._voltage = ThrustVoltage(vehicle.thrust.reference_voltage_v)
        self._period_s = self.batch_window_s = 1.0 / controller.rate_hz
        self._nmpc = nmpc or Nmpc(vehicle)
        self._predictor = predictor or Predictor(vehicle.latency.actuation_s)
        self._corrections = CorrectionSmoothing()
        self._stopwatch = stopwatch or Stopwatch()
        self._horizon = Horizon(vehicle, self._nmpc.times_s)
        self._sample_times = np.empty(len(self._nmpc.times_s) + 1)
        self._yaw = YawController(controller.yaw)
        self._tilt_offset = TiltOffset()
        self._pid = PositionPid(controller)
        self._blend = Blend()
        self._low = np.array([controller.thrust_min, -controller.tilt_max_rad, -controller.tilt_max_rad])
        self._high = np.array([controller.thrust_max, controller.tilt_max_rad, controller.tilt_max_rad])
        self._latest = Latest()
        self._bad_topics: set[TopicName] = set()  # topics whose newest message counts in `bad_inputs`
        self._reference_id: int | None = None
        self._reference_resets: int | None = None  # the estimator's count when the present reference first arrived
        self._fallback_cycles = self._deadline_misses = self._solver_failures = 0
        self._heading = 0.0  # of the last cycle, not wrapped [rad]; kept while idle, like the solver's plan
        self._horizon_due_s = -math.inf
        self._go_idle()

    def _go_idle(self) -> None:
        self._active, self._reason = ControlSource.IDLE, ""  # of the command source
        self._clean = self._bad = 0  # cycles in a row with and without a usable solution
        self._plan: tuple[float, Array] | None = None  # time its first input acts [s], inputs (N, 3)
        self._last_command: Array | None = None
        self._last_step_s: float | None = None
        self._yaw.reset()
        self._tilt_offset.reset()
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
        """Keep a message; one that is not sane is counted and replaces the last good one as an invalid message."""
        if not sane:
            self.bad_inputs += 1
            message = msgspec.structs.replace(message, valid=False)
        self._latest.put(message)
        topic = TOPIC_OF[type(message)]
        if sane:
            self._bad_topics.discard(topic)
        else:
            self._bad_topics.add(topic)

    # --- one cycle ----------------------------------------------------------------------------------------

    def step(self, now_s: float) -> list[Message]:
        started_s = self._stopwatch.read_s()
        cycle = self._begin(now_s)
        if isinstance(cycle, str):
            self._go_idle()
            return [self._status(now_s, started_s, reason=cycle)]
        self._voltage.take(cycle.state.battery_voltage_v, cycle.state.stamp_s, free=not cycle.acting)
        parameters = self._parameters(cycle.state)
        disturbance_W = np.array(cycle.state.disturbance_W)
        elapsed_s = self._period_s if self._last_step_s is None else now_s - self._last_step_s
        self._last_step_s = now_s

        yaw_setpoint, yaw_rate = self._yaw.update(
            now_s,
            float(cycle.at_state.yaw[0]),
            float(cycle.at_state.yaw_rate[0]),
            cycle.yaw,
            cycle.fcu_rpy[2],
            cycle.acting,
        )
        offset = self._command_offset(cycle, parameters)
        x0 = self._predict(cycle, disturbance_W, parameters, offset)
        held_back_W = self._corrections.offset_W(cycle.state, cycle.reference.frame)
        x0[:3] -= held_back_W
        self._horizon.fill(cycle.at_nodes, x0[8], disturbance_W, parameters)
        self._nmpc.shift(elapsed_s)
        normal_W, from_m = standoff_plane(cycle.reference, cycle.state, self._vehicle.safety.standoff_min_m)
        from_m -= float(np.dot(normal_W, held_back_W))
        self._nmpc.set_plane(normal_W, min(from_m, float(np.dot(normal_W, x0[:3])) + PLANE_STEP_M))
        result = self._nmpc.solve(x0, self._horizon.references, self._horizon.parameters)
        late = self._stopwatch.read_s() - started_s > self._vehicle.controller.deadline_s

        planned = self._judge(result, late, cycle.acts_at_s, elapsed_s)
        if planned is None:
            self._fallback_cycles += 1
            nodes = cycle.at_nodes
            desired = self._pid.command(
                x0, nodes.p_W[0], nodes.v_W[0], nodes.a_W[0], disturbance_W, parameters, elapsed_s
            )
        else:
            desired = planned
        desired = desired + offset
        if self._active == ControlSource.IDLE and cycle.acting:
            # Setpoints acted a moment ago: those of this node before a restart, or before its inputs paused.
            self._last_command = _holding(cycle.fcu_rpy, float(desired[0]), parameters)
        source = ControlSource.PID if planned is None else ControlSource.NMPC
        command = self._within_limits(self._smooth(desired, source, now_s))
        if command is None:  # no source gives finite numbers: send nothing, the flight controller's failsafe follows
            self._go_idle()
            return [self._status(now_s, started_s, reason="no finite command", result=result)]
        self._last_command = command
        setpoint = Setpoint(
            stamp_s=now_s,
            expires_s=now_s + EXPIRY_PERIODS * self._period_s,
            thrust=near(float(command[0]), precision.SETPOINT),
            roll_rad=near(float(command[1]), precision.SETPOINT),
            pitch_rad=near(float(command[2]), precision.SETPOINT),
            yaw_rad=near(yaw_setpoint, precision.SETPOINT),
            yaw_rate_rad_s=near(yaw_rate, precision.SETPOINT),
            source=self._active,
        )
        status = self._status(now_s, started_s, self._reason, cycle, result)
        if planned is not None and self._bad == 0 and cycle.acting and now_s >= self._horizon_due_s:
            self._horizon_due_s = now_s + HORIZON_PERIOD_S
            status.horizon_W = predicted_path(result.states, held_back_W)
            status.horizon_step_s = self._nmpc.step_s * status_stride(self._nmpc.nodes)
        return [setpoint, status]

    def _begin(self, now_s: float) -> _Cycle | str:
        """The inputs of a cycle, or the reason for idling."""
        latest = self._latest
        state = latest.fresh(State, now_s)
        if state is None:
            return self._absence(State, now_s)
        reference = latest.fresh(Reference, now_s)
        if reference is None:
            return self._absence(Reference, now_s)
        attitude = latest.fresh(FcuAttitude, now_s)
        if attitude is None:
            return self._absence(FcuAttitude, now_s)
        if self._reference_resets is None:
            self._reference_resets = state.reset_count
        if self._reference_resets != state.reset_count:
            # Origin, bundle and disturbance may have changed: a reference in the old world frame is a jump in the new.
            return "the estimator was reset after this reference was made"
        trajectory = in_world(reference, state)
        if trajectory is None:
            return f"reference in bundle '{reference.frame}', which the state does not contain"
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
            attitude=attitude,
            fcu_rpy=rpy_from_quat(attitude.q_WB),
            # Without a status from the flight controller the node assumes that its setpoints act.
            acting=status is None or status.mode == ACTING_MODE,
            at_state=Samples(*(column[:1] for column in samples)),
            at_nodes=Samples(*(column[1:] for column in samples)),
            acts_at_s=acts_at_s,
            finished=now_s >= reference.start_s + duration_s(trajectory),
        )

    def _absence(self, kind: type[Message], now_s: float) -> str:
        """Why there is no fresh message of a type."""
        topic, message = TOPIC_OF[kind], self._latest.get(kind)
        if message is None:
            return f"no {topic} yet"
        if topic in self._bad_topics:
            return f"{topic} is not finite ({self.bad_inputs} bad messages)"
        if not message.valid:
            return f"{topic} is not valid"
        return f"{topic} is {now_s - message.stamp_s:.2f} s old"

    def _parameters(self, state: State) -> Array:
        """`flight_model.PARAMETERS` with the present voltage and the estimated thrust scale, (10,)."""
        parameters = np.array(self._vehicle.model_parameters(self._voltage.value_v))
        parameters[0] *= state.thrust_scale
        return parameters

    def _command_offset(self, cycle: _Cycle, parameters: Array) -> Array:
        """What the commands of a plan lack for the flight controller's own attitude: (thrust, roll, pitch), (3,)."""
        self._tilt_offset.update(cycle.state, cycle.attitude)
        roll, pitch = self._tilt_offset.value
        return np.array([0.0, roll / parameters[5], pitch / parameters[7]])

    def _predict(self, cycle: _Cycle, disturbance_W: Array, parameters: Array, offset: Array) -> Array:
        """x0 of the OCP: the state at the time this cycle's command acts, (9,)."""
        if not cycle.acting:
            self._predictor.forget()
            self._corrections.hand_over(cycle.state.stamp_s, cycle.reference.id)
            self._pid.reset()
        state = cycle.state
        x = (*state.p_W, *state.v_W, *rpy_from_quat(state.q_WB))
        x0 = self._predictor.predict(x, disturbance_W, parameters, state.stamp_s, cycle.acts_at_s, offset)
        # The heading continues that of the last cycle without a jump of 2π. After a jump from π to -π the stored plan
        # would be a whole turn away, and the one iteration per cycle would give a useless result.
        x0[8] += 2 * math.pi * round((self._heading - x0[8]) / (2 * math.pi))
        self._heading = float(x0[8])
        return x0

    def _judge(self, result: NmpcResult, late: bool, acts_at_s: float, elapsed_s: float) -> Array | None:
        """The NMPC's command for this cycle, or None when the PID has to fly. Sets the reason."""
        self._solver_failures += result.status != 0
        self._deadline_misses += late
        if result.status == 0 and not late:
            self._plan = (acts_at_s, result.inputs)
            self._clean, self._bad = self._clean + 1, 0
            if (
                self._active == ControlSource.PID
                and self._clean < self._vehicle.controller.fallback.clean_cycles_to_return
            ):
                return None
            self._reason = ""
            first: Array = result.inputs[0]
            return first
        self._clean, self._bad = 0, self._bad + 1
        self._reason = f"solver status {result.status}" if result.status != 0 else "deadline missed"
        if self._active == ControlSource.NMPC and self._plan is not None and self._bad <= PLAN_REUSE_CYCLES:
            from_s, inputs = self._plan
            node = int((acts_at_s - from_s) / self._nmpc.step_s)
            reused: Array = inputs[min(node, len(inputs) - 1)]
            return reused
        return None

    def _smooth(self, desired: Array, source: ControlSource, now_s: float) -> Array:
        """The command of this cycle; after a change of source it starts at the command that was sent last."""
        if source != self._active:
            last = self._last_sent(now_s)
            if source == ControlSource.PID:
                self._pid.reset()
            if last is not None:
                self._blend.start(last, desired, now_s)
            self._active = source
        return self._blend.apply(desired, now_s)

    def _last_sent(self, now_s: float) -> Array | None:
        """(thrust, roll, pitch) that left last, or this node's last command while no sent setpoint is fresh."""
        if self._last_command is None:
            return None
        sent = self._latest.fresh(SentSetpoint, now_s)
        return self._last_command if sent is None else np.array([sent.thrust, sent.roll_rad, sent.pitch_rad])

    def _within_limits(self, command: Array) -> Array | None:
        """The command within the vehicle's bounds; None when it is not finite."""
        if not math.isfinite(command.sum()):
            return None
        limited: Array = np.minimum(np.maximum(command, self._low), self._high)
        return limited

    def _status(
        self,
        now_s: float,
        started_s: float,
        reason: str,
        cycle: _Cycle | None = None,
        result: NmpcResult | None = None,
    ) -> ControlStatus:
        reference = self._latest.get(Reference)
        p_r: Vec3 = (0.0, 0.0, 0.0)
        yaw_r, position_error, yaw_error = 0.0, math.nan, math.nan
        if cycle is not None:
            x, y, z = cycle.at_state.p_W[0].tolist()
            p_r, yaw_r = (x, y, z), wrap_angle(float(cycle.at_state.yaw[0]))
            position_error = math.dist(p_r, cycle.state.p_W)
            yaw_error = wrap_angle(yaw_r - cycle.yaw)
        return ControlStatus(
            stamp_s=now_s,
            active=self._active,
            reason=reason,
            reference_id=reference.id if reference is not None else -1,
            reference_finished=cycle is not None and cycle.finished,
            reference_p_W=rounded(p_r, precision.POSITION),
            reference_yaw_rad=near(yaw_r, precision.ANGLE),
            position_error_m=near(position_error, precision.POSITION),
            yaw_error_rad=near(yaw_error, precision.ANGLE),
            solver_status=result.status if result is not None else -1,
            solve_time_s=result.solve_time_s if result is not None else 0.0,
            cycle_time_s=self._stopwatch.read_s() - started_s,
            fallback_cycles=self._fallback_cycles,
            deadline_misses=self._deadline_misses,
            solver_failures=self._solver_failures,
        )


def _holding(rpy: Vec3, thrust: float, parameters: Array) -> Array:
    """The command with this thrust that keeps the attitude rpy [rad]."""
    roll, pitch, _ = rpy
    return np.array([thrust, roll / parameters[5], pitch / parameters[7]])


def _is_rotation(q: Quat) -> bool:
    return abs(math.hypot(*q) - 1.0) < QUATERNION_TOLERANCE  # False for NaN


def _is_sane(state: State) -> bool:
    """Whether the numbers that this node uses are finite and possible."""
    numbers = (*state.p_W, *state.v_W, *state.disturbance_W, state.thrust_scale)
    if not (all(map(math.isfinite, numbers)) and state.thrust_scale > 0 and _is_rotation(state.q_WB)):
        return False
    return not state.bundle or (all(map(math.isfinite, state.p_WM)) and _is_rotation(state.q_WM))

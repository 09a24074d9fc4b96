"""The autopilot alone: PX4's own position control on its own GNSS estimate, with the references of the same mission.

`Px4ControllerNode` samples the mission's references and streams SET_POSITION_TARGET_LOCAL_NED: position with velocity
and acceleration as feed-forward, and yaw. It takes the place of the controller. This stack's FCU node sends no position
setpoints, so this node encodes them itself.

`Px4EstimatorNode` publishes the autopilot's estimate of its own motion as `State`. It learns a bundle's place once: this
stack's filter finds it in the approach (more exactly than a person with a tape measure would), in the autopilot's frame.
The first reference in the bundle's frame that is not a move freezes it. From then on a drifting GNSS carries the
aircraft along; this baseline is there to show that.
"""

import math
from collections.abc import Iterable

import msgspec
import numpy as np
from pymavlink.dialects.v20 import common

from companion.control.trajectories import duration_s, in_world, is_finite, sample
from companion.core.clock import Stopwatch
from companion.core.enums import ControlSource
from companion.core.frames import rpy_from_quat, wrap_angle
from companion.core.messages import WORLD, ControlStatus, FcuAttitude, FcuPosition, LinkTx, Message, Reference, State
from companion.core.node import Latest, Node
from companion.core.trajectory_messages import Move, Quat, Vec3
from companion.core.vehicle import Vehicle
from companion.estimation.estimator import EstimatorNode
from companion.fcu.link.codec import Codec
from companion.fcu.ned import swap_world, swap_yaw
from sitl.vectors import vec3

RATE_HZ = 50.0
Pose = tuple[Vec3, Quat]
# PX4 uses position, velocity and acceleration together; yaw is given, its rate follows from it
TYPE_MASK = common.POSITION_TARGET_TYPEMASK_YAW_RATE_IGNORE


class Px4EstimatorNode(Node):
    """The autopilot's estimate of its own motion, and the bundle's place by this stack's filter until it is frozen."""

    name = "estimator"
    inputs = (*EstimatorNode.inputs, "reference")

    def __init__(self, vehicle: Vehicle, bundle: str | None = None, stopwatch: Stopwatch | None = None) -> None:
        self._filter = EstimatorNode(vehicle, bundle, stopwatch)
        self.rate_hz, self.batch_window_s = self._filter.rate_hz, self._filter.batch_window_s
        self._fcu_attitude: FcuAttitude | None = None
        self._fcu_position: FcuPosition | None = None
        self._frozen: Pose | None = None  # p_WM, q_WM in the autopilot's frame
        self._placed: Pose | None = None

    def handle(self, message: Message, now_s: float) -> Iterable[Message]:
        """Pass a message to the filter; only the references are for this node alone."""
        if isinstance(message, Reference):
            if self._frozen is None and message.frame != WORLD and not isinstance(message.trajectory, Move):
                self._frozen = self._placed
            return ()
        if isinstance(message, FcuAttitude) and message.valid:
            self._fcu_attitude = message
        elif isinstance(message, FcuPosition) and message.valid:
            self._fcu_position = message
        return self._filter.handle(message, now_s)

    def step(self, now_s: float) -> list[Message]:
        return [self._own(m) if isinstance(m, State) else m for m in self._filter.step(now_s)]

    def _own(self, state: State) -> State:
        position, attitude = self._fcu_position, self._fcu_attitude
        if position is None or attitude is None or not state.valid:
            return state
        if state.bundle:
            # The autopilot's position is the true one plus its bias; in its frame the bundle is shifted by it as well.
            self._placed = (vec3(np.add(state.p_WM, state.gnss_bias_W)), state.q_WM)
        p_WM, q_WM = self._frozen or self._placed or (state.p_WM, state.q_WM)
        return msgspec.structs.replace(
            state,
            stamp_s=position.stamp_s,
            p_W=position.p_W,
            v_W=position.v_W,
            q_WB=attitude.q_WB,
            disturbance_W=(0.0, 0.0, 0.0),
            gnss_bias_W=(0.0, 0.0, 0.0),
            p_WM=p_WM,
            q_WM=q_WM,
        )


class Px4ControllerNode(Node):
    """References in, position setpoints for the autopilot's OFFBOARD mode out, as bytes."""

    name = "controller"
    inputs = ("state", "reference")
    rate_hz = RATE_HZ

    def __init__(self, vehicle: Vehicle) -> None:
        super().__init__()
        fcu = vehicle.fcu
        # A component id of its own: two senders must not share one series of sequence numbers.
        self._codec = Codec(fcu.system_id, fcu.component_id + 1, fcu.autopilot_system_id)
        self._target = fcu.autopilot_system_id
        self._latest = Latest()

    def handle_state(self, message: State, now_s: float) -> None:
        self._latest.put(message)

    def handle_reference(self, message: Reference, now_s: float) -> None:
        if is_finite(message):
            self._latest.put(message)

    def step(self, now_s: float) -> list[Message]:
        state, reference = self._latest.fresh(State, now_s), self._latest.fresh(Reference, now_s)
        trajectory = in_world(reference, state) if state is not None and reference is not None else None
        if state is None or reference is None or trajectory is None:
            return [self._status(now_s, "no state" if state is None else "no reference that can be flown")]
        samples = sample(trajectory, reference.start_s, np.array([now_s]))
        p, v, a = (vec3(rows[0]) for rows in samples[:3])
        yaw = wrap_angle(float(samples.yaw[0]))
        finished = now_s >= reference.start_s + duration_s(trajectory)
        message = common.MAVLink_set_position_target_local_ned_message(
            int(now_s * 1000) & 0xFFFFFFFF, self._target, common.MAV_COMP_ID_AUTOPILOT1, common.MAV_FRAME_LOCAL_NED,
            TYPE_MASK, *swap_world(p), *swap_world(v), *swap_world(a), swap_yaw(yaw), 0.0,
        )  # fmt: skip
        data = self._codec.encode(message)
        return [
            LinkTx(stamp_s=now_s, data=data),
            self._status(now_s, "", ControlSource.NMPC, reference, p, yaw, state, finished),
        ]

    def _status(
        self,
        now_s: float,
        reason: str,
        active: ControlSource = ControlSource.IDLE,
        reference: Reference | None = None,
        p_r: Vec3 = (0.0, 0.0, 0.0),
        yaw_r: float = 0.0,
        state: State | None = None,
        finished: bool = False,
    ) -> ControlStatus:
        """active: "nmpc" stands for the main controller, as the mission expects it; no solver runs here."""
        latest = reference or self._latest.get(Reference)
        return ControlStatus(
            stamp_s=now_s,
            active=active,
            reason=reason,
            reference_id=latest.id if latest is not None else -1,
            reference_finished=finished,
            reference_p_W=p_r,
            reference_yaw_rad=yaw_r,
            position_error_m=math.dist(p_r, state.p_W) if state is not None else math.nan,
            yaw_error_rad=wrap_angle(yaw_r - rpy_from_quat(state.q_WB)[2]) if state is not None else math.nan,
            solver_status=-1,
            solve_time_s=0.0,
            cycle_time_s=0.0,
            fallback_cycles=0,
            deadline_misses=0,
            solver_failures=0,
        )

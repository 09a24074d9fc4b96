"""The prior stack's controller as a node: the topics of this stack's controller, the published laws inside.

As published: the NMPC solves from the newest state (no prediction to the time the command acts), thrust does not depend
on the battery, attitude references are level whatever the wind, the reference is a list of points at the node interval
of which each solve uses a stretch one control period further on, yaw is a PID of its own with its rate a parameter of
the NMPC.

Model and bounds are those that its authors would give it on the aircraft flown (`sitl.baselines.tuning`). In its favour:
computing takes no simulated time, and the list of points begins at the one nearest to the present time. Two errors are
corrected: the error of yaw wraps at ±180°, and the fallback turns into the body frame by Rᵀ.

A weakness of the published problem shows in gusts. With a terminal weight of 600 state weights, rest after three
seconds outweighs everything before. A disturbance near the limit that the tilt bound can hold therefore makes it descend
first and climb later at full thrust, when tilt pushes harder. Near that limit its SQP often does not converge.

The published fallback is sent as velocity setpoints. The flight controller here takes attitude from the controller, so
a model of PX4's own velocity loop is used, with its default proportional gains and no integral:
a = 1.8 (v_cmd - v) sideways and 4.0 (v_cmd - v) upward, thrust and tilt of a + g, within the bounds of the NMPC.
"""

import math
from collections.abc import Callable

import numpy as np

from companion.control.attitude_inversion import tilt_and_thrust
from companion.control.solver import INPUTS, STATES, NmpcResult
from companion.control.trajectories import Samples, duration_s, in_world, is_finite, sample
from companion.core.arrays import Array, Vector
from companion.core.enums import ControlSource
from companion.core.frames import GRAVITY_M_S2, rotation_matrix, rpy_from_quat, wrap_angle
from companion.core.messages import ControlStatus, Message, Reference, Setpoint, State
from companion.core.node import Latest, Node
from companion.core.trajectory_messages import Vec3
from companion.core.vehicle import MODEL_PARAMETERS
from sitl.baselines.paper_nmpc import PaperNmpc
from sitl.baselines.paper_tables import FALLBACK_KP, FALLBACK_KV, PaperVehicle
from sitl.vectors import vec3

EXPIRY_S = 0.25
ORIGIN: Array = np.zeros(3)
YAW_LEAD_MAX_RAD = 0.3  # of the setpoint over the aircraft: limits its growth before the flight begins
VELOCITY_GAINS_1_S = np.array([1.8, 1.8, 4.0])  # PX4's MPC_XY_VEL_P_ACC and MPC_Z_VEL_P_ACC


class YawPid:
    """Yaw rate from the yaw error in [-π, π)."""

    def __init__(self, gains: tuple[float, float, float]) -> None:
        self._gains = gains
        self._integral = 0.0
        self._last: float | None = None

    def reset(self) -> None:
        self._integral, self._last = 0.0, None

    def update(self, reference: float, yaw: float, dt: float) -> float:
        kp, ki, kd = self._gains
        error = wrap_angle(reference - yaw)
        slope = 0.0 if self._last is None else wrap_angle(error - self._last) / dt
        self._integral += error * dt
        self._last = error
        return kp * error + ki * self._integral + kd * slope


def fallback_velocity_B(p_error_W: Array, v_error_W: Array, q_WB: Vector) -> Array:
    """The published fallback: v = Kp Rᵀ e_p + Kv Rᵀ e_v [m/s], body frame, shape (3,)."""
    RT = rotation_matrix(q_WB).T
    v_B: Array = np.array(FALLBACK_KP) * (RT @ p_error_W) + np.array(FALLBACK_KV) * (RT @ v_error_W)
    return v_B


class PaperControllerNode(Node):
    """solver_fails: called at every solve; True makes it fail, as in the fault scenarios of this stack.

    Raises `ConfigError` for an aircraft without published parameters or a failed build.
    """

    name = "controller"
    inputs = ("state", "reference")

    def __init__(
        self, paper: PaperVehicle, nmpc: PaperNmpc | None = None, solver_fails: Callable[[], bool] = lambda: False
    ) -> None:
        """paper: the numbers of the aircraft (`sitl.baselines.tuning.paper_tuning`)."""
        super().__init__()
        self._paper = paper
        self.rate_hz = self._paper.control_rate_hz
        self._period_s = 1.0 / self.rate_hz
        self._nmpc = nmpc or PaperNmpc(paper)
        self._solver_fails = solver_fails
        self._yaw = YawPid(self._paper.yaw_gains)
        self._latest = Latest()
        n = len(self._nmpc.times_s)
        self._references = np.zeros((n, STATES + INPUTS))
        self._references[:, STATES] = GRAVITY_M_S2 / self._paper.model.thrust_coefficient_m_s2
        self._parameters = np.zeros((n, MODEL_PARAMETERS + 4))  # without rotor drag, which the paper does not have
        self._parameters[:, :8] = self._paper.model.parameters
        self._list: tuple[int, float] | None = None  # reference id, time of the point the next solve begins at
        self._yaw_sent: float | None = None
        self._fallback_cycles = self._solver_failures = 0

    def handle_state(self, message: State, now_s: float) -> None:
        self._latest.put(message)

    def handle_reference(self, message: Reference, now_s: float) -> None:
        if is_finite(message):
            self._latest.put(message)

    def step(self, now_s: float) -> list[Message]:
        state, reference = self._latest.fresh(State, now_s), self._latest.fresh(Reference, now_s)
        trajectory = in_world(reference, state) if state is not None and reference is not None else None
        if state is None or reference is None or trajectory is None:
            self._list = self._yaw_sent = None
            self._yaw.reset()
            return [self._status(now_s, "no state" if state is None else "no reference that can be flown")]
        samples = sample(trajectory, reference.start_s, self._next_point(reference, now_s) + self._nmpc.times_s)
        roll, pitch, yaw = rpy_from_quat(state.q_WB)
        yaw_rate = self._yaw.update(float(samples.yaw[0]), yaw, self._period_s)
        result = self._solve(state, samples, (roll, pitch, yaw), yaw_rate)
        if result.status == 0:
            source, reason, command = ControlSource.NMPC, "", result.inputs[0]
        else:
            self._solver_failures += 1
            self._fallback_cycles += 1
            source, reason = ControlSource.PID, f"solver status {result.status}"
            command = self._fallback(state, samples, yaw)
        setpoint = Setpoint(
            stamp_s=now_s,
            expires_s=now_s + EXPIRY_S,
            thrust=float(command[0]),
            roll_rad=float(command[1]),
            pitch_rad=float(command[2]),
            yaw_rad=self.yaw_setpoint(yaw, yaw_rate),
            yaw_rate_rad_s=yaw_rate,
            source=source,
        )
        p_r, yaw_r = samples.p_W[0], float(samples.yaw[0])
        finished = now_s >= reference.start_s + duration_s(trajectory)
        status = self._status(now_s, reason, source, reference, p_r, yaw_r, state, yaw, finished, result)
        return [setpoint, status]

    def yaw_setpoint(self, yaw: float, yaw_rate: float) -> float:
        """The yaw that PX4 reaches when it turns at the commanded rate, as the model of the NMPC assumes it does.

        With the present heading as setpoint PX4 would turn back towards it until the next setpoint comes.
        """
        before = yaw if self._yaw_sent is None else self._yaw_sent
        lead = wrap_angle(before + yaw_rate * self._period_s - yaw)
        self._yaw_sent = wrap_angle(yaw + min(max(lead, -YAW_LEAD_MAX_RAD), YAW_LEAD_MAX_RAD))
        return self._yaw_sent

    def _next_point(self, reference: Reference, now_s: float) -> float:
        """Time of the first point: nearest to now at first, then one control period further at every solve."""
        if self._list is None or self._list[0] != reference.id:
            step_s = self._nmpc.step_s
            first_s = reference.start_s + max(0, round((now_s - reference.start_s) / step_s)) * step_s
            self._list = (reference.id, first_s)
        point_s = self._list[1]
        self._list = (reference.id, point_s + self._period_s)
        return point_s

    def _solve(self, state: State, samples: Samples, rpy: Vec3, yaw_rate: float) -> NmpcResult:
        yaw = rpy[2]
        self._references[:, 0:3], self._references[:, 3:6] = samples.p_W, samples.v_W
        # Within half a turn of the aircraft's yaw: the weight of yaw must not act on a whole turn.
        self._references[:, 8] = samples.yaw + (yaw + wrap_angle(samples.yaw[0] - yaw) - samples.yaw[0])
        self._parameters[:, MODEL_PARAMETERS:-1] = state.disturbance_W
        self._parameters[:, -1] = yaw_rate
        result = self._nmpc.solve((*state.p_W, *state.v_W, *rpy), self._references, self._parameters)
        return result._replace(status=4) if self._solver_fails() else result

    def _fallback(self, state: State, samples: Samples, yaw: float) -> Array:
        v_B = fallback_velocity_B(samples.p_W[0] - state.p_W, samples.v_W[0] - state.v_W, state.q_WB)
        commanded_W = rotation_matrix(state.q_WB) @ v_B
        force = VELOCITY_GAINS_1_S * (commanded_W - state.v_W) + (0.0, 0.0, GRAVITY_M_S2)
        roll, pitch, magnitude = tilt_and_thrust(force[None, :], np.array([yaw]))
        low, high = self._paper.thrust_bounds
        tilt = self._paper.tilt_command_max_rad
        thrust = min(max(float(magnitude[0]) / self._paper.model.thrust_coefficient_m_s2, low), high)
        return np.array([thrust, *(min(max(float(a[0]), -tilt), tilt) for a in (roll, pitch))])

    def _status(
        self,
        now_s: float,
        reason: str,
        active: ControlSource = ControlSource.IDLE,
        reference: Reference | None = None,
        p_r: Array = ORIGIN,
        yaw_r: float = 0.0,
        state: State | None = None,
        yaw: float = 0.0,
        finished: bool = False,
        result: NmpcResult | None = None,
    ) -> ControlStatus:
        latest = reference or self._latest.get(Reference)
        return ControlStatus(
            stamp_s=now_s,
            active=active,
            reason=reason,
            reference_id=latest.id if latest is not None else -1,
            reference_finished=finished,
            reference_p_W=vec3(p_r),
            reference_yaw_rad=wrap_angle(yaw_r),
            position_error_m=math.dist(p_r, state.p_W) if state is not None else math.nan,
            yaw_error_rad=wrap_angle(yaw_r - yaw) if state is not None else math.nan,
            solver_status=result.status if result is not None else -1,
            solve_time_s=result.solve_time_s if result is not None else 0.0,
            cycle_time_s=0.0,
            fallback_cycles=self._fallback_cycles,
            deadline_misses=0,
            solver_failures=self._solver_failures,
        )

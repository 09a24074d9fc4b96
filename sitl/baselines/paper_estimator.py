"""The prior stack's estimator as a node: its published filter with the topics of this stack's estimator.

Measurements are used in order of arrival. For each one, the filter predicts from the newest stamp so far to its own,
with the attitude setpoints that were sent, and then updates; one with an older stamp, as an image has, updates the
present state. A `State` is published after each pose from the flight controller.
"""

import math

import numpy as np

from companion.core.arrays import Array, Vector
from companion.core.enums import FcuMode, Sensor
from companion.core.frames import quat_multiply, quat_normalized, rotation_matrix
from companion.core.messages import (
    EstimatorStatus,
    FcuAttitude,
    FcuPosition,
    FcuStatus,
    Innovation,
    Markers,
    Message,
    SentSetpoint,
    State,
)
from companion.core.node import Node
from companion.core.vehicle import Vehicle
from companion.estimation.layout import ERROR_SIZE
from sitl.baselines.paper_filter import PM, SIZE, B, P, PaperFilter, PaperUpdate
from sitl.baselines.paper_tables import PaperVehicle
from sitl.vectors import quat, vec3

# With an older command, or outside offboard, the filter predicts constant velocity and attitude without disturbance.
COMMAND_MAX_AGE_S = 0.5
POSE_GAP_S = 0.5  # a longer gap between poses restarts the filter
SETTLING_S = 1.0  # after a start until the state is valid
NOT_VALID_PERIOD_S = 0.1
# Sensor names in the log. In the prior stack, "pose" is position and attitude, and "odometry" is velocity.
LOGGED_AS = {"pose": Sensor.POSITION, "odometry": Sensor.VELOCITY, "marker": Sensor.MARKER}


class PaperEstimatorNode(Node):
    """Runs the published filter on the messages of this stack.

    paper: the numbers of the aircraft (`sitl.baselines.tuning.paper_tuning`). bundle: the only one to use, None: the first
    one observed.
    """

    name = "estimator"
    inputs = ("fcu_attitude", "fcu_position", "fcu_status", "markers", "sent_setpoint")
    rate_hz = 1.0 / NOT_VALID_PERIOD_S

    def __init__(self, vehicle: Vehicle, paper: PaperVehicle, bundle: str | None = None) -> None:
        super().__init__()
        self._paper = paper
        self._reference_voltage_v = vehicle.thrust.reference_voltage_v
        self._bundle = bundle
        self._p_BC, self._q_BC = np.array(vehicle.camera.p_BC), quat_normalized(vehicle.camera.q_BC)
        self._R_BC = rotation_matrix(self._q_BC)
        self.filter: PaperFilter | None = None
        self._started_s = self._updated_s = self._pose_s = self._marker_s = -math.inf
        self._attitude: Array | None = None
        self._commands: list[tuple[float, Array]] = []  # the newest two: (arrival [s], (thrust, roll, pitch, yaw rate))
        self._offboard = False
        self._voltage_v = math.nan
        self._resets = 0
        self._innovations: list[Innovation] = []
        self._rejected = dict.fromkeys(("pose", "odometry", "marker"), 0)

    # --- messages -----------------------------------------------------------------------------------------

    def handle_fcu_attitude(self, message: FcuAttitude, now_s: float) -> None:
        if message.valid:
            self._attitude = quat_normalized(message.q_WB)

    def handle_fcu_status(self, message: FcuStatus, now_s: float) -> None:
        self._offboard = message.armed and message.mode == FcuMode.OFFBOARD
        self._voltage_v = message.battery_voltage_v

    def handle_sent_setpoint(self, message: SentSetpoint, now_s: float) -> None:
        command = np.array([message.thrust, message.roll_rad, message.pitch_rad, message.yaw_rate_rad_s])
        self._commands = [*self._commands[-1:], (now_s, command)]

    def handle_fcu_position(self, message: FcuPosition, now_s: float) -> list[Message]:
        """Update with pose, then odometry: the prior stack's bridge published both from one message."""
        if not message.valid or self._attitude is None:
            return []
        gap_s, self._pose_s = message.stamp_s - self._pose_s, message.stamp_s
        if self.filter is None:
            self.filter = self._new_filter(message.p_W, self._attitude)
            self._started_s, self._updated_s = now_s, message.stamp_s
            return []
        if gap_s > POSE_GAP_S:
            self.filter.restart(gap_s, message.p_W, self._attitude)
            self._updated_s = message.stamp_s
            self._resets += 1
            return [self._state(now_s), self._status(now_s)]
        interval = self._interval(message.stamp_s)
        self._note("pose", now_s, message, self.filter.pose(*interval, message.p_W, self._attitude))
        v_B = rotation_matrix(self._attitude).T @ np.array(message.v_W)
        self._note("odometry", now_s, message, self.filter.odometry(*self._interval(message.stamp_s), v_B))
        return [self._state(now_s), self._status(now_s)]

    def handle_markers(self, message: Markers, now_s: float) -> None:
        if not message.valid or self.filter is None:
            return
        for observation in message.observations:
            if self._bundle is None:
                self._bundle = observation.bundle
            if observation.bundle != self._bundle:
                continue
            p_BM = self._p_BC + self._R_BC @ np.array(observation.best.p_CM)
            q_BM = quat_multiply(self._q_BC, quat_normalized(observation.best.q_CM))
            interval = self._interval(message.stamp_s) if self.filter.marker_known else (0.0, None)
            update = self.filter.marker(*interval, p_BM, q_BM)
            if update is None or update.accepted:
                self._marker_s = now_s
            self._note("marker", now_s, message, update)

    def _new_filter(self, p_W: Vector, q_WB: Vector) -> PaperFilter:
        return PaperFilter(self._paper.model.parameters, p_W, q_WB, self._paper.position_walks)

    def _interval(self, stamp_s: float) -> tuple[float, Array | None]:
        """Time since the newest stamp so far, 0 for an older one, and mean command over it; also starts the next interval."""
        before_s, self._updated_s = self._updated_s, max(self._updated_s, stamp_s)
        return self._updated_s - before_s, self._command(before_s, self._updated_s)

    def _command(self, before_s: float, now_s: float) -> Array | None:
        """Time-weighted mean of the last two commands over an interval; None: no recent command, or not in offboard."""
        if not self._offboard or not self._commands or now_s - self._commands[-1][0] > COMMAND_MAX_AGE_S:
            return None
        last_s, last = self._commands[-1]
        if len(self._commands) < 2 or now_s <= before_s:
            return last
        share = min(max((now_s - last_s) / (now_s - before_s), 0.0), 1.0)
        return share * last + (1.0 - share) * self._commands[0][1]

    def _note(self, sensor: str, now_s: float, message: Message, update: PaperUpdate | None) -> None:
        if update is None:
            return
        self._rejected[sensor] += not update.accepted
        late_s = now_s - message.stamp_s
        innovation = Innovation(
            message.stamp_s, LOGGED_AS[sensor], update.nis, update.size, update.accepted, update.noise_scale, late_s
        )
        self._innovations.append(innovation)

    # --- messages out -------------------------------------------------------------------------------------

    def step(self, now_s: float) -> list[Message]:
        """While the filter has not started, a state that is not valid shows that the process runs."""
        return [self._state(now_s)] if self.filter is None else []

    def _status(self, now_s: float) -> EstimatorStatus:
        innovations, self._innovations = self._innovations, []
        return EstimatorStatus(
            stamp_s=now_s, innovations=innovations, rejected=dict(self._rejected), dropped_late=0, update_time_s=0.0
        )

    def _state(self, now_s: float) -> State:
        f = self.filter
        if f is None:
            f = self._new_filter((0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))
        known = f.marker_known
        covariance = f.P
        relative = covariance[P, P] + covariance[PM, PM] - covariance[P, PM] - covariance[PM, P]
        observed = covariance[P, P] + covariance[B, B] + covariance[P, B] + covariance[B, P]
        return State(
            stamp_s=now_s,
            valid=self.filter is not None and now_s - self._started_s > SETTLING_S,
            p_W=vec3(f.p),
            v_W=vec3(f.v),
            q_WB=quat(f.q),
            disturbance_W=vec3(f.d),
            gnss_bias_W=vec3(f.b),
            velocity_bias_W=(0.0, 0.0, 0.0),
            bundle=self._bundle if known and self._bundle is not None else "",
            p_WM=vec3(f.p_M),
            q_WM=quat(f.q_M),
            # The published filter keeps no visibility of the marker; the mission derives it from this age.
            marker_age_s=now_s - self._marker_s,
            # Without a marker, only the sum of position and bias is observed. The process noise per call makes the
            # standard deviation of each grow without bound (at 50 Hz 0.8 m after 1 s, 5.5 m after 60 s). The prior
            # stack has no uncertainty monitor; with the deviation of the sum, the mission's monitors stay inactive.
            position_std_m=min(_largest_std(covariance[P, P]), _largest_std(observed)),
            relative_std_m=_largest_std(relative) if known else math.inf,
            covariance_diag=(*map(float, covariance.diagonal()), *(0.0,) * (ERROR_SIZE - SIZE)),
            battery_voltage_v=self._voltage_v if self._voltage_v > 0 else self._reference_voltage_v,
            reset_count=self._resets,
        )


def _largest_std(covariance: Array) -> float:
    return math.sqrt(max(float(np.linalg.eigvalsh(covariance)[-1]), 0.0))

"""The estimator node: flight controller state, marker observations and sent setpoints in, `State` out.

Messages only go into the history when they arrive; `step` brings the filter up to date, checks it and predicts
the newest belief to now. World W is the flight controller's local frame at the moment the filter starts (bias 0).
"""

from math import exp, hypot, isfinite

import numpy as np

from companion.core.clock import Stopwatch
from companion.core.frames import quat_conjugate, quat_multiply, quat_normalized
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
from companion.estimation.filter import ESTABLISHED, Belief, Eskf
from companion.estimation.history import Entry, History
from companion.estimation.inputs import Command, Inputs
from companion.estimation.layout import E_P, E_S, ERROR_SIZE, PM, QM, SENSORS, A, B, C, D, P, Q, S, U, V
from companion.estimation.marker_map import Relations
from companion.estimation.observations import Sighting, checked, choose, unclear
from companion.estimation.validity import converged, divergence, largest_std, persistently_rejected

START_AGE_S = 0.5  # attitude and position of the start may be this old
FUTURE_MAX_S = 0.05  # a stamp this far ahead is time-sync jitter and taken as now; more is a broken clock
VOLTAGE_TIME_S = 1.0  # smoothing of the battery voltage: load changes within a manoeuvre are not its level
INF = float("inf")

BLOCKS_EVERY = 10  # steps between two publications of the covariance's blocks
# upper triangles of the blocks of position, velocity, attitude, disturbance and GNSS bias
BLOCK_ROWS = [3 * block + i for block in range(5) for i in range(3) for _ in range(i, 3)]
BLOCK_COLUMNS = [3 * block + j for block in range(5) for i in range(3) for j in range(i, 3)]


class EstimatorNode(Node):
    """Estimates the state of the aircraft, the disturbance, the GNSS bias and the place of one bundle.

    bundle: name of the bundle to use, None for the first one seen. Others stand in for it while it is out of sight,
    once they were seen together with it (`companion.estimation.marker_map`). resets: where `State.reset_count` begins;
    more than any earlier process of the same flight had, so that a restarted one is known for it. Raises
    `companion.core.kernel.ArtifactMissing` when the kernels are not built.

    `EstimatorStatus.rejected` counts by name: the four sensors (gate), ``not_finite`` (unusable numbers),
    ``future`` (stamps ahead of the clock), ``duplicate``, ``marker_ambiguous`` (could not be told apart),
    ``marker_restart`` (the bundle was placed anew), ``marker_refused`` (sightings of a bundle that is not followed,
    because it contradicts the filter, see `companion.estimation.innovation_monitor`).
    """

    name = "estimator"
    inputs = ("fcu_attitude", "fcu_position", "fcu_status", "markers", "sent_setpoint")

    def __init__(
        self, vehicle: Vehicle, bundle: str | None = None, stopwatch: Stopwatch | None = None, resets: int = 0
    ) -> None:
        super().__init__()
        self.rate_hz = vehicle.estimator.rate_hz
        self.batch_window_s = 1.0 / self.rate_hz
        self._vehicle = vehicle
        self._stopwatch = stopwatch or Stopwatch()
        self._wanted = bundle
        self._bundle = bundle
        self._relations = Relations()
        self._filter = Eskf(vehicle)
        self._with_corners = vehicle.estimator.marker_mode == "corners"
        self._inputs = Inputs(vehicle.latency.actuation_s, vehicle.estimator.history_s)
        self._history: History | None = None
        self._attitude: tuple[float, np.ndarray] | None = None  # newest, for a start
        self._position: tuple[float, np.ndarray, np.ndarray] | None = None
        self._voltage_v: float | None = None
        self._voltage_stamp_s = -INF
        self._parameters = np.array(vehicle.model_parameters())
        self._innovations: list[Innovation] = []
        names = (*SENSORS, "not_finite", "future", "duplicate", "marker_ambiguous", "marker_restart", "marker_refused")
        self._rejected = dict.fromkeys(names, 0)
        self._dropped_late = 0  # of earlier histories
        self._resets = resets
        self._now_s = 0.0
        self._steps = 0
        self._blocks: tuple[float, ...] = ()
        self.last_reset_reason = ""

    # --- messages

    def handle_fcu_attitude(self, message: FcuAttitude, now_s: float) -> None:
        if (stamp_s := self._usable(message, now_s, message.q_WB)) is None:
            return
        try:
            q_WB = quat_normalized(message.q_WB)
        except ValueError:
            self._rejected["not_finite"] += 1
            return
        if self._attitude is None or stamp_s >= self._attitude[0]:
            self._attitude = (stamp_s, q_WB)
        self._insert(Entry(stamp_s, "attitude", q_WB), now_s)

    def handle_fcu_position(self, message: FcuPosition, now_s: float) -> None:
        if (stamp_s := self._usable(message, now_s, (*message.p_W, *message.v_W))) is None:
            return
        p_W, v_W = np.array(message.p_W), np.array(message.v_W)
        if self._position is None or stamp_s >= self._position[0]:
            self._position = (stamp_s, p_W, v_W)
        self._insert(Entry(stamp_s, "velocity", v_W), now_s)
        self._insert(Entry(stamp_s, "position", p_W), now_s)

    def handle_fcu_status(self, message: FcuStatus, now_s: float) -> None:
        if (stamp_s := self._usable(message, now_s, ())) is None:
            return
        changed_s = self._inputs.set_mode(stamp_s, message.armed and message.mode == "OFFBOARD")
        if changed_s is not None and self._history:
            self._history.touch(changed_s)
        voltage_v = message.battery_voltage_v
        if not (isfinite(voltage_v) and voltage_v > 0) or stamp_s <= self._voltage_stamp_s:
            return
        if self._voltage_v is None:
            self._voltage_v = voltage_v
        else:
            share = 1 - exp(-(stamp_s - self._voltage_stamp_s) / VOLTAGE_TIME_S)
            self._voltage_v += share * (voltage_v - self._voltage_v)
        self._voltage_stamp_s = stamp_s
        self._parameters = np.array(self._vehicle.model_parameters(self._voltage_v))

    def handle_sent_setpoint(self, message: SentSetpoint, now_s: float) -> None:
        control = (message.thrust, message.roll_rad, message.pitch_rad, message.yaw_rate_rad_s)
        if (stamp_s := self._usable(message, now_s, control)) is None:
            return
        changed_s = self._inputs.add_setpoint(stamp_s, Command(np.array(control), self._parameters))
        if self._history:
            self._history.touch(changed_s)

    def handle_markers(self, message: Markers, now_s: float) -> None:
        if (stamp_s := self._usable(message, now_s, ())) is None:
            return
        sightings = {}
        for observation in message.observations:
            sighting = checked(observation)
            if sighting is None:
                self._rejected["not_finite"] += 1
                continue
            if self._bundle is None and unclear(sighting):
                self._rejected["marker_ambiguous"] += 1
                continue
            sightings[observation.bundle] = sighting
        if self._history is None or not sightings:
            return
        if self._bundle is None:
            self._bundle = next(iter(sightings))
        own = sightings.pop(self._bundle, None)
        if own is None:
            own = self._relations.stand_in(sightings)
        else:
            for name, other in sightings.items():
                self._relations.learn(name, own, other)
        if own is not None:
            self._insert(Entry(stamp_s, "marker", own), now_s)

    def _usable(self, message: Message, now_s: float, numbers) -> float | None:
        """The stamp of a message that may be used, not after now; None (counted) for one that may not."""
        if not message.valid:
            return None
        if not isfinite(message.stamp_s) or not all(map(isfinite, numbers)):
            self._rejected["not_finite"] += 1
            return None
        if message.stamp_s > now_s + FUTURE_MAX_S:
            self._rejected["future"] += 1
            return None
        return min(message.stamp_s, now_s)

    def _insert(self, entry: Entry, now_s: float) -> None:
        if self._history is None:
            return
        if self._history.holds(entry):
            self._rejected["duplicate"] += 1
            return
        self._history.insert(entry, now_s)

    # --- the periodic work

    def step(self, now_s: float) -> list[Message]:
        """Bring the filter up to date and publish `State` (predicted to now) and `EstimatorStatus`."""
        start_s = self._stopwatch.read_s()
        self._now_s = now_s
        if self._history is None:
            self._start(now_s)
        state = self._estimate(now_s) if self._history else None
        if state is None:
            state = self._no_state(now_s)
        innovations, self._innovations = self._innovations, []
        dropped = self._dropped_late + (self._history.dropped_late if self._history else 0)
        status = EstimatorStatus(
            stamp_s=now_s,
            innovations=innovations,
            rejected=dict(self._rejected),
            dropped_late=dropped,
            update_time_s=self._stopwatch.read_s() - start_s,
            covariance_blocks=self._covariance_blocks(state),
            note=self._note(),
        )
        return [state, status]

    def _note(self) -> str:
        if self._history is None or not self._history.newest.contradiction.refused:
            return ""
        return f"bundle {self._bundle} contradicts the estimate, not followed"

    def _covariance_blocks(self, state: State) -> tuple[float, ...]:
        """See `EstimatorStatus`: now and then, because nobody flies by them."""
        blocks, self._blocks = self._blocks, ()
        return blocks if state.valid else ()

    def _start(self, now_s: float) -> None:
        """Begin at the newest attitude and position, if both are there and young."""
        if self._attitude is None or self._position is None:
            return
        (attitude_s, q_WB), (position_s, p_W, v_W) = self._attitude, self._position
        if now_s - min(attitude_s, position_s) > START_AGE_S:
            return
        start_s = max(attitude_s, position_s)
        belief = self._filter.start(start_s, p_W, v_W, q_WB)
        belief.accepted_s["attitude"] = attitude_s
        self._history = History(belief, self._vehicle.estimator.history_s)

    def _reset(self, reason: str) -> None:
        self._dropped_late += self._history.dropped_late
        self._history = None
        self._attitude = self._position = None  # start again from measurements yet to come
        self._bundle = self._wanted
        self._relations = Relations()  # perhaps they were what was wrong
        self._resets += 1
        self.last_reset_reason = reason

    def _estimate(self, now_s: float) -> State | None:
        """The state at now_s, or None when the filter has just diverged."""
        history = self._history
        history.fill_gap(now_s)
        history.run(self._apply)
        if reason := divergence(history.newest):
            self._reset(reason)
            return None
        belief = history.newest.copy()
        self._filter.advance(belief, now_s, self._inputs)
        if reason := divergence(belief):
            self._reset(reason)
            return None
        history.forget(now_s)
        self._inputs.forget(now_s)
        return self._state(belief, now_s)

    def _apply(self, belief: Belief, entry: Entry) -> None:
        """Move a belief to an entry's time and put its measurement in; tells of it the first time only."""
        self._filter.advance(belief, entry.stamp_s, self._inputs)
        first, entry.reported = not entry.reported, True
        if entry.sensor == "tick":
            return
        if entry.sensor == "marker":
            update = self._measure_marker(belief, entry.data, first)
        else:
            update = self._filter.measure(belief, entry.sensor, entry.data)
        if update is None or not first:
            return
        self._rejected[entry.sensor] += not update.accepted
        self._innovations.append(
            Innovation(
                stamp_s=entry.stamp_s,
                sensor=entry.sensor,
                nis=update.nis,
                dof=update.size,
                accepted=update.accepted,
                noise_scale=update.noise_scale,
                late_s=self._now_s - entry.stamp_s,
            )
        )

    def _measure_marker(self, belief: Belief, sighting: Sighting, first: bool):
        if persistently_rejected(belief, "marker"):  # the bundle moved, or was placed by a false pose
            self._filter.forget_marker(belief)
            self._rejected["marker_restart"] += first
        expected_q_CM = None
        if belief.marker_known:
            expected_q_CM = quat_multiply(quat_conjugate(self._filter.q_BC), self._filter.expected_rotation(belief))
        self._rejected["marker_refused"] += first and belief.contradiction.refused
        choice = choose(sighting, expected_q_CM)
        if self._with_corners and sighting.corners and belief.sightings >= ESTABLISHED:
            std = sighting.corner_noise_px / self._vehicle.camera.fx_px
            return self._filter.measure_bundle(belief, sighting.corners, std, choice)
        if choice is None:
            self._rejected["marker_ambiguous"] += first
            return None
        (p_CM, q_CM), covariance = choice
        return self._filter.measure_marker(belief, p_CM, q_CM, covariance)

    # --- messages out

    def _state(self, belief: Belief, now_s: float) -> State:
        x, covariance = belief.x.tolist(), belief.P
        self._steps += 1
        if self._steps % BLOCKS_EVERY == 0:
            self._blocks = tuple(covariance[BLOCK_ROWS, BLOCK_COLUMNS].tolist())
        position_std_m = largest_std(covariance[E_P, E_P])
        relative_std_m = self._relative_std_m(belief) if belief.marker_known else INF
        limit_m = self._vehicle.safety.position_std_m
        return State(
            stamp_s=now_s,
            valid=converged(belief, now_s, min(position_std_m, relative_std_m), limit_m),
            p_W=tuple(x[P]),
            v_W=tuple(x[V]),
            q_WB=tuple(x[Q]),
            disturbance_W=tuple(x[D]),
            gnss_bias_W=tuple(x[B]),
            velocity_bias_W=tuple(x[C]),
            attitude_bias_W=tuple(x[A]),
            mount_C=tuple(x[U]),
            thrust_scale=x[S][0],
            thrust_scale_std=float(covariance[E_S, E_S][0, 0]) ** 0.5,
            bundle=self._bundle if belief.marker_known else "",
            p_WM=tuple(x[PM]),
            q_WM=tuple(x[QM]),
            marker_age_s=now_s - belief.accepted_s.get("marker", -INF),
            position_std_m=position_std_m,
            relative_std_m=relative_std_m,
            covariance_diag=tuple(covariance.diagonal().tolist()),
            battery_voltage_v=self._voltage(),
            reset_count=self._resets,
        )

    def _relative_std_m(self, belief: Belief) -> float:
        """Of the position in the bundle's frame, with what no filter sees: the camera's calibration is a little off."""
        position_M, covariance = self._filter.relative(belief)
        camera, error_px = self._vehicle.camera, self._vehicle.estimator.camera_calibration_px
        return hypot(largest_std(covariance), error_px / camera.fx_px * hypot(*position_M.tolist()))

    def _no_state(self, now_s: float) -> State:
        zero, identity = (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)
        return State(
            stamp_s=now_s,
            valid=False,
            p_W=zero,
            v_W=zero,
            q_WB=identity,
            disturbance_W=zero,
            gnss_bias_W=zero,
            velocity_bias_W=zero,
            bundle="",
            p_WM=zero,
            q_WM=identity,
            marker_age_s=INF,
            position_std_m=INF,
            relative_std_m=INF,
            covariance_diag=(INF,) * ERROR_SIZE,
            battery_voltage_v=self._voltage(),
            reset_count=self._resets,
        )

    def _voltage(self) -> float:
        return self._voltage_v if self._voltage_v is not None else self._vehicle.thrust.reference_voltage_v

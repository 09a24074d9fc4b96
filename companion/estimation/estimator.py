"""The estimator node: flight controller state, marker observations and sent setpoints in, `State` out.

A message that arrives only enters the history. `step` brings the filter up to date, checks it and predicts the newest
filter state to now. World W is the flight controller's local frame at the moment when the filter starts (bias 0).
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from math import hypot, inf, isfinite, isnan, nan, sqrt

import msgspec
import numpy as np

from companion.core import precision
from companion.core.arrays import Array, Vector
from companion.core.clock import Stopwatch
from companion.core.enums import FcuMode, FilterOffset, Sensor
from companion.core.frames import quat_multiply, quat_normalized, rotation_matrix
from companion.core.geodesy import LocalFrame
from companion.core.messages import (
    BundleObservation,
    BundleWitness,
    EstimatorStatus,
    FcuAttitude,
    FcuImu,
    FcuPosition,
    FcuStatus,
    ImuReport,
    Innovation,
    MapBundle,
    Markers,
    Message,
    SentSetpoint,
    State,
)
from companion.core.node import Node
from companion.core.precision import near, rounded, rounded_to, significant
from companion.core.site import Plumb
from companion.core.trajectory_messages import Vec3
from companion.core.vehicle import Vehicle
from companion.core.voltage import ThrustVoltage
from companion.estimation import replay
from companion.estimation.adaptation import GROUPS, noise_scale
from companion.estimation.bundle_pairs import BundlePairs
from companion.estimation.bundle_witnesses import BundleWitnesses
from companion.estimation.camera_turn import CameraTurn, Turned
from companion.estimation.corner_filter import CornerFilters
from companion.estimation.filter import UP_M, Eskf, FilterUpdate
from companion.estimation.filter_state import ESTABLISHED, FilterState
from companion.estimation.history import History, HistoryEntry
from companion.estimation.imu import ForceWindows
from companion.estimation.imu_check import ImuCheck
from companion.estimation.inputs import ActingThrust, Command, Inputs
from companion.estimation.layout import ERROR_SIZE, OTHERS_MAX, SENSORS, SLOW_MAX, ErrorIndex, StateIndex
from companion.estimation.noise import initial_variances
from companion.estimation.observations import (
    DOWN,
    CheckedObservation,
    PlumbTest,
    check,
    choose_solution,
    hangs_upside_down,
    is_ambiguous,
    plumb_one,
    shown,
)
from companion.estimation.pose_covariance import PoseCovariances
from companion.estimation.replay import Replay, ReplayedState
from companion.estimation.runaway import put_back
from companion.estimation.survey import Surveyed, confirm, is_upheld, place_by_survey, remove_with_derived
from companion.estimation.validity import converged, divergence, largest_std, persistently_rejected
from companion.estimation.without_satellites import ALONE_VELOCITY_STD_MAX_M_S, HeightAiding, height_noise, settings_of
from companion.estimation.witnesses import FIX_MAX_S, GNSS_DELAY_S, Expected

START_AGE_S = 0.5  # largest age of the attitude and the position with which the filter starts
FUTURE_MAX_S = 0.05  # a stamp this far ahead is time-sync jitter and is taken as now; more is a wrong clock
VOLTAGE_TIME_S = 1.0  # smoothing of the battery voltage: the sag within a manoeuvre is not the level of the charge

FORCE_PERIOD_S = 0.02  # of the accelerometer in one measurement of the disturbance across the thrust
# Along it: long enough for the rotors to follow. Over some hundredths of a second they do not follow the command's jitter,
# which would be taken for a thrust that is too small; over several tenths the disturbance is known too late.
THRUST_PERIOD_S = 0.1
OFFSETS = tuple(FilterOffset)
# Markers of an image from which on no further bundle's corners are filtered, for the time that it takes.
FILTERED_MAX = 16
BLOCKS_EVERY = 10  # steps between two publications of the covariance's blocks
# upper triangles of the blocks of position, velocity, attitude, disturbance and GNSS bias
WITNESS_NUMBERS = tuple(f.name for f in msgspec.structs.fields(BundleWitness) if f.type is float)
STATE_SCALES = np.full(StateIndex.MOUNT_OFFSET.stop, 10.0**precision.ANGLE)  # of the nominal state as published
for _places, _decimals in (
    (StateIndex.POSITION, precision.POSITION),
    (StateIndex.VELOCITY, precision.SPEED),
    (StateIndex.ATTITUDE, precision.ATTITUDE),
    (StateIndex.DISTURBANCE, precision.FORCE),
    (StateIndex.GNSS_BIAS, precision.POSITION),
    (StateIndex.MARKER_POSITION, precision.POSITION),
    (StateIndex.MARKER_ATTITUDE, precision.ATTITUDE),
    (StateIndex.VELOCITY_BIAS, precision.SPEED),
):
    STATE_SCALES[_places] = 10.0**_decimals
BLOCK_ROWS = [3 * block + i for block in range(5) for i in range(3) for _ in range(i, 3)]
BLOCK_COLUMNS = [3 * block + j for block in range(5) for i in range(3) for j in range(i, 3)]


class Rejection(StrEnum):
    """Names in `EstimatorStatus.rejected` in addition to the sensors, whose counts are rejections by the gate."""

    NOT_FINITE = "not_finite"  # unusable numbers
    FUTURE = "future"  # a stamp ahead of the clock
    DUPLICATE = "duplicate"  # a repeated packet
    MARKER_UNKNOWN = "marker_unknown"  # of no bundle of the marker file, or with more markers than it has
    MARKER_AMBIGUOUS = "marker_ambiguous"  # two pose solutions, and the filter could not choose
    MARKER_RESTART = "marker_restart"  # the bundle was placed again
    MARKER_DISPLACED = "marker_displaced"  # observations of a bundle that is not where it was, see `witnesses`
    MARKER_CONTRADICTED = "marker_contradicted"  # observations that another bundle contradicts, see `bundle_pairs`
    MARKER_CORNERS = "marker_corners"  # images whose corners do not fit to those before, see `corner_filter`
    MARKER_UPSIDE_DOWN = "marker_upside_down"  # observations of a bundle whose `plumb` axis points down
    MARKER_REFUSED = "marker_refused"  # observations of a bundle that contradicts the filter, see `innovation_monitor`


class EstimatorNode(Node):
    """Estimates the state of the aircraft, the disturbance, the GNSS bias and the poses of all bundles that are seen.

    bundle: name of the mission's bundle, None for the first one seen. The others are a map with all correlations
    (`companion.estimation.filter_state`): in their sight the position relative to the mission's bundle is known as well as
    the map is.

    resets: first value of `State.reset_count`, which every restart of the filter increments by one. A process passes
    tenths of a second since boot. A new process then continues above every value of the process before, because the
    filter restarts less often than ten times a second; consumers detect any increase and never see a decrease. The
    number of restarts is a difference of two counts, never a count itself.

    adapt: False keeps the measurement noise at its nominal value.

    satellites: False for a flight controller without a position (`companion.estimation.without_satellites`).

    survey: surveyed poses of bundles; from the first of them that is seen, all others have a place.
    plumb: bundles of which an axis is vertical.
    known: the bundles of the marker file and how many markers each has; None: any name and number.

    `EstimatorStatus.rejected` counts by name: each sensor (rejected by its gate), each `Rejection`, `ImuFault` and
    `FilterOffset`. Raises `companion.core.kernel.ArtifactMissing` when the kernels are not built.
    """

    name = "estimator"
    inputs = ("fcu_attitude", "fcu_position", "fcu_imu", "fcu_status", "markers", "sent_setpoint")

    def __init__(
        self,
        vehicle: Vehicle,
        bundle: str | None = None,
        stopwatch: Stopwatch | None = None,
        resets: int = 0,
        adapt: bool = True,
        satellites: bool = True,
        survey: Mapping[str, Surveyed] | None = None,
        plumb: Mapping[str, Plumb] | None = None,
        known: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__()
        self.rate_hz = vehicle.estimator.rate_hz
        self.batch_window_s = 1.0 / self.rate_hz
        self.history: History | None = None  # None before the start
        self.acting_inputs = Inputs(vehicle.latency.actuation_s, vehicle.estimator.history_s)
        self.last_reset_reason = ""
        vehicle = vehicle if satellites else settings_of(vehicle)
        self._vehicle = vehicle
        self._stopwatch = stopwatch or Stopwatch()
        self._configured_bundle = bundle
        self._survey = survey or {}
        self._plumb = plumb or {}
        self._known = known
        self._leaning: dict[str, PlumbTest] = {}  # of bundles that are said to be plumb
        self._not_plumb: set[str] = set()  # bundles that do not hang as the marker file says
        self._upside_down: set[str] = set()  # of these, bundles that are not used
        self._bundle = bundle
        self._filter = Eskf(vehicle, adapt)
        self._replay = Replay(self._filter)
        self._replays = adapt and satellites
        self._height = None if satellites else HeightAiding()  # None: the flight controller has a position
        if self._height is not None:
            self._filter.nominal[Sensor.POSITION] = height_noise()
        walk_m_sqrt_s = vehicle.estimator.process.gnss_bias_m_sqrt_s
        self._across, self._along = ForceWindows(FORCE_PERIOD_S), ForceWindows(THRUST_PERIOD_S)
        self._flying = self._in_offboard = False
        self._fix_s = -inf  # stamp of the newest status with a fix that the flight controller uses
        self._imu_check = ImuCheck()
        self._prior = initial_variances(vehicle)
        self._covariances = PoseCovariances()
        self._turn = CameraTurn(vehicle.estimator.imu.gyro_rad_sqrt_s)
        self._witnesses = BundleWitnesses(self._filter.p_BC, self._filter.q_BC, walk_m_sqrt_s)
        self._pairs = BundlePairs()
        self._receiver_frame = LocalFrame()
        self._with_corners = vehicle.estimator.marker_mode == "corners"
        filters_corners = vehicle.estimator.camera.corner_drift_px > 0 and not self._with_corners
        self._corner_filters = CornerFilters(vehicle) if filters_corners else None
        self._attitude: tuple[float, Array] | None = None  # newest (stamp, q_WB), for a start
        self._position: tuple[float, Array, Array] | None = None  # newest (stamp, p_W, v_W), for a start
        self._accuracy_m: tuple[float, float] | None = None  # of the receiver: each horizontal axis, up
        self._voltage = ThrustVoltage(vehicle.thrust.reference_voltage_v)
        self._parameters = np.array(vehicle.model_parameters())
        self._innovations: list[Innovation] = []
        self._rejected: dict[str, int] = {str(name): 0 for name in (*SENSORS, *Rejection, *FilterOffset)}
        self._dropped_late = 0  # of earlier histories
        self._resets = resets
        self._now_s = 0.0
        # Of each further bundle: that of the position in its frame, and of its attitude.
        self._others_std: dict[str, tuple[float, float]] = {}
        self._steps = 0
        self._blocks: tuple[float, ...] = ()

    # --- messages

    def handle_fcu_attitude(self, message: FcuAttitude, now_s: float) -> None:
        if (stamp_s := self._usable(message, now_s, message.q_WB)) is None:
            return
        try:
            q_WB = quat_normalized(message.q_WB)
        except ValueError:
            self._rejected[Rejection.NOT_FINITE] += 1
            return
        if self._attitude is None or stamp_s >= self._attitude[0]:
            self._attitude = (stamp_s, q_WB)
        self._witnesses.add_attitude(stamp_s, q_WB)
        self._imu_check.add_attitude(stamp_s, tuple(q_WB.tolist()))
        self._insert(HistoryEntry(stamp_s, Sensor.ATTITUDE, q_WB), now_s)

    def handle_fcu_position(self, message: FcuPosition, now_s: float) -> None:
        if self._height is not None or (stamp_s := self._usable(message, now_s, (*message.p_W, *message.v_W))) is None:
            return
        p_W, v_W = np.array(message.p_W), np.array(message.v_W)
        self._imu_check.add_velocity(stamp_s, message.v_W)
        if self._position is None or stamp_s >= self._position[0]:
            self._position = (stamp_s, p_W, v_W)
        if not self._vehicle.fcu.send_odometry:
            self._witnesses.add_position(stamp_s, p_W, v_W)
        lost = self._lost_fix(stamp_s)
        self._insert(HistoryEntry(stamp_s, Sensor.VELOCITY, v_W, lost=lost), now_s)
        unaided = not self._witnesses.follows_satellites(stamp_s)
        self._insert(HistoryEntry(stamp_s, Sensor.POSITION, p_W, unaided=unaided, lost=lost), now_s)

    def handle_fcu_imu(self, message: FcuImu, now_s: float) -> None:
        """Propagation, and from the mean of FORCE_PERIOD_S a measurement of the disturbance while the aircraft flies."""
        values = (*message.gyro_B, *message.accel_B)
        if (stamp_s := self._usable(message, now_s, values)) is None:
            if all(map(isfinite, values)):
                self._imu_check.add_unusable(message.stamp_s, now_s)
            return
        verdict = self._imu_check.add(stamp_s, message.gyro_B, message.accel_B, now_s)
        if not verdict.use:
            self._witnesses.add_inertial(stamp_s, stamp_s, None)
            if verdict.withdraw_s < inf:
                self.acting_inputs.imu.withdraw_after(verdict.withdraw_s)
            if verdict.withdraw_s < inf and self.history is not None:
                self.history.invalidate_after(verdict.withdraw_s - THRUST_PERIOD_S / 2)
            return
        changed_s = self.acting_inputs.imu.add(stamp_s, values)
        if changed_s is None:
            self._rejected[Rejection.DUPLICATE] += 1
            return
        if self.history is not None:
            late = changed_s < self.history.newest_stamp_s
            self.history.invalidate_after(changed_s - (THRUST_PERIOD_S / 2 if late else 0.0))
        for part, windows in enumerate((self._across, self._along)):
            window = windows.add(stamp_s)
            if window is not None and windows is self._across:
                self._witnesses.add_inertial(*window, self.acting_inputs.imu.mean(*window) if self._flying else None)
            if window is not None and self._flying:
                # In the middle: at the end of the window the disturbance has walked on.
                data = np.array((*window, windows is self._along))
                self._insert(HistoryEntry(sum(window) / 2, Sensor.SPECIFIC_FORCE, data, part=part), now_s)

    def handle_fcu_status(self, message: FcuStatus, now_s: float) -> None:
        if (stamp_s := self._usable(message, now_s, ())) is None:
            return
        self._flying = message.armed and not message.landed
        self._in_offboard = message.armed and message.mode == FcuMode.OFFBOARD
        self._witnesses.set_taking_off(message.armed and message.mode == FcuMode.AUTO_TAKEOFF)
        self._witnesses.set_barometer(message.baro_altitude_m if self._in_offboard else nan)
        self._imu_check.set_at_rest(message.landed and not message.armed)
        changed_s = self.acting_inputs.set_mode(stamp_s, self._in_offboard)
        if changed_s is not None and self.history is not None:
            self.history.invalidate_after(changed_s)
        if not message.armed:
            self._witnesses.disarmed()
            self._pairs.forget()
        if self._height is not None:
            for entry in self._height.entries(message, stamp_s):
                self._insert(entry, now_s)
        self._add_receiver(message)
        if message.gnss_ok and isfinite(message.gnss_h_acc_m) and isfinite(message.gnss_v_acc_m):
            self._accuracy_m = (message.gnss_h_acc_m / sqrt(2), message.gnss_v_acc_m)
            if self.acting_inputs.accuracy_m.is_due(now_s):
                self.acting_inputs.accuracy_m.append(now_s, self._accuracy_m)
        if message.gnss_ok if self._vehicle.fcu.send_odometry else message.gnss_used:
            self._fix_s = stamp_s
            self._witnesses.add_fix(stamp_s, message.gnss_h_acc_m)
        voltage, for_thrust_v = self._voltage, message.thrust_voltage_v
        reported_v = message.battery_voltage_v if isnan(for_thrust_v) else for_thrust_v
        if stamp_s > voltage.stamp_s and voltage.take(reported_v, stamp_s, VOLTAGE_TIME_S):
            self._parameters = np.array(self._vehicle.model_parameters(voltage.value_v))

    def _lost_fix(self, now_s: float) -> bool:
        """Whether there is no fix any more. Without one from the beginning something else is PX4's position."""
        return now_s - self._fix_s > FIX_MAX_S and self._fix_s > -inf

    def _add_receiver(self, message: FcuStatus) -> None:
        """Let the witness have the receiver's solution; alone, where PX4's position contains the estimate of this node."""
        p_W, v_W = self._receiver_frame.received(message), message.gnss_v_W
        if p_W is None or self._position is None or not all(map(isfinite, (*p_W, *(v_W or ()), message.gnss_s))):
            return
        if not self._vehicle.fcu.send_odometry:
            self._witnesses.add_receiver(message.gnss_s, np.array(p_W))
        elif v_W is not None:
            vertical_m_s = float(self._position[2][2])
            self._witnesses.add_position(message.gnss_s - GNSS_DELAY_S, np.array(p_W), np.array((*v_W, vertical_m_s)))

    def handle_sent_setpoint(self, message: SentSetpoint, now_s: float) -> None:
        control = (message.thrust, message.roll_rad, message.pitch_rad, message.yaw_rate_rad_s)
        if (stamp_s := self._usable(message, now_s, control)) is None:
            return
        changed_s = self.acting_inputs.add_setpoint(stamp_s, Command(np.array(control), self._parameters))
        if self.history is not None:
            # A setpoint that arrives after it began to act changes the mean thrust of windows before it.
            self.history.invalidate_after(changed_s - (THRUST_PERIOD_S / 2 if changed_s < now_s else 0.0))

    def handle_markers(self, message: Markers, now_s: float) -> None:
        if (stamp_s := self._usable(message, now_s, ())) is None:
            return
        turned = self._camera_turned(stamp_s)
        observations: dict[str, CheckedObservation] = {}
        for received in self._possible(message):
            observation = check(received)
            if observation is None:
                self._rejected[Rejection.NOT_FINITE] += 1
                continue
            up_C = self._up_C(received.bundle, stamp_s)
            if self._is_upside_down(received.bundle, observation, up_C):
                self._rejected[Rejection.MARKER_UPSIDE_DOWN] += 1
                continue
            observation = self._plumb_one(received.bundle, observation, up_C)
            if observation is None or (self._bundle is None and is_ambiguous(observation)):
                self._rejected[Rejection.MARKER_AMBIGUOUS] += 1
                continue
            covariance = self._covariances.smoothed(
                received.bundle, observation.markers, stamp_s, observation.covariance
            )
            observations[received.bundle] = observation._replace(covariance=covariance)
        if self.history is None or not observations:
            return
        if self._bundle is None:
            self._bundle = next(iter(observations))
        contradicting = self._contradicting(stamp_s, observations)
        as_received = {o.bundle: o for o in message.observations}
        filtered = 0
        for part, name in enumerate(self._by_use(observations)):
            seen = observations[name]
            expected = self._expected(name, stamp_s)
            if not self._witnesses.agrees(name, stamp_s, seen.best.p_CM, seen.markers, seen.position_std_m, expected):
                self._rejected[Rejection.MARKER_DISPLACED] += 1
            elif name not in contradicting:
                further = "" if name == self._bundle else name
                if turned is not None and self._corner_filters is not None and filtered < FILTERED_MAX:
                    filtered += len(as_received[name].markers)
                    seen = self._corner_filters.refined(as_received[name], seen, turned)
                    self._rejected[Rejection.MARKER_CORNERS] += seen.doubtful
                self._insert(HistoryEntry(stamp_s, Sensor.MARKER, seen, part=part, bundle=further), now_s)

    def _up_C(self, name: str, stamp_s: float) -> Array | None:
        """The vertical in the camera's frame, (3,), for an image of a bundle that is said to be plumb; None: not known."""
        if name not in self._plumb or self.history is None:
            return None
        newest = self.history.newest
        q_WB = self._arrived_attitude(stamp_s + float(newest.nominal[StateIndex.CAMERA_DELAY][0]))
        if q_WB is None:
            return None
        up_C: Array = rotation_matrix(quat_multiply(q_WB, self._filter.mounted(newest)))[2]
        return up_C

    def _is_upside_down(self, name: str, observation: CheckedObservation, up_C: Array | None) -> bool:
        """Whether the bundle hangs the wrong way up: by this image, or by those before it where that one is not known."""
        if up_C is not None:
            down = hangs_upside_down(observation, up_C, UP_M[self._plumb[name].axis])
            (self._upside_down.add if down else self._upside_down.discard)(name)
        return name in self._upside_down

    def _plumb_one(self, name: str, observation: CheckedObservation, up_C: Array | None) -> CheckedObservation | None:
        """The observation with the pose that is plumb, as its bundle is said to be; None: it shows the flip of that one alone.

        Not for long: of a bundle that leans the flip may be plumb.
        """
        if up_C is None or name in self._not_plumb:
            return observation
        plumb = plumb_one(observation, up_C, UP_M[self._plumb[name].axis])
        leaning = self._leaning.get(name, PlumbTest())
        if observation.alternative is None:
            leaning = self._leaning[name] = leaning.updated(plumb is None)
        return observation if leaning.leans else plumb

    def _camera_turned(self, stamp_s: float) -> Turned | None:
        """Where the camera pointed in the image with this stamp; None before the start, and for an image that is late."""
        if self.history is None or self._corner_filters is None:
            return None
        newest = self.history.newest
        exposed_s = stamp_s + float(newest.nominal[StateIndex.CAMERA_DELAY][0])
        R_BC = rotation_matrix(self._filter.mounted(newest))
        return self._turn.advance(exposed_s, self.acting_inputs.imu, self._arrived_attitude, R_BC)

    def _arrived_attitude(self, time_s: float) -> Array | None:
        """Of the flight controller, never extrapolated."""
        arrived = self._attitude is not None and time_s <= self._attitude[0]
        return self._witnesses.attitude(time_s) if arrived else None

    def _possible(self, message: Markers) -> list[BundleObservation]:
        """One observation of each known bundle: an image of the tracker has no other, and each costs time."""
        seen = {o.bundle: o for o in message.observations}
        if self._known is not None:
            seen = {name: o for name, o in seen.items() if len(o.markers) <= self._known.get(name, -1)}
        own_first = sorted(seen, key=lambda name: name != self._bundle)[: OTHERS_MAX + 1]
        self._rejected[Rejection.MARKER_UNKNOWN] += len(message.observations) - len(own_first)
        return [seen[name] for name in own_first]

    def _expected(self, name: str, stamp_s: float) -> Expected | None:
        """Where the newest filter state has a bundle at stamp_s [s]; None: it does not know the bundle, or nothing of the attitude."""
        if self.history is None:
            return None
        newest = self.history.newest
        q_WB = self._witnesses.attitude(newest.time_s)
        if q_WB is None:
            return None
        further = "" if name == self._bundle else name
        if not further:
            known, p_WM = newest.marker_known, newest.nominal[StateIndex.MARKER_POSITION]
        else:
            known = name in newest.others and newest.others[name].marker_known
            p_WM = newest.pose(name)[:3] if known else np.zeros(3)
        if not known:
            return None
        nominal = newest.nominal
        moved_W = (stamp_s - newest.time_s) * nominal[StateIndex.VELOCITY]
        range_B = rotation_matrix(nominal[StateIndex.ATTITUDE]).T @ (p_WM - nominal[StateIndex.POSITION] - moved_W)
        shown_B = self._filter.as_mounted_by_file(newest, range_B)
        return Expected(rotation_matrix(q_WB) @ shown_B, self._relative_std_m(newest, further))

    def _by_use(self, observations: dict[str, CheckedObservation]) -> list[str]:
        """The bundles of an image that are used: the mission's first, then the best seen."""

        def std_m(name: str) -> float:
            return -inf if name == self._bundle else observations[name].position_std_m

        names = sorted(observations, key=std_m)
        return names[: SLOW_MAX + (self._bundle in observations)]

    def _contradicting(self, stamp_s: float, observations: dict[str, CheckedObservation]) -> frozenset[str]:
        """The bundles of an image that must not be used because of another bundle."""
        seen = {
            name: self._witnesses.observed(stamp_s, o.best.p_CM, o.position_std_m) for name, o in observations.items()
        }
        image = {name: o for name, o in seen.items() if o is not None and not is_ambiguous(observations[name])}
        contradicting = self._pairs.contradicting(image, seen.keys() - image.keys(), self._witnesses.breaks)
        self._rejected[Rejection.MARKER_CONTRADICTED] += len(contradicting)
        return contradicting

    def _usable(self, message: Message, now_s: float, numbers: Iterable[float]) -> float | None:
        """The stamp of a usable message, not after now; None for an unusable one, which is counted."""
        if not message.valid:
            return None
        if not isfinite(message.stamp_s) or not all(map(isfinite, numbers)):
            self._rejected[Rejection.NOT_FINITE] += 1
            return None
        if message.stamp_s > now_s + FUTURE_MAX_S:
            self._rejected[Rejection.FUTURE] += 1
            return None
        return min(message.stamp_s, now_s)

    def _insert(self, entry: HistoryEntry, now_s: float) -> None:
        if self.history is None:
            return
        if self.history.holds(entry):
            self._rejected[Rejection.DUPLICATE] += 1
            return
        self.history.insert(entry, now_s)

    # --- the periodic work

    def step(self, now_s: float) -> list[Message]:
        """Bring the filter up to date and publish `State` (predicted to now) and `EstimatorStatus`."""
        start_s = self._stopwatch.read_s()
        self._now_s = now_s
        self._imu_check.note_time(now_s)
        if self.history is None:
            self.history = self._start(now_s)
        state = None if self.history is None else self._estimate(self.history, now_s)
        if state is None:
            state = self._no_state(now_s)
        innovations, self._innovations = self._innovations, []
        dropped = self._dropped_late + (0 if self.history is None else self.history.dropped_late)
        status = EstimatorStatus(
            stamp_s=near(now_s, precision.TIME),
            innovations=innovations,
            rejected=self._rejected | self._imu_check.rejected,
            dropped_late=dropped,
            update_time_s=near(self._stopwatch.read_s() - start_s, precision.TIME),
            covariance_blocks=self._covariance_blocks(state),
            note=self._note(),
            witness=self._report(now_s),
            imu=ImuReport(
                near(self._imu_check.rate_hz, precision.RATIO), self._imu_check.fault, self._imu_check.problem
            ),
            runaways={offset: count for offset in OFFSETS if (count := self._rejected[offset])},
            upside_down=tuple(sorted(self._upside_down)),
        )
        return [state, status]

    def _report(self, now_s: float) -> BundleWitness:
        apart = self._pairs.report(now_s)
        witness = self._witnesses.report(self._bundle, now_s)
        witness.bundles_apart_m, witness.bundles_apart = apart.apart_m, apart.bundles
        for name in WITNESS_NUMBERS:
            setattr(witness, name, near(getattr(witness, name), precision.RATIO))
        return witness

    def _note(self) -> str:
        notes = [f"inertial measurements are not used: {self._imu_check.problem}"] if self._imu_check.problem else []
        if self.history is not None:
            notes += [
                f"bundle {name or self._bundle} contradicts the estimate; its observations are not used"
                for name in self.history.last.refused()
            ]
        notes += [f"{name} is not plumb as in the marker file, which is ignored" for name in sorted(self._not_plumb)]
        notes += [
            f"{name} hangs upside down: its {self._plumb[name].axis} axis points down; its observations are not used"
            for name in sorted(self._upside_down)
        ]
        return "; ".join(notes)

    def _covariance_blocks(self, state: State) -> tuple[float, ...]:
        """See `EstimatorStatus`; published in every BLOCKS_EVERY-th step only, because they serve evaluation."""
        blocks, self._blocks = self._blocks, ()
        return blocks if state.valid else ()

    def _start(self, now_s: float) -> History | None:
        """A history from the newest attitude and position; None while one of them is missing or too old."""
        if self._height is not None:
            return self._start_by_height(self._height, now_s)
        if self._attitude is None or self._position is None:
            return None
        (attitude_s, q_WB), (position_s, p_W, v_W) = self._attitude, self._position
        if now_s - min(attitude_s, position_s) > START_AGE_S:
            return None
        start_s = max(attitude_s, position_s)
        filter_state = self._filter.start(start_s, p_W, v_W, q_WB, self._accuracy_m)
        filter_state.accepted_s[Sensor.ATTITUDE] = attitude_s
        return History(filter_state, self._vehicle.estimator.history_s)

    def _start_by_height(self, height: HeightAiding, now_s: float) -> History | None:
        """The same without a position: where the aircraft is now is the horizontal zero of the world."""
        height_m = height.start_height_m(now_s)
        if self._attitude is None or height_m is None or now_s - self._attitude[0] > START_AGE_S:
            return None
        attitude_s, q_WB = self._attitude
        filter_state = self._filter.start(attitude_s, (0.0, 0.0, height_m), (0.0, 0.0, 0.0), q_WB)
        height.doubt_motion(filter_state)
        filter_state.accepted_s[Sensor.ATTITUDE] = attitude_s
        return History(filter_state, self._vehicle.estimator.history_s)

    def _reset(self, history: History, reason: str) -> None:
        self._dropped_late += history.dropped_late
        self.history = None
        self._attitude = self._position = None  # the next start uses later measurements
        self._bundle = self._configured_bundle
        self._resets += 1
        self.last_reset_reason = reason

    def _estimate(self, history: History, now_s: float) -> State | None:
        """The state at now_s, or None when the filter has just diverged."""
        history.fill_gap(now_s)
        history.run(self._apply, self._replayed if self._replays else None)
        if reason := divergence(history.last):
            self._reset(history, reason)
            return None
        filter_state = self._predicted(history, now_s)
        if reason := divergence(filter_state):
            self._reset(history, reason)
            return None
        for entry, settled in history.discard_old(now_s):
            satellites = self._height is None and not entry.lost and not entry.unaided
            position = entry.data if satellites and entry.sensor is Sensor.POSITION else None
            if isinstance(position, np.ndarray) and Eskf.near_bundle(then := settled()):
                self.acting_inputs.gnss_walk.add(entry.stamp_s, position - then.nominal[StateIndex.POSITION])
            # An image whose corners do not fit shows a wrong corner, not the mount.
            if entry.nis is not None and isinstance(entry.data, CheckedObservation) and not entry.data.doubtful:
                self.acting_inputs.mount_noise.add(entry.nis)
        self.acting_inputs.settle(now_s, self._flying)
        self._witnesses.set_measured_walk(sqrt(self.acting_inputs.gnss_walk.at(now_s) or 0.0))
        self.acting_inputs.discard_old(now_s)
        return self._state(filter_state, now_s)

    def _predicted(self, history: History, now_s: float) -> FilterState:
        """The newest filter state, predicted to now."""
        if self._replays:
            ahead = self._replay.run(history.last, [replay.pack_nothing(now_s)], self.acting_inputs).states
            if ahead:
                return ahead[0].filter_state()
        filter_state = history.newest.copy()
        self._filter.advance(filter_state, now_s, self.acting_inputs)
        return filter_state

    def _apply(self, filter_state: FilterState, entry: HistoryEntry) -> None:
        """Predict a filter state to an entry's time and use its measurement; reports the innovation once only."""
        self._filter.advance(filter_state, entry.stamp_s, self.acting_inputs)
        first, entry.reported = not entry.reported, True
        self._use(filter_state, entry, first)
        for offset in put_back(filter_state, self._prior):
            self._rejected[offset] += first

    def _use(self, filter_state: FilterState, entry: HistoryEntry, first: bool) -> None:
        """Use the measurement of an entry at whose time the filter state is."""
        sensor, data = entry.sensor, entry.data
        if sensor is None or data is None:
            return
        if isinstance(data, CheckedObservation):
            update = self._measure_bundle(filter_state, entry.bundle, data, first)
        elif sensor is Sensor.SPECIFIC_FORCE:
            update = self._measure_force(filter_state, *data.tolist())
        else:
            update = self._filter.measure(filter_state, sensor, data, entry.unaided, entry.lost)
            if sensor is Sensor.POSITION and self._height is not None and not self._in_offboard:
                self._height.anchor(filter_state)
        refused = isinstance(data, CheckedObservation) and entry.bundle in filter_state.refused()
        entry.nis = None if update is None or refused else update.nis / update.size
        if update is None or not first:
            return
        self._rejected[sensor] += not update.accepted
        self._report_innovation(
            entry.stamp_s, sensor, update.nis, update.size, update.accepted, update.noise_scale, entry.bundle
        )

    def _report_innovation(
        self, stamp_s: float, sensor: Sensor, nis: float, size: int, accepted: bool, noise_scale: float, bundle: str
    ) -> None:
        late_s = self._now_s - stamp_s
        self._innovations.append(
            Innovation(
                stamp_s=near(stamp_s, precision.TIME),
                sensor=sensor,
                nis=near(nis, precision.RATIO),
                dof=size,
                accepted=accepted,
                noise_scale=near(noise_scale, precision.RATIO),
                late_s=near(late_s, precision.TIME),
                bundle=bundle,
            )
        )

    def _replayed(self, start: FilterState | ReplayedState, entries: list[HistoryEntry]) -> list[ReplayedState]:
        """The filter states after the first entries, as far as nothing in them needs a decision; see `replay`."""
        packed: list[bytes] = []
        for entry in entries[: replay.ENTRIES_MAX]:
            if entry.sensor not in replay.TAKEN:
                break
            packed.append(self._packed(entry))
        if not packed:
            return []
        states, nis, scales = self._replay.run(start, packed, self.acting_inputs)
        for entry, entry_nis, scale in zip(entries, nis, scales, strict=False):
            first, entry.reported = not entry.reported, True
            if entry.sensor is None or isnan(entry_nis):
                entry.nis = None
                continue
            entry.nis = entry_nis / replay.SIZE
            if first:
                adapted = noise_scale(GROUPS[entry.sensor], scale)
                self._report_innovation(entry.stamp_s, entry.sensor, entry_nis, replay.SIZE, True, adapted, "")
        return states

    def _packed(self, entry: HistoryEntry) -> bytes:
        """An entry as a replay takes it. The mean force depends on samples and commands that may still arrive."""
        if entry.packed is not None:
            return entry.packed
        sensor, data = entry.sensor, entry.data
        if sensor is None or not isinstance(data, np.ndarray):
            return replay.pack_nothing(entry.stamp_s)
        if sensor is not Sensor.SPECIFIC_FORCE:
            entry.packed = replay.pack(entry.stamp_s, sensor, data, entry.lost)
            return entry.packed
        begin_s, end_s, along = data.tolist()
        force = self._mean_force(begin_s, end_s, along)
        if force is None:
            return replay.pack_nothing(entry.stamp_s)
        return replay.pack_force(entry.stamp_s, *force, end_s - begin_s)

    def _measure_force(
        self, filter_state: FilterState, begin_s: float, end_s: float, along: bool
    ) -> FilterUpdate | None:
        """Use the mean force of a window; None when samples or command are missing."""
        force = self._mean_force(begin_s, end_s, along)
        if force is None:
            return None
        commanded = self.acting_inputs.mean_thrust(begin_s, end_s) is not None
        return self._filter.measure_force(filter_state, *force, end_s - begin_s, commanded)

    def _mean_force(self, begin_s: float, end_s: float, along: bool) -> tuple[Vec3, ActingThrust | None] | None:
        """The mean force of a window, and the thrust's command if it is measured along the thrust; None: something is missing."""
        inputs = self.acting_inputs
        acting = inputs.mean_thrust(begin_s, end_s) if along else None
        f_B = inputs.imu.mean_force(begin_s, end_s)
        return None if f_B is None or (along and acting is None) else (f_B, acting)

    def _measure_bundle(
        self, filter_state: FilterState, further: str, observation: CheckedObservation, first: bool
    ) -> FilterUpdate | None:
        """Use an observation of a further bundle, or of the mission's if ``further`` is empty."""
        name = further or self._bundle or ""
        if further and not self._filter.begin_bundle(filter_state, further):
            return None
        update = self._measure_marker(filter_state, name, observation, first)
        established = filter_state.placement_score >= ESTABLISHED and not filter_state.contradiction.refused
        if established and name in self._plumb:
            established = self._hold_plumb(filter_state, name, first)
        if further:
            self._filter.end_bundle(filter_state, further)
        if established and name in self._survey:
            place_by_survey(self._filter, filter_state, self._survey, self._bundle, name)
        return update

    def _hold_plumb(self, filter_state: FilterState, name: str, first: bool) -> bool:
        """Measure that the axis of an established bundle is vertical; False: the bundle was placed the wrong way up, and is removed."""
        upward = self._filter.upward(filter_state, self._plumb[name])
        if upward < -DOWN:  # by images whose vertical was not known
            self._upside_down.add(name)
            remove_with_derived(self._filter, filter_state, name, self._bundle)
            self._rejected[Rejection.MARKER_RESTART] += first
            return False
        if name in self._not_plumb:
            return True
        plumb = self._filter.measure_plumb(filter_state, self._plumb[name])
        if upward < 0.0 or (plumb is not None and not plumb.accepted):
            self._rejected[Sensor.PLUMB] += 1
            self._not_plumb.add(name)
        return True

    def _measure_marker(
        self, filter_state: FilterState, name: str, observation: CheckedObservation, first: bool
    ) -> FilterUpdate | None:
        """Use an observation of the bundle; None when the filter cannot choose between two solutions."""
        # The bundle moved, or a false pose placed it. Under the pilot nothing speaks for the estimate without satellites.
        alone = self._height is not None and not self._in_offboard and filter_state.contradiction.refused
        by_survey = filter_state.surveyed_from is not None  # one that stands elsewhere is refused for good
        lost = not by_survey and (alone or persistently_rejected(filter_state, Sensor.MARKER))
        if lost and not is_upheld(filter_state, name):
            remove_with_derived(self._filter, filter_state, name, self._bundle)
            self._rejected[Rejection.MARKER_RESTART] += first
        self._rejected[Rejection.MARKER_REFUSED] += first and filter_state.contradiction.refused
        if not filter_state.marker_known:
            # What is known of the corners is of the rotation for which the bundle may just have been removed.
            return self._measure_pose(filter_state, observation.image or observation, None, first)
        expected_q_CM = self._filter.expected_rotation(filter_state)
        if filter_state.flips.ended:
            return self._measure_pose(filter_state, observation, expected_q_CM, first)
        image = shown(observation.image or observation, expected_q_CM)
        if not by_survey:
            filter_state.flips = filter_state.flips.updated(image)
        if filter_state.flips.found:
            remove_with_derived(self._filter, filter_state, name, self._bundle)
            self._rejected[Rejection.MARKER_RESTART] += first
            if not self._leaning.get(name, PlumbTest()).leans:
                self._not_plumb.discard(name)  # it was the flip that was not plumb
            return None
        update = self._measure_pose(filter_state, observation, expected_q_CM, first)
        if update is not None and update.accepted and image.agrees:
            filter_state.flips = filter_state.flips.agreed()
            if by_survey and filter_state.flips.ended:
                confirm(filter_state, name, self._bundle)
        return update

    def _measure_pose(
        self, filter_state: FilterState, observation: CheckedObservation, expected_q_CM: Vector | None, first: bool
    ) -> FilterUpdate | None:
        """Use one pose of an observation, or its corners; None when the filter cannot choose between two poses."""
        choice = choose_solution(observation, expected_q_CM)
        omega_B = self.acting_inputs.imu.rates_at(filter_state.time_s)
        if self._with_corners and observation.corners and filter_state.placement_score >= ESTABLISHED:
            std = observation.corner_noise_px / self._vehicle.camera.fx_px
            return self._filter.measure_bundle(filter_state, observation.corners, std, choice, omega_B)
        if choice is None:
            self._rejected[Rejection.MARKER_AMBIGUOUS] += first
            return None
        (p_CM, q_CM), covariance = choice
        if observation.doubtful:
            return self._filter.judge_marker(filter_state, p_CM, q_CM, covariance, omega_B)
        slow, markers = observation.slow, observation.markers
        return self._filter.measure_marker(
            filter_state, p_CM, q_CM, covariance, omega_B, slow, slow is not None, markers
        )

    # --- messages out

    def _state(self, filter_state: FilterState, now_s: float) -> State:
        nominal, covariance = rounded_to(filter_state.nominal, STATE_SCALES).tolist(), filter_state.covariance
        self._steps += 1
        if self._steps % BLOCKS_EVERY == 0:
            blocks = significant(covariance[BLOCK_ROWS, BLOCK_COLUMNS], precision.COVARIANCE_BITS)
            self._blocks = tuple(blocks.tolist())
        position_std_m = largest_std(covariance[ErrorIndex.POSITION, ErrorIndex.POSITION])
        relative_std_m = self._relative_std_m(filter_state) if filter_state.marker_known else inf
        limits = (inf, ALONE_VELOCITY_STD_MAX_M_S) if self._alone(now_s) else (self._vehicle.safety.position_std_m,)
        thrust_scale_variance = float(covariance[ErrorIndex.THRUST_SCALE, ErrorIndex.THRUST_SCALE][0, 0])
        return State(
            stamp_s=near(now_s, precision.TIME),
            valid=converged(filter_state, now_s, min(position_std_m, relative_std_m), *limits),
            p_W=tuple(nominal[StateIndex.POSITION]),
            v_W=tuple(nominal[StateIndex.VELOCITY]),
            q_WB=tuple(nominal[StateIndex.ATTITUDE]),
            disturbance_W=tuple(nominal[StateIndex.DISTURBANCE]),
            gnss_bias_W=tuple(nominal[StateIndex.GNSS_BIAS]),
            velocity_bias_W=tuple(nominal[StateIndex.VELOCITY_BIAS]),
            attitude_bias_W=tuple(nominal[StateIndex.ATTITUDE_BIAS]),
            mount_C=tuple(nominal[StateIndex.MOUNT]),
            thrust_scale=nominal[StateIndex.THRUST_SCALE][0],
            thrust_scale_std=near(thrust_scale_variance**0.5, precision.ANGLE),
            bundle=(self._bundle or "") if filter_state.marker_known else "",
            p_WM=tuple(nominal[StateIndex.MARKER_POSITION]),
            q_WM=tuple(nominal[StateIndex.MARKER_ATTITUDE]),
            marker_age_s=near(now_s - self._guided_s(filter_state, relative_std_m), precision.AGE),
            bundle_age_s=near(now_s - filter_state.accepted_s.get(Sensor.MARKER, -inf), precision.AGE),
            bundles=self._map(filter_state, now_s),
            position_std_m=near(position_std_m, precision.POSITION),
            relative_std_m=near(relative_std_m, precision.POSITION),
            covariance_diag=tuple(significant(covariance.diagonal()[:ERROR_SIZE], precision.DIAGONAL_BITS).tolist()),
            battery_voltage_v=near(self._voltage.value_v, precision.VOLTAGE),
            reset_count=self._resets,
        )

    def _alone(self, now_s: float) -> bool:
        """Whether nothing else has a place: without sight of a bundle the choice is between this estimate and none."""
        return self._height is not None or (self._in_offboard and self._lost_fix(now_s))

    def _guided_s(self, filter_state: FilterState, relative_std_m: float) -> float:
        """When the position relative to the mission's bundle was last measured, by that bundle or by the map.

        The map counts while the position is as certain as the row `uncertainty_relative` of the safety table demands.
        """
        own_s, sight = filter_state.accepted_s.get(Sensor.MARKER, -inf), filter_state.last_sight()
        by_map = filter_state.marker_known and relative_std_m <= self._vehicle.safety.relative_std_m
        return max(own_s, sight[0]) if by_map and sight is not None else own_s

    def _map(self, filter_state: FilterState, now_s: float) -> tuple[MapBundle, ...]:
        known = [(name, record) for name, record in filter_state.others.items() if record.marker_known]
        poses = {name: filter_state.pose(name).tolist() for name, _ in known}
        for name in poses:  # as often as the covariances are reported
            if self._steps % BLOCKS_EVERY == 0 or name not in self._others_std:
                std_m = self._relative_std_m(filter_state, name)
                attitude = slice(filter_state.errors_of(name).start + 3, filter_state.errors_of(name).stop)
                std_rad = largest_std(filter_state.covariance[attitude, attitude])
                self._others_std[name] = near(std_m, precision.POSITION), near(std_rad, precision.ANGLE)
        return tuple(
            MapBundle(
                name,
                rounded(poses[name][:3], precision.POSITION),
                rounded(poses[name][3:], precision.ATTITUDE),
                near(now_s - record.accepted_s[0], precision.AGE),
                *self._others_std[name],
            )
            for name, record in known
        )

    def _relative_std_m(self, filter_state: FilterState, name: str = "") -> float:
        """Std of the position in a bundle's frame, with the error of the camera's calibration, which is no state; "": the mission's."""
        position_M, covariance = self._filter.relative(filter_state, name)
        camera, error_px = self._vehicle.camera, self._vehicle.estimator.camera_calibration_px
        return hypot(largest_std(covariance), error_px / camera.fx_px * hypot(*position_M.tolist()))

    def _no_state(self, now_s: float) -> State:
        zero, identity = (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)
        return State(
            stamp_s=near(now_s, precision.TIME),
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
            marker_age_s=inf,
            position_std_m=inf,
            relative_std_m=inf,
            covariance_diag=(inf,) * ERROR_SIZE,
            battery_voltage_v=self._voltage.value_v,
            reset_count=self._resets,
        )

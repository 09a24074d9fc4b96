"""The error-state Kalman filter: filter state, prediction, measurement updates. Mathematics only, no transport.

The equations are symbols in `acados_gen.eskf_model` and run here as compiled kernels. This module adds everything that
is not a formula: which noise applies, whether a measurement is accepted, how a rejection is handled.
"""

from collections.abc import Iterable, Sequence
from math import hypot, inf, sqrt
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array, Vector
from companion.core.enums import Sensor
from companion.core.frames import quat_conjugate, quat_exp, quat_multiply, rotation_matrix, skew
from companion.core.kernel import Kernel
from companion.core.site import Plumb
from companion.core.vehicle import Vehicle
from companion.estimation.adaptation import new_window
from companion.estimation.filter_state import BUNDLE_SENSORS, ESTABLISHED, IN_SIGHT_S, FilterState, SlowSource
from companion.estimation.gating import Gate
from companion.estimation.gnss_walk import UNMEASURED_FACTOR, WALKED_MAX_M
from companion.estimation.imu import SHORTEST_S
from companion.estimation.imu_noise import Densities
from companion.estimation.innovation_monitor import MOVED_AGREEMENT, BiasTest, ContradictionTest, RejectionRun
from companion.estimation.inputs import ActingThrust, Inputs
from companion.estimation.layout import (
    BUNDLE_ERROR,
    BUNDLE_STATE,
    ERROR_SIZE,
    SAMPLES_MAX,
    SCALE_MAX,
    SENSORS,
    ErrorIndex,
    StateIndex,
    coast_shapes,
    correct_shapes,
    covariance_of,
    exchange_shapes,
    imu_shapes,
    kernel_name,
    predict_shapes,
    require_eskf,
    update_shapes,
)
from companion.estimation.noise import Propagation, forgetting_rates, initial_variances, process_variances
from companion.estimation.observations import FlipTest, MarkerId, Pose

# A new level of the GNSS: position innovations rejected for this long that agree with each other.
LEVEL_TIME_S = 2.0
LEVEL_COUNT = 10

# A step between the flight controller's velocity and the filter's: this many rejections in a row. The number is small,
# because each rejection also raises the adapted noise until the wrong velocity passes the gate: a step of 0.4 m/s
# passed after 15 of them.
VELOCITY_STEP_COUNT = 3

# Out of sight the inertial sensors and the flight controller's velocity carry the position along the bundle better than
# satellites for some seconds: those may jump by metres beside a pier, and nothing then separates a jump from motion. For so
# long after the last observation the bias takes what the position does; later the satellites are the better reference.
OUT_OF_SIGHT_S = (0.3, 15.0)
OUT_OF_SIGHT_FACTOR = 10.0  # on the bias' random walk
# The flight controller's filter corrects its velocity with the fix that moves its position: while the bias moves away from its
# low-pass by more than the satellites' ordinary walk, its velocity may be wrong by the excess times this rate.
JUMP_TIME_S = 0.5  # of the low-pass
JUMP_SIGMAS = 2.0
JUMP_VELOCITY_1_S = 4.0
# A flight controller that follows no satellites dead-reckons: by a tilt error of 1° its velocity is wrong by 0.5 m/s after 3 s.
UNAIDED_VELOCITY_M_S_SQRT_S = 0.3
UNAIDED_STD = 1e4  # [m, m/s] of a horizontal axis that is no measurement then
VERTICAL = np.array([0.0, 0.0, 1.0])

FORCE_STEP_COUNT = 2  # rejected specific forces in a row that are a gust: 40 ms
IMPACT_M_S2 = 8.0  # beyond this it is no gust: the ground, or a touch
UNUSED_AXIS_M_S2 = 100.0  # std of an axis that is no measurement
X, Y, Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
UP_M = {"y": np.array(Y), "z": np.array(Z)}  # the axis of a bundle that is plumb
# When it is vertical, two others are level; and the errors of the bundle's attitude by which they tilt.
LEVEL = {"y": ((*X, *Z), [2, 0]), "z": ((*X, *Y), [1, 0])}
PLUMB_AGAIN = 1.3  # variance over the stated one: the bundle may turn a little, by its process noise
UNUSED_RAD2 = 100.0
ACROSS, ALONG = np.array([1.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0])  # axes that a mean force measures

# Noise of the inertial stream and quickness of the disturbance as measured, over the vehicle file's. Sensors much noisier than
# the file's are those of PX4's SIH (4 times). In gusts the disturbance walks up to twice as quickly; in still air the file's
# quickness stays, because a gust that begins must be followed at once (a quarter of it let a push of 5.5 m/s² go 0.4 m further).
STREAM_FACTOR = 5.0
GUST_FACTOR = 2.0
STREAMS_MAX = 20  # measured densities whose noise is kept
MOVED = slice(ErrorIndex.VELOCITY.start, ErrorIndex.DISTURBANCE.stop)

NEAR_M = 6.0  # of a bundle: farther away its direction is worse than satellites are within a second
GNSS_LEVEL = slice(ErrorIndex.GNSS_BIAS.start, ErrorIndex.GNSS_BIAS.start + 2)

# Results of the kernels.
STATE, RESIDUAL, WHITENED, NIS, GAIN = 0, 1, 2, 3, 6

CORNERS_UNIT = np.eye(SENSORS[Sensor.CORNERS])
SOON_MAX = 1000.0  # on the variance of a lasting error; images at 30 Hz and ten seconds need 300
OFFSET_TIME_S = 0.3  # time in which a velocity error has made the offset that the bias test detects


def _bias_walk(variances: Array) -> tuple[Array, Array]:
    """Variances per second of the GNSS bias, (3,): with the bundle in sight, and out of sight."""
    walk = variances[ErrorIndex.GNSS_BIAS].copy()
    return walk, walk * OUT_OF_SIGHT_FACTOR**2


class FilterUpdate(NamedTuple):
    """Outcome of one measurement."""

    nis: float
    size: int
    accepted: bool
    noise_scale: float
    residual: Array


def _root(covariance: Array) -> Array:
    """L with L Lᵀ = covariance; without its correlations where it is singular, because nothing raises in flight."""
    try:
        root = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        root = np.diag(np.sqrt(np.maximum(covariance.diagonal(), 0.0)))
    return np.asarray(root, dtype=np.float64)


def bound_walk(covariance: Array, accuracy_m: tuple[float, float] | None) -> None:
    """Bound the satellites' error at WALKED_MAX_M, or at the receiver's accuracy where that is worse; in place.

    As a measurement of the error that says what the state says: what is correlated with it follows. Without its process noise in
    place of this, a walk that goes on was taken for motion of the aircraft, and turned the heading by up to 30°.
    """
    for axis in range(3):
        i, accuracy = ErrorIndex.GNSS_BIAS.start + axis, 0.0 if accuracy_m is None else accuracy_m[axis // 2]
        variance, largest = covariance[i, i], max(WALKED_MAX_M, accuracy) ** 2
        if variance > largest:
            gain = covariance[:, i] / variance
            covariance -= (variance - largest) * np.outer(gain, gain)


class Eskf:
    """The filter of one vehicle; works on a `FilterState` that the caller owns.

    adapt: False keeps the measurement noise at its nominal value. Raises `companion.core.kernel.ArtifactMissing` when
    the kernels are not built.
    """

    def __init__(self, vehicle: Vehicle, adapt: bool = True) -> None:
        library = require_eskf()
        self._predict = Kernel(library, kernel_name("predict"), predict_shapes())
        self._imu = Kernel(library, kernel_name("predict_imu"), imu_shapes())
        self._coast = Kernel(library, kernel_name("predict_coast"), coast_shapes())
        self._relative = Kernel(library, kernel_name("relative"))
        self._updates = {s: Kernel(library, kernel_name(f"update_{s}"), update_shapes(s)) for s in SENSORS}
        self._correct = Kernel(library, kernel_name("correct"), correct_shapes())
        self._exchange = Kernel(library, kernel_name("exchange"), exchange_shapes())
        for update in self._updates.values():  # what one has found, the other uses
            update.point(GAIN, self._correct.inputs[1].ctypes.data)

        settings = vehicle.estimator
        self._settings = {
            Sensor.POSITION: settings.position,
            Sensor.VELOCITY: settings.velocity,
            Sensor.ATTITUDE: settings.attitude,
            Sensor.MARKER: settings.marker,
            Sensor.CORNERS: settings.marker,
            Sensor.SPECIFIC_FORCE: settings.specific_force,
            Sensor.PLUMB: settings.marker,
        }
        self.gates = {s: Gate(self._settings[s].gate_probability, size) for s, size in SENSORS.items()}
        self.nominal = {s: self._settings[s].std ** 2 * np.eye(SENSORS[s]) for s in SENSORS if s not in BUNDLE_SENSORS}
        self._marker_factor = settings.marker.std**2
        self._slow_time_s = settings.camera.slow_pose_time_s
        self._initial = initial_variances(vehicle)
        self.adapts = adapt
        self._predict.inputs[2][:] = forgetting_rates(vehicle, Propagation.COMMAND)
        self._walk = {by: _bias_walk(process_variances(vehicle, by)) for by in Propagation}
        self._mount = process_variances(vehicle, Propagation.IMU)[ErrorIndex.MOUNT]
        self._noise_inputs = {
            Propagation.COMMAND: self._predict.inputs[3],
            Propagation.IMU: self._imu.inputs[3],
            Propagation.COAST: self._coast.inputs[1],
        }
        self._predict.inputs[3][:] = process_variances(vehicle, Propagation.COMMAND)
        self._predict.inputs[4][0] = settings.process.gust_factor**2
        self._updates[Sensor.SPECIFIC_FORCE].inputs[2][:] = vehicle.model_parameters()
        self._imu.inputs[2][:] = forgetting_rates(vehicle, Propagation.IMU)
        self._imu.inputs[3][:] = process_variances(vehicle, Propagation.IMU)
        self._coast.inputs[0][:] = forgetting_rates(vehicle, Propagation.COAST)
        self._coast.inputs[1][:] = process_variances(vehicle, Propagation.COAST)

        self._stream_file = process_variances(vehicle, Propagation.IMU)
        self.accel_2 = np.zeros(3)  # variance per hertz of the specific force, each axis
        self._measured: Densities | None = None
        self._streams: dict[Densities, tuple[Array, Array]] = {}
        # What the noise was last set for.
        self._noise_of: tuple[float, float | None, bool] | None = None
        # What a replay shares with this filter, see `companion.estimation.replay`.
        self.imu_rates, self.imu_noise = self._imu.inputs[2:]
        self.force_parameters, self.gain = self._updates[Sensor.SPECIFIC_FORCE].inputs[2], self._correct.inputs[1]

        self.p_BC = np.array(vehicle.camera.p_BC)
        self.q_BC = np.array(vehicle.camera.q_BC) / np.linalg.norm(vehicle.camera.q_BC)
        for sensor in BUNDLE_SENSORS:
            self._updates[sensor].inputs[2][:] = self.p_BC
            self._updates[sensor].inputs[3][:] = self.q_BC

    def start(
        self, time_s: float, p_W: Vector, v_W: Vector, q_WB: Vector, accuracy_m: tuple[float, float] | None = None
    ) -> FilterState:
        """A filter state at the flight controller's values: biases and disturbance zero, all with their initial std.

        accuracy_m: standard deviations of its position, horizontal of each axis and vertical, where they are reported. The position
        is then wrong by as much as the bias is, and by the opposite.
        """
        windows = {sensor: new_window(sensor, self._settings[sensor].window) for sensor in SENSORS}
        filter_state = FilterState(time_s, np.zeros(covariance_of(0, 0)[0].stop), windows, {}, {})
        nominal = filter_state.nominal
        nominal[StateIndex.POSITION] = p_W
        nominal[StateIndex.VELOCITY] = v_W
        nominal[StateIndex.ATTITUDE] = q_WB
        nominal[StateIndex.MARKER_ATTITUDE] = (1.0, 0.0, 0.0, 0.0)
        nominal[StateIndex.THRUST_SCALE] = 1.0
        np.fill_diagonal(filter_state.covariance, self._initial)
        if accuracy_m is None:
            return filter_state
        level, up = accuracy_m
        for axis, std_m in enumerate((level, level, up)):
            position, bias = ErrorIndex.POSITION.start + axis, ErrorIndex.GNSS_BIAS.start + axis
            variance = max(std_m**2, self._initial[position])
            filter_state.covariance[position, position] = variance
            filter_state.covariance[bias, bias] = variance + self._initial[position]
            filter_state.covariance[position, bias] = filter_state.covariance[bias, position] = -variance
        return filter_state

    # --- prediction

    def advance(self, filter_state: FilterState, time_s: float, inputs: Inputs) -> None:
        """Predict the filter state to time_s (not before its own time)."""
        now_s, imu = filter_state.time_s, inputs.imu
        self.begin(now_s, self._out_of_sight(filter_state), filter_state.covariance, inputs)
        while time_s - now_s > SHORTEST_S:
            samples, now_s = imu.cover(now_s, time_s)
            for at in range(0, len(samples), SAMPLES_MAX):
                self.predict_imu(filter_state, samples[at : at + SAMPLES_MAX])
            until_s = min(time_s, imu.resumes_s(now_s))
            for dt, command in inputs.segments(now_s, until_s):
                if command is None:
                    self.coast(filter_state, dt)
                else:
                    self.predict(filter_state, command.control, command.parameters, dt)
            now_s = max(until_s, now_s + SHORTEST_S)
        filter_state.time_s = max(filter_state.time_s, time_s)

    def begin(self, now_s: float, out_of_sight: bool, covariance: Array, inputs: Inputs) -> None:
        """Take the process noise that applies from now_s on, and bound the walk of the satellites' error; covariance: of the state."""
        mount, walk = inputs.mount_noise.at(now_s), inputs.gnss_walk.at(now_s)
        if (mount, walk, out_of_sight) != self._noise_of:
            self._noise_of = mount, walk, out_of_sight
            for by, noise in self._noise_inputs.items():
                noise[ErrorIndex.MOUNT] = self._mount * mount
                noise[ErrorIndex.GNSS_BIAS] = self._walk[by][out_of_sight]
                level = UNMEASURED_FACTOR**2 * self._walk[by][False][:2] if walk is None else walk
                noise[GNSS_LEVEL] = np.maximum(noise[GNSS_LEVEL], level)
        self.follow_stream(inputs.imu_noise.at(now_s))
        if not out_of_sight:
            bound_walk(covariance, inputs.accuracy_m.at(now_s))

    @staticmethod
    def _out_of_sight(filter_state: FilterState) -> bool:
        sight = filter_state.last_sight()
        if sight is None or filter_state.contradiction.refused:
            return False  # a refused bundle is in sight, and nothing is known about which of the two is wrong
        return OUT_OF_SIGHT_S[0] < filter_state.time_s - sight[0] < OUT_OF_SIGHT_S[1]

    def follow_stream(self, measured: Densities | None) -> None:
        """Take the noise of the inertial stream and the quickness of the disturbance from the stream; None: from the file.

        The vehicle file's numbers are for a good sensor in ordinary gusts: noise is at least that and at most STREAM_FACTOR
        times it, the disturbance's at most GUST_FACTOR times.
        """
        if measured is self._measured:
            return
        self._measured = measured
        noise, file = self._noise_inputs[Propagation.IMU], self._stream_file
        if measured is None:
            self.accel_2[:], noise[MOVED] = 0.0, file[MOVED]
            return
        if measured not in self._streams:  # a replay goes back and forth among the last few
            if len(self._streams) >= STREAMS_MAX:
                del self._streams[next(iter(self._streams))]
            self._streams[measured] = self._stream_noise(measured)
        self.accel_2[:], noise[MOVED] = self._streams[measured]

    def _stream_noise(self, measured: Densities) -> tuple[Array, Array]:
        """Variance per hertz of the specific force, (3,), and the process noise of MOVED."""
        file, noise, accel_2 = self._stream_file, self._stream_file.copy(), np.array(measured.accel)
        if (accel_2 > file[ErrorIndex.VELOCITY]).any():
            # Propellers that shake: most of a vibration is gone from the mean force, and its integral stays bounded. Motion
            # is left in the means, so the smaller of both counts.
            accel_2 = np.minimum(accel_2, measured.accel_mean)
        for block, density2 in ((ErrorIndex.ATTITUDE, measured.gyro), (ErrorIndex.VELOCITY, accel_2.mean())):
            noise[block] = np.clip(density2, file[block], STREAM_FACTOR**2 * file[block])
        level = slice(ErrorIndex.DISTURBANCE.start, ErrorIndex.DISTURBANCE.start + 2)
        noise[level] = np.clip(measured.disturbance, file[level], GUST_FACTOR**2 * file[level])
        return accel_2, noise[MOVED]

    @staticmethod
    def near_bundle(filter_state: FilterState) -> bool:
        """Whether an established bundle has just been observed from less than NEAR_M."""
        sight = filter_state.last_sight()
        if sight is None or filter_state.time_s - sight[0] >= OUT_OF_SIGHT_S[0]:
            return False
        way_W = sight[1] - filter_state.nominal[StateIndex.POSITION]
        return sqrt(float(way_W @ way_W)) < NEAR_M

    def predict(self, filter_state: FilterState, control: Vector, parameters: Vector, dt: float) -> None:
        """Predict state and covariance over dt [s] under a command; leaves the filter state's time unchanged."""
        kernel = self._predict
        u, k, _, _, _, step = kernel.inputs
        u[:] = control
        k[:] = parameters
        step[0] = dt
        kernel.point(STATE, filter_state.address)
        kernel()
        filter_state.by = Propagation.COMMAND

    def predict_imu(self, filter_state: FilterState, samples: Sequence[Sequence[float]]) -> None:
        """Predict state and covariance over IMU samples, at most SAMPLES_MAX; leaves the filter state's time unchanged.

        A sample: duration [s], angular rate ω_B [rad/s], specific force f_B [m/s²]; 7 numbers.
        """
        kernel = self._imu
        numbers = [number for sample in samples for number in sample]
        kernel.inputs[0][: len(numbers)] = numbers
        kernel.inputs[1][0] = len(samples)
        kernel.point(STATE, filter_state.address)
        kernel()
        filter_state.by = Propagation.IMU

    def coast(self, filter_state: FilterState, dt: float) -> None:
        """Predict state and covariance over dt [s] without a command; leaves the filter state's time unchanged."""
        kernel = self._coast
        kernel.inputs[2][0] = dt
        kernel.point(STATE, filter_state.address)
        kernel()
        filter_state.by = Propagation.COAST

    # --- measurements of the flight controller

    def measure(
        self, filter_state: FilterState, sensor: Sensor, y: Vector, unaided: bool = False, lost: bool = False
    ) -> FilterUpdate:
        """Position [m], velocity [m/s] or attitude (unit quaternion) of the flight controller at the filter's time.

        unaided: a position that follows no satellites, see `UNAIDED_VELOCITY_M_S_SQRT_S`. lost: there are none to follow. While
        the inertial sensors drive the prediction, horizontal position and velocity are no measurements then: the flight
        controller integrates the same sensors, without the bundle, and its velocity is wrong by metres per second after a minute.

        A position that stays at a new level is moved into the bias: after LEVEL_TIME_S of rejected innovations that
        agree with each other, the bias' covariance is inflated by the square of the level, so that the update changes
        the bias. p and p_M keep their covariance, and with it the position relative to the bundle.

        A velocity step may be an error of the flight controller or a true step that the model did not expect: after
        VELOCITY_STEP_COUNT rejections in a row, the variances of v and of its bias grow by the square of the step, and
        the next observations of the bundle or of the position resolve it. With its small covariance the bias would
        not move, the velocity would take most of the step, and the bundle, which contradicts it, would be rejected. While
        the inertial sensors drive the prediction, only the bias grows.
        """
        self._updates[sensor].inputs[0][:] = y
        nominal = self.nominal[sensor]
        if lost and sensor is not Sensor.ATTITUDE and filter_state.by is Propagation.IMU:
            return self._measure_vertical(filter_state, sensor, nominal)
        since_s = filter_state.time_s - filter_state.accepted_s.get(sensor, -inf)
        update = self._update(filter_state, sensor, nominal)
        if sensor == Sensor.POSITION:
            self._follow_jump(filter_state, since_s)
        if update.accepted:
            if unaided and self._out_of_sight(filter_state):
                doubt = UNAIDED_VELOCITY_M_S_SQRT_S**2 * min(since_s, JUMP_TIME_S)
                self._inflate(filter_state, (ErrorIndex.VELOCITY_BIAS,), doubt)
            return update
        run = filter_state.rejection_runs[sensor]
        if sensor == Sensor.POSITION and self._is_new_level(filter_state):
            self._inflate(filter_state, (ErrorIndex.GNSS_BIAS,), run.mean**2 + nominal.diagonal())
            del filter_state.rejection_runs[sensor]
            update = self._update(filter_state, sensor, nominal)
        elif sensor == Sensor.VELOCITY and run.length % VELOCITY_STEP_COUNT == 0:
            # The inertial sensors would have felt a true step.
            felt = filter_state.by is Propagation.IMU
            blocks = (ErrorIndex.VELOCITY_BIAS,) if felt else (ErrorIndex.VELOCITY, ErrorIndex.VELOCITY_BIAS)
            self._inflate(filter_state, blocks, run.mean**2)
            update = self._update(filter_state, sensor, nominal)
        return update

    def _measure_vertical(self, filter_state: FilterState, sensor: Sensor, nominal: Array) -> FilterUpdate:
        """Use the vertical number of the position or velocity in the kernel's inputs, which the barometer gives."""
        level = np.diag(np.where(VERTICAL > 0, nominal.diagonal(), UNAIDED_STD**2))
        filter_state.bias_before = None
        update = self._update(filter_state, sensor, level, vertical=True)
        run = filter_state.rejection_runs.get(sensor)
        if run is None or update.accepted:
            return update
        if sensor == Sensor.POSITION and self._is_new_level(filter_state):
            self._inflate(filter_state, (ErrorIndex.GNSS_BIAS,), run.mean**2)
            del filter_state.rejection_runs[sensor]
        elif sensor == Sensor.VELOCITY and run.length % VELOCITY_STEP_COUNT == 0:
            self._inflate(filter_state, (ErrorIndex.VELOCITY_BIAS,), run.mean**2)
        else:
            return update
        return self._update(filter_state, sensor, level, vertical=True)

    @staticmethod
    def _inflate(filter_state: FilterState, blocks: Iterable[slice], variances: Array | float) -> None:
        """Add variances, (3,), to the diagonal of blocks of the covariance."""
        for block in blocks:
            diagonal = np.arange(block.start, block.stop)
            filter_state.covariance[diagonal, diagonal] += variances

    def _follow_jump(self, filter_state: FilterState, since_s: float) -> None:
        """Doubt the flight controller's velocity while its position moves with the satellites; out of sight only."""
        bias = filter_state.nominal[StateIndex.GNSS_BIAS]
        before = filter_state.bias_before
        if not self._out_of_sight(filter_state) or before is None or not since_s < JUMP_TIME_S:
            filter_state.bias_before = bias.copy() if self._out_of_sight(filter_state) else None
            return
        shift = bias - before
        filter_state.bias_before = before + since_s / JUMP_TIME_S * shift
        measured = self._noise_of[1] if self._noise_of else None
        walk_m2_s = max(float(self._walk[filter_state.by][False][0]), measured or 0.0)
        usual_m = JUMP_SIGMAS * sqrt(walk_m2_s * JUMP_TIME_S / 2)  # a walk beside its own low-pass
        shift_m = hypot(*shift.tolist())
        if shift_m <= usual_m:
            return
        excess = (1 - usual_m / shift_m) * shift
        doubt = (JUMP_VELOCITY_1_S * excess) ** 2 * 2 * since_s / JUMP_TIME_S
        self._inflate(filter_state, (ErrorIndex.VELOCITY_BIAS,), doubt)

    @staticmethod
    def _is_new_level(filter_state: FilterState) -> bool:
        run = filter_state.rejection_runs[Sensor.POSITION]
        return run.length >= LEVEL_COUNT and filter_state.time_s - run.start_s >= LEVEL_TIME_S

    def measure_force(
        self,
        filter_state: FilterState,
        f_B: Vector,
        acting: ActingThrust | None,
        period_s: float = inf,
        commanded: bool = True,
    ) -> FilterUpdate:
        """Mean specific force [m/s²] over period_s [s], (3,): across the thrust, or along it with the thrust given.

        After FORCE_STEP_COUNT rejections in a row, the variance of the disturbance grows by the square of the step: a
        gust is not an outlier. An impact is one. commanded: False while another controller flies, so that the force along the
        thrust is never measured: a vertical disturbance that was doubted would then take what the ground does to a tilted aircraft.
        """
        f, u, k, _ = self._updates[Sensor.SPECIFIC_FORCE].inputs
        f[:] = f_B
        R = np.diag(np.maximum(self.nominal[Sensor.SPECIFIC_FORCE].diagonal(), self.accel_2 / period_s))
        if acting is None:
            measured, u[0], R[2, 2] = ACROSS, f_B[2] / k[0], UNUSED_AXIS_M_S2**2
        else:
            measured, u[0], k[:] = ALONG, acting.mean, acting.parameters
            R[0, 0] = R[1, 1] = UNUSED_AXIS_M_S2**2
        update = self._update(filter_state, Sensor.SPECIFIC_FORCE, R)
        if update.accepted:
            return update
        run = filter_state.rejection_runs[Sensor.SPECIFIC_FORCE]
        step2 = float(run.mean @ run.mean)
        if run.length % FORCE_STEP_COUNT == 0 and step2 < IMPACT_M_S2**2:
            # A gust has all directions. Along an axis that is not measured the variance does not become smaller again: it may
            # grow to the step's and not by it, or a touchdown makes the vertical disturbance 17 m/s².
            disturbance = filter_state.covariance[ErrorIndex.DISTURBANCE, ErrorIndex.DISTURBANCE].diagonal()
            doubt = np.maximum(step2 - (1.0 - measured) * disturbance, 0.0)
            if not commanded:
                doubt *= ACROSS  # of W: the aircraft is nearly level
            self._inflate(filter_state, (ErrorIndex.DISTURBANCE,), doubt)
            update = self._update(filter_state, Sensor.SPECIFIC_FORCE, R)
        return update

    # --- measurements of the bundle

    def measure_marker(
        self,
        filter_state: FilterState,
        p_CM: Vector,
        q_CM: Vector,
        covariance: Array,
        omega_B: Vector = (0.0, 0.0, 0.0),
        slow: Array | None = None,
        by_corners: bool = False,
        markers: frozenset[MarkerId] = frozenset(),
    ) -> FilterUpdate:
        """Pose of the bundle in the camera frame; covariance (6, 6) in the tracker's convention.

        slow: (6, 6) of the error that lasts over many images; None: the covariance is taken for it, too. by_corners, markers: whose
        error that is, see `_use_marker`.

        The first observation places the bundle: nominal pose from the observation, large prior covariance, then a
        normal update, which correlates the errors of the bundle with those of the aircraft.
        """
        if not filter_state.marker_known:
            self._place_bundle(filter_state, p_CM, q_CM)
        kernel = self._updates[Sensor.MARKER]
        of_image = self._enter_pose(p_CM, q_CM, covariance, omega_B, slow)
        in_use = not filter_state.contradiction.refused
        lasting = covariance if slow is None else slow
        update, R = self._use_marker(filter_state, of_image, lasting, by_corners, markers, in_use)
        if filter_state.placement_score < ESTABLISHED:
            # A single false pose may have placed the bundle: after two observations that disagree it is placed again.
            filter_state.placement_score += 1 if update.accepted else -1
            if filter_state.placement_score < 0:
                self.remove_bundle(filter_state)
            return update
        rejected = not update.accepted
        if self._is_biased(filter_state, kernel.outputs[WHITENED].tolist()):
            self._inflate_velocity(filter_state, p_CM)
            if rejected:
                update, R = self._use_marker(filter_state, of_image, lasting, by_corners, markers)
        self._check_contradiction(filter_state, rejected, update.residual, R)
        return update if in_use else update._replace(accepted=False)

    def judge_marker(
        self,
        filter_state: FilterState,
        p_CM: Vector,
        q_CM: Vector,
        covariance: Array,
        omega_B: Vector = (0.0, 0.0, 0.0),
    ) -> FilterUpdate | None:
        """As `measure_marker`, for an observation by which nothing is corrected; None where the bundle is not established.

        What it says of a bundle that has turned, or is another one, counts in the contradiction test and in the innovations. The
        noise does not follow it: it would, until a bundle that is wrong in most images passed the gate.
        """
        if filter_state.placement_score < ESTABLISHED:
            return None
        R = self._enter_pose(p_CM, q_CM, covariance, omega_B, None)
        update = self._update(filter_state, Sensor.MARKER, R, in_use=False, learns=False)
        self._check_contradiction(filter_state, not update.accepted, update.residual, R)
        return update._replace(accepted=False)

    def _enter_pose(self, p_CM: Vector, q_CM: Vector, covariance: Array, omega_B: Vector, slow: Array | None) -> Array:
        """A bundle's pose into the kernel's inputs; its noise R, (6, 6)."""
        kernel = self._updates[Sensor.MARKER]
        kernel.inputs[0][:] = p_CM
        kernel.inputs[1][:] = q_CM
        kernel.inputs[4][:] = omega_B
        kernel.inputs[5][:] = _root(covariance if slow is None else slow).ravel(order="F")
        R: Array = self._marker_factor * covariance
        return R

    def measure_corners(
        self,
        filter_state: FilterState,
        xy: Vector,
        corners_M: Vector,
        std: float,
        omega_B: Vector = (0.0, 0.0, 0.0),
    ) -> FilterUpdate:
        """The four corners of one marker of a bundle that is placed.

        xy: normalised image coordinates without lens distortion, (8,); corners_M: in the bundle's frame [m], (12,);
        std: of one coordinate.
        """
        kernel = self._updates[Sensor.CORNERS]
        kernel.inputs[0][:] = xy
        kernel.inputs[1][:] = corners_M
        kernel.inputs[4][:] = omega_B
        R = self._marker_factor * std * std * CORNERS_UNIT
        return self._update(filter_state, Sensor.CORNERS, R, not filter_state.contradiction.refused)

    def measure_bundle(
        self,
        filter_state: FilterState,
        corners: Iterable[tuple[Array, Array]],
        std: float,
        choice: tuple[Pose, Array] | None,
        omega_B: Vector = (0.0, 0.0, 0.0),
    ) -> FilterUpdate:
        """The corners of every marker of an established bundle, one marker after the other.

        corners: (image (8,), bundle (12,)) of each marker, at least one; std: of one coordinate; choice: pose and
        covariance of the whole bundle, None when two poses explain the image. Each marker has its own gate, so a wrong
        corner removes only the four corners of its marker. The corners are valid for both poses.
        """
        kernel = self._updates[Sensor.MARKER]
        if choice is not None:
            (p_CM, q_CM), covariance = choice
            kernel.inputs[0][:], kernel.inputs[1][:], kernel.inputs[4][:] = p_CM, q_CM, omega_B
            kernel.inputs[5][:] = _root(covariance).ravel(order="F")
            kernel.inputs[-1][:] = self._marker_factor * covariance
            kernel.point(STATE, filter_state.address)
            if self._is_biased(filter_state, kernel()[WHITENED].tolist()):
                self._inflate_velocity(filter_state, p_CM)
        updates = [self.measure_corners(filter_state, xy, corners_M, std, omega_B) for xy, corners_M in corners]
        good, in_use = [update for update in updates if update.accepted], not filter_state.contradiction.refused
        runs = filter_state.rejection_runs
        if good:
            if in_use:
                filter_state.accepted_s[Sensor.MARKER] = filter_state.time_s
            runs.pop(Sensor.MARKER, None)
        elif choice is not None:
            runs[Sensor.MARKER] = self._next_run(
                filter_state, Sensor.MARKER, kernel.outputs[RESIDUAL], kernel.inputs[-1]
            )
        else:
            run = runs.get(Sensor.MARKER) or RejectionRun(filter_state.time_s, 0, np.zeros(6))
            runs[Sensor.MARKER] = run._replace(length=run.length + 1)
        if choice is not None:
            self._check_contradiction(filter_state, not good, kernel.outputs[RESIDUAL].copy(), kernel.inputs[-1])
        reported = good or updates
        size, last = sum(update.size for update in reported), reported[-1]
        return FilterUpdate(sum(u.nis for u in reported), size, bool(good) and in_use, last.noise_scale, last.residual)

    def measure_plumb(self, filter_state: FilterState, plumb: Plumb) -> FilterUpdate | None:
        """That an axis of an established bundle is vertical; None while the filter knows it as well as it is stated.

        What a level showed is one error that stays. So the filter never becomes more certain than the statement: an axis
        with the variance P > σ² is measured with R = σ² P / (P − σ²), which leaves σ².
        """
        level_M, errors = LEVEL[plumb.axis]
        attitude = filter_state.covariance[ErrorIndex.MARKER_ATTITUDE, ErrorIndex.MARKER_ATTITUDE].diagonal()
        stated, known = plumb.std_rad**2, attitude[errors]
        if (known < PLUMB_AGAIN * stated).all():
            return None
        noise = np.where(known > 1.01 * stated, stated * known / np.maximum(known - stated, 0.01 * stated), UNUSED_RAD2)
        self._updates[Sensor.PLUMB].inputs[0][:] = level_M
        return self._update(filter_state, Sensor.PLUMB, np.diag(noise))

    @staticmethod
    def upward(filter_state: FilterState, plumb: Plumb) -> float:
        """Cosine to the vertical of the axis of the bundle that is said to point up."""
        R_WM = rotation_matrix(filter_state.nominal[StateIndex.MARKER_ATTITUDE])
        return float(R_WM[2] @ UP_M[plumb.axis])

    @staticmethod
    def _is_biased(filter_state: FilterState, whitened: Sequence[float]) -> bool:
        """True when the bundle was seen beside its position for some time and is not refused."""
        filter_state.bias_test, biased = filter_state.bias_test.updated(whitened)
        return biased and not filter_state.contradiction.refused

    def _check_contradiction(self, filter_state: FilterState, rejected: bool, residual: Array, nominal: Array) -> None:
        """Enter an observation of an established bundle into the contradiction test; nominal: its noise, (6, 6)."""
        test = filter_state.contradiction
        if test.refused and not rejected:
            rejected = test.scatters(residual, SCALE_MAX**2 * nominal, self.gates[Sensor.MARKER].limit)
        filter_state.contradiction = test.updated(rejected, filter_state.time_s, residual)

    def _inflate_velocity(self, filter_state: FilterState, p_CM: Vector) -> None:
        """Inflate what may be wrong when the bundle is seen at p_CM, and that is beside its position for some time.

        By the offset between both: the position, and the velocity and its bias. The inertial sensors would have felt a
        change of the velocity: while they drive the prediction, the camera's mount has moved instead.
        """
        nominal = filter_state.nominal
        # Without its sway, which may have taken a part of the offset.
        p_BM = self.p_BC + nominal[StateIndex.LEVER] + rotation_matrix(self.mounted(filter_state)) @ p_CM
        p_WB, q_WB = nominal[StateIndex.POSITION], nominal[StateIndex.ATTITUDE]
        offset = nominal[StateIndex.MARKER_POSITION] - p_WB - rotation_matrix(q_WB) @ p_BM
        self._inflate(filter_state, (ErrorIndex.POSITION,), offset**2)
        if filter_state.by is Propagation.IMU:
            self._inflate(filter_state, (ErrorIndex.MOUNT,), float(offset @ offset) / max(float(p_BM @ p_BM), 1e-6))
        else:
            self._inflate(filter_state, (ErrorIndex.VELOCITY, ErrorIndex.VELOCITY_BIAS), (offset / OFFSET_TIME_S) ** 2)

    def _use_marker(
        self,
        filter_state: FilterState,
        R: Array,
        lasting: Array,
        by_corners: bool,
        markers: frozenset[MarkerId],
        in_use: bool = True,
    ) -> tuple[FilterUpdate, Array]:
        """Judge and use the pose in the kernel's inputs; also the noise (6, 6) that it was given.

        ξ is the lasting error of one group of markers, seen in one way. Another group has another one: with one ξ for two errors of
        different size their difference would show it, and with it a pose that no image shows. While the group of ξ is in sight, the
        lasting error of another one is noise of its image; then ξ begins again with that group. Many images of it, or many beginnings,
        within the time constant of ξ have the same error, so each has as much more variance as lets all of them weigh as one.
        """
        now_s = filter_state.time_s
        source = filter_state.slow_source or SlowSource(by_corners, markers, now_s, now_s)
        if source.is_of(by_corners, markers):
            update = self._update(filter_state, Sensor.MARKER, R, in_use)
            if update.accepted and in_use:
                filter_state.slow_source = source._replace(seen_s=now_s)
            return update, R
        if now_s - source.seen_s < IN_SIGHT_S:
            R = R + self._soon(now_s - max(source.begun_s, source.other_s)) * lasting
            self._updates[Sensor.MARKER].inputs[5][:] = 0.0
            update = self._update(filter_state, Sensor.MARKER, R, in_use, learns=False)
            if update.accepted and in_use:
                filter_state.slow_source = source._replace(other_s=now_s)
            return update, R
        slow, P, before = ErrorIndex.SLOW_POSE, filter_state.covariance, filter_state.numbers.copy()
        filter_state.nominal[StateIndex.SLOW_POSE] = 0.0
        P[slow, :] = P[:, slow] = 0.0
        P[slow, slow] = self._soon(now_s - source.begun_s) * np.diag(self._initial[slow])
        update = self._update(filter_state, Sensor.MARKER, R, in_use)
        if update.accepted and in_use:
            filter_state.slow_source = SlowSource(by_corners, markers, now_s, now_s)
        else:
            filter_state.numbers[:] = before
        return update, R

    def _soon(self, since_s: float) -> float:
        """Factor on the variance of a lasting error that is new again after so short a time [s]."""
        return min(max(1.0, self._slow_time_s / max(since_s, SHORTEST_S)), SOON_MAX)

    def remove_bundle(self, filter_state: FilterState, name: str = "") -> None:
        """Remove a bundle's position from use; the next observation places the bundle again.

        name: of a further bundle, "" the one in the place of the mission's.
        """
        record = filter_state.record(name)
        removed = record._replace(
            marker_known=False,
            placement_score=0,
            bias_test=BiasTest(),
            contradiction=ContradictionTest(),
            flips=FlipTest(),
            windows=(new_window(Sensor.MARKER, self._settings[Sensor.MARKER].window), *record.windows[1:]),
            rejection_runs=(None, *record.rejection_runs[1:]),
            surveyed_from=None,
        )
        filter_state.set_record(name, removed)

    def expected_rotation(self, filter_state: FilterState) -> Array:
        """q_CM of the filter state, (4,)."""
        _, q_BC = self._camera(filter_state)
        q_WC = quat_multiply(filter_state.nominal[StateIndex.ATTITUDE], q_BC)
        return quat_multiply(quat_conjugate(q_WC), filter_state.nominal[StateIndex.MARKER_ATTITUDE])

    def as_mounted_by_file(self, filter_state: FilterState, point_B: Array) -> Array:
        """Where a point [m], (3,), seems to be in B to one who takes the camera's pose from the vehicle file."""
        p_BC, q_BC = self._camera(filter_state)
        shown_B: Array = self.p_BC + rotation_matrix(self.q_BC) @ rotation_matrix(q_BC).T @ (point_B - p_BC)
        return shown_B

    def mounted(self, filter_state: FilterState) -> Array:
        """q_BC, (4,), as the filter knows it, without the sway."""
        return quat_multiply(self.q_BC, quat_exp(filter_state.nominal[StateIndex.MOUNT_OFFSET]))

    def _camera(self, filter_state: FilterState) -> tuple[Array, Array]:
        """The camera's position in B [m], (3,), and q_BC, (4,), as the filter knows them."""
        nominal = filter_state.nominal
        turn = quat_multiply(quat_exp(nominal[StateIndex.MOUNT_OFFSET]), quat_exp(nominal[StateIndex.MOUNT]))
        return self.p_BC + nominal[StateIndex.LEVER], quat_multiply(self.q_BC, turn)

    def relative(self, filter_state: FilterState, name: str = "") -> tuple[Array, Array]:
        """Position in a bundle's frame [m], (3,), and its covariance, (3, 3); name: of a further bundle, "" the mission's."""
        self._relative.inputs[0][:] = filter_state.nominal
        self._relative.inputs[1][:] = filter_state.covariance[:ERROR_SIZE, :ERROR_SIZE]
        if name:  # that bundle in the place of the mission's
            rows, pose = filter_state.errors_of(name), filter_state.pose(name)
            self._relative.inputs[0][BUNDLE_STATE] = pose
            self._relative.inputs[1][BUNDLE_ERROR, :] = filter_state.covariance[rows, :ERROR_SIZE]
            self._relative.inputs[1][:, BUNDLE_ERROR] = filter_state.covariance[:ERROR_SIZE, rows]
            self._relative.inputs[1][BUNDLE_ERROR, BUNDLE_ERROR] = filter_state.covariance[rows, rows]
        position, covariance = self._relative()
        return position.copy(), covariance.copy()

    def _place_bundle(self, filter_state: FilterState, p_CM: Vector, q_CM: Vector) -> None:
        nominal, covariance = filter_state.nominal, filter_state.covariance
        p_WB, q_WB = nominal[StateIndex.POSITION], nominal[StateIndex.ATTITUDE]
        p_BC, q_BC = self._camera(filter_state)
        p_BM = p_BC + rotation_matrix(q_BC) @ p_CM
        nominal[StateIndex.MARKER_POSITION] = p_WB + rotation_matrix(q_WB) @ p_BM
        q_WM = quat_multiply(q_WB, quat_multiply(q_BC, q_CM))
        nominal[StateIndex.MARKER_ATTITUDE] = q_WM / np.linalg.norm(q_WM)
        # The bundle moves with the aircraft's errors. An independent prior would be information about the heading.
        R_WB = rotation_matrix(q_WB)
        rows = np.zeros((6, len(covariance)))
        rows[:3, ErrorIndex.POSITION] = np.eye(3)
        rows[:3, ErrorIndex.ATTITUDE] = -R_WB @ skew(p_BM)
        rows[3:, ErrorIndex.ATTITUDE] = rotation_matrix(q_WM).T @ R_WB
        bundle = BUNDLE_ERROR
        covariance[bundle, :] = covariance[:, bundle] = 0.0
        shared = rows @ covariance
        covariance[bundle, :], covariance[:, bundle] = shared, shared.T
        covariance[bundle, bundle] = shared @ rows.T + np.diag(self._initial[bundle])
        filter_state.marker_known = True

    # --- the map

    def begin_bundle(self, filter_state: FilterState, name: str) -> bool:
        """Let the further bundle `name` have the place of the mission's, until `end_bundle`; False while too many are in sight."""
        if not self.allocate(filter_state, name):
            return False
        self.end_bundle(filter_state, name)
        return True

    def allocate(self, filter_state: FilterState, name: str) -> bool:
        """Give a further bundle its places in the state; False while too many others are in sight."""
        if name in filter_state.slow:
            return True
        windows = tuple(new_window(sensor, self._settings[sensor].window) for sensor in BUNDLE_SENSORS)
        return filter_state.allocate(name, self._initial, windows)

    def end_bundle(self, filter_state: FilterState, name: str) -> None:
        """Exchange the bundle `name` and the mission's once more."""
        kernel = self._exchange
        kernel.inputs[0][0] = list(filter_state.others).index(name)
        kernel.inputs[1][0] = filter_state.slow.index(name)
        kernel.point(STATE, filter_state.address)
        kernel()
        filter_state.exchange_records(name)

    # --- the update of every sensor

    def _update(
        self,
        filter_state: FilterState,
        sensor: Sensor,
        nominal: Array,
        in_use: bool = True,
        vertical: bool = False,
        learns: bool = True,
    ) -> FilterUpdate:
        """Judge the measurement in the kernel's inputs and correct the filter state with it if it is accepted.

        nominal: measurement noise; in_use: False only judges; vertical: the other axes are no measurement, and the noise does not
        follow it; learns: whether the noise follows it. `FilterUpdate.accepted` is the result of the gate.
        """
        window, gate = filter_state.windows[sensor], self.gates[sensor]
        R = window.noise(nominal) if self.adapts else nominal
        kernel = self._updates[sensor]
        kernel.inputs[-1][:] = R
        kernel.point(STATE, filter_state.address)
        _, nu, _, nis_, matched, expected, _ = kernel()
        nis = float(nis_[0])
        accepted = gate.accepts(nis)
        if self.adapts and learns and not vertical:
            clip = gate.clip_factor(nis)
            filter_state.windows[sensor] = window.with_innovation(matched, expected, clip, gate.limit)
        if accepted:
            if in_use:
                self._correct.inputs[0][0] = len(nu)
                self._correct.point(STATE, filter_state.address)
                self._correct()
                filter_state.accepted_s[sensor] = filter_state.time_s
            filter_state.rejection_runs.pop(sensor, None)
        else:
            judged, noise = (nu * VERTICAL, self.nominal[sensor]) if vertical else (nu, nominal)
            filter_state.rejection_runs[sensor] = self._next_run(filter_state, sensor, judged, noise)
        return FilterUpdate(nis, len(nu), accepted, window.noise_scale, nu.copy())

    def _next_run(self, filter_state: FilterState, sensor: Sensor, nu: Array, nominal: Array) -> RejectionRun:
        """The rejection run with one more rejection.

        All positions of a run must agree to be a level. Of a bundle most must: it was moved, and some poses are flips.
        Agreement is judged with nominal noise: with adapted noise scattered outliers would count as a level.
        """
        run = filter_state.rejection_runs.get(sensor)
        if run is None:
            return RejectionRun(filter_state.time_s, 1, nu.copy())
        limit = Gate(self._settings[sensor].gate_probability, 3).limit
        if sensor == Sensor.POSITION and not run.agrees(nu, nominal, limit):
            return RejectionRun(filter_state.time_s, 1, nu.copy())
        if sensor == Sensor.MARKER and not run.agrees(nu, nominal, limit, MOVED_AGREEMENT):
            return run.reduced() or RejectionRun(filter_state.time_s, 1, nu.copy())
        return run.extended(nu)

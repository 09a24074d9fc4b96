"""Simulation for the estimator's tests, written with Euler angles and plain NumPy, independent of the flight model."""

import heapq
import itertools

import numpy as np

from companion.core.enums import FcuMode, SearchArea
from companion.core.frames import (
    quat_conjugate,
    quat_exp,
    quat_from_matrix,
    quat_from_rpy,
    quat_multiply,
    rotation_matrix,
    rpy_from_quat,
)
from companion.core.messages import (
    BundleObservation,
    FcuAttitude,
    FcuImu,
    FcuPosition,
    FcuStatus,
    Markers,
    PoseSolution,
    SentSetpoint,
    State,
)
from companion.estimation.layout import ERROR_SIZE, STATE_SIZE, ErrorIndex, StateIndex

G = 9.80665
# the face of the bundle points along -x of W
FACING = quat_from_matrix(np.array([[0.0, 0, -1], [-1, 0, 0], [0, 1, 0]]))
P_WM = np.array([4.2, 0.1, 2.2])
VECTORS = (
    (StateIndex.POSITION, ErrorIndex.POSITION),
    (StateIndex.VELOCITY, ErrorIndex.VELOCITY),
    (StateIndex.DISTURBANCE, ErrorIndex.DISTURBANCE),
    (StateIndex.GNSS_BIAS, ErrorIndex.GNSS_BIAS),
    (StateIndex.MARKER_POSITION, ErrorIndex.MARKER_POSITION),
    (StateIndex.VELOCITY_BIAS, ErrorIndex.VELOCITY_BIAS),
    (StateIndex.ATTITUDE_BIAS, ErrorIndex.ATTITUDE_BIAS),
    (StateIndex.THRUST_SCALE, ErrorIndex.THRUST_SCALE),
    (StateIndex.MOUNT, ErrorIndex.MOUNT),
    (StateIndex.GYRO_BIAS, ErrorIndex.GYRO_BIAS),
    (StateIndex.ACCEL_BIAS, ErrorIndex.ACCEL_BIAS),
    (StateIndex.LEVER, ErrorIndex.LEVER),
    (StateIndex.CAMERA_DELAY, ErrorIndex.CAMERA_DELAY),
    (StateIndex.BUNDLE_SCALE, ErrorIndex.BUNDLE_SCALE),
    (StateIndex.SLOW_POSE, ErrorIndex.SLOW_POSE),
    (StateIndex.MOUNT_OFFSET, ErrorIndex.MOUNT_OFFSET),
)  # slices of the state and of the error
ROTATIONS = ((StateIndex.ATTITUDE, ErrorIndex.ATTITUDE), (StateIndex.MARKER_ATTITUDE, ErrorIndex.MARKER_ATTITUDE))


def derivative(s, command, d, k):
    """ṡ of s = (p, v, roll, pitch, yaw), written out; k: k_T, drag, time constant and gain of roll, then of pitch, rotor drag."""
    roll, pitch, yaw = s[6:9]
    k_T, drag = k[0], np.asarray(k[1:4])
    thrust = k_T * command[0]
    a = np.array(
        [
            thrust * (np.cos(yaw) * np.sin(pitch) * np.cos(roll) + np.sin(yaw) * np.sin(roll)),
            thrust * (np.sin(yaw) * np.sin(pitch) * np.cos(roll) - np.cos(yaw) * np.sin(roll)),
            thrust * np.cos(pitch) * np.cos(roll) - G,
        ]
    )
    a = a - drag * s[3:6] + d - rotor_drag(s[3:6], rotation_matrix(quat_from_rpy(roll, pitch, yaw)), thrust, k)
    rates = [(k[5] * command[1] - roll) / k[4], (k[7] * command[2] - pitch) / k[6], command[3]]
    return np.concatenate([s[3:6], a, rates])


def with_rotor_drag(vehicle):
    """The vehicle's parameters with rotor drag."""
    return np.array([*vehicle.model_parameters()[:-2], 0.12, 0.02])


def rotor_drag(v_W, R_WB, thrust, k):
    """Deceleration in W by the first two components of the velocity in B."""
    v_B = R_WB.T @ v_W
    return R_WB @ ((k[8] + k[9] * thrust) * np.array([v_B[0], v_B[1], 0.0]))


def integrate(s, command, d, k, duration_s, step_s=0.001):
    """Heun's method in small steps."""
    s = np.array(s, dtype=float)
    for _ in range(round(duration_s / step_s)):
        k1 = derivative(s, command, d, k)
        k2 = derivative(s + step_s * k1, command, d, k)
        s = s + step_s / 2 * (k1 + k2)
    return s


def boxplus(x, e):
    """x ⊞ e, written out."""
    out = np.array(x, dtype=float)
    for at, error in VECTORS:
        out[at] += e[error]
    for at, error in ROTATIONS:
        out[at] = quat_multiply(x[at], quat_exp(e[error]))
    return out


def log(q):
    w, v = (q[0], q[1:]) if q[0] >= 0 else (-q[0], -q[1:])
    n = np.linalg.norm(v)
    return 2 * v if n < 1e-12 else 2 * np.arctan2(n, w) / n * v


def boxminus(a, b):
    """The error e with a = b ⊞ e."""
    e = np.empty(ERROR_SIZE)
    for at, error in VECTORS:
        e[error] = a[at] - b[at]
    for at, error in ROTATIONS:
        e[error] = log(quat_multiply(quat_conjugate(b[at]), a[at]))
    return e


def reset(x, correction):
    """G, (51, 51): the error after a correction of x in terms of the error before it, see `eskf_model.inject`.

    Of the bundle the exact Jacobian of the rotation vector. An error of the aircraft's attitude is a turn φ = R δθ of the
    world's vectors, of the bundle as of the aircraft: it stays the same turn, so what it turns is counted from the
    corrected estimate. Written with the turn as a coordinate of its own, independent of the model's expression.
    """
    after = boxplus(x, correction)
    G, turned, turned_after = np.eye(ERROR_SIZE), turn_direction(x), turn_direction(after)
    r, step = correction[ErrorIndex.MARKER_ATTITUDE], 1e-5
    columns = [
        log(quat_multiply(quat_exp(-r), quat_exp(r + e))) - log(quat_multiply(quat_exp(-r), quat_exp(r - e)))
        for e in step * np.eye(3)
    ]
    G[ErrorIndex.MARKER_ATTITUDE, ErrorIndex.MARKER_ATTITUDE] = np.array(columns).T / (2 * step)
    # error = N φ + rest, rest without attitude: φ = R δθ
    R = rotation_matrix(x[StateIndex.ATTITUDE])
    G[:, ErrorIndex.ATTITUDE] = 0.0
    return G + (turned_after - G @ turned) @ R @ np.eye(ERROR_SIZE)[ErrorIndex.ATTITUDE]


def turn_direction(x):
    """N, (51, 3): errors of x that are a small turn φ of everything about the origin of W, ∂e/∂φ."""
    N, step = np.zeros((ERROR_SIZE, 3)), 1e-6
    for i, phi in enumerate(step * np.eye(3)):
        N[:, i] = (boxminus(turned(x, phi), x) - boxminus(turned(x, -phi), x)) / (2 * step)
    return N


def turned(x, phi):
    """x with aircraft, its velocity, the disturbance and the bundle turned by φ [rad] about the origin of W."""
    out, q = np.array(x, dtype=float), quat_exp(phi)
    for vector in (StateIndex.POSITION, StateIndex.VELOCITY, StateIndex.DISTURBANCE, StateIndex.MARKER_POSITION):
        out[vector] = rotation_matrix(q) @ x[vector]
    for attitude in (StateIndex.ATTITUDE, StateIndex.MARKER_ATTITUDE):
        out[attitude] = quat_multiply(q, x[attitude])
    return out


def random_state(rng, tilt=0.3):
    x = rng.normal(size=STATE_SIZE)
    x[StateIndex.ATTITUDE] = quat_from_rpy(*rng.uniform(-tilt, tilt, 2), rng.uniform(-3, 3))
    x[StateIndex.MARKER_ATTITUDE] /= np.linalg.norm(x[StateIndex.MARKER_ATTITUDE])
    for small in (StateIndex.MOUNT, StateIndex.MOUNT_OFFSET):
        x[small] *= 0.05  # [rad]: a camera turned by more would not see the bundle
    x[StateIndex.LEVER] *= 0.05
    x[StateIndex.CAMERA_DELAY] *= 0.02
    x[StateIndex.BUNDLE_SCALE] *= 0.02
    return x


def camera_at(x, p_BC, q_BC, omega_B=(0.0, 0.0, 0.0)):
    """(p_WC, q_WC): where the camera of the state x was when it took the image, rotation by rotation."""
    delay = x[StateIndex.CAMERA_DELAY].item()
    q_WB = quat_multiply(x[StateIndex.ATTITUDE], quat_exp(delay * np.asarray(omega_B)))
    p_WB = x[StateIndex.POSITION] + delay * x[StateIndex.VELOCITY]
    q_WC = quat_multiply(q_WB, q_BC)
    for turn in (StateIndex.MOUNT_OFFSET, StateIndex.MOUNT):
        q_WC = quat_multiply(q_WC, quat_exp(x[turn]))
    return p_WB + rotation_matrix(q_WB) @ (np.asarray(p_BC) + x[StateIndex.LEVER]), q_WC


def bundle_pose(x, p_BC, q_BC, omega_B=(0.0, 0.0, 0.0)):
    """(p_CM, q_CM) that a tracker with the assumed sizes sees in a camera on the state x."""
    p_WC, q_WC = camera_at(x, p_BC, q_BC, omega_B)
    p_CM = rotation_matrix(q_WC).T @ (x[StateIndex.MARKER_POSITION] - p_WC)
    q_CM = quat_multiply(quat_conjugate(q_WC), x[StateIndex.MARKER_ATTITUDE])
    return (1 - x[StateIndex.BUNDLE_SCALE].item()) * p_CM, q_CM


def force_seen(x, thrust, k):
    """Specific force of the model in B, (3,)."""
    R, v, thrust = (
        rotation_matrix(x[StateIndex.ATTITUDE]),
        x[StateIndex.VELOCITY],
        x[StateIndex.THRUST_SCALE].item() * k[0] * thrust,
    )
    air_W = x[StateIndex.DISTURBANCE] - k[1:4] * v - rotor_drag(v, R, thrust, k)
    return np.array([0.0, 0.0, thrust]) + air_W @ R + x[StateIndex.ACCEL_BIAS]


def inertial(before, after, duration_s):
    """Mean angular rate ω_B and specific force f_B, (6,), between two s = (p, v, roll, pitch, yaw)."""
    q = quat_from_rpy(*before[6:9])
    turn = log(quat_multiply(quat_conjugate(q), quat_from_rpy(*after[6:9])))
    force_W = (after[3:6] - before[3:6]) / duration_s + (0.0, 0.0, G)
    middle = rotation_matrix(quat_multiply(q, quat_exp(turn / 2)))
    return np.concatenate([turn / duration_s, force_W @ middle])


class VelocityError:
    """The slow error c of the flight controller's velocity: first-order Gauss-Markov on each axis, exact in its steps.

    std: [m/s], from the start; time_constant_s: its correlation falls to 1/e in this time.
    """

    def __init__(self, std, time_constant_s, rng):
        self.std, self.time_constant_s, self.rng = std, time_constant_s, rng
        self.c = std * rng.normal(size=3)

    def step(self, dt):
        keep = np.exp(-dt / self.time_constant_s)
        self.c = keep * self.c + self.std * np.sqrt(1 - keep**2) * self.rng.normal(size=3)


class HoverSimulation:
    """A hover in front of a bundle; delivers the messages of the stack with their delays to an estimator node.

    These may be set at any time: `marker_seen`, `offboard`, `gnss_jump` (3,), `outlier` (callable of the time or None),
    `marker_turn` (quaternion or None: observations are turned by it), `thrust_jitter` (callable or None: added to the
    thrust that is sent, but without effect on the motion, as if the motors filtered it out), `edit` (callable or None:
    message -> message, None drops the message), `imu` (whether HIGHRES_IMU is streamed at 200 Hz), `imu_bias` (6,). The flight
    controller's velocity has the noise and the slow error `velocity_error` of the vehicle file.
    """

    STEP_S = 0.005
    DELAYS = {"attitude": 0.03, "position": 0.06, "markers": 0.1, "status": 0.02, "imu": 0.01}
    IMU_STD = np.array([0.01] * 3 + [0.3] * 3)  # of a mean over 5 ms [rad/s], [m/s²]: vibration

    def __init__(self, vehicle, seed=0, noise=1.0, disturbance=(0.6, -0.4, 0.2), delays=None, imu=False):
        self.vehicle, self.k = vehicle, vehicle.model_parameters()
        self.rng = np.random.default_rng(seed)
        self.noise = noise
        self.d = np.array(disturbance)
        self.attitude_bias, self.thrust_scale = np.zeros(3), 1.0
        self.imu, self.imu_bias = imu, np.zeros(6)
        self._imu_rng = np.random.default_rng((seed, 2))
        self.s = np.array([0.0, 0, 2, 0, 0, 0, 0, 0, 0])
        self._felt = self.s.copy()  # at the last sample of the IMU, which feels a step of s too
        self.t = 10.0
        self.bias = np.zeros(3)
        slow = vehicle.estimator.velocity_bias
        self.velocity_error = VelocityError(
            noise * slow.std_m_s, slow.time_constant_s, np.random.default_rng((seed, 1))
        )
        self.marker_std = np.array([0.004] * 3 + [0.006] * 3)
        self.delays = {**self.DELAYS, **(delays or {})}
        self.marker_seen, self.offboard = True, True
        self.gnss_jump, self.outlier, self.marker_turn, self.edit = np.zeros(3), None, None, None
        self.thrust_jitter = None
        self.voltage = vehicle.thrust.reference_voltage_v
        self._queue, self._count = [], itertools.count()
        self._acting = []  # (time, command)
        self._tick = 0
        self.states: list[State] = []
        self.statuses = []
        self.truths = []

    def truth(self):
        x = np.zeros(STATE_SIZE)  # the camera and the bundle are as assumed
        x[StateIndex.POSITION], x[StateIndex.VELOCITY] = self.s[0:3], self.s[3:6]
        x[StateIndex.ATTITUDE] = quat_from_rpy(*self.s[6:9])
        x[StateIndex.DISTURBANCE], x[StateIndex.GNSS_BIAS] = self.d, self.bias
        x[StateIndex.MARKER_POSITION], x[StateIndex.MARKER_ATTITUDE] = P_WM, FACING
        x[StateIndex.VELOCITY_BIAS], x[StateIndex.ATTITUDE_BIAS] = self.velocity_error.c, self.attitude_bias
        x[StateIndex.THRUST_SCALE] = self.thrust_scale
        x[StateIndex.GYRO_BIAS], x[StateIndex.ACCEL_BIAS] = self.imu_bias[:3], self.imu_bias[3:]
        return x

    def _command(self):
        a = np.array([2.0, 2.0, 3.0]) * (np.array([0.0, 0, 2]) - self.s[0:3]) - 2.5 * self.s[3:6]
        a += [0.0, 0.0, G]
        a[2] -= self.d[2]
        return np.array(
            [
                a[2] / self.k[0],
                np.clip(-(a[1] - self.d[1]) / G, -0.3, 0.3),
                np.clip((a[0] - self.d[0]) / G, -0.3, 0.3),
                0.0,
            ]
        )

    def _send(self, delay_s, message):
        if self.edit is not None:
            message = self.edit(message)
        if message is not None:
            heapq.heappush(self._queue, (self.t + delay_s, next(self._count), message))

    def _send_messages(self):
        n, rng, x = self.noise, self.rng, self.truth()
        if self._tick % 4 == 0:  # 50 Hz
            q = quat_multiply(quat_exp(self.attitude_bias), x[StateIndex.ATTITUDE])
            q = quat_multiply(q, quat_exp(n * 0.0035 * rng.normal(size=3)))
            self._send(self.delays["attitude"], FcuAttitude(stamp_s=self.t, q_WB=tuple(q), omega_B=(0.0, 0.0, 0.0)))
            p = x[StateIndex.POSITION] + self.bias + self.gnss_jump + n * 0.05 * rng.normal(size=3)
            if self.outlier is not None:
                p = p + self.outlier(self.t)
            v = (
                x[StateIndex.VELOCITY]
                + x[StateIndex.VELOCITY_BIAS]
                + n * self.vehicle.estimator.velocity.std * rng.normal(size=3)
            )
            self._send(self.delays["position"], FcuPosition(stamp_s=self.t, p_W=tuple(p), v_W=tuple(v)))
            c = self._command()
            self._acting.append((self.t + self.vehicle.latency.actuation_s, c))
            if self.offboard:
                jitter = 0.0 if self.thrust_jitter is None else self.thrust_jitter()
                sent = SentSetpoint(
                    stamp_s=self.t,
                    thrust=c[0] + jitter,
                    roll_rad=c[1],
                    pitch_rad=c[2],
                    yaw_rad=0.0,
                    yaw_rate_rad_s=c[3],
                )
                self._send(0.001, sent)
        if self._tick % 20 == 0:
            self._send(
                self.delays["status"],
                status(self.t, FcuMode.OFFBOARD if self.offboard else FcuMode.POSCTL, self.voltage),
            )
        if self._tick % 7 == 0:  # about 30 Hz
            observations = []
            if self.marker_seen:
                p, q = bundle_pose(x, self.vehicle.camera.p_BC, self.vehicle.camera.q_BC)
                e = n * self.marker_std * rng.normal(size=6)
                q = quat_multiply(q, quat_exp(e[3:6]))
                if self.marker_turn is not None:
                    q = quat_multiply(q, self.marker_turn)
                observations = [observation(p + e[0:3], q, self.marker_std)]
            self._send(
                self.delays["markers"],
                Markers(stamp_s=self.t, observations=observations, detect_time_s=0.01, search=SearchArea.FULL),
            )

    def run(self, node, duration_s):
        """Continue for duration_s and call the node as the lockstep runner does; returns the last state."""
        for _ in range(round(duration_s / self.STEP_S)):
            self._send_messages()
            acting = [c for at, c in self._acting if at <= self.t + 1e-9]
            command = acting[-1] if acting else np.array([G / self.k[0], 0, 0, 0])
            self._acting = self._acting[-8:]
            force = self.thrust_scale * command[0]
            self.s = integrate(self.s, (force, *command[1:]), self.d, self.k, self.STEP_S, self.STEP_S)
            self.velocity_error.step(self.STEP_S)
            self.t += self.STEP_S
            self._tick += 1
            if self.imu:
                noise = self.noise * self.IMU_STD * self._imu_rng.normal(size=6)
                values = inertial(self._felt, self.s, self.STEP_S) + self.imu_bias + noise
                message = FcuImu(stamp_s=self.t, gyro_B=tuple(values[:3]), accel_B=tuple(values[3:]))
                self._send(self.delays["imu"], message)
            self._felt = self.s.copy()
            while self._queue and self._queue[0][0] <= self.t:
                arrival_s, _, message = heapq.heappop(self._queue)
                node.handle(message, arrival_s)
            if self._tick % 2 == 0:
                state, estimator = node.step(self.t)
                self.states.append(state)
                self.statuses.append(estimator)
                self.truths.append(self.truth())
        return self.states[-1]

    def innovations(self, sensor):
        return [i for status_ in self.statuses for i in status_.innovations if i.sensor == sensor]


def observation(p, q, std, alternative=None, ambiguous=False, bundle="pier"):
    covariance = tuple(np.diag(np.square(std)).ravel())
    best = PoseSolution(p_CM=tuple(p), q_CM=tuple(q), reprojection_rms_px=0.3)
    if alternative is not None:
        alternative = PoseSolution(p_CM=tuple(p), q_CM=tuple(alternative), reprojection_rms_px=0.4)
    return BundleObservation(
        bundle=bundle,
        markers=[],
        best=best,
        alternative=alternative,
        ambiguous=ambiguous,
        covariance=covariance,
        corner_noise_px=0.3,
    )


def status(stamp_s, mode=FcuMode.OFFBOARD, voltage=15.2, armed=True):
    return FcuStatus(
        stamp_s=stamp_s,
        connected=True,
        armed=armed,
        mode=mode,
        landed=False,
        battery_voltage_v=voltage,
        battery_remaining=0.8,
        rc_ok=True,
        rc_channels_us=(),
        gnss_ok=True,
        home_W=None,
        timesync_offset_s=0.0,
        timesync_rtt_s=0.001,
        link_errors=0,
    )


def position_M(x):
    """Position in the bundle's frame."""
    return rotation_matrix(x[StateIndex.MARKER_ATTITUDE]).T @ (x[StateIndex.POSITION] - x[StateIndex.MARKER_POSITION])


def vector(state):
    """The nominal state of a `State` message, in the order of `StateIndex`; zeros for what it does not contain."""
    x = np.zeros(STATE_SIZE)
    x[StateIndex.POSITION], x[StateIndex.VELOCITY], x[StateIndex.ATTITUDE] = state.p_W, state.v_W, state.q_WB
    x[StateIndex.DISTURBANCE], x[StateIndex.GNSS_BIAS] = state.disturbance_W, state.gnss_bias_W
    x[StateIndex.MARKER_POSITION], x[StateIndex.MARKER_ATTITUDE] = state.p_WM, state.q_WM
    x[StateIndex.VELOCITY_BIAS], x[StateIndex.ATTITUDE_BIAS] = state.velocity_bias_W, state.attitude_bias_W
    x[StateIndex.THRUST_SCALE], x[StateIndex.MOUNT] = state.thrust_scale, state.mount_C
    return x


def rpy(x):
    return rpy_from_quat(x[StateIndex.ATTITUDE])

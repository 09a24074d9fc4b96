"""The filter of `acados_gen.eskf_model` in plain NumPy: reference for the results and times of the compiled kernels.

Written from the same equations and independent of CasADi. Derivatives that are not constant come from complex steps
in all directions at once (exact to rounding, and in NumPy about as fast as the formulas written out).
"""

import numpy as np

from companion.core.frames import GRAVITY_M_S2
from companion.estimation.layout import CONSIDERED, ERROR_SIZE, ErrorIndex, StateIndex

STEP = 1e-30  # of the complex derivative; no difference is formed, so there is no lower limit from rounding
SMALL = 1e-24
MOTION = slice(0, StateIndex.ATTITUDE.stop)  # p, v, q
# the motion depends only on the errors of p, v, θ, d and the thrust scale
MOVING = [*range(ErrorIndex.DISTURBANCE.stop), ErrorIndex.THRUST_SCALE.start]
# and by IMU on those of p, v, θ and the biases
MOVING_BY_IMU = [*range(ErrorIndex.ATTITUDE.stop), *range(ErrorIndex.GYRO_BIAS.start, ErrorIndex.ACCEL_BIAS.stop)]
# indices of the forgotten states, of their errors, and of the rate of each, as in the model
FORGOTTEN = ("DISTURBANCE", "VELOCITY_BIAS", "ATTITUDE_BIAS", "MOUNT", "GYRO_BIAS", "ACCEL_BIAS", "SLOW_POSE")
FORGOTTEN_STATES = np.concatenate([np.r_[getattr(StateIndex, name)] for name in FORGOTTEN])
FORGOTTEN_ERRORS = np.concatenate([np.r_[getattr(ErrorIndex, name)] for name in FORGOTTEN])
FORGOTTEN_RATES = np.array([0, 0, 1, *3 * [2], 3, 3, 4, *3 * [5], *3 * [6], *3 * [7], *6 * [8]])
DEPTH_MIN_M = 0.05


def multiply(a, b):
    """Hamilton product; the components are the rows, each column is one quaternion."""
    return np.stack(
        [
            a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
            a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
            a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
            a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
        ]
    )


def conjugate(q):
    return np.stack([q[0], -q[1], -q[2], -q[3]])


def rotate(q, v):
    """R(q) v."""
    t = 2 * _cross(q[1:4], v)
    return v + q[0] * t + _cross(q[1:4], t)


def _cross(a, b):
    return np.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


def exp(r):
    angle = np.sqrt((r * r).sum(0) + SMALL)
    return np.concatenate([np.cos(angle / 2)[None], np.sin(angle / 2) / angle * r])


def log(q):
    q = np.where(q[0].real < 0, -1, 1) * q
    n = np.sqrt((q[1:4] * q[1:4]).sum(0) + SMALL)
    return 2 * np.arctan(n / q[0]) / n * q[1:4]


def skew(r):
    return np.array([[0, -r[2], r[1]], [r[2], 0, -r[0]], [-r[1], r[0], 0]])


def right_jacobian(r):
    s = skew(r)
    return np.eye(3) - s / 2 + s @ s / 6 - s @ s @ s / 24


def boxplus(x, e):
    """x ⊞ e; e (51,) or (51, n)."""
    x = x.reshape(-1, *[1] * (e.ndim - 1)) + np.zeros(e.shape[1:])
    attitude = multiply(x[StateIndex.ATTITUDE], exp(e[ErrorIndex.ATTITUDE]))
    marker_attitude = multiply(x[StateIndex.MARKER_ATTITUDE], exp(e[ErrorIndex.MARKER_ATTITUDE]))
    # Except for the attitudes, state and error have the same vectors in the same order.
    position_and_velocity = x[: StateIndex.VELOCITY.stop] + e[: ErrorIndex.VELOCITY.stop]
    vectors = (
        x[StateIndex.DISTURBANCE.start : StateIndex.MARKER_POSITION.stop]
        + e[ErrorIndex.DISTURBANCE.start : ErrorIndex.MARKER_POSITION.stop]
    )
    slow = x[StateIndex.VELOCITY_BIAS.start :] + e[ErrorIndex.VELOCITY_BIAS.start :]
    return np.concatenate([position_and_velocity, attitude, vectors, marker_attitude, slow])


def thrust_axis(q):
    """R(q) (0, 0, 1)."""
    w, x, y, z = q
    return np.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)])


def motion_derivative(m, disturbance, command, k):
    """ṁ of m = (p, v, q), (10,) or (10, n)."""
    q = m[StateIndex.ATTITUDE] / np.sqrt((m[StateIndex.ATTITUDE] * m[StateIndex.ATTITUDE]).sum(0))
    w, x, y, z = q
    roll = np.arctan(2 * (w * x + y * z) / (1 - 2 * (x * x + y * y)))  # upright: no atan2 needed
    pitch = np.arcsin(2 * (w * y - z * x))
    roll_rate, pitch_rate = (k[5] * command[1] - roll) / k[4], (k[7] * command[2] - pitch) / k[6]
    yaw_rate = command[3]
    cr, sr, cp, sp = np.cos(roll), np.sin(roll), np.cos(pitch), np.sin(pitch)
    omega = [roll_rate - sp * yaw_rate, cr * pitch_rate + sr * cp * yaw_rate, -sr * pitch_rate + cr * cp * yaw_rate]
    axis = thrust_axis(q)
    drag, gravity = k[1:4].reshape(3, *[1] * (m.ndim - 1)), np.array([0, 0, GRAVITY_M_S2])
    acceleration = k[0] * command[0] * axis - drag * m[StateIndex.VELOCITY] - gravity.reshape(drag.shape) + disturbance
    return np.concatenate(
        [m[StateIndex.VELOCITY], acceleration, multiply(m[StateIndex.ATTITUDE], [0 * roll, *omega]) / 2]
    )


def moved(x, command, k, dt):
    """(p, v, q) after dt by RK4."""
    m = x[MOTION]

    def f(m):
        thrust = (1 - 1 / x[StateIndex.THRUST_SCALE]) * GRAVITY_M_S2 * thrust_axis(m[StateIndex.ATTITUDE])
        return motion_derivative(m, x[StateIndex.DISTURBANCE] + thrust, command, k)

    k1 = f(m)
    k2 = f(m + dt / 2 * k1)
    k3 = f(m + dt / 2 * k2)
    k4 = f(m + dt * k3)
    m = m + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    m[StateIndex.ATTITUDE] /= np.sqrt((m[StateIndex.ATTITUDE] * m[StateIndex.ATTITUDE]).sum(0))
    return m


def imu_moved(x, omega_B, force_B, dt):
    """(p, v, q) after dt with an angular rate and a specific force."""
    column = (3, *[1] * (x.ndim - 1))
    turn = (omega_B.reshape(column) - x[StateIndex.GYRO_BIAS]) * dt
    q, gravity = x[StateIndex.ATTITUDE], np.array([0, 0, GRAVITY_M_S2]).reshape(column)
    middle = multiply(q, exp(turn / 2))
    acceleration = rotate(middle, force_B.reshape(column) - x[StateIndex.ACCEL_BIAS]) - gravity
    v = x[StateIndex.VELOCITY]
    after = multiply(q, exp(turn))
    after = after / np.sqrt((after * after).sum(0))
    return np.concatenate([x[StateIndex.POSITION] + dt * v + dt**2 / 2 * acceleration, v + dt * acceleration, after])


class NumpyEskf:
    """State x (53,), covariance P (51, 51).

    noise: process variances per second, (51,); rates: forgetting rates [1/s], (9,); p_BC, q_BC: the camera.
    """

    def __init__(self, x, P, noise, rates, p_BC, q_BC) -> None:
        self.x, self.P = x.copy(), P.copy()
        self.noise, self.rates, self.p_BC, self.q_BC = noise, rates, p_BC, q_BC
        self._directions = np.eye(ERROR_SIZE) * (1j * STEP)

    def predict(self, command, k, dt: float) -> None:
        """Predict over dt under command = (thrust, roll, pitch, yaw rate)."""
        F = self._transition(moved(boxplus(self.x, self._directions[:, MOVING]), command, k, dt), MOVING)
        self._forget(F, self.rates, dt)
        self.P = F @ self.P @ F.T + np.diag(self.noise * dt)

    def predict_imu(self, samples, noise, rates) -> None:
        """Predict over samples (duration, ω_B, f_B), with the given noise and rates."""
        for duration_s, *imu in samples:
            omega_B, force_B = np.array(imu[:3]), np.array(imu[3:])
            ends = imu_moved(boxplus(self.x, self._directions[:, MOVING_BY_IMU]), omega_B, force_B, duration_s)
            F = self._transition(ends, MOVING_BY_IMU)
            self._forget(F, rates, duration_s)
            self.P = F @ self.P @ F.T + np.diag(noise * duration_s)

    def _transition(self, ends, moving):
        """Move (p, v, q); the transition matrix of the error without forgetting. ends: for each error of moving."""
        m = ends[:, 0].real
        F = np.eye(ERROR_SIZE)
        F[: ErrorIndex.VELOCITY.stop, moving] = ends[: StateIndex.VELOCITY.stop].imag / STEP
        turned = log(multiply(conjugate(m[StateIndex.ATTITUDE]), ends[StateIndex.ATTITUDE]))
        F[ErrorIndex.ATTITUDE, moving] = turned.imag / STEP
        self.x[MOTION] = m
        return F

    def coast(self, noise, rates, dt: float) -> None:
        """Predict over dt without a command, with the given noise and rates: ṗ = v, the other states stay."""
        F = np.eye(ERROR_SIZE)
        F[ErrorIndex.POSITION, ErrorIndex.VELOCITY] = dt * np.eye(3)
        self.x[StateIndex.POSITION] += dt * self.x[StateIndex.VELOCITY]
        self._forget(F, rates, dt)
        self.P = F @ self.P @ F.T + np.diag(noise * dt)

    def _forget(self, F, rates, dt: float) -> None:
        keep = np.exp(-rates * dt)[FORGOTTEN_RATES]
        F[FORGOTTEN_ERRORS, FORGOTTEN_ERRORS] = keep
        self.x[FORGOTTEN_STATES] *= keep

    def position(self, y, R) -> float:
        H = np.zeros((3, ERROR_SIZE))
        H[:, ErrorIndex.POSITION] = H[:, ErrorIndex.GNSS_BIAS] = np.eye(3)
        return self._update(y - (self.x[StateIndex.POSITION] + self.x[StateIndex.GNSS_BIAS]), H, R)

    def velocity(self, y, R) -> float:
        H = np.zeros((3, ERROR_SIZE))
        H[:, ErrorIndex.VELOCITY] = H[:, ErrorIndex.VELOCITY_BIAS] = np.eye(3)
        return self._update(y - (self.x[StateIndex.VELOCITY] + self.x[StateIndex.VELOCITY_BIAS]), H, R)

    def attitude(self, y, R) -> float:
        def residual(x):
            y_ = y.reshape(4, *(1,) * (x.ndim - 1))
            return log(multiply(conjugate(x[StateIndex.ATTITUDE]), multiply(exp(-x[StateIndex.ATTITUDE_BIAS]), y_)))

        return self._update(*self._linear(residual), R)

    def marker(self, p_CM, q_CM, R, omega_B, root) -> float:
        return self._update(*self._linear(lambda x: self._marker_residual(x, p_CM, q_CM, omega_B, root)), R)

    def corners(self, y, corners_M, R, omega_B) -> float:
        return self._update(*self._linear(lambda x: self._corners_residual(x, y, corners_M, omega_B)), R)

    def specific_force(self, f_B, thrust, k, R) -> float:
        def residual(x):
            air = x[StateIndex.DISTURBANCE] - k[1:4, None] * x[StateIndex.VELOCITY]
            thrust_B = np.array([0, 0, k[0] * thrust])[:, None] * x[StateIndex.THRUST_SCALE]
            return f_B[:, None] - x[StateIndex.ACCEL_BIAS] - thrust_B - rotate(conjugate(x[StateIndex.ATTITUDE]), air)

        nu, H = self._linear(residual)
        # The scale is learned at the thrust of a hover.
        H[2, ErrorIndex.THRUST_SCALE] = GRAVITY_M_S2 / self.x[StateIndex.THRUST_SCALE]
        return self._update(nu, H, R)

    def _linear(self, residual):
        """ν and H = -∂ν/∂e."""
        ends = residual(boxplus(self.x, self._directions))
        return ends[:, 0].real, -ends.imag / STEP

    def _camera(self, x, omega_B):
        """(p_WC, q_WC) when the image was taken."""
        delay = x[StateIndex.CAMERA_DELAY]
        q_WB = multiply(x[StateIndex.ATTITUDE], exp(omega_B[:, None] * delay))
        q_WC = multiply(q_WB, self.q_BC[:, None] + 0 * q_WB)
        q_WC = multiply(multiply(q_WC, exp(x[StateIndex.MOUNT_OFFSET])), exp(x[StateIndex.MOUNT]))
        p_WB = x[StateIndex.POSITION] + x[StateIndex.VELOCITY] * delay
        return p_WB + rotate(q_WB, self.p_BC[:, None] + x[StateIndex.LEVER]), q_WC

    def _marker_residual(self, x, p_CM, q_CM, omega_B, root):
        p_WC, q_WC = self._camera(x, omega_B)
        expected = (1 - x[StateIndex.BUNDLE_SCALE]) * rotate(conjugate(q_WC), x[StateIndex.MARKER_POSITION] - p_WC)
        q_expected = multiply(conjugate(q_WC), x[StateIndex.MARKER_ATTITUDE])
        turned = log(multiply(conjugate(q_expected), q_CM[:, None]))
        return np.concatenate([p_CM[:, None] - expected, turned]) - root @ x[StateIndex.SLOW_POSE]

    def _corners_residual(self, x, y, corners_M, omega_B):
        p_WC, q_WC = self._camera(x, omega_B)
        p_WM, q_WM = x[StateIndex.MARKER_POSITION], x[StateIndex.MARKER_ATTITUDE]
        rows = []
        for i in range(4):
            corner_M = corners_M[3 * i : 3 * i + 3, None] * (1 + x[StateIndex.BUNDLE_SCALE])
            p_C = rotate(conjugate(q_WC), p_WM + rotate(q_WM, corner_M) - p_WC)
            depth = np.where(p_C[2].real > DEPTH_MIN_M, p_C[2], DEPTH_MIN_M)
            rows.append(y[2 * i : 2 * i + 2, None] - p_C[0:2] / depth)
        return np.concatenate(rows)

    def _update(self, nu, H, R) -> float:
        """P - W Wᵀ with W = P Hᵀ L⁻ᵀ and S = L Lᵀ, injection, reset; returns the NIS."""
        PHt = self.P @ H.T
        L = np.linalg.cholesky(H @ PHt + R)
        solved = np.linalg.solve(L, np.column_stack([PHt.T, nu]))
        W, whitened = solved[:, :-1].T, solved[:, -1]
        correction = W @ whitened
        correction[CONSIDERED] = 0
        P = self.P - W @ W.T
        P[CONSIDERED, CONSIDERED] = self.P[CONSIDERED, CONSIDERED]
        x = boxplus(self.x, correction)
        x[StateIndex.ATTITUDE] /= np.linalg.norm(x[StateIndex.ATTITUDE])
        x[StateIndex.MARKER_ATTITUDE] /= np.linalg.norm(x[StateIndex.MARKER_ATTITUDE])
        G = self._reset(self.x, correction, x)
        self.x, self.P = x, G @ P @ G.T
        return float(whitened @ whitened)

    @staticmethod
    def _reset(x, correction, after):
        """The errors after a correction from those before: turns of everything stay turns, see `eskf_model.inject`."""
        before, bundle, bundle_after = (
            np.stack([rotate(q, axis) for axis in np.eye(3)], axis=1)
            for q in (x[StateIndex.ATTITUDE], x[StateIndex.MARKER_ATTITUDE], after[StateIndex.MARKER_ATTITUDE])
        )
        J_M = right_jacobian(correction[ErrorIndex.MARKER_ATTITUDE])
        G = np.eye(ERROR_SIZE)
        G[ErrorIndex.MARKER_ATTITUDE, ErrorIndex.MARKER_ATTITUDE] = J_M
        for block in (ErrorIndex.POSITION, ErrorIndex.VELOCITY, ErrorIndex.DISTURBANCE, ErrorIndex.MARKER_POSITION):
            G[block, ErrorIndex.ATTITUDE] = -skew(correction[block]) @ before
        after_B = np.stack([rotate(conjugate(after[StateIndex.ATTITUDE]), axis) for axis in np.eye(3)], axis=1)
        G[ErrorIndex.ATTITUDE, ErrorIndex.ATTITUDE] = after_B @ before
        G[ErrorIndex.MARKER_ATTITUDE, ErrorIndex.ATTITUDE] = (bundle_after.T - J_M @ bundle.T) @ before
        return G

"""The filter of `acados_gen.eskf_model` in plain NumPy: reference for the results and times of the compiled kernels.

Written from the same equations and independent of CasADi. Derivatives that are not constant come from complex steps
in all directions at once (exact to rounding, and in NumPy about as fast as the formulas written out).
"""

import numpy as np

from companion.core.frames import GRAVITY_M_S2
from companion.estimation.layout import ERROR_SIZE, ErrorIndex, StateIndex

STEP = 1e-30  # of the complex derivative; no difference is formed, so there is no lower limit from rounding
SMALL = 1e-24
MOTION = slice(0, StateIndex.ATTITUDE.stop)  # p, v, q
# the motion depends only on the errors of p, v, θ, d and the thrust scale
MOVING = [*range(ErrorIndex.DISTURBANCE.stop), ErrorIndex.THRUST_SCALE.start]
# indices of the forgotten states, of their errors, and of the rate of each, as in the model
FORGOTTEN = ("DISTURBANCE", "VELOCITY_BIAS", "ATTITUDE_BIAS", "MOUNT")
FORGOTTEN_STATES = np.concatenate([np.r_[getattr(StateIndex, name)] for name in FORGOTTEN])
FORGOTTEN_ERRORS = np.concatenate([np.r_[getattr(ErrorIndex, name)] for name in FORGOTTEN])
FORGOTTEN_RATES = np.array([0, 0, 1, 2, 2, 2, 3, 3, 4, 5, 5, 5])
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
    """x ⊞ e; e (31,) or (31, n)."""
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
        thrust = (x[StateIndex.THRUST_SCALE] - 1) * GRAVITY_M_S2 * thrust_axis(m[StateIndex.ATTITUDE])
        return motion_derivative(m, x[StateIndex.DISTURBANCE] + thrust, command, k)

    k1 = f(m)
    k2 = f(m + dt / 2 * k1)
    k3 = f(m + dt / 2 * k2)
    k4 = f(m + dt * k3)
    m = m + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    m[StateIndex.ATTITUDE] /= np.sqrt((m[StateIndex.ATTITUDE] * m[StateIndex.ATTITUDE]).sum(0))
    return m


class NumpyEskf:
    """State x (33,), covariance P (31, 31).

    noise: process variances per second, (31,); rates: forgetting rates [1/s], (6,); p_BC, q_BC: the camera.
    """

    def __init__(self, x, P, noise, rates, p_BC, q_BC) -> None:
        self.x, self.P = x.copy(), P.copy()
        self.noise, self.rates, self.p_BC, self.q_BC = noise, rates, p_BC, q_BC
        self._directions = np.eye(ERROR_SIZE) * (1j * STEP)

    def predict(self, command, k, dt: float) -> None:
        """Predict over dt under command = (thrust, roll, pitch, yaw rate)."""
        x = self.x
        ends = moved(boxplus(x, self._directions[:, MOVING]), command, k, dt)
        m = ends[:, 0].real
        F = np.eye(ERROR_SIZE)
        F[: ErrorIndex.VELOCITY.stop, MOVING] = ends[: StateIndex.VELOCITY.stop].imag / STEP
        turned = log(multiply(conjugate(m[StateIndex.ATTITUDE]), ends[StateIndex.ATTITUDE]))
        F[ErrorIndex.ATTITUDE, MOVING] = turned.imag / STEP
        x[MOTION] = m
        self._forget(F, self.rates, dt)
        self.P = F @ self.P @ F.T + np.diag(self.noise * dt)

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

    def marker(self, p_CM, q_CM, R) -> float:
        return self._update(*self._linear(lambda x: self._marker_residual(x, p_CM, q_CM)), R)

    def corners(self, y, corners_M, R) -> float:
        return self._update(*self._linear(lambda x: self._corners_residual(x, y, corners_M)), R)

    def _linear(self, residual):
        """ν and H = -∂ν/∂e."""
        ends = residual(boxplus(self.x, self._directions))
        return ends[:, 0].real, -ends.imag / STEP

    def _marker_residual(self, x, p_CM, q_CM):
        q_BC, q_BW = multiply(self.q_BC[:, None], exp(x[StateIndex.MOUNT])), conjugate(x[StateIndex.ATTITUDE])
        p_BM = rotate(q_BW, x[StateIndex.MARKER_POSITION] - x[StateIndex.POSITION])
        expected = rotate(conjugate(q_BC), p_BM - self.p_BC[:, None])
        q_expected = multiply(conjugate(q_BC), multiply(q_BW, x[StateIndex.MARKER_ATTITUDE]))
        return np.concatenate([p_CM[:, None] - expected, log(multiply(conjugate(q_expected), q_CM[:, None]))])

    def _corners_residual(self, x, y, corners_M):
        p_WB, q_BW = x[StateIndex.POSITION], conjugate(x[StateIndex.ATTITUDE])
        p_WM, q_WM = x[StateIndex.MARKER_POSITION], x[StateIndex.MARKER_ATTITUDE]
        rows = []
        for i in range(4):
            p_W = p_WM + rotate(q_WM, corners_M[3 * i : 3 * i + 3, None] + 0 * p_WM)
            p_B = rotate(q_BW, p_W - p_WB)
            p_C = rotate(conjugate(multiply(self.q_BC[:, None], exp(x[StateIndex.MOUNT]))), p_B - self.p_BC[:, None])
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
        G = np.eye(ERROR_SIZE)
        for block in (ErrorIndex.ATTITUDE, ErrorIndex.MARKER_ATTITUDE):
            G[block, block] = right_jacobian(correction[block])
        self.P = G @ (self.P - W @ W.T) @ G.T
        x = boxplus(self.x, correction)
        x[StateIndex.ATTITUDE] /= np.linalg.norm(x[StateIndex.ATTITUDE])
        x[StateIndex.MARKER_ATTITUDE] /= np.linalg.norm(x[StateIndex.MARKER_ATTITUDE])
        self.x = x
        return float(whitened @ whitened)

"""The prior stack's error-state Kalman filter, as published: mathematics without messages.

State p, v, q, disturbance, GNSS bias, marker p, marker q (23 numbers); error p, v, θ, d, b, p_M, θ_M (21), θ on the
right: q_true = q ⊗ exp(θ). (Kalaitzakis & Vitzilaios, Robotics 2023, 12(5), 123, section 2.2, and its code.)

Kept as published: noise added per call and not per second; covariance matching on the diagonal, never below nominal
and with rejected innovations in it too; a measurement is gated and weighted with the noise that the ones before it
gave; a rejected measurement also discards the prediction over its interval; a measurement older than the newest one is
applied to the present state; the marker as one pose, whose correction of the aircraft's roll and pitch is dropped while
the covariance counts it (so in the published code; the paper's text does not have it).

Corrected, so that the comparison is fair: the sign of the predicted pitch, the components of the rotation rate, the
transpose of the attitude block of F, the damping of the vehicle. A quaternion measured as four independent numbers
makes S rank deficient; here it is the rotation vector between measured and predicted attitude. An error θ moves a
quaternion by θ/2, so a published variance R of its numbers is 4R in rad². The χ² limits (six and three degrees of
freedom at 0.995) stay.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array, Vector
from companion.core.frames import (
    GRAVITY_M_S2,
    quat_conjugate,
    quat_exp,
    quat_log,
    quat_multiply,
    quat_normalized,
    rotation_matrix,
    rpy_from_quat,
    skew,
)

P, V, TH, D, B, PM, TM = (slice(i, i + 3) for i in range(0, 21, 3))
SIZE = 21
ROLL_PITCH = slice(TH.start, TH.start + 2)
DISTURBANCE_MAX_M_S2 = 10.0
# Added to the covariance at every prediction, whatever its length.
Q_PER_CALL = np.array([0.01] * 15 + [1e-5] * 6)
P0 = np.array([0.1] * 9 + [1.0] * 6 + [0.1] * 6)
GAP_NOISE_1_S = 30.0  # calls per second for which a gap counts
QUATERNION_TO_ANGLE = 4.0  # variance of a rotation angle over that of a quaternion's numbers


class PaperSensor(NamedTuple):
    """Nominal variances, number of innovations matched, χ² limit."""

    variances: Array
    window: int
    gate: float


SENSORS = {
    "pose": PaperSensor(np.array([1e-2] * 3 + [QUATERNION_TO_ANGLE * 1e-4] * 3), 50, 18.548),
    "odometry": PaperSensor(np.full(3, 0.04), 30, 12.838),
    "marker": PaperSensor(np.array([1e-4] * 3 + [QUATERNION_TO_ANGLE * 1e-3] * 3), 10, 18.548),
}


class PaperUpdate(NamedTuple):
    """The result of one measurement."""

    nis: float
    size: int
    accepted: bool
    noise_scale: float


class PaperFilter:
    """parameters: as `acados_gen.flight_model.PARAMETERS`. position_walks: the measured position is p + b, else p."""

    def __init__(self, parameters: Sequence[float], p_W: Vector, q_WB: Vector, position_walks: bool = True) -> None:
        self._position_walks = position_walks
        self._k_T = parameters[0]
        self._drag = np.array(parameters[1:4])
        self._attitude = parameters[4:8]
        self.p, self.v = np.array(p_W, dtype=float), np.zeros(3)
        self.q = quat_normalized(q_WB)
        self.d, self.b = np.zeros(3), np.zeros(3)
        self.p_M, self.q_M = np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0])
        self.marker_known = False  # once seen it stays known, as published
        self.P = np.diag(P0)
        self._innovations: dict[str, deque[Array]] = {n: deque(maxlen=sensor.window) for n, sensor in SENSORS.items()}
        self._matched = {name: sensor.variances for name, sensor in SENSORS.items()}  # for the next measurement

    def restart(self, gap_s: float, p_W: Vector, q_WB: Vector) -> None:
        """After a gap between poses: position and attitude of the pose, at rest; the other states stay, less certain."""
        self.p, self.v, self.q = np.array(p_W, dtype=float), np.zeros(3), quat_normalized(q_WB)
        self.P[range(SIZE), range(SIZE)] += GAP_NOISE_1_S * gap_s * Q_PER_CALL

    # --- prediction ---------------------------------------------------------------------------------------

    def body_rates(self, command: Array) -> Array:
        """ω_B [rad/s] of the model: first-order roll and pitch, commanded yaw rate.

        command: thrust, roll, pitch, yaw rate.
        """
        tau_r, k_r, tau_p, k_p = self._attitude
        roll, pitch, _ = rpy_from_quat(self.q)
        roll_rate, pitch_rate = (k_r * command[1] - roll) / tau_r, (k_p * command[2] - pitch) / tau_p
        yaw_rate = command[3]
        cr, sr, cp, sp = math.cos(roll), math.sin(roll), math.cos(pitch), math.sin(pitch)
        return np.array(
            [
                roll_rate - sp * yaw_rate,
                cr * pitch_rate + sr * cp * yaw_rate,
                -sr * pitch_rate + cr * cp * yaw_rate,
            ]
        )

    def acceleration(self, v: Array, q: Array, thrust: float) -> Array:
        lift = rotation_matrix(q)[:, 2] * (self._k_T * thrust)
        total: Array = -self._drag * v + lift - (0.0, 0.0, GRAVITY_M_S2) + self.d
        return total

    def predict(self, dt: float, command: Array | None) -> None:
        """command: (thrust, roll, pitch, yaw rate), or None: constant velocity and attitude, disturbance set to 0."""
        F = np.eye(SIZE)
        F[P, V] = dt * np.eye(3)
        if command is None:
            self.d = np.zeros(3)
            self.p = self.p + dt * self.v
        else:
            omega = self.body_rates(command)
            F[V, V] = np.diag(1.0 - dt * self._drag)
            F[V, TH] = -dt * self._k_T * command[0] * rotation_matrix(self.q) @ skew((0.0, 0.0, 1.0))
            F[V, D] = dt * np.eye(3)
            F[TH, TH] = rotation_matrix(quat_exp(dt * omega)).T
            self._integrate(dt, command[0], omega)
        self.P = F @ self.P @ F.T
        self.P[range(SIZE), range(SIZE)] += Q_PER_CALL

    def _integrate(self, dt: float, thrust: float, omega: Array) -> None:
        """RK4 on p, v, q."""
        rate = np.array([0.0, *omega])

        def slope(v: Array, q: Array) -> tuple[Array, Array, Array]:
            return v, self.acceleration(v, q, thrust), 0.5 * quat_multiply(q, rate)

        x = (self.p, self.v, self.q)
        k1 = slope(x[1], x[2])
        k2 = slope(x[1] + dt / 2 * k1[1], x[2] + dt / 2 * k1[2])
        k3 = slope(x[1] + dt / 2 * k2[1], x[2] + dt / 2 * k2[2])
        k4 = slope(x[1] + dt * k3[1], x[2] + dt * k3[2])
        p, v, q = (a + dt / 6 * (b + 2 * c + 2 * d + e) for a, b, c, d, e in zip(x, k1, k2, k3, k4, strict=True))
        self.p, self.v, self.q = p, v, quat_normalized(q)

    # --- measurements -------------------------------------------------------------------------------------

    def pose(self, dt: float, command: Array | None, p_W: Vector, q_WB: Vector) -> PaperUpdate:
        """Position (with the GNSS bias in it, where the source has one) and attitude of the flight controller."""

        def model() -> tuple[Array, Array]:
            H = np.zeros((6, SIZE))
            H[:3, P] = H[3:, TH] = np.eye(3)
            expected = self.p
            if self._position_walks:
                H[:3, B] = np.eye(3)
                expected = self.p + self.b
            turn = quat_log(quat_multiply(quat_conjugate(self.q), q_WB))
            return np.concatenate([np.asarray(p_W) - expected, turn]), H

        return self._update("pose", dt, command, model)

    def odometry(self, dt: float, command: Array | None, v_B: Vector) -> PaperUpdate:
        """Velocity in the body frame."""

        def model() -> tuple[Array, Array]:
            RT = rotation_matrix(self.q).T
            predicted = RT @ self.v
            H = np.zeros((3, SIZE))
            H[:, V], H[:, TH] = RT, skew(predicted)
            return np.asarray(v_B) - predicted, H

        return self._update("odometry", dt, command, model)

    def marker(self, dt: float, command: Array | None, p_BM: Array, q_BM: Array) -> PaperUpdate | None:
        """Pose of the marker in the body frame; the first one places the marker and returns None."""
        if not self.marker_known:
            self.p_M = self.p + rotation_matrix(self.q) @ p_BM
            self.q_M = quat_normalized(quat_multiply(self.q, q_BM))
            self.marker_known = True
            return None

        def model() -> tuple[Array, Array]:
            RT = rotation_matrix(self.q).T
            predicted = RT @ (self.p_M - self.p)
            q_predicted = quat_multiply(quat_conjugate(self.q), self.q_M)
            H = np.zeros((6, SIZE))
            H[:3, P], H[:3, PM], H[:3, TH] = -RT, RT, skew(predicted)
            # q_BM = exp(-θ) ⊗ q_predicted ⊗ exp(θ_M), so its error on the right is θ_M - R(q_predicted)ᵀ θ
            H[3:, TH], H[3:, TM] = -rotation_matrix(q_predicted).T, np.eye(3)
            turn = quat_log(quat_multiply(quat_conjugate(q_predicted), q_BM))
            return np.concatenate([np.asarray(p_BM) - predicted, turn]), H

        return self._update("marker", dt, command, model)

    def noise(self, name: str) -> Array:
        """Variances of a sensor for its next measurement."""
        return self._matched[name]

    def _match(self, name: str, innovation: Array, spread: Array) -> None:
        """Covariance matching: diag(mean v vᵀ - H P Hᵀ), never below nominal."""
        sensor, seen = SENSORS[name], self._innovations[name]
        seen.append(innovation)
        if len(seen) == sensor.window:
            self._matched[name] = np.maximum(np.mean(np.square(seen), axis=0) - spread.diagonal(), sensor.variances)

    def _update(
        self, name: str, dt: float, command: Array | None, model: Callable[[], tuple[Array, Array]]
    ) -> PaperUpdate:
        before = (self.p, self.v, self.q, self.d, self.P.copy())
        if dt > 0.0:
            self.predict(dt, command)
        else:
            self.P[range(SIZE), range(SIZE)] += Q_PER_CALL
        innovation, H = model()
        PHT = self.P @ H.T
        spread = H @ PHT
        variances = self.noise(name)
        self._match(name, innovation, spread)
        S = spread + np.diag(variances)
        nis = float(innovation @ np.linalg.solve(S, innovation))
        sensor = SENSORS[name]
        scale = float(np.mean(np.sqrt(variances / sensor.variances)))
        if not nis <= sensor.gate:
            self.p, self.v, self.q, self.d, self.P = before  # the interval is lost, as published
            return PaperUpdate(nis, len(innovation), False, scale)
        K = np.linalg.solve(S, PHT.T).T
        error = K @ innovation
        if name == "marker":
            error[ROLL_PITCH] = 0.0
        self._inject(error)
        A = np.eye(SIZE) - K @ H
        self.P = A @ self.P @ A.T + (K * variances) @ K.T
        return PaperUpdate(nis, len(innovation), True, scale)

    def _inject(self, error: Array) -> None:
        self.p = self.p + error[P]
        self.v = self.v + error[V]
        self.q = quat_normalized(quat_multiply(self.q, quat_exp(error[TH])))
        self.d = np.clip(self.d + error[D], -DISTURBANCE_MAX_M_S2, DISTURBANCE_MAX_M_S2)
        self.b = self.b + error[B]
        self.p_M = self.p_M + error[PM]
        self.q_M = quat_normalized(quat_multiply(self.q_M, quat_exp(error[TM])))

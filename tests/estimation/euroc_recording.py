"""A flight of the EuRoC MAV data set as the stack's axes describe it: inertial samples and the true motion.

The folder holds ``imu0.csv`` (the ASL format) and ``groundtruth_*.txt`` (time [s], position [m], quaternion x y z w). The
recording differs from what PX4 sends, which is undone here:

- *Axes.* The sensor's x looks up, and the sensor is pitched by 20° against the rotors. Body axes are those of a flight controller
  after its level calibration: z along the mean specific force in flight, x ahead, in the plane of the camera's view.
- *Vertical.* The z of the poses leans by 0.17° against gravity (least squares of the specific force over the flight; each
  quarter gives 0.15 to 0.25°, in the same direction). W is upright, as the world of a flight controller.
- *Time.* Stamps of 19 digits, in ns; times count from the first sample on, exactly. A sample is the value at its stamp (integrated
  by trapezoids, the rates fit the poses best without any offset). One of PX4 is the mean of the interval that ends there:
  `tests.estimation.euroc_sensors` stamps each sample half of an interval later.
- *Velocity.* The ground truth has poses at 20 Hz alone. A fixed-interval smoother (H. Rauch, F. Tung, C. Striebel, AIAA Journal
  3(8), 1965) over poses and samples gives position, velocity and attitude at every sample, and the biases of the sensors.
- *Attitude.* The poses' rotation is wrong by 4, 2 and 2 mrad (roll, pitch, yaw) for seconds: against the integrated rates
  the difference of two poses grows for 3 s and then stays. The smoother follows the rates between them. With the poses' own
  attitude the true samples would lose the true position by 18 cm in 3 s; with the smoothed one by 9 cm.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.core.errors import UserError
from companion.core.frames import (
    GRAVITY_M_S2,
    quat_conjugate,
    quat_exp,
    quat_from_matrix,
    quat_log,
    quat_multiply,
    rotation_matrix,
    skew,
)

IMU_FILE, TRUTH_PATTERN = "imu0.csv", "groundtruth_*.txt"
IMU_COLUMNS, TRUTH_COLUMNS = 7, 8
SHORTEST_S = 5.0
GAP_MAX_S = 0.1  # between two rows of the ground truth, and between two samples
FORCE_M_S2 = (8.0, 12.0)  # mean length of the specific force: any other is not in m/s²

# Of the sensor: the mean specific force of the flight, and ahead.
UP_I, AHEAD_I = (0.9416, 0.0016, -0.3368), (0.0, 0.0, 1.0)
UP_POSES = (0.0029, -0.0002, 1.0)  # the vertical in the axes of the ground truth

# Noise of the smoother. A slow error of the rotation, 3 mrad for 1.5 s, counts as much as white noise of 20 mrad at 20 Hz.
# With half or twice the accelerometer's noise the velocity changes by 1 mm/s and the attitude by 0.4 mrad.
POSE_STD = (0.001, 0.02)  # [m], [rad]
GYRO_RAD_SQRT_S, ACCEL_M_S_SQRT_S = 0.0003, 0.01
GYRO_BIAS_RAD_S_SQRT_S, ACCEL_BIAS_M_S2_SQRT_S = 1e-4, 2e-3
START_STD = (0.01, 0.5, 0.02, 0.2, 0.5)  # of position, velocity, attitude, biases of gyroscope and accelerometer


class Recording(NamedTuple):
    """A folder's content in body axes; times count from the first sample on [s]."""

    t: Array  # (n,) of the samples, ascending
    gyro_B: Array  # (n, 3) [rad/s], raw, at this time
    accel_B: Array  # (n, 3) [m/s²], raw
    pose_t: Array  # (m,) of the ground truth
    pose_p_W: Array  # (m, 3) [m]
    pose_q_WB: Array  # (m, 4)


class Motion(NamedTuple):
    """The true motion at the samples' times."""

    t: Array  # (n,)
    p_W: Array  # (n, 3)
    v_W: Array
    q_WB: Array  # (n, 4)
    gyro_bias_B: Array  # (n, 3) of the raw samples
    accel_bias_B: Array


def body_axes() -> Array:
    """R_BI, (3, 3): rows are the body axes in those of the inertial sensor."""
    up = np.array(UP_I) / np.linalg.norm(UP_I)
    ahead = np.array(AHEAD_I) - up * (up @ AHEAD_I)
    ahead /= np.linalg.norm(ahead)
    return np.array([ahead, np.cross(up, ahead), up])


# --- the folder


def read_recording(folder: Path, start_s: float = 0.0, end_s: float = np.inf) -> Recording:
    """Read a folder; raises `UserError`, one line, when it cannot be used.

    start_s, end_s: the part that is used, counted from the first sample on; times of the result count from its first sample.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    truths = sorted(folder.glob(TRUTH_PATTERN))
    if len(truths) != 1:
        raise UserError(f"{folder}: needs one file {TRUTH_PATTERN}, has {len(truths)}")
    imu_path, truth_path = folder / IMU_FILE, truths[0]
    rows = _rows(imu_path, ",", IMU_COLUMNS, "stamp [ns], three rates [rad/s], three specific forces [m/s²]")
    start_ns = _integer(imu_path, rows[0])
    # A stamp has more digits than a float.
    t = np.array([1e-9 * (_integer(imu_path, row) - start_ns) for row in rows])
    samples = _numbers(imu_path, rows, 1)
    rows = _rows(truth_path, None, TRUTH_COLUMNS, "time [s], position x y z [m], quaternion x y z w")
    poses = _numbers(truth_path, rows, 0)
    pose_t, q_WI = poses[:, 0] - 1e-9 * start_ns, poses[:, [7, 4, 5, 6]]
    for path, times in ((imu_path, t), (truth_path, pose_t)):
        _check_times(path, times)
    length = np.linalg.norm(q_WI, axis=1)
    if not np.all(np.abs(length - 1.0) < 0.01):
        raise UserError(f"{truth_path}: columns 5 to 8 are not a unit quaternion (length {length.min():.3g})")
    force_m_s2 = float(np.linalg.norm(samples[:, 3:], axis=1).mean())
    if not FORCE_M_S2[0] < force_m_s2 < FORCE_M_S2[1]:
        raise UserError(f"{imu_path}: the mean specific force is {force_m_s2:.3g}, which is not gravity in m/s²")
    start_s, end_s = max(start_s, pose_t[0] - GAP_MAX_S), min(t[-1], pose_t[-1], end_s)
    if end_s - start_s < SHORTEST_S:
        raise UserError(f"{folder}: {IMU_FILE} and {truth_path.name} have less than {SHORTEST_S:g} s in common")
    R_BI = body_axes()
    q_IB = quat_from_matrix(R_BI.T)
    upright = quat_exp(np.cross(UP_POSES, (0.0, 0.0, 1.0)))  # a small rotation
    used, posed = (t >= start_s) & (t <= end_s), (pose_t >= start_s) & (pose_t <= end_s)
    zero_s = t[used][0]
    return Recording(
        t=t[used] - zero_s,
        gyro_B=samples[used, :3] @ R_BI.T,
        accel_B=samples[used, 3:] @ R_BI.T,
        pose_t=pose_t[posed] - zero_s,
        pose_p_W=poses[posed, 1:4] @ rotation_matrix(upright).T,
        pose_q_WB=np.array([quat_multiply(upright, quat_multiply(q / np.linalg.norm(q), q_IB)) for q in q_WI[posed]]),
    )


def _rows(path: Path, separator: str | None, columns: int, meaning: str) -> list[list[str]]:
    """The fields of all lines that are no comment."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        row = line.split(separator)
        if len(row) != columns:
            raise UserError(f"{path}: line {number} has {len(row)} columns, needs {columns}: {meaning}")
        rows.append(row)
    if not rows:
        raise UserError(f"{path}: is empty")
    return rows


def _integer(path: Path, row: list[str]) -> int:
    try:
        return int(row[0])
    except ValueError:
        raise UserError(f"{path}: the stamp '{row[0]}' is not a whole number of nanoseconds") from None


def _numbers(path: Path, rows: list[list[str]], first: int) -> Array:
    try:
        values = np.array([[float(field) for field in row[first:]] for row in rows])
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    if not np.isfinite(values).all():
        raise UserError(f"{path}: holds a number that is not finite")
    return values


def _check_times(path: Path, times: Array) -> None:
    steps = np.diff(times)
    if len(steps) == 0 or not np.all(steps > 0.0):
        raise UserError(f"{path}: its times do not ascend")
    if steps.max() > GAP_MAX_S:
        at = int(np.argmax(steps))
        raise UserError(f"{path}: {steps[at]:.3g} s without a row after {times[at]:.2f} s, {GAP_MAX_S:g} s at most")


# --- the smoother

P, V, Q, G, A = (slice(3 * i, 3 * i + 3) for i in range(5))  # of the error: p, v, θ (in B), biases of both sensors


class _Estimate(NamedTuple):
    p_W: Array
    v_W: Array
    q_WB: Array
    gyro_bias_B: Array
    accel_bias_B: Array

    def plus(self, e: Array) -> "_Estimate":
        q = quat_multiply(self.q_WB, quat_exp(e[Q]))
        return _Estimate(self.p_W + e[P], self.v_W + e[V], q, self.gyro_bias_B + e[G], self.accel_bias_B + e[A])

    def minus(self, other: "_Estimate") -> Array:
        turn = quat_log(quat_multiply(quat_conjugate(other.q_WB), self.q_WB))
        rest = (a - b for a, b in zip(self[3:], other[3:], strict=True))
        return np.concatenate([self.p_W - other.p_W, self.v_W - other.v_W, turn, *rest])


def smoothed(recording: Recording) -> Motion:
    """The true motion at every sample, from the poses and the samples of the whole recording."""
    t, pose_t = recording.t, recording.pose_t
    gyro_B, accel_B = (0.5 * (x[1:] + x[:-1]) for x in (recording.gyro_B, recording.accel_B))
    # Each pose corrects at the sample that is nearest to it.
    at = {int(np.argmin(np.abs(t - time_s))): i for i, time_s in enumerate(pose_t)}
    slope = (recording.pose_p_W[1] - recording.pose_p_W[0]) / (pose_t[1] - pose_t[0])
    zero = np.zeros(3)
    estimate = _Estimate(recording.pose_p_W[0], slope, recording.pose_q_WB[0], zero, zero)
    covariance = np.diag(np.repeat(np.square(START_STD), 3))
    noise = np.repeat(np.square(POSE_STD), 3)
    corrected: list[_Estimate] = []
    predicted: list[_Estimate] = []
    gains: list[Array] = []
    for i in range(len(t)):
        if i:
            dt = t[i] - t[i - 1]
            predicted_state, F = _moved(estimate, gyro_B[i - 1], accel_B[i - 1], dt)
            after = F @ covariance @ F.T + _process(dt)
            gains.append(np.linalg.solve(after, F @ covariance).T)
            estimate, covariance = predicted_state, after
        predicted.append(estimate)
        if i in at:
            k = at[i]
            turn = quat_log(quat_multiply(quat_conjugate(estimate.q_WB), recording.pose_q_WB[k]))
            residual = np.concatenate([recording.pose_p_W[k] - estimate.p_W, turn])
            seen = [*range(P.start, P.stop), *range(Q.start, Q.stop)]
            K = np.linalg.solve(covariance[np.ix_(seen, seen)] + np.diag(noise), covariance[seen]).T
            estimate = estimate.plus(K @ residual)
            covariance = covariance - K @ covariance[seen]
            covariance = 0.5 * (covariance + covariance.T)
        corrected.append(estimate)
    smooth = [corrected[-1]]
    for i in range(len(t) - 2, -1, -1):
        smooth.append(corrected[i].plus(gains[i] @ smooth[-1].minus(predicted[i + 1])))
    return Motion(t, *(np.array(column) for column in zip(*reversed(smooth), strict=True)))


def _moved(before: _Estimate, gyro_B: Array, accel_B: Array, dt: float) -> tuple[_Estimate, Array]:
    """The estimate after an interval with these means, and its transition."""
    turn, force_B = (gyro_B - before.gyro_bias_B) * dt, accel_B - before.accel_bias_B
    R = rotation_matrix(quat_multiply(before.q_WB, quat_exp(turn / 2)))
    acceleration = R @ force_B - (0.0, 0.0, GRAVITY_M_S2)
    after = before._replace(
        p_W=before.p_W + dt * before.v_W + dt**2 / 2 * acceleration,
        v_W=before.v_W + dt * acceleration,
        q_WB=quat_multiply(before.q_WB, quat_exp(turn)),
    )
    F, by_turn = np.eye(15), -R @ skew(force_B)
    F[P, V] = dt * np.eye(3)
    F[P, Q], F[V, Q] = dt**2 / 2 * by_turn, dt * by_turn
    F[P, A], F[V, A] = -(dt**2) / 2 * R, -dt * R
    F[Q, Q] = rotation_matrix(quat_exp(-turn))
    F[Q, G] = -dt * np.eye(3)
    return after, F


def _process(dt: float) -> Array:
    density = (0.0, ACCEL_M_S_SQRT_S, GYRO_RAD_SQRT_S, GYRO_BIAS_RAD_S_SQRT_S, ACCEL_BIAS_M_S2_SQRT_S)
    return np.diag(np.repeat(np.square(density) * dt + 1e-18, 3))

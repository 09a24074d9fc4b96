"""Position and velocity as PX4's EKF2 estimates them: smooth, with the errors of GNSS, invalid after a loss of GNSS.

The accelerometer, turned by the attitude solution, drives position, velocity and a slow acceleration bias of each
world axis. GNSS fixes correct them at the time of their validity, with the steady-state gains of the Kalman filter
that has EKF2's noise: its parameters, or the accuracy that the receiver reports where that is larger. Height without fixes
comes from the barometer, whose bias is estimated while GNSS is available. A fix outside its gate is rejected, and as in EKF2
position and velocity are each reset to the first one that is rejected when none of its kind was fused for `RESET_AFTER_S`:
with joint gates both, 2 s after the position became invalid (EKF2_NOAID_TOUT is 5 s). With ``gates_apart`` horizontal position, height and velocity of a fix are rejected each by itself, as
EKF2 does: a jump of the position then leaves the velocity, which keeps the estimate valid, until the position alone is reset.
The height alone is reset to the receiver's after `HEIGHT_RESET_AFTER_S`, and the barometer's bias with it (EKF2_HGT_REF 1).

With EKF2_GPS_CTRL 0 nothing of the receiver is used: the height is the barometer's, over the place of the start, and the
horizontal position is not valid. Its numbers are sent all the same (LOCAL_POSITION_NED of PX4 1.17 has no flag): at rest
they stand still, in flight they are the integral of the accelerometer and drift without bound.
"""

import math
from collections import deque
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_discrete_are

from companion.core.frames import GRAVITY_M_S2
from sitl.autopilot.conversion import Quat, Vec3
from sitl.autopilot.parameters import Parameters
from sitl.sensors import GnssFix

GNSS_CHECK_S = 3.0  # GNSS must have been good for this long before the position is valid (EKF2_REQ_GPS_H is 10 s)
GAP_S = 1.0  # without a fix: these checks begin again
GNSS_PERIOD_S = 0.1  # for which the gains are computed; they are small enough for 5 to 20 Hz
FIX_MIN_S, FIX_MAX_S = 0.004, 0.5  # periods that a source may have; longer ones are gaps
OTHER_SOURCE = 3.0  # factor in the period of fixes that makes another source (motion capture) with its own gains
RESET_AFTER_S = 7.0  # since a position, or a velocity, was fused: the next rejected one resets it (EKF2: 7 s)
HEIGHT_RESET_AFTER_S = 5.0  # since a height was fused, with gates_apart (EKF2: GNSS height starts again with a reset)
VERTICAL_NOISE = 1.5  # of GNSS height and climb over EKF2's parameters, which are horizontal
LEAST_NOISE = 0.01  # m and m/s, of a fix
NO_AID_NOISE_M = 10.0  # EKF2_NOAID_NOISE: where GNSS is all there is, its position noise is taken for no larger
EKF_PERIOD_S = 0.01  # EKF2_PREDICT_US: the noise of the inertial sensors is added at each prediction
# Of an acceleration error that is learnt, what EKF2 takes for a bias of the accelerometer and not for tilt: horizontally our judgement
# (its noise parameters alone say far less), upwards there is no tilt.
SENSOR_SHARES = (0.5, 0.5, 1.0)
ACCURACY_CHANGE = 1.1  # factor in the reported accuracy from which on the gains are computed again
BARO_PERIOD_S = 0.02
# With GNSS the height is GNSS's: EKF2_BARO_NOISE is 3.5 m, and EKF2 lets the barometer's bias walk by 0.13 m/s/√Hz. Gains of a reading.
BARO_BIAS_TIME_S = 6.0  # with which the barometer's bias follows the GNSS height
BARO_GAIN, BARO_VELOCITY_GAIN_1_S = 0.0008, 0.00008
BARO_GAIN_ALONE, BARO_VELOCITY_GAIN_ALONE_1_S = 0.006, 0.0009  # after GNSS was lost
BARO_ALONE_1_S = 0.5  # triple pole of height, velocity and bias of the acceleration where the barometer is all there is
GPS_POSITION = 1  # bit of EKF2_GPS_CTRL
HISTORY = 128  # frames kept to correct late fixes: 0.5 s at 250 Hz


class AxisNoise(NamedTuple):
    """What EKF2 assumes of one axis: standard deviations of a fix and, at each of its predictions, of the inertial sensors."""

    position_m: float
    velocity_m_s: float
    accel_m_s2: float
    tilt_rad_s: float  # of the gyroscopes: a tilt error is an error of the acceleration
    bias_m_s3: float


def axis_noises(
    parameters: Parameters, h_acc_m: float = 0.0, v_acc_m: float = 0.0, speed_acc_m_s: float = 0.0
) -> tuple[AxisNoise, AxisNoise]:
    """Horizontal and vertical noise as EKF2 takes it: the larger of parameter and reported accuracy (PX4 1.17,
    EKF/aid_sources/gnss/gps_control.cpp and gnss_height_control.cpp)."""
    get = parameters
    position_m = get["EKF2_GPS_P_NOISE"]
    level_m, height_m = _larger(position_m, h_acc_m), _larger(VERTICAL_NOISE * position_m, v_acc_m)
    velocity_m_s = _larger(get["EKF2_GPS_V_NOISE"], speed_acc_m_s)
    inertial = (get["EKF2_ACC_NOISE"], get["EKF2_GYR_NOISE"], get["EKF2_ACC_B_NOISE"])
    return (
        AxisNoise(min(level_m, NO_AID_NOISE_M), velocity_m_s, *inertial),
        AxisNoise(min(height_m, NO_AID_NOISE_M), VERTICAL_NOISE * velocity_m_s, *inertial)._replace(tilt_rad_s=0.0),
    )


class Gains:
    """Steady-state correction gains of one axis for position and velocity measurements.

    The states are position, velocity and acceleration bias. Between two fixes EKF2 predicts every `EKF_PERIOD_S` and adds
    (σ_a T)² to the velocity's variance, (σ_ω T)² to that of the tilt, which is an acceleration of g times as much, and
    (σ_b T)² to the bias's (EKF/covariance.cpp). Both errors of the acceleration are one state here, as fixes cannot
    tell them apart in a hover.
    """

    def __init__(self, noise: AxisNoise, dt: float) -> None:
        F = np.array([[1.0, dt, dt * dt / 2], [0.0, 1.0, dt], [0.0, 0.0, 1.0]])
        white = noise.accel_m_s2**2 * EKF_PERIOD_S  # spectral densities
        walk = ((GRAVITY_M_S2 * noise.tilt_rad_s) ** 2 + noise.bias_m_s3**2) * EKF_PERIOD_S
        Q = white * np.array([[dt**3 / 3, dt**2 / 2, 0.0], [dt**2 / 2, dt, 0.0], [0.0, 0.0, 0.0]])
        Q += walk * np.array(
            [
                [dt**5 / 20, dt**4 / 8, dt**3 / 6],
                [dt**4 / 8, dt**3 / 3, dt**2 / 2],
                [dt**3 / 6, dt**2 / 2, dt],
            ]
        )
        H, R = np.eye(2, 3), np.diag([noise.position_m**2, noise.velocity_m_s**2])
        before = solve_discrete_are(F.T, H.T, Q, R)
        S = before[:2, :2] + R
        K = before[:, :2] @ np.linalg.inv(S)
        after = (np.eye(3) - K @ H) @ before
        self.K = K
        self.pp, self.pv = K[0].tolist()
        self.vp, self.vv = K[1].tolist()
        self.bp, self.bv = K[2].tolist()
        self.position_std, self.velocity_std = math.sqrt(after[0, 0]), math.sqrt(after[1, 1])
        self.innovation_p, self.innovation_v = math.sqrt(S[0, 0]), math.sqrt(S[1, 1])


class Observer:
    """Local position (ENU) and velocity with validity flags, one `predict` per IMU frame."""

    def __init__(self, parameters: Parameters, dt_s: float) -> None:
        self._dt = dt_s
        self._parameters = parameters
        self._period_s = GNSS_PERIOD_S
        self._accuracy = (0.0, 0.0, 0.0)  # as the gains have it: of position, height and velocity
        self.update_parameters()
        self._fix_s: float | None = None  # stamp of the newest fix
        self.p = [0.0, 0.0, 0.0]
        self.v = [0.0, 0.0, 0.0]
        self.bias = [0.0, 0.0, 0.0]  # of the acceleration, world axes [m/s²]: by tilt and by the accelerometer
        self.sensor_bias = [0.0, 0.0, 0.0]  # the accelerometer's share
        self.acceleration = [0.0, 0.0, 0.0]
        self._past: deque[tuple[float, ...]] = deque(maxlen=HISTORY)
        self._shift_p, self._shift_v = [0.0] * 3, [0.0] * 3  # sum of the corrections, to be added to the history
        self._baro_bias: float | None = None
        self._baro_last_s = -math.inf
        self._position_fused_s = self._velocity_fused_s = -math.inf  # newest fix whose position, whose velocity passed
        self._height_fused_s = -math.inf
        self._arrived_s = self._good_since_s = -math.inf  # newest fix, fused or not; first one after the last gap
        self.initialised = False
        self.position_valid = False
        self.height_valid = False
        self.gnss_ok = False
        self.refuses_gnss = False  # a fault: fixes come, and its checks do not pass
        self.resets = 0
        self.height_resets_m = 0.0  # the sum of their steps
        self.gates_apart = False
        # Innovations over their gates: the test ratios of ESTIMATOR_STATUS.
        self.ratio_p = self.ratio_height = self.ratio_v = 0.0

    def update_parameters(self) -> None:
        """Read EKF2's parameters again."""
        get = self._parameters
        self._gate_p, self._gate_v = get["EKF2_GPS_P_GATE"], get["EKF2_GPS_V_GATE"]
        self._timeout_s = get["EKF2_NOAID_TOUT"] * 1e-6
        self.uses_gnss = get.integer("EKF2_GPS_CTRL") & GPS_POSITION != 0
        self._noises = axis_noises(get, *self._accuracy)
        horizontal, vertical = (Gains(noise, self._period_s) for noise in self._noises)
        self.gains = (horizontal, horizontal, vertical)

    def _note_source(self, fix: GnssFix) -> None:
        """Compute the gains again for fixes that come `OTHER_SOURCE` times as often, or whose accuracy has changed."""
        last, self._fix_s = self._fix_s, fix.stamp_s
        period_s = GNSS_PERIOD_S if last is None else fix.stamp_s - last
        changed = FIX_MIN_S <= period_s <= FIX_MAX_S and not _within(period_s, self._period_s, OTHER_SOURCE)
        if changed:
            self._period_s = period_s
        accuracy = (fix.h_acc_m, fix.v_acc_m, fix.speed_acc_m_s)
        now, then = (
            [value for noise in noises for value in noise[:2]]
            for noises in (axis_noises(self._parameters, *accuracy), self._noises)
        )
        if changed or not all(_within(a, b, ACCURACY_CHANGE) for a, b in zip(now, then, strict=True)):
            self._accuracy = accuracy
            self.update_parameters()

    def position_std_m(self, now_s: float) -> float:
        """Standard deviation of the horizontal position; grows while no fix is fused."""
        alone_s = max(0.0, now_s - self._fused_s - 0.5)
        return self.gains[0].position_std + min(0.15 * alone_s * alone_s, 100.0)

    def predict(self, now_s: float, accel_B: Vec3, q_WB: Quat) -> None:
        """Move the state to now_s with the specific force accel_B [m/s²]."""
        w, x, y, z = q_WB
        fx, fy, fz = accel_B
        # rotate: f + 2 w (u × f) + 2 u × (u × f)
        cx, cy, cz = y * fz - z * fy, z * fx - x * fz, x * fy - y * fx
        b = self.bias
        ax = fx + 2.0 * (w * cx + y * cz - z * cy) + b[0]
        ay = fy + 2.0 * (w * cy + z * cx - x * cz) + b[1]
        az = fz + 2.0 * (w * cz + x * cy - y * cx) - GRAVITY_M_S2 + b[2]
        self.acceleration = [ax, ay, az]
        if not self.initialised:
            return
        p, v, dt = self.p, self.v, self._dt
        half = 0.5 * dt
        p[0] += (v[0] + ax * half) * dt
        p[1] += (v[1] + ay * half) * dt
        p[2] += (v[2] + az * half) * dt
        v[0] += ax * dt
        v[1] += ay * dt
        v[2] += az * dt
        sp, sv = self._shift_p, self._shift_v
        self._past.append((now_s, p[0] - sp[0], p[1] - sp[1], p[2] - sp[2], v[0] - sv[0], v[1] - sv[1], v[2] - sv[2]))

    def accel_bias_B(self, q_WB: Quat) -> Vec3:
        """What the observer subtracts from the accelerometer [m/s²]: its bias in body axes.

        EKF2 estimates it by the receiver's position and velocity: it changes by a little with each fix.
        """
        w, x, y, z = q_WB
        bx, by, bz = self.sensor_bias
        cx, cy, cz = by * z - bz * y, bz * x - bx * z, bx * y - by * x  # b × u
        return (
            -(bx + 2.0 * (w * cx + cy * z - cz * y)),
            -(by + 2.0 * (w * cy + cz * x - cx * z)),
            -(bz + 2.0 * (w * cz + cx * y - cy * x)),
        )

    def check(self, now_s: float) -> None:
        """Bring the validity flags up to date."""
        self.gnss_ok = now_s - self._fused_s < GAP_S
        if self.position_valid:
            self.position_valid = now_s - self._fused_s < self._timeout_s
        else:
            self.position_valid = self.gnss_ok and now_s - self._good_since_s >= GNSS_CHECK_S
        baro_alive = self._baro_bias is not None and now_s - self._baro_last_s < 1.0
        self.height_valid = self.initialised and (baro_alive or self.position_valid)

    def correct_gnss(self, now_s: float, fix: GnssFix) -> None:
        """Correct the state with a fix that was valid at its stamp."""
        if not fix.ok or not self.uses_gnss or self.refuses_gnss:
            return
        self._note_source(fix)
        if now_s - self._arrived_s > GAP_S:
            self._good_since_s = now_s
        self._arrived_s = now_s
        if not self.initialised:
            self._begin(now_s, fix)
            return
        past = self._state_at(fix.stamp_s, now_s)
        gains = self.gains
        dp = [fix.p_W[i] - past[1 + i] - self._shift_p[i] for i in range(3)]
        dv = [fix.v_W[i] - past[4 + i] - self._shift_v[i] for i in range(3)]
        x, y, z = (abs(dp[i]) / (self._gate_p * gains[i].innovation_p) for i in range(3))
        self.ratio_p, self.ratio_height = (max(x, y), z) if self.gates_apart else 2 * (max(x, y, z),)
        self.ratio_v = max(abs(dv[i]) / (self._gate_v * gains[i].innovation_v) for i in range(3))
        fuse_p, fuse_v = self.ratio_p <= 1.0, self.ratio_v <= 1.0
        if self.gates_apart:
            dp[2] = self._height_error(now_s, dp[2], z <= 1.0)
        else:
            fuse_p = fuse_v = fuse_p and fuse_v
        if not fuse_p:
            fuse_p = self._reset_position(now_s, dp)
            dp = [0.0, 0.0, dp[2] if self.gates_apart else 0.0]
        if not fuse_v:
            fuse_v = self._reset_velocity(now_s, dv)
            dv = [0.0, 0.0, 0.0]
        for i in range(3):
            k = gains[i]
            self._shift(i, k.pp * dp[i] + k.pv * dv[i], k.vp * dp[i] + k.vv * dv[i])
            learnt = k.bp * dp[i] + k.bv * dv[i]
            self.bias[i] += learnt
            self.sensor_bias[i] += SENSOR_SHARES[i] * learnt
        if fuse_p:
            self._position_fused_s = now_s
        if fuse_v:
            self._velocity_fused_s = now_s

    def _height_error(self, now_s: float, error_m: float, passed: bool) -> float:
        """The height error of a fix [m] that corrects the state: 0 where it is rejected, or where the height is reset to it."""
        if not passed and now_s - self._height_fused_s > HEIGHT_RESET_AFTER_S:
            self.p[2] += error_m
            self._shift_p[2] += error_m
            if self._baro_bias is not None:
                self._baro_bias -= error_m
            self.height_resets_m += error_m
            self.resets += 1
            error_m, passed = 0.0, True
        if passed:
            self._height_fused_s = now_s
            return error_m
        return 0.0

    def correct_baro(self, now_s: float, height_m: float) -> None:
        """Correct the height with a barometer reading over the world's zero height."""
        self._baro_last_s = now_s
        if not self.initialised and not self.uses_gnss:
            self.initialised, self._baro_bias = True, height_m
        if not self.initialised:
            if self._baro_bias is None:
                self._baro_bias = 0.0
            return
        if self._baro_bias is None:
            self._baro_bias = height_m - self.p[2]
        error = height_m - self._baro_bias - self.p[2]
        if self.gnss_ok:
            self._baro_bias += error * BARO_PERIOD_S / BARO_BIAS_TIME_S
        if not self.uses_gnss:
            w = BARO_ALONE_1_S
            self._shift(2, 3 * w * BARO_PERIOD_S * error, 3 * w**2 * BARO_PERIOD_S * error)
            self.bias[2] += w**3 * BARO_PERIOD_S * error
            self.sensor_bias[2] = self.bias[2]
            return
        if self.gnss_ok:
            self._shift(2, BARO_GAIN * error, BARO_VELOCITY_GAIN_1_S * error)
        else:
            self._shift(2, BARO_GAIN_ALONE * error, BARO_VELOCITY_GAIN_ALONE_1_S * error)

    @property
    def _fused_s(self) -> float:
        return max(self._position_fused_s, self._velocity_fused_s)

    def rest(self) -> None:
        """Without GNSS the horizontal state stands still while the aircraft stands disarmed, as with EKF2's constant position."""
        if not self.uses_gnss:
            self.p[:2], self.v[:2] = [0.0, 0.0], [0.0, 0.0]

    def _state_at(self, stamp_s: float, now_s: float) -> tuple[float, ...]:
        past = self._past
        if not past:
            return (now_s, *self.p, *self.v)
        back = round((past[-1][0] - stamp_s) / self._dt)
        return past[max(0, len(past) - 1 - max(back, 0))]

    def _shift(self, axis: int, dp: float, dv: float) -> None:
        self.p[axis] += dp
        self.v[axis] += dv
        self._shift_p[axis] += dp
        self._shift_v[axis] += dv

    def _begin(self, now_s: float, fix: GnssFix) -> None:
        """Take the state of the first fix."""
        self.p, self.v, self._baro_bias = list(fix.p_W), list(fix.v_W), None
        self._position_fused_s = self._velocity_fused_s = self._height_fused_s = now_s
        self.initialised = True

    def _reset_position(self, now_s: float, error_m: list[float]) -> bool:
        """Move the position by its error at the time of a fix, if none has passed the gate for long enough; True if it has moved.

        PX4 counts this in ODOMETRY.reset_counter. What was learnt of the acceleration stays.
        """
        if now_s - self._position_fused_s <= RESET_AFTER_S:
            return False
        for axis in range(2 if self.gates_apart else 3):  # apart, the height has its own resets
            self._shift(axis, error_m[axis], 0.0)
        if not self.gates_apart:
            self._baro_bias, self._height_fused_s = None, now_s
            self.height_resets_m += error_m[2]
        self.resets += 1
        return True

    def _reset_velocity(self, now_s: float, error_m_s: list[float]) -> bool:
        """The same of the velocity."""
        if now_s - self._velocity_fused_s <= RESET_AFTER_S:
            return False
        for axis in range(3):
            self._shift(axis, 0.0, error_m_s[axis])
        self.resets += 1
        return True


def _larger(parameter: float, accuracy: float) -> float:
    return max(parameter, accuracy if math.isfinite(accuracy) else 0.0, LEAST_NOISE)


def _within(value: float, other: float, factor: float) -> bool:
    return 1.0 / factor < value / other < factor

"""The flight controller's sensors: the true motion with errors, rates, delays and faults.

One `SensorFrame` every 4 ms. The attitude is modelled as the output of an EKF such as PX4's: the true attitude, turned
in the world by a slowly varying tilt and heading error, plus white noise in the body:
q̂ = exp(e_W) ⊗ q ⊗ exp(n_B). GNSS follows the paper's virtual GNSS (Kalaitzakis & Vitzilaios, Robotics 2023,
12(5), 123): white noise plus a random walk, each with a variance per sample.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Annotated, Literal, NamedTuple, Protocol

import numpy as np

from companion.core.arrays import Array
from companion.core.config import Section, number
from companion.core.frames import GRAVITY_M_S2
from companion.core.trajectory_messages import Quat, Vec3
from sitl.wind import NormalNoise, OrnsteinUhlenbeck

FRAME_S = 0.004  # PX4 runs its rate loop and its simulated IMU at 250 Hz
HEADING_FOLLOWS_S = 2.0  # time constant with which EKF2's heading follows a compass that iron turns
TIME_EPSILON_S = 1e-6  # times are multiples of a frame up to rounding

SensorFault = Literal["gnss_lost", "gnss_jump", "battery_low", "heading"]


class ImuConfig(Section, frozen=True):
    """Gyroscope and accelerometer."""

    gyro_noise_rad_s: Annotated[float, number(0.0, 1.0, "rad/s, standard deviation of a frame")]
    gyro_bias_rad_s: Annotated[float, number(0.0, 0.1, "rad/s, standard deviation from start to start")]
    accel_noise_m_s2: Annotated[float, number(0.0, 10.0, "m/s², standard deviation of a frame, white")]
    accel_bias_m_s2: Annotated[float, number(0.0, 1.0, "m/s², standard deviation from start to start")]
    # What propellers and motors shake while they turn: most of it above 40 Hz, as in logs of hexarotors.
    vibration_m_s2: Annotated[float, number(0.0, 50.0, "m/s², standard deviation of a frame, each axis")] = 0.0
    vibration_rad_s: Annotated[float, number(0.0, 5.0, "rad/s, standard deviation of a frame, each axis")] = 0.0


class AttitudeConfig(Section, frozen=True):
    """Errors of the autopilot's attitude solution."""

    tilt_std_rad: Annotated[float, number(0.0, 0.2, "rad, about each horizontal axis")]
    tilt_time_s: Annotated[float, number(0.1, 1e4, "s")]
    heading_offset_std_rad: Annotated[float, number(0.0, 0.5, "rad, constant from start on")]
    heading_std_rad: Annotated[float, number(0.0, 0.2, "rad")]
    heading_time_s: Annotated[float, number(0.1, 1e4, "s")]
    white_std_rad: Annotated[float, number(0.0, 0.1, "rad, about each axis")]
    heading_offset_rad: Annotated[float, number(-3.15, 3.15, "rad, constant, added to the random one")] = 0.0
    # Hovering, a tilt error e and an accelerometer bias -g x e look the same to an EKF. This share of the tilt error
    # is such a bias, in the accelerometer too, and moves the velocity by nothing; the rest looks like an acceleration.
    tilt_in_accel: Annotated[float, number(0.0, 1.0, "share of the tilt error")] = 0.0


class GnssJump(Section, frozen=True):
    """A multipath error that begins and ends suddenly. The receiver does not know it."""

    at_s: Annotated[float, number(0.0, 1e5, "s from the first frame on")]
    duration_s: Annotated[float, number(0.0, 1e5, "s")]
    offset_m: tuple[
        Annotated[float, number(-100, 100, "m")],
        Annotated[float, number(-100, 100, "m")],
        Annotated[float, number(-100, 100, "m")],
    ]


class GnssConfig(Section, frozen=True):
    """GNSS fixes: white noise and a random walk."""

    rate_hz: Annotated[float, number(0.1, 250.0, "Hz")]
    delay_s: Annotated[float, number(0.0, 2.0, "s from validity to arrival")]
    white_variance_m2: Annotated[float, number(0.0, 100.0, "m² of a sample, each axis")]
    walk_variance_m2: Annotated[float, number(0.0, 1.0, "m² added by every sample, each axis")]
    velocity_std_m_s: Annotated[float, number(0.0, 5.0, "m/s, each axis")]
    velocity_drift_m_s: Annotated[float, number(0.0, 5.0, "m/s, standard deviation of the slow error, each axis")] = 0.0
    velocity_drift_time_s: Annotated[float, number(0.1, 1e4, "s, its correlation time")] = 5.0
    jumps: list[GnssJump] = []


class BaroConfig(Section, frozen=True):
    """Barometric height."""

    rate_hz: Annotated[float, number(0.1, 250.0, "Hz")]
    noise_m: Annotated[float, number(0.0, 10.0, "m")]
    drift_m_sqrt_s: Annotated[float, number(0.0, 1.0, "m/√s, random walk")]


class RangeFinderConfig(Section, frozen=True):
    """A range finder at the centre of gravity that looks along body x."""

    rate_hz: Annotated[float, number(0.1, 250.0, "Hz")]
    noise_m: Annotated[float, number(0.0, 1.0, "m, standard deviation")]
    min_m: Annotated[float, number(0.0, 10.0, "m")]
    max_m: Annotated[float, number(0.5, 300.0, "m")]


class SensorConfig(Section, frozen=True):
    """The `[sensors]` table of a scenario."""

    imu: ImuConfig
    attitude: AttitudeConfig
    gnss: GnssConfig
    baro: BaroConfig
    battery_noise_v: Annotated[float, number(0.0, 1.0, "V")]
    range_finder: RangeFinderConfig | None = None  # None: the aircraft has none


WALK_KNOWN_S = 60.0  # a receiver that has been on for longer reports no larger error

PAPER = SensorConfig(  # the virtual GNSS of paper 1 on an ordinary PX4 autopilot
    imu=ImuConfig(
        gyro_noise_rad_s=0.005,  # ICM-42688-P behind PX4's filters, propellers turning
        gyro_bias_rad_s=0.001,  # the rest that the autopilot's EKF does not estimate
        accel_noise_m_s2=0.15,
        accel_bias_m_s2=0.02,
    ),
    attitude=AttitudeConfig(
        tilt_std_rad=math.radians(0.3),
        tilt_time_s=60.0,
        heading_offset_std_rad=math.radians(1.0),
        heading_std_rad=math.radians(0.5),
        heading_time_s=60.0,
        white_std_rad=math.radians(0.1),
    ),
    gnss=GnssConfig(rate_hz=10.0, delay_s=0.1, white_variance_m2=1e-3, walk_variance_m2=1e-3, velocity_std_m_s=0.05),
    baro=BaroConfig(rate_hz=50.0, noise_m=0.1, drift_m_sqrt_s=0.02),
    battery_noise_v=0.02,
)


class GnssFix(NamedTuple):
    """A position solution; ``stamp_s`` is the time of its validity. Not ``ok``: no solution, old numbers."""

    stamp_s: float
    p_W: Vec3
    v_W: Vec3
    ok: bool
    # Standard deviations of its errors as the receiver reports them. A jump (a fault) is not known to the receiver.
    h_acc_m: float = 0.8  # horizontal, both axes together
    v_acc_m: float = 1.2
    speed_acc_m_s: float = 0.2  # all three axes together


class RangeReading(NamedTuple):
    """A reading of the range finder with the sensor's limits [m]; at ``max_m``: nothing in range."""

    range_m: float
    min_m: float
    max_m: float


class Face(NamedTuple):
    """The plane that the range finder measures against: the face of an infinite wall."""

    p_W: Vec3
    normal_W: Vec3  # out of the wall


Look = Callable[[Array, Vec3], float]  # from a point along a unit vector to what is in the way [m]; inf: nothing


class SensorFrame(NamedTuple):
    """All sensors at ``stamp_s``. Vectors are plain tuples and never change."""

    stamp_s: float
    gyro_B: Vec3  # rad/s
    accel_B: Vec3  # specific force [m/s²]
    q_WB: Quat  # attitude solution
    gnss: GnssFix | None  # only in the frame in which a fix arrives
    baro_height_m: float | None  # over z = 0 of W; only in frames with a new reading
    battery_voltage_v: float
    battery_remaining: float
    range: RangeReading | None = None  # only in frames with a new reading


class TrueMotion(Protocol):
    """The quantities that the sensors measure; `sitl.plant.Plant` provides them."""

    p_W: Array
    v_W: Array
    q_WB: Array
    omega_B: Array
    specific_force_B: Array
    rotor_speed_rad_s: Array

    @property
    def battery_voltage_v(self) -> float: ...

    @property
    def battery_remaining(self) -> float: ...


class Vibration:
    """Second differences of white noise: their spectrum rises with the fourth power of the frequency, up to half of the frame rate.

    In the log of a hexarotor whose accelerometer has 3.6 m/s² in a frame (docs/experiments.md), its noise is 0.31 m/s²/√Hz above
    80 Hz, 0.09 above 40 and 0.02 above 10; with 4 m/s² that of this is 0.37, 0.20 and 0.04.
    """

    _GAIN = 6**-0.5  # of 1, -2, 1

    def __init__(self, config: ImuConfig, noise: NormalNoise) -> None:
        self._std = 3 * (config.vibration_m_s2,) + 3 * (config.vibration_rad_s,)
        self._noise = noise
        self._last, self._before = noise.take(6), noise.take(6)

    def advance(self) -> list[float]:
        """The next frame's specific force [m/s²] and angular rate [rad/s], six numbers."""
        newest, last, before = self._noise.take(6), self._last, self._before
        self._last, self._before = newest, last
        return [
            std * self._GAIN * (c - 2 * b + a) for std, a, b, c in zip(self._std, before, last, newest, strict=True)
        ]


def reported_accuracy(gnss: GnssConfig, after_s: float) -> tuple[float, float, float]:
    """What a receiver reports of itself this long after its start, as the fields of `GnssFix`.

    It knows its white noise and what its random walk makes of a position in `WALK_KNOWN_S`. Of multipath, the jumps and the slow error
    of the velocity, it knows nothing.
    """
    walk_m2 = gnss.walk_variance_m2 * gnss.rate_hz * min(after_s, WALK_KNOWN_S)
    axis_m = math.sqrt(gnss.white_variance_m2 + walk_m2)
    return math.sqrt(2.0) * axis_m, axis_m, math.sqrt(3.0) * gnss.velocity_std_m_s


class Sensors:
    """Turns the true motion into sensor frames; the same seed and motion give the same frames.

    ``gnss_bias_W`` is the part of the GNSS error that successive fixes share: random walk and jumps [m].
    """

    def __init__(self, config: SensorConfig, seed: int, ahead: Face | Look | None = None) -> None:
        """ahead: what is in front of the range finder; None: nothing."""
        self._config, self._ahead = config, ahead
        # One stream per sensor: more noise on one of them leaves the others as they were.
        imu, attitude, gnss, baro, battery, range_finder = (
            NormalNoise(np.random.default_rng(s)) for s in np.random.SeedSequence(seed).spawn(6)
        )
        self._imu_noise, self._attitude_noise, self._gnss_noise = imu, attitude, gnss
        self._baro_noise, self._battery_noise, self._range_noise = baro, battery, range_finder
        self._gyro_bias = [config.imu.gyro_bias_rad_s * imu() for _ in range(3)]
        self._accel_bias = [config.imu.accel_bias_m_s2 * imu() for _ in range(3)]

        a = config.attitude
        self._heading_offset_rad = a.heading_offset_std_rad * attitude() + a.heading_offset_rad
        self._attitude_error = OrnsteinUhlenbeck(
            (a.tilt_std_rad, a.tilt_std_rad, a.heading_std_rad),
            (a.tilt_time_s, a.tilt_time_s, a.heading_time_s),
            attitude,
        )
        self._walk_W = [0.0, 0.0, 0.0]
        g = config.gnss
        # These leave the six as they were.
        drift, shake = (NormalNoise(np.random.default_rng(np.random.SeedSequence((seed, n)))) for n in (1, 2))
        self._vibration = (
            Vibration(config.imu, shake) if config.imu.vibration_m_s2 or config.imu.vibration_rad_s else None
        )
        self._velocity_drift = (
            OrnsteinUhlenbeck([g.velocity_drift_m_s] * 3, [g.velocity_drift_time_s] * 3, drift)
            if g.velocity_drift_m_s
            else None
        )
        self._multipath_W: Vec3 = (0.0, 0.0, 0.0)
        self._fixes: deque[GnssFix] = deque()  # between validity and arrival
        self._last_fix: GnssFix | None = None
        self._gnss_count = self._baro_count = self._range_count = 0
        self._baro_drift_m = 0.0
        self._start_s: float | None = None
        self._gnss_lost = False
        self._jump_W: Vec3 = (0.0, 0.0, 0.0)
        self._battery_fault: tuple[float, float] | None = None
        self._heading_disturbance_rad = self._heading_shift_rad = 0.0

    @property
    def gnss_bias_W(self) -> Vec3:
        w, j, m = self._walk_W, self._jump_W, self._multipath_W
        return w[0] + j[0] + m[0], w[1] + j[1] + m[1], w[2] + j[2] + m[2]

    def set_fault(self, kind: SensorFault, value: bool | Sequence[float] | None) -> None:
        """Begin a fault, or end it with None; raises ValueError for an unknown kind.

        "gnss_lost": True: fixes arrive without a solution. "gnss_jump": (x, y, z) [m] on every fix taken
        from now on. "battery_low": (voltage [V], remaining 0..1) in place of the measurement. "heading": (angle [rad],) by
        which the attitude solution's heading is turned, as EKF2 follows a compass near iron.
        """
        if kind == "gnss_lost":
            self._gnss_lost = bool(value)
            return
        numbers = value if isinstance(value, Sequence) else None
        if kind == "gnss_jump":
            x, y, z = (0.0, 0.0, 0.0) if numbers is None else numbers
            self._jump_W = (float(x), float(y), float(z))
        elif kind == "heading":
            self._heading_disturbance_rad = 0.0 if numbers is None else float(numbers[0])
        elif kind == "battery_low":
            self._battery_fault = None if numbers is None else (numbers[0], numbers[1])
        else:
            raise ValueError(f"no such sensor fault: {kind}")

    def sample(self, now_s: float, truth: TrueMotion) -> SensorFrame:
        """The frame at now_s; call it every `FRAME_S`."""
        if self._start_s is None:
            self._start_s = now_s
        elapsed_s = now_s - self._start_s
        gyro_B, accel_B = self._imu(truth)
        q_WB = self._attitude(truth)
        if self._config.attitude.tilt_in_accel:
            accel_B = self._biased_as_tilted(accel_B, truth)
        voltage_v, remaining = self._battery_fault or (truth.battery_voltage_v, truth.battery_remaining)
        return SensorFrame(
            now_s,
            gyro_B,
            accel_B,
            q_WB,
            self._gnss(now_s, elapsed_s, truth),
            self._baro(elapsed_s, truth),
            voltage_v + self._config.battery_noise_v * self._battery_noise(),
            remaining,
            self._range(elapsed_s, truth),
        )

    def _imu(self, truth: TrueMotion) -> tuple[Vec3, Vec3]:
        c = self._config.imu
        g, a = c.gyro_noise_rad_s, c.accel_noise_m_s2
        n = self._imu_noise.take(6)
        gx, gy, gz = truth.omega_B.tolist()
        ax, ay, az = truth.specific_force_B.tolist()
        if self._vibration is not None and truth.rotor_speed_rad_s.any():
            vx, vy, vz, wx, wy, wz = self._vibration.advance()
            ax, ay, az, gx, gy, gz = ax + vx, ay + vy, az + vz, gx + wx, gy + wy, gz + wz
        bg, ba = self._gyro_bias, self._accel_bias
        return (
            (gx + bg[0] + g * n[0], gy + bg[1] + g * n[1], gz + bg[2] + g * n[2]),
            (ax + ba[0] + a * n[3], ay + ba[1] + a * n[4], az + ba[2] + a * n[5]),
        )

    def _attitude(self, truth: TrueMotion) -> Quat:
        s = self._config.attitude.white_std_rad
        ex, ey, ez = self._attitude_error.advance(FRAME_S)
        self._heading_shift_rad += (
            FRAME_S / HEADING_FOLLOWS_S * (self._heading_disturbance_rad - self._heading_shift_rad)
        )
        q = _multiply(
            _small_rotation(ex, ey, ez + self._heading_offset_rad + self._heading_shift_rad), truth.q_WB.tolist()
        )
        x, y, z = self._attitude_noise.take(3)
        return _multiply(q, _small_rotation(s * x, s * y, s * z))

    def _biased_as_tilted(self, accel_B: Vec3, truth: TrueMotion) -> Vec3:
        """accel_B with the bias that explains its share of the tilt error: -Rᵀ (e_W x g ẑ)."""
        ex, ey, _ = self._attitude_error.value
        share_g = self._config.attitude.tilt_in_accel * GRAVITY_M_S2
        x, y, z = _turned_back((-share_g * ey, share_g * ex, 0.0), truth.q_WB.tolist())
        return accel_B[0] + x, accel_B[1] + y, accel_B[2] + z

    def _gnss(self, now_s: float, elapsed_s: float, truth: TrueMotion) -> GnssFix | None:
        c = self._config.gnss
        if elapsed_s >= self._gnss_count / c.rate_hz - TIME_EPSILON_S:
            self._gnss_count += 1
            self._fixes.append(self._take_fix(now_s, elapsed_s, truth))
        if self._fixes and now_s >= self._fixes[0].stamp_s + c.delay_s - TIME_EPSILON_S:
            return self._fixes.popleft()
        return None

    def _take_fix(self, now_s: float, elapsed_s: float, truth: TrueMotion) -> GnssFix:
        n, c, walk = self._gnss_noise, self._config.gnss, self._walk_W
        white, step = math.sqrt(c.white_variance_m2), math.sqrt(c.walk_variance_m2)
        for i in range(3):
            walk[i] += step * n()
        if c.jumps:
            begun = [j.offset_m for j in c.jumps if j.at_s <= elapsed_s < j.at_s + j.duration_s]
            self._multipath_W = begun[-1] if begun else (0.0, 0.0, 0.0)
        bias = self.gnss_bias_W
        px, py, pz = (p + b + white * n() for p, b in zip(truth.p_W.tolist(), bias, strict=True))
        vx, vy, vz = (v + c.velocity_std_m_s * n() for v in truth.v_W.tolist())
        if self._velocity_drift is not None:
            dx, dy, dz = self._velocity_drift.advance(1.0 / c.rate_hz)
            vx, vy, vz = vx + dx, vy + dy, vz + dz
        fix = GnssFix(now_s, (px, py, pz), (vx, vy, vz), True, *reported_accuracy(c, self._gnss_count / c.rate_hz))
        if self._gnss_lost:
            return (self._last_fix or fix)._replace(stamp_s=now_s, ok=False)
        self._last_fix = fix
        return fix

    def _baro(self, elapsed_s: float, truth: TrueMotion) -> float | None:
        c = self._config.baro
        if elapsed_s < self._baro_count / c.rate_hz - TIME_EPSILON_S:
            return None
        self._baro_count += 1
        self._baro_drift_m += c.drift_m_sqrt_s / math.sqrt(c.rate_hz) * self._baro_noise()
        return float(truth.p_W[2]) + self._baro_drift_m + c.noise_m * self._baro_noise()

    def _range(self, elapsed_s: float, truth: TrueMotion) -> RangeReading | None:
        c = self._config.range_finder
        if c is None or elapsed_s < self._range_count / c.rate_hz - TIME_EPSILON_S:
            return None
        self._range_count += 1
        measured_m = self._distance_ahead_m(truth) + c.noise_m * self._range_noise()
        return RangeReading(min(max(measured_m, 0.0), c.max_m), c.min_m, c.max_m)

    def _distance_ahead_m(self, truth: TrueMotion) -> float:
        """From the aircraft along body x to what is in the way; inf where nothing is."""
        ahead = self._ahead
        if ahead is None:
            return math.inf
        w, x, y, z = truth.q_WB.tolist()
        ahead_W = (1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y + w * z), 2.0 * (x * z - w * y))
        if not isinstance(ahead, Face):
            return ahead(truth.p_W, ahead_W)
        normal_W = ahead.normal_W
        approach = -sum(n * a for n, a in zip(normal_W, ahead_W, strict=True))
        before_m = sum(n * (a - f) for n, a, f in zip(normal_W, truth.p_W.tolist(), ahead.p_W, strict=True))
        return before_m / approach if approach > 1e-6 and before_m >= 0.0 else math.inf


def _small_rotation(x: float, y: float, z: float) -> Quat:
    """Unit quaternion of a rotation vector of a few degrees: (1, r/2), normalised (error below |r|³/12)."""
    x, y, z = 0.5 * x, 0.5 * y, 0.5 * z
    w = 1.0 / math.sqrt(1.0 + x * x + y * y + z * z)
    return w, x * w, y * w, z * w


def _turned_back(v_W: Vec3, q_WB: Sequence[float]) -> Vec3:
    """A vector of W in B."""
    w, x, y, z = q_WB
    inverse = (w, -x, -y, -z)
    _, bx, by, bz = _multiply(_multiply(inverse, (0.0, *v_W)), q_WB)
    return bx, by, bz


def _multiply(a: Sequence[float], b: Sequence[float]) -> Quat:
    """`frames.quat_multiply` on plain floats: arrays of four would take most of a frame's time."""
    aw, ax, ay, az = a
    bw, bx, by, bz = b
    return (
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    )

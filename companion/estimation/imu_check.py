"""Whether the flight controller's inertial measurements can be used, judged by its own attitude and velocity.

Pure: samples, attitudes and velocities in, a verdict out. Wrong axes, signs, units or scales, frozen values and bad
stamps make the filter worse than no inertial measurements at all, so such a stream is not used until it has been good
for a while.

Every test compares an integral with what the flight controller says about the same time. Both integrals fade with a
time constant, so a constant error e of the rate is seen as e·τ, and noise of attitude and velocity, which is a
difference of two values, does not grow.

| test | error that is judged | limit | ordinary errors |
|---|---|---|---|
| direction | mean of f_W − g ẑ at rest, τ 1 s | 1.5 m/s² | accelerometer 0.3, tilt 1.5° (0.26): 0.6 m/s² together |
| direction | mean of f_B, τ 20 ms: across the thrust | 7 m/s² and 1.5 of that along it | wind of 12 m/s: 5 m/s² and half, vibration of 3 m/s²: 1.1 |
| direction | the same, along the thrust | -3 m/s² | rotors push only upwards; a gust from above at hover: > 5 m/s² |
| direction | and with gravity added, by the attitude | 7 m/s² | an aircraft that lies on its side: 0.6 m/s² as above |
| turns | turn by the gyroscope less that of the attitude, across the vertical, τ 0.5 s | 0.035 rad RMS and 0.7 of the turn | bias 0.02 rad/s, attitude 0.35° white, 10 ms at 0.5 rad/s: 0.015 rad |
| turns | the same at any moment | 0.07 rad and 0.7 of the turn | three standard deviations of that: 0.045 rad |
| turns | the same about the vertical | 0.15 rad RMS and 0.7 of the turn | a compass that iron turns by 20° in 2 s: 0.09 rad |
| forces | speed by the accelerometer less that of the velocity, τ 2 s | 4 m/s | 0.6 m/s² as above and 0.3 by vibration: 1.8 m/s; velocity 0.2 m/s, a kick by a fix of 0.5 m/s |
| frozen | time in which an axis keeps its value to the last bit while another changes | 0.5 s | noise changes every sample |

An attitude that turns faster than STEP_RAD_S or a velocity that changes by more than STEP_M_S from one message to the
next is a reset of the flight controller's estimator, which says nothing about the IMU; nor does the velocity in the
DOUBT_S after it, because the estimator has just been wrong.
"""

from bisect import bisect_right
from collections import deque
from math import atan2, exp, hypot, inf, sqrt
from operator import add, sub
from typing import NamedTuple

from companion.core.enums import ImuFault
from companion.core.frames import GRAVITY_M_S2
from companion.core.trajectory_messages import Quat, Vec3

RATE_MIN_HZ = 45.0  # 50 Hz with a tenth of the messages lost; below that most of the time is between the samples
LATE_ARRIVAL_S = 0.15  # after its stamp, a sample that the link refuses is one that an interruption has delayed
RATE_S = 0.25  # over which the rate is a mean
RATE_SAMPLES = 10  # before it is judged
STOP_S = 0.2  # between two samples: the integrals begin again
STOPPED_S = 0.5  # without a sample: the stream has stopped
LATE_S = 0.5  # a sample this far behind the newest has come late; more is a stamp that jumped back
BAD_STAMPS = 5.0  # within a second

GRAVITY_S, GRAVITY_M_S2_MAX = 1.0, 1.5
ACROSS_M_S2, ACROSS_ALONG, ALONG_M_S2 = 7.0, 1.5, -3.0
SAMPLE_SHARE, SPIKE_M_S2 = 0.25, 20.0  # of a sample in the mean; a single sample counts as no more: an impact
TURN_S, TURN_RAD, TURN_UP_RAD, TURN_SHARE = 0.5, 0.035, 0.15, 0.7
TURN_AT_ONCE_RAD = 0.07  # across the vertical, without waiting for the mean
TURN_MEAN_S = 2.0  # of the squares
FORCE_S, FORCE_M_S = 2.0, 4.0
SETTLED_S = 0.5  # before a mean is judged
STEP_RAD_S, STEP_M_S, DOUBT_S = 10.0, 2.0, 5.0
FROZEN_S = 0.5  # a dead axis is 0 less the bias that the flight controller estimates, which it changes once a second
INTERVAL_MAX_S = 0.25  # between two attitudes or velocities that are compared

# A stream is used again after this time without a fault, twice as long after each relapse.
GOOD_S, GOOD_MAX_S = 3.0, 48.0
RELAPSE_S = 60.0  # a fault within this time is a relapse
UNDO_S = 0.8  # of the samples before a fault was found are withdrawn: it takes that long to show
KEEP_S = 1.0  # of samples, for attitudes and velocities that arrive later

WORDS = {
    ImuFault.DIRECTION: "the specific force does not point up on the ground, or along the thrust in flight: check axes, signs and units",
    ImuFault.TURNS: "the angular rates contradict the attitude: check axes, signs and units",
    ImuFault.FORCES: "the specific force contradicts the velocity: check axes, signs and units",
    ImuFault.FROZEN: "an axis of the accelerometer or of the gyroscope does not change: it is dead",
    ImuFault.SLOW: f"slower than {RATE_MIN_HZ:g} Hz",
    ImuFault.STAMPS: "time stamps jump",
    ImuFault.STOPPED: "the stream has stopped",
}


class ImuVerdict(NamedTuple):
    """What to do with a sample."""

    use: bool
    withdraw_s: float = inf  # samples that are newer than this must be withdrawn; inf: none


USE, REFUSE = ImuVerdict(True), ImuVerdict(False)


class _Mean:
    """Mean of three numbers that fades with a time constant."""

    def __init__(self, time_s: float) -> None:
        self._time_s = time_s
        self.reset()

    def reset(self) -> None:
        self._sum, self._weight = [0.0, 0.0, 0.0], 0.0

    def add(self, dt: float, values: Vec3) -> None:
        """Values that held for dt."""
        keep = exp(-dt / self._time_s)
        self._weight = keep * self._weight + dt
        (a, b, c), (x, y, z) = self._sum, values
        self._sum = [keep * a + dt * x, keep * b + dt * y, keep * c + dt * z]

    @property
    def value(self) -> Vec3 | None:
        """None before it has settled."""
        if self._weight < SETTLED_S:
            return None
        x, y, z = self._sum
        return x / self._weight, y / self._weight, z / self._weight


class _Faded:
    """An integral that fades with a time constant."""

    def __init__(self, time_s: float) -> None:
        self._time_s = time_s
        self.reset()

    def reset(self) -> None:
        self.value: Vec3 = (0.0, 0.0, 0.0)

    def add(self, dt: float, change: Vec3) -> None:
        keep = exp(-dt / self._time_s)
        (x, y, z), (a, b, c) = self.value, change
        self.value = keep * x + a, keep * y + b, keep * z + c


class _Integral:
    """Integral of piecewise constant numbers, linear between its points; keeps the last KEEP_S."""

    def __init__(self) -> None:
        self._times: deque[float] = deque()
        self._sums: deque[tuple[float, ...]] = deque()

    def reset(self) -> None:
        self._times.clear()
        self._sums.clear()

    @property
    def newest_s(self) -> float:
        """-inf: empty."""
        return self._times[-1] if self._times else -inf

    def add(self, time_s: float, change: tuple[float, ...]) -> None:
        """The integral grows by `change` until time_s."""
        last = self._sums[-1] if self._sums else (0.0,) * len(change)
        self._times.append(time_s)
        self._sums.append(tuple(map(add, last, change)))
        while self._times[0] < time_s - KEEP_S:
            self._times.popleft()
            self._sums.popleft()

    def between(self, start_s: float, end_s: float) -> tuple[float, ...] | None:
        """Growth over an interval; None where it is not known."""
        if not self._times or start_s < self._times[0] or end_s > self._times[-1]:
            return None
        return tuple(map(sub, self._at(end_s), self._at(start_s)))

    def _at(self, time_s: float) -> tuple[float, ...]:
        at = bisect_right(self._times, time_s)
        if at == len(self._times):
            return self._sums[-1]
        before_s, after_s = self._times[at - 1], self._times[at]
        share = (time_s - before_s) / (after_s - before_s)
        return tuple(a + share * (b - a) for a, b in zip(self._sums[at - 1], self._sums[at], strict=True))


class ImuCheck:
    """The sanity check of one stream. Times are the stamps of the samples, in the companion's clock."""

    def __init__(self) -> None:
        # samples that were not used, by reason; STOPPED: how often
        self.rejected = {str(fault): 0 for fault in ImuFault}
        self.fault: ImuFault | None = None  # why the stream is not used
        self._refused: ImuFault | None = None
        self._bad_s = self._used_again_s = -inf  # when a fault was last seen, when the stream was last used again
        self._good_s = GOOD_S  # without a fault, before the stream is used again
        self._newest_s = self._stepped_s = -inf
        self._stopped = False
        self._turn_is_wrong = False  # at this moment, across the vertical
        self._counted, self._counted_s, self._intervals = 0.0, 0.0, 0  # samples and time; both fade
        self._bad_stamps = 0.0
        self._at_rest = False
        self._motion, self._speed = _Integral(), _Integral()  # (turn_B, force_B · time), change of velocity in W
        self._attitudes: deque[tuple[float, Quat]] = deque(maxlen=200)  # not compared yet, after the last one that was
        self._velocities: deque[tuple[float, Vec3]] = deque(maxlen=200)
        self._gravity = _Mean(GRAVITY_S)
        self._force_B: Vec3 | None = None  # mean of the last samples
        self._sample: tuple[float, ...] = (0.0,) * 6  # gyroscope, accelerometer
        self._kept_s = [0.0] * 6  # for how long each of these has kept its value while another changed
        self._turn_error, self._turn = _Faded(TURN_S), _Faded(TURN_S)
        self._speed_error = _Faded(FORCE_S)
        self._squares = _Mean(TURN_MEAN_S), _Mean(TURN_MEAN_S)  # of (error, turn, -) across and about the vertical

    @property
    def rate_hz(self) -> float:
        """Samples per second, mean of RATE_S; 0: none arrives."""
        return self._counted / self._counted_s if self._counted_s > 0.0 and not self._stopped else 0.0

    @property
    def problem(self) -> str:
        """Why the stream is not used, in words; "" while it is used, or before it began."""
        return "" if self.fault is None else WORDS[self.fault]

    # --- messages

    def set_at_rest(self, at_rest: bool) -> None:
        """Whether the aircraft stands on the ground with its motors off."""
        if at_rest != self._at_rest:
            self._gravity.reset()
        self._at_rest = at_rest

    def add_attitude(self, stamp_s: float, q_WB: Quat) -> None:
        """The flight controller's attitude."""
        if not self._attitudes or stamp_s > self._attitudes[-1][0]:
            self._attitudes.append((stamp_s, q_WB))

    def add_velocity(self, stamp_s: float, v_W: Vec3) -> None:
        """The flight controller's velocity [m/s]."""
        if not self._velocities or stamp_s > self._velocities[-1][0]:
            self._velocities.append((stamp_s, v_W))

    def add_unusable(self, stamp_s: float, now_s: float) -> None:
        """A sample that the link or the estimator has refused.

        Its stamp is bad when it is ahead of the clock or behind the stream; one that is only late in order is not. The
        link gives a sample whose stamp cannot be used the time of its arrival: a refused sample is late, or its stamp
        is bad. Before the first good sample the clock need not be known.
        """
        late = now_s - stamp_s > LATE_ARRIVAL_S and self._newest_s - stamp_s <= LATE_S
        if self._newest_s > -inf and not late:
            self._bad_stamps = min(self._bad_stamps + 1.0, 2.0 * BAD_STAMPS)
            self.rejected[ImuFault.STAMPS] += 1

    def note_time(self, now_s: float) -> None:
        """Call it in every step: only the time shows that a stream has stopped."""
        if -inf < self._newest_s < now_s - STOPPED_S and not self._stopped:
            self._stopped = True
            stopped = ImuFault.STAMPS if self._bad_stamps >= BAD_STAMPS else ImuFault.STOPPED
            self.fault = self._refused or stopped
            self.rejected[ImuFault.STOPPED] += 1

    def add(self, stamp_s: float, gyro_B: Vec3, force_B: Vec3, now_s: float) -> ImuVerdict:
        """Judge a sample, the mean of the interval that ends at its stamp: [rad/s], [m/s²]."""
        behind_s = self._newest_s - stamp_s
        if behind_s > LATE_S:
            self.add_unusable(stamp_s, now_s)
            return REFUSE
        if behind_s >= 0.0:
            self._counted += behind_s > 0.0
            return REFUSE if self._refused else USE
        dt = -behind_s
        self._newest_s = stamp_s
        self._bad_stamps *= exp(-min(dt, 1.0))
        if dt > STOP_S:
            self.rejected[ImuFault.STOPPED] += dt < inf and not self._stopped
            self._begin(stamp_s)
        else:
            self._intervals += 1
            keep = exp(-dt / RATE_S)
            self._counted, self._counted_s = keep * self._counted + 1.0, keep * self._counted_s + dt
            self._force_B = _blended(self._force_B, force_B)
            self._motion.add(stamp_s, tuple([dt * x for x in (*gyro_B, *force_B)]))
            self._compare_attitudes()
            self._compare_velocities()
        self._compare_axes(dt, (*gyro_B, *force_B))
        return self._verdict(stamp_s)

    # --- the comparison

    def _begin(self, stamp_s: float) -> None:
        """The stream begins, or goes on after a stop."""
        self._stopped = self._turn_is_wrong = False
        self._counted, self._counted_s, self._intervals, self._force_B = 0.0, 0.0, 0, None
        for part in (self._motion, self._speed, self._gravity, self._turn_error, self._turn, self._speed_error):
            part.reset()
        for squares in self._squares:
            squares.reset()
        self._motion.add(stamp_s, (0.0,) * 6)
        self._kept_s = [0.0] * 6

    def _compare_axes(self, dt: float, sample: tuple[float, ...]) -> None:
        """A simulator without noise that stands still changes nothing, and no axis of it is dead."""
        if sample != self._sample:
            axes = zip(self._kept_s, self._sample, sample, strict=True)
            self._kept_s = [kept_s + min(dt, STOP_S) if new == old else 0.0 for kept_s, old, new in axes]
            self._sample = sample

    def _compare_attitudes(self) -> None:
        """Compare every interval between two attitudes that the samples cover."""
        attitudes = self._attitudes
        while len(attitudes) > 1 and attitudes[1][0] <= self._motion.newest_s:
            (start_s, q_start), (end_s, q_end) = attitudes.popleft(), attitudes[0]
            grown, dt = self._motion.between(start_s, end_s), end_s - start_s
            if grown is not None and dt <= INTERVAL_MAX_S:
                self._compare_turn(dt, q_start, q_end, (grown[0], grown[1], grown[2]))
                self._integrate_force(end_s, dt, q_start, q_end, (grown[3], grown[4], grown[5]))

    def _compare_turn(self, dt: float, q_start: Quat, q_end: Quat, turn_B: Vec3) -> None:
        seen_B = _turn_between(q_start, q_end)
        if hypot(*seen_B) > STEP_RAD_S * dt:
            seen_B = turn_B
        x, y, z = map(sub, turn_B, seen_B)
        self._turn_error.add(dt, (x, y, z))
        self._turn.add(dt, seen_B)
        up_B = _up(q_end)
        error, turn = _split(self._turn_error.value, up_B), _split(self._turn.value, up_B)
        self._turn_is_wrong = error[0] > max(TURN_AT_ONCE_RAD**2, TURN_SHARE**2 * turn[0])
        for squares, e, s in zip(self._squares, error, turn, strict=True):
            squares.add(dt, (e, s, 0.0))

    def _integrate_force(self, end_s: float, dt: float, q_start: Quat, q_end: Quat, push_B: Vec3) -> None:
        first, last = _rotated(q_start, push_B), _rotated(q_end, push_B)
        x, y, z = (0.5 * (a + b) for a, b in zip(first, last, strict=True))
        change_W = (x, y, z - GRAVITY_M_S2 * dt)
        if self._speed.newest_s < end_s - dt - 1e-9:  # the first interval, or one was missing
            self._speed.reset()
            self._speed.add(end_s - dt, (0.0, 0.0, 0.0))
        self._speed.add(end_s, change_W)
        if self._at_rest:
            self._gravity.add(dt, (change_W[0] / dt, change_W[1] / dt, change_W[2] / dt))

    def _compare_velocities(self) -> None:
        velocities = self._velocities
        while len(velocities) > 1 and velocities[1][0] <= self._speed.newest_s:
            (start_s, v_start), (end_s, v_end) = velocities.popleft(), velocities[0]
            grown, dt = self._speed.between(start_s, end_s), end_s - start_s
            if grown is None or dt > INTERVAL_MAX_S:
                continue
            seen = tuple(b - a for a, b in zip(v_start, v_end, strict=True))
            if hypot(*seen) > STEP_M_S:
                self._stepped_s = end_s
            doubted = end_s - self._stepped_s < DOUBT_S
            x, y, z = (0.0, 0.0, 0.0) if doubted else (a - b for a, b in zip(grown, seen, strict=True))
            self._speed_error.add(dt, (x, y, z))

    # --- the verdict

    def _found(self) -> ImuFault | None:
        """The fault that the samples show at this moment."""
        if self._bad_stamps >= BAD_STAMPS:
            return ImuFault.STAMPS
        if self._intervals >= RATE_SAMPLES and self._counted < RATE_MIN_HZ * self._counted_s:
            return ImuFault.SLOW
        if self._force_B is not None and self._points_wrong(self._force_B):
            return ImuFault.DIRECTION
        mean_W = self._gravity.value if self._at_rest else None
        if mean_W is not None and hypot(*mean_W) > GRAVITY_M_S2_MAX:
            return ImuFault.DIRECTION
        for squares, limit_rad in zip(self._squares, (TURN_RAD, TURN_UP_RAD), strict=True):
            if (mean := squares.value) is None:
                continue
            error, turn = sqrt(mean[0]), sqrt(mean[1])
            if error > limit_rad and error > TURN_SHARE * turn:
                return ImuFault.TURNS
        if self._turn_is_wrong:
            return ImuFault.TURNS
        if max(self._kept_s) > FROZEN_S:
            return ImuFault.FROZEN
        return ImuFault.FORCES if hypot(*self._speed_error.value) > FORCE_M_S else None

    def _points_wrong(self, force_B: Vec3) -> bool:
        """Not along the thrust, and not upwards by the attitude: an aircraft that lies on its side is no fault."""
        across, along = hypot(force_B[0], force_B[1]), force_B[2]
        if along >= ALONG_M_S2 and across <= max(ACROSS_M_S2, ACROSS_ALONG * along):
            return False
        if not self._attitudes:
            return True
        x, y, z = _rotated(self._attitudes[-1][1], force_B)
        return hypot(x, y, z - GRAVITY_M_S2) > ACROSS_M_S2

    def _verdict(self, stamp_s: float) -> ImuVerdict:
        found, was = self._found(), self._refused
        if found is not None:
            if was is None:
                relapse = stamp_s - self._used_again_s < RELAPSE_S
                self._good_s = min(2.0 * self._good_s, GOOD_MAX_S) if relapse else GOOD_S
            self._refused, self._bad_s = found if was is None else was, stamp_s
        elif was is not None and stamp_s - self._bad_s >= self._good_s:
            self._refused, self._used_again_s = None, stamp_s
        self.fault = self._refused
        if self._refused is None:
            return USE
        self.rejected[self._refused] += 1
        return ImuVerdict(False, stamp_s - UNDO_S) if was is None else REFUSE


# --- plain numbers: these run for every attitude


def _blended(mean: Vec3 | None, sample: Vec3) -> Vec3:
    if mean is None:
        return sample
    x, y, z = map(sub, sample, mean)
    share = SAMPLE_SHARE * min(1.0, SPIKE_M_S2 / max(hypot(x, y, z), SPIKE_M_S2))
    return mean[0] + share * x, mean[1] + share * y, mean[2] + share * z


def _turn_between(q_start: Quat, q_end: Quat) -> Vec3:
    """Rotation vector, in the body, from one attitude to another: log(q_start* ⊗ q_end)."""
    (a, b, c, d), (w, x, y, z) = q_start, q_end
    v = (a * x - b * w - c * z + d * y, a * y + b * z - c * w - d * x, a * z - b * y + c * x - d * w)
    real, length = a * w + b * x + c * y + d * z, hypot(*v)
    if length < 1e-12:
        return 0.0, 0.0, 0.0
    scale = 2.0 * (atan2(length, real) if real >= 0.0 else atan2(-length, -real)) / length
    return scale * v[0], scale * v[1], scale * v[2]


def _up(q_WB: Quat) -> Vec3:
    """The vertical in the body."""
    w, x, y, z = q_WB
    return 2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)


def _rotated(q_WB: Quat, v_B: Vec3) -> Vec3:
    w, x, y, z = q_WB
    a, b, c = v_B
    cx, cy, cz = y * c - z * b + w * a, z * a - x * c + w * b, x * b - y * a + w * c
    return a + 2.0 * (y * cz - z * cy), b + 2.0 * (z * cx - x * cz), c + 2.0 * (x * cy - y * cx)


def _split(vector: Vec3, up: Vec3) -> tuple[float, float]:
    """Squares of the parts across and along a unit vector."""
    x, y, z = vector
    along = x * up[0] + y * up[1] + z * up[2]
    return max(0.0, x * x + y * y + z * z - along * along), along * along

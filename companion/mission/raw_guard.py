"""The independent guard: motion by the flight controller's own data, counted from the record taken at arming.

The filter of this stack can be wrong in a way that none of its own checks shows: a bundle that moves sideways was once
taken for an error of GNSS. The guard therefore uses nothing of the filter for the position. Its source is the position
and velocity of the flight controller (LOCAL_POSITION_NED); where this stack sends ODOMETRY to PX4, these contain the
filter's own estimate, and the guard uses the receiver's solution (GPS_RAW_INT) and the barometer instead. While the
barometer's height is silent the receiver's stands in for it, from the zero that both had in common last.

* The record is the median of the raw positions of the last second on the ground, never HOME_POSITION, which follows
  GNSS in PX4 1.17 and which a ground station may set.
* GNSS may be wrong by as much as it reports: a limit is exceeded only beyond limit + `margin_m`.
* A reset of PX4's estimator moves its frame, not the aircraft. PX4 counts its resets in ODOMETRY.reset_counter, alone of
  all messages of 1.17 and without the size. A jump of the raw position that such a count confirms moves the record, by at
  most `SHIFT_MAX_M` from its place, so that resets cannot lead the guard away.
* Without a fix PX4 dead-reckons, by metres within seconds: the guard has no value then, and for `SETTLE_S` after.
"""

import math
from collections import deque
from statistics import median
from typing import NamedTuple

from companion.core.geodesy import LocalFrame
from companion.core.messages import FcuPosition, FcuStatus, State
from companion.core.trajectory_messages import Vec3
from companion.mission.plan import Limits

RECORD_S = 1.0  # of positions on the ground, whose median is the record
MARGIN_MIN_M = 2.0  # drift of the local position on the ground and in flight of a good receiver
ACCURACIES = 3.0  # in standard deviations as the receiver reports them
ACCURACY_MAX_M = 5.0  # PX4 accepts fixes up to EKF2_REQ_EPH = 3 m; worse reports do not widen the guard any further
RANGE_ERROR_M = 1.5  # per HDOP, of a single-frequency receiver without corrections that reports no accuracy
ACCURACY_UNKNOWN_M = 2.5  # a receiver that reports neither accuracy nor HDOP
VERTICAL_RATIO = 1.5  # vertical over horizontal error where only one is reported, as EKF2 assumes
GNSS_AGE_S = 1.0  # GPS_RAW_INT is requested five times a second
SETTLE_S = 5.0  # after a fix has come back
# PX4 1.17 resets to satellites that it has refused 2 s after it has lost its position, checks them for 1 s, and SYS_STATUS may be
# late by more than a second.
RESETS_S = 4.5
POSITION_AGE_S = 1.0  # an older position is lost (`raw_lost`): a stream of 2 Hz has a value without a break, too
JUMP_M = 0.3  # between two positions, beyond their velocities: 20 ms apart no multirotor deviates so much
MANOEUVRE_M_S2 = 5.0  # by which it deviates between positions farther apart, at most: half of the weight
# Positions farther apart show no jump. `plausible` drops two before it follows: three periods of a stream of 3 Hz.
GAP_MAX_S = 1.05
CONFIRM_S = 0.4  # by which the times of a jump and of its count may miss each other: delays of the link, a message lost
COUNT_AGE_MAX_S = 1.2  # of a jump that no count confirms: ODOMETRY and positions of 2 Hz, and `CONFIRM_S`
SHIFT_MAX_M = 5.0  # of the record from its place
DIFFERENCE_S = 2.0  # over which the difference of the velocities is averaged
STATES = 100  # of the filter, one second


class RawMotion(NamedTuple):
    """The motion by the flight controller's data, world axes."""

    p: Vec3  # from the record [m]
    v: Vec3  # [m/s]; the vertical is NaN where it is not measured
    margin_m: float  # horizontal
    vertical_margin_m: float


def outside_fence_m(raw: RawMotion, limits: Limits) -> float:
    """How far the aircraft is outside the fence box beyond the margins [m], ≤ 0 inside; inf for NaN."""
    if any(map(math.isnan, raw.p)):
        return math.inf
    margins = (raw.margin_m, raw.margin_m, raw.vertical_margin_m)
    axes = zip(raw.p, limits.fence_min_m, limits.fence_max_m, margins, strict=True)
    return max(max(low - value, value - high) - margin for value, low, high, margin in axes)


def height_m(raw: RawMotion) -> float:
    """Height over the record, less its margin [m]."""
    return raw.p[2] - raw.vertical_margin_m


def distance_m(raw: RawMotion) -> float:
    """Horizontal distance from the record, less its margin [m]."""
    return math.hypot(raw.p[0], raw.p[1]) - raw.margin_m


def leaves_limits(raw: RawMotion, limits: Limits, horizontal: bool = True) -> bool:
    """The aircraft is outside one of the limits, whatever the margins; horizontal: False: only the height is known."""
    if not horizontal:
        return height_m(raw) > limits.height_m
    outside = outside_fence_m(raw, limits) > 0 or height_m(raw) > limits.height_m
    return outside or distance_m(raw) > limits.distance_m


class _Jump(NamedTuple):
    """A step of the position beyond the motion; it lies between two positions."""

    since_s: float
    until_s: float
    p: Vec3


class _Record:
    """Where the aircraft stood: the median of the positions of the last `RECORD_S` on the ground."""

    def __init__(self) -> None:
        self._recent: deque[tuple[float, Vec3]] = deque()
        self.p: Vec3 | None = None

    def add(self, stamp_s: float, p: Vec3) -> None:
        if self._recent and stamp_s <= self._recent[-1][0]:
            return
        self._recent.append((stamp_s, p))
        while self._recent[0][0] < stamp_s - RECORD_S:
            self._recent.popleft()
        x, y, z = (median(position[i] for _, position in self._recent) for i in range(3))
        self.p = (x, y, z)

    def move(self, by: Vec3) -> None:
        if self.p is not None:
            self.p = (self.p[0] + by[0], self.p[1] + by[1], self.p[2] + by[2])


class _Heights:
    """One height from two sources with different zeros: the barometer's, or the receiver's while that is silent.

    The sources drift apart by metres. A change of the source takes their newest common difference and moves nothing.
    """

    def __init__(self) -> None:
        self._zero_m: float | None = None  # the height at which the barometer shows 0
        self._apart_m: deque[tuple[float, float]] = deque()  # stamp, height less the receiver's

    def height_m(self, stamp_s: float, barometer_m: float, receiver_m: float) -> float:
        """The height over a zero that does not change [m]; barometer_m: NaN while it is silent."""
        apart_m = median(m for _, m in self._apart_m) if self._apart_m else 0.0
        if math.isnan(barometer_m):
            return receiver_m + apart_m
        if self._zero_m is None:
            self._zero_m = receiver_m - barometer_m
        height_m = self._zero_m + barometer_m
        self._apart_m.append((stamp_s, height_m - receiver_m))
        while self._apart_m[0][0] < stamp_s - RECORD_S:
            self._apart_m.popleft()
        return height_m


class RawGuard:
    """Takes messages as they arrive; `motion` is what the monitors evaluate.

    by_receiver: the position of the flight controller contains the estimate of this stack (`fcu.send_odometry`).
    """

    def __init__(self, by_receiver: bool) -> None:
        self._by_receiver = by_receiver
        self._stood = _Record()  # by the flight controller's position
        self._stood_by_receiver = _Record()
        self._stood_accuracy_m = (0.0, 0.0)  # horizontal and vertical, when the record was taken
        self._frame = LocalFrame()
        self._heights = _Heights()
        self._position: FcuPosition | None = None
        self._status: FcuStatus | None = None
        self._raw: tuple[float, Vec3, Vec3] | None = None  # stamp, position, velocity
        self._fix_since_s = -math.inf  # when it came back after a loss
        self._fix_s = -math.inf
        self._positioned_s = -math.inf  # when PX4 last had a position by its own checks, or reported none
        self._states: deque[tuple[float, Vec3]] = deque(maxlen=STATES)
        self._differences: deque[tuple[float, Vec3]] = deque()
        self._resets: int | None = None
        self._resets_s = -math.inf  # when it was counted
        self._counted_s: tuple[float, float] | None = None  # between which times it last grew, until a jump explains it
        self._jumps: deque[_Jump] = deque(maxlen=8)
        self._resets_W: Vec3 = (0.0, 0.0, 0.0)  # sum of the confirmed jumps since the record was taken
        self._resets_at_start_W: Vec3 = (0.0, 0.0, 0.0)  # the same when the mission took the aircraft

    # --- messages ---

    def take_state(self, state: State) -> None:
        """A valid and finite state."""
        self._states.append((state.stamp_s, state.v_W))

    def take_position(self, position: FcuPosition) -> None:
        if not position.valid or not all(map(math.isfinite, (*position.p_W, *position.v_W))):
            return
        before, self._position = self._position, position
        if before is not None:
            self._note_jump(before, position)
        if not self._by_receiver:
            self._put(position.stamp_s, position.p_W, position.v_W)

    def take_status(self, status: FcuStatus, now_s: float) -> None:
        """A status of a connected flight controller."""
        self._status = status
        if status.gnss_ok:
            if now_s - self._fix_s > GNSS_AGE_S and math.isfinite(self._fix_s):
                self._fix_since_s = now_s
            self._fix_s = now_s
        if status.position_ok is not False:
            self._positioned_s = now_s
        if status.position_resets is not None:
            if self._resets is not None and status.position_resets != self._resets:
                self._counted_s = self._resets_s, now_s
                self._follow_resets(now_s)
            counted_s = status.position_resets_s  # NaN in logs from before this field
            self._resets, self._resets_s = status.position_resets, now_s if math.isnan(counted_s) else counted_s
        stamp_s = -math.inf if self._raw is None else self._raw[0]
        received = self._frame.received(status) if self._by_receiver and status.gnss_s > stamp_s else None
        if received is not None:
            east, north, up = received
            height_m = self._heights.height_m(status.gnss_s, status.baro_altitude_m, up)
            v_east, v_north = status.gnss_v_W or (math.nan, math.nan)
            self._put(status.gnss_s, (east, north, height_m), (v_east, v_north, math.nan))

    def _put(self, stamp_s: float, p: Vec3, v: Vec3) -> None:
        self._raw = (stamp_s, p, v)
        if not self._states:
            return
        # the newest state that is not newer than the position: states come every 10 ms
        filtered = next((state for at_s, state in reversed(self._states) if at_s <= stamp_s), self._states[0][1])
        self._differences.append((stamp_s, (v[0] - filtered[0], v[1] - filtered[1], v[2] - filtered[2])))
        while self._differences[0][0] < stamp_s - DIFFERENCE_S:
            self._differences.popleft()

    def note_ground(self) -> None:
        """The aircraft stands disarmed: take the record again."""
        if self._position is not None:
            self._stood.add(self._position.stamp_s, self._position.p_W)
        if self._by_receiver and self._raw is not None:
            self._stood_by_receiver.add(*self._raw[:2])
        self._stood_accuracy_m = self.accuracy_m()
        self._jumps.clear()
        self._counted_s = None
        self._resets_W = self._resets_at_start_W = (0.0, 0.0, 0.0)

    def note_start(self) -> None:
        """The mission takes the aircraft, perhaps in the air: what PX4 did under the pilot before is no event."""
        self._resets_at_start_W = self._resets_W

    # --- resets of PX4's estimator ---

    def _note_jump(self, before: FcuPosition, position: FcuPosition) -> None:
        dt = position.stamp_s - before.stamp_s
        if not 0.0 < dt <= GAP_MAX_S:
            return
        columns = zip(before.p_W, position.p_W, before.v_W, position.v_W, strict=True)
        step = [b - a - 0.5 * (v_a + v_b) * dt for a, b, v_a, v_b in columns]
        # under a constant acceleration the mean velocity is right; at worst it changes its sign half-way
        if math.hypot(*step) > JUMP_M + 0.25 * MANOEUVRE_M_S2 * dt * dt:
            self._jumps.append(_Jump(before.stamp_s, position.stamp_s, (step[0], step[1], step[2])))
            self._follow_resets(position.stamp_s)

    def _follow_resets(self, now_s: float) -> None:
        """Move the record by the jumps that a count of resets confirms: both lie between two times, which overlap."""
        while self._jumps and now_s - self._jumps[0].until_s > COUNT_AGE_MAX_S:
            self._jumps.popleft()
        if self._counted_s is None:
            return
        since_s, until_s = self._counted_s[0] - CONFIRM_S, self._counted_s[1] + CONFIRM_S
        confirmed = [jump for jump in self._jumps if jump.since_s <= until_s and jump.until_s >= since_s]
        if not confirmed:
            return
        self._counted_s = None
        self._jumps.clear()
        jumps = [jump.p for jump in confirmed]
        # The reset at the end of a loss of GNSS takes a drift back: the record is right as it was. One to satellites that
        # have jumped comes seconds after PX4 has lost its position.
        if self._settled(now_s) and now_s - self._positioned_s <= RESETS_S:
            before = self._shift
            x, y, z = (sum(column) for column in zip(self._resets_W, *jumps, strict=True))
            self._resets_W = (x, y, z)
            after = self._shift
            self._stood.move((after[0] - before[0], after[1] - before[1], after[2] - before[2]))

    @property
    def reset_m(self) -> float:
        """How far the confirmed resets have moved the flight controller's frame since the mission took the aircraft [m]."""
        return math.dist(self._resets_W, self._resets_at_start_W)

    @property
    def _shift(self) -> Vec3:
        """How far they move the record."""
        share = SHIFT_MAX_M / max(math.hypot(*self._resets_W), SHIFT_MAX_M)
        return share * self._resets_W[0], share * self._resets_W[1], share * self._resets_W[2]

    def _settled(self, now_s: float) -> bool:
        return now_s - self._fix_s <= GNSS_AGE_S and now_s - self._fix_since_s >= SETTLE_S

    # --- for the monitors ---

    def accuracy_m(self) -> tuple[float, float]:
        """Standard deviations, horizontal and vertical, of the position by GNSS, at most `ACCURACY_MAX_M`."""
        s = self._status
        horizontal = vertical = math.nan
        if s is not None:
            horizontal = s.gnss_h_acc_m if s.gnss_h_acc_m > 0 else s.gnss_hdop * RANGE_ERROR_M
            vertical = s.gnss_v_acc_m
        if not horizontal > 0:
            horizontal = ACCURACY_UNKNOWN_M
        if not vertical > 0:
            vertical = VERTICAL_RATIO * horizontal
        return min(horizontal, ACCURACY_MAX_M), min(vertical, ACCURACY_MAX_M)

    def _trusted(self, now_s: float) -> bool:
        if self._raw is None:
            return False
        max_age_s = GNSS_AGE_S if self._by_receiver else POSITION_AGE_S
        return now_s - self._raw[0] <= max_age_s and self._settled(now_s) and not self._dead_reckoned(now_s)

    def _dead_reckoned(self, now_s: float) -> bool:
        """The position is PX4's, and PX4 reports that it has none: it uses no fix, whatever the receiver has."""
        return not self._by_receiver and now_s - self._positioned_s > GNSS_AGE_S

    def motion(self, now_s: float) -> RawMotion | None:
        """Where the aircraft is by the flight controller; None: not known, or not to be trusted without GNSS."""
        stood = (self._stood_by_receiver if self._by_receiver else self._stood).p
        if stood is None or self._raw is None or not self._trusted(now_s):
            return None
        _, p, v = self._raw
        # A record that was taken with a poor fix is wrong by that much, however good the fix is now.
        accuracies_m = zip(self._stood_accuracy_m, self.accuracy_m(), strict=True)
        horizontal_m, vertical_m = (max(MARGIN_MIN_M, ACCURACIES * max(pair)) for pair in accuracies_m)
        return RawMotion((p[0] - stood[0], p[1] - stood[1], p[2] - stood[2]), v, horizontal_m, vertical_m)

    def missing(self, now_s: float) -> str:
        """Why there is no `motion`, for the crew; "" while there is one."""
        if self.motion(now_s) is not None:
            return ""
        if now_s - self._fix_s > GNSS_AGE_S:
            return "no position fix"
        if (self._stood_by_receiver if self._by_receiver else self._stood).p is None:
            return "no record of the place where the motors started"
        if self._dead_reckoned(now_s):
            return "the flight controller does not use the position fix"
        return "position fix has just come back" if not self._settled(now_s) else "no position"

    def velocity_difference_m_s(self, now_s: float) -> float | None:
        """Between the flight controller's velocity and the filter's, mean of `DIFFERENCE_S`; None: not known.

        A mean and not a time above a limit: half a metre per second takes two seconds to show, two metres per second
        take half of one. With fewer samples the rest of the time counts as without a difference.
        """
        differences = self._differences
        if not differences or not self._trusted(now_s):
            return None
        part = min(1.0, (differences[-1][0] - differences[0][0]) / DIFFERENCE_S) / len(differences)
        mean = [part * sum(axis) for axis in zip(*(difference for _, difference in differences), strict=True)]
        measured = [m for m in mean if not math.isnan(m)]
        return math.hypot(*measured) if measured else None

    def position_age_s(self, now_s: float) -> float:
        """Age of the flight controller's newest position [s]; inf: none yet."""
        return math.inf if self._position is None else now_s - self._position.stamp_s

    def climb(self, now_s: float) -> tuple[float, float] | None:
        """Height over the record [m] and climb rate [m/s] by PX4's own position, by which PX4 climbs; None: unknown."""
        stood, position = self._stood.p, self._position
        if stood is None or position is None or self.position_age_s(now_s) > POSITION_AGE_S:
            return None
        return position.p_W[2] - stood[2], position.v_W[2]

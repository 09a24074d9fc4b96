"""Witnesses of the bundle: does the bundle agree with the motion that the flight controller reports?

The filter explains a bundle that moves by errors of the flight controller: it follows the bundle, and the difference
ends in the biases of velocity and GNSS. These checks therefore use the flight controller's raw attitude, velocity and
position, and the filter's opinion at one place only, see **Filter**. A flight without a contradiction is not changed by
them.

**Place.** With x the position of the aircraft and r_W = R(q_WB) p_BM the bundle seen from it, a bundle that stands
still has a constant place x + r_W. Here x is the integral of the reported velocity since the start. The place that is
remembered follows the observations not faster than the velocity can be wrong (`VELOCITY_ERROR_M_S`). An observation
farther from it than `TOLERANCE_M` + `TOLERANCE_OF_RANGE` times the range is displaced, and the filter does not get it. Its
own standard deviation widens this: the range of a single marker 9 m away varies by half a metre.
While a displaced bundle is in sight, the remembered place keeps its distance from the displaced one: both stand still,
and the errors of the velocity shift both alike. Where position and integrated velocity of the flight controller
disagree, because GNSS has jumped, the difference is added to the tolerance: a velocity is no witness while the flight
controller corrects itself. The receiver shows a jump before the flight controller has followed it, so its difference
counts, too. After a time out of sight, velocity or position counts, whichever is better by then. An interrupted link does
not end this: the motion over the gap is the mean of the velocities before and after it, over a long gap the difference of
the positions, and the place may be wrong by as much as that may be. While nothing is known, no observation reaches the
filter, for `UNKNOWN_MAX_S` at most.

**Filter.** A jump of GNSS widens the tolerance by metres, and a bundle that is put elsewhere at that moment would be as good as
the true one. The filter does not follow the jump: it takes it for an error of GNSS, and knows by the inertial measurements
for seconds where the bundle must be. So after some seconds out of sight, and while the flight controller corrects itself, a
bundle must be where the filter expects it, too, if it was there before.

**GNSS.** The same place with x the reported position: how far the bundle has gone from where it was first seen. This
finds what is slower than the errors of the velocity, and a bundle that was moved while its place was forgotten.

**GNSS jump.** The receiver's solution against the flight controller's position, which follows a jump late or never.
While the bundle is in sight a jump does no harm; out of sight it is reported.

**Size.** Whether the range changes by the way flown, as it does for a print of the size in the marker file:
`companion.estimation.print_size`. `companion.estimation.range_gain` finds a print that shrinks in a hover, which that test takes for
an error of the velocity.

**Setting off.** Within a second the inertial measurements need no help: `companion.estimation.inertial_witness`.

Errors follow the frames of the stack; all places are in the flight controller's world.
"""

from bisect import bisect_left
from collections import deque
from math import hypot, inf, isnan, nan, sqrt
from statistics import median
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array, Vector
from companion.core.frames import rotation_matrix
from companion.core.messages import BundleWitness
from companion.estimation.given_up import ESTABLISHED_COUNT, ESTABLISHED_S, FRAME_S, HIDDEN_S, GivenUp
from companion.estimation.height_witness import HeightWitness
from companion.estimation.inertial_witness import InertialMotion, SettingOff
from companion.estimation.observations import MarkerId
from companion.estimation.print_size import SizeTests
from companion.estimation.range_gain import RangeGain

# Largest lasting error of the flight controller's velocity, half as much again as PX4 has at worst (3 to 20 cm/s) with
# good GNSS.
VELOCITY_ERROR_M_S = 0.3
VELOCITY_ERROR_OF_SPEED = 0.1  # a heading error of 5° turns the velocity against the bundle by 0.09 of itself
VELOCITY_ERROR_M_S2 = 0.5  # without GNSS, from 1 s on: a tilt error of 1.5° and a bias of the accelerometer
VELOCITY_ERROR_MAX_M_S = 2.0  # what is faster than this is displaced even without GNSS
# A flight controller that has had no fix for longer dead-reckons by metres per second: then it is no witness of anything.
DEAD_RECKONING_S = 10.0
FIX_MAX_S = 1.0  # GNSS counts as there while the last fix is younger
FIX_SETTLES_S = 5.0  # after one has come back: until then the position is still that of the time without

TOLERANCE_M = 0.15  # timing and corners
TOLERANCE_OF_RANGE = 0.025  # an attitude error that changes by 1.5°
# Of what the tracker says of the observation. It takes corner errors for white and prints for exact: seen from 9 m, the
# range of one marker was wrong by up to five of its standard deviations, that of five markers by two.
TOLERANCE_SIGMAS = 5.0
# Other markers of the bundle come into view whose prints are 3 % too large where the former ones were too small. Such a
# step counts once in this time only, or flickering markers would hide a motion.
OTHER_MARKERS_OF_RANGE, OTHER_MARKERS_S = 0.06, 2.0
CORRECTION_S = 3.0  # position and integrated velocity of the flight controller are compared over this time
CORRECTION_M = 0.3  # what they differ by in ordinary flight
SIZE_CORRECTED_M = 1.0  # a flight controller that corrects itself by more is no witness of a distance

# Of the place where the filter expects a bundle. For so long without an observation this place is asked for; and so long a
# doubt lasts, with the deviation of its beginning: a copy does not become true because the filter knows less and less.
FILTER_SIGMAS, FILTER_S = 4.0, 5.0
# Displaced observations in the window that do not agree with each other end a doubt: a copy stands at one place, and scatter
# is for the filter's own gate, which refuses the bundle only when it gets to see it.
DOUBT_SCATTER_MAX = 2
FORGET_S = 20.0  # out of sight: then the place is learned again
RECORD_S = 4.0  # of the flight controller's motion that is kept
# longest time between two positions or attitudes over which is interpolated, or after the newest position
GAP_MAX_S = 0.5
ATTITUDE_AGE_S = 0.2  # an older attitude says nothing about a direction
# Of the mean velocity over a gap: an acceleration a that reverses in its middle is a way of a T²/4. References change by
# 0.5 to 1 m/s², and a gust that lasts is in the velocity at the end.
GAP_ACCELERATION_M_S2 = 1.0
# Without a motion to compare with, the bundle is the only sensor: it is used before the state becomes stale.
UNKNOWN_MAX_S = 0.8

WINDOW_S = 2.0  # of the share of displaced observations
DISPLACED_SHARE = 0.4  # displaced observations among all, so that 20 % outliers never count
DISPLACED_RUN = 10  # or so many in a row
SCATTER_SHARE, SCATTER_MIN = 0.25, 10  # displaced observations in the window that do not agree with each other
# Places to which observations may be displaced without being scatter. A copy stands at one; where it takes turns with the
# bundle itself, and the size of both is wrong, at two.
ELSEWHERE_PLACES = 2
# In a row and for so long, when the bundle went away step by step. A swaying camera displaces a bundle 13 m away by half a metre
# for a fifth of a second.
MOVING_RUN, MOVING_S = 3, 0.4
MOVING_STEP = 0.5  # of the tolerance: a larger step from one image to the next is a jump
MOVING_GAP_S = 0.3  # between two observations of a motion

GNSS_DELAY_S = 0.12  # from the validity of a fix to its arrival
RECEIVER_TIME_S = 20.0  # slower differences between receiver and flight controller are ordinary
RECEIVER_APART_M = 1.5  # a larger difference: the flight controller rejects the fixes
GNSS_OFFSET_M = 4.0  # multipath under a bridge moves a position by up to 3 m
GNSS_SIGMAS = 4.0
MEASURED_WALK_MAX = 4.0  # ten times the variance of an open sky, and some
GNSS_JUMP_SIGMAS = 1.0  # accuracies that a jump may have beyond the limit of its monitor
GNSS_SMOOTH_S = 1.0


class _Motion(NamedTuple):
    """The flight controller's motion at one time."""

    stamp_s: float
    travelled_W: Array  # integral of the velocity
    p_W: Array
    speed_m_s: float


class MotionRecord:
    """Attitude, position and integrated velocity of the flight controller over the last seconds.

    taking_off: its velocity is at its worst, near the ground and after seconds at rest; sizes are not measured by it.
    barometer_m: its newest altitude by pressure while this stack flies; NaN: not known, or not comparable (on the ground the
    propellers change the pressure).
    """

    def __init__(self) -> None:
        self.taking_off = False
        self.barometer_m = nan
        self.inertial = InertialMotion()
        self._motions: deque[_Motion] = deque()
        self._last_v_W: Array | None = None
        self._attitudes: deque[tuple[float, Array]] = deque()
        self.breaks = 0  # interruptions of the positions
        self.break_error_m = 0.0  # sum of what they may have made the integral wrong
        self._corrected = (-inf, 0.0)  # time and value of the last answer

    def add_attitude(self, stamp_s: float, q_WB: Array) -> None:
        if not self._attitudes or stamp_s > self._attitudes[-1][0]:
            self._attitudes.append((stamp_s, q_WB))
            while self._attitudes[0][0] < stamp_s - RECORD_S:
                self._attitudes.popleft()

    def add_position(self, stamp_s: float, p_W: Array, v_W: Array) -> None:
        travelled_W = np.zeros(3)
        if self._motions and self._last_v_W is not None:
            last = self._motions[-1]
            if stamp_s <= last.stamp_s:
                return
            gap_s = stamp_s - last.stamp_s
            travelled_W = last.travelled_W + gap_s / 2 * (self._last_v_W + v_W)
            if gap_s > GAP_MAX_S:
                self.breaks += 1
                error_m = GAP_ACCELERATION_M_S2 * gap_s**2 / 4
                if error_m > GNSS_OFFSET_M:
                    error_m, travelled_W = GNSS_OFFSET_M, last.travelled_W + p_W - last.p_W
                self.break_error_m += error_m
        self._motions.append(_Motion(stamp_s, travelled_W, p_W, hypot(*v_W.tolist())))
        self._last_v_W = v_W
        while self._motions[0].stamp_s < stamp_s - RECORD_S:
            self._motions.popleft()

    def motion(self, stamp_s: float) -> _Motion | None:
        """Interpolated; a later time goes on with the newest velocity. None where nothing is known, and in a gap."""
        motions = self._motions
        if not motions or stamp_s < motions[0].stamp_s or stamp_s > motions[-1].stamp_s + GAP_MAX_S:
            return None
        after = bisect_left(motions, stamp_s, key=lambda m: m.stamp_s)
        if after == len(motions):
            newest, v_W = motions[-1], self._last_v_W
            ahead_W = np.zeros(3) if v_W is None else (stamp_s - newest.stamp_s) * v_W
            return _Motion(stamp_s, newest.travelled_W + ahead_W, newest.p_W + ahead_W, newest.speed_m_s)
        if after == 0:
            return motions[0]
        a, b = motions[after - 1], motions[after]
        if b.stamp_s - a.stamp_s > GAP_MAX_S:
            return None
        share = (stamp_s - a.stamp_s) / (b.stamp_s - a.stamp_s)
        return _Motion(
            stamp_s,
            a.travelled_W + share * (b.travelled_W - a.travelled_W),
            a.p_W + share * (b.p_W - a.p_W),
            a.speed_m_s + share * (b.speed_m_s - a.speed_m_s),
        )

    def attitude(self, stamp_s: float) -> Array | None:
        """Unit quaternion, interpolated; the newest for a later time, None where nothing is known."""
        attitudes = self._attitudes
        if not attitudes or stamp_s < attitudes[0][0] or stamp_s > attitudes[-1][0] + ATTITUDE_AGE_S:
            return None
        after = bisect_left(attitudes, stamp_s, key=lambda a: a[0])
        if after in (0, len(attitudes)):
            return attitudes[min(after, len(attitudes) - 1)][1]
        (t0, q0), (t1, q1) = attitudes[after - 1], attitudes[after]
        if t1 - t0 > GAP_MAX_S:
            return None
        mixed = q0 + (stamp_s - t0) / (t1 - t0) * ((q1 if q0 @ q1 >= 0 else -q1) - q0)
        return mixed / np.linalg.norm(mixed)

    def corrected_m(self) -> float:
        """How far position and integrated velocity have gone apart over the last `CORRECTION_S`."""
        if not self._motions:
            return 0.0
        newest = self._motions[-1]
        if self._corrected[0] != newest.stamp_s:
            self._corrected = newest.stamp_s, self._went_apart_m(newest)
        return self._corrected[1]

    def _went_apart_m(self, newest: _Motion) -> float:
        motions = list(self._motions)
        recent = motions[bisect_left(motions, newest.stamp_s - CORRECTION_S, key=lambda m: m.stamp_s) :]
        apart = [m.p_W - m.travelled_W for m in recent[::5] + recent[-1:]]
        return float(np.linalg.norm(np.ptp(np.array(apart), axis=0)))


class ReceiverJump:
    """Change of the receiver's solution against the flight controller's position, beside slow changes."""

    def __init__(self) -> None:
        self._usual_W: Array | None = None
        self._stamp_s = 0.0
        self.size_m = 0.0

    def add(self, stamp_s: float, difference_W: Array) -> None:
        if not np.isfinite(difference_W).all():
            return
        if self._usual_W is None or stamp_s - self._stamp_s > RECEIVER_TIME_S:
            self._usual_W, self._stamp_s = difference_W, stamp_s
        share = max(0.0, stamp_s - self._stamp_s) / RECEIVER_TIME_S
        self._stamp_s = max(self._stamp_s, stamp_s)
        away_W = difference_W - self._usual_W
        self.size_m = hypot(*away_W.tolist())
        self._usual_W = self._usual_W + share * away_W


class Expected(NamedTuple):
    """Where the filter expects a bundle to appear to a camera that is mounted as in the vehicle file."""

    range_W: Array  # from the aircraft to the bundle [m], world axes of the flight controller
    std_m: float  # standard deviation of the position relative to the bundle, without this observation


class Observed(NamedTuple):
    """A bundle that was seen, in the world of the flight controller."""

    stamp_s: float
    range_W: Array  # from the aircraft to the bundle
    travelled_W: Array
    by_velocity_W: Array  # place by the integrated velocity
    by_position_W: Array  # place by the position
    speed_m_s: float
    markers: frozenset[MarkerId]  # the markers that were seen
    std_m: float = 0.0  # of the observation, by the tracker
    expected: Expected | None = None  # by the filter

    @property
    def range_m(self) -> float:
        return hypot(*self.range_W.tolist())


class _Verdict(NamedTuple):
    """One observation of the last seconds."""

    stamp_s: float
    displaced: bool
    scattered: bool  # displaced, but not to one of the last places of displaced ones
    offset_m: float
    by_motion: bool  # displaced by what the flight controller reports, not only by what the filter expects


class _Doubt(NamedTuple):
    """The filter contradicts a bundle."""

    stamp_s: float  # since then
    std_m: float  # of the place that it expected


class _Place:
    """Where a bundle stands, as far as the observations agreed."""

    def __init__(self, seen: list[Observed]) -> None:
        self.by_velocity_W = np.median([s.by_velocity_W for s in seen], axis=0)
        self.by_position_W: Array = np.median([s.by_position_W for s in seen], axis=0)
        self.since_s = seen[0].stamp_s
        self.agreed_s = seen[-1].stamp_s
        self.last = seen[-1]
        self.last_offset_m = 0.0
        self.elsewhere_W: list[Array] = []  # of displaced bundles in sight, relative to this place, the newest first
        self.spare = 1.0  # of the step that other markers may make
        self.corrected_m = 0.0  # largest correction of the flight controller since the last observation
        self.break_error_m = 0.0  # of the record, at the last observation
        self.as_expected = False  # the last observation that agreed was where the filter expected it
        self.doubted: _Doubt | None = None


class PlaceWitness:
    """Judges the observations of one bundle, see the module.

    p_BC, q_BC: of the camera; gnss_walk_m_sqrt_s: by how much the GNSS error changes, from the vehicle file; motion: a
    record that the witnesses of several bundles share.
    """

    def __init__(
        self, p_BC: Vector, q_BC: Vector, gnss_walk_m_sqrt_s: float, motion: MotionRecord | None = None
    ) -> None:
        self._p_BC, self._q_BC, self._R_BC = np.asarray(p_BC, dtype=float), q_BC, rotation_matrix(q_BC)
        self._gnss_walk = self._measured_walk = gnss_walk_m_sqrt_s
        self._motion = motion or MotionRecord()
        self._fix_s: float | None = None
        self._settled_s = -inf  # from then on the position counts as one by GNSS
        self._accuracy_m = 0.0
        self._jump = ReceiverJump()
        # when, where by the position and with which accuracy of it [m] the bundle was first seen
        self._first: tuple[float, Array, float] | None = None
        self._unknown_since_s: float | None = None
        self._height = HeightWitness()
        self._given_up = GivenUp()
        self._forget()

    def sibling(self) -> "PlaceWitness":
        """A witness of another bundle that knows what this one knows about the flight controller."""
        other = PlaceWitness(self._p_BC, self._q_BC, self._gnss_walk, self._motion)
        other._measured_walk, other._jump = self._measured_walk, self._jump
        other._fix_s, other._accuracy_m, other._settled_s = self._fix_s, self._accuracy_m, self._settled_s
        return other

    def set_measured_walk(self, walk_m_sqrt_s: float) -> None:
        """The GNSS error's walk as measured beside the bundle. A bundle that moves would raise it: MEASURED_WALK_MAX times at most."""
        self._measured_walk = min(max(walk_m_sqrt_s, self._gnss_walk), MEASURED_WALK_MAX * self._gnss_walk)

    def _forget(self) -> None:
        """Learn the place again; where the bundle was first seen by the position stays known."""
        self._place: _Place | None = None
        self._learning: list[Observed] = []
        self._recent: deque[_Verdict] = deque()
        self._run = 0  # displaced observations in a row
        self._moving = False
        self._run_since_s = -inf
        self._speed_m_s = 0.0
        self._size, self._gain = SizeTests(CORRECTION_S), RangeGain()
        self._setting_off = SettingOff(self._motion.inertial)

    # --- the flight controller

    def add_attitude(self, stamp_s: float, q_WB: Array) -> None:
        self._motion.add_attitude(stamp_s, q_WB)

    def add_position(self, stamp_s: float, p_W: Array, v_W: Array) -> None:
        self._motion.add_position(stamp_s, p_W, v_W)
        place = self._place
        if place is not None and stamp_s - place.last.stamp_s > HIDDEN_S:
            place.corrected_m = max(place.corrected_m, self._motion.corrected_m())

    def add_fix(self, stamp_s: float, accuracy_m: float) -> None:
        """GNSS has a fix; accuracy_m: horizontal standard deviation, NaN when unknown.

        A fix that the flight controller does not follow does not count: its velocity runs away meanwhile.
        """
        if self._jump.size_m < RECEIVER_APART_M:
            if self._fix_s is not None and stamp_s - self._fix_s > FIX_MAX_S:
                self._settled_s = stamp_s + FIX_SETTLES_S
            self._fix_s = stamp_s
        self._accuracy_m = 0.0 if isnan(accuracy_m) else accuracy_m

    def add_receiver(self, arrived_s: float, p_W: Array) -> None:
        """The receiver's own position."""
        motion = self._motion.motion(arrived_s - GNSS_DELAY_S)
        if motion is not None:
            self._jump.add(arrived_s, p_W - motion.p_W)

    def has_fix(self, now_s: float) -> bool:
        """Whether there is one that counts, see `add_fix`."""
        return self._fix_s is not None and now_s - self._fix_s <= FIX_MAX_S

    def _positions_count(self, seen: Observed) -> bool:
        """Whether the flight controller's position is one by GNSS; else it drifts, by metres in seconds."""
        return self.has_fix(seen.stamp_s) and seen.stamp_s >= self._settled_s

    def disarmed(self) -> None:
        """On the ground a crew may carry aircraft and bundle: the next sight is the first."""
        self._first = self._unknown_since_s = None
        self._height = HeightWitness()
        self._given_up = GivenUp()
        if self._place is not None or self._learning:
            self._forget()

    # --- the bundle

    def agrees(
        self,
        stamp_s: float,
        p_CM: Array,
        markers: frozenset[MarkerId],
        std_m: float = 0.0,
        expected: Expected | None = None,
    ) -> bool:
        """False for an observation that must not be used: it is displaced, or for a moment nothing says that it is not.

        markers: that were seen; std_m: standard deviation of p_CM [m] as the tracker gives it;
        expected: None: the filter does not know this bundle.
        """
        seen = self.observed(stamp_s, p_CM, markers, std_m)
        if seen is None:
            if self._unknown_since_s is None:
                self._unknown_since_s = stamp_s
            silent_s = stamp_s - self._unknown_since_s
            self._given_up.note_silence(silent_s)
            return not self._given_up.suspected and (self._place is None or silent_s > UNKNOWN_MAX_S)
        self._unknown_since_s = None
        seen = seen._replace(expected=expected)
        if self._place and stamp_s - self._place.last.stamp_s > FORGET_S:
            self._given_up.note_gap(FORGET_S, inf)
            self._forget()
        if self._place is None:
            self._learn(seen)
            return not self._given_up.active
        agrees = self._judge(self._place, seen) and not self._given_up.active
        if agrees:
            self._setting_off.add(stamp_s, seen.range_W, markers, std_m)
        return agrees

    @property
    def breaks(self) -> int:
        """Interruptions of the positions; places by velocity before and after one are less certain relative to each other."""
        return self._motion.breaks

    def observed(
        self, stamp_s: float, p_CM: Array, markers: frozenset[MarkerId] = frozenset(), std_m: float = 0.0
    ) -> Observed | None:
        """A bundle at p_CM [m] in the world of the flight controller; None while its motion is unknown."""
        motion, q_WB = self._motion.motion(stamp_s), self._motion.attitude(stamp_s)
        if motion is None or q_WB is None:
            return None
        r_W = rotation_matrix(q_WB) @ (self._p_BC + self._R_BC @ p_CM)
        x_W, p_W = motion.travelled_W + r_W, motion.p_W + r_W
        return Observed(stamp_s, r_W, motion.travelled_W, x_W, p_W, motion.speed_m_s, markers, std_m)

    def _learn(self, seen: Observed) -> None:
        if self._learning and not 0 <= seen.stamp_s - self._learning[-1].stamp_s <= GAP_MAX_S:
            self._learning = []
        self._learning.append(seen)
        if len(self._learning) < ESTABLISHED_COUNT or seen.stamp_s - self._learning[0].stamp_s < ESTABLISHED_S:
            return
        place = _Place(self._learning)
        tolerance_m = self._tolerance_m(seen) + OTHER_MARKERS_OF_RANGE * seen.range_m
        near = [s for s in self._learning if hypot(*(s.by_velocity_W - place.by_velocity_W)) <= tolerance_m]
        if len(near) > 2 / 3 * len(self._learning):
            self._place, self._learning = _Place(near), []
            self._place.break_error_m = self._motion.break_error_m
            if self._first is None and self._positions_count(seen):
                self._first = self._place.since_s, self._place.by_position_W, self._accuracy_m
        else:
            self._learning.pop(0)  # a place that scatters is none

    @staticmethod
    def _usual_tolerance_m(seen: Observed) -> float:
        return hypot(TOLERANCE_M + TOLERANCE_OF_RANGE * seen.range_m, TOLERANCE_SIGMAS * seen.std_m)

    def _correction_m(self) -> float:
        """By how much the flight controller corrects itself, or should."""
        receiver_m = min(self._jump.size_m, RECEIVER_APART_M)
        return max(0.0, self._motion.corrected_m() - CORRECTION_M, receiver_m - CORRECTION_M)

    def _tolerance_m(self, seen: Observed) -> float:
        return self._usual_tolerance_m(seen) + self._correction_m()

    def _contradicts_filter(self, place: _Place, seen: Observed, since_s: float) -> bool:
        """Whether an observation that the flight controller's motion may excuse is not where the filter expects it.

        The question is asked when a bundle that agreed is seen again after `FILTER_S` at most, and while the flight
        controller corrects itself; where the answer is yes, of the next observations, too. Not otherwise: a filter that
        has drifted would refuse the true ones, and never be corrected by them.
        """
        gap_s = seen.stamp_s - place.agreed_s
        asked = (
            place.as_expected
            and gap_s <= FILTER_S
            and gap_s - since_s <= HIDDEN_S
            and (since_s > HIDDEN_S or self._correction_m() > 0.0)
        )
        doubted = place.doubted if place.doubted and seen.stamp_s - place.doubted.stamp_s <= FILTER_S else None
        scattered = sum(v.scattered for v in self._recent)
        if scattered > DOUBT_SCATTER_MAX or seen.expected is None or not (asked or doubted):
            place.doubted = None
            return False
        std_m = min(seen.expected.std_m, doubted.std_m if doubted else inf)
        if self._is_expected(place, seen, seen.expected, std_m):
            place.doubted = None
            return False
        place.doubted = doubted or _Doubt(seen.stamp_s, std_m)
        return True

    def _is_expected(self, place: _Place, seen: Observed, expected: Expected, std_m: float) -> bool:
        """Whether an observation is where the filter expects it with this standard deviation."""
        tolerance_m = self._usual_tolerance_m(seen) + FILTER_SIGMAS * std_m
        if seen.markers != place.last.markers:
            tolerance_m += OTHER_MARKERS_OF_RANGE * seen.range_m
        return hypot(*(seen.range_W - expected.range_W).tolist()) <= tolerance_m

    def _velocity_error_m_s(self, seen: Observed) -> float:
        without_s = inf if self._fix_s is None else max(0.0, seen.stamp_s - self._fix_s - FIX_MAX_S)
        error = VELOCITY_ERROR_M_S + VELOCITY_ERROR_OF_SPEED * seen.speed_m_s + VELOCITY_ERROR_M_S2 * without_s
        error += max(0.0, self._motion.corrected_m() - CORRECTION_M) / CORRECTION_S  # by its own position
        dead_reckoned = DEAD_RECKONING_S < without_s < inf
        return error if dead_reckoned else min(error, VELOCITY_ERROR_MAX_M_S)

    def _judge(self, place: _Place, seen: Observed) -> bool:
        since_s = max(0.0, seen.stamp_s - place.last.stamp_s)
        tolerance_m, follow_m = self._tolerance_m(seen), self._velocity_error_m_s(seen) * since_s
        step_m = hypot(*(seen.by_velocity_W - place.last.by_velocity_W).tolist())
        break_m = self._motion.break_error_m - place.break_error_m
        if break_m > 0:
            place.break_error_m = self._motion.break_error_m
            self._size.interrupt()
            self._gain.interrupt()
            follow_m += break_m
        if since_s > HIDDEN_S:
            follow_m = self._after_hiding(place, seen, since_s, follow_m, break_m)
        if self._given_up.active:  # only where it stood
            self._given_up.note_gap(since_s, follow_m)
            tolerance_m, follow_m = self._usual_tolerance_m(seen), min(follow_m, VELOCITY_ERROR_M_S * FRAME_S)
        place.spare = min(1.0, place.spare + since_s / OTHER_MARKERS_S)
        away_W = seen.by_velocity_W - place.by_velocity_W
        away_m = hypot(*away_W.tolist())
        spare_m = 0.0
        if seen.markers != place.last.markers:
            spare_m = min(place.spare * OTHER_MARKERS_OF_RANGE * seen.range_m, step_m, max(0.0, away_m - follow_m))
        offset_m = max(0.0, away_m - follow_m - spare_m)
        contradicts = self._contradicts_filter(place, seen, since_s)
        by_motion = offset_m > tolerance_m
        displaced = by_motion or contradicts
        if not displaced:
            if away_m > 0:
                place.by_velocity_W = seen.by_velocity_W - offset_m / away_m * away_W
            place.spare -= spare_m / (OTHER_MARKERS_OF_RANGE * seen.range_m)
            self._agreed(place, seen, since_s)
        else:
            if self._run == 0:
                step_by_step = since_s <= MOVING_GAP_S and step_m < MOVING_STEP * tolerance_m
                self._moving = step_by_step and place.last_offset_m > MOVING_STEP * tolerance_m
            offset_m = away_m
        stood_W = place.by_velocity_W
        scattered = displaced and not self._keep_distance(place, away_W, tolerance_m, follow_m)
        self._given_up.note_shift(place.by_velocity_W - stood_W)
        self._run = self._run + 1 if displaced else 0
        if self._run == 1:
            self._run_since_s = seen.stamp_s
        if displaced and self._moving:
            self._speed_m_s = max(self._speed_m_s, VELOCITY_ERROR_M_S + offset_m / WINDOW_S)
        place.last, place.last_offset_m, place.corrected_m = seen, offset_m, 0.0
        self._recent.append(_Verdict(seen.stamp_s, displaced, scattered, offset_m, by_motion))
        self._given_up.note(seen.stamp_s, self._shown_by_motion(seen.stamp_s), displaced, offset_m)
        return not displaced or self._scatters()

    def _shown_by_motion(self, now_s: float) -> bool:
        """Evidence of a displaced bundle; not by the filter's word alone, which the bundle may have to correct."""
        displaced = self._displaced_offsets(now_s)
        by_motion = sum(v.by_motion and not v.scattered for v in self._recent)
        return bool(displaced) and by_motion >= max(DISPLACED_RUN, len(displaced) / 2)

    def _displaced_offsets(self, now_s: float) -> list[float]:
        """How far the observations of the last `WINDOW_S` are displaced [m], where these are evidence; else none."""
        recent = self._recent
        while recent and recent[0].stamp_s < now_s - WINDOW_S:
            recent.popleft()
        offsets = [v.offset_m for v in recent if v.displaced and not v.scattered]
        share = self._run >= DISPLACED_RUN or len(offsets) > DISPLACED_SHARE * len(recent)
        return offsets if len(offsets) >= DISPLACED_RUN and share and not self._scatters() else []

    def _scatters(self) -> bool:
        """True while the displaced observations are noise: the filter's own tests are made for it."""
        return sum(v.scattered for v in self._recent) > max(SCATTER_MIN, SCATTER_SHARE * len(self._recent))

    def _after_hiding(self, place: _Place, seen: Observed, since_s: float, follow_m: float, break_m: float) -> float:
        """The largest error of the place after a time out of sight, by velocity or by position; shifts the place.

        break_m: of interruptions of the link meanwhile, in which the position may have jumped unseen.
        """
        by_position_m = GNSS_SIGMAS * self._measured_walk * sqrt(since_s) + max(
            place.corrected_m, self._motion.corrected_m()
        )
        by_position_m = max(by_position_m, min(break_m, GNSS_OFFSET_M))
        if not self.has_fix(seen.stamp_s) or by_position_m >= follow_m:
            return follow_m
        place.by_velocity_W = (
            place.by_velocity_W
            + (seen.by_velocity_W - place.last.by_velocity_W)
            - (seen.by_position_W - place.last.by_position_W)
        )
        return by_position_m

    @staticmethod
    def _keep_distance(place: _Place, away_W: Array, tolerance_m: float, follow_m: float) -> bool:
        """Shift the place with a displaced bundle in sight, not faster than the velocity is wrong.

        False for the first observation of a displaced bundle, and for one that is displaced to yet another place.
        """
        drifts_W = [away_W - elsewhere_W for elsewhere_W in place.elsewhere_W]
        near = [i for i, drift_W in enumerate(drifts_W) if hypot(*drift_W.tolist()) <= tolerance_m]
        if not near:
            place.elsewhere_W = [away_W, *place.elsewhere_W][:ELSEWHERE_PLACES]
            return False
        drift_W = drifts_W[near[0]]
        place.elsewhere_W.insert(0, place.elsewhere_W.pop(near[0]))
        drift_m = hypot(*drift_W.tolist())
        if drift_m > 0:
            place.by_velocity_W = place.by_velocity_W + min(1.0, follow_m / drift_m) * drift_W
        return True

    def _agreed(self, place: _Place, seen: Observed, since_s: float) -> None:
        place.agreed_s = max(place.agreed_s, seen.stamp_s)
        expected = seen.expected
        place.as_expected = expected is not None and self._is_expected(place, seen, expected, expected.std_m)
        self._height.add(seen.stamp_s, self._motion.barometer_m + float(seen.range_W[2]))
        share = min(1.0, since_s / GNSS_SMOOTH_S)
        if self._positions_count(seen):
            if self._first is None:  # seen for the first time while there was no fix
                place.by_position_W, self._first = (
                    seen.by_position_W,
                    (seen.stamp_s, seen.by_position_W, self._accuracy_m),
                )
            place.by_position_W = place.by_position_W + share * (seen.by_position_W - place.by_position_W)
        if self._run == 0:
            self._moving, self._speed_m_s = False, 0.0
        good = self.has_fix(seen.stamp_s) and not self._motion.taking_off
        if good and self._motion.corrected_m() < SIZE_CORRECTED_M:
            self._size.add(seen.stamp_s, seen.range_W, seen.travelled_W, seen.markers, seen.std_m)
            self._gain.add(seen.stamp_s, seen.range_W, seen.travelled_W, seen.markers)
        else:
            self._size.interrupt()
            self._gain.interrupt()

    # --- what is known

    @property
    def seen_s(self) -> float:
        """When the bundle was last seen, at its place or elsewhere; −inf: its place is not known."""
        return -inf if self._place is None else self._place.last.stamp_s

    @property
    def seen_std_m(self) -> float:
        """Standard deviation of the newest observation; inf: none."""
        return inf if self._place is None else self._place.last.std_m

    def report(self, now_s: float) -> BundleWitness:
        """The evidence of this moment."""
        displaced = self._displaced_offsets(now_s)
        lasts = (
            self._run >= MOVING_RUN
            and self._place is not None
            and self._place.last.stamp_s - self._run_since_s >= MOVING_S
        )
        moving = self._moving and lasts and any(v.displaced and not v.scattered for v in self._recent)
        size_error, size_std = self._size.estimate()
        gnss_m, gnss_max_m = self._gnss_offset(now_s)
        height_m, height_max_m = self._height.offset_m(now_s)
        if isnan(gnss_m) or height_m / height_max_m > gnss_m / gnss_max_m:
            gnss_m, gnss_max_m = height_m, height_max_m
        in_sight = self._place is not None and now_s - self._place.agreed_s < HIDDEN_S
        return BundleWitness(
            displaced_m=median(displaced) if displaced and not self._moving else 0.0,  # the other row is about a motion
            moving_m_s=max(self._speed_m_s if moving else 0.0, self._setting_off.speed_m_s(now_s)),
            gnss_offset_m=gnss_m,
            gnss_offset_max_m=gnss_max_m,
            gnss_jump_m=0.0 if in_sight else max(0.0, self._jump.size_m - GNSS_JUMP_SIGMAS * self._accuracy_m),
            size_error=size_error,
            size_error_std=size_std,
            range_gain=self._gain.lower_bound if in_sight else nan,
            satellites_refused=self._jump.size_m > RECEIVER_APART_M,
            given_up=self._given_up.active,
        )

    def _gnss_offset(self, now_s: float) -> tuple[float, float]:
        """(offset of the bundle against GNSS since the first sight, the largest that GNSS explains); NaN: unknown."""
        if self._place is None or self._first is None or not self.has_fix(now_s):
            return nan, nan
        since_s, first_W, accuracy_m = self._first
        explained_m = max(
            GNSS_OFFSET_M,
            3 * max(accuracy_m, self._accuracy_m),
            GNSS_SIGMAS * self._gnss_walk * sqrt(max(0.0, now_s - since_s)),
        )
        return hypot(*(self._place.by_position_W - first_W).tolist()), explained_m

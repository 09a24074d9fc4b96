"""Whether a bundle sets off towards the structure or away from it, by the inertial measurements alone.

With r_W the bundle as seen from the aircraft and s_W the double integral of the acceleration R(q_WB) f_B + g_W, the place
y = s_W + r_W of a bundle that stands still is a straight line in time, whatever velocity the aircraft has. Its second
difference y(t) − 2 y(t − B) + y(t − 2B) shows the errors: B² b of an acceleration error b. Their mean is subtracted, for
they change slowly. A bundle that sets off with the velocity w shows B w.

Only the part along the line of sight is compared: across it an error of the attitude counts times the range.

A tilt error of the flight controller comes with a bias of the accelerometer that explains it, or without one. In the first
case its attitude and its accelerometer together give the true acceleration, in the second an attitude by the gyroscope
does. Both are integrated, and a bundle has set off when both say so.

No velocity and no position of the flight controller is used. A jump of GNSS, which excuses metres before the other witnesses
(`companion.estimation.witnesses`), excuses nothing here. A bundle that gathers speed over several seconds is not found.
"""

from collections import deque
from math import hypot, inf
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.core.frames import (
    GRAVITY_M_S2,
    quat_conjugate,
    quat_exp,
    quat_log,
    quat_multiply,
    quat_normalized,
    rotation_matrix,
)
from companion.estimation.observations import MarkerId

RECORD_S = 2.0  # of the integrals: images come a few tenths of a second late
GAP_MAX_S = 0.05  # between two means of the acceleration that follow one another
AHEAD_MAX_S = 0.1  # of an image before the newest acceleration, which holds as long
ATTITUDE_TIME_S = 10.0  # in which the attitude by the gyroscope follows the flight controller's
BY_FCU, BY_GYRO = 0, 1  # rows of the integrals: with which attitude

SPACING_S = 0.6  # B
BLOCK_S = 0.25  # each of the three places is the median over this time, so that outliers do not count
BLOCK_COUNT = 4  # observations in it at least
BLOCK_MAX_S = 0.5  # of a block of few images: as many as that within this time
# Images in a row with other markers until those count: one that is missed in an image now and then is no other set.
OTHERS_COUNT = 5
MEAN_TIME_S = 10.0  # of the second difference that is subtracted
IMAGE_S = 0.033  # at 30 images per second
MEAN_SHARE_MAX = IMAGE_S  # of a newest one in it: at the beginning the mean is of the last second
MEAN_MAX_M = 0.5 * SPACING_S**2  # a tilt error of 3°
# Three times the largest second differences of unkind flights: 0.03 m at 3 m, 0.1 m at 10 m.
TOLERANCE_M, TOLERANCE_OF_RANGE = 0.06, 0.02
TOLERANCE_SIGMAS = 5.0  # of the observation by the tracker, as in `witnesses`
TOLERANCE_OF_CHANGE_S = 0.06  # times the change of the velocity within B: images that are stamped 30 ms wrongly, twice
RUN, RUN_S = 3, 0.12  # observations in a row beyond the tolerance, and their time
LASTS_S = 2.0  # a bundle that has set off counts as moving for so long


class _Integral(NamedTuple):
    """Rows BY_FCU and BY_GYRO, shape (2, 3) each."""

    stamp_s: float
    s_W: Array
    u_W: Array  # its rate
    a_W: Array  # the acceleration until this time


class InertialMotion:
    """Double integral of the acceleration, of the last seconds. A gap begins another one, with another `number`."""

    def __init__(self) -> None:
        self.number = 0
        self._record: deque[_Integral] = deque()
        self._q_WB = np.array((1.0, 0.0, 0.0, 0.0))  # by the gyroscope

    def add(self, begin_s: float, end_s: float, omega_B: Array, f_B: Array, q_WB: Array) -> None:
        """Mean angular rate [rad/s] and specific force [m/s²] between two times; q_WB: the flight controller's attitude."""
        if self._record and end_s <= self._record[-1].stamp_s:
            return
        if self._record and abs(begin_s - self._record[-1].stamp_s) > GAP_MAX_S:
            self.interrupt()
        if not self._record:
            self._q_WB = q_WB
            self._record.append(_Integral(begin_s, *np.zeros((3, 2, 3))))
        last = self._record[-1]
        dt = end_s - last.stamp_s
        by_fcu = q_WB.tolist()
        error_B = quat_log(quat_multiply(quat_conjugate(self._q_WB).tolist(), by_fcu))
        turn_B = dt * (omega_B + error_B / ATTITUDE_TIME_S)
        self._q_WB = quat_normalized(quat_multiply(self._q_WB.tolist(), quat_exp(turn_B).tolist()))
        a_W = np.array([rotation_matrix(q) @ f_B for q in (by_fcu, self._q_WB.tolist())])
        a_W[:, 2] -= GRAVITY_M_S2
        self._record.append(_Integral(end_s, last.s_W + dt * last.u_W + dt**2 / 2 * a_W, last.u_W + dt * a_W, a_W))
        while self._record[0].stamp_s < end_s - RECORD_S:
            self._record.popleft()

    def interrupt(self) -> None:
        """Measurements are missing or must not be used."""
        if self._record:
            self._record.clear()
            self.number += 1

    def at(self, time_s: float) -> tuple[Array, Array] | None:
        """(s_W [m], its rate [m/s]) at a time, shape (2, 3) each; None where nothing is known."""
        record = self._record
        if not record or not record[0].stamp_s <= time_s <= record[-1].stamp_s + AHEAD_MAX_S:
            return None
        after = record[-1]
        for row in reversed(record):  # images are a few tenths of a second old, the record is ten times as long
            if row.stamp_s < time_s:
                break
            after = row
        dt = time_s - after.stamp_s
        return after.s_W + dt * after.u_W + dt**2 / 2 * after.a_W, after.u_W + dt * after.a_W


class _Sight(NamedTuple):
    stamp_s: float
    y_W: Array  # shape (2, 3)
    u_W: Array


class _Block(NamedTuple):
    """Some observations that follow one another: mean time, median place, a velocity, scatter about the median."""

    stamp_s: float
    y_W: Array
    u_W: Array
    scatter_m: float


class SettingOff:
    """The test for one bundle."""

    def __init__(self, motion: InertialMotion) -> None:
        self._motion = motion
        self._number = motion.number
        self._markers: frozenset[MarkerId] = frozenset()
        self._others = 0  # images in a row with other markers
        self._sights: deque[_Sight] = deque()
        self._mean_W = np.zeros((2, 3))
        self._count = 0  # second differences in the mean
        self._run_since_s = inf
        self._run = 0
        self._found = (-inf, 0.0)  # when, and the speed
        self.excess = 0.0  # newest second difference without the mean, over its tolerance

    def add(self, stamp_s: float, range_W: Array, markers: frozenset[MarkerId], std_m: float) -> None:
        """range_W: from the aircraft to the bundle as seen; std_m: its standard deviation by the tracker."""
        sights = self._sights
        # Prints of other markers may be a little larger or smaller, which is a step of the place.
        others = bool(sights) and markers != self._markers
        self._others = self._others + 1 if others else 0
        if others and self._others < OTHERS_COUNT:
            return
        if others or self._motion.number != self._number or (sights and stamp_s <= sights[-1].stamp_s):
            sights.clear()
        if not sights:
            self._markers, self._number, self._others = markers, self._motion.number, 0
        motion = self._motion.at(stamp_s)
        if motion is None:
            return
        sights.append(_Sight(stamp_s, motion[0] + range_W, motion[1]))
        while sights[0].stamp_s < stamp_s - 2 * SPACING_S - BLOCK_MAX_S:
            sights.popleft()
        blocks = [self._block(stamp_s - back * SPACING_S) for back in range(3)]
        newest, middle, oldest = blocks
        if newest is None or middle is None or oldest is None:
            self._run = 0
            return
        difference_W = SPACING_S * (_slope(newest, middle) - _slope(middle, oldest))
        range_m = hypot(*range_W.tolist())
        away_m = float(np.abs((difference_W - self._mean_W) @ range_W).min()) / range_m
        changes_m_s = np.linalg.norm([newest.u_W - middle.u_W, middle.u_W - oldest.u_W], axis=-1)
        tolerance_m = hypot(
            TOLERANCE_M + TOLERANCE_OF_RANGE * range_m + TOLERANCE_OF_CHANGE_S * float(changes_m_s.max()),
            TOLERANCE_SIGMAS * max(std_m, newest.scatter_m, middle.scatter_m, oldest.scatter_m),
        )
        self.excess = away_m / tolerance_m
        if self.excess <= 1.0:
            self._run = 0
            self._count += 1
            share = max(IMAGE_S / MEAN_TIME_S, min(MEAN_SHARE_MAX, 1.0 / self._count))
            mean_W = self._mean_W + share * (difference_W - self._mean_W)
            self._mean_W = np.clip(mean_W, -MEAN_MAX_M, MEAN_MAX_M)
            return
        self._run_since_s = stamp_s if self._run == 0 else self._run_since_s
        self._run += 1
        if self._run >= RUN and stamp_s - self._run_since_s >= RUN_S:
            self._found = stamp_s, max(self.speed_m_s(stamp_s), away_m / SPACING_S)

    def _block(self, end_s: float) -> _Block | None:
        """The observations of a block; None: too few."""
        sights = self._sights
        rows = [sight for sight in sights if end_s - BLOCK_MAX_S < sight.stamp_s <= end_s + 1e-6]
        count = sum(sight.stamp_s > end_s - BLOCK_S for sight in rows)
        rows = rows[-max(count, BLOCK_COUNT) :]
        if len(rows) < BLOCK_COUNT:
            return None
        # The integral has any velocity; without it the median of a block belongs to the mean time of the block.
        trend_m_s, origin_s = _slope(sights[-1], sights[0]), sights[-1].stamp_s
        ahead_s = np.array([row.stamp_s - origin_s for row in rows])
        places_W = np.array([row.y_W for row in rows]) - ahead_s[:, None, None] * trend_m_s
        median_W = _median(np.sort(places_W, axis=0))
        away_W = (places_W - median_W)[:, BY_FCU]
        scatter_m = float(_median(np.sort(np.sqrt((away_W * away_W).sum(axis=-1)))))
        return _Block(sum(row.stamp_s for row in rows) / len(rows), median_W, rows[len(rows) // 2].u_W, scatter_m)

    def speed_m_s(self, now_s: float) -> float:
        """Of a bundle that has set off within the last seconds; 0: it has not."""
        found_s, speed = self._found
        return speed if now_s - found_s <= LASTS_S else 0.0


def _median(ordered: Array) -> Array:
    """Of rows in ascending order, along the first axis; `numpy.median` of so few takes ten times as long."""
    middle = len(ordered) // 2
    median: Array = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return median


def _slope(after: _Sight | _Block, before: _Sight | _Block) -> Array:
    """[m/s], shape (2, 3)."""
    slope: Array = (after.y_W - before.y_W) / (after.stamp_s - before.stamp_s)
    return slope

"""Training tasks: hold a point, fly a square, land on a bundle; what a flight of each is worth."""

import math
from typing import NamedTuple, Protocol

import numpy as np

from companion.core.arrays import Array
from companion.core.site import Bundle
from sitl.teleop.sticks import Pose, Sticks

START_M, START_M_S = 0.3, 0.3  # a hold begins when the aircraft is this near to its point and this slow
CORNER_M = 0.4  # a corner of the square is reached within this distance
AIRBORNE_M = 0.5  # a landing counts after the aircraft was this high
REST_S = 1.0  # and stays down this long
HARD_M_S = 1.0  # a descent that meets the floor faster than this is a collision
JERK_SAMPLE_S = 0.1  # between the velocities whose second difference is the jerk


class Score(NamedTuple):
    """A flight of a task; NaN where the flight did not get so far."""

    completed: bool
    error_rms_m: float
    error_max_m: float
    jerk_rms_m_s3: float  # smoothness of the path
    stick_travel_1_s: float  # smoothness of the hand: path of the sticks per second
    time_s: float
    collisions: int
    impact_m_s: float  # of the landing


class Task(Protocol):
    """One task."""

    name: str
    points_W: list[Array]  # where it leads, for a simulated pilot
    lands: bool

    def observe(self, t_s: float, pose: Pose, descent_m_s: float) -> None:
        """Take the pose at a time; descent_m_s: with which the aircraft came to it."""
        ...

    def running(self) -> bool:
        """Whether its time runs."""
        ...

    def done(self) -> bool:
        """Whether it is complete."""
        ...

    def result(self) -> tuple[list[float], float, float]:
        """Errors while it ran [m], its duration [s], the impact of its landing [m/s]."""
        ...


class Hold:
    """Hold a point for some time."""

    name = "hold"
    lands = False

    def __init__(self, point_W: Array, hold_s: float) -> None:
        self.points_W = [point_W]
        self._hold_s, self._start_s, self._now_s = hold_s, math.nan, math.nan
        self._errors: list[float] = []

    def observe(self, t_s: float, pose: Pose, descent_m_s: float) -> None:
        """See `Task`."""
        error = float(np.linalg.norm(pose.p_W - self.points_W[0]))
        if math.isnan(self._start_s) and error < START_M and float(np.linalg.norm(pose.v_W)) < START_M_S:
            self._start_s = t_s
        if self.running():
            self._now_s = t_s
            self._errors.append(error)

    def running(self) -> bool:
        """See `Task`."""
        return not math.isnan(self._start_s) and not self.done()

    def done(self) -> bool:
        """See `Task`."""
        return self._now_s - self._start_s >= self._hold_s

    def result(self) -> tuple[list[float], float, float]:
        """See `Task`."""
        return self._errors, self._now_s - self._start_s, math.nan


class Square:
    """Fly along the four sides of a level square, back to its first corner, as many times as there are laps."""

    name = "square"
    lands = False

    def __init__(self, corner_W: Array, side_m: float, laps: int = 1) -> None:
        lap = ((side_m, 0.0), (side_m, side_m), (0.0, side_m), (0.0, 0.0))
        steps = ((0.0, 0.0), *lap * laps)
        self.points_W = [corner_W + np.array([*step, 0.0]) for step in steps]
        self._reached, self._start_s, self._now_s = 0, math.nan, math.nan
        self._errors: list[float] = []

    def observe(self, t_s: float, pose: Pose, descent_m_s: float) -> None:
        """See `Task`."""
        if self.done():
            return
        if self.running():
            self._now_s = t_s
            self._errors.append(_to_segment(pose.p_W, self.points_W[self._reached - 1], self.points_W[self._reached]))
        if float(np.linalg.norm(pose.p_W - self.points_W[self._reached])) < CORNER_M:
            if self._reached == 0:
                self._start_s = t_s
            self._reached += 1

    def running(self) -> bool:
        """See `Task`."""
        return 0 < self._reached < len(self.points_W)

    def done(self) -> bool:
        """See `Task`."""
        return self._reached == len(self.points_W)

    def result(self) -> tuple[list[float], float, float]:
        """See `Task`."""
        return self._errors, self._now_s - self._start_s, math.nan


def _to_segment(p: Array, a: Array, b: Array) -> float:
    """Distance of a point from a segment [m]."""
    along = b - a
    share = np.clip(float((p - a) @ along) / float(along @ along), 0.0, 1.0)
    return float(np.linalg.norm(p - a - share * along))


class Land:
    """Take off and land on a bundle that lies on the floor; complete when the aircraft rests on it.

    A rest beside it stops the time until the aircraft flies again: the pilot may take off and try once more.
    """

    name = "land"
    lands = True

    def __init__(self, centre_W: Array, bundle: Bundle) -> None:
        corners = np.concatenate([marker.corners_M() for marker in bundle.markers])[:, :2]
        self._half = np.abs(corners).max(axis=0)[::-1]  # y of the bundle points ahead
        self._centre_W = centre_W
        self.points_W = [centre_W + np.array([0.0, 0.0, 1.2])]
        self._start_s = self._down_s = self._now_s = math.nan
        self._rest_s, self._impact, self._error = math.nan, math.nan, math.nan

    def observe(self, t_s: float, pose: Pose, descent_m_s: float) -> None:
        """See `Task`."""
        if self.done():
            return
        self._now_s = t_s
        if math.isnan(self._start_s):
            if pose.p_W[2] > AIRBORNE_M:
                self._start_s = t_s
            return
        if not pose.on_floor:
            self._down_s = math.nan
            return
        if math.isnan(self._down_s):
            self._down_s, self._impact = t_s, descent_m_s
            self._error = float(np.linalg.norm((pose.p_W - self._centre_W)[:2]))
            self._on_bundle = bool((np.abs((pose.p_W - self._centre_W)[:2]) <= self._half).all())

    def _rested(self) -> bool:
        return self._now_s - self._down_s >= REST_S

    def running(self) -> bool:
        """See `Task`."""
        return not math.isnan(self._start_s) and not self._rested()

    def done(self) -> bool:
        """See `Task`."""
        return self._rested() and self._on_bundle

    def result(self) -> tuple[list[float], float, float]:
        """See `Task`."""
        errors = [] if math.isnan(self._error) else [self._error]
        return errors, self._down_s - self._start_s, self._impact


class ScoreKeeper:
    """Keeps what a score needs besides the task's own errors."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._velocities: list[Array] = []
        self._sample_s = -math.inf
        self._travel, self._travel_s = 0.0, 0.0
        self._last: tuple[float, Sticks] | None = None
        self.collisions = 0

    def observe(self, t_s: float, pose: Pose, sticks: Sticks, descent_m_s: float) -> None:
        """Take one sample of the flight."""
        self._task.observe(t_s, pose, descent_m_s)
        if self._task.running():
            if t_s >= self._sample_s + JERK_SAMPLE_S - 1e-9:
                self._sample_s = t_s
                self._velocities.append(pose.v_W.copy())
            if self._last is not None:
                self._travel += math.dist(sticks[:4], self._last[1][:4])
                self._travel_s += t_s - self._last[0]
        self._last = t_s, sticks

    def score(self) -> Score:
        """The score of the flight so far."""
        errors, time_s, impact = self._task.result()
        jerk = (
            np.diff(np.array(self._velocities), n=2, axis=0) / JERK_SAMPLE_S**2 if len(self._velocities) > 2 else None
        )
        return Score(
            completed=bool(self._task.done()),
            error_rms_m=float(np.sqrt(np.mean(np.square(errors)))) if errors else math.nan,
            error_max_m=float(max(errors, default=math.nan)),
            jerk_rms_m_s3=float(np.sqrt((jerk**2).sum(axis=1).mean())) if jerk is not None else math.nan,
            stick_travel_1_s=self._travel / self._travel_s if self._travel_s else math.nan,
            time_s=time_s,
            collisions=self.collisions,
            impact_m_s=impact,
        )

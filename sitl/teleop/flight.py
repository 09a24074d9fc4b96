"""A training flight: sticks, wind and faults in, path and score out; as fast as possible or in real time."""

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from companion.core.arrays import Array
from companion.core.frames import quat_from_matrix, rpy_from_quat
from sitl.solids.solids import Solids
from sitl.teleop.faults import Faults
from sitl.teleop.sticks import CENTRED, Pose, Sticks, StickSource, Vehicle
from sitl.teleop.tasks import HARD_M_S, Score, ScoreKeeper, Task
from sitl.wind import Wind

TICK_STEPS = 10  # milliseconds between two looks at the sticks
TICK_S = TICK_STEPS * 1e-3
STANDING_NORMAL_Z = 0.7  # a surface this flat can be stood on, as in physics.c
ENDED_BY_CTRL_C = "interrupted"
BEHIND_S = 0.25  # a real-time flight that is this late gives up the lost time
COLUMNS = (
    *("t_s", "ahead", "right", "climb", "yaw", "mode", "x_m", "y_m", "z_m", "vx_m_s", "vy_m_s", "vz_m_s"),
    *("roll_rad", "pitch_rad", "yaw_rad", "on_floor", "sticks_lost"),
)
Row = tuple[float | str | int, ...]


class Flown(NamedTuple):
    """What a flight gives."""

    score: Score
    end: str  # why it ended
    t_s: float
    sticks_lost_s: float
    rows: list[Row]  # of `COLUMNS`, every 10 ms


class TrainingFlight:
    """One flight of a vehicle."""

    def __init__(
        self,
        vehicle: Vehicle,
        source: StickSource,
        task: Task,
        wind: Wind,
        faults: Faults,
        solids: Solids | None = None,
    ) -> None:
        self._vehicle, self._source, self._task, self._wind = vehicle, source, task, wind
        self._faults, self._solids = faults, solids
        self._keeper = ScoreKeeper(task)
        self._touching = False

    def run(
        self, duration_s: float, real_time: bool = False, watch: Callable[[float, Pose], None] | None = None
    ) -> Flown:
        """Fly for this long, until the task is complete, the aircraft is lost or Ctrl-C: what was flown stays.

        watch: gets time and pose at every tick.
        """
        rows: list[Row] = []
        lost_s, tick, end = 0.0, 0, "time over"
        ticks = round(duration_s / TICK_S)
        pose, sticks = self._vehicle.pose(), CENTRED
        started = time.monotonic()
        try:
            while tick < ticks:
                now_s = tick * TICK_S
                given = self._faults.sticks(now_s, self._source.sticks(now_s))
                lost_s += TICK_S if given is None else 0.0
                sticks = (given or CENTRED).within_range()
                rows.append(_row(now_s, sticks, pose, given is None))
                air = self._faults.air(now_s, self._wind.sample(now_s, pose.p_W))
                before, was_on_floor = pose.v_W, pose.on_floor
                self._vehicle.advance(sticks, air, TICK_STEPS)
                tick += 1
                pose = self._after_contacts(self._vehicle.pose())
                descent = max(0.0, -float(before[2]))
                self._keeper.collisions += int(pose.p_W[2] <= 0.0 and not was_on_floor and descent > HARD_M_S)
                self._keeper.observe(tick * TICK_S, pose, sticks, descent)
                if watch is not None:
                    watch(tick * TICK_S, pose)
                if pose.lost:
                    self._keeper.collisions += 1
                    end = "aircraft lost: it turned over"
                    break
                if self._task.done():
                    end = "task complete"
                    break
                if real_time:
                    ahead_s = started + tick * TICK_S - time.monotonic()
                    if ahead_s > 0.0:
                        time.sleep(ahead_s)
                    elif ahead_s < -BEHIND_S:
                        started -= ahead_s
        except KeyboardInterrupt:
            if not self._task.done():
                end = ENDED_BY_CTRL_C
            del rows[tick:]  # of a tick that was not flown
        rows.append(_row(tick * TICK_S, sticks, pose, False))
        return Flown(self._keeper.score(), end, tick * TICK_S, lost_s, rows)

    def _after_contacts(self, pose: Pose) -> Pose:
        """Push the aircraft out of the solids; the part of its speed into the surface is lost."""
        if self._solids is None or pose.lost:
            return pose
        radius = self._vehicle.radius_m
        near = self._solids.nearest((pose.p_W + [0.0, 0.0, radius])[None])
        depth = radius - float(near.distance_m[0])
        if depth <= 0.0:
            self._touching = False
            return pose
        normal: Array = near.normal_W[0]
        standing = normal[2] > STANDING_NORMAL_Z
        into = min(0.0, float(normal @ pose.v_W))
        if not (self._touching or pose.on_floor or (standing and -into <= HARD_M_S)):
            self._keeper.collisions += 1
        self._touching = True
        self._vehicle.put(pose.p_W + depth * normal, np.zeros(3) if standing else pose.v_W - into * normal)
        after = self._vehicle.pose()
        return after._replace(on_floor=after.on_floor or bool(standing))


def _row(t_s: float, sticks: Sticks, pose: Pose, lost: bool) -> Row:
    roll, pitch, yaw = rpy_from_quat(quat_from_matrix(pose.R_WB)) if np.isfinite(pose.R_WB).all() else (np.nan,) * 3
    moved = [round(float(value), 6) for value in (*pose.p_W, *pose.v_W, roll, pitch, yaw)]
    positions = [round(value, 6) for value in sticks[:4]]
    return round(t_s, 3), *positions, str(sticks.mode), *moved, int(pose.on_floor), int(lost)

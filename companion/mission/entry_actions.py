"""What begins with each phase of a mission: references, commands, and which modes are in order from then on."""

import math

from companion.core.messages import WORLD, Message, Reference, Vec3
from companion.core.trajectories import begins_at, duration_s
from companion.core.trajectory_messages import Hold, Trajectory
from companion.mission import phases as ph
from companion.mission import reference_geometry as moves
from companion.mission.conditions import Conditions
from companion.mission.curves import flown_s, to_trajectory

MOVE_SPARE_S = 15.0  # over the computed duration of a move before it counts as failed


class Entering(Conditions):
    """Base of `MissionNode`: one method ``_enter_<phase>(left, now_s)`` for each phase that begins with something.

    left: the phase before.
    """

    _outbox: list[Message]
    _reference_id: int
    _reached: int  # waypoints of the search that were flown
    _trajectory_flown: bool
    _trouble: str  # why this is not a success, the first reason

    def _begin_anew(self) -> None:
        raise NotImplementedError

    def _enter_wait_ready(self, left: str, now_s: float) -> None:
        self._begin_anew()

    def _enter_arm(self, left: str, now_s: float) -> None:
        self._inputs.note_start(now_s)
        self._inputs.expect_modes("AUTO_LOITER", "AUTO_TAKEOFF")
        self._ask("arm", now_s)

    def _enter_takeoff(self, left: str, now_s: float) -> None:
        self._inputs.expect_modes("AUTO_TAKEOFF", "AUTO_LOITER")
        self._ask("takeoff", now_s, height_m=self.plan.takeoff.height_m)

    def _enter_enter_offboard(self, left: str, now_s: float) -> None:
        if left == ph.WAIT_READY:
            self._inputs.note_start(now_s)
        own_modes = ("AUTO_TAKEOFF", "AUTO_LOITER") if left == ph.TAKEOFF else ()
        self._inputs.expect_modes("OFFBOARD", *own_modes)

    def _enter_search(self, left: str, now_s: float) -> None:
        self._inputs.expect_modes("OFFBOARD")
        if left == ph.ENTER_OFFBOARD:
            self._waypoint = 0
        if self._waypoint < len(self.plan.search.waypoints):
            self._fly_to_waypoint(now_s)

    def _enter_approach(self, left: str, now_s: float) -> None:
        state, standoff = self._inputs.state, self.plan.standoff
        point, yaw_rad = self._inputs.reference_point(self._reference, now_s)
        p_M, yaw_M = moves.to_bundle(point, yaw_rad, state.p_WM, state.q_WM)
        trajectory = moves.move_or_hold(
            p_M,
            yaw_M,
            standoff.offset_M,
            standoff.yaw_rad,
            standoff.speed_m_s,
            standoff.acceleration_m_s2,
            standoff.yaw_rate_rad_s,
        )
        self._refer(self.plan.bundle, trajectory, now_s)

    def _enter_hold(self, left: str, now_s: float) -> None:
        standoff = self.plan.standoff
        self._refer(self.plan.bundle, Hold(p=standoff.offset_M, yaw_rad=standoff.yaw_rad), now_s)

    def _enter_transfer(self, left: str, now_s: float) -> None:
        """To the first point of the trajectory, in the trajectory's frame."""
        self._inputs.expect_modes("OFFBOARD")
        curve, back = self.plan.trajectory, self.plan.return_
        goal, goal_yaw_rad = begins_at(self._trajectory())
        point, yaw_rad = self._inputs.reference_point(self._reference, now_s)
        if not self.plan.trajectory_at_bundle:
            self._move_in_world(goal, goal_yaw_rad, now_s, point, yaw_rad, back.speed_m_s, back.acceleration_m_s2)
            return
        state, standoff = self._inputs.state, self.plan.standoff
        p_M, yaw_M = moves.to_bundle(point, yaw_rad, state.p_WM, state.q_WM)
        limits = (standoff.speed_m_s, standoff.acceleration_m_s2, standoff.yaw_rate_rad_s)
        self._refer(curve.frame, moves.move_or_hold(p_M, yaw_M, goal, goal_yaw_rad, *limits), now_s)

    def _enter_trajectory(self, left: str, now_s: float) -> None:
        trajectory = self._trajectory()
        self._refer(self.plan.trajectory.frame, trajectory, now_s)
        self._move_timeout_s = flown_s(self.plan.trajectory, trajectory) + MOVE_SPARE_S

    def _trajectory(self) -> Trajectory:
        origin = (0.0, 0.0, 0.0) if self.plan.trajectory_at_bundle else self._inputs.home_W
        return to_trajectory(self.plan.trajectory, origin)

    def _enter_pause(self, left: str, now_s: float) -> None:
        self._paused_phase = left
        self._pauses += 1
        demand = self._safety.demand
        off_reference = demand is not None and demand.monitor == "control_error"
        point, yaw_rad = (
            self._inputs.aircraft_point() if off_reference else self._inputs.reference_point(self._reference, now_s)
        )
        self._move_in_world(moves.clamp(point, self._inputs.home_W, self.plan.limits), yaw_rad, now_s, point, yaw_rad)

    def _enter_retreat(self, left: str, now_s: float) -> None:
        retreat = self.plan.retreat
        point, yaw_rad = self._inputs.reference_point(self._reference, now_s)
        away = self._inputs.away_W
        if away is None:  # no structure is known: back the way the nose does not point
            away = (-math.cos(yaw_rad), -math.sin(yaw_rad), 0.0)
        goal = moves.clamp(moves.along(point, away, retreat.distance_m), self._inputs.home_W, self.plan.limits)
        self._move_in_world(goal, yaw_rad, now_s, point, yaw_rad, retreat.speed_m_s, retreat.acceleration_m_s2)

    def _enter_return(self, left: str, now_s: float) -> None:
        """The way back is the way out: it is known to be free."""
        self._trajectory_flown |= left == ph.TRAJECTORY and not self._trouble
        home = self._from_home((0.0, 0.0, self.plan.return_.height_m))
        if self._way_back is None:
            flown = self.plan.search.waypoints[: self._reached] if self.plan.search else []
            self._way_back = [(self._from_home(w.p_m), w.yaw_rad) for w in reversed(flown)]
            self._way_back.append((home, flown[0].yaw_rad if flown else self._yaw_now(now_s)))
        elif not self._way_back:
            self._way_back.append((home, self._yaw_now(now_s)))
        self._fly_back(now_s)

    def _enter_land(self, left: str, now_s: float) -> None:
        self._inputs.expect_modes("AUTO_LAND")
        self._land_attempts = 1
        if self._reference is not None and left in ph.CONTROLLING:  # stay put until PX4 has taken over
            point, yaw_rad = self._inputs.reference_point(self._reference, now_s)
            self._refer(WORLD, Hold(p=point, yaw_rad=yaw_rad), now_s)
        else:
            self._reference = None
        self._ask("land", now_s)

    def _enter_failed(self, left: str, now_s: float) -> None:
        status = self._inputs.status
        if status is not None and status.armed and status.landed:
            self._ask("disarm", now_s)

    # --- tools --------------------------------------------------------------------------------------------------

    def _fly_to_waypoint(self, now_s: float) -> None:
        waypoint, search = self.plan.search.waypoints[self._waypoint], self.plan.search
        goal = self._from_home(waypoint.p_m)
        point, yaw_rad = self._inputs.reference_point(self._reference, now_s)
        self._move_in_world(goal, waypoint.yaw_rad, now_s, point, yaw_rad, search.speed_m_s, search.acceleration_m_s2)

    def _yaw_now(self, now_s: float) -> float:
        point = self._inputs.reference_point(self._reference, now_s)
        return 0.0 if point is None else point[1]

    def _fly_back(self, now_s: float) -> None:
        goal, goal_yaw_rad = self._way_back[0]
        point, yaw_rad = self._inputs.reference_point(self._reference, now_s)
        back = self.plan.return_
        self._move_in_world(goal, goal_yaw_rad, now_s, point, yaw_rad, back.speed_m_s, back.acceleration_m_s2)

    def _move_in_world(
        self,
        goal: Vec3,
        goal_yaw_rad: float,
        now_s: float,
        start: Vec3,
        yaw_rad: float,
        speed_m_s: float | None = None,
        acceleration_m_s2: float | None = None,
    ) -> None:
        retreat = self.plan.retreat
        trajectory = moves.move_or_hold(
            start,
            yaw_rad,
            goal,
            goal_yaw_rad,
            speed_m_s or retreat.speed_m_s,
            acceleration_m_s2 or retreat.acceleration_m_s2,
            self.plan.yaw_rate_rad_s,
        )
        self._refer(WORLD, trajectory, now_s)

    def _refer(self, frame: str, trajectory: Trajectory, now_s: float) -> None:
        self._reference_id += 1
        self._reference = Reference(
            stamp_s=now_s, id=self._reference_id, frame=frame, start_s=now_s, trajectory=trajectory
        )
        self._move_timeout_s = duration_s(trajectory) + MOVE_SPARE_S

    def _copy_of_reference(self) -> Reference:
        r = self._reference
        return Reference(stamp_s=r.stamp_s, id=r.id, frame=r.frame, start_s=r.start_s, trajectory=r.trajectory)

    def _from_home(self, p_m: Vec3) -> Vec3:
        return tuple(a + b for a, b in zip(p_m, self._inputs.home_W, strict=True))

    def _ask(self, action: str, now_s: float, height_m: float = 0.0) -> None:
        self._outbox.append(self._commands.ask(action, now_s, height_m))

    def _say(self, text: str, severity: int, now_s: float) -> None:
        self._outbox.append(self._commands.text(text, severity, now_s))

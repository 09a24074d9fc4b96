"""Setpoints of each flight mode for the position controller: smooth, from sticks, targets or the present motion.

Take-off follows PX4's sequence: rotors spin up (COM_SPOOLUP_TIME), thrust ramps up (MPC_TKO_RAMP_T), then flight.
"""

import math
from enum import Enum, auto

from companion.core.enums import FcuMode
from companion.core.frames import GRAVITY_M_S2
from sitl.autopilot.conversion import Vec3, Vector
from sitl.autopilot.modes import DESCEND, FlightMode
from sitl.autopilot.parameters import Parameters
from sitl.autopilot.position import NAN, PositionSetpoint, SmoothAxis
from sitl.autopilot.rc import Sticks
from sitl.autopilot.sticks import TAKEOFF_STICK, StickTilt, StickVelocity, StickYaw, stick

POSITION_MODES = frozenset(
    (FcuMode.POSCTL, FcuMode.AUTO_LOITER, FcuMode.AUTO_TAKEOFF, FcuMode.AUTO_LAND, FcuMode.AUTO_RTL)
)
CLIMB_RATE_MODES = POSITION_MODES | {FcuMode.ALTCTL, DESCEND}
TAKEOFF_REACHED_M = 0.3  # below the target height a take-off is finished
RETURN_ARRIVED_M = 0.5
RESET_M = 0.3  # of the estimated height within a step: faster than any motion
RAMP_LEAD_M = 0.3  # limit of the height setpoint above the aircraft while thrust ramps up
RTL_YAW_DISTANCE_M = 5.0  # farther than this from home, the nose points home during a return


class TakeoffState(Enum):
    """PX4's take-off sequence."""

    LANDED = auto()
    SPOOLUP = auto()
    RAMP = auto()
    FLIGHT = auto()


GROUND_STATES = (TakeoffState.LANDED, TakeoffState.SPOOLUP)


class ReturnStage(Enum):
    """The parts of a return to launch."""

    CLIMB = auto()
    RETURN = auto()
    DESCEND = auto()
    LAND = auto()


class Guidance:
    """Setpoints of all modes but OFFBOARD; ``finished``: a take-off has reached its height."""

    def __init__(self, parameters: Parameters) -> None:
        self._get = parameters
        self.mode: FlightMode | None = None
        self.axes = (SmoothAxis(), SmoothAxis(), SmoothAxis())
        self._stick_yaw = StickYaw(parameters)
        self._stick_tilt, self._stick_velocity = StickTilt(parameters), StickVelocity(parameters)
        self.yaw = NAN
        self._target = [0.0, 0.0, 0.0]
        self._held_z = False
        self._height = NAN  # estimated, of the last step of an automatic mode
        self._stage: ReturnStage | None = None
        self.takeoff_state = TakeoffState.LANDED
        self._state_since_s = 0.0
        self.takeoff_height: float | None = None  # requested by NAV_TAKEOFF, ENU
        self.home: Vec3 = (0.0, 0.0, 0.0)
        self.finished = False
        self.land_phase = False  # shown as MAV_LANDED_STATE_LANDING
        self._vertical_limit = math.inf
        self.cruise_m_s: float | None = None  # DO_CHANGE_SPEED, until the mode changes

    # --- take-off sequence ------------------------------------------------------------------------------------

    def update_takeoff(self, now_s: float, armed: bool, landed: bool, leaves_ground: bool) -> None:
        """Update the take-off state; leaves_ground: the setpoint of the mode would leave the ground."""
        state = self.takeoff_state
        if not armed:
            new = TakeoffState.LANDED
        elif state is TakeoffState.LANDED:
            new = TakeoffState.SPOOLUP if landed else TakeoffState.FLIGHT
        elif state is TakeoffState.SPOOLUP:
            ready = now_s - self._state_since_s >= self._get["COM_SPOOLUP_TIME"]
            new = TakeoffState.RAMP if ready and leaves_ground else TakeoffState.SPOOLUP
            if ready and not landed:
                new = TakeoffState.FLIGHT
        elif state is TakeoffState.RAMP:
            ramp_s = max(self._get["MPC_TKO_RAMP_T"], 1e-3)
            share = (now_s - self._state_since_s) / ramp_s
            sink = self._ramp_start
            self._vertical_limit = sink + share * (self._get["MPC_TKO_SPEED"] - sink)
            new = TakeoffState.FLIGHT if share >= 1.0 else TakeoffState.RAMP
            if not leaves_ground and landed:
                new = TakeoffState.SPOOLUP
                now_s -= self._get["COM_SPOOLUP_TIME"]
        else:
            new = TakeoffState.SPOOLUP if landed else TakeoffState.FLIGHT
            if new is TakeoffState.SPOOLUP:
                now_s -= self._get["COM_SPOOLUP_TIME"]
        if new is not state:
            self.takeoff_state, self._state_since_s = new, now_s
            self._vertical_limit = self._ramp_start if new is TakeoffState.RAMP else math.inf

    @property
    def _ramp_start(self) -> float:
        """Vertical velocity setpoint at which the velocity controller gives zero thrust [m/s]."""
        return -GRAVITY_M_S2 / max(self._get["MPC_Z_VEL_P_ACC"], 1.0)

    @property
    def vertical_limit(self) -> float:
        """Fastest climb allowed by the thrust ramp [m/s]."""
        return self._vertical_limit

    # --- modes ------------------------------------------------------------------------------------------------

    def enter(self, mode: FlightMode, p: Vector, v: Vector, yaw: float) -> None:
        """Begin a mode from the present position and velocity."""
        get = self._get
        smooth = self.mode in POSITION_MODES and mode in POSITION_MODES and self.takeoff_state is TakeoffState.FLIGHT
        for i, axis in enumerate(self.axes):
            # keep the running setpoint between position modes, else it would jump with the mode
            if not smooth or abs(axis.p - p[i]) > 2.0:
                axis.reset(p[i], v[i])
        if not smooth or not math.isfinite(self.yaw):
            self.yaw = yaw
        self.mode, self.finished, self._height = mode, False, p[2]
        self.land_phase, self._stage = mode in (FcuMode.AUTO_LAND, DESCEND), None
        a_max = (get["MPC_ACC_HOR"], get["MPC_ACC_HOR"], get["MPC_ACC_UP_MAX"])
        self._target = [axis.stop_point(a) for axis, a in zip(self.axes, a_max, strict=True)]
        self._held_z = False
        self._stick_yaw.reset()
        self._stick_tilt.reset()
        x, y, _ = self.axes
        self._stick_velocity.start((x.v, y.v), (x.a, y.a))
        self.cruise_m_s = None
        if mode == FcuMode.AUTO_TAKEOFF:
            height = self.takeoff_height
            if height is None or not math.isfinite(height):
                height = p[2] + get["MIS_TAKEOFF_ALT"]
            self._target = [p[0], p[1], max(height, p[2])]
            self.takeoff_height = None
        elif mode == FcuMode.AUTO_RTL:
            self._stage = ReturnStage.CLIMB
            self._target = [self._target[0], self._target[1], self._return_height(p)]

    def go_to(self, p_W: Vec3, yaw: float) -> None:
        """Move the hold point; members that are NaN stay."""
        self._target = [new if math.isfinite(new) else old for new, old in zip(p_W, self._target, strict=True)]
        if math.isfinite(yaw):
            self.yaw = yaw

    def leaves_ground(self, sticks: Sticks) -> bool:
        """Whether the setpoint of the present mode would leave the ground."""
        if self.mode == FcuMode.AUTO_TAKEOFF:
            return True
        if self.mode in (FcuMode.ALTCTL, FcuMode.POSCTL):
            return sticks[2] > TAKEOFF_STICK
        if self.mode == FcuMode.AUTO_RTL:
            return self._stage in (ReturnStage.CLIMB, ReturnStage.RETURN)
        return False

    def update(self, dt: float, p: Vector, yaw: float, sticks: Sticks) -> PositionSetpoint:
        """The setpoint of the present mode."""
        mode = self.mode
        if self.takeoff_state in GROUND_STATES:
            for i, axis in enumerate(self.axes):
                axis.reset(p[i], 0.0)
            if mode != FcuMode.AUTO_TAKEOFF and mode != FcuMode.AUTO_RTL:
                self._target = [p[0], p[1], p[2]]
            self._held_z = False
            self._stick_velocity.start((0.0, 0.0), (0.0, 0.0))
            self.yaw = yaw
        if mode in (FcuMode.ALTCTL, FcuMode.POSCTL):
            return self._manual(dt, p, yaw, sticks, mode == FcuMode.POSCTL)
        if mode == DESCEND:
            self.axes[2].along(
                dt, -self._get["MPC_LAND_SPEED"], self._get["MPC_ACC_DOWN_MAX"], self._get["MPC_JERK_AUTO"]
            )
            return PositionSetpoint(v=(NAN, NAN, self.axes[2].v), a=(0.0, 0.0, NAN), yaw=self.yaw)
        if mode == FcuMode.AUTO_RTL:
            self._return(p)
        return self._auto(dt, p)

    def _auto(self, dt: float, p: Vector) -> PositionSetpoint:
        get = self._get
        x, y, z = self.axes
        cruise = get["MPC_XY_CRUISE"] if self.cruise_m_s is None else min(self.cruise_m_s, get["MPC_XY_VEL_MAX"])
        jerk = get["MPC_JERK_AUTO"]
        dx, dy = self._target[0] - x.p, self._target[1] - y.p
        distance = math.hypot(dx, dy)
        share = (abs(dx) / distance, abs(dy) / distance) if distance > 1e-6 else (1.0, 1.0)
        for axis, target, part in ((x, self._target[0], share[0]), (y, self._target[1], share[1])):
            # both axes share the speed so that the path is nearly straight
            axis.towards(dt, target, max(cruise * part, 0.1), get["MPC_ACC_HOR"], jerk, get["MPC_XY_P"])
        self._height, before = p[2], self._height
        if self.land_phase:
            speed = self._land_speed(p[2])
            # The height of this path is followed, too: on the ground it sinks on, and the thrust falls to its least. A reset of
            # the estimated height moves the path with it.
            step_m = p[2] - before
            z.p += step_m if abs(step_m) > RESET_M else 0.0
            z.along(dt, -speed, get["MPC_ACC_DOWN_MAX"], jerk)
            return PositionSetpoint((x.p, y.p, z.p), (x.v, y.v, z.v), (x.a, y.a, z.a), self.yaw)
        up = get["MPC_TKO_SPEED"] if self.mode == FcuMode.AUTO_TAKEOFF else get["MPC_Z_V_AUTO_UP"]
        climb = self._target[2] > z.p
        limit = min(up, max(self.vertical_limit, 0.0)) if climb else get["MPC_Z_V_AUTO_DN"]
        z.towards(
            dt, self._target[2], limit, get["MPC_ACC_UP_MAX" if climb else "MPC_ACC_DOWN_MAX"], jerk, get["MPC_Z_P"]
        )
        if self.takeoff_state is TakeoffState.RAMP:
            z.p = min(z.p, p[2] + RAMP_LEAD_M)
        if self.mode == FcuMode.AUTO_TAKEOFF and self.takeoff_state is TakeoffState.FLIGHT:
            self.finished = p[2] > self._target[2] - TAKEOFF_REACHED_M
        return PositionSetpoint((x.p, y.p, z.p), (x.v, y.v, z.v), (x.a, y.a, z.a), self.yaw)

    def _land_speed(self, height: float) -> float:
        get = self._get
        slow = get["MPC_LAND_SPEED"]
        return slow + self._share_of_heights(height) * (get["MPC_Z_V_AUTO_DN"] - slow)

    def _share_of_heights(self, height: float) -> float:
        """0 at MPC_LAND_ALT2 above home and below it, 1 at MPC_LAND_ALT1 and above it."""
        above = height - self.home[2]
        low, high = self._get["MPC_LAND_ALT2"], self._get["MPC_LAND_ALT1"]
        return min(max((above - low) / max(high - low, 1e-3), 0.0), 1.0)

    def _manual(self, dt: float, p: Vector, yaw: float, sticks: Sticks, position: bool) -> PositionSetpoint:
        get = self._get
        dead = get["MAN_DEADZONE"]
        right, forward, up, turn = (stick(value, dead) for value in sticks)
        heading = self._stick_yaw.update(dt, turn, yaw, lock=self.takeoff_state not in GROUND_STATES)
        self.yaw = heading.yaw
        x, y, z = self.axes
        self._climb(dt, z, p[2], up)
        if self.takeoff_state in GROUND_STATES:
            return PositionSetpoint(v=(0.0, 0.0, z.v), yaw=NAN, yaw_rate=0.0)
        p_z = z.p if self._held_z else NAN
        if not position:
            a_x, a_y = self._stick_tilt.update(dt, sticks[1], sticks[0], heading.yaw)
            return PositionSetpoint((NAN, NAN, p_z), (NAN, NAN, z.v), (a_x, a_y, z.a), *heading)
        flying = self.takeoff_state is TakeoffState.FLIGHT
        tilt_max = math.radians(get["MPC_TILTMAX_AIR" if flying else "MPC_TILTMAX_LND"])
        moved = self._stick_velocity
        moved.update(dt, forward, right, heading.yaw, p, tilt_max)
        for i, axis in enumerate((x, y)):  # the next mode goes on from here
            axis.p, axis.v, axis.a = moved.p[i] if math.isfinite(moved.p[i]) else p[i], moved.v[i], moved.a[i]
        return PositionSetpoint((*moved.p, p_z), (*moved.v, z.v), (*moved.a, z.a), *heading)

    def _climb(self, dt: float, z: SmoothAxis, height: float, up: float) -> None:
        """Climb rate by the stick; the height is held once stick and climb rate are near zero."""
        get = self._get
        a_max, jerk = get["MPC_ACC_UP_MAX"], get["MPC_JERK_MAX"]
        v_z = up * get["MPC_Z_VEL_MAX_UP" if up > 0 else "MPC_Z_VEL_MAX_DN"]
        share = self._share_of_heights(height)
        fastest_up = get["MPC_TKO_SPEED"] + share * (get["MPC_Z_VEL_MAX_UP"] - get["MPC_TKO_SPEED"])
        fastest_down = get["MPC_LAND_SPEED"] + share * (get["MPC_Z_VEL_MAX_DN"] - get["MPC_LAND_SPEED"])
        v_z = min(max(v_z, -fastest_down), fastest_up, self.vertical_limit)
        if abs(v_z) > 1e-6:
            self._held_z = False
        elif not self._held_z and abs(z.v) < get["MPC_HOLD_MAX_XY"]:
            self._held_z = True
            z.p = height
            self._target[2] = z.stop_point(a_max)
        if self._held_z:
            z.towards(dt, self._target[2], get["MPC_XY_CRUISE"], a_max, jerk, get["MPC_Z_P"])
        else:
            z.along(dt, v_z, a_max, jerk)
            z.p = height

    # --- return to launch -------------------------------------------------------------------------------------

    def _return_height(self, p: Vector) -> float:
        """Height of the return path [m, ENU]: RTL_RETURN_ALT within a cone over home, not below the present height."""
        get, home = self._get, self.home
        distance = math.hypot(p[0] - home[0], p[1] - home[1])
        radius = get["NAV_ACC_RAD"]
        highest = home[2] + get["RTL_RETURN_ALT"]
        if distance <= radius:
            height = home[2] + 2.0 * distance
        else:
            height = highest
            if get["RTL_CONE_ANG"] > 0 and distance <= get["RTL_MIN_DIST"]:
                height = min(home[2] + distance / math.tan(math.radians(min(max(get["RTL_CONE_ANG"], 1), 89))), highest)
            height = max(height, home[2] + 2.0 * radius)
        return max(min(height, highest), p[2])

    def _return(self, p: Vector) -> None:
        get, home = self._get, self.home
        distance = math.hypot(p[0] - home[0], p[1] - home[1])
        if self._stage is ReturnStage.CLIMB and p[2] > self._target[2] - TAKEOFF_REACHED_M:
            self._stage = ReturnStage.RETURN
            self._target[0], self._target[1] = home[0], home[1]
            if distance > RTL_YAW_DISTANCE_M:
                self.yaw = math.atan2(home[1] - p[1], home[0] - p[0])
        elif self._stage is ReturnStage.RETURN and distance < RETURN_ARRIVED_M:
            self._stage = ReturnStage.DESCEND
            self._target[2] = min(p[2], home[2] + get["RTL_DESCEND_ALT"])
        elif (
            self._stage is ReturnStage.DESCEND
            and abs(p[2] - self._target[2]) < TAKEOFF_REACHED_M
            and get["RTL_LAND_DELAY"] >= 0.0
        ):
            self._stage = ReturnStage.LAND
            self.land_phase = True

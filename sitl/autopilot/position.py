"""Position and velocity control by PX4's scheme and parameters (MPC_*), world ENU.

Position P gives a velocity, velocity PID an acceleration, and the acceleration a thrust direction and size: the
vertical part first, the horizontal part within the tilt that is left. The estimate of the hover thrust (`sitl.autopilot.hover_thrust`,
MPC_USE_HTE) keeps the height while the battery voltage falls.
"""

import math

from companion.core.frames import GRAVITY_M_S2, wrap_angle
from sitl.autopilot.conversion import Quat, Vec3, Vector
from sitl.autopilot.parameters import Parameters

NAN = math.nan
FREE: Vec3 = (NAN, NAN, NAN)


class PositionSetpoint:
    """Position, velocity, acceleration (ENU), yaw and yaw rate; NaN members are free.

    Velocity and acceleration are feed-forward where a position is given.
    """

    __slots__ = ("p", "v", "a", "yaw", "yaw_rate")

    def __init__(self, p: Vec3 = FREE, v: Vec3 = FREE, a: Vec3 = FREE, yaw: float = NAN, yaw_rate: float = NAN) -> None:
        self.p, self.v, self.a, self.yaw, self.yaw_rate = p, v, a, yaw, yaw_rate


class PositionControl:
    """Turns a `PositionSetpoint` into attitude and thrust."""

    def __init__(self, parameters: Parameters) -> None:
        self._get = parameters
        self.hover: float = parameters["MPC_THR_HOVER"]
        self.integral = [0.0, 0.0, 0.0]
        self._slope = [0.0, 0.0, 0.0]
        self._v_last: list[float] | None = None
        self._climb_acceleration = 0.0  # commanded at the last step
        self.velocity_sp: Vec3 = (0.0, 0.0, 0.0)
        self.climb_limit = math.inf  # of the take-off ramp, may be negative [m/s]
        self._yaw = NAN
        self.update_parameters()

    def update_parameters(self) -> None:
        """Read the MPC_* parameters again."""
        get = self._get
        self._p_gain = (get["MPC_XY_P"], get["MPC_XY_P"], get["MPC_Z_P"])
        self._vp, self._vi, self._vd = (
            tuple(get[f"MPC_{axis}_VEL_{term}_ACC"] for axis in ("XY", "XY", "Z")) for term in "PID"
        )
        self._xy_max, self._up_max, self._down_max = (
            get["MPC_XY_VEL_MAX"],
            get["MPC_Z_VEL_MAX_UP"],
            get["MPC_Z_VEL_MAX_DN"],
        )
        self._thr_min, self._thr_max = get["MPC_THR_MIN"], get["MPC_THR_MAX"]
        self._margin = get["MPC_THR_XY_MARG"]
        self._lp_hz = get["MPC_VELD_LP"]

    def reset(self) -> None:
        """Forget integrals and slopes: on the ground, and in every cycle without position control.

        PX4 resets its integrals there (MulticopterPositionControl::Run), so that it has to find the tilt against the wind again when
        it takes over from attitude setpoints in offboard.
        """
        self.integral = [0.0, 0.0, 0.0]
        self._slope = [0.0, 0.0, 0.0]
        self._v_last = None
        self._climb_acceleration = 0.0
        self._yaw = NAN

    def change_mode(self) -> None:
        """Another mode with position control takes over: the integrals stay, and the heading is its own."""
        self._yaw = NAN

    def set_hover(self, hover: float) -> None:
        """Take another hover thrust; the vertical integral changes so that the thrust of this moment stays."""
        lift = self._climb_acceleration + GRAVITY_M_S2
        self.integral[2] += lift * (self.hover / hover - 1.0)
        self.hover = hover

    def update(
        self,
        dt: float,
        p: Vector,
        v: Vector,
        yaw: float,
        sp: PositionSetpoint,
        tilt_max: float,
        flying: bool = True,
        climb_rate: float = NAN,
    ) -> tuple[Quat, float, float]:
        """One control step.

        p, v: estimate, world; yaw [rad]; tilt_max [rad]; flying: False while the thrust ramp of a take-off runs, when
        thrust may be zero and nothing is integrated; climb_rate: controlled in place of v's vertical part, whose slope still damps. Returns attitude setpoint (w, x, y, z), thrust 0..1 and the
        yaw rate to feed forward [rad/s].
        """
        floor = self._thr_min if flying else 0.0
        if not flying:
            self.integral = [0.0, 0.0, 0.0]
        if not _holds_sideways(sp):  # with height alone PX4 forgets the tilt against the wind
            self.integral[:2] = [0.0, 0.0]
        v_sp = self._velocity(p, sp)
        self.velocity_sp = v_sp
        controlled = v if math.isnan(climb_rate) else (v[0], v[1], climb_rate)
        a = self._acceleration(dt, v, controlled, v_sp, sp)
        self._climb_acceleration = a[2]
        thrust, (tx, ty, tz) = self._thrust(dt, controlled, v_sp, a, tilt_max, floor)
        yaw_rate = sp.yaw_rate if math.isfinite(sp.yaw_rate) else 0.0
        if math.isfinite(sp.yaw):
            self._yaw = sp.yaw
        elif math.isfinite(sp.yaw_rate) or not math.isfinite(self._yaw):
            # PX4 turns the setpoint at this rate, starting from the heading of the aircraft
            self._yaw = wrap_angle((self._yaw if math.isfinite(self._yaw) else yaw) + yaw_rate * dt)
        return attitude_of(tx, ty, tz, self._yaw), thrust, yaw_rate

    def _velocity(self, p: Vector, sp: PositionSetpoint) -> Vec3:
        out: list[float] = []
        for i in range(3):
            feed = sp.v[i]
            if math.isfinite(sp.p[i]):
                out.append((sp.p[i] - p[i]) * self._p_gain[i] + (feed if math.isfinite(feed) else 0.0))
            else:
                out.append(feed)
        x, y, z = out
        if math.isfinite(x) and math.isfinite(y) and (speed := math.hypot(x, y)) > self._xy_max:
            x, y = x * self._xy_max / speed, y * self._xy_max / speed
        if math.isfinite(z):
            z = min(max(z, -self._down_max), self._up_max, self.climb_limit)
        return x, y, z

    def _acceleration(self, dt: float, v: Vector, controlled: Vector, v_sp: Vec3, sp: PositionSetpoint) -> list[float]:
        alpha = dt / (dt + 1.0 / (2.0 * math.pi * self._lp_hz))
        last = self._v_last or v
        out: list[float] = []
        for i in range(3):
            self._slope[i] += alpha * ((v[i] - last[i]) / dt - self._slope[i])
            feed = sp.a[i] if math.isfinite(sp.a[i]) else 0.0
            if math.isfinite(v_sp[i]):
                feed += self._vp[i] * (v_sp[i] - controlled[i]) + self.integral[i] - self._vd[i] * self._slope[i]
            out.append(feed)
        self._v_last = [v[0], v[1], v[2]]
        return out

    def _thrust(self, dt: float, v: Vector, v_sp: Vec3, a: Vector, tilt_max: float, floor: float) -> tuple[float, Vec3]:
        """Thrust 0..1 and its direction (x, y, z); integrates the velocity error where thrust is not at its limit.

        The tilt is that of the horizontal acceleration under gravity, whatever the lift (MPC_ACC_DECOUPLE): an aircraft that
        stands on the ground with little lift does not lean more than it did in the air.
        """
        g, most = GRAVITY_M_S2, self._thr_max
        level = math.hypot(a[0], a[1])
        tilt = min(math.atan2(level, g), tilt_max)
        lift = (a[2] + g) * self.hover / g  # vertical part of the thrust command
        size = max(lift / math.cos(tilt), floor)
        sideways, lift = size * math.sin(tilt), size * math.cos(tilt)
        error = [sp - now if math.isfinite(sp) else 0.0 for sp, now in zip(v_sp, v, strict=True)]
        if (lift >= most and error[2] >= 0.0) or (lift <= floor and error[2] <= 0.0):
            error[2] = 0.0
        # The lift first, but for a margin; then what is left of the thrust sideways.
        lift = min(lift, math.sqrt(max(most**2 - min(sideways, self._margin) ** 2, 0.0)))
        sideways = min(sideways, math.sqrt(max(most**2 - lift**2, 0.0)))
        produced = sideways * g / self.hover
        if level > produced:  # tracking anti-windup: take off the part that is not produced
            for i in range(2):
                error[i] -= 2.0 / max(self._vp[0], 1e-3) * a[i] * (1.0 - produced / level)
        for i in range(3):
            self.integral[i] = min(max(self.integral[i] + self._vi[i] * error[i] * dt, -g), g)
        share = sideways / level if level > 0.0 else 0.0
        return math.hypot(sideways, lift), (a[0] * share, a[1] * share, max(lift, 1e-3))


def _holds_sideways(sp: PositionSetpoint) -> bool:
    return all(math.isfinite(x) for x in sp.p[:2]) or all(math.isfinite(x) for x in sp.v[:2])


def attitude_of(tx: float, ty: float, tz: float, yaw: float) -> Quat:
    """Attitude (w, x, y, z) with the z axis along (tx, ty, tz) and the nose at the given yaw."""
    n = math.sqrt(tx * tx + ty * ty + tz * tz)
    zx, zy, zz = tx / n, ty / n, tz / n
    # tilt about a horizontal axis in the yawed frame, then yaw: q = q_yaw ⊗ q_tilt, body z matching (zx, zy, zz)
    c, s = math.cos(yaw), math.sin(yaw)
    bx, by = c * zx + s * zy, -s * zx + c * zy
    # y axis of the body must stay level in the roll-pitch sense: pitch from bx, zz, then roll from by
    pitch = math.atan2(bx, zz)
    roll = -math.asin(max(-1.0, min(1.0, by)))
    cr, sr = math.cos(roll / 2), math.sin(roll / 2)
    cp, sp = math.cos(pitch / 2), math.sin(pitch / 2)
    cy, sy = math.cos(yaw / 2), math.sin(yaw / 2)
    return (
        cr * cp * cy + sr * sp * sy,
        sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
    )


class SmoothAxis:
    """A setpoint of one axis that moves with limited velocity, acceleration and jerk.

    Not time-optimal: the velocity aims at the target by a square-root braking law, the acceleration follows the
    velocity error within its limit, the jerk limit smooths it.
    """

    __slots__ = ("p", "v", "a")
    GAIN_1_S = 3.0  # of the velocity loop inside the generator

    def __init__(self) -> None:
        self.p = self.v = self.a = 0.0

    def reset(self, p: float, v: float) -> None:
        """Start from a position and a velocity."""
        self.p, self.v, self.a = p, v, 0.0

    def stop_point(self, a_max: float) -> float:
        """The position at which the axis can come to rest."""
        return self.p + self.v * abs(self.v) / (2.0 * a_max) + self.v / self.GAIN_1_S

    def towards(self, dt: float, target: float, v_max: float, a_max: float, jerk: float, gain: float) -> None:
        """One step towards a position."""
        error = target - self.p
        distance = abs(error)
        knee = a_max / (gain * gain)  # from here on the braking law is a plain P controller
        speed = gain * distance if distance < knee else math.sqrt(2.0 * a_max * (distance - knee / 2.0))
        self.along(dt, math.copysign(min(speed, v_max), error), a_max, jerk)

    def along(self, dt: float, v_target: float, a_max: float, jerk: float) -> None:
        """One step towards a velocity."""
        a = min(max(self.GAIN_1_S * (v_target - self.v), -a_max), a_max)
        self.a += min(max(a - self.a, -jerk * dt), jerk * dt)
        self.p += (self.v + 0.5 * self.a * dt) * dt
        self.v += self.a * dt

"""What PX4 1.17 makes of the sticks: heading, tilt, and in Position mode speed with drag (MPC_POS_MODE 4).

World ENU, body FLU. Dead zone and expo are `stick`: MAN_DEADZONE and the fixed 0.6 of PX4 1.17, which no longer has
MPC_HOLD_DZ and MPC_XY_MAN_EXPO. Roll and pitch of Stabilized and Altitude have neither.
"""

import math
from typing import NamedTuple

from companion.core.frames import GRAVITY_M_S2
from sitl.autopilot.conversion import Quat, Vector
from sitl.autopilot.parameters import Parameters
from sitl.autopilot.position import NAN

Vec2 = tuple[float, float]
EXPO = 0.6
TAKEOFF_STICK = 0.3  # the throttle stick above which Altitude and Position leave the ground
TILT_ACCELERATION_G = (0.02, 3.0)  # range of the acceleration by MPC_MAN_TILT_MAX
BRAKE_FILTER_S = 0.8
STILL_M_S = 3.5e-4  # below this speed setpoint the position is locked
TINY = 1e-7


def stick(value: float, deadzone: float, expo: float = EXPO) -> float:
    """Stick -1..1 after dead zone and exponential curve, as PX4 shapes it."""
    size = max(0.0, (abs(value) - deadzone) / (1.0 - deadzone))
    return math.copysign((1.0 - expo) * size + expo * size**3, value)


def within_unit_circle(x: float, y: float) -> Vec2:
    """The corner of a square gimbal is no more than its edge."""
    size = math.hypot(x, y)
    return (x / size, y / size) if size > 1.0 else (x, y)


def to_world(forward: float, right: float, yaw: float) -> Vec2:
    """(east, north) of a stick in the frame of the heading."""
    c, s = math.cos(yaw), math.sin(yaw)
    return c * forward + s * right, s * forward - c * right


def tilted(forward: float, right: float, yaw: float) -> Quat:
    """Attitude (w, x, y, z): tilted about a horizontal axis, forward and right [rad], then turned by the yaw."""
    tilt = math.hypot(forward, right)
    w = math.cos(tilt / 2)
    share = math.sin(tilt / 2) / tilt if tilt > TINY else 0.5
    x, y = right * share, forward * share
    c, s = math.cos(yaw / 2), math.sin(yaw / 2)
    return c * w, c * x - s * y, c * y + s * x, s * w


class Heading(NamedTuple):
    """Yaw setpoint [rad] and its rate [rad/s] to feed forward."""

    yaw: float
    rate: float


class StickYaw:
    """The yaw stick turns the aircraft (MPC_MAN_Y_MAX, MPC_MAN_Y_TAU); centred, the heading is locked."""

    def __init__(self, parameters: Parameters) -> None:
        self._get = parameters
        self.reset()

    def reset(self) -> None:
        """No rotation, and the next heading is the one to lock."""
        self._rate, self._locked = 0.0, NAN

    def update(self, dt: float, turn: float, yaw: float, lock: bool = True) -> Heading:
        """turn: stick to the right after dead zone and expo; lock: False follows the heading, as on the ground."""
        wanted = -turn * math.radians(self._get["MPC_MAN_Y_MAX"])
        self._rate += dt / (dt + self._get["MPC_MAN_Y_TAU"]) * (wanted - self._rate)
        if abs(self._rate) < TINY:
            self._rate = 0.0
        if self._rate or not lock or not math.isfinite(self._locked):
            self._locked = NAN if self._rate or not lock else yaw
            return Heading(yaw, self._rate)
        return Heading(self._locked, 0.0)


class StickTilt:
    """Altitude mode: the stick is an acceleration, at its edge that of MPC_MAN_TILT_MAX."""

    def __init__(self, parameters: Parameters) -> None:
        self._get = parameters
        self._filtered: Vec2 = (0.0, 0.0)

    def reset(self) -> None:
        self._filtered = (0.0, 0.0)

    def update(self, dt: float, forward: float, right: float, yaw: float) -> Vec2:
        """Acceleration east and north [m/s²]."""
        low, high = TILT_ACCELERATION_G
        tilt = math.radians(min(max(self._get["MPC_MAN_TILT_MAX"], 0.0), 89.0))
        most = min(max(math.tan(tilt), low), high) * GRAVITY_M_S2
        share = dt / (dt + self._get["MC_MAN_TILT_TAU"])
        forward, right = within_unit_circle(forward, right)
        f, r = self._filtered
        self._filtered = f, r = f + share * (forward - f), r + share * (right - r)
        east, north = to_world(f, r, yaw)
        return most * east, most * north


class StickVelocity:
    """Position mode: the stick is an acceleration against a drag that ends at MPC_VEL_MANUAL; centred, it brakes.

    ``p``: the locked position, NaN while the aircraft moves; ``v`` and ``a``: setpoints. World, east and north.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._get = parameters
        self._boost = 1.0  # of the drag
        self.p: Vec2 = (NAN, NAN)
        self.v: Vec2 = (0.0, 0.0)
        self.a: Vec2 = (0.0, 0.0)

    def start(self, v: Vector, a: Vector) -> None:
        """Begin from the setpoints of the mode before."""
        self.p, self.v, self.a = (NAN, NAN), (v[0], v[1]), (a[0], a[1])

    def update(self, dt: float, forward: float, right: float, yaw: float, p: Vector, tilt_max: float) -> None:
        """One step; forward, right: sticks after dead zone and expo; tilt_max [rad]."""
        get, v = self._get, self.v
        v_max, scale = get["MPC_VEL_MANUAL"], 2.0 * get["MPC_ACC_HOR"]  # with drag the mean is half of it
        east, north = to_world(*within_unit_circle(forward, right), yaw)
        centred = math.hypot(east, north) < TINY
        strongest = max(2.0, math.sqrt(v_max))
        self._boost += dt / (dt + BRAKE_FILTER_S) * ((strongest if centred else 1.0) - self._boost)
        speed = math.hypot(*v)
        braking = min(max(self._boost - 1.0, 0.0), 1.0)
        # below 1 m/s the drag falls with the root of the speed, so that the aircraft stops in finite time
        slow = math.sqrt(speed) / speed if TINY < speed < 1.0 else 1.0
        drag = scale / v_max * self._boost * (braking * slow + (1.0 - braking))
        wanted = [scale * s for s in (east, north)]
        turned = any(_sign(new) != _sign(old) for new, old in zip(wanted, self.a, strict=True))
        if (centred or turned) and speed < drag * speed * dt:
            drag, v = 0.0, (0.0, 0.0)
        wanted = [w - drag * s for w, s in zip(wanted, v, strict=True)]
        self.a = self._limited(dt, wanted, tilt_max)
        v = (v[0] + self.a[0] * dt, v[1] + self.a[1] * dt)
        moving = math.hypot(*v) > STILL_M_S
        if moving:
            self.p = (NAN, NAN)
        elif not math.isfinite(self.p[0]):
            self.p = (p[0], p[1])
        self.v = v

    def _limited(self, dt: float, wanted: Vector, tilt_max: float) -> Vec2:
        """Acceleration within MPC_JERK_MAX of the one before and within the tilt."""
        change = [w - a for w, a in zip(wanted, self.a, strict=True)]
        size = math.hypot(*change)
        share = min(1.0, self._get["MPC_JERK_MAX"] * dt / size) if size > 0.0 else 1.0
        x, y = (a + share * c for a, c in zip(self.a, change, strict=True))
        most = math.tan(tilt_max) * GRAVITY_M_S2
        size = math.hypot(x, y)
        return (x * most / size, y * most / size) if size > most else (x, y)


def _sign(value: float) -> int:
    return (value > 0.0) - (value < 0.0)

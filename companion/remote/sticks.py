"""Sticks: their shape on the ground, the flight modes, and the numbers of MANUAL_CONTROL.

A stick is ahead, right, up and turn (to the right), each in -1..1. What leaves is always inside MAVLink's range.
"""

import math
from typing import NamedTuple

from companion.core.enums import FcuMode
from companion.core.trajectory_messages import Quat
from companion.remote.flight_modes import StickModes, limited

MANUAL = frozenset((FcuMode.STABILIZED, FcuMode.ALTCTL, FcuMode.POSCTL))  # flown by sticks
MODES_BY_VELOCITY = frozenset((FcuMode.POSCTL, FcuMode.POSCTL_SLOW))  # sticks command a velocity, not a tilt
FULL = 1000  # of MANUAL_CONTROL.x, y and r; z is 0..FULL
CENTRED = 0.05  # a stick nearer to its centre counts as released
PX4_EXPO = 0.6  # of PX4 1.17 in Position mode, not a parameter


class Sticks(NamedTuple):
    """Positions of the two sticks, each -1..1."""

    ahead: float
    right: float
    up: float
    turn: float

    @property
    def centred(self) -> bool:
        return all(abs(stick) < CENTRED for stick in self)


RELEASED = Sticks(0.0, 0.0, 0.0, 0.0)


class ManualControl(NamedTuple):
    """The axes of MANUAL_CONTROL: x ahead, y right, r turn to the right in ±1000; z up in 0..1000."""

    x: int
    y: int
    z: int
    r: int


def shaped(value: float, dead_zone: float, expo: float) -> float:
    """A stick after dead zone and exponential curve; the ends stay ±1. dead_zone in 0..1, expo in 0..1."""
    size = max(0.0, (abs(value) - dead_zone) / (1.0 - dead_zone))
    return math.copysign((1.0 - expo) * size + expo * size**3, value)


def unshaped(value: float, dead_zone: float, expo: float) -> float:
    """The stick that `shaped` turns into a value in -1..1; the centre for 0."""
    target = min(abs(value), 1.0)
    if target == 0.0:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        if (1.0 - expo) * middle + expo * middle**3 < target:
            low = middle
        else:
            high = middle
    return math.copysign(dead_zone + (1.0 - dead_zone) * high, value)


class StickShape(NamedTuple):
    """Dead zone and expo on the ground: of a gamepad that does not rest exactly in its centre."""

    dead_zone: float = 0.03
    expo: float = 0.0

    def apply(self, sticks: Sticks) -> Sticks:
        """All four sticks, shaped."""
        return Sticks(*(shaped(stick, self.dead_zone, self.expo) for stick in sticks))


def heading_rad(q_WB: Quat, mode: FcuMode) -> float:
    """The heading from which PX4 turns the sticks in a mode [rad, ENU].

    Stabilized tilts about one horizontal axis after a turn about the vertical: the heading is the twist of the attitude.
    It differs from the yaw of Euler angles, which the other modes use, by up to 5° at a tilt of 35°.
    """
    w, x, y, z = q_WB
    if mode is FcuMode.STABILIZED:
        return 2.0 * math.atan2(z, w)
    return math.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))


def manual_control(
    sticks: Sticks, modes: StickModes, heading: float, mode: FcuMode, dead_zone: float, now_s: float
) -> ManualControl:
    """MANUAL_CONTROL of the sticks in the pilot's flight mode.

    heading: `heading_rad`, NaN when unknown; dead_zone: PX4's MAN_DEADZONE. In Position PX4 shapes each axis by dead zone
    and expo before it turns the stick: the turn of headless mode is therefore made on the shaped stick, and the shape is
    undone.
    """
    ahead, right = limited(sticks.ahead), limited(sticks.right)
    if mode in MODES_BY_VELOCITY:
        ahead, right = (shaped(stick, dead_zone, PX4_EXPO) for stick in (ahead, right))
        size = math.hypot(ahead, right)
        if size > 1.0:
            ahead, right = ahead / size, right / size
        turned = modes.turn(ahead, right, heading, now_s, tilts=False)
        ahead, right = (unshaped(stick, dead_zone, PX4_EXPO) for stick in turned)
    else:
        ahead, right = modes.turn(ahead, right, heading, now_s)
    return ManualControl(_axis(ahead), _axis(right), (FULL + _axis(sticks.up)) // 2, _axis(sticks.turn))


def _axis(stick: float) -> int:
    """A stick as a whole number in ±1000."""
    return round(FULL * limited(stick))

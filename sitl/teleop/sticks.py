"""What passes between a source of sticks, a vehicle of the teleoperation simulator and its tasks."""

import math
from typing import NamedTuple, Protocol

import numpy as np

from companion.core.arrays import Array
from companion.remote.flight_modes import FlightMode, limited


class Sticks(NamedTuple):
    """Positions in ±1, 0 the centre; signs as in MAVLink's MANUAL_CONTROL."""

    ahead: float = 0.0  # right stick up: forward
    right: float = 0.0  # right stick to the right
    climb: float = 0.0  # left stick up
    yaw: float = 0.0  # left stick to the right: clockwise
    mode: FlightMode = FlightMode.BODY

    def within_range(self) -> "Sticks":
        """The same within ±1; what is not a number is the centre."""
        return Sticks(limited(self.ahead), limited(self.right), limited(self.climb), limited(self.yaw), self.mode)

    def finite(self) -> bool:
        """Whether all four positions are numbers."""
        return all(math.isfinite(value) for value in self[:4])


CENTRED = Sticks()


class StickSource(Protocol):
    """Where sticks come from; a page, a gamepad, a file."""

    def sticks(self, now_s: float) -> Sticks | None:
        """The sticks at a time since the start; None: lost, the vehicle flies with centred sticks."""
        ...


class Air(NamedTuple):
    """What acts on a vehicle besides its pilot."""

    wind_W: tuple[float, float, float] = (0.0, 0.0, 0.0)  # m/s, where the air moves to
    thrust_factor: float = 1.0  # of what the controller asks for
    torque: tuple[float, float, float] = (0.0, 0.0, 0.0)  # N m about x, y, z of B


STILL = Air()


class Pose(NamedTuple):
    """State of a vehicle. W: x ahead at the start, y left, z up, the floor is z = 0; B: x along the nose, y left."""

    p_W: Array  # m
    v_W: Array  # m/s
    R_WB: Array
    yaw_rad: float
    on_floor: bool
    impact_m_s: float  # fastest descent with which it has met the floor
    lost: bool  # the model has diverged; the aircraft would have crashed

    @property
    def tilt_rad(self) -> float:
        """Angle between the vehicle's axis and the vertical."""
        return float(np.arccos(np.clip(self.R_WB[2, 2], -1.0, 1.0)))


class Vehicle(Protocol):
    """A vehicle of `companion teleop`, advanced in steps of one millisecond."""

    name: str
    radius_m: float

    def advance(self, sticks: Sticks, air: Air, steps: int) -> None:
        """Fly this many milliseconds with sticks and air held."""
        ...

    def pose(self) -> Pose:
        """Where the aircraft is now."""
        ...

    def put(self, p_W: Array, v_W: Array) -> None:
        """Set position and velocity, as a contact does."""
        ...

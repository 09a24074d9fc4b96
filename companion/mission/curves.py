"""The `[trajectory]` table of a mission file: ``kind`` names the curve, ``frame`` its frame.

In the frame "world" points are relative to the take-off point. In the frame of a bundle points are the bundle's own,
and yaw is relative to facing the bundle.
"""

import math
from typing import Annotated

import numpy as np
from msgspec import Meta

from companion.core.config import Section, integer, number
from companion.core.messages import WORLD
from companion.core.trajectories import duration_s, sample
from companion.core.trajectory_messages import FigureEight, Hold, Line, Raster, Spiral, Trajectory, Vec3, Waypoints

Coordinate = Annotated[float, number(-500, 500, "m")]
Point = tuple[Coordinate, Coordinate, Coordinate]
Speed = Annotated[float, number(0.05, 20, "m/s")]
Acceleration = Annotated[float, number(0.05, 8, "m/s²")]
YawRate = Annotated[float, number(0.05, 2, "rad/s")]
Angle = Annotated[float, number(-math.pi, math.pi, "rad")]
Length = Annotated[float, number(0.05, 200, "m")]
Time = Annotated[float, number(0, 600, "s")]
Ramp = Annotated[float, number(0.1, 60, "s")]

CHECKED_EVERY_S = 0.1  # time between the points at which a trajectory is compared with the limits of its plan


class _Curve(Section, frozen=True, tag_field="kind"):
    frame: Annotated[str, Meta(min_length=1)]  # "world", or the plan's bundle

    def contradiction(self) -> str:
        """A contradiction between two keys, beginning with the key; "" if none."""
        return ""


class HoldTable(_Curve, frozen=True, tag="hold"):
    """Stay at a point."""

    p_m: Point
    yaw_rad: Angle
    duration_s: Annotated[float, number(1, 3600, "s")]


class LineTable(_Curve, frozen=True, tag="line"):
    """Back and forth with stops at both ends."""

    start_m: Point
    end_m: Point
    yaw_rad: Angle
    speed_m_s: Speed
    acceleration_m_s2: Acceleration
    stop_s: Time
    laps: Annotated[int, integer(1, 1000)]


class SpiralTable(_Curve, frozen=True, tag="spiral"):
    """Around a vertical axis, the nose at the axis."""

    centre_m: tuple[Coordinate, Coordinate]
    radius_m: Length
    height_start_m: Coordinate
    height_end_m: Coordinate
    angle_start_rad: Angle
    turns: Annotated[float, number(-100, 100, "")]
    duration_s: Annotated[float, number(1, 3600, "s")]
    ramp_s: Ramp

    def contradiction(self) -> str:
        if self.frame != WORLD:
            return f"frame = {self.frame!r}: a spiral turns the nose about the vertical and needs {WORLD!r}"
        if self.duration_s < 2 * self.ramp_s:
            return f"duration_s = {self.duration_s:g}: is shorter than two ramps of {self.ramp_s:g} s"
        return ""


class FigureEightTable(_Curve, frozen=True, tag="figure_eight"):
    """The Lissajous figure of one to two; its length and width are the lengths of two directions."""

    centre_m: Point
    long_m: Point  # direction and whole length
    cross_m: Point  # direction and whole width
    yaw_rad: Angle
    period_s: Annotated[float, number(0.5, 600, "s")]
    laps: Annotated[int, integer(1, 1000)]
    ramp_s: Ramp


class RasterTable(_Curve, frozen=True, tag="raster"):
    """Scan of a rectangle in the frame's x and y: of a bundle's face, or level over the take-off point."""

    centre_m: Point
    width_m: Length
    height_m: Length
    spacing_m: Length
    yaw_rad: Angle
    speed_m_s: Speed
    acceleration_m_s2: Acceleration
    stop_s: Time


class CurvePoint(Section, frozen=True):
    p_m: Point
    yaw_rad: Angle


class WaypointsTable(_Curve, frozen=True, tag="waypoints"):
    """Through points without a stop."""

    points: Annotated[list[CurvePoint], Meta(min_length=2, max_length=100)]
    speed_m_s: Speed
    acceleration_m_s2: Acceleration
    yaw_rate_rad_s: YawRate


Curve = HoldTable | LineTable | SpiralTable | FigureEightTable | RasterTable | WaypointsTable


def to_trajectory(curve: Curve, origin: Vec3) -> Trajectory:
    """The trajectory of a table, its points moved by origin: the take-off point, or zero in a bundle's frame."""

    def moved(p: Vec3) -> Vec3:
        return float(p[0] + origin[0]), float(p[1] + origin[1]), float(p[2] + origin[2])

    match curve:
        case HoldTable():
            return Hold(p=moved(curve.p_m), yaw_rad=curve.yaw_rad)
        case LineTable():
            return Line(
                p_start=moved(curve.start_m),
                p_end=moved(curve.end_m),
                yaw_rad=curve.yaw_rad,
                speed_m_s=curve.speed_m_s,
                acceleration_m_s2=curve.acceleration_m_s2,
                stop_s=curve.stop_s,
                laps=curve.laps,
            )
        case SpiralTable():
            return Spiral(
                centre=moved((*curve.centre_m, curve.height_start_m)),
                radius_m=curve.radius_m,
                height_end=origin[2] + curve.height_end_m,
                angle_start_rad=curve.angle_start_rad,
                turns=curve.turns,
                duration_s=curve.duration_s,
                ramp_s=curve.ramp_s,
            )
        case FigureEightTable():
            return FigureEight(
                centre=moved(curve.centre_m),
                semi_long=(curve.long_m[0] / 2, curve.long_m[1] / 2, curve.long_m[2] / 2),
                semi_cross=(curve.cross_m[0] / 2, curve.cross_m[1] / 2, curve.cross_m[2] / 2),
                yaw_rad=curve.yaw_rad,
                period_s=curve.period_s,
                laps=curve.laps,
                ramp_s=curve.ramp_s,
            )
        case RasterTable():
            return Raster(
                centre=moved(curve.centre_m),
                width_m=curve.width_m,
                height_m=curve.height_m,
                spacing_m=curve.spacing_m,
                yaw_rad=curve.yaw_rad,
                speed_m_s=curve.speed_m_s,
                acceleration_m_s2=curve.acceleration_m_s2,
                stop_s=curve.stop_s,
            )
        case WaypointsTable():
            return Waypoints(
                points=tuple(moved(point.p_m) for point in curve.points),
                yaws_rad=tuple(point.yaw_rad for point in curve.points),
                speed_m_s=curve.speed_m_s,
                acceleration_m_s2=curve.acceleration_m_s2,
                yaw_rate_rad_s=curve.yaw_rate_rad_s,
            )


def flown_s(curve: Curve, trajectory: Trajectory) -> float:
    """How long a trajectory is flown [s]: a hold for its table's time, any other curve to its end."""
    return curve.duration_s if isinstance(curve, HoldTable) else duration_s(trajectory)


def fastest_m_s(curve: Curve) -> float:
    """The highest speed of a curve, of samples `CHECKED_EVERY_S` apart."""
    trajectory = to_trajectory(curve, (0.0, 0.0, 0.0))
    times_s = np.arange(0.0, duration_s(trajectory) + CHECKED_EVERY_S, CHECKED_EVERY_S)
    return float(np.linalg.norm(sample(trajectory, 0.0, times_s).v_W, axis=1).max())


def turn_rate_rad_s(curve: Curve | None) -> float:
    """How fast the nose turns at most; 0 where it does not follow the curve."""
    if not isinstance(curve, SpiralTable):
        return 0.0
    return 2 * math.pi * abs(curve.turns) / max(curve.duration_s - curve.ramp_s, 1e-3)  # a ramp at each end


def points_of(trajectory: Trajectory) -> list[Vec3]:
    """Points of a trajectory, `CHECKED_EVERY_S` apart in time."""
    times_s = np.arange(0.0, duration_s(trajectory) + CHECKED_EVERY_S, CHECKED_EVERY_S)
    return [tuple(p) for p in sample(trajectory, 0.0, times_s).p_W.tolist()]

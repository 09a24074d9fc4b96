"""The trajectories that a `companion.core.messages.Reference` may carry, and the vector types of all messages.

Plain data like every message; the tag ``type`` distinguishes them on the wire. Points and headings are in the frame of
their reference. `companion.core.trajectories` samples each curve over time. The frozen types are hashable, because that
module caches their tables by value.
"""

import msgspec

Vec3 = tuple[float, float, float]
Quat = tuple[float, float, float, float]


class Hold(msgspec.Struct, tag="hold"):
    """Stay at a point."""

    p: Vec3
    yaw_rad: float


class Move(msgspec.Struct, tag="move", omit_defaults=True):
    """A smooth straight move that begins at the reference's start time and ends at rest.

    It begins with a velocity and an acceleration, which end smoothly; from rest where they are zero.
    """

    p_start: Vec3
    yaw_start_rad: float
    p_end: Vec3
    yaw_end_rad: float
    speed_m_s: float
    acceleration_m_s2: float
    yaw_rate_rad_s: float
    v_start: Vec3 = (0.0, 0.0, 0.0)  # [m/s]
    a_start: Vec3 = (0.0, 0.0, 0.0)  # [m/s²]


class Line(msgspec.Struct, tag="line", frozen=True):
    """Back and forth between two points, at rest for ``stop_s`` at both; ends where it began."""

    p_start: Vec3
    p_end: Vec3
    yaw_rad: float
    speed_m_s: float
    acceleration_m_s2: float
    stop_s: float
    laps: int  # there and back


class Spiral(msgspec.Struct, tag="spiral", frozen=True):
    """Around a vertical axis from one height to another, the nose towards the axis."""

    centre: Vec3  # on the axis, at the height of the start
    radius_m: float
    height_end: float  # third coordinate of the end
    angle_start_rad: float  # start on the circle, 0: on the side of +x
    turns: float  # negative: clockwise seen from above
    duration_s: float
    ramp_s: float  # time from rest to full speed, and from full speed to rest


class FigureEight(msgspec.Struct, tag="figure_eight", frozen=True):
    """The Lissajous figure centre + semi_long sin θ + semi_cross sin 2θ, θ from 0 to 2π in every lap."""

    centre: Vec3
    semi_long: Vec3  # half of the figure's length
    semi_cross: Vec3  # half of its width
    yaw_rad: float
    period_s: float  # of a lap at full speed
    laps: int
    ramp_s: float


class Raster(msgspec.Struct, tag="raster", frozen=True):
    """Scan of a rectangle in the plane of x and y: lines along x, from the largest y to the smallest."""

    centre: Vec3
    width_m: float  # along x
    height_m: float  # along y
    spacing_m: float  # largest distance of two lines
    yaw_rad: float
    speed_m_s: float
    acceleration_m_s2: float
    stop_s: float  # at each end of a line


class Waypoints(msgspec.Struct, tag="waypoints", frozen=True):
    """Through points and headings on minimum-snap polynomials, from rest to rest."""

    points: tuple[Vec3, ...]  # at least two
    yaws_rad: tuple[float, ...]  # one for each point; the shorter turn between two of them
    speed_m_s: float
    acceleration_m_s2: float
    yaw_rate_rad_s: float


Curve = Line | Spiral | FigureEight | Raster | Waypoints


class Resumed(msgspec.Struct, tag="resumed", frozen=True):
    """What is left of a curve that was interrupted: from rest at one of its points, and after a ramp at its own pace."""

    curve: Curve
    from_s: float  # time of the curve at which it goes on
    ramp_s: float


Trajectory = Hold | Move | Curve | Resumed

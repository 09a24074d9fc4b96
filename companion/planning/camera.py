"""The payload camera: its file (config/cameras/*.toml), where it looks, and what a pixel sees.

Camera frame C as everywhere: z along the optical axis, x to the right of the picture, y down. The lens is a pinhole;
distortion, which moves the edge of the footprint by a few per cent, is not part of a plan.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from companion.core.arrays import Array, Mask
from companion.core.config import Section, check_unit_quaternion, integer, load, number
from companion.core.frames import quat_normalized, rotation_matrix, wrap_angle
from companion.planning.camera_control import CameraControl
from companion.planning.sections import Name

UPRIGHT_SINE = 1e-3  # a view so near to the vertical has no heading of its own
NEAR_M = 1e-6  # nothing is nearer to the lens
EDGE = 1 + 1e-9  # rounding at the picture's edge
PITCH_TOLERANCE_RAD = 1e-3  # of a gimbal's end stop: π/2 in a file has few digits
Focal = Annotated[float, number(10, 200000, "px")]
Pixels = Annotated[int, integer(16, 50000, "px")]
Metres = Annotated[float, number(-3, 3, "m")]
Unit = Annotated[float, number(-1, 1, "")]
Pitch = Annotated[float, number(-math.pi, math.pi, "rad")]


class PayloadCamera(Section, frozen=True, kw_only=True):
    """A camera file. The focal length stands in it as `focal_length_mm` with `pixel_pitch_um`, or as `fx_px` and `fy_px`."""

    name: Name
    width_px: Pixels
    height_px: Pixels
    focal_length_mm: Annotated[float, number(1, 1000, "mm, not the 35 mm equivalent")] | None = None
    pixel_pitch_um: Annotated[float, number(0.5, 50, "µm")] | None = None
    fx_px: Focal | None = None
    fy_px: Focal | None = None
    p_BC: tuple[Metres, Metres, Metres]  # centre of projection, about which a gimbal turns
    q_BC: tuple[Unit, Unit, Unit, Unit]  # with the gimbal at pitch 0
    pitch_range_rad: tuple[Pitch, Pitch]  # of the gimbal, up is positive; [0, 0]: fixed to the body
    exposure_s: Annotated[float, number(1e-5, 10, "s")]
    trigger_period_s: Annotated[float, number(0.02, 60, "s between two photographs at least")]
    nearest_focus_m: Annotated[float, number(0.01, 100, "m")]
    mass_kg: Annotated[float, number(0, 50, "kg, with its mount; added to the vehicle file's mass_kg")]
    control: CameraControl | None = None  # required to take photographs, not to plan them

    def __post_init__(self) -> None:
        check_unit_quaternion("q_BC", self.q_BC)

    def contradiction(self) -> str:
        by_mm = (self.focal_length_mm, self.pixel_pitch_um)
        by_px = (self.fx_px, self.fy_px)
        given = [pair for pair in (by_mm, by_px) if any(value is not None for value in pair)]
        if len(given) != 1 or None in given[0]:
            return "focal_length_mm: needs pixel_pitch_um, or fx_px and fy_px in the place of both"
        low, high = self.pitch_range_rad
        if not low <= high:
            return f"pitch_range_rad = [{low:g}, {high:g}]: the first must not be above the second"
        if self.control is None:
            return ""
        if low != high and self.control.gimbal_component_id is None:
            return f"pitch_range_rad = [{low:g}, {high:g}]: needs control.gimbal_component_id, or [0.0, 0.0] without a gimbal"
        return self.control.contradiction()

    @property
    def focal_px(self) -> tuple[float, float]:
        """Focal length along x and y of the picture [px]."""
        if self.fx_px is not None and self.fy_px is not None:
            return self.fx_px, self.fy_px
        f = 1e3 * (self.focal_length_mm or math.nan) / (self.pixel_pitch_um or math.nan)
        return f, f

    def gsd_m(self, distance_m: float) -> float:
        """Size of a pixel on a plane that faces the camera [m]: distance over focal length."""
        return distance_m / min(self.focal_px)

    def distance_m(self, gsd_m: float) -> float:
        """The inverse of `gsd_m`."""
        return gsd_m * min(self.focal_px)


class View(NamedTuple):
    """How body and gimbal stand for a wanted direction."""

    yaw_rad: float
    pitch_rad: float  # of the gimbal
    R_WC: Array  # (3, 3)


class CameraPose(NamedTuple):
    p_W: Array  # (3,) centre of projection
    R_WC: Array  # (3, 3)


def load_camera(path: str) -> PayloadCamera:
    """Read a camera file; raises `ConfigError`."""
    return load(path, PayloadCamera)


def view(camera: PayloadCamera, direction: Array, right: Array) -> View:
    """Body heading and gimbal pitch that make the camera look along a direction (unit vector, world), the body level.

    right: where the picture's right side shall point in the world; decides for a vertical direction only, because the
    picture's horizontal axis always stays level. pitch_rad may lie outside of what the gimbal can do (`can_pitch`).
    """
    mount = rotation_matrix(quat_normalized(camera.q_BC))
    axis = mount[:, 2]
    mount_elevation = math.asin(max(-1.0, min(1.0, float(axis[2]))))
    upright = math.hypot(axis[0], axis[1]) < UPRIGHT_SINE
    # A camera that is mounted looking up or down: its picture's right side is to the right of the nose.
    azimuth = math.atan2(mount[0, 0], -mount[1, 0]) if upright else math.atan2(axis[1], axis[0])
    roll = turn(azimuth, mount_elevation).T @ mount
    elevation = math.asin(max(-1.0, min(1.0, float(direction[2]))))
    if math.hypot(direction[0], direction[1]) > UPRIGHT_SINE:
        heading = math.atan2(direction[1], direction[0])
    else:
        heading = math.atan2(right[0], -right[1])
    return View(wrap_angle(heading - azimuth), wrap_angle(elevation - mount_elevation), turn(heading, elevation) @ roll)


def can_pitch(camera: PayloadCamera, pitch_rad: float) -> bool:
    """The gimbal reaches this pitch."""
    low, high = camera.pitch_range_rad
    return low - PITCH_TOLERANCE_RAD <= pitch_rad <= high + PITCH_TOLERANCE_RAD


def camera_rotation(camera: PayloadCamera, yaw_rad: float, elevation_rad: float) -> View:
    """As `view`, for a body heading and the elevation of the optical axis."""
    mount = rotation_matrix(quat_normalized(camera.q_BC))
    level = view(camera, np.array([1.0, 0.0, 0.0]), np.array([0.0, -1.0, 0.0]))
    azimuth = -level.yaw_rad
    mount_elevation = -level.pitch_rad
    roll = turn(azimuth, mount_elevation).T @ mount
    return View(
        wrap_angle(yaw_rad), wrap_angle(elevation_rad - mount_elevation), turn(yaw_rad + azimuth, elevation_rad) @ roll
    )


def turn(heading_rad: float, elevation_rad: float) -> Array:
    """Rz(heading) Ry(−elevation): x points along the heading, raised by the elevation; (3, 3)."""
    c, s = math.cos(heading_rad), math.sin(heading_rad)
    ce, se = math.cos(elevation_rad), math.sin(elevation_rad)
    return np.array([[c * ce, -s, -c * se], [s * ce, c, -s * se], [se, 0.0, ce]])


class Seen(NamedTuple):
    """Points of a surface in one photograph."""

    inside: Mask  # (n,) in the picture, in front of the camera, on the side that faces it
    gsd_m: Array  # (n,) inf where not inside


def seen(camera: PayloadCamera, pose: CameraPose, points: Array, normals: Array) -> Seen:
    """Which points of a surface a photograph shows, and how large its pixels are there.

    points, normals: (n, 3), the normals unit vectors out of the surface. The GSD is the length on the surface that one
    pixel covers in the worst direction: 1/σ_min of the Jacobian of pixels by metres along the surface.
    """
    fx, fy = camera.focal_px
    points_C = (points - pose.p_W) @ pose.R_WC
    x, y, z = points_C.T
    inside = (
        (z > NEAR_M)
        & (np.abs(fx * x) <= z * (camera.width_px / 2 * EDGE))
        & (np.abs(fy * y) <= z * (camera.height_px / 2 * EDGE))
    )
    found = np.flatnonzero(inside)
    normals_C = normals[found] @ pose.R_WC
    facing = np.einsum("ij,ij->i", points_C[found], normals_C) < 0.0
    inside[found[~facing]] = False
    gsd_m = np.full(len(points), np.inf)
    gsd_m[inside] = _gsd_m(fx, fy, points_C[found[facing]], normals_C[facing])
    return Seen(inside, gsd_m)


def _gsd_m(fx: float, fy: float, points_C: Array, normals_C: Array) -> Array:
    # Two unit vectors along the surface for a normal n (T. Duff et al., "Building an Orthonormal Basis, Revisited", JCGT 6(1), 2017).
    n1, n2, n3 = normals_C.T
    sign = np.copysign(1.0, n3)
    w = -1.0 / (sign + n3)
    first = (1.0 + sign * n1 * n1 * w, sign * n1 * n2 * w, -sign * n1)
    second = (n1 * n2 * w, sign + n2 * n2 * w, -n2)
    x, y, z = points_C.T
    a, b, c, d = (
        f * (t[axis] * z - place * t[2]) / z**2 for t in (first, second) for f, axis, place in ((fx, 0, x), (fy, 1, y))
    )
    # Smallest singular value of [[a, c], [b, d]].
    total, product = a * a + b * b + c * c + d * d, np.abs(a * d - b * c)
    largest2 = 0.5 * (total + np.sqrt(np.maximum(total * total - 4 * product * product, 0.0)))
    gsd: Array = np.sqrt(largest2) / np.maximum(product, 1e-12)
    return gsd

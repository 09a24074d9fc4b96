"""The table `[inspection]` of a mission file: what to photograph, with which camera, on which battery.

A mission reads the table, `companion plan` turns it into a path. Each item names the frame of its points: "world", whose
origin is the take-off point (x east, y north, z up), or a bundle of the mission's marker file (x right, y up, z out of
the face). A heading in a bundle's frame is relative to facing the bundle.
"""

import math
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from companion.core.config import Section, integer, number
from companion.core.site import check_bundle_name

RESUME_DAYS = 30  # where the mission file says nothing else
OVERLAP_MAX = 0.95  # with more, a photograph adds less than a twentieth of its width
Name = Annotated[str, Meta(min_length=1, max_length=60)]
Metres = Annotated[float, number(-500, 500, "m")]
Point = tuple[Metres, Metres, Metres]
SiteMetres = Annotated[float, number(-2000, 2000, "m")]
Angle = Annotated[float, number(-math.pi, math.pi, "rad")]
Size = Annotated[float, number(0.1, 500, "m")]
Overlap = Annotated[float, number(0, OVERLAP_MAX, "of the photograph's length in that direction")]
Standoff = Annotated[float, number(0.3, 100, "m from the camera to the surface")]
Gsd = Annotated[float, number(0.02, 100, "mm/px")]
Time = Annotated[float, number(0, 3600, "s")]
Margin = Annotated[float, number(0, 5, "m beyond each edge of the surface that the photographs reach")]


class HoldItem(Section, frozen=True, tag="hold", tag_field="kind"):
    """Stay at a station, without a photograph; also a way to lead the path around something."""

    name: Name
    frame: Name
    p_m: Point
    yaw_rad: Angle
    duration_s: Time


class _Surface(Section, frozen=True, kw_only=True, tag_field="kind"):
    name: Name
    frame: Name
    gsd_mm_px: Gsd  # the largest that is allowed
    overlap_along: Overlap  # of two consecutive photographs of a path
    overlap_between: Overlap  # of two neighbouring paths
    margin_m: Margin
    standoff_m: Standoff | None = None  # without it: as far as the GSD permits


class RectangleItem(_Surface, frozen=True, kw_only=True, tag="rectangle"):
    """A plane in a raster of parallel paths, the camera along its normal."""

    centre_m: Point
    rpy_rad: tuple[Angle, Angle, Angle]  # from the frame's axes to the surface's: x right, y up, z out of the surface
    size_m: tuple[Size, Size]  # along its x and y
    along: Annotated[str, Meta(pattern="^[xy]$", description="x, y: the surface's axis along which paths lead")]


class UndersideItem(_Surface, frozen=True, kw_only=True, tag="underside"):
    """A level surface seen from below, the camera looking up."""

    centre_m: Point
    yaw_rad: Angle  # heading of its length, from x of the world or relative to facing the bundle
    size_m: tuple[Size, Size]  # length along that heading, width across; paths lead along the length


class CylinderItem(_Surface, frozen=True, kw_only=True, tag="cylinder"):
    """A round pier with a vertical axis, photographed in rings from the lowest or the highest."""

    base_m: Point  # where the axis meets the lower edge
    radius_m: Annotated[float, number(0.1, 100, "m")]
    height_m: Size
    angle_start_rad: (
        Angle  # of the part to photograph: 0 is the side of +x, or the side that the bundle's face looks to
    )
    angle_rad: Annotated[float, number(0.1, 2 * math.pi + 1e-3, "rad, anticlockwise; 2π: all around")]


class Viewpoint(Section, frozen=True):
    p_m: Point  # of the body
    yaw_rad: Angle
    pitch_rad: Annotated[float, number(-math.pi / 2, math.pi / 2, "rad, of the camera above the horizon")] = 0.0


class ViewpointsItem(Section, frozen=True, tag="viewpoints", tag_field="kind"):
    """Single photographs, each after a stop."""

    name: Name
    frame: Name
    settle_s: Time
    points: Annotated[list[Viewpoint], Meta(min_length=1, max_length=2000)]


class QgcItem(Section, frozen=True, tag="qgc", tag_field="kind"):
    """The waypoints and photographs of a QGroundControl `.plan`; needs `origin`."""

    name: Name
    file: Annotated[str, Meta(min_length=1)]  # relative to the mission file
    frame: Annotated[str, Meta(pattern="^world$", description="world")] = "world"


Item = HoldItem | RectangleItem | UndersideItem | CylinderItem | ViewpointsItem | QgcItem
SurfaceItem = RectangleItem | UndersideItem | CylinderItem


def along_x(item: SurfaceItem) -> bool:
    """Paths lead along the surface's x axis: the length of an underside, the rings of a cylinder."""
    return not isinstance(item, RectangleItem) or item.along == "x"


class BundlePlace(Section, frozen=True):
    """Where a bundle is assumed to stand. The flight follows the bundle itself; limits are checked for this place."""

    name: Name
    p_m: Point
    rpy_rad: tuple[Angle, Angle, Angle]

    def __post_init__(self) -> None:
        check_bundle_name(self.name)


class SurveyPoint(Section, frozen=True):
    """The take-off point in the frame S of the marker file's survey: places of surveyed bundles follow from it."""

    p_S: tuple[SiteMetres, SiteMetres, SiteMetres]
    yaw_rad: Angle  # of the world's x axis in S


class Origin(Section, frozen=True):
    """The geographic place of the take-off point."""

    latitude_deg: Annotated[float, number(-89, 89, "°")]
    longitude_deg: Annotated[float, number(-180, 180, "°")]
    altitude_m: Annotated[float, number(-500, 9000, "m above sea level")]
    # Former plans could be turned on the map; the flight takes their axes as east and north, so only 0 is flown.
    heading_deg: Annotated[float, number(-360, 360, "°, compass heading of the plan's y axis; 0: y is north")] = 0.0


class Inspection(Section, frozen=True, kw_only=True):
    """The table `[inspection]`."""

    camera: Annotated[str, Meta(min_length=1)]  # config/cameras/*.toml, relative to the mission file
    battery: Annotated[str, Meta(min_length=1)]  # config/batteries/*.toml, likewise
    resumable: bool  # True: a plan that takes several batteries is split between two photographs
    speed_m_s: Annotated[float, number(0.05, 5, "m/s")]
    acceleration_m_s2: Annotated[float, number(0.05, 3, "m/s²")]
    yaw_rate_rad_s: Annotated[float, number(0.05, 2, "rad/s")]
    settle_s: Time  # at rest before each photograph of a surface
    # when a photograph cannot be taken in three attempts: count it as missing, or end the inspection there
    on_camera_failure: Literal["continue", "return"] = "continue"
    # A flight of former days counts for --resume: older ones in a folder belong to an earlier inspection of the same structure.
    resume_days: Annotated[int, integer(1, 3650)] = RESUME_DAYS
    camera_in_vehicle_mass: bool = False  # mass_kg of the vehicle file counts the payload camera
    bundle: list[BundlePlace] = []
    takeoff: SurveyPoint | None = None
    origin: Origin | None = None
    item: Annotated[list[Item], Meta(min_length=1, max_length=200)]


def with_absolute_paths(inspection: Inspection, folder: Path) -> Inspection:
    """The same table with files that do not depend on a folder."""

    def absolute(file: str) -> str:
        return str((folder / file).resolve())

    item = [replace(item, file=absolute(item.file)) if isinstance(item, QgcItem) else item for item in inspection.item]
    return replace(inspection, camera=absolute(inspection.camera), battery=absolute(inspection.battery), item=item)


class Battery(Section, frozen=True):
    """A battery file (config/batteries/*.toml): the energy of one charge, and what a hover takes of it.

    The hover power is a measured or computed number of the aircraft with this battery and these propellers. It stands
    here because it is worth nothing without its mass and because no other file needs it: in flight the safety row
    `energy` follows the measured trend of voltage and charge.
    """

    name: Name
    cells: Annotated[int, integer(1, 14)]
    capacity_ah: Annotated[float, number(0.1, 200, "Ah")]
    cell_v: Annotated[float, number(2.5, 4.4, "V, mean of one cell while it discharges")]
    usable_share: Annotated[float, number(0.1, 1, "of the capacity, the rest is the reserve for the landing")]
    hover_power_w: Annotated[float, number(5, 50000, "W of the rotors in a hover in still air")]
    hover_mass_kg: Annotated[float, number(0.1, 100, "kg, at which hover_power_w holds")]
    avionics_power_w: Annotated[float, number(0, 500, "W, everything but the rotors")]

    @property
    def usable_j(self) -> float:
        """Energy that a plan may take from one charge [J]."""
        return 3600.0 * self.cells * self.cell_v * self.capacity_ah * self.usable_share

    def power_w(self, mass_kg: float) -> float:
        """Electrical power of a hover [W]; P ∝ m^(3/2) by momentum theory (J. G. Leishman, "Principles of Helicopter
        Aerodynamics", section 2.3)."""
        ratio = mass_kg / self.hover_mass_kg
        return self.hover_power_w * ratio * math.sqrt(ratio) + self.avionics_power_w

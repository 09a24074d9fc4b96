"""An inspection as CSV and GeoJSON: photographs, surfaces, gaps; places geographic where the origin is known."""

import csv
import datetime
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from companion.core.arrays import Array
from companion.core.frames import quat_from_matrix
from companion.core.messages import WORLD
from companion.core.refined_poses import pose_source
from companion.core.trajectory_messages import Vec3
from companion.planning.camera import CameraPose, PayloadCamera
from companion.planning.qgc import compass_deg, geographic
from companion.planning.sections import Origin
from companion.planning.surfaces import Surface
from companion.recording.inspection import FlownPlan, InspectedItem, Place, Shot, ShotKey, best_shots
from companion.recording.inspection_figures import Gap, SurfaceResult
from companion.recording.inspection_surface import middle_gsd_m, outline
from companion.recording.inspection_takeoff import TakeOff

DEGREES = 9  # digits of a latitude: 0.1 mm
MILLIMETRES = 3  # digits of a height
LEVEL_SINE = 0.1  # an optical axis so near to the vertical has no useful heading
FLAT_M2 = 0.01  # a polygon with less area on the map is written as a line
Feature = dict[str, Any]
Row = dict[str, Any]


class Listed(NamedTuple):
    """One photograph of the plan with its best capture, or without one."""

    item: InspectedItem
    place: Place
    shot: Shot | None
    attempts: int
    file: str  # inside the report's folder, "" none
    gsd_m: float = (
        math.nan
    )  # in the middle of the picture, at its pose; NaN: no picture, pose or surface, or another format

    @property
    def state(self) -> str:
        """Outcome of the best capture; "missing": there is no picture."""
        return "missing" if self.shot is None or not self.shot.taken else str(self.shot.capture.outcome)


def listed(plan: FlownPlan, shots: Sequence[Shot], file_of: Mapping[ShotKey, str]) -> list[Listed]:
    """All photographs of the plan in the order of its items."""
    best = best_shots(shots)
    attempts: dict[tuple[str, Place], int] = {}
    for shot in shots:
        key = (shot.capture.item, shot.place)
        attempts[key] = attempts.get(key, 0) + 1
    found = []
    for item in plan.items:
        for place in sorted(item.planned):
            shot_ = best.get((item.name, place))
            file = "" if shot_ is None else file_of.get(shot_.key, "")
            gsd_m = math.nan
            if shot_ is not None and shot_.taken and shot_.shown_pose is not None and item.surface is not None:
                gsd_m = middle_gsd_m(plan.planning.camera, item.surface, shot_.shown_pose)
            found.append(Listed(item, place, shot_, attempts.get((item.name, place), 0), file, gsd_m))
    return found


def origins_of(plan: FlownPlan, shots: Sequence[Shot], take_offs: Sequence[TakeOff]) -> dict[str, Origin]:
    """The geographic place of the plan's zero by name of the item; an item without one has no geographic places.

    The plan's own origin holds for all. Without it the receiver's position at a flight's take-off point counts, which is the
    zero of items in the world. An item at a bundle stands where the bundle does: its zero is off the take-off point by the
    median over its photographs of (where the camera was from the take-off point) - (where it was in the plan). An item
    without such photographs takes those of its bundle, else of the other bundles.
    take_offs: by the number of the flight.
    """
    if plan.origin is not None:
        return {item.name: plan.origin for item in plan.items}
    found: dict[str, Origin] = {}
    for flight, take_off in enumerate(take_offs):
        if take_off.received is None:
            continue
        zero = _origin(take_off.received)
        offsets = _offsets_m(plan, [shot for shot in shots if shot.flight == flight], take_off.p_W)
        for item in plan.items:
            if item.frame == WORLD:
                found.setdefault(item.name, zero)
            elif offset := offsets.get(item.name):
                found.setdefault(item.name, _origin(geographic(offset, zero)))
    all_ = {item.name: item.frame for item in plan.items if item.frame != WORLD and item.name in found}
    for item in plan.items:
        nearest = sorted(all_, key=lambda name: all_[name] != item.frame)
        if item.frame != WORLD and nearest:
            found.setdefault(item.name, found[nearest[0]])
    return found


def _offsets_m(plan: FlownPlan, shots: Sequence[Shot], takeoff_W: Array | None) -> dict[str, Vec3]:
    """From the take-off point to the plan's zero, east, north and up, by name of the item at a bundle."""
    if takeoff_W is None:
        return {}
    known: dict[str, list[Array]] = {}
    for shot in shots:
        if shot.pose is not None and all(map(math.isfinite, shot.capture.p_WC)):
            known.setdefault(shot.capture.item, []).append(np.array(shot.capture.p_WC) - takeoff_W - shot.pose.p_W)
    medians = {name: np.median(offsets, axis=0).tolist() for name, offsets in known.items()}
    return {name: (east, north, up) for name, (east, north, up) in medians.items()}


def _origin(position: Vec3) -> Origin:
    return Origin(latitude_deg=position[0], longitude_deg=position[1], altitude_m=position[2])


def headings(pose: CameraPose, origin: Origin | None) -> tuple[float | None, float]:
    """Compass heading and elevation of the optical axis [°]; no heading where it is vertical or the origin unknown."""
    x, y, z = pose.R_WC[:, 2]
    level = math.hypot(x, y) > LEVEL_SINE
    heading = compass_deg(math.atan2(y, x)) if origin is not None and level else None
    return heading, math.degrees(math.asin(max(-1.0, min(1.0, float(z)))))


def position(p_plan: Sequence[float], origin: Origin) -> list[float]:
    """Longitude, latitude, altitude, as GeoJSON has them."""
    latitude, longitude, altitude = geographic((float(p_plan[0]), float(p_plan[1]), float(p_plan[2])), origin)
    return [round(longitude, DEGREES), round(latitude, DEGREES), round(altitude, MILLIMETRES)]


def utc_text(utc_s: float | None) -> str:
    """ISO 8601 with milliseconds; "" unknown."""
    if utc_s is None:
        return ""
    return (
        datetime.datetime.fromtimestamp(utc_s, datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


# --- CSV ------------------------------------------------------------------------------------------------------------


def photograph_row(entry: Listed, origin: Origin | None, flights: Sequence[str]) -> Row:
    """The facts of one photograph; empty where unknown."""
    row: Row = {
        "id": "" if entry.shot is None else entry.shot.capture.id,
        "item": entry.item.name,
        "row": entry.place[0],
        "column": entry.place[1],
        "state": entry.state,
        "attempts": entry.attempts,
        "reason": "" if entry.shot is None else entry.shot.capture.reason,
        "file": entry.file,
        "log": "" if entry.shot is None else flights[entry.shot.flight],
        "time_utc": "" if entry.shot is None else utc_text(entry.shot.utc_s),
    }
    names = ("latitude_deg", "longitude_deg", "altitude_m", "heading_deg", "elevation_deg")
    pose = None if entry.shot is None else entry.shot.pose
    row |= dict.fromkeys((*names, "x_m", "y_m", "z_m", "q_w", "q_x", "q_y", "q_z"), "")
    if pose is not None:
        row |= dict(zip(("x_m", "y_m", "z_m"), np.round(pose.p_W, 4).tolist(), strict=True))
        row |= dict(zip(("q_w", "q_x", "q_y", "q_z"), np.round(quat_from_matrix(pose.R_WC), 6).tolist(), strict=True))
        heading, elevation = headings(pose, origin)
        row |= {"heading_deg": _shown(heading, 2), "elevation_deg": _shown(elevation, 2)}
        if origin is not None:
            longitude, latitude, altitude = position(pose.p_W.tolist(), origin)
            row |= {"latitude_deg": latitude, "longitude_deg": longitude, "altitude_m": altitude}
    if entry.shot is None:
        numbers = dict.fromkeys(
            ("gsd_mm_px", "blur_px", "position_std_m", "attitude_std_deg", "bundle", "pose_source"), ""
        )
        return row | numbers
    capture = entry.shot.capture
    return row | {
        "gsd_mm_px": _shown(entry.gsd_m * 1e3, 3),
        "blur_px": _shown(capture.blur_px, 3),
        "position_std_m": _shown(capture.position_std_m, 4),
        "attitude_std_deg": _shown(math.degrees(capture.attitude_std_rad), 3),
        "bundle": capture.bundle,
        "pose_source": pose_source(entry.shot.adjusted),
    }


def _shown(value: float | None, digits: int) -> float | str:
    return "" if value is None or not math.isfinite(value) else round(value, digits)


def surface_row(result: SurfaceResult) -> Row:
    """The figures of one surface."""
    return {
        "surface": result.item.name,
        "area_m2": round(result.area_m2, 3),
        "planned": result.planned,
        "taken": result.taken,
        "blurred": result.blurred,
        "missing": len(result.missing),
        "refused_or_lost": result.refused,
        "coverage": round(result.coverage, 5),
        "gsd_limit_mm_px": result.item.gsd_max_m * 1e3,
        "gsd_median_mm_px": _shown(result.gsd_median_mm_px, 4),
        "gsd_p95_mm_px": _shown(result.gsd_p95_mm_px, 4),
        "overlap_along": _shown(result.overlap_along, 4),
        "overlap_between": _shown(result.overlap_between, 4),
        "gaps": len(result.gaps),
    }


def gap_row(gap: Gap, origin: Origin | None) -> Row:
    """Place and size of one gap."""
    place = ["", "", ""] if origin is None else position(gap.p_plan, origin)
    return {
        "surface": gap.surface,
        "u_m": round(gap.centre_uv[0], 3),
        "v_m": round(gap.centre_uv[1], 3),
        "width_m": round(gap.size_m[0], 3),
        "height_m": round(gap.size_m[1], 3),
        "area_m2": round(gap.area_m2, 4),
        "cause": gap_cause(gap),
        "missing_photographs": "; ".join(f"row {row} column {column}" for row, column in gap.missing),
        "latitude_deg": place[1],
        "longitude_deg": place[0],
        "altitude_m": place[2],
    }


def gap_cause(gap: Gap) -> str:
    """Why it is one."""
    if gap.coarse:
        return "photographed with too large a GSD"
    return "no sharp photograph" if gap.missing else "between the photographs"


def csv_text(rows: Sequence[Row]) -> str:
    """Rows with the same keys as CSV with a heading (RFC 4180); "" without rows."""
    if not rows:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


# --- GeoJSON --------------------------------------------------------------------------------------------------------


def geojson(
    plan: FlownPlan,
    entries: Sequence[Listed],
    results: Sequence[SurfaceResult],
    origins: Mapping[str, Origin],
    flights: Sequence[str],
) -> bytes:
    """Cameras, footprints, missing photographs and gaps (RFC 7946) of the items with an origin; properties as in the CSV.

    A footprint on a steep surface has no area on a map: it is the line of its lower edge.
    """
    features: list[Feature] = []
    camera = plan.planning.camera
    for entry in entries:
        if (origin := origins.get(entry.item.name)) is None:
            continue
        facts = photograph_row(entry, origin, flights)
        pose = None if entry.shot is None else entry.shot.pose
        if entry.state == "missing" or pose is None:
            planned = entry.item.planned[entry.place].pose
            kind = "missing" if entry.state == "missing" else "without_pose"
            features.append(_feature(kind, "Point", position(planned.p_W.tolist(), origin), facts))
            continue
        features.append(_feature("camera", "Point", position(pose.p_W.tolist(), origin), facts))
        if entry.item.surface is not None and entry.shot is not None and entry.shot.format_px is None:
            features += _footprint(camera, entry.item.surface, pose, entry, origin, facts)
    features += [
        _feature("gap", "Point", position(gap.p_plan, origin), gap_row(gap, origin))
        for result in results
        if (origin := origins.get(result.item.name)) is not None
        for gap in result.gaps
    ]
    return msgspec.json.format(msgspec.json.encode({"type": "FeatureCollection", "features": features}), indent=1)


def _footprint(
    camera: PayloadCamera, surface: Surface, pose: CameraPose, entry: Listed, origin: Origin, facts: Row
) -> list[Feature]:
    planned_uv = entry.item.planned[entry.place].uv
    edge = outline(camera, surface, pose, planned_uv[0] if planned_uv is not None else 0.0)
    if len(edge) < 3:
        return []
    uv = np.array(edge)
    points = surface.points(uv)
    middle = surface.points(uv.mean(axis=0)[None, :])[0]
    found = [_feature("footprint_centre", "Point", position(middle.tolist(), origin), facts)]
    x, y = points[:, 0], points[:, 1]
    area = 0.5 * float(x @ np.roll(y, -1) - y @ np.roll(x, -1))
    if abs(area) > FLAT_M2:
        ring = points if area > 0 else points[::-1]  # RFC 7946: anticlockwise
        corners = [position(p, origin) for p in ring.tolist()]
        return [*found, _feature("footprint", "Polygon", [[*corners, corners[0]]], facts)]
    low, high = uv.min(axis=0), uv.max(axis=0)
    count = 2 if surface.plane else 17
    line = np.column_stack([np.linspace(low[0], high[0], count), np.full(count, low[1])])
    return [
        *found,
        _feature("footprint", "LineString", [position(p, origin) for p in surface.points(line).tolist()], facts),
    ]


def _feature(kind: str, geometry: str, coordinates: list[Any], facts: Row) -> Feature:
    properties = {"kind": kind, **{key: None if value == "" else value for key, value in facts.items()}}
    return {
        "type": "Feature",
        "geometry": {"type": geometry, "coordinates": coordinates},
        "properties": properties,
    }

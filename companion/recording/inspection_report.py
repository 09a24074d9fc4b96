"""The report of an inspection: a folder that opens in a browser without a network, from the logs of one plan.

index.html        the page
inspection.js     its data; a script, because a page opened as a file may not read other files
photographs/      copies of the photographs, byte for byte
previews/         the same, small
tiles/            the mosaic of each surface
*.csv, *.geojson  the same figures for other programs
report.json       its flights and photographs, for the report after it
"""

import math
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import cv2
import msgspec
import numpy as np

from companion.core.arrays import Image8
from companion.core.config import ConfigError
from companion.core.messages import MissionStatus
from companion.core.refined_poses import RefinedPhotograph
from companion.planning.camera import PayloadCamera
from companion.planning.sections import Origin
from companion.recording import series as sr
from companion.recording.inspection import (
    FlownPlan,
    InspectedItem,
    Shot,
    ShotKey,
    best_shots,
    plan_difference,
    plan_of_log,
    shots_of,
    utc_offset_of,
)
from companion.recording.inspection_figures import Gap, SurfaceResult, Totals, surface_results, totals
from companion.recording.inspection_files import FoundFiles, find_files, photograph_name
from companion.recording.inspection_former import (
    DATA,
    FOLDER,
    FORMER,
    PAGE,
    PHOTOGRAPHS,
    UNFINISHED,
    ReportedFlight,
    check_replaceable,
    flights_of,
    photographs_in,
    recover,
    reports_in,
    retire,
    write_content,
)
from companion.recording.inspection_mosaic import (
    TILE_PX,
    Pictures,
    Placed,
    Pyramid,
    decoded,
    pixel_size_m,
    write_pyramid,
)
from companion.recording.inspection_surface import outline
from companion.recording.inspection_tables import (
    Listed,
    csv_text,
    gap_cause,
    gap_row,
    geojson,
    headings,
    listed,
    origins_of,
    photograph_row,
    position,
    surface_row,
    utc_text,
)
from companion.recording.inspection_takeoff import TakeOff, take_off_of
from companion.recording.log import Log, LogError
from companion.recording.pages import page_environment

TEMPLATE = "inspection_report.html.j2"
FORMAT_SAME = 0.01  # of the ratio of width to height: a picture of 16:9 differs from one of 3:2 by 18 %
PREVIEW_PX = 960  # width
PREVIEW_QUALITY = 82
# GSD map: colours from the finest to the limit, and beyond it (red, green, blue).
FINE, LIMIT, BEYOND = (22, 94, 112), (226, 226, 160), (205, 110, 70)
MAP_PX = 1200  # longer side of a GSD map at most
Say = Callable[[str], object]


class FlightFacts(NamedTuple):
    """One log of the report."""

    name: str
    start: str  # UTC
    cause: str  # why the mission ended early, "" when it did not


class FlownInspection(NamedTuple):
    """The logs of one plan, read."""

    plan: FlownPlan
    shots: list[Shot]
    logs: list[Log]
    take_offs: list[TakeOff]  # by the number of the flight


class KeptPicture(NamedTuple):
    """A photograph in the folder of the report."""

    file: str  # inside the folder
    width_px: int
    height_px: int


class InspectionReport(NamedTuple):
    """What was written."""

    page: Path
    totals: Totals
    missing_files: list[str]
    notes: list[str]


def read_inspection(
    logs: Sequence[Log], poses: Sequence[Sequence[RefinedPhotograph]] | None = None
) -> FlownInspection | None:
    """The inspection of one or more flights of one plan; None: none of the logs has one.

    poses: of photographs, found after the flight, for each log; None: as taken in flight.
    Raises `LogError` when a log has another plan than the first, or none, or cannot be read.
    """
    plans = [(log, plan_of_log(log)) for log in logs]
    if all(plan is None for _, plan in plans):
        return None
    shots: list[Shot] = []
    first_log, first = plans[0]
    for flight, (log, plan) in enumerate(plans):
        if plan is None or first is None:
            without = log if plan is None else first_log
            raise LogError(f"{without.path}: has no inspection: a report is made of flights of one plan")
        if why := plan_difference(first, plan):
            raise LogError(f"{log.path}: is not a flight of the plan of {first_log.path.name}: {why}")
        # Where the first plan has the bundles: its surfaces stand there, and those of a newer survey beside them.
        placed = first._replace(satellites=plan.satellites)
        shots += shots_of(log, placed, flight, _utc_offset_s(log), () if poses is None else poses[flight])
    assert first is not None
    take_offs = [take_off_of(log, plan.satellites) for log, plan in plans if plan is not None]
    return FlownInspection(first, shots, list(logs), take_offs)


def _utc_offset_s(log: Log) -> float | None:
    """UTC minus companion time, as in the photographs' tags; else by the clock at the start of the log; None: unknown."""
    corrected_s, offset_ns = utc_offset_of(log), log.clock_offset_ns()
    if math.isfinite(corrected_s):
        return corrected_s
    return offset_ns * 1e-9 if offset_ns else None


# --- writing ----------------------------------------------------------------------------------------------------------


def write_inspection_report(
    inspection: FlownInspection,
    out_dir: Path,
    folders: Sequence[Path] = (),
    say: Say = lambda line: None,
    replace: bool = False,
) -> InspectionReport:
    """Write the folder `FOLDER` into another one; an earlier report there is replaced once this one is whole.

    Photographs that are found nowhere else are taken from the earlier report. It is kept under another name when it holds
    one that this report lacks; a note says so.
    folders: where to look for photographs besides the places that the log names. say: called with lines on the progress.
    replace: also a report of flights that this one does not have.
    Raises `ConfigError` when it cannot be written.
    """
    folder, unfinished, former = out_dir / FOLDER, out_dir / UNFINISHED, out_dir / FORMER
    flights = flights_of(inspection.logs, flight_names(inspection.logs))
    try:
        kept = [recover(out_dir)]
        check_replaceable(folder, flights, replace)
        unfinished.mkdir(parents=True)
        try:
            report = _write(inspection, unfinished, folders, reports_in(out_dir), flights, say)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        if os.path.lexists(folder):
            os.rename(folder, former)
        os.rename(unfinished, folder)
        kept.append(retire(former, folder))
    except OSError as error:
        raise ConfigError(f"{error.filename or folder}: report cannot be written: {error.strerror}") from None
    return report._replace(page=folder / PAGE, notes=[*report.notes, *filter(None, kept)])


def _write(
    inspection: FlownInspection,
    folder: Path,
    folders: Sequence[Path],
    reports: Sequence[Path],
    reported: Sequence[ReportedFlight],
    say: Say,
) -> InspectionReport:
    """reports: the earlier ones, whose folders are not searched; reported: the flights of this one."""
    plan, camera = inspection.plan, inspection.plan.planning.camera
    logs = [log.path for log in inspection.logs]
    former = photographs_in(reports, reported)
    files = find_files(inspection.shots, logs, folders, [folder, *reports], former)
    kept = _photographs(inspection.shots, files, folder, say)
    inspection = inspection._replace(
        shots=[_with_format(shot, kept.get(shot.key), camera) for shot in inspection.shots]
    )
    shots = inspection.shots
    unreadable = [
        f"{photograph_name(shot.capture)}: {files.paths[shot.key]}: cannot be opened as a picture"
        for shot in shots
        if shot.key in files.paths and shot.key not in kept
    ]
    missing = [*files.missing, *unreadable]
    other_formats = [_format_line(shot, kept[shot.key]) for shot in shots if shot.format_px is not None]
    results = surface_results(plan, shots)
    all_ = totals(plan, shots, results)
    flights = flight_names(inspection.logs)
    entries = listed(plan, shots, {key: picture.file for key, picture in kept.items()})
    origins = origins_of(plan, shots, inspection.take_offs)
    notes = _notes(inspection, origins, flights)
    surfaces = []
    for number, result in enumerate(results):
        say(f"mosaic of '{result.item.name}'")
        pyramid = _mosaic(inspection, result.item, kept, folder, folder / "tiles" / str(number))
        scale = _gsd_map(result, folder / f"gsd_{number}.png")
        surfaces.append(_surface_data(plan, number, result, pyramid, scale))
    photographs = [_photograph_data(plan, entry, results, origins.get(entry.item.name), flights) for entry in entries]
    data = {
        "tile": TILE_PX,
        "surfaces": surfaces,
        "photographs": photographs,
    }
    script = b"window.INSPECTION = " + msgspec.json.encode(data) + b";\n"
    (folder / DATA).write_bytes(script)
    _tables(folder, plan, entries, results, origins, flights)
    write_content(folder, plan.name, reported, {key: picture.file for key, picture in kept.items()})
    page = folder / PAGE
    html = page_environment().get_template(TEMPLATE).render(
        plan=plan,
        totals=all_,
        results=results,
        flights=[_flight(log, name) for log, name in zip(inspection.logs, flights, strict=True)],
        gaps=[(number, gap, gap_cause(gap)) for number, result in enumerate(results) for gap in result.gaps],
        entries=list(enumerate(entries)),
        geographic=bool(origins),
        missing_files=missing,
        missing_count=files.not_found + len(unreadable),
        other_formats=other_formats,
        camera=camera,
        notes=notes,
        fine=FINE,
        limit=LIMIT,
        simulated=any(shot.true_pose is not None for shot in shots),
        problems=[problem for log in inspection.logs for problem in log.problems()],
    )  # fmt: skip
    page.write_text(html, encoding="utf-8")
    return InspectionReport(page, all_, missing, notes)


def _photographs(shots: Sequence[Shot], files: FoundFiles, folder: Path, say: Say) -> dict[ShotKey, KeptPicture]:
    """Copy the photographs that can be decoded into the folder, with their previews.

    A copy is what was decoded, byte for byte: a file that is no picture does not get into a report that is handed on, and who
    edits the copy does not edit the original.
    """
    kept: dict[ShotKey, KeptPicture] = {}
    used: set[str] = set()
    (folder / PHOTOGRAPHS).mkdir()
    (folder / "previews").mkdir()
    for count, shot in enumerate(shots, 1):
        source = files.paths.get(shot.key)
        data = b"" if source is None else _read(source)
        picture = decoded(data)
        if source is None or picture is None:
            continue
        name = _free_name(f"{shot.capture.id:04d}_{source.name}", shot.capture.id, used)
        (folder / PHOTOGRAPHS / name).write_bytes(data)
        kept[shot.key] = KeptPicture(f"{PHOTOGRAPHS}/{name}", picture.shape[1], picture.shape[0])
        (folder / _preview(kept[shot.key].file)).write_bytes(_small(picture))
        if count % 50 == 0:
            say(f"photograph {count} of {len(shots)}")
    return kept


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _with_format(shot: Shot, picture: KeptPicture | None, camera: PayloadCamera) -> Shot:
    """The shot with the size of its picture where that has not the camera file's ratio of width to height."""
    if picture is None:
        return shot
    expected_px = picture.width_px * camera.height_px / camera.width_px
    same = abs(picture.height_px - expected_px) <= max(1.0, FORMAT_SAME * expected_px)
    return shot if same else shot._replace(format_px=(picture.width_px, picture.height_px))


def _format_line(shot: Shot, picture: KeptPicture) -> str:
    return f"{photograph_name(shot.capture)}: {picture.file}: {picture.width_px} x {picture.height_px} px"


def _preview(file: str) -> str:
    return f"previews/{Path(file).stem}.jpg"


def _free_name(name: str, number: int, used: set[str]) -> str:
    """A name whose stem no other photograph has, in upper or lower case. number: of the photograph, which it begins with once."""
    path = Path(re.sub(r"[^\w.\-]+", "_", re.sub(rf"^({number:04d}_)+", rf"{number:04d}_", name)))
    copy, free = 1, path
    while free.stem.lower() in used:
        copy += 1
        free = path.with_stem(f"{path.stem}_{copy}")
    used.add(free.stem.lower())
    return free.name


def _small(picture: Image8) -> bytes:
    height, width = picture.shape[:2]
    if width > PREVIEW_PX:
        size = (PREVIEW_PX, max(1, round(height * PREVIEW_PX / width)))
        picture = cast(Image8, cv2.resize(picture, size, interpolation=cv2.INTER_AREA))
    return cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, PREVIEW_QUALITY])[1].tobytes()


def _mosaic(
    inspection: FlownInspection,
    item: InspectedItem,
    pictures: Mapping[ShotKey, KeptPicture],
    report: Path,
    folder: Path,
) -> Pyramid | None:
    """The mosaic of a surface from its photographs that have the format of the camera file; None: there is none."""
    surface, camera = item.surface, inspection.plan.planning.camera
    assert surface is not None and item.standoff_m is not None
    placed, pixel_m = [], math.inf
    for shot in inspection.shots:
        planned, picture = item.planned.get(shot.place), pictures.get(shot.key)
        if shot.capture.item != item.name or picture is None or shot.shown_pose is None or planned is None:
            continue
        near_u = planned.uv[0] if planned.uv is not None else 0.0
        placed.append(Placed(report / picture.file, shot.shown_pose, shot.sharp, near_u))
        pixel_m = min(pixel_m, camera.gsd_m(item.standoff_m) * camera.width_px / picture.width_px)
    if not placed:
        return None
    pixel_m = pixel_size_m(surface, pixel_m)
    return write_pyramid(
        folder, surface, camera, placed, pixel_m, Pictures(camera, pixel_m, camera.gsd_m(item.standoff_m))
    )


def _gsd_map(result: SurfaceResult, path: Path) -> tuple[float, float]:
    """Write the map of the best GSD; returns the ends of its scale [mm/px]. Cells without a photograph are transparent."""
    gsd_mm = result.best_gsd_m.T[::-1] * 1e3  # rows from above
    shown = np.isfinite(gsd_mm)
    limit = result.item.gsd_max_m * 1e3
    low = min(float(gsd_mm[shown].min()), limit) if shown.any() else limit
    share = np.clip((np.where(shown, gsd_mm, limit) - low) / max(limit - low, 1e-9), 0.0, 1.0)[..., None]
    colour = np.array(FINE) + share * (np.array(LIMIT) - np.array(FINE))
    colour[shown & (gsd_mm > limit * (1 + 1e-9))] = BEYOND
    image = np.dstack([colour[..., ::-1], np.where(shown, 255, 0)]).astype(np.uint8)
    path.write_bytes(cv2.imencode(".png", image)[1].tobytes())
    return low, limit


def _notes(inspection: FlownInspection, origins: Mapping[str, Origin], flights: Sequence[str]) -> list[str]:
    plan = inspection.plan
    notes = [
        f"{name}: does not show the aircraft disarmed on the ground: its take-off point is not known, and what counts from it "
        "has no place"
        for name, take_off in zip(flights, inspection.take_offs, strict=True)
        if take_off.p_W is None
    ]
    if not origins:
        notes.append("no geographic places: neither the plan nor the log has an origin, so there is no GeoJSON")
    elif plan.origin is None:
        notes.append("geographic places count from the receiver's position before the take-off")
    if origins and (without := [f"'{item.name}'" for item in plan.items if item.name not in origins]):
        notes.append(
            f"no geographic places of {', '.join(without)}: no photograph says where they are from the take-off point"
        )
    known = {(item.name, place) for item in plan.items for place in item.planned}
    foreign = {key for key in best_shots(inspection.shots) if key not in known}
    if foreign:
        notes.append(f"{len(foreign)} captures are of no photograph of the plan and are left out")
    formats = [shot for shot in inspection.shots if shot.format_px is not None]
    if formats:
        width_px, height_px = formats[0].format_px or (0, 0)
        camera = plan.planning.camera
        notes.append(
            f"{len(formats)} pictures have another format than the {camera.width_px} x {camera.height_px} px of the camera file, "
            f"such as {photograph_name(formats[0].capture)} with {width_px} x {height_px}: "
            "mosaic, coverage, GSD and overlap are without them"
        )
    if adjusted := sum(shot.taken and shot.adjusted for shot in inspection.shots):
        all_ = sum(shot.taken for shot in inspection.shots)
        notes.append(f"the poses of {adjusted} of {all_} photographs were found after the flight, by all of its images")
    unplaced = sum(shot.taken and shot.pose is None for shot in inspection.shots)
    if unplaced:
        notes.append(f"{unplaced} photographs have no pose and are not in the mosaic")
    return notes


def flight_names(logs: Sequence[Log]) -> list[str]:
    """What the report calls each log: its file, with its folder where the files have the same name."""
    names = [log.path.name for log in logs]
    return (
        names
        if len(set(names)) == len(names)
        else [f"{log.path.resolve().parent.name}/{log.path.name}" for log in logs]
    )


def _flight(log: Log, name: str) -> FlightFacts:
    statuses = sr.of(log, MissionStatus)
    start, offset_s = log.metadata.get("start_time", ""), _utc_offset_s(log)
    if offset_s is not None and log.clock_offset_ns():
        start = utc_text(float(log.metadata["start_s"]) + offset_s)
    return FlightFacts(name, start[:19].replace("T", " "), statuses[-1].cause if statuses else "")


# --- data of the page ---------------------------------------------------------------------------------------------------


def _surface_data(
    plan: FlownPlan, number: int, result: SurfaceResult, pyramid: Pyramid | None, scale: tuple[float, float]
) -> dict[str, Any]:
    return {
        "name": result.item.name,
        "size": [round(length, 4) for length in result.surface.size_m],
        "coverage": result.coverage,
        "folder": f"tiles/{number}",
        "pixel_m": None if pyramid is None else pyramid.pixel_m,
        "levels": [] if pyramid is None else pyramid.sizes,
        "tiles": [] if pyramid is None else pyramid.tiles,
        "map": f"gsd_{number}.png",
        "scale": [round(end, 3) for end in scale],
        "gaps": [_gap_data(gap) for gap in result.gaps],
    }


def _gap_data(gap: Gap) -> dict[str, Any]:
    return {
        "uv": [round(x, 3) for x in gap.centre_uv],
        "size": [round(x, 3) for x in gap.size_m],
        "area": round(gap.area_m2, 4),
        "cause": gap_cause(gap),
    }


def _photograph_data(
    plan: FlownPlan,
    entry: Listed,
    results: Sequence[SurfaceResult],
    origin: Origin | None,
    flights: Sequence[str],
) -> dict[str, Any]:
    """Facts of a photograph for the page; `edge`: its outline on the surface, empty where it has another format."""
    names = [result.item.name for result in results]
    planned = entry.item.planned[entry.place]
    shot = entry.shot
    edge: list[tuple[float, float]] = []
    if entry.item.surface is not None and (shot is None or shot.format_px is None):
        pose = shot.pose if shot is not None and shot.taken else None
        near_u = planned.uv[0] if planned.uv is not None else 0.0
        edge = outline(plan.planning.camera, entry.item.surface, pose or planned.pose, near_u)
    return {
        "surface": names.index(entry.item.name) if entry.item.name in names else -1,
        "edge": [[round(u, 3), round(v, 3)] for u, v in edge],
        "state": entry.state,
        "file": entry.file,
        "preview": _preview(entry.file) if entry.file else "",
        "title": f"{entry.item.name}, row {entry.place[0]}, column {entry.place[1]}",
        "facts": _facts(entry, origin, flights),
    }


def _facts(entry: Listed, origin: Origin | None, flights: Sequence[str]) -> list[tuple[str, str]]:
    """(name, value) of a photograph for a reader."""
    shot = entry.shot
    if shot is None:
        return [("state", "missing: it was never requested")]
    capture = shot.capture
    state = entry.state if not capture.reason else f"{entry.state}: {capture.reason}"
    facts = [("photograph", str(capture.id)), ("state", state)]
    if shot.utc_s is not None:
        facts.append(("time", utc_text(shot.utc_s)[:19].replace("T", " ") + " UTC"))
    if len(flights) > 1:
        facts.append(("flight", flights[shot.flight]))
    if entry.attempts > 1:
        facts.append(("attempts", str(entry.attempts)))
    if shot.taken:
        facts += [
            ("GSD", _value(entry.gsd_m * 1e3, "mm/px", 2)),
            ("expected blur", _value(capture.blur_px, "px", 2)),
            ("pose seen from", f"“{capture.bundle}”" if capture.bundle else "no bundle in sight"),
            ("pose", "found after the flight" if shot.adjusted else "as found in flight"),
            ("± position", _value(capture.position_std_m * 100, "cm", 1)),
            ("± attitude", _value(math.degrees(capture.attitude_std_rad), "°", 2)),
        ]
    if shot.format_px is not None:
        facts.append(("format", "{} x {} px, not that of the camera file".format(*shot.format_px)))
    if shot.taken and shot.pose is not None:
        heading, elevation = headings(shot.pose, origin)
        facts.append(("camera at", " / ".join(f"{x:.2f}" for x in shot.pose.p_W) + " m"))
        looks = "" if heading is None else f"heading {heading:.1f}°, "
        facts.append(("looks", f"{looks}elevation {elevation:.1f}°"))
        if origin is not None:
            longitude, latitude, altitude = position(shot.pose.p_W.tolist(), origin)
            facts.append(("place", f"{latitude:.7f}°, {longitude:.7f}°, {altitude:.1f} m"))
    if shot.error is not None:
        error = f"{shot.error.position_m * 100:.1f} cm, {math.degrees(shot.error.attitude_rad):.2f}°"
        facts.append(("true error", error))
    return facts


def _value(value: float, unit: str, digits: int) -> str:
    return f"{value:.{digits}f} {unit}" if math.isfinite(value) else "unknown"


def _tables(
    folder: Path,
    plan: FlownPlan,
    entries: Sequence[Listed],
    results: Sequence[SurfaceResult],
    origins: Mapping[str, Origin],
    flights: Sequence[str],
) -> None:
    rows = {
        "photographs.csv": [photograph_row(entry, origins.get(entry.item.name), flights) for entry in entries],
        "surfaces.csv": [surface_row(result) for result in results],
        "gaps.csv": [gap_row(gap, origins.get(result.item.name)) for result in results for gap in result.gaps],
    }
    for name, content in rows.items():
        (folder / name).write_text(csv_text(content), encoding="utf-8", newline="")
    if origins:
        (folder / "inspection.geojson").write_bytes(geojson(plan, entries, results, origins, flights))

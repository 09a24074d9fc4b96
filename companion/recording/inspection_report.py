"""The report of an inspection: a folder that opens in a browser without a network, from the logs of one plan.

index.html        the page
inspection.js     its data; a script, because a page opened as a file may not read other files
photographs/      the photographs, linked to the originals where the file system can, else copied
previews/         the same, small
tiles/            the mosaic of each surface
*.csv, *.geojson  the same figures for other programs
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
from companion.recording.inspection_mosaic import (
    TILE_PX,
    Pictures,
    Placed,
    Pyramid,
    pixel_size_m,
    read_picture,
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

FOLDER = "inspection"  # in the folder of the flight report
UNFINISHED, FORMER = f".{FOLDER}.part", f".{FOLDER}.old"  # beside it while it is written, and while it is replaced
PAGE, DATA = "index.html", "inspection.js"
TEMPLATE = "inspection_report.html.j2"
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


class InspectionReport(NamedTuple):
    """What was written."""

    page: Path
    totals: Totals
    missing_files: list[str]
    notes: list[str]


def read_inspection(logs: Sequence[Log]) -> FlownInspection | None:
    """The inspection of one or more flights of one plan; None: none of the logs has one.

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
        shots += shots_of(log, placed, flight, _utc_offset_s(log))
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
    inspection: FlownInspection, out_dir: Path, folders: Sequence[Path] = (), say: Say = lambda line: None
) -> InspectionReport:
    """Write the folder `FOLDER` into another one; an earlier report there is replaced once this one is whole.

    folders: where to look for photographs besides the places that the log names. say: called with lines on the progress.
    Raises `ConfigError` when it cannot be written.
    """
    folder, unfinished, former = out_dir / FOLDER, out_dir / UNFINISHED, out_dir / FORMER
    try:
        _check_replaceable(folder)
        for left in (unfinished, former):  # by a run that was interrupted
            _remove(left)
        unfinished.mkdir(parents=True)
        try:
            report = _write(inspection, unfinished, folders, (folder, unfinished), say)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        if os.path.lexists(folder):
            os.rename(folder, former)
        os.rename(unfinished, folder)
        _remove(former)
    except OSError as error:
        raise ConfigError(f"{error.filename or folder}: report cannot be written: {error.strerror}") from None
    return report._replace(page=folder / PAGE)


def _check_replaceable(folder: Path) -> None:
    """Raises `ConfigError` for a folder that is there and is no earlier report."""
    if not folder.exists():
        return
    if not (folder / DATA).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder}: exists, and is not a report of an inspection: move it away or give --out")


def _remove(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)


def _write(
    inspection: FlownInspection, folder: Path, folders: Sequence[Path], reports: Sequence[Path], say: Say
) -> InspectionReport:
    plan, shots = inspection.plan, inspection.shots
    files = find_files(shots, [log.path for log in inspection.logs], folders, reports)
    kept, widths = _photographs(inspection, files, folder, say)
    unreadable = [
        f"{photograph_name(shot.capture)}: {files.paths[shot.key]}: cannot be opened as a picture"
        for shot in shots
        if shot.key in kept and shot.key not in widths
    ]
    missing = [*files.missing, *unreadable]
    results = surface_results(plan, shots)
    all_ = totals(plan, shots, results)
    flights = flight_names(inspection.logs)
    entries = listed(plan, shots, kept)
    origins = origins_of(plan, shots, inspection.take_offs)
    notes = _notes(inspection, origins, flights)
    surfaces = []
    for number, result in enumerate(results):
        say(f"mosaic of '{result.item.name}'")
        pyramid = _mosaic(inspection, result.item, files, widths, folder / "tiles" / str(number))
        scale = _gsd_map(result, folder / f"gsd_{number}.png")
        surfaces.append(_surface_data(plan, number, result, pyramid, scale))
    photographs = [
        _photograph_data(plan, entry, results, origins.get(entry.item.name), flights, entry.shot_key in widths)
        for entry in entries
    ]
    data = {
        "tile": TILE_PX,
        "surfaces": surfaces,
        "photographs": photographs,
    }
    script = b"window.INSPECTION = " + msgspec.json.encode(data) + b";\n"
    (folder / DATA).write_bytes(script)
    _tables(folder, plan, entries, results, origins, flights)
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
        notes=notes,
        fine=FINE,
        limit=LIMIT,
        simulated=any(shot.true_pose is not None for shot in shots),
        problems=[problem for log in inspection.logs for problem in log.problems()],
    )  # fmt: skip
    page.write_text(html, encoding="utf-8")
    return InspectionReport(page, all_, missing, notes)


def _photographs(
    inspection: FlownInspection, files: FoundFiles, folder: Path, say: Say
) -> tuple[dict[ShotKey, str], dict[ShotKey, int]]:
    """Put the photographs and their previews into the folder.

    Returns their names in the folder, and the width [px] of those that can be decoded.
    """
    kept: dict[ShotKey, str] = {}
    widths: dict[ShotKey, int] = {}
    used: set[str] = set()
    (folder / "photographs").mkdir()
    (folder / "previews").mkdir()
    for count, shot in enumerate(inspection.shots, 1):
        source = files.paths.get(shot.key)
        if source is None:
            continue
        name = _free_name(f"{shot.capture.id:04d}_{source.name}", used)
        _link_or_copy(source, folder / "photographs" / name)
        kept[shot.key] = f"photographs/{name}"
        picture = read_picture(source)
        if picture is not None:
            widths[shot.key] = picture.shape[1]
            (folder / _preview(kept[shot.key])).write_bytes(_small(picture))
        if count % 50 == 0:
            say(f"photograph {count} of {len(inspection.shots)}")
    return kept, widths


def _preview(file: str) -> str:
    return f"previews/{Path(file).stem}.jpg"


def _free_name(name: str, used: set[str]) -> str:
    """A name whose stem no other photograph has, in upper or lower case."""
    path = Path(re.sub(r"[^\w.\-]+", "_", name))
    number, free = 1, path
    while free.stem.lower() in used:
        number += 1
        free = path.with_stem(f"{path.stem}_{number}")
    used.add(free.stem.lower())
    return free.name


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)


def _small(picture: Image8) -> bytes:
    height, width = picture.shape[:2]
    if width > PREVIEW_PX:
        size = (PREVIEW_PX, max(1, round(height * PREVIEW_PX / width)))
        picture = cast(Image8, cv2.resize(picture, size, interpolation=cv2.INTER_AREA))
    return cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, PREVIEW_QUALITY])[1].tobytes()


def _mosaic(
    inspection: FlownInspection, item: InspectedItem, files: FoundFiles, widths: Mapping[ShotKey, int], folder: Path
) -> Pyramid | None:
    """The mosaic of a surface from its photographs that can be decoded; None: there is none."""
    surface, camera = item.surface, inspection.plan.planning.camera
    assert surface is not None and item.standoff_m is not None
    placed, pixel_m = [], math.inf
    for shot in inspection.shots:
        planned = item.planned.get(shot.place)
        if shot.capture.item != item.name or shot.key not in widths or shot.pose is None or planned is None:
            continue
        near_u = planned.uv[0] if planned.uv is not None else 0.0
        placed.append(Placed(files.paths[shot.key], shot.pose, shot.sharp, near_u))
        pixel_m = min(pixel_m, camera.gsd_m(item.standoff_m) * camera.width_px / widths[shot.key])
    if not placed:
        return None
    pixel_m = pixel_size_m(surface, pixel_m)
    pictures = Pictures(camera, pixel_m, camera.gsd_m(item.standoff_m))
    return write_pyramid(folder, surface, camera, placed, pixel_m, pictures)


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
    preview: bool,
) -> dict[str, Any]:
    """Facts of a photograph for the page; `edge`: its outline on the surface."""
    names = [result.item.name for result in results]
    planned = entry.item.planned[entry.place]
    shot = entry.shot
    edge: list[tuple[float, float]] = []
    if entry.item.surface is not None:
        pose = shot.pose if shot is not None and shot.taken else None
        near_u = planned.uv[0] if planned.uv is not None else 0.0
        edge = outline(plan.planning.camera, entry.item.surface, pose or planned.pose, near_u)
    return {
        "surface": names.index(entry.item.name) if entry.item.name in names else -1,
        "edge": [[round(u, 3), round(v, 3)] for u, v in edge],
        "state": entry.state,
        "file": entry.file,
        "preview": _preview(entry.file) if preview else "",
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
            ("± position", _value(capture.position_std_m * 100, "cm", 1)),
            ("± attitude", _value(math.degrees(capture.attitude_std_rad), "°", 2)),
        ]
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

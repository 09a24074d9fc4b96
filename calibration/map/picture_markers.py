"""The markers in the pictures of an inspection's photographs: which picture is which photograph, and where its markers' centres are.

A picture is read reduced to about `WIDTH_PX`: its 24 megapixels have more detail than a marker needs, and a JPEG is decoded smaller in a fraction of
the time.
"""

import itertools
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np

from calibration.flown_vehicle import flown_vehicle
from calibration.map.pictures import WIDTH_PX
from calibration.results import DataError
from companion.core.arrays import Array, Image8
from companion.core.messages import Capture
from companion.core.site import Site
from companion.payload.matching import MatchOptions, matched_pictures
from companion.planning.camera import PayloadCamera
from companion.recording.inspection import utc_offset_of
from companion.recording.log import Log
from companion.tracking.detection import Detection, Detector, load_detector
from companion.tracking.detectors import detector_for

REDUCED = {
    1: cv2.IMREAD_GRAYSCALE,
    2: cv2.IMREAD_REDUCED_GRAYSCALE_2,
    4: cv2.IMREAD_REDUCED_GRAYSCALE_4,
    8: cv2.IMREAD_REDUCED_GRAYSCALE_8,
}
ASPECT_TOLERANCE = 0.01  # of width over height: a picture that was reduced has rounded sides
START_OF_FRAME = frozenset(range(0xC0, 0xD0)) - {
    0xC4,
    0xC8,
    0xCC,
}  # markers of a JPEG with its size (ITU-T T.81, table B.1)
STANDALONE = frozenset((0x01, *range(0xD0, 0xD9)))  # markers without a length
LISTED = 10  # photographs that are listed


class Centre(NamedTuple):
    """The centre of a marker in a picture: its bundle, its place p_M (3,) [m] there, xy_px (2,) from the centre of the picture, in
    pixels of a picture that is `WIDTH_PX` wide."""

    bundle: str
    p_M: Array
    xy_px: Array


class PictureFolder(NamedTuple):
    """Pictures of a flight, and how they are matched with its photographs."""

    folder: Path
    match: MatchOptions = MatchOptions()


@dataclass(frozen=True)
class FoundMarkers:
    """centres: by number and attempt of the photograph; pictures: that were read; notes: what was not found or could not be read."""

    centres: Mapping[tuple[int, int], list[Centre]]
    pictures: int
    notes: list[str]


class Reduced(NamedTuple):
    """A picture, grey and reduced, and the size of the file's."""

    grey: Image8
    width: int
    height: int


def read_pictures(
    given: PictureFolder,
    flight: Log,
    captures: Sequence[Capture],
    camera: PayloadCamera,
    site: Site,
    vehicle: Path | None = None,
) -> FoundMarkers:
    """Find the markers of a site in the pictures of photographs; captures: those that are wanted.

    Raises `UserError` for a folder that does not fit the log, and `DataError` for a picture with other sides than the camera's.
    """
    taken = flight.of(Capture)
    matched = matched_pictures(given.folder, taken, given.match, utc_offset_of(flight), flight.path)
    wanted = {(c.id, c.attempt) for c in captures}
    home = {(m.family, m.id): (bundle.name, np.array(m.p_M)) for bundle in site.bundle for m in bundle.markers}
    detector = _detector(flight, vehicle, list(home))
    centres: dict[tuple[int, int], list[Centre]] = {}
    notes, empty, read = [], [], 0
    if missing := [c for c in matched.without_picture if (c.id, c.attempt) in wanted]:
        notes.append(f"{given.folder}: no picture of {listed(missing)}")
    if matched.without_photograph:
        notes.append(
            f"{given.folder}: {len(matched.without_photograph)} pictures without a photograph in the log, the first: {matched.without_photograph[0].name}"
        )
    for path, capture in matched.pairs:
        if (capture.id, capture.attempt) not in wanted:
            continue
        picture = _read(path)
        if isinstance(picture, str):
            notes.append(f"{path}: {picture}: not used")
            continue
        _check_sides(path, picture, camera)
        read += 1
        found = [
            Centre(*home[d.family, d.id], _against_centre(centre_px(d.corners_px), picture))
            for d in _once(detector.detect(picture.grey))
            if (d.family, d.id) in home
        ]
        if found:
            centres[capture.id, capture.attempt] = found
        else:
            empty.append(capture)
    if not centres:
        notes.append(f"{given.folder}: no marker of the site is in a picture: the poses are those without pictures")
    elif empty:
        notes.append(f"{given.folder}: no marker in the pictures of {listed(empty)}")
    return FoundMarkers(centres, read, notes)


def centre_px(corners_px: Array) -> Array:
    """The picture (2,) of a square's centre: where the diagonals of its corners (4, 2) intersect."""
    corners = np.column_stack([corners_px, np.ones(4)])
    diagonals = np.cross(corners[0], corners[2]), np.cross(corners[1], corners[3])
    x, y, w = np.cross(*diagonals)
    return np.array([x / w, y / w])


def jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Width and height of a JPEG by its header; None: it is none."""
    at = 2
    while data[:2] == b"\xff\xd8" and at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in START_OF_FRAME:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return (width, height) if width and height else None
        at += 1 if marker == 0xFF else 2 if marker in STANDALONE else 2 + struct.unpack_from(">H", data, at + 2)[0]
    return None


def _read(path: Path) -> Reduced | str:
    """A picture, or why it cannot be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        return error.strerror or str(error)
    size = jpeg_size(data)
    if size is None:
        return "is no JPEG"
    factor = min(REDUCED, key=lambda f: abs(math.log(size[0] / f / WIDTH_PX)))
    grey = cv2.imdecode(np.frombuffer(data, np.uint8), REDUCED[factor] | cv2.IMREAD_IGNORE_ORIENTATION)
    if grey is None or grey.ndim != 2:
        return "cannot be decoded"
    return Reduced(grey.astype(np.uint8, copy=False), *size)


def _check_sides(path: Path, picture: Reduced, camera: PayloadCamera) -> None:
    ratio = picture.width / picture.height * camera.height_px / camera.width_px
    if abs(ratio - 1) > ASPECT_TOLERANCE:
        raise DataError(
            f"{path}: {picture.width} x {picture.height} px, and the camera file has {camera.width_px} x {camera.height_px} px: name a folder "
            "with this camera's pictures, not cut and not turned"
        )


def _against_centre(px: Array, picture: Reduced) -> Array:
    """From pixels of a reduced picture, of whose top left pixel the centre is (0, 0), to pixels of `WIDTH_PX` from its centre."""
    # A decoder reduces by whole numbers and rounds the sides up: the last column may be of less than a whole pixel.
    factor = round(picture.width / picture.grey.shape[1])
    found: Array = ((px + 0.5) * factor - np.array([picture.width, picture.height]) / 2) * (WIDTH_PX / picture.width)
    return found


def _once(detections: Sequence[Detection]) -> Iterator[Detection]:
    """Without markers that are in the picture twice: one of the two is a mirror image or a copy."""
    ordered = sorted(detections, key=lambda d: (d.family, d.id))
    for _, group in itertools.groupby(ordered, key=lambda d: (d.family, d.id)):
        same = list(group)
        if len(same) == 1:
            yield same[0]


def _detector(flight: Log, vehicle_file: Path | None, markers: Sequence[tuple[str, int]]) -> Detector:
    """The detector with which the flight was flown."""
    vehicle = flown_vehicle(flight, vehicle_file).vehicle
    if vehicle is not None and vehicle.tracking.detector is not None:
        return load_detector(vehicle.tracking.detector, f"{flight.path}: vehicle file in the log")
    return detector_for(markers)


def listed(captures: Sequence[Capture]) -> str:
    """Photographs by their numbers, the first `LISTED`."""
    numbers = ", ".join(str(c.id) for c in captures[:LISTED])
    return f"photograph{'s' if len(captures) > 1 else ''} {numbers}" + (" …" if len(captures) > LISTED else "")

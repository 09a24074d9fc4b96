"""The built-in detectors: a grey image in, markers with their four corners out (conventions: see `detection`).

Every detector finds squares and reads their cells. The sub-pixel corners come from the same refinement (`edges`) on the
image at full resolution, so a search in a part of the image or in a smaller copy costs no accuracy. Square markers that
were seen in the last image are followed without a search (see `follow`).
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import cv2
import numpy as np
import stag
from cv2.typing import MatLike
from numpy.typing import NDArray

from companion.core.arrays import Array, Image8
from companion.core.config import ConfigError
from companion.tracking.decode import SecondDecoder
from companion.tracking.detection import Detection, Detector, Region, check_image
from companion.tracking.edges import refine_corners
from companion.tracking.families import CORRECTION_RATE, SquareFamily, check_apart, square_family, stag_library
from companion.tracking.follow import Follower

MIN_PERIMETER_PX = 36.0  # smaller squares have cells of about one pixel and are unreadable
THRESHOLD_WINDOWS_PX = (5, 23, 9)  # adaptive threshold: smallest, largest, step
MIN_CORNERS_SEEN = 4  # of a marker, by its edges
MIN_IMAGE_PX = 24  # a smaller image or region holds no readable marker
SECOND_DECODINGS = 64  # squares decoded again per image, largest first: bounds the time in clutter
# Squares nearer than this, of their size, count as one, and the outer one is read: the border's two sides then give one
# square. In a reduced copy markers are large, and their white margin must not count as the same square.
NEAR_SQUARES, NEAR_SQUARES_REDUCED = 0.125, 0.02
SAME_MARKER = 0.5  # of its side: two detections of one id nearer than this are the same marker

Wanted = Mapping[str, AbstractSet[int] | None]  # ids to look for, by family; None: all ids
Found = list[tuple[str, int, NDArray[np.floating]]]  # family, id, corners (4, 2) [px]


class SquareDetector:
    """ArUco, AprilTag and the user's own dictionaries: squares with a grid of cells, one pass for all families.

    Markers of other ids than the wanted ones are not reported. second_decoders: one for each family; `Follower` uses
    them too. Raises `ConfigError` for an id that a family does not have, and for two markers that one print can be.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._families: list[SquareFamily] = [square_family(name) for name in wanted]
        self._wanted = list(wanted.values())
        self._ids: list[list[int]] = []  # by row of each family's reduced dictionary
        dictionaries = []
        for family, ids in zip(self._families, self._wanted, strict=True):
            full = family.dictionary
            count = full.bytesList.shape[0]
            if ids is not None and (bad := [i for i in ids if not 0 <= i < count]):
                raise ConfigError(f"marker {family.name} {min(bad)}: this family has ids 0 to {count - 1}")
            # Most of OpenCV's time goes into comparing each square with each code of the dictionary. The codes of one family
            # are so far apart that another marker of it does not match a wanted code when its own code is left out.
            self._ids.append(list(range(count)) if ids is None else sorted(ids))
            rows = np.ascontiguousarray(full.bytesList[self._ids[-1]])
            dictionaries.append(cv2.aruco.Dictionary(rows, full.markerSize, full.maxCorrectionBits))
        check_apart([(f, sorted(i)) for f, i in zip(self._families, self._wanted, strict=True) if i is not None])
        self.second_decoders = [SecondDecoder(f, i) for f, i in zip(self._families, self._wanted, strict=True)]
        parameters = cv2.aruco.DetectorParameters()
        parameters.errorCorrectionRate = CORRECTION_RATE
        parameters.cornerRefinementMethod = cv2.aruco.CORNER_REFINE_NONE
        low, high, step = THRESHOLD_WINDOWS_PX
        parameters.adaptiveThreshWinSizeMin = low
        parameters.adaptiveThreshWinSizeMax = high
        parameters.adaptiveThreshWinSizeStep = step
        parameters.minDistanceToBorder = 1
        parameters.perspectiveRemovePixelPerCell = 8
        self._parameters = parameters
        self._detector = cv2.aruco.ArucoDetector(dictionaries, parameters)

    def detect(self, gray: Image8, region: Region | None = None, scale: float = 1.0) -> list[Detection]:
        """See `Detector.detect`."""
        part, x, y = _cut(check_image(gray), region)
        if min(part.shape) < MIN_IMAGE_PX:
            return []
        small, fx, fy = _reduce(part, scale)
        self._parameters.minMarkerPerimeterRate = MIN_PERIMETER_PX / max(small.shape)
        self._parameters.minMarkerDistanceRate = NEAR_SQUARES if scale >= 1.0 else NEAR_SQUARES_REDUCED
        self._detector.setDetectorParameters(self._parameters)
        quads, ids, rejected, which = self._detector.detectMarkersMultiDict(small)
        found: Found = []
        for quad, row, w in zip(quads, np.ravel(ids), np.ravel(which), strict=True) if len(quads) else ():
            family = self._families[int(w)]
            printed = np.roll(np.asarray(quad, dtype=np.float32).reshape(4, 2), -family.turns, axis=0)
            found.append((family.name, self._ids[int(w)][int(row)], printed))
        found += self._decode_again(small, rejected, found)
        if not found:
            return []
        corners = (np.array([f[2] for f in found], dtype=np.float64) + 0.5) / (fx, fy) - 0.5 + (x, y)
        return _refined(gray, [(f[0], f[1]) for f in found], corners, 0.0 if scale >= 1.0 else 0.7 / scale)

    def _decode_again(self, gray: Image8, rejected: Sequence[MatLike], found: Found) -> Found:
        """Markers among the squares that OpenCV did not decode; none when no wanted marker is missing."""
        have = {(name, id) for name, id, _ in found}
        missing = [
            decoder
            for decoder, ids in zip(self.second_decoders, self._wanted, strict=True)
            if ids is None or any((decoder.family.name, i) not in have for i in ids)
        ]
        if not missing or len(rejected) == 0:
            return []
        squares = np.array([r.reshape(4, 2) for r in rejected], dtype=np.float64)
        diagonals = squares[:, 2] - squares[:, 0], squares[:, 3] - squares[:, 1]
        area = 0.5 * np.abs(diagonals[0][:, 0] * diagonals[1][:, 1] - diagonals[0][:, 1] * diagonals[1][:, 0])
        squares, _ = refine_corners(gray, squares[np.argsort(-area)[:SECOND_DECODINGS]])
        return [(d.family.name, id, corners) for d in missing for id, corners in d.read(gray, squares)]


class STagDetector:
    """STag markers of one library (M. Kalaitzakis et al. use them; Benligiray et al., arXiv:1707.06292)."""

    def __init__(self, name: str, ids: AbstractSet[int] | None) -> None:
        library = stag_library(name)
        if library is None:
            raise ConfigError(f"marker family '{name}' is not a STag library")
        self._name, self._library, self._ids = name, library, ids

    def detect(self, gray: Image8, region: Region | None = None, scale: float = 1.0) -> list[Detection]:
        """See `Detector.detect`."""
        part, x, y = _cut(check_image(gray), region)
        if min(part.shape) < MIN_IMAGE_PX:
            return []
        small, fx, fy = _reduce(part, scale)
        quads, ids, _ = stag.detectMarkers(np.ascontiguousarray(small), self._library)
        wanted = [(q, int(i)) for q, i in zip(quads, np.ravel(ids), strict=True) if self._ids is None or i in self._ids]
        if not wanted:
            return []
        corners = (np.array([np.reshape(q, (4, 2)) for q, _ in wanted], float) + 0.5) / (fx, fy) - 0.5 + (x, y)
        names = [(self._name, i) for _, i in wanted]
        return _refined(gray, names, corners, 0.5 if scale >= 1.0 else 0.7 / scale)


class DetectorSet:
    """The built-in detectors that a set of markers needs."""

    def __init__(self, wanted: Wanted) -> None:
        squares = {name: ids for name, ids in wanted.items() if stag_library(name) is None}
        search = SquareDetector(squares) if squares else None
        self._detectors: list[Detector] = [] if search is None else [Follower(search, search.second_decoders, squares)]
        self._detectors += [STagDetector(n, ids) for n, ids in wanted.items() if stag_library(n) is not None]

    def detect(self, gray: Image8, region: Region | None = None, scale: float = 1.0) -> list[Detection]:
        """See `Detector.detect`."""
        return [d for detector in self._detectors for d in detector.detect(gray, region, scale)]


def detector_for(markers: Iterable[tuple[str, int]]) -> DetectorSet:
    """Detector of exactly these (family, id); raises `ConfigError` for an unknown family or an id outside of it."""
    wanted: dict[str, set[int]] = {}
    for family, id in markers:
        wanted.setdefault(family, set()).add(id)
    return DetectorSet(wanted)


def _cut(gray: Image8, region: Region | None) -> tuple[Image8, int, int]:
    """The region of the image, clipped to it, and its top left pixel."""
    if region is None:
        return gray, 0, 0
    x, y, w, h = region
    x0, y0 = max(x, 0), max(y, 0)
    return gray[y0 : max(y + h, y0), x0 : max(x + w, x0)], x0, y0


def _reduce(gray: Image8, scale: float) -> tuple[Image8, float, float]:
    """A reduced copy and its real factors, which differ from `scale` by rounding."""
    if scale >= 1.0:
        return gray, 1.0, 1.0
    h, w = gray.shape
    size = max(round(w * scale), MIN_IMAGE_PX), max(round(h * scale), MIN_IMAGE_PX)
    small = np.asarray(cv2.resize(gray, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
    return small, size[0] / w, size[1] / h


def _refined(gray: Image8, names: list[tuple[str, int]], corners: Array, off_px: float) -> list[Detection]:
    """The markers whose black edges were seen; any other is cut off, hidden, or an inner square of a marker."""
    refined, seen = refine_corners(gray, corners, off_px)
    found = zip(names, refined, seen.sum(1) >= MIN_CORNERS_SEEN, strict=True)
    return _unique([Detection(name, id, c) for (name, id), c, good in found if good])


def _unique(detections: list[Detection]) -> list[Detection]:
    """Without the second detection of the same marker; the same id at another place in the image stays."""
    kept: list[Detection] = []
    for d in detections:
        side = np.linalg.norm(d.corners_px[1] - d.corners_px[0])
        centre = d.corners_px.mean(0)
        twin = any(
            k.id == d.id and k.family == d.family and np.linalg.norm(k.corners_px.mean(0) - centre) < SAME_MARKER * side
            for k in kept
        )
        if not twin:
            kept.append(d)
    return kept

"""A board in an image: its numbered corners, how sharp they are, and why an image cannot be used.

Large photographs are searched in a reduced copy (the markers' thresholds and the chessboard's templates are made for
images of about a megapixel) and the corners then refined in the image itself, so nothing is lost. Marker corners come
from their edges, by the same code that refines them in flight (`companion.tracking.edges`).
"""

from dataclasses import dataclass

import cv2
import numpy as np

from calibration.camera.board import DICTIONARIES, Board, Charuco, Grid
from companion.core.arrays import Array
from companion.tracking.edges import refine_corners

SEARCH_PX = 1600  # longest side in which a board is searched first
SMALLEST_PX = 64  # a smaller image shows no board
MIN_CORNERS = 8  # of a view; six unknowns of its pose leave little to learn from fewer
MIN_SPREAD = 0.05  # second over first extent of the corners seen: less is a line, whose pose is open
SHAPE_LIMIT = 0.03  # of the board's size in the image: corners farther from any smooth picture of the board
SMOOTH_CORNERS = 20  # from here on a cubic polynomial may stand for lens and perspective together
WINDOW_PX = (2, 11)  # half window of the sub-pixel search round a chessboard corner
SUBPIX = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 60, 1e-3)
SHARPNESS_CORNERS = 60  # so many, evenly taken, are looked at for blur
SHARPNESS_REACH = 0.35  # of the distance to the next corner
SHARPNESS_REACH_PX = (3.0, 30.0)
HINT_IMAGES, HINT_MARKERS = 3, 4  # so many are searched for other dictionaries; fewer markers may be chance


@dataclass(frozen=True)
class View:
    """The corners of a board in one image.

    numbers (n,): which of `Board.points_m`; pixels (n, 2): where; blur_px: standard deviation of the blur across edges,
    in the worse of the board's two directions; problem: why the view is of no use, "" if it is.
    """

    name: str
    numbers: Array
    pixels: Array
    blur_px: float
    problem: str = ""


class BoardDetector:
    """Finds one board in grey images."""

    def __init__(self, board: Board) -> None:
        self.board = board
        parameters = cv2.aruco.DetectorParameters()
        parameters.minMarkerPerimeterRate = 0.01
        parameters.adaptiveThreshWinSizeMin, parameters.adaptiveThreshWinSizeMax = 3, 53
        parameters.minDistanceToBorder = 1
        if isinstance(board.layout, Grid):
            self._markers = cv2.aruco.ArucoDetector(board.dictionary, parameters)
        elif isinstance(board.layout, Charuco):
            self._charuco = [_charuco_detector(board, False, parameters)]
            if board.layout.rows % 2 == 0:  # before OpenCV 4.6 such boards began with a white square
                self._charuco.append(_charuco_detector(board, True, parameters))

    def view(self, gray: Array, name: str) -> View:
        """The board in an image (h, w) uint8; never raises for what the image shows."""
        if min(gray.shape) < SMALLEST_PX:
            return _unusable(name, "the image is too small")
        numbers, pixels = self._search(gray)
        if len(numbers) < MIN_CORNERS:
            if not len(numbers):
                return _unusable(name, "board not found")
            return _unusable(name, f"too few corners ({len(numbers)} of {len(self.board.points_m)})", numbers, pixels)
        if is_line(self.board.points_m[numbers]):
            return _unusable(name, f"its {len(numbers)} corners lie on one line", numbers, pixels)
        error = shape_error(self.board.points_m[numbers], pixels)
        if error > SHAPE_LIMIT:
            text = f"not this board: its corners are {100 * error:.0f} % of its size from where they belong"
            return _unusable(name, text, numbers, pixels)
        return View(name, numbers, pixels, self._blur_px(gray, numbers, pixels))

    def _search(self, gray: Array) -> tuple[Array, Array]:
        """Numbers and refined pixels of the corners; empty when there are none."""
        scale = min(1.0, SEARCH_PX / max(gray.shape))
        if not self.board.of_markers:  # whole or not at all
            trials = ((scale, False), (0.5 * scale, False), (scale, True))
            return next(
                (found for s, hard in trials if len((found := self._find_chessboard(gray, s, hard))[0])), _NOTHING
            )
        find = self._find_grid if isinstance(self.board.layout, Grid) else self._find_charuco
        best = find(gray, scale)
        enough = max(MIN_CORNERS, len(self.board.points_m) // 2)
        for other in {1.0, 0.5 * scale} - {scale}:  # a tiny board in a large picture; a large or blurred one
            if len(best[0]) < enough:
                best = max(best, find(gray, other), key=lambda found: len(found[0]))
        if len(best[0]) < MIN_CORNERS:  # little light
            bright = cv2.createCLAHE(4.0, (8, 8)).apply(gray)
            best = max(best, find(bright, scale), key=lambda found: len(found[0]))
        return best

    def _find_grid(self, gray: Array, scale: float) -> tuple[Array, Array]:
        small, factor = _reduced(gray, scale)
        quads, ids, rejected = self._markers.detectMarkers(small)
        if ids is None or not len(ids):
            return _NOTHING
        quads, ids, _, _ = self._markers.refineDetectedMarkers(small, self.board.opencv, quads, ids, rejected)
        ids = np.ravel(ids)
        wanted, first = self.board.marker_ids, self.board.layout.first_id
        keep = [i for i, id in enumerate(ids) if int(id) in wanted and np.count_nonzero(ids == id) == 1]
        if not keep:
            return _NOTHING
        corners = (np.array([quads[i].reshape(4, 2) for i in keep], float) + 0.5) * factor - 0.5
        corners, seen = refine_corners(gray, corners, 0.0 if scale >= 1.0 else 0.7 / scale)
        numbers = 4 * (ids[keep, None] - first) + np.arange(4)
        return numbers[seen], corners[seen]

    def _find_charuco(self, gray: Array, scale: float) -> tuple[Array, Array]:
        small, factor = _reduced(gray, scale)
        best = _NOTHING
        for detector in self._charuco:
            corners, ids, _, _ = detector.detectBoard(small)
            if ids is not None and len(ids) > len(best[0]):
                best = np.ravel(ids).astype(int), corners.reshape(-1, 2).astype(float)
        if not len(best[0]):
            return _NOTHING
        numbers, pixels = best[0], (best[1] + 0.5) * factor - 0.5
        layout = self.board.layout
        # the window must not reach the marker inside the square
        return numbers, self._subpixel(gray, numbers, pixels, 0.45 * (layout.square_m - layout.marker_m))

    def _find_chessboard(self, gray: Array, scale: float, hard: bool) -> tuple[Array, Array]:
        """hard: with every means, which takes seconds."""
        small, factor = _reduced(gray, scale)
        size = (self.board.layout.columns, self.board.layout.rows)
        if hard:
            flags = cv2.CALIB_CB_NORMALIZE_IMAGE | cv2.CALIB_CB_EXHAUSTIVE
            found, corners = cv2.findChessboardCornersSB(small, size, flags=flags)
        else:
            flags = cv2.CALIB_CB_ADAPTIVE_THRESH | cv2.CALIB_CB_NORMALIZE_IMAGE | cv2.CALIB_CB_FAST_CHECK
            found, corners = cv2.findChessboardCorners(small, size, flags=flags)
            if not found:
                found, corners = cv2.findChessboardCornersSB(small, size, flags=cv2.CALIB_CB_NORMALIZE_IMAGE)
        if not found:
            return _NOTHING
        numbers = np.arange(len(self.board.points_m))
        pixels = (corners.reshape(-1, 2).astype(float) + 0.5) * factor - 0.5
        return numbers, self._subpixel(gray, numbers, pixels, 0.4 * self.board.layout.square_m)

    def _subpixel(self, gray: Array, numbers: Array, pixels: Array, reach_m: float) -> Array:
        """Corners where the gradients round them say; reach_m: half window on the board."""
        if len(numbers) < 4 or is_line(self.board.points_m[numbers]):
            return pixels
        along = directions(self.board.points_m[numbers], pixels)  # px per metre
        nearest_px = np.linalg.norm(along, axis=2).min(axis=1) * reach_m
        refined = pixels.astype(np.float32)
        for i, reach in enumerate(np.clip(nearest_px, *WINDOW_PX).astype(int)):
            point = refined[i].reshape(1, 1, 2).copy()
            refined[i] = cv2.cornerSubPix(gray, point, (int(reach), int(reach)), (-1, -1), SUBPIX).ravel()
        moved = np.linalg.norm(refined - pixels, axis=1)
        return np.where((moved < np.maximum(nearest_px, WINDOW_PX[0]))[:, None], refined, pixels).astype(float)

    def _blur_px(self, gray: Array, numbers: Array, pixels: Array) -> float:
        """An edge of contrast C blurred by σ is C / (√(2π) σ) steep: σ from the steepest slope at each corner."""
        pick = np.unique(np.linspace(0, len(numbers) - 1, SHARPNESS_CORNERS).astype(int))
        along = directions(self.board.points_m[numbers], pixels)[pick]
        pitch_px = np.linalg.norm(along, axis=2).min(axis=1) * self.board.layout.pitch_m
        reach_px = np.clip(SHARPNESS_REACH * pitch_px, *SHARPNESS_REACH_PX).astype(int)
        blurs = []
        for (x, y), reach, axes in zip(pixels[pick].round().astype(int), reach_px, along, strict=True):
            patch = gray[max(y - reach, 0) : y + reach + 1, max(x - reach, 0) : x + reach + 1].astype(np.float32)
            if min(patch.shape) < 5:
                continue
            low, high = np.percentile(patch, (5, 95))
            dx, dy = (cv2.Sobel(patch, cv2.CV_32F, a, 1 - a, ksize=3)[1:-1, 1:-1] / 8 for a in (1, 0))
            units = axes / np.linalg.norm(axes, axis=1, keepdims=True)
            steepest = [float(np.abs(dx * u + dy * v).max()) for u, v in units]
            blurs.append([(high - low) / (np.sqrt(2 * np.pi) * max(s, 1e-3)) for s in steepest])
        return float(np.median(blurs, axis=0).max()) if blurs else float("nan")


_NOTHING = np.zeros(0, int), np.zeros((0, 2))


def _unusable(name: str, problem: str, numbers: Array = _NOTHING[0], pixels: Array = _NOTHING[1]) -> View:
    return View(name, numbers, pixels, float("nan"), problem)


def _charuco_detector(board: Board, legacy: bool, parameters: cv2.aruco.DetectorParameters):
    opencv = Board(board.layout, board.name, board.dictionary).opencv
    opencv.setLegacyPattern(legacy)
    charuco = cv2.aruco.CharucoParameters()
    charuco.tryRefineMarkers = True
    return cv2.aruco.CharucoDetector(opencv, charuco, parameters)


def _reduced(gray: Array, scale: float) -> tuple[Array, Array]:
    """A reduced copy, and what its coordinates (from the corner of the image) are multiplied with."""
    if scale >= 1.0:
        return gray, np.ones(2)
    h, w = gray.shape
    size = max(round(w * scale), 1), max(round(h * scale), 1)
    return cv2.resize(gray, size, interpolation=cv2.INTER_AREA), np.array([w, h]) / size


def is_line(points_m: Array) -> bool:
    """Whether points of a board, (n, 3), lie on one line or nearly so."""
    spread = np.linalg.svd(points_m[:, :2] - points_m[:, :2].mean(0), compute_uv=False)
    return not spread[1] > MIN_SPREAD * spread[0]


def directions(points_m: Array, pixels: Array) -> Array:
    """How the picture moves with the board's x and y at each corner [px/m], (n, 2, 2): the slope of a quadratic map."""
    xy = points_m[:, :2]
    middle, size = xy.mean(0), np.ptp(xy, axis=0).max()
    order = 2 if len(xy) >= 9 else 1
    powers = [(i, j) for i in range(order + 1) for j in range(order + 1 - i)]
    u, v = ((xy - middle) / size).T
    fit = np.linalg.lstsq(np.column_stack([u**i * v**j for i, j in powers]), pixels, rcond=None)[0]
    by_u = np.column_stack([i * u ** max(i - 1, 0) * v**j for i, j in powers]) @ fit
    by_v = np.column_stack([j * u**i * v ** max(j - 1, 0) for i, j in powers]) @ fit
    return np.stack([by_u, by_v], axis=1) / size


def shape_error(points_m: Array, pixels: Array) -> float:
    """RMS distance of the corners from a smooth picture of the board, over the board's size in the image.

    Smooth: a homography, or a cubic map where there are corners enough to tell; it follows any lens, and no board whose
    corners are counted otherwise.
    """
    size_px = float(np.hypot(*np.ptp(pixels, axis=0)))
    errors = [np.inf]
    H, _ = cv2.findHomography(points_m[:, :2], pixels, 0)
    if H is not None:
        mapped = cv2.perspectiveTransform(points_m[None, :, :2], H)[0]
        errors.append(np.sqrt(np.mean(np.sum((mapped - pixels) ** 2, axis=1))))
    if len(pixels) >= SMOOTH_CORNERS:
        u, v = ((points_m[:, :2] - points_m[:, :2].mean(0)) / np.ptp(points_m[:, :2], axis=0).max()).T
        A = np.column_stack([u**i * v**j for i in range(4) for j in range(4 - i)])
        left = pixels - A @ np.linalg.lstsq(A, pixels, rcond=None)[0]
        errors.append(np.sqrt(np.mean(np.sum(left**2, axis=1))))
    return float(min(errors) / max(size_px, 1e-9))


def hint(board: Board, images: list[Array], views: list[View]) -> str:
    """What may be wrong when no view shows the board: another dictionary, other ids, columns and rows exchanged."""
    found = [view for view in views if len(view.numbers) >= MIN_CORNERS and view.problem]
    turned = board.turned()
    if board.layout.columns != board.layout.rows and found and not isinstance(board.layout, Charuco):
        errors = [shape_error(turned.points_m[v.numbers], v.pixels) for v in found]
        if np.median(errors) < SHAPE_LIMIT:
            return f"{turned.layout.columns} columns and {turned.layout.rows} rows would fit: are they exchanged?"
    if isinstance(board.layout, Charuco) and board.layout.columns != board.layout.rows:
        detector = BoardDetector(turned)
        if any(not detector.view(image, "").problem for image in images[:HINT_IMAGES]):
            return f"{turned.layout.columns} columns and {turned.layout.rows} rows would fit: are they exchanged?"
    if not board.of_markers:
        return "count the inner corners of columns and rows; the whole board must be in the picture"
    names = [n for n in DICTIONARIES if n.endswith("_1000") or "x" not in n]
    for name in [board.layout.dictionary, *names]:
        known = name == board.layout.dictionary
        dictionary = board.dictionary if known else cv2.aruco.getPredefinedDictionary(DICTIONARIES[name])
        detector = cv2.aruco.ArucoDetector(dictionary)
        found = [detector.detectMarkers(image)[1] for image in images[:HINT_IMAGES]]
        ids = np.concatenate([np.ravel(i) for i in found if i is not None] or [np.zeros(0)]).astype(int)
        if len(ids) >= HINT_MARKERS and not (known and np.isin(ids, board.marker_ids).mean() > 0.5):
            return f"markers of {name} are in sight, ids {ids.min()} to {ids.max()}"
    return ""

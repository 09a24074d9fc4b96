"""A board in an image: its numbered corners, their sharpness, and why an image cannot be used.

Large photographs are searched in a reduced copy (marker thresholds and chessboard templates are made for images of
about a megapixel); the corners are then refined in the image itself, without loss of accuracy. Marker corners are
refined at their edges by the code that flies (`companion.tracking.edges`).
"""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from calibration.camera.board import DICTIONARIES, Board, Charuco, Chessboard, Grid, charuco_board
from calibration.camera.problem import Problem, ProblemKind
from companion.core.arrays import Array, Image8
from companion.tracking.edges import refine_corners

SEARCH_PX = 1600  # longest side in which a board is searched first
SMALLEST_PX = 64  # a smaller image shows no board
MIN_CORNERS = 8  # of a view: its pose alone has six unknowns
MIN_SPREAD = 0.05  # second over first extent of the corners seen: less is a line, which does not determine a pose
SHAPE_LIMIT = 0.03  # of the board's size in the image: corners farther from any smooth picture of the board
SMOOTH_CORNERS = 20  # from this number on a cubic polynomial models lens and perspective
WINDOW_PX = (2, 11)  # half window of the sub-pixel search round a chessboard corner
SUBPIX = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 60, 1e-3)
SHARPNESS_CORNERS = 60  # number of corners, evenly chosen, whose blur is measured
SHARPNESS_REACH = 0.35  # of the distance to the next corner
SHARPNESS_REACH_PX = (3.0, 30.0)
HINT_IMAGES, HINT_MARKERS = 3, 4  # images searched for other dictionaries; number of markers that excludes chance


Corners = tuple[NDArray[np.int64], Array]  # numbers (n,), pixels (n, 2)


@dataclass(frozen=True)
class View:
    """The corners of a board in one image.

    numbers (n,): which of `Board.points_m`; pixels (n, 2): where; blur_px: standard deviation of the blur across edges,
    in the worse of the board's two directions; problem: why the view cannot be used, None if it can.
    """

    name: str
    numbers: NDArray[np.int64]
    pixels: Array
    blur_px: float
    problem: Problem | None = None


class BoardDetector:
    """Finds one board in grey images."""

    def __init__(self, board: Board) -> None:
        self.board = board
        parameters = cv2.aruco.DetectorParameters()
        parameters.minMarkerPerimeterRate = 0.01
        parameters.adaptiveThreshWinSizeMin, parameters.adaptiveThreshWinSizeMax = 3, 53
        parameters.minDistanceToBorder = 1
        dictionary = board.marked.dictionary if board.marked else None
        self._markers, self._charuco = None, []
        if dictionary is not None and isinstance(board.layout, Grid):
            self._markers = cv2.aruco.ArucoDetector(dictionary, parameters)
        elif dictionary is not None and isinstance(board.layout, Charuco):
            self._charuco = [_charuco_detector(board.layout, dictionary, False, parameters)]
            if board.layout.rows % 2 == 0:  # before OpenCV 4.6 such boards began with a white square
                self._charuco.append(_charuco_detector(board.layout, dictionary, True, parameters))

    def view(self, gray: Image8, name: str) -> View:
        """The board in an image (h, w); does not raise whatever the image shows."""
        if min(gray.shape) < SMALLEST_PX:
            return _unusable(name, Problem(ProblemKind.TOO_SMALL))
        numbers, pixels = self._search(gray)
        if len(numbers) < MIN_CORNERS:
            if not len(numbers):
                return _unusable(name, Problem(ProblemKind.NOT_FOUND))
            text = f"too few corners ({len(numbers)} of {len(self.board.points_m)})"
            return _unusable(name, Problem(ProblemKind.FEW_CORNERS, text), numbers, pixels)
        if is_line(self.board.points_m[numbers]):
            text = f"its {len(numbers)} corners lie on one line"
            return _unusable(name, Problem(ProblemKind.ONE_LINE, text), numbers, pixels)
        error = shape_error(self.board.points_m[numbers], pixels)
        if error > SHAPE_LIMIT:
            text = f"not this board: its corners are {100 * error:.0f} % of its size from their places"
            return _unusable(name, Problem(ProblemKind.OTHER_BOARD, text), numbers, pixels)
        return View(name, numbers, pixels, self._blur_px(gray, numbers, pixels))

    def _search(self, gray: Image8) -> Corners:
        """Numbers and refined pixels of the corners; empty when there are none."""
        scale = min(1.0, SEARCH_PX / max(gray.shape))
        layout = self.board.layout
        if isinstance(layout, Chessboard):  # whole or not at all
            trials = ((scale, False), (0.5 * scale, False), (scale, True))
            found = (self._find_chessboard(gray, layout, s, thorough) for s, thorough in trials)
            return next((corners for corners in found if len(corners[0])), _NOTHING)

        def find(image: Image8, s: float) -> Corners:
            if isinstance(layout, Grid):
                return self._find_grid(image, layout, s)
            return self._find_charuco(image, layout, s)

        best = find(gray, scale)
        enough = max(MIN_CORNERS, len(self.board.points_m) // 2)
        for other in {1.0, 0.5 * scale} - {scale}:  # for a small board in a large picture, and a large or blurred one
            if len(best[0]) < enough:
                best = max(best, find(gray, other), key=lambda found: len(found[0]))
        if len(best[0]) < MIN_CORNERS:  # for a dark image
            bright = cv2.createCLAHE(4.0, (8, 8)).apply(gray).astype(np.uint8, copy=False)
            best = max(best, find(bright, scale), key=lambda found: len(found[0]))
        return best

    def _find_grid(self, gray: Image8, layout: Grid, scale: float) -> Corners:
        if self._markers is None or self.board.marked is None:
            return _NOTHING
        small, factor = _reduced(gray, scale)
        quads, ids, rejected = self._markers.detectMarkers(small)
        if ids is None or not len(ids):
            return _NOTHING
        quads, ids, _, _ = self._markers.refineDetectedMarkers(small, self.board.marked.opencv(), quads, ids, rejected)
        ids = np.ravel(ids)
        of_board, first = self.board.marked.ids, layout.first_id
        keep = [i for i, id in enumerate(ids) if int(id) in of_board and np.count_nonzero(ids == id) == 1]
        if not keep:
            return _NOTHING
        corners = (np.array([quads[i].reshape(4, 2) for i in keep], float) + 0.5) * factor - 0.5
        corners, seen = refine_corners(gray, corners, 0.0 if scale >= 1.0 else 0.7 / scale)
        numbers = (4 * (ids[keep, None] - first) + np.arange(4)).astype(np.int64)
        return numbers[seen], corners[seen]

    def _find_charuco(self, gray: Image8, layout: Charuco, scale: float) -> Corners:
        small, factor = _reduced(gray, scale)
        best = _NOTHING
        for detector in self._charuco:
            corners, ids, _, _ = detector.detectBoard(small)
            if ids is not None and len(ids) > len(best[0]):
                best = np.ravel(ids).astype(int), corners.reshape(-1, 2).astype(float)
        if not len(best[0]):
            return _NOTHING
        numbers, pixels = best[0], (best[1] + 0.5) * factor - 0.5
        # the window must not reach the marker inside the square
        return numbers, self._subpixel(gray, numbers, pixels, 0.45 * (layout.square_m - layout.marker_m))

    def _find_chessboard(self, gray: Image8, layout: Chessboard, scale: float, thorough: bool) -> Corners:
        """thorough: with the exhaustive search, which takes seconds."""
        small, factor = _reduced(gray, scale)
        size = (layout.columns, layout.rows)
        if thorough:
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
        return numbers, self._subpixel(gray, numbers, pixels, 0.4 * layout.square_m)

    def _subpixel(self, gray: Image8, numbers: NDArray[np.int64], pixels: Array, reach_m: float) -> Array:
        """Corners refined by the gradients around them; reach_m: half window on the board."""
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

    def _blur_px(self, gray: Image8, numbers: NDArray[np.int64], pixels: Array) -> float:
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


_NOTHING: Corners = np.zeros(0, np.int64), np.zeros((0, 2))


def _unusable(
    name: str, problem: Problem, numbers: NDArray[np.int64] = _NOTHING[0], pixels: Array = _NOTHING[1]
) -> View:
    return View(name, numbers, pixels, float("nan"), problem)


def _charuco_detector(
    layout: Charuco, dictionary: cv2.aruco.Dictionary, legacy: bool, parameters: cv2.aruco.DetectorParameters
) -> cv2.aruco.CharucoDetector:
    opencv = charuco_board(layout, dictionary)
    opencv.setLegacyPattern(legacy)
    charuco = cv2.aruco.CharucoParameters()
    charuco.tryRefineMarkers = True
    return cv2.aruco.CharucoDetector(opencv, charuco, parameters)


def _reduced(gray: Image8, scale: float) -> tuple[Image8, Array]:
    """A reduced copy, and the factors of its coordinates (from the corner of the image) to those of the image."""
    if scale >= 1.0:
        return gray, np.ones(2)
    h, w = gray.shape
    size = max(round(w * scale), 1), max(round(h * scale), 1)
    return cv2.resize(gray, size, interpolation=cv2.INTER_AREA).astype(np.uint8, copy=False), np.array([w, h]) / size


def is_line(points_m: Array) -> bool:
    """Whether points of a board, (n, 3), lie on one line or nearly so."""
    spread = np.linalg.svd(points_m[:, :2] - points_m[:, :2].mean(0), compute_uv=False)
    return not spread[1] > MIN_SPREAD * spread[0]


def directions(points_m: Array, pixels: Array) -> Array:
    """Derivative of the pixels by x and y of the board at each corner [px/m], (n, 2, 2), from a quadratic map."""
    xy = points_m[:, :2]
    middle, size = xy.mean(0), np.ptp(xy, axis=0).max()
    order = 2 if len(xy) >= 9 else 1
    powers = [(i, j) for i in range(order + 1) for j in range(order + 1 - i)]
    u, v = ((xy - middle) / size).T
    fit = np.linalg.lstsq(np.column_stack([u**i * v**j for i, j in powers]), pixels, rcond=None)[0]
    by_u = np.column_stack([i * u ** max(i - 1, 0) * v**j for i, j in powers]) @ fit
    by_v = np.column_stack([j * u**i * v ** max(j - 1, 0) for i, j in powers]) @ fit
    slopes: Array = np.stack([by_u, by_v], axis=1) / size
    return slopes


def shape_error(points_m: Array, pixels: Array) -> float:
    """RMS distance of the corners from a smooth picture of the board, over the board's size in the image.

    Smooth: a homography, or a cubic map if there are enough corners. It follows any lens, but not a board with another
    number of corners.
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


def hint(board: Board, images: list[Image8], views: list[View]) -> str:
    """A possible reason when no view shows the board: another dictionary, other ids, columns and rows exchanged."""
    found = [view for view in views if len(view.numbers) >= MIN_CORNERS and view.problem]
    turned = board.turned()
    exchange = (
        f"{turned.layout.columns} columns and {turned.layout.rows} rows would fit: exchange them in the board file"
    )
    if board.layout.columns != board.layout.rows and found and not isinstance(board.layout, Charuco):
        errors = [shape_error(turned.points_m[v.numbers], v.pixels) for v in found]
        if np.median(errors) < SHAPE_LIMIT:
            return exchange
    if isinstance(board.layout, Charuco) and board.layout.columns != board.layout.rows:
        detector = BoardDetector(turned)
        if any(not detector.view(image, "").problem for image in images[:HINT_IMAGES]):
            return exchange
    marked = board.marked
    if marked is None:
        return "count the inner corners of columns and rows; the whole board must be in the picture"
    names = [n for n in DICTIONARIES if n.endswith("_1000") or "x" not in n]
    for name in [marked.layout.dictionary, *names]:
        known = name == marked.layout.dictionary
        dictionary = marked.dictionary if known else cv2.aruco.getPredefinedDictionary(DICTIONARIES[name])
        markers = cv2.aruco.ArucoDetector(dictionary)
        seen = [markers.detectMarkers(image)[1] for image in images[:HINT_IMAGES]]
        ids = np.concatenate([np.ravel(i) for i in seen if i is not None] or [np.zeros(0)]).astype(int)
        if len(ids) >= HINT_MARKERS and not (known and np.isin(ids, marked.ids).mean() > 0.5):
            return f"markers of {name} are visible, ids {ids.min()} to {ids.max()}"
    return ""

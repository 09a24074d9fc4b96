"""From views of a board to a checked calibration: views left out, each with its reason, and warnings.

The residual alone does not show the quality of a calibration: a board that is always held the same way fits well and
determines little. So the result contains the deviation of every number, the deviation of the whole projection (after
mrcal, D. Kogan: the covariance of the lens carried through the projection, less the rotation of the camera, which the
mount absorbs), and the parts of the picture without corners.
"""

from collections import Counter
from dataclasses import dataclass, field

import cv2
import numpy as np
from numpy.typing import NDArray

from calibration.camera.board import Board, Grid
from calibration.camera.board_detection import View
from calibration.camera.fit import NAMES, NOISE_FLOOR_PX, CameraFit, Lens, LensModel, board_shapes, fit
from calibration.camera.problem import Problem, ProblemKind
from calibration.results import DataError
from companion.core.arrays import Array

MIN_VIEWS = 8  # three directions determine a lens (Zhang's method); its errors need more to show
GOOD_VIEWS = 10
BLUR_LIMIT_PX, BLUR_OF_MEDIAN = 2.5, 2.0  # a view with more than both is blurred
SAME_VIEW_PX = 1.0  # mean distance of all corners below which two views are the same picture
OUTLIER_MAD, OUTLIER_OF_MEDIAN, OUTLIER_PX = 5.0, 1.5, 0.3  # a view beyond all three, over the median, is left out
CELLS = (8, 6)  # of the picture, for its coverage
GOOD_COVERAGE = 0.7
GOOD_ANGLE_RAD = float(np.radians(25.0))  # between the two directions of the board that differ most
GOOD_RADIUS = 0.85  # of the picture's corner
FOCAL_STD_WARN = 0.005  # of the focal length
INTERVAL_MAX = 0.02  # 95 %, of the focal length, for focal length and principal point: 6 cm at 3 m, and 1.1°
# Change of the focal length, over itself, by corners that are all wrong by one pixel in the worst way: the geometry of the
# views alone, whatever their number and noise. A print is never exact, and its errors do not shrink with more views. Eight
# real views within 19° of one direction have 1.7, and a focal length that is wrong by five of its deviations; good ones 0.3.
LEVERAGE_MAX = 1.2
MIN_RADIUS, MIN_COVERAGE = 0.5, 0.3  # corners in the middle alone leave the distortion to extrapolation
BOARD_SIGMAS, BOARD_SHARE = 5.0, 0.15  # a board differs if its numbers do, and the residual falls by this share
BOARD_PX = 0.15  # a smaller residual is not attributed to the board
BEND_MM = 0.2  # less is not attributed to the board
UNCERTAINTY_GRID = (17, 13)


@dataclass(frozen=True)
class Calibration:
    """A lens with its views and warnings.

    rejected: name of a view → its problem; covered (6, 8): corners in each cell of the picture; radius: how far corners
    reach, over the distance of the picture's corner; angle_rad: largest angle between two directions of the board.
    """

    board: Board
    size: tuple[int, int]
    fit: CameraFit
    views: list[View]
    rejected: dict[str, Problem]
    covered: NDArray[np.int64]
    radius: float
    angle_rad: float
    warnings: list[str] = field(default_factory=list)

    @property
    def coverage(self) -> float:
        """Share of the cells with corners."""
        return float(np.mean(self.covered > 0))

    @property
    def corners(self) -> int:
        """Number of corners of all views."""
        return sum(len(v.numbers) for v in self.views)


def calibrate(
    board: Board,
    views: list[View],
    size: tuple[int, int],
    model: LensModel,
    coefficients: int,
    fit_board: bool = False,
    rejected: dict[str, Problem] | None = None,
    hint: str = "",
) -> Calibration:
    """The lens from the usable views; size: width and height [px] of the images.

    fit_board: fit stretch, marker size and bend of the printed board, too, instead of taking those of the file.
    rejected: images left out before; hint: a text to add when there are too few views. Raises `DataError`.
    """
    rejected = {**(rejected or {}), **{v.name: v.problem for v in views if v.problem}}
    good = [v for v in views if not v.problem]
    for sieve in (_blurred, _repeated):
        rejected |= (out := sieve(good))
        good = [v for v in good if v.name not in out]
    _enough(good, rejected, hint)
    result = fit(board, good, size, model, coefficients, fit_board)
    while out := _outliers(good, result):
        rejected |= out
        good = [v for v in good if v.name not in out]
        _enough(good, rejected, hint)
        result = fit(board, good, size, model, coefficients, fit_board)
    covered, radius = _coverage(good, size)
    calibration = Calibration(board, size, result, good, rejected, covered, radius, _angle(result))
    _check(calibration)
    calibration.warnings.extend(_warnings(calibration))
    if not fit_board:
        calibration.warnings.extend(_board_warnings(board, result, fit(board, good, size, model, coefficients, True)))
    return calibration


def projection_std(lens: Lens, covariance: Array, size: tuple[int, int]) -> Array:
    """Deviation of the projection [px] over the picture, shape (13, 17), worst direction; NaN outside the lens.

    A change of the lens moves the projection of a fixed ray; the rotation of the camera that explains most of that over
    the picture is subtracted.
    """
    u, v = np.meshgrid(
        np.linspace(0, size[0] - 1, UNCERTAINTY_GRID[0]), np.linspace(0, size[1] - 1, UNCERTAINTY_GRID[1])
    )
    rays = lens.rays(np.column_stack([u.ravel(), v.ravel()]))
    usable = np.isfinite(rays).all(1)
    J = np.full((len(rays), 2, len(lens.numbers)), np.nan)
    _, by_pose, by_lens = lens.project(rays[usable], np.zeros(6))
    turn = np.linalg.lstsq(by_pose[:, :3], by_lens, rcond=None)[0]
    J[usable] = (by_lens - by_pose[:, :3] @ turn).reshape(-1, 2, len(lens.numbers))
    covariances = J @ covariance @ J.transpose(0, 2, 1)
    worst = np.full(len(rays), np.nan)
    worst[usable] = np.sqrt(np.maximum(np.linalg.eigvalsh(covariances[usable])[:, -1], 0))
    return worst.reshape(u.shape)


def _enough(views: list[View], rejected: dict[str, Problem], hint: str) -> None:
    if len(views) >= MIN_VIEWS:
        return
    counted = Counter(problem.kind for problem in rejected.values())
    listed = ", ".join(f"{number} x {kind}" for kind, number in counted.most_common())
    raise DataError(
        f"{len(views)} usable views of {len(views) + len(rejected)}, at least {MIN_VIEWS} are needed"
        + (f": {listed}" if listed else "")
        + (f"; {hint}" if hint else "")
    )


def _blurred(views: list[View]) -> dict[str, Problem]:
    blurs = np.array([v.blur_px for v in views])
    if not np.isfinite(blurs).any():
        return {}
    limit = max(BLUR_LIMIT_PX, BLUR_OF_MEDIAN * float(np.nanmedian(blurs)))
    return {
        v.name: Problem(ProblemKind.BLURRED, f"blurred: edges {v.blur_px:.1f} px wide (limit {limit:.1f} px)")
        for v in views
        if v.blur_px > limit
    }


def _repeated(views: list[View]) -> dict[str, Problem]:
    """Pictures of the same view count once: they are not independent."""
    out: dict[str, Problem] = {}
    kept: list[View] = []
    for view in views:
        for other in kept:
            _, mine, theirs = np.intersect1d(view.numbers, other.numbers, return_indices=True)
            if len(mine) < 0.8 * max(len(view.numbers), len(other.numbers)):
                continue
            if np.linalg.norm(view.pixels[mine] - other.pixels[theirs], axis=1).mean() < SAME_VIEW_PX:
                out[view.name] = Problem(ProblemKind.REPEATED, f"the same view as {other.name}")
                break
        else:
            kept.append(view)
    return out


def _outliers(views: list[View], result: CameraFit) -> dict[str, Problem]:
    rms = result.view_rms_px
    median = float(np.median(rms))
    mad = 1.4826 * float(np.median(np.abs(rms - median)))
    limit = max(median + OUTLIER_MAD * mad, OUTLIER_OF_MEDIAN * median, median + OUTLIER_PX)
    return {
        v.name: Problem(ProblemKind.REPROJECTION, f"reprojection error {e:.2f} px (limit {limit:.2f} px)")
        for v, e in zip(views, rms, strict=True)
        if e > limit
    }


def _coverage(views: list[View], size: tuple[int, int]) -> tuple[NDArray[np.int64], float]:
    """Corners per cell, shape (6, 8), and how far they reach, over the distance of the picture's corner."""
    pixels = np.concatenate([v.pixels for v in views])
    covered = cell_counts(pixels, size)
    middle = (np.array(size) - 1) / 2
    reach = np.quantile(np.linalg.norm(pixels - middle, axis=1), 0.995)
    return covered, float(reach / np.linalg.norm(middle))


def cell_counts(pixels: Array, size: tuple[int, int]) -> NDArray[np.int64]:
    """Number of the pixels (n, 2) in each cell of the picture, shape (6, 8)."""
    edges = [np.linspace(-0.5, s - 0.5, n + 1) for s, n in zip(size, CELLS, strict=True)]
    return np.histogram2d(pixels[:, 0], pixels[:, 1], bins=edges)[0].T.astype(np.int64)


def _angle(result: CameraFit) -> float:
    """Largest angle between the normals that the board had in two views [rad]."""
    normals = np.array([cv2.Rodrigues(pose[:3])[0][:, 2] for pose in result.poses])
    return float(np.arccos(np.clip(normals @ normals.T, -1, 1)).max())


def leverage(c: Calibration) -> float:
    """Change of the focal length over itself by corners that are all wrong by one pixel in the worst way [1/px]."""
    noise_px = c.fit.rms_px / np.sqrt(2.0)
    worst = float(max(c.fit.std[:2] / c.fit.lens.numbers[:2]))
    return float(worst * np.sqrt(2.0 * c.corners) / max(noise_px, NOISE_FLOOR_PX))


def _check(c: Calibration) -> None:
    """Raises `DataError`, with what to photograph, where the views do not fix the lens."""
    focal, centre = (2.0 * float(max(c.fit.std[i : i + 2])) / float(min(c.fit.lens.numbers[:2])) for i in (0, 2))
    found = []
    if focal > INTERVAL_MAX or leverage(c) > LEVERAGE_MAX:
        found.append(f"the focal length (± {100 * focal:.1f} %, {leverage(c):.1f} for an error of 1 px in all corners)")
    if centre > INTERVAL_MAX:
        found.append(f"the principal point (± {2.0 * max(c.fit.std[2:4]):.0f} px)")
    in_the_middle = c.radius < MIN_RADIUS or c.coverage < MIN_COVERAGE
    if in_the_middle:
        found.append(
            f"the distortion (corners in {100 * c.coverage:.0f} % of the picture, none {_where_empty(c.covered)})"
        )
    if not found:
        return
    advice = []
    if c.angle_rad < GOOD_ANGLE_RAD:
        seen = f"it was within {np.degrees(c.angle_rad):.0f}° of one direction"
        advice.append(f"tilt the board by 30 to 45° to all sides ({seen})")
    if in_the_middle:
        advice.append("hold the board nearer, and into each corner of the picture")
    if not advice:
        advice.append("take more pictures, with the board nearer and tilted by 30 to 45° to all sides")
    raise DataError(f"the views do not determine {', nor '.join(found)}: {'; '.join(advice)}")


def _warnings(c: Calibration) -> list[str]:
    lens, std = c.fit.lens, c.fit.std
    out: list[str] = []
    if len(c.views) < GOOD_VIEWS:
        out.append(f"only {len(c.views)} views: take {GOOD_VIEWS} or more")
    focal = float(max(std[:2] / lens.numbers[:2]))
    if c.angle_rad < GOOD_ANGLE_RAD:
        out.append(
            f"the board was within {np.degrees(c.angle_rad):.0f}° of one direction: tilt it by 30 to 45° to all "
            "sides, otherwise focal length and distance cannot be separated"
        )
    if focal > FOCAL_STD_WARN:
        out.append(f"the focal length is uncertain by {100 * focal:.1f} %: take more views, tilted more")
    if c.coverage < GOOD_COVERAGE:
        out.append(f"corners in {100 * c.coverage:.0f} % of the picture only, none {_where_empty(c.covered)}")
    if c.radius < GOOD_RADIUS:
        out.append(
            f"corners reach {100 * c.radius:.0f} % of the distance of the picture's corners: beyond, distortion is "
            "extrapolated"
        )
    names = NAMES[lens.model]
    for name, value, deviation in zip(names, lens.distortion, std[4:], strict=False):
        if name in ("k3", "k4", "k5", "k6") and lens.model == "pinhole" and abs(value) < 2 * deviation:
            fewer = 5 if len(lens.distortion) == 8 else 4
            out.append(
                f"{name} = {value:.3g} ± {deviation:.2g} does not differ from zero with certainty; "
                f"--coefficients {fewer} leaves it out"
            )
            break
    if (fold := _fold(lens, c.size)) is not None:
        out.append(f"the distortion folds the picture {fold:.0f} px from its middle: use fewer --coefficients")
    return out


def _where_empty(covered: NDArray[np.int64]) -> str:
    rows, columns = covered.shape
    zones = {}
    for i, vertical in enumerate(("top", "middle", "bottom")):
        for j, side in enumerate(("left", "", "right")):
            part = covered[i * rows // 3 : (i + 1) * rows // 3, j * columns // 3 : (j + 1) * columns // 3]
            zones[f"{vertical} {side}".strip()] = float(np.mean(part == 0))
    empty = [name for name, share in zones.items() if share > 0.4]
    return "at " + ", ".join(empty) if empty else "in scattered places"


def _fold(lens: Lens, size: tuple[int, int]) -> float | None:
    """Distance from the middle [px] at which the radial distortion turns back inside the picture, or None."""
    corners = np.array([[0, 0], [size[0] - 1, 0], [0, size[1] - 1], [size[0] - 1, size[1] - 1]], float)
    farthest = float(np.linalg.norm((corners - lens.numbers[2:4]) / lens.numbers[:2], axis=1).max())
    angle = np.linspace(1e-3, np.pi / 2 - 1e-3, 2000)
    points = np.column_stack([np.sin(angle), np.zeros_like(angle), np.cos(angle)])
    plain = Lens(lens.model, np.concatenate([[1, 1, 0, 0], lens.distortion]))
    radius = plain.project(points, np.zeros(6))[0][:, 0]
    back = np.flatnonzero(np.diff(radius) <= 0)
    if not len(back) or radius[: back[0] + 1].max() >= farthest:
        return None
    return float(radius[back[0]] * lens.numbers[:2].mean())


def _board_warnings(board: Board, as_file: CameraFit, released: CameraFit) -> list[str]:
    """A sentence if the printed board differs from its file; released: the fit with the shape of the board."""
    gain = 1 - released.rms_px / max(as_file.rms_px, 1e-9)
    names, _ = board_shapes(board)
    certain_all = np.abs(released.board) > BOARD_SIGMAS * released.board_std
    if gain < BOARD_SHARE or as_file.rms_px < BOARD_PX or not certain_all.any():
        return []
    layout, half_mm = board.layout, 0.5e3 * float(np.ptp(board.points_m, axis=0).max())
    found = []
    bends = [
        abs(b) * half_mm
        for n, b, s in zip(names, released.board, certain_all, strict=True)
        if n.startswith("bend") and s
    ]
    for name, value, certain in zip(names, released.board, certain_all, strict=True):
        if certain and name == "marker" and isinstance(layout, Grid):
            side = layout.marker_m * (1 + value)
            found.append(f"markers of {1e3 * side:.2f} mm with gaps of {1e3 * (layout.pitch_m - side):.2f} mm")
        elif certain and name == "stretch":
            found.append(f"columns stretched by {100 * value:+.2f} % against rows")
    if max(bends, default=0.0) > BEND_MM:
        found.append(f"bent by {max(bends):.1f} mm")
    change = released.lens.numbers[0] - as_file.lens.numbers[0]
    return [
        f"the board differs from its file: {', '.join(found)} would lower the error from {as_file.rms_px:.2f} "
        f"to {released.rms_px:.2f} px and change fx by {change:+.1f} px; measure it, or use --fit-board"
    ]

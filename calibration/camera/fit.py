"""Intrinsics of a camera from views of a board: least squares over lens and poses, with their uncertainty.

The projection is OpenCV's (`cv2.projectPoints`, `cv2.fisheye.projectPoints`; Zhang, PAMI 2000; Kannala & Brandt, PAMI
2006). The adjustment is implemented here, because `cv2.fisheye.calibrate` handles neither outliers nor partly visible
boards well and gives no uncertainty. Levenberg-Marquardt on all views at once: the normal equations of lens and board
and those of the pose of each view form a bordered block diagonal, solved by the Schur complement (Triggs et al.,
"Bundle adjustment, a modern synthesis", 2000, section 6). Huber's weights reduce the influence of single wrong corners.

The board itself can be fitted, too: prints are stretched, ink bleeds, paper bends. Their effect on a corner is linear
in a few numbers (`board_shapes`).
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import cv2
import numpy as np

from calibration.camera.board import Board, Grid
from calibration.camera.board_detection import View
from calibration.results import DataError
from companion.core.arrays import Array

ITERATIONS, TOLERANCE = 100, 1e-10  # of the cost
DAMPING_START, DAMPING_MAX = 1e-3, 1e12
HUBER = 2.5  # in robust standard deviations of a coordinate
ROUNDS = 3  # of fitting and weighting corners
NOISE_FLOOR_PX = 0.02  # no detector is better
UNDISTORT = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 100, 1e-10)
GUESSES = (0.3, 0.45, 0.65, 0.9, 1.3, 2.0, 3.5)  # start values of the focal length over the image's width
GUESS_VIEWS = 8
MIN_DEPTH = 1e-3  # of the board's distance: a corner nearer to the camera's plane has no projection
LensModel = Literal["pinhole", "fisheye"]
COEFFICIENTS: dict[LensModel, tuple[int, ...]] = {"pinhole": (4, 5, 8), "fisheye": (4,)}
NAMES: dict[LensModel, tuple[str, ...]] = {
    "pinhole": ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6"),
    "fisheye": ("k1", "k2", "k3", "k4"),
}


@dataclass(frozen=True)
class Lens:
    """Intrinsics: ``numbers`` are fx, fy, cx, cy [px] and the distortion in OpenCV's order."""

    model: LensModel
    numbers: Array

    @property
    def K(self) -> Array:
        """Camera matrix (3, 3)."""
        fx, fy, cx, cy = self.numbers[:4]
        return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1.0]])

    @property
    def distortion(self) -> Array:
        """Coefficients in OpenCV's order."""
        return self.numbers[4:]

    def project(self, points_m: Array, pose: Array) -> tuple[Array, Array, Array]:
        """Pixels (n, 2) of board points (n, 3) at pose (rotation vector, translation), and their Jacobians.

        The Jacobians are by the pose (2 n, 6) and by the numbers of the lens (2 n, k).
        """
        points = np.ascontiguousarray(points_m).reshape(-1, 1, 3)
        rotation, translation = pose[:3].copy(), pose[3:].copy()
        if self.model == "fisheye":
            found = cv2.fisheye.projectPoints(points, rotation, translation, self.K, self.distortion)
            pixels, J = np.asarray(found[0], np.float64), np.asarray(found[1], np.float64)
            return pixels.reshape(-1, 2), J[:, 8:14], J[:, :8]
        seen = cv2.projectPoints(points, rotation, translation, self.K, self.distortion)
        pixels, J = np.asarray(seen[0], np.float64), np.asarray(seen[1], np.float64)
        return pixels.reshape(-1, 2), J[:, :6], J[:, 6 : 6 + len(self.numbers)]

    def rays(self, pixels: Array) -> Array:
        """Unit vectors (n, 3) in the camera's frame of pixels (n, 2); NaN outside the image of the lens."""
        undistort = cv2.fisheye.undistortPoints if self.model == "fisheye" else cv2.undistortPoints
        points = np.ascontiguousarray(pixels, dtype=float).reshape(-1, 1, 2)
        xy = undistort(points, self.K, self.distortion, criteria=UNDISTORT).reshape(-1, 2)
        rays: Array = np.column_stack([xy, np.ones(len(xy))]).astype(np.float64, copy=False)
        rays /= np.linalg.norm(rays, axis=1, keepdims=True)
        back = self.project(rays, np.zeros(6))[0]
        rays[~(np.linalg.norm(back - pixels, axis=1) < 0.5)] = np.nan
        return rays


@dataclass(frozen=True)
class CameraFit:
    """The result of an adjustment.

    lens, poses (views, 6), covariance (k, k) of the numbers of the lens; residuals: of each view, (n, 2) [px],
    projected minus seen; board: the fitted numbers of `board_shapes`, empty if they were not fitted, board_std: their
    deviations.
    """

    lens: Lens
    poses: Array
    covariance: Array
    residuals: list[Array]
    board: Array
    board_std: Array

    @property
    def std(self) -> Array:
        """Deviations of the numbers of the lens (k,)."""
        std: Array = np.sqrt(np.diag(self.covariance))
        return std

    @property
    def rms_px(self) -> float:
        """Root of the mean squared distance between seen and projected corners, all of the views together."""
        return _rms(np.concatenate(self.residuals))

    @property
    def view_rms_px(self) -> Array:
        """The same for each view, (views,)."""
        return np.array([_rms(r) for r in self.residuals])


def board_shapes(board: Board) -> tuple[list[str], Array]:
    """Deformations of a printed board: names, and the displacement of the corners per unit of each, (k, n, 3) [m].

    The overall size is not among them: in pictures it cannot be separated from the distance.
    """
    points = board.points_m
    x, y = (points - points.mean(0))[:, :2].T
    half = 0.5 * float(np.ptp(points, axis=0).max())
    zero = np.zeros_like(x)
    names = ["stretch"]  # y over x, less 1
    shapes = [np.column_stack([zero, y, zero])]
    if isinstance(board.layout, Grid):
        within = points.reshape(-1, 4, 3)
        names.append("marker")  # side of the markers over the file's at the same pitch, less 1
        shapes.append((within - within.mean(1, keepdims=True)).reshape(-1, 3))
    for name, bend in (("bend_x", x * x), ("bend_xy", x * y), ("bend_y", y * y)):  # half the board's length at its edge
        names.append(name)
        shapes.append(np.column_stack([zero, zero, bend / half]))
    return names, np.array(shapes)


def fit(
    board: Board, views: list[View], size: tuple[int, int], model: LensModel, coefficients: int, shape: bool
) -> CameraFit:
    """Lens and poses that explain the views; shape: fit the shape of the board, too.

    size: width and height of the images [px]. Raises `DataError` when no lens explains the views.
    """
    rough, poses = _start(board, views, size, model)
    numbers = np.zeros(4 + coefficients)
    numbers[: len(rough.numbers)] = rough.numbers
    problem = _Problem(board, views, shape)
    # first the numbers that every lens has, then all: from a bad start the distortion would diverge
    for free in (6, len(numbers)):
        lens, poses, bend = problem.solve(Lens(model, numbers), poses, free)
        numbers = lens.numbers
    result = problem.result(lens, poses, bend)
    if not (np.isfinite(result.lens.numbers).all() and np.isfinite(result.std).all() and min(numbers[:2]) > 0):
        raise DataError("the views do not determine a camera: take more pictures, from more directions")
    return result


class _Normal(NamedTuple):
    """Normal equations of the shared numbers (lens, board) and the poses.

    S: Schur complement of the shared numbers; A, g: their block and right-hand side; blocks: of each view, block of the
    pose, coupling with the shared numbers, right-hand side.
    """

    S: Array
    A: Array
    g: Array
    blocks: list[tuple[Array, Array, Array]]


class _Problem:
    """The adjustment of some views of a board."""

    def __init__(self, board: Board, views: list[View], shape: bool) -> None:
        self.points = [board.points_m[v.numbers] for v in views]
        self.pixels = [v.pixels for v in views]
        shapes = board_shapes(board)[1] if shape else np.zeros((0, len(board.points_m), 3))
        self.shapes = [shapes[:, v.numbers] for v in views]
        self.weights = [np.ones(len(v.numbers)) for v in views]

    def solve(self, lens: Lens, poses: Array, free: int) -> tuple[Lens, Array, Array]:
        """Levenberg-Marquardt on poses, the first `free` numbers of the lens and the board; outliers weigh less."""
        bend = np.zeros(len(self.shapes[0]))
        self.weights = [np.ones(len(p)) for p in self.points]
        for _ in range(ROUNDS):
            lens, poses, bend = self.descend(lens, poses, bend, free)
            self._weigh(lens, poses, bend)
        return self.descend(lens, poses, bend, free)

    def result(self, lens: Lens, poses: Array, bend: Array) -> CameraFit:
        """The result with its covariance from the residuals, all numbers of the lens free."""
        n, k = len(lens.numbers), len(bend)
        residuals = [self._residual(lens, poses, bend, v).reshape(-1, 2) for v in range(len(poses))]
        square = sum(float(w @ (r * r).sum(1)) for w, r in zip(self.weights, residuals, strict=True))
        count = 2 * sum(float(w.sum()) for w in self.weights)
        variance = max(square / max(count - n - k - 6 * len(poses), 1.0), NOISE_FLOOR_PX**2)
        S = self._normal(lens, poses, bend, n).S
        try:
            scale = 1 / np.sqrt(np.maximum(np.diag(S), 1e-300))
            covariance = variance * np.linalg.inv(S * np.outer(scale, scale)) * np.outer(scale, scale)
        except np.linalg.LinAlgError:
            covariance = np.full_like(S, np.nan)
        std = np.sqrt(np.maximum(np.diag(covariance), 0))
        return CameraFit(lens, poses, covariance[:n, :n], residuals, bend, std[n:])

    def descend(self, lens: Lens, poses: Array, bend: Array, free: int) -> tuple[Lens, Array, Array]:
        """The nearest minimum of the cost with the present weights: lens, poses, board."""
        cost, damping = self.cost(lens, poses, bend), DAMPING_START
        for _ in range(ITERATIONS):
            parts = self._normal(lens, poses, bend, free)
            while damping < DAMPING_MAX:
                step = self._step(parts, damping)
                if step is not None:
                    shared, moves = step
                    numbers = lens.numbers.copy()
                    numbers[:free] += shared[:free]
                    trial = Lens(lens.model, numbers), poses + moves, bend + shared[free:]
                    new = self.cost(*trial)
                    if new < cost:
                        break
                damping *= 10
            else:
                return lens, poses, bend
            gain = cost - new
            (lens, poses, bend), cost, damping = trial, new, max(damping / 10, 1e-12)
            if gain < TOLERANCE * cost:
                break
        return lens, poses, bend

    def _residual(self, lens: Lens, poses: Array, bend: Array, v: int) -> Array:
        points = self.points[v] + np.tensordot(bend, self.shapes[v], 1)
        return (lens.project(points, poses[v])[0] - self.pixels[v]).ravel()

    def cost(self, lens: Lens, poses: Array, bend: Array) -> float:
        """Weighted squares of all residuals [px²]; infinite when a corner is behind the camera."""
        if min(lens.numbers[:2]) <= 0:
            return np.inf
        total = 0.0
        for v, pose in enumerate(poses):
            R = cv2.Rodrigues(pose[:3])[0]
            if (self.points[v] @ R[2] + pose[5]).min() < MIN_DEPTH * np.linalg.norm(pose[3:]):
                return np.inf
            r = self._residual(lens, poses, bend, v)
            total += float(np.repeat(self.weights[v], 2) @ (r * r))
        return total if np.isfinite(total) else np.inf

    def _weigh(self, lens: Lens, poses: Array, bend: Array) -> None:
        residuals = [self._residual(lens, poses, bend, v) for v in range(len(poses))]
        noise_px = max(1.4826 * float(np.median(np.abs(np.concatenate(residuals)))), NOISE_FLOOR_PX)
        lengths = [np.linalg.norm(r.reshape(-1, 2), axis=1) for r in residuals]
        self.weights = [np.minimum(1.0, HUBER * noise_px / np.maximum(d, 1e-12)) for d in lengths]

    def _normal(self, lens: Lens, poses: Array, bend: Array, free: int) -> _Normal:
        """The normal equations at lens, poses and board."""
        size = free + len(bend)
        A, g = np.zeros((size, size)), np.zeros(size)
        blocks = []
        for v, pose in enumerate(poses):
            points = self.points[v] + np.tensordot(bend, self.shapes[v], 1)
            pixels, by_pose, by_lens = lens.project(points, pose)
            moved = np.einsum("ij,knj->nik", cv2.Rodrigues(pose[:3])[0], self.shapes[v])  # (n, 3, k) in the camera
            by_board = (by_pose[:, 3:].reshape(-1, 2, 3) @ moved).reshape(len(by_pose), len(bend))
            shared = np.hstack([by_lens[:, :free], by_board])
            w = np.repeat(self.weights[v], 2)[:, None]
            r = (pixels - self.pixels[v]).ravel()
            A += shared.T @ (w * shared)
            g += shared.T @ (w[:, 0] * r)
            blocks.append((by_pose.T @ (w * by_pose), shared.T @ (w * by_pose), by_pose.T @ (w[:, 0] * r)))
        eliminated = sum((W @ np.linalg.pinv(U, hermitian=True) @ W.T for U, W, _ in blocks), np.zeros_like(A))
        S = A - eliminated
        return _Normal(S, A, g, blocks)

    @staticmethod
    def _step(parts: _Normal, damping: float) -> tuple[Array, Array] | None:
        """Change of the shared numbers and of the poses (views, 6); None if the equations are singular."""
        _, A, g, blocks = parts
        try:
            S, rhs, solved = A + damping * np.diag(np.diag(A)), g.copy(), []
            for U, W, gv in blocks:
                X = np.linalg.solve(U + damping * np.diag(np.diag(U)), np.column_stack([W.T, gv]))
                S -= W @ X[:, :-1]
                rhs -= W @ X[:, -1]
                solved.append(X)
            scale = 1 / np.sqrt(np.maximum(np.diag(A), 1e-300))
            shared: Array = -scale * np.linalg.solve(S * np.outer(scale, scale), scale * rhs)
        except np.linalg.LinAlgError:
            return None
        moves = np.array([-X[:, -1] - X[:, :-1] @ shared for X in solved])
        return (shared, moves) if np.isfinite(shared).all() and np.isfinite(moves).all() else None


def poses_of(lens: Lens, points: list[Array], pixels: list[Array]) -> Array:
    """Poses (views, 6) of a board for a lens, each the better of the two solutions for a plane."""
    return np.array([_pose(lens, P, seen) for P, seen in zip(points, pixels, strict=True)])


def _pose(lens: Lens, points: Array, seen: Array) -> Array:
    undistort = cv2.fisheye.undistortPoints if lens.model == "fisheye" else cv2.undistortPoints
    rays = undistort(np.ascontiguousarray(seen).reshape(-1, 1, 2), lens.K, lens.distortion).reshape(-1, 2)
    usable = np.isfinite(rays).all(1) & (np.abs(rays).max(1) < 20.0)
    middle = points.mean(0)
    best, best_rms = None, np.inf
    if np.count_nonzero(usable) >= 4:
        for flag in (cv2.SOLVEPNP_IPPE, cv2.SOLVEPNP_SQPNP):
            try:
                _, turns, moves, _ = cv2.solvePnPGeneric(
                    (points - middle)[usable], rays[usable], np.eye(3), None, flags=flag
                )
            except cv2.error:
                continue
            for turn, move in zip(turns, moves, strict=True):
                R = cv2.Rodrigues(turn)[0]
                pose = np.concatenate([turn.ravel(), move.ravel() - R @ middle])
                if not np.isfinite(pose).all() or (points @ R[2] + pose[5]).min() <= 0:
                    continue
                rms = _rms(lens.project(points, pose)[0] - seen)
                if rms < best_rms:
                    best, best_rms = pose, rms
    if best is not None:
        return best
    distance = lens.numbers[0] * np.ptp(points, axis=0).max() / max(np.ptp(seen, axis=0).max(), 1.0)
    return np.concatenate([np.zeros(3), [0, 0, distance] - middle])


def _start(board: Board, views: list[View], size: tuple[int, int], model: LensModel) -> tuple[Lens, Array]:
    """The best of several focal lengths, each adjusted on some of the views, and all poses for it."""
    pick = np.unique(np.linspace(0, len(views) - 1, GUESS_VIEWS).astype(int))
    problem = _Problem(board, [views[i] for i in pick], False)
    best, best_cost = None, np.inf
    for guess in GUESSES:
        numbers = np.zeros(8)
        numbers[:4] = guess * size[0], guess * size[0], (size[0] - 1) / 2, (size[1] - 1) / 2
        begin = Lens(model, numbers)
        poses = poses_of(begin, problem.points, problem.pixels)
        lens, adjusted, _ = problem.descend(begin, poses, np.zeros(0), 2)
        if not 0.05 < lens.numbers[0] / size[0] < 50:  # it is not determined: all views are from one direction
            lens, adjusted = begin, poses
        cost = problem.cost(lens, adjusted, np.zeros(0))
        if cost < best_cost:
            best, best_cost = lens, cost
    if best is None:
        raise DataError("no lens explains the views: check that the pictures show the board of the board file")
    whole = _Problem(board, views, False)
    lens = Lens(model, best.numbers[: 4 + COEFFICIENTS[model][0]])
    return lens, poses_of(lens, whole.points, whole.pixels)


def _rms(residuals: Array) -> float:
    return float(np.sqrt(np.mean(np.sum(residuals.reshape(-1, 2) ** 2, axis=1))))

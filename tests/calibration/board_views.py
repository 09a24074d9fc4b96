"""Pictures of a calibration board through a known lens, drawn by following every ray back to the board.

Independent of the tested code: the lens is OpenCV's undistortion, the board OpenCV's own picture.
"""

import cv2
import numpy as np

from calibration.camera.board import Board, Grid

FINE = 2  # rays per pixel and direction
PX_PER_M = 4000.0
MARGIN_M = 0.02
ITERATIONS = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 200, 1e-12)


class BoardCamera:
    """A camera before a board. K (3, 3), distortion in OpenCV's order, size: width and height [px]."""

    def __init__(
        self, board: Board, K, distortion, size: tuple[int, int], fisheye: bool = False, seed: int = 1
    ) -> None:
        self.board, self.size = board, size
        self._rng = np.random.default_rng(seed)
        texture = cv2.copyMakeBorder(board.picture(PX_PER_M, MARGIN_M), 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=150)
        self._texture = cv2.GaussianBlur(
            np.where(texture == 0, 25, np.minimum(texture, 220)).astype(np.uint8), (0, 0), 1.5
        )
        u = (np.arange(size[0] * FINE) + 0.5) / FINE - 0.5
        v = (np.arange(size[1] * FINE) + 0.5) / FINE - 0.5
        pixels = np.stack(np.meshgrid(u, v), axis=-1).reshape(-1, 1, 2)
        undistort = cv2.fisheye.undistortPoints if fisheye else cv2.undistortPoints
        xy = undistort(pixels, np.asarray(K, float), np.asarray(distortion, float), criteria=ITERATIONS)
        self._rays = np.column_stack([xy.reshape(-1, 2), np.ones(len(pixels))])

    def picture(self, R, p, noise: float = 2.0, blur_px: float = 0.6, light: float = 1.0) -> np.ndarray:
        """Grey picture of the board at pose R (3, 3), p (3,) [m] in the camera's frame."""
        # (x, y, 1) on the board ~ H⁻¹ ray
        on_board = self._rays @ np.linalg.inv(np.column_stack([R[:, 0], R[:, 1], p])).T
        depth = on_board[:, 2]
        with np.errstate(divide="ignore", invalid="ignore"):
            xy = on_board[:, :2] / depth[:, None]
        layout = self.board.layout
        edge = 0.0 if isinstance(layout, Grid) or self.board.marked is not None else layout.square_m
        at = (xy + edge + MARGIN_M) * PX_PER_M + 0.5  # one more pixel of border, less half a pixel
        at[~(depth > 0) | ~np.isfinite(at).all(1)] = -10
        at = np.clip(at, -10, 20000).astype(np.float32).reshape(self.size[1] * FINE, self.size[0] * FINE, 2)
        drawn = cv2.remap(self._texture, at, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT, borderValue=150)
        image = cv2.resize(drawn, self.size, interpolation=cv2.INTER_AREA).astype(np.float32)
        if blur_px > 0:
            image = cv2.GaussianBlur(image, (0, 0), blur_px)
        image = light * image + self._rng.normal(0, noise, image.shape)
        return np.clip(image, 0, 255).astype(np.uint8)

    def held(self, x: float, y: float, distance_m: float, tilt_rad: float, towards_rad: float, turn_rad: float = 0.0):
        """(R, p) of a board whose middle is at (x, y) = (X/Z, Y/Z), tilted about an axis in its plane."""
        axis = np.array([np.cos(towards_rad), np.sin(towards_rad), 0.0])
        R = cv2.Rodrigues(tilt_rad * axis)[0] @ cv2.Rodrigues(np.array([0, 0, turn_rad]))[0]
        middle = self.board.points_m.mean(0)
        return R, np.array([x, y, 1.0]) * distance_m - R @ middle


def poses(camera: BoardCamera, reach: float, distance_m: float, seed: int, count: int = 16):
    """Views all over the picture, tilted to all sides by 10 to 45°, at distances that vary by a third."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        x, y = reach * rng.uniform(-1, 1), reach * rng.uniform(-1, 1) * camera.size[1] / camera.size[0]
        tilt, turn = np.radians(rng.uniform(10, 45)), rng.uniform(-np.pi, np.pi)
        yield camera.held(x, y, distance_m * rng.uniform(0.8, 1.2), tilt, 2 * np.pi * i / count, turn)

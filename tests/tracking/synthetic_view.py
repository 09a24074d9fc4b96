"""Views of markers rendered from a known pose: every pixel is traced back onto the bundle's plane."""

from functools import cache
from pathlib import Path

import cv2
import msgspec
import numpy as np

from companion.core.camera_model import CameraModel
from companion.core.config import load
from companion.core.frames import quat_from_rpy, rotation_matrix
from companion.core.messages import Image
from companion.core.vehicle import Vehicle
from companion.tracking.families import square_family

ROOT = Path(__file__).parents[2]
FACING = np.diag([1.0, -1.0, -1.0])  # R_CM of a bundle seen straight on
CELL_PX, OVERSAMPLE, WHITE_MARGIN, BACKGROUND = 24, 3, 1.0, 120


@cache
def f550() -> Vehicle:
    """The F550's vehicle file."""
    return load(ROOT / "config/vehicles/f550.toml", Vehicle)


def vehicle(**camera) -> Vehicle:
    """The F550 with these keys of its camera changed."""
    base = f550()
    return msgspec.structs.replace(base, camera=msgspec.structs.replace(base.camera, **camera))


def with_tracking(v: Vehicle, **tracking) -> Vehicle:
    """The vehicle with these keys of `tracking` changed."""
    return msgspec.structs.replace(v, tracking=msgspec.structs.replace(v.tracking, **tracking))


def pose(tilt_rad=0.0, turn_rad=0.0, roll_rad=0.0, p=(0.0, 0.0, 3.0)) -> tuple[np.ndarray, np.ndarray]:
    """R_CM and p_CM of a bundle turned about its x, y and z axes from straight on."""
    turns = [cv2.Rodrigues(np.array(a, float))[0] for a in ((tilt_rad, 0, 0), (0, turn_rad, 0), (0, 0, roll_rad))]
    return FACING @ turns[0] @ turns[1] @ turns[2], np.array(p, float)


def render(camera: CameraModel, bundle, R, p, blur_px=0.7, noise=2.0, seed=0, background=None) -> np.ndarray:
    """Grey image (h, w) uint8 of a bundle of square markers; of the tracker's geometry only `undistort` is used."""
    s = OVERSAMPLE
    w, h = camera.width_px, camera.height_px
    # sub-pixel grid: sample k of pixel i lies at i + (k + 0.5)/s - 0.5
    u, v = np.meshgrid((np.arange(w * s) + 0.5) / s - 0.5, (np.arange(h * s) + 0.5) / s - 0.5)
    rays = _rays(camera, u, v)
    image = np.full((h * s, w * s), BACKGROUND, np.float32) if background is None else _enlarge(background, s)
    for marker in bundle.markers:
        A = rotation_matrix(quat_from_rpy(*marker.rpy_rad))
        R_m, p_m = R @ A, R @ np.array(marker.p_M) + p
        H = np.linalg.inv(np.column_stack([R_m[:, 0], R_m[:, 1], p_m]))  # rays to the marker's plane
        family = square_family(marker.family)
        margin = int(WHITE_MARGIN * CELL_PX)
        picture = cv2.copyMakeBorder(family.picture(marker.id, CELL_PX), *(4 * [margin]), 0, value=255)
        per_m = (family.cells + 2) * CELL_PX / marker.size_m
        middle = picture.shape[0] / 2 - 0.5
        window = _window(camera, R_m, p_m, (middle + 0.5) / per_m)
        hom = rays[window] @ H.T
        if hom.size == 0:
            continue
        x, y = hom[..., 0] / hom[..., 2], hom[..., 1] / hom[..., 2]
        mx, my = (x * per_m + middle).astype(np.float32), (-y * per_m + middle).astype(np.float32)
        inside = (np.abs(mx - middle) < middle + 0.5) & (np.abs(my - middle) < middle + 0.5) & (hom[..., 2] > 0)
        drawn = cv2.remap(picture, mx, my, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        image[window][inside] = drawn[inside] * 0.8 + 20
    small = cv2.resize(image, (w, h), interpolation=cv2.INTER_AREA)
    if blur_px:
        small = cv2.GaussianBlur(small, (0, 0), blur_px)
    small = small + np.random.default_rng(seed).normal(0, noise, small.shape) if noise else small
    return np.clip(np.rint(small), 0, 255).astype(np.uint8)


def message(gray: np.ndarray, stamp_s: float) -> Image:
    return Image(stamp_s=stamp_s, width=gray.shape[1], height=gray.shape[0], data=gray.tobytes())


_cache: dict[tuple, np.ndarray] = {}


def _rays(camera: CameraModel, u, v) -> np.ndarray:
    key = (u.shape, camera.K.tobytes(), camera.distortion.tobytes(), camera.fisheye)
    if key not in _cache:
        _cache.clear()
        xy = camera.undistort(np.stack([u.ravel(), v.ravel()], axis=1)).reshape(*u.shape, 2)
        _cache[key] = np.concatenate([xy, np.ones((*u.shape, 1))], axis=2)
    return _cache[key]


def _enlarge(background: np.ndarray, s: int) -> np.ndarray:
    return np.repeat(np.repeat(background, s, 0), s, 1).astype(np.float32)


def _window(camera: CameraModel, R, p, half_m: float) -> tuple[slice, slice]:
    """Rows and columns of the sub-pixel grid in which a marker and its margin lie."""
    square = half_m * np.array([[-1.0, 1, 0], [1, 1, 0], [1, -1, 0], [-1, -1, 0]])
    px = camera.project(square @ R.T + p)
    low = np.maximum(np.floor(px.min(0)) - 8, 0).astype(int)
    high = np.maximum(np.minimum(np.ceil(px.max(0)) + 8, [camera.width_px, camera.height_px]), low).astype(int)
    s = OVERSAMPLE
    return slice(low[1] * s, high[1] * s), slice(low[0] * s, high[0] * s)

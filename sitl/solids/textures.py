"""Textures of solids: square tiles that repeat without a seam, drawn from a seed, or an image file."""

from pathlib import Path
from typing import Literal, cast

import cv2
import numpy as np

from companion.core.arrays import Image8
from companion.core.config import ConfigError
from sitl.scene import Backdrop, backdrop_texture
from sitl.solids.world_file import Solid

DRAWN = ("concrete", "grass", "plain", "wallpaper")  # all but the last as a backdrop's
TILE_PX_PER_M, TILE_PX_MAX = 200.0, 1024  # as a backdrop's, but a tile repeats
WALLPAPER = (
    (1 / 6, 15),
    (1 / 12, 30),
    (1 / 24, 80),
    (1 / 48, 160),
    (1 / 96, 320),
)  # size of shapes over the tile's, number
IMAGE_PX_MAX = 4096  # longest side of an image file, keeps a world small in memory


def texture_of(solid: Solid, where: str, folder: Path) -> Image8:
    """Grey image of a solid's texture, shape (h, w); `where` names the file and key in errors, raises `ConfigError`."""
    if solid.texture in DRAWN:
        return _tile(solid.texture, solid.texture_width_m, solid.seed)
    path = folder / solid.texture
    if not path.is_file():
        raise ConfigError(f"{where}.texture = {solid.texture!r}: neither an image file nor one of {', '.join(DRAWN)}")
    image = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
    if image is None:
        raise ConfigError(f"{where}.texture = {solid.texture!r}: {path}: not an image that OpenCV can read")
    if max(image.shape) > IMAGE_PX_MAX:
        raise ConfigError(f"{where}.texture = {solid.texture!r}: {path}: more than {IMAGE_PX_MAX} pixels wide or high")
    return image.astype(np.uint8, copy=False)


def _tile(kind: str, width_m: float, seed: int) -> Image8:
    if kind == "wallpaper":
        return _wallpaper(width_m, seed)
    still, texture = (0.0, 0.0, 0.0), cast(Literal["concrete", "grass", "plain"], kind)
    image = backdrop_texture(Backdrop(p_W=still, rpy_rad=still, size_m=(width_m, width_m), texture=texture, seed=seed))
    if max(image.shape) > TILE_PX_MAX:
        image = cv2.resize(image, (TILE_PX_MAX, TILE_PX_MAX), interpolation=cv2.INTER_AREA).astype(np.uint8)
    return _seamless(image)


def _seamless(image: Image8) -> Image8:
    """Blend an image with itself shifted by half its size, along each axis: the result repeats without a seam."""
    blended = image.astype(float)
    for axis, n in enumerate(image.shape):
        i = np.arange(n)
        weight = np.minimum(1.0, 8.0 * np.minimum(i, n - 1 - i) / n)  # 0 at the edge, 1 from an eighth of the size on
        weight = weight[:, None] if axis == 0 else weight
        blended = weight * blended + (1 - weight) * np.roll(blended, n // 2, axis=axis)
    return np.round(blended).astype(np.uint8)


def _wallpaper(width_m: float, seed: int) -> Image8:
    """Discs and bars of random grey that continue over the edges: many corners at every scale."""
    side = round(min(TILE_PX_MAX, max(64.0, TILE_PX_PER_M * width_m)))
    rng = np.random.default_rng(seed)
    image = np.full((side, side), 128, dtype=np.uint8)
    for part, count in WALLPAPER:
        for _ in range(count):
            _draw_shape(image, side * part, rng)
    return image


def _draw_shape(image: Image8, size: float, rng: np.random.Generator) -> None:
    side = len(image)
    centre, turn, grey, form = rng.uniform(0, side, 2), rng.uniform(0, 180), int(rng.integers(20, 236)), rng.random()
    for shift in np.array([(i, j) for i in (-side, 0, side) for j in (-side, 0, side)]):
        x, y = centre + shift
        if min(x, y) < -size or max(x, y) > side + size:
            continue
        if form < 0.4:
            cv2.circle(image, (round(x), round(y)), round(size / 2), grey, -1, cv2.LINE_AA)
        else:
            corners = cv2.boxPoints(((float(x), float(y)), (size, size * (0.3 + form)), turn))
            cv2.fillConvexPoly(image, np.round(corners).astype(np.int32), grey, cv2.LINE_AA)

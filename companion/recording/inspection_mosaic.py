"""The mosaic of a surface: its photographs put in their places by their poses, as tiles of a pyramid for a viewer.

Each place shows the photograph in which it is most central; nothing is moved to fit, so what does not fit at a seam is
the error of the poses. Tiles are made one after the other: memory does not grow with the surface.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, cast

import cv2
import numpy as np

from companion.core.arrays import Array, Image8, Mask
from companion.planning.camera import CameraPose, PayloadCamera
from companion.planning.surfaces import Surface
from companion.recording.inspection_surface import Pixels, outline, project

TILE_PX = 512
MOSAIC_MAX_PX = 4e8  # of a surface; beyond it the mosaic is coarser than its photographs
JPEG_QUALITY = 85
GROUND = (242, 239, 236)  # blue, green, red where no photograph shows the surface; the viewer has the same
COARSE = 17  # points along a tile's side, where the photographs of a tile are chosen
KEPT_PICTURES = 8  # decoded, about 70 MB each for 24 megapixels
BLURRED_AFTER = 2.0  # in centrality, which is 0 to 1: a blurred photograph shows only where there is no sharp one
Tile = tuple[int, int, int]  # level (0: the whole surface in one tile), column, row from the upper left


class Placed(NamedTuple):
    """A photograph on a surface."""

    file: Path
    pose: CameraPose
    sharp: bool
    near_u: float


class Pyramid(NamedTuple):
    """Tiles of a surface. Level n has width_px, height_px of `sizes[n]`; file: LEVEL/COLUMN_ROW.jpg."""

    pixel_m: float  # at the finest level
    sizes: list[tuple[int, int]]
    tiles: list[list[tuple[int, int]]]  # by level, those with a photograph in them


def read_picture(path: Path) -> Image8 | None:
    """A photograph as its sensor has it, blue, green, red; None when it cannot be decoded."""
    try:
        return decoded(path.read_bytes())
    except OSError:
        return None


def decoded(data: bytes) -> Image8 | None:
    """The bytes of a file as `read_picture` gives them; None when they are no picture."""
    if not data:
        return None
    try:
        flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
        return cast(Image8 | None, cv2.imdecode(np.frombuffer(data, np.uint8), flags))
    except cv2.error:
        return None


class Pictures:
    """Decoded photographs, the last few kept; each shrunk to the mosaic's resolution.

    gsd_m: of the sensor at the stand-off.
    """

    def __init__(self, camera: PayloadCamera, pixel_m: float, gsd_m: float) -> None:
        self._camera, self._pixel_m, self._gsd_m = camera, pixel_m, gsd_m
        self._kept: OrderedDict[Path, Image8 | None] = OrderedDict()

    def get(self, path: Path) -> Image8 | None:
        """The picture, None when it cannot be read."""
        if path in self._kept:
            self._kept.move_to_end(path)
            return self._kept[path]
        picture = read_picture(path)
        if picture is not None:
            # Without this a coarse mosaic would show single pixels of a fine picture.
            own_m = self._gsd_m * self._camera.width_px / picture.shape[1]
            shrink = own_m / self._pixel_m
            if shrink < 0.75:
                size = [max(1, round(length * shrink)) for length in picture.shape[1::-1]]
                picture = cast(Image8, cv2.resize(picture, size, interpolation=cv2.INTER_AREA))
        self._kept[path] = picture
        if len(self._kept) > KEPT_PICTURES:
            self._kept.popitem(last=False)
        return picture


def pixel_size_m(surface: Surface, finest_m: float) -> float:
    """Size of the mosaic's pixels: that of its photographs, or larger for a very large surface."""
    return max(finest_m, math.sqrt(math.prod(surface.size_m) / MOSAIC_MAX_PX))


def level_sizes(surface: Surface, pixel_m: float) -> list[tuple[int, int]]:
    """Width and height of all levels [px], the coarsest first: each has half the pixels of the next along a side."""
    size = (max(1, math.ceil(surface.size_m[0] / pixel_m)), max(1, math.ceil(surface.size_m[1] / pixel_m)))
    sizes = [size]
    while max(sizes[0]) > TILE_PX:
        sizes.insert(0, (math.ceil(sizes[0][0] / 2), math.ceil(sizes[0][1] / 2)))
    return sizes


def write_pyramid(
    folder: Path,
    surface: Surface,
    camera: PayloadCamera,
    placed: Sequence[Placed],
    pixel_m: float,
    pictures: Pictures,
) -> Pyramid:
    """Write all tiles with a photograph in them; raises `OSError`."""
    sizes = level_sizes(surface, pixel_m)
    bounds = [_bounds(camera, surface, shot) for shot in placed]
    finest = len(sizes) - 1
    made: dict[Tile, None] = {}
    columns, rows = (math.ceil(length / TILE_PX) for length in sizes[finest])
    for row in range(rows):
        # Back and forth, so that the next tile needs the same photographs.
        for column in range(columns) if row % 2 == 0 else reversed(range(columns)):
            width, height = (
                min(TILE_PX, length - index * TILE_PX)
                for length, index in zip(sizes[finest], (column, row), strict=True)
            )
            us = _middles(column, width, pixel_m) - surface.size_m[0] / 2
            vs = surface.size_m[1] / 2 - _middles(row, height, pixel_m)
            near = [shot for shot, box in zip(placed, bounds, strict=True) if _meet(box, us, vs)]
            if not near:
                continue
            tile, filled = warped(surface, camera, near, us, vs, pictures)
            if filled.any():
                _write(folder, (finest, column, row), tile)
                made[finest, column, row] = None
    for level in range(finest - 1, -1, -1):
        parents = dict.fromkeys((level, c // 2, r // 2) for n, c, r in made if n == level + 1)
        for parent in parents:
            _write(folder, parent, _halved(folder, parent, sizes, made))
        made |= parents
    tiles = [sorted((c, r) for n, c, r in made if n == level) for level in range(len(sizes))]
    return Pyramid(pixel_m, sizes, tiles)


def _middles(tile: int, length_px: int, pixel_m: float) -> Array:
    """Of the pixels of one tile along a side, from the surface's edge [m]."""
    middles: Array = (tile * TILE_PX + 0.5 + np.arange(length_px, dtype=float)) * pixel_m
    return middles


def warped(
    surface: Surface, camera: PayloadCamera, placed: Sequence[Placed], us: Array, vs: Array, pictures: Pictures
) -> tuple[Image8, Mask]:
    """A picture of a raster of places from the photographs that show them, and where one does, (h, w).

    us: (w,), vs: (h,), coordinates of its columns and rows.
    """
    shape = (len(vs), len(us))
    tile = np.full((*shape, 3), GROUND, np.uint8)
    best = np.full(shape, -np.inf)
    for shot in _chosen(surface, camera, placed, us, vs):
        pixels = project(camera, surface, shot.pose, us, vs)
        score = _centrality(pixels, shot.sharp)
        better = score > best
        if not better.any() or (picture := pictures.get(shot.file)) is None:
            continue
        x, y = (
            ((at + 1) / 2 * length - 0.5).astype(np.float32)
            for at, length in zip((pixels.x, pixels.y), picture.shape[1::-1], strict=True)
        )
        shown = cv2.remap(picture, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        np.copyto(tile, shown.astype(np.uint8, copy=False), where=better[..., None])
        np.copyto(best, score, where=better)
    return tile, np.isfinite(best)


def _chosen(surface: Surface, camera: PayloadCamera, placed: Sequence[Placed], us: Array, vs: Array) -> list[Placed]:
    """The photographs that are the best one somewhere in a tile, by a coarse raster; then the others, for what remains."""
    few = [axis[np.unique(np.linspace(0, len(axis) - 1, COARSE).astype(int))] for axis in (us, vs)]
    scores = np.array([_centrality(project(camera, surface, shot.pose, *few), shot.sharp).ravel() for shot in placed])
    seen = np.isfinite(scores)
    winners = set(np.argmax(scores, axis=0)[seen.any(axis=0)].tolist())
    order = sorted(winners)
    if not seen.any(axis=0).all():
        # Those with a place in the coarse raster first: what is left then lies between its points.
        order += sorted(set(range(len(placed))) - winners, key=lambda i: (not seen[i].any(), i))
    return [placed[i] for i in order]


def _centrality(pixels: Pixels, sharp: bool) -> Array:
    """1 in the middle of a picture, 0 at its edge, -inf outside; (h, w)."""
    inside = 1.0 - np.maximum(np.abs(pixels.x), np.abs(pixels.y))
    score: Array = np.where(pixels.front & (inside >= 0), inside - (0.0 if sharp else BLURRED_AFTER), -np.inf)
    return score


def _bounds(camera: PayloadCamera, surface: Surface, shot: Placed) -> tuple[Array, Array] | None:
    """The box around a photograph on a plane; None: not known, it may be anywhere."""
    edge = outline(camera, surface, shot.pose, shot.near_u)
    if not surface.plane or len(edge) < 4:
        return None
    corners = np.array(edge)
    return corners.min(axis=0), corners.max(axis=0)


def _meet(box: tuple[Array, Array] | None, us: Array, vs: Array) -> bool:
    """Whether a box and a raster have places in common; vs fall."""
    if box is None:
        return True
    low, high = box
    return bool(low[0] <= us[-1] and high[0] >= us[0] and low[1] <= vs[0] and high[1] >= vs[-1])


def tile_name(tile: Tile) -> str:
    """Of a tile's file below the folder of its surface."""
    level, column, row = tile
    return f"{level}/{column}_{row}.jpg"


def _write(folder: Path, tile: Tile, picture: Image8) -> None:
    path = folder / tile_name(tile)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1].tobytes())


def _halved(folder: Path, parent: Tile, sizes: Sequence[tuple[int, int]], made: dict[Tile, None]) -> Image8:
    """A tile from the four of the next finer level."""
    level, column, row = parent
    width, height = (
        min(2 * TILE_PX, length - index * 2 * TILE_PX)
        for length, index in zip(sizes[level + 1], (column, row), strict=True)
    )
    whole = np.full((height, width, 3), GROUND, np.uint8)
    for child in ((level + 1, 2 * column + i, 2 * row + j) for i in (0, 1) for j in (0, 1)):
        if child in made and (picture := read_picture(folder / tile_name(child))) is not None:
            y, x = (child[2] - 2 * row) * TILE_PX, (child[1] - 2 * column) * TILE_PX
            whole[y : y + picture.shape[0], x : x + picture.shape[1]] = picture
    size = (math.ceil(width / 2), math.ceil(height / 2))
    return cast(Image8, cv2.resize(whole, size, interpolation=cv2.INTER_AREA))

"""Regions of interest: the part of the next image in which the bundles are expected.

The region of a bundle is the box around all its corners, seen or hidden, as its last pose projects them. The last two
images give the velocity of the box's centre and of its size (constant velocity in the image). The box is moved to the
time of the new image and widened by a margin on every side. A search of the box costs no accuracy: corners are refined
on the whole image (see `detectors`).

The whole image is searched at the start, every N images, and after an image in which a followed bundle was not found.
While no bundle is seen, the search alternates between full and half resolution.
"""

from dataclasses import dataclass
from math import ceil, floor

import numpy as np

from companion.core.arrays import Array
from companion.tracking.detection import Region

MIN_MARGIN_PX = 16.0  # space for the white surroundings of small markers
MAX_GAP_S = 0.3  # an older observation predicts nothing
FOLLOW_SIDE_PX = 32.0  # markers are searched in a copy in which the smallest still has this side
MIN_SCALE = 0.25
EMPTY_SCALE = 0.5  # every other search while nothing is seen: cheaper, and better at markers that fill the image


@dataclass(frozen=True)
class Box:
    """Box around a bundle: middle (2,) and size (2,) [px], shortest side of a marker [px]."""

    middle: Array
    size: Array
    marker_px: float


@dataclass
class _BoxTrack:
    stamp_s: float
    box: Box
    rate: Array  # of middle and size [px/s], (4,)


@dataclass(frozen=True)
class ImageSearch:
    """The parts of an image to search: regions (None: the whole image), each with its scale."""

    regions: tuple[tuple[Region, float], ...] | None
    scale: float = 1.0


class RegionKeeper:
    """Chooses the search of each image from the observations in the images before.

    margin: of the box's size, on every side; full_every: images between searches of the whole image.
    """

    def __init__(self, width_px: int, height_px: int, margin: float, full_every: int) -> None:
        self._image = (width_px, height_px)
        self._margin, self._full_every = margin, full_every
        self._tracks: dict[str, _BoxTrack] = {}
        self._since_full = 0
        self._lost = False
        self._empty = 0

    def next_search(self, stamp_s: float) -> ImageSearch:
        """The search for the image of that time."""
        self._tracks = {n: t for n, t in self._tracks.items() if 0 < stamp_s - t.stamp_s <= MAX_GAP_S}
        self._since_full += 1
        if not self._tracks or self._lost or self._since_full >= self._full_every:
            return self.full_search()
        predicted = [self._predict(t, stamp_s) for t in self._tracks.values()]
        if not all(predicted):
            return self.full_search()
        return ImageSearch(tuple(_merge([p for p in predicted if p is not None])))

    def full_search(self) -> ImageSearch:
        """The search of the whole image."""
        self._since_full = 0
        return ImageSearch(None, EMPTY_SCALE if self._empty % 2 == 1 else 1.0)

    def seen(self, stamp_s: float, boxes: dict[str, Box]) -> None:
        """Record the bundles found in the image of that time."""
        self._lost = any(name not in boxes for name in self._tracks)
        self._empty = 0 if boxes else self._empty + 1
        tracks = {}
        for name, box in boxes.items():
            rate = np.zeros(4)
            if (old := self._tracks.get(name)) is not None and stamp_s > old.stamp_s:
                change = np.concatenate([box.middle - old.box.middle, box.size - old.box.size])
                rate = change / (stamp_s - old.stamp_s)
            tracks[name] = _BoxTrack(stamp_s, box, rate)
        self._tracks = tracks

    def _predict(self, track: _BoxTrack, stamp_s: float) -> tuple[Region, float] | None:
        """Region and scale for one bundle; None when it should have left the image."""
        box, dt = track.box, stamp_s - track.stamp_s  # plain floats: NumPy takes ten times as long for so few
        rates, middles, sizes = track.rate.tolist(), box.middle.tolist(), box.size.tolist()
        sizes = [max(size + rate * dt, 0.5 * size) for size, rate in zip(sizes, rates[2:], strict=True)]
        margin = max(self._margin * max(sizes), MIN_MARGIN_PX)
        low, extent = [], []
        for middle, rate, size, end in zip(middles, rates[:2], sizes, self._image, strict=True):
            middle, half = middle + rate * dt, 0.5 * size + margin
            first, last = max(floor(middle - half), 0), min(ceil(middle + half), end)
            if last - first < MIN_MARGIN_PX:
                return None
            low.append(first)
            extent.append(last - first)
        scale = min(max(FOLLOW_SIDE_PX / max(box.marker_px, 1.0), MIN_SCALE), 1.0)
        return (low[0], low[1], extent[0], extent[1]), scale


def _merge(regions: list[tuple[Region, float]]) -> list[tuple[Region, float]]:
    """The regions with overlapping ones joined, so that no marker is found twice or cut by a border."""
    merged: list[tuple[Region, float]] = []
    for (x, y, w, h), scale in regions:
        again = True
        while again:
            again = False
            for i, ((ox, oy, ow, oh), other) in enumerate(merged):
                if x < ox + ow and ox < x + w and y < oy + oh and oy < y + h:
                    x1, y1 = max(x + w, ox + ow), max(y + h, oy + oh)
                    x, y = min(x, ox), min(y, oy)
                    w, h, scale = x1 - x, y1 - y, max(scale, other)
                    merged.pop(i)
                    again = True
                    break
        merged.append(((x, y, w, h), scale))
    return merged

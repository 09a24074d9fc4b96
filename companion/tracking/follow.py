"""Following: markers of the last image are found again without searching.

The corners of the last two images predict those of the next one (constant velocity from image to image), and what
all markers moved besides is taken from a first look. The edges are refined from there with a wider search, and the
cells are read at the place found: only a marker whose edges were seen near the prediction and whose cells are those
of its id counts. If any followed marker of a region fails, the region is searched as usual, so a wrong prediction
costs time and nothing else. The refinement is the one of the search (`edges`), hence so are the corners.
"""

import numpy as np

from companion.tracking.decode import SecondLook
from companion.tracking.detection import Detection, Detector, Region, check_image
from companion.tracking.edges import refine_corners

# How far a prediction may be off: of the side, and at most. A square of eight cells has one cell per 0.125 of its side.
UNCERTAINTY_OF_SIDE, UNCERTAINTY_MAX_PX = 0.10, 5.0
COMMON_SHIFT_PX = 2.0  # a larger one of all markers together is the camera's acceleration: refined once more from there
SEARCH_EVERY = 3  # images followed in a row while a wanted marker is missing: it may have come into view
MIN_SIDE_PX = 10.0  # predicted sides below are not followed
MIN_WHITE_PX = 3.0  # room around a predicted square to see that it is surrounded by white

Key = tuple[str, int]


class Follower:
    """A detector that follows what it found, and asks `search` for everything else.

    looks: the decoder of each family. wanted: the ids per family, as for the search; None (all) is never complete.
    """

    def __init__(self, search: Detector, looks: list[SecondLook], wanted: dict[str, set[int] | None]) -> None:
        self._search, self._looks = search, {look.family.name: look for look in looks}
        self._all = None if None in wanted.values() else {(f, i) for f, ids in wanted.items() for i in ids}
        self._last: dict[Key, np.ndarray] = {}  # corners (4, 2)
        self._step: dict[Key, np.ndarray] = {}  # their change since the image before
        self._followed = 0

    def detect(self, gray: np.ndarray, region: Region | None = None, scale: float = 1.0) -> list[Detection]:
        """See `Detector.detect`."""
        check_image(gray)
        if region is None:
            found = self._search.detect(gray, None, scale)
            self._remember(list(self._last), found)
            self._followed = SEARCH_EVERY  # something missing may be hidden in one resolution only: search once more
            return found
        predicted = {k: c for k in self._last if _lies_in(c := self._last[k] + self._step.get(k, 0.0), region)}
        complete = self._all is not None and self._last.keys() == self._all
        found = None
        if predicted and (complete or self._followed < SEARCH_EVERY):
            self._followed += 1
            found = self._follow(gray, predicted)
        if found is None:
            self._followed = 0
            found = self._search.detect(gray, region, scale)
        self._remember(list(predicted), found)
        return found

    def _follow(self, gray: np.ndarray, predicted: dict[Key, np.ndarray]) -> list[Detection] | None:
        """All predicted markers where they are now, or None when one of them is not confirmed."""
        keys, corners = list(predicted), np.array(list(predicted.values()))
        side = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2).min(1)
        room = np.array(gray.shape[::-1]) - 1 - MIN_WHITE_PX
        if side.min() < MIN_SIDE_PX or corners.min() < MIN_WHITE_PX or (corners > room).any():
            return None
        uncertainty_px = np.minimum(UNCERTAINTY_OF_SIDE * side, UNCERTAINTY_MAX_PX)
        refined, seen = refine_corners(gray, corners, uncertainty_px)
        if not seen.any():
            return None
        shift = np.median((refined - corners)[seen], axis=0)
        if np.linalg.norm(shift) > COMMON_SHIFT_PX:
            corners = corners + shift
            refined, seen = refine_corners(gray, corners, uncertainty_px)
        # an edge found farther away than was looked for may be another one
        if not seen.all() or (np.linalg.norm(refined - corners, axis=2).max(1) > uncertainty_px).any():
            return None
        corners = refined
        for name, look in self._looks.items():
            mine = [i for i, (family, _) in enumerate(keys) if family == name]
            if mine and not look.confirm(gray, corners[mine], np.array([keys[i][1] for i in mine])).all():
                return None
        return [Detection(family, id, c) for (family, id), c in zip(keys, corners, strict=True)]

    def _remember(self, looked_for: list[Key], found: list[Detection]) -> None:
        """Keep what was found, but nothing that was seen twice: which of the two to follow nobody knows."""
        before = {key: self._last.pop(key) for key in looked_for if key in self._last}
        for key in looked_for:
            self._step.pop(key, None)
        keys = [(d.family, d.id) for d in found]
        for key, d in zip(keys, found, strict=True):
            if keys.count(key) == 1:
                self._last[key] = d.corners_px
                if key in before:
                    self._step[key] = d.corners_px - before[key]


def _lies_in(corners: np.ndarray, region: Region) -> bool:
    x, y, w, h = region
    middle_x, middle_y = corners.mean(0)
    return x <= middle_x < x + w and y <= middle_y < y + h

"""Following: markers of the last image are found again without a search.

The corners of the last two images predict those of the next one (constant velocity from image to image). A first
refinement gives the common shift of all markers beyond this prediction. The edges are refined from there with a wider
search range, and the cells are read at the place found. A marker counts only if its edges were seen near the prediction
and its cells are those of its id. If any followed marker of a region fails, the region is searched as usual: a wrong
prediction costs time and nothing else. The corners equal those of a search, because the refinement (`edges`) is the
same.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from companion.core.arrays import Array, Image8
from companion.tracking.decode import SecondDecoder
from companion.tracking.detection import Detection, Detector, Region, check_image
from companion.tracking.edges import refine_corners

# Largest error of a prediction: of the side, and in pixels. A square of eight cells has one cell per 0.125 of its side.
UNCERTAINTY_OF_SIDE, UNCERTAINTY_MAX_PX = 0.10, 5.0
COMMON_SHIFT_PX = (
    2.0  # a larger common shift comes from the camera's acceleration: then the corners are refined again from there
)
SEARCH_EVERY = (
    3  # images followed in a row while a known marker is missing; then a search, for it may have come into view
)
MIN_SIDE_PX = 10.0  # markers with a shorter predicted side are not followed
MIN_WHITE_PX = 3.0  # margin around a predicted square in which the white surroundings must lie

Key = tuple[str, int]


class Follower:
    """A detector that follows the markers of the last image and uses `search` for all others.

    decoders: one for each family. wanted: the ids per family, as for the search; with None (all ids) the set of found
    markers is never complete.
    """

    def __init__(
        self, search: Detector, decoders: Sequence[SecondDecoder], wanted: Mapping[str, AbstractSet[int] | None]
    ) -> None:
        self._search, self._decoders = search, {decoder.family.name: decoder for decoder in decoders}
        known = [{(family, i) for i in ids} for family, ids in wanted.items() if ids is not None]
        self._all: set[Key] | None = set().union(*known) if len(known) == len(wanted) else None
        self._last: dict[Key, Array] = {}  # corners (4, 2)
        self._step: dict[Key, Array] = {}  # their change since the image before
        self._followed = 0

    def detect(self, gray: Image8, region: Region | None = None, scale: float = 1.0) -> list[Detection]:
        """See `Detector.detect`."""
        check_image(gray)
        if region is None:
            found = self._search.detect(gray, None, scale)
            self._remember(list(self._last), found)
            self._followed = SEARCH_EVERY  # a missing marker may be visible at the other resolution: search once more
            return found
        predicted = {k: c for k in self._last if _lies_in(c := self._last[k] + self._step.get(k, 0.0), region)}
        complete = self._all is not None and self._last.keys() == self._all
        followed = None
        if predicted and (complete or self._followed < SEARCH_EVERY):
            self._followed += 1
            followed = self._follow(gray, predicted)
        if followed is None:
            self._followed = 0
            followed = self._search.detect(gray, region, scale)
        self._remember(list(predicted), followed)
        return followed

    def _follow(self, gray: Image8, predicted: dict[Key, Array]) -> list[Detection] | None:
        """All predicted markers at their present places, or None when one of them is not confirmed."""
        keys, corners = list(predicted), np.array(list(predicted.values()))
        side = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2).min(1)
        largest = np.array(gray.shape[::-1]) - 1 - MIN_WHITE_PX
        if side.min() < MIN_SIDE_PX or corners.min() < MIN_WHITE_PX or (corners > largest).any():
            return None
        uncertainty_px = np.minimum(UNCERTAINTY_OF_SIDE * side, UNCERTAINTY_MAX_PX)
        refined, seen = refine_corners(gray, corners, uncertainty_px)
        if not seen.any():
            return None
        shift = np.median((refined - corners)[seen], axis=0)
        if np.linalg.norm(shift) > COMMON_SHIFT_PX:
            corners = corners + shift
            refined, seen = refine_corners(gray, corners, uncertainty_px)
        # An edge found farther away than the search range may be another one.
        if not seen.all() or (np.linalg.norm(refined - corners, axis=2).max(1) > uncertainty_px).any():
            return None
        corners = refined
        for name, decoder in self._decoders.items():
            mine = [i for i, (family, _) in enumerate(keys) if family == name]
            if mine and not decoder.confirm(gray, corners[mine], np.array([keys[i][1] for i in mine])).all():
                return None
        return [Detection(family, id, c) for (family, id), c in zip(keys, corners, strict=True)]

    def _remember(self, looked_for: list[Key], found: list[Detection]) -> None:
        """Keep the found markers; a marker that was seen twice is ambiguous and is not followed."""
        before = {key: self._last.pop(key) for key in looked_for if key in self._last}
        for key in looked_for:
            self._step.pop(key, None)
        keys = [(d.family, d.id) for d in found]
        for key, d in zip(keys, found, strict=True):
            if keys.count(key) == 1:
                self._last[key] = d.corners_px
                if key in before:
                    self._step[key] = d.corners_px - before[key]


def _lies_in(corners: Array, region: Region) -> bool:
    x, y, w, h = region
    middle_x, middle_y = corners.mean(0)
    return bool(x <= middle_x < x + w and y <= middle_y < y + h)

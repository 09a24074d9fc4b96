"""Which picture of a camera's card is which photograph of a log: by its name, by the camera's count, or by its time.

A picture that fits two photographs as well belongs to neither: it is listed as without a photograph, and both as without a picture.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from companion.core.enums import CaptureOutcome
from companion.core.errors import UserError
from companion.core.exif import taken
from companion.core.messages import Capture
from companion.payload.tags import TagError

SUFFIXES = (".jpg", ".jpeg")
TOLERANCE_S = 1.5  # of a picture's time: a camera's clock has whole seconds
TAKEN = (CaptureOutcome.TAKEN, CaptureOutcome.BLURRED)
CLOCKS_DIFFER_S = 2.0  # between two pictures and the log: whole seconds, and the walk of a camera's clock in a flight


class MatchError(UserError):
    """Pictures and log cannot be brought together; one line."""


class Matched(NamedTuple):
    """Pairs in the order of the log, and what has no partner."""

    pairs: list[tuple[Path, Capture]]
    without_picture: list[Capture]
    without_photograph: list[Path]


class MatchOptions(NamedTuple):
    """How pictures are matched: by "name", "index" or "time"; None: by name, where none fits by index.

    first_index: the camera's count of the first picture; ahead_s: of the camera's clock before UTC; tolerance_s: of a picture's time.
    """

    by: str | None = None
    first_index: int | None = None
    ahead_s: float = 0.0
    tolerance_s: float = TOLERANCE_S


def matched_pictures(
    folder: Path, captures: Sequence[Capture], options: MatchOptions, utc_offset_s: float, log: Path
) -> Matched:
    """The pictures of a folder and the photographs of a log; raises `MatchError` where they cannot be brought together.

    utc_offset_s: UTC minus companion time, NaN unknown.
    """
    by, photographs = options.by, photographs_of(captures)
    if not photographs:
        raise MatchError(f"{log}: holds no photographs of a payload camera")
    pictures = pictures_in(folder)
    if by == "time":
        if not math.isfinite(utc_offset_s):
            raise MatchError(f"{log}: does not say what time it was; match by count (--by index)")
        return by_time(pictures, photographs, utc_offset_s, options.ahead_s, options.tolerance_s, folder)
    found = by_name(pictures, photographs) if by in (None, "name") else None
    if found is None or (by is None and not found.pairs):
        found = by_index(pictures, photographs, options.first_index, folder, failed_counts(captures))
    return found


def pictures_in(folder: Path) -> list[Path]:
    """The JPEG files of a folder, in the order of a camera's numbering; raises `MatchError` when there are none."""
    try:
        found = [path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file()]
    except OSError as error:
        raise MatchError(f"{folder}: {error.strerror}") from None
    if not found:
        raise MatchError(f"{folder}: no pictures (*.jpg)")
    return sorted(
        found, key=lambda path: [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", path.name)]
    )


def photographs_of(captures: Sequence[Capture]) -> list[Capture]:
    """The photographs that were taken, each once, in the order of their exposures."""
    newest = {(c.id, c.attempt): c for c in captures if c.outcome in TAKEN}
    return sorted(newest.values(), key=lambda c: c.stamp_s)


def by_name(pictures: Sequence[Path], photographs: Sequence[Capture]) -> Matched:
    """By the file that the camera reported with the photograph.

    A camera begins a new folder with the same names: of several photographs with a picture's name those count whose path has most of
    its last parts.
    """
    named = {picture.name: picture for picture in pictures}
    wanted = [(named.get(Path(c.file).name) if c.file else None, c) for c in photographs]
    best: dict[Path, int] = {}
    for picture, capture in wanted:
        if picture is not None:
            best[picture] = max(best.get(picture, 0), _common_parts(picture, capture.file))
    found = [(p if p is not None and _common_parts(p, c.file) == best[p] else None, c) for p, c in wanted]
    return _matched(pictures, found)


def _common_parts(picture: Path, file: str) -> int:
    """How many of the last parts of two paths are equal."""
    pairs = zip(reversed(picture.parts), reversed(Path(file).parts), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def failed_counts(captures: Sequence[Capture]) -> frozenset[int]:
    """The camera's counts of photographs that it reported as failed: there is no file of them."""
    taken = {c.image_index for c in captures if c.outcome in TAKEN}
    return frozenset(c.image_index for c in captures if c.outcome is CaptureOutcome.REFUSED) - taken - {-1}


def by_index(
    pictures: Sequence[Path],
    photographs: Sequence[Capture],
    first_index: int | None,
    where: Path,
    failed: Collection[int] = (),
) -> Matched:
    """By the camera's count: one picture for each number, in order.

    first_index: count of the first picture; None: the folder holds the pictures of this flight and no others. failed: counts
    without a picture. Raises `MatchError` where their numbers differ, where the camera did not count, and where the times
    of the pictures contradict those of the log.
    """
    counted = [c for c in photographs if c.image_index >= 0]
    if not counted:
        raise MatchError(f"{where}: the log's camera did not count its photographs; match by time (--by time)")
    indices = [c.image_index for c in counted]
    if first_index is None:
        first_index = min(indices)
        without = sum(first_index < index < max(indices) for index in failed)
        expected = max(indices) - first_index + 1 - without
        if expected != len(pictures):
            failures = f", {without} of them failed" if without else ""
            raise MatchError(
                f"{where}: {len(pictures)} pictures, and the camera counted {expected + without} from {first_index} to "
                f"{max(indices)} in the log{failures}; name the count of the first picture (--first-index), or match by time "
                "(--by time)"
            )
    counts = (index for index in itertools.count(first_index) if index not in failed)
    numbered = dict(zip(counts, pictures, strict=False))
    matched = _matched(pictures, [(numbered.get(c.image_index), c) for c in photographs])
    _check_times(matched.pairs, where)
    return matched


def _check_times(pairs: Sequence[tuple[Path, Capture]], where: Path) -> None:
    """Compare how long after the first picture each was taken with the log; raises `MatchError`.

    The camera's clock may be wrong by any time. It has whole seconds at least.
    """
    timed = [(picture, capture, taken_s) for picture, capture in pairs if (taken_s := _taken_s(picture)) is not None]
    for picture, capture, taken_s in timed:
        first, first_capture, first_s = timed[0]
        after_s, logged_s = taken_s - first_s, capture.stamp_s - first_capture.stamp_s
        if abs(after_s - logged_s) > CLOCKS_DIFFER_S:
            raise MatchError(
                f"{where}: {picture.name} was taken {after_s:.0f} s after {first.name}, and photograph {capture.id} of the log "
                f"{logged_s:.0f} s after photograph {first_capture.id}: their counts do not belong together; take out pictures "
                "that are not of this flight, name the count of the first picture (--first-index), or match by time (--by time)"
            )


def by_time(
    pictures: Sequence[Path],
    photographs: Sequence[Capture],
    utc_offset_s: float,
    ahead_s: float,
    tolerance_s: float,
    where: Path,
) -> Matched:
    """By DateTimeOriginal: each picture to the nearest photograph.

    utc_offset_s: UTC minus companion time. ahead_s: time of the camera's clock minus UTC. Raises `MatchError` for two pictures of one photograph.
    """
    pairs: dict[int, Path] = {}
    for picture in pictures:
        taken_s = _taken_s(picture)
        if taken_s is None or not photographs:
            continue
        companion_s = taken_s - ahead_s - utc_offset_s
        nearest = min(range(len(photographs)), key=lambda i: abs(photographs[i].stamp_s - companion_s))
        if abs(photographs[nearest].stamp_s - companion_s) > tolerance_s:
            continue
        if nearest in pairs:
            raise MatchError(
                f"{where}: {pairs[nearest].name} and {picture.name} are both within {tolerance_s:g} s of photograph "
                f"{photographs[nearest].id}; match by count (--by index), or choose a smaller --tolerance"
            )
        pairs[nearest] = picture
    return _matched(pictures, [(pairs.get(i), c) for i, c in enumerate(photographs)])


def _matched(pictures: Sequence[Path], found: Sequence[tuple[Path | None, Capture]]) -> Matched:
    times = Counter(picture for picture, _ in found if picture is not None)
    pairs = [(picture, capture) for picture, capture in found if picture is not None and times[picture] == 1]
    without = [capture for picture, capture in found if picture is None or times[picture] > 1]
    return Matched(pairs, without, [picture for picture in pictures if times[picture] != 1])


def _taken_s(picture: Path) -> float | None:
    """DateTimeOriginal as seconds since 1970, by the camera's clock as if it were UTC unless the file names its offset."""
    try:
        found = taken(picture)
    except ImportError:
        raise TagError("times of pictures cannot be read: Pillow is missing; install the extra 'photographs'") from None
    return None if found is None else found.clock_s

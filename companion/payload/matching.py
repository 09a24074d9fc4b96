"""Which picture of a camera's card is which photograph of a log: by its name, by the camera's count, or by its time."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from companion.core.enums import CaptureOutcome
from companion.core.errors import UserError
from companion.core.messages import Capture

SUFFIXES = (".jpg", ".jpeg")
TAKEN = (CaptureOutcome.TAKEN, CaptureOutcome.BLURRED)


class MatchError(UserError):
    """Pictures and log cannot be brought together; one line."""


class Matched(NamedTuple):
    """Pairs in the order of the log, and what has no partner."""

    pairs: list[tuple[Path, Capture]]
    without_picture: list[Capture]
    without_photograph: list[Path]


def pictures_in(folder: Path) -> list[Path]:
    """The JPEG files of a folder, in the order of a camera's numbering; raises `MatchError` when there are none."""
    try:
        found = [path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file()]
    except OSError as error:
        raise MatchError(f"{folder}: {error.strerror}") from None
    if not found:
        raise MatchError(f"{folder}: no pictures (*.jpg)")
    return sorted(
        found, key=lambda path: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name)]
    )


def photographs_of(captures: Sequence[Capture]) -> list[Capture]:
    """The photographs that were taken, each once, in the order of their exposures."""
    newest = {(c.id, c.attempt): c for c in captures if c.outcome in TAKEN}
    return sorted(newest.values(), key=lambda c: c.stamp_s)


def by_name(pictures: Sequence[Path], photographs: Sequence[Capture]) -> Matched:
    """By the file that the camera reported with the photograph."""
    named = {picture.name: picture for picture in pictures}
    return _matched(pictures, [(named.get(Path(c.file).name) if c.file else None, c) for c in photographs])


def by_index(pictures: Sequence[Path], photographs: Sequence[Capture], first_index: int | None, where: Path) -> Matched:
    """By the camera's count: one picture for each number, in order.

    first_index: count of the first picture; None: the folder holds the pictures of this flight and no others. Raises `MatchError`
    where their numbers differ, or where the camera did not count.
    """
    counted = [c for c in photographs if c.image_index >= 0]
    if not counted:
        raise MatchError(f"{where}: the log's camera did not count its photographs; match by time (--by time)")
    indices = [c.image_index for c in counted]
    if first_index is None:
        first_index = min(indices)
        expected = max(indices) - first_index + 1
        if expected != len(pictures):
            raise MatchError(
                f"{where}: {len(pictures)} pictures, and the camera counted {expected} from {first_index} to {max(indices)} in "
                "the log; name the count of the first picture (--first-index), or match by time (--by time)"
            )
    numbered = dict(enumerate(pictures, first_index))
    return _matched(pictures, [(numbered.get(c.image_index), c) for c in photographs])


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
    pairs = [(picture, capture) for picture, capture in found if picture is not None]
    used = {picture for picture, _ in pairs}
    return Matched(pairs, [c for p, c in found if p is None], [p for p in pictures if p not in used])


def _taken_s(picture: Path) -> float | None:
    """DateTimeOriginal as seconds since 1970, by the camera's clock as if it were UTC unless the file names its offset."""
    from companion.payload.tags import DATE_ORIGINAL, EXIF_IFD, OFFSET_ORIGINAL, SUBSECOND_ORIGINAL, TagError

    try:
        from PIL import Image
    except ImportError:
        raise TagError("times of pictures cannot be read: Pillow is missing; install the extra 'photographs'") from None
    try:
        with Image.open(picture) as opened:
            tags = opened.getexif().get_ifd(EXIF_IFD)
        moment = datetime.strptime(str(tags[DATE_ORIGINAL]).strip("\0 "), "%Y:%m:%d %H:%M:%S").replace(tzinfo=UTC)
    except Exception:  # noqa: BLE001 - Pillow raises many kinds for broken files
        return None
    seconds = moment.timestamp()
    subsecond = str(tags.get(SUBSECOND_ORIGINAL, "")).strip("\0 ")
    if subsecond.isdigit():
        seconds += int(subsecond) / 10 ** len(subsecond)
    offset = re.fullmatch(r"([+-])(\d\d):(\d\d)", str(tags.get(OFFSET_ORIGINAL, "")).strip("\0 "))
    if offset:
        sign, hours, minutes = offset.groups()
        seconds -= (1 if sign == "+" else -1) * (3600 * int(hours) + 60 * int(minutes))
    return seconds

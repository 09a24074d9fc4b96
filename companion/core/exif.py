"""When a picture was taken, as its EXIF data say (EXIF 2.3, JEITA CP-3451C). Needs Pillow (extra `photographs`)."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

EXIF_IFD = 0x8769
DATE_ORIGINAL, OFFSET_ORIGINAL, SUBSECOND_ORIGINAL = 0x9003, 0x9011, 0x9291


class Taken(NamedTuple):
    """DateTimeOriginal."""

    clock_s: float  # seconds since 1970; by the camera's clock as if it were UTC where it has no offset
    has_offset: bool  # the file names the offset of the camera's clock from UTC


def taken(picture: Path) -> Taken | None:
    """When a picture was taken; None: it does not say. Raises `ImportError` without Pillow."""
    from PIL import Image

    try:
        with Image.open(picture) as opened:
            tags = opened.getexif().get_ifd(EXIF_IFD)
        moment = datetime.strptime(str(tags[DATE_ORIGINAL]).strip("\0 "), "%Y:%m:%d %H:%M:%S").replace(tzinfo=UTC)
    except Exception:  # noqa: BLE001 - Pillow raises many kinds for broken files
        return None
    seconds = moment.timestamp()
    subsecond = str(tags.get(SUBSECOND_ORIGINAL, "")).strip("\0 ")
    if subsecond.isdecimal():
        seconds += int(subsecond) / 10 ** len(subsecond)
    offset = re.fullmatch(r"([+-])(\d\d):(\d\d)", str(tags.get(OFFSET_ORIGINAL, "")).strip("\0 "))
    if offset:
        sign, hours, minutes = offset.groups()
        seconds -= (1 if sign == "+" else -1) * (3600 * int(hours) + 60 * int(minutes))
    return Taken(seconds, offset is not None)

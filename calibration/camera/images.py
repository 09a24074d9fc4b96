"""Photographs for the calibration of a camera: which files, read as the sensor saw them.

Phones turn a picture by a note in its EXIF data, not by its pixels. The lens belongs to the pixels, so the note is
ignored: pictures held upright and across have one size and one calibration.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import cv2
import numpy as np

from calibration.results import DataError
from companion.core.arrays import Array
from companion.tracking.cameras import SUFFIXES

NAMED_FILES = 3  # so many are named in an error, the rest is counted


def image_files(paths: Iterable[Path]) -> list[Path]:
    """The images of folders and the files named, in the order of their names; raises `DataError`."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = [p for p in path.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file()]
            if not inside:
                raise DataError(f"{path}: the folder holds no images ({' '.join(SUFFIXES)})")
            files += sorted(inside, key=lambda p: _natural(p.name))
        elif path.is_file():
            files.append(path)
        else:
            raise DataError(f"{path}: no such file or folder")
    return list(dict.fromkeys(files))


def read_gray(path: Path) -> Array | None:
    """The image as 8 bit grey, not turned; None if it cannot be read."""
    try:
        return cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_GRAYSCALE | cv2.IMREAD_IGNORE_ORIENTATION)
    except (cv2.error, OSError):
        return None


def read_all(files: list[Path], unreadable: dict[str, str]) -> Iterator[tuple[Path, Array]]:
    """The images one by one; files that are no image go into `unreadable`, name → reason.

    Raises `DataError` after the last when the images have several sizes.
    """
    sizes: dict[tuple[int, int], list[str]] = defaultdict(list)
    for path in files:
        gray = read_gray(path)
        if gray is None:
            unreadable[path.name] = "cannot be read as an image"
            continue
        sizes[gray.shape[1], gray.shape[0]].append(path.name)
        if len(sizes) > 1:
            continue  # only the sizes of the others are still of interest
        yield path, gray
    if len(sizes) > 1:
        raise DataError(f"images of mixed sizes: {'; '.join(_told(*item) for item in _by_number(sizes))}")


def _by_number(sizes: dict) -> list:
    return sorted(sizes.items(), key=lambda item: -len(item[1]))


def _told(size: tuple[int, int], names: list[str]) -> str:
    more = f" and {len(names) - NAMED_FILES} more" if len(names) > NAMED_FILES else ""
    return f"{size[0]} x {size[1]} px ({', '.join(names[:NAMED_FILES])}{more})"


def _natural(name: str) -> list:
    """Sorts 2.jpg before 10.jpg."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]

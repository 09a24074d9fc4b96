"""Photographs for the calibration of a camera: their files, read in the orientation of the sensor.

Phones rotate a picture by an entry in its EXIF data, not by its pixels. The lens belongs to the pixels, so the entry is
ignored: upright and landscape pictures have one size and one calibration.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import cv2
import numpy as np

from calibration.camera.problem import Problem, ProblemKind
from calibration.results import DataError
from companion.core.arrays import Image8
from companion.tracking.cameras import SUFFIXES

NAMED_FILES = 3  # number of files named in an error; the others are counted


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


def read_gray(path: Path) -> Image8 | None:
    """The image in 8 bit grey, not rotated; None if it cannot be read."""
    try:
        gray = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_GRAYSCALE | cv2.IMREAD_IGNORE_ORIENTATION)
    except (cv2.error, OSError):
        return None
    return None if gray is None else gray.astype(np.uint8, copy=False)


def read_all(files: list[Path], unreadable: dict[str, Problem]) -> Iterator[tuple[Path, Image8]]:
    """The images one by one; a file that is not an image is added to `unreadable`, name → reason.

    Raises `DataError` after the last when the images have several sizes.
    """
    sizes: dict[tuple[int, int], list[str]] = defaultdict(list)
    for path in files:
        gray = read_gray(path)
        if gray is None:
            unreadable[path.name] = Problem(ProblemKind.UNREADABLE)
            continue
        sizes[gray.shape[1], gray.shape[0]].append(path.name)
        if len(sizes) > 1:
            continue  # only the sizes of the others are still needed
        yield path, gray
    if len(sizes) > 1:
        raise DataError(f"images of mixed sizes: {'; '.join(_listed(*item) for item in _by_number(sizes))}")


def _by_number(sizes: dict[tuple[int, int], list[str]]) -> list[tuple[tuple[int, int], list[str]]]:
    return sorted(sizes.items(), key=lambda item: -len(item[1]))


def _listed(size: tuple[int, int], names: list[str]) -> str:
    more = f" and {len(names) - NAMED_FILES} more" if len(names) > NAMED_FILES else ""
    return f"{size[0]} x {size[1]} px ({', '.join(names[:NAMED_FILES])}{more})"


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Sorts 2.jpg before 10.jpg."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]

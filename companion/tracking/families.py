"""Marker families: the black and white cells of each printed marker.

A family is one of the names a marker file may use, or ``dictionary:PATH`` for the user's own dictionary in OpenCV's
YAML format (keys nmarkers, markersize, maxCorrectionBits, marker_0 …).

"As printed" means the publisher's picture of the marker held upright. OpenCV's AprilTag dictionaries were rotated by
half a turn against the pictures of AprilRobotics (opencv/opencv#28823, later corrected). The orientation of the
installed version is therefore measured when the dictionary is loaded, and the detector rotates the corners accordingly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from pathlib import Path

import cv2
import numpy as np

from companion.core.arrays import Image8
from companion.core.config import ConfigError
from companion.core.site import CUSTOM_PREFIX, KNOWN_FAMILIES, STAG_LIBRARIES, STAG_PREFIX

_PREDEFINED = {
    "aruco_4x4_50": cv2.aruco.DICT_4X4_50,
    "aruco_5x5_100": cv2.aruco.DICT_5X5_100,
    "aruco_6x6_250": cv2.aruco.DICT_6X6_250,
    "aruco_6x6_1000": cv2.aruco.DICT_6X6_1000,
    "aruco_mip_36h12": cv2.aruco.DICT_ARUCO_MIP_36h12,
    "apriltag_16h5": cv2.aruco.DICT_APRILTAG_16h5,
    "apriltag_25h9": cv2.aruco.DICT_APRILTAG_25h9,
    "apriltag_36h11": cv2.aruco.DICT_APRILTAG_36h11,
}
# The cells of tag number 0, row by row from the top left, as on AprilRobotics' picture of it (1: white).
_APRILTAG_0 = {
    "apriltag_16h5": "0010 0011 0001 1011",
    "apriltag_25h9": "10101 01011 10010 11111 10001",
    "apriltag_36h11": "110101 011101 011000 101000 010110 000100",
}
# Bits that may be corrected; versions of OpenCV have different tables. OpenCV multiplies by its error correction rate of
# 0.6, the second decoding by less. Codes that are 12, 11 and 9 bits apart can correct 5, 5 and 4 in theory; OpenCV then
# corrects 3, 3 and 2. Those of 16h5 are 5 apart and have 16 bits only: with one corrected bit 3.1 % of all squares with random
# cells are one of its 30 tags in one of 4 turns, 17 x 4 x 30 of 65536; without correction 0.18 %.
CORRECTION_RATE = 0.6
_CORRECTABLE = {"aruco_mip_36h12": 5, "apriltag_16h5": 0, "apriltag_25h9": 4, "apriltag_36h11": 5}
# Wrong cells that must not make the marker of one family that of another, where none are corrected.
LEAST_APART = 2
# Limits of the user's own dictionary: fewer cells hold no code, more are unreadable at any useful distance.
CELLS_ALLOWED = (3, 16)
MAX_CODES = 100_000


@dataclass(frozen=True)
class SquareFamily:
    """Square markers with a grid of cells inside a black border one cell wide.

    ``turns``: quarter turns, clockwise, from OpenCV's first corner to the top left corner as printed.
    """

    name: str
    dictionary: cv2.aruco.Dictionary
    turns: int

    @property
    def cells(self) -> int:
        """Cells along one side, without the border."""
        return self.dictionary.markerSize

    @property
    def corrected(self) -> int:
        """Wrong cells of a marker that the detector corrects."""
        return int(self.dictionary.maxCorrectionBits * CORRECTION_RATE)

    def all_bits(self) -> Image8:
        """The cells of all markers as printed, shape (number, cells, cells), 1: white."""
        bits = [self._bits(i) for i in range(self.dictionary.bytesList.shape[0])]
        return np.stack([np.rot90(b, self.turns) for b in bits])

    def picture(self, id: int, cell_px: int = 1) -> Image8:
        """The marker as printed with its black border, without white margin, uint8 (0 and 255)."""
        cells = np.pad(np.rot90(self._bits(id), self.turns), 1)
        return np.kron(cells, np.ones((cell_px, cell_px), np.uint8)).astype(np.uint8) * 255

    def _bits(self, id: int) -> Image8:
        row = self.dictionary.bytesList[id : id + 1]
        return np.asarray(cv2.aruco.Dictionary.getBitsFromByteList(row, self.cells), dtype=np.uint8)


def square_family(name: str) -> SquareFamily:
    """Load a square family; raises `ConfigError` for an unknown name or an unreadable dictionary file."""
    if name.startswith(CUSTOM_PREFIX):
        return SquareFamily(name, _read_dictionary(Path(name.removeprefix(CUSTOM_PREFIX))), 0)
    if name not in _PREDEFINED:
        raise ConfigError(f"marker family '{name}' is unknown (allowed: {KNOWN_FAMILIES})")
    dictionary = cv2.aruco.getPredefinedDictionary(_PREDEFINED[name])
    dictionary.maxCorrectionBits = _CORRECTABLE.get(name, dictionary.maxCorrectionBits)
    if name not in _APRILTAG_0:
        return SquareFamily(name, dictionary, 0)
    printed = np.array([[int(c) for c in row] for row in _APRILTAG_0[name].split()], dtype=np.uint8)
    upright = SquareFamily(name, dictionary, 0)
    for turns in range(4):
        if np.array_equal(np.rot90(upright._bits(0), turns), printed):
            return SquareFamily(name, dictionary, turns)
    raise ConfigError(
        f"OpenCV {cv2.__version__}: its dictionary of {name} does not hold the tag number 0 of that family"
    )


def check_apart(wanted: Sequence[tuple[SquareFamily, Sequence[int]]]) -> None:
    """Raise `ConfigError` for two markers of which one, with cells read wrongly, is as near to the other as to itself.

    A family keeps its codes apart, in each of four turns, but not from those of other families: aruco_6x6_250 is the first
    quarter of aruco_6x6_1000. wanted: each family once, with ids that it has.
    """
    for (a, ids_a), (b, ids_b) in combinations_with_replacement(wanted, 2):
        if a.cells != b.cells:
            continue
        cells = a.cells**2
        first, second = a.all_bits()[list(ids_a)], b.all_bits()[list(ids_b)]
        turned = np.stack([np.rot90(second, k, axes=(1, 2)) for k in range(4)]).reshape(4, len(second), cells)
        signs = 2.0 * first.reshape(len(first), cells) - 1.0
        apart = (cells - (2.0 * turned - 1.0) @ signs.T).min(axis=0).T / 2  # (a, b)
        limit = a.corrected + b.corrected
        if a is b:
            np.fill_diagonal(apart, np.inf)
        else:
            limit = max(limit, LEAST_APART)
        if (apart <= limit).any():
            i, j = divmod(int(apart.argmin()), len(ids_b))
            raise ConfigError(
                f"markers {a.name} {ids_a[i]} and {b.name} {ids_b[j]}: their codes differ in {apart[i, j]:.0f} of {cells} cells,"
                f" and must in more than {limit}: one print is taken for the other; use another number, or one family"
            )


def stag_library(name: str) -> int | None:
    """The Hamming distance that names a STag library ("stag_hd21": 21), None for any other family."""
    digits = name.removeprefix(STAG_PREFIX)
    if name.startswith(STAG_PREFIX) and digits.isdigit() and int(digits) in STAG_LIBRARIES:
        return int(digits)
    return None


def _read_dictionary(path: Path) -> cv2.aruco.Dictionary:
    """A dictionary file, checked here: OpenCV's own reader accepts short codes and crashes at a size of 0."""
    if not path.is_file():
        raise ConfigError(f"{path}: no such marker dictionary")
    wrong = f"{path}: not a marker dictionary"
    try:
        storage = cv2.FileStorage(
            str(path), cv2.FILE_STORAGE_READ
        )  # kept in a variable: its nodes are valid only while it exists
        root = storage.root()
        readable = root.isMap()
    except (cv2.error, SystemError, ValueError):
        readable = False
    if not readable:
        raise ConfigError(f"{wrong}: needs OpenCV's YAML with nmarkers, markersize, marker_0 …")
    count = _whole(root, "nmarkers", 1, MAX_CODES, wrong)
    size = _whole(root, "markersize", *CELLS_ALLOWED, wrong)
    absent = root.getNode("maxCorrectionBits").isNone()  # OpenCV's own boards leave it out
    correctable = 0 if absent else _whole(root, "maxCorrectionBits", 0, size * size, wrong)
    nodes = [root.getNode(f"marker_{i}") for i in range(count)]
    texts = [node.string() if node.isString() else "" for node in nodes]
    rows = []
    seen: dict[bytes, str] = {}
    for i, text in enumerate(texts):
        if len(text) != size * size or set(text) - {"0", "1"}:
            raise ConfigError(f'{wrong}: marker_{i} must be "…" with {size * size} digits 0 or 1')
        bits = np.array([int(c) for c in text], dtype=np.uint8).reshape(size, size)
        turned = {np.rot90(bits, k).tobytes() for k in range(4)}
        if len(turned) < 4:
            raise ConfigError(f"{path}: marker_{i} looks the same when turned: its orientation is ambiguous")
        if twin := next((seen[code] for code in turned if code in seen), None):
            raise ConfigError(f"{path}: marker_{i} looks like {twin}")
        seen |= dict.fromkeys(turned, f"marker_{i}")
        rows.append(cv2.aruco.Dictionary.getByteListFromBits(bits))
    return cv2.aruco.Dictionary(np.concatenate(rows), size, correctable)


def _whole(root: cv2.FileNode, key: str, low: int, high: int, wrong: str) -> int:
    node = root.getNode(key)
    if not node.isInt() or not low <= node.real() <= high:
        raise ConfigError(f"{wrong}: {key} must be a whole number, {low} to {high}")
    return int(node.real())

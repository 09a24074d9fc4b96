"""Calibration boards: ChArUco boards, grids of ArUco markers, chessboards (config/boards/*.toml).

The frame of a board has x right and y down as printed, and its origin in the first corner, as in OpenCV. The number of
a corner does not depend on how much of the board is visible.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import cv2
import msgspec
import numpy as np
from msgspec import Meta

from companion.core.arrays import Array, Image8
from companion.core.config import ConfigError, Section, integer, load, number
from companion.core.site import CUSTOM_PREFIX
from companion.tracking.families import square_family

_SIZES = (50, 100, 250, 1000)
_OPENCV_NAMES = {
    **{f"aruco_{n}x{n}_{count}": f"DICT_{n}X{n}_{count}" for n in (4, 5, 6, 7) for count in _SIZES},
    "aruco_original": "DICT_ARUCO_ORIGINAL",
    "aruco_mip_36h12": "DICT_ARUCO_MIP_36h12",
    **{f"apriltag_{code}": f"DICT_APRILTAG_{code}" for code in ("16h5", "25h9", "36h10", "36h11")},
}
DICTIONARIES = {name: getattr(cv2.aruco, o) for name, o in _OPENCV_NAMES.items() if hasattr(cv2.aruco, o)}
ALLOWED = f"aruco_4x4_50 to aruco_7x7_1000, {', '.join(n for n in DICTIONARIES if 'x' not in n)}, {CUSTOM_PREFIX}PATH"

Length = Annotated[float, number(0.0005, 5, "m")]
Name = Annotated[str, Meta(min_length=1, description=ALLOWED)]


class Charuco(Section, frozen=True, tag_field="kind", tag="charuco"):
    """A chessboard with a marker in each white square; columns and rows count squares."""

    dictionary: Name
    columns: Annotated[int, integer(2, 100, "squares")]
    rows: Annotated[int, integer(2, 100, "squares")]
    square_m: Length
    marker_m: Length
    first_id: Annotated[int, integer(0, 100000)] = 0

    @property
    def pitch_m(self) -> float:
        """Distance of two corners of the same kind."""
        return self.square_m

    @property
    def markers(self) -> int:
        """Number of markers."""
        return self.columns * self.rows // 2

    def points(self) -> Array:
        """The inner corners [m], shape (n, 3)."""
        corners: Array = _lattice(self.columns - 1, self.rows - 1, self.square_m) + [self.square_m, self.square_m, 0.0]
        return corners


class Grid(Section, frozen=True, tag_field="kind", tag="grid"):
    """Columns and rows of markers, white between them; four corners a marker."""

    dictionary: Name
    columns: Annotated[int, integer(1, 100, "markers")]
    rows: Annotated[int, integer(1, 100, "markers")]
    marker_m: Length
    separation_m: Length
    first_id: Annotated[int, integer(0, 100000)] = 0

    @property
    def pitch_m(self) -> float:
        """Distance of two corners of the same kind."""
        return self.marker_m + self.separation_m

    @property
    def markers(self) -> int:
        """Number of markers."""
        return self.columns * self.rows

    def points(self) -> Array:
        """Top left, top right, bottom right, bottom left corner of each marker [m], shape (4 n, 3)."""
        first = _lattice(self.columns, self.rows, self.pitch_m)
        square = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]) * self.marker_m
        corners: Array = (first[:, None] + square).reshape(-1, 3)
        return corners


class Chessboard(Section, frozen=True, tag_field="kind", tag="chessboard"):
    """A plain chessboard, which must be visible as a whole; its corners are those where four squares meet."""

    inner_columns: Annotated[int, integer(3, 100, "inner corners in a row: one less than squares")]
    inner_rows: Annotated[int, integer(3, 100, "inner corners in a column: one less than squares")]
    square_m: Length

    @property
    def columns(self) -> int:
        return self.inner_columns

    @property
    def rows(self) -> int:
        return self.inner_rows

    @property
    def pitch_m(self) -> float:
        """Distance of two corners of the same kind."""
        return self.square_m

    def points(self) -> Array:
        """The inner corners [m], shape (n, 3)."""
        return _lattice(self.inner_columns, self.inner_rows, self.square_m)


Layout = Charuco | Grid | Chessboard


class BoardFile(Section, frozen=True):
    """A board file."""

    name: Annotated[str, Meta(min_length=1)]
    board: Layout


@dataclass(frozen=True)
class Marked:
    """The markers of a board."""

    layout: Charuco | Grid
    dictionary: cv2.aruco.Dictionary

    @property
    def ids(self) -> range:
        """Ids of the markers."""
        return range(self.layout.first_id, self.layout.first_id + self.layout.markers)

    def opencv(self) -> cv2.aruco.Board:
        """OpenCV's board with the same corners."""
        layout = self.layout
        return charuco_board(layout, self.dictionary) if isinstance(layout, Charuco) else self._grid_board(layout)

    def _grid_board(self, layout: Grid) -> cv2.aruco.Board:
        size = (layout.columns, layout.rows)
        return cv2.aruco.GridBoard(size, layout.marker_m, layout.separation_m, self.dictionary, np.array(self.ids))


def charuco_board(layout: Charuco, dictionary: cv2.aruco.Dictionary) -> cv2.aruco.CharucoBoard:
    """OpenCV's board of a layout."""
    ids = np.arange(layout.first_id, layout.first_id + layout.markers)
    return cv2.aruco.CharucoBoard((layout.columns, layout.rows), layout.square_m, layout.marker_m, dictionary, ids)


class Board:
    """A board: its layout and the numbered corners ``points_m`` (n, 3).

    marked: layout and dictionary of a board of markers; None for a plain chessboard.
    """

    def __init__(self, layout: Layout, name: str, dictionary: cv2.aruco.Dictionary | None) -> None:
        self.layout, self.name = layout, name
        self.points_m = layout.points()
        self.marked: Marked | None = None
        if not isinstance(layout, Chessboard) and dictionary is not None:
            self.marked = Marked(layout, dictionary)

    def turned(self) -> "Board":
        """The same board with columns and rows exchanged, which the user may have meant."""
        layout = self.layout
        if isinstance(layout, Chessboard):
            other = msgspec.structs.replace(layout, inner_columns=layout.inner_rows, inner_rows=layout.inner_columns)
            return Board(other, self.name, None)
        exchanged = msgspec.structs.replace(layout, columns=layout.rows, rows=layout.columns)
        return Board(exchanged, self.name, self.marked.dictionary if self.marked else None)

    def picture(self, px_per_m: float, margin_m: float) -> Image8:
        """The board as printed, with white margin: (h, w) uint8, 0 and 255.

        The centre of pixel (0, 0) is half a pixel inside the picture's corner, which lies margin_m left of and above
        the board's outer edge; for a chessboard that edge is one square outside its corners.
        """
        layout = self.layout
        columns, rows = layout.columns, layout.rows
        more = 1 if isinstance(layout, Chessboard) else 0
        size_m = np.array([columns + more, rows + more]) * layout.pitch_m
        if isinstance(layout, Grid):
            size_m = size_m - layout.separation_m
        width, height = np.round(size_m * px_per_m).astype(int)
        if self.marked is not None:
            board = (
                self.marked.opencv().generateImage((int(width), int(height)), None, 0, 1).astype(np.uint8, copy=False)
            )
        else:
            x = (np.arange(width) + 0.5) / px_per_m // layout.pitch_m
            y = (np.arange(height) + 0.5) / px_per_m // layout.pitch_m
            board = np.where((x[None] + y[:, None]) % 2 == 0, 0, 255).astype(np.uint8)
        return np.pad(board, round(margin_m * px_per_m), constant_values=255)


def load_board(path: str | Path) -> Board:
    """Read a board file; raises `ConfigError` with one line."""
    file = load(path, BoardFile)
    return make_board(file.board, file.name, Path(path))


def make_board(layout: Layout, name: str = "board", path: Path = Path("board")) -> Board:
    """The board of a layout; path: the file it comes from, for errors and for a dictionary beside it."""
    if isinstance(layout, Chessboard):
        return Board(layout, name, None)
    dictionary = read_dictionary(layout.dictionary, path)
    count = dictionary.bytesList.shape[0]
    last = layout.first_id + layout.markers - 1
    if last >= count:
        raise ConfigError(
            f"{path}: board.first_id: needs markers up to {last}, {layout.dictionary} has 0 to {count - 1}"
        )
    if isinstance(layout, Charuco) and not layout.marker_m < layout.square_m:
        raise ConfigError(
            f"{path}: board.marker_m = {layout.marker_m:g}: must be less than square_m = {layout.square_m:g}"
        )
    return Board(layout, name, dictionary)


def read_dictionary(name: str, path: Path) -> cv2.aruco.Dictionary:
    """A dictionary by the name a board file may use; raises `ConfigError`."""
    if name.startswith(CUSTOM_PREFIX):
        file = (path.parent / name.removeprefix(CUSTOM_PREFIX)).resolve()
        return square_family(f"{CUSTOM_PREFIX}{file}").dictionary
    if name not in DICTIONARIES:
        raise ConfigError(f"{path}: board.dictionary = {name!r}: unknown (allowed: {ALLOWED})")
    return cv2.aruco.getPredefinedDictionary(DICTIONARIES[name])


def _lattice(columns: int, rows: int, pitch_m: float) -> Array:
    """Points row by row, shape (columns * rows, 3)."""
    y, x = np.divmod(np.arange(columns * rows), columns)
    return np.column_stack([x, y, np.zeros_like(x)]) * pitch_m

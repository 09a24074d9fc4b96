"""``companion calibrate board``: a printable page with a calibration board and all that its user needs.

Beside the board the page shows its file, markers and sizes, a bar of 100 mm to check the print with a ruler, how to mount it,
and the command that calibrates with it.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from calibration.camera.board import Board, Chessboard, Grid, load_board
from companion.core.command_line import HELP, ConfigFile, OutputFile, one_line_errors
from companion.core.config import ConfigError
from companion.core.config_files import ConfigKind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPERS_MM = {
    "A4": (210.0, 297.0),
    "A3": (297.0, 420.0),
    "A2": (420.0, 594.0),
    "A1": (594.0, 841.0),
    "A0": (841.0, 1189.0),
}
EDGE_MM = 8.0  # that printers leave white
TEXT_MM = 19.0  # of the page's foot, for the bar and the text
TOLERANCE_MM = 0.01
BAR_MM = 100.0
SUFFIXES = (".pdf", ".svg", ".png")
PNG_DPI = 300
PX_PER_MM = 12.0  # of the picture inside the page
POINTS = 6.5  # of the text


def board_size_mm(board: Board) -> tuple[float, float]:
    """Width and height of the printed board, to its outer edges [mm]."""
    layout = board.layout
    more = 1 if isinstance(layout, Chessboard) else 0
    gap_m = layout.separation_m if isinstance(layout, Grid) else 0.0
    width, height = (1e3 * ((n + more) * layout.pitch_m - gap_m) for n in (layout.columns, layout.rows))
    return width, height


def paper_for(board: Board, name: str) -> tuple[str, float, float]:
    """(Name of the smallest paper on which the board fits, its width and height [mm], turned as the board is).

    Raises `ConfigError` for a board that is larger than all.
    """
    width, height = board_size_mm(board)
    for paper, (short, long) in PAPERS_MM.items():
        for w, h in ((short, long), (long, short)):
            if width <= w - 2 * EDGE_MM + TOLERANCE_MM and height <= h - 2 * EDGE_MM - TEXT_MM + TOLERANCE_MM:
                return paper, w, h
    raise ConfigError(f"{name}: the board of {width:.0f} x {height:.0f} mm does not fit on A0")


def page_text(board: Board, file: Path, paper: str) -> list[str]:
    """The lines of text on the page."""
    layout = board.layout
    if isinstance(layout, Chessboard):
        sizes = f"{layout.inner_columns} x {layout.inner_rows} inner corners, squares of {1e3 * layout.square_m:g} mm"
        row, keys = f"a row of {layout.columns + 1} squares", "square_m"
    elif isinstance(layout, Grid):
        sizes = (
            f"{layout.columns} x {layout.rows} markers of {1e3 * layout.marker_m:g} mm,"
            f" {1e3 * layout.separation_m:g} mm between them"
        )
        row, keys = f"a row of {layout.columns} markers", "marker_m and separation_m"
    else:
        sizes = (
            f"{layout.columns} x {layout.rows} squares of {1e3 * layout.square_m:g} mm,"
            f" markers of {1e3 * layout.marker_m:g} mm"
        )
        row, keys = f"a row of {layout.columns} squares", "square_m and marker_m"
    markers = ""
    if board.marked is not None:
        ids = board.marked.ids
        markers = f", {board.marked.layout.dictionary}, ids {ids[0]} to {ids[-1]}"
    return [
        f"{file.name}: {board.name}. {sizes}{markers}.",
        f"Print on {paper} at 100 %, not fitted to the page. Measure with a ruler: the bar is {BAR_MM:g} mm, {row}"
        f" {board_size_mm(board)[0]:.1f} mm; enter measured sizes in the file ({keys}).",
        "Glue it on a stiff, flat plate (glass, aluminium, thick board), without bubbles; keep the white edge; no glossy paper.",
        f"companion calibrate camera PICTURES --board {file} --vehicle VEHICLE",
    ]


def draw_page(board: Board, file: Path) -> "Figure":
    """The page as a figure of the paper's size."""
    from matplotlib.figure import Figure

    paper, width, height = paper_for(board, str(file))
    size = board_size_mm(board)
    left, bottom = 0.5 * (width - size[0]), EDGE_MM + TEXT_MM + 0.5 * (height - 2 * EDGE_MM - TEXT_MM - size[1])
    page = Figure(figsize=(width / 25.4, height / 25.4))
    axes = page.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(0.0, width)
    axes.set_ylim(0.0, height)
    axes.axis("off")
    picture = board.picture(1e3 * PX_PER_MM, 0.0)
    axes.imshow(
        picture, "gray", extent=(left, left + size[0], bottom, bottom + size[1]), interpolation="none", aspect="auto"
    )
    axes.set_xlim(0.0, width)
    axes.set_ylim(0.0, height)
    foot = EDGE_MM + TEXT_MM - 4.0
    for i in range(10):
        colour = "black" if i % 2 == 0 else "white"
        axes.add_patch(_rectangle(EDGE_MM + 0.1 * BAR_MM * i, foot, 0.1 * BAR_MM, 2.5, colour))
    axes.text(EDGE_MM + BAR_MM + 2.0, foot + 0.3, f"{BAR_MM:g} mm", fontsize=POINTS)
    for i, line in enumerate(page_text(board, file, paper)):
        axes.text(EDGE_MM, foot - 3.2 * (i + 1), line, fontsize=_points(line, width), family="sans-serif")
    return page


def _points(line: str, width_mm: float) -> float:
    """Font size with which a line fits between the edges: a letter is about half as wide as high."""
    return float(min(POINTS, (width_mm - 2 * EDGE_MM) / (0.53 * len(line)) / 0.3528))


def _rectangle(x: float, y: float, width: float, height: float, colour: str):  # type: ignore[no-untyped-def]
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, facecolor=colour, edgecolor="black", linewidth=0.3)


@click.command(context_settings=HELP)
@click.argument("board_file", metavar="BOARD", type=ConfigFile(ConfigKind.BOARD))
@click.option("--page", type=OutputFile(), required=True, help="The page to write: .pdf, .svg or .png.")
@one_line_errors
def command(board_file: Path, page: Path) -> None:
    """A printable page with a calibration board, its sizes, a bar to check the print, and how to use it."""
    if page.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"--page {page}: must end with {', '.join(SUFFIXES)}")
    board = load_board(board_file)
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        draw_page(board, board_file).savefig(page, dpi=PNG_DPI)
    except OSError as error:
        raise ConfigError(f"{page}: cannot be written: {error.strerror or error}") from None
    paper, *_ = paper_for(board, str(board_file))
    for line in page_text(board, board_file, paper)[:2]:
        click.echo(line)
    click.echo(str(page))

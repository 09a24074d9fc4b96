"""The printed page of a board: the board at its true size, a bar of 100 mm, and what its user needs to know."""

import cv2
import numpy as np
import pytest
from calibration_paths import BOARDS
from click.testing import CliRunner

from calibration.camera.board import Charuco, load_board, make_board
from calibration.camera.board_detection import BoardDetector
from calibration.camera.board_page import BAR_MM, EDGE_MM, TEXT_MM, board_size_mm, draw_page, page_text, paper_for
from calibration.camera.command import command as calibrate_camera
from companion.cli import main
from companion.core.config import ConfigError

DPI = 120.0


@pytest.mark.parametrize(
    ("name", "paper"), [("charuco_a4", "A4"), ("charuco_a3", "A3"), ("grid_a4", "A4"), ("chessboard_a4", "A4")]
)
def test_a_page_says_what_it_shows_and_how_it_is_used(name, paper):
    file = BOARDS / f"{name}.toml"
    board = load_board(file)
    found, width, height = paper_for(board, name)
    size = board_size_mm(board)
    assert found == paper
    assert size[0] < width - 2 * EDGE_MM + 0.1 and size[1] < height - 2 * EDGE_MM - TEXT_MM + 0.1
    text = "\n".join(page_text(board, file, found))
    assert (
        file.name in text and board.name in text and f"--board {file}" in text and "companion calibrate camera" in text
    )
    assert f"{1e3 * getattr(board.layout, 'square_m', getattr(board.layout, 'marker_m', 0)):g} mm" in text
    assert "100 %" in text and f"{size[0]:.1f} mm" in text and "stiff, flat plate" in text
    if board.marked is not None:
        assert f"{board.layout.dictionary}, ids 0 to {board.layout.markers - 1}" in text
    assert "--board" in {option for parameter in calibrate_camera.params for option in parameter.opts}


@pytest.mark.parametrize("name", ["charuco_a4", "chessboard_a4"])
def test_the_board_and_the_bar_have_their_size_on_the_page(name, tmp_path):
    board = load_board(BOARDS / f"{name}.toml")
    draw_page(board, BOARDS / f"{name}.toml").savefig(tmp_path / "page.png", dpi=DPI)
    gray = cv2.imread(str(tmp_path / "page.png"), cv2.IMREAD_GRAYSCALE)
    mm = DPI / 25.4
    view = BoardDetector(board).view(gray, "page")
    assert not view.problem and len(view.numbers) == len(board.points_m)
    points = board.points_m[view.numbers, :2] * 1e3
    assert np.linalg.norm(view.pixels[-1] - view.pixels[0]) / mm == pytest.approx(
        np.linalg.norm(points[-1] - points[0]), abs=0.15
    )
    row = gray[round(gray.shape[0] - (EDGE_MM + TEXT_MM - 4.0 + 1.2) * mm)]
    dark = np.flatnonzero(row[: round((EDGE_MM + BAR_MM + 1.0) * mm)] < 128)
    assert (dark[-1] - dark[0] + 1) / mm == pytest.approx(BAR_MM, abs=0.5)


def test_the_command_writes_the_page_and_refuses_what_cannot_be(tmp_path):
    out = tmp_path / "new" / "board.pdf"
    done = CliRunner().invoke(main, ["calibrate", "board", "grid_a4", "--page", str(out)])
    assert done.exit_code == 0 and out.read_bytes()[:4] == b"%PDF" and "aruco_6x6_1000, ids 0 to 19" in done.output
    refused = CliRunner().invoke(main, ["calibrate", "board", "grid_a4", "--page", str(tmp_path / "board.txt")])
    assert refused.exit_code == 2 and "must end with .pdf, .svg, .png" in refused.output


def test_a_board_larger_than_every_paper_is_refused():
    wide = make_board(Charuco(dictionary="aruco_4x4_50", columns=4, rows=3, square_m=0.5, marker_m=0.4))
    with pytest.raises(ConfigError, match="2000 x 1500 mm does not fit on A0"):
        paper_for(wide, "wide.toml")

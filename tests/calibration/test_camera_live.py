"""The guidance of the live calibration: kept pictures, the next action, the end."""

import cv2
import numpy as np
import pytest
from rich.console import Console

from calibration.camera.board import Board
from calibration.camera.board_detection import View
from calibration.camera.fit import Lens
from calibration.camera.live import BLUR_PX, WANTED, WANTED_PICTURES, Guide
from calibration.camera.problem import Problem, ProblemKind

LENS = Lens("pinhole", np.array([600.0, 600.0, 319.5, 239.5, 0.0, 0.0, 0.0, 0.0]))
SIZE = (640, 480)
FACING = {  # turn of the board about the picture's axes: x right, y down
    "straight on": (0.0, 0.0),
    "facing left": (0.0, 0.6),
    "facing right": (0.0, -0.6),
    "facing up": (-0.6, 0.0),
    "facing down": (0.6, 0.0),
}


@pytest.fixture
def view(load_board):
    """Makes views of the board."""
    board = load_board("grid_a4")
    return lambda *place, **options: seen(board, *place, **options)


def seen(
    board: Board, x: float, y: float, facing: str = "straight on", distance_m: float = 0.45, blur_px: float = 0.8
) -> View:
    """A view of the board whose middle is at (x, y) = (X/Z, Y/Z), the corners that are inside the picture."""
    R = cv2.Rodrigues(np.array([*FACING[facing], 0.0]))[0]
    p = np.array([x, y, 1.0]) * distance_m - R @ board.points_m.mean(0)
    pixels = LENS.project(board.points_m, np.concatenate([cv2.Rodrigues(R)[0].ravel(), p]))[0]
    inside = ((pixels >= 0) & (pixels < SIZE)).all(1)
    return View("view", np.flatnonzero(inside), pixels[inside], blur_px)


def rest(guide: Guide, shown: View) -> str:
    """The board comes to rest there: the second image decides."""
    guide.consider(shown)
    return guide.consider(shown)


@pytest.fixture
def guide(load_board) -> Guide:
    return Guide(load_board("grid_a4"), LENS, SIZE)


def test_a_board_that_moves_or_is_blurred_or_absent_is_not_kept(guide, view):
    assert guide.consider(view(0, 0)) == "hold still"
    assert guide.consider(view(0.05, 0)) == "hold still"
    assert guide.consider(view(0.05, 0, blur_px=BLUR_PX + 1)).startswith("blurred")
    nothing = View("view", np.zeros(0, int), np.zeros((0, 2)), float("nan"), Problem(ProblemKind.NOT_FOUND))
    assert guide.consider(nothing) == "board not found"
    assert not guide.kept


def test_one_picture_of_each_place_is_enough(guide, view):
    assert rest(guide, view(0, 0)) == ""
    assert guide.consider(view(0, 0)) == "seen already: move on"
    assert len(guide.kept) == 1


@pytest.mark.parametrize("facing", FACING)
def test_the_direction_that_the_board_faces_is_recognised(guide, view, facing):
    assert rest(guide, view(0.02, -0.03, facing)) == ""
    assert guide.tilts == {name: int(name == facing) for name in WANTED}


def test_it_asks_for_missing_pictures_until_none_is_missing(guide, view):
    asked = []
    for facing in FACING:
        for x in (-0.1, 0.1):
            asked.append(guide.advice())
            assert rest(guide, view(x, 0.0, facing)) == ""
    assert asked == [f"hold the board {name}" for name in FACING for _ in range(2)]
    assert guide.advice() == "move it to the top left of the picture"
    for x in (-0.33, 0.33):
        for y in (-0.24, 0.24):
            assert rest(guide, view(x, y)) == ""
    assert guide.coverage > 0.9 and not guide.complete
    shift = iter(np.linspace(-0.12, 0.12, 9))
    while not guide.complete:
        assert guide.advice() == "take a few more, at new places"
        rest(guide, view(next(shift), 0.05, "facing up", distance_m=0.6))
    assert len(guide.kept) == WANTED_PICTURES and guide.advice() == "enough"


def test_the_drawing_shows_covered_cells_tilts_and_the_next_step(guide, view):
    rest(guide, view(-0.2, 0.0))
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(guide.drawing(""))
    lines = console.export_text().splitlines()
    assert "▓▓▓" in lines[3][:16] and "▓" not in lines[3][16:]
    assert "straight on 1/2" in lines[6] and "1 pictures" in lines[7] and lines[8].startswith("next: hold the board")

"""Board files are read strictly, and a board is found turned, in part, in the dark and in large pictures."""

import cv2
import numpy as np
import pytest
from board_views import BoardCamera
from calibration_paths import BOARDS

from calibration.camera.board import Charuco, Chessboard, Grid, load_board, make_board
from calibration.camera.board_detection import BoardDetector, hint, shape_error
from calibration.camera.problem import ProblemKind
from companion.core.config import ConfigError

K = np.array([[610.0, 0, 322.0], [0, 612.0, 237.0], [0, 0, 1]])
BARREL = [-0.12, 0.05, 0.0005, -0.0003, 0.0]
SIZE = (640, 480)


@pytest.fixture(scope="module")
def grid() -> BoardCamera:
    return BoardCamera(load_board(BOARDS / "grid_a4.toml"), K, BARREL, SIZE)


@pytest.fixture(scope="module")
def charuco() -> BoardCamera:
    return BoardCamera(load_board(BOARDS / "charuco_a4.toml"), K, BARREL, SIZE)


def truth(camera: BoardCamera, R, p) -> np.ndarray:
    return cv2.projectPoints(camera.board.points_m, cv2.Rodrigues(R)[0], p, K, np.array(BARREL))[0].reshape(-1, 2)


def worst(camera: BoardCamera, view, R, p) -> float:
    """Largest distance of a found corner from where it is [px]."""
    return float(np.linalg.norm(view.pixels - truth(camera, R, p)[view.numbers], axis=1).max())


@pytest.mark.parametrize("path", sorted(BOARDS.glob("*.toml")), ids=lambda path: path.stem)
def test_the_boards_that_come_with_the_stack_are_found_in_their_own_pictures(path):
    board = load_board(path)
    px_per_m = 3000.0
    picture = board.picture(px_per_m, margin_m=0.02)
    view = BoardDetector(board).view(picture, "print")
    assert not view.problem and len(view.numbers) == len(board.points_m)
    edge = board.layout.square_m if isinstance(board.layout, Chessboard) else 0.0
    at = (board.points_m[view.numbers, :2] + edge + 0.02) * px_per_m - 0.5
    turned = view.pixels[::-1] if isinstance(board.layout, Chessboard) else view.pixels
    assert min(np.abs(view.pixels - at).max(), np.abs(turned - at).max()) < 0.5


def test_opencvs_boards_have_the_same_corners():
    grid = make_board(Grid(dictionary="aruco_4x4_50", columns=3, rows=4, marker_m=0.05, separation_m=0.02, first_id=7))
    assert np.allclose(np.concatenate(grid.marked.opencv().getObjPoints()), grid.points_m)
    assert np.ravel(grid.marked.opencv().getIds()).tolist() == list(grid.marked.ids) == list(range(7, 19))
    charuco = make_board(Charuco(dictionary="aruco_4x4_50", columns=4, rows=5, square_m=0.04, marker_m=0.03))
    assert np.allclose(charuco.marked.opencv().getChessboardCorners(), charuco.points_m)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": '"dots"'}, "board.kind"),
        ({"dictionary": '"aruco_9x9_50"'}, "board.dictionary = 'aruco_9x9_50': unknown (allowed: aruco_4x4_50"),
        ({"dictionary": '"dictionary:gone.yml"'}, "gone.yml: no such marker dictionary"),
        ({"columns": "0"}, "board.columns = 0"),
        ({"rows": "20"}, "needs markers up to 79, aruco_4x4_50 has 0 to 49"),
        ({"marker_m": "-1"}, "board.marker_m = -1"),
        ({"gap_m": "0.1"}, "board.gap_m: unknown key"),
        ({"separation_m": None}, "board.separation_m: missing key"),
    ],
)
def test_a_wrong_board_file_is_refused_in_one_line(tmp_path, change, said):
    keys = {
        "kind": '"grid"',
        "dictionary": '"aruco_4x4_50"',
        "columns": "4",
        "rows": "5",
        "marker_m": "0.04",
        "separation_m": "0.01",
    } | change
    lines = [f"{key} = {value}" for key, value in keys.items() if value is not None]
    file = tmp_path / "board.toml"
    file.write_text("\n".join(['name = "mine"', "[board]", *lines]))
    with pytest.raises(ConfigError) as caught:
        load_board(file)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_marker_larger_than_its_square_is_refused():
    with pytest.raises(ConfigError, match="board.marker_m = 0.05: must be less than square_m = 0.04"):
        make_board(Charuco(dictionary="aruco_4x4_50", columns=4, rows=5, square_m=0.04, marker_m=0.05))


@pytest.mark.parametrize("turn", [0.0, 1.6, 3.1, -2.0])
def test_a_turned_board_is_found_with_the_same_numbers(grid, charuco, turn):
    for camera in (grid, charuco):
        pose = camera.held(0.05, -0.03, 0.45, 0.5, 0.7, turn)
        view = BoardDetector(camera.board).view(camera.picture(*pose), "turned")
        assert len(view.numbers) == len(camera.board.points_m)
        assert worst(camera, view, *pose) < 0.2


def test_a_board_that_leaves_the_picture_is_used_in_part(grid, charuco):
    for camera in (grid, charuco):
        pose = camera.held(0.32, 0.2, 0.4, 0.3, 1.0, 0.4)
        view = BoardDetector(camera.board).view(camera.picture(*pose), "part")
        assert not view.problem
        assert 8 <= len(view.numbers) < len(camera.board.points_m)
        assert worst(camera, view, *pose) < 0.2


def test_little_light_and_noise_are_no_hindrance(grid, charuco):
    for camera in (grid, charuco):
        pose = camera.held(0.0, 0.0, 0.45, 0.4, 2.0)
        view = BoardDetector(camera.board).view(camera.picture(*pose, noise=3.0, light=0.2), "dark")
        assert len(view.numbers) > 0.8 * len(camera.board.points_m)
        assert worst(camera, view, *pose) < 0.8


@pytest.mark.parametrize("board", ["grid_a4", "charuco_a4", "chessboard_a4"])
def test_a_large_photograph_is_searched_small_and_measured_at_full_size(board):
    board = load_board(BOARDS / f"{board}.toml")
    size, large = (2000, 1500), K * 3.1
    large[2, 2] = 1
    camera = BoardCamera(board, large, [0.0] * 5, size)
    R, p = camera.held(0.02, 0.01, 0.45, 0.4, 0.3)
    view = BoardDetector(board).view(camera.picture(R, p, blur_px=1.0), "large")
    assert len(view.numbers) == len(board.points_m)
    at = cv2.projectPoints(board.points_m, cv2.Rodrigues(R)[0], p, large, None)[0].reshape(-1, 2)
    pairs = (view.pixels, view.pixels[::-1]) if board.marked is None else (view.pixels,)
    assert min(np.linalg.norm(pixels - at[view.numbers], axis=1).max() for pixels in pairs) < 0.4


def test_blur_is_measured_in_pixels_across_the_edges(grid):
    pose = grid.held(0.0, 0.0, 0.45, 0.3, 0.0)
    detector = BoardDetector(grid.board)
    sharp = detector.view(grid.picture(*pose, blur_px=0.0), "sharp").blur_px
    soft = detector.view(grid.picture(*pose, blur_px=2.0), "soft").blur_px
    smeared = cv2.blur(grid.picture(*pose, blur_px=0.0), (9, 1))  # motion along x alone
    assert sharp < 1.0 and soft == pytest.approx(2.0, rel=0.2)
    assert detector.view(smeared, "smeared").blur_px > 2.5


def test_another_board_is_not_taken_for_this_one(grid, charuco):
    pose = grid.held(0.0, 0.0, 0.45, 0.3, 0.0)
    picture = grid.picture(*pose)
    exchanged = grid.board.turned()
    view = BoardDetector(exchanged).view(picture, "exchanged")
    assert view.problem.kind is ProblemKind.OTHER_BOARD
    assert hint(exchanged, [picture], [view]) == "4 columns and 5 rows would fit: exchange them in the board file"
    view = BoardDetector(charuco.board).view(picture, "other")
    assert view.problem.kind in (ProblemKind.NOT_FOUND, ProblemKind.FEW_CORNERS)
    other = make_board(Grid(dictionary="aruco_4x4_50", columns=4, rows=5, marker_m=0.04, separation_m=0.005))
    view = BoardDetector(other).view(picture, "dictionary")
    assert view.problem.kind is ProblemKind.NOT_FOUND
    assert hint(other, [picture], [view]) == "markers of aruco_6x6_1000 are visible, ids 0 to 19"


def test_a_fisheyes_picture_still_has_the_boards_shape():
    board = load_board(BOARDS / "charuco_a4.toml")
    K_wide, k = np.array([[280.0, 0, 320], [0, 280, 240], [0, 0, 1]]), np.array([-0.02, 0.01, -0.004, 0.001])
    camera = BoardCamera(board, K_wide, k, SIZE, fisheye=True)
    R, p = camera.held(0.6, 0.3, 0.16, 0.3, 0.0)
    pixels = cv2.fisheye.projectPoints(board.points_m.reshape(-1, 1, 3), cv2.Rodrigues(R)[0], p, K_wide, k)[0]
    assert shape_error(board.points_m, pixels.reshape(-1, 2)) < 0.01


@pytest.mark.verify
def test_pictures_without_a_board_are_refused(grid):
    detector = BoardDetector(grid.board)
    assert detector.view(np.zeros((20, 20), np.uint8), "tiny").problem.kind is ProblemKind.TOO_SMALL
    noise = np.random.default_rng(1).integers(0, 255, (240, 320)).astype(np.uint8)
    assert detector.view(noise, "noise").problem.kind is ProblemKind.NOT_FOUND


def test_boards_drawn_by_an_older_opencv_are_found_as_well():
    """With an even number of rows such a board began with a white square."""
    board = make_board(Charuco(dictionary="aruco_6x6_250", columns=5, rows=8, square_m=0.04, marker_m=0.03))
    older = make_board(board.layout).marked.opencv()
    older.setLegacyPattern(True)
    picture = np.pad(older.generateImage((600, 960), None, 0, 1), 40, constant_values=255)
    view = BoardDetector(board).view(picture, "older")
    assert not view.problem and len(view.numbers) == len(board.points_m)
    assert view.pixels == pytest.approx(board.points_m[view.numbers, :2] * 3000 + 40 - 0.5, abs=0.5)


def test_columns_and_rows_of_a_charuco_board_that_are_exchanged_are_found_out(charuco):
    picture = charuco.picture(*charuco.held(0.0, 0.0, 0.45, 0.3, 0.0))
    exchanged = charuco.board.turned()
    view = BoardDetector(exchanged).view(picture, "exchanged")
    assert view.problem
    assert hint(exchanged, [picture], [view]) == "5 columns and 7 rows would fit: exchange them in the board file"

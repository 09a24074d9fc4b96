"""Published photographs: a phone's of a grid board, and OpenCV's ChArUco set with its own calibration."""

import cv2
import numpy as np
import pytest
from calibration_paths import SHARED, needs_shared_data

from calibration.camera.board import Charuco, Grid, make_board
from calibration.camera.board_detection import BoardDetector
from calibration.camera.fit import fit
from calibration.camera.images import image_files, read_all
from calibration.camera.problem import ProblemKind
from calibration.camera.views import calibrate
from calibration.results import DataError
from companion.core.site import CUSTOM_PREFIX

MARKERS = SHARED / "markers"
PHONE, OPENCV = MARKERS / "aruco_board_phone", MARKERS / "opencv_aruco"
SIZE = (640, 480)

needs_photographs = needs_shared_data("markers")


def views_of(board, paths):
    detector = BoardDetector(board)
    return [detector.view(gray, path.name) for path, gray in read_all(image_files(paths), {})]


@pytest.fixture(scope="module")
def phone(load_board):
    return views_of(load_board("grid_a4"), [PHONE])


@needs_photographs
def test_a_phone_is_calibrated_by_forty_two_photographs(phone, load_board):
    c = calibrate(load_board("grid_a4"), phone, SIZE, "pinhole", 5)
    assert len(c.views) >= 40 and c.coverage > 0.9
    assert c.fit.rms_px < 0.5
    assert c.fit.lens.numbers[:2] == pytest.approx(815.0, rel=0.01)
    assert any(w.startswith("the board differs from its file: markers of 39.7") for w in c.warnings)


@needs_photographs
def test_fitting_the_printed_board_makes_the_pixels_square(phone, load_board):
    """The gaps on that sheet are visibly wider than 5 mm; with them right, fx and fy agree as a sensor's do."""
    c = calibrate(load_board("grid_a4"), phone, SIZE, "pinhole", 5, fit_board=True)
    fx, fy = c.fit.lens.numbers[:2]
    assert c.fit.rms_px < 0.3
    assert abs(fx - fy) < 0.5 and fx == pytest.approx(815.0, rel=0.01)


@needs_photographs
def test_a_corrupted_view_is_the_one_that_is_named(phone, load_board):
    board = load_board("grid_a4")
    detector = BoardDetector(board)
    gray = cv2.imread(str(PHONE / "7.jpg"), cv2.IMREAD_GRAYSCALE)
    shaken = detector.view(cv2.blur(gray, (15, 1)), "shaken.jpg")
    rows = np.arange(480, dtype=np.float32)[:, None] + np.zeros((1, 640), np.float32)
    columns = np.arange(640, dtype=np.float32)[None] + 6 * np.sin(rows / 40)  # rolling shutter on a bumpy road
    wobbly = detector.view(cv2.remap(gray, columns, rows, cv2.INTER_LINEAR), "wobbly.jpg")
    c = calibrate(board, [*phone, shaken, wobbly], SIZE, "pinhole", 5)
    assert set(c.rejected) == {"shaken.jpg", "wobbly.jpg"}
    assert c.rejected["wobbly.jpg"].kind is ProblemKind.REPROJECTION


@needs_photographs
def test_opencvs_charuco_set_gives_opencvs_own_calibration_within_what_four_pictures_tell():
    storage = cv2.FileStorage(str(OPENCV / "tutorial_camera_charuco.yml"), cv2.FILE_STORAGE_READ)
    K = storage.getNode("camera_matrix").mat()
    k = storage.getNode("distortion_coefficients").mat().ravel()
    published = np.concatenate([[K[0, 0], K[1, 1], K[0, 2], K[1, 2]], k])
    board = make_board(Charuco(dictionary="aruco_6x6_250", columns=5, rows=7, square_m=0.04, marker_m=0.02))
    views = views_of(board, [OPENCV / f"img_0{i}.jpg" for i in range(4)])
    found = fit(board, views, SIZE, "pinhole", 5, False)
    assert sum(len(v.numbers) for v in views) == 4 * 24
    assert found.rms_px < 0.2  # published: 0.182
    assert (np.abs(found.lens.numbers - published) < 1.5 * found.std).all()
    assert found.lens.numbers[:2] == pytest.approx(published[:2], rel=0.03)
    with pytest.raises(DataError, match="4 usable views of 4, at least 8 are needed"):
        calibrate(board, views, SIZE, "pinhole", 5)


@needs_photographs
def test_the_eight_real_views_nearest_to_one_direction_are_refused_and_eight_others_are_not(phone, load_board):
    """They fit well, and give a focal length of 766 ± 10 px; it is 813."""
    board = load_board("grid_a4")
    poses = fit(board, phone, SIZE, "pinhole", 5, False).poses
    tilts = [float(np.arccos(abs(cv2.Rodrigues(pose[:3])[0][2, 2]))) for pose in poses]
    order = [phone[i] for i in np.argsort(tilts)]
    with pytest.raises(
        DataError, match=r"do not determine the focal length .*tilt the board by 30 to 45° to all sides"
    ):
        calibrate(board, order[:8], SIZE, "pinhole", 5)
    assert calibrate(board, order[-8:], SIZE, "pinhole", 5).fit.lens.numbers[0] == pytest.approx(813.0, rel=0.01)


@needs_photographs
def test_boards_with_a_dictionary_of_their_own_and_half_hidden_ones_are_found():
    layout = Grid(
        dictionary=f"{CUSTOM_PREFIX}{OPENCV / 'tutorial_dict.yml'}", columns=5, rows=7, marker_m=0.04, separation_m=0.01
    )
    whole, hidden = views_of(make_board(layout), [OPENCV / "gboriginal.png", OPENCV / "gbocclusion.png"])
    assert len(whole.numbers) == 140 and not whole.problem
    assert 16 <= len(hidden.numbers) < 100 and not hidden.problem
    charuco = make_board(Charuco(dictionary="aruco_6x6_250", columns=5, rows=7, square_m=0.04, marker_m=0.02))
    (hidden,) = views_of(charuco, [OPENCV / "chocclusion_original.jpg"])
    assert 12 <= len(hidden.numbers) < 24 and not hidden.problem

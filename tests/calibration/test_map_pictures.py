"""Markers in pictures: which picture is which photograph, where the centres are, and what cannot be used."""

from pathlib import Path
from types import SimpleNamespace

import cv2
import msgspec
import numpy as np
import pytest
from payload_cameras import FIXED

from calibration.map.picture_markers import PictureFolder, centre_px, jpeg_size, read_pictures
from calibration.results import DataError
from companion.core.config import parse
from companion.core.enums import CaptureOutcome
from companion.core.messages import Capture
from companion.core.site import Site
from companion.payload.matching import MatchError, MatchOptions

FAMILY = "aruco_6x6_250"
MARKERS = [{"family": FAMILY, "id": i, "size_m": 0.3, "p_M": [i - 3.0, 0.0, 0.0]} for i in (3, 4)]
SITE = parse({"bundle": [{"name": "pier", "markers": MARKERS}]}, Site, "site")
SMALL = msgspec.structs.replace(FIXED, width_px=3000, height_px=2000)
NAN = (float("nan"),) * 3


def capture(number, file=""):
    return Capture(
        stamp_s=float(number), valid=True, id=number, item="face", row=0, column=0, attempt=1, outcome=CaptureOutcome.TAKEN,
        reason="", image_index=number, file=file, blur_px=0.1, gsd_m=0.001, p_WC=NAN, q_WC=(*NAN, 0.0), bundle="pier", p_MC=NAN,
        q_MC=(*NAN, 0.0), position_std_m=0.1, attitude_std_rad=0.02,
    )  # fmt: skip


def draw(path, size=(3000, 2000), corners=None, id=3):
    """A picture with a marker whose corners are there, or an empty one."""
    width, height = size
    picture = np.full((height, width), 150, np.uint8)
    if corners is not None:
        marker = cv2.aruco.generateImageMarker(cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_6X6_250), id, 800)
        marker = cv2.copyMakeBorder(marker, 100, 100, 100, 100, cv2.BORDER_CONSTANT, value=255)
        printed = np.array([[99.5, 99.5], [899.5, 99.5], [899.5, 899.5], [99.5, 899.5]], np.float32)
        H = cv2.getPerspectiveTransform(printed, np.array(corners, np.float32))
        seen = cv2.warpPerspective(marker, H, size, flags=cv2.INTER_AREA)
        mask = cv2.warpPerspective(np.full_like(marker, 255), H, size) > 0
        picture[mask] = seen[mask]
    cv2.imwrite(str(path), cv2.GaussianBlur(picture, (0, 0), 1.5))


def flight(captures):
    return SimpleNamespace(
        path=Path("flight.mcap"),
        of=lambda kind: captures if kind is Capture else [],
        tables=lambda name: None,
        metadata={},
    )


CORNERS = np.array([[1800.0, 500.0], [2110.0, 540.0], [2080.0, 850.0], [1790.0, 800.0]])


def read(folder, captures, **options):
    return read_pictures(PictureFolder(folder, MatchOptions(**options)), flight(captures), captures, SMALL, SITE)


def test_the_centre_of_a_square_in_perspective_is_where_its_diagonals_meet():
    H = np.array([[300.0, 20.0, 900.0], [-10.0, 280.0, 400.0], [0.1, 0.2, 1.0]])
    square = np.array([[-1, -1, 1], [1, -1, 1], [1, 1, 1], [-1, 1, 1.0]]) @ H.T
    corners = square[:, :2] / square[:, 2:]
    np.testing.assert_allclose(centre_px(corners), [900.0, 400.0])
    assert np.linalg.norm(corners.mean(axis=0) - [900.0, 400.0]) > 1.0


def test_a_marker_is_where_it_is_whatever_the_picture_is_reduced_by(tmp_path):
    """In pixels of a width of 2000, from the picture's centre."""
    for factor in (1, 2, 4):  # 1500, 3000 and 6000 px wide
        folder = tmp_path / str(factor)
        folder.mkdir()
        size = 1500 * factor, 1000 * factor
        corners = (CORNERS + 0.5) * factor / 2 - 0.5
        draw(folder / "a.jpg", size, corners)
        found = read(folder, [capture(1, "a.jpg")])
        (centre,) = found.centres[1, 1]
        assert centre.bundle == "pier" and list(centre.p_M) == [0.0, 0.0, 0.0]
        expected = (centre_px(CORNERS) + 0.5 - [1500.0, 1000.0]) * 2000 / 3000
        np.testing.assert_allclose(centre.xy_px, expected, atol=0.15)


def test_a_reduced_decoding_has_the_size_that_the_header_says(tmp_path):
    draw(tmp_path / "a.jpg", (3001, 2003))
    assert jpeg_size((tmp_path / "a.jpg").read_bytes()) == (3001, 2003)
    assert jpeg_size(b"\xff\xd8\xff\xe0") is None and jpeg_size(b"BM") is None and jpeg_size(b"") is None


def test_a_picture_of_another_shape_is_refused(tmp_path):
    draw(tmp_path / "a.jpg", (1920, 1080))
    with pytest.raises(DataError, match=r"a.jpg: 1920 x 1080 px, and the camera file has 3000 x 2000 px"):
        read(tmp_path, [capture(1, "a.jpg")])


def test_missing_unreadable_and_empty_pictures_are_named_and_the_others_count(tmp_path):
    draw(tmp_path / "a.jpg", corners=CORNERS)
    draw(tmp_path / "b.jpg")
    (tmp_path / "c.jpg").write_bytes(b"no picture")
    (tmp_path / "d.jpg").write_bytes((tmp_path / "a.jpg").read_bytes()[:300])
    found = read(tmp_path, [capture(i + 1, f"{name}.jpg") for i, name in enumerate("abcde")])
    assert list(found.centres) == [(1, 1)] and found.pictures == 2
    notes = "; ".join(found.notes)
    for line in (
        "no picture of photograph 5",
        "c.jpg: is no JPEG",
        "d.jpg: ",
        "no marker in the pictures of photograph 2",
    ):
        assert line in notes


def test_pictures_without_a_marker_leave_the_poses_as_they_are(tmp_path):
    draw(tmp_path / "a.jpg")
    found = read(tmp_path, [capture(1, "a.jpg")])
    assert not found.centres and "no marker of the site is in a picture" in found.notes[0]


def test_a_folder_with_other_pictures_is_refused(tmp_path):
    with pytest.raises(MatchError, match="no pictures"):
        read(tmp_path, [capture(1, "a.jpg")])
    draw(tmp_path / "x.jpg")
    draw(tmp_path / "y.jpg")
    with pytest.raises(MatchError, match="2 pictures, and the camera counted 3 from 1 to 3 in the log"):
        read(tmp_path, [capture(1), capture(3)])
    with pytest.raises(MatchError, match="does not say what time it was"):
        read(tmp_path, [capture(1)], by="time")


def test_a_marker_that_is_in_a_picture_twice_does_not_count(tmp_path):
    draw(tmp_path / "a.jpg", corners=CORNERS)
    first = cv2.imread(str(tmp_path / "a.jpg"), cv2.IMREAD_GRAYSCALE)
    cv2.imwrite(str(tmp_path / "a.jpg"), np.hstack([first[:, 1000:2500], first[:, 1000:2500]]))
    assert not read(tmp_path, [capture(1, "a.jpg")]).centres

"""Detectors find every family, agree on corners and pixels, and survive bad images."""

import cv2
import numpy as np
import pytest
from synthetic_view import pose, render, vehicle

from companion.core.camera_model import CameraModel
from companion.core.config import ConfigError
from companion.core.site import SQUARE_FAMILIES, Bundle, Marker
from companion.tracking.detectors import DetectorSet, SquareDetector, detector_for
from companion.tracking.edges import refine_corners
from companion.tracking.families import square_family

CAMERA = CameraModel(vehicle().camera)
FAMILIES = [*SQUARE_FAMILIES]


def one(family, id, size_m=0.3):
    return Bundle(name="b", markers=[Marker(family=family, id=id, size_m=size_m)])


def truth(marker, R, p):
    return CAMERA.project(marker.corners_M() @ R.T + p)


def rms(a, b):
    return float(np.sqrt(np.mean((a - b) ** 2)))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("roll_rad", [0.1, 1.7, 3.0, -1.4])
def test_corners_are_in_the_printed_order_within_a_tenth_of_a_pixel(family, roll_rad):
    bundle = one(family, 17)
    R, p = pose(0.3, -0.4, roll_rad, (0.4, -0.3, 2.0))
    found = detector_for([(family, 17)]).detect(render(CAMERA, bundle, R, p))
    assert [(d.family, d.id) for d in found] == [(family, 17)]
    assert rms(found[0].corners_px, truth(bundle.markers[0], R, p)) < 0.1
    assert found[0].corners_px.dtype == np.float64


@pytest.mark.parametrize(
    ("family", "code"), [("apriltag_16h5", 0x231B), ("apriltag_25h9", 0x155CBF1), ("apriltag_36h11", 0xD5D628584)]
)
def test_apriltag_upright_is_the_picture_of_its_publisher(family, code):
    """AprilRobotics' code of tag 0, row by row from its first bit (1: white), not OpenCV's dictionary turned by half."""
    picture = square_family(family).picture(0)
    cells = "".join("1" if v else "0" for row in picture[1:-1] for v in row[1:-1])
    assert int(cells, 2) == code


@pytest.mark.parametrize(
    ("family", "count", "distance"), [("apriltag_16h5", 30, 5), ("apriltag_25h9", 35, 9), ("aruco_mip_36h12", 250, 12)]
)
def test_no_marker_of_a_family_is_another_one_with_the_bits_that_are_corrected(family, count, distance):
    known = square_family(family)
    bits = known.all_bits().reshape(count, -1).astype(int)
    turned = [np.rot90(known.all_bits(), k, axes=(1, 2)).reshape(count, -1).astype(int) for k in range(4)]
    apart = np.array([[(bits[i] != t).sum(axis=1) for t in turned] for i in range(count)])
    apart[np.arange(count), 0, np.arange(count)] = bits.shape[1]
    assert apart.min() >= distance > 2 * int(0.6 * known.dictionary.maxCorrectionBits)


def clutter(seed: int, cells: int, squares: int = 24) -> np.ndarray:
    """Black bordered squares with random cells on white, as windows, tiles or other markers look."""
    rng = np.random.default_rng(seed)
    picture = np.full((480, 640), 200, np.uint8)
    for i in range(squares):
        code = np.pad(rng.integers(0, 2, (cells, cells), dtype=np.uint8), 1) * 255
        drawn = np.kron(code, np.ones((9, 9), np.uint8))
        x, y = 15 + 105 * (i % 6), 15 + 115 * (i // 6)
        picture[y : y + len(drawn), x : x + len(drawn)] = drawn
    return np.clip(cv2.GaussianBlur(picture, (0, 0), 0.6) + rng.normal(0, 2, picture.shape), 0, 255).astype(np.uint8)


def false_markers(detector, cells: int, images: int) -> int:
    """Markers reported in random squares that are none of the family's codes, cell by cell."""
    return sum(len(detector.detect(clutter(seed, cells))) for seed in range(images))


def test_random_squares_are_hardly_ever_a_marker_of_16h5():
    """480 squares, all 30 ids wanted: 0.9 are expected without correction, 15 with one corrected bit."""
    detector = SquareDetector({"apriltag_16h5": None})
    assert false_markers(detector, 4, 20) <= 3
    assert false_markers(SquareDetector({"apriltag_16h5": {3, 4}}), 4, 20) == 0
    assert false_markers(SquareDetector({"apriltag_25h9": None}), 5, 10) == 0


def test_a_16h5_with_one_wrong_cell_is_not_reported_and_a_25h9_is():
    for family, found in (("apriltag_16h5", 0), ("apriltag_25h9", 1)):
        cells = square_family(family).picture(3) // 255
        cells[2, 2] ^= 1
        picture = np.pad(np.kron(cells, np.ones((20, 20), np.uint8)) * 255, 60, constant_values=255)
        assert len(SquareDetector({family: {3}}).detect(picture.astype(np.uint8))) == found


def test_corners_have_no_bias_of_half_a_pixel():
    errors = []
    bundle = one("aruco_6x6_250", 5)
    for k in range(8):
        R, p = pose(0.2, 0.1, 0.4 * k, (0.05 * k - 0.2, 0.013 * k, 2.0))
        found = detector_for([("aruco_6x6_250", 5)]).detect(render(CAMERA, bundle, R, p, seed=k))
        errors.append(found[0].corners_px - truth(bundle.markers[0], R, p))
    assert np.abs(np.mean(errors, axis=(0, 1))).max() < 0.02


@pytest.mark.parametrize(
    ("blur_px", "noise", "limit_px"), [(0.5, 2.0, 0.05), (0.7, 12.0, 0.25), (1.5, 4.0, 0.2), (2.2, 2.0, 0.4)]
)
def test_blur_and_noise_cost_little(blur_px, noise, limit_px):
    bundle = one("aruco_6x6_250", 5)
    R, p = pose(0.3, 0.2, 0.5, (0.2, 0.1, 2.5))
    found = detector_for([("aruco_6x6_250", 5)]).detect(render(CAMERA, bundle, R, p, blur_px, noise))
    assert len(found) == 1
    assert rms(found[0].corners_px, truth(bundle.markers[0], R, p)) < limit_px


def test_long_edges_bent_by_distortion_do_not_pull_the_corners():
    camera = CameraModel(vehicle(distortion=[-0.3, 0.1, 0.0, 0.0, 0.0]).camera)
    bundle = one("aruco_4x4_50", 3, size_m=0.6)
    R, p = pose(0.0, 0.1, 0.05, (0.02, 0.01, 1.2))
    found = detector_for([("aruco_4x4_50", 3)]).detect(render(camera, bundle, R, p))
    expected = camera.project(bundle.markers[0].corners_M() @ R.T + p)
    assert np.linalg.norm(found[0].corners_px[1] - found[0].corners_px[0]) > 250
    assert np.abs(found[0].corners_px - expected).max() < 0.1


def test_a_marker_with_cells_of_two_pixels_is_found():
    bundle = one("apriltag_36h11", 7)
    for k in range(6):
        R, p = pose(0.3, 0.3, 0.9 * k, (0.3, 0.2, 10.5))
        found = detector_for([("apriltag_36h11", 7)]).detect(render(CAMERA, bundle, R, p, 0.5, seed=k))
        corners = truth(bundle.markers[0], R, p)
        assert np.linalg.norm(corners[0] - corners[1]) < 18
        assert len(found) == 1
        assert rms(found[0].corners_px, corners) < 0.3


def test_only_markers_of_the_site_are_reported():
    R, p = pose(p=(0, 0, 2.0))
    gray = render(CAMERA, one("aruco_6x6_250", 5), R, p)
    assert detector_for([("aruco_6x6_250", 6)]).detect(gray) == []
    assert detector_for([("apriltag_36h11", 5)]).detect(gray) == []
    assert detector_for([("aruco_4x4_50", 5)]).detect(gray) == []
    assert [d.id for d in SquareDetector({"aruco_6x6_250": None}).detect(gray)] == [5]


def test_several_families_are_found_in_one_image():
    bundle = Bundle(
        name="b",
        markers=[
            Marker(family=f, id=11, size_m=0.25, p_M=(0.4 * (i - 2), 0.1 * (i % 2), 0.0))
            for i, f in enumerate(FAMILIES[:3])
        ]
        + [Marker(family="apriltag_36h11", id=11, size_m=0.25, p_M=(0.4, 0.3, 0.0))],
    )
    R, p = pose(0.1, 0.1, 0.1, (0.0, 0.0, 2.5))
    found = detector_for((m.family, m.id) for m in bundle.markers).detect(render(CAMERA, bundle, R, p))
    assert {(d.family, d.id) for d in found} == {(m.family, m.id) for m in bundle.markers}


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_a_region_finds_the_same_corners_as_the_whole_image(scale):
    bundle = one("aruco_6x6_250", 5)
    R, p = pose(0.3, 0.5, 0.3, (0.4, 0.3, 1.8))
    gray, detector = render(CAMERA, bundle, R, p), detector_for([("aruco_6x6_250", 5)])
    full = detector.detect(gray)[0].corners_px
    low, high = full.min(0).astype(int) - 16, full.max(0).astype(int) + 17
    part = detector.detect(gray, (*low, *(high - low)), scale)
    assert np.abs(part[0].corners_px - full).max() < 0.05


@pytest.mark.parametrize("visible_px", [60, 3, 1])
def test_a_marker_at_the_image_edge_is_right_or_not_found(visible_px):
    """`visible_px` between the marker's left edge and the border of the image; a cut marker is never reported."""
    bundle = one("aruco_6x6_250", 5)
    R, p = pose(0.0, 0.0, 0.0, (-0.4, 0.0, 2.0))
    gray = render(CAMERA, bundle, R, p)
    corners, detector = truth(bundle.markers[0], R, p), detector_for([("aruco_6x6_250", 5)])
    cut = int(np.floor(corners[:, 0].min())) - visible_px
    found = detector.detect(np.ascontiguousarray(gray[:, cut:]))
    if visible_px == 60:
        assert len(found) == 1
    for d in found:
        assert np.abs(d.corners_px + [cut, 0] - corners).max() < 0.5
    assert detector.detect(np.ascontiguousarray(gray[:, cut + visible_px + 15 :])) == []


def test_corrupted_images_give_no_markers_and_no_exception():
    rng = np.random.default_rng(1)
    detector = DetectorSet({"aruco_4x4_50": {1, 2}, "apriltag_36h11": {3}, "stag_hd21": {4}})
    images = [np.full((480, 640), v, np.uint8) for v in (0, 128, 255)]
    images += [
        rng.integers(0, 256, (480, 640), np.uint8),
        cv2.resize(rng.integers(0, 256, (60, 80), np.uint8), (640, 480)),
    ]
    images += [np.zeros((1, 1), np.uint8), np.zeros((0, 0), np.uint8), np.zeros((3, 2000), np.uint8)]
    for image in images:
        assert detector.detect(image) == []
    assert detector.detect(images[0], (600, 400, 500, 500)) == []
    assert detector.detect(images[0], (700, 10, 50, 50)) == []
    assert detector.detect(images[0], (-200, -200, 50, 50)) == []


def test_checkerboards_and_empty_squares_are_not_markers():
    board = np.kron(np.indices((12, 16)).sum(0) % 2, np.ones((40, 40))).astype(np.uint8) * 255
    square = np.full((480, 640), 255, np.uint8)
    square[100:200, 100:200] = 0
    detector = DetectorSet({f: None for f in FAMILIES if f != "aruco_6x6_1000"})
    assert detector.detect(board) == []
    assert detector.detect(square) == []


@pytest.mark.parametrize("image", [np.zeros((48, 64, 3), np.uint8), np.zeros((48, 64), np.float32)])
def test_anything_but_a_grey_byte_image_is_refused(image):
    with pytest.raises(ValueError, match="image must be"):
        detector_for([("aruco_4x4_50", 1)]).detect(image)


def test_the_same_id_in_two_places_is_reported_twice():
    bundle = Bundle(name="b", markers=[one("aruco_6x6_250", 5).markers[0]])
    R, p = pose(p=(-0.5, 0.0, 2.0))
    gray = render(CAMERA, bundle, R, p, noise=0)
    gray[:, 330:] = gray[:, :310]
    assert [d.id for d in detector_for([("aruco_6x6_250", 5)]).detect(gray)] == [5, 5]


def test_unknown_families_and_ids_stop_the_start():
    with pytest.raises(ConfigError, match=r"marker family 'aruco_9x9' is unknown \(allowed: aruco_4x4_50"):
        detector_for([("aruco_9x9", 1)])
    with pytest.raises(ConfigError, match="marker aruco_4x4_50 50: this family has ids 0 to 49"):
        detector_for([("aruco_4x4_50", 50)])
    with pytest.raises(ConfigError, match="unknown"):
        detector_for([("stag_hd20", 1)])


@pytest.mark.parametrize(
    ("markers", "named"),
    [
        (
            [("aruco_6x6_250", 23), ("aruco_6x6_1000", 23)],
            "aruco_6x6_250 23 and aruco_6x6_1000 23: .* differ in 0 of 36",
        ),
        ([("aruco_mip_36h12", 114), ("aruco_6x6_1000", 331)], "mip_36h12 114 and aruco_6x6_1000 331: .* in 3 of 36"),
        ([("apriltag_16h5", 1), ("aruco_4x4_50", 27)], "apriltag_16h5 1 and aruco_4x4_50 27: .* differ in 1 of 16"),
    ],
)
def test_two_markers_of_which_one_print_can_be_either_stop_the_start(markers, named):
    others = [
        ("aruco_6x6_250", 1),
        ("aruco_6x6_1000", 2),
        ("aruco_mip_36h12", 3),
        ("apriltag_36h11", 0),
        ("aruco_4x4_50", 4),
    ]
    detector_for(others)
    with pytest.raises(ConfigError, match=f"^markers .*{named} cells"):
        detector_for([*markers, *others])


def test_a_print_of_one_family_is_found_as_a_marker_of_another():
    """What the refusal prevents: the first quarter of aruco_6x6_1000 is aruco_6x6_250."""
    R, p = pose(0.1, 0.2, 0.1, (0.0, 0.0, 2.0))
    found = detector_for([("aruco_6x6_1000", 23)]).detect(render(CAMERA, one("aruco_6x6_250", 23), R, p))
    assert [(d.family, d.id) for d in found] == [("aruco_6x6_1000", 23)]


def test_a_dictionary_of_the_user_that_corrects_too_much_stops_the_start(tmp_path):
    codes = square_family("aruco_5x5_100").all_bits()[40:42]  # 7 cells apart and more
    lines = ["%YAML:1.0", "nmarkers: 2", "markersize: 5", "maxCorrectionBits: 25"]
    lines += [f'marker_{i}: "{"".join(str(b) for b in code.ravel())}"' for i, code in enumerate(codes)]
    (tmp_path / "own.yml").write_text("\n".join(lines) + "\n")
    family = f"dictionary:{tmp_path / 'own.yml'}"
    detector_for([(family, 0)])
    with pytest.raises(ConfigError, match=r"own.yml 0 and .*own.yml 1: their codes differ in \d+ of 25 cells"):
        detector_for([(family, 0), (family, 1)])


def test_a_dictionary_file_is_a_family(tmp_path):
    codes = square_family("aruco_5x5_100").all_bits()[40:43]
    lines = ["%YAML:1.0", "nmarkers: 3", "markersize: 5", "maxCorrectionBits: 2"]
    lines += [f'marker_{i}: "{"".join(str(b) for b in code.ravel())}"' for i, code in enumerate(codes)]
    path = tmp_path / "own.yml"
    path.write_text("\n".join(lines) + "\n")
    bundle = one("aruco_5x5_100", 41)
    R, p = pose(0.2, 0.2, 0.9, (0, 0, 2.0))
    found = detector_for([(f"dictionary:{path}", 1)]).detect(render(CAMERA, bundle, R, p))
    assert [(d.family, d.id) for d in found] == [(f"dictionary:{path}", 1)]
    assert rms(found[0].corners_px, truth(bundle.markers[0], R, p)) < 0.1


@pytest.mark.parametrize("text", ["", "%YAML:1.0\nnmarkers: 2\n", "%YAML:1.0\n]]]{{", "\x00\x01", "nmarkers = 3"])
def test_a_broken_dictionary_file_stops_the_start_with_its_name(tmp_path, text):
    path = tmp_path / "broken.yml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="broken.yml: not a marker dictionary"):
        detector_for([(f"dictionary:{path}", 0)])
    with pytest.raises(ConfigError, match="absent.yml: no such marker dictionary"):
        detector_for([(f"dictionary:{tmp_path / 'absent.yml'}", 0)])


def test_refinement_returns_unseen_corners_unchanged_and_marks_them():
    corners = np.array([[[10.0, 10], [50, 10], [50, 50], [10, 50]]])
    for image, given in ((90, corners), (0, corners + 500.0)):
        refined, seen = refine_corners(np.full((80, 80), image, np.uint8), given)
        np.testing.assert_array_equal(refined, given)
        assert not seen.any()
    assert refine_corners(np.zeros((80, 80), np.uint8), np.zeros((0, 4, 2)))[0].shape == (0, 4, 2)


@pytest.mark.parametrize("scale", [1.0, 0.5, 0.25])
def test_a_marker_that_fills_the_image_is_found(scale):
    found = 0
    for k, z in enumerate((1.05, 1.1, 1.2, 1.4)):
        bundle = one("aruco_4x4_50", 3 + k, size_m=0.6)
        R, p = pose(0.0, 0.1, 0.05, (0.02, 0.01, z))
        detections = detector_for([("aruco_4x4_50", 3 + k)]).detect(render(CAMERA, bundle, R, p), None, scale)
        found += len(detections)
        for d in detections:
            assert np.abs(d.corners_px - truth(bundle.markers[0], R, p)).max() < 0.15
    assert found >= (3 if scale == 1.0 else 4)

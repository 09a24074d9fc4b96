"""The simulated camera draws markers at their projections, with the noise, blur and light of a camera."""

import math
import time

import cv2
import msgspec
import numpy as np
import pytest

from companion.core.config import ConfigError, parse
from companion.core.frames import quat_from_matrix, quat_from_rpy, quat_multiply, rotation_matrix, rpy_from_quat
from companion.core.site import Site
from sitl.camera import CameraConfig, SceneCamera, clip, covers, distort, undistort
from sitl.scene import Backdrop, SceneConfig, backdrop_texture

STILL = (0.0, 0.0, 0.0)
# the face looks along -x of the world: seen from the front, x of M is to the right and y up
FACE = np.array([[0.0, 0, -1], [-1, 0, 0], [0, 1, 0]])
FACE_RPY = [float(a) for a in rpy_from_quat(quat_from_matrix(FACE))]

SITE = parse(
    {
        "bundle": [
            {
                "name": "pier",
                "markers": [
                    {"family": "aruco_6x6_250", "id": 23, "size_m": 0.30, "p_M": [-0.45, 0.30, 0.0]},
                    {"family": "aruco_6x6_250", "id": 40, "size_m": 0.30, "p_M": [0.45, 0.30, 0.0]},
                    {"family": "aruco_6x6_250", "id": 62, "size_m": 0.30, "p_M": [0.45, -0.30, 0.0]},
                    {"family": "aruco_6x6_250", "id": 98, "size_m": 0.30, "p_M": [-0.45, -0.30, 0.0]},
                    {"family": "apriltag_36h11", "id": 7, "size_m": 0.12, "p_M": [0.0, 0.0, 0.0]},
                ],
            },
            {"name": "stag", "markers": [{"family": "stag_hd21", "id": 1, "size_m": 0.2}]},
        ]
    },
    Site,
    "site",
)
PIER = {"p_W": [0.02, 0.0, 3.0], "rpy_rad": FACE_RPY, "size_m": [3.0, 8.0], "texture": "concrete", "seed": 1}
GROUND = {"p_W": [0.0, 0.0, 0.0], "rpy_rad": [0.0, 0.0, 0.0], "size_m": [60.0, 60.0], "texture": "grass", "seed": 2}
CONFIG = parse(
    {
        "width": 640,
        "height": 480,
        "fx": 610.0,
        "fy": 612.0,
        "cx": 322.0,
        "cy": 238.0,
        "distortion": [-0.12, 0.05, 0.001, -0.0007, 0.0],
        "p_BC": [0.12, 0.0, 0.0],
        "q_BC": [0.5, -0.5, 0.5, -0.5],
        "rate_hz": 30.0,
        "latency_s": 0.06,
        "exposure_s": 0.004,
        "noise_std": 2.0,
        "blur_px": 0.5,
        "corner_noise_px": 0.3,
        "vignetting": 0.2,
        "sway_std_rad": 0.0,
        "sway_time_constant_s": 0.5,
    },
    CameraConfig,
    "camera",
)


def scene(bundles=("pier",), backdrops=(PIER, GROUND), light=1.0) -> SceneConfig:
    placed = [{"name": name, "p_W": [0.0, 0.0, 3.0], "rpy_rad": FACE_RPY} for name in bundles]
    return parse({"bundles": placed, "backdrops": list(backdrops), "light": light}, SceneConfig, "scene")


def camera(seed=1, draw=True, backdrops=(PIER, GROUND), light=1.0, **changes) -> SceneCamera:
    config = msgspec.structs.replace(CONFIG, **changes)
    return SceneCamera(config, scene(backdrops=backdrops, light=light), SITE, seed, draw)


def pixels(image) -> np.ndarray:
    return np.frombuffer(image.data, np.uint8).reshape(image.height, image.width)


def poses(count: int):
    rng = np.random.default_rng(5)
    for _ in range(count):
        p_WB = (-rng.uniform(2.0, 5.0), rng.uniform(-0.7, 0.7), 3 + rng.uniform(-0.4, 0.4))
        yield p_WB, quat_from_rpy(*rng.normal(0, 0.06, 3))


def edge_corners(image: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Corners as intersections of straight lines fitted to the half-way grey levels of the four edges."""
    lines = []
    for i in range(4):
        a, b = corners[i], corners[(i + 1) % 4]
        along = (b - a) / np.linalg.norm(b - a)
        out = np.array([along[1], -along[0]])
        if out @ (corners.mean(axis=0) - a) > 0:
            out = -out
        offsets = np.linspace(-3, 3, 61)
        points = []
        for s in np.linspace(0.2, 0.8, 25):
            ray = a + s * (b - a) + offsets[:, None] * out
            grey = cv2.remap(image, ray[None].astype(np.float32), None, cv2.INTER_LINEAR)[0].astype(float)
            level = (grey[:5].mean() + grey[-5:].mean()) / 2
            k = int(np.argmax(grey > level))
            points.append(
                a + s * (b - a) + (offsets[k - 1] + (level - grey[k - 1]) / (grey[k] - grey[k - 1]) * 0.1) * out
            )
        points = np.array(points)
        centre = points.mean(axis=0)
        normal = np.linalg.svd(points - centre)[2][1]
        lines.append((normal, normal @ centre))
    found = []
    for i in range(4):
        (n0, c0), (n1, c1) = lines[i - 1], lines[i]
        found.append(np.linalg.solve(np.array([n0, n1]), [c0, c1]))
    return np.array(found)


def test_rendered_edges_lie_where_the_projection_puts_them():
    cam = camera(noise_std=0.0, vignetting=0.0)
    errors = []
    for p_WB, q_WB in poses(12):
        image = pixels(cam.render(0.0, p_WB, q_WB, STILL, STILL))
        large = [s.corners_px for s in cam.project_corners(0.0, p_WB, q_WB) if s.marker.size_m > 0.2]
        errors += [edge_corners(image, corners) - corners for corners in large]
    errors = np.array(errors)
    assert len(errors) > 30
    assert np.abs(errors.mean(axis=0)).max() < 0.05, "each of the four corners by itself is free of bias"
    assert math.sqrt(np.mean(errors**2)) < 0.1


def test_aruco_finds_the_markers_at_their_projected_corners():
    cam = camera()
    parameters = cv2.aruco.DetectorParameters()
    parameters.cornerRefinementMethod = cv2.aruco.CORNER_REFINE_SUBPIX
    parameters.cornerRefinementWinSize = 3
    detector = cv2.aruco.ArucoDetector(cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_6X6_250), parameters)
    errors, expected = [], 0
    for p_WB, q_WB in poses(12):
        corners, ids, _ = detector.detectMarkers(pixels(cam.render(0.0, p_WB, q_WB, STILL, STILL)))
        found = dict(zip(np.ravel(ids).tolist(), corners, strict=True))
        for seen in cam.project_corners(0.0, p_WB, q_WB):
            if seen.marker.family == "aruco_6x6_250":
                expected += 1
                if seen.marker.id in found:
                    errors.append(found[seen.marker.id].reshape(4, 2) - seen.corners_px)
    errors = np.array(errors)
    assert len(errors) >= 0.95 * expected > 30
    assert np.abs(errors.reshape(-1, 2).mean(axis=0)).max() < 0.15
    assert math.sqrt(np.mean(errors**2)) < 0.3


def test_apriltags_are_drawn_so_that_they_are_found():
    cam = camera()
    image = pixels(cam.render(0.0, (-2.0, 0.0, 3.0), (1.0, 0, 0, 0), STILL, STILL))
    dictionary = cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_APRILTAG_36h11)
    _, ids, _ = cv2.aruco.ArucoDetector(dictionary).detectMarkers(image)
    assert np.ravel(ids).tolist() == [7]


def test_distortion_is_opencvs_and_its_inverse_inverts():
    rng = np.random.default_rng(0)
    xy = rng.uniform(-0.5, 0.5, (200, 2))
    k = (-0.2, 0.07, 0.002, -0.003, 0.01)
    K = np.eye(3)
    expected, _ = cv2.projectPoints(np.column_stack([xy, np.ones(200)]), np.zeros(3), np.zeros(3), K, np.array(k))
    assert np.allclose(distort(xy, k), expected.reshape(-1, 2), atol=1e-12)
    assert np.allclose(undistort(distort(xy, k), k), xy, atol=1e-8)


def test_projection_agrees_with_opencv():
    cam = camera(draw=False)
    p_WB, q_WB = (-3.0, 0.3, 2.8), quat_from_rpy(0.1, -0.05, 0.15)
    R_CW = (rotation_matrix(q_WB) @ rotation_matrix(CONFIG.q_BC)).T
    p_WC = np.array(p_WB) + rotation_matrix(q_WB) @ np.array(CONFIG.p_BC)
    K = np.array([[CONFIG.fx, 0, CONFIG.cx], [0, CONFIG.fy, CONFIG.cy], [0, 0, 1]])
    seen = cam.project_corners(0.0, p_WB, q_WB)
    assert len(seen) == 5
    for bundle, marker, corners in seen:
        assert bundle == "pier"
        corners_W = marker.corners_M() @ FACE.T + (0.0, 0.0, 3.0)
        rotation, _ = cv2.Rodrigues(R_CW)
        expected, _ = cv2.projectPoints(corners_W, rotation, -R_CW @ p_WC, K, np.array(CONFIG.distortion))
        assert np.allclose(corners, expected.reshape(4, 2), atol=1e-6)


def test_markers_behind_turned_away_hidden_or_too_small_are_not_seen():
    cam = camera(draw=False)
    level = (1.0, 0.0, 0.0, 0.0)
    assert len(cam.project_corners(0.0, (-3.0, 0.0, 3.0), level)) == 5
    assert cam.project_corners(0.0, (-3.0, 0.0, 3.0), quat_from_rpy(0, 0, math.pi)) == [], "looks away"
    assert cam.project_corners(0.0, (3.0, 0.0, 3.0), quat_from_rpy(0, 0, math.pi)) == [], "sees the backs"
    assert {v.marker.size_m for v in cam.project_corners(0.0, (-8.0, 0.0, 3.0), level)} == {0.30}, (
        "the small one is lost"
    )
    assert cam.project_corners(0.0, (-18.0, 0.0, 3.0), level) == []
    wall = PIER | {"p_W": [-1.0, 0.0, 3.0]}
    assert camera(draw=False, backdrops=(wall,)).project_corners(0.0, (-3.0, 0.0, 3.0), level) == []


def test_a_wall_in_front_covers_markers_and_markers_cover_their_wall():
    level = (1.0, 0.0, 0.0, 0.0)
    plain = PIER | {"texture": "plain"}
    open_view = pixels(
        camera(backdrops=(plain, GROUND), noise_std=0.0).render(0.0, (-3.0, 0.0, 3.0), level, STILL, STILL)
    )
    wall = plain | {"p_W": [-1.0, 0.0, 3.0]}
    covered = pixels(camera(backdrops=(wall, GROUND), noise_std=0.0).render(0.0, (-3.0, 0.0, 3.0), level, STILL, STILL))
    assert open_view[100:380, 150:490].min() < 60
    assert covered[100:380, 150:490].min() > 100


def test_an_image_without_the_planes_that_are_hidden_is_the_same(monkeypatch):
    left_out = []

    def images():
        cam = camera()
        near = [((-1.5 - 0.1 * i, 0.0, 3.0), quat_from_rpy(0.02 * i, 0.0, 0.0)) for i in range(4)]
        return [cam.render(0.0, p_WB, q_WB, STILL, STILL).data for p_WB, q_WB in (*near, *poses(8))]

    def noted(polygon, other):
        left_out.append(covers(polygon, other))
        return left_out[-1]

    monkeypatch.setattr("sitl.camera.covers", noted)
    without = images()
    monkeypatch.setattr("sitl.camera.covers", lambda polygon, other: False)
    assert without == images()
    assert 3 < sum(left_out) < 12  # near the pier the ground is behind it, farther away it is in view


def test_noise_light_and_seed():
    pose = ((-3.0, 0.0, 3.0), (1.0, 0.0, 0.0, 0.0), STILL, STILL)
    quiet = pixels(camera(noise_std=0.0).render(1.5, *pose)).astype(float)
    image = camera(seed=3).render(1.5, *pose)
    assert image.stamp_s == 1.5
    assert (image.width, image.height, len(image.data)) == (640, 480, 640 * 480)
    residual = pixels(image) - quiet
    assert abs(residual.mean()) < 0.1
    assert residual.std() == pytest.approx(2.0, abs=0.15)
    assert image.data == camera(seed=3).render(1.5, *pose).data
    assert image.data != camera(seed=4).render(1.5, *pose).data
    dim = pixels(camera(noise_std=0.0, light=0.3).render(1.5, *pose)).astype(float)
    assert dim.mean() / quiet.mean() == pytest.approx(0.3, abs=0.01)


def test_motion_blurs_along_the_motion_and_does_not_shift():
    cam = camera(noise_std=0.0, vignetting=0.0, exposure_s=0.02)
    pose = ((-3.0, 0.0, 3.0), (1.0, 0.0, 0.0, 0.0))
    sharp = pixels(cam.render(0.0, *pose, STILL, STILL)).astype(float)
    moving = pixels(cam.render(0.0, *pose, (0.0, 1.5, 0.0), STILL)).astype(
        float
    )  # to the left: the picture moves right
    gradient_u = np.abs(np.diff(moving, axis=1)).mean() / np.abs(np.diff(sharp, axis=1)).mean()
    gradient_v = np.abs(np.diff(moving, axis=0)).mean() / np.abs(np.diff(sharp, axis=0)).mean()
    assert gradient_u < 0.8 * gradient_v
    assert cv2.phaseCorrelate(sharp, moving)[0] == pytest.approx((0.0, 0.0), abs=0.1)
    turned = pixels(cam.render(0.0, *pose, STILL, (0.0, 0.5, 0.0))).astype(float)
    assert np.abs(np.diff(turned, axis=0)).mean() < 0.9 * np.abs(np.diff(sharp, axis=0)).mean()


def test_blur_has_the_length_of_the_motion():
    """Flow predicted for the blur equals the finite difference of projected corners."""
    cam = camera(draw=False, exposure_s=0.01)
    p, q = np.array([-3.0, 0.2, 2.9]), quat_from_rpy(0.05, -0.04, 0.1)
    v, omega = np.array([0.4, 0.6, -0.3]), np.array([0.0, 0.4, -0.5])
    p_WC, R_WC = cam.camera_pose(0.0, p, q)
    motion = cam.motion_px(p_WC, R_WC, q, v, omega)
    step = 1e-4
    q_later = quat_multiply(q, np.array([1.0, *(omega * step / 2)]))
    before = np.mean([s.corners_px for s in cam.project_corners(0.0, p, q)], axis=(0, 1))
    after = np.mean([s.corners_px for s in cam.project_corners(0.0, p + v * step, q_later)], axis=(0, 1))
    assert motion == pytest.approx((after - before) / step * 0.01, rel=0.06, abs=0.1)


def test_far_markers_do_not_alias():
    """Brightness of distant markers stays the same when the camera moves by part of a pixel."""
    cam = camera(noise_std=0.0, blur_px=0.0, vignetting=0.0, backdrops=())
    sums = []
    for shift in np.linspace(0, 0.04, 9):
        image = pixels(cam.render(0.0, (-12.0, shift, 3.0), (1.0, 0, 0, 0), STILL, STILL))
        sums.append(float(np.sum(205.0 - image)))
    assert np.ptp(sums) / np.mean(sums) < 0.05


def test_corner_noise_has_the_configured_size_and_is_reproducible():
    pose = (0.0, (-3.0, 0.0, 3.0), (1.0, 0.0, 0.0, 0.0))
    cam, twin = camera(seed=9, draw=False), camera(seed=9, draw=False)
    exact = [s.corners_px for s in cam.project_corners(*pose)]
    noisy = [[s.corners_px for s in cam.noisy_corners(*pose)] for _ in range(100)]
    assert np.std(np.array(noisy) - np.array(exact)) == pytest.approx(0.3, abs=0.02)
    assert np.array_equal(noisy[0], [s.corners_px for s in twin.noisy_corners(*pose)])


def test_sway_turns_the_camera_the_same_for_image_and_corners():
    cam = camera(draw=False, sway_std_rad=0.01)
    pose = ((-3.0, 0.0, 3.0), (1.0, 0.0, 0.0, 0.0))
    first = cam.project_corners(1.0, *pose)[0].corners_px
    assert np.array_equal(first, cam.project_corners(1.0, *pose)[0].corners_px)
    later = np.array([cam.project_corners(1.0 + 0.5 * i, *pose)[0].corners_px[0] for i in range(1, 400)])
    assert later.std(axis=0) == pytest.approx((6.1, 6.1), rel=0.35)


def test_a_plane_that_reaches_behind_the_camera_is_clipped():
    image = pixels(
        camera(noise_std=0.0, backdrops=(GROUND,)).render(0.0, (-3.0, 8.0, 1.0), (1.0, 0, 0, 0), STILL, STILL)
    )
    assert image[:200].min() > 150, "sky above the horizon"
    assert image[300:].mean() < 120, "grass below"
    half = clip(np.array([[0.0, 0], [2, 0], [2, 2], [0, 2]]), np.array([[1.0, 0, -1]]), np.array([0.0]))
    assert half[:, 0].min() == 1.0
    assert half[:, 0].max() == 2.0


@pytest.mark.parametrize(
    ("bundles", "changes", "message"),
    [
        (("bridge",), {}, "'bridge' is not in the marker file"),
        (("stag",), {}, "stag_hd21 1: the renderer draws only"),
        (("pier",), {"distortion": (-1.9, 0.0, 0.0, 0.0, 0.0), "fx": 200.0, "fy": 200.0}, "folds the image"),
    ],
)
def test_a_scene_that_cannot_be_drawn_is_refused(bundles, changes, message):
    with pytest.raises(ConfigError, match=message):
        SceneCamera(msgspec.structs.replace(CONFIG, **changes), scene(bundles=bundles), SITE, 1)


def test_stag_bundles_are_fine_without_pixels():
    cam = SceneCamera(CONFIG, scene(bundles=("stag",), backdrops=()), SITE, 1, draw=False)
    assert len(cam.project_corners(0.0, (-3.0, 0.0, 3.0), (1.0, 0, 0, 0))) == 1
    with pytest.raises(RuntimeError, match="draw=False"):
        cam.render(0.0, (-3.0, 0.0, 3.0), (1.0, 0, 0, 0), STILL, STILL)


def test_backdrops_repeat_with_their_seed():
    backdrop = parse(PIER, Backdrop, "backdrop")
    assert np.array_equal(backdrop_texture(backdrop), backdrop_texture(backdrop))
    other = msgspec.structs.replace(backdrop, seed=5)
    assert not np.array_equal(backdrop_texture(backdrop), backdrop_texture(other))


def test_a_frame_takes_a_few_milliseconds():
    cam = camera()
    best = math.inf
    for _ in range(12):
        start = time.process_time()
        cam.render(0.0, (-3.5, 0.2, 2.9), (1.0, 0.0, 0.0, 0.0), (0.3, 0.5, 0.0), (0.3, 0.5, 0.2))
        best = min(best, time.process_time() - start)
    assert best < 0.02, "budget 5 ms on a free core; the limit is wider for a slow machine"

"""Lenses are recovered from pictures of boards within their own stated uncertainty, and bad views are named."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
from board_views import BoardCamera, poses

from calibration.camera.board import Board
from calibration.camera.board_detection import BoardDetector, View
from calibration.camera.fit import Lens, board_shapes
from calibration.camera.problem import Problem, ProblemKind
from calibration.camera.views import calibrate, projection_std
from calibration.results import DataError

SIZE = (640, 480)
PINHOLE = Lens("pinhole", np.array([610.0, 612.0, 322.0, 237.0, -0.12, 0.05, 0.0005, -0.0003, 0.0]))
FISHEYE = Lens("fisheye", np.array([300.0, 301.0, 322.0, 237.0, -0.02, 0.01, -0.004, 0.001]))


@pytest.fixture
def grid(load_board) -> Board:
    return load_board("grid_a4")


def computed(
    lens: Lens,
    board: Board,
    count: int = 20,
    noise_px: float = 0.1,
    seed: int = 1,
    tilted: bool = True,
    tilt_deg=(15, 45),
    towards_rad=None,
    reach=None,
    distance_m=(0.3, 0.5),
):
    """Views without pictures: projected corners with noise, those inside the image."""
    rng = np.random.default_rng(seed)
    views = []
    for i in range(count):
        aside = reach or (0.9 if lens.model == "fisheye" else 0.25)
        tilt = np.radians(rng.uniform(*tilt_deg)) if tilted else 0.0
        towards = 2.4 * i if towards_rad is None else towards_rad
        axis = np.array([np.cos(towards), np.sin(towards), 0.0])
        R = cv2.Rodrigues(tilt * axis)[0] @ cv2.Rodrigues(np.array([0, 0, rng.uniform(-3, 3) if tilted else 0.0]))[0]
        distance = rng.uniform(*distance_m) * (0.6 if lens.model == "fisheye" else 1.0)
        at = np.array([aside * rng.uniform(-1, 1), aside * rng.uniform(-0.75, 0.75), 1.0]) * distance
        p = at - R @ board.points_m.mean(0)
        pixels = lens.project(board.points_m, np.concatenate([cv2.Rodrigues(R)[0].ravel(), p]))[0]
        pixels = pixels + rng.normal(0, noise_px, pixels.shape)
        inside = ((pixels > 0) & (pixels < np.array(SIZE) - 1)).all(1) & (board.points_m @ R[2] + p[2] > 0.05)
        views.append(View(f"{i}.png", np.flatnonzero(inside), pixels[inside], 0.8))
    return [v for v in views if len(v.numbers) >= 20]


@pytest.mark.parametrize("lens", [PINHOLE, FISHEYE], ids=["pinhole", "fisheye"])
def test_jacobians_are_those_of_finite_differences(lens, grid):
    pose, points = np.array([0.3, -0.2, 0.1, 0.02, -0.03, 0.4]), grid.points_m[:7]
    _, by_pose, by_lens = lens.project(points, pose)
    step = 1e-6
    for i in range(6):
        change = step * np.eye(6)[i]
        slope = (lens.project(points, pose + change)[0] - lens.project(points, pose - change)[0]) / (2 * step)
        assert np.allclose(by_pose[:, i], slope.ravel(), atol=1e-4 * max(1.0, np.abs(slope).max()))
    for i in range(len(lens.numbers)):
        change = step * np.eye(len(lens.numbers))[i]
        higher, lower = (Lens(lens.model, lens.numbers + s * change).project(points, pose)[0] for s in (1, -1))
        assert np.allclose(by_lens[:, i], ((higher - lower) / (2 * step)).ravel(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("lens", [PINHOLE, FISHEYE], ids=["pinhole", "fisheye"])
@pytest.mark.parametrize("name", ["grid", "charuco"])
def test_a_lens_is_recovered_from_drawn_pictures(lens, name, load_board):
    board = load_board(f"{name}_a4")
    fisheye = lens.model == "fisheye"
    camera = BoardCamera(board, lens.K, lens.distortion, SIZE, fisheye)
    detector = BoardDetector(board)
    held = poses(camera, *((0.9, 0.27) if fisheye else (0.3, 0.42)), seed=3)
    views = [detector.view(camera.picture(*pose), f"{i}.png") for i, pose in enumerate(held)]
    c = calibrate(board, views, SIZE, lens.model, len(lens.distortion))
    assert len(c.views) >= 12 and c.fit.rms_px < 0.1
    assert c.fit.lens.numbers[:2] == pytest.approx(lens.numbers[:2], rel=2.5e-3)
    assert c.fit.lens.numbers[2:4] == pytest.approx(lens.numbers[2:4], abs=0.6)
    # where corners were, the two lenses put the same rays on the same pixels
    seen = np.concatenate([v.pixels for v in c.views])
    rays = lens.rays(seen)
    off = c.fit.lens.project(rays, np.zeros(6))[0] - seen
    assert np.sqrt((off**2).sum(1).mean()) < 0.7


@pytest.mark.parametrize("lens", [PINHOLE, FISHEYE], ids=["pinhole", "fisheye"])
@pytest.mark.verify
def test_the_stated_deviations_are_those_of_many_calibrations(lens, grid):
    errors = []
    for seed in range(5):
        c = calibrate(grid, computed(lens, grid, 14, seed=seed), SIZE, lens.model, len(lens.distortion))
        errors.append((c.fit.lens.numbers - lens.numbers) / c.fit.std)
    spread = np.sqrt(np.mean(np.square(errors), axis=0))
    assert (spread > 0.3).all() and (spread < 2.0).all(), spread


@pytest.mark.verify
def test_rational_distortion_is_fitted_when_asked_for(grid):
    true = Lens("pinhole", np.array([500.0, 500, 320, 240, 0.2, 0.05, 0.0, 0.0, 0.001, 0.5, 0.1, 0.0]))
    c = calibrate(grid, computed(true, grid, 30, noise_px=0.05), SIZE, "pinhole", 8)
    assert len(c.fit.lens.distortion) == 8 and c.fit.rms_px < 0.1
    assert c.fit.lens.numbers[:2] == pytest.approx(true.numbers[:2], rel=3e-3)


def test_bad_views_are_left_out_by_name_and_reason(grid):
    views = computed(PINHOLE, grid)
    good = calibrate(grid, views, SIZE, "pinhole", 5)
    rng = np.random.default_rng(2)
    bent = replace(views[0], name="shaken.png", pixels=views[0].pixels + rng.normal(0, 3, views[0].pixels.shape))
    twice = replace(views[1], name="twice.png", pixels=views[1].pixels + 0.1)
    soft = replace(views[2], name="soft.png", pixels=views[2].pixels + 9.0, blur_px=4.0)
    empty = View("empty.png", np.zeros(0, int), np.zeros((0, 2)), float("nan"), Problem(ProblemKind.NOT_FOUND))
    c = calibrate(grid, [*views, bent, twice, soft, empty], SIZE, "pinhole", 5)
    assert set(c.rejected) == {"shaken.png", "twice.png", "soft.png", "empty.png"}
    assert c.rejected["shaken.png"].kind is ProblemKind.REPROJECTION
    assert str(c.rejected["twice.png"]) == f"the same view as {views[1].name}"
    assert str(c.rejected["soft.png"]).startswith("blurred: edges 4.0 px")
    assert c.fit.lens.numbers == pytest.approx(good.fit.lens.numbers, rel=1e-9)


def test_single_wrong_corners_hardly_matter(grid):
    views = computed(PINHOLE, grid)
    for view in views:
        view.pixels[3] += 6.0
    c = calibrate(grid, views, SIZE, "pinhole", 5)
    assert c.fit.lens.numbers[:2] == pytest.approx(PINHOLE.numbers[:2], rel=2e-3)


def test_a_board_held_one_way_is_refused(grid):
    flat = computed(PINHOLE, grid, tilted=False)
    with pytest.raises(DataError, match="do not determine the focal length .*tilt the board by 30 to 45"):
        calibrate(grid, flat, SIZE, "pinhole", 5)


def test_poor_coverage_is_reported_with_the_empty_places(grid):
    views = [replace(v, pixels=v.pixels) for v in computed(PINHOLE, grid, 40) if v.pixels[:, 0].max() < 420]
    c = calibrate(grid, views, SIZE, "pinhole", 5)
    (warning,) = [w for w in c.warnings if w.startswith("corners in")]
    assert "right" in warning and "left" not in warning.replace("top left", "").replace("bottom left", "")
    std = projection_std(c.fit.lens, c.fit.covariance, SIZE)
    assert np.nanmedian(std[:, -2:]) > 2 * np.nanmedian(std[:, 4:9])


def test_fewer_than_eight_views_are_refused_with_the_problems_of_the_others(grid):
    views = computed(PINHOLE, grid)[:7]
    missing = {name: Problem(ProblemKind.NOT_FOUND) for name in ("a.png", "b.png")}
    few = {"c.png": Problem(ProblemKind.FEW_CORNERS, "too few corners (3 of 80)")}
    with pytest.raises(DataError) as caught:
        calibrate(grid, views, SIZE, "pinhole", 5, rejected=missing | few)
    assert str(caught.value) == (
        "7 usable views of 10, at least 8 are needed: 2 x board not found, 1 x too few corners"
    )


@pytest.mark.parametrize(
    ("views", "said"),
    [
        ({"tilt_deg": (0, 8)}, "focal length .*tilt the board by 30 to 45° to all sides .it was within 1[0-9]° of one"),
        ({"tilt_deg": (30, 32), "towards_rad": 0.3}, "focal length .*tilt the board .*it was within [0-9]° of one"),
        (
            {"reach": 0.01, "distance_m": (0.45, 0.5)},
            "the distortion .corners in .*hold the board nearer, and into each",
        ),
        ({"reach": 0.01, "distance_m": (1.0, 1.3)}, "the focal length .*, nor the distortion .*hold the board nearer"),
    ],
    ids=["frontal", "one tilt", "in the middle", "small in the middle"],
)
def test_many_views_that_do_not_fix_the_lens_are_refused_with_what_to_photograph(grid, views, said):
    with pytest.raises(DataError, match=said):
        calibrate(grid, computed(PINHOLE, grid, 24, **views), SIZE, "pinhole", 5)


@pytest.mark.parametrize("lens", [PINHOLE, FISHEYE], ids=["pinhole", "fisheye"])
def test_eight_good_views_at_one_distance_are_accepted(lens, grid):
    c = calibrate(grid, computed(lens, grid, 11, distance_m=(0.35, 0.37))[:8], SIZE, lens.model, len(lens.distortion))
    assert len(c.views) == 8
    assert c.fit.lens.numbers[:2] == pytest.approx(lens.numbers[:2], rel=0.01)


def test_a_board_that_differs_from_its_file_is_detected(grid):
    names, shapes = board_shapes(grid)
    true = dict.fromkeys(names, 0.0) | {"marker": -0.01, "bend_x": 0.01}
    printed = Board(grid.layout, grid.name, grid.marked.dictionary)
    printed.points_m = grid.points_m + np.tensordot(list(true.values()), shapes, 1)
    views = computed(PINHOLE, printed)
    c = calibrate(grid, views, SIZE, "pinhole", 5)
    (warning,) = [w for w in c.warnings if w.startswith("the board differs from its file")]
    assert "markers of 39.60 mm with gaps of 5.40 mm" in warning and "bent by 1.1 mm" in warning
    fitted = calibrate(grid, views, SIZE, "pinhole", 5, fit_board=True)
    assert dict(zip(names, fitted.fit.board, strict=True)) == pytest.approx(true, abs=5e-4)
    assert fitted.fit.lens.numbers[:2] == pytest.approx(PINHOLE.numbers[:2], rel=1e-3)
    assert not [
        w for w in calibrate(grid, computed(PINHOLE, grid), SIZE, "pinhole", 5).warnings if "differs from its file" in w
    ]

"""Pictures of meshes: grey, depth and material are where projective geometry puts them."""

import threading

import cv2
import numpy as np
import pytest

from companion.core.config import ConfigError
from companion.core.frames import quat_from_rpy, rotation_matrix
from companion.core.site import Marker
from sitl.light import LightConfig
from sitl.rendering.lens import Lens
from sitl.rendering.meshes import MeshPatch, rectangle
from sitl.rendering.rasteriser import DrawnPlane, Rasteriser
from sitl.scene import DICTIONARIES, SKY, SceneMarker, marker_plane
from sitl.views import Pinhole
from tests.rendering.drawn_worlds import AHEAD, FACING, VIEW, box, draws, wall

pytestmark = draws
ORIGIN = np.zeros(3)
EVEN = LightConfig(sky=1.0, below=1.0, sun=0.0)


def pixels(view):
    u, v = np.meshgrid(np.arange(view.width), np.arange(view.height))
    return np.stack([(u - view.cx) / view.fx, (v - view.cy) / view.fy, np.ones_like(u, dtype=float)], -1)


def test_the_depth_of_a_tilted_wall_is_that_of_its_plane():
    tilted = FACING @ rotation_matrix(quat_from_rpy(0.3, -0.4, 0.2))
    picture = Rasteriser([wall(6.0, R=tilted, size_m=(60.0, 60.0))]).draw(VIEW, ORIGIN, AHEAD)
    normal, rays = AHEAD.T @ tilted[:, 2], pixels(VIEW)
    expected = (normal @ (0.0, 0.0, 6.0)) / (rays @ normal)
    assert np.abs(picture.depth_m / expected - 1.0).max() < 2e-5
    assert (picture.material > 0).all()


def test_a_box_covers_the_pixels_of_its_projected_corners_and_hides_the_wall():
    picture = Rasteriser([wall(8.0, m=0.85), box((5.0, 0.6, -0.3), (2.0, 1.0, 1.4))]).draw(VIEW, ORIGIN, AHEAD)
    seen = np.isclose(picture.depth_m, 4.0, atol=1e-4)  # its front
    u, v = (
        VIEW.fx * -np.array([1.1, 0.1]) / 4.0 + VIEW.cx,  # left and right edge
        VIEW.fy * -np.array([0.4, -1.0]) / 4.0 + VIEW.cy,
    )
    rows, columns = np.flatnonzero(seen.any(axis=1)), np.flatnonzero(seen.any(axis=0))
    assert (columns[0], columns[-1]) == (np.ceil(u[0]), np.floor(u[1]))
    assert (rows[0], rows[-1]) == (np.ceil(v[0]), np.floor(v[1]))
    assert len(set(picture.material[seen])) == 1 and np.isclose(picture.depth_m[0, 0], 8.0, atol=1e-4)


def test_each_pixel_has_the_noise_of_its_material_and_nothing_has_none():
    rasteriser = Rasteriser([wall(4.0, m=0.85, size_m=(1.0, 1.0)), wall(6.0, m=0.55, size_m=(3.0, 3.0))])
    picture = rasteriser.draw(VIEW, ORIGIN, AHEAD)
    noise = rasteriser.depth_noise_per_m[picture.material]
    assert noise[120, 158] == np.float32(0.85) and np.float32(0.55) in noise
    nothing = np.isinf(picture.depth_m)
    assert nothing.any() and (picture.material[nothing] == 0).all() and (picture.grey[nothing] == SKY).all()
    assert (picture.material[~nothing] > 0).all()


def test_a_solid_is_not_drawn_from_inside():
    picture = Rasteriser([box((0.0, 0.0, 0.0), (4.0, 4.0, 4.0))]).draw(VIEW, ORIGIN, AHEAD)
    assert np.isinf(picture.depth_m).all()


def test_a_texture_is_upright_and_repeats():
    texture = np.array([[10, 60], [120, 200]], np.uint8).repeat(32, 0).repeat(32, 1)
    patch = rectangle((4.0, 0.0, 0.0), FACING, (4.0, 4.0), texture)
    picture = Rasteriser([patch._replace(uv=2.0 * patch.uv)], EVEN).draw(VIEW, ORIGIN, AHEAD, depth=False)
    assert picture.depth_m is None
    corner = picture.grey[int(VIEW.cy) - 75 :: 50, int(VIEW.cx) - 75 :: 50][:2, :2]  # middles of the four parts
    assert np.abs(corner.astype(int) - [[10, 60], [120, 200]]).max() <= 1
    again = picture.grey[int(VIEW.cy) + 25 :: 50, int(VIEW.cx) + 25 :: 50][:2, :2]
    assert np.abs(again.astype(int) - [[10, 60], [120, 200]]).max() <= 1


def test_the_underside_is_darker_than_the_top():
    def grey(z_m, looks_down):
        patch = box((4.0, 0.0, z_m), (4.0, 4.0, 0.2), grey=200)
        return Rasteriser([patch]).draw(VIEW, ORIGIN, AHEAD).grey[30 if looks_down else 210, 158]

    assert grey(1.5, True) < 0.5 * grey(-1.5, False)


def test_pictures_are_the_same_again_in_any_thread_and_for_any_order_of_sizes():
    meshes = [wall(9.0), box((5.0, 0.6, -0.3), (2.0, 1.0, 1.4))]
    rasteriser, small = Rasteriser(meshes), Pinhole(64, 48, 40.0, 40.0, 31.5, 23.5)
    first = rasteriser.draw(VIEW, ORIGIN, AHEAD)
    rasteriser.draw(small, ORIGIN, AHEAD)
    pictures = []
    thread = threading.Thread(target=lambda: pictures.append(rasteriser.draw(VIEW, ORIGIN, AHEAD)))
    thread.start()
    thread.join()
    pictures.append(Rasteriser(meshes).draw(VIEW, ORIGIN, AHEAD))
    for picture in pictures:
        for drawn, expected in zip(picture, first, strict=True):
            assert np.array_equal(drawn, expected)


def detected(grey):
    parameters = cv2.aruco.DetectorParameters()
    parameters.cornerRefinementMethod = cv2.aruco.CORNER_REFINE_SUBPIX
    dictionary = cv2.aruco.getPredefinedDictionary(DICTIONARIES["aruco_6x6_250"])
    corners, ids, _ = cv2.aruco.ArucoDetector(dictionary, parameters).detectMarkers(cv2.GaussianBlur(grey, (0, 0), 0.7))
    assert ids is not None and ids.ravel().tolist() == [7]
    return corners[0][0]


def test_a_marker_glued_to_a_mesh_is_drawn_on_it_where_it_is():
    marker = Marker(family="aruco_6x6_250", id=7, size_m=0.6, p_M=(0.0, 0.0, 0.0), rpy_rad=(0.0, 0.0, 0.0))
    placed = SceneMarker("face", marker, np.array([4.0, 0.1, 0.2]), FACING)
    rasteriser, view = Rasteriser([wall(4.0)]), Pinhole(640, 480, 420.0, 420.0, 319.5, 239.5)
    drawn = rasteriser.draw(view, ORIGIN, AHEAD, [DrawnPlane(marker_plane(placed))])
    points = placed.corners_W @ AHEAD
    true = points[:, :2] / points[:, 2:] * 420.0 + (319.5, 239.5)
    error = detected(drawn.grey) - true  # the detector draws the corners of a blurred square towards its middle
    assert np.abs(error).max() < 0.4 and np.abs(error.mean(axis=0)).max() < 0.03
    assert np.isclose(drawn.depth_m[240, 320], 4.0, atol=1e-4)
    behind = SceneMarker("face", marker, placed.centre_W + (0.004, 0.0, 0.0), FACING)
    glued = rasteriser.draw(view, ORIGIN, AHEAD, [DrawnPlane(marker_plane(behind))])
    assert np.abs(detected(glued.grey) - true).max() < 0.5
    hidden = SceneMarker("face", marker, placed.centre_W + (0.02, 0.0, 0.0), FACING)
    nothing = rasteriser.draw(view, ORIGIN, AHEAD, [DrawnPlane(marker_plane(hidden))])
    assert np.array_equal(nothing.grey, rasteriser.draw(view, ORIGIN, AHEAD).grey)
    shift = np.array([[1.0, 0.0, 5.25], [0.0, 1.0, -3.5], [0.0, 0.0, 1.0]])
    moved = rasteriser.draw(view, ORIGIN, AHEAD, [DrawnPlane(marker_plane(placed), shift)])
    assert np.abs((detected(moved.grey) - true - (5.25, -3.5)).mean(axis=0)).max() < 0.1


def test_the_lens_bends_the_picture_as_opencv_projects():
    distortion = (-0.2, 0.05, 0.001, -0.002, 0.0)
    lens, target = Lens(VIEW, distortion), np.array([0.55, 0.42, 1.0])
    assert lens.view.width > VIEW.width
    dot = rectangle((4.0, -4 * target[0], -4 * target[1]), FACING, (0.24, 0.24), np.full((4, 4), 10, np.uint8))
    picture = Rasteriser([wall(6.0, grey=200), dot], EVEN).draw(lens.view, ORIGIN, AHEAD)
    dark = lens.bend(picture.grey) < 100
    K = np.array([[VIEW.fx, 0, VIEW.cx], [0, VIEW.fy, VIEW.cy], [0, 0, 1.0]])
    outline = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]]) * 0.03 + target
    expected = cv2.projectPoints(outline, np.zeros(3), np.zeros(3), K, np.array(distortion))[0].reshape(-1, 2)
    v, u = np.nonzero(dark)
    assert np.abs([u.mean(), v.mean()] - expected.mean(axis=0)).max() < 0.3
    depths = lens.bend_depth(picture.depth_m)
    assert depths.shape == (240, 320) and set(np.round(np.unique(depths), 3)) == {4.0, 6.0}
    assert Lens(VIEW, (0.0,) * 5).bend(picture.grey) is picture.grey


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"vertices_W": np.zeros((4, 2))}, "vertices have the shape"),
        ({"triangles": np.zeros((0, 3), int)}, "triangles have the shape"),
        ({"triangles": np.array([[0, 1, 9]])}, "triangles name vertices 0 to 9 of 4"),
        ({"uv": np.zeros((3, 2))}, "3 uv for 4 vertices"),
        ({"uv": np.full((4, 2), np.nan)}, "not finite"),
        ({"texture": np.zeros((4, 4, 3), np.uint8)}, "texture has the shape"),
        ({"texture": np.zeros((4, 4))}, "needs grey of 8 bit"),
        ({"depth_noise_per_m": 9.0}, "depth_noise_per_m = 9"),
    ],
)
def test_a_mesh_that_cannot_be_drawn_is_refused_with_one_line(change, why):
    patch: MeshPatch = wall(4.0)._replace(**change)
    with pytest.raises(ConfigError, match=f"mesh 1: .*{why}") as refused:
        Rasteriser([wall(5.0), patch])
    assert "\n" not in str(refused.value)


def test_a_distortion_that_folds_the_image_is_refused():
    with pytest.raises(ConfigError, match="folds the image"):
        Lens(VIEW, (-2.0, 0.0, 0.0, 0.0, 0.0))

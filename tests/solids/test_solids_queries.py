"""Rays, distances and hiding are exact."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
import trimesh

from sitl.solids.solids import Solids
from sitl.solids.triangles import pose
from tests.solids.world_makers import BOX, CYLINDER, PLATE, rock, solids_of

ROOT = Path(__file__).parents[2]
KINDS = ("box", "plate", "cylinder", "rock")
RNG = np.random.default_rng(5)
DIRECTIONS = RNG.normal(size=(400, 3))
POINTS = RNG.uniform(-2.5, 2.5, (400, 3))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("meshes")


def solid(kind, folder):
    return {"box": BOX, "plate": PLATE, "cylinder": CYLINDER}.get(kind) or rock(folder)


def in_frame(solid, points_W):
    p_W, R = pose(solid.p_W, solid.rpy_rad)
    return (np.asarray(points_W) - p_W) @ R


def outside_m(solid, points_W):
    """Signed distance in closed form."""
    p = in_frame(solid, points_W)
    if solid is CYLINDER:
        d = np.column_stack([np.hypot(p[:, 0], p[:, 1]) - solid.radius_m, np.abs(p[:, 2]) - solid.length_m / 2])
    else:
        d = np.abs(p) - np.array([*solid.size_m, 0.0][:3]) / 2
    return np.linalg.norm(np.maximum(d, 0), axis=1) + np.minimum(d.max(axis=1), 0)


@pytest.mark.parametrize("kind", KINDS[:3])
def test_distances_to_primitives_are_those_in_closed_form(kind, folder):
    one = solid(kind, folder)
    points = POINTS + one.p_W
    np.testing.assert_allclose(solids_of(one).nearest(points).distance_m, outside_m(one, points), atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_nearest_point_is_on_the_surface_and_the_normal_points_out_of_the_solid(kind, folder):
    one = solid(kind, folder)
    solids = solids_of(one, folder=folder)
    points = POINTS + one.p_W
    near = solids.nearest(points)
    np.testing.assert_allclose(np.linalg.norm(near.normal_W, axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(points, near.point_W + near.distance_m[:, None] * near.normal_W, atol=1e-12)
    np.testing.assert_allclose(solids.nearest(near.point_W).distance_m, 0.0, atol=1e-12)
    side = 1e-4 * np.where(near.distance_m < 0, -1.0, 1.0)  # back towards the point
    beside = solids.nearest(near.point_W + side[:, None] * near.normal_W)
    np.testing.assert_allclose(beside.distance_m, side, atol=1e-10)
    assert (near.solid == 0).all()


def check_touching_normals(solids, points, expected):
    near = solids.nearest(points)
    assert np.abs(near.distance_m).max() < 1e-12
    np.testing.assert_allclose(near.normal_W, expected, atol=1e-9)


def test_points_on_the_shell_and_the_ends_of_cylinders_have_their_normals():
    for radius_m in np.random.default_rng(1).uniform(0.01, 5.0, 200):
        one = msgspec.structs.replace(CYLINDER, radius_m=float(radius_m), p_W=(0.0, 0.0, 0.0), rpy_rad=(0.0, 0.0, 0.0))
        angle = np.linspace(0.0, 2 * np.pi, 101)
        around = np.column_stack([np.cos(angle), np.sin(angle), 0.0 * angle])
        solids = solids_of(one)
        check_touching_normals(solids, radius_m * around + (0.0, 0.0, 0.3), around)
        up = np.array([0.0, 0.0, 1.0])
        ends = 0.9 * radius_m * around
        check_touching_normals(solids, ends + one.length_m / 2 * up, np.tile(up, (101, 1)))
        check_touching_normals(solids, ends - one.length_m / 2 * up, np.tile(-up, (101, 1)))


def test_points_on_a_plate_and_as_near_as_numbers_can_be_have_its_normal():
    plate = solids_of(msgspec.structs.replace(PLATE, p_W=(0.0, 0.0, 0.0), rpy_rad=(0.0, 0.0, 0.0)))
    check_touching_normals(plate, np.array([[0.1, 0.2, 0.0], [0.1, 0.2, 1e-200]]), np.tile((0.0, 0.0, 1.0), (2, 1)))
    check_touching_normals(plate, np.array([[0.1, 0.2, -1e-200]]), [(0.0, 0.0, -1.0)])


@pytest.mark.parametrize("kind", KINDS)
def test_a_ray_ends_on_the_surface_and_passes_no_other_before(kind, folder):
    one = solid(kind, folder)
    solids = solids_of(one, folder=folder)
    origins = POINTS + one.p_W
    aimed = DIRECTIONS * 0.4 + one.p_W - origins
    distances = solids.first_hit(origins, aimed)
    hit = np.isfinite(distances)
    assert 50 < hit.sum() < 400
    unit = aimed / np.linalg.norm(aimed, axis=1, keepdims=True)
    ends = origins + np.where(hit, distances, 0.0)[:, None] * unit
    np.testing.assert_allclose(solids.nearest(ends[hit]).distance_m, 0.0, atol=1e-9)
    sign = np.sign(solids.nearest(origins).distance_m)
    for fraction in np.linspace(0.02, 0.98, 25):
        before = origins + fraction * np.where(hit, distances, 10.0)[:, None] * unit
        assert (np.sign(solids.nearest(before).distance_m) == sign).all()


def test_a_mesh_is_hit_where_its_triangles_are(folder):
    one = rock(folder)
    solids, file = solids_of(one, folder=folder), trimesh.load(folder / "rock.ply")
    origins = in_frame(one, POINTS[:100] + one.p_W)
    aimed = -origins + 0.5 * DIRECTIONS[:100]
    corners = file.triangles
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    expected = []
    for o, d in zip(origins, aimed / np.linalg.norm(aimed, axis=1, keepdims=True), strict=True):
        with np.errstate(divide="ignore"):
            t = ((corners[:, 0] - o) * normals).sum(axis=1) / (normals @ d)
        at = o + t[:, None] * d
        sides = [np.cross(corners[:, k] - corners[:, k - 1], at - corners[:, k - 1]) for k in range(3)]
        inside = np.all([(side * normals).sum(axis=1) >= 0 for side in sides], axis=0)
        expected.append(t[inside & (t >= 0)].min(initial=np.inf))
    p_W, R = pose(one.p_W, one.rpy_rad)
    np.testing.assert_allclose(solids.first_hit(origins @ R.T + p_W, aimed @ R.T), expected, atol=1e-9)


def test_the_inside_of_a_mesh_is_where_the_winding_number_is_one(folder):
    one = rock(folder)
    solids, file = solids_of(one, folder=folder), trimesh.load(folder / "rock.ply")
    points = in_frame(one, POINTS * 0.6 + one.p_W)
    a, b, c = (file.triangles[:, i][None] - points[:, None] for i in range(3))
    la, lb, lc = (np.linalg.norm(x, axis=2) for x in (a, b, c))
    volume = np.einsum("ijk,ijk->ij", a, np.cross(b, c))
    angle = np.arctan2(volume, la * lb * lc + (a * b).sum(2) * lc + (b * c).sum(2) * la + (c * a).sum(2) * lb)
    inside = (2 * angle).sum(axis=1) / (4 * np.pi) > 0.5
    assert 20 < inside.sum() < 380
    p_W, R = pose(one.p_W, one.rpy_rad)
    np.testing.assert_array_equal(solids.nearest(points @ R.T + p_W).distance_m < 0, inside)


def test_of_several_solids_the_first_and_the_nearest_count(folder):
    several = [BOX, PLATE, CYLINDER, rock(folder)]
    whole = solids_of(*several, folder=folder)
    single = [solids_of(one, folder=folder) for one in several]
    points = POINTS + (0.0, 0.0, 3.0)
    rays = [one.first_hit((4.0, 4.0, 5.0), points - (4.0, 4.0, 5.0)) for one in single]
    np.testing.assert_array_equal(whole.first_hit((4.0, 4.0, 5.0), points - (4.0, 4.0, 5.0)), np.min(rays, axis=0))
    distances = np.array([one.nearest(points).distance_m for one in single])
    near = whole.nearest(points)
    np.testing.assert_array_equal(near.distance_m, distances.min(axis=0))
    np.testing.assert_array_equal(near.solid, distances.argmin(axis=0))


def test_rays_along_the_faces_and_from_inside_have_an_end():
    box = solids_of(msgspec.structs.replace(BOX, p_W=(0.0, 0.0, 5.0), rpy_rad=(0.0, 0.0, 0.0), size_m=(2.0, 2.0, 2.0)))
    down = np.array([0.0, 0.0, -1.0])
    assert box.first_hit((0.0, 0.0, 9.0), down) == 3.0
    assert box.first_hit((0.0, 0.0, 5.0), down) == 1.0  # from inside
    assert box.first_hit((1.0, 0.0, 9.0), down) == 3.0  # along a face
    assert box.first_hit((1.0 + 1e-9, 0.0, 9.0), down) == np.inf
    assert box.first_hit((0.0, 0.0, 3.9), down) == np.inf  # behind it
    assert box.first_hit((0.0, 0.0, 9.0), 5 * down) == 3.0  # of any length


def test_a_point_is_hidden_behind_a_solid_and_seen_on_it():
    wall = solids_of(msgspec.structs.replace(BOX, p_W=(5.0, 0.0, 2.0), rpy_rad=(0.0, 0.0, 0.0), size_m=(0.2, 4.0, 4.0)))
    points = np.array([[4.9, 0, 2], [5.1, 0, 2], [8, 0, 2], [8, 5, 2], [4, 0, 2]], dtype=float)
    np.testing.assert_array_equal(wall.hides((0.0, 0.0, 2.0), points), [False, True, True, False, False])
    np.testing.assert_array_equal(
        wall.hides((0.0, 0.0, 2.0), points.reshape(5, 1, 3))[:, 0], wall.hides((0, 0, 2), points)
    )


def test_the_bridge_stands_where_the_flights_expect_it():
    solids = Solids.load(ROOT / "config/worlds/bridge.toml")
    assert solids.first_hit((0.0, 0.0, 4.0), np.array([1.0, 0.0, 0.0])) == pytest.approx(12.01)  # the first pier's face
    assert solids.first_hit((0.0, 12.0, 4.0), np.array([1.0, 0.0, 0.0])) == pytest.approx(12.01)
    under = [(7.5, y, z) for y in np.linspace(-1, 13, 29) for z in (0.5, 3.5, 6.0)]  # the transit, under deck and heads
    assert solids.nearest(np.array(under)).distance_m.min() > 0.9
    assert solids.first_hit((9.0, 6.0, 4.0), np.array([0.0, 0.0, 1.0])) == pytest.approx(5.0)  # the deck

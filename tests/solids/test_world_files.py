"""World files: what they hold, and what is wrong with a bad one, in one line."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
import trimesh

from companion.core.config import ConfigError
from sitl.scenario import load_scenario
from sitl.solids.export import glb
from sitl.solids.solids import Solids
from tests.solids.world_makers import CYLINDER, PLATE, rock, solids_of

ROOT = Path(__file__).parents[2]
WORLDS = sorted((ROOT / "config/worlds").glob("*.toml"))
BOX = """
[[solid]]
kind = "box"
name = "pier"
p_W = [1.0, 2.0, 3.0]
size_m = [1.0, 2.0, 4.0]
texture = "concrete"
material = "cement"
"""
HEAD = 'name = "w"\ndescription = ""\n'
MESH = BOX.replace('"box"', '"mesh"').replace("size_m = [1.0, 2.0, 4.0]", 'file = "part.ply"')


def joined(mesh):
    whole = trimesh.Trimesh(mesh.vertices_W, mesh.triangles)
    whole.merge_vertices(merge_tex=True, merge_norm=True)
    return whole


def area(mesh):
    a, b, c = np.moveaxis(mesh.vertices_W[mesh.triangles], 1, 0)
    return 0.5 * np.linalg.norm(np.cross(b - a, c - a), axis=1).sum()


@pytest.mark.parametrize("path", WORLDS, ids=lambda path: path.stem)
def test_every_world_loads_and_its_solids_are_closed(path):
    solids = Solids.load(path)
    assert solids.file.name == path.stem
    solids.check_depth_noise()
    for solid, mesh in zip(solids.file.solid, solids.meshes(), strict=True):
        assert mesh.texture.dtype == np.uint8 and len(mesh.uv) == len(mesh.vertices_W)
        if solid.__struct_config__.tag != "plate":
            assert joined(mesh).is_watertight and joined(mesh).volume > 0, solid.name


def test_triangles_have_the_size_and_place_of_their_solid(tmp_path):
    cylinder, plate, stone = solids_of(CYLINDER, PLATE, rock(tmp_path), folder=tmp_path).meshes()
    volume = np.pi * CYLINDER.radius_m**2 * CYLINDER.length_m
    assert joined(cylinder).volume == pytest.approx(volume, rel=2e-3)
    np.testing.assert_allclose(joined(cylinder).center_mass, CYLINDER.p_W, atol=1e-9)
    assert area(plate) == pytest.approx(2 * 2.0 * 1.5)  # both sides
    assert joined(stone).is_watertight and joined(stone).volume > 0


def test_a_texture_keeps_its_scale_and_stands_upright():
    box = solids_of(CYLINDER, PLATE).meshes()[1]
    size = np.ptp(box.uv, axis=0) * 4.0  # texture_width_m
    np.testing.assert_allclose(size, (2.0, 1.5))
    top_left = box.vertices_W[box.uv.sum(axis=1).argmin()]
    right = box.vertices_W[(box.uv @ (1, -1)).argmax()]
    assert np.linalg.norm(right - top_left) == pytest.approx(2.0)


def test_a_mirrored_mesh_file_becomes_a_solid_with_its_inside_inside(tmp_path):
    box = trimesh.creation.box((1.0, 2.0, 3.0))
    box.invert()
    box.export(tmp_path / "part.ply")
    (tmp_path / "w.toml").write_text(HEAD + MESH)
    solids = Solids.load(tmp_path / "w.toml")
    near = solids.nearest(np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 6.0]]))
    np.testing.assert_allclose(near.distance_m, (-0.5, 1.5))


@pytest.mark.parametrize("mirrored", [False, True])
def test_bodies_of_a_mesh_are_solid_and_their_cavities_empty_though_the_file_is_mirrored(tmp_path, mirrored):
    shell, cavity, core = (trimesh.creation.box((size,) * 3) for size in (6.0, 4.0, 2.0))
    cavity.invert()
    beside = trimesh.creation.icosphere(subdivisions=1, radius=0.5).apply_translation((10.0, 0.0, 0.0))
    whole = trimesh.util.concatenate([shell, cavity, core, beside])
    if mirrored:
        whole.invert()
    whole.export(tmp_path / "part.ply")
    (tmp_path / "w.toml").write_text(HEAD + MESH.replace("[1.0, 2.0, 3.0]", "[0.0, 0.0, 0.0]"))
    solids = Solids.load(tmp_path / "w.toml")
    near = solids.nearest(np.array([[2.6, 0.0, 0.0], [1.5, 0.0, 0.0], [0.7, 0.0, 0.0], [10.0, 0.0, 0.0]]))
    assert (near.distance_m < 0).tolist() == [True, False, True, True]


@pytest.mark.parametrize("suffix", ["ply", "obj", "glb"])
def test_each_kind_of_mesh_file_gives_the_same_solid(tmp_path, suffix):
    trimesh.creation.icosphere(subdivisions=2).export(tmp_path / f"part.{suffix}")
    (tmp_path / "w.toml").write_text(HEAD + MESH.replace("part.ply", f"part.{suffix}") + "scale = 2.0\n")
    solids = Solids.load(tmp_path / "w.toml")
    assert len(solids.meshes()[0].triangles) == 320
    assert solids.nearest(np.array([[1.0, 2.0, 8.0]])).distance_m[0] == pytest.approx(3.0)


@pytest.mark.parametrize("suffix", ["gltf", "glb"])
def test_a_gltf_file_stands_upright_because_its_y_axis_is_up(tmp_path, suffix):
    box = trimesh.creation.box((1.0, 3.0, 2.0), trimesh.transformations.translation_matrix((0.0, 10.0, 5.0)))
    data = box.export(file_type="glb") if suffix == "glb" else gltf_with_buffers_inside(box)
    (tmp_path / f"part.{suffix}").write_bytes(data)
    (tmp_path / "w.toml").write_text(HEAD + MESH.replace("part.ply", f"part.{suffix}"))
    vertices = Solids.load(tmp_path / "w.toml").meshes()[0].vertices_W - (1.0, 2.0, 3.0)
    np.testing.assert_allclose(vertices.min(axis=0), (-0.5, -6.0, 8.5))
    np.testing.assert_allclose(vertices.max(axis=0), (0.5, -4.0, 11.5))


def test_an_exported_world_is_read_as_it_was(tmp_path):
    solids = solids_of(CYLINDER, folder=tmp_path)
    (tmp_path / "part.glb").write_bytes(glb(solids))
    (tmp_path / "w.toml").write_text(HEAD + MESH.replace("part.ply", "part.glb"))
    back = Solids.load(tmp_path / "w.toml").meshes()[0].vertices_W - (1.0, 2.0, 3.0)
    np.testing.assert_allclose(np.sort(back, axis=0), np.sort(solids.meshes()[0].vertices_W, axis=0), atol=1e-5)


@pytest.mark.parametrize("suffix", ["gltf", "glb"])
def test_a_gltf_file_with_buffers_in_another_file_is_refused_in_one_line(tmp_path, suffix):
    files = trimesh.exchange.gltf.export_gltf(trimesh.Scene(trimesh.creation.box()))
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    text = (tmp_path / "model.gltf").read_bytes()
    name = next(buffer["uri"] for buffer in json.loads(text)["buffers"])
    length = len(text).to_bytes(4, "little")
    head = b"glTF" + (2).to_bytes(4, "little") + (len(text) + 20).to_bytes(4, "little") + length + b"JSON"
    (tmp_path / f"part.{suffix}").write_bytes(text if suffix == "gltf" else head + text)
    (tmp_path / "w.toml").write_text(HEAD + MESH.replace("part.ply", f"part.{suffix}"))
    with pytest.raises(ConfigError) as refused:
        Solids.load(tmp_path / "w.toml")
    assert f"part.{suffix}'" in str(refused.value) and "\n" not in str(refused.value)
    assert f"buffers[0].uri = '{name}': buffers must be inside the file" in str(refused.value)


def gltf_with_buffers_inside(mesh):
    files = trimesh.exchange.gltf.export_gltf(trimesh.Scene(mesh), embed_buffers=True)
    return files["model.gltf"]


def write_bad_meshes(folder):
    sphere = trimesh.creation.icosphere(subdivisions=1)
    trimesh.Trimesh(sphere.vertices, sphere.faces[1:], process=False).export(folder / "open.ply")
    block = trimesh.creation.box((1.0, 1.0, 1.0))
    inverted = trimesh.creation.box((1.0, 1.0, 1.0), transform=trimesh.transformations.translation_matrix((3, 0, 0)))
    inverted.invert()
    trimesh.util.concatenate([block, inverted]).export(folder / "half_mirrored.ply")
    (folder / "broken.ply").write_text("ply\nformat ascii 1.0\nelement vertex 3\nend_header\n1 2\n")
    (folder / "part.stl").write_text("solid\nendsolid\n")
    (folder / "text.png").write_text("no image")
    cv2.imwrite(str(folder / "wall.png"), np.zeros((8, 8), dtype=np.uint8))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MESH.replace("part.ply", "open.ply"), "solid[0].file = 'open.ply': {0}/open.ply: an open mesh: every edge"),
        (MESH.replace("part.ply", "broken.ply"), "solid[0].file = 'broken.ply': {0}/broken.ply: "),
        (MESH.replace("part.ply", "half_mirrored.ply"), "solid[0].file = 'half_mirrored.ply': {0}/half_mirrored.ply: body 2 of 2, which begins at (2.5, -0.5, -0.5) m, is inside out: "),
        (MESH, "solid[0].file = 'part.ply': {0}/part.ply: no such file"),
        (MESH.replace("part.ply", "part.stl"), "solid[0].file = 'part.stl': not a glTF, OBJ or PLY file"),
        (MESH + "scale = -1.0\n", "solid[0].scale = -1.0: "),
        (BOX + "colour = 1\n", "solid[0].colour: unknown key"),
        (BOX.replace("[1.0, 2.0, 4.0]", "[1.0, -2.0, 4.0]"), "solid[0].size_m[1] = -2.0: "),
        (BOX.replace("[1.0, 2.0, 4.0]", "[1.0, 2.0]"), "solid[0].size_m"),
        (BOX.replace('"box"', '"ball"'), "solid[0].kind = 'ball': "),
        (BOX.replace('"cement"', '"glue"'), "solid[0].material = 'glue': no such material (there are: plastic, cement, foam_b"),
        (BOX + BOX, "solid[1].name = 'pier': defined twice"),
        ('[[material]]\nname = "cement"\n' + BOX, "material[0].name = 'cement': defined twice"),
        ("", "solid: missing key"),
    ],
)  # fmt: skip
def test_a_bad_world_file_is_refused_in_one_line(tmp_path, text, said):
    write_bad_meshes(tmp_path)
    path = tmp_path / "w.toml"
    path.write_text(HEAD + text)
    with pytest.raises(ConfigError) as refused:
        Solids.load(path)
    assert str(refused.value).startswith(f"{path}: {said.format(tmp_path)}") and "\n" not in str(refused.value)


@pytest.mark.parametrize("texture", ["moss", "text.png"])
def test_a_texture_that_is_no_image_is_refused_in_one_line(tmp_path, texture):
    write_bad_meshes(tmp_path)
    (tmp_path / "w.toml").write_text(HEAD + BOX.replace('"concrete"', f'"{texture}"'))
    with pytest.raises(ConfigError, match=rf"w.toml: solid\[0\].texture = '{texture}': [^\n]+$"):
        Solids.load(tmp_path / "w.toml").meshes()


def test_a_depth_camera_needs_the_noise_of_every_material_in_use(tmp_path):
    glass = '[[material]]\nname = "glass"\n'
    (tmp_path / "w.toml").write_text(HEAD + glass + BOX)
    Solids.load(tmp_path / "w.toml").check_depth_noise()  # glass is not in use
    (tmp_path / "w.toml").write_text(HEAD + glass + BOX.replace('"cement"', '"glass"'))
    solids = Solids.load(tmp_path / "w.toml")
    assert solids.meshes()[0].depth_noise_per_m is None
    with pytest.raises(ConfigError, match=r"solid\[0\].material = 'glass': a depth camera needs .* depth_noise_per_m$"):
        solids.check_depth_noise()


SCENARIO = f"""
base = "{ROOT}/config/scenarios/bridge_hover.toml"
mission = "{ROOT}/config/missions/bridge_hover.toml"
vehicle = "{ROOT}/config/vehicles/f550.toml"
world = "WORLD"
"""


@pytest.mark.parametrize(
    ("world", "more", "said"),
    [
        ("nowhere.toml", "", "nowhere.toml: no such file"),
        ("bridge.toml", "[scene]\nbundles = []\n", "scene.bundles: the mission's bundle 'pier' is not in the world"),
        ("bridge.toml", "[start]\np_W = [13.0, 0.0, 3.0]\n", "start.p_W: 0.99 m inside of the solid 'pier'"),
        (
            "bridge.toml",
            '[scene]\nbundles = [{ name = "pier", p_W = [12.5, 0, 4], rpy_rad = [1.5707963, 0, -1.5707963] }]\n',
            "scene.bundles: 'pier': 0.49 m inside of the solid 'pier'",
        ),
    ],
)
def test_a_scenario_that_does_not_fit_its_world_is_refused_in_one_line(tmp_path, world, more, said):
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO.replace("WORLD", str(ROOT / "config/worlds" / world)) + more)
    with pytest.raises(ConfigError) as refused:
        load_scenario(path)
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_a_world_becomes_one_gltf_file_with_the_same_solids(tmp_path):
    solids = solids_of(CYLINDER, PLATE, rock(tmp_path), folder=tmp_path)
    (tmp_path / "world.glb").write_bytes(glb(solids))
    scene = trimesh.load(tmp_path / "world.glb")
    assert set(scene.geometry) == {"cylinder", "plate", "rock"}
    for mesh in solids.meshes():
        transform, name = scene.graph.get(mesh.name)
        x, y, z = trimesh.transform_points(scene.geometry[name].vertices, transform).T
        np.testing.assert_allclose(np.column_stack([x, -z, y]), mesh.vertices_W, atol=1e-5)  # y is up in a glTF file
        np.testing.assert_allclose(scene.geometry[name].visual.uv, mesh.uv * (1, -1) + (0, 1), atol=1e-5)

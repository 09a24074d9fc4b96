"""Markers are drawn as their publishers print them: the real tracker sees the rendered bundle the right way up."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from test_scene_camera import CONFIG, FACE, FACE_RPY, STILL

from companion.config import ConfigError, load, parse
from companion.frames import quat_from_rpy, rotation_matrix
from companion.site import Bundle, Marker, Site
from companion.tracking.tracker import TrackerNode
from companion.vehicle import Vehicle
from sitl.camera import SceneCamera
from sitl.scene import SceneConfig, marker_texture

BUNDLE_W = np.array([0.0, 0.0, 3.0])
CODES = ["1101001010011110010110001", "0111010001101011100011010"]


def own_dictionary(folder, codes=CODES) -> str:
    path = folder / "own.yml"
    lines = ["%YAML:1.0", f"nmarkers: {len(codes)}", "markersize: 5", "maxCorrectionBits: 1"]
    path.write_text("\n".join([*lines, *(f'marker_{i}: "{code}"' for i, code in enumerate(codes))]) + "\n")
    return f"dictionary:{path}"


def site(family) -> Site:
    markers = [Marker(family=family, id=1, size_m=0.5, p_M=(-0.4, 0.0, 0.0)), Marker(family=family, id=0, size_m=0.3)]
    markers[1] = msgspec.structs.replace(markers[1], p_M=(0.3, 0.1, 0.0))
    return Site(bundle=[Bundle(name="b", markers=markers)])


def tracker(of: Site) -> TrackerNode:
    vehicle = load(Path(__file__).parents[2] / "config/vehicles/f550.toml", Vehicle)
    lens = {"fx_px": CONFIG.fx, "fy_px": CONFIG.fy, "cx_px": CONFIG.cx, "cy_px": CONFIG.cy}
    size = {"width_px": CONFIG.width, "height_px": CONFIG.height, "model": "pinhole"}
    camera = msgspec.structs.replace(vehicle.camera, **lens, **size, distortion=list(CONFIG.distortion))
    return TrackerNode(msgspec.structs.replace(vehicle, camera=camera), of)


@pytest.mark.parametrize("family", ["apriltag_36h11", "aruco_6x6_250", "aruco_4x4_50", "own"])
@pytest.mark.parametrize("roll_rad", [0.0, 0.35])
def test_a_rendered_bundle_is_tracked_the_right_way_up(family, roll_rad, tmp_path):
    known = site(own_dictionary(tmp_path) if family == "own" else family)
    placed = {"name": "b", "p_W": BUNDLE_W.tolist(), "rpy_rad": FACE_RPY}
    scene = parse({"bundles": [placed], "backdrops": [], "light": 1.0}, SceneConfig, "scene")
    p_WB, q_WB = np.array([-2.6, 0.3, 3.2]), quat_from_rpy(roll_rad, 0.05, -0.2)
    node = tracker(known)
    image = SceneCamera(CONFIG, scene, known, 1, True).render(1.0, p_WB, q_WB, STILL, STILL)
    (markers,) = node.handle(image, 1.0)
    (seen,) = markers.observations
    assert {m.id for m in seen.markers} == {0, 1}
    R_WB, R_BC = rotation_matrix(q_WB), rotation_matrix(np.array(CONFIG.q_BC))
    R_CW = (R_WB @ R_BC).T
    p_CM = R_CW @ (BUNDLE_W - p_WB - R_WB @ np.array(CONFIG.p_BC))
    turn = (R_CW @ FACE).T @ rotation_matrix(np.array(seen.best.q_CM))
    assert np.arccos(np.clip(0.5 * (np.trace(turn) - 1), -1, 1)) < np.deg2rad(2.0)
    assert np.abs(np.array(seen.best.p_CM) - p_CM).max() < 0.02
    assert seen.best.reprojection_rms_px < 0.3


def test_apriltag_0_is_drawn_as_apriltag_0_is_printed():
    """First and last row of cells of AprilRobotics' picture tag36_11_00000."""
    texture, modules = marker_texture(Marker(family="apriltag_36h11", id=0, size_m=0.2))
    cell = texture.shape[0] // (modules + 2)
    cells = texture[cell // 2 :: cell, cell // 2 :: cell] > 128
    assert "".join("1" if c else "0" for c in cells[2, 2:-2]) == "110101"
    assert "".join("1" if c else "0" for c in cells[-3, 2:-2]) == "000100"


@pytest.mark.parametrize("codes", [[], CODES[:1], [CODES[0], "0101"], [CODES[0], "x" * 25]])
def test_a_dictionary_file_without_the_marker_stops_the_start(tmp_path, codes):
    family = own_dictionary(tmp_path, codes)
    with pytest.raises(ConfigError, match="own.yml: no usable marker_1"):
        marker_texture(Marker(family=family, id=1, size_m=0.2))
    (tmp_path / "own.yml").write_text("\x00\x01")
    with pytest.raises(ConfigError, match="own.yml: no usable marker_1"):
        marker_texture(Marker(family=family, id=1, size_m=0.2))

"""Markers are drawn as their publishers print them: the tracker sees the rendered bundle the right way up."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from test_scene_camera import CONFIG, FACE, FACE_RPY, GROUND, PIER, STILL

from companion.core.config import ConfigError, load, parse
from companion.core.frames import quat_from_rpy, rotation_matrix
from companion.core.site import Bundle, Marker, Site
from companion.core.vehicle import Vehicle
from companion.tracking.detectors import detector_for
from companion.tracking.tracker import TrackerNode
from sitl.camera import SceneCamera
from sitl.scene import SceneConfig, marker_texture

BUNDLE_W = np.array([0.0, 0.0, 3.0])
RATE, PHASE = np.array([1.0, 1.3, 0.7]), np.array([0.0, 1.0, 0.0])  # of roll, pitch and yaw in gusts
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


def tracker(of: Site, lens=CONFIG) -> TrackerNode:
    vehicle = load(Path(__file__).parents[2] / "config/vehicles/f550.toml", Vehicle)
    pixels = {"width_px": lens.width, "height_px": lens.height, "fx_px": lens.fx, "fy_px": lens.fy}
    pixels |= {"cx_px": lens.cx, "cy_px": lens.cy, "model": "pinhole", "distortion": list(lens.distortion)}
    camera = msgspec.structs.replace(vehicle.camera, **pixels)
    return TrackerNode(msgspec.structs.replace(vehicle, camera=camera), of)


@pytest.mark.parametrize(
    "family", ["apriltag_36h11", "apriltag_25h9", "apriltag_16h5", "aruco_mip_36h12", "aruco_6x6_250", "own"]
)
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


def test_following_in_gusts_finds_the_corners_that_a_search_finds():
    """Turning at up to 0.9 rad/s on a shaking mount, blurred by the motion: no corner jumps to another edge."""
    family = "aruco_6x6_250"
    places = {1: (-0.45, 0.3), 2: (0.45, 0.3), 3: (0.45, -0.3), 4: (-0.45, -0.3)}
    markers = [Marker(family=family, id=i, size_m=0.3, p_M=(*p, 0.0)) for i, p in places.items()]
    known = Site(bundle=[Bundle(name="b", markers=[*markers, Marker(family="apriltag_36h11", id=7, size_m=0.12)])])
    placed = {"name": "b", "p_W": BUNDLE_W.tolist(), "rpy_rad": FACE_RPY}
    scene = parse({"bundles": [placed], "backdrops": [PIER, GROUND], "light": 1.0}, SceneConfig, "scene")
    lens = msgspec.structs.replace(CONFIG, width=1280, height=720, fx=915.0, fy=915.0, cx=640.0, cy=360.0)
    lens = msgspec.structs.replace(lens, distortion=[0.0] * 5, sway_std_rad=0.004)
    camera, node = SceneCamera(lens, scene, known, 1, True), tracker(known, lens)
    search = detector_for((m.family, m.id) for m in known.bundle[0].markers)
    apart, rate, turn = [], 2 * np.pi * 0.9, 0.12
    for k in range(60, 120):
        t_s = 1 + k / 30
        rpy = turn * np.sin(rate * RATE * t_s + PHASE)
        omega_B = turn * rate * RATE * np.cos(rate * RATE * t_s + PHASE)
        p_WB = np.array([-3.2 + 0.3 * np.sin(0.8 * t_s), 0.3 * np.sin(0.4 * rate * t_s), 3.0])
        p_WB[2] += 0.3 * np.sin(0.5 * rate * t_s + 2)
        image = camera.render(t_s, p_WB, quat_from_rpy(*rpy), STILL, omega_B)
        (found,) = node.handle(image, t_s)
        gray = np.frombuffer(image.data, np.uint8).reshape(image.height, image.width)
        whole = {(d.family, d.id): d.corners_px for d in search.detect(gray)}
        seen = [m for o in found.observations for m in o.markers if (m.family, m.id) in whole]
        apart += [np.abs(np.reshape(m.corners_px, (4, 2)) - whole[m.family, m.id]).max() for m in seen]
    assert len(apart) > 60 * 4
    assert max(apart) < 0.1


def test_apriltag_0_is_drawn_as_apriltag_0_is_printed():
    """First and last row of cells of AprilRobotics' picture tag36_11_00000."""
    texture, modules = marker_texture(Marker(family="apriltag_36h11", id=0, size_m=0.2))
    cell = texture.shape[0] // (modules + 2)
    cells = texture[cell // 2 :: cell, cell // 2 :: cell] > 128
    assert "".join("1" if c else "0" for c in cells[2, 2:-2]) == "110101"
    assert "".join("1" if c else "0" for c in cells[-3, 2:-2]) == "000100"


@pytest.mark.parametrize("codes", [[], CODES[:1], [CODES[0], "0101"], [CODES[0], "x" * 25]])
def test_a_dictionary_file_without_the_marker_is_refused(tmp_path, codes):
    family = own_dictionary(tmp_path, codes)
    with pytest.raises(ConfigError, match="own.yml: no usable marker_1"):
        marker_texture(Marker(family=family, id=1, size_m=0.2))
    (tmp_path / "own.yml").write_text("\x00\x01")
    with pytest.raises(ConfigError, match="own.yml: no usable marker_1"):
        marker_texture(Marker(family=family, id=1, size_m=0.2))

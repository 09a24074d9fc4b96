"""Photographs of a simulated flight: drawn from the true poses, tagged with the stack's."""

import json

import cv2
import msgspec
import numpy as np
import pytest
from PIL import Image

from companion.core.config import ConfigError
from companion.core.errors import OutputError
from companion.core.frames import quat_from_rpy, quat_multiply
from companion.core.messages import CaptureTruth
from companion.payload.tags import GPS_IFD
from sitl.photographs import WIDTH_PX, check_drawable, draw_photographs, view_of
from sitl.scenario import load_scenario
from tests.payload.rig import CAMERA, ROOT
from tests.payload.test_payload_tags import capture

SCENARIO = ROOT / "config/scenarios/two_piers.toml"


@pytest.fixture(scope="module")
def loaded():
    return load_scenario(SCENARIO)


def test_the_marker_before_the_camera_is_in_the_middle_of_the_picture(loaded, tmp_path):
    pytest.importorskip("OpenGL")
    bundle = loaded.scenario.scene.bundles[0]
    q_WM = quat_from_rpy(*bundle.rpy_rad)
    # 4 m out of the face, looking at it: x of the picture is x of the bundle, y down, z into the face.
    q_WC = quat_multiply(q_WM, (0.0, 1.0, 0.0, 0.0))
    out = np.array([0.0, 0.0, 4.0])
    from companion.core.frames import rotation_matrix

    p_WC = tuple((np.array(bundle.p_W) + rotation_matrix(q_WM) @ out).tolist())
    truth = CaptureTruth(stamp_s=1.0, image_index=0, p_WC=p_WC, q_WC=tuple(q_WC.tolist()), blur_px=0.1, bundles={})
    folder = tmp_path / "photographs"
    assert draw_photographs(loaded, 1, [truth], [capture(1, 0)], folder) == 1
    picture = cv2.imread(str(folder / "00001.jpg"), cv2.IMREAD_GRAYSCALE)
    assert picture.shape == (1333, WIDTH_PX)
    middle = picture[617:717, 950:1050]
    assert middle.min() < 90 and middle.max() > 150  # black and white of a marker
    assert Image.open(folder / "00001.jpg").getexif().get_ifd(GPS_IFD)[1] == "S"
    assert json.loads((folder / "00001.json").read_text())["id"] == 1


def test_the_reduced_picture_sees_what_the_sensor_sees():
    view = view_of(CAMERA)
    assert view.width / view.fx == pytest.approx(CAMERA.width_px / CAMERA.focal_px[0], rel=1e-3)
    assert view.height / view.fy == pytest.approx(CAMERA.height_px / CAMERA.focal_px[1], rel=1e-3)


def test_what_cannot_be_drawn_is_refused_before_the_flight(loaded, tmp_path):
    with pytest.raises(ConfigError, match="missing table"):
        check_drawable(load_scenario(ROOT / "config/scenarios/bridge_hover.toml"), tmp_path / "a")
    with pytest.raises(ConfigError, match="world: missing key"):
        check_drawable(msgspec.structs.replace(loaded, solids=None), tmp_path / "a")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x.jpg").touch()
    with pytest.raises(OutputError, match="not an empty folder"):
        check_drawable(loaded, tmp_path / "full")

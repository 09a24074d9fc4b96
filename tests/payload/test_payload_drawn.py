"""Photographs of a simulated flight: drawn from the true poses, tagged with the stack's."""

import json
from types import SimpleNamespace

import cv2
import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from calibration.map.picture_markers import centre_px
from companion.cli import _draw, main
from companion.core.config import ConfigError
from companion.core.errors import OutputError
from companion.core.frames import quat_from_rpy, quat_multiply, rotation_matrix
from companion.core.messages import CaptureTruth
from companion.payload.tags import GPS_IFD
from companion.runtime.nodes import payload_camera
from companion.tracking.detectors import detector_for
from sitl.payload_camera import PayloadConfig, true_lens
from sitl.photographs import WIDTH_PX, check_drawable, draw_photographs, view_of
from sitl.rendering.context import NoRenderer
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


def test_markers_are_where_the_lens_of_the_seed_puts_them(loaded, tmp_path):
    pytest.importorskip("OpenGL")
    q_WM = quat_from_rpy(*loaded.scenario.scene.bundles[0].rpy_rad)
    p_WM, R_WM = np.array(loaded.scenario.scene.bundles[0].p_W), rotation_matrix(q_WM)
    q_WC = quat_multiply(quat_multiply(q_WM, (0.0, 1.0, 0.0, 0.0)), quat_from_rpy(0.1, -0.1, 0.2))
    p_WC, R_WC = p_WM + R_WM @ [0.3, 0.2, 5.0], rotation_matrix(q_WC)
    vec, q = tuple(p_WC.tolist()), tuple(q_WC.tolist())
    truth = CaptureTruth(stamp_s=1.0, image_index=0, p_WC=vec, q_WC=q, blur_px=0.1, bundles={})
    draw_photographs(loaded, 3, [truth], [], tmp_path / "photographs", tags=False)
    picture = cv2.imread(str(tmp_path / "photographs/00001.jpg"), cv2.IMREAD_GRAYSCALE)
    camera, lens = payload_camera(loaded.plan), true_lens(loaded.scenario.payload, 3)
    places = {(m.family, m.id): np.array(m.p_M) for m in loaded.site.find("pier").markers}
    focal_px = WIDTH_PX / camera.width_px * (1 + lens.focal) * camera.focal_px[0]
    errors = []
    for found in detector_for(places).detect(picture):
        x, y, z = R_WC.T @ (R_WM @ places[found.family, found.id] + p_WM - p_WC)
        flat = np.array([x, y]) / z
        expected = flat * (1 + lens.k1 * flat @ flat) * focal_px + WIDTH_PX * np.array(lens.principal_point)
        errors.append(centre_px(found.corners_px) - [(WIDTH_PX - 1) / 2, (len(picture) - 1) / 2] - expected)
    assert len(errors) >= 4 and np.abs(errors).max() < 0.1
    assert abs(lens.focal) > 1e-4 and np.abs(lens.principal_point).max() > 1e-4 and abs(lens.k1) > 1e-3


def test_a_lens_is_within_its_ranges_and_depends_on_the_seed_alone():
    config = PayloadConfig(focal_error=0.01, principal_point_error=0.003, k1_error=0.02)
    lenses = [true_lens(config, seed) for seed in range(200)]
    values = np.array([(lens.focal, *lens.principal_point, lens.k1) for lens in lenses])
    assert (np.abs(values) <= [0.01, 0.003, 0.003, 0.02]).all() and (
        np.abs(values).max(0) > 0.9 * np.array([0.01, 0.003, 0.003, 0.02])
    ).all()
    assert true_lens(config, 7) == lenses[7]


def test_a_computer_that_cannot_draw_costs_no_flight_its_result(loaded, monkeypatch, tmp_path):
    def nothing(*_, **__):
        raise NoRenderer("rendering: libEGL cannot be loaded")

    monkeypatch.setattr("sitl.photographs.draw_photographs", nothing)
    flight = SimpleNamespace(lockstep=SimpleNamespace(messages={"capture_truth": [], "capture": []}))
    assert "libEGL" in str(_draw(loaded, 1, flight, tmp_path / "photographs", tags=False))


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(28, "No space left on device", "a.jpg"), "cannot be written: a.jpg: no space left on device"),
        (RuntimeError("glReadPixels\nfailed"), "cannot be drawn: RuntimeError: glReadPixels failed"),
    ],
)
@pytest.mark.parametrize("option", [True, False])
def test_whatever_drawing_raises_the_result_of_the_flight_is_written(
    loaded, monkeypatch, tmp_path, error, line, option
):
    """With --photographs the command ends with the reason, after the result; without, the poses are found without pictures."""

    def fail(*_, **__):
        raise error

    status = SimpleNamespace(reason="", phase="")
    flight = SimpleNamespace(
        lockstep=SimpleNamespace(messages={"capture_truth": [], "capture": []}),
        result={"completed": True, "inspection": {}},
        log_problem="",
        status=status,
    )
    monkeypatch.setattr("sitl.photographs.draw_photographs", fail)
    monkeypatch.setattr("sitl.simulate.fly_loaded", lambda *_, **__: flight)
    monkeypatch.setattr("sitl.simulate.result_table", lambda *_: "the table")
    monkeypatch.setattr("companion.runtime.fly.ending_line", lambda _: "the ending")
    monkeypatch.setattr("sitl.kernels.build_missing", lambda *_: None)
    monkeypatch.setattr("sitl.baselines.stacks.prepare", lambda *_: None)
    monkeypatch.setattr("calibration.map.photographs_command.refined_figures", lambda *_: {"photo_refined": 3.0})
    to = ["--json", str(tmp_path / "result.json")]
    if option:
        to += ["--photographs", str(tmp_path / "photographs")]
    ended = CliRunner().invoke(main, ["sim", str(SCENARIO), *to])
    assert ended.exit_code == (2 if option else 0), ended.output
    assert line in " ".join(ended.output.split()) and "the table" in ended.output
    assert json.loads((tmp_path / "result.json").read_text())["inspection"]["photo_refined"] == 3.0


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
    with pytest.raises(OutputError, match=r"x\.jpg/inside: cannot be written: .*not a directory"):
        check_drawable(loaded, tmp_path / "full/x.jpg/inside")


def test_the_folder_of_the_photographs_is_there_before_the_flight(loaded, monkeypatch, tmp_path):
    check_drawable(loaded, tmp_path / "some/photographs")
    assert list((tmp_path / "some/photographs").iterdir()) == []

    def read_only(**_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("companion.core.command_line.tempfile.TemporaryFile", read_only)
    with pytest.raises(OutputError, match="photographs: cannot be written: .*read-only file system"):
        check_drawable(loaded, tmp_path / "some/photographs")

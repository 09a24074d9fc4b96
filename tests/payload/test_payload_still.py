"""A local camera as the payload camera, and the check of it before a flight; the device is a false one."""

import json
import os
import threading
import time

import cv2
import msgspec
import numpy as np
import pytest
from PIL import Image

from companion.core.clock import monotonic_s
from companion.core.config import ConfigError
from companion.core.enums import CaptureOutcome, ExposureClock
from companion.core.messages import Capture, CaptureRequest, FcuAttitude
from companion.core.opencv import WAIT_VARIABLE
from companion.mission.plan import load_plan
from companion.payload.payload_node import PayloadNode
from companion.payload.still_camera import StillCamera
from companion.payload.tags import EXIF_IFD
from companion.planning.camera import PayloadCamera
from companion.preflight import payload as preflight
from companion.preflight.payload import payload_check
from companion.runtime import camera_device
from companion.runtime.camera_device import StillDevice, open_camera
from companion.runtime.manager import START_MAX_S
from tests.payload.rig import FIXED, ROOT, VEHICLE
from tests.payload.test_payload_mavsdk import state

SMALL = (64, 48)


class FalseDevice:
    """Delivers a frame every 20 ms; `works` False: none; `hangs` set: none, and the wait does not end. Opened, it delivers `opens_with` until a size is set; `obeys` False: always."""

    def __init__(self) -> None:
        self.works, self.obeys, self.opened = True, True, 0
        self.hangs = threading.Event()
        self.opens_with = self.size = (32, 24)
        self._grabbed_s = 0.0

    def open(self, name: str, backend: int) -> bool:
        assert backend == cv2.CAP_V4L2
        self.opened += 1
        self.size = self.opens_with
        return True

    def isOpened(self) -> bool:  # noqa: N802 - OpenCV's name
        return True

    def release(self) -> None: ...

    def set(self, number: int, value: float) -> bool:
        axis = {cv2.CAP_PROP_FRAME_WIDTH: 0, cv2.CAP_PROP_FRAME_HEIGHT: 1}.get(number)
        if axis is not None and self.obeys:
            self.size = tuple(round(value) if i == axis else size for i, size in enumerate(self.size))
        return True

    def grab(self) -> bool:
        time.sleep(0.02)
        while self.hangs.is_set():
            time.sleep(0.02)
        self._grabbed_s = monotonic_s()
        return self.works

    def retrieve(self):
        return True, np.full((self.size[1], self.size[0], 3), 90, np.uint8)

    def get(self, number: int) -> float:
        values = {
            cv2.CAP_PROP_POS_MSEC: 1e3 * self._grabbed_s,
            cv2.CAP_PROP_FRAME_WIDTH: self.size[0],
            cv2.CAP_PROP_FRAME_HEIGHT: self.size[1],
        }
        return float(values.get(number, 0.0))


def still_camera(device: str = "/dev/video9") -> PayloadCamera:
    control = msgspec.structs.replace(FIXED.control, trigger="still", link=None, component_id=None, device=device)
    return msgspec.structs.replace(
        FIXED, width_px=SMALL[0], height_px=SMALL[1], trigger_period_s=0.05, control=control, name="still"
    )


def run(node, device, duration_s, until):
    """The process's loop without the bus; returns the captures."""
    captures, end_s = [], monotonic_s() + duration_s
    while monotonic_s() < end_s and not until(captures):
        now_s = monotonic_s()
        out = [m for message in device.read() for m in device.write(node.handle(message, message.stamp_s))]
        for message in (state(now_s), FcuAttitude(stamp_s=now_s, q_WB=(1, 0, 0, 0), omega_B=(0, 0, 0))):
            out += device.write(node.handle(message, now_s) or ())
        out += device.write(node.step(now_s))
        captures += [m for m in out if isinstance(m, Capture)]
        time.sleep(0.005)
    return captures


@pytest.fixture
def opened(tmp_path):
    false = FalseDevice()
    camera = still_camera()
    still = StillCamera(camera, tmp_path / "photographs", false)
    yield camera, still, false
    still.close()


@pytest.mark.realtime
def test_a_still_is_stored_with_its_tags(opened, tmp_path):
    camera, still, _ = opened
    node, device = PayloadNode(camera, VEHICLE), StillDevice(still)
    run(node, device, 5.0, lambda _: not node.problem(monotonic_s()))
    assert node.problem(monotonic_s()) == "" and node.introduction.model == "local still"
    begun_s = monotonic_s()
    request = CaptureRequest(
        stamp_s=begun_s, id=1, item="face", row=0, column=0, frame="pier", pitch_rad=0.0, distance_m=5.0
    )
    list(device.write(node.handle(request, begun_s)))
    (capture,) = run(node, device, 5.0, bool)
    assert capture.outcome is CaptureOutcome.TAKEN and capture.clock is ExposureClock.SYNCHRONISED
    assert begun_s < capture.stamp_s < monotonic_s()
    file = tmp_path / "photographs/00001.jpg"
    assert capture.file == str(file)
    sidecar = file.with_suffix(".json")
    run(node, device, 5.0, lambda _: sidecar.exists())
    assert json.loads(sidecar.read_text())["bundle"] == "pier"
    picture = Image.open(file)
    assert picture.size == SMALL and 0x9003 in picture.getexif().get_ifd(EXIF_IFD)


@pytest.mark.realtime
def test_a_device_that_fails_is_reported_and_refuses(opened):
    camera, still, false = opened
    node, device = PayloadNode(camera, VEHICLE), StillDevice(still)
    run(node, device, 5.0, lambda _: not node.problem(monotonic_s()))
    false.works = False
    run(node, device, 5.0, lambda _: bool(still.trouble))
    assert "delivers no frame" in device.trouble
    request = CaptureRequest(
        stamp_s=monotonic_s(), id=1, item="face", row=0, column=0, frame="pier", pitch_rad=0.0, distance_m=5.0
    )
    list(device.write(node.handle(request, monotonic_s())))
    (capture,) = run(node, device, 5.0, bool)
    assert capture.outcome is CaptureOutcome.REFUSED and "failed" in capture.reason


def ready(still, node, device):
    """Run until the camera takes commands."""
    run(node, device, 5.0, lambda _: not node.problem(monotonic_s()) and not still.trouble)


def photograph(node, device, id: int) -> Capture:
    request = CaptureRequest(
        stamp_s=monotonic_s(), id=id, item="face", row=0, column=0, frame="pier", pitch_rad=0.0, distance_m=5.0
    )
    list(device.write(node.handle(request, monotonic_s())))
    (capture,) = run(node, device, 5.0, bool)
    return capture


@pytest.mark.realtime
def test_a_device_that_is_opened_again_takes_pictures_of_the_same_size(opened):
    camera, still, false = opened
    node, device = PayloadNode(camera, VEHICLE), StillDevice(still)
    ready(still, node, device)
    false.works = False
    run(node, device, 5.0, lambda _: bool(still.trouble))
    false.works, false.obeys = True, False
    run(node, device, 5.0, lambda _: "32 x 24" in still.trouble)
    assert device.trouble == (
        "still camera /dev/video9: delivers 32 x 24 px, the camera file says 64 x 48; trying again every 1 s"
    )
    assert photograph(node, device, 1).outcome is CaptureOutcome.REFUSED
    false.obeys = True
    ready(still, node, device)
    capture = photograph(node, device, 2)
    assert capture.outcome is CaptureOutcome.TAKEN and Image.open(capture.file).size == SMALL


@pytest.mark.realtime
def test_a_picture_of_another_size_is_no_photograph(opened, tmp_path):
    camera, still, false = opened
    node, device = PayloadNode(camera, VEHICLE), StillDevice(still)
    ready(still, node, device)
    false.size = (32, 24)  # without a failure
    capture = photograph(node, device, 1)
    assert capture.outcome is CaptureOutcome.REFUSED and "failed" in capture.reason
    assert not (tmp_path / "photographs").exists()
    assert "delivers 32 x 24 px, the camera file says 64 x 48" in device.trouble
    ready(still, node, device)
    assert photograph(node, device, 2).outcome is CaptureOutcome.TAKEN


@pytest.mark.realtime
@pytest.mark.parametrize("how", ["fails", "hangs"])
def test_a_device_that_is_unplugged_is_a_camera_without_heartbeat(opened, how):
    camera, still, false = opened
    node, device = PayloadNode(camera, VEHICLE), StillDevice(still)
    ready(still, node, device)
    if how == "fails":
        false.works = False
    else:
        false.hangs.set()
    run(node, device, 8.0, lambda _: bool(node.problem(monotonic_s())))
    assert node.problem(monotonic_s()) == "camera local still: no heartbeat"
    assert "delivers no frame" in device.trouble
    false.works = True
    false.hangs.clear()
    ready(still, node, device)
    assert node.problem(monotonic_s()) == "" and photograph(node, device, 1).outcome is CaptureOutcome.TAKEN


@pytest.mark.realtime
@pytest.mark.parametrize("how", ["fails", "hangs"])
def test_a_frame_long_after_its_command_is_no_photograph(opened, how, tmp_path):
    """The aircraft has flown on while the device was away."""
    camera, still, false = opened
    patient = msgspec.structs.replace(camera, control=msgspec.structs.replace(camera.control, answer_time_s=4.0))
    node, device = PayloadNode(patient, VEHICLE), StillDevice(still)
    ready(still, node, device)
    if how == "fails":
        false.works = False
    else:
        false.hangs.set()
    request = CaptureRequest(
        stamp_s=monotonic_s(), id=1, item="face", row=0, column=0, frame="pier", pitch_rad=0.0, distance_m=5.0
    )
    still._requests.put((0, monotonic_s()))  # commanded in the moment before it failed
    list(device.write(node.handle(request, monotonic_s())))
    run(node, device, 1.8, lambda _: False)
    false.works = True
    false.hangs.clear()
    run(node, device, 3.0, lambda _: False)
    assert not (tmp_path / "photographs").exists()
    ready(still, node, device)
    assert photograph(node, device, 2).outcome is CaptureOutcome.TAKEN


@pytest.mark.realtime
def test_a_picture_whose_path_is_too_long_for_the_message_is_named_from_the_log_and_tagged(tmp_path):
    folder = tmp_path / ("Brücke " + "x" * 90) / ("y" * 120) / "photographs"
    still = StillCamera(still_camera(), folder, FalseDevice())
    node, device = PayloadNode(still_camera(), VEHICLE), StillDevice(still)
    ready(still, node, device)
    capture = photograph(node, device, 1)
    assert capture.file == "photographs/00001.jpg" and (folder.parent / capture.file).is_file()
    run(node, device, 5.0, lambda _: (folder / "00001.json").exists())
    assert (folder / "00001.json").exists()
    still.close()


def test_the_wait_for_a_frame_is_short_from_the_first_opening_on(monkeypatch, tmp_path):
    """Five tries of OpenCV's own 10 s are longer than the unit may take to start."""
    monkeypatch.delenv(WAIT_VARIABLE, raising=False)

    class Silent(FalseDevice):
        def grab(self) -> bool:
            self.waits_s = getattr(self, "waits_s", 0.0) + float(os.environ.get(WAIT_VARIABLE, "10"))
            return False

    silent = Silent()
    with pytest.raises(ConfigError, match="delivers no frame"):
        StillCamera(still_camera(), tmp_path, silent)
    assert silent.waits_s < START_MAX_S - 5.0


def test_a_device_of_another_size_refuses_the_start_with_one_line(tmp_path):
    false = FalseDevice()
    false.obeys = False
    with pytest.raises(ConfigError, match="/dev/video9: delivers 32 x 24 px, the camera file says 64 x 48"):
        StillCamera(still_camera(), tmp_path, false)


def test_a_device_that_is_absent_refuses_the_start_with_one_line(tmp_path):
    with pytest.raises(ConfigError, match="control.device /dev/video99: cannot be opened") as error:
        open_camera(still_camera("/dev/video99"), VEHICLE, tmp_path)
    assert "\n" not in str(error.value)


@pytest.fixture
def inspection(monkeypatch):
    """A mission with an inspection; its camera is the one that the test gives."""
    plan = load_plan(ROOT / "config/missions/two_piers_inspection.toml")

    def check(camera, tmp_path, bus=None):
        monkeypatch.setattr(preflight, "payload_camera", lambda plan: camera)
        monkeypatch.setattr(preflight, "PATIENCE_S", 2.0)
        return payload_check(VEHICLE, plan, bus, tmp_path)

    return check


@pytest.mark.realtime
def test_preflight_asks_a_camera_of_its_own(inspection, monkeypatch, tmp_path):
    still = StillCamera(still_camera(), tmp_path, FalseDevice())
    monkeypatch.setattr(preflight, "open_camera", lambda *_: StillDevice(still))
    check = inspection(still_camera(), tmp_path)
    assert check.status == "ok" and check.detail.startswith("local still, ")


@pytest.mark.realtime
def test_preflight_reports_a_camera_that_does_not_answer(inspection, tmp_path):
    control = msgspec.structs.replace(FIXED.control, link="udpin:127.0.0.1:14699")
    check = inspection(msgspec.structs.replace(FIXED, control=control), tmp_path)
    assert check.status == "failed" and "no heartbeat" in check.detail


@pytest.mark.parametrize(
    ("camera", "outcome", "text"),
    [
        (FIXED, "skipped", "behind the flight controller"),
        (msgspec.structs.replace(FIXED, control=None), "failed", "control: missing table"),
        (still_camera("/dev/video99"), "failed", "cannot be opened"),
    ],
)
def test_preflight_says_in_one_line_what_a_camera_lacks(inspection, tmp_path, camera, outcome, text):
    check = inspection(camera, tmp_path)
    assert check.status == outcome and text in check.detail and "\n" not in check.detail


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"trigger": "still"}, "control.link: has no use"),
        ({"trigger": "mavlink", "link": None}, "control.link: missing key"),
        ({"trigger": "px4", "component_id": None, "link": "udpin:127.0.0.1:14600"}, "PX4 triggers over"),
        ({"gimbal_component_id": 154}, "control.gimbal_settle_s: missing key"),
    ],
)
def test_a_control_table_that_contradicts_itself_is_refused(changes, key):
    assert key in msgspec.structs.replace(FIXED.control, **changes).contradiction()


def test_a_gimbal_without_its_component_is_refused():
    assert (
        "needs control.gimbal_component_id"
        in msgspec.structs.replace(FIXED, pitch_range_rad=(-1.0, 1.0)).contradiction()
    )
    assert camera_device.open_camera(FIXED, VEHICLE, ROOT) is None

"""Camera checks on pictures: opening, rate, size, steadiness, and the mission's markers by the tracker itself."""

import itertools
import math
import threading
import time
from pathlib import Path

import cv2
import msgspec
import numpy as np
import pytest
from preflight_fakes import ListSource

from companion.core.bus import ZmqBus
from companion.core.clock import monotonic_s
from companion.core.config import ConfigError, load
from companion.core.messages import Image
from companion.core.vehicle import Vehicle
from companion.mission.plan import load_plan, site_of
from companion.preflight import camera as camera_module
from companion.preflight.bus_source import BusSource
from companion.preflight.camera import NAMES, Images, camera_checks, latency, marker, rate, shutter
from companion.tracking.families import square_family

ROOT = Path(__file__).parents[2]
F550 = load(ROOT / "config/vehicles/f550.toml", Vehicle)
PIER = load_plan(ROOT / "config/missions/bridge_hover.toml")
NO_BUNDLE = load_plan(ROOT / "config/missions/run_5.toml")
SIDE_PX = 160


def grey() -> np.ndarray:
    """An image of nothing, with some texture."""
    return np.random.default_rng(1).integers(90, 160, (480, 640)).astype(np.uint8)


def picture() -> np.ndarray:
    """One marker of the mission's bundle, seen face on in the middle of the image."""
    printed = site_of(PIER).find(PIER.bundle).markers[0]
    cells = square_family(printed.family).picture(printed.id)
    code = cv2.resize(np.asarray(cells, np.uint8), (SIDE_PX, SIDE_PX), interpolation=cv2.INTER_NEAREST)
    image = np.full((480, 640), 220, np.uint8)
    image[160 : 160 + SIDE_PX, 240 : 240 + SIDE_PX] = code
    return cv2.GaussianBlur(image, (0, 0), 0.8)


def pictures(count: int) -> list[np.ndarray]:
    """The same picture with the noise of one pixel, as a camera delivers it."""
    images = [picture() for _ in range(count)]
    for number, image in enumerate(images):
        image[0, 0] = number
    return images


def message(gray: np.ndarray, stamp_s: float = 0.0) -> Image:
    return Image(stamp_s=stamp_s, width=gray.shape[1], height=gray.shape[0], data=gray.tobytes())


def seen(rate_hz=30.0, gray=None, jitter_s=0.0, trouble="", ended=False) -> Images:
    noise = np.random.default_rng(2).normal(0, 1, 60) * jitter_s
    arrivals_s = list(np.arange(60) / rate_hz + noise)
    return Images([message(grey() if gray is None else gray)], arrivals_s, trouble, ended)


def with_latency(camera_s: float) -> Vehicle:
    return msgspec.structs.replace(F550, latency=msgspec.structs.replace(F550.latency, camera_s=camera_s))


def test_a_good_camera_passes():
    check = rate(seen(), F550)
    assert (check.status, check.detail) == ("ok", "640 x 480 px at 30.0 Hz")
    check = latency(seen(jitter_s=0.001), F550)
    assert check.status == "ok" and check.detail.startswith("latency.camera_s is 60 ms, images arrive within ")


@pytest.mark.parametrize(
    ("images", "status", "words"),
    [
        (Images([], [], "camera /dev/video0: stopped delivering", False), "failed", "stopped delivering"),
        (Images([message(grey())], [0.0], "", True), "warning", "1 image(s)"),
        (seen(rate_hz=25.0), "warning", "the vehicle file says 30 Hz"),
        (seen(rate_hz=12.0), "failed", "slower than 15 Hz"),
        (seen(gray=np.full((480, 640), 3, np.uint8)), "warning", "uniform"),
        (seen(trouble="camera 0: no image for 2 s"), "warning", "no image for 2 s"),
        (seen(ended=True), "warning", "recording"),
    ],
)
def test_a_fault_of_the_camera_is_reported(images, status, words):
    check = rate(images, F550)
    assert check.status == status and words in check.detail


def test_a_varying_delay_is_a_warning():
    check = latency(seen(jitter_s=0.02), F550)
    assert check.status == "warning" and "no constant delay" in check.detail


def test_a_delay_of_zero_was_never_measured():
    check = latency(seen(), with_latency(0.0))
    assert check.status == "warning" and "never measured" in check.detail


def test_few_images_are_not_enough_to_judge_the_delay():
    assert latency(Images([message(grey())], [0.0, 0.1], "", True), F550).status == "skipped"


def test_a_visible_marker_is_reported_with_its_distance():
    check = marker([message(image, 0.1 * i) for i, image in enumerate(pictures(3))], F550, PIER)
    assert check.status == "ok", check
    printed = site_of(PIER).find(PIER.bundle).markers[0]
    away_m = float(check.detail.split(" m away")[0].split()[-1])
    # the picture shows one marker head on, the distance is that of the bundle's origin beside it
    expected_m = math.hypot(F550.camera.fx_px * printed.size_m / SIDE_PX, *printed.p_M)
    assert away_m == pytest.approx(expected_m, rel=0.03)
    assert "in 3 of 3 images" in check.detail


def test_an_invisible_marker_is_a_warning():
    check = marker([message(grey(), 0.1 * i) for i in range(3)], F550, PIER)
    assert check.status == "warning" and "in 0 of 3 images" in check.detail


@pytest.mark.parametrize(("plan", "why"), [(None, "no mission"), (NO_BUNDLE, "without a bundle")])
def test_without_a_bundle_there_is_no_marker_to_look_for(plan, why):
    check = marker([message(picture())], F550, plan)
    assert check.status == "skipped" and why in check.detail


def test_a_camera_that_cannot_be_opened_fails_with_its_line_and_skips_the_rest():
    def opener(vehicle):
        raise ConfigError("camera /dev/video0: no such device")

    checks = camera_checks(F550, PIER, opener)
    assert [(check.name, check.status) for check in checks] == list(
        zip(NAMES, ("failed", "skipped", "skipped", "skipped"), strict=True)
    )
    assert checks[0].detail == "/dev/video0: no such device"


def test_a_driver_that_hangs_does_not_hold_up_the_preflight(monkeypatch):
    monkeypatch.setattr(camera_module, "OPEN_TIMEOUT_S", 0.05)
    checks = camera_checks(F550, PIER, lambda vehicle: threading.Event().wait(2.0))
    assert checks[0].status == "failed" and "no answer in 0.05 s" in checks[0].detail


def test_the_source_is_looked_at_and_closed():
    source = ListSource(pictures(12))
    checks = {check.name: check for check in camera_checks(F550, PIER, lambda vehicle: source, watch_s=2.0)}
    assert source.closed
    assert "in 4 of 4 images" in checks["marker"].detail  # the tracker gets every third of 30 images a second


def test_a_camera_that_repeats_one_picture_fails():
    camera = rate(Images([message(picture(), 0.1 * i) for i in range(6)], list(np.arange(60) / 30.0), "", False), F550)
    assert camera.status == "failed" and "camera or driver hangs" in camera.detail


def test_a_driver_that_delivers_every_picture_twice_fails():
    doubled = [message(image, 0.1 * i) for image in pictures(6) for i in range(2)]
    camera = rate(Images(doubled, list(np.arange(60) / 30.0), "", False), F550)
    assert camera.status == "failed" and "6 of 12 images had come before" in camera.detail


def test_the_images_of_the_running_stack_are_used(tmp_path):
    bus, stop, images = ZmqBus(tmp_path, "camera", ()), threading.Event(), pictures(8)

    def publish() -> None:
        for image in itertools.cycle(images):
            if stop.is_set():
                return
            bus.publish(message(image, monotonic_s()))
            time.sleep(1 / 30)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        checks = {c.name: c for c in camera_checks(F550, PIER, lambda vehicle: BusSource(tmp_path), watch_s=1.0)}
    finally:
        stop.set()
        thread.join()
        bus.close()
    assert "640 x 480 px at " in checks["camera"].detail and checks["marker"].status == "ok"


def test_images_of_another_size_than_the_vehicle_files_fail():
    """A stack that runs since before the file was changed; the camera itself is not opened, which would refuse it."""
    wide = msgspec.structs.replace(F550, camera=msgspec.structs.replace(F550.camera, width_px=1280, height_px=720))
    checks = {c.name: c for c in camera_checks(wide, PIER, lambda vehicle: ListSource(pictures(4)), file="x6.toml")}
    assert checks["camera"].status == "failed"
    assert checks["camera"].detail.startswith("640 x 480 px, x6.toml says 1280 x 720 px: start the stack again")
    assert checks["marker"].status == "skipped"


def test_a_bus_without_a_stack_is_one_line(tmp_path):
    check = camera_checks(F550, PIER, lambda vehicle: BusSource(tmp_path))[0]
    assert check.status == "failed" and check.detail.startswith("no stack runs on the bus")


def test_a_mission_without_a_bundle_needs_no_camera():
    def opener(vehicle):
        raise AssertionError("the camera must not be opened")

    checks = camera_checks(F550, NO_BUNDLE, opener)
    assert [(check.name, check.status) for check in checks] == [(name, "skipped") for name in NAMES]
    assert {check.detail for check in checks} == {"the mission flies without a bundle"}


@pytest.mark.parametrize(
    ("time_s", "status", "words"),
    [
        (None, "skipped", "is not in the vehicle file"),
        (0.0, "ok", "global shutter"),
        (0.005, "ok", "rows within 5 ms"),
        (0.020, "warning", "turn slowly"),
        (0.050, "failed", "use a global shutter"),
    ],
)
def test_a_rolling_shutter_is_bounded(time_s, status, words):
    vehicle = msgspec.structs.replace(F550, camera=msgspec.structs.replace(F550.camera, rolling_shutter_s=time_s))
    check = shutter(vehicle)
    assert (check.status, words in check.detail) == (status, True)

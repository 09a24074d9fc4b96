"""Exposure, gain, white balance and focus of a V4L2 camera: set, read back, refused when the device did not take them."""

import os

import cv2
import msgspec
import numpy as np
import pytest
from synthetic_view import vehicle

from companion.core.config import ConfigError, parse
from companion.core.opencv import WAIT_S, WAIT_VARIABLE
from companion.core.vehicle import CameraControls
from companion.runtime.manager import START_MAX_S
from companion.tracking import cameras
from companion.tracking.camera_controls import fix

ALL = CameraControls(exposure_s=0.003, gain=16.0, white_balance_k=4600.0, focus=0.0)
AUTOMATIC = {cv2.CAP_PROP_AUTO_EXPOSURE: 3.0, cv2.CAP_PROP_AUTO_WB: 1.0, cv2.CAP_PROP_AUTOFOCUS: 1.0}


class FakeV4l2:
    """A device with automatic everything; `fixed`: properties that it does not change; `steps`: rounding by property."""

    def __init__(self, fixed=(), steps=None):
        self.values = {**AUTOMATIC, cv2.CAP_PROP_EXPOSURE: 156.0, cv2.CAP_PROP_FPS: 100.0}
        self.fixed, self.steps, self.released, self.set_first = fixed, steps or {}, False, []

    def isOpened(self):
        return True

    def set(self, key, value):
        self.set_first.append(key)
        if key not in self.fixed:
            step = self.steps.get(key, 1.0)
            self.values[key] = round(value / step) * step
        return key not in self.fixed

    def get(self, key):
        return self.values.get(key, -1.0)

    def read(self):
        return True, np.zeros((120, 160), np.uint8)

    def release(self):
        self.released = True


def test_every_control_is_set_and_its_automatic_is_off_before():
    device = FakeV4l2()
    assert fix(device, ALL) == ""
    assert device.values[cv2.CAP_PROP_EXPOSURE] == 30.0  # V4L2: 100 µs
    assert (device.values[cv2.CAP_PROP_GAIN], device.values[cv2.CAP_PROP_WB_TEMPERATURE]) == (16.0, 4600.0)
    assert [device.values[key] for key in AUTOMATIC] == [1.0, 0.0, 0.0]
    for automatic, own in zip(
        AUTOMATIC, (cv2.CAP_PROP_EXPOSURE, cv2.CAP_PROP_WB_TEMPERATURE, cv2.CAP_PROP_FOCUS), strict=True
    ):
        assert device.set_first.index(automatic) < device.set_first.index(own)


def test_what_is_left_out_stays_as_the_device_has_it():
    device = FakeV4l2()
    assert fix(device, CameraControls(gain=4.0)) == ""
    assert device.set_first == [cv2.CAP_PROP_GAIN]


def test_a_driver_may_round_the_exposure_to_its_lines():
    assert fix(FakeV4l2(steps={cv2.CAP_PROP_EXPOSURE: 4.0}), CameraControls(exposure_s=0.003)) == ""


def test_controls_that_the_device_did_not_take_are_named():
    device = FakeV4l2(fixed=(cv2.CAP_PROP_EXPOSURE, cv2.CAP_PROP_FOCUS))
    assert fix(device, msgspec.structs.replace(ALL, focus=10.0)) == (
        "did not take camera.controls: exposure_s = 0.003 (it has 0.0156), focus = 10 (it has -1)"
    )


@pytest.mark.parametrize("fixed", [(), (cv2.CAP_PROP_EXPOSURE,)], ids=["taken", "not taken"])
def test_a_device_with_wrong_controls_is_refused_at_the_start_and_used_when_it_is_opened_again(monkeypatch, fixed):
    made = []
    monkeypatch.setattr(cameras.cv2, "VideoCapture", lambda *_: made.append(FakeV4l2(fixed)) or made[-1])
    camera = vehicle(width_px=160, height_px=120, rate_hz=100.0, controls=ALL).camera
    reported = []
    assert cameras._open_device("/dev/video0", camera, None, reported.append) is made[-1]
    assert reported == (["did not take camera.controls: exposure_s = 0.003 (it has 0.0156)"] if fixed else [])
    if fixed:
        with pytest.raises(
            ConfigError, match=r"^camera /dev/video0: did not take camera.controls: exposure_s = 0.003 \(it"
        ):
            cameras._open_device("/dev/video0", camera, None, None)
        assert made[-1].released
    else:
        assert cameras._open_device("/dev/video0", camera, None, None) is made[-1]


class SlowV4l2(FakeV4l2):
    """Takes its time on the clock of the test; has the size and rate of the vehicle file in one format only.

    first_s: until the first image; silent: no image at all, and `read` waits as long as OpenCV does.
    """

    def __init__(self, clock, only, first_s, silent):
        super().__init__()
        self.clock, self.only, self.first_s, self.silent = clock, only, first_s, silent
        self.clock.now_s += 0.3

    def get(self, key):
        if key == cv2.CAP_PROP_FPS and self.only is not None:
            return 100.0 if self.values.get(cv2.CAP_PROP_FOURCC) == cv2.VideoWriter.fourcc(*self.only) else 10.0
        return super().get(key)

    def read(self):
        wait_s = float(os.environ[WAIT_VARIABLE]) if self.silent else self.first_s
        self.clock.now_s += wait_s
        return (False, None) if self.silent else super().read()


class Clock:
    now_s = 0.0

    def sleep(self, duration_s):
        self.now_s += duration_s


@pytest.fixture
def slow(monkeypatch):
    """Opens a slow device; returns the error or "", and how long it took [s]."""
    clock = Clock()
    monkeypatch.delenv(WAIT_VARIABLE, raising=False)
    monkeypatch.setattr(cameras, "monotonic_s", lambda: clock.now_s)
    monkeypatch.setattr(cameras, "time", clock)

    def opened(only=None, first_s=4.8, silent=False):
        monkeypatch.setattr(cameras.cv2, "VideoCapture", lambda *_: SlowV4l2(clock, only, first_s, silent))
        clock.now_s, error = 0.0, ""
        try:
            cameras._open_device("/dev/video0", vehicle(width_px=160, height_px=120, rate_hz=100.0).camera, None, None)
        except ConfigError as refused:
            error = str(refused)
        return error, clock.now_s

    return opened


def test_a_format_that_does_not_fit_costs_no_wait_for_its_first_image(slow):
    error, took_s = slow(only="MJPG")
    assert error == "" and took_s < 7.0, "three formats are left at once"


def test_a_silent_device_is_given_up_long_before_systemd_ends_the_process(slow):
    error, took_s = slow(silent=True)
    assert error == (
        "camera /dev/video0: delivers nothing, the vehicle file says 160 x 120 px at 100 Hz; gave up after 12 s"
    )
    assert took_s <= cameras.OPEN_S + float(WAIT_S) + 0.5 < START_MAX_S - 5.0


def test_a_device_without_these_controls_is_refused():
    with pytest.raises(ConfigError, match="^camera realsense: camera.controls: not for this device"):
        cameras.open_source("realsense", vehicle(controls=ALL))


def test_an_exposure_in_the_wrong_unit_is_one_line():
    with pytest.raises(ConfigError, match="exposure_s"):
        parse({"exposure_s": 30}, CameraControls, "vehicle.toml")
